//! `bench memory`: point reads and scans of a table that is eight times the buffer pool.
//!
//! The engines take turns in one server, and read past the operating system's cache, which would have all of
//! it otherwise. Before each measurement it is told to forget what it has of the tables' files nevertheless:
//! a file system may not allow that.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, fadvise};
use serde_json::json;

use crate::stats::median;
use crate::sysbench::Sysbench;
use varve_testbed::plugin;
use varve_testbed::server::{Engine, Server};
use varve_testbed::workspace::Workspace;

#[derive(clap::Args)]
pub struct MemoryArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// MiB of the buffer pool
    #[arg(long, default_value_t = 64)]
    pool: u64,
    /// The table takes so many times the pool
    #[arg(long, default_value_t = 8.0)]
    data: f64,
    /// Clients that read points
    #[arg(long, value_delimiter = ',', default_value = "1,16")]
    threads: Vec<u32>,
    /// Seconds of these
    #[arg(long, default_value_t = 10)]
    time: u64,
    /// How often everything is measured
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Compare these engines
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Engine::Varve, Engine::Innodb])]
    engines: Vec<Engine>,
    /// Options for mariadbd
    #[arg(last = true, value_name = "MARIADBD OPTIONS")]
    options: Vec<String>,
}

/// Bytes that a row of sysbench's takes in the table and its index.
const ROW_BYTES: f64 = 235.0;

/// Figures of one engine: for each workload, one of each repetition.
struct Outcome {
    engine: Engine,
    figures: Vec<Vec<f64>>,
}

pub fn run(workspace: &Workspace, args: &MemoryArgs) -> Result<()> {
    let prefix = plugin::prefix_for(workspace, &args.engines)?;
    let pool = format!("buffer-pool-size={}M", args.pool);
    let settings = [
        &pool[..],
        "flush-method=O_DIRECT",
        "log-file-size=256M",
        "io-capacity=2000",
        "io-capacity-max=4000",
    ];
    let (mut server, dir) = crate::fresh_server(
        workspace,
        &prefix,
        "memory",
        &args.engines,
        &settings,
        &args.options,
    )?;
    let rows = (args.data * (args.pool << 20) as f64 / ROW_BYTES) as u64;
    let mut tables = Vec::new();
    for (n, engine) in args.engines.iter().enumerate() {
        let table = Sysbench::on(&server, &prefix, (n, *engine), (1, rows));
        table.prepare("oltp_point_select", 1)?;
        tables.push(table);
    }
    let mut outcomes: Vec<Outcome> = args
        .engines
        .iter()
        .map(|engine| Outcome {
            engine: *engine,
            figures: vec![Vec::new(); names(args).len()],
        })
        .collect();
    for _ in 0..args.repeat {
        for (table, outcome) in tables.iter().zip(&mut outcomes) {
            let found = measure(&server, &dir, table, args);
            let found = found.with_context(|| outcome.engine.name())?;
            outcome
                .figures
                .iter_mut()
                .zip(found)
                .for_each(|(all, one)| all.push(one));
            server.check_alive()?;
        }
    }
    server.stop()?;
    fs::remove_dir_all(dir)?;
    match args.json {
        true => println!("{:#}", to_json(&outcomes, args, rows)),
        false => print(&outcomes, args, rows),
    }
    Ok(())
}

/// Reads of points per second with so many clients, and rows per second of a scan.
fn names(args: &MemoryArgs) -> Vec<String> {
    let points = args
        .threads
        .iter()
        .map(|threads| format!("points, {threads}"));
    points.chain(["scan".into()]).collect()
}

fn measure(
    server: &Server,
    dir: &Path,
    table: &Sysbench<'_>,
    args: &MemoryArgs,
) -> Result<Vec<f64>> {
    let mut found = Vec::new();
    for &threads in &args.threads {
        forget_files(&dir.join(&table.database))?;
        let report = table.run("oltp_point_select", threads, Duration::from_secs(args.time))?;
        found.push(report.per_second);
    }
    forget_files(&dir.join(&table.database))?;
    let mut client = server.connect()?;
    let begun = Instant::now();
    let sql = format!(
        "SELECT COUNT(*), SUM(LENGTH(pad)) FROM {}.sbtest1 FORCE INDEX (PRIMARY)",
        table.database
    );
    let answer = client.query(&sql)?;
    let took = begun.elapsed().as_secs_f64();
    let count = answer.first().and_then(|row| row[0].clone());
    ensure!(
        count == Some(table.rows.to_string()),
        "the scan has counted {count:?}"
    );
    found.push(table.rows as f64 / took);
    Ok(found)
}

/// Has the operating system forget what it has of the files, if it is on disk.
fn forget_files(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let file = fs::File::open(entry?.path())?;
        file.sync_data()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

fn middle(figures: &[f64]) -> f64 {
    median(figures.iter().copied())
}

fn print(outcomes: &[Outcome], args: &MemoryArgs, rows: u64) {
    println!(
        "{rows} rows, about {:.0} MiB; pool {} MiB; {} repetitions; per second",
        args.data * args.pool as f64,
        args.pool,
        args.repeat
    );
    let engines: Vec<String> = outcomes
        .iter()
        .map(|o| format!("{:>12}", o.engine.name()))
        .collect();
    println!("{:<12} {} {:>8}", "", engines.join(" "), "ratio");
    for (n, name) in names(args).iter().enumerate() {
        let medians: Vec<f64> = outcomes.iter().map(|o| middle(&o.figures[n])).collect();
        let shown: Vec<String> = medians.iter().map(|m| format!("{m:>12.0}")).collect();
        let ratio = match medians[..] {
            [ours, peer] => format!("{:>8.2}", ours / peer),
            _ => String::new(),
        };
        println!("{name:<12} {} {ratio}", shown.join(" "));
    }
}

fn to_json(outcomes: &[Outcome], args: &MemoryArgs, rows: u64) -> serde_json::Value {
    let results = outcomes.iter().map(|outcome| {
        let workloads = names(args).into_iter().zip(&outcome.figures);
        let workloads: Vec<_> = workloads
            .map(|(name, figures)| json!({"workload": name, "per_second": figures, "median": middle(figures)}))
            .collect();
        json!({"engine": outcome.engine.name(), "workloads": workloads})
    });
    json!({
        "benchmark": "memory", "pool_mib": args.pool, "data": args.data, "rows": rows, "seconds": args.time,
        "results": results.collect::<Vec<_>>(),
    })
}
