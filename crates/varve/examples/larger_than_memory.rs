//! Reads a table eight times as large as the buffer pool, from a disk whose cache in memory is empty.
//!
//! `larger_than_memory DIRECTORY ROWS METHOD AIO THRESHOLD [scan|backward|statistics|points|updates]`: METHOD
//! is `fsync` or `O_DIRECT`, AIO `uring` or `threads`, THRESHOLD that of reading ahead, 0 for none. The table
//! is made if the directory has none. Emptying the operating system's cache takes root's rights; without them
//! it says so, and what it measures is memory. Prints seconds and what was read.

use std::time::Instant;

use varve::{
    ColumnType, Cursor, Database, FlushLog, FlushMethod, Isolation, LockMode, Options, Result,
    Table, TableDef, Transaction, values,
};

const ROW_BYTES: u64 = 250;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, rows, method, aio, threshold, rest @ ..] = &args[..] else {
        panic!("DIRECTORY ROWS METHOD AIO THRESHOLD [scan|backward|statistics|points|updates]");
    };
    let rows: u64 = rows.parse().expect("a number of rows");
    let options = Options {
        buffer_pool_bytes: (rows * ROW_BYTES / 8).max(5 << 20),
        flush_method: match method.as_str() {
            "fsync" => FlushMethod::Fsync,
            "O_DIRECT" => FlushMethod::Direct,
            other => panic!("{other} is no flush method"),
        },
        use_native_aio: aio == "uring",
        flush_log_at_trx_commit: FlushLog::Lazy,
        read_ahead_threshold: threshold.parse().expect("a threshold"),
        ..Options::default()
    };
    let db = Database::open(dir, options.clone())?;
    if db.table("s/t").is_err() {
        let begun = Instant::now();
        fill(&db, rows)?;
        println!("filled in {:.2} s", begun.elapsed().as_secs_f64());
    }
    db.close()?;
    let db = Database::open(dir, options)?;
    let table = db.table("s/t")?;
    if let Err(e) = std::fs::write("/proc/sys/vm/drop_caches", "3") {
        println!("the cache stays: {e}");
    }
    let counts = || {
        let names = [
            "buffer_pages_read",
            "buffer_pool_read_ahead",
            "buffer_pool_read_ahead_evicted",
        ];
        names.map(|name| metric(&db, name))
    };
    let (before, begun) = (counts(), Instant::now());
    let what = rest.first().map_or("scan", String::as_str);
    let n = match what {
        "points" => points(&db, &table, rows)?,
        "updates" => updates(&db, &table, rows)?,
        "statistics" => table.analyze().map(|()| 1)?,
        "backward" => scan(&db, &table, Cursor::last, Cursor::prev)?,
        _ => scan(&db, &table, Cursor::first, Cursor::next)?,
    };
    let seconds = begun.elapsed().as_secs_f64();
    let after = counts();
    println!(
        "{what} {method} {aio} {threshold}: {n} rows in {seconds:.2} s, {} pages read, {} of them ahead, {} of these for nothing",
        after[0] - before[0],
        after[1] - before[1],
        after[2] - before[2],
    );
    db.close()
}

fn fill(db: &Database, rows: u64) -> Result<()> {
    let def = TableDef::new("s/t")
        .column("id", ColumnType::u64())
        .column("body", ColumnType::text(400))
        .primary(&["id"]);
    let table = db.create_table(&def)?;
    let body = "x".repeat(ROW_BYTES as usize - 30);
    for from in (0..rows).step_by(1000) {
        let made: Vec<_> = (from..rows.min(from + 1000))
            .map(|id| values![id, body.as_str()].to_vec())
            .collect();
        let made: Vec<&[_]> = made.iter().map(Vec::as_slice).collect();
        let mut trx = db.begin(Isolation::RepeatableRead);
        table.insert_many(&mut trx, &made)?;
        trx.commit()?;
    }
    Ok(())
}

fn scan(
    db: &Database,
    table: &Table,
    begin: fn(&mut Cursor, &mut Transaction, LockMode) -> Result<bool>,
    go_on: fn(&mut Cursor, &mut Transaction) -> Result<bool>,
) -> Result<u64> {
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0)?;
    let mut on_row = begin(&mut cursor, &mut trx, LockMode::None)?;
    let mut n = 0;
    while on_row {
        n += 1;
        on_row = go_on(&mut cursor, &mut trx)?;
    }
    Ok(n)
}

fn points(db: &Database, table: &Table, rows: u64) -> Result<u64> {
    let n = 20_000;
    for i in 0..n {
        let mut trx = db.begin(Isolation::RepeatableRead);
        let id = i * 7_919_191 % rows;
        assert!(table.get(&mut trx, values![id])?.is_some());
    }
    Ok(n)
}

/// Until all of it is in the data file.
fn updates(db: &Database, table: &Table, rows: u64) -> Result<u64> {
    let n = 40_000;
    let body = "y".repeat(ROW_BYTES as usize - 30);
    for i in 0..n {
        let mut trx = db.begin(Isolation::RepeatableRead);
        table.put(&mut trx, values![i * 7_919_191 % rows, body.as_str()])?;
        trx.commit()?;
    }
    db.clone().close()?;
    Ok(n)
}

fn metric(db: &Database, name: &str) -> u64 {
    let metrics = db.metrics();
    let metric = metrics.iter().find(|m| m.name == name);
    metric.expect("it counts").value
}
