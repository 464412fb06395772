//! What the tests of an application need, made once in the cache.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use varve_testbed::cached::made_once;
use varve_testbed::prefix::Prefix;
use varve_testbed::workspace::Workspace;

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
    let make = |dir: &Path| application.make(dir, prefix);
    let dir = made_once(name, &application.versions(), make)
        .with_context(|| format!("the tests of {name} could not be set up"))?;
    Ok(Environment {
        dir,
        own: workspace.root.join("xtask/src/app_suites"),
    })
}
