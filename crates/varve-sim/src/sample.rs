//! A small database of tables with all that a table may have: two levels of each tree, unique and other
//! indexes, hidden row ids, counters, NULLs, collations, values that are longer than a page. Tests fill it as
//! they need it, damage its pages, and use it in every way.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use varve::internals::io::{Disk, OpenMode};
use varve::internals::page::seal;
use varve::{
    CollationId, ColumnDef, ColumnType, Database, EncryptionKeys, Isolation, LockMode, Options,
    Result, Table, TableDef, Transaction, Value,
};

use crate::SimDisk;

pub const PAGE: usize = 4096;
pub const DIR: &str = "/db";

/// Rows that a scan can't have, whatever is wrong with the pages.
const TOO_MANY: i64 = 500_000;

/// Keys 1 to 99, each in so many versions.
pub struct Keys(pub u32);

impl EncryptionKeys for Keys {
    fn newest_version(&self, key: u32) -> Option<u32> {
        (1..100).contains(&key).then_some(self.0)
    }

    fn key(&self, key: u32, version: u32) -> Option<Vec<u8>> {
        let is_there = self
            .newest_version(key)
            .is_some_and(|newest| version <= newest);
        is_there.then(|| vec![key as u8 ^ (version * 100) as u8; 16 + 8 * (key % 3) as usize])
    }
}

pub fn options() -> Options {
    Options {
        page_size: PAGE as u32,
        buffer_pool_bytes: 2 << 20,
        redo_capacity_bytes: 4 << 20,
        log_buffer_bytes: 2 << 20,
        undo_tablespaces: 2,
        table_cache: 2,
        lock_wait_timeout: Duration::from_millis(1),
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
        .add_column(ColumnDef::new("c", ColumnType::text_in(CollationId::UTF8_CI, 300)).nullable())
        .index("c", &["c", "n"]);
    counted.auto_increment = Some(0);
    counted = counted.index("n", &["n"]);
    let plain = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .column("c", ColumnType::text(300))
        .primary(&["id"])
        .unique("k", &["k"]);
    let long = TableDef::new("a/long")
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .column("c", ColumnType::text(20_000))
        .primary(&["id"])
        .index("k", &["k"]);
    [plain, counted, long]
}

/// Inserts a row, in the table of external values at times one of two pages or of four.
pub fn insert(trx: &mut Transaction, table: &Table, id: i64, fill: &str) -> Result<()> {
    let long = match (table.def().name.as_str(), id % 48) {
        ("a/long", 0) => 14_000,
        ("a/long", 16 | 32) => 5000,
        _ => (id % 7) as usize * 20,
    };
    let fill = Value::Text(format!("{fill} {id} {}", "x".repeat(long)));
    let row = match table.def().columns.len() {
        2 if id % 29 == 28 => vec![Value::UInt(id as u64 + 1), Value::Null],
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
        assert!(n < TOO_MANY, "a scan that does not end");
        if n % step == 0 && n % 3 == 0 {
            trx.delete(table, &cursor)?;
        } else if n % step == 0 {
            let row = cursor.row()?;
            let mut row = row.values()?;
            *row.last_mut().expect("columns") = Value::Text(format!("{fill} {n}"));
            trx.update(table, &cursor, &table.def().row(&row)?.datums())?;
        }
        more = cursor.next(trx)?;
    }
    Ok(())
}

/// Which way an index is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Forward,
    Backward,
}

pub const WAYS: [Way; 2] = [Way::Forward, Way::Backward];

/// Reads the whole index, and counts its rows.
pub fn read_all(db: &Database, name: &str, index: usize, lock: LockMode, way: Way) -> Result<i64> {
    let table = db.table(name)?;
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(index)?;
    let mut more = match way {
        Way::Forward => cursor.first(&mut trx, lock)?,
        Way::Backward => cursor.last(&mut trx, lock)?,
    };
    let mut n = 0;
    while more {
        n += 1;
        assert!(n < TOO_MANY, "a scan that does not end");
        cursor.row()?;
        more = match way {
            Way::Forward => cursor.next(&mut trx)?,
            Way::Backward => cursor.prev(&mut trx)?,
        };
    }
    Ok(n)
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
        let file = disk.open(&self.file, OpenMode::Existing).expect("the file");
        file.read_at(&mut page, self.no * PAGE as u64)
            .expect("all of it");
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
        write(disk, &self.file, page, self.no * PAGE as u64);
    }
}

/// The pages of all tablespaces that are wanted, by their file and their bytes.
pub fn pages(disk: &SimDisk, wanted: impl Fn(&Path, &[u8]) -> bool) -> Vec<Place> {
    let mut found = Vec::new();
    for file in files(disk, "vdt") {
        for (no, page) in read(disk, &file).chunks_exact(PAGE).enumerate() {
            if wanted(&file, page) {
                let (file, no) = (file.clone(), no as u64);
                found.push(Place { file, no });
            }
        }
    }
    found
}

pub fn files(disk: &SimDisk, extension: &str) -> Vec<PathBuf> {
    let mut files = disk.files();
    files.retain(|f| f.extension().is_some_and(|e| e == extension));
    files
}

pub fn read(disk: &SimDisk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, OpenMode::Existing).expect("the file");
    let mut bytes = vec![0; file.len().expect("its length") as usize];
    file.read_at(&mut bytes, 0).expect("all of it");
    bytes
}

pub fn write(disk: &SimDisk, path: &Path, bytes: &[u8], at: u64) {
    let file = disk.open(path, OpenMode::Existing).expect("the file");
    file.write_at(bytes, at).expect("a disk in memory");
}
