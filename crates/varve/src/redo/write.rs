//! Writing the log buffer to the log files: [`Writer`], and the calls that make their thread the writer for a
//! moment.
//!
//! - **LW-1** The files are written in whole blocks, from their first byte on, without a hole (IO-6). The end
//!   of the last block is zero. What comes next writes that block again, with what it held: the same bytes at
//!   the same place, so that a torn write takes nothing away from what was durable. Until then the zeros end
//!   the log as old frames would (WAL-3).
//!
//! The writer's mutex is held while a file is written, never during a sync: a group can be written while the
//! one before it is being synced. Errors poison the log (WAL-4).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::files::LogFile;
use super::log::{Backoff, RedoLog, count};
use crate::base::{Lsn, Result};
use crate::io::{AlignedBuf, DIRECT_BLOCK, DiskFile};

/// The most that is taken out of the log buffer at once.
const WRITE_CHUNK: usize = 4 << 20;

/// The state of writing the ring out; its mutex makes its holder *the* writer.
pub(super) struct Writer {
    current: LogFile,
    /// Everything below was drained from the ring.
    position: u64,
    /// Begins with a block's beginning: the `kept` bytes before `position` that share its block.
    buf: AlignedBuf,
    kept: usize,
    /// Files written to since they were last handed to a sync, oldest first.
    unsynced: LogFiles,
}

/// Hardly ever more than one.
type LogFiles = SmallVec<[Arc<dyn DiskFile>; 2]>;

impl Writer {
    /// A writer at the beginning of `current`'s part of the stream.
    pub fn new(current: LogFile) -> Writer {
        Writer {
            position: current.header.start.0,
            current,
            buf: AlignedBuf::new(WRITE_CHUNK + DIRECT_BLOCK),
            kept: 0,
            unsynced: LogFiles::new(),
        }
    }
}

impl RedoLog {
    /// Writes everything complete to the log files. A failure poisons.
    fn write_complete(&self, writer: &mut Writer) {
        let complete = self.complete_lsn().0;
        while writer.position < complete {
            let from = writer.position;
            let to = complete.min(from + WRITE_CHUNK as u64);
            let filled = writer.kept + (to - from) as usize;
            let room = &mut writer.buf[writer.kept..filled];
            self.ring.drain(Lsn(from), Lsn(to), room);
            writer.position = to;
            if self.poisoned.load(Ordering::Acquire) {
                continue;
            }
            match self.write_blocks(writer, filled) {
                Ok(()) => {
                    count(&self.counters.written_bytes, to - from);
                    self.written.store(to, Ordering::Release);
                }
                Err(e) => self.poison(format!("the redo log could not be written: {e}")),
            }
        }
    }

    /// Writes the first `filled` bytes of the buffer, which end at `position`, and keeps those of the last
    /// block.
    fn write_blocks(&self, writer: &mut Writer, filled: usize) -> Result<()> {
        let new = (filled - writer.kept) as u64;
        let (mut at, mut blocks) = (0, 0);
        while at < filled {
            let header = &writer.current.header;
            let begin = writer.position - (filled - at) as u64;
            let room = (header.end().0 - begin) as usize;
            if room == 0 {
                writer.current = self.next_file()?;
                count(&self.counters.file_switches, 1);
                self.ring_alarm();
                continue;
            }
            let end = filled.min(at + room);
            // Only the last block of all can be filled in part: files have whole blocks (LW-1).
            let whole = end.next_multiple_of(DIRECT_BLOCK);
            writer.buf[end..whole].fill(0);
            let offset = writer.current.offset(begin);
            let file = &writer.current.file;
            file.write_at(&writer.buf[at..whole], offset)?;
            if !writer.unsynced.last().is_some_and(|f| Arc::ptr_eq(f, file)) {
                writer.unsynced.push(file.clone());
            }
            count(&self.counters.writes, 1);
            blocks += (whole - at) as u64;
            at = end;
        }
        count(&self.counters.padding_bytes, blocks - new);
        writer.kept = filled % DIRECT_BLOCK;
        writer.buf.copy_within(filled - writer.kept..filled, 0);
        Ok(())
    }

    /// Writes what is complete. Returns the files to sync for that.
    pub(super) fn write_to_sync(&self) -> LogFiles {
        let mut writer = self.writer.lock();
        self.write_complete(&mut writer);
        std::mem::take(&mut writer.unsynced)
    }

    /// Writes what is complete, without sync.
    pub(super) fn write_out(&self) {
        self.write_complete(&mut self.writer.lock());
    }

    /// Writes what is complete if nobody else does. Returns whether there was anything.
    pub(super) fn try_write_out(&self) -> bool {
        let Some(mut writer) = self.writer.try_lock() else {
            return false;
        };
        let before = writer.position;
        self.write_complete(&mut writer);
        writer.position > before
    }

    /// Waits until no mini-transaction below `lsn` is still being copied.
    pub(super) fn wait_complete(&self, lsn: Lsn) -> Result<()> {
        assert!(
            lsn <= self.next_lsn(),
            "LSN {lsn} is not part of the log yet"
        );
        let mut backoff = Backoff::default();
        while self.complete_lsn() < lsn {
            self.check()?;
            backoff.wait();
        }
        Ok(())
    }

    /// Returns once the log up to `lsn` has been handed to the operating system: it survives the process.
    pub fn write_to(&self, lsn: Lsn) -> Result<()> {
        self.check()?;
        if self.written_lsn() >= lsn {
            return Ok(());
        }
        self.wait_complete(lsn)?;
        let mut writer = self.writer.lock();
        if writer.position < lsn.0 {
            self.write_complete(&mut writer);
        }
        self.check()
    }
}
