//! FK-1: the indexes that foreign keys need stay while checks are on, and what holds when one was dropped.
//!
//! What could break here: a child without a parent that slips in, or a parent that goes from under its
//! children, because the index by which it would have been found is not there.

#[path = "support/family.rs"]
mod family;
#[path = "support/small.rs"]
mod small;

use varve::{
    ColumnType, Database, Error, ForeignKey, ForeignKeyChecks, Isolation, KeyMatch, LockMode,
    RedefinitionWaits, ReferentialAction, Result, Table, TableDef, Transaction, Value,
};

use ReferentialAction::{Cascade, NoAction};
use family::{
    Family, child, children, delete, family, has_no_parent, is_referenced, lock, parents, put,
    renumber, rows,
};

/// Gives the table this definition.
fn redefine(db: &Database, def: &TableDef, checks: ForeignKeyChecks) -> Result<()> {
    let mut prepared = db.prepare_redefinition(def, RedefinitionWaits::default())?;
    prepared.set_foreign_key_checks(checks)?;
    prepared.commit(&mut |_, _| {})
}

fn without_indexes(table: &Table) -> TableDef {
    let mut def = table.def().clone();
    def.indexes.clear();
    def
}

/// Its handles, which a redefinition has made those of a table that is no more.
fn again(mut f: Family) -> Family {
    f.parents = f.db.table("a/parents").unwrap();
    f.children = f.db.table("a/children").unwrap();
    f
}

fn reopened(f: Family) -> Family {
    let Family {
        db,
        parents,
        children,
        dir,
    } = f;
    db.close().unwrap();
    drop((parents, children));
    let db = Database::open(dir.path(), small::options()).unwrap();
    let (parents, children) = (
        db.table("a/parents").unwrap(),
        db.table("a/children").unwrap(),
    );
    Family {
        db,
        parents,
        children,
        dir,
    }
}

fn set_parent(trx: &mut Transaction, table: &Table, id: i64, parent: i64) -> Result<bool> {
    let cursor = lock(trx, table, id)?;
    let row = table.def().row(&[Value::Int(id), Value::Int(parent)])?;
    trx.update(table, &cursor, &row.datums())
}

/// Without its own index a child's rows get parents as ever, and no parent can go.
#[test]
fn a_child_without_its_index() {
    let f = family(Cascade, Cascade);
    let def = without_indexes(&f.children);
    let refused = redefine(&f.db, &def, ForeignKeyChecks::On).unwrap_err();
    assert!(refused.to_string().contains("child_parent"), "{refused}");
    redefine(&f.db, &def, ForeignKeyChecks::Off).unwrap();
    let mut f = again(f);
    for _ in 0..2 {
        let mut trx = f.begin(Isolation::RepeatableRead);
        has_no_parent(child(&mut trx, &f.children, 40, Some(4)));
        has_no_parent(set_parent(&mut trx, &f.children, 10, 4));
        child(&mut trx, &f.children, 40, Some(3)).unwrap();
        assert!(set_parent(&mut trx, &f.children, 40, 2).unwrap());
        is_referenced(delete(&mut trx, &f.parents, 1));
        // Nobody can tell that it has no children.
        is_referenced(delete(&mut trx, &f.parents, 3));
        trx.rollback().unwrap();
        let mut trx = f.begin(Isolation::RepeatableRead);
        trx.set_foreign_key_checks(false);
        child(&mut trx, &f.children, 40, Some(4)).unwrap();
        delete(&mut trx, &f.parents, 3).unwrap();
        trx.rollback().unwrap();
        assert_eq!(f.db.check_table(&f.children).unwrap().notes, [""; 0]);
        f = reopened(f);
    }
    // Other changes go on, and the table can be called otherwise; an index that serves makes all as it was.
    let mut def = without_indexes(&f.children);
    def.columns[1].name = "mother".into();
    f.db.rename_columns("a/children", &["id", "mother"])
        .unwrap();
    f.db.rename_table("a/children", "a/kids").unwrap();
    f.db.rename_table("a/kids", "a/children").unwrap();
    let def = def.index("by_mother", &["mother"]);
    redefine(&f.db, &def, ForeignKeyChecks::On).unwrap();
    let f = again(f);
    let mut trx = f.begin(Isolation::RepeatableRead);
    delete(&mut trx, &f.parents, 2).unwrap();
    assert_eq!(rows(&mut trx, &f.children), [(10, Some(1)), (90, None)]);
    trx.commit().unwrap();
    assert!(redefine(&f.db, &without_indexes(&f.children), ForeignKeyChecks::On).is_err());
}

/// A row may be its own parent as soon as it is there.
#[test]
fn a_row_is_its_own_parent_without_an_index() {
    let f = family(NoAction, NoAction);
    let def = TableDef::new("a/tree")
        .column("id", ColumnType::i64())
        .nullable("parent", ColumnType::i64())
        .primary(&["id"])
        .index("by_parent", &["parent"])
        .foreign_key(ForeignKey::new("tree", &["parent"], "a/tree", &["id"]));
    let tree = f.db.create_table(&def).unwrap();
    redefine(&f.db, &without_indexes(&tree), ForeignKeyChecks::Off).unwrap();
    let tree = f.db.table("a/tree").unwrap();
    let mut trx = f.begin(Isolation::RepeatableRead);
    child(&mut trx, &tree, 1, Some(1)).unwrap();
    child(&mut trx, &tree, 2, Some(1)).unwrap();
    has_no_parent(child(&mut trx, &tree, 3, Some(4)));
    assert!(set_parent(&mut trx, &tree, 2, 2).unwrap());
}

/// Without its index a parent's children are looked for as ever, and no row gets a parent.
#[test]
fn a_parent_without_its_index() {
    let f = family(NoAction, NoAction);
    let by_code = TableDef::new("a/notes")
        .column("id", ColumnType::i64())
        .nullable("code", ColumnType::text(20))
        .primary(&["id"])
        .index("by_code", &["code"])
        .foreign_key(ForeignKey::new("notes", &["code"], "a/parents", &["code"]));
    let notes = f.db.create_table(&by_code).unwrap();
    let note = |trx: &mut Transaction, notes: &Table, id, code: &str| {
        put(trx, notes, &[Value::Int(id), Value::Text(code.into())])
    };
    let mut trx = f.begin(Isolation::RepeatableRead);
    let kept = [Value::Int(7), Value::Text("x".into())];
    put(&mut trx, &f.parents, &kept).unwrap();
    note(&mut trx, &notes, 1, "x").unwrap();
    trx.commit().unwrap();

    let def = without_indexes(&f.parents);
    let refused = redefine(&f.db, &def, ForeignKeyChecks::On).unwrap_err();
    assert!(matches!(refused, Error::BadForeignKey(_)), "{refused}");
    redefine(&f.db, &def, ForeignKeyChecks::Off).unwrap();
    let mut f = again(f);
    for _ in 0..2 {
        let notes = f.db.table("a/notes").unwrap();
        let mut trx = f.begin(Isolation::RepeatableRead);
        has_no_parent(note(&mut trx, &notes, 2, "x"));
        is_referenced(delete(&mut trx, &f.parents, 7));
        // The other foreign key is served by the primary key.
        is_referenced(delete(&mut trx, &f.parents, 1));
        delete(&mut trx, &f.parents, 3).unwrap();
        trx.rollback().unwrap();
        drop(notes);
        f = reopened(f);
    }
    f.db.rename_table("a/parents", "a/elders").unwrap();
    f.db.rename_table("a/elders", "a/parents").unwrap();
    redefine(&f.db, &parents_as(&f.db), ForeignKeyChecks::On).unwrap();
    let f = again(f);
    let notes = f.db.table("a/notes").unwrap();
    let mut trx = f.begin(Isolation::RepeatableRead);
    note(&mut trx, &notes, 2, "x").unwrap();
}

/// The table's definition with the index that `parents` has.
fn parents_as(db: &Database) -> TableDef {
    let mut def = db.table("a/parents").unwrap().def().clone();
    def.indexes = parents().indexes;
    def
}

/// One row's children follow, also where they are themselves parents of rows without an index: nobody can
/// tell, so nothing happens.
#[test]
fn a_cascade_ends_where_an_index_is_missing() {
    let f = family(Cascade, Cascade);
    let def = TableDef::new("a/grandchildren")
        .column("id", ColumnType::i64())
        .nullable("child", ColumnType::i64())
        .primary(&["id"])
        .index("by_child", &["child"])
        .foreign_key(
            ForeignKey::new("grandchild", &["child"], "a/children", &["id"]).on_delete(Cascade),
        );
    let grandchildren = f.db.create_table(&def).unwrap();
    redefine(
        &f.db,
        &without_indexes(&grandchildren),
        ForeignKeyChecks::Off,
    )
    .unwrap();
    let mut trx = f.begin(Isolation::RepeatableRead);
    is_referenced(delete(&mut trx, &f.parents, 2));
    // What has no children goes, and they may follow where it is not they who are referred to.
    delete(&mut trx, &f.parents, 3).unwrap();
    assert!(renumber(&mut trx, &f.parents, 2, 5).unwrap());
    let all = [(10, Some(1)), (20, Some(5)), (21, Some(5)), (90, None)];
    assert_eq!(rows(&mut trx, &f.children), all);
}

/// Whoever has another key looks for nobody, and its own parent is the same.
#[test]
fn a_child_without_its_index_gets_another_key() {
    let f = family(NoAction, NoAction);
    redefine(&f.db, &without_indexes(&f.children), ForeignKeyChecks::Off).unwrap();
    let f = again(f);
    let mut trx = f.begin(Isolation::RepeatableRead);
    let cursor = lock(&mut trx, &f.children, 10).unwrap();
    let to = |id: i64, parent: i64| {
        let row = f.children.def().row(&[Value::Int(id), Value::Int(parent)]);
        row.unwrap()
    };
    has_no_parent(trx.update(&f.children, &cursor, &to(11, 4).datums()));
    let cursor = lock(&mut trx, &f.children, 10).unwrap();
    assert!(
        trx.update(&f.children, &cursor, &to(11, 1).datums())
            .unwrap()
    );
    is_referenced(delete(&mut trx, &f.parents, 1));
}

/// A row comes while its parent goes: one of them waits, whether or not there is an index.
#[test]
fn a_child_without_its_index_locks_its_parent() {
    let f = family(NoAction, NoAction);
    redefine(&f.db, &without_indexes(&f.children), ForeignKeyChecks::Off).unwrap();
    let f = again(f);
    let mut one = f.begin(Isolation::ReadCommitted);
    let mut other = f.begin(Isolation::ReadCommitted);
    other.set_foreign_key_checks(false);
    child(&mut one, &f.children, 40, Some(3)).unwrap();
    let mut cursor = f.parents.cursor(0).unwrap();
    let key = f.parents.def().key(0, &[Value::Int(3)]).unwrap();
    let waits = cursor.seek(
        &mut other,
        &key.datums(),
        KeyMatch::Exact,
        LockMode::Exclusive,
    );
    assert!(matches!(waits, Err(Error::LockWaitTimeout)), "{waits:?}");
}

/// A copy that ALTER TABLE makes, without the index: with checks on it does not take the place of a table
/// that had it, and nothing keeps the table from coming back.
#[test]
fn a_copy_without_an_index() {
    for checks in [ForeignKeyChecks::On, ForeignKeyChecks::Off] {
        for is_parent in [false, true] {
            let f = family(NoAction, NoAction);
            let mut copy = match is_parent {
                false => children(NoAction, NoAction),
                true => parents().primary(&["code"]),
            };
            copy.columns[1].nullable = !is_parent;
            copy.indexes.clear();
            let name = std::mem::replace(&mut copy.name, "a/#copy".into());
            copy.foreign_keys.iter_mut().for_each(|key| key.kept = true);
            f.db.create_table_with(&copy, checks).unwrap();
            f.db.rename_table(&name, "a/#old").unwrap();
            let placed = f.db.rename_table_with("a/#copy", &name, None, checks);
            if checks == ForeignKeyChecks::On {
                let refused = placed.unwrap_err().to_string();
                assert!(refused.contains("no index"), "{refused}");
                f.db.rename_table("a/#old", &name).unwrap();
                continue;
            }
            placed.unwrap();
            f.db.drop_table("a/#old").unwrap();
            let f = reopened(f);
            let mut trx = f.begin(Isolation::RepeatableRead);
            match is_parent {
                false => is_referenced(delete(&mut trx, &f.parents, 3)),
                true => has_no_parent(child(&mut trx, &f.children, 40, Some(3))),
            }
            drop(trx);
            // It had none when it steps aside again, and comes back with checks on; so does its next copy.
            f.db.rename_table(&name, "a/#old").unwrap();
            f.db.rename_table("a/#old", &name).unwrap();
            f.db.create_table_with(&copy, ForeignKeyChecks::On).unwrap();
            f.db.rename_table(&name, "a/#old").unwrap();
            f.db.rename_table("a/#copy", &name).unwrap();
        }
    }
}

/// After a crash in the middle, the copy takes the place though nobody says whether checks were off, and
/// so does the table that it was copied from.
#[test]
fn a_copy_takes_its_place_after_a_crash() {
    for is_old in [false, true] {
        let f = family(NoAction, NoAction);
        redefine(&f.db, &without_indexes(&f.children), ForeignKeyChecks::Off).unwrap();
        let mut copy = children(NoAction, NoAction);
        copy.name = "a/#copy".into();
        copy.foreign_keys[0].kept = true;
        copy.indexes.clear();
        f.db.create_table_with(&copy, ForeignKeyChecks::Off)
            .unwrap();
        f.db.rename_table("a/children", "a/#old").unwrap();
        let dir = f.dir;
        drop((f.parents, f.children));
        f.db.close().unwrap();
        let db = Database::open(dir.path(), small::options()).unwrap();
        let (place, gone) = match is_old {
            false => ("a/#copy", "a/#old"),
            true => ("a/#old", "a/#copy"),
        };
        db.drop_table(gone).unwrap();
        db.rename_table(place, "a/children").unwrap();
        let parents = db.table("a/parents").unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        is_referenced(delete(&mut trx, &parents, 3));
    }
}

/// A parent that others wait for comes without the index only while checks are off.
#[test]
fn a_parent_comes_without_its_index() {
    let f = family(NoAction, NoAction);
    f.db.drop_table_with("a/parents", ForeignKeyChecks::Off)
        .unwrap();
    let mut def = parents().primary(&["code"]);
    def.columns[1].nullable = false;
    let refused = f.db.create_table_with(&def, ForeignKeyChecks::On).err();
    assert!(
        matches!(refused, Some(Error::BadForeignKey(_))),
        "{refused:?}"
    );
    let elders = f.db.create_table_with(&def, ForeignKeyChecks::Off).unwrap();
    let mut trx = f.begin(Isolation::RepeatableRead);
    put(&mut trx, &elders, &[Value::Int(4), Value::Text("x".into())]).unwrap();
    has_no_parent(child(&mut trx, &f.children, 40, Some(4)));
    trx.commit().unwrap();
    redefine(&f.db, &def.index("by_id", &["id"]), ForeignKeyChecks::On).unwrap();
    let mut trx = f.begin(Isolation::RepeatableRead);
    child(&mut trx, &f.children, 40, Some(4)).unwrap();
}

/// A foreign key that is new needs its index, whether or not checks are on, and whatever it says of itself.
#[test]
fn a_new_foreign_key_without_an_index() {
    let f = family(NoAction, NoAction);
    let mut twins = children(NoAction, NoAction);
    twins.name = "b/twins".into();
    twins.indexes.clear();
    for kept in [false, true] {
        twins.foreign_keys[0].kept = kept;
        let made = f.db.create_table_with(&twins, ForeignKeyChecks::Off);
        let refused = made.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(refused.contains("no index begins"), "{refused}");
    }
}
