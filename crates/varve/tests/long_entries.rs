//! Entries whose own key and clustered key are too long for one key (TAIL-1, TAIL-2): found, changed, taken
//! back, kept for old views, built and loaded, whatever their keys have in common.
//!
//! What could break here: an entry that leads to another row, or to none; two rows that share one; a rest
//! that is lost on the way through undo, the history store, a sorter or the log.

#[path = "support/small.rs"]
mod small;

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::{
    ColumnType, Cursor, Database, Error, HistoryOptions, IndexDef, Isolation, KeyMatch, KeyPart,
    LockMode, Options, Result, Table, TableDef, Transaction, Value,
};

/// With these declared lengths only an index's own parts count in the order, and zeros are escaped.
fn definition(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::Bytes(2650))
        .column("k", ColumnType::Bytes(2650))
        .nullable("u", ColumnType::Bytes(2650))
        .column("n", ColumnType::i64())
        .primary(&["id"])
        .index("by_k", &["k"])
        .unique("by_u", &["u"])
        .index("by_n", &["n"])
}

fn options(page_size: u32, delay: Duration) -> Options {
    Options {
        page_size,
        buffer_pool_bytes: 8 << 20,
        history: HistoryOptions {
            delay,
            ..HistoryOptions::default()
        },
        ..small::options()
    }
}

type Key = (usize, u8);
type Rest = (Key, Option<Key>, i64);
type Rows = BTreeMap<Key, Rest>;

/// So long, and alike but for the last byte, which is no zero: a key ends with two bytes behind it.
fn bytes((len, last): Key) -> Vec<u8> {
    let mut out = vec![3; len];
    out.push(last + 1);
    out
}

fn key_of(bytes: &[u8]) -> Key {
    (bytes.len() - 1, bytes[bytes.len() - 1] - 1)
}

fn values(id: Key, (k, u, n): Rest) -> Vec<Value> {
    let u = u.map_or(Value::Null, |u| Value::Bytes(bytes(u)));
    vec![Value::Bytes(bytes(id)), Value::Bytes(bytes(k)), u, n.into()]
}

fn seek(trx: &mut Transaction, table: &Table, id: Key) -> Option<Cursor> {
    let mut cursor = table.cursor(0).unwrap();
    let key = bytes(id);
    let key = [Some(&key[..])];
    let found = cursor.seek(trx, &key, KeyMatch::Exact, LockMode::Exclusive);
    found.unwrap().then_some(cursor)
}

fn put(trx: &mut Transaction, table: &Table, id: Key, rest: Rest) -> Result<()> {
    let row = table.def().row(&values(id, rest)).unwrap();
    match seek(trx, table, id) {
        Some(cursor) => trx.update(table, &cursor, &row.datums()).map(drop),
        None => trx.insert(table, &row.datums()),
    }
}

fn at(cursor: &Cursor) -> (Key, Rest) {
    let row = cursor.row().unwrap();
    let n = i64::from_le_bytes(row.get(3).unwrap().try_into().unwrap());
    let [id, k, u] = [0, 1, 2].map(|column| row.get(column).map(key_of));
    (id.unwrap(), (k.unwrap(), u, n))
}

/// Each index gives the rows, forward and backward, in the order of its own key.
fn compare(trx: &mut Transaction, table: &Table, rows: &Rows, lock: LockMode) {
    let want: Vec<_> = rows.iter().map(|(id, rest)| (*id, *rest)).collect();
    for index in 0..table.def().indexes.len() + 1 {
        let mut cursor = table.cursor(index).unwrap();
        let (mut there, mut back) = (Vec::new(), Vec::new());
        let mut more = cursor.first(trx, lock).unwrap();
        while more {
            there.push(at(&cursor));
            more = cursor.next(trx).unwrap();
        }
        let mut more = cursor.last(trx, lock).unwrap();
        while more {
            back.push(at(&cursor));
            more = cursor.prev(trx).unwrap();
        }
        back.reverse();
        assert_eq!(there, back, "index {index}");
        let own = |row: &(Key, Rest)| match index {
            0 => Some(bytes(row.0)),
            1 => Some(bytes(row.1.0)),
            2 => row.1.1.map(bytes),
            _ => Some(row.1.2.to_be_bytes().to_vec()),
        };
        assert!(there.is_sorted_by_key(own), "index {index}");
        there.sort();
        assert_eq!(there, want, "index {index}");
    }
}

/// What entries alone say, with the way to the row that each one names.
fn compare_covered(trx: &mut Transaction, table: &Table, rows: &Rows) {
    let mut cursor = table.cursor(1).unwrap();
    cursor.set_keys_suffice(true);
    cursor.set_wanted_columns(Some(&[true, true, false, false]));
    let mut found = BTreeMap::new();
    let mut more = cursor.first(trx, LockMode::None).unwrap();
    while more {
        let id = key_of(&cursor.position()[..cursor.position().len() - 2]);
        let (from_entry, k) = match cursor.key_values().unwrap() {
            Some(of) => (key_of(of.get(1).unwrap()), key_of(of.get(0).unwrap())),
            None => {
                let row = cursor.row().unwrap();
                (key_of(row.get(0).unwrap()), key_of(row.get(1).unwrap()))
            }
        };
        assert_eq!(from_entry, id);
        assert_eq!(found.insert(id, k), None);
        more = cursor.next(trx).unwrap();
    }
    assert!(
        found
            .into_iter()
            .eq(rows.iter().map(|(id, rest)| (*id, rest.0)))
    );
}

fn check(db: &Database, table: &Table) {
    assert_eq!(db.check_table(table).unwrap().errors, [""; 0]);
}

/// Keys of which most do not fit with another one, some just so.
fn draw(rng: &mut SmallRng, longest: usize) -> Key {
    let lengths = [longest, longest - 1, longest / 2, longest / 3, 20];
    (lengths[rng.random_range(0..5)], rng.random_range(0..4))
}

/// Random changes beside a model, with views of all ages, which the history store serves.
#[test]
fn rows_are_found_by_long_entries() {
    for (seed, page_size, longest, delay) in [
        (1, 16 << 10, 2640, 0),
        (2, 16 << 10, 2640, 1000),
        (3, 4 << 10, 850, 0),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let options = options(page_size, Duration::from_millis(delay));
        let db = Database::open(dir.path(), options.clone()).unwrap();
        let table = db.create_table(&definition("a/t")).unwrap();
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut views: Vec<(Transaction, Rows)> = Vec::new();
        let (mut rows, mut duplicates) = (Rows::new(), 0);
        for _ in 0..150 {
            let mut trx = db.begin(Isolation::RepeatableRead);
            let before = rows.clone();
            for _ in 0..rng.random_range(1..6) {
                let id = draw(&mut rng, longest);
                let (savepoint, was) = (trx.savepoint(), rows.clone());
                if rng.random_bool(0.2) {
                    if let Some(cursor) = seek(&mut trx, &table, id) {
                        trx.delete(&table, &cursor).unwrap();
                    }
                    rows.remove(&id);
                } else {
                    let u = rng.random_bool(0.7).then(|| draw(&mut rng, longest));
                    let rest = (draw(&mut rng, longest), u, rng.random_range(0..3));
                    let is_taken = |(other, its): (&Key, &Rest)| *other != id && its.1 == u;
                    let is_duplicate = u.is_some() && rows.iter().any(is_taken);
                    match put(&mut trx, &table, id, rest) {
                        Ok(()) => assert!(!is_duplicate),
                        Err(Error::DuplicateKey { index }) => {
                            assert!(is_duplicate && index == "by_u");
                            duplicates += 1;
                            continue;
                        }
                        Err(e) => panic!("{e}"),
                    }
                    rows.insert(id, rest);
                }
                if rng.random_bool(0.15) {
                    trx.rollback_to(savepoint).unwrap();
                    rows = was;
                }
            }
            compare(&mut trx, &table, &rows, LockMode::None);
            match rng.random_bool(0.8) {
                true => trx.commit().unwrap(),
                false => {
                    trx.rollback().unwrap();
                    rows = before;
                }
            }
            match rng.random_range(0..4) {
                0 if views.len() < 4 => {
                    let mut view = db.begin(Isolation::RepeatableRead);
                    compare(&mut view, &table, &rows, LockMode::None);
                    views.push((view, rows.clone()));
                }
                1 if !views.is_empty() => {
                    let at = rng.random_range(0..views.len());
                    drop(views.swap_remove(at));
                }
                _ => {}
            }
            for (view, rows) in &mut views {
                compare(view, &table, rows, LockMode::None);
                compare_covered(view, &table, rows);
            }
        }
        assert!(duplicates > 20, "seed {seed}: {duplicates}");
        views.clear();
        compare(
            &mut db.begin(Isolation::RepeatableRead),
            &table,
            &rows,
            LockMode::Shared,
        );
        check(&db, &table);
        drop(table);
        db.crash();
        let db = Database::open(dir.path(), options).unwrap();
        assert!(db.wait_for_recovery(Duration::from_secs(60)));
        let table = db.table("a/t").unwrap();
        compare(
            &mut db.begin(Isolation::RepeatableRead),
            &table,
            &rows,
            LockMode::None,
        );
        assert!(db.wait_for_purge(Duration::from_secs(20)));
        check(&db, &table);
    }
}

/// Rows that have all of their index's key and nearly all of their primary key in common.
fn alike() -> Rows {
    let ids = (0..60).map(|last| (2640, last));
    ids.map(|id| (id, ((2640, 1), None, i64::from(id.1))))
        .collect()
}

/// Batches, sorted builds with changes meanwhile, loads and rebuilds make the same entries.
#[test]
fn all_ways_make_the_same_entries() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(16 << 10, Duration::ZERO)).unwrap();
    let table = db.create_table(&definition("a/t")).unwrap();
    let rows = alike();
    let all: Vec<_> = (rows.iter())
        .map(|(id, rest)| table.def().row(&values(*id, *rest)).unwrap())
        .collect();
    let datums: Vec<_> = all.iter().map(|row| row.datums()).collect();
    let datums: Vec<_> = datums.iter().map(|row| &row[..]).collect();
    let mut trx = db.begin(Isolation::RepeatableRead);
    trx.insert_many(&table, &datums).unwrap();
    trx.commit().unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    compare(&mut trx, &table, &rows, LockMode::None);
    compare_covered(&mut trx, &table, &rows);
    trx.commit().unwrap();
    check(&db, &table);

    let loaded = db.create_table(&definition("a/loaded")).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut load = db.load_table(&mut trx, &loaded, 1).unwrap();
    datums
        .iter()
        .for_each(|row| load.push(&mut trx, row).unwrap());
    load.finish(&mut trx, &mut |_, _| panic!("no duplicates"))
        .unwrap();
    trx.commit().unwrap();
    compare(
        &mut db.begin(Isolation::RepeatableRead),
        &loaded,
        &rows,
        LockMode::None,
    );
    check(&db, &loaded);
}

/// TAIL-2: what comes with the clustered key into a key's first bytes is in order; a search by more is
/// refused, and so is a row of whose keys there would have to be more.
#[test]
fn what_counts_in_the_order_is_in_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(16 << 10, Duration::ZERO)).unwrap();
    let def = TableDef::new("a/parts")
        .column("a", ColumnType::Bytes(400))
        .column("b", ColumnType::Bytes(2600))
        .column("k", ColumnType::Bytes(2600))
        .primary(&["a", "b"])
        .add_index(IndexDef::new("by_k", vec![KeyPart::new(2)]));
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let row = |a: &[u8], b: usize, k: &[u8]| {
        let values = [a, &vec![5; b], k].map(|bytes| Value::Bytes(bytes.to_vec()));
        table.def().row(&values).unwrap()
    };
    let k = vec![8; 2600];
    for (n, b) in [(3, 2500), (1, 2600), (2, 2000)] {
        trx.insert(&table, &row(&[n; 400], b, &k).datums()).unwrap();
    }
    let mut cursor = table.cursor(1).unwrap();
    let (a, b) = (vec![2; 400], vec![5; 2000]);
    let key = [Some(&k[..]), Some(&a[..])];
    let how = KeyMatch::AtLeast;
    assert!(cursor.seek(&mut trx, &key, how, LockMode::None).unwrap());
    let mut found = vec![cursor.row().unwrap().get(0).unwrap()[0]];
    assert!(cursor.next(&mut trx).unwrap());
    found.push(cursor.row().unwrap().get(0).unwrap()[0]);
    assert!(!cursor.next(&mut trx).unwrap());
    assert_eq!(found, [2, 3]);
    let key = [Some(&k[..]), Some(&a[..]), Some(&b[..])];
    let refused = cursor.seek(&mut trx, &key, how, LockMode::None);
    let Err(Error::TooLarge { what, size, limit }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(what, "a search by index by_k and the primary key");
    assert!(size > 4900 && limit == 4016, "{size} {limit}");

    // MariaDB's server goes on by parts of the primary key if one before them is in the index, too.
    let def = TableDef::new("a/tenants")
        .column("t", ColumnType::i32())
        .column("p", ColumnType::Bytes(2500))
        .column("k", ColumnType::Bytes(2500))
        .primary(&["t", "p"])
        .index("by_k", &["t", "k"]);
    let tenants = db.create_table(&def).unwrap();
    for (len, fits) in [(1400, true), (1600, false)] {
        let values = [vec![5; len], vec![8; 2500]].map(Value::Bytes);
        let row = [[Value::Int(1)].as_slice(), &values].concat();
        let row = def.row(&row).unwrap();
        assert_eq!(trx.insert(&tenants, &row.datums()).is_ok(), fits, "{len}");
    }

    // Zeros that stand alone take no more, where they could be too many.
    let zeros = |n: usize| [0, 1].repeat(n / 2);
    let row = row(&zeros(400), 2600, &zeros(2600));
    trx.insert(&table, &row.datums()).unwrap();
    let values = [vec![5; 1600], vec![8; 2500]].map(Value::Bytes);
    let row = [[Value::Int(1)].as_slice(), &values].concat();
    let refused = tenants.insert(&mut trx, &row);
    let Err(Error::TooLarge { what, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(what, "a key of index by_k with the row's clustered key");
    trx.commit().unwrap();
    check(&db, &table);
}
