//! The textbook anomalies, played through SQL on Varve and on InnoDB in one server, at every isolation level:
//! users who know what InnoDB lets happen must find the same here.
//!
//! Sessions are connections of their own, each in a thread. A statement that has not answered for a while
//! waits for a lock: the play goes on, and its answer is written down when it comes. What a play shows is its
//! statements with their answers, in order, and the rows that are left. Both engines must show the same, but
//! for the differences listed here with their reasons.

mod cases;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use self::cases::{CASES, Case};
use crate::mtr::Count;
use varve_testbed::client::{Answer, SqlError, SqlResult};
use varve_testbed::plugin;
use varve_testbed::server::{DataDir, Engine, Server};
use varve_testbed::session::Session;
use varve_testbed::workspace::{Workspace, remove_dir};

const LEVELS: [&str; 4] = [
    "READ UNCOMMITTED",
    "READ COMMITTED",
    "REPEATABLE READ",
    "SERIALIZABLE",
];
/// Who has not answered by then waits for a lock.
const PATIENCE: Duration = Duration::from_millis(300);
/// Longer than anything takes that waits for no lock.
const AT_MOST: Duration = Duration::from_secs(30);
/// After so many rounds of `PATIENCE` in which nobody could say anything, nobody ever will.
const IDLE_ROUNDS: usize = 100;
/// A busy machine may be slower than `PATIENCE`; what differs is played again.
const ATTEMPTS: usize = 3;

/// Where Varve is not as InnoDB, and why.
const DIFFERENCES: &[(&str, &str, &str)] = &[];

#[derive(clap::Args)]
pub struct HermitageArgs {
    /// Print what happened in each play
    #[arg(long)]
    verbose: bool,
}

pub fn run(workspace: &Workspace, args: &HermitageArgs) -> Result<()> {
    let count = play_all(workspace, args.verbose)?;
    ensure!(count.failed == 0, "{} plays differ", count.failed);
    Ok(())
}

/// Plays everything; counts the plays.
pub fn run_suite(workspace: &Workspace) -> Result<Count> {
    play_all(workspace, false)
}

fn play_all(workspace: &Workspace, verbose: bool) -> Result<Count> {
    let prefix = plugin::prefix_for(workspace, &[Engine::Varve, Engine::Innodb])?;
    let dir = workspace.target.join("hermitage");
    remove_dir(&dir)?;
    DataDir(dir.clone()).initialise(&prefix)?;
    let options = ["--plugin-load-add=ha_varve".to_string()];
    let mut server = Server::start(&prefix, DataDir(dir.clone()), None, &options)?;
    let mut count = Count::default();
    println!("{:<44} {}", "", LEVELS.join("  "));
    for case in CASES {
        let mut line = format!("{:<44}", case.name);
        for level in LEVELS {
            let verdict = compare(&server, case, level, verbose)?;
            write!(line, " {verdict:<width$} ", width = level.len())?;
            match verdict {
                Verdict::Differs => {
                    count.failed += 1;
                    count.failures.push(format!("{}, {level}", case.name));
                }
                _ => count.passed += 1,
            }
        }
        println!("{}", line.trim_end());
    }
    server.stop()?;
    remove_dir(&dir)?;
    Ok(count)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Same,
    DiffersForAReason,
    Differs,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Verdict::Same => "same",
            Verdict::DiffersForAReason => "known",
            Verdict::Differs => "DIFFERS",
        })
    }
}

fn compare(server: &Server, case: &Case, level: &str, verbose: bool) -> Result<Verdict> {
    let known = (DIFFERENCES.iter()).find(|(name, at, _)| *name == case.name && *at == level);
    let mut shown = [String::new(), String::new()];
    for _ in 0..ATTEMPTS {
        for (shown, engine) in shown.iter_mut().zip([Engine::Varve, Engine::Innodb]) {
            *shown = play(server, case, level, engine)
                .with_context(|| format!("{} at {level} on {}", case.name, engine.name()))?;
        }
        if shown[0] == shown[1] {
            break;
        }
    }
    let verdict = match (shown[0] == shown[1], known) {
        (true, None) => Verdict::Same,
        (false, Some(_)) => Verdict::DiffersForAReason,
        (false, None) => Verdict::Differs,
        (true, Some(_)) => bail!("{} at {level} does not differ any more", case.name),
    };
    if verbose || verdict == Verdict::Differs {
        println!("-- {} at {level}: Varve\n{}", case.name, shown[0]);
    }
    if verdict != Verdict::Same && (verbose || verdict == Verdict::Differs) {
        println!("-- InnoDB\n{}", shown[1]);
    }
    if let (true, Some((_, _, reason))) = (verbose, known) {
        println!("-- because {reason}");
    }
    Ok(verdict)
}

fn show(answer: SqlResult<Answer>) -> Result<String> {
    match answer {
        Ok(answer) if answer.rows.iter().flatten().next().is_none() => Ok("nothing".into()),
        Ok(answer) => Ok(answer.rows_text()),
        Err(SqlError::Server { code, .. }) => Ok(format!("error {code}")),
        Err(error @ SqlError::Lost(_)) => Err(error.into()),
    }
}

/// Plays a case on a new table; returns what there is to see.
fn play(server: &Server, case: &Case, level: &str, engine: Engine) -> Result<String> {
    let mut stage = Session::open(server)?;
    for statement in [
        "CREATE DATABASE IF NOT EXISTS test",
        "USE test",
        "DROP TABLE IF EXISTS t",
        &format!(
            "CREATE TABLE t (id INT PRIMARY KEY, value INT) ENGINE={}",
            engine.name()
        ),
        "INSERT INTO t VALUES (1, 10), (2, 20)",
    ] {
        let answer = show(stage.ask(statement, AT_MOST)?)?;
        ensure!(answer == "nothing", "{statement}: {answer}");
    }
    let mut sessions: BTreeMap<usize, Session> = BTreeMap::new();
    for (who, _) in case.statements {
        if !sessions.contains_key(who) {
            let mut session = Session::open(server)?;
            let isolation = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
            for statement in ["USE test", &isolation, "BEGIN"] {
                session.ask(statement, AT_MOST)??;
            }
            sessions.insert(*who, session);
        }
    }
    let mut shown = String::new();
    let mut rest = case.statements.to_vec();
    let mut idle = 0;
    while !rest.is_empty() || sessions.values().any(|session| session.is_waiting()) {
        settle(&mut shown, &mut sessions)?;
        // Who waits says nothing; the others go on.
        let next = (rest.iter()).position(|(who, _)| !sessions[who].is_waiting());
        let Some(next) = next else {
            idle += 1;
            ensure!(idle < IDLE_ROUNDS, "all wait for each other\n{shown}");
            continue;
        };
        let (who, statement) = rest.remove(next);
        let session = sessions.get_mut(&who).expect("opened above");
        session.say(statement)?;
        let answer = session.answer(PATIENCE)?;
        let answer = answer.map_or(Ok("waits".into()), show)?;
        writeln!(shown, "  {who}: {statement}: {answer}")?;
    }
    // A deadlock has rolled back one of them, but not its later statements.
    for session in sessions.values_mut() {
        show(session.ask("COMMIT", AT_MOST)?)?;
    }
    let left = show(stage.ask("SELECT * FROM t ORDER BY id", AT_MOST)?)?;
    writeln!(shown, "  in the end: {left}")?;
    Ok(shown)
}

/// Writes down what those who were waiting answer meanwhile.
fn settle(shown: &mut String, sessions: &mut BTreeMap<usize, Session>) -> Result<()> {
    for (who, session) in sessions.iter_mut() {
        if session.is_waiting()
            && let Some(answer) = session.answer(PATIENCE)?
        {
            writeln!(shown, "  {who} goes on: {}", show(answer)?)?;
        }
    }
    Ok(())
}
