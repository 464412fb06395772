//! Rows that are too long for their page: moving values to overflow pages, and fetching them again.
//!
//! # Writing
//!
//! A row that takes more than half a page gives up its longest values, until the rest fits. Each is written
//! as a chain of overflow pages (`catalog/overflow.rs`) before the row itself, from its end to its beginning,
//! because a page names the one after it. A mini-transaction takes and fills some pages and logs an
//! `OverflowAlloc` undo record that names them. So at any moment, whatever fails, rollback finds the pages
//! that no row refers to (UNDO-5), newest first like everything else: the row's own undo record is newer and
//! is taken back before the pages go.
//!
//! A table that is loaded (`load.rs`) is dropped if that fails. So its chains are written without undo, under
//! the load's own id (OVF-1).
//!
//! An update shares the external values that it does not change: the new row has the same references, and no
//! page is written. Values are compared with what is on the pages, so callers need not say what changed.
//! References of the old row that the new one does not have go on the update's list, references of a deleted
//! row on the deletion's; purge frees them (`purge/chains.rs`). An un-delete-marked row shares none: the
//! delete-marked row's values are on the deletion's list already.
//!
//! # Reading
//!
//! A reader has copied a row, holds no latch, and fetches the values that it wants page by page. What can go
//! wrong is a **cut**: a page is not the chain's any more (OVF-2). It never gets wrong bytes. When can it be
//! cut?
//!
//! - Under the row's lock never: nobody else can replace the row, and its writer's rollback would need the
//!   same lock.
//! - A version that a read view sees is freed by purge only after a transaction that replaced it is seen by
//!   every view; but then the view would have decided for the newer version. So never, as long as the row was
//!   copied under this view; unless the view is a member of the history store, where the value is then.
//! - A cursor may have copied the row under an earlier view, or before its own transaction took something
//!   back, or read what was not committed. Then the leaf has changed since.
//!
//! - **LONG-1** So after a cut the reader starts over from the leaf. If it arrives at a row with the same
//!   TrxId and RollPtr and is cut again, the chain is damaged, and that is what it reports.

use std::borrow::Cow;

use crate::base::{Error, GoingOn, NO_PAGE, PageId, PageNo, Result, TrxId};
use crate::catalog::{
    ChainWalk, EXTERNAL, OVERFLOW_HEADER_AT, OpenTable, OverflowPage, ROW_AT, overflow_capacity,
};
use crate::history::History;
use crate::mtr::Mtr;
use crate::page::{PageOp, PageType, max_record};
use crate::row::{Datum, ExternalRef, ExternalValues, KeyCodec, Moved, RowRef};
use crate::space::ALLOC_LOG_BYTES;
use crate::txn::{Counters, Transaction};
use crate::undo::{PAGE_NO_BYTES, UndoKind};

use super::undo::{RecordChange, append_undo, encode_undo};

/// Redo of one batch of overflow pages, about.
const BATCH_LOG_BYTES: usize = 256 << 10;
const MAX_BATCH_PAGES: usize = 32;

/// Redo that a fresh overflow page takes beside its content: the operations' heads.
const PAGE_LOG_BYTES: usize = 64;
/// Redo for the undo record of a batch.
const UNDO_LOG_BYTES: usize = 512;

/// A row as it is going to stand behind the header of a clustered record.
#[derive(Debug)]
pub struct StoredRow<'a> {
    pub bytes: Cow<'a, [u8]>,
    /// `EXTERNAL`, if some of its values are on overflow pages; otherwise 0.
    pub flags: u8,
}

impl StoredRow<'_> {
    /// Gives the buffer back to the transaction, for its next row.
    pub fn give_back(self, trx: &mut Transaction) {
        if let Cow::Owned(bytes) = self.bytes {
            trx.scratch.row = bytes;
        }
    }
}

/// Bytes that a row may take beside a clustered key of `key_len` bytes.
pub(super) fn row_limit(table: &OpenTable, key_len: usize) -> usize {
    let limit = max_record(table.clustered.tree.page_size());
    limit.saturating_sub(key_len + ROW_AT)
}

/// Makes `values` a row that fits in its page; writes overflow pages if it must. `old` is the row that it
/// replaces, whose external values it may share. What was written belongs to the transaction: if it takes the
/// row back, they go, too.
pub fn store_row(
    trx: &mut Transaction,
    table: &OpenTable,
    values: &[Datum<'_>],
    key_len: usize,
    old: Option<&RowRef<'_>>,
) -> Result<StoredRow<'static>> {
    match inline_row(trx, table, values, key_len)? {
        Some(row) => Ok(row),
        None => row_with_external_columns(trx, table, values, key_len, old),
    }
}

/// Makes `values` a row, if it fits in its page as it is.
pub(super) fn inline_row(
    trx: &mut Transaction,
    table: &OpenTable,
    values: &[Datum<'_>],
    key_len: usize,
) -> Result<Option<StoredRow<'static>>> {
    if table.format.encoded_len(values) > row_limit(table, key_len) {
        return Ok(None);
    }
    let mut bytes = std::mem::take(&mut trx.scratch.row);
    bytes.clear();
    table.format.encode(values, &mut bytes)?;
    let (bytes, flags) = (Cow::Owned(bytes), 0);
    Ok(Some(StoredRow { bytes, flags }))
}

/// Makes `values` a row, with some of them on overflow pages.
pub(super) fn row_with_external_columns(
    trx: &mut Transaction,
    table: &OpenTable,
    values: &[Datum<'_>],
    key_len: usize,
    old: Option<&RowRef<'_>>,
) -> Result<StoredRow<'static>> {
    let mut bytes = std::mem::take(&mut trx.scratch.row);
    bytes.clear();
    put_row_with_external_columns(
        table,
        values,
        key_len,
        &mut bytes,
        |column, value| match shared(table, old, column, value)? {
            Some(same) => Ok(same),
            None => write_chain(trx, table, value),
        },
    )?;
    let (bytes, flags) = (Cow::Owned(bytes), EXTERNAL);
    Ok(StoredRow { bytes, flags })
}

/// Appends the row of `values` to `bytes`, with references in the place of some of them, which `write` brings
/// to overflow pages.
fn put_row_with_external_columns(
    table: &OpenTable,
    values: &[Datum<'_>],
    key_len: usize,
    bytes: &mut Vec<u8>,
    mut write: impl FnMut(usize, &[u8]) -> Result<ExternalRef>,
) -> Result<()> {
    let limit = row_limit(table, key_len);
    // Before anything is written, what does not fit is refused.
    table.format.check(values)?;
    let columns = table.format.columns_to_move(values, limit);
    let columns = columns.map_err(|e| too_large(table, e))?;
    let mut moved = Vec::with_capacity(columns.len());
    for column in columns {
        let value = values[column].expect("only external values are moved");
        let to = write(column, value)?;
        moved.push(Moved { column, to });
    }
    table.format.encode_moved(values, &moved, bytes)
}

/// The chains of a load.
pub(super) struct LoadedChains {
    /// Whose they are: no transaction's that writes others (OVF-1).
    pub writer: TrxId,
    pub next: u64,
}

impl LoadedChains {
    /// Appends the row of `values` to `bytes`, with some of them on overflow pages, for which there is no
    /// undo. Before each batch of pages it asks whether to go on.
    pub fn put_row(
        &mut self,
        table: &OpenTable,
        values: &[Datum<'_>],
        key_len: usize,
        bytes: &mut Vec<u8>,
        going_on: GoingOn<'_>,
    ) -> Result<()> {
        put_row_with_external_columns(table, values, key_len, bytes, |_, value| {
            let chain = ExternalRef {
                page: NO_PAGE,
                len: value.len() as u32,
                trx: self.writer,
                seq: self.next,
            };
            self.next += 1;
            write_batches(table, chain, value, |chain, first, bytes| {
                going_on()?;
                write_batch_without_undo(table, chain, first, bytes)
            })
        })
    }
}

/// Names the table in an error about the size of one of its rows.
fn too_large(table: &OpenTable, e: Error) -> Error {
    match e {
        Error::TooLarge { size, limit, .. } => Error::TooLarge {
            what: format!(
                "what a row of table {} keeps in its page, external columns moved out,",
                table.def.name
            ),
            size,
            limit,
        },
        e => e,
    }
}

/// The old row's reference for a column, if the value there is the same.
fn shared(
    table: &OpenTable,
    old: Option<&RowRef<'_>>,
    column: usize,
    value: &[u8],
) -> Result<Option<ExternalRef>> {
    let find = |old: &RowRef<'_>| old.external_columns().find(|(c, _)| *c == column);
    let Some((_, chain)) = old.and_then(find) else {
        return Ok(None);
    };
    if chain.len as usize != value.len() {
        return Ok(None);
    }
    let mut rest = value;
    let walk = table.walk_chain(&chain, usize::MAX, |_, piece| {
        let same = rest.starts_with(piece);
        rest = &rest[piece.len().min(rest.len())..];
        same
    })?;
    Ok((walk == ChainWalk::Done).then_some(chain))
}

/// Writes a value to overflow pages.
fn write_chain(trx: &mut Transaction, table: &OpenTable, value: &[u8]) -> Result<ExternalRef> {
    let chain = ExternalRef {
        page: NO_PAGE,
        len: value.len() as u32,
        trx: trx.writer()?,
        seq: trx.undo_mut().next_no(),
    };
    let chain = write_batches(table, chain, value, |chain, first, bytes| {
        trx.check_interrupt()?;
        write_batch(trx, table, chain, first, bytes)
    })?;
    Counters::add(&trx.core().counters.external_values_written, 1);
    Ok(chain)
}

/// Writes a value in batches of pages, from its end. `write` writes those from a number on, before those that
/// the chain has so far, and returns the new first page.
fn write_batches(
    table: &OpenTable,
    mut chain: ExternalRef,
    value: &[u8],
    mut write: impl FnMut(&ExternalRef, u32, &[u8]) -> Result<PageNo>,
) -> Result<ExternalRef> {
    let page_size = table.clustered.tree.page_size();
    let capacity = overflow_capacity(page_size);
    let per_batch = (BATCH_LOG_BYTES / page_size).clamp(1, MAX_BATCH_PAGES);
    let mut end = value.len().div_ceil(capacity);
    while end > 0 {
        let start = (end - 1) / per_batch * per_batch;
        let bytes = &value[start * capacity..value.len().min(end * capacity)];
        chain.page = write(&chain, start as u32, bytes)?;
        end = start;
    }
    Ok(chain)
}

fn pages_for(table: &OpenTable, bytes: &[u8]) -> usize {
    let capacity = overflow_capacity(table.clustered.tree.page_size());
    bytes.len().div_ceil(capacity)
}

/// Redo of a batch of so many pages, with its undo record.
fn batch_log_bytes(table: &OpenTable, n: usize) -> u32 {
    let page_size = table.clustered.tree.page_size();
    (n * (page_size + ALLOC_LOG_BYTES as usize + PAGE_LOG_BYTES) + UNDO_LOG_BYTES) as u32
}

/// Writes the pages of a chain from `first` on, before those that `chain` has so far; returns the new first
/// page.
fn write_batch(
    trx: &mut Transaction,
    table: &OpenTable,
    chain: &ExternalRef,
    first: u32,
    bytes: &[u8],
) -> Result<PageNo> {
    let core = trx.core().clone();
    let kind = UndoKind::OverflowAlloc;
    let n = pages_for(table, bytes);
    // Which pages is not known yet, but how long the undo record will be.
    let unknown = vec![0; n * PAGE_NO_BYTES];
    let change = RecordChange {
        pages: &unknown,
        ..RecordChange::insert(kind, table.clustered.id, &[])
    };
    encode_undo(trx, table, &change)?;
    let space = &table.clustered.tree.space;
    let _reserved = space.reserve(&core.mtr, n as u32)?;
    let mut mtr = Mtr::begin_in(&core.mtr, table.space(), batch_log_bytes(table, n))?;
    let undo_page = trx.undo_mut().latch(&mut mtr, table.id(), kind)?;
    let pages = take_pages(&mut mtr, table, chain, n)?;
    fill_pages(&mut mtr, table, chain, first, bytes, &pages)?;
    // They are the record's last bytes.
    let list = trx.scratch.undo.len() - unknown.len();
    let places = trx.scratch.undo[list..].chunks_exact_mut(PAGE_NO_BYTES);
    for (place, no) in places.zip(&pages) {
        place.copy_from_slice(&no.0.to_le_bytes());
    }
    append_undo(trx, &mut mtr, undo_page, table.id(), kind);
    table.note_taken_overflow(&pages);
    mtr.commit();
    Ok(pages[0])
}

/// The same for a table that is dropped if anything fails.
fn write_batch_without_undo(
    table: &OpenTable,
    chain: &ExternalRef,
    first: u32,
    bytes: &[u8],
) -> Result<PageNo> {
    let n = pages_for(table, bytes);
    let space = &table.clustered.tree.space;
    let _reserved = space.reserve(table.mtr_env(), n as u32)?;
    let mut mtr = Mtr::begin(table.mtr_env(), batch_log_bytes(table, n))?;
    let pages = take_pages(&mut mtr, table, chain, n)?;
    fill_pages(&mut mtr, table, chain, first, bytes, &pages)?;
    mtr.commit();
    Ok(pages[0])
}

/// Takes pages for a batch, which is going to come before what `chain` has so far.
fn take_pages(
    mtr: &mut Mtr<'_>,
    table: &OpenTable,
    chain: &ExternalRef,
    n: usize,
) -> Result<Vec<PageNo>> {
    let space = &table.clustered.tree.space;
    let mut pages: Vec<PageNo> = Vec::with_capacity(n);
    for _ in 0..n {
        let near = pages.last().copied().unwrap_or(chain.page);
        pages.push(space.alloc(mtr, near, table.overflow_owner())?);
    }
    Ok(pages)
}

/// Fills the pages of a batch.
fn fill_pages(
    mtr: &mut Mtr<'_>,
    table: &OpenTable,
    chain: &ExternalRef,
    first: u32,
    bytes: &[u8],
    pages: &[PageNo],
) -> Result<()> {
    let page_size = table.clustered.tree.page_size();
    let pieces = bytes.chunks(overflow_capacity(page_size));
    let mut content = Vec::with_capacity(page_size);
    for (i, data) in pieces.enumerate() {
        let page = OverflowPage {
            table: table.id(),
            trx: chain.trx,
            seq: chain.seq,
            index: first + i as u32,
            next: pages.get(i + 1).copied().unwrap_or(chain.page),
            data,
        };
        page.encode(&mut content);
        let h = mtr.exclusive_new(PageId::new(table.space(), pages[i]))?;
        let ptype = PageType::Overflow;
        mtr.op(h, PageOp::FormatRaw { ptype });
        let off = OVERFLOW_HEADER_AT;
        let bytes = &content[..];
        mtr.op(h, PageOp::Write { off, bytes });
    }
    Ok(())
}

/// The references of `old` that `new` does not have, encoded for an undo record's list.
pub fn dropped_refs(old: &RowRef<'_>, new: Option<&RowRef<'_>>) -> Vec<u8> {
    let kept =
        |r: &ExternalRef| new.is_some_and(|new| new.external_columns().any(|(_, n)| n == *r));
    let dropped = old.external_columns().map(|(_, r)| r).filter(|r| !kept(r));
    dropped.flat_map(|r| r.encode()).collect()
}

/// Fetches of each external column of `row` as many bytes as `wanted` says, at most; nothing of those for
/// which it says 0. `false` is a cut. No latch may be held.
/// Values whose pages purge has freed are asked for in `history`.
pub fn fetch(
    table: &OpenTable,
    history: Option<&History>,
    row: &RowRef<'_>,
    wanted: impl Fn(usize) -> usize,
    values: &mut ExternalValues,
) -> Result<bool> {
    let file_bytes = u64::from(table.clustered.tree.space.size_pages())
        * overflow_capacity(table.clustered.tree.page_size()) as u64;
    values.clear();
    let bytes_of = |(column, r): (usize, ExternalRef)| match column < row.len() {
        true => wanted(column).min(r.len as usize),
        // Nobody asks for a column that is gone.
        false => 0,
    };
    let total: usize = row.external_columns().map(bytes_of).sum();
    // Nothing damaged makes us ask for more memory than the file could fill.
    if total as u64 > file_bytes {
        return Ok(false);
    }
    values.start(total)?;
    for (column, chain) in row.external_columns() {
        let bytes = bytes_of((column, chain));
        if bytes == 0 {
            continue;
        }
        let is_whole = values.push_with(column, |out| {
            let start = out.len();
            let walk = table.walk_chain(&chain, bytes, |_, piece| {
                out.extend_from_slice(piece);
                true
            })?;
            if walk != ChainWalk::Cut {
                return Ok(true);
            }
            out.truncate(start);
            match history {
                Some(history) => history.external_value(table.id(), &chain, bytes, out),
                None => Ok(false),
            }
        })?;
        if !is_whole {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The row in `bytes`, under clustered key `key`, with as much of its external values as the keys of these
/// indexes are made of. `None` is a cut.
pub fn row_for_keys<'a>(
    table: &'a OpenTable,
    history: Option<&History>,
    indexes: &[&KeyCodec],
    key: &[u8],
    bytes: &'a [u8],
    values: &'a mut ExternalValues,
) -> Result<Option<RowRef<'a>>> {
    let row = table.row(key, bytes)?;
    if row.external_columns().next().is_none() {
        return Ok(Some(row));
    }
    let needed = |column| indexes.iter().map(|codec| codec.bytes_needed(column)).max();
    if !fetch(
        table,
        history,
        &row,
        |column| needed(column).unwrap_or(0),
        values,
    )? {
        return Ok(None);
    }
    Ok(Some(row.with_external(values)))
}

/// The row in `bytes`, under clustered key `key`, with all its values. A cut is damage: the caller's view
/// sees the row, or nobody else has the table.
pub fn whole_row<'a>(
    table: &'a OpenTable,
    history: Option<&History>,
    key: &[u8],
    bytes: &'a [u8],
    values: &'a mut ExternalValues,
) -> Result<RowRef<'a>> {
    let row = table.row(key, bytes)?;
    match fetch(table, history, &row, |_| usize::MAX, values)? {
        true => Ok(row.with_external(values)),
        false => Err(damaged(table, key)),
    }
}

/// What a cursor has of its rows' external values.
#[derive(Default)]
pub struct ExternalColumns {
    /// The current row's.
    pub values: ExternalValues,
    /// Starts of values, for making keys.
    pub for_keys: ExternalValues,
    /// Flags by column; none: all are wanted.
    wanted: Option<Box<[bool]>>,
    /// Header of the record at which the last cut was met.
    cut_at: Option<[u8; ROW_AT]>,
}

impl ExternalColumns {
    pub fn set_wanted(&mut self, wanted: Option<&[bool]>) {
        self.wanted = wanted.map(Into::into);
    }

    /// Forgets all values, and gives back memory that large ones took.
    pub fn release(&mut self) {
        self.values.release();
        self.for_keys.release();
        self.cut_at = None;
    }

    /// Fetches what is wanted of the row behind a clustered record. `false` is a cut.
    pub fn fetch(
        &mut self,
        table: &OpenTable,
        history: &History,
        key: &[u8],
        record: &[u8],
    ) -> Result<bool> {
        let row = table.row(key, record.get(ROW_AT..).unwrap_or_default())?;
        let wanted = |column: usize| match &self.wanted {
            Some(flags) if !flags.get(column).copied().unwrap_or(true) => 0,
            _ => usize::MAX,
        };
        let whole = fetch(table, Some(history), &row, wanted, &mut self.values)?;
        match whole {
            true => self.cut_at = None,
            false => self.values.clear(),
        }
        Ok(whole)
    }

    /// Remembers where a reader was cut; fails if it was cut there before (LONG-1).
    pub fn note_cut(&mut self, table: &OpenTable, key: &[u8], record: &[u8]) -> Result<()> {
        let header = record.first_chunk::<ROW_AT>().copied();
        if header.is_none() || header == self.cut_at {
            return Err(damaged(table, key));
        }
        self.cut_at = header;
        Ok(())
    }
}

/// The error for a chain that is cut although the row that refers to it is the one to be read (LONG-1).
pub fn damaged(table: &OpenTable, key: &[u8]) -> Error {
    let expected = "a row with all its overflow pages";
    table
        .clustered
        .damage_at(key, expected, "one that is missing")
}
