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
//! - **GAP-6** An index's bounds, which stand beside the count, are around all its intervals: by the first
//!   eight bytes of keys, whose order is that of the keys. They are widened before an interval is entered,
//!   and made narrow only when there is none. So a key that is outside of them, as read under the exclusive
//!   latch of its leaf, is in no interval, as in GAP-5.
//!
//! So an insert into an index on which nobody holds a gap pays one load, and one that is not near any, three.
//! An interval may stand for the locks of the records in it, too: see range.rs.
//!
//! Mutexes: one for each shard of indexes, taken after the graph's and after a shard of queues.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;

use super::deadlock::Wanted;
use super::intervals::Intervals;
use super::manager::{LockManager, TrxLocks, Wait, wake_all};
use super::mode::{Mode, ModeSet};
use super::owner::{Owner, OwnerKey, WaitSeq};
use super::queue::Wakes;
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::{Error, IndexId, Result};

/// Counts of owners, and bounds; indexes with equal ids modulo this share one, which costs speed only. A
/// power of two, and no fewer than shards: those that share one are in the same shard.
const COUNTS: usize = 256;
/// A power of two.
const SHARDS: usize = if cfg!(loom) { 1 } else { 64 };

/// An owner that waits to put `key` into the index.
struct Waiter {
    owner: Arc<Owner>,
    seq: WaitSeq,
    key: Arc<[u8]>,
}

/// What an owner holds in an index.
struct Held {
    owner: Arc<Owner>,
    /// The owner's `Shared::life` when it took the first.
    life: u64,
    gaps: Intervals,
    /// Those of `gaps` in which the records are locked, too (range.rs).
    shared: Intervals,
    exclusive: Intervals,
}

impl Held {
    fn new(owner: &Arc<Owner>) -> Held {
        Held {
            owner: owner.clone(),
            life: owner.shared.lock().life,
            gaps: Intervals::default(),
            shared: Intervals::default(),
            exclusive: Intervals::default(),
        }
    }

    fn bytes(&self) -> usize {
        self.gaps.bytes() + self.shared.bytes() + self.exclusive.bytes()
    }

    fn rows(&mut self, mode: Mode) -> &mut Intervals {
        match mode {
            Mode::Shared => &mut self.shared,
            Mode::Exclusive => &mut self.exclusive,
        }
    }

    fn has_ranges(&self) -> bool {
        !(self.shared.is_empty() && self.exclusive.is_empty())
    }

    /// How the record with this key is locked by ranges.
    fn modes_at(&self, key: &[u8]) -> ModeSet {
        let mut modes = ModeSet::EMPTY;
        for (rows, mode) in [
            (&self.shared, Mode::Shared),
            (&self.exclusive, Mode::Exclusive),
        ] {
            if rows.contains(key) {
                modes = modes.with(mode.into());
            }
        }
        modes
    }
}

/// An owner that has locked a record by ranges.
pub(super) struct RangeHolder {
    pub owner: Arc<Owner>,
    pub life: u64,
    pub modes: ModeSet,
}

/// The gap locks of one index. It exists while somebody holds one.
#[derive(Default)]
struct IndexGaps {
    holders: BTreeMap<OwnerKey, Held>,
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
            .filter(move |(_, held)| held.gaps.contains(key))
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

/// Where gaps are in an index, for who need not know it exactly. Changed under the shard's mutex, read
/// without. Relaxed: GAP-5, GAP-6.
struct Near {
    owners: AtomicU32,
    /// Of these, the ones that have ranges (RANGE-2).
    rangers: AtomicU32,
    low: AtomicU64,
    high: AtomicU64,
}

/// The first bytes of a key, as a number.
fn beginning(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = key.len().min(8);
    bytes[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(bytes)
}

impl Near {
    fn new() -> Near {
        Near {
            owners: AtomicU32::new(0),
            rangers: AtomicU32::new(0),
            low: AtomicU64::new(u64::MAX),
            high: AtomicU64::new(0),
        }
    }

    fn widen(&self, low: &[u8], high: Option<&[u8]>) {
        let (low, high) = (beginning(low), high.map_or(u64::MAX, beginning));
        // A scan comes here with each row: mostly only the upper bound moves.
        if low < self.low.load(Ordering::Relaxed) {
            self.low.store(low, Ordering::Relaxed);
        }
        if high > self.high.load(Ordering::Relaxed) {
            self.high.store(high, Ordering::Relaxed);
        }
    }

    fn begin_owner(&self) {
        self.owners.fetch_add(1, Ordering::Relaxed);
    }

    fn end_owner(&self) {
        if self.owners.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.low.store(u64::MAX, Ordering::Relaxed);
            self.high.store(0, Ordering::Relaxed);
        }
    }

    fn has(&self, key: &[u8]) -> bool {
        self.owners.load(Ordering::Relaxed) != 0 && self.is_within(key)
    }

    fn has_ranges(&self, key: &[u8]) -> bool {
        self.rangers.load(Ordering::Relaxed) != 0 && self.is_within(key)
    }

    fn is_within(&self, key: &[u8]) -> bool {
        let key = beginning(key);
        self.low.load(Ordering::Relaxed) <= key && key <= self.high.load(Ordering::Relaxed)
    }
}

/// All gap locks of a database.
pub(super) struct GapTable {
    near: Box<[CachePadded<Near>]>,
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
            near: (0..COUNTS).map(|_| CachePadded::new(Near::new())).collect(),
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            bytes: AtomicUsize::new(0),
        }
    }

    fn near(&self, index: IndexId) -> &Near {
        &self.near[index.0 as usize & (COUNTS - 1)]
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

    /// Tells of each pair of an owner and an index with intervals how much memory they take, about.
    pub fn each_holder(&self, mut tell: impl FnMut(OwnerKey, usize)) {
        for shard in &self.shards {
            for gaps in shard.lock().values() {
                let holders = gaps.holders.iter();
                holders.for_each(|(owner, held)| tell(*owner, held.bytes()));
            }
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// `rows`: how the records in the interval are locked with it.
    fn add(
        &self,
        owner: &Arc<Owner>,
        index: IndexId,
        (low, high): (&[u8], Option<&[u8]>),
        rows: Option<Mode>,
    ) -> Added {
        let mut shard = self.shard(index);
        let gaps = shard.entry(index).or_default();
        let mut is_first = false;
        // GAP-6. Relaxed, as the count: the leaf's latch, under which this is called, orders it.
        let near = self.near(index);
        near.widen(low, high);
        let held = gaps.holders.entry(owner.key).or_insert_with(|| {
            is_first = true;
            // GAP-5
            near.begin_owner();
            Held::new(owner)
        });
        let before = held.bytes();
        held.gaps.add(low, high);
        if let Some(mode) = rows {
            if !held.has_ranges() {
                // RANGE-2
                near.rangers.fetch_add(1, Ordering::Relaxed);
            }
            held.rows(mode).add(low, high);
        }
        // An interval that swallows others leaves less: then this wraps, as the sum does back. One that only
        // grows mostly takes what it took.
        let change = held.bytes().wrapping_sub(before);
        let all = match change {
            0 => self.bytes(),
            _ => self.bytes.fetch_add(change, Ordering::Relaxed),
        };
        Added {
            is_first,
            bytes: (all, all.wrapping_add(change)),
        }
    }

    /// GAP-5, GAP-6: if not, no interval of the index contains the key.
    #[inline]
    pub fn is_near(&self, index: IndexId, key: &[u8]) -> bool {
        self.near(index).has(key)
    }

    /// RANGE-2: if not, no range of the index contains the key.
    #[inline]
    pub fn is_near_ranges(&self, index: IndexId, key: &[u8]) -> bool {
        self.near(index).has_ranges(key)
    }

    /// Who has locked the record with this key by ranges.
    pub fn ranges_at(&self, index: IndexId, key: &[u8]) -> SmallVec<[RangeHolder; 2]> {
        let shard = self.shard(index);
        let Some(gaps) = shard.get(&index) else {
            return SmallVec::new();
        };
        let mut holders = SmallVec::new();
        for held in gaps.holders.values() {
            let modes = held.modes_at(key);
            if !modes.is_empty() {
                let (owner, life) = (held.owner.clone(), held.life);
                holders.push(RangeHolder { owner, life, modes });
            }
        }
        holders
    }

    #[inline]
    fn keeps_out(&self, owner: OwnerKey, index: IndexId, key: &[u8]) -> bool {
        if !self.is_near(index, key) {
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
        if held.has_ranges() {
            self.near(index).rangers.fetch_sub(1, Ordering::Relaxed);
        }
        self.near(index).end_owner();
        drop(shard);
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
        self.lock_interval(locks, index, (low, high), None)
    }

    /// As `lock_gap`, with the records in it, if `rows` says how: for lock_range, which says more.
    pub(super) fn lock_interval(
        &self,
        locks: &TrxLocks,
        index: IndexId,
        interval: (&[u8], Option<&[u8]>),
        rows: Option<Mode>,
    ) -> Result<()> {
        let added = self.inner.gaps.add(&locks.owner, index, interval, rows);
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
