//! Read views and the slots by which they are known to purge and to upkeep.
//!
//! A view is one number `c`, the counter when it opened, and `low`, read before it, below which every id is
//! finished or a straggler. It sees what was committed with a number below `c`. Opening claims a slot, stores
//! two words and looks at the gate; closing is a store. Neither takes a lock that anybody else's view takes.
//!
//! Invariants (the protocol in prose, with the proofs, is in txn/mod.rs):
//! - **VIEW-1** A view never changes its answer about an id, `Unsettled` apart.
//! - **VIEW-2** An open view's `c` is at least every purge limit that was or will be returned while it is
//!   open, unless the view is a member of the history store, and was before that limit was returned.
//! - **VIEW-3** When a ring segment is reused or a straggler forgotten, every open view that could ask about
//!   an id of it has those that it does not see on its own list.
//!
//! No latch is held. `sees` never waits; its caller does (`TxnSys::wait_settled`), after it has released its
//! latches.

use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;

use super::ring::{IdState, Word};
use super::sys::IdTable;
use crate::base::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, fence};
use crate::base::{TrxId, TrxNo, thread_spot};

/// Whether a view sees what a transaction wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visibility {
    Visible,
    Invisible,
    /// The transaction is drawing its number: release all latches, call `TxnSys::wait_settled`, ask again.
    Unsettled,
}

/// `c` of a slot that nobody uses.
const FREE: u64 = 0;
/// `c` of a slot whose view has no number yet. It will look at the gate after it has published its number.
const OPENING: u64 = u64::MAX;

/// How many slots a view tries in one chunk before it turns to the next.
const PROBES: usize = 16;
/// Each chunk is twice as large as the one before: the largest index is never reached.
const CHUNKS: usize = 26;

/// What views that open have to respect. Written by purge and upkeep, read by every view after it published
/// its slot.
pub(super) struct Gate {
    /// A view must have `c >= limit`: purge, who asked for the freeze limit, or upkeep when it forgot a
    /// straggler, counted on it.
    limit: AtomicU64,
    /// A view must have `low >= retired`: the ring no longer holds ids below it.
    retired: AtomicU64,
}

impl Gate {
    pub fn new() -> Gate {
        Gate {
            limit: AtomicU64::new(0),
            retired: AtomicU64::new(0),
        }
    }

    /// After this call the caller sees the slot of every view that does not itself see the new limit. The
    /// counter has reached `limit` before, so a view that tries again succeeds.
    pub fn raise_limit(&self, limit: u64) {
        self.limit.fetch_max(limit, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// As `raise_limit`; `low` has reached `end` before.
    pub fn raise_retired(&self, end: u64) {
        self.retired.fetch_max(end, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// The other half of the two calls above: false if a view with these numbers could have been overlooked.
    fn lets_pass(&self, low: u64, c: u64) -> bool {
        fence(Ordering::SeqCst);
        self.limit.load(Ordering::Acquire) <= c && self.retired.load(Ordering::Acquire) <= low
    }
}

/// One view's place. A slot is claimed by a compare-and-swap of `c` from `FREE`; until it is `FREE` again
/// only the view stores in `c` and `low`.
pub(super) struct Slot {
    c: AtomicU64,
    /// Stored before `c` and loaded after it, so it belongs to the `c` that was read or to a later view of
    /// the slot.
    low: AtomicU64,
    /// `doubts` is not empty. Stored with Release under the mutex of `doubts`.
    listed: AtomicBool,
    /// `(c, id)` sorted: a view with this `c` does not see `id`. An entry is true of any view with the same
    /// `c`, so one that was handed over too late, to the slot's next view, does no harm.
    doubts: Mutex<Vec<(u64, u64)>>,
    /// How many views have had the slot. Stored with Release before the view publishes its first `c`: who
    /// reads it before the `c` knows that it is of this view or of a later one.
    uses: AtomicU64,
    /// `uses` of the view that is a member of the history store; 0 if none was. Stored by purge, with
    /// Release, before it removes anything that the view needs; a view loads it with Acquire once it has met
    /// something of which that was removed, under the latch with which it was.
    member: AtomicU64,
    /// The transaction whose view it is, if it has written; 0 otherwise. Relaxed, and no part of the
    /// protocol: it is for people, who may read that of the slot's last view.
    own: std::sync::atomic::AtomicU64,
    /// A view asks it without going through a reference count that all views share.
    ids: Arc<IdTable>,
}

impl Slot {
    fn new(ids: Arc<IdTable>) -> Arc<CachePadded<Slot>> {
        Arc::new(CachePadded::new(Slot {
            c: AtomicU64::new(FREE),
            low: AtomicU64::new(0),
            listed: AtomicBool::new(false),
            doubts: Mutex::new(Vec::new()),
            uses: AtomicU64::new(0),
            member: AtomicU64::new(0),
            own: std::sync::atomic::AtomicU64::new(0),
            ids,
        }))
    }

    fn claim(&self) -> bool {
        // Acquire: pairs with the Release of the slot's last `close`.
        self.c.load(Ordering::Relaxed) == FREE
            && self
                .c
                .compare_exchange(FREE, OPENING, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// `(c, low)` of the slot's open view.
    fn open_view(&self) -> Option<(u64, u64)> {
        let c = self.c.load(Ordering::Acquire);
        (c != FREE && c != OPENING).then(|| (c, self.low.load(Ordering::Acquire)))
    }

    /// `uses`, and the `c` of the open view with it, or of a later one. That will look at the gate after this
    /// walk has raised it: its `c` will be no less than what the walk returns.
    fn whose_view(&self) -> Option<(u64, u64)> {
        let uses = self.uses.load(Ordering::Acquire);
        let (c, _) = self.open_view()?;
        Some((c, uses))
    }

    fn is_member(&self, uses: u64) -> bool {
        self.member.load(Ordering::Acquire) == uses
    }

    fn make_member(&self, uses: u64) {
        self.member.store(uses, Ordering::Release);
    }

    /// Gives the view with number `c` ids that it does not see (VIEW-3).
    pub fn hand_over(&self, c: u64, ids: impl Iterator<Item = u64>) {
        let mut doubts = self.doubts.lock();
        doubts.extend(ids.map(|id| (c, id)));
        doubts.sort_unstable();
        doubts.dedup();
        self.listed.store(!doubts.is_empty(), Ordering::Release);
    }

    /// Whether `id` is on the list of a view with number `c`.
    fn doubts(&self, c: u64, id: u64) -> bool {
        self.listed.load(Ordering::Acquire) && self.doubts.lock().binary_search(&(c, id)).is_ok()
    }

    /// Whether the open view with number `c`, which is larger than `id`, sees what `id` wrote. The ring, then
    /// the map, then the list: an id's word says when the map counts (STRAG-1), and an id leaves the map only
    /// after the list has it (STRAG-3).
    fn sees_doubtful(&self, c: u64, id: u64) -> Visibility {
        let ids = &self.ids;
        if id >= ids.first {
            match ids.ring.get(id) {
                Word::State(state) => return judge(state, c),
                // Nothing was written by a number, nor by an id before it is marked: a damaged page says so.
                // The reader will find that the version behind it does not match.
                Word::Number | Word::Unmarked => return Visibility::Invisible,
                Word::Moved => {}
            }
        }
        match ids.stragglers.get(id) {
            Some(state) => judge(state, c),
            None if self.doubts(c, id) => Visibility::Invisible,
            None => Visibility::Visible,
        }
    }

    fn set_own(&self, own: u64) {
        self.own.store(own, Ordering::Relaxed);
    }

    /// The open view, described.
    fn describe(&self, c: u64, low: u64) -> OpenView {
        let mut doubts = Vec::new();
        if self.listed.load(Ordering::Acquire) {
            let all = self.doubts.lock();
            doubts.extend(all.iter().filter(|doubt| doubt.0 == c).map(|doubt| doubt.1));
        }
        let stragglers = self.ids.stragglers.list().into_iter().map(|(id, _)| id);
        let own = self.own.load(Ordering::Relaxed);
        OpenView {
            own: (own != 0).then_some(TrxId(own)),
            number: TrxNo(c),
            sees_below: TrxId(doubts.into_iter().chain(stragglers).fold(low, u64::min)),
        }
    }

    fn forget_doubts(&self) {
        if self.listed.load(Ordering::Relaxed) {
            let mut doubts = self.doubts.lock();
            *doubts = Vec::new();
            self.listed.store(false, Ordering::Release);
        }
    }
}

/// Tells a view from those that have its place before and after it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ViewKey {
    slot: usize,
    uses: u64,
}

/// What purge finds in a slot.
pub(super) struct Held<'a> {
    slot: &'a Arc<CachePadded<Slot>>,
    pub c: u64,
    uses: u64,
}

impl Held<'_> {
    pub fn key(&self) -> ViewKey {
        ViewKey {
            slot: Arc::as_ptr(self.slot).addr(),
            uses: self.uses,
        }
    }

    pub fn is_member(&self) -> bool {
        self.slot.is_member(self.uses)
    }

    pub fn make_member(&self) {
        self.slot.make_member(self.uses);
    }

    /// It is a member.
    pub fn member(&self) -> Member {
        Member {
            slot: self.slot.clone(),
            c: self.c,
            uses: self.uses,
        }
    }
}

fn judge(state: IdState, c: u64) -> Visibility {
    match state {
        IdState::Committed { no } if no.0 < c => Visibility::Visible,
        IdState::Committing { floor } if floor < c => Visibility::Unsettled,
        _ => Visibility::Invisible,
    }
}

/// An open view that is a member of the history store, as purge knows it: it can ask in the view's stead.
#[derive(Clone)]
pub struct Member {
    slot: Arc<CachePadded<Slot>>,
    c: u64,
    uses: u64,
}

impl Member {
    /// As `ReadView::number`.
    pub fn number(&self) -> TrxNo {
        TrxNo(self.c)
    }

    /// The view is still open.
    pub fn is_open(&self) -> bool {
        self.slot.whose_view() == Some((self.c, self.uses))
    }

    /// Whether the view sees what `id` wrote, which has committed; `None` if the view has been closed. Who
    /// closes a view says so before it forgets what the view doubts.
    pub fn sees(&self, id: TrxId) -> Option<bool> {
        let answer = id.0 < self.c && self.slot.sees_doubtful(self.c, id.0) == Visibility::Visible;
        self.is_open().then_some(answer)
    }
}

/// An open view, as the list of views shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenView {
    /// Its transaction, if that has written.
    pub own: Option<TrxId>,
    /// It sees no id from here on, but its own, and no commit with a number from here on.
    pub number: TrxNo,
    /// It sees every id below.
    pub sees_below: TrxId,
}

type Chunk = Box<[Arc<CachePadded<Slot>>]>;

/// All slots, in chunks of doubling size that are never freed, so that nobody needs a lock to walk over them.
pub(super) struct Slots {
    chunks: [OnceLock<Chunk>; CHUNKS],
    /// Chunks in use. Stored with Release after the chunk is there.
    count: AtomicUsize,
    first_len: usize,
    ids: Arc<IdTable>,
}

impl Slots {
    pub fn new(ids: Arc<IdTable>, first_len: usize) -> Slots {
        let slots = Slots {
            chunks: [const { OnceLock::new() }; CHUNKS],
            count: AtomicUsize::new(0),
            first_len,
            ids,
        };
        slots.grow(0);
        slots
    }

    fn grow(&self, have: usize) {
        let chunk = self.chunks.get(have).expect("more read views than memory");
        chunk.get_or_init(|| {
            (0..self.first_len << have)
                .map(|_| Slot::new(self.ids.clone()))
                .collect()
        });
        self.count.fetch_max(have + 1, Ordering::AcqRel);
    }

    fn chunks(&self) -> impl DoubleEndedIterator<Item = &Chunk> {
        let count = self.count.load(Ordering::Acquire);
        self.chunks[..count].iter().filter_map(|chunk| chunk.get())
    }

    /// The newest chunk first: it is larger than all others together, so hardly ever full.
    fn claim(&self) -> Arc<CachePadded<Slot>> {
        let spot = thread_spot();
        loop {
            let have = self.count.load(Ordering::Acquire);
            let near = self
                .chunks()
                .rev()
                .find_map(|chunk| claim_from(chunk, spot, PROBES.min(chunk.len())));
            let newest = || self.chunks().next_back();
            let slot = near.or_else(|| newest().and_then(|c| claim_from(c, spot, c.len())));
            if let Some(slot) = slot {
                return slot;
            }
            self.grow(have);
        }
    }

    /// The open views, described.
    pub fn describe(&self) -> Vec<OpenView> {
        let open = self.open();
        open.map(|(slot, c, low)| slot.describe(c, low)).collect()
    }

    /// Open views, for purge. A view that is missing sees what the caller raised in the gate before.
    pub fn held(&self) -> impl Iterator<Item = Held<'_>> {
        self.chunks().flat_map(|chunk| {
            chunk.iter().filter_map(|slot| {
                let (c, uses) = slot.whose_view()?;
                Some(Held { slot, c, uses })
            })
        })
    }

    /// Open views with their `(c, low)`. A view that is missing sees what the caller raised in the gate
    /// before.
    pub fn open(&self) -> impl Iterator<Item = (&Slot, u64, u64)> {
        self.chunks().flat_map(|chunk| {
            chunk
                .iter()
                .filter_map(|slot| slot.open_view().map(|(c, low)| (&***slot, c, low)))
        })
    }
}

fn claim_from(chunk: &Chunk, spot: usize, probes: usize) -> Option<Arc<CachePadded<Slot>>> {
    (spot..spot + probes)
        .map(|at| &chunk[at % chunk.len()])
        .find(|slot| slot.claim())
        .cloned()
}

/// A slot that is claimed, for one view after the other. It is free again when this is dropped. Without a
/// view it looks as if one was opening, and holds nothing back.
pub struct ViewPlace(Arc<CachePadded<Slot>>);

impl ViewPlace {
    pub(super) fn claim(slots: &Slots) -> ViewPlace {
        ViewPlace(slots.claim())
    }

    /// Opens a view that sees what was committed up to now, and the changes of `own`.
    pub fn open(self, own: Option<TrxId>) -> ReadView {
        let slot = &self.0;
        // Only the holder of the place stores it.
        let uses = slot.uses.load(Ordering::Relaxed) + 1;
        slot.uses.store(uses, Ordering::Release);
        let mut view = ReadView {
            place: self,
            uses,
            c: 0,
            low: 0,
            first_straggler: 0,
            last_straggler: 0,
            own: own.map_or(0, |id| id.0),
        };
        view.place.0.set_own(view.own);
        view.publish();
        view
    }
}

impl Drop for ViewPlace {
    fn drop(&mut self) {
        // As `ReadView::close` does; the slot is not free yet.
        self.0.c.store(OPENING, Ordering::Release);
        self.0.forget_doubts();
        // Release: what the last view read happens before a thread that finds the slot free reuses or purges
        // it.
        self.0.c.store(FREE, Ordering::Release);
    }
}

/// A consistent read view. It closes when it is dropped.
pub struct ReadView {
    place: ViewPlace,
    /// `Slot::uses` since it has its place.
    uses: u64,
    c: u64,
    low: u64,
    /// Bounds of the straggler map, read between `low` and `c`: an id below `low` and outside of them is
    /// finished.
    first_straggler: u64,
    last_straggler: u64,
    /// The transaction whose own changes the view sees; 0 for none.
    own: u64,
}

impl ReadView {
    /// Draws a number and publishes it, again until the gate lets it pass. Each retry means that purge or
    /// upkeep went on meanwhile, and starts from numbers that pass what it saw.
    fn publish(&mut self) {
        let ids = &self.place.0.ids;
        loop {
            // The order of these loads is the point: see "What a view may rely on" in txn/mod.rs.
            self.low = ids.low.load(Ordering::Acquire);
            (self.first_straggler, self.last_straggler) = ids.stragglers.bounds();
            self.c = ids.next.load(Ordering::Acquire);
            self.place.0.low.store(self.low, Ordering::Release);
            self.place.0.c.store(self.c, Ordering::Release);
            if ids.gate.lets_pass(self.low, self.c) {
                return;
            }
        }
    }

    /// Closes the view and keeps its place, for the next one.
    pub fn close(self) -> ViewPlace {
        // Before the list goes: `Member::sees`. Release: as when the slot becomes free.
        self.place.0.c.store(OPENING, Ordering::Release);
        self.place.0.forget_doubts();
        self.place
    }

    /// From now on the view sees what this transaction writes: it drew its id after the view was opened.
    pub fn set_own(&mut self, own: TrxId) {
        self.own = own.0;
        self.place.0.set_own(own.0);
    }

    /// Purge goes on without this view: what it needs may be in the history store.
    pub fn is_member(&self) -> bool {
        self.place.0.is_member(self.uses)
    }

    /// The view sees every commit with a number below this one, and no other but its own.
    pub fn number(&self) -> TrxNo {
        TrxNo(self.c)
    }

    /// Whether the view sees what `id` wrote. Never waits.
    #[inline]
    pub fn sees(&self, id: TrxId) -> Visibility {
        let id = id.0;
        let settled = id < self.low && (id < self.first_straggler || id > self.last_straggler);
        if settled || id == self.own {
            Visibility::Visible
        } else if id >= self.c {
            Visibility::Invisible
        } else {
            self.place.0.sees_doubtful(self.c, id)
        }
    }
}

impl std::fmt::Debug for ReadView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "ReadView(number {}, all finished below {}, own {})",
            self.c, self.low, self.own
        )
    }
}
