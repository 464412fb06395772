//! The rows load through the library, in a process of its own (`crates/varve-sim/src/bin/stress-store.rs`).

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::driver::Process;
use crate::journal::Ddl;
use crate::store::{Failure, Level, Outcome, Statement, Store, Verb};
use varve_testbed::command::Cmd;
use varve_testbed::workspace::{Workspace, programs_as_tested};

const START_TIMEOUT: Duration = Duration::from_secs(300);

pub struct EmbeddedStore {
    answers: BufReader<UnixStream>,
}

impl EmbeddedStore {
    pub fn connect(socket: &Path, id: u32) -> Outcome<Self> {
        let stream = UnixStream::connect(socket).map_err(lost)?;
        let answers = BufReader::new(stream);
        let mut store = Self { answers };
        store.ask(&format!("client {id}"))?;
        Ok(store)
    }

    fn ask(&mut self, line: &str) -> Outcome<String> {
        let asked = format!("{line}\n");
        self.answers
            .get_mut()
            .write_all(asked.as_bytes())
            .map_err(lost)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).map_err(lost)?;
        let Some(answer) = answer.strip_suffix('\n') else {
            return Err(Failure::Lost("no answer".into()));
        };
        let (verdict, rest) = answer.split_once(' ').unwrap_or((answer, ""));
        let rest = rest.to_string();
        Err(match verdict {
            "ok" => return Ok(rest),
            "conflict" => Failure::Conflict(rest),
            "duplicate" => Failure::Duplicate,
            "full" => Failure::Full(rest),
            _ => Failure::Wrong(format!("{answer}, by {line}")),
        })
    }
}

fn lost(error: std::io::Error) -> Failure {
    Failure::Lost(error.to_string())
}

impl Store for EmbeddedStore {
    fn begin(&mut self, level: Level) -> Outcome<()> {
        self.ask(&format!("begin {}", level as u8)).map(drop)
    }

    fn commit(&mut self) -> Outcome<()> {
        self.ask("commit").map(drop)
    }

    fn rollback(&mut self) -> Outcome<()> {
        self.ask("rollback").map(drop)
    }

    fn savepoint(&mut self, number: usize) -> Outcome<()> {
        self.ask(&format!("savepoint {number}")).map(drop)
    }

    fn rollback_to(&mut self, number: usize) -> Outcome<()> {
        self.ask(&format!("rollback_to {number}")).map(drop)
    }

    fn change(&mut self, statement: &Statement) -> Outcome<()> {
        let verb = match statement.verb {
            Verb::Insert => "insert",
            Verb::Replace => "replace",
            Verb::Upsert => "upsert",
            Verb::Update => "update",
            Verb::Delete => "delete",
        };
        let (first, last) = (statement.keys.start(), statement.keys.end());
        let (table, version) = (&statement.table, statement.version);
        self.ask(&format!("{verb} {table} {first} {last} {version}"))
            .map(drop)
    }

    fn read(&mut self, table: &str) -> Outcome<BTreeMap<u32, u64>> {
        let answer = self.ask(&format!("read {table}"))?;
        let wrong = || Failure::Wrong(format!("{table}: {answer}"));
        let numbers: Vec<u64> = answer
            .split_whitespace()
            .map(|word| word.parse().map_err(|_| wrong()))
            .collect::<Outcome<_>>()?;
        let rows = numbers.chunks_exact(2).map(|row| (row[0] as u32, row[1]));
        let versions: BTreeMap<u32, u64> = rows.collect();
        if versions.len() * 2 != numbers.len() {
            return Err(wrong());
        }
        Ok(versions)
    }

    fn begin_view(&mut self) -> Outcome<()> {
        self.ask("begin_view").map(drop)
    }

    fn sums(&mut self, table: &str) -> Outcome<Vec<String>> {
        let answer = self.ask(&format!("sums {table}"))?;
        Ok(answer.split_whitespace().map(String::from).collect())
    }

    fn ddl(&mut self, ddl: &Ddl) -> Outcome<()> {
        self.ask(&ddl.to_string()).map(drop)
    }

    fn truncate_undo(&mut self, number: u32) -> Outcome<()> {
        self.ask(&format!("truncate_undo {number}")).map(drop)
    }

    fn tables(&mut self) -> Outcome<Vec<String>> {
        let tables = self.ask("tables")?;
        Ok(tables.split_whitespace().map(String::from).collect())
    }

    fn check(&mut self, table: &str) -> Outcome<()> {
        self.ask(&format!("check {table}")).map(drop)
    }
}

/// The program, built with its assertions.
pub fn build(workspace: &Workspace) -> Result<PathBuf> {
    Ok(programs_as_tested(workspace)?.join("stress-store"))
}

/// A running one.
pub struct Program {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Program {
    /// Starts it and does not wait until it answers. What it says goes to a log.
    pub fn spawn(program: &Path, dir: &Path, place: &Path, settings: &[String]) -> Result<Self> {
        let (socket, log) = (place.join("store.sock"), place.join("store.log"));
        // That of the process before is no sign that this one listens.
        let _ = std::fs::remove_file(&socket);
        let said: File = OpenOptions::new().create(true).append(true).open(&log)?;
        let mut command = Cmd::new(program)
            .arg(dir)
            .arg(&socket)
            .args(settings)
            .into_inner();
        let child = command
            .stdout(said.try_clone()?)
            .stderr(said)
            .spawn()
            .context("cannot run stress-store")?;
        Ok(Self { child, socket, log })
    }

    pub fn wait_ready(&mut self) -> Result<()> {
        let begin = Instant::now();
        while UnixStream::connect(&self.socket).is_err() {
            self.check_alive()?;
            if begin.elapsed() > START_TIMEOUT {
                bail!("stress-store did not answer within {START_TIMEOUT:?}");
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Process for Program {
    fn socket(&self) -> PathBuf {
        self.socket.clone()
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let said = std::fs::read_to_string(&self.log).unwrap_or_default();
                let lines: Vec<&str> = said.lines().collect();
                let end = lines[lines.len().saturating_sub(30)..].join("\n");
                bail!("stress-store ended by itself: {status}; it said:\n{end}")
            }
        }
    }

    fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Its owner failed, or it is dead already.
        let _ = self.kill();
    }
}
