//! `bench tpch`: the 22 queries of the TPC-H specification on its eight tables, one client, everything in
//! the buffer pool. For each query both engines' plans and times, in turn; and their answers are compared.
//! It shows whether the optimizer gets from Varve what it needs, not how fast either engine could be: no
//! result of this is one of TPC-H.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use varve_testbed::client::{Client, Row};
use varve_testbed::workspace::Workspace;

use crate::benchmark::{BenchServer, Benchmark, Common, TABLES_IN_POOL};
use crate::stats::{Runs, ratio_text};
use crate::sysbench::Sysbench;
use crate::table::{Cell, Table};

#[derive(clap::Args)]
pub struct TpchArgs {
    /// Thousandths of the scale at which the rows of all tables take 1 GB; with fewer than 25 the
    /// specification would have a part come from one supplier twice
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(25..))]
    scale: u64,
    /// Measure each engine so many times, in turn; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    #[command(flatten)]
    common: Common,
}

const DATA: &str = include_str!("data.sql");
const QUERIES: &str = include_str!("queries.sql");
/// Where the rows are made that each engine gets.
const SOURCE: &str = "tpch_source";
const TABLES: [&str; 8] = [
    "region", "nation", "supplier", "part", "partsupp", "customer", "orders", "lineitem",
];

/// What one engine came to with one query.
struct Answered {
    seconds: f64,
    plan: Vec<String>,
    rows: Vec<Row>,
}

fn statements(sql: &str) -> Vec<String> {
    let lines = sql.lines().filter(|line| !line.starts_with("--"));
    let text: String = lines.flat_map(|line| [line.trim(), " "]).collect();
    let parts = text.split(';').map(str::trim);
    parts.filter(|s| !s.is_empty()).map(String::from).collect()
}

pub fn run(workspace: &Workspace, args: &TpchArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "tpch", &args.common)?;
    let mut server = benchmark.server(&TABLES_IN_POOL)?;
    let queries = statements(QUERIES);
    make_source(&server, args.scale)?;
    let databases = server.databases(1, 1);
    server.each(&databases, |server, database| fill(server, database))?;
    let runs = server.in_turn(&databases, args.repeat as usize, |_, database| {
        let mut client = database.connect()?;
        let answered = queries.iter().map(|sql| answer(&mut client, sql));
        answered.collect::<Result<Vec<_>>>()
    })?;
    compare(&runs, &queries, args)?;
    server.end()?;
    if !args.common.json {
        print(&runs, queries.len(), args);
    }
    benchmark.end(to_json(&runs, args));
    Ok(())
}

fn make_source(server: &BenchServer<'_>, scale: u64) -> Result<()> {
    let mut client = server.connect()?;
    for sql in [
        &format!("CREATE DATABASE {SOURCE} CHARACTER SET latin1"),
        &format!("USE {SOURCE}"),
        // Reading it costs both engines the same.
        "SET default_storage_engine = Aria",
    ] {
        client.query(sql)?;
    }
    for sql in statements(DATA) {
        let rows = [("{s}", 10), ("{p}", 200), ("{c}", 150), ("{o}", 1500)];
        let with_rows = rows.iter().fold(sql, |sql, (name, thousandth)| {
            sql.replace(name, &(thousandth * scale).to_string())
        });
        client.query(&with_rows)?;
    }
    Ok(())
}

/// Tables of the engine with the rows of the source, as an administrator leaves them.
fn fill(server: &BenchServer<'_>, database: &Sysbench<'_>) -> Result<()> {
    let mut client = server.connect()?;
    let (name, engine) = (&database.database, database.engine.name());
    client.query(&format!("CREATE DATABASE {name} CHARACTER SET latin1"))?;
    client.query(&format!("USE {name}"))?;
    for table in TABLES {
        client.query(&format!("CREATE TABLE {table} LIKE {SOURCE}.{table}"))?;
        client.query(&format!("ALTER TABLE {table} ENGINE={engine}"))?;
        client.query(&format!(
            "INSERT INTO {table} SELECT * FROM {SOURCE}.{table}"
        ))?;
        client.query(&format!("ANALYZE TABLE {table}"))?;
    }
    Ok(())
}

fn answer(client: &mut Client, sql: &str) -> Result<Answered> {
    let explained = client.query(&format!("EXPLAIN {sql}"))?;
    let begun = Instant::now();
    let mut rows = client.query(sql)?;
    let seconds = begun.elapsed().as_secs_f64();
    rows.sort();
    Ok(Answered {
        seconds,
        plan: explained.iter().map(step).collect(),
        rows,
    })
}

/// A line of EXPLAIN: the table, how it is read, and by which index.
fn step(row: &Row) -> String {
    let field = |n: usize| row.get(n).and_then(Option::as_deref).unwrap_or("-");
    let covers = match field(9).contains("Using index") && !field(9).contains("Using index cond") {
        true => "+",
        false => "",
    };
    format!("{} {} {}{covers}", field(2), field(3), field(5))
}

/// Whether the engines give the same rows. Which of those that are equal come under a LIMIT is theirs.
fn compare(runs: &Runs<Vec<Answered>>, queries: &[String], args: &TpchArgs) -> Result<()> {
    for (n, sql) in queries.iter().enumerate() {
        let first = &runs.of(0)[0][n].rows;
        for engine in 0..args.common.engines.len() {
            for run in runs.of(engine) {
                let same = match sql.contains(" LIMIT ") {
                    true => run[n].rows.len() == first.len(),
                    false => run[n].rows == *first,
                };
                ensure!(
                    same,
                    "query {} has another answer in {}",
                    n + 1,
                    args.common.engines[engine].name()
                );
            }
        }
    }
    Ok(())
}

fn print(runs: &Runs<Vec<Answered>>, queries: usize, args: &TpchArgs) {
    let engines = &args.common.engines;
    println!("scale {}, medians in seconds", args.scale as f64 / 1000.0);
    let columns: String = engines
        .iter()
        .map(|e| format!("{}:>9.3|", e.name()))
        .collect();
    let table = Table::new(&format!("query:<6|{columns}ratio:>6|rows:>6|plan:<4"));
    table.print_head();
    for n in 0..queries {
        let mut row = vec![Cell::of(n + 1)];
        for engine in 0..engines.len() {
            row.push(runs.median(engine, |run| run[n].seconds).into());
        }
        row.push(ratio_text(runs.ratio(|run| run[n].seconds)).into());
        row.push(Cell::of(runs.of(0)[0][n].rows.len()));
        let plans: Vec<&[String]> = (0..engines.len())
            .map(|e| &runs.of(e)[0][n].plan[..])
            .collect();
        let is_same = plans.iter().all(|plan| *plan == plans[0]);
        row.push(if is_same { "same" } else { "differs" }.into());
        table.print(row);
        let shown = if is_same { 1 } else { plans.len() };
        for (engine, plan) in engines.iter().zip(&plans).take(shown) {
            let whose = if is_same { "" } else { engine.name() };
            println!("         {whose} {}", plan.join(", "));
        }
    }
}

fn to_json(runs: &Runs<Vec<Answered>>, args: &TpchArgs) -> Value {
    let engines = args.common.engines.iter().enumerate();
    let results = engines.map(|(e, engine)| {
        let by_query = runs.of(e)[0].iter().enumerate().map(|(n, first)| {
            json!({
                "query": n + 1, "plan": first.plan, "rows": first.rows.len(),
                "seconds": runs.figures(e, |run| run[n].seconds),
            })
        });
        json!({"engine": engine.name(), "queries": by_query.collect::<Vec<_>>()})
    });
    json!({
        "scale": args.scale as f64 / 1000.0, "settings": TABLES_IN_POOL,
        "results": results.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_statements_are_there() {
        assert_eq!(statements(QUERIES).len(), 22);
        let data = statements(DATA);
        for table in TABLES {
            for what in ["CREATE TABLE", "INSERT INTO"] {
                let begins = data
                    .iter()
                    .filter(|s| s.starts_with(&format!("{what} {table} ")));
                assert_eq!(begins.count(), 1, "{what} {table}");
            }
        }
    }
}
