//! Row and table locks.
//!
//! A lock is a request in the queue of what it locks: (index, key) for a row, a table id for a table. Queues live in a
//! sharded hash table and exist only while they have requests. Splits and merges of pages move nothing, because nothing here
//! knows pages.
//!
//! **Queues** are first in, first out: a request is granted when it is compatible with everything granted to others and with
//! every request of others that waits before it. A holder that wants a stronger mode goes before everybody who waits.
//!
//! **Waiting.** A request that can't be granted is queued under the shard's mutex; then the deadlock search runs; then the
//! thread sleeps until the one who grants (or the search) changes its state. Nothing is held while sleeping. On timeout or
//! interrupt the thread takes its request out under the shard's mutex, where it learns whether it was granted after all.
//!
//! **Deadlocks.** Every search runs under one mutex, after the searcher's request was queued. So of the members of a cycle
//! the one that searches last finds all others waiting:
//!
//! - **LOCK-2** Each edge of the waits-for graph begins at a waiting request. Edges come into being when a request is queued
//!   (its owner searches afterwards); when an upgrade goes before others (all new edges end at the upgrader, which
//!   searches); when a waiter is granted (it does not wait, so it closes no cycle); and when an implicit lock becomes
//!   explicit, which adds no edge, because a record's writer either has its explicit lock or inserted the record
//!   after it found no request on the key at all. So no cycle stays without a search that sees it whole.
//!
//! The victim is the member that has changed least, the searcher among equals. It is taken out of its queue under the
//! shard's mutex and only if it still waits there; if it does not, the search starts again.
//!
//! **Implicit locks.** The writer of a record whose transaction has not ended holds it exclusively without a request.
//! `convert_implicit` makes the request on its behalf. The writer's list of locks says whether it has been released
//! already; both happen under its mutex, so no request is left behind by a transaction that is gone.
//!
//! Mutex order: search, shard, list of an owner's locks, owner's wait state. The lock table is a leaf for page latches:
//! `try_lock_record`, `conflicts` never wait and may be called under a latch; the others may not.

mod deadlock;
mod manager;
mod owner;
mod queue;
#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use manager::{LockManager, LockStats, WaitingLock};
pub use owner::TrxLocks;

/// How a row is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Shared,
    Exclusive,
}

/// How a table is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TableMode {
    /// Rows will be locked shared, or read by a view.
    IntentionShared = 0,
    /// Rows will be changed.
    IntentionExclusive = 1,
    Shared = 2,
    Exclusive = 3,
}

/// Bit `b` of `COMPATIBLE[a]`: modes a and b may be granted to different owners.
const COMPATIBLE: [u8; 4] = [0b0111, 0b0011, 0b0101, 0b0000];
/// Bit `b` of `COVERS[a]`: whoever holds a need not ask for b.
const COVERS: [u8; 4] = [0b0001, 0b0011, 0b0101, 0b1111];

impl TableMode {
    const ALL: [TableMode; 4] = [
        TableMode::IntentionShared,
        TableMode::IntentionExclusive,
        TableMode::Shared,
        TableMode::Exclusive,
    ];

    pub fn is_compatible(self, other: TableMode) -> bool {
        COMPATIBLE[self as usize] >> other as u8 & 1 == 1
    }

    /// Holding `self` makes asking for `other` needless.
    pub fn covers(self, other: TableMode) -> bool {
        COVERS[self as usize] >> other as u8 & 1 == 1
    }
}

impl From<Mode> for TableMode {
    fn from(mode: Mode) -> TableMode {
        match mode {
            Mode::Shared => TableMode::Shared,
            Mode::Exclusive => TableMode::Exclusive,
        }
    }
}

/// How long to wait for a lock.
#[derive(Clone, Copy)]
pub enum Wait<'a> {
    /// At most this long, and until the flag is set and `LockManager::wake_interrupted` is called.
    For {
        timeout: Duration,
        interrupt: &'a AtomicBool,
    },
}
