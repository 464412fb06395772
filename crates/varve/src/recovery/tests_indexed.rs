//! The page map of a log whose files have indexes, against the pages as they were.

use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::index::{FileId, IndexBuilder, index_path};
use super::tests::{Made, PAGE, PAGES, START, UUID, id, make_in_files, pool_on, scan_on, wrong};
use super::*;
use crate::buffer::mem_store::MemStore;
use crate::io::meddled::{MeddledDisk, Meddler};
use crate::io::{Disk, IoQueue, RealDisk};
use crate::redo::{Frame, Stream, Through};

const FILE_BYTES: u64 = 64 << 10;
const MEMORY: u64 = 300_000;

fn made(seed: u64) -> Made {
    make_in_files(&mut SmallRng::seed_from_u64(seed), 4000, Some(FILE_BYTES))
}

/// Makes the indexes of all full files of a log; `lie`: what an index is told instead of a frame. Returns the
/// files' numbers.
fn index_all(made: &Made, from: Lsn, lie: impl Fn(&Frame<'_>) -> Option<Vec<u8>>) -> Vec<u64> {
    let dir = made.dir.path();
    let queue = Arc::new(IoQueue::one_by_one());
    let stream = Stream::open(
        &RealDisk,
        dir,
        &UUID,
        from,
        &queue,
        Through::Cache,
        &Default::default(),
    )
    .unwrap();
    let mut reader = RedoReader::open(&RealDisk, dir, &UUID, from, &Default::default()).unwrap();
    let (mut first, mut numbers) = (from, Vec::new());
    for (header, end) in stream.files().take_while(|(_, end)| *end <= made.end) {
        let mut builder = IndexBuilder::new();
        let mut next = first;
        while next < end {
            let frame = reader.next().unwrap().expect("the log goes on");
            let body = lie(&frame);
            next = frame.end;
            let body = body.as_deref().unwrap_or(frame.body);
            builder.add(&Frame { body, ..frame }).unwrap();
        }
        let file = FileId {
            number: header.number,
            generation: header.generation,
            start: header.start,
            end,
        };
        let identity = DatabaseIdentity {
            page_size: PAGE as u32,
            uuid: UUID,
        };
        let image = builder.finish(file, first, identity);
        std::fs::write(path(made, header.number), image).unwrap();
        numbers.push(header.number);
        first = next;
    }
    assert!(numbers.len() > 12);
    numbers
}

fn path(made: &Made, number: u64) -> std::path::PathBuf {
    index_path(&made.dir.path().join(REDO_DIR), number)
}

fn by_indexes(settings: ScanSettings) -> ScanSettings {
    ScanSettings {
        goes_by_indexes: true,
        ..settings
    }
}

fn scanned(made: &Made, from: Lsn, threads: usize) -> (Scan, PageMap) {
    let dir = made.dir.path();
    scan_on(Arc::new(RealDisk), dir, from, MEMORY, threads, by_indexes)
}

fn attached(map: PageMap, store: &Arc<MemStore>) -> (Arc<BufferPool>, Arc<PageMap>) {
    let pool = pool_on(store);
    let map = attach(map, &pool, &|_| false)
        .unwrap()
        .expect("pages lack redo");
    (pool, map)
}

/// IDX-5 and MAP-1: what indexes say is what the log says, whether the checkpoint is at the beginning of the
/// first file or in the middle of another, and whichever indexes are missing.
#[test]
fn indexes_say_what_the_log_says() {
    let made = made(21);
    let numbers = index_all(&made, START, |_| None);
    for (round, threads) in [1, 2, 3, 4].into_iter().enumerate() {
        for from in [START, made.checkpoint] {
            let (disk, dir) = (Arc::new(RealDisk), made.dir.path());
            let (expected, _) = scan_on(disk, dir, from, MEMORY, threads, |s| s);
            let (scan, map) = scanned(&made, from, threads);
            assert_eq!(scan, expected);
            assert!(map.goes_by_indexes());
            assert_eq!(map.left(), u64::from(PAGES));
            let (pool, map) = attached(map, &made.stored);
            assert_eq!(wrong(&made, &pool), [0; 0], "from {from}");
            assert!(map.goes_by_indexes(), "nobody has divided");
            assert!(map.is_through());
            let first = pool.min_first_change(made.end);
            assert!(first.is_some_and(|first| first >= from), "RPL-2: {first:?}");
        }
        // Some go: the first one, one in the middle, and the last one.
        let gone = [
            numbers[0],
            numbers[3 * round + 2],
            numbers[numbers.len() - 1 - round],
        ];
        for number in gone {
            let _ = std::fs::remove_file(path(&made, number));
        }
    }
}

/// Without enough indexes, and where they are not wanted, the log is read.
#[test]
fn a_log_with_few_indexes_is_read() {
    let made = made(22);
    let numbers = index_all(&made, START, |_| None);
    for number in &numbers[numbers.len() / 2 - 2..] {
        std::fs::remove_file(path(&made, *number)).unwrap();
    }
    let (scan, map) = scanned(&made, START, 2);
    assert_eq!(scan.end, made.end);
    assert!(!map.goes_by_indexes());
}

/// MAP-6, MAP-2: users load pages by indexes while the log is divided, and go on with what comes of it.
/// Nothing is left behind.
#[test]
fn the_log_is_divided_while_pages_are_loaded() {
    for seed in 0..5 {
        let made = made(30 + seed);
        index_all(&made, START, |_| None);
        let (_, map) = scanned(&made, START, 2);
        let (pool, map) = attached(map, &made.stored);
        thread::scope(|scope| {
            for from in [0, 1] {
                let pool = &pool;
                // But for a few: or nobody would need the redo to be divided.
                let most = (from..PAGES - 4).step_by(2);
                scope.spawn(move || most.for_each(|no| drop(pool.shared(id(no)).unwrap())));
            }
            scope.spawn(|| map.divide().unwrap());
            scope.spawn(|| map.divide().unwrap());
        });
        assert!(!map.goes_by_indexes() && map.left() == 4);
        assert_eq!(wrong(&made, &pool), [0; 0]);
        assert!(map.is_through());
        let divided = map.as_divided();
        assert_eq!((divided.bytes_of_blocks(), divided.kept()), (0, vec![]));
    }
}

/// What is divided while some pages are through is what the others need; and what is before a page's last
/// restart is not kept.
#[test]
fn the_log_is_divided_without_what_nobody_needs() {
    let made = made(23);
    index_all(&made, START, |_| None);
    let (_, whole) = scan_on(
        Arc::new(RealDisk),
        made.dir.path(),
        START,
        64 << 20,
        2,
        |s| s,
    );
    let (disk, dir) = (Arc::new(RealDisk), made.dir.path());
    let (_, map) = scan_on(disk, dir, START, 64 << 20, 2, by_indexes);
    let (pool, map) = attached(map, &made.stored);
    (0..PAGES / 2).for_each(|no| drop(pool.shared(id(no)).unwrap()));
    apply_all(&pool, &map, 2).unwrap();
    assert_eq!(wrong(&made, &pool), [0; 0]);
    let (kept, all) = (map.memory_bytes(), whole.memory_bytes());
    assert!(kept < all * 9 / 10, "{kept} of {all} bytes");
}

/// A damaged index is no damage of the database: the log is divided for the one who finds out.
#[test]
fn damaged_indexes_are_done_without() {
    let made = made(24);
    let numbers = index_all(&made, START, |_| None);
    let (_, map) = scanned(&made, START, 2);
    let (pool, map) = attached(map, &made.stored);
    // Blocks, after what opening reads was read.
    for number in &numbers {
        let mut image = std::fs::read(path(&made, *number)).unwrap();
        image[4096..5000].fill(0x55);
        std::fs::write(path(&made, *number), image).unwrap();
    }
    assert_eq!(wrong(&made, &pool), [0; 0]);
    assert!(!map.goes_by_indexes());

    // Torn ones.
    let made = self::made(25);
    let numbers = index_all(&made, START, |_| None);
    for (n, number) in numbers.iter().enumerate().filter(|(n, _)| n % 4 == 0) {
        let image = std::fs::read(path(&made, *number)).unwrap();
        std::fs::write(
            path(&made, *number),
            &image[..image.len() * n / numbers.len()],
        )
        .unwrap();
    }
    let (_, map) = scanned(&made, START, 2);
    assert!(map.goes_by_indexes());
    let (pool, _) = attached(map, &made.stored);
    assert_eq!(wrong(&made, &pool), [0; 0]);
}

/// IDX-9: an index that is whole, and wrong.
#[test]
fn indexes_that_lie_are_found_out() {
    let made = made(26);
    // The index takes each frame for the first one.
    let first = std::cell::RefCell::new(None);
    let lie = |frame: &Frame<'_>| {
        let first = &mut *first.borrow_mut();
        Some(first.get_or_insert(frame.body.to_vec()).clone())
    };
    let numbers = index_all(&made, START, lie);
    let (_, map) = scanned(&made, START, 2);
    let (pool, map) = attached(map, &made.stored);
    let refused = |e: Error| assert!(matches!(e, Error::CorruptFile { .. }), "{e}");
    for _ in 0..2 {
        refused(map.divide().unwrap_err());
    }
    let loaded = (0..PAGES).filter_map(|no| pool.shared(id(no)).map(drop).err());
    loaded.for_each(refused);
    assert!(map.left() > 0);
    let is_gone = |number: &u64| !path(&made, *number).exists();
    assert!(numbers.iter().all(is_gone), "the next start reads the log");
    let (_, map) = scanned(&made, START, 2);
    let (pool, _) = attached(map, &made.stored);
    assert_eq!(wrong(&made, &pool), [0; 0]);
}

/// A damaged frame that no index knows of ends the log there only if nothing comes behind it.
#[test]
fn damage_before_an_index_is_not_the_end_of_the_log() {
    let made = made(27);
    let numbers = index_all(&made, START, |_| None);
    std::fs::remove_file(path(&made, numbers[7])).unwrap();
    let log = made.dir.path().join(REDO_DIR);
    let log = log.join(format!("{:06}.vlog", numbers[7]));
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[30_000] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let dir = made.dir.path();
    let refused = super::tests::try_scan_on(disk, dir, START, MEMORY, 2, by_indexes);
    let refused = refused.map(drop).unwrap_err().to_string();
    let name = format!("{:06}.vlog", numbers[7]);
    assert!(
        refused.contains(&name) && refused.contains("frame"),
        "{refused}"
    );
}

/// No room for what does not fit in memory: each page is brought up to date by itself.
#[test]
fn without_room_pages_are_applied_by_indexes() {
    struct Full;
    impl Meddler for Full {
        fn before_write(&self, path: &Path, _: u64, _: usize) -> Result<()> {
            match path.ends_with(SPILL_FILE) {
                true => Err(Error::io("write", path, rustix::io::Errno::NOSPC.into())),
                false => Ok(()),
            }
        }
    }
    let made = made(28);
    index_all(&made, START, |_| None);
    let disk = MeddledDisk::new(Arc::new(Full));
    let (_, map) = scan_on(disk, made.dir.path(), START, 40_000, 2, by_indexes);
    let (pool, map) = attached(map, &made.stored);
    assert!(matches!(map.divide(), Err(Error::NoSpace { .. })));
    assert!(map.groups() > 1);
    apply_all(&pool, &map, 2).unwrap();
    assert!(map.goes_by_indexes() && map.left() == 0);
    assert_eq!(wrong(&made, &pool), [0; 0]);
}

/// When no page is left nobody needs the whole log any more.
#[test]
fn nothing_is_divided_for_nobody() {
    let made = made(32);
    index_all(&made, START, |_| None);
    let (_, map) = scanned(&made, START, 2);
    let (pool, map) = attached(map, &made.stored);
    assert_eq!(wrong(&made, &pool), [0; 0]);
    assert!(map.divide().is_err());
    apply_all(&pool, &map, 2).unwrap();
    let indexes = std::fs::read_dir(made.dir.path().join(REDO_DIR)).unwrap();
    let is_index = |name: &std::ffi::OsStr| name.to_string_lossy().ends_with(".vidx");
    assert!(indexes.flatten().any(|entry| is_index(&entry.file_name())));
}

/// Closing the database does not wait for the log to be read.
#[test]
fn dividing_can_be_stopped() {
    let made = made(29);
    index_all(&made, START, |_| None);
    let (_, map) = scanned(&made, START, 2);
    let (pool, map) = attached(map, &made.stored);
    map.stop_dividing();
    assert!(map.divide().is_err());
    assert!(map.goes_by_indexes());
    // A thread that needs a page meanwhile still gets it.
    assert_eq!(wrong(&made, &pool), [0; 0]);
}
