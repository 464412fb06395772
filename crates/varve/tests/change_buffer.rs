//! Changes of entries whose leaves are not in the pool: they wait in change buffers, which readers see
//! through, and are merged.
//!
//! What could break here: an entry that is in both trees is found twice, or one that is in either is not;
//! what was taken back stays, or what it replaced does not come back (CB-2: a change goes where the entry
//! is); a gap lock that does not keep an entry out; an entry that is lost by a merge or a crash; pages of a
//! change buffer that stay behind its index.

#[allow(dead_code, reason = "each test uses its part")]
#[path = "support/small.rs"]
mod small;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
#[cfg(feature = "sabotage")]
use varve::internals::base::Sabotage;
use varve::{
    ChangeBufferOptions, ChangeBuffering, ColumnType, Database, Error, FlushLog, Isolation,
    KeyMatch, LockMode, Options, Table, TableDef, Transaction, Value,
};

const NAME: &str = "b/t";

fn definition(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .column("filler", ColumnType::Bytes(200))
        .primary(&["id"])
        .index("by_k", &["k"])
}

/// A database in which all changes are buffered that can be.
fn open(dir: &tempfile::TempDir, options: Options) -> (Database, Table) {
    let db = Database::open(dir.path(), options).unwrap();
    db.buffer_all_changes(true);
    let table = db.create_table(&definition(NAME)).unwrap();
    (db, table)
}

/// The same with rows 0 to 299, `k` the same, whose entries are merged.
fn open_with_300(dir: &tempfile::TempDir) -> (Database, Table) {
    let (db, table) = open(dir, small::options());
    let mut trx = begin(&db);
    (0..300).for_each(|id| insert(&mut trx, &table, id, id));
    trx.commit().unwrap();
    merge_all(&db);
    assert_eq!(entries(&db), (300, 0));
    (db, table)
}

fn begin(db: &Database) -> Transaction {
    db.begin(Isolation::RepeatableRead)
}

fn status(db: &Database, name: &str) -> u64 {
    let metrics = db.metrics();
    let metric = metrics.iter().find(|m| m.status_name == name);
    metric.unwrap_or_else(|| panic!("no metric {name}")).value
}

fn insert(trx: &mut Transaction, table: &Table, id: i64, k: i64) {
    let filler = Value::Bytes(vec![7; 100]);
    let row = table.def().row(&[Value::Int(id), Value::Int(k), filler]);
    trx.insert(table, &row.unwrap().datums()).unwrap();
}

fn key(table: &Table, column: usize, value: i64) -> varve::DatumBuf {
    let mut values = [Value::Int(0), Value::Int(0), Value::Bytes(Vec::new())];
    values[column] = Value::Int(value);
    table.def().row(&values).unwrap()
}

fn delete(trx: &mut Transaction, table: &Table, id: i64) {
    let mut cursor = table.cursor(0).unwrap();
    let row = key(table, 0, id);
    let wanted = [row.datums()[0]];
    let found = cursor.seek(trx, &wanted, KeyMatch::Exact, LockMode::Exclusive);
    assert!(found.unwrap(), "row {id}");
    trx.delete(table, &cursor).unwrap();
}

fn numbers(values: &[Value]) -> (i64, i64) {
    let number = |value: &Value| match value {
        Value::Int(n) => *n,
        other => panic!("{other:?}"),
    };
    (number(&values[1]), number(&values[0]))
}

/// All rows by the index: `(k, id)`.
fn scan(trx: &mut Transaction, table: &Table, lock: LockMode, backward: bool) -> Vec<(i64, i64)> {
    let mut cursor = table.cursor(1).unwrap();
    let mut rows = Vec::new();
    let mut found = match backward {
        true => cursor.last(trx, lock).unwrap(),
        false => cursor.first(trx, lock).unwrap(),
    };
    while found {
        rows.push(numbers(&cursor.row().unwrap().values().unwrap()));
        found = match backward {
            true => cursor.prev(trx).unwrap(),
            false => cursor.next(trx).unwrap(),
        };
    }
    if backward {
        rows.reverse();
    }
    rows
}

/// The ids of the rows with this `k`.
fn find(trx: &mut Transaction, table: &Table, k: i64, lock: LockMode) -> Vec<i64> {
    let mut cursor = table.cursor(1).unwrap();
    let row = key(table, 1, k);
    let wanted = [row.datums()[1]];
    let mut found = cursor.seek(trx, &wanted, KeyMatch::Exact, lock).unwrap();
    let mut ids = Vec::new();
    while found {
        ids.push(numbers(&cursor.row().unwrap().values().unwrap()).1);
        found = cursor.next_same(trx).unwrap();
    }
    ids
}

fn check(db: &Database, table: &Table, rows: usize) {
    let report = db.check_table(table).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    assert_eq!(report.rows, rows as u64);
}

/// How many entries the own tree of the index has, and its change buffer.
fn entries(db: &Database) -> (u64, u64) {
    let table = db.core().tables.get(NAME).unwrap();
    let index = &table.secondary[0];
    let count =
        |tree: &varve::internals::btree::Tree| tree.check(&mut |_, _| Ok(())).unwrap().records;
    (
        count(&index.tree),
        index.buffer.tree().unwrap().map_or(0, count),
    )
}

/// Merges until nothing is left that can be.
fn merge_all(db: &Database) {
    while db.merge_changes(NAME, 100).unwrap() > 0 {}
}

/// CB-1: both ways, with locks and without, before, while and after entries are merged.
#[test]
fn readers_see_both_trees() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir, small::options());
    let mut expected = Vec::new();
    let mut ids: Vec<i64> = (0..4000).collect();
    ids.shuffle(&mut SmallRng::seed_from_u64(3));
    for (n, ids) in ids.chunks(100).enumerate() {
        let mut trx = begin(&db);
        for &id in ids {
            insert(&mut trx, &table, id, id * 7 % 1000);
            expected.push((id * 7 % 1000, id));
        }
        trx.commit().unwrap();
        if n % 4 == 3 {
            db.merge_changes(NAME, 3).unwrap();
        }
    }
    expected.sort();
    assert!(status(&db, "ibuf_inserts") == 4000 && status(&db, "ibuf_merged_inserts") > 100);
    let (own, buffered) = entries(&db);
    assert_eq!(own + buffered, 4000, "CB-4");
    assert!(own > 100 && buffered > 100, "{own} and {buffered}");
    for lock in [LockMode::None, LockMode::Shared, LockMode::Exclusive] {
        let mut trx = begin(&db);
        for backward in [false, true] {
            assert!(
                scan(&mut trx, &table, lock, backward) == expected,
                "{lock:?} {backward}"
            );
        }
        for k in (0..1000).step_by(37) {
            let of_k = expected
                .iter()
                .filter(|(of, _)| *of == k)
                .map(|(_, id)| *id);
            assert_eq!(find(&mut trx, &table, k, lock), of_k.collect::<Vec<_>>());
        }
    }
    check(&db, &table, 4000);
    merge_all(&db);
    assert_eq!(entries(&db), (4000, 0));
    let mut trx = begin(&db);
    assert!(scan(&mut trx, &table, LockMode::None, false) == expected);
    drop(trx);
    check(&db, &table, 4000);
}

/// CB-3: what was put there is taken back, and what it lay over shows again.
#[test]
fn what_is_buffered_is_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open_with_300(&dir);
    let mut reader = begin(&db);
    let before = scan(&mut reader, &table, LockMode::None, false);
    let mut trx = begin(&db);
    (0..300)
        .step_by(3)
        .for_each(|id| delete(&mut trx, &table, id));
    (0..300)
        .step_by(6)
        .for_each(|id| insert(&mut trx, &table, id, id));
    (300..350).for_each(|id| insert(&mut trx, &table, id, id - 300));
    assert_eq!(status(&db, "ibuf_delete_marks"), 100);
    // CB-4: nothing of this can be merged.
    merge_all(&db);
    assert_eq!(entries(&db), (300, 150));
    assert_eq!(scan(&mut trx, &table, LockMode::None, true).len(), 300);
    assert_eq!(scan(&mut reader, &table, LockMode::None, true), before);
    trx.rollback().unwrap();
    assert_eq!(entries(&db), (300, 0));
    assert_eq!(scan(&mut reader, &table, LockMode::None, false), before);
    drop(reader);
    check(&db, &table, 300);
}

/// CB-5: purge leaves tombstones, which take the own tree's entries away when they are merged.
#[test]
fn what_was_deleted_is_purged_in_the_change_buffer() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open_with_300(&dir);
    let mut reader = begin(&db);
    let before = scan(&mut reader, &table, LockMode::None, false);
    let mut trx = begin(&db);
    (0..300)
        .step_by(2)
        .for_each(|id| delete(&mut trx, &table, id));
    trx.commit().unwrap();
    // CB-4: not before purge has come to it.
    merge_all(&db);
    assert_eq!(entries(&db), (300, 150));
    assert_eq!(scan(&mut reader, &table, LockMode::None, false), before);
    // Behind the reader, which has copies then.
    assert!(db.wait_for_purge(Duration::from_secs(60)));
    assert_eq!(status(&db, "ibuf_deletes"), 150);
    assert_eq!(scan(&mut reader, &table, LockMode::None, false), before);
    check(&db, &table, 150);
    // Over a tombstone.
    let mut trx = begin(&db);
    (0..100)
        .step_by(2)
        .for_each(|id| insert(&mut trx, &table, id, id));
    trx.rollback().unwrap();
    check(&db, &table, 150);
    let mut trx = begin(&db);
    (0..100)
        .step_by(4)
        .for_each(|id| insert(&mut trx, &table, id, id));
    trx.commit().unwrap();
    assert_eq!(scan(&mut reader, &table, LockMode::None, true), before);
    merge_all(&db);
    // What the reader does not see yet lies over what it saw.
    assert_eq!(entries(&db), (175, 25));
    assert_eq!(scan(&mut reader, &table, LockMode::None, true), before);
    drop(reader);
    let until = Instant::now() + Duration::from_secs(60);
    while entries(&db) != (175, 0) {
        assert!(Instant::now() < until, "{:?}", entries(&db));
        merge_all(&db);
    }
    assert_eq!(status(&db, "ibuf_merged_deletes"), 125);
    check(&db, &table, 175);
}

/// CB-6: a gap lock keeps out what would go into the change buffer.
#[test]
fn gap_locks_keep_buffered_entries_out() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir, small::options());
    let mut trx = begin(&db);
    (0..100).for_each(|id| insert(&mut trx, &table, id, id * 10));
    trx.commit().unwrap();
    for merges in [false, true] {
        if merges {
            merge_all(&db);
        }
        let mut locker = begin(&db);
        assert_eq!(find(&mut locker, &table, 505, LockMode::Exclusive), []);
        let mut trx = begin(&db);
        trx.set_lock_wait_timeout(Duration::from_millis(20));
        let filler = Value::Bytes(Vec::new());
        let row = [Value::Int(1000), Value::Int(505), filler];
        let row = table.def().row(&row).unwrap();
        let refused = trx.insert(&table, &row.datums());
        assert!(
            matches!(refused, Err(Error::LockWaitTimeout)),
            "{refused:?}"
        );
        drop(locker);
        trx.insert(&table, &row.datums()).unwrap();
        trx.rollback().unwrap();
    }
    check(&db, &table, 100);
}

/// LOOSE-1: after a crash they are what they were, and they go with their index, and with their table.
#[test]
fn change_buffers_outlive_a_crash_and_go_with_their_index() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir, small::options());
    let mut trx = begin(&db);
    (0..2000).for_each(|id| insert(&mut trx, &table, id, -id));
    trx.commit().unwrap();
    let mut trx = begin(&db);
    (2000..2500).for_each(|id| insert(&mut trx, &table, id, -id));
    (0..500).for_each(|id| delete(&mut trx, &table, id));
    // Makes what the other one did durable.
    let mut other = begin(&db);
    insert(&mut other, &table, 5000, 1);
    other.commit().unwrap();
    drop(table);
    db.crash();
    drop(trx);

    let db = Database::open(dir.path(), small::options()).unwrap();
    let table = db.table(NAME).unwrap();
    assert!(db.wait_for_recovery(Duration::from_secs(60)));
    check(&db, &table, 2001);
    assert!(
        status(&db, "ibuf_size") > 10,
        "{}",
        status(&db, "ibuf_size")
    );
    let mut def = definition(NAME);
    def.indexes.clear();
    drop(table);
    db.redefine_table(&def).unwrap();
    let table = db.table(NAME).unwrap();
    check(&db, &table, 2001);
    assert_eq!(status(&db, "ibuf_size"), 0);
    let opened = db.core().tables.get(NAME).unwrap();
    let (_, trees) = opened.loose_trees().unwrap().unwrap();
    assert!(trees.is_empty(), "LOOSE-1: {trees:?}");
}

/// No more is buffered than there is room for; who finds it full merges.
#[test]
fn change_buffers_have_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        flush_log_at_trx_commit: FlushLog::Lazy,
        change_buffer: ChangeBufferOptions {
            buffering: ChangeBuffering::All,
            max_size_pct: 5,
        },
        ..small::options()
    };
    let db = Database::open(dir.path(), options).unwrap();
    let def = TableDef::new(NAME)
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .column("filler", ColumnType::Bytes(200))
        .primary(&["id"])
        .index("by_k", &["k"])
        .index("by_k_filler", &["k", "filler"]);
    let table = db.create_table(&def).unwrap();
    let mut rng = SmallRng::seed_from_u64(11);
    let most = (4 << 20) / 4096 * 5 / 100;
    let mut largest = 0;
    for n in 0..400 {
        let mut trx = begin(&db);
        (0..100).for_each(|id| insert(&mut trx, &table, n * 100 + id, rng.random()));
        trx.commit().unwrap();
        largest = largest.max(status(&db, "ibuf_size"));
    }
    assert!(
        status(&db, "ibuf_inserts") > 10_000,
        "{}",
        status(&db, "ibuf_inserts")
    );
    // Whoever finds them full merges what one leaf has, which may free less than he takes; and pages above
    // the leaves are made by the way.
    assert!(
        largest > most / 2 && largest <= most + 8,
        "{largest} of {most}"
    );
    check(&db, &table, 40_000);
    estimates_are_right(&db, &table);
    // Another handle of the table takes them over.
    drop(table);
    db.rename_table(NAME, "b/other").unwrap();
    db.rename_table("b/other", NAME).unwrap();
    let table = db.table(NAME).unwrap();
    let none = ChangeBufferOptions {
        buffering: ChangeBuffering::None,
        max_size_pct: 5,
    };
    db.set_change_buffer_options(none).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let is_used = || {
        let table = db.core().tables.get(NAME).unwrap();
        table
            .secondary
            .iter()
            .any(|i| i.buffer.tree_in_use().unwrap().is_some())
    };
    while is_used() {
        assert!(Instant::now() < until, "the background does not merge them");
        std::thread::sleep(Duration::from_millis(10));
    }
    check(&db, &table, 40_000);
    let too_much = ChangeBufferOptions {
        max_size_pct: 51,
        ..none
    };
    let refused = db.set_change_buffer_options(too_much);
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
}

/// Ranges of an index with 40,000 random values, some of which are in its change buffer.
fn estimates_are_right(db: &Database, table: &Table) {
    let mut trx = begin(db);
    let values = scan(&mut trx, table, LockMode::None, false);
    assert_eq!(values.len(), 40_000);
    for share in 1..10 {
        let at = values[values.len() * share / 10].0;
        let row = key(table, 1, at);
        let bound = [row.datums()[1]];
        let estimated = table.records_in_range(1, None, Some((&bound, false)));
        let (estimated, is) = (estimated.unwrap() as f64, 4_000.0 * share as f64);
        println!("{share} {estimated} {is}");
        assert!(
            (0.6..1.5).contains(&(estimated / is)),
            "{estimated} for {is}"
        );
    }
}

/// CB-2: a random history of one row after the other, against a map.
#[test]
fn rows_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir, small::options());
    let mut rng = SmallRng::seed_from_u64(5);
    let mut rows: BTreeMap<i64, i64> = BTreeMap::new();
    for step in 0..3000 {
        let mut trx = begin(&db);
        let mut now = rows.clone();
        for _ in 0..rng.random_range(1..6) {
            let id = rng.random_range(0..200);
            if now.remove(&id).is_some() {
                delete(&mut trx, &table, id);
            }
            if rng.random_bool(0.6) {
                let k = rng.random_range(0..20);
                insert(&mut trx, &table, id, k);
                now.insert(id, k);
            }
        }
        match rng.random_bool(0.8) {
            true => {
                trx.commit().unwrap();
                rows = now;
            }
            false => trx.rollback().unwrap(),
        }
        match step % 50 {
            10 => db.buffer_all_changes(rng.random_bool(0.7)),
            20 | 40 => drop(db.merge_changes(NAME, 2).unwrap()),
            30 => drop(db.wait_for_purge(Duration::from_secs(1))),
            49 => {
                let mut expected: Vec<_> = rows.iter().map(|(id, k)| (*k, *id)).collect();
                expected.sort();
                let mut trx = begin(&db);
                let backward = rng.random_bool(0.5);
                assert_eq!(scan(&mut trx, &table, LockMode::None, backward), expected);
                drop(trx);
                check(&db, &table, rows.len());
            }
            _ => {}
        }
    }
}

/// Rollback leaves a change buffer that is empty, and not in use: the table can be loaded.
#[test]
fn a_change_buffer_that_is_rolled_back_is_not_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir, small::options());
    for rows in [10, 2000] {
        let mut trx = begin(&db);
        (0..rows).for_each(|id| insert(&mut trx, &table, id, id));
        assert_eq!(entries(&db), (0, rows as u64));
        trx.rollback().unwrap();
        db.merge_changes(NAME, 1).unwrap();
        let opened = db.core().tables.get(NAME).unwrap();
        let in_use = opened.secondary[0].buffer.tree_in_use().unwrap();
        assert!(in_use.is_none(), "{rows} rows");
    }
    let mut trx = begin(&db);
    let mut load = db.load_table(&mut trx, &table, 1).unwrap();
    for id in 0..100 {
        let row = [Value::Int(id), Value::Int(id), Value::Bytes(Vec::new())];
        let row = table.def().row(&row).unwrap();
        load.push(&mut trx, &row.datums()).unwrap();
    }
    load.finish(&mut trx, &mut |_, _| {}).unwrap();
    trx.commit().unwrap();
    check(&db, &table, 100);
}

/// A change buffer that is damaged costs its index, and nothing else.
#[test]
fn a_damaged_change_buffer_is_told_by_who_uses_its_index() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir, small::options());
    let mut trx = begin(&db);
    (0..300).for_each(|id| insert(&mut trx, &table, id, id));
    trx.commit().unwrap();
    let opened = db.core().tables.get(NAME).unwrap();
    let (_, trees) = opened.loose_trees().unwrap().unwrap();
    let [tree] = trees[..] else {
        panic!("{trees:?}");
    };
    drop((opened, table));
    db.close().unwrap();
    let file = dir.path().join("b/t.vdt");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[tree.root.0 as usize * 4096 + 100] ^= 1;
    std::fs::write(&file, bytes).unwrap();

    let db = Database::open(dir.path(), small::options()).unwrap();
    let table = db.table(NAME).unwrap();
    let mut trx = begin(&db);
    let mut cursor = table.cursor(0).unwrap();
    let mut rows = 0;
    let mut found = cursor.first(&mut trx, LockMode::None).unwrap();
    while found {
        rows += 1;
        found = cursor.next(&mut trx).unwrap();
    }
    assert_eq!(rows, 300);
    let mut cursor = table.cursor(1).unwrap();
    let refused = cursor.first(&mut trx, LockMode::None);
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    drop((cursor, trx, table));
    let mut def = definition(NAME);
    def.indexes.clear();
    db.redefine_table(&def).unwrap();
    let table = db.table(NAME).unwrap();
    let mut trx = begin(&db);
    insert(&mut trx, &table, 1000, 1000);
    trx.commit().unwrap();
}

/// What a merge loses is missed.
#[cfg(feature = "sabotage")]
#[test]
fn a_lost_entry_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        sabotage: Some(Sabotage::BufferedEntryLost),
        ..small::options()
    };
    let (db, table) = open(&dir, options);
    let mut trx = begin(&db);
    (0..100).for_each(|id| insert(&mut trx, &table, id, id));
    trx.commit().unwrap();
    assert!(db.check_table(&table).unwrap().errors.is_empty());
    merge_all(&db);
    let report = db.check_table(&table).unwrap();
    assert!(!report.errors.is_empty(), "CB-4");
}
