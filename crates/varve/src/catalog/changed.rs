//! When tables were changed last.
//!
//! A transaction remembers the tables that it changes, and tells each of them the time when it commits. That
//! is in memory only, and shared by the handles that a table has one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;

use crate::base::thread_spot;

const STRIPES: usize = 8;

/// A time of its own for some threads, with a count of references: a transaction keeps one, and a count that
/// all transactions shared would be written by all processors.
type Stripe = Arc<CachePadded<AtomicU64>>;

/// When a transaction that had changed the table committed last, in seconds since 1970. 0: it is not known
/// that one has. Relaxed: it stands for itself.
#[derive(Clone, Debug, Default)]
pub struct ChangeTime([Stripe; STRIPES]);

impl ChangeTime {
    pub fn get(&self) -> u64 {
        let times = self.0.iter().map(|time| time.load(Ordering::Relaxed));
        times.max().unwrap_or(0)
    }

    fn stripe(&self) -> &Stripe {
        &self.0[thread_spot() % STRIPES]
    }
}

/// The tables that a transaction has changed, each with the number of the first undo record about it, in the
/// order of these. One that several threads have changed for the transaction may be there more than once.
#[derive(Default)]
pub struct ChangedTables(SmallVec<[(Stripe, u64); 2]>);

impl ChangedTables {
    pub fn add(&mut self, table: &ChangeTime, undo_no: u64) {
        let stripe = table.stripe();
        let is_it = |(known, _): &(Stripe, u64)| Arc::ptr_eq(known, stripe);
        if !self.0.iter().rev().any(is_it) {
            self.0.push((stripe.clone(), undo_no));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What was done from this undo record on has been taken back.
    pub fn roll_back_to(&mut self, undo_no: u64) {
        self.0.retain(|(_, first)| *first < undo_no);
    }

    /// The transaction has committed.
    pub fn commit(&mut self) {
        if self.0.is_empty() {
            return;
        }
        // A clock that stands before 1970 knows no time.
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        self.0
            .drain(..)
            .for_each(|(table, _)| table.store(now.as_secs(), Ordering::Relaxed));
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_not_taken_back_is_told() {
        let tables: [ChangeTime; 3] = Default::default();
        let mut changed = ChangedTables::default();
        changed.add(&tables[0], 0);
        changed.add(&tables[1], 1);
        changed.add(&tables[0], 2);
        changed.add(&tables[2], 3);
        changed.roll_back_to(1);
        assert!(tables.iter().all(|table| table.get() == 0));
        changed.commit();
        let known = tables.each_ref().map(|table| table.get() != 0);
        assert_eq!(known, [true, false, false]);
        changed.commit();
        assert!(changed.0.is_empty());
    }
}
