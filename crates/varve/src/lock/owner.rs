//! The owner of locks: one transaction, as the lock manager knows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::base::TrxId;

use super::queue::LockId;

/// What became of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WaitState {
    /// Not waiting, or waiting still.
    Pending,
    Granted,
    /// Chosen to end a deadlock; the request is out of its queue.
    Victim,
}

#[derive(Default)]
pub(super) struct Held {
    pub locks: Vec<LockId>,
    /// Everything was released and nothing may be added: the transaction has ended.
    pub released: bool,
}

pub(super) struct Owner {
    pub id: u64,
    /// The transaction's id; 0 before it has one. Relaxed: for look-ups by people.
    pub trx: AtomicU64,
    /// Work that a rollback would undo; the smallest in a cycle is the victim. Relaxed: a heuristic.
    pub weight: AtomicU64,
    pub held: Mutex<Held>,
    /// What the owner waits for, while it does. Written under the queue's shard mutex.
    pub waiting_for: Mutex<Option<LockId>>,
    pub state: Mutex<WaitState>,
    pub changed: Condvar,
}

impl Owner {
    pub fn new(id: u64) -> Owner {
        Owner {
            id,
            trx: AtomicU64::new(0),
            weight: AtomicU64::new(0),
            held: Mutex::default(),
            waiting_for: Mutex::new(None),
            state: Mutex::new(WaitState::Pending),
            changed: Condvar::new(),
        }
    }

    /// Ends the owner's wait. Called under the mutex of the shard in which it waits.
    pub fn finish_wait(&self, state: WaitState) {
        *self.waiting_for.lock() = None;
        *self.state.lock() = state;
        self.changed.notify_one();
    }
}

/// A transaction's handle on its locks.
pub struct TrxLocks {
    pub(super) owner: Arc<Owner>,
}

impl TrxLocks {
    /// Says how much a rollback would have to take back.
    pub fn set_weight(&self, undo_records: u64) {
        self.owner.weight.store(undo_records, Ordering::Relaxed);
    }

    pub fn trx(&self) -> TrxId {
        TrxId(self.owner.trx.load(Ordering::Relaxed))
    }

    /// Number of locks held, table locks included.
    pub fn count(&self) -> usize {
        self.owner.held.lock().locks.len()
    }
}
