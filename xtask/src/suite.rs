//! `cargo xtask test`: every test there is, one after the other; a failed step does not stop the next.
//!
//! Cargo's and MariaDB's test runners count each of their tests, any other step counts as one. The last
//! line is `N passed, N failed`; the exit status says the same.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::backup;
use crate::engine_suite;
use crate::failures::Failures;
use crate::hermitage;
use crate::memcached;
use crate::monitor;
use crate::mtr::{self, Count};
use crate::programs;
use crate::suites;
use crate::tidy;
use varve_testbed::command::{self, Cmd};
use varve_testbed::plugin;
use varve_testbed::workspace::{self, AS_TESTED, Workspace, cargo};

#[derive(clap::Args)]
pub struct TestArgs {
    /// Leave out what needs a MariaDB server, and try the longest models of loom less thoroughly
    #[arg(long)]
    quick: bool,
}

type Step = (&'static str, fn(&Workspace) -> Result<Count>);

const CARGO: [Step; 6] = [
    ("formatting", |workspace| {
        one(command::run(
            Cmd::new(cargo())
                .args(["fmt", "--all", "--check"])
                .dir(&workspace.root),
        ))
    }),
    ("clippy", |workspace| {
        let clippy = |of: &[&str]| {
            let clippy = Cmd::new(cargo()).args(["clippy", "--quiet"]);
            let clippy = clippy.args(of).args(["--", "-D", "warnings"]);
            command::run(clippy.dir(&workspace.root))
        };
        // Only without the features of tests the compiler sees what the engine does not use itself.
        let users = [
            "--locked",
            "-p",
            "varve",
            "-p",
            "varve-capi",
            "-p",
            "varve-cli",
        ];
        let whole: Vec<&str> = AS_TESTED.into_iter().chain(["--all-targets"]).collect();
        one(clippy(&whole).and_then(|()| clippy(&users)))
    }),
    ("tidy", |workspace| {
        let is_clean = tidy::report(workspace)?;
        Ok(Count {
            passed: is_clean.into(),
            failed: (!is_clean).into(),
            ..Count::default()
        })
    }),
    ("documentation", |workspace| {
        let doc = |of: &[&str]| {
            let args = ["doc", "--no-deps", "--locked", "--quiet"];
            let doc = Cmd::new(cargo()).args(args).args(of).dir(&workspace.root);
            command::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
        };
        // What users read comes last, so that it stays.
        one(doc(&["--workspace"]).and_then(|()| doc(&["-p", "varve"])))
    }),
    ("cargo test", cargo_test),
    ("examples in documentation", doc_tests),
];

const QUICK: [Step; 1] = [("interleavings (loom)", |workspace| {
    loom_tests(workspace, &[("VARVE_QUICK_MODELS", "1")])
})];

const SLOW: [Step; 14] = [
    ("interleavings (loom)", |workspace| {
        loom_tests(workspace, &[])
    }),
    ("the monitor in a browser", monitor::run_suite),
    ("plugin build, ABI and symbols", |workspace| {
        one(plugin::build(workspace).map(drop))
    }),
    ("clients of memcached", memcached::run_suite),
    ("MariaDB's test runner", mtr::run_suite),
    ("MariaDB's suite storage_engine", engine_suite::run_ours),
    ("MariaDB's other suites", suites::run_short),
    ("anomalies beside InnoDB", hermitage::run_suite),
    ("random SQL beside InnoDB", random_sql),
    ("backups of a server", backup::run_suite),
    ("smallest benchmarks", |workspace| {
        let tpcc = [
            "tpcc",
            "--warehouses=2",
            "--scale=0.01",
            "--time=1",
            "--repeat=1",
        ];
        let cascade = ["cascade", "--children=1000", "--repeat=1"];
        let monitor = [
            "monitor",
            "--workload=oltp_read_write",
            "--pairs=1",
            "--window=1",
            "--rows=1000",
        ];
        // They check what they have done: what counts here is that it holds.
        run_each(workspace, "varve-bench", &[&tpcc, &cascade, &monitor])
    }),
    ("killed processes", |workspace| {
        killed(workspace, &["--rounds=4"])
    }),
    ("killed servers, binary log", |workspace| {
        killed(workspace, &["--rounds=2", "--binlog"])
    }),
    ("killed on a full disk", |workspace| {
        killed(workspace, &["--rounds=1", "--full=mount"])
    }),
];

pub fn run(workspace: &Workspace, args: &TestArgs) -> Result<ExitCode> {
    let more: &[Step] = if args.quick { &QUICK } else { &SLOW };
    let steps = CARGO.iter().chain(more);
    let mut total = Count::default();
    let (mut report, mut failures) = (Vec::new(), Vec::new());
    for (name, step) in steps {
        println!("== {name}");
        let begin = Instant::now();
        let count = step(workspace).unwrap_or_else(|error| {
            println!("error: {error:#}");
            Count {
                failed: 1,
                failures: vec![format!("error: {error:#}")],
                ..Count::default()
            }
        });
        failures.extend(
            count
                .failures
                .iter()
                .map(|text| format!("== {name}\n{text}")),
        );
        report.push(line(name, &count, begin.elapsed()));
        total.passed += count.passed;
        total.failed += count.failed;
    }
    if !failures.is_empty() {
        println!("\nWhat failed:\n{}", failures.join("\n"));
    }
    println!("\n{}", report.join("\n"));
    println!("{} passed, {} failed", total.passed, total.failed);
    Ok(if total.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn line(name: &str, count: &Count, time: Duration) -> String {
    let skipped = match count.skipped {
        0 => String::new(),
        n => format!("  {n} skipped"),
    };
    format!(
        "{name:<32} {:>5} passed {:>3} failed {:>7.1} s{skipped}",
        count.passed,
        count.failed,
        time.as_secs_f64()
    )
}

/// The whole step is one test.
fn one(result: Result<()>) -> Result<Count> {
    result.map(|()| Count {
        passed: 1,
        ..Count::default()
    })
}

/// A short run of the stress test.
fn killed(workspace: &Workspace, args: &[&str]) -> Result<Count> {
    let stress = workspace::program(workspace, "varve-stress");
    one(command::run(stress.args(args)))
}

/// Random SQL by seeds that stay the same, then by fresh ones, which are printed: one session, then several.
fn random_sql(workspace: &Workspace) -> Result<Count> {
    let runs: [&[&str]; 4] = [
        &["--statements=40000", "--seed=1"],
        &["--sessions", "--statements=6000", "--seed=1"],
        // So few that hardly ever a difference turns up that is in no list.
        &["--statements=3000"],
        &["--sessions", "--statements=400", "--autoinc-lock-mode=1"],
    ];
    run_each(workspace, "varve-random", &runs)
}

/// Runs one of the workspace's programs with each of these arguments; each run is a test.
fn run_each(workspace: &Workspace, program: &str, runs: &[&[&str]]) -> Result<Count> {
    let mut count = Count::default();
    for args in runs {
        match command::run(workspace::program(workspace, program).args(*args)) {
            Ok(()) => count.passed += 1,
            Err(error) => {
                println!("error: {error:#}");
                count.failed += 1;
                count.failures.push(format!("error: {error:#}"));
            }
        }
    }
    Ok(count)
}

fn cargo_test(workspace: &Workspace) -> Result<Count> {
    count_cargo_results(|each| programs::run(workspace, &AS_TESTED, each))
}

fn doc_tests(workspace: &Workspace) -> Result<Count> {
    let test = Cmd::new(cargo()).args(["test", "--doc", "--no-fail-fast"]);
    let test = test.args(AS_TESTED).dir(&workspace.root);
    count_cargo_results(|each| command::stream(test, each))
}

/// The tests named `loom_…` try every interleaving; they need a build in which atomics and locks are loom's.
fn loom_tests(workspace: &Workspace, variables: &[(&str, &str)]) -> Result<Count> {
    let args = [
        "test",
        "--locked",
        // The models take their time in loom, the compiler takes its own for the rest.
        "--config=profile.dev.opt-level=0",
        "--config=profile.dev.package.\"*\".opt-level=1",
        "--no-fail-fast",
        "--package",
        "varve",
        "--lib",
        "loom_",
    ];
    let mut test = Cmd::new(cargo())
        .args(args)
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_TARGET_DIR", workspace.target.join("loom"))
        .dir(&workspace.root);
    for (name, value) in variables {
        test = test.env(name, value);
    }
    let count = count_cargo_results(|each| command::stream(test, each))?;
    ensure!(
        count.passed + count.failed > 0,
        "no test of crates/varve is named loom_…"
    );
    Ok(count)
}

/// Counts in the lines that `run` hands on; it says whether everything succeeded.
fn count_cargo_results(
    run: impl FnOnce(&mut (dyn FnMut(&str) + Send)) -> Result<bool>,
) -> Result<Count> {
    let mut count = Count::default();
    let mut failures = Failures::default();
    let succeeded = run(&mut |line| {
        add_cargo_result(&mut count, line);
        match line {
            // What a test that failed has printed stands below its name, and the names once more at the end.
            _ if line.starts_with("---- ") => failures.begin(line),
            "failures:" => failures.end(),
            _ => failures.add(line),
        }
    })?;
    count.failures = failures.into_texts();
    if !succeeded && count.failed == 0 {
        count.failed = 1;
        let what = "it did not compile, or a test program died before it could count: see above";
        count.failures.push(what.into());
    }
    Ok(count)
}

/// Adds `test result: ok. 12 passed; 0 failed; 0 ignored; …`.
fn add_cargo_result(count: &mut Count, line: &str) {
    let Some(result) = line.strip_prefix("test result: ") else {
        return;
    };
    for part in result.split([';', '.']) {
        match part.trim().split_once(' ') {
            Some((n, "passed")) => count.passed += n.parse().unwrap_or(0),
            Some((n, "failed")) => count.failed += n.parse().unwrap_or(0),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_results_add_up() {
        let mut count = Count::default();
        for line in [
            "test base::ids ... ok",
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        ] {
            add_cargo_result(&mut count, line);
        }
        assert_eq!(
            count,
            Count {
                passed: 15,
                failed: 2,
                ..Count::default()
            }
        );
    }
}
