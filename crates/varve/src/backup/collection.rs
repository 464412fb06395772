//! Files of others that belong to a backup: what a server has beside a database. They are listed with their
//! checksums, so that what was changed or lost since is told by its name before any of it is used.
//!
//! The list, `varve-collection.manifest`, is text as the manifest of a backup: `varve-collection 1`, then any
//! number of notes, `note KEY VALUE`, and of files, and the checksum of all that.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Directories;
use super::manifest::{
    BackupFile, Lines, end_line, escaped, file_line, file_of, read_text, unescaped, write_text,
};
use super::restore::{check_sum, copy_back, sum};
use crate::base::{DISK_THREADS, Error, Result, map_together};
use crate::io::{Disk, OpenMode, RealDisk};

/// The list's name in its directory.
pub const COLLECTION: &str = "varve-collection.manifest";

const FIRST_LINE: &str = "varve-collection 1";

/// A directory's files, and what is to be remembered of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Collection {
    /// Keys are words.
    pub notes: Vec<(String, String)>,
    /// Sorted by path, without the list itself.
    pub files: Vec<BackupFile>,
}

impl Collection {
    /// Lists all files below `dir`, makes them durable, and writes the list.
    ///
    /// # Errors
    ///
    /// `Io`: a file or a directory can't be read, or the list not be written.
    pub fn make(dir: impl AsRef<Path>, notes: Vec<(String, String)>) -> Result<Collection> {
        let (disk, dir) = (&RealDisk, dir.as_ref());
        let mut paths = Vec::new();
        let mut directories = vec![PathBuf::new()];
        let mut next = 0;
        while let Some(directory) = directories.get(next).cloned() {
            next += 1;
            for entry in disk.list(&dir.join(&directory))? {
                let path = directory.join(&entry.name);
                match entry.is_dir {
                    true => directories.push(path),
                    false => paths.push(path.to_string_lossy().into_owned()),
                }
            }
        }
        paths.sort_unstable();
        let listed = map_together(&paths, DISK_THREADS, |path| {
            disk.open(&dir.join(path), OpenMode::ReadOnly)?.sync()?;
            sum(disk, dir, path)
        });
        let files = listed.into_iter().collect::<Result<_>>()?;
        for directory in directories {
            disk.sync_dir(&dir.join(directory))?;
        }
        let collection = Collection { notes, files };
        write_text(disk, dir, COLLECTION, &collection.encode())?;
        Ok(collection)
    }

    /// What is to be remembered by this key.
    pub fn note(&self, key: &str) -> Option<&str> {
        let note = self.notes.iter().find(|(name, _)| name == key);
        note.map(|(_, value)| value.as_str())
    }

    /// Reads the list in `dir`.
    ///
    /// # Errors
    ///
    /// `NotFound`: there is none. `CorruptFile`: it is not what it was.
    pub fn read(dir: impl AsRef<Path>) -> Result<Collection> {
        let (disk, dir) = (&RealDisk, dir.as_ref());
        let path = dir.join(COLLECTION);
        if !disk.exists(&path)? {
            return Err(Error::not_found(format!(
                "{COLLECTION} in {}, which is written when all of it is there,",
                dir.display()
            )));
        }
        let text = read_text(disk, &path)?;
        let damaged = |found: String| Error::CorruptFile {
            path: path.clone(),
            expected: "a list of files".into(),
            found,
        };
        Collection::decode(&text).map_err(damaged)
    }

    /// The same, and reads each of its files.
    ///
    /// # Errors
    ///
    /// Those of `read`, also for one of the files.
    pub fn verify(dir: impl AsRef<Path>) -> Result<Collection> {
        let (disk, dir) = (&RealDisk, dir.as_ref());
        let collection = Collection::read(dir)?;
        let verified = map_together(&collection.files, DISK_THREADS, |file| {
            let found = sum(disk, dir, &file.path)?;
            check_sum(&dir.join(&file.path), file, &found)
        });
        verified.into_iter().collect::<Result<()>>()?;
        Ok(collection)
    }

    /// Copies the files to `target`, which has none of them. One that has holes has them there, too: a
    /// compressed file of InnoDB is one.
    ///
    /// # Errors
    ///
    /// `CorruptFile`: a file is not what it was. `Io`: one can't be read or written, or is there already.
    pub fn copy(&self, dir: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<()> {
        let (disk, dir, target) = (&RealDisk, dir.as_ref(), target.as_ref());
        let mut directories = Directories::default();
        for file in &self.files {
            directories.make(disk, target, &file.path)?;
        }
        let copied = map_together(&self.files, DISK_THREADS, |file| {
            let copy = copy_back(disk, dir, target, file)?;
            if !has_holes(&dir.join(&file.path)) {
                copy.fill_holes()?;
            }
            copy.sync()
        });
        copied.into_iter().collect::<Result<()>>()?;
        directories.sync(disk)
    }

    fn encode(&self) -> String {
        let mut out = format!("{FIRST_LINE}\n");
        for (key, value) in &self.notes {
            out.push_str(&format!("note {key} {}\n", escaped(value)));
        }
        self.files.iter().for_each(|file| file_line(&mut out, file));
        end_line(&mut out);
        out
    }

    fn decode(text: &str) -> std::result::Result<Collection, String> {
        let mut lines = Lines::of(text, FIRST_LINE)?;
        let mut collection = Collection::default();
        while let Some(rest) = lines.next("note") {
            let (key, value) = rest.split_once(' ').unwrap_or((rest, ""));
            collection.notes.push((key.into(), unescaped(value)?));
        }
        while let Some(rest) = lines.next("file") {
            collection.files.push(file_of(rest)?);
        }
        lines.finish()?;
        Ok(collection)
    }
}

fn has_holes(path: &Path) -> bool {
    let found = std::fs::metadata(path);
    // The system counts in blocks of 512 bytes, whatever those of the file system are.
    found.is_ok_and(|found| found.blocks() * 512 < found.len())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// BACKUP-5
    #[test]
    fn what_was_collected_is_copied_and_what_was_changed_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        std::fs::create_dir_all(from.join("a/b")).unwrap();
        for (path, len) in [("one", 0), ("a/two", 10_000), ("a/b/three", 3)] {
            std::fs::write(from.join(path), vec![7; len]).unwrap();
        }
        let sparse = std::fs::File::create(from.join("a/sparse")).unwrap();
        sparse.set_len(1 << 20).unwrap();
        assert!(has_holes(&from.join("a/sparse")) && !has_holes(&from.join("a/two")));
        let notes = vec![
            ("gtid".into(), "0-1-7,1-1-9".into()),
            ("none".into(), String::new()),
            ("lines".into(), "a\nb \\".into()),
        ];
        let made = Collection::make(&from, notes).unwrap();
        assert_eq!(Collection::verify(&from).unwrap(), made);
        let to = dir.path().join("to");
        made.copy(&from, &to).unwrap();
        for file in &made.files {
            let read = |dir: &Path| std::fs::read(dir.join(&file.path)).unwrap();
            assert_eq!(read(&from), read(&to));
        }
        assert_eq!(made.files.len(), 4);
        assert!(has_holes(&to.join("a/sparse")) && !has_holes(&to.join("a/two")));
        let told = |says: &str| {
            let e = Collection::verify(&from).unwrap_err().to_string();
            assert!(e.contains(says), "{e}");
        };
        std::fs::write(from.join("a/two"), vec![7; 9_999]).unwrap();
        told("a/two");
        std::fs::remove_file(from.join("a/two")).unwrap();
        told("a/two");
        let list = std::fs::read_to_string(from.join(COLLECTION)).unwrap();
        std::fs::write(from.join(COLLECTION), list.replace("10000", "10001")).unwrap();
        told("checksum");
    }
}
