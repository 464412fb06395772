//! Every operation of the disk fails once, or from then on: reading, writing, syncing, extending, opening,
//! creating, removing and renaming files, with an I/O error, for lack of space, or because too many files are
//! open; or it moves fewer bytes than it was asked to.
//!
//! What could break here: an error that does not say which file; a statement that leaves half of itself; a
//! sync that fails and is tried again as if that helped (FAULT-7); a database that goes on though it does not
//! know what it has written; one that does not open again. After the fault the database either goes on and is
//! right, or has stopped. Then the power goes, or it is closed, and it is opened without faults: what was
//! acknowledged is there, and nothing else, but what was being committed when it failed may be there or not,
//! whole.
//!
//! `VARVE_FAULT_POINTS` is the number of operations tried of each script and kind of failure (0: all),
//! `VARVE_FAULT_SEED` which.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::internals::io::Disk;
use varve::{
    Database, Error, HistoryOptions, Isolation, Options, RedefinitionWaits, Result, Transaction,
};
use varve_sim::{CrashPoints, Failure, Fault, Image, Operation, SimDisk};

#[path = "support/fault_steps.rs"]
mod fault_steps;

use fault_steps::{
    Change, End, State, Step, definition, script, script_of_an_old_view, script_of_change_buffers,
    state, state_to,
};

const DIR: &str = "/data/db";

fn open(disk: &SimDisk) -> Result<Database> {
    let heals = disk.clone();
    let options = Options {
        page_size: 4096,
        buffer_pool_bytes: 1 << 20,
        redo_capacity_bytes: 4 << 20,
        log_buffer_bytes: 2 << 20,
        undo_tablespaces: 1,
        lock_wait_timeout: Duration::from_millis(1),
        // Purge goes on behind all views.
        history: HistoryOptions {
            delay: Duration::ZERO,
            ..HistoryOptions::default()
        },
        // A rollback waits for space until there is some (RB-1).
        logger: Some(Arc::new(move |_, message| {
            if message.contains("a rollback waits for space") {
                heals.heal();
            }
        })),
        ..Options::default()
    };
    Database::open_on(Arc::new(disk.clone()), Path::new(DIR), options)
}

/// A transaction with a view, and what it is to see.
type OldView = (Transaction, State);

fn look(db: &Database, state: &State) -> OldView {
    let mut trx = db.begin(Isolation::RepeatableRead);
    trx.take_snapshot();
    (trx, state.clone())
}

fn look_again(db: &Database, view: Option<OldView>) -> Result<()> {
    let (mut trx, seen) = view.expect("it was opened");
    // So that it reads what was copied, unless that fails.
    db.wait_for_purge(Duration::from_secs(1));
    assert!(
        state_to(db, &mut trx)? == seen,
        "an old view changed its mind"
    );
    trx.commit()
}

/// A database that was closed, and what it holds.
fn base() -> (Image, State) {
    let disk = SimDisk::default();
    let db = open(&disk).unwrap();
    let mut state = State::new();
    for (name, rows) in [("a/t", 500), ("a/u", 40)] {
        let put = |id| Change::Put(id, id * 10, if id % 50 == 0 { 6_000 } else { 800 });
        for step in [
            Step::Create(name),
            Step::Transaction(name, (0..rows).map(put).collect(), End::Commit),
        ] {
            step.run(&db, &state).unwrap();
            step.apply(&mut state);
        }
    }
    db.close().unwrap();
    (disk.image(), state)
}

/// Says which file, or which tablespace's page, could not be read or written.
fn is_clear(error: &Error) -> bool {
    let names_a_file = |text: &str| {
        ["/", ".vdt", ".vlog", ".vdw", "varve.ctl", "tablespace "]
            .iter()
            .any(|name| text.contains(name))
    };
    match error {
        Error::Io { .. } => true,
        Error::NoSpace { .. } | Error::Poisoned { .. } => names_a_file(&error.to_string()),
        _ => false,
    }
}

/// How a run of the script ended.
struct Ended {
    db: Option<Database>,
    /// One of these is what the database holds.
    may_hold: Vec<State>,
    /// The step that failed, and how.
    failed: Option<(String, Error)>,
}

/// Runs the script until a step fails.
fn run(disk: &SimDisk, script: &[Step], mut state: State) -> Ended {
    let mut db = match open(disk) {
        Ok(db) => db,
        Err(e) => {
            return Ended {
                db: None,
                may_hold: vec![state],
                failed: Some(("open".into(), e)),
            };
        }
    };
    let mut view = None;
    for step in script {
        let result = match step {
            Step::Look => {
                view = Some(look(&db, &state));
                Ok(())
            }
            Step::LookAgain => look_again(&db, view.take()),
            Step::Reopen => {
                let reopened = db.close().and_then(|()| open(disk));
                match reopened {
                    Ok(again) => {
                        db = again;
                        Ok(())
                    }
                    Err(e) => {
                        return Ended {
                            db: None,
                            may_hold: vec![state],
                            failed: Some(("reopen".into(), e)),
                        };
                    }
                }
            }
            step => step.run(&db, &state),
        };
        let mut after = state.clone();
        step.apply(&mut after);
        if let Err(e) = result {
            return Ended {
                db: Some(db),
                may_hold: vec![state, after],
                failed: Some((format!("{step:?}"), e)),
            };
        }
        state = after;
    }
    Ended {
        db: Some(db),
        may_hold: vec![state],
        failed: None,
    }
}

/// Whether garbage may be left in tables: purge passes over one that can't be used (REC-3).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Garbage {
    None,
    Some,
}

fn check(db: &Database, may_hold: &[State], garbage: Garbage) -> Result<(), String> {
    // What is rolled back has locks, for which nobody here waits.
    if !db.wait_for_recovery(Duration::from_secs(60)) {
        return Err("recovery does not come to an end".into());
    }
    for xid in db.prepared() {
        db.rollback_prepared(&xid).map_err(|e| e.to_string())?;
    }
    let found = state(db).map_err(|e| format!("it can't be read: {e}"))?;
    if !may_hold.contains(&found) {
        let count = |state: &State| {
            let rows = state.iter().map(|(name, rows)| (name.clone(), rows.len()));
            rows.collect::<Vec<_>>()
        };
        let (found, wanted) = (count(&found), Vec::from_iter(may_hold.iter().map(count)));
        return Err(format!("it holds {found:?} instead of {wanted:?}"));
    }
    if !db.wait_for_purge(Duration::from_secs(60)) {
        return Err("purge does not come to an end".into());
    }
    db.core().undo.check().map_err(|e| e.to_string())?;
    for name in db.tables().unwrap() {
        let table = db.table(&name).map_err(|e| e.to_string())?;
        let report = db.check_table(&table).map_err(|e| e.to_string())?;
        let left = report.old_overflow_pages + report.deleted_rows;
        if !report.errors.is_empty() || left > 0 && garbage == Garbage::None {
            return Err(format!("{name}: {report:?}"));
        }
    }
    Ok(())
}

/// What happened in one run with a fault.
#[derive(Default, Debug)]
struct Seen {
    runs: usize,
    unharmed: usize,
    refused: usize,
    stopped: usize,
}

/// The table can't be used because of its file.
fn refused(db: &Database, name: &str) -> bool {
    matches!(
        db.table(name).map(drop),
        Err(Error::Io { .. } | Error::NoSpace { .. })
    )
}

/// Runs the script with a fault, and judges what is left.
fn judge(
    image: &Image,
    script: &[Step],
    state: &State,
    fault: Fault,
    rng: &mut SmallRng,
    seen: &mut Seen,
) -> Result<(), String> {
    let disk = SimDisk::new(image.clone());
    disk.inject(fault);
    let ended = run(&disk, script, state.clone());
    disk.heal();
    seen.runs += 1;
    let may_hold = &ended.may_hold;
    let told = |(step, e): &(String, Error)| format!("{step} failed: {e}");
    let context = (ended.failed.as_ref()).map_or("nothing failed".into(), told);
    if let Some((_, e)) = &ended.failed
        && !is_clear(e)
    {
        return Err(format!("{context}, which does not say where"));
    }
    let why_stopped = |db: &Database| db.core().check_usable().err();
    let mut stopped = ended.db.as_ref().and_then(why_stopped);
    match (&ended.failed, &stopped) {
        (_, Some(why)) if !is_clear(why) => return Err(format!("{why}: does not say where")),
        (_, Some(_)) => seen.stopped += 1,
        (Some(_), None) => seen.refused += 1,
        (None, None) => seen.unharmed += 1,
    }
    let is_broken = |db: &Database| may_hold.iter().all(|s| s.keys().any(|n| refused(db, n)));
    let mut garbage = Garbage::None;
    let mut after_crash = true;
    if let Some(db) = ended.db {
        if is_broken(&db) {
            garbage = Garbage::Some;
        } else if stopped.is_none() {
            // It goes on, and is right, once the next statement has taken away what could not be.
            let names = db.tables().unwrap_or_default();
            if names.iter().any(|name| name.contains("#rebuild-")) {
                drop(db.create_table(&definition("b/next")));
                let _ = db.drop_table("b/next");
            }
            let alive = check(&db, may_hold, garbage);
            // A background thread may have met the fault just before the disk was healed.
            stopped = why_stopped(&db);
            match (alive, &stopped) {
                (Err(_), Some(late)) if is_clear(late) => {}
                (alive, _) => {
                    alive.map_err(|why| format!("{context}; then, without faults, {why}"))?;
                }
            }
        }
        if stopped.is_none() && rng.random_bool(0.5) {
            // Here, too, a background thread may have met it before.
            match db.close() {
                Ok(()) => after_crash = false,
                Err(late) if is_clear(&late) => {}
                Err(e) => return Err(format!("{context}; then close failed: {e}")),
            }
        } else {
            db.crash();
        }
    }
    let journal = disk.journal();
    let mut points = CrashPoints::new(journal.clone());
    points.advance(journal.len());
    let draw = points.draw(rng);
    let judged = |state: &varve_sim::CrashState| {
        let disk = SimDisk::new(points.image(state));
        let db = open(&disk).map_err(|e| format!("it does not open: {e}"))?;
        let judged = check(&db, may_hold, garbage);
        db.crash();
        judged
    };
    judged(&draw).map_err(|why| {
        let draw = points.shrink(&draw, |state| judged(state).is_err());
        let how = match after_crash {
            true => "a crash",
            false => "closing it",
        };
        format!("{context}; after {how}, {}, {why}", points.describe(&draw))
    })
}

/// Operations that the script makes without a fault, by counting what can be let through before one strikes.
fn operations(image: &Image, script: &[Step], state: &State, failure: Failure) -> u64 {
    let (mut low, mut high) = (0, 1 << 20);
    while low < high {
        let middle = (low + high) / 2;
        let disk = SimDisk::new(image.clone());
        disk.inject(Fault::always(Operation::Any, failure).limited(middle, 1));
        let ended = run(&disk, script, state.clone());
        let struck = disk.faults_struck() > 0;
        if let Some(db) = ended.db {
            db.crash();
        }
        match struck {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    let parsed = value.parse();
    Some(parsed.unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}

/// Each failure at `usual` operations of the script, or as many as the environment says.
fn try_faults(image: &Image, script: &[Step], state: &State, usual: u64) {
    let seed = number("VARVE_FAULT_SEED").unwrap_or_else(rand::random);
    println!("VARVE_FAULT_SEED={seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let kinds = [
        (Failure::Io, 1),
        (Failure::Io, u64::MAX),
        (Failure::NoSpace, 1),
        (Failure::NoSpace, u64::MAX),
        (Failure::TooManyFiles, u64::MAX),
        (Failure::Short, u64::MAX),
    ];
    let mut found = Vec::new();
    for (failure, times) in kinds {
        let begun = std::time::Instant::now();
        let all = operations(image, script, state, failure);
        let points: Vec<u64> = match number("VARVE_FAULT_POINTS").unwrap_or(usual) {
            _ if failure == Failure::Short => vec![0],
            0 => (0..all).collect(),
            n => (0..n.min(all)).map(|_| rng.random_range(0..all)).collect(),
        };
        let mut seen = Seen::default();
        for at in points {
            let fault = Fault::always(Operation::Any, failure).limited(at, times);
            let context = format!("{failure:?} at operation {at}, {times} times");
            let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                judge(image, script, state, fault, &mut rng, &mut seen)
            }));
            match judged {
                Ok(Ok(())) => {}
                Ok(Err(why)) => found.push(format!("{context}: {why}")),
                Err(_) => found.push(format!("{context}: it panicked")),
            }
        }
        println!(
            "{failure:?}, {times} times: {all} operations, {seen:?}, {:.1} s",
            begun.elapsed().as_secs_f64()
        );
        assert!(found.is_empty(), "seed {seed}: {found:#?}");
        match failure {
            Failure::Short => assert_eq!(seen.unharmed, seen.runs),
            _ => assert!(seen.stopped + seen.refused > 0, "{seen:?}"),
        }
    }
}

#[test]
fn any_operation_of_a_run_may_fail() {
    let (image, state) = base();
    try_faults(&image, &script(), &state, 100);
}

#[test]
fn any_operation_of_a_creation_may_fail() {
    let script = [Step::Create("a/t")];
    try_faults(&Image::new(), &script, &State::new(), 40);
}

/// CTL-2: a process that dies while it creates a database leaves names that are not durable: of the
/// directory, which the next one finds, or the mark that says that the creation is not over, which the next
/// one does not find. When the power went after that one had used the database, the database was gone.
#[test]
fn what_an_interrupted_creation_did_to_names_becomes_durable() {
    let open = |disk: &SimDisk| {
        let options = Options {
            page_size: 4096,
            buffer_pool_bytes: 1 << 20,
            redo_capacity_bytes: 4 << 20,
            log_buffer_bytes: 2 << 20,
            doublewrite: false,
            logger: Some(Arc::new(|_, _| {})),
            ..Options::default()
        };
        Database::open_on(Arc::new(disk.clone()), Path::new(DIR), options)
    };
    let mut rng = SmallRng::seed_from_u64(1);
    let mut tried = 0;
    for n in 0.. {
        let disk = SimDisk::default();
        disk.inject(Fault::always(Operation::Names, Failure::Io).limited(n, 1));
        if open(&disk).map(drop).is_ok() {
            break;
        }
        disk.heal();
        // Nothing else happens to the directory's names.
        disk.inject(Fault::always(Operation::Any, Failure::NoSpace).on("truncate.spare"));
        open(&disk).unwrap().crash();
        let journal = disk.journal();
        let mut points = CrashPoints::new(journal.clone());
        points.advance(journal.len());
        for _ in 0..10 {
            let disk = SimDisk::new(points.crash(&mut rng));
            let exists = |name| disk.exists(&Path::new(DIR).join(name)).unwrap();
            assert!(exists("varve.ctl") && !exists("varve.creating"), "{n}");
        }
        tried += 1;
    }
    assert!(tried > 15, "{tried}");
}

/// A process that dies while it drops a table leaves the removal of the file not durable. The next one finds
/// no file; when the power went after that, the file was there again, and no table's.
#[test]
fn what_an_interrupted_drop_did_to_names_becomes_durable() {
    let (image, _) = base();
    let disk = SimDisk::new(image);
    let file = Path::new(DIR).join("a/t.vdt");
    let db = open(&disk).unwrap();
    let removed_not_synced = Fault::always(Operation::Names, Failure::Io);
    disk.inject(removed_not_synced.on("/data/db/a").limited(1, 1));
    db.drop_table("a/t").unwrap();
    assert!(disk.faults_struck() == 1 && !disk.exists(&file).unwrap());
    disk.heal();
    db.crash();
    open(&disk).unwrap().crash();
    let journal = disk.journal();
    let mut points = CrashPoints::new(journal.clone());
    points.advance(journal.len());
    let mut rng = SmallRng::seed_from_u64(1);
    for _ in 0..10 {
        let disk = SimDisk::new(points.crash(&mut rng));
        assert!(!disk.exists(&file).unwrap());
    }
}

/// REC-4: a file that can't be opened for a moment was taken for one that is gone. What redo had for it was
/// passed over, and the table was lost for good.
#[test]
fn a_file_that_is_refused_for_a_moment_is_not_given_up() {
    let (image, mut state) = base();
    let disk = SimDisk::new(image);
    let refuse = |file: &str| {
        let fault = Fault::always(Operation::Open, Failure::Io);
        disk.inject(fault.on(file).limited(0, 1));
    };
    // After an orderly end there is nothing to apply: others can be used, and it when it can be opened.
    refuse("a/t.vdt");
    let db = open(&disk).unwrap();
    let why = db.table("a/t").map(drop).unwrap_err();
    assert!(
        matches!(&why, Error::Io { path, .. } if path.ends_with("a/t.vdt")),
        "{why}"
    );
    db.table("a/u").unwrap();
    db.table("a/t").unwrap();
    db.close().unwrap();

    let db = open(&disk).unwrap();
    let step = Step::Transaction("a/t", vec![Change::Put(1, 1, 100)], End::Commit);
    step.run(&db, &state).unwrap();
    step.apply(&mut state);
    db.crash();
    for file in ["a/t.vdt", "undo_001.vdt", "system.vdt"] {
        refuse(file);
        let why = open(&disk).map(drop).unwrap_err();
        assert!(
            matches!(&why, Error::Io { path, .. } if path.ends_with(file)),
            "{why}"
        );
    }
    let db = open(&disk).unwrap();
    check(&db, &[state], Garbage::None).unwrap();
    db.close().unwrap();
}

/// The commit of a RENAME could not be made durable: the table was opened a second time under its new name,
/// which ended in an assertion (TAB-1).
#[test]
fn a_rename_that_may_have_failed_opens_nothing_twice() {
    let (image, _) = base();
    let disk = SimDisk::new(image);
    let db = open(&disk).unwrap();
    db.table("a/t").unwrap();
    disk.inject(Fault::always(Operation::Sync, Failure::Io).on("redo"));
    db.rename_table("a/t", "a/other").unwrap_err();
    assert!(disk.faults_struck() > 0);
    let why = db.table("a/other").err().expect("nobody knows");
    assert!(matches!(why, Error::Poisoned { .. }), "{why}");
    db.crash();
}

/// A rebuild commits before its file gets the table's name: if that fails the statement has not, or its
/// caller would go by the old definition.
#[test]
fn a_rebuild_that_is_committed_has_not_failed() {
    let (image, mut state) = base();
    let disk = SimDisk::new(image);
    let db = open(&disk).unwrap();
    let def = definition("a/t").primary(&["k"]);
    let waits = RedefinitionWaits::default();
    let mut prepared = db.prepare_rebuild(&def, waits).unwrap();
    prepared.build(&mut |_, _| {}).unwrap();
    disk.inject(Fault::always(Operation::Names, Failure::Io).on("#rebuild"));
    prepared.commit(&mut |_, _| {}).unwrap();
    assert!(disk.faults_struck() > 0);
    disk.heal();
    let step = Step::Transaction("a/t", vec![Change::Put(9000, 1, 100)], End::Commit);
    step.run(&db, &state).unwrap();
    step.apply(&mut state);
    check(&db, &[state.clone()], Garbage::None).unwrap();
    db.close().unwrap();
    let db = open(&disk).unwrap();
    assert!(db.wait_for_recovery(Duration::from_secs(60)));
    assert_eq!(db.table("a/t").unwrap().def().primary.parts[0].column, 1);
    check(&db, &[state], Garbage::None).unwrap();
    db.close().unwrap();
}

/// Whatever fails under it, an old view sees what it saw, or an error.
#[test]
fn each_operation_under_an_old_view_fails() {
    let (image, state) = base();
    try_faults(&image, &script_of_an_old_view(), &state, 16);
}

/// Whatever fails while entries are buffered or merged, none is lost, and none is there twice.
#[test]
fn each_operation_under_change_buffers_fails() {
    let (image, state) = base();
    try_faults(&image, &script_of_change_buffers(), &state, 50);
}

/// A change buffer that could not be read for a moment was out of use, and its index with it, until the table
/// was opened again.
#[test]
fn a_change_buffer_that_is_refused_for_a_moment_is_not_given_up() {
    let (image, mut state) = base();
    let disk = SimDisk::new(image);
    let db = open(&disk).unwrap();
    let changes = (0..300)
        .map(|id| Change::Put(id, id * 10 + 1, 801))
        .collect();
    for step in [Step::Buffer, Step::Transaction("a/t", changes, End::Commit)] {
        step.run(&db, &state).unwrap();
        step.apply(&mut state);
    }
    db.close().unwrap();
    let image = disk.image();
    let mut met = 0;
    for n in 0.. {
        let disk = SimDisk::new(image.clone());
        let db = open(&disk).unwrap();
        let fault = Fault::always(Operation::Read, Failure::Io).on("a/t.vdt");
        disk.inject(fault.limited(n, 1));
        // Refused, or somebody in the background has met it.
        let _ = db.table("a/t");
        let struck = disk.faults_struck();
        met += struck;
        disk.heal();
        check(&db, &[state.clone()], Garbage::None).unwrap();
        db.crash();
        if struck == 0 {
            break;
        }
    }
    assert!(met > 1, "{met}");
}
