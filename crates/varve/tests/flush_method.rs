//! Databases whose files are read and written past the operating system's cache are the same databases: they
//! survive crashes, may be opened the other way next time, and say so where the file system can't do it.

use std::path::Path;
use std::sync::{Arc, Mutex};

use varve::internals::io::{Disk, Overlay, RealDisk};
use varve::{
    ColumnType, Database, FlushMethod, Isolation, LockMode, LogLevel, Options, TableDef, values,
};

const ROWS: i64 = 20_000;

/// Opens it with a pool that holds a tenth of the rows; returns the warnings, too.
fn open(disk: Arc<dyn Disk>, dir: &Path, method: FlushMethod) -> (Database, Vec<String>) {
    let warnings: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = warnings.clone();
    let options = Options {
        page_size: 4096,
        buffer_pool_bytes: 256 * 4096,
        flush_method: method,
        logger: Some(Arc::new(move |level, message| {
            if level != LogLevel::Note {
                told.lock().unwrap().push(message.into());
            }
        })),
        ..Options::default()
    };
    let db = Database::open_on(disk, dir, options).unwrap();
    let warnings = warnings.lock().unwrap().clone();
    (db, warnings)
}

fn fill(db: &Database) {
    let def = TableDef::new("s/t")
        .column("id", ColumnType::i64())
        .column("what", ColumnType::text(1000))
        .primary(&["id"]);
    let table = db.create_table(&def).unwrap();
    // In no order, so that pages come and go.
    for from in (0..ROWS).step_by(500) {
        let mut trx = db.begin(Isolation::RepeatableRead);
        for n in from..from + 500 {
            let id = n * 7919 % ROWS;
            table.insert(&mut trx, values![id, what(id)]).unwrap();
        }
        trx.commit().unwrap();
    }
}

fn what(id: i64) -> String {
    format!("{id:0>200}")
}

fn check(db: &Database) {
    let table = db.table("s/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    let mut on_row = cursor.first(&mut trx, LockMode::None).unwrap();
    for id in 0..ROWS {
        assert!(on_row, "{id}");
        let row = cursor.row().unwrap();
        assert_eq!(row.value(0).unwrap(), id.into());
        assert_eq!(row.value(1).unwrap(), what(id).as_str().into());
        on_row = cursor.next(&mut trx).unwrap();
    }
    assert!(!on_row);
}

fn is_direct(db: &Database) -> bool {
    let table = db.core().tables.get("s/t").unwrap();
    table.clustered.tree.space.is_direct().unwrap()
}

#[test]
fn files_may_be_used_either_way() {
    let dir = tempfile::tempdir().unwrap();
    let disk = || Arc::new(RealDisk);
    let (db, warnings) = open(disk(), dir.path(), FlushMethod::Direct);
    fill(&db);
    let has_direct = is_direct(&db);
    assert_eq!(warnings.is_empty(), has_direct, "{warnings:?}");
    check(&db);
    db.crash();
    for method in [FlushMethod::Direct, FlushMethod::Fsync, FlushMethod::Direct] {
        let (db, _) = open(disk(), dir.path(), method);
        assert_eq!(is_direct(&db), has_direct && method == FlushMethod::Direct);
        check(&db);
        db.close().unwrap();
    }
}

#[test]
fn a_file_system_without_direct_access_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(Overlay::new(Arc::new(RealDisk)));
    let (db, warnings) = open(disk.clone(), dir.path(), FlushMethod::Direct);
    assert!(
        warnings[0].contains("flush_method O_DIRECT"),
        "{warnings:?}"
    );
    fill(&db);
    assert!(!is_direct(&db));
    check(&db);
    db.close().unwrap();
    let (db, warnings) = open(disk, dir.path(), FlushMethod::Fsync);
    assert!(warnings.is_empty(), "{warnings:?}");
    check(&db);
}
