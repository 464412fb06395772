//! Temporary tables: as good as others while the database is open, and nothing of them afterwards.
//!
//! What could break here: pages that are lost under eviction, or not given back; a transaction over both
//! kinds of tables that is taken back in part; history that is never purged, or purged too early; redo or
//! checkpoints that know of temporary pages; a start that finds something of an earlier process.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use varve::internals::base::TEMP_SPACE;
use varve::{
    ColumnType, Database, Error, Isolation, KeyMatch, LockMode, Options, Table, TableDef,
    Transaction, Value,
};

fn options() -> Options {
    Options {
        page_size: 4096,
        buffer_pool_bytes: 2 << 20,
        redo_capacity_bytes: 8 << 20,
        lock_wait_timeout: Duration::from_millis(50),
        ..Options::default()
    }
}

fn open(dir: &Path) -> Database {
    let db = Database::open(dir, options()).unwrap();
    // What is rolled back has locks, for which nobody here waits long.
    assert!(db.wait_for_recovery(Duration::from_secs(60)));
    db
}

fn def(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .column("fill", ColumnType::Bytes(600))
        .primary(&["id"])
        .index("by_k", &["k"])
        .unique("by_both", &["k", "id"])
}

fn insert(trx: &mut Transaction, table: &Table, id: i64, k: i64, fill: usize) -> varve::Result<()> {
    let row = [
        Value::Int(id),
        Value::Int(k),
        Value::Bytes(vec![id as u8; fill]),
    ];
    trx.insert(table, &table.def().row(&row).unwrap().datums())
}

/// Every second row of those with this `k` is deleted, the others get another one.
fn change(trx: &mut Transaction, table: &Table, k: i64, to: i64) -> usize {
    let key = table.def().key(1, &[Value::Int(k)]).unwrap();
    let mut ids = Vec::new();
    let mut cursor = table.cursor(1).unwrap();
    let mut found = cursor.seek(trx, &key.datums(), KeyMatch::Exact, LockMode::Exclusive);
    while found.unwrap() {
        ids.push(cursor.row().unwrap().values().unwrap());
        found = cursor.next_same(trx);
    }
    let mut cursor = table.cursor(0).unwrap();
    for (n, row) in ids.iter().enumerate() {
        let key = table.def().key(0, &row[..1]).unwrap();
        let how = KeyMatch::Exact;
        assert!(
            cursor
                .seek(trx, &key.datums(), how, LockMode::Exclusive)
                .unwrap()
        );
        if n % 2 == 0 {
            trx.delete(table, &cursor).unwrap();
            continue;
        }
        let mut new = row.clone();
        new[1] = Value::Int(to);
        let new = table.def().row(&new).unwrap();
        trx.update(table, &cursor, &new.datums()).unwrap();
    }
    ids.len()
}

fn ids(trx: &mut Transaction, table: &Table, index: usize) -> Vec<(i64, i64)> {
    let mut cursor = table.cursor(index).unwrap();
    let mut out = Vec::new();
    let mut found = cursor.first(trx, LockMode::None).unwrap();
    while found {
        match cursor.row().unwrap().values().unwrap()[..2] {
            [Value::Int(id), Value::Int(k)] => out.push((id, k)),
            ref other => panic!("{other:?}"),
        }
        found = cursor.next(trx).unwrap();
    }
    out.sort();
    out
}

fn count(db: &Database, table: &Table) -> usize {
    let mut trx = db.begin(Isolation::RepeatableRead);
    let rows = ids(&mut trx, table, 0);
    for index in 1..3 {
        assert_eq!(ids(&mut trx, table, index), rows);
    }
    trx.commit().unwrap();
    let report = db.check_table(table).unwrap();
    assert_eq!((report.errors, report.rows), (vec![], rows.len() as u64));
    rows.len()
}

/// Pages of the temporary tablespace in use, and pages that it has.
fn temp_pages(db: &Database) -> (u32, u32) {
    let core = db.core();
    let space = core.undo.env.spaces.require(TEMP_SPACE).unwrap();
    (space.used_pages(&core.mtr).unwrap(), space.size_pages())
}

/// Waits until no more pages are in use than before, but for those that the rollback segments keep.
fn all_given_back(db: &Database, before: u32) {
    const KEPT: u32 = 32 * 66;
    assert!(db.wait_for_purge(Duration::from_secs(60)));
    for _ in 0..500 {
        if temp_pages(db).0 <= before + KEPT {
            return;
        }
        // Purge trims the rollback segments after the last log.
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{} pages in use, {before} before", temp_pages(db).0);
}

fn status(db: &Database, name: &str) -> u64 {
    let all = db.status();
    all.iter().find(|s| s.0 == name).unwrap().1
}

/// A table several times the size of the pool: its pages leave the pool and come back without the log, and no
/// checkpoint waits for them. Dropping it gives every page back.
#[test]
fn a_table_larger_than_the_pool() {
    const ROWS: i64 = 12_000;
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let before = temp_pages(&db).0;
    let lsn = status(&db, "lsn_current");
    let table = db.create_temporary_table(&def("tmp/big")).unwrap();
    assert!(table.is_temporary());
    let mut trx = db.begin(Isolation::RepeatableRead);
    for n in 0..ROWS {
        // In no order, so that pages are split everywhere and visited again.
        let id = n * 7919 % ROWS;
        insert(&mut trx, &table, id, id % 100, (id % 600) as usize).unwrap();
    }
    trx.commit().unwrap();
    assert_eq!(count(&db, &table), ROWS as usize);
    let used = u64::from(temp_pages(&db).0);
    assert!(
        used > 1000 && status(&db, "buffer_pool_evictions") > 1000,
        "{used} pages"
    );
    let reported = table.used_and_free_bytes().unwrap().0 / 4096;
    assert!(
        reported > used / 2 && reported <= used,
        "{reported} pages of {used}"
    );

    let mut trx = db.begin(Isolation::ReadCommitted);
    for k in 0..50 {
        assert_eq!(change(&mut trx, &table, k, -k - 1), 120);
    }
    trx.commit().unwrap();
    assert_eq!(count(&db, &table), ROWS as usize * 3 / 4);
    assert!(db.wait_for_purge(Duration::from_secs(60)));
    assert_eq!(db.check_table(&table).unwrap().deleted_rows, 0);

    // Nothing of this is in the log but the limit of transaction ids.
    let logged = status(&db, "lsn_current") - lsn;
    assert!(logged < 1000, "{logged} bytes of redo");
    db.truncate_table("tmp/big").unwrap();
    assert_eq!((count(&db, &table), table.row_count_estimate()), (0, 0));
    let mut trx = db.begin(Isolation::RepeatableRead);
    insert(&mut trx, &table, 1, 1, 1).unwrap();
    trx.commit().unwrap();
    db.drop_table("tmp/big").unwrap();
    all_given_back(&db, before);
    db.close().unwrap();
    assert!(!dir.path().join("temp.vdt").exists());
}

/// One transaction over both kinds of tables: savepoints, a statement, and the whole are taken back in both,
/// in one sequence.
#[test]
fn a_transaction_over_both_kinds() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let lasting = db.create_table(&def("a/lasting")).unwrap();
    let temporary = db.create_temporary_table(&def("a/temporary")).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..10 {
        insert(&mut trx, &lasting, id, id % 2, 10).unwrap();
        insert(&mut trx, &temporary, id, id % 2, 10).unwrap();
    }
    trx.commit().unwrap();

    let mut trx = db.begin(Isolation::RepeatableRead);
    change(&mut trx, &temporary, 0, 5);
    change(&mut trx, &lasting, 1, 6);
    let (t, l) = (ids(&mut trx, &temporary, 1), ids(&mut trx, &lasting, 1));
    assert_eq!((t.len(), l.len()), (7, 7));
    let savepoint = trx.savepoint();
    for round in 0..3 {
        trx.start_statement();
        change(&mut trx, &lasting, 0, round);
        change(&mut trx, &temporary, 1, round);
        change(&mut trx, &temporary, 5, round);
        insert(&mut trx, &temporary, 0, 9, 300).unwrap();
        insert(&mut trx, &lasting, 1, 9, 300).unwrap();
        let duplicate = insert(&mut trx, &temporary, 0, 9, 300);
        assert!(matches!(duplicate, Err(Error::DuplicateKey { .. })));
        match round {
            0 => trx.rollback_statement().unwrap(),
            _ => trx.rollback_to(savepoint).unwrap(),
        }
        for index in 0..3 {
            assert_eq!(ids(&mut trx, &temporary, index), t, "round {round}");
            assert_eq!(ids(&mut trx, &lasting, index), l, "round {round}");
        }
    }
    trx.rollback().unwrap();
    assert_eq!((count(&db, &lasting), count(&db, &temporary)), (10, 10));
    assert!(db.wait_for_purge(Duration::from_secs(60)));
    for table in [&lasting, &temporary] {
        assert_eq!(db.check_table(table).unwrap().deleted_rows, 0);
    }
    // A commit that has nothing but temporary changes waits for no sync.
    db.flush_log().unwrap();
    let synced = status(&db, "os_log_fsyncs");
    let lsn = status(&db, "lsn_current");
    let mut trx = db.begin(Isolation::RepeatableRead);
    change(&mut trx, &temporary, 0, 3);
    trx.commit_start().unwrap();
    assert_eq!(trx.commit_lsn(), None);
    trx.commit_wait().unwrap();
    assert_eq!(status(&db, "lsn_current"), lsn);
    assert_eq!(status(&db, "os_log_fsyncs"), synced);
    assert_eq!(status(&db, "undo_cuts"), 0);
}

/// PURGE-3 and TEMP-2: the history of temporary tables waits for no view, and a view that is older than the
/// rows reads them all the same.
#[test]
fn old_views_hold_no_temporary_history() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let temporary = db.create_temporary_table(&def("a/t")).unwrap();
    let mut old = db.begin(Isolation::RepeatableRead);
    old.take_snapshot();
    for round in 0..20 {
        let mut trx = db.begin(Isolation::RepeatableRead);
        insert(&mut trx, &temporary, round, round, 500).unwrap();
        change(&mut trx, &temporary, round - 1, round);
        trx.commit().unwrap();
    }
    assert!(db.wait_for_purge(Duration::from_secs(60)));
    let mut latest = db.begin(Isolation::RepeatableRead);
    let rows = ids(&mut latest, &temporary, 0);
    latest.commit().unwrap();
    assert_eq!(rows, [(19, 19)]);
    for index in 0..3 {
        assert_eq!(ids(&mut old, &temporary, index), rows);
    }
    // Now it has the table until it ends (TEMP-1).
    let mut other = db.begin(Isolation::RepeatableRead);
    let refused = insert(&mut other, &temporary, 1, 1, 1);
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    let mut cursor = temporary.cursor(0).unwrap();
    let refused = cursor.first(&mut other, LockMode::None);
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    assert!(matches!(db.drop_table("a/t"), Err(Error::Invalid { .. })));
    assert!(matches!(
        db.truncate_table("a/t"),
        Err(Error::Invalid { .. })
    ));
    drop(old);
    insert(&mut other, &temporary, 1, 1, 1).unwrap();
    other.commit().unwrap();
}

/// TEMP-3: a transaction drops a table that it has changed, and ends in any way.
#[test]
fn dropped_by_the_transaction_that_changed_it() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let lasting = db.create_table(&def("a/lasting")).unwrap();
    let before = temp_pages(&db).0;
    for round in 0..24 {
        let temporary = db.create_temporary_table(&def("a/t")).unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        insert(&mut trx, &lasting, round, 1, 10).unwrap();
        (0..500).for_each(|id| insert(&mut trx, &temporary, id, id % 10, 600).unwrap());
        if round == 1 {
            trx.commit().unwrap();
            trx = db.begin(Isolation::RepeatableRead);
        }
        change(&mut trx, &temporary, 3, 4);
        let savepoint = trx.savepoint();
        change(&mut trx, &temporary, 4, 5);
        let mut cursor = temporary.cursor(0).unwrap();
        assert!(cursor.first(&mut trx, LockMode::Exclusive).unwrap());
        trx.drop_temporary_table(&temporary).unwrap();
        let gone = [
            trx.drop_temporary_table(&temporary),
            trx.delete(&temporary, &cursor),
            insert(&mut trx, &temporary, 1000, 1, 1),
            cursor.next(&mut trx).map(drop),
            db.table("a/t").map(drop),
        ];
        for refused in gone {
            assert!(
                matches!(refused, Err(Error::NotFound { .. })),
                "{refused:?}"
            );
        }
        assert!(matches!(
            trx.drop_temporary_table(&lasting),
            Err(Error::Invalid { .. })
        ));
        // Its pages are used again while the undo still speaks of it.
        let next = db.create_temporary_table(&def("a/t")).unwrap();
        (0..500).for_each(|id| insert(&mut trx, &next, id, id, 600).unwrap());
        insert(&mut trx, &lasting, 100 + round, 1, 10).unwrap();
        trx.rollback_to(savepoint).unwrap();
        assert_eq!(ids(&mut trx, &next, 0), []);
        match round % 2 {
            0 => trx.commit().unwrap(),
            _ => trx.rollback().unwrap(),
        }
        assert_eq!(count(&db, &next), 0);
        db.drop_table("a/t").unwrap();
    }
    // Every other round committed its first row, and the second did before it went on.
    assert_eq!(count(&db, &lasting), 13);
    all_given_back(&db, before);
}

#[test]
fn names_renames_and_counters() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let counted = |name: &str| {
        let mut def = def(name);
        def.auto_increment = Some(0);
        def
    };
    db.create_table(&def("a/lasting")).unwrap();
    let table = db.create_temporary_table(&counted("a/t")).unwrap();
    for taken in ["a/lasting", "a/t"] {
        for result in [
            db.create_table(&def(taken)),
            db.create_temporary_table(&def(taken)),
        ] {
            assert!(
                matches!(result.map(drop), Err(Error::AlreadyExists { .. })),
                "{taken}"
            );
        }
    }
    assert!(matches!(
        db.rename_table("a/t", "a/lasting"),
        Err(Error::AlreadyExists { .. })
    ));
    assert_eq!(db.tables().unwrap(), ["a/lasting"]);
    let mut trx = db.begin(Isolation::RepeatableRead);
    insert(&mut trx, &table, 41, 1, 1).unwrap();
    trx.commit().unwrap();
    assert_eq!(table.auto_increment_next(), 42);
    db.rename_table("a/t", "b/u").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let old = insert(&mut trx, &table, 50, 1, 1);
    assert!(matches!(old, Err(Error::NotFound { .. })), "{old:?}");
    drop(trx);
    assert!(matches!(
        db.table("a/t").map(drop),
        Err(Error::NotFound { .. })
    ));
    let table = db.table("b/u").unwrap();
    assert_eq!((count(&db, &table), table.auto_increment_next()), (1, 42));
    table.set_auto_increment(1000).unwrap();
    assert_eq!(table.auto_increment_reserve(10), 1000);
    db.truncate_table("b/u").unwrap();
    assert_eq!(table.auto_increment_next(), 1);
    let (used, free) = table.used_and_free_bytes().unwrap();
    assert!(used >= 3 * 4096 && free == 0, "{used} {free}");
}

/// Threads with a temporary table each, and a lasting one for all; the page cleaner and purge in between.
#[test]
fn many_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let lasting = db.create_table(&def("a/lasting")).unwrap();
    let before = temp_pages(&db).0;
    let failed = AtomicBool::new(false);
    std::thread::scope(|s| {
        for thread in 0..4i64 {
            let (db, lasting, failed) = (&db, &lasting, &failed);
            s.spawn(move || {
                let _mark = MarkPanic(failed);
                for round in 0..12i64 {
                    let name = format!("t{thread}/r{round}");
                    let table = db.create_temporary_table(&def(&name)).unwrap();
                    let mut trx = db.begin(Isolation::RepeatableRead);
                    for id in 0..150 {
                        insert(&mut trx, &table, id, id % 7, 400).unwrap();
                    }
                    insert(&mut trx, lasting, thread * 1000 + round, 0, 400).unwrap();
                    change(&mut trx, &table, 3, 4);
                    if round % 3 == 0 {
                        trx.rollback().unwrap();
                        assert_eq!(count(db, &table), 0);
                    } else {
                        trx.commit().unwrap();
                        assert_eq!(count(db, &table), 139);
                    }
                    db.drop_table(&name).unwrap();
                }
            });
        }
    });
    assert!(!failed.load(Ordering::SeqCst));
    assert_eq!(count(&db, &lasting), 4 * 8);
    all_given_back(&db, before);
}

struct MarkPanic<'a>(&'a AtomicBool);

impl Drop for MarkPanic<'_> {
    fn drop(&mut self) {
        self.0.fetch_or(std::thread::panicking(), Ordering::SeqCst);
    }
}

/// TEMP-4: after a crash, and after an orderly end, nothing is left: neither tables nor pages, nor undo that
/// recovery would look at. What the same transaction did to lasting tables is taken back.
#[test]
fn nothing_survives() {
    let dir = tempfile::tempdir().unwrap();
    let mut db = open(dir.path());
    let fresh = temp_pages(&db);
    db.create_table(&def("a/lasting")).unwrap();
    for round in 0..3i64 {
        assert_eq!(db.tables().unwrap(), ["a/lasting"]);
        let gone = db.table("a/t").map(drop);
        assert!(matches!(gone, Err(Error::NotFound { .. })), "{gone:?}");
        assert_eq!(temp_pages(&db), fresh, "round {round}");
        assert_eq!(status(&db, "history_list_length"), 0);
        let lasting = db.table("a/lasting").unwrap();
        assert_eq!(count(&db, &lasting), round as usize);
        let temporary = db.create_temporary_table(&def("a/t")).unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        (0..6000).for_each(|id| insert(&mut trx, &temporary, id, id, 500).unwrap());
        insert(&mut trx, &lasting, round, 1, 1).unwrap();
        trx.commit().unwrap();
        let mut unfinished = db.begin(Isolation::RepeatableRead);
        change(&mut unfinished, &temporary, 5, 6);
        insert(&mut unfinished, &lasting, 1000, 1, 1).unwrap();
        db.flush_log().unwrap();
        if round == 1 {
            drop(unfinished);
            db.close().unwrap();
        } else {
            db.crash();
            drop(unfinished);
            assert!(dir.path().join("temp.vdt").exists());
        }
        db = open(dir.path());
    }
    db.close().unwrap();
    // Whatever lies there under that name is replaced.
    std::fs::write(dir.path().join("temp.vdt"), "no tablespace at all").unwrap();
    let db = open(dir.path());
    assert_eq!(temp_pages(&db), fresh);
    assert_eq!(count(&db, &db.table("a/lasting").unwrap()), 3);
}

/// A database without undo tablespaces has its one rollback segment in the system tablespace.
#[test]
fn undo_in_the_system_tablespace() {
    let dir = tempfile::tempdir().unwrap();
    let none = Options {
        undo_tablespaces: 0,
        ..options()
    };
    let db = Database::open(dir.path(), none).unwrap();
    let table = db.create_table(&def("a/t")).unwrap();
    for round in 0..40 {
        let mut trx = db.begin(Isolation::RepeatableRead);
        for id in 0..20 {
            insert(&mut trx, &table, round * 100 + id, round, 400).unwrap();
        }
        change(&mut trx, &table, round - 1, round - 1);
        trx.commit().unwrap();
    }
    let mut unfinished = db.begin(Isolation::RepeatableRead);
    change(&mut unfinished, &table, 39, 0);
    db.flush_log().unwrap();
    db.crash();
    drop(unfinished);
    assert!(!dir.path().join("undo_001.vdt").exists());
    // What the database was created with counts.
    let db = open(dir.path());
    let table = db.table("a/t").unwrap();
    assert_eq!(count(&db, &table), 39 * 10 + 20);
    assert!(db.wait_for_purge(Duration::from_secs(60)));
    assert_eq!(db.check_table(&table).unwrap().deleted_rows, 0);
    db.close().unwrap();
}

/// A prepared transaction that nobody has a handle of keeps others from the temporary tables if it has
/// changed one.
#[test]
fn a_prepared_transaction_keeps_the_tables_that_it_changed() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let lasting = db.create_table(&def("a/lasting")).unwrap();
    let temporary = db.create_temporary_table(&def("a/temporary")).unwrap();
    let xid = varve::Xid::new(1, b"x", b"").unwrap();
    for (changes, commits, rows) in [
        (false, true, (1, 0)),
        (true, true, (2, 1)),
        (true, false, (2, 1)),
    ] {
        let id = count(&db, &lasting) as i64;
        let mut trx = db.begin(Isolation::RepeatableRead);
        insert(&mut trx, &lasting, id, 1, 10).unwrap();
        let before = ids(&mut trx, &temporary, 0);
        if changes {
            insert(&mut trx, &temporary, id, 1, 10).unwrap();
        }
        assert_eq!(trx.has_temporary_changes(), changes);
        trx.prepare(&xid).unwrap();
        drop(trx);
        let mut other = db.begin(Isolation::RepeatableRead);
        match (changes, insert(&mut other, &temporary, 100, 1, 10)) {
            (true, Err(Error::Invalid { .. })) => {}
            (false, Ok(())) => assert_eq!(ids(&mut other, &temporary, 0).len(), before.len() + 1),
            (_, other) => panic!("{other:?}"),
        }
        other.rollback().unwrap();
        match commits {
            true => db.commit_prepared(&xid).unwrap(),
            false => db.rollback_prepared(&xid).unwrap(),
        }
        assert_eq!((count(&db, &lasting), count(&db, &temporary)), rows);
    }
    db.drop_table("a/temporary").unwrap();
    db.close().unwrap();
}
