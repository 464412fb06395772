//! Memory stays bounded, and nothing is forgotten, under a reader and a writer that live for very many
//! transactions.
//!
//! What could break here: the states of the ids between (a ring of 2^20 words, then the straggler map and the
//! views' own lists) grow, or an old view changes its answers; the history list counts wrongly; what kept
//! purge back is not purged when it ends. Short here, with a ring of a few thousand words, so that all of
//! these are used; `VARVE_LONG_TRANSACTIONS=1000000` goes once and more round the ring of a real database (4
//! KiB of disk each).

#[path = "support/own_memory.rs"]
mod own_memory;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use own_memory::own_memory;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::{
    ColumnType, Database, FlushLog, HistoryOptions, Isolation, KeyMatch, LockMode, Options, Table,
    TableDef, Transaction, Value,
};

const ROWS: i64 = 2000;
const THREADS: i64 = 2;
const POOL_BYTES: u64 = 16 << 20;
/// What the process may take beside the pool.
const BESIDE_BYTES: u64 = 200 << 20;

fn row(table: &Table, id: i64, n: u64) -> varve::DatumBuf {
    table.def().row(&[Value::Int(id), Value::UInt(n)]).unwrap()
}

fn add_one(trx: &mut Transaction, table: &Table, id: i64) {
    let mut cursor = table.cursor(0).unwrap();
    let key = table.def().key(0, &[Value::Int(id)]).unwrap();
    let found = cursor.seek(trx, &key.datums(), KeyMatch::Exact, LockMode::Exclusive);
    assert!(found.unwrap());
    let Value::UInt(n) = cursor.row().unwrap().value(1).unwrap() else {
        panic!("the column is an unsigned integer")
    };
    let row = row(table, id, n + 1);
    trx.update(table, &cursor, &row.datums()).unwrap();
}

/// Rows and the sum of the second column, as the transaction sees them.
fn totals(trx: &mut Transaction, table: &Table) -> (i64, u64) {
    let mut cursor = table.cursor(0).unwrap();
    let (mut rows, mut sum) = (0, 0);
    let mut more = cursor.first(trx, LockMode::None).unwrap();
    while more {
        match cursor.row().unwrap().value(1).unwrap() {
            Value::UInt(n) => sum += n,
            other => panic!("{other:?}"),
        }
        rows += 1;
        more = cursor.next(trx).unwrap();
    }
    (rows, sum)
}

fn definition() -> TableDef {
    TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("n", ColumnType::u64())
        .primary(&["id"])
}

fn status(db: &Database, name: &str) -> u64 {
    db.status().into_iter().find(|s| s.0 == name).unwrap().1
}

#[test]
fn a_reader_and_a_writer_outlive_very_many_transactions() {
    let (transactions, ring_bits): (i64, u32) = match std::env::var("VARVE_LONG_TRANSACTIONS") {
        Ok(n) => (n.parse().unwrap(), varve::internals::txn::RING_BITS),
        Err(_) => (30_000, 12),
    };
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        // Purge waits for views here.
        history: HistoryOptions {
            store: false,
            ..HistoryOptions::default()
        },
        page_size: 4096,
        buffer_pool_bytes: POOL_BYTES,
        flush_log_at_trx_commit: FlushLog::Lazy,
        transaction_ring_bits: ring_bits,
        ..Options::default()
    };
    let db = Database::open(dir.path(), options).unwrap();
    let table = db.create_table(&definition()).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS {
        trx.insert(&table, &row(&table, id, 0).datums()).unwrap();
    }
    trx.commit().unwrap();
    assert!(db.wait_for_purge(Duration::from_secs(60)));

    let mut reader = db.begin(Isolation::RepeatableRead);
    assert_eq!(totals(&mut reader, &table), (ROWS, 0));
    let mut writer = db.begin(Isolation::RepeatableRead);
    writer.take_snapshot();
    add_one(&mut writer, &table, 0);
    let most = AtomicU64::new(0);
    std::thread::scope(|s| {
        for thread in 0..THREADS {
            let (db, table, most) = (&db, &table, &most);
            s.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(thread as u64);
                for n in 0..transactions / THREADS {
                    let mut trx = db.begin(Isolation::RepeatableRead);
                    // Row 0 is the writer's.
                    let id = rng.random_range(1..ROWS / THREADS) * THREADS + thread;
                    add_one(&mut trx, table, id);
                    trx.commit().unwrap();
                    if n % 1000 == 0 {
                        most.fetch_max(own_memory("VmRSS"), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let done = (transactions / THREADS * THREADS) as u64;
    let ids = 2 * done;
    let (stragglers, _) = db.core().sys.kept_beside_the_ring();
    assert!(ids < 2 << ring_bits || stragglers > 0, "the writer is one");
    assert_eq!(status(&db, "history_list_length"), done);
    assert_eq!(status(&db, "active_transactions"), 1);
    let mut newest = db.begin(Isolation::RepeatableRead);
    assert_eq!(totals(&mut newest, &table), (ROWS, done));
    drop(newest);
    assert_eq!(
        totals(&mut reader, &table),
        (ROWS, 0),
        "an old view changed its mind"
    );
    assert_eq!(
        totals(&mut writer, &table),
        (ROWS, 1),
        "an old view changed its mind"
    );
    let most = most.into_inner().max(own_memory("VmRSS"));
    println!("{done} transactions, at most {} MiB resident", most >> 20);
    assert!(most < POOL_BYTES + BESIDE_BYTES, "{most} bytes resident");

    drop(reader);
    writer.commit().unwrap();
    let begun = Instant::now();
    assert!(db.wait_for_purge(Duration::from_secs(60 + done / 1000)));
    println!("purged within {:?}", begun.elapsed());
    let report = db.check_table(&table).unwrap();
    assert_eq!((report.errors, report.rows), (vec![], ROWS as u64));
    let mut trx = db.begin(Isolation::RepeatableRead);
    assert_eq!(totals(&mut trx, &table), (ROWS, done + 1));
    drop(trx);
    db.close().unwrap();
}

/// Views and writers of all ages on a ring of a thousand ids: an id that is finished when it leaves the ring,
/// and one that is finished long after that. Ends with the first view that changes its mind.
fn views_keep_what_they_saw(options: Options) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        page_size: 4096,
        buffer_pool_bytes: POOL_BYTES,
        flush_log_at_trx_commit: FlushLog::Lazy,
        transaction_ring_bits: 10,
        ..options
    };
    let db = Database::open(dir.path(), options).unwrap();
    let table = db.create_table(&definition()).unwrap();
    let begin = || db.begin(Isolation::RepeatableRead);
    let mut trx = begin();
    for id in 0..10 {
        trx.insert(&table, &row(&table, id, 0).datums()).unwrap();
    }
    trx.commit().unwrap();

    let (mut early, mut late) = (begin(), begin());
    add_one(&mut early, &table, 1);
    add_one(&mut late, &table, 2);
    let mut old = begin();
    let sees = |reader: &mut Transaction, sum: u64, when: &str| match totals(reader, &table) {
        (10, found) if found == sum => Ok(()),
        found => Err(format!("{found:?} instead of {sum}, {when}")),
    };
    sees(&mut old, 0, "at first")?;
    early.commit().unwrap();
    let lap = || {
        for _ in 0..700 {
            let mut trx = begin();
            add_one(&mut trx, &table, 0);
            trx.commit().unwrap();
        }
    };
    lap();
    sees(&mut old, 0, "after a lap")?;
    let mut middle = begin();
    sees(&mut middle, 701, "of a view between")?;
    late.commit().unwrap();
    for laps in 2..5 {
        lap();
        sees(&mut old, 0, &format!("after {laps} laps"))?;
        sees(&mut middle, 701, &format!("between, after {laps} laps"))?;
    }
    sees(&mut begin(), 4 * 700 + 2, "of a new view")?;
    let (stragglers, doubts) = db.core().sys.kept_beside_the_ring();
    assert!(stragglers > 0 && doubts > 2, "{stragglers}, {doubts}");
    Ok(())
}

#[test]
fn views_keep_what_they_saw_when_ids_leave_the_ring() {
    views_keep_what_they_saw(Options::default()).unwrap();
}

/// VIEW-3 matters: without the lists an old view sees what it must not.
#[cfg(feature = "sabotage")]
#[test]
fn views_without_lists_are_noticed() {
    let seen = views_keep_what_they_saw(Options {
        sabotage: Some(varve::internals::base::Sabotage::DoubtsForgotten),
        ..Options::default()
    });
    println!("{}", seen.expect_err("nobody noticed"));
}
