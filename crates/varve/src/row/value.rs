//! Typed values for people who write Rust, and their way to datums and back, checked against the column.
//!
//! Conversions never guess: an integer column takes integers in its range, `Double` also takes `Float`,
//! `Text` also takes bytes (its character set need not be UTF-8), and nothing else is converted. Errors name
//! the column, its type and the value.

use std::fmt;

use crate::base::{Error, Result};

use super::{ColumnDef, ColumnType, Datum, DatumBuf, RowRef};

/// A value of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Int(i64),
    UInt(u64),
    Float(f32),
    Double(f64),
    Bytes(Vec<u8>),
    Text(String),
}

impl Value {
    /// Appends this value to `out` as a datum of `column`.
    pub fn encode(&self, column: &ColumnDef, out: &mut DatumBuf) -> Result<()> {
        let wrong = || Err(mismatch(column, self));
        match (column.ty, self) {
            (_, Value::Null) => {
                column.check(None)?;
                out.push(None);
                Ok(())
            }
            (ColumnType::Int { bytes, signed }, Value::Int(v)) => {
                push_int(column, bytes, signed, *v as i128, out)
            }
            (ColumnType::Int { bytes, signed }, Value::UInt(v)) => {
                push_int(column, bytes, signed, *v as i128, out)
            }
            (ColumnType::Float, Value::Float(v)) => push(column, &v.to_le_bytes(), out),
            (ColumnType::Double, Value::Double(v)) => push(column, &v.to_le_bytes(), out),
            (ColumnType::Double, Value::Float(v)) => push(column, &(*v as f64).to_le_bytes(), out),
            (ColumnType::Fixed(_) | ColumnType::Bytes(_), Value::Bytes(v)) => push(column, v, out),
            (ColumnType::Text { .. }, Value::Text(v)) => push(column, v.as_bytes(), out),
            (ColumnType::Text { .. }, Value::Bytes(v)) => push(column, v, out),
            _ => wrong(),
        }
    }

    /// The value of a datum of `column`. Text that is not UTF-8 comes as `Bytes`.
    pub fn decode(column: &ColumnDef, datum: Datum<'_>) -> Result<Value> {
        column.check(datum)?;
        let Some(bytes) = datum else {
            return Ok(Value::Null);
        };
        Ok(match column.ty {
            ColumnType::Int { signed, .. } => {
                let negative = signed && bytes.last().is_some_and(|b| b & 0x80 != 0);
                let mut word = if negative { [0xff; 8] } else { [0; 8] };
                word[..bytes.len()].copy_from_slice(bytes);
                if signed {
                    Value::Int(i64::from_le_bytes(word))
                } else {
                    Value::UInt(u64::from_le_bytes(word))
                }
            }
            ColumnType::Float => {
                Value::Float(f32::from_le_bytes(bytes.try_into().expect("checked above")))
            }
            ColumnType::Double => {
                Value::Double(f64::from_le_bytes(bytes.try_into().expect("checked above")))
            }
            ColumnType::Fixed(_) | ColumnType::Bytes(_) => Value::Bytes(bytes.to_vec()),
            ColumnType::Text { .. } => match str::from_utf8(bytes) {
                Ok(text) => Value::Text(text.into()),
                Err(_) => Value::Bytes(bytes.to_vec()),
            },
        })
    }
}

impl RowRef<'_> {
    /// The value of the column at position `column`. Panics if there is no such column.
    pub fn value(&self, column: usize) -> Result<Value> {
        Value::decode(&self.format().columns()[column], self.get(column))
    }

    /// All values in definition order.
    pub fn values(&self) -> Result<Vec<Value>> {
        (0..self.len()).map(|c| self.value(c)).collect()
    }
}

fn push(column: &ColumnDef, bytes: &[u8], out: &mut DatumBuf) -> Result<()> {
    column.check(Some(bytes))?;
    out.push(Some(bytes));
    Ok(())
}

fn push_int(
    column: &ColumnDef,
    bytes: u8,
    signed: bool,
    v: i128,
    out: &mut DatumBuf,
) -> Result<()> {
    let bits = bytes as u32 * 8;
    let (low, high) = if signed {
        (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    } else {
        (0, (1i128 << bits) - 1)
    };
    if v < low || v > high {
        return Err(Error::invalid(format!(
            "value {v} is out of range for column {} ({}, {low} to {high})",
            column.name, column.ty
        )));
    }
    out.push(Some(&v.to_le_bytes()[..bytes as usize]));
    Ok(())
}

#[cold]
fn mismatch(column: &ColumnDef, value: &Value) -> Error {
    let kind = match value {
        Value::Null => "NULL",
        Value::Int(_) | Value::UInt(_) => "an integer",
        Value::Float(_) | Value::Double(_) => "a floating point number",
        Value::Bytes(_) => "bytes",
        Value::Text(_) => "text",
    };
    Error::invalid(format!(
        "column {} ({}) does not take {kind}",
        column.name, column.ty
    ))
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ColumnType::Int { bytes, signed } => {
                let sign = if *signed { 'i' } else { 'u' };
                write!(f, "{sign}{}", *bytes as u32 * 8)
            }
            ColumnType::Float => write!(f, "float"),
            ColumnType::Double => write!(f, "double"),
            ColumnType::Fixed(n) => write!(f, "fixed({n})"),
            ColumnType::Bytes(n) => write!(f, "bytes({n})"),
            ColumnType::Text { max_bytes, .. } => write!(f, "text({max_bytes})"),
        }
    }
}

macro_rules! value_from {
    ($($from:ty => $make:expr;)*) => {
        $(impl From<$from> for Value {
            fn from(v: $from) -> Value {
                #[allow(clippy::redundant_closure_call, reason = "one macro for conversions of all kinds")]
                ($make)(v)
            }
        })*
    };
}

value_from! {
    i8 => |v| Value::Int(v as i64);
    i16 => |v| Value::Int(v as i64);
    i32 => |v| Value::Int(v as i64);
    i64 => Value::Int;
    u8 => |v| Value::UInt(v as u64);
    u16 => |v| Value::UInt(v as u64);
    u32 => |v| Value::UInt(v as u64);
    u64 => Value::UInt;
    f32 => Value::Float;
    f64 => Value::Double;
    &str => |v: &str| Value::Text(v.into());
    String => Value::Text;
    &[u8] => |v: &[u8]| Value::Bytes(v.into());
    Vec<u8> => Value::Bytes;
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(v: Option<T>) -> Value {
        v.map_or(Value::Null, Into::into)
    }
}
