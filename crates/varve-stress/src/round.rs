//! What the clients of one round tell each other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::store::{Failure, Outcome};

/// For so long at most a round goes on for its long view. In a pool of some hundred pages, all of them
/// dirty, the others add versions faster than the view passes them.
const PATIENCE: Duration = Duration::from_secs(20);

/// Shared by the clients of one round.
#[derive(Default)]
pub struct Round {
    /// From now on a lost connection is expected.
    pub over: AtomicBool,
    /// The file system is full, or was a moment ago: statements may be refused for that.
    pub may_be_full: AtomicBool,
    pub commits: AtomicU64,
    pub ddl: AtomicU64,
    pub refused_for_space: AtomicU64,
    pub truncations: AtomicU64,
    /// Totals of the bank that were read.
    pub snapshots: AtomicU64,
    /// The kill comes next: who holds a view reads again what it shows.
    pub is_ending: AtomicBool,
    /// The long view has shown everything once; it has shown everything again.
    pub view_is_open: AtomicBool,
    pub view_is_compared: AtomicBool,
}

impl Round {
    /// Whether a statement beside the clients' was done. It need not be, when others are in its way or there
    /// is no space.
    pub fn was_done<T>(&self, outcome: Outcome<T>) -> Outcome<bool> {
        match outcome {
            Ok(_) => Ok(true),
            Err(Failure::Conflict(_)) => Ok(false),
            Err(Failure::Full(_)) if self.may_be_full.load(Ordering::SeqCst) => {
                self.refused_for_space.fetch_add(1, Ordering::Relaxed);
                Ok(false)
            }
            Err(failure) => Err(failure),
        }
    }

    /// The load is over: returns when the long view, if it has got so far, has shown everything again, when
    /// it takes too long for that, or when somebody has failed.
    pub fn end(&self, alive: impl Fn() -> bool) {
        self.is_ending.store(true, Ordering::SeqCst);
        let is_due = self.view_is_open.load(Ordering::SeqCst);
        let give_up = Instant::now() + PATIENCE;
        while is_due && !self.view_is_compared.load(Ordering::SeqCst) && alive() {
            if Instant::now() >= give_up {
                eprintln!(
                    "the long view has not shown everything again in {PATIENCE:?}: not compared"
                );
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The only good reason to stop is the kill.
pub fn expected_end(end: Outcome<()>, round: &Round) -> Result<()> {
    match end {
        Ok(()) => Ok(()),
        Err(Failure::Lost(_)) if round.over.load(Ordering::SeqCst) => Ok(()),
        Err(failure) => bail!("a client got {failure}"),
    }
}
