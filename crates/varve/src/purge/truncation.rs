//! When undo tablespaces are truncated: one at a time, in turn, those that are larger than they should be.
//! The states and what makes it safe are in undo/truncate.rs.
//!
//! A thread of its own does this, so that purge goes on meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::base::{Error, Result, threads};
use crate::redo::ControlFile;
use crate::txn::{Core, Counters, Wakeup};
use crate::undo::{Renamed, UndoSpace};

/// How often sizes are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How often somebody who waits for a tablespace to become empty looks at it.
const POLL: Duration = Duration::from_millis(2);
/// What pins a tablespace for longer than this keeps it from being truncated for now, and it is used again.
const PINNED: Duration = Duration::from_secs(60);

/// The thread that truncates undo tablespaces.
pub(super) struct Truncation {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    wake: Wakeup,
}

impl Truncation {
    pub fn start(core: Arc<Core>, control: Arc<ControlFile>) -> Result<Truncation> {
        let shared = Arc::<Shared>::default();
        let of_thread = shared.clone();
        let thread = threads::spawn("varve-truncate", move || run(&core, &control, &of_thread))?;
        Ok(Truncation {
            shared,
            thread: Some(thread),
        })
    }

    /// Ends the thread; a truncation that has begun to replace a file is finished.
    pub fn stop(&mut self) {
        // Relaxed: the wake-up's mutex orders it.
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.wake.notify_always();
        if let Some(thread) = self.thread.take() {
            // Its panic was caught and told.
            let _ = thread.join();
        }
    }
}

impl Drop for Truncation {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(core: &Core, control: &ControlFile, shared: &Shared) {
    let stopped = || shared.stop.load(Ordering::Relaxed);
    let body = std::panic::AssertUnwindSafe(|| {
        let mut last = 0;
        while !stopped() {
            shared.wake.sleep(LOOK, stopped);
            let Some(n) = next_too_large(core, last) else {
                continue;
            };
            last = n;
            let space = &core.undo.spaces()[n];
            match empty_and_replace(core, control, space, PINNED, stopped) {
                Ok(true) => {}
                // What pins it may pin others: no hurry.
                Ok(false) => shared.wake.sleep(PINNED, stopped),
                Err(_) if core.check_usable().is_err() => return,
                Err(e) => {
                    let path = space.path();
                    core.warn(&format!("{path} could not be truncated: {e}"));
                    shared.wake.sleep(PINNED, stopped);
                }
            }
        }
    });
    if std::panic::catch_unwind(body).is_err() {
        core.fail("the thread that truncates undo tablespaces panicked");
    }
}

/// The next undo tablespace in turn that is too large, if they are to be truncated.
fn next_too_large(core: &Core, last: usize) -> Option<usize> {
    let options = core.settings.purge();
    let spaces = core.undo.spaces();
    if !options.undo_log_truncate || spaces.len() < 2 {
        return None;
    }
    let env = &core.undo.env;
    let bytes = |n: usize| u64::from(spaces[n].size_pages(env)) * env.page_size as u64;
    let mut in_turn = (1..=spaces.len()).map(|n| (last + n) % spaces.len());
    in_turn.find(|&n| bytes(n) > options.max_undo_log_size)
}

/// `Database::truncate_undo`, which gives up when `give_up` says so, too.
pub fn truncate(
    core: &Core,
    control: &ControlFile,
    number: usize,
    at_most: Duration,
    give_up: &dyn Fn() -> bool,
) -> Result<bool> {
    let spaces = core.undo.spaces();
    let space = number.checked_sub(1).and_then(|n| spaces.get(n));
    let Some(space) = space else {
        let there = spaces.len();
        let what = format!("there is no undo tablespace {number}: there are {there}, from 1 on");
        return Err(Error::invalid(what));
    };
    if spaces.len() < 2 {
        let what = "the only undo tablespace can't be truncated: transactions need one meanwhile";
        return Err(Error::invalid(what));
    }
    empty_and_replace(core, control, space, at_most, give_up)
}

/// Active again, whatever happens.
struct Inactive<'a>(&'a UndoSpace);

impl Drop for Inactive<'_> {
    fn drop(&mut self) {
        self.0.set_active(true);
    }
}

fn empty_and_replace(
    core: &Core,
    control: &ControlFile,
    space: &UndoSpace,
    at_most: Duration,
    give_up: impl Fn() -> bool,
) -> Result<bool> {
    let begun = Instant::now();
    let is_over = || give_up() || begun.elapsed() >= at_most;
    // TRUNC-1.
    let _one = loop {
        match core.undo.truncating.try_lock_for(POLL) {
            Some(one) => break one,
            None if is_over() => return Ok(false),
            None => {}
        }
    };
    space.set_active(false);
    let inactive = Inactive(space);
    while !space.is_empty() {
        if is_over() {
            return Ok(false);
        }
        core.check_usable()?;
        core.purge_wanted.notify();
        std::thread::sleep(POLL);
    }
    let begun = Instant::now();
    let held = &core.undo.held_by_truncation;
    let id = control.draw_space_id(&held.control_file)?;
    let Renamed(renamed) = space.replace(&core.undo.env, id, held)?;
    drop(inactive);
    Counters::add(&core.counters.undo_truncations, 1);
    let usec = begun.elapsed().as_micros() as u64;
    Counters::add(&core.counters.undo_truncate_usec, usec);
    if let Err(e) = renamed {
        let path = space.path();
        core.warn(&format!(
            "{path} was truncated, but its old file stays until the next start: {e}"
        ));
    }
    Ok(true)
}
