//! Standstills of purge: there is history, but a read view or an error keeps purge from going on. Short ones
//! are the order of the day, since every statement has a view; only those that last are counted.

use std::time::{Duration, Instant};

use crate::txn::Counters;

/// From when on it is a standstill.
const SHORTEST: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Standstill {
    /// Since when nothing could be done.
    since: Option<Instant>,
    is_counted: bool,
}

impl Standstill {
    /// To be told after each round of purge: whether it has left history and done nothing. Returns whether
    /// this is a standstill.
    pub fn note(&mut self, counters: &Counters, is_at_rest: bool, now: Instant) -> bool {
        if !is_at_rest {
            self.since = None;
            if std::mem::take(&mut self.is_counted) {
                Counters::add(&counters.purge_resume_count, 1);
            }
            return false;
        }
        let since = *self.since.get_or_insert(now);
        if !self.is_counted && now - since >= SHORTEST {
            self.is_counted = true;
            Counters::add(&counters.purge_stop_count, 1);
        }
        self.is_counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lasts_is_counted_and_once() {
        let (counters, mut standstill) = (Counters::default(), Standstill::default());
        let begun = Instant::now();
        let mut at = |ms, is_at_rest| {
            let is_one = standstill.note(&counters, is_at_rest, begun + Duration::from_millis(ms));
            let counts = [&counters.purge_stop_count, &counters.purge_resume_count];
            let counts = counts.map(|c| c.get());
            assert_eq!(is_one, counts[0] > counts[1]);
            counts
        };
        assert_eq!(at(0, true), [0, 0]);
        assert_eq!(at(900, true), [0, 0]);
        assert_eq!(at(950, false), [0, 0]);
        assert_eq!(at(1500, true), [0, 0]);
        assert_eq!(at(2600, true), [1, 0]);
        assert_eq!(at(9000, true), [1, 0]);
        assert_eq!(at(9001, false), [1, 1]);
        assert_eq!(at(9002, false), [1, 1]);
    }
}
