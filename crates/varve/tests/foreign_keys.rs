//! Foreign keys as programs meet them: a child has a parent, a parent that goes takes its children along or
//! stays, and all of a change happens or nothing.
//!
//! What could break here: a child without a parent, because a check was skipped, came too early, or missed
//! what another transaction had done; a change of a child that is left when its parent's is taken back; a
//! check that waits where nobody is in its way, or does not where somebody is.

#[path = "support/small.rs"]
mod small;

use std::time::Duration;

#[cfg(feature = "sabotage")]
use varve::internals::base::{Sabotage, StopPoint};
use varve::{
    ColumnType, ConstraintPrefix, Cursor, Database, Error, ForeignKey, ForeignKeyChecks, Isolation,
    KeyMatch, LockMode, Options, ReferentialAction, Result, Table, TableDef, Transaction, Value,
};

use ReferentialAction::{Cascade, NoAction, Restrict, SetNull};

const LEVELS: [Isolation; 4] = [
    Isolation::ReadUncommitted,
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Serializable,
];

fn parents() -> TableDef {
    TableDef::new("a/parents")
        .column("id", ColumnType::i64())
        .nullable("code", ColumnType::text(20))
        .primary(&["id"])
        .index("by_code", &["code"])
}

fn children(on_delete: ReferentialAction, on_update: ReferentialAction) -> TableDef {
    TableDef::new("a/children")
        .column("id", ColumnType::i64())
        .nullable("parent", ColumnType::i64())
        .primary(&["id"])
        .index("by_parent", &["parent"])
        .foreign_key(
            ForeignKey::new("child_parent", &["parent"], "a/parents", &["id"])
                .on_delete(on_delete)
                .on_update(on_update),
        )
}

struct Family {
    db: Database,
    parents: Table,
    children: Table,
    _dir: tempfile::TempDir,
}

/// Parents 1 to 3, children 10 of 1, 20 and 21 of 2, 90 of nobody.
fn family(on_delete: ReferentialAction, on_update: ReferentialAction) -> Family {
    family_with(on_delete, on_update, small::options())
}

fn family_with(
    on_delete: ReferentialAction,
    on_update: ReferentialAction,
    options: Options,
) -> Family {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options).unwrap();
    let parents = db.create_table(&parents()).unwrap();
    let children = db.create_table(&children(on_delete, on_update)).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 1..=3 {
        put(&mut trx, &parents, &[Value::Int(id), Value::Null]).unwrap();
    }
    for (id, parent) in [(10, Some(1)), (20, Some(2)), (21, Some(2)), (90, None)] {
        child(&mut trx, &children, id, parent).unwrap();
    }
    trx.commit().unwrap();
    Family {
        db,
        parents,
        children,
        _dir: dir,
    }
}

impl Family {
    fn begin(&self, isolation: Isolation) -> Transaction {
        let mut trx = self.db.begin(isolation);
        trx.set_lock_wait_timeout(Duration::ZERO);
        trx
    }

    /// The children with their parents, as last committed.
    fn children(&self) -> Vec<(i64, Option<i64>)> {
        let mut trx = self.begin(Isolation::ReadCommitted);
        rows(&mut trx, &self.children)
    }
}

fn put(trx: &mut Transaction, table: &Table, row: &[Value]) -> Result<()> {
    trx.insert(table, &table.def().row(row)?.datums())
}

fn int(value: Option<i64>) -> Value {
    value.map_or(Value::Null, Value::Int)
}

fn child(trx: &mut Transaction, table: &Table, id: i64, parent: Option<i64>) -> Result<()> {
    put(trx, table, &[Value::Int(id), int(parent)])
}

fn rows(trx: &mut Transaction, table: &Table) -> Vec<(i64, Option<i64>)> {
    let mut cursor = table.cursor(0).unwrap();
    let mut rows = Vec::new();
    let mut more = cursor.first(trx, LockMode::None).unwrap();
    while more {
        let row = cursor.row().unwrap();
        let number = |column| match row.value(column).unwrap() {
            Value::Int(n) => Some(n),
            _ => None,
        };
        rows.push((number(0).unwrap(), number(1)));
        more = cursor.next(trx).unwrap();
    }
    rows
}

/// A cursor on this row, which is there and is now locked.
fn lock(trx: &mut Transaction, table: &Table, id: i64) -> Result<Cursor> {
    let mut cursor = table.cursor(0)?;
    let key = table.def().key(0, &[Value::Int(id)])?;
    assert!(cursor.seek(trx, &key.datums(), KeyMatch::Exact, LockMode::Exclusive)?);
    Ok(cursor)
}

fn delete(trx: &mut Transaction, table: &Table, id: i64) -> Result<()> {
    let cursor = lock(trx, table, id)?;
    trx.delete(table, &cursor)
}

/// Gives the row another id.
fn renumber(trx: &mut Transaction, table: &Table, id: i64, to: i64) -> Result<bool> {
    let cursor = lock(trx, table, id)?;
    let row = table.def().row(&[Value::Int(to), Value::Null])?;
    trx.update(table, &cursor, &row.datums())
}

#[test]
fn a_child_needs_a_parent() {
    let f = family(NoAction, NoAction);
    for level in LEVELS {
        let mut trx = f.begin(level);
        let refused = child(&mut trx, &f.children, 40, Some(4)).unwrap_err();
        let Error::NoReferencedRow(names) = &refused else {
            panic!("{refused:?}");
        };
        assert_eq!(names.constraint, "child_parent");
        assert_eq!((&*names.table, &*names.parent), ("a/children", "a/parents"));
        child(&mut trx, &f.children, 40, None).unwrap();
        put(&mut trx, &f.parents, &[Value::Int(4), Value::Null]).unwrap();
        child(&mut trx, &f.children, 41, Some(4)).unwrap();
        trx.rollback().unwrap();
    }
    assert_eq!(
        f.children(),
        [(10, Some(1)), (20, Some(2)), (21, Some(2)), (90, None)]
    );
}

#[test]
fn a_parent_with_children_stays() {
    for (on_delete, on_update) in [(NoAction, NoAction), (Restrict, Restrict)] {
        let f = family(on_delete, on_update);
        for level in LEVELS {
            let mut trx = f.begin(level);
            let refused = [
                delete(&mut trx, &f.parents, 1),
                renumber(&mut trx, &f.parents, 1, 7).map(drop),
            ];
            for refused in refused {
                assert!(
                    matches!(refused, Err(Error::RowIsReferenced(_))),
                    "{refused:?}"
                );
            }
            delete(&mut trx, &f.parents, 3).unwrap();
            delete(&mut trx, &f.children, 10).unwrap();
            delete(&mut trx, &f.parents, 1).unwrap();
            trx.rollback().unwrap();
        }
        assert_eq!(f.children().len(), 4);
    }
}

#[test]
fn children_follow_their_parent() {
    let f = family(Cascade, Cascade);
    let mut trx = f.begin(Isolation::RepeatableRead);
    renumber(&mut trx, &f.parents, 2, 8).unwrap();
    delete(&mut trx, &f.parents, 1).unwrap();
    trx.commit().unwrap();
    assert_eq!(f.children(), [(20, Some(8)), (21, Some(8)), (90, None)]);

    let f = family(SetNull, SetNull);
    let mut trx = f.begin(Isolation::RepeatableRead);
    renumber(&mut trx, &f.parents, 2, 8).unwrap();
    delete(&mut trx, &f.parents, 1).unwrap();
    trx.commit().unwrap();
    assert_eq!(
        f.children(),
        [(10, None), (20, None), (21, None), (90, None)]
    );
}

/// A row that can't be what its parent becomes keeps it from that.
#[test]
fn a_child_that_cannot_follow_keeps_its_parent() {
    let dir = tempfile::tempdir().unwrap();
    let (db, parents) = small::lazy_with(&dir, &parents());
    let def = TableDef::new("a/children")
        .column("code", ColumnType::text(5))
        .column("other", ColumnType::i64())
        .primary(&["code"])
        .unique("by_other", &["other", "code"])
        .foreign_key(ForeignKey::new("x", &["code"], "a/parents", &["code"]).on_update(Cascade));
    let children = db.create_table(&def).unwrap();
    let text = |text: &str| Value::Text(text.into());
    let mut trx = db.begin(Isolation::RepeatableRead);
    for (id, code) in [(1, "one"), (2, "two")] {
        put(&mut trx, &parents, &[Value::Int(id), text(code)]).unwrap();
        put(&mut trx, &children, &[text(code), Value::Int(1)]).unwrap();
    }
    let mut change = |to: Value| {
        let cursor = lock(&mut trx, &parents, 1).unwrap();
        let row = parents.def().row(&[Value::Int(1), to]).unwrap();
        trx.update(&parents, &cursor, &row.datums()).map(drop)
    };
    let refused = change(text("longer"));
    assert!(
        matches!(refused, Err(Error::RowIsReferenced(_))),
        "{refused:?}"
    );
    let refused = change(Value::Null);
    assert!(
        matches!(refused, Err(Error::RowIsReferenced(_))),
        "{refused:?}"
    );
    let refused = change(text("two"));
    let Err(Error::ForeignDuplicateKey { table, index }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((&*table, &*index), ("a/children", "PRIMARY"));
    change(text("uno")).unwrap();
    trx.commit().unwrap();
}

/// What the other side can't hold has no parent and no children.
#[test]
fn the_two_sides_may_have_different_lengths() {
    let dir = tempfile::tempdir().unwrap();
    for (name, long, short) in [
        ("text", ColumnType::text(300), ColumnType::text(5)),
        ("bytes", ColumnType::Bytes(300), ColumnType::Fixed(5)),
    ] {
        let db = Database::open(dir.path().join(name), small::options()).unwrap();
        let value = |text: &str| match name {
            "text" => Value::Text(text.into()),
            _ => Value::Bytes(text.into()),
        };
        let table =
            |name: &str, key: ColumnType| TableDef::new(name).column("key", key).primary(&["key"]);
        let to = |parent: &str| {
            ForeignKey::new(format!("to_{}", &parent[2..]), &["key"], parent, &["key"])
                .on_delete(Cascade)
        };
        let tables = [
            table("a/long", long),
            table("a/short", short),
            table("a/short_of_long", short).foreign_key(to("a/long")),
            table("a/long_of_short", long).foreign_key(to("a/short")),
        ];
        let [long, short, short_of_long, long_of_short] =
            tables.map(|def| db.create_table(&def).unwrap());
        let mut trx = db.begin(Isolation::RepeatableRead);
        for text in ["12345", "123456"] {
            put(&mut trx, &long, &[value(text)]).unwrap();
        }
        put(&mut trx, &short, &[value("12345")]).unwrap();
        put(&mut trx, &short_of_long, &[value("12345")]).unwrap();
        put(&mut trx, &long_of_short, &[value("12345")]).unwrap();
        let refused = put(&mut trx, &long_of_short, &[value("123456")]);
        assert!(
            matches!(refused, Err(Error::NoReferencedRow(_))),
            "{refused:?}"
        );
        for text in ["123456", "12345"] {
            let mut cursor = long.cursor(0).unwrap();
            let key = long.def().key(0, &[value(text)]).unwrap();
            assert!(
                cursor
                    .seek(
                        &mut trx,
                        &key.datums(),
                        KeyMatch::Exact,
                        LockMode::Exclusive
                    )
                    .unwrap()
            );
            trx.delete(&long, &cursor).unwrap();
        }
        let mut left = short_of_long.cursor(0).unwrap();
        assert!(!left.first(&mut trx, LockMode::None).unwrap());
        trx.commit().unwrap();
        db.close().unwrap();
    }
}

/// A tree of rows in one table goes as a whole, and comes back as a whole. Too deep a one does not go.
#[test]
fn a_tree_goes_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let def = TableDef::new("a/tree")
        .column("id", ColumnType::i64())
        .nullable("parent", ColumnType::i64())
        .primary(&["id"])
        .index("by_parent", &["parent"])
        .foreign_key(ForeignKey::new("up", &["parent"], "a/tree", &["id"]).on_delete(Cascade));
    let (db, tree) = small::lazy_with(&dir, &def);
    let mut trx = db.begin(Isolation::RepeatableRead);
    // A row that is its own parent, and a line of 16.
    child(&mut trx, &tree, 100, Some(100)).unwrap();
    child(&mut trx, &tree, 1, None).unwrap();
    (2..=16).for_each(|id| child(&mut trx, &tree, id, Some(id - 1)).unwrap());
    let before = rows(&mut trx, &tree);
    trx.commit().unwrap();

    let mut trx = db.begin(Isolation::RepeatableRead);
    delete(&mut trx, &tree, 1).unwrap();
    delete(&mut trx, &tree, 100).unwrap();
    assert_eq!(rows(&mut trx, &tree), []);
    trx.rollback().unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    assert_eq!(rows(&mut trx, &tree), before);
    child(&mut trx, &tree, 17, Some(16)).unwrap();
    let refused = delete(&mut trx, &tree, 1);
    assert!(
        matches!(refused, Err(Error::CascadeTooDeep(_))),
        "{refused:?}"
    );
    assert_eq!(rows(&mut trx, &tree).len(), before.len() + 1);
    trx.rollback().unwrap();
    assert!(db.check_table(&tree).unwrap().errors.is_empty());
}

/// FK-3: of a transaction that inserts a child and one that deletes its parent the second one waits. `false`:
/// it did not.
fn a_child_and_the_end_of_its_parent_wait(f: &Family, level: Isolation) -> bool {
    let mut a = f.begin(level);
    child(&mut a, &f.children, 30, Some(3)).unwrap();
    let mut b = f.begin(level);
    let has_to_wait = |what: Result<()>| matches!(what, Err(Error::LockWaitTimeout));
    let first = has_to_wait(delete(&mut b, &f.parents, 3));
    a.rollback().unwrap();
    if first {
        delete(&mut b, &f.parents, 3).unwrap();
    }
    let mut a = f.begin(level);
    let then = has_to_wait(child(&mut a, &f.children, 30, Some(3)));
    b.rollback().unwrap();
    if then {
        child(&mut a, &f.children, 30, Some(3)).unwrap();
    }
    a.rollback().unwrap();
    first && then
}

#[test]
fn a_child_and_the_end_of_its_parent_meet() {
    let f = family(NoAction, NoAction);
    for level in LEVELS {
        assert!(
            a_child_and_the_end_of_its_parent_wait(&f, level),
            "{level:?}"
        );
    }
}

/// The test above notices a lock that is not taken.
#[cfg(feature = "sabotage")]
#[test]
fn a_parent_that_is_not_locked_is_noticed() {
    let options = Options {
        sabotage: Some(Sabotage::ParentNotLocked),
        ..small::options()
    };
    let f = family_with(NoAction, NoAction, options);
    assert!(!a_child_and_the_end_of_its_parent_wait(
        &f,
        Isolation::ReadCommitted
    ));
}

#[test]
fn without_checks_everything_goes() {
    let f = family(Cascade, Cascade);
    let mut trx = f.begin(Isolation::RepeatableRead);
    trx.set_foreign_key_checks(false);
    child(&mut trx, &f.children, 40, Some(4)).unwrap();
    delete(&mut trx, &f.parents, 1).unwrap();
    trx.commit().unwrap();
    let orphans = [
        (10, Some(1)),
        (20, Some(2)),
        (21, Some(2)),
        (40, Some(4)),
        (90, None),
    ];
    assert_eq!(f.children(), orphans);
    let report = f.db.check_table(&f.children).unwrap();
    assert!(report.errors.is_empty(), "{report:?}");
    assert_eq!(report.notes.len(), 1, "{report:?}");
    assert!(
        report.notes[0].contains("2 row(s) have no parent in table a/parents"),
        "{report:?}"
    );
}

#[test]
fn definitions_come_back() {
    let f = family(Cascade, SetNull);
    let def = f.children.def().clone();
    let dir = f._dir;
    f.db.close().unwrap();
    drop((f.parents, f.children));
    let db = Database::open(dir.path(), small::options()).unwrap();
    let children = db.table("a/children").unwrap();
    assert_eq!(children.def().foreign_keys, def.foreign_keys);
    let reference = &children.foreign_keys()[0];
    assert_eq!(reference.parent.as_ref().unwrap().index, "PRIMARY");
    let parents = db.table("a/parents").unwrap();
    assert!(parents.is_referenced() && !children.is_referenced());
    assert_eq!(parents.referencing()[0].child, "a/children");
    let mut trx = db.begin(Isolation::RepeatableRead);
    let refused = child(&mut trx, &children, 40, Some(4));
    assert!(
        matches!(refused, Err(Error::NoReferencedRow(_))),
        "{refused:?}"
    );
}

/// FK-1, and what a parent must be.
#[test]
fn a_foreign_key_that_cannot_be_is_refused_by_name() {
    let f = family(NoAction, NoAction);
    let base = || {
        TableDef::new("a/other")
            .column("id", ColumnType::i64())
            .column("parent", ColumnType::i64())
            .column("small", ColumnType::i32())
            .primary(&["id"])
            .index("by_parent", &["parent"])
            .index("by_small", &["small"])
    };
    let key =
        |column: &str, parent: &str, its: &str| ForeignKey::new("x", &[column], parent, &[its]);
    let cases = [
        (key("id2", "a/parents", "id"), "id2"),
        (key("parent", "a/nobody", "id"), "a/nobody"),
        (key("parent", "a/parents", "id2"), "id2"),
        (key("small", "a/parents", "id"), "small"),
        (
            key("parent", "a/parents", "id").on_delete(SetNull),
            "takes no NULL",
        ),
        (
            ForeignKey::new("x", &["parent", "small"], "a/parents", &["id"]),
            "2 columns",
        ),
    ];
    for (key, what) in cases {
        let refused = f.db.create_table(&base().foreign_key(key)).err();
        let words = refused.map(|e| e.to_string()).unwrap_or_default();
        assert!(words.contains(what), "{words:?} does not say {what}");
    }
    f.db.create_table(&base().foreign_key(key("parent", "a/parents", "id")))
        .unwrap();
}

/// FK-2: a parent stays while others refer to it, and is known under its new name.
#[test]
fn parents_stay_and_keep_their_children() {
    let f = family(Cascade, Cascade);
    let referenced = [
        f.db.drop_table("a/parents"),
        f.db.truncate_table("a/parents"),
    ];
    for refused in referenced {
        assert!(
            matches!(refused, Err(Error::TableIsReferenced(_))),
            "{refused:?}"
        );
    }
    let mut twice = children(NoAction, NoAction);
    twice.name = "a/twins".into();
    let refused = f.db.create_table(&twice).err();
    assert!(
        matches!(refused, Some(Error::ConstraintExists(_))),
        "{refused:?}"
    );

    let mut open = f.begin(Isolation::RepeatableRead);
    child(&mut open, &f.children, 40, None).unwrap();
    f.db.rename_table("a/parents", "b/elders").unwrap();
    // The children's handles stay, also in a transaction that uses them.
    child(&mut open, &f.children, 41, Some(3)).unwrap();
    let refused = child(&mut open, &f.children, 42, Some(4)).unwrap_err();
    assert!(refused.to_string().contains("b/elders"), "{refused}");
    open.rollback().unwrap();
    let check = |db: &Database| {
        let (elders, children) = (
            db.table("b/elders").unwrap(),
            db.table("a/children").unwrap(),
        );
        assert_eq!(children.foreign_keys()[0].key.parent, "b/elders");
        let mut trx = db.begin(Isolation::RepeatableRead);
        let refused = child(&mut trx, &children, 40, Some(4));
        assert!(
            matches!(refused, Err(Error::NoReferencedRow(_))),
            "{refused:?}"
        );
        delete(&mut trx, &elders, 2).unwrap();
        assert_eq!(rows(&mut trx, &children), [(10, Some(1)), (90, None)]);
        trx.rollback().unwrap();
    };
    check(&f.db);
    let dir = f._dir;
    f.db.close().unwrap();
    drop((f.parents, f.children));
    let db = Database::open(dir.path(), small::options()).unwrap();
    check(&db);

    // It may go and come back, if it fits.
    db.drop_table_with("b/elders", ForeignKeyChecks::Off)
        .unwrap();
    let children = db.table("a/children").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let refused = child(&mut trx, &children, 40, Some(1));
    assert!(
        matches!(refused, Err(Error::NoReferencedRow(_))),
        "{refused:?}"
    );
    child(&mut trx, &children, 41, None).unwrap();
    trx.rollback().unwrap();
    let other = TableDef::new("b/elders")
        .column("id", ColumnType::i32())
        .primary(&["id"]);
    let refused = db.create_table(&other).err();
    assert!(
        matches!(refused, Some(Error::BadForeignKey(_))),
        "{refused:?}"
    );
    let mut fits = parents();
    fits.name = "b/elders".into();
    let elders = db.create_table(&fits).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    put(&mut trx, &elders, &[Value::Int(4), Value::Null]).unwrap();
    child(&mut trx, &children, 40, Some(4)).unwrap();
    delete(&mut trx, &elders, 4).unwrap();
    assert_eq!(rows(&mut trx, &children).len(), 4);
    trx.commit().unwrap();
}

/// FK-4: a parent is not dropped while a transaction that has a new child of it is open, whoever keeps the
/// tables of its statements.
#[test]
fn a_parent_is_not_dropped_under_a_new_child() {
    let f = family(NoAction, NoAction);
    let mut trx = f.begin(Isolation::ReadCommitted);
    trx.trust_metadata_locks();
    child(&mut trx, &f.children, 30, Some(3)).unwrap();
    std::thread::scope(|s| {
        let dropped = s.spawn(|| f.db.drop_table_with("a/parents", ForeignKeyChecks::Off));
        while !f.db.status().contains(&("row_lock_current_waits", 1)) {
            assert!(!dropped.is_finished(), "{:?}", dropped.join());
            std::thread::yield_now();
        }
        trx.commit().unwrap();
        dropped.join().unwrap().unwrap();
    });
    assert_eq!(f.children().len(), 5);
}

/// A child is known to its parent under its new name, and may have one like any table.
#[test]
fn a_child_can_be_renamed() {
    let f = family(Cascade, Cascade);
    f.db.rename_table("a/children", "a/kids").unwrap();
    f.db.rename_table("a/kids", "b/kids").unwrap();
    let kids = f.db.table("b/kids").unwrap();
    let mut trx = f.begin(Isolation::RepeatableRead);
    let refused = child(&mut trx, &kids, 40, Some(4));
    assert!(
        matches!(refused, Err(Error::NoReferencedRow(_))),
        "{refused:?}"
    );
    delete(&mut trx, &f.parents, 2).unwrap();
    assert_eq!(rows(&mut trx, &kids), [(10, Some(1)), (90, None)]);
    trx.commit().unwrap();
    // The constraint's name is taken there now, and free where the table was.
    let mut twins = children(NoAction, NoAction);
    twins.name = "b/twins".into();
    assert!(f.db.create_table(&twins).is_err());
    twins.name = "a/twins".into();
    f.db.create_table(&twins).unwrap();
}

/// FK-2: who deletes a parent while one of its children is renamed, after the locks on it are free, finds
/// the children under the new name.
#[cfg(feature = "sabotage")]
#[test]
fn a_child_that_is_being_renamed_follows() {
    let f = family(Cascade, Cascade);
    let stop = f.db.core().log.stops.set(StopPoint::TableRenamed);
    std::thread::scope(|s| {
        let renamed = s.spawn(|| f.db.rename_table("a/children", "a/kids"));
        stop.wait();
        let deleted = s.spawn(|| {
            let mut trx = f.begin(Isolation::RepeatableRead);
            delete(&mut trx, &f.parents, 2).unwrap();
            trx.commit().unwrap();
        });
        std::thread::sleep(Duration::from_millis(100));
        stop.wait();
        deleted.join().unwrap();
        renamed.join().unwrap().unwrap();
    });
    let kids = f.db.table("a/kids").unwrap();
    let mut trx = f.begin(Isolation::RepeatableRead);
    assert_eq!(rows(&mut trx, &kids), [(10, Some(1)), (90, None)]);
}

/// A child that loses its parent keeps its other columns, also those that lie outside its record.
#[test]
fn a_long_value_stays_when_the_parent_goes() {
    let dir = tempfile::tempdir().unwrap();
    let (db, parents) = small::lazy_with(&dir, &parents());
    let def = children(SetNull, SetNull).nullable("long", ColumnType::text(1 << 20));
    let children = db.create_table(&def).unwrap();
    let long = "long ".repeat(5_000);
    let mut trx = db.begin(Isolation::RepeatableRead);
    put(&mut trx, &parents, &[Value::Int(1), Value::Null]).unwrap();
    let row = [Value::Int(10), Value::Int(1), Value::Text(long.clone())];
    put(&mut trx, &children, &row).unwrap();
    trx.commit().unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    delete(&mut trx, &parents, 1).unwrap();
    let cursor = lock(&mut trx, &children, 10).unwrap();
    let row = cursor.row().unwrap();
    assert_eq!(row.value(1).unwrap(), Value::Null);
    assert_eq!(row.value(2).unwrap(), Value::Text(long));
    drop(cursor);
    trx.commit().unwrap();
    assert!(db.check_table(&children).unwrap().errors.is_empty());
}

/// As ALTER TABLE does it: a copy is filled, the table steps aside, and the copy takes its place. The rows
/// are those that it had, whatever their parents; what is new is checked.
#[test]
fn a_copy_takes_the_place_of_a_child() {
    let f = family(Cascade, Cascade);
    let mut trx = f.begin(Isolation::RepeatableRead);
    trx.set_foreign_key_checks(false);
    child(&mut trx, &f.children, 50, Some(5)).unwrap();
    trx.commit().unwrap();
    let mut copy = children(Cascade, Cascade);
    copy.name = "a/#copy".into();
    copy.foreign_keys[0].kept = true;
    let copy = copy
        .column("other", ColumnType::i64())
        .index("by_other", &["other"])
        .foreign_key(ForeignKey::new("new", &["other"], "a/parents", &["id"]));
    let copy = f.db.create_table(&copy).unwrap();
    let mut trx = f.begin(Isolation::RepeatableRead);
    for (id, parent) in rows(&mut trx, &f.children) {
        put(
            &mut trx,
            &copy,
            &[Value::Int(id), int(parent), Value::Int(1)],
        )
        .unwrap();
    }
    let refused = put(
        &mut trx,
        &copy,
        &[Value::Int(51), Value::Null, Value::Int(5)],
    );
    assert!(matches!(&refused, Err(Error::NoReferencedRow(r)) if r.constraint == "new"));
    trx.commit().unwrap();
    f.db.rename_table("a/children", "a/#old").unwrap();
    f.db.rename_table("a/#copy", "a/children").unwrap();
    f.db.drop_table("a/#old").unwrap();
    let children = f.db.table("a/children").unwrap();
    let mut trx = f.begin(Isolation::RepeatableRead);
    let refused = delete(&mut trx, &f.parents, 1);
    assert!(matches!(&refused, Err(Error::RowIsReferenced(r)) if r.constraint == "new"));
    let refused = put(
        &mut trx,
        &children,
        &[Value::Int(51), Value::Int(5), Value::Int(1)],
    );
    assert!(matches!(&refused, Err(Error::NoReferencedRow(r)) if r.constraint == "child_parent"));
    delete(&mut trx, &f.parents, 2).unwrap_or_else(|e| panic!("{e}"));
}

/// While a parent steps aside for its copy, its children's new rows wait.
#[test]
fn a_copy_takes_the_place_of_a_parent() {
    let f = family(Cascade, Cascade);
    let mut copy = parents();
    copy.name = "a/#copy".into();
    let copy = f.db.create_table(&copy).unwrap();
    let mut trx = f.begin(Isolation::RepeatableRead);
    (1..=4).for_each(|id| put(&mut trx, &copy, &[Value::Int(id), Value::Null]).unwrap());
    trx.commit().unwrap();
    f.db.rename_table("a/parents", "a/#old").unwrap();
    let mut trx = f.begin(Isolation::RepeatableRead);
    let refused = child(&mut trx, &f.children, 30, Some(3));
    assert!(
        matches!(refused, Err(Error::LockWaitTimeout)),
        "{refused:?}"
    );
    trx.set_lock_wait_timeout(Duration::from_secs(60));
    std::thread::scope(|s| {
        let waits = s.spawn(|| child(&mut trx, &f.children, 40, Some(4)));
        std::thread::sleep(Duration::from_millis(20));
        f.db.rename_table("a/#copy", "a/parents").unwrap();
        waits.join().unwrap().unwrap();
    });
    trx.commit().unwrap();
    f.db.drop_table("a/#old").unwrap();
    let parents = f.db.table("a/parents").unwrap();
    let mut trx = f.begin(Isolation::RepeatableRead);
    delete(&mut trx, &parents, 2).unwrap();
    assert_eq!(rows(&mut trx, &f.children).len(), 3);
}

/// Constraints that are named after their table are renamed with it; those of a schema that goes keep nobody
/// but others.
#[test]
fn ddl_of_tables_and_schemas_with_foreign_keys() {
    let f = family(Cascade, Cascade);
    let prefix = ConstraintPrefix {
        from: "child_",
        to: "kid_",
    };
    f.db.rename_table_and_constraints("a/children", "a/kids", prefix)
        .unwrap();
    f.db.rename_table("a/parents", "a/elders").unwrap();
    // DEF-2: the copies of the child's definition, too, but for names, now and after a restart.
    let check = |db: &Database| {
        let kids = db.table("a/kids").unwrap();
        assert_eq!(kids.foreign_keys()[0].key.name, "kid_parent");
        assert_eq!(kids.foreign_keys()[0].key.parent, "a/elders");
        let report = db.check_table(&kids).unwrap();
        assert!(
            report.errors.is_empty() && report.notes.is_empty(),
            "{report:?}"
        );
    };
    check(&f.db);
    f.db.close().unwrap();
    drop((f.parents, f.children));
    varve::offline::check(f._dir.path(), &mut |finding| panic!("{finding:?}")).unwrap();
    let db = Database::open(f._dir.path(), small::options()).unwrap();
    check(&db);
    db.rename_table("a/elders", "a/parents").unwrap();
    check_ddl_without_checks(&db);
}

fn check_ddl_without_checks(db: &Database) {
    db.truncate_table_with("a/parents", ForeignKeyChecks::Off)
        .unwrap();
    db.drop_table_with("a/parents", ForeignKeyChecks::OtherSchemas)
        .unwrap();
    db.create_table(&parents()).unwrap();
    db.rename_table("a/kids", "b/kids").unwrap();
    let refused = db.drop_table_with("a/parents", ForeignKeyChecks::OtherSchemas);
    assert!(
        matches!(refused, Err(Error::TableIsReferenced(_))),
        "{refused:?}"
    );
}

/// Tables that refer to each other can only come one before the other.
#[test]
fn a_circle_of_tables_is_closed_without_checks() {
    let dir = tempfile::tempdir().unwrap();
    let table = |name: &str, parent: &str| {
        TableDef::new(name)
            .column("id", ColumnType::i64())
            .nullable("other", ColumnType::i64())
            .primary(&["id"])
            .index("by_other", &["other"])
            .foreign_key(
                ForeignKey::new(format!("of_{}", &name[2..]), &["other"], parent, &["id"])
                    .on_delete(Cascade),
            )
    };
    let db = Database::open(dir.path(), small::options()).unwrap();
    let refused = db.create_table(&table("a/hens", "a/eggs")).err();
    assert!(
        matches!(refused, Some(Error::BadForeignKey(_))),
        "{refused:?}"
    );
    let hens = db
        .create_table_with(&table("a/hens", "a/eggs"), ForeignKeyChecks::Off)
        .unwrap();
    let eggs = db.create_table(&table("a/eggs", "a/hens")).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    child(&mut trx, &hens, 1, None).unwrap();
    child(&mut trx, &eggs, 2, Some(1)).unwrap();
    child(&mut trx, &hens, 3, Some(2)).unwrap();
    child(&mut trx, &eggs, 4, Some(3)).unwrap();
    delete(&mut trx, &hens, 1).unwrap();
    assert_eq!(
        (rows(&mut trx, &hens), rows(&mut trx, &eggs)),
        (vec![], vec![])
    );
    trx.commit().unwrap();
    assert!(db.drop_table("a/hens").is_err());
    db.drop_table_with("a/hens", ForeignKeyChecks::Off).unwrap();
    db.drop_table("a/eggs").unwrap();
}
