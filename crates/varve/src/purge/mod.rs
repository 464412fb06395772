//! Purge: removes what no read view can see any more, and gives undo logs back.
//!
//! One thread takes the oldest committed update undo log of all rollback segments, as long as its TrxNo is below the
//! limit (every open and future view sees that transaction), works through its records in order, and frees it.
//!
//! Rules, for a record written by T:
//!
//! - `EntryKill`: remove the entry if it is dead by T.
//! - `RowDelete`: remove the row if it is dead by T and its RollPtr is this record.
//! - a revive, if revives of this log were taken back: remove the record if it equals its previous, dead state.
//! - anything else that was undone, and `RowUpdate`: nothing.
//!
//! - **PURGE-1** A row goes after its entries (SEC-1): DELETE logs the entries first. A log in which a revive was taken
//!   back has them the other way round and is therefore worked through twice, entries then rows.
//! - **PURGE-2** Every rule is a condition on the record's current state, so working through a log again after a crash
//!   does no harm.
//!
//! Latches: one leaf at a time. DDL waits at a table's gate for the record that purge is at, and closes the gate until it
//! is through; purge then looks the table up again, and skips the records of one that is gone. An error (a damaged page) is logged; purge waits and tries again, nothing is skipped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::base::{Result, RollPtr};
use crate::catalog::{EntryRecord, OpenIndex, OpenTable, RowRecord};
use crate::mtr::Mtr;
use crate::page::PageOp;
use crate::txn::{Core, Counters};
use crate::undo::{HistoryEntry, Rseg, UndoCopies, UndoKind, UndoRecord};

/// Logs worked off before the limit is computed again and surplus free pages are returned.
const BATCH: usize = 300;
/// Redo that removing one record can write.
const MAX_MTR: u32 = 64 * 1024;
const SHORTEST_SLEEP: Duration = Duration::from_millis(10);
const LONGEST_SLEEP: Duration = Duration::from_secs(10);

/// The purge thread.
pub struct Purge {
    core: Arc<Core>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Purge {
    pub fn start(core: Arc<Core>) -> Purge {
        let stop = Arc::new(AtomicBool::new(false));
        let (thread_core, thread_stop) = (core.clone(), stop.clone());
        let thread = std::thread::Builder::new()
            .name("varve-purge".into())
            .spawn(move || run(&thread_core, &thread_stop))
            .expect("a thread can be started");
        Purge {
            core,
            stop,
            thread: Some(thread),
        }
    }

    /// Ends the thread after the record it is at.
    pub fn stop(&mut self) {
        // Relaxed: the wake-up's mutex orders it.
        self.stop.store(true, Ordering::Relaxed);
        self.core.purge_wanted.notify_always();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            self.core.fail("the purge thread panicked");
        }
    }
}

impl Drop for Purge {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(core: &Core, stop: &AtomicBool) {
    let body = std::panic::AssertUnwindSafe(|| {
        let mut sleep = SHORTEST_SLEEP;
        while !stop.load(Ordering::Relaxed) {
            core.oldest_view();
            match run_batch(core, stop) {
                Ok(BATCH) => continue,
                Ok(0) => sleep = (sleep * 2).min(LONGEST_SLEEP),
                Ok(_) => sleep = SHORTEST_SLEEP,
                Err(e) => {
                    if core.check_usable().is_err() {
                        return;
                    }
                    core.warn(&format!("purge could not go on and will try again: {e}"));
                    sleep = LONGEST_SLEEP;
                }
            }
            // Commits can't wake it for a moment: while a view holds the history back, each would.
            core.purge_wanted.pause(SHORTEST_SLEEP);
            core.purge_wanted
                .sleep(sleep, || stop.load(Ordering::Relaxed));
        }
    });
    if std::panic::catch_unwind(body).is_err() {
        core.fail("the purge thread panicked");
    }
}

/// Works off up to a batch of logs; returns how many.
pub fn run_batch(core: &Core, stop: &AtomicBool) -> Result<usize> {
    let mut done = 0;
    let mut copies = UndoCopies::default();
    'limits: loop {
        let limit = core.sys.purge_limit();
        let before = done;
        while let Some((_, rseg)) = core.undo.oldest().filter(|(no, _)| *no < limit) {
            if stop.load(Ordering::Relaxed) || done >= BATCH {
                break 'limits;
            }
            let Some(entry) = rseg.oldest_entry(&core.undo.env)? else {
                break;
            };
            purge_log(core, &rseg, entry, &mut copies)?;
            core.undo.free_oldest(&rseg, entry)?;
            Counters::add(&core.counters.purged_logs, 1);
            done += 1;
        }
        if done == before {
            break;
        }
    }
    if done > 0 {
        Counters::add(&core.counters.purge_batches, 1);
    }
    // Also those of insert logs, with which purge has nothing else to do.
    for rseg in core.undo.rsegs() {
        rseg.trim_free_chain(&core.undo.env, stop)?;
    }
    Ok(done)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sweep {
    All,
    Entries,
    Rows,
}

fn purge_log(core: &Core, rseg: &Rseg, entry: HistoryEntry, copies: &mut UndoCopies) -> Result<()> {
    let revives = core.undo.history_log(rseg, entry)?.undone_revive;
    let sweeps: &[Sweep] = if revives {
        &[Sweep::Entries, Sweep::Rows]
    } else {
        &[Sweep::All]
    };
    for &sweep in sweeps {
        let wanted = |record: &UndoRecord<'_>| {
            let swept = match sweep {
                Sweep::All => true,
                Sweep::Entries => !record.kind.is_row(),
                Sweep::Rows => record.kind.is_row(),
            };
            swept && concerns_purge(record, revives)
        };
        core.undo.walk(
            (rseg.space(), entry.first),
            copies,
            wanted,
            |page, slot, record| {
                purge_record(core, &record, RollPtr::new(false, rseg.id(), page, slot))
            },
        )?;
    }
    Ok(())
}

fn concerns_purge(record: &UndoRecord<'_>, revives: bool) -> bool {
    match record.kind {
        UndoKind::EntryKill | UndoKind::RowDelete => !record.undone,
        kind => revives && kind.is_revive(),
    }
}

fn purge_record(core: &Core, record: &UndoRecord<'_>, at: RollPtr) -> Result<()> {
    let Some(mut table) = core.tables.by_id(record.table) else {
        return Ok(());
    };
    loop {
        let gate = table.let_purge_in();
        if !table.is_dropped() {
            return purge_in_table(core, &table, record, at);
        }
        drop(gate);
        // Renamed while the gate was closed: the same table under another handle. Or it is gone.
        match core.tables.by_id(record.table) {
            Some(now) if !Arc::ptr_eq(&now, &table) => table = now,
            _ => return Ok(()),
        }
    }
}

fn purge_in_table(
    core: &Core,
    table: &OpenTable,
    record: &UndoRecord<'_>,
    at: RollPtr,
) -> Result<()> {
    let Some(index) = table.index(record.index) else {
        return Ok(());
    };
    let mut mtr = Mtr::begin(&core.mtr, MAX_MTR)?;
    let pos = index.tree.latch_leaf_exclusive(&mut mtr, record.key, 0)?;
    if !pos.found || !is_garbage(table, pos.payload(&mtr), record, at) {
        return Ok(());
    }
    mtr.op(pos.h, PageOp::Remove { slot: pos.slot });
    let sparse = pos.underfull(&mtr);
    mtr.commit();
    Counters::add(&core.counters.purged_records, 1);
    if sparse {
        merge(index, record.key)
    } else {
        Ok(())
    }
}

fn merge(index: &OpenIndex, key: &[u8]) -> Result<()> {
    index.tree.maybe_merge(key)
}

/// The rules above.
fn is_garbage(table: &OpenTable, payload: &[u8], record: &UndoRecord<'_>, at: RollPtr) -> bool {
    if record.kind.is_row() != (record.index == table.clustered.id) {
        return false;
    }
    if record.kind.is_row() {
        let Some(now) = RowRecord::decode(payload) else {
            return false;
        };
        let dead = now.is_deleted();
        return match (record.kind, &record.previous) {
            (UndoKind::RowDelete, _) => dead && now.trx == record.trx && now.roll_ptr == at,
            (UndoKind::RowRevive, Some(was)) => {
                dead && now.flags == was.flags && now.trx == was.trx && now.roll_ptr == was.roll_ptr
            }
            _ => false,
        };
    }
    let Some(now) = EntryRecord::decode(payload) else {
        return false;
    };
    let dead = now.is_deleted();
    match (record.kind, &record.previous) {
        (UndoKind::EntryKill, _) => dead && now.trx == record.trx,
        (UndoKind::EntryRevive, Some(was)) => dead && now.flags == was.flags && now.trx == was.trx,
        _ => false,
    }
}
