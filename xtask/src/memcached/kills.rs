//! What clients of memcached were told is there after the server was killed: no change is lost or made twice,
//! and no `cas` goes over somebody else's change.
//!
//! Clients send increments of a few counters and sets of a number of their own, several in one write, and
//! change another counter by `gets` and `cas`; in MariaDB SQL adds to the same counters. SIGKILL ends the
//! server in the middle of it. When it is there again each counter is at least what was answered and at most
//! what was sent.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use varve_testbed::client::Client;
use varve_testbed::prefix::Prefix;
use varve_testbed::server::{DataDir, Server};
use varve_testbed::workspace::{Workspace, programs_as_tested, remove_dir};

use super::{START_TIME, connect};

/// Connections that increment, and as many numbers of their own.
const CLIENTS: usize = 4;
/// Counters that they increment. The next one is changed by `cas`.
const COUNTERS: usize = 3;
const CAS_CLIENTS: usize = 2;
/// Requests in one write, at most.
const MOST_AT_ONCE: usize = 8;
/// How long the load goes on, at most.
const LOAD_MS: u64 = 800;

/// A server that can be killed.
trait Killed {
    fn start(&mut self) -> Result<()>;
    fn kill(&mut self) -> Result<()>;
    /// Where clients of memcached connect.
    fn items(&self) -> PathBuf;
    /// Where those of SQL do.
    fn sql(&self) -> Option<PathBuf>;
}

/// `varve serve`.
struct Alone {
    program: PathBuf,
    dir: PathBuf,
    process: Option<Child>,
}

impl Killed for Alone {
    fn start(&mut self) -> Result<()> {
        let process = Command::new(&self.program)
            .arg("serve")
            .arg(self.dir.join("data"))
            .arg(format!("--socket={}", self.items().display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.process = Some(process.with_context(|| self.program.display().to_string())?);
        Ok(())
    }

    fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    fn items(&self) -> PathBuf {
        self.dir.join("items.sock")
    }

    fn sql(&self) -> Option<PathBuf> {
        None
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // Its owner has failed half-way.
        let _ = self.kill();
    }
}

/// MariaDB.
struct InMariaDb<'a> {
    prefix: &'a Prefix,
    dir: PathBuf,
    server: Option<Server>,
}

impl Killed for InMariaDb<'_> {
    fn start(&mut self) -> Result<()> {
        let options = [
            "--plugin-load-add=ha_varve".to_string(),
            format!("--varve-memcached-socket={}", self.items().display()),
        ];
        let dir = DataDir(self.dir.clone());
        self.server = Some(Server::start(self.prefix, dir, None, &options)?);
        Ok(())
    }

    fn kill(&mut self) -> Result<()> {
        self.server
            .take()
            .map_or(Ok(()), |mut server| server.kill())
    }

    fn items(&self) -> PathBuf {
        self.dir.join("items.sock")
    }

    fn sql(&self) -> Option<PathBuf> {
        Some(DataDir(self.dir.clone()).socket())
    }
}

/// Kills both kinds of servers so many times. Returns how many there are.
pub fn check(workspace: &Workspace, prefix: &Prefix, rounds: u32, seed: u64) -> Result<u32> {
    println!("kills under load: --seed {seed}");
    let dir = workspace.target.join("memcached-kills");
    remove_dir(&dir)?;
    let (alone, server) = (dir.join("alone"), dir.join("server"));
    std::fs::create_dir_all(&alone)?;
    let mut alone = Alone {
        program: programs_as_tested(workspace)?.join("varve"),
        dir: alone,
        process: None,
    };
    kill_again_and_again(&mut alone, rounds, seed)?;
    DataDir(server.clone()).initialise(prefix)?;
    let mut server = InMariaDb {
        prefix,
        dir: server,
        server: None,
    };
    kill_again_and_again(&mut server, rounds, seed)?;
    remove_dir(&dir)?;
    Ok(2)
}

fn kill_again_and_again(server: &mut impl Killed, rounds: u32, seed: u64) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    server.start()?;
    let keys = (0..COUNTERS).map(|n| format!("counter:{n}"));
    let keys = keys.chain(["counter:cas".into()]);
    let mut tallies: Vec<Tally> = keys
        .chain((0..CLIENTS).map(|n| format!("own:{n}")))
        .map(Tally::new)
        .collect();
    let mut items = Items::connect(&server.items())?;
    for tally in &tallies {
        items.ask(&format!("set {} 0 0 1\r\n0\r\n", tally.key))?;
    }
    for round in 0..rounds {
        thread::scope(|scope| {
            let (path, sql) = (server.items(), server.sql());
            let (counters, own) = tallies.split_at(COUNTERS + 1);
            for mine in own {
                let (path, random) = (path.clone(), random.fork());
                scope.spawn(move || increment(&path, counters, mine, random));
            }
            for _ in 0..CAS_CLIENTS {
                let path = path.clone();
                scope.spawn(move || change_by_cas(&path, &counters[COUNTERS]));
            }
            if let Some(sql) = sql {
                scope.spawn(move || add_by_sql(&sql, counters));
            }
            thread::sleep(Duration::from_millis(random.u64(50..LOAD_MS)));
            server.kill()
        })?;
        server.start()?;
        let mut items = Items::connect(&server.items())?;
        for tally in &mut tallies {
            tally.check(&mut items).with_context(|| {
                format!("round {round} of --seed {seed}: after the server was killed")
            })?;
        }
    }
    server.kill()
}

/// What was sent of a number that only grows, and what was answered.
struct Tally {
    key: String,
    counts: Mutex<Counts>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    sent: u64,
    told: u64,
}

impl Tally {
    fn new(key: String) -> Tally {
        Tally {
            key,
            counts: Mutex::default(),
        }
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock().expect("nobody panics with it"));
    }

    fn check(&mut self, items: &mut Items) -> Result<()> {
        let head = items.ask(&format!("get {}\r\n", self.key))?;
        ensure!(head.starts_with("VALUE "), "{}: {head}", self.key);
        let value: u64 = items.line()?.parse()?;
        items.line()?;
        let counts = self.counts.get_mut().expect("nobody panics with it");
        ensure!(
            (counts.told..=counts.sent).contains(&value),
            "{} is {value}, with {counts:?}",
            self.key
        );
        *counts = Counts {
            sent: value,
            told: value,
        };
        Ok(())
    }
}

/// A connection.
struct Items(BufReader<UnixStream>);

impl Items {
    fn connect(path: &Path) -> Result<Items> {
        let stream = connect(path)?;
        stream.set_read_timeout(Some(START_TIME))?;
        Ok(Items(BufReader::new(stream)))
    }

    fn send(&mut self, requests: &str) -> Result<()> {
        Ok(self.0.get_mut().write_all(requests.as_bytes())?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let line = line
            .strip_suffix("\r\n")
            .context("the connection has ended")?;
        Ok(line.into())
    }

    fn ask(&mut self, request: &str) -> Result<String> {
        self.send(request)?;
        self.line()
    }
}

/// Increments counters, and sets `mine` to the next number, until the connection ends.
fn increment(path: &Path, counters: &[Tally], mine: &Tally, mut random: fastrand::Rng) {
    let Ok(mut items) = Items::connect(path) else {
        return;
    };
    loop {
        let mut requests = String::new();
        let mut asked = Vec::new();
        for _ in 0..random.usize(1..=MOST_AT_ONCE) {
            match random.usize(0..=COUNTERS) {
                COUNTERS => {
                    mine.count(|counts| {
                        counts.sent += 1;
                        let (number, key) = (counts.sent.to_string(), &mine.key);
                        requests += &format!("set {key} 0 0 {}\r\n{number}\r\n", number.len());
                        asked.push((mine, counts.sent));
                    });
                }
                counter => {
                    let counter = &counters[counter];
                    counter.count(|counts| counts.sent += 1);
                    requests += &format!("incr {} 1\r\n", counter.key);
                    asked.push((counter, 0));
                }
            }
        }
        if items.send(&requests).is_err() {
            return;
        }
        for (tally, number) in asked {
            let Ok(answer) = items.line() else {
                return;
            };
            match (number, answer.as_str()) {
                (0, answer) if answer.parse::<u64>().is_ok() => tally.count(|c| c.told += 1),
                (1.., "STORED") => tally.count(|counts| counts.told = number),
                // It could not be done, and is not done.
                _ => {}
            }
        }
    }
}

/// Adds 1 to what it has read, unless somebody has changed it since.
fn change_by_cas(path: &Path, tally: &Tally) {
    let Ok(mut items) = Items::connect(path) else {
        return;
    };
    let mut change = || -> Result<()> {
        let head = items.ask(&format!("gets {}\r\n", tally.key))?;
        let cas = head.rsplit(' ').next().context("the last word")?;
        let value: u64 = items.line()?.parse()?;
        items.line()?;
        tally.count(|counts| counts.sent += 1);
        let next = (value + 1).to_string();
        let (key, bytes) = (&tally.key, next.len());
        if items.ask(&format!("cas {key} 0 0 {bytes} {cas}\r\n{next}\r\n"))? == "STORED" {
            tally.count(|counts| counts.told += 1);
        }
        Ok(())
    };
    while change().is_ok() {}
}

/// Adds 1 to each counter in turn.
fn add_by_sql(socket: &Path, counters: &[Tally]) {
    let Ok(mut client) = Client::connect(socket) else {
        return;
    };
    for tally in counters.iter().cycle() {
        tally.count(|counts| counts.sent += 1);
        let add = format!(
            "UPDATE varve_memcache.items SET value = value + 1, cas = cas + 1 WHERE `key` = '{}'",
            tally.key
        );
        match client.query(&add) {
            Ok(_) => tally.count(|counts| counts.told += 1),
            Err(_) if client.query("DO 1").is_ok() => {}
            Err(_) => return,
        }
    }
}
