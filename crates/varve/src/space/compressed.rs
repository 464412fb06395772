//! Tablespaces whose pages are stored compressed (`page/stored.rs`), and what is left of their places, which
//! goes back to the file system.
//!
//! Each page has its place in the file, as in any other tablespace. A compressed page takes the first blocks
//! of it, and behind them there is a hole. So a page that is longer than it was needs room on a disk that may
//! be full by now, when it is written, which is when nobody can be refused any more.
//!
//! - **SP-14** The places of a batch's pages have space on the disk for them before the first byte of the
//!   batch is written. A page for which there is none stays dirty, and is tried again (FL-3).
//! - **SP-15** What is behind a page in its place is given back when the page is durable there. Before that
//!   the blocks may be the end of what a crash leaves of it.
//!
//! How much of its place a page has is remembered once it was written; the file system knows the rest.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use super::{Space, Spaces};
use crate::base::{Error, PageId, PageNo, Recently, Result, SpaceId};
use crate::encryption::Cipher;
use crate::io::DIRECT_BLOCK;
use crate::page::{self, Compression, Compressor, Sealing};

/// How long pages wait for which there was no room.
const FULL_LASTS: Duration = Duration::from_secs(1);

/// What is known of the places in one file.
pub(super) struct Places {
    with: Compression,
    /// By page number: how many blocks it has; 0 if that is not known.
    blocks: Mutex<Vec<u8>>,
    /// There was no room for these pages.
    full: Recently,
    refused: Mutex<HashSet<PageNo>>,
    /// The file system takes nothing back. Relaxed: it is tried once more at worst.
    keeps_space: AtomicBool,
}

impl Places {
    /// `None` for pages as large as a block: each takes its place.
    pub(super) fn of(with: Compression, page_size: usize) -> Option<Arc<Places>> {
        let places = || {
            Arc::new(Places {
                with,
                blocks: Mutex::default(),
                full: Recently::default(),
                refused: Mutex::default(),
                keeps_space: AtomicBool::new(false),
            })
        };
        (page_size > DIRECT_BLOCK).then(places)
    }

    fn known(&self, no: PageNo) -> usize {
        let blocks = self.blocks.lock();
        blocks.get(no.0 as usize).map_or(0, |n| usize::from(*n))
    }

    /// There is no room for the page. Others that were refused a while ago may be tried again.
    fn refuse(&self, no: PageNo) {
        let mut refused = self.refused.lock();
        if !self.full.is_on() {
            refused.clear();
            self.full.note(FULL_LASTS);
        }
        refused.insert(no);
    }

    fn note(&self, no: PageNo, n: usize) {
        let mut blocks = self.blocks.lock();
        let at = no.0 as usize;
        if blocks.len() <= at {
            blocks.resize(at + 1, 0);
        }
        blocks[at] = u8::try_from(n).expect("the largest page has 16 blocks");
    }
}

impl Space {
    /// There was no room for one of its pages a moment ago.
    pub(super) fn was_refused(&self, no: PageNo) -> bool {
        (self.places.as_ref()).is_some_and(|p| p.full.is_on() && p.refused.lock().contains(&no))
    }
}

/// For all compressed tablespaces. Relaxed throughout: they count, and nothing else depends on them.
#[derive(Default)]
pub struct CompressionCounters {
    /// Pages that were written compressed.
    pub compressed: AtomicU64,
    /// Pages that would not have got smaller by a block.
    pub not_compressed: AtomicU64,
    /// Bytes that were not written.
    pub saved_bytes: AtomicU64,
    /// Ends of places that were given back.
    pub punched: AtomicU64,
}

/// What compressing takes.
#[derive(Default)]
pub(super) struct Compressing {
    /// The page cleaner's: one batch is written at a time.
    compressor: Mutex<Compressor>,
    counters: CompressionCounters,
    /// One of them has been full.
    any_full: Recently,
    /// The administrator has been told that a file system keeps the space.
    is_kept_told: AtomicBool,
}

impl Spaces {
    /// What came of compressing pages.
    pub fn compression(&self) -> &CompressionCounters {
        &self.compressing.counters
    }

    /// A tablespace that is compressed. Counts no reference to others, which all threads would write.
    pub(super) fn compressed(&self, id: SpaceId) -> Option<(Arc<Space>, Arc<Places>)> {
        let spaces = self.spaces.read();
        let space = spaces.get(&id)?;
        Some((space.clone(), space.places.clone()?))
    }

    pub(super) fn is_any_full(&self) -> bool {
        self.compressing.any_full.is_on()
    }

    /// Makes a copy of a page its stored form, and sees to it that there is room for it (SP-14).
    pub(super) fn seal_in_place(
        &self,
        space: &Space,
        places: &Places,
        page: PageId,
        cipher: Option<&Cipher>,
        copy: &mut [u8],
    ) -> Result<()> {
        let mut compressor = self.compressing.compressor.lock();
        let compression = Some((places.with, &mut *compressor));
        let sealing = Sealing {
            compression,
            cipher,
        };
        self.count_sealed(page::seal_with(copy, page, sealing));
        let no = page.no;
        let blocks = page::place_bytes(copy) / DIRECT_BLOCK;
        let known = places.known(no);
        if blocks <= known {
            return Ok(());
        }
        let from = space.offset(no) + (known * DIRECT_BLOCK) as u64;
        let more = (blocks - known) * DIRECT_BLOCK;
        let reserved = space.file.reserve(from, more as u64);
        match &reserved {
            Ok(()) if known > 0 => places.note(no, blocks),
            // Nothing was ever given back there.
            Ok(()) if places.keeps_space.load(Relaxed) => {
                places.note(no, self.page_size / DIRECT_BLOCK);
            }
            Err(Error::NoSpace { .. }) => {
                places.refuse(no);
                self.compressing.any_full.note(FULL_LASTS);
            }
            _ => {}
        }
        reserved
    }

    /// SP-15. That space can't be given back keeps nobody from going on.
    pub(super) fn give_back_ends(&self, pages: &[(PageId, usize)]) {
        for &(id, bytes) in pages {
            if let Some((space, places)) = self.compressed(id.space) {
                self.count_written(bytes);
                self.give_back_end(&space, &places, id.no, bytes);
            }
        }
    }

    fn count_written(&self, bytes: usize) {
        let counters = &self.compressing.counters;
        match self.page_size - bytes {
            0 => drop(counters.not_compressed.fetch_add(1, Relaxed)),
            saved => {
                counters.compressed.fetch_add(1, Relaxed);
                counters.saved_bytes.fetch_add(saved as u64, Relaxed);
            }
        }
    }

    fn give_back_end(&self, space: &Space, places: &Places, no: PageNo, bytes: usize) {
        let (known, blocks) = (places.known(no), bytes / DIRECT_BLOCK);
        assert!(
            blocks > 0 && bytes.is_multiple_of(DIRECT_BLOCK),
            "SP-15: a hole from byte {bytes} of page {no} on"
        );
        if known == blocks || places.keeps_space.load(Relaxed) {
            return;
        }
        let left = self.page_size - bytes;
        if left > 0 {
            let from = space.offset(no) + bytes as u64;
            let file = space.file.if_there();
            match file.and_then(|f| f.map_or(Ok(true), |f| f.punch(from, left as u64))) {
                Ok(true) => {}
                Ok(false) => {
                    places.keeps_space.store(true, Relaxed);
                    return self.tell_kept(space, "the file system can't do that");
                }
                Err(e) => return self.tell_kept(space, &e.to_string()),
            }
            self.compressing.counters.punched.fetch_add(1, Relaxed);
        }
        places.note(no, blocks);
    }

    fn tell_kept(&self, space: &Space, why: &str) {
        if !self.compressing.is_kept_told.swap(true, Relaxed) {
            let path = space.path();
            self.files().tell(&format!(
                "what compressed pages save in {path} can't be given back to the file system: {why}; they are written compressed, and the file stays as large as without that"
            ));
        }
    }
}
