//! What a locking search does about the gaps that it passes.
//!
//! Under REPEATABLE READ and SERIALIZABLE a locking search also keeps others from putting keys where it
//! looked. What it locks is an interval of keys, from where the search began to where it has got: `covered`
//! is that place. It grows piece by piece, each under the shared latch of the leaf whose fences contain it:
//! up to and including a record that is about to be locked, up to the search's end when a record beyond that
//! end is met, up to the leaf's fence before the scan leaves the leaf. A record that has to be waited for
//! adds nothing yet: the scan then looks again from where it was.
//!
//! - **GAP-2** What a locking search has passed is covered without a hole: each piece begins where the last
//!   one ended, and that place is within the leaf's fences or at one of them, so that nothing can have been
//!   added in between.
//!
//! A search for all parts of a unique key without NULL is different if it finds the row: the row's lock alone
//! keeps any other from having that key, so nothing is covered. If the row turns out to be gone, the search
//! begins again and covers what it passes, like any other.
//!
//! The interval of a search by key ends where the search does, not at the next record, wherever that may be.
//! So what is locked follows from the statement and the rows that it found, not from their neighbours or from
//! where pages begin.
//!
//! Once its transaction holds many locks, a scan of the clustered index has its intervals stand for the locks
//! of the rows in them (`lock/range.rs`): all that it passes it has locked, or found delete-marked. Not a
//! scan that skips rows which others have locked.

use crate::base::{IndexId, Result};
use crate::btree::Seek;
use crate::catalog::{IndexLeaf, OpenIndex};
use crate::lock::{LastRow, Mode};
use crate::txn::Transaction;

use super::state::Direction;

/// What a search does about the gaps that it passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GapMode {
    /// Nothing.
    Open,
    /// It locks them.
    Locked,
    /// It locks them, unless it finds the one row that can be there.
    LockedIfAbsent,
}

/// Whether the search locks the gaps that it passes, and how far it has done so (GAP-2).
pub(super) struct Gaps {
    pub mode: GapMode,
    pub covered: Vec<u8>,
    /// How the rows are locked with the gaps from here on, if they are.
    rows: Option<Mode>,
}

impl Gaps {
    pub fn open() -> Gaps {
        Gaps {
            mode: GapMode::Open,
            covered: Vec::new(),
            rows: None,
        }
    }

    pub fn are_open(&self) -> bool {
        self.mode == GapMode::Open
    }

    /// What the search passes begins at this key.
    pub fn begin_at(&mut self, key: &[u8], seek: Seek) {
        if self.are_open() {
            return;
        }
        self.rows = None;
        self.covered.clear();
        self.covered.extend_from_slice(key);
        if seek == Seek::Gt {
            // The smallest key behind it.
            self.covered.push(0);
        }
    }

    /// GAP-2. Only damaged fences let a scan leave a gap behind.
    pub fn check_place(
        &self,
        index: &OpenIndex,
        leaf: &IndexLeaf<'_>,
        direction: Direction,
    ) -> Result<()> {
        if self.are_open() {
            return Ok(());
        }
        let page = leaf.slotted();
        let covered = &self.covered[..];
        let adjoins = match direction {
            Direction::Forward => page.low() <= covered,
            Direction::Backward => page.high().is_none_or(|high| covered <= high),
        };
        if adjoins {
            return Ok(());
        }
        let expected = "fences that adjoin those of the leaf before";
        Err(index.damage_on(leaf.page_id(), expected, "a gap"))
    }

    /// From here on rows are locked with the gaps: the search passes none that it has not locked.
    pub fn lock_rows(&mut self, mode: Mode) {
        self.rows = Some(mode);
    }

    /// Covers what lies before the record with this key, and the key, which is the same afterwards. `is_new`:
    /// the row was locked just now.
    pub fn cover_key(
        &mut self,
        trx: &Transaction,
        index: IndexId,
        key: &mut Vec<u8>,
        direction: Direction,
        is_new: bool,
    ) -> Result<()> {
        match direction {
            Direction::Forward => {
                // The smallest key behind it.
                key.push(0);
                let (row, _) = key.split_at(key.len() - 1);
                let row = LastRow { key: row, is_new };
                let covered = self.cover_forward(trx, index, Some(key), Some(row));
                key.pop();
                covered
            }
            Direction::Backward => {
                let row = LastRow { key, is_new };
                self.cover_backward(trx, index, key, Some(row))
            }
        }
    }

    pub fn cover_up_to(
        &mut self,
        trx: &Transaction,
        index: IndexId,
        high: Option<&[u8]>,
    ) -> Result<()> {
        self.cover_forward(trx, index, high, None)
    }

    pub fn cover_down_to(&mut self, trx: &Transaction, index: IndexId, low: &[u8]) -> Result<()> {
        self.cover_backward(trx, index, low, None)
    }

    fn cover_forward(
        &mut self,
        trx: &Transaction,
        index: IndexId,
        high: Option<&[u8]>,
        row: Option<LastRow<'_>>,
    ) -> Result<()> {
        if self.are_open() || high.is_some_and(|high| high <= &self.covered[..]) {
            return Ok(());
        }
        self.lock(trx, index, (&self.covered, high), row)?;
        if let Some(high) = high {
            self.covered.clear();
            self.covered.extend_from_slice(high);
        }
        Ok(())
    }

    fn cover_backward(
        &mut self,
        trx: &Transaction,
        index: IndexId,
        low: &[u8],
        row: Option<LastRow<'_>>,
    ) -> Result<()> {
        if self.are_open() || low >= &self.covered[..] {
            return Ok(());
        }
        self.lock(trx, index, (low, Some(&self.covered)), row)?;
        self.covered.clear();
        self.covered.extend_from_slice(low);
        Ok(())
    }

    fn lock(
        &self,
        trx: &Transaction,
        index: IndexId,
        interval: (&[u8], Option<&[u8]>),
        row: Option<LastRow<'_>>,
    ) -> Result<()> {
        match self.rows {
            Some(mode) => trx.lock_range(index, interval, mode, row),
            None => trx.lock_gap(index, interval.0, interval.1),
        }
    }
}
