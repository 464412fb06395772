//! `varve backup`, `varve restore` and `varve verify`.

mod restoring;
mod server;
mod stages;
mod until;

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use varve::backup::{BackupSummary, restore_chain, verify, verify_chain};

use crate::Outcome;

pub use server::{BackupArgs, run};

#[derive(clap::Args)]
pub struct RestoreArgs {
    /// A whole backup, the increments on it in their order, if there are any, and last the directory of the
    /// new database, or the data directory of the new server, which is made, or is empty
    #[arg(required = true, num_args = 2.., value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Of a server: plays its binary logs after the backup, up to a time (2026-11-30 12:00:00, in this
    /// machine's zone), a GTID (0-1-9115), or a position (binlog.000012:4711)
    #[arg(long, value_name = "MOMENT", requires = "binlogs")]
    until: Option<String>,
    /// Where the binary logs are, from that of the backup on
    #[arg(long, value_name = "DIR", requires = "until")]
    binlogs: Option<PathBuf>,
    /// The only option file of the server that plays them: none unless it is given. Encrypted tables need
    /// one, with their keys
    #[arg(long, value_name = "FILE", requires = "until")]
    defaults_file: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct VerifyArgs {
    /// A backup; or a whole one and the increments on it, in their order
    #[arg(required = true, value_name = "BACKUP")]
    backups: Vec<PathBuf>,
}

pub fn run_restore(args: &RestoreArgs) -> Result<Outcome, String> {
    let (dir, backups) = args.dirs.split_last().expect("there are two");
    if backups.iter().any(|backup| restoring::is_of_server(backup)) {
        return restoring::run_restore(backups, dir, args);
    }
    if args.until.is_some() {
        return Err(format!(
            "{} is no backup of a server: no binary log goes with it",
            backups[0].display()
        ));
    }
    let restored = restore_chain(backups, dir).map_err(|e| e.to_string())?;
    println!("restored {}", words(&restored));
    Ok(tell(&restored))
}

pub fn run_verify(args: &VerifyArgs) -> Result<Outcome, String> {
    let backups = &args.backups[..];
    let found = match (restoring::is_of_server(&backups[0]), backups) {
        (true, _) => restoring::run_verify(backups),
        (false, [one]) => verify(one).map(|found| tell_whole(&found)),
        (false, chain) => verify_chain(chain).map(|found| tell_whole(&found)),
    };
    match found {
        Ok(outcome) => Ok(outcome),
        Err(e @ (varve::Error::Corrupt { .. } | varve::Error::CorruptFile { .. })) => {
            println!("{e}");
            Ok(Outcome::Found)
        }
        Err(e) => Err(e.to_string()),
    }
}

fn tell_whole(found: &BackupSummary) -> Outcome {
    println!("{}: {}", kind(found), words(found));
    tell(found)
}

fn kind(found: &BackupSummary) -> &'static str {
    match found.is_increment {
        true => "an increment",
        false => "a whole backup",
    }
}

fn words(found: &BackupSummary) -> String {
    format!(
        "{} files of {} bytes, with redo from LSN {} to {}",
        found.files, found.bytes, found.from, found.to
    )
}

/// Whether this process may do everything.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// What was wrong in the database when the backup was made.
fn tell(found: &BackupSummary) -> Outcome {
    for page in &found.damaged {
        println!("{page} was damaged in the database, and is so here");
    }
    for path in &found.lost {
        println!("{path} was not there in the database, and is not here");
    }
    match found.damaged.is_empty() && found.lost.is_empty() {
        true => Outcome::Clean,
        false => Outcome::Found,
    }
}
