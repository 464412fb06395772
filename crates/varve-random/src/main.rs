//! `cargo xtask random-sql`: random SQL on Varve and on InnoDB in one server; both must answer the same.
//!
//! | module | job |
//! |---|---|
//! | `sql`, `types`, `schema` | what statements are made of |
//! | `draw` | draws statements |
//! | `side` | the server, and a connection to each engine's schema |
//! | `play`, `compare`, `binlog` | runs statements and says what is different |
//! | `known` | differences that have a reason |
//! | `shrink` | the smallest statements that show one |

mod binlog;
mod compare;
mod draw;
mod known;
mod play;
mod schema;
mod shrink;
mod side;
mod sql;
mod types;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;

use varve_testbed::command;
use varve_testbed::workspace::Workspace;

use self::compare::{Difference, What};
use self::draw::Statement;
use self::play::Counts;
use self::shrink::Shrinker;
use self::side::Pair;

#[derive(Parser)]
#[command(name = "cargo xtask random-sql", about = "Random SQL on Varve beside InnoDB")]
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
}

/// Different differences after which it ends.
const FOUND_MAX: usize = 8;
const SHRINK_TIME: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    command::end(run(&Args::parse()))
}

fn run(args: &Args) -> Result<ExitCode> {
    let first = args.seed.unwrap_or_else(|| fastrand::u32(..).into());
    let mode = args.autoinc_lock_mode.unwrap_or(first % 3);
    println!("random-sql: --seed {first} --autoinc-lock-mode {mode}");
    let mut pair = Pair::start(Workspace::find()?, mode)?;
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
        let Some((statements, difference)) = play::play(&mut pair, seed, &mut counts)? else {
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
        report(&mut pair, statements, difference)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "random-sql: {} statements in {} batches, {} answered by errors, {} rows, {} differences, in {seconds:.0} s",
        counts.statements,
        counts.batches,
        counts.failed,
        counts.rows,
        found.len() + again,
    );
    for (name, n) in &counts.known {
        println!("known: {name}: {n} times");
    }
    pair.stop()?;
    Ok(match found.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
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
    println!("-- {}\n-- VARVE: {}\n-- InnoDB: {}", difference.sql, difference.varve, difference.innodb);
    Ok(())
}
