//! Range locks: gap locks that stand for the locks of the records in them, too, so that a scan over millions
//! of rows holds one interval and not millions of locks.
//!
//! A record in an owner's range is locked *implicitly*, as one that the owner has written: nothing in the
//! lock table says so, until somebody asks for the record who would have to wait. That one makes the lock
//! explicit, on the holder's behalf, and queues up behind it. So waits, their order, deadlocks and what is
//! shown of them know explicit locks only.
//!
//! **Taking.** A scan takes each record's lock as always, under the leaf's latch, so that it waits for whom
//! it has to wait. Then it enters the piece of its range that ends with this record, then it gives the
//! record's own lock up, if that is new and nobody awaits it. So the record is locked all the time, and one
//! mutex, that of its key's queue, is taken before the piece is entered, and after.
//!
//! **Asking.** Who asks for a record's lock looks for ranges that contain its key, under that mutex.
//!
//! - **RANGE-1** Nobody gets a lock of a record that another owner's range locks in a mode that is in the
//!   way. Take the moments at which the asker has the mutex of the queue. Before the range's owner had the
//!   lock: then that one waits, or does not get it. While it has it: then the asker finds it in the queue.
//!   After it gave it up: then the mutex orders the piece before the asker's look. A record that the owner
//!   has locked without a lock of its own, since it wrote it, others find locked by its TrxId, and later in
//!   the range.
//! - **RANGE-2** An index's count of owners with ranges is raised before the first is entered, and its bounds
//!   are around all of them (GAP-6). So a count of 0, or a key outside of the bounds, read under the mutex of
//!   the key's queue, says that there is nothing to look for: for the same reason.
//! - **RANGE-3** What an owner has in ranges it keeps until it releases all: it can't give up a record of
//!   them. When it begins to release, it counts its `life` on, under the mutex under which others give it
//!   locks; a range found before that counts for nothing. Its transaction has ended by then, or wants none of
//!   them.
//!
//! A range also contains keys whose records are gone, or delete-marked by somebody who has committed. Another
//! owner may hold such a key's lock: it waits for the gap if it wants to bring the record back, and the
//! range's owner waits for it as ever (QUEUE-1).
//!
//! # Records that were written
//!
//! A record that the owner has changed is locked by its TrxId, and needs no lock of its own any more. An
//! owner that holds many gives it up. That matters where no range does it: at READ COMMITTED, and where
//! another index led to the row.
//!
//! - **WRITTEN-1** The lock goes after the record has the owner's TrxId, which others see under the leaf's
//!   latch. One that looked at the record before, and waits for no latch, may get the lock now: it looks
//!   again, and waits for the owner, as after any insert (QUEUE-1). When a rollback to a savepoint puts the
//!   old TrxId back, the owner gets a lock first, under the same latch.
//! - **WRITTEN-2** Nobody else gets a row while a rollback has put it back, but not its entries yet: those of
//!   a row that was deleted follow it. So the owner gets the lock of such a row, whatever rollback it is, and
//!   gives it up with the next row at the earliest.
//!
//! Mutexes: a shard of queues, in it a shard of gaps, or an owner's lists.

use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::gap::RangeHolder;
use super::manager::{LockManager, LockSys, TrxLocks};
use super::mode::{Mode, ModeSet, TableMode};
use super::owner::{LockRef, OwnerKey};
use super::queue::{Queue, Wakes};
use super::shard::Target;
use crate::base::{IndexId, Result};

/// An owner that holds so many locks of records takes no more where a range does it.
pub(super) const FEW_LOCKS: usize = 1000;
/// Among so many of its newest locks one that is to be given up is looked for. A statement that changes rows
/// one by one has locked each just before, and perhaps rows of other tables since.
const NEWEST: usize = 4;

/// What ranges mean for a request.
pub(super) enum Met {
    /// The owner's own range locks the record as wanted, and nobody is in the way.
    Covered,
    /// Somebody's range is in the way.
    InTheWay,
    /// What is in the way is in the queue now. The owners to which this gave a lock there.
    InQueue(SmallVec<[OwnerKey; 2]>),
}

/// Whether a record has to be locked again when there is no memory for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    Must,
    IfMemory,
}

/// The record that a piece of a range ends with.
#[derive(Clone, Copy)]
pub struct LastRow<'a> {
    pub key: &'a [u8],
    /// The owner got its lock just now (`Acquired::New`).
    pub is_new: bool,
}

impl LockManager {
    /// From so many locks on an owner's scans lock by ranges.
    #[cfg(feature = "internals")]
    pub fn set_few_locks(&self, few: usize) {
        self.inner.few_locks.store(few, Ordering::Relaxed);
    }

    /// Whether the owner is to do without locks of records where others find what it holds in another way.
    #[inline]
    pub fn holds_many(&self, locks: &TrxLocks) -> bool {
        locks.locks.borrow().len() >= self.inner.few_locks.load(Ordering::Relaxed)
    }

    /// As [`LockManager::lock_gap`], and locks the records in the interval. The owner has locked each of them
    /// that is alive, with `mode` or a stronger one; of the last one, `row`, the lock need not stay.
    pub fn lock_range(
        &self,
        locks: &TrxLocks,
        index: IndexId,
        interval: (&[u8], Option<&[u8]>),
        mode: Mode,
        row: Option<LastRow<'_>>,
    ) -> Result<()> {
        let done = self.lock_interval(locks, index, interval, Some(mode));
        if let Some(row) = row.filter(|row| row.is_new)
            && self.give_up_newest(locks, index, row.key)
        {
            locks.add_implied(1);
        }
        done
    }

    /// The owner, which holds many locks, has written the record: its TrxId says what the lock said
    /// (WRITTEN-1).
    pub fn give_up_written(&self, locks: &TrxLocks, index: IndexId, key: &[u8]) {
        if self.holds_many(locks) && self.give_up_newest(locks, index, key) {
            locks.written.set(locks.written.get() + 1);
            locks.add_implied(1);
        }
    }

    /// The owner is about to take back what it wrote to a record, which says so no more: it gets a lock,
    /// unless it has one. True if it got one. To be called under the exclusive latch of the record's leaf
    /// (WRITTEN-1).
    pub fn lock_again(&self, locks: &TrxLocks, index: IndexId, key: &[u8], need: Need) -> bool {
        let (inner, owner) = (&self.inner, locks.owner.key);
        let by_range = inner.own_range_modes(owner, index, key);
        if by_range.has(TableMode::Exclusive) {
            return false;
        }
        let limit = match need {
            Need::Must => usize::MAX,
            Need::IfMemory => inner.shard_bytes.load(Ordering::Relaxed),
        };
        let target = Target::Record(index, key);
        let Some((at, mut shard)) = inner.find_or_insert_within(target, limit) else {
            return false;
        };
        let queue = shard.queue_mut(at.slot);
        let held = queue.held_by(owner);
        if queue.grant(owner, TableMode::Exclusive) {
            locks.locks.borrow_mut().push(at);
        }
        !held.has(TableMode::Exclusive)
    }

    /// Whether the owner has given up locks of records that it wrote.
    pub fn relies_on_writing(&self, locks: &TrxLocks) -> bool {
        locks.written.get() > 0
    }

    /// Gives up this record's lock, if it is among those that the owner took last, and nobody awaits it.
    fn give_up_newest(&self, locks: &TrxLocks, index: IndexId, key: &[u8]) -> bool {
        let target = Target::Record(index, key);
        let (its_shard, _) = self.inner.place(target);
        let mut held = locks.locks.borrow_mut();
        for place in (held.len().saturating_sub(NEWEST)..held.len()).rev() {
            let at = held[place];
            if at.shard != its_shard {
                continue;
            }
            let mut shard = self.inner.shards[at.shard as usize].lock();
            if shard.target(at.slot) != target {
                continue;
            }
            let queue = shard.queue_mut(at.slot);
            if queue.waiters().len() > 0 {
                return false;
            }
            queue.release(locks.owner.key, &mut Wakes::new());
            shard.remove_if_empty(at.slot);
            drop(shard);
            held.remove(place);
            return true;
        }
        false
    }
}

impl LockSys {
    /// RANGE-1. `locks` asks for `mode` in the queue `at` of a record, whose shard's mutex is held; `waits`:
    /// it will wait if need be.
    pub(super) fn meet_ranges(
        &self,
        locks: &TrxLocks,
        (index, key): (IndexId, &[u8]),
        (at, queue): (LockRef, &mut Queue),
        mode: TableMode,
        waits: bool,
    ) -> Met {
        let mut found = self.gaps.ranges_at(index, key);
        if cfg!(feature = "sabotage") && self.ignores_ranges() {
            found.clear();
        }
        let own = locks.owner.key;
        let in_the_way =
            |holder: &RangeHolder| holder.owner.key != own && holder.modes.conflicts_with(mode);
        let mut given = SmallVec::new();
        for holder in found.iter().filter(|holder| in_the_way(holder)) {
            let mut shared = holder.owner.shared.lock();
            if shared.life != holder.life {
                // RANGE-3
                continue;
            }
            if !waits {
                return Met::InTheWay;
            }
            if grant_all(queue, holder.owner.key, holder.modes) {
                shared.adopted.push(at);
                given.push(holder.owner.key);
            }
        }
        let own_modes = found.iter().find(|holder| holder.owner.key == own);
        let own_modes = own_modes.map_or(ModeSet::EMPTY, |holder| holder.modes);
        if own_modes.covers(mode) && !queue.conflicts(own, mode) {
            return Met::Covered;
        }
        // QUEUE-3 is about all that it holds.
        if grant_all(queue, own, own_modes) {
            locks.locks.borrow_mut().push(at);
        }
        Met::InQueue(given)
    }

    /// How the owner's own ranges lock the record (RANGE-3).
    pub(super) fn own_range_modes(&self, owner: OwnerKey, index: IndexId, key: &[u8]) -> ModeSet {
        if !self.gaps.is_near_ranges(index, key) {
            return ModeSet::EMPTY;
        }
        let found = self.gaps.ranges_at(index, key);
        let own = found.iter().find(|holder| holder.owner.key == owner);
        own.map_or(ModeSet::EMPTY, |holder| holder.modes)
    }
}

/// True if the owner gets something, and held nothing here before.
fn grant_all(queue: &mut Queue, owner: OwnerKey, modes: ModeSet) -> bool {
    let mut is_first = false;
    for mode in modes.iter() {
        is_first |= queue.grant(owner, mode);
    }
    is_first
}
