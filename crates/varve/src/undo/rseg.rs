//! Rollback segments: slots for the undo logs of running transactions, the history queue of committed ones, and
//! a chain of free pages.
//!
//! A rollback segment is one header page in an undo tablespace:
//!
//! - **slots**: the first page of each undo log that recovery must look at (active or prepared). A committed
//!   update undo log has left its slot: the history queue holds it. A page in a slot whose header says *committed* is
//!   **cached**: nobody's, and the next log begins on it by writing that page alone. Insert logs of one page stay in
//!   their slots that way, purge puts others back.
//! - **history queue**: pages of (TrxNo, first page of the log) in commit order. `history_head` + `position` is the
//!   oldest entry that is not purged yet, `history_tail` the page that the next commit appends to. The tail may
//!   have successors: room that was made before it was needed.
//! - **free chain**: pages of finished logs, linked through the slotted page's `next` field. A whole log is
//!   given back by linking its last page to the old head: one page changed, however long the log.
//!
//! Invariants:
//! - **RSEG-1** The history queue is in TrxNo order: the number is drawn while the header is latched exclusively.
//! - **RSEG-2** A commit never allocates: `history_room` counts queue entries that no running update undo log has
//!   reserved, and each such log reserves one when it is created.
//! - **RSEG-3** Every page of a log is reachable from exactly one of: a slot, a queue entry, the free chain.
//! - **RSEG-4** A slot is in exactly one of: the free slots, the cached pages, the logs of running transactions.
//!
//! Latch order within: header, history pages, undo header, undo pages, allocation pages. `state` is held for
//! moments only and never while waiting for a latch.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::base::{Error, NO_PAGE, PageId, PageNo, Result, SpaceId, TrxNo};
use crate::buffer::Pin;
use crate::mtr::{Mtr, PageH};
use crate::page::{PageOp, PageType, SlottedRef, page_type};

use super::UndoEnv;
use super::log::{LogHeader, format_cached};

const ID: usize = 48;
const SLOT_COUNT: usize = 52;
const HISTORY_HEAD: usize = 56;
const HISTORY_POSITION: usize = 60;
const HISTORY_TAIL: usize = 64;
const FREE_HEAD: usize = 68;
const FREE_LEN: usize = 72;
const SLOTS: usize = 80;

const ENTRY_COUNT: usize = 48;
/// Where a page's successor stands: the same offset in slotted and in history pages.
pub(super) const NEXT: usize = 68;
const ENTRIES: usize = 80;
const ENTRY_SIZE: usize = 16;

/// The most undo logs that one rollback segment can hold at a time, as in InnoDB (less with 4 KiB pages).
const MAX_SLOTS: usize = 1024;
/// Free pages kept for reuse in a rollback segment; more go back to the tablespace.
pub const FREE_PAGES_KEPT: u32 = 64;
/// Cached pages that stay when nobody writes for a while; more go back to the tablespace. Under load there are as many as
/// transactions end between two rounds of purge.
pub const CACHED_PAGES_KEPT: usize = 48;
/// Pages that go back to the tablespace in one mini-transaction.
const PAGES_PER_MTR: usize = 16;
/// Logs that purge gives back in one mini-transaction: their redo stays below that of three pages.
const LOGS_PER_MTR: usize = 32;
/// Flag of a queue entry: `HistoryEntry::only_space`.
const ENTRY_ONLY_SPACE: u32 = 1;
/// `oldest` of an empty history queue.
const EMPTY: u64 = u64::MAX;

pub(super) fn u32_at(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(page[at..at + 4].try_into().expect("4 bytes"))
}

pub(super) fn u64_at(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"))
}

fn put_u32(mtr: &mut Mtr<'_>, h: PageH, at: usize, v: u32) {
    mtr.op(
        h,
        PageOp::Write {
            off: at as u16,
            bytes: &v.to_le_bytes(),
        },
    );
}

/// Links a page to its successor; slotted pages have an operation of their own for it.
pub(super) fn set_next(mtr: &mut Mtr<'_>, h: PageH, next: PageNo) {
    match page_type(mtr.bytes(h)) {
        Some(t) if t.is_slotted() => mtr.op(h, PageOp::SetNext { next }),
        _ => put_u32(mtr, h, NEXT, next.0),
    }
}

/// The oldest entry of a history queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryEntry {
    pub no: TrxNo,
    pub first: PageNo,
    /// The log is one page, and no record of it concerns purge. `false` if that is not known.
    pub only_space: bool,
}

/// A slot and the page in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cached {
    pub slot: u16,
    pub page: PageNo,
}

#[derive(Default)]
struct State {
    free_slots: Vec<u16>,
    cached: Vec<Cached>,
    /// Entries of the queue's pages that are neither used nor reserved (RSEG-2).
    history_room: u64,
}

/// The header page's fields, but for the slots.
struct Header {
    history_head: PageNo,
    history_position: u32,
    history_tail: PageNo,
    free_len: u32,
}

impl Header {
    /// The header of rollback segment `id`, if that is what the page is.
    fn read(page: &[u8], at: PageId, id: u8) -> Result<Header> {
        let slots = Rseg::slot_count(page.len()) as u32;
        let found = (page_type(page), u32_at(page, ID), u32_at(page, SLOT_COUNT));
        if found != (Some(PageType::RsegHeader), u32::from(id), slots) {
            let expected = format!("the header of rollback segment {id} with {slots} slots");
            return Err(Error::corrupt(at, expected, format!("{found:?}")));
        }
        Ok(Header {
            history_head: PageNo(u32_at(page, HISTORY_HEAD)),
            history_position: u32_at(page, HISTORY_POSITION),
            history_tail: PageNo(u32_at(page, HISTORY_TAIL)),
            free_len: u32_at(page, FREE_LEN),
        })
    }
}

/// What the pages of a history queue hold when the segment is opened.
struct Queue {
    /// Entries that are not purged.
    len: u64,
    /// Entries from the tail on that nobody uses.
    room: u64,
    oldest: u64,
}

impl Queue {
    /// Walks over the queue: it ends, its pages are full before the tail and empty behind it, its numbers ascend (RSEG-1) and
    /// are below `limit`.
    fn read(env: &UndoEnv, at: PageId, header: &Header, limit: TrxNo) -> Result<Queue> {
        let capacity = Rseg::entries_per_page(env.page_size);
        let mut queue = Queue {
            len: 0,
            room: 0,
            oldest: EMPTY,
        };
        let (mut no, mut from) = (header.history_head, header.history_position);
        let (mut past_tail, mut newest) = (false, TrxNo(0));
        for _ in 0..=env.space(at.space)?.size_pages() {
            if no == NO_PAGE {
                let tail = if past_tail {
                    header.history_tail
                } else {
                    NO_PAGE
                };
                return match tail == header.history_tail {
                    true => Ok(queue),
                    false => Err(Error::corrupt(
                        at,
                        format!("page {} in the history queue", header.history_tail),
                        "a queue without it",
                    )),
                };
            }
            let id = PageId::new(at.space, no);
            let page = env.history_page(id)?;
            let count = u32_at(&page, ENTRY_COUNT);
            let is_tail = no == header.history_tail;
            let full_enough = is_tail || count == if past_tail { 0 } else { capacity };
            let entries = (from..count).map(|n| entry_at(&page, n));
            let mut ascending = true;
            for entry in entries {
                ascending &= entry.no > newest;
                newest = entry.no;
                if queue.oldest == EMPTY {
                    queue.oldest = entry.no.0;
                }
            }
            if from > count || !full_enough || !ascending || newest >= limit {
                let expected =
                    format!("ascending numbers below {limit}, pages full up to the tail");
                let found = format!("{count} entries, {from} of them purged, up to {newest}");
                return Err(Error::corrupt(id, expected, found));
            }
            queue.len += u64::from(count - from);
            past_tail |= is_tail;
            if past_tail {
                queue.room += u64::from(capacity - count);
            }
            (no, from) = (PageNo(u32_at(&page, NEXT)), 0);
        }
        Err(Error::corrupt(
            at,
            "a history queue that ends",
            "one that leads back into itself",
        ))
    }
}

/// The pages of the segment that every commit in it changes, pinned as long as somebody has a share (HOLD-1).
#[derive(Default)]
struct CommitPins {
    shares: usize,
    _header: Option<Pin>,
    /// The history queue from its tail to its end.
    queue: VecDeque<(PageNo, Pin)>,
}

/// One rollback segment in memory.
pub struct Rseg {
    id: u8,
    header: PageId,
    state: Mutex<State>,
    /// Held while the queue gets another page, so that two transactions do not both add one.
    grow: Mutex<()>,
    history_len: AtomicU64,
    /// TrxNo of the oldest queue entry or `EMPTY`. Written under the header's exclusive latch; read without it by
    /// purge as a hint (Relaxed), which then reads the entry itself under the latch.
    oldest: AtomicU64,
    /// Length of the free chain. Written under the header's exclusive latch; read without it by purge (Relaxed), which
    /// then looks at the header.
    free_len: AtomicU32,
    /// The first share is taken, and the queue is changed, under the header's exclusive latch.
    commit_pins: Mutex<CommitPins>,
}

impl Rseg {
    pub fn slot_count(page_size: usize) -> usize {
        MAX_SLOTS.min((page_size - SLOTS) / 4)
    }

    fn entries_per_page(page_size: usize) -> u32 {
        ((page_size - ENTRIES) / ENTRY_SIZE) as u32
    }

    /// Formats the header page of rollback segment `id`.
    pub fn format(mtr: &mut Mtr<'_>, h: PageH, id: u8, page_size: usize) {
        mtr.op(
            h,
            PageOp::FormatRaw {
                ptype: PageType::RsegHeader,
            },
        );
        let slots = Rseg::slot_count(page_size);
        let mut body = vec![0xff; SLOTS + slots * 4];
        body[ID..ID + 4].copy_from_slice(&u32::from(id).to_le_bytes());
        body[SLOT_COUNT..SLOT_COUNT + 4].copy_from_slice(&(slots as u32).to_le_bytes());
        body[HISTORY_POSITION..HISTORY_POSITION + 4].fill(0);
        body[FREE_LEN..FREE_LEN + 4].fill(0);
        mtr.op(
            h,
            PageOp::Write {
                off: ID as u16,
                bytes: &body[ID..],
            },
        );
    }

    /// Reads the header and the queue; returns the segment and the first pages of the logs in its slots.
    pub fn load(
        env: &UndoEnv,
        id: u8,
        header: PageId,
        id_limit: u64,
    ) -> Result<(Rseg, Vec<(u16, PageNo)>)> {
        let page = env.pool.shared(header)?;
        let place = header;
        let header = Header::read(&page, place, id)?;
        let (mut used, mut free_slots) = (Vec::new(), Vec::new());
        for slot in (0..Rseg::slot_count(env.page_size) as u16).rev() {
            match PageNo(u32_at(&page, SLOTS + slot as usize * 4)) {
                NO_PAGE => free_slots.push(slot),
                first => used.push((slot, first)),
            }
        }
        drop(page);
        let queue = Queue::read(env, place, &header, TrxNo(id_limit))?;
        Ok((
            Rseg {
                id,
                header: place,
                state: Mutex::new(State {
                    free_slots,
                    cached: Vec::new(),
                    history_room: queue.room,
                }),
                grow: Mutex::new(()),
                history_len: AtomicU64::new(queue.len),
                oldest: AtomicU64::new(queue.oldest),
                free_len: AtomicU32::new(header.free_len),
                commit_pins: Mutex::default(),
            },
            used,
        ))
    }

    pub fn id(&self) -> u8 {
        self.id
    }

    pub fn space(&self) -> SpaceId {
        self.header.space
    }

    /// Committed update undo logs in this segment that are not purged yet.
    pub fn history_len(&self) -> u64 {
        self.history_len.load(Ordering::Relaxed)
    }

    /// TrxNo of the oldest log in the history, without a latch.
    pub fn oldest(&self) -> Option<TrxNo> {
        match self.oldest.load(Ordering::Relaxed) {
            EMPTY => None,
            no => Some(TrxNo(no)),
        }
    }

    fn take_slot(&self) -> Result<u16> {
        self.state
            .lock()
            .free_slots
            .pop()
            .ok_or_else(|| Error::NoSpace {
                what: format!(
                    "rollback segment {} has no free undo slot; too many writing transactions",
                    self.id
                ),
            })
    }

    /// Whether a transaction that begins to write finds a slot here. Only a hint.
    pub(super) fn has_room(&self) -> bool {
        let state = self.state.lock();
        !state.cached.is_empty() || !state.free_slots.is_empty()
    }

    /// A cached page for a new log.
    pub(super) fn take_cached(&self, env: &UndoEnv) -> Result<Cached> {
        let cached = self.state.lock().cached.pop();
        match cached {
            Some(cached) => Ok(cached),
            None => {
                let slot = self.take_slot()?;
                let page = self.put_page_in(env, slot);
                page.inspect_err(|_| self.return_slot(slot))
            }
        }
    }

    fn put_page_in(&self, env: &UndoEnv, slot: u16) -> Result<Cached> {
        let space = env.space(self.space())?;
        let _reserved = space.reserve(&env.mtr, 1)?;
        let mut mtr = env.begin(self.space())?;
        let header = self.latch(&mut mtr)?;
        let (no, page) = self.take_page(env, &mut mtr, header)?;
        format_cached(&mut mtr, page, slot, no);
        self.write_slot(&mut mtr, header, slot, no);
        mtr.commit();
        Ok(Cached { slot, page: no })
    }

    /// A page whose log has ended, or never began, is cached from now on.
    pub(super) fn return_cached(&self, cached: Cached) {
        self.state.lock().cached.push(cached);
    }

    /// Gives cached pages above `CACHED_PAGES_KEPT` back to the tablespace, a few in each mini-transaction, until told to
    /// stop. For times when nobody writes.
    pub fn trim_cached(&self, env: &UndoEnv, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let mut surplus: SmallVec<[Cached; PAGES_PER_MTR]> = {
                let mut state = self.state.lock();
                let (len, kept) = (state.cached.len(), CACHED_PAGES_KEPT);
                let from = len.saturating_sub(PAGES_PER_MTR).max(kept).min(len);
                state.cached.drain(from..).collect()
            };
            if surplus.is_empty() {
                return Ok(());
            }
            let freed = self.free_cached(env, &surplus);
            let mut state = self.state.lock();
            match freed {
                Ok(()) => state.free_slots.extend(surplus.iter().map(|c| c.slot)),
                Err(_) => state.cached.extend(surplus.drain(..)),
            }
            drop(state);
            freed?;
        }
        Ok(())
    }

    fn free_cached(&self, env: &UndoEnv, surplus: &[Cached]) -> Result<()> {
        let mut mtr = env.begin(self.space())?;
        let header = self.latch(&mut mtr)?;
        // All are latched before the first is freed: allocation pages come last.
        for cached in surplus {
            mtr.exclusive(PageId::new(self.header.space, cached.page))?;
        }
        for cached in surplus {
            env.free_page(&mut mtr, PageId::new(self.header.space, cached.page))?;
            self.write_slot(&mut mtr, header, cached.slot, NO_PAGE);
        }
        mtr.commit();
        Ok(())
    }

    pub(super) fn return_slot(&self, slot: u16) {
        self.state.lock().free_slots.push(slot);
    }

    /// Reserves the queue entry that a new update undo log will need at commit (RSEG-2).
    pub(super) fn reserve_history(&self, env: &UndoEnv) -> Result<()> {
        loop {
            if self.try_reserve_history() {
                return Ok(());
            }
            let _growing = self.grow.lock();
            if self.try_reserve_history() {
                return Ok(());
            }
            self.grow_history(env)?;
        }
    }

    fn try_reserve_history(&self) -> bool {
        let mut state = self.state.lock();
        let ok = state.history_room > 0;
        state.history_room -= u64::from(ok);
        ok
    }

    /// Counts a log that recovery found in a slot: it holds a reservation as if it had just been created.
    pub(super) fn adopt_reservation(&self, env: &UndoEnv) -> Result<()> {
        self.reserve_history(env)
    }

    /// Gives back the reservation of an update undo log that did not join the history.
    pub(super) fn return_history(&self) {
        self.state.lock().history_room += 1;
    }

    fn grow_history(&self, env: &UndoEnv) -> Result<()> {
        let space = env.space(self.header.space)?;
        let _reserved = space.reserve(&env.mtr, 1)?;
        let mut mtr = env.begin(self.space())?;
        let header = self.latch(&mut mtr)?;
        let mut last = PageNo(u32_at(mtr.bytes(header), HISTORY_TAIL));
        let mut last_h = None;
        // The chain ends: it did when the segment was opened.
        while last != NO_PAGE {
            if let Some(previous) = last_h.replace(self.latch_history(&mut mtr, last)?) {
                mtr.release(previous);
            }
            last = PageNo(u32_at(mtr.bytes(last_h.expect("just set")), NEXT));
        }
        let (no, page) = self.take_page(env, &mut mtr, header)?;
        mtr.op(
            page,
            PageOp::FormatRaw {
                ptype: PageType::History,
            },
        );
        put_u32(&mut mtr, page, ENTRY_COUNT, 0);
        set_next(&mut mtr, page, NO_PAGE);
        match last_h {
            Some(last) => set_next(&mut mtr, last, no),
            None => {
                put_u32(&mut mtr, header, HISTORY_HEAD, no.0);
                put_u32(&mut mtr, header, HISTORY_POSITION, 0);
                put_u32(&mut mtr, header, HISTORY_TAIL, no.0);
            }
        }
        self.pin_new_queue_page(&mtr, no, page);
        mtr.commit();
        self.state.lock().history_room += u64::from(Rseg::entries_per_page(env.page_size));
        Ok(())
    }

    /// Takes a share in the pins on what a commit changes in the segment (HOLD-1). Reads pages that were evicted.
    pub(super) fn pin_for_commit(&self, env: &UndoEnv) -> Result<()> {
        let header = env.pool.exclusive(self.header)?;
        {
            let mut pins = self.commit_pins.lock();
            if pins.shares > 0 {
                pins.shares += 1;
                return Ok(());
            }
        }
        // Nobody else gets here, or changes the queue: that takes the header's latch.
        let mut queue = VecDeque::new();
        let mut no = PageNo(u32_at(&header, HISTORY_TAIL));
        while no != NO_PAGE {
            let id = PageId::new(self.header.space, no);
            queue.push_back((no, env.pool.pin(id)?));
            no = PageNo(u32_at(&env.history_page(id)?, NEXT));
        }
        *self.commit_pins.lock() = CommitPins {
            shares: 1,
            _header: Some(env.pool.pin_latched(&header)),
            queue,
        };
        Ok(())
    }

    /// Gives a share back.
    pub(super) fn unpin_after_commit(&self) {
        let mut pins = self.commit_pins.lock();
        pins.shares -= 1;
        if pins.shares == 0 {
            *pins = CommitPins::default();
        }
    }

    /// The queue got another page at its end. Under the header's exclusive latch, and the page's.
    fn pin_new_queue_page(&self, mtr: &Mtr<'_>, no: PageNo, page: PageH) {
        let mut pins = self.commit_pins.lock();
        if pins.shares > 0 {
            pins.queue.push_back((no, mtr.pin(page)));
        }
    }

    /// The queue's tail has moved on. Under the header's exclusive latch.
    fn unpin_before_tail(&self, tail: PageNo) {
        let mut pins = self.commit_pins.lock();
        while pins.queue.front().is_some_and(|(no, _)| *no != tail) {
            pins.queue.pop_front();
        }
        assert!(
            pins.shares == 0 || !pins.queue.is_empty(),
            "HOLD-1: the new tail of rollback segment {} is not pinned",
            self.id
        );
    }

    pub(super) fn latch(&self, mtr: &mut Mtr<'_>) -> Result<PageH> {
        let h = mtr.exclusive(self.header)?;
        Header::read(mtr.bytes(h), self.header, self.id)?;
        Ok(h)
    }

    fn page(&self, no: PageNo) -> PageId {
        PageId::new(self.header.space, no)
    }

    /// Latches a page of the history queue.
    fn latch_history(&self, mtr: &mut Mtr<'_>, no: PageNo) -> Result<PageH> {
        let h = mtr.exclusive(self.page(no))?;
        check_history(mtr.bytes(h), self.page(no))?;
        Ok(h)
    }

    /// Latches a page of the free chain, and says which is the next.
    fn latch_free(&self, mtr: &mut Mtr<'_>, no: PageNo) -> Result<(PageH, PageNo)> {
        let h = mtr.exclusive(self.page(no))?;
        let bytes = mtr.bytes(h);
        match page_type(bytes) {
            Some(PageType::UndoLog | PageType::UndoPage | PageType::History) => {
                Ok((h, PageNo(u32_at(bytes, NEXT))))
            }
            found => Err(Error::corrupt(
                self.page(no),
                format!("a free page of rollback segment {}", self.id),
                format!("type {found:?}"),
            )),
        }
    }

    /// A page for a new log or queue page: from the free chain, else from the tablespace. The caller has reserved a
    /// page of the tablespace before the mini-transaction, and formats the page.
    pub(super) fn take_page(
        &self,
        env: &UndoEnv,
        mtr: &mut Mtr<'_>,
        header: PageH,
    ) -> Result<(PageNo, PageH)> {
        let free = PageNo(u32_at(mtr.bytes(header), FREE_HEAD));
        if free == NO_PAGE {
            let no = env.alloc_page(mtr, self.header)?;
            let page = mtr.exclusive_new(PageId::new(self.header.space, no))?;
            return Ok((no, page));
        }
        let (page, next) = self.latch_free(mtr, free)?;
        let len = u32_at(mtr.bytes(header), FREE_LEN).saturating_sub(1);
        self.write_free_chain(mtr, header, next.0, len);
        Ok((free, page))
    }

    fn write_free_chain(&self, mtr: &mut Mtr<'_>, header: PageH, head: u32, len: u32) {
        let mut both = [0; 8];
        both[..4].copy_from_slice(&head.to_le_bytes());
        both[4..].copy_from_slice(&len.to_le_bytes());
        self.free_len.store(len, Ordering::Relaxed);
        mtr.op(
            header,
            PageOp::Write {
                off: FREE_HEAD as u16,
                bytes: &both,
            },
        );
    }

    /// Links the pages `first ..= last` (latched: `last_h`) into the free chain.
    pub(super) fn give_back(
        &self,
        mtr: &mut Mtr<'_>,
        header: PageH,
        first: PageNo,
        last_h: PageH,
        pages: u32,
    ) {
        let (head, len) = (
            u32_at(mtr.bytes(header), FREE_HEAD),
            u32_at(mtr.bytes(header), FREE_LEN),
        );
        set_next(mtr, last_h, PageNo(head));
        self.write_free_chain(mtr, header, first.0, len.saturating_add(pages));
    }

    pub(super) fn write_slot(&self, mtr: &mut Mtr<'_>, header: PageH, slot: u16, first: PageNo) {
        put_u32(mtr, header, SLOTS + slot as usize * 4, first.0);
    }

    /// Latches the queue page that the next entry goes to, moving the tail on if it is full.
    pub(super) fn latch_tail(
        &self,
        env: &UndoEnv,
        mtr: &mut Mtr<'_>,
        header: PageH,
    ) -> Result<Tail> {
        let no = PageNo(u32_at(mtr.bytes(header), HISTORY_TAIL));
        let page = self.latch_history(mtr, no)?;
        if u32_at(mtr.bytes(page), ENTRY_COUNT) < Rseg::entries_per_page(env.page_size) {
            return Ok(Tail {
                page,
                moved_to: None,
            });
        }
        let next = PageNo(u32_at(mtr.bytes(page), NEXT));
        mtr.release(page);
        // RSEG-2: there is a next page.
        let page = self.latch_history(mtr, next)?;
        match u32_at(mtr.bytes(page), ENTRY_COUNT) {
            0 => Ok(Tail {
                page,
                moved_to: Some(next),
            }),
            n => Err(Error::corrupt(
                self.page(next),
                "an empty page behind the tail of a history queue",
                format!("{n} entries"),
            )),
        }
    }

    /// Appends a log to the history (RSEG-1: under the header's exclusive latch since before `no` was drawn).
    pub(super) fn append_history(
        &self,
        mtr: &mut Mtr<'_>,
        header: PageH,
        tail: &Tail,
        entry: HistoryEntry,
    ) {
        if let Some(no) = tail.moved_to {
            put_u32(mtr, header, HISTORY_TAIL, no.0);
            self.unpin_before_tail(no);
        }
        let count = u32_at(mtr.bytes(tail.page), ENTRY_COUNT);
        let mut bytes = [0; ENTRY_SIZE];
        bytes[..8].copy_from_slice(&entry.no.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&entry.first.0.to_le_bytes());
        let flags = if entry.only_space {
            ENTRY_ONLY_SPACE
        } else {
            0
        };
        bytes[12..].copy_from_slice(&flags.to_le_bytes());
        let at = ENTRIES + count as usize * ENTRY_SIZE;
        mtr.op(
            tail.page,
            PageOp::Write {
                off: at as u16,
                bytes: &bytes,
            },
        );
        put_u32(mtr, tail.page, ENTRY_COUNT, count + 1);
        self.history_len.fetch_add(1, Ordering::Relaxed);
        if self.oldest.load(Ordering::Relaxed) == EMPTY {
            self.oldest.store(entry.no.0, Ordering::Relaxed);
        }
    }

    /// Appends the logs of the history with numbers below `limit` to `out`, the oldest first.
    pub fn logs_below(
        &self,
        env: &UndoEnv,
        limit: TrxNo,
        out: &mut Vec<HistoryEntry>,
    ) -> Result<()> {
        if self.oldest().is_none_or(|no| no >= limit) {
            return Ok(());
        }
        let page = env.pool.shared(self.header)?;
        let header = Header::read(&page, self.header, self.id)?;
        // Only purge takes entries away, and this is purge. The chain ends: it did when the segment was opened.
        drop(page);
        let capacity = Rseg::entries_per_page(env.page_size);
        let (mut no, mut position) = (header.history_head, header.history_position);
        while no != NO_PAGE {
            let page = env.history_page(self.page(no))?;
            let count = u32_at(&page, ENTRY_COUNT);
            while position < count {
                let entry = entry_at(&page, position);
                if entry.no >= limit {
                    return Ok(());
                }
                out.push(entry);
                position += 1;
            }
            if count < capacity {
                return Ok(());
            }
            (no, position) = (PageNo(u32_at(&page, NEXT)), 0);
        }
        Ok(())
    }

    /// Takes the oldest logs of the history, which have been purged, off the queue and gives their pages back, a few in
    /// each mini-transaction.
    pub(super) fn free_logs(&self, env: &UndoEnv, mut logs: &[HistoryEntry]) -> Result<()> {
        while !logs.is_empty() {
            let mut kept = SmallVec::new();
            let freed = self.free_some(env, &logs[..logs.len().min(LOGS_PER_MTR)], &mut kept);
            let mut state = self.state.lock();
            match &freed {
                Ok(_) => state.cached.extend(kept),
                Err(_) => state.free_slots.extend(kept.iter().map(|c| c.slot)),
            }
            drop(state);
            logs = &logs[freed?..];
        }
        Ok(())
    }

    /// One mini-transaction of `free_logs`: returns how many logs it gave back. `kept`: those that became cached pages.
    fn free_some(
        &self,
        env: &UndoEnv,
        logs: &[HistoryEntry],
        kept: &mut SmallVec<[Cached; LOGS_PER_MTR]>,
    ) -> Result<usize> {
        let mut mtr = env.begin(self.space())?;
        let header = self.latch(&mut mtr)?;
        let oldest = self.latch_oldest(env, &mut mtr, header, logs.len() as u32)?;
        let count = oldest.count as usize;
        let mut chained: SmallVec<[(PageNo, PageH, u32); LOGS_PER_MTR]> = SmallVec::new();
        for log in &logs[..count] {
            let page = log.first;
            match log.only_space.then(|| self.take_slot().ok()).flatten() {
                Some(slot) => kept.push(Cached { slot, page }),
                None => chained.push(self.latch_end(&mut mtr, *log)?),
            }
        }
        self.pop_history(&mut mtr, header, oldest);
        for cached in kept.iter() {
            self.write_slot(&mut mtr, header, cached.slot, cached.page);
        }
        for (first, last_h, pages) in chained {
            self.give_back(&mut mtr, header, first, last_h, pages);
        }
        mtr.commit();
        Ok(count)
    }

    /// Latches the last page of a log of the history; for `give_back`.
    fn latch_end(&self, mtr: &mut Mtr<'_>, entry: HistoryEntry) -> Result<(PageNo, PageH, u32)> {
        let first = entry.first;
        let first_h = mtr.exclusive(self.page(first))?;
        let log = LogHeader::of_history(mtr.bytes(first_h), self.page(first), entry)?;
        if log.last == first {
            return Ok((first, first_h, log.pages));
        }
        mtr.release(first_h);
        let last_h = mtr.exclusive(self.page(log.last))?;
        log.check_page(mtr.bytes(last_h), self.page(log.last))?;
        Ok((first, last_h, log.pages))
    }

    /// Latches what taking the oldest entries, at most `wanted`, off the queue changes and looks at: as many as lie in its
    /// first page.
    fn latch_oldest(
        &self,
        env: &UndoEnv,
        mtr: &mut Mtr<'_>,
        header: PageH,
        wanted: u32,
    ) -> Result<Oldest> {
        let read = Header::read(mtr.bytes(header), self.header, self.id)?;
        let (head, before) = (read.history_head, read.history_position);
        let page = self.latch_history(mtr, head)?;
        let there = u32_at(mtr.bytes(page), ENTRY_COUNT);
        if before >= there {
            let found = format!("{there} entries, the oldest at {before}");
            let expected = "an entry that is not purged";
            return Err(Error::corrupt(self.page(head), expected, found));
        }
        let count = wanted.min(there - before);
        let position = before + count;
        let next = PageNo(u32_at(mtr.bytes(page), NEXT));
        let is_last_entry = position >= Rseg::entries_per_page(env.page_size);
        let successor = match is_last_entry && next != NO_PAGE {
            true => Some((next, self.latch_history(mtr, next)?)),
            false => None,
        };
        Ok(Oldest {
            head,
            page,
            count,
            position,
            is_last_entry,
            successor,
        })
    }

    /// Takes the oldest entries off the queue, in the mini-transaction that gives their pages back. An emptied queue
    /// page joins the free chain.
    fn pop_history(&self, mtr: &mut Mtr<'_>, header: PageH, latched: Oldest) {
        let Oldest {
            head,
            page,
            count: popped,
            position,
            is_last_entry,
            successor,
        } = latched;
        let count = u32_at(mtr.bytes(page), ENTRY_COUNT);
        assert!(
            popped > 0 && position <= count,
            "RSEG-3: popped an empty history queue"
        );
        let mut oldest = EMPTY;
        if !is_last_entry {
            put_u32(mtr, header, HISTORY_POSITION, position);
            if position < count {
                oldest = entry_at(mtr.bytes(page), position).no.0;
            }
        } else if let Some((next, next_page)) = successor {
            if u32_at(mtr.bytes(next_page), ENTRY_COUNT) > 0 {
                oldest = entry_at(mtr.bytes(next_page), 0).no.0;
            }
            put_u32(mtr, header, HISTORY_HEAD, next.0);
            put_u32(mtr, header, HISTORY_POSITION, 0);
            if u32_at(mtr.bytes(header), HISTORY_TAIL) == head.0 {
                put_u32(mtr, header, HISTORY_TAIL, next.0);
                self.unpin_before_tail(next);
            }
            self.give_back(mtr, header, head, page, 1);
        } else {
            // The only page, used up: it starts again, empty. Its entries count as room once more.
            put_u32(mtr, page, ENTRY_COUNT, 0);
            put_u32(mtr, header, HISTORY_POSITION, 0);
            self.state.lock().history_room += u64::from(count);
        }
        self.oldest.store(oldest, Ordering::Relaxed);
        self.history_len
            .fetch_sub(u64::from(popped), Ordering::Relaxed);
    }

    /// Free pages that nobody but this segment can use, above those that it keeps.
    pub fn surplus_pages(&self) -> u32 {
        let free = self.free_len.load(Ordering::Relaxed);
        free.saturating_sub(FREE_PAGES_KEPT)
    }

    /// Returns free pages above `FREE_PAGES_KEPT` to the tablespace, a few in each mini-transaction, until told to stop.
    pub fn trim_free_chain(&self, env: &UndoEnv, stop: &AtomicBool) -> Result<()> {
        while self.surplus_pages() > 0 && !stop.load(Ordering::Relaxed) {
            let mut mtr = env.begin(self.space())?;
            let header = self.latch(&mut mtr)?;
            let (mut head, mut len) = (
                PageNo(u32_at(mtr.bytes(header), FREE_HEAD)),
                u32_at(mtr.bytes(header), FREE_LEN),
            );
            // All are latched before the first is freed: allocation pages come last.
            let mut pages = Vec::new();
            while len > FREE_PAGES_KEPT && head != NO_PAGE && pages.len() < PAGES_PER_MTR {
                let (_, next) = self.latch_free(&mut mtr, head)?;
                pages.push(head);
                head = next;
                len -= 1;
            }
            if pages.is_empty() {
                return Ok(());
            }
            for no in pages {
                env.free_page(&mut mtr, PageId::new(self.header.space, no))?;
            }
            self.write_free_chain(&mut mtr, header, head.0, len);
            mtr.commit();
        }
        Ok(())
    }
}

/// Pages latched for `Rseg::pop_history`.
pub(super) struct Oldest {
    head: PageNo,
    page: PageH,
    /// Entries to take.
    count: u32,
    /// Of the entry after them.
    position: u32,
    is_last_entry: bool,
    /// The queue's next page, if it will be the first.
    successor: Option<(PageNo, PageH)>,
}

/// The latched page of the history queue that takes the next entry.
pub(super) struct Tail {
    page: PageH,
    moved_to: Option<PageNo>,
}

/// The page is one of a history queue, and has no more entries than fit.
pub(super) fn check_history(page: &[u8], id: PageId) -> Result<()> {
    let capacity = Rseg::entries_per_page(page.len());
    let (ptype, count) = (page_type(page), u32_at(page, ENTRY_COUNT));
    if ptype == Some(PageType::History) && count <= capacity {
        return Ok(());
    }
    let expected = format!("a page of a history queue, at most {capacity} entries");
    Err(Error::corrupt(
        id,
        expected,
        format!("type {ptype:?}, {count} entries"),
    ))
}

fn entry_at(page: &[u8], position: u32) -> HistoryEntry {
    let at = ENTRIES + position as usize * ENTRY_SIZE;
    HistoryEntry {
        no: TrxNo(u64_at(page, at)),
        first: PageNo(u32_at(page, at + 8)),
        only_space: u32_at(page, at + 12) & ENTRY_ONLY_SPACE != 0,
    }
}

/// A slotted undo page's content, as the log walker needs it.
pub(super) fn undo_page(page: &[u8]) -> Option<SlottedRef<'_>> {
    matches!(
        page_type(page),
        Some(PageType::UndoLog | PageType::UndoPage)
    )
    .then(|| SlottedRef::new(page))
}
