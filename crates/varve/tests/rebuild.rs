//! Tables whose rows are written anew: what becomes of them, and what is refused. That they are used
//! meanwhile is in `online_index.rs`, that they may be killed in `ddl_crash.rs`.

#[path = "support/small.rs"]
mod small;

use std::path::Path;

use varve::{
    ColumnType, Cursor, Database, Error, Isolation, LockMode, RedefinitionWaits, RowRef, Table,
    TableDef, Transaction, Value,
};
use varve_sim::{Failure, Fault, Operation, SimDisk, sample};

fn open(dir: &Path) -> Database {
    Database::open(dir, small::options()).unwrap()
}

fn files(dir: &Path) -> Vec<String> {
    let files = std::fs::read_dir(dir.join("a")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.collect()
}

fn rows(db: &Database, trx: &mut Transaction) -> varve::Result<Vec<Vec<Value>>> {
    let table = db.table("a/t")?;
    let mut cursor = table.cursor(0)?;
    let mut found = Vec::new();
    let mut more = cursor.first(trx, LockMode::None)?;
    while more {
        let row = cursor.row()?;
        found.push((0..row.len()).map(|at| row.value(at).unwrap()).collect());
        more = cursor.next(trx)?;
    }
    Ok(found)
}

fn all(db: &Database) -> Vec<Vec<Value>> {
    rows(db, &mut db.begin(Isolation::RepeatableRead)).unwrap()
}

fn is_sound(db: &Database) {
    let report = db.check_table(&db.table("a/t").unwrap()).unwrap();
    assert_eq!(report.errors, [""; 0]);
}

fn keyless() -> TableDef {
    TableDef::new("a/t")
        .nullable("n", ColumnType::i64())
        .nullable("long", ColumnType::Bytes(100_000))
        .index("by_n", &["n"])
}

fn keyless_row(n: i64) -> [Value; 2] {
    let len = if n % 50 == 0 { 20_000 } else { 30 };
    [Value::Int(n % 40), Value::Bytes(vec![n as u8; len])]
}

fn filled(db: &Database, def: &TableDef, rows: impl Iterator<Item = Vec<Value>>) -> Table {
    let table = db.create_table(def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for row in rows {
        table.insert(&mut trx, &row).unwrap();
    }
    trx.commit().unwrap();
    table
}

/// Goes to the row with this number.
fn go_to(trx: &mut Transaction, table: &Table, n: usize) -> Cursor {
    let mut cursor = table.cursor(0).unwrap();
    assert!(cursor.first(trx, LockMode::Exclusive).unwrap());
    for _ in 0..n {
        assert!(cursor.next(trx).unwrap());
    }
    cursor
}

/// REBUILD-1. Rows without a key are found again by their hidden ids.
#[test]
fn rows_keep_their_hidden_ids() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = filled(&db, &keyless(), (0..300).map(|n| keyless_row(n).to_vec()));
    let mut prepared = db
        .prepare_rebuild(&keyless(), RedefinitionWaits::default())
        .unwrap();
    prepared.build(&mut |_, _| {}).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let cursor = go_to(&mut trx, &table, 7);
    trx.delete(&table, &cursor).unwrap();
    for (n, value) in [(30, 1), (49, 2)] {
        let cursor = go_to(&mut trx, &table, n);
        let row = table.def().row(&keyless_row(value)).unwrap();
        trx.update(&table, &cursor, &row.datums()).unwrap();
    }
    table.insert(&mut trx, &keyless_row(1000)).unwrap();
    trx.commit().unwrap();
    let before = all(&db);
    assert_eq!(before.len(), 300);
    drop(table);
    prepared.commit(&mut |_, _| {}).unwrap();
    is_sound(&db);
    assert_eq!(all(&db), before);
    let mut trx = db.begin(Isolation::RepeatableRead);
    let table = db.table("a/t").unwrap();
    table.insert(&mut trx, &keyless_row(2000)).unwrap();
    trx.commit().unwrap();
    drop(table);
    assert_eq!(all(&db).last().unwrap(), &keyless_row(2000));
    // A primary key takes their place.
    let def = TableDef::new("a/t")
        .column("n", ColumnType::i64())
        .nullable("long", ColumnType::Bytes(100_000))
        .primary(&["n"]);
    let mut told = None;
    let mut tell = |index: &str, row: &RowRef<'_>| told = Some((index.to_string(), row.len()));
    let prepared = db.prepare_rebuild(&def, RedefinitionWaits::default());
    let refused = prepared.unwrap().commit(&mut tell).unwrap_err();
    assert!(matches!(refused, Error::DuplicateKey { .. }), "{refused}");
    assert_eq!(told, Some(("PRIMARY".into(), 2)));
    assert_eq!(files(dir.path()), ["t.vdt"]);
    is_sound(&db);
}

/// A column that ceases to take NULL has none in any row; the key goes along.
#[test]
fn nulls_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let rows = (0..100).map(|n| vec![Value::Int(n), Value::Null]);
    let table = filled(&db, &keyless(), rows);
    let def = TableDef::new("a/t")
        .column("n", ColumnType::i64())
        .column("long", ColumnType::Bytes(100_000))
        .primary(&["n"]);
    let refused = db.rebuild_table(&def).unwrap_err();
    let is_long = |e: &Error| matches!(e, Error::NullValue { column, row: 1 } if column == "long");
    assert!(is_long(&refused), "{refused}");
    let mut trx = db.begin(Isolation::RepeatableRead);
    for n in 0..100 {
        let cursor = go_to(&mut trx, &table, n);
        let row = [Value::Int(n as i64), Value::Bytes(vec![n as u8; 10])];
        let row = table.def().row(&row).unwrap();
        trx.update(&table, &cursor, &row.datums()).unwrap();
    }
    trx.commit().unwrap();
    // One that comes while it is built.
    let mut prepared = db
        .prepare_rebuild(&def, RedefinitionWaits::default())
        .unwrap();
    prepared.build(&mut |_, _| {}).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    table
        .insert(&mut trx, &[Value::Int(500), Value::Null])
        .unwrap();
    trx.commit().unwrap();
    let refused = prepared.commit(&mut |_, _| {}).unwrap_err();
    assert!(is_long(&refused), "{refused}");
    let mut trx = db.begin(Isolation::RepeatableRead);
    let cursor = go_to(&mut trx, &table, 100);
    trx.delete(&table, &cursor).unwrap();
    trx.commit().unwrap();
    drop(table);
    db.rebuild_table(&def).unwrap();
    is_sound(&db);
    assert_eq!(files(dir.path()), ["t.vdt"]);
    let table = db.table("a/t").unwrap();
    assert!(!table.def().columns[1].nullable);
    // It can't do without again: rows could not be found.
    let refused = db.rebuild_table(&keyless()).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
}

/// Views of before the end don't read the table; counters go on; a table that was altered in between is read
/// as it is.
#[test]
fn what_stays_and_what_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let mut def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .nullable("n", ColumnType::i64())
        .primary(&["id"]);
    def.auto_increment = Some(0);
    let row = |n| vec![Value::Int(n), Value::Int(n)];
    let table = filled(&db, &def, (1..50).map(row));
    table.set_auto_increment(700).unwrap();
    let stored = table.def().clone();
    drop(table);
    // Rows of older versions.
    let mut def = stored.nullable("more", ColumnType::Bytes(100));
    def.columns[2].default = Some(b"x".to_vec());
    db.redefine_table(&def).unwrap();
    let before = all(&db);
    assert_eq!(
        before[3],
        [Value::Int(4), Value::Int(4), Value::Bytes(b"x".to_vec())]
    );
    let mut old = db.begin(Isolation::RepeatableRead);
    // So that nobody has to wait for it.
    old.trust_metadata_locks();
    old.take_snapshot();
    let mut prepared = db
        .prepare_rebuild(db.table("a/t").unwrap().def(), RedefinitionWaits::default())
        .unwrap();
    prepared.build(&mut |_, _| {}).unwrap();
    assert_eq!(rows(&db, &mut old).unwrap(), before);
    let mut younger = db.begin(Isolation::RepeatableRead);
    younger.trust_metadata_locks();
    younger.take_snapshot();
    prepared.commit(&mut |_, _| {}).unwrap();
    for mut view in [old, younger] {
        let refused = rows(&db, &mut view).unwrap_err();
        assert!(
            matches!(refused, Error::DefinitionChanged { .. }),
            "{refused}"
        );
    }
    assert_eq!(all(&db), before);
    is_sound(&db);
    let table = db.table("a/t").unwrap();
    assert_eq!(table.auto_increment_next(), 700);
    assert_eq!(table.def().schema_version, 1);
    drop(table);
    db.close().unwrap();
    let db = open(dir.path());
    assert_eq!(db.table("a/t").unwrap().auto_increment_next(), 700);
    assert_eq!(all(&db), before);
    is_sound(&db);
}

/// REBUILD-2: also what a start finds that has no time for it.
#[test]
fn what_a_crash_leaves_goes() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    drop(filled(
        &db,
        &keyless(),
        (0..300).map(|n| keyless_row(n).to_vec()),
    ));
    let mut prepared = db
        .prepare_rebuild(&keyless(), RedefinitionWaits::default())
        .unwrap();
    prepared.build(&mut |_, _| {}).unwrap();
    assert_eq!(files(dir.path()).len(), 2);
    db.crash();
    drop(prepared);
    assert_eq!(files(dir.path()).len(), 2);
    let db = open(dir.path());
    assert!(db.wait_for_recovery(std::time::Duration::from_secs(60)));
    assert_eq!(db.tables().unwrap(), ["a/t"]);
    assert_eq!(files(dir.path()), ["t.vdt"]);
    db.rebuild_table(&keyless()).unwrap();
    assert_eq!(all(&db).len(), 300);
    is_sound(&db);
}

/// REBUILD-2: what fails a rebuild, and goes on doing so, may fail the drop of its table, too. That is done
/// by the next statement; it may be the one that drops the table by its name.
#[test]
fn what_could_not_be_dropped_goes_with_the_next_statement() {
    let disk = SimDisk::default();
    let db = sample::open(&disk).unwrap();
    // More than the pool has room for.
    let def = keyless();
    drop(filled(&db, &def, (0..6000).map(|n| keyless_row(n).into())));
    db.close().unwrap();
    let image = disk.image();
    let left = |db: &Database| {
        let names = db.tables().unwrap_or_default().into_iter();
        Vec::from_iter(names.filter(|name| name.contains("#rebuild-")))
    };
    let mut found = 0;
    for n in 0.. {
        let disk = SimDisk::new(image.clone());
        let db = sample::open(&disk).unwrap();
        disk.inject(Fault::always(Operation::Any, Failure::Io).limited(n, u64::MAX));
        let rebuilt = db.rebuild_table(&def);
        let next = TableDef::new("b/next").column("id", ColumnType::i64());
        if !left(&db).is_empty() {
            // Nothing has become better.
            assert!(db.create_table(&next).is_err());
        }
        disk.heal();
        if rebuilt.is_ok() {
            break;
        }
        if let [name] = &left(&db)[..] {
            let done = match found % 2 {
                0 => db.create_table(&next).map(drop),
                _ => db.drop_table(name),
            };
            // A write of the log may have failed, too, and ended it all.
            if !matches!(done, Err(Error::Poisoned { .. })) {
                done.unwrap();
                assert_eq!(left(&db), [""; 0], "{n}");
                found += 1;
            }
        }
        db.crash();
    }
    assert!(found > 1, "{found}");
}
