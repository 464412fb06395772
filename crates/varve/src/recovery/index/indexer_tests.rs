//! The indexes of a log that goes on, and what becomes of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use super::tests::{block, check_entry};
use super::*;
use crate::base::{Error, Lsn, PageId, PageNo, Result, SpaceId};
use crate::buffer::mem_store::MemStore;
use crate::buffer::{BufferPool, PoolSettings};
use crate::io::meddled::{MeddledDisk, Meddler};
use crate::io::{Disk, IoQueue, OpenMode, RealDisk};
use crate::mtr::{Mtr, MtrEnv, RawRecord};
use crate::page::{PAGE_HEADER, PageOp, PageType};
use crate::recovery::chain::{Change, take_apart};
use crate::redo::{Frame, LogSettings, REDO_DIR, RedoLog, RedoReader};

const PAGE: usize = 4096;
const UUID: [u8; 16] = [4; 16];
const START: Lsn = Lsn(4096);
/// Bytes of the stream in a file.
const PAYLOAD: u64 = 65_536 - 4096;

fn settings() -> LogSettings {
    LogSettings {
        file_bytes: 65_536,
        ..LogSettings::new(8 << 20, PAGE as u32, UUID)
    }
}

/// A log with somebody who writes to it.
struct Log {
    dir: TempDir,
    log: Arc<RedoLog>,
    env: MtrEnv,
    made: BTreeSet<u32>,
    rng: SmallRng,
}

impl Log {
    fn new(seed: u64) -> Log {
        let dir = tempfile::tempdir().unwrap();
        let log = RedoLog::create(Arc::new(RealDisk), dir.path(), settings(), START).unwrap();
        Log::with(dir, log, seed)
    }

    fn with(dir: TempDir, log: RedoLog, seed: u64) -> Log {
        let log = Arc::new(log);
        let pool = PoolSettings {
            bytes: (256 * PAGE) as u64,
            page_size: PAGE,
        };
        let pool = BufferPool::new(pool, Arc::new(MemStore::default())).unwrap();
        Log {
            dir,
            env: MtrEnv::new(Arc::new(pool), log.clone()),
            log,
            made: BTreeSet::new(),
            rng: SmallRng::seed_from_u64(seed),
        }
    }

    /// As after a crash, without any page.
    fn reopen(self, checkpoint: Lsn) -> Log {
        let end = self.log.durable_lsn();
        let Log { dir, log, env, .. } = self;
        drop((log, env));
        let queue = Arc::new(IoQueue::start(false).unwrap());
        let disk = Arc::new(RealDisk);
        let log = RedoLog::open_at(disk, queue, dir.path(), settings(), checkpoint, end).unwrap();
        Log::with(dir, log, end.0)
    }

    /// Writes so many files full, durably.
    fn fill(&mut self, files: u64) {
        let end = self.log.next_lsn().0 + files * PAYLOAD;
        while self.log.next_lsn().0 < end {
            self.write();
        }
        self.log.sync_to(self.log.next_lsn()).unwrap();
    }

    /// A mini-transaction on some pages.
    fn write(&mut self) {
        let rng = &mut self.rng;
        let mut mtr = Mtr::begin(&self.env, 8192).unwrap();
        let nos: BTreeSet<u32> = (0..3).map(|_| rng.random_range(0..60)).collect();
        for no in nos {
            let page = PageId::new(SpaceId(2 + no % 3), PageNo(no));
            let is_new = self.made.insert(no) || rng.random_range(0..60) == 0;
            let h = match is_new {
                true => mtr.exclusive_new(page).unwrap(),
                false => mtr.exclusive(page).unwrap(),
            };
            if is_new {
                let ptype = PageType::Raw;
                mtr.op(h, PageOp::FormatRaw { ptype });
            }
            let len = [2, 300][rng.random_range(0..2)];
            let bytes: Vec<u8> = (0..rng.random_range(1..=len))
                .map(|_| rng.random())
                .collect();
            let (off, bytes) = (PAGE_HEADER as u16, &bytes[..]);
            mtr.op(h, PageOp::Write { off, bytes });
        }
        if rng.random_range(0..100) == 0 {
            let limit = rng.random_range(0..1000);
            mtr.log_raw(&RawRecord::IdLimit { limit });
        }
        mtr.commit();
    }

    fn checkpoint(&self, lsn: Lsn) {
        self.log.sync_to(lsn).unwrap();
        self.log.set_checkpoint(lsn);
    }

    fn full(&self) -> Vec<u64> {
        self.log
            .full_files()
            .iter()
            .map(|file| file.number)
            .collect()
    }

    fn indexer(&self, from_bytes: u64) -> (Indexer, Arc<AtomicUsize>) {
        self.indexer_on(Arc::new(RealDisk), from_bytes)
    }

    /// And how often it has warned.
    fn indexer_on(&self, disk: Arc<dyn Disk>, from_bytes: u64) -> (Indexer, Arc<AtomicUsize>) {
        let warnings = Arc::new(AtomicUsize::new(0));
        let counted = warnings.clone();
        let env = IndexerEnv {
            log: self.log.clone(),
            disk,
            dir: self.dir.path().to_path_buf(),
            identity: DatabaseIdentity {
                page_size: PAGE as u32,
                uuid: UUID,
            },
            from_bytes,
            logger: Arc::new(move |_, _| {
                counted.fetch_add(1, Relaxed);
            }),
        };
        (Indexer::open(env), warnings)
    }

    /// Checks the index of a file, and returns where its first frame starts and the first one behind it.
    fn check(&self, number: u64) -> (Lsn, Lsn) {
        let full = self.log.full_files();
        let file = full.iter().find(|file| file.number == number).unwrap();
        let path = index_path(&self.dir.path().join(REDO_DIR), number);
        let opened = RealDisk.open(&path, OpenMode::ReadOnly).unwrap();
        let id = FileId {
            number,
            generation: file.generation,
            start: file.start,
            end: file.end,
        };
        let index = Index::open(opened.clone(), &UUID, &id).unwrap();
        let index = index.expect("it is whole");
        let head = index.head().clone();
        let frames = frames(self.dir.path(), head.first, file.end);
        let next = frames.last().map_or(head.first, |(_, end, _)| *end);
        assert!(head.next == next && next >= file.end, "IDX-1");
        let (all, summary) = changes(&frames);
        assert_eq!(head.summary, summary);
        let listed: u32 = (index.units().unwrap().iter())
            .map(|(_, marks)| marks.lacks.count_ones())
            .sum();
        assert_eq!(listed as usize, all.len());
        for (page, changes) in &all {
            let bytes = block(&index, Some(&*opened), *page).expect("it has an entry");
            check_entry(&decode_block(&bytes, *page).unwrap(), changes);
        }
        (head.first, next)
    }

    fn check_all(&self, numbers: Vec<u64>) {
        for number in numbers {
            self.check(number);
        }
    }

    /// The numbers of the indexes that there are.
    fn indexes(&self) -> Vec<u64> {
        let names = RealDisk.list(&self.dir.path().join(REDO_DIR)).unwrap();
        names
            .iter()
            .filter_map(|e| index_number_of(&e.name))
            .collect()
    }
}

type Frames = Vec<(Lsn, Lsn, Vec<u8>)>;

/// The frames that start from `first` to `end`, as the log has them.
fn frames(dir: &Path, first: Lsn, end: Lsn) -> Frames {
    let mut reader = RedoReader::open(&RealDisk, dir, &UUID, first, &Default::default()).unwrap();
    let mut frames = Frames::new();
    while let Some(frame) = reader.next().unwrap() {
        if frame.start >= end {
            break;
        }
        frames.push((frame.start, frame.end, frame.body.to_vec()));
    }
    frames
}

fn changes(frames: &Frames) -> (BTreeMap<PageId, Vec<Change<'_>>>, LogSummary) {
    let (mut all, mut summary) = (BTreeMap::<_, Vec<_>>::new(), LogSummary::default());
    for (start, end, body) in frames {
        let frame = Frame {
            start: *start,
            end: *end,
            body,
        };
        take_apart(&frame, &mut summary, |change| {
            all.entry(change.page).or_default().push(change);
        })
        .unwrap();
    }
    (all, summary)
}

/// Takes steps until there is nothing to do, and returns the files indexed.
fn steps(indexer: &Indexer) -> Vec<u64> {
    std::iter::from_fn(|| indexer.index_next().unwrap()).collect()
}

/// Each begins where the one before ended (IDX-6), over a crash, too.
#[test]
fn full_files_are_indexed_one_after_the_other() {
    let mut log = Log::new(1);
    let (indexer, warnings) = log.indexer(0);
    assert_eq!(steps(&indexer), []);
    log.fill(7);
    let indexed = steps(&indexer);
    assert_eq!(indexed, log.full());
    log.fill(5);
    let more = steps(&indexer);
    assert_eq!([indexed, more].concat(), log.full());
    let counters = indexer.counters();
    assert_eq!(counters.files.load(Relaxed), log.full().len() as u64);
    let mut at = START;
    for number in log.full() {
        let (first, next) = log.check(number);
        assert_eq!(first, at, "IDX-6");
        at = next;
    }
    let bytes: u64 = (log.indexes().iter())
        .map(|n| {
            std::fs::metadata(index_path(&log.dir.path().join(REDO_DIR), *n))
                .unwrap()
                .len()
        })
        .sum();
    assert_eq!(counters.bytes.load(Relaxed), bytes);
    drop(indexer);

    let before = log.full();
    // So that the second opening finds one that is missing.
    std::fs::remove_file(index_path(&log.dir.path().join(REDO_DIR), before[4])).unwrap();
    log = log.reopen(START);
    let begin = log.log.next_lsn();
    let (indexer, _) = log.indexer(0);
    assert_eq!(steps(&indexer), [before[4]], "the others are taken over");
    log.fill(4);
    let after = steps(&indexer);
    assert_eq!([before.clone(), after.clone()].concat(), log.full());
    assert_eq!(log.check(after[0]).0, begin, "another generation");
    log.check_all(log.full());
    assert_eq!((log.indexes(), warnings.load(Relaxed)), (log.full(), 0));
}

#[test]
fn files_are_indexed_from_the_checkpoint_on_while_there_is_much_redo() {
    let mut log = Log::new(2);
    let (indexer, _) = log.indexer(6 * PAYLOAD);
    log.fill(5);
    assert_eq!(steps(&indexer), [], "little redo");
    let checkpoint = log.log.next_lsn();
    log.fill(5);
    log.checkpoint(checkpoint);
    assert_eq!(steps(&indexer), [], "little redo again");
    log.fill(2);
    let full = log.full();
    let indexed = steps(&indexer);
    assert!(
        indexed.len() >= 6 && full.ends_with(&indexed),
        "{indexed:?} of {full:?}"
    );
    let mut at = checkpoint;
    for number in indexed {
        let (first, next) = log.check(number);
        assert_eq!(first, at, "IDX-6");
        at = next;
    }
    assert_eq!(steps(&log.indexer(u64::MAX).0), [], "never");
}

/// IDX-8
#[test]
fn an_index_goes_after_its_log_file() {
    let mut log = Log::new(3);
    let (indexer, _) = log.indexer(0);
    for _ in 0..40 {
        log.fill(5);
        log.checkpoint(log.log.durable_lsn());
        log.fill(3);
        let first = log.full()[0];
        steps(&indexer);
        let indexes = log.indexes();
        assert!(indexes.len() >= 3 && indexes[0] >= first, "{indexes:?}");
        log.check_all(indexes);
    }
    let redo = log.dir.path().join(REDO_DIR);
    let (oldest, newest) = (log.full()[0], *log.indexes().last().unwrap());
    let strays = [oldest.saturating_sub(5), newest + 1, newest + 100];
    for number in strays {
        std::fs::copy(index_path(&redo, newest), index_path(&redo, number)).unwrap();
    }
    // One that is torn, and one that has another name.
    let torn = std::fs::File::options()
        .write(true)
        .open(index_path(&redo, newest));
    torn.unwrap().set_len(5000).unwrap();
    std::fs::copy(index_path(&redo, newest), redo.join("77.vidx")).unwrap();
    drop(indexer);
    let before = log.indexes().len();
    let (indexer, warnings) = log.indexer(u64::MAX);
    assert_eq!(log.indexes().len(), before - strays.len() - 2);
    log.check_all(log.indexes());
    indexer.remove_all();
    assert_eq!((log.indexes(), warnings.load(Relaxed)), (vec![], 0));
    assert!(!log.full().is_empty());
}

/// No room for indexes.
#[derive(Default)]
struct FullDisk {
    is_full: AtomicBool,
}

impl Meddler for FullDisk {
    fn before_write(&self, path: &Path, _: u64, _: usize) -> Result<()> {
        let what = path.display().to_string();
        match self.is_full.load(Relaxed) && what.ends_with(".vidx") {
            true => Err(Error::NoSpace { what }),
            false => Ok(()),
        }
    }
}

/// IDX-7
#[test]
fn a_full_disk_costs_an_index_and_a_warning() {
    let mut log = Log::new(4);
    let full_disk = Arc::new(FullDisk::default());
    let (indexer, warnings) = log.indexer_on(MeddledDisk::new(full_disk.clone()), 0);
    log.fill(6);
    let full = log.full();
    assert_eq!(indexer.index_next().unwrap(), Some(full[0]));
    full_disk.is_full.store(true, Relaxed);
    for _ in 0..2 {
        let failed = indexer.index_next();
        assert!(matches!(failed, Err(Error::NoSpace { .. })), "{failed:?}");
    }
    assert_eq!(log.indexes(), [full[0]], "nothing is left of them");
    full_disk.is_full.store(false, Relaxed);
    assert_eq!(steps(&indexer), full[3..], "these are not tried again");
    let mut at = log.check(full[3]).1;
    for number in &full[4..] {
        let (first, next) = log.check(*number);
        assert_eq!(first, at);
        at = next;
    }
    assert_eq!(warnings.load(Relaxed), 1);
    assert!(log.log.check().is_ok());
}

/// IDX-7, IDX-6: behind a file that can't be read, it is not known where frames begin.
#[test]
fn a_damaged_log_file_is_passed_over() {
    let mut log = Log::new(5);
    let (indexer, warnings) = log.indexer(0);
    log.fill(8);
    let full = log.log.full_files();
    let path = log
        .dir
        .path()
        .join(REDO_DIR)
        .join(format!("{:06}.vlog", full[2].number));
    let file = RealDisk.open(&path, OpenMode::Existing).unwrap();
    file.write_at(&[0xaa; 64], 30_000).unwrap();
    assert_eq!(indexer.index_next().unwrap(), Some(full[0].number));
    assert_eq!(indexer.index_next().unwrap(), Some(full[1].number));
    let failed = indexer.index_next();
    assert!(
        matches!(failed, Err(Error::CorruptFile { .. })),
        "{failed:?}"
    );
    assert_eq!(steps(&indexer), []);
    assert!(warnings.load(Relaxed) == 1 && log.log.check().is_ok());
    // Some frame's end that is known.
    log.checkpoint(log.log.durable_lsn());
    log.fill(3);
    let indexed = steps(&indexer);
    assert!(indexed.len() >= 3 && log.full().ends_with(&indexed));
    log.check_all(indexed);
}

/// The thread does the same while the log goes on, its files are used again, and it is stopped anywhere.
#[test]
fn the_thread_keeps_up() {
    let mut log = Log::new(6);
    for _ in 0..4 {
        let (indexer, warnings) = log.indexer(0);
        indexer.start().unwrap();
        for _ in 0..30 {
            log.fill(log.log.full_files().len() as u64 % 7 + 1);
            let durable = log.log.durable_lsn();
            log.checkpoint(Lsn(durable.0.max(log.log.checkpoint_lsn().0)));
        }
        log.fill(4);
        indexer.stop();
        assert_eq!(warnings.load(Relaxed), 0);
        log.log.check().unwrap();
        finish(&log);
    }
}

/// What the thread has left is indexed, too; and all that there is, is right.
fn finish(log: &Log) {
    let (indexer, _) = log.indexer(0);
    steps(&indexer);
    let indexes = log.indexes();
    assert!(indexes.len() >= 3 && log.full().ends_with(&indexes[indexes.len() - 3..]));
    log.check_all(indexes);
}
