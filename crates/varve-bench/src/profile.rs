//! Where a server's processor time goes during a run: `perf`, flat, by function.

use std::path::Path;
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use varve_testbed::command::{self, Cmd};

const LINES: usize = 30;

/// A recording under way.
pub struct Recording {
    perf: Child,
}

impl Recording {
    /// Begins to sample all threads of `pid`, for `time`. The clock is the processor's, not its cycle
    /// counter, which virtual machines often lack.
    pub fn start(pid: u32, time: Duration, file: &Path) -> Result<Self> {
        let mut perf = Cmd::new("perf")
            .args(["record", "--quiet", "--event=cpu-clock", "--freq=499"])
            .arg(format!("--pid={pid}"))
            .arg("--output")
            .arg(file)
            .args(["--", "sleep"])
            .arg(time.as_secs().to_string())
            .into_inner();
        Ok(Self {
            perf: perf
                .spawn()
                .context("cannot run perf, which a profile needs")?,
        })
    }

    pub fn finish(mut self) -> Result<()> {
        let status = self.perf.wait()?;
        ensure!(status.success(), "perf record ended with {status}");
        Ok(())
    }
}

/// The functions that took most, with their share.
pub fn report(file: &Path) -> Result<Vec<String>> {
    let text = command::output(
        Cmd::new("perf")
            .args([
                "report",
                "--stdio",
                "--no-children",
                "--sort=dso,symbol",
                "--percent-limit=0.5",
            ])
            .arg("--input")
            .arg(file),
    )?;
    let lines = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    Ok(lines
        .take(LINES)
        .map(|line| line.trim_end_matches([' ', '-']).to_string())
        .collect())
}
