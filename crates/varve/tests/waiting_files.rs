//! A user's file lies where a discarded table's would be, and waits to be imported, while the database stops
//! and starts.
//!
//! What could break here: a start that looks for files before it knows the definitions takes the user's file
//! for a tablespace, of which redo speaks: the file is removed, renamed, extended or written, or another
//! table's own file is not used; the check of the database calls it damage.

#[path = "support/versions.rs"]
mod versions;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use varve::internals::io::{Disk, OpenMode};
use varve::offline::{Grade, check_on};
use varve::{Database, Error, ForeignKeyChecks, Isolation, LockMode, Options, RedefinitionWaits};
use varve_sim::{Failure, Fault, Operation, SimDisk};
use versions::{definition, delete, insert, read, set};

const ROWS: i64 = 300;
const SPILL: &str = "/db/varve.recovery";

fn options() -> Options {
    Options {
        page_size: 4096,
        buffer_pool_bytes: 4 << 20,
        redo_capacity_bytes: 8 << 20,
        recovery_memory_bytes: 20_000,
        logger: Some(Arc::new(|_, _| {})),
        ..Options::default()
    }
}

fn open(disk: &SimDisk, options: Options) -> Database {
    let is_left = options.recovery_threads == Some(0) || options.force_recovery >= 4;
    let db = Database::open_on(Arc::new(disk.clone()), Path::new("/db"), options);
    let db = db.unwrap();
    assert!(is_left || db.wait_for_recovery(Duration::from_secs(60)));
    db
}

fn place(name: &str) -> PathBuf {
    PathBuf::from(format!("/db/{name}.vdt"))
}

fn contents(disk: &SimDisk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, OpenMode::ReadOnly).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// As a user does it.
fn put(disk: &SimDisk, path: &Path, bytes: &[u8]) {
    let file = disk.open(path, OpenMode::CreateNew).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
    disk.sync_dir(path.parent().unwrap()).unwrap();
}

fn fill(db: &Database, name: &str) {
    let table = db.create_table(&definition(name)).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    (0..ROWS).for_each(|id| insert(&mut trx, &table, id, 1).unwrap());
    trx.commit().unwrap();
}

fn exported(db: &Database, disk: &SimDisk, name: &str) -> Vec<u8> {
    let export = db.export_table(name, RedefinitionWaits::default());
    let _export = export.unwrap();
    contents(disk, &place(name))
}

fn change(db: &Database, name: &str) {
    let table = db.table(name).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    (0..ROWS).for_each(|id| set(&mut trx, &table, id, 2).unwrap());
    delete(&mut trx, &table, 0).unwrap();
    trx.commit().unwrap();
}

fn versions_of(db: &Database, name: &str) -> Vec<Option<i64>> {
    let table = db.table(name).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let read = |id| read(&mut trx, &table, id, LockMode::None).unwrap();
    (0..ROWS).map(read).collect()
}

/// Files that wait: `s/own` for the one that it had, which redo removes; `s/copy` for one of `s/t`, which had
/// another name then.
struct Waiting {
    disk: SimDisk,
    own: Vec<u8>,
    copy: Vec<u8>,
}

impl Waiting {
    fn new() -> Waiting {
        let disk = SimDisk::default();
        let db = open(&disk, options());
        fill(&db, "s/was");
        fill(&db, "s/own");
        db.close().unwrap();
        let db = open(&disk, options());
        db.create_table(&definition("s/copy")).unwrap();
        let (own, copy) = (exported(&db, &disk, "s/own"), exported(&db, &disk, "s/was"));
        change(&db, "s/own");
        change(&db, "s/was");
        for name in ["s/own", "s/copy"] {
            db.discard_table(name, ForeignKeyChecks::On).unwrap();
        }
        put(&disk, &place("s/own"), &own);
        put(&disk, &place("s/copy"), &copy);
        db.rename_table("s/was", "s/t").unwrap();
        db.crash();
        Waiting { disk, own, copy }
    }

    fn check(&self, disk: &SimDisk, context: &str) {
        for (name, bytes) in [("s/own", &self.own), ("s/copy", &self.copy)] {
            assert!(
                contents(disk, &place(name)) == *bytes,
                "{context}: {name} was written"
            );
        }
    }
}

/// Two tables wait, and one has its rows.
fn is_as_it_was(db: &Database, context: &str) {
    for name in ["s/own", "s/copy"] {
        let refused = db.table(name).map(drop);
        assert!(
            matches!(refused, Err(Error::TablespaceDiscarded { .. })),
            "{context}: {refused:?}"
        );
    }
    let versions = versions_of(db, "s/t");
    assert_eq!(versions[0], None, "{context}");
    assert_eq!(versions[1..], [Some(2); ROWS as usize - 1], "{context}");
}

/// SP-13, IMPORT-2
#[test]
fn a_start_leaves_a_file_that_waits_as_it_is() {
    let waiting = Waiting::new();
    let forced = |force_recovery| Options {
        force_recovery,
        ..options()
    };
    let alone = Options {
        recovery_threads: Some(0),
        ..options()
    };
    let no_room = Fault::always(Operation::Any, Failure::NoSpace).on(SPILL);
    let mut starts = vec![
        ("later", options(), None),
        ("now", alone, None),
        ("no room for redo", options(), Some(no_room)),
    ];
    starts.extend((1..=6).map(|level| ("forced", forced(level), None)));
    for (what, options, fault) in starts {
        let level = options.force_recovery;
        let context = format!("{what} {level}");
        let disk = waiting.disk.copy();
        fault.into_iter().for_each(|fault| disk.inject(fault));
        let db = open(&disk, options);
        // Level 6 reads files as they are, those of the definitions, too.
        if level < 6 {
            is_as_it_was(&db, &context);
        }
        waiting.check(&disk, &context);
        disk.heal();
        db.crash();
        waiting.check(&disk, &context);
        // What the start has made of it can be used.
        let db = open(&disk, self::options());
        is_as_it_was(&db, &context);
        waiting.check(&disk, &format!("after {context}"));
        for name in ["s/own", "s/copy"] {
            db.import_table(name, RedefinitionWaits::default()).unwrap();
            assert_eq!(versions_of(&db, name), [Some(1); ROWS as usize]);
        }
        db.close().unwrap();
        assert_eq!(
            disk.files()
                .iter()
                .filter(|p| p.starts_with("/db/s"))
                .count(),
            3,
            "{context}: {:?}",
            disk.files()
        );
    }
}

/// What `varve check` says of it is no damage, and whose it is.
#[test]
fn a_check_says_what_waits() {
    let waiting = Waiting::new();
    let told = |disk: &SimDisk| {
        let mut told = Vec::new();
        check_on(Arc::new(disk.clone()), Path::new("/db"), &mut |finding| {
            assert!(finding.grade != Grade::Damage, "{finding}");
            told.push(finding.what.clone());
        })
        .unwrap();
        told
    };
    for is_closed in [false, true] {
        if is_closed {
            open(&waiting.disk, options()).close().unwrap();
        }
        let told = told(&waiting.disk);
        for (table, of) in [("s/own", "s/own"), ("s/copy", "s/was")] {
            let words = format!("of table {table} was discarded");
            let end = format!("a file of table {of} waits in its place");
            let is_it = |what: &String| what.contains(&words) && what.ends_with(&end);
            assert!(told.iter().any(is_it), "{told:?}");
        }
        waiting.check(&waiting.disk, "the check");
    }
}
