//! What can be set while the database is open. The next start has what `Options` says.

use std::time::Duration;

use super::{Database, PoolDumpOptions, options};
use crate::base::{Error, MemoryLimit, Result};
use crate::buffer::ChangeBufferOptions;
use crate::flush::FlushOptions;
use crate::txn::{FlushLog, HistoryOptions, PurgeOptions};

impl Database {
    /// Changes how many tables may be open that nobody uses (`Options::table_cache`).
    pub fn set_table_cache(&self, tables: u32) {
        self.inner.core.tables.set_limit(tables as usize);
    }

    /// Changes when commits become durable.
    pub fn set_flush_log_at_trx_commit(&self, mode: FlushLog) {
        self.inner.core.settings.set_flush_log(mode);
    }

    /// Changes how long new transactions wait for a lock.
    pub fn set_lock_wait_timeout(&self, timeout: Duration) {
        self.inner.core.settings.set_lock_wait_timeout(timeout);
    }

    /// Changes how much memory locks may take (`Options::lock_memory_bytes`). Those that are held stay.
    pub fn set_lock_memory_bytes(&self, bytes: u64) {
        self.inner.core.locks.set_memory_limit(bytes);
    }

    /// Changes whether tables are encrypted that don't say anything else (`Options::encrypt_tables`): new
    /// ones at once, others in the background (`Options::rotation`).
    ///
    /// # Errors
    ///
    /// `NoKey`: there is no key 1. Nothing has changed.
    pub fn set_encrypt_tables(&self, are_encrypted: bool) -> Result<()> {
        self.inner.ddl.spaces.set_encrypts_tables(are_encrypted)?;
        self.inner.rotation.look_again();
        Ok(())
    }

    /// Whether `set_encrypt_tables` finds the key that it takes.
    ///
    /// # Errors
    ///
    /// `NoKey`: it does not.
    pub fn can_encrypt_tables(&self) -> Result<()> {
        self.inner.ddl.spaces.can_encrypt_tables()
    }

    /// Changes when scans read ahead (`Options::read_ahead_threshold`).
    ///
    /// # Errors
    ///
    /// `Invalid`: above 64.
    pub fn set_read_ahead_threshold(&self, leaves: u32) -> Result<()> {
        options::validate_read_ahead_threshold(leaves)?;
        self.inner.core.pool.set_read_ahead_threshold(leaves);
        Ok(())
    }

    /// Changes which changes of entries wait in change buffers, and how large these may become
    /// (`Options::change_buffer`). What is in them is merged in any case.
    ///
    /// # Errors
    ///
    /// `Invalid`: more than half of the pool. Nothing has changed.
    pub fn set_change_buffer_options(&self, options: ChangeBufferOptions) -> Result<()> {
        options.validate()?;
        let core = &self.inner.core;
        core.pool.change_buffers.set_options(options);
        core.merging_wanted.notify();
        Ok(())
    }

    /// Changes how much memory there is for cached pages (`Options::buffer_pool_bytes`), rounded down to
    /// whole pages. More is there when this returns. Less takes a while, in which pages are written and put
    /// out; nobody waits for it, and the status variable `buffer_pool_pages_leaving` says how far it is.
    /// Until the next start: that takes what `Options` says.
    ///
    /// # Errors
    ///
    /// `Invalid`: less than 256 pages, more than the machine's memory at the start, or than the process's
    /// control group may have. `NoSpace`: the system has no more memory. Then nothing has changed.
    pub fn set_buffer_pool_bytes(&self, bytes: u64) -> Result<()> {
        let core = &self.inner.core;
        let page_size = core.pool.page_size() as u64;
        options::validate_buffer_pool(bytes, page_size)?;
        let most = core.pool.most_frames() as u64 * page_size;
        if bytes > most {
            return Err(Error::invalid(format!(
                "buffer_pool_bytes {bytes} is above {most}, the machine's memory when the database was opened"
            )));
        }
        let before = core.pool.n_frames();
        let frames = (bytes / page_size) as usize;
        if frames > before
            && let Some(why) = MemoryLimit::exceeded_by("buffer_pool_bytes", bytes)
        {
            return Err(Error::invalid(why));
        }
        core.pool.set_frames(frames)?;
        if before != frames {
            core.note(&format!(
                "the buffer pool changes from {before} to {frames} pages"
            ));
        }
        Ok(())
    }

    /// Changes how much redo there may be between the checkpoint and the newest change
    /// (`Options::redo_capacity_bytes`). More is there when this returns; to set what is set already does
    /// nothing. To less the way is taken while the
    /// checkpoint moves, and nobody waits for that; the status variable `redo_log_capacity_resized` says how
    /// far it is.
    ///
    /// # Errors
    ///
    /// `Invalid`: less than 2 MiB. `NoSpace`: there is no room for the files. Then nothing has changed.
    pub fn set_redo_capacity_bytes(&self, bytes: u64) -> Result<()> {
        let core = &self.inner.core;
        let before = core.log.capacity();
        core.log.set_capacity(bytes)?;
        core.note(&format!(
            "the redo log's capacity changes from {before} to {bytes} bytes"
        ));
        Ok(())
    }

    /// Changes how many rollback segments new transactions take (`Options::undo_logs`).
    ///
    /// # Errors
    ///
    /// `Invalid`: not from 1 to 128.
    pub fn set_undo_logs(&self, count: u32) -> Result<()> {
        options::validate_undo_logs(count)?;
        self.inner.core.undo.use_rsegs(count as usize);
        Ok(())
    }

    /// Changes how purge works (`Options::purge`), from its next batch on. Without a limit to its lag nobody
    /// is delayed at once.
    pub fn set_purge_options(&self, options: PurgeOptions) -> Result<()> {
        self.inner.core.set_purge(options)
    }

    /// Changes what becomes of versions that old read views need (`Options::history`), from purge's next
    /// batch on. Views that rely on the history store already keep doing so.
    pub fn set_history_options(&self, options: HistoryOptions) -> Result<()> {
        self.inner.core.settings.set_history(options)
    }

    /// Changes how pages are written (`Options::flush`), from the page cleaner's next round on.
    ///
    /// # Errors
    ///
    /// `Invalid`: a value is out of bounds, or the database is closed.
    pub fn set_flush_options(&self, options: FlushOptions) -> Result<()> {
        match &*self.inner.background.lock() {
            Some(background) => background.flusher.set_options(options),
            None => Err(Error::invalid("the database is closed")),
        }
    }

    /// Changes what is done about the buffer pool's content at shutdown and by the next two
    /// (`Options::pool_dump`).
    ///
    /// # Errors
    ///
    /// `Invalid`: a value is out of bounds.
    pub fn set_pool_dump_options(&self, options: PoolDumpOptions) -> Result<()> {
        self.inner.warmth.set_options(options)
    }
}
