//! A database with a page of every kind, whose files are damaged on purpose.

#![allow(dead_code, reason = "each test uses its part")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use varve::io::{Disk, OpenMode};
use varve::page::seal;
use varve::{
    ColumnType, Database, Isolation, LockMode, Options, Result, Table, TableDef, Transaction, Value,
};
use varve_sim::SimDisk;

pub const PAGE: usize = 4096;
pub const DIR: &str = "/db";
pub const ROWS: i64 = 400;

pub fn options() -> Options {
    Options {
        page_size: PAGE as u32,
        buffer_pool_bytes: 2 << 20,
        redo_capacity_bytes: 4 << 20,
        log_buffer_bytes: 2 << 20,
        undo_tablespaces: 2,
        lock_wait_timeout: Duration::from_millis(10),
        logger: Some(Arc::new(|_, _| {})),
        ..Options::default()
    }
}

pub fn open(disk: &SimDisk) -> Result<Database> {
    Database::open_on(Arc::new(disk.clone()), Path::new(DIR), options())
}

pub fn definitions() -> [TableDef; 3] {
    let mut counted = TableDef::new("a/heap")
        .column("n", ColumnType::u64())
        .column("c", ColumnType::text(300))
        .index("n", &["n"]);
    counted.auto_increment = Some(0);
    let plain = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .column("c", ColumnType::text(300))
        .primary(&["id"])
        .unique("k", &["k"]);
    let long = TableDef::new("a/long")
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .column("c", ColumnType::text(9000))
        .primary(&["id"])
        .index("k", &["k"]);
    [plain, counted, long]
}

pub fn insert(trx: &mut Transaction, table: &Table, id: i64, fill: &str) -> Result<()> {
    let long = match table.def().name.as_str() {
        "a/long" if id % 16 == 0 => 5000,
        _ => (id % 7) as usize * 20,
    };
    let fill = Value::Text(format!("{fill} {id} {}", "x".repeat(long)));
    let row = match table.def().columns.len() {
        2 => vec![Value::UInt(id as u64 + 1), fill],
        _ => vec![Value::Int(id), Value::Int(id * 7), fill],
    };
    trx.insert(table, &table.def().row(&row)?.datums())
}

/// Changes or deletes about one row in `step`.
pub fn change(trx: &mut Transaction, table: &Table, step: i64, fill: &str) -> Result<()> {
    let mut cursor = table.cursor(0)?;
    let mut more = cursor.first(trx, LockMode::Exclusive)?;
    let mut n = 0;
    while more {
        n += 1;
        assert!(n < 100 * ROWS, "a scan that does not end");
        if n % step == 0 && n % 3 == 0 {
            trx.delete(table, &cursor)?;
        } else if n % step == 0 {
            let row = cursor.row()?;
            let mut row: Vec<Value> = (0..row.len())
                .map(|i| row.value(i))
                .collect::<Result<_>>()?;
            *row.last_mut().expect("columns") = Value::Text(format!("{fill} {n}"));
            trx.update(table, &cursor, &table.def().row(&row)?.datums())?;
        }
        more = cursor.next(trx)?;
    }
    Ok(())
}

/// A database that was closed while a view was open and a transaction had not ended: it has a page of every kind.
pub fn build() -> SimDisk {
    let disk = SimDisk::default();
    let db = open(&disk).unwrap();
    let tables = definitions().map(|def| db.create_table(&def).unwrap());
    for table in &tables {
        let mut trx = db.begin(Isolation::RepeatableRead);
        (0..ROWS).for_each(|id| insert(&mut trx, table, id, "first").unwrap());
        trx.commit().unwrap();
    }
    assert!(db.wait_for_purge(Duration::from_secs(60)));
    let mut old = db.begin(Isolation::RepeatableRead);
    old.take_snapshot();
    for round in 0..5 {
        for table in &tables {
            let mut trx = db.begin(Isolation::RepeatableRead);
            change(&mut trx, table, 7 + round, "changed").unwrap();
            insert(&mut trx, table, ROWS + round, "late").unwrap();
            match round {
                3 => trx.rollback().unwrap(),
                _ => trx.commit().unwrap(),
            }
        }
    }
    let mut taken_back = db.begin(Isolation::RepeatableRead);
    let long = (160..200).map(|n| n * 16);
    long.for_each(|id| insert(&mut taken_back, &tables[2], id, "freed").unwrap());
    taken_back.rollback().unwrap();
    let mut loser = db.begin(Isolation::RepeatableRead);
    for table in &tables {
        (0..60).for_each(|id| insert(&mut loser, table, 2 * ROWS + id, "lost").unwrap());
        change(&mut loser, table, 4, "a change that is lost").unwrap();
    }
    db.close().unwrap();
    drop((old, loser));
    disk
}

/// A page of one of the files.
#[derive(Clone, Debug)]
pub struct Place {
    pub file: PathBuf,
    pub no: u64,
}

impl Place {
    pub fn read(&self, disk: &SimDisk) -> Vec<u8> {
        let mut page = vec![0; PAGE];
        let file = disk.open(&self.file, OpenMode::Existing).unwrap();
        file.read_at(&mut page, self.no * PAGE as u64).unwrap();
        page
    }

    /// Changes the page and gives it the checksum that fits.
    pub fn change(&self, disk: &SimDisk, change: impl FnOnce(&mut [u8])) {
        let mut page = self.read(disk);
        change(&mut page);
        seal(&mut page);
        self.write(disk, &page);
    }

    pub fn write(&self, disk: &SimDisk, page: &[u8]) {
        let file = disk.open(&self.file, OpenMode::Existing).unwrap();
        file.write_at(page, self.no * PAGE as u64).unwrap();
    }
}

pub fn pages(disk: &SimDisk, wanted: impl Fn(&Path, &[u8]) -> bool) -> Vec<Place> {
    let mut found = Vec::new();
    for file in disk.files() {
        if file.extension().is_none_or(|e| e != "vdt") {
            continue;
        }
        let len = disk.open(&file, OpenMode::Existing).unwrap().len().unwrap();
        for no in 0..len / PAGE as u64 {
            let file = file.clone();
            let place = Place { file, no };
            if wanted(&place.file, &place.read(disk)) {
                found.push(place);
            }
        }
    }
    found
}

pub fn u32_at(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(page[at..at + 4].try_into().unwrap())
}

pub fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}
