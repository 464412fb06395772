//! Memory stays bounded, and nothing is forgotten, under a reader and a writer that live for very many transactions.
//!
//! What could break here: the states of the ids between (a ring of 2^20 words, then the straggler map and the views' own
//! lists) grow, or an old view changes its answers; the history list counts wrongly; what kept purge back is not purged
//! when it ends. Short here; `VARVE_LONG_TRANSACTIONS=1000000` goes once and more round the ring (4 KiB of disk each).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::{
    ColumnType, Database, FlushLog, Isolation, KeyMatch, LockMode, Options, Table, TableDef,
    Transaction, Value,
};

const ROWS: i64 = 2000;
const THREADS: i64 = 2;
const POOL_BYTES: u64 = 16 << 20;
/// What the process may take beside the pool.
const BESIDE_BYTES: u64 = 200 << 20;

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:"))
        .unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib * 1024
}

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

fn status(db: &Database, name: &str) -> u64 {
    db.status().into_iter().find(|s| s.0 == name).unwrap().1
}

#[test]
fn a_reader_and_a_writer_outlive_very_many_transactions() {
    let transactions: i64 = match std::env::var("VARVE_LONG_TRANSACTIONS") {
        Ok(n) => n.parse().unwrap(),
        Err(_) => 30_000,
    };
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        page_size: 4096,
        buffer_pool_bytes: POOL_BYTES,
        flush_log_at_trx_commit: FlushLog::Lazy,
        ..Options::default()
    };
    let db = Database::open(dir.path(), options).unwrap();
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("n", ColumnType::u64())
        .primary(&["id"]);
    let table = db.create_table(&def).unwrap();
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
                        most.fetch_max(resident_bytes(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let done = (transactions / THREADS * THREADS) as u64;
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
    let most = most.into_inner().max(resident_bytes());
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
