//! A small database: pages are evicted and the log is reused within one test.

use varve::Options;

pub fn options() -> Options {
    Options {
        page_size: 4096,
        buffer_pool_bytes: 4 << 20,
        redo_capacity_bytes: 16 << 20,
        ..Options::default()
    }
}
