//! What a client of the rows load can do with a database, whichever way leads into it: SQL or the library.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::ops::RangeInclusive;

use crate::journal::Ddl;

/// Tables that all clients share, each with rows of its own in them.
pub const SHARED: [&str; 4] = ["mix_0", "mix_1", "mix_2", "mix_3"];

#[derive(Clone, Copy, Debug)]
pub enum Level {
    ReadUncommitted,
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

pub const LEVELS: [Level; 4] = [
    Level::ReadUncommitted,
    Level::ReadCommitted,
    Level::RepeatableRead,
    Level::Serializable,
];

/// One statement on the client's own rows.
#[derive(Debug)]
pub struct Statement {
    pub verb: Verb,
    pub table: String,
    pub keys: RangeInclusive<u32>,
    /// What it writes: everything in a row follows from its client, its key and its version.
    pub version: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    Insert,
    /// Inserts a key, or replaces its row.
    Replace,
    /// Inserts a key, or updates its row.
    Upsert,
    /// Changes the rows that are there.
    Update,
    Delete,
}

/// Why something was not done.
#[derive(Debug)]
pub enum Failure {
    /// A deadlock, a lock wait timeout, a table that has changed: the transaction has to be rolled back.
    Conflict(String),
    /// Of the statement nothing is done.
    Duplicate,
    /// No space: of the statement nothing is done.
    Full(String),
    /// The connection broke.
    Lost(String),
    /// Nothing that may happen.
    Wrong(String),
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(why) => write!(f, "a conflict: {why}"),
            Self::Duplicate => f.write_str("a duplicate key"),
            Self::Full(why) => write!(f, "no space: {why}"),
            Self::Lost(why) => write!(f, "connection lost: {why}"),
            Self::Wrong(why) => f.write_str(why),
        }
    }
}

pub type Outcome<T> = Result<T, Failure>;

/// One client's connection.
pub trait Store {
    fn begin(&mut self, level: Level) -> Outcome<()>;
    fn commit(&mut self) -> Outcome<()>;
    fn rollback(&mut self) -> Outcome<()>;
    /// Savepoints are numbered from 0 within the transaction.
    fn savepoint(&mut self, number: usize) -> Outcome<()>;
    fn rollback_to(&mut self, number: usize) -> Outcome<()>;
    /// A transaction of its own if none has begun.
    fn change(&mut self, statement: &Statement) -> Outcome<()>;
    /// The client's own rows by key, each with its version; `Wrong` if something else in a row does not
    /// follow from them.
    fn read(&mut self, table: &str) -> Outcome<BTreeMap<u32, u64>>;
    /// A transaction that sees what is committed now.
    fn begin_view(&mut self) -> Outcome<()>;
    /// By each index: how many rows the transaction sees in the table, and what all of them adds up to.
    fn sums(&mut self, table: &str) -> Outcome<Vec<String>>;
    fn ddl(&mut self, ddl: &Ddl) -> Outcome<()>;
    /// A conflict if it can't be emptied in time.
    fn truncate_undo(&mut self, number: u32) -> Outcome<()>;
    /// All tables of the load.
    fn tables(&mut self) -> Outcome<Vec<String>>;
    /// The structure of a table and the agreement of its indexes.
    fn check(&mut self, table: &str) -> Outcome<()>;
}
