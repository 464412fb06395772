//! The key of a lock in words: the values of its columns, as far as they can be told.

use std::fmt::Write;

use crate::btree::Seek;
use crate::catalog::{OpenIndex, OpenTable, RowRecord};
use crate::row::{DatumBuf, Forms, KeyCodec, RowRef, Value};

/// The values of a key, those of the index and behind them those of the clustered key: numbers, texts in
/// quotes, bytes in hexadecimal. What the key does not give back is looked up. If there is no such record,
/// and in a key that is not whole, the rest is in hexadecimal as it stands there.
pub fn key_text(table: &OpenTable, index: &OpenIndex, key: &[u8]) -> String {
    let clustered = &table.clustered;
    let mut values = Vec::new();
    let mut at = 0;
    if index.id == clustered.id {
        with_record(index, key, |payload| {
            let row = payload.and_then(|payload| {
                RowRef::new(&table.format, RowRecord::decode(payload)?.row).ok()
            });
            let mut forms = Forms::new(index.codec.texts(), 0);
            let put = push_values(
                table,
                &index.codec,
                key,
                &mut forms,
                row.as_ref(),
                &mut values,
            );
            at = put.unwrap_or(0);
        });
    } else {
        let flags = with_record(index, key, |payload| {
            payload
                .and_then(|payload| index.entry(payload))
                .map_or(0, |entry| entry.forms())
        });
        let texts = index.codec.texts() + clustered.codec.texts();
        let mut forms = Forms::new(texts, flags);
        for codec in [&index.codec, &clustered.codec] {
            match push_values(table, codec, &key[at..], &mut forms, None, &mut values) {
                Some(len) => at += len,
                None => break,
            }
        }
    }
    if at < key.len() {
        values.push(hex(&key[at..]));
    }
    values.join(", ")
}

pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::from("0x");
    for byte in bytes {
        write!(out, "{byte:02X}").expect("a string takes everything");
    }
    out
}

/// Calls `f` with the payload of the index's record with this key, under its leaf's latch; `None`: there is
/// none, or it can't be read.
fn with_record<R>(index: &OpenIndex, key: &[u8], f: impl FnOnce(Option<&[u8]>) -> R) -> R {
    match index.latch_leaf(key, Seek::Ge, 1) {
        Ok(leaf) if leaf.exact() => f(Some(leaf.slotted().payload(leaf.at()))),
        _ => f(None),
    }
}

/// Appends the values of the codec's parts of `key`. Returns how many bytes these take; `None`, and nothing
/// is appended, if not all are there.
fn push_values(
    table: &OpenTable,
    codec: &KeyCodec,
    key: &[u8],
    forms: &mut Forms,
    row: Option<&RowRef<'_>>,
    values: &mut Vec<String>,
) -> Option<usize> {
    let (mut ends, mut datums) = (Vec::new(), DatumBuf::new());
    codec.part_ends(key, 0, &mut ends).ok()?;
    codec.decode(key, u32::MAX, forms, &mut datums).ok()?;
    let mut start = 0;
    for (n, (column, end)) in codec.columns().zip(&ends).enumerate() {
        let def = &table.def.columns[column];
        let in_row = || row.and_then(|row| row.value(column).ok());
        let value = match datums.get(n) {
            None => in_row(),
            datum => Value::decode(def, datum).ok(),
        };
        values.push(match value {
            Some(value) => value_text(&value),
            // The mark alone.
            None if end - start == 1 => "NULL".into(),
            None => hex(&key[start..*end]),
        });
        start = *end;
    }
    Some(start)
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Null => "NULL".into(),
        Value::Int(v) => v.to_string(),
        Value::UInt(v) => v.to_string(),
        Value::Float(v) => v.to_string(),
        Value::Double(v) => v.to_string(),
        Value::Bytes(bytes) => hex(bytes),
        Value::Text(text) => format!("'{}'", text.replace('\'', "''")),
    }
}
