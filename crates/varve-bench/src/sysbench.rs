//! Runs sysbench 1.0.20 and reads its report.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use varve_testbed::client::Client;
use varve_testbed::command;
use varve_testbed::prefix::Prefix;
use varve_testbed::server::Engine;

/// Bytes that a row of a table with its index takes.
pub const ROW_BYTES: f64 = 235.0;

/// Where sysbench works: one engine's database in a server.
pub struct Sysbench<'a> {
    pub prefix: &'a Prefix,
    pub socket: PathBuf,
    pub engine: Engine,
    pub database: String,
    pub tables: u32,
    pub rows: u64,
}

/// What one run reported.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub per_second: f64,
    /// Deadlocks and lock wait timeouts, after which sysbench begins the transaction again.
    pub ignored_errors: u64,
    pub p95_ms: f64,
}

impl Sysbench<'_> {
    /// Makes the database, empty, and returns a client that uses it.
    pub fn begin_anew(&self) -> Result<Client> {
        let mut client = Client::connect(&self.socket)?;
        client.query(&format!("DROP DATABASE IF EXISTS {}", self.database))?;
        client.query(&format!("CREATE DATABASE {}", self.database))?;
        client.query(&format!("USE {}", self.database))?;
        Ok(client)
    }

    /// A client that uses the database, which is there.
    pub fn connect(&self) -> Result<Client> {
        let mut client = Client::connect(&self.socket)?;
        client.query(&format!("USE {}", self.database))?;
        Ok(client)
    }

    /// Makes the database and fills its tables for `script`.
    pub fn prepare(&self, script: &str, threads: u32) -> Result<()> {
        let mut client = self.begin_anew()?;
        // bulk_insert.lua names no engine.
        client.query(&format!(
            "SET GLOBAL default_storage_engine = {}",
            self.engine.name()
        ))?;
        self.call(script, threads, "prepare", &[]).map(drop)
    }

    pub fn run(&self, script: &str, threads: u32, time: Duration) -> Result<Report> {
        let time = format!("--time={}", time.as_secs());
        let text = self.call(script, threads, "run", &[&time, "--events=0"])?;
        parse(&text).with_context(|| format!("sysbench's report is not understood:\n{text}"))
    }

    /// Runs it, and returns the transactions of each second.
    pub fn run_by_seconds(&self, script: &str, threads: u32, time: Duration) -> Result<Vec<f64>> {
        let time = format!("--time={}", time.as_secs());
        let options = [&time[..], "--events=0", "--report-interval=1"];
        let text = self.call(script, threads, "run", &options)?;
        let seconds: Vec<f64> = text.lines().filter_map(parse_second).collect();
        anyhow::ensure!(!seconds.is_empty(), "sysbench reported no second:\n{text}");
        Ok(seconds)
    }

    fn call(&self, script: &str, threads: u32, what: &str, options: &[&str]) -> Result<String> {
        let script = self
            .prefix
            .usr()
            .join(format!("share/sysbench/{script}.lua"));
        let mut cmd = self
            .prefix
            .program("sysbench")
            .arg(&script)
            .arg(format!("--mysql-socket={}", self.socket.display()))
            .arg("--mysql-user=root")
            .arg(format!("--mysql-db={}", self.database))
            .arg(format!("--threads={threads}"))
            .args(options);
        if !script.ends_with("bulk_insert.lua") {
            cmd = cmd
                .arg(format!("--tables={}", self.tables))
                .arg(format!("--table-size={}", self.rows))
                .arg(format!("--mysql-storage-engine={}", self.engine.name()));
        }
        command::output(cmd.arg(what))
    }
}

/// Reads `transactions: 52 (5.19 per sec.)`, `ignored errors: 0 (0.00 per sec.)` and `95th percentile: 0.11`.
fn parse(text: &str) -> Option<Report> {
    let value = |name: &str| {
        text.lines()
            .find_map(|line| line.trim().strip_prefix(name))
            .map(str::trim)
    };
    let per_second = value("transactions:")?
        .split_once('(')?
        .1
        .split_whitespace()
        .next()?;
    let ignored = value("ignored errors:")?.split_whitespace().next()?;
    Some(Report {
        per_second: per_second.parse().ok()?,
        ignored_errors: ignored.parse().ok()?,
        p95_ms: value("95th percentile:")?.parse().ok()?,
    })
}

/// Reads the transactions of `[ 3s ] thds: 16 tps: 812.03 qps: 4868.17 (r/w/o: ...) lat (ms,95%): 27.17 ...`.
fn parse_second(line: &str) -> Option<f64> {
    let rest = line.strip_prefix("[ ")?.split_once(" tps: ")?.1;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_read() {
        let line = "[ 3s ] thds: 16 tps: 812.03 qps: 4868.17 (r/w/o: 0.00/3240.11/1628.06) lat (ms,95%): 27.17 err/s: 0.00 reconn/s: 0.00";
        assert_eq!(parse_second(line), Some(812.03));
        assert_eq!(
            parse_second("    transactions:       1234   (123.40 per sec.)"),
            None
        );
    }

    #[test]
    fn a_report_is_read() {
        let text = "SQL statistics:\n    transactions:                        1234   (123.40 per sec.)\n\
            \x20   ignored errors:                      7      (0.70 per sec.)\n\
            Latency (ms):\n         95th percentile:                        1.52\n";
        assert_eq!(
            parse(text),
            Some(Report {
                per_second: 123.4,
                ignored_errors: 7,
                p95_ms: 1.52
            })
        );
        assert_eq!(parse("FATAL: something"), None);
    }
}
