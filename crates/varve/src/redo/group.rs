//! [`Group`]: who leads a group commit, who waits for which leader, and who is woken.
//!
//! # Protocol
//! The first committer that finds nobody leading leads. It *closes* its group: from then on everything
//! complete so far is the group's, up to its `target`, and all others belong to the next one. It writes and
//! syncs at least that, publishes exactly `target` as durable, and *ends*: all of its group are woken, and
//! one of the next, which will lead.
//!
//! Each group waits on a word of its own, so that one system call wakes all of them and none of the others.
//! (Woken one by one, each of them pushes the leader off its processor again: that cost 0.45 context switches
//! for each commit with 16 threads.) There are two words, for the group being synced and for the one that
//! gathers, used alternately.
//!
//! A waiter reads its group's word under the mutex, then sleeps unless the word has changed; a thread that
//! wakes a group first changes its word under the mutex. Whatever woke it, a committer looks again.
//!
//! - **GC-1** Nobody sleeps through a wake-up.
//! - **GC-2** A committer that sleeps is woken no later than by the end of the group that makes its LSN
//!   durable. While a group is led, a committer with an LSN up to `target` sleeps on that group's word, and
//!   one above it on the next one's. A committer that slept on the next one's before it was closed had a
//!   complete LSN, or one with others still being copied below it: then it is woken too early, and looks
//!   again.
//! - **GC-3** While somebody sleeps, there is a leader, or a committer awake that will find that there is
//!   none: `end` wakes one of the next group if it has any. Since nothing above `target` is published, that
//!   one is not served yet, so it leads, unless another came first; then that one's end does the same.
//!
//! `durable` is published with Release before the words change and read with Acquire. The mutex is a leaf,
//! held for a moment. `loom_tests` tries the interleavings of three committers.

use std::time::Duration;

use super::gather::Gather;
use crate::base::Lsn;
use crate::base::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

#[cfg(not(loom))]
mod word {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use rustix::thread::futex::{self, Flags};

    /// What the threads of a group sleep on. Changed under the mutex only, so Relaxed is enough for the
    /// value; what waiters look at next has orderings of its own.
    #[derive(Default)]
    pub struct Word(AtomicU32);

    impl Word {
        pub fn get(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }

        pub fn change(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        /// Sleeps unless the word has changed since it was `seen`. May return for no reason.
        pub fn sleep(&self, seen: u32) {
            // An error says that it has changed, or that a signal came.
            let _ = futex::wait(&self.0, Flags::PRIVATE, seen, None);
        }

        pub fn sleep_for(&self, seen: u32, at_most: Duration) {
            if let Ok(at_most) = futex::Timespec::try_from(at_most) {
                let _ = futex::wait(&self.0, Flags::PRIVATE, seen, Some(&at_most));
            }
        }

        pub fn wake(&self, at_most: u32) {
            // It fails for bad addresses only.
            let _ = futex::wake(&self.0, Flags::PRIVATE, at_most);
        }
    }
}

#[cfg(loom)]
mod word {
    use std::time::Duration;

    use loom::sync::{Condvar, Mutex};

    /// The same made of a mutex and a condition variable, which the model checker knows.
    #[derive(Default)]
    pub struct Word {
        value: Mutex<u32>,
        changed: Condvar,
    }

    impl Word {
        pub fn get(&self) -> u32 {
            *self.value.lock().unwrap()
        }

        pub fn change(&self) {
            *self.value.lock().unwrap() += 1;
        }

        pub fn sleep(&self, seen: u32) {
            let value = self.value.lock().unwrap();
            if *value == seen {
                drop(self.changed.wait(value).unwrap());
            }
        }

        /// In a model no time passes.
        pub fn sleep_for(&self, _seen: u32, _at_most: Duration) {}

        pub fn wake(&self, at_most: u32) {
            let _sleepers = self.value.lock().unwrap();
            match at_most {
                1 => self.changed.notify_one(),
                _ => self.changed.notify_all(),
            }
        }
    }
}

use word::Word;

const ALL: u32 = i32::MAX as u32;

#[derive(Default)]
struct GroupState {
    leading: bool,
    /// The number of the group that gathers; while a closed one is being synced, that one's is one less.
    number: usize,
    /// What the group that was closed last makes durable.
    target: Lsn,
    /// Committers that began to sleep for the group that gathers. Some may be awake again.
    waiting: usize,
    /// How many the closed group had, its leader included.
    closed: usize,
    gather: Gather,
    /// The leader waits until so many others are in its group; 0 if it does not.
    wanted: usize,
}

pub struct Group {
    state: Mutex<GroupState>,
    /// What the members of groups of even and odd number sleep on.
    words: [Word; 2],
    /// A leader sleeps on it while it waits for followers.
    leader_word: Word,
    durable: AtomicU64,
}

/// What a committer has to do next.
pub enum Role {
    /// Nothing: its LSN is durable.
    Served,
    /// Sleep, then look again.
    Follow(Ticket),
    Lead,
}

/// A committer's place in a group.
pub struct Ticket {
    number: usize,
    seen: u32,
    /// It was the last that the leader waits for.
    completes_group: bool,
}

impl Group {
    pub fn new(durable: Lsn) -> Group {
        Group {
            state: Mutex::new(GroupState::default()),
            words: [Word::default(), Word::default()],
            leader_word: Word::default(),
            durable: AtomicU64::new(durable.0),
        }
    }

    pub fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    fn lock(&self) -> MutexGuard<'_, GroupState> {
        self.state.lock()
    }

    /// Joins a group for `lsn`, or becomes a leader.
    pub fn join(&self, lsn: Lsn) -> Role {
        let mut state = self.lock();
        // Again, because a leader may have ended meanwhile; one that ends later wakes us (GC-2).
        if self.durable() >= lsn {
            return Role::Served;
        }
        if !state.leading {
            state.leading = true;
            return Role::Lead;
        }
        let is_in_closed = lsn <= state.target;
        let number = state.number.wrapping_sub(usize::from(is_in_closed));
        state.waiting += usize::from(!is_in_closed);
        let completes_group = !is_in_closed && state.waiting == state.wanted;
        if completes_group {
            self.leader_word.change();
        }
        Role::Follow(Ticket {
            number,
            seen: self.words[number % 2].get(),
            completes_group,
        })
    }

    /// Sleeps until the group is woken, or for no reason shorter.
    pub fn follow(&self, ticket: &Ticket) {
        if ticket.completes_group {
            self.leader_word.wake(1);
        }
        self.words[ticket.number % 2].sleep(ticket.seen);
    }

    /// The leader lets others join its group, if that pays.
    pub fn gather(&self) {
        let mut state = self.lock();
        let waiting = state.waiting;
        let Some((others, at_most)) = state.gather.followers(waiting) else {
            return;
        };
        state.wanted = others;
        let seen = self.leader_word.get();
        drop(state);
        self.leader_word.sleep_for(seen, at_most);
        let mut state = self.lock();
        state.wanted = 0;
        let came = state.waiting;
        state.gather.came(came, others);
    }

    /// The leader's group is complete: its members' frames lie below `target`, which is to become durable.
    pub fn close(&self, target: Lsn) {
        let mut state = self.lock();
        assert!(state.leading && target >= state.target);
        state.number = state.number.wrapping_add(1);
        state.target = target;
        state.closed = std::mem::take(&mut state.waiting) + 1;
    }

    /// The closed group's part of the log is durable, after a sync that took so long.
    pub fn publish(&self, took: Duration) {
        let mut state = self.lock();
        state.gather.synced(took);
        self.durable.fetch_max(state.target.0, Ordering::Release);
    }

    /// Ends the leader's group (GC-3).
    pub fn end(&self) {
        let mut state = self.lock();
        state.leading = false;
        let (closed, left) = (state.closed, state.waiting);
        state.gather.ended(closed, left);
        let [closed, next] = [state.number.wrapping_sub(1), state.number];
        let (closed, next) = (&self.words[closed % 2], &self.words[next % 2]);
        closed.change();
        if left > 0 {
            next.change();
        }
        drop(state);
        if left > 0 {
            // Before the others: the disk waits for it.
            next.wake(1);
        }
        closed.wake(ALL);
    }

    /// Ends the leader's group as it should not be: nobody is woken. For a test of tests.
    #[cfg(feature = "sabotage")]
    pub fn end_silently(&self) {
        self.lock().leading = false;
    }

    /// Wakes everybody: there is nothing to wait for any more.
    pub fn wake_all(&self) {
        let state = self.lock();
        let all = [&self.words[0], &self.words[1], &self.leader_word];
        all.iter().for_each(|word| word.change());
        drop(state);
        all.iter().for_each(|word| word.wake(ALL));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::base::model;
    use loom::sync::Arc;
    use loom::thread;

    /// A log without bytes: a commit takes the next LSN, and it is complete at once.
    struct Log {
        group: Group,
        complete: AtomicU64,
    }

    impl Log {
        fn commit(&self) {
            let lsn = Lsn(self.complete.fetch_add(1, Ordering::AcqRel) + 1);
            while self.group.durable() < lsn {
                match self.group.join(lsn) {
                    Role::Served => assert!(self.group.durable() >= lsn),
                    Role::Follow(ticket) => self.group.follow(&ticket),
                    Role::Lead => {
                        let target = Lsn(self.complete.load(Ordering::Acquire));
                        self.group.close(target);
                        self.group.publish(Duration::ZERO);
                        assert!(self.group.durable() >= lsn);
                        self.group.end();
                    }
                }
            }
        }
    }

    /// Everybody returns: a wake-up that is lost is a deadlock, which loom reports (GC-1, GC-2 and GC-3).
    fn committers(commits: [u64; 2]) -> impl Fn() + Send + Sync + 'static {
        move || {
            let log = Arc::new(Log {
                group: Group::new(Lsn(0)),
                complete: AtomicU64::new(0),
            });
            let threads = commits.map(|n| {
                let log = log.clone();
                thread::spawn(move || (0..n).for_each(|_| log.commit()))
            });
            log.commit();
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(log.group.durable().0, commits.iter().sum::<u64>() + 1);
        }
    }

    #[test]
    fn loom_three_committers() {
        model::check_long(3, committers([1, 1]));
    }

    #[test]
    fn loom_committers_come_back() {
        model::check(2, committers([2, 1]));
    }
}
