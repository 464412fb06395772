//! `varve backup` and `varve restore` on a server in use, with tables of several engines.
//!
//! Writers put each row into a VARVE and an InnoDB table in one transaction, and into an Aria table; another
//! one makes, alters, renames, empties and drops tables. A backup is made meanwhile, verified, restored, and
//! a second server started on it. There both tables have the same rows: of each writer those up to one of
//! them, no fewer than were acknowledged when the backup began, and no more than there were when it ended.
//! Then the binary log is played to it from the position that the backup names: it has what the first server
//! has, row by row. So the position is that of the backup, for all engines.
//!
//! The first backup is a whole one, others are increments, each on the one before, and every third one is
//! merged with those before it: the next goes with what comes of that.

use std::path::{Path, PathBuf};
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
/// Before the backup begins, so that there is something to copy.
const ROWS_AT_FIRST: u64 = 20_000;

#[derive(clap::Args)]
pub struct BackupArgs {
    /// Backups that are made, restored and compared
    #[arg(long, default_value_t = 5)]
    rounds: u32,
}

pub fn run(workspace: &Workspace, args: &BackupArgs) -> Result<()> {
    check(workspace, args.rounds)
}

/// A few backups.
pub fn run_suite(workspace: &Workspace) -> Result<Count> {
    check(workspace, 3)?;
    Ok(Count {
        passed: 3,
        ..Count::default()
    })
}

fn options() -> Vec<String> {
    let options = [
        "--plugin-load-add=ha_varve",
        "--default-storage-engine=VARVE",
        "--log-bin=binlog",
        "--binlog-format=ROW",
        "--server-id=1",
        "--sync-binlog=0",
        "--varve-flush-log-at-trx-commit=2",
        "--innodb-flush-log-at-trx-commit=2",
        // Small enough for pages to be written, and the log to be used again, all the time.
        "--varve-buffer-pool-size=16M",
        "--varve-redo-log-capacity=16M",
    ];
    options.map(String::from).to_vec()
}

fn check(workspace: &Workspace, rounds: u32) -> Result<()> {
    let prefix = plugin::prefix_for(workspace, &[Engine::Varve, Engine::Innodb])?;
    let program = programs_as_tested(workspace)?.join("varve");
    let dir = workspace.target.join("backup");
    remove_dir(&dir)?;
    let source = dir.join("source");
    DataDir(source.clone()).initialise(&prefix)?;
    let mut server = Server::start(&prefix, DataDir(source.clone()), None, &options())?;
    prepare(&server)?;
    let mut chain = Vec::new();
    for round in 0..rounds {
        let place = dir.join(format!("round-{round}"));
        let told = one(&prefix, &program, &server, &place, &mut chain);
        told.with_context(|| {
            format!(
                "round {round}; what there is of it is in {}",
                place.display()
            )
        })?;
        remove_dir(&place.join("restored"))?;
    }
    server.stop()?;
    remove_dir(&dir)
}

fn prepare(server: &Server) -> Result<()> {
    let mut client = server.connect()?;
    for statement in [
        "CREATE DATABASE d",
        "CREATE TABLE d.v (writer INT, n BIGINT, text VARCHAR(200), PRIMARY KEY (writer, n), KEY (text)) ENGINE=VARVE",
        "CREATE TABLE d.i (writer INT, n BIGINT, text VARCHAR(200), PRIMARY KEY (writer, n), KEY (text)) ENGINE=InnoDB",
        "CREATE TABLE d.a (writer INT, n BIGINT, PRIMARY KEY (writer, n)) ENGINE=Aria",
    ] {
        client.query(statement)?;
    }
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
                "CREATE TABLE {name} (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(100)) ENGINE=VARVE"
            ),
            format!("INSERT INTO {name} (v) SELECT text FROM d.v WHERE writer = 99 LIMIT 500"),
            format!("ALTER TABLE {name} ADD KEY (v), ADD COLUMN w INT DEFAULT {number}"),
            format!("RENAME TABLE {name} TO {other}"),
            format!("INSERT INTO {other} (v) VALUES ('last')"),
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

/// `chain`: backups that there are, and then this one, too.
fn one(
    prefix: &Prefix,
    program: &Path,
    server: &Server,
    place: &Path,
    chain: &mut Vec<PathBuf>,
) -> Result<()> {
    let load = Load::default();
    let (made, restored) = (place.join("made"), place.join("restored"));
    std::fs::create_dir_all(place)?;
    let (mut before, mut after, mut took) = ([0; WRITERS], [0; WRITERS], Duration::ZERO);
    let backed_up = thread::scope(|scope| -> Result<()> {
        let load = &load;
        for writer in 0..WRITERS {
            scope.spawn(move || {
                load.keep(
                    server
                        .connect()
                        .and_then(|mut c| write(&mut c, writer, load)),
                );
            });
        }
        scope.spawn(move || {
            load.keep(server.connect().and_then(|mut c| define(&mut c, load)));
        });
        thread::sleep(Duration::from_secs(1));
        before = load.numbers();
        let begun = Instant::now();
        let done = command::output(
            varve(prefix, program, "backup")
                .arg(format!("--socket={}", server.datadir.socket().display()))
                .arg("--user=root")
                .args(
                    chain
                        .last()
                        .map(|base| format!("--base={}", base.display())),
                )
                .arg(&made),
        );
        took = begun.elapsed();
        after = load.numbers();
        thread::sleep(Duration::from_millis(500));
        load.stops.store(true, Relaxed);
        done.map(|said| print!("{said}"))
    });
    if let Some(e) = load.failed.lock().expect("no panic").take() {
        return Err(e.context("a writer has failed"));
    }
    backed_up?;
    command::output(varve(prefix, program, "verify").arg(&made))?;
    chain.push(made);
    if chain.len() > MOST_IN_CHAIN {
        let merged = place.join("merged");
        let merge = varve(prefix, program, "backup").arg("--merge");
        command::output(merge.args(&*chain).arg(&merged))?;
        for merged in chain.drain(..) {
            remove_dir(&merged)?;
        }
        chain.push(merged);
    }
    command::output(varve(prefix, program, "verify").args(&*chain))?;
    let restore = varve(prefix, program, "restore").args(&*chain);
    let said = command::output(restore.arg(&restored))?;
    let noted = |key: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(key));
        line.map(|rest| rest.trim().to_string())
            .with_context(|| format!("no {key} in {said}"))
    };
    let (file, position) = (noted("binlog")?, noted("position")?);
    let mut second = Server::start(prefix, DataDir(restored.clone()), None, &options())?;
    let compared = compare_engines(&second, before, after).and_then(|()| {
        play(prefix, server, &second, &file, &position)?;
        compare_servers(server, &second)
    });
    second.stop()?;
    compared?;
    let written: u64 = after
        .iter()
        .zip(before)
        .map(|(after, before)| after - before)
        .sum();
    println!(
        "a backup in {:.1} s beside {written} transactions, from {file} {position}",
        took.as_secs_f64()
    );
    Ok(())
}

fn varve(prefix: &Prefix, program: &Path, command: &str) -> Cmd {
    prefix.own_program(program).arg(command)
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

/// Plays the first server's binary logs to the second one, from there on.
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
    for table in ours {
        let all = format!("SELECT * FROM d.{table} ORDER BY 1, 2");
        ensure!(
            a.query(&all)? == b.query(&all)?,
            "table {table} differs after the binary log was played"
        );
    }
    Ok(())
}
