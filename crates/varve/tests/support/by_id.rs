//! Rows by their ids, for tests of tables whose primary key is one `i64`.

use varve::{Cursor, KeyMatch, LockMode, Table, Transaction};

/// Goes to a row, locked exclusively. `false`: it is not there.
pub fn lock(trx: &mut Transaction, cursor: &mut Cursor, id: i64) -> varve::Result<bool> {
    let key = id.to_le_bytes();
    cursor.seek(trx, &[Some(&key)], KeyMatch::Exact, LockMode::Exclusive)
}

/// Deletes a row, if it is there.
pub fn delete(trx: &mut Transaction, table: &Table, id: i64) -> varve::Result<bool> {
    let mut cursor = table.cursor(0)?;
    let is_there = lock(trx, &mut cursor, id)?;
    if is_there {
        trx.delete(table, &cursor)?;
    }
    Ok(is_there)
}
