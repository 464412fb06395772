//! Reads the redo stream from a checkpoint to its end.
//!
//! WAL-3: the stream ends before the first frame that is missing, torn or left over from an earlier use of
//! its file: no part of it is returned, nor anything after it. Frames carry a checksum over their contents,
//! place and generation; a batch of unsynced writes may survive with holes, so what follows a bad frame
//! proves nothing, unless it is a mark that names more: then the place was durable, and is damaged (WAL-10,
//! `mark`).
//!
//! Where a later opening of the log went on (a file of a higher generation), everything before was whole
//! then: a bad frame there is damage, and reported as such instead of being taken for the end.
//!
//! [`RedoReader::next`] returns one frame after the other, each checked. Recovery, which wants large pieces
//! and several threads, reads by `pieces`.
//!
//! Reads are sequential. The log must not be written to meanwhile.

use std::path::Path;
use std::sync::Arc;

use super::files::{Chain, FILE_HEADER, REDO_DIR};
use super::frame;
use crate::base::{Lsn, Result};
use crate::encryption::Keyring;
use crate::io::{Disk, IoQueue};

const WINDOW_BYTES: u64 = 4 << 20;

/// One mini-transaction's redo.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub start: Lsn,
    pub end: Lsn,
    pub body: &'a [u8],
}

pub struct RedoReader {
    chain: Chain,
    /// Where the next frame begins.
    at: Lsn,
    /// A piece of the stream that begins at `window_start`.
    window: Vec<u8>,
    window_start: Lsn,
    ended: bool,
}

impl RedoReader {
    /// Reads the log of database `uuid` in `data_dir` from `from`, which must be a frame's start (a
    /// checkpoint).
    pub fn open(
        disk: &dyn Disk,
        data_dir: &Path,
        uuid: &[u8; 16],
        from: Lsn,
        keyring: &Keyring,
    ) -> Result<RedoReader> {
        let chain = Chain::open(disk, &data_dir.join(REDO_DIR), uuid, from, 1, keyring)?;
        Ok(RedoReader {
            chain,
            at: from,
            window: Vec::new(),
            window_start: from,
            ended: false,
        })
    }

    /// The next frame, or `None` at the end of the log.
    #[allow(clippy::should_implement_trait)] // The frame borrows the reader's buffer.
    pub fn next(&mut self) -> Result<Option<Frame<'_>>> {
        if self.ended {
            return Ok(None);
        }
        let Some((generation, run_end)) = self.chain.run_at(self.at) else {
            self.ended = true;
            return Ok(None);
        };
        let Some((word, mut body)) = self.parse(generation, run_end)? else {
            self.ended = true;
            self.chain.check_end(generation, self.at)?;
            let queue = Arc::new(IoQueue::one_by_one());
            self.chain.check_durable(generation, self.at, &queue)?;
            return Ok(None);
        };
        let start = self.at;
        if let Some(cipher) = self.chain.cipher(generation) {
            // Once: nobody comes back to it.
            let len = frame::decrypt(cipher, start, &mut self.window[body.clone()])?;
            body.end = body.start + len;
        }
        self.at = Lsn(start.0 + u64::from(word as u32 & !7));
        Ok(Some(Frame {
            start,
            end: self.at,
            body: &self.window[body],
        }))
    }

    /// Where the next frame would begin; after `next` returned `None`, the end of the log.
    #[cfg(feature = "internals")]
    pub fn position(&self) -> Lsn {
        self.at
    }

    /// The header word and the body's place in the window, if a whole frame begins at `at`.
    fn parse(
        &mut self,
        generation: u64,
        run_end: Lsn,
    ) -> Result<Option<(u64, std::ops::Range<usize>)>> {
        let rest = run_end.0 - self.at.0;
        if rest < frame::FRAME_HEADER as u64 {
            return Ok(None);
        }
        let head = self.need(frame::FRAME_HEADER, run_end)?;
        let word = u64::from_le_bytes(self.window[head..head + 8].try_into().unwrap());
        let Some((total, body_len)) = frame::lengths(word) else {
            return Ok(None);
        };
        if total as u64 > rest {
            return Ok(None);
        }
        let head = self.need(total, run_end)?;
        let body = head + frame::FRAME_HEADER..head + frame::FRAME_HEADER + body_len;
        let whole = frame::verify(word, &self.window[body.clone()], self.at, generation);
        Ok(whole.then_some((word, body)))
    }

    /// Makes the window hold `bytes` bytes from `at` and returns where in it they begin.
    fn need(&mut self, bytes: usize, run_end: Lsn) -> Result<usize> {
        let at = (self.at.0 - self.window_start.0) as usize;
        if at + bytes <= self.window.len() {
            return Ok(at);
        }
        let len = WINDOW_BYTES.min(run_end.0 - self.at.0) as usize;
        let mut window = std::mem::take(&mut self.window);
        window.resize(len, 0);
        self.read(self.at, &mut window)?;
        (self.window, self.window_start) = (window, self.at);
        Ok(0)
    }

    /// Fills `buf` with the stream from `from` on, which the chain's files hold.
    fn read(&self, from: Lsn, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        for f in &self.chain.files {
            let position = from.0 + done as u64;
            if position < f.header.start.0 || position >= f.end.0 {
                continue;
            }
            let n = ((f.end.0 - position) as usize).min(buf.len() - done);
            let offset = FILE_HEADER + position - f.header.start.0;
            f.file.read_at(&mut buf[done..done + n], offset)?;
            done += n;
        }
        assert_eq!(done, buf.len(), "the chain has no gap from {from} on");
        Ok(())
    }
}
