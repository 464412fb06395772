//! Files that have no name: nobody else can open them, and they are gone with their last handle, also if the
//! process dies.
//!
//! Such a file has a name for the moment between being created and that being removed. A process that is
//! killed just then leaves an empty file, which keeps nobody from anything: a name that is taken is passed
//! over, whoever has it. In a directory that is everybody's no other user can open the file meanwhile.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Disk, DiskFile, OpenMode};
use crate::base::{Error, Result};

/// Names that are tried. Others are creating as many files in this moment, or there are leftovers of them.
const NAMES: u32 = 1000;

/// The next number in a name. No two files of a process have the same, or they would be one to who measures
/// them. Relaxed: it stands for itself.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Creates a file in this directory. Its path, which begins with `prefix`, is for messages alone.
pub fn create_nameless(disk: &dyn Disk, dir: &Path, prefix: &str) -> Result<Arc<dyn DiskFile>> {
    create_numbered(disk, dir, prefix, || NUMBER.fetch_add(1, Relaxed))
}

fn create_numbered(
    disk: &dyn Disk,
    dir: &Path,
    prefix: &str,
    number: impl Fn() -> u64,
) -> Result<Arc<dyn DiskFile>> {
    let mut tried = 1;
    loop {
        let path = dir.join(format!("{prefix}{}", number()));
        match disk.open(&path, OpenMode::CreatePrivate) {
            Err(e) if is_taken(&e) && tried < NAMES => tried += 1,
            opened => {
                let file = opened?;
                disk.remove_name(&path)?;
                return Ok(file);
            }
        }
    }
}

fn is_taken(e: &Error) -> bool {
    matches!(e, Error::Io { source, .. } if source.kind() == ErrorKind::AlreadyExists)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::io::RealDisk;

    #[test]
    fn files_are_distinct_and_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let taken = dir.path().join("a-0");
        fs::write(&taken, "somebody's").unwrap();
        let next = AtomicU64::new(0);
        let number = || [0, 1, 0, 2][next.fetch_add(1, Relaxed) as usize];
        let make = || create_numbered(&RealDisk, dir.path(), "a-", number).unwrap();
        let (one, two) = (make(), make());
        one.write_at(b"one", 0).unwrap();
        two.write_at(b"two", 0).unwrap();
        let mut found = [0; 3];
        one.read_at(&mut found, 0).unwrap();
        assert_eq!(&found, b"one");
        assert_eq!(fs::read(&taken).unwrap(), b"somebody's");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn others_can_not_open_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        RealDisk.open(&path, OpenMode::CreatePrivate).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
    }

    #[test]
    fn a_directory_that_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap().path().join("none");
        let refused = create_nameless(&RealDisk, &dir, "a-")
            .map(drop)
            .unwrap_err();
        assert!(
            refused.to_string().contains(dir.to_str().unwrap()),
            "{refused}"
        );
    }
}
