//! How full leaves are, by the order in which records come. No answer depends on it, so nothing else would
//! tell if runs of insertions left half-empty pages behind. `cargo xtask bench sizes` has such orders beside
//! InnoDB.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::*;
use crate::base::{RowHead, TrxId};

const ROWS: u32 = 30_000;
/// What a row gets that it did not have at first.
const GROWTH: [u8; 8] = [7; 8];

/// What happens to the record with the number in a group; keys are in the order of both.
#[derive(Clone, Copy)]
enum Step {
    Insert(u32, u32),
    Grow(u32, u32),
    Remove(u32, u32),
}

use Step::*;

/// Rows of so many groups that are inserted in turn, so many at once.
fn in_turn(groups: u32, batch: u32) -> Vec<Step> {
    let each = ROWS / groups;
    (0..each.div_ceil(batch))
        .flat_map(|n| {
            let some = n * batch..((n + 1) * batch).min(each);
            (0..groups).flat_map(move |group| some.clone().map(move |i| Insert(group, i)))
        })
        .collect()
}

/// What two clients do at the same time, some steps of one and some of the other.
fn two_clients(rng: &mut SmallRng, a: Vec<Step>, b: Vec<Step>, most_at_once: usize) -> Vec<Step> {
    let (mut a, mut b) = (a.into_iter(), b.into_iter());
    let mut all = Vec::new();
    while a.len() + b.len() > 0 {
        let n = rng.random_range(0..=most_at_once);
        all.extend(a.by_ref().take(n));
        let n = rng.random_range(0..=most_at_once);
        all.extend(b.by_ref().take(n));
    }
    all
}

/// Groups of one client and the other, in turn.
fn in_turn_by_two(rng: &mut SmallRng, groups: u32, batch: u32) -> Vec<Step> {
    let is_first = |step: &Step| matches!(step, Insert(group, _) if group % 2 == 0);
    let (a, b) = in_turn(groups, batch).into_iter().partition(is_first);
    two_clients(rng, a, b, 2 * batch as usize)
}

/// Each client fills one group after the other, as warehouses' stock is loaded.
fn group_after_group(rng: &mut SmallRng, groups: u32) -> Vec<Step> {
    let each = ROWS / groups;
    let of = |first: u32| -> Vec<Step> {
        let groups = (first..groups).step_by(2);
        groups
            .flat_map(|group| (0..each).map(move |i| Insert(group, i)))
            .collect()
    };
    let (a, b) = (of(0), of(1));
    two_clients(rng, a, b, 100)
}

/// One ascending run of several clients, each of whom draws the numbers of a statement's rows when it begins.
fn one_counter(rng: &mut SmallRng, clients: usize, batch: u32) -> Vec<Step> {
    let (mut next, mut steps) = (0, Vec::new());
    let mut at_work = vec![0..0; clients];
    while next < ROWS {
        let client = rng.random_range(0..clients);
        if at_work[client].is_empty() {
            at_work[client] = next..next + batch;
            next += batch;
        }
        let most = rng.random_range(1..=batch as usize);
        steps.extend(at_work[client].by_ref().take(most).map(|i| Insert(0, i)));
    }
    steps
}

/// Orders' lines: 5 to 15 at the end of a district drawn at random, of so many; rows grow some orders later,
/// those of each district in turn.
fn order_lines(rng: &mut SmallRng, districts: u32, lag: Option<usize>) -> Vec<Step> {
    let mut ends = vec![0; districts as usize];
    let mut orders = vec![Vec::new(); districts as usize];
    let (mut delivered, mut steps) = (vec![0; districts as usize], Vec::new());
    let mut rows = 0;
    while rows < ROWS {
        let d = rng.random_range(0..districts) as usize;
        let n = rng.random_range(5..=15);
        let lines = ends[d]..ends[d] + n;
        steps.extend(lines.clone().map(|i| Insert(d as u32, i)));
        orders[d].push(lines);
        ends[d] += n;
        rows += n;
        let d = rng.random_range(0..districts) as usize;
        if let Some(lag) = lag
            && delivered[d] + lag < orders[d].len()
        {
            let lines = orders[d][delivered[d]].clone();
            steps.extend(lines.map(|i| Grow(d as u32, i)));
            delivered[d] += 1;
        }
    }
    steps
}

fn at_random(rng: &mut SmallRng) -> Vec<Step> {
    let mut steps: Vec<Step> = (0..ROWS).map(|i| Insert(0, i)).collect();
    steps.shuffle(rng);
    steps
}

/// Each row comes at most so many before or after its turn.
fn nearly_in_order(rng: &mut SmallRng, most: u32) -> Vec<Step> {
    let mut turns: Vec<(u32, u32)> = (0..ROWS)
        .map(|i| (i + rng.random_range(0..most), i))
        .collect();
    turns.sort_unstable();
    turns.into_iter().map(|(_, i)| Insert(0, i)).collect()
}

/// Runs in front of rows of the same group, which are there already.
fn before_others() -> Vec<Step> {
    let others = (0..100).flat_map(|group| (0..20).map(move |i| Insert(group, ROWS + i)));
    let runs = (0..100).step_by(5);
    let runs = runs.flat_map(|group| (0..1000).map(move |i| Insert(group, i)));
    others.chain(runs).collect()
}

/// What makes all rows grow, in the order in which they were inserted.
fn growth(steps: &[Step]) -> Vec<Step> {
    let grow = |step: &Step| match *step {
        Insert(group, i) => Grow(group, i),
        step => step,
    };
    steps.iter().map(grow).collect()
}

fn grow_all(mut steps: Vec<Step>) -> Vec<Step> {
    steps.extend(growth(&steps));
    steps
}

/// The same, so many insertions later.
fn grow_lagging(steps: Vec<Step>, lag: usize) -> Vec<Step> {
    let mut all = Vec::new();
    for (n, step) in steps.iter().enumerate() {
        all.push(*step);
        if let Some(Insert(group, i)) = n.checked_sub(lag).map(|n| steps[n]) {
            all.push(Grow(group, i));
        }
    }
    all
}

/// Rows go at one end when others come at the other.
fn queue() -> Vec<Step> {
    let remove = |i: u32| i.checked_sub(ROWS / 4).map(|i| Remove(0, i));
    (0..ROWS)
        .flat_map(|i| [Some(Insert(0, i)), remove(i)])
        .flatten()
        .collect()
}

fn key(group: u32, i: u32) -> [u8; 8] {
    let key = u64::from(group) << 32 | u64::from(i);
    key.to_be_bytes()
}

/// The step is the work of this transaction.
fn take(tree: &Tree, step: Step, trx: TrxId, rng: &mut SmallRng) {
    match step {
        Insert(group, i) => {
            let mut row = [1; 72];
            row[1..8].copy_from_slice(&trx.0.to_le_bytes()[..7]);
            put(tree, &key(group, i), &row[..rng.random_range(48..72)]);
        }
        Remove(group, i) => assert!(remove(tree, &key(group, i))),
        Grow(group, i) => {
            let mut mtr = Mtr::begin(&tree.env, 4096).expect("capacity");
            let pos = tree
                .latch_leaf_exclusive(&mut mtr, &key(group, i), GROWTH.len())
                .expect("a leaf");
            let (slot, at) = (pos.slot, pos.payload(&mtr).len() - RowHead::LEN);
            let head = RowHead {
                trx,
                ..RowHead::default()
            };
            let (at, cut, bytes) = (at as u16, 0, &GROWTH[..]);
            mtr.op(
                pos.h,
                PageOp::UpdateRow {
                    slot,
                    head,
                    at,
                    cut,
                    bytes,
                },
            );
            mtr.commit();
        }
    }
}

/// Names of orders, the share of their leaves' bytes that records have to take, and what happens.
fn cases(rng: &mut SmallRng) -> Vec<(String, f64, Vec<Step>)> {
    let mut cases = Vec::new();
    let mut case = |name: &str, least: f64, steps| cases.push((name.to_string(), least, steps));
    let downward = |mut steps: Vec<Step>| {
        steps.reverse();
        steps
    };
    case("one run", 0.87, in_turn(1, 1));
    case("one run downward", 0.87, downward(in_turn(1, 1)));
    case("at random", 0.62, at_random(rng));
    // A hundred runs of six pages each: the first and the last of each are not full.
    for (runs, least) in [(2, 0.88), (4, 0.88), (16, 0.87), (100, 0.73)] {
        for batch in [1, 10, 100] {
            let name = format!("{runs} runs, {batch} rows in turn");
            case(&name, least, in_turn(runs, batch));
            let name = format!("{name}, two clients");
            case(&name, least, in_turn_by_two(rng, runs, batch));
        }
    }
    case("4 runs downward", 0.89, downward(in_turn(4, 10)));
    case(
        "group after group, two clients",
        0.88,
        group_after_group(rng, 4),
    );
    let counters = [
        (2, 1, 0.87),
        (16, 1, 0.87),
        (2, 5, 0.8),
        (2, 20, 0.65),
        (16, 20, 0.53),
        (16, 500, 0.79),
    ];
    for (clients, batch, least) in counters {
        let name = format!("a counter, {clients} clients, {batch} rows");
        case(&name, least, one_counter(rng, clients, batch));
    }
    case("nearly in order", 0.75, nearly_in_order(rng, 16));
    case("runs before others", 0.85, before_others());
    case(
        "order lines, 10 districts",
        0.88,
        order_lines(rng, 10, None),
    );
    case(
        "order lines, 40 districts",
        0.84,
        order_lines(rng, 40, None),
    );
    let grow = order_lines(rng, 10, Some(30));
    case("order lines, 10 districts, that grow", 0.88, grow);
    let grow = order_lines(rng, 40, Some(30));
    case("order lines, 40 districts, that grow", 0.84, grow);
    case("one run, then all grow", 0.82, grow_all(in_turn(1, 1)));
    let run = in_turn(1, 1);
    let mut grown = growth(&run);
    let down = [run.clone(), downward(grown.clone())].concat();
    case("one run, then all grow downward", 0.81, down);
    grown.shuffle(rng);
    let shuffled = [run.clone(), grown.clone()].concat();
    case("one run, then all grow at random", 0.72, shuffled);
    let second = |step: &Step| matches!(step, Grow(_, i) if i % 2 == 0);
    let half: Vec<Step> = growth(&run).into_iter().filter(second).collect();
    let half = [run.clone(), half.clone(), half.clone(), half].concat();
    case("one run, then each second grows thrice", 0.82, half);
    let thrice = [run, grown.clone(), grown.clone(), grown].concat();
    case("one run, then all grow at random thrice", 0.81, thrice);
    case(
        "one run that grows behind its end",
        0.82,
        grow_lagging(in_turn(1, 1), 500),
    );
    case("at random, then all grow", 0.7, grow_all(at_random(rng)));
    case("a queue", 0.85, queue());
    cases
}

#[test]
fn leaves_are_full() {
    let rng = &mut SmallRng::seed_from_u64(5);
    for (name, least, steps) in cases(rng) {
        let f = Fixture::with_pause(4096, 8192, Duration::from_millis(5));
        for (trx, step) in (1..).zip(steps) {
            take(&f.tree, step, TrxId(trx), rng);
        }
        let report = f.tree.check(&mut |_, _| Ok(())).expect("a check");
        assert_eq!(report.errors, Vec::<String>::new());
        let share = report.leaf_bytes as f64 / (report.leaf_pages * 4096) as f64;
        println!("{name:50} {:6} leaves, {share:.3}", report.leaf_pages);
        assert!(share > least, "{name}: {share}");
    }
}
