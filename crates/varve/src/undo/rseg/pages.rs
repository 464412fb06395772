//! The slots, and the cached pages in them.
//!
//! A page stays in its slot from the log that takes it first until a log closes it (`log`). Between two logs
//! it is cached: its header says *committed*, and here is noted what the next log needs to know, so that
//! taking it looks at no page.
//!
//! - **RSEG-4** A slot is in exactly one of: the free slots, the cached pages, the logs of running
//!   transactions.
//! - **RSEG-5** A cached page whose newest log of the history is older than the oldest entry of the queue has
//!   none there: the logs of a page are in the queue in the order of their numbers. A transaction that finds
//!   that (`is_purged`) and starts the page anew, or frees it, gets a higher LSN than the mini-transaction
//!   that took the log off the queue. So a crash never leaves an entry whose records are gone.

use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use crate::base::{Error, NO_PAGE, PageNo, Result, TrxNo};
use crate::space::AllocPurpose;
use crate::undo::UndoEnv;
use crate::undo::header::{LogKind, format_cached};

use super::{Rseg, RsegState};

/// Cached pages that stay when nobody writes for a while; more go back to the tablespace. Under load there
/// are as many as logs were written at the same time.
pub const CACHED_PAGES_KEPT: usize = 48;
/// Pages that go back to the tablespace in one mini-transaction.
pub(super) const PAGES_PER_MTR: usize = 16;

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

impl RsegState {
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
    /// RSEG-5. Under no latch; the answer stays right, since no log joins the history on a page that nobody
    /// has.
    pub(in crate::undo) fn is_purged(&self, page: &Cached) -> bool {
        // Acquire pairs with the Release of `free_some`: what follows gets a higher LSN. `EMPTY` is above all
        // numbers.
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
        purpose: AllocPurpose,
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
        let page = self.put_page_in(env, slot, kind, purpose);
        page.inspect_err(|_| self.return_slot(slot))
    }

    /// All slots are taken: a cached page of the other kind, if nobody needs what is there.
    fn take_other(&self, state: &mut RsegState) -> Result<Cached> {
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
        slot: u16,
        kind: LogKind,
        purpose: AllocPurpose,
    ) -> Result<Cached> {
        let space = env.space(self.space())?;
        let _reserved = space.reserve_for(&env.mtr, 1, purpose)?;
        let mut mtr = env.begin(self.space())?;
        let header = self.latch(&mut mtr)?;
        let (no, page) = self.take_page(env, &mut mtr, header)?;
        let cached = format_cached(&mut mtr, page, slot, no, kind);
        self.write_slot(&mut mtr, header, slot, no);
        mtr.commit();
        Ok(cached)
    }

    /// A page whose log has ended, or never began, is cached from now on.
    pub(in crate::undo) fn return_cached(&self, cached: Cached) {
        self.state.lock().cached(cached.kind).push(cached);
    }

    /// Gives cached pages above `CACHED_PAGES_KEPT` that nobody needs back to the tablespace, a few in each
    /// mini-transaction, until told to stop. For times when nobody writes.
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
            mtr.exclusive_new(self.page(cached.page))?;
        }
        for cached in surplus {
            env.free_page(&mut mtr, self.page(cached.page))?;
            self.write_slot(&mut mtr, header, cached.slot, NO_PAGE);
        }
        mtr.commit();
        Ok(())
    }

    pub(in crate::undo) fn return_slot(&self, slot: u16) {
        self.state.lock().free_slots.push(slot);
    }
}
