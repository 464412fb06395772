//! What a page costs that is in the pool, and a mini-transaction that changes one: `cargo bench -p varve
//! --bench buffer`. Beside each figure its ratio to the peer measured in the same run: a hash map of pages
//! under one `parking_lot::RwLock` each, behind a `RwLock`.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use varve::Result;
use varve::internals::base::{Lsn, NO_PAGE, PageId, PageNo, SpaceId};
use varve::internals::buffer::{BufferPool, PageStore, PoolSettings};
use varve::internals::io::RealDisk;
use varve::internals::mtr::{Mtr, MtrEnv};
use varve::internals::page::{PageHint, PageOp, PageType, seal};
use varve::internals::redo::{LogSettings, RedoLog};

const PAGE: usize = 16384;
const PAGES: u32 = 4096;
const ROUNDS: u32 = 4_000_000;

type Peer = RwLock<HashMap<PageId, RwLock<Vec<u8>>>>;

struct Store(Mutex<HashMap<PageId, Vec<u8>>>);

impl PageStore for Store {
    fn read(&self, page: PageId, buf: &mut [u8]) -> Result<()> {
        buf.copy_from_slice(&self.0.lock()[&page]);
        Ok(())
    }
    fn write(&self, _: PageId, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn sync(&self, _: SpaceId) -> Result<()> {
        Ok(())
    }
    fn ensure(&self, _: PageId) -> Result<bool> {
        Ok(true)
    }
}

fn id(no: u32) -> PageId {
    PageId::new(SpaceId(3), PageNo(no))
}

/// A multiplicative walk over the pages, so that the prefetcher can't guess.
fn pick(i: u32, pages: u32) -> u32 {
    i.wrapping_mul(0x9e37_79b1) >> 7 & (pages - 1)
}

/// Nanoseconds per call, the best of three runs on `threads` threads.
fn measure(threads: u32, work: impl Fn(u32) + Sync) -> f64 {
    let run = || {
        let started = Instant::now();
        std::thread::scope(|s| {
            for t in 0..threads {
                let work = &work;
                s.spawn(move || (0..ROUNDS).for_each(|i| work(i ^ t << 20)));
            }
        });
        started.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
    };
    (0..3).map(|_| run()).fold(f64::MAX, f64::min)
}

fn main() {
    let mut pages = HashMap::new();
    for no in 0..PAGES {
        let mut page = vec![0; PAGE];
        let inner = no < 64;
        let format = PageOp::FormatSlotted {
            ptype: if inner {
                PageType::Inner
            } else {
                PageType::Leaf
            },
            owner: 1,
            level: u16::from(inner),
            user_len: 0,
            next: NO_PAGE,
            low: b"",
            high: None,
        };
        format.apply(&mut page, id(no)).unwrap();
        if inner {
            let (slot, suffix, payload) = (0, &b""[..], &[0; 4][..]);
            let op = PageOp::Insert {
                slot,
                suffix,
                payload,
            };
            op.apply(&mut page, id(no)).unwrap();
        }
        seal(&mut page);
        pages.insert(id(no), page);
    }
    let peer: RwLock<HashMap<PageId, RwLock<Vec<u8>>>> = RwLock::new(
        pages
            .iter()
            .map(|(k, v)| (*k, RwLock::new(v.clone())))
            .collect(),
    );
    let settings = PoolSettings {
        bytes: (2 * PAGES as usize * PAGE) as u64,
        page_size: PAGE,
    };
    let pool = BufferPool::new(settings, Arc::new(Store(Mutex::new(pages)))).unwrap();
    let hints: Vec<_> = (0..PAGES).map(|_| PageHint::unknown()).collect();

    println!(
        "{:28} {:>8} {:>8} {:>8}",
        "ns per call", "pool", "peer", "ratio"
    );
    for threads in [1, 2] {
        for (what, pages) in [("one page", 1), ("64 pages", 64), ("4096 pages", PAGES)] {
            let theirs = measure(threads, |i| {
                let map = peer.read();
                black_box(map[&id(pick(i, pages))].read()[100]);
            });
            let ours = measure(threads, |i| {
                black_box(pool.shared(id(pick(i, pages))).unwrap()[100]);
            });
            report(&format!("shared, {what}, {threads} threads"), ours, theirs);
        }
        let theirs = measure(threads, |i| {
            let map = peer.read();
            map[&id(pick(i, PAGES))].write()[100] += 1;
        });
        let ours = measure(threads, |i| {
            black_box(pool.exclusive(id(pick(i, PAGES))).unwrap()[100]);
        });
        report(&format!("exclusive, {threads} threads"), ours, theirs);
        let theirs = measure(threads, |i| {
            let map = peer.read();
            black_box(map[&id(pick(i, 64))].read()[100]);
        });
        let ours = measure(threads, |i| {
            let no = pick(i, 64);
            let guard = crossbeam_epoch::pin();
            let image = pool.inner(id(no), &hints[no as usize], &guard).unwrap();
            black_box(image.unwrap().level);
        });
        report(&format!("inner image, {threads} threads"), ours, theirs);
    }
    mini_transactions(pool, &peer);
}

/// One mini-transaction that overwrites 20 bytes of a record, against the same change of a page of the
/// peer's.
fn mini_transactions(pool: BufferPool, peer: &Peer) {
    let dir = tempfile::tempdir().unwrap();
    let settings = LogSettings::new(8 << 30, PAGE as u32, [1; 16]);
    let log = RedoLog::create(Arc::new(RealDisk), dir.path(), settings, Lsn(4096)).unwrap();
    let env = MtrEnv::new(Arc::new(pool), Arc::new(log));
    let _writer = env.log.spawn_writer().unwrap();
    let payload = [7; 100];
    for no in 64..128 {
        let mut mtr = Mtr::begin(&env, 1000).unwrap();
        let h = mtr.exclusive(id(no)).unwrap();
        let (slot, suffix) = (0, &b"key"[..]);
        let payload = &payload;
        mtr.op(
            h,
            PageOp::Insert {
                slot,
                suffix,
                payload,
            },
        );
        mtr.commit();
    }
    for threads in [1, 2] {
        let theirs = measure(threads, |i| {
            let map = peer.read();
            map[&id(64 + pick(i, 64))].write()[4000..4020].fill(i as u8);
        });
        let ours = measure(threads, |i| {
            let mut mtr = Mtr::begin(&env, 200).unwrap();
            let h = mtr.exclusive(id(64 + pick(i, 64))).unwrap();
            let (slot, off) = (0, 10);
            let bytes = &[i as u8; 20];
            mtr.op(h, PageOp::PatchPayload { slot, off, bytes });
            mtr.commit();
        });
        report(
            &format!("mini-transaction, {threads} threads"),
            ours,
            theirs,
        );
        env.log.sync_to(env.log.next_lsn()).unwrap();
        env.log.set_checkpoint(env.log.durable_lsn());
    }
}

fn report(what: &str, ours: f64, theirs: f64) {
    println!("{what:28} {ours:8.1} {theirs:8.1} {:8.2}", ours / theirs);
}
