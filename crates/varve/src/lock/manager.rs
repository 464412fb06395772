//! The lock table: sharded queues, waiting, release.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use hashbrown::HashTable;
use parking_lot::Mutex;

use crate::base::{Error, IndexId, Result, TableId, TrxId};
use crate::txn::TxnSys;

use super::owner::{Owner, TrxLocks, WaitState};
use super::queue::{Asked, LockId, Queue};
use super::{Mode, TableMode, Wait};

/// Shards of the lock table, and of the look-up by transaction.
const SHARDS: usize = 128;

type Shard = CachePadded<Mutex<HashTable<Queue>>>;
type OwnerShard = CachePadded<Mutex<HashMap<u64, Arc<Owner>>>>;

/// Numbers for status output.
#[derive(Clone, Copy, Debug, Default)]
pub struct LockStats {
    /// Requests that had to wait.
    pub waits: u64,
    pub current_waits: u64,
    pub timeouts: u64,
    pub deadlocks: u64,
    /// Time spent waiting, in microseconds.
    pub wait_us: u64,
}

/// A wait that goes on, for people to look at.
#[derive(Clone, Debug)]
pub struct WaitingLock {
    pub trx: TrxId,
    /// Index id and key of a row, or table id and `None`.
    pub object: u64,
    pub key: Option<Vec<u8>>,
}

#[derive(Default)]
pub(super) struct Counters {
    waits: AtomicU64,
    timeouts: AtomicU64,
    pub deadlocks: AtomicU64,
    wait_us: AtomicU64,
}

/// All locks of a database.
pub struct LockManager {
    shards: Box<[Shard]>,
    /// Owners by the id of their transaction, for implicit locks.
    by_trx: Box<[OwnerShard]>,
    next_owner: AtomicU64,
    /// Owners that wait, for interrupts and status.
    waiters: Mutex<HashMap<u64, Arc<Owner>>>,
    /// Serialises deadlock searches.
    pub(super) search: Mutex<()>,
    pub(super) counters: Counters,
}

impl Default for LockManager {
    fn default() -> LockManager {
        LockManager::new()
    }
}

fn hash_of(object: u64, key: Option<&[u8]>) -> u64 {
    // Row and table locks never share a queue: `LockId::is` compares the whole identity.
    let low = crc32c::crc32c(key.unwrap_or(b"table"));
    let mixed = (object.rotate_left(32) ^ u64::from(low)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

impl LockManager {
    pub fn new() -> LockManager {
        LockManager {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            by_trx: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            next_owner: AtomicU64::new(1),
            waiters: Mutex::default(),
            search: Mutex::default(),
            counters: Counters::default(),
        }
    }

    /// A handle for a transaction's locks.
    pub fn owner(&self) -> TrxLocks {
        // Relaxed: only uniqueness counts.
        TrxLocks {
            owner: Arc::new(Owner::new(self.next_owner.fetch_add(1, Ordering::Relaxed))),
        }
    }

    /// Makes the owner known by its transaction's id. Before the transaction's first write.
    pub fn set_trx(&self, locks: &TrxLocks, trx: TrxId) {
        locks.owner.trx.store(trx.0, Ordering::Relaxed);
        self.trx_shard(trx)
            .lock()
            .insert(trx.0, locks.owner.clone());
    }

    fn trx_shard(&self, trx: TrxId) -> &Mutex<HashMap<u64, Arc<Owner>>> {
        &self.by_trx[trx.0 as usize % SHARDS]
    }

    pub(super) fn shard(&self, hash: u64) -> &Mutex<HashTable<Queue>> {
        &self.shards[(hash >> 57) as usize % SHARDS]
    }

    /// Runs `f` on the queue, which is made if there is none and removed if it ends up empty.
    fn with_queue<R>(&self, object: u64, key: Option<&[u8]>, f: impl FnOnce(&mut Queue) -> R) -> R {
        let hash = hash_of(object, key);
        let mut shard = self.shard(hash).lock();
        let entry = shard.entry(hash, |q| q.id.is(object, key), |q| q.id.hash);
        let mut occupied = entry.or_insert_with(|| {
            Queue::new(LockId {
                hash,
                object,
                key: key.map(Arc::from),
            })
        });
        let result = f(occupied.get_mut());
        if occupied.get().is_empty() {
            occupied.remove();
        }
        result
    }

    /// Runs `f` on the queue if there is one; removes it if it ends up empty.
    pub(super) fn with_existing<R>(
        &self,
        id: &LockId,
        f: impl FnOnce(&mut Queue) -> R,
    ) -> Option<R> {
        let mut shard = self.shard(id.hash).lock();
        let mut found = shard
            .find_entry(id.hash, |q| q.id.is(id.object, id.key.as_deref()))
            .ok()?;
        let result = f(found.get_mut());
        if found.get().is_empty() {
            found.remove();
        }
        Some(result)
    }

    /// Locks a row, waiting if need be. Call it without a latch.
    ///
    /// # Errors
    ///
    /// `LockWaitTimeout`, `Interrupted`, `Deadlock` if this owner is the victim.
    pub fn lock_record(
        &self,
        locks: &TrxLocks,
        index: IndexId,
        key: &[u8],
        mode: Mode,
        wait: Wait<'_>,
    ) -> Result<()> {
        self.lock(locks, index.0, Some(key), mode.into(), wait)
    }

    /// Locks a table, waiting if need be. Errors as for `lock_record`.
    pub fn lock_table(
        &self,
        locks: &TrxLocks,
        table: TableId,
        mode: TableMode,
        wait: Wait<'_>,
    ) -> Result<()> {
        self.lock(locks, table.0, None, mode, wait)
    }

    /// Locks a row if nobody is in the way. Never waits.
    pub fn try_lock_record(
        &self,
        locks: &TrxLocks,
        index: IndexId,
        key: &[u8],
        mode: Mode,
    ) -> Result<bool> {
        let owner = &locks.owner;
        Ok(self.with_queue(index.0, Some(key), |queue| {
            self.ask(queue, owner, mode.into()) != Asked::Blocked
        }))
    }

    /// Asks, and remembers what was granted in the owner's list.
    fn ask(&self, queue: &mut Queue, owner: &Arc<Owner>, mode: TableMode) -> Asked {
        let asked = queue.ask(owner, mode);
        if asked == Asked::Granted {
            owner.held.lock().locks.push(queue.id.clone());
        }
        asked
    }

    /// Whether somebody else has or wants a lock on the row that is incompatible with `mode`.
    pub fn conflicts(&self, locks: &TrxLocks, index: IndexId, key: &[u8], mode: Mode) -> bool {
        let hash = hash_of(index.0, Some(key));
        let shard = self.shard(hash).lock();
        let queue = shard.find(hash, |q| q.id.is(index.0, Some(key)));
        queue.is_some_and(|q| q.conflicts(locks.owner.id, mode.into()))
    }

    fn lock(
        &self,
        locks: &TrxLocks,
        object: u64,
        key: Option<&[u8]>,
        mode: TableMode,
        wait: Wait<'_>,
    ) -> Result<()> {
        let owner = &locks.owner;
        let blocked = self.with_queue(object, key, |queue| {
            if self.ask(queue, owner, mode) != Asked::Blocked {
                return None;
            }
            *owner.state.lock() = WaitState::Pending;
            *owner.waiting_for.lock() = Some(queue.id.clone());
            queue.enqueue(owner, mode);
            Some(queue.id.clone())
        });
        match blocked {
            None => Ok(()),
            Some(id) => self.wait(owner, &id, wait),
        }
    }

    #[cold]
    fn wait(&self, owner: &Arc<Owner>, id: &LockId, wait: Wait<'_>) -> Result<()> {
        let started = Instant::now();
        self.counters.waits.fetch_add(1, Ordering::Relaxed);
        self.waiters.lock().insert(owner.id, owner.clone());
        self.break_deadlocks(owner);
        let outcome = self.sleep(owner, wait);
        self.waiters.lock().remove(&owner.id);
        let waited = started.elapsed().as_micros() as u64;
        self.counters.wait_us.fetch_add(waited, Ordering::Relaxed);
        match outcome {
            Ok(()) => Ok(()),
            Err(Error::Deadlock) => Err(Error::Deadlock),
            Err(e) => {
                if self.give_up(owner, id) {
                    Err(e)
                } else {
                    // It was granted, or chosen as a victim, at the last moment.
                    match *owner.state.lock() {
                        WaitState::Victim => Err(Error::Deadlock),
                        _ => Ok(()),
                    }
                }
            }
        }
    }

    fn sleep(&self, owner: &Owner, wait: Wait<'_>) -> Result<()> {
        let Wait::For { timeout, interrupt } = wait;
        let deadline = Instant::now().checked_add(timeout);
        let mut state = owner.state.lock();
        loop {
            match *state {
                WaitState::Granted => return Ok(()),
                WaitState::Victim => return Err(Error::Deadlock),
                WaitState::Pending => {}
            }
            // Acquire pairs with the Release store of whoever interrupts. It wakes us under this mutex afterwards.
            if interrupt.load(Ordering::Acquire) {
                return Err(Error::Interrupted);
            }
            match deadline {
                None => owner.changed.wait(&mut state),
                Some(deadline) => {
                    let timed_out = owner.changed.wait_until(&mut state, deadline).timed_out();
                    if timed_out && *state == WaitState::Pending {
                        self.counters.timeouts.fetch_add(1, Ordering::Relaxed);
                        return Err(Error::LockWaitTimeout);
                    }
                }
            }
        }
    }

    /// Takes a waiting request out. `false` if it does not wait any more.
    fn give_up(&self, owner: &Owner, id: &LockId) -> bool {
        let removed = self.with_existing(id, |queue| {
            let removed = queue.remove_waiting(owner.id);
            if removed {
                *owner.waiting_for.lock() = None;
                grant_waiting(queue);
            }
            removed
        });
        removed == Some(true)
    }

    /// Makes the implicit lock of a record's writer explicit. `false`: the writer has ended meanwhile.
    pub fn convert_implicit(
        &self,
        sys: &TxnSys,
        holder: TrxId,
        index: IndexId,
        key: &[u8],
    ) -> bool {
        let Some(owner) = self.trx_shard(holder).lock().get(&holder.0).cloned() else {
            debug_assert!(
                !sys.is_unfinished(holder),
                "transaction {holder} has no lock owner"
            );
            return false;
        };
        self.with_queue(index.0, Some(key), |queue| {
            let mut held = owner.held.lock();
            if held.released {
                return false;
            }
            if queue.grant_implicit(&owner, TableMode::Exclusive) {
                held.locks.push(queue.id.clone());
            }
            true
        })
    }

    /// Releases one row lock early.
    pub fn unlock_record(&self, locks: &TrxLocks, index: IndexId, key: &[u8]) {
        let id = LockId {
            hash: hash_of(index.0, Some(key)),
            object: index.0,
            key: Some(Arc::from(key)),
        };
        self.with_existing(&id, |queue| {
            queue.remove_granted(locks.owner.id);
            grant_waiting(queue);
            let mut held = locks.owner.held.lock();
            if let Some(at) = held.locks.iter().rposition(|l| *l == id) {
                held.locks.swap_remove(at);
            }
        });
    }

    /// Releases everything at the end of a transaction, after its state says how it ended.
    pub fn release_all(&self, locks: &TrxLocks) {
        let owner = &locks.owner;
        let trx = locks.trx();
        let held = {
            let mut held = owner.held.lock();
            held.released = true;
            std::mem::take(&mut held.locks)
        };
        if trx.0 != 0 {
            self.trx_shard(trx).lock().remove(&trx.0);
        }
        for id in &held {
            self.with_existing(id, |queue| {
                queue.remove_granted(owner.id);
                grant_waiting(queue);
            });
        }
    }

    /// Wakes all waiters, so that interrupted ones notice.
    pub fn wake_interrupted(&self) {
        for owner in self.waiters.lock().values() {
            let _state = owner.state.lock();
            owner.changed.notify_one();
        }
    }

    pub fn stats(&self) -> LockStats {
        let count = |c: &AtomicU64| c.load(Ordering::Relaxed);
        LockStats {
            waits: count(&self.counters.waits),
            current_waits: self.waiters.lock().len() as u64,
            timeouts: count(&self.counters.timeouts),
            deadlocks: count(&self.counters.deadlocks),
            wait_us: count(&self.counters.wait_us),
        }
    }

    /// Who waits for what, right now.
    pub fn waiting(&self) -> Vec<WaitingLock> {
        let owners: Vec<_> = self.waiters.lock().values().cloned().collect();
        let describe = |owner: Arc<Owner>| {
            let id = owner.waiting_for.lock().clone()?;
            let trx = TrxId(owner.trx.load(Ordering::Relaxed));
            Some(WaitingLock {
                trx,
                object: id.object,
                key: id.key.map(|k| k.to_vec()),
            })
        };
        owners.into_iter().filter_map(describe).collect()
    }

    /// Queues in the table: zero when nobody holds a lock.
    #[cfg(test)]
    pub(super) fn queue_count(&self) -> usize {
        self.shards.iter().map(|s| s.lock().len()).sum()
    }
}

/// Grants what can be granted, and wakes the owners. Under the shard's mutex.
pub(super) fn grant_waiting(queue: &mut Queue) {
    if queue.waiting.is_empty() {
        return;
    }
    for owner in queue.grant_waiting() {
        owner.held.lock().locks.push(queue.id.clone());
        owner.finish_wait(WaitState::Granted);
    }
}
