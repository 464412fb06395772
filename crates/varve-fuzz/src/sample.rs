//! A small database on a disk in memory, from which the seeds come: definitions, trees of two levels, long values, a history
//! that an old view kept purge from, a prepared transaction and one that had not ended.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use varve::io::{Disk, OpenMode};
use varve::page::is_zero;
use varve::{
    CollationId, ColumnDef, ColumnType, Database, Isolation, LockMode, Options, Result, Table,
    TableDef, Transaction, Value, Xid,
};
use varve_sim::SimDisk;

pub const PAGE: usize = 4096;
pub const DIR: &str = "/db";
const ROWS: i64 = 150;

pub fn options() -> Options {
    Options {
        page_size: PAGE as u32,
        buffer_pool_bytes: 1 << 20,
        redo_capacity_bytes: 4 << 20,
        log_buffer_bytes: 2 << 20,
        undo_tablespaces: 2,
        lock_wait_timeout: Duration::from_millis(1),
        logger: Some(Arc::new(|_, _| {})),
        ..Options::default()
    }
}

pub fn open(disk: &SimDisk) -> Result<Database> {
    Database::open_on(Arc::new(disk.clone()), Path::new(DIR), options())
}

pub fn definitions() -> [TableDef; 2] {
    let mut counted = TableDef::new("a/heap")
        .column("n", ColumnType::u64())
        .add_column(ColumnDef::new("c", ColumnType::text_in(CollationId::UTF8_CI, 300)).nullable())
        .index("c", &["c", "n"]);
    counted.auto_increment = Some(0);
    counted = counted.index("n", &["n"]);
    let plain = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .column("c", ColumnType::text(20_000))
        .primary(&["id"])
        .unique("k", &["k"]);
    [plain, counted]
}

pub fn insert(trx: &mut Transaction, table: &Table, id: i64, fill: &str) -> Result<()> {
    let long = if id % 50 == 3 { 3000 } else { 20 };
    let row = match table.def().columns.len() {
        2 => vec![
            Value::UInt(id as u64 + 1),
            Value::Text(format!("{fill} {id}")),
        ],
        _ => {
            let text = format!("{fill} {id} {}", "x".repeat((id % 7) as usize * long));
            vec![Value::Int(id), Value::Int(id * 7), Value::Text(text)]
        }
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
        assert!(n < 1000 * ROWS, "a scan that does not end");
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

fn build() -> Result<SimDisk> {
    let disk = SimDisk::default();
    let db = open(&disk)?;
    let tables = definitions();
    let tables = [db.create_table(&tables[0])?, db.create_table(&tables[1])?];
    let mut old = db.begin(Isolation::RepeatableRead);
    old.take_snapshot();
    for round in 0..3 {
        for table in &tables {
            let mut trx = db.begin(Isolation::RepeatableRead);
            (0..ROWS / 3).try_for_each(|n| insert(&mut trx, table, n * 3 + round, "first"))?;
            change(&mut trx, table, 7 + round, "changed")?;
            match round {
                1 => trx.rollback()?,
                _ => trx.commit()?,
            }
        }
    }
    let mut prepared = db.begin(Isolation::RepeatableRead);
    insert(&mut prepared, &tables[0], 3 * ROWS, "prepared")?;
    prepared.prepare(&Xid::new(1, b"global", b"branch")?)?;
    let mut loser = db.begin(Isolation::RepeatableRead);
    (0..20).try_for_each(|n| insert(&mut loser, &tables[0], 2 * ROWS + n, "lost"))?;
    change(&mut loser, &tables[1], 4, "lost")?;
    // What has not ended is on the disk as after a crash.
    db.flush_log()?;
    let crashed = disk.copy();
    drop((prepared, loser, old));
    db.crash();
    Ok(crashed)
}

/// The database as a crash left it: its redo log has much of it.
pub fn disk() -> SimDisk {
    static DISK: OnceLock<SimDisk> = OnceLock::new();
    DISK.get_or_init(|| build().expect("the sample is made of what works"))
        .copy()
}

/// The same after a recovery and a shutdown: its tablespaces have all of it.
pub fn closed_disk() -> SimDisk {
    static DISK: OnceLock<SimDisk> = OnceLock::new();
    let close = || {
        let disk = disk();
        open(&disk).and_then(|db| db.close()).expect("it was whole");
        disk
    };
    DISK.get_or_init(close).copy()
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

pub fn files(disk: &SimDisk, extension: &str) -> Vec<PathBuf> {
    let mut files = disk.files();
    files.retain(|f| f.extension().is_some_and(|e| e == extension));
    files
}

/// A page of a tablespace.
#[derive(Clone)]
pub struct StoredPage {
    pub file: PathBuf,
    pub no: u64,
    pub bytes: Vec<u8>,
}

/// The pages of the closed database that have content.
pub fn pages() -> &'static [StoredPage] {
    static PAGES: OnceLock<Vec<StoredPage>> = OnceLock::new();
    PAGES.get_or_init(|| {
        let disk = closed_disk();
        let mut pages = Vec::new();
        for file in files(&disk, "vdt") {
            let bytes = read(&disk, &file);
            for (no, page) in bytes.chunks_exact(PAGE).enumerate() {
                if !is_zero(page) {
                    let (file, no, bytes) = (file.clone(), no as u64, page.to_vec());
                    pages.push(StoredPage { file, no, bytes });
                }
            }
        }
        pages
    })
}
