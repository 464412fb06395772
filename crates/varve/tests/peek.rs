//! Looking ahead in a scan. A row that is peeked at must be the one that the scan comes to (PEEK-1):
//! otherwise rows are lost, come twice, or are versions that the view does not see, wherever rows are handed
//! on in portions.

#[path = "support/small.rs"]
mod small;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::{
    ColumnType, Cursor, Database, DatumBuf, Isolation, KeyField, KeyMatch, LockMode, Peeked, Table,
    TableDef, Transaction, Value,
};

const ROWS: i64 = 800;

fn open(dir: &tempfile::TempDir) -> (Database, Table) {
    let db = Database::open(dir.path(), small::options()).unwrap();
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .column("fill", ColumnType::Bytes(10_000))
        .primary(&["id"])
        .index("by_k", &["k"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS {
        // Some values are too long for their rows.
        let len = if id % 97 == 5 { 9000 } else { 20 };
        put(&mut trx, &table, id, id / 7, len);
    }
    trx.commit().unwrap();
    (db, table)
}

fn put(trx: &mut Transaction, table: &Table, id: i64, k: i64, len: usize) {
    let row = [id.into(), k.into(), Value::Bytes(vec![1; len])];
    let row = table.def().row(&row).unwrap();
    trx.insert(table, &row.datums()).unwrap();
}

/// Deletes some rows, moves some to other keys, adds some.
fn change(db: &Database, table: &Table) {
    let mut trx = db.begin(Isolation::ReadCommitted);
    let mut cursor = table.cursor(0).unwrap();
    for id in (0..ROWS).filter(|id| id % 50 > 40) {
        let key = id.to_le_bytes();
        let mut at = |trx: &mut Transaction| {
            let found = cursor.seek(trx, &[Some(&key)], KeyMatch::Exact, LockMode::Exclusive);
            assert!(found.unwrap());
        };
        at(&mut trx);
        if id % 2 == 0 {
            trx.delete(table, &cursor).unwrap();
        } else {
            let row = [id.into(), (id / 7 + 3).into(), Value::Bytes(vec![2; 30])];
            let row = table.def().row(&row).unwrap();
            trx.update(table, &cursor, &row.datums()).unwrap();
        }
    }
    for id in ROWS..ROWS + 50 {
        put(&mut trx, table, id, id % 90, 20);
    }
    trx.commit().unwrap();
}

fn number(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes.try_into().unwrap())
}

/// The current row's id and k, from its key if it was not fetched.
fn current(cursor: &Cursor, fields: &[KeyField]) -> (i64, i64) {
    let mut values = [0; 16];
    if cursor.read_fields(fields, &mut values).unwrap() {
        return (number(&values[8..]), number(&values[..8]));
    }
    let row = cursor.row().unwrap();
    let column = |i| number(row.get(i).unwrap());
    (column(0), column(1))
}

fn look(peeked: Peeked<'_>, fields: &[KeyField]) -> (i64, i64) {
    match peeked {
        Peeked::Row(row) => (number(row.get(0).unwrap()), number(row.get(1).unwrap())),
        Peeked::Entry(entry) => {
            let mut values = [0; 16];
            assert!(Peeked::read_fields(entry.key, fields, &mut values));
            (number(&values[8..]), number(&values[..8]))
        }
    }
}

/// Reads in portions of random sizes, going past some of the rows peeked at; returns all, and how many were
/// peeked at.
fn in_portions(
    rng: &mut SmallRng,
    (cursor, trx): (&mut Cursor, &mut Transaction),
    fields: &[KeyField],
    step: fn(&mut Cursor, &mut Transaction) -> varve::Result<bool>,
) -> (Vec<(i64, i64)>, usize) {
    let (mut rows, mut peeked) = (vec![current(cursor, fields)], 0);
    while step(cursor, trx).unwrap() {
        rows.push(current(cursor, fields));
        let position = cursor.position().to_vec();
        let wanted = rng.random_range(0..40).min(cursor.peekable());
        let ahead = (0..wanted).map_while(|n| cursor.peek(trx, n));
        let ahead: Vec<_> = ahead.map(|row| look(row, fields)).collect();
        assert_eq!(cursor.position(), position, "a look moves nothing");
        let passed = rng.random_range(0..=ahead.len());
        rows.extend(&ahead[..passed]);
        peeked += passed;
        cursor.pass(trx, passed);
        assert_eq!(Some(&current(cursor, fields)), rows.last());
    }
    (rows, peeked)
}

/// An entry with a zero, which may be a negative one, can't be had by a look; others can, and NULL. Values
/// that are not wanted are not there.
#[test]
fn a_look_gives_floating_point_unless_it_is_zero() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), small::options()).unwrap();
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .nullable("x", ColumnType::Double)
        .nullable("y", ColumnType::Bytes(20))
        .primary(&["id"])
        .index("by_x", &["x", "y"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let rows = [None, Some(-1.5), Some(-0.0), Some(0.5)];
    // The first portion is not of all rows.
    let more = std::iter::repeat_n(Some(9.0), 20);
    for (id, x) in (0i64..).zip(rows.into_iter().chain(more)) {
        let row = [
            id.into(),
            x.map_or(Value::Null, Value::Double),
            Value::Bytes(vec![0; 3]),
        ];
        trx.insert(&table, &table.def().row(&row).unwrap().datums())
            .unwrap();
    }
    let mut look = |wanted: [bool; 3]| {
        let mut cursor = table.cursor(1).unwrap();
        cursor.set_keys_suffice(true);
        cursor.set_wanted_columns(Some(&wanted));
        assert!(cursor.first(&mut trx, LockMode::None).unwrap());
        let (mut key, mut ahead) = (Vec::new(), DatumBuf::new());
        let mut seen = Vec::new();
        for n in 0..3 {
            assert!(n < cursor.peekable());
            ahead.clear();
            let Some(Peeked::Entry(entry)) = cursor.peek(&trx, n) else {
                panic!("entry {n}")
            };
            let read = cursor.read_peeked(&entry, &mut key, &mut ahead);
            seen.push(read.map(|()| [0, 1, 2].map(|part| ahead.get(part).map(<[u8]>::to_vec))));
        }
        seen
    };
    let got = look([true, true, false]);
    let of = |id: i64, x: f64| {
        Some([
            Some(x.to_le_bytes().to_vec()),
            None,
            Some(id.to_le_bytes().to_vec()),
        ])
    };
    assert_eq!(got, [of(1, -1.5), None, of(3, 0.5)]);
    let got = look([true, false, true]);
    let of = |id: i64| Some([None, Some(vec![0; 3]), Some(id.to_le_bytes().to_vec())]);
    assert_eq!(got, [of(1), of(2), of(3)]);
}

/// PEEK-1.
#[test]
fn what_is_peeked_at_is_what_comes() {
    let seed: u64 =
        std::env::var("VARVE_SEED").map_or_else(|_| rand::random(), |s| s.parse().unwrap());
    println!("VARVE_SEED={seed}");
    let rng = &mut SmallRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let mut before = db.begin(Isolation::RepeatableRead);
    before.take_snapshot();
    change(&db, &table);
    let mut after = db.begin(Isolation::ReadCommitted);
    let mut newest = db.begin(Isolation::ReadUncommitted);
    for trx in [&mut before, &mut after, &mut newest] {
        for (index, keys_suffice) in [(0, false), (1, false), (1, true)] {
            let mut cursor = table.cursor(index).unwrap();
            cursor.set_keys_suffice(keys_suffice);
            let fields = cursor.key_fields();
            let one_by_one = |cursor: &mut Cursor, trx: &mut Transaction| {
                let mut rows = Vec::new();
                let mut found = cursor.first(trx, LockMode::None).unwrap();
                while found {
                    rows.push(current(cursor, &fields));
                    found = cursor.next(trx).unwrap();
                }
                rows
            };
            let want = one_by_one(&mut cursor, trx);
            assert!(cursor.first(trx, LockMode::None).unwrap());
            let reader = (&mut cursor, &mut *trx);
            let (rows, peeked) = in_portions(rng, reader, &fields, Cursor::next);
            assert_eq!(rows, want, "index {index}");
            // Without a filter only rows that must be fetched for their entries can't be peeked at.
            let can_peek = index == 0 || keys_suffice;
            assert_eq!(peeked > 100, can_peek, "index {index}: {peeked}");
        }
        // Rows of one key.
        let mut cursor = table.cursor(1).unwrap();
        cursor.set_keys_suffice(true);
        let fields = cursor.key_fields();
        for k in [0i64, 20, 60, 89] {
            let key = k.to_le_bytes();
            let none = LockMode::None;
            if cursor
                .seek(trx, &[Some(&key)], KeyMatch::Exact, none)
                .unwrap()
            {
                let reader = (&mut cursor, &mut *trx);
                let (rows, _) = in_portions(rng, reader, &fields, Cursor::next_same);
                assert!(
                    rows.len() > 1 && rows.iter().all(|row| row.1 == k),
                    "{rows:?}"
                );
            }
        }
    }
    // Locking reads and searches backward go step by step.
    let mut cursor = table.cursor(0).unwrap();
    assert!(cursor.first(&mut after, LockMode::Shared).unwrap());
    assert_eq!(cursor.peekable(), 0);
    assert!(cursor.last(&mut after, LockMode::None).unwrap());
    assert_eq!(cursor.peekable(), 0);
}
