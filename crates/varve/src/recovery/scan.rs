//! One pass over the redo log: what it holds beyond the checkpoint, page by page.
//!
//! Three stages work at once. One thread cuts the stream, which is read ahead (`redo/pieces.rs`), into large
//! pieces, between frames by their lengths alone. Others check the frames' checksums and divide what they say
//! of pages among partitions (`scatter`), which may write to a file (`spill`). The caller's thread takes what
//! they say of each piece in the order of the log: where it ends, and which pages it changes. Pieces go to
//! the workers in turn, and come back in the same turn, so nothing has to be put in order; each channel holds
//! one piece, so memory is bounded by two pieces a worker and those that are being read.
//!
//! The stream ends at the first frame that is not whole (WAL-3). What was read beyond is thrown away: the
//! caller stops taking, its channels close, and the other threads end (PART-3).
//!
//! A short log, of one piece, is read without threads; and by one worker if the disk carries out one
//! operation after the other, so that their order is always the same.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::counters::LoggedCounters;
use super::divided::Divided;
use super::indexed::Indexed;
use super::map::PageMap;
use super::pages::{LogMarks, Units};
use super::scatter::{Chunk, Layout, Restarts, Run, Scatter, Sink};
use super::spill::Spill;
use super::survey::survey;
use crate::base::{Error, Lsn, MAX_ID_56, Result, SpaceId, threads};
use crate::encryption::Keyring;
use crate::io::{Disk, FlushMethod, IoQueue};
use crate::redo::{Control, Piece, PieceReader, REDO_DIR, RedoReader, Stream, Through};

/// Bytes of a piece, if the memory allows it.
const PIECE_BYTES: u64 = 2 << 20;
const LEAST_PIECE_BYTES: u64 = 16 << 10;

/// How the log is read.
#[derive(Clone, Copy, Debug)]
pub struct ScanSettings {
    /// Bytes of redo that are kept in memory, about.
    pub memory_bytes: u64,
    /// Threads that check it and divide it.
    pub threads: usize,
    /// Where the log's files are read from.
    pub through: Through,
    /// How recovery's file is written and read.
    pub spill: FlushMethod,
    /// Whether indexes of the log's files do for the beginning.
    pub goes_by_indexes: bool,
    /// Sabotage.
    pub forgets_a_block: bool,
}

/// What records of no page say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogSummary {
    /// Without marks.
    pub frames: u64,
    pub id_limit: u64,
    /// Tablespaces whose removal was decided, and may not be done yet (DDL-3).
    pub removed: Vec<SpaceId>,
    pub counters: LoggedCounters,
}

impl LogSummary {
    pub fn add(&mut self, other: LogSummary) {
        self.frames += other.frames;
        self.id_limit = self.id_limit.max(other.id_limit);
        self.removed.extend(other.removed);
        self.counters.add(other.counters);
    }
}

/// What the redo log holds beyond the checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scan {
    pub end: Lsn,
    pub id_limit: u64,
    /// Without marks.
    pub frames: u64,
    /// Tablespaces whose removal was decided, and may not be done yet (DDL-3).
    pub removed: Vec<SpaceId>,
    pub counters: LoggedCounters,
}

/// Changes of pages beyond the checkpoint.
pub enum Changes {
    Map(Box<PageMap>),
    /// There was no room on the disk for what does not fit in memory. The reader stands at the checkpoint
    /// again: it has its files open, so it may be read while the log's threads take spare files into use.
    ReadAgain(Box<RedoReader>),
}

/// Reads the log from the checkpoint to its end; or only the indexes of its files, if that is allowed and
/// there are enough of them (`survey`).
pub fn scan(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    control: &Control,
    settings: ScanSettings,
    queue: &Arc<IoQueue>,
    keyring: &Keyring,
) -> Result<(Scan, Changes)> {
    let (from, through) = (control.checkpoint, settings.through);
    let stream = Stream::open(&**disk, dir, &control.uuid, from, queue, through, keyring)?;
    let division = Division {
        disk: disk.clone(),
        dir: dir.to_path_buf(),
        control: *control,
        settings,
        queue: queue.clone(),
        keyring: keyring.clone(),
    };
    if settings.goes_by_indexes
        && let Some(survey) = survey(&**disk, dir, control, &stream, division.threads())?
    {
        let stream = stream.cut(survey.scan.end);
        let queue = queue.clone();
        let indexed = Indexed::new(survey.indexes, survey.restarts, stream, queue, division);
        let map = PageMap::indexed(survey.units, indexed);
        return Ok((survey.scan, Changes::Map(Box::new(map))));
    }
    let sink = division.sink(&stream, Arc::default())?;
    let (scan, intake) = division.read(&stream, &sink, &AtomicBool::new(false))?;
    match sink.failure() {
        Some(Error::NoSpace { .. }) => {
            sink.spill.remove()?;
            let reader = RedoReader::open(&**disk, dir, &control.uuid, from, keyring)?;
            Ok((scan, Changes::ReadAgain(Box::new(reader))))
        }
        Some(e) => Err(e),
        None => {
            let units = intake.marks.finish();
            let divided = division.divided(&units, intake.runs, sink, scan.end);
            let map = PageMap::divided(units, divided);
            Ok((scan, Changes::Map(Box::new(map))))
        }
    }
}

/// What dividing the log takes beside the log.
pub struct Division {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    control: Control,
    settings: ScanSettings,
    queue: Arc<IoQueue>,
    keyring: Keyring,
}

impl Division {
    pub fn redo_dir(&self) -> PathBuf {
        self.dir.join(REDO_DIR)
    }

    pub fn memory_bytes(&self) -> usize {
        self.settings.memory_bytes as usize
    }

    /// Removes a file that is of no use. One that stays is found to be of none again.
    pub fn forget(&self, path: &Path) {
        let _ = self.disk.remove(path);
    }

    fn threads(&self) -> usize {
        match self.queue.is_asynchronous() {
            true => self.settings.threads.max(1),
            false => 1,
        }
    }

    fn sink(&self, stream: &Stream, restarts: Arc<Restarts>) -> Result<Sink> {
        let (disk, queue) = (self.disk.clone(), self.queue.clone());
        let is_encrypted = stream.is_encrypted();
        let scratch = is_encrypted.then(|| self.keyring.scratch().clone());
        let spill = Spill::new(disk, &self.dir, queue, self.settings.spill, scratch)?;
        let memory_bytes = self.memory_bytes();
        let log_bytes = stream.end().0 - self.control.checkpoint.0;
        let layout = Layout::new(memory_bytes, log_bytes, self.threads());
        Ok(Sink::new(spill, layout, memory_bytes, restarts))
    }

    fn read(&self, stream: &Stream, sink: &Sink, stop: &AtomicBool) -> Result<(Scan, Intake)> {
        let most = self.settings.memory_bytes / 16;
        let piece_bytes = most.clamp(LEAST_PIECE_BYTES, PIECE_BYTES) as usize;
        let reader = stream.pieces(self.control.checkpoint, piece_bytes);
        take_in(reader, &self.control, self.threads(), Some(sink), stop)
    }

    fn divided(&self, units: &Units, runs: Vec<Vec<Run>>, sink: Sink, end: Lsn) -> Divided {
        let divided = Divided::new(units, runs, sink, end);
        if self.settings.forgets_a_block {
            divided.lose_block();
        }
        divided
    }

    /// Divides a log whose end is known, of which indexes have said that it changes these pages, and where it
    /// starts pages as zeros. Fails soon once `stop` is set.
    pub fn divide(
        &self,
        stream: &Stream,
        units: &Units,
        restarts: Arc<Restarts>,
        stop: &AtomicBool,
    ) -> Result<Divided> {
        let sink = self.sink(stream, restarts)?;
        let (scan, intake) = self.read(stream, &sink, stop)?;
        if stop.load(Relaxed) {
            return Err(Error::invalid("nobody needs the redo log any more"));
        }
        if let Some(e) = sink.failure() {
            sink.spill.remove()?;
            return Err(e);
        }
        if scan.end != stream.end() {
            return Err(stream.damaged(scan.end));
        }
        // IDX-9
        let read = intake.marks.finish();
        if read.all() != units.all() {
            return Err(Error::CorruptFile {
                path: self.redo_dir(),
                expected: format!("redo for {} pages, which its indexes name", units.pages()),
                found: format!("redo for {} pages, or others", read.pages()),
            });
        }
        Ok(self.divided(units, intake.runs, sink, scan.end))
    }
}

/// For a log that can't be read, on a disk whose changes nobody keeps: pages are taken as they are stored.
/// Removes the log's files, so that another log can be made, which begins at an LSN that no page has. Any id
/// may be in use.
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
        counters: LoggedCounters::default(),
    };
    let no_queue = Arc::new(IoQueue::one_by_one());
    let spill = Spill::new(disk.clone(), dir, no_queue, FlushMethod::Fsync, None)?;
    let nothing = Sink::new(spill, Layout::new(0, 0, 1), 0, Arc::default());
    let none = LogMarks::default().finish();
    let divided = Divided::new(&none, Vec::new(), nothing, scan.end);
    let map = PageMap::divided(none, divided);
    Ok((scan, Changes::Map(Box::new(map))))
}

/// Reads the log like `scan`, without keeping what it says of pages.
pub fn measure(disk: &dyn Disk, dir: &Path, control: &Control, keyring: &Keyring) -> Result<Scan> {
    let queue = Arc::new(IoQueue::one_by_one());
    let (from, through) = (control.checkpoint, Through::Cache);
    let stream = Stream::open(disk, dir, &control.uuid, from, &queue, through, keyring)?;
    let reader = stream.pieces(from, PIECE_BYTES as usize);
    Ok(take_in(reader, control, 1, None, &AtomicBool::new(false))?.0)
}

/// Reads all of the log, unless it is stopped. What it says of pages goes to the sink.
fn take_in(
    mut reader: PieceReader,
    control: &Control,
    threads: usize,
    sink: Option<&Sink>,
    stop: &AtomicBool,
) -> Result<(Scan, Intake)> {
    let mut intake = Intake {
        summary: LogSummary::default(),
        marks: LogMarks::default(),
        runs: Vec::new(),
        end: control.checkpoint,
        broken_off: None,
    };
    match reader.next_piece()? {
        None => {}
        Some(first) if first.is_last => {
            let mut scatter = Scatter::new(sink);
            intake.take(scatter.take(&first)?);
            intake.runs.push(scatter.finish());
        }
        Some(first) => {
            read_in_parallel(&mut reader, first, threads, sink, stop, &mut intake)?;
        }
    }
    if let Some(generation) = intake.broken_off {
        check_end(&reader, control, generation, intake.end)?;
    }
    let summary = std::mem::take(&mut intake.summary);
    let scan = Scan {
        end: intake.end,
        id_limit: summary.id_limit.max(control.id_limit),
        frames: summary.frames,
        removed: summary.removed,
        counters: summary.counters,
    };
    Ok((scan, intake))
}

/// Whether the log may end there, where a frame of this generation is not whole. Behind a clean shutdown
/// there is nothing.
pub fn check_end(reader: &PieceReader, control: &Control, generation: u64, end: Lsn) -> Result<()> {
    reader.check_end(generation, end)?;
    match control.clean_shutdown {
        true => Ok(()),
        false => reader.check_durable(generation, end),
    }
}

/// The results of reading the log so far.
struct Intake {
    summary: LogSummary,
    marks: LogMarks,
    /// Of each thread, when it has ended.
    runs: Vec<Vec<Run>>,
    end: Lsn,
    /// The generation of what is not whole.
    broken_off: Option<u64>,
}

impl Intake {
    /// False: the log ends here.
    fn take(&mut self, chunk: Chunk) -> bool {
        self.end = chunk.end;
        self.summary.add(chunk.summary);
        self.marks.add(chunk.marks);
        if !chunk.goes_on {
            self.broken_off = Some(chunk.generation);
        }
        chunk.goes_on
    }
}

/// `first` is the first piece, `reader` stands behind it.
fn read_in_parallel(
    reader: &mut PieceReader,
    first: Piece,
    threads: usize,
    sink: Option<&Sink>,
    stop: &AtomicBool,
    intake: &mut Intake,
) -> Result<()> {
    thread::scope(|scope| {
        let (mut to_workers, mut results, mut workers) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..threads {
            let (to_worker, pieces) = sync_channel(1);
            let (to_us, chunks) = sync_channel(1);
            let body = move || divide_pieces(sink, pieces, to_us);
            workers.push(threads::spawn_scoped(scope, "varve-redo-scan", body)?);
            to_workers.push(to_worker);
            results.push(chunks);
        }
        threads::spawn_scoped(scope, "varve-redo-read", move || {
            read_pieces(reader, first, to_workers)
        })?;
        for chunks in results.iter().cycle() {
            // The channel is closed when all pieces have been read.
            let Ok(chunk) = chunks.recv() else {
                break;
            };
            if !intake.take(chunk?) || stop.load(Relaxed) {
                break;
            }
        }
        // So that nobody waits for us to take more.
        drop(results);
        let runs = workers
            .into_iter()
            .map(|worker| worker.join().expect("its panic is ours"));
        intake.runs.extend(runs);
        Ok(())
    })
}

fn read_pieces(reader: &mut PieceReader, first: Piece, workers: Vec<SyncSender<Result<Piece>>>) {
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
        next = reader.next_piece().transpose();
    }
}

fn divide_pieces(
    sink: Option<&Sink>,
    pieces: Receiver<Result<Piece>>,
    chunks: SyncSender<Result<Chunk>>,
) -> Vec<Run> {
    let mut scatter = Scatter::new(sink);
    for piece in pieces {
        let chunk = piece.and_then(|piece| scatter.take(&piece));
        if chunks.send(chunk).is_err() {
            break;
        }
    }
    scatter.finish()
}
