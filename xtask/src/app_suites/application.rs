//! What is said of an application whose tests are run.

use std::path::Path;

use anyhow::Result;
use varve_testbed::command::Cmd;
use varve_testbed::prefix::Prefix;
use varve_testbed::server::{Engine, Server};

use super::environment::Environment;

pub trait Application {
    /// As the command line has it; directories have it, too.
    fn name(&self) -> &'static str;

    /// Its heading in the document of differences.
    fn title(&self) -> &'static str;

    /// All that is fetched, in its versions. Another text has the environment made anew.
    fn versions(&self) -> String;

    /// Fetches what the tests need into this directory, which is empty.
    fn make(&self, dir: &Path, prefix: &Prefix) -> Result<()>;

    /// What the server must have before the tests begin.
    fn prepare(&self, run: &Run) -> Result<()>;

    /// Whether what an outcome names so can be run again by that name.
    fn is_test(&self, _name: &str) -> bool {
        true
    }

    /// What runs these tests, and writes how each ended to the file that the environment names
    /// `VARVE_APP_RESULTS`, in lines that `outcomes` reads.
    fn command(&self, run: &Run, tests: Tests) -> Result<Cmd>;
}

/// One run of tests.
pub struct Run<'a> {
    pub environment: &'a Environment,
    pub prefix: &'a Prefix,
    pub server: &'a Server,
    pub engine: Engine,
    /// For what the tests leave.
    pub dir: &'a Path,
    pub parallel: u32,
}

#[derive(Clone, Copy)]
pub enum Tests<'a> {
    All,
    /// What the user said: tests, groups, files.
    Labels(&'a [String]),
    /// As their outcomes name them.
    Named(&'a [String]),
}
