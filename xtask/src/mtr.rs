//! MariaDB's own test runner with our plugin and our suites.
//!
//! It runs from this checkout's base, whose plugin directory holds our library (hence `$HA_VARVE_SO` in
//! a suite.opt) and whose `mysql-test/plugin/varve` is `mariadb/mysql-test`. Results recorded with
//! `--record` land there. Ports are chosen free (`MTR_BUILD_THREAD=auto`) unless the environment says.

use std::env;
use std::process::ExitCode;

use anyhow::{Result, ensure};

use crate::command;
use crate::plugin;
use crate::workspace::Workspace;

#[derive(clap::Args)]
pub struct MtrArgs {
    /// Arguments of mysql-test-run.pl [default: --suite=varve]
    #[arg(last = true)]
    args: Vec<String>,
}

/// How many tests of a run passed and failed.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Count {
    pub passed: u32,
    pub failed: u32,
}

pub fn run(workspace: &Workspace, args: &MtrArgs) -> Result<ExitCode> {
    let default = ["--suite=varve".to_string()];
    let args: &[String] = if args.args.is_empty() {
        &default
    } else {
        &args.args
    };
    let (succeeded, _) = start(workspace, args)?;
    Ok(if succeeded {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Our own suite, every test of it, each once.
pub fn run_suite(workspace: &Workspace) -> Result<Count> {
    let args = [
        "--suite=varve",
        "--force",
        "--retry=0",
        "--max-test-fail=0",
        "--parallel=2",
    ];
    let (succeeded, mut count) = start(workspace, &args.map(String::from))?;
    ensure!(
        count.passed + count.failed > 0,
        "the test runner ran no test"
    );
    if !succeeded && count.failed == 0 {
        // It also checks the server's log and its end.
        count.failed = 1;
    }
    Ok(count)
}

fn start(workspace: &Workspace, args: &[String]) -> Result<(bool, Count)> {
    let prefix = plugin::build(workspace)?;
    let build_thread = env::var("MTR_BUILD_THREAD").unwrap_or_else(|_| "auto".into());
    let mut count = Count::default();
    let succeeded = command::stream(
        prefix
            .program("perl")
            .arg("mysql-test-run.pl")
            .arg(format!(
                "--vardir={}",
                workspace.target.join("mtr").display()
            ))
            .args(args)
            .env("MTR_BUILD_THREAD", build_thread)
            .dir(&prefix.mysql_test_dir()),
        |line| count.read(line),
    )?;
    Ok((succeeded, count))
}

impl Count {
    /// Lines of results look like `varve.basic 'combination'   w1 [ pass ]    12`.
    fn read(&mut self, line: &str) {
        let Some((_, result)) = line.split_once(" [ ") else {
            return;
        };
        let Some((word, _)) = result.split_once(" ]") else {
            return;
        };
        match word {
            "pass" => self.passed += 1,
            "fail" => self.failed += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_counted() {
        let mut count = Count::default();
        for line in [
            "varve.basic 'x'                   w1 [ pass ]     12",
            "varve.types                       w2 [ fail ]",
            "varve.other                       w2 [ skipped ]  no binlog",
            "Completed: Failed 1/2 tests, 50.00% were successful.",
        ] {
            count.read(line);
        }
        assert_eq!(
            count,
            Count {
                passed: 1,
                failed: 1
            }
        );
    }
}
