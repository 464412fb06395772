//! A `mariadbd` with the plugin that is killed under all loads.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fastrand::Rng;

use crate::bank::{self, CLIENTS, Fate};
use crate::binlog::{self, Replica};
use crate::ddl::{self, DdlFate};
use crate::full::{self, Disk};
use crate::rows::{self, Member, Round, expected_end};
use crate::settings::{self, Fixed};
use crate::sql_store::{self, SqlStore};
use crate::store::SHARED;
use crate::{Run, truncation, verify, view, xa};
use varve_testbed::client::Client;
use varve_testbed::plugin;
use varve_testbed::prefix::Prefix;
use varve_testbed::server::{DataDir, Engine, Server};

/// What a long view reads: first the tables that are altered.
const VIEWED: [&str; 9] = [
    "mix_0",
    "mix_1",
    "mix_2",
    "mix_3",
    "bank.account_0",
    "bank.account_1",
    "bank.account_2",
    "bank.journal",
    "bank.leg",
];

pub fn refuse_if_running(place: &Path) -> Result<()> {
    if let Some(pid) = DataDir(place.join("data")).running() {
        bail!(
            "another stress test runs on {} (pid {})",
            place.display(),
            pid.as_raw_nonzero()
        );
    }
    Ok(())
}

struct Test<'a, 'b> {
    run: &'a mut Run<'b>,
    prefix: Prefix,
    fixed: Fixed,
    disk: Option<Disk>,
    members: Vec<Member>,
    fates: Vec<Fate>,
    /// Of those, how many the count has.
    bank_acknowledged: u64,
    ddl_fate: DdlFate,
    replica: Option<Replica>,
}

pub fn run(run: &mut Run) -> Result<()> {
    let prefix = plugin::prefix_for(run.workspace, &[run.args.engine])?;
    DataDir(run.place.join("data")).initialise(&prefix)?;
    let fixed = Fixed::draw(&mut run.rng);
    let journals = run.journals();
    let members = (0..rows::CLIENTS).map(|id| Member::new(id, &journals));
    let disk = match run.args.full {
        Some(_) => Some(Disk::new(&run.place)?),
        None => None,
    };
    let mut test = Test {
        prefix,
        fixed,
        members: members.collect::<Result<_>>()?,
        disk,
        fates: Vec::new(),
        bank_acknowledged: 0,
        ddl_fate: DdlFate::default(),
        replica: run.args.binlog.then(Replica::default),
        run,
    };
    if test.disk.is_some() {
        test.members[0].be_greedy();
    }
    test.fates.resize_with(CLIENTS as usize, Fate::default);
    test.go_on().inspect_err(|_| {
        // What the bank's clients know lies beside the journals of the others.
        let known = format!("{:#?}", test.fates);
        let _ = fs::write(journals.join("bank.txt"), known);
        if let Some(disk) = &test.disk {
            disk.keep();
        }
    })
}

impl Test<'_, '_> {
    fn go_on(&mut self) -> Result<()> {
        self.run.begin();
        let engine = self.run.args.engine;
        let mut server = self.start()?;
        let mut client = server.connect()?;
        bank::create_tables(&mut client, engine)?;
        sql_store::create_tables(&mut client, engine)?;
        drop(client);
        while !self.run.is_over() {
            self.run.done.rounds += 1;
            let snapshots = match self.disk.is_some() {
                true => self.fill_and_kill(&mut server)?,
                false => self.load_and_kill(&mut server)?,
            };
            drop(server);
            self.run.done.kills += 1;
            while let Some(moment) = self.run.moment_of_recovery() {
                self.kill_in_recovery(moment)?;
            }
            let begin = Instant::now();
            server = full::start_again(self, |test| test.disk.as_mut(), Self::start)?;
            let restart = begin.elapsed().as_secs_f64();
            self.verify(&server)?;
            let more = match self.disk {
                Some(_) => format!("{} refused", self.run.done.refused_for_space),
                None => format!("{snapshots} snapshots"),
            };
            self.run
                .report(&format!(", {more}, restart {restart:.2} s"));
            if let Some(replica) = &self.replica {
                println!(
                    "round {}: the tables agree with {} transactions in the binary log",
                    self.run.done.rounds, replica.transactions
                );
            }
        }
        server.stop()?;
        let mut server = self.start()?;
        self.verify(&server).context("after an orderly shutdown")?;
        server.stop()
    }

    fn datadir(&self) -> DataDir {
        DataDir(self.run.place.join("data"))
    }

    fn options(&mut self) -> Vec<String> {
        let mut options = vec![
            "--max-connections=100".to_string(),
            "--performance-schema=OFF".into(),
        ];
        match self.run.args.engine {
            Engine::Varve => {
                options.push("--plugin-load-add=ha_varve".into());
                // Without it the server would start without the engine.
                options.push("--varve=FORCE".into());
                let drawn = settings::draw(&mut self.run.rng, self.fixed);
                options.extend(settings::server_options(&drawn));
            }
            Engine::Innodb => {
                // Small, so that pages are written and the log is reused while the load runs.
                options.push("--innodb-buffer-pool-size=8M".into());
                options.push("--innodb-log-file-size=8M".into());
            }
        }
        if let Some(disk) = &self.disk {
            options.push(format!(
                "--varve-data-home-dir={}",
                disk.dir.join("db").display()
            ));
        }
        if self.run.args.binlog {
            options.extend(binlog::SERVER_OPTIONS.map(String::from));
        }
        options.extend(self.run.args.options.iter().cloned());
        options
    }

    fn start(&mut self) -> Result<Server> {
        let options = self.options();
        Server::start(&self.prefix, self.datadir(), None, &options)
            .with_context(|| format!("with {}", options.join(" ")))
    }

    fn load_and_kill(&mut self, server: &mut Server) -> Result<u64> {
        let bank_round = bank::Round::default();
        let round = Round::default();
        let load = self.run.moment();
        let engine = self.run.args.engine;
        let rng = &mut self.run.rng;
        let has_view = rng.bool();
        let socket = &server.datadir.socket();
        let (members, fates, ddl_fate) = (&mut self.members, &mut self.fates, &mut self.ddl_fate);
        let spaces = self.fixed.undo_tablespaces;
        thread::scope(|scope| {
            let mut clients = Vec::new();
            for member in members {
                let (round, rng) = (&round, rng.fork());
                clients.push(scope.spawn(move || work(member, socket, engine, rng, round)));
            }
            for (id, fate) in fates.iter_mut().enumerate() {
                let (round, rng) = (&bank_round, rng.fork());
                clients.push(scope.spawn(move || {
                    let mut client = Client::connect(socket)?;
                    bank::transfer_until_killed(&mut client, id as u64, fate, rng, round)
                }));
            }
            let (round, bank_round) = (&round, &bank_round);
            for work in disturbances(engine, spaces) {
                let rng = rng.fork();
                clients.push(scope.spawn(move || work(socket, rng, round)));
            }
            clients.push(scope.spawn(move || {
                bank::read_totals_until_killed(&mut Client::connect(socket)?, bank_round)
            }));
            clients.push(scope.spawn(move || {
                ddl::run_until_killed(&mut Client::connect(socket)?, engine, ddl_fate, bank_round)
            }));
            if has_view {
                let tables: &[&str] = match rng.u32(..4) {
                    // Nobody can alter them then.
                    0 => &VIEWED,
                    _ => &VIEWED[SHARED.len() - 1..],
                };
                clients.push(scope.spawn(move || {
                    let store = SqlStore::connect(socket, u32::MAX - 1, engine);
                    view::hold_until_killed(store, tables, round)
                }));
            }
            let end = Instant::now() + load;
            // A client ends before the kill only if something is wrong.
            while Instant::now() < end && !clients.iter().any(|client| client.is_finished()) {
                thread::sleep(Duration::from_millis(1));
            }
            round.end(|| !clients.iter().any(|client| client.is_finished()));
            let alive = server.check_alive();
            round.over.store(true, Ordering::SeqCst);
            bank_round.over.store(true, Ordering::SeqCst);
            server.kill()?;
            let results: Vec<Result<()>> = clients
                .into_iter()
                .map(|client| client.join().expect("a client does not panic"))
                .collect();
            alive?;
            results.into_iter().collect::<Result<()>>()
        })?;
        self.count(&round);
        Ok(bank_round.snapshots.load(Ordering::Relaxed))
    }

    /// FULL-1 and FULL-2, and a kill.
    fn fill_and_kill(&mut self, server: &mut Server) -> Result<u64> {
        let round = Round::default();
        let engine = self.run.args.engine;
        let disk = self.disk.as_mut().expect("the test runs on a small disk");
        disk.serve(server.pid());
        let rng = &mut self.run.rng;
        let socket = &server.datadir.socket();
        let members = &mut self.members;
        let spaces = self.fixed.undo_tablespaces;
        thread::scope(|scope| {
            let mut clients = Vec::new();
            for member in members {
                let (round, rng) = (&round, rng.fork());
                clients.push(scope.spawn(move || work(member, socket, engine, rng, round)));
            }
            let round = &round;
            for work in disturbances(engine, spaces) {
                let rng = rng.fork();
                clients.push(scope.spawn(move || work(socket, rng, round)));
            }
            let alive = || clients.iter().all(|client| !client.is_finished());
            let filled = disk.fill_and_make_room(rng, round, alive);
            let running = server.check_alive();
            round.over.store(true, Ordering::SeqCst);
            server.kill()?;
            let results: Vec<Result<()>> = clients
                .into_iter()
                .map(|client| client.join().expect("a client does not panic"))
                .collect();
            running?;
            results.into_iter().collect::<Result<()>>()?;
            filled
        })?;
        self.count(&round);
        Ok(0)
    }

    fn count(&mut self, round: &Round) {
        let done = &mut self.run.done;
        let acknowledged: usize = self.fates.iter().map(|fate| fate.acknowledged.len()).sum();
        let before = std::mem::replace(&mut self.bank_acknowledged, acknowledged as u64);
        done.acknowledged += acknowledged as u64 - before;
        done.count(round);
    }

    fn verify(&mut self, server: &Server) -> Result<()> {
        let mut client = server.connect()?;
        if self.disk.is_none() {
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
        }
        let (engine, socket) = (self.run.args.engine, server.datadir.socket());
        for member in &mut self.members {
            let mut store = connect(&socket, member.id, engine)?;
            member.judge(&mut store)?;
        }
        rows::check(&mut connect(&socket, 0, engine)?)?;
        if self.disk.is_none() {
            ddl::verify(&mut client, &mut self.ddl_fate, &server.datadir.0)?;
        }
        Ok(())
    }

    fn kill_in_recovery(&mut self, moment: Duration) -> Result<()> {
        let options = self.options();
        let mut server = Server::start_unready(&self.prefix, self.datadir(), &options)?;
        thread::sleep(moment);
        let alive = server.check_alive();
        self.run.done.kills += 1;
        server.kill()?;
        match (&self.disk, alive) {
            (Some(disk), Err(error)) if disk.explains(&error) => Ok(()),
            (_, alive) => alive,
        }
    }
}

fn connect(socket: &Path, id: u32, engine: Engine) -> Result<SqlStore> {
    SqlStore::connect(socket, id, engine).map_err(|failure| anyhow::anyhow!("{failure}"))
}

fn work(member: &mut Member, socket: &Path, engine: Engine, rng: Rng, round: &Round) -> Result<()> {
    match SqlStore::connect(socket, member.id, engine) {
        Ok(mut store) => member.work(&mut store, rng, round),
        Err(failure) => expected_end(Err(failure), round),
    }
}

type Disturbance = Box<dyn FnOnce(&Path, Rng, &Round) -> Result<()> + Send>;

/// What goes on beside the clients with rows, and gets in their way: tables are altered, undo tablespaces
/// truncated.
fn disturbances(engine: Engine, undo_tablespaces: u32) -> Vec<Disturbance> {
    let mut all: Vec<Disturbance> = vec![Box::new(move |socket, rng, round| {
        let end = sql_store::alter_until_killed(socket, engine, rng, round);
        expected_end(end, round)
    })];
    if engine == Engine::Varve && truncation::is_possible(undo_tablespaces) {
        all.push(Box::new(move |socket, rng, round| {
            let store = SqlStore::connect(socket, u32::MAX, engine);
            let end = truncation::truncate_until_killed(store, undo_tablespaces, rng, round);
            expected_end(end, round)
        }));
    }
    all
}
