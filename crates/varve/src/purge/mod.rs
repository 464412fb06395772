//! Purge: removes what no read view can see any more, and gives undo logs back.
//!
//! The **coordinator** takes the oldest committed update undo logs of all rollback segments, as long as their
//! TrxNos are below the limit (every open and future view sees those transactions), in batches of about
//! `purge_batch_size` undo pages (`pending`): it copies their records that concern purge, sorts them by index
//! and key (`work`), and works them off together with the **workers**, of which there are `purge_threads`
//! (`sweep`, `workers`), as far as other work leaves processors to them (`share`). Then it takes the logs off
//! the history, many of a rollback segment in one mini-transaction. Logs whose history entry says that they
//! only take up space are not even read. A log with more pages than a batch takes several.
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

mod chains;
mod lag;
mod lag_rate;
mod pending;
mod rest;
mod share;
mod standstill;
mod sweep;
mod truncation;
mod work;
mod workers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::base::{Error, Result, Sabotage, TableId, TrxNo, processors};
use crate::catalog::OpenTable;
use crate::redo::ControlFile;
use crate::txn::{Core, Counters, PurgeOptions, PurgeState};

pub use truncation::truncate;

use lag::LagControl;
use pending::Pending;
use rest::{Rest, done_by_others, is_far_behind};
use share::{Share, Sums};
use standstill::Standstill;
use sweep::{Failed, Half, Sweep};
use truncation::Truncation;
use work::Work;
use workers::Workers;

const SHORTEST_SLEEP: Duration = Duration::from_millis(10);
/// After a round with so many logs the next one comes sooner: the undo pages that transactions take in turn
/// stay few enough for the processor's cache.
const BUSY_LOGS: usize = 256;
const BUSY_PAUSE: Duration = Duration::from_millis(2);
/// A batch is so many times larger while threads wait for free frames.
const CROWDED_FACTOR: u32 = 4;
/// Nobody has written for about this long: what the rollback segments have cached goes back to the
/// tablespaces.
const IDLE: Duration = Duration::from_secs(2);
const LONGEST_SLEEP: Duration = Duration::from_secs(10);
/// While a view holds history back: whoever ends it wakes nobody, and there may be no commit that does.
const HELD_SLEEP: Duration = Duration::from_millis(100);

/// The purge threads.
pub struct Purge {
    core: Arc<Core>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    truncation: Truncation,
    lag: LagControl,
}

impl Purge {
    pub fn start(core: Arc<Core>, control: Arc<ControlFile>) -> Result<Purge> {
        let mut purge = Purge {
            truncation: Truncation::start(core.clone(), control)?,
            lag: LagControl::start(core.clone())?,
            core,
            stop: Arc::default(),
            thread: None,
        };
        let (core, stop) = (purge.core.clone(), purge.stop.clone());
        let thread = std::thread::Builder::new()
            .name("varve-purge".into())
            .spawn(move || run(&core, &stop))
            .map_err(|e| Error::io("start thread", "varve-purge", e))?;
        purge.thread = Some(thread);
        Ok(purge)
    }

    /// Ends the threads after the leaves they are at.
    pub fn stop(&mut self) {
        self.lag.stop();
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

fn run(core: &Arc<Core>, stop: &Arc<AtomicBool>) {
    let body = std::panic::AssertUnwindSafe(|| {
        let mut coordinator = Coordinator::new(core.clone(), stop.clone());
        let (mut sleep, mut pause) = (SHORTEST_SLEEP, SHORTEST_SLEEP);
        let mut standstill = Standstill::default();
        while !stop.load(Ordering::Relaxed) {
            core.oldest_view();
            let done = coordinator.run_round().and_then(|done| {
                if done == 0 && sleep >= IDLE {
                    trim_caches(core, stop)?;
                }
                Ok(done)
            });
            let is_at_rest = !matches!(done, Ok(n) if n > 0) && core.undo.oldest().is_some();
            let state = match standstill.note(&core.counters, is_at_rest, Instant::now()) {
                true => PurgeState::Stopped,
                false => PurgeState::Idle,
            };
            core.purge_progress.set_state(state);
            match done {
                Ok(0) => sleep = (sleep * 2).min(longest_sleep(core.undo.oldest().is_some())),
                Ok(done) => {
                    sleep = SHORTEST_SLEEP;
                    pause = match done >= BUSY_LOGS {
                        true => BUSY_PAUSE,
                        false => SHORTEST_SLEEP,
                    };
                }
                // What is left to do concerns tables that nobody can use (TEMP-6).
                Err(e) if core.undo.env.spaces.loses_temporary(&e) => sleep = SHORTEST_SLEEP,
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

/// After a round that found nothing to do.
fn longest_sleep(is_history_left: bool) -> Duration {
    match is_history_left {
        true => HELD_SLEEP,
        false => LONGEST_SLEEP,
    }
}

/// Gives back what the rollback segments have cached for transactions that do not come.
fn trim_caches(core: &Core, stop: &AtomicBool) -> Result<()> {
    let mut rsegs = core.undo.rsegs();
    rsegs.try_for_each(|rseg| rseg.trim_cached(&core.undo.env, stop))
}

/// What the coordinator keeps from batch to batch.
struct Coordinator {
    core: Arc<Core>,
    stop: Arc<AtomicBool>,
    workers: Workers,
    logged: Pending,
    temporary: Pending,
    work: Arc<Work>,
    /// Batches since free pages were given back.
    untrimmed: u32,
    /// How often threads had waited for a free frame when the last batch was read.
    frame_waits: u64,
    share: Share,
}

/// What a batch or a round came to.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Done {
    logs: usize,
    pages: usize,
}

impl Done {
    fn add(&mut self, other: Done) {
        self.logs += other.logs;
        self.pages += other.pages;
    }

    fn is_nothing(self) -> bool {
        self == Done::default()
    }
}

impl Coordinator {
    fn new(core: Arc<Core>, stop: Arc<AtomicBool>) -> Coordinator {
        Coordinator {
            workers: Workers::new(),
            logged: Pending::new(core.undo.logged()),
            temporary: Pending::new(core.undo.temporary()),
            work: Arc::default(),
            untrimmed: 0,
            frame_waits: 0,
            share: Share::new(processors()),
            core,
            stop,
        }
    }

    /// Works off everything below the limit; returns how many logs.
    fn run_round(&mut self) -> Result<usize> {
        let mut all = Done::default();
        self.share.begin(Instant::now(), self.sums());
        while !self.stop.load(Ordering::Relaxed) {
            let helpers = self.helpers();
            let mut rest = Rest::begin(self.share.pause_ratio());
            let done = self.run_batch(helpers, &mut rest)?;
            if done.is_nothing() {
                break;
            }
            all.add(done);
            self.pause_after((done.logs, helpers), rest);
        }
        if all.is_nothing() {
            self.trim(1)?;
        }
        Ok(all.logs)
    }

    fn helpers(&self) -> usize {
        let most = self.core.settings.purge().threads as usize;
        self.share.helpers(most)
    }

    fn sums(&self) -> Sums {
        let (undo, counters) = (&self.core.undo, &self.core.counters);
        Sums {
            joined: undo.history_len() + counters.purged_logs.get(),
            done_by_others: done_by_others(&self.core),
        }
    }

    /// Leaves the processors to others before the next batch.
    fn pause_after(&mut self, batch: (usize, usize), mut rest: Rest) {
        let sums = self.sums();
        let worked = (rest.worked(), Instant::now());
        let pause = self.share.pause_after(batch, worked, sums);
        rest.pause_up_to(&self.core, pause);
        if is_far_behind(&self.core) {
            self.share.take_all();
        }
        let paused = rest.paused().as_micros() as u64;
        Counters::add(&self.core.counters.purge_pause_usec, paused);
    }

    fn run_batch(&mut self, helpers: usize, rest: &mut Rest) -> Result<Done> {
        let core = self.core.clone();
        let mut done = Done::default();
        // PURGE-3: without a limit.
        if core.undo.oldest_temporary().is_some() {
            done.add(self.purge(true, TrxNo(u64::MAX), (helpers, rest))?);
        }
        if core.undo.oldest().is_some() {
            let limit = match core.log.is_sabotaged(Sabotage::PurgedTooEarly) {
                true => TrxNo(u64::MAX),
                false => core.sys.purge_limit(),
            };
            done.add(self.purge(false, limit, (helpers, rest))?);
        }
        if !done.is_nothing() {
            Counters::add(&core.counters.purged_logs, done.logs as u64);
            Counters::add(&core.counters.purge_undo_log_pages, done.pages as u64);
            Counters::add(&core.counters.purge_invoked, 1);
        }
        self.untrimmed += 1;
        self.trim(core.settings.purge().rseg_truncate_frequency)?;
        Ok(done)
    }

    /// Returns surplus free pages to the tablespaces every so many batches. Also those of insert logs, with
    /// which purge has nothing else to do.
    fn trim(&mut self, frequency: u32) -> Result<()> {
        if self.untrimmed < frequency {
            return Ok(());
        }
        self.untrimmed = 0;
        let undo = &self.core.undo;
        undo.rsegs()
            .try_for_each(|rseg| rseg.trim_free_chain(&undo.env, &self.stop))
    }

    /// About how many undo pages the next batch is to have. While threads wait for free frames everybody
    /// waits for the page cleaner, so what counts is how many pages of the trees purge changes: the larger a
    /// batch, the fewer for each record.
    fn batch_pages(&mut self) -> usize {
        let waits = self.core.pool.stats().free_waits;
        let is_crowded = std::mem::replace(&mut self.frame_waits, waits) < waits;
        let wanted = self.core.settings.purge().batch_size;
        match is_crowded {
            true => (wanted * CROWDED_FACTOR).min(PurgeOptions::MAX_BATCH_SIZE) as usize,
            false => wanted as usize,
        }
    }

    /// Works off a batch of logs with numbers below `limit`.
    fn purge(
        &mut self,
        temporary: bool,
        limit: TrxNo,
        (helpers, rest): (usize, &mut Rest),
    ) -> Result<Done> {
        let batch_pages = self.batch_pages();
        let core = &self.core;
        let pending = match temporary {
            true => &mut self.temporary,
            false => &mut self.logged,
        };
        let work = Arc::get_mut(&mut self.work).expect("sweeps have ended");
        work.clear();
        let read = pending.fill(core, limit, batch_pages, work, || rest.pause_within(core));
        if !matches!(read, Ok(0)) || !pending.is_empty() {
            core.purge_progress.set_state(PurgeState::Running);
        }
        work.sort();
        let mut failed = Failed::default();
        // PURGE-1: what could not be done for a log's entries keeps its rows.
        for half in [Half::Entries, Half::Rows] {
            let end = failed.log.unwrap_or(u32::MAX);
            let sweep = Sweep::new(&self.work, half, end, &self.stop);
            let sweep = self.workers.run(core, sweep, (helpers, rest));
            failed.merge(sweep.end());
        }
        let end = match &read {
            // What was read in full may be given back all the same.
            Err(_) => Some(failed.log.unwrap_or(u32::MAX)),
            Ok(_) => failed.log,
        };
        let logs = pending.give_back(core, end.map(|log| log as usize))?;
        if !temporary {
            core.purge_progress.set_undo_no(pending.undo_no());
        }
        match failed.error {
            Some(e) => Err(e),
            None => Ok(Done { logs, pages: read? }),
        }
    }
}

/// Calls `f` with the table, while nobody drops or renames it; not at all if it is gone.
fn in_table<R: Default>(
    core: &Core,
    id: TableId,
    f: impl FnOnce(&OpenTable) -> Result<R>,
) -> Result<R> {
    let Some(mut table) = core.tables.by_id(id) else {
        return Ok(R::default());
    };
    loop {
        let gate = table.let_purge_in();
        if !table.is_dropped() {
            return f(&table);
        }
        drop(gate);
        // Renamed while the gate was closed: the same table under another handle. Or it is gone.
        match core.tables.by_id(id) {
            Some(now) if !Arc::ptr_eq(&now, &table) => table = now,
            _ => return Ok(R::default()),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Nobody may come after the last reader: its end must not be noticed ten seconds later.
    #[test]
    fn purge_looks_often_while_history_is_held_back() {
        assert!(longest_sleep(true) <= Duration::from_millis(100));
        assert_eq!(longest_sleep(false), LONGEST_SLEEP);
    }
}
