//! Varve: a transactional storage engine with clustered B+trees, MVCC through undo logs and a purge that keeps up.
//!
//! A [`Database`] is a directory. Its tables are typed ([`TableDef`]): a clustered primary key or a hidden row id, and
//! secondary indexes that the engine keeps. Rows are read and changed in a [`Transaction`] through a [`Cursor`] over one
//! index; values are [`Datum`]s, or typed [`Value`]s that are checked against the column.
//!
//! ```
//! use varve::{ColumnType, Database, Isolation, KeyMatch, LockMode, Options, TableDef};
//!
//! # fn main() -> varve::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! let db = Database::open(dir.path(), Options::default())?;
//! let table = db.create_table(
//!     &TableDef::new("shop/item")
//!         .column("name", ColumnType::text(100))
//!         .column("stock", ColumnType::i64())
//!         .primary(&["name"])
//!         .index("by_stock", &["stock"]),
//! )?;
//! let mut trx = db.begin(Isolation::RepeatableRead);
//! trx.insert(&table, &table.def().row(&["lamp".into(), 12.into()])?.datums())?;
//! trx.commit()?;
//!
//! let mut trx = db.begin(Isolation::RepeatableRead);
//! let mut cursor = table.cursor(0)?;
//! let found = cursor.seek(&mut trx, &[Some(b"lamp")], KeyMatch::Exact, LockMode::Exclusive)?;
//! assert!(found);
//! trx.update(&table, &cursor, &table.def().row(&["lamp".into(), 11.into()])?.datums())?;
//! trx.commit()?;
//! db.close()
//! # }
//! ```
//!
//! Readers wait for nobody: they see what was committed when their view opened ([`Isolation`]). Writers lock rows and
//! wait for each other at most the lock wait timeout; a deadlock ends with [`Error::Deadlock`] for one of them.
//! [`Error`] says what a caller can do about each failure.

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
