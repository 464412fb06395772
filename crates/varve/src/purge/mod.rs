//! Purge: removes what no read view can see any more, and gives undo logs back.
//!
//! One thread takes the oldest committed update undo logs of all rollback segments, as long as their TrxNos are below the
//! limit (every open and future view sees those transactions), in batches: it works through the records of each log
//! in the order of the numbers, and at the end of the batch takes the logs off the history, many of a rollback segment in one
//! mini-transaction. Logs whose history entry says that they only take up space are not even read.
//!
//! Rules, for a record written by T:
//!
//! - `EntryKill`: remove the entry if it is dead by T.
//! - `RowDelete`: remove the row if it is dead by T and its RollPtr is this record.
//! - `RowUpdate` and `RowDelete`: free the long values that the record lists (`chains`).
//! - a revive, if revives of this log were taken back: remove the record if it equals its previous, dead state.
//! - anything else that was undone: nothing.
//!
//! - **PURGE-1** A row goes after its entries (SEC-1): DELETE logs the entries first. A log in which a revive was taken
//!   back has them the other way round and is therefore worked through twice, entries then rows.
//! - **PURGE-2** Every rule is a condition on the record's current state, so working through a log again after a crash
//!   does no harm.
//!
//! - **PURGE-3** The history of temporary rollback segments has no limit: it is worked off at once. A view never looks at
//!   older versions of temporary tables (TEMP-2), and a transaction whose log is in the history can't roll back any more.
//!
//! Latches: one leaf at a time. DDL waits at a table's gate for the record that purge is at, and closes the gate until it
//! is through; purge then looks the table up again, and skips the records of one that is gone. An error (a damaged page) is logged; purge waits and tries again, nothing is skipped.

mod chains;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::base::{Result, RollPtr, TrxNo};
use crate::catalog::{EntryRecord, OpenIndex, OpenTable, RowRecord};
use crate::mtr::Mtr;
use crate::page::PageOp;
use crate::txn::{Core, Counters};
use crate::undo::{HistoryEntry, Rseg, UndoCopies, UndoKind, UndoRecord};

/// A batch covers so many numbers: that many logs at most. After it the limit is computed again, and surplus free pages
/// are returned.
const BATCH_NUMBERS: u64 = 4096;
/// Redo that removing one record can write.
const MAX_MTR: u32 = 64 * 1024;
const SHORTEST_SLEEP: Duration = Duration::from_millis(10);
/// After a round with so many logs the next one comes sooner: the undo pages that transactions take in turn stay few
/// enough for the processor's cache.
const BUSY_LOGS: usize = 256;
const BUSY_PAUSE: Duration = Duration::from_millis(2);
/// Nobody has written for about this long: what the rollback segments have cached goes back to the tablespaces.
const IDLE: Duration = Duration::from_secs(2);
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
        let (mut sleep, mut pause) = (SHORTEST_SLEEP, SHORTEST_SLEEP);
        while !stop.load(Ordering::Relaxed) {
            core.oldest_view();
            let done = run_round(core, stop).and_then(|done| {
                if done == 0 && sleep >= IDLE {
                    trim_caches(core, stop)?;
                }
                Ok(done)
            });
            match done {
                Ok(0) => sleep = (sleep * 2).min(LONGEST_SLEEP),
                Ok(done) => {
                    sleep = SHORTEST_SLEEP;
                    pause = match done >= BUSY_LOGS {
                        true => BUSY_PAUSE,
                        false => SHORTEST_SLEEP,
                    };
                }
                Err(e) => {
                    if core.check_usable().is_err() {
                        return;
                    }
                    core.warn(&format!("purge could not go on and will try again: {e}"));
                    sleep = LONGEST_SLEEP;
                }
            }
            // Commits can't wake it for a moment: while a view holds the history back, each would.
            core.purge_wanted.pause(pause);
            core.purge_wanted
                .sleep(sleep, || stop.load(Ordering::Relaxed));
        }
    });
    if std::panic::catch_unwind(body).is_err() {
        core.fail("the purge thread panicked");
    }
}

/// Works off everything below the limit; returns how many logs.
fn run_round(core: &Core, stop: &AtomicBool) -> Result<usize> {
    let mut all = 0;
    while !stop.load(Ordering::Relaxed) {
        match run_batch(core, stop)? {
            0 => break,
            done => all += done,
        }
    }
    Ok(all)
}

/// Gives back what the rollback segments have cached for transactions that do not come.
fn trim_caches(core: &Core, stop: &AtomicBool) -> Result<()> {
    let mut rsegs = core.undo.rsegs();
    rsegs.try_for_each(|rseg| rseg.trim_cached(&core.undo.env, stop))
}

/// Works off a batch of logs; returns how many.
pub fn run_batch(core: &Core, stop: &AtomicBool) -> Result<usize> {
    let mut done = 0;
    // PURGE-3: without a limit.
    if let Some(oldest) = core.undo.oldest_temporary() {
        let end = TrxNo(oldest.0.saturating_add(BATCH_NUMBERS));
        done += purge_below(core, core.undo.temporary(), end, stop)?;
    }
    if let Some(oldest) = core.undo.oldest() {
        let end = TrxNo(oldest.0.saturating_add(BATCH_NUMBERS)).min(core.sys.purge_limit());
        done += purge_below(core, core.undo.logged(), end, stop)?;
    }
    if done > 0 {
        Counters::add(&core.counters.purged_logs, done as u64);
        Counters::add(&core.counters.purge_batches, 1);
    }
    // Also those of insert logs, with which purge has nothing else to do.
    for rseg in core.undo.rsegs() {
        rseg.trim_free_chain(&core.undo.env, stop)?;
    }
    Ok(done)
}

/// Works off the logs of these rollback segments with numbers below `end`; returns how many.
fn purge_below(core: &Core, rsegs: &[Arc<Rseg>], end: TrxNo, stop: &AtomicBool) -> Result<usize> {
    let mut batch = Batch::collect(core, rsegs, end)?;
    let worked = batch.work_off(core, stop);
    let done = batch.give_back(core)?;
    worked?;
    Ok(done)
}

/// The logs of one batch, by rollback segment.
struct Batch<'a> {
    rsegs: &'a [Arc<Rseg>],
    logs: Vec<Vec<HistoryEntry>>,
    /// How many logs of each rollback segment are worked off.
    done: Vec<usize>,
}

impl Batch<'_> {
    fn collect<'a>(core: &Core, rsegs: &'a [Arc<Rseg>], end: TrxNo) -> Result<Batch<'a>> {
        let mut logs = Vec::new();
        for rseg in rsegs {
            let mut below = Vec::new();
            rseg.logs_below(&core.undo.env, end, &mut below)?;
            logs.push(below);
        }
        let done = vec![0; logs.len()];
        Ok(Batch { rsegs, logs, done })
    }

    /// Works through the logs in the order of their numbers, until told to stop. After an error what was done before it
    /// counts.
    fn work_off(&mut self, core: &Core, stop: &AtomicBool) -> Result<()> {
        let mut order: Vec<_> = (self.logs.iter().enumerate())
            .flat_map(|(n, logs)| logs.iter().map(move |log| (*log, n)))
            .collect();
        order.sort_unstable_by_key(|(log, _)| log.no);
        let mut copies = UndoCopies::default();
        for (log, n) in order {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            if !log.only_space {
                purge_log(core, &self.rsegs[n], &log, &mut copies)?;
            }
            self.done[n] += 1;
        }
        Ok(())
    }

    /// Gives back what was worked off; returns how many logs.
    fn give_back(&self, core: &Core) -> Result<usize> {
        let mut all = 0;
        for ((rseg, logs), done) in self.rsegs.iter().zip(&self.logs).zip(&self.done) {
            core.undo.free_logs(rseg, &logs[..*done])?;
            all += done;
        }
        Ok(all)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sweep {
    All,
    Entries,
    Rows,
}

fn purge_log(
    core: &Core,
    rseg: &Rseg,
    entry: &HistoryEntry,
    copies: &mut UndoCopies,
) -> Result<()> {
    let log = core.undo.history_log(rseg, entry)?;
    let revives = entry.undone_revive;
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
            (rseg.space(), &log),
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
    match record.concerns_purge() {
        true => !record.undone,
        false => revives && record.kind.is_revive(),
    }
}

fn purge_record(core: &Core, record: &UndoRecord<'_>, at: RollPtr) -> Result<()> {
    if record.kind != UndoKind::RowUpdate {
        in_table(core, record, |table| {
            purge_in_table(core, table, record, at)
        })?;
    }
    for (n, chain) in record.frees().enumerate() {
        chains::free(core, record, (n, chain), at)?;
    }
    Ok(())
}

/// Calls `f` with the record's table, while nobody drops or renames it; not at all if it is gone.
fn in_table<R: Default>(
    core: &Core,
    record: &UndoRecord<'_>,
    f: impl FnOnce(&OpenTable) -> Result<R>,
) -> Result<R> {
    let Some(mut table) = core.tables.by_id(record.table) else {
        return Ok(R::default());
    };
    loop {
        let gate = table.let_purge_in();
        if !table.is_dropped() {
            return f(&table);
        }
        drop(gate);
        // Renamed while the gate was closed: the same table under another handle. Or it is gone.
        match core.tables.by_id(record.table) {
            Some(now) if !Arc::ptr_eq(&now, &table) => table = now,
            _ => return Ok(R::default()),
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
    let mut mtr = Mtr::begin_in(&core.mtr, index.space(), MAX_MTR)?;
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
