//! A child's row that follows its parent: it is deleted, or its columns get other values.
//!
//! The row may have columns that the engine can't fill: computed ones, and the times of its history. Their
//! values are asked for ([`ValueSource`](crate::txn::ValueSource)). With history, a row that would be deleted
//! becomes a row of the past (HIST-1); one that changes leaves what it was as such a row, unless only columns
//! change of which there is no history.

use std::sync::Arc;

use crate::base::{Error, Result};
use crate::catalog::{ChildKey, OpenTable, ReferentialAction, SystemTime};
use crate::row::{Datum, DatumBuf, RowRef};
use crate::txn::{Transaction, ValueSource};

use super::cursor::{Cursor, KeyMatch, LockMode};
use super::foreign::Cascade;
use super::write::{OnDuplicate, delete_row_by, insert_row_by, update_row_by};

/// The child's row that the cursor is on follows its parent, which is deleted or has the values `new`.
pub(super) fn follow(
    trx: &mut Transaction,
    table: &Arc<OpenTable>,
    child: &ChildKey,
    cursor: &Cursor,
    action: ReferentialAction,
    new: Option<&[Datum<'_>]>,
    by: Cascade<'_>,
) -> Result<()> {
    let new = match (action, new) {
        (ReferentialAction::Cascade, None) => return leave(trx, table, cursor, by),
        (ReferentialAction::Cascade, new) => new,
        _ => None,
    };
    let row = cursor.row()?;
    let own = &table.foreign[child.number].columns;
    let mut values = with_values(all_of(&row), |column| {
        let at = own.iter().position(|&own| own == column)?;
        Some(new.and_then(|new| new[child.parent_columns[at]]))
    });
    values = compute(trx, table, values)?;
    // NULL where the child takes none, or a value that is too long for it.
    if table.format.check(&values.datums()).is_err() {
        return Err(Error::RowIsReferenced(table.reference(child.number)));
    }
    if let Some(time) = &table.def.system_time
        && makes_history(time, &row, &values.datums())
    {
        let now = trx.value_source(table)?.statement_time()?;
        keep_history(trx, table, time, &row, &now, by)?;
        let is_start = |column| (column == time.start).then_some(Some(&now[..]));
        values = compute(
            trx,
            table,
            with_values(values.datums().iter().copied(), is_start),
        )?;
    }
    let done = update_row_by(trx, table, cursor.current(trx)?, &values.datums(), by);
    done.map(drop).map_err(|e| as_childs(table, e))
}

fn all_of<'r>(row: &'r RowRef<'_>) -> impl Iterator<Item = Datum<'r>> {
    (0..row.len()).map(|column| row.get(column))
}

/// The row, but for the values that `other` has.
fn with_values<'r, 'a>(
    row: impl Iterator<Item = Datum<'r>>,
    other: impl Fn(usize) -> Option<Datum<'a>>,
) -> DatumBuf {
    let mut values = DatumBuf::new();
    for (column, value) in row.enumerate() {
        values.push(other(column).unwrap_or(value));
    }
    values
}

/// The row with its computed columns computed. They may be made of the times, too: to be called when these
/// are set.
fn compute(trx: &Transaction, table: &OpenTable, row: DatumBuf) -> Result<DatumBuf> {
    let columns = &table.def.computed;
    if columns.is_empty() {
        return Ok(row);
    }
    let source = trx.value_source(table)?;
    let row = row.datums();
    let computed = computed_of(&*source, table, &row, columns)?;
    let computed = computed.datums();
    Ok(with_values(row.iter().copied(), |column| {
        let at = columns.iter().position(|&computed| computed == column)?;
        Some(computed[at])
    }))
}

/// The values of these columns in a row of the table, or of one that takes its place.
pub(super) fn computed_of(
    source: &dyn ValueSource,
    table: &OpenTable,
    row: &[Datum<'_>],
    columns: &[usize],
) -> Result<DatumBuf> {
    let computed = source.computed(&table.def.name, row, columns)?;
    one_for_each(computed, columns, table)
}

/// The values that these columns of the table that takes this one's place have for this row, the `n`th.
pub(super) fn converted_of(
    source: &dyn ValueSource,
    table: &OpenTable,
    row: &[Datum<'_>],
    columns: &[usize],
    n: u64,
) -> Result<DatumBuf> {
    let converted = source.converted(&table.def.name, row, columns, n)?;
    one_for_each(converted, columns, table)
}

fn one_for_each(values: DatumBuf, columns: &[usize], table: &OpenTable) -> Result<DatumBuf> {
    match values.len() == columns.len() {
        true => Ok(values),
        false => Err(Error::invalid(format!(
            "{} values for {} computed columns of table {}",
            values.len(),
            columns.len(),
            table.def.name
        ))),
    }
}

fn makes_history(time: &SystemTime, old: &RowRef<'_>, new: &[Datum<'_>]) -> bool {
    let is_changed = |column: usize| new[column] != old.get(column);
    (0..new.len()).any(|column| is_changed(column) && !time.unversioned.contains(&column))
}

/// The row, which is true no longer.
fn past_row(
    trx: &Transaction,
    table: &OpenTable,
    time: &SystemTime,
    row: &RowRef<'_>,
    now: &[u8],
) -> Result<DatumBuf> {
    let is_end = |column| (column == time.end).then_some(Some(now));
    compute(trx, table, with_values(all_of(row), is_end))
}

/// The row as it was until now stays as a row of the past. It is there already if the statement's transaction
/// has made one at this time.
fn keep_history(
    trx: &mut Transaction,
    table: &Arc<OpenTable>,
    time: &SystemTime,
    row: &RowRef<'_>,
    now: &[u8],
    by: Cascade<'_>,
) -> Result<()> {
    let past = past_row(trx, table, time, row, now)?;
    let past = past.datums();
    match insert_row_by(trx, table, &past, OnDuplicate::LockShared, by) {
        Err(Error::DuplicateKey { index }) if is_own_history(trx, table, &index, &past)? => Ok(()),
        done => done.map_err(|e| as_childs(table, e)),
    }
}

/// The row is deleted or, with history, true no longer.
fn leave(
    trx: &mut Transaction,
    table: &Arc<OpenTable>,
    cursor: &Cursor,
    by: Cascade<'_>,
) -> Result<()> {
    let current = cursor.current(trx)?;
    let Some(time) = &table.def.system_time else {
        return delete_row_by(trx, table, current, by);
    };
    let now = trx.value_source(table)?.statement_time()?;
    let past = past_row(trx, table, time, &cursor.row()?, &now)?;
    match update_row_by(trx, table, current, &past.datums(), by) {
        // What it was is kept already.
        Err(Error::ForeignDuplicateKey { table: its, .. }) if its == table.def.name => {
            delete_row_by(trx, table, current, by)
        }
        done => done.map(drop).map_err(|e| as_childs(table, e)),
    }
}

/// An update failed with `e`. If the row was to become history, and has become it already by this
/// transaction at the same time, it is a foreign key that has done it: `ForeignDuplicateKey`.
#[cold]
pub(super) fn unless_own_history(
    trx: &mut Transaction,
    table: &Arc<OpenTable>,
    values: &[Datum<'_>],
    e: Error,
) -> Error {
    match &e {
        Error::DuplicateKey { index } => match is_own_history(trx, table, index, values) {
            Ok(true) => as_childs(table, e),
            Ok(false) => e,
            Err(why) => why,
        },
        _ => e,
    }
}

/// Whether what is in the way of this row of the past, in this index, is another one that this transaction
/// has written.
fn is_own_history(
    trx: &mut Transaction,
    table: &Arc<OpenTable>,
    index: &str,
    values: &[Datum<'_>],
) -> Result<bool> {
    let number = table.def.index_number(index);
    let Some(number) = number.filter(|_| table.def.is_history(values)) else {
        return Ok(false);
    };
    let codec = &table.index_at(number)?.codec;
    let key: Vec<Datum<'_>> = codec.columns().map(|column| values[column]).collect();
    let mut cursor = Cursor::open(table.clone(), number)?;
    let found = cursor.seek(trx, &key, KeyMatch::Exact, LockMode::Shared)?;
    Ok(found && Some(cursor.writer()?) == trx.id() && table.def.is_history_row(&cursor.row()?))
}

/// A duplicate key of a child is not one of the table that the statement changes.
fn as_childs(table: &OpenTable, e: Error) -> Error {
    match e {
        Error::DuplicateKey { index } => Error::ForeignDuplicateKey {
            table: table.def.name.clone(),
            index,
        },
        e => e,
    }
}
