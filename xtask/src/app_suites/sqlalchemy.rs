//! SQLAlchemy, a toolkit for SQL with an object-relational mapper.

use std::path::Path;

use anyhow::Result;
use varve_testbed::command::Cmd;
use varve_testbed::prefix::Prefix;

use super::application::{Application, Run, Tests};
use super::python::{self, Sources};

pub struct SqlAlchemy;

const SOURCES: Sources = Sources {
    project: "sqlalchemy",
    version: "2.1.9",
    requirements: include_str!("python/sqlalchemy.txt"),
};
/// Not those of what needs no database, or counts Python's calls.
const TESTS: [&str; 5] = [
    "test/dialect",
    "test/engine",
    "test/sql",
    "test/orm",
    "test/ext",
];
/// What hangs on memory and time rather than on the database, as its authors mark it.
const UNSTABLE: &str =
    "not memory_intensive and not mypy and not timing_intensive and not gc_intensive";

/// Not the tests of full-text indexes, which Varve has not: their set-up breaks off and leaves a table
/// behind, which others would find.
const SELECTION: &str = "not (test_query and MatchTest)";

impl Application for SqlAlchemy {
    fn name(&self) -> &'static str {
        "sqlalchemy"
    }

    fn title(&self) -> &'static str {
        "SQLAlchemy"
    }

    fn versions(&self) -> String {
        SOURCES.versions()
    }

    fn make(&self, dir: &Path, prefix: &Prefix) -> Result<()> {
        SOURCES.make(dir, prefix)
    }

    fn prepare(&self, run: &Run) -> Result<()> {
        make_databases(run)
    }

    fn command(&self, run: &Run, tests: Tests) -> Result<Cmd> {
        let options = ["-m", UNSTABLE, "-k", SELECTION, &database(run)];
        python::pytest(run, tests, &TESTS, &options)
    }
}

/// The databases that each process that runs tests derives its own from.
pub fn make_databases(run: &Run) -> Result<()> {
    let mut client = run.server.connect()?;
    for database in ["test", "test_schema", "test_schema_2"] {
        client.query(&format!("CREATE DATABASE {database}"))?;
    }
    Ok(())
}

/// The option of its part of pytest that names the database.
pub fn database(run: &Run) -> String {
    let socket = run.server.datadir.socket();
    let socket = socket.display();
    format!("--dburi=mariadb+mysqldb://root@/test?unix_socket={socket}&charset=utf8mb4")
}
