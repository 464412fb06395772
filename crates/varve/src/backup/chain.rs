//! A backup and the increments that go with it, one on the other: what they are together.
//!
//! - **INCREMENT-1** An increment goes with the backup of which it says so, and with no other: each backup
//!   has a name of its own, that of the period that began with it.
//! - **INCREMENT-2** A page that an increment lacks was not written between the beginning of its base and its
//!   own (TRACK-1), but with changes that its redo has: it is as the base has it. So the increment's redo
//!   alone makes a database of both; that of the base is not needed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::changed::ChangedFile;
use super::manifest::{BackupFile, BackupSpace, MANIFEST, Manifest, changed_path};
use super::restore::{check_sum, read_all, verify_content};
use super::{BackupSummary, write_sparse};
use crate::base::{Error, Result, SpaceId};
use crate::io::{Disk, DiskFile, OpenMode};

/// A backup of a chain.
pub(super) struct Part {
    pub dir: PathBuf,
    pub manifest: Manifest,
}

/// A whole backup, and increments in their order.
pub(super) struct Chain<'a> {
    disk: &'a dyn Disk,
    parts: Vec<Part>,
}

/// A file that a chain comes to.
pub(super) struct Composed<'a> {
    pub path: &'a str,
    pub bytes: u64,
    /// Where it is whole: the backup, and its file.
    whole: (&'a Part, &'a BackupFile),
    /// Pages that came later, in the order of the increments.
    changed: Vec<(&'a Part, PathBuf)>,
}

impl<'a> Chain<'a> {
    /// Verifies all of them, and that they go together.
    ///
    /// # Errors
    ///
    /// `Invalid`: they don't.
    pub fn read_verified(disk: &'a dyn Disk, dirs: &[&Path]) -> Result<Chain<'a>> {
        let mut parts: Vec<Part> = Vec::new();
        for dir in dirs {
            let manifest = Manifest::read(disk, dir)?;
            check_order(parts.last(), dir, &manifest)?;
            let dir = dir.to_path_buf();
            parts.push(Part { dir, manifest });
        }
        if parts.is_empty() {
            return Err(Error::invalid("a restore of no backup"));
        }
        for part in &parts {
            verify_content(disk, &part.dir, &part.manifest)?;
        }
        Ok(Chain { disk, parts })
    }

    pub fn last(&self) -> &Part {
        self.parts.last().expect("it has one")
    }

    /// The files of the database that it is.
    pub fn files(&self) -> Result<Vec<Composed<'_>>> {
        let last = self.last();
        let changed = last.manifest.spaces.iter().filter(|space| !space.is_whole);
        let parts = changed.clone().map(|space| changed_path(space.space));
        let parts: BTreeSet<String> = parts.collect();
        let own = last.manifest.files.iter();
        let own = own.filter(|file| !parts.contains(&file.path));
        let own = own.map(|file| Composed {
            path: &file.path,
            bytes: file.bytes,
            whole: (last, file),
            changed: Vec::new(),
        });
        let mut files: Vec<Composed<'_>> = own.collect();
        for space in changed {
            files.push(self.composed(space)?);
        }
        files.sort_unstable_by_key(|file| file.path);
        Ok(files)
    }

    /// A tablespace of which the last one has some pages.
    fn composed<'c>(&'c self, space: &'c BackupSpace) -> Result<Composed<'c>> {
        let page_size = u64::from(self.last().manifest.page_size);
        let mut later = Vec::new();
        for part in self.parts.iter().rev() {
            let manifest = &part.manifest;
            let found = manifest.space(space.space);
            let found = found.ok_or_else(|| lacks(part, space.space))?;
            if found.is_whole {
                let file = manifest.file(&found.path);
                let file = file.ok_or_else(|| lacks(part, space.space))?;
                later.reverse();
                return Ok(Composed {
                    path: &space.path,
                    bytes: u64::from(space.pages) * page_size,
                    whole: (part, file),
                    changed: later,
                });
            }
            let changed = changed_path(space.space);
            if manifest.file(&changed).is_some() {
                later.push((part, part.dir.join(changed)));
            }
        }
        Err(lacks(&self.parts[0], space.space))
    }

    /// Makes a file in `target`, with holes for its zeros; the caller syncs it.
    pub fn make(&self, file: &Composed<'_>, target: &Path) -> Result<Arc<dyn DiskFile>> {
        let disk = self.disk;
        let (part, whole) = file.whole;
        let page_size = self.last().manifest.page_size as usize;
        let mut layers = Vec::new();
        for (part, path) in &file.changed {
            layers.push((part, ChangedFile::open(disk, path, page_size)?));
        }
        let to = disk.open(&target.join(file.path), OpenMode::CreatePrivate)?;
        let mut put = |bytes: &mut [u8], offset: u64| {
            let len = file.bytes.saturating_sub(offset).min(bytes.len() as u64);
            let bytes = &mut bytes[..len as usize];
            let first = (offset / page_size as u64) as u32;
            for (part, changed) in &layers {
                changed.lay_over(bytes, first, &part.manifest)?;
            }
            write_sparse(&*to, bytes, offset)
        };
        let found = read_all(disk, &part.dir, &whole.path, &mut put)?;
        check_sum(&part.dir.join(&whole.path), whole, &found)?;
        // What has come behind it since.
        let mut page = vec![0; page_size];
        for offset in (whole.bytes..file.bytes).step_by(page_size) {
            page.fill(0);
            put(&mut page, offset)?;
        }
        to.set_len(file.bytes)?;
        Ok(to)
    }

    /// What the database is that is made of it, with these files.
    pub fn summary(&self, files: &[Composed<'_>]) -> BackupSummary {
        let manifest = &self.last().manifest;
        BackupSummary {
            from: manifest.from,
            to: manifest.to,
            files: files.len(),
            bytes: files.iter().map(|file| file.bytes).sum(),
            damaged: manifest.damaged.clone(),
            lost: manifest.lost.clone(),
            is_increment: false,
        }
    }
}

/// INCREMENT-1
fn check_order(before: Option<&Part>, dir: &Path, manifest: &Manifest) -> Result<()> {
    let is_next = match before {
        None => manifest.base.is_none(),
        Some(before) => manifest.base.is_some() && manifest.base == before.manifest.period,
    };
    if is_next {
        return Ok(());
    }
    let name = dir.display();
    Err(Error::invalid(match (before, manifest.base) {
        (None, _) => format!(
            "a restore that begins with {name}, which is an increment: first the whole backup, then the increments in their \
             order"
        ),
        (Some(before), None) => format!(
            "{name} after {}: it is no increment, but a whole backup of its own",
            before.dir.display()
        ),
        (Some(before), Some(_)) => format!(
            "{name} after {}, which is not the backup that this increment was made on: one is missing, or the order is \
             another",
            before.dir.display()
        ),
    }))
}

fn lacks(part: &Part, space: SpaceId) -> Error {
    Error::CorruptFile {
        path: part.dir.join(MANIFEST),
        expected: format!("tablespace {space}, of which an increment has pages"),
        found: "none".into(),
    }
}
