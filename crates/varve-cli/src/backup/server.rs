//! `varve backup`: a running MariaDB server as a whole, and what `varve restore` does with such a backup.
//!
//! The server makes the backup of Varve's tables itself, in `varve/` (docs/backup.md). When that has all
//! pages and follows the redo log, `mariadb-backup` makes one of everything else, in `server/`: InnoDB, Aria,
//! MyISAM and the others, and the tables' definitions. At its end it keeps all commits waiting for a moment,
//! in which the server ends Varve's backup, too. So both are of one moment, and of one position of the binary
//! log.
//!
//! Statements go through the `mariadb` client, which knows how to connect: option files, accounts, TLS.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use varve::backup::{Collection, MANIFEST, restore_into, verify};

use super::RestoreArgs;
use crate::Outcome;

/// Of Varve's tables, and of everything else, in the backup.
const VARVE: &str = "varve";
const SERVER: &str = "server";
/// What `mariadb-backup` says.
const LOG: &str = "mariadb-backup.log";

/// How often the server is asked how far it is.
const ASKED_EVERY: Duration = Duration::from_millis(200);

/// Makes a backup of a running MariaDB server, with the tables of all engines, of one moment
#[derive(clap::Args)]
pub struct BackupArgs {
    /// The backup's directory, which is made, or is empty
    dir: PathBuf,
    /// The server's socket
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    /// The account: as the option files say unless it is given
    #[arg(long)]
    user: Option<String>,
    /// The only option file that is read, by `mariadb` and by `mariadb-backup`
    #[arg(long, value_name = "FILE")]
    defaults_file: Option<PathBuf>,
    /// Threads that copy
    #[arg(long, default_value_t = 2)]
    threads: u32,
    /// Bytes of Varve's tablespaces that are copied in a second; 0: as many as it can
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    rate: u64,
    /// The backup fails if it keeps more bytes of redo than this in the server's log
    #[arg(long, value_name = "BYTES")]
    max_redo: Option<u64>,
}

/// The programs of MariaDB, and how they connect.
struct Programs {
    options: Vec<String>,
}

impl Programs {
    fn of(args: &BackupArgs) -> Programs {
        let text = |path: &Path| path.display().to_string();
        let mut options = Vec::new();
        // It has to be the first one.
        options.extend(
            args.defaults_file
                .iter()
                .map(|f| format!("--defaults-file={}", text(f))),
        );
        options.extend(args.socket.iter().map(|s| format!("--socket={}", text(s))));
        options.extend(args.user.iter().map(|user| format!("--user={user}")));
        Programs { options }
    }

    /// The rows of what the statement gives.
    fn ask(&self, statement: &str) -> Result<Vec<Vec<String>>, String> {
        let asked = Command::new("mariadb")
            .args(&self.options)
            .args(["--batch", "--skip-column-names", "--execute", statement])
            .output();
        let asked = asked.map_err(|e| not_run("mariadb", &e))?;
        if !asked.status.success() {
            let said = String::from_utf8_lossy(&asked.stderr);
            return Err(said.trim().to_string());
        }
        let rows = String::from_utf8_lossy(&asked.stdout);
        let cells = |row: &str| row.split('\t').map(String::from).collect();
        Ok(rows.lines().map(cells).collect())
    }

    fn value(&self, expression: &str) -> Result<String, String> {
        let rows = self.ask(&format!("SELECT {expression}"))?;
        let value = rows.into_iter().flatten().next();
        value.ok_or_else(|| format!("the server has no {expression}"))
    }

    fn status(&self, variable: &str) -> Result<String, String> {
        let rows = self.ask(&format!("SHOW GLOBAL STATUS LIKE '{variable}'"))?;
        let value = rows
            .into_iter()
            .next()
            .and_then(|row| row.into_iter().nth(1));
        value.ok_or_else(|| {
            format!(
                "the server has no status variable {variable}: it has no Varve, or an older one"
            )
        })
    }
}

fn not_run(program: &str, e: &io::Error) -> String {
    format!("{program}, which comes with MariaDB, can't be run: {e}")
}

/// In a statement.
fn quoted(path: &Path) -> Result<String, String> {
    let text = path.to_str();
    let text = text.ok_or_else(|| format!("{} is not UTF-8", path.display()))?;
    Ok(format!(
        "'{}'",
        text.replace('\\', "\\\\").replace('\'', "\\'")
    ))
}

/// Gives Varve's backup up if anything fails.
struct Begun<'a>(&'a Programs);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        // What has failed is told already.
        let _ = self.0.ask("SET GLOBAL varve_backup_directory = ''");
    }
}

pub fn run(args: &BackupArgs) -> Result<Outcome, String> {
    let programs = Programs::of(args);
    let has_innodb = programs.value(
        "COUNT(*) FROM information_schema.engines WHERE engine = 'InnoDB' AND support IN ('YES', 'DEFAULT')",
    )?;
    if has_innodb == "0" {
        return Err("the server runs without InnoDB, and mariadb-backup can't copy such a one: copy Varve's tables by \
                    SET GLOBAL varve_backup_directory and BACKUP STAGE, and the rest while BLOCK_COMMIT lasts"
            .into());
    }
    let dir = std::path::absolute(&args.dir).map_err(|e| e.to_string())?;
    make_place(&dir, &programs)?;
    let begun = Instant::now();
    let mut settings = vec![
        format!("varve_backup_threads = {}", args.threads),
        format!("varve_backup_rate = {}", args.rate),
    ];
    settings.extend(
        args.max_redo
            .map(|bytes| format!("varve_backup_max_redo = {bytes}")),
    );
    for setting in settings {
        programs.ask(&format!("SET GLOBAL {setting}"))?;
    }
    let place = quoted(&dir.join(VARVE))?;
    programs.ask(&format!("SET GLOBAL varve_backup_directory = {place}"))?;
    let given_up = Begun(&programs);
    wait_for(&programs, "following")?;
    println!(
        "{:.1} s: Varve's pages are copied",
        begun.elapsed().as_secs_f64()
    );
    copy_rest(&programs, &dir, args.threads)?;
    println!(
        "{:.1} s: the rest of the server is copied",
        begun.elapsed().as_secs_f64()
    );
    match programs.status("Varve_backup_state")?.as_str() {
        "ending" | "complete" => {}
        _ => {
            return Err(format!(
                "mariadb-backup has not ended Varve's backup; see the server's error log, and {}",
                dir.join(LOG).display()
            ));
        }
    }
    wait_for(&programs, "complete")?;
    std::mem::forget(given_up);
    let notes = position(&dir.join(SERVER));
    let at = notes.iter().map(|(key, value)| format!(", {key} {value}"));
    let at: String = at.collect();
    let listed = Collection::make(dir.join(SERVER), notes).map_err(|e| e.to_string())?;
    println!(
        "{:.1} s: the backup in {} is complete: {} bytes of Varve, {} other files{at}",
        begun.elapsed().as_secs_f64(),
        dir.display(),
        programs.status("Varve_backup_bytes")?,
        listed.files.len(),
    );
    Ok(Outcome::Clean)
}

/// Makes the directory, in which the server makes one, too.
fn make_place(dir: &Path, programs: &Programs) -> Result<(), String> {
    let told = |e: io::Error| format!("{}: {e}", dir.display());
    if !is_empty(dir) {
        return Err(format!("{} is not empty", dir.display()));
    }
    if !dir.exists() {
        let mut made = fs::DirBuilder::new();
        made.recursive(true).mode(0o700).create(dir).map_err(told)?;
    }
    let data = programs.value("@@datadir")?;
    let owner =
        fs::metadata(&data).map_err(|e| format!("{data}, the server's data directory: {e}"))?;
    let own = fs::metadata(dir).map_err(told)?;
    if own.uid() != owner.uid() {
        let given = chown(dir, Some(owner.uid()), Some(owner.gid()));
        given.map_err(|e| {
            format!(
                "{} can't be given to the server's account, which is to write there: {e}",
                dir.display()
            )
        })?;
    }
    Ok(())
}

/// Nothing is in the directory, or it is not there.
fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none())
}

/// Returns once Varve's backup has come so far.
fn wait_for(programs: &Programs, wanted: &str) -> Result<(), String> {
    loop {
        let state = programs.status("Varve_backup_state")?;
        if state == wanted {
            return Ok(());
        }
        match state.as_str() {
            "copying" | "following" | "ending" => thread::sleep(ASKED_EVERY),
            "failed" => return Err(programs.status("Varve_backup_message")?),
            _ => {
                return Err(format!(
                    "somebody else has given the backup up, or begun another one: it is {state}"
                ));
            }
        }
    }
}

fn copy_rest(programs: &Programs, dir: &Path, threads: u32) -> Result<(), String> {
    let log = dir.join(LOG);
    let told = |e: io::Error| format!("{}: {e}", log.display());
    let to = fs::File::create(&log).map_err(told)?;
    let errors = to.try_clone().map_err(told)?;
    let done = Command::new("mariadb-backup")
        .args(&programs.options)
        .args(["--backup", &format!("--parallel={threads}")])
        .arg(format!("--target-dir={}", dir.join(SERVER).display()))
        .stdin(Stdio::null())
        .stdout(to)
        .stderr(errors)
        .status();
    let done = done.map_err(|e| not_run("mariadb-backup", &e))?;
    match done.success() {
        true => Ok(()),
        false => Err(format!("mariadb-backup has failed: {}", last_lines(&log))),
    }
}

fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(5)..];
    format!("{}; all of it is in {}", last.join("; "), log.display())
}

/// The binary log's position, as mariadb-backup has found it: file, position, GTID.
fn position(server: &Path) -> Vec<(String, String)> {
    let text = ["mariadb_backup_binlog_info", "xtrabackup_binlog_info"]
        .iter()
        .find_map(|name| fs::read_to_string(server.join(name)).ok());
    let Some(text) = text else {
        return Vec::new();
    };
    let words = text.split_whitespace().map(String::from);
    let keys = ["binlog", "position", "gtid"].map(String::from);
    keys.into_iter().zip(words).collect()
}

/// Whether it is such a backup.
pub fn is_of_server(backup: &Path) -> bool {
    backup.join(VARVE).join(MANIFEST).exists() && backup.join(SERVER).exists()
}

pub fn run_verify(backup: &Path) -> Result<Outcome, varve::Error> {
    let made = verify(backup.join(VARVE))?;
    let listed = Collection::verify(backup.join(SERVER))?;
    println!(
        "a whole backup of a server: {}, {} other files",
        super::words(&made),
        listed.files.len()
    );
    for (key, value) in &listed.notes {
        println!("{key} {value}");
    }
    Ok(super::tell(&made))
}

/// The data directory of a server, where `mariadbd` can be started.
pub fn run_restore(args: &RestoreArgs) -> Result<Outcome, String> {
    let words = |e: varve::Error| e.to_string();
    let (from, to) = (&args.backup, &args.dir);
    // Both, before anything is written.
    let made = verify(from.join(VARVE)).map_err(words)?;
    let listed = Collection::verify(from.join(SERVER)).map_err(words)?;
    if !is_empty(to) {
        return Err(format!("directory {}, which is not empty", to.display()));
    }
    listed.copy(from.join(SERVER), to).map_err(words)?;
    prepare(to)?;
    restore_into(from.join(VARVE), to).map_err(words)?;
    println!(
        "restored a server: {}, {} other files; its files belong to who has run this, and the server's account has to \
         own them",
        super::words(&made),
        listed.files.len()
    );
    for (key, value) in &listed.notes {
        println!("{key} {value}");
    }
    let _ = io::stdout().flush();
    Ok(super::tell(&made))
}

/// InnoDB's part takes redo before a server can start with it.
fn prepare(dir: &Path) -> Result<(), String> {
    let prepared = Command::new("mariadb-backup")
        .args(["--no-defaults", "--prepare"])
        .arg(format!("--target-dir={}", dir.display()))
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
