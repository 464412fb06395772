//! Rollback segments: slots for the undo logs of running transactions, the history queue of committed ones,
//! and a chain of free pages.
//!
//! A rollback segment is one header page in an undo tablespace:
//!
//! - **slots**: pages on which undo logs begin. Such a page has the log of a running transaction, which
//!   recovery must look at (active or prepared), or is **cached**: its header says *committed*, it is
//!   nobody's, and the next log begins on it by writing that page alone, behind the records that are there. A
//!   page that is full of update logs leaves its slot with the last of them (`log`).
//! - **history queue**: pages of entries in commit order, one for each committed update log: its number, its
//!   transaction, and where its records are. `history_head` + `position` is the oldest entry that is not
//!   purged yet, `history_tail` the page that the next commit appends to. The tail may have successors: room
//!   that was made before it was needed.
//! - **free chain**: pages of finished logs (`free`).
//!
//! What purge does for a log that shares its page is to move `position`: several hundred logs in one
//! mini-transaction that touches no undo page. The entry that closes a page gives it back, with the log's
//! further pages.
//!
//! - **RSEG-3** Every page is reachable from exactly one of: a slot (with the further pages of a running
//!   log), an entry that closes it, the free chain, the queue. An entry that does not close its page leads to
//!   one in a slot, or to one that a later entry closes (`check`).
//!
//! - **RSEG-6** A thread that changes a rollback segment's pages or counts has it (`RsegUse`), or is purge
//!   and finds a log in its history, or holds `upkeep` and finds it active. So in an inactive one without
//!   users and history nothing changes (`truncate`).
//!
//! Latch order within: header, history pages, undo header, undo pages, allocation pages. `state` is held for
//! moments only and never while waiting for a latch.

mod check;
mod free;
mod history;
mod pages;
mod users;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::base::{Durations, Error, NO_PAGE, PageId, PageNo, Result, SpaceId, TrxNo};
use crate::mtr::{Mtr, PageHandle};
use crate::page::{PageOp, PageType, SlottedRef, page_lsn, page_type};

use super::UndoEnv;
pub use free::FREE_PAGES_KEPT;
pub use history::HistoryEntry;
pub(super) use history::{Tail, check_history};
pub use pages::CACHED_PAGES_KEPT;
pub(super) use pages::Cached;
pub(super) use users::RsegUse;

use history::{CommitPins, EMPTY, Queue};
use users::Users;

const ID: usize = 48;
const SLOT_COUNT: usize = 52;
const HISTORY_HEAD: usize = 56;
const HISTORY_POSITION: usize = 60;
const HISTORY_TAIL: usize = 64;
const FREE_HEAD: usize = 68;
const FREE_LEN: usize = 72;
const SLOTS: usize = 80;

/// Where a page's successor stands: the same offset in slotted and in history pages.
pub(super) const NEXT: usize = 68;
/// The most undo logs that one rollback segment can hold at a time, as in InnoDB (less with 4 KiB pages).
const MAX_SLOTS: usize = 1024;

pub(super) fn u16_at(page: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([page[at], page[at + 1]])
}

pub(super) fn u32_at(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(page[at..at + 4].try_into().expect("4 bytes"))
}

pub(super) fn u64_at(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"))
}

fn put_u32(mtr: &mut Mtr<'_>, h: PageHandle, at: usize, v: u32) {
    mtr.op(
        h,
        PageOp::Write {
            off: at as u16,
            bytes: &v.to_le_bytes(),
        },
    );
}

/// Links a page to its successor; slotted pages have an operation of their own for it.
pub(super) fn set_next(mtr: &mut Mtr<'_>, h: PageHandle, next: PageNo) {
    match page_type(mtr.bytes(h)) {
        Some(t) if t.is_slotted() => mtr.op(h, PageOp::SetNext { next }),
        _ => put_u32(mtr, h, NEXT, next.0),
    }
}

#[derive(Default)]
struct RsegState {
    free_slots: Vec<u16>,
    cached_insert: Vec<Cached>,
    cached_update: Vec<Cached>,
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

/// A slot that is not free, when the segment is opened.
pub(super) struct UsedSlot {
    pub slot: u16,
    pub first: PageNo,
    /// The newest log of the history on that page; 0: none.
    pub newest: TrxNo,
}

/// One rollback segment in memory.
pub struct Rseg {
    id: u8,
    slot_count: usize,
    space: AtomicU32,
    header_no: PageNo,
    users: Users,
    /// Held by purge while it tidies up here, and by a truncation: one of these does not come in the other's
    /// way.
    pub(super) upkeep: Mutex<()>,
    state: Mutex<RsegState>,
    /// Held while the queue gets another page, so that two transactions do not both add one.
    grow: Mutex<()>,
    history_len: AtomicU64,
    /// Pages that purge gives back with the logs of the history (`pages_of`). Relaxed: for people to look at.
    closed_pages: AtomicU64,
    /// Numbers of commits from before the segment was opened are below.
    found_below: TrxNo,
    /// TrxNo of the oldest queue entry or `EMPTY`. Written under the header's exclusive latch, with Release:
    /// by what takes entries off when that has its place in the redo log. Read without it by purge as a hint
    /// (Relaxed), which then reads the entry itself under the latch, and by `is_purged` (Acquire).
    oldest: AtomicU64,
    /// Length of the free chain. Written under the header's exclusive latch; read without it by purge
    /// (Relaxed), which then looks at the header.
    free_len: AtomicU32,
    /// The first share is taken, and the queue is changed, under the header's exclusive latch.
    commit_pins: Mutex<CommitPins>,
}

impl Rseg {
    pub fn slot_count(page_size: usize) -> usize {
        MAX_SLOTS.min((page_size - SLOTS) / 4)
    }

    /// Formats the header page of rollback segment `id`.
    pub fn format(mtr: &mut Mtr<'_>, h: PageHandle, id: u8, page_size: usize) {
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

    /// Reads the header and the queue; returns the segment and the pages in its slots.
    pub(super) fn load(
        env: &UndoEnv,
        id: u8,
        header: PageId,
        id_limit: u64,
    ) -> Result<(Rseg, Vec<UsedSlot>)> {
        let page = env.pool.shared(header)?;
        let place = header;
        let header = Header::read(&page, place, id)?;
        // Each commit of a writer changes such a page: if log and tablespaces are not of one time, it shows
        // here at the latest. Redo that goes on below a page's LSN would not be applied to it after the next
        // crash (RPL-1).
        let (lsn, end) = (page_lsn(&page), env.mtr.log.next_lsn());
        if lsn > end {
            let expected = format!("no change beyond the redo log's end, LSN {end}");
            let found = format!(
                "one of LSN {lsn}: the redo log or the control file is lost, damaged, or of another time"
            );
            return Err(Error::corrupt(place, expected, found));
        }
        let (mut used, mut free_slots) = (Vec::new(), Vec::new());
        for slot in (0..Rseg::slot_count(env.page_size) as u16).rev() {
            match slot_at(&page, slot) {
                NO_PAGE => free_slots.push(slot),
                first => used.push((slot, first)),
            }
        }
        drop(page);
        let mut queue = Queue::read(env, place, &header, TrxNo(id_limit))?;
        let with_newest = |(slot, first)| UsedSlot {
            slot,
            first,
            newest: queue.open.remove(&first).unwrap_or_default(),
        };
        let used = used.into_iter().map(with_newest).collect();
        // RSEG-3
        if let Some((first, no)) = queue.open.iter().next() {
            let expected = format!("a slot with page {first}, where the log of commit {no} is");
            return Err(Error::corrupt(place, expected, "none"));
        }
        let rseg = Rseg {
            id,
            slot_count: Rseg::slot_count(env.page_size),
            space: AtomicU32::new(place.space.0),
            header_no: place.no,
            users: Users::default(),
            upkeep: Mutex::default(),
            state: Mutex::new(RsegState {
                free_slots,
                history_room: queue.room,
                ..RsegState::default()
            }),
            grow: Mutex::new(()),
            history_len: AtomicU64::new(queue.len),
            closed_pages: AtomicU64::new(queue.closed),
            found_below: TrxNo(id_limit),
            oldest: AtomicU64::new(queue.oldest),
            free_len: AtomicU32::new(header.free_len),
            commit_pins: Mutex::default(),
        };
        Ok((rseg, used))
    }

    pub fn id(&self) -> u8 {
        self.id
    }

    /// The tablespace that it is in: another one after a truncation.
    pub fn space(&self) -> SpaceId {
        // Acquire pairs with the Release of `restart`: a thread that sees the new one finds it registered.
        SpaceId(self.space.load(Ordering::Acquire))
    }

    pub(super) fn header(&self) -> PageId {
        PageId::new(self.space(), self.header_no)
    }

    /// Committed update undo logs in this segment that are not purged yet.
    pub fn history_len(&self) -> u64 {
        self.history_len.load(Ordering::Relaxed)
    }

    /// Pages of theirs that purge will give back (RSEG-8).
    pub(super) fn closed_pages(&self) -> u64 {
        self.closed_pages.load(Ordering::Relaxed)
    }

    /// Pages that they fill, those included that have room for further logs and are not in use.
    pub(super) fn history_pages(&self) -> u64 {
        let state = self.state.lock();
        let open = (state.cached_update.iter()).filter(|page| !self.is_purged(page));
        self.closed_pages() + open.count() as u64
    }

    /// TrxNo of the oldest log in the history, without a latch.
    pub fn oldest(&self) -> Option<TrxNo> {
        match self.oldest.load(Ordering::Relaxed) {
            EMPTY => None,
            no => Some(TrxNo(no)),
        }
    }

    /// Whether transactions may begin here.
    pub fn is_active(&self) -> bool {
        self.users.is_active()
    }

    /// Lets new transactions in, or keeps them out.
    pub(super) fn set_active(&self, active: bool) {
        self.users.set_active(active);
    }

    /// No transaction has it, nothing is left to purge, and no log is left of a rollback that could not be
    /// finished. Stays so while it is inactive (RSEG-6).
    pub(super) fn is_empty(&self) -> bool {
        // The users first: each counts its log in the history before it leaves.
        let is_unused = self.users.are_none() && self.history_len.load(Ordering::Acquire) == 0;
        is_unused && self.state.lock().slots_without_log() == self.slot_count
    }

    /// Goes on in a new tablespace, in which the header is that of an empty segment. It is inactive and
    /// empty, and the caller has `upkeep`. Notes how long its mutexes were held.
    pub(super) fn restart(&self, space: SpaceId, held: &Durations) {
        assert!(!self.is_active() && self.is_empty(), "RSEG-6");
        assert_eq!(self.closed_pages(), 0, "RSEG-8: pages of no log");
        let mut fresh = RsegState {
            free_slots: (0..self.slot_count as u16).rev().collect(),
            ..RsegState::default()
        };
        {
            let mut state = self.state.lock();
            let _held = held.begin();
            std::mem::swap(&mut *state, &mut fresh);
        }
        self.oldest.store(EMPTY, Ordering::Relaxed);
        self.free_len.store(0, Ordering::Relaxed);
        {
            let mut pins = self.commit_pins.lock();
            let _held = held.begin();
            *pins = CommitPins::default();
        }
        self.space.store(space.0, Ordering::Release);
    }

    pub(super) fn latch(&self, mtr: &mut Mtr<'_>) -> Result<PageHandle> {
        let h = mtr.exclusive(self.header())?;
        Header::read(mtr.bytes(h), self.header(), self.id)?;
        Ok(h)
    }

    fn page(&self, no: PageNo) -> PageId {
        PageId::new(self.space(), no)
    }

    pub(super) fn write_slot(
        &self,
        mtr: &mut Mtr<'_>,
        header: PageHandle,
        slot: u16,
        first: PageNo,
    ) {
        put_u32(mtr, header, SLOTS + slot as usize * 4, first.0);
    }
}

/// The pages that a header names: those in its slots, and the first one of the history and its tail.
pub(super) fn header_leads_to(page: &[u8]) -> Vec<PageNo> {
    let slots = 0..Rseg::slot_count(page.len()) as u16;
    let history = [HISTORY_HEAD, HISTORY_TAIL].map(|at| PageNo(u32_at(page, at)));
    let slots = slots.map(|slot| slot_at(page, slot));
    slots.chain(history).filter(|no| *no != NO_PAGE).collect()
}

fn slot_at(header: &[u8], slot: u16) -> PageNo {
    PageNo(u32_at(header, SLOTS + slot as usize * 4))
}

/// A slotted undo page's content, as the log walker needs it.
pub(super) fn undo_page(page: &[u8]) -> Option<SlottedRef<'_>> {
    matches!(
        page_type(page),
        Some(PageType::UndoLog | PageType::UndoPage)
    )
    .then(|| SlottedRef::new(page))
}
