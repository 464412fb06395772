//! Tablespace files and the definitions that name them.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use crate::base::{Error, PageId, Result, SpaceId};
use crate::buffer::BufferPool;
use crate::catalog::FIRST_ROOT_PAGE;
use crate::ddl::{FILE_EXTENSION, TEMP_FILE, table_path};
use crate::io::Disk;
use crate::page::{PageType, SlottedRef, page_type};
use crate::space::{SpaceKind, Spaces, UNFINISHED_EXTENSION};
use crate::txn::Core;
use crate::undo::undo_path;

/// A tablespace file of the data directory.
#[derive(Clone, Debug)]
pub struct FoundFile {
    /// Relative to the data directory.
    pub path: String,
    /// Which tablespace its header says it is, or why it can't be used.
    pub space: Result<SpaceId>,
}

impl FoundFile {
    /// Why nobody can say now what is in the file: the system refused to open or read it, or to give back the
    /// end that a crash cut off. That may pass, unlike damage.
    pub fn refused(&self) -> Option<&Error> {
        self.space.as_ref().err().filter(|e| is_refusal(e))
    }
}

/// See [`FoundFile::refused`].
pub fn is_refusal(e: &Error) -> bool {
    use io::ErrorKind::{NotFound, UnexpectedEof};
    match e {
        Error::Io { source, .. } => !matches!(source.kind(), NotFound | UnexpectedEof),
        Error::NoSpace { .. } | Error::NoKey { .. } => true,
        _ => false,
    }
}

/// Opens the files of the database itself: those in the data directory, and the undo tablespaces.
///
/// # Errors
///
/// What keeps one from being read.
pub fn open_own_files(
    disk: &dyn Disk,
    dir: &Path,
    spaces: &Spaces,
    log: &dyn Fn(&str),
) -> Result<()> {
    open_in(disk, "", spaces, log, &mut Vec::new())?;
    let undo = spaces.undo_dir();
    match undo.is_empty() || !disk.exists(&dir.join(undo))? {
        true => Ok(()),
        false => open_in(disk, undo, spaces, log, &mut Vec::new()),
    }
}

/// Removes files that were being made, and opens every other tablespace file in the schema directories. One
/// that can't be read is left to `require_readable`.
pub fn find_files(
    disk: &dyn Disk,
    dir: &Path,
    spaces: &Spaces,
    log: &dyn Fn(&str),
) -> Result<Vec<FoundFile>> {
    let mut found = Vec::new();
    for schema in directories(disk, dir, spaces)? {
        if !schema.is_empty() && schema != spaces.undo_dir() {
            open_in(disk, &schema, spaces, log, &mut found)?;
        }
    }
    Ok(found)
}

/// Opens a tablespace, if it is not open and its file is at this path, or else anywhere in the directories.
/// False: it is nowhere.
///
/// # Errors
///
/// What the system refuses (REC-4).
pub fn open_wherever(spaces: &Spaces, id: SpaceId, path: Option<&str>) -> Result<bool> {
    if spaces.get(id).is_some() {
        return Ok(true);
    }
    let at = |path: &str| match spaces.open_at(path, id) {
        Ok(_) => Ok(true),
        Err(e) if is_refusal(&e) => Err(e),
        Err(_) => Ok(false),
    };
    if path.map_or(Ok(false), at)? {
        return Ok(true);
    }
    let path = spaces.find(id, FILE_EXTENSION)?;
    path.map_or(Ok(false), |path| at(&path))
}

/// What `find_files` finds, without a look into the files that have the names of tables: each of them is
/// taken for what it should be. The others are opened, and with one of them that has a table's tablespace the
/// file that has the table's name.
pub fn compare_by_name(
    disk: &dyn Disk,
    dir: &Path,
    spaces: &Spaces,
    named: &HashMap<SpaceId, String>,
    log: &dyn Fn(&str),
) -> Result<Vec<FoundFile>> {
    let by_path: HashMap<String, SpaceId> = named
        .iter()
        .map(|(id, name)| (table_path(name), *id))
        .collect();
    let open = open_by_path(spaces);
    let mut found = Vec::new();
    for schema in directories(disk, dir, spaces)? {
        if schema.is_empty() {
            continue;
        }
        for path in tablespace_files(disk, spaces, &schema, log)? {
            let known = open.get(&path).or_else(|| by_path.get(&path));
            let space = match known {
                Some(id) => Ok(*id),
                None => spaces.open(&path).map(|space| space.id()),
            };
            found.push(FoundFile { path, space });
        }
    }
    let ids: Vec<SpaceId> = found.iter().filter_map(|f| f.space.clone().ok()).collect();
    let mut seen = HashSet::new();
    for id in ids.into_iter().filter(|id| !seen.insert(*id)) {
        let right = named.get(&id).map(|name| table_path(name));
        let file = found.iter_mut().find(|f| Some(&f.path) == right.as_ref());
        if let Some(file) = file {
            file.space = spaces.open(&file.path).map(|space| space.id());
        }
    }
    Ok(found)
}

/// Where tablespace files are, as prefixes of their paths: the data directory itself, those in it, and where
/// the undo tablespaces are.
pub fn directories(disk: &dyn Disk, dir: &Path, spaces: &Spaces) -> Result<Vec<String>> {
    let mut directories = vec![String::new()];
    let entries = disk.list(dir)?.into_iter();
    directories.extend(entries.filter(|e| e.is_dir).map(|e| format!("{}/", e.name)));
    let undo = spaces.undo_dir();
    let is_known = directories.iter().any(|known| known == undo);
    if !is_known && disk.exists(&dir.join(undo))? {
        directories.push(undo.into());
    }
    Ok(directories)
}

/// The paths of the tablespace files in a directory, which is empty for the data directory itself, else ends
/// with a slash. Removes those that were being made.
fn tablespace_files(
    disk: &dyn Disk,
    spaces: &Spaces,
    schema: &str,
    log: &dyn Fn(&str),
) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in disk
        .list(&spaces.dir().join(schema))?
        .into_iter()
        .filter(|e| !e.is_dir)
    {
        let path = format!("{schema}{}", entry.name);
        let extension = Path::new(&entry.name).extension();
        if extension.is_some_and(|e| e == UNFINISHED_EXTENSION) {
            log(&format!("removing {path}, which was being made"));
            spaces.remove_unfinished(&spaces.dir().join(&path))?;
        } else if extension.is_some_and(|e| e == FILE_EXTENSION) && path != TEMP_FILE {
            paths.push(path);
        }
    }
    Ok(paths)
}

fn open_by_path(spaces: &Spaces) -> HashMap<String, SpaceId> {
    let all = spaces.all().into_iter();
    all.map(|space| (space.path(), space.id())).collect()
}

fn open_in(
    disk: &dyn Disk,
    schema: &str,
    spaces: &Spaces,
    log: &dyn Fn(&str),
    found: &mut Vec<FoundFile>,
) -> Result<()> {
    let open = open_by_path(spaces);
    for path in tablespace_files(disk, spaces, schema, log)? {
        let opened = match open.get(&path) {
            Some(id) => Ok(*id),
            None => spaces.open(&path).map(|space| space.id()),
        };
        let space = match opened {
            Ok(id) => Ok(id),
            Err(e) if (schema.is_empty() || schema == spaces.undo_dir()) && is_refusal(&e) => {
                return Err(e);
            }
            Err(e) => {
                log(&format!("tablespace file {path} can't be used: {e}"));
                Err(e)
            }
        };
        found.push(FoundFile { path, space });
    }
    Ok(())
}

/// There is redo to apply, which may be for any file: one that can't be read now must not be taken for one
/// that is gone, whose changes are passed over for good (REC-4).
pub fn require_readable(found: &[FoundFile]) -> Result<()> {
    match found.iter().find_map(FoundFile::refused) {
        Some(why) => Err(why.clone()),
        None => Ok(()),
    }
}

/// Removes tables' files whose removal a transaction decided that has committed (DDL-3).
/// Those that are gone already may have left their links.
pub fn finish_removals(
    spaces: &Spaces,
    found: &[FoundFile],
    removed: &[SpaceId],
    log: &dyn Fn(&str),
) -> Result<()> {
    let there = removed.iter().filter_map(|id| spaces.get(*id));
    for space in there.filter(|space| space.kind() == SpaceKind::Table) {
        let (id, path) = (space.id(), space.path());
        log(&format!("removing {path}: tablespace {id} was dropped"));
        spaces.drop_space(id)?;
    }
    for FoundFile { path, .. } in found.iter().filter(|file| file.space.is_err()) {
        if let Some(link) = spaces.dangling(path)?
            && link.is_gone
            && link.space.is_some_and(|id| removed.contains(&id))
        {
            let file = link.target.display();
            log(&format!(
                "removing {path}, which led to {file}: it was dropped"
            ));
            spaces.remove_link(path)?;
        }
    }
    Ok(())
}

/// Finishes truncations of undo tablespaces that a crash interrupted, forwards or backwards: the tablespaces
/// in the directory are right.
pub fn reconcile_undo(
    spaces: &Spaces,
    pool: &BufferPool,
    named: &[SpaceId],
    log: &dyn Fn(&str),
) -> Result<()> {
    // First: what is not named may have been put in the place of what is, in a write of the directory that
    // the disk lost.
    for (n, &id) in named.iter().enumerate() {
        let path = spaces.require(id)?.path();
        let name = path.rfind('/').map_or(0, |slash| slash + 1);
        if path[..name] != *spaces.undo_dir() {
            let path = spaces.dir().join(path);
            return Err(Error::CorruptFile {
                path: spaces.dir().join(undo_path(spaces, n)),
                expected: format!("undo tablespace {id}"),
                found: format!(
                    "none: it is {}; move it here, or set undo_directory to where it is",
                    path.display()
                ),
            });
        }
    }
    for space in spaces.all() {
        if space.kind() == SpaceKind::Undo && !named.contains(&space.id()) {
            let (id, path) = (space.id(), space.path());
            log(&format!(
                "removing {path}: undo tablespace {id} is not in use"
            ));
            // The file first: SP-8.
            spaces.drop_space(id)?;
            pool.drop_space(id);
        }
    }
    for (n, &id) in named.iter().enumerate() {
        let (from, to) = (spaces.require(id)?.path(), undo_path(spaces, n));
        if from != to {
            finish_rename(spaces, id, &from, &to, log);
        }
    }
    Ok(())
}

/// Gives a tablespace's file the name that it should have, which it did not get before a crash. False if it
/// keeps its own.
pub fn finish_rename(
    spaces: &Spaces,
    id: SpaceId,
    from: &str,
    to: &str,
    log: &dyn Fn(&str),
) -> bool {
    log(&format!("finishing the rename of {from} to {to}"));
    rename_or_tell(spaces, id, from, to, log)
}

/// False if the file keeps its name. Tablespaces are known by their headers: it can be used all the same.
fn rename_or_tell(spaces: &Spaces, id: SpaceId, from: &str, to: &str, log: &dyn Fn(&str)) -> bool {
    let renamed = spaces.rename(id, to);
    renamed
        .inspect_err(|e| log(&format!("{from} keeps its name: {e}")))
        .is_ok()
}

/// Ends the waits for users' files that a crash has left, of tables that are not discarded (SP-13): DISCARD
/// did not come to its end, or a table came to have rows, to be dropped, or to another name. False if one
/// goes on.
pub fn end_waits(
    core: &Core,
    disk: &dyn Disk,
    spaces: &Spaces,
    is_discarded: &mut dyn FnMut(&str) -> Result<bool>,
) -> Result<bool> {
    let mut have_ended = true;
    for schema in directories(disk, spaces.dir(), spaces)? {
        if schema.is_empty() || schema == spaces.undo_dir() {
            continue;
        }
        for path in spaces.awaited_in(&schema)? {
            if is_discarded(&path)? {
                continue;
            }
            let aside = spaces.put_awaited_aside(&path);
            let ended = aside.and_then(|aside| {
                spaces.stop_awaiting(&path)?;
                Ok(aside)
            });
            match ended {
                Ok(None) => {}
                Ok(Some(aside)) => core.note(&format!(
                    "{path} waited to be imported, but no table waits for it any more: it is put aside as {aside}"
                )),
                Err(e) => {
                    core.warn(&format!("{path}, for which no table waits, keeps its name: {e}"));
                    have_ended = false;
                }
            }
        }
    }
    Ok(have_ended)
}

/// A file that no definition names. Without rows it was made for a definition that never committed; with rows
/// it should not be there (DDL-3). False if it stays where it is.
fn remove_unnamed(core: &Core, spaces: &Spaces, id: SpaceId, path: &str) -> Result<bool> {
    if !may_have_rows(&core.pool, id) {
        core.note(&format!("removing {path}: no table has tablespace {id}"));
        spaces.drop_space(id)?;
        core.pool.drop_space(id);
        return Ok(true);
    }
    let aside = format!("{path}.unnamed-{id}");
    core.warn(&format!(
        "{path} has rows of tablespace {id}, but no table has that tablespace. Either the disk has lost a write to the table's definition, or the \
         file could not be removed when its table was dropped. It is put aside as {aside}: see what is in it with `varve dump`, and remove it"
    ));
    Ok(rename_or_tell(spaces, id, path, &aside, &|message| {
        core.warn(message)
    }))
}

/// False if the root of the clustered index is an empty leaf, or was never written.
fn may_have_rows(pool: &BufferPool, id: SpaceId) -> bool {
    match pool.shared(PageId::new(id, FIRST_ROOT_PAGE)) {
        Err(_) => true,
        Ok(page) => match page_type(&page) {
            Some(PageType::Unused) => false,
            Some(PageType::Leaf) => SlottedRef::new(&page).n_slots() > 0,
            _ => true,
        },
    }
}

/// Gives links whose files are not there the names that they should have: their tables can be used again
/// when the files are back. One for a tablespace that no table has is put aside, as its file would be. False
/// if one stays where it should not be.
fn reconcile_links(
    core: &Core,
    spaces: &Spaces,
    found: &[FoundFile],
    named: &HashMap<SpaceId, String>,
    incomplete: bool,
) -> Result<bool> {
    let mut are_right = true;
    for FoundFile { path, .. } in found.iter().filter(|file| file.space.is_err()) {
        let Some(link) = spaces.dangling(path)? else {
            continue;
        };
        let Some(id) = link.space else { continue };
        let to = match named.get(&id) {
            Some(name) => table_path(name),
            None if incomplete => {
                are_right = false;
                continue;
            }
            None => format!("{path}.unnamed-{id}"),
        };
        if *path == to {
            continue;
        }
        let file = link.target.display();
        core.warn(&format!(
            "{path} leads to {file}, which is not there: it is called {to} from now on"
        ));
        if let Err(e) = spaces.move_link(path, &to) {
            core.warn(&format!("{path} keeps its name: {e}"));
            are_right = false;
        }
    }
    Ok(are_right)
}

/// Makes the table files those that the definitions name (DDL-1). `named` has each table's tablespace and
/// name; if it lacks some because their definitions can't be read (`incomplete`), no file is removed.
pub fn reconcile(
    core: &Core,
    spaces: &Spaces,
    found: &[FoundFile],
    named: &HashMap<SpaceId, String>,
    incomplete: bool,
) -> Result<()> {
    // Undo tablespaces may be in a directory, too, and those that are not in use are gone already.
    let is_table = |space: &SpaceId| {
        let space = spaces.get(*space);
        space.is_none_or(|space| space.kind() != SpaceKind::Undo)
    };
    let tables = found
        .iter()
        .filter(|f| f.path.contains('/') && f.space.as_ref().is_ok_and(is_table));
    let mut misplaced = Vec::new();
    let mut are_right = reconcile_links(core, spaces, found, named, incomplete)?;
    for file in tables {
        match file.space.as_ref().map(|s| (*s, named.get(s))) {
            Ok((space, Some(name))) => {
                let right = table_path(name);
                if file.path != right {
                    misplaced.push((space, &file.path, right));
                }
            }
            Ok((space, None)) if incomplete => {
                are_right = false;
                core.note(&format!(
                    "{} stays: it may be tablespace {space} of a table whose definition can't be read",
                    file.path
                ));
            }
            Ok((space, None)) => are_right &= remove_unnamed(core, spaces, space, &file.path)?,
            // Nothing of ours, or a link without its file: a file gets its name when its header is there. It
            // is left for a person to look at.
            Err(_) => {}
        }
    }
    for (space, from, to) in misplaced {
        are_right &= finish_rename(spaces, space, from, &to, &|message| core.note(message));
    }
    spaces.files_match(are_right);
    Ok(())
}
