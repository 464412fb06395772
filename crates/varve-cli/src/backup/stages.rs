//! What a server without InnoDB has beside Varve's tables: `mariadb-backup` does not copy such a server.
//!
//! A session of our own goes through the server's stages (`BACKUP STAGE`). From BLOCK_DDL on nothing but
//! tables of transactional engines is written, and tables of the server's own: everything is copied then,
//! while transactions go on. At BLOCK_COMMIT nothing is written any more, and what has become another file
//! since is copied again, which is little. END lets all go on, and is the moment of Varve's backup
//! (`backup.cc`).
//!
//! Files are those that `mariadb-backup` copies: of tables, by their extensions, and Aria's log.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use super::server::{Programs, not_run};

/// Of definitions, triggers, views, and tables of Aria, MyISAM, MERGE, ARCHIVE and CSV.
const EXTENSIONS: [&str; 15] = [
    "frm", "opt", "par", "TRG", "TRN", "MAD", "MAI", "MYD", "MYI", "MRG", "ARM", "ARZ", "CSM",
    "CSV", "ARN",
];
/// Times of files are not finer than this.
const TICK_SECONDS: i64 = 2;
const DONE: &str = "varve: that was all";

/// A session of the server, for several statements.
struct Session {
    client: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Session {
    fn begin(programs: &Programs) -> Result<Session, String> {
        let mut client = programs
            .client()
            .args(["--batch", "--skip-column-names", "--unbuffered"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| not_run("mariadb", &e))?;
        Ok(Session {
            to: client.stdin.take().expect("it is a pipe"),
            from: BufReader::new(client.stdout.take().expect("it is a pipe")),
            client,
        })
    }

    /// The rows of what the statement gives.
    fn ask(&mut self, statement: &str) -> Result<Vec<Vec<String>>, String> {
        let text = format!("{statement};\nSELECT '{DONE}';\n");
        let mut rows = Vec::new();
        // Where it can't be written the client has ended, and says why.
        let _ = self
            .to
            .write_all(text.as_bytes())
            .and_then(|()| self.to.flush());
        loop {
            let mut line = String::new();
            let read = self.from.read_line(&mut line);
            if read.map_err(|e| e.to_string())? == 0 {
                let mut said = String::new();
                if let Some(errors) = &mut self.client.stderr {
                    let _ = errors.read_to_string(&mut said);
                }
                return Err(format!("{statement}: {}", said.trim()));
            }
            match line.trim_end_matches('\n') {
                DONE => return Ok(rows),
                row => rows.push(row.split('\t').map(String::from).collect()),
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Its stages end with it.
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

/// What tells a file from what it was before.
#[derive(PartialEq, Eq)]
struct Version {
    file: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Version {
    fn of(found: &fs::Metadata) -> Version {
        Version {
            file: found.ino(),
            bytes: found.len(),
            changed: (found.mtime(), found.mtime_nsec()),
        }
    }

    /// It may be changed once more, and have the same time.
    fn is_young(&self, since: SystemTime) -> bool {
        let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.changed.0 >= since.as_secs() as i64 - TICK_SECONDS
    }
}

/// Copies everything but Varve's tables, at the moment at which it ends Varve's backup. Returns where the
/// binary log was then.
pub fn copy_rest(programs: &Programs, to: &Path) -> Result<Vec<(String, String)>, String> {
    let data = PathBuf::from(programs.value("@@datadir")?);
    let log = data.join(programs.value("@@aria_log_dir_path")?);
    let mut session = Session::begin(programs)?;
    for stage in ["START", "FLUSH", "BLOCK_DDL"] {
        session.ask(&format!("BACKUP STAGE {stage}"))?;
    }
    let (begun, mut copied) = (SystemTime::now(), BTreeMap::new());
    copy_changed(&data, &log, to, begun, &mut copied)?;
    session.ask("BACKUP STAGE BLOCK_COMMIT")?;
    copy_changed(&data, &log, to, begun, &mut copied)?;
    let status = session.ask("SHOW MASTER STATUS")?;
    let gtid = session.ask("SELECT @@gtid_binlog_pos")?;
    session.ask("BACKUP STAGE END")?;
    let Some([file, position, ..]) = status.first().map(Vec::as_slice) else {
        return Ok(Vec::new());
    };
    let gtid = gtid.into_iter().flatten().next().unwrap_or_default();
    let values = [("binlog", file), ("position", position), ("gtid", &gtid)];
    Ok(values
        .map(|(key, value)| (key.into(), value.clone()))
        .into())
}

/// Copies what is not there as it is now, and removes what has gone. `begun`: when that began that was copied
/// before.
fn copy_changed(
    data: &Path,
    log: &Path,
    to: &Path,
    begun: SystemTime,
    copied: &mut BTreeMap<PathBuf, Version>,
) -> Result<(), String> {
    let mut before = std::mem::take(copied);
    for (place, source) in files(data, log)? {
        let target = to.join(&place);
        let told = |e: io::Error| format!("{}: {e}", source.display());
        let is_gone = |e: &io::Error| e.kind() == io::ErrorKind::NotFound;
        let version = match fs::metadata(&source) {
            Err(e) if is_gone(&e) => continue,
            found => Version::of(&found.map_err(told)?),
        };
        if before.get(&place) == Some(&version) && !version.is_young(begun) {
            before.remove(&place);
            copied.insert(place, version);
            continue;
        }
        fs::create_dir_all(target.parent().unwrap_or(to)).map_err(told)?;
        match fs::copy(&source, &target) {
            // It is removed below, if it was there before.
            Err(e) if is_gone(&e) => continue,
            done => done.map_err(told)?,
        };
        before.remove(&place);
        copied.insert(place, version);
    }
    for gone in before.into_keys() {
        fs::remove_file(to.join(&gone)).map_err(|e| format!("{}: {e}", gone.display()))?;
    }
    Ok(())
}

/// Where each file is to be, and where it is.
fn files(data: &Path, log: &Path) -> Result<BTreeMap<PathBuf, PathBuf>, String> {
    let mut found = BTreeMap::new();
    for (name, path, is_dir) in entries(log)? {
        if !is_dir && name.starts_with("aria_log") {
            found.insert(PathBuf::from(name), path);
        }
    }
    for (schema, path, is_dir) in entries(data)? {
        if !is_dir {
            continue;
        }
        for (name, path, is_dir) in entries(&path)? {
            let extension = Path::new(&name).extension();
            let is_copied = extension.is_some_and(|e| EXTENSIONS.iter().any(|known| e == *known));
            // What an ALTER is making is in no backup.
            if !is_dir && is_copied && !name.starts_with("#sql") {
                found.insert(Path::new(&schema).join(name), path);
            }
        }
    }
    Ok(found)
}

/// Names in a directory; one that goes meanwhile has none.
fn entries(dir: &Path) -> Result<Vec<(String, PathBuf, bool)>, String> {
    let told = |e: std::io::Error| format!("{}: {e}", dir.display());
    let listed = match fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(told)?,
    };
    let mut entries = Vec::new();
    for entry in listed {
        let entry = entry.map_err(told)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Where links lead.
        let is_dir = entry.path().is_dir();
        entries.push((name, entry.path(), is_dir));
    }
    Ok(entries)
}
