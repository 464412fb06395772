//! Writers are delayed while purge lags. What could break here: somebody is delayed who must not be
//! (rollback, DDL, temporary tables), who is delayed can't be killed or keeps a shutdown waiting, an open
//! view lets the history grow at full speed. That the delays are smooth is shown in purge/lag_rate.rs, with a
//! simulated database, and by `cargo xtask bench purge-lag`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use varve::{
    ColumnType, Database, Error, FlushLog, HistoryOptions, Isolation, KeyMatch, LockMode, Options,
    PurgeOptions, Result, Table, TableDef, Transaction,
};

const DEADLINE: Duration = Duration::from_secs(120);
const HOUR: Duration = Duration::from_secs(3600);

fn open(dir: &tempfile::TempDir) -> Database {
    let options = Options {
        // Purge waits for views here.
        history: HistoryOptions {
            store: false,
            ..HistoryOptions::default()
        },
        flush_log_at_trx_commit: FlushLog::Lazy,
        buffer_pool_bytes: 16 << 20,
        redo_capacity_bytes: 16 << 20,
        ..Options::default()
    };
    Database::open(dir.path(), options).unwrap()
}

fn definition(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .primary(&["id"])
        .index("k", &["k"])
}

/// Rows with ids from 0 up to `rows`.
fn create(db: &Database, name: &str, rows: i64) -> Table {
    let table = db.create_table(&definition(name)).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..rows {
        insert(&mut trx, &table, id).unwrap();
    }
    trx.commit().unwrap();
    table
}

fn insert(trx: &mut Transaction, table: &Table, id: i64) -> Result<()> {
    trx.insert(table, &[Some(&id.to_le_bytes()), Some(&id.to_le_bytes())])
}

/// Gives the row another id or another k.
fn update(trx: &mut Transaction, table: &Table, id: i64, (new_id, k): (i64, i64)) -> Result<()> {
    let (mut cursor, key) = (table.cursor(0)?, id.to_le_bytes());
    assert!(cursor.seek(trx, &[Some(&key)], KeyMatch::Exact, LockMode::Exclusive)?);
    let row = [Some(&new_id.to_le_bytes()[..]), Some(&k.to_le_bytes()[..])];
    trx.update(table, &cursor, &row)?;
    Ok(())
}

fn delete(trx: &mut Transaction, table: &Table, id: i64) -> Result<()> {
    let (mut cursor, key) = (table.cursor(0)?, id.to_le_bytes());
    assert!(cursor.seek(trx, &[Some(&key)], KeyMatch::Exact, LockMode::Exclusive)?);
    trx.delete(table, &cursor)
}

fn status(db: &Database, name: &str) -> u64 {
    let found = db.status().into_iter().find(|(n, _)| *n == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

/// Whether it is so in time.
fn comes_to(is_so: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > DEADLINE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    assert!(comes_to(is_so), "never: {what}");
}

#[test]
fn what_leaves_something_to_purge_takes_turns_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let table = create(&db, "lag/t", 10);
    let temporary = db
        .create_temporary_table(&definition("lag/temporary"))
        .unwrap();
    // It keeps dead rows from being purged.
    let mut reader = db.begin(Isolation::RepeatableRead);
    reader.take_snapshot();
    let pacer = &db.core().pacer;
    pacer.set(1e6, Duration::from_millis(1));
    let turns = |what: &dyn Fn(&mut Transaction) -> Result<()>| {
        let before = pacer.counters.turns.get();
        let mut trx = db.begin(Isolation::RepeatableRead);
        what(&mut trx).unwrap();
        trx.commit().unwrap();
        pacer.counters.turns.get() - before
    };
    assert_eq!(turns(&|trx| update(trx, &table, 1, (1, 100))), 1);
    assert_eq!(turns(&|trx| delete(trx, &table, 2)), 1);
    assert_eq!(
        turns(&|trx| insert(trx, &table, 2)),
        1,
        "where a dead row lies"
    );
    assert_eq!(
        turns(&|trx| update(trx, &table, 3, (30, 3))),
        1,
        "a new key"
    );
    assert_eq!(turns(&|trx| insert(trx, &table, 40)), 0);
    let (id, k) = (41i64.to_le_bytes(), 1i64.to_le_bytes());
    assert_eq!(
        turns(&|trx| trx.insert_many(&table, &[[Some(&id[..]), Some(&k[..])]])),
        0
    );
    let of_temporary = turns(&|trx| {
        insert(trx, &temporary, 1)?;
        update(trx, &temporary, 1, (1, 2))?;
        delete(trx, &temporary, 1)
    });
    assert_eq!(of_temporary, 0);
    let rolled_back = turns(&|trx| {
        let mut other = db.begin(Isolation::RepeatableRead);
        update(&mut other, &table, 5, (5, 100))?;
        delete(&mut other, &table, 6)?;
        other.rollback()?;
        let savepoint = trx.savepoint();
        delete(trx, &table, 6)?;
        trx.rollback_to(savepoint)
    });
    assert_eq!(rolled_back, 3, "the changes alone");
    let of_ddl = turns(&|_| {
        db.create_table(&definition("lag/u"))?;
        db.rename_table("lag/u", "lag/v")?;
        db.truncate_table("lag/v")?;
        db.drop_table("lag/v")
    });
    assert_eq!(of_ddl, 0);
}

/// `end` ends the delay of an update that would last for an hour.
fn end_delay(end: impl FnOnce(&Database, &varve::Interrupt)) -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let table = create(&db, "lag/t", 10);
    let pacer = &db.core().pacer;
    pacer.set(1.0 / 3600.0, HOUR);
    let mut trx = db.begin(Isolation::RepeatableRead);
    update(&mut trx, &table, 0, (0, 1)).unwrap();
    let interrupt = trx.interrupt_handle();
    let (ended, writer) = mpsc::channel();
    let its_table = table.clone();
    // Nobody waits for it if it does not end.
    std::thread::spawn(move || {
        let done = update(&mut trx, &its_table, 1, (1, 100));
        let _ = ended.send((trx, done));
    });
    wait_until("the writer is delayed", || pacer.counters.sleeps.get() == 1);
    // PACE-2: others get at the leaves where it will write.
    let mut other = db.begin(Isolation::RepeatableRead);
    insert(&mut other, &table, 50).unwrap();
    other.commit().unwrap();
    end(&db, &interrupt);
    let (mut trx, done) = writer
        .recv_timeout(DEADLINE)
        .expect("the writer is delayed no longer");
    if matches!(done, Err(Error::Interrupted)) {
        pacer.end();
        interrupt.clear();
        // Nothing was changed, and the transaction goes on.
        update(&mut trx, &table, 1, (1, 200)).unwrap();
        trx.commit().unwrap();
        assert!(db.check_table(&table).unwrap().errors.is_empty());
    }
    done
}

/// PACE-3.
#[test]
fn a_delayed_writer_can_be_killed() {
    let done = end_delay(|_, interrupt| interrupt.interrupt());
    assert!(matches!(done, Err(Error::Interrupted)), "{done:?}");
}

#[test]
fn without_a_limit_nobody_is_delayed_at_once() {
    end_delay(|db, _| db.set_purge_options(PurgeOptions::default()).unwrap()).unwrap();
}

#[test]
fn who_is_delayed_does_not_keep_the_database_from_closing() {
    // Whether the update was quicker than the end of everything is open.
    let done = end_delay(|db, _| db.clone().close().unwrap());
    assert!(
        matches!(done, Ok(()) | Err(Error::Poisoned { .. })),
        "{done:?}"
    );
}

#[test]
fn an_open_view_delays_writers_until_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let table = create(&db, "lag/t", 4);
    let mut reader = db.begin(Isolation::RepeatableRead);
    reader.take_snapshot();
    let most = Duration::from_millis(2);
    let limited = PurgeOptions {
        max_purge_lag: 5000,
        max_purge_lag_delay: most,
        ..PurgeOptions::default()
    };
    db.set_purge_options(limited).unwrap();
    let delay = || status(&db, "purge_dml_delay_usec");
    let stop = AtomicBool::new(false);
    let (grew, grown, history, fell) = std::thread::scope(|scope| {
        for id in 0..4 {
            let (db, table, stop) = (&db, &table, &stop);
            scope.spawn(move || {
                let mut k = 0;
                while !stop.load(Ordering::Relaxed) {
                    k += 1;
                    let mut trx = db.begin(Isolation::RepeatableRead);
                    update(&mut trx, table, id, (id, k)).unwrap();
                    trx.commit().unwrap();
                }
            });
        }
        // Half of the most: it only grows while the view is open.
        let grew = comes_to(|| delay() >= 1000);
        let (grown, history) = (delay(), status(&db, "history_list_length"));
        drop(reader);
        let fell = comes_to(|| delay() <= 500);
        stop.store(true, Ordering::Relaxed);
        (grew, grown, history, fell)
    });
    assert!(grew && (1000..=2000).contains(&grown), "{grown} µs");
    assert!(history > 5000, "{history}");
    assert!(fell, "{} µs", delay());
    assert!(status(&db, "purge_dml_delayed_usec") > status(&db, "purge_dml_delays"));
    assert!(db.wait_for_purge(DEADLINE));
    wait_until("nobody is delayed, nothing is left to purge", || {
        !db.core().pacer.is_on()
    });
    wait_until("no delay is told", || delay() == 0);
}

#[test]
fn a_longest_delay_that_is_too_long_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let options = PurgeOptions {
        max_purge_lag_delay: Duration::from_micros(10_000_001),
        ..PurgeOptions::default()
    };
    let refused = db.set_purge_options(options).unwrap_err().to_string();
    assert!(
        refused.contains("purge.max_purge_lag_delay 10.000001s"),
        "{refused}"
    );
}
