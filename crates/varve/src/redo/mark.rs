//! Durable marks: what the log says in its own stream about how far it was durable.
//!
//! A log that breaks off at LSN `X` was torn there by a crash, or a bit of it has flipped since. What lies
//! behind `X` tells the two apart only if it says that `X` was durable once: unsynced writes survive with
//! holes, so a frame that is whole proves nothing for what stands before it.
//!
//! - **WAL-10** A mark names an LSN up to which all syncs had returned without an error when it was appended
//!   ([`RedoLog::put_mark`]). So a whole mark that names more than `X` proves damage at `X`, and the log is
//!   not taken to end there ([`Chain::check_durable`]).
//!
//! The leader of a group commit puts a mark into its group, which names the end of the group before. So
//! whatever is below the last group that became durable is told if it breaks; in that group itself a flipped
//! bit is like a torn write. A mark needs redo capacity, for which a leader never waits: if there is none the
//! group goes without, and the next mark speaks for both.
//!
//! A mark is a frame with one record, which only this layer makes. It always has the same length, so it is
//! found by its header word, whose checksum binds it to its place and generation (RF-1): in a recycled file
//! none is left over.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::ahead::{Ahead, Block};
use super::files::{Chain, FILE_HEADER};
use super::frame::{self, FRAME_HEADER};
use super::log::RedoLog;
use crate::base::{Error, Lsn, Result, Sabotage};
use crate::io::IoQueue;

/// The byte that the record begins with; the LSN follows.
pub const MARK_RECORD: u8 = 0x95;
const BODY_BYTES: usize = 9;
const FRAME_BYTES: usize = frame::frame_bytes(BODY_BYTES);
const _: () = assert!(!frame::is_encrypted(BODY_BYTES));
/// The first half of each mark's header word.
const LENGTH: u32 = FRAME_BYTES as u32 | (FRAME_BYTES - FRAME_HEADER - BODY_BYTES) as u32;

/// Bytes that are read at a time to look for marks.
const SEARCHED_BYTES: usize = 1 << 20;

fn body(durable: Lsn) -> [u8; BODY_BYTES] {
    let mut body = [MARK_RECORD; BODY_BYTES];
    body[1..].copy_from_slice(&durable.0.to_le_bytes());
    body
}

/// The highest LSN that a mark names in a piece of the stream that begins at `start`.
fn highest(bytes: &[u8], start: Lsn, generation: u64) -> Option<Lsn> {
    let mut highest = None;
    let last = bytes.len().checked_sub(FRAME_BYTES)?;
    for at in (0..=last).step_by(8) {
        let frame = &bytes[at..at + FRAME_BYTES];
        if frame[..4] != LENGTH.to_le_bytes() || frame[FRAME_HEADER] != MARK_RECORD {
            continue;
        }
        let word = u64::from_le_bytes(frame[..FRAME_HEADER].try_into().expect("8 bytes"));
        let body = &frame[FRAME_HEADER..FRAME_HEADER + BODY_BYTES];
        let place = Lsn(start.0 + at as u64);
        let named = Lsn(u64::from_le_bytes(body[1..].try_into().expect("8 bytes")));
        if named <= place && frame::verify(word, body, place, generation) {
            highest = highest.max(Some(named));
        }
    }
    highest
}

impl RedoLog {
    /// Appends a mark if there is something to say that none has said, and returns its end. For a leader,
    /// which alone publishes what is durable.
    pub(super) fn put_mark(&self) -> Option<Lsn> {
        let durable = self.durable_lsn();
        // Leaders follow each other under the group's mutex.
        if durable.0 <= self.marked.load(Ordering::Relaxed) {
            return None;
        }
        let reservation = self.try_reserve(BODY_BYTES as u32)?;
        self.marked.store(durable.0, Ordering::Relaxed);
        let named = match self.is_sabotaged(Sabotage::MarkAheadOfSync) {
            true => self.complete_lsn(),
            false => durable,
        };
        let mark = self.append_clear(&reservation, &[&body(named)]);
        assert!(
            durable <= mark.start,
            "WAL-10: {durable} is above the mark's own place"
        );
        let end = mark.end;
        self.complete(mark);
        Some(end)
    }
}

impl Chain {
    /// Refuses `end` as the log's end, behind which no frame of this generation is whole, if it was durable
    /// (WAL-10). Reads what the files have behind it.
    pub(super) fn check_durable(
        &self,
        generation: u64,
        end: Lsn,
        queue: &Arc<IoQueue>,
    ) -> Result<()> {
        let mut ahead = Ahead::new(queue.clone(), SEARCHED_BYTES, end);
        let (mut at, mut named) = (end, None);
        // The end of the block before: a mark may have begun there.
        let mut begun: Vec<u8> = Vec::new();
        while let Some(block) = ahead.next(self)? {
            let Block {
                mut buffer,
                at: begin,
                len,
            } = block;
            let range = begin - begun.len()..begin + len;
            buffer[range.start..begin].copy_from_slice(&begun);
            let bytes = &buffer[range];
            let start = Lsn(at.0 - begun.len() as u64);
            named = named.max(highest(bytes, start, generation));
            let kept = bytes.len().min(FRAME_BYTES - 8);
            begun = bytes[bytes.len() - kept..].to_vec();
            at = Lsn(at.0 + len as u64);
        }
        match named.filter(|named| *named > end) {
            None => Ok(()),
            Some(durable) => Err(self.broken(end, durable)),
        }
    }

    fn broken(&self, at: Lsn, durable: Lsn) -> Error {
        let mut files = self.files.iter();
        let file = files.find(|f| f.header.start <= at && at < f.end);
        let file = file.expect("there is something behind it");
        let offset = FILE_HEADER + at.0 - file.header.start.0;
        let lost = durable.0 - at.0;
        Error::CorruptFile {
            path: file.file.path().to_path_buf(),
            expected: format!("whole redo up to LSN {durable}, which was durable"),
            found: format!(
                "a damaged frame at offset {offset}, LSN {at}: at least {lost} bytes of redo are lost. Restore a backup; or save the tables with \
                 varve_force_recovery 6, which opens the database as its data files are, without any redo"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mark at `place` in a stream of zeros that begins at 800, and what is found there.
    fn found(place: usize, change: impl Fn(&mut [u8])) -> Option<Lsn> {
        let body = body(Lsn(500));
        let word = frame::header_word(
            frame::body_crc(&[&body]),
            LENGTH,
            Lsn(800 + place as u64),
            3,
        );
        let mut stream = vec![0; 96];
        stream[place..place + 8].copy_from_slice(&word.to_le_bytes());
        stream[place + 8..place + 17].copy_from_slice(&body);
        change(&mut stream[place..]);
        highest(&stream, Lsn(800), 3)
    }

    #[test]
    fn a_mark_is_found_if_it_is_whole_and_in_its_place() {
        assert_eq!(frame::length_field(BODY_BYTES), LENGTH);
        for place in [0, 8, 72] {
            assert_eq!(found(place, |_| ()), Some(Lsn(500)));
            for byte in 0..17 {
                assert_eq!(found(place, |mark| mark[byte] ^= 4), None, "byte {byte}");
            }
            assert_eq!(
                found(place, |mark| mark[17] ^= 4),
                Some(Lsn(500)),
                "padding"
            );
        }
        assert_eq!(found(0, |stream| stream.copy_within(..24, 8)), None);
        assert_eq!(highest(&[0; 23], Lsn(800), 3), None);
    }
}
