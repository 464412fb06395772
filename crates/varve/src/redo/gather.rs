//! How long the leader of a group commit waits for followers, from what it saw of the groups before.
//!
//! Committers in a loop come back soon after they were served. Those of the last group and those that were
//! left behind by it are expected in the next one. A wait that nobody came to is not repeated for some
//! rounds, twice as many after each further one: perhaps the expectation was wrong, perhaps only the
//! processors were busy for a moment.

use std::time::Duration;

/// A wait takes at most this part of a sync, and at most `LONGEST`.
const PART_OF_SYNC: u32 = 2;
const LONGEST: Duration = Duration::from_micros(200);
/// Shorter waits are not worth a sleep.
const SHORTEST: Duration = Duration::from_micros(20);
/// Of a group of so many, a sync is a small part of the work: it waits for nobody.
const ENOUGH: usize = 16;
/// Groups that don't wait after many waits in vain.
const MOST_ROUNDS_OFF: u32 = 32;

#[derive(Default)]
pub(super) struct Gather {
    /// Committers that should be there for the next group, its leader included.
    expected: usize,
    sync_time: Duration,
    rounds_off: u32,
    /// How many there were after the last wait in vain; 0 if somebody came to the last wait.
    last_rounds_off: u32,
    had: usize,
}

impl Gather {
    /// A group begins with `waiting` others in the queue: how many there should be, and how long to wait for
    /// them.
    pub fn followers(&mut self, waiting: usize) -> Option<(usize, Duration)> {
        let others = self.expected.saturating_sub(1).min(ENOUGH);
        let at_most = (self.sync_time / PART_OF_SYNC).min(LONGEST);
        self.rounds_off = self.rounds_off.saturating_sub(1);
        self.had = waiting;
        (others > waiting && at_most >= SHORTEST && self.rounds_off == 0)
            .then_some((others, at_most))
    }

    /// `came` others were in the queue when a wait for `wanted` ended.
    pub fn came(&mut self, came: usize, wanted: usize) {
        let in_vain = came < wanted && came <= self.had;
        self.last_rounds_off = match in_vain {
            true => (2 * self.last_rounds_off).clamp(2, MOST_ROUNDS_OFF),
            false => 0,
        };
        self.rounds_off = self.last_rounds_off;
    }

    /// A group of `served` committers ended; `left` others are in the queue.
    pub fn ended(&mut self, served: usize, left: usize) {
        self.expected = served + left;
    }

    /// A sync took so long. Slow ones count for less: they are outliers more often than not.
    pub fn synced(&mut self, took: Duration) {
        self.sync_time = match self.sync_time.is_zero() {
            true => took,
            false => (self.sync_time * 7 + took.min(self.sync_time * 4)) / 8,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_micros(300);

    #[test]
    fn who_is_alone_never_waits() {
        let mut gather = Gather::default();
        for _ in 0..10 {
            assert_eq!(gather.followers(0), None);
            gather.synced(SYNC);
            gather.ended(1, 0);
        }
    }

    #[test]
    fn two_groups_that_alternate_become_one() {
        let mut gather = Gather::default();
        gather.synced(SYNC);
        gather.ended(4, 4);
        let (others, at_most) = gather.followers(3).expect("four more are expected");
        assert_eq!((others, at_most), (7, SYNC / 2));
        gather.came(7, others);
        gather.ended(8, 0);
        assert!(gather.followers(0).is_some(), "all eight come back");
    }

    #[test]
    fn a_wait_in_vain_is_not_repeated_at_once() {
        let mut gather = Gather::default();
        gather.synced(SYNC);
        gather.ended(2, 0);
        let (others, _) = gather.followers(0).expect("one more is expected");
        gather.came(0, others);
        gather.ended(2, 0);
        assert_eq!(gather.followers(0), None);
    }

    /// One that is repeated soon does not keep groups apart for long that could be one.
    #[test]
    fn waits_in_vain_get_rarer() {
        let mut gather = Gather::default();
        gather.synced(SYNC);
        gather.ended(2, 0);
        let rounds_between = |gather: &mut Gather, came| {
            let (others, _) = gather.followers(0).expect("its time has come");
            gather.came(came, others);
            let off = (0..).take_while(|_| gather.followers(0).is_none());
            let off = off.count();
            // As before: the call that was to wait is made again.
            gather.rounds_off = 0;
            off
        };
        let off: Vec<_> = (0..7).map(|_| rounds_between(&mut gather, 0)).collect();
        assert_eq!(off, [1, 3, 7, 15, 31, 31, 31]);
        assert_eq!(rounds_between(&mut gather, 1), 0, "somebody came");
        assert_eq!(rounds_between(&mut gather, 0), 1);
    }

    #[test]
    fn a_large_group_does_not_wait() {
        let mut gather = Gather::default();
        gather.synced(SYNC);
        gather.ended(ENOUGH, 3 * ENOUGH);
        assert_eq!(gather.followers(ENOUGH), None);
        let (others, _) = gather.followers(2).expect("a small one does");
        assert_eq!(others, ENOUGH, "but not for all");
    }

    #[test]
    fn a_fast_disk_is_not_waited_for() {
        let mut gather = Gather::default();
        gather.synced(Duration::from_micros(10));
        gather.ended(4, 4);
        assert_eq!(gather.followers(3), None);
    }
}
