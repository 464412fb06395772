//! `bench long-reader`: many single-row updates under a snapshot that has read the table, then how fast purge
//! catches up.
//!
//! For each size of the buffer pool a server is started, and the engines take turns in it: some seconds of
//! updates for comparison; a snapshot that reads the table; so many updates, meanwhile nothing can be purged;
//! the snapshot and a fresh one read the table; the snapshot ends, and updates go on until the history is
//! short. The sums that are read must be exactly those of the updates that were answered.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use varve_testbed::client::Client;
use varve_testbed::server::Engine;
use varve_testbed::workspace::Workspace;

use crate::benchmark::{BenchServer, Benchmark, Common};
use crate::load::{self, CAUGHT_UP, Load, Sampler};
use crate::stats::{median, share_below};
use crate::sysbench::Sysbench;
use crate::table::{Cell, Table};

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
    /// Seconds of updates before the snapshot, with which the throughput during the catch-up is compared
    #[arg(long, default_value_t = 10)]
    before: u64,
    /// Measure each engine so many times, in turn
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Give the catch-up up after so many seconds
    #[arg(long, default_value_t = 600)]
    patience: u64,
    /// Sizes of the buffer pool
    #[arg(long, value_delimiter = ',', default_value = "2G,32M")]
    pool: Vec<String>,
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

/// `count(*), sum(k)` of the table, and how long that took.
struct Sum {
    count: u64,
    sum: u64,
    took: Duration,
}

/// What happened to one engine.
struct Outcome {
    engine: Engine,
    tps_before: f64,
    snapshot_first: Sum,
    snapshot_again: Sum,
    fresh: Sum,
    tps_under_snapshot: f64,
    history: u64,
    undo_bytes: u64,
    /// `None`: patience ended first.
    catch_up: Option<Duration>,
    tps_catching_up: f64,
    /// Share of the windows of the catch-up that had less than half the median throughput of the windows
    /// before the snapshot.
    slow_windows: f64,
}

pub fn run(workspace: &Workspace, args: &LongReaderArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "long-reader", &args.common)?;
    let mut pools = Vec::new();
    for pool in &args.pool {
        let outcomes = with_pool(&benchmark, pool, args)?;
        if !args.common.json {
            print(pool, &outcomes, args);
        }
        pools.push(json!({
            "pool": pool, "engines": outcomes.iter().map(to_json).collect::<Vec<_>>(),
            "catch_up_ratio": catch_up_ratio(&outcomes, args),
        }));
    }
    benchmark.end(json!({
        "rows": args.rows, "updates": args.updates, "threads": args.threads, "settings": SETTINGS,
        "results": pools,
    }));
    Ok(())
}

fn with_pool(benchmark: &Benchmark, pool: &str, args: &LongReaderArgs) -> Result<Vec<Outcome>> {
    let pool = format!("buffer-pool-size={pool}");
    let mut server = benchmark.server(&[&[pool.as_str()], &SETTINGS[..]].concat())?;
    let databases = server.databases(1, args.rows);
    for database in &databases {
        database.prepare("oltp_update_index", 1)?;
    }
    let mut outcomes = Vec::new();
    for _ in 0..args.repeat {
        outcomes.extend(server.each(&databases, |server, table| with_engine(server, table, args))?);
    }
    server.end()?;
    Ok(outcomes)
}

fn with_engine(
    server: &BenchServer,
    table: &Sysbench<'_>,
    args: &LongReaderArgs,
) -> Result<Outcome> {
    let (engine, socket) = (table.engine, server.datadir.socket());
    let patience = Duration::from_secs(args.patience);
    let update = |most| Load::updates(table, args.threads, most);
    let mut client = server.connect()?;
    load::wait_for_history(&mut client, engine, CAUGHT_UP, patience)?;
    let history = load::history_name(engine);
    let sampler = Sampler::start(&socket, &["Com_update", &history])?;

    let before = timed(|| {
        let load = update(u64::MAX)?;
        std::thread::sleep(Duration::from_secs(args.before));
        load.stop()
    })?;
    load::wait_for_history(&mut client, engine, CAUGHT_UP, patience)?;

    let mut snapshot = server.connect()?;
    snapshot.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
    let snapshot_first = read_sum(&mut snapshot, table)?;
    let under = timed(|| update(args.updates)?.wait())?;
    let held = load::status(&mut client, &[&history])?[0];
    let undo_bytes = undo_bytes(&server.dir, engine)?;
    let snapshot_again = read_sum(&mut snapshot, table)?;
    let fresh = read_sum(&mut client, table)?;
    ensure!(
        (snapshot_first.count, snapshot_first.sum) == (snapshot_again.count, snapshot_again.sum),
        "the snapshot read other sums than before"
    );
    ensure!(
        fresh.count == args.rows && fresh.sum == snapshot_first.sum + args.updates,
        "a fresh snapshot does not see exactly the updates"
    );

    let load = update(u64::MAX)?;
    std::thread::sleep(SETTLED);
    let ended = Instant::now();
    snapshot.query("COMMIT")?;
    let caught_up = load::time_of_history(&mut client, engine, CAUGHT_UP, patience)?;
    let catch_up = caught_up.map(|_| ended.elapsed());
    std::thread::sleep(SHORTEST_SPAN.saturating_sub(ended.elapsed()));
    let until = Instant::now();
    load.stop()?;
    let samples = sampler.stop()?;
    let tps = |span: &Range<Instant>| samples.rate("Com_update", span);
    let windows = |span: &Range<Instant>| samples.rates("Com_update", span);
    let half = median(windows(&before)) / 2.0;
    if catch_up.is_none() {
        // It would be in the way of the next engine.
        load::wait_for_history(&mut client, engine, CAUGHT_UP, patience)?;
    }
    Ok(Outcome {
        engine,
        tps_before: tps(&before),
        snapshot_first,
        snapshot_again,
        fresh,
        tps_under_snapshot: tps(&under),
        history: held,
        undo_bytes,
        catch_up,
        tps_catching_up: tps(&(ended..until)),
        slow_windows: share_below(&windows(&(ended..until)), half),
    })
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

/// The size of the engine's undo tablespaces.
fn undo_bytes(dir: &Path, engine: Engine) -> Result<u64> {
    let extension = match engine {
        Engine::Varve => Some("vdt"),
        Engine::Innodb => None,
    };
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("undo") && path.extension().and_then(|e| e.to_str()) == extension {
            bytes += fs::metadata(&path)?.len();
        }
    }
    Ok(bytes)
}

/// The catch-up of the first engine in that of the second, by their medians.
fn catch_up_ratio(outcomes: &[Outcome], args: &LongReaderArgs) -> Option<f64> {
    let [first, second] = args.common.engines[..] else {
        return None;
    };
    let median_of = |engine| {
        let times = outcomes.iter().filter(|o| o.engine == engine);
        let times: Option<Vec<f64>> = times.map(|o| Some(o.catch_up?.as_secs_f64())).collect();
        times.map(median)
    };
    Some(median_of(first)? / median_of(second)?)
}

fn print(pool: &str, outcomes: &[Outcome], args: &LongReaderArgs) {
    println!(
        "pool {pool}: {} rows, {} updates under the snapshot, {} clients",
        args.rows, args.updates, args.threads
    );
    let table = Table::new(
        "engine:<7|first s:>9.2|again s:>9.2|fresh s:>9.2|history:>9|undo MiB:>9|tps before:>10|tps under:>9|catch-up s:>10|tps then:>9|share:>6|slow:>6",
    );
    table.print_head();
    for outcome in outcomes {
        let catch_up = match outcome.catch_up {
            Some(time) => format!("{:.2}", time.as_secs_f64()),
            None => format!(">{}", args.patience),
        };
        table.print([
            outcome.engine.name().into(),
            outcome.snapshot_first.took.as_secs_f64().into(),
            outcome.snapshot_again.took.as_secs_f64().into(),
            outcome.fresh.took.as_secs_f64().into(),
            Cell::of(outcome.history),
            Cell::of(outcome.undo_bytes >> 20),
            outcome.tps_before.into(),
            outcome.tps_under_snapshot.into(),
            catch_up.into(),
            outcome.tps_catching_up.into(),
            format!(
                "{:.0}%",
                100.0 * outcome.tps_catching_up / outcome.tps_before
            )
            .into(),
            format!("{:.1}%", 100.0 * outcome.slow_windows).into(),
        ]);
    }
    for engine in &args.common.engines {
        let of_engine = outcomes.iter().filter(|o| o.engine == *engine);
        let shares = of_engine.map(|o| 100.0 * o.tps_catching_up / o.tps_before);
        let share = median(shares);
        println!(
            "{}: share of the throughput, median {share:.0}%",
            engine.name()
        );
    }
    if let Some(ratio) = catch_up_ratio(outcomes, args) {
        println!("catch-up of the first in that of the second: {ratio:.2}");
    }
}

fn to_json(outcome: &Outcome) -> Value {
    json!({
        "engine": outcome.engine.name(),
        "snapshot_first_seconds": outcome.snapshot_first.took.as_secs_f64(),
        "snapshot_again_seconds": outcome.snapshot_again.took.as_secs_f64(),
        "fresh_seconds": outcome.fresh.took.as_secs_f64(),
        "count": outcome.fresh.count, "snapshot_sum": outcome.snapshot_again.sum, "fresh_sum": outcome.fresh.sum,
        "history": outcome.history, "undo_bytes": outcome.undo_bytes,
        "tps_before": outcome.tps_before, "tps_under_snapshot": outcome.tps_under_snapshot,
        "catch_up_seconds": outcome.catch_up.map(|time| time.as_secs_f64()),
        "tps_catching_up": outcome.tps_catching_up, "slow_windows": outcome.slow_windows,
    })
}
