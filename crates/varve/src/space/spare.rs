//! The spare: a file of zeros with its space on the disk. `TRUNCATE TABLE` makes the table's new file of it
//! when the disk is full, because the old one, which has all the room that is needed, can go only after the
//! new one counts. So does opening with the temporary tablespace, whose file went when the database was
//! closed.
//!
//! - **SP-10** The spare has its whole length and space, or it is not used: the thread that takes it makes
//!   durable that it has lost its name before writing to it, and one of another length is made anew. Nothing
//!   in it means anything.
//!
//! It is made when the database is opened, and again after it was used, by the next DDL that leaves room for
//! it: first of all the `TRUNCATE` itself, whose old file is gone then. If there is no room, that is no
//! error.

use std::sync::Arc;

use super::alloc_page::EXTENT_PAGES;
use super::{NewSpace, Space, Spaces};
use crate::base::{Error, Result};
use crate::io::OpenMode;

/// The spare, in the data directory.
pub const SPARE_FILE: &str = "truncate.spare";
/// Its pages: enough for the new file of nearly every table. One with more than 59 indexes has more, or one
/// with a very long definition.
const SPARE_PAGES: u32 = EXTENT_PAGES;

impl Spaces {
    /// Makes the spare if it is missing and there is room.
    pub fn keep_spare(&self) -> Result<()> {
        let mut is_there = self.spare.lock();
        if *is_there {
            return Ok(());
        }
        match self.make_spare() {
            Ok(()) => *is_there = true,
            Err(Error::NoSpace { .. }) => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    fn make_spare(&self) -> Result<()> {
        let path = self.dir.join(SPARE_FILE);
        let len = u64::from(SPARE_PAGES) * self.page_size as u64;
        if self.disk.exists(&path)? {
            let file = self.disk.open(&path, OpenMode::Existing)?;
            if file.len()? == len {
                return file.fill_holes();
            }
            drop(file);
            self.disk.remove(&path)?;
        }
        let file = self.disk.open(&path, OpenMode::CreateNew)?;
        let made = self
            .files()
            .with_room(|| file.allocate(len))
            .and_then(|()| {
                file.sync()?;
                self.disk.sync_dir(&self.dir)
            });
        drop(file);
        made.inspect_err(|_| {
            // What is left of it is removed by the next attempt.
            let _ = self.disk.remove(&path);
        })
    }

    /// Like [`Spaces::create`]; if the disk is full the file is made of the spare. If that fails, too, what
    /// was full is the error: the attempts may have left something behind that stands in each other's way.
    pub fn create_on_full_disk(&self, new: NewSpace<'_>) -> Result<Arc<Space>> {
        match self.create(new) {
            Err(full @ Error::NoSpace { .. }) if new.pages <= SPARE_PAGES => {
                // Nobody has looked for it yet while the database is being opened.
                let is_looked_for = self.keep_spare().is_ok();
                let made = is_looked_for.then(|| self.create_of_spare(new)).flatten();
                made.ok_or(full)
            }
            done => done,
        }
    }

    fn create_of_spare(&self, new: NewSpace<'_>) -> Option<Arc<Space>> {
        if !std::mem::take(&mut *self.spare.lock()) {
            return None;
        }
        // With room for as many pages again: it can't be extended now. The rest is given back.
        let pages = (2 * new.pages).min(SPARE_PAGES);
        let made = self.create_in(NewSpace { pages, ..new }, |path| {
            // The table's directory may be on another disk.
            self.disk.rename(&self.dir.join(SPARE_FILE), path)?;
            self.disk.sync_dir(&self.dir)?;
            let file = self.disk.open(path, OpenMode::Existing)?;
            file.set_len(u64::from(pages) * self.page_size as u64)?;
            Ok(file)
        });
        made.ok()
    }
}
