//! `bench long-reader`: many single-row updates under a snapshot that has read the table: what it costs, what
//! it keeps, and how fast all is as before.
//!
//! For each size of the buffer pool, and for each repetition, a server is started, and the engines take turns
//! in it: updates without a snapshot, for comparison; a snapshot that reads the table; so many updates under
//! it; the snapshot and a fresh one read the table; updates go on, the snapshot ends, and they go on until
//! the history is short. The sums that are read must be exactly those of the updates that were answered.

mod figures;
mod picture;

use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use varve_testbed::client::Client;
use varve_testbed::server::Engine;
use varve_testbed::workspace::Workspace;

use crate::benchmark::{BenchServer, Benchmark, Common};
use crate::load::{self, CAUGHT_UP, Load, Probe, Sampler, Samples};
use crate::stats::{median, share_below};
use crate::sysbench::Sysbench;
use figures::Outcome;
use picture::Timeline;

#[derive(clap::Args)]
pub struct LongReaderArgs {
    /// Rows of the table
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Updates under the snapshot
    #[arg(long, default_value_t = 750_000)]
    updates: u64,
    /// Clients that update
    #[arg(long, default_value_t = 4)]
    threads: u32,
    /// Seconds of updates before the snapshot, with which those under it are compared; without it: as many
    /// updates as under it
    #[arg(long)]
    before: Option<u64>,
    /// Seconds for which updates go on after the snapshot's end, at least
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    after: u64,
    /// Measure each engine so many times, in turn
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Give the catch-up up after so many seconds
    #[arg(long, default_value_t = 600)]
    patience: u64,
    /// Sizes of the buffer pool
    #[arg(long, value_delimiter = ',', default_value = "2G,32M")]
    pool: Vec<String>,
    /// Draw the first run with the first pool to this file: history length, updates a second, undo
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

const SETTINGS: [&str; 4] = [
    "log-file-size=1G",
    "doublewrite=ON",
    "flush-log-at-trx-commit=1",
    "undo-tablespaces=2",
];
/// Throughput is looked at for so long at least.
const SHORTEST_SPAN: Duration = Duration::from_secs(1);

/// The updates that go on when the snapshot ends do so for this long before: their clients have connected.
const SETTLED: Duration = Duration::from_secs(1);

/// What is sampled besides the history.
const UPDATES: &str = "Com_update";
const UNDO: &str = "undo bytes";
const STORE: &str = "Varve_history_store_bytes";

/// `count(*), sum(k)` of the table, and how long that took.
struct Sum {
    count: u64,
    sum: u64,
    took: Duration,
}

pub fn run(workspace: &Workspace, args: &LongReaderArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "long-reader", &args.common)?;
    let mut pools = Vec::new();
    for (n, pool) in args.pool.iter().enumerate() {
        let mut outcomes = Vec::new();
        for round in 0..args.repeat {
            outcomes.extend(one_round(&benchmark, pool, round, args)?);
            if let (0, 0, Some(file)) = (n, round, &args.svg) {
                fs::write(file, picture::draw(&outcomes))
                    .with_context(|| file.display().to_string())?;
            }
        }
        if !args.common.json {
            figures::print(pool, &outcomes, args);
        }
        pools.push(json!({
            "pool": pool, "engines": outcomes.iter().map(figures::to_json).collect::<Vec<_>>(),
        }));
    }
    benchmark.end(json!({
        "rows": args.rows, "updates": args.updates, "threads": args.threads, "settings": SETTINGS,
        "results": pools,
    }));
    Ok(())
}

/// Each engine once, in a new server: an undo tablespace that has grown would hide that it grows.
fn one_round(
    benchmark: &Benchmark,
    pool: &str,
    round: u32,
    args: &LongReaderArgs,
) -> Result<Vec<Outcome>> {
    let pool = format!("buffer-pool-size={pool}");
    let mut server = benchmark.server(&[&[pool.as_str()], &SETTINGS[..]].concat())?;
    let mut databases = server.databases(1, args.rows);
    // A machine that slows down hurts both alike.
    let engines = databases.len();
    databases.rotate_left(round as usize % engines);
    for database in &databases {
        database.prepare("oltp_update_index", 1)?;
    }
    let mut outcomes = server.each(&databases, |server, table| with_engine(server, table, args))?;
    outcomes.rotate_right(round as usize % engines);
    server.end()?;
    Ok(outcomes)
}

/// The parts of a run in which there are updates.
struct Spans {
    before: Range<Instant>,
    under: Range<Instant>,
    after: Range<Instant>,
    /// When the snapshot ended.
    ended: Instant,
    /// `None`: patience ended first.
    catch_up: Option<Duration>,
}

/// What the snapshot and fresh ones read, and what was kept for it when the updates under it had been made.
struct Held {
    first: Sum,
    again: Sum,
    /// The mean of one before the snapshot's second scan and one after it.
    fresh: Duration,
    fresh_sum: u64,
    /// The table with its index, when the snapshot was opened.
    table_bytes: u64,
    undo_before: u64,
    undo_bytes: u64,
    store_bytes: u64,
    history: u64,
}

fn with_engine(
    server: &BenchServer,
    table: &Sysbench<'_>,
    args: &LongReaderArgs,
) -> Result<Outcome> {
    let engine = table.engine;
    let patience = Duration::from_secs(args.patience);
    let update = |most| Load::updates(table, args.threads, most);
    let mut client = server.connect()?;
    let client = &mut client;
    load::wait_for_history(client, engine, CAUGHT_UP, patience)?;
    let history = load::history_name(engine);
    let mut sampled = vec![UPDATES, &history];
    if engine == Engine::Varve {
        sampled.push(STORE);
    }
    let undo = probe_of_undo(server.dir.clone(), engine);
    let socket = server.datadir.socket();
    let sampler = Sampler::start_with(&socket, &sampled, vec![(UNDO, undo)])?;

    let before = timed(|| match args.before {
        Some(seconds) => {
            let load = update(u64::MAX)?;
            std::thread::sleep(Duration::from_secs(seconds));
            load.stop()
        }
        None => update(args.updates)?.wait(),
    })?;
    load::wait_for_history(client, engine, CAUGHT_UP, patience)?;

    let undo_before = undo_bytes(&server.dir, engine)?;
    let table_bytes = server.bytes_of(table)?;
    let mut snapshot = server.connect()?;
    snapshot.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
    let first = read_sum(&mut snapshot, table)?;
    let under = timed(|| update(args.updates)?.wait())?;
    let kept = load::status(client, &sampled[1..])?;
    let undo_bytes = undo_bytes(&server.dir, engine)?;
    let fresh = read_sum(client, table)?;
    let again = read_sum(&mut snapshot, table)?;
    let fresh_again = read_sum(client, table)?;
    check(&first, &again, &fresh, args)?;
    check(&first, &again, &fresh_again, args)?;

    let begun = Instant::now();
    let load = update(u64::MAX)?;
    std::thread::sleep(SETTLED);
    let ended = Instant::now();
    snapshot.query("COMMIT")?;
    let caught_up = load::time_of_history(client, engine, CAUGHT_UP, patience)?;
    let catch_up = caught_up.map(|_| ended.elapsed());
    std::thread::sleep(Duration::from_secs(args.after).saturating_sub(ended.elapsed()));
    let after = begun..Instant::now();
    load.stop()?;
    let samples = sampler.stop()?;
    if catch_up.is_none() {
        // It would be in the way of the next engine.
        load::wait_for_history(client, engine, CAUGHT_UP, patience)?;
    }
    let held = Held {
        fresh: (fresh.took + fresh_again.took) / 2,
        fresh_sum: fresh.sum,
        first,
        again,
        table_bytes,
        undo_before,
        undo_bytes,
        store_bytes: kept.get(1).copied().unwrap_or(0),
        history: kept[0],
    };
    let spans = Spans {
        before,
        under,
        after,
        ended,
        catch_up,
    };
    Ok(outcome(engine, held, &spans, &samples))
}

fn outcome(engine: Engine, held: Held, spans: &Spans, samples: &Samples) -> Outcome {
    let history = load::history_name(engine);
    let tps = |span: &Range<Instant>| samples.rate(UPDATES, span);
    let windows = |span: &Range<Instant>| samples.rates(UPDATES, span);
    let caught_up = spans.catch_up.unwrap_or(spans.after.end - spans.ended);
    let catching_up = spans.ended..spans.ended + caught_up.max(SHORTEST_SPAN);
    let longest = samples.values(&history, &spans.under);
    let half = median(windows(&spans.before)) / 2.0;
    Outcome {
        engine,
        held,
        longest_history: longest.iter().map(|(_, n)| *n).max().unwrap_or(0),
        tps_before: tps(&spans.before),
        tps_under: tps(&spans.under),
        catch_up: spans.catch_up,
        tps_catching_up: tps(&catching_up),
        tps_after: tps(&(spans.ended..spans.after.end)),
        slow_windows: share_below(&windows(&catching_up), half),
        timeline: Timeline::of(engine, spans, samples),
    }
}

fn check(first: &Sum, again: &Sum, fresh: &Sum, args: &LongReaderArgs) -> Result<()> {
    ensure!(
        (first.count, first.sum) == (again.count, again.sum),
        "the snapshot read other sums than before"
    );
    ensure!(
        fresh.count == args.rows && fresh.sum == first.sum + args.updates,
        "a fresh snapshot does not see exactly the updates"
    );
    Ok(())
}

/// When it took place.
fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<Range<Instant>> {
    let begun = Instant::now();
    work()?;
    Ok(begun..Instant::now())
}

fn read_sum(client: &mut Client, table: &Sysbench<'_>) -> Result<Sum> {
    let begun = Instant::now();
    let sql = format!("SELECT count(*), sum(k) FROM {}.sbtest1", table.database);
    let rows = client.query(&sql)?;
    let took = begun.elapsed();
    let number = |column: usize| -> Result<u64> {
        let value = rows.first().and_then(|row| row[column].as_ref());
        Ok(value.context("no sum")?.parse()?)
    };
    Ok(Sum {
        count: number(0)?,
        sum: number(1)?,
        took,
    })
}

fn probe_of_undo(dir: PathBuf, engine: Engine) -> Probe {
    Box::new(move || undo_bytes(&dir, engine))
}

/// The size of the engine's undo tablespaces, for InnoDB with the system tablespace: its undo is there if
/// what initialised the data directory had not come to an end of its purge.
fn undo_bytes(dir: &Path, engine: Engine) -> Result<u64> {
    let is_undo = |name: &str| match engine {
        Engine::Varve => name.starts_with("undo") && name.ends_with(".vdt"),
        Engine::Innodb => name == "ibdata1" || name.starts_with("undo") && !name.contains('.'),
    };
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if is_undo(&path.file_name().unwrap_or_default().to_string_lossy()) {
            bytes += match fs::metadata(&path) {
                Ok(metadata) => metadata.len(),
                // One that is truncated gives way to a new file.
                Err(error) if error.kind() == ErrorKind::NotFound => 0,
                Err(error) => return Err(error.into()),
            };
        }
    }
    Ok(bytes)
}
