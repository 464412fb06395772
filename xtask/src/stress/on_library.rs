//! A program with the library that is killed under the rows load.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fastrand::Rng;

use super::Run;
use super::embedded_store::{self, EmbeddedStore, Process};
use super::full::Disk;
use super::rows::{self, Member, Round};
use super::settings::{self, Fixed};
use super::store::Failure;

struct Test<'a, 'b> {
    run: &'a mut Run<'b>,
    program: PathBuf,
    fixed: Fixed,
    disk: Option<Disk>,
    members: Vec<Member>,
}

pub fn run(run: &mut Run) -> Result<()> {
    let program = embedded_store::build(run.workspace)?;
    let fixed = Fixed::draw(&mut run.rng);
    let journals = run.journals();
    let members = (0..rows::CLIENTS).map(|id| Member::new(id, &journals));
    let disk = match run.args.full {
        Some(_) => Some(Disk::new(&run.place)?),
        None => None,
    };
    let mut test = Test {
        program,
        fixed,
        members: members.collect::<Result<_>>()?,
        disk,
        run,
    };
    if test.disk.is_some() {
        test.members[0].be_greedy();
    }
    test.go_on().inspect_err(|_| {
        if let Some(disk) = &test.disk {
            disk.keep();
        }
    })
}

impl Test<'_, '_> {
    fn go_on(&mut self) -> Result<()> {
        self.run.begin();
        let mut process = self.start()?;
        while !self.run.is_over() {
            self.run.done.rounds += 1;
            self.load_and_kill(&mut process)?;
            drop(process);
            self.run.done.kills += 1;
            while let Some(moment) = self.run.moment_of_recovery() {
                // This program is up sooner than a server.
                self.kill_in_recovery(moment / 4)?;
            }
            let begin = Instant::now();
            process = self.start_again()?;
            let restart = begin.elapsed().as_secs_f64();
            self.verify(&process)?;
            self.run.report(&format!(", restart {restart:.2} s"));
        }
        Ok(())
    }

    fn spawn(&mut self) -> Result<Process> {
        let drawn = settings::draw(&mut self.run.rng, self.fixed);
        let settings: Vec<String> = drawn
            .iter()
            // The server's alone.
            .filter(|(name, value)| {
                !(*name == "autoinc_lock_mode" || *name == "open_files" && *value == 0)
            })
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let dir = match &self.disk {
            Some(disk) => disk.dir.join("db"),
            None => self.run.place.join("data"),
        };
        Process::spawn(&self.program, &dir, &self.run.place, &settings)
            .with_context(|| format!("with {}", settings.join(" ")))
    }

    fn start(&mut self) -> Result<Process> {
        let mut process = self.spawn()?;
        process.wait_ready()?;
        Ok(process)
    }

    /// FULL-3: on a full disk the program starts, or ends and says that it has no space.
    fn start_again(&mut self) -> Result<Process> {
        let Some(is_full) = self.disk.as_ref().map(Disk::is_full) else {
            return self.start();
        };
        match self.start() {
            Err(error) if is_full && format!("{error:#}").contains("no space") => {}
            started => {
                let _ = self.disk.as_mut().map(Disk::make_room);
                return started;
            }
        }
        self.disk.as_mut().map_or(Ok(()), Disk::make_room)?;
        self.start()
    }

    fn load_and_kill(&mut self, process: &mut Process) -> Result<()> {
        let round = Round::default();
        // It starts in no time, so it may be killed more often.
        let load = self.run.moment() / 2;
        let rng = &mut self.run.rng;
        let (socket, members) = (&process.socket.clone(), &mut self.members);
        let mut disk = self.disk.as_mut();
        if let Some(disk) = &mut disk {
            disk.serve(process.pid());
        }
        thread::scope(|scope| {
            let mut clients = Vec::new();
            for member in members {
                let (round, rng) = (&round, rng.fork());
                clients.push(scope.spawn(move || work(member, socket, rng, round)));
            }
            let alive = || clients.iter().all(|client| !client.is_finished());
            let filled = match disk {
                Some(disk) => disk.fill_and_make_room(rng, &round, alive),
                None => {
                    let end = Instant::now() + load;
                    while Instant::now() < end && alive() {
                        thread::sleep(Duration::from_millis(1));
                    }
                    Ok(())
                }
            };
            let running = process.check_alive();
            round.over.store(true, Ordering::SeqCst);
            process.kill()?;
            let results: Vec<Result<()>> = clients
                .into_iter()
                .map(|client| client.join().expect("a client does not panic"))
                .collect();
            running?;
            results.into_iter().collect::<Result<()>>()?;
            filled
        })?;
        let done = &mut self.run.done;
        done.acknowledged += round.commits.load(Ordering::Relaxed);
        done.ddl += round.ddl.load(Ordering::Relaxed);
        done.refused_for_space += round.refused_for_space.load(Ordering::Relaxed);
        Ok(())
    }

    fn verify(&mut self, process: &Process) -> Result<()> {
        for member in &mut self.members {
            let mut store = connect(&process.socket, member.id)?;
            member.judge(&mut store)?;
        }
        rows::check(&mut connect(&process.socket, 0)?)
    }

    fn kill_in_recovery(&mut self, moment: Duration) -> Result<()> {
        let mut process = self.spawn()?;
        thread::sleep(moment);
        let is_full = self.disk.as_ref().is_some_and(Disk::is_full);
        let alive = process.check_alive();
        self.run.done.kills += 1;
        process.kill()?;
        match alive {
            Err(error) if is_full && format!("{error:#}").contains("no space") => Ok(()),
            alive => alive,
        }
    }
}

fn connect(socket: &Path, id: u32) -> Result<EmbeddedStore> {
    EmbeddedStore::connect(socket, id).map_err(|failure| anyhow::anyhow!("{failure}"))
}

fn work(member: &mut Member, socket: &Path, rng: Rng, round: &Round) -> Result<()> {
    match EmbeddedStore::connect(socket, member.id) {
        Ok(mut store) => member.work(&mut store, rng, round),
        Err(Failure::Lost(_)) if round.over.load(Ordering::SeqCst) => Ok(()),
        Err(failure) => bail!("a client got {failure}"),
    }
}
