//! The crash test with real processes: SIGKILL under a transfer load, restart, and look.
//!
//! The load (`bank`, and `ddl` beside it) runs until a random moment, the server is killed and started
//! again, and what it holds is compared with what it had acknowledged (`verify`).
//!
//! After each restart:
//! - **KILL-1** every acknowledged transaction is there, and no other but those whose COMMIT was sent and not
//!   answered;
//! - **KILL-2** every transaction is there completely: two legs that cancel out, and each balance is its
//!   start plus its legs; the marker is the client's last transaction;
//! - **KILL-3** the sum is unchanged, by every index; so it was in each snapshot under load;
//! - **KILL-4** CHECK TABLE finds nothing;
//! - **KILL-5** a table under DDL is as the last acknowledged statement left it, or the one in flight;
//! - **KILL-6** with the binary log on, the tables hold exactly what its transactions add up to;
//! - **KILL-7** an XA branch whose XA PREPARE was answered is prepared, unless it was decided; then it has ended as decided, or can
//!   be, and no other branch is prepared.
//!
//! Every third restart is killed as well, somewhere in its recovery. A failed run prints its seed and
//! keeps the data directory; the seed repeats the load and the moments, the interleaving is the machine's.

mod bank;
mod binlog;
mod ddl;
mod verify;
mod xa;

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fastrand::Rng;

use self::bank::{CLIENTS, Fate, Round};
use self::binlog::Replica;
use self::ddl::DdlFate;
use crate::client::Client;
use crate::plugin;
use crate::prefix::Prefix;
use crate::server::{DataDir, Engine, Server};
use crate::workspace::Workspace;

#[derive(clap::Args)]
pub struct KillArgs {
    /// How often the server is killed
    #[arg(long, default_value_t = 10)]
    pub rounds: u32,
    /// Seconds of load before the kill, on average
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Repeats a run
    #[arg(long)]
    pub seed: Option<u64>,
    /// Run with the binary log, and compare the tables with it
    #[arg(long)]
    pub binlog: bool,
    #[arg(long, value_enum, default_value_t = Engine::Varve)]
    pub engine: Engine,
    /// Options for mariadbd
    #[arg(last = true, value_name = "MARIADBD OPTIONS")]
    pub options: Vec<String>,
}

impl Default for KillArgs {
    fn default() -> Self {
        Self {
            rounds: 10,
            seconds: 3.0,
            seed: None,
            binlog: false,
            engine: Engine::Varve,
            options: Vec::new(),
        }
    }
}

pub fn run(workspace: &Workspace, args: &KillArgs) -> Result<()> {
    let prefix = plugin::prefix_for(workspace, &[args.engine])?;
    let options = server_options(args);
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    println!(
        "kill test: {} rounds on {}, seed {seed}",
        args.rounds,
        args.engine.name()
    );
    let dir = workspace
        .target
        .join(format!("kill-{}", args.engine.option_prefix()));
    if let Some(pid) = DataDir(dir.clone()).running() {
        bail!(
            "another kill test runs on {} (pid {})",
            dir.display(),
            pid.as_raw_nonzero()
        );
    }
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    DataDir(dir.clone()).initialise(&prefix)?;
    let mut test = Test {
        args,
        prefix,
        options,
        rng: Rng::with_seed(seed),
        fates: Vec::new(),
        ddl_fate: DdlFate::default(),
        replica: args.binlog.then(Replica::default),
    };
    test.fates.resize_with(CLIENTS as usize, Fate::default);
    test.run(|| DataDir(dir.clone())).with_context(|| {
        format!(
            "kill test failed; repeat with --seed {seed}, the data is in {}",
            dir.display()
        )
    })?;
    fs::remove_dir_all(&dir)?;
    Ok(())
}

fn server_options(args: &KillArgs) -> Vec<String> {
    let engine = args.engine.option_prefix();
    let mut options = vec![
        "--max-connections=100".to_string(),
        "--performance-schema=OFF".into(),
    ];
    if args.engine == Engine::Varve {
        options.push("--plugin-load-add=ha_varve".into());
    }
    // Small, so that pages are written and the log is reused while the load runs.
    options.push(format!("--{engine}-buffer-pool-size=8M"));
    options.push(format!("--{engine}-log-file-size=8M"));
    options.push(format!("--{engine}-flush-log-at-trx-commit=1"));
    if args.binlog {
        options.extend(binlog::SERVER_OPTIONS.map(String::from));
    }
    options.extend(args.options.iter().cloned());
    options
}

struct Test<'a> {
    args: &'a KillArgs,
    prefix: Prefix,
    options: Vec<String>,
    rng: Rng,
    fates: Vec<Fate>,
    ddl_fate: DdlFate,
    replica: Option<Replica>,
}

impl Test<'_> {
    fn run(&mut self, datadir: impl Fn() -> DataDir) -> Result<()> {
        let mut server = Server::start(&self.prefix, datadir(), None, &self.options)?;
        bank::create_tables(&mut server.connect()?, self.args.engine)?;
        for round in 1..=self.args.rounds {
            let snapshots = self.load_and_kill(&mut server)?;
            drop(server);
            if round % 3 == 0 {
                self.kill_in_recovery(datadir())?;
            }
            let begin = Instant::now();
            server = Server::start(&self.prefix, datadir(), None, &self.options)?;
            let restart = begin.elapsed();
            self.verify(&server)?;
            let acknowledged: usize = self.fates.iter().map(|fate| fate.acknowledged.len()).sum();
            println!(
                "round {round}: {acknowledged} transactions and {} DDL steps acknowledged so far, {snapshots} snapshots, \
                 restart {:.2} s",
                self.ddl_fate.steps,
                restart.as_secs_f64()
            );
            if let Some(replica) = &self.replica {
                let transactions = replica.transactions;
                println!(
                    "round {round}: the tables agree with {transactions} transactions in the binary log"
                );
            }
        }
        server.stop()?;
        let mut server = Server::start(&self.prefix, datadir(), None, &self.options)?;
        self.verify(&server).context("after an orderly shutdown")?;
        server.stop()
    }

    fn load_and_kill(&mut self, server: &mut Server) -> Result<u64> {
        let round = Round {
            over: AtomicBool::new(false),
            snapshots: AtomicU64::new(0),
        };
        let load = Duration::from_secs_f64(self.args.seconds * (0.2 + 1.6 * self.rng.f64()));
        let seeds: Vec<u64> = (0..CLIENTS).map(|_| self.rng.u64(..)).collect();
        let socket = server.datadir.socket();
        thread::scope(|scope| {
            let mut clients = Vec::new();
            for (id, (fate, seed)) in self.fates.iter_mut().zip(seeds).enumerate() {
                let (round, socket) = (&round, &socket);
                clients.push(scope.spawn(move || {
                    let mut client = Client::connect(socket)?;
                    bank::transfer_until_killed(
                        &mut client,
                        id as u64,
                        fate,
                        Rng::with_seed(seed),
                        round,
                    )
                }));
            }
            clients.push(
                scope.spawn(|| {
                    bank::read_totals_until_killed(&mut Client::connect(&socket)?, &round)
                }),
            );
            let engine = &self.args.engine;
            let ddl_fate = &mut self.ddl_fate;
            clients.push(scope.spawn(|| {
                ddl::run_until_killed(&mut Client::connect(&socket)?, *engine, ddl_fate, &round)
            }));
            let end = Instant::now() + load;
            // A client ends before the kill only if something is wrong.
            while Instant::now() < end && !clients.iter().any(|client| client.is_finished()) {
                thread::sleep(Duration::from_millis(1));
            }
            let alive = server.check_alive();
            round.over.store(true, Ordering::SeqCst);
            server.kill()?;
            let results: Vec<Result<()>> = clients
                .into_iter()
                .map(|client| client.join().expect("a client does not panic"))
                .collect();
            alive?;
            results.into_iter().collect::<Result<()>>()
        })?;
        Ok(round.snapshots.load(Ordering::Relaxed))
    }

    fn verify(&mut self, server: &Server) -> Result<()> {
        let mut client = server.connect()?;
        xa::resolve(&mut client, &mut self.fates)?;
        if self.replica.is_some() {
            // The replica reads complete files, and the decisions are among what it must know.
            client.query("FLUSH BINARY LOGS")?;
        }
        verify::everything(&mut client, &mut self.fates)?;
        if let Some(replica) = &mut self.replica {
            replica.follow(&self.prefix, &server.datadir.0)?;
            replica.compare(&mut client)?;
        }
        ddl::verify(&mut client, &mut self.ddl_fate, &server.datadir.0)
    }

    fn kill_in_recovery(&mut self, datadir: DataDir) -> Result<()> {
        let mut server = Server::start_unready(&self.prefix, datadir, &self.options)?;
        thread::sleep(Duration::from_millis(self.rng.u64(50..600)));
        server.check_alive()?;
        server.kill()
    }
}
