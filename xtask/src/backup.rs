//! `varve backup` and `varve restore` on a server in use, with tables of several engines.
//!
//! Writers put each row into a VARVE and an InnoDB table in one transaction, and into an Aria table (on a
//! server without InnoDB into two VARVE tables); another
//! one makes, alters, renames, empties and drops tables. A backup is made meanwhile, verified, restored, and
//! a second server started on it. There both tables have the same rows: of each writer those up to one of
//! them, no fewer than were acknowledged when the backup began, and no more than there were when it ended.
//! Then the binary log is played to it from the position that the backup names: it has what the first server
//! has, row by row. So the position is that of the backup, for all engines.
//!
//! Before that, `varve restore --until` has taken it to a moment after the backup, by a GTID or a position,
//! in which both tables have the same rows.
//!
//! Between two backups one is begun in whose middle the server or `varve backup` is killed (SIGKILL): what is
//! left is no backup, and the next increment goes with the last that is one.
//!
//! The first backup is a whole one, others are increments, each on the one before, and every third one is
//! merged with those before it: the next goes with what comes of that.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use varve_testbed::client::Client;
use varve_testbed::command::{self, Cmd};
use varve_testbed::plugin;
use varve_testbed::prefix::Prefix;
use varve_testbed::server::{DataDir, Engine, Server};
use varve_testbed::workspace::{Workspace, programs_as_tested, remove_dir};

use crate::mtr::Count;

const WRITERS: usize = 3;
/// More are merged.
const MOST_IN_CHAIN: usize = 2;
const PATIENCE: Duration = Duration::from_secs(60);
/// Before the backup begins, so that there is something to copy.
const ROWS_AT_FIRST: u64 = 20_000;

#[derive(clap::Args)]
pub struct BackupArgs {
    /// Backups that are made, restored and compared
    #[arg(long, default_value_t = 5)]
    rounds: u32,
}

pub fn run(workspace: &Workspace, args: &BackupArgs) -> Result<()> {
    check(workspace, args.rounds, Engine::Innodb)?;
    check(workspace, args.rounds, Engine::Varve)
}

/// A few backups.
pub fn run_suite(workspace: &Workspace) -> Result<Count> {
    check(workspace, 3, Engine::Innodb)?;
    check(workspace, 2, Engine::Varve)?;
    Ok(Count {
        passed: 5,
        ..Count::default()
    })
}

/// `other`: what stands beside VARVE; a server of VARVE alone has no InnoDB.
fn options(other: Engine) -> Vec<String> {
    let skips_innodb = match other {
        Engine::Innodb => "--loose-innodb",
        Engine::Varve => "--skip-innodb",
    };
    let options = [
        skips_innodb,
        "--plugin-load-add=ha_varve",
        "--default-storage-engine=VARVE",
        "--log-bin=binlog",
        "--binlog-format=ROW",
        "--server-id=1",
        "--sync-binlog=0",
        "--varve-flush-log-at-trx-commit=2",
        "--loose-innodb-flush-log-at-trx-commit=2",
        // Small enough for pages to be written, and the log to be used again, all the time.
        "--varve-buffer-pool-size=16M",
        "--varve-redo-log-capacity=16M",
    ];
    options.map(String::from).to_vec()
}

/// `other`: the engine of the other table.
fn check(workspace: &Workspace, rounds: u32, other: Engine) -> Result<()> {
    let prefix = plugin::prefix_for(workspace, &[Engine::Varve, Engine::Innodb])?;
    let program = programs_as_tested(workspace)?.join("varve");
    let dir = workspace.target.join("backup");
    remove_dir(&dir)?;
    let source = dir.join("source");
    DataDir(source.clone()).initialise(&prefix)?;
    let mut server = Server::start(&prefix, DataDir(source.clone()), None, &options(other))?;
    prepare(&server, other)?;
    let mut chain = Vec::new();
    for round in 0..rounds {
        let place = dir.join(format!("round-{round}"));
        let source = Source {
            prefix: &prefix,
            program: &program,
            server: &server,
            other,
        };
        let told = one(&source, &place, &mut chain);
        told.with_context(|| {
            format!(
                "round {round}; what there is of it is in {}",
                place.display()
            )
        })?;
        remove_dir(&place.join("restored"))?;
        let killed = place.join("killed");
        if round % 2 == 0 {
            source.interrupt(chain.last(), &killed, Victim::Server)?;
            server.kill()?;
            server = Server::start(&prefix, DataDir(dir.join("source")), None, &options(other))?;
        } else {
            source.interrupt(chain.last(), &killed, Victim::Tool)?;
            source.clear()?;
        }
        remove_dir(&killed)?;
    }
    server.stop()?;
    remove_dir(&dir)
}

fn prepare(server: &Server, other: Engine) -> Result<()> {
    let mut client = server.connect()?;
    client.query("CREATE DATABASE d")?;
    for (name, engine) in [("v", Engine::Varve), ("i", other)] {
        client.query(&format!(
            "CREATE TABLE d.{name} (writer INT, n BIGINT, text VARCHAR(200), PRIMARY KEY (writer, n), KEY (text)) ENGINE={}",
            engine.name()
        ))?;
    }
    client.query("CREATE TABLE d.a (writer INT, n BIGINT, PRIMARY KEY (writer, n)) ENGINE=Aria")?;
    let mut n = 0;
    while n < ROWS_AT_FIRST {
        let rows = (n..n + 1000).map(|n| format!("(99, {n}, REPEAT('{n} ', 20))"));
        let rows: Vec<String> = rows.collect();
        for table in ["v", "i"] {
            client.query(&format!("INSERT INTO d.{table} VALUES {}", rows.join(",")))?;
        }
        n += 1000;
    }
    Ok(())
}

/// What the writers have come to.
#[derive(Default)]
struct Load {
    stops: AtomicBool,
    acknowledged: [AtomicU64; WRITERS],
    failed: Mutex<Option<anyhow::Error>>,
}

impl Load {
    fn numbers(&self) -> [u64; WRITERS] {
        self.acknowledged.each_ref().map(|n| n.load(Relaxed))
    }

    fn keep(&self, done: Result<()>) {
        if let Err(e) = done {
            self.failed.lock().expect("no panic").get_or_insert(e);
        }
    }
}

/// Transactions of one writer, each with its row in both tables, some rows changed, some taken back.
fn write(client: &mut Client, writer: usize, load: &Load) -> Result<()> {
    let first = client.value(&format!(
        "SELECT IFNULL(MAX(n), 0) FROM d.v WHERE writer = {writer}"
    ))?;
    let mut n: u64 = first.parse()?;
    load.acknowledged[writer].store(n, Relaxed);
    while !load.stops.load(Relaxed) {
        let next = n + 1;
        client.query("BEGIN")?;
        for table in ["v", "i"] {
            client.query(&format!(
                "INSERT INTO d.{table} VALUES ({writer}, {next}, REPEAT('{next}-', 12))"
            ))?;
            let old = next.saturating_sub(50);
            client.query(&format!(
                "UPDATE d.{table} SET text = CONCAT('{next}', text) WHERE writer = {writer} AND n = {old}"
            ))?;
        }
        if next.is_multiple_of(7) {
            client.query("ROLLBACK")?;
            client.query("BEGIN")?;
            for table in ["v", "i"] {
                client.query(&format!(
                    "INSERT INTO d.{table} VALUES ({writer}, {next}, 'again')"
                ))?;
            }
        }
        client.query("COMMIT")?;
        n = next;
        load.acknowledged[writer].store(n, Relaxed);
        if n.is_multiple_of(20) {
            client.query(&format!("INSERT INTO d.a VALUES ({writer}, {n})"))?;
        }
    }
    Ok(())
}

/// DDL of all kinds, on tables of their own.
fn define(client: &mut Client, load: &Load) -> Result<()> {
    let mut number = 0u64;
    while !load.stops.load(Relaxed) {
        let names = [format!("d.t{}", number % 5), format!("d.u{}", number % 5)];
        let [name, other] = &names;
        for statement in [
            format!("DROP TABLE IF EXISTS {name}, {other}"),
            format!(
                // The server's default engine.
                "CREATE TABLE {name} (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(100))"
            ),
            format!("INSERT INTO {name} (v) SELECT text FROM d.v WHERE writer = 99 LIMIT 500"),
            format!("ALTER TABLE {name} ADD KEY (v), ADD COLUMN w INT DEFAULT {number}"),
            format!("RENAME TABLE {name} TO {other}"),
            format!("INSERT INTO {other} (v) VALUES ('last')"),
            format!("CREATE OR REPLACE EVENT d.e{number} ON SCHEDULE EVERY 1 YEAR DO DO 1"),
            format!("CREATE OR REPLACE USER u{} IDENTIFIED BY 'x'", number % 3),
            format!("DROP EVENT IF EXISTS d.e{}", number.saturating_sub(3)),
        ] {
            client.query(&statement)?;
        }
        match number % 4 {
            0 => drop(client.query(&format!("TRUNCATE TABLE {other}"))?),
            1 => drop(client.query(&format!("ALTER TABLE {other} FORCE"))?),
            _ => {}
        }
        number += 1;
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A server with writers, and how to make backups of it.
struct Source<'a> {
    prefix: &'a Prefix,
    program: &'a Path,
    server: &'a Server,
    other: Engine,
}

/// Who is killed while a backup is made.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Server,
    /// `varve backup`.
    Tool,
}

/// A backup beside a load.
struct BesideLoad {
    took: Duration,
    /// What had been acknowledged before it began, after it had ended, and somewhat later.
    before: [u64; WRITERS],
    after: [u64; WRITERS],
    last: [u64; WRITERS],
    /// A moment between the last two.
    until: (String, String),
}

impl Source<'_> {
    fn varve(&self, command: &str) -> Cmd {
        self.prefix.own_program(self.program).arg(command)
    }

    /// Does something while all write.
    fn beside<T>(&self, load: &Load, what: impl FnOnce() -> T) -> T {
        let server = self.server;
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                scope.spawn(move || {
                    let client = server.connect();
                    load.keep(client.and_then(|mut c| write(&mut c, writer, load)));
                });
            }
            scope.spawn(move || {
                load.keep(server.connect().and_then(|mut c| define(&mut c, load)));
            });
            let done = what();
            load.stops.store(true, Relaxed);
            done
        })
    }

    fn backup(&self, base: Option<&PathBuf>, made: &Path) -> Cmd {
        let socket = self.server.datadir.socket();
        self.varve("backup")
            .arg("--user=root")
            .arg(format!("--socket={}", socket.display()))
            .args(base.map(|base| format!("--base={}", base.display())))
            .arg(made)
    }

    fn back_up(&self, base: Option<&PathBuf>, made: &Path) -> Result<BesideLoad> {
        let load = &Load::default();
        let done = self.beside(load, || {
            thread::sleep(Duration::from_secs(1));
            let before = load.numbers();
            let begun = Instant::now();
            let done = command::output(self.backup(base, made));
            let (took, after) = (begun.elapsed(), load.numbers());
            thread::sleep(Duration::from_millis(250));
            let until = moment(self.server, base.is_none());
            thread::sleep(Duration::from_millis(250));
            let last = load.numbers();
            print!("{}", done?);
            anyhow::Ok(BesideLoad {
                took,
                before,
                after,
                last,
                until: until?,
            })
        });
        match load.failed.lock().expect("no panic").take() {
            Some(e) => Err(e.context("a writer has failed")),
            None => done,
        }
    }

    /// Kills the server, or who makes the backup, in the middle of one: what is left is none.
    fn interrupt(&self, base: Option<&PathBuf>, made: &Path, victim: Victim) -> Result<()> {
        let load = &Load::default();
        // With the server the writers fail, too.
        let whole = self.beside(load, || {
            thread::sleep(Duration::from_millis(300));
            let mut tool = self.backup(base, made).into_inner();
            let tool = tool.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            let mut tool = tool.context("cannot run varve")?;
            let most = if self.other == Engine::Innodb {
                2000
            } else {
                400
            };
            thread::sleep(Duration::from_millis(fastrand::u64(..most)));
            match victim {
                Victim::Server => {
                    let pid = self.server.pid().to_string();
                    command::run(Cmd::new("kill").args(["-KILL", &pid]))?;
                }
                Victim::Tool => tool.kill()?,
            }
            anyhow::Ok(tool.wait()?.success())
        })?;
        let verified = self.varve("verify").arg(made).into_inner().output()?;
        ensure!(
            verified.status.success() == whole,
            "a backup that was killed is taken for one, or one that was made is not: {verified:?}"
        );
        let what = match whole {
            true => "had ended before",
            false => "left no backup",
        };
        println!("{victim:?} was killed, and {what}");
        Ok(())
    }

    /// What a killed `varve backup` has left goes on until it has ended, or is given up.
    fn clear(&self) -> Result<()> {
        let mut client = self.server.connect()?;
        let others = "SELECT COUNT(*) FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user = 'root'";
        let begun = Instant::now();
        while client.value(others)? != "0" {
            ensure!(begun.elapsed() < PATIENCE, "somebody is still there");
            thread::sleep(Duration::from_millis(50));
        }
        client.query("SET GLOBAL varve_backup_directory = ''")?;
        Ok(())
    }

    /// The new backup is verified, and a chain that has become too long merged in `place`.
    fn add(&self, made: PathBuf, place: &Path, chain: &mut Vec<PathBuf>) -> Result<()> {
        command::output(self.varve("verify").arg(&made))?;
        chain.push(made);
        if chain.len() > MOST_IN_CHAIN {
            let merged = place.join("merged");
            let merge = self.varve("backup").arg("--merge").args(&*chain);
            command::output(merge.arg(&merged))?;
            for merged in chain.drain(..) {
                remove_dir(&merged)?;
            }
            chain.push(merged);
        }
        command::output(self.varve("verify").args(&*chain)).map(drop)
    }

    /// A server on what is restored there.
    fn second(&self, restored: &Path) -> Result<Server> {
        let dir = DataDir(restored.to_path_buf());
        Server::start(self.prefix, dir, None, &options(self.other))
    }

    /// Restores the chain, and plays the binary logs up to that moment.
    fn restore_until(&self, chain: &[PathBuf], place: &Path, until: &str) -> Result<String> {
        // What it takes to run a server of this prefix.
        let defaults = place.join("my.cnf");
        let base = self.prefix.base.display();
        let plugins = self.prefix.plugin_dir();
        let own = format!(
            "[mariadbd]\nbasedir={base}\nplugin-dir={}\nplugin-load-add=ha_varve\n",
            plugins.display()
        );
        std::fs::write(&defaults, own)?;
        let logs = &self.server.datadir.0;
        command::output(
            self.varve("restore")
                .args(chain)
                .arg(place.join("restored"))
                .arg(format!("--until={until}"))
                .arg(format!("--binlogs={}", logs.display()))
                .arg(format!("--defaults-file={}", defaults.display())),
        )
    }
}

/// `chain`: backups that there are, and then this one, too.
fn one(source: &Source<'_>, place: &Path, chain: &mut Vec<PathBuf>) -> Result<()> {
    let (made, restored) = (place.join("made"), place.join("restored"));
    std::fs::create_dir_all(place)?;
    let BesideLoad {
        took,
        before,
        after,
        last,
        until: (until, start),
    } = source.back_up(chain.last(), &made)?;
    source.add(made, place, chain)?;
    let restore = source.varve("restore").args(&*chain);
    let said = command::output(restore.arg(&restored))?;
    let noted = |key: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(key));
        line.map(|rest| rest.trim().to_string())
            .with_context(|| format!("no {key} in {said}"))
    };
    let (file, position) = (noted("binlog")?, noted("position")?);
    let mut second = source.second(&restored)?;
    let compared = compare_engines(&second, before, after);
    second.stop()?;
    compared?;
    remove_dir(&restored)?;
    let said = source.restore_until(chain, place, &until)?;
    ensure!(
        until != start || said.contains(&format!("played up to gtid {until}")),
        "not up to gtid {until}: {said}"
    );
    let mut second = source.second(&restored)?;
    let compared = compare_engines(&second, after, last).and_then(|()| {
        let file = until.split_once(':').map_or(&*file, |(file, _)| file);
        play(source.prefix, source.server, &second, file, &start)?;
        compare_servers(source.server, &second)
    });
    second.stop()?;
    compared?;
    let written = after.iter().sum::<u64>() - before.iter().sum::<u64>();
    println!(
        "a backup in {:.1} s beside {written} transactions, from {file} {position}, and to {until}",
        took.as_secs_f64()
    );
    Ok(())
}

/// The server's last transaction, in the words of `varve restore` and of `mariadb-binlog`.
fn moment(server: &Server, by_gtid: bool) -> Result<(String, String)> {
    let mut client = server.connect()?;
    if by_gtid {
        let gtid = client.value("SELECT @@gtid_binlog_pos")?;
        return Ok((gtid.clone(), gtid));
    }
    let status = client.query("SHOW MASTER STATUS")?;
    let mut values = status.into_iter().flatten().flatten();
    let (file, position) = values.next().zip(values.next()).context("a binary log")?;
    Ok((format!("{file}:{position}"), position))
}

/// What the restored server has of each writer, in both tables.
fn compare_engines(second: &Server, before: [u64; WRITERS], after: [u64; WRITERS]) -> Result<()> {
    let mut client = second.connect()?;
    let differ = client.query("SELECT * FROM d.v EXCEPT SELECT * FROM d.i LIMIT 3")?;
    ensure!(
        differ.is_empty(),
        "rows only in the VARVE table: {differ:?}"
    );
    let differ = client.query("SELECT * FROM d.i EXCEPT SELECT * FROM d.v LIMIT 3")?;
    ensure!(
        differ.is_empty(),
        "rows only in the InnoDB table: {differ:?}"
    );
    for writer in 0..WRITERS {
        let found = client.query(&format!(
            "SELECT COUNT(*), IFNULL(MAX(n), 0) FROM d.v WHERE writer = {writer}"
        ))?;
        let numbers = found.first().context("a row")?.iter().flatten();
        let numbers = numbers
            .map(|n| n.parse())
            .collect::<Result<Vec<u64>, _>>()?;
        let [count, last] = numbers[..] else {
            bail!("{found:?}");
        };
        ensure!(
            count == last,
            "{count} rows of writer {writer}, up to {last}"
        );
        // One more may have committed when it was acknowledged.
        let may_be = before[writer]..=after[writer] + 1;
        ensure!(
            may_be.contains(&last),
            "{last} of writer {writer}, not in {may_be:?}"
        );
    }
    let tables = tables(&mut client)?;
    for table in &tables {
        let checked = client.query(&format!("CHECK TABLE d.{table} EXTENDED"))?;
        let is_well =
            checked.len() == 1 && checked[0].last().cloned().flatten().as_deref() == Some("OK");
        ensure!(is_well, "{table}: {checked:?}");
    }
    Ok(())
}

fn tables(client: &mut Client) -> Result<Vec<String>> {
    let rows = client.query(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'd' ORDER BY 1",
    )?;
    Ok(rows.into_iter().flatten().flatten().collect())
}

/// Plays the first server's binary logs to the second one, from there on, by a position or a GTID.
fn play(prefix: &Prefix, from: &Server, to: &Server, file: &str, position: &str) -> Result<()> {
    let mut client = from.connect()?;
    client.query("FLUSH BINARY LOGS")?;
    let logs: Vec<String> = client
        .query("SHOW BINARY LOGS")?
        .into_iter()
        .filter_map(|row| row.into_iter().next()?)
        .collect();
    let read = prefix
        .program("mariadb-binlog")
        .arg("--no-defaults")
        .arg(format!("--start-position={position}"))
        .args(
            logs.iter()
                .filter(|log| log.as_str() >= file)
                .map(|log| from.datadir.0.join(log)),
        );
    let mut read = read.into_inner();
    let mut reader = read.stdout(std::process::Stdio::piped()).spawn()?;
    let stream = reader.stdout.take().context("a pipe")?;
    let played = prefix
        .program("mariadb")
        .arg("--no-defaults")
        .args(["--user=root", "--binary-mode"])
        .arg(format!("--socket={}", to.datadir.socket().display()));
    let played = played.into_inner().stdin(stream).output()?;
    ensure!(reader.wait()?.success(), "mariadb-binlog has failed");
    let said = String::from_utf8_lossy(&played.stderr);
    ensure!(
        played.status.success(),
        "the binary log can't be played from {file} {position}: {said}"
    );
    Ok(())
}

fn compare_servers(first: &Server, second: &Server) -> Result<()> {
    let (mut a, mut b) = (first.connect()?, second.connect()?);
    let (ours, theirs) = (tables(&mut a)?, tables(&mut b)?);
    ensure!(ours == theirs, "tables {ours:?} and {theirs:?}");
    let all = "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = 'd' ORDER BY 1";
    let engines = (a.query(all)?, b.query(all)?);
    ensure!(engines.0 == engines.1, "engines {engines:?}");
    let all = "SELECT event_name, status FROM information_schema.events ORDER BY 1";
    let events = (a.query(all)?, b.query(all)?);
    ensure!(events.0 == events.1, "events {events:?}");
    for table in ours {
        let all = format!("SELECT * FROM d.{table} ORDER BY 1, 2");
        ensure!(
            a.query(&all)? == b.query(&all)?,
            "table {table} differs after the binary log was played"
        );
    }
    Ok(())
}
