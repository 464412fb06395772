//! The log files `redo/NNNNNN.vlog`: preallocated, used in ascending number, recycled once below the checkpoint.
//!
//! A file is a 4 KiB header and a piece of the stream. The header says the file's number, the LSN of its first byte
//! and the log's generation. Each opening of the log for writing begins a new file with a higher generation exactly
//! where recovery stopped; what its predecessor holds beyond that LSN counts no more.
//!
//! - **LF-1** A file is part of the log iff its header is whole and carries the number of its name. A file with a
//!   zero header, or with another number (renamed, not yet taken into use), is a spare: only its space matters.
//! - **LF-2** A file's header and name are durable before the first byte of the stream is written to it. Numbers have
//!   no gap from the file that holds the checkpoint upward.
//! - **LF-3** A file is recycled only if it ends at or below the checkpoint in the control file.
//!
//! The space for `capacity + 2 files` is allocated when the log is created, so that neither the log writer nor opening the log
//! again meets a full disk. Each opening leaves a file that is used in part, so after several crashes without a checkpoint in between
//! there may have to be more of them. Space that is only reserved is filled with zeros once, when its file is taken into use for the
//! first time: otherwise each sync of the first pass over it makes the file system record durably which blocks are used
//! now. (Measured on ext4: groups of 8,000 bytes wait for the disk three times instead of twice, 160 instead of 110 µs.)
//!
//! Files are written past the operating system's cache, unless the settings say otherwise: what has been written is not
//! read again before a restart, and the cache costs a copy and its upkeep.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::LogSettings;
use super::intro::{FileIntro, INTRO_BYTES, NO_SPACE};
use crate::base::{Error, Lsn, Result};
use crate::io::{AlignedBuf, DIRECT_BLOCK, Disk, DiskFile, OpenMode};

/// The directory of log files within the data directory.
pub const REDO_DIR: &str = "redo";
/// Bytes before the first byte of the stream in a file.
pub const FILE_HEADER: u64 = DIRECT_BLOCK as u64;

const MAGIC: &[u8; 8] = b"VARVELOG";
/// The part of the header that is used: one sector, so that it is never torn.
const HEADER_USED: usize = 512;
const CRC_AT: usize = HEADER_USED - 4;
const SUFFIX: &str = ".vlog";

/// A log file's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub number: u64,
    pub start: Lsn,
    pub generation: u64,
    pub file_bytes: u64,
}

impl Header {
    /// The LSN after the last byte that fits.
    pub fn end(&self) -> Lsn {
        Lsn(self.start.0 + self.file_bytes - FILE_HEADER)
    }
}

fn encode(header: &Header, settings: &LogSettings) -> [u8; HEADER_USED] {
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

fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:06}{SUFFIX}"))
}

fn number_of(name: &str) -> Option<u64> {
    name.strip_suffix(SUFFIX)?.parse().ok()
}

/// What lies in the log directory.
struct Listing {
    /// LF-1: files that are part of the log, in ascending number.
    log: Vec<Header>,
    spares: Vec<Spare>,
}

/// A file of the log that is not written any more, and may have the length of other settings.
struct Older {
    number: u64,
    len: u64,
    /// The LSN after its part of the stream.
    end: Lsn,
}

/// A file whose space can be used again.
#[derive(Clone, Copy)]
struct Spare {
    number: u64,
    len: u64,
    /// Whether it was in use before. If not, its space is only reserved.
    is_filled: bool,
}

fn list(disk: &dyn Disk, dir: &Path, uuid: &[u8; 16]) -> Result<Listing> {
    let mut listing = Listing {
        log: Vec::new(),
        spares: Vec::new(),
    };
    for entry in disk.list(dir)? {
        let Some(number) = number_of(&entry.name) else {
            continue;
        };
        let path = dir.join(&entry.name);
        match read_header(disk, &path, entry.len, uuid)? {
            Some(header) if header.number == number => listing.log.push(header),
            header => listing.spares.push(Spare {
                number,
                len: entry.len,
                is_filled: header.is_some(),
            }),
        }
    }
    listing.log.sort_by_key(|h| h.number);
    Ok(listing)
}

/// What is wrong with single log files of database `uuid`: a header that is neither whole nor zero, a file that is shorter than
/// its header says.
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
pub struct Chain {
    pub files: Vec<ChainFile>,
}

pub struct ChainFile {
    pub header: Header,
    /// Where the file's part of the stream ends: its own end, or an earlier start of its successor.
    pub end: Lsn,
    pub file: Arc<dyn DiskFile>,
}

impl Chain {
    /// Opens the files from the one that holds `from` upward.
    pub fn open(disk: &dyn Disk, dir: &Path, uuid: &[u8; 16], from: Lsn) -> Result<Chain> {
        Chain::of(disk, dir, &list(disk, dir, uuid)?.log, from)
    }

    fn of(disk: &dyn Disk, dir: &Path, log: &[Header], from: Lsn) -> Result<Chain> {
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
            files.push(ChainFile {
                header: *header,
                end,
                file,
            });
        }
        if files.last().is_none_or(|last| from > last.end) {
            return Err(missing(dir, from));
        }
        Ok(Chain { files })
    }
}

fn missing(dir: &Path, lsn: Lsn) -> Error {
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

/// Hands out the next file of the stream and takes back finished ones. Guarded by a mutex of its own, so that the
/// background thread prepares a file while the writer writes.
pub struct FilePool {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    settings: LogSettings,
    generation: u64,
    /// Files before the current one, ascending.
    older: VecDeque<Older>,
    /// All have `settings.file_bytes`.
    spares: VecDeque<Spare>,
    /// The current file's successor, with its header durable.
    prepared: Option<LogFile>,
    /// Number and end of the newest file, current or prepared.
    newest: (u64, Lsn),
}

impl FilePool {
    /// Creates the log directory with a first file that begins at `start`.
    pub fn create(
        disk: Arc<dyn Disk>,
        data_dir: &Path,
        settings: LogSettings,
        start: Lsn,
    ) -> Result<(FilePool, LogFile)> {
        let dir = data_dir.join(REDO_DIR);
        disk.create_dir_all(&dir)?;
        disk.sync_dir(data_dir)?;
        let mut pool = FilePool {
            disk,
            dir,
            settings,
            generation: 1,
            older: VecDeque::new(),
            spares: VecDeque::new(),
            prepared: None,
            newest: (0, start),
        };
        pool.top_up()?;
        let first = pool.begin_file()?;
        Ok((pool, first))
    }

    /// Opens the log after recovery found its end: drops what lies beyond `end` and begins a new generation there.
    pub fn open_at(
        disk: Arc<dyn Disk>,
        data_dir: &Path,
        settings: LogSettings,
        checkpoint: Lsn,
        end: Lsn,
    ) -> Result<(FilePool, LogFile)> {
        let dir = data_dir.join(REDO_DIR);
        let listing = list(&*disk, &dir, &settings.uuid)?;
        let chain = Chain::of(&*disk, &dir, &listing.log, checkpoint)?;
        let mut spares = listing.spares;
        let in_log = |h: &Header| Spare {
            number: h.number,
            len: h.file_bytes,
            is_filled: true,
        };
        let below = |h: &&Header| h.number < chain.files[0].header.number;
        let unused = listing.log.iter().take_while(below);
        spares.extend(unused.map(in_log));

        let mut older = VecDeque::new();
        // From the highest number down, so that numbers never have a gap (LF-2).
        for (i, f) in chain.files.iter().enumerate().rev() {
            if i > 0 && f.header.start >= end {
                f.file.write_at(&[0; HEADER_USED], 0)?;
                f.file.sync()?;
                spares.push(in_log(&f.header));
            } else {
                // What recovery read may still be in the operating system's cache only, and the new generation says
                // that it is whole.
                f.file.sync()?;
                older.push_front(Older {
                    number: f.header.number,
                    len: f.header.file_bytes,
                    end: f.end.min(end),
                });
            }
        }
        let generations = listing.log.iter().map(|h| h.generation);
        let last = older.back().expect("the chain's first file is kept");
        let newest = (last.number, end);
        let mut pool = FilePool {
            disk,
            dir,
            settings,
            generation: generations.max().unwrap_or(0) + 1,
            older,
            spares: VecDeque::new(),
            prepared: None,
            newest,
        };
        // As many files as are wanted need nothing of the disk, which may be full.
        pool.adopt(spares, 0)?;
        pool.top_up()?;
        let first = pool.begin_file()?;
        Ok((pool, first))
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Keeps spares of the right size, removes the others. `current`: how many files the stream is being written to.
    fn adopt(&mut self, mut found: Vec<Spare>, current: usize) -> Result<()> {
        found.sort_unstable_by_key(|spare| spare.number);
        let wanted = self.files_wanted();
        for spare in found {
            let have = self.older.len() + current + self.spares.len();
            if spare.len == self.settings.file_bytes && have < wanted {
                self.spares.push_back(spare);
            } else {
                self.disk.remove(&path_of(&self.dir, spare.number))?;
            }
        }
        Ok(())
    }

    fn files_wanted(&self) -> usize {
        let payload = self.settings.file_bytes - FILE_HEADER;
        self.settings.capacity_bytes.div_ceil(payload) as usize + 2
    }

    /// Creates spares until the capacity is allocated.
    fn top_up(&mut self) -> Result<()> {
        let numbers = self.spares.iter().map(|spare| spare.number);
        let mut number = numbers.max().unwrap_or(0).max(self.newest.0);
        // Files of another length go once they are below the checkpoint.
        let usable = |older: &&Older| older.len == self.settings.file_bytes;
        let older = self.older.iter().filter(usable).count();
        while older + self.spares.len() < self.files_wanted() {
            number += 1;
            let spare = self.create_spare(number)?;
            self.spares.push_back(spare);
        }
        self.disk.sync_dir(&self.dir)
    }

    fn create_spare(&self, number: u64) -> Result<Spare> {
        let path = path_of(&self.dir, number);
        let len = self.settings.file_bytes;
        let file = self.disk.open(&path, OpenMode::CreateNew)?;
        let made = file.allocate(len).and_then(|()| file.sync());
        made.inspect_err(|_| {
            // It would be in the way of the next attempt. The first error is the one to report.
            let _ = self.disk.remove(&path);
        })?;
        Ok(Spare {
            number,
            len,
            is_filled: false,
        })
    }

    /// Whether the file after the current one would have to be made.
    pub fn needs_space(&self) -> bool {
        self.prepared.is_none() && self.spares.is_empty()
    }

    /// Has the next file ready, so that the writer does not wait for it. `checkpoint`: LF-3.
    pub fn prepare(&mut self, checkpoint: Lsn) -> Result<()> {
        if self.prepared.is_some() {
            return Ok(());
        }
        while (self.older.front()).is_some_and(|older| older.end <= checkpoint) {
            let Older { number, len, .. } = self.older.pop_front().expect("there is one");
            let spare = Spare {
                number,
                len,
                is_filled: true,
            };
            self.adopt(vec![spare], 1)?;
        }
        self.prepared = Some(self.begin_file()?);
        Ok(())
    }

    /// The file after `finished`, which is full.
    pub fn next(&mut self, finished: &LogFile, checkpoint: Lsn) -> Result<LogFile> {
        self.prepare(checkpoint)?;
        let header = &finished.header;
        self.older.push_back(Older {
            number: header.number,
            len: header.file_bytes,
            end: header.end(),
        });
        Ok(self.prepared.take().expect("just prepared"))
    }

    /// Makes a spare, or a new file if there is none, the stream's newest file (LF-2).
    fn begin_file(&mut self) -> Result<LogFile> {
        let (number, start) = (self.newest.0 + 1, self.newest.1);
        let path = path_of(&self.dir, number);
        let is_filled = self.name_spare(number, &path)?;
        let header = Header {
            number,
            start,
            generation: self.generation,
            file_bytes: self.settings.file_bytes,
        };
        let file = match self.settings.buffered {
            true => self.disk.open(&path, OpenMode::Existing)?,
            false => self.disk.open_direct(&path)?,
        };
        if !is_filled {
            file.fill(FILE_HEADER)?;
        }
        let mut block = AlignedBuf::new(DIRECT_BLOCK);
        block[..HEADER_USED].copy_from_slice(&encode(&header, &self.settings));
        file.write_at(&block, 0)?;
        file.sync()?;
        self.newest = (number, header.end());
        Ok(LogFile { header, file })
    }

    /// Durably gives a spare this name and takes it off the list. Says whether its space is filled.
    fn name_spare(&mut self, number: u64, path: &Path) -> Result<bool> {
        let named = self.spares.iter().position(|spare| spare.number == number);
        let spare = match named.and_then(|i| self.spares.remove(i)) {
            Some(spare) => return Ok(spare.is_filled),
            None => self.spares.pop_front(),
        };
        let is_filled = match spare {
            Some(spare) => {
                (self.disk).rename(&path_of(&self.dir, spare.number), path)?;
                spare.is_filled
            }
            None => self.create_spare(number)?.is_filled,
        };
        self.disk.sync_dir(&self.dir)?;
        Ok(is_filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::RealDisk;

    fn settings() -> LogSettings {
        LogSettings {
            capacity_bytes: 3 * 61_440,
            buffer_bytes: 1 << 16,
            file_bytes: 65_536,
            page_size: 16_384,
            uuid: [5; 16],
            buffered: false,
            sabotage: None,
        }
    }

    fn numbers(dir: &Path) -> Vec<u64> {
        let entries = RealDisk.list(&dir.join(REDO_DIR)).unwrap();
        entries.iter().filter_map(|e| number_of(&e.name)).collect()
    }

    #[test]
    fn files_below_the_checkpoint_are_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let (mut pool, mut file) =
            FilePool::create(Arc::new(RealDisk), dir.path(), settings(), Lsn(8)).unwrap();
        assert_eq!(numbers(dir.path()), [1, 2, 3, 4, 5]);
        for i in 1..20 {
            let checkpoint = Lsn(file.header.start.0.saturating_sub(61_440));
            let next = pool.next(&file, checkpoint).unwrap();
            assert_eq!(next.header.number, i + 1);
            assert_eq!(next.header.start, file.header.end(), "no byte is skipped");
            file = next;
        }
        assert_eq!(numbers(dir.path()).len(), 5, "no file was added");
        // LF-3: with a checkpoint that stands still every file is kept, and new ones are created.
        let checkpoint = file.header.start;
        for _ in 0..10 {
            file = pool.next(&file, checkpoint).unwrap();
        }
        let chain = Chain::open(
            &RealDisk,
            &dir.path().join(REDO_DIR),
            &settings().uuid,
            checkpoint,
        );
        assert_eq!(chain.unwrap().files.len(), 11);
    }

    /// A file that was made for another capacity is not used again: its length is wrong.
    #[test]
    fn files_of_another_length_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let (_, first) = FilePool::create(disk.clone(), dir.path(), settings(), Lsn(8)).unwrap();
        let longer = LogSettings {
            file_bytes: 2 * settings().file_bytes,
            ..settings()
        };
        let end = Lsn(first.header.start.0 + 800);
        let (mut pool, mut file) =
            FilePool::open_at(disk.clone(), dir.path(), longer, Lsn(8), end).unwrap();
        for _ in 0..6 {
            file = pool.next(&file, file.header.start).unwrap();
            assert_eq!(file.file.len().unwrap(), longer.file_bytes);
        }
        assert_eq!(numbers(dir.path()).len(), pool.files_wanted());
    }

    #[test]
    fn reopening_cuts_the_log_at_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let (mut pool, first) =
            FilePool::create(disk.clone(), dir.path(), settings(), Lsn(8)).unwrap();
        let second = pool.next(&first, Lsn(8)).unwrap();
        pool.prepare(Lsn(8)).unwrap();
        let end = Lsn(second.header.start.0 + 800);
        for generation in 2..6 {
            let (_, file) =
                FilePool::open_at(disk.clone(), dir.path(), settings(), Lsn(8), end).unwrap();
            assert_eq!(
                (file.header.generation, file.header.start),
                (generation, end)
            );
            let redo = dir.path().join(REDO_DIR);
            let chain = Chain::open(&*disk, &redo, &[5; 16], Lsn(8)).unwrap();
            assert_eq!(
                chain.files[1].end, end,
                "the older file ends where the new one begins"
            );
            assert_eq!(
                chain.files.len(),
                3,
                "files beyond the end are spares again"
            );
        }
    }

    #[test]
    fn damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let (mut pool, first) =
            FilePool::create(disk.clone(), dir.path(), settings(), Lsn(8)).unwrap();
        let second = pool.next(&first, Lsn(8)).unwrap();
        let third = pool.next(&second, Lsn(8)).unwrap();
        let redo = dir.path().join(REDO_DIR);
        let open =
            |from: u64| Chain::open(&*disk, &redo, &[5; 16], Lsn(from)).map(|c| c.files.len());
        assert_eq!(open(8).unwrap(), 3);
        assert!(open(0).is_err(), "an LSN before the first file");
        assert!(
            open(third.header.end().0 + 8).is_err(),
            "an LSN after the last file"
        );
        let other = Chain::open(&*disk, &redo, &[6; 16], Lsn(8)).err().unwrap();
        assert!(other.to_string().contains("database"), "{other}");
        let broken = disk.open(second.file.path(), OpenMode::Existing).unwrap();
        broken.write_at(&[0; 512], 0).unwrap();
        assert!(open(8).is_err(), "a gap in the numbers");
        assert_eq!(open(third.header.start.0).unwrap(), 1, "the gap is below");
        broken.write_at(&[1], 100).unwrap();
        assert!(open(8).is_err(), "a damaged header");
    }
}
