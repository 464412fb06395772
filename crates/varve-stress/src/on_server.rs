//! A `mariadbd` with the plugin that is killed under all loads.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail};
use fastrand::Rng;
use varve_testbed::client;
use varve_testbed::plugin;
use varve_testbed::prefix::Prefix;
use varve_testbed::server::{DataDir, Engine, Server};

use crate::bank::{self, CLIENTS, Fate};
use crate::binlog::{self, Replica};
use crate::ddl::{self, DdlFate};
use crate::driver::{self, Client, Endpoint, Process, Subject, Test};
use crate::family;
use crate::round::{Round, expected_end};
use crate::settings;
use crate::sql_store::{self, SqlStore};
use crate::store::{Outcome, SHARED};
use crate::{Done, Run, verify, xa};

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

/// Clients that change parents and children.
const FAMILY_CLIENTS: usize = 2;

/// What the loads of the server alone know.
struct OnServer {
    prefix: Prefix,
    engine: Engine,
    fates: Vec<Fate>,
    /// Of those, how many the count has.
    bank_acknowledged: u64,
    ddl_fate: DdlFate,
    replica: Option<Replica>,
}

pub fn run(run: &mut Run) -> Result<()> {
    let engine = run.args.engine;
    let prefix = plugin::prefix_for(run.workspace, &[engine])?;
    DataDir(run.place.join("data")).initialise(&prefix)?;
    fs::write(run.place.join("keys"), format!("1;{:064x}\n", 1))?;
    let mut subject = OnServer {
        prefix,
        engine,
        fates: Vec::new(),
        bank_acknowledged: 0,
        ddl_fate: DdlFate::default(),
        replica: run.args.binlog.then(Replica::default),
    };
    subject.fates.resize_with(CLIENTS as usize, Fate::default);
    driver::run(run, &mut subject)
}

impl Process for Server {
    fn socket(&self) -> PathBuf {
        self.datadir.socket()
    }

    fn pid(&self) -> u32 {
        Server::pid(self)
    }

    fn check_alive(&mut self) -> Result<()> {
        Server::check_alive(self)
    }

    fn kill(&mut self) -> Result<()> {
        Server::kill(self)
    }
}

impl OnServer {
    fn options(&self, test: &mut Test) -> Vec<String> {
        let mut options = vec![
            "--max-connections=100".to_string(),
            "--performance-schema=OFF".into(),
        ];
        match self.engine {
            Engine::Varve => {
                options.push("--plugin-load-add=ha_varve".into());
                // Without it the server would start without the engine.
                options.push("--varve=FORCE".into());
                options.push("--plugin-load-add=file_key_management".into());
                let keys = test.run.place.join("keys");
                options.push(format!("--file-key-management-filename={}", keys.display()));
                let drawn = settings::draw(&mut test.run.rng, test.fixed);
                options.extend(settings::server_options(&drawn));
            }
            Engine::Innodb => {
                // Small, so that pages are written and the log is reused while the load runs.
                options.push("--innodb-buffer-pool-size=8M".into());
                options.push("--innodb-log-file-size=8M".into());
            }
        }
        if let Some(disk) = &test.disk {
            options.push(format!(
                "--varve-data-home-dir={}",
                disk.dir.join("db").display()
            ));
        }
        if test.run.args.binlog {
            options.extend(binlog::SERVER_OPTIONS.map(String::from));
        }
        options.extend(test.run.args.options.iter().cloned());
        options
    }

    fn verify_bank(&mut self, client: &mut client::Client, datadir: &DataDir) -> Result<()> {
        xa::resolve(client, &mut self.fates)?;
        if self.replica.is_some() {
            // The replica reads complete files, and the decisions are among what it must know.
            client.query("FLUSH BINARY LOGS")?;
        }
        verify::everything(client, &mut self.fates)?;
        if let Some(replica) = &mut self.replica {
            replica.follow(&self.prefix, &datadir.0)?;
            replica.compare(client)?;
        }
        Ok(())
    }
}

fn datadir(test: &Test) -> DataDir {
    DataDir(test.run.place.join("data"))
}

impl Subject for OnServer {
    type Process = Server;
    type Store = SqlStore;

    const LOAD_DIVISOR: u32 = 1;
    const RECOVERY_DIVISOR: u32 = 1;

    fn connect(socket: &Path, id: u32, engine: Engine) -> Outcome<SqlStore> {
        SqlStore::connect(socket, id, engine)
    }

    fn spawn(&mut self, test: &mut Test) -> Result<Server> {
        let options = self.options(test);
        Server::start_unready(&self.prefix, datadir(test), &options)
    }

    fn start(&mut self, test: &mut Test) -> Result<Server> {
        let options = self.options(test);
        Server::start(&self.prefix, datadir(test), None, &options)
            .with_context(|| format!("with {}", options.join(" ")))
    }

    fn create_tables(&mut self, server: &Server) -> Result<()> {
        let mut client = server.connect()?;
        bank::create_tables(&mut client, self.engine)?;
        family::create_tables(&mut client, self.engine)?;
        sql_store::create_tables(&mut client, self.engine)?;
        Ok(())
    }

    /// The bank and a table under DDL, where no disk is full; tables are altered everywhere.
    fn clients<'a>(
        &'a mut self,
        at: &'a Endpoint,
        rng: &mut Rng,
        round: &'a Round,
    ) -> Vec<Client<'a>> {
        let mut clients: Vec<Client> = Vec::new();
        let connected = |work: &mut dyn FnMut(&mut client::Client) -> Result<()>| {
            match client::Client::connect(&at.socket) {
                Ok(mut client) => work(&mut client),
                Err(error) => bank::end_of_connection(error, round),
            }
        };
        let Self {
            fates, ddl_fate, ..
        } = self;
        if !at.has_full_disk {
            for (id, fate) in (0..).zip(fates) {
                let rng = rng.fork();
                clients.push(Box::new(move || {
                    connected(&mut |client| {
                        bank::transfer_until_killed(client, id, fate, rng.clone(), round)
                    })
                }));
            }
            clients.push(Box::new(move || {
                connected(&mut |client| bank::read_totals_until_killed(client, round))
            }));
            for _ in 0..FAMILY_CLIENTS {
                let rng = rng.fork();
                clients.push(Box::new(move || {
                    connected(&mut |client| family::change_until_killed(client, rng.clone(), round))
                }));
            }
            let forked = rng.fork();
            clients.push(Box::new(move || {
                connected(&mut |client| family::alter_until_killed(client, forked.clone(), round))
            }));
            clients.push(Box::new(move || {
                connected(&mut |client| ddl::run_until_killed(client, at.engine, ddl_fate, round))
            }));
        }
        let rng = rng.fork();
        clients.push(Box::new(move || {
            let end = sql_store::alter_until_killed(&at.socket, at.engine, rng, round);
            expected_end(end, round)
        }));
        clients
    }

    fn viewed(rng: &mut Rng) -> &'static [&'static str] {
        match rng.u32(..4) {
            // Nobody can alter them then.
            0 => &VIEWED,
            _ => &VIEWED[SHARED.len() - 1..],
        }
    }

    fn count(&mut self, done: &mut Done) {
        let acknowledged: usize = self.fates.iter().map(|fate| fate.acknowledged.len()).sum();
        let before = std::mem::replace(&mut self.bank_acknowledged, acknowledged as u64);
        done.acknowledged += acknowledged as u64 - before;
    }

    fn verify(&mut self, test: &mut Test, server: &Server) -> Result<()> {
        let mut client = server.connect()?;
        let has_bank = test.disk.is_none();
        if has_bank {
            self.verify_bank(&mut client, &server.datadir)?;
        }
        test.verify_rows::<Self>(server)?;
        if has_bank {
            ddl::verify(&mut client, &mut self.ddl_fate, &server.datadir.0)?;
            family::verify(&mut client)?;
        }
        Ok(())
    }

    fn report(&self, test: &Test, round: &Round, restart: f64) {
        let Done {
            rounds,
            refused_for_space,
            ..
        } = &test.run.done;
        let more = match test.disk {
            Some(_) => format!("{refused_for_space} refused"),
            None => format!("{} snapshots", round.snapshots.load(Ordering::Relaxed)),
        };
        test.run
            .report(&format!(", {more}, restart {restart:.2} s"));
        if let Some(replica) = &self.replica {
            println!(
                "round {rounds}: the tables agree with {} transactions in the binary log",
                replica.transactions
            );
        }
    }

    fn end(&mut self, test: &mut Test, mut server: Server) -> Result<()> {
        server.stop()?;
        let mut server = self.start(test)?;
        self.verify(test, &server)
            .context("after an orderly shutdown")?;
        server.stop()
    }

    /// What the bank's clients know.
    fn keep(&self, journals: &Path) {
        let _ = fs::write(journals.join("bank.txt"), format!("{:#?}", self.fates));
    }
}
