//! Rows with external values: moved to overflow pages when they are written, found there by who wants them,
//! and gone when nobody does any more.
//!
//! What could break here: a value cut or lengthened at the boundary of a page or of a mini-transaction; a
//! page that belongs to two values or to none after an update, a rollback, a purge or a crash; a reader that
//! gets bytes of a value that was replaced meanwhile.

#[path = "support/dying_disk.rs"]
mod dying_disk;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dying_disk::DyingDisk;
use varve::internals::base::TEMP_SPACE;
use varve::{
    ColumnType, Cursor, Database, Error, FlushLog, IndexDef, Isolation, KeyMatch, KeyPart,
    LockMode, Options, Result, Table, TableDef, Transaction, Value,
};

const WAIT: Duration = Duration::from_secs(60);

fn options(page_size: u32) -> Options {
    Options {
        page_size,
        buffer_pool_bytes: 256 * u64::from(page_size),
        redo_capacity_bytes: 16 << 20,
        flush_log_at_trx_commit: FlushLog::Lazy,
        logger: Some(Arc::new(|_, _| {})),
        ..Options::default()
    }
}

/// Two columns that may be long, one of them with a prefix in an index.
fn definition() -> TableDef {
    TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("n", ColumnType::i64())
        .nullable("body", ColumnType::Bytes(u32::MAX))
        .column("note", ColumnType::text(1 << 24))
        .primary(&["id"])
        .add_index(IndexDef::new("by_body", vec![KeyPart::new(2).prefix(20)]))
}

fn open(dir: &tempfile::TempDir, page_size: u32) -> (Database, Table) {
    let db = Database::open(dir.path(), options(page_size)).unwrap();
    let table = db.create_table(&definition()).unwrap();
    (db, table)
}

/// `len` bytes of which no piece is like another, different for each `seed`.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 32) as u32
    });
    let mut out: Vec<u8> = words.take(len / 4 + 1).flat_map(u32::to_le_bytes).collect();
    out.truncate(len);
    out
}

fn row(id: i64, n: i64, body: Option<Vec<u8>>, note: usize) -> Vec<Value> {
    let body = body.map_or(Value::Null, Value::Bytes);
    let note = "ä".repeat(note / 2);
    vec![Value::Int(id), Value::Int(n), body, Value::Text(note)]
}

fn insert(trx: &mut Transaction, table: &Table, values: &[Value]) -> Result<()> {
    trx.insert(table, &table.def().row(values)?.datums())
}

fn begin(db: &Database) -> Transaction {
    db.begin(Isolation::RepeatableRead)
}

fn seek(trx: &mut Transaction, table: &Table, id: i64, lock: LockMode) -> Result<Option<Cursor>> {
    let mut cursor = table.cursor(0)?;
    let key = table.def().key(0, &[Value::Int(id)])?;
    let found = cursor.seek(trx, &key.datums(), KeyMatch::Exact, lock)?;
    Ok(found.then_some(cursor))
}

fn read(trx: &mut Transaction, table: &Table, id: i64) -> Option<Vec<Value>> {
    let cursor = seek(trx, table, id, LockMode::None).unwrap();
    cursor.map(|c| c.row().unwrap().values().unwrap())
}

fn update(trx: &mut Transaction, table: &Table, values: &[Value]) -> Result<()> {
    let Value::Int(id) = values[0] else {
        unreachable!("ids are integers")
    };
    let cursor = seek(trx, table, id, LockMode::Exclusive)?.expect("the row exists");
    trx.update(table, &cursor, &table.def().row(values)?.datums())?;
    Ok(())
}

fn delete(trx: &mut Transaction, table: &Table, id: i64) -> Result<()> {
    let cursor = seek(trx, table, id, LockMode::Exclusive)?.expect("the row exists");
    trx.delete(table, &cursor)
}

fn status(db: &Database, name: &str) -> u64 {
    let all = db.status();
    all.iter()
        .find(|(n, _)| *n == name)
        .expect("such a counter")
        .1
}

/// Overflow pages of live rows, and of older versions.
#[track_caller]
fn check(db: &Database, table: &Table) -> (u64, u64) {
    let report = db.check_table(table).unwrap();
    assert!(report.errors.is_empty(), "{:#?}", report.errors);
    (report.overflow_pages, report.old_overflow_pages)
}

#[track_caller]
fn check_purged(db: &Database, table: &Table) -> u64 {
    assert!(db.wait_for_purge(Duration::from_secs(60)));
    let (live, old) = check(db, table);
    assert_eq!(old, 0, "pages of versions that nobody needs");
    live
}

#[test]
fn values_of_every_length_come_back() {
    for page_size in [4096u32, 16 << 10, 64 << 10] {
        let dir = tempfile::tempdir().unwrap();
        let (db, table) = open(&dir, page_size);
        let page = page_size as usize;
        let (half, capacity) = ((page - 256) / 2 - 64, page - 88);
        let batch = ((256 << 10) / page).min(32) * capacity;
        let mut lengths = vec![0, 1, 40, 41, 1 << 20];
        for boundary in [
            half - 60,
            half,
            page,
            capacity,
            2 * capacity,
            batch,
            2 * batch,
        ] {
            lengths.extend([boundary - 1, boundary, boundary + 1]);
        }
        for (id, &len) in lengths.iter().enumerate() {
            let mut trx = begin(&db);
            let values = row(id as i64, 0, Some(bytes(id as u64, len)), 30);
            insert(&mut trx, &table, &values).unwrap();
            trx.commit().unwrap();
        }
        // Another row's value, NULL, and a long note beside a long body.
        for id in (0..lengths.len()).step_by(3) {
            let mut trx = begin(&db);
            let body = (id % 2 == 0).then(|| bytes(id as u64 + 100, lengths[id] + 1));
            update(&mut trx, &table, &row(id as i64, 1, body, page * 3)).unwrap();
            trx.commit().unwrap();
        }
        let live = check_purged(&db, &table);
        drop(table);
        db.close().unwrap();
        let db = Database::open(dir.path(), options(page_size)).unwrap();
        let table = db.table("a/t").unwrap();
        let mut trx = begin(&db);
        for (id, &len) in lengths.iter().enumerate() {
            let want = match id % 3 {
                0 => {
                    let body = (id % 2 == 0).then(|| bytes(id as u64 + 100, len + 1));
                    row(id as i64, 1, body, page * 3)
                }
                _ => row(id as i64, 0, Some(bytes(id as u64, len)), 30),
            };
            let got = read(&mut trx, &table, id as i64);
            assert!(got == Some(want), "{len} bytes in pages of {page}");
        }
        trx.commit().unwrap();
        assert_eq!(check_purged(&db, &table), live);
        for id in 0..lengths.len() {
            let mut trx = begin(&db);
            delete(&mut trx, &table, id as i64).unwrap();
            trx.commit().unwrap();
        }
        assert_eq!(check_purged(&db, &table), 0);
    }
}

#[test]
fn an_update_shares_what_it_does_not_change() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir, 4096);
    let body = bytes(1, 200_000);
    let mut trx = begin(&db);
    insert(&mut trx, &table, &row(1, 0, Some(body.clone()), 9000)).unwrap();
    trx.commit().unwrap();
    let (live, written) = (
        check_purged(&db, &table),
        status(&db, "external_values_written"),
    );
    assert_eq!((live, written), (50 + 3, 2));

    let mut old = begin(&db);
    assert_eq!(
        read(&mut old, &table, 1),
        Some(row(1, 0, Some(body.clone()), 9000))
    );
    for n in 1..10 {
        let mut trx = begin(&db);
        update(&mut trx, &table, &row(1, n, Some(body.clone()), 9000)).unwrap();
        trx.commit().unwrap();
    }
    assert_eq!(status(&db, "external_values_written"), written);
    assert_eq!(check(&db, &table), (live, 0));

    // Now the note; the body stays shared. The old view keeps the old note from being purged.
    let mut trx = begin(&db);
    update(&mut trx, &table, &row(1, 10, Some(body.clone()), 5000)).unwrap();
    trx.commit().unwrap();
    assert_eq!(status(&db, "external_values_written"), written + 1);
    assert_eq!(check(&db, &table), (50 + 2, 3));
    assert_eq!(
        read(&mut old, &table, 1),
        Some(row(1, 0, Some(body.clone()), 9000))
    );
    old.commit().unwrap();
    assert_eq!(check_purged(&db, &table), 50 + 2);
    assert_eq!(status(&db, "undo_cuts"), 0);
    let mut trx = begin(&db);
    assert_eq!(
        read(&mut trx, &table, 1),
        Some(row(1, 10, Some(body), 5000))
    );
}

#[test]
fn rollback_gives_back_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir, 4096);
    let body = bytes(1, 300_000);
    let mut trx = begin(&db);
    insert(&mut trx, &table, &row(1, 0, Some(body.clone()), 100)).unwrap();
    trx.commit().unwrap();
    let live = check_purged(&db, &table);

    let mut trx = begin(&db);
    insert(&mut trx, &table, &row(2, 0, Some(bytes(2, 300_000)), 100)).unwrap();
    let savepoint = trx.savepoint();
    update(&mut trx, &table, &row(1, 1, Some(bytes(3, 50_000)), 7000)).unwrap();
    update(&mut trx, &table, &row(1, 2, Some(bytes(4, 90_000)), 7000)).unwrap();
    delete(&mut trx, &table, 2).unwrap();
    insert(&mut trx, &table, &row(2, 0, Some(bytes(5, 20_000)), 100)).unwrap();
    trx.rollback_to(savepoint).unwrap();
    assert_eq!(
        read(&mut trx, &table, 1),
        Some(row(1, 0, Some(body.clone()), 100))
    );
    let second = read(&mut trx, &table, 2);
    assert_eq!(second, Some(row(2, 0, Some(bytes(2, 300_000)), 100)));
    // A duplicate takes its own external value back.
    let duplicate = insert(&mut trx, &table, &row(1, 9, Some(bytes(6, 60_000)), 100));
    assert!(matches!(duplicate, Err(Error::DuplicateKey { .. })));
    trx.rollback().unwrap();
    assert_eq!(check_purged(&db, &table), live);
    let mut trx = begin(&db);
    assert_eq!(read(&mut trx, &table, 1), Some(row(1, 0, Some(body), 100)));
    assert_eq!(read(&mut trx, &table, 2), None);
}

/// A deletion's values are on its own list: a row inserted in the place of the delete-marked one has nothing
/// to do with them, and taking that insert back does not bring them to life. A duplicate is refused before
/// its external values are written, whichever index has it, and with its lock.
#[test]
fn a_duplicate_writes_no_external_value() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(4096)).unwrap();
    let mut def = definition();
    def = def.unique("by_n", &["n"]);
    let tables = [db.create_table(&def).unwrap(), {
        def.name = "a/temporary".into();
        db.create_temporary_table(&def).unwrap()
    }];
    for table in &tables {
        let mut trx = begin(&db);
        insert(&mut trx, table, &row(1, 10, None, 10)).unwrap();
        insert(&mut trx, table, &row(2, 20, None, 10)).unwrap();
        delete(&mut trx, table, 2).unwrap();
        trx.commit().unwrap();
        let written = status(&db, "external_values_written");
        let mut trx = begin(&db);
        for (id, n, index) in [(1, 11, "PRIMARY"), (3, 10, "by_n"), (1, 10, "PRIMARY")] {
            let duplicate = insert(&mut trx, table, &row(id, n, Some(bytes(1, 50_000)), 10));
            match duplicate {
                Err(Error::DuplicateKey { index: found }) => assert_eq!(found, index),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(status(&db, "external_values_written"), written);
        if !table.is_temporary() {
            let mut other = begin(&db);
            other.set_lock_wait_timeout(Duration::ZERO);
            let locked = seek(&mut other, table, 1, LockMode::Exclusive).map(drop);
            assert!(matches!(locked, Err(Error::LockWaitTimeout)), "{locked:?}");
        }
        // What is gone is no duplicate.
        insert(&mut trx, table, &row(2, 20, Some(bytes(2, 50_000)), 10)).unwrap();
        trx.commit().unwrap();
        assert_eq!(check_purged(&db, table), 13);
    }
}

#[test]
fn an_un_delete_marked_row_shares_nothing_with_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir, 4096);
    let body = bytes(1, 100_000);
    let mut trx = begin(&db);
    insert(&mut trx, &table, &row(1, 0, Some(body.clone()), 100)).unwrap();
    trx.commit().unwrap();
    let live = check_purged(&db, &table);
    let mut old = begin(&db);
    assert!(read(&mut old, &table, 1).is_some());
    let mut trx = begin(&db);
    delete(&mut trx, &table, 1).unwrap();
    trx.commit().unwrap();
    // The same value, so that sharing it would be tempting.
    let mut trx = begin(&db);
    insert(&mut trx, &table, &row(1, 1, Some(body.clone()), 100)).unwrap();
    old.commit().unwrap();
    assert!(db.wait_for_purge(WAIT));
    trx.rollback().unwrap();
    assert_eq!(check_purged(&db, &table), 0);

    let mut trx = begin(&db);
    insert(&mut trx, &table, &row(1, 2, Some(body.clone()), 100)).unwrap();
    delete(&mut trx, &table, 1).unwrap();
    insert(&mut trx, &table, &row(1, 3, Some(body.clone()), 100)).unwrap();
    trx.commit().unwrap();
    assert_eq!(check_purged(&db, &table), live);
    let mut trx = begin(&db);
    assert_eq!(read(&mut trx, &table, 1), Some(row(1, 3, Some(body), 100)));
}

#[test]
fn only_wanted_values_are_fetched() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir, 4096);
    let mut trx = begin(&db);
    for id in 0..20 {
        let values = row(id, 0, Some(bytes(id as u64, 50_000)), 20_000);
        insert(&mut trx, &table, &values).unwrap();
    }
    trx.commit().unwrap();
    let mut trx = begin(&db);
    let mut cursor = table.cursor(0).unwrap();
    let mut scan = |wanted: Option<&[bool]>| {
        let before = status(&db, "external_values_read");
        cursor.set_wanted_columns(wanted);
        let mut found = cursor.first(&mut trx, LockMode::None).unwrap();
        let mut id = 0;
        while found {
            let row = cursor.row().unwrap();
            assert_eq!(row.value(0).unwrap(), Value::Int(id));
            assert_eq!(row.fetched(2).is_some(), wanted.is_none());
            let note = wanted.is_none_or(|w| w[3]);
            assert_eq!(row.fetched(3).is_some(), note);
            if note {
                assert_eq!(row.get(3).unwrap().len(), 20_000);
            }
            id += 1;
            found = cursor.next(&mut trx).unwrap();
        }
        assert_eq!(id, 20);
        status(&db, "external_values_read") - before
    };
    assert_eq!(scan(Some(&[true, true, false, false])), 0);
    assert_eq!(scan(Some(&[true, true, false, true])), 20);
    assert_eq!(scan(None), 40);
}

/// What can't leave the row has a limit, and what is refused leaves nothing behind.
/// Pages of the temporary tablespace in use.
fn temporary_pages(db: &Database) -> u64 {
    let core = db.core();
    let space = core.undo.env.spaces.require(TEMP_SPACE).unwrap();
    space.used_pages(&core.mtr).unwrap().into()
}

fn temporary_table(db: &Database) -> Table {
    let mut def = definition();
    def.name = "a/temporary".into();
    db.create_temporary_table(&def).unwrap()
}

/// Temporary tables keep external values, too: shared by updates, freed by purge and rollback, larger than
/// the buffer pool.
#[test]
fn temporary_tables_have_them_too() {
    let dir = tempfile::tempdir().unwrap();
    let (db, lasting) = open(&dir, 4096);
    let table = temporary_table(&db);
    let len = |id: i64| 100 + (id as usize * 7919) % 60_000;
    let mut trx = begin(&db);
    for id in 0..60 {
        insert(
            &mut trx,
            &table,
            &row(id, 0, Some(bytes(id as u64, len(id))), 10),
        )
        .unwrap();
    }
    trx.commit().unwrap();
    let live = check_purged(&db, &table);
    assert!(live * 4096 > 256 * 4096, "more than the pool");
    // Taken back: a statement, a part, the whole.
    let written = status(&db, "external_values_written");
    let mut trx = begin(&db);
    insert(&mut trx, &lasting, &row(1, 0, Some(bytes(1, 9_000)), 10)).unwrap();
    let before = trx.savepoint();
    for id in 0..30 {
        // The body stays, and its pages with it.
        update(
            &mut trx,
            &table,
            &row(id, 1, Some(bytes(id as u64, len(id))), 20),
        )
        .unwrap();
    }
    assert_eq!(status(&db, "external_values_written"), written + 1);
    for id in 0..30 {
        update(
            &mut trx,
            &table,
            &row(id, 2, Some(bytes(id as u64 + 100, 9_000)), 20),
        )
        .unwrap();
        delete(&mut trx, &table, id + 30).unwrap();
    }
    trx.start_statement();
    insert(&mut trx, &table, &row(100, 0, Some(bytes(100, 50_000)), 10)).unwrap();
    trx.rollback_statement().unwrap();
    assert!(read(&mut trx, &table, 100).is_none());
    trx.rollback_to(before).unwrap();
    for id in 0..60 {
        let expected = row(id, 0, Some(bytes(id as u64, len(id))), 10);
        assert_eq!(read(&mut trx, &table, id), Some(expected));
    }
    trx.commit().unwrap();
    assert_eq!(check_purged(&db, &table), live);
    // For good.
    let mut trx = begin(&db);
    for id in 0..30 {
        delete(&mut trx, &table, id).unwrap();
        update(
            &mut trx,
            &table,
            &row(id + 30, 3, Some(bytes(7, 9_000)), 10),
        )
        .unwrap();
    }
    // A dead row comes to life again with another value.
    insert(&mut trx, &table, &row(0, 4, Some(bytes(8, 9_000)), 10)).unwrap();
    trx.commit().unwrap();
    assert_eq!(check_purged(&db, &table), 31 * 3);
    assert_eq!(check_purged(&db, &lasting), 3);
    db.rename_table("a/temporary", "a/renamed").unwrap();
    let table = db.table("a/renamed").unwrap();
    assert_eq!(check(&db, &table), (31 * 3, 0));
    let (pages, used) = (temporary_pages(&db), table.used_and_free_bytes().unwrap().0);
    assert!(used >= 31 * 3 * 4096, "{used}");
    db.drop_table("a/renamed").unwrap();
    let given_back = pages - temporary_pages(&db);
    assert!(
        given_back >= 31 * 3 + 2,
        "{given_back} pages were given back"
    );
    assert_eq!(status(&db, "undo_cuts"), 0);
}

/// TEMP-5: dropped or truncated, a temporary table leaves no page, whatever purge and rollback were going to
/// free, and nobody frees a page that is another's by then.
#[test]
fn a_temporary_table_ends_with_all_its_pages() {
    let dir = tempfile::tempdir().unwrap();
    let (db, lasting) = open(&dir, 4096);
    let value = |seed: i64| Some(bytes(seed as u64, 20_000));
    // Rollback segments keep some pages for later.
    const KEPT: u64 = 32 * 66;
    let mut before = 0;
    for round in 0..120i64 {
        let table = temporary_table(&db);
        let mut trx = begin(&db);
        for id in 0..20 {
            insert(&mut trx, &table, &row(id, round, value(id), 10)).unwrap();
        }
        trx.commit().unwrap();
        let mut trx = begin(&db);
        for id in 0..10 {
            update(&mut trx, &table, &row(id, round, value(id + round), 10)).unwrap();
            delete(&mut trx, &table, id + 10).unwrap();
        }
        if round % 2 == 0 {
            // Purge has just been told to free the pages.
            trx.commit().unwrap();
            trx = begin(&db);
        }
        if round % 3 == 0 {
            trx.commit().unwrap();
            db.truncate_table("a/temporary").unwrap();
            trx = begin(&db);
            for id in 0..20 {
                insert(&mut trx, &table, &row(id, round, value(id - round), 10)).unwrap();
            }
            trx.commit().unwrap();
            assert_eq!(check_purged(&db, &table), 20 * 5);
            trx = begin(&db);
            for id in 0..20 {
                let expected = row(id, round, value(id - round), 10);
                assert_eq!(read(&mut trx, &table, id), Some(expected));
            }
        }
        insert(&mut trx, &lasting, &row(round, 0, value(round), 10)).unwrap();
        trx.drop_temporary_table(&table).unwrap();
        match round % 5 {
            0 => trx.rollback().unwrap(),
            _ => trx.commit().unwrap(),
        }
        if round == 0 {
            assert!(db.wait_for_purge(Duration::from_secs(60)));
            before = temporary_pages(&db);
        }
    }
    assert!(db.wait_for_purge(Duration::from_secs(60)));
    let after = temporary_pages(&db);
    assert!(after <= before + KEPT, "{before} pages, then {after}");
    assert_eq!(check_purged(&db, &lasting), 96 * 5);
    assert_eq!(status(&db, "undo_cuts"), 0);
}

#[test]
fn rows_too_long_even_so_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(4096)).unwrap();
    let mut def = TableDef::new("a/wide").column("id", ColumnType::i64());
    for n in 0..100 {
        def = def.column(&format!("c{n}"), ColumnType::Bytes(1000));
    }
    let table = db.create_table(&def.primary(&["id"])).unwrap();
    let values = |each: usize| {
        let mut values = vec![Value::Int(1)];
        values.resize(101, Value::Bytes(vec![7; each]));
        values
    };
    let mut trx = begin(&db);
    // 100 columns of 40 bytes stay where they are; of 41 they leave references of 21.
    let refused = insert(&mut trx, &table, &values(40)).unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("a row of table a/wide"), "{text}");
    let refused = insert(&mut trx, &table, &values(41)).unwrap_err();
    assert!(matches!(refused, Error::TooLarge { .. }), "{refused}");
    let mut fixed = TableDef::new("a/fixed").column("id", ColumnType::i64());
    for n in 0..20 {
        fixed = fixed.column(&format!("c{n}"), ColumnType::Fixed(100));
    }
    let refused = db
        .create_table(&fixed.primary(&["id"]))
        .map(drop)
        .unwrap_err();
    assert!(matches!(refused, Error::TooLarge { .. }), "{refused}");
    let mut some = values(1000);
    some[31..].fill(Value::Bytes(Vec::new()));
    insert(&mut trx, &table, &some).unwrap();
    trx.commit().unwrap();
    let mut trx = begin(&db);
    assert_eq!(read(&mut trx, &table, 1), Some(some));
    delete(&mut trx, &table, 1).unwrap();
    trx.commit().unwrap();
    assert_eq!(check_purged(&db, &table), 0);
}

/// UNDO-5: each disk operation is the last one in its turn, while long rows are inserted, changed, deleted
/// and purged.
#[test]
fn a_crash_leaks_no_page_and_frees_none_twice() {
    let work = |db: &Database, table: &Table, done: &mut usize| -> Result<()> {
        for id in 1..=3 {
            let mut trx = begin(db);
            insert(
                &mut trx,
                table,
                &row(id, 0, Some(bytes(id as u64, 180_000)), 9000),
            )?;
            trx.commit()?;
            *done += 1;
        }
        let mut trx = begin(db);
        update(&mut trx, table, &row(1, 1, Some(bytes(11, 150_000)), 9000))?;
        delete(&mut trx, table, 2)?;
        insert(&mut trx, table, &row(2, 2, Some(bytes(12, 10_000)), 100))?;
        trx.commit()?;
        *done += 1;
        // All of it, or the disk is dead.
        assert!(db.wait_for_purge(WAIT) || db.core().check_usable().is_err());
        let mut trx = begin(db);
        delete(&mut trx, table, 3)?;
        trx.commit()?;
        *done += 1;
        // All of it, or the disk is dead.
        assert!(db.wait_for_purge(WAIT) || db.core().check_usable().is_err());
        Ok(())
    };
    // What the table holds after so many transactions.
    let first = |id: i64| row(id, 0, Some(bytes(id as u64, 180_000)), 9000);
    let states = [
        vec![],
        vec![first(1)],
        vec![first(1), first(2)],
        vec![first(1), first(2), first(3)],
        vec![
            row(1, 1, Some(bytes(11, 150_000)), 9000),
            row(2, 2, Some(bytes(12, 10_000)), 100),
            first(3),
        ],
        vec![
            row(1, 1, Some(bytes(11, 150_000)), 9000),
            row(2, 2, Some(bytes(12, 10_000)), 100),
        ],
    ];
    let crash_options = || Options {
        flush_log_at_trx_commit: FlushLog::Sync,
        redo_capacity_bytes: 8 << 20,
        // Room for everything: nobody has to wait for a dead disk to write pages.
        buffer_pool_bytes: 8 << 20,
        ..options(4096)
    };
    let mut cuts = 0;
    for operations in 1.. {
        let dir = tempfile::tempdir().unwrap();
        let disk = DyingDisk::new();
        let shared: Arc<dyn varve::internals::io::Disk> = Arc::new(disk.clone());
        let db = Database::open_on(shared, dir.path(), crash_options()).unwrap();
        let table = db.create_table(&definition()).unwrap();
        disk.live_for(operations);
        let (mut done, ended) = (0, AtomicBool::new(false));
        let finished = std::thread::scope(|s| {
            // The log is written between mini-transactions, too, so that the disk can die between them.
            s.spawn(|| {
                while !ended.load(Ordering::Relaxed) && db.flush_log().is_ok() {
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
            let finished = work(&db, &table, &mut done).is_ok();
            ended.store(true, Ordering::Relaxed);
            finished
        });
        drop(table);
        db.crash();
        let db = Database::open(dir.path(), crash_options()).unwrap();
        let table = db.table("a/t").unwrap();
        let mut trx = begin(&db);
        let rows: Vec<_> = (1..=3)
            .filter_map(|id| read(&mut trx, &table, id))
            .collect();
        trx.commit().unwrap();
        // The transaction in flight may have made it.
        let state = states[done..].iter().take(2).position(|s| *s == rows);
        assert!(
            state.is_some(),
            "{operations} operations, {done} commits: lost or torn rows"
        );
        check_purged(&db, &table);
        if finished {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 12, "the disk died only {cuts} times");
}

/// OVF-2, LONG-1 and MVCC-1: readers under views, under READ COMMITTED and with old batches in their cursors,
/// while others replace, delete and take back external values and purge frees them. A value says which row it
/// is of, and is the same from end to end.
#[test]
fn readers_never_get_bytes_of_another_value() {
    const ROWS: i64 = 12;
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir, 4096);
    let value = |id: i64, tag: u8, len: usize| {
        let mut v = vec![tag; len];
        v[0] = id as u8;
        v
    };
    let mut trx = begin(&db);
    for id in 0..ROWS {
        insert(
            &mut trx,
            &table,
            &row(id, 0, Some(value(id, 1, 20_000)), 10),
        )
        .unwrap();
    }
    trx.commit().unwrap();
    let (stop, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
    let read_all = |isolation: Isolation, index: usize| {
        while !stop.load(Ordering::Relaxed) || reads.load(Ordering::Relaxed) <= 500 {
            let mut cursor = table.cursor(index).unwrap();
            let mut trx = db.begin(isolation);
            let mut found = cursor.first(&mut trx, LockMode::None).unwrap();
            while found {
                let row = cursor.row().unwrap();
                let id = i64::from_le_bytes(row.get(0).unwrap().try_into().unwrap());
                let body = row.get(2).unwrap();
                assert_eq!(body[0], id as u8, "a value of another row");
                let same = body[2..].iter().all(|b| *b == body[1]);
                assert!(same, "row {id}: a value of two pieces");
                reads.fetch_add(1, Ordering::Relaxed);
                if isolation == Isolation::ReadCommitted && id % 3 == 0 {
                    // The cursor goes on with what it has copied, under a new view.
                    trx.start_statement();
                    std::thread::sleep(Duration::from_micros(300));
                }
                found = cursor.next(&mut trx).unwrap();
            }
        }
    };
    let write = |from: i64| {
        for round in 0..400usize {
            let id = from + 2 * (round as i64 % (ROWS / 2));
            let mut trx = begin(&db);
            let len = 2_000 + (round * 7919) % 30_000;
            let new = row(id, round as i64, Some(value(id, round as u8, len)), 10);
            if round % 5 == 0 {
                delete(&mut trx, &table, id).unwrap();
                insert(&mut trx, &table, &new).unwrap();
            } else {
                update(&mut trx, &table, &new).unwrap();
            }
            match round % 7 {
                0 => trx.rollback().unwrap(),
                _ => trx.commit().unwrap(),
            }
        }
    };
    std::thread::scope(|s| {
        let readers = [
            (Isolation::RepeatableRead, 0),
            (Isolation::ReadCommitted, 0),
            (Isolation::ReadCommitted, 1),
        ];
        for (isolation, index) in readers {
            s.spawn(move || read_all(isolation, index));
        }
        let writers = [s.spawn(move || write(0)), s.spawn(move || write(1))];
        let ended = writers.map(|w| w.join());
        stop.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(|e| e.is_ok()));
    });
    assert!(reads.load(Ordering::Relaxed) > 500);
    check_purged(&db, &table);
    assert_eq!(status(&db, "undo_cuts"), 0);
}

/// Where the next leaf of a table is was taken for a page of the next table, if purge had no record to remove
/// from that leaf, but an external value to free. That page may lie beyond the end of the file, which counted
/// as damage.
#[test]
fn purge_goes_on_from_an_external_value_to_another_table() {
    let dir = tempfile::tempdir().unwrap();
    let (db, large) = open(&dir, 4096);
    let small = TableDef::new("a/small").column("id", ColumnType::i64());
    let small = db.create_table(&small.primary(&["id"])).unwrap();
    let mut trx = begin(&db);
    (0..300).for_each(|id| insert(&mut trx, &large, &row(id, 0, None, 1000)).unwrap());
    insert(&mut trx, &large, &row(300, 0, Some(bytes(1, 20_000)), 0)).unwrap();
    insert(&mut trx, &small, &[Value::Int(1)]).unwrap();
    trx.commit().unwrap();
    let mut trx = begin(&db);
    (0..3).for_each(|id| delete(&mut trx, &large, id).unwrap());
    update(&mut trx, &large, &row(300, 1, Some(bytes(2, 20_000)), 0)).unwrap();
    delete(&mut trx, &small, 1).unwrap();
    trx.commit().unwrap();
    assert!(db.wait_for_purge(WAIT));
}
