//! Whether the search for crashes that lose data would find any: each database here does one thing wrong, or
//! its disk breaks one promise, and that must be noticed, by the search or by the workload itself. A table
//! says what noticed it, and after how much; docs/testing.md has one.
//!
//! `cargo test -p varve --features sabotage --test sabotage -- --nocapture`; `VARVE_SABOTAGE` chooses one by
//! a part of its name.

#[path = "support/dying_disk.rs"]
mod dying_disk;
#[path = "support/lists.rs"]
mod lists;
mod support;

use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use dying_disk::DyingDisk;
use support::shrink::{Failure, search, shrink};
use support::workload::{Config, SIM_DIR};
use varve::Isolation::{self, ReadCommitted, RepeatableRead, Serializable};
use varve::internals::base::Sabotage;
use varve::internals::io::{Disk, RealDisk};
use varve::{ColumnType, Database, EncryptionMode, Error, Options, Result, TableDef, values};
use varve_sim::sample::Keys;
use varve_sim::{CrashPoints, Failure as DiskFailure, Fault, Lie, Operation, SimDisk};

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Wrong {
    Engine(Sabotage),
    NoDoublewrite,
    Disk(Lie),
}

/// Seeds that are tried: luck may save some runs, not all.
const SEEDS: usize = 24;
/// For each of them, on a busy machine, too.
const PATIENCE: Duration = Duration::from_secs(600);
/// Moments of each run that are tried; 0: all, where little time passes between the wrong and the right.
fn moments(wrong: Wrong) -> usize {
    use Sabotage::{FileRemovedBeforeCommit, OverflowFreedTwice, PurgedTooEarly};
    match wrong {
        Wrong::Engine(FileRemovedBeforeCommit | OverflowFreedTwice) => 0,
        Wrong::Engine(PurgedTooEarly) => 10,
        _ => 120,
    }
}

/// What concerns the writing of pages needs more of them than the pool holds, so that they are written at any
/// time.
fn config(wrong: Wrong) -> Config {
    use Sabotage::{
        CheckpointTooFar, FileRemovedBeforeCommit, HoleOverPage, LogRecycledTooEarly,
        LooseTreeForgotten, OverflowFreedTwice, PurgedTooEarly, TornPagesKept, WriteAheadForgotten,
    };
    let config = match wrong {
        Wrong::Engine(
            CheckpointTooFar | LogRecycledTooEarly | TornPagesKept | WriteAheadForgotten,
        )
        | Wrong::NoDoublewrite
        | Wrong::Disk(_) => Config {
            rows: 500,
            steps_per_phase: 100,
            ..Config::new(300)
        },
        Wrong::Engine(FileRemovedBeforeCommit) => Config {
            rows: 2,
            ddl: 20,
            ..Config::new(60)
        },
        Wrong::Engine(HoleOverPage) => Config {
            page_size: 8192,
            buffer_pool_bytes: 2 << 20,
            rows: 100,
            ..Config::new(300)
        },
        Wrong::Engine(LooseTreeForgotten) => Config {
            rows: 40,
            ddl: 20,
            ..Config::new(100)
        },
        Wrong::Engine(OverflowFreedTwice) => Config {
            rows: 10,
            spread: 16,
            transactions: 3,
            ..Config::new(400)
        },
        // Views have to be older than what purge has come to.
        Wrong::Engine(PurgedTooEarly) => Config {
            rows: 60,
            spread: 100,
            transactions: 6,
            ..Config::new(3000)
        },
        Wrong::Engine(_) => Config {
            rows: 40,
            steps_per_phase: 100,
            ..Config::new(300)
        },
    };
    match wrong {
        Wrong::Engine(sabotage) => Config {
            sabotage: Some(sabotage),
            ..config
        },
        Wrong::NoDoublewrite => Config {
            doublewrite: false,
            ..config
        },
        Wrong::Disk(_) => config,
    }
}

fn disk(wrong: Wrong) -> SimDisk {
    let disk = SimDisk::default();
    if let Wrong::Disk(lie) = wrong {
        disk.lie(lie);
    }
    disk
}

/// What is being tried: with which seed, and since when.
type Running = Mutex<Vec<(Wrong, usize, Instant)>>;

/// A line of the table.
fn noticed(wrong: Wrong, running: &Running) -> Option<String> {
    let begun = Instant::now();
    let name = match wrong {
        Wrong::Engine(sabotage) => format!("{sabotage:?}"),
        Wrong::NoDoublewrite => "doublewrite off".into(),
        Wrong::Disk(lie) => format!("disk: {lie:?}"),
    };
    let mut recoveries = 0;
    for seed in 1..=SEEDS {
        running.lock().push((wrong, seed, Instant::now()));
        let searched = search(&config(wrong), &|| disk(wrong), moments(wrong));
        let is_this = |(other, ..): &(Wrong, usize, Instant)| *other == wrong;
        running.lock().retain(|tried| !is_this(tried));
        let (by, why) = match searched {
            Ok(tried) => {
                recoveries += tried.recoveries;
                continue;
            }
            Err(Failure::Workload(why)) => ("the workload", why),
            Err(Failure::Crash(finding)) => {
                recoveries += finding.tried.recoveries;
                ("a crash", finding.why.clone())
            }
        };
        let why: String = why
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(70)
            .collect();
        let seconds = begun.elapsed().as_secs_f64();
        return Some(format!(
            "| {name} | {by}: {why} | {recoveries} | {seed} | {seconds:.1} s |"
        ));
    }
    None
}

/// Ends the process if something never comes to its end, after saying what that was and where the threads
/// are.
fn watch(running: &Running, ended: mpsc::Receiver<()>) {
    while ended.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
        let late = |(.., begun): &&(Wrong, usize, Instant)| begun.elapsed() > PATIENCE;
        let Some((wrong, seed, _)) = running.lock().iter().find(late).copied() else {
            continue;
        };
        // What `eprintln` says would be lost with the process.
        let say = |text: &str| drop(std::io::stderr().write_all(text.as_bytes()));
        say(&format!(
            "{wrong:?}, workload {seed}: no end in {PATIENCE:?}\n"
        ));
        let pid = std::process::id().to_string();
        let gdb = ["--batch", "-ex", "thread apply all backtrace", "-p", &pid];
        match std::process::Command::new("gdb").args(gdb).output() {
            Ok(output) => say(&String::from_utf8_lossy(&output.stdout)),
            Err(e) => say(&format!("gdb could say where its threads are, but: {e}\n")),
        }
        std::process::abort();
    }
}

fn all_are_noticed(all: &[Wrong]) {
    let (left, lines) = (Mutex::new(all.to_vec()), Mutex::new(Vec::new()));
    let running = Running::default();
    let (at_work, ended) = mpsc::channel();
    std::thread::scope(|s| {
        s.spawn(|| watch(&running, ended));
        // Most of them wait for the disk or for purge at times.
        for at_work in [at_work.clone(), at_work.clone(), at_work] {
            let (left, lines, running) = (&left, &lines, &running);
            s.spawn(move || {
                let _at_work: mpsc::Sender<()> = at_work;
                while let Some(wrong) = left.lock().pop() {
                    println!("{wrong:?} …");
                    let line = noticed(wrong, running);
                    println!("{wrong:?}: {line:?}");
                    lines.lock().push((format!("{wrong:?}"), line));
                }
            });
        }
    });
    let mut lines = lines.into_inner();
    lines.sort();
    println!("| what is wrong | noticed by | recoveries | runs | time |\n|---|---|---|---|---|");
    for line in lines.iter().filter_map(|(_, line)| line.as_ref()) {
        println!("{line}");
    }
    let unnoticed: Vec<_> = lines.iter().filter(|(_, line)| line.is_none()).collect();
    assert!(unnoticed.is_empty(), "nobody noticed: {unnoticed:?}");
}

#[test]
fn every_sabotage_is_noticed() {
    let mut all = Sabotage::OF_CRASHES.map(Wrong::Engine).to_vec();
    all.push(Wrong::NoDoublewrite);
    let lies = ["vlog", "vdt", "ctl"].map(|files| Lie::Sync { files });
    all.extend(lies.map(Wrong::Disk));
    all.push(Wrong::Disk(Lie::SyncDir));
    if let Ok(only) = std::env::var("VARVE_SABOTAGE") {
        all.retain(|wrong| format!("{wrong:?}").contains(&only));
    }
    all_are_noticed(&all);
}

/// A finding is made smaller in both respects, and comes again from what was kept.
#[test]
fn a_finding_is_made_smaller_and_played_again() {
    let find = |config: &Config| match search(config, &SimDisk::default, 100).err()? {
        Failure::Crash(finding) => Some(Failure::Crash(finding)),
        Failure::Workload(why) => panic!("before any crash: {why}"),
    };
    // What is acknowledged too early is mostly durable a moment later: not every run is ended in between.
    let (config, first) = (100..150)
        .find_map(|seed| {
            let config = Config {
                rows: 30,
                sabotage: Some(Sabotage::AcknowledgedTooEarly),
                ..Config::new(seed)
            };
            find(&config).map(|first| (config, first))
        })
        .expect("an acknowledged change is lost");
    // It could go on for long, but this is small enough.
    let enough = config.steps / 2;
    let steps = |config: &Config| (config.only.as_ref()).map_or(config.steps, |only| only.len());
    let mut smallest = config.steps;
    let find_smaller = |config: &Config| {
        let found = (smallest >= enough).then(|| find(config)).flatten();
        if found.is_some() {
            smallest = steps(config);
        }
        found
    };
    let (smaller, failure) = shrink(&config, first, PATIENCE, find_smaller);
    assert!(
        steps(&smaller) < enough,
        "{} steps are left",
        steps(&smaller)
    );
    let Failure::Crash(finding) = failure else {
        panic!("only crashes are looked for");
    };
    let kept = finding.keep();
    println!("{finding}\n{kept}");
    let again = kept.replay().expect_err("it is still lost");
    println!("played again: {again}");
    kept.forget();
}

/// An entry without a row was waited for without end.
#[test]
fn an_entry_without_its_row_is_damage() {
    let config = Config {
        disk: Some(SimDisk::default()),
        sabotage: Some(Sabotage::EntryLeftByRollback),
        ..Config::new(0)
    };
    let db = config.open(Path::new(SIM_DIR)).unwrap();
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("name", ColumnType::i64())
        .primary(&["id"])
        .unique("by_name", &["name"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(RepeatableRead);
    table.insert(&mut trx, values![1, 7]).unwrap();
    trx.rollback().unwrap();
    let mut trx = db.begin(RepeatableRead);
    match table.insert(&mut trx, values![2, 7]) {
        Err(Error::Corrupt { expected, .. }) => assert!(expected.contains("index by_name")),
        other => panic!("{other:?}"),
    }
}

/// FAULT-7. The same sync that stops a database (WAL-4), tried again, acknowledges what is lost.
#[test]
fn a_failed_sync_that_is_tried_again_is_noticed() {
    for sabotage in [None, Some(Sabotage::FailedSyncRetried)] {
        let disk = SimDisk::default();
        let config = Config {
            disk: Some(disk.clone()),
            sabotage,
            ..Config::new(0)
        };
        let open = |config: &Config| config.open(Path::new(SIM_DIR));
        let db = open(&config).unwrap();
        let def = TableDef::new("a/t").column("id", ColumnType::i64());
        let table = db.create_table(&def.primary(&["id"])).unwrap();
        let insert = |id: i64| {
            let mut trx = db.begin(RepeatableRead);
            table.insert(&mut trx, values![id])?;
            trx.commit()
        };
        insert(1).unwrap();
        let fault = Fault::always(Operation::Sync, DiskFailure::Io);
        disk.inject(fault.on(".vlog").limited(0, 1));
        let acknowledged = insert(2);
        db.crash();
        let mut points = CrashPoints::new(disk.journal());
        points.advance(disk.operations());
        let mut rng = SmallRng::seed_from_u64(1);
        let is_lost = |_| {
            let config = Config {
                disk: Some(SimDisk::new(points.crash(&mut rng))),
                ..config.clone()
            };
            let db = open(&config).unwrap();
            let mut trx = db.begin(RepeatableRead);
            let row = db.table("a/t").unwrap().get(&mut trx, values![2]);
            row.unwrap().is_none()
        };
        assert!((0..50).any(is_lost), "the sync failed for nothing");
        match sabotage {
            None => assert!(matches!(acknowledged, Err(Error::Poisoned { .. })), "WAL-4"),
            Some(_) => acknowledged.unwrap(),
        }
    }
}

fn isolation_cases() -> [(Sabotage, Isolation); 5] {
    [
        (Sabotage::ViewSeesUnfinished, ReadCommitted),
        (Sabotage::ViewMoves, RepeatableRead),
        (Sabotage::GapsOpen, RepeatableRead),
        (Sabotage::SharedLocksForgotten, Serializable),
        (Sabotage::RangesIgnored, Serializable),
    ]
}

/// Histories at the weakest level that forbids what goes wrong, of lists and of registers.
#[test]
fn broken_isolation_is_noticed() {
    let shapes = [lists::Shape::Lists, lists::Shape::Registers];
    let cases = isolation_cases().into_iter();
    for ((sabotage, level), shape) in cases.flat_map(|case| shapes.map(|shape| (case, shape))) {
        let notices = |seed| {
            let plan = lists::Plan::new(level, seed);
            let options = Options {
                sabotage: Some(sabotage),
                ..plan.options
            };
            let run = || {
                lists::run(lists::Plan {
                    options,
                    shape,
                    ..plan
                })
            };
            let noticed = match catch_unwind(AssertUnwindSafe(run)) {
                Ok((_, found)) => found.first().map(|anomaly| format!("{:?}", anomaly.kind)),
                Err(_) => Some("a session noticed it".to_string()),
            };
            noticed
                .inspect(|how| println!("{sabotage:?}, {shape:?}: {how} in history {seed}"))
                .is_some()
        };
        assert!(
            (1..20).any(notices),
            "nobody noticed: {sabotage:?}, {shape:?}"
        );
    }
}

/// ENC-2. A bit is turned of an encrypted page, by somebody who makes its checksum right.
#[test]
fn a_tag_that_is_not_checked_is_noticed() {
    const TEXT: &str = "a text that is found in the page";
    let dir = tempfile::tempdir().unwrap();
    let open = |sabotage| {
        let options = Options {
            sabotage,
            encryption_keys: Some(Arc::new(Keys(1))),
            ..Options::default()
        };
        Database::open(dir.path(), options).unwrap()
    };
    let db = open(None);
    for (name, mode) in [
        ("a/t", EncryptionMode::On),
        ("a/clear", EncryptionMode::Off),
    ] {
        let def = TableDef::new(name).column("id", ColumnType::i64());
        let mut def = def.column("text", ColumnType::text(100)).primary(&["id"]);
        def.encryption.mode = mode;
        let table = db.create_table(&def).unwrap();
        let mut trx = db.begin(RepeatableRead);
        table.insert(&mut trx, values![1, TEXT]).unwrap();
        trx.commit().unwrap();
    }
    db.close().unwrap();
    // Where it is in clear.
    let file = |name: &str| dir.path().join(name);
    let clear = fs::read(file("a/clear.vdt")).unwrap();
    let is_text = |bytes: &[u8]| bytes == TEXT.as_bytes();
    let at = clear.windows(TEXT.len()).position(is_text).unwrap();
    let mut bytes = fs::read(file("a/t.vdt")).unwrap();
    let page_size = Options::default().page_size as usize;
    let (no, space) = (at / page_size, <[u8; 4]>::try_from(&bytes[80..84]).unwrap());
    let page = &mut bytes[no * page_size..][..page_size];
    page[at % page_size] ^= 1;
    let address = [space, (no as u32).to_le_bytes()].concat();
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&address), &page[4..]);
    page[..4].copy_from_slice(&checksum.to_le_bytes());
    fs::write(file("a/t.vdt"), &bytes).unwrap();
    let read = |sabotage| -> Result<String> {
        let db = open(sabotage);
        let table = db.table("a/t")?;
        let row = table.get(&mut db.begin(RepeatableRead), values![1])?;
        row.expect("a row").get::<String>("text")
    };
    let refused = read(None);
    assert!(matches!(refused, Err(Error::NoKey { .. })), "{refused:?}");
    let changed = read(Some(Sabotage::TagNotChecked)).unwrap();
    assert_ne!(changed, TEXT);
}

/// A table with one row, in a database that was made without doing anything wrong.
fn one_row(dir: &Path) {
    let db = Database::open(dir, Options::default()).unwrap();
    let def = TableDef::new("a/t").column("id", ColumnType::i64());
    let def = def.column("n", ColumnType::i64()).primary(&["id"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(RepeatableRead);
    table.insert(&mut trx, values![1, 1]).unwrap();
    trx.commit().unwrap();
    db.close().unwrap();
}

/// Runs it in a thread; whether it comes to its end. What is never woken waits as long as anybody does: if
/// something is wrong, a short wait says so.
fn comes_to_its_end(is_sabotaged: bool, run: impl FnOnce() + Send + 'static) -> bool {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        run();
        let _ = tell.send(());
    });
    let patience = match is_sabotaged {
        true => Duration::from_secs(5),
        false => PATIENCE,
    };
    told.recv_timeout(patience).is_ok()
}

/// Waits for something that another thread does.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn open_wrong(dir: &Path, disk: Arc<dyn Disk>, sabotage: Option<Sabotage>) -> Database {
    let options = Options {
        lock_wait_timeout: Duration::from_secs(3600),
        sabotage,
        ..Options::default()
    };
    Database::open_on(disk, dir, options).unwrap()
}

#[test]
fn a_lock_that_wakes_nobody_is_noticed() {
    for sabotage in [None, Some(Sabotage::LockWakeForgotten)] {
        let dir = tempfile::tempdir().unwrap();
        one_row(dir.path());
        let db = open_wrong(dir.path(), Arc::new(RealDisk), sabotage);
        let table = db.table("a/t").unwrap();
        let mut first = db.begin(RepeatableRead);
        table
            .set(&mut first, values![1], &[("n", 2.into())])
            .unwrap();
        let mut second = db.begin(RepeatableRead);
        let kill = second.interrupt_handle();
        let waiter = {
            let table = table.clone();
            move || drop(table.get_for_update(&mut second, values![1]))
        };
        let locks = db.clone();
        let ended = std::thread::spawn(move || comes_to_its_end(sabotage.is_some(), waiter));
        until("the second one waits", || {
            locks.core().locks.stats().current_waits == 1
        });
        first.commit().unwrap();
        assert_eq!(ended.join().unwrap(), sabotage.is_none(), "{sabotage:?}");
        kill.interrupt();
    }
}

#[test]
fn a_group_that_wakes_nobody_is_noticed() {
    for sabotage in [None, Some(Sabotage::CommitWakeForgotten)] {
        let dir = tempfile::tempdir().unwrap();
        one_row(dir.path());
        let disk = DyingDisk::new();
        let db = open_wrong(dir.path(), Arc::new(disk.clone()), sabotage);
        let core = db.core().clone();
        let run = {
            let db = db.clone();
            move || {
                let table = db.table("a/t").unwrap();
                let (tell, syncing) = mpsc::channel();
                let (go_on, held) = mpsc::sync_channel::<()>(0);
                let held = Mutex::new(held);
                disk.before(move |operation, path| {
                    if operation == "sync" && path.extension().is_some_and(|e| e == "vlog") {
                        let _ = tell.send(());
                        let _ = held.lock().recv();
                    }
                });
                let insert = |id: i64| {
                    let mut trx = db.begin(RepeatableRead);
                    table.insert(&mut trx, values![id, id]).unwrap();
                    trx.commit().unwrap();
                };
                std::thread::scope(|s| {
                    s.spawn(|| insert(2));
                    syncing.recv().unwrap();
                    let follows = || db.core().log.counters().sync_follows.load(Relaxed);
                    let before = follows();
                    s.spawn(|| insert(3));
                    until("the second one follows", || follows() > before);
                    drop(go_on);
                });
            }
        };
        let ended = comes_to_its_end(sabotage.is_some(), run);
        assert_eq!(ended, sabotage.is_none(), "{sabotage:?}");
        // Wakes whoever sleeps.
        core.fail("the test is over");
    }
}

/// BUF-2.
#[test]
fn a_page_that_is_changed_without_its_latch_is_noticed() {
    for sabotage in [None, Some(Sabotage::LatchForgotten)] {
        let dir = tempfile::tempdir().unwrap();
        one_row(dir.path());
        let change = || {
            let db = open_wrong(dir.path(), Arc::new(RealDisk), sabotage);
            let mut trx = db.begin(RepeatableRead);
            let table = db.table("a/t")?;
            table.set(&mut trx, values![1], &[("n", 2.into())])?;
            trx.commit()?;
            db.core().check_usable()
        };
        let changed = catch_unwind(AssertUnwindSafe(change));
        match (sabotage, changed) {
            (None, changed) => changed.unwrap().unwrap(),
            (Some(_), Ok(changed)) => panic!("nobody noticed: {changed:?}"),
            (Some(_), Err(panic)) => {
                let why = panic.downcast_ref::<String>().expect("a message");
                assert!(why.contains("is changed without its latch"), "{why}");
            }
        }
    }
}
