//! Reads the redo stream from a checkpoint to its end.
//!
//! **WAL-3** The stream ends before the first frame that is missing, torn or left over from an earlier use of its
//! file: no part of it is returned, nor anything after it. Frames carry a checksum over their contents, place and
//! generation; a batch of unsynced writes may survive with holes, so what follows a bad frame proves nothing.
//!
//! Where a later opening of the log went on (a file of a higher generation), everything before was whole then: a bad
//! frame there is damage, and reported as such instead of being taken for the end.
//!
//! Two ways to read it: [`RedoReader::next`] returns one frame after the other, each checked. [`RedoReader::next_piece`] returns
//! pieces of the stream, cut between frames by the lengths in their headers alone, so that other threads can check them while the
//! next piece is being read ([`Piece::frames`]). A piece may then hold what is no part of the stream, from the first frame
//! on that is not whole; all pieces after that one are to be thrown away, and [`RedoReader::check_end`] says whether the stream may
//! end there.
//!
//! Reads are sequential, or some of them are under way together (`ahead`). The log must not be written to meanwhile.

use std::path::Path;
use std::sync::Arc;

use super::ahead::Ahead;
use super::files::{Chain, FILE_HEADER, REDO_DIR};
use super::frame;
use crate::base::{Error, Lsn, Result};
use crate::io::{Disk, IoQueue};

const WINDOW_BYTES: u64 = 4 << 20;

/// One mini-transaction's redo.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub start: Lsn,
    pub end: Lsn,
    pub body: &'a [u8],
}

/// A piece of the stream, cut between frames. Nobody has looked at the checksums yet.
pub struct Piece {
    pub start: Lsn,
    pub generation: u64,
    bytes: Vec<u8>,
    /// Behind it no frame can begin.
    pub is_last: bool,
}

impl Piece {
    pub fn frames(&self) -> Frames<'_> {
        Frames {
            piece: self,
            at: 0,
            is_whole: true,
        }
    }
}

/// The frames of a piece up to the first that is not whole.
pub struct Frames<'a> {
    piece: &'a Piece,
    at: usize,
    is_whole: bool,
}

impl Frames<'_> {
    /// Where the frames that were returned end.
    pub fn end(&self) -> Lsn {
        Lsn(self.piece.start.0 + self.at as u64)
    }

    /// None of the frames so far was torn or missing.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        let bytes: &'a [u8] = &self.piece.bytes;
        let word = header_at(bytes, self.at)?;
        let (total, body_len) = frame::lengths(word).expect("the piece was cut by its lengths");
        let begin = self.at + frame::FRAME_HEADER;
        let body = &bytes[begin..begin + body_len];
        let start = self.end();
        self.is_whole &= frame::verify(word, body, start, self.piece.generation);
        if !self.is_whole {
            return None;
        }
        self.at += total;
        let end = self.end();
        Some(Frame { start, end, body })
    }
}

fn header_at(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at + frame::FRAME_HEADER)?;
    Some(u64::from_le_bytes(word.try_into().expect("8 bytes")))
}

/// Where a buffer has to be cut, going by lengths only.
enum Cut {
    /// Before a frame of this length, which the buffer does not hold as a whole; 0: not even its header.
    Before { at: usize, needs: usize },
    /// Before something that no frame begins with.
    End { at: usize },
}

/// `rest`: bytes of the stream from the buffer's beginning to the end of the files of its generation.
fn cut(bytes: &[u8], rest: u64) -> Cut {
    let mut at = 0;
    loop {
        if rest - (at as u64) < frame::FRAME_HEADER as u64 {
            return Cut::End { at };
        }
        let Some(word) = header_at(bytes, at) else {
            return Cut::Before { at, needs: 0 };
        };
        match frame::lengths(word) {
            Some((total, _)) if (at + total) as u64 <= rest => {
                if at + total > bytes.len() {
                    return Cut::Before { at, needs: total };
                }
                at += total;
            }
            _ => return Cut::End { at },
        }
        if at as u64 == rest {
            return Cut::Before { at, needs: 0 };
        }
    }
}

pub struct RedoReader {
    chain: Chain,
    /// Where the next frame begins.
    at: Lsn,
    /// A piece of the stream that begins at `window_start`.
    window: Vec<u8>,
    window_start: Lsn,
    ended: bool,
    ahead: Option<Ahead>,
}

impl RedoReader {
    /// Reads the log of database `uuid` in `data_dir` from `from`, which must be a frame's start (a checkpoint).
    pub fn open(
        disk: &dyn Disk,
        data_dir: &Path,
        uuid: &[u8; 16],
        from: Lsn,
    ) -> Result<RedoReader> {
        let chain = Chain::open(disk, &data_dir.join(REDO_DIR), uuid, from)?;
        Ok(RedoReader {
            chain,
            at: from,
            window: Vec::new(),
            window_start: from,
            ended: false,
            ahead: None,
        })
    }

    /// From now on blocks of this length are read ahead, if the queue carries them out by itself.
    pub fn read_ahead(&mut self, queue: &Arc<IoQueue>, block_bytes: usize) {
        if queue.is_asynchronous() {
            self.ahead = Some(Ahead::new(queue.clone(), block_bytes));
        }
    }

    /// The next frame, or `None` at the end of the log.
    #[allow(clippy::should_implement_trait)] // The frame borrows the reader's buffer.
    pub fn next(&mut self) -> Result<Option<Frame<'_>>> {
        if self.ended {
            return Ok(None);
        }
        let Some((generation, run_end)) = self.run() else {
            self.ended = true;
            return Ok(None);
        };
        let Some((word, body)) = self.parse(generation, run_end)? else {
            self.ended = true;
            self.check_end(generation, self.at)?;
            return Ok(None);
        };
        let start = self.at;
        self.at = Lsn(start.0 + u64::from(word as u32 & !7));
        Ok(Some(Frame {
            start,
            end: self.at,
            body: &self.window[body],
        }))
    }

    /// The next piece of the stream, of about `wanted` bytes, or as long as its first frame if that is longer; `None` after the
    /// last.
    pub fn next_piece(&mut self, wanted: usize) -> Result<Option<Piece>> {
        if self.ended {
            return Ok(None);
        }
        let Some((generation, run_end)) = self.run() else {
            self.ended = true;
            return Ok(None);
        };
        let rest = run_end.0 - self.at.0;
        let whole = |wanted: usize| rest.min(wanted.max(frame::FRAME_HEADER) as u64) as usize;
        let mut bytes = vec![0; whole(wanted)];
        self.read(self.at, &mut bytes)?;
        let mut cut_at = cut(&bytes, rest);
        if let Cut::Before { at: 0, needs } = cut_at {
            bytes.resize(whole(needs), 0);
            self.read(self.at, &mut bytes)?;
            cut_at = cut(&bytes, rest);
        }
        let len = match cut_at {
            Cut::Before { at, .. } => at,
            Cut::End { at } => {
                self.ended = true;
                at
            }
        };
        bytes.truncate(len);
        let start = self.at;
        self.at = Lsn(start.0 + len as u64);
        Ok(Some(Piece {
            start,
            generation,
            bytes,
            is_last: self.ended,
        }))
    }

    /// Where the next frame would begin; after `next` returned `None`, the end of the log.
    pub fn position(&self) -> Lsn {
        self.at
    }

    /// Generation and end of the run of files of one generation that holds the next frame.
    fn run(&self) -> Option<(u64, Lsn)> {
        let first = self.chain.files.iter().position(|f| self.at < f.end)?;
        let generation = self.chain.files[first].header.generation;
        let run = &self.chain.files[first..];
        let last = run
            .iter()
            .take_while(|f| f.header.generation == generation)
            .last()?;
        Some((generation, last.end))
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
    fn read(&mut self, from: Lsn, buf: &mut [u8]) -> Result<()> {
        if let Some(ahead) = &mut self.ahead {
            return ahead.read(&self.chain, from, buf);
        }
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

    /// A log that was opened again later can't end before that opening. `generation`: of what is not whole.
    pub fn check_end(&self, generation: u64, end: Lsn) -> Result<()> {
        let later = |f: &&super::files::ChainFile| f.header.generation > generation;
        match self.chain.files.iter().find(later) {
            None => Ok(()),
            Some(next) => Err(Error::CorruptFile {
                path: next.file.path().to_path_buf(),
                expected: format!("whole redo up to its start, LSN {}", next.header.start),
                found: format!("a damaged frame at LSN {end}"),
            }),
        }
    }
}
