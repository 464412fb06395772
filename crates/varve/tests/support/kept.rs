//! A finding in a directory, from which one command plays the last recovery again: the disk as the last crash
//! left it, how the database is opened, and what may be on it.

use std::fmt;
use std::path::{Path, PathBuf};

use varve_sim::{Image, SimDisk};

use super::crashes::{Finding, opened};
use super::history::is_one_of;
use super::workload::{Config, SIM_DIR};

/// The directory with the disk, and the file with all else.
const DISK: &str = "disk";
const PLAN: &str = "plan.txt";
/// What stands between the states in the file.
const STATE: &str = "---- the database may hold";

/// What is kept of the simulated disk: the data directory, and what is beside it.
fn root() -> &'static Path {
    Path::new(SIM_DIR).parent().expect("it is not the root")
}

pub struct Kept {
    pub dir: PathBuf,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "play it again with: VARVE_CRASH_REPLAY={} cargo test -p varve --features sabotage --test crash_points replay -- --ignored --nocapture",
            self.dir.display()
        )
    }
}

impl Kept {
    pub(super) fn write(finding: &Finding) -> Kept {
        let config = &finding.config;
        let name = format!("crash-{}-{}", config.seed, finding.at);
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let kept = "the finding can be kept";
        let exported = finding.image.export(root(), &dir.join(DISK));
        exported.expect(kept);
        let mut plan = vec![
            format!("seed {}", config.seed),
            format!("at {}", finding.at),
            format!("page_size {}", config.page_size),
            format!("buffer_pool_bytes {}", config.buffer_pool_bytes),
            format!("undo_tablespaces {}", config.undo_tablespaces),
            format!("doublewrite {}", config.doublewrite),
            #[cfg(feature = "sabotage")]
            format!("sabotage {:?}", config.sabotage),
        ];
        plan.extend(finding.to_string().lines().map(|line| format!("# {line}")));
        for state in finding.promises.describe(finding.at) {
            plan.extend([STATE.to_string(), state]);
        }
        std::fs::write(dir.join(PLAN), plan.join("\n")).expect(kept);
        Kept { dir }
    }

    pub fn forget(self) {
        std::fs::remove_dir_all(self.dir).expect("what was kept can be removed");
    }

    /// Recovers what was kept and judges it again.
    pub fn replay(&self) -> Result<(), String> {
        let plan = std::fs::read_to_string(self.dir.join(PLAN)).expect("a kept finding");
        let separator = format!("{STATE}\n");
        let mut states = plan.split(&separator);
        let mut config = Config::new(0);
        let mut at = 0;
        for line in states.next().unwrap_or_default().lines() {
            let Some((name, value)) = line.split_once(' ') else {
                continue;
            };
            let number = || value.parse().expect("a number");
            match name {
                "seed" => config.seed = number(),
                "at" => at = number() as usize,
                "page_size" => config.page_size = number() as u32,
                "buffer_pool_bytes" => config.buffer_pool_bytes = number(),
                "undo_tablespaces" => config.undo_tablespaces = number() as u32,
                "doublewrite" => config.doublewrite = value == "true",
                #[cfg(feature = "sabotage")]
                "sabotage" => {
                    let is =
                        |s: &varve::internals::base::Sabotage| format!("{:?}", Some(s)) == value;
                    config.sabotage = varve::internals::base::Sabotage::OF_CRASHES
                        .into_iter()
                        .find(is);
                }
                _ => println!("{line}"),
            }
        }
        let states: Vec<String> = states.map(|state| state.trim_end().to_string()).collect();
        let image = Image::import(&self.dir.join(DISK), root());
        let disk = SimDisk::new(image.expect("a kept disk"));
        opened(&config, &disk, |db| is_one_of(db, at, &states))
    }
}
