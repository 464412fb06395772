//! Trees against a model: alone, with many threads, with a pool far too small for the tree, and after
//! replaying the log. Pages of 4 KiB and long keys make trees of four levels and more.

mod concurrent;
mod long_keys;
mod measure;
mod model;
mod single;
mod sizes;
mod whole;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread::JoinHandle;
use std::time::Duration;

use super::*;
use crate::base::{Lsn, SpaceId, TableId};
use crate::buffer::{BufferPool, PoolSettings};
use crate::io::{Disk, Overlay, RealDisk};
use crate::page::{SlottedRef, record_cost};
use crate::redo::{LogSettings, LogWriter, RedoLog};
use crate::space::{DefinitionCopy, NewSpace, SpaceKind, Spaces};

pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const UUID: [u8; 16] = [4; 16];
const START: Lsn = Lsn(4096);

/// A tree with everything that it stands on, and a thread that writes dirty pages.
pub(crate) struct Fixture {
    pub(crate) tree: Arc<Tree>,
    pub(crate) env: Arc<MtrEnv>,
    pub(crate) store: Arc<Spaces>,
    /// In memory, over an empty directory.
    disk: Arc<dyn Disk>,
    dir: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    cleaner: Option<JoinHandle<()>>,
    _writer: LogWriter,
}

fn new_space(store: &Spaces) -> Arc<Space> {
    let space = store.create(NewSpace {
        id: SpaceId(9),
        path: "t.vdt",
        kind: SpaceKind::Table,
        table: TableId(1),
        definition: DefinitionCopy::default(),
        pages: 2,
        target: None,
        compression: None,
        encryption: Default::default(),
    });
    space.expect("a tablespace")
}

/// Writes dirty pages, oldest and least used first, and moves the checkpoint.
fn clean(env: &MtrEnv, buf: &mut [u8]) {
    let pool = &env.pool;
    let complete = env.log.complete_lsn();
    let mut taken = Vec::new();
    pool.take_cold(pool.usable_frames().min(512), 0, 64, &mut taken);
    pool.take_oldest(complete, 16, &mut taken);
    env.log.write_to(complete).expect("the log takes it");
    for page in taken {
        let id = page.page;
        match pool.copy_for_write(&page, buf).unwrap() {
            Some(_) => {
                crate::page::seal(buf);
                pool.store().write(id, buf).expect("the store takes it");
                pool.write_done(page);
            }
            None => pool.write_given_up(page),
        }
    }
    if let Some(oldest) = pool.min_first_change(complete) {
        env.log.sync_to(complete).expect("the log syncs");
        env.log.set_checkpoint(oldest.min(complete));
    }
}

impl Fixture {
    pub(crate) fn new(page_size: usize, frames: usize) -> Fixture {
        Fixture::with_pause(page_size, frames, Duration::from_micros(200))
    }

    /// `pause`: how long the cleaner sleeps between its rounds.
    fn with_pause(page_size: usize, frames: usize, pause: Duration) -> Fixture {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let disk: Arc<dyn Disk> = Arc::new(Overlay::new(Arc::new(RealDisk)));
        let store = Spaces::new(disk.clone(), dir.path(), page_size, UUID, 10);
        let store = Arc::new(store);
        let settings = PoolSettings {
            bytes: (frames * page_size) as u64,
            page_size,
        };
        let pool = Arc::new(BufferPool::new(settings, store.clone()).expect("a pool"));
        let log = LogSettings::new(256 << 20, page_size as u32, UUID);
        let log = RedoLog::create(disk.clone(), dir.path(), log, START).expect("a log");
        let log = Arc::new(log);
        let writer = log.spawn_writer().expect("a thread");
        let env = Arc::new(MtrEnv::new(pool, log));
        let space = new_space(&store);
        let index = IndexId(77);
        let room = space.reserve(&env, 1).expect("a page");
        let mut mtr = Mtr::begin(&env, 4096).expect("capacity");
        let root = Tree::create(&mut mtr, &space, index).expect("a root");
        mtr.commit();
        drop(room);
        let tree = Arc::new(Tree::open(env.clone(), space, root, index));
        let stop = Arc::new(AtomicBool::new(false));
        let cleaner = std::thread::spawn({
            let (env, stop) = (env.clone(), stop.clone());
            move || {
                let mut buf = vec![0; page_size];
                while !stop.load(Relaxed) {
                    clean(&env, &mut buf);
                    std::thread::sleep(pause);
                }
            }
        });
        Fixture {
            tree,
            env,
            store,
            disk,
            dir,
            stop,
            cleaner: Some(cleaner),
            _writer: writer,
        }
    }

    /// The same with a dense tree.
    fn dense(mut self) -> Fixture {
        Arc::get_mut(&mut self.tree).expect("nobody else").is_dense = true;
        self
    }

    /// Pages that the tree has, by the allocation pages.
    fn used_pages(&self) -> u64 {
        let used = self.tree.space.used_pages(&self.env).expect("a count");
        u64::from(used) - 2
    }

    fn log_dir(&self) -> &Path {
        self.dir.path()
    }

    /// The tree is sound and holds exactly `model`.
    fn check_is(&self, model: &Model) -> TreeReport {
        check_is(&self.tree, model)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(cleaner) = self.cleaner.take() {
            let ended = cleaner.join();
            // A test that fails in the middle of a change takes the cleaner with it.
            assert!(
                ended.is_ok() || std::thread::panicking(),
                "the cleaner panicked"
            );
        }
    }
}

fn check_is(tree: &Tree, model: &Model) -> TreeReport {
    let mut expected = model.iter();
    let mut differences = 0;
    let report = tree
        .check(&mut |key, payload| {
            if expected.next().map(|(k, p)| (&k[..], &p[..])) != Some((key, payload)) {
                differences += 1;
            }
            Ok(())
        })
        .expect("a check");
    assert_eq!(report.errors, Vec::<String>::new());
    assert_eq!((report.records as usize, differences), (model.len(), 0));
    report
}

/// Which of `n` keys is the `i`th.
type Order = fn(i: u32, n: u32) -> u32;

/// Orders in which runs of keys come and go, by name.
const RUNS: [(&str, Order); 4] = [
    ("upward", |i, _| i),
    ("downward", |i, n| n - 1 - i),
    ("from both ends", |i, n| {
        if i % 2 == 0 { i / 2 } else { n - 1 - i / 2 }
    }),
    ("from the middle", |i, n| {
        if i % 2 == 0 {
            (n + i) / 2
        } else {
            (n - 1 - i) / 2
        }
    }),
];

/// Inserts the key or replaces its payload. Asks for room as for an insertion: a leaf between long fences may
/// not take that beside a record that it replaces.
fn put(tree: &Tree, key: &[u8], payload: &[u8]) {
    put_into(tree, key, payload, record_cost(key.len(), payload.len()));
}

/// The same in a tree and its model, which says by how much a record grows.
fn put_in_both(tree: &Tree, model: &mut Model, key: Vec<u8>, payload: Vec<u8>) {
    let room = match model.get(&key) {
        Some(before) => payload.len().saturating_sub(before.len()),
        None => record_cost(key.len(), payload.len()),
    };
    put_into(tree, &key, &payload, room);
    model.insert(key, payload);
}

/// The same with so much room asked for: what the record takes, or what it grows by.
fn put_into(tree: &Tree, key: &[u8], payload: &[u8], room: usize) {
    let redo = (8 << 10) + key.len() + payload.len();
    let mut mtr = Mtr::begin(&tree.env, redo as u32).expect("capacity");
    let mut pos = tree
        .latch_leaf_exclusive(&mut mtr, key, room)
        .expect("a leaf");
    if pos.found {
        pos.remove(&mut mtr);
    }
    pos.insert(&mut mtr, key, payload);
    mtr.commit();
}

/// Removes the key and merges what became too empty; false if it was not there.
fn remove(tree: &Tree, key: &[u8]) -> bool {
    let mut mtr = Mtr::begin(&tree.env, 256).expect("capacity");
    let mut pos = tree.latch_leaf_exclusive(&mut mtr, key, 0).expect("a leaf");
    if !pos.found {
        return false;
    }
    pos.remove(&mut mtr);
    let underfull = pos.underfull(&mtr);
    mtr.commit();
    if underfull {
        tree.maybe_merge(key).expect("a merge or nothing");
    }
    true
}

/// Removes the records of those of the ascending keys for whose payload `is_garbage` says so, leaf by leaf.
/// Returns how many.
fn remove_garbage(tree: &Tree, mut keys: &[Vec<u8>], is_garbage: impl Fn(&[u8]) -> bool) -> usize {
    let (mut removed, mut leaf) = (0, None);
    while let Some(first) = keys.first() {
        let redo = removal_log_bytes(keys.len());
        let mut mtr = Mtr::begin(&tree.env, redo).expect("capacity");
        let all = keys.iter().map(Vec::as_slice);
        let visit = tree
            .remove_from_leaf(&mut mtr, leaf, all, |_, payload| is_garbage(payload))
            .expect("a leaf");
        mtr.commit();
        leaf = visit.next;
        if visit.is_sparse {
            tree.maybe_merge(first).expect("a merge or nothing");
        }
        removed += visit.removed;
        keys = &keys[visit.covered..];
    }
    removed
}

fn get(tree: &Tree, key: &[u8]) -> Option<Vec<u8>> {
    let leaf = tree.latch_leaf_shared(key, Seek::Ge).expect("a leaf");
    let p = leaf.slotted();
    p.search(key).ok().map(|slot| p.payload(slot).to_vec())
}

/// All keys from the search on, in its direction, at most `limit` of them.
fn scan(tree: &Tree, key: Option<&[u8]>, seek: Seek, limit: usize) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let mut leaf = match key {
        Some(key) => tree.latch_leaf_shared(key, seek),
        None if seek.is_forward() => tree.latch_leaf_shared(&[], seek),
        None => tree.latch_last_leaf(),
    }
    .expect("a leaf");
    loop {
        let p: SlottedRef<'_> = leaf.slotted();
        let slots: Vec<usize> = match seek.is_forward() {
            true => (leaf.at..p.n_slots()).collect(),
            false => (0..leaf.at).rev().collect(),
        };
        out.extend(slots.into_iter().map(|slot| p.key(slot)));
        let on = match seek.is_forward() {
            true => p.high().map(|high| (high.to_vec(), Seek::Ge)),
            false => Some((p.low().to_vec(), Seek::Lt)).filter(|(low, _)| !low.is_empty()),
        };
        drop(leaf);
        match on {
            Some((key, seek)) if out.len() < limit => {
                leaf = tree.latch_leaf_shared(&key, seek).expect("a leaf");
            }
            _ => break,
        }
    }
    out.truncate(limit);
    out
}
