//! Random concurrent transactions at each isolation level, and what each of them read: no anomaly that the
//! level forbids (docs/isolation.md) may be in the history.
//!
//! What could break here: the view protocol (rings, stragglers, commit numbers), versions of rows and
//! entries, gap locks, row locks, rollback. `tests/sabotage.rs` shows that breaking them is noticed.

#[path = "support/lists.rs"]
mod lists;

use lists::{Plan, Shape, run};
use varve::Isolation::{self, ReadCommitted, ReadUncommitted, RepeatableRead, Serializable};
use varve_sim::anomalies::Step;

/// `VARVE_SEED` repeats the choices of a run, though not the moments.
fn seed() -> u64 {
    let given = std::env::var("VARVE_SEED").ok();
    given.map_or_else(rand::random, |seed| seed.parse().unwrap())
}

fn check(level: Isolation) {
    let mut judged = [0, 0, 0];
    for shape in [
        Shape::Lists,
        Shape::Registers,
        Shape::Lists,
        Shape::Registers,
    ] {
        let seed = seed() % (1 << 32);
        let (history, found) = run(Plan {
            shape,
            ..Plan::new(level, seed)
        });
        assert!(
            found.is_empty(),
            "{level:?}, {shape:?}, VARVE_SEED={seed}: {found:#?}"
        );
        // The transactions met, and most went through.
        let committed = history.txns.iter().filter(|txn| txn.committed).count();
        assert!(committed * 3 > history.txns.len(), "{committed} committed");
        let reads = |step: &Step| matches!(step, Step::Read { list, .. } if !list.is_empty());
        let steps = history.txns.iter().flat_map(|txn| &txn.steps);
        let reads = steps.filter(|step| reads(step)).count();
        assert!(reads > 500);
        judged = [judged[0] + 1, judged[1] + committed, judged[2] + reads];
    }
    let [histories, committed, reads] = judged;
    println!(
        "{level:?}: judged {histories} histories of {committed} committed transactions with {reads} reads"
    );
}

#[test]
fn read_uncommitted() {
    check(ReadUncommitted);
}

#[test]
fn read_committed() {
    check(ReadCommitted);
}

#[test]
fn repeatable_read() {
    check(RepeatableRead);
}

#[test]
fn serializable() {
    check(Serializable);
}
