//! Rows, those who change them, and one who reads them all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use varve::{ColumnType, Database, Isolation, Result, Table, TableDef, Transaction, Value, values};

const FILLING: &str =
    "as wide as a row of an application's table tends to be, with a name and an address";

/// A table of `rows` rows, of about 100 bytes, with a secondary index.
pub fn fill(db: &Database, rows: u64) -> Result<Table> {
    let def = TableDef::new("demo/account")
        .column("id", ColumnType::i64())
        .column("balance", ColumnType::i64())
        .column("note", ColumnType::text(200))
        .primary(&["id"])
        .index("by_balance", &["balance"]);
    let table = db.create_table(&def)?;
    const AT_ONCE: u64 = 1000;
    for first in (0..rows).step_by(AT_ONCE as usize) {
        let mut trx = db.begin(Isolation::RepeatableRead);
        for id in first..rows.min(first + AT_ONCE) {
            table.insert(&mut trx, values![id as i64, 0, FILLING])?;
        }
        trx.commit()?;
    }
    Ok(table)
}

/// Threads that change random rows, each in a transaction.
pub struct Writers {
    // Relaxed: a number for people, and a flag that is seen a transaction later.
    commits: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Writers {
    pub fn start(db: &Database, table: &Table, rows: u64, threads: u64) -> Writers {
        let commits = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let start = |_| {
            let (db, table) = (db.clone(), table.clone());
            let (commits, stop) = (commits.clone(), stop.clone());
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    change(&db, &table, fastrand::u64(..rows) as i64)?;
                    commits.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        };
        let threads = (0..threads).map(start).collect();
        Writers {
            commits,
            stop,
            threads,
        }
    }

    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// The first error of any.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let mut threads = std::mem::take(&mut self.threads).into_iter();
        threads.try_for_each(|thread| thread.join().expect("it does not panic"))
    }
}

/// They are gone before the database's directory is.
impl Drop for Writers {
    fn drop(&mut self) {
        // Whoever drops them has an error to tell already.
        let _ = self.end();
    }
}

fn change(db: &Database, table: &Table, id: i64) -> Result<()> {
    let mut trx = db.begin(Isolation::RepeatableRead);
    let balance = fastrand::i64(0..1_000_000);
    table.set(&mut trx, values![id], &[("balance", Value::Int(balance))])?;
    trx.commit()
}

/// How long it takes to read all rows.
pub fn read_all(table: &Table, trx: &mut Transaction) -> Result<Duration> {
    let begun = Instant::now();
    let mut rows = table.rows(trx)?;
    while rows.next_ref()?.is_some() {}
    Ok(begun.elapsed())
}
