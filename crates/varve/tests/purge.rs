//! Purge in batches, by several threads. What could break here: a log that takes several batches, garbage
//! that is left behind or removed too early, a record that is worked off with its neighbours though it is not
//! garbage.

use std::path::Path;
use std::time::{Duration, Instant};

use varve::internals::page::{PageType, SlottedRef, page_type};
use varve::internals::undo::{UndoKind, UndoRecord};
use varve::{
    ColumnType, Database, FlushLog, HistoryOptions, Isolation, KeyMatch, LockMode, Options,
    PurgeOptions, Table, TableDef, Transaction,
};
use varve_sim::{SimDisk, sample};

const WAIT: Duration = Duration::from_secs(60);

fn open(dir: &tempfile::TempDir, purge: PurgeOptions) -> Database {
    let options = Options {
        // Purge waits for views here.
        history: HistoryOptions {
            store: false,
            ..HistoryOptions::default()
        },
        flush_log_at_trx_commit: FlushLog::Lazy,
        page_size: 4096,
        buffer_pool_bytes: 16 << 20,
        redo_capacity_bytes: 16 << 20,
        purge,
        ..Options::default()
    };
    Database::open(dir.path(), options).unwrap()
}

fn purge(threads: u32, batch_size: u32) -> PurgeOptions {
    PurgeOptions {
        threads,
        batch_size,
        ..PurgeOptions::default()
    }
}

/// `rows` rows with even ids from 0.
fn create(db: &Database, name: &str, rows: i64) -> Table {
    let def = TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .column("text", ColumnType::Bytes(100_000))
        .primary(&["id"])
        .index("k", &["k"])
        .index("kk", &["k", "id"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for n in 0..rows {
        insert(&mut trx, &table, n * 2, b"some text");
    }
    trx.commit().unwrap();
    table
}

fn insert(trx: &mut Transaction, table: &Table, id: i64, text: &[u8]) {
    let row = [
        Some(&id.to_le_bytes()[..]),
        Some(&(-id).to_le_bytes()[..]),
        Some(text),
    ];
    trx.insert(table, &row).unwrap();
}

fn delete(trx: &mut Transaction, table: &Table, id: i64) {
    let (mut cursor, key) = (table.cursor(0).unwrap(), id.to_le_bytes());
    let how = (KeyMatch::Exact, LockMode::Exclusive);
    assert!(cursor.seek(trx, &[Some(&key)], how.0, how.1).unwrap());
    trx.delete(table, &cursor).unwrap();
}

fn set_k(trx: &mut Transaction, table: &Table, id: i64, k: i64) {
    let (mut cursor, key) = (table.cursor(0).unwrap(), id.to_le_bytes());
    let how = (KeyMatch::Exact, LockMode::Exclusive);
    assert!(cursor.seek(trx, &[Some(&key)], how.0, how.1).unwrap());
    let row = [
        Some(&key[..]),
        Some(&k.to_le_bytes()[..]),
        Some(&b"text"[..]),
    ];
    trx.update(table, &cursor, &row).unwrap();
}

fn status(db: &Database, name: &str) -> u64 {
    let found = db.status().into_iter().find(|(n, _)| *n == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

/// The table is sound, has so many rows and nothing else.
#[track_caller]
fn check(db: &Database, table: &Table, rows: i64) {
    assert!(db.wait_for_purge(WAIT), "{:?}", db.report());
    let report = db.check_table(table).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    assert_eq!((report.rows, report.deleted_rows), (rows as u64, 0));
    assert_eq!(report.old_overflow_pages, 0);
}

/// One transaction's log is longer than many batches.
#[test]
fn a_log_longer_than_a_batch_takes_several() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, purge(0, 1));
    let table = create(&db, "p/t", 2000);
    let mut trx = db.begin(Isolation::RepeatableRead);
    (0..1000).for_each(|n| delete(&mut trx, &table, n * 4));
    // The log goes on behind changes that were taken back, un-delete-markings among them.
    let mark = trx.savepoint();
    for n in 0..300 {
        insert(&mut trx, &table, n * 4, b"back");
        delete(&mut trx, &table, n * 4 + 2);
    }
    trx.rollback_to(mark).unwrap();
    delete(&mut trx, &table, 3998);
    trx.commit().unwrap();
    check(&db, &table, 999);
    // A row and two entries each.
    assert_eq!(status(&db, "purged_records"), 3 * 1001);
    let (batches, pages) = (
        status(&db, "purge_invoked"),
        status(&db, "purge_undo_log_pages"),
    );
    assert!(batches > 10 && pages >= batches, "{batches}, {pages}");
    // But for what was taken back.
    assert_eq!(status(&db, "purge_del_mark_records"), 1001);
    assert!(status(&db, "purge_upd_exist_or_extern_records") >= 2 * 1001);
}

/// PURGE-2: each change away from a key leaves a record that tells purge to remove its entry: several in one
/// batch for the same entry.
#[test]
fn an_entry_that_was_killed_several_times_is_removed_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, purge(0, 300));
    let table = create(&db, "p/t", 100);
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in (0..200).step_by(2) {
        for k in [id + 1000, -id, id + 1000, -id, id + 1000] {
            set_k(&mut trx, &table, id, k);
        }
    }
    trx.commit().unwrap();
    check(&db, &table, 100);
    // One in each of the indexes `k` and `kk`.
    assert_eq!(status(&db, "purged_records"), 2 * 100);
    assert_eq!(
        status(&db, "purge_upd_exist_or_extern_records"),
        2 * 5 * 100
    );
}

/// PURGE-1: neither is a row removed of which an older record could not be read that tells of an entry. What
/// comes before it is purged.
#[test]
fn behind_a_damaged_undo_record_nothing_is_purged() {
    const ROWS: i64 = 300;
    let disk = SimDisk::default();
    let db = sample::open(&disk).unwrap();
    let table = create(&db, "p/t", ROWS);
    let mut old = db.begin(Isolation::RepeatableRead);
    old.take_snapshot();
    let in_transaction = |change: &dyn Fn(&mut Transaction)| {
        let mut trx = db.begin(Isolation::RepeatableRead);
        change(&mut trx);
        trx.commit().unwrap();
    };
    (0..ROWS).for_each(|n| in_transaction(&|trx| set_k(trx, &table, n * 2, n + 1000)));
    (0..ROWS).for_each(|n| in_transaction(&|trx| delete(trx, &table, n * 2)));
    db.close().unwrap();
    drop(old);

    // Two in each transaction, in the order of these.
    let mut kills = Vec::new();
    let is_undo = |_: &Path, page: &[u8]| page_type(page) == Some(PageType::UndoLog);
    for place in sample::pages(&disk, is_undo) {
        let page = place.read(&disk);
        let p = SlottedRef::new(&page);
        for (slot, at) in p.places(0..p.n_slots()).enumerate() {
            let record = UndoRecord::decode(p.payload(slot)).unwrap();
            if record.kind == UndoKind::EntryDeleteMark {
                // Behind the length of an empty key.
                kills.push((record.trx, place.clone(), at.start + 2));
            }
        }
    }
    kills.sort_by_key(|(trx, ..)| *trx);
    assert_eq!(kills.len() as i64, 4 * ROWS);
    let (_, place, kind) = &kills[200];
    place.change(&disk, |page| page[*kind] = 77);

    let db = sample::open(&disk).unwrap();
    let left = 2 * ROWS as u64 - 100;
    let begun = Instant::now();
    while status(&db, "history_list_length") > left {
        assert!(begun.elapsed() < WAIT, "{:?}", db.report());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(status(&db, "history_list_length"), left);
    assert_eq!(status(&db, "purged_records"), 2 * 100);
    let report = db.check_table(&db.table("p/t").unwrap()).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    assert_eq!((report.rows, report.deleted_rows), (0, ROWS as u64));
    db.crash();
}

/// While it catches up, which ends: when it will have.
#[test]
fn it_says_when_it_will_be_through() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, PurgeOptions::default());
    let table = create(&db, "p/t", 1000);
    assert!(db.wait_for_purge(WAIT));
    let through = db.purge_standing().left;
    assert_eq!(through, Some(Duration::ZERO));
    // It may be through before anybody looks.
    for rounds in 1.. {
        let mut old = db.begin(Isolation::RepeatableRead);
        old.take_snapshot();
        for n in 0..10_000 * rounds {
            let mut trx = db.begin(Isolation::RepeatableRead);
            set_k(&mut trx, &table, n % 1000 * 2, n);
            trx.commit().unwrap();
        }
        drop(old);
        let mut said = Vec::new();
        while db.purge_standing().history > 0 {
            let standing = db.purge_standing();
            let is_behind = standing.history > 1000;
            said.extend(standing.left.filter(|_| is_behind));
        }
        if let Some(least) = said.iter().min() {
            assert!(*least > Duration::ZERO, "{said:?}");
            break;
        }
        assert!(rounds < 10, "it has never said anything");
    }
    db.close().unwrap();
}

/// Several threads, one table: garbage and rows that are live again stand side by side, and external values
/// have to be freed.
#[test]
fn a_table_is_purged_by_several_threads() {
    // The coordinator may be through before a helper has woken up, on a busy machine.
    assert!((0..20).any(|_| is_purged_with_help(3)), "nobody helps");
    assert!(!is_purged_with_help(0));
}

/// Whether helpers had a part in it.
fn is_purged_with_help(threads: u32) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, purge(threads, 300));
    let table = create(&db, "p/t", 6000);
    let mut reader = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    assert!(cursor.first(&mut reader, LockMode::None).unwrap());
    for start in (0..6000).step_by(100) {
        let mut trx = db.begin(Isolation::RepeatableRead);
        for n in start..start + 100 {
            delete(&mut trx, &table, n * 2);
        }
        trx.commit().unwrap();
    }
    let long = vec![7; 50_000];
    for n in (0..6000).step_by(3) {
        let mut trx = db.begin(Isolation::RepeatableRead);
        let text: &[u8] = if n % 60 == 0 { &long } else { b"new" };
        insert(&mut trx, &table, n * 2, text);
        trx.commit().unwrap();
    }
    let mut trx = db.begin(Isolation::RepeatableRead);
    (0..6000)
        .step_by(120)
        .for_each(|n| delete(&mut trx, &table, n * 2));
    trx.commit().unwrap();
    assert_eq!(status(&db, "purged_records"), 0);
    // What the old view sees is still there.
    let mut seen = 1;
    while cursor.next(&mut reader).unwrap() {
        seen += 1;
    }
    assert_eq!(seen, 6000);
    reader.commit().unwrap();
    check(&db, &table, 1950);
    // 4,000 rows that stayed away, and 50 that came back and went, with two entries each.
    assert_eq!(status(&db, "purged_records"), 3 * 4050);
    status(&db, "purge_helper_records") > 0
}

/// A table that is dropped while its records are being purged does not keep others from being purged.
#[test]
fn dropped_tables_are_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, purge(2, 2));
    let (gone, stays) = (create(&db, "p/gone", 3000), create(&db, "p/stays", 3000));
    let mut reader = db.begin(Isolation::RepeatableRead);
    reader.take_snapshot();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for n in 0..3000 {
        delete(&mut trx, &gone, n * 2);
        delete(&mut trx, &stays, n * 2);
    }
    trx.commit().unwrap();
    drop(reader);
    drop(gone);
    db.drop_table("p/gone").unwrap();
    check(&db, &stays, 0);
}

/// Settings change at any time; those out of bounds are refused and change nothing.
#[test]
fn settings_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, purge(1, 10));
    for (wrong, name) in [
        (purge(33, 1), "purge.threads 33"),
        (purge(1, 0), "purge.batch_size 0"),
        (purge(1, 5001), "purge.batch_size 5001"),
    ] {
        let refused = db.set_purge_options(wrong).unwrap_err().to_string();
        assert!(refused.contains(name), "{refused}");
    }
    let table = create(&db, "p/t", 4000);
    for (round, threads) in [0, 4, 1].into_iter().enumerate() {
        db.set_purge_options(purge(threads, 50)).unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        let first = round as i64 * 1000;
        (first..first + 1000).for_each(|n| delete(&mut trx, &table, n * 2));
        trx.commit().unwrap();
        check(&db, &table, 3000 - first);
    }
}

/// How far purge has come in a log that takes several batches can be seen meanwhile, by who looks at the
/// right moment.
#[test]
fn progress_in_a_long_log_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, purge(0, 1));
    let table = create(&db, "p/t", 100 * 300);
    let core = db.core();
    for round in 0..100 {
        let mut trx = db.begin(Isolation::RepeatableRead);
        (0..300).for_each(|n| delete(&mut trx, &table, (round * 300 + n) * 2));
        let end = trx.savepoint().0;
        trx.commit().unwrap();
        let mut undo_no = 0;
        while core.undo.history_len() > 0 {
            core.purge_wanted.notify_always();
            undo_no = undo_no.max(core.purge_progress.undo_no());
        }
        assert!(undo_no <= end, "{undo_no} of {end}");
        // That of the log that is gone is told for a moment.
        while core.purge_progress.undo_no() > 0 {
            std::thread::yield_now();
        }
        if undo_no > 0 {
            return;
        }
    }
    panic!("never seen");
}

/// What `f` starts runs on one processor.
fn on_one_processor<T>(f: impl FnOnce() -> T) -> T {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let all = sched_getaffinity(None).unwrap();
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|n| all.is_set(*n)).unwrap());
    sched_setaffinity(None, &one).unwrap();
    let done = f();
    sched_setaffinity(None, &all).unwrap();
    done
}

/// While somebody reads, purge works through a history only for a part of the time; alone it does not pause.
#[test]
fn purge_leaves_processors_to_others() {
    // On a busy machine it may be through before the reader has run once.
    assert!((0..20).any(|_| paused_over_history(true) > 0));
    assert_eq!(paused_over_history(false), 0);
}

/// For how many microseconds purge pauses over a history of many batches, while somebody reads or nobody does
/// anything.
fn paused_over_history(is_read: bool) -> u64 {
    const LOGS: i64 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    // Of six processors purge may have a whole one.
    let db = on_one_processor(|| open(&dir, purge(0, 50)));
    let table = create(&db, "p/t", LOGS);
    let mut view = db.begin(Isolation::RepeatableRead);
    view.take_snapshot();
    let mut cursor = table.cursor(0).unwrap();
    for n in 0..LOGS {
        let mut trx = db.begin(Isolation::RepeatableRead);
        set_k(&mut trx, &table, n * 2, n * 7919);
        trx.commit().unwrap();
    }
    let before = status(&db, "purge_pause_usec");
    // No commit: that would be something that others do. Nor is purge woken, which would end its pauses.
    drop(view);
    while db.core().undo.history_len() > 0 {
        if is_read {
            let mut trx = db.begin(Isolation::RepeatableRead);
            assert!(cursor.first(&mut trx, LockMode::None).unwrap());
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    status(&db, "purge_pause_usec") - before
}
