//! `bench memcached`: gets and sets of `varve serve`, and of the plugin in MariaDB, beside memcached, and
//! beside point selects of sysbench in such a server.
//!
//! One thread is the client of all connections. Each has one batch of requests under way, always: as soon as
//! all of it is answered, the next one is sent. Keys are drawn uniformly, and all are there, so that the
//! answer to a batch has a known length. Servers take turns; each has four threads, and a pool, or memory,
//! for everything.

use std::io::{BufRead, BufReader, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::event::{Timespec, epoll};
use serde_json::json;
use varve_testbed::command::{self, Cmd};
use varve_testbed::memcached;
use varve_testbed::plugin;
use varve_testbed::prefix::Prefix;
use varve_testbed::server::{DataDir, Engine, Server as MariaDb};
use varve_testbed::workspace::{Workspace, cargo, remove_dir};

use crate::benchmark::{Benchmark, Common, TABLES_IN_POOL};
use crate::stats::{Runs, Spread};
use crate::table::{Cell, Table};

#[derive(clap::Args)]
pub struct MemcachedArgs {
    /// Numbers of connections
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
    connections: Vec<usize>,
    /// Requests that a connection sends together
    #[arg(long, value_delimiter = ',', default_value = "1,32")]
    pipeline: Vec<usize>,
    /// Of a hundred requests so many are sets
    #[arg(long, value_delimiter = ',', default_value = "0,10,50")]
    sets: Vec<u32>,
    /// Seconds of each run
    #[arg(long, default_value_t = 5)]
    time: u64,
    /// Runs of each kind; the median counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Items, and rows of the table for SQL
    #[arg(long, default_value_t = 100_000)]
    items: u32,
    /// Bytes of a value
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    /// Leave out SQL
    #[arg(long)]
    no_sql: bool,
    /// Print the result as JSON, with all that was measured
    #[arg(long)]
    json: bool,
}

/// Who is measured: memcached first, as the ratios are to it.
const SERVERS: [&str; 5] = [
    "memcached",
    "varve, lazy",
    "varve, durable",
    "MariaDB, lazy",
    "MariaDB, durable",
];

/// One of them.
struct Server {
    process: Process,
    port: u16,
}

enum Process {
    Program(Child),
    /// It ends when it is dropped.
    MariaDb {
        _server: MariaDb,
    },
}

impl Server {
    fn start(programs: &Programs, dir: &Path, which: usize) -> Result<Server> {
        let (dir, is_durable) = (dir.join(which.to_string()), matches!(which, 2 | 4));
        let mut server = match which {
            0 => memcached_on_a_free_port(&programs.memcached)?,
            1 | 2 => serve(&programs.varve, &dir, is_durable)?,
            _ => in_mariadb(&programs.prefix, dir, is_durable)?,
        };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", server.port)).is_err() {
            if let Process::Program(process) = &mut server.process {
                let ended = process.try_wait()?;
                ensure!(ended.is_none(), "{} has ended: {ended:?}", SERVERS[which]);
            }
            ensure!(
                begun.elapsed().as_secs() < 60,
                "{} does not listen",
                SERVERS[which]
            );
            sleep(Duration::from_millis(10));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Process::Program(process) = &mut self.process {
            // It may have ended, which was noticed by who asked it.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// What is run.
struct Programs {
    memcached: PathBuf,
    varve: PathBuf,
    prefix: Prefix,
}

fn in_mariadb(prefix: &Prefix, dir: PathBuf, is_durable: bool) -> Result<Server> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let dir = DataDir(dir);
    dir.initialise(prefix)?;
    let options = [
        "--plugin-load-add=ha_varve".to_string(),
        "--varve-buffer-pool-size=1G".to_string(),
        format!("--varve-flush-log-at-trx-commit={}", u8::from(is_durable)),
        format!("--varve-memcached-port={port}"),
    ];
    let server = MariaDb::start(prefix, dir, None, &options)?;
    Ok(Server {
        process: Process::MariaDb { _server: server },
        port,
    })
}

fn memcached_on_a_free_port(programs: &Path) -> Result<Server> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let process = Command::new(programs.join("memcached"))
        .args([
            "-u",
            "root",
            "-m",
            "1024",
            "-t",
            "4",
            "-l",
            "127.0.0.1",
            "-p",
        ])
        .arg(port.to_string())
        .spawn()
        .context("memcached")?;
    Ok(Server {
        process: Process::Program(process),
        port,
    })
}

fn serve(varve: &Path, dir: &Path, is_durable: bool) -> Result<Server> {
    let durability = if is_durable { "sync" } else { "lazy" };
    let mut process = Command::new(varve)
        .arg("serve")
        .arg(dir)
        .args(["--address=127.0.0.1:0", "--buffer-pool=1024", "--threads=4"])
        .arg(format!("--durability={durability}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| varve.display().to_string())?;
    let mut said = String::new();
    let output = process.stdout.take().context("it is a pipe")?;
    BufReader::new(output).read_line(&mut said)?;
    let port = said
        .trim()
        .rsplit(':')
        .next()
        .and_then(|port| port.parse().ok());
    let port = port.with_context(|| format!("`varve serve` says {said:?}"))?;
    Ok(Server {
        process: Process::Program(process),
        port,
    })
}

/// What is asked.
#[derive(Clone, Copy)]
struct Load {
    connections: usize,
    pipeline: usize,
    sets: u32,
}

/// How a run went.
#[derive(Clone, Copy)]
struct Run {
    per_second: f64,
    /// Of a batch, until all of it is answered.
    p99_ms: f64,
}

struct Client<'a> {
    args: &'a MemcachedArgs,
    value: Vec<u8>,
    random: fastrand::Rng,
}

impl Client<'_> {
    fn fill(&self, port: u16) -> Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        let mut requests = Vec::new();
        for item in 0..self.args.items {
            self.set(item, &mut requests);
            if item % 1000 == 999 || item + 1 == self.args.items {
                stream.write_all(&requests)?;
                let mut answers = vec![0; STORED.len() * (item as usize % 1000 + 1)];
                stream.read_exact(&mut answers)?;
                requests.clear();
            }
        }
        Ok(())
    }

    fn set(&self, item: u32, out: &mut Vec<u8>) {
        let head = format!("set item:{item:08} 0 0 {}\r\n", self.value.len());
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(&self.value);
        out.extend_from_slice(b"\r\n");
    }

    /// The length of the answer to a get.
    fn item_bytes(&self) -> usize {
        let head = format!("VALUE item:{:08} 0 {}\r\n", 0, self.value.len());
        head.len() + self.value.len() + "\r\nEND\r\n".len()
    }

    /// Requests of one batch, and the length of their answers.
    fn batch(&mut self, load: Load, out: &mut Vec<u8>) -> usize {
        out.clear();
        let mut answers = 0;
        for _ in 0..load.pipeline {
            let item = self.random.u32(0..self.args.items);
            if self.random.u32(0..100) < load.sets {
                self.set(item, out);
                answers += STORED.len();
            } else {
                out.extend_from_slice(format!("get item:{item:08}\r\n").as_bytes());
                answers += self.item_bytes();
            }
        }
        answers
    }

    fn run(&mut self, port: u16, load: Load) -> Result<Run> {
        let connect = |_| {
            let stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let streams: Vec<TcpStream> = (0..load.connections).map(connect).collect::<Result<_>>()?;
        let ready = epoll::create(epoll::CreateFlags::empty())?;
        let (mut requests, mut read) = (Vec::new(), vec![0; READ_BYTES]);
        let mut under_way = Vec::new();
        let begun = Instant::now();
        for (n, mut stream) in streams.iter().enumerate() {
            let data = epoll::EventData::new_u64(n as u64);
            epoll::add(&ready, stream, data, epoll::EventFlags::IN)?;
            let bytes = self.batch(load, &mut requests);
            under_way.push((Instant::now(), bytes));
            stream.write_all(&requests)?;
        }
        let mut events = vec![MaybeUninit::uninit(); load.connections];
        let (mut batches, mut times) = (0, Vec::new());
        let time = Duration::from_secs(self.args.time);
        while begun.elapsed() < time {
            let (events, _) = epoll::wait(&ready, &mut events[..], Some(&MOST_SILENCE))?;
            ensure!(!events.is_empty(), "no answer has come for a minute");
            for event in events {
                let n = event.data.u64() as usize;
                let (mut stream, (sent, bytes)) = (&streams[n], &mut under_way[n]);
                let got = stream.read(&mut read)?;
                ensure!(got > 0, "the server has closed a connection");
                *bytes = (bytes.checked_sub(got)).context("an answer has another length")?;
                if *bytes > 0 {
                    continue;
                }
                ensure!(read[..got].ends_with(b"\n"), "an answer has another length");
                times.push(sent.elapsed().as_secs_f64() * 1000.0);
                batches += 1;
                let bytes = self.batch(load, &mut requests);
                under_way[n] = (Instant::now(), bytes);
                stream.write_all(&requests)?;
            }
        }
        let requests = (batches * load.pipeline) as f64;
        times.sort_by(f64::total_cmp);
        Ok(Run {
            per_second: requests / begun.elapsed().as_secs_f64(),
            p99_ms: times[times.len() * 99 / 100],
        })
    }
}

/// Of answers so much is read at once.
const READ_BYTES: usize = 64 << 10;
const MOST_SILENCE: Timespec = Timespec {
    tv_sec: 60,
    tv_nsec: 0,
};
const STORED: &[u8] = b"STORED\r\n";

fn build(workspace: &Workspace) -> Result<PathBuf> {
    let build = [
        "build",
        "--release",
        "--locked",
        "--quiet",
        "--package",
        "varve-cli",
    ];
    command::run(Cmd::new(cargo()).args(build).dir(&workspace.root))?;
    Ok(workspace.target.join("release/varve"))
}

pub fn run(workspace: &Workspace, args: &MemcachedArgs) -> Result<()> {
    let numbers = args.connections.iter().chain(&args.pipeline);
    let is_something = args.repeat > 0 && args.time > 0 && args.items > 0;
    ensure!(is_something && numbers.min() > Some(&0), "nothing to run");
    let common = Common {
        json: args.json,
        engines: vec![Engine::Varve],
        options: vec!["--max-connections=600".into()],
    };
    let benchmark = Benchmark::begin(workspace, "memcached", &common)?;
    let programs = Programs {
        memcached: memcached::programs(workspace)?,
        varve: build(workspace)?,
        prefix: plugin::prefix_for(workspace, &[Engine::Varve])?,
    };
    let dir = workspace.target.join("bench-memcached-served");
    remove_dir(&dir)?;
    std::fs::create_dir_all(&dir)?;
    let servers = (0..SERVERS.len()).map(|which| Server::start(&programs, &dir, which));
    let servers = servers.collect::<Result<Vec<_>>>()?;
    let mut client = Client {
        args,
        value: vec![b'v'; args.value_bytes],
        random: fastrand::Rng::with_seed(1),
    };
    for server in &servers {
        client.fill(server.port)?;
    }
    let table = Table::new(
        "sets %:>6|connections:>11|pipeline:>8|server:<16|requests/s (min-max):>30|p99 ms:>8.2|ratio:>6.2",
    );
    if !args.json {
        println!("{} items of {} bytes", args.items, args.value_bytes);
        table.print_head();
    }
    let mut rows = Vec::new();
    for load in loads(args) {
        for row in compare(&mut client, &servers, load)? {
            if !args.json {
                table.print(row.cells(load));
            }
            rows.push(row.to_json(load));
        }
    }
    drop(servers);
    remove_dir(&dir)?;
    let sql = if args.no_sql {
        Vec::new()
    } else {
        sql(&benchmark, args)?
    };
    benchmark.end(json!({"requests": rows, "sql": sql}));
    Ok(())
}

/// What one server came to.
struct Row {
    server: &'static str,
    per_second: Vec<f64>,
    p99_ms: f64,
    /// To the first server.
    ratio: f64,
}

impl Row {
    fn cells(&self, load: Load) -> [Cell; 7] {
        [
            Cell::of(load.sets),
            Cell::of(load.connections),
            Cell::of(load.pipeline),
            self.server.into(),
            Spread::of(&self.per_second).to_string().into(),
            self.p99_ms.into(),
            self.ratio.into(),
        ]
    }

    fn to_json(&self, load: Load) -> serde_json::Value {
        json!({
            "sets_pct": load.sets,
            "connections": load.connections,
            "pipeline": load.pipeline,
            "server": self.server,
            "per_second": self.per_second,
            "p99_ms": self.p99_ms,
            "ratio": self.ratio,
        })
    }
}

/// One load on each of the servers, in turn.
fn compare(client: &mut Client<'_>, servers: &[Server], load: Load) -> Result<Vec<Row>> {
    let mut runs = Runs::new(servers.len());
    for _ in 0..client.args.repeat {
        for (which, server) in servers.iter().enumerate() {
            runs.add(which, client.run(server.port, load)?);
        }
    }
    let rate = |which| runs.median(which, |run: &Run| run.per_second);
    let rows = SERVERS.iter().enumerate().map(|(which, server)| Row {
        server,
        per_second: runs.figures(which, |run| run.per_second),
        p99_ms: runs.median(which, |run| run.p99_ms),
        ratio: rate(which) / rate(0),
    });
    Ok(rows.collect())
}

fn loads(args: &MemcachedArgs) -> Vec<Load> {
    let mut loads = Vec::new();
    for &sets in &args.sets {
        for &connections in &args.connections {
            for &pipeline in &args.pipeline {
                loads.push(Load {
                    connections,
                    pipeline,
                    sets,
                });
            }
        }
    }
    loads
}

/// What a client of the server gets from the same engine: point selects, and durable updates of a row.
fn sql(benchmark: &Benchmark<'_>, args: &MemcachedArgs) -> Result<Vec<serde_json::Value>> {
    let server = benchmark.server(&TABLES_IN_POOL)?;
    let databases = server.databases(1, args.items.into());
    let database = databases.first().context("there is one engine")?;
    database.prepare("oltp_point_select", 1)?;
    let mut rows = Vec::new();
    for &connections in &args.connections {
        for script in ["oltp_point_select", "oltp_update_non_index"] {
            let threads = u32::try_from(connections)?;
            let time = Duration::from_secs(args.time);
            let mut rates = Vec::new();
            for _ in 0..args.repeat {
                rates.push(database.run(script, threads, time)?.per_second);
            }
            if !args.json {
                let rates = Spread::of(&rates);
                println!("SQL, {connections} connections, {script}: {rates} in a second");
            }
            rows.push(json!({"connections": connections, "script": script, "per_second": rates}));
        }
    }
    server.end()?;
    Ok(rows)
}
