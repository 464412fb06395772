//! Entries of secondary indexes that have lost their TrxId (FREEZE-1, TXN-6): who reads them finds what he
//! would have found, they can be deleted, and that can be taken back.
//!
//! What could break here: a view that finds a row in an index which was not there when it opened, or finds
//! none; an entry that can't be deleted, because its leaf is full, or is not what it was after a rollback.

#[allow(dead_code, reason = "each test uses its part")]
#[path = "support/long_views.rs"]
mod long_views;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "support/reads.rs"]
mod reads;

use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use varve::{
    ColumnType, Database, Isolation, KeyMatch, LockMode, Table, TableDef, Transaction, Value,
};

use long_views::{Run, options};

const ROWS: i64 = 3000;

/// The entries of one index have all of them as much of the clustered key, those of the other one not.
fn definition(name: &str, id: ColumnType) -> TableDef {
    TableDef::new(name)
        .column("id", id)
        .column("k", ColumnType::i64())
        .primary(&["id"])
        .index("by_k", &["k"])
}

fn id(table: &Table, id: i64) -> Value {
    match table.def().columns[0].ty {
        ColumnType::Bytes(_) => Value::Bytes(id.to_string().into_bytes()),
        _ => Value::Int(id),
    }
}

fn begin(db: &Database) -> Transaction {
    db.begin(Isolation::RepeatableRead)
}

fn insert(trx: &mut Transaction, table: &Table, n: i64) {
    let row = table.def().row(&[id(table, n), Value::Int(n % 100)]);
    trx.insert(table, &row.unwrap().datums()).unwrap();
}

fn delete(trx: &mut Transaction, table: &Table, n: i64) {
    let mut cursor = table.cursor(0).unwrap();
    let row = table.def().row(&[id(table, n), Value::Int(0)]).unwrap();
    let key = [row.datums()[0]];
    assert!(
        cursor
            .seek(trx, &key, KeyMatch::Exact, LockMode::Exclusive)
            .unwrap()
    );
    trx.delete(table, &cursor).unwrap();
}

/// In an order in which no leaf gets only rows that have just come.
fn fill(db: &Database, table: &Table) {
    let mut order: Vec<i64> = (0..ROWS).collect();
    order.shuffle(&mut SmallRng::seed_from_u64(7));
    for rows in order.chunks(10) {
        let mut trx = begin(db);
        rows.iter().for_each(|&n| insert(&mut trx, table, n));
        trx.commit().unwrap();
    }
}

/// The lengths of the payloads of an index's entries.
fn lengths(db: &Database, table: &str) -> Vec<usize> {
    let opened = db.core().tables.get(table).unwrap();
    let mut all = Vec::new();
    let tree = &opened.secondary[0].tree;
    tree.check(&mut |_, payload| {
        all.push(payload.len());
        Ok(())
    })
    .unwrap();
    all
}

fn check(db: &Database, table: &Table, rows: u64) {
    let report = db.check_table(table).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    assert_eq!(report.rows, rows);
}

#[test]
fn entries_of_full_leaves_are_frozen_and_go_on_as_others() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    for (name, ty, frozen, whole) in [
        ("f/constant", ColumnType::i64(), 1, 8),
        ("f/varying", ColumnType::Bytes(100), 3, 10),
    ] {
        let table = db.create_table(&definition(name, ty)).unwrap();
        fill(&db, &table);
        let count = |len| lengths(&db, name).iter().filter(|n| **n == len).count();
        assert!(count(frozen) > ROWS as usize / 2, "{} are", count(frozen));
        assert_eq!(count(frozen) + count(whole), ROWS as usize);
        // All leaves have to take more, and give it back.
        let mut trx = begin(&db);
        (0..ROWS).for_each(|n| delete(&mut trx, &table, n));
        assert_eq!(count(whole), ROWS as usize);
        trx.rollback().unwrap();
        check(&db, &table, ROWS as u64);
        // Who has been given back is frozen like others.
        for n in ROWS..2 * ROWS {
            let mut trx = begin(&db);
            insert(&mut trx, &table, n);
            trx.commit().unwrap();
        }
        assert!(count(frozen) > ROWS as usize, "{} are", count(frozen));
        let mut trx = begin(&db);
        (0..ROWS).for_each(|n| delete(&mut trx, &table, n));
        // They come back under the same keys.
        (0..ROWS / 2).for_each(|n| insert(&mut trx, &table, n));
        trx.commit().unwrap();
        assert!(db.wait_for_purge(Duration::from_secs(60)));
        check(&db, &table, (ROWS + ROWS / 2) as u64);
    }
}

/// While somebody may not see a row, its entry says who wrote it.
#[test]
fn a_view_keeps_entries_from_being_frozen() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db
        .create_table(&definition("f/t", ColumnType::i64()))
        .unwrap();
    let mut old = begin(&db);
    old.take_snapshot();
    fill(&db, &table);
    assert!(lengths(&db, "f/t").iter().all(|len| *len == 8));
    let mut cursor = table.cursor(1).unwrap();
    assert!(!cursor.first(&mut old, LockMode::None).unwrap());
}

/// BUILD-1, LOAD-1: who sees an index that was built, or a table that was loaded aside, sees all its rows.
#[test]
fn what_is_built_is_frozen() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let indexed = definition("f/t", ColumnType::i64());
    let mut def = indexed.clone();
    def.indexes.clear();
    let table = db.create_table(&def).unwrap();
    fill(&db, &table);
    db.redefine_table(&indexed).unwrap();
    assert_eq!(lengths(&db, "f/t"), vec![1; ROWS as usize]);
    let table = db.table("f/t").unwrap();
    let mut trx = begin(&db);
    (0..ROWS / 2).for_each(|n| delete(&mut trx, &table, n));
    trx.commit().unwrap();
    db.rebuild_table(&indexed).unwrap();
    assert_eq!(lengths(&db, "f/t"), vec![1; ROWS as usize / 2]);
}

/// Old views, members of the history store, beside changes of so many rows that leaves fill up.
#[test]
fn old_views_find_what_they_saw() {
    for seed in 0..2 {
        let dir = tempfile::tempdir().unwrap();
        let mut run = Run::new(dir.path(), options(), seed, 1500);
        for n in 0..300 {
            run.step();
            (0..10).for_each(|_| run.change());
            if n % 20 == 19 {
                run.snapshots.clear();
            }
        }
        (0..run.snapshots.len()).for_each(|n| run.compare(n));
        let opened = run.db.core().tables.get("h/t").unwrap();
        let freezes = &opened.secondary[0].tree.counters.shortenings;
        assert!(freezes.load(Ordering::Relaxed) > 0);
        run.snapshots.clear();
        let report = run.db.check_table(&run.table).unwrap();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
    }
}
