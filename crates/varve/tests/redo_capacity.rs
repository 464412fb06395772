//! The redo log's capacity changes while transactions are committed, and the machine fails at any moment of
//! that. What could break here: a file is used again, or removed, whose redo is still needed; files of
//! various lengths are not found or not read in their order; a change that was refused for want of space
//! leaves its traces; writers wait for a checkpoint that is not coming.
//!
//! `VARVE_MODEL_SEED` replays the changes and the states drawn; background threads write when they like.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::{ColumnType, Database, Error, Isolation, Options, TableDef, values};
use varve_sim::{CrashPoints, SimDisk};

const DIR: &str = "/data/db";
const MIB: u64 = 1 << 20;
/// With files of 256 KiB up to 8 MiB.
const CAPACITIES: [u64; 5] = [2 * MIB, 3 * MIB, 5 * MIB, 16 * MIB, 64 * MIB];
const ROWS: i64 = 60;
const TRANSACTIONS: i64 = 60;
/// Moments of the run that are tried, and of each change of the capacity.
const MOMENTS: usize = 120;
const MOMENTS_OF_CHANGE: usize = 6;

fn open(disk: &SimDisk, capacity: u64) -> varve::Result<Database> {
    let options = Options {
        page_size: 4096,
        buffer_pool_bytes: 1 << 20,
        redo_capacity_bytes: capacity,
        log_buffer_bytes: 2 << 20,
        undo_tablespaces: 2,
        logger: Some(Arc::new(|_, _| {})),
        ..Options::default()
    };
    Database::open_on(Arc::new(disk.clone()), Path::new(DIR), options)
}

fn status(db: &Database, name: &str) -> u64 {
    let status = db.status();
    let found = status.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no {name}")).1
}

/// The checkpoint moves meanwhile. Then a file may be missing until the background writer has made it, which
/// it could not while the disk was full.
fn wait_for_files(db: &Database, capacity: u64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while status(db, "checkpoint_max_age") != capacity {
        assert!(Instant::now() < deadline, "no files for {capacity} bytes");
        thread::sleep(Duration::from_millis(1));
    }
}

/// What was committed when: by operations of the disk.
struct Promise {
    began: usize,
    acknowledged: usize,
    version: i64,
}

fn create_table(db: &Database) {
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("version", ColumnType::i64())
        .column("value", ColumnType::Bytes(1000))
        .primary(&["id"]);
    db.create_table(&def).unwrap();
}

/// Gives all rows this version, in one transaction. Their values change, so that there is much redo.
fn write(db: &Database, version: i64) -> varve::Result<()> {
    let table = db.table("a/t")?;
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS {
        let value = vec![(version + id) as u8; 900];
        table.put(&mut trx, values![id, version, value])?;
    }
    trx.commit()
}

/// The version that all rows have; `None`: there is no table or no row yet.
fn version(db: &Database) -> Option<i64> {
    let table = db.table("a/t").ok()?;
    let check = db.check_table(&table).unwrap();
    assert!(check.errors.is_empty(), "{:?}", check.errors);
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut versions = Vec::new();
    for id in 0..ROWS {
        let row = table.get(&mut trx, values![id]).unwrap()?;
        versions.push(row.get::<i64>("version").unwrap());
    }
    assert!(versions.iter().all(|v| *v == versions[0]), "{versions:?}");
    Some(versions[0])
}

struct Run {
    promises: Vec<Promise>,
    /// Operations during changes of the capacity.
    changes: Vec<Range<usize>>,
    refused: usize,
}

fn run(disk: &SimDisk, rng: &mut SmallRng) -> Run {
    let mut before = 4 * MIB;
    let db = open(disk, before).unwrap();
    create_table(&db);
    let (mut promises, mut changes, mut refused) = (Vec::new(), Vec::new(), 0);
    for version in 0..TRANSACTIONS {
        let began = disk.operations();
        write(&db, version).unwrap();
        promises.push(Promise {
            began,
            acknowledged: disk.operations(),
            version,
        });
        if !rng.random_bool(0.4) {
            continue;
        }
        let capacity = CAPACITIES[rng.random_range(0..CAPACITIES.len())];
        let began = disk.operations();
        let is_full = rng.random_bool(0.3);
        if is_full {
            disk.set_capacity(disk.used());
        }
        let changed = db.set_redo_capacity_bytes(capacity);
        disk.heal();
        changes.push(began..disk.operations());
        match changed {
            Ok(()) => {
                wait_for_files(&db, capacity);
                before = capacity;
            }
            Err(Error::NoSpace { what }) => {
                assert!(
                    is_full && capacity > before && what.contains(".vlog"),
                    "from {before}, the disk is full: {is_full}: {what}"
                );
                wait_for_files(&db, before);
                refused += 1;
            }
            Err(e) => panic!("{e}"),
        }
    }
    db.crash();
    Run {
        promises,
        changes,
        refused,
    }
}

/// What is there after a crash at some moment is one of these.
fn expected(promises: &[Promise], at: usize) -> Vec<Option<i64>> {
    let acknowledged = promises.iter().rev().find(|p| p.acknowledged <= at);
    let mut expected = vec![acknowledged.map(|p| p.version)];
    let under_way = promises
        .iter()
        .filter(|p| p.began < at && p.acknowledged > at);
    expected.extend(under_way.map(|p| Some(p.version)));
    expected
}

fn recover(points: &CrashPoints, run: &Run, rng: &mut SmallRng) {
    let at = points.position();
    let mut disk = SimDisk::new(points.crash(rng));
    let any = |rng: &mut SmallRng| CAPACITIES[rng.random_range(0..CAPACITIES.len())];
    if rng.random_bool(0.4) {
        // Another crash in recovery, or soon after.
        let db = open(&disk, any(rng)).unwrap();
        if rng.random_bool(0.5) {
            db.set_redo_capacity_bytes(any(rng)).unwrap();
        }
        db.crash();
        let journal = disk.journal();
        let mut points = CrashPoints::new(journal.clone());
        points.advance(rng.random_range(0..=journal.len()));
        disk = SimDisk::new(points.crash(rng));
    }
    let db = open(&disk, any(rng)).unwrap_or_else(|e| panic!("before operation {at}: {e}"));
    let (found, expected) = (version(&db), expected(&run.promises, at));
    assert!(
        expected.contains(&found),
        "before operation {at}: {found:?}, not {expected:?}"
    );
    if found.is_some() {
        write(&db, TRANSACTIONS).unwrap();
        db.set_redo_capacity_bytes(any(rng)).unwrap();
        write(&db, TRANSACTIONS + 1).unwrap();
        assert_eq!(version(&db), Some(TRANSACTIONS + 1));
    }
    db.close().unwrap();
}

/// LF-2: whatever the crash left of a file that was about to be used, what was acknowledged is there.
#[test]
fn a_crash_while_the_capacity_changes() {
    let seed = std::env::var("VARVE_MODEL_SEED");
    let seed = seed.map_or_else(|_| rand::random(), |n| n.parse().expect("a number"));
    println!("VARVE_MODEL_SEED={seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let disk = SimDisk::default();
    let run = run(&disk, &mut rng);
    let begun = run.promises[0].began;
    let mut moments: Vec<usize> = (0..MOMENTS)
        .map(|_| rng.random_range(begun..=disk.operations()))
        .collect();
    for change in &run.changes {
        let some = (0..MOMENTS_OF_CHANGE).map(|_| rng.random_range(change.start..=change.end));
        moments.extend(some);
    }
    moments.sort_unstable();
    let mut points = CrashPoints::new(disk.journal());
    for &at in &moments {
        points.advance(at);
        recover(&points, &run, &mut rng);
    }
    println!(
        "{} crashes in {} operations, {} changes of the capacity, {} of them refused",
        moments.len(),
        disk.operations(),
        run.changes.len(),
        run.refused
    );
}

/// A transaction that writes far more than the new capacity while the log shrinks to it is not stopped by
/// that.
#[test]
fn the_log_shrinks_under_writers() {
    let disk = SimDisk::default();
    let db = open(&disk, 64 * MIB).unwrap();
    create_table(&db);
    for version in 0..40 {
        write(&db, version).unwrap();
    }
    let files = status(&db, "redo_log_physical_size");
    db.set_redo_capacity_bytes(2 * MIB).unwrap();
    let mut version = 40;
    let small = |db: &Database| {
        status(db, "redo_log_capacity_resized") == 2 * MIB
            && status(db, "redo_log_physical_size") < 8 * MIB
    };
    while !small(&db) {
        write(&db, version).unwrap();
        version += 1;
        assert!(version < 5000, "it does not become smaller");
    }
    assert!(files > 64 * MIB);
    assert_eq!(self::version(&db), Some(version - 1));
    drop(db.close());
    let db = open(&disk, 2 * MIB).unwrap();
    assert_eq!(self::version(&db), Some(version - 1));
    db.close().unwrap();
}
