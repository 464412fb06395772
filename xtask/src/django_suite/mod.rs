//! Django's own test suite, with Varve and with InnoDB as the server's default engine: what an application
//! framework asks of a database, migrations above all.
//!
//! Each engine has a server of its own, one after the other, reached by its socket. The suite runs with a
//! test runner that writes down how each test ended (`varve_runner.py`). A test that ends differently is
//! played again with both engines, because some are at the mercy of the clock. What then differs must be
//! listed, with its reason, in docs/django-suite.md, and what is listed there must differ.

mod environment;
mod outcomes;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use varve_testbed::command;
use varve_testbed::plugin;
use varve_testbed::prefix::Prefix;
use varve_testbed::server::{DataDir, Engine, Server};
use varve_testbed::workspace::{Workspace, remove_dir};

use self::environment::Environment;
use self::outcomes::{Comparison, Outcomes};
use crate::listed::listed;

#[derive(clap::Args)]
pub struct DjangoArgs {
    /// Tests to run, as Django names them, such as `schema` or `schema.tests.SchemaTests` [default: all]
    labels: Vec<String>,
    /// Processes that run tests at the same time
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    parallel: u32,
}

const DIFFERENCES: &str = "docs/django-suite.md";
const ENGINES: [Engine; 2] = [Engine::Varve, Engine::Innodb];
const TIME_ZONES: &str = "/usr/share/zoneinfo";

pub fn run(workspace: &Workspace, args: &DjangoArgs) -> Result<ExitCode> {
    let prefix = plugin::prefix_for(workspace, &ENGINES)?;
    let suite = Suite {
        environment: Environment::ensure(workspace, &prefix)?,
        prefix,
        dir: workspace.target.join("django-suite"),
        parallel: args.parallel,
    };
    let text = fs::read_to_string(workspace.root.join(DIFFERENCES))?;
    let listed = listed(&text);
    let mut comparison = Comparison::of(suite.run(&args.labels)?);
    let again = comparison.surprising(&listed);
    if !again.is_empty() {
        println!("{} tests again, which ended differently", again.len());
        comparison.replace(suite.run(&again)?);
    }
    let is_as_listed = comparison.print(&listed, DIFFERENCES);
    Ok(match is_as_listed {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

struct Suite {
    prefix: Prefix,
    environment: Environment,
    /// Data directories, logs and results.
    dir: PathBuf,
    parallel: u32,
}

impl Suite {
    /// Runs these tests, or all, with one engine after the other.
    fn run(&self, labels: &[String]) -> Result<[Outcomes; 2]> {
        let [varve, innodb] =
            ENGINES.map(|engine| self.run_with(engine, labels).with_context(|| engine.name()));
        Ok([varve?, innodb?])
    }

    fn run_with(&self, engine: Engine, labels: &[String]) -> Result<Outcomes> {
        let begun = Instant::now();
        let name = engine.option_prefix();
        let data = self.dir.join(name);
        // What others start may empty the system's directory of temporary files.
        let temporary = self.dir.join("tmp");
        for dir in [&data, &temporary] {
            remove_dir(dir)?;
            fs::create_dir_all(dir)?;
        }
        DataDir(data.clone()).initialise(&self.prefix)?;
        let mut options: Vec<String> = [
            "--plugin-load-add=ha_varve",
            "--character-set-server=utf8mb4",
            "--collation-server=utf8mb4_general_ci",
            "--skip-log-bin",
            "--performance-schema=OFF",
            "--varve-flush-log-at-trx-commit=2",
            "--innodb-flush-log-at-trx-commit=2",
        ]
        .map(String::from)
        .into();
        options.push(format!("--default-storage-engine={}", engine.name()));
        options.push(format!("--tmpdir={}", temporary.display()));
        let mut server = Server::start(&self.prefix, DataDir(data.clone()), None, &options)?;
        self.load_time_zones(&server)?;
        let outcomes = self.run_tests(&server, name, labels)?;
        server.check_alive()?;
        server.stop()?;
        for dir in [data, temporary] {
            remove_dir(&dir)?;
        }
        let (count, seconds) = (outcomes.len(), begun.elapsed().as_secs());
        println!("{}: {count} tests in {seconds} s", engine.name());
        Ok(outcomes)
    }

    /// Django's tests of time zones want the server's tables of them.
    fn load_time_zones(&self, server: &Server) -> Result<()> {
        ensure!(
            Path::new(TIME_ZONES).is_dir(),
            "there are no time zones in {TIME_ZONES}; install tzdata"
        );
        let sql = self.prefix.program("mariadb-tzinfo-to-sql").arg(TIME_ZONES);
        let file = self.dir.join("time-zones.sql");
        let mut sql = sql.into_inner();
        // It complains about each file there that is no time zone.
        sql.stdout(fs::File::create(&file)?).stderr(Stdio::null());
        ensure!(sql.status()?.success(), "the time zones can't be read");
        let client = self.prefix.program("mariadb");
        let client = client.args(["--no-defaults", "--user=root", "mysql"]);
        let client = client.arg(format!("--socket={}", server.datadir.socket().display()));
        command::run(client.arg(format!("--execute=source {}", file.display())))
    }

    fn run_tests(&self, server: &Server, name: &str, labels: &[String]) -> Result<Outcomes> {
        let results = self.dir.join(format!("{name}.json"));
        let log = self.dir.join(format!("{name}.log"));
        if results.exists() {
            fs::remove_file(&results)?;
        }
        println!("{name}: the tests' own words are in {}", log.display());
        // The prefix has the programs by which Django copies databases.
        let program = self.environment.python().display().to_string();
        let tests = self.environment.tests();
        let mut tests = self
            .prefix
            .program(&program)
            .args(["runtests.py", "--settings=varve_settings", "--noinput"])
            .arg(format!("--parallel={}", self.parallel))
            .args(labels)
            .env("PYTHONPATH", self.environment.python_path()?)
            .env("PYTHONPYCACHEPREFIX", self.environment.compiled())
            .env("PYTHONWARNINGS", "ignore")
            .env("VARVE_DJANGO_SOCKET", server.datadir.socket())
            .env("VARVE_DJANGO_RESULTS", &results)
            .dir(&tests)
            .into_inner();
        let log_file = fs::File::create(&log)?;
        // It fails if any test does, whatever the engine.
        tests
            .stdout(log_file.try_clone()?)
            .stderr(log_file)
            .status()
            .context("cannot run Python")?;
        let lines = fs::read_to_string(&results).unwrap_or_default();
        let outcomes = outcomes::read(&lines).with_context(|| log.display().to_string())?;
        ensure!(!outcomes.is_empty(), "no test ran; see {}", log.display());
        Ok(outcomes)
    }
}
