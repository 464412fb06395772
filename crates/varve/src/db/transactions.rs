//! The transactions that run, what each pins, and who waits for whom: for people and for tables about them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::base::{IndexId, SpaceId, TrxId, TrxNo, fnv1a};
use crate::catalog::OpenTable;
use crate::lock::{
    LockDescription, LockOwner, LockTarget, LockWaiting, SessionText, ShownTransaction, TableMode,
};
use crate::txn::{Core, IdState, Isolation};

use super::key_text::{hex, key_text};
use super::standing::{Kept, kept_for};
use super::{Database, report};

/// What a transaction is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransactionState {
    /// It runs, or its user does something else.
    Running,
    LockWait,
    RollingBack,
    Committing,
}

/// A running transaction, as it is at the moment.
#[derive(Clone, Debug)]
pub struct TransactionInfo {
    /// Tells it from all others: its id, or if it has written nothing a number from 2^56 on.
    pub number: u64,
    /// Its id, which it draws when it writes first.
    pub id: Option<TrxId>,
    /// As in [`Transaction::set_session`](crate::Transaction::set_session); 0: nobody's.
    pub session: u64,
    pub state: TransactionState,
    /// Its coordinator decides.
    pub prepared: bool,
    pub isolation: Isolation,
    /// Undo records that it has written, those that were rolled back to a savepoint included.
    pub changes: u64,
    /// Locks on rows, on tables, and indexes in which it has locked gaps. A row that it wrote is among them
    /// if it had locked it before, or somebody has waited for it.
    pub locks: u64,
    pub rows_locked: u64,
    pub tables_locked: u64,
    /// Memory of its locks, about.
    pub lock_bytes: u64,
    /// The lock that it waits for ([`LockInfo::id`]), and since when.
    pub waits: Option<(String, Duration)>,
    pub view: Option<ViewInfo>,
}

/// The open read view of a transaction, and what there is only because it is open.
#[derive(Clone, Copy, Debug)]
pub struct ViewInfo {
    /// It sees no id from here on, but its own, and no commit with a number from here on.
    pub number: TrxNo,
    /// It sees every id below.
    pub sees_below: TrxId,
    /// Purge goes on behind it: the history store has what it needs.
    pub in_history_store: bool,
    /// Undo logs of committed transactions that purge can't remove before the view is closed. Counted for the
    /// oldest view that purge waits for; of others estimated from the numbers drawn since.
    pub pinned_history: u64,
    /// The pages of undo that they fill, in the same way; of those from before the last start one page each.
    pub pinned_undo_bytes: u64,
    /// What the history store has that this view needs; others may need it, too.
    pub pinned_versions: u64,
    pub pinned_bytes: u64,
}

/// A lock that somebody waits for or is in the way with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockInfo {
    /// Tells it from all others: whose it is, and what is locked.
    pub id: String,
    /// [`TransactionInfo::number`] of whose it is.
    pub transaction: u64,
    pub session: u64,
    /// As InnoDB writes it: `S`, `X`, `S,GAP`, `X,GAP`, `IS`, `IX`, `AUTO_INC`.
    pub mode: &'static str,
    /// The table, as `schema/table`.
    pub table: String,
    pub space: Option<SpaceId>,
    /// The index of a row or gap; `None` for a lock on the table.
    pub index: Option<String>,
    /// The values of the key that is locked, in the order of the index.
    pub key: Option<String>,
}

/// A transaction waits for a lock.
#[derive(Clone, Debug)]
pub struct LockWaitInfo {
    pub wanted: LockInfo,
    pub waited: Duration,
    /// What is in its way. If nobody holds it, it waits for its turn, behind these.
    pub blocking: Vec<LockInfo>,
}

impl Database {
    /// All running transactions, those of the engine itself included, in the order in which they began on
    /// each processor.
    pub fn transactions(&self) -> Vec<TransactionInfo> {
        list(&self.inner.core)
    }

    /// Who waits for which lock, and who is in the way; those that have waited longest come first.
    pub fn lock_waits(&self) -> Vec<LockWaitInfo> {
        lock_waits(&self.inner.core)
    }

    /// Has the reports of deadlocks say what their members' sessions were doing, by their numbers. To be
    /// called by who got [`Error::Deadlock`](crate::Error::Deadlock), before it rolls back: until then the
    /// others wait for it. Returns the reports of those deadlocks, a text for each, which is written as it is
    /// taken; of the newest 64, if nobody has asked for long.
    pub fn describe_deadlocks(
        &self,
        session: impl Fn(u64) -> Option<SessionText>,
    ) -> impl Iterator<Item = String> {
        let core = &self.inner.core;
        let reports = core.locks.describe_deadlocks(session).into_iter();
        reports.map(|report| report::of_deadlock(core, &report))
    }

    /// When the last deadlock was found that the report tells.
    pub fn last_deadlock(&self) -> Option<SystemTime> {
        self.inner.core.locks.last_deadlock()
    }

    /// Whether deadlocks are looked for when a wait for a lock begins; they are unless this says otherwise.
    /// Without it each of their members waits for as long as its timeout says. When it is turned on, those
    /// that have come about meanwhile are broken.
    pub fn set_deadlock_detection(&self, on: bool) {
        self.inner.core.locks.set_deadlock_detection(on);
    }
}

/// Numbers of transactions without an id begin here; ids end below.
const WITHOUT_ID: u64 = 1 << 56;

/// As `TransactionInfo::number`.
pub fn number_of(owner: &LockOwner) -> u64 {
    owner.trx.map_or(WITHOUT_ID + owner.number, |id| id.0)
}

pub fn list(core: &Core) -> Vec<TransactionInfo> {
    let states: HashMap<TrxId, IdState> = core.sys.unfinished().into_iter().collect();
    let views: HashMap<TrxNo, TrxId> = (core.sys.views().into_iter())
        .map(|view| (view.number, view.sees_below))
        .collect();
    let members: Vec<TrxNo> = core
        .history
        .members()
        .into_iter()
        .map(|(no, _)| no)
        .collect();
    let history = History::now(core);
    let describe = |shown: ShownTransaction| {
        let id = shown.owner.trx;
        let state = id.and_then(|id| states.get(&id));
        let view = shown.view.and_then(|number| {
            // It may have been closed meanwhile.
            let sees_below = *views.get(&number)?;
            let kept = members.contains(&number).then(|| kept_for(core, number));
            Some(view_info(&history, number, sees_below, kept))
        });
        TransactionInfo {
            number: number_of(&shown.owner),
            id,
            session: shown.owner.session,
            state: match state {
                _ if shown.waits.is_some() => TransactionState::LockWait,
                _ if shown.rolls_back => TransactionState::RollingBack,
                Some(IdState::Committing { .. }) => TransactionState::Committing,
                _ => TransactionState::Running,
            },
            prepared: matches!(state, Some(IdState::Prepared)),
            isolation: Isolation::of(shown.isolation),
            changes: shown.changes,
            locks: shown.locks.count(),
            rows_locked: shown.locks.records,
            tables_locked: shown.locks.tables,
            lock_bytes: shown.locks.bytes,
            waits: shown
                .waits
                .map(|(wants, waited)| (lock_id(&shown.owner, &wants.target), waited)),
            view,
        }
    };
    core.locks
        .transactions()
        .into_iter()
        .map(describe)
        .collect()
}

/// `kept`: what the history store has for it, if purge goes on behind it.
fn view_info(history: &History, number: TrxNo, sees_below: TrxId, kept: Option<Kept>) -> ViewInfo {
    let (pinned_history, pinned_undo_bytes) = match kept {
        Some(_) => (0, 0),
        None => history.since(number),
    };
    let in_history_store = kept.is_some();
    let Kept { versions, bytes } = kept.unwrap_or_default();
    ViewInfo {
        number,
        sees_below,
        in_history_store,
        pinned_history,
        pinned_undo_bytes,
        pinned_versions: versions,
        pinned_bytes: bytes,
    }
}

/// What purge has not removed yet.
struct History {
    logs: u64,
    bytes: u64,
    oldest: Option<TrxNo>,
    /// The next number.
    end: u64,
}

impl History {
    fn now(core: &Core) -> History {
        History {
            logs: core.undo.history_len(),
            bytes: core.undo.history_bytes(),
            oldest: core.undo.oldest(),
            end: core.sys.next_id(),
        }
    }

    /// Its logs with numbers from `view` on, and their bytes. If some are below, as many as there would be if
    /// the numbers were spread evenly.
    fn since(&self, view: TrxNo) -> (u64, u64) {
        let Some(oldest) = self.oldest else {
            return (0, 0);
        };
        if view <= oldest {
            return (self.logs, self.bytes);
        }
        let since = self.end.saturating_sub(view.0);
        let all = self.end.saturating_sub(oldest.0).max(1);
        let share = |of: u64| (u128::from(of) * u128::from(since) / u128::from(all)) as u64;
        (share(self.logs), share(self.bytes))
    }
}

/// Without a look at the lock table while nobody waits.
pub fn lock_waits(core: &Core) -> Vec<LockWaitInfo> {
    if core.locks.stats().current_waits == 0 {
        return Vec::new();
    }
    let tables = core.tables.all_open();
    let describe = |wait: LockWaiting| {
        let LockDescription { target, mode } = &wait.wants;
        let blocking = wait.holders.iter();
        LockWaitInfo {
            wanted: lock_info(core, &tables, &wait.owner, target, *mode),
            waited: wait.waited,
            blocking: blocking
                .map(|(owner, mode)| lock_info(core, &tables, owner, target, *mode))
                .collect(),
        }
    };
    core.locks.waiting().into_iter().map(describe).collect()
}

fn lock_id(owner: &LockOwner, target: &LockTarget) -> String {
    let number = number_of(owner);
    let hash = |key: &[u8]| fnv1a(key.iter().copied());
    match target {
        LockTarget::Table(table) => format!("{number}:{table}"),
        LockTarget::Record { index, key } => format!("{number}:{index}:{:016x}", hash(key)),
        LockTarget::Insert { index, key } => format!("{number}:{index}:gap:{:016x}", hash(key)),
    }
}

/// `tables` are those that are open, as all are that have locks.
pub fn lock_info(
    core: &Core,
    tables: &[Arc<OpenTable>],
    owner: &LockOwner,
    target: &LockTarget,
    mode: TableMode,
) -> LockInfo {
    let found = |id: IndexId| {
        let mut found = tables
            .iter()
            .filter_map(|table| Some((&**table, table.index(id)?)));
        found.next()
    };
    let (table, index, key) = match target {
        LockTarget::Table(id) => {
            let table = tables.iter().find(|table| table.id() == *id);
            let name = core.tables.name_of(*id);
            ((name, table.map(|table| table.space())), None, None)
        }
        LockTarget::Record { index, key } | LockTarget::Insert { index, key } => {
            match found(*index) {
                Some((table, at)) => {
                    let name = (table.def.name.clone(), Some(table.space()));
                    (name, Some(at.name.clone()), Some(key_text(table, at, key)))
                }
                None => (
                    (String::new(), None),
                    Some(format!("number {index}")),
                    Some(hex(key)),
                ),
            }
        }
    };
    let is_gap = matches!(target, LockTarget::Insert { .. });
    LockInfo {
        id: lock_id(owner, target),
        transaction: number_of(owner),
        session: owner.session,
        mode: match (mode, is_gap) {
            (TableMode::Shared, true) => "S,GAP",
            (_, true) => "X,GAP",
            (TableMode::AutoInc, _) => "AUTO_INC",
            (mode, _) => mode.name(),
        },
        table: table.0,
        space: table.1,
        index,
        key,
    }
}
