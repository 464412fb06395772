//! Changes in tables on their way to the threads that make them.
//!
//! # Protocol
//!
//! A connection puts its changes into the queue, and waits to be told what they have come to. A *maker* is a
//! thread that takes changes from it: of as many connections as wait, up to `Settings::batch` changes. It
//! makes them in one transaction, in which nothing waits for a lock, and is no maker any more when it
//! commits, which may wait for the disk. There are no more makers than processors. So nobody waits for
//! company, and what comes while others' changes are made becomes one transaction: the more of them the
//! busier the processors are. A transaction costs more than its row.
//!
//! Changes of a connection whose first item is locked by somebody are left out of the transaction; if
//! anything else can't be done it is rolled back (MC-6). Each connection's are made by themselves then,
//! where they wait for locks, and which no maker waits for.
//!
//! - **MC-11** While changes are in the queue there is a maker: whoever puts something there when there are
//!   fewer makers than there may be, starts one; and who is a maker no more, whatever happened to him, starts
//!   another one if something is there.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::batch::Work;
use crate::items::{Durable, Items, Refusal};
use crate::server::{Settings, Shared};

/// A connection's changes, once they are made, and whether they are durable.
type Made<S> = (Work<S>, Result<(), Refusal>);

struct Job<S> {
    work: Work<S>,
    tell: oneshot::Sender<Made<S>>,
}

pub struct Queue<I: Items> {
    state: Mutex<State<I::Session>>,
    most_makers: usize,
    /// Changes in one transaction.
    most_changes: usize,
}

struct State<S> {
    jobs: VecDeque<Job<S>>,
    makers: usize,
}

impl<I: Items> Queue<I> {
    pub fn new(settings: &Settings) -> Queue<I> {
        let processors = available_parallelism().map_or(1, usize::from);
        Queue {
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                makers: 0,
            }),
            most_makers: processors.min(settings.change_threads),
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
        if shared.queue.put(Job { work, tell }) {
            Maker::start(shared.clone());
        }
        told.await.map_err(io::Error::other)
    }

    fn lock(&self) -> MutexGuard<'_, State<I::Session>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is to be one more maker (MC-11).
    fn put(&self, job: Job<I::Session>) -> bool {
        let mut state = self.lock();
        state.jobs.push_back(job);
        let is_needed = state.makers < self.most_makers;
        state.makers += usize::from(is_needed);
        is_needed
    }

    /// As many as are one transaction.
    fn take(&self) -> Vec<Job<I::Session>> {
        let jobs = &mut self.lock().jobs;
        let mut changes = 0;
        let fit = |job: &&Job<I::Session>| {
            changes += job.work.together;
            changes <= self.most_changes
        };
        // The first one fits, as a connection has sent no more at once.
        let taken = jobs.iter().take_while(fit).count().max(1);
        jobs.drain(..taken.min(jobs.len())).collect()
    }

    /// A maker goes. Whether there is to be another one instead (MC-11).
    fn leave(&self) -> bool {
        let mut state = self.lock();
        let is_needed = !state.jobs.is_empty();
        state.makers -= usize::from(!is_needed);
        is_needed
    }
}

/// Who may take changes from the queue.
struct Maker<I: Items>(Arc<Shared<I>>);

impl<I: Items> Maker<I> {
    /// One that is counted already.
    fn start(shared: Arc<Shared<I>>) {
        spawn_blocking(|| Maker(shared).work());
    }

    fn work(self) {
        let shared = self.0.clone();
        let mut jobs = shared.queue.take();
        if jobs.is_empty() {
            return;
        }
        let changes = shared.changes();
        let mut refused = None;
        let mut works: Vec<_> = jobs.iter_mut().map(|job| &mut job.work).collect();
        match changes.make_together(&mut works, || drop(self)) {
            Ok(committed) => {
                let (made, left) = jobs.into_iter().partition(|job| job.work.done > 0);
                tell(made, shared.items.durable(committed));
                jobs = left;
            }
            Err(refusal @ Refusal::Ended(_)) => {
                works
                    .iter_mut()
                    .for_each(|work| work.refuse(&shared.items, &refusal));
                tell(std::mem::take(&mut jobs), None);
            }
            // Then it is known whose it was.
            Err(refusal) if jobs.len() == 1 && !matches!(refusal, Refusal::Busy) => {
                refused = Some(refusal);
            }
            Err(_) => {}
        }
        let last = jobs.pop();
        for job in jobs {
            let shared = shared.clone();
            spawn_blocking(move || make_alone(&shared, job, None));
        }
        if let Some(job) = last {
            make_alone(&shared, job, refused);
        }
    }
}

impl<I: Items> Drop for Maker<I> {
    fn drop(&mut self) {
        if self.0.queue.leave() {
            Maker::start(self.0.clone());
        }
    }
}

fn make_alone<I: Items>(shared: &Shared<I>, mut job: Job<I::Session>, refused: Option<Refusal>) {
    let durable = shared.changes().make(&mut job.work, refused);
    tell(vec![job], durable);
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
