//! Increments: backups that have only what was written since another one.
//!
//! What could break here: a page that was written and is not known to be, after a crash, after a backup that
//! failed, where the disk refuses to note it; pages put together in a wrong order or at a wrong place; what
//! does not go together and is taken for a database. Increments beside everything else are in
//! `backup_model.rs`.

#[path = "support/backed_up.rs"]
mod backed_up;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use backed_up::{count, database_with, fill, is_told, small, table};
use varve::backup::{
    BackupOptions, BackupSummary, MANIFEST, merge, restore, restore_chain, restore_on, verify,
};
use varve::{
    ColumnType, Compression, Database, Isolation, Options, Result, RotationOptions, Table,
    TableDef, values,
};
use varve_sim::sample::Keys;
use varve_sim::{Failure, Fault, Operation, SimDisk};

const ROWS: i64 = 3000;

/// A directory with a database that has a table of about a megabyte.
fn database() -> (tempfile::TempDir, Database) {
    let (dir, db, _) = database_with(ROWS);
    (dir, db)
}

/// Pages that were changed before are written, and no redo that a backup takes has them any more.
fn reopened(db: Database, options: Options) -> Database {
    let dir = db.dir().to_path_buf();
    db.close().unwrap();
    Database::open(dir, options).unwrap()
}

fn increment(db: &Database, dir: &Path, base: &Path) -> Result<BackupSummary> {
    let options = BackupOptions {
        base: Some(base.into()),
        ..BackupOptions::default()
    };
    db.backup(dir, options)
}

fn text(id: i64, version: i64) -> String {
    format!("{version:050}{id:050}")
}

fn update(db: &Database, ids: impl IntoIterator<Item = i64>, version: i64) {
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in ids {
        table.put(&mut trx, values![id, text(id, version)]).unwrap();
    }
    trx.commit().unwrap();
}

fn read(db: &Database, id: i64) -> Option<String> {
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let row = table.get(&mut trx, values![id]).unwrap();
    row.map(|row| row.get("text").unwrap())
}

/// A database of the chain, in which nothing is damaged.
fn restored(chain: &[&Path], dir: &Path) -> Database {
    let _ = fs::remove_dir_all(dir);
    restore_chain(chain, dir).unwrap();
    let db = Database::open(dir, small()).unwrap();
    for name in db.tables().unwrap() {
        count(&db, &name);
    }
    db
}

/// TRACK-1, INCREMENT-2
#[test]
fn an_increment_has_what_was_written_since_its_base() {
    let (dir, db) = database();
    let [full, one, two, to] = ["full", "one", "two", "to"].map(|name| dir.path().join(name));
    let db = reopened(db, small());
    let whole = db.backup(&full, BackupOptions::default()).unwrap();
    assert!(!whole.is_increment);
    update(&db, [17], 1);
    let db = reopened(db, small());
    let first = increment(&db, &one, &full).unwrap();
    assert!(first.is_increment);
    assert!(
        first.bytes * 4 < whole.bytes,
        "{} of {}",
        first.bytes,
        whole.bytes
    );
    assert_eq!(verify(&one).unwrap(), first);
    update(&db, [17, 2000], 2);
    fill(&db, &db.table("a/t").unwrap(), ROWS..2 * ROWS);
    let db = reopened(db, small());
    increment(&db, &two, &one).unwrap();
    update(&db, [17], 3);

    let of_full = restored(&[&full], &to);
    assert_eq!(read(&of_full, 17), Some(format!("{:0100}", 17)));
    drop(of_full);
    let of_one = restored(&[&full, &one], &to);
    assert_eq!(read(&of_one, 17), Some(text(17, 1)));
    assert_eq!(read(&of_one, 2000), Some(format!("{:0100}", 2000)));
    drop(of_one);
    let of_two = restored(&[&full, &one, &two], &to);
    assert_eq!(read(&of_two, 17), Some(text(17, 2)));
    assert_eq!(read(&of_two, 2000), Some(text(2000, 2)));
    assert_eq!(count(&of_two, "a/t"), 2 * ROWS as u64);
}

/// INCREMENT-1
#[test]
fn what_does_not_go_together_is_refused() {
    let (dir, db) = database();
    let [full, one, two, other, to] =
        ["full", "one", "two", "other", "to"].map(|name| dir.path().join(name));
    db.backup(&full, BackupOptions::default()).unwrap();
    increment(&db, &one, &full).unwrap();
    increment(&db, &two, &one).unwrap();
    db.backup(&other, BackupOptions::default()).unwrap();
    let told = |chain: &[&PathBuf], says: &str| {
        let e = restore_chain(chain, &to).unwrap_err().to_string();
        assert!(e.contains(says), "{e}");
        assert!(!to.exists());
    };
    told(&[], "no backup");
    told(&[&one], "begins with");
    told(&[&one, &full], "begins with");
    told(&[&full, &two], "one is missing");
    told(&[&full, &two, &one], "one is missing");
    told(&[&full, &one, &one], "one is missing");
    told(&[&other, &one], "one is missing");
    told(&[&full, &other], "whole backup");
    // A restored database is another one: nobody knows what was written in it since.
    restore_chain(&[&full, &one, &two], &to).unwrap();
    let copy = Database::open(&to, small()).unwrap();
    let [bad, none] = ["bad", "none"].map(|name| dir.path().join(name));
    let e = increment(&copy, &bad, &two).unwrap_err().to_string();
    assert!(e.contains("not known which pages"), "{e}");
    assert!(!bad.exists());
    let e = increment(&db, &bad, &none).unwrap_err().to_string();
    assert!(e.contains(MANIFEST), "{e}");
    let foreign = dir.path().join("foreign");
    let foreign = Database::open(foreign, small()).unwrap();
    let e = increment(&foreign, &bad, &two).unwrap_err().to_string();
    assert!(e.contains("another database"), "{e}");
}

/// BACKUP-5
#[test]
fn an_increment_that_was_changed_is_refused_by_the_files_name() {
    let (dir, db) = database();
    let [full, one, to] = ["full", "one", "to"].map(|name| dir.path().join(name));
    db.backup(&full, BackupOptions::default()).unwrap();
    update(&db, (0..ROWS).step_by(100), 1);
    let db = reopened(db, small());
    increment(&db, &one, &full).unwrap();
    let changed = backed_up::files(&one.join("changed"));
    assert!(!changed.is_empty());
    for path in changed {
        let len = fs::metadata(&path).unwrap().len() as usize;
        let places = [0, len / 2, len - 30, len - 15, len - 11, len - 1];
        is_told(&path, &places, &[], || {
            let told = restore_chain(&[&full, &one], &to).unwrap_err();
            told.to_string()
        });
    }
    drop(restored(&[&full, &one], &to));
}

/// What is merged is a whole backup, and the base of others as its last increment is.
#[test]
fn increments_are_merged() {
    let (dir, db) = database();
    let [full, one, merged, two, to] =
        ["full", "one", "merged", "two", "to"].map(|name| dir.path().join(name));
    db.backup(&full, BackupOptions::default()).unwrap();
    update(&db, (0..ROWS).step_by(300), 1);
    let db = reopened(db, small());
    increment(&db, &one, &full).unwrap();
    let made = merge(&[&full, &one], &merged).unwrap();
    assert!(!made.is_increment);
    assert_eq!(verify(&merged).unwrap(), made);
    for dir in [&full, &one] {
        fs::remove_dir_all(dir).unwrap();
    }
    update(&db, (0..ROWS).step_by(200), 2);
    let db = reopened(db, small());
    increment(&db, &two, &merged).unwrap();
    let all = restored(&[&merged, &two], &to);
    assert_eq!(read(&all, 300), Some(text(300, 1)));
    assert_eq!(read(&all, 600), Some(text(600, 2)));
    drop(all);
    fs::remove_dir_all(&to).unwrap();
    assert_eq!(restore(&merged, &to).unwrap(), made);
    assert_eq!(
        count(&Database::open(&to, small()).unwrap(), "a/t"),
        ROWS as u64
    );
}

/// BACKUP-2, for what an increment does not have as a whole.
#[test]
fn tables_come_and_go_between_increments() {
    let (dir, db) = database();
    let [full, one, to] = ["full", "one", "to"].map(|name| dir.path().join(name));
    for name in ["a/dropped", "a/renamed", "a/emptied", "a/same"] {
        fill(&db, &table(&db, name), 0..300);
    }
    db.backup(&full, BackupOptions::default()).unwrap();
    db.drop_table("a/dropped").unwrap();
    fill(&db, &table(&db, "a/dropped"), 0..10);
    db.rename_table("a/renamed", "b/renamed").unwrap();
    db.truncate_table("a/emptied").unwrap();
    fill(&db, &table(&db, "a/new"), 0..300);
    let db = reopened(db, small());
    let mut backup = db
        .backup_in_steps(
            &one,
            BackupOptions {
                base: Some(full.clone()),
                ..BackupOptions::default()
            },
        )
        .unwrap();
    while backup.step().unwrap() {}
    db.rename_table("b/renamed", "a/again").unwrap();
    fill(&db, &table(&db, "a/newest"), 0..300);
    backup.finish().unwrap();
    let restored = restored(&[&full, &one], &to);
    assert_eq!(restored.tables().unwrap(), db.tables().unwrap());
    for (name, rows) in [
        ("a/dropped", 10),
        ("a/again", 300),
        ("a/emptied", 0),
        ("a/new", 300),
        ("a/newest", 300),
        ("a/same", 300),
        ("a/t", ROWS as u64),
    ] {
        assert_eq!(count(&restored, name), rows, "{name}");
    }
}

/// A page that takes less room than before leaves nothing of it behind.
#[test]
fn compressed_pages_come_over_longer_ones() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options {
        page_size: 16384,
        buffer_pool_bytes: 8 << 20,
        ..small()
    };
    let [data, full, one, to] = ["db", "full", "one", "to"].map(|name| dir.path().join(name));
    let db = Database::open(&data, options()).unwrap();
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("text", ColumnType::text(2000))
        .primary(&["id"])
        .compressed(Compression::LZ4);
    let table: Table = db.create_table(&def).unwrap();
    let long = |id: i64| {
        let mut state = id as u64 + 1;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            char::from(b'a' + (state >> 59) as u8)
        };
        (0..500).map(|_| next()).collect::<String>()
    };
    let put = |db: &Database, table: &Table, short: bool| {
        let mut trx = db.begin(Isolation::RepeatableRead);
        for id in 0..500 {
            let text = if short { "a".repeat(500) } else { long(id) };
            table.put(&mut trx, values![id, text]).unwrap();
        }
        trx.commit().unwrap();
    };
    put(&db, &table, false);
    drop(table);
    let db = reopened(db, options());
    db.backup(&full, BackupOptions::default()).unwrap();
    put(&db, &db.table("a/t").unwrap(), true);
    let db = reopened(db, options());
    increment(&db, &one, &full).unwrap();
    restore_chain(&[&full, &one], &to).unwrap();
    let restored = Database::open(&to, options()).unwrap();
    assert_eq!(count(&restored, "a/t"), 500);
    assert_eq!(read(&restored, 77), Some("a".repeat(500)));
}

/// BACKUP-6: a table that becomes encrypted between two backups, or while an increment is made, is so in what
/// both come to.
#[test]
fn what_was_encrypted_since_is_encrypted() {
    const SHOWN: &[u8] = b"00000000000000000017";
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
    for meanwhile in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let [data, full, one, to] = ["db", "full", "one", "to"].map(|name| dir.path().join(name));
        let db = Database::open(&data, options(false)).unwrap();
        fill(&db, &table(&db, "a/t"), 0..500);
        let db = reopened(db, options(false));
        db.backup(&full, BackupOptions::default()).unwrap();
        let encrypt = || {
            db.set_encrypt_tables(true).unwrap();
            db.rotate_encryption().unwrap();
        };
        if !meanwhile {
            encrypt();
        }
        let with_base = BackupOptions {
            base: Some(full.clone()),
            ..BackupOptions::default()
        };
        let mut backup = db.backup_in_steps(&one, with_base).unwrap();
        while backup.step().unwrap() {}
        if meanwhile {
            encrypt();
        }
        backup.finish().unwrap();
        restore_chain(&[&full, &one], &to).unwrap();
        let restored = Database::open(&to, options(true)).unwrap();
        update(&restored, 0..10, 1);
        assert_eq!(count(&restored, "a/t"), 500);
        restored.close().unwrap();
        let bytes = fs::read(to.join("a/t.vdt")).unwrap();
        let shows = bytes.windows(SHOWN.len()).any(|part| part == SHOWN);
        assert!(!shows, "encrypted meanwhile: {meanwhile}");
    }
}

/// Pages that were written before a crash, and are not written again after it.
fn crash_between(options: Options) -> Result<()> {
    const MORE_THAN_POOL: i64 = 15_000;
    let roomy = || Options {
        buffer_pool_bytes: 1 << 20,
        redo_capacity_bytes: 256 << 20,
        ..options.clone()
    };
    let dir = tempfile::tempdir().unwrap();
    let [data, full, one, to] = ["db", "full", "one", "to"].map(|name| dir.path().join(name));
    let db = Database::open(&data, roomy()).unwrap();
    // No index: purge has nothing to do with the pages afterwards.
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("text", ColumnType::text(2000))
        .primary(&["id"]);
    fill(&db, &db.create_table(&def).unwrap(), 0..MORE_THAN_POOL);
    let db = reopened(db, roomy());
    db.backup(&full, BackupOptions::default()).unwrap();
    update(&db, 0..MORE_THAN_POOL, 1);
    db.crash();
    let db = Database::open(&data, roomy()).unwrap();
    let db = reopened(db, roomy());
    increment(&db, &one, &full).unwrap();
    restore_chain(&[&full, &one], &to)?;
    let db = Database::open(&to, small())?;
    let report = db.check_table(&db.table("a/t")?)?;
    let is_new = (0..MORE_THAN_POOL).all(|id| read(&db, id) == Some(text(id, 1)));
    match report.errors.is_empty() && is_new {
        true => Ok(()),
        false => Err(varve::Error::Interrupted),
    }
}

/// TRACK-2
#[test]
fn what_was_written_before_a_crash_is_in_the_increment() {
    crash_between(small()).unwrap();
}

#[cfg(feature = "sabotage")]
#[test]
fn what_recovery_does_not_note_is_missed() {
    let sabotage = Some(varve::internals::base::Sabotage::RecoveredPagesNotNoted);
    let misses = || {
        let sabotaged = || {
            crash_between(Options {
                sabotage,
                ..small()
            })
        };
        varve_sim::panics::quietly(|| {
            let run = std::panic::AssertUnwindSafe(sabotaged);
            !matches!(std::panic::catch_unwind(run), Ok(Ok(())))
        })
    };
    assert!((0..10).any(|_| misses()));
}

/// TRACK-3: where it can't be noted what is written, the database goes on, and the next increment is
/// refused.
#[test]
fn what_can_not_be_noted_is_not_taken_for_all() {
    for failure in [Failure::Io, Failure::NoSpace] {
        let disk = SimDisk::default();
        let open = || Database::open_on(Arc::new(disk.clone()), Path::new("/data/db"), small());
        let db = open().unwrap();
        fill(&db, &table(&db, "a/t"), 0..300);
        db.backup("/backups/full", BackupOptions::default())
            .unwrap();
        let fault = Fault::always(Operation::Write, failure).on("/data/db/written-");
        disk.inject(fault.limited(0, 1));
        fill(&db, &db.table("a/t").unwrap(), 300..600);
        db.close().unwrap();
        disk.heal();
        let db = open().unwrap();
        let [full, one] = ["/backups/full", "/backups/one"].map(Path::new);
        let e = increment(&db, one, full).unwrap_err().to_string();
        assert!(e.contains("not known which pages"), "{e}");
        db.backup("/backups/again", BackupOptions::default())
            .unwrap();
        increment(&db, one, Path::new("/backups/again")).unwrap();
        let chain = ["/backups/again", "/backups/one"].map(Path::new);
        restore_on(&disk, &chain, Path::new("/restored")).unwrap();
    }
}

/// One that fails takes nothing from the next, nor does a crash in it.
#[test]
fn an_increment_that_fails_is_as_if_it_had_not_been() {
    let (dir, db) = database();
    let [full, bad, one, to] = ["full", "bad", "one", "to"].map(|name| dir.path().join(name));
    db.backup(&full, BackupOptions::default()).unwrap();
    update(&db, [1], 1);
    let begin = |db: &Database| {
        let options = BackupOptions {
            base: Some(full.clone()),
            ..BackupOptions::default()
        };
        let mut backup = db.backup_in_steps(&bad, options).unwrap();
        backup.step().unwrap();
        update(db, [2], 2);
        backup
    };
    for _ in 0..3 {
        drop(begin(&db));
    }
    let db = reopened(db, small());
    std::mem::forget(begin(&db));
    let data = db.dir().to_path_buf();
    db.crash();
    let db = Database::open(&data, small()).unwrap();
    let db = reopened(db, small());
    increment(&db, &one, &full).unwrap();
    let restored = restored(&[&full, &one], &to);
    assert_eq!(read(&restored, 1), Some(text(1, 1)));
    assert_eq!(read(&restored, 2), Some(text(2, 2)));
}
