//! Reading ahead: from files whose reads wait until the test lets them go, or fail.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::mem_store::MemStore;
use super::tests::{PAGE, id, raw_page, value};
use super::*;
use crate::io::{DiskFile, IoQueue, Request};

/// A store in memory that reads ahead through a queue. Users' own reads go past the gate.
struct Gated {
    pages: Arc<MemStore>,
    file: Arc<GatedFile>,
    queue: IoQueue,
}

struct GatedFile {
    pages: Arc<MemStore>,
    is_open: Mutex<bool>,
    changed: Condvar,
    fails: AtomicBool,
    /// Reads behind the gate, and the pages that they filled.
    reads: AtomicU64,
    filled: AtomicU64,
}

impl GatedFile {
    fn open_gate(&self) {
        *self.is_open.lock() = true;
        self.changed.notify_all();
    }
}

impl DiskFile for GatedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut is_open = self.is_open.lock();
        while !*is_open {
            self.changed.wait(&mut is_open);
        }
        drop(is_open);
        if self.fails.load(Relaxed) {
            return Err(Error::io("read", "gated", std::io::ErrorKind::Other.into()));
        }
        self.filled.fetch_add(1, Relaxed);
        let no = u32::try_from(offset / PAGE as u64).unwrap();
        self.pages.read(id(no), buf)
    }

    fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
        unreachable!("only read")
    }

    fn sync(&self) -> Result<()> {
        unreachable!("only read")
    }

    fn len(&self) -> Result<u64> {
        unreachable!("only read")
    }

    fn allocate(&self, _: u64) -> Result<()> {
        unreachable!("only read")
    }

    fn fill(&self, _: u64) -> Result<()> {
        unreachable!("only read")
    }

    fn set_len(&self, _: u64) -> Result<()> {
        unreachable!("only read")
    }

    fn path(&self) -> &Path {
        Path::new("gated")
    }
}

impl PageStore for Gated {
    fn read(&self, page: PageId, buf: &mut [u8]) -> Result<()> {
        self.pages.read(page, buf)
    }

    fn write(&self, page: PageId, buf: &[u8]) -> Result<()> {
        self.pages.write(page, buf)
    }

    fn reads_in_background(&self) -> bool {
        true
    }

    fn start_reads(&self, runs: Vec<PageRun>) {
        self.file.reads.fetch_add(runs.len() as u64, Relaxed);
        let request = |run: PageRun| {
            let at = u64::from(run.first.no.0) * PAGE as u64;
            Request::read(self.file.clone(), at, run.into)
        };
        self.queue.submit(runs.into_iter().map(request).collect());
    }

    fn sync(&self, space: SpaceId) -> Result<()> {
        self.pages.sync(space)
    }

    fn ensure(&self, page: PageId) -> Result<bool> {
        self.pages.ensure(page)
    }
}

/// A pool over pages from 0 on, each with its number as content. The gate is shut.
fn gated(frames: usize, pages: u32) -> (Arc<BufferPool>, Arc<MemStore>, Arc<GatedFile>) {
    let store = Arc::new(MemStore::default());
    for no in 0..pages {
        store.put(id(no), raw_page(id(no), u64::from(no)));
    }
    let file = Arc::new(GatedFile {
        pages: store.clone(),
        is_open: Mutex::new(false),
        changed: Condvar::new(),
        fails: AtomicBool::new(false),
        reads: AtomicU64::new(0),
        filled: AtomicU64::new(0),
    });
    let settings = PoolSettings {
        bytes: (frames * PAGE) as u64,
        page_size: PAGE,
    };
    let gated = Gated {
        pages: store.clone(),
        file: file.clone(),
        queue: IoQueue::start(false).unwrap(),
    };
    let pool = Arc::new(BufferPool::new(settings, Arc::new(gated)).unwrap());
    (pool, store, file)
}

fn ids(pages: impl IntoIterator<Item = u32>) -> Vec<PageId> {
    pages.into_iter().map(id).collect()
}

/// Returns when so many are at the page, which is not there yet.
fn wait_for_waiters(pool: &BufferPool, page: PageId, waiters: u32) {
    let frame = pool.table.find(&pool.frames, page).unwrap();
    let begun = Instant::now();
    while pool.frames[frame as usize].pins() < waiters {
        assert!(begun.elapsed() < Duration::from_secs(60), "nobody waits");
        thread::yield_now();
    }
}

fn wait_until_read(pool: &BufferPool) {
    let begun = Instant::now();
    while pool.counters.ahead_under_way.load(Relaxed) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "reads hang");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn pages_are_there_before_they_are_needed() {
    let (pool, store, file) = gated(512, 300);
    file.open_gate();
    drop(pool.shared(id(5)).unwrap());
    let wanted = ids((0..40).chain([100, 102, 103]));
    assert_eq!(pool.prefetch(&wanted), 43);
    wait_until_read(&pool);
    assert_eq!(pool.stats().read_ahead, 42, "page 5 was there");
    // 0 to 4, 6 to 39, 100, 102 and 103.
    assert_eq!(file.reads.load(Relaxed), 4, "side by side, read together");
    let before = store.reads.load(Relaxed);
    for page in wanted {
        let latched = pool.shared(page).unwrap();
        assert_eq!(value(&latched, page), u64::from(page.no.0));
    }
    assert_eq!(store.reads.load(Relaxed), before);
    assert_eq!(pool.prefetch(&ids(0..40)), 40);
    assert_eq!(file.reads.load(Relaxed), 4, "nothing to read");
    // Backward: 240 to 201, then 199; then 249, and 251 to 250 beyond it.
    let wanted = ids((201..241).rev().chain([199, 249, 251, 250]));
    assert_eq!(pool.prefetch(&wanted), 44);
    wait_until_read(&pool);
    assert_eq!(file.reads.load(Relaxed), 8);
    let before = store.reads.load(Relaxed);
    for page in wanted {
        let latched = pool.shared(page).unwrap();
        assert_eq!(value(&latched, page), u64::from(page.no.0));
    }
    assert_eq!(store.reads.load(Relaxed), before);
}

/// A thread that needs a page under way waits for it, and for nothing else; one that does not want to wait is
/// told.
#[test]
fn who_needs_a_page_waits_for_its_read() {
    let (pool, store, file) = gated(512, 300);
    pool.prefetch(&ids(0..8));
    drop(pool.shared(id(20)).unwrap());
    assert!(pool.try_shared(id(3)).unwrap().is_none());
    assert!(pool.try_exclusive(id(3)).unwrap().is_none());
    assert_eq!(pool.prefetch(&ids(0..8)), 8, "under way already");
    thread::scope(|s| {
        let readers: Vec<_> = (0..4)
            .map(|_| s.spawn(|| value(&pool.shared(id(3)).unwrap(), id(3))))
            .collect();
        let writer = s.spawn(|| value(&pool.exclusive_new(id(4)).unwrap(), id(4)));
        wait_for_waiters(&pool, id(3), 4);
        wait_for_waiters(&pool, id(4), 1);
        assert!(readers.iter().all(|r| !r.is_finished()) && !writer.is_finished());
        file.open_gate();
        for reader in readers {
            assert_eq!(reader.join().unwrap(), 3);
        }
        assert_eq!(writer.join().unwrap(), 4);
    });
    wait_until_read(&pool);
    assert_eq!(file.filled.load(Relaxed), 8);
    assert_eq!(store.reads.load(Relaxed), 9, "each page once");
}

/// What fails ahead fails in silence. A thread that needs the page tries, and meets the error if there still
/// is one.
#[test]
fn failed_reads_leave_nothing_behind() {
    let (pool, store, file) = gated(64, 300);
    file.fails.store(true, Relaxed);
    let mut torn = raw_page(id(3), 3);
    torn[PAGE - 1] ^= 1;
    pool.prefetch(&ids([2, 3, 4, 299, 300]));
    thread::scope(|s| {
        let waits = s.spawn(|| value(&pool.shared(id(4)).unwrap(), id(4)));
        wait_for_waiters(&pool, id(4), 1);
        file.open_gate();
        assert_eq!(waits.join().unwrap(), 4, "by its own attempt");
    });
    wait_until_read(&pool);
    assert!(!pool.is_resident(id(2)) && !pool.is_resident(id(300)));
    file.fails.store(false, Relaxed);
    store.put(id(3), torn);
    pool.prefetch(&ids([2, 3, 300]));
    wait_until_read(&pool);
    assert!(
        pool.is_resident(id(2)),
        "its neighbour is damaged, it is not"
    );
    assert!(!pool.is_resident(id(3)));
    assert!(matches!(pool.shared(id(3)), Err(Error::Corrupt { .. })));
    assert!(matches!(pool.shared(id(300)), Err(Error::NotFound { .. })));
    // No frame was lost: as many pages as ever fit in.
    let all: Vec<_> = (0..64).map(|no| pool.pin(id(no + 10))).collect();
    assert!(all.iter().all(|pin| pin.is_ok()));
}

/// Reading ahead takes an eighth of the pool at most, nothing that is in use, and no frame that somebody
/// waits for.
#[test]
fn reading_ahead_takes_what_is_spare() {
    let (pool, _, file) = gated(256, 1000);
    assert_eq!(pool.prefetch(&ids(0..100)), 32);
    assert_eq!(pool.prefetch(&ids(200..300)), 0, "32 are under way");
    file.open_gate();
    wait_until_read(&pool);
    let pins: Vec<_> = (0..256).map(|no| pool.pin(id(no)).unwrap()).collect();
    assert_eq!(pool.prefetch(&ids(300..310)), 0, "all frames are in use");
    drop(pins);
    assert!(pool.prefetch(&ids(300..310)) > 0);
    wait_until_read(&pool);
}

/// To the clock a page that is used once is the same, read ahead or not; one that nobody used is counted when
/// it goes.
#[test]
fn unused_pages_go_first_and_are_counted() {
    let (pool, _, file) = gated(64, 1000);
    file.open_gate();
    let usage = |no: u32| {
        let frame = pool.table.find(&pool.frames, id(no)).unwrap();
        pool.frames[frame as usize].touched.usage()
    };
    pool.prefetch(&ids(0..8));
    wait_until_read(&pool);
    for no in [0, 1, 2, 2] {
        drop(pool.shared(id(no)).unwrap());
    }
    assert_eq!(
        [0, 2, 7].map(usage),
        [0, 0, 0],
        "a first use counts for nothing"
    );
    for no in 100..200 {
        drop(pool.shared(id(no)).unwrap());
    }
    assert_eq!(pool.stats().read_ahead, 8);
    assert_eq!(pool.stats().read_ahead_evicted, 5);
}

/// Threads that read, prefetch, and evict by that what others use.
#[test]
fn reads_and_prefetches_meet() {
    let (pool, _, file) = gated(128, 1000);
    file.open_gate();
    thread::scope(|s| {
        for seed in 0..4 {
            let pool = &pool;
            s.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed);
                for _ in 0..2000 {
                    let at = rng.random_range(0..980);
                    let n = rng.random_range(1..20);
                    pool.prefetch(&ids(at..at + n));
                    let page = id(rng.random_range(at..at + n));
                    let latched = pool.shared(page).unwrap();
                    assert_eq!(value(&latched, page), u64::from(page.no.0), "seed {seed}");
                }
            });
        }
    });
    wait_until_read(&pool);
    let stats = pool.stats();
    assert!(
        stats.read_ahead > 1000 && stats.evictions > 1000,
        "{stats:?}"
    );
}
