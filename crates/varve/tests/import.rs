//! A table's file goes to another database: exported, discarded, imported.
//!
//! What could break here: an exported file that lacks changes, or is written while it is copied; rows that
//! were deleted and come back; long values, versions of rows and indexes that get lost on the way; numbers of
//! one database that mean something else in another; a file that is damaged, or another table's, and is
//! taken all the same; a table that is neither discarded nor imported after a crash.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use varve::offline::{Grade, check};
use varve::{
    ColumnType, Database, Error, ForeignKey, ForeignKeyChecks, Isolation, LockMode, Options,
    RedefinitionWaits, Result, TableDef, TableExport, Transaction, Value, values,
};

fn options() -> Options {
    Options {
        page_size: 4096,
        buffer_pool_bytes: 4 << 20,
        redo_capacity_bytes: 8 << 20,
        ..Options::default()
    }
}

fn open(dir: &Path) -> Database {
    Database::open(dir, options()).unwrap()
}

fn definition(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .nullable("name", ColumnType::text(40))
        .nullable("long", ColumnType::Bytes(1 << 20))
        .primary(&["id"])
        .unique("by_name", &["name"])
        .auto_increment("id")
}

fn long(id: i64) -> Vec<u8> {
    match id % 10 {
        0 => vec![id as u8; 20_000],
        _ => vec![id as u8; 10],
    }
}

/// Rows that were inserted, changed and deleted, some by the present definition and some by an older one.
/// Returns a view that keeps purge from what is gone.
fn fill(db: &Database, name: &str) -> Transaction {
    let table = db.create_table(&definition(name)).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 1..=400 {
        let row = [
            Value::Int(id),
            Value::Text(format!("n{id}")),
            Value::Bytes(long(id)),
        ];
        table.put(&mut trx, &row).unwrap();
    }
    trx.commit().unwrap();
    let def = table.def().clone();
    drop(table);
    db.redefine_table(&def.nullable("more", ColumnType::i32()))
        .unwrap();
    let mut def = db.table(name).unwrap().def().clone();
    def = def.index("by_more", &["more"]);
    db.redefine_table(&def).unwrap();
    let table = db.table(name).unwrap();
    let mut old = db.begin(Isolation::RepeatableRead);
    table.get(&mut old, values![1]).unwrap().unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in (1..=400).filter(|id| id % 3 == 0) {
        table.delete(&mut trx, values![id]).unwrap();
    }
    for id in (1..=400).filter(|id| id % 7 == 1 && id % 3 != 0) {
        let row = [
            Value::Int(id),
            Value::Text(format!("changed{id}")),
            Value::Bytes(vec![7; 9_000]),
            Value::Int(id),
        ];
        table.put(&mut trx, &row).unwrap();
    }
    trx.commit().unwrap();
    old
}

type Rows = Vec<Vec<Value>>;

fn rows(db: &Database, name: &str) -> Result<Rows> {
    let table = db.table(name)?;
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0)?;
    let mut rows = Vec::new();
    let mut on_row = cursor.first(&mut trx, LockMode::None)?;
    while on_row {
        let row = cursor.row()?;
        let columns = table.def().columns.len();
        rows.push((0..columns).map(|n| row.value(n)).collect::<Result<_>>()?);
        on_row = cursor.next(&mut trx)?;
    }
    Ok(rows)
}

fn export(db: &Database, name: &str) -> TableExport {
    db.export_table(name, RedefinitionWaits::default()).unwrap()
}

fn import(db: &Database, name: &str) -> Result<()> {
    db.import_table(name, RedefinitionWaits::default())
}

fn discard(db: &Database, name: &str) -> Result<()> {
    db.discard_table(name, ForeignKeyChecks::On)
}

fn file(db: &Database, name: &str) -> PathBuf {
    db.dir().join(format!("{name}.vdt"))
}

fn is_discarded<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::TablespaceDiscarded { .. }))
}

/// The definition with which `fill` leaves the table.
fn filled_definition(name: &str) -> TableDef {
    definition(name)
        .nullable("more", ColumnType::i32())
        .index("by_more", &["more"])
}

/// Exports a table that `fill` has made; returns the file's copy and the rows.
fn exported(dir: &Path) -> (PathBuf, Rows) {
    let db = open(&dir.join("source"));
    let old = fill(&db, "s/t");
    let whole = rows(&db, "s/t").unwrap();
    assert_eq!(whole.len(), 267);
    let export = export(&db, "s/t");
    let copy = dir.join("t.vdt");
    std::fs::copy(file(&db, "s/t"), &copy).unwrap();
    drop((export, old));
    db.close().unwrap();
    (copy, whole)
}

/// A database with a table `d/t` whose rows were discarded; a file for it, and the rows in that.
fn discarded(base: &Path) -> (Database, PathBuf, Rows) {
    let (copy, whole) = exported(base);
    let db = open(&base.join("d"));
    db.create_table(&filled_definition("d/t")).unwrap();
    discard(&db, "d/t").unwrap();
    (db, copy, whole)
}

fn check_table(db: &Database, name: &str) {
    let report = db.check_table(&db.table(name).unwrap()).unwrap();
    assert_eq!(report.errors, [""; 0], "{name}");
}

#[test]
fn a_table_goes_to_another_database() {
    let base = tempfile::tempdir().unwrap();
    let (copy, whole) = exported(base.path());
    for page_size in [4096, 16384] {
        let dir = base.path().join(page_size.to_string());
        let options = Options {
            page_size,
            ..options()
        };
        let db = Database::open(&dir, options.clone()).unwrap();
        db.create_table(&filled_definition("d/t")).unwrap();
        discard(&db, "d/t").unwrap();
        assert!(!file(&db, "d/t").exists());
        std::fs::copy(&copy, file(&db, "d/t")).unwrap();
        let mut old = db.begin(Isolation::RepeatableRead);
        db.create_table(&definition("d/other")).unwrap();
        let other = db.table("d/other").unwrap();
        assert!(other.get(&mut old, values![1]).unwrap().is_none());
        import(&db, "d/t").unwrap();
        assert_eq!(rows(&db, "d/t").unwrap(), whole);
        check_table(&db, "d/t");
        let table = db.table("d/t").unwrap();
        let seen = table.get(&mut old, values![1]).map(drop);
        assert!(
            matches!(seen, Err(Error::DefinitionChanged { .. })),
            "{seen:?}"
        );
        drop(old);
        assert_eq!(table.auto_increment_next(), 401);
        drop((table, other));
        // It is a table like any other, and stays so.
        let refused = import(&db, "d/t");
        assert!(
            matches!(refused, Err(Error::AlreadyExists { .. })),
            "{refused:?}"
        );
        db.close().unwrap();
        let db = Database::open(&dir, options).unwrap();
        assert_eq!(rows(&db, "d/t").unwrap(), whole);
        assert_eq!(std::fs::read_dir(dir.join("d")).unwrap().count(), 2);
        db.drop_table("d/t").unwrap();
    }
}

/// PAUSE-1. What is changed while the file may be copied waits, and so does purge: the file does not change.
#[test]
fn an_exported_file_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let old = fill(&db, "s/t");
    let exports = [export(&db, "s/t"), export(&db, "s/t")];
    let before = std::fs::read(file(&db, "s/t")).unwrap();
    drop(old);
    assert!(!db.wait_for_purge(Duration::from_millis(300)));
    let table = db.table("s/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    trx.set_lock_wait_timeout(Duration::from_millis(50));
    let refused = table.delete(&mut trx, values![1]);
    assert!(
        matches!(refused, Err(Error::LockWaitTimeout)),
        "{refused:?}"
    );
    drop(trx);
    assert_eq!(rows(&db, "s/t").unwrap().len(), 267);
    let [first, second] = exports;
    drop(first);
    assert!(!db.wait_for_purge(Duration::from_millis(300)));
    // What others change is written.
    db.create_table(&definition("s/other")).unwrap();
    assert!(before == std::fs::read(file(&db, "s/t")).unwrap());
    drop(second);
    let mut trx = db.begin(Isolation::RepeatableRead);
    assert!(table.delete(&mut trx, values![1]).unwrap());
    trx.commit().unwrap();
    assert!(db.wait_for_purge(Duration::from_secs(60)));
    // It waits for who changes the table.
    let mut trx = db.begin(Isolation::RepeatableRead);
    assert!(table.delete(&mut trx, values![2]).unwrap());
    let waits = RedefinitionWaits {
        lock_wait_timeout: Some(Duration::from_millis(50)),
        ..RedefinitionWaits::default()
    };
    let refused = db.export_table("s/t", waits).map(drop);
    assert!(
        matches!(refused, Err(Error::LockWaitTimeout)),
        "{refused:?}"
    );
}

/// Whoever exports a small table does not wait for the pages of others.
#[test]
fn an_export_writes_the_pages_of_its_table() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let requested = || {
        let name = "buffer_flush_requested_total_pages";
        let metrics = db.metrics();
        let metric = metrics.iter().find(|m| m.name == name);
        metric.unwrap().value
    };
    let [big, small] = ["s/big", "s/small"].map(|name| db.create_table(&definition(name)).unwrap());
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 1..=3000 {
        let row = [Value::Int(id), Value::Null, Value::Bytes(vec![1; 1000])];
        big.put(&mut trx, &row).unwrap();
    }
    let row = [Value::Int(1), Value::Null, Value::Null];
    small.put(&mut trx, &row).unwrap();
    trx.commit().unwrap();
    let before = requested();
    drop(export(&db, "s/small"));
    let written = requested() - before;
    assert!(written < 20, "{written}");
}

/// IMPORT-1, also through a clean restart and a crash, and with a file that waits in its place, which is a
/// copy of a table that is there (IMPORT-2).
#[test]
fn a_discarded_table_waits_for_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut db = open(dir.path());
    drop(fill(&db, "s/t"));
    let whole = rows(&db, "s/t").unwrap();
    db.create_table(&filled_definition("s/copy")).unwrap();
    discard(&db, "s/copy").unwrap();
    for is_clean in [true, false, true, false] {
        assert!(is_discarded(rows(&db, "s/copy")));
        db.rename_table("s/copy", "s/moved").unwrap();
        assert!(matches!(rows(&db, "s/copy"), Err(Error::NotFound { .. })));
        assert!(is_discarded(rows(&db, "s/moved")));
        db.rename_table("s/moved", "s/copy").unwrap();
        assert!(is_discarded(discard(&db, "s/copy")));
        if !file(&db, "s/copy").exists() {
            let missing = import(&db, "s/copy");
            assert!(matches!(missing, Err(Error::Io { .. })), "{missing:?}");
        }
        let export = export(&db, "s/t");
        std::fs::copy(file(&db, "s/t"), file(&db, "s/copy")).unwrap();
        drop(export);
        match is_clean {
            true => db.close().unwrap(),
            false => db.crash(),
        }
        let mut damages = Vec::new();
        let found = check(dir.path(), None, &mut |finding| {
            if finding.grade == Grade::Damage {
                damages.push(format!("{finding:?}"));
            }
        });
        found.unwrap();
        let is_the_copy = |told: &String| told.contains("s/copy.vdt");
        assert!(damages.iter().all(is_the_copy), "{damages:?}");
        db = open(dir.path());
        assert!(db.wait_for_recovery(Duration::from_secs(60)));
        assert_eq!(rows(&db, "s/t").unwrap(), whole);
    }
    import(&db, "s/copy").unwrap();
    assert_eq!(rows(&db, "s/copy").unwrap(), whole);
    discard(&db, "s/copy").unwrap();
    db.truncate_table("s/copy").unwrap();
    assert!(rows(&db, "s/copy").unwrap().is_empty());
    discard(&db, "s/copy").unwrap();
    db.drop_table("s/copy").unwrap();
    assert_eq!(db.tables().unwrap(), ["s/t"]);
    // Its own file comes back.
    let export = export(&db, "s/t");
    let kept = dir.path().join("kept");
    std::fs::copy(file(&db, "s/t"), &kept).unwrap();
    drop(export);
    discard(&db, "s/t").unwrap();
    std::fs::copy(&kept, file(&db, "s/t")).unwrap();
    import(&db, "s/t").unwrap();
    assert_eq!(rows(&db, "s/t").unwrap(), whole);
    db.crash();
    let db = open(dir.path());
    assert!(db.wait_for_recovery(Duration::from_secs(60)));
    assert_eq!(rows(&db, "s/t").unwrap(), whole);
    check_table(&db, "s/t");
}

/// IMPORT-3, and that table and file are as they were.
#[test]
fn a_damaged_file_is_refused_by_its_page() {
    let base = tempfile::tempdir().unwrap();
    let (db, copy, whole) = discarded(base.path());
    let sound = std::fs::read(&copy).unwrap();
    let pages = sound.len() / 4096;
    let refused = |bytes: &[u8]| {
        std::fs::write(file(&db, "d/t"), bytes).unwrap();
        let refused = import(&db, "d/t").unwrap_err();
        assert!(file(&db, "d/t").exists());
        assert_eq!(db.tables().unwrap(), ["d/t"]);
        assert!(is_discarded(rows(&db, "d/t")));
        assert!(matches!(refused, Error::CorruptFile { .. }), "{refused}");
        refused.to_string()
    };
    let is_zero = |page: usize| sound[page * 4096..][..4096].iter().all(|byte| *byte == 0);
    let mut told = 0;
    for page in (1..pages).filter(|page| !is_zero(*page)) {
        let mut bytes = sound.clone();
        bytes[page * 4096 + 2000] ^= 1;
        let why = refused(&bytes);
        assert!(why.contains(&format!("page {page}:")), "{page}: {why}");
        told += 1;
    }
    assert!(told > 40, "{told}");
    // The end is missing, or all that it says of itself.
    refused(&sound[..sound.len() / 2 / 4096 * 4096]);
    let mut bytes = sound.clone();
    bytes[..3 * 4096].fill(0);
    refused(&bytes);
    std::fs::write(file(&db, "d/t"), &sound).unwrap();
    import(&db, "d/t").unwrap();
    assert_eq!(rows(&db, "d/t").unwrap(), whole);
}

#[test]
fn a_file_of_another_table_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let (copy, _) = exported(base.path());
    let db = open(&base.path().join("d"));
    let mut def = filled_definition("d/t");
    def.columns[1].ty = ColumnType::text(30);
    db.create_table(&def).unwrap();
    discard(&db, "d/t").unwrap();
    std::fs::copy(&copy, file(&db, "d/t")).unwrap();
    let refused = import(&db, "d/t").unwrap_err();
    assert!(matches!(refused, Error::SchemaMismatch { .. }));
    let why = refused.to_string();
    assert!(why.contains("column name is text of up to 30"), "{why}");
    assert!(is_discarded(rows(&db, "d/t")));
    assert_eq!(db.tables().unwrap(), ["d/t"]);
}

#[test]
fn parents_keep_their_rows() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    db.create_table(&definition("s/parent")).unwrap();
    let key = ForeignKey::new("child_1", &["id"], "s/parent", &["id"]);
    let child = definition("s/child").foreign_key(key);
    db.create_table(&child).unwrap();
    let refused = discard(&db, "s/parent");
    assert!(
        matches!(refused, Err(Error::TableIsReferenced(_))),
        "{refused:?}"
    );
    discard(&db, "s/child").unwrap();
    db.discard_table("s/parent", ForeignKeyChecks::Off).unwrap();
    let refused = db.drop_table("s/parent");
    assert!(
        matches!(refused, Err(Error::TableIsReferenced(_))),
        "{refused:?}"
    );
    db.drop_table("s/child").unwrap();
    db.drop_table("s/parent").unwrap();
    assert_eq!(db.tables().unwrap(), [""; 0]);
}

/// A table whose file is lost can be discarded, and get a new one; what already lies in the place stays.
#[test]
fn a_lost_file_is_replaced() {
    let base = tempfile::tempdir().unwrap();
    let (copy, whole) = exported(base.path());
    let dir = base.path().join("d");
    let options = Options {
        logger: Some(Arc::new(|_, _| {})),
        ..options()
    };
    for (is_clean, is_put_before) in [(true, false), (false, false), (true, true), (false, true)] {
        let db = Database::open(&dir, options.clone()).unwrap();
        db.create_table(&filled_definition("d/t")).unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        let row = values![9, "nine", Vec::<u8>::new(), 9];
        db.table("d/t").unwrap().put(&mut trx, row).unwrap();
        trx.commit().unwrap();
        // One that has not ended, of which undo speaks.
        let mut open = db.begin(Isolation::RepeatableRead);
        db.table("d/t")
            .unwrap()
            .delete(&mut open, values![9])
            .unwrap();
        match is_clean {
            true => {
                drop(open);
                db.close().unwrap();
            }
            false => {
                db.crash();
                drop(open);
            }
        }
        std::fs::remove_file(dir.join("d/t.vdt")).unwrap();
        if is_put_before {
            std::fs::copy(&copy, dir.join("d/t.vdt")).unwrap();
        }
        let db = Database::open(&dir, options.clone()).unwrap();
        let lost = rows(&db, "d/t");
        assert!(matches!(lost, Err(Error::CorruptFile { .. })), "{lost:?}");
        // IMPORT of a lost file does what DISCARD would have done.
        if !(is_put_before && is_clean) {
            discard(&db, "d/t").unwrap();
            assert!(is_discarded(rows(&db, "d/t")));
            assert!(is_discarded(discard(&db, "d/t")));
            assert_eq!(file(&db, "d/t").exists(), is_put_before);
            std::fs::copy(&copy, file(&db, "d/t")).unwrap();
        }
        import(&db, "d/t").unwrap();
        assert_eq!(rows(&db, "d/t").unwrap(), whole);
        assert!(db.wait_for_recovery(Duration::from_secs(60)));
        db.crash();
        let db = Database::open(&dir, options.clone()).unwrap();
        assert_eq!(rows(&db, "d/t").unwrap(), whole);
        check_table(&db, "d/t");
        assert!(db.wait_for_recovery(Duration::from_secs(60)));
        db.drop_table("d/t").unwrap();
        assert_eq!(std::fs::read_dir(dir.join("d")).unwrap().count(), 0);
        db.close().unwrap();
    }
}

/// Nothing of a table that waits is lost by a statement that is refused.
#[test]
fn a_file_that_waits_is_in_the_way() {
    let base = tempfile::tempdir().unwrap();
    let (db, copy, whole) = discarded(base.path());
    std::fs::copy(&copy, file(&db, "d/t")).unwrap();
    let is_in_the_way = |refused: Result<()>| {
        let is = matches!(refused, Err(Error::AlreadyExists { .. }));
        assert!(is, "{refused:?}");
    };
    is_in_the_way(db.truncate_table("d/t"));
    std::fs::write(file(&db, "d/u"), b"something").unwrap();
    is_in_the_way(db.rename_table("d/t", "d/u"));
    std::fs::remove_file(file(&db, "d/u")).unwrap();
    assert!(is_discarded(rows(&db, "d/t")));
    // It goes with the table.
    db.rename_table("d/t", "e/u").unwrap();
    assert!(!file(&db, "d/t").exists());
    import(&db, "e/u").unwrap();
    assert_eq!(rows(&db, "e/u").unwrap(), whole);
    let names = |of: &str| std::fs::read_dir(db.dir().join(of)).unwrap().count();
    assert_eq!((names("d"), names("e")), (0, 1));
}

/// An import that is ended leaves the table and the file as they were, and nothing else.
#[test]
fn an_interrupt_ends_an_import() {
    let base = tempfile::tempdir().unwrap();
    let (db, copy, whole) = discarded(base.path());
    std::fs::copy(&copy, file(&db, "d/t")).unwrap();
    let waits = RedefinitionWaits {
        interrupt: Some(Arc::new(AtomicBool::new(true))),
        ..RedefinitionWaits::default()
    };
    let ended = db.import_table("d/t", waits);
    assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
    assert!(is_discarded(rows(&db, "d/t")));
    assert_eq!(db.tables().unwrap(), ["d/t"]);
    let left = std::fs::read_dir(db.dir().join("d")).unwrap();
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["t.vdt", "t.vdt.awaited"]);
    assert!(std::fs::read(&copy).unwrap() == std::fs::read(file(&db, "d/t")).unwrap());
    import(&db, "d/t").unwrap();
    assert_eq!(rows(&db, "d/t").unwrap(), whole);
}

/// Rows go from one to another all the time. Each file that is copied has all of their sum.
#[test]
fn a_table_is_exported_under_writers() {
    const ACCOUNTS: i64 = 300;
    let base = tempfile::tempdir().unwrap();
    let db = open(&base.path().join("source"));
    let other = open(&base.path().join("other"));
    let definition = |name: &str| {
        TableDef::new(name)
            .column("id", ColumnType::i64())
            .column("sum", ColumnType::i64())
            .primary(&["id"])
            .index("by_sum", &["sum"])
    };
    let table = db.create_table(&definition("s/t")).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ACCOUNTS {
        table.put(&mut trx, values![id, 100]).unwrap();
    }
    trx.commit().unwrap();
    let (end, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    let writer = |seed: i64| {
        let mut n = seed;
        while !end.load(Ordering::Relaxed) {
            n += 7;
            let (from, to) = (n % ACCOUNTS, (n * 31 + 1) % ACCOUNTS);
            let mut trx = db.begin(Isolation::RepeatableRead);
            let mut step = |id: i64, by: i64| -> Result<()> {
                let row = table.get_for_update(&mut trx, values![id])?;
                let sum: i64 = row.expect("accounts stay").get("sum")?;
                table.put(&mut trx, values![id, sum + by])
            };
            let done = step(from, -1).and_then(|()| step(to, 1));
            match done {
                Ok(()) if n % 5 > 0 => {
                    trx.commit().unwrap();
                    moved.fetch_add(1, Ordering::Relaxed);
                }
                Ok(()) | Err(Error::Deadlock) => trx.rollback().unwrap(),
                Err(e) => panic!("{e}"),
            }
        }
    };
    std::thread::scope(|scope| {
        (0..3).for_each(|seed| drop(scope.spawn(move || writer(seed))));
        let mut seen = 0;
        for round in 0..8 {
            while moved.load(Ordering::Relaxed) < seen + 50 {
                std::thread::yield_now();
            }
            let export = export(&db, "s/t");
            seen = moved.load(Ordering::Relaxed);
            let name = format!("o/t{round}");
            other.create_table(&definition(&name)).unwrap();
            discard(&other, &name).unwrap();
            std::fs::copy(file(&db, "s/t"), file(&other, &name)).unwrap();
            drop(export);
            import(&other, &name).unwrap();
            check_table(&other, &name);
            let rows = rows(&other, &name).unwrap();
            let sums = rows.iter().map(|row| match row[1] {
                Value::Int(sum) => sum,
                _ => panic!("no sum"),
            });
            assert_eq!((rows.len() as i64, sums.sum()), (ACCOUNTS, ACCOUNTS * 100));
        }
        end.store(true, Ordering::Relaxed);
    });
}
