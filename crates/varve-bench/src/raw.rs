//! What the device does without any engine: the control of measurements that depend on it.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::fs::OFlags;

const BLOCK: usize = 16 << 10;
const BLOCKS: u64 = 4096;

/// Writes blocks of 16 KiB at random places of a file, past the system's cache, each synced before the next.
/// Returns how many in each second.
pub fn writes_by_second(dir: &Path, seconds: u64) -> Result<Vec<f64>> {
    let path = dir.join("raw-writes");
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(true);
    options.custom_flags(OFlags::DIRECT.bits().cast_signed());
    let file = options
        .open(&path)
        .with_context(|| format!("can't write {} past the cache", path.display()))?;
    // Direct I/O wants an aligned address.
    let memory = vec![0x5a_u8; 2 * BLOCK];
    let block = &memory[memory.as_ptr().align_offset(BLOCK)..][..BLOCK];
    for n in 0..BLOCKS {
        file.write_all_at(block, n * BLOCK as u64)?;
    }
    file.sync_all()?;
    let mut rng = fastrand::Rng::with_seed(1);
    let mut counts = Vec::new();
    for _ in 0..seconds {
        let (begun, mut count) = (Instant::now(), 0.0);
        while begun.elapsed() < Duration::from_secs(1) {
            file.write_all_at(block, rng.u64(0..BLOCKS) * BLOCK as u64)?;
            file.sync_data()?;
            count += 1.0;
        }
        counts.push(count / begun.elapsed().as_secs_f64());
    }
    drop(file);
    std::fs::remove_file(&path)?;
    Ok(counts)
}
