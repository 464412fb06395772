//! memcached, and libmemcached's `memccapable`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cached::made_once;
use crate::command::{self, Cmd};
use crate::workspace::Workspace;

/// The folder with the programs, which are Debian's: half a megabyte, fetched once into the cache.
pub fn programs(workspace: &Workspace) -> Result<PathBuf> {
    let tools = workspace.root.join("crates/varve-testbed/tools");
    let script = tools.join("get-memcached.sh");
    let wanted = fs::read_to_string(&script)?;
    let make = |dir: &Path| command::run(Cmd::new(&script).arg(dir));
    made_once("memcached", &wanted, make).context("there is no memcached")
}
