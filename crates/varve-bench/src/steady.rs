//! `bench steady`: `oltp_write_only` on a table that is larger than the buffer pool, second by second: how
//! much, and how evenly.
//!
//! The engines take turns in one server, with the same sizes, and past the operating system's cache.
//! Transactions are counted by sysbench, the checkpoint age and the dirty pages are the engines' own status
//! variables. A picture shows all three against time.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use varve_testbed::client::Client;
use varve_testbed::server::Engine;
use varve_testbed::workspace::Workspace;

use crate::benchmark::{Benchmark, Common};
use crate::load::{self, Sampler, Samples, status_name};
use crate::stats::{median, share_below};
use crate::svg::{self, Line, Panel};
use crate::sysbench::{ROW_BYTES, Sysbench};
use crate::table::{Cell, Table};

#[derive(clap::Args)]
pub struct SteadyArgs {
    /// MiB of the buffer pool
    #[arg(long, default_value_t = 128)]
    pool: u64,
    /// The tables take so many times the pool
    #[arg(long, default_value_t = 4.0)]
    data: f64,
    #[arg(long, default_value_t = 4)]
    tables: u32,
    /// Clients
    #[arg(long, default_value_t = 16)]
    threads: u32,
    /// Seconds that are looked at
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(2..))]
    time: u64,
    /// Seconds of the load before these
    #[arg(long, default_value_t = 10)]
    warmup: u64,
    /// MiB of the redo log
    #[arg(long, default_value_t = 256)]
    redo: u64,
    /// Pages per second; the largest is twice as many
    #[arg(long, default_value_t = 2000)]
    io_capacity: u64,
    /// What sysbench runs
    #[arg(long, default_value = "oltp_write_only")]
    script: String,
    #[command(flatten)]
    common: Common,
}

/// What is left to write of an engine's load is waited for so long.
const PATIENCE: Duration = Duration::from_secs(120);
const PLOTTED: [&str; 2] = ["checkpoint_age", "buffer_pool_pages_dirty"];

/// What happened to one engine.
struct Outcome {
    engine: Engine,
    /// Transactions of each second.
    tps: Vec<f64>,
    /// Seconds since the begin, and what each of `PLOTTED` was.
    plotted: [Vec<(f64, f64)>; 2],
    max_age: u64,
}

impl Outcome {
    fn mean(&self) -> f64 {
        self.tps.iter().sum::<f64>() / self.tps.len() as f64
    }

    /// The standard deviation as a share of the mean.
    fn variation(&self) -> f64 {
        let mean = self.mean();
        let squares = self.tps.iter().map(|tps| (tps - mean).powi(2)).sum::<f64>();
        (squares / self.tps.len() as f64).sqrt() / mean
    }

    fn median(&self) -> f64 {
        median(self.tps.iter().copied())
    }

    fn worst(&self) -> f64 {
        self.tps.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn slow_seconds(&self) -> f64 {
        (share_below(&self.tps, self.median() / 2.0) * self.tps.len() as f64).round()
    }

    fn most(&self, plotted: usize) -> f64 {
        self.plotted[plotted]
            .iter()
            .map(|p| p.1)
            .fold(0.0, f64::max)
    }
}

pub fn run(workspace: &Workspace, args: &SteadyArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "steady", &args.common)?;
    let settings = [
        format!("buffer-pool-size={}M", args.pool),
        format!("log-file-size={}M", args.redo),
        format!("io-capacity={}", args.io_capacity),
        format!("io-capacity-max={}", 2 * args.io_capacity),
        "doublewrite=ON".into(),
        "flush-method=O_DIRECT".into(),
        "flush-log-at-trx-commit=1".into(),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let mut server = benchmark.server(&settings)?;
    let bytes = args.data * (args.pool << 20) as f64;
    let rows = (bytes / ROW_BYTES / f64::from(args.tables)) as u64;
    let databases = server.databases(args.tables, rows);
    let outcomes = server.each(&databases, |_, database| with_engine(database, args))?;
    server.end()?;
    let picture = workspace.target.join("bench-steady.svg");
    fs::write(&picture, svg::render(&panels(&outcomes), &[]))?;
    if !args.common.json {
        print(&outcomes, args);
        println!("plotted in {}", picture.display());
    }
    benchmark.end(to_json(&outcomes, &settings, args));
    Ok(())
}

fn with_engine(sysbench: &Sysbench<'_>, args: &SteadyArgs) -> Result<Outcome> {
    sysbench.prepare(&args.script, 2)?;
    if args.warmup > 0 {
        sysbench.run(&args.script, args.threads, Duration::from_secs(args.warmup))?;
    }
    let engine = sysbench.engine;
    let names = PLOTTED.map(|name| status_name(engine, name));
    let max_age = status_name(engine, "checkpoint_max_age");
    let mut client = Client::connect(&sysbench.socket)?;
    let max_age = load::status(&mut client, &[&max_age])?[0];
    let sampler = Sampler::start(&sysbench.socket, &[&names[0], &names[1]])?;
    let begun = Instant::now();
    let tps =
        sysbench.run_by_seconds(&args.script, args.threads, Duration::from_secs(args.time))?;
    let samples = sampler.stop()?;
    wait_until_written(&mut client, &names[1])?;
    Ok(Outcome {
        engine,
        tps,
        plotted: [0, 1].map(|n| since(&samples, &names[n], begun)),
        max_age,
    })
}

fn since(samples: &Samples, name: &str, begun: Instant) -> Vec<(f64, f64)> {
    let values = samples.values(name, &(begun..Instant::now()));
    let point = |(at, value): (Instant, u64)| ((at - begun).as_secs_f64(), value as f64);
    values.into_iter().map(point).collect()
}

/// What an engine still writes would take from the next one. One that stops writing does not.
fn wait_until_written(client: &mut Client, dirty: &str) -> Result<()> {
    let begun = Instant::now();
    let mut last = u64::MAX;
    while begun.elapsed() < PATIENCE {
        let now = load::status(client, &[dirty])?[0];
        if now == 0 || now == last {
            break;
        }
        last = now;
        std::thread::sleep(Duration::from_secs(3));
    }
    Ok(())
}

fn panels(outcomes: &[Outcome]) -> Vec<Panel> {
    let panel = |title: &str, points: &dyn Fn(&Outcome) -> Vec<(f64, f64)>| {
        Panel::of(title, outcomes, |outcome| Line {
            name: outcome.engine.name().into(),
            points: points(outcome),
        })
    };
    let mib = |points: &[(f64, f64)]| points.iter().map(|p| (p.0, p.1 / 1048576.0)).collect();
    let by_second = |tps: &[f64]| {
        tps.iter()
            .enumerate()
            .map(|(n, tps)| (n as f64 + 1.0, *tps))
            .collect()
    };
    vec![
        panel("transactions per second", &|o| by_second(&o.tps)),
        panel("checkpoint age, MiB", &|o| mib(&o.plotted[0])),
        panel("dirty pages", &|o| o.plotted[1].clone()),
    ]
}

fn print(outcomes: &[Outcome], args: &SteadyArgs) {
    println!(
        "{} with {} clients, pool {} MiB, tables {:.0} MiB, redo {} MiB, {} s",
        args.script,
        args.threads,
        args.pool,
        args.data * args.pool as f64,
        args.redo,
        args.time
    );
    let table = Table::new(
        "engine:<7|mean tps:>9|median:>9|variation:>10|worst s:>9|share:>7|s below half:>14|age MiB:>12|of MiB:>11|dirty:>10",
    );
    table.print_head();
    for outcome in outcomes {
        table.print([
            outcome.engine.name().into(),
            outcome.mean().into(),
            outcome.median().into(),
            format!("{:.1}%", 100.0 * outcome.variation()).into(),
            outcome.worst().into(),
            format!("{:.0}%", 100.0 * outcome.worst() / outcome.median()).into(),
            outcome.slow_seconds().into(),
            (outcome.most(0) / 1048576.0).into(),
            Cell::of(outcome.max_age >> 20),
            outcome.most(1).into(),
        ]);
    }
    if let [ours, peer] = outcomes {
        println!(
            "mean of the first in that of the second: {:.2}",
            ours.mean() / peer.mean()
        );
    }
}

fn to_json(outcomes: &[Outcome], settings: &[&str], args: &SteadyArgs) -> Value {
    let results = outcomes.iter().map(|outcome| {
        json!({
            "engine": outcome.engine.name(), "tps": outcome.tps, "mean": outcome.mean(), "median": outcome.median(),
            "variation": outcome.variation(), "worst_second": outcome.worst(), "seconds_below_half": outcome.slow_seconds(),
            "checkpoint_age": outcome.plotted[0], "dirty_pages": outcome.plotted[1], "checkpoint_max_age": outcome.max_age,
        })
    });
    json!({
        "script": args.script, "threads": args.threads, "pool_mib": args.pool, "data": args.data,
        "seconds": args.time, "settings": settings, "results": results.collect::<Vec<_>>(),
    })
}
