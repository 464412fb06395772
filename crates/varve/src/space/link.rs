//! Tables' files in other directories than the data directory: the table's name in the data directory is a
//! symbolic link to the file.
//!
//! The file's name ends with the tablespace's number (`target_name`), and it keeps its name and place as long
//! as the tablespace lives. What changes is the link: `RENAME` renames it, `TRUNCATE` makes another one. So
//! everything that goes by the names in the data directory finds a link where it would find a file, and the
//! link alone says which tablespace it is for when there is no file to be asked.
//!
//! - **LINK-1** There is no file without a link to it: the link is durable before the file is made, and goes
//!   when the file is gone for good. What a crash leaves is a link without a file, or both.
//! - **LINK-2** A link whose file is not there says nothing about the file if the file's directory is not
//!   there either: its disk may not be mounted. That is an error like those of the system that may pass
//!   (REC-4), and the link stays.
//! - **LINK-3** No link is written over by another one: the file that it leads to would have none.
//!
//! In what order things become durable, and what a crash in between leaves:
//!
//! | step | a crash before the next one leaves |
//! |---|---|
//! | CREATE: the directory and its parents | an empty directory, which stays |
//! | a link with the extension of what is unfinished | that link, which start-up removes |
//! | the file, its pages, its name | both, which start-up removes |
//! | the link gets its own name | a tablespace that no definition names, without rows: both are removed |
//! | the definition commits | the table |
//! | DROP: the commit with the record of the removal | both, which start-up removes by that record |
//! | the file goes | a link without a file, and the record: the link is removed |
//! | the link goes | nothing |
//!
//! `TRUNCATE` makes its new file as CREATE does, and after the commit takes the old link out of the way,
//! gives the new one its name, and drops the old tablespace.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::header::FileHeader;
use super::{Space, Spaces};
use crate::base::{Error, Result, SpaceId};
use crate::io::{DiskFile, OpenMode, create_directory};

/// So much of a table's name is in that of its file: a file system allows 255 bytes.
const LONGEST_STEM: usize = 200;

/// What a table's file in another directory is called. `stem` is for people.
pub fn target_name(stem: &str, space: SpaceId, extension: &str) -> String {
    let mut end = stem.len().min(LONGEST_STEM);
    while !stem.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{space}.{extension}", &stem[..end])
}

/// The number in such a name.
fn number_in(target: &Path) -> Option<SpaceId> {
    let (_, number) = target.file_stem()?.to_str()?.rsplit_once('-')?;
    number.parse().ok().map(SpaceId)
}

/// A link whose file is not there.
#[derive(Debug)]
pub struct Dangling {
    pub target: PathBuf,
    /// Which tablespace it is for, if the name says that.
    pub space: Option<SpaceId>,
    /// The file's directory is there: the file is gone (LINK-2).
    pub is_gone: bool,
}

impl Space {
    /// Where its file is, if the path is a link's.
    pub fn target(&self) -> Option<&Path> {
        self.target.as_deref()
    }
}

impl Spaces {
    /// Where the link at this path leads, if it is one.
    pub(super) fn target(&self, full: &Path) -> Result<Option<PathBuf>> {
        let said = self.disk.read_link(full)?;
        Ok(said.map(|said| full.parent().unwrap_or(&self.dir).join(said)))
    }

    /// A link that leads to no file.
    pub fn dangling(&self, path: &str) -> Result<Option<Dangling>> {
        let Some(target) = self.target(&self.dir.join(path))? else {
            return Ok(None);
        };
        if self.disk.exists(&target)? {
            return Ok(None);
        }
        Ok(Some(Dangling {
            space: number_in(&target),
            is_gone: self.has_directory(&target)?,
            target,
        }))
    }

    fn has_directory(&self, target: &Path) -> Result<bool> {
        target.parent().map_or(Ok(true), |at| self.disk.exists(at))
    }

    /// What is told of a file that could not be opened: of a link where it leads, too, and whether that may
    /// pass (LINK-2).
    pub(super) fn not_opened(&self, full: &Path, e: Error) -> Error {
        match &e {
            Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => {}
            _ => return e,
        }
        match self.target(full) {
            Ok(Some(target)) => match self.has_directory(&target) {
                Ok(true) => Error::io("open", full, led_to(ErrorKind::NotFound, &target, "")),
                Ok(false) => unreachable(full, &target),
                Err(why) => why,
            },
            _ => e,
        }
    }

    /// Makes a link and its file, durable, which `make` makes and `fill` fills.
    pub(super) fn make_linked<T>(
        &self,
        link: &Path,
        target: &Path,
        make: impl FnOnce(&Path) -> Result<Arc<dyn DiskFile>>,
        fill: impl FnOnce(Arc<dyn DiskFile>) -> Result<T>,
    ) -> Result<T> {
        let directory = target.parent().expect("a file in a directory");
        create_directory(&*self.disk, directory)?;
        if self.disk.exists(target)? {
            let what = format!("file {}", target.display());
            return Err(Error::AlreadyExists { what });
        }
        self.disk.link(target, link)?;
        // LINK-1
        let made = self.sync_parent(link).and_then(|()| make(target));
        let file = made.inspect_err(|e| {
            let is_anothers = |source: &io::Error| source.kind() == ErrorKind::AlreadyExists;
            if !matches!(e, Error::Io { source, .. } if is_anothers(source)) {
                let _ = self.disk.remove(target);
            }
            let _ = self.disk.remove(link);
        })?;
        let filled = fill(file)?;
        self.sync_parent(target)?;
        Ok(filled)
    }

    /// Removes what is left of a file that was being made (LINK-1). What is at the end of a link and can't be
    /// reached has no rows.
    pub fn remove_unfinished(&self, full: &Path) -> Result<()> {
        if let Some(target) = self.target(full)?
            && self.disk.exists(&target)?
            && !self.is_another_databases(&target)
        {
            self.remove_target(full, &target)?;
        }
        self.disk.remove(full)
    }

    fn is_another_databases(&self, target: &Path) -> bool {
        let header = self.disk.open(target, OpenMode::ReadOnly);
        let header = header.and_then(|file| FileHeader::read(&*file));
        header.is_ok_and(|header| header.intro.check_owner(&self.uuid, target).is_err())
    }

    /// Removes the file to which the link at `full` leads, for good (LINK-1).
    fn remove_target(&self, full: &Path, target: &Path) -> Result<()> {
        match self.disk.remove(target) {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                if !self.has_directory(target)? {
                    return Err(unreachable(full, target));
                }
            }
            done => done?,
        }
        self.sync_parent(target)
    }

    /// Removes a file, or a link and the file that it leads to, durably. If the file can't be removed the
    /// link stays.
    pub(super) fn remove_for_good(&self, full: &Path) -> Result<()> {
        if let Some(target) = self.target(full)? {
            self.remove_target(full, &target)?;
        }
        self.remove_link_at(full)
    }

    /// Removes a file that is not open as a tablespace. If it is a link, the file that it leads to stays.
    pub fn remove_name(&self, path: &str) -> Result<()> {
        self.remove_link_at(&self.dir.join(path))
    }

    fn remove_link_at(&self, full: &Path) -> Result<()> {
        match self.disk.remove(full) {
            // Somebody else has removed it.
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            done => done?,
        }
        self.sync_parent(full)
    }

    /// Removes a link whose file is gone.
    pub fn remove_link(&self, path: &str) -> Result<()> {
        let full = self.dir.join(path);
        if let Some(target) = self.target(&full)? {
            // An earlier process may have removed the file and no more.
            self.sync_parent(&target)?;
        }
        self.remove_link_at(&full)
    }

    /// Moves a link whose file is not there to a path that is free.
    pub fn move_link(&self, from: &str, to: &str) -> Result<()> {
        self.prepare_rename(to)?;
        self.stop_awaiting(to)?;
        self.move_unopened(from, to)
    }

    /// Moves what is not open as a tablespace to a path that is free.
    pub(super) fn move_unopened(&self, from: &str, to: &str) -> Result<()> {
        let moved = [from, to].map(|path| self.dir.join(path));
        self.disk.rename(&moved[0], &moved[1])?;
        self.sync_moved(&moved)
    }

    /// What `drop_space` does with a file at the end of a link. Its pages count until the file is gone: then
    /// the link can only be in the way.
    pub(super) fn drop_linked(&self, space: &Space, target: &Path) -> Result<()> {
        let going = self.hold_nameless(space);
        let mut full = PathBuf::new();
        let mut synced = Ok(());
        let gone = space.file.give_up(|path| {
            full = self.dir.join(path);
            let was_there = self.disk.exists(target)?;
            let done = self.remove_target(&full, target);
            match was_there && !self.disk.exists(target)? {
                true => synced = done,
                false => done?,
            }
            Ok(())
        })?;
        let removed = synced.and_then(|()| self.remove_link_at(&full));
        drop(gone);
        self.forget(space.id);
        self.let_go(going);
        removed
    }

    /// What `replace` does if the old file is at the end of a link (LINK-3).
    pub(super) fn replace_linked(&self, going: &Space, coming: &Space) -> Result<()> {
        let (from, to) = (coming.path(), going.path());
        let place = from.rfind('/').map_or("", |slash| &from[..=slash]);
        let extension = Path::new(&from).extension().unwrap_or_default();
        let aside = format!("{place}.replaced-{}.{}", going.id, extension.display());
        self.prepare_rename(&aside)?;
        self.move_file(going, &aside)?;
        let moved = self.move_file(coming, &to)?;
        self.sync_moved(&moved)?;
        self.drop_space(going.id)
    }
}

fn led_to(kind: ErrorKind, target: &Path, advice: &str) -> io::Error {
    let target = target.display();
    io::Error::new(
        kind,
        format!("it leads to {target}, which is not there{advice}"),
    )
}

/// LINK-2
fn unreachable(full: &Path, target: &Path) -> Error {
    let advice =
        ", nor is its directory; mount its disk, or remove the link if the file is gone for good";
    Error::io("open", full, led_to(ErrorKind::Other, target, advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_with_the_number() {
        for (stem, name) in [("t", "t-17.vdt"), ("a-1", "a-1-17.vdt"), ("", "-17.vdt")] {
            assert_eq!(target_name(stem, SpaceId(17), "vdt"), name);
            assert_eq!(number_in(Path::new(name)), Some(SpaceId(17)));
        }
        let long = target_name(&"ä".repeat(300), SpaceId(u32::MAX), "vdt");
        assert!(long.len() < 255 && number_in(Path::new(&long)) == Some(SpaceId(u32::MAX)));
        for other in ["t.vdt", "t-.vdt", "t-x.vdt", "t-5000000000.vdt"] {
            assert_eq!(number_in(Path::new(other)), None, "{other}");
        }
    }
}
