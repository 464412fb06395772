//! The background log writer: writes when there is much in the log buffer, writes and syncs once a second,
//! and has the next log file ready before the current one is full. It also syncs for callers that asked to be
//! told (`when_durable`).
//!
//! Commits do not depend on it: they write and sync themselves, and so does a thread that finds the buffer
//! full. What it does bound is how much is lost with `flush_log_at_trx_commit` 0 and 2: about a second.
//!
//! A failure poisons the log (WAL-4); so does a panic of the thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::RedoLog;
use crate::base::{Result, threads};

const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// The background writer's handle; dropping it stops the thread. What is in the buffer then stays there: a
/// clean shutdown calls [`RedoLog::sync_to`] first.
pub struct LogWriter {
    log: Arc<RedoLog>,
    thread: Option<JoinHandle<()>>,
}

impl RedoLog {
    /// Starts the background writer.
    pub fn spawn_writer(self: &Arc<Self>) -> Result<LogWriter> {
        let log = self.clone();
        let body = move || {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(&log))) {
                let what = panic
                    .downcast_ref::<String>()
                    .cloned()
                    .or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()))
                    .unwrap_or_default();
                log.poison(format!("the log writer panicked: {what}"));
            }
        };
        let thread = threads::spawn("varve-log", body)?;
        Ok(LogWriter {
            log: self.clone(),
            thread: Some(thread),
        })
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.log.alarm.state.lock().stop = true;
        self.log.alarm.rung.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been caught and has poisoned the log.
            let _ = thread.join();
        }
    }
}

fn run(log: &RedoLog) {
    log.prepare_file();
    let mut synced = Instant::now();
    while wait(log, synced + SYNC_INTERVAL) {
        // An error has poisoned the log; its users are told by their own calls.
        let _ = log.serve_watchers();
        if synced.elapsed() >= SYNC_INTERVAL {
            let _ = log.sync_to(log.complete_lsn());
            synced = Instant::now();
        } else {
            log.write_out();
        }
        if log.check().is_ok() {
            log.prepare_file();
        }
    }
}

/// Waits for the alarm or the deadline; false to stop.
fn wait(log: &RedoLog, deadline: Instant) -> bool {
    let mut state = log.alarm.state.lock();
    while !state.stop && !state.wanted {
        if log.alarm.rung.wait_until(&mut state, deadline).timed_out() {
            break;
        }
    }
    state.wanted = false;
    log.alarm.ringing.store(false, Ordering::Relaxed);
    !state.stop
}
