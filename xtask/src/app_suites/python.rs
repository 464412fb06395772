//! Applications in Python: their modules in an environment of their own, their sources, which have the
//! tests, and pytest.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use varve_testbed::command::{self, Cmd};
use varve_testbed::prefix::Prefix;
use varve_testbed::server::Engine;

use super::application::{Run, Tests};
use super::environment::Environment;

/// A source distribution, and the modules that its tests import, with all that these want.
pub struct Sources {
    /// As pip names it, and its archive.
    pub project: &'static str,
    pub version: &'static str,
    pub requirements: &'static str,
}

impl Sources {
    pub fn versions(&self) -> String {
        format!("{}=={}\n{}", self.project, self.version, self.requirements)
    }

    /// The driver, mysqlclient, is compiled against the client library that came with the server.
    pub fn make(&self, dir: &Path, prefix: &Prefix) -> Result<()> {
        command::run(
            Cmd::new("python3")
                .args(["-m", "venv"])
                .arg(dir.join("python")),
        )?;
        let pip =
            || Cmd::new(python(dir)).args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
        let requirements = dir.join("requirements.txt");
        fs::write(&requirements, self.requirements)?;
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
        let Self {
            project, version, ..
        } = self;
        let download = pip()
            .args(["download", "--no-deps", "--no-binary", project, "--dest"])
            .arg(dir);
        command::run(download.arg(format!("{project}=={version}")))?;
        let sources = dir.join("sources");
        fs::create_dir(&sources)?;
        command::run(
            Cmd::new("tar")
                .args(["--strip-components=1", "-xzf"])
                .arg(dir.join(format!("{project}-{version}.tar.gz")))
                .arg("-C")
                .arg(sources),
        )
    }
}

fn python(dir: &Path) -> PathBuf {
    dir.join("python/bin/python")
}

pub fn sources(environment: &Environment) -> PathBuf {
    environment.dir.join("sources")
}

/// The environment's Python, which finds our modules, then those in `modules`. The prefix has the programs by
/// which some copy databases.
pub fn command(run: &Run, modules: &Path) -> Result<Cmd> {
    let own_modules = run.environment.own.join("python");
    let path: OsString = env::join_paths([own_modules.as_path(), modules])?;
    let python = python(&run.environment.dir).display().to_string();
    let command = run.prefix.program(&python);
    // Not beside our modules.
    let compiled = run.environment.dir.join("compiled");
    Ok(command
        .env("PYTHONPATH", path)
        .env("PYTHONPYCACHEPREFIX", compiled)
        .env("PYTHONWARNINGS", "ignore"))
}

/// Runs pytest with `options` in the directory of the sources. `all` are the files and directories that have
/// the tests.
pub fn pytest(run: &Run, tests: Tests, all: &[&str], options: &[&str]) -> Result<Cmd> {
    let sources = sources(run.environment);
    let mut command = command(run, &sources)?
        .args(["-m", "pytest", "-p", "varve_pytest", "--quiet"])
        // Not the project's own: some stop after so many failures.
        .args(["--override-ini=addopts=", "--tb=native"])
        .args(["-p", "no:cacheprovider", "-p", "no:warnings"])
        .arg(format!("--numprocesses={}", run.parallel))
        .args(options)
        .dir(&sources);
    if run.engine == Engine::Varve {
        command = command.env("VARVE_APP_ENGINE", run.engine.name());
    }
    Ok(match tests {
        Tests::All => command.args(all),
        Tests::Labels(labels) => command.args(labels),
        Tests::Named(names) => {
            let file = run.dir.join("only.json");
            fs::write(&file, serde_json::to_string(names)?)
                .context("cannot write the tests' names")?;
            command.env("VARVE_APP_ONLY", file).args(files_of(names))
        }
    })
}

/// The files in which pytest finds these tests, which it names `FILE::CLASS::TEST`.
fn files_of(names: &[String]) -> BTreeSet<&str> {
    names
        .iter()
        .map(|name| name.split("::").next().unwrap_or(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_once() {
        let names = ["a/b.py::C::d[x::y]", "a/b.py::e", "f.py"].map(String::from);
        assert_eq!(files_of(&names), BTreeSet::from(["a/b.py", "f.py"]));
    }
}
