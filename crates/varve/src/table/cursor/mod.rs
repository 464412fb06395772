//! Cursors: finding rows through an index, one way or the other, as a read view or as the latest version
//! under a row lock.
//!
//! A **consistent read** copies a batch of records from a leaf under one shared latch and works them off
//! without any: records whose TrxId the view sees are decided on the spot, the others when their turn comes
//! (`version`). A secondary entry that the view sees decides on its own; otherwise the row version that the
//! view sees is fetched and must yield the entry's key.
//!
//! A **locking read** takes one record at a time: the lock is granted under the leaf's latch or waited for
//! without any, and then the place is found again by key (`rowlock`). Under REPEATABLE READ and SERIALIZABLE
//! it also locks the gaps that it passes (`locking`).
//!
//! A cursor remembers keys, never pages: splits, merges and evictions in between don't matter to it.
//!
//! | file | what |
//! |---|---|
//! | mod.rs | searches and moves; the current row |
//! | keys.rs | where a search ends, reads that want nothing but keys |
//! | consistent.rs | consistent reads |
//! | locking.rs | locking reads |
//! | peek.rs | looking ahead within what a consistent read has copied |
//! | long.rs | external values of the current row, and of rows whose keys are made again |

mod consistent;
mod keys;
mod locking;
mod long;
mod peek;

pub use keys::EntryFilter;
pub use peek::Peeked;

use std::ops::Range;
use std::sync::Arc;

use crate::base::{Error, Result, TrxId};
use crate::btree::{LeafAhead, Onward, ReadAhead, Seek, SharedLeaf};
use crate::catalog::{OpenIndex, OpenTable, RowRecord};
use crate::lock::{Mode, TableMode};
use crate::row::{Datum, DatumBuf, MAX_KEY_BYTES, RowRef, successor};
use crate::txn::{Isolation, Transaction, TrxNumber};

use self::consistent::{Batch, FIRST_BATCH};
use self::locking::Gaps;
use super::external::ExternalColumns;
use super::rowlock::{IfLocked, Locked, lock_row_or};
use super::version::{VersionScratch, read_leaf_ahead, row_record, sees, visible_or_newest};
use super::write::CurrentRow;

/// Which row a search by key looks for. The key may be the first parts of the index only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyMatch {
    /// The first row whose key starts with the given parts.
    Exact,
    /// The last row whose key starts with the given parts.
    ExactLast,
    /// The first row at or after the key.
    AtLeast,
    /// The first row after all that start with the key.
    After,
    /// The last row at or before the key, rows that start with it included.
    AtMost,
    /// The last row before the key.
    Before,
}

/// What a read does about other transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LockMode {
    /// Reads the version that the transaction's view sees; waits for nobody.
    #[default]
    None,
    /// Reads the latest version and keeps others from changing it.
    Shared,
    /// Reads the latest version and keeps others from changing or locking it.
    Exclusive,
    /// As `Shared`, but passes over rows that others have locked exclusively.
    SharedSkipLocked,
    /// As `Exclusive`, but passes over rows that others have locked.
    ExclusiveSkipLocked,
    /// As `Exclusive`, but a scan of the clustered index that comes to a row which others have locked gives
    /// what was committed of it last, unlocked, if there is anything: [`Cursor::was_semi_consistent`] says
    /// so. Who wants the row moves on, and gets the same row again, waited for and locked; who does not calls
    /// [`Cursor::unlock_row`] before. Under REPEATABLE READ and SERIALIZABLE, in other indexes, and in a
    /// search for a whole key it is `Exclusive`.
    ExclusiveSemiConsistent,
}

impl LockMode {
    fn record_mode(self) -> Mode {
        match self {
            LockMode::Exclusive
            | LockMode::ExclusiveSkipLocked
            | LockMode::ExclusiveSemiConsistent => Mode::Exclusive,
            _ => Mode::Shared,
        }
    }

    fn table_mode(self) -> TableMode {
        match self.record_mode() {
            Mode::Exclusive => TableMode::IntentionExclusive,
            Mode::Shared => TableMode::IntentionShared,
        }
    }

    fn if_locked(self) -> IfLocked {
        match self {
            LockMode::SharedSkipLocked | LockMode::ExclusiveSkipLocked => IfLocked::Skip,
            _ => IfLocked::Wait,
        }
    }

    /// What a read in a transaction of this isolation level does if it was asked for `self`.
    fn under(self, isolation: Isolation) -> LockMode {
        match (self, isolation) {
            (LockMode::None, Isolation::Serializable) => LockMode::Shared,
            (LockMode::ExclusiveSemiConsistent, _) if isolation.locks_gaps() => LockMode::Exclusive,
            _ => self,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Forward,
    Backward,
}

/// Where the next record is looked for.
enum Resume {
    At(Vec<u8>, Seek),
    End,
}

/// Where the current row's record is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Current {
    None,
    Batch(Range<usize>),
    Own,
    /// The view decided on the secondary entry alone, and nothing but its key was asked for.
    Entry,
}

/// A position in an index of a table.
pub struct Cursor {
    table: Arc<OpenTable>,
    index: usize,
    /// Whose search it is. Another transaction that goes on with it gets its own view and locks from there
    /// on.
    searcher: TrxNumber,
    asked: LockMode,
    /// What was asked for, as the searcher's isolation level has it.
    lock: LockMode,
    direction: Direction,
    resume: Resume,
    /// The search was for one key, after which a move goes on: `resume` is not made until then.
    goes_on_after_key: bool,
    batch: Batch,
    batch_limit: usize,
    read_ahead: ReadAhead,
    /// The record that a locking scan has looked at last was the last one in its leaf on the way down.
    was_last_of_leaf: bool,
    /// Key of the current row in the index.
    key: Vec<u8>,
    /// Clustered key of the current row, if the index is a secondary one.
    clustered: Vec<u8>,
    current: Current,
    /// The read of the current row took a lock that the transaction did not have before.
    is_new_lock: bool,
    /// Clustered key of a row for which the scan waited, and got a new lock.
    waited_for: Vec<u8>,
    /// The current row is another transaction's, as it was committed last, and not locked.
    semi_consistent: bool,
    /// Clustered key of the row that was given so last: coming to it again, the scan waits.
    seen_unlocked: Vec<u8>,
    /// Whether the search locks the gaps that it passes, and how far it has done so (GAP-2).
    gaps: Gaps,
    covered: Vec<u8>,
    payload: Vec<u8>,
    /// Where the leaf of a consistent read by the clustered index's whole key was, until it is latched.
    ahead: Option<LeafAhead>,
    /// What `next_same` and exact searches must start with.
    prefix: Vec<u8>,
    bounded: bool,
    /// Searches forward end before this key, if it is not empty.
    end: Vec<u8>,
    /// Searches backward end behind this key, which may be empty.
    begin: Vec<u8>,
    filter: Option<EntryFilter>,
    scratch: VersionScratch,
    /// Consistent reads of a secondary index need not fetch the row.
    keys_suffice: bool,
    key_columns: Vec<(usize, bool)>,
    /// The current entry's key, taken apart.
    parts: DatumBuf,
    long: ExternalColumns,
}

impl Cursor {
    /// A cursor over index number `index` (0: the clustered one). It has no position yet.
    pub(crate) fn open(table: Arc<OpenTable>, index: usize) -> Result<Cursor> {
        table.index_at(index)?;
        let own = (index > 0).then(|| (&table.def.indexes[index - 1], &table.secondary[index - 1]));
        let clustered = (&table.def.primary, &table.clustered);
        let key_columns = (own.into_iter().chain([clustered]))
            .flat_map(|(def, open)| {
                let parts = def.parts.iter().enumerate();
                parts.map(|(i, part)| (part.column, open.codec.readable(i)))
            })
            .collect();
        Ok(Cursor {
            table,
            index,
            searcher: TrxNumber::NONE,
            asked: LockMode::None,
            lock: LockMode::None,
            direction: Direction::Forward,
            resume: Resume::End,
            goes_on_after_key: false,
            batch: Batch::default(),
            batch_limit: FIRST_BATCH,
            read_ahead: ReadAhead::default(),
            was_last_of_leaf: false,
            key: Vec::new(),
            clustered: Vec::new(),
            current: Current::None,
            is_new_lock: false,
            waited_for: Vec::new(),
            semi_consistent: false,
            seen_unlocked: Vec::new(),
            gaps: Gaps::Open,
            covered: Vec::new(),
            payload: Vec::new(),
            ahead: None,
            prefix: Vec::new(),
            bounded: false,
            end: Vec::new(),
            begin: Vec::new(),
            filter: None,
            scratch: VersionScratch::default(),
            keys_suffice: false,
            key_columns,
            parts: DatumBuf::new(),
            long: ExternalColumns::default(),
        })
    }

    pub(crate) fn table(&self) -> &Arc<OpenTable> {
        &self.table
    }

    pub fn index_number(&self) -> usize {
        self.index
    }

    fn index(&self) -> &OpenIndex {
        match self.index {
            0 => &self.table.clustered,
            n => &self.table.secondary[n - 1],
        }
    }

    /// Prepares for a new search.
    fn start(&mut self, trx: &mut Transaction, lock: LockMode, direction: Direction) -> Result<()> {
        self.direction = direction;
        self.batch.clear();
        self.batch_limit = FIRST_BATCH;
        self.read_ahead = ReadAhead::default();
        self.current = Current::None;
        self.ahead = None;
        self.is_new_lock = false;
        self.waited_for.clear();
        self.semi_consistent = false;
        self.seen_unlocked.clear();
        self.bounded = false;
        self.goes_on_after_key = false;
        self.resume = Resume::End;
        self.long.release();
        self.join(trx, lock)
    }

    /// The search is this transaction's from here on.
    fn join(&mut self, trx: &mut Transaction, lock: LockMode) -> Result<()> {
        self.searcher = TrxNumber::NONE;
        self.asked = lock;
        let lock = lock.under(trx.isolation());
        self.lock = lock;
        self.gaps = match lock != LockMode::None && trx.isolation().locks_gaps() {
            true => Gaps::Locked,
            false => Gaps::Open,
        };
        trx.use_table(&self.table, lock.table_mode())?;
        if lock == LockMode::None {
            trx.open_read_view();
            if let Some(view) = trx.read_view()
                && !sees(trx, view, self.table.created_by)?
            {
                return Err(Error::DefinitionChanged {
                    table: self.table.def.name.clone(),
                });
            }
        }
        self.searcher = trx.number();
        Ok(())
    }

    /// Positions on a row by key. `false`: there is none.
    pub fn seek(
        &mut self,
        trx: &mut Transaction,
        values: &[Datum<'_>],
        how: KeyMatch,
        lock: LockMode,
    ) -> Result<bool> {
        use KeyMatch::*;
        let direction = match how {
            Exact | AtLeast | After => Direction::Forward,
            ExactLast | AtMost | Before => Direction::Backward,
        };
        self.current = Current::None;
        self.prefix.clear();
        (self.table).encode_search(self.index, values, &mut self.prefix)?;
        let codec = &self.index().codec;
        // The hidden row id has no parts to search by: no values mean all rows, as in any index.
        let whole = self.index == 0 && !codec.is_empty() && values.len() == codec.len();
        if how == Exact && whole {
            // Now rather than when the row is read: the processor fetches the leaf's lines while the search
            // is prepared.
            let ahead = self.table.clustered.tree.look_ahead(&self.prefix);
            self.start(trx, lock, direction)?;
            // Until it was claimed a temporary table might be truncated, which leaves stamps as they are.
            let is_used = self.lock == LockMode::None && !self.table.is_temporary();
            self.ahead = ahead.filter(|_| is_used);
            return self.point(trx);
        }
        self.start(trx, lock, direction)?;
        self.bounded = matches!(how, Exact | ExactLast);
        if how == Exact && self.gaps == Gaps::Locked && self.is_unique_key(values) {
            self.gaps = Gaps::LockedIfAbsent;
        }
        let key = self.prefix.clone();
        match how {
            Exact | AtLeast => self.resume_at(key, Seek::Ge),
            Before => self.resume_at(key, Seek::Lt),
            After => match past(key) {
                Some(key) => self.resume_at(key, Seek::Ge),
                None => self.resume = Resume::End,
            },
            ExactLast | AtMost => match past(key) {
                Some(key) => self.resume_at(key, Seek::Lt),
                None => return self.edge(trx, Direction::Backward),
            },
        }
        self.advance(trx)
    }

    /// At most one row can have these values in the secondary index.
    fn is_unique_key(&self, values: &[Datum<'_>]) -> bool {
        let index = self.index();
        self.index != 0
            && index.unique
            && values.len() == index.codec.len()
            && values.iter().all(Option::is_some)
    }

    /// The search goes on at this key.
    fn resume_at(&mut self, key: Vec<u8>, seek: Seek) {
        if self.gaps != Gaps::Open {
            self.covered.clear();
            self.covered.extend_from_slice(&key);
            if seek == Seek::Gt {
                // The smallest key behind it.
                self.covered.push(0);
            }
        }
        self.resume = Resume::At(key, seek);
    }

    /// Positions on the row with this clustered key, as `position` returned it.
    pub fn seek_position(
        &mut self,
        trx: &mut Transaction,
        position: &[u8],
        lock: LockMode,
    ) -> Result<bool> {
        self.start(trx, lock, Direction::Forward)?;
        self.prefix.clear();
        self.prefix.extend_from_slice(position);
        if self.index == 0 {
            return self.point(trx);
        }
        self.clustered.clear();
        self.clustered.extend_from_slice(position);
        self.resume = Resume::End;
        while self.fetch_clustered(trx, None)? {
            let mut key = std::mem::take(&mut self.key);
            let made = self.make_key(&mut key)?;
            self.key = key;
            if made {
                return self.fetch_long(trx);
            }
            self.long
                .note_cut(&self.table, &self.clustered, &self.payload)?;
        }
        Ok(false)
    }

    /// Positions on the first row of the index.
    pub fn first(&mut self, trx: &mut Transaction, lock: LockMode) -> Result<bool> {
        self.start(trx, lock, Direction::Forward)?;
        self.edge(trx, Direction::Forward)
    }

    /// Positions on the last row of the index.
    pub fn last(&mut self, trx: &mut Transaction, lock: LockMode) -> Result<bool> {
        self.start(trx, lock, Direction::Backward)?;
        self.edge(trx, Direction::Backward)
    }

    fn edge(&mut self, trx: &mut Transaction, direction: Direction) -> Result<bool> {
        match direction {
            Direction::Forward => self.resume_at(Vec::new(), Seek::Ge),
            // Above all keys that there can be.
            Direction::Backward => self.resume_at(vec![0xff; MAX_KEY_BYTES + 1], Seek::Lt),
        }
        self.advance(trx)
    }

    /// Moves to the next row in index order. `false`: there is none, and the cursor has no row.
    pub fn next(&mut self, trx: &mut Transaction) -> Result<bool> {
        self.bounded = false;
        self.go(trx, Direction::Forward)
    }

    /// Moves to the previous row in index order.
    pub fn prev(&mut self, trx: &mut Transaction) -> Result<bool> {
        self.bounded = false;
        self.go(trx, Direction::Backward)
    }

    /// Moves to the next row whose key starts with what the last `seek` was given.
    pub fn next_same(&mut self, trx: &mut Transaction) -> Result<bool> {
        self.bounded = true;
        self.go(trx, Direction::Forward)
    }

    fn go(&mut self, trx: &mut Transaction, direction: Direction) -> Result<bool> {
        if std::mem::take(&mut self.goes_on_after_key) {
            self.resume_after_key();
        }
        let is_passed_on = self.searcher != trx.number();
        if is_passed_on {
            self.unread();
            self.join(trx, self.asked)?;
        } else if self.table.is_temporary() {
            // Its own transaction may have dropped it meanwhile.
            trx.use_table(&self.table, self.lock.table_mode())?;
        }
        let has_row = self.current != Current::None;
        if self.direction != direction && !has_row {
            return Ok(false);
        }
        if self.direction != direction || (is_passed_on && has_row) {
            self.turn(direction);
        }
        self.advance(trx)
    }

    /// Continues from the current row in the given direction, forgetting what was read ahead.
    fn turn(&mut self, direction: Direction) {
        self.direction = direction;
        self.batch.clear();
        self.batch_limit = FIRST_BATCH;
        self.read_ahead = ReadAhead::default();
        let seek = if direction == Direction::Forward {
            Seek::Gt
        } else {
            Seek::Lt
        };
        self.resume_at(self.key.clone(), seek);
    }

    /// Leaves the current row and looks for the next one, from `resume` on.
    fn advance(&mut self, trx: &mut Transaction) -> Result<bool> {
        self.current = Current::None;
        loop {
            let found = match self.lock {
                LockMode::None => self.advance_consistent(trx)?,
                _ => self.advance_locking(trx)?,
            };
            if !found {
                return Ok(false);
            }
            if self.fetch_long(trx)? {
                trx.count_rows(1);
                return Ok(true);
            }
        }
    }

    /// A search in the clustered index by its whole key, which is `self.prefix`.
    fn point(&mut self, trx: &mut Transaction) -> Result<bool> {
        self.key.clear();
        self.key.extend_from_slice(&self.prefix);
        self.goes_on_after_key = true;
        if self.gaps != Gaps::Open {
            // The smallest key behind it.
            self.covered.clear();
            self.covered.extend_from_slice(&self.key);
            self.covered.push(0);
        }
        if self.fetch_again(trx)? && self.fetch_long(trx)? {
            trx.count_rows(1);
            return Ok(true);
        }
        Ok(false)
    }

    /// Reads (or locks and reads) the row `self.clustered` into `payload`. With `entry`, the row must yield
    /// that secondary key to count.
    fn fetch_clustered(&mut self, trx: &mut Transaction, entry: Option<&[u8]>) -> Result<bool> {
        self.current = Current::None;
        let is_row = match self.lock {
            LockMode::None => self.read_clustered(trx)?,
            _ => self.lock_clustered(trx)?,
        };
        if !is_row {
            return Ok(false);
        }
        if let Some(key) = entry {
            match self.row_yields(key)? {
                Some(true) => {}
                Some(false) => return Ok(false),
                None => {
                    self.long
                        .note_cut(&self.table, &self.clustered, &self.payload)?;
                    return self.fetch_clustered(trx, entry);
                }
            }
        }
        self.current = Current::Own;
        Ok(true)
    }

    /// Copies the version of the row `self.clustered` that the transaction sees to `payload`.
    fn read_clustered(&mut self, trx: &mut Transaction) -> Result<bool> {
        let (key, ahead) = (&self.clustered, self.ahead.take());
        if !read_leaf_ahead(&self.table.clustered, key, ahead, &mut self.payload)? {
            return Ok(false);
        }
        if let Some(record) = RowRecord::decode(&self.payload)
            && self.is_seen(trx, record.trx)
        {
            return Ok(!record.is_deleted());
        }
        let (key, payload, scratch) = (&self.clustered, &mut self.payload, &mut self.scratch);
        visible_or_newest(trx, &self.table, key, payload, scratch)
    }

    /// Locks the row `self.clustered` and copies it to `payload`.
    fn lock_clustered(&mut self, trx: &mut Transaction) -> Result<bool> {
        let (mode, if_locked) = (self.lock.record_mode(), self.lock.if_locked());
        let (key, payload, trx) = (&self.clustered, &mut self.payload, &*trx);
        // A scan has locked the gap of the entry that led here.
        let locks_gap = self.index == 0 && self.gaps != Gaps::Open;
        let gone = || {
            // In a search for this key `covered` is behind it; a scan that reads its row again has covered
            // it.
            match locks_gap && key < &self.covered {
                true => trx.lock_gap(self.table.clustered.id, key, Some(&self.covered[..])),
                false => Ok(()),
            }
        };
        let lock = lock_row_or(trx, &self.table, key, mode, if_locked, payload, gone)?;
        let is_live = lock.found == Locked::Live;
        if !is_live && lock.is_new {
            // Whether purge has removed a delete-marked row makes no difference: its place is a gap.
            trx.unlock_record(self.table.clustered.id, &self.clustered);
        }
        self.is_new_lock = lock.is_new && is_live;
        Ok(is_live)
    }

    fn resume_after_key(&mut self) {
        let seek = if self.direction == Direction::Forward {
            Seek::Gt
        } else {
            Seek::Lt
        };
        let mut buffer = match std::mem::replace(&mut self.resume, Resume::End) {
            Resume::At(buffer, _) => buffer,
            Resume::End => Vec::new(),
        };
        buffer.clear();
        buffer.extend_from_slice(&self.key);
        self.resume = Resume::At(buffer, seek);
    }

    /// The scan is through with a leaf. No latch may be held.
    fn leaf_passed(&mut self) {
        let bound = match self.direction {
            Direction::Forward => self.bound(),
            Direction::Backward => Some(self.floor().to_vec()),
        };
        if let Resume::At(from, seek) = &self.resume {
            let index = match self.index {
                0 => &self.table.clustered,
                n => &self.table.secondary[n - 1],
            };
            let (seek, bound) = (*seek, bound.as_deref());
            let onward = Onward { from, seek, bound };
            index.tree.leaf_passed(&mut self.read_ahead, onward);
        }
    }

    /// The current row.
    pub fn row(&self) -> Result<RowRef<'_>> {
        let record = row_record(&self.table, self.position(), self.record()?)?;
        let row = self.table.row_of(self.position(), &record)?;
        Ok(row.with_external(&self.long.values))
    }

    fn record(&self) -> Result<&[u8]> {
        match &self.current {
            Current::None => Err(Error::invalid("the cursor is not on a row")),
            Current::Entry => Err(Error::invalid("only the row's key was asked for")),
            Current::Batch(range) => Ok(&self.batch.bytes[range.clone()]),
            Current::Own => Ok(&self.payload),
        }
    }

    /// The transaction that wrote the current row's version.
    pub fn writer(&self) -> Result<TrxId> {
        let record = RowRecord::decode(self.record()?);
        Ok(record.expect("the cursor decoded it").trx)
    }

    /// Whether the cursor is on a row.
    pub fn on_row(&self) -> bool {
        self.current != Current::None
    }

    /// The current row's key in the index.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The current row's clustered key: finds the row again with `seek_position`.
    pub fn position(&self) -> &[u8] {
        if self.index == 0 {
            &self.key
        } else {
            &self.clustered
        }
    }

    /// The current row as update and delete need it. The transaction must have read it with an exclusive
    /// lock.
    pub(crate) fn current(&self, trx: &Transaction) -> Result<CurrentRow<'_>> {
        if self.searcher != trx.number() {
            return Err(Error::invalid(
                "a row must be read by the transaction that changes it; this cursor was used by another one",
            ));
        }
        if self.lock.record_mode() != Mode::Exclusive {
            return Err(Error::invalid(
                "a row must be read with an exclusive lock before it is changed",
            ));
        }
        if self.semi_consistent {
            return Err(Error::invalid(
                "another transaction has locked this row; a move of the cursor waits for it",
            ));
        }
        Ok(CurrentRow {
            key: self.position(),
            payload: self.record()?,
        })
    }
}

/// The smallest key above all that start with `key`; `None` if there is none.
fn past(mut key: Vec<u8>) -> Option<Vec<u8>> {
    successor(&mut key).then_some(key)
}

/// The slots that a search may return, in slot order.
fn candidates(leaf: &SharedLeaf<'_>, forward: bool) -> Range<usize> {
    if forward {
        leaf.at..leaf.slotted().n_slots()
    } else {
        0..leaf.at
    }
}

/// Where a scan goes on after the last record of a leaf.
fn beyond(page: &crate::page::SlottedRef<'_>, direction: Direction) -> Resume {
    match direction {
        Direction::Forward => match page.high() {
            Some(high) => Resume::At(high.to_vec(), Seek::Ge),
            None => Resume::End,
        },
        Direction::Backward => match page.low() {
            [] => Resume::End,
            low => Resume::At(low.to_vec(), Seek::Lt),
        },
    }
}
