//! Threads that help the coordinator with a sweep. They are started when there is first something to help
//! with.
//!
//! One mutex guards the sweep on offer, how many may still join, and how many are at it. The coordinator
//! works, too, and returns from `run` only when nobody is at the sweep any more, so whatever was done there
//! happens before.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use crate::base::threads;
use crate::txn::{Core, Counters};

use super::pacing::BatchPace;
use super::sweep::Sweep;

pub(super) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// There is something to do, or it is the end.
    wake: Condvar,
    /// Nobody is at it.
    idle: Condvar,
}

#[derive(Default)]
struct State {
    sweep: Option<Arc<Sweep>>,
    /// So many may still join.
    places: usize,
    busy: usize,
    end: bool,
}

impl Workers {
    pub fn new() -> Workers {
        Workers {
            shared: Arc::default(),
            threads: Vec::new(),
        }
    }

    /// Works a sweep off, with the workers and pauses of `pace`.
    pub fn run(&mut self, core: &Arc<Core>, sweep: Sweep, pace: &mut BatchPace) -> Arc<Sweep> {
        let sweep = Arc::new(sweep);
        let workers = sweep.chunks().saturating_sub(1).min(pace.workers);
        if workers > 0 {
            self.resize(core, core.settings.purge().threads as usize);
            let mut state = self.shared.state.lock();
            state.sweep = Some(sweep.clone());
            state.places = workers;
            drop(state);
            for _ in 0..workers {
                self.shared.wake.notify_one();
            }
        }
        sweep.run(core, || pace.pause_within(core));
        if workers > 0 {
            let mut state = self.shared.state.lock();
            state.places = 0;
            state.sweep = None;
            while state.busy > 0 {
                self.shared.idle.wait(&mut state);
            }
        }
        sweep
    }

    fn resize(&mut self, core: &Arc<Core>, n: usize) {
        if n < self.threads.len() {
            self.end();
        }
        while self.threads.len() < n {
            let (shared, core_of_thread) = (self.shared.clone(), core.clone());
            let name = format!("varve-purge-{}", self.threads.len() + 1);
            match threads::spawn(&name, move || work(&shared, &core_of_thread)) {
                Ok(thread) => self.threads.push(thread),
                Err(e) => {
                    core.warn(&format!("purge goes on with fewer threads: {e}"));
                    return;
                }
            }
        }
    }

    fn end(&mut self) {
        self.shared.state.lock().end = true;
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            // Its panic was caught and told.
            let _ = thread.join();
        }
        self.shared.state.lock().end = false;
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.end();
    }
}

fn work(shared: &Shared, core: &Core) {
    loop {
        let mut state = shared.state.lock();
        let sweep = loop {
            if state.end {
                return;
            }
            let offered = state.sweep.as_ref().filter(|_| state.places > 0);
            if let Some(sweep) = offered {
                break sweep.clone();
            }
            shared.wake.wait(&mut state);
        };
        state.places -= 1;
        state.busy += 1;
        drop(state);
        match catch_unwind(AssertUnwindSafe(|| sweep.run(core, || ()))) {
            Ok(taken) => Counters::add(&core.counters.purge_helper_records, taken as u64),
            Err(_) => core.fail("a purge thread panicked"),
        }
        drop(sweep);
        let mut state = shared.state.lock();
        state.busy -= 1;
        if state.busy == 0 {
            shared.idle.notify_one();
        }
    }
}
