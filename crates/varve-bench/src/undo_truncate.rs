//! `bench undo-truncate`: what truncating undo tablespaces costs the clients of `oltp_read_write`.
//!
//! For each number of tablespaces a server is started. In it each engine, threshold and number of clients
//! gets one run of sysbench, during which truncation is switched off and on by turns. An interval with it and
//! one without it beside it are a pair; which of the two is first changes from pair to pair, so that a
//! machine that gets slower or faster hurts both alike. What counts is the ratio of throughputs within pairs.
//!
//! Intervals in which hardly anything was truncated say nothing: with fewer than [`FEWEST`] truncations in
//! any interval with truncation the comparison is void. If purge is too quick for a tablespace to grow beyond
//! the threshold, another client may open a view again and again, in all intervals (`--view`); or empty
//! tablespaces by hand in those with truncation (`--by-hand`), which takes the same way. InnoDB knows no such
//! statement.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use varve_testbed::client::Client;
use varve_testbed::server::{Engine, Server};
use varve_testbed::workspace::Workspace;

use crate::benchmark::{Benchmark, Common, SMALL_TABLES_IN_POOL};
use crate::load::{self, Sampler, Samples};
use crate::stats::{Estimate, median, paired_ratio, share_below};
use crate::sysbench::Sysbench;
use crate::table::{Cell, Table};

#[derive(clap::Args)]
pub struct UndoTruncateArgs {
    /// Numbers of undo tablespaces, from 2 on
    #[arg(long, value_delimiter = ',', default_value = "2,8")]
    tablespaces: Vec<u32>,
    /// How large a tablespace may become before it is truncated, in MiB, from 10 on
    #[arg(long, value_delimiter = ',', default_value = "10,100")]
    threshold: Vec<u64>,
    /// Numbers of client threads
    #[arg(long, value_delimiter = ',', default_value = "64,128")]
    threads: Vec<u32>,
    /// Intervals of each run, half of them with truncation; from 12 on there is a 95 % interval
    #[arg(long, default_value_t = 12)]
    intervals: usize,
    /// Seconds of each interval
    #[arg(long, default_value_t = 30)]
    time: u64,
    /// Rows of each of the 4 tables
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    /// In each interval with truncation empty so many of Varve's tablespaces by hand
    #[arg(long, default_value_t = 0)]
    by_hand: u32,
    /// In all intervals have a client open a view for so many seconds, and leave it for half as long, again
    /// and again: undo grows meanwhile
    #[arg(long, default_value_t = 0)]
    view: u64,
    #[command(flatten)]
    common: Common,
}

const WORKLOAD: &str = "oltp_read_write";
const TABLES: u32 = 4;
/// Beside `SMALL_TABLES_IN_POOL`.
const NO_TRUNCATION: &str = "undo-log-truncate=OFF";
/// Before the first interval.
const WARM_UP: Duration = Duration::from_secs(3);
/// Truncations without which an interval does not count.
const FEWEST: u64 = 5;

/// One run of sysbench.
struct Setting {
    tablespaces: u32,
    threshold_mib: u64,
    threads: u32,
}

struct Interval {
    with_truncation: bool,
    span: Range<Instant>,
    truncations: u64,
}

/// What a run came to.
struct Outcome {
    engine: Engine,
    setting: Setting,
    /// Medians of the intervals, without and with truncation.
    tps: [f64; 2],
    /// Throughput with truncation by that without.
    ratio: Estimate,
    /// Share of windows with less than half the median throughput of those without truncation; without and
    /// with it.
    slow_windows: [f64; 2],
    /// In each interval with truncation.
    truncations: Vec<u64>,
}

impl Outcome {
    fn is_void(&self) -> bool {
        self.truncations.iter().any(|n| *n < FEWEST)
    }
}

pub fn run(workspace: &Workspace, args: &UndoTruncateArgs) -> Result<()> {
    ensure!(
        args.intervals >= 2 && args.intervals.is_multiple_of(2),
        "--intervals must be an even number: an interval with truncation and one without make a pair"
    );
    ensure!(
        args.tablespaces.iter().all(|n| *n >= 2) && args.threshold.iter().all(|mib| *mib >= 10),
        "truncation needs two undo tablespaces and a threshold of 10 MiB or more"
    );
    let benchmark = Benchmark::begin(workspace, "undo-truncate", &args.common)?;
    let mut results = Vec::new();
    for (n, &tablespaces) in args.tablespaces.iter().enumerate() {
        let (outcomes, held) = with_tablespaces(&benchmark, tablespaces, n == 0, args)?;
        if !args.common.json && !held.is_empty() {
            println!("Varve with {tablespaces} tablespaces: {held}");
        }
        results.push(json!({
            "tablespaces": tablespaces, "locks": held,
            "runs": outcomes.iter().map(to_json).collect::<Vec<_>>(),
        }));
    }
    let settings = [&SMALL_TABLES_IN_POOL[..], &[NO_TRUNCATION]].concat();
    benchmark.end(json!({
        "workload": WORKLOAD, "tables": TABLES, "rows": args.rows, "intervals": args.intervals,
        "seconds": args.time, "by_hand": args.by_hand, "view": args.view, "settings": settings,
        "method": "Hodges-Lehmann estimate of paired ratios, interval of Wilcoxon's signed-rank test",
        "results": results,
    }));
    Ok(())
}

/// All runs in one server, and what Varve says about the locks that its truncations took.
fn with_tablespaces(
    benchmark: &Benchmark,
    tablespaces: u32,
    is_first: bool,
    args: &UndoTruncateArgs,
) -> Result<(Vec<Outcome>, String)> {
    let tablespaces_setting = format!("undo-tablespaces={tablespaces}");
    let more = [NO_TRUNCATION, tablespaces_setting.as_str()];
    let settings = [&SMALL_TABLES_IN_POOL[..], &more].concat();
    let mut server = benchmark.server(&settings)?;
    let table = table();
    if !args.common.json && is_first {
        print_head(args);
        table.print_head();
    }
    let mut outcomes = Vec::new();
    server.each(&server.databases(TABLES, args.rows), |_, tables| {
        tables.prepare(WORKLOAD, 1)?;
        for &threshold_mib in &args.threshold {
            for &threads in &args.threads {
                let setting = Setting {
                    tablespaces,
                    threshold_mib,
                    threads,
                };
                let outcome = compare(tables, setting, args)?;
                if !args.common.json {
                    print(&table, &outcome);
                }
                outcomes.push(outcome);
            }
        }
        // The next engine's turn.
        Client::connect(&tables.socket)?.query(&format!("DROP DATABASE {}", tables.database))?;
        Ok(())
    })?;
    let held = match args.common.engines.contains(&Engine::Varve) {
        true => locks(&server)?,
        false => String::new(),
    };
    server.end()?;
    Ok((outcomes, held))
}

/// One run of sysbench with all its intervals.
fn compare(tables: &Sysbench<'_>, setting: Setting, args: &UndoTruncateArgs) -> Result<Outcome> {
    let engine = tables.engine;
    let mut client = Client::connect(&tables.socket)?;
    let limit = setting.threshold_mib << 20;
    load::set(&mut client, engine, "max_undo_log_size", limit)?;
    let sampler = Sampler::start(&tables.socket, &["Com_commit"])?;
    let interval = Duration::from_secs(args.time);
    let time = WARM_UP + interval * (args.intervals as u32 + 1);
    let is_over = AtomicBool::new(false);
    let panicked = || anyhow!("a thread of the benchmark panicked");
    let intervals = thread::scope(|scope| {
        let load = scope.spawn(|| tables.run(WORKLOAD, setting.threads, time));
        let viewer = scope.spawn(|| open_views(tables, args.view, &is_over));
        let intervals = alternate(&mut client, tables, &setting, args);
        is_over.store(true, Relaxed);
        let ended_early = load.is_finished();
        viewer.join().map_err(|_| panicked())??;
        load.join().map_err(|_| panicked())??;
        ensure!(
            !ended_early,
            "sysbench ended before the last interval: emptying tablespaces by hand took too long"
        );
        intervals
    })?;
    let samples = sampler.stop()?;
    Ok(evaluate(engine, setting, &intervals, &samples))
}

/// Switches truncation off and on by turns. The load's last seconds belong to no interval: connecting took it
/// a while.
fn alternate(
    client: &mut Client,
    tables: &Sysbench<'_>,
    setting: &Setting,
    args: &UndoTruncateArgs,
) -> Result<Vec<Interval>> {
    let engine = tables.engine;
    let counter = load::status_name(engine, "undo_truncations");
    let switch = |client: &mut Client, on: bool| {
        let on = if on { "ON" } else { "OFF" };
        load::set(client, engine, "undo_log_truncate", on)
    };
    thread::sleep(WARM_UP);
    let mut emptier = Client::connect(&tables.socket)?;
    let mut intervals = Vec::new();
    for n in 0..args.intervals {
        // Off, on; on, off; off, on …
        let with_truncation = n % 4 == 1 || n % 4 == 2;
        switch(client, with_truncation)?;
        let before = load::status(client, &[&counter])?[0];
        let begun = Instant::now();
        let end = begun + Duration::from_secs(args.time);
        if with_truncation && engine == Engine::Varve && args.by_hand > 0 {
            empty_by_hand(&mut emptier, setting.tablespaces, begun..end, args.by_hand)?;
        }
        thread::sleep(end.saturating_duration_since(Instant::now()));
        intervals.push(Interval {
            with_truncation,
            span: begun..Instant::now(),
            truncations: load::status(client, &[&counter])?[0] - before,
        });
    }
    switch(client, false)?;
    Ok(intervals)
}

/// Opens a view for so many seconds, and leaves it for half as long, until it is over. Relaxed: nothing else
/// depends on that.
fn open_views(tables: &Sysbench<'_>, seconds: u64, is_over: &AtomicBool) -> Result<()> {
    if seconds == 0 {
        return Ok(());
    }
    let mut client = Client::connect(&tables.socket)?;
    let read = format!(
        "SELECT count(*) FROM {}.sbtest1 WHERE id = 1",
        tables.database
    );
    while !is_over.load(Relaxed) {
        client.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
        client.query(&read)?;
        thread::sleep(Duration::from_secs(seconds));
        client.query("COMMIT")?;
        thread::sleep(Duration::from_secs(seconds) / 2);
    }
    Ok(())
}

/// Empties so many undo tablespaces one after the other, in turn, evenly spread over a span as far as that
/// goes.
fn empty_by_hand(
    client: &mut Client,
    tablespaces: u32,
    span: Range<Instant>,
    count: u32,
) -> Result<()> {
    let step = (span.end - span.start) / count;
    for n in 0..count {
        let at = span.start + step * n;
        thread::sleep(at.saturating_duration_since(Instant::now()));
        if Instant::now() >= span.end {
            break;
        }
        let number = n % tablespaces + 1;
        match client.query(&format!("SET GLOBAL varve_truncate_undo = {number}")) {
            // It was needed for too long: not counted.
            Err(error) if error.is_conflict() => {}
            done => drop(done?),
        }
    }
    Ok(())
}

fn evaluate(
    engine: Engine,
    setting: Setting,
    intervals: &[Interval],
    samples: &Samples,
) -> Outcome {
    let of = |with: bool| intervals.iter().filter(move |i| i.with_truncation == with);
    let tps = |interval: &Interval| samples.rate("Com_commit", &interval.span);
    let windows = |with: bool| -> Vec<f64> {
        of(with)
            .flat_map(|i| samples.rates("Com_commit", &i.span))
            .collect()
    };
    let [without, with] = [windows(false), windows(true)];
    let half = median(without.iter().copied()) / 2.0;
    let ratios: Vec<f64> = of(true)
        .zip(of(false))
        .map(|(on, off)| tps(on) / tps(off))
        .collect();
    Outcome {
        engine,
        setting,
        tps: [false, true].map(|with| median(of(with).map(tps))),
        ratio: paired_ratio(&ratios),
        slow_windows: [share_below(&without, half), share_below(&with, half)],
        truncations: of(true).map(|i| i.truncations).collect(),
    }
}

/// The lines of `SHOW ENGINE VARVE STATUS` about truncation.
fn locks(server: &Server) -> Result<String> {
    let rows = server.connect()?.query("SHOW ENGINE VARVE STATUS")?;
    let text = rows.first().and_then(|row| row[2].as_deref());
    let section = text.and_then(|text| text.split_once("UNDO TABLESPACE TRUNCATION\n"));
    let (_, lines) = section.context("SHOW ENGINE VARVE STATUS says nothing of truncation")?;
    let lines = lines
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with("---"));
    Ok(lines.collect::<Vec<_>>().join("\n  "))
}

fn print_head(args: &UndoTruncateArgs) {
    println!(
        "{WORKLOAD}, {} intervals of {} s, truncation off and on by turns; loss: Hodges-Lehmann estimate of the paired ratios, with the\n\
         95 % interval of Wilcoxon's signed-rank test; slow: windows of {} ms under half the median of those without truncation",
        args.intervals,
        args.time,
        load::WINDOW.as_millis()
    );
    if args.view > 0 {
        println!(
            "a view is open for {} s of each {:.1}",
            args.view,
            1.5 * args.view as f64
        );
    }
    if args.by_hand > 0 {
        println!(
            "Varve's tablespaces are emptied by hand, {} times in each interval with truncation",
            args.by_hand
        );
    }
}

fn table() -> Table {
    Table::new(
        "engine:<7|files:>5|threshold:>9|threads:>7|tps off:>8|tps on:>8|loss:>23|truncations:>12|slow off, on:>14|:<0",
    )
}

fn print(table: &Table, outcome: &Outcome) {
    let loss = |ratio: f64| 100.0 * (1.0 - ratio);
    let interval = match outcome.ratio.interval {
        Some((low, high)) => format!("({:+.1} to {:+.1})", loss(high), loss(low)),
        None => "(too few pairs)".into(),
    };
    let least = outcome.truncations.iter().min().copied();
    let most = outcome.truncations.iter().max().copied();
    let [slow_off, slow_on] = outcome.slow_windows.map(|share| 100.0 * share);
    table.print([
        outcome.engine.name().into(),
        Cell::of(outcome.setting.tablespaces),
        format!("{} MiB", outcome.setting.threshold_mib).into(),
        Cell::of(outcome.setting.threads),
        outcome.tps[0].into(),
        outcome.tps[1].into(),
        format!("{:+.1}% {interval}", loss(outcome.ratio.value)).into(),
        format!("{} to {}", least.unwrap_or(0), most.unwrap_or(0)).into(),
        format!("{slow_off:.1}%, {slow_on:.1}%").into(),
        match outcome.is_void() {
            true => " void: too few truncations".into(),
            false => "".into(),
        },
    ]);
}

fn to_json(outcome: &Outcome) -> Value {
    json!({
        "engine": outcome.engine.name(), "threshold_mib": outcome.setting.threshold_mib, "threads": outcome.setting.threads,
        "tps_off": outcome.tps[0], "tps_on": outcome.tps[1], "ratio": outcome.ratio.value,
        "ratio_interval": outcome.ratio.interval, "truncations": outcome.truncations, "void": outcome.is_void(),
        "slow_windows_off": outcome.slow_windows[0], "slow_windows_on": outcome.slow_windows[1],
    })
}
