//! Tables are opened when they are used, and closed when too many are open.
//!
//! What could break here: two handles of one table, whose counters part; a handle of a definition that is not
//! the committed one; something that only memory knew is lost with the handle; a start, or a statement, opens
//! tables that it has nothing to do with.

#[path = "support/small.rs"]
mod small;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use varve::internals::base::StopPoint;
use varve::{
    ColumnType, Database, Error, ForeignKey, Isolation, LockMode, Options, ReferentialAction,
    Table, TableDef, Transaction, Value,
};
use varve_sim::sample::{self, DIR};
use varve_sim::{Failure, Fault, Operation, SimDisk};

fn definition(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::u64())
        .column("k", ColumnType::i64())
        .primary(&["id"])
        .index("k", &["k"])
        .auto_increment("id")
}

fn open_with(disk: &SimDisk, table_cache: u32) -> varve::Result<Database> {
    let options = Options {
        table_cache,
        ..sample::options()
    };
    Database::open_on(Arc::new(disk.clone()), Path::new(DIR), options)
}

fn insert(trx: &mut Transaction, table: &Table, k: i64) -> varve::Result<u64> {
    let id = table.auto_increment_reserve(1);
    let row = [Value::UInt(id), Value::Int(k)];
    trx.insert(table, &table.def().row(&row)?.datums())?;
    Ok(id)
}

fn ids(db: &Database, name: &str) -> Vec<u64> {
    let table = db.table(name).unwrap();
    assert_eq!(db.check_table(&table).unwrap().errors, [""; 0], "{name}");
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    let mut ids = Vec::new();
    let mut more = cursor.first(&mut trx, LockMode::None).unwrap();
    while more {
        let Value::UInt(id) = cursor.row().unwrap().values().unwrap()[0] else {
            panic!("no id")
        };
        ids.push(id);
        more = cursor.next(&mut trx).unwrap();
    }
    ids
}

/// TAB-3: those that nobody holds go, and come back with what they had; those that somebody holds stay.
#[test]
fn tables_go_when_nobody_holds_them() {
    let disk = SimDisk::default();
    let db = open_with(&disk, 3).unwrap();
    let name = |n: u64| format!("a/t{n}");
    let mut held = Vec::new();
    for n in 0..20 {
        let table = db.create_table(&definition(&name(n))).unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        insert(&mut trx, &table, 1).unwrap();
        trx.commit().unwrap();
        if n % 4 == 0 {
            held.push(table);
        }
    }
    let (open, opened) = db.core().tables.counts();
    // One was made last, and a sweep is not made for each.
    assert!(open <= held.len() + 3, "{open}");
    for round in 2..5 {
        for n in 0..20 {
            let table = db.table(&name(n)).unwrap();
            let mut trx = db.begin(Isolation::RepeatableRead);
            assert_eq!(insert(&mut trx, &table, 1).unwrap(), round, "t{n}");
            trx.commit().unwrap();
        }
    }
    let more = db.core().tables.counts().1 - opened;
    assert!((40..=60).contains(&more), "{more} tables were opened again");
    for table in &held {
        let mut trx = db.begin(Isolation::RepeatableRead);
        assert_eq!(insert(&mut trx, table, 2).unwrap(), 5);
        trx.commit().unwrap();
    }
    drop(held);
    db.set_table_cache(0);
    assert_eq!(db.core().tables.counts().0, 0);
    for n in 0..20 {
        let last = if n % 4 == 0 { 5 } else { 4 };
        assert_eq!(ids(&db, &name(n)), Vec::from_iter(1..=last));
    }
    db.close().unwrap();
}

/// Those go first that were asked for longest ago, in whatever order they were made and opened.
#[test]
fn the_least_recently_used_tables_go_first() {
    let disk = SimDisk::default();
    let db = open_with(&disk, 100).unwrap();
    let (table, between) = (|n: usize| format!("a/t{n}"), |n: usize| format!("a/u{n}"));
    for name in (0..6).flat_map(|n| [table(n), between(n)]) {
        db.create_table(&definition(&name)).unwrap();
    }
    db.set_table_cache(0);
    db.set_table_cache(100);
    let ask = |name: String| drop(db.table(&name).unwrap());
    (0..6).for_each(|n| ask(table(n)));
    let used = [3, 0, 5, 2, 4, 1].map(table);
    for (n, name) in used.iter().enumerate() {
        ask(name.clone());
        // Uses are told apart by the tables that are opened between them.
        ask(between(n));
    }
    let mut gone = 0;
    for limit in (0..12).rev() {
        db.set_table_cache(limit);
        let open = db.core().tables.all_open();
        assert_eq!(db.core().tables.counts().0, limit as usize);
        let is_open = |name: &String| open.iter().any(|open| open.def.name == *name);
        gone = used.iter().position(is_open).unwrap_or(used.len());
        let left: Vec<_> = used.iter().filter(|name| is_open(name)).collect();
        assert_eq!(left, Vec::from_iter(&used[gone..]), "with {limit} tables");
    }
    assert_eq!(gone, used.len());
    db.close().unwrap();
}

/// Neither a clean start nor one after a crash touches a table that has nothing to do with it.
#[test]
fn a_start_opens_what_it_needs() {
    let disk = SimDisk::default();
    let db = open_with(&disk, 100).unwrap();
    for n in 0..20 {
        db.create_table(&definition(&format!("a/t{n}"))).unwrap();
    }
    db.close().unwrap();
    let refuse = |file: &str| disk.inject(Fault::always(Operation::Open, Failure::Io).on(file));
    // The whole directory.
    refuse("/db/a");
    let db = open_with(&disk, 100).unwrap();
    assert_eq!(db.tables().unwrap().len(), 20);
    let refused = db.table("a/t7").map(drop);
    assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
    disk.heal();
    let table = db.table("a/t7").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    insert(&mut trx, &table, 7).unwrap();
    trx.commit().unwrap();
    drop(table);
    db.crash();
    for n in (0..20).filter(|n| *n != 7) {
        refuse(&format!("/db/a/t{n}.vdt"));
    }
    let db = open_with(&disk, 100).unwrap();
    assert!(db.wait_for_recovery(Duration::from_secs(60)));
    assert_eq!(ids(&db, "a/t7"), [1]);
    disk.heal();
    for n in (0..20).filter(|n| *n != 7) {
        assert_eq!(ids(&db, &format!("a/t{n}")), []);
    }
    db.close().unwrap();
}

/// Tables tied by foreign keys are opened as far as rows lead there, and are closed like others.
#[test]
fn a_row_opens_the_tables_that_it_leads_to() {
    let disk = SimDisk::default();
    let db = open_with(&disk, 2).unwrap();
    let name = |n: u64| format!("a/t{n}");
    let last = 30;
    for n in 0..=last {
        let mut def = definition(&name(n));
        if n > 0 {
            let key = ForeignKey::new(format!("key_{n}"), &["k"], name(n - 1), &["id"]);
            def = def.foreign_key(key.on_delete(ReferentialAction::Cascade));
        }
        def.columns[1].ty = ColumnType::u64();
        db.create_table(&def).unwrap();
    }
    let put = |n: u64| {
        let table = db.table(&name(n)).unwrap();
        let row = [Value::UInt(1), Value::UInt(1)];
        let mut trx = db.begin(Isolation::RepeatableRead);
        let done = trx.insert(&table, &table.def().row(&row).unwrap().datums());
        done.and_then(|_| trx.commit())
    };
    let opened = || db.core().tables.counts().1;
    let before = opened();
    put(0).unwrap();
    put(1).unwrap();
    // The two tables, and the parent of the second one, if it had gone.
    assert!(opened() - before <= 3, "{}", opened() - before);
    let refused = put(5).unwrap_err();
    assert!(matches!(refused, Error::NoReferencedRow(_)), "{refused}");
    assert!(opened() - before <= 5, "{}", opened() - before);
    (2..=10).for_each(|n| put(n).unwrap());
    // All of them go with the first row.
    let table = db.table(&name(0)).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    assert!(cursor.first(&mut trx, LockMode::Exclusive).unwrap());
    trx.delete(&table, &cursor).unwrap();
    trx.commit().unwrap();
    drop((cursor, table));
    // Those that were held by the deletion go with the next that is opened.
    drop(db.table(&name(20)).unwrap());
    let open = db.core().tables.counts().0;
    assert!(open <= 3, "{open}");
    (0..=last).for_each(|n| assert_eq!(ids(&db, &name(n)), [], "t{n}"));
    // FK-2: a parent that is renamed while its children are closed.
    db.rename_table(&name(3), "a/elder").unwrap();
    put(0).unwrap();
    put(1).unwrap();
    put(2).unwrap();
    assert!(put(4).unwrap_err().to_string().contains("a/elder"));
    let elder = db.table("a/elder").unwrap();
    assert!(elder.is_referenced());
    assert_eq!(db.referencing(&elder).unwrap()[0].child, name(4));
    db.close().unwrap();
}

/// What looks at one table opens no other one, also if it has parents and children; only a check of a child
/// looks into its parent, to say which rows have none.
#[test]
fn looking_at_a_table_opens_no_other_one() {
    let disk = SimDisk::default();
    let db = open_with(&disk, 100).unwrap();
    let key = |name: &str, parent: &str| ForeignKey::new(name, &["k"], parent, &["id"]);
    let unsigned = |name: &str| {
        let mut def = definition(name);
        def.columns[1].ty = ColumnType::u64();
        def
    };
    db.create_table(&unsigned("a/first")).unwrap();
    db.create_table(&unsigned("a/mid").foreign_key(key("mid", "a/first")))
        .unwrap();
    db.create_table(&unsigned("a/last").foreign_key(key("last", "a/mid")))
        .unwrap();
    db.set_table_cache(0);
    db.set_table_cache(100);
    let count = |metric: &str| {
        let status = db.status();
        let found = status.iter().find(|(name, _)| *name == metric);
        found.unwrap_or_else(|| panic!("no metric {metric}")).1
    };
    let before = count("tables_opened");
    let mid = db.table("a/mid").unwrap();
    mid.analyze().unwrap();
    let found = mid.keep_statistics().unwrap().unwrap();
    mid.set_statistics(&found).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    trx.analyze(&mid).unwrap();
    trx.keep_statistics(&mid).unwrap();
    trx.commit().unwrap();
    assert!(mid.is_referenced());
    assert_eq!(mid.row_count_estimate(), 0);
    mid.index_estimate(1).unwrap();
    assert_eq!(
        (count("tables_open"), count("tables_opened") - before),
        (1, 1)
    );
    let first = db.table("a/first").unwrap();
    assert_eq!(db.check_table(&first).unwrap().errors, [""; 0]);
    assert_eq!(
        (count("tables_open"), count("tables_opened") - before),
        (2, 2)
    );
    drop((first, mid));
    db.set_table_cache(0);
    db.set_table_cache(100);
    let before = count("tables_opened");
    let last = db.table("a/last").unwrap();
    assert_eq!(db.check_table(&last).unwrap().errors, [""; 0]);
    assert_eq!(
        (count("tables_open"), count("tables_opened") - before),
        (2, 2)
    );
    drop(last);
    db.close().unwrap();
}

/// FK-2: a table that takes the place of one that referred to itself took over its children, and was its own
/// parent for good, without a foreign key.
#[test]
fn a_copy_without_the_key_is_not_referenced() {
    let disk = SimDisk::default();
    let db = open_with(&disk, 2).unwrap();
    let key = ForeignKey::new("own", &["k"], "a/t", &["id"]);
    let mut def = definition("a/t");
    def.columns[1].ty = ColumnType::u64();
    let mut copy = def.clone();
    copy.name = "a/#copy".into();
    let table = db.create_table(&def.foreign_key(key)).unwrap();
    assert!(table.is_referenced());
    db.create_table(&copy).unwrap();
    db.rename_table("a/t", "a/#old").unwrap();
    db.rename_table("a/#copy", "a/t").unwrap();
    db.drop_table("a/#old").unwrap();
    let table = db.table("a/t").unwrap();
    assert!(!table.is_referenced());
    assert!(db.referencing(&table).unwrap().is_empty());
    db.close().unwrap();
}

/// TAB-2: who asks for a table by the name that a rename has committed waits until the rename is through.
#[test]
fn a_table_that_is_being_renamed_is_waited_for() {
    let disk = SimDisk::default();
    let db = open_with(&disk, 1).unwrap();
    let table = db.create_table(&definition("a/t")).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    insert(&mut trx, &table, 1).unwrap();
    trx.commit().unwrap();
    drop(table);
    let stop = db.core().log.stops.set(StopPoint::TableRenamed);
    let asked = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| db.rename_table("a/t", "a/u").unwrap());
        stop.wait();
        let reader = scope.spawn(|| {
            asked.store(true, Ordering::Relaxed);
            ids(&db, "a/u")
        });
        while !asked.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(20));
        assert!(!reader.is_finished(), "it found what is not there yet");
        // The handle of the old name is there, and of no use.
        let old = db.table("a/t").unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        assert!(insert(&mut trx, &old, 2).is_err());
        drop((trx, old));
        stop.wait();
        assert_eq!(reader.join().unwrap(), [1]);
    });
    assert!(matches!(
        db.table("a/t").map(drop),
        Err(Error::NotFound { .. })
    ));
    db.close().unwrap();
}

/// TAB-1 to TAB-3 all at once: rows are inserted by threads that open the tables anew each time, while others
/// close, rename and empty them. No id is drawn twice, and each row that was committed is there.
#[test]
fn handles_come_and_go_under_load() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        table_cache: 1,
        lock_wait_timeout: Duration::from_secs(20),
        ..small::options()
    };
    let db = Database::open(dir.path(), options).unwrap();
    let name = |n: usize| format!("a/t{n}");
    for n in 0..4 {
        db.create_table(&definition(&name(n))).unwrap();
    }
    let rounds = 300;
    let inserted: Vec<Vec<(usize, u64)>> = thread::scope(|scope| {
        let writer = |thread: usize| {
            let (db, name) = (&db, &name);
            scope.spawn(move || {
                let mut done = Vec::new();
                for round in 0..rounds {
                    let n = (round + thread) % 4;
                    // It may have another name just now.
                    let Ok(table) = db.table(&name(n)) else {
                        continue;
                    };
                    let mut trx = db.begin(Isolation::RepeatableRead);
                    if let Ok(id) = insert(&mut trx, &table, round as i64) {
                        trx.commit().unwrap();
                        done.push((n, id));
                    }
                }
                done
            })
        };
        let writers: Vec<_> = (0..3).map(writer).collect();
        for _ in 0..30 {
            db.rename_table("a/t0", "a/other").unwrap();
            db.rename_table("a/other", "a/t0").unwrap();
            db.set_table_cache(0);
            db.create_table(&definition("a/short")).unwrap();
            db.truncate_table("a/short").unwrap();
            db.drop_table("a/short").unwrap();
            db.set_table_cache(2);
        }
        writers
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    for n in 0..4 {
        let of_it = inserted.iter().flatten().filter(|(table, _)| *table == n);
        let mut expected: Vec<u64> = of_it.map(|(_, id)| *id).collect();
        expected.sort_unstable();
        assert_eq!(ids(&db, &name(n)), expected, "t{n}");
    }
    db.close().unwrap();
}
