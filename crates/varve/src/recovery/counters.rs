//! What the redo says of the counters of tables' files beyond the checkpoint (COUNTER-1, COUNTER-3).

use std::collections::BTreeMap;

use crate::base::{SpaceId, varint};

/// What a part of the log says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoggedCounters(BTreeMap<SpaceId, LoggedCounter>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LoggedCounter {
    /// It was set: what was said before does not count.
    was_set: bool,
    next: u64,
}

impl LoggedCounters {
    pub fn raise(&mut self, space: SpaceId, next: u64) {
        let was_set = false;
        self.put(space, LoggedCounter { was_set, next });
    }

    pub fn set(&mut self, space: SpaceId, next: u64) {
        let was_set = true;
        self.put(space, LoggedCounter { was_set, next });
    }

    fn put(&mut self, space: SpaceId, said: LoggedCounter) {
        let known = self.0.entry(space).or_insert(said);
        match said.was_set {
            true => *known = said,
            false => known.next = known.next.max(said.next),
        }
    }

    /// What the part behind says.
    pub fn add(&mut self, behind: LoggedCounters) {
        for (space, said) in behind.0 {
            self.put(space, said);
        }
    }

    /// What they are at least.
    pub fn values(&self) -> BTreeMap<SpaceId, u64> {
        self.0.iter().map(|(id, said)| (*id, said.next)).collect()
    }

    /// For each, by tablespace: its number, doubled, plus 1 if it was set; the value. All as varints.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (space, said) in &self.0 {
            varint::put(&mut out, u64::from(space.0) << 1 | u64::from(said.was_set));
            varint::put(&mut out, said.next);
        }
        out
    }

    pub fn decode(mut bytes: &[u8]) -> Option<LoggedCounters> {
        let mut all = LoggedCounters::default();
        while !bytes.is_empty() {
            let head = varint::take(&mut bytes)?;
            let space = SpaceId(u32::try_from(head >> 1).ok()?);
            let (was_set, next) = (head & 1 == 1, varint::take(&mut bytes)?);
            all.put(space, LoggedCounter { was_set, next });
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In whatever parts the log is read.
    #[test]
    fn a_lower_value_counts_if_it_was_set() {
        let said = [
            (1, 5, false),
            (2, 9, false),
            (1, 3, true),
            (1, 4, false),
            (2, 8, false),
        ];
        for cut in 0..=said.len() {
            let part = |said: &[(u32, u64, bool)]| {
                let mut part = LoggedCounters::default();
                for &(space, next, was_set) in said {
                    match was_set {
                        true => part.set(SpaceId(space), next),
                        false => part.raise(SpaceId(space), next),
                    }
                }
                let decoded = LoggedCounters::decode(&part.encode());
                assert_eq!(decoded.as_ref(), Some(&part));
                part
            };
            let mut all = part(&said[..cut]);
            all.add(part(&said[cut..]));
            let expected = BTreeMap::from([(SpaceId(1), 4), (SpaceId(2), 9)]);
            assert_eq!(all.values(), expected, "COUNTER-3, cut at {cut}");
        }
    }

    #[test]
    fn no_bytes_panic() {
        let mut of_two = LoggedCounters::default();
        of_two.set(SpaceId(u32::MAX), u64::MAX);
        of_two.raise(SpaceId(300), 1 << 40);
        let bytes = of_two.encode();
        for cut in 1..bytes.len() {
            assert_ne!(
                LoggedCounters::decode(&bytes[..cut]).as_ref(),
                Some(&of_two)
            );
        }
        assert_eq!(LoggedCounters::decode(&[0xff; 30]), None);
    }
}
