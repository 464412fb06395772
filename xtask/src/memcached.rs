//! Clients' view of `varve serve`: libmemcached's `memccapable`, and random conversations with it and with
//! memcached, which must not tell them apart (`crates/varve-memcached/tests/beside_memcached.rs`).

use std::path::Path;

use anyhow::{Result, ensure};
use varve_testbed::command::{self, Cmd};
use varve_testbed::memcached::programs;
use varve_testbed::workspace::{AS_TESTED, Workspace, cargo};

use crate::mtr::Count;

/// All that `memccapable` has.
const CAPABILITIES: u32 = 54;
const CONVERSATIONS: u32 = 300;

#[derive(clap::Args)]
pub struct MemcachedArgs {
    /// Where the random conversations begin
    #[arg(long)]
    seed: Option<u64>,
    /// How many there are
    #[arg(long, default_value_t = CONVERSATIONS)]
    conversations: u32,
}

pub fn run(workspace: &Workspace, args: &MemcachedArgs) -> Result<()> {
    check(workspace, &programs(workspace)?, args).map(drop)
}

/// `memccapable`'s tests and ours, or none if the programs can't be had.
pub fn run_suite(workspace: &Workspace) -> Result<Count> {
    let mut count = Count::default();
    match programs(workspace) {
        Ok(programs) => {
            let args = MemcachedArgs {
                seed: None,
                conversations: CONVERSATIONS,
            };
            count.passed = check(workspace, &programs, &args)?;
        }
        Err(error) => {
            println!("skipped: {error:#}");
            count.skipped = 1;
        }
    }
    Ok(count)
}

fn check(workspace: &Workspace, programs: &Path, args: &MemcachedArgs) -> Result<u32> {
    let test = Cmd::new(cargo())
        .args(["test", "--quiet"])
        .args(AS_TESTED)
        .args([
            "--test",
            "beside_memcached",
            "--",
            "--ignored",
            "--nocapture",
        ])
        .env("VARVE_MEMCACHED_PROGRAMS", programs)
        .env("VARVE_CONVERSATIONS", args.conversations.to_string());
    let test = match args.seed {
        Some(seed) => test.env("VARVE_SEED", seed.to_string()),
        None => test,
    };
    let mut passed = 0;
    let succeeded = command::stream(test.dir(&workspace.root), |line| {
        passed += line.matches("[pass]").count() as u32;
    })?;
    ensure!(succeeded, "the tests beside memcached have failed");
    ensure!(
        passed == CAPABILITIES,
        "memccapable has passed {passed} of {CAPABILITIES} tests"
    );
    Ok(passed + 1)
}
