//! Reading the redo stream ahead: some blocks of it are under way while the one before is being looked at.
//!
//! Blocks are consecutive and of one length, but for those at the ends of files. Whoever wants bytes gets copies, and waits for the blocks
//! that have them only; what lies before them is let go. A block that can't be read is an error when somebody wants it, not before: the stream
//! may end earlier.

use std::collections::VecDeque;
use std::sync::Arc;

use super::files::{Chain, FILE_HEADER};
use crate::base::{Lsn, Result};
use crate::io::{IoQueue, Reading};

/// Blocks that are there, or under way.
const DEPTH: usize = 4;

pub(super) struct Ahead {
    queue: Arc<IoQueue>,
    block_bytes: usize,
    blocks: VecDeque<Block>,
    /// Where the next block begins.
    next: u64,
}

struct Block {
    start: u64,
    len: usize,
    state: State,
}

enum State {
    UnderWay(Reading),
    Over(Result<Vec<u8>>),
}

impl Block {
    fn end(&self) -> u64 {
        self.start + self.len as u64
    }

    fn bytes(&mut self) -> Result<&[u8]> {
        if let State::UnderWay(reading) = &mut self.state {
            self.state = State::Over(reading.wait());
        }
        match &self.state {
            State::Over(Ok(bytes)) => Ok(bytes),
            State::Over(Err(e)) => Err(e.clone()),
            State::UnderWay(_) => unreachable!("just waited for"),
        }
    }
}

impl Ahead {
    pub fn new(queue: Arc<IoQueue>, block_bytes: usize) -> Ahead {
        Ahead {
            queue,
            block_bytes,
            blocks: VecDeque::new(),
            next: 0,
        }
    }

    /// Fills `buf` with the stream from `from` on, which the chain's files hold, and which is not before what was read last.
    pub fn read(&mut self, chain: &Chain, from: Lsn, buf: &mut [u8]) -> Result<()> {
        let (from, to) = (from.0, from.0 + buf.len() as u64);
        while self.blocks.front().is_some_and(|block| block.end() <= from) {
            self.blocks.pop_front();
        }
        if self.blocks.is_empty() {
            self.next = from;
        }
        while (self.blocks.len() < DEPTH || self.next < to) && self.begin_block(chain) {}
        let mut done = 0;
        for block in &mut self.blocks {
            let position = from + done as u64;
            if done == buf.len() {
                break;
            }
            let at = (position - block.start) as usize;
            let n = (block.len - at).min(buf.len() - done);
            let bytes = &block.bytes()?[at..at + n];
            buf[done..done + n].copy_from_slice(bytes);
            done += n;
        }
        assert_eq!(done, buf.len(), "the chain has no gap from {from} on");
        Ok(())
    }

    /// False at the end of the files.
    fn begin_block(&mut self, chain: &Chain) -> bool {
        let start = self.next;
        let mut files = chain.files.iter();
        let Some(f) = files.find(|f| f.header.start.0 <= start && start < f.end.0) else {
            return false;
        };
        let len = (f.end.0 - start).min(self.block_bytes as u64) as usize;
        let offset = FILE_HEADER + start - f.header.start.0;
        let reading = self.queue.read(f.file.clone(), offset, len);
        self.blocks.push_back(Block {
            start,
            len,
            state: State::UnderWay(reading),
        });
        self.next += len as u64;
        true
    }
}
