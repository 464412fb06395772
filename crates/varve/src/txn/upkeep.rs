//! Upkeep of the ring and of the straggler map: what keeps memory bounded however long a writer or a view
//! lives.
//!
//! - `retire`: before the ids of a segment are reused, its unfinished ids move to the straggler map, `low`
//!   passes it, and each open view that could ask about an id of it gets the few finished ones that it does
//!   not see as a list.
//! - `settle`: a straggler that has finished leaves the map; each open view that does not see it gets it on
//!   its list.
//!
//! Both run under the upkeep mutex, which is a leaf that is only ever tried, except at start: nobody waits
//! for it, and its holder waits only for threads that are between drawing an id and marking it. Nothing here
//! can fail. The proofs are in txn/mod.rs.

use super::ring::{IdState, Word};
use super::sys::TxnSys;
use super::view::Slot;
use crate::base::sync::{Ordering, yield_now};

/// The upkeep mutex guards the right to enter and leave the straggler map and to raise `usable_end`, and what
/// was done so far, for tests.
#[derive(Default)]
pub(super) struct Upkeep {
    /// Ids that entered the straggler map from the ring.
    moved: u64,
    /// Ids that views got on their lists.
    doubts: u64,
    /// They get none: a test of tests.
    forgets_doubts: bool,
}

impl Upkeep {
    fn hand_over(&mut self, slot: &Slot, c: u64, finished: &[(u64, u64)]) {
        let ids: Vec<_> = unseen(finished, c).collect();
        if !ids.is_empty() && !self.forgets_doubts {
            self.doubts += ids.len() as u64;
            slot.hand_over(c, ids.into_iter());
        }
    }
}

impl TxnSys {
    /// Retires segments until `id` is usable, unless another thread is at it.
    pub(super) fn retire_until(&self, id: u64) {
        if self.usable_end.load(Ordering::Acquire) > id {
            return;
        }
        let Some(mut alone) = self.upkeep.try_lock() else {
            return;
        };
        while self.usable_end.load(Ordering::Acquire) <= id {
            self.settle(&mut alone);
            self.retire(&mut alone);
        }
    }

    /// Called when a straggler finished. If another thread is at it, the straggler leaves with the next
    /// segment.
    pub(super) fn try_settle(&self) {
        if let Some(mut alone) = self.upkeep.try_lock() {
            self.settle(&mut alone);
        }
    }

    /// How many ids have entered the straggler map from the ring, and how many views have got on their lists.
    #[cfg(feature = "internals")]
    pub fn kept_beside_the_ring(&self) -> (u64, u64) {
        let upkeep = self.upkeep.lock();
        (upkeep.moved, upkeep.doubts)
    }

    /// From now on views get no lists (VIEW-3): a test of tests.
    pub fn forget_doubts(&self) {
        self.upkeep.lock().forgets_doubts = true;
    }

    fn retire(&self, alone: &mut Upkeep) {
        let ids = &self.ids;
        let usable_end = self.usable_end.load(Ordering::Acquire);
        let end = usable_end + self.segment_len - ids.ring.len();
        let start = (end - self.segment_len).max(ids.first);
        alone.moved += self.move_unfinished(start, end);
        ids.low.fetch_max(end, Ordering::SeqCst);
        // The id at `end` may have finished while `low` was below it.
        ids.advance_low();
        ids.gate.raise_retired(end);
        self.list_doubts(alone, start, end);
        self.usable_end
            .store(usable_end + self.segment_len, Ordering::Release);
    }

    /// STRAG-1: first into the map, then the word says so. Until it does, the word is what counts. Returns
    /// how many ids are there now.
    fn move_unfinished(&self, start: u64, end: u64) -> u64 {
        let ids = &self.ids;
        let mut entries = Vec::new();
        for id in start..end {
            loop {
                match ids.ring.get(id) {
                    Word::State(state) if state.is_unfinished() => entries.push((id, state)),
                    Word::State(_) | Word::Number => {}
                    Word::Moved => unreachable!("id {id} left the ring twice"),
                    Word::Unmarked => {
                        yield_now();
                        continue;
                    }
                }
                break;
            }
        }
        ids.stragglers.insert(&entries);
        let entered = entries.len();
        let mut finished = Vec::new();
        for (id, _) in entries {
            loop {
                let (raw, word) = ids.ring.read(id);
                let Word::State(state) = word else {
                    unreachable!("id {id} left the ring twice")
                };
                if !state.is_unfinished() {
                    finished.push(id);
                    break;
                }
                ids.stragglers.set(id, state);
                if ids.ring.change_to_moved(id, raw) {
                    break;
                }
            }
        }
        ids.stragglers.remove(&finished);
        (entered - finished.len()) as u64
    }

    /// VIEW-3 for the finished ids of a segment. The unfinished ones are in the map, which views look at
    /// first.
    fn list_doubts(&self, alone: &mut Upkeep, start: u64, end: u64) {
        let doubting: Vec<_> = self
            .slots
            .open()
            .filter(|&(_, c, low)| low < end && start < c)
            .collect();
        let Some(oldest) = doubting.iter().map(|&(_, c, _)| c).min() else {
            return;
        };
        let finished: Vec<_> = (start..end)
            .filter_map(|id| match self.ids.ring.get(id) {
                Word::State(state) => finished_at(state).map(|number| (id, number)),
                _ => None,
            })
            .filter(|&(_, number)| number >= oldest)
            .collect();
        for (slot, c, _) in doubting {
            alone.hand_over(slot, c, &finished);
        }
    }

    fn settle(&self, alone: &mut Upkeep) {
        let ids = &self.ids;
        let finished: Vec<_> = ids
            .stragglers
            .list()
            .into_iter()
            .filter_map(|(id, state)| Some((id, state, finished_at(state)?)))
            .collect();
        if finished.is_empty() {
            return;
        }
        // A view that is opening right now and has drawn a number that does not see one of them would miss
        // the list. What was rolled back needs no gate: nobody can meet its id any more but views that are
        // open already.
        let committed = finished.iter().filter_map(|(_, state, _)| match state {
            IdState::Committed { no } => Some(no.0 + 1),
            _ => None,
        });
        if let Some(limit) = committed.max() {
            ids.gate.raise_limit(limit);
        }
        let finished: Vec<_> = finished.iter().map(|&(id, _, no)| (id, no)).collect();
        for (slot, c, _) in self.slots.open() {
            alone.hand_over(slot, c, &finished);
        }
        let finished: Vec<_> = finished.iter().map(|&(id, _)| id).collect();
        ids.stragglers.remove(&finished);
    }
}

/// The number from which on views see (or no longer meet) what the finished id wrote.
fn finished_at(state: IdState) -> Option<u64> {
    match state {
        IdState::Committed { no } => Some(no.0),
        IdState::Aborted { at } => Some(at),
        _ => None,
    }
}

/// Those ids that a view with number `c` could ask about and does not see. `id >= c` is unseen by its number
/// alone.
fn unseen(finished: &[(u64, u64)], c: u64) -> impl Iterator<Item = u64> {
    finished
        .iter()
        .filter(move |&&(id, number)| id < c && c <= number)
        .map(|&(id, _)| id)
}
