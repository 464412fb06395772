//! What the lock manager shows: counters, who waits for whom, the last deadlock.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::deadlock::Wanted;
use super::manager::{LockManager, LockSys};
use super::mode::TableMode;
use super::shard::Target;
use super::shown::{LockAmount, LockOwner};
use crate::base::{IndexId, TableId};

/// Touched only by requests that wait.
#[derive(Default)]
pub(super) struct Counters {
    waits: AtomicU64,
    waiting: AtomicU64,
    wait_us: AtomicU64,
    wait_us_max: AtomicU64,
    pub deadlocks: AtomicU64,
    pub timeouts: AtomicU64,
}

impl Counters {
    pub fn begin_wait(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    pub fn end_wait(&self, waited: Duration) {
        let us = waited.as_micros() as u64;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.wait_us.fetch_add(us, Ordering::Relaxed);
        self.wait_us_max.fetch_max(us, Ordering::Relaxed);
    }
}

/// Numbers since the database was opened, but for `current_waits`, which is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockStats {
    /// Requests that had to wait.
    pub waits: u64,
    /// Requests that wait now.
    pub current_waits: u64,
    /// How long all waits that have ended took.
    pub wait_us: u64,
    pub wait_us_max: u64,
    /// Waits ended by `Error::Deadlock`.
    pub deadlocks: u64,
    /// Waits ended by `Error::LockWaitTimeout`.
    pub timeouts: u64,
}

/// What is locked, with its mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockDescription {
    pub target: LockTarget,
    pub mode: TableMode,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockTarget {
    Record {
        index: IndexId,
        key: Vec<u8>,
    },
    Table(TableId),
    /// A place in an index for this key, where others hold gap locks.
    Insert {
        index: IndexId,
        key: Vec<u8>,
    },
}

impl fmt::Display for LockDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = self.mode.name();
        match &self.target {
            LockTarget::Table(table) => write!(f, "table lock, table {table}, mode {mode}"),
            LockTarget::Record { index, key } => {
                write!(f, "record lock, index {index}, mode {mode}, key 0x")?;
                key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            LockTarget::Insert { index, key } => {
                write!(f, "insert intention, index {index}, key 0x")?;
                key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

/// A transaction that waits.
#[derive(Clone, Debug)]
pub struct LockWaiting {
    pub owner: LockOwner,
    pub wants: LockDescription,
    pub waited: Duration,
    /// Those that are in the way, with the mode that is.
    pub holders: Vec<(LockOwner, TableMode)>,
}

/// What a session has to say of itself among the lines about its transaction.
#[derive(Clone, Debug, Default)]
pub struct SessionText {
    /// Since when its transaction runs.
    pub active: Duration,
    /// What it is doing, in a word or two; may be empty.
    pub operation: String,
    /// Whole lines, which come before and after that about its locks.
    pub before: String,
    pub after: String,
}

/// A member of a deadlock.
#[derive(Clone, Debug)]
pub struct DeadlockMember {
    pub owner: LockOwner,
    /// Undo records that it had written.
    pub changes: u64,
    /// What it had locked, about: gaps are not counted, and tables whose locks others dispute are counted as
    /// records. All of it would take the mutexes of the whole lock table.
    pub locks: LockAmount,
    pub wants: LockDescription,
    /// It was told to roll back.
    pub victim: bool,
    /// What somebody who knows its session has said of it (`LockManager::describe_deadlocks`).
    pub session: Option<SessionText>,
}

/// Each member waits for the next, the last for the first.
#[derive(Clone, Debug)]
pub struct DeadlockReport {
    pub when: SystemTime,
    pub members: Vec<DeadlockMember>,
}

/// A snapshot for `SHOW ENGINE STATUS`. Not one instant's: shards are read one after the other.
#[derive(Clone, Debug)]
pub struct LockStatus {
    /// Things that are locked; table intents that nobody disputes are not counted.
    pub locked: usize,
    /// Pairs of a transaction and an index in which it holds gap locks.
    pub gaps: usize,
    pub waiting: Vec<LockWaiting>,
    pub last_deadlock: Option<DeadlockReport>,
}

impl LockManager {
    pub fn stats(&self) -> LockStats {
        let c = &self.inner.counters;
        LockStats {
            waits: c.waits.load(Ordering::Relaxed),
            current_waits: c.waiting.load(Ordering::Relaxed),
            wait_us: c.wait_us.load(Ordering::Relaxed),
            wait_us_max: c.wait_us_max.load(Ordering::Relaxed),
            deadlocks: c.deadlocks.load(Ordering::Relaxed),
            timeouts: c.timeouts.load(Ordering::Relaxed),
        }
    }

    /// The deadlocks that nobody has described yet, once `describe` has said what the sessions of their
    /// members do. A victim calls this before it rolls back: until then the others wait for it, in the
    /// statement that ran into the deadlock. No mutex is held meanwhile.
    pub fn describe_deadlocks(
        &self,
        describe: impl Fn(u64) -> Option<SessionText>,
    ) -> Vec<DeadlockReport> {
        let inner = &self.inner;
        // Of two victims at the same time the second one waits until the first has described both deadlocks.
        let _one_after_the_other = inner.describing.lock();
        let mut reports = Vec::from(std::mem::take(&mut inner.graph.lock().untold));
        let members = reports.iter_mut().flat_map(|report| &mut report.members);
        for member in members.filter(|m| m.owner.session != 0) {
            member.session = describe(member.owner.session);
        }
        let of =
            |report: &DeadlockReport| (report.when, report.members.first().map(|m| m.owner.number));
        let mut graph = inner.graph.lock();
        // It may be another one by now.
        if let (Some(last), Some(report)) = (&mut graph.last_deadlock, reports.last())
            && of(last) == of(report)
        {
            last.clone_from(report);
        }
        reports
    }

    /// When the last deadlock was found.
    pub fn last_deadlock(&self) -> Option<SystemTime> {
        let graph = self.inner.graph.lock();
        graph.last_deadlock.as_ref().map(|report| report.when)
    }

    /// Whether deadlocks are looked for (DEAD-5).
    pub fn set_deadlock_detection(&self, on: bool) {
        self.inner.set_detection(on);
    }

    /// Takes every shard's mutex once, and the graph's.
    pub fn status(&self) -> LockStatus {
        let inner = &self.inner;
        let locked = inner.shards.iter().map(|shard| shard.lock().len()).sum();
        let waiting = self.waiting();
        LockStatus {
            locked,
            gaps: inner.gaps.len(),
            waiting,
            last_deadlock: inner.graph.lock().last_deadlock.clone(),
        }
    }

    /// Who waits, those who have waited longest first. Takes the graph's mutex, and those of the shards with
    /// what is waited for.
    pub fn waiting(&self) -> Vec<LockWaiting> {
        let inner = &self.inner;
        let graph = inner.graph.lock();
        let waits = graph.waits.values();
        let mut waiting: Vec<_> = waits
            .map(|wait| LockWaiting {
                owner: LockOwner::of(&wait.owner),
                wants: inner.describe(&wait.wanted),
                waited: wait.since.elapsed(),
                holders: inner.in_the_way(wait.owner.key, &wait.wanted),
            })
            .collect();
        waiting.sort_by_key(|w| std::cmp::Reverse(w.waited));
        waiting
    }
}

impl LockSys {
    /// The queue must exist (DEAD-3).
    pub fn describe(&self, wanted: &Wanted) -> LockDescription {
        let (at, mode) = match wanted {
            Wanted::Lock { at, mode } => (at, *mode),
            Wanted::Insert { index, key } => {
                let (index, key) = (*index, key.to_vec());
                let target = LockTarget::Insert { index, key };
                let mode = TableMode::Exclusive;
                return LockDescription { target, mode };
            }
        };
        let shard = self.shards[at.shard as usize].lock();
        let target = match shard.target(at.slot) {
            Target::Table(table) => LockTarget::Table(table),
            Target::Record(index, key) => LockTarget::Record {
                index,
                key: key.to_vec(),
            },
        };
        LockDescription { target, mode }
    }
}
