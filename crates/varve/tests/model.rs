//! The database against the oracle, on random workloads. What could break here: anything that readers or
//! writers of a table see, in any order of statements, over evictions, splits, merges, purge and restarts.

mod support;

use support::shrink::run;
use support::workload::Config;

/// Tiny pages and a pool that holds few of them: trees are deep, pages come and go.
#[test]
fn small_pages_and_a_small_pool() {
    let report = run(&Config::new(4000));
    assert!(
        report.written > 1500 && report.rows_read > 5000,
        "{report:?}"
    );
    assert!(report.loads > 0, "{report:?}");
    assert!(report.duplicates > 20 && report.waits > 20, "{report:?}");
    assert!(
        report.commits > 50 && report.rollbacks > 10 && report.most_rows > 600,
        "{report:?}"
    );
}

/// The default page, few keys: everything happens to the same rows, versions pile up behind old views.
#[test]
fn few_rows_and_many_versions() {
    let report = run(&Config {
        page_size: 16 << 10,
        buffer_pool_bytes: 16 << 20,
        spread: 12,
        rows: 4,
        transactions: 6,
        steps_per_phase: 1000,
        ..Config::new(4000)
    });
    assert!(
        report.written > 300 && report.waits > 100 && report.duplicates > 100,
        "{report:?}"
    );
}

/// One transaction at a time never has to wait.
#[test]
fn one_transaction_at_a_time() {
    let report = run(&Config {
        transactions: 1,
        spread: 2000,
        rows: 100,
        ..Config::new(4000)
    });
    assert!(report.waits == 0 && report.written > 1000, "{report:?}");
}

/// Temporary tables beside lasting ones, in the same transactions. One transaction at a time: a temporary
/// table belongs to the transaction that uses it. Undo of the lasting ones is in the system tablespace.
#[test]
fn temporary_tables() {
    let report = run(&Config {
        transactions: 1,
        temporary: true,
        undo_tablespaces: 0,
        ..Config::new(4000)
    });
    assert!(
        report.waits == 0 && report.written > 1000 && report.rows_read > 5000,
        "{report:?}"
    );
    assert!(report.commits > 50 && report.rollbacks > 10, "{report:?}");
}
