//! The straggler map: the states of unfinished ids that the ring has no room for any more (a writer that
//! lives while a million other ids are drawn), and of transactions that recovery found unfinished.
//!
//! Invariants:
//! - **STRAG-1** An id enters the map before its ring word says so, and before `low` passes it.
//! - **STRAG-2** `[first, last]` covers the map: an id outside of it is not in the map. They are changed
//!   with the map, under its write lock; `first` and `last` are stored with Release and loaded with Acquire.
//! - **STRAG-3** An id leaves the map only when it is finished, and after every open view that does not see
//!   it got it on its own list (`TxnSys::settle`).
//!
//! A reader takes the map's lock in shared mode, sharded by thread, and only for an id between `first` and
//! `last` or one that has left the ring: rare. The owner of an id changes its state under the shared lock too
//! (a store in the entry's word); only entering and leaving take the lock exclusively, which only the holder
//! of the upkeep mutex and `adopt` do. No latch is held, nothing here can fail.

use std::collections::BTreeMap;

use super::ring::IdState;
use crate::base::sync::{AtomicU64, Ordering, ReadMostly};

/// Bits of the state's code in an entry's word; the number is above.
const CODE_BITS: u32 = 3;

pub(super) struct Stragglers {
    map: ReadMostly<BTreeMap<u64, AtomicU64>>,
    /// The smallest id in the map, `u64::MAX` when it is empty.
    first: AtomicU64,
    /// The largest id in the map, 0 when it is empty.
    last: AtomicU64,
}

fn pack(state: IdState) -> u64 {
    let (code, number) = state.to_parts();
    number << CODE_BITS | code
}

fn unpack(word: u64) -> IdState {
    IdState::from_parts(word & ((1 << CODE_BITS) - 1), word >> CODE_BITS)
}

impl Stragglers {
    pub fn new() -> Stragglers {
        Stragglers {
            map: ReadMostly::new(BTreeMap::new()),
            first: AtomicU64::new(u64::MAX),
            last: AtomicU64::new(0),
        }
    }

    /// `(first, last)`; an id outside is not in the map. `first` is loaded first: each bound is then at least
    /// as new as anything its reader had seen before, and an id that left in between has a number below what
    /// the reader's next load of the counter will return (view.rs).
    pub fn bounds(&self) -> (u64, u64) {
        let first = self.first.load(Ordering::Acquire);
        let last = self.last.load(Ordering::Acquire);
        (first, last)
    }

    pub fn get(&self, id: u64) -> Option<IdState> {
        // Acquire: a thread that reads COMMITTED sees what the committer did before.
        let map = self.map.read();
        map.get(&id)
            .map(|word| unpack(word.load(Ordering::Acquire)))
    }

    /// Sets the state of an id that is in the map. The caller is its owner (or upkeep, before the owner
    /// knows).
    pub fn set(&self, id: u64, state: IdState) {
        let map = self.map.read();
        let Some(word) = map.get(&id) else {
            unreachable!("id {id} is neither in the ring nor a straggler");
        };
        word.store(pack(state), Ordering::Release);
    }

    pub fn insert(&self, entries: &[(u64, IdState)]) {
        if entries.is_empty() {
            return;
        }
        let mut map = self.map.write();
        for &(id, state) in entries {
            let old = map.insert(id, AtomicU64::new(pack(state)));
            assert!(old.is_none(), "id {id} is a straggler already");
        }
        self.publish_bounds(&map);
    }

    pub fn remove(&self, ids: &[u64]) {
        if ids.is_empty() {
            return;
        }
        let mut map = self.map.write();
        for id in ids {
            map.remove(id);
        }
        self.publish_bounds(&map);
    }

    fn publish_bounds(&self, map: &BTreeMap<u64, AtomicU64>) {
        let first = map.first_key_value().map_or(u64::MAX, |(id, _)| *id);
        let last = map.last_key_value().map_or(0, |(id, _)| *id);
        self.first.store(first, Ordering::Release);
        self.last.store(last, Ordering::Release);
    }

    pub fn list(&self) -> Vec<(u64, IdState)> {
        let map = self.map.read();
        map.iter()
            .map(|(id, word)| (*id, unpack(word.load(Ordering::Acquire))))
            .collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::TrxNo;

    /// STRAG-2.
    #[test]
    fn states_and_bounds_follow_the_map() {
        let s = Stragglers::new();
        assert_eq!(s.bounds(), (u64::MAX, 0));
        s.insert(&[(9, IdState::Active), (4, IdState::Prepared)]);
        assert_eq!(s.bounds(), (4, 9));
        let big = IdState::Committed {
            no: TrxNo((1 << 56) - 1),
        };
        s.set(9, big);
        assert_eq!(
            (s.get(9), s.get(4), s.get(5)),
            (Some(big), Some(IdState::Prepared), None)
        );
        s.remove(&[4]);
        assert_eq!(s.bounds(), (9, 9));
        s.remove(&[9]);
        assert_eq!((s.bounds(), s.get(9)), ((u64::MAX, 0), None));
    }
}
