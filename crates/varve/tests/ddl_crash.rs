//! CREATE, RENAME, TRUNCATE and DROP TABLE happen whole or not at all, whenever the process dies.
//!
//! What could break here: a definition without its file, or a file without a definition; a table under its
//! old name after a rename that was acknowledged; rows of a truncated table; a database that does not open
//! any more; a foreign key that one of its two tables knows nothing of, or that nobody heeds.
//!
//! Two ways. In the first every operation of the disk is the last one in its turn. In the second the test
//! starts itself again as a child, which works on tables from several threads and says what it begins and
//! what it was told is done; the parent kills it at a random moment. After reopening each thread's tables are
//! as they were before or after what was in flight, their rows and foreign keys included, each passes its
//! check, what breaks a foreign key is refused, and the table files are exactly those of the tables.

#[path = "support/child.rs"]
mod child_process;
#[path = "support/copies.rs"]
mod copies;
#[path = "support/ddl.rs"]
mod ddl;
#[path = "support/ddl_references.rs"]
mod ddl_references;
#[path = "support/directories.rs"]
mod directories;
#[path = "support/dying_disk.rs"]
mod dying_disk;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use child_process::Life;
use copies::{backup_of, copy_of};
use ddl::{Op, Tables, check, elsewhere, open_again, options, state};
use ddl_references::check_references;
use directories::{copy_dir, files_that_go};
use dying_disk::DyingDisk;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use varve::{Database, Error};

// ---- Every operation of the disk is the last one.

#[test]
fn every_operation_of_the_disk_may_be_the_last() {
    sweep(&plain_tables(), &script(), u64::MAX);
}

/// Files that go in portions: all are larger.
#[test]
fn every_operation_of_the_disk_may_be_the_last_where_files_are_large() {
    let left = sweep(&plain_tables(), &script(), PORTION);
    assert!(left > 0, "no crash has left anything to go on with");
}

/// Less than the file of an empty table.
const PORTION: u64 = 2 * 4096;

/// What a sweep begins with.
struct Base {
    dir: tempfile::TempDir,
    tables: Tables,
}

/// How the process ended that made it.
#[derive(Clone, Copy)]
enum End {
    Closed,
    Killed,
}

impl Base {
    fn new(ops: &[Op], end: End) -> Base {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), options()).unwrap();
        let mut tables = Tables::new();
        for op in ops {
            op.run(&db).unwrap_or_else(|e| panic!("{op:?}: {e}"));
            op.apply(&mut tables);
        }
        assert_eq!(state(&db), tables);
        match end {
            End::Closed => db.close().unwrap(),
            End::Killed => db.crash(),
        }
        Base { dir, tables }
    }
}

fn plain_tables() -> Base {
    let ops = [Op::Create("a/old".into()), Op::Fill("a/old".into(), 150)];
    Base::new(&ops, End::Closed)
}

fn script() -> Vec<Op> {
    vec![
        Op::Create("a/new".into()),
        Op::Fill("a/new".into(), 20),
        Op::Rename("a/new".into(), "b/new".into()),
        Op::RenameColumn("b/new".into(), "other".into()),
        Op::Redefine("b/new".into(), "by_other".into()),
        Op::Indexes("a/old".into(), true),
        Op::Indexes("a/old".into(), false),
        Op::AddColumn("a/old".into()),
        Op::Fill("a/old".into(), 5),
        Op::Rebuild("a/old".into()),
        Op::DropColumn("a/old".into()),
        Op::Fill("a/old".into(), 3),
        Op::Indexes("b/new".into(), true),
        Op::Truncate("a/old".into()),
        Op::Fill("a/old".into(), 30),
        Op::Truncate("b/new".into()),
        Op::Discard("a/old".into()),
        Op::Import("a/old".into()),
        Op::Fill("a/old".into(), 3),
        Op::Discard("a/old".into()),
        Op::Truncate("a/old".into()),
        Op::Discard("a/old".into()),
        Op::RenameWaiting("a/old".into(), "b/old".into()),
        Op::Drop("b/old".into()),
        Op::Create("a/new".into()),
        Op::CreateElsewhere("a/far".into()),
        Op::Fill("a/far".into(), 20),
        Op::Together("b/new".into(), "a/far".into()),
        Op::Rebuild("a/far".into()),
        Op::Truncate("a/far".into()),
        Op::Rename("a/far".into(), "c/far".into()),
        Op::Drop("c/far".into()),
    ]
}

/// Tables that are tied by foreign keys.
#[test]
fn every_operation_of_the_disk_may_be_the_last_one_of_a_family() {
    sweep(&family(), &script_of_a_family(), PORTION);
}

fn family() -> Base {
    let parent = || "a/parent".to_string();
    let ops = [Op::Create(parent()), Op::Fill(parent(), 10)];
    Base::new(&ops, End::Closed)
}

fn script_of_a_family() -> Vec<Op> {
    let (parent, child) = (|| "b/parent".to_string(), || "b/child".to_string());
    let mut script = vec![
        Op::CreateChild("a/child".into(), "a/parent".into()),
        Op::Fill("a/child".into(), 20),
        Op::Rename("a/parent".into(), parent()),
        Op::Rename("a/child".into(), child()),
        Op::DropForeignKey(child()),
        Op::AddForeignKey(child(), parent()),
        Op::RenameColumn(parent(), "other".into()),
        Op::Redefine(child(), "by_other".into()),
        Op::Indexes(parent(), true),
        Op::Rebuild(parent()),
        Op::Rebuild(child()),
    ];
    script.extend(altered(&parent(), Op::CreateCopy(parent())));
    script.extend(altered(&child(), Op::CreateCopy(child())));
    // A foreign key comes, and the rows are looked at.
    script.push(Op::DropForeignKey(child()));
    let create = Op::CreateCopyReferring(child(), parent());
    script.extend(altered(&child(), create));
    script.extend([
        Op::Truncate(child()),
        Op::Fill(child(), 5),
        Op::DropUnchecked(parent()),
        Op::Create(parent()),
        Op::Fill(parent(), 3),
        Op::Drop(child()),
        Op::Drop(parent()),
    ]);
    script
}

/// How a server alters a table by making a copy.
fn altered(name: &str, create: Op) -> Vec<Op> {
    let mut all = vec![create, Op::FillCopy(name.into())];
    all.push(steps_aside(name));
    all.extend(copy_takes_its_place(name));
    all
}

fn steps_aside(name: &str) -> Op {
    Op::Rename(name.into(), backup_of(name))
}

fn copy_takes_its_place(name: &str) -> Vec<Op> {
    vec![
        Op::Rename(copy_of(name), name.into()),
        Op::Drop(backup_of(name)),
    ]
}

/// Who is killed between the two renames by which a copy takes the place of a parent, or of a child, leaves
/// a table that has no name. The DDL log of the server goes on from there at the next start, or back if the
/// second rename fails; each step of that may be cut off, too.
#[test]
fn a_crash_between_the_two_renames_of_a_copy_is_gone_on_from_or_back() {
    for table in ["a/parent", "a/child"] {
        let before = [
            Op::Create("a/parent".into()),
            Op::Fill("a/parent".into(), 10),
            Op::CreateChild("a/child".into(), "a/parent".into()),
            Op::Fill("a/child".into(), 20),
            Op::CreateCopy(table.into()),
            Op::FillCopy(table.into()),
            steps_aside(table),
        ];
        let base = Base::new(&before, End::Killed);
        sweep(&base, &copy_takes_its_place(table), u64::MAX);
        let back = [
            Op::Drop(copy_of(table)),
            Op::Rename(backup_of(table), table.into()),
        ];
        sweep(&base, &back, u64::MAX);
    }
}

/// Each operation that changes the disk of the base is the last one in its turn, while the script is played.
/// Returns how many files were found half gone after a crash.
fn sweep(base: &Base, script: &[Op], portion: u64) -> usize {
    let work = tempfile::tempdir().unwrap();
    let mut deaths = vec![0; script.len()];
    let (mut lives, mut sweeps, mut left) = (0, 0, 0);
    loop {
        let dir = work.path().join(lives.to_string());
        copy_dir(base.dir.path(), &dir);
        let disk = DyingDisk::new();
        disk.set_portion(portion);
        let db = Database::open_on(Arc::new(disk.clone()), &dir, options()).unwrap();
        disk.live_for(lives);
        let mut tables = base.tables.clone();
        let died_in = script.iter().find(|op| {
            let ok = op.run(&db).is_ok();
            if ok {
                op.apply(&mut tables);
            }
            !ok
        });
        disk.live_for(0);
        db.crash();
        left += files_that_go(&dir);
        let context = format!("dead after {lives} operations, in {died_in:?}");
        let db = open_again(&dir, &context);
        let found = state(&db);
        let mut after = tables.clone();
        if let Some(op) = died_in {
            op.apply(&mut after);
        }
        assert!(
            found == tables || found == after,
            "{context}: found {found:?}, expected {tables:?} or {after:?}"
        );
        check(&db, &context);
        // Nothing that was left is in the way of the same statements.
        if let Some(op) = died_in.filter(|_| found == tables) {
            op.run(&db)
                .unwrap_or_else(|e| panic!("{context}, again: {e}"));
            check(&db, &context);
        }
        let elsewhere = elsewhere(&db);
        drop(db);
        std::fs::remove_dir_all(&dir).unwrap();
        if elsewhere.exists() {
            std::fs::remove_dir_all(elsewhere).unwrap();
        }
        lives += 1;
        match died_in {
            // A step may have only one operation of its own, which falls to a background thread's share.
            None if sweeps < 3 && deaths.contains(&0) => (lives, sweeps) = (0, sweeps + 1),
            None => break,
            Some(op) => deaths[script.iter().position(|o| std::ptr::eq(o, op)).unwrap()] += 1,
        }
    }
    println!("deaths in each step: {deaths:?}");
    assert!(deaths.iter().all(|n| *n > 0), "{deaths:?}");
    left
}

/// One operation of the disk fails, whichever, and what comes after it works. The statement that it falls to
/// is made as if nothing had been, once the database is opened again if it has stopped; then all others.
#[test]
fn any_operation_of_the_disk_may_fail_under_a_family() {
    let seed = std::env::var(SEED).map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("{SEED}={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let (base, script) = (family(), script_of_a_family());
    let (mut at, mut failed, mut stopped) = (0, 0, 0);
    loop {
        match play_with_failure(&base, &script, at) {
            Struck::Nothing => break,
            Struck::Nobody => {}
            Struck::Statement => failed += 1,
            Struck::Database => stopped += 1,
        }
        at += rng.random_range(1..=2 * FAULT_STEP);
    }
    println!("of {at} operations, {failed} made a statement fail, {stopped} stopped the database");
    assert!(failed > 0 && stopped > 0);
}

/// Of so many operations that change the disk about one fails.
const FAULT_STEP: i64 = 8;

/// To whom an operation of the disk that failed fell.
enum Struck {
    /// The script was over.
    Nothing,
    /// Somebody who went on without it.
    Nobody,
    Statement,
    Database,
}

fn play_with_failure(base: &Base, script: &[Op], at: i64) -> Struck {
    let work = tempfile::tempdir().unwrap();
    let dir = work.path().join("db");
    copy_dir(base.dir.path(), &dir);
    let disk = DyingDisk::new();
    let open = || {
        let db = Database::open_on(Arc::new(disk.clone()), &dir, options()).unwrap();
        assert!(db.wait_for_recovery(Duration::from_secs(60)));
        db
    };
    let (mut db, mut tables, mut struck) = (open(), base.tables.clone(), None);
    disk.fail_once_after(at);
    for op in script {
        let before = tables.clone();
        op.apply(&mut tables);
        let Err(e) = op.run(&db) else {
            continue;
        };
        let context = format!("operation {at} fails, in {op:?}: {e}");
        assert!(disk.has_failed_once() && struck.is_none(), "{context}");
        struck = Some(Struck::Statement);
        // A file that could not be removed is in the way until the next start.
        let is_in_the_way = matches!(e, Error::AlreadyExists { .. });
        if is_in_the_way || db.core().check_usable().is_err() {
            struck = Some(Struck::Database);
            db.crash();
            db = open();
        }
        // What could not be made durable may be found there all the same.
        let found = state(&db);
        if !(matches!(struck, Some(Struck::Database)) && found == tables) {
            assert_eq!(found, before, "{context}");
            op.run(&db)
                .unwrap_or_else(|e| panic!("{context}, again: {e}"));
        }
        check_references(&db, &state(&db), &context);
    }
    let context = format!("operation {at} has failed");
    let is_over = !disk.has_failed_once();
    disk.live_for(i64::MAX);
    db.crash();
    let db = open();
    assert_eq!(state(&db), tables, "{context}");
    check(&db, &context);
    match is_over {
        true => Struck::Nothing,
        false => struck.unwrap_or(Struck::Nobody),
    }
}

/// DDL-4: a table whose file could not be renamed has its new name all the same, and the file is in nobody's
/// way.
#[test]
fn a_file_that_keeps_its_name_is_in_nobodys_way() {
    let dir = tempfile::tempdir().unwrap();
    let disk = DyingDisk::new();
    let fails = Arc::new(AtomicBool::new(false));
    disk.before({
        let (disk, fails) = (disk.clone(), fails.clone());
        move |operation, path| {
            let is_whole = path.extension().is_some_and(|extension| extension == "vdt");
            if operation == "rename" && is_whole && fails.swap(false, Ordering::SeqCst) {
                disk.fail_once_after(0);
            }
        }
    });
    let create = |name: &str| Op::Create(name.into());
    let fill = |name: &str, rows| Op::Fill(name.into(), rows);
    let rename = |from: &str, to: &str| Op::Rename(from.into(), to.into());
    // With whether the file's rename fails.
    let script = [
        (create("a/t"), false),
        (fill("a/t", 1), false),
        // Back again, as ALTER TABLE does that can't go on.
        (rename("a/t", "a/aside"), true),
        (rename("a/aside", "a/t"), false),
        // Another table gets the name.
        (rename("a/t", "a/aside"), true),
        (create("a/other"), false),
        (fill("a/other", 2), false),
        (rename("a/other", "a/t"), false),
        (rename("a/t", "b/t"), true),
        (create("a/t"), false),
        (fill("a/t", 3), false),
        // The file that is gone keeps its name, and the new one has none.
        (Op::Truncate("b/t".into()), true),
        (rename("b/t", "b/u"), false),
        (create("b/t"), false),
        (fill("b/t", 4), false),
    ];
    let open = || Database::open_on(Arc::new(disk.clone()), dir.path(), options()).unwrap();
    let (db, mut tables) = (open(), Tables::new());
    for (op, file_fails) in &script {
        fails.store(*file_fails, Ordering::SeqCst);
        op.run(&db).unwrap_or_else(|e| panic!("{op:?}: {e}"));
        assert!(!fails.load(Ordering::SeqCst), "{op:?} renames no file");
        op.apply(&mut tables);
        assert_eq!(state(&db), tables, "DDL-4: {op:?}");
    }
    db.crash();
    let db = open();
    assert!(db.wait_for_recovery(Duration::from_secs(60)));
    assert_eq!(state(&db), tables);
    check(&db, "after all of it");
}

/// DDL-3: redo says that the file goes until it is gone, however many checkpoints there are meanwhile.
#[test]
fn no_checkpoint_forgets_a_removal() {
    no_checkpoint_forgets(u64::MAX, "remove");
}

#[test]
fn no_checkpoint_forgets_that_a_large_file_goes() {
    no_checkpoint_forgets(PORTION, "rename");
}

/// `what` is done to the file of the table.
fn no_checkpoint_forgets(portion: u64, what: &'static str) {
    let dir = tempfile::tempdir().unwrap();
    let disk = DyingDisk::new();
    disk.set_portion(portion);
    let db = Database::open_on(Arc::new(disk.clone()), dir.path(), options()).unwrap();
    for name in ["a/t", "a/other"] {
        Op::Create(name.into()).run(&db).unwrap();
        Op::Fill(name.into(), 50).run(&db).unwrap();
    }
    db.close().unwrap();
    // All pages are clean: the file's own would keep the checkpoint back, because nobody can write them
    // meanwhile.
    let db = Database::open_on(Arc::new(disk.clone()), dir.path(), options()).unwrap();
    let status = |name| db.status().into_iter().find(|s| s.0 == name).unwrap().1;
    let (arrived, arrives) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    let left = Mutex::new(left);
    disk.before(move |operation, path| {
        if operation == what && path.ends_with("a/t.vdt") {
            arrived.send(()).unwrap();
            left.lock().unwrap().recv().unwrap();
        }
    });
    std::thread::scope(|scope| {
        scope.spawn(|| db.drop_table("a/t"));
        arrives.recv().unwrap();
        let decided = status("lsn_current");
        let room = status("checkpoint_max_age") * 13 / 16;
        while status("checkpoint_age") < room && status("lsn_last_checkpoint") <= decided {
            Op::Fill("a/other".into(), 500).run(&db).unwrap();
        }
        disk.live_for(0);
        leave.send(()).unwrap();
    });
    assert!(dir.path().join("a/t.vdt").exists());
    db.crash();
    let db = Database::open(dir.path(), options()).unwrap();
    assert_eq!(db.tables().unwrap(), ["a/other"]);
    check(&db, "after the removal");
}

// ---- A process that is killed.

const CHILD: &str = "VARVE_DDL_CRASH_DIR";
const SEED: &str = "VARVE_DDL_CRASH_SEED";
const THREADS: usize = 3;
/// Statements that are done before a child is killed.
const LEAST: usize = 8;

/// The names that a thread uses. Schemas are partly its own, partly everybody's.
fn names(thread: usize) -> [String; 4] {
    [
        format!("own{thread}/t"),
        format!("own{thread}/u"),
        format!("all/t{thread}"),
        format!("all/u{thread}"),
    ]
}

fn random_op(thread: usize, tables: &Tables, rng: &mut StdRng) -> Op {
    loop {
        let op = drawn_op(thread, tables, rng);
        if op.is_possible(tables) {
            return op;
        }
    }
}

fn drawn_op(thread: usize, tables: &Tables, rng: &mut StdRng) -> Op {
    let names = names(thread);
    let (there, free): (Vec<_>, Vec<_>) = names.iter().partition(|n| tables.contains_key(*n));
    let (Some(some), Some(other)) = (there.choose(rng), free.choose(rng)) else {
        return match free.choose(rng) {
            Some(name) => Op::Create(name.to_string()),
            // They may refer to each other in a circle.
            None if rng.random() => {
                Op::DropForeignKey(there.choose(rng).expect("four").to_string())
            }
            None => Op::Drop(there.choose(rng).expect("four").to_string()),
        };
    };
    let more = there.iter().find(|name| **name != *some);
    match (rng.random_range(0..22), more) {
        (12 | 13, _) => Op::Rebuild(some.to_string()),
        (14 | 15, Some(more)) => Op::Together(some.to_string(), more.to_string()),
        (16 | 17, _) => Op::CreateChild(other.to_string(), some.to_string()),
        (18 | 19, Some(more)) => Op::AddForeignKey(some.to_string(), more.to_string()),
        (20 | 21, _) => Op::DropForeignKey(some.to_string()),
        (what, _) => drawn_change(what, some, other, rng),
    }
}

/// A change of the table `some`, which may be called `other` then.
fn drawn_change(what: u32, some: &str, other: &str, rng: &mut StdRng) -> Op {
    match what {
        0 => Op::Create(other.to_string()),
        1 => Op::Rename(some.to_string(), other.to_string()),
        2 => Op::Truncate(some.to_string()),
        3 => Op::Drop(some.to_string()),
        4 => Op::RenameColumn(some.to_string(), format!("c{}", rng.random_range(0..9))),
        5 => Op::Redefine(some.to_string(), format!("i{}", rng.random_range(0..9))),
        6 => Op::AddColumn(some.to_string()),
        7 => Op::DropColumn(some.to_string()),
        8 | 9 => Op::Indexes(some.to_string(), rng.random()),
        _ => Op::Fill(some.to_string(), rng.random_range(1..80)),
    }
}

/// The child: works until it is killed.
#[test]
#[ignore = "started by the test below"]
fn child() {
    let Ok(dir) = std::env::var(CHILD) else {
        return;
    };
    let seed: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    let disk = DyingDisk::new();
    disk.set_portion(PORTION);
    let db = Database::open_on(Arc::new(disk), Path::new(&dir), options()).unwrap();
    assert!(db.wait_for_recovery(Duration::from_secs(60)));
    let start = state(&db);
    std::thread::scope(|s| {
        for thread in 0..THREADS {
            let (db, mut tables) = (&db, start.clone());
            s.spawn(move || {
                let mut rng = StdRng::seed_from_u64(seed ^ thread as u64);
                loop {
                    let op = random_op(thread, &tables, &mut rng);
                    child_process::say(&format!("begin {thread} {}", op.to_line()));
                    if let Err(e) = op.run(db) {
                        child_process::say(&format!("failed {thread} {}: {e}", op.to_line()));
                        return;
                    }
                    op.apply(&mut tables);
                    child_process::say(&format!("done {thread}"));
                }
            });
        }
    });
}

/// Runs a child until some statements are done and a while longer, kills it, and returns the lines that it
/// said.
fn run_and_kill(dir: &Path, seed: u64, done: usize, then: Duration) -> Vec<String> {
    let (dir, seed) = (dir.to_str().unwrap(), seed.to_string());
    let life = Life {
        word: "done",
        times: done,
        then,
    };
    child_process::run_and_kill(&[(CHILD, dir), (SEED, &seed)], &life)
}

/// Follows what the child said: each thread's tables before and after what was in flight.
fn follow(lines: &[String], start: &Tables, context: &str) -> (Vec<[Tables; 2]>, usize) {
    let mut threads = vec![[start.clone(), start.clone()]; THREADS];
    let mut done = 0;
    for line in lines {
        let words = child_process::words_from(line, &["begin", "done", "failed"]);
        let Some(thread) = words.get(1).and_then(|w| w.parse::<usize>().ok()) else {
            continue;
        };
        let [before, after] = &mut threads[thread];
        match words[0] {
            "begin" => Op::parse(&words[2..]).apply(after),
            "done" => {
                *before = after.clone();
                done += 1;
            }
            _ => panic!("{context}: {line}"),
        }
    }
    (threads, done)
}

fn verify(dir: &Path, lines: &[String], start: &Tables, context: &str) -> (Tables, usize) {
    let (threads, done) = follow(lines, start, context);
    let db = open_again(dir, context);
    let found = state(&db);
    for (thread, states) in threads.iter().enumerate() {
        let own = |tables: &Tables| -> Tables {
            let names = names(thread);
            let own = tables.iter().filter(|(name, _)| names.contains(name));
            own.map(|(name, what)| (name.clone(), what.clone()))
                .collect()
        };
        let [found, before, after] = [&found, &states[0], &states[1]].map(own);
        assert!(
            found == before || found == after,
            "{context}, thread {thread}: found {found:?}, expected {before:?} or {after:?}"
        );
    }
    check(&db, context);
    db.crash();
    (found, done)
}

#[test]
fn a_killed_process_leaves_tables_and_files_that_fit() {
    let seed: u64 = match std::env::var(SEED) {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => rand::random(),
    };
    println!("{SEED}={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().into();
    Database::open(&path, options()).unwrap().close().unwrap();
    let (mut tables, mut done) = (Tables::new(), 0);
    for round in 0..8 {
        let context = format!("seed {seed}, round {round}");
        let then = Duration::from_millis(rng.random_range(0..600));
        let lines = run_and_kill(&path, rng.random(), LEAST, then);
        if rng.random_ratio(1, 3) {
            // The next process is killed in the middle of its recovery, or soon after: then it says what it
            // does, too.
            let (_, more) = follow(&lines, &tables, &context);
            done += more;
            let (now, _) = verify(&path, &lines, &tables, &context);
            let short = Duration::from_millis(rng.random_range(1..60));
            let lines = run_and_kill(&path, rng.random(), 0, short);
            (tables, _) = verify(&path, &lines, &now, &format!("{context}, short life"));
            continue;
        }
        let more;
        (tables, more) = verify(&path, &lines, &tables, &context);
        done += more;
    }
    println!("{done} statements acknowledged");
    assert!(done >= 8 * LEAST, "the children did too little: {done}");
}
