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
//! it also locks the gaps that it passes (`gaps`).
//!
//! A cursor remembers keys, never pages: splits, merges and evictions in between don't matter to it. The
//! states that it goes through are in `state`.
//!
//! | file | what |
//! |---|---|
//! | mod.rs | searches and moves; the current row |
//! | state.rs | the states of a cursor: what it is on, where it goes on |
//! | keys.rs | where a search ends, reads that want nothing but keys |
//! | consistent.rs | consistent reads |
//! | locking.rs | locking reads |
//! | gaps.rs | the gaps that a locking read locks |
//! | peek.rs | looking ahead within what a consistent read has copied |
//! | past.rs | what the history store has for a scan |
//! | external.rs | external values of the current row, and of rows whose keys are made again |

mod consistent;
mod external;
mod gaps;
mod keys;
mod locking;
mod past;
mod peek;
mod state;

pub use keys::EntryFilter;
pub use peek::{Peeked, PeekedEntry};

use std::ops::Range;
use std::sync::Arc;

use crate::base::{Error, Result, TrxId};
use crate::btree::{Onward, ReadAhead, Seek};
use crate::catalog::{IndexLeaf, OpenIndex, OpenTable, RowRecord};
use crate::lock::{Mode, TableMode};
use crate::page::LONGEST_KEY;
use crate::row::{Datum, RowRef, successor};
use crate::txn::{Isolation, Transaction, TrxNumber};

use self::consistent::Batch;
use self::gaps::{GapMode, Gaps};
use self::keys::{Bounds, KeyReads};
use self::locking::Contended;
use self::state::{Ahead, Current, Direction, Next, Resume, Row, Search};
use super::external::ExternalColumns;
use super::rowlock::{IfLocked, Locked, lock_row_or};
use super::version::{
    VersionScratch, gone_version, read_leaf_of, row_record, sees, visible_or_newest,
};
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

/// A position in an index of a table.
pub struct Cursor {
    table: Arc<OpenTable>,
    index: usize,
    // What the caller wants, of this search and of those that follow.
    bounds: Bounds,
    keys: KeyReads,
    long: ExternalColumns,
    // The state of the search, and the row that it has come to.
    search: Search,
    resume: Resume,
    row: Row,
    ahead: Ahead,
    /// Of a consistent read.
    batch: Batch,
    scratch: VersionScratch,
    // Of a locking read.
    gaps: Gaps,
    contended: Contended,
}

impl Cursor {
    /// A cursor over index number `index` (0: the clustered one). It has no position yet.
    pub(crate) fn open(table: Arc<OpenTable>, index: usize) -> Result<Cursor> {
        table.index_at(index)?;
        let keys = KeyReads::of(&table, index);
        Ok(Cursor {
            table,
            index,
            bounds: Bounds::default(),
            keys,
            long: ExternalColumns::default(),
            search: Search {
                searcher: TrxNumber::NONE,
                asked: LockMode::None,
                lock: LockMode::None,
                direction: Direction::Forward,
            },
            resume: Resume::nowhere(),
            row: Row::none(),
            ahead: Ahead::default(),
            batch: Batch::default(),
            scratch: VersionScratch::default(),
            gaps: Gaps::open(),
            contended: Contended::default(),
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
        self.search.direction = direction;
        self.bounds.within_prefix = false;
        self.row.at = Current::None;
        self.resume.next = Next::End;
        self.batch.forget();
        self.ahead = Ahead::default();
        self.contended.clear();
        self.long.release();
        self.join(trx, lock)
    }

    /// The search is this transaction's from here on.
    fn join(&mut self, trx: &mut Transaction, lock: LockMode) -> Result<()> {
        self.search.searcher = TrxNumber::NONE;
        self.search.asked = lock;
        let lock = lock.under(trx.isolation());
        self.search.lock = lock;
        self.gaps.mode = match lock != LockMode::None && trx.isolation().locks_gaps() {
            true => GapMode::Locked,
            false => GapMode::Open,
        };
        trx.use_table(&self.table, lock.table_mode())?;
        if lock == LockMode::None {
            trx.open_read_view();
            let index = self.index().created_by;
            if let Some(view) = trx.read_view()
                && !(sees(trx, view, self.table.created_by)?
                    && (index == TrxId(0) || sees(trx, view, index)?))
            {
                return Err(Error::DefinitionChanged {
                    table: self.table.def.name.clone(),
                });
            }
        }
        self.search.searcher = trx.number();
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
        self.row.at = Current::None;
        self.bounds.prefix.clear();
        (self.table).encode_search(self.index, values, &mut self.bounds.prefix)?;
        let codec = &self.index().codec;
        // The hidden row id has no parts to search by: no values mean all rows, as in any index.
        let whole = self.index == 0 && !codec.is_empty() && values.len() == codec.len();
        if how == Exact && whole {
            // Now rather than when the row is read: the processor fetches the leaf's lines while the search
            // is prepared.
            let ahead = self.table.clustered.tree.look_ahead(&self.bounds.prefix);
            self.start(trx, lock, direction)?;
            // Until it was claimed a temporary table might be truncated, which leaves stamps as they are.
            let is_used = self.search.lock == LockMode::None && !self.table.is_temporary();
            self.ahead.leaf = ahead.filter(|_| is_used);
            return self.point(trx);
        }
        self.start(trx, lock, direction)?;
        self.bounds.within_prefix = matches!(how, Exact | ExactLast);
        if how == Exact && self.gaps.mode == GapMode::Locked && self.is_unique_key(values) {
            self.gaps.mode = GapMode::LockedIfAbsent;
        }
        let key = self.bounds.prefix.clone();
        match how {
            Exact | AtLeast => self.resume_at(key, Seek::Ge),
            Before => self.resume_at(key, Seek::Lt),
            After => match past(key) {
                Some(key) => self.resume_at(key, Seek::Ge),
                None => self.resume.next = Next::End,
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
        self.gaps.begin_at(&key, seek);
        self.resume.key = key;
        self.resume.next = Next::Key(seek);
    }

    /// The search comes to this key again.
    fn resume_before(&mut self, key: Vec<u8>) {
        match self.search.direction {
            Direction::Forward => self.resume_at(key, Seek::Ge),
            // Behind it, and behind its versions in the history store.
            Direction::Backward => match past(key) {
                Some(key) => self.resume_at(key, Seek::Lt),
                None => self.resume_behind_all(),
            },
        }
    }

    /// Above all keys that there can be, for a search backward.
    fn resume_behind_all(&mut self) {
        self.resume_at(vec![0xff; LONGEST_KEY + 1], Seek::Lt);
    }

    /// Positions on the row with this clustered key, as `position` returned it.
    pub fn seek_position(
        &mut self,
        trx: &mut Transaction,
        position: &[u8],
        lock: LockMode,
    ) -> Result<bool> {
        self.start(trx, lock, Direction::Forward)?;
        self.bounds.prefix.clear();
        self.bounds.prefix.extend_from_slice(position);
        if self.index == 0 {
            return self.point(trx);
        }
        self.row.clustered.clear();
        self.row.clustered.extend_from_slice(position);
        while self.fetch_clustered(trx, None)? {
            let mut key = std::mem::take(&mut self.row.key);
            let made = self.make_key(trx, &mut key)?;
            self.row.key = key;
            if made {
                return self.fetch_external(trx);
            }
            self.long
                .note_cut(&self.table, &self.row.clustered, &self.row.payload)?;
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
            Direction::Backward => self.resume_behind_all(),
        }
        self.advance(trx)
    }

    /// Moves to the next row in index order. `false`: there is none, and the cursor has no row.
    pub fn next(&mut self, trx: &mut Transaction) -> Result<bool> {
        self.bounds.within_prefix = false;
        self.go(trx, Direction::Forward)
    }

    /// Moves to the previous row in index order.
    pub fn prev(&mut self, trx: &mut Transaction) -> Result<bool> {
        self.bounds.within_prefix = false;
        self.go(trx, Direction::Backward)
    }

    /// Moves to the next row whose key starts with what the last `seek` was given.
    pub fn next_same(&mut self, trx: &mut Transaction) -> Result<bool> {
        self.bounds.within_prefix = true;
        self.go(trx, Direction::Forward)
    }

    fn go(&mut self, trx: &mut Transaction, direction: Direction) -> Result<bool> {
        if self.resume.next == Next::BehindRow {
            self.resume_behind_row();
        }
        let is_passed_on = self.search.searcher != trx.number();
        if is_passed_on {
            self.unread();
            self.contended.clear();
            self.join(trx, self.search.asked)?;
            if let Next::Key(seek) = self.resume.next {
                // The new transaction has locked nothing before that.
                self.gaps.begin_at(&self.resume.key, seek);
            }
        } else if self.table.is_temporary() {
            // Its own transaction may have dropped it meanwhile.
            trx.use_table(&self.table, self.search.lock.table_mode())?;
        }
        let has_row = !self.row.is_none();
        if self.search.direction != direction && !has_row {
            return Ok(false);
        }
        if self.search.direction != direction || (is_passed_on && has_row) {
            self.turn(direction);
        }
        self.advance(trx)
    }

    /// Continues from the current row in the given direction, forgetting what was read ahead.
    fn turn(&mut self, direction: Direction) {
        self.search.direction = direction;
        self.batch.forget();
        self.ahead.scan = ReadAhead::default();
        self.resume_at(self.row.key.clone(), direction.after());
    }

    /// Leaves the current row and looks for the next one, from `resume` on.
    fn advance(&mut self, trx: &mut Transaction) -> Result<bool> {
        self.row.at = Current::None;
        loop {
            let found = match self.search.lock {
                LockMode::None => self.advance_consistent(trx)?,
                _ => self.advance_locking(trx)?,
            };
            if !found {
                return Ok(false);
            }
            if self.fetch_external(trx)? && self.is_row_wanted(trx)? {
                trx.count_rows(1);
                return Ok(true);
            }
        }
    }

    /// A search in the clustered index by its whole key, which is `bounds.prefix`.
    fn point(&mut self, trx: &mut Transaction) -> Result<bool> {
        self.row.key.clear();
        self.row.key.extend_from_slice(&self.bounds.prefix);
        self.resume.next = Next::BehindRow;
        self.gaps.begin_at(&self.row.key, Seek::Gt);
        if self.fetch_again(trx)? && self.fetch_external(trx)? {
            trx.count_rows(1);
            return Ok(true);
        }
        Ok(false)
    }

    /// Reads (or locks and reads) the row `row.clustered` into `payload`. With `entry`, the row must yield
    /// that secondary key to count.
    fn fetch_clustered(&mut self, trx: &mut Transaction, entry: Option<&[u8]>) -> Result<bool> {
        self.row.at = Current::None;
        let found = match self.search.lock {
            LockMode::None => self.read_clustered(trx)?.then_some(Current::Version),
            _ => self.lock_clustered(trx)?,
        };
        let Some(found) = found else {
            return Ok(false);
        };
        if let Some(key) = entry {
            match self.row_yields(trx, key)? {
                Some(true) => {}
                Some(false) => return Ok(false),
                None => {
                    self.long
                        .note_cut(&self.table, &self.row.clustered, &self.row.payload)?;
                    return self.fetch_clustered(trx, entry);
                }
            }
        }
        self.row.at = found;
        Ok(true)
    }

    /// Copies the version of the row `row.clustered` that the transaction sees to `payload`.
    fn read_clustered(&mut self, trx: &mut Transaction) -> Result<bool> {
        let (key, ahead) = (&self.row.clustered, self.ahead.leaf.take());
        if !read_leaf_of(
            &self.table.clustered.tree,
            key,
            ahead,
            &mut self.row.payload,
        )? {
            let payload = &mut self.row.payload;
            return match trx.read_view() {
                Some(view) => gone_version(trx, view, &self.table, key, payload),
                None => Ok(false),
            };
        }
        if let Some(record) = RowRecord::decode(&self.row.payload)
            && self.is_seen(trx, record.trx)
        {
            return Ok(!record.is_deleted());
        }
        let (key, payload, scratch) = (
            &self.row.clustered,
            &mut self.row.payload,
            &mut self.scratch,
        );
        visible_or_newest(trx, &self.table, key, payload, scratch)
    }

    /// Locks the row `row.clustered` and copies it to `payload`.
    fn lock_clustered(&mut self, trx: &mut Transaction) -> Result<Option<Current>> {
        let (mode, if_locked) = (self.search.lock.record_mode(), self.search.lock.if_locked());
        let (key, payload, trx) = (&self.row.clustered, &mut self.row.payload, &*trx);
        // A scan has locked the gap of the entry that led here.
        let locks_gap = self.index == 0 && !self.gaps.are_open();
        let gone = || {
            // In a search for this key `covered` is behind it; a scan that reads its row again has covered
            // it.
            match locks_gap && key < &self.gaps.covered {
                true => trx.lock_gap(self.table.clustered.id, key, Some(&self.gaps.covered[..])),
                false => Ok(()),
            }
        };
        let lock = lock_row_or(trx, &self.table, key, mode, if_locked, payload, gone)?;
        let is_live = lock.found == Locked::Live;
        if !is_live && lock.is_new {
            // Whether purge has removed a delete-marked row makes no difference: its place is a gap.
            trx.unlock_record(self.table.clustered.id, &self.row.clustered);
        }
        let is_new = lock.is_new;
        Ok(is_live.then_some(Current::Locked { is_new }))
    }

    fn resume_behind_row(&mut self) {
        let seek = self.search.direction.after();
        self.resume.at(&self.row.key, seek);
    }

    /// The scan is through with a leaf. No latch may be held.
    fn leaf_passed(&mut self) {
        let Next::Key(seek) = self.resume.next else {
            return;
        };
        let bound = self.bounds.far_end(self.search.direction);
        let onward = Onward {
            from: &self.resume.key,
            seek,
            bound: bound.as_deref(),
        };
        let index = match self.index {
            0 => &self.table.clustered,
            n => &self.table.secondary[n - 1],
        };
        index.tree.leaf_passed(&mut self.ahead.scan, onward);
    }

    /// The current row.
    pub fn row(&self) -> Result<RowRef<'_>> {
        let record = row_record(&self.table, self.position(), self.record()?)?;
        let row = self.table.row_of(self.position(), &record)?;
        Ok(row.with_external(&self.long.values))
    }

    pub(in crate::table) fn record(&self) -> Result<&[u8]> {
        match &self.row.at {
            Current::None => Err(Error::invalid("the cursor is not on a row")),
            Current::Entry => Err(Error::invalid("only the row's key was asked for")),
            Current::Batch(range) => Ok(&self.batch.bytes[range.clone()]),
            Current::Version | Current::Locked { .. } | Current::Committed => Ok(&self.row.payload),
        }
    }

    /// The transaction that wrote the current row's version.
    pub fn writer(&self) -> Result<TrxId> {
        let record = RowRecord::decode(self.record()?);
        Ok(record.expect("the cursor decoded it").trx)
    }

    /// Whether the cursor is on a row.
    pub fn on_row(&self) -> bool {
        !self.row.is_none()
    }

    /// The current row's key in the index.
    pub fn key(&self) -> &[u8] {
        &self.row.key
    }

    /// The current row's clustered key: finds the row again with `seek_position`.
    pub fn position(&self) -> &[u8] {
        if self.index == 0 {
            &self.row.key
        } else {
            &self.row.clustered
        }
    }

    /// The current row as update and delete need it. The transaction must have read it with an exclusive
    /// lock.
    pub(crate) fn current(&self, trx: &Transaction) -> Result<CurrentRow<'_>> {
        if self.search.searcher != trx.number() {
            return Err(Error::invalid(
                "a row must be read by the transaction that changes it; this cursor was used by another one",
            ));
        }
        if self.search.lock.record_mode() != Mode::Exclusive {
            return Err(Error::invalid(
                "a row must be read with an exclusive lock before it is changed",
            ));
        }
        if self.row.at == Current::Committed {
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
fn candidates(leaf: &IndexLeaf<'_>, forward: bool) -> Range<usize> {
    if forward {
        leaf.at()..leaf.slotted().n_slots()
    } else {
        0..leaf.at()
    }
}
