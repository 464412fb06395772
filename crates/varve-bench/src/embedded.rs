//! `bench embedded`: Varve beside other embedded engines, in a program of its own (`embedded/`).
//!
//! The program is a workspace of its own, so that no peer is a dependency of the product. RocksDB and
//! WiredTiger come as Debian packages, unpacked into the cache; where they can't be had they are left out,
//! and said so.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::origin::Origin;
use varve_testbed::command::{self, Cmd};
use varve_testbed::workspace::{Workspace, cache_dir, cargo};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct EmbeddedArgs {
    /// What the program is told; `--help` lists its options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

pub fn run(workspace: &Workspace, args: &EmbeddedArgs) -> Result<()> {
    // Not among its output, which may be JSON.
    eprintln!("embedded: {}", Origin::here(workspace)?);
    let peers = native_peers(workspace)
        .inspect_err(|error| eprintln!("RocksDB and WiredTiger are left out: {error:#}"))
        .ok();
    let target = workspace.target.join("bench");
    build(workspace, &target, peers.as_deref())?;
    let mut cmd = Cmd::new(target.join("release/varve-bench-embedded"))
        .arg("--dir")
        .arg(workspace.target.join("bench-embedded"))
        .args(&args.options);
    if let Some(peers) = &peers {
        cmd = cmd.env("LD_LIBRARY_PATH", library_dir(peers));
    }
    command::run(cmd)
}

fn library_dir(peers: &Path) -> PathBuf {
    peers.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH))
}

/// Unpacks the peers that come as packages, once; returns where they are.
fn native_peers(workspace: &Workspace) -> Result<PathBuf> {
    let dir = cache_dir()?.join("bench-peers");
    let script = workspace
        .root
        .join("crates/varve-bench/embedded/tools/get-peers.sh");
    command::run(Cmd::new(script).arg(&dir)).context("their packages could not be unpacked")?;
    Ok(dir)
}

fn build(workspace: &Workspace, target: &Path, peers: Option<&Path>) -> Result<()> {
    let mut cmd = Cmd::new(cargo())
        .args([
            "build",
            "--release",
            "--locked",
            "--quiet",
            "--manifest-path",
        ])
        .arg(
            workspace
                .root
                .join("crates/varve-bench/embedded/Cargo.toml"),
        )
        .env("CARGO_TARGET_DIR", target);
    if let Some(peers) = peers {
        cmd = cmd
            .args(["--features", "native"])
            .env("VARVE_BENCH_PEERS", peers);
    }
    command::run(cmd)
}
