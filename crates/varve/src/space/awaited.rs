//! Places of tablespaces that were discarded, where users put the files that they want imported
//! (`ddl/import.rs`).
//!
//! Such a file may be a copy of another tablespace of this database, or of the one that was in the place
//! before, of which redo still speaks. Nothing in it tells it from these, and files are looked for before the
//! definitions are known. So a mark beside it, an empty file, says what it is.
//!
//! - **SP-13** A file beside its mark is never opened as a tablespace, so it is never written, and nothing
//!   but the DDL that waits for it removes or renames it. The mark is durable before the definition that
//!   discards the tablespace commits, and goes before a tablespace of the database gets the place. One that a
//!   crash has left goes at the next start, once the definitions are known (`recovery/files.rs`); a file
//!   beside it is put aside then.

use super::Spaces;
use crate::base::{Error, Result};

/// What the mark's name has behind the file's.
const MARK: &str = ".awaited";

/// The mark beside the file of this path.
pub fn awaited_mark_path(path: &str) -> String {
    format!("{path}{MARK}")
}

impl Spaces {
    /// From here on a file in this place is a user's.
    pub fn await_file(&self, path: &str) -> Result<()> {
        self.put_mark(&awaited_mark_path(path))
    }

    pub fn is_awaited(&self, path: &str) -> Result<bool> {
        self.has_mark(&awaited_mark_path(path))
    }

    /// SP-13: a tablespace gets the place, which is free; or nobody waits for a file there any more.
    pub fn stop_awaiting(&self, path: &str) -> Result<()> {
        match self.is_awaited(path)? {
            true => self.remove_name(&awaited_mark_path(path)),
            false => Ok(()),
        }
    }

    /// The places in a directory, which ends with a slash.
    pub fn awaited_in(&self, directory: &str) -> Result<Vec<String>> {
        let entries = self.disk().list(&self.dir().join(directory))?.into_iter();
        let paths = entries.filter_map(|entry| {
            let name = entry.name.strip_suffix(MARK)?;
            Some(format!("{directory}{name}"))
        });
        Ok(paths.collect())
    }

    /// Whether something lies in the place.
    pub fn has_file(&self, path: &str) -> Result<bool> {
        self.disk().exists(&self.dir().join(path))
    }

    pub(super) fn check_not_awaited(&self, path: &str) -> Result<()> {
        match self.is_awaited(path)? {
            false => Ok(()),
            true => Err(Error::CorruptFile {
                path: self.dir().join(path),
                expected: "a tablespace".into(),
                found: "a file that waits to be imported".into(),
            }),
        }
    }

    /// Moves a user's file, if there is one, to a place that is free.
    pub fn move_awaited(&self, from: &str, to: &str) -> Result<()> {
        if !self.has_file(from)? {
            return Ok(());
        }
        self.prepare_rename(to)?;
        self.move_unopened(from, to)
    }

    /// Puts a file away for which nobody waits. Returns where it is, unless there was none.
    pub fn put_awaited_aside(&self, path: &str) -> Result<Option<String>> {
        if !self.has_file(path)? {
            return Ok(None);
        }
        let mut number = 1;
        let aside = loop {
            let aside = format!("{path}.aside-{number}");
            if !self.has_file(&aside)? {
                break aside;
            }
            number += 1;
        };
        self.move_awaited(path, &aside)?;
        Ok(Some(aside))
    }
}
