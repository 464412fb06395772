//! Threads that change a few hot rows and ranges of rows under each other's hands, while old views look again
//! and again.
//!
//! What could break here: an old view that reads other rows or values than before, through one of the
//! indexes, forward or backward, because purge, a rollback or a key that came back got in its way; an entry
//! without its row or a row without its entry after deadlocks, timeouts, savepoints and rollbacks; a row made
//! of two versions; undo that is never given back. Pages are small and the pool tiny, so that pages split,
//! merge and are evicted all the time.
//!
//! A failure names the seed; `VARVE_CONCURRENCY_SEED` starts the same threads with it,
//! `VARVE_CONCURRENCY_SECONDS` makes each of the rounds longer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use varve::internals::undo::{CACHED_PAGES_KEPT, FREE_PAGES_KEPT};
use varve::{
    ColumnType, Cursor, Database, Error, FlushLog, Isolation, KeyMatch, LockMode, Options, Result,
    Table, TableDef, Transaction, Value,
};

const WRITERS: u64 = 5;
const ROUNDS: u64 = 3;

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

fn open(dir: &tempfile::TempDir) -> Database {
    let options = Options {
        page_size: 4096,
        buffer_pool_bytes: 1 << 20,
        redo_capacity_bytes: 8 << 20,
        flush_log_at_trx_commit: FlushLog::Lazy,
        ..Options::default()
    };
    Database::open(dir.path(), options).unwrap()
}

/// A row: id, k, u (unique, or none), and bytes that follow from the three, so that no two versions mix
/// unnoticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Content {
    id: i64,
    k: i64,
    u: Option<i64>,
    len: usize,
}

impl Content {
    fn fill(self) -> Vec<u8> {
        let mix = self.id ^ self.k << 8 ^ self.u.unwrap_or(-1) << 16 ^ (self.len as i64) << 24;
        let mut fill = (self.len as u32).to_le_bytes().to_vec();
        fill.extend((0..self.len).map(|i| mix.to_le_bytes()[i % 8]));
        fill
    }

    fn values(self) -> [Value; 4] {
        let u = self.u.map_or(Value::Null, Value::Int);
        [self.id.into(), self.k.into(), u, self.fill().into()]
    }

    fn read(cursor: &Cursor) -> Content {
        let row = cursor.row().unwrap();
        let int = |column| match row.value(column).unwrap() {
            Value::Int(v) => Some(v),
            Value::Null => None,
            other => panic!("{other:?}"),
        };
        let fill = row.get(3).unwrap();
        let content = Content {
            id: int(0).unwrap(),
            k: int(1).unwrap(),
            u: int(2),
            len: fill.len() - 4,
        };
        assert_eq!(fill, content.fill(), "{content:?}");
        content
    }
}

/// A table, and how many different ids and keys are in use there.
struct Play {
    table: Table,
    ids: i64,
    longest: usize,
}

impl Play {
    fn create(db: &Database, name: &str, ids: i64, longest: usize) -> Play {
        let def = TableDef::new(name)
            .column("id", ColumnType::i64())
            .column("k", ColumnType::i64())
            .nullable("u", ColumnType::i64())
            .column("fill", ColumnType::Bytes(1500))
            .primary(&["id"])
            .index("by_k", &["k"])
            .unique("by_u", &["u"]);
        let table = db.create_table(&def).unwrap();
        let play = Play {
            table,
            ids,
            longest,
        };
        let mut trx = db.begin(Isolation::RepeatableRead);
        for id in 0..ids {
            let (k, len) = (id % 7, id as usize % longest);
            play.insert(
                &mut trx,
                Content {
                    id,
                    k,
                    u: Some(id),
                    len,
                },
            )
            .unwrap();
        }
        trx.commit().unwrap();
        play
    }

    fn random(&self, rng: &mut SmallRng) -> Content {
        Content {
            id: rng.random_range(0..self.ids),
            // Few of them: keys move there and back.
            k: rng.random_range(0..7),
            u: rng.random_bool(0.8).then(|| rng.random_range(0..self.ids)),
            len: rng.random_range(0..self.longest),
        }
    }

    fn insert(&self, trx: &mut Transaction, row: Content) -> Result<()> {
        trx.insert(&self.table, &self.table.def().row(&row.values())?.datums())
    }

    /// Changes the row at the cursor: some columns, at times its primary key.
    fn change(&self, trx: &mut Transaction, cursor: &Cursor, rng: &mut SmallRng) -> Result<()> {
        let mut row = Content::read(cursor);
        let new = self.random(rng);
        let what = rng.random_range(0..10);
        if what < 4 {
            row.k = new.k;
        }
        if what % 3 == 0 {
            row.u = new.u;
        }
        if what == 9 {
            row.id = new.id;
        }
        if rng.random_bool(0.5) {
            row.len = new.len;
        }
        let def = self.table.def();
        trx.update(&self.table, cursor, &def.row(&row.values())?.datums())?;
        Ok(())
    }

    /// A cursor on a random row that exists, or none.
    fn seek(
        &self,
        trx: &mut Transaction,
        how: KeyMatch,
        lock: LockMode,
        rng: &mut SmallRng,
    ) -> Result<Option<Cursor>> {
        let index = rng.random_range(0..3);
        let row = self.random(rng);
        let key = [row.id, row.k, row.u.unwrap_or(0)][index];
        let mut cursor = self.table.cursor(index)?;
        let key = self.table.def().key(index, &[key.into()])?;
        let found = cursor.seek(trx, &key.datums(), how, lock)?;
        Ok(found.then_some(cursor))
    }

    fn statement(&self, trx: &mut Transaction, rng: &mut SmallRng) -> Result<()> {
        use LockMode::{Exclusive, Shared};
        match rng.random_range(0..10) {
            0..3 => {
                let row = self.random(rng);
                self.insert(trx, row)
            }
            3 => {
                if let Some(cursor) = self.seek(trx, KeyMatch::Exact, Exclusive, rng)? {
                    trx.delete(&self.table, &cursor)?;
                    if rng.random_bool(0.5) {
                        let (old, new) = (Content::read(&cursor), self.random(rng));
                        self.insert(trx, Content { k: new.k, ..old })?;
                    }
                }
                Ok(())
            }
            4..7 => match self.seek(trx, KeyMatch::Exact, Exclusive, rng)? {
                Some(cursor) => self.change(trx, &cursor, rng),
                None => Ok(()),
            },
            7 => self.seek(trx, KeyMatch::Exact, Shared, rng).map(drop),
            _ => self.range(trx, rng),
        }
    }

    /// Walks over some rows and changes, deletes or leaves each.
    fn range(&self, trx: &mut Transaction, rng: &mut SmallRng) -> Result<()> {
        let forward = rng.random_bool(0.5);
        let how = match forward {
            true => KeyMatch::AtLeast,
            false => KeyMatch::AtMost,
        };
        let lock = match rng.random_bool(0.5) {
            true => LockMode::Exclusive,
            false => LockMode::ExclusiveSemiConsistent,
        };
        let Some(mut cursor) = self.seek(trx, how, lock, rng)? else {
            return Ok(());
        };
        for _ in 0..rng.random_range(1..8) {
            match rng.random_range(0..4) {
                // A move comes to the row again.
                0..3 if cursor.was_semi_consistent() => {}
                3 if cursor.was_semi_consistent() => cursor.unlock_row(trx),
                0 => trx.delete(&self.table, &cursor)?,
                1 => cursor.unlock_row(trx),
                _ => self.change(trx, &cursor, rng)?,
            }
            let on_row = match forward {
                true => cursor.next(trx)?,
                false => cursor.prev(trx)?,
            };
            if !on_row {
                break;
            }
        }
        Ok(())
    }

    /// All rows through one index, one way; the order is checked.
    fn scan(&self, trx: &mut Transaction, index: usize, forward: bool, lock: LockMode) -> Rows {
        let mut cursor = self.table.cursor(index).unwrap();
        let mut on_row = match forward {
            true => cursor.first(trx, lock),
            false => cursor.last(trx, lock),
        }
        .unwrap();
        let (mut rows, mut keys) = (Rows::new(), Vec::new());
        while on_row {
            let row = Content::read(&cursor);
            keys.push([(Some(row.id), 0), (Some(row.k), row.id), (row.u, row.id)][index]);
            let twice = rows.insert(row.id, row);
            assert_eq!(twice, None, "index {index}, forward {forward}: {row:?}");
            on_row = match forward {
                true => cursor.next(trx),
                false => cursor.prev(trx),
            }
            .unwrap();
        }
        if !forward {
            keys.reverse();
        }
        assert!(
            keys.is_sorted(),
            "index {index}, forward {forward}: {keys:?}"
        );
        rows
    }
}

type Rows = BTreeMap<i64, Content>;

struct Game {
    db: Database,
    plays: Vec<Play>,
    stop: AtomicBool,
    commits: AtomicU64,
    rollbacks: AtomicU64,
    looks: AtomicU64,
}

impl Game {
    fn write_until_stopped(&self, mut rng: SmallRng) {
        while !self.stop.load(Relaxed) {
            let ended = match self.transact(&mut rng) {
                Ok(true) => &self.commits,
                Ok(false) | Err(Error::Deadlock) => &self.rollbacks,
                Err(e) => panic!("{e}"),
            };
            ended.fetch_add(1, Relaxed);
        }
    }

    /// `false`: rolled back. A transaction that ends by an error is rolled back when it is dropped.
    fn transact(&self, rng: &mut SmallRng) -> Result<bool> {
        let isolation = match rng.random_bool(0.5) {
            true => Isolation::RepeatableRead,
            false => Isolation::ReadCommitted,
        };
        let mut trx = self.db.begin(isolation);
        trx.set_lock_wait_timeout(Duration::from_millis(*[0, 5, 2000].choose(rng).unwrap()));
        let mut savepoints = Vec::new();
        for _ in 0..rng.random_range(1..9) {
            if rng.random_bool(0.3) {
                savepoints.push(trx.savepoint());
            }
            trx.start_statement();
            match self.plays.choose(rng).unwrap().statement(&mut trx, rng) {
                Ok(()) => {}
                // Part of a statement may have been done before.
                Err(Error::DuplicateKey { .. } | Error::LockWaitTimeout) => {
                    trx.rollback_statement()?;
                }
                Err(e) => return Err(e),
            }
            if rng.random_bool(0.15) && !savepoints.is_empty() {
                let to = rng.random_range(0..savepoints.len());
                trx.rollback_to(savepoints[to])?;
                savepoints.truncate(to);
            }
        }
        match rng.random_bool(0.8) {
            true => trx.commit().map(|()| true),
            false => trx.rollback().map(|()| false),
        }
    }

    /// Opens a view, and looks several times at everything.
    fn look_until_stopped(&self, mut rng: SmallRng) {
        while !self.stop.load(Relaxed) {
            let mut trx = self.db.begin(Isolation::RepeatableRead);
            trx.take_snapshot();
            // Most views stay for a short time, some for the whole round.
            let patience = Duration::from_millis(*[0, 50, 400, 60_000].choose(&mut rng).unwrap());
            let opened = Instant::now();
            let first = self.look(&mut trx);
            while opened.elapsed() < patience && !self.stop.load(Relaxed) {
                let again = self.look(&mut trx);
                assert_eq!(
                    first,
                    again,
                    "a view that is open for {:?}",
                    opened.elapsed()
                );
            }
            trx.commit().unwrap();
        }
    }

    /// All rows of all tables, the same whichever way they are read.
    fn look(&self, trx: &mut Transaction) -> Vec<Rows> {
        self.looks.fetch_add(1, Relaxed);
        let read = |play: &Play, trx: &mut Transaction| {
            let rows = play.scan(trx, 0, true, LockMode::None);
            for (index, forward) in [(0, false), (1, true), (1, false), (2, true), (2, false)] {
                let others = play.scan(trx, index, forward, LockMode::None);
                assert_eq!(others, rows, "index {index}, forward {forward}");
            }
            rows
        };
        self.plays.iter().map(|play| read(play, trx)).collect()
    }

    fn play_round(&self, seed: u64, length: Duration) {
        self.stop.store(false, Relaxed);
        thread::scope(|threads| {
            let mut running: Vec<_> = (0..WRITERS)
                .map(|n| SmallRng::seed_from_u64(seed ^ n << 32))
                .map(|rng| threads.spawn(move || self.write_until_stopped(rng)))
                .collect();
            running.extend((0..2).map(|n| {
                let rng = SmallRng::seed_from_u64(seed ^ (n + 100) << 32);
                threads.spawn(move || self.look_until_stopped(rng))
            }));
            let end = Instant::now() + length;
            // Enough of everything, however busy the machine is.
            let is_enough = || {
                let done = [&self.commits, &self.rollbacks, &self.looks];
                Instant::now() >= end && done.iter().all(|n| n.load(Relaxed) > 20)
            };
            while !is_enough() && !running.iter().any(|t| t.is_finished()) {
                thread::sleep(Duration::from_millis(10));
            }
            self.stop.store(true, Relaxed);
        });
    }

    /// Nobody is at work: what is there is sound, and nothing else is.
    fn check(&self, context: &str) {
        assert!(
            self.db.wait_for_purge(Duration::from_secs(60)),
            "{context}: {:?}",
            self.db.status()
        );
        let status: BTreeMap<_, _> = self.db.status().into_iter().collect();
        for name in [
            "undo_cuts",
            "active_transactions",
            "read_views",
            "history_list_length",
        ] {
            assert_eq!(status[name], 0, "{context}: {name}");
        }
        let mut trx = self.db.begin(Isolation::RepeatableRead);
        let rows = self.look(&mut trx);
        for (play, rows) in self.plays.iter().zip(rows) {
            let latest = play.scan(&mut trx, 1, true, LockMode::Shared);
            assert_eq!(latest, rows, "{context}: latest versions and a fresh view");
        }
        trx.commit().unwrap();
        for play in &self.plays {
            let report = self.db.check_table(&play.table).unwrap();
            assert_eq!(report.errors, [""; 0], "{context}");
            assert_eq!(report.deleted_rows, 0, "{context}: purge left rows");
            let rows = play.table.row_count_estimate();
            assert_eq!(rows, report.rows, "{context}: rows are counted");
        }
    }
}

/// Pages in use in all undo tablespaces.
fn undo_pages(db: &Database) -> u32 {
    let env = &db.core().undo.env;
    let ids: std::collections::BTreeSet<_> = db.core().undo.rsegs().map(|r| r.space()).collect();
    let used = |id| {
        env.spaces
            .require(id)
            .unwrap()
            .used_pages(&env.mtr)
            .unwrap()
    };
    ids.into_iter().map(used).sum()
}

/// SEC-1 and SEC-2: an entry without its row is damage to who reads by the index, and entries that do not
/// fit the rows are to the check.
#[test]
fn old_views_and_indexes_stay_right_under_writers() {
    let seed = number("VARVE_CONCURRENCY_SEED").unwrap_or_else(rand::random);
    let length = Duration::from_secs(number("VARVE_CONCURRENCY_SECONDS").unwrap_or(3));
    println!("VARVE_CONCURRENCY_SEED={seed}");
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let plays = vec![
        Play::create(&db, "c/hot", 12, 60),
        Play::create(&db, "c/range", 400, 1400),
    ];
    let game = Game {
        plays,
        db,
        stop: AtomicBool::new(false),
        commits: AtomicU64::new(0),
        rollbacks: AtomicU64::new(0),
        looks: AtomicU64::new(0),
    };
    for round in 0..ROUNDS {
        game.play_round(seed.wrapping_add(round), length);
        game.check(&format!("seed {seed}, round {round}"));
        println!("undo pages after round {round}: {}", undo_pages(&game.db));
    }
    let done = [&game.commits, &game.rollbacks, &game.looks].map(|n| n.load(Relaxed));
    println!("commits, rollbacks, looks: {done:?}");
    assert!(
        done.iter().all(|n| *n > 20),
        "too little was done: {done:?}"
    );
    // What each of the 95 rollback segments keeps, beside its header and its queue.
    let kept = FREE_PAGES_KEPT as usize + CACHED_PAGES_KEPT + 6;
    assert!(
        (undo_pages(&game.db) as usize) < 95 * kept,
        "{}",
        undo_pages(&game.db)
    );
    let Game { db, plays, .. } = game;
    drop(plays);
    db.close().unwrap();
}

/// Undo pages of one rollback segment are of no use to the others. What a large transaction leaves goes back
/// to the tablespace, although purge has nothing to do with an insert's undo.
#[test]
fn undo_pages_of_large_inserts_are_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let def = TableDef::new("c/large")
        .column("key", ColumnType::Bytes(300))
        .primary(&["key"]);
    let table = db.create_table(&def).unwrap();
    let before = undo_pages(&db);
    for n in 0..8u32 {
        let mut trx = db.begin(Isolation::RepeatableRead);
        for row in 0..4000u32 {
            let mut key = vec![7; 300];
            key[..4].copy_from_slice(&row.to_be_bytes());
            key[4..8].copy_from_slice(&n.to_be_bytes());
            let row = def.row(&[Value::Bytes(key)]).unwrap();
            trx.insert(&table, &row.datums()).unwrap();
        }
        match n % 2 {
            0 => trx.commit().unwrap(),
            _ => trx.rollback().unwrap(),
        }
    }
    // Each took more than 300 pages.
    let kept = 8 * (FREE_PAGES_KEPT + 2);
    let end = Instant::now() + Duration::from_secs(60);
    while undo_pages(&db) > before + kept {
        assert!(
            Instant::now() < end,
            "{} pages, {before} before",
            undo_pages(&db)
        );
        thread::sleep(Duration::from_millis(20));
    }
}
