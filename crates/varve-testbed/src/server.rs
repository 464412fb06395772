//! A `mariadbd` of our own: initialise a data directory, start, find, stop or kill the server.
//!
//! Loopback only. The server is always addressed by the pid in its own pid file, and only if that
//! process still is a mariadbd on this data directory: pids are reused.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::client::Client;
use crate::command;
use crate::prefix::Prefix;

/// A Unix socket's path is limited by the kernel.
const SOCKET_PATH_MAX: usize = 107;
const START_TIMEOUT: Duration = Duration::from_secs(600);
const STOP_TIMEOUT: Duration = Duration::from_secs(300);
const LOG_TAIL_BYTES: u64 = 4096;
/// Exists while a data directory is being initialised, so that an interrupted one is known.
const INIT_MARK: &str = "varve-initialising";

/// A storage engine that the tools can drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Engine {
    Varve,
    Innodb,
}

impl Engine {
    pub fn name(self) -> &'static str {
        match self {
            Self::Varve => "VARVE",
            Self::Innodb => "InnoDB",
        }
    }

    /// The prefix of its system variables as options.
    pub fn option_prefix(self) -> &'static str {
        match self {
            Self::Varve => "varve",
            Self::Innodb => "innodb",
        }
    }
}

/// The files of a data directory that we name ourselves.
pub struct DataDir(pub PathBuf);

impl DataDir {
    pub fn socket(&self) -> PathBuf {
        self.0.join("mariadbd.sock")
    }

    pub fn log(&self) -> PathBuf {
        self.0.join("mariadbd.err")
    }

    fn pid_file(&self) -> PathBuf {
        self.0.join("mariadbd.pid")
    }

    /// The server that runs on this directory.
    pub fn running(&self) -> Option<Pid> {
        let pid: i32 = fs::read_to_string(self.pid_file())
            .ok()?
            .trim()
            .parse()
            .ok()?;
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let own = format!("--pid-file={}", self.pid_file().display());
        arguments
            .split(|byte| *byte == 0)
            .any(|argument| argument == own.as_bytes())
            .then_some(())?;
        Pid::from_raw(pid)
    }

    /// Makes it a MariaDB data directory if it is missing or empty.
    pub fn initialise(&self, prefix: &Prefix) -> Result<()> {
        fs::create_dir_all(&self.0)
            .with_context(|| format!("cannot create {}", self.0.display()))?;
        let mark = self.0.join(INIT_MARK);
        if mark.exists() {
            // Nobody has used what was never finished.
            for entry in fs::read_dir(&self.0)?.collect::<Result<Vec<_>, _>>()? {
                if entry.file_type()?.is_dir() {
                    fs::remove_dir_all(entry.path())?;
                } else if entry.path() != mark {
                    fs::remove_file(entry.path())?;
                }
            }
        } else if self.0.join("mysql").is_dir() {
            return Ok(());
        } else if let Some(entry) = fs::read_dir(&self.0)?.next() {
            bail!(
                "{} is no MariaDB data directory and is not empty: it holds {}; name another one",
                self.0.display(),
                entry?.file_name().display()
            );
        }
        fs::write(&mark, "")?;
        command::output(
            prefix
                .program("mariadb-install-db")
                .args([
                    "--no-defaults",
                    "--skip-test-db",
                    "--auth-root-authentication-method=normal",
                ])
                .arg(format!("--basedir={}", prefix.base.display()))
                .arg(format!("--datadir={}", self.0.display()))
                .args(user_option()),
        )
        .context("the data directory could not be initialised")?;
        fs::remove_file(&mark)?;
        Ok(())
    }

    /// Where the log ends now: what `log_since` starts from.
    fn log_length(&self) -> u64 {
        fs::metadata(self.log()).map_or(0, |metadata| metadata.len())
    }

    /// The end of what the server logged since `offset`.
    fn log_since(&self, offset: u64) -> String {
        let mut text = Vec::new();
        if let Ok(mut file) = fs::File::open(self.log()) {
            let from = offset.max(self.log_length().saturating_sub(LOG_TAIL_BYTES));
            let _ = file
                .seek(SeekFrom::Start(from))
                .and_then(|_| file.read_to_end(&mut text));
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

pub struct Server {
    pub datadir: DataDir,
    child: Child,
}

impl Server {
    /// Starts a server and waits until it answers.
    ///
    /// `port` is `None` for one that is reached by its socket only.
    pub fn start(
        prefix: &Prefix,
        datadir: DataDir,
        port: Option<u16>,
        options: &[String],
    ) -> Result<Self> {
        let (child, log_offset) = Self::spawn(prefix, &datadir, port, options)?;
        let mut server = Self { datadir, child };
        match server.wait_ready(log_offset) {
            Ok(()) => Ok(server),
            Err(error) => {
                server.kill()?;
                Err(error)
            }
        }
    }

    /// Starts a server and does not wait for it.
    pub fn start_unready(prefix: &Prefix, datadir: DataDir, options: &[String]) -> Result<Self> {
        let (child, _) = Self::spawn(prefix, &datadir, None, options)?;
        Ok(Self { datadir, child })
    }

    fn spawn(
        prefix: &Prefix,
        datadir: &DataDir,
        port: Option<u16>,
        options: &[String],
    ) -> Result<(Child, u64)> {
        let socket = datadir.socket();
        ensure!(
            socket.as_os_str().len() <= SOCKET_PATH_MAX,
            "the socket's path {} is longer than {SOCKET_PATH_MAX} bytes; choose a shorter data directory",
            socket.display()
        );
        if let Some(pid) = datadir.running() {
            bail!(
                "a server already runs on {} (pid {})",
                datadir.0.display(),
                pid.as_raw_nonzero()
            );
        }
        let _ = fs::remove_file(datadir.pid_file());
        let log_offset = datadir.log_length();
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(datadir.log())?;
        let network = match port {
            Some(port) => vec![format!("--port={port}"), "--bind-address=127.0.0.1".into()],
            None => vec!["--skip-networking".into()],
        };
        let mut command = prefix
            .program("mariadbd")
            .arg("--no-defaults")
            .arg(format!("--basedir={}", prefix.base.display()))
            .arg(format!("--plugin-dir={}", prefix.plugin_dir().display()))
            .arg(format!("--datadir={}", datadir.0.display()))
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--pid-file={}", datadir.pid_file().display()))
            .args(network)
            .args(user_option())
            .args(options)
            .into_inner();
        // A group of its own: an interrupt at the terminal is not meant for the server.
        command
            .process_group(0)
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command.spawn().context("cannot run mariadbd")?;
        Ok((child, log_offset))
    }

    fn wait_ready(&mut self, log_offset: u64) -> Result<()> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "the server did not start: {status}; {}",
                    self.said(log_offset)
                );
            }
            // The pid file is written when start-up is over; a socket could be an older server's.
            if self.datadir.running().is_some() && Client::connect(&self.datadir.socket()).is_ok() {
                return Ok(());
            }
            if start.elapsed() > START_TIMEOUT {
                bail!(
                    "the server did not answer within {START_TIMEOUT:?}; {}",
                    self.said(log_offset)
                );
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn said(&self, log_offset: u64) -> String {
        format!(
            "the end of {}:\n{}",
            self.datadir.log().display(),
            self.datadir.log_since(log_offset)
        )
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn connect(&self) -> Result<Client> {
        Client::connect(&self.datadir.socket())
            .with_context(|| format!("cannot connect to {}", self.datadir.socket().display()))
    }

    /// An error if the server ended by itself.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the server ended by itself: {status}; {}", self.said(0)),
        }
    }

    /// SIGKILL: it gets no chance to write anything more.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// An orderly shutdown; an error unless the server ends with success.
    pub fn stop(&mut self) -> Result<()> {
        let offset = self.datadir.log_length();
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let start = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!(
                    "the server's shutdown failed: {status}; {}",
                    self.said(offset)
                ),
                None if start.elapsed() > STOP_TIMEOUT => {
                    self.kill()?;
                    bail!(
                        "the server did not shut down within {STOP_TIMEOUT:?}; {}",
                        self.said(offset)
                    );
                }
                None => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Leaves the server running when we end.
    pub fn detach(self) -> DataDir {
        let datadir = DataDir(self.datadir.0.clone());
        std::mem::forget(self);
        datadir
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ended already, or its owner failed half-way: then nobody else would end it.
        let _ = self.kill();
    }
}

/// Stops a server that another process started. False if none runs.
pub fn stop_running(datadir: &DataDir) -> Result<bool> {
    let Some(pid) = datadir.running() else {
        return Ok(false);
    };
    let offset = datadir.log_length();
    kill_process(pid, Signal::TERM).context("cannot signal the server")?;
    let start = Instant::now();
    // A zombie that nobody reaps has no command line.
    while fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()))
        .is_ok_and(|line| !line.is_empty())
    {
        if start.elapsed() > STOP_TIMEOUT {
            bail!(
                "the server did not shut down within {STOP_TIMEOUT:?}; the end of {}:\n{}",
                datadir.log().display(),
                datadir.log_since(offset)
            );
        }
        thread::sleep(Duration::from_millis(20));
    }
    // An orderly shutdown removes it.
    ensure!(
        !datadir.pid_file().exists(),
        "the server died while shutting down; the end of {}:\n{}",
        datadir.log().display(),
        datadir.log_since(offset)
    );
    Ok(true)
}

/// The server refuses to run as root unless told so.
fn user_option() -> Option<&'static str> {
    geteuid().is_root().then_some("--user=root")
}
