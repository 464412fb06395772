//! Indexes that are built while their table is changed, and tables that are rebuilt so.

#[path = "support/by_id.rs"]
mod by_id;
#[path = "support/small.rs"]
mod small;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use varve::{
    ColumnType, Database, Error, HistoryOptions, Isolation, LockMode, Options,
    PreparedRedefinition, RedefinitionWaits, RowRef, Table, TableDef, Transaction, Value,
};

use by_id::delete;

const ROWS: i64 = 2000;

fn open(dir: &std::path::Path) -> Database {
    let options = Options {
        sort_buffer_bytes: 64 << 10,
        ..small::options()
    };
    Database::open(dir, options).unwrap()
}

fn plain() -> TableDef {
    TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .nullable("n", ColumnType::i64())
        .column("only", ColumnType::i64())
        .nullable("long", ColumnType::Bytes(100_000))
        .primary(&["id"])
}

fn indexed() -> TableDef {
    let mut def = plain()
        .index("by_n", &["n"])
        .unique("by_only", &["only"])
        .index("by_long", &["long", "n"]);
    def.indexes[2].parts[0].prefix_len = Some(100);
    def
}

fn row(id: i64, n: i64, only: i64) -> [Value; 4] {
    [
        Value::Int(id),
        if n % 10 == 0 {
            Value::Null
        } else {
            Value::Int(n)
        },
        Value::Int(only),
        match n % 200 {
            0 => Value::Bytes(vec![n as u8; 20_000]),
            1..100 => Value::Bytes(vec![n as u8; 50]),
            _ => Value::Null,
        },
    ]
}

fn filled(db: &Database) -> Table {
    let table = db.create_table(&plain()).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS {
        table.insert(&mut trx, &row(id, id * 7 % 1000, id)).unwrap();
    }
    trx.commit().unwrap();
    table
}

/// What is made of the table `plain`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Product {
    Indexes,
    /// All rows in fresh pages, with the indexes, and one more column.
    Rows,
    /// Under another primary key.
    RowsByOnly,
    /// Likewise, with one where rows are found by their ids all the same, and have different ones.
    RowsByIdAndOnly,
}

use Product::*;

impl Product {
    fn definition(self) -> TableDef {
        let mut def = indexed();
        match self {
            Indexes => {}
            Rows => {
                def = def.nullable("new", ColumnType::i32());
                def.columns[4].default = Some(7i32.to_le_bytes().to_vec());
            }
            RowsByOnly => def = def.primary(&["only"]),
            RowsByIdAndOnly => def = def.primary(&["id", "only"]).unique("by_id", &["id"]),
        }
        def
    }

    fn prepare(
        self,
        db: &Database,
        waits: RedefinitionWaits,
    ) -> varve::Result<PreparedRedefinition> {
        match self {
            Indexes => db.prepare_redefinition(&self.definition(), waits),
            _ => db.prepare_rebuild(&self.definition(), waits),
        }
    }

    fn make(self, db: &Database) -> varve::Result<()> {
        self.prepare(db, RedefinitionWaits::default())?
            .commit(&mut |_, _| {})
    }
}

fn prepare(db: &Database, product: Product) -> PreparedRedefinition {
    product.prepare(db, RedefinitionWaits::default()).unwrap()
}

/// Of the table's schema.
fn files(dir: &std::path::Path) -> Vec<String> {
    let files = std::fs::read_dir(dir.join("a")).unwrap();
    let name = |file: std::io::Result<std::fs::DirEntry>| file.unwrap().file_name();
    files
        .map(|file| name(file).into_string().unwrap())
        .collect()
}

fn nobody(_: &str, _: &RowRef<'_>) {
    panic!("there are no duplicates");
}

fn is_sound(db: &Database) {
    let report = db.check_table(&db.table("a/t").unwrap()).unwrap();
    assert_eq!(report.errors, [""; 0]);
}

/// Ids and values of a column, in the order of an index.
fn scan(db: &Database, index: &str, column: &str) -> Vec<(i64, Value)> {
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table
        .cursor(table.def().index_number(index).unwrap())
        .unwrap();
    let mut found = Vec::new();
    let mut more = cursor.first(&mut trx, LockMode::None).unwrap();
    while more {
        let row = cursor.row().unwrap();
        let value = |name| row.value(row.column(name).unwrap()).unwrap();
        let Value::Int(id) = value("id") else {
            panic!("ids are numbers")
        };
        found.push((id, value(column)));
        more = cursor.next(&mut trx).unwrap();
    }
    found
}

/// CATCH-1. What is committed, taken back, and not yet decided while rounds go on; rows that come, go, change
/// their keys, and come again.
#[test]
fn what_is_built_catches_up_with_changes() {
    for (product, delay) in [
        (Indexes, Duration::ZERO),
        (Indexes, Duration::from_secs(3600)),
        (Rows, Duration::ZERO),
        (RowsByOnly, Duration::ZERO),
        (RowsByOnly, Duration::from_secs(3600)),
        (RowsByIdAndOnly, Duration::ZERO),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        let table = filled(&db);
        db.set_history_options(HistoryOptions {
            delay,
            ..HistoryOptions::default()
        })
        .unwrap();
        let commit = |change: &dyn Fn(&mut Transaction)| {
            let mut trx = db.begin(Isolation::RepeatableRead);
            change(&mut trx);
            trx.commit().unwrap();
        };
        let mut prepared = prepare(&db, product);
        // Before the scan.
        commit(&|trx| {
            for id in 0..100 {
                assert!(delete(trx, &table, id).unwrap());
                table.put(trx, &row(id + 100, id, id + 100)).unwrap();
            }
        });
        let mut undecided = db.begin(Isolation::RepeatableRead);
        table.insert(&mut undecided, &row(5000, 1, 5000)).unwrap();
        table.put(&mut undecided, &row(300, 77, 300)).unwrap();
        let mut undone = db.begin(Isolation::RepeatableRead);
        table.put(&mut undone, &row(400, 78, 400)).unwrap();
        assert!(delete(&mut undone, &table, 401).unwrap());
        let has_purged = || {
            if delay.is_zero() {
                assert!(db.wait_for_purge(Duration::from_secs(60)));
            }
        };
        prepared.build(&mut nobody).unwrap();
        undecided.commit().unwrap();
        undone.rollback().unwrap();
        has_purged();
        prepared.build(&mut nobody).unwrap();
        // Rows of a round change their places in the unique index.
        commit(&|trx| {
            for id in (1000..1100).step_by(2) {
                table.put(trx, &row(id, id, id + 1)).unwrap();
                table.put(trx, &row(id + 1, id, id)).unwrap();
            }
        });
        commit(&|trx| assert!(delete(trx, &table, 1500).unwrap()));
        commit(&|trx| table.insert(trx, &row(1500, 3, 9999)).unwrap());
        commit(&|trx| {
            let before = trx.savepoint();
            table.put(trx, &row(1600, 5, 1600)).unwrap();
            trx.rollback_to(before).unwrap();
            table.put(trx, &row(1601, 200, 1601)).unwrap();
        });
        has_purged();
        drop(table);
        prepared.commit(&mut nobody).unwrap();
        is_sound(&db);
        let by_only = scan(&db, "by_only", "only");
        assert_eq!(by_only.len(), ROWS as usize - 100 + 1);
        assert!(by_only.is_sorted_by_key(|(_, only)| match only {
            Value::Int(n) => *n,
            _ => panic!("it is a number"),
        }));
        let mut by_id = scan(&db, "PRIMARY", "n");
        let mut by_n = scan(&db, "by_n", "n");
        by_n.sort_by_key(|(id, _)| *id);
        by_id.sort_by_key(|(id, _)| *id);
        assert_eq!(by_n, by_id);
        if product == Rows {
            let new = scan(&db, "PRIMARY", "new");
            assert!(new.iter().all(|(_, new)| *new == Value::Int(7)));
        }
        let n = |id| by_id.iter().find(|row| row.0 == id).unwrap().1.clone();
        assert_eq!(n(5000), Value::Int(1));
        assert_eq!(n(401), Value::Int(807));
        assert_eq!(n(1500), Value::Int(3));
        db.close().unwrap();
        let db = open(dir.path());
        is_sound(&db);
        assert_eq!(
            db.table("a/t").unwrap().def().indexes.len(),
            product.definition().indexes.len()
        );
        db.close().unwrap();
    }
}

/// BUILD-1: also of rows that came later.
#[test]
fn duplicates_that_come_later_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = filled(&db);
    for (product, built) in [
        (Indexes, false),
        (Indexes, true),
        (Rows, false),
        (Rows, true),
        (RowsByOnly, false),
        (RowsByOnly, true),
    ] {
        let mut prepared = prepare(&db, product);
        if built {
            prepared.build(&mut nobody).unwrap();
        }
        let mut trx = db.begin(Isolation::RepeatableRead);
        table.insert(&mut trx, &row(7000, 1, 70)).unwrap();
        trx.commit().unwrap();
        let mut told = None;
        let mut tell = |index: &str, row: &RowRef<'_>| {
            told = Some((index.to_string(), row.value(2).unwrap()));
        };
        let refused = prepared.commit(&mut tell).unwrap_err();
        let expected = match product {
            RowsByOnly => "PRIMARY",
            _ => "by_only",
        };
        assert!(
            matches!(&refused, Error::DuplicateKey { index } if index == expected),
            "{refused}"
        );
        assert_eq!(told, Some((expected.into(), Value::Int(70))));
        assert_eq!(files(dir.path()), ["t.vdt"]);
        let mut trx = db.begin(Isolation::RepeatableRead);
        assert!(delete(&mut trx, &table, 7000).unwrap());
        trx.commit().unwrap();
        is_sound(&db);
    }
    // One that has gone again is none.
    let mut prepared = prepare(&db, RowsByOnly);
    prepared.build(&mut nobody).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    table.insert(&mut trx, &row(7000, 1, 70)).unwrap();
    assert!(delete(&mut trx, &table, 7000).unwrap());
    trx.commit().unwrap();
    drop(table);
    prepared.commit(&mut nobody).unwrap();
    is_sound(&db);
}

/// The room for notes is bounded: the build fails, those who change the table don't.
#[test]
fn too_many_changes_end_a_build() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = filled(&db);
    assert!(db.set_online_log_bytes(1000).is_err());
    db.set_online_log_bytes(64 << 10).unwrap();
    for (product, name) in [(Indexes, "by_n"), (Rows, "PRIMARY")] {
        let mut prepared = prepare(&db, product);
        for n in 0..5 {
            let mut trx = db.begin(Isolation::RepeatableRead);
            for id in 0..ROWS {
                table.put(&mut trx, &row(id, n, id)).unwrap();
            }
            trx.commit().unwrap();
        }
        let refused = prepared.build(&mut nobody).unwrap_err();
        assert!(matches!(refused, Error::TooManyChanges { .. }), "{refused}");
        assert!(refused.to_string().contains(name), "{refused}");
        drop(prepared);
        is_sound(&db);
    }
    db.set_online_log_bytes(1 << 20).unwrap();
    drop(table);
    db.redefine_table(&indexed()).unwrap();
    is_sound(&db);
}

/// Who keeps away whom: others read and change the table, DDL and CHECK TABLE wait.
#[test]
fn a_table_is_used_while_something_is_built() {
    for product in [Indexes, RowsByIdAndOnly] {
        is_used_meanwhile(product);
    }
}

fn is_used_meanwhile(product: Product) {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = filled(&db);
    // It begins when nobody uses the table.
    let mut writer = db.begin(Isolation::RepeatableRead);
    table.insert(&mut writer, &row(6000, 1, 6000)).unwrap();
    let impatient = || RedefinitionWaits {
        lock_wait_timeout: Some(Duration::from_millis(50)),
        ..RedefinitionWaits::default()
    };
    let refused = product.prepare(&db, impatient()).err();
    assert!(matches!(refused, Some(Error::LockWaitTimeout)));
    writer.commit().unwrap();
    let mut prepared = product.prepare(&db, impatient()).unwrap();
    let refused = product.prepare(&db, impatient()).err();
    assert!(matches!(refused, Some(Error::LockWaitTimeout)));
    let checker = db.begin(Isolation::RepeatableRead);
    let refused = checker.check_table(&table).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    drop(checker);
    prepared.build(&mut nobody).unwrap();
    let mut writer = db.begin(Isolation::RepeatableRead);
    table.insert(&mut writer, &row(6001, 1, 6001)).unwrap();
    assert_eq!(scan(&db, "PRIMARY", "n").len(), ROWS as usize + 1);
    // It ends when nobody uses it, either.
    let refused = prepared.commit(&mut nobody).unwrap_err();
    assert!(matches!(refused, Error::LockWaitTimeout), "{refused}");
    writer.commit().unwrap();
    is_sound(&db);
    drop(table);
    let interrupt = Arc::new(AtomicBool::new(true));
    let waits = RedefinitionWaits {
        interrupt: Some(interrupt),
        ..RedefinitionWaits::default()
    };
    let mut prepared = product.prepare(&db, waits).unwrap();
    let refused = prepared.build(&mut nobody).unwrap_err();
    assert!(matches!(refused, Error::Interrupted), "{refused}");
    drop(prepared);
    assert_eq!(files(dir.path()), ["t.vdt"]);
    product.make(&db).unwrap();
    is_sound(&db);
    assert_eq!(scan(&db, "by_n", "n").len(), ROWS as usize + 2);
    assert_eq!(files(dir.path()), ["t.vdt"]);
}

/// One change, which may be refused.
fn change(trx: &mut Transaction, table: &Table, chance: &mut StdRng) -> varve::Result<()> {
    let id = chance.random_range(0..ROWS);
    match chance.random_range(0..6) {
        0 => delete(trx, table, id).map(drop),
        1 => {
            // Two rows change places, always the same two: others would leave values that several rows have.
            let other = id ^ 1;
            delete(trx, table, id)?;
            delete(trx, table, other)?;
            let n = chance.random_range(0..1000);
            table.insert(trx, &row(id, n, other))?;
            table.insert(trx, &row(other, n, id))
        }
        2 => {
            let before = trx.savepoint();
            table.put(trx, &row(id, chance.random_range(0..1000), id))?;
            trx.rollback_to(before)
        }
        // A key that others may have, rarely.
        3 if chance.random_range(0..2000) == 0 => table.put(
            trx,
            &row(
                id,
                chance.random_range(0..1000),
                chance.random_range(0..ROWS),
            ),
        ),
        _ => {
            delete(trx, table, id)?;
            table.insert(trx, &row(id, chance.random_range(0..1000), ROWS + id))
        }
    }
}

fn write_until(db: &Database, stop: &AtomicBool, seed: u64, done: &AtomicU64) {
    let mut chance = StdRng::seed_from_u64(seed);
    while !stop.load(Ordering::Relaxed) {
        let Ok(table) = db.table("a/t") else { continue };
        let mut trx = db.begin(Isolation::RepeatableRead);
        let changes = 1 + chance.random_range(0..8);
        let mut is_lost = false;
        for _ in 0..changes {
            trx.start_statement();
            match change(&mut trx, &table, &mut chance) {
                Ok(()) => {}
                Err(Error::DuplicateKey { .. }) => trx.rollback_statement().unwrap(),
                Err(Error::Deadlock | Error::LockWaitTimeout | Error::NotFound { .. }) => {
                    is_lost = true;
                    break;
                }
                Err(e) => panic!("{e}"),
            }
        }
        match is_lost || chance.random_range(0..5) == 0 {
            true => trx.rollback().unwrap(),
            false => trx.commit().unwrap(),
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// CATCH-1, CATCH-2. Writers go on all the time; whenever the indexes are there they are those of the rows.
#[test]
fn what_is_built_is_right_under_load() {
    for (product, delay) in [
        (Indexes, Duration::ZERO),
        (Indexes, Duration::from_secs(3600)),
        (RowsByIdAndOnly, Duration::ZERO),
        (RowsByIdAndOnly, Duration::from_secs(3600)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        drop(filled(&db));
        db.set_history_options(HistoryOptions {
            delay,
            ..HistoryOptions::default()
        })
        .unwrap();
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        let (mut built, mut refused) = (0, 0);
        thread::scope(|scope| {
            for seed in [11, 23] {
                let (db, stop, done) = (&db, &stop, &done);
                scope.spawn(move || write_until(db, stop, seed, done));
            }
            while built < 6 {
                match product.make(&db) {
                    Ok(()) => built += 1,
                    Err(Error::DuplicateKey { .. }) => refused += 1,
                    Err(e) => {
                        stop.store(true, Ordering::Relaxed);
                        panic!("{e}");
                    }
                }
                let report = db.check_table(&db.table("a/t").unwrap()).unwrap();
                let before = done.load(Ordering::Relaxed);
                match product {
                    Indexes => db.redefine_table(&plain()).unwrap(),
                    _ => db.rebuild_table(&plain()).unwrap(),
                }
                if !report.errors.is_empty() || refused > 100 {
                    stop.store(true, Ordering::Relaxed);
                }
                assert_eq!(report.errors, [""; 0]);
                assert!(refused <= 100, "rows with the same values are rare");
                while done.load(Ordering::Relaxed) < before + 20 {
                    thread::yield_now();
                }
                // Rows with the same values go, or there would be no unique index any more.
                make_unique(&db);
            }
            stop.store(true, Ordering::Relaxed);
        });
        is_sound(&db);
        db.close().unwrap();
        is_sound(&open(dir.path()));
    }
}

/// Gives each row a value of its own.
fn make_unique(db: &Database) {
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS {
        if delete(&mut trx, &table, id).unwrap() {
            table.insert(&mut trx, &row(id, id % 1000, id)).unwrap();
        }
    }
    trx.commit().unwrap();
}
