//! Columns that the engine can't fill by itself, in rows that a foreign key changes: computed ones, and the
//! times of a table that keeps its history. Computed ones that come when a table is rebuilt.
//!
//! What could break here: a computed column that says what the row was before; a row of the past that keeps a
//! parent, or is taken for one; history that is lost, or made twice; a deletion of a parent that goes unseen
//! because its row only became history.

#[path = "support/small.rs"]
mod small;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use varve::{
    ColumnType, Cursor, Database, Datum, DatumBuf, Error, ForeignKey, Isolation, KeyMatch,
    LockMode, PreparedRedefinition, RedefinitionWaits, ReferentialAction, Result, RowRef, Table,
    TableDef, Transaction, Value, ValueSource,
};

use ReferentialAction::{Cascade, NoAction, SetNull};

const FOREVER: &[u8] = &[0xff; 4];

/// Computes `2 * parent`, has 7 instead of NULL, and a clock that a test sets.
#[derive(Default)]
struct Source {
    now: AtomicU32,
    asked: AtomicU32,
    /// Rows with NULL.
    replaced: Mutex<Vec<u64>>,
}

impl ValueSource for Source {
    fn statement_time(&self) -> Result<Vec<u8>> {
        Ok(self.now.load(Relaxed).to_be_bytes().to_vec())
    }

    fn computed(&self, table: &str, row: &[Datum<'_>], columns: &[usize]) -> Result<DatumBuf> {
        if table == "a/dated" {
            assert_eq!(columns, [4]);
            let mut out = DatumBuf::new();
            out.push(Some(&[row[2].unwrap(), row[3].unwrap()].concat()));
            return Ok(out);
        }
        assert_eq!((table, columns), ("a/doubles", &[2][..]));
        self.asked.fetch_add(1, Relaxed);
        let parent = row[1].map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap()));
        let mut out = DatumBuf::new();
        out.push(
            parent
                .map(|p| (2 * p).to_le_bytes())
                .as_ref()
                .map(|b| &b[..]),
        );
        Ok(out)
    }

    fn instead_of_null(&self, table: &str, column: usize, n: u64) -> Option<Vec<u8>> {
        assert_eq!((table, column), ("a/doubles", 1));
        if n > 0 {
            self.replaced.lock().unwrap().push(n);
        }
        Some(7i64.to_le_bytes().to_vec())
    }
}

struct Test {
    db: Database,
    source: Arc<Source>,
    _dir: tempfile::TempDir,
}

impl Test {
    fn new() -> Test {
        let dir = tempfile::tempdir().unwrap();
        Test {
            db: Database::open(dir.path(), small::options()).unwrap(),
            source: Arc::default(),
            _dir: dir,
        }
    }

    fn table(&self, def: TableDef) -> Table {
        self.db.create_table(&def).unwrap()
    }

    /// A rebuild that asks the source.
    fn prepare_rebuild(&self, def: &TableDef) -> PreparedRedefinition {
        let waits = RedefinitionWaits::default();
        let mut prepared = self.db.prepare_rebuild(def, waits).unwrap();
        let source: Arc<dyn ValueSource> = self.source.clone();
        prepared.set_value_source(&source).unwrap();
        prepared
    }

    /// A transaction at this time.
    fn at(&self, now: u32) -> Transaction {
        self.source.now.store(now, Relaxed);
        let mut trx = self.db.begin(Isolation::RepeatableRead);
        trx.set_value_source(self.source.clone());
        trx
    }
}

fn put(trx: &mut Transaction, table: &Table, row: &[Value]) -> Result<()> {
    trx.insert(table, &table.def().row(row)?.datums())
}

/// On the row with this primary key, locked exclusively.
fn lock(trx: &mut Transaction, table: &Table, key: &[Value]) -> Cursor {
    let mut cursor = table.cursor(0).unwrap();
    let key = table.def().key(0, key).unwrap();
    assert!(
        cursor
            .seek(trx, &key.datums(), KeyMatch::Exact, LockMode::Exclusive)
            .unwrap()
    );
    cursor
}

fn change(trx: &mut Transaction, table: &Table, key: &[Value], row: &[Value]) -> Result<bool> {
    let cursor = lock(trx, table, key);
    trx.update(table, &cursor, &table.def().row(row)?.datums())
}

fn delete(trx: &mut Transaction, table: &Table, key: &[Value]) -> Result<()> {
    let cursor = lock(trx, table, key);
    trx.delete(table, &cursor)
}

/// All rows as text, times as numbers.
fn rows(trx: &mut Transaction, table: &Table) -> Vec<String> {
    let mut cursor = table.cursor(0).unwrap();
    let mut rows = Vec::new();
    let mut more = cursor.first(trx, LockMode::None).unwrap();
    while more {
        let row = cursor.row().unwrap();
        let shown = |column: usize| match row.value(column).unwrap() {
            Value::Int(n) => n.to_string(),
            Value::Bytes(b) if b == FOREVER => "now".into(),
            Value::Bytes(b) => format!("@{}", u32::from_be_bytes(b.try_into().unwrap())),
            Value::Null => "-".into(),
            other => panic!("{other:?}"),
        };
        let shown: Vec<_> = (0..table.def().columns.len()).map(shown).collect();
        rows.push(shown.join(" "));
        more = cursor.next(trx).unwrap();
    }
    rows
}

fn parents() -> TableDef {
    TableDef::new("a/parents")
        .column("id", ColumnType::i64())
        .primary(&["id"])
}

fn refers(on_delete: ReferentialAction, on_update: ReferentialAction) -> ForeignKey {
    ForeignKey::new("child_parent", &["parent"], "a/parents", &["id"])
        .on_delete(on_delete)
        .on_update(on_update)
}

fn doubles(on_delete: ReferentialAction, on_update: ReferentialAction) -> TableDef {
    TableDef::new("a/doubles")
        .column("id", ColumnType::i64())
        .nullable("parent", ColumnType::i64())
        .nullable("double", ColumnType::i64())
        .primary(&["id"])
        .index("by_parent", &["parent"])
        .index("by_double", &["double"])
        .computed(&["double"])
        .foreign_key(refers(on_delete, on_update))
}

/// A table with history: `id`, `parent`, `since`, `until`.
fn versioned(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .nullable("parent", ColumnType::i64())
        .column("since", ColumnType::Fixed(4))
        .column("until", ColumnType::Fixed(4))
        .primary(&["id", "until"])
        .index("by_parent", &["parent"])
}

fn with_history(def: TableDef, unversioned: &[&str]) -> TableDef {
    def.system_time("since", "until", FOREVER, unversioned)
}

fn time(at: u32) -> Value {
    Value::Bytes(at.to_be_bytes().to_vec())
}

fn now() -> Value {
    Value::Bytes(FOREVER.to_vec())
}

fn living(id: i64, parent: i64, since: u32) -> [Value; 4] {
    [Value::Int(id), Value::Int(parent), time(since), now()]
}

#[test]
fn computed_columns_follow_what_a_foreign_key_changes() {
    let t = Test::new();
    let parents = t.table(parents());
    let doubles = t.table(doubles(SetNull, Cascade));
    let mut trx = t.at(0);
    for id in [1, 2] {
        put(&mut trx, &parents, &[Value::Int(id)]).unwrap();
    }
    for (id, parent) in [(10, 1), (11, 1), (20, 2)] {
        put(
            &mut trx,
            &doubles,
            &[id, parent, 2 * parent].map(Value::Int),
        )
        .unwrap();
    }
    change(&mut trx, &parents, &[Value::Int(1)], &[Value::Int(7)]).unwrap();
    delete(&mut trx, &parents, &[Value::Int(2)]).unwrap();
    assert_eq!(rows(&mut trx, &doubles), ["10 7 14", "11 7 14", "20 - -"]);
    assert_eq!(t.source.asked.load(Relaxed), 3);
    trx.commit().unwrap();
    assert!(t.db.check_table(&doubles).unwrap().errors.is_empty());
}

#[test]
fn a_change_that_nobody_can_compute_is_refused() {
    let t = Test::new();
    let parents = t.table(parents());
    let doubles = t.table(doubles(SetNull, Cascade));
    let mut trx = t.db.begin(Isolation::RepeatableRead);
    put(&mut trx, &parents, &[Value::Int(1)]).unwrap();
    put(&mut trx, &doubles, &[10, 1, 2].map(Value::Int)).unwrap();
    let refused = delete(&mut trx, &parents, &[Value::Int(1)]).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused:?}");
    assert!(refused.to_string().contains("a/doubles"), "{refused}");
    assert_eq!(rows(&mut trx, &doubles), ["10 1 2"]);
    assert_eq!(rows(&mut trx, &parents), ["1"]);
}

/// HIST-1.
#[test]
fn rows_of_the_past_keep_no_parent() {
    let t = Test::new();
    let parents = t.table(parents());
    let children =
        t.table(with_history(versioned("a/c"), &[]).foreign_key(refers(NoAction, NoAction)));
    let mut trx = t.at(5);
    put(&mut trx, &parents, &[Value::Int(1)]).unwrap();
    put(&mut trx, &children, &living(10, 1, 5)).unwrap();
    trx.commit().unwrap();
    let mut trx = t.at(6);
    let refused = delete(&mut trx, &parents, &[Value::Int(1)]).unwrap_err();
    assert!(matches!(refused, Error::RowIsReferenced(_)), "{refused:?}");
    let past = [Value::Int(10), Value::Int(1), time(5), time(6)];
    change(&mut trx, &children, &[Value::Int(10), now()], &past).unwrap();
    delete(&mut trx, &parents, &[Value::Int(1)]).unwrap();
    // Nor does a row of the past need one when it is written.
    let older = [Value::Int(10), Value::Int(1), time(2), time(3)];
    put(&mut trx, &children, &older).unwrap();
    let refused = put(&mut trx, &children, &living(11, 1, 6)).unwrap_err();
    assert!(matches!(refused, Error::NoReferencedRow(_)), "{refused:?}");
    assert_eq!(rows(&mut trx, &children), ["10 1 @2 @3", "10 1 @5 @6"]);
    trx.commit().unwrap();
    assert_eq!(t.db.check_table(&children).unwrap().notes, [""; 0]);
}

#[test]
fn a_parent_of_the_past_is_none() {
    let t = Test::new();
    let parents = with_history(versioned("a/parents"), &[]);
    let parents = t.table(parents);
    let children = TableDef::new("a/children")
        .column("id", ColumnType::i64())
        .nullable("parent", ColumnType::i64())
        .primary(&["id"])
        .index("by_parent", &["parent"])
        .foreign_key(refers(Cascade, NoAction));
    let children = t.table(children);
    let mut trx = t.at(5);
    put(
        &mut trx,
        &parents,
        &[Value::Int(1), Value::Null, time(1), time(2)],
    )
    .unwrap();
    let child = |trx: &mut Transaction, id| put(trx, &children, &[id, 1].map(Value::Int));
    assert!(matches!(
        child(&mut trx, 10),
        Err(Error::NoReferencedRow(_))
    ));
    put(
        &mut trx,
        &parents,
        &[Value::Int(1), Value::Null, time(5), now()],
    )
    .unwrap();
    child(&mut trx, 10).unwrap();
    // To remove history concerns nobody.
    delete(&mut trx, &parents, &[Value::Int(1), time(2)]).unwrap();
    assert_eq!(rows(&mut trx, &children), ["10 1"]);
    // To become history is to be deleted.
    let past = [Value::Int(1), Value::Null, time(5), time(6)];
    change(&mut trx, &parents, &[Value::Int(1), now()], &past).unwrap();
    assert_eq!(rows(&mut trx, &children), [""; 0]);
    assert_eq!(rows(&mut trx, &parents), ["1 - @5 @6"]);
}

#[test]
fn children_leave_history_behind() {
    let t = Test::new();
    let parents = t.table(parents());
    let children =
        t.table(with_history(versioned("a/c"), &[]).foreign_key(refers(Cascade, Cascade)));
    let mut trx = t.at(5);
    for id in [1, 2] {
        put(&mut trx, &parents, &[Value::Int(id)]).unwrap();
        put(&mut trx, &children, &living(10 * id, id, 5)).unwrap();
    }
    trx.commit().unwrap();
    let mut trx = t.at(6);
    change(&mut trx, &parents, &[Value::Int(1)], &[Value::Int(3)]).unwrap();
    trx.commit().unwrap();
    let mut trx = t.at(7);
    delete(&mut trx, &parents, &[Value::Int(3)]).unwrap();
    delete(&mut trx, &parents, &[Value::Int(2)]).unwrap();
    assert_eq!(
        rows(&mut trx, &children),
        ["10 1 @5 @6", "10 3 @6 @7", "20 2 @5 @7"]
    );
    trx.commit().unwrap();
    assert!(t.db.check_table(&children).unwrap().errors.is_empty());
}

#[test]
fn what_has_no_history_leaves_none() {
    let t = Test::new();
    let parents = t.table(parents());
    let def = with_history(versioned("a/c"), &["parent"]).foreign_key(refers(SetNull, Cascade));
    let children = t.table(def);
    let mut trx = t.at(5);
    put(&mut trx, &parents, &[Value::Int(1)]).unwrap();
    put(&mut trx, &children, &living(10, 1, 5)).unwrap();
    t.source.now.store(6, Relaxed);
    change(&mut trx, &parents, &[Value::Int(1)], &[Value::Int(3)]).unwrap();
    assert_eq!(rows(&mut trx, &children), ["10 3 @5 now"]);
    delete(&mut trx, &parents, &[Value::Int(3)]).unwrap();
    assert_eq!(rows(&mut trx, &children), ["10 - @5 now"]);
}

#[test]
fn history_of_one_moment_is_kept_once() {
    let t = Test::new();
    let parents = t.table(parents());
    let children =
        t.table(with_history(versioned("a/c"), &[]).foreign_key(refers(Cascade, Cascade)));
    let mut trx = t.at(5);
    put(&mut trx, &parents, &[Value::Int(1)]).unwrap();
    put(&mut trx, &children, &living(10, 1, 5)).unwrap();
    trx.commit().unwrap();
    let mut trx = t.at(6);
    change(&mut trx, &parents, &[Value::Int(1)], &[Value::Int(2)]).unwrap();
    change(&mut trx, &parents, &[Value::Int(2)], &[Value::Int(3)]).unwrap();
    assert_eq!(rows(&mut trx, &children), ["10 1 @5 @6", "10 3 @6 now"]);
    // A statement that makes history of the row itself is told that there is some.
    let past = [Value::Int(10), Value::Int(3), time(6), time(6)];
    let refused = change(&mut trx, &children, &[Value::Int(10), now()], &past).unwrap_err();
    assert!(
        matches!(refused, Error::ForeignDuplicateKey { .. }),
        "{refused:?}"
    );
    delete(&mut trx, &parents, &[Value::Int(3)]).unwrap();
    assert_eq!(rows(&mut trx, &children), ["10 1 @5 @6"]);
}

#[test]
fn definitions_say_what_is_computed_and_what_is_history() {
    let t = Test::new();
    t.table(parents());
    let def = with_history(versioned("a/c"), &["parent"]).computed(&["id"]);
    let path = t._dir.path().to_path_buf();
    t.table(def.clone());
    t.db.close().unwrap();
    let db = Database::open(&path, small::options()).unwrap();
    let table = db.table("a/c").unwrap();
    assert_eq!(table.def().system_time, def.system_time);
    assert_eq!(table.def().computed, [0]);
    let refused = |def: TableDef| def.validate().unwrap_err().to_string();
    assert!(refused(versioned("a/d").computed(&["no"])).contains("column no,"));
    let one = versioned("a/d").system_time("since", "since", FOREVER, &[]);
    assert!(refused(one).contains("since"));
    let short = versioned("a/d").system_time("since", "until", b"x", &[]);
    assert!(refused(short).contains("1 bytes"));
    let number = versioned("a/d").system_time("id", "until", FOREVER, &[]);
    assert!(refused(number).contains("times of history"));
}

/// A column may be computed from the times of history: these are set first.
#[test]
fn columns_that_are_made_of_times_are_right_in_history() {
    let t = Test::new();
    let parents = t.table(parents());
    let dated = versioned("a/dated")
        .column("both", ColumnType::Fixed(8))
        .index("by_both", &["both"])
        .computed(&["both"])
        .foreign_key(refers(Cascade, Cascade));
    let dated = t.table(with_history(dated, &[]));
    let mut trx = t.at(5);
    put(&mut trx, &parents, &[Value::Int(1)]).unwrap();
    let mut row = living(10, 1, 5).to_vec();
    row.push(Value::Bytes([5u32.to_be_bytes(), [0xff; 4]].concat()));
    put(&mut trx, &dated, &row).unwrap();
    trx.commit().unwrap();
    let mut trx = t.at(6);
    change(&mut trx, &parents, &[Value::Int(1)], &[Value::Int(2)]).unwrap();
    trx.commit().unwrap();
    let mut trx = t.at(7);
    delete(&mut trx, &parents, &[Value::Int(2)]).unwrap();
    let mut cursor = dated.cursor(2).unwrap();
    for (since, until) in [(5u32, 6u32), (6, 7)] {
        let key = [since.to_be_bytes(), until.to_be_bytes()].concat();
        let key = dated.def().key(2, &[Value::Bytes(key)]).unwrap();
        let found = cursor.seek(&mut trx, &key.datums(), KeyMatch::Exact, LockMode::None);
        assert!(found.unwrap(), "{since} to {until}");
    }
}

/// A row of the past, of the parent 1, is refused when it comes back under this number.
fn comes_back_without_a_parent(t: &Test, table: &Table, id: i64, becomes: i64) {
    let mut trx = t.at(5);
    let past = [Value::Int(id), Value::Int(1), time(2), time(3)];
    put(&mut trx, table, &past).unwrap();
    let mut cursor = table.cursor(0).unwrap();
    assert!(cursor.first(&mut trx, LockMode::Exclusive).unwrap());
    let row = table.def().row(&living(becomes, 1, 2)).unwrap();
    let refused = trx.update(table, &cursor, &row.datums()).unwrap_err();
    assert!(matches!(refused, Error::NoReferencedRow(_)), "{refused:?}");
}

/// Rows of the past that come back need their parents again (HIST-1), whichever index says when they ended.
#[test]
fn a_row_that_comes_back_needs_its_parent() {
    let t = Test::new();
    t.table(parents());
    let mut def = with_history(versioned("a/c"), &[]).foreign_key(refers(NoAction, NoAction));
    def.primary.parts.clear();
    let children = t.table(def);
    comes_back_without_a_parent(&t, &children, 10, 10);
}

/// Nor is it the parent of what it becomes, by a key that it had in the past.
#[test]
fn a_row_that_comes_back_was_not_its_own_parent() {
    let t = Test::new();
    let to_itself = ForeignKey::new("up", &["parent"], "a/c", &["id"]);
    let mut def = with_history(versioned("a/c"), &[]).index("by_id", &["id"]);
    def = def.foreign_key(to_itself);
    def.primary.parts.clear();
    let table = t.table(def);
    comes_back_without_a_parent(&t, &table, 1, 2);
}

/// Does not have the column yet that is computed.
fn undoubled() -> TableDef {
    TableDef::new("a/doubles")
        .column("id", ColumnType::i64())
        .nullable("parent", ColumnType::i64())
        .primary(&["id"])
}

/// REBUILD-1. Rows that others change meanwhile are asked for, too, and what they were: two of them exchange
/// what is unique.
#[test]
fn a_rebuild_asks_for_computed_columns_that_come() {
    let t = Test::new();
    let table = t.table(undoubled());
    let mut trx = t.at(0);
    for id in 0..100 {
        put(&mut trx, &table, &[id, 1000 + id].map(Value::Int)).unwrap();
    }
    trx.commit().unwrap();
    let def = undoubled()
        .nullable("double", ColumnType::i64())
        .unique("by_double", &["double"])
        .computed(&["double"]);
    let refused = t.db.redefine_table(&def).unwrap_err().to_string();
    assert!(refused.contains("computed"), "{refused}");
    let nobody = t.db.rebuild_table(&def).unwrap_err().to_string();
    assert!(nobody.contains("nobody to ask"), "{nobody}");

    let tell = &mut |_: &str, _: &RowRef<'_>| panic!("there are no duplicates");
    let mut prepared = t.prepare_rebuild(&def);
    prepared.build(tell).unwrap();
    assert_eq!(t.source.asked.load(Relaxed), 100);
    let mut trx = t.at(0);
    for (id, parent) in [(7, 5000), (8, 1007), (7, 1008)] {
        let row = [id, parent].map(Value::Int);
        change(&mut trx, &table, &[Value::Int(id)], &row).unwrap();
    }
    delete(&mut trx, &table, &[Value::Int(9)]).unwrap();
    put(&mut trx, &table, &[200, 1009].map(Value::Int)).unwrap();
    trx.commit().unwrap();
    prepared.commit(tell).unwrap();

    let table = t.db.table("a/doubles").unwrap();
    let report = t.db.check_table(&table).unwrap();
    assert_eq!(report.errors, [""; 0]);
    let found = rows(&mut t.at(0), &table);
    assert_eq!(found.len(), 100);
    assert_eq!(found[6..9], ["6 1006 2012", "7 1008 2016", "8 1007 2014"]);
    assert_eq!(found[99], "200 1009 2018");
}

/// What NULL becomes is told of once, and what was computed of it is computed anew.
#[test]
fn a_rebuild_asks_what_null_becomes() {
    let t = Test::new();
    let table = t.table(
        undoubled()
            .nullable("double", ColumnType::i64())
            .index("by_double", &["double"])
            .computed(&["double"]),
    );
    let mut trx = t.at(0);
    let null = |id| [Value::Int(id), Value::Null, Value::Null];
    put(&mut trx, &table, &null(1)).unwrap();
    put(&mut trx, &table, &[2, 1, 2].map(Value::Int)).unwrap();
    put(&mut trx, &table, &null(3)).unwrap();
    trx.commit().unwrap();
    let mut def = table.def().clone();
    def.columns[1].nullable = false;
    let refused = t.db.rebuild_table(&def).unwrap_err();
    assert!(
        matches!(refused, Error::NullValue { row: 1, .. }),
        "{refused}"
    );

    let tell = &mut |_: &str, _: &RowRef<'_>| panic!("there are no duplicates");
    let mut prepared = t.prepare_rebuild(&def);
    prepared.build(tell).unwrap();
    assert_eq!(*t.source.replaced.lock().unwrap(), [1, 3]);
    assert_eq!(t.source.asked.load(Relaxed), 2);
    let mut trx = t.at(0);
    change(
        &mut trx,
        &table,
        &[Value::Int(1)],
        &[1, 4, 8].map(Value::Int),
    )
    .unwrap();
    change(&mut trx, &table, &[Value::Int(2)], &null(2)).unwrap();
    put(&mut trx, &table, &null(4)).unwrap();
    trx.commit().unwrap();
    prepared.commit(tell).unwrap();
    assert_eq!(*t.source.replaced.lock().unwrap(), [1, 3, 2, 3]);

    let table = t.db.table("a/doubles").unwrap();
    let report = t.db.check_table(&table).unwrap();
    assert_eq!(report.errors, [""; 0]);
    let found = rows(&mut t.at(0), &table);
    assert_eq!(found, ["1 4 8", "2 7 14", "3 7 14", "4 7 14"]);
}
