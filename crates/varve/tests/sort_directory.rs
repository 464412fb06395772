//! Where what does not fit into memory is sorted: a directory of the database's, or of the transaction's.
//!
//! What could break here: a path that still goes to the data directory, so that a disk becomes full which was
//! to be spared; a full disk there that does more than end the statement, or does not say where it is full.

#[path = "support/dying_disk.rs"]
mod dying_disk;
#[path = "support/small.rs"]
mod small;

use std::path::Path;
use std::sync::Arc;

use dying_disk::DyingDisk;
use varve::{
    ColumnType, Database, Error, Isolation, Options, RedefinitionWaits, Result, TableDef, Value,
};

const ROWS: i64 = 4000;

fn numbers(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("text", ColumnType::text(100))
        .primary(&["id"])
        .index("by_text", &["text"])
}

fn row(id: i64) -> [Value; 2] {
    let n = id * 7 % ROWS;
    [Value::Int(n), Value::Text(format!("text {id} of {n}"))]
}

/// A statement that sorts, in this directory.
type Sorts = fn(&Database, Option<&Path>) -> Result<()>;

fn with_index() -> TableDef {
    numbers("a/t").index("by_both", &["text", "id"])
}

fn add_index(db: &Database, directory: Option<&Path>) -> Result<()> {
    let waits = RedefinitionWaits {
        sort_directory: directory.map(Path::to_path_buf),
        ..RedefinitionWaits::default()
    };
    let mut prepared = db.prepare_redefinition(&with_index(), waits)?;
    prepared.build(&mut |_, _| {})?;
    prepared.commit(&mut |_, _| {})
}

fn rebuild(db: &Database, directory: Option<&Path>) -> Result<()> {
    let waits = RedefinitionWaits {
        sort_directory: directory.map(Path::to_path_buf),
        ..RedefinitionWaits::default()
    };
    let to = numbers("a/t").primary(&["text", "id"]);
    db.prepare_rebuild(&to, waits)?.commit(&mut |_, _| {})
}

fn load(db: &Database, directory: Option<&Path>) -> Result<()> {
    let table = db.table("a/empty")?;
    let mut trx = db.begin(Isolation::RepeatableRead);
    trx.set_sort_directory(directory.map(Path::to_path_buf));
    let mut load = db.load_table(&mut trx, &table, 1)?;
    let loaded =
        (0..ROWS).try_for_each(|id| load.push(&mut trx, &table.def().row(&row(id))?.datums()));
    match loaded {
        Ok(()) => load.finish(&mut trx, &mut |_, _| {})?,
        Err(e) => {
            load.abandon(&mut trx);
            trx.rollback()?;
            return Err(e);
        }
    }
    trx.commit()
}

fn open(disk: &DyingDisk, dir: &Path, sort_directory: &str) -> Database {
    let options = Options {
        sort_buffer_bytes: 64 << 10,
        sort_directory: Some(sort_directory.into()),
        ..small::options()
    };
    let db = Database::open_on(Arc::new(disk.clone()), dir, options).unwrap();
    drop(db.create_table(&numbers("a/empty")).unwrap());
    let table = db.create_table(&numbers("a/t")).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS {
        table.insert(&mut trx, &row(id)).unwrap();
    }
    trx.commit().unwrap();
    db
}

fn check(sorts: Sorts) {
    let dir = tempfile::tempdir().unwrap();
    let own = tempfile::tempdir().unwrap();
    let disk = DyingDisk::new();
    let db = open(&disk, dir.path(), "of_all");
    let names = |e: &Error, path: &Path| e.to_string().contains(path.to_str().unwrap());
    let is_as_before = || {
        let table = db.table("a/t").unwrap();
        assert_eq!(table.def().indexes.len(), 1);
        assert_eq!(db.check_table(&table).unwrap().errors, [""; 0]);
    };

    // The directories are not there.
    let of_all = dir.path().join("of_all");
    let missing = sorts(&db, None).unwrap_err();
    assert!(names(&missing, &of_all), "{missing}");
    let own_dir = own.path().join("of_this");
    let missing = sorts(&db, Some(&own_dir)).unwrap_err();
    assert!(names(&missing, &own_dir), "{missing}");
    is_as_before();

    // One is full.
    for own_dir in [&of_all, &own_dir] {
        std::fs::create_dir(own_dir).unwrap();
    }
    disk.fill_up_for("of_this");
    let full = sorts(&db, Some(&own_dir)).unwrap_err();
    assert!(matches!(full, Error::NoSpace { .. }), "{full}");
    assert!(names(&full, &own_dir), "{full}");
    is_as_before();
    disk.make_room();

    // There is no room in the other one, nor for such a file beside the tables.
    disk.fill_up_for("varve.sort");
    sorts(&db, Some(&own_dir)).unwrap_err();
    disk.fill_up_for("of_all");
    sorts(&db, Some(&own_dir)).unwrap();
    for place in [&of_all, &own_dir] {
        assert_eq!(std::fs::read_dir(place).unwrap().count(), 0);
    }
    for name in db.tables().unwrap() {
        let table = db.table(&name).unwrap();
        assert_eq!(db.check_table(&table).unwrap().errors, [""; 0]);
    }
}

#[test]
fn indexes() {
    check(add_index);
}

#[test]
fn another_primary_key() {
    check(rebuild);
}

#[test]
fn a_load() {
    check(load);
}
