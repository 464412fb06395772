//! The coordinator: the thread that works the history off, batch by batch. When it works and when it waits is
//! in `pacing`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::base::{Result, Sabotage, TrxNo, processors};
use crate::txn::{Core, Counters, Member, PurgeOptions, PurgeState};

use super::behind::Behind;
use super::pacing::{BatchPace, RoundEnd, Standstill, Sums, Throttle, Waiting};
use super::pending::Pending;
use super::sweep::{Failed, Half, Sweep, Task};
use super::work::Work;
use super::workers::Workers;

/// A batch is so many times larger while threads wait for free frames.
const CROWDED_FACTOR: u32 = 4;

pub(super) fn run(core: &Arc<Core>, stop: &Arc<AtomicBool>) {
    let body = std::panic::AssertUnwindSafe(|| {
        let stopped = || stop.load(Ordering::Relaxed);
        let mut coordinator = Coordinator::new(core.clone(), stop.clone());
        let (mut waiting, mut standstill) = (Waiting::new(), Standstill::default());
        while !stopped() {
            core.oldest_view();
            let end = coordinator.run_round(waiting.is_idle());
            let is_history_left = core.undo.oldest().is_some();
            let is_held_back = is_history_left && !matches!(end, RoundEnd::Worked(_));
            let state = standstill.after_round(&core.counters, is_held_back, Instant::now());
            core.purge_progress.set_state(state);
            if let RoundEnd::Failed(e) = &end {
                if core.check_usable().is_err() {
                    return;
                }
                core.warn(&format!("purge could not go on and will try again: {e}"));
            }
            let holds_back = is_history_left || core.history.store().is_some();
            waiting.after_round(&end, holds_back);
            waiting.wait(core, stopped);
        }
    });
    if std::panic::catch_unwind(body).is_err() {
        core.fail("the purge thread panicked");
    }
}

/// What the coordinator keeps from batch to batch.
struct Coordinator {
    core: Arc<Core>,
    stop: Arc<AtomicBool>,
    workers: Workers,
    logged: Pending,
    temporary: Pending,
    behind: Behind,
    work: Arc<Work>,
    /// Batches since free pages were given back.
    untrimmed: u32,
    /// How often threads had waited for a free frame when the last batch was read.
    frame_waits: u64,
    throttle: Throttle,
}

/// Of which rollback segments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum History {
    Logged,
    Temporary,
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
            behind: Behind::default(),
            work: Arc::default(),
            untrimmed: 0,
            frame_waits: 0,
            throttle: Throttle::new(processors(), Sums::read(&core)),
            core,
            stop,
        }
    }

    /// Works off everything below the limit. `is_idle`: nobody has written for a while.
    fn run_round(&mut self, is_idle: bool) -> RoundEnd {
        let logs = self.run_batches().and_then(|logs| {
            if logs == 0 && is_idle {
                self.trim_caches()?;
            }
            Ok(logs)
        });
        match logs {
            Ok(_) if self.behind.is_full() => RoundEnd::Full,
            Ok(0) => RoundEnd::Nothing,
            Ok(logs) => RoundEnd::Worked(logs),
            Err(e) if self.core.undo.env.spaces.loses_temporary(&e) => RoundEnd::TemporaryLost,
            Err(e) => RoundEnd::Failed(e),
        }
    }

    /// Returns how many logs were worked off.
    fn run_batches(&mut self) -> Result<usize> {
        let core = self.core.clone();
        let mut all = Done::default();
        // Who fills a leaf asks for it, too, but may do so seldom, and it moves in two steps.
        core.sys.freeze_limit();
        self.throttle.begin_round(Sums::read(&core));
        // FL-3: what it would wait for is not to keep it from stopping.
        while !self.stop.load(Ordering::Relaxed) && core.log.check_room().is_ok() {
            let threads = core.settings.purge().threads as usize;
            let mut pace = self.throttle.begin_batch(threads);
            // PAUSE-1
            let Some(batch) = core.purge_pause.begin_batch() else {
                break;
            };
            let done = self.run_batch(&mut pace)?;
            drop(batch);
            if done.is_nothing() || self.behind.is_full() {
                break;
            }
            all.add(done);
            self.throttle.end_batch(&core, done.logs, pace);
        }
        if all.is_nothing() {
            self.trim(1)?;
        }
        Ok(all.logs)
    }

    fn run_batch(&mut self, pace: &mut BatchPace) -> Result<Done> {
        let core = self.core.clone();
        let mut done = Done::default();
        if core.undo.oldest_temporary().is_some() {
            done.add(self.work_off(History::Temporary, pace)?);
        }
        if core.undo.oldest().is_some() {
            done.add(self.work_off(History::Logged, pace)?);
        }
        if !done.is_nothing() {
            Counters::add(&core.counters.purged_logs, done.logs as u64);
            Counters::add(&core.counters.purge_undo_log_pages, done.pages as u64);
            Counters::add(&core.counters.purge_invoked, 1);
        }
        self.behind
            .tidy(&core, || !self.stop.load(Ordering::Relaxed))?;
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

    /// Gives back what the rollback segments have cached for transactions that do not come.
    fn trim_caches(&self) -> Result<()> {
        let undo = &self.core.undo;
        undo.rsegs()
            .try_for_each(|rseg| rseg.trim_cached(&undo.env, &self.stop))
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

    /// The number below which logs may be worked off.
    fn limit(&mut self, history: History) -> TrxNo {
        match history {
            // PURGE-3.
            History::Temporary => TrxNo(u64::MAX),
            History::Logged if self.core.log.is_sabotaged(Sabotage::PurgedTooEarly) => {
                TrxNo(u64::MAX)
            }
            History::Logged => self.behind.limit(&self.core),
        }
    }

    /// Works off a batch of logs with numbers below the limit.
    fn work_off(&mut self, history: History, pace: &mut BatchPace) -> Result<Done> {
        let limit = self.limit(history);
        let batch_pages = self.batch_pages();
        let core = &self.core;
        let pending = match history {
            History::Temporary => &mut self.temporary,
            History::Logged => &mut self.logged,
        };
        let copy_to = match history {
            // TEMP-2: nobody looks for older versions.
            History::Temporary => None,
            History::Logged => self.behind.copy_to(core).map(Arc::new),
        };
        let work = Arc::get_mut(&mut self.work).expect("sweeps have ended");
        work.clear();
        let members = copy_to.as_ref().map(|to| &to.members);
        work.newest_member = members.and_then(|members| members.last().map(Member::number));
        let read = pending.fill(core, limit, batch_pages, work, || pace.pause_within(core));
        if !matches!(read, Ok(0)) || !pending.is_empty() {
            core.purge_progress.set_state(PurgeState::Running);
        }
        work.sort();
        let mut failed = Failed::default();
        let mut sweep = |failed: &mut Failed, task: &Task, half| {
            let end = failed.log.unwrap_or(u32::MAX);
            let sweep = Sweep::new(&self.work, (task.clone(), half), end, &self.stop);
            let sweep = self.workers.run(core, sweep, pace);
            failed.merge(sweep.end());
        };
        if core.log.is_sabotaged(Sabotage::CopiedTooLate) {
            sweep(&mut failed, &Task::Remove, Half::Entries);
            sweep(&mut failed, &Task::Remove, Half::Rows);
        }
        core.history.counters.dropped.add(self.work.unneeded);
        // COPY-3: what could not be copied for a log keeps everything.
        if let Some(to) = copy_to {
            let copy = Task::Copy(to.clone());
            sweep(&mut failed, &copy, Half::Entries);
            sweep(&mut failed, &copy, Half::Rows);
            failed.error = self.behind.after_copy(core, &to.store, failed.error);
        }
        // PURGE-1: what could not be done for a log's entries keeps its rows.
        for half in [Half::Entries, Half::Rows] {
            sweep(&mut failed, &Task::Remove, half);
        }
        let end = match &read {
            // What was read in full may be given back all the same.
            Err(_) => Some(failed.log.unwrap_or(u32::MAX)),
            Ok(_) => failed.log,
        };
        let logs = pending.give_back(core, end.map(|log| log as usize))?;
        if history == History::Logged {
            core.purge_progress.set_undo_no(pending.undo_no());
        }
        match failed.error {
            Some(e) => Err(e),
            None => Ok(Done { logs, pages: read? }),
        }
    }
}
