//! What the tests of an application need: made once in the cache, whole or not at all, and shared by
//! checkouts.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use varve_testbed::prefix::Prefix;
use varve_testbed::workspace::{Workspace, cache_dir, remove_dir};

use super::application::Application;

pub struct Environment {
    /// What `Application::make` has filled.
    pub dir: PathBuf,
    /// Our parts of the applications' test runners.
    pub own: PathBuf,
}

pub fn ensure(
    application: &dyn Application,
    workspace: &Workspace,
    prefix: &Prefix,
) -> Result<Environment> {
    let name = application.name();
    let apps = cache_dir()?.join("apps");
    fs::create_dir_all(&apps)?;
    let dir = apps.join(name);
    let lock = fs::File::create(apps.join(format!("{name}.lock")))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    let wanted = application.versions();
    let mark = dir.join("VERSIONS");
    if fs::read_to_string(&mark).ok().as_ref() != Some(&wanted) {
        eprintln!(
            "Fetching what the tests of {name} need into {} (once)",
            dir.display()
        );
        remove_dir(&dir)?;
        fs::create_dir_all(&dir)?;
        application
            .make(&dir, prefix)
            .with_context(|| format!("the tests of {name} could not be set up"))?;
        fs::write(&mark, wanted)?;
    }
    Ok(Environment {
        dir,
        own: workspace.root.join("xtask/src/app_suites"),
    })
}
