//! Where the checkout, its build products and the machine's cache are.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::command::{self, Cmd};

pub struct Workspace {
    /// The root of the checkout.
    pub root: PathBuf,
    /// Cargo's target directory, which also takes the plugin, servers and test runs.
    pub target: PathBuf,
}

impl Workspace {
    pub fn find() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest
            .ancestors()
            .nth(2)
            .context("this crate lies in `crates` of the workspace")?
            .to_path_buf();
        let target = match env::var_os("CARGO_TARGET_DIR") {
            // Cargo takes a relative one from where it was called, and so do we.
            Some(dir) => env::current_dir()?.join(dir),
            None => root.join("target"),
        };
        Ok(Self { root, target })
    }

    /// What `cargo metadata` says about every package, dependencies included.
    pub fn metadata(&self) -> Result<Value> {
        let json = command::output(
            Cmd::new(cargo())
                .args(["metadata", "--format-version=1", "--locked"])
                .dir(&self.root),
        )?;
        serde_json::from_str(&json).context("cannot read the output of cargo metadata")
    }
}

/// Runs a program of the workspace with the arguments that follow.
pub fn program(workspace: &Workspace, package: &str) -> Cmd {
    Cmd::new(cargo())
        .args(["run", "--quiet", "--locked", "--package", package])
        .arg("--manifest-path")
        .arg(workspace.root.join("Cargo.toml"))
        .arg("--")
}

/// How the workspace is built for its tests: with a database that does one thing wrong if it is told to, so
/// that they can show that they notice. With other features the engine would be compiled once more.
pub const AS_TESTED: [&str; 4] = ["--workspace", "--locked", "--features", "varve/sabotage"];

/// Builds the programs that tests start, and says in which directory they are.
pub fn programs_as_tested(workspace: &Workspace) -> Result<PathBuf> {
    // Only where an example is among what is built does cargo count the features that tests ask for, as it
    // does for tests.
    let programs = [
        "--bin",
        "stress-store",
        "--bin",
        "varve",
        "--example",
        "shop",
    ];
    let build = Cmd::new(cargo()).args(["build", "--quiet"]);
    let build = build.args(AS_TESTED).args(programs);
    command::run(
        build
            .env("CARGO_TARGET_DIR", &workspace.target)
            .dir(&workspace.root),
    )?;
    Ok(workspace.target.join("debug"))
}

/// The cargo that started us, so that a chosen toolchain stays chosen.
pub fn cargo() -> String {
    env::var("CARGO").unwrap_or_else(|_| "cargo".into())
}

/// Removes a directory and all that is in it, if it is there.
pub fn remove_dir(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// What checkouts share: `$XDG_CACHE_HOME/varve`.
pub fn cache_dir() -> Result<PathBuf> {
    let base = match env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir),
        None => {
            PathBuf::from(env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?)
                .join(".cache")
        }
    };
    Ok(base.join("varve"))
}
