//! `bench oltp`: each of sysbench's OLTP workloads, Varve and InnoDB in turn, in one server.
//!
//! Both engines have the same pool, redo capacity and durability. Runs alternate, and the engine that
//! begins changes with each repetition, so that a machine that slows down hurts both alike. Tables are
//! filled anew before each run that would meet others' leftovers. Errors other than deadlocks and lock
//! timeouts end sysbench, and with it the benchmark.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use varve_testbed::server::Engine;
use varve_testbed::workspace::Workspace;

use crate::benchmark::{BenchServer, Benchmark, Common, SMALL_TABLES_IN_POOL};
use crate::profile;
use crate::stats::{Runs, Spread};
use crate::sysbench::{Report, Sysbench};
use crate::table::{Cell, Table};

#[derive(clap::Args)]
pub struct OltpArgs {
    /// Numbers of client threads
    #[arg(long, value_delimiter = ',', default_value = "1,16")]
    threads: Vec<u32>,
    /// Seconds of each run
    #[arg(long, default_value_t = 20)]
    time: u64,
    /// Runs of each workload; the median counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Rows of each of the 4 tables
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    /// Only these workloads
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Profile this many of the worst comparisons with perf
    #[arg(long, default_value_t = 0)]
    profile: usize,
    #[command(flatten)]
    common: Common,
}

const TABLES: u32 = 4;

/// What a run finds when it begins.
#[derive(Clone, Copy, PartialEq)]
enum Data {
    /// It changes no number of rows: tables may be used again.
    Kept,
    /// It adds or removes rows: tables are filled anew.
    Fresh,
    /// It has tables of its own, empty at first.
    Own,
}

const WORKLOADS: [(&str, Data); 11] = [
    ("oltp_point_select", Data::Kept),
    ("oltp_read_only", Data::Kept),
    ("select_random_points", Data::Kept),
    ("select_random_ranges", Data::Kept),
    ("oltp_read_write", Data::Kept),
    ("oltp_write_only", Data::Kept),
    ("oltp_update_index", Data::Kept),
    ("oltp_update_non_index", Data::Kept),
    ("oltp_insert", Data::Fresh),
    ("oltp_delete", Data::Fresh),
    ("bulk_insert", Data::Own),
];

/// All runs of one workload with one number of threads.
struct Comparison {
    workload: &'static str,
    threads: u32,
    data: Data,
    reports: Runs<Report>,
}

impl Comparison {
    /// Median, least and greatest throughput of an engine.
    fn tps(&self, engine: usize) -> Spread {
        Spread::of(&self.reports.figures(engine, |report| report.per_second))
    }

    fn p95_ms(&self, engine: usize) -> f64 {
        self.reports.median(engine, |report| report.p95_ms)
    }

    fn ignored_errors(&self, engine: usize) -> u64 {
        let reports = self.reports.of(engine).iter();
        reports.map(|report| report.ignored_errors).sum()
    }

    fn ratio(&self) -> Option<f64> {
        self.reports.ratio(|report| report.per_second)
    }
}

/// Where the time of one run went.
struct Profile {
    workload: &'static str,
    threads: u32,
    engine: Engine,
    lines: Vec<String>,
}

pub fn run(workspace: &Workspace, args: &OltpArgs) -> Result<()> {
    for name in &args.only {
        let known = WORKLOADS.map(|(known, _)| short(known));
        ensure!(
            known.contains(&short(name)),
            "no workload {name}; there are {}",
            known.join(", ")
        );
    }
    ensure!(args.repeat > 0, "nothing to run");
    let benchmark = Benchmark::begin(workspace, "oltp", &args.common)?;
    let mut server = benchmark.server(&SMALL_TABLES_IN_POOL)?;
    let comparisons = compare_all(&mut server, args)?;
    let profiles = profile_worst(&mut server, &comparisons, args, &workspace.target)?;
    server.end()?;
    benchmark.end(to_json(&comparisons, &profiles, args));
    Ok(())
}

fn compare_all(server: &mut BenchServer, args: &OltpArgs) -> Result<Vec<Comparison>> {
    let databases = server.databases(TABLES, args.rows);
    let table = table(&args.common.engines);
    let mut comparisons: Vec<Comparison> = Vec::new();
    let mut kept_data_is_there = false;
    for (workload, data) in WORKLOADS {
        if !args.only.is_empty() && !args.only.iter().any(|name| short(name) == short(workload)) {
            continue;
        }
        if data == Data::Kept && !kept_data_is_there {
            for database in &databases {
                database.prepare(workload, 1).context("prepare")?;
            }
            kept_data_is_there = true;
        }
        for &threads in &args.threads {
            let reports = server.in_turn(&databases, args.repeat, |_, database| {
                prepare(database, workload, data, threads)?;
                database.run(workload, threads, Duration::from_secs(args.time))
            });
            let comparison = Comparison {
                workload,
                threads,
                data,
                reports: reports.with_context(|| format!("{workload} with {threads} threads"))?,
            };
            if !args.common.json {
                print(&table, &comparison, args, comparisons.is_empty());
            }
            comparisons.push(comparison);
        }
    }
    Ok(comparisons)
}

/// One more run of each of the comparisons that look worst for the first engine, under a profiler.
fn profile_worst(
    server: &mut BenchServer,
    comparisons: &[Comparison],
    args: &OltpArgs,
    target: &Path,
) -> Result<Vec<Profile>> {
    let mut worst: Vec<&Comparison> = comparisons.iter().collect();
    let ratio = |comparison: &Comparison| comparison.ratio().unwrap_or(1.0);
    worst.sort_by(|a, b| f64::total_cmp(&ratio(a), &ratio(b)));
    let databases = server.databases(TABLES, args.rows);
    let mut profiles = Vec::new();
    for comparison in worst.into_iter().take(args.profile) {
        let (workload, threads) = (comparison.workload, comparison.threads);
        // What the runs before left may be anything, tables of another workload too.
        let fillers = match comparison.data {
            Data::Own => threads,
            Data::Kept | Data::Fresh => 1,
        };
        profiles.extend(server.each(&databases, |server, database| {
            database.prepare(workload, fillers)?;
            let file = target.join("perf.data");
            let time = Duration::from_secs(args.time);
            let recording = profile::Recording::start(server.pid(), time, &file)?;
            database.run(workload, threads, time)?;
            recording.finish()?;
            let lines = profile::report(&file)?;
            let engine = database.engine;
            if !args.common.json {
                let (workload, engine) = (short(workload), engine.name());
                println!("\n{workload} with {threads} threads on {engine}:");
                println!("{}", lines.join("\n"));
            }
            fs::remove_file(file)?;
            Ok(Profile {
                workload,
                threads,
                engine,
                lines,
            })
        })?);
    }
    Ok(profiles)
}

fn prepare(database: &Sysbench, workload: &str, data: Data, threads: u32) -> Result<()> {
    match data {
        Data::Kept => Ok(()),
        Data::Fresh => database.prepare(workload, 1),
        Data::Own => database.prepare(workload, threads),
    }
}

fn short(workload: &str) -> &str {
    workload.strip_prefix("oltp_").unwrap_or(workload)
}

fn table(engines: &[Engine]) -> Table {
    let engines: Vec<String> = engines
        .iter()
        .map(|engine| format!("{} tps (min-max):>30|p95 ms:>8.2|errors:>7|", engine.name()))
        .collect();
    Table::new(&format!(
        "workload:<21|threads:>7|{}ratio:>6.2",
        engines.concat()
    ))
}

fn print(table: &Table, comparison: &Comparison, args: &OltpArgs, is_first: bool) {
    if is_first {
        table.print_head();
    }
    let mut cells = vec![
        short(comparison.workload).into(),
        Cell::of(comparison.threads),
    ];
    for n in 0..args.common.engines.len() {
        cells.push(Cell::of(comparison.tps(n)));
        cells.push(comparison.p95_ms(n).into());
        cells.push(Cell::of(comparison.ignored_errors(n)));
    }
    cells.push(comparison.ratio().map_or("-".into(), Cell::Number));
    table.print(cells);
}

fn to_json(comparisons: &[Comparison], profiles: &[Profile], args: &OltpArgs) -> Value {
    let rows = comparisons.iter().map(|comparison| {
        let engines = args.common.engines.iter().enumerate().map(|(n, engine)| {
            let tps = comparison.tps(n);
            json!({
                "engine": engine.name(),
                "tps": tps.median, "tps_min": tps.least, "tps_max": tps.greatest,
                "p95_ms": comparison.p95_ms(n),
                "ignored_errors": comparison.ignored_errors(n),
            })
        });
        json!({
            "workload": short(comparison.workload),
            "threads": comparison.threads,
            "engines": engines.collect::<Vec<_>>(),
            "ratio": comparison.ratio(),
        })
    });
    let profiles = profiles.iter().map(|profile| {
        json!({
            "workload": short(profile.workload), "threads": profile.threads,
            "engine": profile.engine.name(), "functions": profile.lines,
        })
    });
    json!({
        "tables": TABLES, "rows": args.rows, "seconds": args.time, "repeat": args.repeat,
        "settings": SMALL_TABLES_IN_POOL, "results": rows.collect::<Vec<_>>(), "profiles": profiles.collect::<Vec<_>>(),
    })
}
