//! Copying tablespaces, page by page, while they are in use.
//!
//! Pages are read from the file, past the buffer pool, many at a time. One that is being written at the
//! moment may be torn: it is read again until its checksum is right, or for so long that it must be damaged.
//! What is copied is the page as it is stored, compressed or encrypted or not; behind a compressed page its
//! place has zeros. Blocks of zeros become holes.
//!
//! A piece of a file is copied by one thread, others by others.
//!
//! For an increment the pages that were written since its base (`space/written.rs`) are read, and no others;
//! they go to files of their own (`changed`). Which these are is asked once the redo is kept and a period has
//! begun: what is written from then on is in the redo, or is a matter of the next increment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::changed::{Run, runs_of, tail};
use super::list::{Listed, Lister};
use super::manifest::Manifest;
use super::{UNFINISHED, write_sparse};
use crate::base::{Error, Lsn, PageId, PageNo, Result, SpaceId};
use crate::io::{AlignedBuf, Disk, DiskFile, OpenMode, read_aligned};
use crate::page;
use crate::space::{PageSet, PeriodId, Stage, WrittenPages, stage_on};

/// Who is too early waits no longer at once: its thread has other things to do.
const REST: Duration = Duration::from_millis(20);
/// A page that is not whole is read again after so long,
const AGAIN: Duration = Duration::from_millis(2);
/// and is damaged if it stayed as it was for so long: the system may keep a write waiting in its middle,
const SAME: Duration = Duration::from_millis(500);
/// or was not whole for so long,
const MOST: Duration = Duration::from_secs(10);
/// or if so many were damaged before.
const MOST_WAITED_FOR: usize = 8;

/// How pages are copied.
#[derive(Clone)]
pub(super) struct Manner {
    pub page_size: usize,
    pub piece_pages: u32,
    /// Of all threads together; 0: as fast as it goes.
    pub bytes_per_second: u64,
    pub keeps_damaged: bool,
    pub interrupt: Option<Arc<AtomicBool>>,
    /// Pages are taken as they are read.
    pub is_careless: bool,
}

/// A tablespace that was copied.
pub(super) struct CopiedSpace {
    /// Of its file in the backup, and the checksum. An increment has none where nothing was written.
    pub file: Option<(u64, u32)>,
    pub is_whole: bool,
    /// That it has.
    pub pages: u32,
    /// Whether its pages were written encrypted, by its page 0, if that is whole.
    pub encrypted: Option<bool>,
}

/// What an increment goes with.
pub(super) struct Base {
    pub period: PeriodId,
    /// Its directory.
    dir: PathBuf,
    /// Whether each of its tablespaces was written encrypted.
    spaces: BTreeMap<SpaceId, Option<bool>>,
    /// Pages that were written since.
    written: Mutex<PageSet>,
}

impl Base {
    /// # Errors
    ///
    /// `Invalid`: it can't be one.
    pub fn of(manifest: &Manifest, dir: &Path, uuid: [u8; 16]) -> Result<Base> {
        let refused = |why: &str| {
            Err(Error::invalid(format!(
                "an increment on the backup in {}, {why}: make a whole one",
                dir.display()
            )))
        };
        if manifest.uuid != uuid {
            return refused("which is of another database");
        }
        if !manifest.damaged.is_empty() || !manifest.lost.is_empty() {
            return refused("which has damaged pages or lacks tables");
        }
        let Some(period) = manifest.period else {
            return refused("which an older version made");
        };
        let spaces = manifest.spaces.iter();
        Ok(Base {
            period,
            dir: dir.to_path_buf(),
            spaces: spaces.map(|s| (s.space, s.encrypted)).collect(),
            written: Mutex::default(),
        })
    }

    /// Asks what was written until now.
    pub fn ask(&self, lister: &Lister) -> Result<()> {
        let written = lister.written_pages().since(self.period)?;
        let written = written.ok_or_else(|| self.unknown(lister.written_pages()))?;
        *self.written.lock() = written;
        Ok(())
    }

    /// The database does not know what was written since.
    pub fn unknown(&self, written: &WrittenPages) -> Error {
        let why = match written.lost() {
            Some(why) => format!("which could not be noted any more ({why})"),
            None => "as the database was restored, or has made very many backups".into(),
        };
        Error::invalid(format!(
            "an increment on the backup in {}: it is not known which pages were written since, {why}: make a whole one",
            self.dir.display()
        ))
    }
}

/// What was copied.
pub(super) struct Copied {
    pub spaces: BTreeMap<SpaceId, CopiedSpace>,
    /// In order.
    pub damaged: Vec<PageId>,
    /// The LSN of the newest page.
    pub newest: Lsn,
}

/// What the threads that copy share.
pub(super) struct Copying {
    manner: Manner,
    lister: Lister,
    base: Option<Base>,
    /// Of the backup.
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    state: Mutex<State>,
    begun: Instant,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Listed>,
    /// The file that pieces are taken of: from this run on, of which so many pages are taken.
    file: Option<(Arc<FileCopy>, usize, u32)>,
    copied: BTreeMap<SpaceId, CopiedSpace>,
    damaged: Vec<PageId>,
    /// Of the newest page.
    newest: Lsn,
    bytes: u64,
}

/// A file that is being copied.
struct FileCopy {
    space: SpaceId,
    source: Arc<dyn DiskFile>,
    target: Arc<dyn DiskFile>,
    /// What is copied of it.
    runs: Vec<Run>,
    copied_pages: u32,
    is_whole: bool,
    /// All that it has.
    pages: u32,
    state: Mutex<FileState>,
}

#[derive(Default)]
struct FileState {
    /// Checksums of pieces, by their places in the copy, with their bytes.
    pieces: BTreeMap<u32, (u32, usize)>,
    done_pages: u32,
    /// What the base has, until page 0 is copied.
    encrypted: Option<bool>,
    /// The file was removed.
    is_gone: bool,
}

/// What there is to copy of a tablespace.
enum Opened {
    File(FileCopy),
    /// Nothing was written to it since the increment's base.
    Unchanged(CopiedSpace),
    NotThere,
}

/// What was read.
enum Found {
    Whole,
    /// It may be copied as it is.
    Damaged,
    /// The file was removed.
    Gone,
}

/// What a piece consists of.
struct Piece {
    file: Arc<FileCopy>,
    /// Of one run.
    pages: Run,
}

impl Copying {
    pub fn new(
        manner: Manner,
        lister: Lister,
        base: Option<Base>,
        (disk, dir): (Arc<dyn Disk>, &Path),
        list: Vec<Listed>,
    ) -> Copying {
        Copying {
            manner,
            lister,
            base,
            disk,
            dir: dir.to_path_buf(),
            state: Mutex::new(State {
                waiting: list.into(),
                ..State::default()
            }),
            begun: Instant::now(),
        }
    }

    /// Of an increment: that of its base.
    pub fn base_period(&self) -> Option<PeriodId> {
        self.base.as_ref().map(|base| base.period)
    }

    pub fn lister(&self) -> &Lister {
        &self.lister
    }

    /// Where a tablespace is in the backup until the backup is complete.
    pub fn unfinished_path(&self, space: SpaceId) -> PathBuf {
        self.dir.join(UNFINISHED).join(format!("{space}.copy"))
    }

    /// Whether it was copied.
    pub fn has(&self, space: SpaceId) -> bool {
        self.state.lock().copied.contains_key(&space)
    }

    /// All that was copied.
    pub fn take(&self) -> Copied {
        let state = std::mem::take(&mut *self.state.lock());
        let mut damaged = state.damaged;
        damaged.sort_unstable();
        Copied {
            spaces: state.copied,
            damaged,
            newest: state.newest,
        }
    }

    /// So many were copied.
    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// Copies a piece, or waits for a moment because it is too early for that; false: all are taken.
    pub fn step(&self, buf: &mut Option<AlignedBuf>) -> Result<bool> {
        self.check_interrupt()?;
        let early = self.early();
        if !early.is_zero() {
            thread::sleep(early.min(REST));
            return Ok(true);
        }
        let Some(piece) = self.next_piece()? else {
            return Ok(false);
        };
        let bytes = self.manner.piece_pages as usize * self.manner.page_size;
        let buf = buf.get_or_insert_with(|| AlignedBuf::new(bytes));
        self.copy_piece(&piece, buf)?;
        Ok(true)
    }

    /// Forgets those of which that is so: they are copied anew when they are needed. Whether there were any.
    pub fn forget_if(&self, is_other: impl Fn(SpaceId, &CopiedSpace) -> bool) -> Result<bool> {
        let other: BTreeSet<SpaceId> = {
            let mut state = self.state.lock();
            let other = state.copied.iter();
            let other = other.filter(|(space, copied)| is_other(**space, copied));
            let other: BTreeSet<SpaceId> = other.map(|(space, _)| *space).collect();
            state.copied.retain(|space, _| !other.contains(space));
            state.damaged.retain(|page| !other.contains(&page.space));
            other
        };
        match &self.base {
            // What was written since is to be copied, too.
            Some(base) if !other.is_empty() => base.ask(&self.lister)?,
            _ => {}
        }
        Ok(!other.is_empty())
    }

    /// Copies one tablespace, of which the first `most_pages` are enough, if it is there.
    pub fn copy_now(&self, listed: &Listed, most_pages: u32) -> Result<()> {
        let file = match self.open(listed, most_pages)? {
            Opened::File(file) => file,
            Opened::Unchanged(copied) => {
                self.state.lock().copied.insert(listed.space, copied);
                return Ok(());
            }
            Opened::NotThere => return Ok(()),
        };
        let mut left = Some((Arc::new(file), 0, 0));
        let mut buf = AlignedBuf::new(self.manner.piece_pages as usize * self.manner.page_size);
        while let Some(piece) = self.take_piece(&mut left) {
            self.check_interrupt()?;
            self.copy_piece(&piece, &mut buf)?;
        }
        Ok(())
    }

    /// The next piece of the file, of which there is one, and what is left then.
    fn take_piece(&self, left: &mut Option<(Arc<FileCopy>, usize, u32)>) -> Option<Piece> {
        let (file, n, taken) = left.take()?;
        let run = file.runs[n];
        let pages = self.manner.piece_pages.min(run.pages - taken);
        let (first, at) = (run.first + taken, run.at + taken);
        let next = match taken + pages < run.pages {
            true => (n, taken + pages),
            false => (n + 1, 0),
        };
        if next.0 < file.runs.len() {
            *left = Some((file.clone(), next.0, next.1));
        }
        let pages = Run { first, pages, at };
        Some(Piece { file, pages })
    }

    fn next_piece(&self) -> Result<Option<Piece>> {
        let mut state = self.state.lock();
        loop {
            if let Some(piece) = self.take_piece(&mut state.file) {
                return Ok(Some(piece));
            }
            let Some(listed) = state.waiting.pop_front() else {
                return Ok(None);
            };
            // One that is not there is looked for again at the end.
            match self.open(&listed, u32::MAX)? {
                Opened::File(file) => state.file = Some((Arc::new(file), 0, 0)),
                Opened::Unchanged(copied) => drop(state.copied.insert(listed.space, copied)),
                Opened::NotThere => {}
            }
        }
    }

    fn open(&self, listed: &Listed, most_pages: u32) -> Result<Opened> {
        let keeps_damaged = self.manner.keeps_damaged;
        let Some(source) = self.lister.open(listed, keeps_damaged)? else {
            return Ok(Opened::NotThere);
        };
        let path = self.unfinished_path(listed.space);
        if self.disk.exists(&path)? {
            self.disk.remove(&path)?;
        }
        let pages = source.len()? / self.manner.page_size as u64;
        let pages = u32::try_from(pages).unwrap_or(u32::MAX).min(most_pages);
        let in_base = self.base.as_ref().and_then(|base| {
            let encrypted = *base.spaces.get(&listed.space)?;
            Some((
                runs_of(&base.written.lock(), listed.space, pages),
                encrypted,
            ))
        });
        let is_whole = in_base.is_none();
        let (runs, encrypted) = in_base.unwrap_or_else(|| {
            let (first, at) = (0, 0);
            (vec![Run { first, pages, at }], None)
        });
        if runs.is_empty() {
            return Ok(Opened::Unchanged(CopiedSpace {
                file: None,
                is_whole,
                pages,
                encrypted,
            }));
        }
        let open = || self.disk.open(&path, OpenMode::CreatePrivate);
        let target = self.lister.with_means(open)?;
        Ok(Opened::File(FileCopy {
            space: listed.space,
            source,
            target,
            copied_pages: runs.iter().map(|run| run.pages).sum(),
            runs,
            is_whole,
            pages,
            state: Mutex::new(FileState {
                encrypted,
                ..FileState::default()
            }),
        }))
    }

    fn copy_piece(&self, piece: &Piece, buf: &mut AlignedBuf) -> Result<()> {
        let page_size = self.manner.page_size;
        let (file, Run { first, pages, at }) = (&*piece.file, piece.pages);
        let bytes = &mut buf[..pages as usize * page_size];
        let offset = u64::from(first) * page_size as u64;
        let mut is_there = match file.source.read_at(bytes, offset) {
            Err(e) if is_cut(&e) => false,
            done => done.map(|()| true)?,
        };
        let (mut newest, mut damaged) = (Lsn(0), Vec::new());
        if is_there {
            for (no, page) in (first..).zip(bytes.chunks_exact_mut(page_size)) {
                let id = PageId::new(file.space, PageNo(no));
                match self.read_whole(file, id, page)? {
                    Found::Whole => {}
                    Found::Damaged => {
                        damaged.push(id);
                        continue;
                    }
                    Found::Gone => {
                        is_there = false;
                        break;
                    }
                }
                if no == 0 {
                    let stage = stage_on(page);
                    file.state.lock().encrypted = stage.map(Stage::writes_encrypted);
                }
                newest = newest.max(page::page_lsn(page));
                let stored = page::place_bytes(page);
                page[stored..].fill(0);
            }
            write_sparse(&*file.target, bytes, u64::from(at) * page_size as u64)?;
        }
        let crc = crc32c::crc32c(bytes);
        let is_last = {
            let mut state = file.state.lock();
            state.is_gone |= !is_there;
            state.pieces.insert(at, (crc, bytes.len()));
            state.done_pages += pages;
            state.done_pages == file.copied_pages
        };
        {
            let mut state = self.state.lock();
            state.newest = state.newest.max(newest);
            state.damaged.extend(damaged);
            state.bytes += bytes.len() as u64;
        }
        match is_last {
            true => self.end_file(file),
            false => Ok(()),
        }
    }

    fn end_file(&self, file: &FileCopy) -> Result<()> {
        let mut bytes = u64::from(file.copied_pages) * self.manner.page_size as u64;
        let state = file.state.lock();
        if state.is_gone {
            self.state
                .lock()
                .damaged
                .retain(|page| page.space != file.space);
            return self.disk.remove(&self.unfinished_path(file.space));
        }
        file.target.set_len(bytes)?;
        let pieces = state.pieces.values();
        let mut crc = pieces.fold(0, |crc, (next, len)| {
            crc32c::crc32c_combine(crc, *next, *len)
        });
        if !file.is_whole {
            let tail = tail(file.space, &file.runs);
            file.target.write_at(&tail, bytes)?;
            crc = crc32c::crc32c_append(crc, &tail);
            bytes += tail.len() as u64;
        }
        file.target.sync()?;
        let copied = CopiedSpace {
            file: Some((bytes, crc)),
            is_whole: file.is_whole,
            pages: file.pages,
            encrypted: state.encrypted,
        };
        self.state.lock().copied.insert(file.space, copied);
        Ok(())
    }

    /// Has the page whole, which was read, reading it again if it has to be.
    fn read_whole(&self, file: &FileCopy, id: PageId, page: &mut [u8]) -> Result<Found> {
        let (mut waited, mut same) = (Duration::ZERO, Duration::ZERO);
        let patience = match self.state.lock().damaged.len() < MOST_WAITED_FOR {
            true => SAME,
            false => Duration::ZERO,
        };
        while let Err(e) = page::verify(page, id) {
            if self.manner.is_careless {
                return Ok(Found::Whole);
            }
            if same > patience || waited > MOST {
                let path = file.source.path().display().to_string();
                return match self.manner.keeps_damaged {
                    true => Ok(Found::Damaged),
                    false => Err(e.in_file(&path)),
                };
            }
            self.check_interrupt()?;
            thread::sleep(AGAIN);
            waited += AGAIN;
            let before = page.to_vec();
            let offset = u64::from(id.no.0) * page.len() as u64;
            match read_aligned(&*file.source, page, offset) {
                Err(e) if is_cut(&e) => return Ok(Found::Gone),
                done => done?,
            }
            same = match before == *page {
                true => same + AGAIN,
                false => Duration::ZERO,
            };
        }
        Ok(Found::Whole)
    }

    pub fn check_interrupt(&self) -> Result<()> {
        let is_set = |flag: &Arc<AtomicBool>| flag.load(Relaxed);
        match self.manner.interrupt.as_ref().is_some_and(is_set) {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }

    /// How long it is until no more was copied than may be.
    fn early(&self) -> Duration {
        let due = match self.manner.bytes_per_second {
            0 => 0.0,
            rate => self.state.lock().bytes as f64 / rate as f64,
        };
        Duration::from_secs_f64(due).saturating_sub(self.begun.elapsed())
    }
}

/// The file is being removed: it has less pages than it had.
fn is_cut(e: &Error) -> bool {
    matches!(e, Error::Io { source, .. } if source.kind() == ErrorKind::UnexpectedEof)
}
