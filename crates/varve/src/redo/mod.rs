//! The redo log: log buffer, log files, group commit, checkpoint bookkeeping; and the control file.
//!
//! Everything that mini-transactions change in pages stands here first. Invariants, with the place that keeps
//! them:
//!
//! - **WAL-1** A page is written only after the log is durable up to its page LSN: the flusher calls
//!   [`RedoLog::sync_to`] first.
//! - **WAL-2** The checkpoint LSN never passes a change that is not in a synced data page, unless the file
//!   is gone for good (SP-8): the checkpointer's duty; [`RedoLog::set_checkpoint`] refuses to go back or
//!   past the durable log.
//! - **WAL-3** A torn or missing tail never replays part of a mini-transaction: [`RedoReader`], `frame`,
//!   `files`.
//! - **WAL-4** A failed write or sync of the log poisons the database: no commit is acknowledged after it,
//!   until it is opened again: [`RedoLog::poison`].
//!
//! The stream says of itself how far it was durable: a log that breaks off below that is damaged, and not at
//! its end (WAL-10, `mark`).
//!
//! An LSN is a byte position in the stream of frames (`frame`); file headers are not counted. `ring` is the
//! buffer that mini-transactions fill in parallel, `files` the preallocated files it is written to, of which
//! `file_pool` has enough, `write` writes it there, `capacity` says how far it may go, `log` ties them
//! together, `writer` is the background thread. `kept` keeps files for those who copy them, `log_copy`
//! copies.
//!
//! Mutex order: writer, file pool, then the small ones (group, capacity, alarm), which are leaves. None is
//! held while waiting for a latch or during a sync. What this layer does not do: it knows nothing of what a
//! frame's body means.

mod ahead;
mod capacity;
mod control;
mod credit;
mod file_pool;
mod files;
mod frame;
mod full;
mod gather;
mod group;
mod intro;
mod kept;
mod log;
mod log_copy;
mod mark;
mod pieces;
mod reader;
mod ring;
mod stream;
mod write;
mod writer;

#[cfg(all(test, not(loom)))]
mod tests;

pub use capacity::{HeldCapacity, Reservation};
pub use control::{CONTROL_FILE, Control, ControlFile, Copied, control_copies};
pub use files::{REDO_DIR, damaged_files};
pub use frame::{MAX_FRAME_BYTES, frame_bytes};
pub use full::FullFile;
pub use intro::{
    COMPRESSED_PAGES, FORMAT_VERSION, FileIntro, INTRO_BYTES, NO_SPACE, OLDEST_VERSION,
};
pub use kept::KeptRedo;
pub use log::{LogCounters, RedoLog, Ticket};
pub use log_copy::{CopiedLogFile, LogCopy, verify_copied_log};
pub use mark::MARK_RECORD;
pub use pieces::{Piece, PieceReader, Through};
pub use reader::{Frame, RedoReader};
pub use stream::{Fetched, GAP_BYTES, Stream};
pub use writer::LogWriter;

use crate::base::{Error, Result, Sabotage};
use crate::encryption::Keyring;

/// How a log is laid out.
#[derive(Clone)]
pub struct LogSettings {
    /// The most that may lie between the checkpoint and the newest LSN.
    pub capacity_bytes: u64,
    /// Size of the log buffer; a power of two, at least two of the longest frames.
    pub buffer_bytes: u64,
    /// Length of a new log file, header included; a multiple of 4096.
    pub file_bytes: u64,
    pub page_size: u32,
    pub uuid: [u8; 16],
    /// Whether the log is written through the operating system's cache.
    pub buffered: bool,
    /// Whether what is written from now on is encrypted.
    pub encrypted: bool,
    pub keyring: Keyring,
    /// What the database does wrong on purpose, for tests of tests.
    pub sabotage: Option<Sabotage>,
}

impl LogSettings {
    /// A log of `capacity_bytes` in about eight files, with a buffer of 16 MiB or a quarter of the capacity.
    pub fn new(capacity_bytes: u64, page_size: u32, uuid: [u8; 16]) -> LogSettings {
        let least = 2 * u64::from(MAX_FRAME_BYTES);
        LogSettings {
            capacity_bytes,
            buffer_bytes: (capacity_bytes / 4)
                .clamp(least, 1 << 24)
                .next_power_of_two(),
            file_bytes: file_pool::file_bytes_for(capacity_bytes, None),
            page_size,
            uuid,
            buffered: false,
            encrypted: false,
            keyring: Keyring::default(),
            sabotage: None,
        }
    }

    fn validate(&self) -> Result<()> {
        capacity::check_capacity(self.capacity_bytes)?;
        let least = 2 * u64::from(MAX_FRAME_BYTES);
        if !self.buffer_bytes.is_power_of_two() || self.buffer_bytes < least {
            return Err(Error::invalid(format!(
                "log buffer of {} bytes; it takes a power of two, at least {least}",
                self.buffer_bytes
            )));
        }
        let least = file_pool::LEAST_FILE_BYTES;
        if !self.file_bytes.is_multiple_of(4096) || self.file_bytes < least {
            return Err(Error::invalid(format!(
                "log files of {} bytes; it takes a multiple of 4096, at least {least}",
                self.file_bytes
            )));
        }
        Ok(())
    }
}
