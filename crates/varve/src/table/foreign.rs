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

use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use crate::base::{Error, Result};
use crate::catalog::{Child, OpenTable, Parent, ReferentialAction};
use crate::lock::TableMode;
use crate::row::{Datum, DatumBuf, RowRef};
use crate::txn::Transaction;

use super::cursor::{Cursor, KeyMatch, LockMode};
use super::write::{Cascade, CurrentRow, delete_row_by, update_row_by};

/// A change of a child is made by that of its parent, which is made by …: at most so many (InnoDB's
/// `FK_MAX_CASCADE_DEL`).
const MOST_CASCADES: u32 = 15;

type Key<'a> = SmallVec<[Datum<'a>; 4]>;

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
        if own.index != index || by.comes_from(table, number) {
            continue;
        }
        let key: Key<'_> = own.columns.iter().map(|&column| values[column]).collect();
        if key.iter().all(Option::is_some) {
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
    let mut tried: Option<Arc<Parent>> = None;
    while let Some(link) = table.links.parent(number) {
        let mode = TableMode::IntentionShared;
        let Some(parent) = locked(trx, &link.table, |_| mode)? else {
            wait_for_ddl(trx, table, &mut tried, link)?;
            continue;
        };
        debug_assert_eq!(parent.def.name, table.links.parent_names()[number], "FK-2");
        let mut cursor = Cursor::open(parent, link.index)?;
        if cursor.seek(trx, key, KeyMatch::Exact, LockMode::Shared)? {
            return Ok(());
        }
        break;
    }
    Err(Error::NoReferencedRow(table.reference(number)))
}

/// The table at the other end of a link, locked. `None`: it is dropped.
fn locked(
    trx: &mut Transaction,
    table: &Weak<OpenTable>,
    mode: impl FnOnce(&OpenTable) -> TableMode,
) -> Result<Option<Arc<OpenTable>>> {
    let Some(table) = table.upgrade() else {
        return Ok(None);
    };
    trx.lock_table(table.id(), mode(&table))?;
    Ok((!table.is_dropped()).then_some(table))
}

/// The table at the other end of `link` is dropped: `table` has other links when the DDL statement that did
/// it has ended (FK-2). Fails if it was waited for already.
fn wait_for_ddl<L>(
    trx: &Transaction,
    table: &OpenTable,
    tried: &mut Option<Arc<L>>,
    link: Arc<L>,
) -> Result<()> {
    if tried
        .as_ref()
        .is_some_and(|tried| Arc::ptr_eq(tried, &link))
    {
        return Err(Error::not_found(format!(
            "the table at the other end of a foreign key of table {}",
            table.def.name
        )));
    }
    *tried = Some(link);
    drop(trx.core().tables.serialize_ddl());
    Ok(())
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
    let mut tried = None;
    // If one of the children was dropped or replaced, all are looked at again. Those that have followed are
    // not found any more, and none can have come to this row, which is locked.
    'again: loop {
        for child in table.links.children().iter() {
            let its = &child.parent_columns;
            let is_same = |new: &[Datum<'_>]| its.iter().all(|&c| new[c] == old.get(c));
            if new.is_some_and(is_same) || its.iter().any(|&c| old.get(c).is_none()) {
                continue;
            }
            let mode = |its: &OpenTable| match action(its, child, new).refuses() {
                true => TableMode::IntentionShared,
                false => TableMode::IntentionExclusive,
            };
            let Some(its) = locked(trx, &child.table, mode)? else {
                wait_for_ddl(trx, table, &mut tried, child.clone())?;
                continue 'again;
            };
            see_to(trx, &its, child, old, new, by)?;
        }
        return Ok(());
    }
}

fn action(its: &OpenTable, child: &Child, new: Option<&[Datum<'_>]>) -> ReferentialAction {
    let key = &its.def.foreign_keys[child.number];
    match new {
        None => key.on_delete,
        Some(_) => key.on_update,
    }
}

/// Sees to the rows of one child, which is locked.
fn see_to(
    trx: &mut Transaction,
    its: &Arc<OpenTable>,
    child: &Child,
    old: &RowRef<'_>,
    new: Option<&[Datum<'_>]>,
    by: Cascade<'_>,
) -> Result<()> {
    let action = action(its, child, new);
    let lock = match action.refuses() {
        true => LockMode::Shared,
        false => LockMode::Exclusive,
    };
    let key: Key<'_> = child.parent_columns.iter().map(|&c| old.get(c)).collect();
    let mut cursor = Cursor::open(its.clone(), its.foreign[child.number].index)?;
    let mut found = cursor.seek(trx, &key, KeyMatch::Exact, lock)?;
    if !found {
        return Ok(());
    }
    if action.refuses() {
        return Err(Error::RowIsReferenced(its.reference(child.number)));
    }
    let by = Cascade {
        depth: by.depth + 1,
        from: Some((its, child.number)),
    };
    if by.depth > MOST_CASCADES {
        return Err(Error::CascadeTooDeep(its.reference(child.number)));
    }
    while found {
        follow(trx, its, child, &mut cursor, action, new, by)?;
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
    let own = &table.foreign[child.number].columns;
    for column in 0..table.def.columns.len() {
        let at = own.iter().position(|&own| own == column);
        let value = match at {
            Some(at) => new.and_then(|new| new[child.parent_columns[at]]),
            None => row.get(column),
        };
        values.push(value);
    }
    let current: CurrentRow<'_> = cursor.current(trx)?;
    update_row_by(trx, table, current, &values.datums(), by).map(drop)
}
