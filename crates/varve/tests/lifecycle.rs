//! A table's life: filled, read both ways, crashed, changed, purged, truncated, renamed, closed, dropped.

use std::time::Duration;

use varve::{
    ColumnType, Database, Error, Isolation, KeyMatch, LockMode, Options, Table, TableDef, Value,
};

const ROWS: i64 = 3000;

fn options() -> Options {
    Options {
        page_size: 4096,
        buffer_pool_bytes: 4 << 20,
        redo_capacity_bytes: 16 << 20,
        ..Options::default()
    }
}

fn def() -> TableDef {
    TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .column("c", ColumnType::text(100))
        .primary(&["id"])
        .index("by_k", &["k"])
}

fn insert(db: &Database, table: &Table, id: i64, commit: bool) {
    let mut trx = db.begin(Isolation::RepeatableRead);
    let row = [
        Value::Int(id),
        Value::Int(id * 7 % 1000),
        Value::Text(format!("row {id}")),
    ];
    trx.insert(table, &table.def().row(&row).unwrap().datums())
        .unwrap();
    if commit {
        trx.commit().unwrap()
    } else {
        trx.rollback().unwrap()
    }
}

/// Counts the rows by each index, forward and backward.
fn count(db: &Database, name: &str) -> u64 {
    let table = db.table(name).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut counts = Vec::new();
    for index in 0..=table.def().indexes.len() {
        let mut cursor = table.cursor(index).unwrap();
        let (mut forward, mut backward) = (0, 0);
        let mut more = cursor.first(&mut trx, LockMode::None).unwrap();
        while more {
            forward += 1;
            more = cursor.next(&mut trx).unwrap();
        }
        let mut more = cursor.last(&mut trx, LockMode::None).unwrap();
        while more {
            backward += 1;
            more = cursor.prev(&mut trx).unwrap();
        }
        counts.extend([forward, backward]);
    }
    assert!(counts.iter().all(|c| *c == counts[0]), "{counts:?}");
    counts[0]
}

fn check(db: &Database, name: &str, rows: u64, deleted: u64) {
    let report = db.check_table(&db.table(name).unwrap()).unwrap();
    assert!(report.errors.is_empty(), "{:#?}", report.errors);
    assert_eq!((report.rows, report.deleted_rows), (rows, deleted));
}

#[test]
fn a_table_lives_through_crashes_and_changes() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.create_table(&def()).unwrap();
    (0..ROWS).for_each(|id| insert(&db, &table, id, id % 10 != 3));
    let rows = (ROWS - ROWS / 10) as u64;
    assert_eq!(count(&db, "a/t"), rows);
    check(&db, "a/t", rows, 0);
    db.crash();

    let db = Database::open(dir.path(), options()).unwrap();
    assert_eq!(count(&db, "a/t"), rows);
    check(&db, "a/t", rows, 0);
    delete_half_and_change_the_rest(&db);
    assert_eq!(count(&db, "a/t"), rows / 2);
    assert!(
        db.wait_for_purge(Duration::from_secs(60)),
        "{:?}",
        db.status()
    );
    check(&db, "a/t", rows / 2, 0);

    db.truncate_table("a/t").unwrap();
    assert_eq!(count(&db, "a/t"), 0);
    insert(&db, &db.table("a/t").unwrap(), 1, true);
    db.rename_table("a/t", "b/u").unwrap();
    assert!(matches!(db.table("a/t"), Err(Error::NotFound { .. })));
    db.close().unwrap();

    let db = Database::open(dir.path(), options()).unwrap();
    assert_eq!(db.tables().unwrap(), ["b/u"]);
    assert_eq!(count(&db, "b/u"), 1);
    db.drop_table("b/u").unwrap();
    db.close().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    assert!(db.tables().unwrap().is_empty());
}

fn delete_half_and_change_the_rest(db: &Database) {
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    let mut more = cursor.first(&mut trx, LockMode::Exclusive).unwrap();
    let mut n = 0;
    while more {
        if n % 2 == 0 {
            trx.delete(&table, &cursor).unwrap();
        } else {
            let id = i64::from_le_bytes(cursor.row().unwrap().get(0).unwrap().try_into().unwrap());
            let row = [
                Value::Int(id),
                Value::Int(id % 13),
                Value::Text("a changed row".into()),
            ];
            trx.update(&table, &cursor, &table.def().row(&row).unwrap().datums())
                .unwrap();
        }
        n += 1;
        more = cursor.next(&mut trx).unwrap();
    }
    trx.commit().unwrap();
}

/// TRX-2. What it had locked is free, too.
#[test]
fn a_transaction_that_is_dropped_is_rolled_back() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.create_table(&def()).unwrap();
    let put = |id: i64| {
        let mut trx = db.begin(Isolation::RepeatableRead);
        trx.set_lock_wait_timeout(Duration::ZERO);
        let row = [Value::Int(id), Value::Int(id), Value::Text("row".into())];
        let row = table.def().row(&row).unwrap();
        trx.insert(&table, &row.datums()).map(|_| trx)
    };
    put(1).unwrap().commit().unwrap();
    let dropped = put(2).unwrap();
    assert!(matches!(put(2), Err(Error::LockWaitTimeout)));
    drop(dropped);
    assert_eq!(count(&db, "a/t"), 1);
    put(2).unwrap().commit().unwrap();
    check(&db, "a/t", 2, 0);
}

#[test]
fn an_old_view_reads_old_rows_while_others_change_them() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.create_table(&def()).unwrap();
    (0..200).for_each(|id| insert(&db, &table, id, true));
    let mut old = db.begin(Isolation::RepeatableRead);
    old.take_snapshot();
    for _ in 0..3 {
        delete_half_and_change_the_rest(&db);
    }
    assert_eq!(count(&db, "a/t"), 25);
    for index in [0, 1] {
        let mut cursor = table.cursor(index).unwrap();
        let mut more = cursor.first(&mut old, LockMode::None).unwrap();
        let mut seen = Vec::new();
        while more {
            let row = cursor.row().unwrap();
            let id = i64::from_le_bytes(row.get(0).unwrap().try_into().unwrap());
            assert_eq!(row.get(2), Some(format!("row {id}").as_bytes()));
            seen.push(id);
            more = cursor.next(&mut old).unwrap();
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..200).collect::<Vec<_>>(), "index {index}");
    }
    assert!(
        !db.wait_for_purge(Duration::from_millis(50)),
        "purge must wait for the view"
    );
    drop(old);
    assert!(db.wait_for_purge(Duration::from_secs(60)));
    check(&db, "a/t", 25, 0);
}

#[test]
fn a_second_process_or_handle_is_kept_out() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    assert!(matches!(
        Database::open(dir.path(), options()),
        Err(Error::InUse { .. })
    ));
    db.close().unwrap();
    Database::open(dir.path(), options()).unwrap();
}

#[test]
fn unique_keys_are_kept_and_a_failed_insert_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let def = TableDef::new("a/u")
        .column("id", ColumnType::i64())
        .nullable("code", ColumnType::text(20))
        .primary(&["id"])
        .unique("by_code", &["code"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let row = |id, code: Option<&str>| {
        let code = code.map_or(Value::Null, |c| Value::Text(c.into()));
        def.row(&[Value::Int(id), code]).unwrap()
    };
    for (id, code, duplicate) in [
        (1, Some("a"), None),
        (2, Some("a"), Some("by_code")),
        (1, Some("b"), Some("PRIMARY")),
        (3, None, None),
        (4, None, None),
        (2, Some("b"), None),
    ] {
        match (trx.insert(&table, &row(id, code).datums()), duplicate) {
            (Ok(()), None) => {}
            (Err(Error::DuplicateKey { index }), Some(expected)) => assert_eq!(index, expected),
            (got, expected) => panic!("row {id}: {got:?}, expected {expected:?}"),
        }
    }
    trx.commit().unwrap();
    check(&db, "a/u", 4, 0);

    // Deleted and inserted again, in one transaction and rolled back, in another and kept.
    for commit in [false, true] {
        let mut trx = db.begin(Isolation::RepeatableRead);
        let mut cursor = table.cursor(1).unwrap();
        assert!(
            cursor
                .seek(
                    &mut trx,
                    &[Some(b"a")],
                    KeyMatch::Exact,
                    LockMode::Exclusive
                )
                .unwrap()
        );
        trx.delete(&table, &cursor).unwrap();
        trx.insert(&table, &row(1, Some("a")).datums()).unwrap();
        if commit {
            trx.commit().unwrap()
        } else {
            trx.rollback().unwrap()
        }
        assert!(db.wait_for_purge(Duration::from_secs(60)));
        check(&db, "a/u", 4, 0);
    }
}

/// A table of MariaDB's whose columns are all virtual has none here.
#[test]
fn a_table_without_columns_has_rows() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.create_table(&TableDef::new("a/t")).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for _ in 0..ROWS {
        trx.insert(&table, &[]).unwrap();
    }
    trx.commit().unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    assert!(cursor.first(&mut trx, LockMode::Exclusive).unwrap());
    trx.delete(&table, &cursor).unwrap();
    assert!(cursor.next(&mut trx).unwrap());
    assert_eq!(cursor.row().unwrap().len(), 0);
    assert!(!trx.update(&table, &cursor, &[]).unwrap());
    let none: &[varve::Datum<'_>] = &[];
    trx.insert_many(&table, &[none, none]).unwrap();
    let one: &[varve::Datum<'_>] = &[Some(b"x")];
    trx.insert(&table, one).unwrap_err();
    trx.commit().unwrap();
    let report = db.check_table(&table).unwrap();
    assert!(report.errors.is_empty(), "{:#?}", report.errors);
    assert_eq!(report.rows, ROWS as u64 + 1);
    // Purge may have been there.
    assert!(report.deleted_rows <= 1);
    db.crash();
    let db = Database::open(dir.path(), options()).unwrap();
    assert_eq!(count(&db, "a/t"), ROWS as u64 + 1);
}
