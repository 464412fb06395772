//! Whether tables that are tied by foreign keys fit together after whatever happened to them: each of the two
//! knows the other one, and what breaks a foreign key is refused.

use std::time::Duration;

use varve::{Database, Error, Isolation, Result, Table, Transaction, Value};

use super::copies::is_aside;
use super::ddl::{Refers, State, Tables, children_of, row};

/// A row that no table has, and a number that no parent has.
const NEW: i64 = 1_000_001;

/// `tables`: what there is.
pub fn check_references(db: &Database, tables: &Tables, context: &str) {
    for (name, table) in tables.iter().filter(|(_, table)| table.rows >= 0) {
        let context = format!("{context}: {name}");
        let children: Vec<_> = children_of(tables, name).map(|(child, _)| child).collect();
        let referring = db.referencing(&db.table(name).unwrap()).unwrap();
        let mut known: Vec<_> = referring.iter().map(|key| &key.child).collect();
        known.sort();
        assert_eq!(known, children, "{context}: who refers to it");
        if !children.is_empty() {
            parent_stays(db, tables, name, &context);
        }
        if let (Refers::To(parent), false) = (&table.refers, is_aside(name)) {
            child_needs_its_parent(db, name, tables.get(parent), &context);
        }
    }
}

/// Does it in a transaction that is rolled back.
fn tried(
    db: &Database,
    name: &str,
    what: impl FnOnce(&mut Transaction, &Table) -> Result<()>,
) -> Result<()> {
    let table = db.table(name).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    trx.set_lock_wait_timeout(Duration::ZERO);
    let done = what(&mut trx, &table);
    trx.rollback().unwrap();
    done
}

fn parent_stays(db: &Database, tables: &Tables, name: &str, context: &str) {
    let delete =
        |trx: &mut Transaction, table: &Table| table.delete(trx, &[Value::Int(0)]).map(drop);
    let deleted = tried(db, name, delete);
    match children_of(tables, name).any(|(_, child)| child.rows > 1) && tables[name].rows > 0 {
        true => assert!(
            matches!(deleted, Err(Error::RowIsReferenced(_))),
            "{context}: a parent's row is deleted: {deleted:?}"
        ),
        false => deleted.unwrap_or_else(|e| panic!("{context}: nobody's parent stays: {e}")),
    }
    for refused in [db.drop_table(name), db.truncate_table(name)] {
        assert!(
            matches!(refused, Err(Error::TableIsReferenced(_))),
            "{context}: {refused:?}"
        );
    }
}

/// `parent`: what it refers to, if that is there.
fn child_needs_its_parent(db: &Database, name: &str, parent: Option<&State>, context: &str) {
    let insert = |parent: i64| {
        tried(db, name, |trx, table| {
            table.insert(trx, &row(table.def(), NEW, Vec::new(), Some(parent)))
        })
    };
    let orphan = insert(NEW);
    let is_refused = match (&orphan, parent) {
        (Err(Error::NoReferencedRow(_)), _) => true,
        // One that has stepped aside is waited for, as long as this process lives.
        (Err(Error::LockWaitTimeout), None) => true,
        _ => false,
    };
    assert!(is_refused, "{context}: a row without a parent: {orphan:?}");
    if parent.is_some_and(|parent| parent.rows > 0) {
        insert(0).unwrap_or_else(|e| panic!("{context}: a row with a parent: {e}"));
    }
}
