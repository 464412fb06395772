//! MariaDB's own test runner with our plugin and our suites.
//!
//! It runs from this checkout's base, whose plugin directory holds our library (hence `$HA_VARVE_SO` in
//! a suite.opt) and whose `mysql-test/plugin/varve` is `mariadb/mysql-test`. Results recorded with
//! `--record` land there. Ports are chosen free (`MTR_BUILD_THREAD=auto`) unless the environment says.

use std::env;
use std::process::ExitCode;

use anyhow::{Result, ensure};

use crate::failures::Failures;
use varve_testbed::command;
use varve_testbed::plugin;
use varve_testbed::prefix::Prefix;
use varve_testbed::workspace::Workspace;

#[derive(clap::Args)]
pub struct MtrArgs {
    /// Arguments of mysql-test-run.pl [default: --suite=varve]
    #[arg(last = true)]
    args: Vec<String>,
}

/// How the runner ended a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Passed,
    Failed,
    /// Disabled, or not for this server.
    Skipped,
}

/// How many tests of a run passed, failed and were skipped.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Count {
    pub passed: u32,
    pub failed: u32,
    pub skipped: u32,
    /// What was said of those that failed, for the end of the report; of some kinds of test nothing.
    pub failures: Vec<String>,
}

/// Every test, each once, two at a time.
pub const ALL_ONCE: [&str; 4] = ["--force", "--retry=0", "--max-test-fail=0", "--parallel=2"];

pub fn run(workspace: &Workspace, args: &MtrArgs) -> Result<ExitCode> {
    let default = ["--suite=varve".to_string()];
    let args: &[String] = if args.args.is_empty() {
        &default
    } else {
        &args.args
    };
    let prefix = plugin::build(workspace)?;
    let succeeded = start(workspace, &prefix, args, |_, _| {})?;
    Ok(if succeeded {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Our own suite.
pub fn run_suite(workspace: &Workspace) -> Result<Count> {
    let prefix = plugin::build(workspace)?;
    let mut args = ALL_ONCE.map(String::from).to_vec();
    args.push("--suite=varve".into());
    let mut count = Count::default();
    let mut failures = Failures::default();
    let succeeded = stream(workspace, &prefix, &args, |line| {
        let result = result_of(line);
        match &result {
            Some((_, Outcome::Failed)) => failures.begin(line),
            // What is said of a failure comes in one piece, whoever of the workers had it.
            Some(_) => failures.end(),
            None => failures.add(line),
        }
        if let Some((_, outcome)) = result {
            count.add(outcome);
        }
    })?;
    count.failures = failures.into_texts();
    count.check(succeeded)
}

/// Runs the runner; hands it each test's name and how it ended. Whether the runner succeeded.
pub fn start(
    workspace: &Workspace,
    prefix: &Prefix,
    args: &[String],
    mut each: impl FnMut(&str, Outcome),
) -> Result<bool> {
    stream(workspace, prefix, args, |line| {
        if let Some((name, outcome)) = result_of(line) {
            each(without_combination(&name), outcome);
        }
    })
}

/// The same, with each line that the runner writes.
pub fn stream(
    workspace: &Workspace,
    prefix: &Prefix,
    args: &[String],
    each: impl FnMut(&str),
) -> Result<bool> {
    let build_thread = env::var("MTR_BUILD_THREAD").unwrap_or_else(|_| "auto".into());
    command::stream(
        prefix
            .program("perl")
            .arg("mysql-test-run.pl")
            .arg(format!(
                "--vardir={}",
                workspace.target.join("mtr").display()
            ))
            .args(args)
            .env("MTR_BUILD_THREAD", build_thread)
            .env("VARVE_TOOLS", workspace.root.join("mariadb/tools"))
            .dir(&prefix.mysql_test_dir()),
        each,
    )
}

/// `varve.basic` of `varve.basic 'combination'`.
pub fn without_combination(name: &str) -> &str {
    name.split(' ').next().unwrap_or_default()
}

/// The name of a test, with its combinations, and how it ended. Lines of results look like
/// `varve.basic 'combination'   w1 [ pass ]    12`.
pub fn result_of(line: &str) -> Option<(String, Outcome)> {
    let (test, result) = line.split_once(" [ ")?;
    let (word, _) = result.split_once(" ]")?;
    let outcome = match word {
        "pass" => Outcome::Passed,
        "fail" => Outcome::Failed,
        "skipped" | "disabled" => Outcome::Skipped,
        _ => return None,
    };
    let words = test.split_whitespace();
    let name: Vec<&str> = words.take_while(|word| !is_worker(word)).collect();
    (!name.is_empty()).then(|| (name.join(" "), outcome))
}

/// `w1` and so on: who ran the test.
fn is_worker(word: &str) -> bool {
    let number = word.strip_prefix('w');
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

impl Count {
    pub fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::Skipped => self.skipped += 1,
        }
    }

    /// The count of a run, with a failure for what the runner found beside its tests.
    pub fn check(mut self, succeeded: bool) -> Result<Self> {
        ensure!(self.passed + self.failed > 0, "the test runner ran no test");
        if !succeeded && self.failed == 0 {
            // It also checks the server's log and its end.
            self.failed = 1;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_counted() {
        let mut count = Count::default();
        let mut names = Vec::new();
        for line in [
            "varve.basic 'x'                   w1 [ pass ]     12",
            "varve.types                       w2 [ fail ]",
            "varve.other                       w2 [ skipped ]  no binlog",
            "storage_engine/trx-varve.xa       w1 [ disabled ]  no XA",
            "Completed: Failed 1/2 tests, 50.00% were successful.",
        ] {
            if let Some((name, outcome)) = result_of(line) {
                names.push(name);
                count.add(outcome);
            }
        }
        let expected = Count {
            passed: 1,
            failed: 1,
            skipped: 2,
            ..Count::default()
        };
        assert_eq!(count, expected);
        assert_eq!(
            names,
            [
                "varve.basic 'x'",
                "varve.types",
                "varve.other",
                "storage_engine/trx-varve.xa"
            ]
        );
    }
}
