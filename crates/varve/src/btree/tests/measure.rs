//! Measurements; run with `--release -- --ignored --nocapture`.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use super::*;

const ROWS: u64 = 1_000_000;

fn scattered(i: u64) -> [u8; 8] {
    (i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes()
}

/// Nanoseconds that this thread has been running: on a busy machine the wall clock tells little.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ')
        .next()
        .and_then(|ns| ns.parse().ok())
        .unwrap_or(0)
}

fn time(what: &str, n: u64, mut f: impl FnMut(u64)) {
    let (t, cpu) = (Instant::now(), cpu_ns());
    for i in 0..n {
        f(i);
    }
    // The scheduler counts up to its last tick only; that is little beside a second.
    let cpu = (cpu_ns() - cpu) as f64 / n as f64;
    let wall = t.elapsed().as_nanos() as f64 / n as f64;
    println!("{what:40} {wall:7.0} ns, {cpu:7.0} ns on the processor");
}

/// Everything in memory, 16 KiB pages, redo written to the OS only.
#[test]
#[ignore = "a measurement"]
fn measure_tree() {
    let f = Fixture::with_pause(16384, 40_000, Duration::from_millis(5));
    let payload = [9u8; 100];
    time("insert, random order", ROWS, |i| {
        put(&f.tree, &scattered(i), &payload)
    });
    let report = f.tree.check(&mut |_, _| Ok(())).expect("a check");
    assert_eq!((report.records, report.error_count), (ROWS, 0));
    println!("height {}, {} leaves", report.height, report.leaf_pages);
    let mut sum = 0;
    time("point look-up", 2 * ROWS, |i| {
        let key = scattered(i.wrapping_mul(7919) % ROWS);
        let leaf = f.tree.latch_leaf_shared(&key, Seek::Ge).expect("a leaf");
        let p = leaf.slotted();
        sum += p.payload(leaf.at)[5] as u64;
    });
    black_box(sum);
    time("patch 4 bytes", ROWS, |i| {
        let key = scattered(i.wrapping_mul(7919) % ROWS);
        let mut mtr = Mtr::begin(&f.env, 256).expect("capacity");
        let pos = f
            .tree
            .latch_leaf_exclusive(&mut mtr, &key, 0)
            .expect("a leaf");
        pos.patch(&mut mtr, 3, &[1, 2, 3, 4]);
        mtr.commit();
    });
    let t = Instant::now();
    let mut records = 0u64;
    let mut at = (Vec::new(), Seek::Ge);
    loop {
        let leaf = f.tree.latch_leaf_shared(&at.0, at.1).expect("a leaf");
        let p = leaf.slotted();
        for slot in leaf.at..p.n_slots() {
            records += u64::from(p.payload(slot)[9] == 9);
        }
        match p.high() {
            Some(high) => at.0 = high.to_vec(),
            None => break,
        }
    }
    let ns = t.elapsed().as_nanos() as f64 / records as f64;
    println!("{:44} {ns:8.1} ns", "scan, per record");
    time("remove, random order", ROWS, |i| {
        assert!(remove(&f.tree, &scattered(i)))
    });

    let f = Fixture::with_pause(16384, 40_000, Duration::from_millis(5));
    time("insert, ascending", ROWS, |i| {
        put(&f.tree, &i.to_be_bytes(), &payload)
    });

    let mut map = BTreeMap::new();
    time("std BTreeMap: insert, random order", ROWS, |i| {
        map.insert(scattered(i), Box::new(payload));
    });
    time("std BTreeMap: point look-up", 2 * ROWS, |i| {
        sum += map[&scattered(i.wrapping_mul(7919) % ROWS)][5] as u64;
    });
    black_box(sum);
}
