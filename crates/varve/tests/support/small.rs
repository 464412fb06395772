//! A small database: pages are evicted, tables closed, and the log is reused within one test.

use varve::{Database, FlushLog, Options, Table, TableDef};

pub fn options() -> Options {
    Options {
        page_size: 4096,
        buffer_pool_bytes: 4 << 20,
        redo_capacity_bytes: 16 << 20,
        table_cache: 2,
        ..Options::default()
    }
}

/// One with a table, whose commits nobody waits for.
#[allow(dead_code, reason = "each test uses its part")]
pub fn lazy_with(dir: &tempfile::TempDir, def: &TableDef) -> (Database, Table) {
    let options = Options {
        flush_log_at_trx_commit: FlushLog::Lazy,
        ..options()
    };
    let db = Database::open(dir.path(), options).unwrap();
    let table = db.create_table(def).unwrap();
    (db, table)
}
