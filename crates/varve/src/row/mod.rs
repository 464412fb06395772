//! Columns, rows and keys: how values become bytes, and bytes become values again.
//!
//! A row is an array of [`Datum`]s in column order. Three codecs work on it:
//!
//! * [`RowFormat`] turns a row into the bytes of a clustered record and reads any column of them in
//!   constant time, rows of older schema versions included ([`RowRef`]);
//! * [`KeyCodec`] turns the columns of an index into one byte string whose `memcmp` order is the order
//!   of the index, so that the tree never needs to know a type or a collation;
//! * [`Value`] is for people who write Rust: typed values, checked against the column.
//!
//! Nothing here does I/O, takes a latch or knows a page. Bytes that come from disk are checked once
//! ([`RowRef::new`], [`KeyCodec::decode`]) and never cause a panic: what is wrong is told as a [`Damage`],
//! which the caller, who knows the page, turns into `Error::Corrupt`.

mod collation;
mod datum_buf;
mod external;
mod format;
mod key;
mod key_fields;
mod key_len;
mod letters;
mod memcmp;
mod row_ref;
mod segments;
mod types;
mod value;

#[cfg(test)]
mod tests;

pub use collation::{Collation, CollationId, Collations, FindCollation, Letters, Pad, Weigh};
pub use datum_buf::DatumBuf;
pub use external::{EXTERNAL_REF_BYTES, ExternalRef, ExternalValues};
pub use format::{MAX_ROW_BYTES, MAX_SHORT_BYTES, Moved, RowFormat};
pub use key::{
    KeyCodec, MAX_KEY_BYTES, MAX_KEY_PARTS, MAX_KEY_SOURCE_BYTES, ROW_ID_BYTES, Readable,
    put_row_id, row_id_of, successor,
};
pub use key_fields::KeyField;
pub use letters::{FORM_BITS, Forms, MOST_FORMS};
pub use row_ref::RowRef;
pub use types::{ColumnDef, ColumnType, Damage, Datum, GoneColumn, KeyPart};
pub use value::Value;
