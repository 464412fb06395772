//! Varve: a transactional storage engine with clustered B+trees, MVCC through undo logs and a purge that keeps up.

pub mod base;
#[doc(hidden)]
pub mod btree;
#[doc(hidden)]
pub mod buffer;
#[doc(hidden)]
pub mod catalog;
#[doc(hidden)]
pub mod flush;
#[doc(hidden)]
pub mod io;
pub mod lock;
#[doc(hidden)]
pub mod mtr;
#[doc(hidden)]
pub mod page;
#[doc(hidden)]
pub mod redo;
#[doc(hidden)]
pub mod row;
#[doc(hidden)]
pub mod space;
#[doc(hidden)]
pub mod txn;

pub use base::{Error, Result};
pub use catalog::{IndexDef, TableDef};
pub use row::{
    Collation, CollationId, Collations, ColumnDef, ColumnType, Datum, DatumBuf, KeyPart, Pad,
    RowRef, Value, Weigh,
};
