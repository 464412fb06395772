//! Foreign keys as programs meet them: a child has a parent, a parent that goes takes its children along or
//! stays, and all of a change happens or nothing.
//!
//! What could break here: a child without a parent, because a check was skipped, came too early, or missed
//! what another transaction had done; a change of a child that is left when its parent's is taken back; a
//! check that waits where nobody is in its way, or does not where somebody is.

#[path = "support/family.rs"]
mod family;
#[path = "support/small.rs"]
mod small;

#[cfg(feature = "sabotage")]
use varve::internals::base::Sabotage;
use varve::{
    ColumnType, Database, Error, ForeignKey, IndexDef, Isolation, KeyMatch, KeyPart, LockMode,
    Options, RedefinitionWaits, ReferentialAction, Result, TableDef, Transaction, Value, values,
};

use ReferentialAction::{Cascade, NoAction, Restrict, SetNull};
use family::{
    Family, child, children, delete, family, family_with, has_no_parent, is_referenced, lock,
    parents, put, renumber, rows,
};

const LEVELS: [Isolation; 4] = [
    Isolation::ReadUncommitted,
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Serializable,
];

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
                is_referenced(refused);
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
    is_referenced(refused);
    let refused = change(Value::Null);
    is_referenced(refused);
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
        has_no_parent(refused);
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
    // A row that is its own parent, and a line of 15.
    child(&mut trx, &tree, 100, Some(100)).unwrap();
    child(&mut trx, &tree, 1, None).unwrap();
    (2..=15).for_each(|id| child(&mut trx, &tree, id, Some(id - 1)).unwrap());
    let before = rows(&mut trx, &tree);
    trx.commit().unwrap();

    let mut trx = db.begin(Isolation::RepeatableRead);
    delete(&mut trx, &tree, 1).unwrap();
    delete(&mut trx, &tree, 100).unwrap();
    assert_eq!(rows(&mut trx, &tree), []);
    trx.rollback().unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    assert_eq!(rows(&mut trx, &tree), before);
    child(&mut trx, &tree, 16, Some(15)).unwrap();
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
    // So does the check of a database that nobody has open.
    f.db.close().unwrap();
    drop((f.parents, f.children));
    let mut told = Vec::new();
    varve::offline::check(f.dir.path(), None, &mut |finding| {
        told.push(finding.to_string())
    })
    .unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("2 row(s) have no parent in table a/parents"),
        "{told:?}"
    );
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

/// A row that has come without checks is not asked for its parent again when what its index has of it stays,
/// of a long value the beginning.
#[test]
fn an_orphan_changes_where_its_index_does_not_look() {
    let dir = tempfile::tempdir().unwrap();
    let (db, _) = small::lazy_with(&dir, &parents());
    let mut def = children(Cascade, Cascade)
        .nullable("long", ColumnType::text(1 << 20))
        .nullable("other", ColumnType::i64());
    let parts = vec![KeyPart::new(1), KeyPart::new(2).prefix(5)];
    def.indexes = vec![IndexDef::new("by_parent", parts)];
    let children = db.create_table(&def).unwrap();
    let long = |end: &str| Value::Text("long ".repeat(5_000) + end);
    let row = |long, other| [Value::Int(10), Value::Int(1), long, Value::Int(other)];
    let mut trx = db.begin(Isolation::RepeatableRead);
    trx.set_foreign_key_checks(false);
    put(&mut trx, &children, &row(long(""), 0)).unwrap();
    trx.set_foreign_key_checks(true);
    let mut update = |row: &[Value]| {
        let cursor = lock(&mut trx, &children, 10).unwrap();
        let row = children.def().row(row).unwrap();
        trx.update(&children, &cursor, &row.datums())
    };
    assert!(update(&row(long(""), 1)).unwrap());
    assert!(update(&row(long("another end"), 1)).unwrap());
    let e = update(&row(Value::Text("short".repeat(5_000)), 1));
    has_no_parent(e);
}

/// The entry by which it is found says something else than the row until its turn comes.
#[test]
fn a_row_becomes_its_own_parent() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), small::options()).unwrap();
    let key = ForeignKey::new("up", &["up"], "a/t", &["code"]);
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .nullable("up", ColumnType::i64())
        .nullable("code", ColumnType::i64())
        .primary(&["id"])
        .index("by_up", &["up"])
        .index("by_code", &["code", "up"])
        .foreign_key(key);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    put(&mut trx, &table, &[1.into(), Value::Null, 7.into()]).unwrap();
    let set =
        |trx: &mut Transaction, changed: &[(&str, Value)]| table.set(trx, values![1], changed);
    assert!(set(&mut trx, &[("up", 7.into())]).unwrap());
    let refused = set(&mut trx, &[("up", 8.into())]).unwrap_err();
    assert!(matches!(refused, Error::NoReferencedRow(_)), "{refused}");
    // It would be left without.
    let refused = set(&mut trx, &[("code", 8.into())]).unwrap_err();
    assert!(matches!(refused, Error::RowIsReferenced(_)), "{refused}");
    assert!(set(&mut trx, &[("up", Value::Null)]).unwrap());
    let both = [("up", 7.into()), ("code", 8.into())];
    let refused = set(&mut trx, &both).unwrap_err();
    assert!(matches!(refused, Error::RowIsReferenced(_)), "{refused}");
    trx.commit().unwrap();
    let report = db.check_table(&table).unwrap();
    assert_eq!((report.errors.len(), report.rows), (0, 1));
}

/// TAB-4. The count of changes is another one once anything is another that is told of foreign keys; and it
/// stays while rows are changed.
#[test]
fn changes_of_foreign_keys_are_counted() {
    let f = family(NoAction, NoAction);
    let def = f.children.def().clone();
    drop(f.children);
    let db = &f.db;
    let mut told: Option<(u64, String)> = None;
    let mut look = || {
        // As a cache has it: first the number, then what it stands for.
        let changed = db.foreign_keys_changed();
        let mut now = String::new();
        for name in ["a/parents", "a/children", "a/others"] {
            if let Ok(table) = db.table(name) {
                let (own, to) = (db.foreign_keys(&table), db.referencing(&table));
                now += &format!("{name}: {:?}, {:?}\n", own.unwrap(), to.unwrap());
            }
        }
        let before = told.replace((changed, now.clone()));
        if let Some((then, before)) = before {
            assert!(then != changed || before == now, "{before}\nnow\n{now}");
        }
        changed
    };
    look();
    let still = look();
    let children = db.table("a/children").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    child(&mut trx, &children, 40, Some(1)).unwrap();
    trx.commit().unwrap();
    drop(children);
    assert_eq!(look(), still);
    let mut others = def.clone();
    others.name = "a/others".into();
    others.foreign_keys[0].name = "of_others".into();
    db.create_table(&others).unwrap();
    look();
    let mut renamed = def.clone();
    renamed.columns[1].name = "mother".into();
    for key in &mut renamed.foreign_keys {
        key.columns = vec!["mother".into()];
    }
    for index in [&def, &renamed] {
        db.redefine_table(index).unwrap();
        look();
    }
    db.rename_table("a/others", "a/orphans").unwrap();
    look();
    db.rename_table("a/orphans", "a/others").unwrap();
    look();
    let waits = RedefinitionWaits::default();
    let mut prepared = db.prepare_redefinition(&renamed, waits).unwrap();
    let name = def.foreign_keys[0].name.clone();
    prepared.drop_foreign_key(&name).unwrap();
    prepared.commit(&mut |_, _| {}).unwrap();
    look();
    db.drop_table("a/others").unwrap();
    assert_ne!(look(), still);
    assert!(!f.parents.is_referenced());
}
