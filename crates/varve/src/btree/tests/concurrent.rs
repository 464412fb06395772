//! Many threads on one tree. Each writer owns a part of the keys and keeps its own model; scanners and
//! readers check what must hold at any moment. At the end the tree must be sound and hold the sum of the
//! models.

use std::sync::atomic::AtomicUsize;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::page::max_key;

struct Load {
    page_size: usize,
    frames: usize,
    writers: u64,
    steps: usize,
    keys: u64,
    key_len: usize,
    /// Fewer would mean that the load does not test what it is for.
    least_merges: u64,
    is_dense: bool,
}

/// Key number `i`: spread over the key space; eight neighbours share a long beginning, so separators are
/// long.
fn key(load: &Load, i: u64) -> Vec<u8> {
    let spread = (i / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let mut key = spread.to_be_bytes()[5..].to_vec();
    key.resize(load.key_len, b'k');
    key.extend_from_slice(&i.to_be_bytes());
    key
}

/// Every 16th key is written once, before the threads start, and stays.
fn stays(i: u64) -> bool {
    i.is_multiple_of(16)
}

fn write(load: &Load, tree: &Tree, done: &AtomicUsize, writer: u64, seed: u64) -> Model {
    let mut rng = SmallRng::seed_from_u64(seed ^ writer << 32);
    let mut model = Model::new();
    for step in 0..load.steps {
        // All writers grow, then shrink the tree, in waves: pages split and merge all the time.
        let total = load.steps * load.writers as usize;
        let growing = (done.fetch_add(1, Relaxed) * 7 / total).is_multiple_of(2);
        let i = rng.random_range(0..load.keys) / load.writers * load.writers + writer;
        let k = key(load, i);
        if rng.random_range(0..10) < if growing { 9 } else { 1 } {
            if !stays(i) {
                let payload = vec![step as u8; rng.random_range(0..120)];
                put_in_both(tree, &mut model, k, payload);
            }
        } else if let Some((k, _)) = model.range(k..).next() {
            let k = k.clone();
            assert!(
                remove(tree, &k),
                "lost a key, step {step} of writer {writer}"
            );
            model.remove(&k);
        }
        if rng.random_range(0..4) == 0 {
            let i = rng.random_range(0..load.keys) / load.writers * load.writers + writer;
            let k = key(load, i);
            if !stays(i) {
                assert_eq!(
                    get(tree, &k).as_ref(),
                    model.get(&k),
                    "key {i}, seed {seed}"
                );
            }
        }
    }
    model
}

/// Scans in both directions: keys come in order, and none of those that stay is missing.
fn scan_on(tree: &Tree, permanent: &Model, stop: &AtomicBool) -> usize {
    let mut scans = 0;
    while !stop.load(Relaxed) {
        for seek in [Seek::Ge, Seek::Lt] {
            let mut keys = scan(tree, None, seek, usize::MAX);
            if !seek.is_forward() {
                keys.reverse();
            }
            assert!(keys.windows(2).all(|w| w[0] < w[1]), "keys out of order");
            let found = keys.iter().filter(|k| permanent.contains_key(*k)).count();
            assert_eq!(found, permanent.len(), "a {seek:?} scan missed records");
            scans += 1;
        }
    }
    scans
}

/// Ends the readers also when a writer fails, so that a failing test does not hang.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn run(load: &Load, seed: u64) -> TreeReport {
    println!("seed {seed}");
    let f = Fixture::new(load.page_size, load.frames);
    let f = if load.is_dense { f.dense() } else { f };
    let mut permanent = Model::new();
    for i in (0..load.keys).filter(|&i| stays(i)) {
        put(&f.tree, &key(load, i), b"stays");
        permanent.insert(key(load, i), b"stays".to_vec());
    }
    let stop = AtomicBool::new(false);
    let done = AtomicUsize::new(0);
    let mut model = permanent.clone();
    std::thread::scope(|s| {
        let stop_at_end = StopAtEnd(&stop);
        let scanner = s.spawn(|| scan_on(&f.tree, &permanent, &stop));
        let reader = s.spawn(|| {
            let mut rng = SmallRng::seed_from_u64(seed);
            while !stop.load(Relaxed) {
                let i = rng.random_range(0..load.keys) / 16 * 16;
                assert_eq!(get(&f.tree, &key(load, i)).as_deref(), Some(&b"stays"[..]));
                f.tree
                    .estimate_between(&key(load, i), None)
                    .expect("an estimate");
            }
        });
        let (tree, done) = (&f.tree, &done);
        let writers: Vec<_> = (0..load.writers)
            .map(|w| s.spawn(move || write(load, tree, done, w, seed)))
            .collect();
        for w in writers {
            model.extend(w.join().expect("a writer found no difference"));
        }
        drop(stop_at_end);
        assert!(scanner.join().expect("a scanner found no difference") > 0);
        reader.join().expect("a reader found no difference");
    });
    let report = f.check_is(&model);
    let c = &f.tree.counters;
    let (splits, merges) = (c.splits.load(Relaxed), c.merges.load(Relaxed));
    let (shifts, restarts) = (c.shifts.load(Relaxed), c.restarts.load(Relaxed));
    println!("{splits} splits, {merges} merges, {shifts} shifts, {restarts} restarts");
    assert!(
        shifts > 0 || !load.is_dense,
        "no leaf gave records to a neighbour"
    );
    assert!(merges >= load.least_merges, "only {merges} merges");
    assert_eq!(
        f.used_pages(),
        report.leaf_pages + report.inner_pages,
        "pages leaked"
    );
    report
}

#[test]
fn writers_readers_and_scans_on_a_high_tree_in_a_small_pool() {
    let report = run(
        &Load {
            page_size: 4096,
            frames: 160,
            writers: 6,
            steps: 6000,
            keys: 24_000,
            key_len: 700,
            least_merges: 500,
            is_dense: false,
        },
        1,
    );
    assert!(report.height >= 4, "only {} levels", report.height);
}

/// Keys of the greatest length: inner pages have three children and are split with their children, several
/// levels at once (BT-7), while others join their neighbours. A scan that comes in between misses nothing
/// (BT-4).
#[test]
fn writers_readers_and_scans_on_a_tree_that_splits_at_several_levels() {
    let report = run(
        &Load {
            page_size: 4096,
            frames: 256,
            writers: 6,
            steps: 2000,
            keys: 6000,
            key_len: max_key(4096) - 8,
            least_merges: 500,
            is_dense: false,
        },
        3,
    );
    assert!(report.height >= 5, "only {} levels", report.height);
}

/// Leaves give records to their neighbours while others read and change both.
#[test]
fn writers_readers_and_scans_on_a_dense_tree() {
    run(
        &Load {
            page_size: 4096,
            frames: 256,
            writers: 6,
            steps: 8000,
            keys: 20_000,
            key_len: 100,
            least_merges: 100,
            is_dense: true,
        },
        4,
    );
}

/// BT-3 and BT-5: threads that took latches in another order, or searched with some held, would wait for
/// each other without end.
#[test]
fn writers_readers_and_scans_on_few_hot_pages() {
    run(
        &Load {
            page_size: 4096,
            frames: 256,
            writers: 8,
            steps: 12_000,
            keys: 2000,
            key_len: 30,
            least_merges: 1,
            is_dense: false,
        },
        2,
    );
}

/// All threads append behind each other: the rightmost leaf and its parents are always the ones that split.
#[test]
fn appends_from_many_threads() {
    let f = Fixture::new(4096, 256);
    let next = std::sync::atomic::AtomicU64::new(0);
    let total = 20_000u64;
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Relaxed);
                    if i >= total {
                        break;
                    }
                    put(&f.tree, &i.to_be_bytes(), &[3; 50]);
                }
            });
        }
    });
    let model = (0..total)
        .map(|i| (i.to_be_bytes().to_vec(), vec![3; 50]))
        .collect();
    f.check_is(&model);
}
