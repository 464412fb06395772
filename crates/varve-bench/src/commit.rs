//! `bench commit`: what a commit costs whose log has to be on disk. Updates of one row, each a transaction of
//! its own, by more and more clients, Varve and InnoDB in turn, in one server.
//!
//! Beside the throughput stands how the engine came to it: writes and syncs of the log for each commit, how
//! many bytes were written, and what the server's threads used: their time on a processor, the time they
//! waited for one, and how often they slept. InnoDB counts no syncs of its log alone, so those of all its
//! files stand there; with a pool and a log as large as here there are few others. Of Varve only those of the
//! log are shown. InnoDB does not say either how much it writes to fill up blocks.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::load::{status, status_name};
use crate::process::Usage;
use crate::stats::median;
use crate::sysbench::Sysbench;
use varve_testbed::client::Client;
use varve_testbed::plugin;
use varve_testbed::server::Engine;
use varve_testbed::workspace::Workspace;

#[derive(clap::Args)]
pub struct CommitArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
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
    /// Compare these engines
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Engine::Varve, Engine::Innodb])]
    engines: Vec<Engine>,
    /// Options for mariadbd
    #[arg(last = true, value_name = "MARIADBD OPTIONS")]
    options: Vec<String>,
}

const TABLES: u32 = 4;
const WORKLOAD: &str = "oltp_update_non_index";
const SETTINGS: [&str; 4] = [
    "buffer-pool-size=1G",
    "log-file-size=1G",
    "doublewrite=ON",
    "flush-log-at-trx-commit=1",
];

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

/// All runs with one number of threads: those of each engine.
struct Comparison {
    threads: u32,
    runs: Vec<Vec<Run>>,
}

impl Comparison {
    fn median(&self, engine: usize, figure: impl Fn(&Run) -> f64) -> f64 {
        median(self.runs[engine].iter().map(figure))
    }

    fn padding(&self, engine: usize) -> Option<f64> {
        let figures: Option<Vec<f64>> = self.runs[engine].iter().map(|run| run.padding).collect();
        figures.map(median)
    }

    fn ratio(&self) -> Option<f64> {
        let is_pair = self.runs.len() == 2;
        let tps = |engine| self.median(engine, |run| run.per_second);
        is_pair.then(|| tps(0) / tps(1))
    }
}

pub fn run(workspace: &Workspace, args: &CommitArgs) -> Result<()> {
    ensure!(
        args.repeat > 0 && !args.engines.is_empty(),
        "nothing to run"
    );
    let prefix = plugin::prefix_for(workspace, &args.engines)?;
    let (mut server, dir) = crate::fresh_server(
        workspace,
        &prefix,
        "commit",
        &args.engines,
        &SETTINGS,
        &args.options,
    )?;
    let engines = Sysbench::on_all(&server, &prefix, &args.engines, (TABLES, args.rows));
    for engine in &engines {
        engine.prepare(WORKLOAD, 1).context("prepare")?;
    }
    let mut comparisons = Vec::new();
    for &threads in &args.threads {
        let comparison = compare(&engines, server.pid(), threads, args);
        let comparison = comparison.with_context(|| format!("{threads} threads"))?;
        if !args.json {
            print(&comparison, args, comparisons.is_empty());
        }
        comparisons.push(comparison);
        server.check_alive()?;
    }
    server.stop()?;
    fs::remove_dir_all(dir)?;
    if args.json {
        println!("{:#}", to_json(&comparisons, args));
    }
    Ok(())
}

fn compare(
    engines: &[Sysbench],
    server: u32,
    threads: u32,
    args: &CommitArgs,
) -> Result<Comparison> {
    let mut runs = vec![Vec::new(); engines.len()];
    for repetition in 0..args.repeat {
        for n in 0..engines.len() {
            let n = (n + repetition) % engines.len();
            let time = Duration::from_secs(args.time);
            runs[n].push(measure(&engines[n], server, threads, time)?);
        }
    }
    Ok(Comparison { threads, runs })
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
    if is_first {
        println!("After the response time everything is for each commit.");
        println!(
            "{:>7} {:<7} {:>9} {:>8} {:>7} {:>7} {:>8} {:>8} {:>7} {:>7} {:>6} {:>6}",
            "threads",
            "engine",
            "commits/s",
            "p95 ms",
            "writes",
            "syncs",
            "bytes",
            "padding",
            "run us",
            "queue",
            "sleeps",
            "ratio"
        );
    }
    for (n, engine) in args.engines.iter().enumerate() {
        let ratio = comparison.ratio().filter(|_| n == 0);
        println!(
            "{:>7} {:<7} {:>9.0} {:>8.2} {:>7.3} {:>7.3} {:>8.0} {:>8} {:>7.1} {:>7.0} {:>6.2} {:>6}",
            comparison.threads,
            engine.name(),
            comparison.median(n, |run| run.per_second),
            comparison.median(n, |run| run.p95_ms),
            comparison.median(n, |run| run.log_writes),
            comparison.median(n, |run| run.syncs),
            comparison.median(n, |run| run.log_bytes),
            (comparison.padding(n)).map_or("-".into(), |bytes| format!("{bytes:.0}")),
            comparison.median(n, |run| run.run_us),
            comparison.median(n, |run| run.queue_us),
            comparison.median(n, |run| run.sleeps),
            ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")),
        );
    }
}

fn to_json(comparisons: &[Comparison], args: &CommitArgs) -> serde_json::Value {
    let rows = comparisons.iter().map(|comparison| {
        let engines = args.engines.iter().enumerate().map(|(n, engine)| {
            let tps = comparison.runs[n].iter().map(|run| run.per_second);
            json!({
                "engine": engine.name(),
                "tps": comparison.median(n, |run| run.per_second),
                "tps_of_runs": tps.collect::<Vec<_>>(),
                "p95_ms": comparison.median(n, |run| run.p95_ms),
                "commits": comparison.median(n, |run| run.commits),
                "log_writes_per_commit": comparison.median(n, |run| run.log_writes),
                "syncs_per_commit": comparison.median(n, |run| run.syncs),
                "log_bytes_per_commit": comparison.median(n, |run| run.log_bytes),
                "padding_per_commit": comparison.padding(n),
                "run_us_per_commit": comparison.median(n, |run| run.run_us),
                "queue_us_per_commit": comparison.median(n, |run| run.queue_us),
                "sleeps_per_commit": comparison.median(n, |run| run.sleeps),
            })
        });
        json!({
            "threads": comparison.threads,
            "engines": engines.collect::<Vec<_>>(),
            "ratio": comparison.ratio(),
        })
    });
    json!({
        "benchmark": "commit", "workload": WORKLOAD, "tables": TABLES, "rows": args.rows, "seconds": args.time,
        "repeat": args.repeat, "settings": SETTINGS, "results": rows.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_their_ratio() {
        let run = |per_second: f64, padding| Run {
            per_second,
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
        let both = Comparison {
            threads: 1,
            runs: vec![
                [3.0, 1.0, 2.0].map(|tps| run(tps, Some(tps))).into(),
                [4.0, 9.0, 1.0].map(|tps| run(tps, None)).into(),
            ],
        };
        assert_eq!(both.ratio(), Some(0.5));
        assert_eq!((both.padding(0), both.padding(1)), (Some(2.0), None));
    }
}
