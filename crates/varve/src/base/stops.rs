//! Places where a test holds the thread that comes there next, so that something else happens in between: a
//! race of two steps, made certain. Only the feature `sabotage`, which no product is built with, holds
//! anybody.

#[cfg(feature = "sabotage")]
use {
    parking_lot::Mutex,
    std::sync::{Arc, Barrier},
};

/// Between two steps that each take latches of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopPoint {
    /// An insert has locked the delete-marked row with its key, and is to un-delete-mark it.
    DeadRowLocked,
    /// A semi-consistent scan has opened its view, and is to read the row that another one has locked.
    ViewOfCommittedRow,
    /// A locking scan has met a row whose deleter has not ended, and is to lock it. It has latched the leaf.
    RowBeingDeleted,
    /// A rollback has put a row back; what else its change did, it is to take back.
    RowPutBack,
    /// A renamed table's new name is committed, and its locks are free. `Tables` has the old one still.
    TableRenamed,
    /// Somebody is to find out how far the checkpoint may go.
    Checkpoint,
}

#[derive(Default)]
pub struct Stops {
    #[cfg(feature = "sabotage")]
    next: Mutex<Option<(StopPoint, Arc<Barrier>)>>,
}

impl Stops {
    /// The next thread at `place` waits twice at the barrier that is returned: when it comes, and to go on.
    #[cfg(feature = "sabotage")]
    pub fn set(&self, place: StopPoint) -> Arc<Barrier> {
        let barrier = Arc::new(Barrier::new(2));
        let before = self.next.lock().replace((place, barrier.clone()));
        assert!(
            before.is_none(),
            "nobody came to the last place: {before:?}"
        );
        barrier
    }

    /// A thread is at `place`, without a latch, unless the place says so.
    #[inline]
    pub fn pass(&self, _place: StopPoint) {
        #[cfg(feature = "sabotage")]
        {
            let here = self.next.lock().take_if(|(place, _)| *place == _place);
            if let Some((_, barrier)) = here {
                barrier.wait();
                barrier.wait();
            }
        }
    }
}
