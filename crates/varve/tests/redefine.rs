//! Definitions that change while the rows stay: names, lengths, and indexes that come and go.

#[path = "support/by_id.rs"]
mod by_id;
#[path = "support/numbers.rs"]
mod numbers;
#[path = "support/small.rs"]
mod small;

use std::thread;
use std::time::Duration;

use varve::{
    ColumnType, Database, Error, HistoryOptions, Isolation, RedefinitionWaits, RowRef, TableDef,
    Value,
};

use by_id::delete;
use numbers::{ROWS, filled, ids, is_sound, numbers, open, read, row, snapshot};

/// Names of columns and indexes change, and what columns of bytes and text take, and no row does. What would
/// is refused by name.
#[test]
fn a_table_is_redefined_with_the_rows_that_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), small::options()).unwrap();
    let def = |text: u32, index: &str| {
        TableDef::new("a/t")
            .column("id", ColumnType::i64())
            .nullable("text", ColumnType::text(text))
            .column("bytes", ColumnType::Bytes(text))
            .primary(&["id"])
            .unique(index, &["text"])
            .index("by_bytes", &["bytes", "text"])
    };
    let row = |id: i64, len: usize| {
        let text = format!("{id}").repeat(len);
        [
            Value::Int(id),
            Value::Text(text.clone()),
            Value::Bytes(text.into_bytes()),
        ]
    };
    let table = db.create_table(&def(4, "by_text")).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    table.insert(&mut trx, &row(1, 4)).unwrap();
    assert!(table.insert(&mut trx, &row(2, 5)).is_err());
    trx.commit().unwrap();

    let refusal = |def: TableDef| {
        assert!(db.table("a/t").unwrap().def().redefined(&def).is_err());
        db.redefine_table(&def).unwrap_err().to_string()
    };
    for (def, what) in [
        (def(3, "by_text"), "another type of column text"),
        (
            def(4, "by_text").column("more", ColumnType::i8()),
            "its default does not fit",
        ),
        (def(4, "by_text").primary(&["bytes"]), "another primary key"),
        (
            def(4, "by_text").auto_increment("id"),
            "filled in another way",
        ),
    ] {
        let refused = refusal(def);
        assert!(
            refused.contains(what) && refused.contains("a/t"),
            "{refused}"
        );
    }

    let (hash, root) = (table.def().hash(), table.def().indexes[0].root);
    let mut wider = def(9, "by_words");
    wider.columns[1].name = "words".into();
    // It is called something else.
    wider.indexes[0].id = table.def().indexes[0].id;
    let mut other = wider.clone();
    other.indexes[0].unique = false;
    assert!(refusal(other).contains("another index by_text"));
    db.redefine_table(&wider).unwrap();
    db.redefine_table(&wider).unwrap();
    let check = |db: &Database| {
        let table = db.table("a/t").unwrap();
        assert_ne!(table.def().hash(), hash);
        assert_eq!(table.def().indexes[0].root, root, "it is the same tree");
        assert_eq!(db.check_table(&table).unwrap().errors, [""; 0]);
        let mut trx = db.begin(Isolation::RepeatableRead);
        table.insert(&mut trx, &row(2, 9)).unwrap();
        let refused = table.insert(&mut trx, &row(3, 10)).unwrap_err().to_string();
        assert!(refused.contains("words"), "{refused}");
        let mut again = row(2, 9);
        again[0] = Value::Int(4);
        let refused = table.insert(&mut trx, &again).unwrap_err().to_string();
        assert!(refused.contains("by_words"), "{refused}");
        trx.rollback().unwrap();
    };
    check(&db);
    db.close().unwrap();
    drop(table);
    check(&Database::open(dir.path(), small::options()).unwrap());
}

// ---- Indexes that come and go.

fn with_more(def: &TableDef) -> TableDef {
    let mut def = def.clone();
    def = def
        .index("by_n", &["n"])
        .unique("by_both", &["text", "id"])
        .index("by_long", &["long"]);
    let long = def.indexes.iter_mut().find(|index| index.name == "by_long");
    long.unwrap().parts[0].prefix_len = Some(100);
    def
}

/// Several indexes are built in one go, also of long values and with runs in a file, and dropped; in between
/// they serve reads and changes. Their pages are used again.
#[test]
fn indexes_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = filled(&db);
    let before = table.def().clone();
    drop(table);
    let mut size = None;
    for round in 0..4 {
        db.redefine_table(&with_more(&before)).unwrap();
        is_sound(&db);
        let table = db.table("a/t").unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        let mut expected: Vec<i64> = (0..ROWS).collect();
        expected.sort_by_key(|id| (id % 10 != 0, (id % 10 != 0) as i64 * (id * 7 % 1000), *id));
        assert_eq!(ids(&mut trx, &table, "by_n").unwrap(), expected);
        let by_text = ids(&mut trx, &table, "by_text").unwrap();
        assert_eq!(ids(&mut trx, &table, "by_both").unwrap(), by_text);
        assert_eq!(
            ids(&mut trx, &table, "by_long").unwrap().len(),
            ROWS as usize
        );
        // A change of them that is taken back, and one that stays.
        let new = row(ROWS + 1000 + round);
        table.insert(&mut trx, &new).unwrap();
        trx.rollback().unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        table.insert(&mut trx, &new).unwrap();
        assert!(delete(&mut trx, &table, ROWS + 1000 + round).unwrap());
        trx.commit().unwrap();
        is_sound(&db);
        drop(table);
        db.redefine_table(&before).unwrap();
        is_sound(&db);
        let bytes = std::fs::metadata(dir.path().join("a/t.vdt")).unwrap().len();
        assert_eq!(*size.get_or_insert(bytes), bytes, "pages are used again");
    }
    assert!(!left_by_sorting(dir.path()));
    db.close().unwrap();
    let db = open(dir.path());
    is_sound(&db);
    db.redefine_table(&with_more(&before)).unwrap();
    db.close().unwrap();
    is_sound(&open(dir.path()));
}

fn left_by_sorting(dir: &std::path::Path) -> bool {
    let mut names = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    names.any(|name| name.to_str().unwrap().starts_with("varve.sort"))
}

/// A view that was there before an index does not read it, and reads all else; DDL waits for nobody who only
/// has a view. Later ones read it.
#[test]
fn old_views_do_not_read_a_new_index() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = filled(&db);
    let mut old = snapshot(&db);
    drop(table);
    db.redefine_table(&with_more(&numbers())).unwrap();
    let table = db.table("a/t").unwrap();
    let refused = ids(&mut old, &table, "by_n").unwrap_err();
    assert!(
        matches!(refused, Error::DefinitionChanged { .. }),
        "{refused}"
    );
    for index in ["PRIMARY", "by_text"] {
        assert_eq!(ids(&mut old, &table, index).unwrap().len(), ROWS as usize);
    }
    old.rollback().unwrap();
    let mut new = snapshot(&db);
    assert_eq!(ids(&mut new, &table, "by_n").unwrap().len(), ROWS as usize);
    drop(new);
    // The table need not stay open for that.
    let mut old = snapshot(&db);
    drop(table);
    let mut def = with_more(&numbers());
    def.indexes.remove(1);
    db.redefine_table(&def).unwrap();
    db.redefine_table(&with_more(&numbers())).unwrap();
    db.set_table_cache(0);
    for n in 0..50 {
        db.create_table(&TableDef::new(format!("a/other{n}")).column("id", ColumnType::i64()))
            .unwrap();
    }
    let table = db.table("a/t").unwrap();
    let refused = ids(&mut old, &table, "by_n").unwrap_err();
    assert!(
        matches!(refused, Error::DefinitionChanged { .. }),
        "{refused}"
    );
    assert_eq!(
        ids(&mut old, &table, "by_both").unwrap().len(),
        ROWS as usize
    );
}

/// BUILD-1. Rows with the same values are in no unique index: the error names the index, and one of the rows
/// is shown, also its long values. NULLs are no such values. Nothing is left of what was built.
#[test]
fn rows_with_the_same_values_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = filled(&db);
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in [ROWS + 10_000, ROWS + 20_000] {
        let [id, _, text, long] = row(id);
        table
            .insert(&mut trx, &[id, Value::Null, text, long])
            .unwrap();
    }
    for id in [ROWS + 30_000, ROWS + 40_000] {
        let [id, _, text, long] = row(id);
        table
            .insert(&mut trx, &[id, Value::Int(-5), text, long])
            .unwrap();
    }
    trx.commit().unwrap();
    let mut shown = None;
    let def = numbers().index("by_n", &["n"]).unique("only_n", &["n"]);
    drop(table);
    let prepared = db.prepare_redefinition(&def, RedefinitionWaits::default());
    let mut prepared = prepared.unwrap();
    let mut tell = |index: &str, row: &RowRef<'_>| {
        let values = [1, 3].map(|at| row.value(at).unwrap());
        shown = Some((index.to_string(), values));
    };
    let refused = prepared.build(&mut tell).unwrap_err();
    drop(prepared);
    assert!(
        matches!(&refused, Error::DuplicateKey { index } if index == "only_n"),
        "{refused}"
    );
    let (index, [value, long]) = shown.unwrap();
    assert_eq!(index, "only_n");
    assert!(matches!(value, Value::Int(-5)), "{value:?}");
    assert!(matches!(&long, Value::Bytes(long) if long.len() == 50_000));
    is_sound(&db);
    assert_eq!(db.table("a/t").unwrap().def().indexes.len(), 1);
    db.redefine_table(&numbers().unique("n_and_id", &["n", "id"]))
        .unwrap();
    is_sound(&db);
}

/// A key that is too long for an index is refused by its name.
#[test]
fn what_ends_a_build_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    drop(filled(&db));
    let refused = db
        .redefine_table(&numbers().index("whole", &["long"]))
        .unwrap_err();
    assert!(refused.to_string().contains("whole"), "{refused}");
    is_sound(&db);
    assert!(!left_by_sorting(dir.path()));
}

/// LOOSE-1: what a crash leaves of indexes that were being built is given back when the table is opened.
#[test]
fn a_crash_in_a_build_leaves_no_pages() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let used = |db: &Database| db.table("a/t").unwrap().used_and_free_bytes().unwrap().0;
    drop(filled(&db));
    db.redefine_table(&with_more(&numbers())).unwrap();
    let with_indexes = used(&db);
    db.redefine_table(&numbers()).unwrap();
    let before = used(&db);
    assert!(with_indexes > before + (1 << 16));
    let mut prepared = db
        .prepare_redefinition(&with_more(&numbers()), RedefinitionWaits::default())
        .unwrap();
    prepared.build(&mut |_, _| {}).unwrap();
    assert_eq!(used(&db), with_indexes);
    // The log is durable up to here.
    db.create_table(&TableDef::new("a/u").column("id", ColumnType::i64()))
        .unwrap();
    db.crash();
    drop(prepared);
    let db = open(dir.path());
    assert_eq!(used(&db), before);
    is_sound(&db);
}

/// TRUNCATE makes the table's indexes as old as its file again; a rename keeps them.
#[test]
fn a_table_with_young_indexes_is_emptied_and_renamed() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    drop(filled(&db));
    db.redefine_table(&with_more(&numbers())).unwrap();
    db.rename_table("a/t", "a/u").unwrap();
    db.rename_table("a/u", "a/t").unwrap();
    is_sound(&db);
    db.truncate_table("a/t").unwrap();
    is_sound(&db);
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    table.insert(&mut trx, &row(1)).unwrap();
    trx.commit().unwrap();
    is_sound(&db);
    let mut trx = snapshot(&db);
    assert_eq!(ids(&mut trx, &table, "by_n").unwrap(), [1]);
}

/// What old views need of rows stays in the history store when an index goes: their long values, too.
#[test]
fn old_views_keep_their_versions_when_an_index_goes() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = filled(&db);
    db.set_history_options(HistoryOptions {
        delay: Duration::ZERO,
        ..HistoryOptions::default()
    })
    .unwrap();
    let mut old = snapshot(&db);
    let change = |id: i64, long: Value| {
        let mut trx = db.begin(Isolation::RepeatableRead);
        let table = db.table("a/t").unwrap();
        let mut values = row(id);
        values[3] = long;
        table.put(&mut trx, &values).unwrap();
        trx.commit().unwrap();
        assert!(db.wait_for_purge(Duration::from_secs(60)));
    };
    change(500, Value::Bytes(vec![1; 30_000]));
    let before = table.def().clone();
    drop(table);
    let mut def = before.clone();
    def.indexes.clear();
    db.redefine_table(&def).unwrap();
    // Purge comes to what was dropped.
    for n in 0..3 {
        change(500, Value::Bytes(vec![n; 30_000]));
        thread::sleep(Duration::from_millis(150));
    }
    let table = db.table("a/t").unwrap();
    let long = read(&mut old, &table, 500, &["long"]).unwrap();
    assert_eq!(long, [row(500)[3].clone()]);
}
