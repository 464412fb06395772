//! Keys in segments (KEY-8): whatever bytes a value has, there is room for it, and its index answers as
//! others do.
//!
//! What could break here: a row that is refused for the bytes that it has; an order, a search or a value from
//! an entry that is another one than in other indexes; a value that is taken from an index of one encoding to
//! one of the other as it is stored.

#[path = "support/small.rs"]
mod small;

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::{
    CollationId, ColumnType, Cursor, Database, Error, ForeignKey, IndexDef, Isolation, KeyMatch,
    KeyPart, LockMode, Options, ReferentialAction, Table, TableDef, Transaction, Value,
};

fn open(dir: &tempfile::TempDir) -> Database {
    let options = Options {
        page_size: 16 << 10,
        buffer_pool_bytes: 16 << 20,
        ..small::options()
    };
    Database::open(dir.path(), options).unwrap()
}

fn begin(db: &Database) -> Transaction {
    db.begin(Isolation::RepeatableRead)
}

fn check(db: &Database, table: &Table) {
    assert_eq!(db.check_table(table).unwrap().errors, [""; 0]);
}

/// For each index, in which of its parts values are in segments.
fn forms(table: &Table) -> Vec<Vec<bool>> {
    let indexes = table.def().all_indexes();
    indexes
        .map(|index| index.parts.iter().map(|part| part.segmented).collect())
        .collect()
}

/// A primary key, a unique index and one that is not, one of them descending, all of bytes and texts.
fn definition(name: &str) -> TableDef {
    let pad = ColumnType::text_in(CollationId::UTF8_BIN_PAD, 3000);
    TableDef::new(name)
        .column("p", ColumnType::Bytes(3072))
        .nullable("u", ColumnType::Bytes(3072))
        .column("t", pad)
        .column("n", ColumnType::i64())
        .primary(&["p"])
        .unique("by_u", &["u"])
        .add_index(IndexDef::new(
            "by_t",
            vec![KeyPart::new(2).descending(), KeyPart::new(3)],
        ))
}

/// Mostly long, of few different bytes, with a few different ends.
fn draw(rng: &mut SmallRng, of: &[u8], longest: usize) -> Vec<u8> {
    let len = [0, 1, 7, 8, 9, 500, longest - 8, longest - 1, longest][rng.random_range(0..9)];
    let mut out: Vec<u8> = of.iter().copied().cycle().take(len).collect();
    for _ in 0..2 {
        if let Some(byte) = out.last_mut().filter(|_| rng.random_bool(0.5)) {
            *byte = of[rng.random_range(0..of.len())];
        }
        if len > 20 && rng.random_bool(0.5) {
            let at = rng.random_range(len - 20..len);
            out[at] = of[rng.random_range(0..of.len())];
        }
    }
    out
}

type Rest = (Option<Vec<u8>>, Vec<u8>, i64);
type Rows = BTreeMap<Vec<u8>, Rest>;

fn values(p: &[u8], (u, t, n): &Rest) -> Vec<Value> {
    let bytes = |bytes: &[u8]| Value::Bytes(bytes.to_vec());
    let text = String::from_utf8(t.clone()).unwrap();
    let u = u.as_deref().map_or(Value::Null, bytes);
    vec![bytes(p), u, Value::Text(text), (*n).into()]
}

fn at(cursor: &Cursor) -> (Vec<u8>, Rest) {
    let row = cursor.row().unwrap();
    let [p, u, t] = [0, 1, 2].map(|column| row.get(column).map(<[u8]>::to_vec));
    let n = i64::from_le_bytes(row.get(3).unwrap().try_into().unwrap());
    (p.unwrap(), (u, t.unwrap(), n))
}

/// As PAD SPACE compares it.
fn unpadded(text: &[u8]) -> Vec<u8> {
    let kept = text.iter().rposition(|b| *b != b' ').map_or(0, |at| at + 1);
    // Of these texts no byte is less than a space.
    text[..kept].to_vec()
}

/// Each index gives the rows, forward and backward, in the order of its own key.
fn compare(trx: &mut Transaction, table: &Table, rows: &Rows) {
    for index in 0..3 {
        let mut cursor = table.cursor(index).unwrap();
        let (mut there, mut back) = (Vec::new(), Vec::new());
        let mut more = cursor.first(trx, LockMode::None).unwrap();
        while more {
            there.push(at(&cursor));
            more = cursor.next(trx).unwrap();
        }
        let mut more = cursor.last(trx, LockMode::None).unwrap();
        while more {
            back.push(at(&cursor));
            more = cursor.prev(trx).unwrap();
        }
        back.reverse();
        assert_eq!(there, back, "index {index}");
        let mut want: Vec<_> = rows.clone().into_iter().collect();
        match index {
            0 => {}
            1 => want.sort_by_key(|(p, rest)| (rest.0.clone(), p.clone())),
            _ => want.sort_by_key(|(p, rest)| {
                let falling = unpadded(&rest.1).into_iter().map(|b| !b);
                // What is longer comes first.
                let falling: Vec<u8> = falling.chain([0xff]).collect();
                (falling, rest.2, p.clone())
            }),
        }
        // Of a long entry the end of the primary key is in no order.
        let own = |row: &(Vec<u8>, Rest)| match index {
            0 => (None, Vec::new(), 0),
            1 => (row.1.0.clone(), Vec::new(), 0),
            _ => (None, unpadded(&row.1.1), row.1.2),
        };
        assert!(
            there.iter().map(own).eq(want.iter().map(own)),
            "index {index}"
        );
        there.sort();
        want.sort();
        assert_eq!(there, want, "index {index}");
    }
}

/// What a search by the first part of an index finds.
fn compare_searches(trx: &mut Transaction, table: &Table, rows: &Rows, rng: &mut SmallRng) {
    let u = draw(rng, &[0, 1], 3072);
    let t = draw(rng, b"a ", 3000);
    let mut count = |index: usize, key: &[u8], how| {
        let mut cursor = table.cursor(index).unwrap();
        let mut found = (cursor.seek(trx, &[Some(key)], how, LockMode::None)).unwrap();
        let mut n = 0;
        while found {
            n += 1;
            found = match how {
                KeyMatch::Exact => cursor.next_same(trx).unwrap(),
                _ => cursor.next(trx).unwrap(),
            };
        }
        n
    };
    let with = |is: &dyn Fn(&Rest) -> bool| rows.values().filter(|rest| is(rest)).count();
    let is_u = |rest: &Rest| rest.0.as_ref() == Some(&u);
    assert_eq!(count(1, &u, KeyMatch::Exact), with(&is_u));
    let from_u = |rest: &Rest| rest.0.as_ref().is_some_and(|its| *its >= u);
    assert_eq!(count(1, &u, KeyMatch::AtLeast), with(&from_u));
    let is_t = |rest: &Rest| unpadded(&rest.1) == unpadded(&t);
    assert_eq!(count(2, &t, KeyMatch::Exact), with(&is_t));
    let below_t = |rest: &Rest| unpadded(&rest.1) < unpadded(&t);
    assert_eq!(count(2, &t, KeyMatch::After), with(&below_t));
}

/// What entries alone say is what the rows have.
fn compare_covered(trx: &mut Transaction, table: &Table, rows: &Rows) {
    let mut cursor = table.cursor(1).unwrap();
    cursor.set_keys_suffice(true);
    cursor.set_wanted_columns(Some(&[true, true, false, false]));
    let (mut from_entries, mut found) = (0, BTreeMap::new());
    let mut more = cursor.first(trx, LockMode::None).unwrap();
    while more {
        let read = |value: Option<&[u8]>| value.map(<[u8]>::to_vec);
        let of_entry = cursor.key_values().unwrap();
        let of_entry = of_entry.map(|values| (read(values.get(1)), read(values.get(0))));
        from_entries += usize::from(of_entry.is_some());
        let (p, u) = of_entry.unwrap_or_else(|| {
            let row = cursor.row().unwrap();
            (read(row.get(0)), read(row.get(1)))
        });
        assert_eq!(found.insert(p.unwrap(), u), None);
        more = cursor.next(trx).unwrap();
    }
    assert!(from_entries > rows.len() / 2);
    let want = rows.iter().map(|(p, rest)| (p.clone(), rest.0.clone()));
    assert!(found.into_iter().eq(want));
}

/// Random changes beside a model; no row is refused but for duplicates.
#[test]
fn every_value_has_room() {
    for seed in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table(&definition("a/t")).unwrap();
        assert_eq!(forms(&table), [vec![true], vec![true], vec![true, false]]);
        let mut rng = SmallRng::seed_from_u64(seed);
        let (mut rows, mut duplicates) = (Rows::new(), 0);
        for _ in 0..60 {
            let mut trx = begin(&db);
            for _ in 0..5 {
                let p = draw(&mut rng, &[0, 1], 3072);
                let u = rng.random_bool(0.8).then(|| draw(&mut rng, &[1, 0], 3072));
                let rest = (u, draw(&mut rng, b"a ", 3000), rng.random_range(0..3));
                let mut cursor = table.cursor(0).unwrap();
                let key = [Some(&p[..])];
                let is_there = cursor
                    .seek(&mut trx, &key, KeyMatch::Exact, LockMode::Exclusive)
                    .unwrap();
                assert_eq!(is_there, rows.contains_key(&p));
                if is_there && rng.random_bool(0.3) {
                    trx.delete(&table, &cursor).unwrap();
                    rows.remove(&p);
                    continue;
                }
                let row = table.def().row(&values(&p, &rest)).unwrap();
                let done = match is_there {
                    true => trx.update(&table, &cursor, &row.datums()).map(drop),
                    false => trx.insert(&table, &row.datums()),
                };
                let is_taken = |(other, its): (&Vec<u8>, &Rest)| *other != p && its.0 == rest.0;
                match done {
                    Ok(()) => {
                        assert!(rest.0.is_none() || !rows.iter().any(is_taken));
                        rows.insert(p, rest);
                    }
                    Err(Error::DuplicateKey { index }) => {
                        assert!(index == "by_u" && rows.iter().any(is_taken));
                        duplicates += 1;
                    }
                    Err(e) => panic!("{e}"),
                }
            }
            compare_searches(&mut trx, &table, &rows, &mut rng);
            trx.commit().unwrap();
        }
        assert!(
            duplicates > 5 && rows.len() > 30,
            "{duplicates}, {}",
            rows.len()
        );
        let mut trx = begin(&db);
        compare(&mut trx, &table, &rows);
        compare_covered(&mut trx, &table, &rows);
        trx.commit().unwrap();
        check(&db, &table);
        // Loads, sorted builds and rebuilds make the same entries, and so does a start after a crash.
        let mut without = table.def().clone();
        without.indexes.clear();
        let mut with = without.clone();
        with.indexes = definition("a/t").indexes;
        drop(table);
        db.redefine_table(&without).unwrap();
        db.redefine_table(&with).unwrap();
        let table = db.table("a/t").unwrap();
        compare(&mut begin(&db), &table, &rows);
        let def = table.def().clone();
        drop(table);
        db.rebuild_table(&def).unwrap();
        drop(db);
        let db = open(&dir);
        let table = db.table("a/t").unwrap();
        assert_eq!(forms(&table), [vec![true], vec![true], vec![true, false]]);
        compare(&mut begin(&db), &table, &rows);
        check(&db, &table);
    }
}

/// KEY-8: an index that is there keeps the form that it has; a column that takes more is refused without a
/// copy of the rows if that form would have no room, and the copy has another one.
#[test]
fn longer_columns_get_their_room_with_a_copy() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("k", ColumnType::Bytes(100))
        .primary(&["id"])
        .index("by_k", &["k"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = begin(&db);
    let k = |len: usize| [0, 1].repeat(len / 2);
    for id in 0..10i64 {
        let row = [id.into(), Value::Bytes(k(100 - id as usize))];
        table.insert(&mut trx, &row).unwrap();
    }
    trx.commit().unwrap();
    let longer = |table: &Table, len| {
        let mut def = table.def().clone();
        def.columns[1].ty = ColumnType::Bytes(len);
        def
    };
    let to = longer(&table, 2000);
    db.check_redefinition(&table, &to).unwrap();
    db.redefine_table(&to).unwrap();
    let table = db.table("a/t").unwrap();
    assert_eq!(forms(&table), [[false], [false]]);
    let to = longer(&table, 3072);
    let asked = db.check_redefinition(&table, &to).unwrap_err();
    let refused = db.redefine_table(&to).unwrap_err();
    assert_eq!(asked.to_string(), refused.to_string());
    assert!(
        matches!(&refused, Error::Unsupported { what } if what.contains("index by_k")),
        "{refused}"
    );
    drop(table);
    db.rebuild_table(&to).unwrap();
    let table = db.table("a/t").unwrap();
    assert_eq!(forms(&table), [[false], [true]]);
    let mut trx = begin(&db);
    let row = [10.into(), Value::Bytes(k(3072))];
    table.insert(&mut trx, &row).unwrap();
    trx.commit().unwrap();
    check(&db, &table);
    // Back, as far as that goes: the index stays what it is.
    let mut other = table.def().clone();
    other.columns[1].name = "other".into();
    drop(table);
    db.redefine_table(&other).unwrap();
    let table = db.table("a/t").unwrap();
    assert_eq!(forms(&table), [[false], [true]]);
    check(&db, &table);
}

/// An index that is added to a table whose primary key stays as it is has what room there is then, and says
/// what does not fit.
#[test]
fn an_added_index_leaves_the_primary_key_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let def = TableDef::new("a/t")
        .column("p", ColumnType::Bytes(2072))
        .column("k", ColumnType::Bytes(1000))
        .primary(&["p"]);
    let table = db.create_table(&def).unwrap();
    assert_eq!(forms(&table), [[false]]);
    let to = table.def().clone().index("by_k", &["k"]);
    drop(table);
    db.redefine_table(&to).unwrap();
    let table = db.table("a/t").unwrap();
    assert_eq!(forms(&table), [[false], [false]]);
    let row = [2072, 1000].map(|len| Value::Bytes([0, 1].repeat(len / 2)));
    let mut trx = begin(&db);
    let refused = table.insert(&mut trx, &row).unwrap_err().to_string();
    assert!(
        refused.contains("a key of index by_k with the row's clustered key"),
        "{refused}"
    );
    trx.commit().unwrap();
    let to = table.def().clone();
    drop(table);
    db.rebuild_table(&to).unwrap();
    let table = db.table("a/t").unwrap();
    assert_eq!(forms(&table), [[true], [false]]);
    let mut trx = begin(&db);
    table.insert(&mut trx, &row).unwrap();
    trx.commit().unwrap();
    check(&db, &table);
}

/// Parents and children find each other, whichever of both has its values in segments.
#[test]
fn foreign_keys_join_both_forms() {
    for (of_parent, of_child) in [(3072, 100), (100, 3072)] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let parent = TableDef::new("a/parent")
            .column("id", ColumnType::Bytes(of_parent))
            .primary(&["id"]);
        let parent = db.create_table(&parent).unwrap();
        let key = ForeignKey::new("to_parent", &["parent"], "a/parent", &["id"])
            .on_update(ReferentialAction::Cascade)
            .on_delete(ReferentialAction::Cascade);
        let child = TableDef::new("a/child")
            .column("id", ColumnType::i64())
            .column("parent", ColumnType::Bytes(of_child))
            .primary(&["id"])
            .index("by_parent", &["parent"])
            .foreign_key(key);
        let child = db.create_table(&child).unwrap();
        assert_ne!(forms(&parent)[0], forms(&child)[1]);
        let mut trx = begin(&db);
        let key = |n: u8| [vec![0, 1, 0], vec![n; 7], vec![0]].concat();
        for n in 0..5 {
            parent.insert(&mut trx, &[Value::Bytes(key(n))]).unwrap();
            let row = [i64::from(n).into(), Value::Bytes(key(n))];
            child.insert(&mut trx, &row).unwrap();
        }
        let row = [9.into(), Value::Bytes(key(9))];
        let refused = child.insert(&mut trx, &row).unwrap_err();
        assert!(matches!(refused, Error::NoReferencedRow(_)), "{refused}");
        let seek = |trx: &mut Transaction, n| {
            let mut cursor = parent.cursor(0).unwrap();
            let found = cursor.seek(trx, &[Some(&key(n))], KeyMatch::Exact, LockMode::Exclusive);
            assert!(found.unwrap());
            cursor
        };
        let at = seek(&mut trx, 1);
        let other = key(7);
        trx.update(&parent, &at, &[Some(&other[..])]).unwrap();
        let at = seek(&mut trx, 2);
        trx.delete(&parent, &at).unwrap();
        trx.commit().unwrap();
        let mut trx = begin(&db);
        let mut cursor = child.cursor(1).unwrap();
        let mut more = cursor.first(&mut trx, LockMode::None).unwrap();
        let mut found = Vec::new();
        while more {
            found.push(cursor.row().unwrap().get(1).unwrap().to_vec());
            more = cursor.next(&mut trx).unwrap();
        }
        assert_eq!(found, [0, 3, 4, 7].map(key));
        check(&db, &parent);
        check(&db, &child);
        assert!(db.wait_for_purge(Duration::from_secs(20)));
    }
}
