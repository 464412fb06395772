//! The buffer pool after a restart: what was in it is read in again, in the background, and takes nobody's
//! place.

use std::path::Path;
use std::time::Duration;

use varve::{
    ColumnType, Database, FlushOptions, Isolation, Options, PoolDumpOptions, Table, TableDef, Value,
};

const PAGE: u32 = 4096;

fn options(pages: u64, at_startup: bool) -> Options {
    Options {
        page_size: PAGE,
        buffer_pool_bytes: pages * u64::from(PAGE),
        flush: FlushOptions {
            io_capacity_max: 100_000,
            ..FlushOptions::default()
        },
        pool_dump: PoolDumpOptions {
            at_shutdown: true,
            at_startup,
            pct: 100,
            ..PoolDumpOptions::default()
        },
        logger: Some(std::sync::Arc::new(|_, _| {})),
        ..Options::default()
    }
}

/// A table of about 700 pages.
fn fill(db: &Database) -> Table {
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("pad", ColumnType::text(1000))
        .primary(&["id"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..2000 {
        let row = [Value::Int(id), Value::Text("x".repeat(900))];
        let row = table.def().row(&row).unwrap();
        trx.insert(&table, &row.datums()).unwrap();
    }
    trx.commit().unwrap();
    table
}

fn count(db: &Database) -> usize {
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let rows = table.rows(&mut trx).unwrap().count();
    trx.commit().unwrap();
    rows
}

fn status(db: &Database, name: &str) -> u64 {
    let all = db.status();
    all.iter()
        .find(|s| s.0 == name)
        .expect("a status variable")
        .1
}

fn wait_for_load(db: &Database) -> String {
    loop {
        let status = db.buffer_pool_load_status();
        if status.ended.is_some() {
            return status.text;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn made(dir: &Path) {
    let db = Database::open(dir, options(2000, false)).unwrap();
    fill(&db);
    db.close().unwrap();
}

#[test]
fn a_restart_reads_in_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path());
    let db = Database::open(dir.path(), options(2000, true)).unwrap();
    assert_eq!(wait_for_load(&db), "Buffer pool(s) load completed");
    // That looks at the copy of the definition, which nobody had read.
    drop(db.table("a/t").unwrap());
    let read = status(&db, "pages_read");
    assert!(read > 500, "{read} pages");
    assert_eq!(count(&db), 2000);
    assert_eq!(status(&db, "pages_read"), read, "everything was there");
    db.close().unwrap();
}

/// A list that is longer than the pool fills the frames that nobody keeps free, and nothing goes for it.
#[test]
fn nothing_gives_way() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path());
    let db = Database::open(dir.path(), options(400, true)).unwrap();
    let text = wait_for_load(&db);
    assert!(text.starts_with("Buffer pool(s) load "), "{text}");
    assert!(!text.contains("failed"), "{text}");
    assert!(
        status(&db, "pages_read") > 200,
        "{}",
        status(&db, "pages_read")
    );
    assert!(status(&db, "buffer_pool_pages_free") > 0);
    assert_eq!(status(&db, "buffer_pool_evictions"), 0);
    assert_eq!(count(&db), 2000);
    db.close().unwrap();
}

/// Pages of tables that are gone, and of files that have become shorter, are passed over.
#[test]
fn a_stale_list_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path());
    let mut without = options(2000, false);
    without.pool_dump.at_shutdown = false;
    let db = Database::open(dir.path(), without.clone()).unwrap();
    db.truncate_table("a/t").unwrap();
    db.close().unwrap();
    let db = Database::open(dir.path(), options(2000, true)).unwrap();
    assert_eq!(wait_for_load(&db), "Buffer pool(s) load completed");
    assert_eq!(count(&db), 0);
    fs_damage(dir.path());
    db.load_buffer_pool().unwrap();
    let text = wait_for_load(&db);
    assert!(
        text.contains("load failed") && text.contains("varve_buffer_pool"),
        "{text}"
    );
    db.dump_buffer_pool().unwrap();
    db.load_buffer_pool().unwrap();
    assert_eq!(wait_for_load(&db), "Buffer pool(s) load completed");
    db.close().unwrap();
}

fn fs_damage(dir: &Path) {
    let path = dir.join("varve_buffer_pool");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// A load can be ended, and does not keep the database from being closed.
#[test]
fn a_load_can_be_ended() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path());
    let slow = || {
        let mut slow = options(2000, true);
        slow.flush.io_capacity = 100;
        slow.flush.io_capacity_max = 100;
        slow
    };
    let db = Database::open(dir.path(), slow()).unwrap();
    db.abort_buffer_pool_load();
    assert_eq!(wait_for_load(&db), "Buffer pool(s) load aborted");
    db.close().unwrap();
    let db = Database::open(dir.path(), slow()).unwrap();
    db.close().unwrap();
}
