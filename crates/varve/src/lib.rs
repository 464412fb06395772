//! Varve: a transactional storage engine with clustered B+trees, MVCC through undo logs and a purge that keeps up.

pub mod base;
#[doc(hidden)]
pub mod btree;
#[doc(hidden)]
pub mod buffer;
#[doc(hidden)]
pub mod catalog;
mod db;
#[doc(hidden)]
pub mod ddl;
#[doc(hidden)]
pub mod flush;
#[doc(hidden)]
pub mod io;
#[doc(hidden)]
pub mod lock;
#[doc(hidden)]
pub mod mtr;
#[doc(hidden)]
pub mod page;
#[doc(hidden)]
pub mod purge;
#[doc(hidden)]
pub mod recovery;
#[doc(hidden)]
pub mod redo;
#[doc(hidden)]
pub mod row;
#[doc(hidden)]
pub mod space;
#[doc(hidden)]
pub mod table;
#[doc(hidden)]
pub mod txn;
#[doc(hidden)]
pub mod undo;

pub use base::{Error, Result};
pub use catalog::{IndexDef, TableDef};
pub use db::{Database, Options, Table};
pub use row::{
    Collation, CollationId, Collations, ColumnDef, ColumnType, Datum, DatumBuf, FindCollation,
    KeyPart, Pad, RowRef, Value, Weigh,
};
pub use table::{CheckReport, Cursor, KeyMatch, LockMode, OnDuplicate};
pub use txn::{FlushLog, Interrupt, Isolation, LogLevel, Logger, Savepoint, Transaction};
