//! Which tablespaces a database has, and where their files are.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use crate::base::{Error, Result, SpaceId};
use crate::ddl::lookups::Prefix;
use crate::ddl::{Ddl, FILE_EXTENSION, lost_mark_path, table_path};
use crate::io::DiskFile;
use crate::recovery::is_refusal;
use crate::space::{FileHeader, SpaceKind, Stage, WrittenPages, awaited_mark_path};
use crate::txn::{Isolation, Transaction};
use crate::undo::replacing_path;

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

    /// All tablespaces but those of undo, by their numbers, and the places of those whose definitions can't
    /// be read and that are not there. They are right if the caller keeps DDL away.
    pub fn tables(&self) -> Result<(BTreeMap<SpaceId, Listed>, Vec<String>)> {
        let (ddl, spaces) = (&*self.ddl, &self.ddl.spaces);
        let mut reader = Transaction::begin(ddl.core.clone(), Isolation::RepeatableRead);
        let mut paths = BTreeMap::new();
        for (space, name) in ddl.dictionary.tablespaces(&mut reader)? {
            paths.insert(space, (table_path(&name), name));
        }
        let unreadable = ddl.dictionary.all(&mut reader, &Prefix::unreadable())?;
        let mut lost = Vec::new();
        for found in unreadable.into_values() {
            // What its definition does not say, its file does.
            let path = table_path(&found.name);
            match spaces.inspect(&path) {
                Ok(header) => drop(paths.insert(header.intro.space, (path, found.name))),
                Err(e) if is_refusal(&e) => return Err(e),
                Err(_) => lost.push(path),
            }
        }
        for space in spaces.all() {
            match space.kind() {
                SpaceKind::System => {
                    let (path, no_table) = (space.path(), String::new());
                    paths.insert(space.id(), (path, no_table));
                }
                // A file may have another name than its table (DDL-4).
                SpaceKind::Table => {
                    let own = paths.get_mut(&space.id());
                    own.into_iter().for_each(|own| own.0 = space.path());
                }
                SpaceKind::Undo | SpaceKind::Temp => {}
            }
        }
        let marks = self.marks(paths.values().flat_map(|(path, name)| [path, name]))?;
        let listed = paths.into_iter().map(|(space, (path, name))| {
            let awaited = awaited_mark_path(&path);
            let is_discarded = marks.contains(&awaited);
            let mut own = vec![awaited, lost_mark_path(&name, space)];
            own.retain(|mark| marks.contains(mark));
            let listed = Listed {
                space,
                place: path.clone(),
                path,
                marks: own,
                is_discarded,
            };
            (space, listed)
        });
        Ok((listed.collect(), lost))
    }

    /// The files in the directories of these paths that are no tablespaces: marks are among them.
    fn marks<'p>(&self, paths: impl Iterator<Item = &'p String>) -> Result<HashSet<String>> {
        let spaces = &self.ddl.spaces;
        let schemas = paths.filter_map(|path| Some(path.rsplit_once('/')?.0));
        let schemas: BTreeSet<&str> = schemas.collect();
        let mut marks = HashSet::new();
        for schema in schemas {
            let full = spaces.dir().join(schema);
            if !spaces.disk().exists(&full)? {
                continue;
            }
            for entry in spaces.disk().list(&full)? {
                let extension = Path::new(&entry.name).extension();
                if extension.is_none_or(|e| e != FILE_EXTENSION) {
                    marks.insert(format!("{schema}/{}", entry.name));
                }
            }
        }
        Ok(marks)
    }

    /// What an increment asks.
    pub fn written_pages(&self) -> &WrittenPages {
        self.ddl.spaces.written_pages()
    }

    /// How far the encryption of an open tablespace is.
    pub fn stage(&self, space: SpaceId) -> Option<Stage> {
        self.ddl.spaces.get(space).map(|space| space.stage().0)
    }

    /// Opens a file, if need be after closing some that are idle.
    pub fn with_means<T>(&self, open: impl Fn() -> Result<T>) -> Result<T> {
        self.ddl.spaces.files().with_means(open)
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

    /// Opens a tablespace's file for its pages. `None`: it is not there, or a user's file is in its place; or
    /// it has no header, and is to be passed over then.
    pub fn open(&self, listed: &Listed, passes_over: bool) -> Result<Option<Arc<dyn DiskFile>>> {
        let spaces = &self.ddl.spaces;
        for _ in 0..TRIES {
            let space = spaces.get(listed.space);
            let path = space.map_or(listed.path.clone(), |space| space.path());
            if spaces.is_awaited(&path)? {
                return Ok(None);
            }
            match self.open_at(&spaces.dir().join(path), listed.space) {
                Ok(None) => {}
                Err(Error::CorruptFile { .. } | Error::Unsupported { .. }) if passes_over => {
                    return Ok(None);
                }
                opened => return opened,
            }
        }
        Ok(None)
    }

    fn open_at(&self, full: &Path, space: SpaceId) -> Result<Option<Arc<dyn DiskFile>>> {
        let file = match self.ddl.spaces.files().open_for_pages(full) {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Ok(None);
            }
            opened => opened?,
        };
        let intro = FileHeader::read(&*file)?.intro;
        let bytes = file.len()?;
        if bytes < u64::from(intro.page_size) {
            return Err(Error::CorruptFile {
                path: full.to_path_buf(),
                expected: format!("pages of {} bytes", intro.page_size),
                found: format!("{bytes} bytes in all"),
            });
        }
        Ok((intro.space == space).then_some(file))
    }
}

/// `undo_001.vdt` of tablespace 7, wherever it is, or `undo_001-7.vdt`: the second one.
fn place_of_undo(path: &str, space: SpaceId) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name.split(['-', '.']).next().unwrap_or(name);
    replacing_path(stem, space)
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
