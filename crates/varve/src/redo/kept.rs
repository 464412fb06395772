//! Log files that somebody still copies, although the checkpoint has passed them.
//!
//! - **KEEP-1** A file is not taken into use again (LF-3) as long as it holds redo from a [`KeptRedo`]'s
//!   place on. The place goes forward as its owner gets on.
//! - **KEEP-2** Nobody waits for that: the pool has other files made instead (`file_pool`). It gives up all
//!   places if the disk has no room for these, and a place that is more than the owner's limit behind the
//!   checkpoint. The owner is told when it asks next.
//!
//! The place, and that it was given up, are read and written under the pool's mutex, but for the place's
//! steps forward: a file that is kept for a moment too long does no harm. So Relaxed is enough for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::RedoLog;
use crate::base::{Error, Lsn, Result};

/// What the pool knows of one.
pub(super) struct Place {
    from: AtomicU64,
    most_bytes: u64,
    /// How far it was behind, when it was given up.
    given_up_at: AtomicU64,
    /// For want of room.
    is_in_the_way: AtomicBool,
    has_ended: AtomicBool,
}

impl Place {
    pub fn from(&self) -> Lsn {
        Lsn(self.from.load(Relaxed))
    }

    /// Whether files are kept for it while the checkpoint is there (KEEP-2).
    pub fn is_kept(&self, checkpoint: Lsn) -> bool {
        let behind = checkpoint.0.saturating_sub(self.from().0);
        if behind > self.most_bytes {
            self.given_up_at.store(behind, Relaxed);
        }
        behind <= self.most_bytes
            && !self.has_ended.load(Relaxed)
            && !self.is_in_the_way.load(Relaxed)
    }

    /// The disk has no room for other files than those that it keeps.
    pub fn give_way(&self) {
        self.is_in_the_way.store(true, Relaxed);
    }
}

/// Keeps the log's files from a place on, until it is dropped.
pub struct KeptRedo {
    log: Arc<RedoLog>,
    place: Arc<Place>,
}

impl RedoLog {
    /// Keeps the files from the checkpoint on, where a frame begins, as long as that is no more than
    /// `most_bytes` behind the checkpoint.
    pub fn keep_from_checkpoint(self: &Arc<Self>, most_bytes: u64) -> (Lsn, KeptRedo) {
        let mut files = self.files.lock();
        // What was released under the mutex was below it.
        let from = self.checkpoint_lsn();
        let place = Arc::new(Place {
            from: AtomicU64::new(from.0),
            most_bytes,
            given_up_at: AtomicU64::new(0),
            is_in_the_way: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        });
        files.keep(place.clone());
        let log = self.clone();
        (from, KeptRedo { log, place })
    }
}

impl KeptRedo {
    pub fn log(&self) -> &Arc<RedoLog> {
        &self.log
    }

    /// What is below `to` is not needed any more.
    pub fn advance(&self, to: Lsn) {
        self.place.from.fetch_max(to.0, Relaxed);
    }

    /// # Errors
    ///
    /// `TooLarge`, `NoSpace`: it was given up.
    pub fn check(&self) -> Result<()> {
        if self.place.is_in_the_way.load(Relaxed) {
            let what = "redo that a backup has not copied yet: the log needs the room".into();
            return Err(Error::NoSpace { what });
        }
        match self.place.given_up_at.load(Relaxed) {
            0 => Ok(()),
            behind => Err(Error::TooLarge {
                what: "the redo that a backup has not copied yet".into(),
                size: behind as usize,
                limit: self.place.most_bytes as usize,
            }),
        }
    }
}

impl Drop for KeptRedo {
    fn drop(&mut self) {
        self.place.has_ended.store(true, Relaxed);
        // Releases what was kept.
        self.log.ring_alarm();
    }
}
