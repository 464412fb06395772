//! Foreign keys at work: a row that gets a parent, and a parent that goes or gets another key.
//!
//! *Child*: before a row's entry in the index of a foreign key is made, the parent is looked for and locked
//! shared. It is then what it is until the transaction ends. If one of the columns is NULL there is nothing
//! to look for (MATCH SIMPLE, which InnoDB takes every MATCH for).
//!
//! *Parent*: after a row is deleted or has got another key, its children are looked for in the index of their
//! foreign key: by the old key, locked shared if they are in the way, exclusively if they follow (CASCADE,
//! SET NULL). That each child's change does the same for its own children makes the recursion, all within the
//! operation that began it: if anything fails, all is taken back.
//!
//! - **FK-3** When a transaction has ended that has checked foreign keys, each of its rows whose columns are
//!   not NULL has a parent. Whoever inserts a child locks the parent's row shared, whoever deletes the parent
//!   has locked it exclusively: one of the two comes second, and sees what the first one did.
//! - **FK-4** The table at the other end is locked with an intention until the transaction ends, also if the
//!   caller keeps tables by means of its own: those concern the tables that a statement names.
//!
//! As in InnoDB, rows are checked one by one and at once; NO ACTION is RESTRICT.

use std::sync::Arc;

use crate::base::{Error, ReferenceError, Result};
use crate::catalog::{Child, OpenTable, ReferentialAction};
use crate::lock::TableMode;
use crate::row::{Datum, DatumBuf, RowRef};
use crate::txn::Transaction;

use super::cursor::{Cursor, KeyMatch, LockMode};
use super::write::{Cascade, CurrentRow, delete_row_by, update_row_by};

/// A change of a child is made by that of its parent, which is made by …: at most so many (InnoDB's
/// `FK_MAX_CASCADE_DEL`).
const MOST_CASCADES: u32 = 15;
/// So often the other end of a link is looked up again when it turns out to be dropped.
const MOST_TRIES: u32 = 100;

fn reference(table: &str, constraint: &str, parent: &str) -> Box<ReferenceError> {
    Box::new(ReferenceError {
        table: table.to_string(),
        constraint: constraint.to_string(),
        parent: parent.to_string(),
    })
}

/// Checks the foreign keys whose index in the child is number `index`: the row with these values is about to
/// get its entry there.
pub(super) fn check_parents(
    trx: &mut Transaction,
    table: &OpenTable,
    index: usize,
    values: &[Datum<'_>],
    by: Cascade<'_>,
) -> Result<()> {
    if table.foreign.is_empty() || !trx.checks_foreign_keys() {
        return Ok(());
    }
    for (number, own) in table.foreign.iter().enumerate() {
        let is_due = own.index == index && !by.comes_from(table, number);
        let key: Vec<Datum<'_>> = own.columns.iter().map(|&column| values[column]).collect();
        if is_due && key.iter().all(Option::is_some) {
            check_parent(trx, table, number, &key)?;
        }
    }
    Ok(())
}

fn check_parent(
    trx: &mut Transaction,
    table: &OpenTable,
    number: usize,
    key: &[Datum<'_>],
) -> Result<()> {
    let foreign = &table.def.foreign_keys[number];
    for _ in 0..MOST_TRIES {
        let Some(link) = table.links.parent(number) else {
            break;
        };
        let Some(parent) = locked(trx, link.table.upgrade(), TableMode::IntentionShared)? else {
            continue;
        };
        let mut cursor = Cursor::open(parent, link.index)?;
        if cursor.seek(trx, key, KeyMatch::Exact, LockMode::Shared)? {
            return Ok(());
        }
        break;
    }
    let names = reference(&table.def.name, &foreign.name, &foreign.parent);
    Err(Error::NoReferencedRow(names))
}

/// The table at the other end, locked. `None`: it was dropped or replaced meanwhile, look again.
fn locked(
    trx: &mut Transaction,
    table: Option<Arc<OpenTable>>,
    mode: TableMode,
) -> Result<Option<Arc<OpenTable>>> {
    let Some(table) = table else {
        return Ok(None);
    };
    trx.lock_table(table.id(), mode)?;
    Ok((!table.is_dropped()).then_some(table))
}

/// The row `old` is deleted, or has these new values: sees to its children.
pub(super) fn see_to_children(
    trx: &mut Transaction,
    table: &OpenTable,
    old: &RowRef<'_>,
    new: Option<&[Datum<'_>]>,
    by: Cascade<'_>,
) -> Result<()> {
    if !table.links.has_children() || !trx.checks_foreign_keys() {
        return Ok(());
    }
    for child in table.links.children().iter() {
        let its = &child.parent_columns;
        let key: Vec<Datum<'_>> = its.iter().map(|&column| old.get(column)).collect();
        let is_same = |new: &[Datum<'_>]| its.iter().zip(&key).all(|(&c, old)| new[c] == *old);
        if new.is_some_and(is_same) || key.iter().any(Option::is_none) {
            continue;
        }
        see_to(trx, table, child, &key, new, by)?;
    }
    Ok(())
}

fn see_to(
    trx: &mut Transaction,
    table: &OpenTable,
    child: &Child,
    key: &[Datum<'_>],
    new: Option<&[Datum<'_>]>,
    by: Cascade<'_>,
) -> Result<()> {
    let action = match new {
        None => child.key.on_delete,
        Some(_) => child.key.on_update,
    };
    let (mode, lock) = match action.refuses() {
        true => (TableMode::IntentionShared, LockMode::Shared),
        false => (TableMode::IntentionExclusive, LockMode::Exclusive),
    };
    // A child that was dropped or replaced has others look at the links again: none can have come to this
    // row meanwhile, which is locked.
    let Some(its) = locked(trx, child.table.upgrade(), mode)? else {
        return match table
            .links
            .children()
            .iter()
            .find(|c| c.key.name == child.key.name)
        {
            Some(again) if !std::ptr::eq(&**again, child) => {
                see_to(trx, table, again, key, new, by)
            }
            _ => Ok(()),
        };
    };
    let mut cursor = Cursor::open(its.clone(), child.index)?;
    let mut found = cursor.seek(trx, key, KeyMatch::Exact, lock)?;
    if !found {
        return Ok(());
    }
    let constraint = &child.key.name;
    if action.refuses() {
        let names = reference(&its.def.name, constraint, &child.key.parent);
        return Err(Error::RowIsReferenced(names));
    }
    let number = its
        .def
        .foreign_keys
        .iter()
        .position(|k| k.name == *constraint);
    let by = Cascade {
        depth: by.depth + 1,
        from: number.map(|number| (&*its, number)),
    };
    if by.depth > MOST_CASCADES {
        let names = reference(&its.def.name, constraint, &child.key.parent);
        return Err(Error::CascadeTooDeep(names));
    }
    while found {
        follow(trx, &its, child, &mut cursor, action, new, by)?;
        trx.check_interrupt()?;
        found = cursor.next_same(trx)?;
    }
    Ok(())
}

/// The child's row that the cursor is on follows its parent.
fn follow(
    trx: &mut Transaction,
    table: &Arc<OpenTable>,
    child: &Child,
    cursor: &mut Cursor,
    action: ReferentialAction,
    new: Option<&[Datum<'_>]>,
    by: Cascade<'_>,
) -> Result<()> {
    let new = match (action, new) {
        (ReferentialAction::Cascade, None) => {
            let current = cursor.current(trx)?;
            return delete_row_by(trx, table, current, by);
        }
        (ReferentialAction::Cascade, new) => new,
        _ => None,
    };
    let mut values = DatumBuf::new();
    let row = cursor.row()?;
    for column in 0..table.def.columns.len() {
        let at = child.columns.iter().position(|&own| own == column);
        let value = match at {
            Some(at) => new.and_then(|new| new[child.parent_columns[at]]),
            None => row.get(column),
        };
        values.push(value);
    }
    let current: CurrentRow<'_> = cursor.current(trx)?;
    update_row_by(trx, table, current, &values.datums(), by).map(drop)
}
