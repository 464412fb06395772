//! The users of a rollback segment, and whether more may come (RSEG-6).

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Rseg;

/// No more may come.
const INACTIVE: u32 = 1 << 31;

/// How many transactions have a rollback segment. One word with whether it is active: a user that comes too
/// late is never counted, so without users an inactive segment stays without them.
#[derive(Default)]
pub(super) struct Users(AtomicU32);

impl Users {
    pub fn is_active(&self) -> bool {
        self.0.load(Ordering::Relaxed) & INACTIVE == 0
    }

    pub fn set_active(&self, active: bool) {
        // Release: a new user finds what was done to the segment while it was inactive.
        match active {
            true => self.0.fetch_and(!INACTIVE, Ordering::Release),
            false => self.0.fetch_or(INACTIVE, Ordering::Release),
        };
    }

    pub fn are_none(&self) -> bool {
        // Acquire pairs with the Release of `leave`.
        self.0.load(Ordering::Acquire) & !INACTIVE == 0
    }

    /// `false` if the segment is inactive.
    fn enter(&self) -> bool {
        let one_more = |word| (word & INACTIVE == 0).then_some(word + 1);
        self.0
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more)
            .is_ok()
    }

    fn leave(&self) {
        // Release: what the transaction did here is over.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// A transaction's share in a rollback segment.
pub(in crate::undo) struct RsegUse(Arc<Rseg>);

impl RsegUse {
    /// `None` if the segment is inactive.
    pub fn begin(rseg: &Arc<Rseg>) -> Option<RsegUse> {
        rseg.users.enter().then(|| RsegUse(rseg.clone()))
    }

    /// For a transaction that was there before: while the database is opened, when all segments are active.
    pub fn adopt(rseg: &Arc<Rseg>) -> RsegUse {
        RsegUse::begin(rseg).expect("active until the database is open")
    }
}

impl Deref for RsegUse {
    type Target = Arc<Rseg>;

    fn deref(&self) -> &Arc<Rseg> {
        &self.0
    }
}

impl Drop for RsegUse {
    fn drop(&mut self) {
        self.0.users.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RSEG-6: not even for a moment, whatever others try.
    #[test]
    fn an_inactive_segment_without_users_stays_without() {
        let users = Users::default();
        assert!(users.enter() && users.is_active() && !users.are_none());
        users.set_active(false);
        assert!(!users.enter() && !users.is_active() && !users.are_none());
        users.leave();
        std::thread::scope(|scope| {
            let late = scope.spawn(|| (0..100_000).any(|_| users.enter()));
            while !late.is_finished() {
                assert!(users.are_none(), "RSEG-6");
            }
            assert!(!late.join().unwrap());
        });
        users.set_active(true);
        assert!(users.enter() && !users.are_none());
    }
}
