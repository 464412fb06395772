//! A copy of a part of the log, as files of their own, made while the log goes on.
//!
//! The copy's files have the log's numbers and generations, and a header that says where their piece of the
//! stream begins and how long they are. Each has what was durable of a file of the log, from the copy's
//! beginning on, and zeros behind it: so the copied stream ends where copying ended, and may be read like any
//! other (WAL-3).
//!
//! - **LCOPY-1** Every frame of the copy was whole when it was written there: its checksum is right for its
//!   LSN and generation. The same is true of what [`verify_copied_log`] has read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::LogSettings;
use super::file_pool::{InUse, LEAST_FILE_BYTES};
use super::files::{FILE_HEADER, HEADER_USED, Header, REDO_DIR, encode, list, missing, path_of};
use super::frame::{self, FRAME_HEADER};
use super::kept::KeptRedo;
use crate::base::{Error, Lsn, Result};
use crate::io::{AlignedBuf, DIRECT_BLOCK, Disk, DiskFile, OpenMode};

/// So much is read at a time.
const CHUNK: usize = 1 << 20;

/// A file that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopiedLogFile {
    /// In the directory of the log.
    pub name: String,
    pub bytes: u64,
    /// CRC-32C of all of it.
    pub crc: u32,
}

/// See the introduction. Dropped before `finish`, it leaves files that are no log.
pub struct LogCopy {
    kept: KeptRedo,
    settings: LogSettings,
    disk: Arc<dyn Disk>,
    /// The copy's directory.
    dir: PathBuf,
    /// What lies before it was copied.
    at: Lsn,
    /// The file of the log that holds that.
    source: Option<(InUse, Arc<dyn DiskFile>)>,
    made: Option<Made>,
    done: Vec<CopiedLogFile>,
    frames: Frames,
    buf: AlignedBuf,
}

/// The copy's newest file.
struct Made {
    header: Header,
    file: Arc<dyn DiskFile>,
    /// Of what stands behind the header.
    crc: u32,
}

impl LogCopy {
    /// A copy of the log from where `kept` keeps it, in this data directory.
    pub fn begin(
        from: Lsn,
        kept: KeptRedo,
        disk: Arc<dyn Disk>,
        data_dir: &Path,
    ) -> Result<LogCopy> {
        let dir = data_dir.join(REDO_DIR);
        disk.create_dir_all(&dir)?;
        let settings = kept.log().files.lock().settings().clone();
        Ok(LogCopy {
            kept,
            settings,
            disk,
            dir,
            at: from,
            source: None,
            made: None,
            done: Vec::new(),
            frames: Frames::new(from),
            buf: AlignedBuf::new(CHUNK + 2 * DIRECT_BLOCK),
        })
    }

    /// What lies before it was copied.
    pub fn end(&self) -> Lsn {
        self.at
    }

    /// Copies what is durable by now.
    pub fn follow(&mut self) -> Result<()> {
        self.copy_to(self.kept.log().durable_lsn())
    }

    /// Copies what lies before `until`, which is durable.
    ///
    /// # Errors
    ///
    /// `TooLarge`: the log did not wait any longer (KEEP-2).
    pub fn copy_to(&mut self, until: Lsn) -> Result<()> {
        while self.at < until {
            let copied = self.copy_some(until);
            // What was read may be another file's by then.
            self.kept.check()?;
            copied?;
        }
        Ok(())
    }

    fn copy_some(&mut self, until: Lsn) -> Result<()> {
        self.kept.check()?;
        let (source, file) = self.source()?;
        let (at, header) = (self.at, source.header);
        let end = until.min(source.end).min(Lsn(at.0 + CHUNK as u64));
        let in_file = |lsn: Lsn| FILE_HEADER + lsn.0 - header.start.0;
        // Whole blocks (IO-6).
        let unit = DIRECT_BLOCK as u64;
        let first = in_file(at) / unit * unit;
        let last = in_file(end).next_multiple_of(unit);
        let buf = &mut self.buf[..(last - first) as usize];
        file.read_at(buf, first)?;
        let begin = (in_file(at) - first) as usize;
        let bytes = &buf[begin..begin + (end.0 - at.0) as usize];
        let whole = self.frames.take(bytes, header.generation);
        whole.map_err(|lsn| not_whole(file.path(), lsn))?;
        let made = match &mut self.made {
            Some(made) => made,
            none => {
                let path = path_of(&self.dir, header.number);
                none.insert(Made {
                    header: Header {
                        start: at,
                        ..header
                    },
                    file: self.disk.open(&path, OpenMode::CreatePrivate)?,
                    crc: 0,
                })
            }
        };
        let offset = FILE_HEADER + at.0 - made.header.start.0;
        made.file.write_at(bytes, offset)?;
        made.crc = crc32c::crc32c_append(made.crc, bytes);
        self.at = end;
        self.kept.advance(end);
        Ok(())
    }

    /// The file of the log that holds what comes next.
    fn source(&mut self) -> Result<(InUse, Arc<dyn DiskFile>)> {
        if let Some((source, file)) = &self.source {
            if self.at < source.end {
                return Ok((*source, file.clone()));
            }
            self.end_file()?;
        }
        let at = self.at;
        let files = self
            .kept
            .log()
            .files
            .lock()
            .files_to_read(at..Lsn(at.0 + 1));
        let Some(&source) = files.files.first() else {
            return Err(missing(&files.dir, at));
        };
        let path = path_of(&files.dir, source.header.number);
        let file = match files.buffered {
            true => files.disk.open(&path, OpenMode::ReadOnly)?,
            false => files.disk.open_direct(&path)?,
        };
        self.source = Some((source, file.clone()));
        Ok((source, file))
    }

    /// There was nothing to copy. A log has a file all the same.
    fn make_empty(&mut self) -> Result<()> {
        let newest = self.kept.log().files.lock().newest_written();
        let is_full = newest.end() <= self.at;
        let header = Header {
            number: newest.number + u64::from(is_full),
            start: self.at,
            ..newest
        };
        let path = path_of(&self.dir, header.number);
        self.made = Some(Made {
            header,
            file: self.disk.open(&path, OpenMode::CreatePrivate)?,
            crc: 0,
        });
        Ok(())
    }

    /// The copy's file gets its header, which says how long it is, and is durable.
    fn end_file(&mut self) -> Result<()> {
        self.source = None;
        let Some(mut made) = self.made.take() else {
            return Ok(());
        };
        let used = self.at.0 - made.header.start.0;
        let bytes = (FILE_HEADER + used).next_multiple_of(DIRECT_BLOCK as u64);
        let bytes = bytes.max(LEAST_FILE_BYTES);
        made.file.set_len(bytes)?;
        made.header.file_bytes = bytes;
        let mut block = vec![0; FILE_HEADER as usize];
        block[..HEADER_USED].copy_from_slice(&encode(&made.header, &self.settings));
        made.file.write_at(&block, 0)?;
        made.file.sync()?;
        let zeros = (bytes - FILE_HEADER - used) as usize;
        let behind = crc32c::crc32c_append(made.crc, &vec![0; zeros]);
        let behind_bytes = (bytes - FILE_HEADER) as usize;
        let name = path_of(Path::new(""), made.header.number);
        self.done.push(CopiedLogFile {
            name: name.to_string_lossy().into_owned(),
            bytes,
            crc: crc32c::crc32c_combine(crc32c::crc32c(&block), behind, behind_bytes),
        });
        Ok(())
    }

    /// The copy is complete, and durable but for its directory. What it consists of.
    pub fn finish(&mut self) -> Result<Vec<CopiedLogFile>> {
        if self.made.is_none() && self.done.is_empty() {
            self.make_empty()?;
        }
        self.end_file()?;
        assert!(
            self.frames.begun.is_empty(),
            "what is durable ends with a frame"
        );
        self.kept.end();
        self.disk.sync_dir(&self.dir)?;
        Ok(std::mem::take(&mut self.done))
    }
}

/// Reads a copy of the log of database `uuid`: that each frame from `from` to `to` is there, and whole.
pub fn verify_copied_log(
    disk: &dyn Disk,
    data_dir: &Path,
    uuid: &[u8; 16],
    from: Lsn,
    to: Lsn,
) -> Result<()> {
    let dir = data_dir.join(REDO_DIR);
    let log = list(disk, &dir, uuid, 1)?.log;
    let mut frames = Frames::new(from);
    let (mut at, mut buf) = (from, vec![0; CHUNK]);
    for (n, header) in log.iter().enumerate() {
        let next = log.get(n + 1).map_or(to, |next| next.start);
        let until = header.end().min(next).min(to);
        if at < header.start || at >= until {
            continue;
        }
        let path = path_of(&dir, header.number);
        let file = disk.open(&path, OpenMode::ReadOnly)?;
        while at < until {
            let some = &mut buf[..((until.0 - at.0) as usize).min(CHUNK)];
            file.read_at(some, FILE_HEADER + at.0 - header.start.0)?;
            let whole = frames.take(some, header.generation);
            whole.map_err(|lsn| not_whole(&path, lsn))?;
            at = Lsn(at.0 + some.len() as u64);
        }
    }
    match at == to && frames.begun.is_empty() {
        true => Ok(()),
        false => Err(missing(&dir, at)),
    }
}

fn not_whole(path: &Path, lsn: Lsn) -> Error {
    Error::CorruptFile {
        path: path.to_path_buf(),
        expected: format!("a whole frame at LSN {lsn}"),
        found: "a damaged one".into(),
    }
}

/// Checks frames that come in pieces.
struct Frames {
    /// Where the next one begins.
    at: Lsn,
    /// Bytes of it.
    begun: Vec<u8>,
    generation: u64,
}

impl Frames {
    fn new(at: Lsn) -> Frames {
        Frames {
            at,
            begun: Vec::new(),
            generation: 0,
        }
    }

    /// The next bytes of the stream. An error is the LSN of a frame that is not whole.
    fn take(&mut self, mut bytes: &[u8], generation: u64) -> std::result::Result<(), Lsn> {
        if !self.begun.is_empty() && generation != self.generation {
            return Err(self.at);
        }
        self.generation = generation;
        // What one lacks that was begun.
        while !self.begun.is_empty() {
            let lacks = self.wanted(&self.begun)? - self.begun.len();
            let more;
            (more, bytes) = bytes.split_at(lacks.min(bytes.len()));
            self.begun.extend_from_slice(more);
            if self.begun.len() == self.wanted(&self.begun)? {
                let whole = std::mem::take(&mut self.begun);
                self.check(&whole)?;
            } else if bytes.is_empty() {
                return Ok(());
            }
        }
        loop {
            let wanted = self.wanted(bytes)?;
            let Some((whole, rest)) = bytes.split_at_checked(wanted) else {
                break;
            };
            self.check(whole)?;
            bytes = rest;
        }
        self.begun.extend_from_slice(bytes);
        Ok(())
    }

    /// How long the frame is that begins so, or how much of it says that.
    fn wanted(&self, begun: &[u8]) -> std::result::Result<usize, Lsn> {
        let Some(word) = begun.first_chunk() else {
            return Ok(FRAME_HEADER);
        };
        let lengths = frame::lengths(u64::from_le_bytes(*word));
        lengths.map(|(total, _)| total).ok_or(self.at)
    }

    /// This is the frame that belongs there.
    fn check(&mut self, whole: &[u8]) -> std::result::Result<(), Lsn> {
        let (word, body) = whole.split_first_chunk().ok_or(self.at)?;
        let word = u64::from_le_bytes(*word);
        let (total, len) = frame::lengths(word).ok_or(self.at)?;
        if !frame::verify(word, &body[..len], self.at, self.generation) {
            return Err(self.at);
        }
        self.at = Lsn(self.at.0 + total as u64);
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Frames with bodies of these lengths, from LSN 64 on.
    fn stream(bodies: &[usize], generation: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (n, len) in bodies.iter().enumerate() {
            let body = vec![n as u8 + 1; *len];
            let length = frame::length_field(*len);
            let start = Lsn(64 + bytes.len() as u64);
            let crc = frame::body_crc(&[&body]);
            let word = frame::header_word(crc, length, start, generation);
            let end = bytes.len() + frame::frame_bytes(*len);
            bytes.extend_from_slice(&word.to_le_bytes());
            bytes.extend_from_slice(&body);
            bytes.resize(end, 0);
        }
        bytes
    }

    /// LCOPY-1
    #[test]
    fn frames_that_come_in_pieces_are_checked() {
        let bytes = stream(&[1, 100, 8, 3000], 5);
        for piece in [1, 7, 64, bytes.len()] {
            let mut frames = Frames::new(Lsn(64));
            let mut pieces = bytes.chunks(piece);
            assert!(pieces.all(|piece| frames.take(piece, 5).is_ok()));
            assert!(frames.begun.is_empty());
            assert_eq!(frames.at, Lsn(64 + bytes.len() as u64));
        }
        // Not the padding of the first one, which says nothing.
        for at in (0..9).chain(16..bytes.len()) {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let mut frames = Frames::new(Lsn(64));
            let taken = frames.take(&changed, 5);
            let is_told = taken.is_err() || !frames.begun.is_empty();
            // The padding of the others.
            assert!(is_told || changed[at] == 1, "byte {at}");
        }
        assert_eq!(Frames::new(Lsn(64)).take(&bytes, 6), Err(Lsn(64)));
        assert_eq!(Frames::new(Lsn(72)).take(&bytes, 5), Err(Lsn(72)));
        let mut frames = Frames::new(Lsn(64));
        frames.take(&bytes[..20], 5).unwrap();
        assert!(
            frames.take(&bytes[20..], 6).is_err(),
            "a frame of two generations"
        );
    }
}
