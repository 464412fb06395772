//! The transaction system: the counter, the states of all ids, the numbers of commits, the purge limit.
//!
//! Invariants (protocol and proofs in prose: txn/mod.rs):
//! - **TXN-1** Every id below `low` is finished or in the straggler map, and was so before `low` passed it.
//! - **TXN-2** A number is drawn after the id's state says COMMITTING, and before it says COMMITTED. So the
//!   order of the numbers is an order in which the transactions can have happened: a transaction that could
//!   see or wait for another has a larger one.
//! - **TXN-3** `purge_limit` never returns more than the number of any view, open or to come, that is no
//!   member of the history store, nor more than a number whose transaction is not COMMITTED yet.
//! - **TXN-4** Between `assign_id` and `finish_commit` or `abort` an id belongs to one thread at a time: only
//!   that thread changes its state.
//! - **TXN-5** A thread that dies in between `start_commit` and `finish_commit` stops the database. Nobody
//!   waits for its transaction then.
//! - **TXN-6** Each id below what `freeze_limit` returns is finished, and every view, open or to come,
//!   members of the history store, too, sees what it committed.
//!
//! No latch is held or taken. Only `assign_id` and `adopt` can fail (the id limit can't be logged, ids have
//! run out). The thread that draws the middle number of a ring segment does upkeep (upkeep.rs) for the
//! others; everybody else waits for nothing here.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::{Backoff, CachePadded};

use super::id_limit::{IdLimit, IdLimitLog};
use super::ring::{IdState, Ring, Word};
use super::stragglers::Stragglers;
use super::upkeep::Upkeep;
use super::view::{Gate, Member, OpenView, ReadView, Slots, ViewKey, ViewPlace};
use crate::base::sync::{AtomicU64, Mutex, Ordering, between_seq_cst, fence, yield_now};
use crate::base::{Result, TrxId, TrxNo};

/// Sizes; tests use small ones to meet every boundary often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// The ring has `2^ring_bits` words.
    pub ring_bits: u32,
    /// Ids are retired from the ring in segments of `2^segment_bits`; at least four make up the ring.
    pub segment_bits: u32,
    /// View slots before the first growth.
    pub slots: usize,
}

/// The ring of a database has `2^RING_BITS` words, unless a test wants fewer.
pub const RING_BITS: u32 = 20;

impl Shape {
    fn of_ring(ring_bits: u32) -> Shape {
        Shape {
            ring_bits,
            segment_bits: ring_bits - 4,
            slots: 64,
        }
    }
}

/// What views share with the transaction system.
pub(super) struct IdTable {
    /// The counter: the next id or number. Drawn with AcqRel, so that what a transaction did before it drew
    /// its number is seen by a thread that loads a larger counter with Acquire.
    pub next: CachePadded<AtomicU64>,
    /// TXN-1. Only grows.
    pub low: CachePadded<AtomicU64>,
    pub gate: CachePadded<Gate>,
    pub ring: Ring,
    pub stragglers: Stragglers,
    /// Ids below were used before the database was opened: the ring never held them.
    pub first: u64,
}

impl IdTable {
    fn new(first: u64, ring_bits: u32) -> IdTable {
        IdTable {
            next: CachePadded::new(AtomicU64::new(first)),
            low: CachePadded::new(AtomicU64::new(first)),
            gate: CachePadded::new(Gate::new()),
            ring: Ring::new(ring_bits),
            stragglers: Stragglers::new(),
            first,
        }
    }

    /// `None`: finished so long ago that no open view can doubt it (or never drawn).
    fn state(&self, id: u64) -> Option<IdState> {
        if id >= self.first {
            match self.ring.get(id) {
                Word::State(state) => return Some(state),
                Word::Number | Word::Unmarked => return None,
                Word::Moved => {}
            }
        }
        self.stragglers.get(id)
    }

    /// Changes the state of an id that the caller owns (TXN-4). Returns whether it is a straggler.
    fn set_state(&self, id: u64, to: IdState) -> bool {
        if id >= self.first {
            loop {
                match self.ring.read(id) {
                    // It fails when upkeep moves the id meanwhile.
                    (raw, Word::State(_)) if self.ring.change(id, raw, to) => return false,
                    (_, Word::State(_)) => {}
                    (_, Word::Moved) => break,
                    (_, word) => unreachable!("transaction id {id} was not assigned: {word:?}"),
                }
            }
        }
        self.stragglers.set(id, to);
        true
    }

    /// Moves `low` over everything that is finished. Called by the thread that finished the id at `low`: a
    /// thread that finds `low` below its own id leaves the rest to the owner of an id further down. Both
    /// sides are SeqCst (finish, then look at `low`; move `low`, then look at the next word), so one of the
    /// two sees the other.
    pub fn advance_low(&self) {
        let mut from = self.low.load(Ordering::SeqCst);
        loop {
            between_seq_cst();
            let mut to = from;
            while to < from + self.ring.len() && self.is_passable(to) {
                to += 1;
            }
            if to == from {
                // A newer lap's word looks passable, so this one is unfinished, or not drawn.
                return;
            }
            from = match self
                .low
                .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(_) => to,
                Err(now) => now,
            };
        }
    }

    /// Finished, or a straggler. A word of a newer lap counts too: then `low` has passed the id long ago, and
    /// the compare-and-swap that follows will fail.
    fn is_passable(&self, id: u64) -> bool {
        match self.ring.get(id) {
            Word::State(state) => !state.is_unfinished(),
            Word::Number | Word::Moved => true,
            Word::Unmarked => false,
        }
    }
}

/// The transaction system of one database.
pub struct TxnSys {
    pub(super) ids: Arc<IdTable>,
    pub(super) slots: Slots,
    pub(super) segment_len: u64,
    /// Ids below may be marked in the ring. Stored with Release by upkeep, loaded with Acquire by a thread
    /// that draws: then everything upkeep did happens before the ring's words are overwritten.
    pub(super) usable_end: CachePadded<AtomicU64>,
    pub(super) upkeep: Mutex<Upkeep>,
    id_limit: IdLimit,
    /// The largest limit that `purge_limit_past` returned.
    purge_limit: AtomicU64,
    /// TXN-6. Only grows. Stored with Release by who has looked at all views, loaded with Acquire.
    freeze_limit: AtomicU64,
    /// Nobody waits for it: who finds it taken is content with the limit as it is.
    freezing: Mutex<Freezing>,
}

/// What is waited for so that TXN-6 holds further.
#[derive(Default)]
struct Freezing {
    /// Ids below were finished when the counter stood at `since`, so their numbers are below that.
    next_limit: u64,
    since: u64,
}

impl TxnSys {
    /// A transaction system whose counter starts at `first_id`: above every id and number ever used, which
    /// after a crash is the last logged id limit.
    #[cfg(feature = "internals")]
    pub fn new(first_id: u64, log: Box<dyn IdLimitLog>) -> TxnSys {
        TxnSys::with_ring(first_id, log, RING_BITS)
    }

    /// The same with a ring of `2^ring_bits` words.
    pub fn with_ring(first_id: u64, log: Box<dyn IdLimitLog>, ring_bits: u32) -> TxnSys {
        TxnSys::with_shape(first_id, log, Shape::of_ring(ring_bits))
    }

    pub(super) fn with_shape(first_id: u64, log: Box<dyn IdLimitLog>, shape: Shape) -> TxnSys {
        assert!(shape.segment_bits + 2 <= shape.ring_bits, "{shape:?}");
        // 0 is "older than everything".
        let first = first_id.max(1);
        let ids = Arc::new(IdTable::new(first, shape.ring_bits));
        let segment_len = 1 << shape.segment_bits;
        let first_segment = first & !(segment_len - 1);
        TxnSys {
            slots: Slots::new(ids.clone(), shape.slots),
            segment_len,
            usable_end: CachePadded::new(AtomicU64::new(first_segment + ids.ring.len())),
            upkeep: Mutex::new(Upkeep::default()),
            id_limit: IdLimit::new(first, log),
            purge_limit: AtomicU64::new(0),
            freeze_limit: AtomicU64::new(0),
            freezing: Mutex::new(Freezing::default()),
            ids,
        }
    }

    /// Draws an id or number and waits until the ring has room for it, which it nearly always has.
    fn draw(&self) -> u64 {
        let id = self.ids.next.fetch_add(1, Ordering::AcqRel);
        if id & (self.segment_len - 1) == self.segment_len / 2 {
            self.retire_until(id + self.segment_len);
        }
        // Never blocks on the upkeep mutex: its holder may be waiting for this id's mark.
        while self.usable_end.load(Ordering::Acquire) <= id {
            self.retire_until(id);
            yield_now();
        }
        id
    }

    /// An id for a transaction that is going to write.
    pub fn assign_id(&self) -> Result<TrxId> {
        let id = self.draw();
        self.ids.ring.mark_active(id);
        if let Err(e) = self.id_limit.cover(id) {
            self.abort(TrxId(id));
            return Err(e);
        }
        Ok(TrxId(id))
    }

    /// Takes over a transaction that recovery found unfinished. Before the first view opens.
    pub fn adopt(&self, id: TrxId, state: IdState) -> Result<()> {
        let ids = &self.ids;
        assert!(id.0 < ids.first, "recovered {id:?} is above the id limit");
        assert!(matches!(state, IdState::Active | IdState::Prepared));
        self.id_limit.cover(ids.next.load(Ordering::Acquire))?;
        let _alone = self.upkeep.lock();
        ids.stragglers.insert(&[(id.0, state)]);
        Ok(())
    }

    /// The transaction is prepared: only the list of transactions shows a difference.
    pub fn prepare(&self, id: TrxId) {
        self.ids.set_state(id.0, IdState::Prepared);
    }

    /// Draws the transaction's number. Until `finish_commit`, which must follow, readers that need the number
    /// wait.
    pub fn start_commit(&self, id: TrxId) -> TrxNo {
        let floor = self.ids.next.load(Ordering::Acquire);
        self.ids.set_state(id.0, IdState::Committing { floor });
        let no = self.draw();
        // First: upkeep waits for the mark of every id that was drawn.
        self.ids.ring.mark_number(no);
        assert!(self.id_limit.covers(no), "LIMIT-1: number {no}");
        TrxNo(no)
    }

    /// From here on every view with a larger number sees the transaction.
    pub fn finish_commit(&self, id: TrxId, no: TrxNo) {
        self.finish(id, IdState::Committed { no });
    }

    /// The transaction is rolled back completely: no record carries its id any more.
    pub fn abort(&self, id: TrxId) {
        let at = self.ids.next.load(Ordering::Acquire);
        self.finish(id, IdState::Aborted { at });
    }

    fn finish(&self, id: TrxId, state: IdState) {
        if self.ids.set_state(id.0, state) {
            // `low` passed the id long ago, and may have come to its number before that was marked.
            fence(Ordering::SeqCst);
            self.ids.advance_low();
            self.try_settle();
            return;
        }
        between_seq_cst();
        if self.ids.low.load(Ordering::SeqCst) == id.0 {
            self.ids.advance_low();
        }
    }

    /// Opens a view that sees what was committed up to now, and the changes of `own`.
    pub fn open_view(&self, own: Option<TrxId>) -> ReadView {
        self.view_place().open(own)
    }

    /// A place for views that are opened one after the other.
    pub fn view_place(&self) -> ViewPlace {
        ViewPlace::claim(&self.slots)
    }

    /// Waits while the transaction is drawing its number. Hold no latch: the committer may need it. `go_on`
    /// is asked again and again once that takes long; its error ends the wait.
    pub fn wait_settled(&self, id: TrxId, go_on: impl Fn() -> Result<()>) -> Result<()> {
        let backoff = Backoff::new();
        while let Some(IdState::Committing { .. }) = self.ids.state(id.0) {
            if backoff.is_completed() {
                // Between the two states lies a copy into the log buffer: longer means that the thread lost
                // its processor, that the log buffer is full, or that the thread died (TXN-5).
                go_on()?;
                pause();
            } else {
                backoff.snooze();
            }
        }
        Ok(())
    }

    /// The transaction is neither committed nor rolled back completely: it holds implicit locks on what
    /// carries its id.
    pub fn is_unfinished(&self, id: TrxId) -> bool {
        let low = self.ids.low.load(Ordering::Acquire);
        if id.0 < low {
            let (first, last) = self.ids.stragglers.bounds();
            if id.0 < first || id.0 > last {
                return false;
            }
        }
        self.ids.state(id.0).is_some_and(IdState::is_unfinished)
    }

    /// `purge_limit_past` without new members.
    #[cfg(test)]
    pub fn purge_limit(&self) -> TrxNo {
        self.purge_limit_past(|_| false, &mut Vec::new())
    }

    /// The limit that purge was given last; 0: it has not asked yet.
    pub fn last_purge_limit(&self) -> TrxNo {
        TrxNo(self.purge_limit.load(Ordering::Acquire))
    }

    /// The number below which every committed change is visible to all views, open and to come, but for the
    /// members of the history store, and every commit is complete. Never falls. Those views become members
    /// first that hold it back and that `joins` names. `members` gets all members that are open, in order.
    pub fn purge_limit_past(
        &self,
        mut joins: impl FnMut(ViewKey) -> bool,
        members: &mut Vec<Member>,
    ) -> TrxNo {
        let ids = &self.ids;
        let last = self.purge_limit.load(Ordering::Acquire);
        let tentative = ids.next.load(Ordering::Acquire);
        ids.gate.raise_limit(tentative);
        members.clear();
        let mut limit = tentative;
        for view in self.slots.held() {
            let holds_back = (last..tentative).contains(&view.c);
            if !view.is_member() && holds_back && joins(view.key()) {
                view.make_member();
            }
            match view.is_member() {
                true => members.push(view.member()),
                false => limit = limit.min(view.c),
            }
        }
        members.sort_unstable_by_key(Member::number);
        // The ring first: an id that leaves it meanwhile is found in the map, or is finished.
        for id in ids.low.load(Ordering::Acquire)..tentative {
            if let Word::State(IdState::Committing { floor }) = ids.ring.get(id) {
                limit = limit.min(floor);
            }
        }
        for (_, state) in ids.stragglers.list() {
            if let IdState::Committing { floor } = state {
                limit = limit.min(floor);
            }
        }
        let before = self.purge_limit.fetch_max(limit, Ordering::AcqRel);
        TrxNo(limit.max(before))
    }

    /// The id below which nobody asks any more who has written something (TXN-6). Views hold it back until
    /// they close, and so do unfinished transactions.
    ///
    /// It moves in two steps. First the ids that are finished are noted, and how far the counter is then.
    /// Once no open view has a smaller number than that, all of them see those ids, whose numbers were drawn
    /// before; and so will views to come, which draw larger ones (the gate: a view that this walk overlooks).
    pub fn freeze_limit(&self) -> TrxId {
        let ids = &self.ids;
        if let Some(mut freezing) = self.freezing.try_lock() {
            let now = ids.next.load(Ordering::Acquire);
            ids.gate.raise_limit(now);
            let oldest = self.slots.open().map(|(_, c, _)| c).min();
            if oldest.is_none_or(|oldest| freezing.since <= oldest) {
                self.freeze_limit
                    .store(freezing.next_limit, Ordering::Release);
                // In this order: what is below `low` is finished, or has been in the map since before
                // (TXN-1).
                let low = ids.low.load(Ordering::Acquire);
                let (first_straggler, _) = ids.stragglers.bounds();
                freezing.next_limit = low.min(first_straggler);
                freezing.since = ids.next.load(Ordering::Acquire);
            }
        }
        TrxId(self.freeze_limit.load(Ordering::Acquire))
    }

    /// Where among `members`, which are in order, those begin that see what `writer` wrote, who has
    /// committed; the end, if none does. Members that have closed meanwhile may be on either side.
    pub fn first_that_sees(&self, members: &[Member], writer: TrxId) -> usize {
        // Nor do the older ones see what the newest does not.
        if members
            .last()
            .is_none_or(|last| last.number().hides(writer))
        {
            return members.len();
        }
        if let Some(IdState::Committed { no }) = self.ids.state(writer.0) {
            return members.partition_point(|member| member.number() <= no);
        }
        // Its number is forgotten: those that do not see it have it on their lists.
        let first = members.iter().position(|m| m.sees(writer) == Some(true));
        first.unwrap_or(members.len())
    }

    /// The id below which all but stragglers are finished.
    pub fn finished_below(&self) -> TrxId {
        TrxId(self.ids.low.load(Ordering::Acquire))
    }

    /// The next id or number to be drawn.
    pub fn next_id(&self) -> u64 {
        self.ids.next.load(Ordering::Acquire)
    }

    /// What a checkpoint has to carry as the id limit, asked for after it chose its LSN.
    pub fn id_limit(&self) -> u64 {
        self.id_limit.announced()
    }

    /// All unfinished transactions that have an id, the oldest first.
    pub fn unfinished(&self) -> Vec<(TrxId, IdState)> {
        let ids = &self.ids;
        let recent = ids.low.load(Ordering::Acquire)..ids.next.load(Ordering::Acquire);
        let stragglers = ids.stragglers.list().into_iter().map(|(id, _)| id);
        let mut all: Vec<_> = stragglers.chain(recent).collect();
        all.sort_unstable();
        all.dedup();
        all.into_iter()
            .filter_map(|id| Some((TrxId(id), ids.state(id)?)))
            .filter(|(_, state)| state.is_unfinished())
            .collect()
    }

    /// All open views, unordered.
    pub fn views(&self) -> Vec<OpenView> {
        self.slots.describe()
    }

    /// The numbers of all open views, unordered.
    pub fn view_numbers(&self) -> Vec<TrxNo> {
        self.slots.open().map(|(_, c, _)| TrxNo(c)).collect()
    }
}

fn pause() {
    if cfg!(loom) {
        yield_now();
    } else {
        std::thread::sleep(Duration::from_micros(50));
    }
}
