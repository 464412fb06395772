//! Tables with foreign keys come, go, and get other names: their parents stay or wait for others, their
//! children know them.
//!
//! What could break here: a link to a table that is not there any more, or is another one; a check that is
//! left out while the other side is being replaced; a definition that a restart does not find.

#[path = "support/family.rs"]
mod family;
#[path = "support/small.rs"]
mod small;

use std::time::Duration;

#[cfg(feature = "sabotage")]
use varve::internals::base::StopPoint;
use varve::{
    ColumnType, ConstraintPrefix, Database, Error, ForeignKey, ForeignKeyChecks, Isolation,
    RedefinitionWaits, ReferentialAction, TableDef, Value,
};

use ReferentialAction::{Cascade, NoAction, SetNull};
use family::{child, children, delete, family, has_no_parent, int, parents, put, rows};

#[test]
fn definitions_come_back() {
    let f = family(Cascade, SetNull);
    let def = f.children.def().clone();
    let dir = f.dir;
    f.db.close().unwrap();
    drop((f.parents, f.children));
    let db = Database::open(dir.path(), small::options()).unwrap();
    let children = db.table("a/children").unwrap();
    assert_eq!(children.def().foreign_keys, def.foreign_keys);
    let reference = &db.foreign_keys(&children).unwrap()[0];
    assert_eq!(reference.parent.as_ref().unwrap().index, "PRIMARY");
    let parents = db.table("a/parents").unwrap();
    assert!(parents.is_referenced() && !children.is_referenced());
    assert_eq!(db.referencing(&parents).unwrap()[0].child, "a/children");
    let mut trx = db.begin(Isolation::RepeatableRead);
    let refused = child(&mut trx, &children, 40, Some(4));
    has_no_parent(refused);
}

/// A foreign key goes without a change of rows; the parent knows its child no more, also after a restart.
#[test]
fn a_foreign_key_goes() {
    let f = family(NoAction, NoAction);
    let def = f.children.def().clone();
    let name = def.foreign_keys[0].name.clone();
    drop(f.children);
    let waits = RedefinitionWaits::default;
    let mut prepared = f.db.prepare_redefinition(&def, waits()).unwrap();
    let refused = prepared.drop_foreign_key("nobody").unwrap_err().to_string();
    assert!(
        refused.contains("nobody") && refused.contains("a/children"),
        "{refused}"
    );
    drop(prepared);
    let prepare = || f.db.prepare_redefinition(&def, waits()).unwrap();
    let mut prepared = prepare();
    prepared.drop_foreign_key(&name).unwrap();
    drop(prepared);
    assert!(f.parents.is_referenced());
    let mut prepared = prepare();
    prepared.drop_foreign_key(&name).unwrap();
    prepared.commit(&mut |_, _| {}).unwrap();
    let (dir, mut db, mut parents) = (f.dir, f.db, f.parents);
    for id in [40, 41] {
        assert!(!parents.is_referenced());
        let children = db.table("a/children").unwrap();
        assert!(children.def().foreign_keys.is_empty());
        assert_ne!(children.def().hash(), def.hash());
        let mut trx = db.begin(Isolation::RepeatableRead);
        child(&mut trx, &children, id, Some(4)).unwrap();
        trx.commit().unwrap();
        assert_eq!(db.check_table(&children).unwrap().errors, [""; 0]);
        db.close().unwrap();
        drop((children, parents));
        db = Database::open(dir.path(), small::options()).unwrap();
        parents = db.table("a/parents").unwrap();
    }
    drop(parents);
    db.drop_table("a/parents").unwrap();
}

/// A foreign key comes without a look at the rows; both tables know it, also after a restart and one that
/// follows a crash.
#[test]
fn a_foreign_key_comes() {
    let f = family(NoAction, NoAction);
    let waits = RedefinitionWaits::default;
    let def = TableDef::new("a/late")
        .column("id", ColumnType::i64())
        .nullable("parent", ColumnType::i64())
        .nullable("wide", ColumnType::Bytes(8))
        .primary(&["id"])
        .index("by_parent", &["parent"])
        .index("by_wide", &["wide"]);
    let late = f.db.create_table(&def).unwrap();
    let mut trx = f.begin(Isolation::RepeatableRead);
    put(
        &mut trx,
        &late,
        &[Value::Int(1), Value::Int(999), Value::Null],
    )
    .unwrap();
    trx.commit().unwrap();
    let def = late.def().clone();
    drop(late);
    let key =
        |name: &str, column: &str, parent: &str| ForeignKey::new(name, &[column], parent, &["id"]);
    let taken = f.children.def().foreign_keys[0].name.to_uppercase();
    let refused = |key: ForeignKey| {
        let mut prepared = f.db.prepare_redefinition(&def, waits()).unwrap();
        prepared.add_foreign_key(key).unwrap_err()
    };
    let wide = refused(key("wide", "wide", "a/parents"));
    assert!(matches!(wide, Error::BadForeignKey(_)), "{wide}");
    let same = refused(key(&taken, "parent", "a/parents"));
    assert!(matches!(same, Error::ConstraintExists(_)), "{same}");
    let nothing = refused(key("nothing", "nothing", "a/parents"));
    assert!(matches!(nothing, Error::Invalid { .. }), "{nothing}");
    // The other way of a redefinition has another table until the end.
    for (n, rebuilds) in [false, true].into_iter().enumerate() {
        let def = f.db.table("a/late").unwrap().def().clone();
        let mut prepared = match rebuilds {
            false => f.db.prepare_redefinition(&def, waits()),
            true => f.db.prepare_rebuild(&def, waits()),
        }
        .unwrap();
        let name = format!("late_{n}");
        prepared
            .add_foreign_key(key(&name, "parent", "a/parents"))
            .unwrap();
        // A parent that may come later.
        prepared
            .add_foreign_key(key(&format!("lone_{n}"), "wide", "a/nobody"))
            .unwrap();
        prepared.commit(&mut |_, _| {}).unwrap();
    }
    let check = |db: &Database| {
        let (late, parents) = (db.table("a/late").unwrap(), db.table("a/parents").unwrap());
        let names: Vec<_> = late
            .def()
            .foreign_keys
            .iter()
            .map(|key| &*key.name)
            .collect();
        assert_eq!(names, ["late_0", "lone_0", "late_1", "lone_1"]);
        assert!(parents.is_referenced());
        let mut trx = db.begin(Isolation::RepeatableRead);
        let row = [Value::Int(2), Value::Int(999), Value::Null];
        let refused = put(&mut trx, &late, &row).unwrap_err();
        assert!(matches!(refused, Error::NoReferencedRow(_)), "{refused}");
        drop(trx);
        assert_eq!(db.check_table(&late).unwrap().errors, [""; 0]);
    };
    check(&f.db);
    let (dir, db) = (f.dir, f.db);
    drop((f.parents, f.children));
    db.crash();
    let db = Database::open(dir.path(), small::options()).unwrap();
    check(&db);
    db.close().unwrap();
    check(&Database::open(dir.path(), small::options()).unwrap());
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
        assert_eq!(
            db.foreign_keys(&children).unwrap()[0].key.parent,
            "b/elders"
        );
        let mut trx = db.begin(Isolation::RepeatableRead);
        let refused = child(&mut trx, &children, 40, Some(4));
        has_no_parent(refused);
        delete(&mut trx, &elders, 2).unwrap();
        assert_eq!(rows(&mut trx, &children), [(10, Some(1)), (90, None)]);
        trx.rollback().unwrap();
    };
    check(&f.db);
    let dir = f.dir;
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
    has_no_parent(refused);
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

/// FK-2: what is referred to, and what refers, goes on under other names: in handles that were open, in the
/// definitions, after a restart.
#[test]
fn columns_of_parents_and_children_get_other_names() {
    let f = family(Cascade, Cascade);
    let own = ForeignKey::new("next", &["after"], "a/chain", &["id"]);
    let chain = TableDef::new("a/chain")
        .column("id", ColumnType::i64())
        .nullable("after", ColumnType::i64())
        .primary(&["id"])
        .index("by_after", &["after"])
        .foreign_key(own);
    f.db.create_table(&chain).unwrap();

    let mut open = f.begin(Isolation::RepeatableRead);
    child(&mut open, &f.children, 40, None).unwrap();
    f.db.rename_columns("a/parents", &["number", "id"]).unwrap();
    // The children's handles stay, also in a transaction that uses them.
    child(&mut open, &f.children, 41, Some(3)).unwrap();
    assert!(child(&mut open, &f.children, 42, Some(4)).is_err());
    open.rollback().unwrap();
    f.db.rename_columns("a/children", &["parent", "id"])
        .unwrap();
    f.db.rename_columns("a/chain", &["after", "id"]).unwrap();

    let refused = [
        f.db.rename_columns("a/chain", &["after"]),
        f.db.rename_columns("a/chain", &["after", "after"]),
        f.db.rename_columns("a/chain", &["after", ""]),
        f.db.rename_columns("a/nobody", &["a", "b"]),
    ];
    assert!(
        refused.iter().all(|refused| refused.is_err()),
        "{refused:?}"
    );
    let check = |db: &Database| {
        let [parents, children, chain] = ["a/parents", "a/children", "a/chain"].map(|name| {
            let table = db.table(name).unwrap();
            let report = db.check_table(&table).unwrap();
            assert_eq!(report.errors, [""; 0], "{name}");
            table
        });
        let key = |table: &varve::Table| db.foreign_keys(table).unwrap()[0].key.clone();
        assert_eq!(key(&children).columns, ["id"]);
        assert_eq!(key(&children).parent_columns, ["number"]);
        assert_eq!(key(&chain).columns, ["id"]);
        assert_eq!(key(&chain).parent_columns, ["after"]);
        assert_eq!(db.referencing(&parents).unwrap()[0].key, key(&children));
        let mut trx = db.begin(Isolation::RepeatableRead);
        assert!(child(&mut trx, &children, 40, Some(4)).is_err());
        delete(&mut trx, &parents, 2).unwrap();
        assert_eq!(rows(&mut trx, &children), [(10, Some(1)), (90, None)]);
        assert!(put(&mut trx, &chain, &[Value::Int(1), Value::Int(2)]).is_err());
        put(&mut trx, &chain, &[Value::Int(1), Value::Int(1)]).unwrap();
        trx.rollback().unwrap();
    };
    check(&f.db);
    let dir = f.dir;
    f.db.close().unwrap();
    drop((f.parents, f.children));
    let db = Database::open(dir.path(), small::options()).unwrap();
    check(&db);
    // A parent that comes back must have the new names.
    db.drop_table_with("a/parents", ForeignKeyChecks::Off)
        .unwrap();
    assert!(db.create_table(&parents()).is_err());
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
    has_no_parent(refused);
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
    f.db.rename_table_with("a/children", "a/kids", Some(prefix), ForeignKeyChecks::On)
        .unwrap();
    f.db.rename_table("a/parents", "a/elders").unwrap();
    // DEF-2: the copies of the child's definition, too, but for names, now and after a restart.
    let check = |db: &Database| {
        let kids = db.table("a/kids").unwrap();
        assert_eq!(db.foreign_keys(&kids).unwrap()[0].key.name, "kid_parent");
        assert_eq!(db.foreign_keys(&kids).unwrap()[0].key.parent, "a/elders");
        let report = db.check_table(&kids).unwrap();
        assert!(
            report.errors.is_empty() && report.notes.is_empty(),
            "{report:?}"
        );
    };
    check(&f.db);
    f.db.close().unwrap();
    drop((f.parents, f.children));
    varve::offline::check(f.dir.path(), None, &mut |finding| panic!("{finding:?}")).unwrap();
    let db = Database::open(f.dir.path(), small::options()).unwrap();
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

/// While a child steps aside for its copy its parent's rows wait, and its constraint's name stays its own.
/// A parent that is renamed meanwhile is the copy's, too.
#[test]
fn a_parent_waits_for_its_childs_copy() {
    let f = family(Cascade, Cascade);
    let mut copy = children(Cascade, Cascade);
    copy.name = "a/#copy".into();
    copy.foreign_keys[0].kept = true;
    let copy = f.db.create_table(&copy).unwrap();
    let mut trx = f.begin(Isolation::RepeatableRead);
    for (id, parent) in rows(&mut trx, &f.children) {
        child(&mut trx, &copy, id, parent).unwrap();
    }
    trx.commit().unwrap();
    f.db.rename_table("a/children", "a/#old").unwrap();
    let mut trx = f.begin(Isolation::RepeatableRead);
    let waits = delete(&mut trx, &f.parents, 2);
    assert!(matches!(waits, Err(Error::LockWaitTimeout)), "{waits:?}");
    trx.rollback().unwrap();
    let refused = f.db.drop_table("a/parents");
    assert!(
        matches!(refused, Err(Error::TableIsReferenced(_))),
        "{refused:?}"
    );
    let mut twins = children(NoAction, NoAction);
    twins.name = "a/twins".into();
    let refused = f.db.create_table(&twins).err();
    assert!(
        matches!(refused, Some(Error::ConstraintExists(_))),
        "{refused:?}"
    );
    f.db.rename_table("a/parents", "a/elders").unwrap();
    f.db.rename_table("a/#copy", "a/children").unwrap();
    f.db.drop_table("a/#old").unwrap();
    let (elders, children) = (
        f.db.table("a/elders").unwrap(),
        f.db.table("a/children").unwrap(),
    );
    let mut trx = f.begin(Isolation::RepeatableRead);
    delete(&mut trx, &elders, 2).unwrap();
    assert_eq!(rows(&mut trx, &children), [(10, Some(1)), (90, None)]);
    trx.commit().unwrap();
    assert!(f.db.check_table(&children).unwrap().errors.is_empty());
}

/// A copy may get another name than the table that it is made for, which goes then.
#[test]
fn a_copy_gets_another_name() {
    let f = family(Cascade, Cascade);
    let mut copy = children(Cascade, Cascade);
    copy.name = "a/#copy".into();
    copy.foreign_keys[0].kept = true;
    f.db.create_table(&copy).unwrap();
    f.db.rename_table("a/#copy", "a/kids").unwrap();
    f.db.drop_table("a/children").unwrap();
    let kids = f.db.table("a/kids").unwrap();
    let mut trx = f.begin(Isolation::RepeatableRead);
    child(&mut trx, &kids, 1, Some(2)).unwrap();
    delete(&mut trx, &f.parents, 2).unwrap();
    assert_eq!(rows(&mut trx, &kids), []);
    trx.commit().unwrap();
    let mut twins = children(NoAction, NoAction);
    twins.name = "a/twins".into();
    assert!(f.db.create_table(&twins).is_err());
}

/// A copy's new constraint must not have another one's name: not when the copy is made, before rows are put
/// into it, nor when it takes its place, if the name was taken meanwhile.
#[test]
fn a_copys_new_constraints_have_free_names() {
    let f = family(NoAction, NoAction);
    let copy = |constraint: &str| {
        let mut copy = children(NoAction, NoAction);
        copy.name = "a/#copy".into();
        copy.foreign_keys[0].name = constraint.into();
        copy
    };
    let is_taken = |refused: Result<(), Error>, by: &str| match refused {
        Err(Error::ConstraintExists(taken)) => assert_eq!(taken.table, by),
        other => panic!("{other:?}"),
    };
    let taken = f.children.def().foreign_keys[0].name.to_uppercase();
    let refused = f.db.create_table(&copy(&taken)).map(drop);
    is_taken(refused, "a/children");
    f.db.create_table(&copy("later")).unwrap();
    let mut twins = children(NoAction, NoAction);
    twins.name = "a/twins".into();
    twins.foreign_keys[0].name = "LATER".into();
    f.db.create_table(&twins).unwrap();
    is_taken(f.db.rename_table("a/#copy", "a/kids"), "a/twins");
    f.db.drop_table("a/twins").unwrap();
    f.db.rename_table("a/#copy", "a/kids").unwrap();
}

/// FK-4, also for a parent that the statement before has named, and given up.
#[test]
fn a_parent_that_was_read_is_locked_all_the_same() {
    let f = family(NoAction, NoAction);
    let mut trx = f.begin(Isolation::RepeatableRead);
    trx.trust_metadata_locks();
    assert_eq!(rows(&mut trx, &f.parents).len(), 3);
    child(&mut trx, &f.children, 30, Some(3)).unwrap();
    let mut other = f.begin(Isolation::RepeatableRead);
    let waits = other.lock_table_exclusive(&f.parents);
    assert!(matches!(waits, Err(Error::LockWaitTimeout)), "{waits:?}");
    trx.commit().unwrap();
    other.lock_table_exclusive(&f.parents).unwrap();
}

/// FK-5: who has waited while a parent was put aside has no lock in what is aside.
#[test]
fn a_parent_that_stepped_aside_can_be_dropped() {
    let f = family(NoAction, NoAction);
    let mut first = f.begin(Isolation::ReadCommitted);
    first.trust_metadata_locks();
    child(&mut first, &f.children, 30, Some(3)).unwrap();
    let is_waiting = |n| {
        while f
            .db
            .status()
            .iter()
            .all(|&s| s != ("row_lock_current_waits", n))
        {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|s| {
        let stepped = s.spawn(|| f.db.rename_table("a/parents", "a/#aside"));
        is_waiting(1);
        let waited = s.spawn(|| {
            let mut trx = f.begin(Isolation::ReadCommitted);
            trx.trust_metadata_locks();
            trx.set_lock_wait_timeout(Duration::from_secs(20));
            child(&mut trx, &f.children, 31, Some(3)).unwrap();
            trx
        });
        is_waiting(2);
        first.commit().unwrap();
        stepped.join().unwrap().unwrap();
        let mut copy = parents();
        copy.name = "a/#copy".into();
        let copy = f.db.create_table(&copy).unwrap();
        let mut filler = f.begin(Isolation::ReadCommitted);
        put(&mut filler, &copy, &[Value::Int(3), Value::Null]).unwrap();
        filler.commit().unwrap();
        f.db.rename_table("a/#copy", "a/parents").unwrap();
        let waited = waited.join().unwrap();
        f.db.drop_table("a/#aside").unwrap();
        waited.commit().unwrap();
    });
    assert_eq!(f.children().len(), 6);
}

/// A column that others refer to stays, also if another one gets its name.
#[test]
fn a_column_that_others_refer_to_stays() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), small::options()).unwrap();
    let parent = TableDef::new("a/p")
        .column("id", ColumnType::i64())
        .nullable("a", ColumnType::i64())
        .nullable("b", ColumnType::i64())
        .primary(&["id"])
        .index("by_a", &["a"])
        .index("by_b", &["b"]);
    drop(db.create_table(&parent).unwrap());
    let child = TableDef::new("a/c")
        .column("id", ColumnType::i64())
        .nullable("a", ColumnType::i64())
        .primary(&["id"])
        .index("by_a", &["a"])
        .foreign_key(ForeignKey::new("f", &["a"], "a/p", &["a"]));
    drop(db.create_table(&child).unwrap());
    let mut def = db.table("a/p").unwrap().def().clone();
    def.columns.remove(1);
    def.columns[1].name = "a".into();
    def.indexes.remove(0);
    def.indexes[0].parts[0].column = 1;
    let refused = db.redefine_table(&def).unwrap_err();
    assert!(matches!(refused, Error::BadForeignKey(_)), "{refused}");
    assert!(refused.to_string().contains("no column a"), "{refused}");
}
