//! Pages of tablespaces that are gone leave their frames by and by. The statement that drops a tablespace
//! looks at none of them: it would take the longer the larger the pool is.
//!
//! - **BUF-10** [`BufferPool::drop_space`] takes the same time for each tablespace and pool. After it each
//!   frame is looked at once, in portions, by the page cleaner before anything else that it does, and by
//!   whoever is going to write all pages. Until that is over pages of the tablespace that are taken to be
//!   written are forgotten instead.
//!
//! Nobody can tell how far that is. A tablespace's id is never used again (SP-1), so nobody looks for the
//! pages that are still there. Those that somebody loads late, ahead of demand, are clean, and what the clock
//! takes first. The checkpoint waits for the dirty ones as for any others.
//!
//! One round of the hand serves all tablespaces that went until then, each for as many frames as there are
//! from where the hand was when it came.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use super::{BufferPool, DirtyPage};
use crate::base::{PageId, SpaceId};

pub(super) struct Gone {
    /// Of the pool, used or not. Relaxed: a new one holds no page of a tablespace that has gone before.
    frames: AtomicUsize,
    /// Those that no portion has taken note of. Held for a moment only: a statement waits for it.
    arrived: Mutex<Vec<SpaceId>>,
    /// Held for a portion.
    round: Mutex<Round>,
}

#[derive(Default)]
struct Round {
    /// The next frame to look at.
    hand: u32,
    /// How many frames remain to be looked at for each tablespace.
    going: HashMap<SpaceId, usize>,
}

impl Gone {
    pub fn new(frames: usize) -> Gone {
        Gone {
            frames: AtomicUsize::new(frames),
            arrived: Mutex::default(),
            round: Mutex::default(),
        }
    }

    /// The pool has so many frames now: the hand goes past the new ones, too.
    pub fn grow(&self, frames: usize) {
        let mut round = self.round.lock();
        let more = frames - self.frames.swap(frames, Relaxed);
        round.going.values_mut().for_each(|left| *left += more);
    }

    /// The round, with all that has arrived.
    fn round(&self) -> MutexGuard<'_, Round> {
        let mut round = self.round.lock();
        let arrived = std::mem::take(&mut *self.arrived.lock());
        let frames = self.frames.load(Relaxed);
        round
            .going
            .extend(arrived.into_iter().map(|space| (space, frames)));
        round
    }
}

impl BufferPool {
    /// Forgets the pages of a tablespace that is gone, without writing them (BUF-10). Nobody may use its
    /// pages any more, except the cleaner, which may be writing some, and whose writes the store ignores.
    pub fn drop_space(&self, space: SpaceId) {
        self.forget_pending(space);
        self.gone.arrived.lock().push(space);
        self.replacement.wake_cleaner();
    }

    /// Looks at so many frames, and empties those that hold pages of tablespaces that are gone. A frame that
    /// is in use just now (the cleaner may be writing it) keeps its page, and becomes clean and free in the
    /// usual way. True if there is more to do.
    pub fn forget_gone(&self, portion: usize) -> bool {
        let mut round = self.gone.round();
        let Round { hand, going } = &mut *round;
        let most = going.values().copied().max().unwrap_or(0);
        let portion = portion.min(most);
        for _ in 0..portion {
            let is_gone = |page: PageId| going.contains_key(&page.space);
            if self.may_hold(*hand, is_gone) {
                let _held = self.drop_held.begin();
                self.forget_if(*hand, is_gone);
            }
            *hand = (*hand + 1) % self.gone.frames.load(Relaxed) as u32;
        }
        going.retain(|_, left| {
            *left = left.saturating_sub(portion);
            *left > 0
        });
        !going.is_empty()
    }

    /// Those of the pages that are to be written. The others are forgotten (BUF-10).
    pub fn forget_taken(&self, taken: Vec<DirtyPage>) -> Vec<DirtyPage> {
        let round = self.gone.round();
        if round.going.is_empty() {
            return taken;
        }
        let is_gone = |taken: &DirtyPage| round.going.contains_key(&taken.page.space);
        let (gone, taken): (Vec<_>, Vec<_>) = taken.into_iter().partition(is_gone);
        for page in gone {
            let id = page.page;
            self.write_given_up(page);
            self.forget(id);
        }
        taken
    }
}
