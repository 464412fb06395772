//! Pages whose redo has not been applied yet: while recovery goes on, each is brought up to date when it is
//! loaded.
//!
//! - **BUF-6** As long as redo is pending for a page, no thread sees the page without it: the thread that
//!   loads the page applies the redo under the exclusive latch with which the frame was taken, before anybody
//!   else can latch it. Then the page is registered as changed from the first redo that was applied, and only
//!   then does the redo count as applied. If anything fails the frame is given up and the redo stays pending.
//!   Pages for which redo is pending are read ahead for recovery only, whose own thread applies the redo
//!   (prefetch.rs): the one that ends such a read waits for nothing.
//! - **BUF-7** A page for which redo is pending is never taken for new without it: should the thread that
//!   takes it not fill it after all, the redo would be lost.
//! - **BUF-8** Pages that lacked redo are registered as changed from LSNs in any order, older than others
//!   that are registered already. Until they are put in order (DQ-4) something else, recovery's hold, keeps
//!   the checkpoint below all of them.
//!
//! Recovery alone knows which redo is pending, through [`PendingRedo`]; a pool without one pays for a load of
//! one flag on each miss.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};

use parking_lot::RwLock;

use super::BufferPool;
use crate::base::{Lsn, PageId, Result, SpaceId};

/// The redo that a page needs when it is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// The page is up to date.
    Nothing,
    /// Redo is to be applied to what is stored.
    Stored,
    /// Redo is to be applied to zeros: what is stored does not matter, and need not be readable.
    Zeros,
}

/// Redo that waits for its pages to be loaded.
pub trait PendingRedo: Send + Sync {
    fn need(&self, page: PageId) -> Need;
    /// Applies what the page, whose bytes are those that `need` asks for, does not have yet. Calls `changed`
    /// with the LSN where the first redo that was applied begins, unless the page had all of it, and only
    /// then lets it count as applied. For one page, one thread at a time.
    fn apply(&self, page: PageId, bytes: &mut [u8], changed: &mut dyn FnMut(Lsn)) -> Result<()>;
    /// The tablespace is gone: nobody will load its pages.
    fn forget(&self, space: SpaceId);
    /// Memory that the redo takes, or may come to take: frames may be held back for it (BUF-9). It only
    /// falls.
    fn held_bytes(&self) -> usize;
}

#[derive(Default)]
pub(super) struct Pending {
    /// There is some. Release when it comes, before any page is loaded by users; Acquire when a page is
    /// loaded. When it goes nothing is pending any more, so it does not matter who sees that when.
    is_any: AtomicBool,
    redo: RwLock<Option<Arc<dyn PendingRedo>>>,
}

impl BufferPool {
    /// From now on pages are brought up to date when they are loaded. The pool holds none yet.
    pub fn set_pending(&self, redo: Arc<dyn PendingRedo>) {
        *self.pending.redo.write() = Some(redo);
        self.pending.is_any.store(true, Release);
    }

    /// Nothing is pending any more.
    pub fn end_pending(&self) {
        self.pending.is_any.store(false, Release);
        *self.pending.redo.write() = None;
        self.give_back(0);
    }

    /// The redo that is pending for the page, if any.
    pub(super) fn pending_for(&self, id: PageId) -> Option<(Arc<dyn PendingRedo>, Need)> {
        if !self.pending.is_any.load(Acquire) {
            return None;
        }
        let redo = self.pending.redo.read().clone()?;
        let need = redo.need(id);
        (need != Need::Nothing).then_some((redo, need))
    }

    pub(super) fn forget_pending(&self, space: SpaceId) {
        if self.pending.is_any.load(Acquire)
            && let Some(redo) = self.pending.redo.read().clone()
        {
            redo.forget(space);
            self.give_back(redo.held_bytes());
        }
    }

    /// Reads the page into `bytes`, those of `frame`, which the caller has latched exclusively, and brings it
    /// up to date (BUF-6).
    pub(super) fn fill(&self, frame: u32, id: PageId, bytes: &mut [u8]) -> Result<()> {
        let Some((redo, need)) = self.pending_for(id) else {
            return self.read_stored(id, bytes);
        };
        match need {
            Need::Zeros => bytes.fill(0),
            _ => self.read_stored(id, bytes)?,
        }
        self.bring_up_to_date(&*redo, frame, id, bytes)
    }

    /// Applies what the page in `frame`, which the caller has latched exclusively, does not have yet (BUF-6).
    pub(super) fn bring_up_to_date(
        &self,
        redo: &dyn PendingRedo,
        frame: u32,
        id: PageId,
        bytes: &mut [u8],
    ) -> Result<()> {
        redo.apply(id, bytes, &mut |start| {
            self.dirty.register(&self.frames, frame, start.0);
        })?;
        self.give_back(redo.held_bytes());
        Ok(())
    }

    /// No redo is pending any more, but the checkpoint is still held below all of it: BUF-8.
    pub fn settle_pending(&self) {
        self.dirty.settle(&self.frames);
    }

    fn read_stored(&self, id: PageId, bytes: &mut [u8]) -> Result<()> {
        self.store.read(id, bytes)?;
        self.check_loaded(id, bytes)
    }
}
