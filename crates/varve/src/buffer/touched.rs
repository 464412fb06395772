//! What a frame remembers of the uses of its page, in one word beside the latch: a thread that latches the
//! page has that cache line anyway.
//!
//! ```text
//!  0 to  2  usage count
//!       3   the page was read ahead, and nobody has used it since
//!  4 to  7  hits that were not told to the pool's counter
//!       8   0: where one hit too many goes
//!  9 to 31  tick of the last counted use
//! ```
//!
//! A hit in the tick of the one before adds one to the word, and that is all; every sixteenth, and the first
//! of a tick, tells how many there were. All of it is statistics: relaxed, and an update that is lost between
//! a load and a store does no harm.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A counted use buys a page this many rounds of the clock, and it can save up so many at most.
const USE_WORTH: u32 = 2;
const MAX_USAGE: u32 = 4;

/// So many ticks a page that was read ahead waits for its first use.
const PATIENCE_AHEAD: u32 = 4;

const USAGE: u32 = 7;
const UNUSED_AHEAD: u32 = 1 << 3;
const ONE_HIT: u32 = 1 << 4;
const HITS: u32 = 15 * ONE_HIT;
const ONE_TICK: u32 = 1 << 9;
const TICKS: u32 = !(ONE_TICK - 1);

/// A moment, as it stands in the word. Ticks wrap: a page that nobody has used for 2^23 of them looks
/// younger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tick(u32);

/// What time it is.
pub(super) struct Clock(AtomicU32);

impl Clock {
    pub fn new() -> Clock {
        Clock(AtomicU32::new(ONE_TICK))
    }

    #[inline]
    pub fn now(&self) -> Tick {
        Tick(self.0.load(Relaxed))
    }

    pub fn tick(&self) {
        self.0.fetch_add(ONE_TICK, Relaxed);
    }
}

pub(super) struct Touched(AtomicU32);

impl Touched {
    pub const fn new() -> Touched {
        Touched(AtomicU32::new(0))
    }

    /// Somebody has latched the page: counts a hit. False if it has to be `hit_telling`; then nothing was
    /// done.
    #[inline]
    #[must_use]
    pub fn hit(&self, now: Tick) -> bool {
        let next = self.0.load(Relaxed).wrapping_add(ONE_HIT);
        // The tick, and the bit below it.
        let is_all = next & !(ONE_TICK / 2 - 1) == now.0;
        if is_all {
            self.0.store(next, Relaxed);
        }
        is_all
    }

    /// Counts a hit, and a use, at most one per tick: a cursor that latches the same page a hundred times in
    /// a row has used it once. Returns how many hits are to be told.
    #[must_use]
    pub fn hit_telling(&self, now: Tick) -> u32 {
        let seen = self.0.load(Relaxed);
        self.0.store(used(seen & !HITS, now), Relaxed);
        (seen & HITS) / ONE_HIT + 1
    }

    /// Somebody has used the page without its latch: counts a use, and no hit. Mostly it only reads.
    #[inline]
    pub fn touch(&self, now: Tick) {
        let seen = self.0.load(Relaxed);
        if seen & TICKS != now.0 {
            self.0.store(used(seen, now), Relaxed);
        }
    }

    /// A page was just put in: no use counted yet, so a page that is read once and never again is the first
    /// to go.
    pub fn start(&self, now: Tick) {
        self.0.store(now.0, Relaxed);
    }

    /// A page is being put in that nobody needs yet. Its first use will count for nothing: the tick is an
    /// older one, so that it is seen.
    pub fn start_ahead(&self, now: Tick) {
        let before = now.0.wrapping_sub(ONE_TICK);
        self.0.store(before | UNUSED_AHEAD, Relaxed);
    }

    /// A page that was not used again since it was put in, or read ahead, has had its chance.
    pub fn is_done(&self, now: Tick) -> bool {
        let patience = match self.is_unused_ahead() {
            true => PATIENCE_AHEAD,
            false => 1,
        };
        self.idle_ticks(now) >= patience
    }

    /// The page is as good as one that was used again.
    pub fn trust(&self) {
        let seen = self.0.load(Relaxed);
        self.0.store(seen & !USAGE | USE_WORTH, Relaxed);
    }

    pub fn is_unused_ahead(&self) -> bool {
        self.0.load(Relaxed) & UNUSED_AHEAD != 0
    }

    /// Ticks since the last counted use, or since the page came.
    pub fn idle_ticks(&self, now: Tick) -> u32 {
        now.0.wrapping_sub(self.0.load(Relaxed) & TICKS) / ONE_TICK
    }

    pub fn usage(&self) -> u32 {
        self.0.load(Relaxed) & USAGE
    }

    /// The clock hand passes: one life less. True if there was none left.
    pub fn age(&self) -> bool {
        let seen = self.0.load(Relaxed);
        if seen & USAGE == 0 {
            return true;
        }
        self.0.store(seen - 1, Relaxed);
        false
    }

    /// The page goes. Returns how many hits are to be told.
    #[must_use]
    pub fn end(&self) -> u32 {
        let seen = self.0.load(Relaxed);
        self.0.store(seen & !HITS, Relaxed);
        (seen & HITS) / ONE_HIT
    }
}

/// The word after a use in this tick, or in the one that is in it already.
fn used(seen: u32, now: Tick) -> u32 {
    let usage = match seen & UNUSED_AHEAD {
        _ if seen & TICKS == now.0 => seen & USAGE,
        0 => ((seen & USAGE) + USE_WORTH).min(MAX_USAGE),
        _ => seen & USAGE,
    };
    now.0 | seen & HITS | usage
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tick: u32) -> Tick {
        Tick(tick.wrapping_mul(ONE_TICK))
    }

    /// How many hits it tells.
    fn hit(touched: &Touched, now: Tick) -> u32 {
        match touched.hit(now) {
            true => 0,
            false => touched.hit_telling(now),
        }
    }

    /// Every hit is told once, when the tick changes, the sixteenth comes, or the page goes; also where ticks
    /// wrap.
    #[test]
    fn hits_are_told() {
        for first in [1, 7, (1 << 23) - 2] {
            let touched = Touched::new();
            touched.start(at(first));
            let mut told = Vec::new();
            let ticks = [(0, 15), (0, 16), (1, 1), (2, 40), (4, 3)];
            for (tick, hits) in ticks {
                let one = |_| hit(&touched, at(first.wrapping_add(tick)));
                told.push((0..hits).map(one).sum::<u32>());
            }
            assert_eq!(told, [0, 16, 16, 33, 8], "from {first}");
            assert_eq!(touched.end(), 2);
            assert_eq!(touched.end(), 0);
        }
    }

    #[test]
    fn a_use_counts_once_a_tick() {
        let touched = Touched::new();
        touched.start(at(5));
        let mut usage = Vec::new();
        for tick in [5, 5, 6, 6, 7, 8] {
            // With a latch or without is all the same, and both together.
            hit(&touched, at(tick));
            touched.touch(at(tick));
            usage.push(touched.usage());
        }
        assert_eq!(usage, [0, 0, 2, 2, 4, 4]);
        assert_eq!(
            [touched.idle_ticks(at(8)), touched.idle_ticks(at(11))],
            [0, 3]
        );
        let aged: Vec<_> = (0..5).map(|_| touched.age()).collect();
        assert_eq!(aged, [false, false, false, false, true]);
        for _ in 0..40 {
            hit(&touched, at(8));
        }
        assert_eq!(touched.usage(), 0, "hits are no uses");
    }

    #[test]
    fn the_first_use_of_a_page_read_ahead_counts_for_nothing() {
        for now in [0, 1, 1000] {
            let touched = Touched::new();
            touched.start_ahead(at(now));
            assert!(touched.is_unused_ahead() && touched.age());
            assert_eq!(hit(&touched, at(now)), 1);
            assert!(!touched.is_unused_ahead());
            assert_eq!(touched.usage(), 0);
            assert_eq!(hit(&touched, at(now + 1)), 1);
            assert_eq!(touched.usage(), 2);
        }
    }
}
