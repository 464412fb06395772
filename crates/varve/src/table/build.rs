//! Building indexes of a table whose rows are there: one scan for all of them, an external merge sort for
//! each, whose runs helpers sort while the scan goes on, and the tree is loaded in order.
//!
//! The table is read by a view that was opened while nobody could change it, and is changed meanwhile: the
//! indexes catch up with that afterwards (`catch_up.rs`). When the indexes become the table's, nobody changes
//! it again, so views that see the indexes see these rows (MVCC-1), and others don't read them
//! (`OpenIndex::created_by`): all entries are frozen (FREEZE-1).
//!
//! - **BUILD-1** In a unique index no two entries have the same own key, but for keys with a NULL.
//!
//! Each tree is a good one at any moment (`btree/load.rs`), and the caller knows of it (LOOSE-1), so a crash
//! or a failure leaves nothing that is not given back.
//!
//! What is built may also be another table (`rebuild.rs`), which is filled and catches up in the same way.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::{Crowd, Error, GoingOn, Meter, Phase, Result, threads};
use crate::btree::Loader;
use crate::catalog::{ClusteredKey, EntryRecord, OpenIndex, OpenTable};
use crate::encryption::Scratch;
use crate::io::Disk;
use crate::lock::TableMode;
use crate::page::max_key;
use crate::row::{ExternalValues, RowRef};
use crate::txn::{Isolation, Transaction, ValueSource};

use super::catch_up::Version;
use super::cursor::{Cursor, LockMode};
use super::external::{damaged, row_for_keys};
use super::rebuild::NewTable;
use super::sorter::{SortHelpers, Sorter};
use super::version::row_record;

/// Entries between two questions whether to go on.
pub(super) const ASKED_EVERY: usize = 4096;
/// How long a thread that waits for another one says nothing of its progress.
const TELL_WAITING: Duration = Duration::from_millis(100);
/// Bytes of memory that a sorter has at least: there may be many, of partitions with many indexes.
const LEAST_MEMORY: usize = 16 << 10;
/// So many changed rows are few enough to be left for the end, when others have to wait.
const FEW_CHANGES: usize = 1000;

/// What building trees may take, and what becomes of them.
#[derive(Clone)]
pub struct BuildRoom {
    pub disk: Arc<dyn Disk>,
    /// Where files of runs go that do not fit in memory.
    pub dir: PathBuf,
    /// Bytes of memory, for all indexes together.
    pub memory: usize,
    /// How much of each leaf is filled.
    pub fill_factor_pct: u32,
    /// Those of the database.
    pub helpers: Arc<SortHelpers>,
    /// If a table is encrypted.
    pub scratch: Option<Arc<Scratch>>,
}

impl BuildRoom {
    /// Sorts in so much of the memory, or a little if that is less.
    pub(super) fn sorter(&self, memory: usize) -> Sorter {
        let (disk, dir) = (self.disk.clone(), self.dir.clone());
        let sorter = Sorter::new(disk, dir, memory.max(LEAST_MEMORY));
        let sorter = sorter.with_helpers(&self.helpers);
        sorter.with_scratch(self.scratch.clone())
    }
}

/// Is shown a row, with all its values, that has the same key in the index of this name as another one.
pub type TellDuplicate<'a> = &'a mut dyn FnMut(&str, &RowRef<'_>);

/// BUILD-1: an index, and the clustered key of one of two rows that have the same key there.
pub(super) type Duplicate = (String, Vec<u8>);

/// What is made of a table's rows.
pub enum Product {
    /// Indexes of the table, which may not have them yet.
    Indexes(Vec<OpenIndex>),
    /// The table that is to take its place.
    Table(NewTable),
}

impl Product {
    /// For an error that is about all of it.
    fn name(&self) -> &str {
        match self {
            Product::Indexes(indexes) => &indexes[0].name,
            Product::Table(new) => &new.table.clustered.name,
        }
    }

    /// How others may use the table meanwhile.
    pub fn others_may(&self) -> TableMode {
        match self {
            Product::Indexes(_) => TableMode::IntentionExclusive,
            Product::Table(new) => new.others_may(),
        }
    }
}

/// What is built of a table while that is changed.
pub struct Build {
    pub(super) table: Arc<OpenTable>,
    pub(super) product: Product,
    pub(super) room: BuildRoom,
    /// CATCH-1: the product has what its view sees, once it is filled.
    pub(super) seen: Transaction,
    is_filled: bool,
    /// Something has failed: notes may be lost.
    is_over: bool,
}

impl Build {
    /// Prepares to fill these trees, which are empty. `trx` has locked the table exclusively, and keeps DDL
    /// from it until the end; its interrupt ends the build. Of the rows that are changed from now on no more
    /// than so many bytes are noted.
    pub fn begin(
        trx: &Transaction,
        table: &Arc<OpenTable>,
        product: Product,
        room: BuildRoom,
        most_notes: usize,
    ) -> Build {
        let seen = reader(trx);
        table.followed.follow(most_notes);
        Build {
            table: table.clone(),
            product,
            room,
            seen,
            is_filled: false,
            is_over: false,
        }
    }

    /// Whom to ask for values of computed columns that a new table has and the old one has not.
    pub fn set_value_source(&mut self, values: Arc<dyn ValueSource>) {
        self.seen.set_value_source(values);
    }

    /// Brings the product up to now, but for a few changes of others. After an error there is nothing more to
    /// do but to drop it.
    pub fn advance(&mut self, tell: TellDuplicate<'_>) -> Result<()> {
        self.go_on(|build| build.fill_and_follow(tell))
    }

    /// Brings the product up to now, when nobody changes the table. It was brought up to a while ago.
    pub fn finish(&mut self, tell: TellDuplicate<'_>) -> Result<()> {
        debug_assert!(self.is_filled, "it has advanced");
        self.go_on(|build| build.catch_up(tell).map(drop))
    }

    fn go_on(&mut self, step: impl FnOnce(&mut Build) -> Result<()>) -> Result<()> {
        if self.is_over {
            let name = &self.table.def.name;
            let what = format!("what was built of table {name} has failed; give it up");
            return Err(Error::invalid(what));
        }
        let done = step(self);
        self.is_over = done.is_err();
        done
    }

    fn fill_and_follow(&mut self, tell: TellDuplicate<'_>) -> Result<()> {
        if !self.is_filled {
            let found = self.fill(tell)?;
            self.refuse(found, tell)?;
            self.is_filled = true;
        }
        let mut before = usize::MAX;
        loop {
            let changed = self.catch_up(tell)?;
            // As long as it gets less: who waits for the last round keeps everybody from the table.
            if changed <= FEW_CHANGES || changed >= before {
                return Ok(());
            }
            before = changed;
        }
    }

    fn fill(&mut self, tell: TellDuplicate<'_>) -> Result<Option<Duplicate>> {
        let interrupt = self.seen.interrupt().clone();
        let (table, product) = (&self.table, &self.product);
        let going_on = &|| going_on(table, product, &interrupt);
        let seen = &mut self.seen;
        match product {
            Product::Indexes(indexes) => fill(table, indexes, &self.room, seen, going_on),
            Product::Table(new) => {
                new.fill(table, self.room.clone(), seen, tell, going_on)?;
                Ok(None)
            }
        }
    }

    /// Shows a row that an index refuses, if there is one.
    pub(super) fn refuse(&self, found: Option<Duplicate>, tell: TellDuplicate<'_>) -> Result<()> {
        let Some((index, key)) = found else {
            return Ok(());
        };
        let mut version = Version::default();
        if version.read(&self.seen, &self.table, &key)?.is_some() {
            tell(&index, &version.whole_row(&self.seen, &self.table, &key)?);
        }
        Err(Error::DuplicateKey { index })
    }

    /// An error if it is not to go on.
    pub(super) fn check(&self) -> Result<()> {
        going_on(&self.table, &self.product, self.seen.interrupt())
    }
}

/// One for each index, which share the memory.
pub(super) fn sorters(indexes: &[OpenIndex], room: &BuildRoom) -> Vec<Sorter> {
    let memory = room.memory / indexes.len();
    let sorter = |_| room.sorter(memory);
    indexes.iter().map(sorter).collect()
}

/// Fills empty trees with the entries of all rows that the view sees.
fn fill(
    table: &Arc<OpenTable>,
    indexes: &[OpenIndex],
    room: &BuildRoom,
    seen: &mut Transaction,
    going_on: &(dyn Fn() -> Result<()> + Sync),
) -> Result<Option<Duplicate>> {
    let mut sorters = sorters(indexes, room);
    let mut crowd = Crowd::begin();
    let rows = sort_entries(table, indexes, &mut sorters, seen, going_on)?;
    let entries = rows * indexes.len() as u64;
    let meter = Meter::begin(seen.watch(), Phase::Fill, entries, ASKED_EVERY as u64);
    let work = indexes.iter().zip(sorters).collect();
    let threads = match crowd.is_dense() {
        true => 1,
        false => 2,
    };
    let done = by_threads(threads, work, &meter, |(index, sorter)| {
        let found = load(index, sorter, room.fill_factor_pct, &meter, going_on)?;
        Ok(found.map(|key| (index.name.clone(), key)))
    })?;
    Ok(done.into_iter().flatten().next())
}

/// Scans the table. Returns how many rows there are.
fn sort_entries(
    table: &Arc<OpenTable>,
    indexes: &[OpenIndex],
    sorters: &mut [Sorter],
    seen: &mut Transaction,
    going_on: GoingOn<'_>,
) -> Result<u64> {
    let meter = Meter::begin(
        seen.watch(),
        Phase::Read,
        table.row_count(),
        ASKED_EVERY as u64,
    );
    let mut cursor = Cursor::open(table.clone(), 0)?;
    // What keys are made of is fetched below.
    cursor.set_wanted_columns(Some(&vec![false; table.def.columns.len()]));
    let mut codecs: Vec<_> = indexes.iter().map(|index| &index.codec).collect();
    codecs.push(&table.clustered.codec);
    let mut values = ExternalValues::default();
    let mut entry = Entry::default();
    let core = seen.core().clone();
    let history = Some(&core.history);
    let mut found = cursor.first(seen, LockMode::None)?;
    let mut n = 0usize;
    while found {
        let key = cursor.key();
        let record = row_record(table, key, cursor.record()?)?;
        let row = row_for_keys(table, history, &codecs, key, record.row, &mut values)?;
        let row = row.ok_or_else(|| damaged(table, key))?;
        for (index, sorter) in indexes.iter().zip(&mut *sorters) {
            entry.make(index, &row, key)?;
            sorter.push(&entry.key, &entry.payload)?;
        }
        n += 1;
        meter.add(1);
        if n.is_multiple_of(ASKED_EVERY) {
            going_on()?;
        }
        found = cursor.next(seen)?;
    }
    Ok(n as u64)
}

impl Drop for Build {
    fn drop(&mut self) {
        self.table.followed.forget();
    }
}

/// Does all pieces of work, `most` at the same time, of which there may be two, and returns what came of
/// them, in their order. The first error ends it when the pieces at hand are done. What the other thread adds
/// to the meter is told of while it is waited for.
pub(super) fn by_threads<W: Send, R: Send>(
    most: usize,
    work: Vec<W>,
    meter: &Meter,
    piece: impl Fn(W) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let is_alone = work.len().min(most) < 2;
    let work = Mutex::new(work.into_iter().enumerate());
    let done = Mutex::new(Vec::new());
    let has_failed = AtomicBool::new(false);
    let go_on = || -> Result<()> {
        // Relaxed: one piece more does no harm.
        while !has_failed.load(Ordering::Relaxed) {
            // The lock is given up before the work.
            let next = work.lock().next();
            let Some((number, next)) = next else {
                return Ok(());
            };
            let result = piece(next);
            has_failed.fetch_or(result.is_err(), Ordering::Relaxed);
            done.lock().push((number, result?));
        }
        Ok(())
    };
    let (waiting, is_done) = (thread::current(), AtomicBool::new(false));
    thread::scope(|scope| {
        let other = || {
            let done = go_on();
            // Before the thread has ended: a time-out is not waited for because it has a little left to do.
            is_done.store(true, Ordering::Release);
            waiting.unpark();
            done
        };
        // If the system gives no thread, this one does it all.
        let start = || threads::spawn_scoped(scope, "varve-build", other).ok();
        let other = (!is_alone).then(start).flatten();
        let own = go_on();
        let goes_on = |other: &ScopedJoinHandle<'_, _>| {
            !is_done.load(Ordering::Acquire) && !other.is_finished()
        };
        while other.as_ref().is_some_and(goes_on) {
            thread::park_timeout(TELL_WAITING);
            meter.tell();
        }
        let other = other.map(|other| other.join().expect("it does not panic"));
        own.and(other.unwrap_or(Ok(())))
    })?;
    let mut done = done.into_inner();
    done.sort_unstable_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

/// A transaction whose view is opened now. The caller's lock keeps DDL from the table, so it needs none, and
/// has none when the caller locks the table for itself.
pub(super) fn reader(of: &Transaction) -> Transaction {
    let mut reader = Transaction::begin(of.core().clone(), Isolation::RepeatableRead);
    reader.wait_as(of);
    reader.ask_as(of);
    reader.trust_metadata_locks();
    reader.take_snapshot();
    reader
}

pub fn check_interrupt(interrupt: &AtomicBool) -> Result<()> {
    // Acquire: pairs with the interrupter's store, as a waiter's load.
    match interrupt.load(Ordering::Acquire) {
        false => Ok(()),
        true => Err(Error::Interrupted),
    }
}

fn going_on(table: &OpenTable, product: &Product, interrupt: &AtomicBool) -> Result<()> {
    check_interrupt(interrupt)?;
    match table.followed.exceeded() {
        None => Ok(()),
        Some(limit) => Err(Error::TooManyChanges {
            index: product.name().into(),
            limit,
        }),
    }
}

/// An error for a key that is too long for a page of its index.
pub(super) fn check_key(index: &OpenIndex, key: &[u8]) -> Result<()> {
    let limit = max_key(index.tree.page_size());
    match key.len() <= limit {
        true => Ok(()),
        false => Err(Error::TooLarge {
            what: format!("a key of index {}", index.name),
            size: key.len(),
            limit,
        }),
    }
}

/// An entry, as it is sorted: the payload has a byte before the record that says whether a part of its own
/// key is NULL.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

impl Entry {
    /// Makes it that of a row with this clustered key.
    pub(super) fn make(
        &mut self,
        index: &OpenIndex,
        row: &RowRef<'_>,
        clustered_key: &[u8],
    ) -> Result<()> {
        self.key.clear();
        index.codec.encode_row(row, &mut self.key)?;
        let forms = index.forms(&self.key, clustered_key, |column| row.get(column))?;
        let in_key = index.end_entry_key(&mut self.key, 0, clustered_key)?;
        let record = EntryRecord::new(forms, clustered_key, in_key);
        let mut columns = index.codec.columns();
        let has_null = columns.any(|column| row.get(column).is_none());
        self.payload.clear();
        self.payload.push(u8::from(has_null));
        self.payload
            .extend_from_slice(&index.frozen_payload(&record));
        Ok(())
    }

    /// Of the record; `None`: none was made.
    pub(super) fn flags(&self) -> Option<u8> {
        self.payload.get(1).copied()
    }
}

/// An entry that was sorted, taken apart: a file of runs is read like any other.
pub(super) struct EntryParts<'a> {
    /// What is to stand behind the key.
    pub(super) record: &'a [u8],
    pub(super) own: &'a [u8],
    clustered: ClusteredKey<'a>,
    /// No other entry may have that own key.
    pub(super) is_only: bool,
}

impl<'a> EntryParts<'a> {
    pub(super) fn read(
        index: &OpenIndex,
        key: &'a [u8],
        payload: &'a [u8],
    ) -> Result<EntryParts<'a>> {
        let damaged = || index.damage_at(key, "a sorted entry", "something else");
        let (has_null, record) = payload.split_first().ok_or_else(damaged)?;
        let keys = index.entry(record).and_then(|entry| entry.keys(key));
        let (own, clustered) = keys.ok_or_else(damaged)?;
        Ok(EntryParts {
            record,
            own,
            clustered,
            is_only: index.unique && *has_null == 0,
        })
    }
}

/// Returns the row that it refuses, if there is one (BUILD-1).
fn load(
    index: &OpenIndex,
    sorter: Sorter,
    fill_factor_pct: u32,
    meter: &Meter,
    going_on: GoingOn<'_>,
) -> Result<Option<Vec<u8>>> {
    let mut entries = sorter.finish(going_on)?;
    let mut loader = Loader::new(&index.tree, fill_factor_pct)?;
    // The last entry's own key, which may not come again, empty if it may; and its row.
    let (mut last, mut last_row) = (Vec::new(), Vec::new());
    let mut n = 0usize;
    while let Some((key, payload)) = entries.next_record()? {
        let sorted = EntryParts::read(index, key, payload)?;
        if index.unique {
            if last == sorted.own {
                return Ok(Some(last_row));
            }
            last.clear();
            last_row.clear();
            if sorted.is_only {
                last.extend_from_slice(sorted.own);
                sorted.clustered.push_to(&mut last_row);
            }
        }
        loader.push(key, sorted.record)?;
        n += 1;
        if n.is_multiple_of(ASKED_EVERY) {
            meter.add(ASKED_EVERY as u64);
            going_on()?;
        }
    }
    meter.add((n % ASKED_EVERY) as u64);
    loader.finish()?;
    Ok(None)
}
