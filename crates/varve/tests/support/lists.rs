//! Random transactions on lists or registers, by several threads at once: the history that
//! `varve_sim::anomalies` judges.
//!
//! A register has a value and the one before it, which its writer found under its lock. So the values of a
//! register are a list, too: of a value that is read it is known what was written before. Who lost an update
//! has taken a value for the last one that was not.

#![allow(dead_code)]

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::{
    ColumnType, Database, Error, Isolation, KeyMatch, LockMode, Options, Result, RowRef, Table,
    TableDef, Transaction, Value,
};
use varve_sim::anomalies::{Anomaly, History, Step, Txn, anomalies};

/// Rows for these keys appear when they are first appended to.
const KEYS: u32 = 6;
/// The index by length: each append moves the row's entry in it.
const BY_LENGTH: usize = 1;

/// What a row holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// All values that were appended: the row grows, and finally moves to pages of its own.
    Lists,
    /// The last value and the one before: it is overwritten in its place.
    Registers,
}

pub struct Plan {
    pub level: Isolation,
    pub shape: Shape,
    pub threads: u64,
    pub txns: usize,
    pub seed: u64,
    pub options: Options,
}

impl Plan {
    pub fn new(level: Isolation, seed: u64) -> Plan {
        let options = Options {
            page_size: 4096,
            buffer_pool_bytes: 4 << 20,
            redo_capacity_bytes: 16 << 20,
            flush_log_at_trx_commit: varve::FlushLog::Lazy,
            ..Options::default()
        };
        Plan {
            level,
            shape: Shape::Lists,
            threads: 4,
            txns: 250,
            seed,
            options,
        }
    }
}

/// What a transaction is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reader,
    Writer,
    /// Locks what it reads, and appends.
    Locker,
    /// Reads plainly, and appends.
    Mixed,
}

struct Session<'a> {
    db: &'a Database,
    table: &'a Table,
    level: Isolation,
    shape: Shape,
    rng: SmallRng,
    next_value: &'a AtomicU32,
    /// Of each value of a register the one that its writer found.
    before: &'a Mutex<HashMap<u32, u32>>,
}

/// Runs the plan on a new database; returns what the level forbids and nevertheless happened.
pub fn run(plan: Plan) -> (History, Vec<Anomaly>) {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), plan.options).unwrap();
    if plan.seed % 2 == 1 {
        // Scans lock by ranges, not only long ones.
        db.core().locks.set_few_locks(0);
    }
    let def = TableDef::new("a/lists")
        .column("k", ColumnType::u32())
        .column("list", ColumnType::Bytes(60_000))
        .column("length", ColumnType::u32())
        .primary(&["k"])
        .index("by_length", &["length"]);
    let table = db.create_table(&def).unwrap();
    let next_value = AtomicU32::new(1);
    let txns = Mutex::new(Vec::new());
    let before = Mutex::default();
    std::thread::scope(|scope| {
        for thread in 0..plan.threads {
            let mut session = Session {
                db: &db,
                table: &table,
                level: plan.level,
                shape: plan.shape,
                rng: SmallRng::seed_from_u64(plan.seed << 8 | thread),
                next_value: &next_value,
                before: &before,
            };
            let txns = &txns;
            scope.spawn(move || {
                for _ in 0..plan.txns {
                    let txn = session.transaction();
                    txns.lock().unwrap().push(txn);
                }
            });
        }
    });
    let mut trx = db.begin(Isolation::RepeatableRead);
    let all = scan(&table, &mut trx, 0, LockMode::None).unwrap();
    trx.commit().unwrap();
    let report = db.check_table(&table).unwrap();
    assert_eq!(report.rows, all.len() as u64);
    db.close().unwrap();
    let mut history = History {
        txns: txns.into_inner().unwrap(),
        lists: all,
    };
    if plan.shape == Shape::Registers {
        unfold(&mut history, &before.into_inner().unwrap());
    }
    let found = anomalies(&history, plan.level);
    (history, found)
}

/// Puts in the place of each register's values the list of all values up to the last one.
fn unfold(history: &mut History, before: &HashMap<u32, u32>) {
    let unfold = |list: &mut Vec<u32>| {
        match list[..] {
            [last, found] if before.get(&last) == Some(&found) => {
                let earlier = |value: &u32| before.get(value).copied().filter(|value| *value != 0);
                *list = std::iter::successors(Some(last), earlier).collect();
                list.reverse();
            }
            // What nobody wrote, or a scan met twice, stays: it is no beginning of the list.
            _ => list.retain(|value| *value != 0),
        }
    };
    history.lists.values_mut().for_each(unfold);
    for step in history.txns.iter_mut().flat_map(|txn| &mut txn.steps) {
        if let Step::Read { list, .. } = step {
            unfold(list);
        }
    }
}

impl Session<'_> {
    fn transaction(&mut self) -> Txn {
        let kinds = [Kind::Reader, Kind::Writer, Kind::Locker, Kind::Mixed];
        let kind = kinds[self.rng.random_range(0..4)];
        let mut trx = self.db.begin(self.level);
        trx.set_lock_wait_timeout(Duration::from_secs(60));
        let mut txn = Txn::default();
        for _ in 0..self.rng.random_range(1..=4) {
            trx.start_statement();
            if let Err(error) = self.statement(&mut trx, kind, &mut txn.steps) {
                // Two that appended to a new list at once, and waited for each other or not.
                let is_conflict = matches!(error, Error::Deadlock | Error::DuplicateKey { .. });
                assert!(is_conflict, "{error}");
                trx.rollback().unwrap();
                return txn;
            }
            self.dawdle();
        }
        if kind != Kind::Reader && self.rng.random_bool(0.15) {
            trx.rollback().unwrap();
            return txn;
        }
        trx.commit().unwrap();
        txn.committed = true;
        txn
    }

    /// Gives others time to come in between.
    fn dawdle(&mut self) {
        match self.rng.random_range(0..4) {
            0 => std::thread::sleep(Duration::from_micros(self.rng.random_range(0..300))),
            1 | 2 => std::thread::yield_now(),
            _ => {}
        }
    }

    fn statement(
        &mut self,
        trx: &mut Transaction,
        kind: Kind,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let reads = match kind {
            Kind::Reader => true,
            Kind::Writer => false,
            Kind::Locker | Kind::Mixed => self.rng.random_bool(0.5),
        };
        let key = self.rng.random_range(0..KEYS);
        if !reads {
            return self.append(trx, key, steps);
        }
        let lock = match kind {
            Kind::Locker if self.rng.random_bool(0.5) => LockMode::Shared,
            Kind::Locker => LockMode::Exclusive,
            _ => LockMode::None,
        };
        let locking = lock != LockMode::None || self.level == Isolation::Serializable;
        let whole = |lists: BTreeMap<u32, Vec<u32>>| {
            (0..KEYS).map(move |key| Step::Read {
                key,
                list: lists.get(&key).cloned().unwrap_or_default(),
                locking,
            })
        };
        match self.rng.random_range(0..3) {
            0 => steps.extend(whole(scan(self.table, trx, 0, lock)?)),
            1 if self.may_scan_moving_entries(lock) => {
                steps.extend(whole(scan(self.table, trx, BY_LENGTH, lock)?));
            }
            _ => {
                let list = read(self.table, trx, key, lock)?.unwrap_or_default();
                steps.push(Step::Read { key, list, locking });
            }
        }
        Ok(())
    }

    /// An entry that others move behind a scan comes twice, or not at all, unless a view or gap locks keep it
    /// in its place.
    fn may_scan_moving_entries(&self, lock: LockMode) -> bool {
        match self.level {
            Isolation::ReadUncommitted => false,
            Isolation::ReadCommitted => lock == LockMode::None,
            Isolation::RepeatableRead | Isolation::Serializable => true,
        }
    }

    /// Sometimes takes back what it appended, to a savepoint.
    fn append(&mut self, trx: &mut Transaction, key: u32, steps: &mut Vec<Step>) -> Result<()> {
        let value = self.next_value.fetch_add(1, Ordering::Relaxed);
        let savepoint = trx.savepoint();
        // Whatever becomes of the statement, somebody may see the value meanwhile.
        steps.push(Step::Undone { value });
        let list = read(self.table, trx, key, LockMode::Exclusive)?;
        let is_new = list.is_none();
        let mut list = list.unwrap_or_default();
        let length = match self.shape {
            Shape::Lists => {
                list.push(value);
                list.len() as u64
            }
            Shape::Registers => {
                let found = list.first().copied().unwrap_or(0);
                self.before.lock().unwrap().insert(value, found);
                list = vec![value, found];
                // Its entry moves, too.
                value.into()
            }
        };
        let length = Value::UInt(length);
        let bytes = list.iter().flat_map(|value| value.to_le_bytes()).collect();
        let row = [Value::UInt(key.into()), Value::Bytes(bytes), length];
        match is_new {
            true => self.table.insert(trx, &row)?,
            false => self.table.put(trx, &row)?,
        }
        if self.rng.random_bool(0.1) {
            self.dawdle();
            return trx.rollback_to(savepoint);
        }
        steps.pop();
        steps.push(Step::Append { key, value });
        Ok(())
    }
}

fn list_of(row: &RowRef<'_>) -> (u32, Vec<u32>) {
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    let list: Vec<u32> = row.get(1).unwrap().chunks(4).map(word).collect();
    (word(row.get(0).unwrap()), list)
}

fn read(
    table: &Table,
    trx: &mut Transaction,
    key: u32,
    lock: LockMode,
) -> Result<Option<Vec<u32>>> {
    let mut cursor = table.cursor(0)?;
    let bytes = key.to_le_bytes();
    let found = cursor.seek(trx, &[Some(&bytes)], KeyMatch::Exact, lock)?;
    Ok(match found {
        true => Some(list_of(&cursor.row()?).1),
        false => None,
    })
}

/// All lists, through one of the indexes. Each should come once; what comes twice is no list that ever was.
fn scan(
    table: &Table,
    trx: &mut Transaction,
    index: usize,
    lock: LockMode,
) -> Result<BTreeMap<u32, Vec<u32>>> {
    let mut lists = BTreeMap::new();
    let mut cursor = table.cursor(index)?;
    let mut more = cursor.first(trx, lock)?;
    while more {
        let (key, list) = list_of(&cursor.row()?);
        lists.entry(key).or_insert_with(Vec::new).extend(list);
        more = cursor.next(trx)?;
    }
    Ok(lists)
}
