//! The pages of a tablespace that an increment has, in a file of their own.
//!
//! They stand one behind the other, ascending. Behind them the file says which they are: runs of pages that
//! follow each other, each with its first one and their number; then the tablespace, how many runs there are,
//! and a magic number. What all of it is, with its checksum, says the manifest.

use std::path::Path;
use std::sync::Arc;

use super::manifest::Manifest;
use crate::base::{Error, PageId, PageNo, Result, SpaceId};
use crate::io::{Disk, DiskFile, OpenMode};
use crate::page;
use crate::space::PageSet;

const MAGIC: &[u8; 8] = b"varveinc";
/// Tablespace, number of runs, magic number.
const TAIL: usize = 16;
const RUN: usize = 8;
/// Of a file.
pub(super) const EXTENSION: &str = "pages";

/// Pages that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub first: u32,
    pub pages: u32,
    /// So many pages stand before them in the file.
    pub at: u32,
}

/// Those of a tablespace with so many pages.
pub(super) fn runs_of(set: &PageSet, space: SpaceId, most: u32) -> Vec<Run> {
    let mut runs = Vec::new();
    let Some(pages) = set.of_space(space) else {
        return runs;
    };
    let (mut pages, mut at) = (pages.iter(), 0);
    while let Some(range) = pages.next_range() {
        let (first, end) = (*range.start(), range.end().saturating_add(1).min(most));
        if first >= end {
            break;
        }
        let pages = end - first;
        runs.push(Run { first, pages, at });
        at += pages;
    }
    runs
}

/// What stands behind the pages.
pub(super) fn tail(space: SpaceId, runs: &[Run]) -> Vec<u8> {
    let mut tail = Vec::with_capacity(runs.len() * RUN + TAIL);
    for run in runs {
        tail.extend(run.first.to_le_bytes());
        tail.extend(run.pages.to_le_bytes());
    }
    tail.extend(space.0.to_le_bytes());
    tail.extend((runs.len() as u32).to_le_bytes());
    tail.extend(MAGIC);
    tail
}

/// Such a file.
pub(super) struct ChangedFile {
    file: Arc<dyn DiskFile>,
    pub space: SpaceId,
    runs: Vec<Run>,
}

impl ChangedFile {
    pub fn open(disk: &dyn Disk, path: &Path, page_size: usize) -> Result<ChangedFile> {
        let damaged = || Error::CorruptFile {
            path: path.to_path_buf(),
            expected: "the numbers of the pages in it, behind them".into(),
            found: "something else".into(),
        };
        let file = disk.open(path, OpenMode::ReadOnly)?;
        let bytes = file.len()?;
        let mut end = [0; TAIL];
        let tail_at = bytes.checked_sub(TAIL as u64).ok_or_else(damaged)?;
        file.read_at(&mut end, tail_at)?;
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().expect("4 bytes"));
        let (space, count) = (SpaceId(word(&end)), word(&end[4..]));
        let runs_bytes = u64::from(count) * RUN as u64;
        let runs_at = tail_at.checked_sub(runs_bytes).ok_or_else(damaged)?;
        if &end[8..] != MAGIC {
            return Err(damaged());
        }
        let mut encoded = vec![0; runs_bytes as usize];
        file.read_at(&mut encoded, runs_at)?;
        let (mut runs, mut at, mut next) = (Vec::new(), 0u32, 0);
        for run in encoded.chunks_exact(RUN) {
            let (first, pages) = (word(run), word(&run[4..]));
            let end = first.checked_add(pages).ok_or_else(damaged)?;
            if first < next || pages == 0 {
                return Err(damaged());
            }
            runs.push(Run { first, pages, at });
            next = end;
            at = at.checked_add(pages).ok_or_else(damaged)?;
        }
        match u64::from(at) * page_size as u64 == runs_at {
            true => Ok(ChangedFile { file, space, runs }),
            false => Err(damaged()),
        }
    }

    /// In the order in which they stand there.
    pub fn pages(&self) -> impl Iterator<Item = PageId> + '_ {
        let numbers = self
            .runs
            .iter()
            .flat_map(|run| run.first..run.first + run.pages);
        numbers.map(|no| PageId::new(self.space, PageNo(no)))
    }

    /// Puts its pages in their places in `bytes`, which are pages from `first` on. `manifest`: that of its
    /// backup.
    pub fn lay_over(&self, bytes: &mut [u8], first: u32, manifest: &Manifest) -> Result<()> {
        let size = manifest.page_size as usize;
        let end = first + (bytes.len() / size) as u32;
        let begin = self
            .runs
            .partition_point(|run| run.first + run.pages <= first);
        for run in self.runs[begin..].iter().take_while(|run| run.first < end) {
            let from = run.first.max(first);
            let to = (run.first + run.pages).min(end);
            let place = (from - first) as usize * size..(to - first) as usize * size;
            let stands = u64::from(run.at + from - run.first) * size as u64;
            let bytes = &mut bytes[place];
            self.file.read_at(bytes, stands)?;
            for (no, bytes) in (from..).zip(bytes.chunks(size)) {
                let id = PageId::new(self.space, PageNo(no));
                if manifest.damaged.binary_search(&id).is_err() {
                    let named = |e: Error| e.in_file(&self.file.path().display().to_string());
                    page::verify(bytes, id).map_err(named)?;
                }
            }
        }
        Ok(())
    }
}
