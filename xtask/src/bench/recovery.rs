//! `bench recovery`: how soon a server answers after it was killed with gigabytes of redo.
//!
//! One engine after the other, on a server of its own with the same sizes. Four tables are filled and the server is restarted, so that nothing
//! is left to recover. Then so many rows are updated, in statements of a hundred rows at random places, while checkpoints are held back: the redo
//! log has room for everything, and the settings of `held_back` let dirty pages stay in the pool. The server is killed (SIGKILL), its
//! files are dropped from the system's cache, and it is started again. Two times are measured from then on:
//!
//! - until a point read in each table has given the value that was written last there, and a durable update was answered;
//! - until all redo is applied: InnoDB answers nobody before that, Varve says so in a status variable.
//!
//! Then many rows of each table are compared with what was written. Values are numbers of statements, which each client remembers for its
//! own table.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::fs::{Advice, fadvise};
use serde_json::json;

use super::load;
use super::sysbench::Sysbench;
use crate::client::Client;
use crate::plugin;
use crate::prefix::Prefix;
use crate::server::{DataDir, Engine, Server};
use crate::workspace::Workspace;

#[derive(clap::Args)]
pub struct RecoveryArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Rows of each of the four tables
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Rows that are updated before the server is killed
    #[arg(long, default_value_t = 8_000_000)]
    updates: u64,
    /// Size of the buffer pool
    #[arg(long, default_value = "2G")]
    pool: String,
    /// Size of the redo log, which has to hold all updates
    #[arg(long, default_value = "8G")]
    log: String,
    /// Seconds after which a server that does not answer is given up
    #[arg(long, default_value_t = 1200)]
    patience: u64,
    /// Compare these engines
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Engine::Varve, Engine::Innodb])]
    engines: Vec<Engine>,
    /// Options for mariadbd
    #[arg(last = true, value_name = "MARIADBD OPTIONS")]
    options: Vec<String>,
}

/// Checkpoints are held back while rows are updated.
fn held_back(engine: Engine) -> &'static [&'static str] {
    match engine {
        Engine::Varve => &["io-capacity=100"],
        Engine::Innodb => &[
            "io-capacity=100",
            "adaptive-flushing=OFF",
            "max-dirty-pages-pct=99.9",
            "max-dirty-pages-pct-lwm=0",
        ],
    }
}

const TABLES: u32 = 4;
/// Rows that a statement updates.
const RANGE: u64 = 100;
/// Rows of each table that are compared in the end.
const COMPARED: u64 = 2000;
const POLL: Duration = Duration::from_millis(5);

/// The number of the statement that wrote each row of a table last; 0: none.
type Written = Vec<u64>;

struct Outcome {
    engine: Engine,
    /// What its log held beyond the checkpoint.
    redo_bytes: u64,
    updates_took: Duration,
    first_answer: Duration,
    applied: Duration,
    peak_bytes: u64,
}

pub fn run(workspace: &Workspace, args: &RecoveryArgs) -> Result<()> {
    let prefix = plugin::prefix_for(workspace, &args.engines)?;
    let mut outcomes = Vec::new();
    for &engine in &args.engines {
        let outcome = with_engine(workspace, &prefix, engine, args);
        let outcome = outcome.with_context(|| engine.name())?;
        if !args.json {
            print(&outcome);
        }
        outcomes.push(outcome);
    }
    let ratio = |time: fn(&Outcome) -> Duration| match &outcomes[..] {
        [ours, theirs] => Some(time(theirs).as_secs_f64() / time(ours).as_secs_f64()),
        _ => None,
    };
    let (first, applied) = (ratio(|o| o.first_answer), ratio(|o| o.applied));
    if args.json {
        let result = json!({
            "benchmark": "recovery", "rows": args.rows, "updates": args.updates, "pool": args.pool, "log": args.log,
            "engines": outcomes.iter().map(to_json).collect::<Vec<_>>(),
            "first_answer_ratio": first, "applied_ratio": applied,
        });
        println!("{result:#}");
    } else if let (Some(first), Some(applied)) = (first, applied) {
        println!("first answer {first:.1} times sooner, applied {applied:.1} times sooner");
    }
    Ok(())
}

fn with_engine(
    workspace: &Workspace,
    prefix: &Prefix,
    engine: Engine,
    args: &RecoveryArgs,
) -> Result<Outcome> {
    let engines = [engine];
    let (pool, log) = (
        format!("buffer-pool-size={}", args.pool),
        format!("log-file-size={}", args.log),
    );
    let sizes = [pool.as_str(), log.as_str(), "doublewrite=ON"];
    let fast = [&sizes[..], &["flush-log-at-trx-commit=2"]].concat();
    let (mut server, dir) = super::fresh_server(
        workspace,
        prefix,
        "recovery",
        &engines,
        &fast,
        &args.options,
    )?;
    let tables = Sysbench::on(&server, prefix, (0, engine), (TABLES, args.rows));
    tables.prepare("oltp_update_non_index", 2)?;
    server.stop()?;
    drop(server);

    let settings = [&fast[..], held_back(engine)].concat();
    let options = super::server_options(&engines, &settings, &args.options);
    let mut server = Server::start(prefix, DataDir(dir.clone()), None, &options)?;
    let begun = Instant::now();
    let mut written = update(&tables, args.updates)?;
    let updates_took = begun.elapsed();
    let redo_bytes = {
        let name = load::status_name(engine, "checkpoint_age");
        load::status(&mut server.connect()?, &[&name])?[0]
    };
    server.kill()?;
    drop(server);
    drop_from_cache(&dir)?;

    let settings = [&sizes[..], &["flush-log-at-trx-commit=1"]].concat();
    let options = super::server_options(&engines, &settings, &args.options);
    let deadline = Instant::now() + Duration::from_secs(args.patience);
    let begun = Instant::now();
    let mut server = Server::start_unready(prefix, DataDir(dir.clone()), &options)?;
    let mut client = connect(&mut server, deadline)?;
    answer(&mut client, &tables, &mut written)?;
    let first_answer = begun.elapsed();
    wait_applied(&mut client, engine, deadline)?;
    let applied = begun.elapsed();
    let peak_bytes = peak_bytes(server.pid())?;
    compare(&mut client, &tables, &written)?;
    server.check_alive()?;
    server.stop()?;
    drop(server);
    fs::remove_dir_all(dir)?;
    Ok(Outcome {
        engine,
        redo_bytes,
        updates_took,
        first_answer,
        applied,
        peak_bytes,
    })
}

/// The value of a row that this statement wrote.
fn value(statement: u64) -> String {
    format!("{statement:012}{}", "abcdefgh".repeat(13))
}

/// Updates so many rows, a client for each table.
fn update(tables: &Sysbench<'_>, updates: u64) -> Result<Vec<Written>> {
    let statements = updates.div_ceil(RANGE * u64::from(TABLES));
    let clients: Vec<_> = (1..=TABLES)
        .map(|n| {
            let (socket, rows) = (tables.socket.clone(), tables.rows);
            let table = table(tables, n);
            thread::spawn(move || update_table(&socket, &table, u64::from(n), rows, statements))
        })
        .collect();
    let done = clients.into_iter().map(|client| {
        let done = client.join();
        done.map_err(|_| anyhow!("a client panicked"))?
    });
    done.collect()
}

fn update_table(
    socket: &Path,
    table: &str,
    seed: u64,
    rows: u64,
    statements: u64,
) -> Result<Written> {
    let mut client = Client::connect(socket)?;
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut written = vec![0; rows as usize + 1];
    for statement in 1..=statements {
        let first = rng.u64(1..=(rows + 1).saturating_sub(RANGE).max(1));
        let last = (first + RANGE - 1).min(rows);
        let value = value(statement);
        client.query(&format!(
            "UPDATE {table} SET c = '{value}' WHERE id BETWEEN {first} AND {last}"
        ))?;
        written[first as usize..=last as usize].fill(statement);
    }
    Ok(written)
}

fn table(tables: &Sysbench<'_>, n: u32) -> String {
    format!("{}.sbtest{n}", tables.database)
}

/// Has the system forget what it knows of the files, so that they are read from the disk.
fn drop_from_cache(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path: PathBuf = entry?.path();
        let kind = fs::symlink_metadata(&path)?;
        if kind.is_dir() {
            drop_from_cache(&path)?;
        } else if kind.is_file() {
            let file = File::open(&path)?;
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// As soon as the server takes a connection.
fn connect(server: &mut Server, deadline: Instant) -> Result<Client> {
    loop {
        server.check_alive()?;
        match Client::connect(&server.datadir.socket()) {
            Ok(client) => return Ok(client),
            Err(e) => ensure!(Instant::now() < deadline, "the server does not answer: {e}"),
        }
        thread::sleep(POLL);
    }
}

/// A point read in each table, and a durable update.
fn answer(client: &mut Client, tables: &Sysbench<'_>, written: &mut [Written]) -> Result<()> {
    for (n, written) in (1..).zip(written.iter()) {
        let id = fastrand::u64(1..=tables.rows);
        check_row(client, &table(tables, n), id, written[id as usize])?;
    }
    let (id, statement) = (fastrand::u64(1..=tables.rows), u64::from(u32::MAX));
    let value = value(statement);
    client.query(&format!(
        "UPDATE {} SET c = '{value}' WHERE id = {id}",
        table(tables, 1)
    ))?;
    written[0][id as usize] = statement;
    Ok(())
}

fn check_row(client: &mut Client, table: &str, id: u64, statement: u64) -> Result<()> {
    let found = client.value(&format!("SELECT c FROM {table} WHERE id = {id}"))?;
    let expected = value(statement);
    ensure!(
        statement == 0 || found == expected,
        "row {id} of {table} is {found}, not {expected}"
    );
    Ok(())
}

fn wait_applied(client: &mut Client, engine: Engine, deadline: Instant) -> Result<()> {
    if engine == Engine::Innodb {
        // It answers nobody before.
        return Ok(());
    }
    let name = load::status_name(engine, "recovery_pages_left");
    while load::status(client, &[&name])?[0] > 0 {
        ensure!(Instant::now() < deadline, "pages are left");
        thread::sleep(POLL);
    }
    Ok(())
}

fn compare(client: &mut Client, tables: &Sysbench<'_>, written: &[Written]) -> Result<()> {
    for (n, written) in (1..).zip(written) {
        let table = table(tables, n);
        for _ in 0..COMPARED {
            let id = fastrand::u64(1..=tables.rows);
            check_row(client, &table, id, written[id as usize])?;
        }
        let rows = client.value(&format!("SELECT count(*) FROM {table}"))?;
        ensure!(rows == tables.rows.to_string(), "{table} has {rows} rows");
    }
    Ok(())
}

/// The most memory that the process has had.
fn peak_bytes(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB"));
    let kilobytes: u64 = kilobytes.context("no VmHWM")?.trim().parse()?;
    Ok(kilobytes * 1024)
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

fn print(outcome: &Outcome) {
    println!(
        "{:7} {} MiB of redo ({:.0} s of updates); first answer after {:.2} s, applied after {:.2} s; peak memory {} MiB",
        outcome.engine.name(),
        mib(outcome.redo_bytes),
        outcome.updates_took.as_secs_f64(),
        outcome.first_answer.as_secs_f64(),
        outcome.applied.as_secs_f64(),
        mib(outcome.peak_bytes),
    );
}

fn to_json(outcome: &Outcome) -> serde_json::Value {
    json!({
        "engine": outcome.engine.name(), "settings": held_back(outcome.engine), "redo_bytes": outcome.redo_bytes,
        "updates_s": outcome.updates_took.as_secs_f64(), "first_answer_s": outcome.first_answer.as_secs_f64(),
        "applied_s": outcome.applied.as_secs_f64(), "peak_bytes": outcome.peak_bytes,
    })
}
