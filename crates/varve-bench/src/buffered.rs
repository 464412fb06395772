//! `bench buffered`: rows with random values in several secondary indexes, none of which fits into the pool:
//! how many come and go in a second, what the server's process reads and writes for each, by the kernel's
//! count, and how fast one of the indexes is read meanwhile and afterwards. It is what change buffers are
//! for; the setting is that of both engines.
//!
//! The engines take turns in one server, and read past the operating system's cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;
use serde_json::{Value, json};
use varve_testbed::client::Client;
use varve_testbed::server::Engine;
use varve_testbed::workspace::Workspace;

use crate::benchmark::{BenchServer, Benchmark, Common};
use crate::load::{self, Load};
use crate::process::Transferred;
use crate::stats::Runs;
use crate::sysbench::Sysbench;
use crate::table::{figures_to_json, print_figures};

#[derive(clap::Args)]
pub struct BufferedArgs {
    /// MiB of the buffer pool
    #[arg(long, default_value_t = 32)]
    pool: u64,
    /// What is buffered: none, inserts, deletes, changes, purges or all
    #[arg(long, default_value = "all")]
    buffering: String,
    /// Seconds in which rows are inserted, from an empty table on
    #[arg(long, default_value_t = 120)]
    inserts: u64,
    /// Seconds of each of the other workloads
    #[arg(long, default_value_t = 20)]
    time: u64,
    /// Clients
    #[arg(long, default_value_t = 4)]
    threads: u32,
    /// Secondary indexes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=16))]
    indexes: u32,
    /// How often everything is measured; the median counts
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    #[command(flatten)]
    common: Common,
}

/// Rows of a statement.
const TOGETHER: u64 = 10;
/// Values of a column.
const VALUES: u64 = 1 << 30;

/// What is measured, and its decimals.
const WHAT: [(&str, usize); 13] = [
    ("rows inserted a second", 0),
    ("KiB read for each", 2),
    ("KiB written for each", 2),
    ("MiB of the table", 0),
    ("points by an index a second, at once", 0),
    ("rows deleted a second", 0),
    ("KiB read for each deletion", 2),
    ("KiB written for each deletion", 2),
    ("seconds until they are purged", 1),
    ("points by an index a second, after that", 0),
    ("pages of change buffers then", 0),
    ("seconds until all is merged", 1),
    ("points by an index a second, at rest", 0),
];
type Figures = [f64; WHAT.len()];
/// Until purge has caught up.
const PATIENCE: Duration = Duration::from_secs(1800);

pub fn run(workspace: &Workspace, args: &BufferedArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "buffered", &args.common)?;
    let (pool, buffering) = (args.pool, &args.buffering);
    let (pool, buffering) = (
        format!("buffer-pool-size={pool}M"),
        format!("change-buffering={buffering}"),
    );
    let mut server = benchmark.server(&[
        &pool,
        &buffering,
        "flush-method=O_DIRECT",
        "log-file-size=512M",
        "io-capacity=2000",
        "io-capacity-max=4000",
    ])?;
    let databases = server.databases(1, 1);
    let measure =
        |server: &BenchServer<'_>, database: &Sysbench<'_>| measure(server, database, args);
    let runs = server.in_turn(&databases, args.repeat as usize, measure)?;
    server.end()?;
    if !args.common.json {
        println!("pool {} MiB, buffering {}", args.pool, args.buffering);
        let figures = WHAT.into_iter().enumerate();
        let figures = figures.map(|(at, (name, decimals))| {
            (name.to_string(), decimals, move |figures: &Figures| {
                figures[at]
            })
        });
        print_figures(&runs, &args.common.engines, ("what:<44", 24), figures);
    }
    benchmark.end(to_json(&runs, args));
    Ok(())
}

fn to_json(runs: &Runs<Figures>, args: &BufferedArgs) -> Value {
    let names = WHAT.into_iter().map(|(name, _)| name.to_string());
    let by_engine = figures_to_json(runs, &args.common.engines, names);
    let (pool, buffering, seconds) = (args.pool, &args.buffering, args.inserts);
    json!({"pool_mib": pool, "buffering": buffering, "seconds": seconds, "by_engine": by_engine})
}

fn measure(
    server: &BenchServer<'_>,
    database: &Sysbench<'_>,
    args: &BufferedArgs,
) -> Result<Figures> {
    let mut client = database.begin_anew()?;
    let of_each = |f: &dyn Fn(u32) -> String| (0..args.indexes).map(f).collect::<String>();
    let (columns, keys) = (
        of_each(&|n| format!("k{n} INT NOT NULL, ")),
        of_each(&|n| format!(", KEY k{n} (k{n})")),
    );
    client.query(&format!(
        "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, {columns}pad CHAR(60) NOT NULL{keys}) ENGINE={} \
         CHARACTER SET latin1",
        database.engine.name()
    ))?;
    let engine = database.engine;
    let table = format!("{}.t", database.database);
    let of_clients =
        |seconds, transaction| of_clients(server, database, args, seconds, transaction);
    let next = Arc::new(AtomicU64::new(1));
    let inserted = {
        let (indexes, name, next) = (args.indexes, table.clone(), next.clone());
        of_clients(
            args.inserts,
            Box::new(move |rng| {
                // Relaxed: each number is handed out once.
                let first = next.fetch_add(TOGETHER, Ordering::Relaxed);
                insert(&name, indexes, first, rng)
            }),
        )?
    };
    let size = server.bytes_of(database)? as f64 / f64::from(1 << 20);
    let rows = next.load(Ordering::Relaxed);
    // One or two rows are found.
    let points = || -> Result<f64> {
        let (name, span) = (table.clone(), VALUES / rows);
        let found = of_clients(
            args.time,
            Box::new(move |rng| {
                let k = rng.u64(0..VALUES);
                format!("SELECT id FROM {name} WHERE k0 BETWEEN {k} AND {k} + {span}")
            }),
        )?;
        Ok(found.of_rows(1)[0])
    };
    let at_once = points()?;
    let deleted = {
        let name = table.clone();
        of_clients(
            args.time,
            Box::new(move |rng| {
                let id = rng.u64(1..rows);
                let last = id + TOGETHER - 1;
                format!("DELETE FROM {name} WHERE id BETWEEN {id} AND {last}")
            }),
        )?
    };
    let begun = Instant::now();
    load::wait_for_history(&mut client, engine, load::CAUGHT_UP, PATIENCE)?;
    let purged = begun.elapsed().as_secs_f64();
    let after_that = points()?;
    let pages = load::status(&mut client, &[&load::status_name(engine, "ibuf_size")])?[0];
    // InnoDB's counter has been seen below zero.
    let pages = u32::try_from(pages).unwrap_or_default();
    let merged = wait_for_merges(&mut client, engine)?;
    let at_rest = points()?;
    let buffering = format!("'{}'", args.buffering);
    load::set(&mut client, engine, "change_buffering", buffering)?;
    let [inserts, inserts_read, inserts_written] = inserted.of_rows(TOGETHER);
    let [deletes, deletes_read, deletes_written] = deleted.of_rows(TOGETHER);
    Ok([
        inserts,
        inserts_read,
        inserts_written,
        size,
        at_once,
        deletes,
        deletes_read,
        deletes_written,
        purged,
        after_that,
        f64::from(pages),
        merged,
        at_rest,
    ])
}

fn insert(table: &str, indexes: u32, first: u64, rng: &mut Rng) -> String {
    let mut sql = format!("INSERT INTO {table} VALUES ");
    for id in first..first + TOGETHER {
        let comma = if id == first { "" } else { "," };
        sql.push_str(&format!("{comma}({id},"));
        (0..indexes).for_each(|_| sql.push_str(&format!("{},", rng.u64(0..VALUES))));
        sql.push_str("REPEAT('pad ',15))");
    }
    sql
}

/// What was done, in what time, and what that took.
struct Done {
    operations: u64,
    took: Duration,
    read: u64,
    written: u64,
}

impl Done {
    /// A second, and KiB read and written for each, of operations with so many rows.
    fn of_rows(&self, together: u64) -> [f64; 3] {
        let rows = (self.operations * together).max(1) as f64;
        let each = |bytes: u64| bytes as f64 / 1024.0 / rows;
        [
            rows / self.took.as_secs_f64(),
            each(self.read),
            each(self.written),
        ]
    }
}

/// Makes the statements that clients repeat.
type Statements = Box<dyn Fn(&mut Rng) -> String + Send + Sync>;

fn of_clients(
    server: &BenchServer<'_>,
    database: &Sysbench<'_>,
    args: &BufferedArgs,
    seconds: u64,
    statement: Statements,
) -> Result<Done> {
    let load = Load::start(
        &database.socket,
        args.threads,
        u64::MAX,
        move |client, rng| client.query(&statement(rng)).map(drop),
    )?;
    let (before, done) = (Transferred::of(server.pid())?, load.done());
    let begun = Instant::now();
    thread::sleep(Duration::from_secs(seconds));
    let (took, operations) = (begun.elapsed(), load.done() - done);
    let after = Transferred::of(server.pid())?;
    load.stop()?;
    Ok(Done {
        operations,
        took,
        read: after.read - before.read,
        written: after.written - before.written,
    })
}

/// Has all that is buffered merged; returns after how many seconds that was done, or has not gone on for two.
fn wait_for_merges(client: &mut Client, engine: Engine) -> Result<f64> {
    load::set(client, engine, "change_buffering", "'none'")?;
    let name = load::status_name(engine, "ibuf_merges");
    let (begun, mut last) = (Instant::now(), Instant::now());
    let mut merges = 0;
    while last.elapsed() < Duration::from_secs(2) {
        let now = load::status(client, &[&name])?[0];
        if now != merges {
            (merges, last) = (now, Instant::now());
        }
        thread::sleep(load::WINDOW);
    }
    Ok((last - begun).as_secs_f64())
}
