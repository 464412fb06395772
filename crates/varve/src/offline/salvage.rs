//! `varve dump`: the rows of a table, from its file alone, as far as they can be read.
//!
//! How the file is read is in `table/file.rs`: damage costs what is on the damaged page, and is told.
//!
//! Rows are as they stand in the file: those of transactions that had not ended are among them, and what the
//! redo log still holds is not, unless the file comes from [`recovered`].

use std::path::Path;
use std::sync::Arc;

use crate::base::{Error, Result};
use crate::catalog::TableDef;
use crate::db::Database;
use crate::ddl::table_path;
use crate::encryption::{EncryptionKeys, Keyring};
use crate::io::{Disk, Overlay, RealDisk};
use crate::row::{ColumnDef, Datum, RowRef, Value};
use crate::table::{FromFile, TableFile, table_file_with};

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Saved {
    Value(Value),
    /// An external value of so many bytes, of which a page can't be read.
    Lost(u32),
}

/// One thing that is read from a file.
#[derive(Debug)]
pub enum Salvaged<'a> {
    Row {
        /// Delete-marked: it may be the row's last state before it was deleted.
        is_deleted: bool,
        values: &'a [Saved],
    },
    /// What could not be read, and why.
    Skipped(String),
}

/// Counts of what was saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SalvageSummary {
    pub rows: u64,
    pub deleted_rows: u64,
    /// Values of which a page could not be read.
    pub lost_values: u64,
    /// Pages that could not be read, records that make no sense, and ranges of keys without a page.
    pub skipped: u64,
}

/// The file of table `schema/name` of the database in `dir`, which nobody may have open, as it is after
/// recovery, with the definition in the catalog. Nothing is changed.
pub fn recovered(
    dir: &Path,
    name: &str,
    keys: Option<Arc<dyn EncryptionKeys>>,
) -> Result<TableFile> {
    recovered_with_keys(Arc::new(RealDisk), dir, name, keys)
}

/// [`recovered`] on another implementation of the disk, with nothing encrypted.
#[cfg(feature = "internals")]
pub fn recovered_on(disk: Arc<dyn Disk>, dir: &Path, name: &str) -> Result<TableFile> {
    recovered_with_keys(disk, dir, name, None)
}

fn recovered_with_keys(
    disk: Arc<dyn Disk>,
    dir: &Path,
    name: &str,
    keys: Option<Arc<dyn EncryptionKeys>>,
) -> Result<TableFile> {
    let overlay = Arc::new(Overlay::new(disk));
    let _lock = overlay.lock_below(dir)?;
    let db = Database::open_to_check(overlay.clone(), dir, keys.clone())?;
    let tables = &db.inner.core.tables;
    let (def, path) = match (tables.find(name)?, tables.broken(name)) {
        (Some(table), _) => (Some(table.def.clone()), table.clustered.tree.space.path()),
        (None, Some(broken)) => (broken.def, table_path(name)),
        (None, None) => return Err(Error::not_found(format!("table {name}"))),
    };
    // So that the pages are in the overlay's file.
    db.close()?;
    let mut file = table_file_with(&*overlay, &dir.join(path), &Keyring::new(keys))?;
    file.def = def.or(file.def);
    Ok(file)
}

impl TableFile {
    /// Hands all rows that can be read to `each`, in the order of their keys, and tells what can't. An error
    /// of `each` ends it.
    ///
    /// # Errors
    ///
    /// `NotFound` without a definition; those of `each`.
    pub fn salvage(
        &self,
        each: &mut dyn FnMut(Salvaged<'_>) -> Result<()>,
    ) -> Result<SalvageSummary> {
        let def = self.def.as_ref().ok_or_else(|| {
            Error::not_found(format!(
                "the table's definition in {}: name another file of the same table, or the data directory and the table; \
                 without it the definition",
                self.path().display()
            ))
        })?;
        let mut work = Work {
            file: self,
            def,
            summary: SalvageSummary::default(),
            each,
        };
        self.rows(def, None, &|| Ok(()), &mut |found| work.take(found))?;
        Ok(work.summary)
    }
}

struct Work<'a> {
    file: &'a TableFile,
    def: &'a TableDef,
    summary: SalvageSummary,
    each: &'a mut dyn FnMut(Salvaged<'_>) -> Result<()>,
}

impl Work<'_> {
    fn take(&mut self, found: FromFile<'_>) -> Result<()> {
        let (is_deleted, row) = match found {
            FromFile::Row { is_deleted, row } => (is_deleted, row),
            FromFile::Skipped(what) => return self.skip(what),
        };
        let values = match self.values(row) {
            Ok(values) => values,
            Err(what) => return self.skip(what),
        };
        match is_deleted {
            true => self.summary.deleted_rows += 1,
            false => self.summary.rows += 1,
        }
        let lost = values.iter().filter(|v| matches!(v, Saved::Lost(_)));
        if !is_deleted {
            self.summary.lost_values += lost.count() as u64;
        }
        let values = &values;
        (self.each)(Salvaged::Row { is_deleted, values })
    }

    fn skip(&mut self, what: String) -> Result<()> {
        self.summary.skipped += 1;
        (self.each)(Salvaged::Skipped(what))
    }

    /// The values of a row; in words, why it is none.
    fn values(&self, row: RowRef<'_>) -> std::result::Result<Vec<Saved>, String> {
        let value = |column: &ColumnDef, datum: Datum<'_>| {
            let value = Value::decode(column, datum).map_err(|e| e.to_string());
            value.map(Saved::Value)
        };
        let mut values = Vec::with_capacity(row.len());
        for (n, column) in self.def.columns.iter().enumerate() {
            values.push(match row.fetched(n) {
                Some(datum) => value(column, datum)?,
                None => {
                    let chain = row.external_columns().find(|(c, _)| *c == n);
                    let (_, chain) = chain.expect("what is not in the row is long");
                    match self.file.external_value(self.def, &chain) {
                        Some(bytes) => value(column, Some(&bytes))?,
                        None => Saved::Lost(chain.len),
                    }
                }
            });
        }
        Ok(values)
    }
}
