//! The log's full files, for readers while the log goes on in others.
//!
//! - **WAL-9** A file is full once the log has gone on in the next one and is durable up to its end. What is
//!   in it does not change any more, until it is taken into use again, below the checkpoint. As the log is
//!   durable between frames, a frame that goes over the file's end is durable as a whole.
//!
//! Nobody keeps a file from being taken into use again (LF-3) while it is being read: the reader finds it
//! missing, or frames that are not whole (RF-1), and then looks whether it is still among the full ones. The
//! file pool's mutex is not held while files are opened.

use std::ops::Range;

use super::RedoLog;
use super::file_pool::FilesToRead;
use super::files::{Chain, ChainFile, missing, path_of};
use super::stream::Stream;
use crate::base::{Lsn, Result};
use crate::io::{DIRECT_BLOCK, OpenMode};

/// A log file that is full (WAL-9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FullFile {
    pub number: u64,
    pub generation: u64,
    /// Where its part of the stream begins and ends. The generation before it may have ended where it starts.
    pub start: Lsn,
    pub end: Lsn,
    /// It is the first one of its generation: a frame starts with it.
    pub is_first: bool,
}

impl RedoLog {
    /// The full files, oldest first, but for those that the log did not fill because it was opened again
    /// there.
    pub fn full_files(&self) -> Vec<FullFile> {
        // First: what is durable now was written to files that the pool knows.
        let durable = self.durable_lsn();
        let pool = self.files.lock();
        let mut full = Vec::new();
        let mut before = None;
        for f in pool.written_before() {
            let header = f.header;
            let is_first = before.is_some_and(|generation| generation != header.generation);
            before = Some(header.generation);
            if f.end == header.end() && f.end <= durable {
                full.push(FullFile {
                    number: header.number,
                    generation: header.generation,
                    start: header.start,
                    end: f.end,
                    is_first,
                });
            }
        }
        full
    }

    /// A part of the stream, in the files that hold it, open. It begins with a frame, and what is durable
    /// does not end before it.
    ///
    /// # Errors
    ///
    /// One of the files is not there or can't be opened: it may have been taken into use again.
    pub fn stream(&self, part: Range<Lsn>) -> Result<Stream> {
        assert!(
            part.end <= self.durable_lsn(),
            "WAL-9: {} is durable",
            part.end
        );
        let files_to_read = self.files.lock().files_to_read(part.clone());
        if files_to_read
            .files
            .first()
            .is_none_or(|f| part.start < f.header.start)
        {
            return Err(missing(&files_to_read.dir, part.start));
        }
        let files = open(&files_to_read)?;
        Ok(Stream::of(Chain { files }, files_to_read.queue).cut(part.end))
    }
}

/// As the log itself opens them.
fn open(files_to_read: &FilesToRead) -> Result<Vec<ChainFile>> {
    let is_whole = |bytes: u64| bytes.is_multiple_of(DIRECT_BLOCK as u64);
    let files = files_to_read.files.iter().map(|f| {
        let path = path_of(&files_to_read.dir, f.header.number);
        let file = match !files_to_read.buffered && is_whole(f.header.file_bytes) {
            true => files_to_read.disk.open_direct(&path)?,
            false => files_to_read.disk.open(&path, OpenMode::ReadOnly)?,
        };
        let lock = f.header.lock;
        let cipher = lock.map(|lock| lock.cipher(&files_to_read.keyring));
        Ok(ChainFile {
            header: f.header,
            end: f.end,
            file,
            cipher: cipher.transpose()?,
        })
    });
    files.collect()
}
