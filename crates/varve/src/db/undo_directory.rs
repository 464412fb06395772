//! Where the undo tablespaces are: in the data directory, or in another one (`Options::undo_directory`).
//!
//! A file of the data directory says where; without it they are in the data directory. So an administrator
//! who opens the database finds them, and options are only needed to create it, and to say that somebody has
//! moved the files.
//!
//! - **UNDODIR-1** The file is written before the first undo tablespace is made, and again only after all of
//!   them were found elsewhere. So what an interrupted creation has left is where the file says, and nothing
//!   there is anybody else's.
//!
//! The directory is locked as the data directory is: two databases would give their files the same names.

use std::path::{Component, Path};

use crate::base::{Error, Result};
use crate::ddl::FILE_EXTENSION;
use crate::io::{DirLock, Disk, OpenMode, create_directory, replace_file};
use crate::space::UNFINISHED_EXTENSION;
use crate::undo::UNDO_FILES;

/// Holds the prefix of the undo tablespaces' paths. In the data directory.
const LOCATION_FILE: &str = "undo_directory";
/// Longer is no path.
const LONGEST: u64 = 4096;

/// A directory as the prefix of paths: relative to the data directory `dir` if it is below, and empty if it
/// is that itself.
pub fn prefix(dir: &Path, wanted: &Path) -> Result<String> {
    let plain = |path: &Path| -> Vec<String> {
        let parts = path.components().filter(|c| *c != Component::CurDir);
        parts
            .map(|c| c.as_os_str().to_string_lossy().into())
            .collect()
    };
    if wanted.to_str().is_none_or(|text| text.contains('\n')) {
        let wanted = wanted.display();
        return Err(Error::invalid(format!(
            "undo_directory {wanted:?} is not UTF-8, or has a line end"
        )));
    }
    let (dir, full) = (plain(dir), plain(&dir.join(wanted)));
    let parts = full.strip_prefix(&dir[..]).unwrap_or(&full);
    Ok(match parts.split_first() {
        None => String::new(),
        Some((root, rest)) if root == "/" => format!("/{}/", rest.join("/")),
        Some(_) => format!("{}/", parts.join("/")),
    })
}

/// The prefix that the file in the data directory says.
pub fn recorded(disk: &dyn Disk, dir: &Path) -> Result<String> {
    let path = dir.join(LOCATION_FILE);
    if !disk.exists(&path)? {
        return Ok(String::new());
    }
    let file = disk.open(&path, OpenMode::ReadOnly)?;
    let mut bytes = vec![0; file.len()?.min(LONGEST) as usize];
    file.read_at(&mut bytes, 0)?;
    let text = String::from_utf8(bytes).ok();
    let prefix = text.as_deref().and_then(|text| text.strip_suffix("/\n"));
    let prefix = prefix.filter(|prefix| !prefix.contains('\n'));
    prefix
        .map(|prefix| format!("{prefix}/"))
        .ok_or_else(|| Error::CorruptFile {
            path,
            expected: "the path of the directory with the undo tablespaces, a slash and a line end"
                .into(),
            found: "something else; write it anew".into(),
        })
}

/// Has the file in the data directory say this, durably.
pub fn record(disk: &dyn Disk, dir: &Path, prefix: &str) -> Result<()> {
    let path = dir.join(LOCATION_FILE);
    if !prefix.is_empty() {
        let new = path.with_extension(UNFINISHED_EXTENSION);
        let text = format!("{prefix}\n");
        return replace_file(disk, (&new, &path), OpenMode::CreateNew, text.as_bytes());
    }
    if disk.exists(&path)? {
        disk.remove(&path)?;
    }
    disk.sync_dir(dir)
}

/// Refuses to create undo tablespaces in another directory than the data directory where there are some.
pub fn refuse_leftovers(disk: &dyn Disk, dir: &Path, prefix: &str) -> Result<()> {
    if prefix.is_empty() {
        return Ok(());
    }
    match undo_files(disk, &dir.join(prefix))?.first() {
        Some(name) => Err(Error::AlreadyExists {
            what: format!("file {}", dir.join(prefix).join(name).display()),
        }),
        None => Ok(()),
    }
}

/// Removes the undo tablespaces that an interrupted creation left where the file says (UNDODIR-1).
pub fn remove_leftovers(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let place = dir.join(recorded(disk, dir)?);
    for name in undo_files(disk, &place)? {
        disk.remove(&place.join(name))?;
    }
    match disk.exists(&place)? {
        true => disk.sync_dir(&place),
        false => Ok(()),
    }
}

/// Makes the directory of a new database's undo tablespaces, and takes it for this process, if it is another
/// one.
pub fn lock(disk: &dyn Disk, dir: &Path, undo_dir: &str, is_new: bool) -> Result<Option<DirLock>> {
    let place = dir.join(undo_dir);
    if undo_dir.is_empty() {
        return Ok(None);
    }
    if is_new {
        create_directory(disk, &place)?;
    } else if !disk.exists(&place)? {
        let place = place.display();
        let what = format!(
            "the directory of the undo tablespaces, {place}; undo_directory sets another one:"
        );
        return Err(Error::not_found(what));
    }
    disk.lock_dir(&place).map(Some)
}

fn undo_files(disk: &dyn Disk, place: &Path) -> Result<Vec<String>> {
    if !disk.exists(place)? {
        return Ok(Vec::new());
    }
    let is_one = |name: &str| {
        let extension = Path::new(name).extension();
        let is_tablespace =
            extension.is_some_and(|e| e == FILE_EXTENSION || e == UNFINISHED_EXTENSION);
        is_tablespace && name.starts_with(UNDO_FILES)
    };
    let entries = disk.list(place)?.into_iter();
    let files = entries.filter(|entry| !entry.is_dir && is_one(&entry.name));
    Ok(files.map(|entry| entry.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_below_are_relative() {
        let prefix = |dir: &str, wanted: &str| prefix(Path::new(dir), Path::new(wanted)).unwrap();
        for (wanted, prefixed) in [
            ("", ""),
            (".", ""),
            ("./", ""),
            ("/data", ""),
            ("/data/./", ""),
            ("undo", "undo/"),
            ("./undo/", "undo/"),
            ("/data/undo", "undo/"),
            ("a/undo", "a/undo/"),
            ("../undo", "../undo/"),
            ("/undo", "/undo/"),
            ("/a/undo/", "/a/undo/"),
            ("/datax", "/datax/"),
        ] {
            assert_eq!(prefix("/data", wanted), prefixed, "{wanted}");
        }
        assert_eq!(prefix("./data", "undo"), "undo/");
        assert_eq!(prefix("data", "/data"), "/data/");
        let refused = super::prefix(Path::new("/data"), Path::new("a\nb")).unwrap_err();
        assert!(refused.to_string().contains("line end"), "{refused}");
    }
}
