//! Codes, the calling thread's last error, and the wrapper around every entry point (CAPI-1).

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use varve::{BadForeignKey, Database, Error, NoParent, ReferenceError};

use crate::collation::c_text;

/// What a call came to. Each kind of error is something that a caller can do something about.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum varve_code {
    VARVE_OK = 0,
    /// A look-up found nothing, or a scan is at its end. Not an error; there is no text for it.
    VARVE_NO_ROW = 1,
    /// Bytes on disk are not what was written.
    VARVE_CORRUPT = 2,
    /// The operating system refused an operation.
    VARVE_IO = 3,
    /// A change failed halfway or a thread panicked: the database refuses work until it is reopened.
    VARVE_POISONED = 4,
    /// Another row has the same key in a unique index: see varve_last_error_index.
    VARVE_DUPLICATE_KEY = 5,
    /// Waited longer than the lock wait timeout. The transaction lives; roll the statement back.
    VARVE_LOCK_WAIT_TIMEOUT = 6,
    /// Chosen as the victim of a deadlock: roll the transaction back.
    VARVE_DEADLOCK = 7,
    /// varve_txn_interrupt was called.
    VARVE_INTERRUPTED = 8,
    VARVE_NOT_FOUND = 9,
    VARVE_ALREADY_EXISTS = 10,
    /// A row or key is longer than the format allows.
    VARVE_TOO_LARGE = 11,
    /// Disk full, no free undo slot, or a buffer pool too small for the pinned pages.
    VARVE_NO_SPACE = 12,
    VARVE_INVALID = 13,
    /// Asked for something that this version does not do.
    VARVE_UNSUPPORTED = 14,
    /// Another process has the data directory open.
    VARVE_IN_USE = 15,
    /// The table's definition is newer than the transaction's read view.
    VARVE_DEFINITION_CHANGED = 16,
    /// Row locks take all the memory that they may: roll the transaction back.
    VARVE_LOCK_TABLE_FULL = 17,
    /// The database was opened to be read only.
    VARVE_READ_ONLY = 18,
    /// varve_update: the row has these values already. Not an error; there is no text for it.
    VARVE_UNCHANGED = 19,
    /// A foreign key of the row's table has no row to refer to.
    VARVE_NO_REFERENCED_ROW = 20,
    /// A row can't go, or get another key, because a foreign key refers to it.
    VARVE_ROW_IS_REFERENCED = 21,
    /// Changes of children by those of their parents go deeper than they may.
    VARVE_CASCADE_TOO_DEEP = 22,
    /// A table can't be dropped or emptied: a foreign key of another table refers to it.
    VARVE_TABLE_IS_REFERENCED = 23,
    /// A table can't be the parent by a foreign key: see varve_last_error_parent.
    VARVE_BAD_FOREIGN_KEY = 24,
    /// Another table of the schema has a foreign key of this name.
    VARVE_CONSTRAINT_EXISTS = 25,
    /// A row of a child would get a key that another one has, if it followed its parent: see
    /// varve_last_error_child and varve_last_error_child_index.
    VARVE_FOREIGN_DUPLICATE_KEY = 26,
    /// While an index was built, more rows were changed than may be noted.
    VARVE_TOO_MANY_CHANGES = 27,
    /// A row has NULL in a column that is to take none: see varve_last_error_null.
    VARVE_NULL_VALUE = 28,
    /// The table's rows were discarded: import a file, or drop the table.
    VARVE_DISCARDED = 29,
    /// A file that is to be imported has the rows of a table that is defined otherwise.
    VARVE_SCHEMA_MISMATCH = 30,
    /// There is no key for what is encrypted, or is to be, or it is another key.
    VARVE_NO_KEY = 31,
}

use varve_code::*;

impl From<&Error> for varve_code {
    fn from(e: &Error) -> varve_code {
        match e {
            Error::Corrupt { .. } | Error::CorruptFile { .. } => VARVE_CORRUPT,
            Error::Io { .. } => VARVE_IO,
            Error::Poisoned { .. } => VARVE_POISONED,
            Error::DuplicateKey { .. } => VARVE_DUPLICATE_KEY,
            Error::BadForeignKey(_) => VARVE_BAD_FOREIGN_KEY,
            Error::ConstraintExists(_) => VARVE_CONSTRAINT_EXISTS,
            Error::ForeignDuplicateKey { .. } => VARVE_FOREIGN_DUPLICATE_KEY,
            Error::NoReferencedRow(_) => VARVE_NO_REFERENCED_ROW,
            Error::RowIsReferenced(_) => VARVE_ROW_IS_REFERENCED,
            Error::TableIsReferenced(_) => VARVE_TABLE_IS_REFERENCED,
            Error::CascadeTooDeep(_) => VARVE_CASCADE_TOO_DEEP,
            Error::LockWaitTimeout => VARVE_LOCK_WAIT_TIMEOUT,
            Error::Deadlock => VARVE_DEADLOCK,
            Error::LockTableFull => VARVE_LOCK_TABLE_FULL,
            Error::Interrupted => VARVE_INTERRUPTED,
            Error::NotFound { .. } => VARVE_NOT_FOUND,
            Error::AlreadyExists { .. } => VARVE_ALREADY_EXISTS,
            Error::TooLarge { .. } => VARVE_TOO_LARGE,
            Error::NoSpace { .. } => VARVE_NO_SPACE,
            Error::ReadOnly { .. } => VARVE_READ_ONLY,
            Error::Invalid { .. } => VARVE_INVALID,
            Error::Unsupported { .. } => VARVE_UNSUPPORTED,
            Error::InUse { .. } => VARVE_IN_USE,
            Error::DefinitionChanged { .. } => VARVE_DEFINITION_CHANGED,
            Error::TooManyChanges { .. } => VARVE_TOO_MANY_CHANGES,
            Error::NullValue { .. } => VARVE_NULL_VALUE,
            Error::TablespaceDiscarded { .. } => VARVE_DISCARDED,
            Error::SchemaMismatch { .. } => VARVE_SCHEMA_MISMATCH,
            Error::NoKey { .. } => VARVE_NO_KEY,
        }
    }
}

/// The last failure of this thread; stays until its next one.
#[derive(Default)]
struct LastError {
    text: CString,
    duplicate_index: String,
    /// The foreign key that it was about, and its table.
    constraint: CString,
    child: CString,
    child_index: CString,
    /// Of VARVE_BAD_FOREIGN_KEY.
    fault: varve_parent_fault,
    column: CString,
    parent_column: CString,
    /// Of VARVE_NULL_VALUE, with the column.
    row: u64,
}

/// Why a table can't be the parent by a foreign key.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum varve_parent_fault {
    /// The last failure was about something else.
    #[default]
    VARVE_PARENT_FITS = 0,
    /// There is no such table.
    VARVE_NO_PARENT = 1,
    /// It has no such column.
    VARVE_NO_PARENT_COLUMN = 2,
    /// A column, and that of the parent, have different types.
    VARVE_PARENT_HAS_OTHER_TYPE = 3,
    /// No index of it begins with the columns referred to, whole and in this order.
    VARVE_NO_PARENT_INDEX = 4,
}

impl LastError {
    fn is_about(&mut self, key: &ReferenceError) {
        (self.constraint, self.child) = (c_text(&key.constraint), c_text(&key.table));
    }

    fn is_bad(&mut self, bad: &BadForeignKey) {
        use varve_parent_fault::*;
        self.is_about(&bad.key);
        self.fault = match &bad.why {
            NoParent::Table => VARVE_NO_PARENT,
            NoParent::Column(column) => {
                self.parent_column = c_text(column);
                VARVE_NO_PARENT_COLUMN
            }
            NoParent::Types {
                column,
                parent_column,
            } => {
                (self.column, self.parent_column) = (c_text(column), c_text(parent_column));
                VARVE_PARENT_HAS_OTHER_TYPE
            }
            NoParent::Index => VARVE_NO_PARENT_INDEX,
        };
    }
}

thread_local! {
    static LAST: RefCell<LastError> = RefCell::default();
}

/// Keeps the error for `varve_last_error` and gives its code.
pub fn fail(e: Error) -> varve_code {
    let code = varve_code::from(&e);
    let mut last = LastError {
        text: c_text(&e.to_string()),
        ..LastError::default()
    };
    match e {
        Error::DuplicateKey { index } => last.duplicate_index = index,
        Error::NoReferencedRow(of)
        | Error::RowIsReferenced(of)
        | Error::TableIsReferenced(of)
        | Error::ConstraintExists(of)
        | Error::CascadeTooDeep(of) => last.is_about(&of),
        Error::BadForeignKey(bad) => last.is_bad(&bad),
        Error::NullValue { column, row } => (last.column, last.row) = (c_text(&column), row),
        Error::ForeignDuplicateKey { table, index } => {
            (last.child, last.child_index) = (c_text(&table), c_text(&index));
        }
        _ => {}
    }
    LAST.set(last);
    code
}

/// Name of the unique index that this thread's last failure was about.
pub fn last_duplicate_index() -> String {
    LAST.with_borrow(|last| last.duplicate_index.clone())
}

fn panic_text(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => match panic.downcast::<&'static str>() {
            Ok(text) => (*text).to_string(),
            Err(_) => "a panic without a message".to_string(),
        },
    }
}

/// Runs an entry point's body. Errors become codes; a panic poisons `db` and becomes one too (CAPI-1).
pub fn guard(db: &Database, body: impl FnOnce() -> varve::Result<varve_code>) -> varve_code {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(code)) => code,
        Ok(Err(e)) => fail(e),
        Err(panic) => {
            let why = panic_text(panic);
            // Poisoning logs through the caller's function, which must not take us down either.
            let _ = catch_unwind(AssertUnwindSafe(|| db.poison(&why)));
            fail(Error::Poisoned { why })
        }
    }
}

/// `guard` for calls that have no database yet, or no longer.
pub fn guard_without_database(body: impl FnOnce() -> varve::Result<varve_code>) -> varve_code {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(code)) => code,
        Ok(Err(e)) => fail(e),
        Err(panic) => fail(Error::Poisoned {
            why: panic_text(panic),
        }),
    }
}

/// What the calling thread's last failing call was about, in words. Valid until its next failing call.
#[unsafe(no_mangle)]
pub extern "C" fn varve_last_error() -> *const c_char {
    LAST.with_borrow(|last| last.text.as_ptr())
}

/// The name of the foreign key that it was about, and "schema/table" that has it; empty if about none.
/// Valid as above.
#[unsafe(no_mangle)]
pub extern "C" fn varve_last_error_constraint() -> *const c_char {
    LAST.with_borrow(|last| last.constraint.as_ptr())
}

/// See varve_last_error_constraint.
#[unsafe(no_mangle)]
pub extern "C" fn varve_last_error_child() -> *const c_char {
    LAST.with_borrow(|last| last.child.as_ptr())
}

/// The index of the child that VARVE_FOREIGN_DUPLICATE_KEY was about. Valid as above.
#[unsafe(no_mangle)]
pub extern "C" fn varve_last_error_child_index() -> *const c_char {
    LAST.with_borrow(|last| last.child_index.as_ptr())
}

/// Which row, of those that were looked at, VARVE_NULL_VALUE was about: 1 is the first. `column` is set to
/// the column's name, valid as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_last_error_null(column: *mut *const c_char) -> u64 {
    LAST.with_borrow(|last| {
        // SAFETY: CAPI-2.
        unsafe { column.write(last.column.as_ptr()) };
        last.row
    })
}

/// What is wrong with the parent. Where columns are, `column` and `parent_column` are set to their names,
/// valid as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_last_error_parent(
    column: *mut *const c_char,
    parent_column: *mut *const c_char,
) -> varve_parent_fault {
    LAST.with_borrow(|last| {
        // SAFETY: CAPI-2.
        unsafe {
            column.write(last.column.as_ptr());
            parent_column.write(last.parent_column.as_ptr());
        }
        last.fault
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve::Options;

    /// What `varve_last_error` says.
    fn last_text() -> String {
        LAST.with_borrow(|last| last.text.to_string_lossy().into_owned())
    }

    /// CAPI-1, also with a logger that panics.
    #[test]
    fn a_panic_becomes_a_code_and_poisons() {
        assert_eq!(
            guard_without_database(|| panic!("at {}", 1)),
            VARVE_POISONED
        );
        assert!(last_text().contains("at 1"), "{}", last_text());
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            logger: Some(std::sync::Arc::new(|_, text| {
                assert!(!text.contains("at 2"), "told")
            })),
            ..Options::default()
        };
        let db = Database::open(dir.path(), options).unwrap();
        assert_eq!(guard(&db, || Ok(VARVE_OK)), VARVE_OK);
        assert_eq!(guard(&db, || panic!("at {}", 2)), VARVE_POISONED);
        assert!(last_text().contains("at 2"), "{}", last_text());
        let refused = db.create_table(&varve::TableDef::new("a/t")).map(drop);
        assert!(
            matches!(refused, Err(Error::Poisoned { .. })),
            "{refused:?}"
        );
        db.crash();
    }
}
