//! `bench multi-table`: several tables, many times the buffer pool, which some clients change while others
//! read long ranges in transactions that last: how much of both is done, how long the history gets, and what
//! is read, second by second. With one purge thread and with several.
//!
//! The engines take turns in one server, with the same sizes, and past the operating system's cache.

use std::fs;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use varve_testbed::server::Engine;
use varve_testbed::workspace::Workspace;

use crate::benchmark::{BenchServer, Benchmark, Common};
use crate::load::{self, Load, Probe, Sampler, Samples};
use crate::process::Transferred;
use crate::stats::median;
use crate::svg::{self, Line, Panel};
use crate::sysbench::{ROW_BYTES, Sysbench};
use crate::table::{Cell, Table};

#[derive(clap::Args)]
pub struct MultiTableArgs {
    /// MiB of the buffer pool
    #[arg(long, default_value_t = 32)]
    pool: u64,
    /// The tables take so many times the pool
    #[arg(long, default_value_t = 25.0)]
    data: f64,
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    tables: u32,
    /// Clients that change rows, each a transaction of its own
    #[arg(long, default_value_t = 4)]
    writers: u32,
    /// Clients that read ranges, ten in a transaction
    #[arg(long, default_value_t = 4)]
    readers: u32,
    /// A range is one so many-th of a table
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    part: u64,
    /// Numbers of purge threads
    #[arg(long, value_delimiter = ',', default_value = "1,4")]
    purge_threads: Vec<u32>,
    /// Seconds that are looked at
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..))]
    time: u64,
    #[command(flatten)]
    common: Common,
}

const RANGES_IN_A_TRANSACTION: u32 = 10;
/// Seconds of the load before it is looked at.
const WARMUP: Duration = Duration::from_secs(3);
/// Purge is waited for so long between the engines.
const PATIENCE: Duration = Duration::from_secs(600);
const READ: &str = "bytes read";
const WRITTEN: &str = "bytes written";
const UPDATES: &str = "Com_update";
const SELECTS: &str = "Com_select";

/// What happened to one engine.
struct Outcome {
    engine: Engine,
    purge_threads: u32,
    /// Seconds since the beginning, and what it was: a second between two points.
    updates: Vec<(f64, f64)>,
    ranges: Vec<(f64, f64)>,
    mib_read: Vec<(f64, f64)>,
    history: Vec<(f64, f64)>,
    mib_written: f64,
    /// Until purge was done with what was left.
    catch_up: Duration,
}

pub fn run(workspace: &Workspace, args: &MultiTableArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "multi-table", &args.common)?;
    let rows = args.data * (args.pool << 20) as f64 / ROW_BYTES / f64::from(args.tables);
    let mut outcomes = Vec::new();
    for &purge_threads in &args.purge_threads {
        let (pool, purge) = (
            format!("buffer-pool-size={}M", args.pool),
            format!("purge-threads={purge_threads}"),
        );
        let mut server = benchmark.server(&[
            &pool,
            &purge,
            "flush-method=O_DIRECT",
            "log-file-size=256M",
            "io-capacity=2000",
            "io-capacity-max=4000",
        ])?;
        let databases = server.databases(args.tables, rows as u64);
        outcomes.extend(server.each(&databases, |server, database| {
            with_engine(server, database, purge_threads, args)
        })?);
        server.end()?;
    }
    let picture = workspace.target.join("bench-multi-table.svg");
    fs::write(&picture, svg::render(&panels(&outcomes), &[]))?;
    if !args.common.json {
        print(&outcomes, args);
        println!("plotted in {}", picture.display());
    }
    benchmark.end(to_json(&outcomes, args));
    Ok(())
}

fn with_engine(
    server: &BenchServer<'_>,
    database: &Sysbench<'_>,
    purge_threads: u32,
    args: &MultiTableArgs,
) -> Result<Outcome> {
    database.prepare("oltp_update_index", 2)?;
    let pid = server.pid();
    let probe =
        |of: fn(Transferred) -> u64| -> Probe { Box::new(move || Ok(of(Transferred::of(pid)?))) };
    let history = load::history_name(database.engine);
    let probes = vec![(READ, probe(|t| t.read)), (WRITTEN, probe(|t| t.written))];
    let sampler = Sampler::start_with(&database.socket, &[UPDATES, SELECTS, &history], probes)?;
    let writers = start_writers(database, args.writers)?;
    let readers = start_readers(database, args.readers, args.part)?;
    thread::sleep(WARMUP);
    let begun = Instant::now();
    thread::sleep(Duration::from_secs(args.time));
    let span = begun..Instant::now();
    readers.stop()?;
    writers.stop()?;
    let mut client = server.connect()?;
    let catch_up = load::wait_for_history(&mut client, database.engine, load::CAUGHT_UP, PATIENCE)?;
    let samples = sampler.stop()?;
    let rates = |name: &str, unit: f64| {
        let readings = samples.by_seconds(name, &span);
        let rate = |pair: &[(Instant, u64)]| {
            (
                (pair[1].0 - begun).as_secs_f64(),
                load::rate(pair[0], pair[1]) / unit,
            )
        };
        readings.windows(2).map(rate).collect()
    };
    let mib = f64::from(1 << 20);
    Ok(Outcome {
        engine: database.engine,
        purge_threads,
        updates: rates(UPDATES, 1.0),
        ranges: rates(SELECTS, 1.0),
        mib_read: rates(READ, mib),
        history: values(&samples, &history, &span),
        mib_written: samples.rate(WRITTEN, &span) * args.time as f64 / mib,
        catch_up,
    })
}

fn values(samples: &Samples, name: &str, span: &Range<Instant>) -> Vec<(f64, f64)> {
    let values = samples.values(name, span).into_iter();
    values
        .map(|(at, value)| ((at - span.start).as_secs_f64(), value as f64))
        .collect()
}

/// Updates of an indexed column, of any table.
fn start_writers(tables: &Sysbench<'_>, clients: u32) -> Result<Load> {
    let (database, n, rows) = (tables.database.clone(), tables.tables, tables.rows);
    Load::start(&tables.socket, clients, u64::MAX, move |client, rng| {
        let (table, id) = (rng.u32(1..=n), rng.u64(1..=rows));
        let sql = format!("UPDATE {database}.sbtest{table} SET k = k + 1 WHERE id = {id}");
        client.query(&sql).map(drop)
    })
}

/// Ranges of any table, all of a transaction in one view.
fn start_readers(tables: &Sysbench<'_>, clients: u32, part: u64) -> Result<Load> {
    let (database, n, rows) = (tables.database.clone(), tables.tables, tables.rows);
    let length = (rows / part).max(1);
    Load::start(&tables.socket, clients, u64::MAX, move |client, rng| {
        client.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
        for _ in 0..RANGES_IN_A_TRANSACTION {
            let (table, from) = (rng.u32(1..=n), rng.u64(0..=rows - length));
            client.query(&format!(
                "SELECT SUM(k), MAX(c) FROM {database}.sbtest{table} WHERE id > {from} AND id <= {}",
                from + length
            ))?;
        }
        client.query("COMMIT").map(drop)
    })
}

fn of(points: &[(f64, f64)]) -> impl Iterator<Item = f64> + '_ {
    points.iter().map(|point| point.1)
}

fn mean(points: &[(f64, f64)]) -> f64 {
    of(points).sum::<f64>() / points.len() as f64
}

fn panels(outcomes: &[Outcome]) -> Vec<Panel> {
    let panel = |title: &str, points: fn(&Outcome) -> &Vec<(f64, f64)>| {
        Panel::of(title, outcomes, |outcome| Line {
            name: format!("{}, {}", outcome.engine.name(), outcome.purge_threads),
            points: points(outcome).clone(),
        })
    };
    vec![
        panel("updates per second", |o| &o.updates),
        panel("ranges per second", |o| &o.ranges),
        panel("length of the history", |o| &o.history),
        panel("MiB read per second", |o| &o.mib_read),
    ]
}

fn print(outcomes: &[Outcome], args: &MultiTableArgs) {
    println!(
        "{} tables of {:.0} MiB together, pool {} MiB, {} writers, {} readers of ranges, {} s",
        args.tables,
        args.data * args.pool as f64,
        args.pool,
        args.writers,
        args.readers,
        args.time
    );
    let table = Table::new(
        "engine:<7|purge threads:>13|updates/s:>9|worst s:>8|ranges/s:>8.1|median history:>14|longest:>9|KiB read/range:>14|MiB written:>11|catch-up s:>10.1",
    );
    table.print_head();
    for outcome in outcomes {
        table.print([
            outcome.engine.name().into(),
            Cell::of(outcome.purge_threads),
            mean(&outcome.updates).into(),
            of(&outcome.updates).fold(f64::INFINITY, f64::min).into(),
            mean(&outcome.ranges).into(),
            median(of(&outcome.history)).into(),
            of(&outcome.history).fold(0.0, f64::max).into(),
            (mean(&outcome.mib_read) * 1024.0 / mean(&outcome.ranges)).into(),
            outcome.mib_written.into(),
            outcome.catch_up.as_secs_f64().into(),
        ]);
    }
}

fn to_json(outcomes: &[Outcome], args: &MultiTableArgs) -> Value {
    let results = outcomes.iter().map(|o| {
        json!({
            "engine": o.engine.name(), "purge_threads": o.purge_threads, "updates": o.updates, "ranges": o.ranges,
            "history": o.history, "mib_read": o.mib_read, "mib_written": o.mib_written,
            "catch_up_seconds": o.catch_up.as_secs_f64(),
        })
    });
    json!({
        "pool_mib": args.pool, "data": args.data, "tables": args.tables, "writers": args.writers,
        "readers": args.readers, "part": args.part, "seconds": args.time, "results": results.collect::<Vec<_>>(),
    })
}
