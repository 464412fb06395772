//! Tables by the hundred with few files open: handles are closed and opened again under readers, writers, the
//! page cleaner, DDL and restarts, and nothing of what was committed is lost; nor while the system refuses to
//! open more files.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::{ColumnType, Database, Error, Isolation, KeyMatch, LockMode, Options, TableDef, Value};
use varve_sim::{Failure, Fault, Operation, SimDisk};

fn options(open_files: u32) -> Options {
    Options {
        page_size: 4096,
        // Fewer pages than the tables have: they are evicted, and read again.
        buffer_pool_bytes: 256 * 4096,
        redo_capacity_bytes: 16 << 20,
        open_files,
        ..Options::default()
    }
}

fn def(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("v", ColumnType::i64())
        .column("pad", ColumnType::text(400))
        .primary(&["id"])
        .index("by_v", &["v"])
}

const TABLES: usize = 100;
const OPEN_FILES: u64 = 10;

fn name(n: usize) -> String {
    format!("s{}/t{n}", n % 3)
}

fn row(def: &TableDef, id: i64, v: i64) -> varve::DatumBuf {
    let pad = "x".repeat((id as usize * 37 + v as usize) % 400);
    def.row(&[Value::Int(id), Value::Int(v), Value::Text(pad)])
        .unwrap()
}

/// Adds one to row `id` of table `n`, which is made if it is not there. Returns its value.
fn bump(db: &Database, n: usize, id: i64) -> i64 {
    let table = db.table(&name(n)).unwrap();
    let mut trx = db.begin(Isolation::ReadCommitted);
    let mut cursor = table.cursor(0).unwrap();
    let key = id.to_le_bytes();
    let found = cursor.seek(
        &mut trx,
        &[Some(&key)],
        KeyMatch::Exact,
        LockMode::Exclusive,
    );
    let v = match found.unwrap() {
        false => {
            let new = row(table.def(), id, 1);
            trx.insert(&table, &new.datums()).unwrap();
            1
        }
        true => {
            let old = cursor.row().unwrap().get(1).unwrap();
            let v = i64::from_le_bytes(old.try_into().unwrap()) + 1;
            let new = row(table.def(), id, v);
            trx.update(&table, &cursor, &new.datums()).unwrap();
            v
        }
    };
    trx.commit().unwrap();
    v
}

fn status(db: &Database, wanted: &str) -> u64 {
    let all = db.status();
    all.iter().find(|(name, _)| *name == wanted).unwrap().1
}

/// All values of table `n` by both indexes.
fn values(db: &Database, n: usize) -> Vec<(i64, i64)> {
    let table = db.table(&name(n)).unwrap();
    let report = db.check_table(&table).unwrap();
    assert_eq!(report.errors, [""; 0]);
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut read = |index| {
        let mut cursor = table.cursor(index).unwrap();
        let mut all = Vec::new();
        let mut more = cursor.first(&mut trx, LockMode::None).unwrap();
        while more {
            let row = cursor.row().unwrap();
            let int = |n| i64::from_le_bytes(row.get(n).unwrap().try_into().unwrap());
            all.push((int(0), int(1)));
            more = cursor.next(&mut trx).unwrap();
        }
        all.sort_unstable();
        all
    };
    let rows = read(0);
    assert_eq!(read(1), rows);
    rows
}

/// What one thread has committed in its tables: by table and row.
type Model = std::collections::BTreeMap<(usize, i64), i64>;

fn work(db: &Database, thread: usize, threads: usize, rng: &mut SmallRng, model: &mut Model) {
    for _ in 0..300 {
        let n = rng.random_range(0..TABLES / threads) * threads + thread;
        let id = rng.random_range(0..20);
        let v = bump(db, n, id);
        assert_eq!(v, model.get(&(n, id)).copied().unwrap_or(0) + 1);
        model.insert((n, id), v);
        match rng.random_range(0..200) {
            0 => {
                db.truncate_table(&name(n)).unwrap();
                model.retain(|(table, _), _| *table != n);
            }
            1 => {
                let away = format!("away/t{n}");
                db.rename_table(&name(n), &away).unwrap();
                db.rename_table(&away, &name(n)).unwrap();
            }
            2 => {
                db.drop_table(&name(n)).unwrap();
                model.retain(|(table, _), _| *table != n);
                db.create_table(&def(&name(n))).unwrap();
            }
            _ => {}
        }
    }
}

fn verify(db: &Database, model: &Model, tables: usize) {
    for n in 0..tables {
        let expected = model.range((n, 0)..(n + 1, 0));
        let expected: Vec<_> = expected.map(|((_, id), v)| (*id, *v)).collect();
        assert_eq!(values(db, n), expected, "table {n}");
    }
}

#[test]
fn many_tables_with_few_open_files() {
    let seed = std::env::var("VARVE_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("VARVE_SEED={seed}");
    let dir = tempfile::tempdir().unwrap();
    let mut db = Database::open(dir.path(), options(OPEN_FILES as u32)).unwrap();
    for n in 0..TABLES {
        db.create_table(&def(&name(n))).unwrap();
    }
    let mut models = vec![Model::new(); 4];
    for life in 0..3 {
        thread::scope(|scope| {
            for (n, model) in models.iter_mut().enumerate() {
                let db = &db;
                scope.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(seed * 100 + life * 10 + n as u64);
                    work(db, n, 4, &mut rng, model);
                });
            }
        });
        assert!(status(&db, "num_reopened_files") > 100);
        // FILE-3: there may have been any number, in use or to be synced. The next open closes those that are
        // idle.
        let mut tables = (0..TABLES).cycle();
        wait_until("no more files than the limit are open", || {
            values(&db, tables.next().unwrap());
            status(&db, "num_open_files") <= OPEN_FILES
        });
        let all: Model = models.iter().flatten().map(|(k, v)| (*k, *v)).collect();
        verify(&db, &all, TABLES);
        match life {
            0 => db.close().unwrap(),
            _ => db.crash(),
        }
        db = Database::open(dir.path(), options(OPEN_FILES as u32)).unwrap();
        verify(&db, &all, TABLES);
    }
    db.close().unwrap();
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// FL-2. A file that could not be opened again because too many were open stopped the database.
#[test]
fn pages_wait_for_files_that_can_not_be_opened() {
    let disk = SimDisk::default();
    let told = Arc::new(Mutex::new(Vec::new()));
    let open = || {
        let told = told.clone();
        let options = Options {
            // Nothing has to be read again.
            buffer_pool_bytes: 4 << 20,
            logger: Some(Arc::new(move |_, words| {
                told.lock().unwrap().push(words.to_string())
            })),
            ..options(OPEN_FILES as u32)
        };
        Database::open_on(Arc::new(disk.clone()), Path::new("/db"), options).unwrap()
    };
    let db = open();
    let tables = 30;
    for n in 0..tables {
        db.create_table(&def(&name(n))).unwrap();
        bump(&db, n, 1);
    }
    let too_many = Fault::always(Operation::Open, Failure::TooManyFiles);
    disk.inject(too_many.on(".vdt"));
    let model: Model = (0..tables).map(|n| ((n, 1), bump(&db, n, 1))).collect();
    wait_until("pages are refused", || {
        status(&db, "buffer_flush_refused_pages") > 0
    });
    // Whoever needs no other file goes on.
    assert_eq!(bump(&db, 0, 1), 3);
    disk.heal();
    wait_until("all pages are written", || {
        status(&db, "buffer_pool_pages_dirty") == 0
    });
    let model: Model = (model.into_iter())
        .map(|((n, id), v)| ((n, id), if n == 0 { 3 } else { v }))
        .collect();
    verify(&db, &model, tables);
    let words = told.lock().unwrap().join("\n");
    assert!(words.contains("Too many open files") && words.contains("can be opened again"));
    db.crash();
    let db = open();
    verify(&db, &model, tables);
    db.close().unwrap();
}

#[test]
fn a_limit_too_low_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    match Database::open(dir.path(), options(9)).map(drop) {
        Err(Error::Invalid { what }) => assert!(what.contains("open_files 9"), "{what}"),
        other => panic!("{other:?}"),
    }
}
