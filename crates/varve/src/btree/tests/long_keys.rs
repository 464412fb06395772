//! Keys of the greatest length (BT-7): an inner page has room for three children only, and its separators
//! have nothing in common. Before first separators were left out and such pages were split with their
//! children, runs of these keys made pages with one child each, and at last a tree of more levels than are
//! allowed.

use super::model::Run;
use super::*;
use crate::page::{OFF_USER, max_key};

/// Key number `i` of the greatest length: pairs of neighbours differ in the last bytes only, others in the
/// first ones.
fn key(page_size: usize, i: u32) -> Vec<u8> {
    let mut key = (i / 2).to_be_bytes().to_vec();
    key.resize(max_key(page_size) - 4, b'k');
    key.extend(i.to_be_bytes());
    key
}

/// With payloads of this length a leaf between two fences of the greatest length takes two records, and a
/// leaf with one such fence takes no third one. So in a run each leaf is cut within a pair: all separators
/// are as long as the keys, too.
fn payload_len(page_size: usize) -> u16 {
    let room = page_size - OFF_USER - 2 * max_key(page_size);
    let len = room / 2 - record_cost(max_key(page_size), 0) - 8;
    let third = max_key(page_size) + 3 * record_cost(max_key(page_size), len);
    assert!(third > page_size - OFF_USER);
    len as u16
}

/// BT-7. Returns how many levels there are.
fn check_children(run: &Run, what: &str) -> u32 {
    let report = run.f.check_is(&run.model);
    let tree = &run.f.tree;
    for no in report.pages.iter().filter(|no| **no != tree.root) {
        let page = run.f.env.pool.shared(tree.page_id(*no)).expect("a page");
        let p = SlottedRef::new(&page);
        assert!(
            p.level() == 0 || p.n_slots() >= 2,
            "{what}: page {no} at level {} has one child",
            p.level()
        );
    }
    let most = 2 + report.leaf_pages.ilog2();
    assert!(report.height <= most, "{what}: {} levels", report.height);
    report.height
}

/// 7,919 is prime and no divisor of any `n` here.
const SCATTERED: (&str, Order) = ("scattered", |i, n| {
    (u64::from(i) * 7919 % u64::from(n)) as u32
});

#[test]
fn the_longest_keys_make_low_trees_in_any_order() {
    for (page_size, n, least) in [(4096, 3000, 7), (16 << 10, 600, 5)] {
        let mut highest = 0;
        let len = payload_len(page_size);
        for (order, nth) in RUNS.into_iter().chain([SCATTERED]) {
            let what = format!("{page_size} bytes, {order}");
            let mut run = Run::new(page_size, 512);
            for i in 0..n {
                // From both ends, the first leaf is cut within pairs, too, if it is full early.
                let len = match i {
                    0..2 => u16::MAX,
                    2..4 => len + 80,
                    _ => len,
                };
                run.put(key(page_size, nth(i, n) + 1), len);
                if i % 100 == 0 {
                    check_children(&run, &what);
                }
            }
            highest = check_children(&run, &what).max(highest);
            run.check_scans();
            run.check_replay();
            run.remove_everything();
        }
        assert!(highest >= least, "{page_size} bytes: {highest} levels");
    }
}
