//! `bench recovery`: how soon a server answers after it was killed with gigabytes of redo.
//!
//! One engine after the other, on a server of its own with the same sizes. Four tables are filled and the
//! server is restarted, so that nothing is left to recover. Then so many rows are updated, in statements of a
//! hundred rows at random places, while checkpoints are held back: the redo log has room for everything, and
//! `HELD_BACK` lets dirty pages stay in the pool. The server is killed (SIGKILL), its files are dropped from
//! the system's cache, and it is started again, with the usual settings. Two times are measured from then on:
//!
//! - until a point read in each table has given the value that was written last there, and a durable update
//!   was answered;
//! - until all redo is applied: InnoDB answers nobody before that, Varve says so in a status variable.
//!
//! Then many rows of each table are compared with what was written. Values are numbers of statements, which
//! each client remembers for its own table.
//!
//! It fails, rather than tell a time that means nothing, if a row is not what was written last, if files are
//! still in the system's cache when the server is started again, if the checkpoint was not held back, or if
//! the engine did not recover.

use std::fs::{self, File};
use std::io::IoSliceMut;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::fs::{Advice, SeekFrom, fadvise, seek};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use serde_json::{Value, json};
use varve_testbed::client::Client;
use varve_testbed::server::{Engine, Server};
use varve_testbed::workspace::Workspace;

use crate::benchmark::{Benchmark, Common};
use crate::load;
use crate::process::memory_bytes;
use crate::sysbench::Sysbench;

#[derive(clap::Args)]
pub struct RecoveryArgs {
    /// Rows of each of the four tables
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Rows that are updated before the server is killed; each takes InnoDB some 290 bytes of redo
    #[arg(long, default_value_t = 12_000_000)]
    updates: u64,
    /// Size of the buffer pool
    #[arg(long, default_value = "2G")]
    pool: String,
    /// Size of the redo log, which has to hold all updates below the age at which any engine begins to write:
    /// two thirds of it
    #[arg(long, default_value = "6G")]
    log: String,
    /// Seconds after which a server that does not answer is given up
    #[arg(long, default_value_t = 1200)]
    patience: u64,
    #[command(flatten)]
    common: Common,
}

/// Settings of both engines while rows are updated: nothing is written for its age, nor because much of the
/// pool is dirty, so that the checkpoint stays where it was, and no undo tablespace is replaced, which would
/// take its redo along.
const HELD_BACK: &[&str] = &[
    "adaptive-flushing=OFF",
    "max-dirty-pages-pct=99.9",
    "max-dirty-pages-pct-lwm=0",
    "io-capacity=100",
    "undo-log-truncate=OFF",
];

const TABLES: u32 = 4;
/// Rows that a statement updates.
const RANGE: u64 = 100;
/// Rows of each table that are compared in the end.
const COMPARED: u64 = 2000;
const POLL: Duration = Duration::from_millis(5);
/// Less often, as all that the server counts is counted for it.
const STATUS_POLL: Duration = Duration::from_millis(20);
/// A file's places that are looked for in the system's cache.
const LOOKED_AT: u64 = 64;

/// The number of the statement that wrote each row of a table last; 0: none.
type Written = Vec<u64>;

struct Outcome {
    engine: Engine,
    /// What its log held beyond the checkpoint.
    redo_bytes: u64,
    filling_took: Duration,
    updates_took: Duration,
    first_answer: Duration,
    applied: Duration,
    peak_bytes: u64,
    /// Lines of the server's log about its recovery.
    said: Vec<String>,
}

pub fn run(workspace: &Workspace, args: &RecoveryArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "recovery", &args.common)?;
    let mut outcomes = Vec::new();
    if !args.common.json {
        println!(
            "{TABLES} tables of {} rows, {} rows updated, pool {}, redo log {}; checkpoints held back by {}",
            args.rows,
            args.updates,
            args.pool,
            args.log,
            HELD_BACK.join(" ")
        );
    }
    for &engine in &args.common.engines {
        let outcome = with_engine(&benchmark, engine, args);
        let outcome = outcome.with_context(|| engine.name())?;
        if !args.common.json {
            print(&outcome);
        }
        outcomes.push(outcome);
    }
    let ratio = |time: fn(&Outcome) -> Duration| match &outcomes[..] {
        [ours, theirs] => Some(time(theirs).as_secs_f64() / time(ours).as_secs_f64()),
        _ => None,
    };
    let (first, applied) = (ratio(|o| o.first_answer), ratio(|o| o.applied));
    if let (false, Some(first), Some(applied)) = (args.common.json, first, applied) {
        println!("first answer {first:.1} times sooner, applied {applied:.1} times sooner");
    }
    benchmark.end(json!({
        "rows": args.rows, "updates": args.updates, "pool": args.pool, "log": args.log,
        "held_back_by": HELD_BACK, "engines": outcomes.iter().map(to_json).collect::<Vec<_>>(),
        "first_answer_ratio": first, "applied_ratio": applied,
    }));
    Ok(())
}

fn with_engine(benchmark: &Benchmark, engine: Engine, args: &RecoveryArgs) -> Result<Outcome> {
    let (pool, log) = (
        format!("buffer-pool-size={}", args.pool),
        format!("log-file-size={}", args.log),
    );
    // What the pool held before is not read ahead: that would be more work for one than for the other.
    let sizes = [
        pool.as_str(),
        log.as_str(),
        "doublewrite=ON",
        "buffer-pool-load-at-startup=OFF",
    ];
    let fast = [&sizes[..], &["flush-log-at-trx-commit=2"]].concat();
    let begun = Instant::now();
    let mut server = benchmark.server_of(&[engine], &fast)?;
    let tables = &server.databases(TABLES, args.rows)[0];
    tables.prepare("oltp_update_non_index", 2)?;
    server.stop()?;
    let filling_took = begun.elapsed();

    server.restart(&[&fast[..], HELD_BACK].concat(), |prefix, dir, options| {
        Server::start(prefix, dir, None, options)
    })?;
    let begun = Instant::now();
    let (mut written, redo_bytes) = update_held_back(&server, tables, args.updates)?;
    let updates_took = begun.elapsed();
    server.kill()?;
    drop_from_cache(&server.dir)?;

    let settings = [&sizes[..], &["flush-log-at-trx-commit=1"]].concat();
    let deadline = Instant::now() + Duration::from_secs(args.patience);
    let said_before = fs::read(server.datadir.log())?.len();
    let begun = Instant::now();
    server.restart(&settings, Server::start_unready)?;
    let mut client = connect(&mut server, deadline)?;
    answer(&mut client, tables, &mut written)?;
    let first_answer = begun.elapsed();
    wait_applied(&mut client, engine, deadline)?;
    let applied = begun.elapsed();
    let peak_bytes = memory_bytes(server.pid(), "VmHWM")?;
    let said = fs::read(server.datadir.log())?.split_off(said_before);
    check_recovered(&mut client, engine, redo_bytes, &said)?;
    let said = String::from_utf8_lossy(&said);
    let of_recovery = said.lines().filter(|line| line.contains(" recovery: "));
    let said = of_recovery.map(String::from).collect();
    compare(&mut client, tables, &written)?;
    server.check_alive()?;
    server.end()?;
    Ok(Outcome {
        engine,
        redo_bytes,
        filling_took,
        updates_took,
        first_answer,
        applied,
        peak_bytes,
        said,
    })
}

/// The value of a row that this statement wrote.
fn value(statement: u64) -> String {
    format!("{statement:012}{}", "abcdefgh".repeat(13))
}

/// Updates rows, and returns what was written and how much redo there is for it.
fn update_held_back(
    server: &Server,
    tables: &Sysbench<'_>,
    updates: u64,
) -> Result<(Vec<Written>, u64)> {
    let engine = tables.engine;
    let names = ["lsn_current", "checkpoint_age"].map(|name| load::status_name(engine, name));
    let mut client = server.connect()?;
    let mut read = || load::status(&mut client, &[&names[0], &names[1]]);
    let before = read()?;
    let written = update(tables, updates)?;
    let after = read()?;
    let logged = after[0].saturating_sub(before[0]);
    ensure!(
        after[1] >= logged / 20 * 19,
        "the checkpoint was not held back: {} MiB were logged, {} MiB are left to recover; give the redo log more room",
        mib(logged),
        mib(after[1]),
    );
    Ok((written, after[1]))
}

/// What the engine itself says of its recovery, in a status variable or in the log of the server.
fn check_recovered(
    client: &mut Client,
    engine: Engine,
    redo_bytes: u64,
    said: &[u8],
) -> Result<()> {
    if engine == Engine::Innodb {
        let said = String::from_utf8_lossy(said).to_lowercase();
        ensure!(
            said.contains("crash recovery"),
            "it says nothing of a crash recovery"
        );
        return Ok(());
    }
    let found = load::status(client, &[&load::status_name(engine, "recovery_redo_bytes")])?[0];
    ensure!(
        found >= redo_bytes / 10 * 9,
        "there were {} MiB of redo, and it found {} MiB",
        mib(redo_bytes),
        mib(found)
    );
    Ok(())
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

/// Has the system forget what it knows of the files, so that they are read from the disk, and makes sure of
/// it.
fn drop_from_cache(dir: &Path) -> Result<()> {
    let mut files = Vec::new();
    list_files(dir, &mut files)?;
    for path in &files {
        File::open(path)?.sync_all()?;
    }
    let (mut cached, mut looked_at) = (0, 0);
    for path in &files {
        let file = File::open(path)?;
        let forget = || fadvise(&file, 0, None, Advice::DontNeed);
        forget()?;
        // Looking must not have the system read the next places, too.
        fadvise(&file, 0, None, Advice::Random)?;
        let bytes = file.metadata()?.len();
        if bytes >= 1 << 20 {
            for at in (0..LOOKED_AT).map(|n| bytes / LOOKED_AT * n) {
                // Where nothing was ever written there is nothing to be read.
                if seek(&file, SeekFrom::Data(at)) == Ok(at) {
                    cached += u32::from(is_cached(&file, at)?);
                    looked_at += 1;
                }
            }
            forget()?;
        }
    }
    ensure!(
        cached * 20 <= looked_at,
        "{} is still in the system's cache: {cached} of {looked_at} places",
        dir.display()
    );
    Ok(())
}

fn list_files(dir: &Path, out: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let kind = fs::symlink_metadata(&path)?;
        if kind.is_dir() {
            list_files(&path, out)?;
        } else if kind.is_file() {
            out.push(path);
        }
    }
    Ok(())
}

/// Whether the system can give this byte of the file without the disk.
fn is_cached(file: &File, at: u64) -> Result<bool> {
    let mut byte = [0];
    let read = preadv2(
        file,
        &mut [IoSliceMut::new(&mut byte)],
        at,
        ReadWriteFlags::NOWAIT,
    );
    match read {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(e) => Err(e).context("the system does not say what is in its cache"),
    }
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

/// A point read in each table, of a row that was updated, and a durable update.
fn answer(client: &mut Client, tables: &Sysbench<'_>, written: &mut [Written]) -> Result<()> {
    for (n, written) in (1..).zip(written.iter()) {
        let id = updated_row(written)?;
        check_row(client, &table(tables, n), id, written[id as usize])?;
    }
    let id = updated_row(&written[0])?;
    let statement = u64::from(u32::MAX);
    let value = value(statement);
    client.query(&format!(
        "UPDATE {} SET c = '{value}' WHERE id = {id}",
        table(tables, 1)
    ))?;
    written[0][id as usize] = statement;
    Ok(())
}

/// One of those that were updated, at random.
fn updated_row(written: &Written) -> Result<u64> {
    let rows = written.len() as u64 - 1;
    let mut tries = std::iter::repeat_with(|| fastrand::u64(1..=rows)).take(1000);
    let found = tries.find(|id| written[*id as usize] > 0);
    found.context("hardly any row was updated")
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
        thread::sleep(STATUS_POLL);
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

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

fn print(outcome: &Outcome) {
    println!(
        "{:7} {} MiB of redo ({:.0} s of filling, {:.0} s of updates); first answer after {:.2} s, applied after {:.2} s; peak memory {} MiB",
        outcome.engine.name(),
        mib(outcome.redo_bytes),
        outcome.filling_took.as_secs_f64(),
        outcome.updates_took.as_secs_f64(),
        outcome.first_answer.as_secs_f64(),
        outcome.applied.as_secs_f64(),
        mib(outcome.peak_bytes),
    );
    outcome.said.iter().for_each(|line| println!("    {line}"));
}

fn to_json(outcome: &Outcome) -> Value {
    json!({
        "engine": outcome.engine.name(), "redo_bytes": outcome.redo_bytes,
        "filling_s": outcome.filling_took.as_secs_f64(), "updates_s": outcome.updates_took.as_secs_f64(), "first_answer_s": outcome.first_answer.as_secs_f64(),
        "applied_s": outcome.applied.as_secs_f64(), "peak_bytes": outcome.peak_bytes,
    })
}
