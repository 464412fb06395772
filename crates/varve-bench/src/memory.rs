//! `bench memory`: point reads and scans of a table that is eight times the buffer pool.
//!
//! The engines take turns in one server, and read past the operating system's cache, which would have all of
//! it otherwise. Before each measurement it is told to forget what it has of the tables' files nevertheless:
//! a file system may not allow that.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::fs::{Advice, fadvise};
use serde_json::{Value, json};
use varve_testbed::workspace::Workspace;

use crate::benchmark::{BenchServer, Benchmark, Common};
use crate::stats::{Runs, median, ratio_text};
use crate::sysbench::{ROW_BYTES, Sysbench};
use crate::table::Table;

#[derive(clap::Args)]
pub struct MemoryArgs {
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
    #[command(flatten)]
    common: Common,
}

pub fn run(workspace: &Workspace, args: &MemoryArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "memory", &args.common)?;
    let pool = format!("buffer-pool-size={}M", args.pool);
    let mut server = benchmark.server(&[
        &pool,
        "flush-method=O_DIRECT",
        "log-file-size=256M",
        "io-capacity=2000",
        "io-capacity-max=4000",
    ])?;
    let rows = (args.data * (args.pool << 20) as f64 / ROW_BYTES) as u64;
    let databases = server.databases(1, rows);
    for database in &databases {
        database.prepare("oltp_point_select", 1)?;
    }
    let mut runs = Runs::new(databases.len());
    for _ in 0..args.repeat {
        let round = server.each(&databases, |server, table| measure(server, table, args))?;
        let by_engine = round.into_iter().enumerate();
        by_engine.for_each(|(n, figures)| runs.add(n, figures));
    }
    server.end()?;
    if !args.common.json {
        print(&runs, args, rows);
    }
    benchmark.end(to_json(&runs, args, rows));
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

/// A figure for each workload.
fn measure(server: &BenchServer, table: &Sysbench<'_>, args: &MemoryArgs) -> Result<Vec<f64>> {
    let files = server.dir.join(&table.database);
    let mut found = Vec::new();
    for &threads in &args.threads {
        forget_files(&files)?;
        let report = table.run("oltp_point_select", threads, Duration::from_secs(args.time))?;
        found.push(report.per_second);
    }
    forget_files(&files)?;
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

fn print(runs: &Runs<Vec<f64>>, args: &MemoryArgs, rows: u64) {
    println!(
        "{rows} rows, about {:.0} MiB; pool {} MiB; {} repetitions; per second",
        args.data * args.pool as f64,
        args.pool,
        args.repeat
    );
    let engines = args.common.engines.iter();
    let engines: Vec<String> = engines.map(|e| format!("{}:>12|", e.name())).collect();
    let table = Table::new(&format!(":<12|{}ratio:>8", engines.concat()));
    table.print_head();
    for (n, name) in names(args).iter().enumerate() {
        let mut cells = vec![name.as_str().into()];
        for engine in 0..engines.len() {
            cells.push(runs.median(engine, |figures| figures[n]).into());
        }
        cells.push(ratio_text(runs.ratio(|figures| figures[n])).into());
        table.print(cells);
    }
}

fn to_json(runs: &Runs<Vec<f64>>, args: &MemoryArgs, rows: u64) -> Value {
    let results = args.common.engines.iter().enumerate().map(|(engine, name)| {
        let workload = |(n, workload): (usize, String)| {
            let figures = runs.figures(engine, |figures| figures[n]);
            json!({"workload": workload, "per_second": figures, "median": median(figures.iter().copied())})
        };
        let workloads: Vec<Value> = names(args).into_iter().enumerate().map(workload).collect();
        json!({"engine": name.name(), "workloads": workloads})
    });
    json!({
        "pool_mib": args.pool, "data": args.data, "rows": rows, "seconds": args.time,
        "results": results.collect::<Vec<_>>(),
    })
}
