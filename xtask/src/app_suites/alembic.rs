//! Alembic, schema migrations for SQLAlchemy.

use std::path::Path;

use anyhow::Result;
use varve_testbed::command::Cmd;
use varve_testbed::prefix::Prefix;

use super::application::{Application, Run, Tests};
use super::python::{self, Sources};
use super::sqlalchemy;

pub struct Alembic;

const SOURCES: Sources = Sources {
    project: "alembic",
    version: "1.20.1",
    requirements: include_str!("python/alembic.txt"),
};

impl Application for Alembic {
    fn name(&self) -> &'static str {
        "alembic"
    }

    fn title(&self) -> &'static str {
        "Alembic"
    }

    fn versions(&self) -> String {
        SOURCES.versions()
    }

    fn make(&self, dir: &Path, prefix: &Prefix) -> Result<()> {
        SOURCES.make(dir, prefix)
    }

    fn prepare(&self, run: &Run) -> Result<()> {
        sqlalchemy::make_databases(run)
    }

    fn command(&self, run: &Run, tests: Tests) -> Result<Cmd> {
        python::pytest(run, tests, &["tests"], &[&sqlalchemy::database(run)])
    }
}
