//! What stands in whose way at the moment: the oldest read view and what is kept for it, and who waits for a
//! lock. For programs; `report` tells people the same and more.

use std::time::Duration;

use super::Database;
use super::report::purged_below;
use super::transactions::{LockWaitInfo, lock_waits};
use crate::base::TrxNo;
use crate::history::Amount;
use crate::txn::{Core, PurgeState};

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

/// How far purge has come.
#[derive(Clone, Debug)]
pub struct PurgeStanding {
    pub state: PurgeState,
    /// Undo logs of committed transactions that are not purged yet.
    pub history: u64,
    /// The pages of undo that they fill; of those from before the last start one page each.
    pub history_bytes: u64,
    /// Everything that was committed with a lower number is purged.
    pub purged_below: TrxNo,
    /// The view that purge can't go beyond, and whose it is, as in
    /// [`Transaction::set_session`](crate::Transaction::set_session). Each statement has one for a moment.
    pub waits_for: Option<(TrxNo, u64)>,
    /// Logs a second, as of purge's last batches: those that it works off at the pace that it has, and those
    /// that joined the history meanwhile.
    pub working_off: f64,
    pub joining: f64,
    /// When the history will have been worked off, at these speeds; `None` if a view or an error has stopped
    /// purge, if it is not faster than the history grows, and if it has not worked off anything yet.
    pub left: Option<Duration>,
}

/// So few logs are worked off before anybody has read that they are there.
const HARDLY_ANY: u64 = 100;

impl PurgeStanding {
    fn of(core: &Core) -> PurgeStanding {
        let progress = &core.purge_progress;
        let (state, history) = (progress.state(), core.undo.history_len());
        let (working_off, joining) = (progress.working_off(), progress.joining());
        PurgeStanding {
            state,
            history,
            history_bytes: core.undo.history_bytes(),
            purged_below: purged_below(core),
            waits_for: purge_waits_for(core, is_member(core))
                .map(|view| (view, session_of(core, view))),
            working_off,
            joining,
            left: time_left(state, history, working_off - joining),
        }
    }
}

/// `headway`: by so much the history becomes shorter in each second.
fn time_left(state: PurgeState, history: u64, headway: f64) -> Option<Duration> {
    if state == PurgeState::Stopped {
        return None;
    }
    if history <= HARDLY_ANY {
        return Some(Duration::ZERO);
    }
    let seconds = (headway > 0.0).then(|| history as f64 / headway)?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn session_of(core: &Core, view: TrxNo) -> u64 {
    (core.locks.owner_of_view(view)).map_or(0, |owner| owner.session)
}

fn is_member(core: &Core) -> impl Fn(TrxNo) -> bool {
    let members = core.history.members();
    move |view| members.iter().any(|(member, _)| *member == view)
}

fn purge_waits_for(core: &Core, is_member: impl Fn(TrxNo) -> bool) -> Option<TrxNo> {
    let views = core.sys.view_numbers().into_iter();
    views.filter(|view| !is_member(*view)).min()
}

impl Database {
    /// How far purge has come, and when it will be through.
    pub fn purge_standing(&self) -> PurgeStanding {
        PurgeStanding::of(&self.inner.core)
    }

    /// What holds purge back and who waits for whom, for programs.
    pub fn standing(&self) -> Standing {
        standing(&self.inner.core)
    }
}

pub fn standing(core: &Core) -> Standing {
    let is_member = is_member(core);
    let oldest_view = core.oldest_view().map(|(number, open_for)| OldView {
        number,
        session: session_of(core, number),
        open_for,
        kept: is_member(number).then(|| kept_for(core, number)),
    });
    Standing {
        oldest_view,
        purge_waits_for: purge_waits_for(core, is_member),
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn purge_is_through_when_the_history_is() {
        let seconds = |state, history, headway| {
            time_left(state, history, headway).map(|left| left.as_secs_f64())
        };
        assert_eq!(seconds(PurgeState::Running, 5000, 1000.0), Some(5.0));
        assert_eq!(seconds(PurgeState::Idle, 100, -1.0), Some(0.0));
        assert_eq!(seconds(PurgeState::Running, 5000, 0.0), None);
        assert_eq!(seconds(PurgeState::Running, 5000, -9.0), None);
        assert_eq!(seconds(PurgeState::Running, 5000, f64::NAN), None);
        assert_eq!(seconds(PurgeState::Running, u64::MAX, 1e-9), None);
        assert_eq!(seconds(PurgeState::Stopped, 5000, 1000.0), None);
    }
}
