//! Those who watch a server: Prometheus, an open page of the monitor, and somebody at an SQL prompt.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use varve_testbed::client::Client;
use varve_testbed::server::Server;

/// A look that takes longer has no answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks: the page's interval, and the shortest that is usual for Prometheus.
pub const INTERVAL: Duration = Duration::from_secs(1);

pub struct Watchers {
    sql: Client,
    monitor: Monitor,
    /// The page's columns, as its script has them.
    columns: String,
    /// The sample that the page asks for next.
    next: u64,
}

impl Watchers {
    /// Opens the page: it has its script and the samples so far.
    pub fn open(server: &Server, token: &str) -> Result<Watchers> {
        let mut watchers = Watchers {
            sql: server.connect()?,
            monitor: Monitor {
                address: address(&server.datadir.log())?,
                token: token.to_string(),
            },
            columns: String::new(),
            next: 0,
        };
        let script = watchers.monitor.get(&["/plots.js"])?.remove(0);
        watchers.columns = columns(&script).context("the page's script names no COLUMNS")?;
        watchers.look()?;
        Ok(watchers)
    }

    /// Everybody looks once, one after the other. The page and Prometheus each have a connection for it; they
    /// may keep one longer.
    pub fn look(&mut self) -> Result<()> {
        let metrics = self.monitor.get(&["/metrics"])?.remove(0);
        ensure!(
            metrics.ends_with("# EOF\n"),
            "/metrics does not end as OpenMetrics does"
        );
        let (next, columns) = (self.next, &self.columns);
        let samples = format!("/api/samples?since={next}&columns={columns}");
        let page = self.monitor.get(&[&samples, "/api/state"])?;
        let samples: Value = serde_json::from_str(&page[0]).context("/api/samples")?;
        self.next = samples["next"].as_u64().context("no next sample")?;
        let state: Value = serde_json::from_str(&page[1]).context("/api/state")?;
        // With the token statements are told, too, for which connections have to be asked.
        ensure!(
            state["has_statements"] == true,
            "the page is not told statements"
        );
        self.sql
            .query("SELECT * FROM information_schema.varve_trx")?;
        self.sql.query("SHOW ENGINE VARVE STATUS")?;
        Ok(())
    }

    /// Looks as long as a span lasts, beginning at its begin and then at each of its seconds. Returns when
    /// the looks began.
    pub fn look_until(&mut self, end: Instant) -> Result<Vec<Instant>> {
        let mut looks = Vec::new();
        let mut due = Instant::now();
        while due < end {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            looks.push(Instant::now());
            self.look()?;
            // Those that a long one has left no time for are left out, as the page does.
            while due <= Instant::now() {
                due += INTERVAL;
            }
        }
        Ok(looks)
    }
}

/// Of the monitor, by what the server has logged.
fn address(log: &Path) -> Result<String> {
    let log = fs::read_to_string(log)?;
    let told = log.split("VARVE: the monitor is at http://").last();
    let address = told.and_then(|text| text.split_once('/')).map(|(a, _)| a);
    let is_address = |text: &&str| text.parse::<std::net::SocketAddr>().is_ok();
    let address = address.filter(is_address);
    let why = || format!("the server has not said where its monitor is:\n{log}");
    Ok(address.with_context(why)?.to_string())
}

/// The names in `const COLUMNS = […]`, with commas between them.
fn columns(script: &str) -> Option<String> {
    let (_, rest) = script.split_once("const COLUMNS = [")?;
    let (list, _) = rest.split_once(']')?;
    let names: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    (!names.is_empty()).then(|| names.join(","))
}

struct Monitor {
    address: String,
    token: String,
}

impl Monitor {
    /// The answers to requests on one connection.
    fn get(&self, paths: &[&str]) -> Result<Vec<String>> {
        let stream = TcpStream::connect(&self.address)
            .with_context(|| format!("cannot connect to the monitor at {}", self.address))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(stream);
        let answer = |path: &&str| {
            let (address, token) = (&self.address, &self.token);
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n"
            );
            stream.get_mut().write_all(request.as_bytes())?;
            body(&mut stream).with_context(|| format!("GET {path} of the monitor"))
        };
        paths.iter().map(answer).collect()
    }
}

/// The body of an answer, which must be a good one.
fn body(stream: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    if !line.starts_with("HTTP/1.1 200 ") {
        bail!("it answers {}", line.trim());
    }
    let mut length = None;
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        match line.trim().split_once(':') {
            None => break,
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = Some(value.trim().parse()?);
            }
            Some(_) => {}
        }
    }
    let mut body = vec![0; length.context("the answer does not say how long it is")?];
    stream.read_exact(&mut body)?;
    Ok(String::from_utf8(body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_the_page() {
        let script = include_str!("../../../varve-monitor/page/plots.js");
        let columns = columns(script).unwrap();
        assert!(columns.starts_with("commits,rollbacks,"), "{columns}");
        assert!(columns.ends_with(",oldest_view_seconds"), "{columns}");
        assert_eq!(super::columns("const COLUMNS = [];"), None);
    }

    #[test]
    fn answers_are_read() {
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nDate: now\r\n\r\nyesmore";
        assert_eq!(body(&mut answer.as_bytes()).unwrap(), "yes");
        let refusal = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
        assert!(body(&mut refusal.as_bytes()).is_err());
    }
}
