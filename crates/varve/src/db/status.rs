//! Counters and gauges by name: what `SHOW STATUS` and `SHOW ENGINE VARVE STATUS` show. Names are InnoDB's where InnoDB
//! has the thing.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::flush::Flusher;
use crate::space::OpenFiles;
use crate::txn::Core;

/// Collects everything. Values are read one after the other, not at one moment.
pub fn collect(
    core: &Core,
    files: &OpenFiles,
    flusher: Option<&Flusher>,
) -> Vec<(&'static str, u64)> {
    let count = |c: &AtomicU64| c.load(Ordering::Relaxed);
    let (log, pool, counters) = (&core.log, &core.pool, &core.counters);
    let mut all = vec![
        ("rows_inserted", counters.rows_inserted.get()),
        ("rows_updated", counters.rows_updated.get()),
        ("rows_deleted", counters.rows_deleted.get()),
        ("rows_read", counters.rows_read.get()),
        ("long_values_written", counters.long_values_written.get()),
        ("long_values_read", counters.long_values_read.get()),
        ("overflow_pages_freed", counters.overflow_pages_freed.get()),
        ("commits", counters.commits.get()),
        ("rollbacks", counters.rollbacks.get()),
        ("history_list_length", core.undo.history_len()),
        ("purged_logs", counters.purged_logs.get()),
        ("purged_records", counters.purged_records.get()),
        ("purge_invoked", counters.purge_invoked.get()),
        ("purge_undo_log_pages", counters.purge_undo_log_pages.get()),
        ("undo_truncations", counters.undo_truncations.get()),
        ("undo_truncate_usec", counters.undo_truncate_usec.get()),
        ("undo_tablespaces_total", core.undo.spaces().len() as u64),
        ("undo_tablespaces_active", active_undo_spaces(core) as u64),
        ("undo_size_bytes", undo_bytes(core)),
        ("undo_cuts", counters.undo_cuts.get()),
        ("max_trx_id", core.sys.next_id()),
        ("active_transactions", core.sys.unfinished().len() as u64),
        ("prepared_transactions", core.prepared.count() as u64),
        ("read_views", core.sys.view_numbers().len() as u64),
        ("lsn_current", log.next_lsn().0),
        ("lsn_flushed", log.durable_lsn().0),
        ("lsn_last_checkpoint", log.checkpoint_lsn().0),
        ("checkpoint_age", log.checkpoint_age_bytes()),
        ("checkpoint_max_age", log.capacity()),
        ("page_size", pool.page_size() as u64),
        ("num_open_files", files.count() as u64),
        ("num_reopened_files", files.reopened()),
        ("buffer_pool_pages_total", pool.n_frames() as u64),
        ("buffer_pool_pages_free", pool.free_frames() as u64),
        ("buffer_pool_pages_dirty", pool.dirty_pages() as u64),
    ];
    let pool = pool.stats();
    all.extend([
        ("buffer_pool_reads", pool.loads),
        ("buffer_pool_pages_written", pool.writes),
        ("buffer_pool_evictions", pool.evictions),
        ("buffer_pool_wait_free", pool.free_waits),
        ("buffer_pool_image_builds", pool.image_builds),
    ]);
    let log = log.counters();
    all.extend([
        ("os_log_written", count(&log.written_bytes)),
        ("log_writes", count(&log.writes)),
        ("os_log_fsyncs", count(&log.syncs)),
        ("log_group_follows", count(&log.sync_follows)),
        ("log_capacity_waits", count(&log.capacity_waits)),
        ("log_waits", count(&log.buffer_waits)),
    ]);
    let locks = core.locks.stats();
    all.extend([
        ("row_lock_waits", locks.waits),
        ("row_lock_current_waits", locks.current_waits),
        ("row_lock_timeouts", locks.timeouts),
        ("lock_memory_bytes", core.locks.memory_bytes() as u64),
        ("deadlocks", locks.deadlocks),
    ]);
    if let Some(flushed) = flusher.map(Flusher::counters) {
        all.extend([
            (
                "buffer_flush_adaptive_pages",
                count(&flushed.adaptive_pages),
            ),
            ("buffer_flush_urgent_pages", count(&flushed.urgent_pages)),
            ("buffer_flush_frames_pages", count(&flushed.frames_pages)),
            ("buffer_flush_idle_pages", count(&flushed.idle_pages)),
            (
                "buffer_flush_requested_pages",
                count(&flushed.requested_pages),
            ),
            ("dblwr_pages_written", count(&flushed.doublewrite_pages)),
            ("dblwr_writes", count(&flushed.batches)),
            ("data_fsyncs", count(&flushed.space_syncs)),
            ("checkpoints", count(&flushed.checkpoints)),
        ]);
    }
    all
}

fn active_undo_spaces(core: &Core) -> usize {
    let spaces = core.undo.spaces();
    spaces.iter().filter(|space| space.is_active()).count()
}

fn undo_bytes(core: &Core) -> u64 {
    let env = &core.undo.env;
    let spaces = core.undo.spaces().iter();
    let pages: u64 = spaces.map(|s| u64::from(s.size_pages(env))).sum();
    pages * env.page_size as u64
}
