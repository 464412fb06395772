//! When the disk fails where an unlogged tablespace is.
//!
//! What is in one is gone at the next start anyway: its loss stops only who uses it.
//!
//! - **TEMP-6** Once a page of an unlogged tablespace could not be written, or somebody who can't do without
//!   one could not read it, the tablespace is **lost** until the next start: no page of it is read or written
//!   any more. So nobody sees a page as it was before a change whose write failed.
//!
//! Who makes it so: the page cleaner when a write fails, for whatever reason; of the temporary tablespace
//! also rollback, commit and purge when they can't read a page, or find it damaged. A statement that can't
//! read a page fails by itself; if it can be taken back nothing is lost.
//!
//! What follows: pages that are dirty count as written, so that their frames can be used, and nobody tries
//! again to write them. Those that are not in the pool any more can't be read. Checkpoints and closing have
//! nothing to do with any of it.
//!
//! Of the temporary tablespace: whoever uses or makes a temporary table is refused, with the reason and with
//! what to do about it ([`Spaces::check_temporary`]); dropping one always works. A transaction that has
//! changed temporary and other tables commits or rolls back the others; its undo of temporary tables is
//! forgotten ([`crate::undo::TrxUndo::forget_temporary`]). Purge passes over the history of the temporary
//! rollback segments.
//!
//! Want of space is no failure of this kind: the file is extended before its pages are used, and a statement
//! that can't extend it is refused.

use std::io;

use crate::base::{Error, Result, SpaceId, TEMP_SPACE};

use super::{Space, Spaces};

impl Space {
    /// An error if no page of the tablespace can be relied on any more (TEMP-6).
    #[inline]
    pub fn check_not_lost(&self) -> Result<()> {
        let lost = self.lost.get();
        lost.map_or(Ok(()), |error| Err(Error::clone(error)))
    }

    /// Nobody will read its pages any more.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }
}

impl Spaces {
    /// An error if temporary tables can't be used any more (TEMP-6).
    #[inline]
    pub fn check_temporary(&self) -> Result<()> {
        let space = self.get(TEMP_SPACE);
        space.map_or(Ok(()), |space| space.check_not_lost())
    }

    /// No page of an unlogged tablespace can be relied on from here on.
    pub fn lose(&self, id: SpaceId, why: &Error) {
        assert!(!id.is_logged(), "TEMP-6: {id} is redo-logged");
        let Some(space) = self.get(id) else {
            return;
        };
        let what = match id {
            TEMP_SPACE => format!(
                "temporary tables can't be used any more ({why}): drop them, and restart to make others"
            ),
            _ => format!("it can't be used any more: {why}"),
        };
        let path = self.dir.join(space.path());
        let lost = Error::io("use", path, io::Error::other(what));
        if space.lost.set(Box::new(lost.clone())).is_ok() {
            self.files().tell(&lost.to_string());
        }
    }

    /// As `loses`, of the temporary tablespace.
    pub fn loses_temporary(&self, e: &Error) -> bool {
        self.loses(TEMP_SPACE, e)
    }

    /// The tablespace is lost, or `e` says that a page of it can't be read: then it is lost from here on.
    pub fn loses(&self, id: SpaceId, e: &Error) -> bool {
        let is_at = |path| (self.get(id)).is_some_and(|s| self.dir.join(s.path()) == path);
        let is_of_it = match e {
            Error::Corrupt { page, .. } => page.space == id,
            Error::Io { path, .. } => is_at(path.as_path()),
            _ => false,
        };
        if is_of_it {
            self.lose(id, e);
        }
        is_of_it
    }
}
