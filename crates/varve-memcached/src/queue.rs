//! Changes in tables on their way to the threads that make them.
//!
//! # Protocol
//!
//! A connection puts its changes into the queue, and waits to be told what they have come to. A *maker* is a
//! thread that takes changes from it: of as many connections as wait, up to `Settings::batch` changes. It
//! makes them in one transaction, in which nothing waits for a lock, and is no maker any more when it
//! commits, which may wait for the disk. There are no more makers than processors, until something comes and
//! finds that the first of the queue has waited for `LONG`: that may be because makers read pages. So nobody
//! waits for company, and what comes while others' changes are made becomes one transaction: the more of
//! them the busier the processors are. A transaction costs more than its row.
//!
//! Changes of a connection whose first item is locked by somebody are left out of the transaction. If
//! anything else can't be done, it is rolled back, and made again without the connection that had its turn
//! then, whose changes are tried by themselves; after a few times all are (MC-6). What has to wait for a
//! lock is made in other threads. All but one may do that, so that there is one left for makers, if there
//! are several.
//!
//! - **MC-11** While changes are in the queue there is a maker: whoever puts something there when there are
//!   fewer makers than there may be, starts one; and who is a maker no more, whatever happened to him, starts
//!   another one if something is there. It is the same with changes that may wait, and the threads for them.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::batch::Work;
use crate::items::{Durable, Items, Refusal};
use crate::server::{Settings, Shared};

/// A connection's changes, once they are made, and whether they are durable.
type Made<S> = (Work<S>, Result<(), Refusal>);

struct Job<S> {
    work: Work<S>,
    since: Instant,
    /// Why it can't be made all together.
    refused: Option<Refusal>,
    tell: oneshot::Sender<Made<S>>,
}

/// When the first of the queue has waited for so long, whatever comes starts a maker more.
const LONG: Duration = Duration::from_millis(2);
/// After so many transactions that can't be made, each connection's changes are one.
const MOST_FAILURES: usize = 3;

pub struct Queue<I: Items> {
    state: Mutex<State<I::Session>>,
    /// Makers who compute.
    most_makers: usize,
    threads: usize,
    /// Changes in one transaction.
    most_changes: usize,
}

struct State<S> {
    /// Changes for makers.
    new: Line<S>,
    /// Those that may wait for locks.
    left: Line<S>,
}

/// Changes, and how many threads there are for them.
struct Line<S> {
    jobs: VecDeque<Job<S>>,
    threads: usize,
}

impl<S> Line<S> {
    fn new() -> Line<S> {
        Line {
            jobs: VecDeque::new(),
            threads: 0,
        }
    }

    /// Whether there is to be one more thread, of so many at most.
    fn put(&mut self, job: Job<S>, most: usize) -> bool {
        self.jobs.push_back(job);
        let is_needed = self.threads < most;
        self.threads += usize::from(is_needed);
        assert!(self.threads > 0, "MC-11: nobody would take it");
        is_needed
    }

    /// A thread goes. Whether there is to be another one instead.
    fn leave(&mut self) -> bool {
        assert!(
            self.threads > 0,
            "MC-11: a thread goes that was not counted"
        );
        let is_needed = !self.jobs.is_empty();
        self.threads -= usize::from(!is_needed);
        is_needed
    }
}

impl<I: Items> Queue<I> {
    pub fn new(settings: &Settings) -> Queue<I> {
        let processors = available_parallelism().map_or(1, usize::from);
        Queue {
            state: Mutex::new(State {
                new: Line::new(),
                left: Line::new(),
            }),
            most_makers: processors.min(settings.change_threads),
            threads: settings.change_threads,
            most_changes: settings.batch,
        }
    }

    /// Makes the changes of one connection, as far as their answers are no longer than `MOST_ANSWER_BYTES`,
    /// and waits until they are durable (MC-1).
    ///
    /// # Errors
    ///
    /// The server ends, or whoever made them has panicked, which the panic hook has told.
    pub async fn make(
        shared: &Arc<Shared<I>>,
        work: Work<I::Session>,
    ) -> io::Result<Made<I::Session>> {
        let (tell, told) = oneshot::channel();
        let job = Job {
            work,
            since: Instant::now(),
            refused: None,
            tell,
        };
        if shared.queue.put(job) {
            Thread::start(shared.clone(), Role::Maker);
        }
        told.await.map_err(io::Error::other)
    }

    fn lock(&self) -> MutexGuard<'_, State<I::Session>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is to be one more maker.
    fn put(&self, job: Job<I::Session>) -> bool {
        let new = &mut self.lock().new;
        let first = new.jobs.front().map(|first| first.since.elapsed());
        let most = match first >= Some(LONG) {
            true => self.threads,
            false => self.most_makers,
        };
        new.put(job, most)
    }

    /// As many as are one transaction.
    fn take(&self) -> Vec<Job<I::Session>> {
        let jobs = &mut self.lock().new.jobs;
        let mut changes = 0;
        let fit = |job: &&Job<I::Session>| {
            changes += job.work.together;
            changes <= self.most_changes
        };
        // The first one may be a request with more keys.
        let taken = jobs.iter().take_while(fit).count().max(1);
        jobs.drain(..taken.min(jobs.len())).collect()
    }

    /// Changes may wait. Whether there is to be one more thread for them.
    fn leave_out(&self, job: Job<I::Session>) -> bool {
        // One is for makers.
        let most = self.threads.saturating_sub(1).max(1);
        self.lock().left.put(job, most)
    }
}

/// What a thread does, once.
#[derive(Clone, Copy)]
enum Role {
    /// It takes new changes, and makes them at once.
    Maker,
    /// It makes changes that were left out, and waits for locks.
    Waiter,
}

/// One of those that are counted (MC-11).
struct Thread<I: Items> {
    shared: Arc<Shared<I>>,
    role: Role,
}

impl<I: Items> Thread<I> {
    /// One that is counted already.
    fn start(shared: Arc<Shared<I>>, role: Role) {
        spawn_blocking(move || {
            let me = Thread { shared, role };
            match role {
                Role::Maker => me.make(),
                Role::Waiter => me.wait(),
            }
        });
    }

    fn make(self) {
        let shared = self.shared.clone();
        let mut all = VecDeque::from([shared.queue.take()]);
        // Whoever commits is no maker any more, also for what he still has to do.
        let (mut me, mut failures) = (Some(self), 0);
        while let Some(mut jobs) = all.pop_front() {
            let Err((refusal, whose)) = make_at_once(&shared, &mut jobs, || me = None) else {
                continue;
            };
            failures += 1;
            match whose {
                Some(whose) if whose > 0 => all.push_back(vec![jobs.remove(whose)]),
                None if jobs.len() > 1 => failures = MOST_FAILURES,
                // Nobody else's changes came before.
                _ => refuse_or_leave_out(&shared, jobs.remove(0), refusal),
            }
            match failures < MOST_FAILURES {
                true => all.push_front(jobs),
                false => all.extend(jobs.into_iter().map(|job| vec![job])),
            }
        }
    }

    fn wait(self) {
        let job = self.shared.queue.lock().left.jobs.pop_front();
        if let Some(mut job) = job {
            let changes = self.shared.changes();
            let durable = changes.make(&mut job.work, job.refused.take());
            tell(vec![job], durable);
        }
    }
}

impl<I: Items> Drop for Thread<I> {
    fn drop(&mut self) {
        let is_needed = {
            let mut state = self.shared.queue.lock();
            match self.role {
                Role::Maker => state.new.leave(),
                Role::Waiter => state.left.leave(),
            }
        };
        if is_needed {
            Thread::start(self.shared.clone(), self.role);
        }
    }
}

/// Makes these in one transaction in which nothing waits for a lock, and leaves out whose first item is
/// locked. `made` is called before the commit. If it fails, none is done, and whose turn it was.
fn make_at_once<I: Items>(
    shared: &Arc<Shared<I>>,
    jobs: &mut Vec<Job<I::Session>>,
    made: impl FnOnce(),
) -> Result<(), (Refusal, Option<usize>)> {
    let mut works: Vec<_> = jobs.iter_mut().map(|job| &mut job.work).collect();
    if works.is_empty() {
        return Ok(());
    }
    match shared.changes().make_together(&mut works, made) {
        Ok(committed) => {
            let jobs = std::mem::take(jobs).into_iter();
            let (made, left): (Vec<_>, Vec<_>) = jobs.partition(|job| job.work.done > 0);
            tell(made, shared.items.durable(committed));
            for job in left {
                leave_out(shared, job);
            }
        }
        Err((refusal @ Refusal::Ended(_), _)) => {
            for work in works {
                work.refuse(&shared.items, &refusal);
            }
            tell(std::mem::take(jobs), None);
        }
        Err(failed) => return Err(failed),
    }
    Ok(())
}

/// It can't be made at once, though nobody else's changes were in the transaction.
fn refuse_or_leave_out<I: Items>(
    shared: &Arc<Shared<I>>,
    mut job: Job<I::Session>,
    refusal: Refusal,
) {
    job.refused = Some(refusal).filter(|why| !matches!(why, Refusal::Busy));
    match &job.refused {
        Some(refusal) if job.work.together == 1 => {
            job.work.refuse(&shared.items, refusal);
            tell(vec![job], None);
        }
        _ => leave_out(shared, job),
    }
}

/// It may wait for locks from now on.
fn leave_out<I: Items>(shared: &Arc<Shared<I>>, job: Job<I::Session>) {
    if shared.queue.leave_out(job) {
        Thread::start(shared.clone(), Role::Waiter);
    }
}

/// Tells these connections, once their changes are durable.
fn tell<S: Send + 'static>(jobs: Vec<Job<S>>, durable: Option<Durable>) {
    let tell = |waited: Result<(), Refusal>| {
        for job in jobs {
            // Whoever waits for it may have gone.
            let _ = job.tell.send((job.work, waited.clone()));
        }
    };
    match durable {
        None => tell(Ok(())),
        Some(durable) => {
            tokio::spawn(async { tell(durable.await) });
        }
    }
}
