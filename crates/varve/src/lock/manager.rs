//! The lock manager: requests, waits, releases.
//!
//! The lock table is split into shards by a hash of what is locked; a request that need not wait takes one
//! shard's mutex for a few dozen instructions, and allocates nothing for keys of up to 22 bytes once the
//! shard has its memory. Only a request that has to wait comes to the graph (deadlock.rs), which is one mutex
//! for all.
//!
//! Table intents (IS, IX), which every statement takes, do not come to the lock table at all: the owner notes
//! them in its own list, as long as nobody wants the table for itself (`Shared`, `Exclusive`: *strong*
//! modes). An owner that does raises the table's count of strong requests first, then moves all noted intents
//! into the queue, then queues up itself (LOCK-3).
//!
//! Invariants:
//! - **LOCK-1** A mode is granted only if it conflicts with no other owner's (queue.rs, QUEUE-1), noted
//!   intents included.
//! - **LOCK-2** No wake-up is lost: a grant is entered in the queue under the shard's mutex, the wait's state
//!   changes under the owner's, which the waiter holds while it decides to sleep; and a waiter that gives up
//!   asks the queue.
//! - **LOCK-3** An intent is noted under the owner's `Shared` mutex, after a look at the table's strong count
//!   under the same mutex. The strong request raises the count before it takes that mutex. So either the look
//!   sees the count, or the walk sees the intent.
//! - **LOCK-4** An insert of a key takes no mutex if the key's shard holds no lock at all. It asks under the
//!   exclusive latch of the key's leaf. An owner that locks a key without a record looks for the record
//!   afterwards, under that leaf's latch: if it did before the insert latched the leaf, the latch orders the
//!   shard's count before the insert's load; if it does later, it finds the record.
//!
//! Never call a function that may wait while holding a latch. Mutex order: deadlock.rs and owner.rs.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;

use super::deadlock::{Graph, Wait as GraphWait, Wanted};
use super::gap::GapTable;
use super::mode::{Mode, ModeSet, TableMode};
use super::owner::{LockRef, Owner, OwnerKey, WaitSeq, WaitState};
use super::queue::{Answer, Waiter, Wakes};
use super::shard::{ShardCell, ShardGuard, Target};
use super::status::Counters;
use crate::base::sync::{AtomicU32, Mutex};
use crate::base::{Error, IndexId, Result, TableId, TrxId};

/// Shards of the lock table. A power of two, as all of these; in a model there are as few as can be.
const SHARDS: usize = if cfg!(loom) { 2 } else { 512 };
/// Parts of the registries of owners. A power of two.
const REGISTRIES: usize = if cfg!(loom) { 1 } else { 64 };
/// When gap locks take so many bytes more or less, the memory is divided again.
pub(super) const DIVIDE_BYTES: usize = 64 << 10;
/// Counts of strong table requests; tables with equal hashes share one, which costs speed only.
const STRONG_COUNTS: usize = if cfg!(loom) { 1 } else { 1024 };

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
    pub counters: Counters,
    owners: Box<[Registry<OwnerKey>]>,
    /// Owners by transaction id.
    trxs: Box<[Registry<TrxId>]>,
    strong: Box<[AtomicU32]>,
    /// Bytes that all locks may take. Relaxed, as are the two parts: each stands for itself.
    limit_bytes: AtomicUsize,
    /// Bytes that the queues of one shard may take before it refuses to lock further records.
    shard_bytes: AtomicUsize,
    /// Bytes that gap locks may take.
    gap_bytes: AtomicUsize,
    next_key: AtomicU64,
    seed: u64,
    /// Relaxed: nothing depends on when it is seen.
    forgets_to_wake: AtomicBool,
}

type Registry<K> = CachePadded<Mutex<HashMap<K, Arc<Owner>, BuildHasherDefault<IdHasher>>>>;

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
                counters: Counters::default(),
                owners: parts(REGISTRIES),
                trxs: parts(REGISTRIES),
                strong: (0..STRONG_COUNTS).map(|_| AtomicU32::new(0)).collect(),
                limit_bytes: AtomicUsize::new(usize::MAX),
                shard_bytes: AtomicUsize::new(usize::MAX),
                gap_bytes: AtomicUsize::new(usize::MAX),
                next_key: AtomicU64::new(1),
                forgets_to_wake: AtomicBool::new(false),
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

    /// The transactions that have an id, unordered, with the undo records that they have written.
    pub fn writers(&self) -> Vec<(TrxId, u64)> {
        let mut writers = Vec::new();
        for registry in &self.inner.trxs {
            let registry = registry.lock();
            let changes = |owner: &Arc<Owner>| owner.changes.load(Ordering::Relaxed);
            writers.extend(registry.iter().map(|(id, owner)| (*id, changes(owner))));
        }
        writers
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
    /// match, if the request returned `Acquired::New`. False if the owner holds none.
    pub fn unlock_record(&self, locks: &TrxLocks, index: IndexId, key: &[u8]) -> bool {
        let target = Target::Record(index, key);
        let Some((at, mut shard)) = self.inner.find(target) else {
            return false;
        };
        let mut wakes = Wakes::new();
        let modes = shard
            .queue_mut(at.slot)
            .release(locks.owner.key, &mut wakes);
        shard.remove_if_empty(at.slot);
        drop(shard);
        if !modes.is_empty() {
            locks.forget(at);
        }
        wake_all(wakes);
        !modes.is_empty()
    }

    /// Locks a table.
    pub fn lock_table(
        &self,
        locks: &TrxLocks,
        table: TableId,
        mode: TableMode,
        wait: Wait<'_>,
    ) -> Result<Acquired> {
        if mode.is_intention()
            && let Some(acquired) = self.inner.note_intent(&locks.owner, table, mode)
        {
            return Ok(acquired);
        }
        if !mode.is_strong() {
            return self.inner.acquire(locks, Target::Table(table), mode, wait);
        }
        let strong = self.inner.strong_of(table);
        strong.fetch_add(1, Ordering::SeqCst);
        self.inner.move_intents(table);
        let result = self.inner.acquire(locks, Target::Table(table), mode, wait);
        if !matches!(result, Ok(Acquired::New | Acquired::Upgraded)) {
            strong.fetch_sub(1, Ordering::SeqCst);
        }
        result
    }

    /// Gives up one mode on a table: AUTO-INC at the end of the statement, LOCK TABLES, an intent on a table
    /// that was gone when it was granted. False if the owner does not hold it.
    pub fn unlock_table(&self, locks: &TrxLocks, table: TableId, mode: TableMode) -> bool {
        let was_noted = mode.is_intention() && locks.owner.shared.lock().forget_intent(table, mode);
        // It may be in the queue, too: an intent that was moved there, and taken again.
        self.unlock_in_queue(locks, table, mode) || was_noted
    }

    fn unlock_in_queue(&self, locks: &TrxLocks, table: TableId, mode: TableMode) -> bool {
        let Some((at, mut shard)) = self.inner.find(Target::Table(table)) else {
            return false;
        };
        let mut wakes = Wakes::new();
        let queue = shard.queue_mut(at.slot);
        let Some(left) = queue.release_mode(locks.owner.key, mode, &mut wakes) else {
            return false;
        };
        shard.remove_if_empty(at.slot);
        drop(shard);
        if left.is_empty() {
            locks.forget(at);
        }
        if mode.is_strong() {
            self.inner.strong_of(table).fetch_sub(1, Ordering::SeqCst);
        }
        wake_all(wakes);
        true
    }

    /// Turns the exclusive lock on a table into an intention to change it, with nobody in between. False if
    /// the owner has none.
    pub fn weaken_table(&self, locks: &TrxLocks, table: TableId) -> bool {
        let Some((at, mut shard)) = self.inner.find(Target::Table(table)) else {
            return false;
        };
        let mut wakes = Wakes::new();
        let is_weaker = shard.queue_mut(at.slot).weaken(locks.owner.key, &mut wakes);
        drop(shard);
        if is_weaker {
            // LOCK-3: it stays in the queue, where who wants the table for itself finds it.
            self.inner.strong_of(table).fetch_sub(1, Ordering::SeqCst);
        }
        wake_all(wakes);
        is_weaker
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

    #[cfg(test)]
    pub fn holds_table(&self, locks: &TrxLocks, table: TableId, mode: TableMode) -> bool {
        let noted = noted(&locks.owner.shared.lock().intents, table);
        if noted.covers(mode) {
            return true;
        }
        let found = self.inner.find(Target::Table(table));
        found.is_some_and(|(at, shard)| {
            let held = shard.queue(at.slot).held_by(locks.owner.key);
            held.covers(mode)
        })
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
        let weight = changes + self.locks.borrow().len() as u64;
        self.owner.weight.store(weight, Ordering::Relaxed);
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
        self.locks.borrow().len() + self.owner.shared.lock().adopted.len()
    }

    /// Whether the transaction holds any lock but the implicit ones on what it wrote.
    pub fn holds_any(&self) -> bool {
        let has_intents = !self.owner.shared.lock().intents.is_empty();
        has_intents || self.count() > 0 || !self.gaps.borrow().is_empty()
    }

    /// A lock was given up early. It is usually the newest.
    fn forget(&self, at: LockRef) {
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

fn noted(intents: &[(TableId, ModeSet)], table: TableId) -> ModeSet {
    intents
        .iter()
        .find(|(t, _)| *t == table)
        .map_or(ModeSet::EMPTY, |(_, modes)| *modes)
}

/// After the shard's mutex is released: the waiters that wake want it.
pub(super) fn wake_all(wakes: Wakes) {
    for (owner, seq) in wakes {
        owner.wake(seq, WaitState::Granted);
    }
}

impl LockSys {
    fn owners_of(&self, key: OwnerKey) -> &Registry<OwnerKey> {
        &self.owners[key.0 as usize & (REGISTRIES - 1)]
    }

    pub(super) fn trxs_of(&self, id: TrxId) -> &Registry<TrxId> {
        &self.trxs[id.0 as usize & (REGISTRIES - 1)]
    }

    fn strong_of(&self, table: TableId) -> &AtomicU32 {
        &self.strong[table.0 as usize & (STRONG_COUNTS - 1)]
    }

    /// For messages.
    pub fn trx_of(&self, key: OwnerKey) -> Option<TrxId> {
        self.owners_of(key).lock().get(&key)?.trx()
    }

    /// The shard and the hash within it.
    fn place(&self, target: Target<'_>) -> (u16, u32) {
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

    fn find(&self, target: Target<'_>) -> Option<(LockRef, ShardGuard<'_>)> {
        let (shard, hash) = self.place(target);
        let guard = self.shards[shard as usize].lock();
        let slot = guard.find(hash, target)?;
        Some((LockRef { shard, slot }, guard))
    }

    fn record_bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().bytes()).sum()
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

    fn find_or_insert(&self, target: Target<'_>) -> (LockRef, ShardGuard<'_>) {
        let found = self.find_or_insert_within(target, usize::MAX);
        found.expect("there is no limit")
    }

    fn find_or_insert_within(
        &self,
        target: Target<'_>,
        limit: usize,
    ) -> Option<(LockRef, ShardGuard<'_>)> {
        let (shard, hash) = self.place(target);
        let mut guard = self.shards[shard as usize].lock();
        let slot = guard.find_or_insert_within(hash, target, limit)?;
        Some((LockRef { shard, slot }, guard))
    }

    fn acquire(
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
        self.counters.end_wait(begun.elapsed());
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

    /// LOCK-3. `None`: somebody wants the table for itself, so the intent has to queue up.
    fn note_intent(&self, owner: &Owner, table: TableId, mode: TableMode) -> Option<Acquired> {
        let mut shared = owner.shared.lock();
        let at = shared.intents.iter().position(|(t, _)| *t == table);
        if at.is_some_and(|at| shared.intents[at].1.covers(mode)) {
            return Some(Acquired::Already);
        }
        if self.strong_of(table).load(Ordering::SeqCst) != 0 {
            return None;
        }
        match at {
            Some(at) => {
                let modes = &mut shared.intents[at].1;
                *modes = modes.with(mode);
                Some(Acquired::Upgraded)
            }
            None => {
                shared.intents.push((table, ModeSet::EMPTY.with(mode)));
                Some(Acquired::New)
            }
        }
    }

    /// Moves all noted intents on a table into its queue. The strong count was raised before.
    fn move_intents(&self, table: TableId) {
        let (at, mut shard) = self.find_or_insert(Target::Table(table));
        for registry in &self.owners {
            let registry = registry.lock();
            for owner in registry.values() {
                let mut shared = owner.shared.lock();
                let modes = noted(&shared.intents, table);
                if modes.is_empty() {
                    continue;
                }
                shared.intents.retain(|(t, _)| *t != table);
                for mode in modes.iter() {
                    if shard.queue_mut(at.slot).grant(owner.key, mode) {
                        shared.adopted.push(at);
                    }
                }
            }
        }
        shard.remove_if_empty(at.slot);
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
