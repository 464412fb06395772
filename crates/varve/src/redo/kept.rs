//! Log files that somebody still copies, although the checkpoint has passed them.
//!
//! - **KEEP-1** A file is not taken into use again (LF-3) as long as it holds redo from a [`KeptRedo`]'s
//!   place on. The place goes forward as its owner gets on.
//! - **KEEP-2** Nobody waits for that: the pool has other files made instead (`file_pool`). It gives up all
//!   places if the disk has no room for these, and a place that is more than the owner's limit behind the
//!   checkpoint. The owner is told when it asks next.
//!
//! The pool reads the place, and gives it up, under its mutex. The owner's steps forward are without: a file
//! that is kept for a moment too long does no harm. So Relaxed is enough for them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::RedoLog;
use crate::base::{Error, Lsn, Result};

/// What the pool knows of one.
pub(super) struct Place {
    /// `NOWHERE`: nothing is needed any more.
    from: AtomicU64,
    most_bytes: u64,
    given_up: OnceLock<Error>,
}

const NOWHERE: Lsn = Lsn(u64::MAX);

impl Place {
    pub fn from(&self) -> Lsn {
        Lsn(self.from.load(Relaxed))
    }

    /// Whether files are kept for it while the checkpoint is there (KEEP-2).
    pub fn is_kept(&self, checkpoint: Lsn) -> bool {
        let from = self.from();
        let behind = checkpoint.0.saturating_sub(from.0);
        if behind > self.most_bytes {
            self.give_up(Error::TooLarge {
                what: "the redo that a backup has not copied yet".into(),
                size: behind as usize,
                limit: self.most_bytes as usize,
            });
        }
        from != NOWHERE && self.given_up.get().is_none()
    }

    /// The disk has no room for other files than those that it keeps.
    pub fn give_way(&self) {
        let what = "redo that a backup has not copied yet: the log needs the room".into();
        self.give_up(Error::NoSpace { what });
    }

    fn give_up(&self, why: Error) {
        // The first reason stays.
        let _ = self.given_up.set(why);
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
            given_up: OnceLock::new(),
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

    /// Nothing is needed any more: what was kept is released.
    pub fn end(&self) {
        self.advance(NOWHERE);
        self.log.ring_alarm();
    }

    /// # Errors
    ///
    /// `TooLarge`, `NoSpace`: it was given up.
    pub fn check(&self) -> Result<()> {
        match self.place.given_up.get() {
            None => Ok(()),
            Some(why) => Err(why.clone()),
        }
    }
}

impl Drop for KeptRedo {
    fn drop(&mut self) {
        self.end();
    }
}
