//! Tables that are loaded (`Database::load_table`) against tables with the same rows by inserts.
//!
//! What could break here: a row or an entry that is missing or too much, wherever in their order rows begin
//! to come in another one; a duplicate that is not found, or another one that is named; counters behind the
//! rows; a long value that a change of its row, or purge, takes for another one; a load that has failed and
//! leaves files, or a table that can't be dropped; a view that sees rows which were not there.

#[path = "support/dying_disk.rs"]
mod dying_disk;
#[path = "support/small.rs"]
mod small;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dying_disk::DyingDisk;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use varve::{
    ColumnType, Database, Error, FlushLog, ForeignKey, HistoryOptions, Isolation, KeyMatch,
    LockMode, Options, Result, RowRef, Table, TableDef, Transaction, Value,
};

const ROWS: i64 = 4000;

fn open(dir: &Path) -> Database {
    let options = Options {
        sort_buffer_bytes: 64 << 10,
        ..small::options()
    };
    Database::open(dir, options).unwrap()
}

fn with_columns(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .nullable("n", ColumnType::i64())
        .column("text", ColumnType::text(100))
        .nullable("long", ColumnType::Bytes(100_000))
}

fn with_indexes(def: TableDef) -> TableDef {
    def.unique("by_n", &["n"])
        .index("by_text", &["text"])
        .index("by_both", &["n", "text"])
}

fn keyed(name: &str) -> TableDef {
    with_indexes(with_columns(name).primary(&["id"])).auto_increment("id")
}

fn row(id: i64) -> Vec<Value> {
    let n = match id % 10 {
        0 => Value::Null,
        _ => Value::Int(id * 7919 % 1_000_003),
    };
    let long = match id % 500 {
        0 => Value::Bytes(vec![id as u8; 50_000]),
        1 => Value::Bytes(vec![id as u8; 3000]),
        _ => Value::Null,
    };
    vec![
        Value::Int(id),
        n,
        Value::Text(format!("text {} of {id}", id * 31 % 777)),
        long,
    ]
}

/// Why a load has failed, and what it has shown of a row: the index, and the row's values.
type Failure = (Error, Option<(String, Vec<Value>)>);

/// Loads rows into a table, which is there and empty.
fn load(
    db: &Database,
    name: &str,
    rows: impl IntoIterator<Item = Vec<Value>>,
) -> std::result::Result<(), Failure> {
    let mut shown = None;
    let loaded = load_showing(db, name, rows, &mut |index, row| {
        let values = (0..4).map(|at| row.value(at).unwrap());
        shown = Some((index.to_string(), values.collect()));
    });
    loaded.map_err(|e| (e, shown))
}

fn load_showing(
    db: &Database,
    name: &str,
    rows: impl IntoIterator<Item = Vec<Value>>,
    show: &mut dyn FnMut(&str, &RowRef<'_>),
) -> Result<()> {
    let table = db.table(name)?;
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut load = db.load_table(&mut trx, &table, 1)?;
    for row in rows {
        load.push(&mut trx, &table.def().row(&row)?.datums())?;
    }
    load.finish(&mut trx, show)?;
    trx.commit()
}

fn insert(db: &Database, name: &str, rows: impl IntoIterator<Item = Vec<Value>>) {
    let table = db.table(name).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for row in rows {
        table.insert(&mut trx, &row).unwrap();
    }
    trx.commit().unwrap();
}

/// All rows in the order of an index.
fn rows_by(db: &Database, name: &str, index: usize) -> Vec<Vec<Value>> {
    let table = db.table(name).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(index).unwrap();
    let mut rows = Vec::new();
    let mut more = cursor.first(&mut trx, LockMode::None).unwrap();
    while more {
        let row = cursor.row().unwrap();
        let columns = table.def().columns.len();
        rows.push((0..columns).map(|at| row.value(at).unwrap()).collect());
        more = cursor.next(&mut trx).unwrap();
    }
    rows
}

fn is_sound(db: &Database, name: &str) {
    let report = db.check_table(&db.table(name).unwrap()).unwrap();
    assert_eq!(report.errors, [""; 0], "{name}");
}

/// Two tables have the same rows, by each index, and the same counters.
fn are_same(db: &Database, a: &str, b: &str) {
    is_sound(db, a);
    is_sound(db, b);
    let tables = [db.table(a).unwrap(), db.table(b).unwrap()];
    let counters = tables.each_ref().map(Table::auto_increment_next);
    assert_eq!(counters[0], counters[1], "LOAD-3");
    for index in 0..=tables[0].def().indexes.len() {
        assert!(
            rows_by(db, a, index) == rows_by(db, b, index),
            "LOAD-3: index {index} of {a} and {b}"
        );
    }
}

fn left_by_sorting(dir: &Path) -> bool {
    let mut names = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    names.any(|name| name.to_str().unwrap().starts_with("varve.sort"))
}

/// A file that is left by who was killed before it had no name any more is empty.
fn bytes_left_by_sorting(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir).unwrap().map(std::io::Result::unwrap);
    let sorts = files.filter(|file| file.file_name().to_str().unwrap().starts_with("varve.sort"));
    sorts.map(|file| file.metadata().unwrap().len()).sum()
}

fn change(db: &Database, name: &str, id: i64) {
    let table = db.table(name).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    match id % 3 {
        0 => assert!(table.delete(&mut trx, &[Value::Int(id)]).unwrap()),
        _ => {
            let new = [("long", Value::Bytes(vec![1; 20_000])), ("n", Value::Null)];
            assert!(table.set(&mut trx, &[Value::Int(id)], &new).unwrap());
        }
    }
    trx.commit().unwrap();
}

/// LOAD-3, for rows that come in order, in none, and in order for a while; few and so many that they are
/// sorted in files. The tables can be changed like others, and are what they were after a restart.
#[test]
fn a_loaded_table_is_one_with_the_same_rows() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let ids = |n: i64| (1..=n).collect::<Vec<_>>();
    let mut shuffled = ids(ROWS);
    shuffled.shuffle(&mut StdRng::seed_from_u64(1));
    let in_parts: Vec<i64> = (0..4)
        .flat_map(|part| (1..=ROWS).filter(move |id| id % 4 == part))
        .collect();
    let mut late = ids(ROWS);
    late.swap(0, ROWS as usize - 1);
    let backward = ids(ROWS).into_iter().rev().collect();
    let orders = [
        Vec::new(),
        vec![7],
        vec![2, 1],
        ids(ROWS),
        shuffled,
        in_parts,
        late,
        backward,
    ];
    for (n, ids) in orders.into_iter().enumerate() {
        let (made, name, inserted) = (
            format!("a/#new{n}"),
            format!("a/t{n}"),
            format!("a/inserted{n}"),
        );
        drop(db.create_table(&keyed(&made)).unwrap());
        drop(db.create_table(&keyed(&inserted)).unwrap());
        load(&db, &made, ids.iter().copied().map(row)).unwrap();
        let rows = db.table(&made).unwrap().row_count_estimate();
        assert_eq!(rows, ids.len() as u64);
        insert(&db, &inserted, ids.iter().copied().map(row));
        are_same(&db, &made, &inserted);
        db.rename_table(&made, &name).unwrap();
        are_same(&db, &name, &inserted);
        for &id in ids.iter().filter(|id| **id % 50 == 0) {
            change(&db, &name, id);
            change(&db, &inserted, id);
        }
        insert(&db, &name, [row(ROWS + 1)]);
        insert(&db, &inserted, [row(ROWS + 1)]);
        are_same(&db, &name, &inserted);
    }
    assert!(!left_by_sorting(dir.path()));
    assert!(db.wait_for_purge(Duration::from_secs(60)));
    db.close().unwrap();
    let db = open(dir.path());
    for n in 0..8 {
        are_same(&db, &format!("a/t{n}"), &format!("a/inserted{n}"));
    }
}

/// Rows without a primary key keep the order in which they come, and later ones come behind them.
#[test]
fn rows_without_a_key_stay_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let def = |name: &str| with_indexes(with_columns(name));
    let ids: Vec<i64> = (1..ROWS).map(|n| n * 7 % ROWS).collect();
    drop(db.create_table(&def("a/#t")).unwrap());
    drop(db.create_table(&def("a/u")).unwrap());
    load(&db, "a/#t", ids.iter().copied().map(row)).unwrap();
    insert(&db, "a/u", ids.iter().copied().map(row));
    are_same(&db, "a/#t", "a/u");
    db.rename_table("a/#t", "a/t").unwrap();
    for name in ["a/t", "a/u"] {
        insert(&db, name, [row(ROWS + 1), row(ROWS + 2)]);
    }
    are_same(&db, "a/t", "a/u");
}

fn small_table(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .nullable("a", ColumnType::i64())
        .nullable("b", ColumnType::text(10))
        .column("fill", ColumnType::Bytes(9000))
        .primary(&["id"])
        .unique("by_a", &["a"])
        .unique("by_b", &["b", "a"])
        .index("other", &["a"])
}

/// LOAD-4: the row and the index are those that an insert refuses.
#[test]
fn the_duplicate_that_an_insert_refuses_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let mut refused = 0;
    for seed in 0..100 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let n = rng.random_range(2..60);
        let most = [20, 200, 2000][seed as usize % 3];
        let in_order = rng.random_bool(0.4);
        let nullable = |rng: &mut StdRng, most: i64| match rng.random_ratio(1, 5) {
            true => None,
            false => Some(rng.random_range(0..most)),
        };
        let mut rows: Vec<Vec<Value>> = (0..n)
            .map(|n| {
                let id = if in_order {
                    n
                } else {
                    rng.random_range(0..most)
                };
                let a = nullable(rng, most).map_or(Value::Null, Value::Int);
                let b = nullable(rng, 3).map_or(Value::Null, |b| Value::Text(format!("{b}")));
                let fill = vec![n as u8; if n % 9 == 0 { 8000 } else { 10 }];
                vec![Value::Int(id), a, b, Value::Bytes(fill)]
            })
            .collect();
        if in_order && rng.random() {
            let (from, to) = (
                rng.random_range(0..rows.len()),
                rng.random_range(0..rows.len()),
            );
            rows[to][0] = rows[from][0].clone();
        }
        drop(db.create_table(&small_table("a/#t")).unwrap());
        let table = db.create_table(&small_table("a/u")).unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        let expected = rows
            .iter()
            .find_map(|row| match table.insert(&mut trx, row) {
                Ok(()) => None,
                Err(Error::DuplicateKey { index }) => Some((index, row.clone())),
                Err(e) => panic!("{e}"),
            });
        trx.commit().unwrap();
        drop(table);
        match (load(&db, "a/#t", rows.clone()), expected) {
            (Ok(()), None) => are_same(&db, "a/#t", "a/u"),
            (Err((Error::DuplicateKey { index }, shown)), Some(expected)) => {
                assert_eq!(index, expected.0, "seed {seed}");
                // If it is found out when the row comes, the caller has it.
                assert!(shown.is_none_or(|shown| shown == expected), "seed {seed}");
                refused += 1;
            }
            (found, expected) => panic!("seed {seed}: {found:?}, not {expected:?}"),
        }
        db.drop_table("a/#t").unwrap();
        db.drop_table("a/u").unwrap();
    }
    assert!((40..95).contains(&refused), "{refused}");
    assert!(!left_by_sorting(dir.path()));
}

/// A row whose key comes again at once is refused at once, if no other index can have refused one before.
#[test]
fn a_key_that_comes_again_at_once_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let def = with_columns("a/#t").primary(&["id"]).index("by_n", &["n"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut load = db.load_table(&mut trx, &table, 1).unwrap();
    let mut push = |id| load.push(&mut trx, &table.def().row(&row(id)).unwrap().datums());
    push(5).unwrap();
    let refused = push(5).unwrap_err();
    assert!(matches!(refused, Error::DuplicateKey { .. }), "{refused}");
    let refused = push(6).unwrap_err();
    assert!(refused.to_string().contains("drop the table"), "{refused}");
    assert!(load.finish(&mut trx, &mut |_, _| {}).is_err());
}

/// LOAD-1: the lock is that of one transaction.
#[test]
fn a_load_is_one_transactions() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table(&keyed("a/#t")).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut load = db.load_table(&mut trx, &table, 1).unwrap();
    trx.rollback().unwrap();
    let mut other = db.begin(Isolation::RepeatableRead);
    let values = table.def().row(&row(1)).unwrap();
    let refused = load.push(&mut other, &values.datums()).unwrap_err();
    assert!(refused.to_string().contains("another"), "{refused}");
    assert!(load.finish(&mut other, &mut |_, _| {}).is_err());
}

/// What can't be loaded is refused with a reason, and is as it was.
#[test]
fn only_an_empty_table_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let begin = |table: &Table| {
        let mut trx = db.begin(Isolation::RepeatableRead);
        let refused = db.load_table(&mut trx, table, 1).err();
        refused.expect("it is refused")
    };
    db.create_table(&keyed("a/t")).unwrap();
    let temporary = db.create_temporary_table(&keyed("a/#temporary")).unwrap();
    let refused = begin(&temporary);
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    drop(temporary);
    let table = db.create_table(&keyed("a/#t")).unwrap();
    insert(&db, "a/#t", [row(1)]);
    let refused = begin(&table);
    assert!(refused.to_string().contains("not empty"), "{refused}");
    assert_eq!(rows_by(&db, "a/#t", 0).len(), 1);
    let child = with_columns("a/#child")
        .primary(&["id"])
        .index("n", &["n"])
        .foreign_key(ForeignKey::new("f", &["n"], "a/t", &["id"]));
    let child = db.create_table(&child).unwrap();
    let refused = begin(&child);
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    let mut trx = db.begin(Isolation::RepeatableRead);
    trx.set_foreign_key_checks(false);
    drop(db.load_table(&mut trx, &child, 1).unwrap());
}

/// LOAD-1: nobody has the table meanwhile, and who has begun to read before it gets its name does not read
/// it.
#[test]
fn older_views_do_not_read_a_loaded_table() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table(&keyed("a/#t")).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut load = db.load_table(&mut trx, &table, 1).unwrap();
    let values = table.def().row(&row(1)).unwrap();
    load.push(&mut trx, &values.datums()).unwrap();
    let mut other = db.begin(Isolation::RepeatableRead);
    other.set_lock_wait_timeout(Duration::from_millis(20));
    let refused = table.insert(&mut other, &row(2)).unwrap_err();
    assert!(matches!(refused, Error::LockWaitTimeout), "{refused}");
    drop(other);
    load.finish(&mut trx, &mut |_, _| {}).unwrap();
    let mut old = db.begin(Isolation::RepeatableRead);
    old.take_snapshot();
    trx.commit().unwrap();
    drop(table);
    db.rename_table("a/#t", "a/t").unwrap();
    let table = db.table("a/t").unwrap();
    let refused = table.get(&mut old, &[Value::Int(1)]).err().unwrap();
    assert!(
        matches!(refused, Error::DefinitionChanged { .. }),
        "{refused}"
    );
    let mut new = db.begin(Isolation::RepeatableRead);
    assert!(table.get(&mut new, &[Value::Int(1)]).unwrap().is_some());
}

/// A view that is a member of the history store goes on reading rows that were loaded, and their long values,
/// when others have changed them.
#[test]
fn versions_of_loaded_rows_go_to_the_history_store() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    db.set_history_options(HistoryOptions {
        delay: Duration::ZERO,
        ..HistoryOptions::default()
    })
    .unwrap();
    drop(db.create_table(&keyed("a/#t")).unwrap());
    let ids = [500, 1000, 501, 1, 2, 3];
    load(&db, "a/#t", ids.map(row)).unwrap();
    db.rename_table("a/#t", "a/t").unwrap();
    let mut old = db.begin(Isolation::RepeatableRead);
    old.take_snapshot();
    for id in ids {
        change(&db, "a/t", id);
    }
    assert!(db.wait_for_purge(Duration::from_secs(60)));
    let table = db.table("a/t").unwrap();
    for id in ids {
        let mut cursor = table.cursor(0).unwrap();
        let key = id.to_le_bytes();
        let found = cursor.seek(&mut old, &[Some(&key)], KeyMatch::Exact, LockMode::None);
        assert!(found.unwrap(), "{id}");
        let now = cursor.row().unwrap();
        let values: Vec<_> = (0..4).map(|at| now.value(at).unwrap()).collect();
        assert!(values == row(id), "{id}");
    }
}

/// LOAD-2: a load that is interrupted, or given up, leaves a table that can be dropped, with its file, and
/// nothing else.
#[test]
fn a_load_that_ends_early_leaves_a_table_to_be_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let interrupt = Arc::new(AtomicBool::new(false));
    let begin = || {
        let mut trx = db.begin(Isolation::RepeatableRead);
        trx.set_interrupt(interrupt.clone());
        trx
    };
    for way in 0..3 {
        let table = db.create_table(&keyed("a/#t")).unwrap();
        let mut trx = begin();
        let mut load = db.load_table(&mut trx, &table, 3).unwrap();
        let push = |load: &mut varve::TableLoad, trx: &mut Transaction, id: i64| {
            load.push(trx, &table.def().row(&row(id)).unwrap().datums())
        };
        for id in 0..ROWS * 3 {
            let id = match way {
                1 => id,
                _ => id * 7 % (ROWS * 3 + 1),
            };
            push(&mut load, &mut trx, id).unwrap();
        }
        interrupt.store(way < 2, Ordering::Release);
        let ended = match way {
            0 => load.finish(&mut trx, &mut |_, _| {}),
            1 => push(&mut load, &mut trx, ROWS * 3),
            _ => Err(Error::Interrupted),
        };
        assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
        interrupt.store(false, Ordering::Release);
        trx.rollback().unwrap();
        drop(table);
        db.drop_table("a/#t").unwrap();
        assert!(!dir.path().join("a/#t.vdt").exists());
    }
    assert!(!left_by_sorting(dir.path()));
}

/// A disk that is full fails the load, wherever it is full, and the table can be dropped.
#[test]
fn a_full_disk_ends_a_load() {
    for part in ["varve.sort", "#t"] {
        let dir = tempfile::tempdir().unwrap();
        let disk = DyingDisk::new();
        let options = Options {
            sort_buffer_bytes: 64 << 10,
            ..small::options()
        };
        let db = Database::open_on(Arc::new(disk.clone()), dir.path(), options).unwrap();
        drop(db.create_table(&keyed("a/#t")).unwrap());
        disk.fill_up_for(part);
        let ids = (0..ROWS).map(|id| id * 7 % ROWS);
        let (e, _) = load(&db, "a/#t", ids.clone().map(row)).unwrap_err();
        assert!(matches!(e, Error::NoSpace { .. }), "{e}");
        db.drop_table("a/#t").unwrap();
        disk.make_room();
        drop(db.create_table(&keyed("a/#t")).unwrap());
        load(&db, "a/#t", ids.map(row)).unwrap();
        is_sound(&db, "a/#t");
    }
}

/// LOAD-5: a table that was loaded is whole after a crash, though nobody has waited for a commit.
#[test]
fn a_loaded_table_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options {
        flush_log_at_trx_commit: FlushLog::Lazy,
        ..small::options()
    };
    let db = Database::open(dir.path(), options()).unwrap();
    drop(db.create_table(&keyed("a/#t")).unwrap());
    load(&db, "a/#t", (1..=ROWS).map(row)).unwrap();
    db.crash();
    let db = Database::open(dir.path(), options()).unwrap();
    is_sound(&db, "a/#t");
    assert_eq!(rows_by(&db, "a/#t", 0).len(), ROWS as usize);
    assert_eq!(
        db.table("a/#t").unwrap().auto_increment_next(),
        ROWS as u64 + 1
    );
}

/// Whenever the process dies, the table that was to be made has all its rows under its name, or what there is
/// of it under the other name can be dropped.
#[test]
fn a_crash_leaves_the_whole_table_or_one_to_be_dropped() {
    let options = || Options {
        page_size: 4096,
        buffer_pool_bytes: 2 << 20,
        redo_capacity_bytes: 8 << 20,
        sort_buffer_bytes: 64 << 10,
        logger: Some(Arc::new(|_, _| {})),
        ..Options::default()
    };
    let ids = || (1..=700).map(|id| if id < 300 { id } else { 1000 - id });
    let (mut lives, mut unfinished) = (0, 0);
    loop {
        let dir = tempfile::tempdir().unwrap();
        let disk = DyingDisk::new();
        let db = Database::open_on(Arc::new(disk.clone()), dir.path(), options()).unwrap();
        disk.live_for(lives);
        let made = || {
            drop(db.create_table(&keyed("a/#t"))?);
            load_showing(&db, "a/#t", ids().map(row), &mut |_, _| {})?;
            db.rename_table("a/#t", "a/t")
        };
        let is_made = made().is_ok();
        disk.live_for(0);
        db.crash();
        let context = format!("dead after {lives} operations");
        let db = Database::open(dir.path(), options()).unwrap_or_else(|e| panic!("{context}: {e}"));
        assert_eq!(bytes_left_by_sorting(dir.path()), 0, "{context}");
        match &db.tables().unwrap()[..] {
            [] => assert!(!is_made, "{context}"),
            [name] if name == "a/#t" => {
                assert!(!is_made, "{context}");
                unfinished += 1;
                db.drop_table(name)
                    .unwrap_or_else(|e| panic!("{context}: {e}"));
                assert!(!dir.path().join("a/#t.vdt").exists(), "{context}");
            }
            [name] => {
                assert_eq!(name, "a/t", "{context}");
                is_sound(&db, name);
                assert_eq!(rows_by(&db, name, 0).len(), 700, "{context}");
            }
            names => panic!("{context}: {names:?}"),
        }
        if is_made {
            break;
        }
        lives += 1 + lives / 20;
    }
    assert!(unfinished > 5, "{unfinished}");
}
