//! Two-phase commit: what was prepared outlives its handle and the database, keeps its locks, and ends as its
//! coordinator says.

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use varve::{
    ColumnType, Cursor, Database, Error, FlushLog, FlushOptions, Isolation, KeyMatch, LockMode,
    Options, Result, Table, TableDef, Transaction, Value, Xid,
};

const PAGE: u32 = 4096;

fn options() -> Options {
    Options {
        page_size: PAGE,
        buffer_pool_bytes: 4 << 20,
        redo_capacity_bytes: 16 << 20,
        lock_wait_timeout: Duration::from_millis(50),
        ..Options::default()
    }
}

fn open(dir: &Path) -> Database {
    let db = Database::open(dir, options()).unwrap();
    // What a crash left to roll back has locks for longer than these options wait.
    assert!(db.wait_for_recovery(Duration::from_secs(60)));
    db
}

/// A database with rows 1, 2 and 3, whose `k` is ten times their `id`.
fn create(dir: &Path) -> (Database, Table) {
    let db = open(dir);
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .primary(&["id"])
        .index("by_k", &["k"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    (1..=3).for_each(|id| insert(&mut trx, &table, id, id * 10).unwrap());
    trx.commit().unwrap();
    (db, table)
}

fn xid(name: &str) -> Xid {
    Xid::new(1, name.as_bytes(), b"branch").unwrap()
}

fn insert(trx: &mut Transaction, table: &Table, id: i64, k: i64) -> Result<()> {
    let row = [Value::Int(id), Value::Int(k)];
    trx.insert(table, &table.def().row(&row)?.datums())
}

fn seek(trx: &mut Transaction, table: &Table, id: i64, lock: LockMode) -> Result<Option<Cursor>> {
    let mut cursor = table.cursor(0)?;
    let found = cursor.seek(trx, &[Some(&id.to_le_bytes())], KeyMatch::Exact, lock)?;
    Ok(found.then_some(cursor))
}

fn update(trx: &mut Transaction, table: &Table, id: i64, k: i64) -> Result<()> {
    let cursor = seek(trx, table, id, LockMode::Exclusive)?.expect("the row");
    let row = [Value::Int(id), Value::Int(k)];
    trx.update(table, &cursor, &table.def().row(&row)?.datums())?;
    Ok(())
}

fn delete(trx: &mut Transaction, table: &Table, id: i64) -> Result<()> {
    let cursor = seek(trx, table, id, LockMode::Exclusive)?.expect("the row");
    trx.delete(table, &cursor)
}

/// Changes row 1, deletes row 2, inserts row 4.
fn change(trx: &mut Transaction, table: &Table) {
    update(trx, table, 1, 11).unwrap();
    delete(trx, table, 2).unwrap();
    insert(trx, table, 4, 44).unwrap();
}

const BEFORE: [(i64, i64); 3] = [(1, 10), (2, 20), (3, 30)];
const AFTER: [(i64, i64); 3] = [(1, 11), (3, 30), (4, 44)];

fn rows(db: &Database) -> Vec<(i64, i64)> {
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    let mut rows = Vec::new();
    let mut more = cursor.first(&mut trx, LockMode::None).unwrap();
    while more {
        let row = cursor.row().unwrap();
        let int = |n| i64::from_le_bytes(row.get(n).unwrap().try_into().unwrap());
        rows.push((int(0), int(1)));
        more = cursor.next(&mut trx).unwrap();
    }
    rows
}

fn check(db: &Database, expected: &[(i64, i64)]) {
    assert_eq!(rows(db), expected);
    let report = db.check_table(&db.table("a/t").unwrap()).unwrap();
    assert!(report.errors.is_empty(), "{:#?}", report.errors);
    assert_eq!(report.rows, expected.len() as u64);
}

fn prepare(db: &Database, table: &Table, name: &str) -> Transaction {
    let mut trx = db.begin(Isolation::RepeatableRead);
    change(&mut trx, table);
    trx.prepare(&xid(name)).unwrap();
    trx
}

/// Nobody gets at what the transaction of `change` wrote, others' rows are free, and DDL has to wait.
fn check_locks(db: &Database) {
    let table = db.table("a/t").unwrap();
    let refused = |what: &str, attempt: &dyn Fn(&mut Transaction) -> Result<()>| {
        let result = attempt(&mut db.begin(Isolation::ReadCommitted));
        assert!(
            matches!(result, Err(Error::LockWaitTimeout)),
            "{what}: {result:?}"
        );
    };
    refused("update", &|trx| update(trx, &table, 1, 0));
    refused("delete", &|trx| delete(trx, &table, 2));
    refused("insert", &|trx| insert(trx, &table, 4, 0));
    refused("read", &|trx| {
        seek(trx, &table, 4, LockMode::Shared).map(drop)
    });
    refused("lock table", &|trx| trx.lock_table_shared(&table));
    let mut trx = db.begin(Isolation::ReadCommitted);
    update(&mut trx, &table, 3, 0).unwrap();
    trx.rollback().unwrap();
    for ddl in [
        db.drop_table("a/t"),
        db.rename_table("a/t", "a/u"),
        db.truncate_table("a/t"),
    ] {
        assert!(matches!(ddl, Err(Error::LockWaitTimeout)), "{ddl:?}");
    }
}

/// PREP-2 and PREP-3: a crash, and an orderly end, leave a prepared transaction as it was, as often as they
/// come.
#[test]
fn what_is_prepared_waits_for_a_decision() {
    type Decision = fn(&Database, &Xid) -> Result<()>;
    let commit: Decision = Database::commit_prepared;
    for decide in [commit, Database::rollback_prepared] {
        let dir = tempfile::tempdir().unwrap();
        let (db, table) = create(dir.path());
        drop(prepare(&db, &table, "x"));
        check_locks(&db);
        db.crash();
        for orderly in [true, false] {
            let db = open(dir.path());
            assert_eq!(db.prepared(), [xid("x")]);
            assert_eq!(db.prepared()[0].format(), 1);
            assert!(db.status().contains(&("prepared_transactions", 1)));
            assert_eq!(rows(&db), BEFORE);
            check_locks(&db);
            match orderly {
                true => db.close().unwrap(),
                false => db.crash(),
            }
        }
        let db = open(dir.path());
        decide(&db, &xid("x")).unwrap();
        let committed = rows(&db) != BEFORE;
        check(&db, if committed { &AFTER } else { &BEFORE });
        assert_eq!(db.prepared(), []);
        assert!(matches!(
            decide(&db, &xid("x")),
            Err(Error::NotFound { .. })
        ));
        // It is as durable as other ends, and its undo logs are gone or history.
        db.crash();
        let db = open(dir.path());
        check(&db, if committed { &AFTER } else { &BEFORE });
        assert_eq!(db.prepared(), []);
        assert!(db.wait_for_purge(Duration::from_secs(60)));
        let table = db.table("a/t").unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        update(&mut trx, &table, 1, 5).unwrap();
        insert(&mut trx, &table, 5, 5).unwrap();
        trx.commit().unwrap();
        db.drop_table("a/t").unwrap();
    }
}

/// A database that is only read tells of what is prepared, and leaves the decision to one that is not.
#[test]
fn nothing_is_decided_where_nothing_may_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = create(dir.path());
    drop(prepare(&db, &table, "x"));
    db.crash();
    let read_only = Options {
        read_only: true,
        ..options()
    };
    let db = Database::open(dir.path(), read_only).unwrap();
    assert_eq!(db.prepared(), [xid("x")]);
    assert_eq!(rows(&db), BEFORE);
    for decided in [
        db.commit_prepared(&xid("x")),
        db.rollback_prepared(&xid("x")),
    ] {
        assert!(
            matches!(decided, Err(Error::ReadOnly { .. })),
            "{decided:?}"
        );
    }
    assert_eq!(db.prepared(), [xid("x")]);
    db.close().unwrap();
    let db = open(dir.path());
    db.commit_prepared(&xid("x")).unwrap();
    check(&db, &AFTER);
}

#[test]
fn both_decisions_take_effect() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = create(dir.path());
    drop(prepare(&db, &table, "x"));
    db.rollback_prepared(&xid("x")).unwrap();
    check(&db, &BEFORE);
    drop(prepare(&db, &table, "x"));
    db.commit_prepared(&xid("x")).unwrap();
    check(&db, &AFTER);
}

/// PREP-3 and TXN-4: the handle decides, too; until then the name is taken, and nothing else can be done
/// with it.
#[test]
fn a_handle_keeps_its_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = create(dir.path());
    let mut trx = prepare(&db, &table, "x");
    assert_eq!(trx.xid(), Some(xid("x")));
    let others = db.commit_prepared(&xid("x"));
    assert!(matches!(others, Err(Error::Invalid { .. })), "{others:?}");
    for refused in [
        insert(&mut trx, &table, 5, 5),
        trx.prepare(&xid("y")),
        trx.rollback_statement(),
    ] {
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    }
    trx.rollback().unwrap();
    check(&db, &BEFORE);
    prepare(&db, &table, "x").commit().unwrap();
    check(&db, &AFTER);
    assert_eq!(db.prepared(), []);
}

/// PREP-1.
#[test]
fn a_name_is_one_transactions() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = create(dir.path());
    let first = prepare(&db, &table, "x");
    let mut second = db.begin(Isolation::RepeatableRead);
    insert(&mut second, &table, 7, 70).unwrap();
    let refused = second.prepare(&xid("x"));
    assert!(
        matches!(refused, Err(Error::AlreadyExists { .. })),
        "{refused:?}"
    );
    insert(&mut second, &table, 8, 80).unwrap();
    second.prepare(&xid("y")).unwrap();
    assert_eq!(db.prepared(), [xid("x"), xid("y")]);
    drop((first, second));
    db.commit_prepared(&xid("y")).unwrap();
    assert_eq!(db.prepared(), [xid("x")]);
    db.rollback_prepared(&xid("x")).unwrap();
    check(&db, &[(1, 10), (2, 20), (3, 30), (7, 70), (8, 80)]);
}

/// TRX-1: nothing was written, or all of it was taken back before a log was needed: there is nothing to
/// promise.
#[test]
fn a_reader_promises_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = create(dir.path());
    let mut trx = db.begin(Isolation::RepeatableRead);
    assert!(
        seek(&mut trx, &table, 1, LockMode::Exclusive)
            .unwrap()
            .is_some()
    );
    trx.prepare(&xid("x")).unwrap();
    assert_eq!((db.prepared(), trx.id()), (vec![], None));
    trx.commit_start().unwrap();
    assert_eq!(trx.commit_lsn(), None, "there is nothing to wait for");
    trx.commit_wait().unwrap();
}

/// What a restart would not bring back is given up on demand, but at SERIALIZABLE: locks on a row that was
/// only looked at, and on the gap of one that is not there. What was written stays locked.
#[test]
fn what_was_only_searched_is_given_up() {
    for (level, given_up) in [
        (Isolation::ReadCommitted, true),
        (Isolation::RepeatableRead, true),
        (Isolation::Serializable, false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (db, table) = create(dir.path());
        let mut trx = db.begin(Isolation::RepeatableRead);
        for id in 5..=6 {
            insert(&mut trx, &table, id, id * 10).unwrap();
        }
        trx.commit().unwrap();
        let mut trx = db.begin(level);
        change(&mut trx, &table);
        for (id, lock, is_there) in [
            (3, LockMode::Exclusive, true),
            (5, LockMode::Shared, true),
            (6, LockMode::Exclusive, true),
            (7, LockMode::Exclusive, false),
        ] {
            let found = seek(&mut trx, &table, id, lock).unwrap();
            assert_eq!(found.is_some(), is_there, "row {id}");
        }
        // Taken back: the row is as it was.
        let savepoint = trx.savepoint();
        update(&mut trx, &table, 6, 0).unwrap();
        trx.rollback_to(savepoint).unwrap();
        trx.prepare(&xid("x")).unwrap();
        trx.release_searches();
        drop(trx);
        let mut other = db.begin(Isolation::ReadCommitted);
        for result in [
            update(&mut other, &table, 3, 0),
            update(&mut other, &table, 5, 0),
            update(&mut other, &table, 6, 0),
            insert(&mut other, &table, 7, 0),
        ] {
            match given_up {
                true => result.unwrap(),
                false => assert!(matches!(result, Err(Error::LockWaitTimeout)), "{result:?}"),
            }
        }
        other.rollback().unwrap();
        if given_up {
            check_locks(&db);
        }
        db.rollback_prepared(&xid("x")).unwrap();
        check(&db, &[(1, 10), (2, 20), (3, 30), (5, 50), (6, 60)]);
    }
}

/// Without the demand all of that stays locked: a coordinator that decides at once has no use for it.
#[test]
fn what_was_searched_stays_locked_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = create(dir.path());
    let mut trx = db.begin(Isolation::RepeatableRead);
    change(&mut trx, &table);
    // Nothing is prepared yet, so nothing is given up.
    assert!(
        seek(&mut trx, &table, 3, LockMode::Exclusive)
            .unwrap()
            .is_some()
    );
    trx.release_searches();
    trx.prepare(&xid("x")).unwrap();
    let mut other = db.begin(Isolation::ReadCommitted);
    let refused = update(&mut other, &table, 3, 0);
    assert!(
        matches!(refused, Err(Error::LockWaitTimeout)),
        "{refused:?}"
    );
}

/// DDL goes on when the last prepared transaction on its table has ended.
#[test]
fn ddl_waits_for_a_recovered_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = create(dir.path());
    drop(prepare(&db, &table, "x"));
    db.crash();
    let db = open(dir.path());
    db.set_lock_wait_timeout(Duration::from_secs(60));
    let dropper = thread::spawn({
        let db = db.clone();
        move || db.drop_table("a/t")
    });
    while !db.status().contains(&("row_lock_current_waits", 1)) {
        thread::yield_now();
    }
    db.commit_prepared(&xid("x")).unwrap();
    dropper.join().unwrap().unwrap();
    assert!(db.tables().unwrap().is_empty());
}

/// A rollback that a crash interrupts must not leave a transaction that can still be committed (UNDO-7).
#[test]
fn a_rollback_that_began_is_no_longer_prepared() {
    const ROWS: i64 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = create(dir.path());
    let mut trx = db.begin(Isolation::RepeatableRead);
    (100..100 + ROWS).for_each(|id| insert(&mut trx, &table, id, id).unwrap());
    trx.prepare(&xid("x")).unwrap();
    drop(trx);
    let lsn = |db: &Database| db.core().log.next_lsn().0;
    let before = lsn(&db);
    let rollback = thread::spawn({
        let db = db.clone();
        move || db.rollback_prepared(&xid("x"))
    });
    while lsn(&db) < before + 100_000 {
        thread::yield_now();
    }
    db.flush_log().unwrap();
    db.crash();
    let _ = rollback.join().unwrap();
    let db = open(dir.path());
    assert_eq!(db.prepared(), []);
    check(&db, &BEFORE);
}

/// PREP-4: after `hold_commit` a commit reads no page, however long ago its pages were used.
#[test]
fn a_held_commit_reads_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let small = Options {
        buffer_pool_bytes: 256 * u64::from(PAGE),
        flush_log_at_trx_commit: FlushLog::Lazy,
        flush: FlushOptions {
            io_capacity: 10_000,
            io_capacity_max: 10_000,
            ..FlushOptions::default()
        },
        ..options()
    };
    let db = Database::open(dir.path(), small).unwrap();
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("pad", ColumnType::text(1000))
        .primary(&["id"]);
    let table = db.create_table(&def).unwrap();
    let pad = |id| [Value::Int(id), Value::Text("x".repeat(900))];
    for chunk in 0..20 {
        let mut trx = db.begin(Isolation::RepeatableRead);
        for id in chunk * 200..(chunk + 1) * 200 {
            let row = table.def().row(&pad(id)).unwrap();
            trx.insert(&table, &row.datums()).unwrap();
        }
        trx.commit().unwrap();
    }
    // It keeps purge from reading anything meanwhile.
    let mut old = db.begin(Isolation::RepeatableRead);
    old.take_snapshot();
    let reads = || {
        let status = db.status();
        status
            .iter()
            .find(|s| s.0 == "buffer_pool_reads")
            .unwrap()
            .1
    };
    let mut reads_of_commit = [0, 0];
    for (held, counted) in [true, false].into_iter().zip(&mut reads_of_commit) {
        for n in 0..3 {
            let mut trx = db.begin(Isolation::RepeatableRead);
            delete(&mut trx, &table, n * 2 + i64::from(held)).unwrap();
            let row = table.def().row(&pad(10_000 + n * 2 + i64::from(held)));
            trx.insert(&table, &row.unwrap().datums()).unwrap();
            trx.prepare(&xid("x")).unwrap();
            if held {
                trx.hold_commit().unwrap();
            }
            // A page goes when it is clean and its uses are long ago.
            while !db.status().contains(&("buffer_pool_pages_dirty", 0)) {
                thread::sleep(Duration::from_millis(10));
            }
            for _ in 0..4 {
                let mut reader = db.begin(Isolation::ReadCommitted);
                let mut cursor = table.cursor(0).unwrap();
                let mut more = cursor.first(&mut reader, LockMode::None).unwrap();
                while more {
                    more = cursor.next(&mut reader).unwrap();
                }
            }
            let before = reads();
            trx.commit_start().unwrap();
            *counted += reads() - before;
            trx.commit_decided().unwrap();
        }
    }
    assert_eq!(reads_of_commit[0], 0, "held commits read pages");
    assert_ne!(reads_of_commit[1], 0, "the pages were never evicted");
    drop(old);
    assert!(db.check_table(&table).unwrap().errors.is_empty());
}

/// HOLD-1: the history queue may move on by whole pages between the hold and the commit.
#[test]
fn a_hold_follows_the_history_queue() {
    // Entries of a queue page times rollback segments, twice over.
    const COMMITS: i64 = 252 * 95 * 2;
    let dir = tempfile::tempdir().unwrap();
    let lazy = Options {
        flush_log_at_trx_commit: FlushLog::Lazy,
        ..options()
    };
    drop(create(dir.path()));
    let db = Database::open(dir.path(), lazy).unwrap();
    let table = db.table("a/t").unwrap();
    let mut held = db.begin(Isolation::RepeatableRead);
    update(&mut held, &table, 1, 11).unwrap();
    held.prepare(&xid("x")).unwrap();
    held.hold_commit().unwrap();
    for n in 0..COMMITS {
        let mut trx = db.begin(Isolation::ReadCommitted);
        update(&mut trx, &table, 2, n).unwrap();
        trx.commit().unwrap();
    }
    held.commit_start().unwrap();
    held.commit_decided().unwrap();
    drop(held);
    check(&db, &[(1, 11), (2, COMMITS - 1), (3, 30)]);
}

/// A coordinator may forget a decision once it was told that commits are durable.
#[test]
fn who_asks_is_told_when_commits_are_durable() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = create(dir.path());
    db.set_flush_log_at_trx_commit(FlushLog::Lazy);
    let mut trx = prepare(&db, &table, "x");
    trx.hold_commit().unwrap();
    trx.commit_start().unwrap();
    trx.commit_decided().unwrap();
    let (tell, told) = mpsc::channel();
    db.when_durable(move || tell.send(()).unwrap());
    told.recv_timeout(Duration::from_secs(60)).unwrap();
    db.crash();
    let db = open(dir.path());
    check(&db, &AFTER);
    // What the log can't promise any more is not told.
    let (tell, told) = mpsc::channel::<()>();
    db.set_flush_log_at_trx_commit(FlushLog::Lazy);
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    update(&mut trx, &table, 1, 12).unwrap();
    trx.commit().unwrap();
    db.poison("test");
    let log = db.core().log.clone();
    let end = log.next_lsn();
    let was_durable = log.durable_lsn() >= end;
    db.when_durable(move || tell.send(()).unwrap());
    drop(table);
    db.crash();
    let is_told = told.try_recv().is_ok();
    // A sync that was under way may have come to its end.
    assert!(is_told || !was_durable);
    assert!(!is_told || log.durable_lsn() >= end);
}
