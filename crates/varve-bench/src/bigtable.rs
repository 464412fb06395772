//! `bench bigtable`: a table of 1 GiB under a buffer pool of 32 MiB: read_write completes, in bounded memory.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use varve_testbed::server::Engine;
use varve_testbed::workspace::Workspace;

use crate::benchmark::{Benchmark, Common};
use crate::process::memory_bytes;

#[derive(clap::Args)]
pub struct BigtableArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[arg(long, value_enum, default_value_t = Engine::Varve)]
    engine: Engine,
    /// Rows of the table; the default fills 1 GiB
    #[arg(long, default_value_t = 5_000_000)]
    rows: u64,
    /// Client threads
    #[arg(long, default_value_t = 16)]
    threads: u32,
    /// Seconds of read_write
    #[arg(long, default_value_t = 60)]
    time: u64,
    /// Options for mariadbd
    #[arg(last = true, value_name = "MARIADBD OPTIONS")]
    options: Vec<String>,
}

const SETTINGS: [&str; 4] = [
    "buffer-pool-size=32M",
    "log-file-size=256M",
    "doublewrite=ON",
    "flush-log-at-trx-commit=1",
];

pub fn run(workspace: &Workspace, args: &BigtableArgs) -> Result<()> {
    let common = Common {
        json: args.json,
        engines: vec![args.engine],
        options: args.options.clone(),
    };
    let benchmark = Benchmark::begin(workspace, "bigtable", &common)?;
    let server = benchmark.server(&SETTINGS)?;
    let memory = |name| memory_bytes(server.pid(), name);
    let idle = memory("VmRSS")?;
    let sysbench = &server.databases(1, args.rows)[0];
    let begin = Instant::now();
    sysbench.prepare("oltp_read_write", 1)?;
    let prepared = begin.elapsed();
    let bytes = server.bytes_of(sysbench)?;
    let filled = memory("VmRSS")?;
    let report = sysbench.run(
        "oltp_read_write",
        args.threads,
        Duration::from_secs(args.time),
    )?;
    let (rss, peak) = (memory("VmRSS")?, memory("VmHWM")?);
    server.end()?;
    let mib = |bytes: u64| bytes >> 20;
    if !args.json {
        println!(
            "{}: table of {} MiB, filled in {:.0} s",
            args.engine.name(),
            mib(bytes),
            prepared.as_secs_f64()
        );
        println!(
            "read_write with {} threads: {:.1} tps, 95th percentile {:.1} ms, {} conflicts",
            args.threads, report.per_second, report.p95_ms, report.ignored_errors
        );
        println!(
            "memory: {} MiB idle, {} MiB filled, {} MiB after the run, {} MiB at most",
            mib(idle),
            mib(filled),
            mib(rss),
            mib(peak)
        );
    }
    benchmark.end(json!({
        "engine": args.engine.name(), "rows": args.rows, "threads": args.threads,
        "table_mib": mib(bytes), "prepare_seconds": prepared.as_secs_f64(), "tps": report.per_second,
        "p95_ms": report.p95_ms, "ignored_errors": report.ignored_errors, "rss_idle_mib": mib(idle),
        "rss_filled_mib": mib(filled), "rss_mib": mib(rss), "rss_peak_mib": mib(peak),
    }));
    Ok(())
}
