//! Keeps purge, and who rewrites pages (`db/rotation.rs`), from changing anything while a table's file is
//! copied (`db/export.rs`).
//!
//! - **PAUSE-1** While somebody holds a [`PurgePaused`], no batch of purge is under way, and none begins. The
//!   coordinator takes the right to each batch, as threads of rotation do to each page, and whoever pauses
//!   waits for those under way to end. A batch waits for nobody who pauses purge. Closing the database ends
//!   purge all the same, between batches.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::Core;

#[derive(Default)]
struct State {
    /// How many have paused it.
    pauses: usize,
    /// Batches under way.
    working: usize,
}

#[derive(Default)]
pub struct PurgePause {
    state: Mutex<State>,
    batch_ended: Condvar,
}

/// Purge stands still until this is dropped.
pub struct PurgePaused(Arc<Core>);

/// The right to a batch.
pub struct PurgeBatch<'a>(&'a PurgePause);

impl PurgePause {
    /// `None` while purge is paused.
    pub fn begin_batch(&self) -> Option<PurgeBatch<'_>> {
        let mut state = self.state.lock();
        let may_begin = state.pauses == 0;
        state.working += usize::from(may_begin);
        may_begin.then(|| PurgeBatch(self))
    }
}

impl Drop for PurgeBatch<'_> {
    fn drop(&mut self) {
        self.0.state.lock().working -= 1;
        self.0.batch_ended.notify_all();
    }
}

impl PurgePaused {
    /// Waits for the batches under way.
    pub fn begin(core: Arc<Core>) -> PurgePaused {
        let mut state = core.purge_pause.state.lock();
        state.pauses += 1;
        while state.working > 0 {
            core.purge_pause.batch_ended.wait(&mut state);
        }
        drop(state);
        PurgePaused(core)
    }
}

impl Drop for PurgePaused {
    fn drop(&mut self) {
        self.0.purge_pause.state.lock().pauses -= 1;
        self.0.purge_wanted.notify_always();
    }
}
