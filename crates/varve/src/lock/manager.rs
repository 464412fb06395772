//! The lock manager: requests, waits, releases.
//!
//! The lock table is split into shards by a hash of what is locked; a request that need not wait takes one
//! shard's mutex for a few dozen instructions, and allocates nothing for keys of up to 22 bytes once the
//! shard has its memory. Only a request that has to wait comes to the graph (deadlock.rs), which is one mutex
//! for all.
//!
//! Locks of tables are in tables.rs. Invariants:
//! - **LOCK-1** A mode is granted only if it conflicts with no other owner's (queue.rs, QUEUE-1), noted
//!   intents included.
//! - **LOCK-2** No wake-up is lost: a grant is entered in the queue under the shard's mutex, the wait's state
//!   changes under the owner's, which the waiter holds while it decides to sleep; and a waiter that gives up
//!   asks the queue.
//! - **LOCK-4** An insert of a key takes no mutex if the key's shard holds no lock at all. It asks under the
//!   exclusive latch of the key's leaf. An owner that locks a key without a record looks for the record
//!   afterwards, under that leaf's latch: if it did before the insert latched the leaf, the latch orders the
//!   shard's count before the insert's load; if it does later, it finds the record.
//!
//! Never call a function that may wait while holding a latch. Mutex order: deadlock.rs and owner.rs.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;

use super::deadlock::{Graph, Wait as GraphWait, Wanted};
use super::gap::GapTable;
use super::mode::{Mode, TableMode};
use super::owner::{LockRef, Owner, OwnerKey, WaitSeq, WaitState};
use super::queue::{Answer, Waiter, Wakes};
use super::range::{FEW_LOCKS, Met};
use super::shard::{ShardCell, ShardGuard, Target};
use super::shown::LockOwner;
use super::status::Counters;
use crate::base::sync::{AtomicU32, Mutex};
use crate::base::{Error, IndexId, Result, TrxId};

/// Shards of the lock table. A power of two, as all of these; in a model there are as few as can be.
const SHARDS: usize = if cfg!(loom) { 2 } else { 512 };
/// Parts of the registries of owners. A power of two.
const REGISTRIES: usize = if cfg!(loom) { 1 } else { 64 };
/// When gap locks take so many bytes more or less, the memory is divided again.
pub(super) const DIVIDE_BYTES: usize = 64 << 10;
/// Counts of strong table requests; tables with equal hashes share one, which costs speed only.
pub(super) const STRONG_COUNTS: usize = if cfg!(loom) { 1 } else { 1024 };

/// What to do when a lock can't be had at once.
#[derive(Clone, Copy)]
pub enum Wait<'a> {
    /// `Error::LockWaitTimeout` (NOWAIT).
    No,
    /// At most this long, and until the flag is set and `LockManager::wake_interrupted` is called.
    For {
        timeout: Duration,
        interrupt: &'a AtomicBool,
    },
}

/// What a successful request changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acquired {
    /// The owner holds a lock here that it did not hold before.
    New,
    /// The owner holds a stronger lock than before.
    Upgraded,
    /// The owner held this or a stronger lock already.
    Already,
}

pub(super) struct LockSys {
    pub shards: Box<[CachePadded<ShardCell>]>,
    pub gaps: GapTable,
    pub graph: Mutex<Graph>,
    /// Held by who describes deadlocks (`LockManager::describe_deadlocks`), before all others.
    pub describing: Mutex<()>,
    pub counters: Counters,
    pub owners: Box<[Registry<OwnerKey>]>,
    /// Owners by transaction id.
    trxs: Box<[Registry<TrxId>]>,
    pub strong: Box<[AtomicU32]>,
    /// Bytes that all locks may take. Relaxed, as are the two parts: each stands for itself.
    limit_bytes: AtomicUsize,
    /// Bytes that the queues of one shard may take before it refuses to lock further records.
    pub shard_bytes: AtomicUsize,
    /// Bytes that gap locks may take.
    gap_bytes: AtomicUsize,
    next_key: AtomicU64,
    seed: u64,
    /// So many locks of an owner are few (range.rs). Relaxed, as the rest: nothing
    /// depends on when it is seen.
    pub few_locks: AtomicUsize,
    forgets_to_wake: AtomicBool,
    ignores_ranges: AtomicBool,
}

pub(super) type Registry<K> =
    CachePadded<Mutex<HashMap<K, Arc<Owner>, BuildHasherDefault<IdHasher>>>>;

/// Hashes ids that the engine drew itself, so nobody chose them to collide.
#[derive(Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash_bytes(self.0, bytes);
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = fold(self.0, id);
    }
}

/// The locks of one database. Clones are handles of the same manager.
#[derive(Clone)]
pub struct LockManager {
    pub(super) inner: Arc<LockSys>,
}

/// A transaction's locks. Used by one thread at a time; usable again after `LockManager::release_all`. If it
/// is dropped without that, its locks are released, unless `set_trx` gave it an id: then they stay until the
/// database is closed.
pub struct TrxLocks {
    pub(super) owner: Arc<Owner>,
    /// No mutex: only the transaction's own thread comes here.
    pub(super) locks: RefCell<Vec<LockRef>>,
    /// The indexes in which it has gap locks.
    pub(super) gaps: RefCell<SmallVec<[IndexId; 2]>>,
    /// Of the locks that it has given up since its ranges or its writing say the same (`Shown::implied`), the
    /// latter.
    pub(super) written: Cell<u64>,
    pub(super) inner: Arc<LockSys>,
}

impl Default for LockManager {
    fn default() -> LockManager {
        LockManager::new()
    }
}

impl LockManager {
    pub fn new() -> LockManager {
        fn parts<T: Default>(n: usize) -> Box<[T]> {
            (0..n).map(|_| T::default()).collect()
        }
        LockManager {
            inner: Arc::new(LockSys {
                shards: parts(SHARDS),
                gaps: GapTable::new(),
                graph: Mutex::default(),
                describing: Mutex::default(),
                counters: Counters::default(),
                owners: parts(REGISTRIES),
                trxs: parts(REGISTRIES),
                strong: (0..STRONG_COUNTS).map(|_| AtomicU32::new(0)).collect(),
                limit_bytes: AtomicUsize::new(usize::MAX),
                shard_bytes: AtomicUsize::new(usize::MAX),
                gap_bytes: AtomicUsize::new(usize::MAX),
                next_key: AtomicU64::new(1),
                few_locks: AtomicUsize::new(FEW_LOCKS),
                forgets_to_wake: AtomicBool::new(false),
                ignores_ranges: AtomicBool::new(false),
                // Keys come from users: they can't choose keys that all fall into one shard.
                // A model must run the same each time.
                seed: match cfg!(loom) {
                    true => 0,
                    false => RandomState::new().hash_one(0u64),
                },
            }),
        }
    }

    /// Locks of records and gaps are refused with `LockTableFull` when together they take about so much
    /// memory.
    pub fn set_memory_limit(&self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.inner.limit_bytes.store(bytes, Ordering::Relaxed);
        self.inner.divide_memory();
    }

    /// What locks of records and gaps take, about.
    pub fn memory_bytes(&self) -> usize {
        self.inner.record_bytes() + self.inner.gaps.bytes()
    }

    /// A new owner without locks.
    pub fn owner(&self) -> TrxLocks {
        let inner = self.inner.clone();
        let key = OwnerKey(inner.next_key.fetch_add(1, Ordering::Relaxed));
        let owner = Arc::new(Owner::new(key));
        inner.owners_of(key).lock().insert(key, owner.clone());
        TrxLocks {
            owner,
            locks: RefCell::default(),
            gaps: RefCell::default(),
            written: Cell::default(),
            inner,
        }
    }

    /// The owner's transaction has drawn an id: from now on others can make its implicit locks explicit.
    /// Before anything is written under the id.
    pub fn set_trx(&self, locks: &TrxLocks, id: TrxId) {
        let owner = &locks.owner;
        owner.shared.lock().trx = id.0;
        owner.trx.store(id.0, Ordering::Relaxed);
        let before = self.inner.trxs_of(id).lock().insert(id, owner.clone());
        assert!(before.is_none(), "two lock owners for transaction {id}");
    }

    /// Locks a record, whether or not there is one with this key.
    pub fn lock_record(
        &self,
        locks: &TrxLocks,
        index: IndexId,
        key: &[u8],
        mode: Mode,
        wait: Wait<'_>,
    ) -> Result<Acquired> {
        self.inner
            .acquire(locks, Target::Record(index, key), mode.into(), wait)
    }

    /// Locks a record if nobody is in the way. Never waits: may be called under a latch.
    pub fn try_lock_record(
        &self,
        locks: &TrxLocks,
        index: IndexId,
        key: &[u8],
        mode: Mode,
    ) -> Option<Acquired> {
        self.lock_record(locks, index, key, mode, Wait::No).ok()
    }

    /// Whether a request for `mode` on a key that has no record would have to wait. To be called under the
    /// exclusive latch of the key's leaf: an insert asks there, and needs no lock if the answer is no
    /// (LOCK-4).
    pub fn conflicts(&self, locks: &TrxLocks, index: IndexId, key: &[u8], mode: Mode) -> bool {
        let target = Target::Record(index, key);
        // LOCK-4.
        if self.inner.shard_of(target).was_empty() {
            return false;
        }
        let found = self.inner.find(target);
        found
            .is_some_and(|(at, shard)| shard.queue(at.slot).conflicts(locks.owner.key, mode.into()))
    }

    /// Gives up a record lock before the transaction ends: READ COMMITTED does that for rows which don't
    /// match, if the request returned `Acquired::New`. False if the owner holds none, or keeps it in a range.
    pub fn unlock_record(&self, locks: &TrxLocks, index: IndexId, key: &[u8]) -> bool {
        let target = Target::Record(index, key);
        let Some((at, mut shard)) = self.inner.find(target) else {
            return false;
        };
        // RANGE-3
        let by_range = self.inner.own_range_modes(locks.owner.key, index, key);
        if !by_range.is_empty() {
            return false;
        }
        let mut wakes = Wakes::new();
        let modes = shard
            .queue_mut(at.slot)
            .release(locks.owner.key, &mut wakes);
        shard.remove_if_empty(at.slot);
        if !modes.is_empty() {
            // OWNER-2: before the slot can be another lock's, which somebody may give the owner.
            locks.forget(at);
        }
        drop(shard);
        wake_all(wakes);
        !modes.is_empty()
    }

    /// Gives an unfinished transaction the exclusive lock that it holds implicitly on a record it wrote, so
    /// that others can queue up behind it. False if its locks are released by now: then it has ended, look at
    /// the record again.
    pub fn convert_implicit(&self, holder: TrxId, index: IndexId, key: &[u8]) -> bool {
        let inner = &self.inner;
        let Some(owner) = inner.trxs_of(holder).lock().get(&holder).cloned() else {
            return false;
        };
        let target = Target::Record(index, key);
        let (at, mut shard) = inner.find_or_insert(target);
        let mut shared = owner.shared.lock();
        if shared.trx != holder.0 {
            shard.remove_if_empty(at.slot);
            return false;
        }
        let queue = shard.queue_mut(at.slot);
        if queue.grant(owner.key, TableMode::Exclusive) {
            shared.adopted.push(at);
        }
        let others_wait = queue.waiters().len() > 0;
        drop(shared);
        drop(shard);
        if others_wait {
            // They wait for the holder now; if it waits for one of them, no wait that begins will notice
            // (DEAD-1).
            inner.search_from(owner.key);
        }
        true
    }

    /// Whether the owner holds this mode, or one that covers it.
    #[cfg(test)]
    pub fn holds_record(&self, locks: &TrxLocks, index: IndexId, key: &[u8], mode: Mode) -> bool {
        let found = self.inner.find(Target::Record(index, key));
        found.is_some_and(|(at, shard)| {
            let held = shard.queue(at.slot).held_by(locks.owner.key);
            held.covers(mode.into())
        })
    }

    /// From now on locks are granted whatever ranges say: a test of tests.
    pub fn ignore_ranges(&self) {
        self.inner.ignores_ranges.store(true, Ordering::Relaxed);
    }

    /// From now on waiters for a lock are not woken when it is given up: a test of tests.
    pub fn forget_to_wake(&self) {
        self.inner.forgets_to_wake.store(true, Ordering::Relaxed);
    }

    /// Wakes all waiters, so that those whose flag is set notice. Set the flag first.
    pub fn wake_interrupted(&self) {
        // An owner that has queued a request and is not in the graph yet enters it after this, and sees the
        // flag.
        for wait in self.inner.graph.lock().waits.values() {
            wait.owner.nudge();
        }
    }
}

impl TrxLocks {
    /// How much work a rollback would undo: of a deadlock's members the lightest is rolled back.
    pub fn set_weight(&self, changes: u64) {
        let weight = changes + self.locks.borrow().len() as u64 + self.implied();
        self.owner.weight.store(weight, Ordering::Relaxed);
    }

    /// How long it has waited for locks since this was asked for last, or since it began.
    pub fn take_waited(&self) -> Duration {
        let waited = &self.owner.waited_us;
        let us = waited.load(Ordering::Relaxed);
        // Nearly always: no line is written.
        if us > 0 {
            waited.store(0, Ordering::Relaxed);
        }
        Duration::from_micros(us)
    }

    /// Of a deadlock's members one whose transaction is not spared is rolled back, if there is one.
    pub fn set_spared(&self, spared: bool) {
        self.owner.spared.store(spared, Ordering::Relaxed);
    }

    /// How many undo records the transaction has written (`LockManager::writers`).
    #[inline]
    pub fn set_changes(&self, changes: u64) {
        self.owner.changes.store(changes, Ordering::Relaxed);
    }

    /// Locks that the transaction holds: records, and tables whose intentions are not merely noted.
    pub fn count(&self) -> usize {
        let adopted = self.owner.shared.lock().adopted.len();
        self.locks.borrow().len() + adopted + self.implied() as usize
    }

    /// Locks that it has without an entry in the lock table, having had one.
    fn implied(&self) -> u64 {
        self.owner.shown.implied()
    }

    /// So many more of them, or less.
    pub fn add_implied(&self, more: i64) {
        let now = self.implied();
        debug_assert!(now.checked_add_signed(more).is_some(), "{now} and {more}");
        self.shown().set_implied(now.saturating_add_signed(more));
    }

    /// Whether the transaction holds any lock but the implicit ones on what it wrote.
    pub fn holds_any(&self) -> bool {
        let has_intents = !self.owner.shared.lock().intents.is_empty();
        has_intents || self.count() > 0 || !self.gaps.borrow().is_empty()
    }

    /// A lock was given up early. It is usually the newest.
    pub(super) fn forget(&self, at: LockRef) {
        let mut locks = self.locks.borrow_mut();
        if let Some(place) = locks.iter().rposition(|l| *l == at) {
            locks.remove(place);
        } else {
            let mut shared = self.owner.shared.lock();
            shared.adopted.retain(|l| *l != at);
        }
    }
}

impl Drop for TrxLocks {
    fn drop(&mut self) {
        if self.owner.trx().is_some() {
            // How the transaction ends is not decided: others must go on waiting for it.
            return;
        }
        self.release_all();
        let key = self.owner.key;
        self.inner.owners_of(key).lock().remove(&key);
    }
}

/// After the shard's mutex is released: the waiters that wake want it.
pub(super) fn wake_all(wakes: Wakes) {
    for (owner, seq) in wakes {
        owner.wake(seq, WaitState::Granted);
    }
}

impl LockSys {
    pub(super) fn owners_of(&self, key: OwnerKey) -> &Registry<OwnerKey> {
        &self.owners[key.0 as usize & (REGISTRIES - 1)]
    }

    pub(super) fn trxs_of(&self, id: TrxId) -> &Registry<TrxId> {
        &self.trxs[id.0 as usize & (REGISTRIES - 1)]
    }

    /// For messages.
    pub fn owner_of(&self, key: OwnerKey) -> Option<LockOwner> {
        self.owners_of(key)
            .lock()
            .get(&key)
            .map(|owner| LockOwner::of(owner))
    }

    pub(super) fn owners(&self) -> &[Registry<OwnerKey>] {
        &self.owners
    }

    /// The shard and the hash within it.
    pub(super) fn place(&self, target: Target<'_>) -> (u16, u32) {
        let hash = match target {
            Target::Record(index, key) => hash_bytes(self.seed ^ index.0, key),
            Target::Table(table) => fold(!self.seed, table.0),
        };
        (shard_of_hash(hash), (hash >> 32) as u32)
    }

    #[inline]
    fn shard_of(&self, target: Target<'_>) -> &ShardCell {
        &self.shards[self.place(target).0 as usize]
    }

    pub(super) fn find(&self, target: Target<'_>) -> Option<(LockRef, ShardGuard<'_>)> {
        let (shard, hash) = self.place(target);
        let guard = self.shards[shard as usize].lock();
        let slot = guard.find(hash, target)?;
        Some((LockRef { shard, slot }, guard))
    }

    fn record_bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().bytes()).sum()
    }

    pub(super) fn ignores_ranges(&self) -> bool {
        self.ignores_ranges.load(Ordering::Relaxed)
    }

    /// Gap locks get what record locks leave, and the other way round. Keys fall evenly into the shards, so
    /// each has its part, and nobody counts all records' locks but now and then here.
    pub(super) fn divide_memory(&self) {
        let limit = self.limit_bytes.load(Ordering::Relaxed);
        let for_records = limit.saturating_sub(self.gaps.bytes());
        self.shard_bytes
            .store(for_records / SHARDS, Ordering::Relaxed);
        let for_gaps = limit.saturating_sub(self.record_bytes());
        self.gap_bytes.store(for_gaps, Ordering::Relaxed);
    }

    /// Gap locks took `before` bytes and take `now`: whether that is allowed.
    pub fn has_gap_memory(&self, before: usize, now: usize) -> bool {
        if before / DIVIDE_BYTES != now / DIVIDE_BYTES
            || now > self.gap_bytes.load(Ordering::Relaxed)
        {
            self.divide_memory();
        }
        now <= self.gap_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn find_or_insert(&self, target: Target<'_>) -> (LockRef, ShardGuard<'_>) {
        let found = self.find_or_insert_within(target, usize::MAX);
        found.expect("there is no limit")
    }

    pub(super) fn find_or_insert_within(
        &self,
        target: Target<'_>,
        limit: usize,
    ) -> Option<(LockRef, ShardGuard<'_>)> {
        let (shard, hash) = self.place(target);
        let mut guard = self.shards[shard as usize].lock();
        let slot = guard.find_or_insert_within(hash, target, limit)?;
        Some((LockRef { shard, slot }, guard))
    }

    pub(super) fn acquire(
        &self,
        locks: &TrxLocks,
        target: Target<'_>,
        mode: TableMode,
        wait: Wait<'_>,
    ) -> Result<Acquired> {
        let limit = match target {
            Target::Record(..) => self.shard_bytes.load(Ordering::Relaxed),
            Target::Table(_) => usize::MAX,
        };
        let found = self.find_or_insert_within(target, limit);
        let (at, mut shard) = found.ok_or(Error::LockTableFull)?;
        let queue = shard.queue_mut(at.slot);
        let key = locks.owner.key;
        let others_waited = queue.waiters().len() > 0;
        let mut given = SmallVec::new();
        // RANGE-2
        if let Target::Record(index, of) = target
            && self.gaps.is_near_ranges(index, of)
        {
            let waits = matches!(wait, Wait::For { .. });
            match self.meet_ranges(locks, (index, of), (at, queue), mode, waits) {
                Met::InQueue(owners) => given = owners,
                met => {
                    shard.remove_if_empty(at.slot);
                    return match met {
                        Met::Covered => Ok(Acquired::Already),
                        _ => Err(Error::LockWaitTimeout),
                    };
                }
            }
        }
        match queue.request(key, mode) {
            Answer::Already => return Ok(Acquired::Already),
            Answer::Upgraded => return Ok(Acquired::Upgraded),
            Answer::New => {
                drop(shard);
                locks.locks.borrow_mut().push(at);
                return Ok(Acquired::New);
            }
            Answer::Blocked => {}
        }
        let Wait::For { timeout, interrupt } = wait else {
            return Err(Error::LockWaitTimeout);
        };
        let held_before = !queue.held_by(key).is_empty();
        let owner = locks.owner.clone();
        let seq = owner.begin_wait();
        queue.enqueue(Waiter { owner, mode, seq });
        drop(shard);
        if others_waited {
            // As in `convert_implicit`.
            given.into_iter().for_each(|owner| self.search_from(owner));
        }
        let wanted = Wanted::Lock { at, mode };
        self.wait(&locks.owner, wanted, seq, timeout, interrupt)?;
        if held_before {
            return Ok(Acquired::Upgraded);
        }
        // OWNER-2: meanwhile another thread may have put it on the list, for an implicit lock.
        if !locks.owner.shared.lock().adopted.contains(&at) {
            locks.locks.borrow_mut().push(at);
        }
        Ok(Acquired::New)
    }

    /// The request is queued: waits until it is granted.
    pub fn wait(
        &self,
        owner: &Arc<Owner>,
        wanted: Wanted,
        seq: WaitSeq,
        timeout: Duration,
        interrupt: &AtomicBool,
    ) -> Result<()> {
        let begun = Instant::now();
        self.counters.begin_wait();
        self.enter_wait(GraphWait::new(owner.clone(), wanted.clone(), seq));
        // A timeout beyond the clock's end is none.
        let state = owner.sleep(begun.checked_add(timeout), interrupt);
        self.graph.lock().waits.remove(&owner.key);
        let granted = state == WaitState::Granted || !self.take_back(owner.key, &wanted);
        owner.end_wait();
        let waited = begun.elapsed();
        self.counters.end_wait(waited);
        let us = waited.as_micros() as u64;
        owner.waited_us.fetch_add(us, Ordering::Relaxed);
        if granted {
            return Ok(());
        }
        Err(if state == WaitState::Victim {
            self.counters.deadlocks.fetch_add(1, Ordering::Relaxed);
            Error::Deadlock
        } else if interrupt.load(Ordering::Acquire) {
            Error::Interrupted
        } else {
            self.counters.timeouts.fetch_add(1, Ordering::Relaxed);
            Error::LockWaitTimeout
        })
    }

    /// False if the request was granted before it could be taken back.
    fn take_back(&self, key: OwnerKey, wanted: &Wanted) -> bool {
        let at = match *wanted {
            Wanted::Lock { at, .. } => at,
            Wanted::Insert { index, .. } => return self.gaps.take_back(key, index),
        };
        let mut wakes = Wakes::new();
        let mut shard = self.shards[at.shard as usize].lock();
        let taken = shard.queue_mut(at.slot).cancel(key, &mut wakes);
        if taken {
            shard.remove_if_empty(at.slot);
        }
        drop(shard);
        wake_all(wakes);
        taken
    }

    pub(super) fn release(&self, key: OwnerKey, at: LockRef) {
        let mut wakes = Wakes::new();
        let mut shard = self.shards[at.shard as usize].lock();
        let modes = shard.queue_mut(at.slot).release(key, &mut wakes);
        assert!(!modes.is_empty(), "OWNER-2: {at:?} is not held");
        let strong = modes.iter().filter(|mode| mode.is_strong()).count() as u32;
        if strong > 0
            && let Target::Table(table) = shard.target(at.slot)
        {
            self.strong_of(table).fetch_sub(strong, Ordering::SeqCst);
        }
        shard.remove_if_empty(at.slot);
        drop(shard);
        if !(cfg!(feature = "sabotage") && self.forgets_to_wake.load(Ordering::Relaxed)) {
            wake_all(wakes);
        }
    }
}

/// Multiplies into 128 bits and folds the halves: every input bit reaches every output bit.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd6e8_feb8_6659_fd93);
    (product >> 64) as u64 ^ product as u64
}

fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    let mut hash = fold(seed, bytes.len() as u64);
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        hash = fold(hash, u64::from_le_bytes(chunk.try_into().expect("8 bytes")));
    }
    let mut rest = [0; 8];
    rest[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    fold(hash, u64::from_le_bytes(rest))
}

/// Small numbers that follow one another differ in few bits of a key, and the lowest bits of the hash alone
/// would go round in equal steps: with some seeds they come to a half of the shards only.
#[inline]
fn shard_of_hash(hash: u64) -> u16 {
    ((hash ^ hash >> 20 ^ hash >> 48) as usize & (SHARDS - 1)) as u16
}

#[cfg(all(test, not(loom)))]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Each shard has its part of the memory: keys that fall into few of them would be refused early.
    #[test]
    fn keys_fall_evenly_into_the_shards() {
        const PLACES: u32 = 10;
        let mut rng = SmallRng::seed_from_u64(1);
        for len in [4, 5, 8, 9] {
            for _ in 0..500 {
                let seed = rng.random();
                let mut taken = [0; SHARDS];
                for n in 0..4 * PLACES * SHARDS as u32 {
                    // As row keys have them: numbers from the most significant byte on.
                    let mut key = [0; 9];
                    key[len.min(8) - 4..len.min(8)].copy_from_slice(&n.to_be_bytes());
                    let shard = &mut taken[shard_of_hash(hash_bytes(seed, &key[..len])) as usize];
                    *shard = PLACES.min(*shard + 1);
                }
                let all: u32 = taken.iter().sum();
                assert!(
                    all > PLACES * SHARDS as u32 * 8 / 10,
                    "seed {seed:#x}, {len} bytes: {all} keys find a place"
                );
            }
        }
    }
}
