//! Owners of locks: a transaction's handle, and the part of it that other threads reach.
//!
//! Invariants:
//! - **OWNER-1** One thread uses a `TrxLocks` at a time, and an owner waits for one lock at a time.
//! - **OWNER-2** Every mode that an owner holds is on one of its lists: `TrxLocks::locks` for what it got
//!   itself, `adopted` for what others gave it (an implicit lock or one by a range made explicit, an intent
//!   moved to the lock table), `intents` for table intents that are in no queue. The indexes in which it has
//!   gap locks are on `TrxLocks::gaps`.
//! - **OWNER-3** `adopted` takes nothing more for a transaction once its locks are released: `trx` is reset
//!   first, and `life` counted on.
//!
//! Mutex order: shard, owner registry, then `Shared`. `WaitSlot` is a leaf.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use smallvec::SmallVec;

use super::mode::{ModeSet, TableMode};
use super::shown::Shown;
use crate::base::sync::{Condvar, Mutex};
use crate::base::{TableId, TrxId};

/// Tells owners apart, with or without a transaction id. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct OwnerKey(pub u64);

/// Counts an owner's waits, so that a late wake-up for an earlier one is told apart.
pub(super) type WaitSeq = u64;

/// Where a queue is: the shard and the slot within it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LockRef {
    pub shard: u16,
    pub slot: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WaitState {
    Idle,
    Waiting,
    Granted,
    /// Chosen to break a deadlock.
    Victim,
    /// The time is up, or KILL.
    GaveUp,
}

struct WaitSlot {
    seq: WaitSeq,
    state: WaitState,
}

/// What other threads may touch of an owner's lists.
#[derive(Default)]
pub(super) struct Shared {
    /// The transaction that implicit locks are converted for; 0 if it has no id, or has released its locks.
    pub trx: u64,
    /// Counted on when the owner releases its ranges: one that was found before counts no more.
    pub life: u64,
    pub adopted: Vec<LockRef>,
    pub intents: SmallVec<[(TableId, ModeSet); 4]>,
}

impl Shared {
    /// False if the owner has not noted it.
    pub fn forget_intent(&mut self, table: TableId, mode: TableMode) -> bool {
        let noted = |(t, modes): &(TableId, ModeSet)| *t == table && modes.has(mode);
        let Some(at) = self.intents.iter().position(noted) else {
            return false;
        };
        let left = self.intents[at].1.without(mode);
        match left.is_empty() {
            true => drop(self.intents.swap_remove(at)),
            false => self.intents[at].1 = left,
        }
        true
    }
}

pub(super) struct Owner {
    pub key: OwnerKey,
    /// For messages: as `Shared::trx`, but read without a mutex.
    pub trx: AtomicU64,
    /// How much work a rollback would undo; the deadlock search spares the heavy.
    pub weight: AtomicU64,
    /// It did what no rollback takes back. Relaxed, as the weight: whoever searches may miss the newest.
    pub spared: AtomicBool,
    /// Undo records that the transaction has written. Relaxed: shown, nothing else.
    pub changes: AtomicU64,
    /// How long it has waited for locks since somebody asked, in microseconds. Relaxed: its own thread writes
    /// and reads it.
    pub waited_us: AtomicU64,
    pub shown: Shown,
    pub shared: Mutex<Shared>,
    wait: Mutex<WaitSlot>,
    woken: Condvar,
}

impl Owner {
    pub fn new(key: OwnerKey) -> Owner {
        Owner {
            key,
            trx: AtomicU64::new(0),
            weight: AtomicU64::new(0),
            spared: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            waited_us: AtomicU64::new(0),
            shown: Shown::default(),
            shared: Mutex::new(Shared::default()),
            wait: Mutex::new(WaitSlot {
                seq: 0,
                state: WaitState::Idle,
            }),
            woken: Condvar::new(),
        }
    }

    pub fn trx(&self) -> Option<TrxId> {
        let id = self.trx.load(Ordering::Relaxed);
        (id != 0).then_some(TrxId(id))
    }

    /// Called under the shard's mutex, before the request is queued: so no grant comes earlier.
    pub fn begin_wait(&self) -> WaitSeq {
        let mut wait = self.wait.lock();
        assert_eq!(wait.state, WaitState::Idle, "OWNER-1");
        wait.seq += 1;
        wait.state = WaitState::Waiting;
        wait.seq
    }

    pub fn end_wait(&self) {
        self.wait.lock().state = WaitState::Idle;
    }

    /// Ends the wait with this number with `state`. False if it has ended already.
    pub fn wake(&self, seq: WaitSeq, state: WaitState) -> bool {
        let mut wait = self.wait.lock();
        if wait.seq != seq || wait.state != WaitState::Waiting {
            return false;
        }
        wait.state = state;
        self.woken.notify_one();
        true
    }

    /// Makes a waiting owner look at its interrupt flag. The flag was set before: the owner looks at it under
    /// the mutex, before it sleeps.
    pub fn nudge(&self) {
        let _wait = self.wait.lock();
        self.woken.notify_one();
    }

    /// Sleeps until the wait is ended by `wake`, by the deadline, or by the flag.
    pub fn sleep(&self, deadline: Option<Instant>, interrupt: &AtomicBool) -> WaitState {
        let mut wait = self.wait.lock();
        while wait.state == WaitState::Waiting {
            if interrupt.load(Ordering::Acquire) {
                wait.state = WaitState::GaveUp;
                break;
            }
            match deadline {
                None => self.woken.wait(&mut wait),
                Some(deadline) => {
                    if self.woken.wait_until(&mut wait, deadline).timed_out()
                        && wait.state == WaitState::Waiting
                    {
                        wait.state = WaitState::GaveUp;
                    }
                }
            }
        }
        wait.state
    }
}
