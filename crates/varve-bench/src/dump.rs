//! `bench dump`: `mariadb-dump --single-transaction` of a table, alone and beside writers.
//!
//! A dump reads under one snapshot, and is slow. Three are timed: one while nobody writes; one while clients
//! update another table, so that the dump waits for processors and disks as it would then; one while they
//! update the table that is dumped. What the third takes beyond the second is the price of old versions.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use varve_testbed::command;
use varve_testbed::workspace::Workspace;

use crate::benchmark::{BenchServer, Benchmark, Common};
use crate::load::{self, CAUGHT_UP, Load, Sampler};
use crate::stats::{Runs, Spread};
use crate::sysbench::{ROW_BYTES, Sysbench};
use crate::table::Table;

#[derive(clap::Args)]
pub struct DumpArgs {
    /// MiB of the table that is dumped
    #[arg(long, default_value_t = 1024)]
    dump_size: u64,
    /// Clients that update
    #[arg(long, default_value_t = 16)]
    threads: u32,
    /// Updates a second of all clients together; without it: as many as there can be
    #[arg(long)]
    rate: Option<u64>,
    /// Measure each engine so many times, in turn; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Size of the buffer pool
    #[arg(long, default_value = "2G")]
    pool: String,
    #[command(flatten)]
    common: Common,
}

const SETTINGS: [&str; 4] = [
    "log-file-size=1G",
    "doublewrite=ON",
    "flush-log-at-trx-commit=1",
    "undo-tablespaces=2",
];
/// The writers have been at work for so long when a dump begins.
const SETTLED: Duration = Duration::from_secs(2);
/// For how long what the writers left may take.
const PATIENCE: Duration = Duration::from_secs(600);
const UPDATES: &str = "Com_update";

/// One run with one engine.
struct Outcome {
    alone: f64,
    beside: Written,
    under: Written,
}

/// A dump beside writers.
struct Written {
    seconds: f64,
    updates_per_second: f64,
    longest_history: u64,
}

pub fn run(workspace: &Workspace, args: &DumpArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "dump", &args.common)?;
    let pool = format!("buffer-pool-size={}", args.pool);
    let mut server = benchmark.server(&[&[pool.as_str()], &SETTINGS[..]].concat())?;
    let rows = ((args.dump_size << 20) as f64 / ROW_BYTES) as u64;
    let databases = server.databases(2, rows.max(1));
    for database in &databases {
        database.prepare("oltp_update_index", 2)?;
    }
    let runs = server.in_turn(&databases, args.repeat as usize, |server, database| {
        with_engine(server, database, args)
    })?;
    server.end()?;
    if !args.common.json {
        print(&runs, args);
    }
    let engines = args.common.engines.iter().enumerate();
    let results: Vec<Value> = engines
        .map(|(n, engine)| {
            let runs = runs.of(n).iter().map(to_json);
            json!({"engine": engine.name(), "runs": runs.collect::<Vec<_>>()})
        })
        .collect();
    benchmark.end(json!({
        "dump_mib": args.dump_size, "rows": rows, "threads": args.threads, "rate": args.rate, "pool": args.pool,
        "settings": SETTINGS, "results": results,
    }));
    Ok(())
}

fn with_engine(server: &BenchServer, database: &Sysbench<'_>, args: &DumpArgs) -> Result<Outcome> {
    let mut client = server.connect()?;
    load::wait_for_history(&mut client, database.engine, CAUGHT_UP, PATIENCE)?;
    let alone = dump(database)?.as_secs_f64();
    let mut written = |table: u32| -> Result<Written> {
        let written = beside_writers(database, table, args)?;
        load::wait_for_history(&mut client, database.engine, CAUGHT_UP, PATIENCE)?;
        Ok(written)
    };
    Ok(Outcome {
        alone,
        beside: written(2)?,
        under: written(1)?,
    })
}

fn beside_writers(database: &Sysbench<'_>, table: u32, args: &DumpArgs) -> Result<Written> {
    let history = load::history_name(database.engine);
    let sampler = Sampler::start(&database.socket, &[UPDATES, &history])?;
    let load = Load::updates_of(database, table, args.threads, u64::MAX, args.rate)?;
    std::thread::sleep(SETTLED);
    let begun = Instant::now();
    let took = dump(database)?;
    let span = begun..Instant::now();
    load.stop()?;
    let samples = sampler.stop()?;
    let lengths = samples.values(&history, &span).into_iter();
    Ok(Written {
        seconds: took.as_secs_f64(),
        updates_per_second: samples.rate(UPDATES, &span),
        longest_history: lengths.map(|(_, length)| length).max().unwrap_or(0),
    })
}

/// Dumps the first table to nowhere.
fn dump(database: &Sysbench<'_>) -> Result<Duration> {
    let cmd = database
        .prefix
        .program("mariadb-dump")
        .arg("--no-defaults")
        .arg(format!("--socket={}", database.socket.display()))
        .args(["--user=root", "--single-transaction", "--quick"])
        .arg("--result-file=/dev/null")
        .args([&database.database, "sbtest1"]);
    let begun = Instant::now();
    command::run(cmd)?;
    Ok(begun.elapsed())
}

fn print(runs: &Runs<Outcome>, args: &DumpArgs) {
    println!(
        "mariadb-dump --single-transaction of {} MiB, pool {}, {} writers; beside: they update another table",
        args.dump_size, args.pool, args.threads
    );
    let table = Table::new(
        "engine:<7|alone s:>22|beside s:>22|under s:>22|beside:>7.2|under:>7.2|under/beside:>12.2|updates/s:>10|history:>9",
    );
    table.print_head();
    for (n, engine) in args.common.engines.iter().enumerate() {
        let seconds = |of: fn(&Outcome) -> f64| {
            let Spread {
                median,
                least,
                greatest,
            } = Spread::of(&runs.figures(n, of));
            format!("{median:.2} ({least:.2}-{greatest:.2})")
        };
        table.print([
            engine.name().into(),
            seconds(|o| o.alone).into(),
            seconds(|o| o.beside.seconds).into(),
            seconds(|o| o.under.seconds).into(),
            runs.median(n, |o| o.beside.seconds / o.alone).into(),
            runs.median(n, |o| o.under.seconds / o.alone).into(),
            runs.median(n, |o| o.under.seconds / o.beside.seconds)
                .into(),
            runs.median(n, |o| o.under.updates_per_second).into(),
            runs.median(n, |o| o.under.longest_history as f64).into(),
        ]);
    }
}

fn to_json(outcome: &Outcome) -> Value {
    let written = |written: &Written| {
        json!({
            "seconds": written.seconds, "updates_per_second": written.updates_per_second,
            "longest_history": written.longest_history,
        })
    };
    json!({
        "alone_seconds": outcome.alone, "beside": written(&outcome.beside), "under": written(&outcome.under),
    })
}
