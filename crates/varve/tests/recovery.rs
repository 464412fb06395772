//! A database that is used while it recovers: pages are brought up to date when they are touched,
//! transactions that had not ended are rolled back behind their locks.
//!
//! What could break here: a page is seen without its redo; the checkpoint passes redo that is not applied,
//! and a second crash loses it; what redo and new changes did to a page is mixed up; a row of an unfinished
//! transaction is seen, changed or dropped before it is rolled back; a close in the middle loses what is
//! left.

#[path = "support/versions.rs"]
mod versions;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::internals::io::{Disk, OpenMode};
use varve::internals::page::{PageType, page_type};
use varve::{Database, Error, Isolation, LockMode, Options, Result, Table};
use varve_sim::{Failure, Fault, Operation, SimDisk};
use versions::{definition, delete, insert, read, set};

const PAGE: usize = 4096;
const ROWS: i64 = 1500;
const SPILL: &str = "/db/varve.recovery";
const SOON: Duration = Duration::from_secs(60);

type Log = Arc<Mutex<Vec<String>>>;

/// With so many threads in the background, and so much memory for redo; 0: half of the pool.
fn open_with(disk: &SimDisk, threads: usize, memory: u64, log: &Log) -> Result<Database> {
    let log = log.clone();
    let options = Options {
        page_size: PAGE as u32,
        buffer_pool_bytes: 2 << 20,
        redo_capacity_bytes: 8 << 20,
        log_buffer_bytes: 2 << 20,
        lock_wait_timeout: Duration::from_millis(20),
        recovery_threads: Some(threads),
        recovery_memory_bytes: memory,
        least_shared_pool_bytes: 0,
        logger: Some(Arc::new(move |_, message| {
            log.lock().unwrap().push(message.to_string())
        })),
        ..Options::default()
    };
    Database::open_on(Arc::new(disk.clone()), Path::new("/db"), options)
}

fn open(disk: &SimDisk, threads: usize) -> Database {
    open_with(disk, threads, 20_000, &Log::default()).unwrap()
}

fn has_spill(disk: &SimDisk) -> bool {
    disk.exists(Path::new(SPILL)).unwrap()
}

fn create(db: &Database, name: &str) -> Table {
    let table = db.create_table(&definition(name)).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    (0..ROWS).for_each(|id| insert(&mut trx, &table, id, 0).unwrap());
    trx.commit().unwrap();
    table
}

/// The rows' versions, as they should be.
type Versions = Vec<i64>;

fn change(db: &Database, name: &str, versions: &mut Versions, rng: &mut SmallRng, times: usize) {
    let table = db.table(name).unwrap();
    for _ in 0..times {
        let mut trx = db.begin(Isolation::RepeatableRead);
        for _ in 0..rng.random_range(1..4) {
            let id = rng.random_range(0..ROWS);
            versions[id as usize] += 1;
            set(&mut trx, &table, id, versions[id as usize]).unwrap();
        }
        trx.commit().unwrap();
    }
}

fn check(db: &Database, name: &str, versions: &Versions) {
    let table = db.table(name).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for (id, version) in versions.iter().enumerate() {
        let found = read(&mut trx, &table, id as i64, LockMode::None).unwrap();
        assert_eq!(found, Some(*version), "row {id} of {name}");
    }
    let report = db.check_table(&table).unwrap();
    assert_eq!(report.errors, [""; 0], "{name}");
    assert_eq!(report.rows, versions.len() as u64);
}

/// BUF-6, where many pages are read together: by the system's own way, and by threads.
#[test]
fn pages_are_read_together_and_brought_up_to_date() {
    for use_native_aio in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let open = |threads| {
            let options = Options {
                page_size: PAGE as u32,
                buffer_pool_bytes: 2 << 20,
                redo_capacity_bytes: 8 << 20,
                log_buffer_bytes: 2 << 20,
                recovery_threads: Some(threads),
                recovery_memory_bytes: 20_000,
                use_native_aio,
                read_ahead_threshold: 0,
                logger: Some(Arc::new(|_, _| {})),
                ..Options::default()
            };
            Database::open(dir.path(), options).unwrap()
        };
        let mut rng = SmallRng::seed_from_u64(12);
        let mut versions = vec![0; ROWS as usize];
        let db = open(0);
        create(&db, "a/t");
        // So that redo does not make its pages anew.
        db.close().unwrap();
        let db = open(0);
        change(&db, "a/t", &mut versions, &mut rng, 500);
        db.crash();
        let db = open(3);
        assert!(db.wait_for_recovery(SOON));
        let status = db.status();
        let ahead = status.iter().find(|s| s.0 == "buffer_pool_read_ahead");
        let pages = db.recovery_progress().pages;
        assert!(ahead.unwrap().1 > pages / 2, "{ahead:?} of {pages}");
        check(&db, "a/t", &versions);
        db.close().unwrap();
    }
}

/// REC-2, REC-5 and BUF-8: one crash after the other, each with pages that nobody has touched since the
/// first one, and new changes to some of them.
/// On a real disk several threads open the files that redo names; one is not where its table's name says.
#[test]
fn files_are_opened_together() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let options = Options {
            page_size: PAGE as u32,
            recovery_threads: Some(2),
            ..Options::default()
        };
        Database::open(dir.path(), options).unwrap()
    };
    let names: Vec<String> = (0..20).map(|n| format!("a/t{n}")).collect();
    for (version, misplaced) in [(1, None), (2, Some("a/t7.vdt"))] {
        let db = open();
        for name in &names {
            let table = db.table(name).unwrap_or_else(|_| create(&db, name));
            let mut trx = db.begin(Isolation::RepeatableRead);
            set(&mut trx, &table, 0, version).unwrap();
            trx.commit().unwrap();
        }
        db.crash();
        if let Some(path) = misplaced {
            let to = dir.path().join("a/elsewhere.vdt");
            std::fs::rename(dir.path().join(path), to).unwrap();
        }
        let db = open();
        assert!(db.wait_for_recovery(SOON));
        let mut versions = vec![0; ROWS as usize];
        versions[0] = version;
        names.iter().for_each(|name| check(&db, name, &versions));
        db.close().unwrap();
    }
    assert!(dir.path().join("a/t7.vdt").exists());
}

#[test]
fn pages_are_brought_up_to_date_when_they_are_used() {
    let disk = SimDisk::default();
    let mut rng = SmallRng::seed_from_u64(1);
    let db = open(&disk, 0);
    let mut all = [vec![0; ROWS as usize], vec![0; ROWS as usize]];
    ["a/s", "a/t"]
        .iter()
        .for_each(|name| drop(create(&db, name)));
    for (versions, name) in all.iter_mut().zip(["a/s", "a/t"]) {
        change(&db, name, versions, &mut rng, 500);
    }
    db.crash();
    for round in 0..5 {
        let db = open(&disk, 0);
        let progress = db.recovery_progress();
        assert!(progress.pages_left > 20, "round {round}: {progress:?}");
        assert!(
            has_spill(&disk),
            "round {round}: 20,000 bytes are not enough"
        );
        // One of the tables: pages of the other are left as they are.
        let used = round % 2;
        change(&db, ["a/s", "a/t"][used], &mut all[used], &mut rng, 100);
        let left = db.recovery_progress().pages_left;
        assert!(left < progress.pages_left, "round {round}: {left}");
        db.crash();
    }
    let db = open(&disk, 2);
    check(&db, "a/s", &all[0]);
    assert!(db.wait_for_recovery(SOON));
    assert_eq!(db.recovery_progress().pages_left, 0);
    assert!(!has_spill(&disk), "the file is removed");
    check(&db, "a/t", &all[1]);
    db.close().unwrap();
    let db = open(&disk, 2);
    assert_eq!(db.recovery_progress().redo_bytes, 0, "a clean start");
    check(&db, "a/s", &all[0]);
}

/// Frames that hold no page because redo takes their memory (BUF-9).
fn held_back(db: &Database) -> u64 {
    let status = db.status();
    let [all, free, data] = ["total", "free", "data"].map(|of| {
        let name = format!("buffer_pool_pages_{of}");
        status.iter().find(|s| s.0 == name).unwrap().1
    });
    all - free - data
}

/// Redo is in the pool's memory while users and recovery share the other frames, and is given back, to be
/// used for pages.
#[test]
fn redo_takes_half_of_the_pool_until_it_is_applied() {
    const FRAMES: u64 = (2 << 20) / PAGE as u64;
    let disk = SimDisk::default();
    let mut rng = SmallRng::seed_from_u64(3);
    let open = |threads| open_with(&disk, threads, 0, &Log::default()).unwrap();
    let db = open(0);
    let mut versions = vec![0; ROWS as usize];
    create(&db, "a/t");
    change(&db, "a/t", &mut versions, &mut rng, 1000);
    assert_eq!(held_back(&db), 0);
    db.crash();
    for round in 0..3 {
        let db = open(0);
        let (held, progress) = (held_back(&db), db.recovery_progress());
        let what = format!("round {round}: {held} of {FRAMES} frames, {progress:?}");
        assert!(held > FRAMES / 16 && held <= FRAMES / 2, "{what}");
        assert!(
            held * PAGE as u64 <= progress.memory_bytes + PAGE as u64,
            "{what}"
        );
        change(&db, "a/t", &mut versions, &mut rng, 20);
        assert!(held_back(&db) < held, "{what}");
        db.crash();
    }
    let db = open(2);
    check(&db, "a/t", &versions);
    assert!(db.wait_for_recovery(SOON));
    assert_eq!(held_back(&db), 0);
    check(&db, "a/t", &versions);
    db.close().unwrap();
}

/// A database that is closed while pages are left is as good as any other.
#[test]
fn a_close_in_the_middle_leaves_nothing_undone() {
    let disk = SimDisk::default();
    let mut rng = SmallRng::seed_from_u64(2);
    let db = open(&disk, 0);
    let mut versions = vec![0; ROWS as usize];
    create(&db, "a/t");
    change(&db, "a/t", &mut versions, &mut rng, 300);
    db.crash();
    for threads in [0, 1] {
        let db = open(&disk, threads);
        change(&db, "a/t", &mut versions, &mut rng, 1);
        db.close().unwrap();
        assert!(!has_spill(&disk));
        let db = open(&disk, 0);
        assert_eq!(db.recovery_progress().redo_bytes, 0, "it was closed");
        check(&db, "a/t", &versions);
        db.crash();
    }
}

/// A transaction that had not ended, of three changes to one table and many to another.
fn with_loser(many: i64) -> SimDisk {
    let disk = SimDisk::default();
    let db = open(&disk, 0);
    let (few, large) = (create(&db, "a/few"), create(&db, "a/large"));
    create(&db, "a/other");
    let mut trx = db.begin(Isolation::RepeatableRead);
    trx.set_lock_wait_timeout(Duration::from_secs(1));
    set(&mut trx, &few, 1, 77).unwrap();
    delete(&mut trx, &few, 2).unwrap();
    insert(&mut trx, &few, ROWS + 1, 5).unwrap();
    (0..many).for_each(|n| set(&mut trx, &large, n % ROWS, 1000 + n).unwrap());
    db.flush_log().unwrap();
    db.crash();
    drop(trx);
    disk
}

/// While it waits to be rolled back nobody sees, changes or drops what it changed; everybody does the rest.
fn check_loser(db: &Database) {
    let few = db.table("a/few").unwrap();
    let mut reader = db.begin(Isolation::RepeatableRead);
    for (id, version) in [(1, Some(0)), (2, Some(0)), (3, Some(0)), (ROWS + 1, None)] {
        let read = read(&mut reader, &few, id, LockMode::None).unwrap();
        assert_eq!(read, version, "row {id}");
    }
    for id in [1, 2, ROWS + 1] {
        let mut trx = db.begin(Isolation::ReadCommitted);
        let locked = read(&mut trx, &few, id, LockMode::Exclusive);
        assert!(
            matches!(locked, Err(Error::LockWaitTimeout)),
            "row {id}: {locked:?}"
        );
    }
    let mut trx = db.begin(Isolation::RepeatableRead);
    set(&mut trx, &few, 3, 1).unwrap();
    trx.rollback().unwrap();
    for name in ["a/few", "a/large"] {
        for refused in [db.drop_table(name), db.truncate_table(name)] {
            assert!(
                matches!(refused, Err(Error::LockWaitTimeout)),
                "{name}: {refused:?}"
            );
        }
    }
}

#[test]
fn what_had_not_ended_is_rolled_back_behind_its_locks() {
    let disk = with_loser(10);
    // Nobody rolls it back here, and a close leaves it to the next start.
    for _ in 0..2 {
        let db = open(&disk, 0);
        assert_eq!(db.recovery_progress().transactions_left, 1);
        assert!(db.recovery_progress().changes_left >= 13);
        check_loser(&db);
        db.close().unwrap();
    }
    let db = open(&disk, 1);
    assert!(db.wait_for_recovery(SOON));
    let zero = vec![0; ROWS as usize];
    for name in ["a/few", "a/large"] {
        check(&db, name, &zero);
    }
    assert_eq!(db.recovery_progress().transactions_left, 0);
    for name in ["a/few", "a/large", "a/other"] {
        db.drop_table(name).unwrap();
    }
}

/// A long one is known to have changed some table or other until it is gone.
#[test]
fn a_long_rollback_goes_on_at_the_next_start() {
    let disk = with_loser(5000);
    let db = open(&disk, 0);
    let refused = db.drop_table("a/other");
    assert!(
        matches!(refused, Err(Error::LockWaitTimeout)),
        "{refused:?}"
    );
    check_loser(&db);
    db.crash();
    let mut interrupted = 0;
    for _ in 0..20 {
        let db = open(&disk, 1);
        check_few(&db);
        interrupted += u32::from(db.recovery_progress().transactions_left > 0);
        db.close().unwrap();
    }
    println!("{interrupted} of 20 closes came before the end of the rollback");
    let db = open(&disk, 1);
    assert!(db.wait_for_recovery(SOON));
    let zero = vec![0; ROWS as usize];
    for name in ["a/few", "a/large", "a/other"] {
        check(&db, name, &zero);
    }
}

fn check_few(db: &Database) {
    let few = db.table("a/few").unwrap();
    let mut reader = db.begin(Isolation::RepeatableRead);
    let read = read(&mut reader, &few, 1, LockMode::None).unwrap();
    assert_eq!(read, Some(0));
}

/// There is no room for recovery's file: the log is read twice, and all is well.
#[test]
fn a_full_disk_costs_a_second_pass() {
    let disk = SimDisk::default();
    let mut rng = SmallRng::seed_from_u64(3);
    let db = open(&disk, 0);
    let mut versions = vec![0; ROWS as usize];
    create(&db, "a/t");
    change(&db, "a/t", &mut versions, &mut rng, 300);
    db.crash();
    let no_room = Fault::always(Operation::Any, Failure::NoSpace).on(SPILL);
    disk.inject(no_room.clone());
    // REC-7: what this process has read may be in the system's cache only. Before that counts it is made
    // durable.
    disk.inject(Fault::always(Operation::Sync, Failure::Io).on("a/t.vdt"));
    let refused = open_with(&disk, 0, 20_000, &Log::default()).map(drop);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("a/t.vdt"), "{refused}");
    disk.heal();
    disk.inject(no_room);
    let log = Log::default();
    let db = open_with(&disk, 0, 20_000, &log).unwrap();
    let told = log.lock().unwrap().join("\n");
    assert!(
        told.contains("no space left for sorting the redo"),
        "{told}"
    );
    assert_eq!(db.recovery_progress().pages_left, 0);
    check(&db, "a/t", &versions);
}

/// What opening can't do without is made before recovery's file may take the room for it.
#[test]
fn recovery_takes_no_room_that_opening_needs() {
    let disk = SimDisk::default();
    let mut rng = SmallRng::seed_from_u64(13);
    let db = open(&disk, 0);
    let mut versions = vec![0; ROWS as usize];
    create(&db, "a/t");
    change(&db, "a/t", &mut versions, &mut rng, 300);
    db.crash();
    for name in ["/db/temp.vdt", "/db/truncate.spare"] {
        disk.remove(Path::new(name)).unwrap();
        disk.inject(Fault::always(Operation::Any, Failure::NoSpace).on(name));
    }
    let refused = open_with(&disk, 0, 20_000, &Log::default()).map(drop);
    assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
    assert!(!has_spill(&disk));
    disk.heal();
    let db = open(&disk, 0);
    assert!(has_spill(&disk));
    check(&db, "a/t", &versions);
}

/// REC-6: a page to which redo can't be applied costs its table, for good, and nobody else anything.
#[test]
fn a_page_that_cannot_be_brought_up_to_date_costs_its_table_only() {
    let disk = SimDisk::default();
    let mut rng = SmallRng::seed_from_u64(4);
    let db = open(&disk, 0);
    let mut versions = vec![0; ROWS as usize];
    ["a/bad", "a/good"]
        .iter()
        .for_each(|name| drop(create(&db, name)));
    // So that their pages are in the files, and redo does not make them anew.
    db.close().unwrap();
    let db = open(&disk, 0);
    let mut bad = versions.clone();
    change(&db, "a/bad", &mut bad, &mut rng, 300);
    change(&db, "a/good", &mut versions, &mut rng, 300);
    db.crash();
    let path = Path::new("/db/a/bad.vdt");
    let file = disk.open(path, OpenMode::Existing).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    let leaves = bytes.chunks(PAGE).enumerate();
    let leaves = leaves.filter(|(_, page)| page_type(page) == Some(PageType::Leaf));
    for (no, _) in leaves {
        file.write_at(&[1, 2, 3, 4], (no * PAGE + 2000) as u64)
            .unwrap();
    }
    for _ in 0..2 {
        let log = Log::default();
        let db = open_with(&disk, 2, 20_000, &log).unwrap();
        assert!(db.wait_for_recovery(SOON));
        let refused = db.table("a/bad").map(drop).unwrap_err().to_string();
        println!("{refused}");
        check(&db, "a/good", &versions);
        let told = log.lock().unwrap().join("\n");
        assert!(told.contains("table a/bad can't be used"), "{told}");
        db.close().unwrap();
    }
    let db = open(&disk, 2);
    db.drop_table("a/bad").unwrap();
    create(&db, "a/bad");
}

/// What the levels up to 3 pass over.
#[test]
fn a_database_can_be_forced_open() {
    let disk = with_loser(10);
    let force = |disk: &SimDisk, level: u8| {
        let options = Options {
            page_size: PAGE as u32,
            redo_capacity_bytes: 8 << 20,
            log_buffer_bytes: 2 << 20,
            lock_wait_timeout: Duration::from_millis(20),
            force_recovery: level,
            logger: Some(Arc::new(|_, _| {})),
            ..Options::default()
        };
        Database::open_on(Arc::new(disk.clone()), Path::new("/db"), options)
    };
    let db = force(&disk, 3).unwrap();
    assert!(db.wait_for_recovery(SOON), "there is nothing to wait for");
    assert_eq!(db.recovery_progress().transactions_left, 1);
    check_loser(&db);
    let mut trx = db.begin(Isolation::RepeatableRead);
    set(&mut trx, &db.table("a/other").unwrap(), 1, 1).unwrap();
    trx.commit().unwrap();
    assert!(
        !db.wait_for_purge(Duration::from_millis(200)),
        "nobody purges"
    );
    db.crash();

    // A file that is refused, with redo for it: the database waits for it, unless it is forced.
    let broken = Fault::always(Operation::Open, Failure::Io).on("/db/a/large.vdt");
    disk.inject(broken.clone());
    let refused = force(&disk, 0).map(drop).unwrap_err();
    assert!(matches!(refused, Error::Io { .. }), "{refused}");
    let db = force(&disk, 1).unwrap();
    assert!(db.wait_for_recovery(SOON));
    let other = db.table("a/other").unwrap();
    let mut reader = db.begin(Isolation::RepeatableRead);
    assert_eq!(
        read(&mut reader, &other, 1, LockMode::None).unwrap(),
        Some(1)
    );
    drop(reader);
    assert!(db.table("a/large").is_err());
    db.close().unwrap();
    disk.heal();
    let lost = force(&disk, 0)
        .unwrap()
        .table("a/large")
        .map(drop)
        .unwrap_err();
    assert!(
        lost.to_string()
            .contains("missing while a crash was recovered"),
        "{lost}"
    );
}
