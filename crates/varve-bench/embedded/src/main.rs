//! Varve beside other embedded engines: the same rows, threads and cache for each. What counts is the ratio
//! of two engines in the same run. docs/performance.md says how each engine is set and why that is fair.

mod engine;
mod held;
mod peers;
mod report;
mod rows;
mod run;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;

#[derive(Parser)]
#[command(about = "Varve beside other embedded engines")]
struct Args {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Rows of the table
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Seconds of each timed workload
    #[arg(long, default_value_t = 5.0)]
    time: f64,
    /// Seconds of updates under a snapshot, and as many before without one
    #[arg(long, default_value_t = 30.0)]
    snapshot_time: f64,
    /// Runs of everything; the median counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Only these workloads
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these engines
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// Directory for the engines' files
    #[arg(long)]
    dir: PathBuf,
}

fn main() -> Result<()> {
    let args = Args::parse();
    ensure!(args.rows > 0 && args.repeat > 0, "nothing to run");
    let all = peers::all();
    for name in &args.engines {
        let known: Vec<_> = all.iter().map(|peer| peer.name).collect();
        ensure!(
            known.contains(&&**name),
            "no engine {name}; there are {}",
            known.join(", ")
        );
    }
    for name in &args.only {
        let known = run::WORKLOADS.map(|workload| workload.name);
        ensure!(
            known.contains(&&**name),
            "no workload {name}; there are {}",
            known.join(", ")
        );
    }
    let wanted = |name: &str| args.engines.is_empty() || args.engines.iter().any(|e| e == name);
    let mut engines: Vec<_> = all.into_iter().filter(|peer| wanted(peer.name)).collect();
    let plan = run::Plan {
        rows: args.rows,
        time: Duration::from_secs_f64(args.time),
        snapshot_time: Duration::from_secs_f64(args.snapshot_time),
        only: args.only.clone(),
    };
    let mut results = report::Report::default();
    // Varve is named first, whoever runs first.
    for peer in &engines {
        results.add(peer.name, Vec::new());
    }
    for n in 0..args.repeat {
        for peer in &engines {
            eprintln!("run {} of {}: {}", n + 1, args.repeat, peer.name);
            let dir = args.dir.join(peer.name);
            let figures = run::measure(*peer, &dir, &plan).context(peer.name)?;
            results.add(peer.name, figures);
        }
        // A machine that gets slower hurts all alike.
        engines.rotate_left(1);
    }
    match args.json {
        true => println!("{:#}", results.json(args.rows, args.time)),
        false => results.print(),
    }
    Ok(())
}
