//! The data directory's files, and what they say about themselves.

use std::collections::HashMap;
use std::path::Path;

use crate::base::{Error, Result, SpaceId};
use crate::ddl::{FILE_EXTENSION, TEMP_FILE};
use crate::io::Disk;
use crate::recovery;
use crate::space::Spaces;

/// A tablespace file, and the tablespace that its header names.
pub struct SpaceFile {
    /// Relative to the data directory.
    pub path: String,
    pub space: Result<SpaceId>,
}

/// All tablespace files but the temporary one, which means nothing while the database is closed, and users'
/// files that wait to be imported (SP-13).
pub fn space_files(disk: &dyn Disk, dir: &Path, spaces: &Spaces) -> Result<Vec<SpaceFile>> {
    let mut found = Vec::new();
    for schema in recovery::directories(disk, dir, spaces)? {
        for entry in disk.list(&dir.join(&schema))? {
            let path = format!("{schema}{}", entry.name);
            let extension = Path::new(&entry.name).extension();
            let is_space = extension.is_some_and(|e| e == FILE_EXTENSION);
            if !entry.is_dir && is_space && path != TEMP_FILE && !spaces.is_awaited(&path)? {
                let space = spaces.open(&path).map(|space| space.id());
                found.push(SpaceFile { path, space });
            }
        }
    }
    Ok(found)
}

/// Names of files by what errors call them.
#[derive(Default)]
pub struct Names {
    by_space: HashMap<SpaceId, String>,
}

impl Names {
    pub fn of(files: &[SpaceFile]) -> Names {
        let known = files.iter().filter_map(|f| {
            let space = f.space.as_ref().ok()?;
            Some((*space, f.path.clone()))
        });
        Names {
            by_space: known.collect(),
        }
    }

    pub fn of_space(&self, space: SpaceId) -> String {
        match self.by_space.get(&space) {
            Some(path) => path.clone(),
            None => format!("tablespace {space}"),
        }
    }

    /// The file that an error is about.
    pub fn of_error(&self, dir: &Path, e: &Error) -> String {
        let path = match e {
            Error::Corrupt { page, .. } => return self.of_space(page.space),
            Error::CorruptFile { path, .. } | Error::Io { path, .. } => path,
            _ => dir,
        };
        let relative = path.strip_prefix(dir).unwrap_or(path);
        match relative.as_os_str().is_empty() {
            true => dir.display().to_string(),
            false => relative.display().to_string(),
        }
    }
}
