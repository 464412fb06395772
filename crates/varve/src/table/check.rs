//! CHECK TABLE: the structure of each tree, and that rows and entries belong together.
//!
//! The checker holds the table's shared lock, so that no transaction has uncommitted changes in it, and keeps
//! purge away; readers go on. Under that, each live row must have exactly one live entry in each secondary
//! index (SEC-1): every row's entry is looked up, and the numbers of live rows and entries must agree.
//!
//! Where keys can't be made, because a collation is not known (COL-2), the entries are only counted, and the
//! keys that they name compared with those of the rows, all together, by a sum of hashes.
//!
//! The live rows' external values are read, and each page in use must belong to exactly one tree or external
//! value. Overflow pages of no live row belong to older versions (UNDO-5): they are counted, and there are
//! none once purge has caught up.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::base::{Error, GoingOn, Meter, PageId, PageNo, Phase, Result, SYSTEM_SPACE};
use crate::btree::TreeReport;
use crate::catalog::{
    ChainWalk, CopyReader, META_PAGE, OpenIndex, OpenTable, ROW_AT, RowRecord, TableDef, Tables,
    TemporaryPages, copy_page, first_copy,
};
use crate::lock::TableMode;
use crate::page::PageType;
use crate::row::{ExternalValues, RowRef};
use crate::space::DefinitionCopy;
use crate::txn::Transaction;

use super::external::{damaged, row_for_keys};
use super::orphans::find_orphans;
use super::version::read_leaf;

/// Messages about single rows beyond this many are counted, not told.
const MAX_ERRORS: usize = 50;
/// Pages or records between two that are told of.
const TOLD_EVERY: u64 = 1024;

/// Rows and structure that a check looked at, and what it found wrong.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Live rows, as the newest committed state has them, and rows that are deleted but not purged.
    pub rows: u64,
    pub deleted_rows: u64,
    /// Pages of the table's trees.
    pub pages: u64,
    /// Overflow pages of live rows, and of versions that purge will free.
    pub overflow_pages: u64,
    pub old_overflow_pages: u64,
    /// What is wrong, in words. Empty: the table is sound.
    pub errors: Vec<String>,
    /// What is worth to be known, and no damage: rows without a parent.
    pub notes: Vec<String>,
}

/// Checks a table; waits for transactions that write to it, but not for indexes that are being built:
/// `Unsupported`. An interrupt of `trx`, which is to be no other's,
/// ends it.
pub fn check_table(trx: &mut Transaction, table: &Arc<OpenTable>) -> Result<CheckReport> {
    // Who builds indexes may wait in the end for a lock of the caller's own.
    if table.followed.is_followed() {
        let name = &table.def.name;
        let what = format!("checking table {name} while indexes of it are built; try again later");
        return Err(Error::unsupported(what));
    }
    trx.use_table(table, TableMode::Shared)?;
    let _no_purge = table.keep_purge_away();
    let mut errors = Vec::new();
    if !table.is_temporary() {
        verify_pages(trx, table, &mut |e| {
            if errors.len() < MAX_ERRORS {
                errors.push(e.to_string());
            }
        })?;
    }
    let tables = &trx.core().tables;
    let records = table.row_count() * table.indexes().count() as u64;
    let meter = Meter::begin(trx.watch(), Phase::CheckRecords, records, TOLD_EVERY);
    let going_on = || {
        meter.add(1);
        trx.check_interrupt()
    };
    let mut report = check_quiet_table(table, tables, &going_on)?;
    // What a page says by itself comes first, and not again.
    let told = |what: &String| errors.iter().any(|e| what.contains(e));
    report.errors.retain(|what| !told(what));
    errors.append(&mut report.errors);
    errors.truncate(MAX_ERRORS);
    report.errors = errors;
    if report.errors.is_empty() {
        find_orphans(trx, table, &mut |note| report.notes.push(note))?;
    }
    Ok(report)
}

/// Every page of the table's file, also those that no tree leads to.
fn verify_pages(trx: &Transaction, table: &OpenTable, tell: &mut dyn FnMut(Error)) -> Result<()> {
    let core = trx.core();
    let space = &table.clustered.tree.space;
    let page = |no: usize| {
        let no = u32::try_from(no)
            .ok()
            .filter(|&no| no < space.size_pages())?;
        Some(PageId::new(space.id(), PageNo(no)))
    };
    let pages = u64::from(space.size_pages());
    let meter = Meter::begin(trx.watch(), Phase::CheckPages, pages, TOLD_EVERY);
    let mut read = |id: PageId, to: &mut [u8]| {
        trx.check_interrupt()?;
        meter.add(1);
        core.pool.prefetch_walk(id.no.0 as usize, page);
        to.copy_from_slice(&core.pool.shared(id)?);
        Ok(())
    };
    let mut going_on = Ok(());
    let mut tell = |e| match e {
        Error::Interrupted => going_on = Err(e),
        e => tell(e),
    };
    space.verify_pages(core.log.next_lsn(), &mut read, &mut tell);
    going_on
}

/// The same for a table that nobody else uses. Changes of transactions that have not ended count as if they
/// had.
pub fn check_quiet_table(
    table: &OpenTable,
    tables: &Tables,
    going_on: GoingOn<'_>,
) -> Result<CheckReport> {
    let mut walk = Walk {
        report: CheckReport::default(),
        pages: PageSet::default(),
        going_on,
    };
    let rows = check_rows(table, &mut walk)?;
    for index in &table.secondary {
        check_entries(index, rows, &mut walk)?;
    }
    let (mut report, mut pages) = (walk.report, walk.pages);
    match table.temporary_overflow() {
        // The temporary tablespace has pages of many tables.
        Some(own) => check_own_overflow(own, &mut report, &pages),
        None => {
            // A parent that is renamed has the copies of its children changed.
            let no_ddl = tables.serialize_ddl();
            check_copies(table, &mut report, &mut pages)?;
            note_loose_trees(table, &mut report, &mut pages)?;
            drop(no_ddl);
            check_pages(table, &mut report, &pages)?;
        }
    }
    Ok(report)
}

fn tell(report: &mut CheckReport, what: String) {
    if report.errors.len() < MAX_ERRORS {
        report.errors.push(what);
    }
}

/// Pages that something refers to.
#[derive(Default)]
struct PageSet(HashSet<PageNo>);

/// What a look at all trees, one after the other, has come to.
struct Walk<'a> {
    report: CheckReport,
    pages: PageSet,
    going_on: GoingOn<'a>,
}

/// A key's share in the sum over all live rows or entries: equal sums mean the same keys, whatever their
/// order.
fn share(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// Returns the sum of the live rows' keys (`share`).
fn check_rows(table: &OpenTable, walk: &mut Walk<'_>) -> Result<u64> {
    let mut sum = 0u64;
    let mut errors = Vec::new();
    let (mut rows, mut deleted) = (0, 0);
    let mut entry = EntryBuffers::default();
    let mut failed: Option<Error> = None;
    let tree = table.clustered.tree.check(&mut |key, payload| {
        (walk.going_on)()?;
        let Some(record) = RowRecord::decode(payload) else {
            errors.push(format!("row {key:02x?}: the record is too short"));
            return Ok(());
        };
        if record.is_deleted() {
            deleted += 1;
            return Ok(());
        }
        rows += 1;
        sum = sum.wrapping_add(share(key));
        match RowRef::new(&table.format, &payload[ROW_AT..]) {
            Err(damage) => errors.push(format!("row {key:02x?}: {damage:?}")),
            Ok(row) => {
                let long = check_external(table, &record, &row, walk);
                let wrong = long.and_then(|wrong| {
                    let wrong = wrong.map(|what| format!("row {key:02x?}: {what}"));
                    // Without its external values the row's keys can't be told.
                    if wrong.is_some() {
                        return Ok(wrong);
                    }
                    entry.check_all(table, record.row, key)
                });
                match wrong {
                    Ok(wrong) => errors.extend(wrong),
                    Err(e @ Error::Interrupted) => return Err(e),
                    Err(e) => failed = Some(e),
                }
            }
        }
        Ok(())
    })?;
    if let Some(e) = failed {
        errors.push(e.to_string());
    }
    walk.report.rows = rows;
    walk.report.deleted_rows = deleted;
    walk.report.overflow_pages = walk.pages.0.len() as u64;
    note_tree(&table.clustered, tree, walk);
    errors.into_iter().for_each(|e| tell(&mut walk.report, e));
    Ok(sum)
}

/// The tree's own errors, and its pages.
fn note_tree(index: &OpenIndex, tree: TreeReport, walk: &mut Walk<'_>) {
    let report = &mut walk.report;
    report.pages += tree.leaf_pages + tree.inner_pages;
    for e in tree.errors {
        tell(report, format!("index {}: {e}", index.name));
    }
    for no in tree.pages {
        if !walk.pages.0.insert(no) {
            let name = &index.name;
            tell(
                report,
                format!("page {no} of index {name} is also another's"),
            );
        }
    }
}

/// What is wrong with the external values of a live row. Their pages go into the set.
fn check_external(
    table: &OpenTable,
    record: &RowRecord<'_>,
    row: &RowRef<'_>,
    walk: &mut Walk<'_>,
) -> Result<Option<String>> {
    if record.has_external_values() != row.external_columns().next().is_some() {
        return Ok(Some(
            "its flags do not say whether it has external values".into(),
        ));
    }
    for (column, chain) in row.external_columns() {
        let mut shared = None;
        let ended = table.walk_chain(&chain, usize::MAX, |no, _| {
            if !walk.pages.0.insert(no) {
                shared = Some(no);
            }
            (walk.going_on)().is_ok()
        })?;
        (walk.going_on)()?;
        let name = &table.def.column_or_gone(column).name;
        if let Some(no) = shared {
            let what = format!("overflow page {no} of column {name} is also another's");
            return Ok(Some(what));
        }
        if ended != ChainWalk::Done {
            return Ok(Some(format!(
                "an overflow page of column {name} is missing"
            )));
        }
    }
    Ok(None)
}

/// DDL-2 and DEF-2. A page that can't be read is told; those behind the roots go into the set.
fn check_copies(table: &OpenTable, report: &mut CheckReport, pages: &mut PageSet) -> Result<()> {
    if table.space() == SYSTEM_SPACE {
        return Ok(());
    }
    let def = table.definition();
    let mut encoded = Vec::new();
    def.encode(&mut encoded);
    let tree = &table.clustered.tree;
    let copy = first_copy(&encoded, tree.page_size());
    if !tree.space.has_definition(table.mtr_env(), copy)? && !has_older_copy(table, &def, &encoded)?
    {
        let what = "page 0: the copy of the definition there is not the table's definition";
        tell(report, what.into());
    }
    let mut reader = CopyReader::default();
    while !reader.is_complete() {
        let no = copy_page(reader.pages(), def.trees_at_first());
        let id = PageId::new(table.space(), no);
        let is_next =
            no.0 < tree.space.size_pages() && reader.add(&table.mtr_env().pool.shared(id)?);
        if !is_next {
            let expected = format!("place {} of the table's definition", reader.pages());
            return Err(Error::corrupt(id, expected, "something else"));
        }
        if no != META_PAGE && !pages.0.insert(no) {
            tell(
                report,
                format!("page {no} of the definition is also another's"),
            );
        }
    }
    if reader.is_absent() {
        return Ok(());
    }
    let name = Some(table.def.name.clone());
    let copy = reader.finish();
    let mut copy = copy.and_then(|copy| TableDef::decode_copy(&copy, name).ok());
    // It is as when the table was made (DEF-2).
    if let Some(copy) = &mut copy {
        redefine(copy, &def);
    }
    if copy.as_ref() != Some(&def) {
        let what = format!(
            "page {META_PAGE}: the copy of the definition that begins there is not the table's definition"
        );
        tell(report, what);
    }
    Ok(())
}

/// The pages of trees that are no index, and of the list that has them (LOOSE-1).
fn note_loose_trees(
    table: &OpenTable,
    report: &mut CheckReport,
    pages: &mut PageSet,
) -> Result<()> {
    let Some((list, trees)) = table.loose_trees()? else {
        return Ok(());
    };
    let mut all = vec![list];
    for tree in trees {
        all.extend(table.pages_of_loose_tree(tree)?);
    }
    for no in all {
        if !pages.0.insert(no) {
            let what = format!("page {no} of a tree that is no index is also another's");
            tell(report, what);
        }
    }
    Ok(())
}

/// Whether page 0 has the table's definition as it has been: a crash may leave that there until the table is
/// opened to be used (DDL-2).
fn has_older_copy(table: &OpenTable, def: &TableDef, encoded: &[u8]) -> Result<bool> {
    let page = table
        .mtr_env()
        .pool
        .shared(PageId::new(table.space(), PageNo(0)))?;
    let Ok(copy) = DefinitionCopy::read(&page) else {
        return Ok(false);
    };
    if !copy.is_whole() {
        return Ok(TableDef::ids_in(copy.stored) == TableDef::ids_in(encoded));
    }
    let Ok(mut old) = TableDef::decode(copy.stored) else {
        return Ok(false);
    };
    old.name.clone_from(&def.name);
    redefine(&mut old, def);
    Ok(old == *def)
}

/// Changes in a definition that the table has had what may have changed since while its rows were not.
fn redefine(old: &mut TableDef, now: &TableDef) {
    // They come and go, and all their names change.
    old.foreign_keys.clone_from(&now.foreign_keys);
    if let Ok(redefined) = old.redefined_in_steps(now) {
        *old = redefined;
        old.indexes_at_first = now.indexes_at_first;
        // Columns may have come in several steps.
        old.schema_version = now.schema_version;
        for (old, now) in old.columns.iter_mut().zip(&now.columns) {
            (old.added_in, old.nullable_since) = (now.added_in, now.nullable_since);
        }
        // And some of them have gone again.
        old.gone.clone_from(&now.gone);
    }
}

/// Each page in use must be referred to, and each that is referred to must be in use.
fn check_pages(table: &OpenTable, report: &mut CheckReport, pages: &PageSet) -> Result<()> {
    let mut in_use = 0;
    for no in table.pages_in_use()? {
        if pages.0.contains(&no) {
            in_use += 1;
            continue;
        }
        match table.page_type(no)? {
            _ if no == META_PAGE => {}
            Some(PageType::Overflow) => report.old_overflow_pages += 1,
            // A database without undo tablespaces has its rollback segment here; undo has its own check.
            Some(ptype) if table.space() == SYSTEM_SPACE && ptype.is_undo() => {}
            _ => tell(
                report,
                format!("page {no} is in use, but nothing refers to it"),
            ),
        }
    }
    if in_use != pages.0.len() {
        let n = pages.0.len() - in_use;
        tell(report, format!("{n} pages that are referred to are free"));
    }
    Ok(())
}

/// TEMP-5, as far as live rows can tell.
fn check_own_overflow(own: &TemporaryPages, report: &mut CheckReport, pages: &PageSet) {
    let referred = pages.0.iter().filter(|no| own.contains(**no)).count() as u64;
    if referred != report.overflow_pages {
        let n = report.overflow_pages.abs_diff(referred);
        tell(report, format!("{n} overflow pages are not the table's"));
    }
    report.old_overflow_pages = own.count() - referred;
}

/// Buffers for looking entries up.
#[derive(Default)]
struct EntryBuffers {
    key: Vec<u8>,
    payload: Vec<u8>,
    long: ExternalValues,
}

impl EntryBuffers {
    /// What is wrong with the entries of a live row.
    fn check_all(&mut self, table: &OpenTable, row: &[u8], pk: &[u8]) -> Result<Option<String>> {
        let known = || table.secondary.iter().filter(|i| i.codec.is_computable());
        let mut codecs: Vec<_> = known().map(|index| &index.codec).collect();
        codecs.push(&table.clustered.codec);
        let mut long = std::mem::take(&mut self.long);
        let row = row_for_keys(table, None, &codecs, pk, row, &mut long)?;
        let row = row.ok_or_else(|| damaged(table, pk))?;
        // Of a clustered key whose collation is not known there is nothing to compare.
        let knows_forms = table.clustered.codec.is_computable();
        for index in known() {
            let wrong = self.of(index, &row, pk, knows_forms)?;
            if wrong.is_some() {
                return Ok(wrong);
            }
        }
        self.long = long;
        Ok(None)
    }

    /// What is wrong with the entry of a live row.
    fn of(
        &mut self,
        index: &OpenIndex,
        row: &RowRef<'_>,
        pk: &[u8],
        knows_forms: bool,
    ) -> Result<Option<String>> {
        self.key.clear();
        index.codec.encode_row(row, &mut self.key)?;
        let forms = index.forms(&self.key, pk, |column| row.get(column))?;
        index.end_entry_key(&mut self.key, 0, pk)?;
        let found = index.read_entry(&self.key, &mut self.payload)?;
        let wrong = match found.then(|| index.entry(&self.payload)) {
            None => "has no entry",
            Some(None) => "has an entry of a wrong length",
            Some(Some(e)) if e.is_deleted() => "has a deleted entry",
            Some(Some(e)) if !e.clustered_key(&self.key).is_some_and(|found| found.is(pk)) => {
                "has an entry that names another row"
            }
            // Those without come from older programs, and cost a look at the row.
            Some(Some(e)) if knows_forms && ![0, forms].contains(&e.forms()) => {
                "has an entry with other forms of its texts"
            }
            Some(Some(_)) => return Ok(None),
        };
        Ok(Some(format!(
            "row {pk:02x?} {wrong} in index {}",
            index.name
        )))
    }
}

/// Counts what the change buffer says of entries, which overrides what the index's own tree does (CB-1).
fn check_buffered(
    index: &OpenIndex,
    (live, sum): (&mut u64, &mut u64),
    walk: &mut Walk<'_>,
) -> Result<()> {
    let Some(tree) = index.buffer.tree()? else {
        return Ok(());
    };
    let share_of = |key: &[u8], payload: &[u8]| {
        let entry = index.entry(payload).filter(|e| !e.is_deleted())?;
        let row = entry.clustered_key(key);
        Some(row.map_or(0, |row| {
            row.in_key().map_or_else(|| share(&row.to_vec()), share)
        }))
    };
    let mut own = Vec::new();
    let report = tree.check(&mut |key, payload| {
        if let Some(row) = share_of(key, payload) {
            *live += 1;
            *sum = sum.wrapping_add(row);
        }
        if read_leaf(index, key, &mut own)?
            && let Some(row) = share_of(key, &own)
        {
            *live -= 1;
            *sum = sum.wrapping_sub(row);
        }
        (walk.going_on)()
    })?;
    for e in report.errors {
        let name = &index.name;
        tell(
            &mut walk.report,
            format!("change buffer of index {name}: {e}"),
        );
    }
    Ok(())
}

/// `rows`: the sum of the live rows' keys (`share`).
fn check_entries(index: &OpenIndex, rows: u64, walk: &mut Walk<'_>) -> Result<()> {
    let (mut live, mut sum) = (0u64, 0u64);
    let tree = index.tree.check(&mut |key, payload| {
        if let Some(entry) = index.entry(payload).filter(|e| !e.is_deleted()) {
            live += 1;
            let row = entry.clustered_key(key);
            let row = row.map(|row| row.in_key().map_or_else(|| share(&row.to_vec()), share));
            sum = sum.wrapping_add(row.unwrap_or(0));
        }
        (walk.going_on)()
    })?;
    note_tree(index, tree, walk);
    match check_buffered(index, (&mut live, &mut sum), walk) {
        Err(e) if !matches!(e, Error::Interrupted) => {
            let name = &index.name;
            tell(
                &mut walk.report,
                format!("change buffer of index {name}: {e}"),
            );
        }
        done => done?,
    }
    let report = &mut walk.report;
    let name = &index.name;
    if live != report.rows {
        let rows = report.rows;
        tell(
            report,
            format!("index {name} has {live} entries for {rows} rows"),
        );
    } else if sum != rows {
        let what = format!("index {name} has entries that name other rows than there are");
        tell(report, what);
    }
    Ok(())
}
