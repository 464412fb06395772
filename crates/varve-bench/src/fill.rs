//! `bench fill`: how long it takes to fill an empty table. Beside it the same with the checks off without
//! which InnoDB loads rows, and into a table of BLACKHOLE, which is what the server needs for itself. The
//! engines take turns in one server.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::json;
use varve_testbed::client::Client;
use varve_testbed::workspace::Workspace;

use crate::benchmark::{Benchmark, Common, TABLES_IN_POOL};
use crate::ddl::{COLUMNS, SOURCE, rows_of_source};
use crate::stats::Runs;
use crate::sysbench::Sysbench;
use crate::table::{figures_to_json, print_figures};

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

/// Seconds of each case.
type Figures = [f64; WAYS.len() * ORDERS.len() * INDEXES.len() * TABLES.len()];

/// What is measured together: places in the lists above.
#[derive(Clone, Copy)]
struct Case {
    way: usize,
    order: usize,
    indexes: usize,
    table: usize,
}

impl Case {
    fn all() -> impl Iterator<Item = Case> {
        (0..Figures::default().len()).map(|n| Case {
            way: n / (ORDERS.len() * INDEXES.len() * TABLES.len()),
            order: n / (INDEXES.len() * TABLES.len()) % ORDERS.len(),
            indexes: n / TABLES.len() % INDEXES.len(),
            table: n % TABLES.len(),
        })
    }

    fn name(self) -> String {
        let (indexes, _) = INDEXES[self.indexes];
        let (way, order, table) = (WAYS[self.way], ORDERS[self.order], TABLES[self.table]);
        format!("{way}, {order}, {indexes}, {table}")
    }

    /// Seconds; a file of rows in this case's order is in the directory.
    fn measure(self, client: &mut Client, database: &Sysbench<'_>, dir: &Path) -> Result<f64> {
        let (table, (_, indexes)) = (TABLES[self.table], INDEXES[self.indexes]);
        let (engine, expected) = match table {
            "BLACKHOLE" => (table, 0),
            _ => (database.engine.name(), database.rows),
        };
        let checks = u8::from(table != "checks off");
        client.query(&format!(
            "CREATE OR REPLACE TABLE t ({COLUMNS}{indexes}) ENGINE={engine} CHARACTER SET latin1"
        ))?;
        client.query(&format!(
            "SET unique_checks = {checks}, foreign_key_checks = {checks}"
        ))?;
        let sql = match self.way {
            0 => format!("INSERT INTO t SELECT * FROM source{}", self.order),
            _ => {
                let file = file(dir, database, self.order);
                format!("LOAD DATA INFILE '{}' INTO TABLE t", file.display())
            }
        };
        // Nobody waits for what was written before, the files with rows above all.
        rustix::fs::sync();
        let begun = Instant::now();
        client.query(&sql)?;
        let seconds = begun.elapsed().as_secs_f64();
        let found = client.value("SELECT COUNT(*) FROM t")?;
        ensure!(found == expected.to_string(), "{found} rows after {sql}");
        Ok(seconds)
    }
}

fn file(dir: &Path, database: &Sysbench<'_>, order: usize) -> PathBuf {
    dir.join(format!("{}-{order}.txt", database.database))
}

pub fn run(workspace: &Workspace, args: &FillArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "fill", &args.common)?;
    let pool = format!("buffer-pool-size={}", args.pool);
    let settings = [&TABLES_IN_POOL[..], &[pool.as_str()]].concat();
    let mut server = benchmark.server(&settings)?;
    let databases = server.databases(1, args.rows);
    if let Some(database) = databases.first() {
        Client::connect(&database.socket)?.query("INSTALL SONAME 'ha_blackhole'")?;
    }
    let repeat = args.repeat as usize;
    let runs = server.in_turn(&databases, repeat, |_, database| measure(database))?;
    server.end()?;
    let engines = &args.common.engines;
    if !args.common.json {
        print(&runs, args);
    }
    benchmark.end(json!({
        "rows": args.rows, "pool": args.pool, "settings": TABLES_IN_POOL,
        "results": figures_to_json(&runs, engines, Case::all().map(Case::name)),
    }));
    Ok(())
}

fn measure(database: &Sysbench<'_>) -> Result<Figures> {
    let mut client = database.begin_anew()?;
    // As the tables have them.
    let source = format!("{SOURCE} CHARACTER SET latin1");
    let unordered = COLUMNS.replace(" PRIMARY KEY", "");
    for sql in [
        &format!("CREATE TABLE source0 ({COLUMNS}) {source}"),
        &format!("INSERT INTO source0 {}", rows_of_source(database.rows)),
        &format!("CREATE TABLE source1 ({unordered}) {source}"),
        "INSERT INTO source1 SELECT * FROM source0 ORDER BY pad",
    ] {
        client.query(sql)?;
    }
    let dir = PathBuf::from(client.value("SELECT @@tmpdir")?);
    let files = (0..ORDERS.len()).map(|order| file(&dir, database, order));
    let files: Vec<PathBuf> = files.collect();
    for (order, file) in files.iter().enumerate() {
        let _ = std::fs::remove_file(file);
        client.query(&format!(
            "SELECT * INTO OUTFILE '{}' FROM source{order}",
            file.display()
        ))?;
    }
    let mut seconds = Figures::default();
    for (figure, case) in seconds.iter_mut().zip(Case::all()) {
        *figure = case.measure(&mut client, database, &dir)?;
    }
    files.iter().try_for_each(std::fs::remove_file)?;
    client.query(&format!("DROP DATABASE {}", database.database))?;
    Ok(seconds)
}

fn print(runs: &Runs<Figures>, args: &FillArgs) {
    println!("{} rows, seconds", args.rows);
    let figures = Case::all().enumerate();
    let figures = figures.map(|(at, case)| (case.name(), 2, move |figures: &Figures| figures[at]));
    print_figures(runs, &args.common.engines, ("what:<46", 20), figures);
}
