//! Indexes the redo log's files in the background, each when it is full.
//!
//! It has nothing to do while there is little redo between the checkpoint and the log's end (`from_bytes`):
//! that much is read soon enough. Beyond it every full file above the checkpoint gets an index, the oldest
//! first. Nobody waits for one, and nobody needs one: recovery reads the log file instead (IDX-4).
//!
//! - **IDX-6** An index begins where a frame is known to begin: where the file before ended whose frames were
//!   read; at the start of a generation; at the checkpoint, if the file holds it. A file of which none is
//!   known is passed over, until the checkpoint has come to it.
//! - **IDX-7** What goes wrong, as on a full disk, costs the file's index and one warning. The file is not
//!   tried again.
//! - **IDX-8** An index goes after its log file: it is removed when that is taken into use again, or, after a
//!   crash in between, when the database opens. All are removed when it is closed, as the next start needs no
//!   redo.
//!
//! One step is one file ([`Indexer::index_next`]). The thread takes step after step, and rests when there is
//! nothing to do; where the order of operations is to be always the same there is no thread, and tests take
//! the steps. The mutex of the known files is held during a step and by nobody else but who opens and closes
//! the database. A panic of the thread poisons the database.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use super::{DatabaseIdentity, FileId, Index, IndexBuilder, index_number_of, index_path};
use crate::base::{Error, Lsn, Result, threads};
use crate::io::{Disk, OpenMode};
use crate::redo::{FullFile, MAX_FRAME_BYTES, Piece, REDO_DIR, RedoLog};
use crate::txn::{LogLevel, Logger};

/// Bytes of the log that are read together.
const PIECE_BYTES: usize = 1 << 20;
/// The thread looks for something to do so often.
const PAUSE: Duration = Duration::from_millis(100);
/// And rests for so long when something went wrong.
const REST: Duration = Duration::from_secs(10);
const THREAD: &str = "varve-redo-index";

/// What it works with.
pub struct IndexerEnv {
    pub log: Arc<RedoLog>,
    pub disk: Arc<dyn Disk>,
    /// The data directory.
    pub dir: PathBuf,
    pub identity: DatabaseIdentity,
    /// Files are indexed while there is so much redo above the checkpoint; `u64::MAX`: never.
    pub from_bytes: u64,
    pub logger: Logger,
}

/// What was done since the database was opened.
#[derive(Default, Debug)]
pub struct IndexerCounters {
    /// Indexes written, and their bytes.
    pub files: AtomicU64,
    pub bytes: AtomicU64,
}

pub struct Indexer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    env: IndexerEnv,
    redo: PathBuf,
    /// The full log files that were dealt with, by number.
    known: Mutex<KnownFiles>,
    counters: IndexerCounters,
    has_warned: AtomicBool,
    stop: AtomicBool,
}

type KnownFiles = BTreeMap<u64, Known>;

struct Known {
    /// Where the first frame behind the file starts; `None`: its frames could not be read.
    next: Option<Lsn>,
    has_index: bool,
}

impl Indexer {
    /// Takes over the indexes that there are, and removes those that no log file has (IDX-8).
    pub fn open(env: IndexerEnv) -> Indexer {
        let shared = Shared {
            redo: env.dir.join(REDO_DIR),
            env,
            known: Mutex::default(),
            counters: IndexerCounters::default(),
            has_warned: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        };
        if let Err(e) = shared.take_over() {
            shared.warn(&e);
        }
        Indexer {
            shared: Arc::new(shared),
            thread: Mutex::default(),
        }
    }

    /// Starts the thread, unless nothing is ever to be indexed.
    pub fn start(&self) -> Result<()> {
        if self.shared.env.from_bytes == u64::MAX {
            return Ok(());
        }
        let shared = self.shared.clone();
        let body = move || {
            if catch_unwind(AssertUnwindSafe(|| shared.run())).is_err() {
                let why = format!("the thread {THREAD} panicked");
                shared.env.log.poison(why);
            }
        };
        *self.thread.lock() = Some(threads::spawn(THREAD, body)?);
        Ok(())
    }

    /// Indexes the next file, and returns its number; `None`: there is nothing to do now.
    ///
    /// # Errors
    ///
    /// The file gets no index (IDX-7).
    #[cfg(feature = "internals")]
    pub fn index_next(&self) -> Result<Option<u64>> {
        self.shared.index_next()
    }

    pub fn counters(&self) -> &IndexerCounters {
        &self.shared.counters
    }

    /// Ends the thread, in the middle of a file if need be.
    pub fn stop(&self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.lock().take() {
            thread.thread().unpark();
            // A panic has been caught and has poisoned the log.
            let _ = thread.join();
        }
    }

    /// Removes all indexes: the database was closed cleanly (IDX-8).
    pub fn remove_all(&self) {
        self.stop();
        self.shared.known.lock().clear();
        if let Err(e) = self.shared.keep(|_, _| false) {
            self.shared.warn(&e);
        }
    }
}

impl Drop for Indexer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// The thread's body.
    fn run(&self) {
        while !self.is_stopped() {
            match self.index_next() {
                Ok(Some(_)) => {}
                Ok(None) => thread::park_timeout(PAUSE),
                Err(_) => thread::park_timeout(REST),
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed) || self.env.log.check().is_err()
    }

    /// IDX-7.
    fn warn(&self, e: &Error) {
        if !self.has_warned.swap(true, Relaxed) {
            let words = format!(
                "indexing the redo log failed, so that the start after a crash may take longer; further failures are not told: {e}"
            );
            (self.env.logger)(LogLevel::Warning, &words);
        }
    }

    fn index_next(&self) -> Result<Option<u64>> {
        let mut known = self.known.lock();
        loop {
            let full = self.env.log.full_files();
            self.forget(&mut known, &full);
            if self.env.log.checkpoint_age_bytes() < self.env.from_bytes {
                return Ok(None);
            }
            let checkpoint = self.env.log.checkpoint_lsn();
            let Some((file, first)) = next_file(&full, &known, checkpoint) else {
                return Ok(None);
            };
            match self.index(&mut known, &file, first) {
                Ok(false) => return Ok(None),
                Ok(true) => return Ok(Some(file.number)),
                // It was taken into use again meanwhile.
                Err(_) if !self.env.log.full_files().contains(&file) => {}
                Err(e) => {
                    self.warn(&e);
                    return Err(e);
                }
            }
        }
    }

    /// Indexes a file whose first frame begins at `first`. False: it is to stop.
    fn index(&self, known: &mut KnownFiles, file: &FullFile, first: Lsn) -> Result<bool> {
        let mut now = Known {
            next: None,
            has_index: false,
        };
        let made = self.make(file, first).and_then(|made| {
            let Some((image, next)) = made else {
                return Ok(false);
            };
            now.next = Some(next);
            self.write(file.number, &image)?;
            now.has_index = true;
            Ok(true)
        });
        if !matches!(made, Ok(false)) {
            known.insert(file.number, now);
        }
        made
    }

    /// The image of a file's index, and where the first frame behind it starts. `None`: it is to stop.
    fn make(&self, file: &FullFile, first: Lsn) -> Result<Option<(Vec<u8>, Lsn)>> {
        let (mut builder, mut next) = (IndexBuilder::new(), first);
        if first < file.end {
            // The last frame may go on beyond the file.
            let beyond = Lsn(file.end.0 + u64::from(MAX_FRAME_BYTES));
            let until = beyond.min(self.env.log.durable_lsn());
            let stream = self.env.log.stream(first..until)?;
            if let Some(cipher) = stream.cipher(file.generation) {
                builder = IndexBuilder::encrypted(cipher.clone());
            }
            let mut pieces = stream.pieces(first, PIECE_BYTES);
            while next < file.end {
                if self.is_stopped() {
                    return Ok(None);
                }
                let piece = pieces.next_piece()?.ok_or_else(|| stream.damaged(next))?;
                let (end, is_whole) = add(&mut builder, &piece, file.end)?;
                next = end;
                if !is_whole {
                    return Err(stream.damaged(next));
                }
            }
        }
        let image = builder.finish(id_of(file), first, self.env.identity);
        Ok(Some((image, next)))
    }

    fn write(&self, number: u64, image: &[u8]) -> Result<()> {
        let (disk, path) = (&self.env.disk, index_path(&self.redo, number));
        if disk.exists(&path)? {
            disk.remove(&path)?;
        }
        let file = disk.open(&path, OpenMode::CreateNew)?;
        if let Err(e) = file.write_at(image, 0) {
            // Nobody takes it for an index (IDX-4); but where there is no space it takes some.
            let _ = disk.remove(&path);
            return Err(e);
        }
        self.counters.files.fetch_add(1, Relaxed);
        self.counters.bytes.fetch_add(image.len() as u64, Relaxed);
        Ok(())
    }

    /// Forgets log files that are not full any more, and removes their indexes (IDX-8).
    fn forget(&self, known: &mut KnownFiles, full: &[FullFile]) {
        known.retain(|number, file| {
            let is_full = find(full, *number).is_some();
            if !is_full
                && file.has_index
                && let Err(e) = self.env.disk.remove(&index_path(&self.redo, *number))
            {
                self.warn(&e);
            }
            is_full
        });
    }

    fn take_over(&self) -> Result<()> {
        let full = self.env.log.full_files();
        self.keep(|path, number| {
            let Some(file) = find(&full, number).filter(|_| path == index_path(&self.redo, number))
            else {
                return false;
            };
            // One that can't be read is as good as none.
            let opened = self.env.disk.open(path, OpenMode::ReadOnly);
            let index = opened.and_then(|f| Index::open(f, &self.env.identity.uuid, &id_of(file)));
            let Ok(Some(index)) = index else {
                return false;
            };
            let found = Known {
                next: Some(index.head().next),
                has_index: true,
            };
            self.known.lock().insert(number, found);
            true
        })
    }

    /// Removes all indexes but these, told by path and number.
    fn keep(&self, is_kept: impl Fn(&Path, u64) -> bool) -> Result<()> {
        for entry in self.env.disk.list(&self.redo)? {
            let path = self.redo.join(&entry.name);
            match index_number_of(&entry.name) {
                Some(number) if !is_kept(&path, number) => self.env.disk.remove(&path)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Adds the frames of a piece that start before `file_end`. Returns where they end, and whether none was torn
/// or missing.
fn add(builder: &mut IndexBuilder, piece: &Piece, file_end: Lsn) -> Result<(Lsn, bool)> {
    let (mut frames, mut end) = (piece.frames(), piece.start);
    while end < file_end
        && let Some(frame) = frames.next()
    {
        builder.add(&frame)?;
        end = frame.end;
    }
    Ok((end, frames.is_whole()))
}

fn id_of(file: &FullFile) -> FileId {
    FileId {
        number: file.number,
        generation: file.generation,
        start: file.start,
        end: file.end,
    }
}

/// `full` ascends.
fn find(full: &[FullFile], number: u64) -> Option<&FullFile> {
    let at = full.binary_search_by_key(&number, |file| file.number);
    at.ok().map(|at| &full[at])
}

/// The oldest file that can be indexed, and where its first frame begins.
fn next_file(full: &[FullFile], known: &KnownFiles, checkpoint: Lsn) -> Option<(FullFile, Lsn)> {
    let is_wanted = |file: &&FullFile| file.end > checkpoint && !known.contains_key(&file.number);
    let mut wanted = full.iter().filter(is_wanted);
    wanted.find_map(|file| Some((*file, first_frame(file, known, checkpoint)?)))
}

/// IDX-6. The file ends above the checkpoint.
fn first_frame(file: &FullFile, known: &KnownFiles, checkpoint: Lsn) -> Option<Lsn> {
    if file.is_first {
        return Some(file.start);
    }
    let before = known.get(&(file.number - 1));
    let holds = file.start <= checkpoint;
    before
        .and_then(|before| before.next)
        .or(holds.then_some(checkpoint))
}
