//! `cargo xtask`: everything that is done with the project beside editing it.
//!
//! | module | job |
//! |---|---|
//! | `workspace`, `command` | where things are, how programs are run |
//! | `prefix` | the one MariaDB that the plugin fits, and this checkout's view of it |
//! | `plugin` | build and check `ha_varve.so` |
//! | `server`, `client` | a `mariadbd` of our own, and SQL over its socket |
//! | `up` | `up` and `down`: a server for people |
//! | `programs` | cargo's test programs, several at a time |
//! | `tidy`, `suite`, `mtr`, `engine_suite`, `hermitage`, `stress`, `soak` | the tests |
//! | `fuzz`, `sanitize`, `nightly` | tests that need a nightly toolchain |
//! | `bench` | benchmarks beside a peer |
//!
//! Nothing here needs root, a package to be installed, or a port other than those on the command line.

mod bench;
mod client;
mod command;
mod engine_suite;
mod fuzz;
mod hermitage;
mod mtr;
mod nightly;
mod plugin;
mod prefix;
mod programs;
mod sanitize;
mod server;
mod soak;
mod stress;
mod suite;
mod tidy;
mod up;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Builds, runs, tests and measures Varve")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Start a MariaDB server whose default engine is Varve
    Up(up::UpArgs),
    /// Stop the server that `up` started
    Down(up::DownArgs),
    /// Build and check the plugin, print where it is
    Plugin,
    /// Run every test; the last line is `N passed, N failed`
    Test(suite::TestArgs),
    /// Check imports, file sizes, licences and words
    Tidy,
    /// Run MariaDB's own test runner with the plugin
    Mtr(mtr::MtrArgs),
    /// Run MariaDB's suite for storage engines, and compare with InnoDB
    EngineSuite(engine_suite::EngineSuiteArgs),
    /// Kill a server and a program under load again and again, and check what they kept
    Stress(stress::StressArgs),
    /// Run the tests that draw what they do, with fresh seeds, for long
    Soak(soak::SoakArgs),
    /// Play the textbook anomalies on Varve and InnoDB, and compare
    Hermitage(hermitage::HermitageArgs),
    /// Fuzz everything that is read from a disk, and the C interface
    Fuzz(fuzz::FuzzArgs),
    /// Run tests under the thread and address sanitizers, and Miri
    Sanitize(sanitize::SanitizeArgs),
    /// Run a benchmark beside its peer
    #[command(subcommand)]
    Bench(bench::BenchTask),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match Workspace::find().and_then(|workspace| run(&workspace, cli.command)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(workspace: &Workspace, task: Task) -> anyhow::Result<ExitCode> {
    match task {
        Task::Up(args) => up::up(workspace, args)?,
        Task::Down(args) => up::down(workspace, args)?,
        Task::Plugin => {
            let prefix = plugin::build(workspace)?;
            println!("{}", prefix.plugin().display());
        }
        Task::Test(args) => return suite::run(workspace, &args),
        Task::Tidy => return tidy::run(workspace),
        Task::Mtr(args) => return mtr::run(workspace, &args),
        Task::EngineSuite(args) => return engine_suite::run(workspace, &args),
        Task::Stress(args) => stress::run(workspace, &args)?,
        Task::Soak(args) => return soak::run(workspace, &args),
        Task::Hermitage(args) => hermitage::run(workspace, &args)?,
        Task::Fuzz(args) => return fuzz::run(workspace, &args),
        Task::Sanitize(args) => return sanitize::run(workspace, &args),
        Task::Bench(task) => bench::run(workspace, &task)?,
    }
    Ok(ExitCode::SUCCESS)
}
