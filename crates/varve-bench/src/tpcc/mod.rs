//! `bench tpcc`: a load after the TPC-C specification (revision 5.11), Varve and InnoDB in turn, in one
//! server.
//!
//! All nine tables, all their foreign keys, the five transactions in their mix, without times of thinking and
//! keying. So this is no TPC-C result, and its figures compare with nothing but the other engine's in the
//! same run. Each round fills the tables anew, constraints on, and then has more and more terminals work on
//! them. After each run the consistency conditions of clause 3.3.2 are checked, and that every order that was
//! acknowledged is there, and no other.

mod clients;
mod consistency;
mod load;
mod random;
mod schema;
mod transactions;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use varve_testbed::client::Client;
use varve_testbed::server::Engine;
use varve_testbed::workspace::Workspace;

use self::clients::Report;
use self::schema::Scale;
use crate::benchmark::{Benchmark, Common, TABLES_IN_POOL};
use crate::process::Usage;
use crate::stats::{Runs, Spread, ratio_text};
use crate::sysbench::Sysbench;
use crate::table::{Cell, Table};

#[derive(clap::Args)]
pub struct TpccArgs {
    /// Warehouses
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    warehouses: u32,
    /// Share of the specified items and customers that there are, to make the tables smaller
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Numbers of terminals
    #[arg(long, value_delimiter = ',', default_value = "1,16")]
    threads: Vec<u32>,
    /// Seconds of each run, after a fifth as many that are not counted
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    time: u64,
    /// How often the tables are filled and everything is measured; the median counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    #[command(flatten)]
    common: Common,
}

/// What a round of one engine came to.
struct Round {
    /// Rows a second that the tables were filled with.
    filled_per_second: f64,
    /// By the numbers of threads.
    reports: Vec<Report>,
}

pub fn run(workspace: &Workspace, args: &TpccArgs) -> Result<()> {
    ensure!(args.repeat > 0, "nothing to run");
    ensure!(
        args.scale > 0.0 && args.scale <= 1.0,
        "--scale is a share of the specified rows, up to 1"
    );
    let scale = Scale::new(args.warehouses, args.scale);
    let benchmark = Benchmark::begin(workspace, "tpcc", &args.common)?;
    let mut server = benchmark.server(&TABLES_IN_POOL)?;
    let databases = server.databases(schema::table_names().count() as u32, 0);
    let rounds = server.in_turn(&databases, args.repeat, |server, database| {
        round(database, server.pid(), &scale, args)
    })?;
    server.end()?;
    if !args.common.json {
        print(&rounds, &scale, args);
    }
    benchmark.end(to_json(&rounds, &scale, args));
    Ok(())
}

/// Fills one engine's tables, and measures each number of terminals on them. `server`: its process.
fn round(database: &Sysbench<'_>, server: u32, scale: &Scale, args: &TpccArgs) -> Result<Round> {
    let (socket, name) = (&database.socket, &database.database);
    let begun = Instant::now();
    let rows = load::fill(socket, name, database.engine, scale).context("filling the tables")?;
    let filled_per_second = rows as f64 / begun.elapsed().as_secs_f64();
    load::analyze(socket, name)?;
    let mut client = Client::connect(socket)?;
    client.query(&format!("USE {name}"))?;
    consistency::check_filled(&mut client, scale)?;
    let time = Duration::from_secs(args.time);
    let mut orders = u64::from(scale.districts() * scale.customers);
    let mut reports = Vec::new();
    for &threads in &args.threads {
        let used_before = Usage::of(server)?;
        let mut report = clients::run(socket, name, scale, threads, (time / 5, time))
            .with_context(|| format!("{threads} terminals"))?;
        let used = Usage::of(server)? - used_before;
        report.processor_ms = used.run_us / 1e3 / report.new_orders as f64;
        orders += report.new_orders;
        consistency::check(&mut client, orders)
            .with_context(|| format!("after {threads} terminals"))?;
        reports.push(report);
    }
    client.query(&format!("DROP DATABASE {name}"))?;
    Ok(Round {
        filled_per_second,
        reports,
    })
}

fn print(rounds: &Runs<Round>, scale: &Scale, args: &TpccArgs) {
    let Scale {
        warehouses,
        items,
        customers,
    } = scale;
    println!(
        "{warehouses} warehouses, {items} items, {customers} customers a district; {} repetitions of {} s",
        args.repeat, args.time
    );
    let of_engine = |engine: &Engine| {
        let name = engine.name();
        format!(
            "{name} new orders/min (min-max):>36|p95 ms:>8.2|processor ms:>12.2|deadlocks:>9|timeouts:>8|"
        )
    };
    let engines: Vec<String> = args.common.engines.iter().map(of_engine).collect();
    let table = Table::new(&format!("threads:>7|{}ratio:>6", engines.concat()));
    table.print_head();
    for (n, threads) in args.threads.iter().enumerate() {
        let mut cells = vec![Cell::of(threads)];
        for engine in 0..engines.len() {
            let figures = rounds.figures(engine, |round| round.reports[n].tpmc);
            cells.push(Cell::of(Spread::of(&figures)));
            cells.push(
                rounds
                    .median(engine, |round| round.reports[n].new_order_p95_ms)
                    .into(),
            );
            cells.push(
                rounds
                    .median(engine, |round| round.reports[n].processor_ms)
                    .into(),
            );
            let sum = |count: fn(&Report) -> u64| -> u64 {
                let rounds = rounds.of(engine).iter();
                rounds.map(|round| count(&round.reports[n])).sum()
            };
            cells.push(Cell::of(sum(|report| report.deadlocks)));
            cells.push(Cell::of(sum(|report| report.timeouts)));
        }
        cells.push(ratio_text(rounds.ratio(|round| round.reports[n].tpmc)).into());
        table.print(cells);
    }
    let engines = args.common.engines.iter();
    let table = engines.map(|engine| format!("{} rows/s (min-max):>36|", engine.name()));
    let table = Table::new(&format!("filling:<7|{}ratio:>6", table.collect::<String>()));
    table.print_head();
    let mut cells: Vec<Cell> = vec!["".into()];
    for engine in 0..args.common.engines.len() {
        let figures = rounds.figures(engine, |round| round.filled_per_second);
        cells.push(Cell::of(Spread::of(&figures)));
    }
    cells.push(ratio_text(rounds.ratio(|round| round.filled_per_second)).into());
    table.print(cells);
}

fn to_json(rounds: &Runs<Round>, scale: &Scale, args: &TpccArgs) -> Value {
    let report = |(report, threads): (&Report, &u32)| {
        json!({
            "threads": threads, "new_orders_per_minute": report.tpmc, "committed": report.committed,
            "rolled_back": report.rolled_back, "deadlocks": report.deadlocks,
            "timeouts": report.timeouts, "new_order_p95_ms": report.new_order_p95_ms,
            "processor_ms": report.processor_ms,
        })
    };
    let round = |round: &Round| {
        let runs = round.reports.iter().zip(&args.threads).map(report);
        json!({
            "filled_per_second": round.filled_per_second, "runs": runs.collect::<Vec<_>>(),
        })
    };
    let engines = args.common.engines.iter().enumerate().map(|(n, engine)| {
        let rounds: Vec<Value> = rounds.of(n).iter().map(round).collect();
        json!({"engine": engine.name(), "rounds": rounds})
    });
    let ratios = args.threads.iter().enumerate().map(|(n, threads)| {
        json!({"threads": threads, "ratio": rounds.ratio(|round| round.reports[n].tpmc)})
    });
    json!({
        "warehouses": scale.warehouses, "items": scale.items, "customers": scale.customers,
        "seconds": args.time, "settings": TABLES_IN_POOL, "engines": engines.collect::<Vec<_>>(),
        "ratios": ratios.collect::<Vec<_>>(),
        "filling_ratio": rounds.ratio(|round| round.filled_per_second),
    })
}
