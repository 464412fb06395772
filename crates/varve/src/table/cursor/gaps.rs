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

use crate::base::{IndexId, Result};
use crate::btree::{Seek, SharedLeaf};
use crate::catalog::OpenIndex;
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
}

impl Gaps {
    pub fn open() -> Gaps {
        Gaps {
            mode: GapMode::Open,
            covered: Vec::new(),
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
        leaf: &SharedLeaf<'_>,
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

    /// Covers what lies before the record with this key, and the key, which is the same afterwards.
    pub fn cover_key(
        &mut self,
        trx: &Transaction,
        index: IndexId,
        key: &mut Vec<u8>,
        direction: Direction,
    ) -> Result<()> {
        match direction {
            Direction::Forward => {
                // The smallest key behind it.
                key.push(0);
                let covered = self.cover_up_to(trx, index, Some(key));
                key.pop();
                covered
            }
            Direction::Backward => self.cover_down_to(trx, index, key),
        }
    }

    pub fn cover_up_to(
        &mut self,
        trx: &Transaction,
        index: IndexId,
        high: Option<&[u8]>,
    ) -> Result<()> {
        if self.are_open() || high.is_some_and(|high| high <= &self.covered[..]) {
            return Ok(());
        }
        trx.lock_gap(index, &self.covered, high)?;
        if let Some(high) = high {
            self.covered.clear();
            self.covered.extend_from_slice(high);
        }
        Ok(())
    }

    pub fn cover_down_to(&mut self, trx: &Transaction, index: IndexId, low: &[u8]) -> Result<()> {
        if self.are_open() || low >= &self.covered[..] {
            return Ok(());
        }
        trx.lock_gap(index, low, Some(&self.covered))?;
        self.covered.clear();
        self.covered.extend_from_slice(low);
        Ok(())
    }
}
