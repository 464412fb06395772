//! Undo pages go round: from a rollback segment's cache to one log after the other, with the last of them to
//! the history, and back. What broke here would lose pages at each transaction or each crash, give one page
//! to two logs, or keep a page for each of a million small transactions while a view is open.

use std::time::{Duration, Instant};

use varve::internals::undo::FREE_PAGES_KEPT;
use varve::{
    ColumnType, Database, FlushLog, HistoryOptions, Isolation, KeyMatch, LockMode, Options, Table,
    TableDef, Transaction, Xid,
};

const ROWS: i64 = 50;
const WAIT: Duration = Duration::from_secs(60);

fn open(dir: &tempfile::TempDir) -> Database {
    open_with(dir, FlushLog::default())
}

fn open_with(dir: &tempfile::TempDir, flush_log_at_trx_commit: FlushLog) -> Database {
    let options = Options {
        // Purge waits for views here.
        history: HistoryOptions {
            store: false,
            ..HistoryOptions::default()
        },
        flush_log_at_trx_commit,
        page_size: 4096,
        buffer_pool_bytes: 16 << 20,
        redo_capacity_bytes: 16 << 20,
        ..Options::default()
    };
    Database::open(dir.path(), options).unwrap()
}

fn create(db: &Database) -> Table {
    let def = TableDef::new("u/t")
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .primary(&["id"])
        .index("k", &["k"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS {
        let row = [Some(&id.to_le_bytes()[..]), Some(&[0; 8])];
        trx.insert(&table, &row).unwrap();
    }
    trx.commit().unwrap();
    table
}

/// Adds one to a row in a transaction, which it returns.
fn update(db: &Database, table: &Table, id: i64) -> Transaction {
    let mut trx = db.begin(Isolation::RepeatableRead);
    again(&mut trx, table, id);
    trx
}

/// Adds one to a row.
fn again(trx: &mut Transaction, table: &Table, id: i64) {
    let (mut cursor, key) = (table.cursor(0).unwrap(), id.to_le_bytes());
    let how = (KeyMatch::Exact, LockMode::Exclusive);
    assert!(cursor.seek(trx, &[Some(&key)], how.0, how.1).unwrap());
    let k = cursor.row().unwrap().get(1).unwrap();
    let k = i64::from_le_bytes(k.try_into().unwrap()) + 1;
    let row = [Some(&key[..]), Some(&k.to_le_bytes()[..])];
    trx.update(table, &cursor, &row).unwrap();
}

fn sum(db: &Database, table: &Table) -> i64 {
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    let (mut sum, mut more) = (0, cursor.first(&mut trx, LockMode::None).unwrap());
    while more {
        let k = cursor.row().unwrap().get(1).unwrap();
        sum += i64::from_le_bytes(k.try_into().unwrap());
        more = cursor.next(&mut trx).unwrap();
    }
    sum
}

/// Each page of the undo tablespaces has one use, if nobody writes: in a rollback segment, or for the file
/// itself (page 0, and one for each group of pages).
fn check_all(db: &Database) {
    let undo = &db.core().undo;
    let ids: std::collections::BTreeSet<_> = undo.logged().iter().map(|r| r.space()).collect();
    let end = Instant::now() + WAIT;
    loop {
        // Purge may just be giving pages back.
        let (mut used, mut files) = (0, 0);
        for id in &ids {
            let space = undo.env.spaces.require(*id).unwrap();
            let group = undo.env.page_size as u32 * 3 / 2;
            used += space.used_pages(&undo.env.mtr).unwrap();
            files += 1 + space.size_pages().div_ceil(group);
        }
        let found = undo.check().unwrap();
        if found + files == used {
            return;
        }
        assert!(
            Instant::now() < end,
            "{found} pages of rollback segments, {files} of the files, {used} in use"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn undo_pages(db: &Database) -> u32 {
    let env = &db.core().undo.env;
    let ids: std::collections::BTreeSet<_> = db.core().undo.rsegs().map(|r| r.space()).collect();
    let used = |id| {
        env.spaces
            .require(id)
            .unwrap()
            .used_pages(&env.mtr)
            .unwrap()
    };
    ids.into_iter().map(used).sum()
}

/// A transaction at a time, purged before the next: the pages of the first few are enough for all.
#[test]
fn one_transaction_after_the_other_uses_the_same_pages() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let table = create(&db);
    let mut after_warm_up = 0;
    for n in 0..400 {
        match n % 3 {
            0 => update(&db, &table, n % ROWS).rollback().unwrap(),
            _ => update(&db, &table, n % ROWS).commit().unwrap(),
        }
        assert!(db.wait_for_purge(WAIT));
        if n == 40 {
            after_warm_up = undo_pages(&db);
        }
    }
    assert_eq!(undo_pages(&db), after_warm_up);
    check_all(&db);
    db.close().unwrap();
}

/// Crashes with transactions that are unfinished, with history that is not purged, and with cached pages.
#[test]
fn crashes_lose_no_undo_page() {
    let dir = tempfile::tempdir().unwrap();
    let mut updates = 0;
    let mut pages = Vec::new();
    for round in 0..8 {
        let db = open(&dir);
        let table = match round {
            0 => create(&db),
            _ => db.table("u/t").unwrap(),
        };
        assert_eq!(sum(&db, &table), updates, "round {round}");
        // Rows that nobody else writes: their transactions are still open at the crash.
        let open: Vec<_> = (0..5).map(|id| update(&db, &table, id)).collect();
        for n in 0..300 {
            update(&db, &table, 5 + n % (ROWS - 5)).commit().unwrap();
            updates += 1;
        }
        db.flush_log().unwrap();
        pages.push(undo_pages(&db));
        // A crash takes the open transactions with it.
        open.into_iter().for_each(std::mem::forget);
        db.crash();
    }
    let db = open(&dir);
    let table = db.table("u/t").unwrap();
    assert_eq!(sum(&db, &table), updates);
    assert!(db.wait_for_purge(WAIT));
    // If each crash lost its pages, there would be eight times as many.
    assert!(undo_pages(&db) < pages[0] + 100, "{pages:?}");
    check_all(&db);
    db.check_table(&table).unwrap();
    db.close().unwrap();
}

/// While a view is open, the undo of small transactions takes about the room of its records, and all of it
/// comes back afterwards. It used to take a page for each transaction: 400 MiB here, sixteen gigabytes for a
/// million and pages of 16 KiB.
#[test]
fn small_updates_under_an_open_view_take_little_undo() {
    const UPDATES: i64 = 100_000;
    let dir = tempfile::tempdir().unwrap();
    let db = open_with(&dir, FlushLog::Lazy);
    let table = create(&db);
    assert!(db.wait_for_purge(WAIT));
    let before = undo_pages(&db);
    let mut old = db.begin(Isolation::RepeatableRead);
    old.take_snapshot();
    for n in 0..UPDATES {
        update(&db, &table, n % ROWS).commit().unwrap();
    }
    let grown = undo_pages(&db) - before;
    println!("{grown} pages for {UPDATES} updates");
    // Two records of about 70 bytes with their slots, for row and entry, and 24 bytes of the history queue.
    assert!(i64::from(grown) * 4096 < UPDATES * 250, "{grown} pages");
    let status: std::collections::BTreeMap<_, _> = db.status().into_iter().collect();
    assert!(status["history_list_length"] >= UPDATES as u64);
    check_all(&db);
    // The view sees through all of it.
    let mut cursor = table.cursor(0).unwrap();
    assert!(cursor.first(&mut old, LockMode::None).unwrap());
    assert_eq!(cursor.row().unwrap().get(1), Some(&[0; 8][..]));
    old.commit().unwrap();
    assert!(db.wait_for_purge(WAIT));
    assert_eq!(sum(&db, &table), UPDATES);
    check_all(&db);
    // Purge gives the pages back after it is through with what was in them.
    let kept = 8 * (FREE_PAGES_KEPT + 4);
    let begun = Instant::now();
    while undo_pages(&db) > before + kept {
        assert!(begun.elapsed() < WAIT, "{} pages", undo_pages(&db));
        std::thread::sleep(Duration::from_millis(5));
    }
    db.close().unwrap();
}

/// Many logs in one page, at every stage at once when the process dies: in the history, unfinished behind
/// them, prepared, taken back, longer than a page. Recovery finds each of them, a view's worth of history
/// included.
#[test]
fn logs_that_share_a_page_survive_crashes() {
    let dir = tempfile::tempdir().unwrap();
    let mut updates = 0;
    for round in 0..4u8 {
        let db = open(&dir);
        let table = match round {
            0 => create(&db),
            _ => db.table("u/t").unwrap(),
        };
        assert_eq!(sum(&db, &table), updates, "round {round}");
        check_all(&db);
        let mut old = db.begin(Isolation::RepeatableRead);
        old.take_snapshot();
        for n in 0..500 {
            match n % 10 {
                9 => update(&db, &table, 20 + n % 30).rollback().unwrap(),
                _ => {
                    update(&db, &table, 20 + n % 30).commit().unwrap();
                    updates += 1;
                }
            }
        }
        // Longer than a page, behind the small ones; one of them is taken back. A rollback frees its further
        // pages, view or not.
        for ends in [true, false] {
            let mut trx = update(&db, &table, 20);
            for n in 1..400 {
                again(&mut trx, &table, 20 + n % 30);
            }
            let pages = undo_pages(&db);
            match ends {
                true => trx.commit().unwrap(),
                false => trx.rollback().unwrap(),
            }
            updates += if ends { 400 } else { 0 };
            assert!(undo_pages(&db) <= pages);
        }
        let xid = Xid::new(1, b"prepared", &[round]).unwrap();
        let mut prepared = update(&db, &table, 10 + i64::from(round));
        prepared.prepare(&xid).unwrap();
        let open: Vec<_> = (0..5).map(|id| update(&db, &table, id)).collect();
        check_all(&db);
        db.flush_log().unwrap();
        open.into_iter().for_each(std::mem::forget);
        std::mem::forget(prepared);
        std::mem::forget(old);
        db.crash();

        let db = crate::open(&dir);
        check_all(&db);
        match round % 2 {
            0 => {
                db.commit_prepared(&xid).unwrap();
                updates += 1;
            }
            _ => db.rollback_prepared(&xid).unwrap(),
        }
        // Half of the crashes find the history as it was, half a purged one.
        if round % 2 == 0 {
            assert!(db.wait_for_purge(WAIT));
        }
        check_all(&db);
        db.crash();
    }
    let db = open(&dir);
    let table = db.table("u/t").unwrap();
    assert!(db.wait_for_purge(WAIT));
    assert_eq!(sum(&db, &table), updates);
    check_all(&db);
    db.close().unwrap();
}
