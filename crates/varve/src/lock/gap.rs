//! Gap locks: intervals of an index's keys that their owners keep others from adding to, and the waits of who
//! wants to.
//!
//! An interval belongs to an owner until its transaction ends and says nothing about the records in it.
//! Intervals of different owners get along, so taking one never waits. It is a predicate on keys, not on
//! records or pages: a record that purge or a rollback removes, a page that is split or merged change nothing
//! about it.
//!
//! A transaction that makes a key *live* in an index (inserts its record, or un-delete-marks it) first asks
//! under the exclusive latch of the key's leaf whether an interval of another owner contains the key. If so
//! it lets its latches go, waits until none does (an *insert intention*), and searches again: a wait that
//! ended well grants nothing.
//!
//! Invariants:
//! - **GAP-1** No key becomes live in an index while an interval of another owner contains it. The look and
//!   the change happen under the exclusive latch of the key's leaf; a piece of an interval is entered under
//!   the shared latch of the leaf whose fences contain the piece. So either the look sees the piece, or who
//!   enters it sees the record.
//! - **GAP-4** No wake-up is lost: a waiter is entered under the mutex under which it was seen that somebody
//!   is in its way, and an owner that releases intervals looks at all waiters of the index under the same
//!   mutex.
//! - **GAP-5** An index's count is at least the number of owners that have intervals in it, raised before the
//!   first interval is entered. So a count of 0, read under the exclusive latch of a key's leaf, says that no
//!   interval contains the key: one that did was entered under the latch of the key's leaf, which orders the
//!   raise before the read.
//!
//! So an insert into an index on which nobody holds a gap pays one load. Mutexes: one for each shard of
//! indexes, taken after the graph's, never together with a shard of queues.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

use super::deadlock::Wanted;
use super::intervals::Intervals;
use super::manager::{LockManager, TrxLocks, Wait, wake_all};
use super::owner::{Owner, OwnerKey, WaitSeq};
use super::queue::Wakes;
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::{Error, IndexId, Result};

/// Counts of owners; indexes with equal ids modulo this share one, which costs speed only. A power of two.
const COUNTS: usize = 1024;
/// A power of two.
const SHARDS: usize = if cfg!(loom) { 1 } else { 64 };

/// An owner that waits to put `key` into the index.
struct Waiter {
    owner: Arc<Owner>,
    seq: WaitSeq,
    key: Arc<[u8]>,
}

/// The gap locks of one index. It exists while somebody holds one.
#[derive(Default)]
struct IndexGaps {
    holders: BTreeMap<OwnerKey, Intervals>,
    waiting: Vec<Waiter>,
}

impl IndexGaps {
    /// The others whose intervals contain the key.
    fn in_the_way(&self, of: OwnerKey, key: &[u8]) -> impl Iterator<Item = OwnerKey> {
        let others = self
            .holders
            .iter()
            .filter(move |(holder, _)| **holder != of);
        others
            .filter(move |(_, intervals)| intervals.contains(key))
            .map(|(holder, _)| *holder)
    }

    fn keeps_out(&self, owner: OwnerKey, key: &[u8]) -> bool {
        self.in_the_way(owner, key).next().is_some()
    }

    /// GAP-4. Takes out the waiters that nobody is in the way of any more.
    fn let_in(&mut self) -> Wakes {
        let mut wakes = Wakes::new();
        let mut at = 0;
        while at < self.waiting.len() {
            let waiter = &self.waiting[at];
            if self.keeps_out(waiter.owner.key, &waiter.key) {
                at += 1;
            } else {
                let waiter = self.waiting.swap_remove(at);
                wakes.push((waiter.owner, waiter.seq));
            }
        }
        wakes
    }
}

type Shard = HashMap<IndexId, IndexGaps>;

/// All gap locks of a database.
pub(super) struct GapTable {
    counts: Box<[AtomicU32]>,
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    /// Memory of all intervals, about. Relaxed: a sum that no memory hangs on.
    bytes: AtomicUsize,
}

/// What became of an interval that was added.
struct Added {
    /// The owner had none in this index before.
    is_first: bool,
    /// All intervals' memory before and now.
    bytes: (usize, usize),
}

impl GapTable {
    pub fn new() -> GapTable {
        GapTable {
            counts: (0..COUNTS).map(|_| AtomicU32::new(0)).collect(),
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            bytes: AtomicUsize::new(0),
        }
    }

    fn count(&self, index: IndexId) -> &AtomicU32 {
        &self.counts[index.0 as usize & (COUNTS - 1)]
    }

    fn shard(&self, index: IndexId) -> MutexGuard<'_, Shard> {
        self.shards[index.0 as usize & (SHARDS - 1)].lock()
    }

    /// How many pairs of an owner and an index with intervals there are.
    pub fn len(&self) -> usize {
        let in_shard = |shard: &CachePadded<Mutex<Shard>>| -> usize {
            shard.lock().values().map(|gaps| gaps.holders.len()).sum()
        };
        self.shards.iter().map(in_shard).sum()
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn add(&self, owner: OwnerKey, index: IndexId, low: &[u8], high: Option<&[u8]>) -> Added {
        let mut shard = self.shard(index);
        let gaps = shard.entry(index).or_default();
        let mut is_first = false;
        let intervals = gaps.holders.entry(owner).or_insert_with(|| {
            is_first = true;
            // GAP-5. Relaxed: the leaf's latch, under which this is called, orders it.
            self.count(index).fetch_add(1, Ordering::Relaxed);
            Intervals::default()
        });
        let before = intervals.bytes();
        intervals.add(low, high);
        // An interval that swallows others leaves less: then this wraps, as the sum does back.
        let change = intervals.bytes().wrapping_sub(before);
        let all = self.bytes.fetch_add(change, Ordering::Relaxed);
        Added {
            is_first,
            bytes: (all, all.wrapping_add(change)),
        }
    }

    #[inline]
    fn keeps_out(&self, owner: OwnerKey, index: IndexId, key: &[u8]) -> bool {
        // GAP-5.
        if self.count(index).load(Ordering::Relaxed) == 0 {
            return false;
        }
        let shard = self.shard(index);
        let gaps = shard.get(&index);
        gaps.is_some_and(|gaps| gaps.keeps_out(owner, key))
    }

    /// Enters a waiter. `None`: nobody is in its way any more.
    fn enqueue(&self, owner: &Arc<Owner>, index: IndexId, key: &Arc<[u8]>) -> Option<WaitSeq> {
        let mut shard = self.shard(index);
        let gaps = shard.get_mut(&index)?;
        if !gaps.keeps_out(owner.key, key) {
            return None;
        }
        let seq = owner.begin_wait();
        gaps.waiting.push(Waiter {
            owner: owner.clone(),
            seq,
            key: key.clone(),
        });
        Some(seq)
    }

    /// False if the waiter was let in before it could be taken back.
    pub fn take_back(&self, owner: OwnerKey, index: IndexId) -> bool {
        let mut shard = self.shard(index);
        let Some(gaps) = shard.get_mut(&index) else {
            return false;
        };
        let before = gaps.waiting.len();
        gaps.waiting.retain(|waiter| waiter.owner.key != owner);
        gaps.waiting.len() < before
    }

    /// The owner gives up all its intervals in this index.
    pub fn release(&self, owner: OwnerKey, index: IndexId) {
        let mut shard = self.shard(index);
        let gaps = shard.get_mut(&index);
        let gaps = gaps.expect("OWNER-2: an index on the list has the owner's intervals");
        let held = gaps.holders.remove(&owner);
        let held = held.unwrap_or_else(|| panic!("OWNER-2: no intervals in index {index}"));
        self.bytes.fetch_sub(held.bytes(), Ordering::Relaxed);
        let wakes = gaps.let_in();
        if gaps.holders.is_empty() {
            assert!(gaps.waiting.is_empty(), "GAP-4: waits for nobody");
            shard.remove(&index);
        }
        drop(shard);
        self.count(index).fetch_sub(1, Ordering::Relaxed);
        wake_all(wakes);
    }

    /// Who keeps `owner` from putting the key into the index.
    pub fn blockers(&self, owner: OwnerKey, index: IndexId, key: &[u8]) -> Vec<OwnerKey> {
        let shard = self.shard(index);
        let gaps = shard.get(&index);
        gaps.map_or_else(Vec::new, |gaps| gaps.in_the_way(owner, key).collect())
    }
}

impl LockManager {
    /// Keeps others from putting keys from `low` up to, but not including, `high` into the index (`None`: all
    /// keys from `low` on). Never waits. To be called under the latch of the leaf whose fences contain the
    /// interval (GAP-1).
    ///
    /// # Errors
    ///
    /// `LockTableFull`. The interval is locked all the same: nothing else says what the transaction has read.
    pub fn lock_gap(
        &self,
        locks: &TrxLocks,
        index: IndexId,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> Result<()> {
        let added = self.inner.gaps.add(locks.owner.key, index, low, high);
        if added.is_first {
            locks.gaps.borrow_mut().push(index);
        }
        let (before, now) = added.bytes;
        match now != before && !self.inner.has_gap_memory(before, now) && now > before {
            true => Err(Error::LockTableFull),
            false => Ok(()),
        }
    }

    /// Whether another owner's gap lock keeps the key out of the index. Never waits. To be called under the
    /// exclusive latch of the key's leaf, before the key is made live there (GAP-1).
    #[inline]
    pub fn keeps_out(&self, locks: &TrxLocks, index: IndexId, key: &[u8]) -> bool {
        self.inner.gaps.keeps_out(locks.owner.key, index, key)
    }

    /// Waits until nobody's gap lock contains the key. It may be locked again when this returns: look again.
    pub fn wait_to_insert(
        &self,
        locks: &TrxLocks,
        index: IndexId,
        key: &[u8],
        wait: Wait<'_>,
    ) -> Result<()> {
        let Wait::For { timeout, interrupt } = wait else {
            return match self.keeps_out(locks, index, key) {
                true => Err(Error::LockWaitTimeout),
                false => Ok(()),
            };
        };
        let key: Arc<[u8]> = key.into();
        let Some(seq) = self.inner.gaps.enqueue(&locks.owner, index, &key) else {
            return Ok(());
        };
        let wanted = Wanted::Insert { index, key };
        self.inner
            .wait(&locks.owner, wanted, seq, timeout, interrupt)
    }
}
