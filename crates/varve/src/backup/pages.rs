//! Copying tablespaces, page by page, while they are in use.
//!
//! Pages are read from the file, past the buffer pool, many at a time. One that is being written at the
//! moment may be torn: it is read again until its checksum is right, or for so long that it must be damaged.
//! What is copied is the page as it is stored, compressed or encrypted or not; behind a compressed page its
//! place has zeros. Blocks of zeros become holes.
//!
//! A piece of a file is copied by one thread, others by others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::list::{Listed, Lister};
use super::{UNFINISHED, write_sparse};
use crate::base::{Error, Lsn, PageId, PageNo, Result, SpaceId};
use crate::io::{AlignedBuf, Disk, DiskFile, OpenMode, read_aligned};
use crate::page;
use crate::space::{Stage, stage_on};

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
    pub bytes: u64,
    pub crc: u32,
    /// How far its encryption was, by its page 0.
    pub stage: Option<Stage>,
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
    /// Of the backup.
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    state: Mutex<State>,
    begun: Instant,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Listed>,
    /// The file that pieces are taken of.
    file: Option<(Arc<FileCopy>, u32)>,
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
    pages: u32,
    state: Mutex<FileState>,
}

#[derive(Default)]
struct FileState {
    /// Checksums of pieces, by their first page, with their bytes.
    pieces: BTreeMap<u32, (u32, usize)>,
    done_pages: u32,
    /// On page 0.
    stage: Option<Stage>,
    /// The file was removed.
    is_gone: bool,
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
    first: u32,
    pages: u32,
}

impl Copying {
    pub fn new(
        manner: Manner,
        lister: Lister,
        (disk, dir): (Arc<dyn Disk>, &Path),
        list: Vec<Listed>,
    ) -> Copying {
        Copying {
            manner,
            lister,
            disk,
            dir: dir.to_path_buf(),
            state: Mutex::new(State {
                waiting: list.into(),
                ..State::default()
            }),
            begun: Instant::now(),
        }
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
    pub fn forget_if(&self, is_other: impl Fn(SpaceId, &CopiedSpace) -> bool) -> bool {
        let mut state = self.state.lock();
        let other = state.copied.iter();
        let other = other.filter(|(space, copied)| is_other(**space, copied));
        let other: BTreeSet<SpaceId> = other.map(|(space, _)| *space).collect();
        state.copied.retain(|space, _| !other.contains(space));
        state.damaged.retain(|page| !other.contains(&page.space));
        !other.is_empty()
    }

    /// Copies one tablespace, of which the first `most_pages` are enough, if it is there.
    pub fn copy_now(&self, listed: &Listed, most_pages: u32) -> Result<()> {
        let Some(file) = self.open(listed, most_pages)? else {
            return Ok(());
        };
        let file = Arc::new(file);
        let per_piece = self.manner.piece_pages;
        let mut buf = AlignedBuf::new(per_piece as usize * self.manner.page_size);
        for first in (0..file.pages).step_by(per_piece as usize) {
            let pages = per_piece.min(file.pages - first);
            let file = file.clone();
            self.check_interrupt()?;
            self.copy_piece(&Piece { file, first, pages }, &mut buf)?;
        }
        Ok(())
    }

    fn next_piece(&self) -> Result<Option<Piece>> {
        let mut state = self.state.lock();
        loop {
            if let Some((file, first)) = state.file.take() {
                let pages = self.manner.piece_pages.min(file.pages - first);
                if first + pages < file.pages {
                    state.file = Some((file.clone(), first + pages));
                }
                return Ok(Some(Piece { file, first, pages }));
            }
            let Some(listed) = state.waiting.pop_front() else {
                return Ok(None);
            };
            // One that is not there is looked for again at the end.
            if let Some(file) = self.open(&listed, u32::MAX)? {
                state.file = Some((Arc::new(file), 0));
            }
        }
    }

    fn open(&self, listed: &Listed, most_pages: u32) -> Result<Option<FileCopy>> {
        let keeps_damaged = self.manner.keeps_damaged;
        let Some(source) = self.lister.open(listed, keeps_damaged)? else {
            return Ok(None);
        };
        let path = self.unfinished_path(listed.space);
        if self.disk.exists(&path)? {
            self.disk.remove(&path)?;
        }
        let open = || self.disk.open(&path, OpenMode::CreatePrivate);
        let target = self.lister.with_means(open)?;
        let pages = source.len()? / self.manner.page_size as u64;
        let pages = u32::try_from(pages).unwrap_or(u32::MAX).min(most_pages);
        Ok(Some(FileCopy {
            space: listed.space,
            source,
            target,
            pages,
            state: Mutex::default(),
        }))
    }

    fn copy_piece(&self, piece: &Piece, buf: &mut AlignedBuf) -> Result<()> {
        let page_size = self.manner.page_size;
        let file = &*piece.file;
        let bytes = &mut buf[..piece.pages as usize * page_size];
        let offset = u64::from(piece.first) * page_size as u64;
        let mut is_there = match file.source.read_at(bytes, offset) {
            Err(e) if is_cut(&e) => false,
            done => done.map(|()| true)?,
        };
        let (mut newest, mut damaged) = (Lsn(0), Vec::new());
        if is_there {
            for (no, page) in (piece.first..).zip(bytes.chunks_exact_mut(page_size)) {
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
                    file.state.lock().stage = stage_on(page);
                }
                newest = newest.max(page::page_lsn(page));
                let stored = page::place_bytes(page);
                page[stored..].fill(0);
            }
            write_sparse(&*file.target, bytes, offset)?;
        }
        let crc = crc32c::crc32c(bytes);
        let is_last = {
            let mut state = file.state.lock();
            state.is_gone |= !is_there;
            state.pieces.insert(piece.first, (crc, bytes.len()));
            state.done_pages += piece.pages;
            state.done_pages == file.pages
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
        let bytes = u64::from(file.pages) * self.manner.page_size as u64;
        let state = file.state.lock();
        if state.is_gone {
            self.state
                .lock()
                .damaged
                .retain(|page| page.space != file.space);
            return self.disk.remove(&self.unfinished_path(file.space));
        }
        file.target.set_len(bytes)?;
        file.target.sync()?;
        let pieces = state.pieces.values();
        let crc = pieces.fold(0, |crc, (next, len)| {
            crc32c::crc32c_combine(crc, *next, *len)
        });
        let copied = CopiedSpace {
            bytes,
            crc,
            stage: state.stage,
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
