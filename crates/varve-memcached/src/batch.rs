//! Changes that a client sends together: one transaction, if it can be, as far as they are made in tables.
//! One that is made in memory is made by itself, and never again once it is made: so changes in tables that
//! come before one in memory and after it are two batches.
//!
//! - **MC-3** The cas of an item only grows, unless a client sets it: it comes from a clock that never gives
//!   a number twice, and is more than the one before. So who has seen a cas is told of each change since. An
//!   item that was deleted and made again begins with the clock's number. A store may have another cas of its
//!   own, which says the same of the values in a row.
//! - **MC-6** A batch in which one request can't be done is done again one by one: none fails for another's
//!   sake. Only when those before it have waited for `PATIENCE` together, as a thread waits with them, a
//!   request that would have to wait is refused.

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

/// Changes of one connection.
pub struct Changes<'a, I: Items> {
    pub items: &'a I,
    pub clock: &'a Clock,
    pub session: &'a mut I::Session,
    pub counts: &'a mut Counts,
    pub out: &'a mut BytesMut,
}

impl<I: Items> Changes<'_, I> {
    /// Does the first of these requests, all that are made in one place if their answers are no longer than
    /// `MOST_ANSWER_BYTES`, and writes the answers, which are true once what is returned is waited for
    /// (MC-1). Returns how many it has done, too.
    pub fn make(&mut self, batch: &[(Request, Reply)]) -> (Option<Durable>, usize) {
        let place_of = |one: &(Request, Reply)| self.items.place(one.0.effect());
        let place = batch.first().map_or(Place::Table, place_of);
        let others = batch.iter().position(|one| place_of(one) != place);
        let batch = &batch[..others.unwrap_or(batch.len())];
        match place {
            Place::Table => self.make_in_tables(batch),
            Place::Memory => self.make_each(batch, place),
        }
    }

    fn make_in_tables(&mut self, batch: &[(Request, Reply)]) -> (Option<Durable>, usize) {
        let begin = self.out.len();
        let before = *self.counts;
        let refusal = match self.make_all(batch, Place::Table, PATIENCE) {
            Ok((committed, done)) => return (self.items.durable(committed), done),
            Err(refusal) => refusal,
        };
        self.out.truncate(begin);
        *self.counts = before;
        if batch.len() == 1 || matches!(refusal, Refusal::Ended(_)) {
            for one in batch {
                self.refuse(one, &refusal);
            }
            return (None, batch.len());
        }
        // MC-6.
        self.make_each(batch, Place::Table)
    }

    /// Does these requests one by one.
    fn make_each(&mut self, batch: &[(Request, Reply)], place: Place) -> (Option<Durable>, usize) {
        let end = Instant::now() + PATIENCE;
        let mut last = None;
        for (n, one) in batch.iter().enumerate() {
            let begin = self.out.len();
            let patience = end.saturating_duration_since(Instant::now());
            match self.make_all(std::slice::from_ref(one), place, patience) {
                // What changed nothing has nothing to wait for, and what came before the last one is durable
                // when that is.
                Ok((committed, _)) => last = self.items.durable(committed).or(last),
                Err(refusal) => {
                    self.out.truncate(begin);
                    self.refuse(one, &refusal);
                }
            }
            if self.out.len() > MOST_ANSWER_BYTES {
                return (last, n + 1);
            }
        }
        (last, batch.len())
    }

    fn refuse(&mut self, (request, reply): &(Request, Reply), refusal: &Refusal) {
        self.items.choose(self.session, &request.key);
        reply.fail(&refusal.told(), self.out);
    }

    fn make_all(
        &mut self,
        batch: &[(Request, Reply)],
        place: Place,
        patience: Duration,
    ) -> Result<(I::Committed, usize), Refusal> {
        self.items.begin(self.session, place, patience)?;
        let done = self.make_some(batch);
        let done = done.and_then(|done| Ok((self.items.commit(self.session)?, done)));
        if done.is_err() {
            self.items.roll_back(self.session);
        }
        done
    }

    fn make_some(&mut self, batch: &[(Request, Reply)]) -> Result<usize, Refusal> {
        for (n, (request, reply)) in batch.iter().enumerate() {
            let mut decision = self.make_one(request);
            for _ in 1..MOST_ATTEMPTS {
                if !matches!(decision, Err(Refusal::Made)) {
                    break;
                }
                // Now it is there, and locked, or, in memory, another one is.
                decision = self.make_one(request);
            }
            let decision = decision?;
            self.counts.change(request, &decision);
            reply.write(request, &decision, now(), self.out);
            if self.out.len() > MOST_ANSWER_BYTES {
                return Ok(n + 1);
            }
        }
        Ok(batch.len())
    }

    fn make_one(&mut self, request: &Request) -> Result<Decision, Refusal> {
        if request.verb == Verb::Get {
            self.items.may_read()?;
        }
        let mut decision = {
            let item = self
                .items
                .find(self.session, &request.key, request.effect())?;
            let cas = next_cas(self.clock.tick(), item.map_or(0, |item| item.cas));
            let item = item.filter(|item| !item.is_over(now()));
            decide(request, item, cas, self.items.most_value_bytes())
        };
        match &mut decision.change {
            Change::Put(item) => self.items.put(self.session, &request.key, item)?,
            Change::Delete => self.items.remove(self.session)?,
            Change::Keep => self.items.keep(self.session)?,
        }
        Ok(decision)
    }
}
