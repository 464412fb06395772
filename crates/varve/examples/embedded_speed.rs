//! How fast single operations are: `cargo run --release --example embedded_speed [rows] [threads]`.
//!
//! Loads rows of about 190 bytes in key order, then measures random point reads each under its own view, one-row
//! read-modify-write transactions without and with a sync at commit, and a full scan. Figures depend on the machine;
//! they are for comparing one build with another.

use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::{
    ColumnType, Database, FlushLog, Isolation, KeyMatch, LockMode, Options, TableDef, Value,
};

fn rate(what: &str, operations: u64, started: Instant) {
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{what:<40} {:>12.0} /s  {:>8.0} ns",
        operations as f64 / seconds,
        seconds * 1e9 / operations as f64
    );
}

fn row(id: i64, k: i64) -> [Value; 4] {
    [
        Value::Int(id),
        Value::Int(k),
        Value::Text("c".repeat(119)),
        Value::Text("p".repeat(59)),
    ]
}

fn parallel(threads: u64, operations: u64, work: impl Fn(&mut SmallRng) + Sync) {
    std::thread::scope(|s| {
        for t in 0..threads {
            let work = &work;
            s.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(t);
                (0..operations / threads).for_each(|_| work(&mut rng));
            });
        }
    });
}

fn main() -> varve::Result<()> {
    let mut args = std::env::args()
        .skip(1)
        .map(|a| a.parse::<u64>().expect("a number"));
    let rows = args.next().unwrap_or(200_000);
    let threads = args.next().unwrap_or(1);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let options = Options {
        buffer_pool_bytes: 1 << 30,
        redo_capacity_bytes: 1 << 30,
        flush_log_at_trx_commit: FlushLog::Lazy,
        ..Options::default()
    };
    let db = Database::open(dir.path(), options)?;
    let def = TableDef::new("bench/rows")
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .column("c", ColumnType::text(120))
        .column("pad", ColumnType::text(60))
        .primary(&["id"]);
    let table = db.create_table(&def)?;

    let started = Instant::now();
    for first in (0..rows as i64).step_by(1000) {
        let mut trx = db.begin(Isolation::RepeatableRead);
        for id in first..(first + 1000).min(rows as i64) {
            trx.insert(&table, &def.row(&row(id, id))?.datums())?;
        }
        trx.commit()?;
    }
    rate("load in order, 1,000 rows a commit", rows, started);

    let n = rows * 5;
    let started = Instant::now();
    parallel(threads, n, |rng| {
        let id = rng.random_range(0..rows as i64).to_le_bytes();
        let mut trx = db.begin(Isolation::RepeatableRead);
        let mut cursor = table.cursor(0).expect("the primary key");
        let found = cursor.seek(&mut trx, &[Some(&id)], KeyMatch::Exact, LockMode::None);
        assert!(found.expect("reads"));
        assert_eq!(cursor.row().expect("a row").get(0), Some(&id[..]));
    });
    rate("point read, own view", n, started);

    let update = |rng: &mut SmallRng| {
        let id = rng.random_range(0..rows as i64);
        let mut trx = db.begin(Isolation::RepeatableRead);
        let mut cursor = table.cursor(0).expect("the primary key");
        let key = id.to_le_bytes();
        cursor
            .seek(
                &mut trx,
                &[Some(&key)],
                KeyMatch::Exact,
                LockMode::Exclusive,
            )
            .expect("reads");
        let current = cursor.row().expect("a row");
        let k = rng.random::<i64>().to_le_bytes();
        let new = [Some(&key[..]), Some(&k[..]), current.get(2), current.get(3)];
        trx.update(&table, &cursor, &new).expect("updates");
        trx.commit().expect("commits");
    };
    let started = Instant::now();
    parallel(threads, rows, update);
    rate("read-modify-write, not synced", rows, started);

    db.set_flush_log_at_trx_commit(FlushLog::Sync);
    let n = 3000;
    let started = Instant::now();
    parallel(threads, n, update);
    rate("read-modify-write, synced", n, started);

    let started = Instant::now();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0)?;
    let (mut count, mut more) = (0, cursor.first(&mut trx, LockMode::None)?);
    while more {
        count += 1;
        more = cursor.next(&mut trx)?;
    }
    assert_eq!(count, rows);
    rate("full scan, rows", rows, started);
    drop(trx);
    println!(
        "history length at the end: {}",
        db.core().undo.history_len()
    );
    db.close()
}
