//! A buffer pool in a control group with a memory limit: beyond it the system ends the process.
//!
//! What could break here: a pool that is made larger than the group may be; memory that a smaller pool does
//! not give back, so that the process is ended when others in its group need it; a statement that fails, or
//! sees something else, while the pool changes.
//!
//! A process that is in a group of its own does it: where none can be made (no root, no memory controller
//! that may be used) there is nothing to try, and the test says so.

#[path = "support/own_memory.rs"]
mod own_memory;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use own_memory::own_memory;
use varve::internals::base::{MemoryGroup, memory_groups};
use varve::{
    ColumnType, Database, Error, FlushLog, FlushMethod, Isolation, Options, TableDef, values,
};

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 256 * MIB;
/// The table's, more than the larger pool.
const ROWS: i64 = 200_000;
const SMALL: u64 = 16 * MIB;
const LARGE: u64 = 160 * MIB;
const PATIENCE: Duration = Duration::from_secs(60);

/// A control group that goes with this.
struct Group(PathBuf);

impl Group {
    /// One below this process's, which may use so much memory.
    fn with_limit(bytes: u64) -> Option<Group> {
        let name = format!("varve-test-{}", std::process::id());
        let made = |of: MemoryGroup| {
            let group = Group(of.directory.join(&name));
            fs::create_dir(&group.0).ok()?;
            fs::write(group.0.join(of.limit_file), bytes.to_string()).ok()?;
            Some(group)
        };
        memory_groups(Path::new("/")).into_iter().find_map(made)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes have ended; what they leave goes a little later.
        let begun = Instant::now();
        while fs::remove_dir(&self.0).is_err() && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_pool_grows_and_shrinks_below_a_memory_limit() {
    let Some(group) = Group::with_limit(LIMIT) else {
        println!("no control group with a memory limit can be made here: nothing was tried");
        return;
    };
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--ignored", "--nocapture"])
        .env("VARVE_PRESSURE_GROUP", &group.0)
        .status()
        .unwrap();
    assert!(status.success(), "with {LIMIT} bytes: {status}");
}

/// Bytes of this process that no file has.
fn memory() -> u64 {
    own_memory("RssAnon")
}

#[test]
#[ignore = "is started by the other one"]
fn child() {
    let group = std::env::var("VARVE_PRESSURE_GROUP").expect("VARVE_PRESSURE_GROUP names a group");
    let pid = std::process::id().to_string();
    fs::write(Path::new(&group).join("cgroup.procs"), pid).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        buffer_pool_bytes: SMALL,
        flush_method: FlushMethod::Direct,
        flush_log_at_trx_commit: FlushLog::Lazy,
        redo_capacity_bytes: 64 * MIB,
        ..Options::default()
    };
    let db = Database::open(dir.path(), options).unwrap();
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("n", ColumnType::i64())
        .column("c", ColumnType::Bytes(1000))
        .primary(&["id"]);
    let table = db.create_table(&def).unwrap();
    for first in (0..ROWS).step_by(1000) {
        let mut trx = db.begin(Isolation::RepeatableRead);
        for id in first..first + 1000 {
            table
                .insert(&mut trx, values![id, 0, vec![7; 1000]])
                .unwrap();
        }
        trx.commit().unwrap();
    }
    let why = db.set_buffer_pool_bytes(4 * LIMIT).unwrap_err();
    let is_told = matches!(&why, Error::Invalid { .. }) && why.to_string().contains(&group);
    assert!(is_told, "{why}");

    let (stop, read) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|s| {
        // Reads and changes all rows, round after round.
        for worker in 0..2 {
            let (db, table, stop, read) = (&db, &table, &stop, &read);
            s.spawn(move || {
                for id in (0..ROWS / 2).cycle().map(|n| 2 * n + worker) {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut trx = db.begin(Isolation::RepeatableRead);
                    let row = table.get(&mut trx, values![id]).unwrap().expect("a row");
                    let n = row.get::<i64>("n").unwrap();
                    assert_eq!(row.get::<Vec<u8>>("c").unwrap(), [7; 1000]);
                    if id % 16 < 2 {
                        table
                            .put(&mut trx, values![id, n + 1, vec![7; 1000]])
                            .unwrap();
                    }
                    trx.commit().unwrap();
                    read.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let until = |what: &str, is_so: &dyn Fn() -> bool| {
            let begun = Instant::now();
            while !is_so() {
                let (memory, read) = (memory() / MIB, read.load(Ordering::Relaxed));
                let context = format!("{what}: {memory} MiB, {read} rows read");
                assert!(begun.elapsed() < PATIENCE, "{context}");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        for _ in 0..3 {
            db.set_buffer_pool_bytes(LARGE).unwrap();
            until("the pool is used", &|| memory() > LARGE * 7 / 8);
            db.set_buffer_pool_bytes(SMALL).unwrap();
            until("memory is given back", &|| memory() < LARGE / 2);
            let before = read.load(Ordering::Relaxed);
            until("work goes on", &|| {
                read.load(Ordering::Relaxed) > before + 1000
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(db.check_table(&table).unwrap().errors.is_empty());
    db.close().unwrap();
}
