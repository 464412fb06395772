//! What benchmarks of a server under load share: clients that repeat a transaction, and a sampler of status
//! variables.
//!
//! Throughput is a status variable that counts (`Com_commit`, `Com_update`), read about every 100 ms; a rate
//! is the difference of two readings by the time that really passed between them. The history length is such
//! a variable too, so one sampler sees both. What is no status variable (the size of a file) it asks a probe.

use std::fmt::Display;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use crate::sysbench::Sysbench;
use varve_testbed::client::{Client, SqlResult};
use varve_testbed::server::Engine;

/// Between two readings.
pub const WINDOW: Duration = Duration::from_millis(100);

/// Where the history is shorter than this, purge has caught up.
pub const CAUGHT_UP: u64 = 1000;

/// Clients that repeat a transaction, each on a connection and in a thread of its own.
pub struct Load {
    stop: Arc<AtomicBool>,
    /// Transactions that were begun, or may be.
    begun: Arc<AtomicU64>,
    done: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Load {
    /// Connects `threads` clients to the server, which then repeat `transaction` until it was done `most`
    /// times or they are stopped. One that meets a deadlock or a lock timeout is tried again and not counted;
    /// any other error ends its client.
    pub fn start<F>(socket: &Path, threads: u32, most: u64, transaction: F) -> Result<Load>
    where
        F: Fn(&mut Client, &mut fastrand::Rng) -> SqlResult<()> + Send + Sync + 'static,
    {
        let mut load = Load {
            stop: Arc::default(),
            begun: Arc::default(),
            done: Arc::default(),
            threads: Vec::new(),
        };
        let clients: SqlResult<Vec<Client>> =
            (0..threads).map(|_| Client::connect(socket)).collect();
        let transaction = Arc::new(transaction);
        for (n, mut client) in clients?.into_iter().enumerate() {
            let (stop, begun, done) = (load.stop.clone(), load.begun.clone(), load.done.clone());
            let transaction = transaction.clone();
            let mut rng = fastrand::Rng::with_seed(n as u64 + 1);
            load.threads.push(thread::spawn(move || {
                // Relaxed throughout: these count, and nothing else depends on them.
                while !stop.load(Ordering::Relaxed) && begun.fetch_add(1, Ordering::Relaxed) < most
                {
                    while let Err(error) = transaction(&mut client, &mut rng) {
                        if !error.is_conflict() {
                            return Err(error.into());
                        }
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }));
        }
        Ok(load)
    }

    /// As `start`, with updates of an indexed column, each of one row of the first table and a transaction.
    pub fn updates(table: &Sysbench<'_>, threads: u32, most: u64) -> Result<Load> {
        Self::updates_of(table, 1, threads, most, None)
    }

    /// The same of the `n`-th table, with at most `rate` updates a second of all clients together.
    pub fn updates_of(
        tables: &Sysbench<'_>,
        n: u32,
        threads: u32,
        most: u64,
        rate: Option<u64>,
    ) -> Result<Load> {
        let (database, rows) = (tables.database.clone(), tables.rows);
        let (begun, turns) = (Instant::now(), AtomicU64::new(0));
        Load::start(&tables.socket, threads, most, move |client, rng| {
            if let Some(rate) = rate {
                let turn = turns.fetch_add(1, Ordering::Relaxed);
                let due = begun + Duration::from_secs_f64(turn as f64 / rate as f64);
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            let id = rng.u64(1..=rows);
            let sql = format!("UPDATE {database}.sbtest{n} SET k = k + 1 WHERE id = {id}");
            client.query(&sql).map(drop)
        })
    }

    /// Transactions that were answered.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Waits until all have been done. Returns how many.
    pub fn wait(mut self) -> Result<u64> {
        self.join()?;
        Ok(self.done())
    }

    /// Ends it after the transactions under way. Returns how many were done.
    pub fn stop(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.join()?;
        Ok(self.done())
    }

    fn join(&mut self) -> Result<()> {
        let ends: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        for end in ends {
            end.map_err(|_| anyhow!("a client of the load panicked"))?
                .context("a client of the load")?;
        }
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Its owner failed half-way.
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.join();
    }
}

/// Reads a figure that is no status variable, for the sampler.
pub type Probe = Box<dyn FnMut() -> Result<u64> + Send>;

/// Reads status variables with a `WINDOW` between two readings, on a connection and in a thread of its own.
pub struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Samples>>,
}

impl Sampler {
    pub fn start(socket: &Path, variables: &[&str]) -> Result<Sampler> {
        Self::start_with(socket, variables, Vec::new())
    }

    /// The same, with probes besides: their names must differ from those of the variables.
    pub fn start_with(
        socket: &Path,
        variables: &[&str],
        probes: Vec<(&str, Probe)>,
    ) -> Result<Sampler> {
        let mut client = Client::connect(socket)?;
        let stop = Arc::<AtomicBool>::default();
        let stopped = stop.clone();
        let mut samples = Samples {
            variables: variables.iter().map(|name| name.to_string()).collect(),
            probed: probes.iter().map(|(name, _)| name.to_string()).collect(),
            readings: Vec::new(),
        };
        let mut probes: Vec<Probe> = probes.into_iter().map(|(_, probe)| probe).collect();
        // Names that are not there are told at once.
        samples.read(&mut client, &mut probes)?;
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                // No reading makes up for a late one: the windows would be too short to say anything.
                thread::sleep(WINDOW);
                samples.read(&mut client, &mut probes)?;
            }
            Ok(samples)
        });
        Ok(Sampler { stop, thread })
    }

    pub fn stop(self) -> Result<Samples> {
        self.stop.store(true, Ordering::Relaxed);
        let samples = self.thread.join();
        samples.map_err(|_| anyhow!("the sampler panicked"))?
    }
}

/// What a sampler read.
pub struct Samples {
    variables: Vec<String>,
    /// The names of what the probes read; their figures stand behind those of the variables.
    probed: Vec<String>,
    readings: Vec<(Instant, Vec<u64>)>,
}

impl Samples {
    fn read(&mut self, client: &mut Client, probes: &mut [Probe]) -> Result<()> {
        let names: Vec<&str> = self.variables.iter().map(String::as_str).collect();
        let mut values = status(client, &names)?;
        let at = Instant::now();
        for probe in probes {
            values.push(probe()?);
        }
        self.readings.push((at, values));
        Ok(())
    }

    /// The readings of one variable, or of what a probe read, in a span of time.
    pub fn values(&self, variable: &str, span: &Range<Instant>) -> Vec<(Instant, u64)> {
        let mut names = self.variables.iter().chain(&self.probed);
        let column = names.position(|name| name == variable);
        let column = column.expect("one of the sampled variables");
        let within = self.readings.iter().filter(|(at, _)| span.contains(at));
        within.map(|(at, values)| (*at, values[column])).collect()
    }

    /// Of these readings those that are a second and more apart.
    pub fn by_seconds(&self, variable: &str, span: &Range<Instant>) -> Vec<(Instant, u64)> {
        let mut next = span.start;
        let mut values = self.values(variable, span);
        values.retain(|(at, _)| {
            let is_due = *at >= next;
            if is_due {
                next = *at + Duration::from_secs(1);
            }
            is_due
        });
        values
    }

    /// How fast a counter rose in each window of a span, per second.
    pub fn rates(&self, variable: &str, span: &Range<Instant>) -> Vec<f64> {
        let values = self.values(variable, span);
        values
            .windows(2)
            .map(|pair| rate(pair[0], pair[1]))
            .collect()
    }

    /// How fast a counter rose over a span, per second; NaN if it was read there less than twice.
    pub fn rate(&self, variable: &str, span: &Range<Instant>) -> f64 {
        match self.values(variable, span)[..] {
            [first, .., last] => rate(first, last),
            _ => f64::NAN,
        }
    }
}

/// How fast a counter rose from one reading to the next, per second.
pub fn rate(from: (Instant, u64), to: (Instant, u64)) -> f64 {
    to.1.saturating_sub(from.1) as f64 / (to.0 - from.0).as_secs_f64()
}

/// A view that has read from the table: nothing can be purged until its connection says `COMMIT`.
pub fn open_view(table: &Sysbench<'_>) -> Result<Client> {
    let mut reader = Client::connect(&table.socket)?;
    reader.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
    reader.query(&format!(
        "SELECT count(*) FROM {}.sbtest1 WHERE id = 1",
        table.database
    ))?;
    Ok(reader)
}

/// Sets a system variable that is called the same in both engines but for its prefix.
pub fn set(client: &mut Client, engine: Engine, name: &str, value: impl Display) -> Result<()> {
    let prefix = engine.option_prefix();
    client.query(&format!("SET GLOBAL {prefix}_{name} = {value}"))?;
    Ok(())
}

/// The values of status variables, in the order of their names.
pub fn status(client: &mut Client, variables: &[&str]) -> Result<Vec<u64>> {
    let list = variables.join("', '");
    let rows = client.query(&format!(
        "SHOW GLOBAL STATUS WHERE Variable_name IN ('{list}')"
    ))?;
    let value = |name: &&str| {
        let is_it = |column: &Option<String>| {
            column
                .as_ref()
                .is_some_and(|column| column.eq_ignore_ascii_case(name))
        };
        let row = rows.iter().find(|row| is_it(&row[0]));
        let value = row.and_then(|row| row[1].as_ref()?.parse().ok());
        value.with_context(|| format!("the server has no number {name} among its status variables"))
    };
    variables.iter().map(value).collect()
}

/// The status variable that is called the same in both engines but for its prefix.
pub fn status_name(engine: Engine, name: &str) -> String {
    format!("{}_{name}", engine.option_prefix())
}

/// The status variable that says how long the engine's history is.
pub fn history_name(engine: Engine) -> String {
    status_name(engine, "history_list_length")
}

/// Waits until the engine's history is shorter than `limit`. Returns for how long.
pub fn wait_for_history(
    client: &mut Client,
    engine: Engine,
    limit: u64,
    at_most: Duration,
) -> Result<Duration> {
    let took = time_of_history(client, engine, limit, at_most)?;
    took.with_context(|| {
        format!(
            "after {at_most:?} the history of {} still has {limit} logs or more",
            engine.name()
        )
    })
}

/// The same; `None` if it takes longer than `at_most`.
pub fn time_of_history(
    client: &mut Client,
    engine: Engine,
    limit: u64,
    at_most: Duration,
) -> Result<Option<Duration>> {
    let begun = Instant::now();
    loop {
        if status(client, &[&history_name(engine)])?[0] < limit {
            return Ok(Some(begun.elapsed()));
        }
        if begun.elapsed() >= at_most {
            return Ok(None);
        }
        thread::sleep(WINDOW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_by_the_time_that_passed() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let samples = Samples {
            variables: vec!["a".into()],
            probed: vec!["b".into()],
            readings: vec![
                (at(0), vec![7, 100]),
                (at(100), vec![7, 110]),
                (at(300), vec![8, 150]),
                (at(400), vec![9, 150]),
            ],
        };
        let all = begin..at(1000);
        assert_eq!(samples.rates("b", &all), [100.0, 200.0, 0.0]);
        assert_eq!(samples.rate("b", &all), 125.0);
        assert_eq!(samples.rates("a", &(at(100)..at(400))), [5.0]);
        assert!(samples.rate("a", &(at(350)..at(900))).is_nan());
    }

    #[test]
    fn readings_by_seconds_are_never_closer() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let readings = [100, 300, 1050, 1150, 2100, 2160, 3500, 4400, 4500];
        let samples = Samples {
            variables: vec!["a".into()],
            probed: Vec::new(),
            readings: readings.map(|ms| (at(ms), vec![ms])).into(),
        };
        let seconds = samples.by_seconds("a", &(at(200)..at(4480)));
        let seconds: Vec<u64> = seconds.iter().map(|(_, value)| *value).collect();
        assert_eq!(seconds, [300, 2100, 3500]);
    }
}
