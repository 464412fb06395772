//! Columns that come, go, stand elsewhere, and begin to take NULL, while the rows stay.

#[path = "support/by_id.rs"]
mod by_id;
#[path = "support/numbers.rs"]
mod numbers;
#[path = "support/small.rs"]
mod small;

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use varve::{ColumnType, Database, Isolation, LockMode, Table, TableDef, Transaction, Value};

use by_id::{delete, lock};
use numbers::{ROWS, filled, ids, is_sound, open, read, row, snapshot};

/// The table of `filled` with two columns more, and the others in another order.
fn with_columns(def: &TableDef) -> TableDef {
    let mut def = def.clone();
    let parts = |def: &TableDef| -> Vec<(usize, u32)> {
        let parts = def.all_indexes().flat_map(|index| &index.parts).enumerate();
        parts
            .map(|(n, part)| (n, def.columns[part.column].id))
            .collect()
    };
    let before = parts(&def);
    def = def
        .column("seven", ColumnType::i32())
        .nullable("note", ColumnType::text(20))
        .column("empty", ColumnType::Bytes(10));
    let n = def.columns.len();
    def.columns[n - 3].default = Some(7i32.to_le_bytes().to_vec());
    def.columns[n - 1].default = Some(Vec::new());
    def.columns.rotate_right(2);
    let columns = def.columns.clone();
    let indexes = std::iter::once(&mut def.primary).chain(&mut def.indexes);
    for (part, (_, id)) in indexes.flat_map(|index| &mut index.parts).zip(before) {
        part.column = columns.iter().position(|column| column.id == id).unwrap();
    }
    def
}

/// Rows that are there read with defaults, also by a view that is older; they are written with all columns
/// when they change, and their changes are taken back. Keys are those of before.
#[test]
fn columns_are_added_and_moved() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = filled(&db);
    let before = table.def().clone();
    let mut old = snapshot(&db);
    drop(table);
    let mut def = with_columns(&before);
    db.redefine_table(&def).unwrap();
    is_sound(&db);
    let table = db.table("a/t").unwrap();
    let names = ["seven", "note", "empty", "n", "text"];
    let [_, n, text, _] = row(1234);
    let added = [
        Value::Int(7),
        Value::Null,
        Value::Bytes(Vec::new()),
        n,
        text,
    ];
    for trx in [&mut old, &mut snapshot(&db)] {
        assert_eq!(read(trx, &table, 1234, &names).unwrap(), added);
        assert_eq!(ids(trx, &table, "by_text").unwrap().len(), ROWS as usize);
    }
    // One of old rows changes, and that is taken back; another one stays changed.
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    for (id, commits) in [(1234i64, false), (500, true), (501, true)] {
        let found = lock(&mut trx, &mut cursor, id);
        assert!(found.unwrap());
        let mut values = cursor.row().unwrap().values().unwrap();
        let note = table.def().column_index("note").unwrap();
        values[note] = Value::Text(format!("of {id}"));
        let new = table.def().row(&values).unwrap();
        assert!(trx.update(&table, &cursor, &new.datums()).unwrap());
        match commits {
            true => trx.commit().unwrap(),
            false => trx.rollback().unwrap(),
        }
        trx = db.begin(Isolation::RepeatableRead);
    }
    is_sound(&db);
    let mut now = snapshot(&db);
    assert_eq!(read(&mut now, &table, 1234, &names).unwrap(), added);
    assert_eq!(
        read(&mut now, &table, 500, &["note"]).unwrap(),
        [Value::Text("of 500".into())]
    );
    assert_eq!(
        read(&mut old, &table, 500, &["note"]).unwrap(),
        [Value::Null]
    );
    drop((old, now, trx, cursor));
    // Once more, after a restart, and with an index on what came before.
    drop(table);
    db.close().unwrap();
    let db = open(dir.path());
    is_sound(&db);
    def = db.table("a/t").unwrap().def().clone();
    def = def.nullable("more", ColumnType::Double);
    db.redefine_table(&def).unwrap();
    is_sound(&db);
    let def = db
        .table("a/t")
        .unwrap()
        .def()
        .clone()
        .index("by_note", &["note", "seven"]);
    db.redefine_table(&def).unwrap();
    is_sound(&db);
    let table = db.table("a/t").unwrap();
    let mut now = snapshot(&db);
    assert_eq!(
        ids(&mut now, &table, "by_note").unwrap().len(),
        ROWS as usize
    );
    assert_eq!(
        read(&mut now, &table, 501, &["more", "seven"]).unwrap(),
        [Value::Null, Value::Int(7)]
    );
    drop((now, table));
    db.close().unwrap();
    // The file alone tells all of it.
    let file = varve::offline::TableFile::open(dir.path().join("a/t.vdt"), None).unwrap();
    let mut rows = 0;
    let summary = file.salvage(&mut |found| {
        rows += i64::from(matches!(
            found,
            varve::offline::Salvaged::Row {
                is_deleted: false,
                ..
            }
        ));
        Ok(())
    });
    summary.unwrap();
    assert_eq!(rows, ROWS);
}

/// An update of an older row to the values that it has is none; one that changes anything is.
#[test]
fn older_rows_are_told_from_changed_ones() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = filled(&db);
    let def = with_columns(table.def());
    drop(table);
    db.redefine_table(&def).unwrap();
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    for id in [1i64, 500] {
        let found = lock(&mut trx, &mut cursor, id);
        assert!(found.unwrap());
        let same: Vec<_> = {
            let row = cursor.row().unwrap();
            row.iter().map(|value| value.map(Vec::from)).collect()
        };
        let datums: Vec<_> = same.iter().map(Option::as_deref).collect();
        assert!(!trx.update(&table, &cursor, &datums).unwrap(), "row {id}");
        for (n, column) in def.columns.iter().enumerate() {
            let mut other = same.clone();
            match &mut other[n] {
                Some(value) if column.name != "id" && !value.is_empty() => value[0] ^= 1,
                _ => continue,
            }
            let datums: Vec<_> = other.iter().map(Option::as_deref).collect();
            let before = trx.savepoint();
            let changed = trx.update(&table, &cursor, &datums).unwrap();
            assert!(changed, "{} of row {id}", column.name);
            trx.rollback_to(before).unwrap();
        }
    }
}

/// What would change rows is refused by name.
#[test]
fn what_is_no_new_column_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    drop(filled(&db));
    let def = db.table("a/t").unwrap().def().clone();
    let without_default = def.clone().column("more", ColumnType::i32());
    let refused = db.redefine_table(&without_default).unwrap_err().to_string();
    assert!(
        refused.contains("more") && refused.contains("default"),
        "{refused}"
    );
    let both = def
        .clone()
        .nullable("more", ColumnType::i32())
        .index("by_more", &["more"]);
    let refused = db.redefine_table(&both).unwrap_err().to_string();
    assert!(refused.contains("new indexes at once"), "{refused}");
    // The rows that such an index is built of have their columns where they were.
    let mut moved = def.clone();
    moved.columns.reverse();
    for index in std::iter::once(&mut moved.primary).chain(&mut moved.indexes) {
        for part in &mut index.parts {
            part.column = def.columns.len() - 1 - part.column;
        }
    }
    let both = moved.clone().index("by_more", &["n"]);
    let refused = db.redefine_table(&both).unwrap_err().to_string();
    assert!(refused.contains("new indexes at once"), "{refused}");
    let mut twice = def.clone();
    let mut again = twice.indexes[0].clone();
    again.name = "again".into();
    twice.indexes[0].id = varve::IndexId(0);
    twice.indexes.insert(0, again);
    let refused = db.redefine_table(&twice).unwrap_err().to_string();
    assert!(
        refused.contains("by_text") && refused.contains("twice"),
        "{refused}"
    );
    db.redefine_table(&moved).unwrap();
    is_sound(&db);
    db.redefine_table(&def).unwrap();
    // What an index has does not go, nor begins to take NULL, nor does the key.
    let mut fewer = def.clone();
    fewer.columns.remove(2);
    fewer.indexes.clear();
    fewer.primary.parts[0].column = 1;
    let refused = db.redefine_table(&fewer).unwrap_err().to_string();
    assert!(refused.contains("another primary key"), "{refused}");
    let mut null = def.clone();
    null.columns[2].nullable = true;
    let refused = db.redefine_table(&null).unwrap_err().to_string();
    assert!(refused.contains("another type of column text"), "{refused}");
    is_sound(&db);
}

fn without(def: &TableDef, name: &str) -> TableDef {
    let mut def = def.clone();
    let at = def.column_index(name).expect("it is there");
    def.columns.remove(at);
    for index in std::iter::once(&mut def.primary).chain(&mut def.indexes) {
        for part in &mut index.parts {
            part.column -= usize::from(part.column > at);
        }
    }
    def
}

/// Replaces a row by what it has now, with another number, and says which columns there are.
fn change_number(trx: &mut Transaction, table: &Table, id: i64, n: i64) {
    let mut cursor = table.cursor(0).unwrap();
    let found = lock(trx, &mut cursor, id);
    assert!(found.unwrap());
    let (at, mut row): (usize, Vec<_>) = {
        let row = cursor.row().unwrap();
        let values = row.iter().map(|value| value.map(Vec::from));
        (row.column("n").unwrap(), values.collect())
    };
    row[at] = Some(n.to_le_bytes().to_vec());
    let datums: Vec<_> = row.iter().map(Option::as_deref).collect();
    assert!(trx.update(table, &cursor, &datums).unwrap());
}

/// Rows keep what they had in a column that went until they change; its long values go with it then, and
/// come back when the change is taken back. A column that comes later under its name is another one. A view
/// that is older reads on.
#[test]
fn columns_go() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = filled(&db);
    let mut old = snapshot(&db);
    let def = without(table.def(), "long");
    drop(table);
    db.redefine_table(&def).unwrap();
    is_sound(&db);
    let table = db.table("a/t").unwrap();
    assert_eq!(table.def().gone.len(), 1);
    let n = read(&mut old, &table, 500, &["n"]).unwrap();
    old.rollback().unwrap();
    assert_eq!(n, [row(500)[1].clone()]);
    let used = || table.used_and_free_bytes().unwrap().0;
    let before = used();
    let mut trx = db.begin(Isolation::RepeatableRead);
    change_number(&mut trx, &table, 500, 1);
    trx.rollback().unwrap();
    is_sound(&db);
    assert_eq!(used(), before);
    let mut trx = db.begin(Isolation::RepeatableRead);
    change_number(&mut trx, &table, 500, 2);
    change_number(&mut trx, &table, 501, 3);
    assert!(delete(&mut trx, &table, 1000).unwrap());
    trx.commit().unwrap();
    assert!(db.wait_for_purge(Duration::from_secs(60)));
    is_sound(&db);
    assert!(used() <= before - 2 * 50_000);
    drop(table);
    db.redefine_table(&def.clone().nullable("long", ColumnType::Bytes(100_000)))
        .unwrap();
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in [500, 1500] {
        assert_eq!(
            read(&mut trx, &table, id, &["long"]).unwrap(),
            [Value::Null]
        );
    }
    drop((trx, table));
    db.close().unwrap();
    let db = open(dir.path());
    is_sound(&db);
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    table.put(&mut trx, &row(1500)).unwrap();
    trx.commit().unwrap();
    is_sound(&db);
}

/// A column that was never NULL begins to be, with the rows that it has.
#[test]
fn columns_begin_to_take_null() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("n", ColumnType::i64())
        .column("text", ColumnType::text(100))
        .primary(&["id"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let row = |id: i64, n: Value| [Value::Int(id), n, Value::Text(format!("of {id}"))];
    for id in 0..10 {
        table.insert(&mut trx, &row(id, Value::Int(id))).unwrap();
    }
    trx.commit().unwrap();
    let mut null = table.def().clone();
    null.columns[1].nullable = true;
    null.columns[2].nullable = true;
    drop(table);
    db.redefine_table(&null).unwrap();
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    table.put(&mut trx, &row(3, Value::Null)).unwrap();
    table.put(&mut trx, &row(4, Value::Int(44))).unwrap();
    for (id, n) in [(3, Value::Null), (4, Value::Int(44)), (5, Value::Int(5))] {
        let found = read(&mut trx, &table, id, &["n", "text"]).unwrap();
        assert_eq!(found, [n, Value::Text(format!("of {id}"))]);
    }
    trx.commit().unwrap();
    is_sound(&db);
    // The way back would have to look at the rows.
    let mut not_null = null.clone();
    not_null.columns[1].nullable = false;
    drop(table);
    assert!(db.redefine_table(&not_null).is_err());
    db.close().unwrap();
    is_sound(&open(dir.path()));
}

/// The same for a table whose definition is longer than a page.
#[test]
fn columns_of_wide_tables_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let mut def = TableDef::new("a/t").column("id", ColumnType::i64());
    for n in 0..300 {
        def = def.nullable(
            &format!("a column with quite a long name {n}"),
            ColumnType::i8(),
        );
    }
    let table = db.create_table(&def.primary(&["id"])).unwrap();
    let def = table.def().clone();
    drop(table);
    db.redefine_table(&def.nullable("more", ColumnType::i8()))
        .unwrap();
    is_sound(&db);
    let def = db.table("a/t").unwrap().def().clone();
    db.redefine_table(&without(&def, "more")).unwrap();
    is_sound(&db);
}

fn value(chance: &mut StdRng, column: &varve::ColumnDef) -> Value {
    if column.nullable && chance.random_range(0..3) == 0 {
        return Value::Null;
    }
    match column.ty {
        ColumnType::Int { .. } => Value::Int(chance.random_range(0..100)),
        _ => {
            let len = [3, 60, 5000][chance.random_range(0..3)];
            Value::Bytes(vec![chance.random(); len])
        }
    }
}

/// What the rows of a table are, by the ids of columns.
type Rows = BTreeMap<i64, BTreeMap<u32, Value>>;

/// Another definition of the table; what is new in it becomes what rows have.
fn redefine(db: &Database, chance: &mut StdRng, rows: &mut Rows) {
    let mut def = db.table("a/t").unwrap().def().clone();
    let n = def.columns.len();
    match chance.random_range(0..4) {
        0 if n < 12 => {
            let name = format!("c{}", def.last_column_id() + 1);
            def = match chance.random_range(0..3) {
                0 => def.nullable(&name, ColumnType::i32()),
                1 => def.nullable(&name, ColumnType::Bytes(5000)),
                _ => def.column(&name, ColumnType::Bytes(5000)),
            };
            let new = def.columns.last_mut().unwrap();
            let default = match (new.nullable, new.ty) {
                (true, ColumnType::Int { .. }) => Value::Int(7),
                (true, _) => Value::Null,
                (false, _) => Value::Bytes(b"default".to_vec()),
            };
            new.default = match &default {
                Value::Int(7) => Some(7i32.to_le_bytes().to_vec()),
                Value::Bytes(bytes) => Some(bytes.clone()),
                _ => None,
            };
            let id = new.id;
            let each = rows.values_mut();
            each.for_each(|row| drop(row.insert(id, default.clone())));
        }
        1 if n > 1 => {
            let at = 1 + chance.random_range(0..n - 1);
            let gone = match def.columns[at].name == "id" {
                true => 0,
                false => at,
            };
            let (id, name) = (def.columns[gone].id, def.columns[gone].name.clone());
            if name != "id" {
                def = without(&def, &name);
                rows.values_mut().for_each(|row| drop(row.remove(&id)));
            }
        }
        2 => {
            let key = def.columns[def.primary.parts[0].column].id;
            def.columns.rotate_left(chance.random_range(0..n));
            let at = def.columns.iter().position(|column| column.id == key);
            def.primary.parts[0].column = at.unwrap();
        }
        _ => {
            let at = chance.random_range(0..n);
            if def.columns[at].name != "id" {
                def.columns[at].nullable = true;
            }
        }
    }
    db.redefine_table(&def).unwrap();
}

/// One row comes, changes or goes, and maybe nothing comes of it.
fn change(db: &Database, chance: &mut StdRng, rows: &mut Rows) {
    let table = db.table("a/t").unwrap();
    let def = table.def();
    let id = chance.random_range(0..30);
    let mut trx = db.begin(Isolation::RepeatableRead);
    let stays = chance.random_range(0..4) > 0;
    if chance.random_range(0..5) == 0 {
        let was_there = delete(&mut trx, &table, id).unwrap();
        assert_eq!(was_there, rows.contains_key(&id));
        if stays {
            rows.remove(&id);
        }
    } else {
        let before = rows.get(&id);
        let columns = def.columns.iter().map(|column| {
            let old = before.and_then(|row| row.get(&column.id)).cloned();
            match (&*column.name, old) {
                ("id", _) => Value::Int(id),
                (_, Some(old)) if chance.random_range(0..2) == 0 => old,
                _ => value(chance, column),
            }
        });
        let values: Vec<Value> = columns.collect();
        table.put(&mut trx, &values).unwrap();
        if stays {
            let ids = def.columns.iter().map(|column| column.id);
            rows.insert(id, ids.zip(values).collect());
        }
    }
    match stays {
        true => trx.commit().unwrap(),
        false => trx.rollback().unwrap(),
    }
}

fn has_rows(db: &Database, rows: &Rows) {
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    let mut found = Rows::new();
    let mut more = cursor.first(&mut trx, LockMode::None).unwrap();
    while more {
        let row = cursor.row().unwrap();
        let columns = table.def().columns.iter().enumerate();
        let values: BTreeMap<u32, Value> = columns
            .map(|(n, column)| (column.id, row.value(n).unwrap()))
            .collect();
        let Value::Int(id) = row.value(row.column("id").unwrap()).unwrap() else {
            panic!("ids are numbers");
        };
        found.insert(id, values);
        more = cursor.next(&mut trx).unwrap();
    }
    assert!(found == *rows, "{found:?}\n{rows:?}");
}

/// ROW-3: rows of many versions beside each other, whatever has become of the columns, also after a crash.
#[test]
fn rows_of_all_versions_are_read() {
    for seed in 1..=6 {
        let dir = tempfile::tempdir().unwrap();
        let mut db = open(dir.path());
        let def = TableDef::new("a/t")
            .column("id", ColumnType::i64())
            .column("n", ColumnType::i32())
            .column("bytes", ColumnType::Bytes(5000))
            .primary(&["id"]);
        drop(db.create_table(&def).unwrap());
        let (mut chance, mut rows) = (StdRng::seed_from_u64(seed), Rows::new());
        for step in 0..120 {
            match chance.random_range(0..4) {
                0 => redefine(&db, &mut chance, &mut rows),
                _ => change(&db, &mut chance, &mut rows),
            }
            if step % 10 == 0 {
                has_rows(&db, &rows);
                is_sound(&db);
            }
            if step % 40 == 39 {
                if step % 80 == 79 {
                    db.crash();
                } else {
                    db.close().unwrap();
                }
                db = open(dir.path());
                has_rows(&db, &rows);
            }
        }
        assert!(!db.table("a/t").unwrap().def().gone.is_empty());
        is_sound(&db);
    }
}
