//! One pass over the redo log: what it holds beyond the checkpoint, page by page.
//!
//! Three stages work at once. One thread cuts the stream, which is read ahead (`redo/ahead.rs`), into large pieces, between frames by their lengths alone. Others check the
//! frames' checksums and sort what they say by page (`chain::digest`). The caller's thread takes the results in their order into the
//! page map, which may write runs to a file (`map`). Pieces go to the workers in turn, and come back in the same turn, so
//! nothing has to be put in order; each channel holds one piece, so memory is bounded by two pieces and two results a worker.
//!
//! The stream ends at the first frame that is not whole (WAL-3). What was read beyond is thrown away: the caller stops taking, its
//! channels close, and the other threads end.
//!
//! A short log, of one piece, is read without threads.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::chain::{Chunk, Told, digest};
use super::map::{Collector, PageMap};
use crate::base::{Error, Lsn, MAX_ID_56, Result, SpaceId};
use crate::io::{Disk, IoQueue};
use crate::redo::{Control, Piece, REDO_DIR, RedoReader};

/// Bytes of a piece, if the memory allows it.
const PIECE_BYTES: u64 = 2 << 20;
const LEAST_PIECE_BYTES: u64 = 16 << 10;

/// How the log is read.
#[derive(Clone, Copy, Debug)]
pub struct ScanSettings {
    /// Bytes of redo that are kept in memory, about.
    pub memory_bytes: u64,
    /// Threads that check and sort.
    pub threads: usize,
    /// Sabotage.
    pub forgets_a_run: bool,
}

/// What the redo log holds beyond the checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scan {
    pub end: Lsn,
    pub id_limit: u64,
    pub frames: u64,
    /// Tablespaces whose removal was decided, and may not be done yet (DDL-3).
    pub removed: Vec<SpaceId>,
}

/// Changes of pages beyond the checkpoint.
pub enum Changes {
    Map(Box<PageMap>),
    /// There was no room on the disk for what does not fit in memory. The reader stands at the checkpoint again: it has its files
    /// open, so it may be read while the log's threads take spare files into use.
    ReadAgain(Box<RedoReader>),
}

/// Reads the log from the checkpoint to its end.
pub fn scan(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    control: &Control,
    (settings, queue): (ScanSettings, &Arc<IoQueue>),
) -> Result<(Scan, Changes)> {
    let mut collector = Collector::new(disk.clone(), dir, settings.memory_bytes)?;
    if settings.forgets_a_run {
        collector.forget_a_run();
    }
    let (scan, collector) = take_in(&**disk, dir, control, (settings, queue), Some(collector))?;
    let changes = match collector {
        Some(collector) => Changes::Map(Box::new(collector.finish())),
        None => {
            let reader = RedoReader::open(&**disk, dir, &control.uuid, control.checkpoint)?;
            Changes::ReadAgain(Box::new(reader))
        }
    };
    Ok((scan, changes))
}

/// For a log that can't be read, on a disk whose changes nobody keeps: pages are taken as they are stored. Removes the log's files, so
/// that another log can be made, which begins at an LSN that no page has. Any id may be in use.
pub fn pass_over_redo(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    control: &Control,
) -> Result<(Scan, Changes)> {
    /// Much more than a log's largest capacity.
    const BEYOND: u64 = 1 << 42;
    let redo = dir.join(REDO_DIR);
    if disk.exists(&redo)? {
        for entry in disk.list(&redo)? {
            disk.remove(&redo.join(&entry.name))?;
        }
    }
    let scan = Scan {
        end: Lsn(control.checkpoint.0 + BEYOND),
        id_limit: MAX_ID_56 / 2,
        frames: 0,
        removed: Vec::new(),
    };
    let nothing = Collector::new(disk.clone(), dir, 0)?.finish();
    Ok((scan, Changes::Map(Box::new(nothing))))
}

/// Reads the log like `scan`, without keeping what it says of pages.
pub fn measure(disk: &dyn Disk, dir: &Path, control: &Control) -> Result<Scan> {
    let settings = ScanSettings {
        memory_bytes: 16 * PIECE_BYTES,
        threads: 1,
        forgets_a_run: false,
    };
    let queue = Arc::new(IoQueue::one_by_one());
    Ok(take_in(disk, dir, control, (settings, &queue), None)?.0)
}

/// Hands what the log says of pages to the collector. It does not come back if there was no room for it.
fn take_in(
    disk: &dyn Disk,
    dir: &Path,
    control: &Control,
    (settings, queue): (ScanSettings, &Arc<IoQueue>),
    collector: Option<Collector>,
) -> Result<(Scan, Option<Collector>)> {
    let mut reader = RedoReader::open(disk, dir, &control.uuid, control.checkpoint)?;
    let mut intake = Intake {
        collector,
        told: Told::default(),
        end: control.checkpoint,
        broken_off: None,
    };
    let piece_bytes = (settings.memory_bytes / 16).clamp(LEAST_PIECE_BYTES, PIECE_BYTES) as usize;
    reader.read_ahead(queue, piece_bytes);
    if let Some(first) = reader.next_piece(piece_bytes)? {
        match first.is_last {
            true => drop(intake.take(digest(&first)?)?),
            false => read_in_parallel(
                &mut reader,
                first,
                piece_bytes,
                settings.threads,
                &mut intake,
            )?,
        }
    }
    if let Some(generation) = intake.broken_off {
        reader.check_end(generation, intake.end)?;
    }
    let Told {
        frames,
        id_limit,
        removed,
    } = intake.told;
    let scan = Scan {
        end: intake.end,
        id_limit: id_limit.max(control.id_limit),
        frames,
        removed,
    };
    Ok((scan, intake.collector))
}

/// What has been taken in so far.
struct Intake {
    /// `None` if nobody wants it, and after there was no room for it.
    collector: Option<Collector>,
    told: Told,
    end: Lsn,
    /// The generation of what is not whole.
    broken_off: Option<u64>,
}

impl Intake {
    /// False: the log ends here.
    fn take(&mut self, chunk: Chunk) -> Result<bool> {
        self.end = chunk.end;
        if !chunk.goes_on {
            self.broken_off = Some(chunk.generation);
        }
        let goes_on = chunk.goes_on;
        let mut chunk = chunk;
        self.told.add(std::mem::take(&mut chunk.told));
        let Some(collector) = &mut self.collector else {
            return Ok(goes_on);
        };
        match collector.take(chunk) {
            Err(Error::NoSpace { .. }) => {
                let collector = self.collector.take().expect("just used");
                collector.discard()?;
            }
            done => done?,
        }
        Ok(goes_on)
    }
}

/// `first` is the first piece, `reader` stands behind it.
fn read_in_parallel(
    reader: &mut RedoReader,
    first: Piece,
    piece_bytes: usize,
    workers: usize,
    intake: &mut Intake,
) -> Result<()> {
    thread::scope(|scope| {
        let (mut to_workers, mut results) = (Vec::new(), Vec::new());
        for _ in 0..workers.max(1) {
            let (to_worker, pieces) = sync_channel(1);
            let (to_us, chunks) = sync_channel(1);
            spawn(scope, "varve-redo-sort", move || sort_pieces(pieces, to_us))?;
            to_workers.push(to_worker);
            results.push(chunks);
        }
        spawn(scope, "varve-redo-read", move || {
            read_pieces(reader, first, piece_bytes, to_workers)
        })?;
        for chunks in results.iter().cycle() {
            // The channel is closed when all pieces have been read.
            let Ok(chunk) = chunks.recv() else {
                break;
            };
            if !intake.take(chunk?)? {
                break;
            }
        }
        Ok(())
    })
}

fn spawn<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() + Send + 'scope,
) -> Result<()> {
    let named = thread::Builder::new().name(name.into());
    let spawned = named.spawn_scoped(scope, body);
    spawned
        .map(drop)
        .map_err(|e| Error::io("start thread", name, e))
}

fn read_pieces(
    reader: &mut RedoReader,
    first: Piece,
    piece_bytes: usize,
    workers: Vec<SyncSender<Result<Piece>>>,
) {
    let mut next = Some(Ok(first));
    for worker in workers.iter().cycle() {
        let Some(piece) = next.take() else {
            return;
        };
        let goes_on = piece.is_ok();
        // Nobody listens once the end was found.
        if worker.send(piece).is_err() || !goes_on {
            return;
        }
        next = reader.next_piece(piece_bytes).transpose();
    }
}

fn sort_pieces(pieces: Receiver<Result<Piece>>, chunks: SyncSender<Result<Chunk>>) {
    for piece in pieces {
        let chunk = piece.and_then(|piece| digest(&piece));
        if chunks.send(chunk).is_err() {
            return;
        }
    }
}
