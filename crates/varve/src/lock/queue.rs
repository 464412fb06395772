//! The requests for one row or table, and the rule by which they are granted. No threads here.

use std::sync::Arc;

use smallvec::SmallVec;

use super::TableMode;
use super::owner::Owner;

/// What a lock is on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LockId {
    pub hash: u64,
    /// Index id of a row lock, table id of a table lock.
    pub object: u64,
    /// The row's key; `None` for a table lock.
    pub key: Option<Arc<[u8]>>,
}

impl LockId {
    pub fn is(&self, object: u64, key: Option<&[u8]>) -> bool {
        self.object == object && self.key.as_deref() == key
    }
}

pub(super) struct Request {
    pub owner: Arc<Owner>,
    pub mode: TableMode,
}

/// One queue. Granted requests are in no order, waiting ones in the order in which they will be granted.
pub(super) struct Queue {
    pub id: LockId,
    pub granted: SmallVec<[Request; 2]>,
    pub waiting: Vec<Request>,
    /// Granted requests by mode: an intention lock on a busy table is granted without a look at each of them.
    counts: [u32; 4],
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    /// The owner held it before.
    Held,
    Granted,
    /// Somebody is in the way.
    Blocked,
}

impl Queue {
    pub fn new(id: LockId) -> Queue {
        Queue {
            id,
            granted: SmallVec::new(),
            waiting: Vec::new(),
            counts: [0; 4],
        }
    }

    pub fn is_empty(&self) -> bool {
        self.granted.is_empty() && self.waiting.is_empty()
    }

    fn conflicts_with_counts(&self, mode: TableMode) -> bool {
        TableMode::ALL
            .iter()
            .any(|&m| self.counts[m as usize] > 0 && !m.is_compatible(mode))
    }

    /// Whether another owner's granted request is in the way of `mode`.
    fn blocked_by_granted(&self, owner: u64, mode: TableMode) -> bool {
        self.conflicts_with_counts(mode)
            && self
                .granted
                .iter()
                .any(|r| r.owner.id != owner && !r.mode.is_compatible(mode))
    }

    /// Grants `mode` to the owner if nothing is in the way.
    pub fn ask(&mut self, owner: &Arc<Owner>, mode: TableMode) -> Asked {
        let mut held = false;
        // Asking again for an intention lock adds a request rather than look through a long queue.
        if self.id.key.is_some() || self.conflicts_with_counts(mode) || !self.waiting.is_empty() {
            for request in self.granted.iter().filter(|r| r.owner.id == owner.id) {
                if request.mode.covers(mode) {
                    return Asked::Held;
                }
                held = true;
            }
        }
        let behind = |r: &Request| r.owner.id != owner.id && !r.mode.is_compatible(mode);
        // An upgrade goes before those who wait.
        if self.blocked_by_granted(owner.id, mode) || (!held && self.waiting.iter().any(behind)) {
            return Asked::Blocked;
        }
        self.grant(owner.clone(), mode);
        Asked::Granted
    }

    fn grant(&mut self, owner: Arc<Owner>, mode: TableMode) {
        self.counts[mode as usize] += 1;
        self.granted.push(Request { owner, mode });
    }

    /// Grants `mode` whatever else is granted: for an implicit lock that becomes explicit.
    pub fn grant_implicit(&mut self, owner: &Arc<Owner>, mode: TableMode) -> bool {
        let held = self
            .granted
            .iter()
            .any(|r| r.owner.id == owner.id && r.mode.covers(mode));
        if !held {
            self.grant(owner.clone(), mode);
        }
        !held
    }

    /// Queues a request that was `Blocked`.
    pub fn enqueue(&mut self, owner: &Arc<Owner>, mode: TableMode) {
        let request = Request {
            owner: owner.clone(),
            mode,
        };
        let upgrade = self.granted.iter().any(|r| r.owner.id == owner.id);
        if !upgrade {
            self.waiting.push(request);
            return;
        }
        let is_upgrade = |r: &Request| self.granted.iter().any(|g| g.owner.id == r.owner.id);
        let at = self.waiting.iter().take_while(|r| is_upgrade(r)).count();
        self.waiting.insert(at, request);
    }

    /// Removes the owner's waiting request; `false` if it does not wait here.
    pub fn remove_waiting(&mut self, owner: u64) -> bool {
        let at = self.waiting.iter().position(|r| r.owner.id == owner);
        at.map(|at| self.waiting.remove(at)).is_some()
    }

    /// Removes everything that was granted to the owner.
    pub fn remove_granted(&mut self, owner: u64) {
        let counts = &mut self.counts;
        self.granted.retain(|r| {
            let own = r.owner.id == owner;
            counts[r.mode as usize] -= u32::from(own);
            !own
        });
    }

    /// Grants what can be granted now, in order; returns the owners, whose waits are over.
    pub fn grant_waiting(&mut self) -> SmallVec<[Arc<Owner>; 4]> {
        let mut done = SmallVec::new();
        let mut at = 0;
        while at < self.waiting.len() {
            let (owner, mode) = (self.waiting[at].owner.clone(), self.waiting[at].mode);
            let behind = |r: &Request| r.owner.id != owner.id && !r.mode.is_compatible(mode);
            if self.blocked_by_granted(owner.id, mode) || self.waiting[..at].iter().any(behind) {
                at += 1;
                continue;
            }
            self.waiting.remove(at);
            self.grant(owner.clone(), mode);
            done.push(owner);
        }
        done
    }

    /// The owners that the waiting request of `owner` waits for.
    pub fn blockers(&self, owner: u64) -> Vec<Arc<Owner>> {
        let Some(at) = self.waiting.iter().position(|r| r.owner.id == owner) else {
            return Vec::new();
        };
        let mode = self.waiting[at].mode;
        let others = self.granted.iter().chain(&self.waiting[..at]);
        others
            .filter(|r| r.owner.id != owner && !r.mode.is_compatible(mode))
            .map(|r| r.owner.clone())
            .collect()
    }

    /// Whether another owner's request, granted or waiting, is incompatible with `mode`.
    pub fn conflicts(&self, owner: u64, mode: TableMode) -> bool {
        let others = self.granted.iter().chain(&self.waiting);
        others
            .into_iter()
            .any(|r| r.owner.id != owner && !r.mode.is_compatible(mode))
    }
}
