//! `bench fill`: how long it takes to fill an empty table. Beside it the same with the checks off without
//! which InnoDB loads rows, and into a table of BLACKHOLE, which is what the server needs for itself. The
//! engines take turns in one server.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use varve_testbed::client::Client;
use varve_testbed::workspace::Workspace;

use crate::benchmark::{Benchmark, Common, TABLES_IN_POOL};
use crate::stats::{Runs, Spread, ratio_text};
use crate::sysbench::Sysbench;
use crate::table::{Cell, Table};

#[derive(clap::Args)]
pub struct FillArgs {
    /// Rows, of 190 bytes
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// Measure each engine so many times, in turn; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Size of the buffer pool
    #[arg(long, default_value = "2G")]
    pool: String,
    #[command(flatten)]
    common: Common,
}

const WAYS: [&str; 2] = ["INSERT … SELECT", "LOAD DATA"];
const ORDERS: [&str; 2] = ["in order", "at random"];
const INDEXES: [(&str, &str); 2] = [
    ("no index", ""),
    ("three", ", KEY k (k), KEY c (c(20)), KEY pad (pad(10), k)"),
];
const TABLES: [&str; 3] = ["as it is", "checks off", "BLACKHOLE"];

/// Seconds, by way, order, indexes and kind of table.
type Figures = [f64; WAYS.len() * ORDERS.len() * INDEXES.len() * TABLES.len()];

fn names() -> impl Iterator<Item = String> {
    WAYS.iter().flat_map(|way| {
        ORDERS.iter().flat_map(move |order| {
            INDEXES.iter().flat_map(move |(indexes, _)| {
                (TABLES.iter()).map(move |table| format!("{way}, {order}, {indexes}, {table}"))
            })
        })
    })
}

pub fn run(workspace: &Workspace, args: &FillArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "fill", &args.common)?;
    let pool = format!("buffer-pool-size={}", args.pool);
    let settings = [&TABLES_IN_POOL[..], &[pool.as_str()]].concat();
    let mut server = benchmark.server(&settings)?;
    let databases = server.databases(1, args.rows);
    let mut is_installed = false;
    let runs = server.in_turn(&databases, args.repeat as usize, |_, database| {
        if !std::mem::replace(&mut is_installed, true) {
            Client::connect(&database.socket)?.query("INSTALL SONAME 'ha_blackhole'")?;
        }
        measure(database)
    })?;
    server.end()?;
    if !args.common.json {
        print(&runs, args);
    }
    benchmark.end(to_json(&runs, args));
    Ok(())
}

fn measure(database: &Sysbench<'_>) -> Result<Figures> {
    let mut client = Client::connect(&database.socket)?;
    let (name, engine, rows) = (&database.database, database.engine.name(), database.rows);
    let columns = "id INT NOT NULL PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, \
                   note VARCHAR(20) NOT NULL, pad CHAR(40) NOT NULL";
    // Reading them costs both engines the same.
    let source = "ENGINE=Aria TRANSACTIONAL=0 ROW_FORMAT=FIXED CHARACTER SET latin1";
    for sql in [
        &format!("DROP DATABASE IF EXISTS {name}"),
        &format!("CREATE DATABASE {name}"),
        &format!("USE {name}"),
        &format!("CREATE TABLE source0 ({columns}) {source}"),
        &format!(
            "INSERT INTO source0 SELECT seq, seq * 7919 % {rows}, SHA2(seq, 256), seq % 100, MD5(seq) \
             FROM seq_1_to_{rows}"
        ),
        &format!(
            "CREATE TABLE source1 ({}) {source}",
            columns.replace(" PRIMARY KEY", "")
        ),
        "INSERT INTO source1 SELECT * FROM source0 ORDER BY pad",
    ] {
        client.query(sql)?;
    }
    let directory = client.value("SELECT @@tmpdir")?;
    let file = |order: usize| format!("{directory}/{name}-{order}.txt");
    for order in 0..ORDERS.len() {
        let _ = std::fs::remove_file(file(order));
        client.query(&format!(
            "SELECT * INTO OUTFILE '{}' FROM source{order}",
            file(order)
        ))?;
    }
    let mut seconds = Vec::new();
    for way in 0..WAYS.len() {
        for order in 0..ORDERS.len() {
            for (_, indexes) in INDEXES {
                for table in TABLES {
                    let engine = if table == "BLACKHOLE" { table } else { engine };
                    let checks = u8::from(table != "checks off");
                    client.query(&format!(
                        "CREATE OR REPLACE TABLE t ({columns}{indexes}) ENGINE={engine} CHARACTER SET latin1"
                    ))?;
                    client.query(&format!(
                        "SET unique_checks = {checks}, foreign_key_checks = {checks}"
                    ))?;
                    let begun = Instant::now();
                    client.query(&match way {
                        0 => format!("INSERT INTO t SELECT * FROM source{order}"),
                        _ => format!("LOAD DATA INFILE '{}' INTO TABLE t", file(order)),
                    })?;
                    seconds.push(begun.elapsed().as_secs_f64());
                    let expected = if table == "BLACKHOLE" { 0 } else { rows };
                    let found = client.value("SELECT COUNT(*) FROM t")?;
                    ensure!(found == expected.to_string(), "{found} rows are there");
                }
            }
        }
    }
    for order in 0..ORDERS.len() {
        std::fs::remove_file(file(order))?;
    }
    client.query(&format!("DROP DATABASE {name}"))?;
    Ok(seconds.try_into().expect("one figure for each of them"))
}

fn print(runs: &Runs<Figures>, args: &FillArgs) {
    let engines = &args.common.engines;
    println!("{} rows, seconds", args.rows);
    let columns = engines.iter().map(|e| format!("{}:>20.2|", e.name()));
    let columns: String = columns.collect();
    let table = Table::new(&format!("what:<46|{columns}ratio:>6"));
    table.print_head();
    for (at, what) in names().enumerate() {
        let mut row = vec![Cell::from(what.as_str())];
        for n in 0..engines.len() {
            let Spread {
                median,
                least,
                greatest,
            } = Spread::of(&runs.figures(n, |figures| figures[at]));
            row.push(format!("{median:.2} ({least:.2}-{greatest:.2})").into());
        }
        row.push(ratio_text(runs.ratio(|figures| figures[at])).into());
        table.print(row);
    }
}

fn to_json(runs: &Runs<Figures>, args: &FillArgs) -> Value {
    let engines = args.common.engines.iter().enumerate();
    let results = engines.map(|(n, engine)| {
        let by_name = names().enumerate().map(
            |(at, what)| json!({"what": what, "seconds": runs.figures(n, |figures| figures[at])}),
        );
        json!({"engine": engine.name(), "results": by_name.collect::<Vec<_>>()})
    });
    json!({
        "rows": args.rows, "pool": args.pool, "settings": TABLES_IN_POOL,
        "results": results.collect::<Vec<_>>(),
    })
}
