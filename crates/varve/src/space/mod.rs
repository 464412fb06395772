//! Tablespaces: files of pages, their registry, and which of their pages are in use.
//!
//! Invariants:
//! - **SP-1** A tablespace id is never used for two files. A page of a tablespace that is gone is never read,
//!   and writing it does nothing.
//! - **SP-2** A mini-transaction that allocates or frees pages of a file has its page 1 latched exclusively,
//!   until commit. So one mini-transaction at a time changes a file's allocation pages, whichever they are.
//!   In the latch order they come last (docs/locking.md); only a page just allocated, which nobody else can
//!   be looking for, is latched after them.
//! - **SP-3** Room is reserved before a mini-transaction begins ([`Space::reserve`]): an allocation under a
//!   reservation finds a page. A few pages of each file are kept, so that undoing work never fails for space
//!   (SP-9).
//! - **SP-4** A file is complete and durable, and so is its name, before [`Spaces::create`] returns, that is
//!   before anything can refer to it.
//! - **SP-5** The size of a file is a multiple of an extent once it is larger than one, so that the
//!   allocation page of its last group is always in it.
//! - **SP-6** Pages may be given back unread and unwritten ([`Space::discard`], [`Space::free_unread`]):
//!   those of an unlogged tablespace, and those of a tree whose index is gone. What a free page holds means
//!   nothing, and a mini-transaction that takes it formats it as new. One that is given back by itself says
//!   that it is free.
//! - **SP-7** In a logged tablespace a page in use has a type other than unused and free.
//! - **SP-8** Until a file that is being removed or replaced is gone for good, no write to it is passed over:
//!   it waits, or it is done if the file stays open. A write that does nothing makes its page count as clean:
//!   the checkpoint would pass changes of a file that a crash brings back, to which the redo behind them does
//!   not apply.
//!
//! - **SP-9** Pages of each file are kept for rollback, purge, and DDL that removes or renames a file
//!   ([`AllocPurpose::Cleaning`]): 16 or one in 64 of a file larger than an extent; of a smaller one 8 if it
//!   has rollback segments, else 1. They have their space on the disk: a file is extended with its space, and
//!   the holes of one that was copied are filled when it is opened. What was taken of them is made up for
//!   before anybody gets a page for other work: the file grows, or he is refused.
//!
//! What needs them:
//! - In a table's file, rollback: a row that gets its length back may split a page on each level of its tree.
//!   A rollback that needs more than is there waits for room (txn/rollback.rs, RB-1).
//! - In the system tablespace and those of undo, rollback and purge take none: the room of a log in the
//!   history is made with the log, and definitions that are put back have the length that they had. So all of
//!   them are for `DROP TABLE`, `TRUNCATE TABLE` and `RENAME TABLE` (the last step of an `ALTER TABLE`, which
//!   the server can't take back if it is refused that, too), one statement at a time: at most a page to begin
//!   each of its two undo logs, a page of the history queue, and as many as the undo records fill. These have
//!   a hundred bytes and the table's name for each quarter of a page of the definition, and for `TRUNCATE`
//!   and `RENAME` that quarter, too. All of them use the same rollback segment while it is active
//!   (`UndoSys::assign`) and share its pages, so that many tables can be dropped while a view keeps purge
//!   away. The checkpoint goes on meanwhile: redo, control and doublewrite file have their space from the
//!   beginning.
//!
//! What holds for compressed tablespaces is in `compressed` (SP-14, SP-15): a page that is kept there may
//! have less than its place by now, and waits in the buffer pool then until there is room to write it (FL-3).
//! The room for `TRUNCATE TABLE` is in `spare` (SP-10). How large files go is in `removal` (SP-11, SP-12).
//! Where users put files to be imported is in `awaited` (SP-13). The counter of a table's file, which its
//! rows raise without a latch, is in `counter` (COUNTER-1 to COUNTER-3).
//!
//! The temporary tablespace is made anew at every start, in the place of what is left of the last one, and
//! never synced. `unlogged` says what happens when it can't be written or read.
//!
//! Files are read and written by the buffer pool only, through [`PageStore`]; pages 0 and 1 are written
//! directly when a file is made. The data directory's layout belongs to the callers: paths are relative to
//! it.
//!
//! Failure: an error leaves files and registry as they were, but for growth that nobody needed.
//! `Error::NoSpace` when the disk is full.

mod alloc;
mod alloc_page;
mod awaited;
mod compressed;
mod counter;
mod encrypted;
mod extents;
mod file;
mod header;
mod link;
mod making;
mod page_store;
mod registry;
mod removal;
mod spare;
#[cfg(test)]
mod tests;
mod unlogged;
mod verify;
mod written;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};

pub use alloc::{ALLOC_LOG_BYTES, AllocPurpose, FREE_LOG_BYTES, Reserved};
pub use alloc_page::{EXTENT_PAGES, MIXED};
pub use awaited::awaited_mark_path;
pub use compressed::CompressionCounters;
pub use counter::{COUNTER_AT, COUNTER_PAGE, FileCounter, Raise};
pub use encrypted::{EncryptionCounts, SpaceEncryption, Target};
pub use file::OpenFiles;
pub use header::{DefinitionCopy, FileHeader, SpaceKind, Stage, definition_room, stage_on};
pub use link::{Dangling, target_name};
pub use registry::{NewSpace, Spaces, UNFINISHED_EXTENSION};
pub use spare::SPARE_FILE;
pub use written::{PageSet, PeriodId, WrittenPages, WrittenPlace};

use crate::base::{Error, PageId, PageNo, Result, SpaceId, TableId};
#[cfg(doc)]
use crate::buffer::PageStore;
use alloc_page::Geometry;
use compressed::Places;
use encrypted::{AtomicStage, SpaceCiphers};
use extents::Extents;
use file::SpaceFile;

/// One tablespace that is open. There is one of each table that was used since the start: so what few of them
/// need is made when it is needed, and stands elsewhere.
pub struct Space {
    id: SpaceId,
    header: FileHeader,
    /// Where the file is, if its path is a link's.
    target: Option<PathBuf>,
    geometry: Geometry,
    file: Arc<SpaceFile>,
    /// Pages in the file. Only grows, under `growing`; stored with Release after the file was extended.
    size: AtomicU32,
    growing: Mutex<()>,
    /// `None` until the first reservation. Locked for a moment only; page latches come first.
    extents: Mutex<Option<Box<Extents>>>,
    /// Why no page of it can be relied on any more (TEMP-6); never of a redo-logged one. Its Release comes
    /// before a page counts as written that was not.
    lost: OnceLock<Box<Error>>,
    /// Pages in use, as `extents` has it; 0 as long as that is not known. Stored under its mutex, and
    /// Relaxed, because it stands for itself: each statement asks about its tables' sizes, and must not meet
    /// all others at a mutex.
    used: AtomicU32,
    /// If its pages are stored compressed.
    places: Option<Arc<Places>>,
    /// How far its encryption is. Relaxed, as `Encrypting`.
    stage: AtomicStage,
    /// Made when the first page of it is to be encrypted or decrypted.
    ciphers: OnceLock<Box<RwLock<SpaceCiphers>>>,
    /// Made when it is first raised.
    counter: OnceLock<Box<FileCounter>>,
}

const _: () = assert!(size_of::<Space>() <= 240);

impl Space {
    pub fn id(&self) -> SpaceId {
        self.id
    }

    pub fn kind(&self) -> SpaceKind {
        self.header.kind
    }

    pub fn table(&self) -> TableId {
        self.header.table
    }

    /// Relative to the data directory.
    pub fn path(&self) -> String {
        self.file.path()
    }

    /// The counter of a table's file.
    pub fn counter(&self) -> &FileCounter {
        debug_assert_eq!(self.kind(), SpaceKind::Table);
        self.counter.get_or_init(Box::default)
    }

    /// What recovery has found of it. Redo may say anything.
    fn recover_counter(&self, next: u64) {
        if self.kind() == SpaceKind::Table {
            self.counter().note(next);
        }
    }

    /// What is noted of it; 0 if nothing is.
    pub fn noted_counter(&self) -> u64 {
        self.counter.get().map_or(0, |counter| counter.noted())
    }

    /// Its pages are read and written past the operating system's cache.
    pub fn is_direct(&self) -> Result<bool> {
        Ok(self.file.to_read()?.is_direct())
    }

    pub fn size_pages(&self) -> u32 {
        self.size.load(Acquire)
    }

    fn page(&self, no: PageNo) -> PageId {
        PageId::new(self.id, no)
    }

    fn offset(&self, no: PageNo) -> u64 {
        u64::from(no.0) * self.geometry.page_size as u64
    }

    /// Extends the file to `pages` or more.
    fn grow_file(&self, pages: u32) -> Result<()> {
        let _one = self.growing.lock();
        if pages <= self.size_pages() {
            return Ok(());
        }
        let pages = round_size(pages)?;
        self.file.allocate(self.offset(PageNo(pages)))?;
        self.size.store(pages, Release);
        Ok(())
    }
}

/// SP-5.
fn round_size(pages: u32) -> Result<u32> {
    if pages <= EXTENT_PAGES {
        return Ok(pages.max(2));
    }
    let rounded = pages.checked_next_multiple_of(EXTENT_PAGES);
    rounded.ok_or_else(|| Error::NoSpace {
        what: "a tablespace holds fewer than 2^32 pages".into(),
    })
}

#[cfg(test)]
mod size_tests {
    use super::*;

    #[test]
    fn page_numbers_that_run_out_are_refused() {
        for (pages, size) in [
            (1, Some(2)),
            (64, Some(64)),
            (65, Some(128)),
            (u32::MAX - 63, Some(u32::MAX - 63)),
            (u32::MAX - 62, None),
            (u32::MAX, None),
        ] {
            match (round_size(pages), size) {
                (Ok(got), Some(size)) => assert_eq!(got, size),
                (Err(Error::NoSpace { .. }), None) => {}
                (got, _) => panic!("{pages}: {got:?}"),
            }
        }
    }
}
