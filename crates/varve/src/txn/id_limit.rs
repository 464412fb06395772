//! The logged id limit: after a crash the counter starts at or above every number that was drawn.
//!
//! Invariants:
//! - **LIMIT-1** Every id and number drawn for a transaction with an id is below a limit that was handed to
//!   the log before.
//! - **LIMIT-2** `announced` is at least every limit in the log: it is stored before the log gets it. A
//!   checkpoint that reads `announced` after it chose its LSN therefore carries at least the limits logged
//!   below that LSN.
//!
//! A commit can't fail, so it never raises the limit itself: a transaction's id is handed out only when the
//! limit is more than `MARGIN` above it, and there are at most `MARGIN` unfinished transactions (each holds
//! an undo slot, of which there are 128 × 1,024), so the numbers they will draw are below the limit. A failed
//! raise fails the statement that wanted an id. The log may make a raise wait; nothing is latched.

use crate::base::sync::{AtomicU64, Mutex, Ordering};
use crate::base::{Error, MAX_ID_56, Result};

/// Writes an `IdLimit` record. It need not be synced: whatever is durable and uses an id below the limit
/// comes after it in the log.
pub trait IdLimitLog: Send + Sync {
    fn raise(&self, new_limit: u64) -> Result<()>;
}

/// Limits are multiples of this.
const BLOCK: u64 = 1 << 16;
/// At least as many transactions as can be unfinished at a time.
const MARGIN: u64 = 128 * 1024;

/// Ids from here on are refused: 2^40 are left for the commits, and for the reader of the message.
const LAST_USABLE: u64 = MAX_ID_56 - (1 << 40);

pub(super) struct IdLimit {
    log: Box<dyn IdLimitLog>,
    /// All ids below are covered by the log. Stored with Release after the log took it.
    logged: AtomicU64,
    announced: AtomicU64,
    /// One raise at a time.
    raising: Mutex<()>,
}

impl IdLimit {
    pub fn new(first_id: u64, log: Box<dyn IdLimitLog>) -> IdLimit {
        IdLimit {
            log,
            logged: AtomicU64::new(first_id),
            announced: AtomicU64::new(first_id),
            raising: Mutex::new(()),
        }
    }

    /// Makes sure that `id` and the number its transaction will draw are covered.
    pub fn cover(&self, id: u64) -> Result<()> {
        if id > LAST_USABLE {
            return Err(Error::NoSpace {
                what: "transaction ids: dump the data and load it into a new database".to_string(),
            });
        }
        let logged = self.logged.load(Ordering::Acquire);
        if id + MARGIN + BLOCK / 2 < logged {
            return Ok(());
        }
        if id + MARGIN < logged {
            // Ahead of time, by one thread; the others go on.
            return match self.raising.try_lock() {
                Some(_only) => self.raise(id),
                None => Ok(()),
            };
        }
        let _only = self.raising.lock();
        if id + MARGIN < self.logged.load(Ordering::Acquire) {
            return Ok(());
        }
        self.raise(id)
    }

    /// Called under `raising`.
    fn raise(&self, id: u64) -> Result<()> {
        let limit = ((id + MARGIN) / BLOCK + 2) * BLOCK;
        if limit <= self.logged.load(Ordering::Acquire) {
            return Ok(());
        }
        self.announced.fetch_max(limit, Ordering::AcqRel);
        self.log.raise(limit)?;
        self.logged.store(limit, Ordering::Release);
        Ok(())
    }

    pub fn covers(&self, number: u64) -> bool {
        number < self.logged.load(Ordering::Acquire)
    }

    /// What a checkpoint has to carry, read after it chose its LSN (LIMIT-2).
    pub fn announced(&self) -> u64 {
        self.announced.load(Ordering::Acquire)
    }
}
