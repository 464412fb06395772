//! `varve backup`: a running MariaDB server as a whole.
//!
//! The server makes the backup of Varve's tables itself, in `varve/` (docs/backup.md). When that has all
//! pages and follows the redo log, `mariadb-backup` makes one of everything else, in `server/`: InnoDB, Aria,
//! MyISAM and the others, and the tables' definitions. At its end it keeps all commits waiting for a moment,
//! in which the server ends Varve's backup, too. (Without InnoDB it is not `mariadb-backup`, but `stages`.)
//! So both are of one moment, and of one position of the binary log. An increment has in both what was
//! changed since its base; of Aria and MyISAM all.
//!
//! Statements go through the `mariadb` client, which knows how to connect: option files, accounts, TLS.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use varve::backup::{Collection, MANIFEST};

use super::restoring::{is_of_server, is_without_innodb};
use super::stages;
use crate::Outcome;

/// Of Varve's tables, and of everything else, in the backup.
pub const VARVE: &str = "varve";
pub const SERVER: &str = "server";
/// What `mariadb-backup` says.
const LOG: &str = "mariadb-backup.log";
/// A note of a server's part that mariadb-backup did not make.
pub const WITHOUT_INNODB: &str = "without-innodb";

/// The server is asked how far it is after so long, then after twice that, and at last every so often.
const ASKED_FIRST: Duration = Duration::from_millis(100);
const ASKED_EVERY: Duration = Duration::from_secs(2);

/// Makes a backup of a running MariaDB server, with the tables of all engines, of one moment
#[derive(clap::Args)]
pub struct BackupArgs {
    /// The backup's directory, which is made, or is empty. With --merge: a whole backup, the increments on it
    /// in their order, and last that directory
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Makes an increment: what was changed since this backup was made, which is a whole one or an increment
    #[arg(long, value_name = "DIR", conflicts_with = "merge")]
    base: Option<PathBuf>,
    /// Makes a whole backup of one and the increments on it; no server is asked
    #[arg(long)]
    merge: bool,
    /// The server's socket
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    /// The account: as the option files say unless it is given
    #[arg(long)]
    user: Option<String>,
    /// The only option file that is read, by `mariadb` and by `mariadb-backup`
    #[arg(long, value_name = "FILE")]
    defaults_file: Option<PathBuf>,
    /// Threads that copy: sets varve_backup_threads, and is told mariadb-backup
    #[arg(long)]
    threads: Option<u32>,
    /// Bytes of Varve's tablespaces that are copied in a second: sets varve_backup_rate
    #[arg(long, value_name = "BYTES")]
    rate: Option<u64>,
    /// The backup fails if it keeps more bytes of redo than this in the server's log: sets
    /// varve_backup_max_redo
    #[arg(long, value_name = "BYTES")]
    max_redo: Option<u64>,
}

/// The programs of MariaDB, and how they connect.
#[derive(Clone)]
pub struct Programs {
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

    /// That of SQL.
    pub fn client(&self) -> Command {
        let mut client = Command::new("mariadb");
        client.args(&self.options);
        client
    }

    /// The rows of what the statement gives.
    fn ask(&self, statement: &str) -> Result<Vec<Vec<String>>, String> {
        let asked = self
            .client()
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

    pub fn value(&self, expression: &str) -> Result<String, String> {
        let rows = self.ask(&format!("SELECT {expression}"))?;
        let value = rows.into_iter().flatten().next();
        value.ok_or_else(|| format!("the server has no {expression}"))
    }

    /// Varve's backup of this moment.
    fn status(&self) -> Result<Status, String> {
        let rows = self.ask("SHOW GLOBAL STATUS LIKE 'Varve_backup\\_%'")?;
        let value = |name: &str| {
            let named = format!("Varve_backup_{name}");
            let row = rows.iter().find(|row| row[0] == named);
            row.and_then(|row| row.get(1)).cloned().ok_or_else(|| {
                format!(
                    "the server has no status variable {named}: it has no Varve, or an older one"
                )
            })
        };
        Ok(Status {
            state: value("state")?,
            message: value("message")?,
            number: value("number")?,
            server_ends: value("server_ends")?,
            bytes: value("bytes")?,
        })
    }
}

/// The server's variables `Varve_backup_*` (docs/backup.md).
struct Status {
    state: String,
    message: String,
    number: String,
    server_ends: String,
    bytes: String,
}

pub fn not_run(program: &str, e: &io::Error) -> String {
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
    if args.merge {
        return super::restoring::run_merge(&args.dirs);
    }
    let [dir] = &args.dirs[..] else {
        return Err("one directory is wanted for the backup; several go with --merge".into());
    };
    let programs = Programs::of(args);
    let has_innodb = programs.value(
        "COUNT(*) FROM information_schema.engines WHERE engine = 'InnoDB' AND support IN ('YES', 'DEFAULT')",
    )?;
    let has_innodb = has_innodb != "0";
    let full = |dir: &Path| std::path::absolute(dir).map_err(|e| e.to_string());
    let dir = full(dir)?;
    let base = args.base.as_deref().map(full).transpose()?;
    if let Some(base) = &base {
        check_base(base, has_innodb)?;
    }
    make_place(&dir, &programs)?;
    let begun = Instant::now();
    let settings = [
        ("threads", args.threads.map(u64::from)),
        ("rate", args.rate),
        ("max_redo", args.max_redo),
    ];
    for (name, value) in settings {
        if let Some(value) = value {
            programs.ask(&format!("SET GLOBAL varve_backup_{name} = {value}"))?;
        }
    }
    let base_place = base.as_ref().map(|base| quoted(&base.join(VARVE)));
    let base_place = base_place.transpose()?.unwrap_or("''".into());
    let place = quoted(&dir.join(VARVE))?;
    programs.ask(&format!(
        "SET varve_backup_base = {base_place}; SET GLOBAL varve_backup_directory = {place}"
    ))?;
    let given_up = Begun(&programs);
    give_up_at_signals(&programs)?;
    let number = programs.status()?.number;
    wait_for(&programs, &number, "following")?;
    println!(
        "{:.1} s: Varve's pages are copied",
        begun.elapsed().as_secs_f64()
    );
    let rest = dir.join(SERVER);
    let mut notes = if has_innodb {
        copy_rest(&programs, &dir, base.as_deref(), args.threads.unwrap_or(1))?;
        position(&rest)
    } else {
        let mut notes = stages::copy_rest(&programs, &rest)?;
        notes.push((WITHOUT_INNODB.into(), String::new()));
        notes
    };
    println!(
        "{:.1} s: the rest of the server is copied",
        begun.elapsed().as_secs_f64()
    );
    let Status {
        state,
        server_ends: ends,
        ..
    } = programs.status()?;
    if ends != "1" {
        return Err(format!(
            "{ends} backups of the server have ended since this one of Varve's tables was begun, not one: it is not \
             known of which moment it is. Let no other one run meanwhile"
        ));
    }
    if !["ending", "complete"].contains(&&state[..]) {
        return Err(format!(
            "the stages of the server's backup have not ended Varve's, which is {state}: see the server's error log"
        ));
    }
    let bytes = wait_for(&programs, &number, "complete")?.bytes;
    if !dir.join(VARVE).join(MANIFEST).exists() {
        return Err(format!(
            "there is no {MANIFEST} in {}",
            dir.join(VARVE).display()
        ));
    }
    std::mem::forget(given_up);
    let shown = notes.iter().filter(|(_, value)| !value.is_empty());
    let at = shown.map(|(key, value)| format!(", {key} {value}"));
    let at: String = at.collect();
    notes.extend(server_settings(&programs)?);
    let listed = Collection::make(rest, notes).map_err(|e| e.to_string())?;
    println!(
        "{:.1} s: the backup in {} is complete: {} bytes of Varve, {} other files{at}",
        begun.elapsed().as_secs_f64(),
        dir.display(),
        bytes,
        listed.files.len(),
    );
    Ok(Outcome::Clean)
}

/// Has the server give the backup up when this process is told to end.
fn give_up_at_signals(programs: &Programs) -> Result<(), String> {
    let programs = programs.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|e| e.to_string())?;
    thread::spawn(move || {
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let kinds = [
                SignalKind::interrupt(),
                SignalKind::terminate(),
                SignalKind::hangup(),
            ];
            let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = kinds.map(signal) else {
                // Then it ends as the system has it.
                return std::future::pending::<()>().await;
            };
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
        });
        drop(Begun(&programs));
        eprintln!("varve: the backup was given up");
        std::process::exit(2);
    });
    Ok(())
}

/// Whether an increment of this server goes with it.
fn check_base(base: &Path, has_innodb: bool) -> Result<(), String> {
    if !is_of_server(base) {
        return Err(format!("{} is no backup of a server", base.display()));
    }
    let listed = Collection::read(base.join(SERVER)).map_err(|e| e.to_string())?;
    match is_without_innodb(&listed) == has_innodb {
        true => Err(format!(
            "since the backup in {} InnoDB was turned on or off: make a whole one",
            base.display()
        )),
        false => Ok(()),
    }
}

/// Where a server's files may be that are not in its data directory. A restored server has all of them there.
pub const ELSEWHERE: [&str; 6] = [
    "varve_data_home_dir",
    "varve_undo_directory",
    "innodb_data_home_dir",
    "innodb_log_group_home_dir",
    "innodb_undo_directory",
    "aria_log_dir_path",
];
/// What a server has to have that plays the binary logs.
const AS_BEFORE: [&str; 3] = [
    "default_storage_engine",
    "lower_case_table_names",
    "innodb_page_size",
];

/// What is to be known of the server's settings: where it has files outside its data directory, which must
/// not be used when it is restored, and how it has to be started. Also the time, which is behind the backup's
/// moment.
fn server_settings(programs: &Programs) -> Result<Vec<(String, String)>, String> {
    let mut notes = vec![("time".into(), programs.value("UNIX_TIMESTAMP()")?)];
    let data = programs.value("@@datadir")?;
    let kinds = ELSEWHERE.map(|name| ("setting", name)).into_iter();
    for (kind, name) in kinds.chain(AS_BEFORE.map(|name| ("server", name))) {
        let rows = programs.ask(&format!("SHOW GLOBAL VARIABLES LIKE '{name}'"))?;
        // Without InnoDB there are none of its variables.
        let value = rows
            .into_iter()
            .next()
            .and_then(|row| row.into_iter().nth(1));
        let value = value.unwrap_or_default();
        let is_here = kind == "setting" && (value == "./" || value == "." || value == data);
        if !value.is_empty() && !is_here {
            notes.push((format!("{kind}:{name}"), value));
        }
    }
    Ok(notes)
}

/// Makes the directory, and one in it for the server's account, which is to write there.
fn make_place(dir: &Path, programs: &Programs) -> Result<(), String> {
    let told = |e: io::Error| format!("{}: {e}", dir.display());
    if !is_empty(dir)? {
        return Err(format!("{} is not empty", dir.display()));
    }
    let data = programs.value("@@datadir")?;
    let owner =
        fs::metadata(&data).map_err(|e| format!("{data}, the server's data directory: {e}"))?;
    fs::create_dir_all(dir).map_err(told)?;
    // Others may pass, and see nothing.
    fs::set_permissions(dir, fs::Permissions::from_mode(0o711)).map_err(told)?;
    let own = dir.join(VARVE);
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&own)
        .map_err(told)?;
    give(&own, &owner)
}

/// Gives a file or a directory to the server's account, whose `owner` is another one's.
pub fn give(path: &Path, owner: &fs::Metadata) -> Result<(), String> {
    let told = |e: io::Error| {
        format!(
            "{} can't be given to the server's account: {e}",
            path.display()
        )
    };
    let found = fs::metadata(path).map_err(told)?;
    if found.uid() != owner.uid() {
        chown(path, Some(owner.uid()), Some(owner.gid())).map_err(told)?;
    }
    if found.is_dir() {
        for entry in fs::read_dir(path).map_err(told)? {
            give(&entry.map_err(told)?.path(), owner)?;
        }
    }
    Ok(())
}

/// Nothing is in the directory, or it is not there.
pub fn is_empty(dir: &Path) -> Result<bool, String> {
    match fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(e) => Err(format!("{}: {e}", dir.display())),
    }
}

/// Returns once Varve's backup, which has this number, has come so far.
fn wait_for(programs: &Programs, number: &str, wanted: &str) -> Result<Status, String> {
    let mut pause = ASKED_FIRST;
    loop {
        let status = programs.status()?;
        let state = status.state.as_str();
        if status.number != number || state == "none" {
            return Err(format!(
                "somebody else has given the backup up, or begun another one: it is {state}"
            ));
        }
        match state {
            _ if state == wanted => return Ok(status),
            "copying" | "following" | "ending" => thread::sleep(pause),
            "failed" => return Err(status.message),
            _ => return Err(format!("the backup is {state} before it is {wanted}")),
        }
        pause = (2 * pause).min(ASKED_EVERY);
    }
}

fn copy_rest(
    programs: &Programs,
    dir: &Path,
    base: Option<&Path>,
    threads: u32,
) -> Result<(), String> {
    let log = dir.join(LOG);
    let told = |e: io::Error| format!("{}: {e}", log.display());
    let to = fs::File::create_new(&log).map_err(told)?;
    let errors = to.try_clone().map_err(told)?;
    let done = Command::new("mariadb-backup")
        .args(&programs.options)
        .args(["--backup", &format!("--parallel={threads}")])
        .arg(format!("--target-dir={}", dir.join(SERVER).display()))
        .args(base.map(|base| format!("--incremental-basedir={}", base.join(SERVER).display())))
        .stdin(Stdio::null())
        .stdout(to)
        .stderr(errors)
        .status();
    let done = done.map_err(|e| not_run("mariadb-backup", &e))?;
    match done.success() {
        true => Ok(()),
        false => Err(format!(
            "mariadb-backup has failed: {}; all that it said is in {}",
            last_lines(&log),
            log.display()
        )),
    }
}

/// The end of a log, in one line.
pub fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("; ")
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
