//! A process that is killed loses no acknowledged commit, and leaves none in part.
//!
//! The test starts itself again as a child, which transfers amounts between accounts from several threads and
//! prints a line after each commit it was told of. The parent kills it with SIGKILL at a random moment, opens
//! the database, and compares: each acknowledged transfer has its journal row, each journal row has both
//! legs, the sum is what it was, and the structure check finds nothing. Several rounds go on with the same
//! database, so that recovery itself gets killed at times, too. Each transfer also writes to a temporary
//! table, of which nothing must be left.

#[path = "support/child.rs"]
mod child_process;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use child_process::Life;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use varve::{ColumnType, Database, Error, Isolation, KeyMatch, LockMode, Options, TableDef, Value};

const CHILD: &str = "VARVE_KILL_TEST_DIR";
const ACCOUNTS: i64 = 60;
const THREADS: u64 = 4;
const START: i64 = 1000;
/// Transfers that are acknowledged before a child is killed.
const LEAST: usize = 15;

fn options() -> Options {
    // Small, so that pages are evicted and checkpoints happen during the test.
    Options {
        page_size: 4096,
        buffer_pool_bytes: 2 << 20,
        redo_capacity_bytes: 8 << 20,
        redo_index_from_bytes: 0,
        ..Options::default()
    }
}

fn accounts() -> TableDef {
    TableDef::new("bank/accounts")
        .column("id", ColumnType::i64())
        .column("balance", ColumnType::i64())
        .column("note", ColumnType::text(40_000))
        .primary(&["id"])
        .index("by_balance", &["balance"])
}

fn journal() -> TableDef {
    TableDef::new("bank/journal")
        .column("thread", ColumnType::u64())
        .column("number", ColumnType::u64())
        .column("from", ColumnType::i64())
        .column("to", ColumnType::i64())
        .column("amount", ColumnType::i64())
        .primary(&["thread", "number"])
        .unique("by_number", &["number", "thread"])
}

fn set_up(dir: &Path) {
    let db = Database::open(dir, options()).unwrap();
    let table = db.create_table(&accounts()).unwrap();
    db.create_table(&journal()).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ACCOUNTS {
        let row = [Value::Int(id), Value::Int(START), Value::Text("new".into())];
        trx.insert(&table, &table.def().row(&row).unwrap().datums())
            .unwrap();
    }
    trx.commit().unwrap();
    db.close().unwrap();
}

fn scratch(thread: u64) -> String {
    format!("tmp/scratch{thread}")
}

/// Adds `amount` to an account; the row's length changes, too.
fn add(
    db: &Database,
    trx: &mut varve::Transaction,
    id: i64,
    amount: i64,
    rng: &mut StdRng,
) -> varve::Result<()> {
    let table = db.table("bank/accounts")?;
    let mut cursor = table.cursor(0)?;
    let key = table.def().key(0, &[Value::Int(id)])?;
    assert!(cursor.seek(trx, &key.datums(), KeyMatch::Exact, LockMode::Exclusive)?);
    let balance = i64::from_le_bytes(cursor.row()?.get(1).unwrap().try_into().unwrap());
    // Sometimes more than fits in a page.
    let most = if rng.random_ratio(1, 5) { 30_000 } else { 200 };
    let note = "x".repeat(rng.random_range(0..most));
    let row = [
        Value::Int(id),
        Value::Int(balance + amount),
        Value::Text(note),
    ];
    trx.update(&table, &cursor, &table.def().row(&row)?.datums())?;
    Ok(())
}

fn transfer(db: &Database, thread: u64, number: u64, rng: &mut StdRng) -> varve::Result<bool> {
    let mut trx = db.begin(Isolation::RepeatableRead);
    let (from, to) = (rng.random_range(0..ACCOUNTS), rng.random_range(0..ACCOUNTS));
    let amount = rng.random_range(1..100);
    add(db, &mut trx, from, -amount, rng)?;
    let savepoint = trx.savepoint();
    add(db, &mut trx, to, amount + 7, rng)?;
    trx.rollback_to(savepoint)?;
    add(db, &mut trx, to, amount, rng)?;
    // A table that no other process will see; what is done to it must not get in recovery's way.
    let scratch = db.table(&scratch(thread))?;
    let row = [Value::UInt(number), Value::Bytes(vec![1; amount as usize])];
    trx.insert(&scratch, &scratch.def().row(&row)?.datums())?;
    let table = db.table("bank/journal")?;
    let (thread, number) = (Value::UInt(thread), Value::UInt(number));
    let row = [
        thread,
        number,
        Value::Int(from),
        Value::Int(to),
        Value::Int(amount),
    ];
    trx.insert(&table, &table.def().row(&row)?.datums())?;
    if rng.random_ratio(1, 10) {
        trx.rollback()?;
        return Ok(false);
    }
    trx.commit()?;
    Ok(true)
}

/// The child: works until it is killed.
#[test]
#[ignore = "started by the test below"]
fn child() {
    let Ok(dir) = std::env::var(CHILD) else {
        return;
    };
    let db = Database::open(&dir, options()).unwrap();
    std::thread::scope(|s| {
        for thread in 0..THREADS {
            let db = &db;
            s.spawn(move || {
                let mut rng = StdRng::from_os_rng();
                let notes = TableDef::new(scratch(thread))
                    .column("number", ColumnType::u64())
                    .column("note", ColumnType::Bytes(100))
                    .primary(&["number"]);
                db.create_temporary_table(&notes).unwrap();
                // Numbers never repeat: each life of the process starts far above the last one.
                let life = std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .unwrap();
                let mut number = life.as_millis() as u64 * 100_000;
                loop {
                    number += 1;
                    match transfer(db, thread, number, &mut rng) {
                        Ok(true) => {
                            child_process::say(&format!("ack {thread} {number}"));
                        }
                        Ok(false) | Err(Error::Deadlock) => {}
                        Err(e) => panic!("{e}"),
                    }
                }
            });
        }
    });
}

/// Runs a child until so much is acknowledged and a while longer, kills it, and returns what it acknowledged.
fn run_and_kill(dir: &Path, times: usize, then: Duration) -> Vec<(u64, u64)> {
    let dir = dir.to_str().unwrap();
    let word = "ack";
    let lines = child_process::run_and_kill(&[(CHILD, dir)], &Life { word, times, then });
    let acknowledged = |line: &String| {
        let words = child_process::words_from(line, &["ack"]);
        Some((words.get(1)?.parse().ok()?, words.get(2)?.parse().ok()?))
    };
    lines.iter().filter_map(acknowledged).collect()
}

fn read_all(db: &Database, name: &str) -> Vec<Vec<i64>> {
    let table = db.table(name).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    let mut rows = Vec::new();
    let mut more = cursor.first(&mut trx, LockMode::None).unwrap();
    while more {
        let row = cursor.row().unwrap();
        let ints =
            (0..row.len()).filter_map(|i| row.get(i)?.try_into().ok().map(i64::from_le_bytes));
        rows.push(ints.collect());
        more = cursor.next(&mut trx).unwrap();
    }
    rows
}

fn verify(dir: &Path, acknowledged: &[(u64, u64)], context: &str) -> usize {
    let db = Database::open(dir, options()).unwrap();
    let mut expected: HashMap<i64, i64> = (0..ACCOUNTS).map(|id| (id, START)).collect();
    let journal = read_all(&db, "bank/journal");
    let mut seen = std::collections::HashSet::new();
    for row in &journal {
        *expected.get_mut(&row[2]).unwrap() -= row[4];
        *expected.get_mut(&row[3]).unwrap() += row[4];
        seen.insert((row[0] as u64, row[1] as u64));
    }
    for ack in acknowledged {
        assert!(
            seen.contains(ack),
            "{context}: acknowledged transfer {ack:?} is lost"
        );
    }
    for row in read_all(&db, "bank/accounts") {
        assert_eq!(
            row[1], expected[&row[0]],
            "{context}: balance of account {}",
            row[0]
        );
    }
    assert_eq!(db.tables().unwrap(), ["bank/accounts", "bank/journal"]);
    assert!(db.table(&scratch(0)).is_err(), "{context}");
    for name in db.tables().unwrap() {
        let report = db.check_table(&db.table(&name).unwrap()).unwrap();
        assert!(
            report.errors.is_empty(),
            "{context}: {name}: {:#?}",
            report.errors
        );
    }
    db.core().undo.check().expect(context);
    db.crash();
    journal.len()
}

#[test]
fn a_killed_process_loses_no_acknowledged_commit() {
    let seed: u64 = rand::random();
    let mut rng = StdRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    set_up(dir.path());
    let mut acknowledged = Vec::new();
    let mut rows = 0;
    for round in 0..8 {
        let then = Duration::from_millis(rng.random_range(0..800));
        acknowledged.extend(run_and_kill(dir.path(), LEAST, then));
        // At times the next process is killed while it recovers.
        if rng.random_ratio(1, 3) {
            acknowledged.extend(run_and_kill(
                dir.path(),
                0,
                Duration::from_millis(rng.random_range(1..60)),
            ));
        }
        rows = verify(
            dir.path(),
            &acknowledged,
            &format!("seed {seed} round {round}"),
        );
    }
    println!(
        "{} acknowledged transfers, {rows} journal rows",
        acknowledged.len()
    );
    assert!(
        acknowledged.len() >= 8 * LEAST,
        "the children did too little: {}",
        acknowledged.len()
    );
}
