//! What a commit needs, got hold of before: then the commit can't fail, and waits for no disk and no redo
//! capacity.
//!
//! A server with a binary log commits under a mutex of its own, one transaction after the other
//! (`commit_ordered`). So between prepare and commit each transaction holds
//!
//! - redo capacity for the one mini-transaction of the commit;
//! - pins on the pages of its own logs that the commit changes;
//! - a share in the pins of its rollback segment (`rseg`): the header, and the history queue from its tail to
//!   its end, wherever the tail moves meanwhile.
//!
//! - **HOLD-1** While somebody has a share, the header and the queue pages from the tail on are pinned.
//!
//! Transactions without a coordinator don't do this: their commit latches the same pages first, and reads one
//! that was evicted, before anybody is told.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::Result;
use crate::buffer::Pin;
use crate::mtr::Mtr;
use crate::redo::HeldCapacity;

use super::UndoEnv;
use super::log::UndoLog;
use super::rseg::Rseg;

/// Redo that the mini-transactions of prepare and commit can write: some header fields, a queue entry, two
/// slots. What is said of files that go comes beside it.
pub(super) const MAX_COMMIT_MTR: u32 = 3072;

pub(super) struct CommitHold {
    /// `None` in the temporary tablespace, which is not logged.
    capacity: Option<HeldCapacity>,
    rseg: Arc<Rseg>,
    _logs: SmallVec<[Pin; 2]>,
}

impl CommitHold {
    /// May wait for redo capacity and the disk: hold no latch.
    pub fn take<'a>(
        env: &UndoEnv,
        rseg: &Arc<Rseg>,
        logs: impl Iterator<Item = &'a UndoLog>,
        also: u32,
    ) -> Result<CommitHold> {
        let capacity = match rseg.space().is_logged() {
            true => Some(env.mtr.log.hold(MAX_COMMIT_MTR + also)?),
            false => None,
        };
        let logs = logs
            .map(|log| log.pin_for_commit(env))
            .collect::<Result<_>>()?;
        rseg.pin_for_commit(env)?;
        Ok(CommitHold {
            capacity,
            rseg: rseg.clone(),
            _logs: logs,
        })
    }

    /// The commit's mini-transaction. Its pages stay in the pool as long as `self` lives.
    pub fn begin<'a>(&self, env: &'a UndoEnv) -> Result<Mtr<'a>> {
        match &self.capacity {
            Some(capacity) => Ok(Mtr::begin_held(&env.mtr, capacity)),
            None => Mtr::begin_in(&env.mtr, self.rseg.space(), MAX_COMMIT_MTR),
        }
    }
}

impl Drop for CommitHold {
    fn drop(&mut self) {
        self.rseg.unpin_after_commit();
    }
}
