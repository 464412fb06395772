//! Varve: a transactional storage engine with clustered B+trees, MVCC through undo logs and a purge that
//! keeps up.
//!
//! A [`Database`] is a directory; a process may have several open. Its tables are typed ([`TableDef`]): a
//! clustered primary key or a hidden row id, and secondary indexes that the engine keeps. Rows are read and
//! changed in a [`Transaction`], by key and by range:
//!
//! ```
//! use varve::{ColumnType, Database, Isolation, Options, TableDef, values};
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
//! table.insert(&mut trx, values!["lamp", 12])?;
//! table.set(&mut trx, values!["lamp"], &[("stock", 11.into())])?;
//! trx.commit()?;
//!
//! let mut trx = db.begin(Isolation::RepeatableRead);
//! for row in table.range(&mut trx, 0, values!["a"]..values!["m"])? {
//!     assert_eq!(row?.get::<i64>("stock")?, 11);
//! }
//! db.close()
//! # }
//! ```
//!
//! That is made of [`Cursor`]s over one index, which find and lock rows one by one, and of [`Datum`]s, the
//! stored bytes of values. Programs that want every microsecond, or locks of their choice, keep a cursor and
//! use it directly:
//!
//! ```
//! # use varve::{ColumnType, Database, Isolation, KeyMatch, LockMode, Options, TableDef};
//! # fn main() -> varve::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let db = Database::open(dir.path(), Options::default())?;
//! # let def = TableDef::new("shop/item").column("name", ColumnType::text(100));
//! # let table = db.create_table(&def.column("stock", ColumnType::i64()).primary(&["name"]))?;
//! # let mut trx = db.begin(Isolation::RepeatableRead);
//! # trx.insert(&table, &table.def().row(&["lamp".into(), 12.into()])?.datums())?;
//! let mut cursor = table.cursor(0)?;
//! let found = cursor.seek(&mut trx, &[Some(b"lamp")], KeyMatch::Exact, LockMode::Exclusive)?;
//! assert!(found);
//! trx.update(&table, &cursor, &table.def().row(&["lamp".into(), 11.into()])?.datums())?;
//! trx.commit()
//! # }
//! ```
//!
//! # Threads
//!
//! [`Database`] and [`Table`] are handles: `Clone`, `Send` and `Sync`. A [`Transaction`], a [`Cursor`] and
//! [`Rows`] belong to one thread at a time; they may be sent to another. A transaction may be used with any
//! number of cursors.
//!
//! Plain reads wait for nobody: they see what was committed when their view opened, unless the transaction is
//! to be serializable ([`Isolation`]). Writers lock rows, and the gaps between those they looked for, and
//! wait for each other at most the lock wait timeout; a deadlock ends with [`Error::Deadlock`] for one of
//! them. [`Error`] says what a caller can do about each failure.

// A user gets what this file names, and can name every type that a public signature has. The feature
// `internals` opens the modules to tests and tools.
#![cfg_attr(not(feature = "internals"), deny(unnameable_types))]
// A module's face also names what only tests and tools use.
#![cfg_attr(not(feature = "internals"), allow(unused_imports))]

pub mod backup;
mod base;
mod btree;
mod buffer;
mod catalog;
mod db;
mod ddl;
mod encryption;
mod flush;
mod history;
#[cfg(feature = "internals")]
pub mod internals;
mod io;
mod lock;
mod mtr;
pub mod offline;
mod page;
mod purge;
mod recovery;
mod redo;
mod row;
mod space;
mod stats;
mod table;
mod txn;
mod undo;

pub use base::instruments::{FileOperation, Instruments, MeasuredThread, Memory, set_instruments};
pub use base::{
    BadForeignKey, Error, IndexId, Lsn, NoParent, PageId, PageNo, Phase, Progress, ReferenceError,
    Result, SpaceId, TableId, TrxId, TrxNo, Watch, Xid,
};
pub use buffer::{ChangeBufferOptions, ChangeBuffering, PageContent, PooledPage};
pub use catalog::{ForeignKey, IndexDef, IndexEstimate, ReferentialAction, SystemTime, TableDef};
pub use db::{
    BackupState, Database, FromValue, Kept, LockInfo, LockWaitInfo, Metric, MetricKind, OldView,
    Options, PoolDumpOptions, PoolDumpStatus, PreparedRedefinition, PurgeStanding,
    RedefinitionWaits, Reference, ReferencedParent, RotationOptions, RotationProgress, Row, Rows,
    RunningBackup, Standing, StoreRoom, Table, TableExport, TransactionInfo, TransactionState,
    UndoTablespace, ViewInfo,
};
pub use ddl::{ConstraintPrefix, ForeignKeyChecks};
pub use encryption::{Encryption, EncryptionKeys, EncryptionMode, KeyFile};
pub use flush::FlushOptions;
pub use io::FlushMethod;
pub use lock::SessionText;
pub use page::{Algorithm as CompressionAlgorithm, Compression, PageType};
pub use recovery::Progress as RecoveryProgress;
pub use row::{
    Collation, CollationId, ColumnDef, ColumnType, Datum, DatumBuf, FindCollation, GoneColumn,
    KeyField, KeyPart, Letters, MAX_KEY_BYTES, MOST_FORMS, Pad, RowRef, Value, Weigh,
};
pub use space::{SpaceEncryption, Stage as EncryptionStage};
pub use stats::{NullsInKeys, Statistic, TableStatistics};
pub use table::{
    CheckReport, Cursor, EntryFilter, KeyMatch, LockMode, OnDuplicate, Peeked, PeekedEntry,
    TableLoad,
};
pub use txn::{
    AutoIncLock, FlushLog, HistoryOptions, Interrupt, Isolation, LogLevel, Logger, PurgeOptions,
    PurgeState, Savepoint, Transaction, ValueSource,
};
pub use undo::UndoSpaceState;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// What the crate's documentation promises under "Threads".
    #[test]
    fn handles_are_shared_and_the_rest_can_be_sent() {
        fn shared<T: Send + Sync + Clone>() {}
        fn sent<T: Send>() {}
        shared::<Database>();
        shared::<Table>();
        shared::<Interrupt>();
        sent::<Transaction>();
        sent::<Cursor>();
        sent::<Rows<'_>>();
        sent::<Row>();
    }
}
