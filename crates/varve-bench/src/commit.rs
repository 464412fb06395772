//! `bench commit`: what a commit costs whose log has to be on disk. Updates of one row, each a transaction of
//! its own, by more and more clients, Varve and InnoDB in turn, in one server.
//!
//! Beside the throughput stands how the engine came to it: writes and syncs of the log for each commit, how
//! many bytes were written, and what the server's threads used: their time on a processor, the time they
//! waited for one, and how often they slept. InnoDB counts no syncs of its log alone, so those of all its
//! files stand there; with a pool and a log as large as here there are few others. Of Varve only those of the
//! log are shown. InnoDB does not say either how much it writes to fill up blocks.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use varve_testbed::client::Client;
use varve_testbed::server::Engine;
use varve_testbed::workspace::Workspace;

use crate::benchmark::{Benchmark, Common, SMALL_TABLES_IN_POOL};
use crate::load::{status, status_name};
use crate::process::Usage;
use crate::stats::{Runs, median, ratio_text};
use crate::sysbench::Sysbench;
use crate::table::{Cell, Table};

#[derive(clap::Args)]
pub struct CommitArgs {
    /// Numbers of client threads
    #[arg(long, value_delimiter = ',', default_value = "1,8,64,128")]
    threads: Vec<u32>,
    /// Seconds of each run
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    time: u64,
    /// Runs of each engine with each number of threads; the median counts
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// Rows of each of the 4 tables
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    #[command(flatten)]
    common: Common,
}

const TABLES: u32 = 4;
const WORKLOAD: &str = "oltp_update_non_index";

/// What a run came to.
#[derive(Clone, Copy)]
struct Run {
    per_second: f64,
    p95_ms: f64,
    commits: f64,
    /// This and what follows is for each commit.
    log_writes: f64,
    syncs: f64,
    log_bytes: f64,
    /// Bytes that fill up blocks or are written again; `None`: the engine does not say.
    padding: Option<f64>,
    /// Microseconds that the server ran, and that it waited for a processor.
    run_us: f64,
    queue_us: f64,
    sleeps: f64,
}

/// All runs with one number of threads.
struct Comparison {
    threads: u32,
    runs: Runs<Run>,
}

impl Comparison {
    fn padding(&self, engine: usize) -> Option<f64> {
        let figures = self.runs.of(engine).iter().map(|run| run.padding);
        figures.collect::<Option<Vec<f64>>>().map(median)
    }

    fn ratio(&self) -> Option<f64> {
        self.runs.ratio(|run| run.per_second)
    }
}

pub fn run(workspace: &Workspace, args: &CommitArgs) -> Result<()> {
    ensure!(args.repeat > 0, "nothing to run");
    let benchmark = Benchmark::begin(workspace, "commit", &args.common)?;
    let mut server = benchmark.server(&SMALL_TABLES_IN_POOL)?;
    let databases = server.databases(TABLES, args.rows);
    for database in &databases {
        database.prepare(WORKLOAD, 1).context("prepare")?;
    }
    let time = Duration::from_secs(args.time);
    let mut comparisons: Vec<Comparison> = Vec::new();
    for &threads in &args.threads {
        let runs = server.in_turn(&databases, args.repeat, |server, database| {
            measure(database, server.pid(), threads, time)
        });
        let runs = runs.with_context(|| format!("{threads} threads"))?;
        let comparison = Comparison { threads, runs };
        if !args.common.json {
            print(&comparison, args, comparisons.is_empty());
        }
        comparisons.push(comparison);
    }
    server.end()?;
    benchmark.end(to_json(&comparisons, args));
    Ok(())
}

/// Commits, writes, syncs, bytes, and if the engine counts it, padding.
fn counters(engine: Engine) -> Vec<String> {
    let of_engine: &[&str] = match engine {
        Engine::Varve => &[
            "log_writes",
            "os_log_fsyncs",
            "os_log_written",
            "log_padded",
        ],
        Engine::Innodb => &["log_writes", "data_fsyncs", "os_log_written"],
    };
    let of_engine = of_engine.iter().map(|name| status_name(engine, name));
    std::iter::once("Com_update".to_string())
        .chain(of_engine)
        .collect()
}

/// `server`: its process.
fn measure(table: &Sysbench<'_>, server: u32, threads: u32, time: Duration) -> Result<Run> {
    let mut client = Client::connect(&table.socket)?;
    let names = counters(table.engine);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (before, used_before) = (status(&mut client, &names)?, Usage::of(server)?);
    let report = table.run(WORKLOAD, threads, time)?;
    let used = Usage::of(server)? - used_before;
    let after = status(&mut client, &names)?;
    let rise = |n: usize| Some(after.get(n)? - before.get(n)?).map(|rise| rise as f64);
    let commits = rise(0).filter(|commits| *commits > 0.0);
    let commits = commits.context("sysbench has updated nothing")?;
    let each = |n| rise(n).map(|rise| rise / commits);
    let counted = |n| each(n).expect("a counter of every engine");
    Ok(Run {
        per_second: report.per_second,
        p95_ms: report.p95_ms,
        commits,
        log_writes: counted(1),
        syncs: counted(2),
        log_bytes: counted(3),
        padding: each(4),
        run_us: used.run_us / commits,
        queue_us: used.queue_us / commits,
        sleeps: used.sleeps / commits,
    })
}

fn print(comparison: &Comparison, args: &CommitArgs, is_first: bool) {
    let table = Table::new(
        "threads:>7|engine:<7|commits/s:>9|p95 ms:>8.2|writes:>7.3|syncs:>7.3|bytes:>8|padding:>8|run us:>7.1|queue:>7|sleeps:>6.2|ratio:>6",
    );
    if is_first {
        println!("After the response time everything is for each commit.");
        table.print_head();
    }
    for (n, engine) in args.common.engines.iter().enumerate() {
        let median = |figure: fn(&Run) -> f64| Cell::Number(comparison.runs.median(n, figure));
        let ratio = comparison.ratio().filter(|_| n == 0);
        table.print([
            Cell::of(comparison.threads),
            engine.name().into(),
            median(|run| run.per_second),
            median(|run| run.p95_ms),
            median(|run| run.log_writes),
            median(|run| run.syncs),
            median(|run| run.log_bytes),
            comparison.padding(n).map_or("-".into(), Cell::Number),
            median(|run| run.run_us),
            median(|run| run.queue_us),
            median(|run| run.sleeps),
            ratio_text(ratio).into(),
        ]);
    }
}

fn to_json(comparisons: &[Comparison], args: &CommitArgs) -> Value {
    let rows = comparisons.iter().map(|comparison| {
        let engines = args.common.engines.iter().enumerate().map(|(n, engine)| {
            let median = |figure: fn(&Run) -> f64| comparison.runs.median(n, figure);
            json!({
                "engine": engine.name(),
                "tps": median(|run| run.per_second),
                "tps_of_runs": comparison.runs.figures(n, |run| run.per_second),
                "p95_ms": median(|run| run.p95_ms),
                "commits": median(|run| run.commits),
                "log_writes_per_commit": median(|run| run.log_writes),
                "syncs_per_commit": median(|run| run.syncs),
                "log_bytes_per_commit": median(|run| run.log_bytes),
                "padding_per_commit": comparison.padding(n),
                "run_us_per_commit": median(|run| run.run_us),
                "queue_us_per_commit": median(|run| run.queue_us),
                "sleeps_per_commit": median(|run| run.sleeps),
            })
        });
        json!({
            "threads": comparison.threads,
            "engines": engines.collect::<Vec<_>>(),
            "ratio": comparison.ratio(),
        })
    });
    json!({
        "workload": WORKLOAD, "tables": TABLES, "rows": args.rows, "seconds": args.time,
        "repeat": args.repeat, "settings": SMALL_TABLES_IN_POOL, "results": rows.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_known_if_each_run_has_some() {
        let run = |padding| Run {
            per_second: 1.0,
            p95_ms: 1.0,
            commits: 1000.0,
            log_writes: 1.0,
            syncs: 1.0,
            log_bytes: 400.0,
            padding,
            run_us: 50.0,
            queue_us: 100.0,
            sleeps: 2.0,
        };
        let mut runs = Runs::new(2);
        for padding in [3.0, 1.0, 2.0] {
            runs.add(0, run(Some(padding)));
            runs.add(1, run(None));
        }
        let both = Comparison { threads: 1, runs };
        assert_eq!((both.padding(0), both.padding(1)), (Some(2.0), None));
    }
}
