//! Undo pages go round: from a rollback segment's cache to a log, with the log to the history, and back. What broke here would
//! lose pages at each transaction or each crash, or give one page to two logs.

use std::time::Duration;

use varve::{ColumnType, Database, Isolation, KeyMatch, LockMode, Options, Table, TableDef};

const ROWS: i64 = 50;
const WAIT: Duration = Duration::from_secs(60);

fn open(dir: &tempfile::TempDir) -> Database {
    let options = Options {
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
        .primary(&["id"]);
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
fn update(db: &Database, table: &Table, id: i64) -> varve::Transaction {
    let mut trx = db.begin(Isolation::RepeatableRead);
    let (mut cursor, key) = (table.cursor(0).unwrap(), id.to_le_bytes());
    let how = (KeyMatch::Exact, LockMode::Exclusive);
    assert!(cursor.seek(&mut trx, &[Some(&key)], how.0, how.1).unwrap());
    let k = cursor.row().unwrap().get(1).unwrap();
    let k = i64::from_le_bytes(k.try_into().unwrap()) + 1;
    let row = [Some(&key[..]), Some(&k.to_le_bytes()[..])];
    trx.update(table, &cursor, &row).unwrap();
    trx
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
    // A round leaves up to 300 logs in the history. If each crash lost its pages, there would be eight times as many.
    assert!(undo_pages(&db) < pages[0] + 400, "{pages:?}");
    db.check_table(&table).unwrap();
    db.close().unwrap();
}
