//! A small database to make backups of.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve::{ColumnType, Database, Isolation, Options, Table, TableDef, values};

pub fn small() -> Options {
    Options {
        page_size: 4096,
        buffer_pool_bytes: 4 << 20,
        redo_capacity_bytes: REDO,
        log_buffer_bytes: 2 << 20,
        undo_tablespaces: 2,
        logger: Some(Arc::new(|_, _| {})),
        ..Options::default()
    }
}

pub const REDO: u64 = 4 << 20;

pub fn table(db: &Database, name: &str) -> Table {
    let def = TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("text", ColumnType::text(2000))
        .primary(&["id"])
        .index("by_text", &["text"]);
    db.create_table(&def).unwrap()
}

pub fn fill(db: &Database, table: &Table, ids: std::ops::Range<i64>) {
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in ids {
        let text = format!("{id:0100}");
        table.insert(&mut trx, values![id, text]).unwrap();
    }
    trx.commit().unwrap();
}

pub fn count(db: &Database, name: &str) -> u64 {
    let report = db.check_table(&db.table(name).unwrap()).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    report.rows
}

/// A directory with a database in `db`, which has a table with so many rows.
pub fn database_with(rows: i64) -> (tempfile::TempDir, Database, Table) {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db"), small()).unwrap();
    let table = table(&db, "a/t");
    fill(&db, &table, 0..rows);
    (dir, db, table)
}

/// All files below a directory.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(self::files(&path)),
            false => files.push(path),
        }
    }
    files.sort();
    files
}

/// Of a file in which a byte at one of these places is another one, of one that has only so many bytes, and
/// of one that is not there its name is `told`. Then it is as it was.
pub fn is_told(path: &Path, places: &[usize], lengths: &[usize], told: impl Fn() -> String) {
    let name = path.file_name().unwrap().to_string_lossy();
    let whole = fs::read(path).unwrap();
    let check = |what: String| {
        let told = told();
        assert!(told.contains(&*name), "{name} {what}: {told}");
    };
    for &at in places {
        let mut changed = whole.clone();
        changed[at] ^= 4;
        fs::write(path, &changed).unwrap();
        check(format!("at {at}"));
    }
    for &len in lengths {
        fs::write(path, &whole[..len]).unwrap();
        check(format!("of {len} bytes"));
    }
    fs::remove_file(path).unwrap();
    check("not there".into());
    fs::write(path, &whole).unwrap();
}
