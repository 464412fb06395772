//! What is fetched once and kept in the cache, shared by checkouts: whole or not at all.

use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace::{cache_dir, remove_dir};
use anyhow::Result;
use rustix::fs::{FlockOperation, flock};

/// The folder `name` of the cache, which `make` has filled, and fills again when `wanted` changes.
pub fn made_once(
    name: &str,
    wanted: &str,
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let apps = cache_dir()?.join("apps");
    fs::create_dir_all(&apps)?;
    let dir = apps.join(name);
    let lock = fs::File::create(apps.join(format!("{name}.lock")))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    let mark = dir.join("VERSIONS");
    if fs::read_to_string(&mark).ok().as_deref() != Some(wanted) {
        eprintln!(
            "Fetching what the tests of {name} need into {} (once)",
            dir.display()
        );
        remove_dir(&dir)?;
        fs::create_dir_all(&dir)?;
        make(&dir)?;
        fs::write(&mark, wanted)?;
    }
    Ok(dir)
}
