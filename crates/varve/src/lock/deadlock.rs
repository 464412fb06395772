//! The deadlock search (see the module's opening for why it misses none).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::manager::{LockManager, grant_waiting};
use super::owner::{Owner, WaitState};

/// Owners looked at in one search. A waits-for graph larger than that is left to the lock wait timeout.
const MAX_OWNERS: usize = 10_000;

impl LockManager {
    /// Ends every deadlock that `searcher`, whose request was just queued, is part of.
    pub(super) fn break_deadlocks(&self, searcher: &Arc<Owner>) {
        let _serial = self.search.lock();
        while let Some(cycle) = self.find_cycle(searcher) {
            let weight = |o: &Arc<Owner>| o.weight.load(Ordering::Relaxed);
            // The searcher comes first, and `min_by_key` keeps the first of equals.
            let victim = cycle
                .iter()
                .min_by_key(|o| weight(o))
                .expect("a cycle has members")
                .clone();
            self.end_wait_of(&victim);
            if victim.id == searcher.id {
                return;
            }
        }
    }

    /// The owners that `owner` waits for.
    fn blockers(&self, owner: &Owner) -> Vec<Arc<Owner>> {
        let waiting_for = owner.waiting_for.lock().clone();
        let Some(id) = waiting_for else {
            return Vec::new();
        };
        self.with_existing(&id, |queue| queue.blockers(owner.id))
            .unwrap_or_default()
    }

    /// A cycle through `from`, depth first; `from` is its first member.
    fn find_cycle(&self, from: &Arc<Owner>) -> Option<Vec<Arc<Owner>>> {
        let mut path: Vec<(Arc<Owner>, Vec<Arc<Owner>>)> =
            vec![(from.clone(), self.blockers(from))];
        let mut seen = std::collections::HashSet::from([from.id]);
        while let Some((_, blockers)) = path.last_mut() {
            let Some(next) = blockers.pop() else {
                path.pop();
                continue;
            };
            if next.id == from.id {
                return Some(path.into_iter().map(|(owner, _)| owner).collect());
            }
            if seen.len() < MAX_OWNERS && seen.insert(next.id) {
                let blockers = self.blockers(&next);
                path.push((next, blockers));
            }
        }
        None
    }

    /// Makes `victim` fail with `Deadlock`, if it still waits.
    fn end_wait_of(&self, victim: &Arc<Owner>) {
        let waiting_for = victim.waiting_for.lock().clone();
        let Some(id) = waiting_for else { return };
        let ended = self.with_existing(&id, |queue| {
            let waits = queue.remove_waiting(victim.id);
            if waits {
                victim.finish_wait(WaitState::Victim);
                grant_waiting(queue);
            }
            waits
        });
        if ended == Some(true) {
            self.counters.deadlocks.fetch_add(1, Ordering::Relaxed);
        }
    }
}
