//! A start by the indexes of the redo log's files, which reads the log as a whole only afterwards.
//!
//! What could break here: changes that no index knows of, between two files, at the log's end, or before a
//! checkpoint in the middle of a file; pages that are brought up to date by indexes and by the whole log in
//! turn; an index of another time that is believed; indexes that are left behind.

#[path = "support/versions.rs"]
mod versions;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::internals::io::Disk;
use varve::{Database, FlushOptions, Isolation, LockMode, Options, Table};
use varve_sim::{CrashPoints, SimDisk};
use versions::{definition, delete, insert, read, set};

const ROWS: i64 = 600;
const SOON: Duration = Duration::from_secs(60);
const FILE_BYTES: u64 = 256 << 10;

type Messages = Arc<Mutex<Vec<String>>>;

/// Nothing is written back before half of the log is full.
fn options(threads: usize, messages: &Messages) -> Options {
    let messages = messages.clone();
    Options {
        page_size: 4096,
        buffer_pool_bytes: 4 << 20,
        redo_capacity_bytes: 8 * FILE_BYTES,
        log_buffer_bytes: 2 << 20,
        redo_index_from_bytes: 0,
        recovery_threads: Some(threads),
        recovery_memory_bytes: 100_000,
        flush: FlushOptions {
            adaptive_flushing: false,
            max_dirty_pages_pct: 99.0,
            max_dirty_pages_pct_lwm: 0.0,
            ..FlushOptions::default()
        },
        logger: Some(Arc::new(move |_, message| {
            messages.lock().unwrap().push(message.to_string())
        })),
        ..Options::default()
    }
}

fn goes_by_indexes(messages: &Messages) -> bool {
    let messages = messages.lock().unwrap();
    messages.iter().any(|m| m.contains("by indexes"))
}

/// The rows' versions, as they should be.
type Versions = Vec<i64>;

fn create(db: &Database) -> Versions {
    let table = db.create_table(&definition("a/t")).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    (0..ROWS).for_each(|id| insert(&mut trx, &table, id, 0).unwrap());
    trx.commit().unwrap();
    vec![0; ROWS as usize]
}

/// Transactions of up to so many changes.
fn change(
    (db, table): (&Database, &Table),
    versions: &mut Versions,
    rng: &mut SmallRng,
    (times, most): (usize, usize),
) {
    for n in 0..times {
        let mut trx = db.begin(Isolation::RepeatableRead);
        let takes_back = n % 10 == 9;
        if n % 25 == 24 {
            // It is there again in the same transaction.
            let id = rng.random_range(0..ROWS);
            delete(&mut trx, table, id).unwrap();
            insert(&mut trx, table, id, versions[id as usize]).unwrap();
        }
        for _ in 0..rng.random_range(1..=most) {
            let id = rng.random_range(0..ROWS);
            let version = versions[id as usize] + 1;
            set(&mut trx, table, id, version).unwrap();
            versions[id as usize] += i64::from(!takes_back);
            if takes_back {
                break;
            }
        }
        match takes_back {
            true => trx.rollback().unwrap(),
            false => trx.commit().unwrap(),
        }
    }
}

fn check(db: &Database, versions: &Versions) {
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for (id, version) in versions.iter().enumerate() {
        let found = read(&mut trx, &table, id as i64, LockMode::None).unwrap();
        assert_eq!(found, Some(*version), "row {id}");
    }
    let report = db.check_table(&table).unwrap();
    assert_eq!(report.errors, [""; 0]);
}

/// One crash after the other: the log is of several generations, some of its files have indexes, and pages
/// are left from before. Nobody divides the log before the database is closed.
#[test]
fn one_crash_after_the_other() {
    let disk = SimDisk::default();
    let mut rng = SmallRng::seed_from_u64(1);
    let open = |messages: &Messages| open_quietly(&disk, 0, messages);
    let mut versions = create(&open(&Messages::default()));
    let mut by_indexes = 0;
    for round in 0..6 {
        let messages = Messages::default();
        let db = open(&messages);
        by_indexes += u32::from(goes_by_indexes(&messages));
        let table = db.table("a/t").unwrap();
        let mut indexed = 0;
        for _ in 0..4 {
            change((&db, &table), &mut versions, &mut rng, (250, 3));
            while db.index_redo().unwrap().is_some() {
                indexed += 1;
            }
        }
        assert!(indexed > 0, "round {round}");
        if round % 3 == 2 {
            check(&db, &versions);
        }
        // The last transaction was rolled back, which need not be durable: nobody would do it again after the
        // start.
        db.flush_log().unwrap();
        db.crash();
    }
    assert!(by_indexes > 1, "{by_indexes} of 6 starts");
    let db = open(&Messages::default());
    check(&db, &versions);
    db.close().unwrap();
    let redo = disk.list(Path::new("/db/redo")).unwrap();
    assert!(redo.iter().all(|entry| !entry.name.ends_with(".vidx")));
    let db = open(&Messages::default());
    assert_eq!(db.recovery_progress().redo_bytes, 0, "a clean start");
    check(&db, &versions);
}

/// Transaction `n` gives this row the version `n`.
fn row_of(n: usize) -> usize {
    n * 7 % ROWS as usize
}

/// The rows after so many transactions.
fn state_after(transactions: usize) -> Versions {
    let mut versions = vec![0; ROWS as usize];
    (1..=transactions).for_each(|n| versions[row_of(n)] = n as i64);
    versions
}

/// One transaction after the other, and indexes in between. Returns after how many operations of the disk
/// each was promised.
fn play(disk: &SimDisk, transactions: usize) -> Vec<usize> {
    let db = open_quietly(disk, 0, &Messages::default());
    create(&db);
    let table = db.table("a/t").unwrap();
    let mut promised = vec![disk.operations()];
    for n in 1..=transactions {
        let mut trx = db.begin(Isolation::RepeatableRead);
        set(&mut trx, &table, row_of(n) as i64, n as i64).unwrap();
        trx.commit().unwrap();
        promised.push(disk.operations());
        if n % 20 == 0 {
            while db.index_redo().unwrap().is_some() {}
        }
    }
    db.crash();
    promised
}

/// Indexes are never synced: whatever the disk has of them after a power failure will do.
#[test]
fn a_power_failure_at_any_time() {
    const TRANSACTIONS: usize = 1500;
    let seed = std::env::var("VARVE_MODEL_SEED");
    let seed = seed.map_or_else(|_| rand::random(), |n| n.parse().expect("a number"));
    println!("VARVE_MODEL_SEED={seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let disk = SimDisk::default();
    let promised = play(&disk, TRANSACTIONS);
    let any = |rng: &mut SmallRng| rng.random_range(promised[0]..=disk.operations());
    let mut moments: Vec<usize> = (0..30).map(|_| any(&mut rng)).collect();
    moments.sort_unstable();
    let mut points = CrashPoints::new(disk.journal());
    let mut by_indexes = 0;
    for at in moments {
        points.advance(at);
        let mut disk = SimDisk::new(points.crash(&mut rng));
        let acknowledged = promised.iter().rposition(|op| *op <= at).unwrap();
        if rng.random_bool(0.4) {
            // Another one in recovery, or soon after.
            let db = open_quietly(&disk, 0, &Messages::default());
            while db.index_redo().unwrap().is_some() {}
            let _ = db.close();
            let journal = disk.journal();
            let mut points = CrashPoints::new(journal.clone());
            points.advance(rng.random_range(0..=journal.len()));
            disk = SimDisk::new(points.crash(&mut rng));
        }
        let messages = Messages::default();
        let db = open_quietly(&disk, 1, &messages);
        by_indexes += u32::from(goes_by_indexes(&messages));
        assert!(db.wait_for_recovery(SOON));
        let table = db.table("a/t").unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        let mut read = |id: i64| read(&mut trx, &table, id, LockMode::None).unwrap();
        let newest = (0..ROWS).filter_map(&mut read).max().unwrap() as usize;
        assert!(
            (acknowledged..=acknowledged + 1).contains(&newest),
            "before operation {at}: {newest}, not {acknowledged}"
        );
        drop(trx);
        check(&db, &state_after(newest));
        db.close().unwrap();
    }
    println!("{by_indexes} starts by indexes");
}

fn open_quietly(disk: &SimDisk, threads: usize, messages: &Messages) -> Database {
    let options = options(threads, messages);
    Database::open_on(Arc::new(disk.clone()), Path::new("/db"), options).unwrap()
}

/// On a real disk, with all threads: the log is indexed while it is written, divided while the database is
/// used, and crashes come at any time.
#[test]
fn threads_index_and_divide_meanwhile() {
    for use_native_aio in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let open = |messages: &Messages| {
            let options = Options {
                use_native_aio,
                ..options(2, messages)
            };
            Database::open(dir.path(), options).unwrap()
        };
        let mut rng = SmallRng::seed_from_u64(3);
        let mut versions = create(&open(&Messages::default()));
        let mut by_indexes = 0;
        for round in 0..8 {
            let messages = Messages::default();
            let db = open(&messages);
            by_indexes += u32::from(goes_by_indexes(&messages));
            let table = db.table("a/t").unwrap();
            // At first while the log is being divided.
            let reader = thread::spawn({
                let (db, versions) = (db.clone(), versions.clone());
                move || {
                    let table = db.table("a/t").unwrap();
                    let mut trx = db.begin(Isolation::ReadUncommitted);
                    for (id, least) in versions.iter().enumerate() {
                        let found = read(&mut trx, &table, id as i64, LockMode::None).unwrap();
                        assert!(found.is_some_and(|found| found >= *least), "row {id}");
                    }
                }
            });
            change((&db, &table), &mut versions, &mut rng, (80, 40));
            reader.join().unwrap();
            if round % 3 == 1 {
                assert!(db.wait_for_recovery(SOON));
                check(&db, &versions);
            }
            // Beside the thread that does the same.
            while db.index_redo().unwrap().is_some() {}
            db.crash();
        }
        assert!(by_indexes > 2, "{by_indexes} of 8 starts");
        let db = open(&Messages::default());
        assert!(db.wait_for_recovery(SOON));
        check(&db, &versions);
        let metrics = db.metrics();
        assert!(metrics.iter().any(|m| m.name == "redo_index_files"));
        db.close().unwrap();
    }
}
