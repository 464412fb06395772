//! One process after the other works, is killed, recovers and is looked at: what is the same for a server and
//! for a program with the library.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;
use varve_testbed::server::Engine;

use crate::full::Disk;
use crate::round::{Round, expected_end};
use crate::rows::{self, Member};
use crate::settings::Fixed;
use crate::store::{Outcome, Store};
use crate::{Done, Run, truncation, view};

/// A process that works on the database.
pub trait Process {
    fn socket(&self) -> PathBuf;
    fn pid(&self) -> u32;
    /// An error if it ended by itself.
    fn check_alive(&mut self) -> Result<()>;
    fn kill(&mut self) -> Result<()>;
}

/// A client of a round; it ends when the process is killed.
pub type Client<'a> = Box<dyn FnOnce() -> Result<()> + Send + 'a>;

/// A kind of process under test.
pub trait Subject {
    type Process: Process;
    type Store: Store;

    /// A process that starts sooner may be killed more often: by these the moments are divided.
    const LOAD_DIVISOR: u32;
    const RECOVERY_DIVISOR: u32;

    fn connect(socket: &Path, id: u32, engine: Engine) -> Outcome<Self::Store>;

    /// Starts a process with settings drawn anew, and does not wait until it answers.
    fn spawn(&mut self, test: &mut Test) -> Result<Self::Process>;

    /// Starts one that answers.
    fn start(&mut self, test: &mut Test) -> Result<Self::Process>;

    /// Once, before the first round.
    fn create_tables(&mut self, _process: &Self::Process) -> Result<()> {
        Ok(())
    }

    /// Those beside the clients with rows.
    fn clients<'a>(
        &'a mut self,
        _at: &'a Endpoint,
        _rng: &mut Rng,
        _round: &'a Round,
    ) -> Vec<Client<'a>> {
        Vec::new()
    }

    /// What a long view reads.
    fn viewed(rng: &mut Rng) -> &'static [&'static str];

    /// Adds what its own clients did.
    fn count(&mut self, _done: &mut Done) {}

    fn verify(&mut self, test: &mut Test, process: &Self::Process) -> Result<()>;

    /// A line or two after each round, whose restart took so many seconds.
    fn report(&self, test: &Test, round: &Round, restart: f64);

    /// After the last round.
    fn end(&mut self, _test: &mut Test, _process: Self::Process) -> Result<()> {
        Ok(())
    }

    /// After a failure: writes down what it knows, beside the journals.
    fn keep(&self, _journals: &Path) {}
}

/// Where the clients of a round connect to.
pub struct Endpoint {
    pub socket: PathBuf,
    pub engine: Engine,
    pub has_full_disk: bool,
}

/// What every kind has.
pub struct Test<'a, 'b> {
    pub run: &'a mut Run<'b>,
    pub fixed: Fixed,
    pub disk: Option<Disk>,
    members: Vec<Member>,
}

pub fn run<S: Subject>(run: &mut Run, subject: &mut S) -> Result<()> {
    let fixed = Fixed::draw(&mut run.rng);
    let journals = run.journals();
    let members = (0..rows::CLIENTS).map(|id| Member::new(id, &journals));
    let mut test = Test {
        fixed,
        members: members.collect::<Result<_>>()?,
        disk: match run.args.full {
            Some(_) => Some(Disk::new(&run.place)?),
            None => None,
        },
        run,
    };
    if test.disk.is_some() {
        test.members[0].be_greedy();
    }
    test.go_on(subject).inspect_err(|_| {
        subject.keep(&journals);
        if let Some(disk) = &test.disk {
            disk.keep();
        }
    })
}

impl Test<'_, '_> {
    fn go_on<S: Subject>(&mut self, subject: &mut S) -> Result<()> {
        self.run.begin();
        let mut process = subject.start(self)?;
        subject.create_tables(&process)?;
        while !self.run.is_over() {
            self.run.done.rounds += 1;
            let round = Round::default();
            self.load_and_kill(subject, &mut process, &round)?;
            subject.count(&mut self.run.done);
            self.run.done.count(&round);
            drop(process);
            self.run.done.kills += 1;
            while let Some(moment) = self.run.moment_of_recovery() {
                self.kill_in_recovery(subject, moment / S::RECOVERY_DIVISOR)?;
            }
            let begin = Instant::now();
            process = self.start_again(subject)?;
            let restart = begin.elapsed().as_secs_f64();
            subject.verify(self, &process)?;
            subject.report(self, &round, restart);
        }
        subject.end(self, process)
    }

    /// On a disk that fills up this is FULL-1 and FULL-2.
    fn load_and_kill<S: Subject>(
        &mut self,
        subject: &mut S,
        process: &mut S::Process,
        round: &Round,
    ) -> Result<()> {
        let at = &Endpoint {
            socket: process.socket(),
            engine: self.run.args.engine,
            has_full_disk: self.disk.is_some(),
        };
        let load = self.run.moment() / S::LOAD_DIVISOR;
        let rng = &mut self.run.rng;
        // It would keep undo from a disk that is to have room again.
        let has_view = !at.has_full_disk && rng.bool();
        let mut clients: Vec<Client> = Vec::new();
        for member in &mut self.members {
            let rng = rng.fork();
            clients.push(Box::new(move || work::<S>(member, at, rng, round)));
        }
        clients.extend(subject.clients(at, rng, round));
        let spaces = self.fixed.undo_tablespaces;
        if at.engine == Engine::Varve && truncation::is_possible(spaces) {
            let rng = rng.fork();
            clients.push(Box::new(move || {
                let store = S::connect(&at.socket, u32::MAX, at.engine);
                let end = truncation::truncate_until_killed(store, spaces, rng, round);
                expected_end(end, round)
            }));
        }
        if has_view {
            let tables = S::viewed(rng);
            clients.push(Box::new(move || {
                let store = S::connect(&at.socket, u32::MAX - 1, at.engine);
                view::hold_until_killed(store, tables, round)
            }));
        }
        let mut disk = self.disk.as_mut();
        if let Some(disk) = &mut disk {
            disk.serve(process.pid());
        }
        thread::scope(|scope| {
            let clients = clients.into_iter().map(|client| scope.spawn(client));
            let clients: Vec<_> = clients.collect();
            // A client ends before the kill only if something is wrong.
            let alive = || clients.iter().all(|client| !client.is_finished());
            let filled = match disk {
                Some(disk) => disk.fill_and_make_room(rng, round, alive),
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
        })
    }

    fn kill_in_recovery<S: Subject>(&mut self, subject: &mut S, moment: Duration) -> Result<()> {
        let mut process = subject.spawn(self)?;
        thread::sleep(moment);
        let alive = process.check_alive();
        self.run.done.kills += 1;
        process.kill()?;
        match (&self.disk, alive) {
            (Some(disk), Err(error)) if disk.explains(&error) => Ok(()),
            (_, alive) => alive,
        }
    }

    /// FULL-3: on a full disk a process starts, or ends and says that it has no space. With space it starts.
    fn start_again<S: Subject>(&mut self, subject: &mut S) -> Result<S::Process> {
        let started = subject.start(self);
        let Some(disk) = &mut self.disk else {
            return started;
        };
        match &started {
            Err(error) if disk.explains(error) => disk.make_room()?,
            _ => {
                // The process whose files were limited is dead.
                let _ = disk.make_room();
                return started;
            }
        }
        subject.start(self)
    }

    /// STRESS-1 and STRESS-3.
    pub fn verify_rows<S: Subject>(&mut self, process: &S::Process) -> Result<()> {
        let (socket, engine) = (process.socket(), self.run.args.engine);
        let connect = |id| rows::get(S::connect(&socket, id, engine));
        for member in &mut self.members {
            member.judge(&mut connect(member.id)?)?;
        }
        rows::check(&mut connect(0)?)
    }
}

fn work<S: Subject>(member: &mut Member, at: &Endpoint, rng: Rng, round: &Round) -> Result<()> {
    match S::connect(&at.socket, member.id, at.engine) {
        Ok(mut store) => member.work(&mut store, rng, round),
        Err(failure) => expected_end(Err(failure), round),
    }
}
