//! One thread.

use super::descend::{Aim, Located, child_at};
use super::*;
use crate::btree::ChosenLeaf;
use crate::page::{max_key, max_record};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// BT-6: the second search for a leaf does without its fences; after a split or a merge they are looked at
/// again.
#[test]
fn a_leaf_is_known_again_until_its_range_changes() {
    let f = Fixture::new(4096, 256);
    let key = |i: u32| i.to_be_bytes();
    (0..2000).for_each(|i| put(&f.tree, &key(2 * i), &[7; 40]));
    let middle = key(2000);
    // Where the leaf of `middle` was found before, by what the way to it says, and where it is.
    let places = || {
        let guard = &crossbeam_epoch::pin();
        let Ok(Located::Page(spot)) = f.tree.locate(Aim::At(&middle), 0, guard) else {
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

/// Separators so long that an inner page with one child does not fit into a neighbour with two: an empty leaf
/// waits there until the neighbour has one child, too, and is merged then.
#[test]
fn no_empty_leaf_is_left_whatever_the_order() {
    let n = 120;
    // Eight keys with one beginning, then another one.
    let key = |i: u32| [&vec![(i / 8) as u8; 900][..], &(i as u16).to_be_bytes()].concat();
    for (name, order) in RUNS {
        let f = Fixture::new(4096, 256);
        (0..n).for_each(|i| put(&f.tree, &key(i), &[7; 40]));
        assert!((0..n).all(|i| remove(&f.tree, &key(order(i, n)))), "{name}");
        let report = f.check_is(&Model::new());
        assert_eq!((report.height, f.used_pages()), (1, 1), "{name}");
    }
}

/// Its range is that of children that are lost: nothing can be put behind them.
#[test]
fn an_inner_page_without_children_is_damage_to_a_merge() {
    let f = Fixture::new(4096, 256);
    let key = |i: u16| [&[7; 900][..], &i.to_be_bytes()].concat();
    let is_high_enough = |i: &u16| {
        put(&f.tree, &key(*i), &[7; 40]);
        f.tree.check(&mut |_, _| Ok(())).expect("a check").height == 3
    };
    let last = (0..).find(is_high_enough).expect("two pages of level 1");
    let mut mtr = Mtr::begin(&f.env, 1024).expect("capacity");
    let root = mtr.exclusive(f.tree.page_id(f.tree.root)).expect("a root");
    let first = child_at(SlottedRef::new(mtr.bytes(root)), 0).expect("a child");
    let first = mtr.exclusive(f.tree.page_id(first)).expect("a page");
    for slot in (0..SlottedRef::new(mtr.bytes(first)).n_slots() as u16).rev() {
        mtr.op(first, PageOp::Remove { slot });
    }
    mtr.commit();
    // The other one gets down to one child, which wants to join the children of the first.
    let told = (0..=last).rev().find_map(|i| {
        let mut mtr = Mtr::begin(&f.env, 256).expect("capacity");
        let pos = f.tree.latch_leaf_exclusive(&mut mtr, &key(i), 0);
        pos.expect("a leaf").remove(&mut mtr);
        mtr.commit();
        f.tree.maybe_merge(&key(i)).err()
    });
    let told = told.expect("damage").to_string();
    assert!(told.contains("an inner page with children"), "{told}");
}

/// A page that leads back to one above it does not lead a sample in circles.
#[test]
fn samples_of_a_damaged_tree_end() {
    let f = Fixture::new(4096, 256);
    for i in 0..500u16 {
        put(
            &f.tree,
            &[&[7; 900][..], &i.to_be_bytes()].concat(),
            &[7; 40],
        );
    }
    let (root, mut mtr) = (f.tree.root, Mtr::begin(&f.env, 1024).expect("capacity"));
    let h = mtr.exclusive(f.tree.page_id(root)).expect("a root");
    assert!(SlottedRef::new(mtr.bytes(h)).level() >= 2);
    mtr.op(
        h,
        PageOp::PatchPayload {
            slot: 0,
            off: 0,
            bytes: &root.0.to_le_bytes(),
        },
    );
    mtr.commit();
    let lows = f.tree.leaves_at(&[0.0, 0.9]).expect("what there is");
    assert!(lows[0].low.is_empty() && !lows[1].low.is_empty());
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
        let result = f
            .tree
            .latch_leaf_to_insert(&mut mtr, &vec![1; key], room, None, None);
        match result {
            Ok(_) => assert!(fits, "a key of {key} bytes with {payload}"),
            Err(crate::base::Error::TooLarge { .. }) => assert!(!fits),
            Err(e) => panic!("{e}"),
        }
    }
}

/// Once it was refused as too long, for want of room for two.
#[test]
fn a_long_record_is_found_by_who_would_insert_it() {
    let f = Fixture::new(4096, 96);
    let key = |n: u8| [vec![1; 300], vec![n]].concat();
    let payload = vec![7; max_record(4096) - 301];
    (1..20).for_each(|n| put(&f.tree, &key(n), &payload));
    for n in 1..20 {
        let mut mtr = Mtr::begin(&f.env, 1024).expect("capacity");
        let room = record_cost(301, payload.len());
        let found = f
            .tree
            .latch_leaf_to_insert(&mut mtr, &key(n), room, None, None);
        assert!(found.expect("a leaf").found, "{n}");
    }
}

#[test]
fn estimates_and_samples() {
    let f = Fixture::new(4096, 4096);
    let n = 30_000u32;
    assert_eq!(f.tree.estimate_between(b"", None).expect("an estimate"), 0);
    for i in 0..n {
        // An odd multiplier: every number once, in a scattered order.
        let key = i.wrapping_mul(0x9e37_79b1) % (1 << 20) * 4096;
        put(&f.tree, &key.to_be_bytes(), &[7; 40]);
    }
    let report = f.tree.check(&mut |_, _| Ok(())).expect("a check");
    assert!(report.height >= 3);
    let keys = scan(&f.tree, None, Seek::Ge, usize::MAX);
    let all = keys.len();
    let shares = [0.0, 0.1, 0.3, 0.5, 0.8, 1.0];
    let lows = f.tree.leaves_at(&shares).expect("samples");
    assert_eq!((lows.len(), &*lows[0].low), (shares.len(), &b""[..]));
    for (share, ChosenLeaf { low, of_leaves }) in shares.iter().zip(&lows) {
        let ratio = of_leaves / report.leaf_pages as f64;
        assert!((0.3..3.0).contains(&ratio), "{of_leaves} leaves");
        let before = keys.partition_point(|key| key < low) as f64 / all as f64;
        assert!((before - share).abs() < 0.1, "{before} are below {share}");
    }
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

/// Rows that came in the order of their keys leave the last page of each level as empty as it happens to be:
/// what lies between is not judged by it.
#[test]
fn estimates_go_by_pages_in_the_middle() {
    let f = Fixture::new(4096, 4096);
    let mut wrong = Vec::new();
    for i in 0..20_000u32 {
        put(&f.tree, &i.to_be_bytes(), &[7; 40]);
        if i % 97 == 0 && i > 1000 {
            let rows = f.tree.estimate_between(b"", None).expect("an estimate") as f64;
            let ratio = rows / f64::from(i + 1);
            if !(0.9..1.1).contains(&ratio) {
                wrong.push((i, ratio));
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong: {wrong:?}", wrong.len());
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
        let report = f.tree.check(&mut |_, _| Ok(())).expect("a check");
        let told = report.errors.iter().any(|e| e.contains(expected));
        assert!(told, "expected {expected:?} in {:?}", report.errors);
    }
    /// The first and second leaf, latched.
    fn two_leaves(tree: &Tree, mtr: &mut Mtr<'_>) -> (PageHandle, PageHandle) {
        let first = tree.latch_leaf_exclusive(mtr, b"", 0).expect("a leaf").h;
        let next = SlottedRef::new(mtr.bytes(first)).next();
        let second = mtr.exclusive(tree.page_id(next)).expect("a leaf");
        (first, second)
    }
    use crate::mtr::PageHandle;
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

/// BT-1: a hint is only where a search begins. Whatever became of its leaf meanwhile, the search ends at the
/// right one.
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
        let pos = f
            .tree
            .latch_leaf_to_insert(&mut mtr, &key(n), 0, hint, None);
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

/// Insertions in random order leave the leaves of a dense tree fuller, also if records are of all lengths.
#[test]
fn dense_trees_take_fewer_pages() {
    let leaves = |f: Fixture| {
        let mut model = Model::new();
        let mut rng = SmallRng::seed_from_u64(1);
        for i in 0..20_000u64 {
            let key = rng.random::<u64>().to_be_bytes();
            let payload = vec![i as u8; 40 + (i % 7 * 30) as usize];
            put_in_both(&f.tree, &mut model, key.to_vec(), payload);
        }
        let report = f.check_is(&model);
        assert_eq!(f.used_pages(), report.leaf_pages + report.inner_pages);
        report.leaf_pages
    };
    let plain = leaves(Fixture::new(4096, 1024));
    let dense = leaves(Fixture::new(4096, 1024).dense());
    println!("{plain} leaves, dense {dense}");
    assert!(dense * 8 < plain * 7);
}
