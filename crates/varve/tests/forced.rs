//! A damaged database that is opened to save what can be read: `Options::force_recovery` from 4 on.
//!
//! What could break here: something is written after all, so that the next attempt finds less; a change is
//! taken and lost; what was never committed is not shown by the level that is there for it; a level looks at
//! what it promises to pass over, and does not open.

#[path = "support/versions.rs"]
mod versions;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use varve::internals::io::{Disk, OpenMode};
use varve::internals::page::{PageType, page_type};
use varve::{Database, Error, Isolation, LockMode, Options, Result, Xid};
use varve_sim::SimDisk;
use versions::{definition, delete, insert, read, set};

const PAGE: usize = 4096;
const ROWS: i64 = 1000;

fn force(disk: &SimDisk, level: u8) -> Result<Database> {
    open(disk, level, false)
}

fn open(disk: &SimDisk, level: u8, read_only: bool) -> Result<Database> {
    let options = Options {
        page_size: PAGE as u32,
        buffer_pool_bytes: 4 << 20,
        redo_capacity_bytes: 8 << 20,
        log_buffer_bytes: 2 << 20,
        lock_wait_timeout: Duration::from_millis(20),
        force_recovery: level,
        read_only,
        logger: Some(Arc::new(|_, _| {})),
        ..Options::default()
    };
    Database::open_on(Arc::new(disk.clone()), Path::new("/db"), options)
}

fn all_versions(db: &Database, ids: &[i64]) -> Vec<Option<i64>> {
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let one = |id: &i64| read(&mut trx, &table, *id, LockMode::None).unwrap();
    ids.iter().map(one).collect()
}

/// A table whose rows are in its file, all of version 0.
fn stored() -> SimDisk {
    let disk = SimDisk::default();
    let db = force(&disk, 0).unwrap();
    let table = db.create_table(&definition("a/t")).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    (0..ROWS).for_each(|id| insert(&mut trx, &table, id, 0).unwrap());
    trx.commit().unwrap();
    drop(table);
    db.close().unwrap();
    disk
}

/// What a transaction left that had not ended: row 1 is changed, 2 is gone, and there is one more. Another
/// one has changed row 3 and is prepared, a third one row 4 and has committed. `end` stops the database.
fn with_unfinished(end: impl FnOnce(Database)) -> SimDisk {
    let disk = stored();
    let db = force(&disk, 0).unwrap();
    let table = db.table("a/t").unwrap();
    let mut unfinished = db.begin(Isolation::RepeatableRead);
    set(&mut unfinished, &table, 1, 77).unwrap();
    delete(&mut unfinished, &table, 2).unwrap();
    insert(&mut unfinished, &table, ROWS, 5).unwrap();
    let mut prepared = db.begin(Isolation::RepeatableRead);
    set(&mut prepared, &table, 3, 78).unwrap();
    prepared.prepare(&xid()).unwrap();
    drop(prepared);
    let mut trx = db.begin(Isolation::RepeatableRead);
    set(&mut trx, &table, 4, 79).unwrap();
    trx.commit().unwrap();
    drop(table);
    end(db);
    drop(unfinished);
    disk
}

fn xid() -> Xid {
    Xid::new(1, b"x", b"").unwrap()
}

const LOOKED_AT: [i64; 6] = [0, 1, 2, 3, 4, ROWS];
const COMMITTED: [Option<i64>; 6] = [Some(0), Some(0), Some(0), Some(0), Some(79), None];
const NEWEST: [Option<i64>; 6] = [Some(0), Some(77), None, Some(78), Some(79), Some(5)];

fn status_of(db: &Database, wanted: &str) -> u64 {
    let status = db.status();
    let found = status.iter().find(|(name, _)| *name == wanted);
    found.expect("there is one").1
}

/// Whoever wants to change anything is told that `because` of this he can't.
fn check_refusals(db: &Database, because: &str) {
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let refused = [
        insert(&mut trx, &table, ROWS + 9, 0),
        set(&mut trx, &table, 9, 1),
        delete(&mut trx, &table, 9),
        db.create_table(&definition("a/new")).map(drop),
        db.create_temporary_table(&definition("a/#tmp")).map(drop),
        db.drop_table("a/t"),
        db.rename_table("a/t", "a/u"),
        db.truncate_table("a/t"),
        db.commit_prepared(&xid()),
        db.rollback_prepared(&xid()),
        db.truncate_undo(1, Duration::from_secs(1)).map(drop),
    ];
    for (n, refused) in refused.into_iter().enumerate() {
        match refused {
            Err(Error::ReadOnly { why }) => assert!(why.contains(because), "{why}"),
            other => panic!("{n}: {other:?}"),
        }
    }
    trx.commit().unwrap();
}

#[test]
fn from_level_4_on_nothing_is_written() {
    let crashed = with_unfinished(Database::crash);
    for (level, seen) in [(4, COMMITTED), (5, NEWEST)] {
        let disk = SimDisk::new(crashed.image());
        let db = force(&disk, level).unwrap();
        assert_eq!(all_versions(&db, &LOOKED_AT), seen, "level {level}");
        check_refusals(&db, "force_recovery");
        let prepared: &[Xid] = if level == 4 { &[xid()] } else { &[] };
        assert_eq!(db.prepared(), prepared, "level {level}");
        let table = db.table("a/t").unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        // Who would change it is refused at once, whoever has it locked.
        let locked = read(&mut trx, &table, 1, LockMode::Exclusive);
        assert!(matches!(locked, Err(Error::ReadOnly { .. })), "{locked:?}");
        let locked = read(&mut trx, &table, 1, LockMode::Shared);
        match level {
            4 => assert!(matches!(locked, Err(Error::LockWaitTimeout)), "{locked:?}"),
            _ => assert_eq!(locked.unwrap(), Some(77)),
        }
        drop((trx, table));
        db.close().unwrap();
        let written = disk.journal();
        assert_eq!(written.len(), 0, "level {level}");
    }
    // As if nobody had been there.
    let db = force(&crashed, 0).unwrap();
    assert!(db.wait_for_recovery(Duration::from_secs(60)));
    assert_eq!(all_versions(&db, &LOOKED_AT), COMMITTED);
    db.close().unwrap();
    let refused = force(&crashed, 7).map(drop).unwrap_err().to_string();
    assert!(refused.contains("force_recovery 7"), "{refused}");
    let empty = force(&SimDisk::default(), 4).map(drop);
    assert!(matches!(empty, Err(Error::NotFound { .. })), "{empty:?}");
}

/// As level 4, but nothing is passed over.
#[test]
fn a_database_that_is_only_read_is_not_written() {
    let crashed = with_unfinished(Database::crash);
    let closed = with_unfinished(|db| db.close().unwrap());
    for before in [crashed, closed] {
        let disk = SimDisk::new(before.image());
        let db = open(&disk, 0, true).unwrap();
        assert_eq!(all_versions(&db, &LOOKED_AT), COMMITTED);
        check_refusals(&db, "read_only");
        assert_eq!(db.prepared(), [xid()]);
        assert!(db.wait_for_recovery(Duration::from_secs(60)));
        assert_eq!(status_of(&db, "recovery_transactions_left"), 0);
        db.close().unwrap();
        assert_eq!(disk.journal().len(), 0);
        let db = force(&disk, 0).unwrap();
        assert_eq!(all_versions(&db, &LOOKED_AT), COMMITTED);
        db.close().unwrap();
    }
    let empty = open(&SimDisk::default(), 0, true).map(drop);
    assert!(matches!(empty, Err(Error::NotFound { .. })), "{empty:?}");
    let disk = stored();
    damage(&disk, "/db/undo_001.vdt", |_| true);
    let refused = open(&disk, 0, true).map(drop);
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
}

/// Changes a byte of each page of a file for which `wanted` says so.
fn damage(disk: &SimDisk, path: &str, wanted: impl Fn(&[u8]) -> bool) {
    let file = disk.open(Path::new(path), OpenMode::Existing).unwrap();
    let mut page = vec![0; PAGE];
    for at in (0..file.len().unwrap()).step_by(PAGE) {
        file.read_at(&mut page, at).unwrap();
        if wanted(&page) {
            page[2000] ^= 1;
            file.write_at(&page, at).unwrap();
        }
    }
}

#[test]
fn level_5_does_without_undo() {
    let disk = with_unfinished(|db| db.close().unwrap());
    let is_header = |page: &[u8]| page_type(page) == Some(PageType::FileHeader);
    for path in ["/db/undo_001.vdt", "/db/undo_002.vdt"] {
        damage(&disk, path, |page| !is_header(page));
    }
    for level in [0, 4] {
        let refused = force(&disk, level).map(drop);
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    }
    for removed in [false, true] {
        if removed {
            disk.remove(Path::new("/db/undo_001.vdt")).unwrap();
        }
        let db = force(&disk, 5).unwrap();
        assert_eq!(all_versions(&db, &LOOKED_AT), NEWEST);
        let table = db.table("a/t").unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        let mut cursor = table.cursor(1).unwrap();
        let mut more = cursor.first(&mut trx, LockMode::None).unwrap();
        let mut rows = 0;
        while more {
            rows += 1;
            more = cursor.next(&mut trx).unwrap();
        }
        assert_eq!(rows, ROWS, "one is gone, one is new");
    }
}

#[test]
fn level_6_does_without_redo() {
    let disk = with_unfinished(Database::crash);
    let logs = || {
        let redo = disk.list(Path::new("/db/redo")).unwrap().into_iter();
        redo.map(|entry| Path::new("/db/redo").join(entry.name))
    };
    for path in logs() {
        let file = disk.open(&path, OpenMode::Existing).unwrap();
        file.write_at(&[7; 8192], 0).unwrap();
    }
    for removed in [false, true] {
        if removed {
            logs().for_each(|path| disk.remove(&path).unwrap());
        }
        let refused = force(&disk, 5).map(drop);
        assert!(
            matches!(refused, Err(Error::CorruptFile { .. })),
            "{refused:?}"
        );
        let db = force(&disk, 6).unwrap();
        // Whether their page was written before the crash nobody knows.
        let seen = all_versions(&db, &LOOKED_AT);
        for (n, found) in seen.into_iter().enumerate() {
            let stored = if n < 5 { Some(0) } else { None };
            assert!(found == stored || found == NEWEST[n], "row {n}: {found:?}");
        }
        assert_eq!(all_versions(&db, &[500, ROWS - 1]), [Some(0); 2]);
        check_refusals(&db, "force_recovery");
        db.close().unwrap();
    }
}

/// Nobody looks at a page for statistics alone.
#[test]
fn level_4_takes_no_samples() {
    let disk = stored();
    let path = "/db/a/t.vdt";
    let file = disk.open(Path::new(path), OpenMode::Existing).unwrap();
    // Page 4 is the root of the secondary index, and says which index that is.
    let mut index = [0; 8];
    file.read_at(&mut index, 4 * PAGE as u64 + 48).unwrap();
    damage(&disk, path, |page| {
        page_type(page) == Some(PageType::Leaf) && page[48..56] == index
    });
    let estimate = |level: u8| {
        let db = force(&disk, level).unwrap();
        db.table("a/t").unwrap().index_estimate(1)
    };
    let sampled = estimate(4).unwrap();
    assert_eq!(sampled.rows_per_key.len(), 2);
    assert!(sampled.rows_per_key[0] > 1.0 && sampled.rows_per_key[1] == 1.0);
    let refused = estimate(3);
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
}
