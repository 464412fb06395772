//! Locks of tables.
//!
//! Table intents (IS, IX), which every statement takes, do not come to the lock table at all: the owner notes
//! them in its own list, as long as nobody wants the table for itself (`Shared`, `Exclusive`: *strong*
//! modes). An owner that does raises the table's count of strong requests first, then moves all noted intents
//! into the queue, then queues up itself.
//!
//! - **LOCK-3** An intent is noted under the owner's `Shared` mutex, after a look at the table's strong count
//!   under the same mutex. The strong request raises the count before it takes that mutex. So either the look
//!   sees the count, or the walk sees the intent.

use std::sync::atomic::Ordering;

use super::manager::{Acquired, LockManager, LockSys, STRONG_COUNTS, TrxLocks, Wait, wake_all};
use super::mode::{ModeSet, TableMode};
use super::owner::Owner;
use super::queue::Wakes;
use super::shard::Target;
use crate::base::sync::AtomicU32;
use crate::base::{Result, TableId};

impl LockManager {
    /// Locks a table.
    pub fn lock_table(
        &self,
        locks: &TrxLocks,
        table: TableId,
        mode: TableMode,
        wait: Wait<'_>,
    ) -> Result<Acquired> {
        if mode.is_intention()
            && let Some(acquired) = self.inner.note_intent(&locks.owner, table, mode)
        {
            return Ok(acquired);
        }
        if !mode.is_strong() {
            return self.inner.acquire(locks, Target::Table(table), mode, wait);
        }
        let strong = self.inner.strong_of(table);
        strong.fetch_add(1, Ordering::SeqCst);
        self.inner.move_intents(table);
        let result = self.inner.acquire(locks, Target::Table(table), mode, wait);
        if !matches!(result, Ok(Acquired::New | Acquired::Upgraded)) {
            strong.fetch_sub(1, Ordering::SeqCst);
        }
        result
    }

    /// Gives up one mode on a table: AUTO-INC at the end of the statement, LOCK TABLES, an intent on a table
    /// that was gone when it was granted. False if the owner does not hold it.
    pub fn unlock_table(&self, locks: &TrxLocks, table: TableId, mode: TableMode) -> bool {
        let was_noted = mode.is_intention() && locks.owner.shared.lock().forget_intent(table, mode);
        // It may be in the queue, too: an intent that was moved there, and taken again.
        self.unlock_in_queue(locks, table, mode) || was_noted
    }

    fn unlock_in_queue(&self, locks: &TrxLocks, table: TableId, mode: TableMode) -> bool {
        let Some((at, mut shard)) = self.inner.find(Target::Table(table)) else {
            return false;
        };
        let mut wakes = Wakes::new();
        let queue = shard.queue_mut(at.slot);
        let Some(left) = queue.release_mode(locks.owner.key, mode, &mut wakes) else {
            return false;
        };
        shard.remove_if_empty(at.slot);
        if left.is_empty() {
            locks.forget(at);
        }
        drop(shard);
        if mode.is_strong() {
            self.inner.strong_of(table).fetch_sub(1, Ordering::SeqCst);
        }
        wake_all(wakes);
        true
    }

    /// Turns the exclusive lock on a table into a weaker one, with nobody in between. False if the owner has
    /// none.
    pub fn weaken_table(&self, locks: &TrxLocks, table: TableId, to: TableMode) -> bool {
        let Some((at, mut shard)) = self.inner.find(Target::Table(table)) else {
            return false;
        };
        let mut wakes = Wakes::new();
        let key = locks.owner.key;
        let is_weaker = shard.queue_mut(at.slot).weaken(key, to, &mut wakes);
        drop(shard);
        if is_weaker && !to.is_strong() {
            // LOCK-3: it stays in the queue, where who wants the table for itself finds it.
            self.inner.strong_of(table).fetch_sub(1, Ordering::SeqCst);
        }
        wake_all(wakes);
        is_weaker
    }

    #[cfg(test)]
    pub fn holds_table(&self, locks: &TrxLocks, table: TableId, mode: TableMode) -> bool {
        let noted = noted(&locks.owner.shared.lock().intents, table);
        if noted.covers(mode) {
            return true;
        }
        let found = self.inner.find(Target::Table(table));
        found.is_some_and(|(at, shard)| {
            let held = shard.queue(at.slot).held_by(locks.owner.key);
            held.covers(mode)
        })
    }
}

impl LockSys {
    pub(super) fn strong_of(&self, table: TableId) -> &AtomicU32 {
        &self.strong[table.0 as usize & (STRONG_COUNTS - 1)]
    }

    /// LOCK-3. `None`: somebody wants the table for itself, so the intent has to queue up.
    fn note_intent(&self, owner: &Owner, table: TableId, mode: TableMode) -> Option<Acquired> {
        let mut shared = owner.shared.lock();
        let at = shared.intents.iter().position(|(t, _)| *t == table);
        if at.is_some_and(|at| shared.intents[at].1.covers(mode)) {
            return Some(Acquired::Already);
        }
        if self.strong_of(table).load(Ordering::SeqCst) != 0 {
            return None;
        }
        match at {
            Some(at) => {
                let modes = &mut shared.intents[at].1;
                *modes = modes.with(mode);
                Some(Acquired::Upgraded)
            }
            None => {
                shared.intents.push((table, ModeSet::EMPTY.with(mode)));
                Some(Acquired::New)
            }
        }
    }

    /// Moves all noted intents on a table into its queue. The strong count was raised before.
    fn move_intents(&self, table: TableId) {
        let (at, mut shard) = self.find_or_insert(Target::Table(table));
        for registry in &self.owners {
            let registry = registry.lock();
            for owner in registry.values() {
                let mut shared = owner.shared.lock();
                let modes = noted(&shared.intents, table);
                if modes.is_empty() {
                    continue;
                }
                shared.intents.retain(|(t, _)| *t != table);
                for mode in modes.iter() {
                    if shard.queue_mut(at.slot).grant(owner.key, mode) {
                        shared.adopted.push(at);
                    }
                }
            }
        }
        shard.remove_if_empty(at.slot);
    }
}

fn noted(intents: &[(TableId, ModeSet)], table: TableId) -> ModeSet {
    intents
        .iter()
        .find(|(t, _)| *t == table)
        .map_or(ModeSet::EMPTY, |(_, modes)| *modes)
}
