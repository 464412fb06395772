//! Tablespaces on real files, with a log and a pool: what is handed out, what survives, what is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::base::{Lsn, NO_PAGE};
use crate::buffer::{BufferPool, PageStore, PoolSettings};
use crate::io::meddled::{MeddledDisk, Meddler};
use crate::io::{Disk, OpenMode, RealDisk};
use crate::mtr::replay::apply_frame;
use crate::mtr::{Mtr, MtrEnv};
use crate::page::{self, PageOp, PageType};
use crate::redo::{LogSettings, RedoLog, RedoReader};

mod files;
mod removal;

const PAGE: usize = 4096;
const GROUP: u32 = 6144;
const UUID: [u8; 16] = [9; 16];
const START: Lsn = Lsn(4096);
const ID: SpaceId = SpaceId(40);

fn pool_on(spaces: &Arc<Spaces>) -> Arc<BufferPool> {
    let settings = PoolSettings {
        bytes: (4096 * PAGE) as u64,
        page_size: PAGE,
    };
    Arc::new(BufferPool::new(settings, spaces.clone()).unwrap())
}

fn spaces_on(disk: Arc<dyn Disk>, dir: &Path) -> Arc<Spaces> {
    Arc::new(Spaces::new(disk, dir, PAGE, UUID, 10))
}

fn env_on(dir: &Path, spaces: &Arc<Spaces>) -> MtrEnv {
    let settings = LogSettings::new(64 << 20, PAGE as u32, UUID);
    let log = RedoLog::create(Arc::new(RealDisk), dir, settings, START).unwrap();
    MtrEnv::new(pool_on(spaces), Arc::new(log))
}

fn new_table(path: &str) -> NewSpace<'_> {
    NewSpace {
        id: ID,
        path,
        kind: SpaceKind::Table,
        table: TableId(7),
        definition: DefinitionCopy::whole(b"definition"),
        pages: 4,
        target: None,
        compression: None,
        encryption: Default::default(),
    }
}

fn write_all(env: &MtrEnv) {
    let mut taken = vec![];
    let mut buf = vec![0; PAGE];
    env.pool
        .take_oldest(env.log.next_lsn(), usize::MAX >> 1, &mut taken);
    for page in taken {
        env.pool.copy_for_write(&page, &mut buf).unwrap().unwrap();
        env.pool.store().write(page.page, &buf).unwrap();
        env.pool.write_done(page);
    }
}

fn alloc_one(env: &MtrEnv, space: &Space, near: PageNo, owner: u32) -> PageNo {
    let _room = space.reserve(env, 1).unwrap();
    let mut mtr = Mtr::begin(env, ALLOC_LOG_BYTES + 32).unwrap();
    let no = space.alloc(&mut mtr, near, owner).unwrap();
    let h = mtr.exclusive_new(PageId::new(space.id(), no)).unwrap();
    let ptype = PageType::Raw;
    mtr.op(h, PageOp::FormatRaw { ptype });
    mtr.commit();
    no
}

fn free_one(env: &MtrEnv, space: &Space, no: PageNo) {
    let mut mtr = Mtr::begin(env, FREE_LOG_BYTES).unwrap();
    space.free(&mut mtr, no).unwrap();
    mtr.commit();
}

/// Pages that the file says are in use.
fn in_use(env: &MtrEnv, space: &Space) -> BTreeSet<u32> {
    let pages = 0..space.size_pages();
    pages
        .filter(|no| space.is_allocated(env, PageNo(*no)).unwrap())
        .collect()
}

/// SP-2: threads allocate and free against a model: no page is handed out twice, every free page is found
/// again, and the file agrees with the model; so does the file that is opened again, and the one that replay
/// makes from nothing but the log.
#[test]
fn allocation_follows_the_model_and_survives() {
    let dir = tempfile::tempdir().unwrap();
    let spaces = spaces_on(Arc::new(RealDisk), dir.path());
    let env = env_on(dir.path(), &spaces);
    let space = spaces.create(new_table("shop/a.vdt")).unwrap();
    let seed = rand::random::<u64>();
    println!("seed {seed}");
    let owned = Mutex::new(BTreeMap::from([(0, 0), (1, 0)]));
    std::thread::scope(|s| {
        for owner in 1..=3u32 {
            let (env, space, owned) = (&env, &space, &owned);
            s.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed ^ u64::from(owner));
                let mut mine: Vec<PageNo> = vec![];
                for _ in 0..600 {
                    if mine.is_empty() || rng.random_range(0..5) < 3 {
                        let near = mine.last().copied().unwrap_or(NO_PAGE);
                        let no = alloc_one(env, space, near, owner);
                        let before = owned.lock().insert(no.0, owner);
                        assert_eq!(before, None, "page {no} was handed out twice");
                        mine.push(no);
                    } else {
                        let no = mine.swap_remove(rng.random_range(0..mine.len()));
                        // Before the page is free, or another thread could get it first.
                        owned.lock().remove(&no.0);
                        free_one(env, space, no);
                    }
                }
            });
        }
    });
    let model: BTreeSet<u32> = owned.lock().keys().copied().collect();
    assert_eq!(in_use(&env, &space), model);
    assert_eq!(space.used_pages(&env).unwrap() as usize, model.len());
    env.log.sync_to(env.log.next_lsn()).unwrap();

    let original = std::fs::read(dir.path().join("shop/a.vdt")).unwrap();
    write_all(&env);
    assert_ne!(
        std::fs::read(dir.path().join("shop/a.vdt")).unwrap(),
        original
    );
    spaces.close(ID).unwrap();
    for (what, replay) in [("written", false), ("replayed", true)] {
        if replay {
            // The file as it was made, shorter than it became.
            std::fs::write(dir.path().join("shop/a.vdt"), &original[..4 * PAGE]).unwrap();
        }
        let spaces = spaces_on(Arc::new(RealDisk), dir.path());
        let space = spaces.open("shop/a.vdt").unwrap();
        let env = MtrEnv::new(pool_on(&spaces), env.log.clone());
        if replay {
            let mut log =
                RedoReader::open(&RealDisk, dir.path(), &UUID, START, &Default::default()).unwrap();
            while let Some(f) = log.next().unwrap() {
                apply_frame(&env.pool, f.start, f.end, f.body, |_| Ok(())).unwrap();
            }
        }
        assert_eq!(in_use(&env, &space), model, "{what}");
        assert_eq!(
            space.used_pages(&env).unwrap() as usize,
            model.len(),
            "{what}"
        );
        let next = alloc_one(&env, &space, NO_PAGE, 2);
        assert!(!model.contains(&next.0), "{what}: page {next} is in use");
    }
}

/// Users that allocate in turn still get runs of neighbouring pages, and a file of several groups uses them
/// all.
#[test]
fn pages_of_one_owner_lie_together_across_groups() {
    let dir = tempfile::tempdir().unwrap();
    let spaces = spaces_on(Arc::new(RealDisk), dir.path());
    let env = env_on(dir.path(), &spaces);
    let space = spaces.create(new_table("a.vdt")).unwrap();
    let mut last = [NO_PAGE; 4];
    let mut neighbours = 0;
    let mut seen = BTreeSet::from([0, 1]);
    const EACH: u32 = 3200;
    for _ in 0..EACH {
        for owner in 0..4 {
            let _room = space.reserve(&env, 1).unwrap();
            let mut mtr = Mtr::begin(&env, ALLOC_LOG_BYTES).unwrap();
            let no = space
                .alloc(&mut mtr, last[owner as usize], owner + 1)
                .unwrap();
            mtr.commit();
            assert!(seen.insert(no.0), "page {no} was handed out twice");
            neighbours += u32::from(no.0 == last[owner as usize].0.wrapping_add(1));
            last[owner as usize] = no;
        }
    }
    assert!(space.size_pages() > 2 * GROUP);
    for group in 0..3 {
        assert!(space.is_allocated(&env, PageNo(group * GROUP + 1)).unwrap());
        assert_eq!(seen.contains(&(group * GROUP + 1)), group == 0);
    }
    let share = neighbours * 100 / (4 * EACH);
    assert!(
        share >= 90,
        "only {share}% of the pages follow their predecessor"
    );
    let waste = space.size_pages() - 4 * EACH;
    assert!(
        waste < 4 * EACH / 8 + 1024,
        "{waste} pages of the file are unused"
    );
}

#[test]
fn freed_pages_are_used_before_the_file_grows() {
    let dir = tempfile::tempdir().unwrap();
    let spaces = spaces_on(Arc::new(RealDisk), dir.path());
    let env = env_on(dir.path(), &spaces);
    let space = spaces.create(new_table("a.vdt")).unwrap();
    let pages: Vec<_> = (0..500)
        .map(|_| alloc_one(&env, &space, NO_PAGE, 5))
        .collect();
    let size = space.size_pages();
    for round in 0..4u32 {
        let mut mtr = Mtr::begin(&env, 20 * FREE_LOG_BYTES).unwrap();
        let some: Vec<_> = pages
            .iter()
            .skip(100 + 100 * round as usize)
            .take(20)
            .collect();
        // Several in one mini-transaction: latched first, freed then.
        for no in &some {
            mtr.exclusive(PageId::new(ID, **no)).unwrap();
        }
        for no in &some {
            space.free(&mut mtr, **no).unwrap();
        }
        mtr.commit();
    }
    for _ in 0..80 {
        alloc_one(&env, &space, NO_PAGE, 5);
    }
    assert_eq!(space.size_pages(), size);
    let mut mtr = Mtr::begin(&env, 200).unwrap();
    let e = space
        .free(&mut mtr, PageNo(space.size_pages() - 1))
        .unwrap_err();
    assert!(
        matches!(e, Error::Corrupt { .. }),
        "a free page can't be freed: {e}"
    );
}

/// A disk that has room for so many bytes in a file and for so many open files, and lets others know before
/// it makes names durable and before it closes a file.
struct SmallDisk {
    limit: Arc<AtomicU64>,
    before_sync_dir: OnceLock<Box<dyn Fn() + Send + Sync>>,
    before_close: OnceLock<Box<dyn Fn() + Send + Sync>>,
    most_open: AtomicI64,
    open: AtomicI64,
    synced: Mutex<Vec<PathBuf>>,
}

fn small_disk(limit: &Arc<AtomicU64>) -> Arc<MeddledDisk<SmallDisk>> {
    MeddledDisk::new(Arc::new(SmallDisk {
        limit: limit.clone(),
        before_sync_dir: OnceLock::new(),
        before_close: OnceLock::new(),
        most_open: AtomicI64::new(i64::MAX),
        open: AtomicI64::new(0),
        synced: Mutex::default(),
    }))
}

/// One that has room for everything.
fn large_disk() -> Arc<MeddledDisk<SmallDisk>> {
    small_disk(&Arc::new(AtomicU64::new(u64::MAX)))
}

impl Meddler for SmallDisk {
    fn before_open(&self, path: &Path) -> Result<()> {
        if self.open.load(SeqCst) < self.most_open.load(SeqCst) {
            return Ok(());
        }
        let why = std::io::Error::from_raw_os_error(libc::EMFILE);
        Err(Error::io("open", path, why))
    }
    fn opened(&self) {
        self.open.fetch_add(1, SeqCst);
    }
    fn before_close(&self) {
        self.open.fetch_sub(1, SeqCst);
        if let Some(before) = self.before_close.get() {
            before();
        }
    }
    fn before_sync(&self, path: &Path) -> Result<()> {
        self.synced.lock().push(path.into());
        Ok(())
    }
    fn before_sync_dir(&self) {
        if let Some(before) = self.before_sync_dir.get() {
            before();
        }
    }
    fn before_allocate(&self, path: &Path, new_len: u64) -> Result<()> {
        match new_len > self.limit.load(Relaxed) {
            true => {
                let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
                Err(Error::io("allocate", path, full))
            }
            false => Ok(()),
        }
    }
}

/// SP-9: also a small file with rollback segments keeps pages, and gets them back when there is room.
#[test]
fn a_small_undo_tablespace_keeps_pages() {
    let dir = tempfile::tempdir().unwrap();
    let limit = Arc::new(AtomicU64::new(64 * PAGE as u64));
    let spaces = spaces_on(small_disk(&limit), dir.path());
    let env = env_on(dir.path(), &spaces);
    let undo = NewSpace {
        kind: SpaceKind::Undo,
        pages: 64,
        ..new_table("undo_001.vdt")
    };
    let space = spaces.create(undo).unwrap();
    let take = |purpose| {
        let _room = space.reserve_for(&env, 1, purpose)?;
        let mut mtr = Mtr::begin(&env, ALLOC_LOG_BYTES)?;
        space.alloc(&mut mtr, NO_PAGE, 5)?;
        mtr.commit();
        Ok::<_, Error>(())
    };
    let take_all = |purpose| (0..).take_while(|_: &u32| take(purpose).is_ok()).count();
    assert_eq!(take_all(AllocPurpose::Normal), 64 - 2 - 8);
    assert_eq!(take_all(AllocPurpose::Cleaning), 8);
    limit.store(u64::MAX, Relaxed);
    take(AllocPurpose::Normal).unwrap();
    limit.store(8 * PAGE as u64, Relaxed);
    assert!(take_all(AllocPurpose::Normal) > 0);
    assert_eq!(take_all(AllocPurpose::Cleaning), 16);
}

/// SP-3: on a full disk work is refused by name while undoing work still finds room; what failed to be made
/// leaves no file.
#[test]
fn a_full_disk_leaves_room_for_undoing_work() {
    let dir = tempfile::tempdir().unwrap();
    let limit = Arc::new(AtomicU64::new(256 * PAGE as u64));
    let spaces = spaces_on(small_disk(&limit), dir.path());
    let env = env_on(dir.path(), &spaces);
    let space = spaces.create(new_table("a.vdt")).unwrap();
    let mut taken = 0;
    let refused = loop {
        match space.reserve(&env, 3) {
            Ok(room) => drop(room),
            Err(e) => break e,
        }
        for _ in 0..3 {
            alloc_one(&env, &space, NO_PAGE, 5);
        }
        taken += 3;
    };
    assert!(
        matches!(&refused, Error::NoSpace { what } if what.contains("a.vdt")),
        "{refused}"
    );
    assert!((230..=240).contains(&taken), "{taken}");
    let room = space.reserve_for(&env, 14, AllocPurpose::Cleaning).unwrap();
    assert!(
        space.reserve_for(&env, 6, AllocPurpose::Cleaning).is_err(),
        "promised to somebody else"
    );
    drop(room);
    let _room = space.reserve_for(&env, 14, AllocPurpose::Cleaning).unwrap();
    for _ in 0..14 {
        let mut mtr = Mtr::begin(&env, ALLOC_LOG_BYTES).unwrap();
        space.alloc(&mut mtr, NO_PAGE, 5).unwrap();
        mtr.commit();
    }
    limit.store(8 * PAGE as u64, Relaxed);
    let (id, path) = (SpaceId(41), "big.vdt");
    let big = NewSpace {
        id,
        pages: 64,
        path,
        ..new_table("")
    };
    assert!(spaces.create(big).is_err());
    assert!(!dir.path().join(path).exists());
    limit.store(u64::MAX, Relaxed);
    spaces.create(big).unwrap();
    space.reserve(&env, 3).map(drop).unwrap();
}

/// SP-5: a file whose extension was interrupted for want of space is opened all the same, and extended when
/// there is room.
#[test]
fn half_an_extension_does_not_count_on_a_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let limit = Arc::new(AtomicU64::new(128 * PAGE as u64));
    let spaces = spaces_on(small_disk(&limit), dir.path());
    let env = env_on(dir.path(), &spaces);
    let pages = 128;
    let new = NewSpace {
        pages,
        ..new_table("a.vdt")
    };
    spaces.create(new).unwrap();
    spaces.close(ID).unwrap();
    let file = RealDisk.open(&dir.path().join("a.vdt"), OpenMode::Existing);
    file.unwrap().set_len(131 * PAGE as u64).unwrap();
    let space = spaces.open("a.vdt").unwrap();
    assert_eq!(space.size_pages(), pages);
    for _ in 0..pages - 2 - 16 {
        alloc_one(&env, &space, NO_PAGE, 5);
    }
    assert!(space.reserve(&env, 1).is_err());
    limit.store(u64::MAX, Relaxed);
    alloc_one(&env, &space, NO_PAGE, 5);
    assert_eq!(space.size_pages(), 192);
}

/// SP-1: what is gone is not read, and writing it does nothing.
#[test]
fn files_are_created_renamed_replaced_and_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let spaces = spaces_on(Arc::new(RealDisk), dir.path());
    let env = env_on(dir.path(), &spaces);
    let exists = |path: &str| dir.path().join(path).exists();
    let a = spaces.create(new_table("shop/a.vdt")).unwrap();
    assert_eq!(
        (a.kind(), a.table(), a.size_pages()),
        (SpaceKind::Table, TableId(7), 4)
    );
    assert!(matches!(
        spaces.create(new_table("x.vdt")),
        Err(Error::AlreadyExists { .. })
    ));
    let id = SpaceId(41);
    let b = NewSpace {
        id,
        ..new_table("shop/b.vdt")
    };
    spaces.create(b).unwrap();
    let no = alloc_one(&env, &spaces.get(id).unwrap(), NO_PAGE, 1);

    assert!(matches!(
        spaces.rename(ID, "shop/b.vdt"),
        Err(Error::AlreadyExists { .. })
    ));
    spaces.rename(ID, "other/a.vdt").unwrap();
    assert!(exists("other/a.vdt") && !exists("shop/a.vdt"));
    assert_eq!(a.path(), "other/a.vdt");

    spaces.replace(ID, id).unwrap();
    assert!(exists("other/a.vdt") && !exists("shop/b.vdt"));
    assert_eq!(spaces.inspect("other/a.vdt").unwrap().intro.space, id);
    let mut buf = vec![0; PAGE];
    let old = PageId::new(ID, PageNo(0));
    assert!(matches!(
        spaces.read(old, &mut buf),
        Err(Error::NotFound { .. })
    ));
    spaces.write(old, &buf).unwrap();
    spaces.sync(ID).unwrap();
    assert!(!spaces.ensure(old).unwrap());
    assert_eq!(spaces.inspect("other/a.vdt").unwrap().intro.space, id);

    write_all(&env);
    spaces.close(id).unwrap();
    assert!(spaces.all().is_empty());
    let again = spaces.open("other/a.vdt").unwrap();
    assert_eq!((again.id(), again.table()), (id, TableId(7)));
    assert!(again.is_allocated(&env, no).unwrap());
    spaces.drop_space(id).unwrap();
    assert!(!exists("other/a.vdt"));
    assert!(matches!(spaces.drop_space(id), Err(Error::NotFound { .. })));

    let (id, kind) = (crate::base::TEMP_SPACE, SpaceKind::Temp);
    let temp = NewSpace {
        id,
        kind,
        ..new_table("temp.vdt")
    };
    spaces.create(temp).unwrap();
    spaces.close(id).unwrap();
    spaces
        .create(temp)
        .expect("a temporary tablespace replaces what was left of the last");
}

/// SP-8: what can't be removed stays, and its pages are written.
#[test]
fn a_file_that_can_not_be_removed_stays() {
    let dir = tempfile::tempdir().unwrap();
    let spaces = spaces_on(Arc::new(RealDisk), dir.path());
    spaces.create(new_table("a.vdt")).unwrap();
    let (file, aside) = (dir.path().join("a.vdt"), dir.path().join("aside"));
    std::fs::rename(&file, &aside).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert!(spaces.drop_space(ID).is_err());
    let (page, bytes) = (PageId::new(ID, PageNo(3)), [7; PAGE]);
    spaces.write(page, &bytes).unwrap();
    let written = std::fs::read(&aside).unwrap();
    assert_eq!(written[3 * PAGE..][..PAGE], bytes);
    std::fs::remove_dir(&file).unwrap();
    spaces.drop_space(ID).expect("somebody else removed it");
    assert!(spaces.get(ID).is_none());
}

/// SP-8: a page does not count as written while a crash may bring its file back.
#[test]
fn late_writes_wait_until_the_file_is_gone_for_good() {
    for replaced in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let disk = large_disk();
        let spaces = spaces_on(disk.clone(), dir.path());
        spaces.create(new_table("a.vdt")).unwrap();
        let id = SpaceId(41);
        let other = NewSpace {
            id,
            ..new_table("b.vdt")
        };
        spaces.create(other).unwrap();
        let (tell, written) = mpsc::channel();
        let (written, late) = (Arc::new(Mutex::new(written)), Arc::downgrade(&spaces));
        let heard = written.clone();
        let hook = move || {
            let (tell, late) = (tell.clone(), late.upgrade().unwrap());
            std::thread::spawn(move || {
                let done = late.write(PageId::new(ID, PageNo(3)), &[7; PAGE]);
                tell.send(done).unwrap();
            });
            let done = heard.lock().recv_timeout(Duration::from_millis(50));
            assert!(done.is_err(), "SP-8");
        };
        assert!(disk.with.before_sync_dir.set(Box::new(hook)).is_ok());
        match replaced {
            true => spaces.replace(ID, id).unwrap(),
            false => spaces.drop_space(ID).unwrap(),
        }
        written.lock().recv().unwrap().unwrap();
    }
}

/// SP-8: neither does it where files stay open, and there nobody waits. Whatever fails, the pages go where
/// they are wanted.
#[test]
fn late_writes_reach_an_open_file_until_it_is_gone_for_good() {
    for fails in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let disk = large_disk();
        let spaces = spaces_on(disk.clone(), dir.path());
        let undo = |id, path| NewSpace {
            id,
            kind: SpaceKind::Undo,
            ..new_table(path)
        };
        let new = SpaceId(41);
        let was = spaces.create(undo(ID, "a/u.vdt")).unwrap();
        spaces.create(undo(new, "u-41.vdt")).unwrap();
        let (aside, left) = (dir.path().join("aside"), dir.path().join("a"));
        std::fs::hard_link(left.join("u.vdt"), &aside).unwrap();
        let byte_of = |no: usize| std::fs::read(&aside).unwrap()[no * PAGE];
        let late = Arc::downgrade(&spaces);
        let write = move |no| {
            late.upgrade()
                .unwrap()
                .write(PageId::new(ID, PageNo(no)), &[7; PAGE])
        };
        let hook = {
            let write = write.clone();
            let gone = dir.path().join("gone");
            move || {
                write(2).unwrap();
                if fails {
                    let _ = std::fs::rename(&left, &gone);
                }
            }
        };
        assert!(disk.with.before_sync_dir.set(Box::new(hook)).is_ok());
        assert_eq!(spaces.replace_open(ID, new).is_err(), fails);
        assert_eq!(byte_of(2), 7, "SP-8");
        assert_eq!(spaces.get(new).unwrap().path(), "a/u.vdt");
        assert_eq!(spaces.get(ID).is_some(), fails);
        write(3).unwrap();
        assert_eq!(byte_of(3), if fails { 7 } else { 0 });
        assert_eq!(was.file.to_read().is_ok(), fails);
    }
}

/// SP-6: pages of the temporary tablespace are given back without being read or written, across allocation
/// pages.
#[test]
fn discarded_pages_are_free_and_unread() {
    let dir = tempfile::tempdir().unwrap();
    let spaces = spaces_on(Arc::new(RealDisk), dir.path());
    let env = env_on(dir.path(), &spaces);
    let temp = NewSpace {
        id: crate::base::TEMP_SPACE,
        kind: SpaceKind::Temp,
        ..new_table("temp.vdt")
    };
    let space = spaces.create(temp).unwrap();
    let mut taken: Vec<PageNo> = vec![];
    while taken.len() < GROUP as usize + 200 {
        let _room = space.reserve(&env, 64).unwrap();
        let mut mtr = Mtr::begin_in(&env, space.id(), 4096).unwrap();
        for owner in 1..=64 {
            taken.push(space.alloc(&mut mtr, NO_PAGE, owner % 3 + 1).unwrap());
        }
        mtr.commit();
    }
    taken.sort();
    assert_eq!(space.used_pages(&env).unwrap() as usize, taken.len() + 3);
    let changed = PageId::new(space.id(), taken[7]);
    let mut mtr = Mtr::begin_in(&env, space.id(), 4096).unwrap();
    let h = mtr.exclusive_new(changed).unwrap();
    let ptype = PageType::Raw;
    mtr.op(h, PageOp::FormatRaw { ptype });
    mtr.commit();
    let loads = env.pool.stats().loads;
    space.discard(&env, &taken).unwrap();
    (1..=3).for_each(|owner| space.forget_user(owner));
    assert_eq!(env.pool.stats().loads, loads);
    assert!(!env.pool.is_resident(changed));
    assert_eq!(in_use(&env, &space), BTreeSet::from([0, 1, GROUP + 1]));
    let again = space.discard(&env, &taken[..1]).unwrap_err();
    assert!(again.to_string().contains("a free one"), "{again}");
    assert!(space.discard(&env, &[PageNo(1)]).is_err());
    assert_eq!(env.log.next_lsn(), START);
    env.log.check().unwrap();
}

#[test]
#[should_panic(expected = "SP-6")]
fn pages_of_logged_tablespaces_are_not_discarded() {
    let dir = tempfile::tempdir().unwrap();
    let spaces = spaces_on(Arc::new(RealDisk), dir.path());
    let env = env_on(dir.path(), &spaces);
    let space = spaces.create(new_table("a.vdt")).unwrap();
    let no = alloc_one(&env, &space, NO_PAGE, 1);
    let _ = space.discard(&env, &[no]);
}

#[test]
fn the_definition_stands_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let spaces = spaces_on(Arc::new(RealDisk), dir.path());
    let env = env_on(dir.path(), &spaces);
    let space = spaces.create(new_table("a.vdt")).unwrap();
    let mut copy = DefinitionCopy::whole(b"definition");
    let bytes = vec![7; PAGE];
    for (len, stored) in [
        (0, 0),
        (5, 5),
        (3000, 3000),
        (PAGE, 30),
        (PAGE, 0),
        (definition_room(PAGE), definition_room(PAGE)),
    ] {
        assert!(space.has_definition(&env, copy).unwrap(), "{copy:?}");
        let mut mtr = Mtr::begin(&env, PAGE as u32 + 64).unwrap();
        let next = DefinitionCopy::beginning(&bytes[..len], stored);
        assert!(!space.has_definition(&env, next).unwrap(), "{next:?}");
        space.set_definition(&mut mtr, next).unwrap();
        mtr.commit();
        copy = next;
    }
    let page = env.pool.shared(PageId::new(ID, PageNo(0))).unwrap();
    assert_eq!(DefinitionCopy::read(&page), Ok(copy));
    assert!(copy.is_whole());
}

/// Files that are not what they should be are refused, with what is wrong in the message.
#[test]
fn wrong_files_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let spaces = spaces_on(Arc::new(RealDisk), dir.path());
    spaces.create(new_table("a.vdt")).unwrap();
    let path = dir.path().join("a.vdt");
    let good = std::fs::read(&path).unwrap();
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 6] = [
        ("begins with VARVEDAT", |b| b[48] = b'X'),
        ("header checksum", |b| b[112] = 2),
        ("header checksum", |b| b[121] = 1),
        ("two pages or more", |b| b.truncate(5000)),
        ("format version", |b| b[56] = 99),
        ("features", |b| b[104] = 2),
    ];
    for (what, damage) in damages {
        let mut bytes = good.clone();
        damage(&mut bytes);
        std::fs::write(dir.path().join("bad.vdt"), &bytes).unwrap();
        let e = spaces.open("bad.vdt").map(drop).unwrap_err().to_string();
        assert!(e.contains(what) && e.contains("bad.vdt"), "{what}: {e}");
    }
    let e = spaces.open("a.vdt").map(drop).unwrap_err().to_string();
    assert!(e.contains("tablespace 40"), "{e}");
    for (uuid, page_size, what) in [([1; 16], PAGE, "database"), (UUID, 2 * PAGE, "page size")] {
        let others = Spaces::new(Arc::new(RealDisk), dir.path(), page_size, uuid, 10);
        let e = others.open("a.vdt").map(drop).unwrap_err().to_string();
        assert!(e.contains(what), "{e}");
    }
    // What a reader of the documented format finds.
    assert_eq!(&good[48..56], b"VARVEDAT");
    assert_eq!((good[80], good[112], good[120], good[136]), (40, 3, 7, 10));
    assert_eq!(&good[160..170], b"definition");
    page::verify(&good[..PAGE], PageId::new(ID, PageNo(0))).unwrap();
    assert_eq!(good[PAGE + 64], 0x11);
    assert_eq!(good[PAGE + 64 + 3072..][..4], [0xff; 4]);
}
