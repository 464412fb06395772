//! The redo stream in large pieces, for several threads.
//!
//! [`PieceReader::next_piece`] returns pieces of the stream, cut between frames by the lengths in their
//! headers alone, so that other threads can check them while the next piece is being read
//! ([`Piece::frames`]). A piece may then hold what is no part of the stream, from the first frame on that is
//! not whole (WAL-3); all pieces after that one are to be thrown away, and [`PieceReader::check_end`] says
//! whether the stream may end there. Frames that are encrypted are checked and decrypted before the piece is
//! returned.
//!
//! A piece is a block as it was read (`ahead`), with the beginning of its first frame, which the block before
//! had, copied before it. The log must not be written to meanwhile.

use std::ops::Range;
use std::sync::Arc;

use super::ahead::{Ahead, Block, Buffer};
use super::files::Chain;
use super::{Frame, frame};
use crate::base::{Lsn, Result};
use crate::encryption::Cipher;
use crate::io::IoQueue;

/// A piece of the stream, cut between frames.
pub struct Piece {
    pub start: Lsn,
    pub generation: u64,
    buffer: Buffer,
    /// Where it is there.
    range: Range<usize>,
    /// How many bytes of it are whole frames, which are decrypted now; `None` if they never were encrypted,
    /// and nobody has looked at their checksums yet.
    decrypted: Option<usize>,
    /// Behind it no frame can begin.
    pub is_last: bool,
}

impl Piece {
    /// Decrypts the frames up to the first that is not whole.
    fn decrypt(&mut self, cipher: &Cipher) -> Result<()> {
        let bytes = &mut self.buffer[self.range.clone()];
        let mut at = 0;
        while let Some(word) = header_at(bytes, at) {
            let (total, body_len) = frame::lengths(word).expect("the piece was cut by its lengths");
            let begin = at + frame::FRAME_HEADER;
            let body = &mut bytes[begin..begin + body_len];
            let start = Lsn(self.start.0 + at as u64);
            if !frame::verify(word, body, start, self.generation) {
                break;
            }
            frame::decrypt(cipher, start, body)?;
            at += total;
        }
        self.decrypted = Some(at);
        Ok(())
    }

    pub fn frames(&self) -> Frames<'_> {
        Frames {
            piece: self,
            bytes: &self.buffer[self.range.clone()],
            at: 0,
            is_whole: true,
        }
    }
}

/// The frames of a piece up to the first that is not whole.
pub struct Frames<'a> {
    piece: &'a Piece,
    bytes: &'a [u8],
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
        let word = header_at(self.bytes, self.at)?;
        let (total, body_len) = frame::lengths(word).expect("the piece was cut by its lengths");
        let begin = self.at + frame::FRAME_HEADER;
        let mut body = &self.bytes[begin..begin + body_len];
        let start = self.end();
        self.is_whole &= match self.piece.decrypted {
            Some(whole) => self.at < whole,
            None => frame::verify(word, body, start, self.piece.generation),
        };
        if !self.is_whole {
            return None;
        }
        if self.piece.decrypted.is_some() {
            body = frame::without_tag(body);
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
    /// Before a frame that the buffer does not hold as a whole.
    Before(usize),
    /// Before something that no frame begins with.
    End(usize),
}

/// `rest`: bytes of the stream from the buffer's beginning to the end of the files of its generation.
fn cut(bytes: &[u8], rest: u64) -> Cut {
    let mut at = 0;
    while (at as u64) < rest {
        if rest - (at as u64) < frame::FRAME_HEADER as u64 {
            return Cut::End(at);
        }
        let Some(word) = header_at(bytes, at) else {
            return Cut::Before(at);
        };
        match frame::lengths(word) {
            Some((total, _)) if (at + total) as u64 <= rest => {
                if at + total > bytes.len() {
                    return Cut::Before(at);
                }
                at += total;
            }
            _ => return Cut::End(at),
        }
    }
    Cut::Before(at)
}

/// How the log's files are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Through {
    /// The operating system's cache, which may have them.
    Cache,
    /// Past it, where the disk can do that.
    Direct,
}

pub struct PieceReader {
    chain: Chain,
    ahead: Ahead,
    /// Where the next piece begins.
    at: Lsn,
    /// The beginning of its first frame, from the block before.
    begun: Vec<u8>,
    ended: bool,
}

impl PieceReader {
    /// Reads the log from `from`, which must be a frame's start (a checkpoint), in pieces of about
    /// `piece_bytes`.
    pub(super) fn of(
        chain: Chain,
        from: Lsn,
        queue: &Arc<IoQueue>,
        piece_bytes: usize,
    ) -> PieceReader {
        PieceReader {
            chain,
            ahead: Ahead::new(queue.clone(), piece_bytes, from),
            at: from,
            begun: Vec::new(),
            ended: false,
        }
    }

    /// The next piece of the stream; `None` after the last.
    pub fn next_piece(&mut self) -> Result<Option<Piece>> {
        while !self.ended {
            let Some((generation, run_end)) = self.chain.run_at(self.at) else {
                break;
            };
            let Some(block) = self.ahead.next(&self.chain)? else {
                break;
            };
            let Block {
                mut buffer,
                at,
                len,
            } = block;
            let range = at - self.begun.len()..at + len;
            buffer[range.start..at].copy_from_slice(&self.begun);
            let bytes = &buffer[range.clone()];
            let whole = match cut(bytes, run_end.0 - self.at.0) {
                Cut::Before(whole) => whole,
                Cut::End(whole) => {
                    self.ended = true;
                    whole
                }
            };
            self.begun.clear();
            self.begun.extend_from_slice(&bytes[whole..]);
            if whole == 0 && !self.ended {
                // A frame that is longer than a block.
                continue;
            }
            let start = self.at;
            self.at = Lsn(start.0 + whole as u64);
            let mut piece = Piece {
                start,
                generation,
                buffer,
                range: range.start..range.start + whole,
                decrypted: None,
                is_last: self.ended,
            };
            if let Some(cipher) = self.chain.cipher(generation) {
                piece.decrypt(cipher)?;
            }
            return Ok(Some(piece));
        }
        self.ended = true;
        Ok(None)
    }

    /// A log that was opened again later can't end before that opening. `generation`: of what is not whole.
    pub fn check_end(&self, generation: u64, end: Lsn) -> Result<()> {
        self.chain.check_end(generation, end)
    }

    /// Nor before what was durable once (WAL-10). Reads what the files have behind the end: only after a
    /// crash is there anything to find.
    pub fn check_durable(&self, generation: u64, end: Lsn) -> Result<()> {
        self.chain
            .check_durable(generation, end, self.ahead.queue())
    }
}
