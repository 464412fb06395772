//! A random workload on a real database, each answer compared with the oracle's.
//!
//! Several transactions are open at a time and take turns in one thread, so a run is determined by its seed:
//! a failure prints the seed, and `VARVE_MODEL_SEED=… cargo test -p varve --test model NAME` plays it again.
//! A lock that is held by another one of them can only time out, which the oracle foresees. Each step draws
//! from a seed of its own, so that some can be left out and the others stay as they are (`super::shrink`).
//!
//! Some transactions are prepared before they end, and some of those are ended under their names. Tables are
//! emptied, renamed, dropped and made again between statements of transactions that do not use them.
//!
//! Between phases all tables are read through all indexes both ways, checked structurally, purged, sometimes
//! truncated or renamed, and the database is closed and opened again. Half the phases end in a crash with
//! transactions open.

mod backups;
mod many;
mod phases;
mod scans;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;
use varve::{
    Cursor, Database, DatumBuf, Error, FlushMethod, ForeignKeyChecks, HistoryOptions, IndexId,
    Isolation, KeyMatch, LockMode, Options, PurgeOptions, RotationOptions, Savepoint, Table,
    TableDef, Transaction, Value, Xid,
};

use varve_sim::{SimDisk, sample};

use backups::BackupSteps;
use phases::REPLACED;

use super::history::History;
use super::oracle::{Brief, Entry, Key, Mark, Oracle, Outcome, Read, Row, Tx};
use super::tables;

/// What a run is like.
#[derive(Clone, Debug)]
pub struct Config {
    pub seed: u64,
    pub steps: usize,
    /// The database is verified and reopened after so many steps.
    pub steps_per_phase: usize,
    /// How many transactions are open at a time.
    pub transactions: usize,
    pub page_size: u32,
    pub buffer_pool_bytes: u64,
    /// How many different key values there are, about.
    pub spread: u32,
    /// Each phase starts with at least so many rows in each table.
    pub rows: usize,
    /// Runs on this disk, in [`SIM_DIR`], instead of in a temporary directory.
    pub disk: Option<SimDisk>,
    pub doublewrite: bool,
    /// What the database does wrong on purpose.
    #[cfg(feature = "sabotage")]
    pub sabotage: Option<varve::internals::base::Sabotage>,
    /// Every second table is a temporary one: made anew, and empty, whenever the database was opened.
    pub temporary: bool,
    /// Every second table has its file in another directory of the simulated disk, [`SIM_ELSEWHERE`].
    pub elsewhere: bool,
    pub undo_tablespaces: u32,
    /// How many of 100 steps change a table as a whole.
    pub ddl: u32,
    /// How many of 100 steps change the redo log's capacity.
    pub resizes: u32,
    /// How many of 100 steps begin a backup if none is being made.
    pub backups: u32,
    /// Only these steps, of those that there would be; ends of phases are numbered behind all steps.
    pub only: Option<Arc<[usize]>>,
    /// Prints nothing: failures are expected.
    pub quiet: bool,
}

/// Where a simulated disk has the database.
pub const SIM_DIR: &str = "/data/db";
/// And the files of tables that are not there.
pub const SIM_ELSEWHERE: &str = "/data/other/disk";

impl Config {
    /// `steps` steps on a seed of `VARVE_MODEL_SEED`, or a fresh one.
    pub fn new(steps: usize) -> Config {
        let number = |name: &str| {
            let value = std::env::var(name).ok()?;
            Some(
                value
                    .parse()
                    .unwrap_or_else(|_| panic!("{name}={value} is not a number")),
            )
        };
        let list = |name: &str| {
            let value = std::env::var(name).ok()?;
            let step = |n: &str| n.parse().unwrap_or_else(|_| panic!("{name}={value}: {n}?"));
            Some(value.split(',').map(step).collect())
        };
        Config {
            seed: number("VARVE_MODEL_SEED").unwrap_or_else(rand::random),
            steps: number("VARVE_MODEL_STEPS").map_or(steps, |n| n as usize),
            steps_per_phase: 500,
            transactions: 4,
            page_size: 4096,
            buffer_pool_bytes: 1 << 20,
            spread: 2000,
            rows: 600,
            disk: None,
            doublewrite: true,
            #[cfg(feature = "sabotage")]
            sabotage: None,
            temporary: false,
            elsewhere: false,
            undo_tablespaces: 2,
            ddl: 1,
            resizes: 1,
            backups: 0,
            only: list("VARVE_MODEL_ONLY"),
            quiet: false,
        }
    }

    /// The numbers of all steps and ends of phases that there are without `only`.
    pub fn all_steps(&self) -> Vec<usize> {
        (0..self.steps + self.steps / self.steps_per_phase).collect()
    }

    /// The same on a disk that nothing has happened to, if it is a simulated one.
    pub fn on_fresh_disk(&self) -> Config {
        Config {
            disk: self.disk.as_ref().map(|_| SimDisk::default()),
            ..self.clone()
        }
    }

    fn has_step(&self, number: usize) -> bool {
        let listed = |only: &Arc<[usize]>| only.contains(&number);
        self.only.as_ref().is_none_or(listed)
    }

    /// The randomness of one step.
    fn rng(&self, step: usize) -> SmallRng {
        let step = step as u64 + 1;
        SmallRng::seed_from_u64(self.seed ^ step.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Opens the database in `dir`, or on the simulated disk.
    pub fn open(&self, dir: &Path) -> varve::Result<Database> {
        let dir = match &self.disk {
            Some(_) => Path::new(SIM_DIR),
            None => dir,
        };
        // In the data directory, next to schemas, and where only the options lead.
        let undo_directory = [None, Some("undo"), Some("more/undo")][self.seed as usize % 3];
        let db = self.open_with(dir, undo_directory.map(PathBuf::from))?;
        // Leaves that are in the pool count as if they were not, until a step says otherwise.
        db.buffer_all_changes(!self.seed.is_multiple_of(3));
        if self.seed.is_multiple_of(2) {
            // Rows are locked as those of very large transactions are.
            db.core().locks.set_few_locks(0);
        }
        Ok(db)
    }

    /// Opens a database in `dir`, or there on the simulated disk.
    fn open_with(&self, dir: &Path, undo_directory: Option<PathBuf>) -> varve::Result<Database> {
        let options = Options {
            page_size: self.page_size,
            buffer_pool_bytes: self.buffer_pool_bytes,
            undo_tablespaces: self.undo_tablespaces,
            undo_directory,
            // One thread plays all parts: nobody will let a lock go while another waits.
            lock_wait_timeout: Duration::from_millis(1),
            doublewrite: self.doublewrite,
            flush_method: [FlushMethod::Fsync, FlushMethod::Direct][self.seed as usize / 3 % 2],
            use_native_aio: self.seed.is_multiple_of(2),
            // Small batches, so that a log takes several, and workers for what little there is.
            purge: PurgeOptions {
                threads: self.seed as u32 % 3,
                batch_size: 1 + self.seed as u32 % 4,
                ..PurgeOptions::default()
            },
            // Purge goes on behind all views, or waits for them.
            history: HistoryOptions {
                store: !self.seed.is_multiple_of(4),
                delay: Duration::ZERO,
                max_size: [None, Some(HistoryOptions::MIN_MAX_SIZE)][self.seed as usize / 4 % 2],
            },
            // Enough, or hardly any, so that redo is sorted in a file.
            recovery_memory_bytes: [0, 4096, 100_000][self.seed as usize % 3],
            // Half of the pool, or some beside it.
            least_shared_pool_bytes: [0, 256 << 20][self.seed as usize / 6 % 2],
            // Two of the tables are encrypted in any case.
            encryption_keys: Some(Arc::new(sample::Keys(1 + self.seed as u32 % 2))),
            encrypt_tables: (self.seed / 2).is_multiple_of(3),
            encrypt_log: (self.seed / 3).is_multiple_of(2),
            encrypt_temporary_tables: self.seed.is_multiple_of(5),
            rotation: RotationOptions {
                threads: 0,
                iops: 1_000_000,
                ..RotationOptions::default()
            },
            #[cfg(feature = "sabotage")]
            sabotage: self.sabotage,
            ..Options::default()
        };
        match &self.disk {
            Some(disk) => {
                let options = Options {
                    redo_capacity_bytes: 4 << 20,
                    log_buffer_bytes: 2 << 20,
                    logger: Some(Arc::new(|_, _| {})),
                    ..options
                };
                Database::open_on(Arc::new(disk.clone()), dir, options)
            }
            None => Database::open(dir, options),
        }
    }
}

/// What a run did: a workload in which nothing ever collides proves little.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    pub written: usize,
    pub loads: usize,
    pub duplicates: usize,
    pub waits: usize,
    pub rows_read: usize,
    pub commits: usize,
    pub rollbacks: usize,
    pub most_rows: usize,
    /// That were made, restored and compared.
    pub backups: usize,
    pub increments: usize,
}

/// Runs the workload; panics where the database and the oracle disagree.
pub fn run(config: &Config) -> Report {
    let mut runner = Runner::new(config);
    runner.play();
    runner.end_phase();
    runner.report
}

/// Runs the workload on `config.disk`; returns what was promised when.
pub fn record(config: &Config) -> History {
    assert!(config.disk.is_some(), "nothing else keeps a journal");
    let mut runner = Runner::new(config);
    runner.play();
    runner.crash();
    runner.history.steps = std::mem::take(&mut runner.trace.all);
    std::mem::take(&mut runner.history)
}

/// The last steps; printed with the seed if the run panics.
struct Trace {
    config: Config,
    last: VecDeque<String>,
    /// All of them, if they were chosen: they are few.
    all: Vec<String>,
    steps: usize,
    /// The step that has not ended yet: transaction and table, and what it does.
    who: String,
    doing: String,
}

impl Trace {
    fn new(config: &Config) -> Trace {
        Trace {
            config: config.clone(),
            last: VecDeque::new(),
            all: Vec::new(),
            steps: 0,
            who: String::new(),
            doing: String::new(),
        }
    }

    fn note(&mut self, what: String) {
        self.steps += 1;
        if self.config.only.is_some() {
            self.all.push(what.clone());
        }
        if self.last.len() == 40 {
            self.last.pop_front();
        }
        self.last.push_back(format!("{:6} {what}", self.steps));
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.config.quiet {
            for line in &self.last {
                eprintln!("{line}");
            }
            eprintln!("{:6} {} failed: {}", self.steps + 1, self.who, self.doing);
            let only = self.config.only.iter().flat_map(|only| only.iter());
            let only: Vec<String> = only.map(usize::to_string).collect();
            let only = match only.is_empty() {
                true => String::new(),
                false => format!(" VARVE_MODEL_ONLY={}", only.join(",")),
            };
            eprintln!(
                "replay with VARVE_MODEL_SEED={}{only}: {:?}",
                self.config.seed, self.config
            );
        }
    }
}

struct Slot {
    trx: Transaction,
    tx: Tx,
    isolation: Isolation,
    savepoints: Vec<(Savepoint, Mark)>,
    /// The name under which it is prepared.
    xid: Option<Xid>,
}

struct Runner {
    trace: Trace,
    config: Config,
    rng: SmallRng,
    // Before the directory, so that it is closed before the directory goes.
    slots: Vec<Option<Slot>>,
    next_xid: u64,
    tables: Vec<Table>,
    /// One that is being made.
    backup: Option<BackupSteps>,
    /// Backups that are there, each but the first an increment on the one before.
    chain: Vec<PathBuf>,
    db: Option<Database>,
    dir: TempDir,
    /// For backups, and databases that are made of them.
    backups: TempDir,
    oracle: Oracle,
    history: History,
    report: Report,
}

impl Runner {
    fn new(config: &Config) -> Runner {
        let defs = tables::definitions();
        let dir = tempfile::tempdir().unwrap();
        let mut runner = Runner {
            trace: Trace::new(config),
            config: config.clone(),
            rng: config.rng(usize::MAX - 1),
            slots: (0..config.transactions).map(|_| None).collect(),
            next_xid: 0,
            tables: Vec::new(),
            backup: None,
            chain: Vec::new(),
            db: None,
            dir,
            backups: tempfile::tempdir().unwrap(),
            oracle: Oracle::new(defs.clone()),
            history: History::new(defs.len()),
            report: Report::default(),
        };
        runner.db = Some(runner.open());
        for (number, def) in defs.iter().enumerate() {
            if runner.is_temporary(number) {
                continue;
            }
            let started = runner.operations();
            runner.create_table(number, def);
            runner.history.name(number, Some(&def.name));
            runner.acknowledged(started);
        }
        runner.create_temporary_tables();
        runner.open_tables();
        runner.fill();
        runner
    }

    /// Inserts random rows, each table's in one transaction, until the tables have what a phase starts with.
    fn fill(&mut self) {
        for table in 0..self.tables.len() {
            let mut slot = self.begin();
            if self.rng.random_bool(0.5) {
                self.insert_many(&mut slot, table);
            }
            while self.oracle.rows(&slot.tx, table, Read::Latest).len() < self.config.rows {
                self.insert(&mut slot, table);
            }
            self.commit(slot);
        }
    }

    /// The oracle knows nothing of transactions that are being rolled back; pages may well be brought up to
    /// date behind its back.
    fn open(&self) -> Database {
        let db = self.config.open(self.dir.path()).unwrap();
        while db.recovery_progress().transactions_left > 0 {
            // One that does something wrong may stop in the middle.
            db.core().check_usable().unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        db
    }

    fn commit(&mut self, slot: Slot) {
        let started = self.operations();
        slot.trx.commit().unwrap();
        self.oracle.commit(slot.tx);
        self.acknowledged(started);
    }

    fn operations(&self) -> usize {
        self.config.disk.as_ref().map_or(0, SimDisk::operations)
    }

    /// Notes the state that the database must be in from now on.
    fn acknowledged(&mut self, started: usize) {
        if self.config.disk.is_some() {
            let acknowledged = self.operations();
            self.history
                .push(started..acknowledged, self.oracle.committed());
        }
    }

    fn create_table(&self, number: usize, def: &TableDef) {
        let created = match self.config.elsewhere && number.is_multiple_of(2) {
            true => {
                let checks = ForeignKeyChecks::On;
                self.db().create_table_in(SIM_ELSEWHERE, def, checks)
            }
            false => self.db().create_table(def),
        };
        created.unwrap();
    }

    fn db(&self) -> &Database {
        self.db.as_ref().expect("open between steps")
    }

    fn is_temporary(&self, table: usize) -> bool {
        self.config.temporary && table.is_multiple_of(2)
    }

    /// Makes the temporary tables anew after the database was opened: nothing is left of the last ones.
    fn create_temporary_tables(&mut self) {
        for table in 0..self.oracle.tables() {
            if self.is_temporary(table) {
                let def = self.oracle.def(table);
                assert!(matches!(
                    self.db().table(&def.name).map(drop),
                    Err(Error::NotFound { .. })
                ));
                self.db().create_temporary_table(def).unwrap();
                self.oracle.truncate(table);
            }
        }
    }

    fn open_tables(&mut self) {
        let table = |t| self.db().table(&self.oracle.def(t).name).unwrap();
        self.tables = (0..self.oracle.tables()).map(table).collect();
    }

    /// All steps, and the ends of phases between them.
    fn play(&mut self) {
        for step in 0..self.config.steps {
            if self.config.has_step(step) {
                self.rng = self.config.rng(step);
                self.step();
                self.step_backup();
            }
            let phase_end = self.config.steps + step / self.config.steps_per_phase;
            if (step + 1).is_multiple_of(self.config.steps_per_phase)
                && self.config.has_step(phase_end)
            {
                self.rng = self.config.rng(phase_end);
                self.end_phase();
            }
        }
    }

    fn step(&mut self) {
        let number = self.rng.random_range(0..self.slots.len());
        let mut slot = match self.slots[number].take() {
            Some(slot) => slot,
            None => self.begin(),
        };
        let table = self.rng.random_range(0..self.tables.len());
        self.trace.who = format!(
            "[{number}] {:?} {}",
            slot.isolation,
            self.oracle.def(table).name
        );
        if slot.xid.is_some() {
            // Its coordinator takes a while to decide.
            let is_decided = self.rng.random_bool(0.3);
            let what = if is_decided { "end" } else { "is prepared" };
            self.trace.note(format!("{} {what}", self.trace.who));
            match is_decided {
                true => self.end(slot),
                false => self.slots[number] = Some(slot),
            }
            return;
        }
        if self.rng.random_ratio(self.config.ddl, 100) {
            slot.trx.rollback().unwrap();
            self.trace.who.clear();
            let what = self.change_a_table(table);
            return self.trace.note(what);
        }
        if self.rng.random_ratio(self.config.resizes, 100) {
            let size = self.rng.random_range(1..=8);
            let what = match self.rng.random_range(0..4) {
                0 => {
                    self.db().set_redo_capacity_bytes((2 << 20) * size).unwrap();
                    "redo log"
                }
                1 => {
                    // What is there becomes so in part: undo that others use stays as it is.
                    self.db().set_encrypt_tables(size > 4).unwrap();
                    self.db().rotate_encryption().unwrap();
                    "encryption"
                }
                _ => {
                    let least = 256 * u64::from(self.config.page_size);
                    self.db().set_buffer_pool_bytes(least * size).unwrap();
                    "buffer pool"
                }
            };
            self.slots[number] = Some(slot);
            return self.trace.note(format!("{what} of another size, {size}"));
        }
        if self.rng.random_ratio(1, 20) {
            let what = self.change_buffering();
            self.trace.note(what);
        }
        if self.rng.random_ratio(1, 16) {
            // What open views need is in the history store then, unless that is off or full.
            self.db().wait_for_purge(Duration::from_millis(20));
        }
        slot.trx.start_statement();
        let (what, open) = match self.rng.random_range(0..100) {
            0..28 => (self.insert(&mut slot, table), true),
            28..32 => (self.insert_many(&mut slot, table), true),
            32..50 => (self.update(&mut slot, table), true),
            50..60 => (self.delete(&mut slot, table), true),
            60..88 => (self.scan(&mut slot, table), true),
            88..91 => {
                let mark = slot.tx.mark();
                slot.savepoints.push((slot.trx.savepoint(), mark));
                ("savepoint".into(), true)
            }
            91..93 => (self.rollback_to(&mut slot), true),
            93..95 if !self.config.temporary => (self.prepare(&mut slot), true),
            _ => ("end".into(), false),
        };
        self.trace.note(format!("{} {what}", self.trace.who));
        if open {
            self.slots[number] = Some(slot);
        } else {
            self.end(slot);
        }
    }

    fn begin(&mut self) -> Slot {
        let isolation = if self.rng.random_bool(0.3) {
            Isolation::ReadCommitted
        } else {
            Isolation::RepeatableRead
        };
        Slot {
            trx: self.db().begin(isolation),
            tx: self.oracle.begin(),
            isolation,
            savepoints: Vec::new(),
            xid: None,
        }
    }

    fn end(&mut self, mut slot: Slot) {
        let commits = self.rng.random_bool(0.75);
        match commits {
            true => self.report.commits += 1,
            false => self.report.rollbacks += 1,
        }
        if let Some(xid) = slot.xid.take() {
            let (mut trx, tx) = (Some(slot.trx), slot.tx);
            if self.rng.random_bool(0.3) {
                // Its session ends before.
                trx = None;
            }
            self.end_prepared(&xid, trx, tx, commits);
        } else if commits {
            self.commit(slot);
        } else {
            slot.trx.rollback().unwrap();
        }
    }

    /// Promises that the transaction will commit whatever happens.
    fn prepare(&mut self, slot: &mut Slot) -> String {
        self.next_xid += 1;
        let name = format!("{}", self.next_xid);
        let xid = Xid::new(1, name.as_bytes(), b"branch").unwrap();
        self.trace.doing = format!("prepare as {name}");
        let started = self.operations();
        slot.trx.prepare(&xid).unwrap();
        if !self.db().prepared().contains(&xid) {
            assert!(slot.tx.is_empty(), "what was changed is promised");
            return "prepare nothing".into();
        }
        slot.xid = Some(xid);
        self.history.prepare(xid, slot.tx.clone());
        self.acknowledged(started);
        format!("prepare as {name}")
    }

    /// Ends a prepared transaction, by its handle if there is one, otherwise by its name.
    fn end_prepared(&mut self, xid: &Xid, trx: Option<Transaction>, tx: Tx, commits: bool) {
        let started = self.operations();
        let ended = match (trx, commits) {
            (Some(trx), true) => trx.commit(),
            (Some(trx), false) => trx.rollback(),
            (None, true) => self.db().commit_prepared(xid),
            (None, false) => self.db().rollback_prepared(xid),
        };
        ended.unwrap();
        if commits {
            self.oracle.commit(tx);
        }
        self.history.end_prepared(xid);
        self.acknowledged(started);
    }

    fn rollback_to(&mut self, slot: &mut Slot) -> String {
        if slot.savepoints.is_empty() {
            return "no savepoint".into();
        }
        let n = self.rng.random_range(0..slot.savepoints.len());
        let (savepoint, mark) = &slot.savepoints[n];
        slot.trx.rollback_to(*savepoint).unwrap();
        slot.tx.rollback_to(mark);
        slot.savepoints.truncate(n + 1);
        format!("rollback to savepoint {n}")
    }

    /// May a statement on this table have to wait for one of the other transactions?
    fn may_wait(&self, table: usize) -> bool {
        self.slots.iter().flatten().any(|s| s.tx.touched[table])
    }

    fn insert(&mut self, slot: &mut Slot, table: usize) -> String {
        let row = tables::row(self.oracle.def(table), &mut self.rng, self.config.spread);
        let datums = self.oracle.def(table).row(&row).unwrap();
        self.trace.doing = format!("insert {:?}", Brief(&row));
        let before = slot.tx.mark();
        let others: Vec<&Tx> = self.slots.iter().flatten().map(|s| &s.tx).collect();
        let want = self
            .oracle
            .insert(&mut slot.tx, &others, table, row.clone());
        slot.tx.touched[table] = true;
        let got = slot.trx.insert(&self.tables[table], &datums.datums());
        self.compare(slot, table, &before, want, got);
        format!("insert {:?}", Brief(&row))
    }

    /// A write's outcome must be the oracle's, or a wait where one is possible; then nothing has changed.
    fn compare(
        &mut self,
        slot: &mut Slot,
        table: usize,
        before: &Mark,
        want: Outcome,
        got: Result<(), Error>,
    ) {
        match (&want, &got) {
            (Outcome::Done, Ok(())) => self.report.written += 1,
            (Outcome::Duplicate(want), Err(Error::DuplicateKey { index }))
                if want == index.strip_suffix(REPLACED).unwrap_or(index) =>
            {
                self.report.duplicates += 1;
            }
            (_, Err(Error::LockWaitTimeout)) if self.may_wait(table) => {
                self.report.waits += 1;
                slot.tx.rollback_to(before);
            }
            _ => panic!("expected {want:?}, got {got:?}"),
        }
    }

    /// Puts a cursor on a random row, locked exclusively. `None`: there is no row, or it is locked by another
    /// one.
    fn lock_one(&mut self, slot: &mut Slot, table: usize) -> Option<(Cursor, Key, Row)> {
        let def = self.oracle.def(table).clone();
        let indexes = 1 + def.indexes.len();
        // A hidden row id can't be searched for.
        let first = def.has_row_id() as usize;
        let index = self.rng.random_range(first..indexes);
        let entries = self.oracle.entries(&slot.tx, table, index, Read::Latest);
        if entries.is_empty() {
            return None;
        }
        let at = self.rng.random_range(0..entries.len());
        let Entry { key, row_key, row } = entries[at].clone();
        // Rows with the same key are told apart by their place among them.
        let place = at - entries.partition_point(|e| e.key < key);
        let values = key_values(&def, index, &row);
        slot.tx.touched[table] = true;
        self.trace.doing = format!("lock {:?} through index {index}", Brief(&row));
        let mut cursor = self.tables[table].cursor(index).unwrap();
        let search = def.key(index, &values).unwrap();
        let mut found = cursor.seek(
            &mut slot.trx,
            &search.datums(),
            KeyMatch::Exact,
            LockMode::Exclusive,
        );
        for _ in 0..place {
            if matches!(found, Ok(true)) {
                found = cursor.next_same(&mut slot.trx);
            }
        }
        match found {
            Err(Error::LockWaitTimeout) if self.may_wait(table) => {
                self.report.waits += 1;
                return None;
            }
            Ok(true) => {}
            other => panic!("expected a row, got {other:?}"),
        }
        let others: Vec<&Tx> = self.slots.iter().flatten().map(|s| &s.tx).collect();
        assert!(
            !Oracle::changed_by(&others, table, &row_key),
            "read through a lock"
        );
        same(&cursor, &row);
        Some((cursor, row_key, row))
    }

    fn update(&mut self, slot: &mut Slot, table: usize) -> String {
        let Some((cursor, key, old)) = self.lock_one(slot, table) else {
            return "update of no row".into();
        };
        let def = self.oracle.def(table).clone();
        let mut new = old.clone();
        for _ in 0..self.rng.random_range(1..3) {
            let column = self.rng.random_range(0..new.len());
            new[column] = tables::value(&def, column, &mut self.rng, self.config.spread);
        }
        let datums = def.row(&new).unwrap();
        self.trace.doing = format!("update {:?} to {:?}", Brief(&old), Brief(&new));
        let before = slot.tx.mark();
        let others: Vec<&Tx> = self.slots.iter().flatten().map(|s| &s.tx).collect();
        let want = self
            .oracle
            .update(&mut slot.tx, &others, table, &key, new.clone());
        let got = slot
            .trx
            .update(&self.tables[table], &cursor, &datums.datums())
            .map(|changed| {
                let is_other = def.row(&old).unwrap().datums() != datums.datums();
                assert_eq!(changed, is_other, "{}", self.trace.doing);
            });
        self.compare(slot, table, &before, want, got);
        format!("update {:?} to {:?}", Brief(&old), Brief(&new))
    }

    fn delete(&mut self, slot: &mut Slot, table: usize) -> String {
        let Some((cursor, key, old)) = self.lock_one(slot, table) else {
            return "delete of no row".into();
        };
        self.trace.doing = format!("delete {:?}", Brief(&old));
        slot.trx.delete(&self.tables[table], &cursor).unwrap();
        self.oracle.delete(&mut slot.tx, table, &key);
        self.report.written += 1;
        format!("delete {:?}", Brief(&old))
    }
}

/// The cursor must be on this row.
#[track_caller]
fn same(cursor: &Cursor, want: &Row) {
    let got = cursor.row().unwrap().values().unwrap();
    assert!(
        got == *want,
        "found {:?}, expected {:?}",
        Brief(&got),
        Brief(want)
    );
}

/// The values of a row for the parts of an index.
fn key_values(def: &varve::TableDef, index: usize, row: &Row) -> Vec<Value> {
    let parts = &def.all_indexes().nth(index).unwrap().parts;
    parts.iter().map(|p| row[p.column].clone()).collect()
}
