//! Clients' view of the memcached server, that of a database of its own and that of MariaDB: libmemcached's
//! `memccapable`, and random conversations with it and with memcached, which must not tell them apart
//! (`crates/varve-memcached/tests/beside_memcached.rs`). memcached's own tests (`own_tests`). Client
//! libraries (`clients`). And what is left when it is killed (`kills`).

mod clients;
mod kills;
mod own_tests;

use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use varve_testbed::command::{self, Cmd};
use varve_testbed::memcached::programs;
use varve_testbed::plugin;

use varve_testbed::server::{DataDir, Engine, Server};
use varve_testbed::workspace::{AS_TESTED, Workspace, cargo, remove_dir};

use crate::mtr::Count;

/// All that `memccapable` has.
const CAPABILITIES: u32 = 54;
const CONVERSATIONS: u32 = 300;
/// How often each server is killed.
const KILLS: u32 = 5;
/// A server listens within this time of its start.
const START_TIME: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub struct MemcachedArgs {
    /// Where the random conversations begin
    #[arg(long)]
    seed: Option<u64>,
    /// How many there are
    #[arg(long, default_value_t = CONVERSATIONS)]
    conversations: u32,
    /// How often each server is killed under load
    #[arg(long, default_value_t = KILLS)]
    kills: u32,
    /// Run memcached's own tests against `varve serve`, and nothing else
    #[arg(long, conflicts_with = "clients")]
    own_tests: bool,
    /// Ask by client libraries of other languages, which are fetched, and do nothing else
    #[arg(long)]
    clients: bool,
}

pub fn run(workspace: &Workspace, args: &MemcachedArgs) -> Result<()> {
    let programs = programs(workspace)?;
    let count = match args {
        _ if args.own_tests => own_tests::check(workspace, &programs),
        _ if args.clients => clients::check(workspace, &programs),
        _ => check_both(workspace, &programs, args),
    };
    count.map(drop)
}

/// `memccapable`'s tests and ours, or none if the programs can't be had.
pub fn run_suite(workspace: &Workspace) -> Result<Count> {
    let mut count = Count::default();
    match programs(workspace) {
        Ok(programs) => {
            let args = MemcachedArgs {
                seed: None,
                conversations: CONVERSATIONS,
                kills: KILLS,
                own_tests: false,
                clients: false,
            };
            count.passed = check_both(workspace, &programs, &args)?;
        }
        Err(error) => {
            println!("skipped: {error:#}");
            count.skipped = 1;
        }
    }
    Ok(count)
}

/// A database of its own, then MariaDB.
fn check_both(workspace: &Workspace, programs: &Path, args: &MemcachedArgs) -> Result<u32> {
    let alone = check(workspace, programs, args, &[])? + own_tests::check(workspace, programs)?;
    let prefix = plugin::prefix_for(workspace, &[Engine::Varve])?;
    let dir = workspace.target.join("memcached");
    remove_dir(&dir)?;
    DataDir(dir.clone()).initialise(&prefix)?;
    // Nobody else is likely to take it until the server does.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let socket = dir.join("items.sock");
    let options = [
        "--plugin-load-add=ha_varve".to_string(),
        // The database of its own is as quick.
        "--varve-flush-log-at-trx-commit=0".to_string(),
        format!("--varve-memcached-port={port}"),
        format!("--varve-memcached-socket={}", socket.display()),
    ];
    let mut server = Server::start(&prefix, DataDir(dir.clone()), None, &options)?;
    let elsewhere = [
        ("VARVE_MEMCACHED_PORT", port.to_string()),
        ("VARVE_MEMCACHED_SOCKET", socket.display().to_string()),
    ];
    connect(&socket)?;
    let in_server = check(workspace, programs, args, &elsewhere)?
        + own_tests::check_running(workspace, programs, port)?;
    server.stop()?;
    remove_dir(&dir)?;
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let killed = kills::check(workspace, &prefix, args.kills, seed)?;
    Ok(alone + in_server + killed)
}

/// Waits until somebody listens there.
fn connect(socket: &Path) -> Result<UnixStream> {
    let begun = Instant::now();
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            Err(e) if begun.elapsed() > START_TIME => {
                return Err(e).with_context(|| socket.display().to_string());
            }
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn check(
    workspace: &Workspace,
    programs: &Path,
    args: &MemcachedArgs,
    elsewhere: &[(&str, String)],
) -> Result<u32> {
    let test = Cmd::new(cargo())
        .args(["test", "--quiet"])
        .args(AS_TESTED)
        .args([
            "--test",
            "beside_memcached",
            "--",
            "--ignored",
            "--nocapture",
            // MariaDB's clients share a container, in which one of the tests says `flush_all`.
            "--test-threads=1",
        ])
        .env("VARVE_MEMCACHED_PROGRAMS", programs)
        .env("VARVE_CONVERSATIONS", args.conversations.to_string());
    let test = elsewhere
        .iter()
        .fold(test, |test, (name, value)| test.env(name, value));
    let test = match args.seed {
        Some(seed) => test.env("VARVE_SEED", seed.to_string()),
        None => test,
    };
    let mut passed = 0;
    let succeeded = command::stream(test.dir(&workspace.root), |line| {
        passed += line.matches("[pass]").count() as u32;
    })?;
    ensure!(succeeded, "the tests beside memcached have failed");
    ensure!(
        passed == CAPABILITIES,
        "memccapable has passed {passed} of {CAPABILITIES} tests"
    );
    Ok(passed + 1)
}
