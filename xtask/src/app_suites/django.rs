//! Django, a web framework.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Result, ensure};
use varve_testbed::command::{self, Cmd};
use varve_testbed::prefix::Prefix;

use super::application::{Application, Run, Tests};
use super::python::{self, Sources};

pub struct Django;

const SOURCES: Sources = Sources {
    project: "django",
    version: "5.2.19",
    requirements: include_str!("python/django.txt"),
};
const TIME_ZONES: &str = "/usr/share/zoneinfo";

impl Application for Django {
    fn name(&self) -> &'static str {
        "django"
    }

    fn title(&self) -> &'static str {
        "Django"
    }

    fn versions(&self) -> String {
        SOURCES.versions()
    }

    fn make(&self, dir: &Path, prefix: &Prefix) -> Result<()> {
        SOURCES.make(dir, prefix)
    }

    /// Its tests of time zones want the server's tables of them.
    fn prepare(&self, run: &Run) -> Result<()> {
        ensure!(
            Path::new(TIME_ZONES).is_dir(),
            "there are no time zones in {TIME_ZONES}; install tzdata"
        );
        let sql = run.prefix.program("mariadb-tzinfo-to-sql").arg(TIME_ZONES);
        let file = run.dir.join("time-zones.sql");
        let mut sql = sql.into_inner();
        // It complains about each file there that is no time zone.
        sql.stdout(fs::File::create(&file)?).stderr(Stdio::null());
        ensure!(sql.status()?.success(), "the time zones can't be read");
        let client = run.prefix.program("mariadb");
        let client = client.args(["--no-defaults", "--user=root", "mysql"]);
        let socket = run.server.datadir.socket();
        let client = client.arg(format!("--socket={}", socket.display()));
        command::run(client.arg(format!("--execute=source {}", file.display())))
    }

    /// What could not be set up, `setUpClass (…)`, is none.
    fn is_test(&self, name: &str) -> bool {
        !name.contains(' ')
    }

    fn command(&self, run: &Run, tests: Tests) -> Result<Cmd> {
        let sources = python::sources(run.environment);
        let labels = match tests {
            Tests::All => &[],
            Tests::Labels(labels) | Tests::Named(labels) => labels,
        };
        let tests = python::command(run, &sources)?
            .args(["runtests.py", "--noinput"])
            .arg("--settings=varve_django_settings")
            .arg(format!("--parallel={}", run.parallel))
            .args(labels);
        let socket = run.server.datadir.socket();
        Ok(tests
            .env("VARVE_APP_SOCKET", socket)
            .dir(&sources.join("tests")))
    }
}
