//! `bench steady`: `oltp_write_only` on a table that is larger than the buffer pool, second by second: how
//! much, and how evenly.
//!
//! The engines take turns in one server, with the same sizes, and past the operating system's cache.
//! Transactions are counted by sysbench, the checkpoint age and the dirty pages are the engines' own status
//! variables, what is written is the kernel's count for the server. A picture shows the first three against
//! time. Before, between and after the engines the device is measured without any: where that varies, so do
//! they.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use varve_testbed::client::Client;
use varve_testbed::server::Engine;
use varve_testbed::workspace::Workspace;

use crate::benchmark::{Benchmark, Common};
use crate::load::{self, Sampler, Samples, status_name};
use crate::process::Transferred;
use crate::raw;
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
    /// Seconds for which the device is measured by itself, each time
    #[arg(long, default_value_t = 5)]
    control: u64,
    /// What sysbench runs
    #[arg(long, default_value = "oltp_write_only")]
    script: String,
    #[command(flatten)]
    common: Common,
}

/// What is left to write of an engine's load is waited for so long.
const PATIENCE: Duration = Duration::from_secs(120);
/// An engine whose dirty pages and history do not get less for so long has stopped.
const STANDSTILL: Duration = Duration::from_secs(6);
/// Both engines keep some logs in their history while nothing happens.
const HARDLY_ANY: u64 = 50;
const PLOTTED: [&str; 2] = ["checkpoint_age", "buffer_pool_pages_dirty"];

/// What happened to one engine.
struct Outcome {
    engine: Engine,
    /// Transactions of each second.
    tps: Vec<f64>,
    /// Seconds since the begin, and what each of `PLOTTED` was.
    plotted: [Vec<(f64, f64)>; 2],
    max_age: u64,
    /// By the server, in these seconds.
    bytes_written: u64,
    after: Afterwards,
}

/// Seconds from the load's end until something was so first, if it came to that.
#[derive(Default)]
struct Afterwards {
    /// No page was dirty.
    clean: Option<f64>,
    /// The history had hardly any logs.
    purged: Option<f64>,
}

/// The standard deviation as a share of the mean.
fn variation(by_second: &[f64]) -> f64 {
    let mean = mean(by_second);
    let squares = by_second.iter().map(|n| (n - mean).powi(2)).sum::<f64>();
    (squares / by_second.len() as f64).sqrt() / mean
}

fn mean(by_second: &[f64]) -> f64 {
    by_second.iter().sum::<f64>() / by_second.len() as f64
}

impl Outcome {
    fn mean(&self) -> f64 {
        mean(&self.tps)
    }

    fn kib_each(&self) -> f64 {
        self.bytes_written as f64 / 1024.0 / self.tps.iter().sum::<f64>()
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
    let mut controls = Vec::new();
    let outcomes = server.each(&databases, |server, database| {
        controls.push(raw::writes_by_second(&server.dir, args.control)?);
        let outcome = with_engine(server.pid(), database, args)?;
        controls.push(raw::writes_by_second(&server.dir, args.control)?);
        Ok(outcome)
    })?;
    server.end()?;
    let picture = workspace.target.join("bench-steady.svg");
    fs::write(&picture, svg::render(&panels(&outcomes), &[]))?;
    if !args.common.json {
        print(&outcomes, args);
        print_controls(&controls);
        println!("plotted in {}", picture.display());
    }
    benchmark.end(to_json(&outcomes, &controls, &settings, args));
    Ok(())
}

fn with_engine(server: u32, sysbench: &Sysbench<'_>, args: &SteadyArgs) -> Result<Outcome> {
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
    let before = Transferred::of(server)?;
    let tps =
        sysbench.run_by_seconds(&args.script, args.threads, Duration::from_secs(args.time))?;
    let written = Transferred::of(server)?.written - before.written;
    let samples = sampler.stop()?;
    let after = wait_until_idle(&mut client, engine, &names[1])?;
    Ok(Outcome {
        engine,
        tps,
        plotted: [0, 1].map(|n| since(&samples, &names[n], begun)),
        max_age,
        bytes_written: written,
        after,
    })
}

fn since(samples: &Samples, name: &str, begun: Instant) -> Vec<(f64, f64)> {
    let values = samples.values(name, &(begun..Instant::now()));
    let point = |(at, value): (Instant, u64)| ((at - begun).as_secs_f64(), value as f64);
    values.into_iter().map(point).collect()
}

/// What an engine still writes would take from the next one. One that makes no headway is not waited for.
fn wait_until_idle(client: &mut Client, engine: Engine, dirty: &str) -> Result<Afterwards> {
    let ended = Instant::now();
    let mut after = Afterwards::default();
    let (mut least, mut since) = ([u64::MAX; 2], Instant::now());
    while ended.elapsed() < PATIENCE && since.elapsed() < STANDSTILL {
        let now = load::status(client, &[dirty, &load::history_name(engine)])?;
        let seconds = ended.elapsed().as_secs_f64();
        if now[0] == 0 {
            after.clean.get_or_insert(seconds);
        }
        if now[1] < HARDLY_ANY {
            after.purged.get_or_insert(seconds);
        }
        // Purge may have changed pages again.
        if now[0] == 0 && after.purged.is_some() {
            break;
        }
        for (least, now) in least.iter_mut().zip(now) {
            if now < *least {
                (*least, since) = (now, Instant::now());
            }
        }
        std::thread::sleep(load::WINDOW);
    }
    Ok(after)
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
        "engine:<7|mean tps:>9|median:>9|variation:>10|worst s:>9|share:>7|s below half:>14|age MiB:>12|of MiB:>11|dirty:>10|KiB each:>12|clean after s:>15|purged after s:>16",
    );
    table.print_head();
    for outcome in outcomes {
        table.print([
            outcome.engine.name().into(),
            outcome.mean().into(),
            outcome.median().into(),
            format!("{:.1}%", 100.0 * variation(&outcome.tps)).into(),
            outcome.worst().into(),
            format!("{:.0}%", 100.0 * outcome.worst() / outcome.median()).into(),
            outcome.slow_seconds().into(),
            (outcome.most(0) / 1048576.0).into(),
            Cell::of(outcome.max_age >> 20),
            outcome.most(1).into(),
            format!("{:.2}", outcome.kib_each()).into(),
            seconds(outcome.after.clean).into(),
            seconds(outcome.after.purged).into(),
        ]);
    }
    if let [ours, peer] = outcomes {
        println!(
            "mean of the first in that of the second: {:.2}",
            ours.mean() / peer.mean()
        );
    }
}

fn seconds(after: Option<f64>) -> String {
    after.map_or("never".into(), |seconds| format!("{seconds:.1}"))
}

fn print_controls(controls: &[Vec<f64>]) {
    let means: Vec<_> = controls.iter().map(|control| mean(control)).collect();
    let each = means.iter().map(|mean| format!("{mean:.0}"));
    println!(
        "synced writes of 16 KiB a second without an engine, before and after each: {}; variation {:.1}%, within one {:.1}%",
        each.collect::<Vec<_>>().join(", "),
        100.0 * variation(&means),
        100.0
            * controls
                .iter()
                .map(|control| variation(control))
                .fold(0.0, f64::max),
    );
}

fn to_json(
    outcomes: &[Outcome],
    controls: &[Vec<f64>],
    settings: &[&str],
    args: &SteadyArgs,
) -> Value {
    let results = outcomes.iter().map(|outcome| {
        json!({
            "engine": outcome.engine.name(), "tps": outcome.tps, "mean": outcome.mean(), "median": outcome.median(),
            "variation": variation(&outcome.tps), "bytes_written": outcome.bytes_written,
            "clean_after": outcome.after.clean, "purged_after": outcome.after.purged, "worst_second": outcome.worst(), "seconds_below_half": outcome.slow_seconds(),
            "checkpoint_age": outcome.plotted[0], "dirty_pages": outcome.plotted[1], "checkpoint_max_age": outcome.max_age,
        })
    });
    json!({
        "script": args.script, "threads": args.threads, "pool_mib": args.pool, "data": args.data,
        "seconds": args.time, "settings": settings, "controls": controls, "results": results.collect::<Vec<_>>(),
    })
}
