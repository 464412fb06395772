//! Purge: removes what no read view can see any more, and gives undo logs back.
//!
//! The **coordinator** (`coordinator`) takes the oldest committed update undo logs of all rollback segments,
//! as long as their TrxNos are below the limit (every open and future view sees those transactions), in
//! batches of about `purge_batch_size` undo pages (`pending`): it copies their records that concern purge,
//! sorts them by index and key (`work`), and works them off together with the **workers**, of which there are
//! `purge_threads` (`sweep`, `workers`). Then it takes the logs off the history, many of a rollback segment
//! in one mini-transaction. Logs whose history entry says that they only take up space are not even read. A
//! log with more pages than a batch takes several. When purge works, when it waits, and what it leaves to
//! other work is one state machine, described in `pacing`.
//!
//! Rules, for a record written by T:
//!
//! - `EntryDeleteMark`: remove the entry if T has delete-marked it.
//! - `RowDeleteMark`: remove the row if T has delete-marked it and its RollPtr is this record.
//! - `RowUpdate` and `RowDeleteMark`: free the external values that the record lists (`chains`).
//! - an un-delete-marking, if one of this log was taken back: remove the record if it equals its previous,
//!   delete-marked state.
//! - anything else that was undone: nothing.
//!
//! - **PURGE-1** A row goes after its entries (SEC-1): of a batch first all entries are worked off, then all
//!   rows. DELETE logs the entries first, so this holds for a log that takes several batches, too. A log in
//!   which an un-delete-marking was taken back has them the other way round and is therefore read twice,
//!   entries then rows.
//! - **PURGE-2** Every rule is a condition on the record's current state, so working through a log again
//!   after a crash does no harm.
//!
//! - **PURGE-3** The history of temporary rollback segments has no limit: it is worked off at once. A view
//!   never looks at older versions of temporary tables (TEMP-2), and a transaction whose log is in the
//!   history can't roll back any more.
//!
//! Latches: one leaf at a time. DDL waits at a table's gate for the leaves that purge is at, and closes the
//! gate until it is through; purge then looks the table up again, and skips the records of one that is gone.
//! An error (a damaged page) is logged; the logs from that record's on stay in the history, purge waits and
//! tries again.

mod behind;
mod chains;
mod coordinator;
mod copying;
mod lag;
mod lag_rate;
mod merger;
mod pacing;
mod pending;
mod sweep;
mod truncation;
mod work;
mod workers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::base::{Result, TableId, threads};
use crate::catalog::OpenTable;
use crate::redo::ControlFile;
use crate::txn::Core;

pub use truncation::truncate;

use lag::LagControl;
use merger::ChangeMerger;
use truncation::Truncation;

/// The purge threads.
pub struct Purge {
    core: Arc<Core>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    truncation: Truncation,
    lag: LagControl,
    merger: ChangeMerger,
}

impl Purge {
    pub fn start(core: Arc<Core>, control: Arc<ControlFile>) -> Result<Purge> {
        let mut purge = Purge {
            truncation: Truncation::start(core.clone(), control)?,
            lag: LagControl::start(core.clone())?,
            merger: ChangeMerger::start(core.clone())?,
            core,
            stop: Arc::default(),
            thread: None,
        };
        let (core, stop) = (purge.core.clone(), purge.stop.clone());
        let thread = threads::spawn("varve-purge", move || coordinator::run(&core, &stop))?;
        purge.thread = Some(thread);
        Ok(purge)
    }

    /// Ends the threads after the leaves they are at.
    pub fn stop(&mut self) {
        self.lag.stop();
        self.merger.stop();
        self.truncation.stop();
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

/// Calls `f` with the table, while nobody drops or renames it; not at all if it is gone.
pub fn in_table<R: Default>(
    core: &Core,
    id: TableId,
    f: impl FnOnce(&OpenTable) -> Result<R>,
) -> Result<R> {
    let Some(mut table) = core.tables.by_id(id)? else {
        return Ok(R::default());
    };
    loop {
        let gate = table.let_purge_in();
        if !table.is_dropped() {
            return f(&table);
        }
        drop(gate);
        // Renamed while the gate was closed: the same table under another handle. Or it is gone.
        match core.tables.by_id(id)? {
            Some(now) if !Arc::ptr_eq(&now, &table) => table = now,
            _ => return Ok(R::default()),
        }
    }
}
