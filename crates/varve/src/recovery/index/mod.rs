//! The index of a redo log file: which pages the frames in it change, and where in the log these frames are.
//!
//! A full log file `redo/NNNNNN.vlog` may have an index `redo/NNNNNN.vidx` beside it. Recovery then need not
//! read the log file before the database opens: it takes from the index which pages lack redo, and who
//! touches one of them reads the frames that the index names. This is the indexed log archive of Sauer,
//! Graefe and Härder (*Instant restore after a media failure*, ADBIS 2017; *FineLine: log-structured
//! transactional storage and recovery*, PVLDB 11(13), 2018). There the partitions of the archive hold copies
//! of the log records, sorted by page; here an index holds the **places** of frames in the log, which is
//! still there, so it has about a tenth of the log's size. Copied are only the changes of which a page has so
//! many that reading each of them would take too long.
//!
//! What an index says of a page is the page's **entry**: in the order of the log, from the last frame on that
//! starts the page as zeros, the place of each frame that changes it, or what that frame says of it. Entries
//! are sorted by page and lie in blocks (`block`); a directory tells which block has a page's entry.
//!
//! - **IDX-1** An index covers the frames from `first` to `next` of its head without a gap, and no others.
//!   The next file's frames begin at `next`.
//! - **IDX-2** An entry says everything that these frames do to its page from the last one on that starts it
//!   as zeros, or from the first one on. A frame stands in an entry once as a place, or with all of its
//!   changes of the page, never both: so a reader that takes all changes of the page from each frame that is
//!   named applies nothing twice. The frame that starts the page as zeros may have changes of it before that,
//!   which are passed over (CHAIN-1).
//! - **IDX-3** A change stands in the entry itself if its frame's operations on the page take no more bytes
//!   than 16 and the number of frames in the entry before it. So a page whose frames have at most n bytes for
//!   it takes at most n reads, however often it was changed. A frame that starts a page as zeros is always a
//!   place.
//! - **IDX-4** An index is bound to its log file by database, number, generation, and the LSNs of its start
//!   and end. Every byte has a checksum that is reached from the header: the header has one of its own and
//!   those of the sections, the directory has those of the blocks. An index is never synced: if it is
//!   missing, torn or another file's, the log file is read instead.
//!
//! The format is in docs/format.md. `indexer` makes indexes of the log's files in the background; the rest
//! has no latches, no threads, and no I/O but reading an index's own file. When indexes are used is not the
//! matter of this module.

mod block;
mod build;
mod file;
mod indexer;
#[cfg(all(test, not(loom)))]
mod indexer_tests;
mod sections;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use super::scan::LogSummary;
use crate::base::Lsn;

pub use block::{IndexedFrame, decode_block, decrypt_block};
pub use build::IndexBuilder;
pub use file::{Block, Index};
pub use indexer::{Indexer, IndexerCounters, IndexerEnv};

const SUFFIX: &str = ".vidx";

/// Which log file an index is of (IDX-4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileId {
    pub number: u64,
    pub generation: u64,
    /// Where the file's part of the stream begins and ends.
    pub start: Lsn,
    pub end: Lsn,
}

/// The database that an index file belongs to.
#[derive(Clone, Copy)]
pub struct DatabaseIdentity {
    pub page_size: u32,
    pub uuid: [u8; 16],
}

/// What an index says that is of no page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    pub file: FileId,
    /// Where the first frame in it starts.
    pub first: Lsn,
    /// Where the first frame behind it starts: the end of the last one in it, which may go on in the next
    /// file.
    pub next: Lsn,
    pub summary: LogSummary,
}

/// The index of the log file of this number, in the directory of the log files.
pub fn index_path(redo: &Path, number: u64) -> PathBuf {
    redo.join(format!("{number:06}{SUFFIX}"))
}

/// The number of the log file whose index has this name; `None` if no index has.
pub fn index_number_of(name: &str) -> Option<u64> {
    name.strip_suffix(SUFFIX)?.parse().ok()
}
