//! `cargo xtask sanitize`: tests under the thread sanitizer, the address sanitizer or Miri, with the nightly
//! toolchain.
//!
//! The two sanitizers run the tests with many threads, with killed processes, calls of the C interface (the
//! target `capi` of varve-fuzz and its neighbours), and the stress test of a program with the library. The
//! thread sanitizer wants the standard library instrumented too, which takes the component `rust-src`. Miri
//! interprets what is a pure function of bytes. docs/testing.md says what none of them can do.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::nightly::{self, HOST};
use varve_testbed::command::{self, Cmd};
use varve_testbed::workspace::Workspace;

#[derive(clap::Args)]
pub struct SanitizeArgs {
    /// Only this one
    #[arg(value_enum)]
    only: Option<Kind>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Kind {
    Thread,
    Address,
    Miri,
}

const ALL: [Kind; 3] = [Kind::Thread, Kind::Address, Kind::Miri];

/// How often the program of the stress test is killed.
const STRESS_ROUNDS: &str = "4";

/// What of the engine's tests has threads or processes that meet.
const ENGINE_TESTS: [&str; 8] = [
    "-p",
    "varve",
    "--test",
    "concurrency",
    "--test",
    "races",
    "--test",
    "kill",
];

/// Tests that neither map memory, open files or start threads nor try thousands of cases, which would take
/// Miri hours.
const PURE: [&str; 10] = [
    "base::ids::",
    "base::xid::",
    "catalog::def_copy::",
    "catalog::record::",
    "mtr::record::",
    "page::header::",
    "redo::frame::",
    "redo::intro::",
    "row::long::",
    "undo::record::tests::diff",
];

pub fn run(workspace: &Workspace, args: &SanitizeArgs) -> Result<ExitCode> {
    let mut failed = Vec::new();
    for kind in ALL {
        if args.only.is_none_or(|only| only == kind) {
            println!("== {kind:?}");
            if let Err(e) = run_one(workspace, kind) {
                println!("error: {e:#}");
                failed.push(kind);
            }
        }
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("failed: {failed:?}");
    Ok(ExitCode::FAILURE)
}

fn run_one(workspace: &Workspace, kind: Kind) -> Result<()> {
    match kind {
        Kind::Thread => {
            nightly::require_component("the thread sanitizer", "rust-src")?;
            sanitized(workspace, "thread")
        }
        Kind::Address => {
            nightly::require("the address sanitizer")?;
            sanitized(workspace, "address")
        }
        Kind::Miri => {
            nightly::require_component("cargo xtask sanitize miri", "miri")?;
            let test = ["miri", "test", "--locked", "-p", "varve", "--lib", "--"];
            command::run(
                nightly::cargo()
                    .args(test)
                    .args(PURE)
                    .env("CARGO_TARGET_DIR", workspace.target.join("sanitize/miri"))
                    .dir(&workspace.root),
            )
        }
    }
}

fn sanitized(workspace: &Workspace, sanitizer: &str) -> Result<()> {
    let cargo = |command: &[&str]| {
        let mut cmd = nightly::cargo().args([command[0], "--locked", "--target", HOST]);
        if sanitizer == "thread" {
            cmd = cmd.arg("-Zbuild-std");
        }
        let target = target(workspace, sanitizer);
        let flags = format!("-Zsanitizer={sanitizer}");
        let cmd = cmd.args(&command[1..]).env("RUSTFLAGS", flags);
        let cmd = cmd.env("CARGO_TARGET_DIR", target).dir(&workspace.root);
        command::run(with_options(cmd))
    };
    cargo(&[&["test"], &ENGINE_TESTS[..]].concat())?;
    // Examples in documentation are compiled without the sanitizer.
    cargo(&["test", "-p", "varve-fuzz", "--tests"])?;
    cargo(&["build", "-p", "varve-sim", "--bin", "stress-store"])?;
    let program = target(workspace, sanitizer)
        .join(HOST)
        .join("debug/stress-store");
    let this = env::current_exe().context("where is this program?")?;
    let stress = Cmd::new(this).args(["stress", "--embedded", "--rounds", STRESS_ROUNDS]);
    command::run(with_options(stress.arg("--program").arg(program)))
}

fn target(workspace: &Workspace, sanitizer: &str) -> PathBuf {
    workspace.target.join("sanitize").join(sanitizer)
}

fn with_options(cmd: Cmd) -> Cmd {
    // A process that will be killed can't say at its end that it had a race.
    cmd.env("TSAN_OPTIONS", "halt_on_error=1")
        // Threads of a database that a test lets crash are still at work when it ends.
        .env("ASAN_OPTIONS", "detect_leaks=0")
}
