//! A transaction that has drawn its number and does not come to its end: what waits for it, and for how long.
//!
//! What could break here: a reader whose view may see the transaction waits for its last step with the
//! processor at full speed, and hears neither KILL nor that the database has stopped.

#[path = "support/small.rs"]
mod small;

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use varve::Isolation::RepeatableRead;
use varve::{Database, Error, Result, TableDef, Transaction, values};

/// Nothing here takes long; without end is what may happen.
const PATIENCE: Duration = Duration::from_secs(120);

fn open(dir: &Path) -> Database {
    let db = Database::open(dir, small::options()).unwrap();
    let def = TableDef::new("a/t").column("id", varve::ColumnType::i64());
    let def = def.column("n", varve::ColumnType::i64()).primary(&["id"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(RepeatableRead);
    table.insert(&mut trx, values![1, 1]).unwrap();
    trx.commit().unwrap();
    db
}

/// Reads the row in a thread of its own, and says when it begins to.
fn read(mut trx: Transaction, db: &Database) -> mpsc::Receiver<Option<Result<i64>>> {
    let table = db.table("a/t").unwrap();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        tell.send(None).unwrap();
        let row = table.get(&mut trx, values![1]);
        let n = row.and_then(|row| row.expect("the row is there").get("n"));
        tell.send(Some(n)).unwrap();
    });
    assert!(told.recv().unwrap().is_none());
    told
}

/// A transaction that has changed the row.
fn writer(db: &Database) -> Transaction {
    let mut writer = db.begin(RepeatableRead);
    let table = db.table("a/t").unwrap();
    let changed = table.set(&mut writer, values![1], &[("n", 2.into())]);
    assert!(changed.unwrap());
    writer
}

fn what_came(told: &mpsc::Receiver<Option<Result<i64>>>) -> Result<i64> {
    let said = told.recv_timeout(PATIENCE).expect("the reader goes on");
    said.expect("the result comes second")
}

#[test]
fn a_reader_that_waits_for_a_commit_can_be_killed() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let writer = writer(&db);
    let id = writer.id().unwrap();
    let no = db.core().sys.start_commit(id);

    let reader = db.begin(RepeatableRead);
    let kill = reader.interrupt_handle();
    let told = read(reader, &db);
    kill.interrupt();
    match what_came(&told) {
        Err(Error::Interrupted) => {}
        other => panic!("{other:?}"),
    }
    // Nothing was decided: the next one waits until it is.
    let told = read(db.begin(RepeatableRead), &db);
    db.core().sys.finish_commit(id, no);
    assert_eq!(what_came(&told).unwrap(), 2);
    // What the writer believes of itself does not matter any more.
    db.crash();
    drop(writer);
}

#[test]
fn a_reader_that_waits_for_a_commit_hears_that_the_database_has_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let writer = writer(&db);
    db.core().sys.start_commit(writer.id().unwrap());
    let told = read(db.begin(RepeatableRead), &db);
    db.poison("the test says so");
    match what_came(&told) {
        Err(Error::Poisoned { why }) => assert_eq!(why, "the test says so"),
        other => panic!("{other:?}"),
    }
    db.crash();
    drop(writer);
}

/// TXN-5.
#[cfg(feature = "sabotage")]
#[test]
fn a_thread_that_dies_while_it_commits_stops_the_database() {
    use varve::Options;
    use varve::internals::base::Sabotage;
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).close().unwrap();
    let sabotaged = Options {
        sabotage: Some(Sabotage::CommitterDies),
        ..small::options()
    };
    let db = Database::open(dir.path(), sabotaged).unwrap();
    let writer = writer(&db);
    let died = thread::spawn(move || writer.commit()).join();
    assert!(died.is_err(), "the thread was to die");
    let told = read(db.begin(RepeatableRead), &db);
    match what_came(&told) {
        Err(Error::Poisoned { why }) => assert!(why.contains("died"), "{why}"),
        other => panic!("{other:?}"),
    }
    db.crash();

    let db = Database::open(dir.path(), small::options()).unwrap();
    assert_eq!(what_came(&read(db.begin(RepeatableRead), &db)).unwrap(), 1);
    db.close().unwrap();
}
