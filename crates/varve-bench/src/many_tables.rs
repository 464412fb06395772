//! `bench many-tables`: what many tables cost a server, beside InnoDB: making and dropping them, starting
//! after an orderly end and after a kill, and memory.
//!
//! One engine after the other, on a server of its own with the same sizes, first with few tables and then
//! with many: what counts is the ratio of the two. A start is measured until the server has answered; the
//! least of several counts, as others wait for something else. Before a kill so many tables get a row each,
//! if there are so many, and after it the last of them is read, too; these are dropped in the end.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use varve_testbed::client::Client;
use varve_testbed::server::{Engine, Server};
use varve_testbed::workspace::Workspace;

use crate::benchmark::{BenchServer, Benchmark, Common};
use crate::dictionary::Counts;
use crate::process::memory_bytes;

#[derive(clap::Args)]
pub struct ManyTablesArgs {
    #[command(flatten)]
    counts: Counts,
    #[command(flatten)]
    common: Common,
}

const SETTINGS: [&str; 4] = [
    "buffer-pool-size=256M",
    "log-file-size=256M",
    "doublewrite=ON",
    "flush-log-at-trx-commit=1",
];
const STARTS: usize = 3;

/// With so many tables.
struct Figures {
    tables: u64,
    /// Tables a second.
    made: f64,
    dropped: f64,
    start: Duration,
    after_kill: Duration,
    /// Of the server's memory, after a start, and when each table was used.
    started_bytes: u64,
    used_bytes: u64,
}

pub fn run(workspace: &Workspace, args: &ManyTablesArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "many-tables", &args.common)?;
    let mut results = Vec::new();
    let counts = &args.counts;
    for &engine in &args.common.engines {
        let mut of_engine = Vec::new();
        for tables in [counts.few, counts.tables] {
            let figures = measure(&benchmark, engine, tables, counts.killed);
            let figures = figures.with_context(|| engine.name())?;
            if !args.common.json {
                print(engine, &figures);
            }
            of_engine.push(figures);
        }
        let ratio = |time: fn(&Figures) -> Duration| {
            time(&of_engine[1]).as_secs_f64() / time(&of_engine[0]).as_secs_f64()
        };
        let (start, after_kill) = (ratio(|f| f.start), ratio(|f| f.after_kill));
        if !args.common.json {
            println!(
                "{}: start {start:.2} times as long, {after_kill:.2} times after a kill",
                engine.name()
            );
        }
        let figures: Vec<Value> = of_engine.iter().map(to_json).collect();
        results.push(json!({
            "engine": engine.name(), "figures": figures, "start_ratio": start,
            "start_after_kill_ratio": after_kill,
        }));
    }
    benchmark.end(json!({"settings": SETTINGS, "killed": counts.killed, "results": results}));
    Ok(())
}

fn measure(benchmark: &Benchmark, engine: Engine, tables: u64, killed: u64) -> Result<Figures> {
    let killed = killed.min(tables);
    let mut server = benchmark.server_of(&[engine], &SETTINGS)?;
    let mut client = server.connect()?;
    client.query("CREATE DATABASE many")?;
    let made = rate(&mut client, tables, |n| {
        format!(
            "CREATE TABLE many.t{n} (id INT PRIMARY KEY, a INT, text VARCHAR(100), KEY (a)) ENGINE={}",
            engine.name()
        )
    })?;
    drop(client);
    let mut start = Duration::MAX;
    for _ in 0..STARTS {
        server.stop()?;
        start = start.min(restart(&mut server, "SELECT 1", "1")?);
    }
    let started_bytes = memory_bytes(server.pid(), "VmRSS")?;
    let mut after_kill = Duration::MAX;
    for round in 1..=STARTS {
        let mut client = server.connect()?;
        rate(&mut client, killed, |n| {
            format!("INSERT INTO many.t{n} VALUES ({round}, {n}, 'a row')")
        })?;
        drop(client);
        server.kill()?;
        let read = format!("SELECT a FROM many.t{killed} WHERE id = {round}");
        after_kill = after_kill.min(restart(&mut server, &read, &killed.to_string())?);
    }
    let mut client = server.connect()?;
    rate(&mut client, tables, |n| {
        format!("SELECT COUNT(*) FROM many.t{n}")
    })?;
    let used_bytes = memory_bytes(server.pid(), "VmRSS")?;
    let dropped = rate(&mut client, killed, |n| format!("DROP TABLE many.t{n}"))?;
    drop(client);
    server.check_alive()?;
    server.end()?;
    Ok(Figures {
        tables,
        made,
        dropped,
        start,
        after_kill,
        started_bytes,
        used_bytes,
    })
}

/// Runs a statement for each table, and returns how many a second.
fn rate(client: &mut Client, tables: u64, statement: impl Fn(u64) -> String) -> Result<f64> {
    let begun = Instant::now();
    for n in 1..=tables {
        client.query(&statement(n))?;
    }
    Ok(tables as f64 / begun.elapsed().as_secs_f64())
}

/// Starts the server again, and returns when it has answered that.
fn restart(server: &mut BenchServer<'_>, query: &str, answer: &str) -> Result<Duration> {
    let begun = Instant::now();
    server.restart(&SETTINGS, |prefix, dir, options| {
        Server::start(prefix, dir, None, options)
    })?;
    let answered = server.connect()?.value(query)?;
    ensure!(answered == answer, "{query}: {answered}, not {answer}");
    Ok(begun.elapsed())
}

fn print(engine: Engine, figures: &Figures) {
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "{:8} {:>7} tables: {:>6.0} made and {:>6.0} dropped a second; start {:>5.0} ms, after a kill {:>5.0} ms; memory \
         {} MiB, {} MiB when each was used",
        engine.name(),
        figures.tables,
        figures.made,
        figures.dropped,
        figures.start.as_secs_f64() * 1000.0,
        figures.after_kill.as_secs_f64() * 1000.0,
        mib(figures.started_bytes),
        mib(figures.used_bytes)
    );
}

fn to_json(figures: &Figures) -> Value {
    json!({
        "tables": figures.tables, "made_per_second": figures.made, "dropped_per_second": figures.dropped,
        "start_seconds": figures.start.as_secs_f64(), "start_after_kill_seconds": figures.after_kill.as_secs_f64(),
        "started_bytes": figures.started_bytes, "used_bytes": figures.used_bytes,
    })
}
