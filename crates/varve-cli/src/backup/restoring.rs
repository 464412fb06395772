//! `varve verify` and `varve restore` for backups of a server, and `varve backup --merge`.
//!
//! A backup's part of Varve is the library's matter, with the increments that go with it. The rest is put
//! together by `mariadb-backup --prepare`, which first has the whole backup's files and then takes what each
//! increment has.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use varve::backup::{BackupSummary, Collection, MANIFEST, begin_restore, merge, verify_chain};

use super::RestoreArgs;
use super::server::{SERVER, VARVE, WITHOUT_INNODB, give, is_empty, not_run};
use super::until::{Logs, Until, play};
use crate::Outcome;

/// Whether it is such a backup.
pub fn is_of_server(backup: &Path) -> bool {
    backup.join(VARVE).join(MANIFEST).exists() && backup.join(SERVER).exists()
}

fn words(e: varve::Error) -> String {
    e.to_string()
}

/// The parts of these backups.
fn parts(backups: &[PathBuf], part: &str) -> Vec<PathBuf> {
    backups.iter().map(|backup| backup.join(part)).collect()
}

/// Reads all of the server's parts, which go together.
fn verify_rest(backups: &[PathBuf]) -> Result<Vec<Collection>, varve::Error> {
    let rest = parts(backups, SERVER);
    let listed: Vec<Collection> = rest
        .iter()
        .map(Collection::verify)
        .collect::<Result<_, _>>()?;
    let is_other = |part: &Collection| is_without_innodb(part) != is_without_innodb(&listed[0]);
    match listed.iter().any(is_other) {
        true => Err(varve::Error::Invalid {
            what: "increments between which InnoDB was turned on or off: make a whole backup"
                .into(),
        }),
        false => Ok(listed),
    }
}

pub fn run_verify(backups: &[PathBuf]) -> Result<Outcome, varve::Error> {
    let made = match backups {
        [one] => varve::backup::verify(one.join(VARVE))?,
        chain => verify_chain(&parts(chain, VARVE))?,
    };
    let listed = verify_rest(backups)?;
    let listed = listed.last().expect("there is a backup");
    println!(
        "{} of a server: {}, {} other files",
        super::kind(&made),
        super::words(&made),
        listed.files.len()
    );
    for (key, value) in &listed.notes {
        println!("{key} {value}");
    }
    Ok(super::tell(&made))
}

/// The data directory of a server, where `mariadbd` can be started.
pub fn run_restore(backups: &[PathBuf], to: &Path, args: &RestoreArgs) -> Result<Outcome, String> {
    let listed = check_rest(backups, to)?;
    let last = listed.last().expect("there is a backup");
    let logs = match (&args.until, &args.binlogs) {
        (Some(until), Some(dir)) => Some(Logs::find(dir, last, Until::parse(until)?)?),
        _ => None,
    };
    // From here on no server with Varve starts there, until all is there.
    let restoring = begin_restore(&parts(backups, VARVE), to).map_err(words)?;
    put_together(backups, &listed, to)?;
    let made = restoring.finish().map_err(words)?;
    println!(
        "restored a server: {}, {} other files; its files belong to who has run this, and the server's account has to \
         own them",
        super::words(&made),
        listed[0].files.len()
    );
    tell_notes(&last.notes);
    if let Some(logs) = logs {
        let reached = play(&logs, to, args.defaults_file.as_deref(), last)?;
        println!("{reached}");
    }
    Ok(super::tell(&made))
}

/// A whole backup, of these.
pub fn run_merge(dirs: &[PathBuf]) -> Result<Outcome, String> {
    let [backups @ .., to] = dirs else {
        return Err("no directories to merge".into());
    };
    let (Some(last), 2..) = (backups.last(), backups.len()) else {
        return Err("a whole backup, at least one increment on it, and a new directory are wanted for --merge".into());
    };
    if !backups.iter().any(|backup| is_of_server(backup)) {
        let made = merge(backups, to).map_err(words)?;
        return Ok(tell_merged(&made, to));
    }
    let listed = check_rest(backups, to)?;
    let told = |e: io::Error| format!("{}: {e}", to.display());
    fs::create_dir_all(to).map_err(told)?;
    // As a backup that was made: others may pass, and see nothing.
    fs::set_permissions(to, fs::Permissions::from_mode(0o711)).map_err(told)?;
    let rest = to.join(SERVER);
    DirBuilder::new().mode(0o700).create(&rest).map_err(told)?;
    put_together(backups, &listed, &rest)?;
    let notes = listed.last().expect("there is a backup").notes.clone();
    Collection::make(&rest, notes).map_err(words)?;
    // Its manifest is that of these files last of all: before that it is no backup.
    let own = to.join(VARVE);
    DirBuilder::new().mode(0o700).create(&own).map_err(told)?;
    let made = merge(&parts(backups, VARVE), &own).map_err(words)?;
    // The server reads it if it makes an increment on it.
    give(&own, &fs::metadata(last.join(VARVE)).map_err(told)?)?;
    Ok(tell_merged(&made, to))
}

fn tell_merged(made: &BackupSummary, to: &Path) -> Outcome {
    println!("merged in {}: {}", to.display(), super::words(made));
    super::tell(made)
}

/// Looks at all there is before anything is written to `to`.
fn check_rest(backups: &[PathBuf], to: &Path) -> Result<Vec<Collection>, String> {
    if let Some(other) = backups.iter().find(|backup| !is_of_server(backup)) {
        return Err(format!("{} is no backup of a server", other.display()));
    }
    let listed = verify_rest(backups).map_err(words)?;
    if !is_empty(to)? {
        return Err(format!("directory {}, which is not empty", to.display()));
    }
    let files = listed.iter().flat_map(|part| &part.files);
    let mut links = files.filter(|file| file.path.ends_with(".isl"));
    if let Some(link) = links.next() {
        return Err(format!(
            "{} leads to a file of InnoDB outside the data directory: restore such a server by mariadb-backup --copy-back, and \
             Varve's tables from {} into the data directory then",
            link.path,
            backups[0].join(VARVE).display()
        ));
    }
    Ok(listed)
}

/// Everything but Varve's files.
fn put_together(backups: &[PathBuf], listed: &[Collection], to: &Path) -> Result<(), String> {
    let mut both = backups.iter().zip(listed);
    let (backup, last) = both.next_back().expect("there is a backup");
    if is_without_innodb(last) {
        // It is whole in each.
        return last.copy(backup.join(SERVER), to).map_err(words);
    }
    for (n, (backup, listed)) in backups.iter().zip(listed).enumerate() {
        let rest = backup.join(SERVER);
        if n == 0 {
            listed.copy(&rest, to).map_err(words)?;
            prepare(to, None)?;
            continue;
        }
        // A copy, because it is written to.
        let copy = Scratch(beside(to));
        fs::create_dir_all(&copy.0).map_err(|e| format!("{}: {e}", copy.0.display()))?;
        listed.copy(&rest, &copy.0).map_err(words)?;
        prepare(to, Some(&copy.0))?;
    }
    Ok(())
}

pub fn is_without_innodb(listed: &Collection) -> bool {
    listed.note(WITHOUT_INNODB).is_some()
}

/// A directory that goes again.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A directory's neighbour that is not there.
fn beside(dir: &Path) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".increment-{}", std::process::id()));
    dir.with_file_name(name)
}

/// InnoDB's part takes redo before a server can start with it, and what an increment has.
fn prepare(dir: &Path, increment: Option<&Path>) -> Result<(), String> {
    let prepared = Command::new("mariadb-backup")
        .args(["--no-defaults", "--prepare"])
        .arg(format!("--target-dir={}", dir.display()))
        .args(increment.map(|dir| format!("--incremental-dir={}", dir.display())))
        .stdin(Stdio::null())
        .output();
    let prepared = prepared.map_err(|e| not_run("mariadb-backup", &e))?;
    match prepared.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&prepared.stderr);
            let last = said.lines().last().unwrap_or_default();
            Err(format!(
                "mariadb-backup can't prepare {}: {last}",
                dir.display()
            ))
        }
    }
}

/// What is to be known of a restored server.
fn tell_notes(notes: &[(String, String)]) {
    for (key, value) in notes {
        match key.strip_prefix("setting:") {
            None if key == WITHOUT_INNODB => println!("start it without InnoDB, as it was"),
            None if key.starts_with("server:") => {}
            None => println!("{key} {value}"),
            Some(name) => println!(
                "the server had {name} = {value}: take it off before the start, or the files there are used instead of these"
            ),
        }
    }
    let _ = io::stdout().flush();
}
