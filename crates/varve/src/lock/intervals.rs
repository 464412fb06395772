//! A set of keys as intervals: what one owner's gap locks cover in one index. No threads here.
//!
//! An interval contains its low bound and every key between its bounds, but not its high bound; one without a
//! high bound contains all keys from the low one on.
//!
//! - **GAP-3** The intervals of a set neither overlap nor touch: what is added to them becomes part of them.
//!   So a scan holds one interval for each unbroken stretch that it has passed, however many rows these are.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

/// What an interval takes beside its bounds: its place in the map, and what the allocator takes for the
/// bounds.
const INTERVAL_BYTES: usize = 100;

#[derive(Default)]
pub(super) struct Intervals {
    /// Where each interval ends, by where it begins. `None`: nowhere.
    ends: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Memory of all of them, about.
    bytes: usize,
}

fn bound_bytes(bound: Option<&[u8]>) -> usize {
    bound.map_or(0, <[u8]>::len)
}

/// An interval up to `high` contains everything below `other`.
fn reaches(high: Option<&[u8]>, other: Option<&[u8]>) -> bool {
    match (high, other) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(high), Some(other)) => high >= other,
    }
}

impl Intervals {
    /// Adds the keys from `low` up to `high`.
    pub fn add(&mut self, low: &[u8], high: Option<&[u8]>) {
        assert!(high.is_none_or(|high| low < high), "an empty interval");
        let mut before = 0;
        match self.end_of(low) {
            Some(end) if reaches(end.as_deref(), Some(low)) => {
                if reaches(end.as_deref(), high) {
                    return;
                }
                before = bound_bytes(end.as_deref());
                // A scan comes here with each row: the memory is used again.
                match (end, high) {
                    (Some(end), Some(high)) => {
                        end.clear();
                        end.extend_from_slice(high);
                    }
                    (end, high) => *end = high.map(<[u8]>::to_vec),
                }
            }
            _ => {
                self.ends.insert(low.to_vec(), high.map(<[u8]>::to_vec));
                self.bytes += INTERVAL_BYTES + low.len();
            }
        }
        self.bytes = self.bytes + bound_bytes(high) - before;
        self.absorb(low, high);
    }

    /// The end of the last interval that begins at or before `key`.
    fn end_of(&mut self, key: &[u8]) -> Option<&mut Option<Vec<u8>>> {
        let before = (Unbounded, Included(key));
        let last = self.ends.range_mut::<[u8], _>(before).next_back();
        last.map(|(_, end)| end)
    }

    /// The interval around `low` ends at `high` now: those that begin behind `low` and within its reach
    /// become part of it.
    fn absorb(&mut self, low: &[u8], high: Option<&[u8]>) {
        loop {
            let mut behind = self.ends.range::<[u8], _>((Excluded(low), Unbounded));
            let Some((next, _)) = behind.next() else {
                return;
            };
            if !reaches(high, Some(next.as_slice())) {
                return;
            }
            let next = next.clone();
            let Some(end) = self.ends.remove(&next) else {
                return;
            };
            self.bytes -= INTERVAL_BYTES + next.len();
            if !reaches(high, end.as_deref()) {
                // It ends beyond, so it was the last one within reach.
                self.bytes -= bound_bytes(high);
                if let Some(to) = self.end_of(low) {
                    *to = end;
                }
                return;
            }
            self.bytes -= bound_bytes(end.as_deref());
        }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        let before = (Unbounded, Included(key));
        let last = self.ends.range::<[u8], _>(before).next_back();
        last.is_some_and(|(_, end)| end.as_deref().is_none_or(|end| key < end))
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.ends.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use varve_sim::try_cases;

    use super::*;

    /// GAP-3.
    fn check_shape(set: &Intervals) {
        let mut before: Option<&Option<Vec<u8>>> = None;
        for (low, end) in &set.ends {
            assert!(end.as_ref().is_none_or(|end| low < end), "{:?}", set.ends);
            if let Some(before) = before {
                let apart = before.as_ref().is_some_and(|before| before < low);
                assert!(apart, "{:?}", set.ends);
            }
            before = Some(end);
        }
        let bytes = set
            .ends
            .iter()
            .map(|(low, end)| INTERVAL_BYTES + low.len() + bound_bytes(end.as_deref()));
        assert_eq!(set.bytes(), bytes.sum(), "{:?}", set.ends);
    }

    fn of(parts: &[(&str, &str)]) -> Intervals {
        let mut set = Intervals::default();
        for (low, high) in parts {
            let high = (*high != "∞").then_some(high.as_bytes());
            set.add(low.as_bytes(), high);
            check_shape(&set);
        }
        set
    }

    #[test]
    fn neighbours_become_one() {
        for (parts, len, inside, outside) in [
            (&[("b", "d")][..], 1, "b c cz", "a az d e"),
            (&[("b", "d"), ("d", "f")], 1, "b d e", "a f"),
            (&[("d", "f"), ("b", "d")], 1, "b d e", "a f"),
            (&[("b", "d"), ("e", "f")], 2, "b c e", "a d f"),
            (&[("b", "d"), ("e", "f"), ("d", "e")], 1, "b c d e", "a f"),
            (&[("b", "h"), ("c", "d")], 1, "b c d g", "a h"),
            (&[("c", "d"), ("f", "g"), ("b", "h")], 1, "b e g", "a h"),
            (&[("c", "d"), ("f", "k"), ("b", "h")], 1, "b e j", "a k"),
            (&[("c", "∞"), ("a", "b")], 2, "a c zzz", "b"),
            (&[("c", "∞"), ("a", "c")], 1, "a b c zzz", ""),
            (&[("c", "d"), ("e", "∞"), ("b", "∞")], 1, "b d zzz", "a"),
            (&[("", "a")], 1, " ", "a"),
        ] {
            let set = of(parts);
            assert_eq!(set.len(), len, "{parts:?}");
            for key in inside.split_whitespace() {
                assert!(set.contains(key.as_bytes()), "{key} in {parts:?}");
            }
            for key in outside.split_whitespace() {
                assert!(!set.contains(key.as_bytes()), "{key} in {parts:?}");
            }
        }
    }

    /// Key `n` of 256, in byte order; with many that differ only in their length.
    fn key(n: usize) -> Vec<u8> {
        let mut key = vec![(n / 8) as u8 + 1];
        key.extend(std::iter::repeat_n(0, n % 8));
        key
    }

    /// Against a set that has a bit for each key.
    #[test]
    fn random_intervals_are_a_set_of_keys() {
        let interval = (0..256usize, 1..13usize, any::<bool>());
        try_cases(300, vec(interval, 1..60), |intervals| {
            let mut set = Intervals::default();
            let mut model = [false; 256];
            for (low, len, is_bounded) in intervals {
                let high = (low + len).min(256);
                let bound = (high < 256 || is_bounded).then(|| key(high));
                set.add(&key(low), bound.as_deref());
                check_shape(&set);
                model[low..high].fill(true);
                for (n, inside) in model.iter().enumerate() {
                    assert_eq!(set.contains(&key(n)), *inside, "key {n}");
                }
            }
        });
    }

    #[test]
    fn a_scan_is_one_interval() {
        let mut up = Intervals::default();
        let mut down = Intervals::default();
        let bounds: Vec<_> = (0..10_000u32).map(u32::to_be_bytes).collect();
        for pair in bounds.windows(2) {
            up.add(&pair[0], Some(&pair[1]));
        }
        for pair in bounds.windows(2).rev() {
            down.add(&pair[0], Some(&pair[1]));
        }
        assert_eq!((up.len(), down.len()), (1, 1));
    }
}
