//! When tables were changed last.
//!
//! A transaction remembers the tables that it changes, and tells each of them the time when it commits. That
//! is in memory only, and shared by the handles that a table has one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use smallvec::SmallVec;

/// When a transaction that had changed the table committed last, in seconds since 1970. 0: it is not known
/// that one has. Relaxed: it stands for itself.
#[derive(Clone, Debug, Default)]
pub struct ChangeTime(Arc<AtomicU64>);

impl ChangeTime {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, now: u64) {
        // Most leave the shared cache line alone.
        if self.get() != now {
            self.0.store(now, Ordering::Relaxed);
        }
    }
}

/// The tables that a transaction has changed, each with the number of the first undo record about it, in the
/// order of these.
#[derive(Default)]
pub struct ChangedTables(SmallVec<[(ChangeTime, u64); 2]>);

impl ChangedTables {
    pub fn add(&mut self, table: &ChangeTime, undo_no: u64) {
        let is_it = |(known, _): &(ChangeTime, u64)| Arc::ptr_eq(&known.0, &table.0);
        if !self.0.iter().rev().any(is_it) {
            self.0.push((table.clone(), undo_no));
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
            .for_each(|(table, _)| table.set(now.as_secs()));
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
