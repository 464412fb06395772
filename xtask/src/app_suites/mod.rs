//! The test suites of application frameworks, with Varve and with InnoDB as the server's default engine: what
//! applications ask of a database, schema changes and transactions above all.
//!
//! | file | job |
//! |---|---|
//! | `application` | what is said of an application: what it needs, how its tests are run |
//! | `django`, `sqlalchemy`, `alembic`, `active_record` | one each |
//! | `environment` | what an application's tests need, made once in the cache |
//! | `python` | what those have in common that are in Python |
//! | `outcomes` | how tests ended, compared |
//!
//! Each engine has a server of its own, one after the other, reached by its socket. A part of each suite's
//! test runner writes down how each test ended. A test that ends differently is played again with both
//! engines, because some are at the mercy of the clock. What then differs must be listed, with its reason, in
//! docs/app-suites.md, and what is listed there must differ.

mod active_record;
mod alembic;
mod application;
mod django;
mod environment;
mod outcomes;
mod python;
mod sqlalchemy;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use varve_testbed::plugin;
use varve_testbed::prefix::Prefix;
use varve_testbed::server::{DataDir, Engine, Server};
use varve_testbed::workspace::{Workspace, remove_dir};

use self::application::{Application, Run, Tests};
use self::outcomes::{Comparison, Outcomes};
use crate::listed::listed;

#[derive(clap::Args)]
pub struct AppSuiteArgs {
    /// Whose tests to run
    application: Name,
    /// Tests to run, as the application names them; docs/app-suites.md has examples [default: all]
    labels: Vec<String>,
    /// Processes that run tests at the same time
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    parallel: u32,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Name {
    Django,
    Sqlalchemy,
    Alembic,
    ActiveRecord,
}

const DIFFERENCES: &str = "docs/app-suites.md";
const ENGINES: [Engine; 2] = [Engine::Varve, Engine::Innodb];

pub fn run(workspace: &Workspace, args: &AppSuiteArgs) -> Result<ExitCode> {
    let application: Box<dyn Application> = match args.application {
        Name::Django => Box::new(django::Django),
        Name::Sqlalchemy => Box::new(sqlalchemy::SqlAlchemy),
        Name::Alembic => Box::new(alembic::Alembic),
        Name::ActiveRecord => Box::new(active_record::ActiveRecord),
    };
    let prefix = plugin::prefix_for(workspace, &ENGINES)?;
    let suite = Suite {
        environment: environment::ensure(application.as_ref(), workspace, &prefix)?,
        dir: workspace.target.join("app-suites").join(application.name()),
        application,
        prefix,
        parallel: args.parallel,
    };
    let text = fs::read_to_string(workspace.root.join(DIFFERENCES))?;
    let mut listed = listed(section(&text, suite.application.title())?);
    let tests = match args.labels.is_empty() {
        true => Tests::All,
        false => Tests::Labels(&args.labels),
    };
    let mut comparison = Comparison::of(suite.run(tests)?);
    if !args.labels.is_empty() {
        listed.retain(|name| comparison.has(name));
    }
    let mut again = comparison.surprising(&listed);
    again.retain(|name| suite.application.is_test(name));
    if !again.is_empty() {
        println!("{} tests again, which ended differently", again.len());
        comparison.replace(suite.run(Tests::Named(&again))?);
    }
    let is_as_listed = comparison.print(&listed, DIFFERENCES);
    Ok(match is_as_listed {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// What the document says of this application: from its heading to the next.
fn section<'a>(document: &'a str, title: &str) -> Result<&'a str> {
    let (_, from) = document
        .split_once(&format!("\n## {title}\n"))
        .with_context(|| format!("{DIFFERENCES} has no section {title}"))?;
    Ok(from.split("\n## ").next().unwrap_or(from))
}

struct Suite {
    application: Box<dyn Application>,
    environment: environment::Environment,
    prefix: Prefix,
    /// Data directories, logs and results.
    dir: PathBuf,
    parallel: u32,
}

impl Suite {
    /// Runs these tests with one engine after the other.
    fn run(&self, tests: Tests) -> Result<[Outcomes; 2]> {
        let [varve, innodb] =
            ENGINES.map(|engine| self.run_with(engine, tests).with_context(|| engine.name()));
        Ok([varve?, innodb?])
    }

    fn run_with(&self, engine: Engine, tests: Tests) -> Result<Outcomes> {
        let begun = Instant::now();
        let data = self.dir.join(engine.option_prefix());
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
        let outcomes = self.run_tests(&server, engine, tests)?;
        server.check_alive()?;
        server.stop()?;
        for dir in [data, temporary] {
            remove_dir(&dir)?;
        }
        let (count, seconds) = (outcomes.len(), begun.elapsed().as_secs());
        println!("{}: {count} tests in {seconds} s", engine.name());
        Ok(outcomes)
    }

    fn run_tests(&self, server: &Server, engine: Engine, tests: Tests) -> Result<Outcomes> {
        let name = engine.option_prefix();
        // What was said the first time stays.
        let suffix = match tests {
            Tests::Named(_) => "-again",
            Tests::All | Tests::Labels(_) => "",
        };
        let results = self.dir.join(format!("{name}{suffix}.json"));
        let log = self.dir.join(format!("{name}{suffix}.log"));
        if results.exists() {
            fs::remove_file(&results)?;
        }
        let run = Run {
            environment: &self.environment,
            prefix: &self.prefix,
            server,
            engine,
            dir: &self.dir,
            parallel: self.parallel,
        };
        self.application.prepare(&run)?;
        println!("{name}: the tests' own words are in {}", log.display());
        let command = self.application.command(&run, tests)?;
        let log_file = fs::File::create(&log)?;
        // It fails if any test does, whatever the engine.
        command
            .env("VARVE_APP_RESULTS", &results)
            .into_inner()
            .stdout(log_file.try_clone()?)
            .stderr(log_file)
            .status()
            .with_context(|| format!("cannot run the tests of {}", self.application.name()))?;
        let lines = fs::read_to_string(&results).unwrap_or_default();
        let outcomes = outcomes::read(&lines).with_context(|| log.display().to_string())?;
        ensure!(!outcomes.is_empty(), "no test ran; see {}", log.display());
        Ok(outcomes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_has_its_own_section() {
        let document = "# All\n\n## A B\n| `x` | |\n### C\ny\n\n## D\nz\n";
        assert_eq!(section(document, "A B").unwrap(), "| `x` | |\n### C\ny\n");
        assert_eq!(section(document, "D").unwrap(), "z\n");
        assert!(section(document, "A").is_err());
    }
}
