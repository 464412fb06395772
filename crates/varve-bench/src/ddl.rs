//! `bench ddl`: how long statements take that change a table's definition, or fill a table, and for one of
//! them what writers do meanwhile; then DROP and TRUNCATE of a large table beside readers (`drop`). The
//! engines take turns in one server, and begin with tables that are made anew.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use varve_testbed::client::Client;
use varve_testbed::workspace::Workspace;

use crate::benchmark::{Benchmark, Common, TABLES_IN_POOL};
use crate::drop;
use crate::stats::Runs;
use crate::sysbench::Sysbench;
use crate::table::{figures_to_json, print_figures};

#[derive(clap::Args)]
pub struct DdlArgs {
    /// Rows of the table, of 190 bytes
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// Measure each engine so many times, in turn; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Size of the buffer pool, in MiB
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u64).range(64..))]
    pool: u64,
    /// Measure only these
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Statements, Part::Drop])]
    only: Vec<Part>,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The statements one by one
    Statements,
    /// DROP and TRUNCATE of a table that fills the pool, beside readers of another one
    Drop,
}

/// What is measured, one after the other, with the table `t`, whose rows come from the table `source`.
const STATEMENTS: [(&str, &str); 13] = [
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
    (WITH_WRITERS, "ALTER TABLE t ADD INDEX pad (pad(10), k)"),
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
    ("another type", "ALTER TABLE t MODIFY k BIGINT NOT NULL"),
];

/// Columns of 190 bytes.
pub const COLUMNS: &str = "id INT NOT NULL PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, \
                           note VARCHAR(20) NOT NULL, pad CHAR(40) NOT NULL";
/// Of the table where rows come from: reading it costs all engines the same.
pub const SOURCE: &str = "ENGINE=Aria TRANSACTIONAL=0 ROW_FORMAT=FIXED";

/// So many rows for it.
pub fn rows_of_source(n: u64) -> String {
    format!("SELECT seq, seq * 7919 % {n}, SHA2(seq, 256), seq % 100, MD5(seq) FROM seq_1_to_{n}")
}

/// The statement beside which others change rows.
const WITH_WRITERS: &str = "ADD INDEX, 4 writers";
const WRITERS: u64 = 4;
/// What they do without it is measured so long.
const BEFORE: Duration = Duration::from_secs(3);

/// Seconds of the statements, then the writers' statements each second before and beside `WITH_WRITERS`.
type Figures = [f64; STATEMENTS.len() + 2];

fn figure_names() -> impl Iterator<Item = &'static str> {
    let writers = ["writers before it, 1/s", "writers beside it, 1/s"];
    STATEMENTS.iter().map(|(what, _)| *what).chain(writers)
}

pub fn run(workspace: &Workspace, args: &DdlArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "ddl", &args.common)?;
    let pool = format!("buffer-pool-size={}M", args.pool);
    let settings = [&TABLES_IN_POOL[..], &[pool.as_str()]].concat();
    let mut server = benchmark.server(&settings)?;
    let (repeat, engines) = (args.repeat as usize, &args.common.engines);
    let mut result = json!({"pool_mib": args.pool, "settings": TABLES_IN_POOL});
    if args.only.contains(&Part::Statements) {
        let databases = server.databases(1, args.rows);
        let runs = server.in_turn(&databases, repeat, |_, database| measure(database))?;
        if !args.common.json {
            print(&runs, args);
        }
        result["rows"] = args.rows.into();
        result["results"] = figures_to_json(&runs, engines, figure_names());
    }
    if args.only.contains(&Part::Drop) {
        let runs = drop::measure_all(&mut server, args.pool, repeat)?;
        if !args.common.json {
            drop::print(&runs, engines);
        }
        result["drop"] = drop::to_json(&runs, engines);
    }
    server.end()?;
    benchmark.end(result);
    Ok(())
}

fn measure(database: &Sysbench<'_>) -> Result<Figures> {
    let mut client = database.begin_anew()?;
    let (name, engine, rows) = (&database.database, database.engine.name(), database.rows);
    for sql in [
        &format!("CREATE TABLE source ({COLUMNS}) {SOURCE}"),
        &format!("INSERT INTO source {}", rows_of_source(rows)),
        &format!("CREATE TABLE t ({COLUMNS}) ENGINE={engine} CHARACTER SET latin1"),
    ] {
        client.query(sql)?;
    }
    let mut figures = [0.0; STATEMENTS.len() + 2];
    let (seconds, rates) = figures.split_at_mut(STATEMENTS.len());
    for (took, (what, sql)) in seconds.iter_mut().zip(STATEMENTS) {
        if what == WITH_WRITERS {
            [*took, rates[0], rates[1]] = beside_writers(database, &mut client, sql)?;
        } else {
            let begun = Instant::now();
            client.query(sql)?;
            *took = begun.elapsed().as_secs_f64();
        }
        let expected = match what {
            "TRUNCATE" => 0,
            _ => rows,
        };
        let found = client.value("SELECT COUNT(*) FROM t")?;
        ensure!(found == expected.to_string(), "{found} rows after {what}");
    }
    client.query(&format!("DROP DATABASE {name}"))?;
    Ok(figures)
}

/// Seconds that a statement takes while others change rows, and how many statements they do each second
/// before it, and beside it.
fn beside_writers(database: &Sysbench<'_>, client: &mut Client, sql: &str) -> Result<[f64; 3]> {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let writer = |n| write_until(database, n, &stop, &done);
        let writers: Vec<_> = (0..WRITERS)
            .map(|n| scope.spawn(move || writer(n)))
            .collect();
        thread::sleep(BEFORE / 3);
        let (begun, first) = (Instant::now(), done.load(Ordering::Relaxed));
        thread::sleep(BEFORE);
        let (altered, second) = (Instant::now(), done.load(Ordering::Relaxed));
        let result = client.query(sql);
        let (seconds, last) = (altered.elapsed(), done.load(Ordering::Relaxed));
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().expect("it does not panic")?;
        }
        result?;
        client.query("ALTER TABLE t DROP INDEX pad")?;
        let before = (second - first) as f64 / (altered - begun).as_secs_f64();
        let beside = (last - second) as f64 / seconds.as_secs_f64();
        Ok([seconds.as_secs_f64(), before, beside])
    })
}

fn write_until(
    database: &Sysbench<'_>,
    number: u64,
    stop: &AtomicBool,
    done: &AtomicU64,
) -> Result<()> {
    let mut client = database.connect()?;
    // Each has rows of its own: nobody waits for another one.
    let own = database.rows / WRITERS;
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        n = (n + 7919) % own.max(1);
        let id = 1 + number * own + n;
        client.query(&format!(
            "UPDATE t SET k = k + 1, pad = MD5(k) WHERE id = {id}"
        ))?;
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn print(runs: &Runs<Figures>, args: &DdlArgs) {
    println!("{} rows, seconds, or statements each second", args.rows);
    let figures = figure_names().enumerate();
    let figures = figures.map(|(at, what)| (what.into(), 2, move |figures: &Figures| figures[at]));
    print_figures(runs, &args.common.engines, ("statement:<28", 20), figures);
}
