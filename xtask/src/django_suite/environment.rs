//! Python with what Django's tests need, and Django's sources, which have the tests: made once in the cache,
//! whole or not at all, and shared by checkouts.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use varve_testbed::command::{self, Cmd};
use varve_testbed::prefix::Prefix;
use varve_testbed::workspace::{Workspace, cache_dir, remove_dir};

const DJANGO: &str = "5.2.19";
/// What its tests import, with all that these want. Tests of what is missing are skipped.
const REQUIREMENTS: &str = include_str!("requirements.txt");

pub struct Environment {
    dir: PathBuf,
    /// Our settings and test runner.
    own_modules: PathBuf,
}

impl Environment {
    pub fn ensure(workspace: &Workspace, prefix: &Prefix) -> Result<Self> {
        let dir = cache_dir()?.join("django");
        let lock = fs::File::create(cache_dir()?.join("django.lock"))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let wanted = format!("Django=={DJANGO}\n{REQUIREMENTS}");
        let mark = dir.join("VERSIONS");
        if fs::read_to_string(&mark).ok().as_ref() != Some(&wanted) {
            eprintln!(
                "Fetching Django and what its tests need into {} (once)",
                dir.display()
            );
            remove_dir(&dir)?;
            fs::create_dir_all(&dir)?;
            make(&dir, prefix).context("Django's tests could not be set up")?;
            fs::write(&mark, wanted)?;
        }
        Ok(Self {
            dir,
            own_modules: workspace.root.join("xtask/src/django_suite"),
        })
    }

    pub fn python(&self) -> PathBuf {
        python(&self.dir)
    }

    /// The directory of `runtests.py`.
    pub fn tests(&self) -> PathBuf {
        self.sources().join("tests")
    }

    pub fn python_path(&self) -> Result<OsString> {
        Ok(env::join_paths([self.own_modules.clone(), self.sources()])?)
    }

    /// Where Python keeps what it has compiled: not beside our modules.
    pub fn compiled(&self) -> PathBuf {
        self.dir.join("compiled")
    }

    fn sources(&self) -> PathBuf {
        self.dir.join("sources")
    }
}

fn python(dir: &Path) -> PathBuf {
    dir.join("python/bin/python")
}

/// The driver, mysqlclient, is compiled against the client library that came with the server.
fn make(dir: &Path, prefix: &Prefix) -> Result<()> {
    command::run(
        Cmd::new("python3")
            .args(["-m", "venv"])
            .arg(dir.join("python")),
    )?;
    let pip =
        || Cmd::new(python(dir)).args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
    let requirements = dir.join("requirements.txt");
    fs::write(&requirements, REQUIREMENTS)?;
    let (headers, libraries) = (prefix.usr().join("include/mariadb"), prefix.library_path());
    let install = pip().args([
        "install",
        "--no-binary=mysqlclient",
        "--no-deps",
        "--requirement",
    ]);
    command::run(
        install
            .arg(&requirements)
            .env("MYSQLCLIENT_CFLAGS", format!("-I{}", headers.display()))
            .env(
                "MYSQLCLIENT_LDFLAGS",
                format!("-L{} -lmariadb", libraries.display()),
            ),
    )?;
    let download = pip().args(["download", "--no-binary=:all:", "--no-deps", "--dest"]);
    command::run(download.arg(dir).arg(format!("Django=={DJANGO}")))?;
    let sources = dir.join("sources");
    fs::create_dir(&sources)?;
    command::run(
        Cmd::new("tar")
            .args(["--strip-components=1", "-xzf"])
            .arg(dir.join(format!("django-{DJANGO}.tar.gz")))
            .arg("-C")
            .arg(sources),
    )
}
