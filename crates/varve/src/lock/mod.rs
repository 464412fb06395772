//! Locks of transactions: on records, keyed (index, key), on the gaps between them, and on tables.
//!
//! | file | what |
//! |---|---|
//! | mode.rs | modes and which get along |
//! | queue.rs | one locked thing: holders, waiters, their order |
//! | shard.rs | a part of the lock table |
//! | owner.rs | a transaction's side: its lists, its wait |
//! | gap.rs | gap locks, and the waits of inserts for them |
//! | range.rs | gap locks that lock the records in them, too |
//! | intervals.rs | a set of keys as intervals |
//! | manager.rs | requests, waits |
//! | tables.rs | locks of tables, and noted intents |
//! | release.rs | giving up many at once |
//! | deadlock.rs | the waits-for graph and its cycles |
//! | shown.rs | what a list of transactions says of each |
//! | status.rs | counters and snapshots |
//!
//! A lock is not a latch: it protects rows, until the transaction ends, and its waits can end in an error.
//! The lock table is a leaf: no function here takes a latch, and none that may wait may be called while
//! holding one (`try_lock_record`, `conflicts`, `unlock_record`, `lock_gap` and `keeps_out` do not wait).
//!
//! A transaction holds what it wrote *implicitly*: the record's TrxId says so. A transaction that wants such
//! a record calls `convert_implicit` first, which makes the lock explicit, and then queues up behind it. What
//! a long scan has read it holds by its range, which a request makes explicit in the same way (range.rs).
//!
//! Errors: `Deadlock` (roll the transaction back), `LockWaitTimeout` and `Interrupted` (roll the statement
//! back). After any of them the request is gone; locks held before are still held.

mod deadlock;
mod gap;
#[cfg(all(test, not(loom)))]
mod gap_tests;
mod intervals;
#[cfg(all(test, loom))]
mod loom_tests;
mod manager;
mod mode;
#[cfg(all(test, not(loom)))]
mod model;
mod owner;
mod queue;
mod range;
#[cfg(all(test, not(loom)))]
mod range_tests;
mod release;
mod shard;
mod shown;
#[cfg(all(test, not(loom)))]
mod shown_tests;
mod status;
mod tables;
#[cfg(all(test, not(loom)))]
mod tests;

pub use manager::{Acquired, LockManager, TrxLocks, Wait};
pub use mode::{Mode, TableMode};
pub use range::{LastRow, Need};
pub use shown::{LockAmount, LockOwner, Shown, ShownTransaction};
pub use status::{
    DeadlockMember, DeadlockReport, LockDescription, LockStats, LockStatus, LockTarget,
    LockWaiting, SessionText,
};
