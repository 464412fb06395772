//! Which pages lack redo, and which of them begin as zeros.
//!
//! Pages are kept by **units** of [`UNIT_PAGES`] that stand side by side in a tablespace: a bit for each
//! page, so that the list takes little memory whatever the number of changes, and adding to it is cheap. A
//! unit is also what is never divided between partitions (`scatter`).

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use crate::base::{PageId, PageNo, SpaceId};

/// Pages of a unit, 64 at most: a page that is changed often has much redo, which is loaded with that of all
/// others of its unit.
pub const UNIT_PAGES: u64 = 16;

/// A number of a unit: ascending as their pages are.
pub type UnitNo = u64;

/// The unit of a page, and the page's bit there.
pub fn unit_of(page: PageId) -> (UnitNo, u64) {
    let page = page.to_u64();
    (page / UNIT_PAGES, 1 << (page % UNIT_PAGES))
}

/// Spreads units evenly: the upper bits of what comes of it are good.
pub fn mix(unit: UnitNo) -> u64 {
    unit.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What the log says of the pages of a unit, a bit for each.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Marks {
    /// Lacks redo.
    pub lacks: u64,
    /// Begins as zeros: some change says so, and what is before it does not matter.
    pub fresh: u64,
}

impl Marks {
    fn add(&mut self, other: Marks) {
        self.lacks |= other.lacks;
        self.fresh |= other.fresh;
    }
}

/// For numbers that nobody chooses.
#[derive(Default)]
pub struct UnitHasher(u64);

impl Hasher for UnitHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }

    fn write_u64(&mut self, unit: u64) {
        let mixed = mix(self.0 ^ unit);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// The pages that a piece of the log changes.
#[derive(Default)]
pub struct PieceMarks(HashMap<UnitNo, Marks, BuildHasherDefault<UnitHasher>>);

impl PieceMarks {
    pub fn add(&mut self, unit: UnitNo, bit: u64, fresh: bool) {
        let fresh = if fresh { bit } else { 0 };
        self.0
            .entry(unit)
            .or_default()
            .add(Marks { lacks: bit, fresh });
    }

    /// The units that were added since the last call.
    pub fn take(&mut self) -> Vec<(UnitNo, Marks)> {
        self.0.drain().collect()
    }
}

/// The pages that the log changes.
#[derive(Default)]
pub struct LogMarks(BTreeMap<UnitNo, Marks>);

impl LogMarks {
    pub fn add(&mut self, of_piece: Vec<(UnitNo, Marks)>) {
        for (unit, marks) in of_piece {
            self.0.entry(unit).or_default().add(marks);
        }
    }

    pub fn finish(self) -> Units {
        let unit = |(no, marks)| Unit { no, marks };
        Units(self.0.into_iter().map(unit).collect())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    pub no: UnitNo,
    pub marks: Marks,
}

impl Unit {
    /// How many pages it has that lack redo.
    pub fn len(&self) -> u32 {
        self.marks.lacks.count_ones()
    }

    /// How many of these are before the one with this bit.
    pub fn rank(&self, bit: u64) -> u32 {
        (self.marks.lacks & (bit - 1)).count_ones()
    }

    /// The pages whose bits are set, ascending.
    pub fn pages(&self, mut bits: u64) -> impl Iterator<Item = PageId> + use<> {
        let first = self.no * UNIT_PAGES;
        std::iter::from_fn(move || {
            let bit = (bits != 0).then(|| bits.trailing_zeros())?;
            bits &= bits - 1;
            Some(PageId::from_u64(first + u64::from(bit)))
        })
    }

    fn space(&self) -> u64 {
        (self.no * UNIT_PAGES) >> 32
    }

    fn last_page(&self) -> PageId {
        let bit = u64::from(63 - self.marks.lacks.leading_zeros());
        PageId::from_u64(self.no * UNIT_PAGES + bit)
    }
}

/// All units with pages that lacked redo when the log was read, ascending.
pub struct Units(Vec<Unit>);

impl Units {
    pub fn all(&self) -> &[Unit] {
        &self.0
    }

    /// Where a unit stands among them.
    pub fn find(&self, unit: UnitNo) -> Option<usize> {
        self.0.binary_search_by_key(&unit, |u| u.no).ok()
    }

    /// Those of a tablespace.
    pub fn of_space(&self, space: SpaceId) -> Range<usize> {
        let (first, _) = unit_of(PageId::new(space, PageNo(0)));
        let begin = self.0.partition_point(|u| u.no < first);
        let len = self.0[begin..].partition_point(|u| u.space() == u64::from(space.0));
        begin..begin + len
    }

    /// How many pages they have that lack redo.
    pub fn pages(&self) -> u64 {
        self.0.iter().map(|u| u64::from(u.len())).sum()
    }

    /// The tablespaces, each with the last of its pages that lacks redo.
    pub fn spaces(&self) -> Vec<PageId> {
        let of_space = self.0.chunk_by(|a, b| a.space() == b.space());
        of_space
            .filter_map(|units| units.last().map(Unit::last_page))
            .collect()
    }

    pub fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Unit>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Against a list of pages.
    #[test]
    fn units_hold_exactly_the_pages_that_were_added() {
        let mut rng = SmallRng::seed_from_u64(4);
        let (mut log, mut piece) = (LogMarks::default(), PieceMarks::default());
        let mut expected = BTreeMap::new();
        for n in 0..3000 {
            let space = [0, 1, 7, u32::MAX][rng.random_range(0..4)];
            let no = [rng.random_range(0..300), u32::MAX - rng.random_range(0..9)];
            let page = PageId::new(SpaceId(space), PageNo(no[n % 2]));
            let fresh = rng.random_range(0..10) == 0;
            let (unit, bit) = unit_of(page);
            piece.add(unit, bit, fresh);
            *expected.entry(page).or_insert(false) |= fresh;
            if rng.random_range(0..100) == 0 {
                log.add(piece.take());
            }
        }
        log.add(piece.take());
        let units = log.finish();
        let pages = |bits: fn(&Marks) -> u64| -> Vec<PageId> {
            let all = units.all().iter();
            all.flat_map(|u| u.pages(bits(&u.marks))).collect()
        };
        assert!(pages(|m| m.lacks).iter().eq(expected.keys()), "ascending");
        let fresh = expected.iter().filter(|(_, fresh)| **fresh);
        assert!(pages(|m| m.fresh).iter().eq(fresh.map(|(page, _)| page)));
        assert_eq!(units.pages(), expected.len() as u64);
        let spaces: BTreeSet<SpaceId> = expected.keys().map(|page| page.space).collect();
        let last = |space: &SpaceId| {
            let of_it = expected.keys().filter(|page| page.space == *space);
            *of_it.max().expect("it has one")
        };
        assert!(units.spaces().into_iter().eq(spaces.iter().map(last)));
        for space in spaces {
            let of_it = &units.all()[units.of_space(space)];
            let found = of_it.iter().flat_map(|u| u.pages(u.marks.lacks));
            let all = expected.keys().filter(|page| page.space == space);
            assert!(found.eq(all.copied()), "{space:?}");
        }
        assert!(units.of_space(SpaceId(3)).is_empty());
        for (rank, page) in expected.keys().enumerate() {
            let (unit, bit) = unit_of(*page);
            let at = units.find(unit).expect("it was added");
            let before: u32 = units.all()[..at].iter().map(Unit::len).sum();
            assert_eq!(before + units.all()[at].rank(bit), rank as u32);
        }
    }
}
