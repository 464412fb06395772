//! What the redo log says of single pages: the changes of one page one after the other, cut out of the frames.
//!
//! A **change** is what one frame says of one page in one go: 16 bytes, then the encoded operations (page/op.rs).
//!
//! ```text
//! 0   u64  LSN of the frame's start; its lowest bit, which an LSN has free, is set if the page starts as zeros
//! 8   u32  the frame's length
//! 12  u32  bytes of operations
//! 16       operations
//! ```
//!
//! - **CHAIN-1** The changes of a page stand in the order of the log. What stands before the last one that starts the page as zeros is left out.
//!
//! This is a format in memory and in a file that no other process reads. Pure functions.

use crate::base::{Error, Lsn, PageId, Result, SpaceId};
use crate::mtr::RawRecord;
use crate::mtr::record::{Part, parts};
use crate::mtr::replay::{apply_ops, damaged};
use crate::redo::{Frame, Piece};

const HEAD: usize = 16;
const FRESH: u64 = 1;

/// Changes of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// [`PageId::to_u64`].
    pub page: u64,
    /// Where they are.
    pub at: u32,
    len: u32,
}

const STARTS_FRESH: u32 = 1 << 31;

impl Segment {
    pub fn new(page: u64, at: usize, len: usize, starts_fresh: bool) -> Segment {
        let at = u32::try_from(at).expect("a run is shorter than 4 GiB");
        assert!(len < STARTS_FRESH as usize, "{len} bytes of changes");
        let flag = if starts_fresh { STARTS_FRESH } else { 0 };
        let len = len as u32 | flag;
        Segment { page, at, len }
    }

    pub fn len(&self) -> usize {
        (self.len & !STARTS_FRESH) as usize
    }

    /// The first change starts the page as zeros: nothing before it matters, nor what its file holds.
    pub fn starts_fresh(&self) -> bool {
        self.len & STARTS_FRESH != 0
    }

    pub fn range(&self) -> std::ops::Range<usize> {
        let at = self.at as usize;
        at..at + self.len()
    }
}

/// What records of no page say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Told {
    pub frames: u64,
    pub id_limit: u64,
    /// Tablespaces whose removal was decided, and may not be done yet (DDL-3).
    pub removed: Vec<SpaceId>,
}

impl Told {
    pub fn add(&mut self, other: Told) {
        self.frames += other.frames;
        self.id_limit = self.id_limit.max(other.id_limit);
        self.removed.extend(other.removed);
    }
}

/// What a piece of the log says, page by page.
pub struct Chunk {
    pub bytes: Vec<u8>,
    /// Ascending, one for each page.
    pub index: Vec<Segment>,
    pub told: Told,
    pub end: Lsn,
    pub generation: u64,
    /// The log goes on behind it.
    pub goes_on: bool,
}

impl Chunk {
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.index.capacity() * size_of::<Segment>()
    }
}

/// A change that is still in its piece.
struct Change<'a> {
    page: u64,
    start: Lsn,
    frame: u32,
    fresh: bool,
    ops: &'a [u8],
}

/// Checks the frames of a piece and sorts what they say by page.
pub fn digest(piece: &Piece) -> Result<Chunk> {
    let mut told = Told::default();
    let mut changes = Vec::new();
    let mut frames = piece.frames();
    for frame in frames.by_ref() {
        told.frames += 1;
        take_apart(&frame, &mut told, &mut changes)?;
    }
    // Stable: CHAIN-1.
    changes.sort_by_key(|change| change.page);
    let len = changes.iter().map(|c| HEAD + c.ops.len()).sum();
    let (mut bytes, mut index) = (Vec::with_capacity(len), Vec::new());
    for of_page in changes.chunk_by(|a, b| a.page == b.page) {
        let first = of_page.iter().rposition(|change| change.fresh);
        let at = bytes.len();
        let needed = &of_page[first.unwrap_or(0)..];
        needed.iter().for_each(|change| put(&mut bytes, change));
        let len = bytes.len() - at;
        index.push(Segment::new(of_page[0].page, at, len, first.is_some()));
    }
    Ok(Chunk {
        bytes,
        index,
        told,
        end: frames.end(),
        generation: piece.generation,
        goes_on: frames.is_whole() && !piece.is_last,
    })
}

fn take_apart<'a>(frame: &Frame<'a>, told: &mut Told, changes: &mut Vec<Change<'a>>) -> Result<()> {
    for part in parts(frame.body) {
        match part.map_err(|what| damaged(frame.start, what))? {
            Part::Page { page, .. } if !page.space.is_logged() => {
                let what = format!("a change of {page}, which is not logged");
                return Err(damaged(frame.start, &what));
            }
            Part::Page { page, fresh, ops } => changes.push(Change {
                page: page.to_u64(),
                start: frame.start,
                frame: (frame.end.0 - frame.start.0) as u32,
                fresh,
                ops,
            }),
            Part::Raw(RawRecord::IdLimit { limit }) => told.id_limit = told.id_limit.max(limit),
            Part::Raw(RawRecord::FileDelete { space, .. }) => told.removed.push(space),
            Part::Raw(_) => {}
        }
    }
    Ok(())
}

fn put(out: &mut Vec<u8>, change: &Change<'_>) {
    debug_assert_eq!(change.start.0 & FRESH, 0, "LSNs are multiples of 8");
    let fresh = if change.fresh { FRESH } else { 0 };
    out.extend_from_slice(&(change.start.0 | fresh).to_le_bytes());
    out.extend_from_slice(&change.frame.to_le_bytes());
    out.extend_from_slice(&(change.ops.len() as u32).to_le_bytes());
    out.extend_from_slice(change.ops);
}

/// Applies the changes in `segment` that the page does not have (RPL-1). `had`: the page's LSN before the first segment was applied, because
/// a frame may have several changes. Returns where the first frame that was applied starts.
pub fn apply(page: &mut [u8], id: PageId, had: Lsn, mut segment: &[u8]) -> Result<Option<Lsn>> {
    let mut first = None;
    while !segment.is_empty() {
        let short = || Error::corrupt(id, "whole changes kept by recovery", "cut ones");
        let (head, rest) = segment.split_first_chunk::<HEAD>().ok_or_else(short)?;
        let word = u64::from_le_bytes(head[..8].try_into().expect("8 bytes"));
        let u32_at = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        let (ops, rest) = rest
            .split_at_checked(u32_at(12) as usize)
            .ok_or_else(short)?;
        let start = Lsn(word & !FRESH);
        let end = Lsn(start.0 + u64::from(u32_at(8)));
        if had < end {
            apply_ops(page, id, (word & FRESH != 0, ops), end)?;
            first.get_or_insert(start);
        }
        segment = rest;
    }
    Ok(first)
}
