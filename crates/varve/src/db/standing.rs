//! What stands in whose way at the moment: the oldest read view and what is kept for it, and who waits for a
//! lock. For programs; `report` tells people the same and more.

use std::time::Duration;

use super::Database;
use super::transactions::{LockWaitInfo, lock_waits};
use crate::base::TrxNo;
use crate::history::Amount;
use crate::txn::Core;

/// See [`Database::standing`].
#[derive(Clone, Debug)]
pub struct Standing {
    pub oldest_view: Option<OldView>,
    /// The oldest view that purge waits for. It may be a younger one than the oldest: purge goes on behind
    /// members of the history store.
    pub purge_waits_for: Option<TrxNo>,
    /// `None` without a history store.
    pub history_store: Option<StoreRoom>,
    /// Those who have waited longest first.
    pub lock_waits: Vec<LockWaitInfo>,
    /// Why the database takes no more work, if it does not.
    pub unusable: Option<String>,
}

/// The oldest open read view.
#[derive(Clone, Copy, Debug)]
pub struct OldView {
    pub number: TrxNo,
    /// Whose it is, as in [`Transaction::set_session`](crate::Transaction::set_session); 0: nobody's.
    pub session: u64,
    /// For how long it is known to have been the oldest.
    pub open_for: Duration,
    /// What the history store has for it, if purge goes on behind it.
    pub kept: Option<Kept>,
}

/// Versions in the history store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    pub versions: u64,
    pub bytes: u64,
}

/// How much room the history store has.
#[derive(Clone, Debug)]
pub struct StoreRoom {
    pub bytes: u64,
    pub max_bytes: u64,
    /// Why it can't be used, if it can't.
    pub lost: Option<String>,
}

impl Database {
    /// What holds purge back and who waits for whom, for programs.
    pub fn standing(&self) -> Standing {
        standing(&self.inner.core)
    }
}

pub fn standing(core: &Core) -> Standing {
    let members = core.history.members();
    let is_member = |view: TrxNo| members.iter().any(|(member, _)| *member == view);
    let oldest_view = core.oldest_view().map(|(number, open_for)| OldView {
        number,
        session: (core.locks.owner_of_view(number)).map_or(0, |owner| owner.session),
        open_for,
        kept: is_member(number).then(|| kept_for(core, number)),
    });
    let views = core.sys.view_numbers().into_iter();
    Standing {
        oldest_view,
        purge_waits_for: views.filter(|view| !is_member(*view)).min(),
        history_store: core.history.store().map(|store| StoreRoom {
            bytes: store.bytes().unwrap_or(0),
            max_bytes: core.history.max_bytes(core.settings.history().max_size),
            lost: store.check_usable().err().map(|e| e.to_string()),
        }),
        lock_waits: lock_waits(core),
        unusable: core.check_usable().err().map(|e| e.to_string()),
    }
}

/// What the store has for a member.
pub fn kept_for(core: &Core, member: TrxNo) -> Kept {
    let store = core.history.store();
    let Amount { versions, bytes } =
        store.map_or(Amount::default(), |store| store.amount_for(member));
    Kept { versions, bytes }
}
