//! `bench cascade`: a parent with many children gets another key, which they follow, and is deleted with
//! them, each by one statement. The engines take turns in one server, and begin with tables that are filled
//! anew.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use varve_testbed::workspace::Workspace;

use crate::benchmark::{Benchmark, Common, TABLES_IN_POOL};
use crate::stats::{Runs, Spread, ratio_text};
use crate::sysbench::Sysbench;
use crate::table::{Cell, Table};

#[derive(clap::Args)]
pub struct CascadeArgs {
    /// Children of the parent
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    children: u64,
    /// How often everything is measured; the median counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    #[command(flatten)]
    common: Common,
}

/// What is measured, and how.
const STATEMENTS: [(&str, &str); 3] = [
    (
        "INSERT of the children",
        "INSERT INTO child SELECT seq, 1, REPEAT('c', 100) FROM seq_1_to_",
    ),
    (
        "UPDATE of the parent's key",
        "UPDATE parent SET id = 3 WHERE id = 1",
    ),
    ("DELETE of the parent", "DELETE FROM parent WHERE id = 3"),
];

pub fn run(workspace: &Workspace, args: &CascadeArgs) -> Result<()> {
    ensure!(args.repeat > 0, "nothing to run");
    let benchmark = Benchmark::begin(workspace, "cascade", &args.common)?;
    let mut server = benchmark.server(&TABLES_IN_POOL)?;
    let databases = server.databases(2, args.children);
    let runs = server.in_turn(&databases, args.repeat, |_, database| measure(database))?;
    server.end()?;
    if !args.common.json {
        print(&runs, args);
    }
    benchmark.end(to_json(&runs, args));
    Ok(())
}

/// Seconds of each statement.
fn measure(database: &Sysbench<'_>) -> Result<[f64; 3]> {
    let mut client = database.begin_anew()?;
    let (name, engine) = (&database.database, database.engine.name());
    for sql in [
        &format!("CREATE TABLE parent (id INT PRIMARY KEY) ENGINE={engine}"),
        &format!(
            "CREATE TABLE child (id INT PRIMARY KEY, parent INT NOT NULL, note VARCHAR(100), KEY (parent),
               FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE) \
             ENGINE={engine}"
        ),
        "INSERT INTO parent VALUES (1), (2)",
        "INSERT INTO child VALUES (0, 2, 'of another parent')",
    ] {
        client.query(sql)?;
    }
    let mut seconds = [0.0; 3];
    // After each statement so many children have their parent's new key, and so many are there in all.
    let expected = [(0, 1), (1, 1), (0, 0)].map(|(moved, left)| {
        let children = database.rows;
        (moved * children, left * children + 1)
    });
    for (n, (_, sql)) in STATEMENTS.into_iter().enumerate() {
        let sql = match n {
            0 => format!("{sql}{}", database.rows),
            _ => sql.to_string(),
        };
        let begun = Instant::now();
        client.query(&sql)?;
        seconds[n] = begun.elapsed().as_secs_f64();
        let moved = client.value("SELECT COUNT(*) FROM child WHERE parent = 3")?;
        let all = client.value("SELECT COUNT(*) FROM child")?;
        let (wanted_moved, wanted_all) = expected[n];
        ensure!(
            moved == wanted_moved.to_string() && all == wanted_all.to_string(),
            "after {sql}: {moved} of {all} children have the new key"
        );
    }
    client.query(&format!("DROP DATABASE {name}"))?;
    // What the statements left to do in the background is not the next engine's.
    std::thread::sleep(Duration::from_secs(1));
    Ok(seconds)
}

fn print(runs: &Runs<[f64; 3]>, args: &CascadeArgs) {
    println!("{} children, {} repetitions", args.children, args.repeat);
    let engines = args.common.engines.iter();
    let engines: Vec<String> = engines
        .map(|engine| format!("{} children/s (min-max):>32|", engine.name()))
        .collect();
    let table = Table::new(&format!(":<28|{}ratio:>8", engines.concat()));
    table.print_head();
    let per_second = |seconds: f64| args.children as f64 / seconds;
    for (n, (what, _)) in STATEMENTS.into_iter().enumerate() {
        let mut cells = vec![what.into()];
        for engine in 0..engines.len() {
            let figures = runs.figures(engine, |seconds| per_second(seconds[n]));
            cells.push(Cell::of(Spread::of(&figures)));
        }
        cells.push(ratio_text(runs.ratio(|seconds| per_second(seconds[n]))).into());
        table.print(cells);
    }
}

fn to_json(runs: &Runs<[f64; 3]>, args: &CascadeArgs) -> Value {
    let results = args.common.engines.iter().enumerate().map(|(n, engine)| {
        let statement = |(at, (what, _)): (usize, (&str, &str))| {
            json!({"statement": what, "seconds": runs.figures(n, |seconds| seconds[at])})
        };
        let statements: Vec<Value> = STATEMENTS.into_iter().enumerate().map(statement).collect();
        json!({"engine": engine.name(), "statements": statements})
    });
    json!({
        "children": args.children, "settings": TABLES_IN_POOL, "results": results.collect::<Vec<_>>(),
    })
}
