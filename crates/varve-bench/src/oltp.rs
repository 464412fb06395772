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
use serde_json::json;

use crate::profile;
use crate::stats::median;
use crate::sysbench::{Report, Sysbench};
use varve_testbed::plugin;
use varve_testbed::server::{Engine, Server};
use varve_testbed::workspace::Workspace;

#[derive(clap::Args)]
pub struct OltpArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
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
    /// Compare these engines
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Engine::Varve, Engine::Innodb])]
    engines: Vec<Engine>,
    /// Options for mariadbd
    #[arg(last = true, value_name = "MARIADBD OPTIONS")]
    options: Vec<String>,
}

const TABLES: u32 = 4;
const SETTINGS: [&str; 4] = [
    "buffer-pool-size=1G",
    "log-file-size=1G",
    "doublewrite=ON",
    "flush-log-at-trx-commit=1",
];

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

/// All runs of one workload with one number of threads: for each engine its reports.
struct Comparison {
    workload: &'static str,
    threads: u32,
    data: Data,
    reports: Vec<Vec<Report>>,
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
    ensure!(
        args.repeat > 0 && !args.engines.is_empty(),
        "nothing to run"
    );
    let prefix = plugin::prefix_for(workspace, &args.engines)?;
    let (mut server, dir) = crate::fresh_server(
        workspace,
        &prefix,
        "oltp",
        &args.engines,
        &SETTINGS,
        &args.options,
    )?;
    let engines = Sysbench::on_all(&server, &prefix, &args.engines, (TABLES, args.rows));
    let comparisons = compare_all(&engines, args, &mut server)?;
    let profiles = profile_worst(&engines, &comparisons, args, &mut server, &workspace.target)?;
    server.stop()?;
    fs::remove_dir_all(dir)?;
    if args.json {
        println!("{:#}", to_json(&comparisons, &profiles, args));
    }
    Ok(())
}

fn compare_all(
    engines: &[Sysbench],
    args: &OltpArgs,
    server: &mut Server,
) -> Result<Vec<Comparison>> {
    let mut comparisons = Vec::new();
    let mut kept_data_is_there = false;
    for (workload, data) in WORKLOADS {
        if !args.only.is_empty() && !args.only.iter().any(|name| short(name) == short(workload)) {
            continue;
        }
        if data == Data::Kept && !kept_data_is_there {
            for engine in engines {
                engine.prepare(workload, 1).context("prepare")?;
            }
            kept_data_is_there = true;
        }
        for &threads in &args.threads {
            let comparison = compare(engines, workload, data, threads, args)
                .with_context(|| format!("{workload} with {threads} threads"))?;
            if !args.json {
                print(&comparison, args, comparisons.is_empty());
            }
            comparisons.push(comparison);
            server.check_alive()?;
        }
    }
    Ok(comparisons)
}

/// One more run of each of the comparisons that look worst for the first engine, under a profiler.
fn profile_worst(
    engines: &[Sysbench],
    comparisons: &[Comparison],
    args: &OltpArgs,
    server: &mut Server,
    target: &Path,
) -> Result<Vec<Profile>> {
    let mut worst: Vec<&Comparison> = comparisons.iter().collect();
    worst.sort_by(|a, b| f64::total_cmp(&ratio(a).unwrap_or(1.0), &ratio(b).unwrap_or(1.0)));
    let mut profiles = Vec::new();
    for comparison in worst.into_iter().take(args.profile) {
        let (workload, threads) = (comparison.workload, comparison.threads);
        for engine in engines {
            // What the runs before left may be anything, tables of another workload too.
            let fillers = if comparison.data == Data::Own {
                threads
            } else {
                1
            };
            engine.prepare(workload, fillers)?;
            let file = target.join("perf.data");
            let time = Duration::from_secs(args.time);
            let recording = profile::Recording::start(server.pid(), time, &file)?;
            engine.run(workload, threads, time)?;
            recording.finish()?;
            let lines = profile::report(&file)?;
            if !args.json {
                println!(
                    "\n{} with {threads} threads on {}:",
                    short(workload),
                    engine.engine.name()
                );
                println!("{}", lines.join("\n"));
            }
            profiles.push(Profile {
                workload,
                threads,
                engine: engine.engine,
                lines,
            });
            fs::remove_file(file)?;
        }
    }
    Ok(profiles)
}

fn prepare(engine: &Sysbench, workload: &str, data: Data, threads: u32) -> Result<()> {
    match data {
        Data::Kept => Ok(()),
        Data::Fresh => engine.prepare(workload, 1),
        Data::Own => engine.prepare(workload, threads),
    }
}

fn compare(
    engines: &[Sysbench],
    workload: &'static str,
    data: Data,
    threads: u32,
    args: &OltpArgs,
) -> Result<Comparison> {
    let mut reports = vec![Vec::new(); engines.len()];
    for repetition in 0..args.repeat {
        for n in 0..engines.len() {
            let n = (n + repetition) % engines.len();
            prepare(&engines[n], workload, data, threads)?;
            reports[n].push(engines[n].run(workload, threads, Duration::from_secs(args.time))?);
        }
    }
    Ok(Comparison {
        workload,
        threads,
        data,
        reports,
    })
}

fn short(workload: &str) -> &str {
    workload.strip_prefix("oltp_").unwrap_or(workload)
}

/// Median, least and greatest of a few figures.
fn spread(reports: &[Report], figure: impl Fn(&Report) -> f64) -> (f64, f64, f64) {
    let mut figures: Vec<f64> = reports.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    let median = median(figures.iter().copied());
    (median, figures[0], figures[figures.len() - 1])
}

fn ratio(comparison: &Comparison) -> Option<f64> {
    let [ours, peer] = &comparison.reports[..] else {
        return None;
    };
    Some(spread(ours, |report| report.per_second).0 / spread(peer, |report| report.per_second).0)
}

fn print(comparison: &Comparison, args: &OltpArgs, is_first: bool) {
    if is_first {
        print!("{:<21} {:>7}", "workload", "threads");
        for engine in &args.engines {
            print!(
                " {:>30} {:>8} {:>7}",
                format!("{} tps (min-max)", engine.name()),
                "p95 ms",
                "errors"
            );
        }
        println!(" {:>6}", "ratio");
    }
    print!(
        "{:<21} {:>7}",
        short(comparison.workload),
        comparison.threads
    );
    for reports in &comparison.reports {
        let (median, least, greatest) = spread(reports, |report| report.per_second);
        let (p95, ..) = spread(reports, |report| report.p95_ms);
        let errors: u64 = reports.iter().map(|report| report.ignored_errors).sum();
        print!(
            " {:>30} {p95:>8.2} {errors:>7}",
            format!("{median:.0} ({least:.0}-{greatest:.0})")
        );
    }
    println!(
        " {:>6}",
        ratio(comparison).map_or("-".into(), |ratio| format!("{ratio:.2}"))
    );
}

fn to_json(comparisons: &[Comparison], profiles: &[Profile], args: &OltpArgs) -> serde_json::Value {
    let rows = comparisons.iter().map(|comparison| {
        let engines = args.engines.iter().zip(&comparison.reports).map(|(engine, reports)| {
            let (median, least, greatest) = spread(reports, |report| report.per_second);
            json!({
                "engine": engine.name(),
                "tps": median, "tps_min": least, "tps_max": greatest,
                "p95_ms": spread(reports, |report| report.p95_ms).0,
                "ignored_errors": reports.iter().map(|report| report.ignored_errors).sum::<u64>(),
            })
        });
        json!({
            "workload": short(comparison.workload),
            "threads": comparison.threads,
            "engines": engines.collect::<Vec<_>>(),
            "ratio": ratio(comparison),
        })
    });
    let profiles = profiles.iter().map(|profile| {
        json!({
            "workload": short(profile.workload), "threads": profile.threads,
            "engine": profile.engine.name(), "functions": profile.lines,
        })
    });
    json!({
        "benchmark": "oltp", "tables": TABLES, "rows": args.rows, "seconds": args.time, "repeat": args.repeat,
        "settings": SETTINGS, "results": rows.collect::<Vec<_>>(), "profiles": profiles.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_even_and_odd_numbers() {
        let reports = |figures: &[f64]| {
            figures
                .iter()
                .map(|f| Report {
                    per_second: *f,
                    ignored_errors: 0,
                    p95_ms: 0.0,
                })
                .collect()
        };
        let spread_of = |figures: &[f64]| {
            let reports: Vec<Report> = reports(figures);
            spread(&reports, |report| report.per_second)
        };
        assert_eq!(spread_of(&[3.0, 1.0, 2.0]), (2.0, 1.0, 3.0));
        assert_eq!(spread_of(&[4.0, 1.0]), (2.5, 1.0, 4.0));
    }
}
