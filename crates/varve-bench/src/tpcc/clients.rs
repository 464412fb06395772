//! The terminals: each a connection and a thread, one transaction after the other, without thinking.

use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;
use varve_testbed::client::{Client, SqlError};

use super::schema::Scale;
use super::transactions::{End, Kind, Request};

const DEADLOCK: u16 = 1213;

/// What a run came to. What is not said to be of the whole run is of its timed part.
#[derive(Clone, Default)]
pub struct Report {
    /// Committed new orders a minute.
    pub tpmc: f64,
    /// All transactions that were committed, by `Kind`.
    pub committed: [u64; 5],
    /// New orders of an item that is not there.
    pub rolled_back: u64,
    /// Each was tried again.
    pub deadlocks: u64,
    /// Lock timeouts and other conflicts, tried again as well.
    pub timeouts: u64,
    pub new_order_p95_ms: f64,
    /// New orders that were committed in the whole run.
    pub new_orders: u64,
    /// Of the server's threads in the whole run, for each of these: with all other transactions of the mix,
    /// and what is done behind them.
    pub processor_ms: f64,
}

/// Of one terminal.
#[derive(Default)]
struct Counts {
    report: Report,
    new_order_ms: Vec<f64>,
}

/// Has `threads` terminals work for `warm_up` and then for `time`, which is what is reported. What they ask
/// for is drawn from `seed`.
pub fn run(
    socket: &Path,
    database: &str,
    scale: &Scale,
    (threads, seed): (u32, u64),
    (warm_up, time): (Duration, Duration),
) -> Result<Report> {
    let begin = Barrier::new(threads as usize);
    let terminal = |n: u32| -> Result<Counts> {
        let client = Client::connect(socket).and_then(|mut client| {
            client.query(&format!("USE {database}"))?;
            Ok(client)
        });
        // Who can't connect may not keep the others waiting.
        begin.wait();
        let from = Instant::now() + warm_up;
        let rng = Rng::with_seed(seed + u64::from(n));
        work(&mut client?, scale, rng, from, from + time)
    };
    let ends: Vec<Result<Counts>> = thread::scope(|scope| {
        let terminal = &terminal;
        let threads = (0..threads).map(|n| scope.spawn(move || terminal(n)));
        let threads: Vec<_> = threads.collect();
        let ends = threads.into_iter().map(|thread| thread.join());
        ends.map(|end| end.expect("it does not panic")).collect()
    });
    let mut report = Report::default();
    let mut new_order_ms = Vec::new();
    for end in ends {
        let counts = end?;
        report.add(&counts.report);
        new_order_ms.extend(counts.new_order_ms);
    }
    report.tpmc = report.committed[Kind::NewOrder as usize] as f64 * 60.0 / time.as_secs_f64();
    new_order_ms.sort_by(f64::total_cmp);
    let p95 = new_order_ms.get(new_order_ms.len() * 95 / 100);
    report.new_order_p95_ms = p95.copied().unwrap_or(f64::NAN);
    Ok(report)
}

impl Report {
    fn add(&mut self, other: &Self) {
        for (sum, count) in self.committed.iter_mut().zip(other.committed) {
            *sum += count;
        }
        self.rolled_back += other.rolled_back;
        self.deadlocks += other.deadlocks;
        self.timeouts += other.timeouts;
        self.new_orders += other.new_orders;
    }
}

/// Works until `until`, and counts what ends after `from`.
fn work(
    client: &mut Client,
    scale: &Scale,
    mut rng: Rng,
    from: Instant,
    until: Instant,
) -> Result<Counts> {
    let mut counts = Counts::default();
    let report = &mut counts.report;
    loop {
        let request = Request::draw(&mut rng, scale);
        let begun = Instant::now();
        let end = loop {
            let error = match request.run(client) {
                Ok(end) => break end,
                Err(error) => error,
            };
            let code = conflict(&error);
            let Some(code) = code else {
                return Err(error.context(format!("{:?}", request.kind())));
            };
            // A lock timeout ends the statement alone.
            client.query("ROLLBACK")?;
            if Instant::now() >= from {
                match code {
                    DEADLOCK => report.deadlocks += 1,
                    _ => report.timeouts += 1,
                }
            }
        };
        let now = Instant::now();
        let is_new_order = request.kind() == Kind::NewOrder;
        if is_new_order && end == End::Committed {
            report.new_orders += 1;
        }
        if now >= until {
            return Ok(counts);
        }
        if now >= from {
            match end {
                End::Committed => report.committed[request.kind() as usize] += 1,
                End::RolledBack => report.rolled_back += 1,
            }
            if is_new_order {
                counts.new_order_ms.push((now - begun).as_secs_f64() * 1e3);
            }
        }
    }
}

/// The code of an error after which the transaction may be tried again.
fn conflict(error: &anyhow::Error) -> Option<u16> {
    match error.downcast_ref::<SqlError>()? {
        error if !error.is_conflict() => None,
        SqlError::Server { code, .. } => Some(*code),
        SqlError::Lost(_) => None,
    }
}
