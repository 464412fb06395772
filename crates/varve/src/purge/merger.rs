//! The thread that merges change buffers in the background (`table/merging.rs`).
//!
//! While they have more than three quarters of what they may have, it goes on without a pause, so that those
//! who change rows seldom have to. Otherwise it waits until nobody has put anything there for a second, and
//! then merges some leaves in each round: what else the disk has to do goes on. Once changes are not buffered
//! any more it goes on without a pause, too, until nothing is left.
//!
//! It takes the change buffer with the most pages first. Like purge it keeps off while a table's file is
//! copied (PAUSE-1) and while a table is dropped or checked, and holds nothing between two leaves.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::base::{IndexId, Result, threads};
use crate::table::{Merged, merge_on};
use crate::txn::Core;

use super::in_table;

/// How long a round is, in which nobody is in a hurry.
const ROUND: Duration = Duration::from_millis(100);
/// For how long nobody may have put anything in a change buffer; and how long a round is if none holds
/// anything, unless one gets its first entry.
const QUIET: Duration = Duration::from_secs(1);
/// Leaves of a round in which nobody is in a hurry.
const LEAVES_AT_LEISURE: usize = 32;
/// Leaves that are merged together otherwise.
const LEAVES_IN_A_HURRY: usize = 64;
/// An index of which nothing can be merged is left alone for so long.
const LEFT_ALONE: Duration = Duration::from_secs(1);
/// The same after an error.
const AFTER_ERROR: Duration = Duration::from_secs(30);

pub(super) struct ChangeMerger {
    core: Arc<Core>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ChangeMerger {
    pub fn start(core: Arc<Core>) -> Result<ChangeMerger> {
        let stop = Arc::new(AtomicBool::new(false));
        let (of_thread, thread_stop) = (core.clone(), stop.clone());
        let thread = threads::spawn("varve-merger", move || run(&of_thread, &thread_stop))?;
        Ok(ChangeMerger {
            core,
            stop,
            thread: Some(thread),
        })
    }

    /// Ends the thread after the leaves that it is at.
    pub fn stop(&mut self) {
        // Relaxed: the wake-up's mutex orders it.
        self.stop.store(true, Ordering::Relaxed);
        self.core.merging_wanted.notify_always();
        if let Some(thread) = self.thread.take() {
            // Its panic was caught and told.
            let _ = thread.join();
        }
    }
}

impl Drop for ChangeMerger {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(core: &Core, stop: &AtomicBool) {
    let stopped = || stop.load(Ordering::Relaxed);
    let body = std::panic::AssertUnwindSafe(|| {
        let mut rounds = Rounds::new();
        while !stopped() {
            if let Some(pause) = rounds.next(core) {
                core.merging_wanted.sleep(pause, stopped);
            }
        }
    });
    if std::panic::catch_unwind(body).is_err() {
        core.fail("the thread that merges change buffers panicked");
    }
}

struct Rounds {
    /// What had been put there when it changed last, and when that was.
    put: u64,
    put_at: Instant,
    left_alone: HashMap<IndexId, Instant>,
}

impl Rounds {
    fn new() -> Rounds {
        Rounds {
            put: 0,
            put_at: Instant::now(),
            left_alone: HashMap::new(),
        }
    }

    /// Merges some, if it is time. Returns how long to pause until the next round; `None`: it is to begin at
    /// once.
    fn next(&mut self, core: &Core) -> Option<Duration> {
        let all = &core.pool.change_buffers;
        let counters = &all.counters;
        let put = counters.inserts.get() + counters.delete_marks.get();
        if put != self.put {
            (self.put, self.put_at) = (put, Instant::now());
        }
        let is_hurry = all.are_nearly_full(core.pool.n_frames()) || !all.takes_any();
        let is_time = is_hurry || self.put_at.elapsed() >= QUIET;
        if !is_time || core.check_usable().is_err() || core.is_read_only() {
            return Some(ROUND);
        }
        self.left_alone.retain(|_, until| Instant::now() < *until);
        let is_meant = |index| !self.left_alone.contains_key(&index);
        let Some((table, index)) = all.largest(is_meant) else {
            return Some(if self.left_alone.is_empty() {
                QUIET
            } else {
                ROUND
            });
        };
        let Some(_batch) = core.purge_pause.begin_batch() else {
            return Some(ROUND);
        };
        let leaves = match is_hurry {
            true => LEAVES_IN_A_HURRY,
            false => LEAVES_AT_LEISURE,
        };
        let merged = in_table(core, table, |table| match table.index(index) {
            Some(index) => merge_on(core, table, index, leaves),
            None => Ok(Merged::default()),
        });
        let pause = match merged {
            Ok(Merged { entries: 1.., .. }) => return (!is_hurry).then_some(ROUND),
            Ok(_) => LEFT_ALONE,
            Err(e) => {
                let name = core.tables.name_of(table);
                core.warn(&format!(
                    "changes of an index of table {name} stay in its change buffer: {e}"
                ));
                AFTER_ERROR
            }
        };
        self.left_alone.insert(index, Instant::now() + pause);
        None
    }
}
