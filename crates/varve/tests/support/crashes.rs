//! Crashes at any moment of a random workload on a simulated disk (`varve_sim`, whose documentation states the fault model).
//!
//! The workload runs once. Then, for one moment of the run after the other, the disk is put into a state that a crash at that
//! moment may leave behind, the database is opened, often crashed again at some moment of its recovery and opened once
//! more, and compared with what had been acknowledged (`super::history`).

use std::fmt;
use std::path::{Path, PathBuf};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve_sim::{CrashPoints, Image, Journal, SimDisk};

use super::history::History;
use super::workload::{Config, SIM_DIR, record};

/// What was tried without a finding.
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    pub moments: usize,
    pub operations: usize,
    pub changes: usize,
}

/// A crash after which the database was wrong.
pub struct Finding {
    seed: u64,
    /// Operations before the crash, and what the next one would have been.
    at: usize,
    next: String,
    in_recovery: bool,
    why: String,
    disk: PathBuf,
}

impl Finding {
    /// Removes the disk that was kept.
    pub fn forget(self) {
        std::fs::remove_dir_all(self.disk).expect("the kept disk can be removed");
    }
}

impl fmt::Debug for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let again = match self.in_recovery {
            true => ", and another one while that was recovered",
            false => "",
        };
        write!(
            f,
            "after a crash before operation {} ({}){again}: {}\nseed {}; the disk is kept in {}",
            self.at,
            self.next,
            self.why,
            self.seed,
            self.disk.display()
        )
    }
}

/// Runs the workload on `disk` and tries `wanted` moments of it, or all if there are fewer or `wanted` is 0.
pub fn crash_anywhere(config: &Config, disk: SimDisk, wanted: usize) -> Result<Tried, Finding> {
    let config = Config {
        disk: Some(disk.clone()),
        ..config.clone()
    };
    let history = record(&config);
    let journal = disk.journal();
    let mut rng = SmallRng::seed_from_u64(config.seed);
    let mut points = CrashPoints::new(journal.clone());
    let moments = moments(&journal, wanted, &mut rng);
    let tried = Tried {
        moments: moments.len(),
        operations: journal.len(),
        changes: history.changes(),
    };
    for at in moments {
        points.advance(at);
        let image = points.crash(&mut rng);
        let result = recover_twice(&config, &history, image, at, &mut rng);
        result.map_err(|(in_recovery, image, why)| Finding {
            seed: config.seed,
            at,
            next: journal.describe(at),
            in_recovery,
            why,
            disk: keep(&image, config.seed, at),
        })?;
    }
    Ok(tried)
}

fn moments(journal: &Journal, wanted: usize, rng: &mut SmallRng) -> Vec<usize> {
    if wanted == 0 || wanted > journal.len() {
        return (0..=journal.len()).collect();
    }
    let mut moments: Vec<usize> = (0..wanted)
        .map(|_| rng.random_range(0..=journal.len()))
        .collect();
    moments.sort_unstable();
    moments
}

/// Opens what a crash left; often crashes again while it is being recovered, and opens that. On failure: whether it was the
/// second crash, what was on the disk, and what is wrong.
fn recover_twice(
    config: &Config,
    history: &History,
    image: Image,
    at: usize,
    rng: &mut SmallRng,
) -> Result<(), (bool, Image, String)> {
    let disk = SimDisk::new(image.clone());
    recover(config, history, &disk, at).map_err(|why| (false, image, why))?;
    if rng.random_bool(0.5) {
        return Ok(());
    }
    let journal = disk.journal();
    let mut points = CrashPoints::new(journal.clone());
    points.advance(rng.random_range(0..=journal.len()));
    let image = points.crash(rng);
    let disk = SimDisk::new(image.clone());
    recover(config, history, &disk, at).map_err(|why| (true, image, why))
}

fn recover(config: &Config, history: &History, disk: &SimDisk, at: usize) -> Result<(), String> {
    let config = Config {
        disk: Some(disk.clone()),
        ..config.clone()
    };
    let db = config
        .open(Path::new(SIM_DIR))
        .map_err(|e| format!("it does not open: {e}"))?;
    let verdict = history.judge(&db, at);
    db.crash();
    verdict
}

/// Puts the disk where it can be looked at: opening it is recovering it.
fn keep(image: &Image, seed: u64, at: usize) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("crash-{seed}-{at}"));
    image
        .export(Path::new(SIM_DIR), &dir)
        .expect("the image can be kept");
    dir
}
