//! Changes that a client sends together, or several clients at the same time (`queue`): one transaction, if
//! it can be, as far as they are made in tables. One that is made in memory is made by itself, and never
//! again once it is made: so changes in tables that come before one in memory and after it are two batches.
//!
//! - **MC-3** The cas of an item only grows, unless a client sets it: it comes from a clock that never gives
//!   a number twice, and is more than the one before. So who has seen a cas is told of each change since. An
//!   item that was deleted and made again begins with the clock's number. A store may have another cas of its
//!   own, which says the same of the values in a row.
//! - **MC-6** A transaction in which one request can't be done is done again without that client's changes,
//!   and these by themselves, and then one by one: none fails for another's sake. Only when those before it
//!   have waited for `PATIENCE` together, as a thread waits with them, a request that would have to wait is
//!   refused.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;

use crate::connection::MOST_ANSWER_BYTES;
use crate::counters::Counts;
use crate::decide::{Change, Decision, decide, next_cas};
use crate::item::now;
use crate::items::{Durable, Items, Place, Refusal};
use crate::protocol::Reply;
use crate::request::{Request, Verb};

/// How long a request waits for somebody who has locked an item: the clients' own changes are done in a
/// moment, so that is a program which reads and changes rows beside them.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often something else than what was found is there when it is changed.
const MOST_ATTEMPTS: u32 = 100;

/// Numbers for items that are changed.
#[derive(Default)]
pub struct Clock {
    /// The last number that was given. Relaxed: a read-modify-write gives no number twice, and the row's lock
    /// orders those of one key, as in memory the lock of what was seen there.
    last: AtomicU64,
}

impl Clock {
    /// A number of microseconds, greater than all before.
    fn tick(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let clock = since.map_or(0, |since| since.as_micros() as u64);
        let next = |last: u64| clock.max(last + 1);
        let last = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
                Some(next(last))
            });
        next(last.unwrap_or_else(|last| last))
    }
}

/// Changes of one connection, and what they have come to.
pub struct Work<S> {
    /// Boxed: it goes to other threads and comes back (MC-4).
    pub session: Box<S>,
    pub batch: Vec<(Request, Reply)>,
    /// So many, from the first one, are made in one place, and may be made at once.
    pub together: usize,
    /// So many, from the first one, are answered.
    pub done: usize,
    /// An item was looked for, and what follows may have changed something.
    has_begun: bool,
    pub counts: Counts,
    pub out: BytesMut,
}

impl<S> Work<S> {
    pub fn new(
        items: &impl Items<Session = S>,
        session: Box<S>,
        batch: Vec<(Request, Reply)>,
    ) -> Work<S> {
        let place_of = |one: &(Request, Reply)| items.place(one.0.effect());
        let place = batch.first().map(place_of);
        let others = batch.iter().position(|one| Some(place_of(one)) != place);
        Work {
            session,
            together: others.unwrap_or(batch.len()),
            batch,
            done: 0,
            has_begun: false,
            counts: Counts::default(),
            out: BytesMut::new(),
        }
    }

    /// Nothing of it is done.
    fn undo(&mut self) {
        (self.done, self.has_begun) = (0, false);
        self.counts = Counts::default();
        self.out.clear();
    }

    /// None of those that were tried can be done.
    pub fn refuse(&mut self, items: &impl Items<Session = S>, refusal: &Refusal) {
        self.undo();
        let tried = &self.batch[..self.together];
        for (request, reply) in tried {
            items.choose(&mut self.session, &request.key);
            reply.fail(&refusal.told(), &mut self.out);
        }
        self.done = self.together;
    }
}

/// How changes are made.
pub struct Changes<'a, I> {
    pub items: &'a I,
    pub clock: &'a Clock,
}

impl<I: Items> Changes<'_, I> {
    /// Makes changes of several connections in one transaction, in which nothing waits for a lock. Those of a
    /// connection whose first item is locked are left as they are: not done. `made` is called before the
    /// commit. The answers are true once what is returned is durable (MC-1).
    ///
    /// # Errors
    ///
    /// Nothing of it is done, and whose changes can't be.
    pub fn make_together(
        &self,
        works: &mut [&mut Work<I::Session>],
        made: impl FnOnce(),
    ) -> Result<I::Committed, (Refusal, Option<usize>)> {
        let mut has = 0;
        let done = self.make_all_of(works, &mut has);
        let done = done.map_err(|refusal| (refusal, Some(has)));
        let done = done.and_then(|()| {
            made();
            let committed = self.items.commit(&mut works[has].session);
            committed.map_err(|refusal| (refusal, None))
        });
        if done.is_err() {
            // The last one ends it, the others may have chosen another container.
            for work in works[..=has].iter_mut().rev() {
                self.items.roll_back(&mut work.session);
                work.undo();
            }
        }
        done
    }

    /// `has` is whose session has the transaction.
    fn make_all_of(
        &self,
        works: &mut [&mut Work<I::Session>],
        has: &mut usize,
    ) -> Result<(), Refusal> {
        let first = &mut works[0].session;
        self.items.begin(first, Place::Table, None)?;
        for n in 0..works.len() {
            if let [from, to] = &mut works[n.saturating_sub(1)..=n] {
                self.items.hand_over(&mut from.session, &mut to.session);
            }
            *has = n;
            let made = self.make_some(works[n], 0..works[n].together);
            match made {
                Err(Refusal::Busy) if !works[n].has_begun => {}
                made => made?,
            }
        }
        Ok(())
    }

    /// Makes the changes of one connection, which wait for locks. `refused`: why they can't be made all
    /// together, if that is known.
    pub fn make(&self, work: &mut Work<I::Session>, refused: Option<Refusal>) -> Option<Durable> {
        let done = match refused {
            Some(refusal) => Err(refusal),
            None => self.make_all(work, 0..work.together, Place::Table, PATIENCE),
        };
        let refusal = match done {
            Ok(committed) => return self.items.durable(committed),
            Err(refusal) => refusal,
        };
        if work.together == 1 || matches!(refusal, Refusal::Ended(_)) {
            work.refuse(self.items, &refusal);
            return None;
        }
        // MC-6.
        work.undo();
        self.make_each(work, Place::Table)
    }

    /// Makes the changes of one connection one by one.
    pub fn make_each(&self, work: &mut Work<I::Session>, place: Place) -> Option<Durable> {
        let end = Instant::now() + PATIENCE;
        let mut last = None;
        while work.done < work.together && work.out.len() <= MOST_ANSWER_BYTES {
            let (n, begin) = (work.done, work.out.len());
            let patience = end.saturating_duration_since(Instant::now());
            match self.make_all(work, n..n + 1, place, patience) {
                // What changed nothing has nothing to wait for, and what came before the last one is durable
                // when that is.
                Ok(committed) => last = self.items.durable(committed).or(last),
                Err(refusal) => {
                    let (request, reply) = &work.batch[n];
                    work.out.truncate(begin);
                    self.items.choose(&mut work.session, &request.key);
                    reply.fail(&refusal.told(), &mut work.out);
                }
            }
            work.done = n + 1;
        }
        last
    }

    fn make_all(
        &self,
        work: &mut Work<I::Session>,
        which: Range<usize>,
        place: Place,
        patience: Duration,
    ) -> Result<I::Committed, Refusal> {
        let before = work.counts;
        self.items.begin(&mut work.session, place, Some(patience))?;
        let done = self.make_some(work, which);
        let done = done.and_then(|()| self.items.commit(&mut work.session));
        if done.is_err() {
            self.items.roll_back(&mut work.session);
            work.counts = before;
        }
        done
    }

    /// Makes these as far as their answers are no longer than `MOST_ANSWER_BYTES`.
    fn make_some(&self, work: &mut Work<I::Session>, which: Range<usize>) -> Result<(), Refusal> {
        let Work {
            session,
            batch,
            done,
            has_begun,
            counts,
            out,
            ..
        } = work;
        for (request, reply) in &batch[which] {
            let mut decision = self.make_one(session, request, has_begun);
            for _ in 1..MOST_ATTEMPTS {
                if !matches!(decision, Err(Refusal::Made)) {
                    break;
                }
                // Now it is there, and locked, or, in memory, another one is.
                decision = self.make_one(session, request, has_begun);
            }
            let decision = decision?;
            counts.change(request, &decision);
            reply.write(request, &decision, now(), out);
            *done += 1;
            if out.len() > MOST_ANSWER_BYTES {
                break;
            }
        }
        Ok(())
    }

    fn make_one(
        &self,
        session: &mut I::Session,
        request: &Request,
        has_begun: &mut bool,
    ) -> Result<Decision, Refusal> {
        if request.verb == Verb::Get {
            self.items.may_read()?;
        }
        let mut decision = {
            let item = self.items.find(session, &request.key, request.effect())?;
            *has_begun = true;
            let cas = next_cas(self.clock.tick(), item.map_or(0, |item| item.cas));
            let item = item.filter(|item| !item.is_over(now()));
            decide(request, item, cas, self.items.most_value_bytes())
        };
        match &mut decision.change {
            Change::Put(item) => self.items.put(session, &request.key, item)?,
            Change::Delete => self.items.remove(session)?,
            Change::Keep => self.items.keep(session)?,
        }
        Ok(decision)
    }
}
