//! `varve`, the tool that looks at databases, serves them, and makes them of backups.
//!
//! Exit status: 0 all is well, 1 something was found, 2 the command could not do its work.

mod backup;
mod check;
mod demo;
mod dump;
mod keys;
mod serve;
mod text;
mod top;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Looks at databases of the Varve storage engine, serves them, and makes them of backups
#[derive(Parser)]
#[command(version, after_help = STATUS)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const STATUS: &str =
    "Exit status: 0 all is well, 1 something was found, 2 the command could not do its work.";

#[derive(Subcommand)]
enum Command {
    /// Shows what a database does, second by second, and who holds it back
    Top(top::Args),
    /// Plays a load with a forgotten reader in a database of its own, and reports what that cost
    Demo(demo::Args),
    /// Serves a database to clients of memcached, until it is told to end by SIGTERM or Ctrl-C
    Serve(Box<serve::Args>),
    /// Checks every file of a database that nobody has open; changes nothing
    Check {
        /// The database's directory
        dir: PathBuf,
        #[command(flatten)]
        keys: keys::KeyArgs,
    },
    /// Makes a backup of a running MariaDB server: the tables of all engines, at one moment
    Backup(backup::BackupArgs),
    /// Makes a database, or the data directory of a server, of a backup, once all of it is checked
    Restore(backup::RestoreArgs),
    /// Reads all of a backup, and finds out whether it is as it was made
    Verify(backup::VerifyArgs),
    /// Prints the rows of a table that can be read, as CSV; changes nothing
    Dump(dump::Args),
}

/// How a command ended.
enum Outcome {
    Clean,
    Found,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Top(args) => top::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Check { dir, keys } => check::run(&dir, &keys),
        Command::Backup(args) => backup::run(&args),
        Command::Restore(args) => backup::run_restore(&args),
        Command::Verify(args) => backup::run_verify(&args),
        Command::Dump(args) => dump::run(&args),
    };
    match done {
        Ok(Outcome::Clean) => ExitCode::SUCCESS,
        Ok(Outcome::Found) => ExitCode::from(1),
        Err(why) => {
            eprintln!("varve: {why}");
            ExitCode::from(2)
        }
    }
}
