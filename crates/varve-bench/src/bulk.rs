//! `bench bulk`: statements that change all rows of a table which is several times the buffer pool: how long
//! they take, what the server's process reads and writes meanwhile, by the kernel's count, and how much
//! memory it has at most. The engines take turns in one server, and read past the operating system's cache.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use varve_testbed::client::Client;
use varve_testbed::server::Server;
use varve_testbed::workspace::Workspace;

use crate::benchmark::{BenchServer, Benchmark, Common};
use crate::ddl::{COLUMNS, SOURCE, rows_of_source};
use crate::load;
use crate::process::{Transferred, forget_peak, memory_bytes};
use crate::stats::Runs;
use crate::sysbench::Sysbench;
use crate::table::{figures_to_json, print_figures};

#[derive(clap::Args)]
pub struct BulkArgs {
    /// Rows, of 190 bytes
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// The buffer pool is one so many-th of the table
    #[arg(long, value_delimiter = ',', default_value = "4,8,16")]
    parts: Vec<u64>,
    /// Measure each engine so many times, in turn; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    #[command(flatten)]
    common: Common,
}

/// What a row takes, with its entry in the index.
const ROW_BYTES: u64 = 250;
/// No engine works in less.
const LEAST_POOL_MIB: u64 = 8;
const PATIENCE: Duration = Duration::from_secs(1800);

/// In this order, with what they are called. Each begins when purge is done with what was before.
const STATEMENTS: [(&str, &str); 6] = [
    ("UPDATE", "UPDATE t SET k = k + 1, c = REVERSE(c)"),
    (
        "UPDATE, not committed",
        "UPDATE t SET k = k + 1, c = REVERSE(c)",
    ),
    ("its ROLLBACK", "ROLLBACK"),
    ("INSERT … SELECT", "INSERT INTO copy SELECT * FROM t"),
    ("UPDATE of the index", "UPDATE copy SET k = k + 1"),
    ("DELETE", "DELETE FROM copy"),
];
/// This one opens a transaction, and the next one ends it.
const OPENS: usize = 1;

/// What is measured of each.
const WHAT: [&str; 4] = ["s", "MiB read", "MiB written", "MiB of memory, more"];

type Figures = [f64; WHAT.len() * STATEMENTS.len()];

pub fn run(workspace: &Workspace, args: &BulkArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "bulk", &args.common)?;
    let mut results = Vec::new();
    for &part in &args.parts {
        let pool = ((args.rows * ROW_BYTES / part.max(1)) >> 20).max(LEAST_POOL_MIB);
        let option = format!("buffer-pool-size={pool}M");
        let mut server = benchmark.server(&[
            &option,
            "flush-method=O_DIRECT",
            "log-file-size=512M",
            "io-capacity=2000",
            "io-capacity-max=4000",
        ])?;
        let databases = server.databases(1, args.rows);
        let runs = server.in_turn(&databases, args.repeat as usize, measure)?;
        server.end()?;
        if !args.common.json {
            println!("{} rows, pool {pool} MiB: 1/{part} of the table", args.rows);
            let figures = names().enumerate();
            let figures = figures.map(|(at, name)| (name, 1, move |figures: &Figures| figures[at]));
            print_figures(&runs, &args.common.engines, ("what:<36", 24), figures);
        }
        results.push(to_json(&runs, args, part, pool));
    }
    benchmark.end(json!({"rows": args.rows, "results": results}));
    Ok(())
}

fn names() -> impl Iterator<Item = String> {
    let of = |(name, _): (&str, _)| WHAT.map(|what| format!("{name}, {what}"));
    STATEMENTS.into_iter().flat_map(of)
}

fn measure(server: &BenchServer<'_>, database: &Sysbench<'_>) -> Result<Figures> {
    let mut client = database.begin_anew()?;
    let engine = database.engine;
    let table = |name: &str| {
        let columns = format!("CREATE TABLE {name} ({COLUMNS}, KEY k (k))");
        format!("{columns} ENGINE={} CHARACTER SET latin1", engine.name())
    };
    for sql in [
        &format!("CREATE TABLE source ({COLUMNS}) {SOURCE} CHARACTER SET latin1"),
        &format!("INSERT INTO source {}", rows_of_source(database.rows)),
        &table("t"),
        "INSERT INTO t SELECT * FROM source",
        &table("copy"),
        // A table with a row is not loaded.
        "INSERT INTO copy VALUES (0, 0, '', '', '')",
    ] {
        client.query(sql)?;
    }
    let mut figures = Figures::default();
    let of_each = figures.chunks_mut(WHAT.len()).zip(STATEMENTS);
    for (n, (of, (_, sql))) in of_each.enumerate() {
        if n == OPENS {
            client.query("BEGIN")?;
        }
        if n != OPENS + 1 {
            load::wait_for_history(&mut client, engine, load::CAUGHT_UP, PATIENCE)?;
        }
        of.copy_from_slice(&of_statement(server, &mut client, sql)?);
    }
    client.query(&format!("DROP DATABASE {}", database.database))?;
    Ok(figures)
}

fn of_statement(server: &Server, client: &mut Client, sql: &str) -> Result<[f64; WHAT.len()]> {
    let pid = server.pid();
    forget_peak(pid)?;
    let (before, memory) = (Transferred::of(pid)?, memory_bytes(pid, "VmRSS")?);
    let begun = Instant::now();
    client.query(sql)?;
    let seconds = begun.elapsed().as_secs_f64();
    let after = Transferred::of(pid)?;
    let more = memory_bytes(pid, "VmHWM")?.saturating_sub(memory);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let (read, written) = (after.read - before.read, after.written - before.written);
    Ok([seconds, mib(read), mib(written), mib(more)])
}

fn to_json(runs: &Runs<Figures>, args: &BulkArgs, part: u64, pool: u64) -> Value {
    let by_engine = figures_to_json(runs, &args.common.engines, names());
    json!({"part": part, "pool_mib": pool, "by_engine": by_engine})
}
