//! Loading an empty table: all its rows, in one go. So ALTER TABLE fills the copy that is to take a table's
//! place, and a statement that inserts many rows a table that has none.
//!
//! Rows are not inserted one by one. Those of a copy mostly come in the order of their clustered keys, and go
//! to the clustered tree's loader at once (`btree/load.rs`). When the first one comes that does not, the tree
//! gives back those that it has got (`btree/drain.rs`), and all rows go to a sorter (`sorter`), and to the
//! loader in the end. A secondary index's entry goes to the index's sorter with its row; these trees are
//! loaded in the end, too, two of all trees at the same time.
//!
//! There is no undo for a row.
//!
//! A table **aside** is being made: nobody reads it meanwhile, and nothing is taken back:
//!
//! - **LOAD-1** The table's name begins with `#`: it is its maker's own, until it is renamed. Views that are
//!   older than that don't read it then (`OpenTable::created_by`). The load has the table's exclusive lock
//!   until its transaction ends. So it does not matter since when rows are seen: they and their long values
//!   carry an id that the load has drawn, and that has committed before the first of them is there, and
//!   their entries are frozen (FREEZE-1). No lock on a row is implied.
//! - **LOAD-2** From the first row until `finish` returns, the table is good for nothing but to be dropped:
//!   rows have no entries yet, and if the load ends in another way, or by a crash, they stay. The pages that
//!   they and their long values have go with the table's file.
//! - **LOAD-5** When `finish` returns, all of it is durable, whatever commits are to wait for: who made the
//!   table may write down elsewhere that it is whole, as the server's DDL log does.
//!
//! Any other table is loaded **by its transaction**, and that may be taken back:
//!
//! - **LOAD-6** Before the first row there is an undo record that says that a load begins (`TableLoad`). Rows
//!   and entries carry the transaction's id, and nothing is older than they are, so for readers they are what
//!   inserted ones are: no view sees them before the commit, and they are locked implicitly. Rollback takes
//!   out of all trees what carries the id: no other row of the transaction is left then, because there was
//!   none when the load began, and those that came later have newer undo records.
//! - **LOAD-7** A load begins when the transaction has the table exclusively and no tree of it has a record,
//!   not even a delete-marked one: so nobody has a lock in a gap, purge finds nothing to remove, and nobody
//!   else changes the trees until `finish` or `abandon`, which leave an intention of the lock if there was no
//!   more before. Who reads by views goes on meanwhile, if metadata locks keep tables from changing under him
//!   (`trust_metadata_locks`).
//! - **LOAD-8** Pages of long values have their undo records (UNDO-5), each followed by another `TableLoad`:
//!   the row that refers to them is taken back before them.
//!
//! For both:
//!
//! - **LOAD-3** `finish` leaves what inserts would have left: no two rows with the same clustered key, nor
//!   with the same key in a unique index but for keys with a NULL; one entry for each row in each index;
//!   counters that are behind the values of all rows, on disk, too.
//! - **LOAD-4** Of rows with the same key that one is named which an insert would have refused: the first
//!   that has the key of one that came before it, and the first index in which it has.
//!
//! Trees are good ones after each mini-transaction (BT-4), so a thread that opens the table all the same, for
//! statistics, say, finds fewer rows, and no damage. Purge has no reason to come: it goes by undo records.
//! Each leaf, and each page of a long value, is in the redo log once, if rows come in order.
//!
//! Memory is what the sorters may take: half of it for rows if there are entries, too.

mod duplicate;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use smallvec::SmallVec;

use crate::base::{Error, Meter, PageNo, Phase, Result, RollPtr, RowHead, TrxId};
use crate::btree::{Loader, Tree};
use crate::catalog::{EXTERNAL, EntryRecord, OpenIndex, OpenTable, is_aside};
use crate::lock::TableMode;
use crate::mtr::Mtr;
use crate::row::{Datum, RowRef};
use crate::txn::{Counters, Transaction, TrxNumber};
use crate::undo::UndoKind;

use super::build::{ASKED_EVERY, BuildRoom, by_threads, check_interrupt, check_key};
use super::bulk::move_counter;
use super::external::{LoadedChains, row_limit, row_with_external_columns};
use super::sorter::Sorter;
use super::undo::{RecordChange, append_undo, encode_undo};
use super::write::clustered_key;
use duplicate::{Duplicate, SameKeys};

/// Redo for the undo record of a load, with what it takes to begin a log.
const UNDO_LOG_BYTES: u32 = 4096;

/// Rows on their way into a table that is empty before. Dropped before `finish`, it leaves a table aside good
/// for nothing but to be dropped, and has the transaction keep another one locked.
pub struct TableLoad {
    table: Arc<OpenTable>,
    place: Place,
    rows: Rows,
    /// Where their sorter would be.
    room: BuildRoom,
    /// By secondary index.
    entries: Vec<Sorter>,
    /// The transaction that has the table's lock.
    trx: TrxNumber,
    /// How many rows have come.
    n: u64,
    /// The greatest value of the AUTO_INCREMENT counter among them.
    counted: Option<u64>,
    /// LOAD-1, LOAD-6: the id is that of rows, too, and of entries in a transaction.
    chains: LoadedChains,
    /// A duplicate is refused by `finish`, which shows it, not earlier.
    tells_late: bool,
    /// Something has failed (LOAD-2).
    is_over: bool,
    /// Buffers for a row's clustered key, its record, and an entry's key.
    key: Vec<u8>,
    record: Vec<u8>,
    entry: Vec<u8>,
}

/// What becomes of the rows if the load fails, and who may see the table meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// LOAD-1, LOAD-2.
    Aside,
    /// LOAD-6; whether the transaction had the table for itself before.
    InTransaction { was_own: bool },
}

/// What has become of the rows so far.
enum Rows {
    /// All came in order, and are in the clustered tree or on the way there.
    InOrder(Loader<ClusteredTree>),
    /// Each under its key and its number.
    Sorting(Sorter),
}

/// A table's clustered tree.
#[derive(Clone)]
struct ClusteredTree(Arc<OpenTable>);

impl Deref for ClusteredTree {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        &self.0.clustered.tree
    }
}

impl TableLoad {
    /// Begins to load an empty table, which the transaction locks.
    ///
    /// # Errors
    ///
    /// `Invalid`: it is not empty. `Unsupported`: it is a temporary one, or its rows have to have parents,
    /// and the transaction checks them.
    pub(crate) fn begin(
        trx: &mut Transaction,
        table: &Arc<OpenTable>,
        room: BuildRoom,
    ) -> Result<TableLoad> {
        check_loadable(trx, table)?;
        if is_aside(&table.def.name) {
            trx.use_table(table, TableMode::Exclusive)?;
            trx.core().check_writable()?;
            check_empty(table)?;
            let sys = &trx.core().sys;
            let writer = sys.assign_id()?;
            let no = sys.start_commit(writer);
            sys.finish_commit(writer, no);
            return TableLoad::new(trx, table, Place::Aside, writer, room);
        }
        // Not to keep others from it in vain.
        if table.is_dropped() || check_empty(table).is_err() {
            trx.use_table(table, TableMode::IntentionExclusive)?;
            check_empty(table)?;
        }
        let was_own = trx.has_table(table.id(), TableMode::Exclusive);
        trx.use_table(table, TableMode::Exclusive)?;
        let begun = check_empty(table).and_then(|()| {
            note_load(trx, table)?;
            let (place, writer) = (Place::InTransaction { was_own }, trx.writer()?);
            TableLoad::new(trx, table, place, writer, room)
        });
        if begun.is_err() && !was_own {
            trx.weaken_table(table, TableMode::IntentionExclusive);
        }
        begun
    }

    fn new(
        trx: &Transaction,
        table: &Arc<OpenTable>,
        place: Place,
        writer: TrxId,
        room: BuildRoom,
    ) -> Result<TableLoad> {
        let indexes = table.secondary.len();
        let memory = match indexes {
            0 => 0,
            n => room.memory / 2 / n,
        };
        let sorter = |_| room.sorter(memory);
        let entries = table.secondary.iter().map(sorter).collect();
        let tree = ClusteredTree(table.clone());
        let loader = Loader::new(tree, room.fill_factor_pct)?.with_helper();
        Ok(TableLoad {
            table: table.clone(),
            place,
            rows: Rows::InOrder(loader),
            room,
            entries,
            trx: trx.number(),
            n: 0,
            counted: None,
            chains: LoadedChains { writer, next: 0 },
            tells_late: false,
            is_over: false,
            key: Vec::new(),
            record: Vec::new(),
            entry: Vec::new(),
        })
    }

    /// Has `finish` show all duplicates.
    pub(super) fn tell_late(&mut self) {
        self.tells_late = true;
    }

    /// Takes the next row: one datum per column.
    ///
    /// # Errors
    ///
    /// Those of an insert, and after one of them no other row is taken. That a row has the same key as
    /// another one may be found out in the end only.
    pub fn push(&mut self, trx: &mut Transaction, values: &[Datum<'_>]) -> Result<()> {
        self.push_with(trx, None, values)
    }

    /// The same where hidden row ids are what they were in another table.
    pub(super) fn push_with(
        &mut self,
        trx: &mut Transaction,
        row_id: Option<&[u8]>,
        values: &[Datum<'_>],
    ) -> Result<()> {
        self.go_on(trx, |load, trx| {
            load.begin_row(trx, row_id, values)?;
            load.check_order()?;
            load.take(trx, values)
        })
    }

    /// The same for who has to know at once whether it is a duplicate. False: it does not come behind the
    /// others in the order of the clustered keys, and is not taken; after `finish` it may be inserted. With
    /// a unique secondary index that there are no duplicates is still to be found out.
    pub fn push_next(&mut self, trx: &mut Transaction, values: &[Datum<'_>]) -> Result<bool> {
        self.go_on(trx, |load, trx| {
            load.begin_row(trx, None, values)?;
            let is_next = load.is_next();
            if is_next {
                load.take(trx, values)?;
            }
            Ok(is_next)
        })
    }

    fn go_on<R>(
        &mut self,
        trx: &mut Transaction,
        step: impl FnOnce(&mut TableLoad, &mut Transaction) -> Result<R>,
    ) -> Result<R> {
        self.check_not_over(trx)?;
        // FL-3: its rows are logged, though not undone one by one.
        trx.core().log.check_room()?;
        let done = step(self, trx);
        self.is_over = done.is_err();
        done
    }

    fn check_not_over(&self, trx: &Transaction) -> Result<()> {
        let name = &self.table.def.name;
        if self.is_over {
            return Err(Error::invalid(format!(
                "the load of table {name} has failed; drop the table or roll back"
            )));
        }
        // LOAD-1.
        if self.trx != trx.number() {
            return Err(Error::invalid(format!(
                "the load of table {name} was begun by another transaction"
            )));
        }
        trx.check_active()
    }

    /// Makes the row's clustered key.
    fn begin_row(
        &mut self,
        trx: &Transaction,
        row_id: Option<&[u8]>,
        values: &[Datum<'_>],
    ) -> Result<()> {
        trx.check_interrupt()?;
        self.table.format.check_count(values)?;
        self.key.clear();
        clustered_key(&self.table, row_id, values, &mut self.key)?;
        check_key(&self.table.clustered, &self.key)
    }

    /// Takes the row whose key is at hand.
    fn take(&mut self, trx: &mut Transaction, values: &[Datum<'_>]) -> Result<()> {
        self.make_record(trx, values)?;
        self.put_row()?;
        for number in 0..self.entries.len() {
            self.put_entry(number, values)?;
        }
        self.n += 1;
        if let Some(value) = self.table.auto_increment_value(values) {
            self.table.raise_auto_increment(value.saturating_add(1));
            self.counted = self.counted.max(Some(value));
        }
        Ok(())
    }

    /// Whether all rows come in order, with that whose key is at hand.
    fn is_next(&self) -> bool {
        match &self.rows {
            Rows::InOrder(loader) => loader.last_key().is_none_or(|last| last < &self.key[..]),
            Rows::Sorting(_) => false,
        }
    }

    /// If the key at hand does not come behind that of the row before, all rows are to be sorted.
    fn check_order(&mut self) -> Result<()> {
        let Rows::InOrder(loader) = &self.rows else {
            return Ok(());
        };
        let Some(last) = loader.last_key() else {
            return Ok(());
        };
        if last < &self.key[..] {
            return Ok(());
        }
        // An insert would refuse it now, unless it has refused one for another index.
        let may_be_other = self.table.secondary.iter().any(|index| index.unique);
        if last == &self.key[..] && !may_be_other && !self.tells_late {
            let index = self.table.clustered.name.clone();
            return Err(Error::DuplicateKey { index });
        }
        let memory = match self.entries.is_empty() {
            true => self.room.memory,
            false => self.room.memory / 2,
        };
        let mut sorter = self.room.sorter(memory);
        self.take_rows_back(&mut sorter)?;
        self.rows = Rows::Sorting(sorter);
        Ok(())
    }

    /// Brings the rows that the clustered tree has got to the sorter, and leaves it empty.
    fn take_rows_back(&mut self, sorter: &mut Sorter) -> Result<()> {
        if let Rows::InOrder(loader) = &mut self.rows {
            loader.finish()?;
        }
        let (mut key, mut number) = (Vec::new(), 0);
        self.table.clustered.tree.drain(|own, record| {
            put_numbered(own, number, &mut key);
            number += 1;
            sorter.push(&key, record)
        })?;
        if number != self.n {
            let expected = format!("the {} rows that were loaded", self.n);
            return Err(self.table.clustered.damage_at(&[], &expected, number));
        }
        Ok(())
    }

    /// Makes the clustered record of a row.
    fn make_record(&mut self, trx: &mut Transaction, values: &[Datum<'_>]) -> Result<()> {
        let table = &*self.table;
        let record = &mut self.record;
        let is_short = table.format.encoded_len(values) <= row_limit(table, self.key.len());
        let head = RowHead {
            flags: if is_short { 0 } else { EXTERNAL },
            trx: self.chains.writer,
            // There is nothing older.
            roll_ptr: RollPtr::new(true, 0, PageNo(0), 0),
        };
        record.clear();
        record.extend_from_slice(&head.to_bytes());
        match is_short {
            true => table.format.encode(values, record),
            false if self.place == Place::Aside => {
                let (chains, len) = (&mut self.chains, self.key.len());
                chains.put_row(table, values, len, record, &|| trx.check_interrupt())
            }
            false => {
                let row = row_with_external_columns(trx, table, values, self.key.len(), None)?;
                record.extend_from_slice(&row.bytes);
                row.give_back(trx);
                // LOAD-8.
                note_load(trx, table)
            }
        }
    }

    /// Has the record at hand go where rows go.
    fn put_row(&mut self) -> Result<()> {
        match &mut self.rows {
            Rows::InOrder(loader) => loader.push(&self.key, &self.record),
            Rows::Sorting(sorter) => {
                put_numbered(&self.key, self.n, &mut self.entry);
                sorter.push(&self.entry, &self.record)
            }
        }
    }

    /// Has the row's entry in a secondary index go to its sorter.
    fn put_entry(&mut self, number: usize, values: &[Datum<'_>]) -> Result<()> {
        let index = &self.table.secondary[number];
        let entry = &mut self.entry;
        entry.clear();
        index.codec.encode_columns(values, entry)?;
        let forms = index.forms(entry, &self.key, |column| values[column])?;
        let in_key = index.end_entry_key(entry, 0, &self.key)?;
        let record = EntryRecord {
            trx: self.chains.writer,
            ..EntryRecord::new(forms, &self.key, in_key)
        };
        let payload = match self.place {
            // LOAD-1.
            Place::Aside => index.frozen_payload(&record),
            Place::InTransaction { .. } => index.entry_payload(&record),
        };
        let sorted = SortedEntry {
            record: &payload,
            number: self.n,
            may_repeat: !index.unique || index.codec.has_null(values),
        };
        self.entries[number].push(entry, &sorted.encode())
    }

    /// Loads what is left. After that the table is one with all the rows, a table aside durably.
    ///
    /// # Errors
    ///
    /// `DuplicateKey` after `duplicate` was shown the row (LOAD-4), with the index's name; `Interrupted` with
    /// the transaction; `NoSpace`.
    pub fn finish(
        self,
        trx: &mut Transaction,
        duplicate: &mut dyn FnMut(&str, &RowRef<'_>),
    ) -> Result<()> {
        let held = self.held();
        let done = self.finish_trees(trx, duplicate);
        held.end(trx);
        done
    }

    /// Ends a load before its end. What it has done of a table that is not aside, rollback takes back.
    pub fn abandon(self, trx: &mut Transaction) {
        let held = self.held();
        // LOAD-7: nobody changes the trees when the lock goes (HELP-1).
        drop(self);
        held.end(trx);
    }

    fn held(&self) -> Held {
        Held {
            table: self.table.clone(),
            place: self.place,
            trx: self.trx,
        }
    }

    fn finish_trees(
        self,
        trx: &Transaction,
        duplicate: &mut dyn FnMut(&str, &RowRef<'_>),
    ) -> Result<()> {
        self.check_not_over(trx)?;
        let TableLoad {
            table,
            place,
            rows,
            room,
            entries,
            n,
            counted,
            chains,
            ..
        } = self;
        let rows = match rows {
            Rows::InOrder(mut loader) => {
                loader.finish()?;
                None
            }
            Rows::Sorting(sorter) => Some((&table.clustered, Work::Rows(sorter))),
        };
        let units = n * (u64::from(rows.is_some()) + entries.len() as u64);
        let entries = table.secondary.iter().zip(entries);
        let entries = entries.map(|(index, sorter)| (index, Work::Entries(sorter)));
        let work = rows.into_iter().chain(entries).collect();
        let meter = Meter::begin(trx.watch(), Phase::Fill, units, ASKED_EVERY as u64);
        if let Some((index, found)) =
            load_trees(work, room.fill_factor_pct, &meter, trx.interrupt())?
        {
            found.tell(&table, &index.name, duplicate)?;
            let index = index.name.clone();
            return Err(Error::DuplicateKey { index });
        }
        if let Some(most) = counted {
            move_counter(&table, most)?;
        }
        if place == Place::Aside {
            // LOAD-5.
            let log = &trx.core().log;
            log.sync_to(log.next_lsn())?;
        }
        table.count_rows(n as i64);
        let counters = &trx.core().counters;
        Counters::add(&counters.rows_inserted, n);
        Counters::add(&counters.rows_loaded, n);
        Counters::add(&counters.external_values_written, chains.next);
        Ok(())
    }
}

fn check_loadable(trx: &Transaction, table: &OpenTable) -> Result<()> {
    let name = &table.def.name;
    if !table.has_own_file() {
        return Err(Error::unsupported(format!(
            "loading table {name}, which is a temporary one"
        )));
    }
    if trx.checks_foreign_keys() && table.needs_parents() {
        return Err(Error::unsupported(format!(
            "loading table {name}, whose rows have to have parents"
        )));
    }
    Ok(())
}

/// LOAD-7.
fn check_empty(table: &OpenTable) -> Result<()> {
    for index in table.indexes() {
        let is_buffer_empty = match index.buffer.tree_in_use()? {
            Some(tree) => tree.is_empty()?,
            None => true,
        };
        if !(is_buffer_empty && index.tree.is_empty()?) {
            return Err(Error::invalid(format!(
                "table {} can't be loaded: it is not empty, or purge has not yet removed what was there",
                table.def.name
            )));
        }
    }
    Ok(())
}

/// LOAD-6.
fn note_load(trx: &mut Transaction, table: &OpenTable) -> Result<()> {
    let kind = UndoKind::TableLoad;
    let change = RecordChange::insert(kind, table.clustered.id, &[]);
    encode_undo(trx, table, &change)?;
    let core = trx.core().clone();
    let mut mtr = Mtr::begin_in(&core.mtr, table.space(), UNDO_LOG_BYTES)?;
    let page = trx.undo_mut().latch(&mut mtr, table.id(), kind)?;
    append_undo(trx, &mut mtr, page, table.id(), kind);
    mtr.commit();
    Ok(())
}

/// The lock of a load.
struct Held {
    table: Arc<OpenTable>,
    place: Place,
    /// The transaction that has it.
    trx: TrxNumber,
}

impl Held {
    /// LOAD-7: the load is over.
    fn end(self, trx: &mut Transaction) {
        let is_to_go = self.place == (Place::InTransaction { was_own: false });
        if is_to_go && trx.number() == self.trx {
            trx.weaken_table(&self.table, TableMode::IntentionExclusive);
        }
    }
}

/// Makes `out` the key under which a row is sorted: those of one clustered key in the order of their numbers.
/// No key begins with another one (KEY-2).
fn put_numbered(key: &[u8], number: u64, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(key);
    out.extend_from_slice(&number.to_be_bytes());
}

/// What goes through a sorter with an entry's key.
struct SortedEntry<'a> {
    /// What is to stand behind the key.
    record: &'a [u8],
    /// Of the row.
    number: u64,
    /// Other entries may have the same own key.
    may_repeat: bool,
}

impl<'a> SortedEntry<'a> {
    fn encode(&self) -> SmallVec<[u8; 32]> {
        let mut out = SmallVec::new();
        out.extend_from_slice(&self.number.to_le_bytes());
        out.push(u8::from(self.may_repeat));
        out.extend_from_slice(self.record);
        out
    }

    /// `None` if these bytes are none.
    fn decode(bytes: &'a [u8]) -> Option<SortedEntry<'a>> {
        let (number, rest) = bytes.split_first_chunk()?;
        let (may_repeat, record) = rest.split_first()?;
        Some(SortedEntry {
            record,
            number: u64::from_le_bytes(*number),
            may_repeat: *may_repeat != 0,
        })
    }
}

/// A tree that is to be loaded from a sorter.
enum Work {
    Rows(Sorter),
    Entries(Sorter),
}

/// Loads trees, two at the same time. Returns the row that is to be named, and the index, if rows have the
/// same key (LOAD-4). The trees have no such rows then, but all others.
fn load_trees<'t>(
    work: Vec<(&'t OpenIndex, Work)>,
    fill_factor_pct: u32,
    meter: &Meter,
    interrupt: &Arc<AtomicBool>,
) -> Result<Option<(&'t OpenIndex, Duplicate)>> {
    let done = by_threads(2, work, meter, |(index, sorter)| {
        let found = match sorter {
            Work::Rows(sorter) => load_rows(index, sorter, fill_factor_pct, meter, interrupt)?,
            Work::Entries(sorter) => {
                load_entries(index, sorter, fill_factor_pct, meter, interrupt)?
            }
        };
        Ok(found.map(|found| (index, found)))
    })?;
    let found = done.into_iter().flatten();
    // Of one row the first index.
    Ok(found.min_by_key(|(_, duplicate)| duplicate.number))
}

fn load_rows(
    index: &OpenIndex,
    sorter: Sorter,
    fill_factor_pct: u32,
    meter: &Meter,
    interrupt: &Arc<AtomicBool>,
) -> Result<Option<Duplicate>> {
    let mut rows = sorter.finish(&|| check_interrupt(interrupt))?;
    let mut loader = Loader::new(&index.tree, fill_factor_pct)?;
    let mut found = None;
    let mut n = 0usize;
    while let Some((key, record)) = rows.next_record()? {
        // A file of runs is read like any other.
        let damaged = || index.damage_at(key, "a sorted row", "something else");
        let (key, number) = key.split_last_chunk().ok_or_else(damaged)?;
        match loader.last_key() == Some(key) {
            // Of one key they come in the order of their numbers.
            true => {
                let number = u64::from_be_bytes(*number);
                Duplicate::keep_earlier(&mut found, number, key, Some(record));
            }
            false => loader.push(key, record)?,
        }
        n += 1;
        if n.is_multiple_of(ASKED_EVERY) {
            meter.add(ASKED_EVERY as u64);
            check_interrupt(interrupt)?;
        }
    }
    meter.add((n % ASKED_EVERY) as u64);
    loader.finish()?;
    Ok(found)
}

fn load_entries(
    index: &OpenIndex,
    sorter: Sorter,
    fill_factor_pct: u32,
    meter: &Meter,
    interrupt: &Arc<AtomicBool>,
) -> Result<Option<Duplicate>> {
    let mut entries = sorter.finish(&|| check_interrupt(interrupt))?;
    let mut loader = Loader::new(&index.tree, fill_factor_pct)?;
    let mut same = SameKeys::default();
    let mut n = 0usize;
    while let Some((key, payload)) = entries.next_record()? {
        let damaged = || index.damage_at(key, "a sorted entry", "something else");
        let entry = SortedEntry::decode(payload).ok_or_else(damaged)?;
        if !entry.may_repeat {
            let record = index.entry(entry.record).ok_or_else(damaged)?;
            let (own, clustered) = record.keys(key).ok_or_else(damaged)?;
            same.see(own, clustered, entry.number);
        }
        // Else two rows have the same clustered key, too.
        if loader.last_key() != Some(key) {
            loader.push(key, entry.record)?;
        }
        n += 1;
        if n.is_multiple_of(ASKED_EVERY) {
            meter.add(ASKED_EVERY as u64);
            check_interrupt(interrupt)?;
        }
    }
    meter.add((n % ASKED_EVERY) as u64);
    loader.finish()?;
    Ok(same.found)
}
