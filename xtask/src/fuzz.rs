//! `cargo xtask fuzz`: libFuzzer with the address sanitizer on the targets of `crates/varve-fuzz`, one after
//! the other.
//!
//! It needs a nightly toolchain (instrumentation and sanitizers are unstable flags) and a C++ compiler
//! (libFuzzer is built from source). Neither is installed from here: what is missing is said by name.
//! Everything lies below the target directory:
//!
//! | `target/fuzz/` | |
//! |---|---|
//! | `x86_64-unknown-linux-gnu/release/` | the instrumented programs |
//! | `corpus/TARGET/` | seeds, made anew, and inputs that found new paths, kept for the next run |
//! | `findings/TARGET/` | inputs that made the target fail |

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::nightly::{self, HOST};
use varve_testbed::command::{self, Cmd};
use varve_testbed::workspace::{Workspace, cargo};

#[derive(clap::Args)]
pub struct FuzzArgs {
    /// Only this target: page, redo, control, undo, codec, definition, database, capi or memcached
    target: Option<String>,
    /// How long each target runs
    #[arg(long, default_value_t = 20)]
    seconds: u32,
}

/// What libFuzzer wants of the compiler, as cargo-fuzz gives it.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address";

/// What one target did.
struct Run {
    name: String,
    executions: u64,
    succeeded: bool,
}

pub fn run(workspace: &Workspace, args: &FuzzArgs) -> Result<ExitCode> {
    nightly::require("cargo xtask fuzz")?;
    require_cxx()?;
    let dir = workspace.target.join("fuzz");
    let names = write_seeds(workspace, &dir.join("corpus"), args)?;
    build(workspace, &dir)?;
    let mut runs = Vec::new();
    for name in names {
        println!("== {name}");
        runs.push(run_target(&dir, name, args.seconds)?);
    }
    println!();
    for run in &runs {
        let outcome = match run.succeeded {
            true => "",
            false => "  FAILED: see findings",
        };
        println!(
            "{:<12} {:>12} executions{outcome}",
            run.name, run.executions
        );
    }
    if runs.iter().all(|run| run.succeeded) {
        return Ok(ExitCode::SUCCESS);
    }
    println!("failing inputs: {}", dir.join("findings").display());
    Ok(ExitCode::FAILURE)
}

fn require_cxx() -> Result<()> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    match command::output(Cmd::new(&compiler).arg("--version")) {
        Ok(_) => Ok(()),
        Err(e) => bail!("cargo xtask fuzz builds libFuzzer with a C++ compiler, `{compiler}`: {e}"),
    }
}

/// Writes the seeds of all targets with the stable toolchain, and returns the targets that are wanted.
fn write_seeds(workspace: &Workspace, corpus: &Path, args: &FuzzArgs) -> Result<Vec<String>> {
    let program = [
        "run",
        "--quiet",
        "--locked",
        "--package",
        "varve-fuzz",
        "--",
    ];
    command::run(
        Cmd::new(cargo())
            .args(program)
            .arg(corpus)
            .dir(&workspace.root),
    )?;
    let mut names = Vec::new();
    for entry in fs::read_dir(corpus)? {
        let name = entry?.file_name();
        names.push(
            name.into_string()
                .ok()
                .context("targets have plain names")?,
        );
    }
    names.sort();
    if let Some(wanted) = &args.target {
        if !names.contains(wanted) {
            bail!(
                "no target is called {wanted}; there are {}",
                names.join(", ")
            );
        }
        names.retain(|name| name == wanted);
    }
    Ok(names)
}

fn build(workspace: &Workspace, dir: &Path) -> Result<()> {
    // With a target named, build scripts and macros are not instrumented.
    let args = ["build", "--release", "--locked", "--target", HOST];
    command::run(
        nightly::cargo()
            .args(args)
            .env("RUSTFLAGS", COVERAGE)
            .env("CARGO_TARGET_DIR", dir)
            .dir(&workspace.root.join("fuzz")),
    )
}

fn run_target(dir: &Path, name: String, seconds: u32) -> Result<Run> {
    let program: PathBuf = dir.join(HOST).join("release").join(&name);
    let corpus = dir.join("corpus").join(&name);
    let findings = dir.join("findings").join(&name);
    fs::create_dir_all(&findings)?;
    let log = dir.join(format!("{name}.log"));
    let mut fuzzer = Cmd::new(program)
        .arg(corpus)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", findings.display()))
        // Of memory that an input may take, and of time.
        .args(["-rss_limit_mb=2048", "-malloc_limit_mb=512", "-timeout=30"])
        // The database of a process is never closed, so that what it holds would be told as lost.
        .args(["-detect_leaks=0", "-print_final_stats=1"])
        .dir(dir)
        .into_inner();
    fuzzer.stderr(fs::File::create(&log)?);
    let status = fuzzer
        .status()
        .with_context(|| format!("cannot run {name}"))?;
    let text = fs::read(&log)?;
    let text = String::from_utf8_lossy(&text);
    let executions = text
        .lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))
        .and_then(|n| n.trim().parse().ok())
        .unwrap_or(0);
    if !status.success() {
        let lines: Vec<&str> = text.lines().collect();
        println!("{}", lines[lines.len().saturating_sub(60)..].join("\n"));
    }
    Ok(Run {
        name,
        executions,
        succeeded: status.success(),
    })
}
