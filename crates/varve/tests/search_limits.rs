//! Where searches end, which entries a filter passes over, and search keys that reach into the primary key. A
//! limit that is off by one row loses rows in SQL ranges, or locks rows that a statement has nothing to do
//! with.

#[path = "support/small.rs"]
mod small;

use std::time::Duration;

use varve::{
    ColumnType, Cursor, Database, Datum, Error, Isolation, KeyMatch, LockMode, Options, Table,
    TableDef, Transaction, Value,
};

fn open(dir: &tempfile::TempDir) -> (Database, Table) {
    let db = Database::open(dir.path(), small::options()).unwrap();
    let def = TableDef::new("a/t")
        .column("a", ColumnType::i64())
        .column("b", ColumnType::i64())
        .nullable("k", ColumnType::i64())
        .column("pad", ColumnType::text(200))
        .primary(&["a", "b"])
        .index("by_k", &["k"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..600 {
        let k = (id % 4 != 3).then_some(id % 4);
        let row = [
            (id / 10).into(),
            (id % 10).into(),
            k.into(),
            "x".repeat(50).into(),
        ];
        (trx.insert(&table, &table.def().row(&row).unwrap().datums())).unwrap();
    }
    trx.commit().unwrap();
    (db, table)
}

/// The row's number, as `open` counted them.
fn id(cursor: &Cursor) -> i64 {
    let row = cursor.row().unwrap();
    let int = |column| i64::from_le_bytes(row.get(column).unwrap().try_into().unwrap());
    int(0) * 10 + int(1)
}

fn ids(cursor: &mut Cursor, trx: &mut Transaction, mut found: bool, forward: bool) -> Vec<i64> {
    let mut ids = Vec::new();
    while found {
        ids.push(id(cursor));
        found = match forward {
            true => cursor.next(trx).unwrap(),
            false => cursor.prev(trx).unwrap(),
        };
    }
    ids
}

fn key(values: &[Value]) -> Vec<Option<Vec<u8>>> {
    let bytes = |v: &Value| match v {
        Value::Int(i) => Some(i.to_le_bytes().to_vec()),
        _ => None,
    };
    values.iter().map(bytes).collect()
}

fn datums(key: &[Option<Vec<u8>>]) -> Vec<Datum<'_>> {
    key.iter().map(|v| v.as_deref()).collect()
}

const MODES: [LockMode; 3] = [LockMode::None, LockMode::Shared, LockMode::Exclusive];

#[test]
fn searches_end_at_their_limits_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    // (k, a): k = 1 has the ids 1, 5, 9, …, a is id / 10.
    type Limit<'a> = (&'a [Value], fn(i64) -> i64);
    let limits: [Limit<'_>; 3] = [
        (&[Value::Int(1)], |_| 0),
        (&[Value::Int(1), Value::Int(20)], |id| {
            (id / 10).cmp(&20) as i64
        }),
        (&[Value::Int(1), Value::Int(20), Value::Int(5)], |id| {
            id.cmp(&205) as i64
        }),
    ];
    for (values, compare) in limits {
        for inclusive in [false, true] {
            for mode in MODES {
                let mut trx = db.begin(Isolation::RepeatableRead);
                let mut cursor = table.cursor(1).unwrap();
                let limit = key(values);
                let limit = datums(&limit);
                let of_k = |k: i64| (0..600).filter(move |id| id % 4 == k);
                let in_limit = |c: i64| c < 0 || (c == 0 && inclusive);

                cursor.set_end(Some((&limit, inclusive))).unwrap();
                let from = key(&[Value::Int(0)]);
                let found = cursor
                    .seek(&mut trx, &datums(&from), KeyMatch::AtLeast, mode)
                    .unwrap();
                let want: Vec<i64> = (of_k(0))
                    .chain(of_k(1).filter(|id| in_limit(compare(*id))))
                    .collect();
                assert_eq!(
                    ids(&mut cursor, &mut trx, found, true),
                    want,
                    "{values:?} {inclusive} {mode:?}"
                );

                cursor.set_begin(Some((&limit, inclusive))).unwrap();
                let found = cursor.last(&mut trx, mode).unwrap();
                let mut want: Vec<i64> = (of_k(1).filter(|id| in_limit(-compare(*id))))
                    .chain(of_k(2))
                    .collect();
                want.reverse();
                assert_eq!(
                    ids(&mut cursor, &mut trx, found, false),
                    want,
                    "{values:?} {inclusive} {mode:?}"
                );
                trx.commit().unwrap();
            }
        }
    }
    db.close().unwrap();
}

#[test]
fn search_keys_reach_into_the_primary_key() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(1).unwrap();
    let search = key(&[Value::Int(2), Value::Int(7)]);
    for mode in MODES {
        let mut found = (cursor.seek(&mut trx, &datums(&search), KeyMatch::Exact, mode)).unwrap();
        let mut ids = Vec::new();
        while found {
            ids.push(id(&cursor));
            found = cursor.next_same(&mut trx).unwrap();
        }
        assert_eq!(ids, [70, 74, 78]);
        let last = cursor.seek(&mut trx, &datums(&search), KeyMatch::ExactLast, mode);
        assert!(last.unwrap() && id(&cursor) == 78);
    }
    let one = |n: usize, bound: &[Option<Vec<u8>>]| {
        let bound = datums(&bound[..n]);
        (table.records_in_range(1, Some((&bound, true)), Some((&bound, true)))).unwrap()
    };
    let bound = key(&[Value::Int(2), Value::Int(7), Value::Int(4)]);
    assert_eq!((one(2, &bound), one(3, &bound)), (3, 1));
    let too_many = key(&[Value::Int(2), Value::Int(7), Value::Int(4), Value::Int(1)]);
    let refused = cursor.seek(
        &mut trx,
        &datums(&too_many),
        KeyMatch::Exact,
        LockMode::None,
    );
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    drop(trx);
    db.close().unwrap();
}

#[test]
fn filters_see_keys_and_leave_other_rows_unlocked() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    for mode in MODES {
        let mut trx = db.begin(Isolation::RepeatableRead);
        let mut cursor = table.cursor(1).unwrap();
        let log = asked.clone();
        cursor.set_filter(
            Some(Box::new(move |key, position| {
                let int = |i| {
                    key.get(i)
                        .map(|v| i64::from_le_bytes(v.try_into().unwrap()))
                };
                let (k, a, b) = (int(0), int(1).unwrap(), int(2).unwrap());
                let bytes = |int: i64| (int as u64 ^ 1 << 63).to_be_bytes();
                assert_eq!(position, [bytes(a), bytes(b)].concat(), "the entry's row");
                log.lock().unwrap().push((k, a * 10 + b));
                Ok(b == 3)
            })),
            None,
        );
        let null = [None];
        let found = cursor.seek(&mut trx, &null, KeyMatch::Exact, mode).unwrap();
        let wanted = ids(&mut cursor, &mut trx, found, true);
        let want: Vec<i64> = (0..600).filter(|id| id % 4 == 3 && id % 10 == 3).collect();
        // `ids` goes on behind NULL, as `next` does.
        assert_eq!(wanted[..want.len()], want, "{mode:?}");
        let asked = std::mem::take(&mut *asked.lock().unwrap());
        assert!(
            asked.starts_with(&[(None, 3), (None, 7), (None, 11)]),
            "{asked:?}"
        );
        assert_eq!(asked.len(), 600, "{mode:?}");

        // 7 was not wanted, 3 was.
        let mut other = db.begin(Isolation::RepeatableRead);
        other.set_lock_wait_timeout(Duration::ZERO);
        let mut rows = table.cursor(0).unwrap();
        for (b, free) in [(7, true), (3, mode == LockMode::None)] {
            let at = key(&[Value::Int(0), Value::Int(b)]);
            let got = rows.seek(
                &mut other,
                &datums(&at),
                KeyMatch::Exact,
                LockMode::Exclusive,
            );
            assert_eq!(got.is_ok(), free, "{mode:?} {b}: {got:?}");
        }
        other.rollback().unwrap();

        cursor.set_filter(Some(Box::new(|_, _| Err(Error::Interrupted))), None);
        let stopped = cursor.first(&mut trx, mode);
        assert!(matches!(stopped, Err(Error::Interrupted)), "{stopped:?}");
        cursor.set_filter(None, None);
        assert!(cursor.first(&mut trx, mode).unwrap());
        trx.rollback().unwrap();
    }
    db.close().unwrap();
}

#[test]
fn locked_keys_keep_out_those_who_ask_for_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let mut one = db.begin(Isolation::ReadCommitted);
    let mut two = db.begin(Isolation::ReadCommitted);
    two.set_lock_wait_timeout(Duration::ZERO);
    let (here, absent) = (key(&[Value::Int(1)]), key(&[Value::Int(77)]));
    one.lock_key(&table, 1, &datums(&here)).unwrap();
    one.lock_key(&table, 1, &datums(&absent)).unwrap();
    for k in [&here, &absent] {
        let refused = two.lock_key(&table, 1, &datums(k));
        assert!(
            matches!(refused, Err(Error::LockWaitTimeout)),
            "{refused:?}"
        );
    }
    two.lock_key(&table, 1, &datums(&key(&[Value::Int(78)])))
        .unwrap();
    // Rows are another matter.
    let mut cursor = table.cursor(1).unwrap();
    let found = cursor.seek(
        &mut two,
        &datums(&here),
        KeyMatch::Exact,
        LockMode::Exclusive,
    );
    assert!(found.unwrap());
    one.commit().unwrap();
    two.lock_key(&table, 1, &datums(&absent)).unwrap();
    two.commit().unwrap();
    db.close().unwrap();
}

/// KEY-3: an entry's key, its row's clustered key included, is as long as the page size permits; what is
/// longer is refused by name, and nothing is left of it.
#[test]
fn an_entry_is_as_long_as_a_page_permits() {
    for (page_size, each, fits) in [
        (16 << 10, 2000, true),
        (16 << 10, 3072, true),
        (64 << 10, 3072, true),
        (8 << 10, 980, true),
        (8 << 10, 1936, true),
        (8 << 10, 1938, false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            page_size,
            buffer_pool_bytes: 256 * u64::from(page_size),
            ..small::options()
        };
        let db = Database::open(dir.path(), options).unwrap();
        let def = TableDef::new("a/t")
            .column("p", ColumnType::Bytes(3072))
            .column("k", ColumnType::Bytes(3072))
            .primary(&["p"])
            .index("by_k", &["k"]);
        let table = db.create_table(&def).unwrap();
        let row = |n: u8| {
            let mut key = vec![b'x'; each];
            key[each - 1] = n;
            [Value::Bytes(key.clone()), Value::Bytes(key)]
        };
        let mut trx = db.begin(Isolation::RepeatableRead);
        for n in (0..40).rev() {
            match table.insert(&mut trx, &row(n)) {
                Ok(()) => assert!(fits, "{page_size}, {each}"),
                Err(Error::TooLarge { what, .. }) => {
                    assert!(!fits, "{page_size}, {each}");
                    assert_eq!(what, "a key of index by_k with the row's clustered key");
                }
                Err(other) => panic!("{other}"),
            }
        }
        trx.commit().unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        let mut cursor = table.cursor(1).unwrap();
        let mut found = 0;
        let mut is_there = cursor.first(&mut trx, LockMode::None).unwrap();
        while is_there {
            let k = cursor.row().unwrap().get(1).map(<[u8]>::to_vec);
            assert_eq!(k.map(Value::Bytes), Some(row(found)[1].clone()));
            found += 1;
            is_there = cursor.next(&mut trx).unwrap();
        }
        assert_eq!(found, if fits { 40 } else { 0 });
        trx.commit().unwrap();
        assert_eq!(db.check_table(&table).unwrap().errors, [""; 0]);
    }
}

/// A key has 0 for −0 (KEY-5): whoever reads keys only gets the row there, and nowhere else.
#[test]
fn rows_are_read_where_a_key_may_have_lost_a_sign() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), small::options()).unwrap();
    let def = TableDef::new("a/f")
        .column("id", ColumnType::i64())
        .nullable("d", ColumnType::Double)
        .primary(&["id"])
        .index("by_d", &["d"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let stored = [Some(-1.5), Some(-0.0), Some(0.0), None, Some(f64::MAX)];
    for (id, d) in stored.iter().enumerate() {
        let row = [(id as i64).into(), d.map_or(Value::Null, Value::Double)];
        (trx.insert(&table, &table.def().row(&row).unwrap().datums())).unwrap();
    }
    trx.commit().unwrap();

    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(1).unwrap();
    cursor.set_keys_suffice(true);
    let mut found = cursor.first(&mut trx, LockMode::None).unwrap();
    let mut seen = 0;
    while found {
        let read = |v: Option<&[u8]>| v.map(<[u8]>::to_vec);
        let from_key = cursor.key_values().unwrap();
        let from_key = from_key.map(|values| values.iter().map(read).collect());
        let is_from_key = from_key.is_some();
        let values: Vec<Option<Vec<u8>>> = from_key.unwrap_or_else(|| {
            let row = cursor.row().unwrap();
            [1, 0].map(|c| read(row.get(c))).to_vec()
        });
        let id = u64::from_le_bytes(values[1].as_deref().unwrap().try_into().unwrap());
        let want = stored[id as usize];
        assert_eq!(values[0], want.map(|d| d.to_le_bytes().to_vec()));
        assert_eq!(is_from_key, want != Some(0.0), "{want:?}");
        seen += 1;
        found = cursor.next(&mut trx).unwrap();
    }
    assert_eq!(seen, stored.len());
    drop(cursor);
    trx.rollback().unwrap();
    drop(table);
    db.close().unwrap();
}
