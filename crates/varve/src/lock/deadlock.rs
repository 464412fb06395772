//! The waits-for graph and the search for cycles in it.
//!
//! A node is an owner that waits; its edges lead to the owners it waits for. Edges are not stored: they are
//! read from the queues when they are needed, each under its shard's mutex. What is stored is which owner
//! waits where, under the graph's mutex.
//!
//! Invariants:
//! - **DEAD-1** (none is missed) An owner queues its request first, then enters the graph and searches, both
//!   under the graph's mutex. Take a cycle of waits, and the member that entered the graph last. By then all
//!   requests of the cycle were queued and their owners were in the graph, so every edge could be read, and
//!   the search from this member finds the cycle. An edge to an owner that is added later, without a wait
//!   beginning, comes only from a lock given to an owner on account of an implicit lock it had, or one by a
//!   range: then the search is started for it (`LockManager::convert_implicit`, `LockSys::acquire`). The
//!   edges that an upgrade adds by going before others lead to its owner, which begins to wait itself. A gap
//!   lock that is taken over a key which others wait to insert adds edges to its owner, which is running;
//!   when it waits, it searches.
//! - **DEAD-2** (none is invented) The queues are read one after the other, so a cycle that was found may
//!   never have existed as a whole. It is checked again, edge by edge, with the same waits going on. While
//!   it waits an owner releases nothing, so an edge between two owners that waited all the time existed all
//!   the time since it was first seen: at the moment between the two passes all edges existed together. What
//!   is left is that a member's time ran out or KILL reached it in that moment.
//! - **DEAD-3** While a wait is in the graph its queue exists: the owner leaves the graph before it takes its
//!   request back, and after it was granted holds the lock.
//! - **DEAD-4** A victim is woken with `Victim` only while it waits, and gives up only if it was not granted
//!   meanwhile.
//! - **DEAD-5** While detection is off nobody is told to give up. Turning it on searches from every wait,
//!   under the graph's mutex, so that with DEAD-1 no cycle is missed that came about before.
//!
//! Mutex order: `describing`, graph, then a shard of queues, a shard of gaps, an owner's `Shared`, then its
//! `WaitSlot`. A thread that holds a shard's mutex never takes the graph's.
//!
//! A search reads each queue it meets once from the back (queue.rs, `blockers`): with a thousand waiters for
//! one hot row, a new one costs a pass over a thousand waiters, not over a million pairs.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use super::manager::LockSys;
use super::mode::TableMode;
use super::owner::{LockRef, Owner, OwnerKey, WaitSeq, WaitState};
use super::shard::LOCK_BYTES;
use super::shown::{LockAmount, LockOwner};
use super::status::{DeadlockMember, DeadlockReport};
use crate::base::IndexId;

/// What a wait is for.
#[derive(Clone)]
pub(super) enum Wanted {
    /// A mode in a queue.
    Lock { at: LockRef, mode: TableMode },
    /// To put a key into an index, where others hold gap locks (gap.rs).
    Insert { index: IndexId, key: Arc<[u8]> },
}

/// A wait that goes on.
pub(super) struct Wait {
    pub owner: Arc<Owner>,
    pub wanted: Wanted,
    pub seq: WaitSeq,
    pub since: Instant,
    /// It was told to give up: its edges count no more.
    pub victim: bool,
}

impl Wait {
    pub fn new(owner: Arc<Owner>, wanted: Wanted, seq: WaitSeq) -> Wait {
        Wait {
            owner,
            wanted,
            seq,
            since: Instant::now(),
            victim: false,
        }
    }
}

#[derive(Default)]
pub(super) struct Graph {
    pub waits: HashMap<OwnerKey, Wait>,
    pub last_deadlock: Option<DeadlockReport>,
    /// Deadlocks whose sessions nobody has described yet, the newest `MOST_UNTOLD` of them.
    pub untold: VecDeque<DeadlockReport>,
    /// No cycle is looked for: waits in one end by their timeouts.
    pub undetected: bool,
}

/// A program that describes none keeps no more.
const MOST_UNTOLD: usize = 64;

impl LockSys {
    /// Enters a wait whose request is queued, and breaks the deadlocks it completes.
    pub fn enter_wait(&self, wait: Wait) {
        let owner = wait.owner.key;
        let mut graph = self.graph.lock();
        graph.waits.insert(owner, wait);
        self.break_deadlocks(&mut graph, owner);
    }

    /// A lock was given to an owner that may be waiting.
    pub fn search_from(&self, owner: OwnerKey) {
        let mut graph = self.graph.lock();
        if graph.waits.contains_key(&owner) {
            self.break_deadlocks(&mut graph, owner);
        }
    }

    /// DEAD-5. Cycles that have come about meanwhile are broken when it is turned on.
    pub fn set_detection(&self, on: bool) {
        let mut graph = self.graph.lock();
        if graph.undetected != on {
            return;
        }
        graph.undetected = !on;
        let waiting: Vec<OwnerKey> = graph.waits.keys().copied().collect();
        for owner in waiting {
            self.break_deadlocks(&mut graph, owner);
        }
    }

    /// Each round tells one member of a cycle to give up, so there are no more rounds than waits.
    fn break_deadlocks(&self, graph: &mut Graph, start: OwnerKey) {
        // DEAD-5
        if graph.undetected {
            return;
        }
        while let Some(cycle) = self.find_cycle(graph, start) {
            if !self.is_cycle(graph, &cycle) {
                // Somebody was granted or gave up in between; if a cycle is left, it is another one.
                continue;
            }
            let victim = choose_victim(graph, &cycle);
            let report = self.report(graph, &cycle, victim);
            let Some(wait) = graph.waits.get_mut(&victim) else {
                unreachable!("a member of the cycle is waiting");
            };
            wait.victim = true;
            if wait.owner.wake(wait.seq, WaitState::Victim) {
                if graph.untold.len() == MOST_UNTOLD {
                    graph.untold.pop_front();
                }
                graph.untold.push_back(report.clone());
                graph.last_deadlock = Some(report);
            }
            if victim == start {
                return;
            }
        }
    }

    /// Depth first from `start` along the edges until it is met again. Returns the members in the order of
    /// the waits.
    fn find_cycle(&self, graph: &Graph, start: OwnerKey) -> Option<Vec<OwnerKey>> {
        let mut came_from: HashMap<OwnerKey, OwnerKey> = HashMap::new();
        let mut to_visit = vec![start];
        while let Some(waiter) = to_visit.pop() {
            for (blocked, blocker, waits_here) in self.blockers(graph, waiter) {
                if blocker == start {
                    return Some(path(&came_from, start, blocked));
                }
                if let Entry::Vacant(vacant) = came_from.entry(blocker) {
                    vacant.insert(blocked);
                    if !waits_here {
                        to_visit.push(blocker);
                    }
                }
            }
        }
        None
    }

    fn blockers(&self, graph: &Graph, waiter: OwnerKey) -> Vec<(OwnerKey, OwnerKey, bool)> {
        // An owner that has queued a request but is not in the graph yet will search itself; one that was
        // told to give up waits no more.
        let waits = |key| graph.waits.get(&key).filter(|wait| !wait.victim);
        let Some(wait) = waits(waiter) else {
            return Vec::new();
        };
        match &wait.wanted {
            Wanted::Lock { at, .. } => {
                let shard = self.shards[at.shard as usize].lock();
                shard
                    .queue(at.slot)
                    .blockers(waiter, |key| waits(key).is_some())
            }
            Wanted::Insert { index, key } => {
                let holders = self.gaps.blockers(waiter, *index, key);
                let edge = |holder| (waiter, holder, false);
                holders.into_iter().map(edge).collect()
            }
        }
    }

    /// DEAD-2, second pass.
    fn is_cycle(&self, graph: &Graph, cycle: &[OwnerKey]) -> bool {
        let next = cycle.iter().cycle().skip(1);
        cycle.iter().zip(next).all(|(waiter, blocker)| {
            let wait = graph.waits.get(waiter);
            wait.is_some_and(|wait| match &wait.wanted {
                Wanted::Lock { at, .. } => {
                    let shard = self.shards[at.shard as usize].lock();
                    shard.queue(at.slot).is_blocked_by(*waiter, *blocker)
                }
                Wanted::Insert { index, key } => {
                    let holders = self.gaps.blockers(*waiter, *index, key);
                    holders.contains(blocker)
                }
            })
        })
    }

    fn report(&self, graph: &Graph, cycle: &[OwnerKey], victim: OwnerKey) -> DeadlockReport {
        let members = cycle.iter().filter_map(|key| {
            let wait = graph.waits.get(key)?;
            let changes = wait.owner.changes.load(Ordering::Relaxed);
            Some(DeadlockMember {
                owner: LockOwner::of(&wait.owner),
                changes,
                locks: locks_by_weight(&wait.owner, changes),
                wants: self.describe(&wait.wanted),
                victim: *key == victim,
                session: None,
            })
        });
        DeadlockReport {
            when: SystemTime::now(),
            members: members.collect(),
        }
    }
}

/// The members of the cycle that ends with `last` waiting for `start`.
fn path(came_from: &HashMap<OwnerKey, OwnerKey>, start: OwnerKey, last: OwnerKey) -> Vec<OwnerKey> {
    let mut members = vec![last];
    let mut at = last;
    while at != start {
        at = came_from[&at];
        members.push(at);
    }
    members.reverse();
    members
}

/// What an owner that waits has locked: its weight is `changes` and the locks that it got itself.
fn locks_by_weight(owner: &Owner, changes: u64) -> LockAmount {
    let weight = owner.weight.load(Ordering::Relaxed);
    let shared = owner.shared.lock();
    let records = weight.saturating_sub(changes) + shared.adopted.len() as u64;
    LockAmount {
        records,
        tables: shared.intents.len() as u64,
        gaps: 0,
        bytes: records.saturating_sub(owner.shown.implied()) * LOCK_BYTES as u64,
    }
}

/// The owner with the least to undo, of those that are not spared if there are some; among equals the one
/// that began to wait last: others wait longer already.
fn choose_victim(graph: &Graph, cycle: &[OwnerKey]) -> OwnerKey {
    let weight = |key: &OwnerKey| {
        let wait = &graph.waits[key];
        let spared = wait.owner.spared.load(Ordering::Relaxed);
        let weight = wait.owner.weight.load(Ordering::Relaxed);
        (spared, weight, std::cmp::Reverse(wait.since))
    };
    *cycle
        .iter()
        .min_by_key(|key| weight(key))
        .expect("a cycle has members")
}
