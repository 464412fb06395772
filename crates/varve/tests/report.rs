//! What an administrator reads: who waits for whom, the last deadlock, and who keeps purge from going on.

use std::time::{Duration, Instant};

use varve::{
    ColumnType, Database, Error, HistoryOptions, Isolation, KeyMatch, LockMode, Options,
    PurgeState, Table, TableDef, Transaction, TrxNo, Value,
};

const WAIT: Duration = Duration::from_secs(60);

fn options(history_store: bool) -> Options {
    Options {
        history: HistoryOptions {
            store: history_store,
            delay: Duration::ZERO,
            ..HistoryOptions::default()
        },
        ..Options::default()
    }
}

fn lines(db: &Database, title: &str) -> String {
    let report = db.report();
    let found = report.into_iter().find(|(t, _)| *t == title);
    found.unwrap_or_else(|| panic!("no section {title}")).1
}

fn change(trx: &mut Transaction, table: &Table, id: i64) -> varve::Result<()> {
    change_to(trx, table, id, id + 1)
}

fn change_to(trx: &mut Transaction, table: &Table, id: i64, n: i64) -> varve::Result<()> {
    let mut cursor = table.cursor(0)?;
    let key = table.def().key(0, &[Value::Int(id)])?;
    assert!(cursor.seek(trx, &key.datums(), KeyMatch::Exact, LockMode::Exclusive)?);
    let row = table.def().row(&[Value::Int(id), Value::Int(n)])?;
    trx.update(table, &cursor, &row.datums())?;
    Ok(())
}

fn count(db: &Database, line: &str) -> usize {
    lines(db, "TRANSACTIONS").matches(line).count()
}

/// How many lines there are with the view that is open in `trx`, and what it says.
fn view_line(trx: &Transaction, sees_below: u64) -> String {
    let number = trx.current_view().unwrap().number();
    format!("Trx read view will not see trx with id >= {number}, sees < {sees_below}\n")
}

/// Each with its state, its undo and its view.
fn transactions_are_listed(db: &Database, table: &Table) {
    assert!(db.wait_for_purge(WAIT));
    assert!(count(db, "History list length 0\n") == 1 && count(db, "---TRANSACTION") == 0);
    let mut reader = db.begin(Isolation::RepeatableRead);
    reader.take_snapshot();
    let first = reader.current_view().unwrap().number().0;
    assert_eq!(count(db, "---TRANSACTION 720"), 1);
    assert_eq!(count(db, &view_line(&reader, first)), 1);

    // One that writes before the next view opens is what that does not see.
    let mut writer = db.begin(Isolation::RepeatableRead);
    change(&mut writer, table, 4).unwrap();
    let id = writer.id().unwrap();
    assert_eq!(
        count(
            db,
            &format!(
                "---TRANSACTION {id}, ACTIVE\n2 lock struct(s), heap size 100, 1 row lock(s), undo log entries 1\n"
            )
        ),
        1
    );
    let mut late = db.begin(Isolation::RepeatableRead);
    late.take_snapshot();
    let view = view_line(&late, id.0);
    assert_eq!(count(db, &view), 1);
    change(&mut late, table, 2).unwrap();
    change(&mut late, table, 3).unwrap();
    let text = format!(
        "---TRANSACTION {}, ACTIVE\n3 lock struct(s), heap size 200, 2 row lock(s), undo log entries 2\n{view}",
        late.id().unwrap()
    );
    assert_eq!(count(db, &text), 1);
    assert_eq!(count(db, "---TRANSACTION 720"), 1);

    // The reader holds back what is committed now.
    writer.commit().unwrap();
    late.rollback().unwrap();
    while count(db, "state: stopped\nHistory list length 1\n") == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let purge = db.purge_standing();
    assert_eq!((purge.state, purge.history), (PurgeState::Stopped, 1));
    assert_eq!(
        (purge.purged_below.0, purge.waits_for),
        (first, Some((TrxNo(first), 0)))
    );
    assert_eq!(purge.left, None);
    let mut done = format!("Purge done for trx's n:o < {first} undo n:o < 0 state: stopped\n");
    assert_eq!(count(db, &done), 1, "{}", lines(db, "TRANSACTIONS"));
    reader.commit().unwrap();
    assert!(db.wait_for_purge(WAIT));
    let next = db.status().iter().find(|s| s.0 == "max_trx_id").unwrap().1;
    while count(db, "state: running but idle\nHistory list length 0\n") == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let purge = db.purge_standing();
    assert_eq!((purge.state, purge.history), (PurgeState::Idle, 0));
    assert_eq!((purge.waits_for, purge.left), (None, Some(Duration::ZERO)));
    assert!(purge.working_off > 0.0 && purge.joining >= 0.0, "{purge:?}");
    done = format!("Trx id counter {next}\nPurge done for trx's n:o < {next} undo n:o < 0 ");
    assert_eq!(count(db, &done), 1, "{}", lines(db, "TRANSACTIONS"));
    assert_eq!(count(db, "---TRANSACTION"), 0);
}

fn status(db: &Database, name: &str) -> u64 {
    db.status().iter().find(|s| s.0 == name).unwrap().1
}

#[track_caller]
fn wait_until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < WAIT);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Which views purge goes on behind, what it keeps for them, and for which one it waits.
#[test]
fn views_that_rely_on_the_history_store_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(true)).unwrap();
    let def = TableDef::new("shop/stock")
        .column("id", ColumnType::i64())
        .column("n", ColumnType::i64())
        .primary(&["id"]);
    let table = db.create_table(&def).unwrap();
    let change_all = |n| {
        let mut trx = db.begin(Isolation::RepeatableRead);
        (0..5).for_each(|id| change_to(&mut trx, &table, id, n).unwrap());
        trx.commit().unwrap();
    };
    let snapshot = || {
        let mut trx = db.begin(Isolation::RepeatableRead);
        trx.take_snapshot();
        let number = trx.current_view().unwrap().number().0;
        (trx, number)
    };
    let wait = || assert!(db.wait_for_purge(WAIT));
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..5 {
        let row = def.row(&[Value::Int(id), Value::Int(0)]).unwrap();
        trx.insert(&table, &row.datums()).unwrap();
    }
    trx.commit().unwrap();
    wait();
    let history = || lines(&db, "HISTORY STORE");
    let oldest = || lines(&db, "OLDEST VIEW AND TRANSACTION");
    assert!(history().starts_with("there is none"), "{}", history());
    for name in ["bytes", "versions", "members", "copied", "dropped", "swept"] {
        assert_eq!(status(&db, &format!("history_store_{name}")), 0, "{name}");
    }

    let (first, first_no) = snapshot();
    change_all(1);
    wait();
    let (second, second_no) = snapshot();
    // Nobody needs what the first of these two makes.
    change_all(2);
    change_all(3);
    wait();
    wait_until(|| status(&db, "history_store_members") == 2);
    assert_eq!(status(&db, "history_store_versions"), 10);
    assert_eq!(status(&db, "history_store_copied"), 10);
    assert_eq!(status(&db, "history_store_dropped"), 5);
    assert!(status(&db, "history_store_bytes") > 0);
    let text = history();
    assert!(
        text.contains("history.store: ") && text.contains("10 versions of "),
        "{text}"
    );
    for number in [first_no, second_no] {
        let line = format!("read view {number} relies on it for ");
        let found = text.lines().find(|l| l.starts_with(&line));
        let found = found.unwrap_or_else(|| panic!("{line}: {text}"));
        assert!(found.contains(" seconds: 5 versions of "), "{text}");
    }
    let text = oldest();
    assert!(
        text.contains(&format!("read view {first_no} is open for at least "))
            && text.contains("the history store has 5 versions of ")
            && text.contains("purge waits for no read view\n"),
        "{text}"
    );

    // Without a store for new ones purge waits for the next view, and goes on behind the others.
    db.set_history_options(options(false).history).unwrap();
    let (third, third_no) = snapshot();
    change_all(4);
    wait_until(|| status(&db, "purge_stop_count") > 0);
    let text = oldest();
    let line = format!("read view {third_no} holds purge back; ");
    assert!(text.contains(&line), "{text}");
    assert!(text.contains("purge goes on behind it"), "{text}");
    assert_eq!(status(&db, "history_store_members"), 2);

    drop(second);
    wait_until(|| status(&db, "history_store_members") == 1);
    assert!(history().contains(", 5 of them needed by nobody\n"));
    drop((first, third));
    wait_until(|| history().starts_with("there is none"));
    assert_eq!(status(&db, "history_store_members"), 0);
    assert_eq!(status(&db, "history_store_swept"), 10);
    wait();
}

#[test]
fn waits_deadlocks_and_old_views_are_told_by_name() {
    let dir = tempfile::tempdir().unwrap();
    // Purge is to wait for views.
    let db = Database::open(dir.path(), options(false)).unwrap();
    let def = TableDef::new("shop/stock")
        .column("id", ColumnType::i64())
        .column("n", ColumnType::i64())
        .primary(&["id"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..5 {
        let row = def.row(&[Value::Int(id), Value::Int(0)]).unwrap();
        trx.insert(&table, &row.datums()).unwrap();
    }
    trx.commit().unwrap();
    assert!(lines(&db, "LATEST DETECTED DEADLOCK").contains("none since"));
    assert!(lines(&db, "LOCK WAITS").contains("nobody waits"));
    transactions_are_listed(&db, &table);

    let mut old = db.begin(Isolation::RepeatableRead);
    old.take_snapshot();
    let view = lines(&db, "OLDEST VIEW AND TRANSACTION");
    assert!(view.contains("holds purge back, for at least "), "{view}");
    drop(old);

    let (mut light, mut heavy) = (
        db.begin(Isolation::RepeatableRead),
        db.begin(Isolation::RepeatableRead),
    );
    change(&mut light, &table, 0).unwrap();
    for id in 1..4 {
        change(&mut heavy, &table, id).unwrap();
    }
    let (light_id, heavy_id) = (light.id().unwrap(), heavy.id().unwrap());
    std::thread::scope(|s| {
        let waiting = s.spawn(|| change(&mut heavy, &table, 0));
        while lines(&db, "LOCK WAITS").contains("nobody") {
            std::thread::sleep(Duration::from_millis(1));
        }
        let waits = lines(&db, "LOCK WAITS");
        for part in [
            format!("transaction {heavy_id} has waited"),
            "index PRIMARY of table `shop`.`stock`".to_string(),
            format!("held by transaction {light_id}"),
        ] {
            assert!(waits.contains(&part), "{part} is missing: {waits}");
        }
        let victim = change(&mut light, &table, 1);
        assert!(matches!(victim, Err(Error::Deadlock)), "{victim:?}");
        light.rollback().unwrap();
        waiting.join().unwrap().unwrap();
    });
    let deadlock = lines(&db, "LATEST DETECTED DEADLOCK");
    let members: Vec<_> = deadlock.split("*** (").skip(1).collect();
    let [first, second] = members[..] else {
        panic!("{deadlock}")
    };
    assert!(
        first.starts_with(&format!(
            "1) TRANSACTION:\nTRANSACTION {light_id}, ACTIVE\nLOCK WAIT 2 lock struct(s), heap size 100, 1 row lock(s), undo log entries 1\n"
        )),
        "{deadlock}"
    );
    assert!(
        second.starts_with(&format!(
            "2) TRANSACTION:\nTRANSACTION {heavy_id}, ACTIVE\nLOCK WAIT 4 lock struct(s), heap size 300, 3 row lock(s), undo log entries 3\n"
        )),
        "{deadlock}"
    );
    assert!(
        second.ends_with("key 0 waiting\n\n*** WE ROLL BACK TRANSACTION (1)\n"),
        "{deadlock}"
    );
    let oldest = lines(&db, "OLDEST VIEW AND TRANSACTION");
    assert!(
        oldest.contains(&format!("transaction {heavy_id} is the oldest")),
        "{oldest}"
    );
    heavy.rollback().unwrap();
}
