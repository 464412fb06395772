//! Whole trees: loaded in order, and given back.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::base::Error;
use crate::btree::Loader;
use crate::page::{max_key, max_record};

/// Keys that share long and short beginnings, some of them long.
fn records(rng: &mut StdRng, n: usize, page_size: usize) -> Model {
    let mut records = Model::new();
    while records.len() < n {
        let mut key = format!("{:03}", rng.random_range(0..20)).into_bytes();
        key.resize(key.len() + rng.random_range(0..40), b'=');
        key.extend_from_slice(&rng.random::<u32>().to_be_bytes());
        if rng.random_ratio(1, 50) {
            key.resize(max_key(page_size), rng.random());
        }
        let most = max_record(page_size) - key.len();
        let payload = match rng.random_ratio(1, 50) {
            true => most,
            false => rng.random_range(0..most.min(60) + 1),
        };
        records.insert(key, vec![7; payload]);
    }
    records
}

fn load(tree: &Tree, records: &Model) {
    load_to(tree, records, 100);
}

fn load_to(tree: &Tree, records: &Model, fill_factor_pct: u32) {
    let mut loader = Loader::new(tree, fill_factor_pct).unwrap();
    for (key, payload) in records {
        loader.push(key, payload).unwrap();
    }
    loader.finish().unwrap();
}

/// Keys of every shape, few and many; the tree takes what comes later.
#[test]
fn a_tree_is_loaded_in_order() {
    for (seed, n, page_size) in [
        (1, 0, 4096),
        (2, 1, 4096),
        (3, 60, 4096),
        (4, 4000, 4096),
        (5, 20_000, 16384),
        (6, 3000, 65536),
    ] {
        let f = Fixture::new(page_size, 600);
        let rng = &mut StdRng::seed_from_u64(seed);
        let mut all = records(rng, n, page_size);
        load(&f.tree, &all);
        f.check_is(&all);
        for (key, payload) in records(rng, 200, page_size) {
            if !all.contains_key(&key) {
                put_in_both(&f.tree, &mut all, key, payload);
            }
        }
        f.check_is(&all);
    }
}

/// Records of one length in ascending order: each leaf is full, and no page is left over.
#[test]
fn loaded_leaves_are_full() {
    let f = Fixture::new(4096, 600);
    let records = (0..20_000u64).map(|n| (n.to_be_bytes().to_vec(), vec![1; 20]));
    load(&f.tree, &records.collect::<Model>());
    let report = f.tree.check(&mut |_, _| Ok(())).unwrap();
    let share = report.leaf_bytes as f64 / (report.leaf_pages as f64 * 4096.0);
    assert!(share > 0.93, "{share}");
}

/// Leaves have the room that they are to have, and the records of any shape are all there.
#[test]
fn loaded_leaves_are_as_full_as_they_are_to_be() {
    for pct in [10, 50, 94] {
        let f = Fixture::new(4096, 3000);
        let records = (0..5000u64).map(|n| (n.to_be_bytes().to_vec(), vec![1; 20]));
        load_to(&f.tree, &records.collect::<Model>(), pct);
        let report = f.tree.check(&mut |_, _| Ok(())).unwrap();
        let share = report.leaf_bytes as f64 / (report.leaf_pages as f64 * 4096.0);
        let wanted = f64::from(pct) / 100.0;
        assert!(
            (wanted - 0.07..wanted + 0.03).contains(&share),
            "{pct}: {share}"
        );
    }
    for (seed, pct) in [(1, 1), (2, 10), (3, 45), (4, 80)] {
        let f = Fixture::new(4096, 8000);
        let all = records(&mut StdRng::seed_from_u64(seed), 3000, 4096);
        load_to(&f.tree, &all, pct);
        f.check_is(&all);
    }
}

/// Records that are enough for a helper, however they look.
#[test]
fn a_helper_fills_the_same_tree() {
    for (seed, n) in [(1, 300), (2, 20_000)] {
        let f = Fixture::new(4096, 3000);
        let all = records(&mut StdRng::seed_from_u64(seed), n, 4096);
        let mut loader = Loader::new(f.tree.clone(), 100).unwrap().with_helper();
        for (key, payload) in &all {
            loader.push(key, payload).unwrap();
        }
        loader.finish().unwrap();
        f.check_is(&all);
    }
}

/// HELP-1.
#[test]
fn a_load_that_is_given_up_changes_nothing_more() {
    let f = Fixture::new(4096, 600);
    let all = records(&mut StdRng::seed_from_u64(1), 5000, 4096);
    let shares = Arc::strong_count(&f.tree);
    let mut loader = Loader::new(f.tree.clone(), 100).unwrap().with_helper();
    for (key, payload) in &all {
        loader.push(key, payload).unwrap();
    }
    drop(loader);
    assert_eq!(Arc::strong_count(&f.tree), shares);
    let mut found = 0;
    f.tree
        .drain(|_, _| {
            found += 1;
            Ok(())
        })
        .unwrap();
    assert!((1..5000).contains(&found), "{found}");
    f.check_is(&Model::new());
}

/// The helper finds that somebody else has changed the tree.
#[test]
fn what_a_helper_finds_is_told() {
    let f = Fixture::new(4096, 600);
    let key = |n: u32| n.to_be_bytes();
    let mut loader = Loader::new(f.tree.clone(), 100).unwrap().with_helper();
    for n in 0..3000 {
        loader.push(&key(n), &[1; 20]).unwrap();
    }
    put(&f.tree, &key(u32::MAX), &[1; 20]);
    let pushed = (3000..20_000).try_for_each(|n| loader.push(&key(n), &[1; 20]));
    let found = match pushed {
        Ok(()) => loader.finish(),
        failed => failed,
    };
    assert!(matches!(found, Err(Error::Corrupt { .. })), "{found:?}");
}

/// Damage is told, and nothing is given back, or filled, on its strength.
#[test]
fn a_page_that_a_tree_names_twice_is_damage() {
    let f = Fixture::new(4096, 600);
    load(&f.tree, &records(&mut StdRng::seed_from_u64(7), 100, 4096));
    assert!(matches!(
        Loader::new(&*f.tree, 100),
        Err(Error::Corrupt { .. })
    ));
    let used = f.used_pages();
    let mut mtr = Mtr::begin(&f.env, 4096).unwrap();
    let root = mtr.exclusive(f.tree.page_id(f.tree.root)).unwrap();
    let bytes = SlottedRef::new(mtr.bytes(root)).payload(0).to_vec();
    let (slot, off, bytes) = (1, 0, &bytes[..]);
    mtr.op(root, PageOp::PatchPayload { slot, off, bytes });
    mtr.commit();
    let refused = f.tree.give_back_some(|_| Ok(|_: &mut Mtr<'_>| {}));
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    assert_eq!(f.used_pages(), used);
}

/// After each step the rest can be found; at the end all pages are free.
#[test]
fn a_tree_is_given_back_step_by_step() {
    for n in [0, 1, 100, 30_000] {
        let f = Fixture::new(4096, 600);
        let rng = &mut StdRng::seed_from_u64(n);
        load(&f.tree, &records(rng, n as usize, 4096));
        let left = || f.tree.pages_below_root().unwrap().len() as u64 + 1;
        let (mut before, mut steps, mut is_noted) = (left(), 0, false);
        assert_eq!(f.used_pages(), before, "{n}");
        loop {
            let noted = &mut is_noted;
            let note = |_: &mut Mtr<'_>| Ok(move |_: &mut Mtr<'_>| *noted = true);
            if f.tree.give_back_some(note).unwrap() {
                break;
            }
            let now = left();
            assert!(now < before, "{n}: {before} pages, then {now}");
            assert_eq!(f.used_pages(), now, "{n}");
            (before, steps) = (now, steps + 1);
        }
        assert!(is_noted);
        assert_eq!(f.used_pages(), 0, "{n}");
        assert_eq!(steps > 0, n == 30_000, "{steps} steps");
    }
}

/// All records come out in order, and one empty page is left.
#[test]
fn a_tree_is_drained() {
    for (seed, n, page_size) in [
        (1, 0, 4096),
        (2, 1, 4096),
        (3, 100, 4096),
        (4, 20_000, 4096),
        (5, 3000, 65536),
    ] {
        let f = Fixture::new(page_size, 600);
        let all = records(&mut StdRng::seed_from_u64(seed), n, page_size);
        load(&f.tree, &all);
        let mut found = Vec::new();
        f.tree
            .drain(|key, payload| {
                found.push((key.to_vec(), payload.to_vec()));
                Ok(())
            })
            .unwrap();
        assert!(found == Vec::from_iter(all.clone()), "{n}");
        f.check_is(&Model::new());
        assert_eq!(f.used_pages(), 1, "{n}");
        load(&f.tree, &all);
        f.check_is(&all);
    }
}
