//! Dividing the redo among partitions while the log is read.
//!
//! A **partition** has the redo of some units of pages (`pages`), spread by a hash, so that each has about as
//! much as the others, and neighbours are together. Each thread that reads the log has for each partition a
//! **run** of changes (`chain`), which it appends to: blocks of one length, the last of them open. A full
//! block stays in memory, or is copied to the thread's writer (`spill`) when the memory is used up, and its
//! memory is used for the next one. So nothing is sorted, and the threads share nothing but a few counters
//! and the file.
//!
//! - **PART-1** The changes of a run are in the order of the log, and those of one frame are in the runs of
//!   one thread. So the order of the log is had again by merging a partition's runs by LSN (`partition`).
//! - **PART-2** The blocks that all threads have, and their writers, take no more than the memory bound, but
//!   for one change a thread that is longer than a block; and if there is hardly any memory what each thread
//!   has in any case. That is memory of the process, not only of what is in use: a block's goes back to the
//!   system with the block (IO-8), if the bound is not so low that blocks are shorter than the system's
//!   pages.
//! - **PART-3** A run may have changes from beyond the end of the log: a thread does not know that another
//!   has found it (WAL-3). They are passed over by their LSN when the runs are merged; which pages lack redo
//!   is known from pieces that are part of the log only.
//!
//! If there is no room for the file the threads throw away what they have, and take in no more.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::chain::{Change, Tag, take_apart};
use super::pages::{Marks, PieceMarks, UnitHasher, UnitNo, mix, unit_of};
use super::scan::LogSummary;
use super::spill::{Spill, SpillWriter, Spilled, WRITER_BUFFERS};
use crate::base::{Error, Lsn, PageId, Result};
use crate::io::{DIRECT_BLOCK, MappedBlock, MappedBlocks};
use crate::redo::Piece;

/// What a partition is to have, if that is less than an eighth of the memory.
const PARTITION_BYTES: u64 = 1 << 20;
const MOST_PARTITIONS: u64 = 16_384;
/// Open blocks take this part of the memory.
const OPEN_SHARE: usize = 4;
const MOST_BLOCK_BYTES: usize = 64 << 10;
/// And the buffers of what is on the way to the file this one, if that is not less than a block each.
const WRITER_SHARE: usize = 16;
const MOST_BUFFER_BYTES: usize = 1 << 20;

/// How redo is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    pub partitions: usize,
    /// If it is more than [`DIRECT_BLOCK`], a multiple of that.
    pub block_bytes: usize,
    /// Of each thread's writer.
    pub buffer_bytes: usize,
}

impl Layout {
    /// For a log of `log_bytes` that `threads` threads read.
    pub fn new(memory_bytes: usize, log_bytes: u64, threads: usize) -> Layout {
        let partition_bytes = PARTITION_BYTES.min(memory_bytes as u64 / 8).max(1);
        let wanted = (log_bytes / partition_bytes).clamp(1, MOST_PARTITIONS) as usize;
        let open = memory_bytes / OPEN_SHARE / threads;
        let least = (open / 4).clamp(1 << 10, 4 << 10);
        let block_bytes = match (open / wanted).clamp(least, MOST_BLOCK_BYTES) {
            small @ ..DIRECT_BLOCK => small,
            bytes => bytes - bytes % DIRECT_BLOCK,
        };
        let buffer = memory_bytes / WRITER_SHARE / threads / WRITER_BUFFERS;
        let buffer = buffer.clamp(block_bytes, MOST_BUFFER_BYTES);
        Layout {
            partitions: (open / block_bytes).clamp(1, wanted),
            block_bytes,
            buffer_bytes: buffer.next_multiple_of(DIRECT_BLOCK),
        }
    }

    /// Memory that a thread has in any case: all its open blocks, and its writer.
    fn thread_bytes(&self) -> usize {
        self.partitions * self.block_bytes + WRITER_BUFFERS * self.buffer_bytes
    }

    pub fn partition_of(&self, unit: UnitNo) -> usize {
        (((mix(unit) >> 32) * self.partitions as u64) >> 32) as usize
    }
}

/// A block of a run.
pub enum RunBlock {
    Held(Arc<MappedBlock>),
    Written(Spilled),
}

/// What a thread has of a partition, in the order of the log.
pub type Run = Vec<RunBlock>;

/// Pages that the log starts as zeros, and from where on their changes count: what is before it is of no use
/// (CHAIN-1).
#[derive(Default)]
pub struct Restarts(HashMap<u64, Lsn, BuildHasherDefault<UnitHasher>>);

impl Restarts {
    /// Later ones replace earlier ones.
    pub fn extend(&mut self, restarts: Vec<(PageId, Lsn)>) {
        let by_number = |(page, start): (PageId, Lsn)| (page.to_u64(), start);
        self.0.extend(restarts.into_iter().map(by_number));
    }

    pub fn of(&self, page: PageId) -> Option<Lsn> {
        self.0.get(&page.to_u64()).copied()
    }

    fn counts(&self, change: &Change<'_>) -> bool {
        (self.of(change.page)).is_none_or(|start| start <= change.start)
    }
}

/// What the threads share.
pub struct Sink {
    pub layout: Layout,
    pub spill: Spill,
    /// As far as they are known.
    restarts: Arc<Restarts>,
    memory_bytes: usize,
    /// Memory of blocks. PART-2: who adds to it and finds that it is too much takes it back.
    held: AtomicUsize,
    /// Nothing is kept any more. Told by `failed`.
    gave_up: AtomicBool,
    failed: Mutex<Option<Error>>,
}

impl Sink {
    pub fn new(spill: Spill, layout: Layout, memory_bytes: usize, restarts: Arc<Restarts>) -> Sink {
        Sink {
            layout,
            spill,
            restarts,
            memory_bytes,
            held: AtomicUsize::new(0),
            gave_up: AtomicBool::new(false),
            failed: Mutex::default(),
        }
    }

    /// Whether a block of so many bytes may be in memory.
    fn may_hold(&self, bytes: usize) -> bool {
        let fits = self.held.fetch_add(bytes, Relaxed) + bytes <= self.memory_bytes;
        if !fits {
            self.held.fetch_sub(bytes, Relaxed);
        }
        fits
    }

    /// The layout, the file, and the memory bound.
    pub fn into_parts(self) -> (Layout, Spill, usize) {
        (self.layout, self.spill, self.memory_bytes)
    }

    fn give_up(&self, why: Error) {
        self.failed.lock().get_or_insert(why);
        self.gave_up.store(true, Relaxed);
    }

    /// Why what was taken in is of no use. Asked when all threads have ended.
    pub fn failure(&self) -> Option<Error> {
        self.failed.lock().clone()
    }
}

/// What a piece of the log says.
pub struct Chunk {
    pub summary: LogSummary,
    pub marks: Vec<(UnitNo, Marks)>,
    pub end: Lsn,
    pub generation: u64,
    /// The log goes on behind it.
    pub goes_on: bool,
}

/// The last block of a run, which is being filled.
#[derive(Default)]
struct Open {
    /// Once it is used.
    block: Option<MappedBlock>,
    /// Of the last change in it.
    before: Tag,
}

impl Open {
    fn new(block: MappedBlock) -> Open {
        Open {
            block: Some(block),
            before: Tag::default(),
        }
    }

    fn room(&self) -> usize {
        self.block.as_ref().map_or(0, MappedBlock::room)
    }

    /// There is room for it. `head` is anything.
    fn add(&mut self, change: &Change<'_>, head: &mut Vec<u8>) {
        head.clear();
        change.encode_head(self.before, head);
        let block = self.block.as_mut().expect("there is room");
        block.push(head);
        block.push(change.ops);
        self.before = change.tag();
    }
}

/// One thread's part.
pub struct Scatter<'a> {
    /// `None`: nobody wants what the log says of pages.
    sink: Option<&'a Sink>,
    /// As long as there is a sink.
    writer: Option<SpillWriter<'a>>,
    /// Of each partition: the open block, and the ones before it.
    open: Vec<Open>,
    full: Vec<Run>,
    blocks: MappedBlocks,
    /// Of the change that was added last.
    head: Vec<u8>,
    marks: PieceMarks,
}

impl<'a> Scatter<'a> {
    pub fn new(sink: Option<&'a Sink>) -> Scatter<'a> {
        let partitions = sink.map_or(0, |sink| sink.layout.partitions);
        if let Some(sink) = sink {
            // All blocks will be open before long.
            sink.held.fetch_add(sink.layout.thread_bytes(), Relaxed);
        }
        Scatter {
            sink,
            writer: sink.map(|sink| SpillWriter::new(&sink.spill, sink.layout.buffer_bytes)),
            open: (0..partitions).map(|_| Open::default()).collect(),
            full: (0..partitions).map(|_| Vec::new()).collect(),
            blocks: MappedBlocks::default(),
            head: Vec::new(),
            marks: PieceMarks::default(),
        }
    }

    /// Checks the frames of a piece, and divides what they say.
    pub fn take(&mut self, piece: &Piece) -> Result<Chunk> {
        if self.sink.is_some_and(|sink| sink.gave_up.load(Relaxed)) {
            self.give_up();
        }
        let mut summary = LogSummary::default();
        let mut frames = piece.frames();
        for frame in frames.by_ref() {
            take_apart(&frame, &mut summary, |change| self.add(&change))?;
        }
        Ok(Chunk {
            summary,
            marks: self.marks.take(),
            end: frames.end(),
            generation: piece.generation,
            goes_on: frames.is_whole() && !piece.is_last,
        })
    }

    fn add(&mut self, change: &Change<'_>) {
        let Some(sink) = self.sink else {
            return;
        };
        let (unit, bit) = unit_of(change.page);
        self.marks.add(unit, bit, change.fresh);
        if !sink.restarts.counts(change) {
            return;
        }
        let partition = sink.layout.partition_of(unit);
        let open = &mut self.open[partition];
        if open.room() < change.most_bytes() {
            return self.add_to_another(sink, partition, change);
        }
        open.add(change, &mut self.head);
    }

    /// The open block is full, or there was none yet.
    fn add_to_another(&mut self, sink: &Sink, partition: usize, change: &Change<'_>) {
        let (len, block_bytes) = (change.most_bytes(), sink.layout.block_bytes);
        let (open, run) = (&mut self.open[partition], &mut self.full[partition]);
        let writer = self.writer.as_mut().expect("there is a sink");
        let done = put_away(sink, writer, open, run).and_then(|()| {
            if len > block_bytes {
                let mut alone = Open::new(self.blocks.cut(len)?);
                alone.add(change, &mut self.head);
                return put_away(sink, writer, &mut alone, run);
            }
            if open.block.is_none() {
                *open = Open::new(self.blocks.cut(block_bytes)?);
            }
            open.add(change, &mut self.head);
            Ok(())
        });
        if let Err(why) = done {
            sink.give_up(why);
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        (self.open, self.full) = (Vec::new(), Vec::new());
        (self.sink, self.writer) = (None, None);
        self.blocks = MappedBlocks::default();
    }

    /// The runs of all partitions, of which all is written that is not in memory (MAP-5); none if nobody
    /// wants them.
    pub fn finish(mut self) -> Vec<Run> {
        let written = self.writer.take().map(SpillWriter::finish);
        if let (Some(sink), Some(Err(why))) = (self.sink, written) {
            sink.give_up(why);
            self.give_up();
        }
        let mut runs = self.full;
        for (run, open) in runs.iter_mut().zip(self.open) {
            if let Some(block) = open.block.filter(|block| !block.is_empty()) {
                run.push(RunBlock::Held(Arc::new(block)));
            }
        }
        runs
    }
}

/// Puts what the open block has, if anything, behind the others of its run: in memory if there is room for
/// another block, which `open` lacks then; else the block is empty.
fn put_away(
    sink: &Sink,
    writer: &mut SpillWriter<'_>,
    open: &mut Open,
    run: &mut Run,
) -> Result<()> {
    let Some(mut block) = open.block.take_if(|block| !block.is_empty()) else {
        return Ok(());
    };
    if sink.may_hold(block.capacity()) {
        run.push(RunBlock::Held(Arc::new(block)));
        return Ok(());
    }
    run.push(RunBlock::Written(writer.put(&block)?));
    block.clear();
    *open = Open::new(block);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PART-2: open blocks and buffers leave most of the memory to full ones; and partitions are small enough
    /// to be loaded.
    #[test]
    fn layouts_fit_the_memory() {
        const MIB: u64 = 1 << 20;
        for (memory, log, threads) in [
            (4 * MIB, 100 * MIB, 2),
            (32 * MIB, 1000 * MIB, 8),
            (512 * MIB, 2500 * MIB, 2),
            (1024 * MIB, 2300 * MIB, 2),
            (128 * MIB, 1000 * MIB, 8),
            (512 * MIB, 6000 * MIB, 8),
            (16_000 * MIB, 100_000 * MIB, 8),
            (512 * MIB, 0, 2),
            (100_000, 8 * MIB, 1),
        ] {
            let what = format!("{memory} bytes for {log} bytes of log, {threads} threads");
            let layout = Layout::new(memory as usize, log, threads);
            let open = layout.partitions * layout.block_bytes * threads;
            assert!(open as u64 <= memory / 4, "{what}: {layout:?}");
            let all = layout.thread_bytes() * threads;
            assert!(all as u64 <= memory / 2, "{what}: {layout:?}");
            let partition = log / layout.partitions as u64;
            let most = (memory / 2).max(2 * PARTITION_BYTES);
            assert!(partition <= most.min(32 * MIB), "{what}: {layout:?}");
            assert!(layout.block_bytes <= MOST_BLOCK_BYTES, "{what}: {layout:?}");
            let has_pages = layout.block_bytes.is_multiple_of(DIRECT_BLOCK);
            assert!(has_pages || memory < 32 * MIB, "IO-8, {what}: {layout:?}");
        }
        // Hardly any memory: as good as it gets.
        for memory in [0, 1, 4096] {
            let layout = Layout::new(memory, 1 << 30, 8);
            assert!(layout.partitions > 0 && layout.block_bytes >= 1024);
            assert!(layout.buffer_bytes >= layout.block_bytes);
        }
    }

    #[test]
    fn units_are_spread_evenly() {
        let layout = Layout {
            partitions: 100,
            block_bytes: 4096,
            buffer_bytes: 4096,
        };
        // Neighbours, in several tablespaces.
        let mut counts = [0; 100];
        for space in 0..10 {
            (0..1000).for_each(|n| counts[layout.partition_of((space << 28) + n)] += 1);
        }
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(*least > 50 && *most < 150, "{least} to {most}");
    }
}
