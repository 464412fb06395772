//! `cargo xtask sanitize`: tests under the thread sanitizer, the address sanitizer or Miri, with the nightly toolchain.
//!
//! The two sanitizers run the tests with many threads, with killed processes, and calls of the C interface (the target `capi` of
//! varve-fuzz and its neighbours). The thread sanitizer wants the standard library instrumented too, which takes the component
//! `rust-src`. Miri interprets what is a pure function of bytes. docs/testing.md says what none of them can do.

use std::process::ExitCode;

use anyhow::Result;

use crate::command::{self, Cmd};
use crate::nightly::{self, HOST};
use crate::workspace::Workspace;

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

/// Tests that neither map memory, open files or start threads nor try thousands of cases, which would take Miri hours.
const PURE: [&str; 9] = [
    "base::ids::",
    "base::xid::",
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
            command::run(tests(workspace, "thread", &ENGINE_TESTS))?;
            command::run(tests(workspace, "thread", &["-p", "varve-fuzz"]))
        }
        Kind::Address => {
            nightly::require("the address sanitizer")?;
            command::run(tests(workspace, "address", &ENGINE_TESTS))?;
            command::run(tests(workspace, "address", &["-p", "varve-fuzz"]))
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

fn tests(workspace: &Workspace, sanitizer: &str, which: &[&str]) -> Cmd {
    let target = workspace.target.join("sanitize").join(sanitizer);
    let mut cmd = nightly::cargo().args(["test", "--locked", "--target", HOST]);
    if sanitizer == "thread" {
        cmd = cmd.arg("-Zbuild-std");
    }
    cmd.args(which)
        .env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"))
        .env("CARGO_TARGET_DIR", target)
        // Threads of a database that a test lets crash are still at work when it ends.
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .dir(&workspace.root)
}
