//! The read view of a transaction, and what lists of transactions say of whose it is.

use std::time::Duration;

use super::{Isolation, Transaction};
use crate::txn::ReadView;

impl Transaction {
    /// Whose transaction it is, for lists of transactions: any number but 0, which is nobody's. It lasts
    /// until the transaction ends.
    pub fn set_session(&mut self, session: u64) {
        self.locks().shown().set_session(session);
    }

    /// How long it has waited for locks since this was asked for last, or since it began.
    pub fn take_lock_wait(&mut self) -> Duration {
        self.locks().take_waited()
    }

    /// Opens the read view now rather than at the first read (START TRANSACTION WITH CONSISTENT SNAPSHOT).
    pub fn take_snapshot(&mut self) {
        self.open_view();
    }

    /// Opens the read view if there is none.
    pub(crate) fn open_view(&mut self) {
        if self.view.is_none() {
            let place = self.view_place.take();
            let place = place.unwrap_or_else(|| self.core.sys.view_place());
            let view = place.open(self.id);
            self.locks().shown().set_view(Some(view.number()));
            self.view = Some(view);
            self.read_epoch += 1;
        }
    }

    pub(super) fn close_view(&mut self) {
        if let Some(view) = self.view.take() {
            self.view_place = Some(view.close());
            self.locks().shown().set_view(None);
        }
    }

    /// Closes the view, and gives its place away.
    pub(super) fn drop_view(&mut self) {
        self.view = None;
        self.locks().shown().set_view(None);
    }

    /// The view if one is open.
    #[cfg(feature = "internals")]
    pub fn current_view(&self) -> Option<&ReadView> {
        self.view.as_ref()
    }

    /// Opens the view that plain reads go by, if the isolation level has them go by one.
    pub(crate) fn open_read_view(&mut self) {
        if self.isolation != Isolation::ReadUncommitted {
            self.open_view();
        }
    }

    /// While it stays the same, reads by the view give the same, but for the transaction's own changes.
    pub(crate) fn read_epoch(&self) -> u64 {
        self.read_epoch
    }

    /// The view that plain reads go by; `None` if they see the newest versions. `open_read_view` was called.
    pub(crate) fn read_view(&self) -> Option<&ReadView> {
        let by_view = self.isolation != Isolation::ReadUncommitted;
        by_view.then(|| self.view.as_ref().expect("open_read_view was called"))
    }
}
