//! What an AUTO_INCREMENT counter has to be beyond: the greatest value in the rows.

use std::sync::Arc;

use crate::base::Result;
use crate::catalog::OpenTable;
use crate::row::{ColumnType, Datum};
use crate::txn::Transaction;

use super::build::reader;
use super::cursor::{Cursor, LockMode};

/// What follows the greatest value that moves the table's counter; 1 if none does. Nobody changes the table
/// meanwhile; `of` says how long to wait.
pub fn after_greatest_counted(of: &Transaction, table: &Arc<OpenTable>) -> Result<u64> {
    let Some((counted, index, descending)) = index_of_counted(table) else {
        return Ok(1);
    };
    let ty = table.def.columns[counted].ty;
    let mut reader = reader(of);
    let mut cursor = Cursor::open(table.clone(), index)?;
    let mut wanted = vec![false; table.def.columns.len()];
    wanted[counted] = true;
    cursor.set_wanted_columns(Some(&wanted));
    let mut found = match descending {
        true => cursor.first(&mut reader, LockMode::None)?,
        false => cursor.last(&mut reader, LockMode::None)?,
    };
    while found {
        let row = cursor.row()?;
        let values: Vec<Datum<'_>> = (0..row.len()).map(|column| row.get(column)).collect();
        if let Some(value) = table.auto_increment_value(&values) {
            return Ok(value.saturating_add(1));
        }
        if !is_too_great(ty, values[counted]) {
            return Ok(1);
        }
        found = match descending {
            true => cursor.next(&mut reader)?,
            false => cursor.prev(&mut reader)?,
        };
    }
    Ok(1)
}

/// The AUTO_INCREMENT column, the number of an index that begins with it, and whether its values fall there.
fn index_of_counted(table: &OpenTable) -> Option<(usize, usize, bool)> {
    let counted = table.def.auto_increment?;
    let first_parts = table.def.all_indexes().map(|index| index.parts.first());
    let mut begins = first_parts
        .enumerate()
        .filter_map(|(number, part)| Some((number, part?)));
    let (number, part) = begins.find(|(_, part)| part.column == counted)?;
    Some((counted, number, part.descending))
}

/// Whether a value moves no counter because floating-point numbers of its size don't have all integers. No
/// other one that moves none is greater than those that do.
fn is_too_great(ty: ColumnType, value: Datum<'_>) -> bool {
    let number = match (ty, value) {
        (ColumnType::Float, Some(bytes)) => bytes
            .try_into()
            .map(|bytes| f64::from(f32::from_le_bytes(bytes))),
        (ColumnType::Double, Some(bytes)) => bytes.try_into().map(f64::from_le_bytes),
        _ => return false,
    };
    number.is_ok_and(|number| number > 1.0)
}
