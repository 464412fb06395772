//! A program with the library that is killed under the rows load.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fastrand::Rng;

use crate::Run;
use crate::embedded_store::{self, EmbeddedStore, Process};
use crate::full::{self, Disk};
use crate::rows::{self, Member, Round};
use crate::settings::{self, Fixed};
use crate::store::SHARED;
use crate::{truncation, view};

struct Test<'a, 'b> {
    run: &'a mut Run<'b>,
    program: PathBuf,
    fixed: Fixed,
    disk: Option<Disk>,
    members: Vec<Member>,
}

pub fn run(run: &mut Run) -> Result<()> {
    let program = match &run.args.program {
        Some(program) => program.clone(),
        None => embedded_store::build(run.workspace)?,
    };
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
            process = full::start_again(self, |test| test.disk.as_mut(), Self::start)?;
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

    fn load_and_kill(&mut self, process: &mut Process) -> Result<()> {
        let round = Round::default();
        // It starts in no time, so it may be killed more often.
        let load = self.run.moment() / 2;
        let rng = &mut self.run.rng;
        // It would keep undo from a disk that is to have room again.
        let has_view = self.disk.is_none() && rng.bool();
        let (socket, members) = (&process.socket.clone(), &mut self.members);
        let spaces = self.fixed.undo_tablespaces;
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
            if truncation::is_possible(spaces) {
                let (round, rng) = (&round, rng.fork());
                clients.push(scope.spawn(move || {
                    let store = EmbeddedStore::connect(socket, u32::MAX);
                    let end = truncation::truncate_until_killed(store, spaces, rng, round);
                    rows::expected_end(end, round)
                }));
            }
            if has_view {
                let round = &round;
                clients.push(scope.spawn(move || {
                    let store = EmbeddedStore::connect(socket, u32::MAX - 1);
                    view::hold_until_killed(store, &SHARED, round)
                }));
            }
            let alive = || clients.iter().all(|client| !client.is_finished());
            let filled = match disk {
                Some(disk) => disk.fill_and_make_room(rng, &round, alive),
                None => {
                    let end = Instant::now() + load;
                    while Instant::now() < end && alive() {
                        thread::sleep(Duration::from_millis(1));
                    }
                    round.end(alive);
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
        self.run.done.count(&round);
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
        let alive = process.check_alive();
        self.run.done.kills += 1;
        process.kill()?;
        match (&self.disk, alive) {
            (Some(disk), Err(error)) if disk.explains(&error) => Ok(()),
            (_, alive) => alive,
        }
    }
}

fn connect(socket: &Path, id: u32) -> Result<EmbeddedStore> {
    EmbeddedStore::connect(socket, id).map_err(|failure| anyhow::anyhow!("{failure}"))
}

fn work(member: &mut Member, socket: &Path, rng: Rng, round: &Round) -> Result<()> {
    match EmbeddedStore::connect(socket, member.id) {
        Ok(mut store) => member.work(&mut store, rng, round),
        Err(failure) => rows::expected_end(Err(failure), round),
    }
}
