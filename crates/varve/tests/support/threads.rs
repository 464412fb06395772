//! A workload of several threads on a simulated disk: commits side by side, lock waits and deadlocks, purge
//! and flushing between them. What it was promised is known all the same:
//!
//! - Each thread writes rows whose keys are its own, and tells its changes apart by the operations of the
//!   disk between which each was made. After a crash at operation `at`, all of its changes are there that
//!   were acknowledged before; the one that was under way then may be there, as a whole; nothing else is.
//! - Counters belong to all. Each thread adds to them in its transactions, so after a crash they are the sums
//!   of what the surviving changes added: a change whose predecessor was lost would leave too much.
//!
//! The seed decides what each thread does, but not the interleaving, which is the machine's. So a failure
//! does not come again from the seed alone; what is kept of it is the disk as the crash left it, with the
//! states that would have been right.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::{ColumnType, Database, Error, Isolation, Table, TableDef, Transaction, Value};
use varve_sim::SimDisk;

use super::crashes::{Finding, Promises, Tried, crash_after};
use super::history::{is_one_of, line};
use super::oracle::Row;
use super::workload::{Config, SIM_DIR};

const ROWS: &str = "threads/rows";
const COUNTERS: &str = "threads/counters";
const N_COUNTERS: usize = 3;
/// Keys of each thread.
const KEYS: i64 = 40;

fn rows_def() -> TableDef {
    TableDef::new(ROWS)
        .column("id", ColumnType::i64())
        .column("k", ColumnType::u16())
        .nullable("code", ColumnType::text(40))
        .column("body", ColumnType::Bytes(40_000))
        .primary(&["id"])
        .index("k", &["k"])
        .unique("code", &["code"])
}

fn counters_def() -> TableDef {
    TableDef::new(COUNTERS)
        .column("id", ColumnType::i64())
        .column("total", ColumnType::i64())
        .primary(&["id"])
}

/// A thread's own table, which comes and goes.
fn own_def(thread: usize) -> TableDef {
    TableDef::new(format!("threads/own{thread}"))
        .column("id", ColumnType::i64())
        .primary(&["id"])
}

/// What one thread's changes have come to.
#[derive(Clone, Default)]
struct Part {
    rows: BTreeMap<i64, Row>,
    added: [i64; N_COUNTERS],
    has_own: bool,
}

struct Moment {
    /// Operations before the change was begun, and before it was acknowledged.
    operations: Range<usize>,
    part: Arc<Part>,
}

/// The changes of all threads, each in its order, the first that from which they began.
struct Threads {
    threads: Vec<Vec<Moment>>,
    begin: usize,
}

impl Threads {
    /// For each thread what it may have come to before operation number `at`.
    fn may_be(&self, at: usize) -> Vec<Vec<&Part>> {
        self.threads
            .iter()
            .map(|moments| {
                let after = moments.partition_point(|m| m.operations.end <= at);
                let next = moments.get(after).filter(|m| m.operations.start < at);
                let last = std::iter::once(&moments[after - 1]);
                last.chain(next).map(|m| &*m.part).collect()
            })
            .collect()
    }
}

/// What the database holds then, as `history::is_one_of` reads it.
fn text(parts: &[&Part]) -> String {
    let mut lines = vec![format!("table {COUNTERS}")];
    for counter in 0..N_COUNTERS {
        let total = parts.iter().map(|part| part.added[counter]).sum();
        lines.push(line(&vec![Value::Int(counter as i64), Value::Int(total)]));
    }
    let own = parts.iter().enumerate().filter(|(_, part)| part.has_own);
    lines.extend(own.map(|(thread, _)| format!("table {}", own_def(thread).name)));
    lines.push(format!("table {ROWS}"));
    let rows: BTreeMap<&i64, &Row> = parts.iter().flat_map(|part| &part.rows).collect();
    lines.extend(rows.values().map(|row| line(row)));
    lines.join("\n")
}

impl Promises for Threads {
    fn judge(&self, db: &Database, at: usize) -> Result<(), String> {
        is_one_of(db, at, &self.describe(at))
    }

    fn describe(&self, at: usize) -> Vec<String> {
        let mut states: Vec<Vec<&Part>> = vec![Vec::new()];
        for may_be in self.may_be(at) {
            let mut longer = Vec::new();
            for (state, part) in states
                .iter()
                .flat_map(|s| may_be.iter().map(move |p| (s, *p)))
            {
                longer.push([state.as_slice(), &[part]].concat());
            }
            states = longer;
        }
        states.iter().map(|parts| text(parts)).collect()
    }

    fn changes(&self) -> usize {
        self.threads.iter().map(|moments| moments.len() - 1).sum()
    }

    fn steps(&self) -> &[String] {
        &[]
    }

    fn begin(&self) -> usize {
        self.begin
    }
}

/// Runs the workload with so many threads, `config.steps` steps each, and tries `wanted` moments of it.
pub fn crash_anywhere(
    config: &Config,
    threads: usize,
    wanted: usize,
) -> Result<Tried, Box<Finding>> {
    let disk = SimDisk::default();
    let config = Config {
        disk: Some(disk.clone()),
        ..config.clone()
    };
    let promises = record(&config, &disk, threads);
    crash_after(&config, &disk, wanted, Box::new(promises))
}

fn record(config: &Config, disk: &SimDisk, threads: usize) -> Threads {
    let db = config.open(Path::new(SIM_DIR)).unwrap();
    // Those who wait have somebody to wait for.
    db.set_lock_wait_timeout(Duration::from_secs(20));
    db.create_table(&rows_def()).unwrap();
    let counters = db.create_table(&counters_def()).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for counter in 0..N_COUNTERS {
        let row = [Value::Int(counter as i64), Value::Int(0)];
        counters.insert(&mut trx, &row).unwrap();
    }
    trx.commit().unwrap();
    let begin = disk.operations();
    let moments = std::thread::scope(|scope| {
        let run = |thread| {
            let mut worker = Worker::new(&db, disk, (thread, threads), config);
            move || {
                (0..config.steps).for_each(|_| worker.step());
                worker.moments
            }
        };
        let all: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(run(thread)))
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    db.crash();
    Threads {
        threads: moments,
        begin,
    }
}

struct Worker<'a> {
    db: &'a Database,
    disk: &'a SimDisk,
    rows: Table,
    counters: Table,
    thread: usize,
    threads: usize,
    rng: SmallRng,
    /// What is committed.
    part: Part,
    moments: Vec<Moment>,
}

impl<'a> Worker<'a> {
    fn new(
        db: &'a Database,
        disk: &'a SimDisk,
        (thread, threads): (usize, usize),
        config: &Config,
    ) -> Worker<'a> {
        let part = Part::default();
        Worker {
            db,
            disk,
            rows: db.table(ROWS).unwrap(),
            counters: db.table(COUNTERS).unwrap(),
            thread,
            threads,
            rng: SmallRng::seed_from_u64(config.seed.wrapping_add(thread as u64)),
            moments: vec![Moment {
                operations: 0..0,
                part: Arc::new(part.clone()),
            }],
            part,
        }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..3 => self.make_or_drop_table(),
            3..10 => self.look(),
            _ => self.transact(),
        }
    }

    /// The change that began at operation number `begun` is acknowledged.
    fn acknowledged(&mut self, begun: usize, part: Part) {
        self.part = part;
        self.moments.push(Moment {
            operations: begun..self.disk.operations(),
            part: Arc::new(self.part.clone()),
        });
    }

    fn make_or_drop_table(&mut self) {
        let mut part = self.part.clone();
        let (begun, def) = (self.disk.operations(), own_def(self.thread));
        match part.has_own {
            true => self.db.drop_table(&def.name).unwrap(),
            false => drop(self.db.create_table(&def).unwrap()),
        }
        part.has_own = !part.has_own;
        self.acknowledged(begun, part);
    }

    /// Its own rows are as it left them, whatever the others do.
    fn look(&mut self) {
        let mut trx = self.db.begin(Isolation::RepeatableRead);
        let found: Vec<Row> = self
            .rows
            .rows(&mut trx)
            .unwrap()
            .map(|row| row.unwrap().values().unwrap())
            .collect();
        let is_own = |row: &&Row| match row[0] {
            Value::Int(id) => id.rem_euclid(self.threads as i64) == self.thread as i64,
            _ => false,
        };
        assert!(
            found.iter().filter(is_own).eq(self.part.rows.values()),
            "rows that nobody else writes"
        );
        trx.commit().unwrap();
    }

    fn transact(&mut self) {
        let levels = [
            Isolation::ReadCommitted,
            Isolation::RepeatableRead,
            Isolation::Serializable,
        ];
        let mut trx = self
            .db
            .begin(levels[self.rng.random_range(0..levels.len())]);
        let mut part = self.part.clone();
        for _ in 0..self.rng.random_range(1..6) {
            match self.statement(&mut trx, &mut part) {
                Ok(()) | Err(Error::DuplicateKey { .. }) => {}
                Err(Error::Deadlock) => return trx.rollback().unwrap(),
                Err(e) => panic!("{e}"),
            }
        }
        if self.rng.random_ratio(1, 10) {
            return trx.rollback().unwrap();
        }
        let begun = self.disk.operations();
        trx.commit().unwrap();
        self.acknowledged(begun, part);
    }

    /// Changes the database, then `part`: a statement that fails changes neither.
    fn statement(&mut self, trx: &mut Transaction, part: &mut Part) -> varve::Result<()> {
        match self.rng.random_range(0..100) {
            0..55 => self.put(trx, part),
            55..70 => {
                let id = self.key();
                assert_eq!(
                    self.rows.delete(trx, &[Value::Int(id)])?,
                    part.rows.contains_key(&id)
                );
                part.rows.remove(&id);
                Ok(())
            }
            70..90 => self.add(trx, part),
            _ => {
                let (savepoint, mut taken_back) = (trx.savepoint(), part.clone());
                let done = self.put(trx, &mut taken_back);
                match done {
                    Err(Error::DuplicateKey { .. }) | Ok(()) => trx.rollback_to(savepoint),
                    failed => failed,
                }
            }
        }
    }

    fn key(&mut self) -> i64 {
        self.rng.random_range(0..KEYS) * self.threads as i64 + self.thread as i64
    }

    fn put(&mut self, trx: &mut Transaction, part: &mut Part) -> varve::Result<()> {
        let id = self.key();
        // Of all threads, so that they meet.
        let code = self.rng.random_range(0..400);
        let len = match self.rng.random_range(0..100) {
            0..80 => self.rng.random_range(0..200),
            _ => self.rng.random_range(0..40_000),
        };
        let row = vec![
            Value::Int(id),
            Value::UInt(self.rng.random_range(0..50)),
            match code {
                0..100 => Value::Null,
                _ => Value::Text(format!("code {code}")),
            },
            Value::Bytes(vec![self.rng.random(); len]),
        ];
        self.rows.put(trx, &row)?;
        part.rows.insert(id, row);
        Ok(())
    }

    fn add(&mut self, trx: &mut Transaction, part: &mut Part) -> varve::Result<()> {
        let counter = self.rng.random_range(0..N_COUNTERS);
        let key = [Value::Int(counter as i64)];
        let row = self.counters.get_for_update(trx, &key)?.expect("it stays");
        let (total, more) = (row.get::<i64>("total")?, self.rng.random_range(1..100));
        assert!(
            self.counters
                .set(trx, &key, &[("total", Value::Int(total + more))])?
        );
        part.added[counter] += more;
        Ok(())
    }
}
