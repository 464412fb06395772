//! What a list of transactions says of each: what it tells of itself, and what it has locked.
//!
//! A transaction pays a plain store for what only it knows. Its locks are counted when somebody asks.
//!
//! - **SHOWN-1** An owner is on the list from `Shown::begin` to `Shown::end`: spare ones, which wait for
//!   their next transaction, are not.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use super::deadlock::Wanted;
use super::manager::{LockManager, LockSys, Registry, TrxLocks};
use super::mode::TableMode;
use super::owner::{Owner, OwnerKey};
use super::shard::{LOCK_BYTES, Target};
use super::status::LockDescription;
use crate::base::{TrxId, TrxNo};

/// What a transaction tells of itself. Its thread stores, whoever lists transactions loads, all Relaxed:
/// nothing depends on it, and a list may be wrong about what changes while it is made.
#[derive(Default)]
pub struct Shown {
    /// Tells the transaction from all others of the process; 0: there is none.
    number: AtomicU64,
    session: AtomicU64,
    isolation: AtomicU8,
    /// The number of its open read view; 0: it has none.
    view: AtomicU64,
    rolls_back: AtomicBool,
    /// Locks of records that it has without an entry in the lock table, having had one (range.rs).
    implied: AtomicU64,
}

impl Shown {
    pub fn implied(&self) -> u64 {
        self.implied.load(Ordering::Relaxed)
    }

    pub fn set_implied(&self, locks: u64) {
        self.implied.store(locks, Ordering::Relaxed);
    }

    /// SHOWN-1
    pub fn begin(&self, number: u64, isolation: u8) {
        self.number.store(number, Ordering::Relaxed);
        self.isolation.store(isolation, Ordering::Relaxed);
    }

    /// SHOWN-1
    pub fn end(&self) {
        self.number.store(0, Ordering::Relaxed);
        self.session.store(0, Ordering::Relaxed);
        self.rolls_back.store(false, Ordering::Relaxed);
    }

    pub fn set_session(&self, session: u64) {
        self.session.store(session, Ordering::Relaxed);
    }

    pub fn set_isolation(&self, isolation: u8) {
        self.isolation.store(isolation, Ordering::Relaxed);
    }

    pub fn set_view(&self, view: Option<TrxNo>) {
        self.view
            .store(view.map_or(0, |no| no.0), Ordering::Relaxed);
    }

    pub fn set_rolls_back(&self) {
        self.rolls_back.store(true, Ordering::Relaxed);
    }
}

/// How much an owner has locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockAmount {
    pub records: u64,
    /// Intentions that nobody disputes among them.
    pub tables: u64,
    /// Indexes in which it has gap locks.
    pub gaps: u64,
    /// Memory of records and gaps, about.
    pub bytes: u64,
}

impl LockAmount {
    /// Locks of each kind together.
    pub fn count(&self) -> u64 {
        self.records + self.tables + self.gaps
    }
}

/// Who has or wants a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockOwner {
    /// As in `Shown::begin`.
    pub number: u64,
    /// `None`: it has written nothing.
    pub trx: Option<TrxId>,
    /// Whose it is, as its user has said; 0: nobody's.
    pub session: u64,
}

impl LockOwner {
    pub(super) fn of(owner: &Owner) -> LockOwner {
        LockOwner {
            number: owner.shown.number.load(Ordering::Relaxed),
            trx: owner.trx(),
            session: owner.shown.session.load(Ordering::Relaxed),
        }
    }
}

/// A transaction on the list.
#[derive(Clone, Debug)]
pub struct ShownTransaction {
    pub owner: LockOwner,
    pub isolation: u8,
    pub view: Option<TrxNo>,
    pub rolls_back: bool,
    /// Undo records that it has written.
    pub changes: u64,
    pub locks: LockAmount,
    /// What it waits for, and since when.
    pub waits: Option<(LockDescription, Duration)>,
}

impl LockManager {
    /// All transactions, in the order of their numbers. Not one instant's: takes every mutex of the lock
    /// table once, one after the other.
    pub fn transactions(&self) -> Vec<ShownTransaction> {
        let inner = &self.inner;
        let amounts = inner.amounts();
        let waits = inner.waits_by_owner();
        let mut all = Vec::new();
        for registry in inner.owners() {
            let registry = registry.lock();
            let running = registry.values().map(|owner| (LockOwner::of(owner), owner));
            for (owner, of) in running.filter(|(owner, _)| owner.number != 0) {
                let mut locks = amounts.get(&of.key).copied().unwrap_or_default();
                locks.tables += of.shared.lock().intents.len() as u64;
                locks.records += of.shown.implied();
                let view = of.shown.view.load(Ordering::Relaxed);
                all.push(ShownTransaction {
                    owner,
                    isolation: of.shown.isolation.load(Ordering::Relaxed),
                    view: (view != 0).then_some(TrxNo(view)),
                    rolls_back: of.shown.rolls_back.load(Ordering::Relaxed),
                    changes: of.changes.load(Ordering::Relaxed),
                    locks,
                    waits: waits.get(&of.key).cloned(),
                });
            }
        }
        all.sort_unstable_by_key(|shown| shown.owner.number);
        all
    }
}

impl LockManager {
    /// The transaction that has this read view open. Takes the mutexes of the registries only.
    pub fn owner_of_view(&self, view: TrxNo) -> Option<LockOwner> {
        let has_it = |owner: &&Arc<Owner>| {
            let shown = &owner.shown;
            shown.view.load(Ordering::Relaxed) == view.0
                && shown.number.load(Ordering::Relaxed) != 0
        };
        let in_registry = |registry: &Registry<OwnerKey>| {
            let registry = registry.lock();
            registry
                .values()
                .find(has_it)
                .map(|owner| LockOwner::of(owner))
        };
        self.inner.owners().iter().find_map(in_registry)
    }
}

impl LockSys {
    fn amounts(&self) -> HashMap<OwnerKey, LockAmount> {
        let mut amounts: HashMap<OwnerKey, LockAmount> = HashMap::new();
        for shard in &self.shards {
            for (target, queue) in shard.lock().iter() {
                for grant in queue.grants() {
                    let amount = amounts.entry(grant.owner).or_default();
                    match target {
                        Target::Record(..) => amount.records += 1,
                        Target::Table(_) => amount.tables += 1,
                    }
                    amount.bytes += LOCK_BYTES as u64;
                }
            }
        }
        self.gaps.each_holder(|owner, bytes| {
            let amount = amounts.entry(owner).or_default();
            amount.gaps += 1;
            amount.bytes += bytes as u64;
        });
        amounts
    }

    fn waits_by_owner(&self) -> HashMap<OwnerKey, (LockDescription, Duration)> {
        let graph = self.graph.lock();
        let described = graph.waits.iter().map(|(key, wait)| {
            let wanted = self.describe(&wait.wanted);
            (*key, (wanted, wait.since.elapsed()))
        });
        described.collect()
    }

    /// Who is in the way of a wait, with the mode that is: those that hold what it waits for, and if it waits
    /// only for its turn, those before it.
    pub(super) fn in_the_way(
        &self,
        waiter: OwnerKey,
        wanted: &Wanted,
    ) -> Vec<(LockOwner, TableMode)> {
        let blockers = match wanted {
            Wanted::Lock { at, mode } => {
                let shard = self.shards[at.shard as usize].lock();
                shard.queue(at.slot).in_the_way(waiter, *mode)
            }
            // Gap locks get along: they keep out what is to be inserted, whatever they are called.
            Wanted::Insert { index, key } => {
                let blockers = self.gaps.blockers(waiter, *index, key);
                let shared = |key| (key, TableMode::Shared);
                blockers.into_iter().map(shared).collect()
            }
        };
        let known = |(key, mode)| Some((self.owner_of(key)?, mode));
        blockers.into_iter().filter_map(known).collect()
    }
}

impl TrxLocks {
    #[inline]
    pub fn shown(&self) -> &Shown {
        &self.owner.shown
    }
}
