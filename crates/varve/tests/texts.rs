//! Texts that indexes give back, and conditions on them: a row whose text becomes another one of the same
//! weights, seen by old views and new ones, taken back, and read while another transaction changes it.
//!
//! What could break here: an entry that says another form than the row's text has, for the view that reads
//! it; a filter that goes by what is not decided yet.

#[path = "support/small.rs"]
mod small;

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::{
    CollationId, ColumnType, Cursor, Database, DatumBuf, HistoryOptions, Isolation, LockMode,
    Options, Peeked, Table, TableDef, Transaction, Value,
};

/// Two texts in the index, one in the primary key.
fn definition() -> TableDef {
    let text = || ColumnType::text_in(CollationId::UTF8_CI, 40);
    TableDef::new("a/t")
        .column("key", ColumnType::text_in(CollationId::ASCII_CI, 10))
        .nullable("name", text())
        .column("tag", ColumnType::text_in(CollationId::UTF8_BIN_PAD, 10))
        .column("n", ColumnType::i64())
        .primary(&["key"])
        .index("by_name", &["name", "tag"])
        .index("by_n", &["n"])
        .unique("by_both", &["tag", "name"])
}

type Row = (String, Option<String>, String, i64);

fn values(row: &Row) -> Vec<Value> {
    let name = row.1.clone().map_or(Value::Null, Value::Text);
    let (key, tag) = (Value::Text(row.0.clone()), Value::Text(row.2.clone()));
    vec![key, name, tag, Value::Int(row.3)]
}

fn insert(trx: &mut Transaction, table: &Table, row: &Row) -> varve::Result<()> {
    trx.insert(table, &table.def().row(&values(row)).unwrap().datums())
}

/// Replaces the row with this key by another one; false if there is none.
fn update(trx: &mut Transaction, table: &Table, row: &Row) -> varve::Result<bool> {
    let mut cursor = table.cursor(0).unwrap();
    let key = [Some(row.0.as_bytes())];
    let how = varve::KeyMatch::Exact;
    if !cursor.seek(trx, &key, how, LockMode::Exclusive)? {
        return Ok(false);
    }
    let row = table.def().row(&values(row)).unwrap();
    trx.update(table, &cursor, &row.datums())?;
    Ok(true)
}

fn text(bytes: Option<&[u8]>) -> Option<String> {
    bytes.map(|b| String::from_utf8(b.to_vec()).unwrap())
}

fn number(bytes: Option<&[u8]>) -> i64 {
    i64::from_le_bytes(bytes.unwrap().try_into().unwrap())
}

/// The row at the cursor, and whether the entry gave what there is of it.
fn at(cursor: &mut Cursor) -> (Row, bool) {
    let columns: Vec<usize> = cursor.key_columns().iter().map(|(c, _)| *c).collect();
    if let Some(got) = cursor.key_values().unwrap() {
        let of = |column| {
            let part = columns.iter().position(|c| *c == column);
            part.and_then(|part| got.get(part))
        };
        let n = of(3).map_or(-1, |n| number(Some(n)));
        let tag = text(of(2)).unwrap_or_default();
        return ((text(of(0)).unwrap(), text(of(1)), tag, n), true);
    }
    let row = cursor.row().unwrap();
    let [key, name, tag] = [0, 1, 2].map(|c| text(row.get(c)));
    (
        (key.unwrap(), name, tag.unwrap(), number(row.get(3))),
        false,
    )
}

fn scan(trx: &mut Transaction, cursor: &mut Cursor, lock: LockMode) -> Vec<(Row, bool)> {
    let mut rows = Vec::new();
    let mut found = cursor.first(trx, lock).unwrap();
    while found {
        rows.push(at(cursor));
        found = cursor.next(trx).unwrap();
    }
    rows
}

/// PEEK-1: what a look says of an entry is what it says when the scan comes there. How many gave it.
fn look_ahead(trx: &mut Transaction, cursor: &mut Cursor) -> usize {
    let parts = cursor.key_columns().len();
    let (mut key, mut seen) = (Vec::new(), 0);
    let mut found = cursor.first(trx, LockMode::None).unwrap();
    while found {
        let mut ahead = DatumBuf::new();
        let looks = (0..cursor.peekable()).map_while(|n| match cursor.peek(trx, n)? {
            Peeked::Entry(entry) => cursor.read_peeked(&entry, &mut key, &mut ahead),
            Peeked::Row(_) => panic!("a row of a secondary index"),
        });
        for n in 0..looks.count() {
            assert!(cursor.next(trx).unwrap(), "a row too many is looked at");
            let values = cursor.key_values().unwrap().expect("what was looked at");
            let looked_at = (0..parts).map(|part| ahead.get(n * parts + part));
            assert!(looked_at.eq(values.iter()), "{ahead:?} {n}: {values:?}");
            seen += 1;
        }
        found = cursor.next(trx).unwrap();
    }
    seen
}

/// All rows as the clustered index gives them, and as each other one does.
fn compare(trx: &mut Transaction, table: &Table) {
    let mut cursor = table.cursor(0).unwrap();
    let mut rows: Vec<Row> = (scan(trx, &mut cursor, LockMode::None).into_iter())
        .map(|(row, _)| row)
        .collect();
    rows.sort();
    for index in 1..=3 {
        let mut cursor = table.cursor(index).unwrap();
        cursor.set_keys_suffice(true);
        look_ahead(trx, &mut cursor);
        // Some columns are not wanted.
        let mut few = table.cursor(index).unwrap();
        few.set_keys_suffice(true);
        few.set_wanted_columns(Some(&[index != 2, index == 1, true, false]));
        look_ahead(trx, &mut few);
        let covered = |column| [&[1, 2, 0][..], &[3, 0], &[2, 1, 0]][index - 1].contains(&column);
        let mut want = rows.clone();
        let mut got: Vec<Row> = Vec::new();
        for (mut row, from_entry) in scan(trx, &mut cursor, LockMode::None) {
            let full = rows.iter().find(|full| full.0.eq_ignore_ascii_case(&row.0));
            let full = full.unwrap_or_else(|| panic!("index {index}: {row:?} is no row"));
            if from_entry {
                row.1 = if covered(1) { row.1 } else { full.1.clone() };
                row.2 = if covered(2) { row.2 } else { full.2.clone() };
                row.3 = if covered(3) { row.3 } else { full.3 };
            }
            got.push(row);
        }
        got.sort();
        want.sort();
        assert_eq!(got, want, "index {index}");
        // A condition that only the text itself answers, not its weights.
        let mut cursor = table.cursor(index).unwrap();
        let columns: Vec<usize> = cursor.key_columns().iter().map(|(c, _)| *c).collect();
        let part = columns.iter().position(|c| *c == 0).unwrap();
        cursor.set_filter(
            Some(Box::new(move |values, _| {
                Ok(values
                    .get(part)
                    .is_some_and(|key| key[0].is_ascii_lowercase()))
            })),
            None,
        );
        let got = scan(trx, &mut cursor, LockMode::None);
        let small = |row: &&Row| row.0.as_bytes()[0].is_ascii_lowercase();
        assert_eq!(
            got.len(),
            rows.iter().filter(small).count(),
            "index {index}"
        );
        assert!(
            got.iter().all(|(row, _)| small(&row)),
            "index {index}: {got:?}"
        );
    }
}

fn database(dir: &tempfile::TempDir, delay: u64) -> (Database, Table) {
    let options = Options {
        history: HistoryOptions {
            delay: Duration::from_millis(delay),
            ..HistoryOptions::default()
        },
        ..small::options()
    };
    let db = Database::open(dir.path(), options).unwrap();
    let table = db.create_table(&definition()).unwrap();
    (db, table)
}

fn database_with(dir: &tempfile::TempDir, delay: u64, row: &Row) -> (Database, Table) {
    let (db, table) = database(dir, delay);
    let mut trx = db.begin(Isolation::RepeatableRead);
    insert(&mut trx, &table, row).unwrap();
    trx.commit().unwrap();
    (db, table)
}

fn row(key: &str, name: &str, tag: &str, n: i64) -> Row {
    (key.into(), Some(name.into()), tag.into(), n)
}

/// A text of one of the forms is read from the entry, another one from its row.
#[test]
fn entries_give_texts_of_their_forms() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = database(&dir, 0);
    let mut trx = db.begin(Isolation::RepeatableRead);
    for (key, name, tag, gives) in [
        ("a", "small", "x", true),
        ("b", "CAPITAL", "X", true),
        ("C", "New Words", "y", true),
        ("d", "ODd one", "y", false),
        ("e", "größe", "z", false),
        ("f", "spaces", "x ", false),
        ("gG", "a key of no form", "v", false),
    ] {
        insert(&mut trx, &table, &row(key, name, tag, 0)).unwrap();
        let mut cursor = table.cursor(1).unwrap();
        cursor.set_keys_suffice(true);
        let name = [Some(name.as_bytes())];
        let how = varve::KeyMatch::Exact;
        assert!(cursor.seek(&mut trx, &name, how, LockMode::None).unwrap());
        assert_eq!(at(&mut cursor).1, gives, "{key}");
        // Nobody wants its texts.
        cursor.set_wanted_columns(Some(&[false; 4]));
        assert!(cursor.seek(&mut trx, &name, how, LockMode::None).unwrap());
        assert!(cursor.key_values().unwrap().is_some(), "{key}");
    }
    compare(&mut trx, &table);
    trx.commit().unwrap();
    let report = db.check_table(&table).unwrap();
    assert_eq!(report.errors, [""; 0]);
}

/// KEY-6: what changes in a text without a change of weights is seen by those who see the change.
#[test]
fn another_text_of_the_same_weights_is_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = database_with(&dir, 0, &row("key", "name", "t", 1));
    let mut before = db.begin(Isolation::RepeatableRead);
    compare(&mut before, &table);
    let mut trx = db.begin(Isolation::RepeatableRead);
    // The primary key's text is in every entry.
    for (key, name) in [
        ("KEY", "name"),
        ("KEY", "NAME"),
        ("Key", "nAme"),
        ("Key", "Name"),
    ] {
        assert!(update(&mut trx, &table, &row(key, name, "t", 1)).unwrap());
        compare(&mut trx, &table);
        compare(&mut before, &table);
    }
    let savepoint = trx.savepoint();
    assert!(update(&mut trx, &table, &row("keY", "name", "t ", 1)).unwrap());
    compare(&mut trx, &table);
    trx.rollback_to(savepoint).unwrap();
    compare(&mut trx, &table);
    trx.commit().unwrap();
    // The history store keeps what the view needs.
    assert!(db.wait_for_purge(Duration::from_secs(20)));
    compare(&mut before, &table);
    compare(&mut db.begin(Isolation::RepeatableRead), &table);
    assert_eq!(db.check_table(&table).unwrap().errors, [""; 0]);
}

/// A locking read with a condition waits for who changes a text, and goes by what comes of it.
#[test]
fn a_condition_is_asked_about_what_is_locked() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = database_with(&dir, 1000, &row("k", "name", "t", 1));
    // The last: the row is locked first, and changed while the reader waits.
    for (from, to, commits, changes_late, found) in [
        ("name", "NAME", true, false, 1),
        ("NAME", "name", false, false, 1),
        ("NAME", "name", true, false, 0),
        ("name", "NAME", false, false, 0),
        ("name", "NAME", true, false, 1),
        ("NAME", "name", true, true, 0),
    ] {
        let mut trx = db.begin(Isolation::RepeatableRead);
        let change = |trx: &mut _| {
            let changed = update(trx, &table, &row("k", to, "t", 1)).unwrap();
            assert!(changed, "{from}");
        };
        let mut cursor = table.cursor(0).unwrap();
        assert!(cursor.first(&mut trx, LockMode::Exclusive).unwrap());
        if !changes_late {
            change(&mut trx);
        }
        std::thread::scope(|s| {
            let reader = s.spawn(|| {
                let mut trx = db.begin(Isolation::ReadCommitted);
                let mut cursor = table.cursor(1).unwrap();
                let is_capital = |name: Option<&[u8]>| name == Some(b"NAME");
                cursor.set_filter(
                    Some(Box::new(move |values, _| Ok(is_capital(values.get(0))))),
                    None,
                );
                let rows = scan(&mut trx, &mut cursor, LockMode::Shared).len();
                trx.commit().unwrap();
                rows
            });
            while !db.status().contains(&("row_lock_current_waits", 1)) {
                assert!(!reader.is_finished(), "{from} to {to}: it did not wait");
                std::thread::yield_now();
            }
            if changes_late {
                change(&mut trx);
            }
            match commits {
                true => trx.commit().unwrap(),
                false => trx.rollback().unwrap(),
            }
            assert_eq!(reader.join().unwrap(), found, "{from} to {to}, {commits}");
        });
    }
}

/// Random changes, with views of all ages.
#[test]
fn views_see_their_texts() {
    for (seed, delay) in [(1, 0), (2, 0), (3, 1000)] {
        let dir = tempfile::tempdir().unwrap();
        let (db, table) = database(&dir, delay);
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut views: Vec<Transaction> = Vec::new();
        let case = |rng: &mut SmallRng, word: &str| match rng.random_range(0..5) {
            0 => word.to_uppercase(),
            1 => word[..1].to_uppercase() + &word[1..],
            2 => word[..1].to_owned() + &word[1..].to_uppercase(),
            _ => word.to_owned(),
        };
        for _ in 0..300 {
            let mut trx = db.begin(Isolation::RepeatableRead);
            for _ in 0..rng.random_range(1..6) {
                let key = format!("k{}", rng.random_range(0..12));
                let name = ["an apple", "pear", "plum"][rng.random_range(0..3)];
                let tag = ["t", "T", "u ", "u"][rng.random_range(0..4)];
                let n = rng.random_range(0..4);
                let name = rng.random_bool(0.9).then(|| case(&mut rng, name));
                let row = (case(&mut rng, &key), name, tag.to_owned(), n);
                let savepoint = trx.savepoint();
                // A duplicate is refused.
                match update(&mut trx, &table, &row) {
                    Ok(false) => drop(insert(&mut trx, &table, &row)),
                    Ok(true) if rng.random_bool(0.1) => trx.rollback_to(savepoint).unwrap(),
                    Ok(true) | Err(varve::Error::DuplicateKey { .. }) => {}
                    Err(e) => panic!("{e}"),
                }
            }
            compare(&mut trx, &table);
            match rng.random_bool(0.8) {
                true => trx.commit().unwrap(),
                false => trx.rollback().unwrap(),
            }
            match rng.random_range(0..4) {
                0 if views.len() < 4 => views.push(db.begin(Isolation::RepeatableRead)),
                1 if !views.is_empty() => {
                    let at = rng.random_range(0..views.len());
                    drop(views.swap_remove(at));
                }
                _ => {}
            }
            views.iter_mut().for_each(|view| compare(view, &table));
        }
        drop(views);
        assert_eq!(
            db.check_table(&table).unwrap().errors,
            [""; 0],
            "seed {seed}"
        );
    }
}

/// A collation of the caller's, which `varve check` does not know.
struct Callers;

impl varve::Weigh for Callers {
    fn weights(&self, text: &[u8], out: &mut Vec<u8>) {
        out.extend(text.to_ascii_uppercase());
    }

    fn prefix_bytes(&self, text: &[u8], chars: usize) -> usize {
        chars.min(text.len())
    }

    fn letters(&self) -> varve::Letters {
        varve::Letters::Bytes
    }
}

/// Who does not know a collation compares no forms.
#[test]
fn unknown_collations_are_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), small::options()).unwrap();
    let id = CollationId(77);
    let collation = varve::Collation::new(id, "mine", "1", varve::Pad::None, Arc::new(Callers));
    db.register_collation(collation.unwrap()).unwrap();
    let def = TableDef::new("a/mine")
        .column("key", ColumnType::text_in(id, 10))
        .column("n", ColumnType::i64())
        .column("name", ColumnType::text_in(CollationId::UTF8_CI, 10))
        .primary(&["key"])
        .index("by_n", &["n"])
        .index("by_name", &["name"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for (n, key) in ["small", "CAPITAL", "nO form"].iter().enumerate() {
        let row = [
            Value::Text((*key).into()),
            Value::Int(n as i64),
            Value::Text("A Name".into()),
        ];
        (trx.insert(&table, &def.row(&row).unwrap().datums())).unwrap();
    }
    trx.commit().unwrap();
    assert_eq!(db.check_table(&table).unwrap().errors, [""; 0]);
    drop(table);
    db.close().unwrap();
    let mut damage = Vec::new();
    varve::offline::check(dir.path(), None, &mut |finding| {
        if finding.grade == varve::offline::Grade::Damage {
            damage.push(finding.to_string());
        }
    })
    .unwrap();
    assert_eq!(damage, [""; 0]);
}
