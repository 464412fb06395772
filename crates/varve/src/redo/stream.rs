//! The log's files from some LSN on, open: several readers may go through them and read single frames, also
//! while the log goes on in other files.
//!
//! - **WAL-8** What a stream is read up to (`until`) was found to be whole before, or is looked for by one
//!   reader alone. Files that are written to later are not read: a stream whose end is known is cut there
//!   ([`Stream::cut`]).

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::files::{Chain, FILE_HEADER, Header, REDO_DIR, path_of};
use super::frame::{self, FRAME_HEADER};
use super::pieces::{PieceReader, Through};
use super::reader::Frame;
use crate::base::{DISK_THREADS, Error, Lsn, Result};
use crate::encryption::{Cipher, Keyring};
use crate::io::{AlignedBuf, DIRECT_BLOCK, Disk, IoQueue, Read};

/// Frames so near to each other are read in one go.
pub const GAP_BYTES: u64 = 16 << 10;
/// And no more than so much.
const MOST_RUN_BYTES: u64 = 1 << 20;

#[derive(Clone)]
pub struct Stream {
    chain: Chain,
    queue: Arc<IoQueue>,
}

impl Stream {
    /// Opens the log of database `uuid` in `data_dir` from `from` on, which must be a frame's start.
    pub fn open(
        disk: &dyn Disk,
        data_dir: &Path,
        uuid: &[u8; 16],
        from: Lsn,
        queue: &Arc<IoQueue>,
        through: Through,
        keyring: &Keyring,
    ) -> Result<Stream> {
        let dir = data_dir.join(REDO_DIR);
        let threads = match queue.is_asynchronous() {
            true => DISK_THREADS,
            false => 1,
        };
        let mut chain = Chain::open(disk, &dir, uuid, from, threads, keyring)?;
        if through == Through::Direct {
            let whole = |bytes: u64| bytes.is_multiple_of(DIRECT_BLOCK as u64);
            for f in chain
                .files
                .iter_mut()
                .filter(|f| whole(f.header.file_bytes))
            {
                f.file = disk.open_direct(&path_of(&dir, f.header.number))?;
            }
        }
        Ok(Stream {
            chain,
            queue: queue.clone(),
        })
    }

    /// Of files that are open.
    pub(super) fn of(chain: Chain, queue: Arc<IoQueue>) -> Stream {
        Stream { chain, queue }
    }

    /// The files, each with where its part of the stream ends.
    pub fn files(&self) -> impl Iterator<Item = (Header, Lsn)> {
        self.chain.files.iter().map(|f| (f.header, f.end))
    }

    /// Whether some of it is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.chain.files.iter().any(|f| f.cipher.is_some())
    }

    /// With which the frames of a generation are encrypted.
    pub fn cipher(&self, generation: u64) -> Option<&Arc<Cipher>> {
        self.chain.cipher(generation)
    }

    /// Where the stream ends at the latest.
    pub fn end(&self) -> Lsn {
        self.chain.files.last().map_or(Lsn(0), |f| f.end)
    }

    /// Without what is at `until` and beyond.
    pub fn cut(&self, until: Lsn) -> Stream {
        let mut cut = self.clone();
        let files = &mut cut.chain.files;
        files.retain(|f| f.header.start < until);
        if let Some(last) = files.last_mut() {
            last.end = last.end.min(until);
        }
        cut
    }

    /// Reads it from `from` on, a frame's start, in pieces of about `piece_bytes`.
    pub fn pieces(&self, from: Lsn, piece_bytes: usize) -> PieceReader {
        PieceReader::of(self.chain.clone(), from, &self.queue, piece_bytes)
    }

    /// Reads these frames, which ascend, all at the same time where the disk can do that.
    ///
    /// # Errors
    ///
    /// `CorruptFile`: one is not there.
    pub fn frames(&self, places: &[(Lsn, Lsn)]) -> Result<Fetched> {
        let mut runs: Vec<Range<Lsn>> = Vec::new();
        for &(start, end) in places {
            match runs.last_mut() {
                Some(run) if fits(run, start..end) => run.end = run.end.max(end),
                _ => runs.push(start..end),
            }
        }
        let mut parts = Vec::new();
        let mut reads = Vec::new();
        for run in &runs {
            let begin = reads.len();
            self.reads_of(run.clone(), &mut parts, &mut reads)?;
            assert!(reads.len() > begin, "a run has a byte");
        }
        let readings = self.queue.read_all(reads);
        let mut fetched = Fetched {
            runs: Vec::with_capacity(runs.len()),
            generations: Vec::new(),
            places: places.to_vec(),
            decrypted: Vec::new(),
        };
        let mut blocks = readings.into_iter().zip(parts);
        for Range { start, end } in runs {
            let len = (end.0 - start.0) as usize;
            let mut bytes = Vec::with_capacity(len);
            while bytes.len() < len {
                let (reading, part) = blocks.next().expect("the parts make up the runs");
                bytes.extend_from_slice(&reading.wait()?[part]);
            }
            fetched.runs.push((start, bytes));
        }
        for (n, &(start, _)) in places.iter().enumerate() {
            let generation = self.chain.run_at(start).map(|(generation, _)| generation);
            let generation = generation.ok_or_else(|| self.lacks(start))?;
            fetched.generations.push(generation);
            if let Some(cipher) = self.chain.cipher(generation) {
                fetched.decrypt(n, cipher)?;
            }
        }
        Ok(fetched)
    }

    /// The reads for a run of the stream, and where the run is in each.
    fn reads_of(
        &self,
        run: Range<Lsn>,
        parts: &mut Vec<Range<usize>>,
        reads: &mut Vec<Read>,
    ) -> Result<()> {
        let unit = DIRECT_BLOCK as u64;
        let Range { start: mut at, end } = run;
        while at < end {
            let mut files = self.chain.files.iter();
            let holds = files.find(|f| f.header.start <= at && at < f.end);
            let f = holds.ok_or_else(|| self.lacks(at))?;
            let until = end.min(f.end);
            let in_file = |lsn: Lsn| FILE_HEADER + lsn.0 - f.header.start.0;
            // Whole blocks of the file: IO-6.
            let from = in_file(at) / unit * unit;
            let to = in_file(until)
                .next_multiple_of(unit)
                .min(f.header.file_bytes);
            let len = (to - from) as usize;
            reads.push(Read {
                file: f.file.clone(),
                offset: from,
                into: AlignedBuf::new(len.next_multiple_of(DIRECT_BLOCK)),
                range: 0..len,
            });
            let begin = (in_file(at) - from) as usize;
            parts.push(begin..begin + (until.0 - at.0) as usize);
            at = until;
        }
        Ok(())
    }

    fn lacks(&self, lsn: Lsn) -> Error {
        let first = self.chain.files.first().expect("a chain has a file");
        let dir = first.file.path().parent().unwrap_or(first.file.path());
        Error::CorruptFile {
            path: dir.to_path_buf(),
            expected: format!("a redo log file that holds LSN {lsn}"),
            found: "none".into(),
        }
    }

    /// The log's part from `lsn` on is not what it was when an index was made.
    pub fn damaged(&self, lsn: Lsn) -> Error {
        let mut files = self.chain.files.iter();
        let file = files.rfind(|f| f.header.start <= lsn);
        match file {
            None => self.lacks(lsn),
            Some(f) => Error::CorruptFile {
                path: f.file.path().to_path_buf(),
                expected: format!("a whole frame at LSN {lsn}"),
                found: "a damaged one".into(),
            },
        }
    }
}

fn fits(run: &Range<Lsn>, frame: Range<Lsn>) -> bool {
    frame.start.0 <= run.end.0 + GAP_BYTES && frame.end.0 - run.start.0 <= MOST_RUN_BYTES
}

/// Frames that were read one by one.
pub struct Fetched {
    /// Parts of the stream that hold them, with their starts.
    runs: Vec<(Lsn, Vec<u8>)>,
    places: Vec<(Lsn, Lsn)>,
    /// Of each frame.
    generations: Vec<u64>,
    /// The starts of those that were encrypted, ascending.
    decrypted: Vec<Lsn>,
}

impl Fetched {
    /// Where one of them is: its run, and the place there.
    fn place(&self, n: usize) -> Option<(usize, Range<usize>)> {
        let (start, end) = self.places[n];
        let run = self.runs.partition_point(|run| run.0 <= start);
        let run = run.checked_sub(1)?;
        let begin = (start.0 - self.runs[run].0.0) as usize;
        Some((run, begin..begin + (end.0 - start.0) as usize))
    }

    /// The header word of a frame that has these bytes, and its body's place.
    fn body(bytes: &[u8]) -> Option<(u64, Range<usize>)> {
        let word = u64::from_le_bytes(bytes.get(..FRAME_HEADER)?.try_into().expect("8 bytes"));
        let (total, body) = frame::lengths(word).filter(|(total, _)| *total == bytes.len())?;
        debug_assert!(total >= FRAME_HEADER + body);
        Some((word, FRAME_HEADER..FRAME_HEADER + body))
    }

    /// Decrypts a frame in its place, if it is one.
    fn decrypt(&mut self, n: usize, cipher: &Cipher) -> Result<()> {
        let start = self.places[n].0;
        if self.decrypted.last() == Some(&start) {
            return Ok(());
        }
        let generation = self.generations[n];
        let Some((run, place)) = self.place(n) else {
            return Ok(());
        };
        let bytes = self.runs[run].1.get_mut(place);
        if let Some(bytes) = bytes
            && let Some((word, body)) = Fetched::body(bytes)
            && frame::verify(word, &bytes[body.clone()], start, generation)
        {
            frame::decrypt(cipher, start, &mut bytes[body])?;
            self.decrypted.push(start);
        }
        Ok(())
    }

    /// One of them by its number; `None` if what was read is no such frame.
    pub fn frame(&self, n: usize) -> Option<Frame<'_>> {
        let (start, end) = self.places[n];
        let (run, place) = self.place(n)?;
        let bytes = self.runs[run].1.get(place)?;
        let (word, body) = Fetched::body(bytes)?;
        let body = &bytes[body];
        if self.decrypted.binary_search(&start).is_ok() {
            let body = frame::without_tag(body);
            return Some(Frame { start, end, body });
        }
        let is_whole = frame::verify(word, body, start, self.generations[n]);
        is_whole.then_some(Frame { start, end, body })
    }
}
