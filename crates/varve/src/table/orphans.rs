//! Rows whose parent is missing. Such were written while foreign keys were not checked; or FK-3 was broken.

use std::sync::Arc;

use crate::base::Result;
use crate::catalog::OpenTable;
use crate::row::{Datum, Value};
use crate::txn::Transaction;

use super::cursor::{Cursor, KeyMatch, LockMode};
use super::foreign::{parent_of, stay_in_the_present};

fn shown(value: Value) -> String {
    match value {
        Value::Int(n) => n.to_string(),
        Value::UInt(n) => n.to_string(),
        Value::Text(text) => format!("'{text}'"),
        other => format!("{other:?}"),
    }
}

/// Tells about each of the table's foreign keys that rows have no parent by. The transaction is to see what
/// was committed last.
pub fn find_orphans(
    trx: &mut Transaction,
    table: &Arc<OpenTable>,
    tell: &mut dyn FnMut(String),
) -> Result<()> {
    for (number, own) in table.foreign.iter().enumerate() {
        let Some((parent, index)) = parent_of(trx, table, number)? else {
            let names = table.reference(number);
            tell(format!(
                "{names}: table {} is not there, or has no index that begins with the columns referred to, so rows were not looked at",
                names.parent
            ));
            continue;
        };
        // Without an index (FK-1) rows come in the order of the primary key.
        let own_index = own.index.unwrap_or(0);
        let codecs = [(table, own_index), (&parent, index)];
        let mut codecs = codecs
            .iter()
            .filter_map(|(t, index)| t.indexes().nth(*index));
        if !codecs.all(|index| index.codec.is_computable()) {
            continue;
        }
        let mut children = Cursor::open(table.clone(), own_index)?;
        let mut parents = Cursor::open(parent.clone(), index)?;
        let (mut last, mut is_missing, mut missing) = (Vec::new(), false, 0u64);
        let mut first = String::new();
        let mut more = children.first(trx, LockMode::None)?;
        while more {
            trx.check_interrupt()?;
            let row = children.row()?;
            if table.def.is_history_row(&row) {
                more = children.next(trx)?;
                continue;
            }
            let key: Vec<Datum<'_>> = own.columns.iter().map(|&column| row.get(column)).collect();
            let is_same = last.len() == key.len()
                && last
                    .iter()
                    .zip(&key)
                    .all(|(last, key): (&Option<Vec<u8>>, _)| last.as_deref() == *key);
            if !is_same {
                let has_parent = key.iter().any(Option::is_none) || {
                    let found = parents.seek(trx, &key, KeyMatch::Exact, LockMode::None)?;
                    stay_in_the_present(trx, &mut parents, &parent, found)?
                };
                is_missing = !has_parent;
                last = key.iter().map(|value| value.map(<[u8]>::to_vec)).collect();
                if is_missing && missing == 0 {
                    let values = own
                        .columns
                        .iter()
                        .map(|&column| row.value(column).map(shown));
                    first = values.collect::<Result<Vec<_>>>()?.join(", ");
                }
            }
            missing += u64::from(is_missing);
            more = children.next(trx)?;
        }
        if missing > 0 {
            let names = table.reference(number);
            tell(format!(
                "{names}: {missing} row(s) have no parent in table {}, the first of them by ({first}); they were \
                 written while foreign keys were not checked",
                names.parent
            ));
        }
    }
    Ok(())
}
