//! Everything that the engine counts, in one list: status variables, `INFORMATION_SCHEMA.VARVE_METRICS` and
//! `SHOW ENGINE VARVE STATUS` all come from here.
//!
//! A metric has the name that InnoDB's INNODB_METRICS gives to the same thing, if there is one, and that of
//! InnoDB's status variable. Values are read one after the other, not at one moment.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::Durations;
use crate::buffer::{AllChangeBuffers, LatchClass, PoolStats};
use crate::flush::{ASYNC, FlushCounters, SYNC};
use crate::history::Store;
use crate::lock::LockStats;
use crate::recovery::{IndexerCounters, Progress};
use crate::redo::LogCounters;
use crate::space::{CompressionCounters, EncryptionCounts, OpenFiles, Spaces};
use crate::txn::Core;

/// How a metric is to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// How often, or how much, since the database was opened: it never falls.
    Counter,
    /// The present value.
    Value,
}

/// Something that the engine counts.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    /// The name of the status variable, without the engine's.
    pub status_name: &'static str,
    /// The part of the engine that it is about.
    pub subsystem: &'static str,
    pub kind: MetricKind,
    pub comment: &'static str,
    pub value: u64,
}

/// All metrics, those of a subsystem together.
pub fn collect(
    core: &Core,
    spaces: &Spaces,
    flushed: &FlushCounters,
    recovery: Progress,
    indexer: Option<&IndexerCounters>,
) -> Vec<Metric> {
    let sources = Sources {
        core,
        files: spaces.files(),
        compression: spaces.compression(),
        encryption: spaces.encryption(),
        flushed,
        recovery,
        indexer,
        log: core.log.counters(),
        pool: core.pool.stats(),
        locks: core.locks.stats(),
    };
    let metric = |def: &MetricDef| Metric {
        name: def.name,
        status_name: def.status_name,
        subsystem: def.subsystem,
        kind: def.kind,
        comment: def.comment,
        value: (def.read)(&sources),
    };
    LIST.iter().map(metric).collect()
}

/// Where values come from.
struct Sources<'a> {
    core: &'a Core,
    files: &'a OpenFiles,
    compression: &'a CompressionCounters,
    encryption: EncryptionCounts,
    flushed: &'a FlushCounters,
    recovery: Progress,
    indexer: Option<&'a IndexerCounters>,
    log: &'a LogCounters,
    pool: PoolStats,
    locks: LockStats,
}

impl Sources<'_> {
    fn page_size(&self) -> u64 {
        self.core.pool.page_size() as u64
    }

    fn pages_dirty(&self) -> u64 {
        self.core.pool.dirty_logged_pages() as u64
    }

    fn dblwr_batches(&self) -> u64 {
        now(&self.flushed.doublewrite_batches)
    }

    fn pages_read(&self) -> u64 {
        self.pool.loads.saturating_sub(self.pool.creates)
    }

    /// Without those that were read ahead.
    fn reads_needed(&self) -> u64 {
        self.pages_read().saturating_sub(self.pool.read_ahead)
    }

    fn indexed(&self, count: fn(&IndexerCounters) -> &AtomicU64) -> u64 {
        self.indexer.map_or(0, |counters| now(count(counters)))
    }

    /// Of the history store; 0 without one.
    fn stored(&self, amount: fn(&Store) -> u64) -> u64 {
        let store = self.core.history.store();
        store.map_or(0, |store| amount(&store))
    }

    fn buffered(&self) -> &AllChangeBuffers {
        &self.core.pool.change_buffers
    }

    fn held(&self) -> impl Iterator<Item = &Durations> {
        let held = self.core.undo.held_by_truncation();
        held.into_iter().map(|(_, held)| held)
    }
}

/// A line of the list.
struct MetricDef {
    name: &'static str,
    status_name: &'static str,
    subsystem: &'static str,
    kind: MetricKind,
    comment: &'static str,
    read: fn(&Sources<'_>) -> u64,
}

fn now(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// `KIND NAME as STATUS_NAME = VALUE, COMMENT;`, where the status variable is called as the metric unless it
/// says otherwise.
macro_rules! metrics {
    (@status $name:ident) => { stringify!($name) };
    (@status $name:ident $status:ident) => { stringify!($status) };
    (|$from:ident| $($subsystem:literal {
        $($kind:ident $name:ident $(as $status:ident)? = $value:expr, $comment:literal;)*
    })*) => {
        const LIST: &[MetricDef] = &[$($(MetricDef {
            name: stringify!($name),
            status_name: metrics!(@status $name $($status)?),
            subsystem: $subsystem,
            kind: MetricKind::$kind,
            comment: $comment,
            read: |$from| $value,
        },)*)*];
    };
}

metrics! { |s|
    "transaction" {
        Value max_trx_id = s.core.sys.next_id(), "The next id or number of a transaction";
        Value trx_active_transactions as active_transactions = s.core.sys.unfinished().len() as u64,
            "Transactions that have written and have not ended, prepared ones included";
        Value prepared_transactions = s.core.prepared.count() as u64, "Prepared transactions";
        Value read_views = s.core.sys.view_numbers().len() as u64, "Open read views";
        Counter trx_rw_commits as commits = s.core.counters.commits.get(), "Commits of transactions that have written";
        Counter trx_rollbacks as rollbacks = s.core.counters.rollbacks.get(), "Rollbacks of transactions that have written";
        Value trx_rseg_history_len as history_list_length = s.core.undo.history_len(),
            "Length of the history: undo logs of committed transactions that are not purged yet";
        Value trx_rseg_current_size as undo_pages_used = u64::from(s.core.undo.used_pages()),
            "Pages in use in the undo tablespaces, in the system tablespace if there are none";
        Counter undo_cuts = s.core.counters.undo_cuts.get(), "Undo records that a reader missed: 0 in a sound database";
    }
    "purge" {
        Counter purge_invoked = s.core.counters.purge_invoked.get(), "Batches of purge";
        Counter purge_undo_log_pages = s.core.counters.purge_undo_log_pages.get(), "Undo pages that purge has read";
        Counter purge_del_mark_records = s.core.counters.purge_del_mark_records.get(),
            "Undo records of deleted rows that purge has worked off";
        Counter purge_upd_exist_or_extern_records = s.core.counters.purge_upd_exist_or_extern_records.get(),
            "Undo records of replaced index entries and replaced external values that purge has worked off";
        Counter purge_helper_records = s.core.counters.purge_helper_records.get(),
            "Undo records that the threads which help purge have worked off";
        Counter purge_pause_usec = s.core.counters.purge_pause_usec.get(),
            "Microseconds for which purge, while it had work, left the processors to others";
        Counter purge_stop_count = s.core.counters.purge_stop_count.get(),
            "How often purge came to a standstill for a second with history left, at a read view or an error";
        Counter purge_resume_count = s.core.counters.purge_resume_count.get(), "How often purge went on after a standstill";
        Value purge_dml_delay_usec = s.core.pacer.shown_delay(),
            "Microseconds by which a row change was delayed in the last second, because purge lags; the mean";
        Counter purge_dml_delays = s.core.pacer.counters.sleeps.get(), "Row changes that were delayed because purge lags";
        Counter purge_dml_delayed_usec = s.core.pacer.counters.slept_usec.get(), "Microseconds by which these were delayed";
        Counter purged_logs = s.core.counters.purged_logs.get(), "Undo logs of committed transactions that are purged";
        Counter purged_records = s.core.counters.purged_records.get(), "Rows and index entries that purge has removed";
        Counter overflow_pages_freed = s.core.counters.overflow_pages_freed.get(),
            "Pages of external values that purge and rollback have given back";
    }
    "change_buffer" {
        Value ibuf_size = s.buffered().pages(), "Pages of all change buffers";
        Counter ibuf_inserts = s.buffered().counters.inserts.get(), "Index entries that were inserted in a change buffer";
        Counter ibuf_delete_marks = s.buffered().counters.delete_marks.get(), "Index entries that were delete-marked in a change buffer, without a look at them";
        Counter ibuf_deletes = s.buffered().counters.deletes.get(), "Index entries that purge has removed in a change buffer";
        Counter ibuf_merges = s.buffered().counters.merges.get(), "Leaves into which entries of change buffers were merged";
        Counter ibuf_merges_insert as ibuf_merged_inserts = s.buffered().counters.merged_inserts.get(), "Live entries of change buffers that were merged";
        Counter ibuf_merges_delete as ibuf_merged_deletes = s.buffered().counters.merged_deletes.get(), "Entries that were removed by a merge";
    }
    "history" {
        Value history_store_bytes = s.stored(|store| store.bytes().unwrap_or(0)), "Bytes of the history store that are in use; 0 without one";
        Value history_store_versions = s.stored(Store::versions), "Versions of rows and index entries in the history store, and pieces of external values";
        Value history_store_members = s.core.history.members().len() as u64, "Old read views that purge goes on behind: they rely on the history store";
        Counter history_store_copied = s.core.history.counters.copied.get(), "Versions of rows and index entries that were copied to the history store because an old read view needs them";
        Counter history_store_dropped = s.core.history.counters.dropped.get(),
            "Versions that purge removed without a copy while it went on behind old read views: none of these needs them";
        Counter history_store_swept = s.core.history.counters.swept.get(), "Versions and pieces that have gone from the history store because nobody needs them any more";
        Counter history_store_full = s.core.history.counters.full.get(), "How often a batch of purge ended because the history store had no room";
    }
    "undo" {
        Value undo_tablespaces_total = s.core.undo.spaces().len() as u64, "Undo tablespaces";
        Value undo_tablespaces_active = s.core.undo.active_spaces() as u64, "Undo tablespaces that new transactions may use";
        Value undo_size_bytes = s.core.undo.file_bytes(), "Size of the files of the undo tablespaces";
        Counter undo_truncate_count as undo_truncations = s.core.counters.undo_truncations.get(), "Truncations of undo tablespaces";
        Counter undo_truncate_usec = s.core.counters.undo_truncate_usec.get(),
            "Microseconds that these took, from when the tablespace was empty";
        Counter undo_truncate_lock_holds = s.held().map(Durations::count).sum::<u64>(),
            "How often they have locked others out of what they share with them";
        Value undo_truncate_lock_max_usec = s.held().map(Durations::longest_usec).max().unwrap_or_default(),
            "Microseconds of the longest time they did";
    }
    "lock" {
        Counter lock_row_lock_waits as row_lock_waits = s.locks.waits, "Requests for a lock that had to wait";
        Value lock_row_lock_current_waits as row_lock_current_waits = s.locks.current_waits, "Requests for a lock that wait now";
        Counter lock_row_lock_time as row_lock_time = s.locks.wait_us / 1000, "Milliseconds of all waits for locks that have ended";
        Counter lock_row_lock_time_max as row_lock_time_max = s.locks.wait_us_max / 1000, "Milliseconds of the longest of them";
        Counter lock_timeouts as row_lock_timeouts = s.locks.timeouts, "Waits for locks that lasted too long";
        Counter lock_deadlocks as deadlocks = s.locks.deadlocks, "Deadlocks";
        Value lock_memory_bytes = s.core.locks.memory_bytes() as u64, "Memory of locks of rows and gaps";
    }
    "latch" {
        Counter latch_leaf_waits = s.pool.latch_waits(LatchClass::Leaf).waits, "Waits for the latch of a leaf that somebody had and did not give up within a few tries";
        Counter latch_leaf_wait_usec = s.pool.latch_waits(LatchClass::Leaf).usec, "Microseconds of these";
        Counter latch_inner_waits = s.pool.latch_waits(LatchClass::Inner).waits, "The same for pages above the leaves";
        Counter latch_inner_wait_usec = s.pool.latch_waits(LatchClass::Inner).usec, "Microseconds of these";
        Counter latch_undo_waits = s.pool.latch_waits(LatchClass::Undo).waits, "The same for pages of undo";
        Counter latch_undo_wait_usec = s.pool.latch_waits(LatchClass::Undo).usec, "Microseconds of these";
        Counter latch_other_waits = s.pool.latch_waits(LatchClass::Other).waits, "The same for all other pages";
        Counter latch_other_wait_usec = s.pool.latch_waits(LatchClass::Other).usec, "Microseconds of these";
    }
    "dml" {
        Counter dml_inserts as rows_inserted = s.core.counters.rows_inserted.get(), "Rows inserted";
        Counter rows_loaded = s.core.counters.rows_loaded.get(), "Rows of these that were loaded into an empty table";
        Counter dml_updates as rows_updated = s.core.counters.rows_updated.get(), "Rows updated";
        Counter dml_deletes as rows_deleted = s.core.counters.rows_deleted.get(), "Rows deleted";
        Counter dml_reads as rows_read = s.core.counters.rows_read.get(), "Rows read";
        Counter external_values_written = s.core.counters.external_values_written.get(), "External values written to pages of their own";
        Counter external_values_read = s.core.counters.external_values_read.get(), "External values read from pages of their own";
    }
    "log" {
        Value log_lsn_current as lsn_current = s.core.log.next_lsn().0, "LSN of the next change";
        Value log_lsn_last_flush as lsn_flushed = s.core.log.durable_lsn().0, "LSN up to which the redo log is on disk";
        Value log_lsn_last_checkpoint as lsn_last_checkpoint = s.core.log.checkpoint_lsn().0, "LSN of the last checkpoint";
        Value log_lsn_checkpoint_age as checkpoint_age = s.core.log.checkpoint_age_bytes(), "Bytes of redo since the last checkpoint";
        Value log_max_checkpoint_age as checkpoint_max_age = s.core.log.capacity(), "How many these may become";
        Value log_max_modified_age_async as checkpoint_age_async =
            (s.core.log.capacity() as f64 * ASYNC) as u64,
            "Checkpoint age from which pages are written with more than varve_io_capacity_max";
        Value log_max_modified_age_sync as checkpoint_age_sync = (s.core.log.capacity() as f64 * SYNC) as u64,
            "Checkpoint age from which pages are written at full speed";
        Value log_capacity_in_force as redo_log_capacity_resized = s.core.log.capacity_in_force(),
            "Bytes of redo that there may be at the moment since the last checkpoint: above the former while the capacity is lowered";
        Value log_files_bytes as redo_log_physical_size = s.core.log.file_bytes(), "Bytes of all redo log files";
        Counter log_checkpoints as checkpoints = now(&s.flushed.checkpoints), "Checkpoints";
        Counter log_writes = now(&s.log.writes), "Writes to the redo log";
        Counter os_log_bytes_written as os_log_written = now(&s.log.written_bytes), "Bytes written to the redo log";
        Counter log_padded = now(&s.log.padding_bytes),
            "Bytes written to the redo log besides: what fills up the last block of a write, and what was in it before";
        Counter os_log_fsyncs = now(&s.log.syncs), "Syncs of the redo log";
        Counter log_group_follows = now(&s.log.sync_follows), "Commits that another one's sync has made durable";
        Counter log_waits = now(&s.log.buffer_waits), "Waits for room in the log buffer";
        Counter log_capacity_waits = now(&s.log.capacity_waits), "Waits for a checkpoint to make room in the redo log";
        Counter redo_index_files = s.indexed(|c| &c.files), "Redo log files that were indexed, so that the start after a crash need not read them at once";
        Counter redo_index_bytes = s.indexed(|c| &c.bytes), "Bytes of the indexes written";
    }
    "buffer" {
        Value varve_page_size as page_size = s.page_size(), "Bytes of a page";
        Value buffer_pool_pages_total = s.pool.frames, "Pages that the buffer pool has room for";
        Value buffer_pool_pages_leaving = s.pool.leaving_frames, "More, whose memory is given back once nobody uses them, as the pool was made smaller";
        Value buffer_pool_pages_free = s.pool.free_frames, "Free ones";
        Value buffer_pool_pages_data = s.pool.pages_data(), "Those with a page";
        Value buffer_pool_bytes_data = s.pool.pages_data() * s.page_size(), "Their bytes";
        Value buffer_pool_pages_dirty = s.pages_dirty(), "Changed pages that are not written yet, but for those of temporary tables";
        Value buffer_pool_bytes_dirty = s.pages_dirty() * s.page_size(), "Their bytes";
        Counter buffer_pool_read_requests = s.pool.hits + s.reads_needed(),
            "How often a page was latched, but for new ones; searches read inner pages without a latch";
        Counter buffer_pool_write_requests = s.pool.changes, "Changes of pages: one for each page that a mini-transaction has changed";
        Counter buffer_pool_reads = s.reads_needed(), "Pages read from disk by somebody who needed them";
        Counter buffer_pages_read as pages_read = s.pages_read(), "Pages read from disk";
        Counter buffer_pages_created as pages_created = s.pool.creates, "Pages that came into the buffer pool as new ones";
        Counter buffer_pages_written as pages_written = s.pool.writes, "Pages written";
        Counter buffer_pages_damaged as pages_damaged = s.pool.damaged,
            "How often a page was read that was damaged: 0 in a sound database";
        Counter buffer_pool_pages_flushed = s.pool.writes, "The same, by another name";
        Counter buffer_data_reads as data_read = s.pages_read() * s.page_size(), "Bytes read from tablespaces";
        Counter buffer_data_written as data_written =
            now(&s.flushed.place_bytes) + now(&s.flushed.doublewrite_bytes),
            "Bytes written to tablespaces and the doublewrite file";
        Counter os_data_reads as data_reads = s.pages_read(), "Reads of tablespaces";
        Counter os_data_writes as data_writes = s.pool.writes + s.dblwr_batches(),
            "Writes to tablespaces and the doublewrite file";
        Counter buffer_pool_evictions = s.pool.evictions, "Pages that others took the place of";
        Counter buffer_pool_read_ahead = s.pool.read_ahead, "Pages whose reading was begun before anybody needed them";
        Counter buffer_pool_read_ahead_evicted = s.pool.read_ahead_evicted,
            "Of these, pages that others took the place of before anybody used them";
        Counter buffer_pool_wait_free = s.pool.free_waits, "Waits for a free page";
        Counter buffer_pool_image_builds = s.pool.image_builds, "Images of inner pages made for readers without a latch";
        Counter buffer_flush_adaptive_total_pages = now(&s.flushed.adaptive.pages), "Pages written because of the redo since the last checkpoint";
        Counter buffer_flush_adaptive as buffer_flush_adaptive_flushes = now(&s.flushed.adaptive.flushes), "Batches of pages written because of the redo since the last checkpoint";
        Value buffer_flush_adaptive_pages = now(&s.flushed.adaptive.last), "Pages of the last of these";
        Counter buffer_flush_async_total_pages = now(&s.flushed.async_.pages), "Pages written because the checkpoint age is above its asynchronous watermark";
        Counter buffer_flush_async as buffer_flush_async_flushes = now(&s.flushed.async_.flushes), "Batches of pages written because the checkpoint age is above its asynchronous watermark";
        Value buffer_flush_async_pages = now(&s.flushed.async_.last), "Pages of the last of these";
        Counter buffer_flush_sync_total_pages = now(&s.flushed.sync.pages), "Pages written because the redo log is nearly full";
        Counter buffer_flush_sync as buffer_flush_sync_flushes = now(&s.flushed.sync.flushes), "Batches of pages written because the redo log is nearly full";
        Value buffer_flush_sync_pages = now(&s.flushed.sync.last), "Pages of the last of these";
        Counter buffer_flush_max_dirty_total_pages = now(&s.flushed.max_dirty.pages), "Pages written because too much of the buffer pool is dirty";
        Counter buffer_flush_max_dirty as buffer_flush_max_dirty_flushes = now(&s.flushed.max_dirty.flushes), "Batches of pages written because too much of the buffer pool is dirty";
        Value buffer_flush_max_dirty_pages = now(&s.flushed.max_dirty.last), "Pages of the last of these";
        Counter buffer_flush_background_total_pages = now(&s.flushed.background.pages), "Pages written because there was nothing else to do";
        Counter buffer_flush_background as buffer_flush_background_flushes = now(&s.flushed.background.flushes), "Batches of pages written because there was nothing else to do";
        Value buffer_flush_background_pages = now(&s.flushed.background.last), "Pages of the last of these";
        Counter buffer_flush_requested_total_pages = now(&s.flushed.requested.pages), "Pages written because somebody waited for it";
        Counter buffer_flush_requested as buffer_flush_requested_flushes = now(&s.flushed.requested.flushes), "Batches of pages written because somebody waited for it";
        Value buffer_flush_requested_pages = now(&s.flushed.requested.last), "Pages of the last of these";
        Counter buffer_LRU_batch_flush_total_pages as buffer_pool_pages_lru_flushed = now(&s.flushed.lru.pages), "Pages written so that others can take their place";
        Counter buffer_LRU_batches_flush = now(&s.flushed.lru.flushes), "Batches of pages written so that others can take their place";
        Value buffer_LRU_batch_flush_pages = now(&s.flushed.lru.last), "Pages of the last of these";
        Value buffer_flush_lsn_avg_rate = now(&s.flushed.redo_rate), "Bytes of redo per second, averaged";
        Value buffer_flush_lru_avg_rate = now(&s.flushed.lru_rate), "Pages per second written so that others can take their place, averaged";
        Value buffer_flush_n_to_flush_by_dirty_page = now(&s.flushed.pages_by_formula),
            "Pages per second to write by how many are dirty: that times the speed of the redo log, by its capacity, less what is written for others";
        Value buffer_flush_n_to_flush_by_age = now(&s.flushed.pages_by_age), "Pages per second to write by how many are as old as the oldest";
        Value buffer_flush_n_to_flush_requested = now(&s.flushed.pages_wanted), "Pages per second that the page cleaner is to write";
        Value buffer_flush_pct_for_lsn = now(&s.flushed.pct_for_age), "The age of the oldest change, in percent of its asynchronous watermark";
        Value buffer_flush_pct_for_dirty = now(&s.flushed.pct_for_dirty), "Percent of the buffer pool that are dirty";
        Counter buffer_flush_skipped_pages = now(&s.flushed.skipped_pages), "Pages left for later because somebody was changing them";
        Counter buffer_flush_refused_pages = now(&s.flushed.refused_pages), "Pages left for later because too many files are open to open theirs, or compressed ones have no room on the disk";
        Counter varve_dblwr_pages_written as dblwr_pages_written = now(&s.flushed.doublewrite_pages),
            "Pages written to the doublewrite file";
        Counter varve_dblwr_writes as dblwr_writes = s.dblwr_batches(), "Batches of pages written to the doublewrite file";
        Counter os_data_fsyncs as data_fsyncs = now(&s.flushed.space_syncs), "Syncs of tablespaces";
        Counter os_data_fsync_usec as data_fsync_usec = now(&s.flushed.space_syncs_usec),
            "Microseconds that batches of pages waited for these, which are under way together";
    }
    "compression" {
        Counter compress_pages_page_compressed as num_pages_page_compressed = now(&s.compression.compressed), "Pages written compressed";
        Counter compress_pages_page_compression_error as num_pages_page_compression_error =
            now(&s.compression.not_compressed),
            "Pages of compressed tables written as they are, since they would not have got smaller by a block of the disk";
        Counter compress_pages_page_decompressed as num_pages_page_decompressed = s.pool.expanded, "Pages read that were compressed";
        Counter compress_page_compressed_trim_op as num_page_compressed_trim_op = now(&s.compression.punched),
            "How often what is left of a page's place was given back to the file system";
        Counter compress_saved as page_compression_saved = now(&s.compression.saved_bytes), "Bytes that need not be written of compressed pages";
    }
    "encryption" {
        Counter encryption_pages_encrypted as num_pages_encrypted = s.encryption.encrypted, "Pages written encrypted";
        Counter encryption_pages_decrypted as num_pages_decrypted = s.encryption.decrypted, "Pages read that were encrypted";
    }
    "recovery" {
        Value recovery_redo_bytes = s.recovery.redo_bytes, "Bytes of redo that the last start has found";
        Value recovery_memory_bytes = s.recovery.memory_bytes, "Memory that this took at most, divided by pages";
        Value recovery_file_bytes = s.recovery.file_bytes, "Bytes of it that were put in a file meanwhile";
        Value recovery_pages = s.recovery.pages, "Pages that lacked changes when the database opened";
        Value recovery_pages_left = s.recovery.pages_left, "Of these, those that nobody has used and that are not up to date yet";
        Value recovery_transactions_left = s.recovery.transactions_left,
            "Transactions that had not ended at the crash and are not rolled back yet";
        Value recovery_changes_left = s.recovery.changes_left, "About how many changes these have";
        Value recovery_seconds_left = s.recovery.seconds_left, "Seconds until recovery is through, going by how long it has taken so far";
    }
    "dictionary" {
        Value dict_tables_open as tables_open = s.core.tables.counts().0 as u64, "Tables that are open, used or not";
        Counter dict_tables_opened as tables_opened = s.core.tables.counts().1, "Tables that were opened because somebody asked for them";
    }
    "file_system" {
        Value file_num_open_files as num_open_files = s.files.count() as u64, "Table files that are open";
        Counter file_num_reopened_files as num_reopened_files = s.files.reopened(), "Table files that were opened again";
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_metrics_have_one_name() {
        let names: HashSet<_> = LIST.iter().map(|m| m.name).collect();
        let status_names: HashSet<_> = LIST.iter().map(|m| m.status_name).collect();
        assert_eq!(names.len(), LIST.len());
        assert_eq!(status_names.len(), LIST.len());
    }

    /// Of the columns of VARVE_METRICS, and of the server's names of status variables with `Varve_` before.
    #[test]
    fn names_and_comments_are_not_too_long() {
        for metric in LIST {
            assert!(
                metric.name.len() <= 64 && metric.status_name.len() <= 58,
                "{}",
                metric.name
            );
            assert!(metric.comment.len() <= 193, "{}", metric.name);
        }
    }
}
