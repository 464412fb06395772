//! `varve backup`, `varve restore` and `varve verify`.

mod server;

use std::path::{Path, PathBuf};

use varve::backup::{BackupSummary, restore, verify};

use crate::Outcome;

pub use server::{BackupArgs, run};

#[derive(clap::Args)]
pub struct RestoreArgs {
    /// The backup's directory
    backup: PathBuf,
    /// The new database's directory, or the data directory of the new server, which is made, or is empty
    dir: PathBuf,
}

pub fn run_restore(args: &RestoreArgs) -> Result<Outcome, String> {
    if server::is_of_server(&args.backup) {
        return server::run_restore(args);
    }
    let restored = restore(&args.backup, &args.dir).map_err(|e| e.to_string())?;
    println!("restored {}", words(&restored));
    Ok(tell(&restored))
}

pub fn run_verify(backup: &Path) -> Result<Outcome, String> {
    let found = match server::is_of_server(backup) {
        true => server::run_verify(backup),
        false => verify(backup).map(|found| {
            println!("a whole backup: {}", words(&found));
            tell(&found)
        }),
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

fn words(found: &BackupSummary) -> String {
    format!(
        "{} files of {} bytes, with redo from LSN {} to {}",
        found.files, found.bytes, found.from, found.to
    )
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
