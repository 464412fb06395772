//! The C ABI of Varve. `include/varve.h` is generated from this crate and says everything a C program has to
//! know.
//!
//! - `error`: codes, this thread's last error, the wrapper that stops panics (CAPI-1).
//! - `value`: `varve_value`, the one representation of a column's value, and slices of it.
//! - `choice`: enums that the caller passes.
//! - `collation`: collations that the caller brings.
//! - `definition`: table definitions as plain structs.
//! - `catalog`: stored definitions, open tables, tablespaces.
//! - `foreign`: foreign keys, of definitions and of open tables.
//! - `redefinition`: definitions that change while the rows stay.
//! - `load`: rows of a table that is being made.
//! - `backup`: copies of a database in use, and databases made of them.
//! - `export`: files of tables on their way to other databases.
//! - `database`, `table`, `txn`, `cursor`: the handles.
//! - `flush`, `history`, `pool_dump`, `encryption`, `change_buffer`: options that may change while a database
//!   is open.
//! - `rows`: what a cursor hands to C.
//! - `prepared`: two-phase commit.
//! - `progress`: how far calls that take long have come.
//! - `value_source`: values that the engine asks for when it makes a row by itself.
//! - `statistics`: what is known of tables, to be stored by the caller.
//! - `memcached`: the memcached protocol on rows of the caller's.
//! - `monitor`: metrics and a live page over HTTP.
//! - `status`: metrics, undo tablespaces.
//! - `transactions`: those that run, who waits for whom, texts for people.
//!
//! - **CAPI-1** No call unwinds into C. A panic poisons the database that the handle belongs to and returns
//!   `VARVE_POISONED`.
//! - **CAPI-2** A pointer that the caller gives is either documented as optional or must be valid; nothing
//!   here can check the latter. That is the contract behind every `SAFETY` comment of this crate.
#![allow(unsafe_code, non_camel_case_types)]
#![allow(clippy::missing_safety_doc)] // CAPI-2 is the contract of all of them.

pub mod backup;
pub mod catalog;
pub mod change_buffer;
pub mod choice;
pub mod collation;
pub mod cursor;
pub mod database;
pub mod definition;
pub mod encryption;
pub mod error;
pub mod export;
pub mod flush;
pub mod foreign;
pub mod history;
pub mod instruments;
pub mod load;
pub mod memcached;
mod memcached_rows;
pub mod monitor;
pub mod pool_dump;
pub mod prepared;
pub mod progress;
pub mod redefinition;
mod rows;
pub mod statistics;
pub mod status;
pub mod table;
pub mod transactions;
pub mod txn;
pub mod value;
pub mod value_source;
