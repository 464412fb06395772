//! Reading the log's files ahead: some blocks are under way while the one before is being looked at.
//!
//! Blocks follow each other in the stream, and end at multiples of their length in the files, or where a
//! file's part of the stream ends. Their memory begins with room for a frame, which the block before may have
//! begun, so that a frame that goes over the end of a block can be put together without moving the rest. It
//! comes back when nobody needs the block any more ([`Buffer`]), and is used again: memory that was never
//! used has to be cleared by the system, which takes longer than reading into it.
//!
//! A block that can't be read is an error when somebody wants it, not before: the stream may end earlier.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;

use super::files::{Chain, FILE_HEADER};
use super::frame::MAX_FRAME_BYTES;
use crate::base::{Lsn, Result};
use crate::io::{AlignedBuf, DIRECT_BLOCK, IoQueue, Read, Reading};

/// Blocks that are under way, if the queue carries them out by itself.
const DEPTH: usize = 4;
/// Room before a block.
const ROOM: usize = MAX_FRAME_BYTES as usize;

/// Memory that nobody uses at the moment.
type Spare = Arc<Mutex<Vec<AlignedBuf>>>;

/// Memory of a block. It goes back to the spare ones when it is dropped.
pub(super) struct Buffer {
    /// `None` only while it is being dropped.
    bytes: Option<AlignedBuf>,
    home: Spare,
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.as_ref().expect("not dropped")
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes.as_mut().expect("not dropped")
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.home.lock().extend(self.bytes.take());
    }
}

/// A piece of the stream in memory.
pub(super) struct Block {
    pub buffer: Buffer,
    /// Where it is there. Before it is room for a frame.
    pub at: usize,
    pub len: usize,
}

struct UnderWay {
    reading: Reading,
    at: usize,
    len: usize,
}

pub(super) struct Ahead {
    queue: Arc<IoQueue>,
    block_bytes: usize,
    blocks: VecDeque<UnderWay>,
    /// Where the next block begins.
    next: Lsn,
    spare: Spare,
}

impl Ahead {
    /// Blocks of about `block_bytes` from `from` on.
    pub fn new(queue: Arc<IoQueue>, block_bytes: usize, from: Lsn) -> Ahead {
        Ahead {
            queue,
            block_bytes: block_bytes.max(1).next_multiple_of(DIRECT_BLOCK),
            blocks: VecDeque::new(),
            next: from,
            spare: Spare::default(),
        }
    }

    pub fn queue(&self) -> &Arc<IoQueue> {
        &self.queue
    }

    /// The next block; `None` behind the last file.
    pub fn next(&mut self, chain: &Chain) -> Result<Option<Block>> {
        let depth = if self.queue.is_asynchronous() {
            DEPTH
        } else {
            1
        };
        while self.blocks.len() < depth && self.begin(chain) {}
        let Some(UnderWay { reading, at, len }) = self.blocks.pop_front() else {
            return Ok(None);
        };
        let buffer = Buffer {
            bytes: Some(reading.wait()?),
            home: self.spare.clone(),
        };
        Ok(Some(Block { buffer, at, len }))
    }

    /// Begins to read a block. False at the end of the files.
    fn begin(&mut self, chain: &Chain) -> bool {
        let start = self.next.0;
        let mut files = chain.files.iter();
        let Some(f) = files.find(|f| f.header.start.0 <= start && start < f.end.0) else {
            return false;
        };
        let in_file = |lsn: u64| FILE_HEADER + lsn - f.header.start.0;
        let (offset, block) = (in_file(start), self.block_bytes as u64);
        let end = (offset / block * block + block).min(in_file(f.end.0));
        // Whole blocks of the file: IO-6.
        let unit = DIRECT_BLOCK as u64;
        let from = offset / unit * unit;
        let to = end.next_multiple_of(unit).min(f.header.file_bytes);
        let spare = self.spare.lock().pop();
        let read = Read {
            file: f.file.clone(),
            offset: from,
            into: spare.unwrap_or_else(|| AlignedBuf::new(ROOM + self.block_bytes)),
            range: ROOM..ROOM + (to - from) as usize,
        };
        let len = (end - offset) as usize;
        let at = ROOM + (offset - from) as usize;
        let readings = self.queue.read_all(vec![read]);
        self.blocks.extend(
            readings
                .into_iter()
                .map(|reading| UnderWay { reading, at, len }),
        );
        self.next = Lsn(start + len as u64);
        true
    }
}
