//! One locked thing: who holds it, who waits for it, and in which order they get it. No threads here; the
//! shard's mutex is held by the caller.
//!
//! Invariants:
//! - **QUEUE-1** No two owners hold conflicting modes, but for one case: an owner that asked for a row that
//!   was gone by then got the lock of a key on which another owner has inserted a row meanwhile. When that
//!   owner's implicit lock is made explicit, both hold the key; so it is with the key of a dead row in a
//!   range (range.rs), and with a lock that was given up because its row was written (WRITTEN-1). A
//!   transaction that asks again then waits for the other, although it has the mode.
//! - **QUEUE-2** A waiter is granted as soon as its mode conflicts with no other holder and with no waiter
//!   before it. So among conflicting requests the order is first come, first served, and nobody waits
//!   without a reason.
//! - **QUEUE-3** An owner that holds a mode already and asks for a stronger one stands before all that hold
//!   nothing: they would wait for it anyway, and it for them.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;

use super::mode::{ModeSet, TableMode};
use super::owner::{Owner, OwnerKey, WaitSeq};

#[derive(Clone, Copy)]
pub(super) struct Grant {
    pub owner: OwnerKey,
    pub modes: ModeSet,
}

pub(super) struct Waiter {
    pub owner: Arc<Owner>,
    pub mode: TableMode,
    pub seq: WaitSeq,
}

/// Owners to wake, after the shard's mutex is released.
pub(super) type Wakes = SmallVec<[(Arc<Owner>, WaitSeq); 2]>;

/// What came of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// The owner holds this mode or a stronger one.
    Already,
    /// The owner held nothing here before.
    New,
    /// The owner held a weaker mode before.
    Upgraded,
    Blocked,
}

#[derive(Default)]
pub(super) struct Queue {
    grants: SmallVec<[Grant; 1]>,
    /// Boxed: hardly ever there, and there may be millions of queues.
    waiting: Option<Box<Waiting>>,
}

#[derive(Default)]
struct Waiting(VecDeque<Waiter>);

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty() && self.waiting.is_none()
    }

    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    pub fn waiters(&self) -> impl DoubleEndedIterator<Item = &Waiter> + ExactSizeIterator {
        static NOBODY: VecDeque<Waiter> = VecDeque::new();
        self.waiting.as_ref().map_or(&NOBODY, |w| &w.0).iter()
    }

    pub fn held_by(&self, owner: OwnerKey) -> ModeSet {
        self.grants
            .iter()
            .find(|g| g.owner == owner)
            .map_or(ModeSet::EMPTY, |g| g.modes)
    }

    fn holders_let(&self, owner: OwnerKey, mode: TableMode) -> bool {
        self.grants
            .iter()
            .all(|g| g.owner == owner || !g.modes.conflicts_with(mode))
    }

    /// Who keeps a waiter from this mode, with a mode that does: the holders, and if none does, the waiters
    /// before it. For people.
    pub fn in_the_way(&self, waiter: OwnerKey, mode: TableMode) -> Vec<(OwnerKey, TableMode)> {
        let holders = self.grants.iter().filter(|g| g.owner != waiter);
        let found: Vec<_> = holders
            .filter_map(|g| {
                let strongest = g.modes.iter().filter(|m| m.conflicts_with(mode)).last();
                Some((g.owner, strongest?))
            })
            .collect();
        if !found.is_empty() {
            return found;
        }
        let before = self.waiters().take_while(|w| w.owner.key != waiter);
        let before = before.filter(|w| w.mode.conflicts_with(mode));
        before.map(|w| (w.owner.key, w.mode)).collect()
    }

    pub fn request(&mut self, owner: OwnerKey, mode: TableMode) -> Answer {
        if self.conflicts(owner, mode) {
            Answer::Blocked
        } else if self.held_by(owner).covers(mode) {
            Answer::Already
        } else if self.grant(owner, mode) {
            Answer::New
        } else {
            Answer::Upgraded
        }
    }

    /// A request for `mode` would have to wait.
    pub fn conflicts(&self, owner: OwnerKey, mode: TableMode) -> bool {
        // Even an owner that has the mode waits for another holder (QUEUE-1).
        let goes_first = !self.held_by(owner).is_empty();
        !self.holders_let(owner, mode)
            || !goes_first && self.waiters().any(|w| w.mode.conflicts_with(mode))
    }

    /// Adds a mode without asking: the owner has it already in another form (implicit lock, intent noted
    /// elsewhere). True if it held nothing here before.
    pub fn grant(&mut self, owner: OwnerKey, mode: TableMode) -> bool {
        if let Some(grant) = self.grants.iter_mut().find(|g| g.owner == owner) {
            grant.modes = grant.modes.with(mode);
            return false;
        }
        let modes = ModeSet::EMPTY.with(mode);
        self.grants.push(Grant { owner, modes });
        true
    }

    /// A blocked request takes its place.
    pub fn enqueue(&mut self, waiter: Waiter) {
        let holds = |queue: &Queue, key| !queue.held_by(key).is_empty();
        let place = if holds(self, waiter.owner.key) {
            let upgrades = self.waiters().take_while(|w| holds(self, w.owner.key));
            upgrades.count()
        } else {
            self.waiters().len()
        };
        let waiting = self.waiting.get_or_insert_default();
        waiting.0.insert(place, waiter);
    }

    /// Takes a request back; false if it is not waiting (any more).
    pub fn cancel(&mut self, owner: OwnerKey, wakes: &mut Wakes) -> bool {
        let place = self.waiters().position(|w| w.owner.key == owner);
        let (Some(place), Some(waiting)) = (place, &mut self.waiting) else {
            return false;
        };
        waiting.0.remove(place);
        self.grant_waiters(wakes);
        true
    }

    /// The owner gives up all its modes. Returns them.
    pub fn release(&mut self, owner: OwnerKey, wakes: &mut Wakes) -> ModeSet {
        let Some(at) = self.grants.iter().position(|g| g.owner == owner) else {
            return ModeSet::EMPTY;
        };
        let grant = self.grants.swap_remove(at);
        self.grant_waiters(wakes);
        grant.modes
    }

    /// The owner gives up one mode. Returns what is left, or `None` if it did not hold the mode.
    pub fn release_mode(
        &mut self,
        owner: OwnerKey,
        mode: TableMode,
        wakes: &mut Wakes,
    ) -> Option<ModeSet> {
        let at = self.grants.iter().position(|g| g.owner == owner)?;
        let grant = &mut self.grants[at];
        if !grant.modes.has(mode) {
            return None;
        }
        grant.modes = grant.modes.without(mode);
        let left = grant.modes;
        if left.is_empty() {
            self.grants.swap_remove(at);
        }
        self.grant_waiters(wakes);
        Some(left)
    }

    /// The owner, which has the table for itself, keeps no more than this mode.
    pub fn weaken(&mut self, owner: OwnerKey, to: TableMode, wakes: &mut Wakes) -> bool {
        let own = |g: &&mut Grant| g.owner == owner && g.modes.has(TableMode::Exclusive);
        let Some(grant) = self.grants.iter_mut().find(own) else {
            return false;
        };
        let others = grant.modes.without(TableMode::Exclusive);
        grant.modes = others.with(to);
        self.grant_waiters(wakes);
        true
    }

    /// QUEUE-2.
    fn grant_waiters(&mut self, wakes: &mut Wakes) {
        let Some(mut waiting) = self.waiting.take() else {
            return;
        };
        let mut before = ModeSet::EMPTY;
        let mut at = 0;
        while at < waiting.0.len() && !before.has(TableMode::Exclusive) {
            let Waiter { owner, mode, .. } = &waiting.0[at];
            if before.conflicts_with(*mode) || !self.holders_let(owner.key, *mode) {
                before = before.with(*mode);
                at += 1;
            } else if let Some(waiter) = waiting.0.remove(at) {
                self.grant(waiter.owner.key, waiter.mode);
                wakes.push((waiter.owner, waiter.seq));
            }
        }
        if !waiting.0.is_empty() {
            self.waiting = Some(waiting);
        }
    }

    /// For the deadlock search: every owner that `owner`, which waits here, can't go on without, directly or
    /// through waiters of this queue that `waits` knows; each as `(blocked, blocker, blocker waits in this
    /// queue)`. Those that wait here need not be looked at again: what blocks them here blocks `owner` and is
    /// in the list.
    pub fn blockers(
        &self,
        owner: OwnerKey,
        waits: impl Fn(OwnerKey) -> bool,
    ) -> Vec<(OwnerKey, OwnerKey, bool)> {
        let mut found = Vec::new();
        if !self.grants.iter().any(|g| waits(g.owner)) {
            // The way out of this queue leads through its holders, and none of them waits: no cycle passes
            // here. This is the hot row's case.
            return found;
        }
        let mut blocked: SmallVec<[(OwnerKey, TableMode); 8]> = SmallVec::new();
        for waiter in self.waiters().rev() {
            let key = waiter.owner.key;
            let conflicts = |(_, mode): &&(_, TableMode)| mode.conflicts_with(waiter.mode);
            if key == owner {
                blocked.push((key, waiter.mode));
            } else if let Some(&(behind, _)) = blocked.iter().find(conflicts)
                && waits(key)
            {
                found.push((behind, key, true));
                blocked.push((key, waiter.mode));
            }
        }
        for grant in &self.grants {
            let blocks = |(key, mode): &&(_, TableMode)| {
                *key != grant.owner && grant.modes.conflicts_with(*mode)
            };
            if let Some(&(behind, _)) = blocked.iter().find(blocks) {
                found.push((behind, grant.owner, false));
            }
        }
        found
    }

    /// `waiter` waits here, and directly for `blocker`.
    pub fn is_blocked_by(&self, waiter: OwnerKey, blocker: OwnerKey) -> bool {
        let Some(place) = self.waiters().position(|w| w.owner.key == waiter) else {
            return false;
        };
        let mode = self.waiters().nth(place).map(|w| w.mode);
        mode.is_some_and(|mode| {
            self.held_by(blocker).conflicts_with(mode)
                || self
                    .waiters()
                    .take(place)
                    .any(|w| w.owner.key == blocker && w.mode.conflicts_with(mode))
        })
    }
}
