//! The crash test with real processes: SIGKILL under load, restart, and look.
//!
//! A server (`on_server`) or a program with the library (`on_library`) works until a random moment, is killed
//! and started again (`driver`), and what it holds is compared with what it had acknowledged. Settings are
//! drawn anew for each start (`settings`). Some processes are killed shortly after their start, and some in
//! the middle of their recovery.
//!
//! | load | in | what it does |
//! |---|---|---|
//! | `rows` | both | clients with rows of their own, in shared tables and private ones, with all kinds of statements and DDL |
//! | `bank`, `xa` | the server | money moves between accounts that all clients share, some of it in XA branches |
//! | `family` | the server | parents and children by foreign keys, whose tables are altered and renamed |
//! | `ddl` | the server | one table that is created, filled, renamed, altered, truncated and dropped |
//! | `truncation` | both | undo tablespaces are truncated |
//! | `view` | both | in some rounds a session holds a read view until the kill |
//!
//! After each restart:
//! - **STRESS-1** each client's rows and tables are as its journal says: as acknowledged, or with all of what
//!   was in flight;
//! - **STRESS-2** a transaction saw its own changes, and nobody else's on its rows;
//! - **STRESS-3** the check of every table finds nothing, its indexes included;
//! - **STRESS-4** a view that was open all the time shows the same before the kill as at the beginning, by
//!   every index;
//! - **KILL-1** every acknowledged transaction is there, and no other but those whose COMMIT was sent and not
//!   answered;
//! - **KILL-2** every transaction is there completely: two legs that cancel out, and each balance is its
//!   start plus its legs; the marker is the client's last transaction;
//! - **KILL-3** the sum is unchanged, by every index; so it was in each snapshot under load;
//! - **KILL-4** CHECK TABLE finds nothing;
//! - **KILL-5** a table under DDL is as the last acknowledged statement left it, or the one in flight;
//! - **KILL-6** with the binary log on, the tables hold exactly what its transactions add up to;
//! - **KILL-7** an XA branch whose XA PREPARE was answered is prepared, unless it was decided; then it has
//!   ended as decided, or can be, and no other branch is prepared;
//! - **KILL-8** each row has its parent by each foreign key.
//!
//! On a disk that is full at times (`full`) the rows load alone runs:
//! - **FULL-1** statements are refused for want of space, by name, and change nothing; the process stays up;
//! - **FULL-2** once there is space, work goes on without a restart;
//! - **FULL-3** STRESS-1, STRESS-2 and STRESS-3 hold after a kill, also one on a full disk; a start on a
//!   full disk succeeds or says what it lacks.
//!
//! A failed run keeps data and journals in a place of its own, until four later ones have failed or were
//! broken off, and prints the command that repeats the load, the settings and the moments; the interleaving
//! is the machine's.

mod bank;
mod binlog;
mod ddl;
mod driver;
mod embedded_store;
mod family;
mod full;
mod journal;
mod on_library;
mod on_server;
mod round;
mod rows;
mod settings;
mod sql_store;
mod store;
mod truncation;
mod verify;
mod view;
mod xa;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use fastrand::Rng;

use self::full::Means;
use self::round::Round;
use varve_testbed::command;
use varve_testbed::server::Engine;
use varve_testbed::workspace::Workspace;

/// Places of runs that failed, or that were broken off, that are kept of each kind.
const KEPT: usize = 4;

#[derive(Parser, Clone, PartialEq, Debug)]
#[command(
    bin_name = "cargo xtask stress",
    about = "Kills a server and a program under load again and again, and checks what they kept"
)]
struct StressArgs {
    /// How often each kind of process is killed [default: 10]
    #[arg(long, conflicts_with = "minutes")]
    rounds: Option<u32>,
    /// How long all of it goes on
    #[arg(long)]
    minutes: Option<f64>,
    /// Seconds of load before the kill, on average
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Repeats a run
    #[arg(long)]
    seed: Option<u64>,
    /// Only a program with the library
    #[arg(long, conflicts_with_all = ["server", "binlog"])]
    embedded: bool,
    /// This build of `stress-store` instead of one of its own: one that a sanitizer watches
    #[arg(long, value_name = "FILE", requires = "embedded")]
    program: Option<PathBuf>,
    /// Only a server
    #[arg(long)]
    server: bool,
    /// A server with the binary log, with which the tables are compared
    #[arg(long)]
    binlog: bool,
    /// On a disk that is full at times
    #[arg(long, value_enum, conflicts_with = "binlog", num_args = 0..=1, require_equals = true, default_missing_value = "mount")]
    full: Option<Means>,
    #[arg(long, value_enum, default_value_t = Engine::Varve)]
    engine: Engine,
    /// Options for mariadbd
    #[arg(last = true, value_name = "MARIADBD OPTIONS")]
    options: Vec<String>,
}

impl StressArgs {
    /// What they are on a command line.
    fn words(&self) -> Vec<String> {
        let mut words = vec![format!("--seconds={}", self.seconds)];
        words.extend(self.rounds.map(|n| format!("--rounds={n}")));
        words.extend(self.minutes.map(|n| format!("--minutes={n}")));
        words.extend(self.seed.map(|n| format!("--seed={n}")));
        words.extend(self.embedded.then(|| "--embedded".into()));
        let program = |path: &PathBuf| format!("--program={}", path.display());
        words.extend(self.program.as_ref().map(program));
        words.extend(self.server.then(|| "--server".into()));
        words.extend(self.binlog.then(|| "--binlog".into()));
        words.extend((self.engine == Engine::Innodb).then(|| "--engine=innodb".into()));
        let name = |means: Means| match means {
            Means::Mount => "--full=mount".into(),
            Means::Limit => "--full=limit".into(),
        };
        words.extend(self.full.map(name));
        if !self.options.is_empty() {
            words.push("--".into());
            words.extend(self.options.iter().cloned());
        }
        words
    }
}

/// How long one kind of process is killed again and again.
enum End {
    Rounds(u32),
    After(Duration),
}

/// What a run has done.
#[derive(Default)]
struct Done {
    rounds: u32,
    kills: u32,
    acknowledged: u64,
    ddl: u64,
    refused_for_space: u64,
    truncations: u64,
    /// Long views that showed the same again before the kill.
    views: u64,
}

impl Done {
    fn count(&mut self, round: &Round) {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        self.acknowledged += read(&round.commits);
        self.ddl += read(&round.ddl);
        self.refused_for_space += read(&round.refused_for_space);
        self.truncations += read(&round.truncations);
        self.views += u64::from(round.view_is_compared.load(Ordering::Relaxed));
    }
}

/// One kind of process under test, and where its files are.
struct Run<'a> {
    workspace: &'a Workspace,
    args: &'a StressArgs,
    place: PathBuf,
    rng: Rng,
    end: End,
    begin: Instant,
    done: Done,
}

impl Run<'_> {
    /// What is measured begins now: everything is built.
    fn begin(&mut self) {
        self.begin = Instant::now();
    }

    fn is_over(&self) -> bool {
        let rounds = self.done.rounds;
        match self.end {
            End::Rounds(n) => rounds >= n,
            // One round at least.
            End::After(time) => rounds > 0 && self.begin.elapsed() >= time,
        }
    }

    fn journals(&self) -> PathBuf {
        self.place.join("journal")
    }

    /// How long a process works: at times it is killed shortly after its start.
    fn moment(&mut self) -> Duration {
        let seconds = match self.rng.u32(..5) {
            0 => 0.3 * self.rng.f64(),
            _ => self.args.seconds * (0.2 + 1.6 * self.rng.f64()),
        };
        Duration::from_secs_f64(seconds)
    }

    /// When to kill the process that recovers, if at all.
    fn moment_of_recovery(&mut self) -> Option<Duration> {
        let millis = self.rng.u64(1..600);
        (self.rng.u32(..3) == 0).then(|| Duration::from_millis(millis))
    }

    fn report(&self, more: &str) {
        let Done {
            rounds,
            acknowledged,
            ddl,
            ..
        } = &self.done;
        println!(
            "round {rounds}: {acknowledged} transactions and {ddl} DDL statements acknowledged so far{more}"
        );
    }
}

fn main() -> ExitCode {
    let args = StressArgs::parse();
    let done = Workspace::find().and_then(|workspace| run(&workspace, &args));
    command::end(done.map(|()| ExitCode::SUCCESS))
}

fn run(workspace: &Workspace, args: &StressArgs) -> Result<()> {
    let server_alone = args.server || args.binlog;
    ensure!(
        args.engine == Engine::Varve || (server_alone && args.full.is_none()),
        "--engine innodb is for --server alone"
    );
    if let Some(means) = args.full.filter(|_| !full::is_inside()) {
        fs::create_dir_all(&workspace.target)?;
        return full::enter(means, &args.words(), &workspace.target);
    }
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let both = !server_alone && !args.embedded;
    for kind in [Kind::Server, Kind::Library] {
        let wanted = match kind {
            Kind::Server => !args.embedded,
            Kind::Library => !server_alone,
        };
        if wanted {
            kill_again_and_again(workspace, args, kind, seed, if both { 2.0 } else { 1.0 })?;
        }
    }
    Ok(())
}

/// A process that is killed.
#[derive(Clone, Copy)]
enum Kind {
    Server,
    Library,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Library => "library",
        }
    }

    /// The arguments for this one alone; `shares`: among how many the time was divided.
    fn alone(self, args: &StressArgs, seed: u64, shares: f64) -> StressArgs {
        StressArgs {
            seed: Some(seed),
            server: matches!(self, Self::Server) && !args.binlog,
            embedded: matches!(self, Self::Library),
            minutes: args.minutes.map(|minutes| minutes / shares),
            ..args.clone()
        }
    }
}

/// `shares`: among how many kinds the time is divided.
fn kill_again_and_again(
    workspace: &Workspace,
    args: &StressArgs,
    kind: Kind,
    seed: u64,
    shares: f64,
) -> Result<()> {
    let name = kind.name();
    let alone = &kind.alone(args, seed, shares);
    let end = match alone.minutes {
        Some(minutes) => End::After(Duration::from_secs_f64(minutes * 60.0)),
        None => End::Rounds(alone.rounds.unwrap_or(10)),
    };
    let place = place_of(workspace, args, name);
    let _alone = claim(&place)?;
    make_empty(&place)?;
    let mut run = Run {
        workspace,
        args: alone,
        place,
        rng: Rng::with_seed(seed),
        end,
        begin: Instant::now(),
        done: Done::default(),
    };
    let full = match args.full {
        Some(_) => " on a full disk",
        None => "",
    };
    println!("stress: {name}{full}, seed {seed}");
    let killed = match kind {
        Kind::Server => on_server::run(&mut run),
        Kind::Library => on_library::run(&mut run),
    };
    if let Err(error) = killed {
        // Where it can't be renamed it stays until the next run.
        let kept = keep(&run.place).unwrap_or_else(|_| run.place.clone());
        let line = command::quoted(&alone.words());
        return Err(error.context(format!(
            "the stress test failed; repeat with `cargo xtask stress {line}`; data and journals are in {}",
            kept.display()
        )));
    }
    let Done {
        rounds,
        kills,
        acknowledged,
        ddl,
        refused_for_space,
        truncations,
        views,
    } = &run.done;
    println!(
        "stress: {name}{full}: {rounds} rounds, {kills} kills, {acknowledged} transactions and {ddl} DDL statements acknowledged, \
         {truncations} undo tablespaces truncated, {views} long views compared, \
         {refused_for_space} refused for want of space, in {:.0} s",
        run.begin.elapsed().as_secs_f64()
    );
    fs::remove_dir_all(&run.place)?;
    Ok(())
}

/// Where data and journals are.
fn place_of(workspace: &Workspace, args: &StressArgs, name: &str) -> PathBuf {
    let full = if args.full.is_some() { "-full" } else { "" };
    let engine = args.engine.option_prefix();
    let name = format!("stress-{engine}-{name}{full}");
    workspace.target.join(name)
}

/// Keeps other runs from the place as long as the file is open.
fn claim(place: &Path) -> Result<File> {
    let file = File::create(place.with_extension("lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(_) => bail!("another stress test works in {}", place.display()),
    }
}

fn make_empty(place: &Path) -> Result<()> {
    on_server::refuse_if_running(place)?;
    if place.exists() {
        // Of a run that did not come to its end.
        keep(place)?;
    }
    fs::create_dir_all(place.join("journal"))?;
    Ok(())
}

/// Gives it a name under which the next runs leave it, and removes what has been kept longest: the higher the
/// number, the newer.
fn keep(place: &Path) -> Result<PathBuf> {
    let kept = |n: u32| place.with_extension(format!("kept-{n}"));
    let mut numbers = kept_numbers(place)?;
    let new = numbers.last().map_or(1, |newest| newest + 1);
    fs::rename(place, kept(new)).with_context(|| {
        format!(
            "cannot rename {} to {}",
            place.display(),
            kept(new).display()
        )
    })?;
    numbers.push(new);
    for &old in numbers.iter().rev().skip(KEPT) {
        // What can't be removed now is tried again by the next one.
        let _ = fs::remove_dir_all(kept(old));
    }
    Ok(kept(new))
}

/// The numbers under which something of this place is kept, ascending.
fn kept_numbers(place: &Path) -> Result<Vec<u32>> {
    let name = place.file_name().context("a place has a name")?;
    let begin = format!("{}.kept-", name.to_string_lossy());
    let mut numbers = Vec::new();
    for entry in fs::read_dir(place.parent().context("it lies in a directory")?)? {
        let entry = entry?.file_name();
        let number = entry.to_str().and_then(|e| e.strip_prefix(&begin));
        numbers.extend(number.and_then(|n| n.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_share_no_place() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("stress-varve-library");
        let first = claim(&place).unwrap();
        let refused = claim(&place).unwrap_err().to_string();
        assert!(refused.contains("another stress test"), "{refused}");
        drop(first);
        claim(&place).unwrap();
    }

    /// A run that failed is repeated with exactly its arguments.
    #[test]
    fn words_say_all_of_the_arguments() {
        for line in [
            "--rounds 3 --seconds 1.5 --seed 17 --binlog",
            "--minutes 2 --full=limit",
            "--full --server -- --varve-purge-threads=1",
            "--engine innodb --server",
            "--embedded",
            "--embedded --program target/other/stress-store",
        ] {
            let parse = |words: &[String]| {
                let first = ["stress".to_string()];
                StressArgs::parse_from(first.iter().chain(words))
            };
            let words: Vec<String> = line.split(' ').map(String::from).collect();
            let args = parse(&words);
            assert_eq!(parse(&args.words()), args, "{line}");
        }
    }

    #[test]
    fn what_is_kept_stays() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("stress-varve-server");
        let other = dir.path().join("stress-varve-server-full.kept-1");
        fs::create_dir(&other).unwrap();
        let mut kept = Vec::new();
        for n in 0..KEPT + 3 {
            fs::create_dir(&place).unwrap();
            fs::write(place.join("n"), n.to_string()).unwrap();
            kept.push(keep(&place).unwrap());
            assert!(!place.exists());
        }
        let (old, new) = kept.split_at(3);
        assert!(old.iter().all(|path| !path.exists()));
        for (n, path) in new.iter().enumerate() {
            let said = fs::read_to_string(path.join("n")).unwrap();
            assert_eq!(said, (n + 3).to_string());
        }
        assert!(other.exists());
    }
}
