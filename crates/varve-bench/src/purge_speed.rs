//! `bench purge`: how fast purge alone works off a long history of one table.
//!
//! A view is held open while clients update an indexed column, each update a transaction; then the view ends,
//! nobody writes, and the time is taken until the history is gone. The engines take turns in one server, with
//! each of the settings that they are to be tried with.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use varve_testbed::client::Client;
use varve_testbed::server::Engine;
use varve_testbed::workspace::Workspace;

use crate::benchmark::{Benchmark, Common};
use crate::load::{self, CAUGHT_UP, Load};
use crate::sysbench::Sysbench;
use crate::table::{Cell, Table};

#[derive(clap::Args)]
pub struct PurgeArgs {
    /// Rows of the table
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Updates to be purged
    #[arg(long, default_value_t = 1_000_000)]
    updates: u64,
    /// Clients that make them
    #[arg(long, default_value_t = 4)]
    threads: u32,
    /// Size of the buffer pool
    #[arg(long, default_value = "2G")]
    pool: String,
    #[command(flatten)]
    common: Common,
}

const SETTINGS: [&str; 3] = [
    "log-file-size=1G",
    "doublewrite=ON",
    "flush-log-at-trx-commit=2",
];
const PATIENCE: Duration = Duration::from_secs(3600);
/// How often the history is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// What an engine is tried with: a setting, and its value.
fn trials(engine: Engine) -> [(&'static str, u64); 2] {
    match engine {
        Engine::Varve => [("purge_threads", 0), ("purge_threads", 1)],
        Engine::Innodb => [("purge_batch_size", 127), ("purge_batch_size", 1000)],
    }
}

struct Trial {
    engine: Engine,
    setting: String,
    history: u64,
    took: Duration,
}

impl Trial {
    fn per_second(&self) -> f64 {
        self.history as f64 / self.took.as_secs_f64()
    }
}

pub fn run(workspace: &Workspace, args: &PurgeArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "purge", &args.common)?;
    let pool = format!("buffer-pool-size={}", args.pool);
    let settings = [&[pool.as_str()], &SETTINGS[..]].concat();
    let mut server = benchmark.server(&settings)?;
    let mut done = Vec::new();
    server.each(&server.databases(1, args.rows), |_, table| {
        table.prepare("oltp_update_index", 1)?;
        for (name, value) in trials(table.engine) {
            let trial = try_with(table, args, name, value);
            let trial = trial.with_context(|| format!("{name} = {value}"))?;
            if !args.common.json {
                print(&trial, done.is_empty());
            }
            done.push(trial);
        }
        Ok(())
    })?;
    server.end()?;
    let trials = done.iter().map(|trial| {
        json!({
            "engine": trial.engine.name(), "setting": trial.setting, "history": trial.history,
            "seconds": trial.took.as_secs_f64(), "per_second": trial.per_second(),
        })
    });
    benchmark.end(json!({
        "rows": args.rows, "updates": args.updates, "settings": settings,
        "results": trials.collect::<Vec<_>>(),
    }));
    Ok(())
}

fn try_with(table: &Sysbench<'_>, args: &PurgeArgs, name: &str, value: u64) -> Result<Trial> {
    let mut client = Client::connect(&table.socket)?;
    load::set(&mut client, table.engine, name, value)?;
    load::wait_for_history(&mut client, table.engine, CAUGHT_UP, PATIENCE)?;
    let mut reader = load::open_view(table)?;
    Load::updates(table, args.threads, args.updates)?.wait()?;
    let history = load::history_name(table.engine);
    let before = load::status(&mut client, &[&history])?[0];
    let begun = Instant::now();
    reader.query("COMMIT")?;
    let left = loop {
        let left = load::status(&mut client, &[&history])?[0];
        if left < CAUGHT_UP {
            break left;
        }
        ensure!(
            begun.elapsed() < PATIENCE,
            "{left} of {before} logs are left after {PATIENCE:?}"
        );
        std::thread::sleep(LOOK);
    };
    let took = begun.elapsed();
    load::set(&mut client, table.engine, name, "DEFAULT")?;
    Ok(Trial {
        engine: table.engine,
        setting: format!("{}_{name} = {value}", table.engine.option_prefix()),
        history: before.saturating_sub(left),
        took,
    })
}

fn print(trial: &Trial, is_first: bool) {
    let table = Table::new("engine:<7|setting:<30|purged:>9|seconds:>9.2|transactions/s:>14");
    if is_first {
        table.print_head();
    }
    table.print([
        trial.engine.name().into(),
        trial.setting.as_str().into(),
        Cell::of(trial.history),
        trial.took.as_secs_f64().into(),
        trial.per_second().into(),
    ]);
}
