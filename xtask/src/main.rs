//! `cargo xtask`: everything that is done with the project beside editing it.
//!
//! | module | job |
//! |---|---|
//! | `up` | `up` and `down`: a server for people |
//! | `programs` | cargo's test programs, several at a time |
//! | `tidy`, `suite`, `mtr`, `engine_suite`, `suites`, `hermitage`, `soak` | the tests |
//! | `app_suites` | the tests of application frameworks |
//! | `backup` | backups of a server as a whole |
//! | `monitor` | the monitor's page in a browser |
//! | `memcached` | `varve serve` beside memcached |
//! | `fuzz`, `sanitize`, `nightly` | tests that need a nightly toolchain |
//!
//! `stress`, `random-sql` and `bench` are programs of their own (`varve-stress`, `varve-random`,
//! `varve-bench`), built when they are asked for; how servers are built, started and asked is in
//! `varve-testbed`.
//!
//! Nothing here needs root, a package to be installed, or a port other than those on the command line.

mod app_suites;
mod asking;
mod backup;
mod engine_suite;
mod failures;
mod fuzz;
mod hermitage;
mod listed;
mod memcached;
mod monitor;
mod mtr;
mod nightly;
mod programs;
mod sanitize;
mod soak;
mod suite;
mod suites;
mod tidy;
mod up;

use std::env;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use varve_testbed::command;
use varve_testbed::plugin;
use varve_testbed::workspace::{self, Workspace};

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
    /// Run MariaDB's suites with Varve as default engine, and compare with InnoDB
    Suites(suites::SuitesArgs),
    /// Look at the monitor's page with a browser
    Monitor(monitor::MonitorArgs),
    /// Ask the memcached server and memcached the same, and compare
    Memcached(memcached::MemcachedArgs),
    /// Make backups of a server in use, restore them, and compare
    Backup(backup::BackupArgs),
    /// Run the tests of an application framework with Varve and with InnoDB, and compare
    AppSuite(app_suites::AppSuiteArgs),
    /// Kill a server and a program under load again and again, and check what they kept
    Stress(Passed),
    /// Run the tests that draw what they do, with fresh seeds, for long
    Soak(soak::SoakArgs),
    /// Play the textbook anomalies on Varve and InnoDB, and compare
    Hermitage(hermitage::HermitageArgs),
    /// Run random SQL on Varve and InnoDB in one server, and compare
    RandomSql(Passed),
    /// Fuzz everything that is read from a disk, and the C interface
    Fuzz(fuzz::FuzzArgs),
    /// Run tests under the thread and address sanitizers, and Miri
    Sanitize(sanitize::SanitizeArgs),
    /// Run a benchmark beside its peer
    Bench(Passed),
}

/// For another program.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
struct Passed {
    /// What the program is told; `--help` lists its options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    command::end(Workspace::find().and_then(|workspace| run(&workspace, cli.command)))
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
        Task::Suites(args) => return suites::run(workspace, &args),
        Task::Monitor(args) => monitor::run(workspace, &args)?,
        Task::Memcached(args) => memcached::run(workspace, &args)?,
        Task::Backup(args) => backup::run(workspace, &args)?,
        Task::AppSuite(args) => return app_suites::run(workspace, &args),
        Task::Stress(_) => become_program(workspace, "varve-stress")?,
        Task::Soak(args) => return soak::run(workspace, &args),
        Task::Hermitage(args) => hermitage::run(workspace, &args)?,
        Task::Fuzz(args) => return fuzz::run(workspace, &args),
        Task::Sanitize(args) => return sanitize::run(workspace, &args),
        Task::RandomSql(_) => become_program(workspace, "varve-random")?,
        Task::Bench(_) => become_program(workspace, "varve-bench")?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Goes on as another program of the workspace, which gets all that follows the first word; returns only if
/// that can't be done.
fn become_program(workspace: &Workspace, package: &str) -> anyhow::Result<()> {
    // As they were given: clap drops a `--` that comes first.
    let args = env::args_os().skip(2);
    let mut program = workspace::program(workspace, package)
        .args(args)
        .into_inner();
    Err(program.exec()).with_context(|| format!("cannot run {package}"))
}
