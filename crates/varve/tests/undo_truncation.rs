//! Truncation of undo tablespaces. What could break here: undo that somebody needs is thrown away, a
//! transaction finds no rollback segment, a crash leaves two files or none, the file does not get smaller.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use varve::internals::undo::INITIAL_PAGES;
use varve::{
    ColumnType, Database, FlushLog, HistoryOptions, Isolation, KeyMatch, LockMode, Options,
    PurgeOptions, Table, TableDef, Transaction, UndoSpaceState, Xid,
};

const PAGE: u64 = 4096;
const ROWS: i64 = 400;
const WAIT: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_millis(50);

fn open(dir: &tempfile::TempDir, undo_tablespaces: u32) -> Database {
    let options = Options {
        // Purge waits for views here.
        history: HistoryOptions {
            store: false,
            ..HistoryOptions::default()
        },
        flush_log_at_trx_commit: FlushLog::Lazy,
        page_size: PAGE as u32,
        buffer_pool_bytes: 32 << 20,
        redo_capacity_bytes: 32 << 20,
        undo_tablespaces,
        purge: PurgeOptions {
            max_undo_log_size: 10 << 20,
            ..PurgeOptions::default()
        },
        ..Options::default()
    };
    Database::open(dir.path(), options).unwrap()
}

fn create(db: &Database) -> Table {
    let def = TableDef::new("u/t")
        .column("id", ColumnType::i64())
        .column("text", ColumnType::Bytes(1000))
        .primary(&["id"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS {
        let row = [Some(&id.to_le_bytes()[..]), Some(&[0; 900][..])];
        trx.insert(&table, &row).unwrap();
    }
    trx.commit().unwrap();
    table
}

/// Writes `value` to a row.
fn update(trx: &mut Transaction, table: &Table, id: i64, value: u8) -> varve::Result<()> {
    let (mut cursor, key) = (table.cursor(0)?, id.to_le_bytes());
    let how = (KeyMatch::Exact, LockMode::Exclusive);
    assert!(cursor.seek(trx, &[Some(&key)], how.0, how.1)?);
    trx.update(table, &cursor, &[Some(&key[..]), Some(&[value; 900][..])])?;
    Ok(())
}

fn values(trx: &mut Transaction, table: &Table) -> Vec<u8> {
    let mut cursor = table.cursor(0).unwrap();
    let mut values = Vec::new();
    let mut more = cursor.first(trx, LockMode::None).unwrap();
    while more {
        values.push(cursor.row().unwrap().get(1).unwrap()[0]);
        more = cursor.next(trx).unwrap();
    }
    values
}

fn status(db: &Database, name: &str) -> u64 {
    let found = db.status().into_iter().find(|(n, _)| *n == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

fn file_bytes(dir: &tempfile::TempDir, number: usize) -> u64 {
    let path = dir.path().join(format!("undo_{number:03}.vdt"));
    std::fs::metadata(path).unwrap().len()
}

/// Each undo tablespace has one file, under its own name.
fn check_files(dir: &tempfile::TempDir, count: usize) {
    let names = std::fs::read_dir(dir.path()).unwrap();
    let names = names.map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<_> = names.filter(|n| n.starts_with("undo")).collect();
    found.sort();
    let wanted: Vec<_> = (1..=count).map(|n| format!("undo_{n:03}.vdt")).collect();
    assert_eq!(found, wanted);
}

/// Undo grows under a reader and gets small again by itself once the reader has gone; rows are what they
/// should be, also after a restart and a crash.
#[test]
fn what_has_become_too_large_is_truncated() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, 2);
    let table = create(&db);
    let mut reader = db.begin(Isolation::RepeatableRead);
    assert_eq!(values(&mut reader, &table), [0; ROWS as usize]);
    let mut round = 0;
    // One that is too large may be out of use at once, and grows no more then.
    while (1..=2).any(|n| file_bytes(&dir, n) <= 10 << 20) {
        round += 1;
        for id in 0..ROWS {
            let mut trx = db.begin(Isolation::RepeatableRead);
            update(&mut trx, &table, id, round).unwrap();
            trx.commit().unwrap();
        }
    }
    // While the reader is there nothing is.
    assert_eq!(status(&db, "undo_truncations"), 0);
    assert_eq!(values(&mut reader, &table), [0; ROWS as usize]);
    reader.commit().unwrap();
    let end = Instant::now() + WAIT;
    while status(&db, "undo_truncations") < 2 {
        assert!(Instant::now() < end, "{:?}", db.status());
        std::thread::sleep(MOMENT);
    }
    assert!((1..=2).all(|n| file_bytes(&dir, n) <= 10 << 20));
    assert_eq!(status(&db, "undo_tablespaces_active"), 2);
    // Each rollback segment's mutexes at least.
    assert!(status(&db, "undo_truncate_lock_holds") > 2 * 95);
    assert!(status(&db, "undo_truncate_lock_max_usec") > 0);
    let report = db.report();
    let said = report
        .iter()
        .find(|(title, _)| *title == "UNDO TABLESPACE TRUNCATION");
    let said = &said.expect("a section").1;
    assert!(said.contains("rollback segments: 190 times"), "{said}");
    check_files(&dir, 2);
    assert_eq!(file_bytes(&dir, 1), u64::from(INITIAL_PAGES) * PAGE);
    db.core().undo.check().unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    assert_eq!(values(&mut trx, &table), [round; ROWS as usize]);
    drop(trx);
    drop(table);
    db.close().unwrap();
    for value in [round + 1, round + 2] {
        let db = open(&dir, 2);
        let table = db.table("u/t").unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        assert_eq!(values(&mut trx, &table), [value - 1; ROWS as usize]);
        (0..ROWS).for_each(|id| update(&mut trx, &table, id, value).unwrap());
        trx.commit().unwrap();
        assert!(db.truncate_undo(value as usize % 2 + 1, WAIT).unwrap());
        drop(table);
        db.core().log.sync_to(db.core().log.next_lsn()).unwrap();
        db.crash();
        check_files(&dir, 2);
    }
    let db = open(&dir, 2);
    let table = db.table("u/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    assert_eq!(values(&mut trx, &table), [round + 2; ROWS as usize]);
}

/// TRUNC-2: whoever needs the undo keeps it: writers, prepared transactions, views. (Rollbacks that were not
/// finished: broken_tables.rs.)
#[test]
fn what_is_needed_stays() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, 2);
    let table = create(&db);
    // Each is in one of the tablespaces, and lets the other go.
    let one_is_pinned = |what: &str| {
        let truncate = || [1, 2].map(|n| db.truncate_undo(n, MOMENT * 4).unwrap());
        let (mut done, begun) = (truncate(), Instant::now());
        // A moment may be too short for the free one, on a busy machine.
        while done == [false, false] && begun.elapsed() < WAIT {
            done = truncate();
        }
        assert_eq!(
            done.iter().filter(|done| !**done).count(),
            1,
            "{what}: {done:?}"
        );
        assert_eq!(status(&db, "undo_tablespaces_active"), 2);
    };
    let pinned_states = || {
        let truncate = |n| db.truncate_undo(n, MOMENT * 4).unwrap();
        let attempt = |n| {
            std::thread::scope(|scope| {
                let done = scope.spawn(move || truncate(n));
                let mut state = UndoSpaceState::Active;
                while state == UndoSpaceState::Active && !done.is_finished() {
                    std::thread::yield_now();
                    state = db.undo_tablespaces()[n - 1].state;
                }
                (done.join().unwrap(), state)
            })
        };
        [1, 2].map(|n| {
            let (mut found, begun) = (attempt(n), Instant::now());
            // Nobody may have looked in a moment, on a busy machine.
            while found == (false, UndoSpaceState::Active) && begun.elapsed() < WAIT {
                found = attempt(n);
            }
            found
        })
    };
    let both_are_free = || [1, 2].iter().all(|n| db.truncate_undo(*n, WAIT).unwrap());
    assert!(both_are_free());

    let mut trx = db.begin(Isolation::RepeatableRead);
    update(&mut trx, &table, 1, 1).unwrap();
    one_is_pinned("a writer");
    trx.rollback().unwrap();
    assert!(both_are_free());

    let xid = Xid::new(1, b"x", b"").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    update(&mut trx, &table, 2, 2).unwrap();
    trx.prepare(&xid).unwrap();
    drop(trx);
    one_is_pinned("a prepared transaction");
    db.commit_prepared(&xid).unwrap();
    assert!(both_are_free());

    let mut reader = db.begin(Isolation::RepeatableRead);
    reader.take_snapshot();
    let mut trx = db.begin(Isolation::RepeatableRead);
    update(&mut trx, &table, 3, 3).unwrap();
    trx.commit().unwrap();
    one_is_pinned("a view");
    for (done, state) in pinned_states() {
        assert!(done || state == UndoSpaceState::Inactive, "{state:?}");
    }
    let spaces = db.undo_tablespaces();
    let history = spaces.iter().map(|space| space.history_len);
    assert_eq!(history.sum::<u64>(), 1);
    for (n, space) in spaces.iter().enumerate() {
        assert_eq!((space.number, space.state), (n + 1, UndoSpaceState::Active));
        assert_eq!(space.file_bytes, file_bytes(&dir, n + 1));
        assert!(u64::from(space.used_pages) * PAGE <= space.file_bytes);
        assert!(space.rollback_segments >= 47 && space.truncations > 2);
    }
    assert_eq!(values(&mut reader, &table)[..5], [0, 0, 2, 0, 0]);
    drop(reader);
    assert!(both_are_free());
}

/// TRUNC-1: transactions go on, and never miss a rollback segment, while tablespaces are truncated all the
/// time.
#[test]
fn transactions_go_on_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, 2);
    // Nobody else: at the end no truncation is to be under way.
    let by_hand = PurgeOptions {
        undo_log_truncate: false,
        ..PurgeOptions::default()
    };
    db.set_purge_options(by_hand).unwrap();
    let table = create(&db);
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (db, table, stop, written) = (&db, &table, &stop, &written);
            scope.spawn(move || {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    let mut trx = db.begin(Isolation::RepeatableRead);
                    let id = thread * 100 + n % 100;
                    update(&mut trx, table, id, n as u8).unwrap();
                    match n % 3 {
                        0 => trx.rollback().unwrap(),
                        _ => trx.commit().unwrap(),
                    }
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut truncated = 0;
        while truncated < 20 || written.load(Ordering::Relaxed) <= 100 {
            if !db.truncate_undo(truncated % 2 + 1, WAIT).unwrap() {
                break;
            }
            truncated += 1;
        }
        stop.store(true, Ordering::Relaxed);
        assert!(truncated >= 20, "{truncated}");
    });
    assert!(written.load(Ordering::Relaxed) > 100);
    assert!(db.wait_for_purge(WAIT));
    db.core().undo.check().unwrap();
    let report = db.check_table(&table).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    check_files(&dir, 2);
}

/// What can't be truncated is refused by name.
#[test]
fn refusals() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, 1);
    let refused = |n| db.truncate_undo(n, MOMENT).unwrap_err().to_string();
    assert!(
        refused(0).contains("no undo tablespace 0"),
        "{}",
        refused(0)
    );
    assert!(
        refused(2).contains("no undo tablespace 2"),
        "{}",
        refused(2)
    );
    assert!(
        refused(1).contains("the only undo tablespace"),
        "{}",
        refused(1)
    );
    let small = PurgeOptions {
        max_undo_log_size: 1 << 20,
        ..PurgeOptions::default()
    };
    let refused = db.set_purge_options(small).unwrap_err().to_string();
    assert!(
        refused.contains("purge.max_undo_log_size 1048576"),
        "{refused}"
    );
}

/// More transactions than the one rollback segment in use has room for: an error that says so, and no harm.
/// Others are taken when that one is inactive.
#[test]
fn rollback_segments_that_are_full_refuse_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, 2);
    let def = TableDef::new("u/many")
        .column("id", ColumnType::i64())
        .primary(&["id"]);
    let table = db.create_table(&def).unwrap();
    assert!(db.wait_for_purge(WAIT));
    for wrong in [0, 129] {
        let refused = db.set_undo_logs(wrong).unwrap_err().to_string();
        assert!(refused.contains("from 1 to 128"), "{refused}");
    }
    db.set_undo_logs(1).unwrap();
    let insert = |trx: &mut Transaction, id: i64| trx.insert(&table, &[Some(&id.to_le_bytes())]);
    let mut open = Vec::new();
    let refused = loop {
        let mut trx = db.begin(Isolation::RepeatableRead);
        match insert(&mut trx, open.len() as i64) {
            Ok(()) => open.push(trx),
            Err(e) => break e.to_string(),
        }
    };
    assert!(
        refused.contains("rollback segment 33 has no free undo slot"),
        "{refused}"
    );
    assert_eq!(open.len(), 1004, "slots with pages of 4 KiB");
    open.pop().unwrap().rollback().unwrap();
    let mut late = db.begin(Isolation::RepeatableRead);
    insert(&mut late, -1).unwrap();
    // One that has an insert log finds no room for an update log, and goes on with what it has.
    let mut cursor = table.cursor(0).unwrap();
    let first = 0i64.to_le_bytes();
    let how = (KeyMatch::Exact, LockMode::Exclusive);
    assert!(
        cursor
            .seek(&mut open[0], &[Some(&first)], how.0, how.1)
            .unwrap()
    );
    let refused = open[0].delete(&table, &cursor).unwrap_err().to_string();
    assert!(refused.contains("no free undo slot"), "{refused}");
    insert(&mut open[0], -2).unwrap();
    // There are others.
    db.set_undo_logs(2).unwrap();
    let mut other = db.begin(Isolation::RepeatableRead);
    insert(&mut other, -3).unwrap();
    open.extend([late, other]);
    for trx in open {
        trx.commit().unwrap();
    }
    db.set_undo_logs(1).unwrap();
    assert!(db.truncate_undo(1, WAIT).unwrap());
    // They are in the second tablespace while the first is being emptied.
    let mut reader = db.begin(Isolation::RepeatableRead);
    insert(&mut reader, -4).unwrap();
    std::thread::scope(|scope| {
        let done = scope.spawn(|| db.truncate_undo(1, WAIT).unwrap());
        while db.undo_tablespaces()[0].state != UndoSpaceState::Inactive {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut trx = db.begin(Isolation::RepeatableRead);
        insert(&mut trx, -5).unwrap();
        trx.commit().unwrap();
        reader.commit().unwrap();
        assert!(done.join().unwrap());
    });
    let report = db.check_table(&table).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    assert_eq!(report.rows, 1003 + 5);
}
