//! Going on behind old views: who is a member of the history store, and when what was copied goes again.
//!
//! Everything here is done by the coordinator. It walks over the views whenever it asks for the limit. A view
//! that holds the limit back, and did so at a walk `history_store_delay` ago, becomes a member in this walk;
//! the store is there by then. What was made for members goes in three ways: a sweep through the trees, a
//! part of it between two batches, once more than half is garbage; an index's when the index is gone; and all
//! at once when a walk finds no member.
//!
//! While the store is full, or can't be made, nothing fails: purge waits as it would without
//! (`RoundEnd::Full`). If its file fails, its members can't be served any more, whose statements say so.
//! Purge goes on without copying then, and there are no new members until the last one has gone, and the
//! store with it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::{Error, Result, Sabotage, TrxNo};
use crate::history::{Store, SweepPlace};
use crate::txn::{Core, HistoryOptions, Member, ViewKey};

/// How long a part of a sweep takes.
const SWEEP_PART: Duration = Duration::from_millis(10);
/// With fewer versions that nobody needs there is no sweep.
const LEAST_GARBAGE: u64 = 1000;

#[derive(Default)]
pub(super) struct Behind {
    /// The views that held purge back at the last walk, and since when that is known.
    waiting: HashMap<ViewKey, Instant>,
    /// In order, as of the last walk.
    members: Vec<Member>,
    sweep: Option<SweepPlace>,
    /// It was told that there is no store although there should be one.
    is_refusal_told: bool,
    /// The store had no room for a copy of the last batch.
    is_full: bool,
    is_fullness_told: bool,
}

/// Where versions are copied to, and for whom.
pub(super) struct CopyTo {
    pub store: Arc<Store>,
    /// In order.
    pub members: Vec<Member>,
}

impl Behind {
    /// The number below which logs may be worked off, once what members need is copied.
    pub fn limit(&mut self, core: &Core) -> TrxNo {
        let options = core.settings.history();
        let now = Instant::now();
        let is_ripe = |since: &Instant| now - *since >= options.delay;
        let joins = options.store
            && self.waiting.values().any(is_ripe)
            && self.is_store_ready(core, &options);
        let mut waiting = HashMap::new();
        let limit = core.sys.purge_limit_past(
            |view| {
                let since = *self.waiting.get(&view).unwrap_or(&now);
                let is_joining = joins && is_ripe(&since);
                if !is_joining {
                    waiting.insert(view, since);
                }
                is_joining
            },
            &mut self.members,
        );
        self.waiting = waiting;
        core.history
            .note_members(self.members.iter().map(Member::number));
        limit
    }

    /// Where copies go; `None` if nobody needs any.
    pub fn copy_to(&mut self, core: &Core) -> Option<CopyTo> {
        self.is_full = false;
        let store = core.history.store().filter(|_| !self.members.is_empty())?;
        store.check_usable().ok()?;
        let max_size = core.settings.history().max_size;
        store.set_max_bytes(core.history.max_bytes(max_size));
        Some(CopyTo {
            store,
            members: self.members.clone(),
        })
    }

    /// The versions of a batch were copied; but for some, with an error. Returns it if it is not the store's.
    pub fn after_copy(
        &mut self,
        core: &Core,
        store: &Store,
        failed: Option<Error>,
    ) -> Option<Error> {
        self.is_full = matches!(failed, Some(Error::NoSpace { .. }));
        match &failed {
            Some(e) if self.is_full => {
                core.history.counters.full.add(1);
                if !std::mem::replace(&mut self.is_fullness_told, true) {
                    core.warn(&format!(
                        "purge waits until an old read view is closed, or there is room: {e}"
                    ));
                }
                None
            }
            Some(e) if store.is_lost_by(e) => None,
            Some(_) => failed,
            None => {
                if std::mem::take(&mut self.is_fullness_told) {
                    core.note("the history store has room again, and purge goes on");
                }
                None
            }
        }
    }

    /// What is next to be purged can't be copied for now.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether there is a store for new members; makes one if there is none.
    fn is_store_ready(&mut self, core: &Core, options: &HistoryOptions) -> bool {
        let ready = core.history.open().and_then(|store| store.check_usable());
        if let (Err(e), false) = (&ready, self.is_refusal_told) {
            core.warn(&format!(
                "purge waits for views older than {:?}, since there is no history store: {e}",
                options.delay
            ));
        }
        self.is_refusal_told = ready.is_err();
        ready.is_ok()
    }

    /// Removes some of what nobody needs any more; `go_on` is asked now and then.
    pub fn tidy(&mut self, core: &Core, go_on: impl Fn() -> bool) -> Result<()> {
        let Some(store) = core.history.store() else {
            return Ok(());
        };
        self.limit(core);
        let is_sabotaged = |sabotage| core.log.is_sabotaged(sabotage);
        if is_sabotaged(Sabotage::StoreClosedTooEarly) {
            self.members.pop();
        }
        if self.members.is_empty() {
            drop(store);
            (self.sweep, self.is_full) = (None, false);
            return core.history.close().map(drop);
        }
        if store.check_usable().is_err() {
            return Ok(());
        }
        let done = self.tidy_some(core, &store, go_on);
        done.or_else(|e| match store.is_lost_by(&e) {
            true => Ok(()),
            false => Err(e),
        })
    }

    fn tidy_some(&mut self, core: &Core, store: &Store, go_on: impl Fn() -> bool) -> Result<()> {
        let before = store.versions();
        while let Some(index) = core.history.take_dropped() {
            store.forget(index)?;
        }
        core.history.counters.swept.add(before - store.versions());
        let mut members: Vec<TrxNo> = self.members.iter().map(Member::number).collect();
        if core.log.is_sabotaged(Sabotage::SweptTooEarly) {
            members.remove(0);
        }
        if self.sweep.is_none() {
            let garbage = store.garbage(&members);
            if garbage >= LEAST_GARBAGE && garbage > store.versions() / 2 {
                self.sweep = Some(SweepPlace::default());
            }
        }
        let Some(mut place) = self.sweep.take() else {
            return Ok(());
        };
        let end = Instant::now() + SWEEP_PART;
        let go_on = || go_on() && Instant::now() < end;
        let (removed, is_done) = store.sweep(&mut place, &members, go_on)?;
        core.history.counters.swept.add(removed);
        if !is_done {
            self.sweep = Some(place);
        }
        Ok(())
    }
}
