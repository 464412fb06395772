//! Tables whose rows are written anew: what becomes of them, and what is refused. That they are used
//! meanwhile is in `online_index.rs`, that they may be killed in `ddl_crash.rs`.

#[path = "support/small.rs"]
mod small;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use varve::{
    ColumnType, Cursor, Database, Datum, DatumBuf, Error, IndexDef, Isolation, KeyMatch, KeyPart,
    LockMode, PreparedRedefinition, RedefinitionWaits, RowRef, Table, TableDef, Transaction, Value,
    ValueSource,
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

/// Gives the rows the numbers 10, 20, and so on.
struct Tens(AtomicI64);

impl ValueSource for Tens {
    fn statement_time(&self) -> varve::Result<Vec<u8>> {
        Err(Error::invalid("the table keeps no history"))
    }

    fn computed(&self, _: &str, _: &[Datum<'_>], columns: &[usize]) -> varve::Result<DatumBuf> {
        assert_eq!(columns, [2]);
        let mut out = DatumBuf::new();
        out.push(Some(&self.0.fetch_add(10, Relaxed).to_le_bytes()));
        Ok(out)
    }
}

fn prepare_counting(db: &Database, def: &TableDef) -> PreparedRedefinition {
    let waits = RedefinitionWaits::default();
    let mut prepared = db.prepare_rebuild(def, waits).unwrap();
    let source: Arc<dyn ValueSource> = Arc::new(Tens(AtomicI64::new(10)));
    prepared.set_value_source(&source).unwrap();
    prepared
}

/// A new column is counted in the order of the rows, and may be the primary key. Others may read meanwhile
/// (REBUILD-3): a row that they write would get its number out of order.
#[test]
fn a_new_column_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = filled(&db, &keyless(), (0..300).map(|n| keyless_row(n).to_vec()));
    let mut def = keyless()
        .column("id", ColumnType::i64())
        .primary(&["id"])
        .auto_increment("id");
    def.columns[2].default = Some(vec![0; 8]);
    let mut prepared = prepare_counting(&db, &def);
    prepared.build(&mut |_, _| {}).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    trx.set_lock_wait_timeout(Duration::from_millis(20));
    let refused = table.insert(&mut trx, &keyless_row(1000)).unwrap_err();
    assert!(matches!(refused, Error::LockWaitTimeout), "{refused}");
    assert_eq!(all(&db).len(), 300);
    trx.rollback().unwrap();
    drop(prepared);
    is_sound(&db);
    let mut trx = db.begin(Isolation::RepeatableRead);
    table.insert(&mut trx, &keyless_row(1000)).unwrap();
    trx.commit().unwrap();
    let before = all(&db);
    assert_eq!(before.len(), 301);
    drop(table);
    // It has to be asked for.
    let refused = db.rebuild_table(&def).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    let refused = db.redefine_table(&def).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    prepare_counting(&db, &def).commit(&mut |_, _| {}).unwrap();
    is_sound(&db);
    let numbered: Vec<_> = (before.into_iter().zip(1..))
        .map(|(mut row, n)| {
            row.push(Value::Int(10 * n));
            row
        })
        .collect();
    assert_eq!(all(&db), numbered);
    let table = db.table("a/t").unwrap();
    assert_eq!(table.auto_increment_next(), 3011);
    // Another column has nothing of the counter of the one that goes.
    table.set_auto_increment(9000).unwrap();
    let mut def = table.def().clone();
    drop(table);
    (def.columns[2].name, def.columns[2].id) = ("number".into(), 40);
    def.columns[2].default = Some(vec![0; 8]);
    prepare_counting(&db, &def).commit(&mut |_, _| {}).unwrap();
    is_sound(&db);
    assert_eq!(all(&db), numbered);
    assert_eq!(db.table("a/t").unwrap().auto_increment_next(), 3011);
}

/// Numbers rows, and gives them what is twice the number.
struct Doubled(AtomicI64);

impl ValueSource for Doubled {
    fn statement_time(&self) -> varve::Result<Vec<u8>> {
        Err(Error::invalid("the table keeps no history"))
    }

    fn computed(&self, _: &str, row: &[Datum<'_>], columns: &[usize]) -> varve::Result<DatumBuf> {
        assert_eq!((row.len(), columns), (4, &[3, 0][..]));
        let number = self.0.fetch_add(1, Relaxed);
        let mut out = DatumBuf::new();
        out.push(Some(&number.to_le_bytes()));
        out.push(Some(&(2 * number).to_le_bytes()));
        Ok(out)
    }

    fn instead_of_null(&self, _: &str, _: usize, _: u64) -> Option<Vec<u8>> {
        Some(7i64.to_le_bytes().to_vec())
    }
}

/// What is computed of a new number is asked for after it, wherever it stands, also where something takes the
/// place of NULL.
#[test]
fn a_column_is_computed_of_a_new_number() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let rows = (0..4).map(|n| keyless_row(n).to_vec());
    let rows = rows.chain([vec![Value::Null, Value::Bytes(vec![1])]]);
    let old = filled(&db, &keyless(), rows).def().clone();
    let mut def = TableDef::new("a/t")
        .nullable("twice", ColumnType::i64())
        .column("n", ColumnType::i64())
        .nullable("long", ColumnType::Bytes(100_000))
        .column("id", ColumnType::i64())
        .primary(&["id"])
        .index("by_n", &["n"])
        .unique("by_twice", &["twice"])
        .auto_increment("id");
    def.computed = vec![0];
    def.columns[3].default = Some(vec![0; 8]);
    (def.columns[0].id, def.columns[3].id) = (40, 41);
    (def.columns[1].id, def.columns[2].id) = (old.columns[0].id, old.columns[1].id);
    let mut prepared = (db.prepare_rebuild(&def, RedefinitionWaits::default())).unwrap();
    let source: Arc<dyn ValueSource> = Arc::new(Doubled(AtomicI64::new(1)));
    prepared.set_value_source(&source).unwrap();
    prepared.commit(&mut |_, _| {}).unwrap();
    is_sound(&db);
    let found: Vec<_> = (all(&db).iter())
        .map(|row| [0, 1, 3].map(|at| row[at].clone()))
        .collect();
    let expected = [(2, 0, 1), (4, 1, 2), (6, 2, 3), (8, 3, 4), (10, 7, 5)];
    let expected = expected.map(|(twice, n, id)| [twice, n, id].map(Value::Int));
    assert_eq!(found, expected);
}

/// Has a text of the first column, and what is left of the second one in a byte; refuses 13.
struct Converting;

impl ValueSource for Converting {
    fn statement_time(&self) -> varve::Result<Vec<u8>> {
        Err(Error::invalid("the table keeps no history"))
    }

    fn computed(&self, _: &str, _: &[Datum<'_>], _: &[usize]) -> varve::Result<DatumBuf> {
        Err(Error::invalid("nothing is computed"))
    }

    fn converted(
        &self,
        table: &str,
        row: &[Datum<'_>],
        columns: &[usize],
        n: u64,
    ) -> varve::Result<DatumBuf> {
        assert!(["a/t", "a/u"].contains(&table), "{table}");
        assert_eq!(columns, [0, 2]);
        let key = i32::from_le_bytes(row[0].unwrap().try_into().unwrap());
        if key == 13 {
            return Err(Error::invalid(format!("row {n} has 13")));
        }
        let mut out = DatumBuf::new();
        out.push(Some(format!("{key:05}").as_bytes()));
        out.push(row[1].map(|bytes| &bytes[..1]));
        Ok(out)
    }
}

/// REBUILD-1. Columns get other types, in keys, too; also in rows that come, change and go meanwhile. What is
/// refused of one row leaves the table alone.
#[test]
fn columns_are_converted() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let def = TableDef::new("a/t")
        .column("key", ColumnType::i32())
        .nullable("n", ColumnType::u16())
        .column("plain", ColumnType::Bytes(10))
        .primary(&["key"])
        .unique("by_n", &["n"]);
    let row = |key: i64, n: Option<u64>| {
        let n = n.map_or(Value::Null, Value::UInt);
        vec![Value::Int(key), n, Value::Bytes(vec![key as u8; 3])]
    };
    let rows = [
        row(3, Some(3)),
        row(5, None),
        row(7, Some(7)),
        row(200, Some(200)),
    ];
    let table = filled(&db, &def, rows.into_iter());
    let mut to = TableDef::new("a/t")
        .column("key", ColumnType::Bytes(8))
        .column("plain", ColumnType::Bytes(10))
        .nullable("n", ColumnType::u8())
        .primary(&["key"])
        .unique("by_n", &["n"]);
    (to.columns[0].id, to.columns[1].id, to.columns[2].id) = (40, table.def().columns[2].id, 41);
    to.columns[0].default = Some(Vec::new());
    let prepared = |converted: &[usize]| {
        let waits = RedefinitionWaits::default();
        let mut prepared = db.prepare_conversion(&to, converted, waits)?;
        prepared.set_value_source(&(Arc::new(Converting) as Arc<dyn ValueSource>))?;
        Ok(prepared)
    };
    for wrong in [&[1][..], &[0, 2, 3][..]] {
        let refused: varve::Result<PreparedRedefinition> = prepared(wrong);
        let refused = refused.err().unwrap();
        assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
    }
    let change = |key: i64, n: Option<u64>| {
        let mut trx = db.begin(Isolation::RepeatableRead);
        table.insert(&mut trx, &row(key, n)).unwrap();
        trx.commit().unwrap();
    };
    let remove = |at: usize| {
        let mut trx = db.begin(Isolation::RepeatableRead);
        let cursor = go_to(&mut trx, &table, at);
        trx.delete(&table, &cursor).unwrap();
        trx.commit().unwrap();
    };
    let mut first = prepared(&[0, 2]).unwrap();
    first.build(&mut |_, _| {}).unwrap();
    change(13, Some(13));
    let refused = first.commit(&mut |_, _| {}).unwrap_err();
    assert_eq!(refused.to_string(), "invalid argument: row 1 has 13");
    is_sound(&db);
    assert_eq!(all(&db).len(), 5);
    remove(3);
    let mut second = prepared(&[0, 2]).unwrap();
    second.build(&mut |_, _| {}).unwrap();
    change(-4, Some(0x104));
    remove(1);
    change(3, Some(0x105));
    second.commit(&mut |_, _| {}).unwrap();
    is_sound(&db);
    let new = |key: &str, plain: u8, n: Option<u64>| {
        let n = n.map_or(Value::Null, Value::UInt);
        let bytes = |bytes: &[u8]| Value::Bytes(bytes.to_vec());
        vec![bytes(key.as_bytes()), bytes(&[plain; 3]), n]
    };
    let expected = [
        new("-0004", 252, Some(4)),
        new("00003", 3, Some(5)),
        new("00005", 5, None),
        new("00007", 7, Some(7)),
        new("00200", 200, Some(200)),
    ];
    assert_eq!(all(&db), expected);
    drop(table);
    db.close().unwrap();
    let db = open(dir.path());
    assert_eq!(all(&db), expected);
    is_sound(&db);
}

/// REBUILD-1. So do those of several tables, all or none: what is refused of a row of the last one leaves all
/// alone.
#[test]
fn columns_of_several_tables_are_converted() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let def = |name: &str| {
        TableDef::new(name)
            .column("key", ColumnType::i32())
            .column("plain", ColumnType::u8())
            .nullable("n", ColumnType::u16())
            .primary(&["key"])
    };
    let to = |name: &str| {
        let mut to = TableDef::new(name)
            .column("key", ColumnType::Bytes(8))
            .column("plain", ColumnType::u8())
            .nullable("n", ColumnType::u8())
            .primary(&["key"]);
        let now = db.table(name).unwrap();
        let ids = [40, now.def().columns[1].id, 41];
        (to.columns.iter_mut().zip(ids)).for_each(|(column, id)| column.id = id);
        to.columns[0].default = Some(Vec::new());
        to
    };
    for name in ["a/t", "a/u"] {
        let table = db.create_table(&def(name)).unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        for key in [7, 13] {
            let row = [Value::Int(key), Value::UInt(1), Value::Null];
            if name == "a/u" || key == 7 {
                table.insert(&mut trx, &row).unwrap();
            }
        }
        trx.commit().unwrap();
    }
    let convert = || {
        let waits = RedefinitionWaits::default();
        let mut prepared = db.prepare_conversion(&to("a/t"), &[0, 2], waits)?;
        prepared.set_value_source(&(Arc::new(Converting) as Arc<dyn ValueSource>))?;
        prepared.and_convert(&to("a/u"), &[0, 2])?;
        prepared.commit(&mut |_, _| {})
    };
    let refused = convert().unwrap_err();
    assert_eq!(refused.to_string(), "invalid argument: row 2 has 13");
    let is_text = |name: &str| db.table(name).unwrap().def().columns[0].ty == ColumnType::Bytes(8);
    assert_eq!(["a/t", "a/u"].map(is_text), [false, false]);
    let mut trx = db.begin(Isolation::RepeatableRead);
    let last = db.table("a/u").unwrap();
    let cursor = go_to(&mut trx, &last, 1);
    trx.delete(&last, &cursor).unwrap();
    trx.commit().unwrap();
    drop(last);
    convert().unwrap();
    for name in ["a/t", "a/u"] {
        let table = db.table(name).unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        let mut cursor = table.cursor(0).unwrap();
        let key = table
            .def()
            .key(0, &[Value::Bytes(b"00007".to_vec())])
            .unwrap();
        let found = cursor.seek(&mut trx, &key.datums(), KeyMatch::Exact, LockMode::None);
        assert!(found.unwrap(), "{name}");
        let report = db.check_table(&table).unwrap();
        assert_eq!((report.errors, report.rows), (vec![], 1));
    }
}

/// The counter is set together with the definition, but not to less than what follows the rows. A column that
/// is counted goes with its counter.
#[test]
fn a_counter_is_set_with_a_definition() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .nullable("n", ColumnType::i64())
        .primary(&["id"])
        .auto_increment("id");
    let row = |n| vec![Value::Int(n), Value::Int(n)];
    let table = filled(&db, &def, (-5..50).map(row));
    table.set_auto_increment(700).unwrap();
    let next = || db.table("a/t").unwrap().auto_increment_next();
    let mut def = table.def().clone();
    drop(table);
    let prepared = |def: &TableDef, next| {
        let waits = RedefinitionWaits::default();
        let mut prepared = db.prepare_redefinition(def, waits).unwrap();
        prepared.set_auto_increment(next).unwrap();
        prepared
    };
    def = def.nullable("more", ColumnType::i64());
    drop(prepared(&def, 5));
    assert_eq!(next(), 700);
    for (asked, expected) in [(900, 900), (60, 60), (5, 50)] {
        prepared(&def, asked).commit(&mut |_, _| {}).unwrap();
        assert_eq!(next(), expected);
        def = def.nullable(&format!("from {asked}"), ColumnType::i64());
    }
    for (asked, expected) in [(900, 900), (0, 50)] {
        let waits = RedefinitionWaits::default();
        let mut rebuilt = db.prepare_rebuild(&def, waits).unwrap();
        rebuilt.set_auto_increment(asked).unwrap();
        rebuilt.commit(&mut |_, _| {}).unwrap();
        assert_eq!(next(), expected);
    }
    // By itself.
    prepared(&def, 80).commit(&mut |_, _| {}).unwrap();
    assert_eq!(next(), 80);
    is_sound(&db);
}

/// Of a floating-point column the greatest value may be one that moves no counter. It is found by whichever
/// index begins with the column.
#[test]
fn a_counter_passes_over_what_does_not_move_it() {
    let plain = TableDef::new("a/t").column("id", ColumnType::Double);
    let falling = vec![KeyPart::new(0).descending()];
    for def in [
        plain.clone().primary(&["id"]),
        plain.clone().index("by_id", &["id"]),
        plain.clone().add_index(IndexDef::new("by_id", falling)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        let def = def.auto_increment("id");
        let values = [-3.5, 0.25, 17.0, 1e300, f64::MAX];
        let rows = values.map(|value| vec![Value::Double(value)]);
        drop(filled(&db, &def, rows.into_iter()));
        let set = |def: &TableDef, next| {
            let waits = RedefinitionWaits::default();
            let mut prepared = db.prepare_redefinition(def, waits).unwrap();
            prepared.set_auto_increment(next).unwrap();
            prepared.commit(&mut |_, _| {}).unwrap();
            db.table("a/t").unwrap().auto_increment_next()
        };
        assert_eq!(set(&def, 100), 100);
        assert_eq!(set(&def, 1), 18);
        let waits = RedefinitionWaits::default();
        let mut rebuilt = db.prepare_rebuild(&def, waits).unwrap();
        rebuilt.set_auto_increment(2).unwrap();
        rebuilt.commit(&mut |_, _| {}).unwrap();
        assert_eq!(db.table("a/t").unwrap().auto_increment_next(), 18);
    }
}
