//! `bench tpcc`: a load after the TPC-C specification (revision 5.11), Varve and InnoDB in turn, in one
//! server.
//!
//! All nine tables, all their foreign keys, the five transactions in their mix, without times of thinking
//! and keying. So this is no TPC-C result, and its figures compare with nothing but the other engine's in
//! the same run. Each round fills the tables anew, constraints on, and then has more and more terminals work
//! on them. The engines take turns of a few seconds: how fast a shared machine is changes by a third from
//! one such turn to the next, and for neither engine alone. Each turn of one makes a pair with the other's
//! next to it. When their time is up, the consistency conditions of clause 3.3.2 are checked, and that every
//! order that was acknowledged is there, and no other.

mod clients;
mod consistency;
mod load;
mod random;
mod schema;
mod transactions;

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use varve_testbed::server::Engine;
use varve_testbed::workspace::Workspace;

use self::clients::Report;
use self::schema::Scale;
use crate::benchmark::{BenchServer, Benchmark, Common, TABLES_IN_POOL};
use crate::process::Usage;
use crate::stats::{Estimate, Runs, Spread, ratio_text};
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
    /// Seconds that each number of terminals is measured for, after a fifth as many that are not counted
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    time: u64,
    /// Seconds of each turn, after a fifth as many that are not counted
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    turn: u64,
    /// How often the tables are filled and everything is measured
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    #[command(flatten)]
    common: Common,
}

impl TpccArgs {
    fn turn(&self) -> Duration {
        Duration::from_secs(self.turn.min(self.time))
    }

    /// How many turns each number of terminals has in a round.
    fn turns(&self) -> usize {
        self.time.div_ceil(self.turn) as usize
    }
}

/// What all rounds came to.
struct Results {
    /// Rows a second that the tables were filled with.
    filled_per_second: Runs<f64>,
    /// The turns of each number of terminals.
    turns: Vec<Runs<Report>>,
}

impl Results {
    /// Varve's new orders in InnoDB's, from turn to turn, of the `n`th number of terminals.
    fn ratio(&self, n: usize) -> Option<Estimate> {
        self.turns[n].paired_ratio(|turn| turn.tpmc)
    }
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
    let engines = databases.len();
    let mut results = Results {
        filled_per_second: Runs::new(engines),
        turns: args.threads.iter().map(|_| Runs::new(engines)).collect(),
    };
    for n in 0..args.repeat {
        round(&mut server, &databases, (n, args), &scale, &mut results)?;
    }
    server.end()?;
    if !args.common.json {
        print(&results, &scale, args);
    }
    benchmark.end(to_json(&results, &scale, args));
    Ok(())
}

/// Fills the tables of all engines, and measures each number of terminals on them. Which engine begins
/// changes from round to round and from turn to turn.
fn round<'a>(
    server: &mut BenchServer<'a>,
    databases: &[Sysbench<'a>],
    (n, args): (usize, &TpccArgs),
    scale: &Scale,
    results: &mut Results,
) -> Result<()> {
    let first = n * (1 + args.turns());
    let filled = server.in_rounds(databases, n..n + 1, |_, database, _| fill(database, scale))?;
    results.filled_per_second.append(filled);
    let filled_orders = u64::from(scale.districts() * scale.customers);
    let mut orders = vec![filled_orders; databases.len()];
    let turn = args.turn();
    for (&threads, results) in args.threads.iter().zip(&mut results.turns) {
        let mut in_turns = |turns: Range<usize>, times| {
            server.in_rounds(databases, turns, |server, database, turn| {
                // The engines are asked for the same in a turn.
                let seed = (u64::from(threads) << 48) + ((turn as u64) << 32);
                measure(database, server.pid(), scale, (threads, seed), times)
            })
        };
        // Pages are read, and what filling left to do in the background is done.
        let warm_up = Duration::from_secs(args.time) / 5;
        let warm_up = in_turns(first..first + 1, (Duration::ZERO, warm_up))?;
        let turns = first + 1..first + 1 + args.turns();
        let measured = in_turns(turns, (turn / 5, turn))?;
        for (n, database) in databases.iter().enumerate() {
            let reports = warm_up.of(n).iter().chain(measured.of(n));
            orders[n] += reports.map(|report| report.new_orders).sum::<u64>();
            consistency::check(&mut database.connect()?, orders[n])
                .with_context(|| format!("{} after {threads} terminals", database.engine.name()))?;
        }
        results.append(measured);
    }
    for database in databases {
        let drop = format!("DROP DATABASE {}", database.database);
        database.connect()?.query(&drop)?;
    }
    Ok(())
}

/// Fills one engine's tables, so many rows a second.
fn fill(database: &Sysbench<'_>, scale: &Scale) -> Result<f64> {
    let (socket, name) = (&database.socket, &database.database);
    let begun = Instant::now();
    let rows = load::fill(socket, name, database.engine, scale).context("filling the tables")?;
    let filled_per_second = rows as f64 / begun.elapsed().as_secs_f64();
    load::analyze(socket, name)?;
    consistency::check_filled(&mut database.connect()?, scale)?;
    Ok(filled_per_second)
}

/// One turn of an engine, with so many terminals and a seed. `server`: its process.
fn measure(
    database: &Sysbench<'_>,
    server: u32,
    scale: &Scale,
    terminals: (u32, u64),
    times: (Duration, Duration),
) -> Result<Report> {
    let used_before = Usage::of(server)?;
    let (socket, name) = (&database.socket, &database.database);
    let mut report = clients::run(socket, name, scale, terminals, times)
        .with_context(|| format!("{} terminals", terminals.0))?;
    let used = Usage::of(server)? - used_before;
    report.processor_ms = used.run_us / 1e3 / report.new_orders as f64;
    Ok(report)
}

fn print(results: &Results, scale: &Scale, args: &TpccArgs) {
    let Scale {
        warehouses,
        items,
        customers,
    } = scale;
    println!(
        "{warehouses} warehouses, {items} items, {customers} customers a district; {} repetitions of {} s in \
         turns of {} s",
        args.repeat,
        args.time,
        args.turn().as_secs()
    );
    let of_engine = |engine: &Engine| {
        let name = engine.name();
        format!(
            "{name} new orders/min (min-max):>36|p95 ms:>8.2|processor ms:>12.2|deadlocks:>9|timeouts:>8|"
        )
    };
    let engines: Vec<String> = args.common.engines.iter().map(of_engine).collect();
    let table = Table::new(&format!("threads:>7|{}ratio (95 %):>18", engines.concat()));
    table.print_head();
    for (n, threads) in args.threads.iter().enumerate() {
        let turns = &results.turns[n];
        let mut cells = vec![Cell::of(threads)];
        for engine in 0..engines.len() {
            let figures = turns.figures(engine, |turn| turn.tpmc);
            cells.push(Cell::of(Spread::of(&figures)));
            cells.push(turns.median(engine, |turn| turn.new_order_p95_ms).into());
            cells.push(turns.median(engine, |turn| turn.processor_ms).into());
            let sum =
                |count: fn(&Report) -> u64| -> u64 { turns.of(engine).iter().map(count).sum() };
            cells.push(Cell::of(sum(|report| report.deadlocks)));
            cells.push(Cell::of(sum(|report| report.timeouts)));
        }
        let ratio = results.ratio(n).as_ref().map(Estimate::to_string);
        cells.push(ratio.unwrap_or_default().into());
        table.print(cells);
    }
    let engines = args.common.engines.iter();
    let table = engines.map(|engine| format!("{} rows/s (min-max):>36|", engine.name()));
    let table = Table::new(&format!("filling:<7|{}ratio:>6", table.collect::<String>()));
    table.print_head();
    let mut cells: Vec<Cell> = vec!["".into()];
    for engine in 0..args.common.engines.len() {
        let figures = results.filled_per_second.figures(engine, |filled| *filled);
        cells.push(Cell::of(Spread::of(&figures)));
    }
    cells.push(ratio_text(results.filled_per_second.ratio(|filled| *filled)).into());
    table.print(cells);
}

fn to_json(results: &Results, scale: &Scale, args: &TpccArgs) -> Value {
    let turn = |report: &Report| {
        json!({
            "new_orders_per_minute": report.tpmc, "committed": report.committed,
            "rolled_back": report.rolled_back, "deadlocks": report.deadlocks,
            "timeouts": report.timeouts, "new_order_p95_ms": report.new_order_p95_ms,
            "processor_ms": report.processor_ms,
        })
    };
    let engines = args
        .common
        .engines
        .iter()
        .enumerate()
        .map(|(engine, name)| {
            let runs = args
                .threads
                .iter()
                .zip(&results.turns)
                .map(|(threads, turns)| {
                    let turns: Vec<Value> = turns.of(engine).iter().map(turn).collect();
                    json!({"threads": threads, "turns": turns})
                });
            json!({
                "engine": name.name(), "filled_per_second": results.filled_per_second.of(engine),
                "runs": runs.collect::<Vec<_>>(),
            })
        });
    let ratios = args.threads.iter().enumerate().map(|(n, threads)| {
        let ratio = results.ratio(n);
        json!({
            "threads": threads, "ratio": ratio.map(|ratio| ratio.value),
            "interval": ratio.and_then(|ratio| ratio.interval),
        })
    });
    json!({
        "warehouses": scale.warehouses, "items": scale.items, "customers": scale.customers,
        "seconds": args.time, "turn_seconds": args.turn().as_secs(), "repetitions": args.repeat,
        "settings": TABLES_IN_POOL, "engines": engines.collect::<Vec<_>>(),
        "ratios": ratios.collect::<Vec<_>>(),
        "filling_ratio": results.filled_per_second.ratio(|filled| *filled),
    })
}
