//! The slots, the cached pages in them, and the chain of free pages.
//!
//! A page stays in its slot from the log that takes it first until a log closes it (`log`). Between two logs it is cached: its
//! header says *committed*, and here is noted what the next log needs to know, so that taking it looks at no page.
//!
//! - **RSEG-4** A slot is in exactly one of: the free slots, the cached pages, the logs of running transactions.
//! - **RSEG-5** A cached page whose newest log of the history is older than the oldest entry of the queue has none there: the logs
//!   of a page are in the queue in the order of their numbers. Whoever finds that (`is_purged`) and starts the page anew, or frees it,
//!   gets a higher LSN than the mini-transaction that took the log off the queue. So a crash never leaves an entry whose records are gone.

use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use crate::base::{Error, NO_PAGE, PageId, PageNo, Result, TrxNo};
use crate::mtr::{Mtr, PageH};
use crate::page::{PageOp, PageType, page_type};
use crate::space::Purpose;
use crate::undo::UndoEnv;
use crate::undo::header::{LogKind, format_cached};

use super::{FREE_HEAD, FREE_LEN, NEXT, Rseg, State, set_next, u32_at};

/// Free pages kept for reuse in a rollback segment; more go back to the tablespace.
pub const FREE_PAGES_KEPT: u32 = 64;
/// Cached pages that stay when nobody writes for a while; more go back to the tablespace. Under load there are as many as
/// logs were written at the same time.
pub const CACHED_PAGES_KEPT: usize = 48;
/// Pages that go back to the tablespace in one mini-transaction.
const PAGES_PER_MTR: usize = 16;

/// A page between two logs, and its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::undo) struct Cached {
    pub slot: u16,
    pub page: PageNo,
    /// What kind of logs it has had.
    pub kind: LogKind,
    /// The number of the newest of its logs that joined the history; 0: none.
    pub newest: TrxNo,
    /// How many records it has, those of insert logs that have ended included.
    pub records: u16,
    /// Bytes that further ones can take.
    pub room: usize,
}

impl State {
    fn cached(&mut self, kind: LogKind) -> &mut Vec<Cached> {
        match kind {
            LogKind::Insert => &mut self.cached_insert,
            LogKind::Update => &mut self.cached_update,
        }
    }

    fn cached_len(&self) -> usize {
        self.cached_insert.len() + self.cached_update.len()
    }

    /// RSEG-4.
    pub(super) fn slots_without_log(&self) -> usize {
        self.free_slots.len() + self.cached_len()
    }

    /// Takes up to `most` cached pages that nobody needs, those of insert logs first.
    fn take_purged(&mut self, rseg: &Rseg, most: usize) -> SmallVec<[Cached; PAGES_PER_MTR]> {
        let inserts = self.cached_insert.extract_if(.., |_| true);
        let purged = self.cached_update.extract_if(.., |c| rseg.is_purged(c));
        inserts.chain(purged).take(most).collect()
    }
}

impl Rseg {
    /// RSEG-5. Under no latch; the answer stays right, since no log joins the history on a page that nobody has.
    pub(in crate::undo) fn is_purged(&self, page: &Cached) -> bool {
        // Acquire pairs with the Release of `free_some`: what follows gets a higher LSN. `EMPTY` is above all numbers.
        page.newest.0 < self.oldest.load(Ordering::Acquire)
    }

    /// Whether a transaction that begins to write finds a slot here. Only a hint.
    pub(in crate::undo) fn has_room(&self) -> bool {
        let state = self.state.lock();
        !state.free_slots.is_empty() || state.cached_len() > 0
    }

    /// A cached page for a new log: of this kind, or one that can be started anew for it.
    pub(in crate::undo) fn take_cached(
        &self,
        env: &UndoEnv,
        kind: LogKind,
        purpose: Purpose,
    ) -> Result<Cached> {
        let slot = {
            let mut state = self.state.lock();
            if let Some(cached) = state.cached(kind).pop() {
                return Ok(cached);
            }
            match state.free_slots.pop() {
                Some(slot) => slot,
                None => return self.take_other(&mut state),
            }
        };
        let page = self.put_page_in(env, (slot, kind), purpose);
        page.inspect_err(|_| self.return_slot(slot))
    }

    /// All slots are taken: a cached page of the other kind, if nobody needs what is there.
    fn take_other(&self, state: &mut State) -> Result<Cached> {
        let other = state.take_purged(self, 1).pop();
        other.ok_or_else(|| Error::NoSpace {
            what: format!(
                "rollback segment {} has no free undo slot; too many writing transactions",
                self.id
            ),
        })
    }

    fn put_page_in(
        &self,
        env: &UndoEnv,
        (slot, kind): (u16, LogKind),
        purpose: Purpose,
    ) -> Result<Cached> {
        let space = env.space(self.space())?;
        let _reserved = space.reserve_for(&env.mtr, 1, purpose)?;
        let mut mtr = env.begin(self.space())?;
        let header = self.latch(&mut mtr)?;
        let (no, page) = self.take_page(env, &mut mtr, header)?;
        let cached = format_cached(&mut mtr, page, (slot, no, kind));
        self.write_slot(&mut mtr, header, slot, no);
        mtr.commit();
        Ok(cached)
    }

    /// A page whose log has ended, or never began, is cached from now on.
    pub(in crate::undo) fn return_cached(&self, cached: Cached) {
        self.state.lock().cached(cached.kind).push(cached);
    }

    /// Gives cached pages above `CACHED_PAGES_KEPT` that nobody needs back to the tablespace, a few in each mini-transaction,
    /// until told to stop. For times when nobody writes.
    pub fn trim_cached(&self, env: &UndoEnv, stop: &AtomicBool) -> Result<()> {
        let upkeep = self.upkeep.try_lock();
        while upkeep.is_some() && self.is_active() && !stop.load(Ordering::Relaxed) {
            let surplus = {
                let mut state = self.state.lock();
                let most = state.cached_len().saturating_sub(CACHED_PAGES_KEPT);
                state.take_purged(self, most.min(PAGES_PER_MTR))
            };
            if surplus.is_empty() {
                return Ok(());
            }
            let freed = self.free_cached(env, &surplus);
            match freed {
                Ok(()) => {
                    let slots = surplus.iter().map(|c| c.slot);
                    self.state.lock().free_slots.extend(slots);
                }
                Err(_) => surplus.into_iter().for_each(|c| self.return_cached(c)),
            }
            freed?;
        }
        Ok(())
    }

    fn free_cached(&self, env: &UndoEnv, surplus: &[Cached]) -> Result<()> {
        let mut mtr = env.begin(self.space())?;
        let header = self.latch(&mut mtr)?;
        // All are latched before the first is freed: allocation pages come last.
        for cached in surplus {
            mtr.exclusive(PageId::new(self.space(), cached.page))?;
        }
        for cached in surplus {
            env.free_page(&mut mtr, PageId::new(self.space(), cached.page))?;
            self.write_slot(&mut mtr, header, cached.slot, NO_PAGE);
        }
        mtr.commit();
        Ok(())
    }

    pub(in crate::undo) fn return_slot(&self, slot: u16) {
        self.state.lock().free_slots.push(slot);
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
    pub(in crate::undo) fn take_page(
        &self,
        env: &UndoEnv,
        mtr: &mut Mtr<'_>,
        header: PageH,
    ) -> Result<(PageNo, PageH)> {
        let free = PageNo(u32_at(mtr.bytes(header), FREE_HEAD));
        if free == NO_PAGE {
            let no = env.alloc_page(mtr, self.header())?;
            let page = mtr.exclusive_new(PageId::new(self.space(), no))?;
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
    pub(in crate::undo) fn give_back(
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

    /// Free pages that nobody but this segment can use, above those that it keeps.
    pub fn surplus_pages(&self) -> u32 {
        let free = self.free_len.load(Ordering::Relaxed);
        free.saturating_sub(FREE_PAGES_KEPT)
    }

    /// Returns free pages above `FREE_PAGES_KEPT` to the tablespace, a few in each mini-transaction, until told to stop.
    pub fn trim_free_chain(&self, env: &UndoEnv, stop: &AtomicBool) -> Result<()> {
        let upkeep = self.upkeep.try_lock();
        let may_go_on = || upkeep.is_some() && self.is_active() && !stop.load(Ordering::Relaxed);
        while self.surplus_pages() > 0 && may_go_on() {
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
                env.free_page(&mut mtr, PageId::new(self.space(), no))?;
            }
            self.write_free_chain(&mut mtr, header, head.0, len);
            mtr.commit();
        }
        Ok(())
    }
}
