//! Which tablespaces a database has, and where their files are.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use crate::base::{Error, Result, SpaceId};
use crate::ddl::lookups::Prefix;
use crate::ddl::{Ddl, FILE_EXTENSION, lost_mark_path, table_path};
use crate::io::{DiskFile, OpenMode};
use crate::space::{FileHeader, SpaceKind, awaited_mark_path};
use crate::txn::{Isolation, Transaction};

/// A file that is looked for is given another name meanwhile at most so often.
const TRIES: usize = 4;

/// A tablespace.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub space: SpaceId,
    /// In the data directory, when it was listed.
    pub path: String,
    /// In the backup.
    pub place: String,
    /// The marks beside it (format.md), if there are any.
    pub marks: Vec<String>,
    /// It has no file: what is in its place is a user's, or nothing.
    pub is_discarded: bool,
}

/// Finds tablespaces.
pub(super) struct Lister {
    ddl: Arc<Ddl>,
}

impl Lister {
    pub fn new(ddl: Arc<Ddl>) -> Lister {
        Lister { ddl }
    }

    /// All tablespaces but those of undo, by their numbers. The caller keeps DDL away.
    pub fn tables(&self) -> Result<BTreeMap<SpaceId, Listed>> {
        let (ddl, spaces) = (&*self.ddl, &self.ddl.spaces);
        let mut reader = Transaction::begin(ddl.core.clone(), Isolation::RepeatableRead);
        let mut paths = BTreeMap::new();
        for (space, name) in ddl.dictionary.tablespaces(&mut reader)? {
            paths.insert(space, table_path(&name));
        }
        for found in ddl
            .dictionary
            .all(&mut reader, &Prefix::unreadable())?
            .values()
        {
            // What its definition does not say, its file does.
            let path = table_path(&found.name);
            if let Ok(header) = spaces.inspect(&path) {
                paths.insert(header.intro.space, path);
            }
        }
        for space in spaces.all() {
            match space.kind() {
                // A file may have another name than its table (DDL-4).
                SpaceKind::System => drop(paths.insert(space.id(), space.path())),
                SpaceKind::Table => {
                    let own = paths.get_mut(&space.id());
                    own.into_iter().for_each(|path| *path = space.path());
                }
                SpaceKind::Undo | SpaceKind::Temp => {}
            }
        }
        let listed = paths.into_iter().map(|(space, path)| {
            let stem = path.strip_suffix(&format!(".{FILE_EXTENSION}"));
            let mut marks = vec![
                awaited_mark_path(&path),
                lost_mark_path(stem.unwrap_or(&path), space),
            ];
            let is_discarded = spaces.is_awaited(&path)?;
            let mut failed = None;
            marks.retain(|mark| match spaces.has_mark(mark) {
                Ok(is_there) => is_there,
                Err(e) => {
                    failed = Some(e);
                    false
                }
            });
            let listed = Listed {
                space,
                place: path.clone(),
                path,
                marks,
                is_discarded,
            };
            failed.map_or(Ok((space, listed)), Err)
        });
        listed.collect()
    }

    /// The undo tablespaces, wherever their files are: in the backup they are beside the system tablespace,
    /// under the names that they have while they take others' places.
    pub fn undo(&self) -> BTreeMap<SpaceId, Listed> {
        let undo = self.ddl.spaces.all().into_iter();
        let undo = undo.filter(|space| space.kind() == SpaceKind::Undo);
        let listed = undo.map(|space| {
            let (id, path) = (space.id(), space.path());
            let listed = Listed {
                space: id,
                place: place_of_undo(&path, id),
                path,
                marks: Vec::new(),
                is_discarded: false,
            };
            (id, listed)
        });
        listed.collect()
    }

    /// Opens a tablespace's file for its pages. `None`: it is not there, or a user's file is in its place.
    pub fn open(&self, listed: &Listed) -> Result<Option<Arc<dyn DiskFile>>> {
        let spaces = &self.ddl.spaces;
        for _ in 0..TRIES {
            let space = spaces.get(listed.space);
            let path = space.map_or(listed.path.clone(), |space| space.path());
            if spaces.is_awaited(&path)? {
                return Ok(None);
            }
            if let Some(file) = self.open_at(&spaces.dir().join(path), listed.space)? {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    fn open_at(&self, full: &Path, space: SpaceId) -> Result<Option<Arc<dyn DiskFile>>> {
        let spaces = &self.ddl.spaces;
        let opened = || -> Result<Option<Arc<dyn DiskFile>>> {
            let disk = spaces.disk();
            let file = spaces
                .files()
                .with_means(|| disk.open(full, OpenMode::ReadOnly))?;
            if FileHeader::read(&*file)?.intro.space != space {
                return Ok(None);
            }
            let pages = spaces.files().open_for_pages(full)?;
            // It may be another one by now.
            let is_same = FileHeader::read(&*disk.open(full, OpenMode::ReadOnly)?)?
                .intro
                .space
                == space;
            Ok(is_same.then_some(pages))
        };
        match opened() {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
            done => done,
        }
    }
}

/// `undo_001.vdt` of tablespace 7, wherever it is, or `undo_001-7.vdt`: the second one.
fn place_of_undo(path: &str, space: SpaceId) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name.split(['-', '.']).next().unwrap_or(name);
    format!("{stem}-{space}.{FILE_EXTENSION}")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn undo_has_the_name_that_it_has_while_it_takes_a_place() {
        for path in ["undo_003.vdt", "more/undo/undo_003.vdt", "undo_003-9.vdt"] {
            assert_eq!(place_of_undo(path, SpaceId(9)), "undo_003-9.vdt");
        }
    }
}
