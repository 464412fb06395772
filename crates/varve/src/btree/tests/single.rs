//! One thread.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::descend::{Aim, Found};
use super::*;
use crate::mtr::replay::apply_frame;
use crate::page::{max_key, max_record};
use crate::redo::RedoReader;

/// Keys of very different lengths, many with long common beginnings.
fn random_key(rng: &mut SmallRng, longest: usize) -> Vec<u8> {
    let mut key = vec![b'a' + rng.random_range(0..3); rng.random_range(0..longest)];
    let tail: [u8; 3] = rng.random();
    key.extend_from_slice(&tail[..rng.random_range(1..=3)]);
    key
}

fn random_payload(rng: &mut SmallRng, key: &[u8]) -> Vec<u8> {
    let longest = match rng.random_range(0..20) {
        0 => max_record(4096) - key.len(),
        _ => 100,
    };
    vec![rng.random(); rng.random_range(0..=longest)]
}

fn check_seeks(tree: &Tree, model: &Model, rng: &mut SmallRng, longest: usize) {
    for _ in 0..50 {
        let key = match model.keys().nth(rng.random_range(0..model.len().max(1))) {
            Some(key) if rng.random() => key.clone(),
            _ => random_key(rng, longest),
        };
        let above = |k: &&Vec<u8>| **k > key;
        let from = model.range(key.clone()..).map(|(k, _)| k);
        let to = model.range(..=key.clone()).rev().map(|(k, _)| k);
        let take = |keys: Vec<&Vec<u8>>| keys.into_iter().take(20).cloned().collect::<Vec<_>>();
        let expected = [
            (Seek::Ge, take(from.clone().collect())),
            (Seek::Gt, take(from.filter(above).collect())),
            (Seek::Le, take(to.clone().collect())),
            (Seek::Lt, take(to.filter(|k| **k != key).collect())),
        ];
        for (seek, expected) in expected {
            assert_eq!(
                scan(tree, Some(&key), seek, 20),
                expected,
                "{seek:?} {key:02x?}"
            );
        }
    }
    let keys: Vec<Vec<u8>> = model.keys().cloned().collect();
    assert_eq!(scan(tree, None, Seek::Ge, usize::MAX), keys);
    let backward: Vec<Vec<u8>> = keys.into_iter().rev().collect();
    assert_eq!(scan(tree, None, Seek::Le, usize::MAX), backward);
}

/// BT-6: the second search for a leaf does without its fences; after a split or a merge they are looked at again.
#[test]
fn a_leaf_is_known_again_until_its_range_changes() {
    let f = Fixture::new(4096, 256);
    let key = |i: u32| i.to_be_bytes();
    (0..2000).for_each(|i| put(&f.tree, &key(2 * i), &[7; 40]));
    let middle = key(2000);
    // Where the leaf of `middle` was found before, by what the way to it says, and where it is.
    let places = || {
        let guard = &crossbeam_epoch::pin();
        let Ok(Found::Page(spot)) = f.tree.locate(Aim::At(&middle), 0, guard) else {
            panic!("no way to a leaf");
        };
        let page = f.env.pool.shared(f.tree.page_id(spot.no)).expect("a leaf");
        (spot.hint, page.hint())
    };
    let known = || {
        get(&f.tree, &middle).expect("a record");
        let (noted, now) = places();
        assert!(noted.still_holds(now), "it was just found");
        now
    };
    let at_first = known();
    assert!(remove(&f.tree, &key(2002)));
    put(&f.tree, &key(2002), &[8; 40]);
    assert!(at_first.still_holds(known()), "records only have changed");

    let splits = f.tree.counters.splits.load(Relaxed);
    put(&f.tree, &key(2001), &[9; 600]);
    assert!(f.tree.counters.splits.load(Relaxed) > splits);
    assert!(!at_first.still_holds(places().1), "the leaf was split");

    let after_split = known();
    let merges = f.tree.counters.merges.load(Relaxed);
    for i in (1800..2200).filter(|i| *i != 2000) {
        remove(&f.tree, &key(i));
    }
    assert!(f.tree.counters.merges.load(Relaxed) > merges);
    assert!(!after_split.still_holds(places().1), "the leaf was merged");
    known();
}

/// BT-6: where a leaf was is used for the search only if the leaf is still the one that covers the key.
#[test]
fn looking_ahead_does_not_mislead() {
    let f = Fixture::new(4096, 256);
    let key = |i: u32| i.to_be_bytes();
    (0..2000).for_each(|i| put(&f.tree, &key(2 * i), &[7; 40]));
    let middle = key(2000);
    get(&f.tree, &middle).expect("a record");
    let ahead = f.tree.look_ahead(&middle).expect("it was just found");
    let finds_middle = || {
        let leaf = f
            .tree
            .latch_leaf_ahead(&middle, Some(ahead))
            .expect("a leaf");
        leaf.exact && leaf.slotted().payload(leaf.at) == [7; 40]
    };
    assert!(finds_middle());
    // A split may leave the key in either half.
    let splits = f.tree.counters.splits.load(Relaxed);
    for i in 0..40 {
        put(&f.tree, &key(1961 + 2 * i), &[9; 600]);
        assert!(finds_middle(), "after {i} insertions around it");
    }
    assert!(f.tree.counters.splits.load(Relaxed) > splits + 2);
    let merges = f.tree.counters.merges.load(Relaxed);
    for i in (0..4000).filter(|i| *i != 2000) {
        remove(&f.tree, &key(i));
    }
    assert!(f.tree.counters.merges.load(Relaxed) > merges);
    assert!(finds_middle(), "after its leaf was merged");
}

#[test]
fn a_tree_behaves_like_a_sorted_map() {
    for seed in 0..4u64 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let longest = [4, 40, 400, max_key(4096) - 3][seed as usize];
        let f = Fixture::new(4096, 96);
        let mut model = Model::new();
        let mut highest = 0;
        for round in 0..6 {
            let growing = round % 3 != 2;
            for _ in 0..1500 {
                let key = match model.keys().nth(rng.random_range(0..model.len().max(1))) {
                    Some(key) if rng.random_range(0..4) == 0 => key.clone(),
                    _ => random_key(&mut rng, longest),
                };
                if rng.random_range(0..10) < if growing { 8 } else { 1 } {
                    let payload = random_payload(&mut rng, &key);
                    put(&f.tree, &key, &payload);
                    model.insert(key, payload);
                } else {
                    let near = model.range(key.clone()..).next().map(|(k, _)| k.clone());
                    let key = near.unwrap_or(key);
                    assert_eq!(remove(&f.tree, &key), model.remove(&key).is_some());
                }
            }
            highest = f.check_is(&model).height.max(highest);
            check_seeks(&f.tree, &model, &mut rng, longest);
        }
        for (key, payload) in &model {
            assert_eq!(get(&f.tree, key).as_ref(), Some(payload));
        }
        let least = [2, 2, 3, 4][seed as usize];
        assert!(highest >= least, "seed {seed}: only {highest} levels");
        remove_everything(&f, model);
    }
}

/// Removes all records in random order: the tree shrinks back to its root, every page is given back.
fn remove_everything(f: &Fixture, mut model: Model) {
    let mut rng = SmallRng::seed_from_u64(5);
    while !model.is_empty() {
        let key = model
            .keys()
            .nth(rng.random_range(0..model.len().min(50)))
            .cloned();
        let key = key.expect("in range");
        assert!(remove(&f.tree, &key));
        model.remove(&key);
    }
    let report = f.check_is(&model);
    assert_eq!((report.height, report.leaf_pages), (1, 1));
    assert_eq!(f.used_pages(), 1, "pages leaked");
}

#[test]
fn runs_leave_full_pages_behind() {
    // Ascending, descending, and ascending within eight groups at once.
    type Nth = fn(u32) -> u32;
    let orders: [(Nth, f64); 3] = [
        (|i| i, 0.95),
        (|i| u32::MAX - i, 0.95),
        (|i| (i % 8) << 24 | i, 0.80),
    ];
    for (nth, least) in orders {
        let f = Fixture::new(4096, 2048);
        for i in 0..20_000 {
            put(&f.tree, &nth(i).to_be_bytes(), &[7; 60]);
        }
        let report = f.tree.check(&mut |_, _| {}).expect("a check");
        assert_eq!(report.errors, Vec::<String>::new());
        let full = report.leaf_bytes as f64 / (report.leaf_pages * (4096 - 88)) as f64;
        assert!(full >= least, "leaves are {full:.2} full, expected {least}");
    }
}

#[test]
fn too_large_records_are_refused() {
    let f = Fixture::new(4096, 96);
    for (key, payload, fits) in [
        (10, max_record(4096) - 10, true),
        (10, max_record(4096) - 9, false),
        (max_key(4096), 5, true),
        (max_key(4096) + 1, 5, false),
    ] {
        let mut mtr = Mtr::begin(&f.env, 1024).expect("capacity");
        let room = record_cost(key, payload);
        let result = f.tree.latch_leaf_exclusive(&mut mtr, &vec![1; key], room);
        match result {
            Ok(_) => assert!(fits, "a key of {key} bytes with {payload}"),
            Err(crate::base::Error::TooLarge { .. }) => assert!(!fits),
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn shape_and_estimates() {
    let f = Fixture::new(4096, 4096);
    let n = 30_000u32;
    assert_eq!(f.tree.estimate_between(b"", None).expect("an estimate"), 0);
    for i in 0..n {
        // An odd multiplier: every number once, in a scattered order.
        let key = i.wrapping_mul(0x9e37_79b1) % (1 << 20) * 4096;
        put(&f.tree, &key.to_be_bytes(), &[7; 40]);
    }
    let report = f.tree.check(&mut |_, _| {}).expect("a check");
    let shape = f.tree.shape().expect("a shape");
    assert_eq!(shape.height, report.height);
    assert_eq!(shape.leaf_pages, report.leaf_pages);
    assert!(report.height >= 3);
    let keys = scan(&f.tree, None, Seek::Ge, usize::MAX);
    let all = keys.len();
    for (low, high) in [
        (0, all),
        (10, 11),
        (100, 140),
        (0, 5000),
        (7000, 9000),
        (1, all - 1),
    ] {
        let to = keys.get(high).map(|k| &k[..]);
        let rows = f
            .tree
            .estimate_between(&keys[low], to)
            .expect("an estimate") as f64;
        let truth = (high - low) as f64;
        let ratio = rows / truth;
        assert!(
            (0.7..1.4).contains(&ratio),
            "{low}..{high}: estimated {rows}"
        );
    }
    assert_eq!(
        f.tree
            .estimate_between(&keys[9], Some(&keys[3]))
            .expect("an estimate"),
        0
    );
}

#[test]
fn a_dropped_index_gives_all_pages_back() {
    let f = Fixture::new(4096, 256);
    for i in 0..5000u32 {
        put(
            &f.tree,
            &[&[7; 200][..], &i.to_be_bytes()].concat(),
            &[7; 40],
        );
    }
    assert!(f.tree.shape().expect("a shape").height >= 3);
    assert_eq!(f.tree.free_step().expect("a step"), FreeStep::More);
    f.tree.free_all_but_root().expect("freed");
    assert_eq!(f.used_pages(), 1);
    f.check_is(&Model::new());
    let mut mtr = Mtr::begin(&f.env, 4096).expect("capacity");
    f.tree.free_root(&mut mtr).expect("freed");
    mtr.commit();
    assert_eq!(f.used_pages(), 0);
}

#[test]
fn replaying_the_log_rebuilds_the_tree() {
    let f = Fixture::new(4096, 96);
    let mut rng = SmallRng::seed_from_u64(11);
    let mut model = Model::new();
    for _ in 0..6000 {
        let key = random_key(&mut rng, 60);
        if rng.random_range(0..3) > 0 {
            put(&f.tree, &key, &[1; 60]);
            model.insert(key, vec![1; 60]);
        } else if let Some(key) = model.range(key..).next().map(|(k, _)| k.clone()) {
            remove(&f.tree, &key);
            model.remove(&key);
        }
    }
    f.env
        .log
        .sync_to(f.env.log.next_lsn())
        .expect("the log syncs");
    // A new file and an empty pool know nothing but the log.
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = Arc::new(Spaces::new(Arc::new(RealDisk), dir.path(), 4096, UUID, 10));
    let space = new_space(&store);
    let settings = PoolSettings {
        bytes: 2048 * 4096,
        page_size: 4096,
    };
    let pool = BufferPool::new(settings, store).expect("a pool");
    let mut log = RedoReader::open(&RealDisk, f.log_dir(), &UUID, START).expect("a log");
    while let Some(frame) = log.next().expect("a frame") {
        apply_frame(&pool, frame.start, frame.end, frame.body, |_| Ok(())).expect("replay");
    }
    let env = Arc::new(MtrEnv::new(Arc::new(pool), f.env.log.clone()));
    let used = space.used_pages(&env).expect("a count");
    let tree = Tree::open(env, space, f.tree.root, f.tree.index);
    let report = check_is(&tree, &model);
    let pages = report.leaf_pages + report.inner_pages;
    assert_eq!(u64::from(used) - 2, pages, "pages leaked");
}

#[test]
fn check_finds_what_is_wrong() {
    fn damaged(damage: impl FnOnce(&Tree, &mut Mtr<'_>), expected: &str) {
        let f = Fixture::new(4096, 256);
        for i in 0..3000u32 {
            put(&f.tree, &(i * 2).to_be_bytes(), &[7; 60]);
        }
        let mut mtr = Mtr::begin(&f.env, 9000).expect("capacity");
        damage(&f.tree, &mut mtr);
        mtr.commit();
        let report = f.tree.check(&mut |_, _| {}).expect("a check");
        let told = report.errors.iter().any(|e| e.contains(expected));
        assert!(told, "expected {expected:?} in {:?}", report.errors);
    }
    /// The first and second leaf, latched.
    fn two_leaves(tree: &Tree, mtr: &mut Mtr<'_>) -> (PageH, PageH) {
        let first = tree.latch_leaf_exclusive(mtr, b"", 0).expect("a leaf").h;
        let next = SlottedRef::new(mtr.bytes(first)).next();
        let second = mtr.exclusive(tree.page_id(next)).expect("a leaf");
        (first, second)
    }
    use crate::mtr::PageH;
    let (suffix, payload) = (&1001u32.to_be_bytes()[..], &b"x"[..]);
    damaged(
        |tree, mtr| {
            let (first, _) = two_leaves(tree, mtr);
            let p = SlottedRef::new(mtr.bytes(first));
            let suffix = &suffix[p.prefix_len()..];
            let slot = 0;
            mtr.op(
                first,
                PageOp::Insert {
                    slot,
                    suffix,
                    payload,
                },
            );
        },
        "not ascending",
    );
    damaged(
        |tree, mtr| {
            let (first, second) = two_leaves(tree, mtr);
            let next = SlottedRef::new(mtr.bytes(second)).next();
            mtr.op(first, PageOp::SetNext { next });
        },
        "as its right sibling",
    );
    damaged(
        |tree, mtr| {
            let (first, _) = two_leaves(tree, mtr);
            let (high, next) = (Some(&b"\0\0\x09"[..]), NO_PAGE);
            mtr.op(first, PageOp::Widen { high, next });
        },
        "its parent says",
    );
    damaged(
        |tree, mtr| {
            let (first, _) = two_leaves(tree, mtr);
            mtr.op(first, PageOp::Free);
        },
        "at level 0",
    );
    damaged(
        |tree, mtr| {
            let (first, _) = two_leaves(tree, mtr);
            let no = mtr.page_id(first).no;
            let copy = mtr.bytes(first).to_vec();
            tree.space.free(mtr, no).expect("freed");
            let mut bytes = Vec::new();
            mtr.op(first, PageOp::image_of(&copy, &mut bytes));
        },
        "is free by the allocation pages",
    );
    damaged(
        |tree, mtr| {
            let h = mtr.exclusive(tree.page_id(tree.root)).expect("the root");
            let bytes = SlottedRef::new(mtr.bytes(h)).payload(0).to_vec();
            let (slot, off) = (1, 0);
            mtr.op(
                h,
                PageOp::PatchPayload {
                    slot,
                    off,
                    bytes: &bytes,
                },
            );
        },
        "more than once",
    );
}

/// BT-1: a hint is only where a search begins. Whatever became of its leaf meanwhile, the search ends at the right one.
#[test]
fn hints_may_be_wrong() {
    let f = Fixture::new(4096, 2048);
    let key = |n: u32| n.to_be_bytes();
    (0..200).for_each(|n| put(&f.tree, &key(n * 1000), &[7; 60]));
    let hints: Vec<_> = (0..200)
        .map(|n| f.tree.expect_leaf(&key(n * 1000)).expect("a descent"))
        .collect();
    let arrives = |n: u32, hint| {
        let mut mtr = Mtr::begin(&f.env, 1024).expect("capacity");
        let pos = f.tree.latch_expected_leaf(&mut mtr, &key(n), 0, hint);
        let pos = pos.expect("a leaf");
        assert!(pos.slotted(&mtr).covers(&key(n)), "not the leaf of {n}");
        assert_eq!(pos.found, n.is_multiple_of(1000));
    };
    // Of other keys, of leaves that were split, and of leaves that were merged away.
    (0..200).for_each(|n| arrives(n * 1000, hints[(n * 7 % 200) as usize]));
    (0..20_000).for_each(|n| put(&f.tree, &key(n * 10 + 1), &[7; 60]));
    (0..200).for_each(|n| arrives(n * 1000, hints[n as usize]));
    for n in 0..20_000 {
        remove(&f.tree, &key(n * 10 + 1));
    }
    assert!(f.tree.counters.merges.load(Relaxed) > 100);
    (0..200).for_each(|n| arrives(n * 1000, hints[n as usize]));
}

/// The leaf that took the last key of a run is expected to take the next one.
#[test]
fn only_runs_have_hints() {
    let f = Fixture::new(4096, 256);
    let hint_after = |n: u32| {
        let key = n.to_be_bytes();
        let mut mtr = Mtr::begin(&f.env, 4096).expect("capacity");
        let room = record_cost(4, 8);
        let pos = f.tree.latch_leaf_exclusive(&mut mtr, &key, room);
        let mut pos = pos.expect("a leaf");
        let hint = pos.run_hint(&mtr);
        pos.insert(&mut mtr, &key, &[7; 8]);
        mtr.commit();
        hint.is_some()
    };
    for (n, goes_on) in [
        (100, true),
        (110, true),
        (120, true),
        (115, false),
        (130, false),
        (140, true),
    ] {
        assert_eq!(hint_after(n), goes_on, "{n}");
    }
}
