//! `bench ddl`, its second part: what DROP TABLE and TRUNCATE TABLE of a table whose pages fill the buffer
//! pool cost those who read another one. What counts is the worst window of 100 ms from the statement's
//! beginning until a while after its end, for the pages leave the pool and the file its disk by then. Beside
//! it stand the median window before the statement, and the worst one of that time: what other work on the
//! machine does to the readers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use varve_testbed::client::Client;
use varve_testbed::server::Engine;

use crate::benchmark::BenchServer;
use crate::load::{Load, WINDOW, rate};
use crate::stats::{Runs, median};
use crate::sysbench::Sysbench;
use crate::table::print_figures;

const STATEMENTS: [(&str, &str); 2] = [
    ("TRUNCATE", "TRUNCATE TABLE large"),
    ("DROP", "DROP TABLE large"),
];
const READERS: u32 = 16;
/// Bytes of a row of the large table, with all that belongs to it.
const ROW_BYTES: u64 = 1050;
/// Rows of the table that is read.
const SMALL_ROWS: u64 = 10_000;
/// The readers before the statement, and after it.
const BESIDE: Duration = Duration::from_secs(3);

/// Of one statement.
#[derive(Clone, Copy)]
struct Figures {
    seconds: f64,
    /// Queries a second in the median window before it.
    median: f64,
    /// The same in the worst window before it.
    worst_before: f64,
    /// The same in the worst window beside it and after it.
    worst: f64,
}

/// Of each statement.
pub struct Outcome([Figures; STATEMENTS.len()]);

/// Measures each engine so many times, with a table that takes nine tenths of a pool of so many MiB.
pub fn measure_all<'a>(
    server: &mut BenchServer<'a>,
    pool_mib: u64,
    repeat: usize,
) -> Result<Runs<Outcome>> {
    let databases = server.databases(1, (pool_mib << 20) * 9 / 10 / ROW_BYTES);
    server.in_turn(&databases, repeat, |_, database| measure(database))
}

fn measure(database: &Sysbench<'_>) -> Result<Outcome> {
    let mut client = database.begin_anew()?;
    let (name, engine, rows) = (&database.database, database.engine.name(), database.rows);
    let columns = "id INT NOT NULL PRIMARY KEY, c VARCHAR(1000) NOT NULL";
    for sql in [
        &format!("CREATE TABLE small ({columns}) ENGINE={engine} CHARACTER SET latin1"),
        &format!("INSERT INTO small SELECT seq, SHA2(seq, 256) FROM seq_1_to_{SMALL_ROWS}"),
    ] {
        client.query(sql)?;
    }
    let mut outcome = Vec::new();
    for (what, sql) in STATEMENTS {
        client.query(&format!(
            "CREATE OR REPLACE TABLE large ({columns}) ENGINE={engine} CHARACTER SET latin1"
        ))?;
        client.query(&format!(
            "INSERT INTO large SELECT seq, REPEAT(CHAR(65 + seq % 26), 1000) FROM seq_1_to_{rows}"
        ))?;
        // What has left the pool meanwhile comes back.
        let found = client.value("SELECT COUNT(c) FROM large")?;
        ensure!(
            found == rows.to_string(),
            "{found} rows of {rows} before {what}"
        );
        outcome.push(beside_readers(database, &mut client, sql)?);
    }
    client.query(&format!("DROP DATABASE {name}"))?;
    let outcome = outcome.try_into();
    Ok(Outcome(
        outcome.unwrap_or_else(|_| unreachable!("one of each")),
    ))
}

fn beside_readers(database: &Sysbench<'_>, client: &mut Client, sql: &str) -> Result<Figures> {
    let name = database.database.clone();
    let load = Load::start(&database.socket, READERS, u64::MAX, move |client, rng| {
        let id = rng.u64(1..=SMALL_ROWS);
        let sql = format!("SELECT c FROM {name}.small WHERE id = {id}");
        client.query(&sql).map(drop)
    })?;
    thread::sleep(BESIDE / 3);
    let stop = AtomicBool::new(false);
    let (readings, span, result) = thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut readings = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                readings.push((Instant::now(), load.done()));
                thread::sleep(WINDOW);
            }
            readings
        });
        thread::sleep(BESIDE);
        let begun = Instant::now();
        let result = client.query(sql);
        let ended = Instant::now();
        thread::sleep(BESIDE);
        stop.store(true, Ordering::Relaxed);
        let readings = sampler.join().expect("it does not panic");
        (readings, begun..ended, result)
    });
    load.stop()?;
    result?;
    let (mut before, mut beside) = (Vec::new(), Vec::new());
    for window in readings.windows(2) {
        let of = match window[1].0 <= span.start {
            true => &mut before,
            false => &mut beside,
        };
        of.push(rate(window[0], window[1]));
    }
    Ok(Figures {
        seconds: (span.end - span.start).as_secs_f64(),
        worst_before: least(&before),
        median: median(before),
        worst: least(&beside),
    })
}

fn least(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(f64::INFINITY, f64::min)
}

type Figure = fn(&Figures) -> f64;

/// What is shown of a statement, with the digits behind the point.
const SHOWN: [(&str, usize, Figure); 4] = [
    ("ms", 1, |figures| 1e3 * figures.seconds),
    ("median before it, 1/s", 0, |figures| figures.median),
    ("worst window before it, of that", 2, |figures| {
        figures.worst_before / figures.median
    }),
    ("worst window beside it, of that", 2, |figures| {
        figures.worst / figures.median
    }),
];

pub fn print(runs: &Runs<Outcome>, engines: &[Engine]) {
    println!("a table that fills the pool, beside {READERS} readers of another one");
    let figures = STATEMENTS.iter().enumerate().flat_map(|(at, (what, _))| {
        SHOWN.map(|(name, digits, figure)| {
            let of = move |outcome: &Outcome| figure(&outcome.0[at]);
            (format!("{what}, {name}"), digits, of)
        })
    });
    print_figures(runs, engines, ("statement:<42", 24), figures);
}

pub fn to_json(runs: &Runs<Outcome>, engines: &[Engine]) -> Value {
    let results = engines.iter().enumerate().map(|(n, engine)| {
        let by_statement = STATEMENTS.iter().enumerate().map(|(at, (what, _))| {
            json!({
                "statement": what,
                "seconds": runs.figures(n, |outcome| outcome.0[at].seconds),
                "median": runs.figures(n, |outcome| outcome.0[at].median),
                "worst_before": runs.figures(n, |outcome| outcome.0[at].worst_before),
                "worst": runs.figures(n, |outcome| outcome.0[at].worst),
            })
        });
        json!({"engine": engine.name(), "results": by_statement.collect::<Vec<_>>()})
    });
    json!({"readers": READERS, "results": results.collect::<Vec<_>>()})
}
