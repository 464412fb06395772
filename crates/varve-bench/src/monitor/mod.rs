//! `bench monitor`: what it costs a server to be watched.
//!
//! A server with Varve, its monitor and the performance schema gets a run of sysbench for each workload.
//! Meanwhile windows in which nobody asks for anything and windows in which everything is asked for once a
//! second take turns (`watchers`). A window with watchers and the one beside it without are a pair; which of
//! the two is first changes from pair to pair, so that a machine that gets slower or faster hurts both alike.
//! What counts is the ratio of throughputs within pairs.
//!
//! Throughput is a status variable that counts, read when a window begins to count and when it ends: reading
//! it more often would be watching, too. Those who watch run on the machine of the server and its clients,
//! and what they take of its processors is part of what is measured.

mod watchers;

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use varve_testbed::client::Client;
use varve_testbed::server::Engine;
use varve_testbed::workspace::Workspace;

use crate::benchmark::{Benchmark, Common, SMALL_TABLES_IN_POOL};
use crate::load;
use crate::stats::{Estimate, median, paired_ratio};
use crate::sysbench::Sysbench;
use crate::table::{Cell, Table};
use watchers::Watchers;

#[derive(clap::Args)]
pub struct MonitorArgs {
    /// What sysbench runs, one after the other
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = BOTH)]
    workload: Vec<Workload>,
    /// Pairs of windows for each workload; from 6 on there is a 95 % interval
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Seconds of each window, after half a second that does not count
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
    window: u64,
    /// Clients
    #[arg(long, default_value_t = 16)]
    clients: u32,
    /// Rows of each of the 4 tables
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    /// Print the result as JSON, with all that was measured
    #[arg(long)]
    json: bool,
    /// Options for mariadbd
    #[arg(last = true, value_name = "MARIADBD OPTIONS")]
    options: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Workload {
    #[value(name = "oltp_read_write")]
    ReadWrite,
    #[value(name = "oltp_point_select")]
    PointSelect,
}

impl Workload {
    fn script(self) -> &'static str {
        match self {
            Self::ReadWrite => "oltp_read_write",
            Self::PointSelect => "oltp_point_select",
        }
    }

    /// The status variable that counts its transactions. A look adds one to that of the point selects.
    fn counter(self) -> &'static str {
        match self {
            Self::ReadWrite => "Com_commit",
            Self::PointSelect => "Com_select",
        }
    }
}

const BOTH: [Workload; 2] = [Workload::ReadWrite, Workload::PointSelect];
const TABLES: u32 = 4;
/// Beside `SMALL_TABLES_IN_POOL`.
const MONITOR: &str = "monitor-address=127.0.0.1:0";
const TOKEN: &str = "the-benchmark-watches";
/// Before the first window.
const WARM_UP: Duration = Duration::from_secs(3);
/// What begins a window and does not count: what the window before has left behind may be seen in it.
const LEAD: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Watched {
    No,
    Yes,
}

struct Window {
    watched: Watched,
    per_second: f64,
    /// Looks that began in the part that counts.
    looks: usize,
}

/// What the run of a workload came to.
struct Outcome {
    workload: Workload,
    /// Medians of the windows without watchers and with them.
    per_second: [f64; 2],
    /// Of each pair, throughput while watched by that without.
    ratios: Vec<f64>,
    estimate: Estimate,
    looks_per_second: f64,
}

pub fn run(workspace: &Workspace, args: &MonitorArgs) -> Result<()> {
    let token_file = workspace.target.join("bench-monitor.token");
    write_token(&token_file)?;
    let mut options = vec![
        "--performance-schema=ON".into(),
        format!("--varve-monitor-token-file={}", token_file.display()),
    ];
    options.extend(args.options.iter().cloned());
    let common = Common {
        json: args.json,
        engines: vec![Engine::Varve],
        options,
    };
    let benchmark = Benchmark::begin(workspace, "monitor", &common)?;
    let settings = [&SMALL_TABLES_IN_POOL[..], &[MONITOR]].concat();
    let mut server = benchmark.server(&settings)?;
    let table = table();
    if !args.json {
        print_head(args);
        table.print_head();
    }
    let mut outcomes = Vec::new();
    let databases = server.databases(TABLES, args.rows);
    server.each(&databases, |server, tables| {
        tables.prepare("oltp_read_write", 1)?;
        let mut watchers = Watchers::open(server, TOKEN)?;
        for &workload in &args.workload {
            let outcome = compare(tables, workload, &mut watchers, args)?;
            if !args.json {
                print(&table, &outcome);
            }
            outcomes.push(outcome);
        }
        Ok(())
    })?;
    server.end()?;
    fs::remove_file(token_file)?;
    benchmark.end(json!({
        "tables": TABLES, "rows": args.rows, "clients": args.clients, "pairs": args.pairs,
        "seconds": args.window, "settings": settings,
        "method": "Hodges-Lehmann estimate of paired ratios, interval of Wilcoxon's signed-rank test",
        "results": outcomes.iter().map(to_json).collect::<Vec<_>>(),
    }));
    Ok(())
}

/// The monitor takes no token that others may read.
fn write_token(path: &Path) -> Result<()> {
    // Left by a run that failed.
    let _ = fs::remove_file(path);
    let mut options = fs::OpenOptions::new();
    let file = options.create_new(true).write(true).mode(0o600);
    let written = file
        .open(path)
        .and_then(|mut f| f.write_all(TOKEN.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// One run of sysbench with all its windows.
fn compare(
    tables: &Sysbench<'_>,
    workload: Workload,
    watchers: &mut Watchers,
    args: &MonitorArgs,
) -> Result<Outcome> {
    let mut client = Client::connect(&tables.socket)?;
    let window = LEAD + Duration::from_secs(args.window);
    // The last seconds belong to no window: connecting took sysbench a while.
    let time = WARM_UP + window * (2 * args.pairs) + window + Duration::from_secs(2);
    let windows = thread::scope(|scope| {
        let load = scope.spawn(|| tables.run(workload.script(), args.clients, time));
        let windows = take_turns(&mut client, workload, watchers, args);
        let ended_early = load.is_finished();
        let panicked = |_| anyhow!("a thread of the benchmark panicked");
        load.join().map_err(panicked)??;
        ensure!(
            !ended_early,
            "sysbench ended before the last window: status variables took too long to read"
        );
        windows
    })?;
    Ok(evaluate(workload, &windows, args))
}

fn take_turns(
    client: &mut Client,
    workload: Workload,
    watchers: &mut Watchers,
    args: &MonitorArgs,
) -> Result<Vec<Window>> {
    thread::sleep(WARM_UP);
    let mut windows = Vec::new();
    for pair in 0..args.pairs {
        let turns = match pair % 2 {
            0 => [Watched::No, Watched::Yes],
            _ => [Watched::Yes, Watched::No],
        };
        for watched in turns {
            windows.push(one_window(client, workload, watched, watchers, args)?);
        }
    }
    Ok(windows)
}

fn one_window(
    client: &mut Client,
    workload: Workload,
    watched: Watched,
    watchers: &mut Watchers,
    args: &MonitorArgs,
) -> Result<Window> {
    let begun = Instant::now();
    let from = begun + LEAD;
    let until = from + Duration::from_secs(args.window);
    thread::scope(|scope| {
        let looking = match watched {
            Watched::Yes => Some(scope.spawn(|| watchers.look_until(until))),
            Watched::No => None,
        };
        let mut read_at = |at: Instant| -> Result<(Instant, u64)> {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            let count = load::status(client, &[workload.counter()])?[0];
            Ok((Instant::now(), count))
        };
        let (first, last) = (read_at(from)?, read_at(until)?);
        let looks = match looking {
            Some(looking) => {
                let panicked = |_| anyhow!("a thread of the benchmark panicked");
                let looks = looking.join().map_err(panicked)??;
                looks.into_iter().filter(|look| *look >= first.0).count()
            }
            None => 0,
        };
        Ok(Window {
            watched,
            per_second: load::rate(first, last),
            looks,
        })
    })
}

fn evaluate(workload: Workload, windows: &[Window], args: &MonitorArgs) -> Outcome {
    let of = |watched| windows.iter().filter(move |w| w.watched == watched);
    let rates = |watched| of(watched).map(|window| window.per_second);
    let pairs = rates(Watched::Yes).zip(rates(Watched::No));
    let ratios: Vec<f64> = pairs.map(|(with, without)| with / without).collect();
    let looks: usize = windows.iter().map(|window| window.looks).sum();
    Outcome {
        workload,
        per_second: [Watched::No, Watched::Yes].map(|watched| median(rates(watched))),
        estimate: paired_ratio(&ratios),
        ratios,
        looks_per_second: looks as f64 / f64::from(args.pairs) / args.window as f64,
    }
}

fn print_head(args: &MonitorArgs) {
    println!(
        "{} clients, {} pairs of windows of {} s, nobody and everybody watching by turns; ratio: Hodges-Lehmann estimate of the paired ratios,\n\
         with the 95 % interval of Wilcoxon's signed-rank test; looks: how often a second each of the watchers asked",
        args.clients, args.pairs, args.window
    );
}

fn table() -> Table {
    Table::new(
        "workload:<18|alone a second:>14|watched:>9|ratio:>24|median of pairs:>15.3|looks:>6.2",
    )
}

fn print(table: &Table, outcome: &Outcome) {
    let interval = match outcome.estimate.interval {
        Some((low, high)) => format!("({low:.3} to {high:.3})"),
        None => "(too few pairs)".into(),
    };
    table.print([
        outcome.workload.script().into(),
        Cell::Number(outcome.per_second[0]),
        Cell::Number(outcome.per_second[1]),
        format!("{:.3} {interval}", outcome.estimate.value).into(),
        Cell::Number(median(outcome.ratios.iter().copied())),
        Cell::Number(outcome.looks_per_second),
    ]);
}

fn to_json(outcome: &Outcome) -> Value {
    json!({
        "workload": outcome.workload.script(),
        "alone_per_second": outcome.per_second[0], "watched_per_second": outcome.per_second[1],
        "ratio": outcome.estimate.value, "ratio_interval": outcome.estimate.interval,
        "ratios": outcome.ratios, "looks_per_second": outcome.looks_per_second,
    })
}
