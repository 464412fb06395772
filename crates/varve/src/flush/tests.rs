//! The flusher against a store that knows what was synced, so that the order of things can be judged.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;
use crate::base::{PageId, PageNo, SpaceId};
use crate::buffer::{KeptOpen, PageStore, PoolSettings};
use crate::io::{DiskFile, OpenMode, RealDisk};
use crate::page::{self, PageOp, PageType};
use crate::redo::LogSettings;

const PAGE: usize = 4096;
const START: Lsn = Lsn(8192);
const UUID: [u8; 16] = [9; 16];

/// Pages in memory: as written, and as of the last sync of their tablespace.
#[derive(Default)]
struct Store {
    log: OnceLock<Arc<RedoLog>>,
    state: Mutex<StoreState>,
    fail_write: AtomicBool,
    fail_sync: AtomicBool,
    panic_write: AtomicBool,
    /// Too many files are open for that of tablespace 5.
    refuse_open: AtomicBool,
    /// It can't be opened, whatever else is open.
    fail_open: AtomicBool,
    /// The file that is kept open for writing.
    file: OnceLock<Arc<dyn DiskFile>>,
    /// Writes wait until this is false; whether one does.
    hold_writes: AtomicBool,
    write_waits: AtomicBool,
}

#[derive(Default)]
struct StoreState {
    written: HashMap<PageId, Vec<u8>>,
    synced: HashMap<PageId, Vec<u8>>,
    order: Vec<PageId>,
}

fn wait_while(flag: &AtomicBool, waits: &AtomicBool) {
    while flag.load(Ordering::Acquire) {
        waits.store(true, Ordering::Release);
        std::thread::sleep(Duration::from_millis(1));
    }
    waits.store(false, Ordering::Release);
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn fail_if(flag: &AtomicBool) -> Result<()> {
    match flag.load(Ordering::Relaxed) {
        true => Err(Error::io(
            "write",
            "store",
            std::io::Error::other("broken disk"),
        )),
        false => Ok(()),
    }
}

impl PageStore for Store {
    fn read(&self, page: PageId, buf: &mut [u8]) -> Result<()> {
        match self.state.lock().written.get(&page) {
            Some(bytes) => buf.copy_from_slice(bytes),
            None => return Err(Error::not_found(page.to_string())),
        }
        Ok(())
    }
    fn write(&self, page: PageId, buf: &[u8]) -> Result<()> {
        assert!(!self.panic_write.load(Ordering::Relaxed), "told to panic");
        fail_if(&self.fail_write)?;
        wait_while(&self.hold_writes, &self.write_waits);
        page::verify(buf, page).expect("pages arrive sealed");
        if let Some(log) = self.log.get() {
            assert!(log.durable_lsn() >= page::page_lsn(buf), "WAL-1: {page}");
        }
        let mut state = self.state.lock();
        state.written.insert(page, buf.to_vec());
        state.order.push(page);
        Ok(())
    }
    fn keep_open(&self, space: SpaceId) -> Result<KeptOpen> {
        fail_if(&self.fail_open)?;
        match space == SpaceId(5) && self.refuse_open.load(Ordering::Relaxed) {
            true => {
                let why = std::io::Error::from_raw_os_error(libc::EMFILE);
                Err(Error::io("open", "store", why))
            }
            false => Ok(KeptOpen {
                file: self.file.get().cloned(),
                writes_atomically: false,
            }),
        }
    }
    fn sync(&self, space: SpaceId) -> Result<()> {
        fail_if(&self.fail_sync)?;
        let is_open = |file: &Arc<dyn DiskFile>| Arc::strong_count(file) > 1;
        assert!(self.file.get().is_none_or(is_open), "FL-2");
        let mut state = self.state.lock();
        let of_space = state.written.iter().filter(|(id, _)| id.space == space);
        let of_space: Vec<_> = of_space.map(|(id, b)| (*id, b.clone())).collect();
        state.synced.extend(of_space);
        Ok(())
    }
    fn ensure(&self, _: PageId) -> Result<bool> {
        Ok(true)
    }
}

fn id(no: u32) -> PageId {
    PageId::new(SpaceId(5 + no % 2), PageNo(no))
}

fn raw_page(id: PageId, fill: u8, lsn: Lsn) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    let ptype = PageType::Raw;
    PageOp::FormatRaw { ptype }.apply(&mut page, id).unwrap();
    page[page::PAGE_HEADER..].fill(fill);
    page::set_page_lsn(&mut page, lsn);
    page::seal(&mut page);
    page
}

/// LSNs (start, end) of the changes of each page, recorded before they are complete.
type Changes = Arc<Mutex<HashMap<PageId, Vec<(Lsn, Lsn)>>>>;

struct Rig {
    dir: tempfile::TempDir,
    store: Arc<Store>,
    pool: Arc<BufferPool>,
    log: Arc<RedoLog>,
    control: Arc<ControlFile>,
    changes: Changes,
}

impl Rig {
    fn new(frames: usize, pages: u32) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::default());
        for no in 0..pages {
            let bytes = raw_page(id(no), 0, Lsn(0));
            let mut state = store.state.lock();
            state.written.insert(id(no), bytes.clone());
            state.synced.insert(id(no), bytes);
        }
        let settings = PoolSettings {
            bytes: (frames * PAGE) as u64,
            page_size: PAGE,
        };
        let pool = Arc::new(BufferPool::new(settings, store.clone()).unwrap());
        let settings = LogSettings::new(2 << 20, PAGE as u32, UUID);
        let log = RedoLog::create(Arc::new(RealDisk), dir.path(), settings, START).unwrap();
        let log = Arc::new(log);
        let _ = store.log.set(log.clone());
        let control = Control {
            page_size: PAGE as u32,
            uuid: UUID,
            checkpoint: START,
            clean_shutdown: false,
            files_match: false,
            encrypted: false,
            written: None,
            id_limit: 0,
            next_space: 0,
            next_table: 0,
            next_index: 0,
        };
        let control = ControlFile::create(&RealDisk, dir.path(), control).unwrap();
        let file = RealDisk.open(&dir.path().join("data"), OpenMode::CreateNew);
        assert!(store.file.set(file.unwrap()).is_ok());
        Rig {
            dir,
            store,
            pool,
            log,
            control: Arc::new(control),
            changes: Changes::default(),
        }
    }

    fn env(&self, fill_control: impl Fn(&mut Control) + Send + Sync + 'static) -> FlushEnv {
        FlushEnv {
            pool: self.pool.clone(),
            log: self.log.clone(),
            control: self.control.clone(),
            disk: Arc::new(RealDisk),
            dir: self.dir.path().to_path_buf(),
            settings: FlushSettings::default(),
            fill_control: Box::new(fill_control),
        }
    }

    /// What a mini-transaction does: changes a page and logs `bytes` bytes.
    fn change(&self, no: u32, value: u8, bytes: usize) -> Result<Lsn> {
        let reservation = self.log.reserve(bytes as u32)?;
        let mut page = self.pool.exclusive(id(no))?;
        page.bytes_mut()[page::PAGE_HEADER..].fill(value);
        let ticket = self.log.append(&reservation, &[&vec![value; bytes]]);
        page::set_page_lsn(page.bytes_mut(), ticket.end);
        page.changed(ticket.start);
        let end = ticket.end;
        let mut changes = self.changes.lock();
        changes.entry(id(no)).or_default().push((ticket.start, end));
        drop(changes);
        self.log.complete(ticket);
        Ok(end)
    }

    fn order(&self) -> Vec<u32> {
        let state = self.store.state.lock();
        state.order.iter().map(|p| p.no.0).collect()
    }
}

/// WAL-2: the synced image of every page holds each change that began below the checkpoint.
fn check_checkpoint(store: &Store, changes: &Changes, checkpoint: Lsn) {
    let changes = changes.lock();
    let state = store.state.lock();
    for (page, list) in changes.iter() {
        let needed = list.iter().filter(|c| c.0 < checkpoint).map(|c| c.1).max();
        let synced = state.synced.get(page).map(|b| page::page_lsn(b));
        assert!(
            synced >= needed,
            "WAL-2: checkpoint {checkpoint}, {page} synced at {synced:?}, changed at {needed:?}"
        );
    }
}

#[test]
fn oldest_changes_are_written_first_and_newer_ones_left() {
    let rig = Rig::new(256, 100);
    let (flusher, hold) = Flusher::start_held(rig.env(|_| {})).unwrap();
    // Nothing but what is asked for.
    flusher.stop();
    let mut ends = Vec::new();
    // Each change in an LSN bucket of its own, so that "about oldest first" is exact.
    for no in (0..6).rev() {
        ends.push(rig.change(no, 1, 300_000).unwrap());
    }
    flusher.flush_all_to(ends[2]).unwrap();
    let mut order = rig.order();
    order.sort_unstable();
    assert_eq!(order, [3, 4, 5], "the three oldest");
    assert_eq!(flusher.checkpoint_now().unwrap(), START, "held");
    drop(hold);
    assert_eq!(flusher.checkpoint_now().unwrap(), ends[2]);
    flusher.flush_all_to(ends[5]).unwrap();
    assert_eq!(flusher.checkpoint_now().unwrap(), ends[5]);
    assert_eq!(rig.control.control().checkpoint, ends[5]);
    assert_eq!(rig.pool.dirty_pages(), 0);
}

#[test]
fn a_hold_keeps_the_checkpoint() {
    let rig = Rig::new(64, 10);
    let flusher = Flusher::start(rig.env(|_| {})).unwrap();
    let a = rig.change(1, 1, 100).unwrap();
    let hold = flusher.checkpointer().hold_here();
    let b = rig.change(2, 1, 100).unwrap();
    flusher.flush_all_to(b).unwrap();
    assert_eq!(flusher.checkpoint_now().unwrap(), a);
    assert!(flusher.shutdown_clean().is_err(), "not clean while held");
    assert!(!rig.control.control().clean_shutdown);
    drop(hold);
    assert_eq!(flusher.checkpoint_now().unwrap(), b);
}

/// WAL-1, WAL-2 and progress: threads wait for frames or for redo capacity, pages are changed while they are
/// being written, and every checkpoint is judged.
#[test]
fn checkpoints_never_pass_an_unsynced_change_in_a_tiny_pool() {
    judge_checkpoints(64, Cause::Lru);
}

#[test]
fn checkpoints_never_pass_an_unsynced_change_in_a_tiny_log() {
    judge_checkpoints(512, Cause::Sync);
}

fn judge_checkpoints(frames: usize, cause: Cause) {
    let rig = Arc::new(Rig::new(frames, 300));
    let (store, changes) = (rig.store.clone(), rig.changes.clone());
    let judged = Arc::new(AtomicU32::new(0));
    let judge = judged.clone();
    let env = rig.env(move |control| {
        check_checkpoint(&store, &changes, control.checkpoint);
        control.id_limit += 1;
        judge.fetch_add(1, Ordering::Relaxed);
    });
    let flusher = Flusher::start(env).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let rig = &rig;
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(thread);
                for _ in 0..1500 {
                    // Some pages much more often than others.
                    let no = rng.random_range(0..300u32).min(rng.random_range(0..300));
                    rig.change(no, rng.random(), rng.random_range(1..3000))
                        .unwrap();
                }
            });
        }
    });
    rig.log.check().unwrap();
    flusher.shutdown_clean().unwrap();
    let control = rig.control.control();
    assert!(control.clean_shutdown);
    assert_eq!(control.checkpoint, rig.log.next_lsn());
    assert_eq!(control.id_limit, u64::from(judged.load(Ordering::Relaxed)));
    assert!(
        judged.load(Ordering::Relaxed) > 5,
        "too few checkpoints to mean much"
    );
    let written = flusher.counters().pages(cause).load(Ordering::Relaxed);
    assert!(written > 100, "{written} pages because of {cause:?}");
    for (page, bytes) in &rig.store.state.lock().synced {
        let last = rig
            .changes
            .lock()
            .get(page)
            .map_or(Lsn(0), |c| c.last().unwrap().1);
        assert_eq!(page::page_lsn(bytes), last, "{page}");
    }
}

/// While a page is being written it is read, changed, and the change committed.
#[test]
fn a_page_that_is_being_written_keeps_nobody_waiting() {
    let rig = Rig::new(64, 10);
    let flusher = Flusher::start(rig.env(|_| {})).unwrap();
    rig.store.hold_writes.store(true, Ordering::Release);
    let end = rig.change(1, 1, 100).unwrap();
    std::thread::scope(|scope| {
        let flushed = scope.spawn(|| flusher.flush_all_to(end));
        wait_for(&rig.store.write_waits);
        let value = |page: &[u8]| page[page::PAGE_HEADER];
        let read = rig.pool.try_shared(id(1)).unwrap();
        assert_eq!(read.map(|page| value(&page)), Some(1), "a reader waits");
        let free = rig.pool.try_exclusive(id(1)).unwrap().is_some();
        assert!(free, "a writer waits");
        let changed = rig.change(1, 2, 100).unwrap();
        rig.log.sync_to(changed).unwrap();
        let read = rig.pool.try_shared(id(1)).unwrap();
        assert_eq!(read.map(|page| value(&page)), Some(2));
        assert!(rig.store.write_waits.load(Ordering::Acquire));
        rig.store.hold_writes.store(false, Ordering::Release);
        flushed.join().unwrap().unwrap();
    });
    // The change was made after the page was copied, so the page is written once more.
    flusher.shutdown_clean().unwrap();
    let state = rig.store.state.lock();
    assert_eq!(state.synced[&id(1)][page::PAGE_HEADER], 2);
    assert_eq!(state.order.len(), 2);
}

/// While a checkpoint is being recorded changes are made and committed, and holds given out, which are kept.
#[test]
fn a_checkpoint_keeps_nobody_waiting() {
    let rig = Rig::new(64, 10);
    let gate: Arc<(AtomicBool, AtomicBool)> = Arc::default();
    let inside = gate.clone();
    let env = rig.env(move |_| wait_while(&inside.0, &inside.1));
    let flusher = Flusher::start(env).unwrap();
    gate.0.store(true, Ordering::Release);
    let first = rig.change(1, 1, 100).unwrap();
    flusher.flush_all_to(first).unwrap();
    std::thread::scope(|scope| {
        let recorded = scope.spawn(|| flusher.checkpoint_now());
        wait_for(&gate.1);
        let second = rig.change(2, 1, 100).unwrap();
        rig.log.sync_to(second).unwrap();
        let held = rig.log.complete_lsn();
        let hold = flusher.checkpointer().hold_here();
        let third = rig.change(3, 1, 100).unwrap();
        assert!(gate.1.load(Ordering::Acquire), "still being recorded");
        gate.0.store(false, Ordering::Release);
        assert!(recorded.join().unwrap().unwrap() <= second);
        flusher.flush_all_to(third).unwrap();
        assert_eq!(flusher.checkpoint_now().unwrap(), held);
        drop(hold);
        assert!(flusher.checkpoint_now().unwrap() >= third);
    });
}

/// Pages of unlogged tablespaces are written to free their frames, and hold no checkpoint back.
#[test]
fn unlogged_pages_leave_the_pool_without_the_log() {
    let rig = Rig::new(64, 500);
    let flusher = Flusher::start(rig.env(|_| {})).unwrap();
    for no in 0..500u32 {
        let mut page = rig.pool.exclusive(id(no)).unwrap();
        page.bytes_mut()[page::PAGE_HEADER..].fill(no as u8);
        page.changed_unlogged();
    }
    for no in 0..500u32 {
        let page = rig.pool.shared(id(no)).unwrap();
        assert!(
            page[page::PAGE_HEADER..].iter().all(|&b| b == no as u8),
            "page {no}"
        );
    }
    assert_eq!(
        flusher.counters().doublewrite_pages.load(Ordering::Relaxed),
        0
    );
    flusher.shutdown_clean().unwrap();
}

#[test]
fn idle_time_cleans_the_pool() {
    let rig = Rig::new(256, 100);
    let flusher = Flusher::start(rig.env(|_| {})).unwrap();
    let mut end = START;
    for no in 0..100 {
        end = rig.change(no, 1, 100).unwrap();
    }
    while rig.log.checkpoint_lsn() < end {
        rig.log.check().unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(flusher);
}

/// FL-2: pages whose file can't be opened for the moment stay dirty, others are written meanwhile, and
/// nothing stops.
#[test]
fn a_file_that_can_not_be_opened_now_is_written_later() {
    let rig = Rig::new(64, 10);
    let (flusher, _hold) = Flusher::start_held(rig.env(|_| {})).unwrap();
    flusher.stop();
    rig.store.refuse_open.store(true, Ordering::Relaxed);
    let mut end = START;
    for no in 0..6 {
        end = rig.change(no, 1, 100).unwrap();
    }
    let refused = flusher.flush_all_to(end).unwrap_err();
    assert!(refused.is_out_of_means(), "{refused}");
    let mut written = rig.order();
    written.sort_unstable();
    assert_eq!(written, [1, 3, 5]);
    assert_eq!(rig.pool.dirty_pages(), 3);
    assert!(flusher.counters().refused_pages.load(Ordering::Relaxed) >= 3);
    rig.log.check().unwrap();
    rig.store.refuse_open.store(false, Ordering::Relaxed);
    flusher.flush_all_to(end).unwrap();
    assert_eq!((rig.order().len(), rig.pool.dirty_pages()), (6, 0));
}

/// A failed write, a failed sync, a file that can't be opened and a panic each stop the database, with the
/// reason; the page stays dirty.
#[test]
fn failures_poison() {
    for which in 0..4 {
        let rig = Rig::new(64, 10);
        let flusher = Flusher::start(rig.env(|_| {})).unwrap();
        let end = rig.change(1, 1, 100).unwrap();
        let (flag, reason) = match which {
            0 => (&rig.store.fail_write, "broken disk"),
            1 => (&rig.store.fail_sync, "broken disk"),
            2 => (&rig.store.fail_open, "broken disk"),
            _ => (&rig.store.panic_write, "told to panic"),
        };
        flag.store(true, Ordering::Relaxed);
        if which < 3 {
            assert!(flusher.flush_all_to(end).is_err());
            assert_eq!(rig.pool.dirty_pages(), 1);
        } else {
            // In the cleaner's thread, once it uses its idle time.
            while rig.log.check().is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let error = rig.log.check().unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        flag.store(false, Ordering::Relaxed);
        assert!(flusher.checkpoint_now().is_err() || rig.log.checkpoint_lsn() == START);
        assert!(rig.change(2, 1, 100).is_err());
    }
}

/// A store with one page, and its doublewrite file after a batch that rewrites it.
struct Torn {
    dir: tempfile::TempDir,
    store: Store,
    old: Vec<u8>,
    new: Vec<u8>,
}

fn write_batch(dir: &std::path::Path, pages: &[(PageId, &[u8])]) {
    let mut file = Doublewrite::open(&RealDisk, dir, PAGE, UUID).unwrap();
    let mut buf = vec![0; doublewrite::HEADER_BYTES];
    pages.iter().for_each(|p| buf.extend_from_slice(p.1));
    let ids: Vec<_> = pages.iter().map(|p| p.0).collect();
    file.write(&ids, &mut buf, |_| None).unwrap();
}

impl Torn {
    fn new() -> Torn {
        let dir = tempfile::tempdir().unwrap();
        let old = raw_page(id(3), 0x11, Lsn(100));
        let new = raw_page(id(3), 0x22, Lsn(200));
        let other = raw_page(id(1), 0x33, Lsn(150));
        write_batch(dir.path(), &[(id(1), &other), (id(3), &new)]);
        Torn {
            dir,
            store: Store::default(),
            old,
            new,
        }
    }

    fn place(&self, bytes: Vec<u8>) {
        self.store.state.lock().written.insert(id(3), bytes);
    }

    fn recover(&self) -> Vec<PageId> {
        doublewrite::recover(
            &RealDisk,
            self.dir.path(),
            PAGE,
            &UUID,
            &self.store,
            &|_, _| Ok(()),
        )
        .unwrap()
    }

    fn now(&self) -> Vec<u8> {
        self.store.state.lock().written[&id(3)].clone()
    }
}

/// FL-1, DW-2: wherever a page was torn, its copy brings it back, durably.
#[test]
fn a_torn_page_is_repaired_at_every_sector() {
    let torn = Torn::new();
    for sector in 1..PAGE / 512 {
        for (first, second) in [(&torn.new, &torn.old), (&torn.old, &torn.new)] {
            let mut bytes = first[..sector * 512].to_vec();
            bytes.extend_from_slice(&second[sector * 512..]);
            torn.place(bytes);
            assert_eq!(torn.recover(), [id(3)], "torn at sector {sector}");
            assert_eq!(torn.now(), torn.new);
            assert_eq!(torn.store.state.lock().synced[&id(3)], torn.new);
            assert_eq!(torn.recover(), [], "once is enough");
        }
    }
    // A page that is whole, in either version, or was never written, is redo's business.
    for whole in [torn.old.clone(), torn.new.clone(), vec![0; PAGE]] {
        torn.place(whole.clone());
        assert_eq!(torn.recover(), []);
        assert_eq!(torn.now(), whole);
    }
}

/// DW-1: what a process that died has written in place may be in the system's cache only. It is made durable
/// before the copies go.
#[test]
fn pages_of_the_last_batch_are_durable_before_it_is_forgotten() {
    let torn = Torn::new();
    torn.place(torn.new.clone());
    assert_eq!(torn.recover(), []);
    let state = torn.store.state.lock();
    assert_eq!(state.synced.get(&id(3)), Some(&torn.new));
}

/// DW-1: a batch that did not become durable, whatever of it is there, changes nothing.
#[test]
fn a_torn_batch_is_ignored() {
    let torn = Torn::new();
    let path = torn.dir.path().join(doublewrite::DOUBLEWRITE_FILE);
    let before = std::fs::read(&path).unwrap();
    let newer = raw_page(id(3), 0x44, Lsn(300));
    write_batch(torn.dir.path(), &[(id(1), &newer_other()), (id(3), &newer)]);
    let after = std::fs::read(&path).unwrap();
    torn.place(torn.new.clone());
    for sector in 0..after.len() / 512 {
        for (first, second) in [(&after, &before), (&before, &after)] {
            let mut bytes = first[..sector * 512].to_vec();
            bytes.extend_from_slice(&second[sector * 512..]);
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(torn.recover(), []);
            assert_eq!(torn.now(), torn.new);
        }
    }
    // And a damaged page is not replaced by a copy that is not the one the header speaks of.
    let mut mixed = after.clone();
    let copy = doublewrite::HEADER_BYTES + PAGE..doublewrite::HEADER_BYTES + 2 * PAGE;
    mixed[copy.clone()].copy_from_slice(&before[copy]);
    std::fs::write(&path, mixed).unwrap();
    let mut damaged = newer;
    damaged[2000] ^= 1;
    torn.place(damaged.clone());
    assert_eq!(torn.recover(), []);
    assert_eq!(torn.now(), damaged);
}

fn newer_other() -> Vec<u8> {
    raw_page(id(1), 0x55, Lsn(310))
}

#[test]
fn a_doublewrite_file_of_another_database_is_refused() {
    let torn = Torn::new();
    let other = doublewrite::recover(
        &RealDisk,
        torn.dir.path(),
        PAGE,
        &[1; 16],
        &torn.store,
        &|_, _| Ok(()),
    );
    assert!(matches!(other, Err(Error::CorruptFile { .. })));
    let size = doublewrite::recover(
        &RealDisk,
        torn.dir.path(),
        8192,
        &UUID,
        &torn.store,
        &|_, _| Ok(()),
    );
    assert!(matches!(size, Err(Error::CorruptFile { .. })));
    doublewrite::invalidate(&RealDisk, torn.dir.path()).unwrap();
    let path = torn.dir.path().join(doublewrite::DOUBLEWRITE_FILE);
    assert!(RealDisk.open(&path, OpenMode::Existing).is_ok());
    let copies = doublewrite::read_copies(&RealDisk, torn.dir.path(), PAGE, &UUID).unwrap();
    assert!(copies.is_empty());
}

/// The whole way: a page flushed by the cleaner's writer has its copy in the doublewrite file.
#[test]
fn flushed_pages_have_copies() {
    let rig = Rig::new(64, 10);
    let flusher = Flusher::start(rig.env(|_| {})).unwrap();
    let end = rig.change(7, 0x77, 100).unwrap();
    flusher.flush_all_to(end).unwrap();
    flusher.stop();
    let mut torn = rig.store.state.lock().synced[&id(7)].clone();
    torn[3000..].fill(0);
    rig.store.state.lock().written.insert(id(7), torn);
    let repaired = doublewrite::recover(
        &RealDisk,
        rig.dir.path(),
        PAGE,
        &UUID,
        &*rig.store,
        &|_, _| Ok(()),
    );
    assert_eq!(repaired.unwrap(), [id(7)]);
    let page = rig.store.state.lock().synced[&id(7)].clone();
    assert_eq!((page::page_lsn(&page), page[4000]), (end, 0x77));
}
