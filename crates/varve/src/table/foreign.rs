//! Foreign keys at work: a row that gets a parent, and a parent that goes or gets another key.
//!
//! *Child*: before a row's entry in the index of a foreign key is made, the parent is looked for and locked
//! shared. It is then what it is until the transaction ends. If one of the columns is NULL there is nothing
//! to look for (MATCH SIMPLE, which InnoDB takes every MATCH for).
//!
//! *Parent*: after a row is deleted or has got another key, its children are looked for in the index of their
//! foreign key, by the old key. Those that follow (CASCADE, SET NULL) are locked exclusively. A child that
//! stays, and whose entry is committed, refuses without a lock; one whose transaction has not ended is waited
//! for by a shared lock. That each child's change does the same for its own children makes the recursion, all
//! within the operation that began it: if anything fails, all is taken back.
//!
//! - **FK-3** When a transaction has ended that has checked foreign keys, each of its rows whose columns are
//!   not NULL has a parent. Whoever inserts a child locks the parent's row shared, whoever deletes the parent
//!   has locked it exclusively: one of the two comes second, and sees what the first one did.
//! - **FK-4** The table at the other end is locked with an intention until the transaction ends, also if the
//!   caller keeps tables by means of its own: those concern the tables that a statement names.
//! - **FK-5** No lock stays in a table that was dropped, or put aside for a copy, while it was waited for:
//!   what is put aside is dropped next, and the server does not hear of it if that fails.
//!
//! As in InnoDB, rows are checked one by one and at once, by the foreign keys of one index after the other,
//! of each in the order of names: the first one that is broken is told of. NO ACTION is RESTRICT. Rows of the
//! past don't count (HIST-1).

use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::base::{Error, Result, Sabotage, TableId};
use crate::catalog::{ChildColumns, ChildKey, End, OpenTable, ReferentialAction, schema_of};
use crate::lock::TableMode;
use crate::row::{Datum, RowRef};
use crate::txn::Transaction;

use super::cursor::{Cursor, KeyMatch, LockMode};
use super::follow::follow;
use super::unique::has_settled_entry;

/// A change of a child is made by that of its parent, which is made by …: at most so many. InnoDB refuses the
/// one that is its `FK_MAX_CASCADE_DEL`th.
const MOST_CASCADES: u32 = 14;

/// How long the name of a table is nobody's while ALTER TABLE puts its copy there, about.
const VACANCY: Duration = Duration::from_millis(1);

type Key<'a> = SmallVec<[Datum<'a>; 4]>;

/// How a change came about: a statement's, or one that follows the change of a parent.
#[derive(Clone, Copy, Default)]
pub(super) struct Cascade<'a> {
    pub depth: u32,
    /// The foreign key by which it came: its table, and its number there. What it says is so already.
    pub from: Option<(&'a OpenTable, usize)>,
    /// The tables whose rows are being updated on the way here.
    pub updated: Option<&'a Updated<'a>>,
    /// The row that gets another primary key: its entries are gone, and made anew one after the other.
    moved: Option<&'a RowRef<'a>>,
    /// The row that gets other values in its place: its entries follow one after the other.
    changed: Option<&'a RowRef<'a>>,
}

/// A table one of whose rows is being updated, and those above it.
pub(super) struct Updated<'a> {
    pub table: TableId,
    pub above: Option<&'a Updated<'a>>,
}

impl<'a> Cascade<'a> {
    pub fn moving(self, old: &'a RowRef<'a>) -> Cascade<'a> {
        let moved = Some(old);
        Cascade { moved, ..self }
    }

    pub fn changing(self, old: &'a RowRef<'a>) -> Cascade<'a> {
        let changed = Some(old);
        Cascade { changed, ..self }
    }

    pub fn comes_from(&self, table: &OpenTable, number: usize) -> bool {
        let is = |(from, n): (&OpenTable, usize)| from.id() == table.id() && n == number;
        self.from.is_some_and(is)
    }

    pub fn updates(&self, table: TableId) -> bool {
        let mut at = self.updated;
        while let Some(updated) = at {
            if updated.table == table {
                return true;
            }
            at = updated.above;
        }
        false
    }
}

/// Checks the foreign keys whose index in the child is number `index`: the row with these values is about to
/// get its entry there. `None`: those without an index (FK-1), when it has got all of them.
pub(super) fn check_parents(
    trx: &mut Transaction,
    table: &OpenTable,
    index: Option<usize>,
    values: &[Datum<'_>],
    by: Cascade<'_>,
) -> Result<()> {
    if table.foreign.is_empty() || !trx.checks_foreign_keys() || table.def.is_history(values) {
        return Ok(());
    }
    for &number in &table.foreign_by_name {
        let own = &table.foreign[number];
        // It is its own parent, whose entry may be made later on.
        let is_own_parent =
            |old| own_reference(table, number, old, values) == Some(OwnReference::Stays);
        let finds_itself = |old| has_wanted_entry(table, number, old, values);
        if own.index != index
            || table.def.foreign_keys[number].kept
            || by.comes_from(table, number)
            || by.moved.is_some_and(is_own_parent)
            || by.changed.is_some_and(finds_itself)
        {
            continue;
        }
        let key: Key<'_> = own.columns.iter().map(|&column| values[column]).collect();
        if key.iter().all(Option::is_some) {
            check_parent(trx, table, number, &key)?;
        }
    }
    Ok(())
}

/// Whether a row that is getting `values` refers by this foreign key to the key that it had before. Until the
/// entry of that follows, after that of the foreign key, it is there to be found; but a search passes over an
/// entry that says something else than its row. If the key changes, too, the row is its own child then, and
/// refuses.
fn has_wanted_entry(
    table: &OpenTable,
    number: usize,
    old: &RowRef<'_>,
    values: &[Datum<'_>],
) -> bool {
    let Some((parent_columns, parent_index)) = end_in_itself(table, number) else {
        return false;
    };
    let own = &table.foreign[number];
    let mut ends = own.columns.iter().zip(&parent_columns);
    own.index.is_some_and(|own| parent_index >= own)
        && ends.all(|(&own, &its)| values[own].is_some() && values[own] == old.get(its))
}

/// A row of the past that comes back needs its parents again, whichever of its entries stay.
pub(super) fn check_parents_again(
    trx: &mut Transaction,
    table: &OpenTable,
    old: &RowRef<'_>,
    values: &[Datum<'_>],
    by: Cascade<'_>,
) -> Result<()> {
    if !table.def.is_history_row(old) || table.def.is_history(values) {
        return Ok(());
    }
    let indexes = (0..=table.secondary.len()).map(Some);
    let mut all = indexes.chain([None]);
    all.try_for_each(|index| check_parents(trx, table, index, values, by))
}

/// The row has other values now than `old`. A foreign key without an index has no entry with which its parent
/// would have been looked for (FK-1).
pub(super) fn check_parents_without_index(
    trx: &mut Transaction,
    table: &OpenTable,
    old: &RowRef<'_>,
    values: &[Datum<'_>],
    by: Cascade<'_>,
) -> Result<()> {
    let changes = |own: &ChildColumns| own.columns.iter().any(|&c| values[c] != old.get(c));
    let mut keys = table.foreign.iter();
    match keys.any(|own| own.index.is_none() && changes(own)) {
        true => check_parents(trx, table, None, values, by),
        false => Ok(()),
    }
}

fn check_parent(
    trx: &mut Transaction,
    table: &OpenTable,
    number: usize,
    key: &[Datum<'_>],
) -> Result<()> {
    let is_sabotaged = |sabotage| trx.core().log.is_sabotaged(sabotage);
    if is_sabotaged(Sabotage::ParentNotLookedFor) {
        return Ok(());
    }
    let lock = match is_sabotaged(Sabotage::ParentNotLocked) {
        true => LockMode::None,
        false => LockMode::Shared,
    };
    let missing = || Error::NoReferencedRow(table.reference(number));
    let Some((parent, index)) = parent_of(trx, table, number)? else {
        return Err(missing());
    };
    let mut cursor = Cursor::open(parent.clone(), index)?;
    let found = cursor.seek(trx, key, KeyMatch::Exact, lock);
    match found.and_then(|found| stay_in_the_present(trx, &mut cursor, &parent, found)) {
        Ok(true) => Ok(()),
        Err(e @ Error::TooLarge { .. }) => Err(e),
        // Else no row of the parent can have these values at all.
        Err(e) if parent.encode_search(index, key, &mut Vec::new()).is_ok() => Err(e),
        _ => Err(missing()),
    }
}

/// Goes on from rows of the past to one that is true now; `found`: the cursor is on a row.
pub(super) fn stay_in_the_present(
    trx: &mut Transaction,
    cursor: &mut Cursor,
    table: &OpenTable,
    mut found: bool,
) -> Result<bool> {
    if table.def.system_time.is_none() {
        return Ok(found);
    }
    while found && table.def.is_history_row(&cursor.row()?) {
        found = cursor.next_same(trx)?;
    }
    Ok(found)
}

/// Waits for ALTER TABLE to put a copy in a table's place, as long as locks may be waited for from `since`
/// on.
fn wait_for_copy(trx: &Transaction, since: &mut Option<Instant>) -> Result<()> {
    trx.check_interrupt()?;
    if since.get_or_insert_with(Instant::now).elapsed() >= trx.lock_wait_timeout() {
        return Err(Error::LockWaitTimeout);
    }
    std::thread::sleep(VACANCY);
    Ok(())
}

/// The parent by this foreign key, kept from DDL, and the number of its index; `None`: there is none that
/// fits. One that has stepped aside for another one is waited for.
pub(super) fn parent_of(
    trx: &mut Transaction,
    table: &OpenTable,
    number: usize,
) -> Result<Option<(Arc<OpenTable>, usize)>> {
    let (mut since, mut tried) = (None, None);
    loop {
        match trx.core().tables.parent_of(table, number)? {
            End::Open((parent, index)) => {
                if trx.lock_other_table(&parent, TableMode::IntentionShared)? {
                    let key = &table.links.keys()[number];
                    debug_assert_eq!(parent.def.name, key.parent, "FK-2");
                    return Ok(Some((parent, index)));
                }
                wait_for_ddl(trx, table, &mut tried, parent)?;
            }
            End::Vacant => wait_for_copy(trx, &mut since)?,
            End::Nobody => return Ok(None),
        }
    }
}

/// The table `end` at the other end of a foreign key is dropped: there is another one, or none, when the DDL
/// statement that did it has ended (FK-2). Fails if it was waited for already.
fn wait_for_ddl(
    trx: &Transaction,
    table: &OpenTable,
    tried: &mut Option<Arc<OpenTable>>,
    end: Arc<OpenTable>,
) -> Result<()> {
    if tried.as_ref().is_some_and(|tried| Arc::ptr_eq(tried, &end)) {
        return Err(Error::not_found(format!(
            "the table at the other end of a foreign key of table {}",
            table.def.name
        )));
    }
    *tried = Some(end);
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
    if trx.core().log.is_sabotaged(Sabotage::ChildrenForgotten) || table.def.is_history_row(old) {
        return Ok(());
    }
    let here = Updated {
        table: table.id(),
        above: by.updated,
    };
    let by = Cascade {
        updated: new.map(|_| &here).or(by.updated),
        ..by
    };
    let concerned = |key: &ChildKey| is_concerned(key, old, new);
    let mut children = children_of(trx, table, concerned, new)?;
    if children.len() > 1 {
        children.sort_by(|a, b| a.order().cmp(&b.order()));
    }
    let mut children = children.iter();
    children.try_for_each(|Child { its, keys, at }| see_to(trx, its, &keys[*at], old, new, by))
}

/// A foreign key of an open child, which is locked.
struct Child {
    its: Arc<OpenTable>,
    keys: Arc<[ChildKey]>,
    /// Which of the keys it is.
    at: usize,
}

impl Child {
    /// By the parent's index, then by name.
    fn order(&self) -> (Option<usize>, &str, &str) {
        let key = &self.keys[self.at];
        let name = &self.its.def.foreign_keys[key.number].name;
        (key.parent_index, schema_of(&self.its.def.name), name)
    }
}

/// Opens and locks the children by these foreign keys, for a row that goes, or gets the values `new`.
fn children_of(
    trx: &mut Transaction,
    table: &OpenTable,
    concerned: impl Fn(&ChildKey) -> bool,
    new: Option<&[Datum<'_>]>,
) -> Result<SmallVec<[Child; 2]>> {
    let (mut since, mut tried) = (None, None);
    // If one of the children was dropped or replaced, all are looked at again.
    'again: loop {
        let mut children = SmallVec::new();
        let links = table.links.children();
        for link in links.iter() {
            if link.keys().is_some_and(|keys| !keys.iter().any(&concerned)) {
                continue;
            }
            let (its, keys) = match trx.core().tables.child_of(table, link)? {
                End::Open(child) => child,
                End::Vacant => {
                    wait_for_copy(trx, &mut since)?;
                    continue 'again;
                }
                End::Nobody if !Arc::ptr_eq(&links, &table.links.children()) => continue 'again,
                // It can't be used.
                End::Nobody => continue,
            };
            for (at, key) in keys.iter().enumerate() {
                if !concerned(key) {
                    continue;
                }
                let mode = match action(&its, key, new).refuses() {
                    true => TableMode::IntentionShared,
                    false => TableMode::IntentionExclusive,
                };
                if !trx.lock_other_table(&its, mode)? {
                    wait_for_ddl(trx, table, &mut tried, its)?;
                    continue 'again;
                }
                let (its, keys) = (its.clone(), keys.clone());
                children.push(Child { its, keys, at });
            }
        }
        return Ok(children);
    }
}

/// Whether rows may have been children of `old` by this foreign key, and are not if it becomes `new`.
fn is_concerned(key: &ChildKey, old: &RowRef<'_>, new: Option<&[Datum<'_>]>) -> bool {
    let its = &key.parent_columns;
    let is_same = |new: &[Datum<'_>]| its.iter().all(|&c| new[c] == old.get(c));
    !new.is_some_and(is_same) && its.iter().all(|&c| old.get(c).is_some())
}

/// A row that refers to itself can't get another key, unless it refers to something else then: it is in its
/// own way, as in InnoDB, which says so of rows that are deleted and inserted again by that.
pub(super) fn check_own_reference(
    trx: &Transaction,
    table: &OpenTable,
    old: &RowRef<'_>,
    new: &[Datum<'_>],
) -> Result<()> {
    if !table.links.has_children() || !trx.checks_foreign_keys() {
        return Ok(());
    }
    for number in table.foreign_keys_to(&table.def.name) {
        if own_reference(table, number, old, new) == Some(OwnReference::Breaks) {
            return Err(Error::RowIsReferenced(table.reference(number)));
        }
    }
    Ok(())
}

/// The columns to which this foreign key refers, and the number of their index, if they are in its own table.
fn end_in_itself(table: &OpenTable, number: usize) -> Option<(Vec<usize>, usize)> {
    let key = &table.links.keys()[number];
    let is_own = key.parent == table.def.name;
    is_own.then(|| table.def.parent_index(key, &table.def).ok())?
}

#[derive(PartialEq, Eq)]
enum OwnReference {
    /// The columns at both ends stay what they are.
    Stays,
    /// Those that are referred to change, those that refer don't.
    Breaks,
}

/// What becomes of the reference of a row to itself by this foreign key when the row gets `new` values.
/// `None`: it has none, or will refer to something else.
fn own_reference(
    table: &OpenTable,
    number: usize,
    old: &RowRef<'_>,
    new: &[Datum<'_>],
) -> Option<OwnReference> {
    let (parent_columns, _) = end_in_itself(table, number)?;
    let own = &table.foreign[number].columns;
    let mut ends = own.iter().zip(&parent_columns);
    let refers = ends.all(|(&own, &its)| old.get(own).is_some() && old.get(own) == old.get(its));
    let stays = |columns: &[usize]| columns.iter().all(|&column| new[column] == old.get(column));
    match stays(&parent_columns) {
        _ if !refers || !stays(own) => None,
        true => Some(OwnReference::Stays),
        false => Some(OwnReference::Breaks),
    }
}

fn action(its: &OpenTable, child: &ChildKey, new: Option<&[Datum<'_>]>) -> ReferentialAction {
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
    child: &ChildKey,
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
    let Some(number) = its.foreign[child.number].index else {
        return Err(Error::RowIsReferenced(its.reference(child.number)));
    };
    let mut prefix = Vec::new();
    match its.encode_search(number, &key, &mut prefix) {
        Ok(()) => {}
        Err(e @ Error::TooLarge { .. }) => return Err(e),
        // No row of the child can have these values.
        Err(_) => return Ok(()),
    }
    let is_entry_enough = action.refuses() && its.def.system_time.is_none();
    if let (true, Some(before)) = (is_entry_enough, number.checked_sub(1)) {
        // Who changes other columns of a child is not waited for.
        if has_settled_entry(trx, &its.secondary[before], &prefix)? {
            return Err(Error::RowIsReferenced(its.reference(child.number)));
        }
    }
    let mut cursor = Cursor::open(its.clone(), number)?;
    let found = cursor.seek(trx, &key, KeyMatch::Exact, lock)?;
    let mut found = stay_in_the_present(trx, &mut cursor, its, found)?;
    if !found {
        return Ok(());
    }
    let deletes = action == ReferentialAction::Cascade && new.is_none();
    // As InnoDB: a chain of updates that comes back to a table would go on for ever.
    if action.refuses() || (!deletes && by.updates(its.id())) {
        return Err(Error::RowIsReferenced(its.reference(child.number)));
    }
    let by = Cascade {
        depth: by.depth + 1,
        from: Some((its, child.number)),
        ..by
    };
    if by.depth > MOST_CASCADES {
        return Err(Error::CascadeTooDeep(its.reference(child.number)));
    }
    while found {
        follow(trx, its, child, &cursor, action, new, by)?;
        trx.check_interrupt()?;
        let more = cursor.next_same(trx)?;
        found = stay_in_the_present(trx, &mut cursor, its, more)?;
    }
    Ok(())
}
