//! When the disk fails where the temporary tablespace is.
//!
//! What is in `temp.vdt` is gone at the next start anyway: its loss stops only statements that use temporary
//! tables.
//!
//! - **TEMP-6** Once a page of the temporary tablespace could not be written, or somebody who can't do
//!   without one could not read it, the tablespace is **lost** until the next start: no page of it is read or
//!   written any more. So nobody sees a page as it was before a change whose write failed.
//!
//! Who makes it so: the page cleaner when a write fails, for whatever reason; rollback, commit and purge when
//! they can't read a page, or find it damaged. A statement that can't read a page fails by itself; if it can
//! be taken back nothing is lost.
//!
//! What follows: pages that are dirty count as written, so that their frames can be used, and nobody tries
//! again to write them. Those that are not in the pool any more can't be read. Whoever uses or makes a
//! temporary table is refused, with the reason and with what to do about it ([`Spaces::check_temporary`]);
//! dropping one always works. A transaction that has changed temporary and other tables commits or rolls back
//! the others; its undo of temporary tables is forgotten ([`crate::undo::TrxUndo::forget_temporary`]). Purge
//! passes over the history of the temporary rollback segments. Checkpoints and closing have nothing to do
//! with any of it.
//!
//! Want of space is no failure of this kind: the file is extended before its pages are used, and a statement
//! that can't extend it is refused.

use crate::base::{Error, PageId, Result};

use super::Spaces;

impl Spaces {
    /// An error if temporary tables can't be used any more (TEMP-6).
    #[inline]
    pub fn check_temporary(&self) -> Result<()> {
        self.temporary_lost.get().cloned().map_or(Ok(()), Err)
    }

    /// No page of the temporary tablespace can be relied on from here on.
    pub fn lose_temporary(&self, why: &Error) {
        let space = self.all().into_iter().find(|s| !s.id().is_logged());
        let path = space.map_or_else(String::new, |space| space.path());
        let what = format!(
            "temporary tables can't be used any more ({why}): drop them, and restart to make others"
        );
        let lost = Error::io("use", self.dir.join(path), std::io::Error::other(what));
        if self.temporary_lost.set(lost.clone()).is_ok() {
            self.files().tell(&lost.to_string());
        }
    }

    /// The tablespace is lost, or `e` says that a page of it can't be read: then it is lost from here on.
    pub fn loses_temporary(&self, e: &Error) -> bool {
        let is_of_it = match e {
            Error::Corrupt { page, .. } => !page.space.is_logged(),
            Error::Io { path, .. } => (self.all().iter())
                .any(|space| !space.id().is_logged() && self.dir.join(space.path()) == *path),
            _ => false,
        };
        if is_of_it {
            self.lose_temporary(e);
        }
        is_of_it
    }

    /// Nobody will read the page any more.
    pub(super) fn is_lost(&self, page: PageId) -> bool {
        !page.space.is_logged() && self.temporary_lost.get().is_some()
    }
}
