//! Decides how far the checkpoint may go, and records it.
//!
//! WAL-2, step by step. (1) Read the log's `complete` *first*: every mini-transaction below it has
//! registered its pages' `first_change`. (2) Take the least of it, of every dirty page's `first_change`, and
//! of the holds. (3) Make the log durable up to there: what the checkpoint passes may be recorded nowhere but
//! in the log. (4) Make durable which pages were written (TRACK-2), then write and sync the control file.
//! (5) Only then tell the log, which may recycle files below.
//!
//! A **hold** is an explicit floor: recovery's redo not yet applied, a file whose removal is decided but not
//! done. The pool is asked with a `complete` that no hold is below, because its answer relies on no page
//! being dirtied from an older LSN later on, and replay under a hold does just that.
//!
//! One mutex is held from (1) to (5), so checkpoints never go back; it is nobody else's. The holds' mutex is
//! held for (1) and (2) only, so that nobody waits for the disk who wants a hold: one that is given out after
//! (2) is at or above `complete` as it is then, and that is at or above what (2) decided. No commit takes
//! either mutex, nor waits for (4), which is on a file of its own. A failure of the control file poisons the
//! database.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{FlushCounters, count};
use crate::base::{Lsn, Result, Sabotage, StopPoint};
use crate::buffer::BufferPool;
use crate::redo::{Control, ControlFile, RedoLog};

pub struct Checkpointer {
    pool: Arc<BufferPool>,
    log: Arc<RedoLog>,
    control: Arc<ControlFile>,
    fill_control: Box<dyn Fn(&mut Control) + Send + Sync>,
    holds: Mutex<Holds>,
    /// The thread that records a checkpoint.
    running: Mutex<()>,
    counters: Arc<FlushCounters>,
}

#[derive(Default)]
struct Holds {
    floors: BTreeMap<u64, Lsn>,
    next: u64,
}

impl Holds {
    fn limit(&self, lsn: Lsn) -> Lsn {
        self.floors.values().copied().fold(lsn, Lsn::min)
    }
}

/// Keeps the checkpoint from passing an LSN until dropped.
pub struct CheckpointHold {
    checkpointer: Arc<Checkpointer>,
    id: u64,
}

impl Drop for CheckpointHold {
    fn drop(&mut self) {
        self.checkpointer.holds.lock().floors.remove(&self.id);
    }
}

impl Checkpointer {
    pub fn new(
        pool: Arc<BufferPool>,
        log: Arc<RedoLog>,
        control: Arc<ControlFile>,
        fill_control: Box<dyn Fn(&mut Control) + Send + Sync>,
        counters: Arc<FlushCounters>,
    ) -> Checkpointer {
        Checkpointer {
            pool,
            log,
            control,
            fill_control,
            holds: Mutex::default(),
            running: Mutex::default(),
            counters,
        }
    }

    /// Keeps the checkpoint at or below the present end of the log until the hold is dropped. The holder must
    /// not wait for redo capacity, which may be waiting for the checkpoint.
    pub fn hold_here(self: &Arc<Self>) -> CheckpointHold {
        // The present end: at or above every checkpoint that could have been decided.
        let mut holds = self.holds.lock();
        let lsn = self.log.complete_lsn();
        self.register(&mut holds, lsn)
    }

    /// `lsn` must be at or above the checkpoint, and stay there: before the cleaner runs.
    pub fn hold_at(self: &Arc<Self>, lsn: Lsn) -> CheckpointHold {
        let mut holds = self.holds.lock();
        assert!(lsn >= self.log.checkpoint_lsn());
        self.register(&mut holds, lsn)
    }

    fn register(self: &Arc<Self>, holds: &mut Holds, lsn: Lsn) -> CheckpointHold {
        let id = holds.next;
        holds.next += 1;
        holds.floors.insert(id, lsn);
        CheckpointHold {
            checkpointer: self.clone(),
            id,
        }
    }

    /// The oldest change that is not in a synced data file.
    pub fn oldest_change(&self) -> Option<Lsn> {
        self.pool.min_first_change(self.limit())
    }

    /// The log's `complete`, or what is held below it. Read under the mutex: a hold that is not seen is above
    /// it.
    fn limit(&self) -> Lsn {
        let holds = self.holds.lock();
        holds.limit(self.log.complete_lsn())
    }

    /// Records a checkpoint as far as it can go. `clean`: the database is being closed with nothing left to
    /// recover, which is recorded too if the checkpoint reaches the log's end.
    pub fn run(&self, clean: bool) -> Result<Lsn> {
        self.log.stops.pass(StopPoint::Checkpoint);
        let _running = self.running.lock();
        let complete = self.limit();
        let lsn = match self.pool.min_first_change(complete) {
            Some(oldest) if !self.log.is_sabotaged(Sabotage::CheckpointTooFar) => {
                oldest.min(complete)
            }
            _ => complete,
        };
        let clean = clean && lsn == self.log.next_lsn();
        let old = self.log.checkpoint_lsn();
        if lsn < old || lsn == old && !clean {
            return Ok(old);
        }
        self.log.sync_to(lsn)?;
        let pages = self.pool.store().save_written();
        let written = self.control.update(|control| {
            control.checkpoint = lsn;
            control.clean_shutdown = clean;
            control.written = pages;
            (self.fill_control)(control);
        });
        if let Err(e) = written {
            self.log
                .poison(format!("the checkpoint could not be written: {e}"));
            return Err(e);
        }
        self.log.set_checkpoint(lsn);
        count(&self.counters.checkpoints, 1);
        Ok(lsn)
    }
}
