//! `bench ddl`: how long statements take that change a table's definition, or fill a table, while nobody else
//! is there. The engines take turns in one server, and begin with tables that are made anew.

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
pub struct DdlArgs {
    /// Rows of the table, of 190 bytes
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

/// What is measured, one after the other, with the table `t`, whose rows come from the table `source`.
const STATEMENTS: [(&str, &str); 11] = [
    ("INSERT … SELECT", "INSERT INTO t SELECT * FROM source"),
    ("ADD INDEX", "ALTER TABLE t ADD INDEX k (k)"),
    (
        "ADD INDEX, three",
        "ALTER TABLE t ADD INDEX c (c(20)), ADD UNIQUE u (k, id), ADD INDEX pad (pad(10), k)",
    ),
    (
        "DROP INDEX, three",
        "ALTER TABLE t DROP INDEX c, DROP INDEX u, DROP INDEX pad",
    ),
    (
        "MODIFY, a longer VARCHAR",
        "ALTER TABLE t MODIFY note VARCHAR(50) NOT NULL",
    ),
    (
        "ADD COLUMN in the middle",
        "ALTER TABLE t ADD COLUMN extra INT NOT NULL DEFAULT 7 AFTER id",
    ),
    ("DROP COLUMN", "ALTER TABLE t DROP COLUMN extra"),
    ("OPTIMIZE", "OPTIMIZE TABLE t"),
    (
        "another primary key",
        "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (k, id)",
    ),
    ("TRUNCATE", "TRUNCATE TABLE t"),
    (
        "INSERT … SELECT, at random",
        "INSERT INTO t SELECT * FROM source",
    ),
];

type Seconds = [f64; STATEMENTS.len()];

pub fn run(workspace: &Workspace, args: &DdlArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "ddl", &args.common)?;
    let pool = format!("buffer-pool-size={}", args.pool);
    let settings = [&TABLES_IN_POOL[..], &[pool.as_str()]].concat();
    let mut server = benchmark.server(&settings)?;
    let databases = server.databases(1, args.rows);
    let repeat = args.repeat as usize;
    let runs = server.in_turn(&databases, repeat, |_, database| measure(database))?;
    server.end()?;
    if !args.common.json {
        print(&runs, args);
    }
    benchmark.end(to_json(&runs, args));
    Ok(())
}

fn measure(database: &Sysbench<'_>) -> Result<Seconds> {
    let mut client = Client::connect(&database.socket)?;
    let (name, engine, rows) = (&database.database, database.engine.name(), database.rows);
    let columns = "id INT NOT NULL PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, \
                   note VARCHAR(20) NOT NULL, pad CHAR(40) NOT NULL";
    for sql in [
        &format!("DROP DATABASE IF EXISTS {name}"),
        &format!("CREATE DATABASE {name}"),
        &format!("USE {name}"),
        // Reading it costs both engines the same.
        &format!("CREATE TABLE source ({columns}) ENGINE=Aria TRANSACTIONAL=0 ROW_FORMAT=FIXED"),
        &format!(
            "INSERT INTO source SELECT seq, seq * 7919 % {rows}, SHA2(seq, 256), seq % 100, MD5(seq) \
             FROM seq_1_to_{rows}"
        ),
        &format!("CREATE TABLE t ({columns}) ENGINE={engine} CHARACTER SET latin1"),
    ] {
        client.query(sql)?;
    }
    let mut seconds = [0.0; STATEMENTS.len()];
    for (took, (what, sql)) in seconds.iter_mut().zip(STATEMENTS) {
        let begun = Instant::now();
        client.query(sql)?;
        *took = begun.elapsed().as_secs_f64();
        let expected = match what {
            "TRUNCATE" => 0,
            _ => rows,
        };
        let found = client.value("SELECT COUNT(*) FROM t")?;
        ensure!(found == expected.to_string(), "{found} rows after {what}");
    }
    client.query(&format!("DROP DATABASE {name}"))?;
    Ok(seconds)
}

fn print(runs: &Runs<Seconds>, args: &DdlArgs) {
    let engines = &args.common.engines;
    println!("{} rows, seconds", args.rows);
    let columns = engines.iter().map(|e| format!("{}:>20.2|", e.name()));
    let columns: String = columns.collect();
    let table = Table::new(&format!("statement:<28|{columns}ratio:>6"));
    table.print_head();
    for (at, (what, _)) in STATEMENTS.into_iter().enumerate() {
        let mut row = vec![Cell::from(what)];
        for n in 0..engines.len() {
            let Spread {
                median,
                least,
                greatest,
            } = Spread::of(&runs.figures(n, |seconds| seconds[at]));
            row.push(format!("{median:.2} ({least:.2}-{greatest:.2})").into());
        }
        row.push(ratio_text(runs.ratio(|seconds| seconds[at])).into());
        table.print(row);
    }
}

fn to_json(runs: &Runs<Seconds>, args: &DdlArgs) -> Value {
    let engines = args.common.engines.iter().enumerate();
    let results = engines.map(|(n, engine)| {
        let by_statement = STATEMENTS.iter().enumerate().map(|(at, (what, _))| {
            let seconds = runs.figures(n, |seconds| seconds[at]);
            json!({"statement": what, "seconds": seconds})
        });
        json!({"engine": engine.name(), "results": by_statement.collect::<Vec<_>>()})
    });
    json!({
        "rows": args.rows, "pool": args.pool, "settings": TABLES_IN_POOL,
        "results": results.collect::<Vec<_>>(),
    })
}
