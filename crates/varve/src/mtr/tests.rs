//! Mini-transactions against a log on disk and pages in memory: what the log says, done again, gives the same
//! bytes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::record::{Record, records};
use super::replay::apply_frame;
use super::*;
use crate::base::{Error, NO_PAGE, PageNo, SpaceId, TEMP_SPACE};
use crate::buffer::PoolSettings;
use crate::buffer::mem_store::MemStore;
use crate::io::RealDisk;
use crate::page::{PageType, SlottedRef};
use crate::redo::{LogSettings, RedoReader};

const PAGE: usize = 4096;
const UUID: [u8; 16] = [3; 16];
const START: Lsn = Lsn(4096);

fn id(no: u32) -> PageId {
    PageId::new(SpaceId(2), PageNo(no))
}

fn pool_on(store: &Arc<MemStore>) -> Arc<BufferPool> {
    let settings = PoolSettings {
        bytes: (256 * PAGE) as u64,
        page_size: PAGE,
    };
    Arc::new(BufferPool::new(settings, store.clone()).unwrap())
}

fn env_in(dir: &Path, store: &Arc<MemStore>) -> MtrEnv {
    let settings = LogSettings::new(64 << 20, PAGE as u32, UUID);
    let log = RedoLog::create(Arc::new(RealDisk), dir, settings, START).unwrap();
    MtrEnv::new(pool_on(store), Arc::new(log))
}

/// All frames from the beginning: start, end, body.
fn frames(dir: &Path) -> Vec<(Lsn, Lsn, Vec<u8>)> {
    let mut reader = RedoReader::open(&RealDisk, dir, &UUID, START, &Default::default()).unwrap();
    let mut out = vec![];
    while let Some(f) = reader.next().unwrap() {
        out.push((f.start, f.end, f.body.to_vec()));
    }
    out
}

fn format(ptype: PageType) -> PageOp<'static> {
    match ptype.is_slotted() {
        true => PageOp::FormatSlotted {
            ptype,
            owner: 9,
            level: 0,
            user_len: 0,
            next: NO_PAGE,
            low: b"",
            high: None,
        },
        false => PageOp::FormatRaw { ptype },
    }
}

/// A random change that fits the page.
fn random_op(mtr: &mut Mtr<'_>, h: PageHandle, rng: &mut SmallRng) {
    let payload: Vec<u8> = (0..rng.random_range(1..60)).map(|_| rng.random()).collect();
    if !page::page_type(mtr.bytes(h)).unwrap().is_slotted() {
        let off = rng.random_range(page::PAGE_HEADER..PAGE - 64) as u16;
        let bytes = &payload;
        return mtr.op(h, PageOp::Write { off, bytes });
    }
    let leaf = SlottedRef::new(mtr.bytes(h));
    let key: [u8; 4] = rng.random();
    match leaf.search(&key) {
        Ok(slot) => mtr.op(h, PageOp::Remove { slot: slot as u16 }),
        Err(_) if leaf.n_slots() > 40 => {
            let slot = rng.random_range(0..leaf.n_slots()) as u16;
            mtr.op(h, PageOp::Remove { slot });
        }
        Err(slot) => {
            let op = PageOp::Insert {
                slot: slot as u16,
                suffix: &key,
                payload: &payload,
            };
            mtr.op(h, op);
        }
    }
}

/// One random mini-transaction on up to three pages, latched in ascending order; sometimes one is taken for
/// new.
fn random_mtr(env: &MtrEnv, pages: u32, rng: &mut SmallRng) {
    let mut nos: Vec<u32> = (0..3).map(|_| rng.random_range(0..pages)).collect();
    nos.sort_unstable();
    nos.dedup();
    let mut mtr = Mtr::begin(env, 4000).unwrap();
    let mut held = vec![];
    for no in nos {
        if rng.random_range(0..20) == 0 {
            let h = mtr.exclusive_new(id(no)).unwrap();
            let ptype = if rng.random() {
                PageType::Raw
            } else {
                PageType::Leaf
            };
            mtr.op(h, format(ptype));
            held.push(h);
        } else {
            held.push(mtr.exclusive(id(no)).unwrap());
        }
    }
    for _ in 0..rng.random_range(1..8) {
        let h = held[rng.random_range(0..held.len())];
        random_op(&mut mtr, h, rng);
    }
    mtr.commit();
}

/// MTR-3: threads change pages while a cleaner writes some of them; then the machine stops.
/// Replaying the log over what was written gives the pages as they were, and replaying it again changes
/// nothing (RPL-1).
#[test]
fn replay_restores_every_page_once_and_again() {
    const PAGES: u32 = 40;
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MemStore::default());
    let env = env_in(dir.path(), &store);
    let seed = rand::random::<u64>();
    println!("seed {seed}");
    let mut mtr = Mtr::begin(&env, 4000).unwrap();
    for no in 0..PAGES {
        let h = mtr.exclusive_new(id(no)).unwrap();
        let ptype = if no % 2 == 0 {
            PageType::Leaf
        } else {
            PageType::Raw
        };
        mtr.op(h, format(ptype));
    }
    mtr.commit();

    let stop = AtomicBool::new(false);
    let (rounds, committed) = (AtomicU32::new(0), AtomicU32::new(1));
    let checkpoint = std::thread::scope(|s| {
        let cleaner = s.spawn(|| {
            let mut buf = vec![0; PAGE];
            let mut checkpoint = START;
            while !stop.load(Acquire) {
                let mut taken = vec![];
                env.pool.take_oldest(Lsn(u64::MAX >> 1), 20, &mut taken);
                for page in taken {
                    // The log is whole when the machine stops, so WAL-1 does not matter here.
                    if env.pool.copy_for_write(&page, &mut buf).unwrap().is_none() {
                        env.pool.write_given_up(page);
                        continue;
                    }
                    env.pool.store().write(page.page, &buf).unwrap();
                    env.pool.write_done(page);
                }
                let complete = env.log.complete_lsn();
                checkpoint = env
                    .pool
                    .min_first_change(complete)
                    .map_or(complete, |l| l.min(complete));
                rounds.fetch_add(1, Relaxed);
            }
            checkpoint
        });
        let writers: Vec<_> = (0..3)
            .map(|t| {
                let (env, rounds, committed) = (&env, &rounds, &committed);
                s.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(seed ^ t);
                    // Until the cleaner has moved the checkpoint a few times.
                    while committed.load(Relaxed) < 2000 || rounds.load(Relaxed) < 6 {
                        random_mtr(env, PAGES, &mut rng);
                        committed.fetch_add(1, Relaxed);
                    }
                })
            })
            .collect();
        let outcomes: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
        stop.store(true, Release);
        outcomes.into_iter().for_each(|o| o.unwrap());
        cleaner.join().unwrap()
    });
    env.log.sync_to(env.log.next_lsn()).unwrap();

    let frames = frames(dir.path());
    assert_eq!(frames.len(), committed.load(Relaxed) as usize);
    assert!(checkpoint > START, "the cleaner never advanced");
    assert!(store.writes.load(Relaxed) > 0);
    let recovered = pool_on(&store);
    // From the checkpoint, as recovery does it; then everything from the beginning.
    for from in [checkpoint, START] {
        for (start, end, body) in frames.iter().filter(|f| f.0 >= from) {
            apply_frame(&recovered, *start, *end, body, |_| Ok(())).unwrap();
        }
        for no in 0..PAGES {
            let (was, is) = (
                env.pool.shared(id(no)).unwrap(),
                recovered.shared(id(no)).unwrap(),
            );
            // Checksum and stored length are set in what is written only.
            let same = was[4..24] == is[4..24] && was[28..] == is[28..];
            assert!(same, "page {no} differs after replay from {from}");
        }
    }
    let first = recovered.min_first_change(frames.last().unwrap().1);
    assert!(first.is_none_or(|l| l >= checkpoint), "RPL-2: {first:?}");
}

#[test]
fn a_commit_stamps_its_pages_and_reads_as_logged() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MemStore::default());
    let env = env_in(dir.path(), &store);
    let mut mtr = Mtr::begin(&env, 500).unwrap();
    let (a, b) = (
        mtr.exclusive_new(id(1)).unwrap(),
        mtr.exclusive_new(id(2)).unwrap(),
    );
    let raw = RawRecord::IdLimit { limit: 77 };
    let write = |off| PageOp::Write { off, bytes: b"xyz" };
    mtr.op(a, format(PageType::Raw));
    mtr.op(b, format(PageType::Raw));
    mtr.op(a, write(100));
    mtr.op(a, write(200));
    mtr.log_raw(&raw);
    let mut seen = None;
    let end = mtr.commit_with(|start, end| seen = Some((start, end)));
    assert_eq!(seen, Some((START, end)));
    for no in [1, 2] {
        assert_eq!(page::page_lsn(&env.pool.shared(id(no)).unwrap()), end);
    }
    assert_eq!(
        env.pool.min_first_change(env.log.complete_lsn()),
        Some(START)
    );
    assert_eq!(env.log.complete_lsn(), end);
    env.log.sync_to(end).unwrap();
    let got = frames(dir.path());
    assert_eq!((got.len(), got[0].0, got[0].1), (1, START, end));
    let want = [
        (1, true, format(PageType::Raw)),
        (2, true, format(PageType::Raw)),
        (1, false, write(100)),
        (1, false, write(200)),
    ];
    let mut want: Vec<_> = want
        .into_iter()
        .map(|(no, fresh, op)| Record::Op {
            page: id(no),
            fresh,
            op,
        })
        .collect();
    want.push(Record::Raw(raw));
    let read: Vec<_> = records(&got[0].2).map(|r| r.unwrap()).collect();
    assert_eq!(read, want);
}

/// What needs no log costs none: reads, and changes of unlogged tablespaces.
#[test]
fn reads_and_unlogged_changes_leave_no_trace_in_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MemStore::default());
    let env = env_in(dir.path(), &store);
    let temp = PageId::new(TEMP_SPACE, PageNo(4));
    let mut mtr = Mtr::begin(&env, 0).unwrap();
    let h = mtr.exclusive_new(temp).unwrap();
    mtr.op(h, format(PageType::Raw));
    assert_eq!(mtr.commit(), Lsn(0));
    let mut mtr = Mtr::begin(&env, 100).unwrap();
    let h = mtr.shared(temp).unwrap();
    assert_eq!(page::page_type(mtr.bytes(h)), Some(PageType::Raw));
    assert_eq!(mtr.find(temp), Some(h));
    mtr.release(h);
    assert!(mtr.find(temp).is_none());
    let h = mtr.exclusive(temp).unwrap();
    assert!(env.pool.try_shared(temp).unwrap().is_none());
    mtr.release(h);
    assert!(env.pool.try_shared(temp).unwrap().is_some());
    assert_eq!(mtr.commit(), Lsn(0));
    assert_eq!(env.log.next_lsn(), START);
    assert_eq!(env.pool.dirty_pages(), 1);
    assert_eq!(env.pool.min_first_change(START), None);
}

/// Pages of unlogged tablespaces keep their LSN of 0 (WAL-1 holds whenever they are written), leave the pool
/// dirty and come back as they were.
#[test]
fn unlogged_pages_have_no_lsn_and_survive_eviction() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MemStore::default());
    let env = env_in(dir.path(), &store);
    let temp = |no| PageId::new(TEMP_SPACE, PageNo(no));
    for no in 0..200u32 {
        let mut mtr = Mtr::begin_in(&env, TEMP_SPACE, 4000).unwrap();
        let h = mtr.exclusive_new(temp(no)).unwrap();
        mtr.op(h, format(PageType::Raw));
        let bytes = &no.to_le_bytes();
        mtr.op(h, PageOp::Write { off: 200, bytes });
        assert_eq!(page::page_lsn(mtr.bytes(h)), Lsn(0));
        mtr.commit();
    }
    let mut taken = vec![];
    env.pool.take_cold(usize::MAX, 0, usize::MAX, &mut taken);
    assert_eq!(taken.len(), 200);
    let mut copy = vec![0; PAGE];
    for page in taken {
        assert_eq!(page.first_change, None);
        assert_eq!(
            env.pool.copy_for_write(&page, &mut copy).unwrap(),
            Some(Lsn(0))
        );
        env.pool.store().write(page.page, &copy).unwrap();
        env.pool.write_done(page);
    }
    let again = pool_on(&store);
    for no in 0..200u32 {
        let page = again.shared(temp(no)).unwrap();
        assert_eq!(page[200..204], no.to_le_bytes());
    }
    assert_eq!(env.log.next_lsn(), START);
}

/// MTR-6: a mini-transaction is in the log as a whole or not at all.
#[test]
fn logged_and_unlogged_changes_do_not_mix() {
    let temp = PageId::new(TEMP_SPACE, PageNo(1));
    for (redo, pages) in [
        (4000, [id(1), temp]),
        (4000, [temp, id(1)]),
        (0, [temp, id(1)]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(MemStore::default());
        let env = env_in(dir.path(), &store);
        let mixed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut mtr = Mtr::begin(&env, redo).unwrap();
            for page in pages {
                let h = mtr.exclusive_new(page).unwrap();
                mtr.op(h, format(PageType::Raw));
            }
            mtr.commit();
        }));
        let panic = *mixed.unwrap_err().downcast::<String>().unwrap();
        assert!(panic.contains("MTR-6"), "{panic}");
    }
    let dir = tempfile::tempdir().unwrap();
    let env = env_in(dir.path(), &Arc::default());
    env.log.poison("the test");
    assert!(Mtr::begin_in(&env, TEMP_SPACE, 0).is_err());
}

/// MTR-2: who finds a mini-transaction complete finds the first change of its page.
#[test]
fn what_is_complete_is_registered() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MemStore::default());
    let env = env_in(dir.path(), &store);
    let mut buf = vec![0; PAGE];
    for _ in 0..1000 {
        let start = env.log.next_lsn();
        let is_ready = AtomicBool::new(false);
        std::thread::scope(|s| {
            let committer = s.spawn(|| {
                let mut mtr = Mtr::begin(&env, 200).unwrap();
                let h = mtr.exclusive_new(id(1)).unwrap();
                mtr.op(h, format(PageType::Raw));
                is_ready.store(true, Release);
                mtr.commit();
            });
            while !is_ready.load(Acquire) && !committer.is_finished() {
                std::thread::yield_now();
            }
            let complete = loop {
                let complete = env.log.complete_lsn();
                if complete > start || committer.is_finished() {
                    break complete;
                }
            };
            assert_eq!(env.pool.min_first_change(complete), Some(start));
        });
        let mut taken = vec![];
        env.pool.take_oldest(Lsn(u64::MAX >> 1), 1, &mut taken);
        for page in taken {
            env.pool.copy_for_write(&page, &mut buf).unwrap().unwrap();
            env.pool.write_done(page);
        }
    }
}

/// MTR-4: whoever comes to a page a second time is told of damage, and does not wait for himself.
#[test]
fn a_page_is_latched_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MemStore::default());
    let env = env_in(dir.path(), &store);
    let mut mtr = Mtr::begin(&env, 200).unwrap();
    let h = mtr.exclusive_new(id(1)).unwrap();
    mtr.op(h, format(PageType::Raw));
    for again in [mtr.shared(id(1)), mtr.exclusive(id(1))] {
        assert!(matches!(again, Err(Error::Corrupt { .. })));
    }
    mtr.commit();
}

/// RPL-4: a frame that names an unlogged page is damaged, and changes nothing.
#[test]
fn replay_refuses_unlogged_pages() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MemStore::default());
    let env = env_in(dir.path(), &store);
    let mut body = vec![];
    record::put_page(&mut body, PageId::new(TEMP_SPACE, PageNo(3)), true);
    format(PageType::Raw).encode(&mut body);
    let e = apply_frame(&env.pool, START, Lsn(START.0 + 64), &body, |_| Ok(())).unwrap_err();
    assert!(e.to_string().contains("not logged"), "{e}");
    assert_eq!(env.pool.dirty_pages(), 0);
}

/// MTR-5, and what is refused: an operation that does not fit, more redo than was reserved (MTR-1), a change
/// of an unlatched or shared page.
#[test]
fn an_abandoned_change_poisons_the_log() {
    type Bad = fn(&mut Mtr<'_>, PageHandle);
    let cases: [(&str, Bad, bool); 4] = [
        (
            "operation that does not fit",
            |m, h| m.op(h, PageOp::Remove { slot: 3 }),
            true,
        ),
        (
            "more than reserved",
            |m, h| {
                let bytes = &[1; 300];
                m.op(h, PageOp::Write { off: 100, bytes });
            },
            true,
        ),
        (
            "released after a change",
            |m, h| {
                m.op(
                    h,
                    PageOp::Write {
                        off: 100,
                        bytes: b"x",
                    },
                );
                m.release(h);
            },
            true,
        ),
        ("nothing changed", |_, _| panic!("unrelated"), false),
    ];
    for (what, bad, poisons) in cases {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(MemStore::default());
        let env = env_in(dir.path(), &store);
        let mut mtr = Mtr::begin(&env, 200).unwrap();
        let h = mtr.exclusive_new(id(1)).unwrap();
        mtr.op(h, format(PageType::Raw));
        mtr.commit();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut mtr = Mtr::begin(&env, 200).unwrap();
            let h = mtr.exclusive(id(1)).unwrap();
            bad(&mut mtr, h);
        }));
        assert!(outcome.is_err(), "{what}");
        assert_eq!(env.log.check().is_err(), poisons, "{what}");
        assert!(
            env.pool.try_exclusive(id(1)).unwrap().is_some(),
            "{what}: latch left behind"
        );
    }
}

/// Replay skips pages of lost tablespaces, mends pages that the frame takes for new, and reports what it
/// can't do.
#[test]
fn replay_of_missing_and_damaged_pages() {
    let body = |fresh: bool, ops: &[PageOp<'_>]| {
        let mut body = vec![];
        record::put_page(&mut body, id(1), fresh);
        ops.iter().for_each(|op| op.encode(&mut body));
        body
    };
    let raw = format(PageType::Raw);
    let write = PageOp::Write {
        off: 64,
        bytes: b"abc",
    };
    let mut damaged = vec![7u8; PAGE];
    damaged[4] = 1;
    for (what, stored, body, want) in [
        ("missing page, new", None, body(true, &[raw, write]), Ok(())),
        (
            "missing page, not formatted",
            None,
            body(false, &[write]),
            Err("corrupt"),
        ),
        (
            "damaged page, new",
            Some(damaged.clone()),
            body(true, &[raw, write]),
            Ok(()),
        ),
        (
            "damaged page, changed",
            Some(damaged),
            body(false, &[write]),
            Err("corrupt"),
        ),
        ("no record", None, vec![0xff], Err("file")),
    ] {
        let store = Arc::new(MemStore::default());
        if let Some(bytes) = stored {
            store.put(id(1), bytes);
        }
        let pool = pool_on(&store);
        let got = apply_frame(&pool, Lsn(80), Lsn(160), &body, |_| Ok(()));
        match (want, got) {
            (Ok(()), Ok(())) => {
                let page = pool.shared(id(1)).unwrap();
                assert_eq!(
                    (&page[64..67], page::page_lsn(&page)),
                    (&b"abc"[..], Lsn(160)),
                    "{what}"
                );
                assert!(page[67..].iter().all(|b| *b == 0), "{what}: old bytes left");
                assert_eq!(pool.min_first_change(Lsn(160)), Some(Lsn(80)), "{what}");
            }
            (Err("corrupt"), Err(Error::Corrupt { page, .. })) => assert_eq!(page, id(1), "{what}"),
            (Err("file"), Err(Error::CorruptFile { .. })) => {}
            (_, got) => panic!("{what}: {got:?}"),
        }
    }
    let store = Arc::new(MemStore::default());
    store.gone.lock().insert(SpaceId(2));
    let pool = pool_on(&store);
    let seen = Mutex::new(0);
    let mut frame = body(true, &[raw]);
    record::put_raw(&mut frame, &RawRecord::IdLimit { limit: 5 });
    apply_frame(&pool, Lsn(80), Lsn(160), &frame, |r| {
        assert_eq!(r, RawRecord::IdLimit { limit: 5 });
        *seen.lock() += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!((pool.dirty_pages(), *seen.lock()), (0, 1));
}

/// A page counts once for each mini-transaction that has changed it, whatever the number of operations,
/// logged or not.
#[test]
fn changes_of_pages_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let env = env_in(dir.path(), &Arc::default());
    let ptype = PageType::Raw;
    for (space, bytes) in [(SpaceId(2), 4000), (TEMP_SPACE, 0)] {
        let at = |no| PageId::new(space, PageNo(no));
        let before = env.pool.stats().changes;
        let mut mtr = Mtr::begin_in(&env, space, bytes).unwrap();
        for no in [1, 2] {
            let h = mtr.exclusive_new(at(no)).unwrap();
            mtr.op(h, PageOp::FormatRaw { ptype });
            let (off, bytes) = (page::PAGE_HEADER as u16, &[7; 9]);
            mtr.op(h, PageOp::Write { off, bytes });
        }
        mtr.commit();
        let mut mtr = Mtr::begin_in(&env, space, bytes).unwrap();
        mtr.exclusive(at(1)).unwrap();
        mtr.commit();
        assert_eq!(env.pool.stats().changes - before, 2);
    }
}
