//! What a snapshot costs that stays open while others update: for its own second scan, for the updates, and
//! in space.
//!
//! Threads update random rows for some time. Then a snapshot is opened, which reads all rows; they update for
//! the same time again; and the snapshot reads all rows once more, beside fresh ones. It must find each row
//! as it was, and fresh ones each row there.

use std::fmt::{self, Display};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::engine::{Durability, Engine, Visit};
use crate::rows::{VALUE_BYTES, belongs, counter};
use crate::run::{Figure, Kind, Plan, Workload, timed};

/// Scans of each kind at the end; the median counts.
const SCANS: usize = 3;

/// What a snapshot cost.
pub struct Held {
    /// Its last scans by those of fresh snapshots.
    pub scan_ratio: f64,
    /// Updates a second under it by those before.
    pub rate_ratio: f64,
    /// By how much the engine's files grew under it, and in the same time before.
    pub grown_mib: f64,
    pub grown_without_mib: f64,
    /// The rows that were changed under it.
    pub changed_mib: f64,
}

impl Held {
    pub fn json(&self) -> Value {
        json!({
            "scan_ratio": self.scan_ratio, "rate_ratio": self.rate_ratio, "grown_mib": self.grown_mib,
            "grown_without_mib": self.grown_without_mib, "changed_mib": self.changed_mib,
        })
    }
}

impl Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scan_ratio,
            rate_ratio,
            grown_mib,
            grown_without_mib,
            changed_mib,
        } = self;
        write!(
            f,
            "scan {scan_ratio:.2} of a fresh one's, rate {rate_ratio:.2} of that before, files {grown_mib:+.0} MiB \
             (before {grown_without_mib:+.0}), {changed_mib:.0} MiB of rows changed"
        )
    }
}

/// Also returns how many updates were acknowledged.
pub fn run(
    engine: &dyn Engine,
    workload: &Workload,
    dir: &Path,
    plan: &Plan,
) -> Result<(Figure, u64)> {
    let updates = Workload {
        kind: Kind::Update(Durability::Lazy),
        ..*workload
    };
    let update = || -> Result<(Figure, u64, f64)> {
        let before = disk_mib(dir)?;
        let (figure, done) = timed(engine, &updates, plan.rows, plan.snapshot_time)?;
        Ok((figure, done, disk_mib(dir)? - before))
    };
    let (before, done_before, grown_without_mib) = update()?;
    let mut reader = engine.worker(Durability::Lazy)?;
    let mut result = None;
    reader.snapshot(&mut |scan| {
        let rows = Rows::first(plan.rows, &mut *scan)?;
        let (mut figure, done, grown_mib) = update()?;
        let (mut again, mut fresh, mut rows_changed) = (Vec::new(), Vec::new(), 0);
        for _ in 0..SCANS {
            let (took, changed) = rows.compare(|visit| scan(visit))?;
            ensure!(changed == 0, "{changed} rows of the snapshot are others");
            again.push(took);
            let (took, changed) = fresh_scan(engine, &rows)?;
            ensure!(changed > 0 || done == 0, "a fresh one sees no update");
            fresh.push(took);
            rows_changed = changed;
        }
        figure.held = Some(Held {
            scan_ratio: median(again).div_duration_f64(median(fresh)),
            rate_ratio: figure.per_second / before.per_second,
            grown_mib,
            grown_without_mib,
            changed_mib: rows_changed as f64 * (8 + VALUE_BYTES) as f64 / 1048576.0,
        });
        result = Some((figure, done_before + done));
        Ok(())
    })?;
    Ok(result.expect("the snapshot was read"))
}

/// In a thread of its own: LMDB has one snapshot a thread. The second scan counts: the first fills the cache
/// that a connection has to SQLite, as that of the snapshot is.
fn fresh_scan(engine: &dyn Engine, rows: &Rows) -> Result<(Duration, u64)> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let mut worker = engine.worker(Durability::Lazy)?;
            rows.compare(|visit| worker.scan(visit))?;
            rows.compare(|visit| worker.scan(visit))
        });
        thread.join().expect("a reader panicked")
    })
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// What a snapshot read first: how many updates each row had seen.
struct Rows {
    counters: Vec<u64>,
}

impl Rows {
    fn first(rows: u64, scan: impl FnOnce(Visit<'_>) -> Result<()>) -> Result<Rows> {
        let mut counters = Vec::with_capacity(rows as usize);
        scan(&mut |_, value| counters.push(counter(value)))?;
        ensure!(
            counters.len() as u64 == rows,
            "{} rows of {rows}",
            counters.len()
        );
        Ok(Rows { counters })
    }

    /// How long a scan takes that must find all rows, and how many it finds changed.
    fn compare(&self, scan: impl FnOnce(Visit<'_>) -> Result<()>) -> Result<(Duration, u64)> {
        let (mut found, mut wrong, mut changed) = (0, 0u64, 0u64);
        let begin = Instant::now();
        scan(&mut |key, value| {
            let known = self.counters.get(key as usize);
            wrong += u64::from(!belongs(key, value) || key != found || known.is_none());
            changed += u64::from(known != Some(&counter(value)));
            found += 1;
        })?;
        let took = begin.elapsed();
        let rows = self.counters.len() as u64;
        ensure!(
            found == rows && wrong == 0,
            "{found} rows of {rows}, {wrong} wrong"
        );
        Ok((took, changed))
    }
}

/// What the files take on the disk.
fn disk_mib(dir: &Path) -> Result<f64> {
    Ok(disk_blocks(dir)? as f64 * 512.0 / 1048576.0)
}

fn disk_blocks(dir: &Path) -> Result<u64> {
    let mut blocks = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        blocks += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_blocks(&entry.path())?,
            Ok(metadata) => metadata.blocks(),
            // The engine goes on working.
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(error.into()),
        };
    }
    Ok(blocks)
}
