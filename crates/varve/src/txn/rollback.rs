//! Rollback: each undo record, newest first, is taken back in one mini-transaction that restores exactly the
//! previous state and marks the undo record UNDONE. A crash in between leaves a log whose marked records are
//! done.
//!
//! - **RB-1** Rollback does not fail for space. Each tablespace keeps pages for it (SP-9); when they are used
//!   up on a full disk, rollback says so in the log and waits until there is room. Only what recovery takes
//!   back before the database opens, changes of definitions, waits for nobody.
//! - **RB-2** What is rolled back as a whole may concern tables that can't be used (their file is missing or
//!   damaged). Those changes are left, and with them the undo log, in its slot, and the transaction,
//!   unfinished: the next start tries again. Changes to a table that has no definition any more are nobody's:
//!   it was dropped while it could not be used. A rollback to a savepoint can leave nothing: what is taken
//!   back by half could be committed.
//! - **RB-3** What can't be taken back in temporary tables costs these (TEMP-6), and all else is taken back.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::base::{
    Error, GoingOn, IndexId, Meter, PageId, PageNo, Phase, Result, SYSTEM_SPACE, Sabotage,
    StopPoint, TableId,
};
use crate::btree::{LeafPos, Tree};
use crate::catalog::{OpenIndex, OpenTable, RowRecord, entry_state, state_bytes};
use crate::lock::Need;
use crate::mtr::Mtr;
use crate::page::PageOp;
use crate::undo::{Previous, UndoKind, UndoRecord};

use super::core::{Core, Counters};
use super::transaction::Transaction;

/// Redo that taking back one record can write.
const MAX_MTR: u32 = 256 * 1024;
/// How long rollback waits before it tries again to get room on a full disk (RB-1).
const SPACE_RETRY: Duration = Duration::from_millis(100);
/// So many rows a rollback to a savepoint locks again whatever memory that takes.
const FEW_ROWS: usize = 1000;
/// Its user is told of each time that about so many records are taken back, and of no rollback of fewer.
const TOLD_EVERY: u64 = 4096;
/// How often it says that it waits.
const SPACE_TELL: Duration = Duration::from_secs(60);

/// Takes back everything with an undo number of at least `down_to`.
pub(super) fn roll_back_to(trx: &mut Transaction, down_to: u64) -> Result<()> {
    let mut course = Course {
        goes_on: true,
        ..Course::new(GO_ON)
    };
    let core = trx.core().clone();
    let done = each_newest(trx, down_to, |core, trx, record, page| {
        let Some(table) = core.tables.by_id(record.table)? else {
            if record.table.is_temporary() {
                // Its own transaction has dropped it (TEMP-3).
                return Ok(());
            }
            let expected = "an undo record of a table that is in use";
            let found = format!("one of table number {}", record.table);
            return Err(Error::corrupt(page, expected, found));
        };
        with_space(core, || {
            take_back(core, trx, &table, record, page, &mut course)
        })
    });
    course.let_go(&core, trx);
    done
}

/// Takes back everything. Returns the tables that can't be used and whose changes are left (RB-2).
pub(super) fn roll_back_whole(trx: &mut Transaction) -> Result<BTreeSet<TableId>> {
    let mut course = Course::new(GO_ON);
    take_back_whole(trx, |core, trx, table, record, page| {
        with_space(core, || {
            take_back(core, trx, table, record, page, &mut course)
        })
    })
}

/// Takes back what recovery found unfinished, before the database opens. Nothing could make room on a full
/// disk: that is an error.
pub(super) fn roll_back_recovered(trx: &mut Transaction) -> Result<BTreeSet<TableId>> {
    let mut course = Course::new(GO_ON);
    take_back_whole(trx, |core, trx, table, record, page| {
        take_back(core, trx, table, record, page, &mut course)
    })
}

/// The same while the database is in use, until `stop`: then it ends with `Interrupted`, between two records,
/// or in the middle of a load, whose rest the next start takes back. Counts down `left` with each record.
pub(super) fn roll_back_in_background(
    trx: &mut Transaction,
    stop: &AtomicBool,
    left: &AtomicU64,
) -> Result<BTreeSet<TableId>> {
    let going_on = || match stop.load(Relaxed) {
        true => Err(Error::Interrupted),
        false => Ok(()),
    };
    let mut course = Course::new(&going_on);
    take_back_whole(trx, |core, trx, table, record, page| {
        with_space(core, || {
            going_on()?;
            take_back(core, trx, table, record, page, &mut course)
        })?;
        let _ = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        Ok(())
    })
}

/// The table is damaged, or can't be decrypted any more; nothing else is.
fn is_of_table(why: &Error, table: &OpenTable) -> bool {
    let is_own = table.space() != SYSTEM_SPACE && table.space().is_logged();
    match why {
        Error::Corrupt { page, .. } => is_own && page.space == table.space(),
        Error::NoKey { .. } => is_own,
        _ => false,
    }
}

/// RB-2. `take` takes back one record.
fn take_back_whole(
    trx: &mut Transaction,
    mut take: impl FnMut(&Core, &mut Transaction, &OpenTable, &UndoRecord<'_>, PageId) -> Result<()>,
) -> Result<BTreeSet<TableId>> {
    let mut left = BTreeSet::new();
    each_newest(trx, 0, |core, trx, record, page| {
        let Some(table) = core.tables.by_id(record.table)? else {
            if !record.table.is_temporary() && left.insert(record.table) {
                core.tables.owe_undo(record.table)?;
            }
            return Ok(());
        };
        match take(core, trx, &table, record, page) {
            Err(why) if is_of_table(&why, &table) => {
                let name = &table.def.name;
                core.error(&format!("table {name} can't be used: {why}"));
                core.tables.mark_broken(&table, why);
                if left.insert(record.table) {
                    core.tables.owe_undo(record.table)?;
                }
                Ok(())
            }
            done => done,
        }
    })?;
    let core = trx.core().clone();
    let (broken, dropped): (Vec<_>, Vec<_>) =
        (left.iter().copied()).partition(|table| core.tables.is_owed(*table));
    for table in dropped {
        core.warn(&format!(
            "changes of transaction {:?} to table number {table} are forgotten: there is no such table any more",
            trx.id()
        ));
    }
    for table in &broken {
        core.error(&format!(
            "transaction {:?} is not rolled back in table {}, which can't be used; the next start tries again, unless the table is dropped before",
            trx.id(),
            core.tables.name_of(*table)
        ));
    }
    Ok(broken.into_iter().collect())
}

/// Calls `f` with the undo records down to a number, the newest first, and the page that each stands on.
fn each_newest(
    trx: &mut Transaction,
    down_to: u64,
    mut f: impl FnMut(&Core, &mut Transaction, &UndoRecord<'_>, PageId) -> Result<()>,
) -> Result<()> {
    let core = trx.core().clone();
    let env = &core.undo.env;
    let records = (trx.undo.as_ref()).map_or(0, |undo| undo.left_from(down_to));
    let watch = trx.watch().filter(|_| records > TOLD_EVERY);
    let meter = Meter::begin(watch, Phase::RollBack, records, TOLD_EVERY);
    let mut bytes = std::mem::take(&mut trx.scratch.undo);
    let mut newest = |trx: &mut Transaction| {
        let Some(undo) = &trx.undo else {
            return Ok(false);
        };
        let Some(page) = undo.read_newest(env, down_to, &mut bytes)? else {
            return Ok(false);
        };
        let record = UndoRecord::decode(&bytes).expect("read_newest decoded it");
        f(&core, trx, &record, page)?;
        let undo = trx.undo.as_mut().expect("has a log");
        undo.pop_newest(env, record.table, record.kind)?;
        Ok(true)
    };
    let done = loop {
        match newest(trx) {
            Ok(true) => meter.add(1),
            Ok(false) => break Ok(()),
            // TEMP-6: the rest of what it did to temporary tables is passed over.
            Err(e) if trx.has_temporary_changes() && env.spaces.loses_temporary(&e) => {
                trx.undo.as_mut().expect("has a log").forget_temporary();
            }
            Err(e) => break Err(e),
        }
    };
    trx.scratch.undo = bytes;
    done
}

/// Nothing stops it.
const GO_ON: GoingOn<'_> = &|| Ok(());

/// One rollback.
struct Course<'a> {
    /// Asked in the middle of a load, which may be long.
    going_on: GoingOn<'a>,
    /// The transaction goes on afterwards: rows that it has changed stay locked.
    goes_on: bool,
    /// How many it has locked for that.
    locked: usize,
    /// The row that is locked until its entries are back (WRITTEN-2).
    open_row: Option<(IndexId, Vec<u8>)>,
    /// Tables whose loaded rows it has taken out.
    unloaded: Vec<TableId>,
}

impl Course<'_> {
    fn new(going_on: GoingOn<'_>) -> Course<'_> {
        Course {
            going_on,
            goes_on: false,
            locked: 0,
            open_row: None,
            unloaded: Vec::new(),
        }
    }

    /// A row that the transaction has changed is about to be as it was. To be called under the exclusive
    /// latch of its leaf.
    fn lock_again(
        &mut self,
        core: &Core,
        trx: &Transaction,
        index: IndexId,
        record: &UndoRecord<'_>,
    ) {
        let locks = trx.locks();
        if self.goes_on && core.locks.relies_on_writing(locks) {
            // WRITTEN-1. A statement's cursor may be on one of a few, and change it again.
            let need = match self.locked < FEW_ROWS {
                true => Need::Must,
                false => Need::IfMemory,
            };
            if core.locks.lock_again(locks, index, record.key, need) {
                self.locked += 1;
                locks.add_implied(-1);
                return;
            }
        }
        if record.kind == UndoKind::RowDeleteMark
            && core.locks.lock_again(locks, index, record.key, Need::Must)
        {
            // WRITTEN-2
            self.open_row = Some((index, record.key.to_vec()));
        }
    }

    /// The entries of the row that was put back last are there, too.
    fn let_go(&mut self, core: &Core, trx: &Transaction) {
        if let Some((index, key)) = self.open_row.take() {
            core.locks.unlock_record(trx.locks(), index, &key);
        }
    }
}

/// RB-1. When `step` fails for space it has done nothing, or what it may do again.
fn with_space(core: &Core, mut step: impl FnMut() -> Result<()>) -> Result<()> {
    let mut told: Option<Instant> = None;
    loop {
        match step() {
            Err(Error::NoSpace { what }) if core.check_usable().is_ok() => {
                if told.is_none_or(|at| at.elapsed() >= SPACE_TELL) {
                    core.warn(&format!(
                        "a rollback waits for space: {what}; make room and it goes on"
                    ));
                    told = Some(Instant::now());
                }
                std::thread::sleep(SPACE_RETRY);
            }
            done => return done,
        }
    }
}

/// `page` is the undo record's.
fn take_back(
    core: &Core,
    trx: &mut Transaction,
    table: &OpenTable,
    record: &UndoRecord<'_>,
    page: PageId,
    course: &mut Course<'_>,
) -> Result<()> {
    let damaged = |found: String| {
        let expected = format!("an undo record of table {}", table.def.name);
        Error::corrupt(page, expected, found)
    };
    let index = table
        .index(record.index)
        .filter(|index| record.kind.is_about_rows() == (index.id == table.clustered.id))
        .ok_or_else(|| damaged(format!("{:?} of index {}", record.kind, record.index)))?;
    if record.kind.is_row() {
        course.let_go(core, trx);
    }
    match (record.kind, &record.previous) {
        (UndoKind::RowInsert | UndoKind::EntryInsert | UndoKind::EntryMarkUnread, _) => {
            remove(core, trx, index, record)?;
        }
        (UndoKind::OverflowAlloc, _) => free_overflow(core, trx, table, record)?,
        (UndoKind::TableLoad, _) => unload(core, trx, table, record, course)?,
        (UndoKind::EntryDeleteMark | UndoKind::EntryUnmark, Some(previous)) => {
            restore_entry(core, trx, index, record, previous)?;
        }
        (_, Some(previous)) => restore_row(core, trx, index, record, previous, course)?,
        (_, None) => return Err(damaged("one without a previous state".into())),
    }
    table.count_rows(-record.kind.row_count_change());
    Ok(())
}

/// The record that the undo record speaks of, latched, and the tree that has it. What the transaction has
/// written stays where it is (CB-4).
fn find<'i>(
    mtr: &mut Mtr<'_>,
    index: &'i OpenIndex,
    key: &[u8],
    room: usize,
) -> Result<(LeafPos, &'i Tree)> {
    if let Some(buffer) = index.buffer.tree_in_use()? {
        let pos = buffer.latch_leaf_to_undo(mtr, key, room)?;
        if pos.found {
            return Ok((pos, buffer));
        }
        mtr.release(pos.h);
    }
    let pos = index.tree.latch_leaf_to_undo(mtr, key, room)?;
    match pos.found {
        true => Ok((pos, &index.tree)),
        false => {
            let expected = "a record that rollback has to take back";
            Err(index.damage_on(mtr.page_id(pos.h), expected, "none with its key"))
        }
    }
}

fn remove(
    core: &Core,
    trx: &mut Transaction,
    index: &OpenIndex,
    record: &UndoRecord<'_>,
) -> Result<()> {
    let mut mtr = Mtr::begin_in(&core.mtr, index.space(), MAX_MTR)?;
    let (pos, tree) = find(&mut mtr, index, record.key, 0)?;
    let payload = pos.payload(&mtr);
    let writer = match record.kind.is_row() {
        true => RowRecord::decode(payload).map(|row| row.trx),
        false => entry_state(payload).map(|(_, trx)| trx),
    };
    if writer != Some(record.trx) {
        let expected = format!("a record that transaction {} inserted", record.trx);
        let found = format!("one of {writer:?}");
        return Err(index.damage_on(mtr.page_id(pos.h), &expected, found));
    }
    let undo = trx.undo.as_mut().expect("has a log");
    let latch = undo.latch_undone(&mut mtr, record.table, record.kind)?;
    let forgets = record.kind == UndoKind::EntryInsert
        && core.log.is_sabotaged(Sabotage::EntryLeftByRollback);
    if !forgets {
        mtr.op(pos.h, PageOp::Remove { slot: pos.slot });
    }
    let is_buffered = !std::ptr::eq(tree, &index.tree);
    if is_buffered {
        index.buffer.note_empty(pos.slotted(&mtr));
    }
    undo.mark_undone(&mut mtr, latch);
    let sparse = pos.underfull(&mtr);
    mtr.commit();
    if sparse {
        // A merge is an optimisation: if it fails, the tree is as correct as before.
        let _ = tree.maybe_merge(record.key);
        if is_buffered {
            index.buffer.note_pages();
        }
    }
    Ok(())
}

/// Frees overflow pages. The row that referred to them is gone, or never came to be: its record was taken
/// back before.
fn free_overflow(
    core: &Core,
    trx: &mut Transaction,
    table: &OpenTable,
    record: &UndoRecord<'_>,
) -> Result<()> {
    let pages: Vec<PageNo> = record.pages().collect();
    let mut mtr = Mtr::begin_in(&core.mtr, table.space(), MAX_MTR)?;
    table.latch_overflow(&mut mtr, &pages, record.trx)?;
    let undo = trx.undo.as_mut().expect("has a log");
    let latch = undo.latch_undone(&mut mtr, record.table, record.kind)?;
    for &no in &pages {
        table.clustered.tree.space.free(&mut mtr, no)?;
    }
    table.note_freed_overflow(&pages);
    undo.mark_undone(&mut mtr, latch);
    mtr.commit();
    Counters::add(&core.counters.overflow_pages_freed, pages.len() as u64);
    Ok(())
}

/// Takes all rows out that the transaction has in the table: those that were loaded (LOAD-6). Entries go
/// first, as the rows' own undo records have it. Before it is marked undone it may be done again.
fn unload(
    core: &Core,
    trx: &mut Transaction,
    table: &OpenTable,
    record: &UndoRecord<'_>,
    course: &mut Course<'_>,
) -> Result<()> {
    let writer = Some(record.trx);
    let going_on = course.going_on;
    if !course.unloaded.contains(&table.id()) {
        for index in &table.secondary {
            let is_own = |payload: &[u8]| entry_state(payload).map(|(_, trx)| trx) == writer;
            index.tree.drain_some(is_own, |_, _| going_on())?;
        }
        let is_own = |payload: &[u8]| RowRecord::decode(payload).map(|row| row.trx) == writer;
        let mut n = 0;
        let is_shared = table.clustered.tree.drain_some(is_own, |_, _| {
            n += 1;
            going_on()
        })?;
        // A load that has failed has counted none. It was alone.
        match is_shared {
            true => table.count_rows(-n),
            false => table.count_rows(-(table.row_count() as i64)),
        }
        course.unloaded.push(table.id());
    }
    let mut mtr = Mtr::begin_in(&core.mtr, table.space(), MAX_MTR)?;
    let undo = trx.undo.as_mut().expect("has a log");
    let latch = undo.latch_undone(&mut mtr, record.table, record.kind)?;
    undo.mark_undone(&mut mtr, latch);
    mtr.commit();
    Ok(())
}

fn restore_entry(
    core: &Core,
    trx: &mut Transaction,
    index: &OpenIndex,
    record: &UndoRecord<'_>,
    previous: &Previous<'_>,
) -> Result<()> {
    let mut mtr = Mtr::begin_in(&core.mtr, index.space(), MAX_MTR)?;
    let (pos, _) = find(&mut mtr, index, record.key, 0)?;
    let payload = pos.payload(&mtr);
    if entry_state(payload).is_none_or(|(_, trx)| trx != record.trx) {
        let found = format!("another one of {} bytes", payload.len());
        let expected = format!("an entry written by {}", record.trx);
        return Err(index.damage_on(mtr.page_id(pos.h), &expected, found));
    }
    let undo = trx.undo.as_mut().expect("has a log");
    let latch = undo.latch_undone(&mut mtr, record.table, record.kind)?;
    let state = state_bytes(previous.flags, previous.trx);
    mtr.op(
        pos.h,
        PageOp::PatchPayload {
            slot: pos.slot,
            off: 0,
            bytes: &state,
        },
    );
    undo.mark_undone(&mut mtr, latch);
    mtr.commit();
    Ok(())
}

fn restore_row(
    core: &Core,
    trx: &mut Transaction,
    index: &OpenIndex,
    record: &UndoRecord<'_>,
    previous: &Previous<'_>,
    course: &mut Course<'_>,
) -> Result<()> {
    let diff = &previous.diff;
    let mut mtr = Mtr::begin_in(&core.mtr, index.space(), MAX_MTR)?;
    let mut room = 0;
    let (pos, cut) = loop {
        let (pos, _) = find(&mut mtr, index, record.key, room)?;
        let payload = pos.payload(&mtr);
        let current = RowRecord::decode(payload).filter(|r| r.trx == record.trx);
        let Some(replaced) = current.and_then(|r| diff.replaced(r.row)) else {
            let found = format!("another one of {} bytes", payload.len());
            let expected = format!("the row as transaction {} left it", record.trx);
            return Err(index.damage_on(mtr.page_id(pos.h), &expected, found));
        };
        // Most have their length: nothing is split for them.
        let (cut, growth) = (
            replaced.len(),
            diff.middle.len().saturating_sub(replaced.len()),
        );
        if pos.slotted(&mtr).free_space() >= growth {
            break (pos, cut);
        }
        mtr.release(pos.h);
        room = growth;
    };
    if previous.trx != record.trx && !record.table.is_temporary() {
        course.lock_again(core, trx, index.id, record);
    }
    let undo = trx.undo.as_mut().expect("has a log");
    let latch = undo.latch_undone(&mut mtr, record.table, record.kind)?;
    mtr.op(
        pos.h,
        PageOp::UpdateRow {
            slot: pos.slot,
            head: previous.head(),
            at: diff.prefix as u16,
            cut: cut as u16,
            bytes: diff.middle,
        },
    );
    undo.mark_undone(&mut mtr, latch);
    mtr.commit();
    core.log.stops.pass(StopPoint::RowPutBack);
    Ok(())
}
