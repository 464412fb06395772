//! Directories that are there for good, and files that are there whole.

use std::path::Path;

use super::{Disk, OpenMode};
use crate::base::Result;

/// Creates a directory and its missing parents, and makes their names durable: what is committed in a
/// directory that a crash takes away is lost. Also of those that are there: a process that has made them may
/// have died before that. One that can't be synced was made by somebody else.
pub fn create_directory(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let mut missing = 0;
    for dir in dir.ancestors().filter(|d| !d.as_os_str().is_empty()) {
        if disk.exists(dir)? {
            break;
        }
        missing += 1;
    }
    disk.create_dir_all(dir)?;
    for (n, parent) in dir.ancestors().skip(1).enumerate() {
        let synced = match parent.as_os_str().is_empty() {
            true => disk.sync_dir(Path::new(".")),
            false => disk.sync_dir(parent),
        };
        if n < missing {
            synced?;
        }
    }
    Ok(())
}

/// Has the file at `path` hold these bytes, durably: at any moment all of them, or what it held before.
/// `mode` is that of a new file, which is called `new` until it is whole.
pub fn replace_file(
    disk: &dyn Disk,
    (new, path): (&Path, &Path),
    mode: OpenMode,
    bytes: &[u8],
) -> Result<()> {
    if disk.exists(new)? {
        disk.remove(new)?;
    }
    let file = disk.open(new, mode)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    disk.rename(new, path)?;
    disk.sync_dir(path.parent().unwrap_or(Path::new(".")))
}
