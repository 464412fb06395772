//! The history queue: pages of entries, one for each committed update log, in commit order.
//!
//! `history_head` + `position` in the segment's header is the oldest entry that is not purged yet,
//! `history_tail` the page that the next commit appends to. The tail may have successors: room that was made
//! before it was needed.
//!
//! - **RSEG-1** The history queue is in TrxNo order: the number is drawn while the header is latched
//!   exclusively.
//! - **RSEG-2** A commit never allocates: `history_room` counts queue entries that no running update undo log
//!   has reserved, and each such log reserves one when it is created.
//! - **RSEG-8** `closed_pages` counts the pages that are given back with the logs of the queue: those of each
//!   log that closes its page; of logs that were there when the segment was opened one page each.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use crate::base::{Error, NO_PAGE, PageId, PageNo, Result, TrxId, TrxNo, get_u56, put_u56};
use crate::buffer::Pin;
use crate::mtr::{Mtr, PageHandle};
use crate::page::{PageOp, PageType, page_type};
use crate::space::AllocPurpose;
use crate::undo::UndoEnv;
use crate::undo::header::LogHeader;

use super::free::PageList;
use super::{
    FREE_HEAD, HISTORY_HEAD, HISTORY_POSITION, HISTORY_TAIL, Header, NEXT, Rseg, put_u32, set_next,
    u16_at, u32_at, u64_at,
};

pub(super) const ENTRY_COUNT: usize = 48;
const ENTRIES: usize = 80;
const ENTRY_SIZE: usize = 24;
/// Within an entry: TrxNo, TrxId, flags, first page, first record, one past the last record there.
const ENTRY_TRX: usize = 8;
const ENTRY_FLAGS: usize = 15;
const ENTRY_FIRST: usize = 16;
const ENTRY_START: usize = 20;
const ENTRY_END: usize = 22;
/// Flags of an entry: the fields of `HistoryEntry` with these names.
const ONLY_SPACE: u8 = 1;
const CLOSES: u8 = 2;
const UNDONE_UNMARK: u8 = 4;
const ONE_PAGE: u8 = 8;
/// Logs whose pages purge gives back in one mini-transaction: their redo stays below that of three pages.
const CLOSED_PER_MTR: usize = 32;
/// `oldest` of an empty history queue.
pub(super) const EMPTY: u64 = u64::MAX;

/// What the history queue says of a committed update log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryEntry {
    pub no: TrxNo,
    pub trx: TrxId,
    /// The page on which the log begins.
    pub first: PageNo,
    /// The slots of its records there.
    pub start: u16,
    pub end: u16,
    /// No record of the log concerns purge. `false` if that is not known.
    pub only_space: bool,
    /// The page has left its slot: it is given back with this log, and further pages of the log, if it has
    /// any.
    pub closes: bool,
    /// The log has no further pages. `false` if that is not known.
    pub one_page: bool,
    /// An un-delete-marking of the log was taken back.
    pub undone_unmark: bool,
}

impl HistoryEntry {
    /// The log is known to have no page but the one on which it begins. A log that shares it with a later one
    /// has no other.
    pub fn is_in_one_page(&self) -> bool {
        self.one_page || !self.closes
    }

    fn encode(&self) -> [u8; ENTRY_SIZE] {
        let mut out = [0; ENTRY_SIZE];
        let flags = [
            (self.only_space, ONLY_SPACE),
            (self.closes, CLOSES),
            (self.one_page, ONE_PAGE),
            (self.undone_unmark, UNDONE_UNMARK),
        ];
        out[..ENTRY_TRX].copy_from_slice(&self.no.0.to_le_bytes());
        put_u56(&mut out[ENTRY_TRX..], self.trx.0);
        out[ENTRY_FLAGS] = flags.iter().filter(|f| f.0).map(|f| f.1).sum();
        out[ENTRY_FIRST..ENTRY_START].copy_from_slice(&self.first.0.to_le_bytes());
        out[ENTRY_START..ENTRY_END].copy_from_slice(&self.start.to_le_bytes());
        out[ENTRY_END..].copy_from_slice(&self.end.to_le_bytes());
        out
    }

    /// The id was drawn before the number, from one counter.
    fn is_sane(&self) -> bool {
        self.trx.0 < self.no.0 && self.start <= self.end
    }

    fn decode(bytes: &[u8]) -> HistoryEntry {
        let flags = bytes[ENTRY_FLAGS];
        HistoryEntry {
            no: TrxNo(u64_at(bytes, 0)),
            trx: TrxId(get_u56(&bytes[ENTRY_TRX..])),
            first: PageNo(u32_at(bytes, ENTRY_FIRST)),
            start: u16_at(bytes, ENTRY_START),
            end: u16_at(bytes, ENTRY_END),
            only_space: flags & ONLY_SPACE != 0,
            closes: flags & CLOSES != 0,
            one_page: flags & ONE_PAGE != 0,
            undone_unmark: flags & UNDONE_UNMARK != 0,
        }
    }
}

/// What the pages of a history queue hold when the segment is opened.
pub(super) struct Queue {
    /// Entries that are not purged.
    pub len: u64,
    /// Entries from the tail on that nobody uses.
    pub room: u64,
    pub oldest: u64,
    /// Entries of logs that close their page.
    pub closed: u64,
    /// Pages with logs of the queue that none of them closes, and the number of the newest.
    pub open: HashMap<PageNo, TrxNo>,
}

impl Queue {
    /// Walks over the queue: it ends, its pages are full before the tail and empty behind it, its numbers
    /// ascend (RSEG-1) and are below `limit`.
    pub fn read(env: &UndoEnv, at: PageId, header: &Header, limit: TrxNo) -> Result<Queue> {
        let capacity = Rseg::entries_per_page(env.page_size);
        let mut queue = Queue {
            len: 0,
            room: 0,
            oldest: EMPTY,
            closed: 0,
            open: HashMap::new(),
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
                ascending &= entry.no > newest && entry.is_sane();
                newest = entry.no;
                queue.closed += u64::from(entry.closes);
                match entry.closes {
                    true => queue.open.remove(&entry.first),
                    false => queue.open.insert(entry.first, entry.no),
                };
                if queue.oldest == EMPTY {
                    queue.oldest = entry.no.0;
                }
            }
            if from > count || !full_enough || !ascending || newest >= limit {
                let expected = format!(
                    "entries with ascending numbers below {limit}, pages full up to the tail"
                );
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
pub(super) struct CommitPins {
    shares: usize,
    _header: Option<Pin>,
    /// The history queue from its tail to its end.
    queue: VecDeque<(PageNo, Pin)>,
}

/// Pages latched for `Rseg::pop_history`.
pub(in crate::undo) struct Oldest {
    head: PageNo,
    page: PageHandle,
    /// Entries to take.
    count: u32,
    /// Of the entry after them.
    position: u32,
    is_last_entry: bool,
    /// The queue's next page, if it will be the first.
    successor: Option<(PageNo, PageHandle)>,
}

impl Oldest {
    /// The queue's first page, if it leaves the queue.
    fn emptied(&self) -> Option<PageNo> {
        self.successor.map(|_| self.head)
    }
}

/// Counts links that are followed, so that those that go round are noticed: pages may be damaged after the
/// segment was opened.
pub(super) struct Links {
    header: PageId,
    left: u32,
}

impl Links {
    pub fn follow(&mut self) -> Result<()> {
        self.left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| Error::corrupt(self.header, "links that end", "ones that go round"))?;
        Ok(())
    }
}

/// The latched page of the history queue that takes the next entry.
pub(in crate::undo) struct Tail {
    page: PageHandle,
    moved_to: Option<PageNo>,
}

impl Rseg {
    fn entries_per_page(page_size: usize) -> u32 {
        ((page_size - ENTRIES) / ENTRY_SIZE) as u32
    }

    /// Reserves the queue entry that a new update undo log will need at commit (RSEG-2).
    pub(in crate::undo) fn reserve_history(
        &self,
        env: &UndoEnv,
        purpose: AllocPurpose,
    ) -> Result<()> {
        loop {
            if self.try_reserve_history() {
                return Ok(());
            }
            let _growing = self.grow.lock();
            if self.try_reserve_history() {
                return Ok(());
            }
            self.grow_history(env, purpose)?;
        }
    }

    fn try_reserve_history(&self) -> bool {
        let mut state = self.state.lock();
        let ok = state.history_room > 0;
        state.history_room -= u64::from(ok);
        ok
    }

    /// Counts a log that recovery found in a slot: it holds a reservation as if it had just been created.
    pub(in crate::undo) fn adopt_reservation(&self, env: &UndoEnv) -> Result<()> {
        self.reserve_history(env, AllocPurpose::Cleaning)
    }

    /// Gives back the reservation of an update undo log that did not join the history.
    pub(in crate::undo) fn return_history(&self) {
        self.state.lock().history_room += 1;
    }

    fn grow_history(&self, env: &UndoEnv, purpose: AllocPurpose) -> Result<()> {
        let space = env.space(self.space())?;
        let _reserved = space.reserve_for(&env.mtr, 1, purpose)?;
        let mut mtr = env.begin(self.space())?;
        let header = self.latch(&mut mtr)?;
        let mut last = PageNo(u32_at(mtr.bytes(header), HISTORY_TAIL));
        let mut last_h = None;
        let mut links = self.links(env)?;
        while last != NO_PAGE {
            links.follow()?;
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

    /// Takes a share in the pins on what a commit changes in the segment (HOLD-1). Reads pages that were
    /// evicted.
    pub(in crate::undo) fn pin_for_commit(&self, env: &UndoEnv) -> Result<()> {
        let header = env.pool.exclusive(self.header())?;
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
        let mut links = self.links(env)?;
        while no != NO_PAGE {
            links.follow()?;
            let id = PageId::new(self.space(), no);
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
    pub(in crate::undo) fn unpin_after_commit(&self) {
        let mut pins = self.commit_pins.lock();
        pins.shares -= 1;
        if pins.shares == 0 {
            *pins = CommitPins::default();
        }
    }

    /// The queue got another page at its end. Under the header's exclusive latch, and the page's.
    fn pin_new_queue_page(&self, mtr: &Mtr<'_>, no: PageNo, page: PageHandle) {
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

    pub(super) fn links(&self, env: &UndoEnv) -> Result<Links> {
        Ok(Links {
            header: self.header(),
            left: env.space(self.space())?.size_pages(),
        })
    }

    /// Latches a page of the history queue.
    fn latch_history(&self, mtr: &mut Mtr<'_>, no: PageNo) -> Result<PageHandle> {
        let h = mtr.exclusive(self.page(no))?;
        check_history(mtr.bytes(h), self.page(no))?;
        Ok(h)
    }

    /// Latches the queue page that the next entry goes to, moving the tail on if it is full.
    pub(in crate::undo) fn latch_tail(
        &self,
        env: &UndoEnv,
        mtr: &mut Mtr<'_>,
        header: PageHandle,
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

    /// Appends a log of so many pages to the history (RSEG-1: under the header's exclusive latch since before
    /// `no` was drawn).
    pub(in crate::undo) fn append_history(
        &self,
        mtr: &mut Mtr<'_>,
        header: PageHandle,
        tail: &Tail,
        entry: HistoryEntry,
        pages: u32,
    ) {
        if let Some(no) = tail.moved_to {
            put_u32(mtr, header, HISTORY_TAIL, no.0);
            self.unpin_before_tail(no);
        }
        let count = u32_at(mtr.bytes(tail.page), ENTRY_COUNT);
        let at = ENTRIES + count as usize * ENTRY_SIZE;
        mtr.op(
            tail.page,
            PageOp::Write {
                off: at as u16,
                bytes: &entry.encode(),
            },
        );
        put_u32(mtr, tail.page, ENTRY_COUNT, count + 1);
        let pages = self.pages_of(&entry, pages);
        self.closed_pages.fetch_add(pages, Ordering::Relaxed);
        self.history_len.fetch_add(1, Ordering::Relaxed);
        if self.oldest.load(Ordering::Relaxed) == EMPTY {
            self.oldest.store(entry.no.0, Ordering::Release);
        }
    }

    /// How many pages purge gives back with a log, as `closed_pages` has counted them: of one that was found
    /// when the segment was opened only the first, since its others were not looked for.
    fn pages_of(&self, entry: &HistoryEntry, pages: u32) -> u64 {
        match (entry.closes, entry.no < self.found_below) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => pages.into(),
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
        let page = env.pool.shared(self.header())?;
        let header = Header::read(&page, self.header(), self.id)?;
        // Only purge takes entries away, and this is purge.
        drop(page);
        let mut links = self.links(env)?;
        let capacity = Rseg::entries_per_page(env.page_size);
        let (mut no, mut position) = (header.history_head, header.history_position);
        while no != NO_PAGE {
            links.follow()?;
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

    /// Takes the oldest logs of the history, which have been purged, off the queue, and gives the pages back
    /// that these close, in few mini-transactions.
    pub(in crate::undo) fn free_logs(
        &self,
        env: &UndoEnv,
        mut logs: &[HistoryEntry],
    ) -> Result<()> {
        while !logs.is_empty() {
            let freed = self.free_some(env, logs)?;
            logs = &logs[freed..];
        }
        Ok(())
    }

    /// Reads the pages that are changed where these logs give pages back. Commits wait for the header's
    /// latch: nothing that was evicted since the logs were read is to be read again under it.
    fn pin_ends(&self, env: &UndoEnv, logs: &[HistoryEntry]) -> Result<Vec<Pin>> {
        let mut pins = Vec::new();
        let free = PageNo(u32_at(&env.pool.shared(self.header())?, FREE_HEAD));
        if free != NO_PAGE {
            pins.push(env.pool.pin(self.page(free))?);
        }
        for entry in logs.iter().filter(|log| log.closes && !log.one_page) {
            let first = self.page(entry.first);
            pins.push(env.pool.pin(first)?);
            let last = LogHeader::of_history(&env.pool.shared(first)?, first, entry)?.last;
            if last != entry.first {
                pins.push(env.pool.pin(self.page(last))?);
            }
        }
        Ok(pins)
    }

    /// One mini-transaction of `free_logs`: returns how many logs it took.
    fn free_some(&self, env: &UndoEnv, logs: &[HistoryEntry]) -> Result<usize> {
        let mut closing = logs.iter().enumerate().filter(|(_, log)| log.closes);
        let most = closing.nth(CLOSED_PER_MTR).map_or(logs.len(), |(n, _)| n);
        let _pins = self.pin_ends(env, &logs[..most])?;
        let mut mtr = env.begin(self.space())?;
        let header = self.latch(&mut mtr)?;
        let taken = self.latch_oldest(env, &mut mtr, header, most as u32)?;
        let count = taken.count as usize;
        let (mut listed, mut chained) = (PageList::new(), SmallVec::<[_; CLOSED_PER_MTR]>::new());
        let mut pages = 0;
        for log in logs[..count].iter().filter(|log| log.closes) {
            match log.one_page {
                true => {
                    listed.push(log.first);
                    pages += self.pages_of(log, 1);
                }
                false => {
                    let (first, last_h, its) = self.latch_end(&mut mtr, log)?;
                    pages += self.pages_of(log, its);
                    chained.push((first, last_h, its));
                }
            }
        }
        listed.extend(taken.emptied());
        let listing = self.latch_listing(&mut mtr, header, listed)?;
        let oldest = self.pop_history(&mut mtr, header, taken);
        self.list(&mut mtr, header, listing);
        for (first, last_h, pages) in chained {
            self.give_back(&mut mtr, header, first, last_h, pages);
        }
        // RSEG-5: not before this has its place in the log.
        mtr.commit_with(|_, _| self.oldest.store(oldest, Ordering::Release));
        self.closed_pages.fetch_sub(pages, Ordering::Relaxed);
        // Release: a thread that finds the history empty finds its pages left alone (RSEG-6), and counted.
        self.history_len.fetch_sub(count as u64, Ordering::Release);
        Ok(count)
    }

    /// Latches the last page of a log of the history that closes its page; for `give_back`.
    fn latch_end(
        &self,
        mtr: &mut Mtr<'_>,
        entry: &HistoryEntry,
    ) -> Result<(PageNo, PageHandle, u32)> {
        let first = entry.first;
        let first_h = mtr.exclusive(self.page(first))?;
        let log = LogHeader::of_history(mtr.bytes(first_h), self.page(first), entry)?;
        if log.last == first {
            return Ok((first, first_h, log.pages));
        }
        mtr.release(first_h);
        let last_h = mtr.exclusive(self.page(log.last))?;
        log.span(first)
            .check_page(mtr.bytes(last_h), self.page(log.last))?;
        Ok((first, last_h, log.pages))
    }

    /// Latches what taking the oldest entries, at most `wanted`, off the queue changes and looks at: as many
    /// as lie in its first page.
    fn latch_oldest(
        &self,
        env: &UndoEnv,
        mtr: &mut Mtr<'_>,
        header: PageHandle,
        wanted: u32,
    ) -> Result<Oldest> {
        let read = Header::read(mtr.bytes(header), self.header(), self.id)?;
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

    /// Takes the oldest entries off the queue, in the mini-transaction that gives their pages back, and an
    /// emptied queue page. Returns what `oldest` is now.
    fn pop_history(&self, mtr: &mut Mtr<'_>, header: PageHandle, latched: Oldest) -> u64 {
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
        } else {
            // The only page, used up: it starts again, empty. Its entries count as room once more.
            put_u32(mtr, page, ENTRY_COUNT, 0);
            put_u32(mtr, header, HISTORY_POSITION, 0);
            self.state.lock().history_room += u64::from(count);
        }
        oldest
    }
}

/// The page is one of a history queue, and has no more entries than fit.
pub(in crate::undo) fn check_history(page: &[u8], id: PageId) -> Result<()> {
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

pub(super) fn entry_at(page: &[u8], position: u32) -> HistoryEntry {
    HistoryEntry::decode(&page[ENTRIES + position as usize * ENTRY_SIZE..][..ENTRY_SIZE])
}
