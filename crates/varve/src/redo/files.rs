//! The log files `redo/NNNNNN.vlog`: what is in them, and which of them hold the stream from some LSN on.
//!
//! A file is a 4 KiB header and a piece of the stream. The header says the file's number, the LSN of its
//! first byte, the log's generation and the file's length: files of one log may have different lengths. Each
//! opening of the log for writing begins a new file with a higher generation exactly where recovery stopped;
//! what its predecessor holds beyond that LSN counts no more.
//!
//! - **LF-1** A file is part of the log iff its header is whole and carries the number of its name. A file
//!   with a zero header, or with another number (renamed, not yet taken into use), is a spare: only its space
//!   matters.
//! - **LF-2** A file's header and name are durable before the first byte of the stream is written to it.
//!   Numbers have no gap from the file that holds the checkpoint upward.
//! - **LF-3** A file is recycled only if it ends at or below the checkpoint in the control file, and nobody
//!   keeps it (KEEP-1).
//!
//! `file_pool` decides which file comes next.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::LogSettings;
use super::intro::{FileIntro, INTRO_BYTES, NO_SPACE};
use crate::base::{Error, Lsn, Result, map_together};
use crate::encryption::{Cipher, Encryption, Keyring, random};
use crate::io::{DIRECT_BLOCK, Disk, DiskFile, OpenMode};

/// The directory of log files within the data directory.
pub const REDO_DIR: &str = "redo";
/// Bytes before the first byte of the stream in a file.
pub const FILE_HEADER: u64 = DIRECT_BLOCK as u64;

const MAGIC: &[u8; 8] = b"VARVELOG";
/// The part of the header that is used: one sector, so that it is never torn.
pub(super) const HEADER_USED: usize = 512;
const CRC_AT: usize = HEADER_USED - 4;
const LOCK_AT: usize = INTRO_BYTES + 4 * 8;
const SUFFIX: &str = ".vlog";

/// Bytes of the stream for which a file of this length has room.
pub const fn payload(file_bytes: u64) -> u64 {
    file_bytes - FILE_HEADER
}

/// A log file's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub number: u64,
    pub start: Lsn,
    pub generation: u64,
    pub file_bytes: u64,
    /// `None`: its frames are not encrypted.
    pub lock: Option<LogLock>,
}

/// How the frames of a generation are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLock {
    pub key_version: u32,
    pub key: u32,
    /// Drawn when the log was opened (ENC-1).
    pub salt: [u8; 16],
}

impl LogLock {
    /// For a log that is being opened.
    pub fn new(keyring: &Keyring) -> Result<LogLock> {
        let key = Encryption::FIRST_KEY;
        Ok(LogLock {
            key_version: keyring.newest(key)?,
            key,
            salt: random(),
        })
    }

    pub fn cipher(&self, keyring: &Keyring) -> Result<Arc<Cipher>> {
        let cipher = keyring.of_log(&self.salt, self.key, self.key_version);
        cipher.map_err(|e| e.in_file(REDO_DIR))
    }

    fn put(&self, b: &mut [u8; HEADER_USED]) {
        b[LOCK_AT..LOCK_AT + 4].copy_from_slice(&self.key_version.to_le_bytes());
        b[LOCK_AT + 4..LOCK_AT + 8].copy_from_slice(&self.key.to_le_bytes());
        b[LOCK_AT + 8..LOCK_AT + 24].copy_from_slice(&self.salt);
    }

    fn read(b: &[u8; HEADER_USED]) -> Option<LogLock> {
        let word = |at: usize| u32::from_le_bytes(b[at..at + 4].try_into().expect("4 bytes"));
        let key_version = word(LOCK_AT);
        (key_version > 0).then(|| LogLock {
            key_version,
            key: word(LOCK_AT + 4),
            salt: b[LOCK_AT + 8..LOCK_AT + 24].try_into().expect("16 bytes"),
        })
    }
}

impl Header {
    /// The LSN after the last byte that fits.
    pub fn end(&self) -> Lsn {
        Lsn(self.start.0 + payload(self.file_bytes))
    }
}

pub(super) fn encode(header: &Header, settings: &LogSettings) -> [u8; HEADER_USED] {
    let mut b = [0u8; HEADER_USED];
    FileIntro::new(MAGIC, settings.page_size, settings.uuid, NO_SPACE).encode(&mut b);
    let words = [
        header.number,
        header.start.0,
        header.generation,
        header.file_bytes,
    ];
    for (i, word) in words.into_iter().enumerate() {
        let at = INTRO_BYTES + 8 * i;
        b[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    if let Some(lock) = &header.lock {
        lock.put(&mut b);
    }
    let crc = crc32c::crc32c(&b[..CRC_AT]);
    b[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    b
}

/// `None` if the header is all zero.
fn decode(b: &[u8; HEADER_USED], uuid: &[u8; 16], path: &Path) -> Result<Option<Header>> {
    if b.iter().all(|&x| x == 0) {
        return Ok(None);
    }
    let stored = u32::from_le_bytes(b[CRC_AT..].try_into().unwrap());
    let computed = crc32c::crc32c(&b[..CRC_AT]);
    if stored != computed {
        return Err(damaged(
            path,
            format!("header checksum {computed:08x}"),
            format!("{stored:08x}"),
        ));
    }
    FileIntro::decode(MAGIC, b, path)?.check_owner(uuid, path)?;
    let word = |i: usize| {
        let at = INTRO_BYTES + 8 * i;
        u64::from_le_bytes(b[at..at + 8].try_into().unwrap())
    };
    let header = Header {
        number: word(0),
        start: Lsn(word(1)),
        generation: word(2),
        file_bytes: word(3),
        lock: LogLock::read(b),
    };
    let sane = header.file_bytes > FILE_HEADER
        && header.file_bytes.is_multiple_of(8)
        && header.start.0.is_multiple_of(8)
        && header.start.0.checked_add(header.file_bytes).is_some();
    if !sane {
        return Err(damaged(
            path,
            "an aligned start and size".into(),
            format!("{header:?}"),
        ));
    }
    Ok(Some(header))
}

fn damaged(path: &Path, expected: String, found: String) -> Error {
    Error::CorruptFile {
        path: path.to_path_buf(),
        expected,
        found,
    }
}

pub(super) fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:06}{SUFFIX}"))
}

pub(super) fn number_of(name: &str) -> Option<u64> {
    name.strip_suffix(SUFFIX)?.parse().ok()
}

/// What lies in the log directory.
pub(super) struct Listing {
    /// LF-1: files that are part of the log, in ascending number.
    pub log: Vec<Header>,
    pub spares: Vec<Spare>,
}

/// A file whose space can be used again.
#[derive(Clone, Copy)]
pub(super) struct Spare {
    pub number: u64,
    pub len: u64,
    /// Whether it was in use before. If not, its space is only reserved.
    pub is_filled: bool,
    /// What it was filled with is not encrypted.
    pub is_clear: bool,
}

/// Reads all headers, with so many threads.
pub(super) fn list(
    disk: &dyn Disk,
    dir: &Path,
    uuid: &[u8; 16],
    threads: usize,
) -> Result<Listing> {
    let mut listing = Listing {
        log: Vec::new(),
        spares: Vec::new(),
    };
    let mut files = disk.list(dir)?;
    files.retain(|entry| number_of(&entry.name).is_some());
    let headers = map_together(&files, threads, |entry| {
        read_header(disk, &dir.join(&entry.name), entry.len, uuid)
    });
    for (entry, header) in files.into_iter().zip(headers) {
        let number = number_of(&entry.name).expect("others were left out");
        match header? {
            Some(header) if header.number == number => listing.log.push(header),
            header => listing.spares.push(Spare {
                number,
                len: entry.len,
                is_filled: header.is_some(),
                is_clear: header.is_some_and(|header| header.lock.is_none()),
            }),
        }
    }
    listing.log.sort_by_key(|h| h.number);
    Ok(listing)
}

/// What is wrong with single log files of database `uuid`: a header that is neither whole nor zero, a file
/// that is shorter than its header says.
pub fn damaged_files(disk: &dyn Disk, data_dir: &Path, uuid: &[u8; 16]) -> Result<Vec<Error>> {
    let dir = data_dir.join(REDO_DIR);
    let mut errors = Vec::new();
    for entry in disk.list(&dir)? {
        if number_of(&entry.name).is_none() {
            continue;
        }
        let path = dir.join(&entry.name);
        match read_header(disk, &path, entry.len, uuid) {
            Ok(Some(header)) if entry.len < header.file_bytes => {
                let expected = format!("{} bytes", header.file_bytes);
                errors.push(damaged(&path, expected, entry.len.to_string()));
            }
            Ok(_) => {}
            Err(e) => errors.push(e),
        }
    }
    Ok(errors)
}

/// `None`: a file that is too short for one, or was never in use.
fn read_header(disk: &dyn Disk, path: &Path, len: u64, uuid: &[u8; 16]) -> Result<Option<Header>> {
    let mut block = [0u8; HEADER_USED];
    if len >= FILE_HEADER {
        disk.open(path, OpenMode::ReadOnly)?
            .read_at(&mut block, 0)?;
    }
    decode(&block, uuid, path)
}

/// The files that hold the stream from some LSN on, each up to where the next one begins.
#[derive(Clone)]
pub struct Chain {
    pub files: Vec<ChainFile>,
}

#[derive(Clone)]
pub struct ChainFile {
    pub header: Header,
    /// Where the file's part of the stream ends: its own end, or an earlier start of its successor.
    pub end: Lsn,
    pub file: Arc<dyn DiskFile>,
    /// If its frames are encrypted.
    pub cipher: Option<Arc<Cipher>>,
}

impl Chain {
    /// Opens the files from the one that holds `from` upward. The headers of all files are read, with so many
    /// threads.
    pub fn open(
        disk: &dyn Disk,
        dir: &Path,
        uuid: &[u8; 16],
        from: Lsn,
        threads: usize,
        keyring: &Keyring,
    ) -> Result<Chain> {
        let listing = list(disk, dir, uuid, threads)?;
        Chain::of(disk, dir, &listing.log, from, keyring)
    }

    pub(super) fn of(
        disk: &dyn Disk,
        dir: &Path,
        log: &[Header],
        from: Lsn,
        keyring: &Keyring,
    ) -> Result<Chain> {
        let Some(first) = log.iter().rposition(|h| h.start <= from) else {
            return Err(missing(dir, from));
        };
        let headers = &log[first..];
        let mut files = Vec::new();
        for (i, header) in headers.iter().enumerate() {
            let path = path_of(dir, header.number);
            let end = match headers.get(i + 1) {
                None => header.end(),
                Some(next) if next.number != header.number + 1 => {
                    return Err(missing(dir, header.end()));
                }
                Some(next) if next.start < header.start || next.start > header.end() => {
                    let found = format!("{} in {:06}{SUFFIX}", next.start, next.number);
                    let expected = format!("a successor from {} to {}", header.start, header.end());
                    return Err(damaged(&path, expected, found));
                }
                Some(next) => next.start,
            };
            let file = disk.open(&path, OpenMode::Existing)?;
            if file.len()? < header.file_bytes {
                let expected = format!("{} bytes", header.file_bytes);
                return Err(damaged(&path, expected, format!("{}", file.len()?)));
            }
            let cipher = header.lock.map(|lock| lock.cipher(keyring)).transpose()?;
            files.push(ChainFile {
                header: *header,
                end,
                file,
                cipher,
            });
        }
        if files.last().is_none_or(|last| from > last.end) {
            return Err(missing(dir, from));
        }
        Ok(Chain { files })
    }
}

impl Chain {
    /// Generation and end of the run of files of one generation that holds the byte at `at`.
    pub(super) fn run_at(&self, at: Lsn) -> Option<(u64, Lsn)> {
        let first = self.files.iter().position(|f| at < f.end)?;
        let generation = self.files[first].header.generation;
        let run = &self.files[first..];
        let last = run
            .iter()
            .take_while(|f| f.header.generation == generation)
            .last()?;
        Some((generation, last.end))
    }

    /// With which the frames of a generation are encrypted.
    pub(super) fn cipher(&self, generation: u64) -> Option<&Arc<Cipher>> {
        let mut files = self.files.iter();
        let file = files.find(|f| f.header.generation == generation)?;
        file.cipher.as_ref()
    }

    /// A log that was opened again later can't end before that opening. `generation`: of what is not whole at
    /// `end`.
    pub(super) fn check_end(&self, generation: u64, end: Lsn) -> Result<()> {
        let later = |f: &&ChainFile| f.header.generation > generation;
        match self.files.iter().find(later) {
            None => Ok(()),
            Some(next) => Err(damaged(
                next.file.path(),
                format!("whole redo up to its start, LSN {}", next.header.start),
                format!("a damaged frame at LSN {end}"),
            )),
        }
    }
}

pub(super) fn missing(dir: &Path, lsn: Lsn) -> Error {
    damaged(
        dir,
        format!("a redo log file that holds LSN {lsn}"),
        "none".into(),
    )
}

/// A file that the stream is being written to.
pub struct LogFile {
    pub header: Header,
    pub file: Arc<dyn DiskFile>,
}

impl LogFile {
    /// Where in the file a position of the stream lies.
    pub fn offset(&self, position: u64) -> u64 {
        debug_assert!(position >= self.header.start.0 && position <= self.header.end().0);
        FILE_HEADER + position - self.header.start.0
    }
}
