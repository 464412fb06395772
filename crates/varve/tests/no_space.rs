//! A full disk refuses new work by name, undoing work goes on, and everything goes on when there is room
//! again.
//!
//! What could break here: a statement that can't have a page poisons the database or leaves half of itself; a
//! rollback that needs pages (rows that were shortened get their length back, in leaves that others have
//! filled) fails; the redo log wants a file more; DDL leaves files behind; what would make room, dropping a
//! table, is refused.

#[path = "support/dying_disk.rs"]
mod dying_disk;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dying_disk::DyingDisk;
use varve::{
    ColumnType, Database, Error, Isolation, KeyMatch, LockMode, Options, RedefinitionWaits, Result,
    Table, TableDef, Transaction, Value,
};

const REDO: u64 = 4 << 20;
const ROWS: i64 = 3000;

type Log = Arc<Mutex<Vec<String>>>;

fn options(log: &Log) -> Options {
    let log = log.clone();
    Options {
        page_size: 4096,
        buffer_pool_bytes: 4 << 20,
        redo_capacity_bytes: REDO,
        log_buffer_bytes: 2 << 20,
        undo_tablespaces: 1,
        logger: Some(Arc::new(move |_, m| log.lock().unwrap().push(m.into()))),
        ..Options::default()
    }
}

fn open(disk: &DyingDisk, dir: &Path, log: &Log) -> Result<Database> {
    Database::open_on(Arc::new(disk.clone()), dir, options(log))
}

/// An empty directory on a disk with room.
fn place() -> (tempfile::TempDir, DyingDisk, Log) {
    let dir = tempfile::tempdir().unwrap();
    (dir, DyingDisk::new(), Log::default())
}

/// Commits 300 rows of 300 bytes.
fn fill(db: &Database, table: &Table) {
    let mut trx = db.begin(Isolation::RepeatableRead);
    (0..300).for_each(|id| insert(&mut trx, table, id, 300).unwrap());
    trx.commit().unwrap();
}

fn create(db: &Database) -> Table {
    create_named(db, "a/t")
}

fn create_named(db: &Database, name: &str) -> Table {
    let def = TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("c", ColumnType::Bytes(1000))
        .primary(&["id"])
        .add_index(varve::IndexDef::new(
            "c",
            vec![varve::KeyPart::new(1).prefix(20)],
        ));
    db.create_table(&def).unwrap()
}

fn insert(trx: &mut Transaction, table: &Table, id: i64, len: usize) -> Result<()> {
    let row = [Value::Int(id), Value::Bytes(vec![id as u8; len])];
    trx.insert(table, &table.def().row(&row)?.datums())
}

fn update(trx: &mut Transaction, table: &Table, id: i64, len: usize, fill: u8) -> Result<()> {
    // The index has the first 20 bytes.
    let bytes = (0..len).map(|at| if at < 20 { id as u8 } else { fill });
    set(trx, table, id, bytes.collect())
}

fn set(trx: &mut Transaction, table: &Table, id: i64, bytes: Vec<u8>) -> Result<()> {
    let mut cursor = table.cursor(0)?;
    let key = table.def().key(0, &[Value::Int(id)])?;
    assert!(cursor.seek(trx, &key.datums(), KeyMatch::Exact, LockMode::Exclusive)?);
    let row = [Value::Int(id), Value::Bytes(bytes)];
    trx.update(table, &cursor, &table.def().row(&row)?.datums())?;
    Ok(())
}

/// Does `work` until it is refused; returns how often it was done, and the refusal.
fn until_refused(mut work: impl FnMut(i64) -> Result<()>) -> (i64, String) {
    for n in 0..1_000_000 {
        match work(n) {
            Ok(()) => {}
            Err(Error::NoSpace { what }) => return (n, what),
            Err(e) => panic!("{e:?}"),
        }
    }
    panic!("the disk is never full");
}

fn status(db: &Database, name: &str) -> u64 {
    let status = db.status();
    status.iter().find(|s| s.0 == name).unwrap().1
}

fn check(db: &Database, table: &Table, rows: i64) {
    let report = db.check_table(table).unwrap();
    assert_eq!((report.errors, report.rows as i64), (vec![], rows));
}

#[test]
fn work_is_refused_and_undone_and_goes_on() {
    let (dir, disk, log) = place();
    let db = open(&disk, dir.path(), &log).unwrap();
    let table = create(&db);
    fill(&db, &table);
    disk.fill_up_for("");

    // Rows that were inserted before the refusal can be kept, or taken back.
    for (commit, from) in [(false, 1000), (true, 2000)] {
        let mut trx = db.begin(Isolation::RepeatableRead);
        let (done, why) = until_refused(|n| insert(&mut trx, &table, from + n, 900));
        assert!(why.contains("a/t.vdt") || why.contains("undo_001"), "{why}");
        assert!(done > 0);
        match commit {
            false => trx.rollback().unwrap(),
            true => trx.commit().unwrap(),
        }
        check(&db, &table, if commit { 300 + done } else { 300 });
    }
    let rows = db.check_table(&table).unwrap().rows as i64;

    // Undo fills up, too: one large transaction that changes rows in place.
    let mut trx = db.begin(Isolation::RepeatableRead);
    let (_, why) = until_refused(|n| update(&mut trx, &table, n % 300, 300, (n / 300) as u8 ^ 77));
    assert!(why.contains("undo_001"), "{why}");
    trx.rollback().unwrap();
    check(&db, &table, rows);

    // DDL leaves nothing behind.
    let refused = db.create_table(&TableDef::new("b/new").column("id", ColumnType::i64()));
    let refused = refused.map(drop).unwrap_err();
    assert!(
        matches!(&refused, Error::NoSpace { what } if what.contains("b/new")),
        "{refused}"
    );
    assert!(!dir.path().join("b/new.vdt").exists());

    // The redo log goes round in the files that it has.
    disk.fill_up_for("redo/");
    let written = |db: &Database| status(db, "os_log_written");
    let (before, mut n) = (written(&db), 0);
    while written(&db) < before + (10 << 20) {
        let mut trx = db.begin(Isolation::RepeatableRead);
        (0..20).for_each(|i| update(&mut trx, &table, i, 300, n).unwrap());
        trx.commit().unwrap();
        n = n.wrapping_add(1);
    }

    disk.make_room();
    let mut trx = db.begin(Isolation::RepeatableRead);
    (5000..8000).for_each(|id| insert(&mut trx, &table, id, 900).unwrap());
    trx.commit().unwrap();
    check(&db, &table, rows + 3000);
    db.close().unwrap();
    // Who keeps the database was told once, and that it is over.
    let log = log.lock().unwrap();
    let told = |words: &str| log.iter().filter(|m| m.contains(words)).count();
    assert_eq!(told("statements that need room are refused"), 1, "{log:?}");
    assert_eq!(told("there is space again"), 1, "{log:?}");
}

#[test]
fn a_rollback_that_needs_more_than_is_kept_waits() {
    let (dir, disk, log) = place();
    let db = open(&disk, dir.path(), &log).unwrap();
    let table = create(&db);
    let mut trx = db.begin(Isolation::RepeatableRead);
    (0..600).for_each(|id| insert(&mut trx, &table, id * 10, 900).unwrap());
    trx.commit().unwrap();
    let mut shortened = db.begin(Isolation::RepeatableRead);
    (0..600).for_each(|id| update(&mut shortened, &table, id * 10, 0, 0).unwrap());
    disk.fill_up_for("a/t.vdt");
    // Others take the place between those rows.
    let mut trx = db.begin(Isolation::RepeatableRead);
    let (filled, _) = until_refused(|n| insert(&mut trx, &table, n / 9 * 10 + n % 9 + 1, 200));
    trx.commit().unwrap();

    let says_it_waits = || {
        let log = log.lock().unwrap();
        log.iter().any(|m| m.contains("a rollback waits for space"))
    };
    std::thread::scope(|s| {
        let rollback = s.spawn(|| shortened.rollback());
        let begun = Instant::now();
        while !says_it_waits() {
            assert!(
                !rollback.is_finished(),
                "the test needs another filling: {filled}"
            );
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(5));
        }
        // Others are not kept from what they can do.
        let mut trx = db.begin(Isolation::RepeatableRead);
        update(&mut trx, &table, 1, 200, 9).unwrap();
        trx.commit().unwrap();
        disk.make_room();
        rollback.join().unwrap().unwrap();
    });
    check(&db, &table, 600 + filled);
    db.close().unwrap();
}

/// A change buffer for which there is no room is not made: entries go to the index's own tree as long as that
/// has room.
#[test]
fn without_room_for_a_change_buffer_changes_are_not_buffered() {
    let (dir, disk, log) = place();
    let db = open(&disk, dir.path(), &log).unwrap();
    let table = create(&db);
    fill(&db, &table);
    disk.fill_up_for("a/t.vdt");
    let mut trx = db.begin(Isolation::RepeatableRead);
    let (inserted, _) = until_refused(|n| insert(&mut trx, &table, 1000 + n, 900));
    trx.commit().unwrap();
    let rows = 300 + inserted;

    db.buffer_all_changes(true);
    let another = |id: i64| {
        let mut trx = db.begin(Isolation::RepeatableRead);
        set(&mut trx, &table, id, vec![!id as u8; 300])?;
        trx.commit()
    };
    let pages = || status(&db, "ibuf_size");
    let done = (0..50).filter(|&id| another(id).is_ok()).count();
    assert!(
        done > 0 && pages() == 0,
        "{done} changes, {} pages",
        pages()
    );
    check(&db, &table, rows);
    disk.make_room();
    (50..100).for_each(|id| another(id).unwrap());
    assert!(pages() > 0);
    check(&db, &table, rows);
    assert!(db.merge_changes("a/t", 1000).unwrap() > 0);
    check(&db, &table, rows);
    db.close().unwrap();
}

/// SP-9, SP-10: a view keeps purge from giving back what the statements before took. What was taken is there
/// again the next time.
#[test]
fn tables_are_renamed_emptied_and_dropped_on_a_full_disk() {
    let (dir, disk, log) = place();
    let db = open(&disk, dir.path(), &log).unwrap();
    let table = create(&db);
    fill(&db, &table);
    create_named(&db, "a/long");
    for _ in 0..2 {
        let names: Vec<_> = (0..40).map(|n| format!("b/t{n}")).collect();
        for name in &names {
            let definition = TableDef::new(name).column("id", ColumnType::i64());
            db.create_table(&definition).unwrap();
        }
        fill(&db, &db.table("a/long").unwrap());
        let mut view = db.begin(Isolation::RepeatableRead);
        view.take_snapshot();
        disk.fill_up_for("");
        let mut trx = db.begin(Isolation::RepeatableRead);
        let work = |n| update(&mut trx, &table, n % 300, 300, (n / 300) as u8 ^ 77);
        let (_, why) = until_refused(work);
        assert!(why.contains("undo_001"), "{why}");
        // An ALTER TABLE that made its copy just before the disk was full comes to its end.
        db.rename_table("b/t0", "b/#backup").unwrap();
        db.rename_table("b/t1", "b/t0").unwrap();
        db.rename_table("b/#backup", "b/t1").unwrap();
        db.truncate_table("a/long").unwrap();
        check(&db, &db.table("a/long").unwrap(), 0);
        // There was one spare, and what was given back is no room on this disk.
        let again = db.truncate_table("a/long");
        assert!(matches!(again, Err(Error::NoSpace { .. })), "{again:?}");
        for name in &names {
            db.drop_table(name).unwrap();
            assert!(!dir.path().join(format!("{name}.vdt")).exists());
        }
        trx.rollback().unwrap();
        drop(view);
        check(&db, &table, 300);
        disk.make_room();
    }
    db.close().unwrap();
}

/// An index is built in the table's own file, a rebuild writes another one, and both sort in a third:
/// wherever there is no room, the change is refused by the name of the file, and the table stays as it was,
/// also for those who write meanwhile. With room it is done.
#[test]
fn definitions_change_when_there_is_room_again() {
    let (dir, disk, log) = place();
    let small_sorts = Options {
        sort_buffer_bytes: 64 << 10,
        ..options(&log)
    };
    let db = Database::open_on(Arc::new(disk.clone()), dir.path(), small_sorts).unwrap();
    let table = create(&db);
    let mut trx = db.begin(Isolation::RepeatableRead);
    (0..ROWS).for_each(|id| insert(&mut trx, &table, id, 300).unwrap());
    trx.commit().unwrap();
    let now = table.def().clone();
    let indexed = || {
        let part = varve::KeyPart::new(1).prefix(250);
        now.clone()
            .add_index(varve::IndexDef::new("longer", vec![part]))
    };
    let files = || {
        let entries = std::fs::read_dir(dir.path().join("a")).unwrap();
        entries.count()
    };
    let mut rows = ROWS;
    for (full, rebuilds) in [
        ("a/t.vdt", false),
        ("varve.sort", false),
        ("a/#", true),
        ("varve.sort", true),
    ] {
        disk.fill_up_for(full);
        let prepared = match rebuilds {
            false => db.prepare_redefinition(&indexed(), RedefinitionWaits::default()),
            true => db.prepare_rebuild(&now, RedefinitionWaits::default()),
        };
        // A new file may have no room for its first pages.
        let built = prepared.and_then(|mut prepared| {
            let built = prepared.build(&mut |_, _| {});
            // Others write what is noted for a change that has failed.
            let mut trx = db.begin(Isolation::RepeatableRead);
            update(&mut trx, &table, 7, 300, rows as u8).unwrap();
            trx.commit().unwrap();
            built
        });
        let refused = built.unwrap_err();
        assert!(
            matches!(&refused, Error::NoSpace { what } if what.contains(full)),
            "{full}: {refused:?}"
        );
        check(&db, &table, rows);
        assert_eq!((table.def().indexes.len(), files()), (1, 1), "{full}");
        disk.make_room();
        let mut trx = db.begin(Isolation::RepeatableRead);
        insert(&mut trx, &table, rows, 300).unwrap();
        trx.commit().unwrap();
        rows += 1;
    }
    drop(table);
    db.redefine_table(&indexed()).unwrap();
    check(&db, &db.table("a/t").unwrap(), rows);
    db.rebuild_table(&indexed()).unwrap();
    check(&db, &db.table("a/t").unwrap(), rows);
    db.close().unwrap();
}

#[test]
fn a_database_is_not_made_on_a_full_disk() {
    let (dir, disk, log) = place();
    disk.fill_up_for("");
    let refused = open(&disk, dir.path(), &log).map(drop).unwrap_err();
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused:?}");
    disk.make_room();
    open(&disk, dir.path(), &log).unwrap().close().unwrap();
}

/// A process that dies on a full disk leaves a database that opens there, and so does one that dies while it
/// opens that.
#[test]
fn a_database_opens_on_a_full_disk_whenever_it_died() {
    let (dir, disk, log) = place();
    let db = open(&disk, dir.path(), &log).unwrap();
    let table = create(&db);
    create_named(&db, "a/other");
    fill(&db, &table);
    drop(table);
    db.close().unwrap();

    let work = |db: &Database, fill| {
        let table = db.table("a/t")?;
        let mut trx = db.begin(Isolation::RepeatableRead);
        (0..5).try_for_each(|id| update(&mut trx, &table, id, 300, fill))?;
        trx.commit()?;
        let mut unfinished = db.begin(Isolation::RepeatableRead);
        (0..9).try_for_each(|id| update(&mut unfinished, &table, id, 300, !fill))?;
        db.truncate_table("a/other")?;
        db.rename_table("a/other", "a/another")?;
        db.rename_table("a/another", "a/other")?;
        std::mem::forget(unfinished);
        Ok::<_, Error>(())
    };
    let (mut in_opening, mut in_work, mut lives) = (0, 0, 0);
    let mut is_through = false;
    while !is_through {
        let disk = DyingDisk::new();
        disk.fill_up_for("");
        disk.live_for(lives);
        match open(&disk, dir.path(), &log) {
            Ok(db) => {
                let done = work(&db, lives as u8);
                is_through = done.is_ok();
                in_work += i32::from(!is_through);
                disk.live_for(0);
                db.crash();
            }
            Err(e) => {
                assert!(!matches!(e, Error::NoSpace { .. }), "{lives}: {e}");
                in_opening += 1;
            }
        }
        let disk = DyingDisk::new();
        disk.fill_up_for("");
        let db = open(&disk, dir.path(), &log).unwrap_or_else(|e| panic!("{lives}: {e}"));
        check(&db, &db.table("a/t").unwrap(), 300);
        // The next life has the same to do, and a spare.
        disk.fill_up_for("redo/");
        if db.table("a/other").is_err() {
            db.rename_table("a/another", "a/other").unwrap();
        }
        db.truncate_table("a/other").unwrap();
        disk.live_for(0);
        db.crash();
        lives += 1;
    }
    assert!(in_opening > 20 && in_work > 20, "{in_opening} {in_work}");
}

/// The capacity of the redo log, and with it the length of its files, may be another one at each start, and
/// be changed in between: what there is no room for is told, and the database goes on with the files that it
/// has.
#[test]
fn the_redo_log_changes_its_capacity_on_a_full_disk() {
    let (dir, disk, log) = place();
    let db = open(&disk, dir.path(), &log).unwrap();
    let table = create(&db);
    fill(&db, &table);
    drop(table);
    db.close().unwrap();
    let opened = |capacity: u64| {
        let options = Options {
            redo_capacity_bytes: capacity,
            ..options(&log)
        };
        Database::open_on(Arc::new(disk.clone()), dir.path(), options).unwrap()
    };
    let sizes = [
        16 * REDO,
        REDO,
        REDO / 2,
        2 * REDO,
        64 * REDO,
        REDO / 2,
        REDO,
    ];
    for (n, capacity) in sizes.into_iter().enumerate() {
        disk.fill_up_for("redo/");
        let db = opened(capacity);
        let in_force = status(&db, "redo_log_capacity_resized");
        assert!(
            in_force >= capacity.min(REDO) / 2,
            "{in_force} of {capacity}"
        );
        let refused = db.set_redo_capacity_bytes(100 * REDO).unwrap_err();
        assert!(matches!(refused, Error::NoSpace { .. }), "{refused:?}");
        assert!(
            refused
                .to_string()
                .contains("redo log files for a capacity"),
            "{refused}"
        );
        db.set_redo_capacity_bytes(REDO / 2).unwrap();
        // More redo than any of the capacities.
        let table = db.table("a/t").unwrap();
        for fill in 0..12 {
            let mut trx = db.begin(Isolation::RepeatableRead);
            (0..300).for_each(|id| update(&mut trx, &table, id, 300, fill).unwrap());
            trx.commit().unwrap();
        }
        check(&db, &table, 300);
        drop(table);
        match n % 2 {
            0 => db.crash(),
            _ => db.close().unwrap(),
        }
    }
    disk.make_room();
    let db = opened(16 * REDO);
    db.set_redo_capacity_bytes(32 * REDO).unwrap();
    assert_eq!(status(&db, "redo_log_capacity_resized"), 32 * REDO);
    check(&db, &db.table("a/t").unwrap(), 300);
    db.close().unwrap();
}
