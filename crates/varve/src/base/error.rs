//! The one public error. Each kind is something a caller can do something about; the C ABI maps each kind to
//! one code. Messages say what happened, to what, and what to do.

use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, io};

use super::PageId;

/// What comes of an operation that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed. Each kind is one that a caller can do something about.
#[derive(Clone, Debug)]
pub enum Error {
    /// Bytes on disk are not what was written: which page, what was expected, what was found.
    Corrupt {
        page: PageId,
        expected: String,
        found: String,
    },
    /// A damaged file that is not made of pages (control file, redo log, doublewrite file).
    CorruptFile {
        path: PathBuf,
        expected: String,
        found: String,
    },
    /// The operating system refused an operation.
    Io {
        op: &'static str,
        path: PathBuf,
        source: Arc<io::Error>,
    },
    /// A change failed halfway, or a thread panicked: the database refuses work until it is reopened.
    Poisoned { why: String },
    /// Another row has the same key in this unique index.
    DuplicateKey { index: String },
    /// A table can't get this foreign key, or be its parent.
    BadForeignKey(Box<BadForeignKey>),
    /// Another table of the schema has a foreign key of this name: that one is named.
    ConstraintExists(Box<ReferenceError>),
    /// A row of a child would get a key that another one has in this unique index, if it followed its parent.
    ForeignDuplicateKey { table: String, index: String },
    /// A foreign key of the row's table has no row to refer to in the parent.
    NoReferencedRow(Box<ReferenceError>),
    /// A row can't go, or get another key: a foreign key of another row refers to it.
    RowIsReferenced(Box<ReferenceError>),
    /// A table can't be dropped or emptied: a foreign key of another table refers to it.
    TableIsReferenced(Box<ReferenceError>),
    /// Changes of children by those of their parents go deeper than they may.
    CascadeTooDeep(Box<ReferenceError>),
    /// Waited longer than the lock wait timeout. The statement was rolled back, the transaction lives.
    LockWaitTimeout,
    /// This transaction was chosen as the victim of a deadlock and must be rolled back.
    Deadlock,
    /// The transaction's row locks, with those of others, take all the memory that they may. Roll it back;
    /// lock fewer rows at a time.
    LockTableFull,
    /// The statement was interrupted (KILL).
    Interrupted,
    /// No such table, index, column, savepoint … `what` names it.
    NotFound { what: String },
    /// Such a table … exists already.
    AlreadyExists { what: String },
    /// A row or key is longer than the format allows, with the limit in bytes.
    TooLarge {
        what: String,
        size: usize,
        limit: usize,
    },
    /// No room: disk full, no free undo slot, buffer pool too small for the pinned pages.
    NoSpace { what: String },
    /// The database was opened to be read only; the message says why.
    ReadOnly { why: String },
    /// Argument that can't be used; the message says which and why.
    Invalid { what: String },
    /// Something that the format or the caller asks for, but this version does not do.
    Unsupported { what: String },
    /// Another process has this data directory open.
    InUse { path: PathBuf },
    /// While this index was built, more of its table's rows were changed than there is room to note.
    TooManyChanges { index: String, limit: usize },
    /// A row has NULL in this column, which is to take none: the `row`th that was looked at.
    NullValue { column: String, row: u64 },
    /// The table's definition is newer than this transaction's read view.
    DefinitionChanged { table: String },
    /// The table's rows were discarded: import a file, or drop the table.
    TablespaceDiscarded { table: String },
    /// A file that is to be imported has the rows of a table that is defined otherwise: the first difference.
    SchemaMismatch { what: String },
    /// There is no key for what is encrypted, or is to be; or it is another key than that of what was read.
    NoKey { what: String },
}

/// Which foreign key refused a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceError {
    /// The table that has the foreign key.
    pub table: String,
    /// The foreign key's name.
    pub constraint: String,
    pub parent: String,
}

impl fmt::Display for ReferenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "foreign key {} of table {}", self.constraint, self.table)
    }
}

/// A foreign key that can't be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadForeignKey {
    pub key: ReferenceError,
    pub why: NoParent,
}

/// Why a table can't be the parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoParent {
    /// There is none of this name.
    Table,
    /// It has no such column.
    Column(String),
    /// The child's column, and the parent's, have different types.
    Types {
        column: String,
        parent_column: String,
    },
    /// No index of it begins with the columns referred to, whole and in this order.
    Index,
}

impl fmt::Display for NoParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoParent::Table => write!(f, "it does not exist"),
            NoParent::Column(column) => write!(f, "it has no column {column}"),
            NoParent::Types {
                column,
                parent_column,
            } => write!(
                f,
                "its column {parent_column} and the child's column {column} have different types"
            ),
            NoParent::Index => write!(
                f,
                "no index of it begins with the columns referred to, whole and in this order; add one"
            ),
        }
    }
}

impl Error {
    pub fn corrupt(page: PageId, expected: impl Into<String>, found: impl Into<String>) -> Error {
        Error::Corrupt {
            page,
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// Damage of a page, or that it can't be decrypted: names the file that it was read from, too. Other
    /// errors stay what they are.
    pub fn in_file(mut self, file: &str) -> Error {
        match &mut self {
            Error::Corrupt { found, .. } => {
                found.push_str(" in ");
                found.push_str(file);
            }
            Error::NoKey { what } => *what = format!("{file}: {what}"),
            _ => {}
        }
        self
    }

    /// What the operating system refused. A full disk, a quota or the largest file size is `NoSpace`: there
    /// is something that a caller can do about it.
    pub fn io(op: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Error {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let path = path.into();
        if matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge) {
            let what = format!("{op} {}: {source}", path.display());
            return Error::NoSpace { what };
        }
        Error::Io {
            op,
            path,
            source: Arc::new(source),
        }
    }

    /// The process or the system has too many files open, or no memory, at the moment: what was refused can
    /// be tried again once something else was closed. Nothing was done, and nothing is damaged.
    pub fn is_out_of_means(&self) -> bool {
        let Error::Io { source, .. } = self else {
            return false;
        };
        let code = source.raw_os_error();
        code.is_some_and(|code| [libc::EMFILE, libc::ENFILE, libc::ENOMEM].contains(&code))
    }

    pub fn invalid(what: impl Into<String>) -> Error {
        Error::Invalid { what: what.into() }
    }

    pub fn unsupported(what: impl Into<String>) -> Error {
        Error::Unsupported { what: what.into() }
    }

    pub fn not_found(what: impl Into<String>) -> Error {
        Error::NotFound { what: what.into() }
    }

    fn fmt_damage(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Corrupt {
                page,
                expected,
                found,
            } => {
                write!(
                    f,
                    "{page} is damaged: expected {expected}, found {found}; restore it from a backup"
                )
            }
            Error::CorruptFile {
                path,
                expected,
                found,
            } => {
                write!(
                    f,
                    "file {} is damaged: expected {expected}, found {found}",
                    path.display()
                )
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Corrupt { .. } | Error::CorruptFile { .. } => self.fmt_damage(f),
            Error::Io { op, path, source } => write!(f, "{op} {}: {source}", path.display()),
            Error::Poisoned { why } => {
                write!(
                    f,
                    "the database stopped after a failure ({why}); reopen it, recovery will repair it"
                )
            }
            Error::DuplicateKey { index } => write!(f, "duplicate key in unique index {index}"),
            Error::BadForeignKey(bad) => write!(
                f,
                "table {} can't be the parent by {}: {}",
                bad.key.parent, bad.key, bad.why
            ),
            Error::ConstraintExists(r) => write!(f, "{r} exists already"),
            Error::ForeignDuplicateKey { table, index } => {
                write!(
                    f,
                    "duplicate key in unique index {index} of table {table}, a row of which would follow its parent"
                )
            }
            Error::NoReferencedRow(r) => {
                write!(f, "{r}: no row of table {} has these values", r.parent)
            }
            Error::RowIsReferenced(r) => write!(
                f,
                "{r}: it has rows that refer to this one of table {}",
                r.parent
            ),
            Error::TableIsReferenced(r) => write!(f, "{r} refers to table {}", r.parent),
            Error::CascadeTooDeep(r) => write!(
                f,
                "{r}: changes that follow changes of table {} go too deep",
                r.parent
            ),
            Error::LockWaitTimeout => {
                write!(f, "lock wait timeout exceeded; try the statement again")
            }
            Error::Deadlock => write!(f, "deadlock found; roll back and try the transaction again"),
            Error::LockTableFull => write!(
                f,
                "row locks take all the memory that they may; roll back and lock fewer rows at a time"
            ),
            Error::Interrupted => write!(f, "the statement was interrupted"),
            Error::NotFound { what } => write!(f, "{what} does not exist"),
            Error::AlreadyExists { what } => write!(f, "{what} exists already"),
            Error::TooLarge { what, size, limit } => {
                write!(f, "{what} has {size} bytes, the limit is {limit}")
            }
            Error::NoSpace { what } => write!(f, "no space left: {what}"),
            Error::ReadOnly { why } => write!(f, "nothing can be changed: {why}"),
            Error::Invalid { what } => write!(f, "invalid argument: {what}"),
            Error::Unsupported { what } => write!(f, "not supported: {what}"),
            Error::InUse { path } => {
                write!(
                    f,
                    "data directory {} is in use by another process",
                    path.display()
                )
            }
            Error::TooManyChanges { index, limit } => write!(
                f,
                "creating index {index} needs more than {limit} bytes to note which rows are changed meanwhile (online_alter_log_max_size); try again, or allow more"
            ),
            Error::NullValue { column, row } => write!(
                f,
                "row {row} has NULL in column {column}, which is to take none: give it a value first"
            ),
            Error::DefinitionChanged { table } => {
                write!(
                    f,
                    "the definition of table {table} changed after this transaction's snapshot"
                )
            }
            Error::TablespaceDiscarded { table } => write!(
                f,
                "the tablespace of table {table} was discarded: import one, or drop the table"
            ),
            Error::SchemaMismatch { what } => write!(f, "the file is another table's: {what}"),
            Error::NoKey { what } => write!(f, "no encryption key: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(&**source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_has_a_kind_of_its_own() {
        for (kind, full) in [
            (io::ErrorKind::StorageFull, true),
            (io::ErrorKind::QuotaExceeded, true),
            (io::ErrorKind::FileTooLarge, true),
            (io::ErrorKind::PermissionDenied, false),
        ] {
            let e = Error::io("extend", "a/t.vdt", kind.into());
            assert_eq!(matches!(e, Error::NoSpace { .. }), full, "{e}");
            assert!(e.to_string().contains("extend a/t.vdt"), "{e}");
        }
    }

    #[test]
    fn what_may_be_tried_again() {
        for (code, again) in [
            (libc::EMFILE, true),
            (libc::ENFILE, true),
            (libc::ENOMEM, true),
            (libc::EIO, false),
            (libc::ENOENT, false),
            (libc::ENOSPC, false),
        ] {
            let e = Error::io("open", "a/t.vdt", io::Error::from_raw_os_error(code));
            assert_eq!(e.is_out_of_means(), again, "{e}");
        }
    }
}
