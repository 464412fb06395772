//! Redo capacity that is claimed and at hand, so that most reservations write nothing that all threads share.
//!
//! A mini-transaction reserves much more than it uses, and would add to the claims of all at its beginning
//! and take from them at its end. Instead some threads share a **credit**: a reservation is taken out of it,
//! the rest of one goes back there, and only now and then it is made up for out of the claims of all. What is
//! there counts as claimed (LOG-1, LOG-2), so a reservation that comes out of it need not look at the bounds.
//!
//! - **CREDIT-1** Nobody waits for capacity while a credit keeps some. Who gives back adds it to the credit,
//!   then looks whether somebody waits, and takes all of it out again if so. Who waits makes that known, then
//!   takes out all credits, then looks at the claims. All of it is SeqCst: one of the two finds the other.
//! - **CREDIT-2** All credits together take a sixteenth of the capacity at most. Where that is too little for
//!   a reservation there are none.

use crossbeam_utils::CachePadded;

use crate::base::sync::{AtomicU64, Ordering::*, between_seq_cst};
use crate::base::thread_spot;

const STRIPES: usize = if cfg!(loom) { 1 } else { 16 };
/// CREDIT-2.
const CAPACITY_PART: u64 = 16;
/// A credit is no larger, whatever the capacity.
const MOST_BYTES: u64 = 1 << 20;
/// What is claimed beyond a reservation that finds too little at hand: more than a hundred small
/// mini-transactions use so much.
const AHEAD_BYTES: u64 = 64 << 10;

pub(super) struct Credit {
    stripes: Box<[CachePadded<AtomicU64>]>,
}

impl Credit {
    pub fn new() -> Credit {
        let stripe = |_| CachePadded::new(AtomicU64::new(0));
        Credit {
            stripes: (0..STRIPES).map(stripe).collect(),
        }
    }

    fn own(&self) -> &AtomicU64 {
        &self.stripes[thread_spot() % STRIPES]
    }

    /// What a credit may be (CREDIT-2).
    fn most(capacity: u64) -> u64 {
        (capacity / CAPACITY_PART / STRIPES as u64).min(MOST_BYTES)
    }

    /// What to claim in advance with a reservation of so many bytes.
    pub fn ahead(capacity: u64, bytes: u64) -> u64 {
        match bytes + AHEAD_BYTES <= Credit::most(capacity) {
            true => AHEAD_BYTES,
            false => 0,
        }
    }

    /// Takes so many bytes; false if there are fewer.
    #[inline]
    pub fn take(&self, bytes: u64) -> bool {
        let own = self.own();
        let mut at_hand = own.load(Relaxed);
        while at_hand >= bytes {
            // AcqRel is not needed: nothing but the number is handed on.
            match own.compare_exchange(at_hand, at_hand - bytes, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => at_hand = now,
            }
        }
        false
    }

    /// Gives bytes back. Returns how many are to be taken from the claims (CREDIT-1).
    #[inline]
    pub fn give(&self, bytes: u64, capacity: u64, is_awaited: impl Fn() -> bool) -> u64 {
        let own = self.own();
        if own.load(Relaxed) + bytes > Credit::most(capacity) {
            return bytes;
        }
        own.fetch_add(bytes, SeqCst);
        between_seq_cst();
        match is_awaited() {
            true => own.swap(0, SeqCst),
            false => 0,
        }
    }

    /// Takes out everything, which is to be taken from the claims.
    pub fn take_all(&self) -> u64 {
        self.stripes
            .iter()
            .map(|stripe| stripe.swap(0, SeqCst))
            .sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const CAPACITY: u64 = 1 << 30;

    #[test]
    fn what_is_given_is_taken_again() {
        let credit = Credit::new();
        assert!(!credit.take(8));
        assert_eq!(credit.give(1000, CAPACITY, || false), 0);
        assert!(credit.take(600) && !credit.take(600) && credit.take(400));
        assert_eq!(credit.give(50, CAPACITY, || true), 50, "CREDIT-1");
        assert_eq!(credit.take_all(), 0);
    }

    #[test]
    fn credits_are_a_small_part_of_the_capacity() {
        for capacity in [8 << 20, 64 << 20, 1 << 30, 1 << 40] {
            let credit = Credit::new();
            let bytes = 100 << 10;
            let kept = (0..1000).filter(|_| credit.give(bytes, capacity, || false) == 0);
            let kept = kept.count() as u64 * bytes;
            assert!(
                kept * STRIPES as u64 <= capacity / CAPACITY_PART,
                "CREDIT-2"
            );
            assert_eq!(credit.take_all(), kept);
            let ahead = Credit::ahead(capacity, bytes);
            assert_eq!(ahead > 0, capacity >= 64 << 20, "{capacity}");
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::base::model;

    /// CREDIT-1: 10 bytes are claimed, which one thread gives back and another one waits for.
    #[test]
    fn loom_nobody_waits_while_there_is_credit() {
        model::check(3, || {
            let credit = Arc::new(Credit::new());
            let claimed = Arc::new(AtomicU64::new(10));
            let waiters = Arc::new(AtomicU64::new(0));
            let giver = {
                let (credit, claimed, waiters) = (credit.clone(), claimed.clone(), waiters.clone());
                thread::spawn(move || {
                    let rest = credit.give(10, 1 << 30, || waiters.load(SeqCst) > 0);
                    claimed.fetch_sub(rest, SeqCst);
                    rest
                })
            };
            waiters.fetch_add(1, SeqCst);
            between_seq_cst();
            let taken_out = credit.take_all();
            claimed.fetch_sub(taken_out, SeqCst);
            let given = giver.join().unwrap();
            assert_eq!(given + taken_out, 10, "CREDIT-1");
            assert_eq!((claimed.load(SeqCst), credit.take_all()), (0, 0));
        });
    }
}
