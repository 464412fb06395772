//! Transactions with old read views beside others that change a table, step by step in one thread, and what
//! each of them is to find.

#[path = "own_memory.rs"]
mod own_memory;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use own_memory::own_memory;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::{
    ColumnType, Cursor, Database, Error, FlushLog, HistoryOptions, IndexDef, Isolation, KeyMatch,
    KeyPart, LockMode, Options, PurgeOptions, Result, Savepoint, Table, TableDef, Transaction,
    Value,
};

use crate::reads::{KS, Row, Rows, Sorted, compare, definition, order, row_of};

pub const WAIT: Duration = Duration::from_secs(60);

pub fn options() -> Options {
    Options {
        flush_log_at_trx_commit: FlushLog::Lazy,
        page_size: 4096,
        buffer_pool_bytes: 16 << 20,
        redo_capacity_bytes: 16 << 20,
        // One thread plays all parts.
        lock_wait_timeout: Duration::from_millis(1),
        history: HistoryOptions {
            delay: Duration::ZERO,
            ..HistoryOptions::default()
        },
        logger: Some(Arc::new(|_, _| ())),
        ..Options::default()
    }
}

/// A cursor in the middle of a scan.
pub struct Scan {
    cursor: Cursor,
    index: usize,
    backward: bool,
    /// The row where it is.
    at: (i64, Row),
}

/// A transaction, and what it is to find.
pub struct Snapshot {
    pub trx: Transaction,
    pub rows: Rows,
    /// What it has changed.
    own: Own,
    savepoints: Vec<(Savepoint, Rows, Own)>,
    scans: Vec<Scan>,
}

/// Rows that a transaction has put or deleted.
pub type Own = BTreeMap<i64, Option<Row>>;

fn overlay(rows: &mut Rows, own: &Own) {
    for (id, row) in own {
        match row {
            Some(row) => rows.insert(*id, row.clone()),
            None => rows.remove(id),
        };
    }
}

pub struct Run {
    pub db: Database,
    pub table: Table,
    rng: SmallRng,
    ids: i64,
    pub rows: Rows,
    pub snapshots: Vec<Snapshot>,
}

impl Run {
    pub fn new(dir: &Path, options: Options, seed: u64, ids: i64) -> Run {
        let db = Database::open(dir, options).unwrap();
        let table = db.create_table(&definition("h/t")).unwrap();
        Run {
            db,
            table,
            rng: SmallRng::seed_from_u64(seed),
            ids,
            rows: Rows::new(),
            snapshots: Vec::new(),
        }
    }

    pub fn open_view(&mut self) {
        let mut trx = self.db.begin(Isolation::RepeatableRead);
        trx.take_snapshot();
        self.snapshots.push(Snapshot {
            trx,
            rows: self.rows.clone(),
            own: Own::new(),
            savepoints: Vec::new(),
            scans: Vec::new(),
        });
    }

    fn text(&mut self) -> Vec<u8> {
        let len = match self.rng.random_range(0..10) {
            0 => self.rng.random_range(3_000..40_000),
            _ => self.rng.random_range(0..60),
        };
        // Of the same beginning as others.
        let mut text = vec![b'a' + self.rng.random_range(0..3); len];
        if let Some(last) = text.last_mut() {
            *last = self.rng.random();
        }
        text
    }

    /// Changes a row in the transaction and in `own`; `newest` is what it finds under its locks.
    fn change_row(&mut self, trx: &mut Transaction, own: &mut Own) -> Result<()> {
        let id = self.rng.random_range(0..self.ids);
        let (k, text) = (self.rng.random_range(0..KS), self.text());
        let key = id.to_le_bytes();
        let k_bytes = k.to_le_bytes();
        let row = [Some(&key[..]), Some(&k_bytes[..]), Some(&text[..])];
        let newest = own
            .get(&id)
            .map_or_else(|| self.rows.get(&id), Option::as_ref);
        trx.start_statement();
        let Some(old) = newest.cloned() else {
            trx.insert(&self.table, &row)?;
            own.insert(id, Some((k, text)));
            return Ok(());
        };
        let mut cursor = self.table.cursor(0)?;
        let how = (KeyMatch::Exact, LockMode::Exclusive);
        assert!(cursor.seek(trx, &[Some(&key)], how.0, how.1)?);
        assert!(row_of(&cursor) == (id, old.clone()), "under its lock");
        let text = match self.rng.random_range(0..4) {
            0 => {
                trx.delete(&self.table, &cursor)?;
                own.insert(id, None);
                return Ok(());
            }
            // The long value stays.
            1 => old.1,
            _ => text,
        };
        let row = [Some(&key[..]), Some(&k_bytes[..]), Some(&text[..])];
        // A row that stays as it is does not become the transaction's own.
        if trx.update(&self.table, &cursor, &row)? {
            own.insert(id, Some((k, text)));
        }
        Ok(())
    }

    /// A transaction of some changes, of which a part or all may be taken back.
    pub fn change(&mut self) {
        let mut trx = self.db.begin(Isolation::RepeatableRead);
        let mut own = Own::new();
        for _ in 0..self.rng.random_range(1..5) {
            let savepoint = trx.savepoint();
            let before = own.clone();
            for _ in 0..self.rng.random_range(1..4) {
                match self.change_row(&mut trx, &mut own) {
                    // A snapshot's transaction has it.
                    Err(Error::LockWaitTimeout) => {}
                    done => done.unwrap(),
                }
            }
            if self.rng.random_ratio(1, 5) {
                trx.rollback_to(savepoint).unwrap();
                own = before;
            }
        }
        if self.rng.random_ratio(1, 6) {
            return trx.rollback().unwrap();
        }
        if self.rng.random_ratio(1, 4) {
            // Its number is the one that the commit draws.
            self.open_view();
        }
        trx.commit().unwrap();
        overlay(&mut self.rows, &own);
    }

    /// A snapshot's own transaction changes something, or takes something back.
    fn change_in_snapshot(&mut self, n: usize) {
        let mut snapshot = self.snapshots.remove(n);
        let Snapshot {
            trx,
            rows,
            own,
            savepoints,
            scans,
        } = &mut snapshot;
        match self.rng.random_range(0..8) {
            0 if !savepoints.is_empty() => {
                // Scans go on.
                let n = self.rng.random_range(0..savepoints.len());
                savepoints.truncate(n + 1);
                let (savepoint, before, own_before) = savepoints[n].clone();
                trx.rollback_to(savepoint).unwrap();
                (*rows, *own) = (before, own_before);
            }
            1 => savepoints.push((trx.savepoint(), rows.clone(), own.clone())),
            _ => {
                // Another cursor's changes need not be seen by one that has copied the row.
                scans.clear();
                match self.change_row(trx, own) {
                    Err(Error::LockWaitTimeout) => {}
                    done => done.unwrap(),
                }
                overlay(rows, own);
            }
        }
        self.snapshots.insert(n, snapshot);
    }

    fn end_snapshot(&mut self, n: usize) {
        let snapshot = self.snapshots.remove(n);
        match self.rng.random() {
            true => snapshot.trx.rollback().unwrap(),
            false => {
                snapshot.trx.commit().unwrap();
                overlay(&mut self.rows, &snapshot.own);
            }
        }
    }

    /// All ways of reading, as a snapshot finds the rows.
    pub fn compare(&mut self, n: usize) {
        let Snapshot { trx, rows, .. } = &mut self.snapshots[n];
        compare(&self.table, trx, rows, &mut self.rng, self.ids);
    }

    /// One of the snapshot's scans goes on for some rows, and may turn round; or there is one more.
    fn scan(&mut self, n: usize) {
        let Snapshot {
            trx, rows, scans, ..
        } = &mut self.snapshots[n];
        if scans.is_empty() || scans.len() < 4 && self.rng.random_ratio(1, 3) {
            let index = self.rng.random_range(0..3);
            let mut cursor = self.table.cursor(index).unwrap();
            let backward: bool = self.rng.random();
            let found = match backward {
                true => cursor.last(trx, LockMode::None).unwrap(),
                false => cursor.first(trx, LockMode::None).unwrap(),
            };
            assert_eq!(found, !rows.is_empty());
            if found {
                scans.push(Scan {
                    at: row_of(&cursor),
                    cursor,
                    index,
                    backward,
                });
            }
            return;
        }
        let n = self.rng.random_range(0..scans.len());
        let scan = &mut scans[n];
        let sorted = Sorted::new(scan.index, rows);
        if self.rng.random_ratio(1, 4) {
            scan.backward = !scan.backward;
        }
        for _ in 0..self.rng.random_range(1..8) {
            let (after, before) = sorted.around(&order(scan.index, scan.at.0, &scan.at.1));
            let (found, at) = match scan.backward {
                true => (scan.cursor.prev(trx).unwrap(), before),
                false => (scan.cursor.next(trx).unwrap(), after),
            };
            sorted.is_at(&scan.cursor, found, at, "a scan that goes on");
            if !found {
                scans.swap_remove(n);
                return;
            }
            scan.at = row_of(&scan.cursor);
        }
    }

    pub fn step(&mut self) {
        let n = self.rng.random_range(0..self.snapshots.len().max(1));
        match self.rng.random_range(0..40) {
            0..2 => self.open_view(),
            2..6 if !self.snapshots.is_empty() => self.compare(n),
            6..10 if !self.snapshots.is_empty() => self.scan(n),
            // Few of them: the others wait for their locks.
            10..14 if !self.snapshots.is_empty() => self.change_in_snapshot(n % 2),
            14..16 if self.snapshots.len() > 4 => {
                self.compare(n);
                self.end_snapshot(n);
            }
            17..19 if self.snapshots.len() > 1 => self.end_snapshot(n % 2),
            16 => assert!(self.db.wait_for_purge(WAIT), "{:?}", self.db.report()),
            _ => self.change(),
        }
    }

    pub fn copied(&self) -> u64 {
        self.db.core().history.counters.copied.get()
    }

    /// Nothing is kept for anybody any more.
    pub fn is_empty(&self) -> bool {
        self.db.core().history.store().is_none()
    }
}

pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < WAIT, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn counter(db: &Database, name: &str) -> u64 {
    let found = db.status().into_iter().find(|(n, _)| *n == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

/// One thread plays all parts, and draws what each does. Returns how many versions were copied.
pub fn at_random(options: Options, seed: u64) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let ids = [8, 60, 400][seed as usize % 3];
    let mut run = Run::new(dir.path(), options, seed, ids);
    for _ in 0..600 {
        run.step();
    }
    assert!(run.db.wait_for_purge(WAIT), "{:?}", run.db.report());
    for n in 0..run.snapshots.len() {
        run.compare(n);
    }
    let copied = run.copied();
    run.snapshots.clear();
    let report = run.db.check_table(&run.table).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    let file = dir.path().join("history.store");
    until("the store ends", || run.is_empty() && !file.exists());
    copied
}

/// Rows with a number and a text, found by both.
pub struct Texts {
    pub db: Database,
    pub table: Table,
    pub rows: i64,
    indexes: usize,
}

impl Texts {
    fn new(dir: &Path, options: Options, rows: i64) -> Texts {
        Texts::in_database(Database::open(dir, options).unwrap(), rows)
    }

    pub fn in_database(db: Database, rows: i64) -> Texts {
        Texts::in_table(db, "h/t", rows)
    }

    /// With a table of this name.
    pub fn in_table(db: Database, name: &str, rows: i64) -> Texts {
        let by_text = IndexDef::new("by_text", vec![KeyPart::new(1).prefix(9)]);
        Texts::with_definition(db, &Texts::definition(name).add_index(by_text), rows)
    }

    /// Without the index.
    pub fn definition(name: &str) -> TableDef {
        TableDef::new(name)
            .column("id", ColumnType::i64())
            .column("text", ColumnType::Bytes(1000))
            .primary(&["id"])
    }

    fn with_definition(db: Database, def: &TableDef, rows: i64) -> Texts {
        let table = db.create_table(def).unwrap();
        let texts = Texts {
            db,
            table,
            rows,
            indexes: 1 + def.indexes.len(),
        };
        let mut trx = texts.begin();
        for id in 0..rows {
            let row = [Some(&id.to_le_bytes()[..]), Some(&Texts::text(id, 0))];
            trx.insert(&texts.table, &row).unwrap();
        }
        trx.commit().unwrap();
        texts
    }

    pub fn begin(&self) -> Transaction {
        self.db.begin(Isolation::RepeatableRead)
    }

    pub fn snapshot(&self) -> Transaction {
        let mut trx = self.begin();
        trx.take_snapshot();
        trx
    }

    /// Of the row with this id after `n` rounds.
    fn text(id: i64, n: i64) -> Vec<u8> {
        format!("{:<400}", id * 7 % 1000 + n).into_bytes()
    }

    fn id_of(cursor: &Cursor) -> i64 {
        let row = cursor.row().unwrap();
        i64::from_le_bytes(row.get(0).unwrap().try_into().unwrap())
    }

    /// Changes all rows.
    pub fn round(&self, n: i64) {
        let ids: Vec<i64> = (0..self.rows).collect();
        for ids in ids.chunks(50) {
            let mut trx = self.begin();
            for id in ids {
                self.change(&mut trx, *id, n);
            }
            trx.commit().unwrap();
        }
    }

    fn change(&self, trx: &mut Transaction, id: i64, n: i64) {
        let mut cursor = self.table.cursor(0).unwrap();
        let key = id.to_le_bytes();
        let (how, lock) = (KeyMatch::Exact, LockMode::Exclusive);
        assert!(cursor.seek(trx, &[Some(&key)], how, lock).unwrap());
        let row = [Some(&key[..]), Some(&Texts::text(id, n))];
        trx.update(&self.table, &cursor, &row).unwrap();
    }

    /// The transaction sees what was there after `n` rounds.
    pub fn compare(&self, trx: &mut Transaction, n: i64) {
        for index in 0..self.indexes {
            let mut cursor = self.table.cursor(index).unwrap();
            let mut found = Vec::new();
            let mut is_there = cursor.first(trx, LockMode::None).unwrap();
            while is_there {
                let id = Texts::id_of(&cursor);
                assert_eq!(cursor.row().unwrap().get(1).unwrap(), Texts::text(id, n));
                found.push(id);
                is_there = cursor.next(trx).unwrap();
            }
            found.sort();
            assert!(found.into_iter().eq(0..self.rows), "index {index}");
        }
    }

    pub fn counter(&self, name: &str) -> u64 {
        counter(&self.db, name)
    }
}

/// More is to be copied than the store takes.
pub fn full_store(options: Options) {
    fill_store(options, |db| Texts::in_database(db, 4000));
}

/// Likewise in a table without an index: an entry has one version, so the log of one that is left tells purge
/// where to go on even if it does not know the first log of a row's two.
pub fn full_store_of_rows(options: Options) {
    let def = Texts::definition("h/t");
    fill_store(options, |db| Texts::with_definition(db, &def, 4000));
}

fn fill_store(mut options: Options, texts: impl FnOnce(Database) -> Texts) {
    let dir = tempfile::tempdir().unwrap();
    let history = HistoryOptions {
        max_size: Some(HistoryOptions::MIN_MAX_SIZE),
        ..options.history
    };
    // Purge waits for the views until all changes are there, and then has them in one batch: so a row has two
    // versions that somebody needs.
    options.history.delay = WAIT;
    options.purge.batch_size = PurgeOptions::MAX_BATCH_SIZE;
    let texts = texts(Database::open(dir.path(), options).unwrap());
    let mut views = [0, 1].map(|n| {
        let view = texts.snapshot();
        texts.round(n + 1);
        view
    });
    texts.db.set_history_options(history).unwrap();
    until("purge stops", || texts.counter("history_store_full") > 0);
    assert!(!texts.db.wait_for_purge(Duration::from_millis(200)));
    // What purge has given back is written over.
    texts.round(3);
    for (view, n) in views.iter_mut().zip(0..) {
        texts.compare(view, n);
    }
    let most = HistoryOptions::MIN_MAX_SIZE + (1 << 18);
    assert!(texts.counter("history_store_bytes") < most);
    for view in views {
        view.rollback().unwrap();
    }
    assert!(texts.db.wait_for_purge(WAIT), "{:?}", texts.db.report());
    let bytes = || texts.counter("history_store_bytes");
    until("the store is gone", || bytes() == 0);
    assert!(!dir.path().join("history.store").exists());
}

/// Members that come and go while one stays.
pub fn come_and_go(options: Options) {
    let dir = tempfile::tempdir().unwrap();
    let texts = Texts::new(dir.path(), options, 400);
    let mut stays = texts.snapshot();
    // Of a row and of its entry, for the one that stays and for one that is there.
    let needed = 2 * 2 * texts.rows as u64;
    for n in 1..20 {
        texts.round(n);
        let mut goes = texts.snapshot();
        texts.round(-n);
        assert!(texts.db.wait_for_purge(WAIT), "{:?}", texts.db.report());
        texts.compare(&mut goes, n);
        goes.commit().unwrap();
        // With less than a thousand that are garbage there is no sweep.
        let versions = || texts.counter("history_store_versions");
        until("garbage goes", || {
            versions() <= (2 * needed).max(needed + 1000)
        });
    }
    assert!(texts.counter("history_store_swept") > 0);
    texts.compare(&mut stays, 0);
}

/// A scan has copied a row as somebody had changed it who has taken that back since, and whose undo is gone
/// when the scan comes to the row.
pub fn taken_back(options: Options) {
    let dir = tempfile::tempdir().unwrap();
    let texts = Texts::new(dir.path(), options, 3);
    let mut view = texts.snapshot();
    let members = || texts.counter("history_store_members");
    until("the view is a member", || {
        let mut trx = texts.begin();
        texts.change(&mut trx, 2, 1);
        trx.commit().unwrap();
        members() == 1
    });
    let mut other = texts.begin();
    texts.change(&mut other, 1, 1);
    let mut cursor = texts.table.cursor(0).unwrap();
    assert!(cursor.first(&mut view, LockMode::None).unwrap());
    other.rollback().unwrap();
    // So that others take its undo page, and begin it anew.
    for n in 2..500 {
        let mut trx = texts.begin();
        texts.change(&mut trx, 2, n);
        trx.commit().unwrap();
        assert!(n % 10 > 0 || texts.db.wait_for_purge(WAIT));
    }
    let mut ids = vec![0];
    while cursor.next(&mut view).unwrap() {
        ids.push(Texts::id_of(&cursor));
    }
    assert_eq!(ids, [0, 1, 2]);
}

/// What each account has to begin with.
const MONEY: i64 = 1000;

/// Accounts between which money is moved, and that are moved to other numbers; there are twice as many of
/// these.
struct Bank {
    db: Database,
    table: Table,
    accounts: i64,
    end: Instant,
}

type Account = (i64, i64);

impl Bank {
    fn row(&self, account: Account) -> varve::DatumBuf {
        let (id, money) = account;
        // Some of them are long values.
        let text = vec![b'a' + (money % 26) as u8; [7, 7, 7, 7, 6000][money as usize % 5]];
        let row = [Value::Int(id), Value::Int(money), Value::Bytes(text)];
        self.table.def().row(&row).unwrap()
    }

    fn account(cursor: &Cursor) -> Account {
        let (id, (money, text)) = row_of(cursor);
        assert!(text.iter().all(|byte| *byte == b'a' + (money % 26) as u8));
        assert_eq!(text.len(), [7, 7, 7, 7, 6000][money as usize % 5]);
        (id, money)
    }

    /// Moves money from one to another, or an account to another number.
    fn change(&self, rng: &mut SmallRng) -> Result<()> {
        let mut trx = self.db.begin(Isolation::RepeatableRead);
        for _ in 0..rng.random_range(1..4) {
            let mut ids = [0, 0].map(|_| rng.random_range(0..2 * self.accounts));
            ids.sort();
            let mut cursors = [0, 0].map(|_| self.table.cursor(0).unwrap());
            let mut found = [None; 2];
            for ((cursor, id), found) in cursors.iter_mut().zip(ids).zip(&mut found) {
                let key = id.to_le_bytes();
                let how = (KeyMatch::Exact, LockMode::Exclusive);
                let is_there = cursor.seek(&mut trx, &[Some(&key)], how.0, how.1)?;
                *found = is_there.then(|| Bank::account(cursor));
            }
            match found {
                [Some(a), Some(b)] if a.0 != b.0 => {
                    let moved = rng.random_range(0..=a.1.min(50));
                    let rows = [(a.0, a.1 - moved), (b.0, b.1 + moved)];
                    for (cursor, row) in cursors.iter().zip(rows) {
                        trx.update(&self.table, cursor, &self.row(row).datums())?;
                    }
                }
                [Some(from), None] | [None, Some(from)] => {
                    let to = ids[0] + ids[1] - from.0;
                    let cursor = &cursors[usize::from(found[0].is_none())];
                    trx.delete(&self.table, cursor)?;
                    trx.insert(&self.table, &self.row((to, from.1)).datums())?;
                }
                _ => {}
            }
        }
        match rng.random_ratio(1, 4) {
            true => trx.rollback(),
            false => trx.commit(),
        }
    }

    fn write(&self, seed: u64) {
        let mut rng = SmallRng::seed_from_u64(seed);
        while Instant::now() < self.end {
            match self.change(&mut rng) {
                Ok(()) | Err(Error::LockWaitTimeout | Error::Deadlock) => {}
                Err(e) => panic!("{e}"),
            }
        }
    }

    /// All accounts, in order, by one of the indexes.
    fn scan(&self, trx: &mut Transaction, index: usize, backward: bool) -> Vec<Account> {
        let mut cursor = self.table.cursor(index).unwrap();
        let mut accounts = Vec::new();
        let mut found = match backward {
            true => cursor.last(trx, LockMode::None).unwrap(),
            false => cursor.first(trx, LockMode::None).unwrap(),
        };
        while found {
            accounts.push(Bank::account(&cursor));
            found = match backward {
                true => cursor.prev(trx).unwrap(),
                false => cursor.next(trx).unwrap(),
            };
        }
        accounts.sort();
        accounts
    }

    /// The same, which are as many as there were, with as much money.
    fn all(&self, trx: &mut Transaction) -> Vec<Account> {
        let accounts = self.scan(trx, 0, false);
        assert_eq!(accounts.len() as i64, self.accounts);
        let sum: i64 = accounts.iter().map(|(_, money)| money).sum();
        assert_eq!(sum, self.accounts * MONEY);
        accounts
    }

    /// A view of any age up to the end, then another one.
    fn read_at_last(&self, seed: u64) {
        let mut rng = SmallRng::seed_from_u64(seed);
        while Instant::now() < self.end {
            let mut trx = self.db.begin(Isolation::RepeatableRead);
            let first = self.all(&mut trx);
            let age = (self.end - Instant::now()).mul_f64(rng.random::<f64>().powi(2));
            std::thread::sleep(age);
            for (index, backward) in [(0, true), (1, false), (1, true), (2, false), (2, true)] {
                let again = self.scan(&mut trx, index, backward);
                assert!(
                    again == first,
                    "index {index}, backward: {backward}, {age:?}"
                );
            }
        }
    }

    /// Views of any age up to a part of a second.
    fn read(&self, seed: u64) {
        let mut rng = SmallRng::seed_from_u64(seed);
        while Instant::now() < self.end {
            let mut trx = self.db.begin(Isolation::RepeatableRead);
            let first = self.all(&mut trx);
            for _ in 0..[1, 20, 200][rng.random_range(0..3)] {
                let (index, backward) = (rng.random_range(0..3), rng.random());
                let again = self.scan(&mut trx, index, backward);
                assert_eq!(again, first, "index {index}, backward: {backward}");
                for (id, _) in &first {
                    let key = [Value::Int(*id)];
                    let row = self.table.get(&mut trx, &key).unwrap();
                    assert!(row.is_some(), "{id}");
                }
            }
        }
    }
}

impl Bank {
    fn new(dir: &Path, options: Options, accounts: i64, time: Duration) -> Bank {
        let options = Options {
            buffer_pool_bytes: 4 << 20,
            lock_wait_timeout: Duration::from_millis(50),
            ..options
        };
        let db = Database::open(dir, options).unwrap();
        let bank = Bank {
            table: db.create_table(&definition("h/t")).unwrap(),
            db,
            accounts,
            end: Instant::now() + time,
        };
        let mut trx = bank.db.begin(Isolation::RepeatableRead);
        for id in 0..accounts {
            let row = bank.row((2 * id, MONEY));
            trx.insert(&bank.table, &row.datums()).unwrap();
        }
        trx.commit().unwrap();
        bank
    }

    /// After all threads have ended.
    fn end(self) {
        assert!(counter(&self.db, "history_store_copied") > 100);
        assert!(self.db.wait_for_purge(WAIT), "{:?}", self.db.report());
        let report = self.db.check_table(&self.table).unwrap();
        assert_eq!((report.errors, report.rows), (vec![], self.accounts as u64));
    }
}

/// Writers and readers in threads of their own, for a time.
pub fn side_by_side(options: Options, time: Duration) {
    let dir = tempfile::tempdir().unwrap();
    let bank = Bank::new(dir.path(), options, 60, time);
    std::thread::scope(|s| {
        for seed in 0..2 {
            let bank = &bank;
            s.spawn(move || bank.write(seed));
            s.spawn(move || bank.read(seed));
        }
    });
    bank.end();
}

/// The most that there was at a time.
#[derive(Default, Debug)]
pub struct Most {
    pub history: u64,
    pub undo_pages: u64,
    pub store_bytes: u64,
    pub resident_bytes: u64,
}

/// Writers at full speed, and eight views of any age up to `time`, each compared with itself when it ends.
pub fn of_any_age(options: Options, accounts: i64, time: Duration) -> Most {
    let dir = tempfile::tempdir().unwrap();
    let bank = Bank::new(dir.path(), options, accounts, time);
    let mut most = Most::default();
    std::thread::scope(|s| {
        let bank = &bank;
        for seed in 0..8 {
            s.spawn(move || bank.read_at_last(seed));
        }
        for seed in 0..2 {
            s.spawn(move || bank.write(seed));
        }
        while Instant::now() < bank.end {
            let now = |name| counter(&bank.db, name);
            most.history = most.history.max(now("history_list_length"));
            most.undo_pages = most.undo_pages.max(now("undo_pages_used"));
            most.store_bytes = most.store_bytes.max(now("history_store_bytes"));
            most.resident_bytes = most.resident_bytes.max(own_memory("VmRSS"));
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let commits = counter(&bank.db, "commits");
    println!(
        "{commits} commits in {time:?}; {most:?}; {:?}",
        bank.db.report()
    );
    bank.end();
    most
}
