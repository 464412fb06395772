//! Lists of transactions and of waits for locks, as programs get them: whose a transaction is, what it has
//! locked and pins, and by which ids the lists belong together.

use std::time::{Duration, Instant};

use varve::{
    ColumnType, Database, Error, HistoryOptions, Isolation, KeyMatch, LockMode, LockWaitInfo,
    Options, SessionText, Table, TableDef, Transaction, TransactionInfo, TransactionState, Value,
    ViewInfo, Xid, values,
};

const WAIT: Duration = Duration::from_secs(60);
/// Bytes of a page, if nothing else is said.
const PAGE: u64 = 16 << 10;

fn open(dir: &tempfile::TempDir, history_store: bool) -> Database {
    let options = Options {
        history: HistoryOptions {
            store: history_store,
            delay: Duration::ZERO,
            ..HistoryOptions::default()
        },
        ..Options::default()
    };
    Database::open(dir.path(), options).unwrap()
}

/// `shop/item`, with rows whose names are `a` to `e` and whose stock is 1.
fn items(db: &Database) -> Table {
    let def = TableDef::new("shop/item")
        .column("name", ColumnType::text(20))
        .column("stock", ColumnType::i32())
        .nullable("box", ColumnType::i64())
        .primary(&["name"])
        .index("by_box", &["box", "stock"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for name in ["a", "b", "c", "d"] {
        let row = values![name, 1, None::<i64>];
        table.insert(&mut trx, row).unwrap();
    }
    table.insert(&mut trx, values!["it's", 1, 3]).unwrap();
    trx.commit().unwrap();
    table
}

fn wait_until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begun.elapsed() < WAIT);
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn of_session(db: &Database, session: u64) -> TransactionInfo {
    let mut all = db.transactions().into_iter();
    let found = all.find(|trx| trx.session == session);
    found.unwrap_or_else(|| panic!("no transaction of session {session}"))
}

fn lock(
    trx: &mut Transaction,
    table: &Table,
    index: usize,
    key: &[Value],
    mode: LockMode,
) -> varve::Result<bool> {
    let key = table.def().key(index, key)?;
    table
        .cursor(index)?
        .seek(trx, &key.datums(), KeyMatch::Exact, mode)
}

fn one_wait(db: &Database) -> LockWaitInfo {
    wait_until(|| {
        db.lock_waits()
            .pop()
            .filter(|wait| !wait.blocking.is_empty())
    })
}

#[test]
fn a_transaction_says_whose_it_is_and_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, false);
    let table = items(&db);
    assert!(db.transactions().is_empty());
    let mut reader = db.begin(Isolation::ReadCommitted);
    reader.set_session(5);
    let mut writer = db.begin(Isolation::Serializable);
    writer.set_session(6);
    reader.take_snapshot();
    table
        .set(&mut writer, values!["a"], &[("stock", 2.into())])
        .unwrap();

    let told = of_session(&db, 5);
    assert_eq!(
        (told.id, told.state, told.isolation),
        (None, TransactionState::Running, Isolation::ReadCommitted)
    );
    assert!(told.number > 1 << 56, "{told:?}");
    assert_eq!((told.changes, told.locks, told.rows_locked), (0, 0, 0));
    assert!(told.view.is_some() && told.waits.is_none() && !told.prepared);
    let told = of_session(&db, 6);
    let id = writer.id().unwrap();
    assert_eq!(
        (told.id, told.number, told.isolation),
        (Some(id), id.0, Isolation::Serializable)
    );
    assert!(
        told.changes >= 1 && told.rows_locked == 1 && told.tables_locked == 1,
        "{told:?}"
    );
    assert!(told.lock_bytes >= 100, "{told:?}");

    // A view of READ COMMITTED is a statement's.
    reader.start_statement();
    assert!(of_session(&db, 5).view.is_none());
    reader.set_isolation(Isolation::ReadUncommitted);
    assert_eq!(of_session(&db, 5).isolation, Isolation::ReadUncommitted);
    reader.commit().unwrap();

    // A prepared one that its session has let go is nobody's, and another's once that takes it over.
    let xid = Xid::new(1, b"name", b"").unwrap();
    writer.prepare(&xid).unwrap();
    assert!(of_session(&db, 6).prepared);
    drop(writer);
    let [told] = &db.transactions()[..] else {
        panic!("{:?}", db.transactions())
    };
    assert_eq!((told.id, told.session, told.prepared), (Some(id), 0, true));
    db.rollback_prepared(&xid).unwrap();
    assert!(db.transactions().is_empty());
}

#[test]
fn waits_say_what_is_locked_and_who_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, false);
    let table = items(&db);
    let begin = |session| {
        let mut trx = db.begin(Isolation::RepeatableRead);
        trx.set_session(session);
        trx
    };
    let exclusive = LockMode::Exclusive;
    // A row, whose key is a text, found by an index: it is the row that is locked.
    for (index, key) in [(0, values!["it's"]), (1, values![3, 1])] {
        let (mut holder, mut waiter) = (begin(1), begin(2));
        lock(&mut holder, &table, index, key, LockMode::Shared).unwrap();
        std::thread::scope(|s| {
            let waiting = s.spawn(|| lock(&mut waiter, &table, index, key, exclusive).map(drop));
            let wait = one_wait(&db);
            let (wanted, blocking) = (&wait.wanted, &wait.blocking[0]);
            assert_eq!(wait.blocking.len(), 1);
            let (told, has) = (of_session(&db, 2), of_session(&db, 1));
            assert_eq!(told.state, TransactionState::LockWait);
            assert_eq!(told.waits.unwrap().0, wanted.id);
            assert_eq!(
                (wanted.transaction, blocking.transaction),
                (told.number, has.number)
            );
            assert_eq!((wanted.session, blocking.session), (2, 1));
            assert_eq!((wanted.mode, blocking.mode), ("X", "S"));
            assert_ne!(wanted.id, blocking.id);
            for lock in [wanted, blocking] {
                assert_eq!(
                    (&lock.table[..], lock.index.as_deref(), lock.key.as_deref()),
                    ("shop/item", Some("PRIMARY"), Some("'it''s'"))
                );
                assert!(lock.space.is_some());
            }
            holder.commit().unwrap();
            waiting.join().unwrap().unwrap();
        });
    }
    // Gaps: of the table itself, and of an index, whose entries end with the row's own key.
    for (index, key, shown) in [
        (0, values!["bb"], "'bb'"),
        (1, values![7], "7, 1, 'cc'"),
        (1, values![None::<i64>, 5], "NULL, 5, 'dd'"),
    ] {
        let row = match shown {
            "'bb'" => values!["bb", 1, 8],
            "7, 1, 'cc'" => values!["cc", 1, 7],
            _ => values!["dd", 5, None::<i64>],
        };
        let (mut holder, mut waiter) = (begin(1), begin(2));
        assert!(!lock(&mut holder, &table, index, key, exclusive).unwrap());
        std::thread::scope(|s| {
            let waiting = s.spawn(|| table.insert(&mut waiter, row));
            let wait = one_wait(&db);
            let (wanted, blocking) = (&wait.wanted, &wait.blocking[0]);
            assert_eq!((wanted.mode, blocking.mode), ("X,GAP", "S,GAP"));
            assert_eq!(
                (&wanted.key, &blocking.key),
                (&Some(shown.into()), &Some(shown.into()))
            );
            assert_eq!(wanted.index.as_deref(), Some(["PRIMARY", "by_box"][index]));
            assert_eq!(of_session(&db, 2).waits.unwrap().0, wanted.id);
            holder.commit().unwrap();
            waiting.join().unwrap().unwrap();
        });
    }
    // A table.
    let (mut holder, mut waiter) = (begin(1), begin(2));
    table
        .set(&mut holder, values!["a"], &[("stock", 3.into())])
        .unwrap();
    std::thread::scope(|s| {
        let waiting = s.spawn(|| waiter.lock_table_exclusive(&table));
        let wait = one_wait(&db);
        let (wanted, blocking) = (&wait.wanted, &wait.blocking[0]);
        assert_eq!((wanted.mode, blocking.mode), ("X", "IX"));
        assert_eq!(
            (&wanted.table[..], &wanted.index, &wanted.key),
            ("shop/item", &None, &None)
        );
        holder.rollback().unwrap();
        waiting.join().unwrap().unwrap();
    });
    assert!(db.lock_waits().is_empty());
}

fn view_of(db: &Database, session: u64) -> ViewInfo {
    of_session(db, session).view.expect("its view is open")
}

#[test]
fn an_old_view_says_what_it_pins() {
    for history_store in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir, history_store);
        let table = items(&db);
        assert!(db.wait_for_purge(WAIT));
        let mut old = db.begin(Isolation::RepeatableRead);
        old.set_session(1);
        old.take_snapshot();
        for stock in 0..10 {
            let mut trx = db.begin(Isolation::RepeatableRead);
            table
                .set(&mut trx, values!["a"], &[("stock", (100 + stock).into())])
                .unwrap();
            trx.commit().unwrap();
        }
        let mut young = db.begin(Isolation::RepeatableRead);
        young.set_session(2);
        young.take_snapshot();
        let pins = wait_until(|| {
            let view = view_of(&db, 1);
            // Of the row, and of its entry, which purge comes to one after the other.
            (view.in_history_store == history_store && (!history_store || view.pinned_versions > 1))
                .then_some(view)
        });
        if history_store {
            assert_eq!(
                (pins.pinned_history, pins.pinned_versions),
                (0, 2),
                "{pins:?}"
            );
            assert!(pins.pinned_bytes > 0, "{pins:?}");
        } else {
            assert_eq!(
                (pins.pinned_history, pins.pinned_versions, pins.pinned_bytes),
                (10, 0, 0),
                "{pins:?}"
            );
            assert_eq!(view_of(&db, 2).pinned_history, 0);
        }
        drop((old, young));
        assert!(db.wait_for_purge(WAIT));
    }
}

#[test]
fn an_old_view_says_how_much_undo_it_pins() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, false);
    let table = items(&db);
    assert!(db.wait_for_purge(WAIT));
    assert_eq!(db.purge_standing().history_bytes, 0);
    let mut old = db.begin(Isolation::RepeatableRead);
    old.set_session(1);
    old.take_snapshot();
    let pinned = || view_of(&db, 1).pinned_undo_bytes;
    assert_eq!(pinned(), 0);
    // A log on a page that has room for others.
    let mut trx = db.begin(Isolation::RepeatableRead);
    let changed = [("stock", 100.into())];
    table.set(&mut trx, values!["a"], &changed).unwrap();
    trx.commit().unwrap();
    assert_eq!(pinned(), PAGE);
    // One over several pages.
    let mut trx = db.begin(Isolation::RepeatableRead);
    for stock in 0..2000 {
        let changed = [("stock", stock.into())];
        table.set(&mut trx, values!["a"], &changed).unwrap();
    }
    trx.commit().unwrap();
    let all = pinned();
    assert!((4 * PAGE..40 * PAGE).contains(&all), "{all} bytes");
    assert_eq!(db.purge_standing().history_bytes, all);
    drop(old);
    assert!(db.wait_for_purge(WAIT));
    assert_eq!(db.purge_standing().history_bytes, 0);
}

#[test]
fn a_deadlock_is_described_once_by_who_knows_the_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, false);
    let table = items(&db);
    let said = |word: &'static str| {
        move |session: u64| {
            Some(SessionText {
                active: Duration::from_secs(session),
                operation: "updating".into(),
                before: String::new(),
                after: format!("{word} of {session}\n"),
            })
        }
    };
    // Nothing to be described yet.
    assert!(db.describe_deadlocks(said("nothing")).next().is_none());
    let (mut a, mut b) = (
        db.begin(Isolation::RepeatableRead),
        db.begin(Isolation::RepeatableRead),
    );
    a.set_session(3);
    b.set_session(4);
    table
        .set(&mut a, values!["a"], &[("stock", 5.into())])
        .unwrap();
    table
        .set(&mut a, values!["c"], &[("stock", 5.into())])
        .unwrap();
    table
        .set(&mut b, values!["b"], &[("stock", 5.into())])
        .unwrap();
    std::thread::scope(|s| {
        let waiting = s.spawn(|| table.set(&mut a, values!["b"], &[("stock", 6.into())]));
        one_wait(&db);
        let victim = table.set(&mut b, values!["a"], &[("stock", 6.into())]);
        assert!(matches!(victim, Err(Error::Deadlock)), "{victim:?}");
        let told: Vec<String> = db.describe_deadlocks(said("statement")).collect();
        assert!(
            matches!(&told[..], [one] if one.contains("statement of 3")),
            "{told:?}"
        );
        let again = db.describe_deadlocks(said("another statement")).next();
        assert!(again.is_none(), "{again:?}");
        assert!(b.take_lock_wait() > Duration::ZERO && b.take_lock_wait() == Duration::ZERO);
        b.rollback().unwrap();
        waiting.join().unwrap().unwrap();
    });
    assert!(a.take_lock_wait() > Duration::ZERO);
    let report = db.report();
    let (_, text) = report
        .iter()
        .find(|(title, _)| *title == "LATEST DETECTED DEADLOCK")
        .unwrap();
    for part in [
        ", ACTIVE 4 sec updating\n",
        "1 row lock(s), undo log entries 3\nstatement of 4\n",
        "statement of 3\n",
        "WE ROLL BACK TRANSACTION (1)",
    ] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    assert!(!text.contains("another"), "{text}");
}
