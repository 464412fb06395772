//! The AUTO-INC lock: a statement's AUTO_INCREMENT values without others' in between.
//!
//! A table's counter gives values in one atomic step, so they are unique whatever happens. A statement that
//! does not know how many rows it inserts draws several times. If its values are to be consecutive, it locks
//! the table in mode AUTO-INC at its first draw and gives the lock up at its end, long before its transaction
//! ends.
//!
//! - **AUTOINC-1** While a statement holds the lock, only statements that asked for no lock draw values. A
//!   statement that wants the lock announces that, then queues up for the lock. A statement that draws
//!   without it sees the announcement and queues up, too, or its draw is over before that (DRAW-1).

use std::sync::Arc;

use crate::base::Result;
use crate::catalog::OpenTable;
use crate::lock::TableMode;

use super::transaction::Transaction;

/// Whether a statement keeps others from drawing AUTO_INCREMENT values between its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AutoIncLock {
    /// It does not, and draws between those of others.
    None,
    /// It draws all its values at once, but not between those of a statement that holds the lock.
    AfterOthers,
    /// It holds the lock until it ends.
    Statement,
}

impl Transaction {
    /// Takes `n` consecutive values for the running statement; returns the first.
    pub(crate) fn draw_auto_increment(
        &mut self,
        table: &Arc<OpenTable>,
        n: u64,
        lock: AutoIncLock,
    ) -> Result<u64> {
        let holds = self.auto_inc.iter().any(|held| held.id() == table.id());
        if !holds && lock != AutoIncLock::None {
            if lock == AutoIncLock::AfterOthers
                && let Some(first) = table.reserve_auto_increment_unlocked(n)
            {
                return Ok(self.has_drawn(table, first, n));
            }
            self.lock_auto_inc(table)?;
        }
        let first = table.reserve_auto_increment(n);
        Ok(self.has_drawn(table, first, n))
    }

    fn has_drawn(&mut self, table: &OpenTable, first: u64, n: u64) -> u64 {
        self.drawn = Some((table.id(), first.saturating_add(n)));
        first
    }

    /// Makes the table's counter greater than a row's value. What the statement has drawn is below it, and
    /// need not look at what all threads write.
    pub(crate) fn raise_auto_increment(&self, table: &OpenTable, value: u64) {
        let is_drawn = |(of, next)| of == table.id() && value < next;
        if !self.drawn.is_some_and(is_drawn) {
            table.raise_auto_increment(value.saturating_add(1));
        }
    }

    fn lock_auto_inc(&mut self, table: &Arc<OpenTable>) -> Result<()> {
        self.check_active()?;
        self.check_database(table)?;
        table.announce_auto_inc_lock();
        let locks = &self.core().locks;
        let mode = TableMode::AutoInc;
        locks
            .lock_table(self.locks(), table.id(), mode, self.wait())
            .inspect_err(|_| table.withdraw_auto_inc_lock())?;
        self.auto_inc.push(table.clone());
        Ok(())
    }

    /// The statement has ended: gives up the AUTO-INC locks that it took.
    pub fn end_statement(&mut self) {
        self.drawn = None;
        while let Some(table) = self.auto_inc.pop() {
            let core = self.core();
            core.locks
                .unlock_table(self.locks(), table.id(), TableMode::AutoInc);
            table.withdraw_auto_inc_lock();
        }
    }
}
