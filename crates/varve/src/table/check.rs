//! CHECK TABLE: the structure of each tree, and that rows and entries belong together.
//!
//! The checker holds the table's shared lock, so that no transaction has uncommitted changes in it, and keeps purge
//! away; readers go on. Under that, each live row must have exactly one live entry in each secondary index (SEC-1): every
//! row's entry is looked up, and the numbers of live rows and entries must agree.

use crate::base::{Error, Result};
use crate::catalog::{EntryRecord, OpenIndex, OpenTable, ROW_AT, RowRecord};
use crate::lock::TableMode;
use crate::row::RowRef;
use crate::txn::{Core, Isolation, Transaction};

use super::version::read_leaf;

/// Messages about single rows beyond this many are counted, not told.
const MAX_ERRORS: usize = 50;

/// Rows and structure that a check looked at, and what it found wrong.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Live rows, as the newest committed state has them, and rows that are deleted but not purged.
    pub rows: u64,
    pub deleted_rows: u64,
    pub pages: u64,
    /// What is wrong, in words. Empty: the table is sound.
    pub errors: Vec<String>,
}

/// Checks a table; waits for transactions that write to it.
pub fn check_table(core: &std::sync::Arc<Core>, table: &OpenTable) -> Result<CheckReport> {
    let mut trx = Transaction::begin(core.clone(), Isolation::RepeatableRead);
    trx.use_table(table, TableMode::Shared)?;
    let _no_purge = table.keep_purge_away();
    let mut report = CheckReport::default();
    check_rows(table, &mut report)?;
    for index in &table.secondary {
        check_entries(index, &mut report)?;
    }
    trx.commit()?;
    Ok(report)
}

fn tell(report: &mut CheckReport, what: String) {
    if report.errors.len() < MAX_ERRORS {
        report.errors.push(what);
    }
}

fn check_rows(table: &OpenTable, report: &mut CheckReport) -> Result<()> {
    let mut errors = Vec::new();
    let (mut rows, mut deleted) = (0, 0);
    let mut entry = Entry::default();
    let mut failed: Option<Error> = None;
    let tree = table.clustered.tree.check(&mut |key, payload| {
        let Some(record) = RowRecord::decode(payload) else {
            errors.push(format!("row {key:02x?}: the record is too short"));
            return;
        };
        if record.is_deleted() {
            deleted += 1;
            return;
        }
        rows += 1;
        match RowRef::new(&table.format, &payload[ROW_AT..]) {
            Err(damage) => errors.push(format!("row {key:02x?}: {damage:?}")),
            Ok(row) => {
                for index in &table.secondary {
                    match entry.of(index, &row, key) {
                        Ok(None) => {}
                        Ok(Some(what)) => errors.push(what),
                        Err(e) => failed = Some(e),
                    }
                }
            }
        }
    })?;
    if let Some(e) = failed {
        errors.push(e.to_string());
    }
    report.rows = rows;
    report.deleted_rows = deleted;
    report.pages += tree.leaf_pages + tree.inner_pages;
    tree.errors
        .into_iter()
        .for_each(|e| tell(report, format!("index {}: {e}", table.clustered.name)));
    errors.into_iter().for_each(|e| tell(report, e));
    Ok(())
}

/// Buffers for looking entries up.
#[derive(Default)]
struct Entry {
    key: Vec<u8>,
    payload: Vec<u8>,
}

impl Entry {
    /// What is wrong with the entry of a live row.
    fn of(&mut self, index: &OpenIndex, row: &RowRef<'_>, pk: &[u8]) -> Result<Option<String>> {
        self.key.clear();
        index.codec.encode_row(row, &mut self.key)?;
        self.key.extend_from_slice(pk);
        let found = read_leaf(index, &self.key, &mut self.payload)?;
        let wrong = match found.then(|| EntryRecord::decode(&self.payload)) {
            None => "has no entry",
            Some(None) => "has an entry of a wrong length",
            Some(Some(e)) if e.is_deleted() => "has a deleted entry",
            Some(Some(e)) if e.clustered_key(&self.key) != Some(pk) => {
                "has an entry that names another row"
            }
            Some(Some(_)) => return Ok(None),
        };
        Ok(Some(format!(
            "row {pk:02x?} {wrong} in index {}",
            index.name
        )))
    }
}

fn check_entries(index: &OpenIndex, report: &mut CheckReport) -> Result<()> {
    let mut live = 0u64;
    let tree = index.tree.check(&mut |_, payload| {
        live += u64::from(EntryRecord::decode(payload).is_some_and(|e| !e.is_deleted()));
    })?;
    report.pages += tree.leaf_pages + tree.inner_pages;
    tree.errors
        .into_iter()
        .for_each(|e| tell(report, format!("index {}: {e}", index.name)));
    if live != report.rows {
        let rows = report.rows;
        tell(
            report,
            format!("index {} has {live} entries for {rows} rows", index.name),
        );
    }
    Ok(())
}
