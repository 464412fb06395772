//! Settings drawn for each start, so that small pools, short logs and few open files are met, too. Every
//! acknowledged commit must survive the kill of a process with all of them, so the log is at least written at
//! each commit; pages that the kill may tear are protected.

use fastrand::Rng;

use varve_testbed::server::Engine;

fn any<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

/// What is fixed when the database is created.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    pub page_size: u64,
    pub undo_tablespaces: u32,
}

impl Fixed {
    pub fn draw(rng: &mut Rng) -> Self {
        Self {
            page_size: any(rng, &[4096, 8192, 16384, 16384, 65536]),
            undo_tablespaces: any(rng, &[0, 1, 2, 2, 3, 4]),
        }
    }
}

/// Names as they are in the plugin's variables, without the engine's.
pub fn draw(rng: &mut Rng, fixed: Fixed) -> Vec<(&'static str, u64)> {
    let least_pool = (fixed.page_size * 256).max(5 << 20);
    vec![
        ("page_size", fixed.page_size),
        ("undo_tablespaces", fixed.undo_tablespaces.into()),
        (
            "buffer_pool_size",
            any(rng, &[least_pool, 8 << 20, 32 << 20]).max(least_pool),
        ),
        ("log_file_size", any(rng, &[4 << 20, 8 << 20, 32 << 20])),
        ("log_buffer_size", any(rng, &[2 << 20, 16 << 20])),
        ("flush_log_at_trx_commit", any(rng, &[1, 1, 2])),
        ("log_file_buffering", any(rng, &[0, 0, 1])),
        ("flush_method", any(rng, &[0, 1])),
        ("use_native_aio", any(rng, &[0, 1])),
        ("read_ahead_threshold", any(rng, &[0, 1, 3])),
        ("change_buffering", any(rng, &[0, 1, 2, 5, 5])),
        ("change_buffer_max_size", any(rng, &[1, 25, 50])),
        ("io_capacity", any(rng, &[100, 200, 2000])),
        ("io_capacity_max", any(rng, &[2000, 20_000])),
        ("max_dirty_pages_pct", any(rng, &[10, 90, 90])),
        ("max_dirty_pages_pct_lwm", any(rng, &[0, 0, 5])),
        ("adaptive_flushing", any(rng, &[0, 1, 1])),
        ("adaptive_flushing_lwm", any(rng, &[0, 10, 70])),
        ("flushing_avg_loops", any(rng, &[1, 30])),
        ("lru_scan_depth", any(rng, &[100, 1536])),
        ("open_files", any(rng, &[10, 15, 0])),
        ("autoinc_lock_mode", any(rng, &[0, 1, 2])),
        ("lock_memory_size", any(rng, &[4 << 20, 1 << 30])),
        ("lock_wait_timeout", any(rng, &[1, 3])),
        ("purge_threads", any(rng, &[0, 1, 4])),
        ("purge_batch_size", any(rng, &[1, 20, 300])),
        ("purge_rseg_truncate_frequency", any(rng, &[1, 128])),
        ("undo_log_truncate", any(rng, &[0, 1, 1])),
        ("max_undo_log_size", any(rng, &[10 << 20, 128 << 20])),
        ("max_purge_lag", any(rng, &[0, 0, 100, 10_000])),
        ("max_purge_lag_delay", any(rng, &[0, 500, 50_000])),
        ("history_store", any(rng, &[0, 1, 1])),
        ("history_store_delay", any(rng, &[0, 50, 1000])),
        ("history_store_max_size", any(rng, &[1 << 20, 64 << 20, 0])),
        ("compression_default", any(rng, &[0, 1])),
        ("encrypt_tables", any(rng, &[0, 1])),
        ("encrypt_log", any(rng, &[0, 1])),
        ("encrypt_temporary_tables", any(rng, &[0, 1])),
        ("encryption_threads", any(rng, &[0, 1, 4])),
    ]
}

pub fn server_options(drawn: &[(&str, u64)]) -> Vec<String> {
    let engine = Engine::Varve.option_prefix();
    let option =
        |(name, value): &(&str, u64)| format!("--{engine}-{}={value}", name.replace('_', "-"));
    drawn.iter().map(option).collect()
}
