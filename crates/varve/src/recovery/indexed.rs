//! The redo of pages, frame by frame where the indexes of the log's files say it is (`index`): what a start
//! goes by until the log was read as a whole.
//!
//! A page that is loaded asks each index for the block that may have an entry of it, all at the same time,
//! and then reads the frames that these name, neighbours together and all at the same time. That is a few
//! hundred reads for a page that was changed as often, so a page costs milliseconds; but nothing has to be
//! done before the first one can be loaded.
//!
//! - **IDX-5** The indexes follow each other without a gap: the first begins at the checkpoint, each where
//!   the one before ends, and the last ends with the log. So together they know all changes of a page.
//! - **IDX-9** What an index says is checked against the log: a frame that it names has to be whole, and to
//!   change the page; and what the whole log turns out to change when it is divided has to be what the
//!   indexes said. Otherwise the indexes go, and the next start reads the log.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::chain::{self, Change, take_apart};
use super::divided::Divided;
use super::index::{Block, Index, IndexedFrame, decode_block, decrypt_block};
use super::pages::Units;
use super::scan::{Division, LogSummary};
use super::scatter::Restarts;
use crate::base::{Error, Lsn, PageId, Result};
use crate::io::{AlignedBuf, DIRECT_BLOCK, IoQueue, Read};
use crate::redo::{Fetched, GAP_BYTES, Stream};

/// Bytes of frames that are read together.
const MOST_FETCHED: u64 = 4 << 20;
/// Bytes that are counted for a frame without a neighbour, whatever its length.
const ALONE_BYTES: u64 = 2 * DIRECT_BLOCK as u64;

pub struct Indexed {
    /// In the order of the log (IDX-5).
    indexes: Vec<Index>,
    restarts: Arc<Restarts>,
    /// Up to the log's end.
    stream: Stream,
    queue: Arc<IoQueue>,
    division: Division,
}

impl Indexed {
    pub fn new(
        indexes: Vec<Index>,
        restarts: Restarts,
        stream: Stream,
        queue: Arc<IoQueue>,
        division: Division,
    ) -> Indexed {
        for pair in indexes.windows(2) {
            let (end, begin) = (pair[0].head().next, pair[1].head().first);
            assert_eq!(end, begin, "IDX-5: no gap between indexes");
        }
        Indexed {
            indexes,
            restarts: Arc::new(restarts),
            stream,
            queue,
            division,
        }
    }

    /// What indexes of parts that have no file take.
    pub fn memory_bytes(&self) -> usize {
        self.indexes.iter().map(Index::memory_bytes).sum()
    }

    /// What dividing the redo may come to take.
    pub fn most_bytes(&self) -> usize {
        self.division.memory_bytes()
    }

    /// What the indexes say of a page.
    ///
    /// # Errors
    ///
    /// `CorruptFile`: one of them is damaged.
    pub fn read(&self, page: PageId) -> Result<PageRedo<'_>> {
        let restart = self.restarts.of(page);
        let (mut places, mut reads) = (Vec::new(), Vec::new());
        for index in &self.indexes {
            let is_before = restart.is_some_and(|restart| index.head().next <= restart);
            let Some(block) = index.block_of(page).filter(|_| !is_before) else {
                continue;
            };
            if let Block::File { file, place, .. } = &block {
                reads.push(Read {
                    file: Arc::clone(file),
                    offset: place.offset,
                    into: AlignedBuf::new(place.len as usize),
                    range: 0..place.len as usize,
                });
            }
            places.push((block, index.head().file.generation));
        }
        let mut readings = self.queue.read_all(reads).into_iter();
        let mut blocks = Vec::with_capacity(places.len());
        for (block, generation) in places {
            blocks.push(match block {
                Block::Memory(bytes) => Bytes::Memory(bytes),
                Block::File { place, first, .. } => {
                    let mut bytes = readings.next().expect("one for each").wait()?;
                    bytes.truncate(place.len as usize);
                    if !place.is_whole(&bytes) {
                        return Err(self.wrong(page));
                    }
                    if let Some(cipher) = self.stream.cipher(generation) {
                        let len = decrypt_block(cipher, first, &mut bytes);
                        bytes.truncate(len.ok_or_else(|| self.wrong(page))?);
                    }
                    Bytes::Read(bytes)
                }
            });
        }
        Ok(PageRedo {
            indexed: self,
            restart,
            blocks,
        })
    }

    /// Reads the whole log, and divides it (IDX-9). Fails soon once `stop` is set.
    pub fn divide(&self, units: &Units, stop: &AtomicBool) -> Result<Divided> {
        let restarts = self.restarts.clone();
        let divided = self.division.divide(&self.stream, units, restarts, stop);
        if matches!(divided, Err(Error::CorruptFile { .. })) && !stop.load(Relaxed) {
            // The next start does not go by them.
            let paths = self.indexes.iter().filter_map(Index::path);
            paths.for_each(|path| self.division.forget(path));
        }
        divided
    }

    fn wrong(&self, page: PageId) -> Error {
        Error::CorruptFile {
            path: self.division.redo_dir(),
            expected: format!("indexes of the redo log that lead to the changes of {page}"),
            found: "others; start again, without them".into(),
        }
    }
}

enum Bytes<'a> {
    Memory(&'a [u8]),
    Read(AlignedBuf),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Memory(bytes) => bytes,
            Bytes::Read(bytes) => bytes,
        }
    }
}

/// The redo of one page: what the indexes say.
pub struct PageRedo<'a> {
    indexed: &'a Indexed,
    /// Where the log starts it as zeros for the last time.
    restart: Option<Lsn>,
    /// Of those that may know the page, in the order of the log.
    blocks: Vec<Bytes<'a>>,
}

impl PageRedo<'_> {
    /// Brings the page up to date, as `chain::apply` does.
    pub fn apply(&self, page: PageId, bytes: &mut [u8]) -> Result<Option<Lsn>> {
        let mut all = Vec::new();
        for block in &self.blocks {
            let found = decode_block(block, page).ok_or_else(|| self.indexed.wrong(page))?;
            all.extend(found);
        }
        if let Some(restart) = self.restart {
            // CHAIN-1
            all.retain(|found| start_of(found) >= restart);
        }
        if all.is_empty() {
            // MAP-1
            return Err(self.indexed.wrong(page));
        }
        let (mut first, mut rest) = (None, &all[..]);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(batch(rest));
            first = first.or(self.apply_some(page, bytes, now)?);
            rest = later;
        }
        Ok(first)
    }

    fn apply_some(
        &self,
        page: PageId,
        bytes: &mut [u8],
        some: &[IndexedFrame<'_>],
    ) -> Result<Option<Lsn>> {
        let place = |found: &IndexedFrame<'_>| match found {
            IndexedFrame::At { start, end } => Some((*start, *end)),
            IndexedFrame::Change(_) => None,
        };
        let places: Vec<_> = some.iter().filter_map(place).collect();
        let fetched = self.indexed.stream.frames(&places)?;
        let (mut changes, mut frames) = (Vec::new(), 0..);
        for found in some {
            match found {
                IndexedFrame::Change(change) => changes.push(*change),
                IndexedFrame::At { start, .. } => {
                    let n = frames.next().expect("there is no last number");
                    self.take(&fetched, n, *start, page, &mut changes)?;
                }
            }
        }
        chain::apply(bytes, page, changes.into_iter())
    }

    /// Takes the page's changes from a frame.
    fn take<'a>(
        &self,
        fetched: &'a Fetched,
        n: usize,
        start: Lsn,
        page: PageId,
        changes: &mut Vec<Change<'a>>,
    ) -> Result<()> {
        let damaged = || self.indexed.stream.damaged(start);
        let frame = fetched.frame(n).ok_or_else(damaged)?;
        let before = changes.len();
        take_apart(&frame, &mut LogSummary::default(), |change| {
            if change.page == page {
                changes.push(change);
            }
        })?;
        match changes.len() > before {
            true => Ok(()),
            // IDX-9
            false => Err(self.indexed.wrong(page)),
        }
    }
}

/// Of the frame.
fn start_of(found: &IndexedFrame<'_>) -> Lsn {
    match found {
        IndexedFrame::At { start, .. } => *start,
        IndexedFrame::Change(change) => change.start,
    }
}

/// How many of these to take together: what is read for them is bounded, and all changes of a frame are among
/// them.
fn batch(found: &[IndexedFrame<'_>]) -> usize {
    let (mut bytes, mut last) = (0, None);
    let mut behind = Lsn(0);
    let is_one_more = |found: &&IndexedFrame<'_>| {
        if let IndexedFrame::At { start, end } = found {
            // With what is between it and the one before, if both are read in one go.
            let gap = start.0.saturating_sub(behind.0);
            bytes += end.0 - start.0 + if gap <= GAP_BYTES { gap } else { ALONE_BYTES };
            behind = *end;
        }
        let start = start_of(found);
        let is_of_last = last == Some(start);
        let goes_on = bytes <= MOST_FETCHED || last.is_none() || is_of_last;
        last = Some(start);
        goes_on
    };
    found.iter().take_while(is_one_more).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{PageNo, SpaceId};

    /// Whatever the frames are like, a batch ends in time, and not within a frame.
    #[test]
    fn batches_are_bounded() {
        let at = |start: u64, len: u64| IndexedFrame::At {
            start: Lsn(start),
            end: Lsn(start + len),
        };
        let change = |start: u64| {
            IndexedFrame::Change(Change {
                page: PageId::new(SpaceId(2), PageNo(7)),
                start: Lsn(start),
                end: Lsn(start + 64),
                fresh: false,
                ops: b"ops",
            })
        };
        // Far from each other, near to each other, and long ones.
        for (step, len, most) in [
            (1 << 20, 64, 512),
            (GAP_BYTES, 64, 257),
            (128, 64, 40_000),
            (1 << 20, 1 << 20, 5),
        ] {
            let all: Vec<_> = (0..100_000).map(|n| at(n * step, len)).collect();
            let first = batch(&all);
            assert!(first > most / 2 && first <= most, "{step} {len}: {first}");
            assert!(batch(&all[first..]) > 0);
        }
        let long: Vec<_> = (0..4).map(|n| at(n << 20, 1 << 20)).collect();
        let several = [change(4 << 20), change(4 << 20), at(5 << 20, 1 << 20)];
        let all: Vec<_> = long.into_iter().chain(several).collect();
        assert_eq!(batch(&all), 6);
        assert_eq!(batch(&all[..1]), 1);
    }
}
