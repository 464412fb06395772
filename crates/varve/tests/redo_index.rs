//! The redo log's files get indexes while a database is in use. What could break here: a database that is
//! closed leaves some, one that is opened keeps those that no log file has, or the order of operations of a
//! disk in memory depends on a thread.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use varve::{ColumnType, Database, Isolation, Options, TableDef, values};
use varve_sim::SimDisk;

const DIR: &str = "/data/db";

fn options(from_bytes: u64) -> Options {
    Options {
        page_size: 4096,
        buffer_pool_bytes: 4 << 20,
        redo_capacity_bytes: 4 << 20,
        log_buffer_bytes: 2 << 20,
        redo_index_from_bytes: from_bytes,
        logger: Some(Arc::new(|_, _| {})),
        ..Options::default()
    }
}

fn create_table(db: &Database) {
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("value", ColumnType::Bytes(1000))
        .primary(&["id"]);
    db.create_table(&def).unwrap();
}

/// Some 100 KB of redo.
fn write(db: &Database, version: u8) {
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..60i64 {
        let value = vec![version.wrapping_add(id as u8); 900];
        table.put(&mut trx, values![id, value]).unwrap();
    }
    trx.commit().unwrap();
}

fn check(db: &Database, version: u8) {
    let table = db.table("a/t").unwrap();
    assert!(db.check_table(&table).unwrap().errors.is_empty());
    let mut trx = db.begin(Isolation::RepeatableRead);
    let row = table.get(&mut trx, values![7i64]).unwrap().unwrap();
    assert_eq!(
        row.get::<Vec<u8>>("value").unwrap(),
        vec![version.wrapping_add(7); 900]
    );
}

fn status(db: &Database, name: &str) -> u64 {
    let status = db.status();
    let found = status.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no {name}")).1
}

fn is_index(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "vidx")
}

fn indexes_in(dir: &Path) -> usize {
    let files = std::fs::read_dir(dir.join("redo")).unwrap();
    files
        .filter(|file| is_index(&file.as_ref().unwrap().path()))
        .count()
}

fn indexes_on(disk: &SimDisk) -> usize {
    disk.files().iter().filter(|path| is_index(path)).count()
}

#[test]
fn a_thread_indexes_full_files() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(0)).unwrap();
    create_table(&db);
    let begun = Instant::now();
    let mut version = 0;
    while status(&db, "redo_index_files") < 4 {
        write(&db, version);
        version = version.wrapping_add(1);
        assert!(begun.elapsed() < Duration::from_secs(60), "no index");
    }
    assert!(status(&db, "redo_index_bytes") >= 4 * 4096);
    // There may be none at this moment, if all files are below the checkpoint.
    db.crash();
    let db = Database::open(dir.path(), options(0)).unwrap();
    check(&db, version.wrapping_sub(1));
    db.close().unwrap();
    assert_eq!(indexes_in(dir.path()), 0);
    let db = Database::open(dir.path(), options(u64::MAX)).unwrap();
    for version in 0..60 {
        write(&db, version);
    }
    assert_eq!(status(&db, "redo_index_files"), 0);
    assert_eq!(indexes_in(dir.path()), 0);
    check(&db, 59);
    db.close().unwrap();
}

/// A disk that carries out one operation after the other: somebody else takes the steps.
#[test]
fn the_steps_are_taken_by_hand() {
    let disk = SimDisk::default();
    let open = |from_bytes: u64| {
        Database::open_on(Arc::new(disk.clone()), Path::new(DIR), options(from_bytes)).unwrap()
    };
    let db = open(0);
    create_table(&db);
    let mut indexed = 0;
    for version in 0..30 {
        write(&db, version);
        assert_eq!(
            status(&db, "redo_index_files"),
            indexed,
            "no thread does it"
        );
        while db.index_redo().unwrap().is_some() {
            indexed += 1;
        }
    }
    assert!(indexed >= 4, "{indexed}");
    db.crash();
    let db = open(u64::MAX);
    check(&db, 29);
    assert_eq!(db.index_redo().unwrap(), None, "never");
    db.close().unwrap();
    assert_eq!(indexes_on(&disk), 0, "also if none are made");
    let db = open(1 << 30);
    write(&db, 3);
    assert_eq!(db.index_redo().unwrap(), None, "there is little redo");
    db.close().unwrap();
}
