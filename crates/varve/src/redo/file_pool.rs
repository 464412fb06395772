//! The log files that there are: those that hold the stream from the checkpoint on, and spares for what comes
//! next.
//!
//! - **LF-4** The stream can go on up to [`FilePool::room`] in the files that there are, and one of them is
//!   left then: with that one the log can be opened again. Mini-transactions reserve no redo beyond (LOG-2),
//!   so neither the log writer nor opening the log again meets a full disk. Without any spare left the room
//!   is that of the current file; the caller that opens the log sees to it that the checkpoint moves
//!   ([`RedoLog::needs_space`](super::RedoLog::needs_space)).
//!
//! The pool wants as many bytes of files as let the log get as far from the checkpoint as it may, wherever
//! the checkpoint is: the capacity, the oldest file (of which all but the last byte may be below the
//! checkpoint), the one that is left, and what is lost in files that are used in part because the log was
//! opened again (`next_step`); besides those that somebody keeps (KEEP-1). What it lacks, because the disk is
//! full, makes the room shorter; it is made as soon as there is space. What is too much is removed.
//!
//! Each file says its own length, so those that were made for another capacity are used like others. There
//! would be too many or too large ones after a while: spares of another length than new files have are
//! replaced.
//!
//! Space that is only reserved is filled with zeros once, when its file is taken into use for the first time:
//! otherwise each sync of the first pass over it makes the file system record durably which blocks are used
//! now. (Measured on ext4: groups of 8,000 bytes wait for the disk three times instead of twice, 160 instead
//! of 110 µs.)
//!
//! Files are written past the operating system's cache, unless the settings say otherwise: what has been
//! written is not read again before a restart, and the cache costs a copy and its upkeep.
//!
//! Guarded by a mutex of its own, so that the background thread prepares a file while the writer writes.
//! Errors are the caller's to tell; nothing here is half done after one, except that files may be there that
//! are not known: the next opening finds them. What could not be begun for want of space, or because too many
//! files are open, can be begun again.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::LogSettings;
use super::files::{
    Chain, HEADER_USED, Header, LogFile, LogLock, REDO_DIR, Spare, encode, list, path_of, payload,
};
use super::kept::Place;
use crate::base::{Error, Lsn, Result};
use crate::encryption::{Cipher, Keyring};
use crate::io::{AlignedBuf, DIRECT_BLOCK, Disk, DiskFile, IoQueue, OpenMode};

/// No file is shorter.
pub const LEAST_FILE_BYTES: u64 = 16 * DIRECT_BLOCK as u64;
const MOST_FILE_BYTES: u64 = 64 << 20;
/// So many files are made at the same time: all of them are open meanwhile, and commits that need the next
/// one wait for them.
const MADE_TOGETHER: usize = 32;

/// For which capacity a pool keeps files, and how long it makes new ones.
#[derive(Clone, Copy)]
pub(super) struct FileSizing {
    pub capacity_bytes: u64,
    pub file_bytes: u64,
}

/// How long new files are: an eighth of the capacity, unless the files that there are suit it, too.
pub fn file_bytes_for(capacity_bytes: u64, present: Option<u64>) -> u64 {
    let best = (capacity_bytes / 8).clamp(LEAST_FILE_BYTES, MOST_FILE_BYTES);
    let best = best.next_multiple_of(DIRECT_BLOCK as u64);
    let suits = |present: &u64| (best / 8..=2 * best).contains(present) && is_usable(*present);
    present.filter(suits).unwrap_or(best)
}

/// Whether a file of this length can hold a piece of the stream.
fn is_usable(file_bytes: u64) -> bool {
    file_bytes >= LEAST_FILE_BYTES && file_bytes.is_multiple_of(DIRECT_BLOCK as u64)
}

/// Removes a file that could not be made: it would be in the way of the next attempt.
fn give_up(disk: &dyn Disk, path: &Path) {
    // There is an error already, which is the one to report.
    let _ = disk.remove(path);
}

/// A file that holds a piece of the stream, or will hold the next one.
#[derive(Clone, Copy)]
pub(super) struct InUse {
    pub header: Header,
    /// The LSN after its piece: before its own end if the log was opened again there.
    pub end: Lsn,
}

/// Some of the files, with the means to read them without the pool.
pub(super) struct FilesToRead {
    pub files: Vec<InUse>,
    pub disk: Arc<dyn Disk>,
    pub queue: Arc<IoQueue>,
    pub dir: PathBuf,
    pub buffered: bool,
    pub keyring: Keyring,
}

/// What makes the pool more like it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// There are too few files, or some of a length that new ones have not.
    Make,
    /// This spare is not needed.
    Remove(usize),
}

pub struct FilePool {
    disk: Arc<dyn Disk>,
    /// By which several files are synced at the same time.
    queue: Arc<IoQueue>,
    dir: PathBuf,
    /// `file_bytes` is the length of new files; `capacity_bytes` is what files are kept for.
    settings: LogSettings,
    generation: u64,
    /// If this generation's frames are encrypted.
    lock: Option<LogLock>,
    cipher: Option<Arc<Cipher>>,
    /// Ascending, the current one and the prepared one included. No number is left out.
    in_use: VecDeque<InUse>,
    spares: VecDeque<Spare>,
    /// The current file's successor, with its header durable. Nothing has been written to it.
    prepared: Option<LogFile>,
    /// Number and end of the newest file in use.
    newest: (u64, Lsn),
    /// What files are kept for besides the checkpoint (KEEP-1).
    places: Vec<Arc<Place>>,
    /// The checkpoint, when files were released last.
    checkpoint: Lsn,
    /// Files are being made for a larger capacity than the log has yet: nobody else says what they are kept
    /// for.
    pub growing: bool,
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
        let (lock, cipher) = lock_with(&settings)?;
        let mut pool = FilePool {
            disk,
            queue: Arc::new(IoQueue::one_by_one()),
            dir,
            settings,
            generation: 1,
            lock,
            cipher,
            in_use: VecDeque::new(),
            spares: VecDeque::new(),
            prepared: None,
            newest: (0, start),
            places: Vec::new(),
            checkpoint: start,
            growing: false,
        };
        pool.make_all()?;
        let first = pool.begin_file()?;
        Ok((pool, first))
    }

    /// Opens the log after recovery found its end: drops what lies beyond `end` and begins a new generation
    /// there.
    pub fn open_at(
        disk: Arc<dyn Disk>,
        queue: Arc<IoQueue>,
        data_dir: &Path,
        settings: LogSettings,
        checkpoint: Lsn,
        end: Lsn,
    ) -> Result<(FilePool, LogFile)> {
        let dir = data_dir.join(REDO_DIR);
        let listing = list(&*disk, &dir, &settings.uuid, 1)?;
        let chain = Chain::of(&*disk, &dir, &listing.log, checkpoint, &settings.keyring)?;
        let mut spares = listing.spares;
        let in_log = |h: &Header| Spare {
            number: h.number,
            len: h.file_bytes,
            is_filled: true,
            is_clear: h.lock.is_none(),
        };
        let below = |h: &&Header| h.number < chain.files[0].header.number;
        let unused = listing.log.iter().take_while(below);
        spares.extend(unused.map(in_log));

        let (mut in_use, mut kept) = (VecDeque::new(), Vec::new());
        // From the highest number down, so that numbers never have a gap (LF-2).
        for (i, f) in chain.files.iter().enumerate().rev() {
            if i > 0 && f.header.start >= end {
                f.file.write_at(&[0; HEADER_USED], 0)?;
                f.file.sync()?;
                spares.push(in_log(&f.header));
            } else {
                kept.push(f.file.clone());
                in_use.push_front(InUse {
                    header: f.header,
                    end: f.end.min(end),
                });
            }
        }
        // What recovery read may still be in the operating system's cache only, and the new generation says
        // that it is whole.
        queue.sync_all(&kept)?;
        let generations = listing.log.iter().map(|h| h.generation);
        let last = in_use
            .back()
            .expect("the chain's first file is kept")
            .header;
        let newest = (last.number, end);
        let file_bytes = file_bytes_for(settings.capacity_bytes, Some(last.file_bytes));
        let (lock, cipher) = lock_with(&settings)?;
        let mut pool = FilePool {
            disk,
            queue,
            dir,
            settings: LogSettings {
                file_bytes,
                ..settings
            },
            generation: generations.max().unwrap_or(0) + 1,
            lock,
            cipher,
            in_use,
            spares: VecDeque::new(),
            prepared: None,
            newest,
            places: Vec::new(),
            checkpoint,
            growing: false,
        };
        pool.adopt(spares)?;
        match pool.make_all() {
            // The disk is full. What there is makes the room (LF-4).
            Err(Error::NoSpace { .. }) if !pool.spares.is_empty() => {}
            made => made?,
        }
        let first = pool.begin_file()?;
        Ok((pool, first))
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// With which this generation's frames are encrypted.
    pub fn cipher(&self) -> Option<&Arc<Cipher>> {
        self.cipher.as_ref()
    }

    /// Takes over what an opening found, without what is of no use.
    fn adopt(&mut self, mut found: Vec<Spare>) -> Result<()> {
        found.sort_unstable_by_key(|spare| spare.number);
        for spare in found {
            match is_usable(spare.len) {
                true => self.spares.push_back(spare),
                // Not made to the end.
                false => self.disk.remove(&path_of(&self.dir, spare.number))?,
            }
        }
        Ok(())
    }

    // --- How many files there are to be --------------------------------------------------------------------

    /// Keeps files for this capacity from now on.
    pub fn keep_for(&mut self, capacity_bytes: u64) {
        self.settings.capacity_bytes = capacity_bytes;
    }

    /// Makes new files as long as suits this capacity.
    pub fn suit(&mut self, capacity_bytes: u64) {
        let present = Some(self.settings.file_bytes);
        self.settings.file_bytes = file_bytes_for(capacity_bytes, present);
    }

    /// Takes both back to what `sizing` was before.
    pub(super) fn restore_sizing(&mut self, before: FileSizing) {
        self.settings.capacity_bytes = before.capacity_bytes;
        self.settings.file_bytes = before.file_bytes;
    }

    pub(super) fn sizing(&self) -> FileSizing {
        FileSizing {
            capacity_bytes: self.settings.capacity_bytes,
            file_bytes: self.settings.file_bytes,
        }
    }

    /// Bytes of the stream for which all files have room.
    fn total(&self) -> u64 {
        let in_use = self.in_use.iter().map(|f| payload(f.header.file_bytes));
        let spares = self.spares.iter().map(|spare| payload(spare.len));
        in_use.sum::<u64>() + spares.sum::<u64>()
    }

    /// For how many bytes there is to be room, if the longest file that nothing has been written to is that
    /// long.
    fn wanted(&self, longest_left: u64) -> u64 {
        let new = payload(self.settings.file_bytes);
        let in_use = || self.in_use.iter();
        let lost = in_use().map(|f| f.header.end().0 - f.end.0);
        let longest_used = in_use().map(|f| payload(f.header.file_bytes)).max();
        self.settings.capacity_bytes
            + longest_used.unwrap_or(new)
            + longest_left.max(new)
            + lost.sum::<u64>()
            + self.kept_bytes()
    }

    /// Of the stream in files that are there for nobody but those who copy them (KEEP-2).
    pub fn kept_bytes(&self) -> u64 {
        let below = |f: &&InUse| f.end <= self.checkpoint;
        let kept = self.written_before().take_while(below);
        kept.map(|f| payload(f.header.file_bytes)).sum()
    }

    /// Room in each of the files that nothing has been written to.
    fn unwritten(&self) -> impl Iterator<Item = u64> {
        let prepared = self.prepared.iter().map(|f| payload(f.header.file_bytes));
        prepared.chain(self.spares.iter().map(|spare| payload(spare.len)))
    }

    /// The same without this spare.
    fn unwritten_but(&self, spare: usize) -> impl Iterator<Item = u64> {
        let at = spare + usize::from(self.prepared.is_some());
        let others = self.unwritten().enumerate().filter(move |(i, _)| *i != at);
        others.map(|(_, payload)| payload)
    }

    /// LF-4.
    pub fn room(&self) -> Lsn {
        self.room_in(self.unwritten())
    }

    /// The room if this spare were not there.
    pub fn room_without(&self, spare: usize) -> Lsn {
        self.room_in(self.unwritten_but(spare))
    }

    fn room_in(&self, unwritten: impl Iterator<Item = u64>) -> Lsn {
        let (sum, longest) = unwritten.fold((0, 0), |(sum, longest), p| (sum + p, p.max(longest)));
        Lsn(self.current().end.0 + sum - longest)
    }

    fn current(&self) -> &InUse {
        &self.in_use[self.before_current()]
    }

    /// The header of the file that is written to.
    pub(super) fn newest_written(&self) -> Header {
        self.current().header
    }

    /// How many files in use there are before the current one, which is not there yet when the log is made.
    fn before_current(&self) -> usize {
        let behind = 1 + usize::from(self.prepared.is_some());
        self.in_use.len().saturating_sub(behind)
    }

    /// The files that nothing is written to any more, oldest first.
    pub(super) fn written_before(&self) -> impl Iterator<Item = &InUse> {
        self.in_use.range(..self.before_current())
    }

    /// The files that hold this part of the stream, as far as it has been written; and what it takes to open
    /// them.
    pub(super) fn files_to_read(&self, part: Range<Lsn>) -> FilesToRead {
        let written = self.in_use.range(..=self.before_current());
        let holds = |f: &&InUse| f.header.start < part.end && part.start < f.end;
        FilesToRead {
            files: written.filter(holds).copied().collect(),
            disk: self.disk.clone(),
            queue: self.queue.clone(),
            dir: self.dir.clone(),
            buffered: self.settings.buffered,
            keyring: self.settings.keyring.clone(),
        }
    }

    /// Where the oldest file ends: from that checkpoint on `release` has something to do.
    pub fn oldest_end(&self) -> Lsn {
        self.in_use[0].end
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        let in_use = self.in_use.iter().map(|f| f.header.file_bytes);
        in_use.sum::<u64>() + self.spares.iter().map(|spare| spare.len).sum::<u64>()
    }

    /// Whether nothing is left but the current file.
    pub fn needs_space(&self) -> bool {
        self.unwritten().next().is_none()
    }

    /// Whether there are too few files.
    pub fn lacks(&self) -> bool {
        self.total() < self.wanted(self.unwritten().max().unwrap_or(0))
    }

    fn is_surplus(&self, spare: usize) -> bool {
        let longest_left = self.unwritten_but(spare).max().unwrap_or(0);
        self.total() - payload(self.spares[spare].len) >= self.wanted(longest_left)
    }

    /// The next step towards the right number of files; `None`: there are as many.
    pub fn next_step(&self) -> Option<Step> {
        if self.lacks() {
            return Some(Step::Make);
        }
        // The last ones first: what was made for a capacity that could not be had.
        let spares = || (0..self.spares.len()).rev();
        // What is not encrypted in a log that is does not stay.
        let shows = |spare: &Spare| spare.is_clear && self.lock.is_some();
        let is_odd = |at: &usize| {
            let spare = &self.spares[*at];
            spare.len != self.settings.file_bytes || shows(spare)
        };
        let is_surplus = |at: &usize| self.is_surplus(*at);
        // As long as there are odd ones, usual ones are only made, until none of the odd ones is needed.
        match spares().any(|at| is_odd(&at)) {
            true => {
                Some((spares().filter(is_odd).find(is_surplus)).map_or(Step::Make, Step::Remove))
            }
            false => spares().next().filter(is_surplus).map(Step::Remove),
        }
    }

    /// Makes a spare.
    pub fn make(&mut self) -> Result<()> {
        self.make_together(1)
    }

    /// Makes some of the files that are missing.
    pub fn make_some(&mut self) -> Result<()> {
        match self.lacks() {
            true => self.make_together(MADE_TOGETHER),
            false => Ok(()),
        }
    }

    /// Makes a spare, and others as long as there are too few, up to `at_most` of them. The space of all is
    /// reserved first: what then makes it durable for one of them does most of it for the others. After an
    /// error those are there whose space could be reserved, or none if they could not be synced.
    fn make_together(&mut self, at_most: usize) -> Result<()> {
        let before = self.spares.len();
        let mut files = Vec::new();
        let made = loop {
            match self.create_spare() {
                Ok((spare, file)) => {
                    self.spares.push_back(spare);
                    files.push(file);
                }
                Err(e) => break Err(e),
            }
            if files.len() == at_most || !self.lacks() {
                break Ok(());
            }
        };
        let synced = self.queue.sync_all(&files);
        if let Err(e) = synced.and_then(|()| self.disk.sync_dir(&self.dir)) {
            for spare in self.spares.drain(before..) {
                give_up(&*self.disk, &path_of(&self.dir, spare.number));
            }
            return Err(e);
        }
        made
    }

    pub fn remove(&mut self, spare: usize) -> Result<()> {
        let spare = self.spares.remove(spare).expect("one of them");
        self.disk.remove(&path_of(&self.dir, spare.number))
    }

    /// Makes what is missing, when the log is opened.
    fn make_all(&mut self) -> Result<()> {
        while self.lacks() {
            self.make_some()?;
        }
        Ok(())
    }

    /// A file whose space is reserved, but not durably yet.
    fn create_spare(&self) -> Result<(Spare, Arc<dyn DiskFile>)> {
        let numbers = self.spares.iter().map(|spare| spare.number);
        let number = numbers.max().unwrap_or(0).max(self.newest.0) + 1;
        let (path, len) = (path_of(&self.dir, number), self.settings.file_bytes);
        let file = self.disk.open(&path, OpenMode::CreateNew)?;
        (file.allocate(len)).inspect_err(|_| give_up(&*self.disk, &path))?;
        let spare = Spare {
            number,
            len,
            is_filled: false,
            is_clear: false,
        };
        Ok((spare, file))
    }

    // --- Which file comes next -----------------------------------------------------------------------------

    /// Keeps files from there on (KEEP-1).
    pub(super) fn keep(&mut self, place: Arc<Place>) {
        self.places.push(place);
    }

    /// There is no room on the disk. Whether files are kept that can be used then (KEEP-2).
    pub(super) fn gives_way(&mut self) -> bool {
        let has_any = self.kept_bytes() > 0 && !self.places.is_empty();
        if has_any {
            self.places.iter().for_each(|place| place.give_way());
        }
        has_any
    }

    /// How the log is laid out.
    pub fn settings(&self) -> &LogSettings {
        &self.settings
    }

    /// Makes spares of the files below the checkpoint (LF-3) that are not kept.
    pub fn release(&mut self, checkpoint: Lsn) {
        self.checkpoint = checkpoint;
        self.places.retain(|place| place.is_kept(checkpoint));
        let places = self.places.iter().map(|place| place.from());
        let needed_from = places.fold(checkpoint, Lsn::min);
        let at_least = 1 + usize::from(self.prepared.is_some());
        while self.in_use.len() > at_least && self.oldest_end() <= needed_from {
            let header = self.in_use.pop_front().expect("there is one").header;
            self.spares.push_back(Spare {
                number: header.number,
                len: header.file_bytes,
                is_filled: true,
                is_clear: header.lock.is_none(),
            });
        }
    }

    /// Has the next file ready, so that the writer does not wait for it.
    pub fn prepare(&mut self) -> Result<()> {
        if self.prepared.is_none() {
            self.prepared = Some(self.begin_file()?);
        }
        Ok(())
    }

    /// The file after the current one, which is full.
    pub fn next(&mut self) -> Result<LogFile> {
        self.prepare()?;
        Ok(self.prepared.take().expect("just prepared"))
    }

    /// Makes a spare, or a new file if there is none, the stream's newest file (LF-2).
    fn begin_file(&mut self) -> Result<LogFile> {
        let (number, start) = (self.newest.0 + 1, self.newest.1);
        let path = path_of(&self.dir, number);
        let at = self.name_spare(number, &path)?;
        let spare = self.spares[at];
        let header = Header {
            number,
            start,
            generation: self.generation,
            file_bytes: spare.len,
            lock: self.lock,
        };
        let file = match self.settings.buffered {
            true => self.disk.open(&path, OpenMode::Existing)?,
            false => self.disk.open_direct(&path)?,
        };
        // Nothing in clear stays behind what is written from now on.
        if !spare.is_filled || spare.is_clear && self.lock.is_some() {
            file.fill(DIRECT_BLOCK as u64)?;
        }
        let mut block = AlignedBuf::new(DIRECT_BLOCK);
        block[..HEADER_USED].copy_from_slice(&encode(&header, &self.settings));
        file.write_at(&block, 0)?;
        file.sync()?;
        self.spares.remove(at);
        self.newest = (number, header.end());
        self.in_use.push_back(InUse {
            header,
            end: header.end(),
        });
        Ok(LogFile { header, file })
    }

    /// Durably gives a spare this name. Returns its place in the list.
    fn name_spare(&mut self, number: u64, path: &Path) -> Result<usize> {
        let named = self.spares.iter().position(|spare| spare.number == number);
        let at = named.unwrap_or(0);
        if self.spares.is_empty() {
            self.make()?;
            let made = self.spares[at].number;
            assert_eq!(made, number, "LF-2: the number after the newest");
        } else if named.is_none() {
            (self.disk).rename(&path_of(&self.dir, self.spares[at].number), path)?;
            self.spares[at].number = number;
        }
        // Also of one that has its name already: an attempt before this one may have ended there.
        self.disk.sync_dir(&self.dir)?;
        Ok(at)
    }
}

/// How the frames of a new generation are encrypted, and by what.
fn lock_with(settings: &LogSettings) -> Result<(Option<LogLock>, Option<Arc<Cipher>>)> {
    if !settings.encrypted {
        return Ok((None, None));
    }
    let lock = LogLock::new(&settings.keyring)?;
    Ok((Some(lock), Some(lock.cipher(&settings.keyring)?)))
}

#[cfg(test)]
mod tests;
