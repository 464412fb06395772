//! The page map against the pages as they were.

use std::collections::BTreeSet;
use std::path::Path;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::base::{PageId, PageNo, SpaceId};
use crate::buffer::PoolSettings;
use crate::buffer::mem_store::MemStore;
use crate::io::{Disk, FlushMethod, IoQueue, RealDisk};
use crate::mtr::{Mtr, MtrEnv, RawRecord};
use crate::page::{self, PAGE_HEADER, PageOp, PageType};
use crate::redo::{Control, LogSettings, Through};

pub(super) const PAGE: usize = 4096;
pub(super) const UUID: [u8; 16] = [3; 16];
pub(super) const START: Lsn = Lsn(4096);
pub(super) const PAGES: u32 = 60;

/// Some are neighbours, some are not.
pub(super) fn id(no: u32) -> PageId {
    PageId::new(SpaceId(2 + no % 3), PageNo(no + no / 4 * 100))
}

pub(super) fn pool_on(store: &Arc<MemStore>) -> Arc<BufferPool> {
    let settings = PoolSettings {
        bytes: (256 * PAGE) as u64,
        page_size: PAGE,
    };
    Arc::new(BufferPool::new(settings, store.clone()).unwrap())
}

fn control(checkpoint: Lsn) -> Control {
    Control {
        page_size: PAGE as u32,
        uuid: UUID,
        checkpoint,
        clean_shutdown: false,
        files_match: false,
        encrypted: false,
        written: None,
        id_limit: 7,
        next_space: 0,
        next_table: 0,
        next_index: 0,
    }
}

/// A log of random changes, the pages as they are then, and the pages as they were stored: all of them at the
/// checkpoint, in the middle, and some later.
pub(super) struct Made {
    pub dir: tempfile::TempDir,
    pub checkpoint: Lsn,
    pub end: Lsn,
    pub now: Arc<BufferPool>,
    pub stored: Arc<MemStore>,
}

fn make(rng: &mut SmallRng, mtrs: usize) -> Made {
    make_in_files(rng, mtrs, None)
}

/// In files of so many bytes.
pub(super) fn make_in_files(rng: &mut SmallRng, mtrs: usize, file_bytes: Option<u64>) -> Made {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = LogSettings::new(64 << 20, PAGE as u32, UUID);
    if let Some(bytes) = file_bytes {
        settings.file_bytes = bytes;
        settings.capacity_bytes = 4 << 20;
    }
    let disk = Arc::new(RealDisk);
    let log = Arc::new(RedoLog::create(disk, dir.path(), settings, START).unwrap());
    let (now, stored) = (pool_on(&Arc::default()), Arc::new(MemStore::default()));
    let env = MtrEnv::new(now.clone(), log.clone());
    let (mut made, mut end) = (BTreeSet::new(), START);
    let mut checkpoint = START;
    let store = |no: u32| {
        let mut image = now.shared(id(no)).unwrap().to_vec();
        page::seal(&mut image);
        stored.put(id(no), image);
    };
    for n in 0..mtrs {
        if n == mtrs / 2 {
            checkpoint = end;
            made.iter().for_each(|no| store(*no));
        }
        let mut mtr = Mtr::begin(&env, 8192).unwrap();
        let nos: BTreeSet<u32> = (0..3).map(|_| rng.random_range(0..PAGES)).collect();
        let mut held = Vec::new();
        for no in nos {
            if made.insert(no) || rng.random_range(0..60) == 0 {
                let h = mtr.exclusive_new(id(no)).unwrap();
                let ptype = PageType::Raw;
                mtr.op(h, PageOp::FormatRaw { ptype });
                held.push(h);
            } else {
                held.push(mtr.exclusive(id(no)).unwrap());
            }
        }
        for _ in 0..rng.random_range(1..5) {
            let h = held[rng.random_range(0..held.len())];
            let bytes: Vec<u8> = (0..rng.random_range(1..200))
                .map(|_| rng.random())
                .collect();
            let off = rng.random_range(PAGE_HEADER..PAGE - 200) as u16;
            let bytes = &bytes;
            mtr.op(h, PageOp::Write { off, bytes });
        }
        if rng.random_range(0..100) == 0 {
            let limit = rng.random_range(0..1000);
            mtr.log_raw(&RawRecord::IdLimit { limit });
        }
        end = mtr.commit();
        let no = rng.random_range(0..PAGES);
        if rng.random_range(0..20) == 0 && made.contains(&no) {
            store(no);
        }
    }
    log.sync_to(end).unwrap();
    Made {
        dir,
        checkpoint,
        end,
        now,
        stored,
    }
}

fn scan_in(
    dir: &Path,
    from: Lsn,
    memory_bytes: u64,
    threads: usize,
    forgets_a_block: bool,
) -> (Scan, PageMap) {
    scan_on(Arc::new(RealDisk), dir, from, memory_bytes, threads, |s| {
        ScanSettings {
            forgets_a_block,
            ..s
        }
    })
}

/// `set` changes settings that suit most.
pub(super) fn scan_on(
    disk: Arc<dyn Disk>,
    dir: &Path,
    from: Lsn,
    memory_bytes: u64,
    threads: usize,
    set: impl Fn(ScanSettings) -> ScanSettings,
) -> (Scan, PageMap) {
    match try_scan_on(disk, dir, from, memory_bytes, threads, set).unwrap() {
        (scan, Changes::Map(map)) => (scan, *map),
        (_, Changes::ReadAgain(_)) => panic!("there is room"),
    }
}

pub(super) fn try_scan_on(
    disk: Arc<dyn Disk>,
    dir: &Path,
    from: Lsn,
    memory_bytes: u64,
    threads: usize,
    set: impl Fn(ScanSettings) -> ScanSettings,
) -> Result<(Scan, Changes)> {
    // Read ahead, too.
    let (queue, through, spill) = match threads {
        1 => (IoQueue::one_by_one(), Through::Cache, FlushMethod::Direct),
        3 => (
            IoQueue::start(false).unwrap(),
            Through::Direct,
            FlushMethod::Fsync,
        ),
        _ => (
            IoQueue::start(true).unwrap(),
            Through::Direct,
            FlushMethod::Direct,
        ),
    };
    let settings = ScanSettings {
        memory_bytes,
        threads,
        through,
        spill,
        goes_by_indexes: false,
        forgets_a_block: false,
    };
    let settings = set(settings);
    scan(
        &disk,
        dir,
        &control(from),
        settings,
        &Arc::new(queue),
        &Default::default(),
    )
}

/// Which pages are not what they should be.
pub(super) fn wrong(made: &Made, recovered: &BufferPool) -> Vec<u32> {
    let is_wrong = |no: &u32| sealed(&made.now, *no) != sealed(recovered, *no);
    (0..PAGES).filter(is_wrong).collect()
}

/// As it would be stored.
fn sealed(pool: &BufferPool, no: u32) -> Vec<u8> {
    let mut page = pool.shared(id(no)).unwrap().to_vec();
    page::seal(&mut page);
    page
}

/// MAP-1, in memory and in the file, in one thread and several, of pages that the log makes and of stored
/// ones.
#[test]
fn pages_come_out_as_they_were() {
    let mut rng = SmallRng::seed_from_u64(5);
    let made = make(&mut rng, 4000);
    for settings in [(64 << 20, 1), (64 << 20, 4), (40_000, 1), (4_000, 3)] {
        for (from, frames) in [(START, 4000), (made.checkpoint, 2000)] {
            let (scan, map) = scan_in(made.dir.path(), from, settings.0, settings.1, false);
            assert_eq!((scan.end, scan.frames), (made.end, frames));
            assert!(scan.id_limit > 7);
            assert_eq!(
                map.as_divided().spilled_blocks() > 1,
                settings.0 < 1 << 20,
                "{settings:?}"
            );
            assert_eq!(map.left(), u64::from(PAGES));
            let pool = pool_on(&made.stored);
            let map = attach(map, &pool, &|_| false)
                .unwrap()
                .expect("pages lack redo");
            assert_eq!(wrong(&made, &pool), [0; 0], "{settings:?} from {from}");
            assert_eq!(map.left(), 0);
            let first = pool.min_first_change(made.end);
            assert!(first.is_some_and(|first| first >= from), "RPL-2: {first:?}");
            pool.end_pending();
            map.remove_file().unwrap();
            assert!(!made.dir.path().join(SPILL_FILE).exists());
        }
    }
}

#[test]
fn a_forgotten_block_is_noticed() {
    let mut rng = SmallRng::seed_from_u64(6);
    let made = make(&mut rng, 1000);
    let (_, map) = scan_in(made.dir.path(), START, 4_000, 1, true);
    let pool = pool_on(&made.stored);
    attach(map, &pool, &|_| false)
        .unwrap()
        .expect("pages lack redo");
    let is_wrong = |no: &u32| match pool.shared(id(*no)) {
        Ok(page) => page[..] != made.now.shared(id(*no)).unwrap()[..],
        Err(_) => true,
    };
    assert!((0..PAGES).any(|no| is_wrong(&no)));
}

/// REC-7, and REC-1 without delay.
#[test]
fn everything_is_applied_at_once_and_files_are_synced() {
    let mut rng = SmallRng::seed_from_u64(11);
    let made = make(&mut rng, 1000);
    let (_, map) = scan_in(made.dir.path(), START, 4_000, 2, false);
    let pool = pool_on(&made.stored);
    let map = attach(map, &pool, &|_| false)
        .unwrap()
        .expect("pages lack redo");
    apply_all(&pool, &map, 3).unwrap();
    assert_eq!(map.left(), 0);
    let spaces = [2, 3, 4].map(SpaceId);
    assert_eq!(*made.stored.synced.lock(), spaces.into_iter().collect());
    assert_eq!(wrong(&made, &pool), [0; 0]);
}

/// Opening asks for pages of all kinds: those that lack redo are brought up to date, and what can't be loaded
/// is left to who needs it.
#[test]
fn pages_that_are_asked_for_are_loaded_together() {
    let mut rng = SmallRng::seed_from_u64(15);
    let made = make(&mut rng, 2000);
    let (_, map) = scan_in(made.dir.path(), START, 100_000, 2, false);
    let pool = pool_on(&made.stored);
    let map = attach(map, &pool, &|_| false)
        .unwrap()
        .expect("pages lack redo");
    assert!(map.groups() > 1);
    let mut asked: Vec<PageId> = (0..PAGES).step_by(3).map(id).collect();
    asked.push(PageId::new(SpaceId(9), PageNo(0)));
    // Twice the same.
    for _ in 0..2 {
        load_ahead(&pool, Some(&map), &asked, 3);
        assert!(asked.iter().all(|page| !map.waits(*page)));
        assert_eq!(map.left(), u64::from(PAGES) / 3 * 2);
    }
    assert_eq!(wrong(&made, &pool), [0; 0]);
    load_ahead(&pool, Some(&map), &asked, 3);
    load_ahead(&pool, None, &asked, 3);

    let (_, map) = scan_in(made.dir.path(), made.checkpoint, 64 << 20, 2, false);
    let damaged = Arc::new(MemStore::default());
    (0..PAGES).for_each(|no| damaged.put(id(no), vec![1; PAGE]));
    let pool = pool_on(&damaged);
    let map = attach(map, &pool, &|_| false)
        .unwrap()
        .expect("pages lack redo");
    let all: Vec<PageId> = (0..PAGES).map(id).collect();
    load_ahead(&pool, Some(&map), &all, 3);
    let refused = |page: &PageId| pool.shared(*page).is_err();
    assert!(all.iter().any(refused));
    assert!(all.iter().all(|page| refused(page) == map.waits(*page)));
}

/// BUF-7: who takes a page for new that lacks redo, and does not fill it, leaves the redo where it is.
#[test]
fn a_page_taken_for_new_and_not_filled_keeps_its_redo() {
    let mut rng = SmallRng::seed_from_u64(7);
    let made = make(&mut rng, 300);
    let (_, map) = scan_in(made.dir.path(), START, 64 << 20, 1, false);
    let pool = pool_on(&made.stored);
    let map = attach(map, &pool, &|_| false)
        .unwrap()
        .expect("pages lack redo");
    (0..PAGES).for_each(|no| drop(pool.exclusive_new(id(no)).unwrap()));
    assert_eq!(map.left(), 0);
    assert_eq!(wrong(&made, &pool), [0; 0]);
}

/// PART-2, and MAP-2: memory is bounded while the log is read, and goes with the last page of each partition.
#[test]
fn memory_is_bounded_and_given_back() {
    let mut rng = SmallRng::seed_from_u64(12);
    let made = make(&mut rng, 3000);
    for settings in [(200_000, 1), (200_000, 3), (1 << 20, 2), (64 << 20, 2)] {
        let (_, map) = scan_in(made.dir.path(), START, settings.0, settings.1, false);
        let held = map.as_divided().bytes_of_blocks();
        assert!(held <= settings.0 as usize, "{held} of {settings:?}");
        let redo = (made.end.0 - START.0) as usize;
        let all = held + map.spilled_bytes() as usize;
        assert!(all > redo * 3 / 4, "{all} of {redo} bytes");
        let pool = pool_on(&made.stored);
        let map = attach(map, &pool, &|_| false)
            .unwrap()
            .expect("pages lack redo");
        let mut before = held;
        for partition in 0..map.groups() {
            for page in map.waiting(partition) {
                drop(pool.shared(page).unwrap());
            }
            let now = map.as_divided().bytes_of_blocks();
            assert!(now <= before);
            before = now;
        }
        assert_eq!(
            (map.left(), map.as_divided().bytes_of_blocks()),
            (0, 0),
            "{settings:?}"
        );
        assert_eq!(map.as_divided().kept(), [0; 0]);
        assert_eq!(wrong(&made, &pool), [0; 0]);
    }
}

/// MAP-4: pages and redo together take no more than the pool, from the beginning until nothing is held back
/// any more.
#[test]
fn redo_in_the_pools_memory_is_in_no_frame() {
    let mut rng = SmallRng::seed_from_u64(16);
    let made = make(&mut rng, 3000);
    const POOL: usize = 256 * PAGE;
    for settings in [(POOL as u64 / 2, 1), (POOL as u64 / 2, 3), (100_000, 2)] {
        let (_, map) = scan_in(made.dir.path(), START, settings.0, settings.1, false);
        let held = map.as_divided().bytes_of_blocks();
        assert!(held > settings.0 as usize / 4, "{held} of {settings:?}");
        let pool = pool_on(&made.stored);
        let map = attach_within(map, &pool, &|_| false)
            .unwrap()
            .expect("pages lack redo");
        let check = || {
            let held = map.as_divided().bytes_of_blocks();
            assert_eq!(map.held_bytes(), held);
            assert_eq!(pool.held_back_frames(), held.div_ceil(PAGE));
            assert!(pool.usable_frames() * PAGE + held <= POOL);
        };
        check();
        let mut steps = BTreeSet::from([pool.held_back_frames()]);
        for partition in 0..map.groups() {
            for page in map.waiting(partition) {
                drop(pool.shared(page).unwrap());
                check();
            }
            steps.insert(pool.held_back_frames());
        }
        assert!(steps.len() > map.groups() / 2, "{steps:?}");
        assert_eq!(pool.held_back_frames(), 0);
        assert_eq!(wrong(&made, &pool), [0; 0]);

        // The same with pages that are read together, and tablespaces that go.
        let (_, map) = scan_in(made.dir.path(), START, settings.0, settings.1, false);
        let pool = pool_on(&made.stored);
        let map = attach_within(map, &pool, &|_| false)
            .unwrap()
            .expect("pages lack redo");
        let before = pool.held_back_frames();
        pool.drop_space(SpaceId(3));
        pool.drop_space(SpaceId(4));
        assert!(pool.held_back_frames() <= before);
        apply_all(&pool, &map, 3).unwrap();
        assert_eq!((map.held_bytes(), pool.held_back_frames()), (0, 0));
    }

    // Nothing lacks redo, so nothing is held back.
    let (_, map) = scan_in(made.dir.path(), made.end, 100_000, 1, false);
    let pool = pool_on(&made.stored);
    assert!(attach_within(map, &pool, &|_| false).unwrap().is_none());
    assert_eq!(pool.held_back_frames(), 0);
}

/// Who needs a page has the redo of its neighbours at hand: the file is not read again. Of other partitions
/// it is, with its checksum (MAP-3), and a page whose redo can't be read stays.
#[test]
fn a_partition_that_was_needed_is_kept_for_its_neighbours() {
    let mut rng = SmallRng::seed_from_u64(13);
    let made = make(&mut rng, 2000);
    let (_, map) = scan_in(made.dir.path(), START, 100_000, 2, false);
    assert!(map.groups() > 1 && map.as_divided().spilled_blocks() > 50);
    let pool = pool_on(&made.stored);
    let map = attach(map, &pool, &|_| false)
        .unwrap()
        .expect("pages lack redo");
    let several = |partition: &usize| map.waiting(*partition).len() > 1;
    let used = (0..map.groups()).find(several).expect("a partition");
    let pages = map.waiting(used);
    drop(pool.shared(pages[0]).unwrap());
    assert_eq!(map.as_divided().kept(), [used]);
    let spill = made.dir.path().join(SPILL_FILE);
    let len = std::fs::metadata(&spill).unwrap().len();
    std::fs::write(&spill, vec![0xa5; len as usize]).unwrap();
    pages[1..]
        .iter()
        .for_each(|page| drop(pool.shared(*page).unwrap()));
    assert_eq!(map.as_divided().kept(), [0; 0], "no page is left there");
    let left = map.left();
    let mut refused = 0;
    for partition in 0..map.groups() {
        for page in map.waiting(partition) {
            match pool.shared(page) {
                Err(Error::CorruptFile { .. }) => refused += 1,
                other => panic!("{:?}", other.map(drop)),
            }
            assert!(map.waits(page));
        }
    }
    assert_eq!((refused, map.left()), (left, left));
}

/// A tablespace goes while somebody has its partition at hand: what is left is not applied any more, and
/// nothing is left behind.
#[test]
fn a_tablespace_may_go_while_its_redo_is_being_loaded() {
    let mut rng = SmallRng::seed_from_u64(14);
    let made = make(&mut rng, 600);
    let (_, map) = scan_in(made.dir.path(), START, 100_000, 1, false);
    let loaded: Vec<_> = (0..map.groups())
        .map(|p| map.load(p).unwrap().unwrap())
        .collect();
    let page = id(0);
    [2, 3]
        .map(SpaceId)
        .iter()
        .for_each(|space| map.forget(*space));
    assert_eq!(map.left(), u64::from(PAGES) / 3);
    let mut bytes = vec![0; PAGE];
    let refused = map.apply(page, &mut bytes, &mut |_| panic!("nothing is applied"));
    assert!(
        matches!(refused, Err(Error::NotFound { .. })),
        "{refused:?}"
    );
    assert!(bytes.iter().all(|b| *b == 0));
    map.forget(SpaceId(4));
    drop(loaded);
    assert_eq!((map.left(), map.as_divided().bytes_of_blocks()), (0, 0));
    assert!(map.is_through());
}

/// A tablespace that is not there takes its redo with it, and one that goes later, too.
#[test]
fn redo_of_tablespaces_that_are_gone_is_forgotten() {
    let mut rng = SmallRng::seed_from_u64(8);
    let made = make(&mut rng, 300);
    let (_, map) = scan_in(made.dir.path(), START, 64 << 20, 1, false);
    made.stored.gone.lock().insert(SpaceId(3));
    let pool = pool_on(&made.stored);
    let map = attach(map, &pool, &|_| false)
        .unwrap()
        .expect("pages lack redo");
    assert_eq!(map.left(), u64::from(PAGES) / 3 * 2);
    pool.drop_space(SpaceId(4));
    assert_eq!(map.left(), u64::from(PAGES) / 3);
    pool.drop_space(SpaceId(4));
    (0..PAGES)
        .step_by(3)
        .for_each(|no| drop(pool.shared(id(no)).unwrap()));
    assert_eq!(map.left(), 0);
}

/// What is stored can't be read, but redo makes the page anew (RPL-3); otherwise the redo stays, and so does
/// the refusal.
#[test]
fn a_damaged_page_is_refused_unless_redo_makes_it_anew() {
    let mut rng = SmallRng::seed_from_u64(9);
    let made = make(&mut rng, 600);
    let (_, map) = scan_in(made.dir.path(), START, 64 << 20, 1, false);
    // All pages were made in this log.
    let damaged = Arc::new(MemStore::default());
    (0..PAGES).for_each(|no| damaged.put(id(no), vec![1; PAGE]));
    let pool = pool_on(&damaged);
    attach(map, &pool, &|_| false)
        .unwrap()
        .expect("pages lack redo");
    assert_eq!(wrong(&made, &pool), [0; 0]);

    // One that was made before is not.
    let from = made.checkpoint;
    let (_, map) = scan_in(made.dir.path(), from, 64 << 20, 1, false);
    let pool = pool_on(&damaged);
    let map = attach(map, &pool, &|_| false)
        .unwrap()
        .expect("pages lack redo");
    let is_refused = |no: &u32| matches!(pool.shared(id(*no)), Err(Error::Corrupt { .. }));
    let refused: Vec<u32> = (0..PAGES).filter(is_refused).collect();
    assert!(!refused.is_empty());
    assert_eq!(map.left(), refused.len() as u64);
    for no in &refused {
        assert!(is_refused(no), "again");
        map.give_up(id(*no));
        map.give_up(id(*no));
        assert!(is_refused(no), "REC-6: nobody sees it");
    }
    assert_eq!(map.left(), 0);
    assert!(map.has_given_up());
}

/// The log's own threads take spare files into use while the log is being replayed. Replay that looked for
/// its files only then ran into a file that was listed under one name and opened under none.
#[test]
fn replay_has_its_files_open() {
    let mut rng = SmallRng::seed_from_u64(10);
    let made = make(&mut rng, 300);
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let redo =
        RedoReader::open(&*disk, made.dir.path(), &UUID, START, &Default::default()).unwrap();
    for file in std::fs::read_dir(made.dir.path().join(REDO_DIR)).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let pool = pool_on(&made.stored);
    replay(redo, START, made.end, made.dir.path(), &pool).unwrap();
    assert_eq!(wrong(&made, &pool), [0; 0]);
}
