//! Operations that fail on demand.

use std::io;
use std::path::Path;

/// What may be made to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Each of those below.
    Any,
    Read,
    Write,
    Sync,
    /// Opening a file that exists, looking for a name, listing a directory.
    Open,
    /// Reserving space or changing a length.
    Extend,
    /// Creating, removing, renaming, syncing a directory.
    Names,
}

/// How it fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// An I/O error. A write may have written some of its sectors.
    Io,
    /// No space left on the device. Reading and opening don't fail for that.
    NoSpace,
    /// Only opening: the process has too many files open.
    TooManyFiles,
    /// Only reads and writes, which succeed after all: a signal interrupts the first system call, the second
    /// one moves fewer bytes than it was asked to, and the caller has to call again for the rest.
    Short,
}

impl Failure {
    pub(crate) fn error(self) -> io::Error {
        match self {
            Failure::Io => io::Error::other("injected I/O error"),
            Failure::NoSpace => io::Error::from(io::ErrorKind::StorageFull),
            // EMFILE
            Failure::TooManyFiles => io::Error::from_raw_os_error(24),
            Failure::Short => io::Error::from(io::ErrorKind::Interrupted),
        }
    }
}

/// Lets some operations fail.
#[derive(Clone, Debug)]
pub struct Fault {
    pub operation: Operation,
    /// Only files whose path contains this.
    pub path: String,
    /// So many of them succeed before.
    pub after: u64,
    /// So many of them fail then.
    pub times: u64,
    pub failure: Failure,
}

impl Fault {
    /// Every such operation on any file fails from now on.
    pub fn always(operation: Operation, failure: Failure) -> Fault {
        Fault {
            operation,
            path: String::new(),
            after: 0,
            times: u64::MAX,
            failure,
        }
    }

    /// Only on files whose path contains `path`.
    pub fn on(self, path: &str) -> Fault {
        Fault {
            path: path.into(),
            ..self
        }
    }

    /// Only `times` of them, after `after` that succeed.
    pub fn limited(self, after: u64, times: u64) -> Fault {
        Fault {
            after,
            times,
            ..self
        }
    }

    /// Whether it is about this operation.
    fn concerns(&self, operation: Operation) -> bool {
        use Operation::{Any, Open, Read, Write};
        let can = match self.failure {
            Failure::Io => true,
            Failure::NoSpace => !matches!(operation, Read | Open),
            Failure::TooManyFiles => operation == Open,
            Failure::Short => matches!(operation, Read | Write),
        };
        can && (self.operation == Any || self.operation == operation)
    }

    /// Whether this operation fails; counts it.
    pub(crate) fn strikes(&mut self, operation: Operation, path: &Path) -> Option<Failure> {
        if !self.concerns(operation) || !path.to_string_lossy().contains(&self.path) {
            return None;
        }
        if self.after > 0 {
            self.after -= 1;
            return None;
        }
        self.times = self.times.checked_sub(1)?;
        Some(self.failure)
    }
}

/// A promise that the disk breaks, for tests of tests: no engine is safe on such a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// Syncing files with this extension does nothing.
    Sync { files: &'static str },
    /// Syncing directories does nothing.
    SyncDir,
}
