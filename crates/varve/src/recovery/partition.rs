//! A partition's redo: where it is, and what is done to apply it.
//!
//! The first who needs a page of a partition **loads** it: what is in the file is read back, all blocks at
//! the same time, and the changes of each page are put together, in the order of the log. What comes of it
//! ([`Loaded`]) is there as long as somebody is at it, and some time longer if a user needed it ([`Kept`]),
//! because others may want its neighbours. When no page of the partition lacks redo any more, its memory is
//! given back.
//!
//! - **PART-4** A partition is loaded by one thread at a time; the others that want it wait for that one. It
//!   holds the mutex of the partition, under which it takes that of the file for a moment, and waits for the
//!   disk only.

use std::collections::VecDeque;
use std::ops::{Deref, Range};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::chain::{Change, Tag};
use super::pages::{Units, unit_of};
use super::scatter::{Run, RunBlock};
use super::spill::{Spill, Spilled};
use crate::base::{Error, Lsn, PageId, Result};
use crate::io::{AlignedBuf, MappedBlock};

/// A block of changes in memory.
enum Block {
    Held(Arc<MappedBlock>),
    Read(AlignedBuf),
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Block::Held(bytes) => bytes,
            Block::Read(bytes) => bytes,
        }
    }
}

/// Where a partition's redo is.
pub struct Redo {
    /// Of each thread that read the log (PART-1).
    runs: Vec<Run>,
    /// What came of loading it, as long as somebody has it.
    loaded: Weak<Loaded>,
}

impl Redo {
    pub fn new(runs: impl Iterator<Item = Run>) -> Redo {
        Redo {
            runs: runs.collect(),
            loaded: Weak::new(),
        }
    }

    /// Sabotage: loses a block. False if there is none.
    pub fn lose_block(&mut self) -> bool {
        let lost = self.runs.iter_mut().find_map(Vec::pop);
        lost.is_some()
    }

    #[cfg(test)]
    pub fn spilled_blocks(&self) -> usize {
        let all = self.runs.iter().flatten();
        all.filter(|part| matches!(part, RunBlock::Written(_)))
            .count()
    }

    /// Memory of blocks.
    pub fn held_bytes(&self) -> usize {
        let bytes = |part: &RunBlock| match part {
            RunBlock::Held(bytes) => bytes.capacity(),
            RunBlock::Written(_) => 0,
        };
        self.runs.iter().flatten().map(bytes).sum()
    }

    /// The blocks, run by run, and how many bytes had to be read for that.
    fn read(&self, spill: &Spill) -> Result<(Vec<Block>, Vec<Range<usize>>, usize)> {
        let spilled = |part: &RunBlock| match part {
            RunBlock::Held(_) => None,
            RunBlock::Written(spilled) => Some(*spilled),
        };
        let spilled: Vec<Spilled> = self.runs.iter().flatten().filter_map(spilled).collect();
        let read = spill.read(&spilled)?;
        let bytes = read.iter().map(|bytes| bytes.len()).sum();
        let mut read = read.into_iter();
        let (mut blocks, mut runs) = (Vec::new(), Vec::new());
        for run in &self.runs {
            let begin = blocks.len();
            blocks.extend(run.iter().map(|part| match part {
                RunBlock::Held(bytes) => Block::Held(bytes.clone()),
                RunBlock::Written(_) => Block::Read(read.next().expect("one for each")),
            }));
            runs.push(begin..blocks.len());
        }
        Ok((blocks, runs, bytes))
    }
}

/// Some units of pages, and what they lack.
pub struct Partition {
    /// Ascending, as their places among all units.
    pub units: Vec<u32>,
    redo: Mutex<Redo>,
}

impl Partition {
    pub fn new(redo: Redo) -> Partition {
        Partition {
            units: Vec::new(),
            redo: Mutex::new(redo),
        }
    }

    /// Its redo, page by page (PART-4). `of` says what it is part of.
    pub fn load(&self, of: &Source<'_>) -> Result<Arc<Loaded>> {
        let mut redo = self.redo.lock();
        if let Some(loaded) = redo.loaded.upgrade() {
            return Ok(loaded);
        }
        let loaded = Arc::new(Loaded::new(&redo, &self.units, of)?);
        redo.loaded = Arc::downgrade(&loaded);
        Ok(loaded)
    }

    /// Gives its memory back, once nobody is at it any more: no page lacks anything. Returns how much that
    /// is.
    pub fn clear(&self) -> usize {
        let mut redo = self.redo.lock();
        let bytes = redo.held_bytes();
        let gone = std::mem::take(&mut redo.runs);
        drop(redo);
        // Not under the mutex: it may be much memory.
        drop(gone);
        bytes
    }

    pub fn redo(&self) -> parking_lot::MutexGuard<'_, Redo> {
        self.redo.lock()
    }
}

/// What partitions are part of.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub units: &'a Units,
    pub spill: &'a Spill,
    /// Of the log: PART-3.
    pub end: Lsn,
}

impl Source<'_> {
    fn foreign(&self) -> Error {
        (self.spill).damaged("changes of the partition's pages", "one of another page")
    }
}

/// Where a change is: what is behind its tag, whose page its number tells.
#[derive(Clone, Copy, Default)]
struct Place {
    start: Lsn,
    block: u32,
    at: u32,
}

/// A partition's redo, page by page.
pub struct Loaded {
    blocks: Vec<Block>,
    /// The partition's units, and how many of its pages are before each.
    units: Vec<(u32, u32)>,
    /// Where the places of each of the partition's pages begin; then their number.
    begins: Vec<u32>,
    /// Of each page in the order of the log.
    places: Vec<Place>,
    read_bytes: usize,
}

impl Loaded {
    fn new(redo: &Redo, units: &[u32], of: &Source<'_>) -> Result<Loaded> {
        let (blocks, runs, read_bytes) = redo.read(of.spill)?;
        let mut pages = 0;
        let unit = |at: &u32| {
            let before = pages;
            pages += of.units.all()[*at as usize].len();
            (*at, before)
        };
        let units: Vec<(u32, u32)> = units.iter().map(unit).collect();
        let mut loaded = Loaded {
            blocks,
            units,
            begins: vec![0; pages as usize + 1],
            places: Vec::new(),
            read_bytes,
        };
        let in_order = loaded.in_order(&runs, of)?;
        loaded.put_together(in_order);
        Ok(loaded)
    }

    /// All changes in the order of the log, each with the number of its page in the partition (PART-1).
    fn in_order(&self, runs: &[Range<usize>], of: &Source<'_>) -> Result<Vec<(u32, Place)>> {
        let mut all = Vec::new();
        let mut cursors = Vec::with_capacity(runs.len());
        for blocks in runs {
            cursors.push(Cursor::new(&self.blocks, blocks.clone(), of)?);
        }
        let mut last = (u64::MAX, 0);
        loop {
            let first = cursors.iter().enumerate().min_by_key(|(_, c)| c.start());
            let Some((n, _)) = first.filter(|(_, c)| c.start() < of.end) else {
                return Ok(all);
            };
            let others = cursors.iter().enumerate().filter(|(other, _)| *other != n);
            let others = others.map(|(_, c)| c.start()).min();
            let is_next = |start: Lsn| start < of.end && others.is_none_or(|o| start <= o);
            let cursor = &mut cursors[n];
            while let Some(change) = cursor.next.filter(|change| is_next(change.start)) {
                let (no, bit) = unit_of(change.page);
                if last.0 != no {
                    last = (no, self.unit(no, of)?);
                }
                let (at, before) = self.units[last.1];
                let unit = &of.units.all()[at as usize];
                if unit.marks.lacks & bit == 0 {
                    return Err(of.foreign());
                }
                all.push((before + unit.rank(bit), cursor.place));
                cursor.advance(of)?;
            }
        }
    }

    /// Where the unit stands among the partition's.
    fn unit(&self, unit: u64, of: &Source<'_>) -> Result<usize> {
        let no = |(at, _): &(u32, u32)| of.units.all()[*at as usize].no;
        let found = self.units.binary_search_by_key(&unit, no);
        found.map_err(|_| of.foreign())
    }

    /// Sorts the places by page, by counting; those of a page stay as they are.
    fn put_together(&mut self, in_order: Vec<(u32, Place)>) {
        for (number, _) in &in_order {
            self.begins[*number as usize + 1] += 1;
        }
        for n in 1..self.begins.len() {
            self.begins[n] += self.begins[n - 1];
        }
        let mut next = self.begins.clone();
        self.places = vec![Place::default(); in_order.len()];
        for (number, place) in in_order {
            let next = &mut next[number as usize];
            self.places[*next as usize] = place;
            *next += 1;
        }
    }

    /// The changes of a page that count, in the order of the log (CHAIN-1); none if it has none here. The
    /// unit's place among all.
    pub fn changes(
        &self,
        page: PageId,
        unit: usize,
        units: &Units,
    ) -> impl Iterator<Item = Change<'_>> {
        let (_, bit) = unit_of(page);
        let found = self.units.binary_search_by_key(&(unit as u32), |u| u.0);
        let places = match found {
            Ok(n) => {
                let number = (self.units[n].1 + units.all()[unit].rank(bit)) as usize;
                let (begin, end) = (self.begins[number], self.begins[number + 1]);
                &self.places[begin as usize..end as usize]
            }
            Err(_) => &[],
        };
        let change = move |place: &Place| self.change(page, place);
        let fresh = places.iter().rposition(|place| change(place).fresh);
        let needed = &places[fresh.unwrap_or(0)..];
        needed.iter().map(change)
    }

    fn change(&self, page: PageId, &Place { start, block, at }: &Place) -> Change<'_> {
        let mut bytes = &self.blocks[block as usize][at as usize..];
        Change::decode(Tag { page, start }, &mut bytes)
            .expect("it was decoded when the partition was loaded")
    }

    /// Memory that it takes beside what is in memory anyway.
    pub fn memory_bytes(&self) -> usize {
        self.read_bytes
            + self.places.len() * size_of::<Place>()
            + self.begins.len() * size_of::<u32>()
    }
}

/// A place in a run.
struct Cursor<'a> {
    blocks: &'a [Block],
    /// Those that are still to be decoded.
    rest: Range<usize>,
    /// The rest of the block before them.
    bytes: &'a [u8],
    /// The change that was decoded last; `None` at the end.
    next: Option<Change<'a>>,
    /// Where that is.
    place: Place,
}

impl<'a> Cursor<'a> {
    fn new(blocks: &'a [Block], run: Range<usize>, of: &Source<'_>) -> Result<Cursor<'a>> {
        let mut cursor = Cursor {
            blocks,
            rest: run,
            bytes: &[],
            next: None,
            place: Place::default(),
        };
        cursor.advance(of)?;
        Ok(cursor)
    }

    /// Where the change's frame starts; at the end, behind everything.
    fn start(&self) -> Lsn {
        self.next.map_or(Lsn(u64::MAX), |change| change.start)
    }

    fn advance(&mut self, of: &Source<'_>) -> Result<()> {
        let last = self.next.take().map(|change| change.tag());
        let mut before = last.unwrap_or_default();
        while self.bytes.is_empty() {
            let Some(block) = self.rest.next() else {
                return Ok(());
            };
            (self.bytes, before) = (&self.blocks[block], Tag::default());
        }
        let cut = || of.spill.damaged("whole changes", "a cut one");
        let tag = Tag::decode(before, &mut self.bytes).ok_or_else(cut)?;
        if last.is_some_and(|last| tag.start < last.start) {
            // PART-1. In a block it can't be.
            let expected = "changes in the order of the log";
            return Err(of.spill.damaged(expected, "an earlier one"));
        }
        let block = self.rest.start - 1;
        self.place = Place {
            start: tag.start,
            block: block as u32,
            at: (self.blocks[block].len() - self.bytes.len()) as u32,
        };
        self.next = Some(Change::decode(tag, &mut self.bytes).ok_or_else(cut)?);
        Ok(())
    }
}

/// Partitions that users needed last take no more than this in any case: recovery's memory is bounded by a
/// part of the pool, and this is beside it.
const MOST_KEPT_BYTES: usize = 64 << 20;

/// Partitions that users needed last.
pub struct Kept {
    most_bytes: usize,
    /// With their numbers. The one that came first gives way first.
    loaded: Mutex<VecDeque<(usize, Arc<Loaded>)>>,
}

impl Kept {
    pub fn new(most_bytes: usize) -> Kept {
        Kept {
            most_bytes: most_bytes.min(MOST_KEPT_BYTES),
            loaded: Mutex::default(),
        }
    }

    /// Keeps it, and lets others go if they take too much. One is kept, whatever it takes.
    pub fn keep(&self, partition: usize, new: Arc<Loaded>) {
        let mut loaded = self.loaded.lock();
        loaded.push_back((partition, new));
        let mut bytes: usize = loaded.iter().map(|(_, one)| one.memory_bytes()).sum();
        let mut gone = Vec::new();
        while bytes > self.most_bytes && loaded.len() > 1 {
            let oldest = loaded.pop_front().expect("there are two");
            bytes -= oldest.1.memory_bytes();
            gone.push(oldest);
        }
        drop(loaded);
        // Not under the mutex: it may be much memory.
        drop(gone);
    }

    pub fn let_go(&self, partition: usize) {
        self.loaded.lock().retain(|one| one.0 != partition);
    }

    #[cfg(test)]
    pub fn partitions(&self) -> Vec<usize> {
        self.loaded.lock().iter().map(|one| one.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::super::pages::{LogMarks, PieceMarks};
    use super::*;
    use crate::base::{PageNo, SpaceId};
    use crate::io::{FlushMethod, IoQueue, MappedBlocks, RealDisk};
    use crate::recovery::spill::SpillWriter;

    fn page(no: u32) -> PageId {
        PageId::new(SpaceId(2), PageNo(no))
    }

    /// One of a frame of 16 bytes.
    fn change(lsn: u64, no: u32, fresh: bool) -> Change<'static> {
        Change {
            page: page(no),
            start: Lsn(lsn),
            end: Lsn(lsn + 16),
            fresh,
            ops: b"ops",
        }
    }

    fn encoded(changes: &[Change<'_>]) -> Vec<u8> {
        let (mut bytes, mut before) = (Vec::new(), Tag::default());
        for change in changes {
            change.encode_head(before, &mut bytes);
            bytes.extend_from_slice(change.ops);
            before = change.tag();
        }
        bytes
    }

    fn written(spill: &Spill, bytes: &[u8]) -> Spilled {
        let mut writer = SpillWriter::new(spill, 4096);
        let written = writer.put(bytes).unwrap();
        writer.finish().unwrap();
        written
    }

    fn held(bytes: Vec<u8>) -> RunBlock {
        let mut block = MappedBlocks::default().cut(bytes.len()).unwrap();
        block.push(&bytes);
        RunBlock::Held(Arc::new(block))
    }

    fn units(pages: &[(u32, bool)]) -> Units {
        let mut marks = PieceMarks::default();
        for (no, fresh) in pages {
            let (unit, bit) = unit_of(page(*no));
            marks.add(unit, bit, *fresh);
        }
        let mut all = LogMarks::default();
        all.add(marks.take());
        all.finish()
    }

    fn partition(runs: Vec<Run>, units: &Units) -> Partition {
        let mut partition = Partition::new(Redo::new(runs.into_iter()));
        partition.units = (0..units.all().len() as u32).collect();
        partition
    }

    /// PART-1, PART-3, CHAIN-1: the runs of two threads, whose pieces take turns, in memory and in the file.
    #[test]
    fn runs_are_merged_in_the_order_of_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let queue = Arc::new(IoQueue::one_by_one());
        let disk = Arc::new(RealDisk);
        let spill = Spill::new(disk, dir.path(), queue, FlushMethod::Direct, None).unwrap();
        let units = units(&[(1, false), (5, true), (700, false)]);
        // The first piece ends at 64, the second at 96, the third at 160; the log at 144.
        let first = encoded(&[
            change(0, 1, false),
            change(16, 5, false),
            change(32, 1, false),
        ]);
        let third = encoded(&[
            change(96, 1, false),
            change(112, 700, false),
            change(128, 5, false),
        ]);
        let beyond = encoded(&[change(144, 1, false), change(144, 900, true)]);
        let second = encoded(&[
            change(64, 5, true),
            change(64, 1, false),
            change(80, 5, false),
        ]);
        let written = written(&spill, &third);
        let runs = vec![
            vec![held(first), RunBlock::Written(written), held(beyond)],
            vec![],
            vec![held(second)],
        ];
        let of = Source {
            units: &units,
            spill: &spill,
            end: Lsn(144),
        };
        let partition = partition(runs, &units);
        let loaded = partition.load(&of).unwrap();
        for (no, expected) in [
            (1, vec![0, 32, 64, 96]),
            (5, vec![64, 80, 128]),
            (700, vec![112]),
        ] {
            let unit = units.find(unit_of(page(no)).0).unwrap();
            let found = loaded.changes(page(no), unit, &units);
            let found: Vec<u64> = found.map(|change| change.start.0).collect();
            assert_eq!(found, expected, "page {no}");
        }
        assert!(loaded.memory_bytes() > third.len());
        let again = partition.load(&of).unwrap();
        assert!(Arc::ptr_eq(&loaded, &again), "as long as somebody has it");
        drop((loaded, again));
        spill.remove().unwrap();
        assert!(partition.load(&of).is_err(), "it has to be read again");
    }

    /// PART-1 among others.
    #[test]
    fn what_is_no_run_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let queue = Arc::new(IoQueue::one_by_one());
        let disk = Arc::new(RealDisk);
        let spill = Spill::new(disk, dir.path(), queue, FlushMethod::Direct, None).unwrap();
        let units = units(&[(1, false)]);
        let of = Source {
            units: &units,
            spill: &spill,
            end: Lsn(1000),
        };
        let whole = encoded(&[change(0, 1, false), change(16, 1, false)]);
        let at = |lsn| encoded(&[change(lsn, 1, false)]);
        for (blocks, is_right) in [
            (vec![whole.clone()], true),
            (vec![whole.clone(), vec![], at(16), at(32)], true),
            (vec![at(16), at(0)], false),
            (vec![whole.clone(), vec![], at(8)], false),
            (vec![whole[..whole.len() - 1].to_vec()], false),
            (vec![whole[..1].to_vec(), whole.clone()], false),
            (vec![encoded(&[change(0, 64, false)])], false),
            (vec![encoded(&[change(0, 2, false)])], false),
        ] {
            let what = format!("{blocks:?}");
            let run = blocks.into_iter().map(held).collect();
            let loaded = partition(vec![run], &units).load(&of);
            assert_eq!(loaded.is_ok(), is_right, "{what}");
        }
    }

    /// PART-4: nobody loads what somebody is loading.
    #[test]
    fn threads_that_want_a_partition_at_once_share_what_one_loads() {
        const THREADS: usize = 4;
        let dir = tempfile::tempdir().unwrap();
        let queue = Arc::new(IoQueue::one_by_one());
        let disk = Arc::new(RealDisk);
        let spill = Spill::new(disk, dir.path(), queue, FlushMethod::Direct, None).unwrap();
        let units = units(&[(1, false)]);
        let changes: Vec<_> = (0..2000).map(|n| change(16 * n, 1, false)).collect();
        let written = written(&spill, &encoded(&changes));
        let of = Source {
            units: &units,
            spill: &spill,
            end: Lsn(1 << 20),
        };
        for _ in 0..20 {
            let partition = partition(vec![vec![RunBlock::Written(written)]], &units);
            let together = Barrier::new(THREADS);
            let load = || {
                together.wait();
                let loaded = partition.load(&of).unwrap();
                // Somebody has it until all do.
                together.wait();
                loaded
            };
            let all = thread::scope(|scope| {
                let threads = [(); THREADS].map(|()| scope.spawn(load));
                threads.map(|thread| thread.join().unwrap())
            });
            assert!(all.iter().all(|one| Arc::ptr_eq(one, &all[0])));
            let unit = units.find(unit_of(page(1)).0).unwrap();
            assert_eq!(all[0].changes(page(1), unit, &units).count(), 2000);
        }
    }

    /// MAP-4: for users about as much is kept as there may be, whatever they need.
    #[test]
    fn those_that_were_kept_longest_give_way() {
        let units = units(&[(1, false)]);
        let dir = tempfile::tempdir().unwrap();
        let queue = Arc::new(IoQueue::one_by_one());
        let disk = Arc::new(RealDisk);
        let spill = Spill::new(disk, dir.path(), queue, FlushMethod::Direct, None).unwrap();
        let of = Source {
            units: &units,
            spill: &spill,
            end: Lsn(1000),
        };
        let run = || vec![held(encoded(&[change(0, 1, false)]))];
        let load = || partition(vec![run(), run()], &units).load(&of).unwrap();
        let kept = Kept::new(2 * load().memory_bytes());
        for (n, expected) in [
            (0, vec![0]),
            (1, vec![0, 1]),
            (2, vec![1, 2]),
            (7, vec![2, 7]),
        ] {
            kept.keep(n, load());
            assert_eq!(kept.partitions(), expected);
        }
        kept.let_go(2);
        assert_eq!(kept.partitions(), [7]);
        let small = Kept::new(0);
        small.keep(1, load());
        small.keep(2, load());
        assert_eq!(small.partitions(), [2], "one, whatever it takes");
    }
}
