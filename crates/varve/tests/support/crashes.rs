//! Crashes at any moment of a random workload on a simulated disk (`varve_sim`, whose documentation states
//! the fault model).
//!
//! The workload runs once. Then, for one moment of the run after the other, the disk is put into a state that
//! a crash at that moment may leave behind, the database is opened, often crashed again at some moment of its
//! recovery and opened once more, up to three times, and compared with what had been acknowledged
//! (`super::history`).

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::RecoveryProgress;
use varve::internals::io::Disk;
use varve_sim::panics::{quietly, said};
use varve_sim::{CrashPoints, Image, SimDisk};

use super::kept::Kept;
use super::workload::{Config, SIM_DIR, SIM_ELSEWHERE, record};

/// What a run was promised, and when.
pub trait Promises {
    /// Whether the database is in a state that a crash before operation number `at` may leave behind.
    fn judge(&self, db: &varve::Database, at: usize) -> Result<(), String>;

    /// The states that `judge` accepts, each as text of which `history::is_one_of` makes sense later.
    fn describe(&self, at: usize) -> Vec<String>;

    /// How many changes were acknowledged.
    fn changes(&self) -> usize;

    /// What the workload did, for a report.
    fn steps(&self) -> &[String];

    /// The first moment at which a crash can be judged.
    fn begin(&self) -> usize;
}

/// What was tried without a finding.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tried {
    pub moments: usize,
    /// Databases that were opened after a crash, and after one that came while another was recovered from.
    pub recoveries: usize,
    pub in_recovery: usize,
    pub operations: usize,
    pub changes: usize,
    pub time: Duration,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "tried {} crash points in {} operations of the disk with {} changes: {} recoveries, {} of them after a crash in a recovery, \
             in {:.1} s",
            self.moments,
            self.operations,
            self.changes,
            self.recoveries,
            self.in_recovery,
            self.time.as_secs_f64()
        )
    }
}

/// The most crashes one after the other.
const MOST_CRASHES: usize = 3;
/// How long a recovery may take, on a busy machine, too.
const RECOVERY_AT_MOST: Duration = Duration::from_secs(120);
/// For how long the state that a crash left is made simpler.
const SHRINK_AT_MOST: Duration = Duration::from_secs(10);

/// A crash after which the database was wrong.
pub struct Finding {
    pub config: Config,
    /// Operations before the crash, and what the next one would have been.
    pub at: usize,
    next: String,
    /// What each crash left on the disk. Those after the first came in recovery.
    crashes: Vec<String>,
    pub why: String,
    pub tried: Tried,
    /// What the last crash left, in which the fault is.
    pub image: Image,
    pub promises: Box<dyn Promises>,
}

impl Finding {
    /// Keeps the disk and what should be on it, and says how to see it again.
    pub fn keep(&self) -> Kept {
        Kept::write(self)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.why)?;
        writeln!(
            f,
            "after a crash before operation {} ({}):",
            self.at, self.next
        )?;
        for (n, crash) in self.crashes.iter().enumerate() {
            match n {
                0 => writeln!(f, "- {crash}")?,
                _ => writeln!(f, "- and another crash in recovery: {crash}")?,
            }
        }
        let steps = self.config.only.as_ref();
        let steps = steps.map_or(self.config.steps, |only| only.len());
        write!(
            f,
            "in a workload of {steps} steps from seed {}",
            self.config.seed
        )?;
        for step in self.promises.steps() {
            write!(f, "\n    {step}")?;
        }
        Ok(())
    }
}

/// Runs the workload on `disk` and tries `wanted` moments of it, or all if there are fewer or `wanted` is 0.
pub fn crash_anywhere(
    config: &Config,
    disk: SimDisk,
    wanted: usize,
) -> Result<Tried, Box<Finding>> {
    let config = Config {
        disk: Some(disk.clone()),
        ..config.clone()
    };
    crash_after(&config, &disk, wanted, Box::new(record(&config)))
}

/// Tries `wanted` moments of what was done to `disk`.
pub fn crash_after(
    config: &Config,
    disk: &SimDisk,
    wanted: usize,
    promises: Box<dyn Promises>,
) -> Result<Tried, Box<Finding>> {
    let begun = Instant::now();
    let journal = disk.journal();
    let mut rng = SmallRng::seed_from_u64(config.seed);
    let mut points = CrashPoints::new(journal.clone());
    let mut search = Search {
        config,
        promises: &*promises,
        at: 0,
        tried: Tried {
            operations: journal.len(),
            changes: promises.changes(),
            ..Tried::default()
        },
    };
    for at in moments(promises.begin()..journal.len() + 1, wanted, &mut rng) {
        points.advance(at);
        search.at = at;
        search.tried.moments += 1;
        let found = search.crash(&points, &mut Vec::new(), &mut rng);
        search.tried.time = begun.elapsed();
        if let Err(found) = found {
            let Found {
                crashes,
                image,
                why,
            } = *found;
            let tried = search.tried;
            return Err(Box::new(Finding {
                at,
                next: journal.describe(at),
                crashes,
                why,
                tried,
                image,
                config: config.clone(),
                promises,
            }));
        }
    }
    Ok(search.tried)
}

fn moments(all: Range<usize>, wanted: usize, rng: &mut SmallRng) -> Vec<usize> {
    if wanted == 0 || wanted > all.len() {
        return all.collect();
    }
    let mut moments: Vec<usize> = (0..wanted).map(|_| rng.random_range(all.clone())).collect();
    moments.sort_unstable();
    moments
}

struct Search<'a> {
    config: &'a Config,
    promises: &'a dyn Promises,
    /// The moment of the first crash.
    at: usize,
    tried: Tried,
}

/// What crashes left, and what is wrong with it.
struct Found {
    crashes: Vec<String>,
    image: Image,
    why: String,
}

impl Search<'_> {
    /// Crashes where `points` stands, after `crashes` before, and often once more in the recovery from that.
    fn crash(
        &mut self,
        points: &CrashPoints,
        crashes: &mut Vec<String>,
        rng: &mut SmallRng,
    ) -> Result<(), Box<Found>> {
        let state = points.draw(rng);
        let disk = SimDisk::new(points.image(&state));
        self.tried.recoveries += 1;
        self.tried.in_recovery += usize::from(!crashes.is_empty());
        let recovered = recover(self.config, self.promises, &disk, self.at);
        if let Err(why) = &recovered {
            // Some take seconds to be told.
            let (mut last, end) = (why.clone(), Instant::now() + SHRINK_AT_MOST);
            let state = points.shrink(&state, |state| {
                let disk = SimDisk::new(points.image(state));
                let judge = || recover(self.config, self.promises, &disk, self.at);
                match (Instant::now() < end).then(|| quietly(judge)).transpose() {
                    Err(why) => {
                        last = why;
                        true
                    }
                    Ok(_) => false,
                }
            });
            crashes.push(points.describe(&state));
            return Err(Box::new(Found {
                crashes: std::mem::take(crashes),
                image: points.image(&state),
                why: last,
            }));
        }
        if crashes.len() + 1 == MOST_CRASHES || rng.random_bool(0.5) {
            return Ok(());
        }
        crashes.push(points.describe(&state));
        let mut points = CrashPoints::new(disk.journal());
        points.advance(rng.random_range(0..=recovered.unwrap_or(0)));
        self.crash(&points, crashes, rng)
    }
}

/// Opens what a crash left and judges it: every other time once recovery is through, otherwise while pages
/// are left. A panic is as bad as a wrong answer. Returns how many operations it took until then: the judge
/// ends what was prepared, which no later crash may be compared with.
fn recover(
    config: &Config,
    promises: &dyn Promises,
    disk: &SimDisk,
    at: usize,
) -> Result<usize, String> {
    let mut operations = 0;
    opened(config, disk, |db| {
        let begun = Instant::now();
        // Some pages are brought up to date when the judge looks at them; what is rolled back would be in his
        // way.
        let is_over = |left: RecoveryProgress| {
            left.transactions_left == 0 && (left.pages_left == 0 || !at.is_multiple_of(2))
        };
        while !is_over(db.recovery_progress()) {
            if begun.elapsed() > RECOVERY_AT_MOST || db.core().check_usable().is_err() {
                let left = db.recovery_progress();
                return Err(format!("recovery does not end: {left:?}"));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        operations = disk.operations();
        promises.judge(db, at)?;
        match config.elsewhere {
            true => files_have_links(db, disk),
            false => Ok(()),
        }
    })?;
    Ok(operations)
}

/// LINK-1: in the other directory are the files to which links lead, and no others.
fn files_have_links(db: &varve::Database, disk: &SimDisk) -> Result<(), String> {
    if !db.wait_for_recovery(RECOVERY_AT_MOST) {
        return Err("recovery does not end".into());
    }
    let mut led_to = Vec::new();
    for name in db.tables().map_err(|e| e.to_string())? {
        let link = Path::new(SIM_DIR).join(format!("{name}.vdt"));
        led_to.extend(disk.read_link(&link).map_err(|e| e.to_string())?);
    }
    let mut there = disk.files();
    there.retain(|file| file.starts_with(SIM_ELSEWHERE));
    led_to.sort();
    match there == led_to {
        true => Ok(()),
        false => Err(format!("links lead to {led_to:?}, and there are {there:?}")),
    }
}

/// Opens the database on `disk`, lets it be judged, and crashes it again.
pub fn opened(
    config: &Config,
    disk: &SimDisk,
    judge: impl FnOnce(&varve::Database) -> Result<(), String>,
) -> Result<(), String> {
    let config = Config {
        disk: Some(disk.clone()),
        ..config.clone()
    };
    let judged = catch_unwind(AssertUnwindSafe(|| {
        let db = config.open(Path::new(SIM_DIR));
        let db = db.map_err(|e| format!("it does not open: {e}"))?;
        let verdict = judge(&db);
        db.crash();
        verdict
    }));
    judged.unwrap_or_else(|panic| Err(format!("it panicked: {}", said(&*panic))))
}
