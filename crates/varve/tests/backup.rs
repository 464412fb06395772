//! Backups of a database in use, and databases made of them.
//!
//! What could break here: a backup that lacks what had committed, or has what had not; one that recovery
//! can't make a database of, because redo, a tablespace or a page is missing or newer than the rest; one that
//! looks good and is not, because it is not complete or was changed; a backup that keeps users waiting, fills
//! the disk with redo, or leaves something behind when it fails.

#[path = "support/backed_up.rs"]
mod backed_up;
#[path = "support/dying_disk.rs"]
mod dying_disk;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use backed_up::{REDO, count, database_with, files, fill, is_told, small, table};
use dying_disk::DyingDisk;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use varve::backup::{
    BackupOptions, BackupSummary, MANIFEST, restore, restore_on, verify, verify_on,
};
use varve::internals::io::Disk;
use varve::offline::check;
use varve::{
    BackupState, ColumnType, Database, Error, ForeignKeyChecks, Isolation, Options,
    RotationOptions, Table, TableDef, values,
};
use varve_sim::sample::Keys;
use varve_sim::{CrashPoints, Failure, Fault, Operation, SimDisk};

const ROWS: i64 = 400;

fn database() -> (tempfile::TempDir, Database, Table) {
    database_with(ROWS)
}

// ---- What is wrong with a backup is told.

/// BACKUP-5: a byte of any file that changed, one that lacks its end, or is not there at all.
#[test]
fn a_backup_that_was_changed_is_refused_by_the_files_name() {
    let (dir, db, _) = database();
    let [made, to] = ["made", "to"].map(|name| dir.path().join(name));
    let summary = db.backup(&made, BackupOptions::default()).unwrap();
    assert_eq!(verify(&made).unwrap(), summary);
    for path in files(&made) {
        let len = fs::metadata(&path).unwrap().len() as usize;
        is_told(&path, &[0, len / 2, len - 1], &[0, len - 1], || {
            let told = restore(&made, &to).unwrap_err().to_string();
            assert!(!to.exists(), "something was written: {told}");
            told
        });
    }
    assert_eq!(restore(&made, &to).unwrap(), summary);
    assert_eq!(
        count(&Database::open(&to, small()).unwrap(), "a/t"),
        ROWS as u64
    );
}

/// Nobody else on the machine reads a backup.
#[test]
fn files_are_private() {
    use std::os::unix::fs::MetadataExt;
    let (dir, db, _) = database();
    let [made, to] = ["made", "to"].map(|name| dir.path().join(name));
    db.backup(&made, BackupOptions::default()).unwrap();
    restore(&made, &to).unwrap();
    for path in [files(&made), files(&to)].concat() {
        let mode = fs::metadata(&path).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}: {mode:o}", path.display());
    }
}

/// A backup is no database, nor is what an interrupted restore has left; and each is made where nothing is.
#[test]
fn a_backup_and_a_database_are_told_apart() {
    let (dir, db, _) = database();
    let [made, to] = ["made", "to"].map(|name| dir.path().join(name));
    let make = |dir: &Path| db.backup(dir, BackupOptions::default());
    make(&made).unwrap();
    let refused = |done: varve::Result<()>, says: &str| {
        let told = done.unwrap_err().to_string();
        assert!(told.contains(says), "{told}");
    };
    refused(make(&made).map(drop), "it holds a backup");
    refused(
        make(&dir.path().join("db/b")).map(drop),
        "the database's own directory",
    );
    refused(
        make(&dir.path().join("made/../db/b")).map(drop),
        "the database's own directory",
    );
    let held = files(&made);
    refused(Database::open(&made, small()).map(drop), "varve restore");
    assert_eq!(files(&made), held);
    refused(restore(&made, dir.path().join("db")).map(drop), "not empty");
    refused(restore(dir.path().join("db"), &to).map(drop), "a backup in");
    // Looking at it changes nothing.
    let read_only = Options {
        read_only: true,
        ..small()
    };
    assert_eq!(
        count(&Database::open(&made, read_only).unwrap(), "a/t"),
        ROWS as u64
    );
    let mut findings = Vec::new();
    let checked = check(&made, None, &mut |finding| {
        findings.push(finding.to_string())
    })
    .unwrap();
    assert_eq!(checked.damages, 0, "{findings:?}");
    restore(&made, &to).unwrap();
    // As a restore leaves it that was killed just before its end.
    fs::copy(made.join(MANIFEST), to.join(MANIFEST)).unwrap();
    refused(
        Database::open(&to, small()).map(drop),
        "did not come to its end",
    );
}

// ---- Damage in the database.

/// A page in the middle of the table's file, on the disk, and how to mend it.
fn damage(dir: &Path) -> impl Fn() + Send + use<> {
    let path = dir.join("db/a/t.vdt");
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let (mut before, at) = ([0; 8], 5 * 4096 + 2000);
    file.read_exact_at(&mut before, at).unwrap();
    file.write_all_at(&before.map(|byte| byte ^ 0x55), at)
        .unwrap();
    move || file.write_all_at(&before, at).unwrap()
}

fn database_on_disk() -> (tempfile::TempDir, Database) {
    let (dir, db, table) = database();
    drop(table);
    db.close().unwrap();
    let db = Database::open(dir.path().join("db"), small()).unwrap();
    (dir, db)
}

/// BACKUP-3: a page that is being written is read again until it is whole.
#[test]
fn a_torn_page_is_read_again() {
    let (dir, db) = database_on_disk();
    let made = dir.path().join("made");
    let mend = damage(dir.path());
    let mender = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        mend();
    });
    let begun = Instant::now();
    let summary = db.backup(&made, BackupOptions::default()).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(90));
    mender.join().unwrap();
    assert_eq!(verify(&made).unwrap(), summary);
}

#[test]
fn a_damaged_page_fails_the_backup_unless_it_is_to_be_kept() {
    let (dir, db) = database_on_disk();
    let [made, to] = ["made", "to"].map(|name| dir.path().join(name));
    let mend = damage(dir.path());
    let told = db.backup(&made, BackupOptions::default()).unwrap_err();
    assert!(matches!(told, Error::Corrupt { .. }), "{told}");
    assert!(told.to_string().contains("a/t.vdt"), "{told}");
    assert_eq!(files(&made), Vec::<PathBuf>::new());
    let keep = BackupOptions {
        keep_damaged: true,
        ..BackupOptions::default()
    };
    let summary = db.backup(&made, keep).unwrap();
    assert_eq!(summary.damaged.len(), 1);
    assert_eq!(restore(&made, &to).unwrap(), summary);
    // The database itself can still be mended.
    mend();
    assert_eq!(count(&db, "a/t"), ROWS as u64);
    let restored = Database::open(&to, small()).unwrap();
    let report = restored
        .table("a/t")
        .and_then(|table| restored.check_table(&table));
    assert!(report.is_err() || !report.unwrap().errors.is_empty());
}

/// A backup of a database without the file of `a/t`, which fails unless that is to be left out.
fn backup_lacks_table(db: &Database, made: &Path) -> BackupSummary {
    let told = db.backup(made, BackupOptions::default()).unwrap_err();
    assert!(told.to_string().contains("a/t.vdt"), "{told}");
    let keep = BackupOptions {
        keep_damaged: true,
        ..BackupOptions::default()
    };
    let summary = db.backup(made, keep).unwrap();
    assert_eq!(summary.lost, ["a/t.vdt"]);
    summary
}

#[test]
fn a_table_without_its_file_fails_the_backup_unless_it_is_to_be_left_out() {
    let (dir, db, _) = database();
    table(&db, "a/other");
    db.close().unwrap();
    let file = dir.path().join("db/a/t.vdt");
    fs::rename(&file, dir.path().join("aside")).unwrap();
    let db = Database::open(dir.path().join("db"), small()).unwrap();
    let made = dir.path().join("made");
    backup_lacks_table(&db, &made);
    let to = dir.path().join("to");
    restore(&made, &to).unwrap();
    let restored = Database::open(&to, small()).unwrap();
    assert_eq!(count(&restored, "a/other"), 0);
    assert!(restored.table("a/t").is_err());
    restored.drop_table("a/t").unwrap();
}

/// A file that was cut off before its first page ends has a header that can be read.
#[test]
fn a_file_shorter_than_a_page_is_no_copy() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        page_size: 16384,
        ..small()
    };
    let db = Database::open(dir.path().join("db"), options.clone()).unwrap();
    table(&db, "a/t");
    table(&db, "a/other");
    db.close().unwrap();
    let file = dir.path().join("db/a/t.vdt");
    let cut = fs::OpenOptions::new().write(true).open(&file).unwrap();
    cut.set_len(8192).unwrap();
    let db = Database::open(dir.path().join("db"), options).unwrap();
    let made = dir.path().join("made");
    let summary = backup_lacks_table(&db, &made);
    assert_eq!(verify(&made).unwrap(), summary);
}

/// A discarded table is one that has no file.
#[test]
fn a_discarded_table_is_discarded_in_the_backup() {
    let (dir, db, table) = database();
    drop(table);
    db.discard_table("a/t", ForeignKeyChecks::On).unwrap();
    // A user's file in its place is no part of the database.
    fs::write(dir.path().join("db/a/t.vdt"), b"something").unwrap();
    let [made, to] = ["made", "to"].map(|name| dir.path().join(name));
    let summary = db.backup(&made, BackupOptions::default()).unwrap();
    assert_eq!(summary.lost, Vec::<String>::new());
    restore(&made, &to).unwrap();
    assert!(!to.join("a/t.vdt").exists() && to.join("a/t.vdt.awaited").exists());
    let restored = Database::open(&to, small()).unwrap();
    let told = restored.table("a/t").map(drop);
    assert!(
        matches!(told, Err(Error::TablespaceDiscarded { .. })),
        "{told:?}"
    );
    restored.truncate_table("a/t").unwrap();
    assert_eq!(count(&restored, "a/t"), 0);
}

// ---- Redo.

/// BACKUP-4, KEEP-1: while a backup stands still, the log goes on for several times its capacity.
#[test]
fn nobody_waits_for_a_backup_that_stands_still() {
    let (dir, db, table) = database();
    let [made, to] = ["made", "to"].map(|name| dir.path().join(name));
    let backup = db.backup_in_steps(&made, BackupOptions::default()).unwrap();
    let log = &db.core().log;
    let begun = log.next_lsn();
    let mut rows = ROWS;
    while log.next_lsn().0 - begun.0 < 4 * REDO {
        fill(&db, &table, rows..rows + 100);
        rows += 100;
    }
    assert!(log.file_bytes() > 4 * REDO, "{} bytes", log.file_bytes());
    let summary = backup.finish().unwrap();
    assert!(summary.to.0 - summary.from.0 > 4 * REDO);
    let end = Instant::now() + Duration::from_secs(20);
    while log.file_bytes() > 2 * REDO {
        assert!(Instant::now() < end, "{} bytes are kept", log.file_bytes());
        thread::sleep(Duration::from_millis(10));
    }
    restore(&made, &to).unwrap();
    assert_eq!(
        count(&Database::open(&to, small()).unwrap(), "a/t"),
        rows as u64
    );
}

/// KEEP-2
#[test]
fn a_forgotten_backup_fails_and_does_not_fill_the_disk() {
    let (dir, db, table) = database();
    let made = dir.path().join("made");
    let options = BackupOptions {
        max_redo_bytes: 1 << 20,
        ..BackupOptions::default()
    };
    let mut backup = db.backup_in_steps(&made, options).unwrap();
    let log = &db.core().log;
    let begun = log.next_lsn();
    let mut rows = ROWS;
    while log.next_lsn().0 - begun.0 < 4 * REDO {
        fill(&db, &table, rows..rows + 100);
        rows += 100;
        assert!(log.file_bytes() < 3 * REDO, "{} bytes", log.file_bytes());
    }
    let told = backup.step().map(drop).unwrap_err();
    assert!(matches!(told, Error::TooLarge { .. }), "{told}");
    drop(backup);
    assert_eq!(files(&made), Vec::<PathBuf>::new());
    db.backup(&made, BackupOptions::default()).unwrap();
}

/// One that is copied and never ended does not fill the backup's disk.
#[test]
fn a_backup_that_nobody_ends_fails() {
    let (dir, db, table) = database();
    let made = dir.path().join("made");
    let options = BackupOptions {
        max_redo_bytes: 1 << 20,
        ..BackupOptions::default()
    };
    let running = db.start_backup(&made, options).unwrap();
    let mut rows = ROWS;
    let why = loop {
        match running.state() {
            BackupState::Failed(why) => break why,
            BackupState::Copying(_) | BackupState::Following => {}
            state => panic!("{state:?}"),
        }
        fill(&db, &table, rows..rows + 100);
        rows += 100;
        assert!(rows < 1_000_000);
    };
    assert!(matches!(why, Error::TooLarge { .. }), "{why}");
    assert_eq!(files(&made), Vec::<PathBuf>::new());
}

/// KEEP-2: where there is no room for other files, the log takes back those that it keeps.
#[test]
fn nobody_waits_for_a_backup_on_a_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let disk = DyingDisk::new();
    let data = dir.path().join("db");
    let db = Database::open_on(Arc::new(disk.clone()), &data, small()).unwrap();
    let table = table(&db, "a/t");
    fill(&db, &table, 0..ROWS);
    let made = dir.path().join("made");
    let mut backup = db.backup_in_steps(&made, BackupOptions::default()).unwrap();
    disk.fill_up_for("db/redo");
    let log = &db.core().log;
    let (began, begun) = (log.next_lsn(), Instant::now());
    let mut rows = ROWS;
    while log.next_lsn().0 - began.0 < 4 * REDO {
        fill(&db, &table, rows..rows + 100);
        rows += 100;
    }
    assert!(begun.elapsed() < Duration::from_secs(60));
    let told = backup.step().map(drop).unwrap_err();
    assert!(matches!(told, Error::NoSpace { .. }), "{told}");
    drop(backup);
    assert_eq!(count(&db, "a/t"), rows as u64);
}

// ---- Encryption.

/// BACKUP-6: tables that become encrypted while a backup is made are so in it, and stay so.
#[test]
fn what_is_encrypted_meanwhile_is_encrypted_in_the_backup() {
    const TEXT: &str = "nobody is to read this";
    let options = |encrypt_tables| Options {
        encryption_keys: Some(Arc::new(Keys(1))),
        encrypt_tables,
        rotation: RotationOptions {
            threads: 0,
            iops: 1_000_000,
            ..RotationOptions::default()
        },
        ..small()
    };
    let dir = tempfile::tempdir().unwrap();
    let [data, made, to] = ["db", "made", "to"].map(|name| dir.path().join(name));
    let db = Database::open(&data, options(false)).unwrap();
    let table = table(&db, "a/t");
    let add = |db: &Database, table: &Table, ids: std::ops::Range<i64>| {
        let mut trx = db.begin(Isolation::RepeatableRead);
        for id in ids {
            let text = format!("{TEXT} {id}");
            table.insert(&mut trx, values![id, text]).unwrap();
        }
        trx.commit().unwrap();
    };
    add(&db, &table, 0..500);
    drop(table);
    db.close().unwrap();
    let shows = |dir: &Path| {
        let files = files(dir).into_iter();
        // Undo from before may be in clear.
        let tables = files.filter(|path| path.ends_with("a/t.vdt"));
        let has = |path: &PathBuf| {
            let bytes = fs::read(path).unwrap();
            bytes
                .windows(TEXT.len())
                .any(|part| part == TEXT.as_bytes())
        };
        tables.filter(has).collect::<Vec<_>>()
    };
    assert_eq!(shows(&data).len(), 1);
    let db = Database::open(&data, options(false)).unwrap();
    let mut backup = db.backup_in_steps(&made, BackupOptions::default()).unwrap();
    while backup.step().unwrap() {}
    db.set_encrypt_tables(true).unwrap();
    db.rotate_encryption().unwrap();
    let table = db.table("a/t").unwrap();
    add(&db, &table, 500..600);
    backup.finish().unwrap();
    assert_eq!(shows(&made), Vec::<PathBuf>::new());
    restore(&made, &to).unwrap();
    let restored = Database::open(&to, options(true)).unwrap();
    add(&restored, &restored.table("a/t").unwrap(), 600..700);
    assert_eq!(count(&restored, "a/t"), 700);
    restored.close().unwrap();
    assert_eq!(shows(&to), Vec::<PathBuf>::new());
    // Without the key nothing is to be had.
    assert!(Database::open(&to, small()).is_err());
}

// ---- Files in other directories.

/// Undo tablespaces and tables that are elsewhere are in the backup, and in the database that is made of it.
#[test]
fn files_from_elsewhere_are_in_the_databases_own_directory() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options {
        undo_directory: Some("more/undo".into()),
        ..small()
    };
    let [data, made, to] = ["db", "made", "to"].map(|name| dir.path().join(name));
    let db = Database::open(&data, options()).unwrap();
    let def = TableDef::new("a/far")
        .column("id", ColumnType::i64())
        .column("text", ColumnType::text(2000))
        .primary(&["id"]);
    let elsewhere = dir.path().join("elsewhere");
    let far = db
        .create_table_in(&elsewhere, &def, ForeignKeyChecks::On)
        .unwrap();
    fill(&db, &far, 0..300);
    db.backup(&made, BackupOptions::default()).unwrap();
    drop(far);
    db.close().unwrap();
    fs::remove_dir_all(&elsewhere).unwrap();
    restore(&made, &to).unwrap();
    // Undo tablespaces are where they were put: a setting that says otherwise is refused by name.
    let told = Database::open(&to, options())
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(told.contains("undo"), "{told}");
    let restored = Database::open(&to, small()).unwrap();
    assert_eq!(count(&restored, "a/far"), 300);
    assert!(!to.join("a/far.vdt").is_symlink());
    let spaces = restored.undo_tablespaces();
    assert!(spaces.iter().all(|space| space.path.starts_with("undo_")));
}

// ---- What fails.

/// Every operation on the backup's files fails once: the database does not mind, and nothing is left that
/// looks like a backup.
#[test]
fn a_backup_that_fails_leaves_nothing() {
    for failure in [Failure::Io, Failure::NoSpace] {
        let disk = SimDisk::default();
        let db = Database::open_on(Arc::new(disk.clone()), Path::new("/data/db"), small()).unwrap();
        let table = table(&db, "a/t");
        fill(&db, &table, 0..50);
        let options = || BackupOptions {
            threads: 1,
            ..BackupOptions::default()
        };
        let mut after = 0;
        loop {
            let fault = Fault::always(Operation::Any, failure).on("/backups/made");
            disk.inject(fault.limited(after, 1));
            let done = db.backup("/backups/made", options());
            let Err(e) = done else {
                break;
            };
            assert!(matches!(e, Error::Io { .. } | Error::NoSpace { .. }), "{e}");
            let left = disk
                .exists(&Path::new("/backups/made").join(MANIFEST))
                .unwrap();
            assert!(!left, "operation {after} failed: {e}");
            fill(&db, &table, 50 + after as i64..51 + after as i64);
            empty(&disk, Path::new("/backups/made"));
            after += 1;
        }
        assert!(after > 30, "{after} operations");
        // Without the fault that has not struck.
        let summary = verify_on(&disk.copy(), Path::new("/backups/made")).unwrap();
        assert!(summary.files > 5);
    }
}

/// What a failed removal has left.
fn empty(disk: &SimDisk, dir: &Path) {
    if !disk.exists(dir).unwrap() {
        return;
    }
    for entry in disk.list(dir).unwrap() {
        let path = dir.join(&entry.name);
        match entry.is_dir {
            true => {
                empty(disk, &path);
                disk.remove_dir(&path).unwrap();
            }
            false => disk.remove(&path).unwrap(),
        }
    }
}

/// BACKUP-5: the power goes at any moment of a backup and of a restore.
#[test]
fn a_crash_leaves_a_whole_backup_or_none() {
    let disk = SimDisk::default();
    let db = Database::open_on(Arc::new(disk.clone()), Path::new("/data/db"), small()).unwrap();
    let table = table(&db, "a/t");
    fill(&db, &table, 0..50);
    let before = disk.operations();
    let options = BackupOptions {
        threads: 1,
        ..BackupOptions::default()
    };
    let [made, to] = ["/backups/made", "/data/to"].map(Path::new);
    db.backup(made, options).unwrap();
    let backed_up = disk.operations();
    restore_on(&disk, &[made], to).unwrap();
    let mut crashes = CrashPoints::new(disk.journal());
    let mut rng = SmallRng::seed_from_u64(1);
    let (mut whole, mut none) = (0, 0);
    for at in before..=disk.operations() {
        crashes.advance(at);
        let image = SimDisk::new(crashes.crash(&mut rng));
        match verify_on(&image, made) {
            Ok(_) => whole += 1,
            Err(Error::NotFound { .. }) => {
                assert!(at <= backed_up, "a backup that was complete is not there");
                none += 1;
            }
            Err(e) => panic!("after operation {at}: {e}"),
        }
        let is_begun = image.exists(&to.join(MANIFEST)).unwrap();
        let opens = Options {
            create_if_missing: false,
            ..small()
        };
        match Database::open_on(Arc::new(image.clone()), to, opens) {
            Ok(db) => assert_eq!((count(&db, "a/t"), is_begun), (50, false)),
            Err(Error::NotFound { .. } | Error::Invalid { .. }) => assert!(at < disk.operations()),
            Err(e) => panic!("after operation {at}: {e}"),
        }
    }
    assert!(whole > 10 && none > 30, "{whole} whole, {none} none");
}

/// A flag that another thread sets.
#[test]
fn an_interrupted_backup_ends() {
    let (dir, db, _) = database();
    let made = dir.path().join("made");
    let interrupt = Arc::new(AtomicBool::new(false));
    let options = BackupOptions {
        bytes_per_second: 4096,
        interrupt: Some(interrupt.clone()),
        ..BackupOptions::default()
    };
    let setter = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        interrupt.store(true, Relaxed);
    });
    let told = db.backup(&made, options).unwrap_err();
    assert!(matches!(told, Error::Interrupted), "{told}");
    setter.join().unwrap();
    assert_eq!(files(&made), Vec::<PathBuf>::new());
}

/// One that goes on until somebody says that it ends is of that moment.
#[test]
fn a_running_backup_is_of_the_moment_at_which_it_ends() {
    let (dir, db, table) = database();
    let [made, to] = ["made", "to"].map(|name| dir.path().join(name));
    let slow = BackupOptions {
        bytes_per_second: 1 << 20,
        ..BackupOptions::default()
    };
    let running = db.start_backup(&made, slow).unwrap();
    let told = running.end().unwrap_err().to_string();
    assert!(told.contains("still being copied"), "{told}");
    let mut rows = ROWS;
    loop {
        fill(&db, &table, rows..rows + 10);
        rows += 10;
        match running.state() {
            BackupState::Copying(_) => {}
            BackupState::Following => break,
            state => panic!("{state:?}"),
        }
    }
    fill(&db, &table, rows..rows + 10);
    rows += 10;
    running.end().unwrap();
    fill(&db, &table, rows..rows + 500);
    let summary = loop {
        match running.state() {
            BackupState::Ending => thread::sleep(Duration::from_millis(1)),
            BackupState::Complete(summary) => break summary,
            state => panic!("{state:?}"),
        }
    };
    assert!(running.end().is_err());
    drop(running);
    assert_eq!(restore(&made, &to).unwrap(), summary);
    assert_eq!(
        count(&Database::open(&to, small()).unwrap(), "a/t"),
        rows as u64
    );
    // One that is given up, before and after all was copied.
    for wait in [0, 300] {
        let gone = dir.path().join("gone");
        let running = db.start_backup(&gone, BackupOptions::default()).unwrap();
        thread::sleep(Duration::from_millis(wait));
        drop(running);
        assert_eq!(files(&gone), Vec::<PathBuf>::new());
    }
    let told = db.start_backup(&made, BackupOptions::default()).map(drop);
    assert!(told.unwrap_err().to_string().contains("it holds a backup"));
    // One that fails says why.
    let mend = damage(dir.path());
    let running = db
        .start_backup(dir.path().join("failed"), BackupOptions::default())
        .unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let why = loop {
        assert!(Instant::now() < end);
        match running.state() {
            BackupState::Failed(why) => break why,
            _ => thread::sleep(Duration::from_millis(1)),
        }
    };
    assert!(why.to_string().contains("a/t.vdt"), "{why}");
    mend();
}

// ---- Real threads.

/// Threads insert, one makes and drops tables, and backups follow each other: each has, of every thread, the
/// rows up to one of them, no fewer than were acknowledged when it began and no more than there were when it
/// ended.
#[test]
fn backups_beside_threads() {
    const THREADS: usize = 3;
    let (dir, db, _) = database();
    let stop = AtomicBool::new(false);
    let acknowledged: [AtomicI64; THREADS] = Default::default();
    thread::scope(|scope| {
        let (db, stop, acknowledged) = (&db, &stop, &acknowledged);
        for (n, acknowledged) in acknowledged.iter().enumerate() {
            let table = table(db, &format!("a/of_{n}"));
            scope.spawn(move || {
                let mut next = 0;
                while !stop.load(Relaxed) {
                    let many = 1 + next % 7;
                    fill(db, &table, next..next + many);
                    next += many;
                    acknowledged.store(next, Relaxed);
                }
            });
        }
        scope.spawn(move || {
            let mut number = 0;
            while !stop.load(Relaxed) {
                let [name, other] = ["a/made", "b/moved"].map(|name| format!("{name}_{number}"));
                let made = table(db, &name);
                fill(db, &made, 0..20);
                drop(made);
                db.rename_table(&name, &other).unwrap();
                db.truncate_table(&other).unwrap();
                fill(db, &db.table(&other).unwrap(), 0..30);
                if number % 2 == 0 {
                    db.drop_table(&other).unwrap();
                }
                number += 1;
            }
        });
        let _stops = StopAtEnd(stop);
        let numbers = || acknowledged.each_ref().map(|n| n.load(Relaxed));
        for round in 0..6 {
            let [made, to] = ["made", "to"].map(|name| dir.path().join(format!("{name}_{round}")));
            let before = numbers();
            let options = BackupOptions {
                threads: 1 + round % 3,
                ..BackupOptions::default()
            };
            let summary = db.backup(&made, options).unwrap();
            let after = numbers();
            assert_eq!(restore(&made, &to).unwrap(), summary);
            let restored = Database::open(&to, small()).unwrap();
            for n in 0..THREADS {
                let rows = count(&restored, &format!("a/of_{n}")) as i64;
                // One more statement may have committed when it was acknowledged.
                let range = before[n]..=after[n] + 7;
                assert!(
                    range.contains(&rows),
                    "{rows} rows of thread {n}, not {range:?}"
                );
            }
            for name in restored.tables().unwrap() {
                let rows = count(&restored, &name);
                let made = name.contains("/made_") || name.contains("/moved_");
                assert!(
                    !made || [0, 20, 30].contains(&rows),
                    "{rows} rows of {name}"
                );
            }
            restored.close().unwrap();
        }
    });
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

// ---- What these tests would miss.

#[cfg(feature = "sabotage")]
#[test]
fn a_torn_page_in_a_backup_is_noticed_when_it_is_restored() {
    let (dir, db, table) = database();
    drop(table);
    db.close().unwrap();
    let options = Options {
        sabotage: Some(varve::internals::base::Sabotage::TornPageInBackup),
        ..small()
    };
    let db = Database::open(dir.path().join("db"), options).unwrap();
    let _mend = damage(dir.path());
    let [made, to] = ["made", "to"].map(|name| dir.path().join(name));
    db.backup(&made, BackupOptions::default()).unwrap();
    let told = restore(&made, &to).unwrap_err();
    assert!(matches!(told, Error::Corrupt { .. }), "{told}");
    assert!(!to.exists());
}
