//! `bench memory`: a table that is several times the buffer pool, one kind of work after the other: how much
//! is done in a second, and what the server's process reads and writes for each operation, by the kernel's
//! count.
//!
//! The engines take turns in one server, and read past the operating system's cache, which would have all of
//! it otherwise. Before each measurement it is told to forget what it has of the tables' files nevertheless:
//! a file system may not allow that.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fastrand::Rng;
use rustix::fs::{Advice, fadvise};
use serde_json::{Value, json};
use varve_testbed::client::Client;
use varve_testbed::workspace::Workspace;

use crate::benchmark::{BenchServer, Benchmark, Common};
use crate::load::{self, Load};
use crate::process::Transferred;
use crate::stats::Runs;
use crate::sysbench::{ROW_BYTES, Sysbench};
use crate::table::{figures_to_json, print_figures};

#[derive(clap::Args)]
pub struct MemoryArgs {
    /// Rows, of 235 bytes with their entries in the index
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    rows: u64,
    /// The buffer pool is one so many-th of the table
    #[arg(long, value_delimiter = ',', default_value = "2,8,16,32")]
    parts: Vec<u64>,
    /// Clients
    #[arg(long, value_delimiter = ',', default_value = "1,16")]
    threads: Vec<u32>,
    /// Only these workloads
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Work>,
    /// Seconds of each run
    #[arg(long, default_value_t = 5)]
    time: u64,
    /// How often everything is measured; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    #[command(flatten)]
    common: Common,
}

/// What clients do again and again, each a transaction. Rows are chosen at random, all alike or not.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Work {
    Points,
    /// Four of five reads are of a fifth of the rows, four of five of these of a fifth of that, and so on.
    PointsSkewed,
    /// 100 rows in the primary key's order.
    Ranges,
    /// Of the indexed column.
    UpdateIndex,
    UpdateIndexSkewed,
    /// Of a column of 128 bytes.
    Update,
    /// Behind all others.
    InsertInOrder,
    /// Between others.
    InsertAtRandom,
    Delete,
    /// Points, while another client reads the whole table again and again.
    PointsBesideScans,
    /// Not by clients: one reads the whole table. An operation is a row.
    Scan,
}

/// In this order.
const ALL: [(Work, &str); 11] = [
    (Work::Points, "points"),
    (Work::PointsSkewed, "points, skewed"),
    (Work::Ranges, "ranges"),
    (Work::PointsBesideScans, "points beside scans"),
    (Work::Scan, "scan"),
    (Work::UpdateIndex, "update of the index"),
    (Work::UpdateIndexSkewed, "update of the index, skewed"),
    (Work::Update, "update"),
    (Work::InsertInOrder, "insert in order"),
    (Work::InsertAtRandom, "insert at random"),
    (Work::Delete, "delete"),
];

/// What is measured of each, and its decimals.
const WHAT: [(&str, usize); 3] = [("a second", 0), ("KiB read", 2), ("KiB written", 2)];
type Figures = [f64; WHAT.len()];

const COLUMNS: &str = "id INT NOT NULL PRIMARY KEY, k INT NOT NULL, c CHAR(128) NOT NULL, \
                       pad CHAR(60) NOT NULL, KEY k (k)";
/// No engine works in less.
const LEAST_POOL_MIB: u64 = 6;
/// The share of the rows that most of the skewed uses are of, and how many of them are.
const FEW: f64 = 0.2;
const MOST: f64 = 0.8;
const PATIENCE: Duration = Duration::from_secs(600);

pub fn run(workspace: &Workspace, args: &MemoryArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "memory", &args.common)?;
    let mut results = Vec::new();
    for &part in &args.parts {
        let bytes = args.rows as f64 * ROW_BYTES / part.max(1) as f64;
        let pool = (bytes as u64 >> 20).max(LEAST_POOL_MIB);
        let option = format!("buffer-pool-size={pool}M");
        let mut server = benchmark.server(&[
            &option,
            "flush-method=O_DIRECT",
            "log-file-size=256M",
            "io-capacity=2000",
            "io-capacity-max=4000",
        ])?;
        let databases = server.databases(1, args.rows);
        databases.iter().try_for_each(fill)?;
        let measure =
            |server: &BenchServer<'_>, database: &Sysbench<'_>| measure(server, database, args);
        let runs = server.in_turn(&databases, args.repeat as usize, measure)?;
        server.end()?;
        if !args.common.json {
            println!("{} rows, pool {pool} MiB: 1/{part} of the table", args.rows);
            let decimals = WHAT.iter().map(|(_, decimals)| *decimals).cycle();
            let figures = names(args).zip(decimals).enumerate();
            let figures = figures.map(|(at, (name, decimals))| {
                (name, decimals, move |figures: &Vec<f64>| figures[at])
            });
            print_figures(&runs, &args.common.engines, ("what:<44", 24), figures);
        }
        results.push(to_json(&runs, args, part, pool));
    }
    benchmark.end(json!({"rows": args.rows, "seconds": args.time, "results": results}));
    Ok(())
}

/// The workloads, with how many clients.
fn workloads(args: &MemoryArgs) -> impl Iterator<Item = (Work, &'static str, u32)> + '_ {
    let wanted = ALL
        .into_iter()
        .filter(|(work, _)| args.only.is_empty() || args.only.contains(work));
    wanted.flat_map(|(work, name)| {
        let clients = match work {
            Work::Scan => &[1],
            _ => &args.threads[..],
        };
        clients.iter().map(move |&n| (work, name, n))
    })
}

fn names(args: &MemoryArgs) -> impl Iterator<Item = String> + '_ {
    workloads(args)
        .flat_map(|(_, name, clients)| WHAT.map(|(what, _)| format!("{name}, {clients}: {what}")))
}

/// Every second number is a row's.
fn fill(database: &Sysbench<'_>) -> Result<()> {
    let (mut client, engine, rows) = (
        database.begin_anew()?,
        database.engine.name(),
        database.rows,
    );
    client.query(&format!(
        "CREATE TABLE t ({COLUMNS}) ENGINE={engine} CHARACTER SET latin1"
    ))?;
    client.query(&format!(
        "INSERT INTO t SELECT 2 * seq, seq * 7919 % {rows}, REPEAT(SHA2(seq, 256), 2), SHA2(seq, 224) \
         FROM seq_1_to_{rows}"
    ))?;
    Ok(())
}

/// The figures of each workload.
fn measure(
    server: &BenchServer<'_>,
    database: &Sysbench<'_>,
    args: &MemoryArgs,
) -> Result<Vec<f64>> {
    let mut client = server.connect()?;
    let mut found = Vec::new();
    for (work, _, clients) in workloads(args) {
        load::wait_for_history(&mut client, database.engine, load::CAUGHT_UP, PATIENCE)?;
        forget_files(&server.dir.join(&database.database))?;
        let figures = match work {
            Work::Scan => of_scan(server, database, &mut client)?,
            _ => of_clients(server, database, work, clients, args)?,
        };
        found.extend(figures);
    }
    Ok(found)
}

fn of_clients(
    server: &BenchServer<'_>,
    database: &Sysbench<'_>,
    work: Work,
    clients: u32,
    args: &MemoryArgs,
) -> Result<Figures> {
    let scans = match work {
        Work::PointsBesideScans => Some(start_scans(database)?),
        _ => None,
    };
    let load = start(database, work, clients)?;
    // What begins is not what goes on.
    thread::sleep(Duration::from_secs(args.time) / 5);
    let (before, done) = (Transferred::of(server.pid())?, load.done());
    let begun = Instant::now();
    thread::sleep(Duration::from_secs(args.time));
    let (took, operations) = (begun.elapsed(), load.done() - done);
    let after = Transferred::of(server.pid())?;
    load.stop()?;
    scans.map(Load::stop).transpose()?;
    Ok(figures(operations, took, before, after))
}

fn figures(operations: u64, took: Duration, before: Transferred, after: Transferred) -> Figures {
    let each = |bytes: u64| bytes as f64 / 1024.0 / operations.max(1) as f64;
    [
        operations as f64 / took.as_secs_f64(),
        each(after.read - before.read),
        each(after.written - before.written),
    ]
}

/// A row's place among so many.
fn place(rng: &mut Rng, rows: u64, is_skewed: bool) -> u64 {
    let mut among = rows as f64;
    while is_skewed && among > 100.0 && rng.f64() < MOST {
        among *= FEW;
    }
    // Those that are used often lie everywhere.
    let place = (rng.f64() * among) as u64;
    match is_skewed {
        true => place.wrapping_mul(0x9e37_79b9_7f4a_7c15) % rows,
        false => place,
    }
}

fn start(database: &Sysbench<'_>, work: Work, clients: u32) -> Result<Load> {
    let (table, rows) = (format!("{}.t", database.database), database.rows);
    let next = Arc::new(AtomicU64::new(first_free(database)?));
    Load::start(&database.socket, clients, u64::MAX, move |client, rng| {
        let is_skewed = matches!(work, Work::PointsSkewed | Work::UpdateIndexSkewed);
        let id = 2 + 2 * place(rng, rows, is_skewed);
        let texts = "REPEAT(SHA2(RAND(), 256), 2), SHA2(RAND(), 224)";
        let sql = match work {
            Work::Points | Work::PointsSkewed | Work::PointsBesideScans => {
                format!("SELECT c FROM {table} WHERE id = {id}")
            }
            Work::Ranges => {
                format!("SELECT SUM(k) FROM {table} WHERE id BETWEEN {id} AND {id} + 199")
            }
            Work::UpdateIndex | Work::UpdateIndexSkewed => {
                format!(
                    "UPDATE {table} SET k = {} WHERE id = {id}",
                    rng.u64(0..rows)
                )
            }
            Work::Update => {
                format!("UPDATE {table} SET c = REPEAT(SHA2(RAND(), 256), 2) WHERE id = {id}")
            }
            Work::InsertInOrder => {
                // Relaxed: each number is handed out once.
                let id = next.fetch_add(2, Ordering::Relaxed);
                format!(
                    "INSERT INTO {table} VALUES ({id}, {}, {texts})",
                    rng.u64(0..rows)
                )
            }
            Work::InsertAtRandom => format!(
                "INSERT IGNORE INTO {table} VALUES ({}, {}, {texts})",
                id + 1,
                rng.u64(0..rows)
            ),
            Work::Delete => format!("DELETE FROM {table} WHERE id = {id}"),
            Work::Scan => unreachable!("one statement"),
        };
        client.query(&sql).map(drop)
    })
}

fn first_free(database: &Sysbench<'_>) -> Result<u64> {
    let mut client = Client::connect(&database.socket)?;
    let greatest = client.query(&format!("SELECT MAX(id) FROM {}.t", database.database))?;
    let greatest = greatest
        .first()
        .and_then(|row| row[0].as_ref()?.parse::<u64>().ok());
    Ok(greatest.unwrap_or(0) / 2 * 2 + 2)
}

fn scan_of(database: &Sysbench<'_>) -> String {
    let database = &database.database;
    format!("SELECT COUNT(*), SUM(LENGTH(pad)) FROM {database}.t FORCE INDEX (PRIMARY)")
}

fn start_scans(database: &Sysbench<'_>) -> Result<Load> {
    let sql = scan_of(database);
    Load::start(&database.socket, 1, u64::MAX, move |client, _| {
        client.query(&sql).map(drop)
    })
}

fn of_scan(
    server: &BenchServer<'_>,
    database: &Sysbench<'_>,
    client: &mut Client,
) -> Result<Figures> {
    let before = Transferred::of(server.pid())?;
    let begun = Instant::now();
    let answer = client.query(&scan_of(database))?;
    let took = begun.elapsed();
    let count = answer
        .first()
        .and_then(|row| row[0].as_ref()?.parse::<u64>().ok());
    ensure!(
        count.is_some_and(|n| n > 0),
        "the scan has counted {count:?}"
    );
    let after = Transferred::of(server.pid())?;
    Ok(figures(count.unwrap_or(0), took, before, after))
}

/// Has the operating system forget what it has of the files, if it is on disk.
fn forget_files(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let file = fs::File::open(entry?.path())?;
        file.sync_data()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

fn to_json(runs: &Runs<Vec<f64>>, args: &MemoryArgs, part: u64, pool: u64) -> Value {
    let by_engine = figures_to_json(runs, &args.common.engines, names(args));
    json!({"part": part, "pool_mib": pool, "by_engine": by_engine})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skewed_choice_prefers_few_rows() {
        let mut rng = Rng::with_seed(1);
        let mut uses = vec![0u32; 10_000];
        for _ in 0..100_000 {
            uses[place(&mut rng, 10_000, true) as usize] += 1;
        }
        uses.sort_unstable_by(|a, b| b.cmp(a));
        let of_most_used: u32 = uses[..2000].iter().sum();
        assert!((75_000..95_000).contains(&of_most_used), "{of_most_used}");
        assert!((0..1000).all(|_| place(&mut rng, 10, false) < 10));
    }
}
