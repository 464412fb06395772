//! A table that can't be opened keeps nobody from using the others, can be dropped, and is whole again when
//! its file is.
//!
//! What could break here: the database does not open because one table's file is gone, and a transaction that
//! had not ended wrote to it; that transaction's other changes stay; its undo is thrown away, so that the
//! table comes back with half a transaction in it; a broken table can't be dropped, or blocks its name.

#[path = "support/dying_disk.rs"]
mod dying_disk;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dying_disk::DyingDisk;
use rand::SeedableRng;
use rand::rngs::SmallRng;
#[cfg(feature = "sabotage")]
use varve::internals::base::{StopPoint, Stops};
use varve::internals::io::{Disk, OpenMode};
use varve::internals::page::{PageType, page_type, seal};
use varve::offline::table_file_on;
use varve::{
    ColumnType, Database, Error, Isolation, KeyMatch, LockMode, LogLevel, Options, TableDef, Value,
    Xid,
};
use varve_sim::{CrashPoints, SimDisk};

const PAGE: usize = 4096;
const ROWS: i64 = 300;

type Log = Arc<Mutex<Vec<String>>>;

fn open(disk: &SimDisk, log: &Log) -> Database {
    let log = log.clone();
    let options = Options {
        page_size: PAGE as u32,
        buffer_pool_bytes: 2 << 20,
        redo_capacity_bytes: 4 << 20,
        log_buffer_bytes: 2 << 20,
        logger: Some(Arc::new(move |level, message| {
            if level != LogLevel::Note {
                log.lock().unwrap().push(message.to_string());
            }
        })),
        ..Options::default()
    };
    let db = Database::open_on(Arc::new(disk.clone()), Path::new("/db"), options).unwrap();
    assert!(db.wait_for_recovery(Duration::from_secs(60)));
    db
}

fn definition(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("c", ColumnType::Bytes(200))
        .primary(&["id"])
        .index("c", &["c"])
}

fn put(db: &Database, trx: &mut varve::Transaction, name: &str, ids: std::ops::Range<i64>) {
    let table = db.table(name).unwrap();
    for id in ids {
        let row = [Value::Int(id), Value::Bytes(vec![id as u8; 50])];
        let row = table.def().row(&row).unwrap();
        trx.insert(&table, &row.datums()).unwrap();
    }
}

fn rows(db: &Database, name: &str) -> i64 {
    let table = db.table(name).unwrap();
    let report = db.check_table(&table).unwrap();
    assert_eq!(report.errors, [""; 0], "{name}");
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    let mut n = 0;
    let mut more = cursor.first(&mut trx, LockMode::None).unwrap();
    while more {
        n += 1;
        more = cursor.next(&mut trx).unwrap();
    }
    n
}

/// Two tables with committed rows, and a transaction that changed both and had not ended: one table first and
/// last.
fn build() -> SimDisk {
    build_with(|_| {})
}

/// The same; `end` may do something with the transaction.
fn build_with(end: impl FnOnce(&mut varve::Transaction)) -> SimDisk {
    let disk = SimDisk::default();
    let db = open(&disk, &Log::default());
    for name in ["a/bad", "a/good"] {
        db.create_table(&definition(name)).unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        put(&db, &mut trx, name, 0..ROWS);
        trx.commit().unwrap();
    }
    let mut loser = db.begin(Isolation::RepeatableRead);
    put(&db, &mut loser, "a/bad", 1000..1100);
    put(&db, &mut loser, "a/good", 1000..1100);
    for name in ["a/good", "a/bad"] {
        let table = db.table(name).unwrap();
        let mut cursor = table.cursor(0).unwrap();
        let mut more = cursor.first(&mut loser, LockMode::Exclusive).unwrap();
        for _ in 0..100 {
            assert!(more);
            loser.delete(&table, &cursor).unwrap();
            more = cursor.next(&mut loser).unwrap();
        }
    }
    end(&mut loser);
    db.flush_log().unwrap();
    db.close().unwrap();
    drop(loser);
    disk
}

/// Where a name is in a page for the last time.
fn at(page: &[u8], name: &[u8]) -> Option<usize> {
    page.windows(name.len()).rposition(|w| w == name)
}

/// A page of definitions, with that of a/bad.
fn defines_bad(page: &[u8]) -> bool {
    page_type(page) == Some(PageType::Leaf) && at(page, b"a/bad").is_some()
}

fn damage_leaves(disk: &SimDisk) {
    let leaf = |page: &[u8]| page_type(page) == Some(PageType::Leaf);
    damage(disk, "/db/a/bad.vdt", leaf, |page| page[2000] ^= 1);
}

/// Row 0 of a table can be had: nobody holds a lock on it.
fn lock_first_row(db: &Database, name: &str) {
    let table = db.table(name).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    trx.set_lock_wait_timeout(std::time::Duration::ZERO);
    let mut cursor = table.cursor(0).unwrap();
    let key = 0i64.to_le_bytes();
    let found = cursor.seek(
        &mut trx,
        &[Some(&key)],
        KeyMatch::Exact,
        LockMode::Exclusive,
    );
    assert!(found.unwrap(), "{name}");
}

/// RB-2: a rollback that meets damage takes back what it can and leaves the rest to the next start; the
/// database goes on.
#[test]
fn a_prepared_transaction_is_rolled_back_in_spite_of_a_broken_table() {
    let xid = Xid::new(1, b"x", b"").unwrap();
    let (file, away) = (Path::new("/db/a/bad.vdt"), Path::new("/away"));
    let disk = build_with(|trx| trx.prepare(&xid).unwrap());
    disk.rename(file, away).unwrap();
    let log = Log::default();
    let db = open(&disk, &log);
    assert_eq!(db.prepared(), [xid]);
    db.rollback_prepared(&xid).unwrap();
    assert_eq!(db.prepared(), []);
    let said = log.lock().unwrap().join("\n");
    assert!(said.contains("is not rolled back in table a/bad"), "{said}");
    assert_eq!(rows(&db, "a/good"), ROWS);
    lock_first_row(&db, "a/good");
    // The undo tablespace that has what is left to be rolled back is not truncated.
    let truncated = [1, 2].map(|n| db.truncate_undo(n, Duration::from_secs(1)).unwrap());
    assert_eq!(truncated.iter().filter(|done| **done).count(), 1);
    db.close().unwrap();
    disk.rename(away, file).unwrap();
    let db = open(&disk, &Log::default());
    assert_eq!((rows(&db, "a/bad"), rows(&db, "a/good")), (ROWS, ROWS));
    db.close().unwrap();
}

/// The same while a session uses the table: it is told what is wrong, and nobody goes on with half a
/// transaction.
#[test]
fn a_rollback_that_finds_damage_closes_the_table() {
    let xid = Xid::new(1, b"x", b"").unwrap();
    let disk = build_with(|trx| trx.prepare(&xid).unwrap());
    let log = Log::default();
    let db = open(&disk, &log);
    let table = db.table("a/bad").unwrap();
    damage_leaves(&disk);
    db.rollback_prepared(&xid).unwrap();
    assert_eq!(rows(&db, "a/good"), ROWS);
    lock_first_row(&db, "a/good");
    let why = refused(&db, "a/bad");
    let row = [Value::Int(5000), Value::Bytes(vec![1])];
    let row = table.def().row(&row).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let refused = trx.insert(&table, &row.datums()).unwrap_err();
    assert_eq!(refused.to_string(), why);
    drop(trx);
    db.drop_table("a/bad").unwrap();
    db.create_table(&definition("a/bad")).unwrap();
    db.close().unwrap();
    let db = open(&disk, &Log::default());
    assert_eq!((rows(&db, "a/bad"), rows(&db, "a/good")), (0, ROWS));
    db.close().unwrap();
}

/// What is wrong with the table, and what the error says.
fn refused(db: &Database, name: &str) -> String {
    match db.table(name).map(drop) {
        Err(e @ (Error::Corrupt { .. } | Error::CorruptFile { .. })) => e.to_string(),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn a_missing_file_is_waited_for_and_the_rest_rolled_back() {
    let disk = build();
    let (file, away) = (Path::new("/db/a/bad.vdt"), Path::new("/away"));
    disk.rename(file, away).unwrap();
    for life in 0..2 {
        let log = Log::default();
        let db = open(&disk, &log);
        assert!(refused(&db, "a/bad").contains("no file that is it"));
        assert_eq!(rows(&db, "a/good"), ROWS, "life {life}");
        let said = log.lock().unwrap().join("\n");
        for part in [
            "table a/bad can't be used",
            "is not rolled back in table a/bad",
        ] {
            assert!(said.contains(part), "{said}");
        }
        let taken = db.create_table(&definition("a/bad")).map(drop);
        assert!(
            matches!(taken, Err(Error::AlreadyExists { .. })),
            "{taken:?}"
        );
        db.close().unwrap();
    }
    disk.rename(away, file).unwrap();
    let log = Log::default();
    let db = open(&disk, &log);
    assert_eq!((rows(&db, "a/bad"), rows(&db, "a/good")), (ROWS, ROWS));
    assert_eq!(log.lock().unwrap().len(), 0);
    db.close().unwrap();
}

/// Damages every page of the file for which `wanted` says so.
fn damage(disk: &dyn Disk, file: &str, wanted: impl Fn(&[u8]) -> bool, change: impl Fn(&mut [u8])) {
    let file = disk.open(Path::new(file), OpenMode::Existing).unwrap();
    let mut page = vec![0; PAGE];
    for at in (0..file.len().unwrap()).step_by(PAGE) {
        file.read_at(&mut page, at).unwrap();
        if wanted(&page) {
            change(&mut page);
            file.write_at(&page, at).unwrap();
        }
    }
}

#[test]
fn a_broken_table_can_be_dropped_and_made_again() {
    let leaf = |page: &[u8]| page_type(page) == Some(PageType::Leaf);
    let header = |page: &[u8]| page_type(page) == Some(PageType::FileHeader);
    let file = "/db/a/bad.vdt";
    type Break<'a> = &'a dyn Fn(&SimDisk);
    let kinds: [(&str, Break<'_>); 4] = [
        ("missing", &|disk| disk.remove(Path::new(file)).unwrap()),
        ("header", &|disk| {
            damage(disk, file, header, |page| page[60] ^= 1)
        }),
        ("leaves, checksums", &|disk| {
            damage(disk, file, leaf, |page| page[2000] ^= 1)
        }),
        ("leaves, owner", &|disk| {
            damage(disk, file, leaf, |page| {
                page[48] ^= 1;
                seal(page);
            });
        }),
    ];
    for (what, make_broken) in kinds {
        let disk = build();
        make_broken(&disk);
        let log = Log::default();
        let db = open(&disk, &log);
        refused(&db, "a/bad");
        assert_eq!(rows(&db, "a/good"), ROWS, "{what}");
        db.drop_table("a/bad")
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        let said = log.lock().unwrap().join("\n");
        assert!(said.contains("table a/bad was dropped"), "{what}: {said}");
        assert!(!disk.exists(Path::new(file)).unwrap(), "{what}");
        let again = db.drop_table("a/bad");
        assert!(matches!(again, Err(Error::NotFound { .. })), "{again:?}");
        db.create_table(&definition("a/bad")).unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        put(&db, &mut trx, "a/bad", 0..5);
        trx.commit().unwrap();
        db.close().unwrap();
        // The changes to the dropped table are nobody's now; nothing is left over.
        for life in 0..2 {
            let log = Log::default();
            let db = open(&disk, &log);
            assert_eq!(
                (rows(&db, "a/bad"), rows(&db, "a/good")),
                (5, ROWS),
                "{what}"
            );
            let said = log.lock().unwrap().join("\n");
            assert_eq!(said.contains("are forgotten"), life == 0, "{what}: {said}");
            db.close().unwrap();
        }
    }
}

#[test]
fn a_definition_that_cannot_be_read_costs_no_file() {
    let disk = build();
    // The first byte of the stored definition of a/bad: the version of its encoding.
    let name = b"a/bad";
    let change = |page: &mut [u8]| {
        let at = page.windows(name.len()).position(|w| w == name);
        let second = page.windows(name.len()).rposition(|w| w == name);
        // In the row, the name stands in the key, in its own column, and in the definition behind the table's
        // id.
        assert!(at.is_some() && at != second);
        let definition = second.unwrap() - 2 - 2 - 4 - 8 - 2;
        assert_eq!(page[definition..definition + 2], [1, 0]);
        page[definition] = 99;
        seal(page);
    };
    damage(&disk, "/db/system.vdt", defines_bad, change);
    let log = Log::default();
    let db = open(&disk, &log);
    let why = refused(&db, "a/bad");
    assert!(
        why.contains("the definition of table a/bad") && why.contains("format 99"),
        "{why}"
    );
    assert_eq!(rows(&db, "a/good"), ROWS);
    assert!(disk.exists(Path::new("/db/a/bad.vdt")).unwrap());
    db.drop_table("a/bad").unwrap();
    assert!(!disk.exists(Path::new("/db/a/bad.vdt")).unwrap());
    db.close().unwrap();
}

/// DDL-3: what a damaged definition calls its tablespace may be another table's, also after a crash.
#[test]
fn a_broken_table_that_is_dropped_takes_no_other_with_it() {
    let disk = build();
    // Before the name in the definition: its length, another number, and the tablespace.
    let change = |page: &mut [u8]| {
        let [bad, good] = [b"a/bad".as_slice(), b"a/good"].map(|n| at(page, n).unwrap() - 8);
        page.copy_within(good..good + 4, bad);
        seal(page);
    };
    damage(&disk, "/db/system.vdt", defines_bad, change);
    let log = Log::default();
    let db = open(&disk, &log);
    let why = refused(&db, "a/bad");
    assert!(why.contains("the tablespace of table a/bad"), "{why}");
    assert_eq!(rows(&db, "a/good"), ROWS);
    db.drop_table("a/bad").unwrap();
    assert_eq!(rows(&db, "a/good"), ROWS);
    db.crash();
    let db = open(&disk, &log);
    assert_eq!(rows(&db, "a/good"), ROWS);
    db.close().unwrap();
}

/// DDL-3: neither of two definitions that name one file can be used, and the file goes with the second one
/// that is dropped.
#[test]
fn a_file_that_two_broken_tables_have_goes_with_the_last() {
    let disk = build();
    // Before the name in the definition: its length, another number, the tablespace, and the table's number.
    let change = |page: &mut [u8]| {
        let [bad, good] = [b"a/bad".as_slice(), b"a/good"].map(|n| at(page, n).unwrap() - 8);
        page.copy_within(good..good + 4, bad);
        page[good - 8] ^= 0x40;
        seal(page);
    };
    damage(&disk, "/db/system.vdt", defines_bad, change);
    let db = open(&disk, &Log::default());
    let file = Path::new("/db/a/good.vdt");
    for (name, is_left) in [("a/bad", true), ("a/good", false)] {
        refused(&db, name);
        db.drop_table(name).unwrap();
        assert_eq!(disk.exists(file).unwrap(), is_left, "{name}");
    }
    db.close().unwrap();
    open(&disk, &Log::default()).close().unwrap();
}

/// DDL-3: a disk that loses the write of a page of definitions does not cost the rows of the tables that it
/// named.
#[test]
fn a_table_that_is_forgotten_is_put_aside() {
    let disk = build();
    open(&disk, &Log::default()).close().unwrap();
    let before = disk.copy();
    let db = open(&disk, &Log::default());
    for name in ["a/new", "a/empty"] {
        db.create_table(&definition(name)).unwrap();
    }
    let mut trx = db.begin(Isolation::RepeatableRead);
    put(&db, &mut trx, "a/new", 0..ROWS);
    trx.commit().unwrap();
    db.close().unwrap();
    // Intact, but older.
    let mut lost = 0;
    let file = before.open(Path::new("/db/system.vdt"), OpenMode::Existing);
    let (file, mut page) = (file.unwrap(), vec![0; PAGE]);
    for at in (0..file.len().unwrap()).step_by(PAGE) {
        file.read_at(&mut page, at).unwrap();
        if page_type(&page) == Some(PageType::Leaf) {
            lost += 1;
            let now = disk.open(Path::new("/db/system.vdt"), OpenMode::Existing);
            now.unwrap().write_at(&page, at).unwrap();
        }
    }
    assert_eq!(lost, 1, "all definitions in one leaf");
    // After a clean shutdown a file is looked at when its table is opened.
    open(&disk, &Log::default()).crash();

    for life in 0..2 {
        let log = Log::default();
        let db = open(&disk, &log);
        assert_eq!(db.tables().unwrap(), ["a/bad", "a/good"]);
        assert_eq!(rows(&db, "a/good"), ROWS);
        db.close().unwrap();
        let said = log.lock().unwrap().join("\n");
        assert_eq!(
            said.contains("a/new.vdt has rows") && said.contains("varve dump"),
            life == 0,
            "{said}"
        );
    }
    let mut files = disk.files();
    files.retain(|file| file.starts_with("/db/a"));
    let names: Vec<_> = files.iter().map(|file| file.to_str().unwrap()).collect();
    let [bad, good, aside] = names[..] else {
        panic!("{names:?}");
    };
    assert_eq!([bad, good], ["/db/a/bad.vdt", "/db/a/good.vdt"]);
    assert!(aside.starts_with("/db/a/new.vdt.unnamed-"), "{aside}");
    let saved = table_file_on(&disk, &files[2]).unwrap();
    assert_eq!(saved.salvage(&mut |_| Ok(())).unwrap().rows, ROWS as u64);
}

/// What recovery could not apply is gone: a file that comes back later would be old without anybody noticing.
#[test]
fn a_file_that_missed_a_recovery_is_not_used_again() {
    let disk = build();
    let log = Log::default();
    let db = open(&disk, &log);
    let mut trx = db.begin(Isolation::RepeatableRead);
    put(&db, &mut trx, "a/bad", 2000..2010);
    trx.commit().unwrap();
    db.crash();
    let (file, away) = (Path::new("/db/a/bad.vdt"), Path::new("/away"));
    disk.rename(file, away).unwrap();
    let db = open(&disk, &log);
    assert!(refused(&db, "a/bad").contains("no file that is it"));
    db.close().unwrap();
    disk.rename(away, file).unwrap();
    for _ in 0..2 {
        let db = open(&disk, &log);
        assert!(refused(&db, "a/bad").contains("was missing while a crash was recovered"));
        assert_eq!(rows(&db, "a/good"), ROWS);
        db.close().unwrap();
    }
    let db = open(&disk, &log);
    db.drop_table("a/bad").unwrap();
    let left = disk
        .files()
        .into_iter()
        .filter(|f| f.to_string_lossy().contains("bad"));
    assert_eq!(left.collect::<Vec<_>>(), Vec::<std::path::PathBuf>::new());
    db.close().unwrap();
}

/// REC-3: the same if the process dies anywhere in that recovery: the checkpoint does not pass what the file
/// has missed before its mark is there.
#[test]
fn a_file_that_missed_a_recovery_is_not_used_again_whenever_it_died() {
    let disk = build();
    let log = Log::default();
    let lives = 12;
    for n in 0..lives {
        let db = open(&disk, &log);
        let mut trx = db.begin(Isolation::RepeatableRead);
        put(&db, &mut trx, "a/bad", 2000 + n..2001 + n);
        trx.commit().unwrap();
        db.crash();
    }
    let (file, away) = (Path::new("/db/a/bad.vdt"), Path::new("/away"));
    disk.rename(file, away).unwrap();
    let disk = SimDisk::new(disk.image());
    open(&disk, &log).crash();
    let journal = disk.journal();
    let operations = journal.len();
    let mut points = CrashPoints::new(journal);
    let mut rng = SmallRng::seed_from_u64(7);
    let (mut whole, mut lost) = (0, 0);
    for operation in 0..=operations {
        points.advance(operation);
        let disk = SimDisk::new(points.crash(&mut rng));
        disk.rename(away, file).unwrap();
        let db = open(&disk, &log);
        match db.table("a/bad") {
            Ok(_) => {
                assert_eq!(rows(&db, "a/bad"), ROWS + lives, "{operation}");
                whole += 1;
            }
            Err(_) => {
                let why = refused(&db, "a/bad");
                assert!(why.contains("was missing while"), "{operation}: {why}");
                lost += 1;
            }
        }
        assert_eq!(rows(&db, "a/good"), ROWS, "{operation}");
        db.close().unwrap();
    }
    assert!(whole > 0 && lost > 0, "{whole} and {lost}");
}

/// A database on `disk` with a redo log of this capacity. `said` hears what it tells.
fn open_in(
    disk: &DyingDisk,
    dir: &Path,
    redo_capacity_bytes: u64,
    said: impl Fn(&str) + Send + Sync + 'static,
) -> varve::Result<Database> {
    let options = options_with(redo_capacity_bytes, said);
    Database::open_on(Arc::new(disk.clone()), dir, options)
}

fn options_with(redo_capacity_bytes: u64, said: impl Fn(&str) + Send + Sync + 'static) -> Options {
    Options {
        page_size: PAGE as u32,
        buffer_pool_bytes: 16 << 20,
        redo_capacity_bytes,
        log_buffer_bytes: 2 << 20,
        logger: Some(Arc::new(move |_, message| said(message))),
        ..Options::default()
    }
}

const LARGE_LOG: u64 = 64 << 20;
const SMALL_LOG: u64 = 2 << 20;

/// A database that died with a transaction that had not ended, and with so much redo that opening it with a
/// small log applies all of it first. Of a/bad 300 rows are stored, and ten are in the log only.
fn with_long_log() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let disk = DyingDisk::new();
    let db = open_in(&disk, dir.path(), LARGE_LOG, |_| {}).unwrap();
    for name in ["a/bad", "a/good"] {
        db.create_table(&definition(name)).unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        put(&db, &mut trx, name, 0..ROWS);
        trx.commit().unwrap();
    }
    db.close().unwrap();
    let db = open_in(&disk, dir.path(), LARGE_LOG, |_| {}).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    put(&db, &mut trx, "a/bad", 2000..2010);
    trx.commit().unwrap();
    let mut loser = db.begin(Isolation::RepeatableRead);
    put(&db, &mut loser, "a/good", 2000..20_000);
    db.flush_log().unwrap();
    db.crash();
    drop(loser);
    dir
}

/// REC-3: the checkpoint waits for the mark of a file that missed redo, also where nothing else holds it and
/// the log is too full to wait for anything. The process dies in between.
#[cfg(feature = "sabotage")]
#[test]
fn the_checkpoint_waits_for_the_mark() {
    let dir = with_long_log();
    let (file, away) = (dir.path().join("a/bad.vdt"), dir.path().join("away"));
    std::fs::rename(&file, &away).unwrap();
    let disk = DyingDisk::new();
    let (dies, stops) = (disk.clone(), Arc::<Stops>::default());
    let until_checkpoint = stops.clone();
    let options = options_with(SMALL_LOG, move |message| {
        if message.contains("rolling back 1 transactions") {
            // Who comes there again is through with the one before.
            for _ in 0..2 {
                let stop = until_checkpoint.set(StopPoint::Checkpoint);
                stop.wait();
                stop.wait();
            }
            dies.live_for(0);
        }
    });
    let options = Options { stops, ..options };
    let died = Database::open_on(Arc::new(disk.clone()), dir.path(), options);
    assert!(died.is_err());
    drop(died);
    std::fs::rename(&away, &file).unwrap();
    let db = open_in(&DyingDisk::new(), dir.path(), LARGE_LOG, |_| {}).unwrap();
    assert!(db.wait_for_recovery(Duration::from_secs(60)));
    assert_eq!(rows(&db, "a/bad"), ROWS + 10);
    assert_eq!(rows(&db, "a/good"), ROWS);
    db.close().unwrap();
}

/// REC-6 where everything is applied before the database opens.
#[test]
fn damage_costs_its_table_only_if_all_is_applied_at_once() {
    let dir = with_long_log();
    let disk = DyingDisk::new();
    let file = dir.path().join("a/bad.vdt");
    let leaf = |page: &[u8]| page_type(page) == Some(PageType::Leaf);
    damage(&disk, file.to_str().unwrap(), leaf, |page| page[2000] ^= 1);
    for _ in 0..2 {
        let db = open_in(&disk, dir.path(), SMALL_LOG, |_| {}).unwrap();
        assert!(db.recovery_progress().pages < 20, "the rest was applied");
        assert!(db.wait_for_recovery(Duration::from_secs(60)));
        refused(&db, "a/bad");
        assert_eq!(rows(&db, "a/good"), ROWS);
        db.close().unwrap();
    }
}
