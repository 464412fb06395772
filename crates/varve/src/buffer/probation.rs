//! Newcomers on probation, and who is remembered after failing it: what keeps pages that pass through once
//! from driving out those that are used again and again (policy: replace.rs).
//!
//! **The queue** has the pages in the order in which they came. It is a ring of page ids and two counters;
//! a page leaves it when its turn comes, and not before. Nobody takes an entry out of the middle: one whose
//! page has gone is passed over. Where more have come than the ring has room for, as nobody has left for a
//! long time, the oldest are lost.
//!
//! **The ghosts** are pages that had to go without having been used again, remembered for as many loads as
//! the pool has frames, by a table with one place for each hash, of twice as many places as frames: a page
//! that comes back so soon is no passer-by. An entry that another one drove out is forgotten.
//!
//! This is S3-FIFO (Yang et al., SOSP 2023) with the clock for its main queue; 2Q (Johnson and Shasha, VLDB
//! 1994) has the same parts. It deviates in what counts as used: a use in a later tick than that of the
//! load.
//!
//! All of it is guesswork about pages, and nothing relies on it: relaxed throughout. Two threads that meet
//! at one place of the ring, or of the table, may lose an entry; its page is then the clock's, or a
//! stranger.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

use super::frame::NO_PAGE_ID;
use crate::base::PageId;

/// One so many-th of the frames may be on probation before its oldest give way.
const SHARE: u64 = 10;

/// In a ghost: above it the page's fingerprint, below it the loads that there had been.
const LOADS_BITS: u32 = 32;
const LOADS: u64 = (1 << LOADS_BITS) - 1;

pub(super) struct Probation {
    ring: Box<[AtomicU64]>,
    /// How many have come, and how many have left.
    came: CachePadded<AtomicU64>,
    left: CachePadded<AtomicU64>,
    ghosts: Box<[AtomicU64]>,
}

impl Probation {
    pub fn new(frames: usize) -> Probation {
        let of = |n: usize| (0..n).map(|_| AtomicU64::new(NO_PAGE_ID)).collect();
        Probation {
            ring: of(frames),
            came: CachePadded::default(),
            left: CachePadded::default(),
            ghosts: of((2 * frames).next_power_of_two()),
        }
    }

    /// How many frames it was made for.
    pub fn room(&self) -> usize {
        self.ring.len()
    }

    /// The numbers of those on probation, with those of pages that have gone meanwhile.
    fn waiting(&self) -> Range<u64> {
        let (left, came) = (self.left.load(Relaxed), self.came.load(Relaxed));
        let lost = came.saturating_sub(self.ring.len() as u64);
        left.max(lost)..came
    }

    /// How many that are.
    pub fn len(&self) -> u64 {
        let Range { start, end } = self.waiting();
        end.saturating_sub(start)
    }

    /// Whether so many are on probation that the oldest of them have to go before others, in a pool of so
    /// many frames.
    pub fn is_full(&self, frames: u64) -> bool {
        self.len() > frames / SHARE
    }

    fn place(&self, n: u64) -> &AtomicU64 {
        &self.ring[(n % self.ring.len() as u64) as usize]
    }

    pub fn push(&self, page: PageId) {
        let n = self.came.fetch_add(1, Relaxed);
        self.place(n).store(page.to_u64(), Relaxed);
    }

    /// The page whose turn it is.
    pub fn pop(&self) -> Option<PageId> {
        let n = self.waiting().next()?;
        // Of several threads one gets it, and the others look again if they want to.
        if self.left.fetch_max(n + 1, Relaxed) > n {
            return None;
        }
        // A thread that has counted a page, and not put it here yet, leaves what was here before.
        Some(self.place(n).swap(NO_PAGE_ID, Relaxed))
            .filter(|&page| page != NO_PAGE_ID)
            .map(PageId::from_u64)
    }

    /// The older half, oldest first: these will go soon.
    pub fn older_half(&self) -> impl Iterator<Item = PageId> + '_ {
        let Range { start, end } = self.waiting();
        (start..start + end.saturating_sub(start).div_ceil(2))
            .map(|n| self.place(n).load(Relaxed))
            .filter(|&page| page != NO_PAGE_ID)
            .map(PageId::from_u64)
    }

    fn ghost(&self, page: PageId) -> (&AtomicU64, u64) {
        // Fibonacci hashing: neighbours and equal page numbers of different files are spread.
        let hash = page.to_u64().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bits = self.ghosts.len().trailing_zeros();
        let place = &self.ghosts[(hash >> (64 - bits)) as usize];
        (place, hash << bits & !LOADS)
    }

    /// The page goes without having been used again, after so many loads.
    pub fn remember(&self, page: PageId, loads: u64) {
        let (place, print) = self.ghost(page);
        place.store(print | loads & LOADS, Relaxed);
    }

    /// Whether a page that comes now, after so many loads, has gone as lately as that, in a pool of so many
    /// frames.
    pub fn has_gone_lately(&self, page: PageId, loads: u64, frames: u64) -> bool {
        let (place, print) = self.ghost(page);
        let ghost = place.load(Relaxed);
        let since = (loads & LOADS).wrapping_sub(ghost & LOADS) & LOADS;
        ghost & !LOADS == print && since <= frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{PageNo, SpaceId};

    fn id(no: u32) -> PageId {
        PageId::new(SpaceId(no % 7), PageNo(no))
    }

    fn pop_all(probation: &Probation) -> Vec<PageId> {
        std::iter::from_fn(|| probation.pop()).collect()
    }

    #[test]
    fn newcomers_have_their_turn_in_order() {
        let probation = Probation::new(20);
        let mut next = 0;
        for n in [1, 2, 3, 20, 17, 20, 0] {
            let pages: Vec<_> = (next..next + n).map(id).collect();
            next += n;
            pages.iter().for_each(|&page| probation.push(page));
            assert_eq!(probation.len(), pages.len() as u64);
            assert_eq!(probation.is_full(20), n > 2);
            let older: Vec<_> = probation.older_half().collect();
            assert_eq!(older, pages[..pages.len().div_ceil(2)]);
            assert_eq!(pop_all(&probation), pages);
        }
    }

    /// Of more than there is room for the oldest are lost.
    #[test]
    fn the_ring_may_overflow() {
        let probation = Probation::new(4);
        (0..7).for_each(|no| probation.push(id(no)));
        assert_eq!(probation.len(), 4);
        assert!(probation.older_half().eq([3, 4].map(id)));
        assert_eq!(pop_all(&probation), [3, 4, 5, 6].map(id));
        assert_eq!((probation.len(), probation.pop()), (0, None));
    }

    /// For as many loads as there are frames, also where their number wraps; and nobody else is.
    #[test]
    fn who_went_is_remembered_for_a_while() {
        for then in [0, 5, LOADS - 3, LOADS + 8, 1 << 40] {
            let probation = Probation::new(64);
            probation.remember(id(9), then);
            for (since, lately) in [(0, true), (1, true), (64, true), (65, false), (1000, false)] {
                let now = then + since;
                assert_eq!(
                    probation.has_gone_lately(id(9), now, 64),
                    lately,
                    "{since} after {then}"
                );
            }
            let strangers = (0..10_000).filter(|&no| no != 9);
            let of_other_files =
                (0..1000).map(|space| PageId::new(SpaceId(100 + space), PageNo(9)));
            let mut others = strangers.map(id).chain(of_other_files);
            assert!(!others.any(|page| probation.has_gone_lately(page, then, 64)));
            assert!(
                !probation.has_gone_lately(id(9), then + 9, 8),
                "a smaller pool"
            );
        }
    }
}
