//! Mini-transactions: the only way to change a page of a redo-logged tablespace.
//!
//! A mini-transaction latches pages, changes them through [`PageOp`]s, each of which is applied and logged in
//! one step, and commits: all its changes reach the log as one frame, or none does.
//!
//! # Commit
//!
//! 1. Take `[start, end)` of the redo stream; 2. wait for room in the log buffer (on the log writer only,
//!    which takes no page latch); 3. copy the frame there: [`RedoLog::append`].
//! 4. Stamp the changed pages with `end`; pages that were clean register `first_change = start`.
//! 5. Mark `[start, end)` complete: [`RedoLog::complete`].
//! 6. Give the latches back.
//!
//! # Invariants
//!
//! - **MTR-1** Log capacity is reserved before the first latch ([`Mtr::begin`]); nobody waits for the log's
//!   capacity with a latch held. So a commit can't fail.
//! - **MTR-2** Registration (4) comes before completion (5). A checkpoint that reads `complete` first
//!   therefore finds the first change of everything below it (WAL-2).
//! - **MTR-3** Completion (5) comes before the latches (6). A thread that sees a change and logs one that
//!   depends on it gets a higher LSN, and a page copied for writing holds complete changes only.
//! - **MTR-4** A page is latched at most once by a mini-transaction: references that lead to one page twice
//!   are damage. The order of latches is the caller's duty (docs/locking.md).
//! - **MTR-5** A mini-transaction that is dropped after it changed something, by a panic or a bug, poisons
//!   the log: those pages are never written, and reopening the database restores them.
//!
//! - **MTR-6** A mini-transaction changes pages of redo-logged tablespaces or of others, never both, and
//!   reserves redo only for the former. So it is in the log as a whole or not at all.
//!
//! # Unlogged tablespaces
//!
//! Their pages (`SpaceId::is_logged`: the temporary tablespace) are latched and changed in the same way, by
//! the same operations, but nothing is reserved and nothing is written to the log. The page LSN stays 0, so
//! WAL-1 holds whenever they are written. They are dirty only as far as replacement is concerned: they are
//! written before their frame is reused, and no checkpoint waits for them. Replay refuses them (RPL-4): after
//! a crash the tablespace is made anew.
//!
//! The frame is built in a buffer that the thread keeps for its next mini-transaction, so that a small one
//! allocates nothing.

pub mod record;
pub mod replay;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

pub use record::{FILE_RECORD_BYTES, RawRecord};

use crate::base::{Error, Lsn, PageId, Result, Sabotage, SpaceId};
use crate::buffer::{BufferPool, ExclusivePage, FrameHint, Pin, SharedPage};
use crate::page::{self, InnerImage, PageOp, PageType, page_type};
use crate::redo::{HeldCapacity, RedoLog, Reservation};

/// The most redo that a mini-transaction can reserve, in bytes.
pub const MAX_LOG_BYTES: u32 = crate::redo::MAX_FRAME_BYTES - 64;

/// Buffers above this size are not kept.
const KEPT_SCRATCH_BYTES: usize = 64 << 10;

/// What mini-transactions work on.
pub struct MtrEnv {
    pub pool: Arc<BufferPool>,
    pub log: Arc<RedoLog>,
}

impl MtrEnv {
    pub fn new(pool: Arc<BufferPool>, log: Arc<RedoLog>) -> MtrEnv {
        MtrEnv { pool, log }
    }
}

thread_local! {
    /// The buffer of the thread's last mini-transaction, for its next one: empty, but for its memory.
    static SPARE_BODY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A page that a mini-transaction has latched. Valid for that mini-transaction until it is released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageHandle(u16);

enum MemoSlot<'a> {
    Released,
    Shared(SharedPage<'a>),
    Exclusive {
        page: ExclusivePage<'a>,
        state: PageState,
    },
}

/// What a mini-transaction has changed (MTR-6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Changes {
    Nothing,
    Logged,
    Unlogged,
}

/// What a mini-transaction has done with a page that it has latched exclusively.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PageState {
    Unchanged,
    /// Taken for new: its content does not matter, and the first operation starts from zeros.
    Fresh,
    Changed,
    /// Changed, then taken for new again.
    ChangedFresh,
}

pub struct Mtr<'a> {
    env: &'a MtrEnv,
    /// `None` if the mini-transaction reserved no log: it may read, and change unlogged tablespaces.
    reservation: Option<Reservation<'a>>,
    max_log_bytes: u32,
    pages: SmallVec<[MemoSlot<'a>; 4]>,
    /// The frame's body so far.
    body: Vec<u8>,
    /// The page that the body's last operation is on.
    current: Option<PageId>,
    changes: Changes,
    /// What a changed inner page's image will be.
    image: Option<Box<(PageHandle, InnerImage)>>,
}

impl<'a> Mtr<'a> {
    /// Begins a mini-transaction whose redo takes at most `max_log_bytes`; 0 for one that only reads or only
    /// changes unlogged tablespaces. May wait for redo capacity: hold no latch.
    pub fn begin(env: &'a MtrEnv, max_log_bytes: u32) -> Result<Mtr<'a>> {
        let reservation = match max_log_bytes {
            0 => None,
            n => Some(env.log.reserve(n)?),
        };
        Ok(Mtr::new(env, reservation, max_log_bytes))
    }

    /// Begins one whose redo takes at most what `held` has: it neither waits nor fails. The capacity is used
    /// up.
    pub fn begin_held(env: &'a MtrEnv, held: &HeldCapacity) -> Mtr<'a> {
        let max_log_bytes = held.max_bytes();
        Mtr::new(env, Some(held.reservation(&env.log)), max_log_bytes)
    }

    fn new(env: &'a MtrEnv, reservation: Option<Reservation<'a>>, max_log_bytes: u32) -> Mtr<'a> {
        let body = match &reservation {
            None => Vec::new(),
            // A thread that is ending has none any more.
            Some(_) => SPARE_BODY.try_with(Cell::take).unwrap_or_default(),
        };
        Mtr {
            env,
            reservation,
            max_log_bytes,
            pages: SmallVec::new(),
            body,
            current: None,
            changes: Changes::Nothing,
            image: None,
        }
    }

    /// Begins a mini-transaction that changes pages of `space` only: like [`Mtr::begin`] if the tablespace is
    /// redo-logged; otherwise nothing is reserved, and nothing waited for. Fails if the database is poisoned.
    pub fn begin_in(env: &'a MtrEnv, space: SpaceId, max_log_bytes: u32) -> Result<Mtr<'a>> {
        if space.is_logged() {
            return Mtr::begin(env, max_log_bytes);
        }
        env.log.check()?;
        Mtr::begin(env, 0)
    }

    /// Gives the reserved redo capacity back, so that another mini-transaction can go first: two reservations
    /// of one thread could wait for each other's for ever. Nothing is latched or changed. [`Mtr::resume`] has
    /// to follow.
    pub fn pause(&mut self) {
        assert!(self.is_idle(), "pause in the middle of something");
        self.reservation = None;
    }

    /// Nothing is latched and nothing was changed.
    pub fn is_idle(&self) -> bool {
        !self.has_changes() && self.pages.iter().all(|s| matches!(s, MemoSlot::Released))
    }

    /// Reserves again what [`Mtr::pause`] gave back. May wait for redo capacity.
    pub fn resume(&mut self) -> Result<()> {
        if self.max_log_bytes > 0 {
            self.reservation = Some(self.env.log.reserve(self.max_log_bytes)?);
        }
        Ok(())
    }

    pub fn env(&self) -> &'a MtrEnv {
        self.env
    }

    /// MTR-4. Waiting for one's own latch would never end. What leads to the same page twice is a damaged
    /// one.
    fn check_not_latched(&self, id: PageId) -> Result<()> {
        match self.find(id) {
            None => Ok(()),
            Some(_) => {
                let expected = "a page that one change meets once";
                Err(Error::corrupt(id, expected, "two references to it"))
            }
        }
    }

    /// Latches the page shared.
    pub fn shared(&mut self, id: PageId) -> Result<PageHandle> {
        self.check_not_latched(id)?;
        let page = self.env.pool.shared(id)?;
        Ok(self.push(MemoSlot::Shared(page)))
    }

    /// Latches the page exclusively.
    pub fn exclusive(&mut self, id: PageId) -> Result<PageHandle> {
        self.check_not_latched(id)?;
        let page = self.env.pool.exclusive(id)?;
        #[cfg(feature = "sabotage")]
        let page = match self.env.log.is_sabotaged(Sabotage::LatchForgotten) {
            true => page.forget_latch(),
            false => page,
        };
        Ok(self.adopt_exclusive(page))
    }

    /// Like [`Mtr::exclusive`]; `hint` says where the page probably is.
    #[inline]
    pub fn exclusive_in(&mut self, id: PageId, hint: FrameHint) -> Result<PageHandle> {
        self.check_not_latched(id)?;
        let page = self.env.pool.exclusive_in(id, hint)?;
        Ok(self.adopt_exclusive(page))
    }

    /// Latches a page whose content does not matter: it is not read from disk, and its first operation, a
    /// format, starts from zeros. A page that this mini-transaction has latched exclusively already is taken
    /// over.
    pub fn exclusive_new(&mut self, id: PageId) -> Result<PageHandle> {
        if let Some(h) = self.find(id) {
            match &mut self.pages[h.0 as usize] {
                MemoSlot::Exclusive { state, .. } => {
                    *state = match state {
                        PageState::Unchanged | PageState::Fresh => PageState::Fresh,
                        PageState::Changed | PageState::ChangedFresh => PageState::ChangedFresh,
                    };
                }
                _ => panic!("{id} is latched shared and wanted for new"),
            }
            return Ok(h);
        }
        let page = self.env.pool.exclusive_new(id)?;
        let state = PageState::Fresh;
        Ok(self.push(MemoSlot::Exclusive { page, state }))
    }

    /// Takes over a page that the caller has latched outside of this mini-transaction.
    pub fn adopt_exclusive(&mut self, page: ExclusivePage<'a>) -> PageHandle {
        let state = PageState::Unchanged;
        self.push(MemoSlot::Exclusive { page, state })
    }

    fn push(&mut self, slot: MemoSlot<'a>) -> PageHandle {
        let reuse = self
            .pages
            .iter()
            .position(|s| matches!(s, MemoSlot::Released));
        let at = reuse.unwrap_or(self.pages.len());
        match reuse {
            Some(at) => self.pages[at] = slot,
            None => self.pages.push(slot),
        }
        PageHandle(u16::try_from(at).expect("fewer than 65536 pages are latched at once"))
    }

    /// The page, if this mini-transaction has latched it.
    pub fn find(&self, id: PageId) -> Option<PageHandle> {
        let same = |s: &MemoSlot<'_>| match s {
            MemoSlot::Released => false,
            MemoSlot::Shared(p) => p.id() == id,
            MemoSlot::Exclusive { page, .. } => page.id() == id,
        };
        self.pages
            .iter()
            .position(same)
            .map(|i| PageHandle(i as u16))
    }

    pub fn page_id(&self, h: PageHandle) -> PageId {
        match &self.pages[h.0 as usize] {
            MemoSlot::Released => panic!("{h:?} was released"),
            MemoSlot::Shared(p) => p.id(),
            MemoSlot::Exclusive { page, .. } => page.id(),
        }
    }

    /// Keeps a page that is latched exclusively in the pool beyond the latch.
    pub fn pin(&self, h: PageHandle) -> Pin {
        match &self.pages[h.0 as usize] {
            MemoSlot::Exclusive { page, .. } => self.env.pool.pin_latched(page),
            _ => panic!("{h:?} is pinned without an exclusive latch"),
        }
    }

    #[inline]
    pub fn bytes(&self, h: PageHandle) -> &[u8] {
        match &self.pages[h.0 as usize] {
            MemoSlot::Released => panic!("{h:?} was released"),
            MemoSlot::Shared(p) => p,
            MemoSlot::Exclusive { page, .. } => page,
        }
    }

    /// Has the processor fetch a part of a page that is latched exclusively.
    #[inline]
    pub fn prefetch(&self, h: PageHandle, part: Range<usize>) {
        if let MemoSlot::Exclusive { page, .. } = &self.pages[h.0 as usize] {
            page.prefetch(part);
        }
    }

    /// Where a page that is latched exclusively is, and its range stamp.
    #[inline]
    pub fn hint(&self, h: PageHandle) -> FrameHint {
        match &self.pages[h.0 as usize] {
            MemoSlot::Exclusive { page, .. } => page.hint(),
            _ => FrameHint::NONE,
        }
    }

    /// Changes a page that is latched exclusively, and logs the change. An operation that does not fit the
    /// page is a bug and panics (MTR-5); the caller has looked at the page and made sure of the room.
    pub fn op(&mut self, h: PageHandle, op: PageOp<'_>) {
        let MemoSlot::Exclusive { page, state } = &mut self.pages[h.0 as usize] else {
            panic!("{h:?} is changed without an exclusive latch");
        };
        let id = page.id();
        let before = std::mem::replace(state, PageState::Changed);
        let fresh = matches!(before, PageState::Fresh | PageState::ChangedFresh);
        if before != PageState::Changed {
            self.changes = class_of(id, self.changes, self.max_log_bytes);
            let is_zero = before == PageState::Fresh && page.is_unread();
            if fresh && !is_zero {
                page.bytes_mut().fill(0);
            }
        }
        let bytes = match op.keeps_range() {
            true => page.records_mut(),
            false => page.bytes_mut(),
        };
        if let Err(e) = op.apply(bytes, id) {
            panic!("page operation: {e}");
        }
        if self.changes == Changes::Unlogged || forgets_to_log(self.env, bytes, &op) {
            return;
        }
        if fresh || self.current != Some(id) {
            record::put_page(&mut self.body, id, fresh);
            self.current = Some(id);
        }
        op.encode(&mut self.body);
        self.check_reserved();
    }

    /// What `f` makes of an inner page's image before it is changed; `None` if it has none.
    pub fn map_image(
        &self,
        h: PageHandle,
        f: impl FnOnce(&InnerImage) -> InnerImage,
    ) -> Option<InnerImage> {
        let MemoSlot::Exclusive { page, .. } = &self.pages[h.0 as usize] else {
            panic!("{h:?} is about to be changed without an exclusive latch");
        };
        page.image(&crossbeam_epoch::pin()).map(f)
    }

    /// Gives a page that was changed this image at the end, so that descents need not decode it anew.
    pub fn set_image(&mut self, h: PageHandle, image: InnerImage) {
        self.image = Some(Box::new((h, image)));
    }

    /// Logs something that changes no page.
    pub fn log_raw(&mut self, record: &RawRecord<'_>) {
        assert_ne!(self.changes, Changes::Unlogged, "MTR-6: {record:?}");
        self.changes = Changes::Logged;
        record::put_raw(&mut self.body, record);
        self.check_reserved();
    }

    fn check_reserved(&self) {
        let (len, max) = (self.body.len(), self.max_log_bytes as usize);
        assert!(
            len <= max,
            "a mini-transaction of {len} bytes of redo reserved {max}"
        );
    }

    pub fn has_changes(&self) -> bool {
        self.changes != Changes::Nothing
    }

    /// Bytes of redo that are still reserved.
    pub fn log_room(&self) -> usize {
        self.max_log_bytes as usize - self.body.len()
    }

    /// Gives the latch of an unchanged page back before the end.
    pub fn release(&mut self, h: PageHandle) {
        let slot = &mut self.pages[h.0 as usize];
        if let MemoSlot::Exclusive { state, page } = slot {
            let changed = matches!(state, PageState::Changed | PageState::ChangedFresh);
            assert!(!changed, "{} is released after a change", page.id());
        }
        *slot = MemoSlot::Released;
    }

    /// Makes the changes part of the log and gives the latches back. Returns the frame's end, which has to be
    /// durable before anybody is told; `Lsn(0)` if nothing was logged.
    pub fn commit(self) -> Lsn {
        self.commit_with(|_, _| {})
    }

    /// Like [`Mtr::commit`]; `hook(start, end)` runs when the frame has its place in the log and before it is
    /// complete, all latches held: whatever depends on what the hook publishes gets a higher LSN. The hook
    /// must not wait, log or fail. It sees `Lsn(0)` twice if nothing was logged.
    pub fn commit_with(mut self, hook: impl FnOnce(Lsn, Lsn)) -> Lsn {
        if self.body.is_empty() {
            hook(Lsn(0), Lsn(0));
            self.register(Lsn(0), Lsn(0));
            self.finish();
            return Lsn(0);
        }
        let reservation = self
            .reservation
            .as_ref()
            .expect("logged without a reservation");
        let ticket = self.env.log.append(reservation, &[&self.body]);
        let (start, end) = (ticket.start, ticket.end);
        hook(start, end);
        self.register(start, end);
        self.env.log.complete(ticket);
        self.finish();
        end
    }

    /// Step 4 of the commit.
    fn register(&mut self, start: Lsn, end: Lsn) {
        let mut changed = 0;
        for slot in &mut self.pages {
            if let MemoSlot::Exclusive { page, state } = slot
                && matches!(state, PageState::Changed | PageState::ChangedFresh)
            {
                changed += 1;
                if page.id().space.is_logged() {
                    page::set_page_lsn(page.records_mut(), end);
                    page.changed(start);
                } else {
                    page.changed_unlogged();
                }
            }
        }
        self.env.pool.count_changes(changed);
    }

    /// Step 6 of the commit.
    fn finish(&mut self) {
        if let Some((h, image)) = self.image.take().map(|boxed| *boxed)
            && let MemoSlot::Exclusive { page, .. } = &mut self.pages[h.0 as usize]
        {
            page.publish_image(image);
        }
        self.changes = Changes::Nothing;
        self.pages.clear();
    }
}

/// MTR-6: what a mini-transaction has changed once it changes `id`, too.
fn class_of(id: PageId, changes: Changes, max_log_bytes: u32) -> Changes {
    let class = match id.space.is_logged() {
        true => Changes::Logged,
        false => Changes::Unlogged,
    };
    assert!(
        changes == class || changes == Changes::Nothing,
        "MTR-6: a mini-transaction with {changes:?} changes changes {id}, too"
    );
    assert!(
        class == Changes::Logged || max_log_bytes == 0,
        "MTR-6: redo was reserved for a change of {id}"
    );
    class
}

/// Whether the database is to do this wrong.
fn forgets_to_log(env: &MtrEnv, page: &[u8], op: &PageOp<'_>) -> bool {
    let is_allocation = || page_type(page) == Some(PageType::Alloc);
    let is_resized =
        || matches!(op, PageOp::UpdateRow { cut, bytes, .. } if bytes.len() != usize::from(*cut));
    let log = &env.log;
    log.is_sabotaged(Sabotage::RedoRecordSkipped) && is_resized()
        || log.is_sabotaged(Sabotage::AllocationNotLogged) && is_allocation()
}

impl Drop for Mtr<'_> {
    fn drop(&mut self) {
        if self.has_changes() {
            self.env
                .log
                .poison("a mini-transaction was abandoned halfway");
        }
        self.pages.clear();
        if self.reservation.is_some() && self.body.capacity() <= KEPT_SCRATCH_BYTES {
            let mut body = std::mem::take(&mut self.body);
            body.clear();
            let _ = SPARE_BODY.try_with(|spare| spare.set(body));
        }
    }
}
