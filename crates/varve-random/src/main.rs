//! `cargo xtask random-sql`: random SQL on Varve and on InnoDB in one server; both must answer the same.
//!
//! | module | job |
//! |---|---|
//! | `sql`, `types`, `schema` | what statements are made of |
//! | `draw` | draws statements |
//! | `side` | the server, and a connection to each engine's schema |
//! | `play`, `compare`, `binlog` | runs statements and says what is different |
//! | `known` | differences that have a reason |
//! | `script`, `sessions` | several sessions, whose statements take turns |
//! | `shrink` | the smallest statements that show one |

mod binlog;
mod compare;
mod draw;
mod known;
mod play;
mod schema;
mod script;
mod sessions;
mod shrink;
mod side;
mod sql;
mod types;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;

use varve_testbed::client::Client;
use varve_testbed::command;
use varve_testbed::workspace::Workspace;

use self::compare::{Difference, What};
use self::draw::Statement;
use self::known::KNOWN;
use self::play::Counts;
use self::script::Script;
use self::sessions::{Numbers, Verdict};
use self::shrink::Shrinker;
use self::side::Pair;

#[derive(Parser)]
#[command(
    name = "cargo xtask random-sql",
    about = "Random SQL on Varve beside InnoDB"
)]
struct Args {
    /// For how long
    #[arg(long, default_value_t = 60, conflicts_with = "statements")]
    seconds: u64,
    /// For so many statements instead
    #[arg(long)]
    statements: Option<u64>,
    /// Draws the same again
    #[arg(long)]
    seed: Option<u64>,
    /// Both engines' autoinc_lock_mode; drawn by the seed unless given
    #[arg(long)]
    autoinc_lock_mode: Option<u64>,
    /// Several sessions instead of one: who waits for whom, and what each sees
    #[arg(long)]
    sessions: bool,
}

/// Different differences after which it ends.
const FOUND_MAX: usize = 8;
const SHRINK_TIME: Duration = Duration::from_secs(25);

fn main() -> ExitCode {
    command::end(run(&Args::parse()))
}

fn run(args: &Args) -> Result<ExitCode> {
    let first = args.seed.unwrap_or_else(|| fastrand::u32(..).into());
    let mode = args.autoinc_lock_mode.unwrap_or(match args.sessions {
        // At 0 a row that is rolled back as a deadlock's victim uses up a value in InnoDB alone.
        true => 1 + first % 2,
        false => first % 3,
    });
    println!("random-sql: --seed {first} --autoinc-lock-mode {mode}");
    let mut pair = Pair::start(Workspace::find()?, mode)?;
    let found = match args.sessions {
        true => several_sessions(&mut pair, args, first, mode)?,
        false => one_session(&mut pair, args, first, mode)?,
    };
    pair.stop()?;
    Ok(match found {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Returns how many differences there were.
fn one_session(pair: &mut Pair, args: &Args, first: u64, mode: u64) -> Result<usize> {
    let begin = Instant::now();
    let mut counts = Counts::default();
    let mut found: Vec<(What, String)> = Vec::new();
    let mut again = 0;
    for seed in first.. {
        let is_over = match args.statements {
            Some(n) => counts.statements >= n,
            None => begin.elapsed().as_secs() >= args.seconds,
        };
        if is_over || found.len() == FOUND_MAX {
            break;
        }
        let Some((statements, difference)) = play::play(pair, seed, &mut counts)? else {
            continue;
        };
        if found.contains(&difference.signature()) {
            again += 1;
            continue;
        }
        found.push(difference.signature());
        println!(
            "\n-- DIFFERENT, {:?}; again: --seed {seed} --statements 1 --autoinc-lock-mode {mode}",
            difference.what
        );
        report(pair, statements, difference)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "random-sql: {} statements in {} batches, {} answered by errors, {} rows, {} differences, \
         in {seconds:.0} s",
        counts.statements,
        counts.batches,
        counts.failed,
        counts.rows,
        found.len() + again,
    );
    for known in KNOWN {
        if let Some(n) = counts.known.get(known.name) {
            println!("known, {n} times: {}: {}", known.name, known.reason);
        }
    }
    if counts.cut > 0 {
        println!("batches that ended there: {}", counts.cut);
    }
    Ok(found.len() + again)
}

/// Returns how many differences there were.
fn several_sessions(pair: &mut Pair, args: &Args, first: u64, mode: u64) -> Result<usize> {
    let numbers = match mode {
        2 => Numbers::Mixed,
        _ => Numbers::Together,
    };
    let begin = Instant::now();
    let mut watch = pair.server.connect()?;
    let (mut statements, mut scripts, mut same, mut different) = (0, 0, 0, 0);
    let mut cut: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in first.. {
        let is_over = match args.statements {
            Some(n) => statements >= n,
            None => begin.elapsed().as_secs() >= args.seconds,
        };
        if is_over || different == FOUND_MAX {
            break;
        }
        let script = script::draw(seed);
        scripts += 1;
        statements += script.steps.len() as u64;
        match sessions::compare(&pair.server, &mut watch, &script, numbers)? {
            Verdict::Same => same += 1,
            Verdict::SameUntil(reason) => *cut.entry(reason).or_default() += 1,
            Verdict::Different(_) => {
                different += 1;
                println!("\n-- DIFFERENT; again: --sessions --seed {seed} --statements 1");
                report_script(pair, &mut watch, script, numbers)?;
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "random-sql, sessions: {statements} statements in {scripts} scripts, {same} scripts the same, \
         {different} differences, in {seconds:.0} s",
    );
    for (reason, n) in cut {
        println!("the same until {reason}: {n} scripts");
    }
    Ok(different)
}

fn report_script(
    pair: &mut Pair,
    watch: &mut Client,
    mut script: Script,
    numbers: Numbers,
) -> Result<()> {
    let until = Instant::now() + SHRINK_TIME;
    let mut last = String::new();
    let mut steps = script.steps.clone();
    shrink::fewer(&mut steps, until, |steps| {
        script.steps = steps.to_vec();
        Ok(
            match sessions::compare(&pair.server, watch, &script, numbers)? {
                Verdict::Different(said) => {
                    last = said;
                    true
                }
                _ => false,
            },
        )
    })?;
    for (number, level) in script.levels.iter().enumerate() {
        println!("-- session {number}: {level}");
    }
    for sql in &script.tables {
        println!("{sql};");
    }
    for step in &steps {
        println!("/* {} */ {};", step.session, step.sql);
    }
    println!("-- {last}");
    Ok(())
}

/// The smallest statements that show it, and both answers.
fn report(pair: &mut Pair, statements: Vec<Statement>, difference: Difference) -> Result<()> {
    let mut shrinker = Shrinker::new(pair, difference, SHRINK_TIME);
    let smaller = shrinker.shrink(statements.clone())?;
    if smaller.is_none() {
        println!("-- (it does not come again with the same statements)");
    }
    for statement in smaller.unwrap_or(statements) {
        println!("{};", statement.part.render());
    }
    let difference = &shrinker.difference;
    println!(
        "-- {}\n-- VARVE: {}\n-- InnoDB: {}",
        difference.sql, difference.varve, difference.innodb
    );
    Ok(())
}
