//! `cargo xtask soak`: the tests that draw what they do, in turn and with fresh seeds, for as long as there is time.
//!
//! Each part is a command line with its seed. What fails is written down with that line, which does the same again; the others go on.

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::command::{self, Cmd};
use crate::workspace::{Workspace, cargo};

#[derive(clap::Args)]
pub struct SoakArgs {
    /// How long to go on; what has begun then is finished
    #[arg(long)]
    minutes: f64,
    /// Only parts whose name contains this
    #[arg(long)]
    only: Option<String>,
}

struct Part {
    name: &'static str,
    /// Variables and a cargo command; SEED stands for the seed.
    line: &'static str,
    /// What a line must contain to be a count of what was done.
    counts: &'static str,
}

const PARTS: [Part; 11] = [
    Part {
        name: "crash simulation",
        line: "VARVE_MODEL_SEED=SEED VARVE_CRASH_POINTS=1500 \
               cargo test -p varve --locked --features varve/sabotage --test crash_points -- --nocapture",
        counts: "Tried",
    },
    Part {
        name: "crash simulation, threads",
        line: "VARVE_MODEL_SEED=SEED VARVE_CRASH_POINTS=500 \
               cargo test -p varve --locked --features varve/sabotage --test crash_threads -- --nocapture",
        counts: "Tried",
    },
    Part {
        name: "models of parts",
        line: "VARVE_SEED=SEED VARVE_CASES=20 \
               cargo test -p varve --locked --features varve/sabotage --lib -- model:: intervals::",
        counts: "test result",
    },
    Part {
        name: "models of the whole",
        line: "VARVE_SEED=SEED VARVE_CASES=10 VARVE_MODEL_SEED=SEED VARVE_MODEL_STEPS=20000 \
               cargo test -p varve --locked --features varve/sabotage --test catalog_model --test model",
        counts: "test result",
    },
    Part {
        name: "failing disk",
        line: "VARVE_FAULT_SEED=SEED VARVE_FAULT_POINTS=300 \
               cargo test -p varve --locked --features varve/sabotage --test faults",
        counts: "test result",
    },
    Part {
        name: "killed server",
        line: "cargo xtask stress --server --rounds 6 --seed SEED",
        counts: " rounds, ",
    },
    Part {
        name: "killed program",
        line: "cargo xtask stress --embedded --rounds 20 --seed SEED",
        counts: " rounds, ",
    },
    Part {
        name: "killed server, binary log",
        line: "cargo xtask stress --binlog --rounds 4 --seed SEED",
        counts: " rounds, ",
    },
    Part {
        name: "full disk",
        line: "cargo xtask stress --full --rounds 5 --seed SEED",
        counts: " rounds, ",
    },
    Part {
        name: "isolation histories",
        line: "VARVE_SEED=SEED cargo test -p varve --locked --features varve/sabotage --test histories",
        counts: "test result",
    },
    Part {
        name: "fuzzing",
        // It draws its own seed; inputs that fail are kept.
        line: "cargo xtask fuzz --seconds 20",
        counts: " executions",
    },
];

#[derive(Default)]
struct Tally {
    rounds: u32,
    failed: Vec<String>,
    time: Duration,
}

pub fn run(workspace: &Workspace, args: &SoakArgs) -> Result<ExitCode> {
    let end = Instant::now() + Duration::from_secs_f64(args.minutes * 60.0);
    let wanted = |part: &&Part| {
        args.only
            .as_ref()
            .is_none_or(|only| part.name.contains(only))
    };
    let parts: Vec<&Part> = PARTS.iter().filter(wanted).collect();
    let mut tallies: Vec<Tally> = parts.iter().map(|_| Tally::default()).collect();
    'time: for round in 1.. {
        for (part, tally) in parts.iter().zip(&mut tallies) {
            if Instant::now() >= end {
                break 'time;
            }
            // As a number that every part takes.
            let line = part.line.replace("SEED", &fastrand::u32(..).to_string());
            let line: Vec<&str> = line.split_whitespace().collect();
            let line = line.join(" ");
            println!("== round {round}, {}: {line}", part.name);
            let begin = Instant::now();
            let succeeded = play(workspace, &line, part.counts)?;
            tally.time += begin.elapsed();
            tally.rounds += 1;
            if !succeeded {
                println!("FAILED: {line}");
                tally.failed.push(line);
            }
        }
        if parts.is_empty() {
            break;
        }
    }
    Ok(summary(&parts, &tallies))
}

/// Runs a line, whose first words may set variables.
fn play(workspace: &Workspace, line: &str, counts: &str) -> Result<bool> {
    let mut words = line.split(' ').peekable();
    let mut variables = Vec::new();
    while let Some(variable) = words.next_if(|word| word.contains('=')) {
        variables.extend(variable.split_once('='));
    }
    words
        .next_if_eq(&"cargo")
        .context("a line is a cargo command")?;
    let program: OsString = match words.next_if_eq(&"xtask") {
        Some(_) => env::current_exe().context("where is this program?")?.into(),
        None => cargo().into(),
    };
    let mut cmd = Cmd::new(program)
        .args(words)
        .env("CARGO_TARGET_DIR", &workspace.target)
        .dir(&workspace.root);
    for (name, value) in variables {
        cmd = cmd.env(name, value);
    }
    let mut counted = Vec::new();
    let succeeded = command::stream(cmd, |said| {
        if said.contains(counts) {
            counted.push(said.to_string());
        }
    })?;
    Ok(succeeded && !counted.is_empty())
}

fn summary(parts: &[&Part], tallies: &[Tally]) -> ExitCode {
    println!(
        "\n{:<28} {:>6} {:>6} {:>9}",
        "", "rounds", "failed", "minutes"
    );
    for (part, tally) in parts.iter().zip(tallies) {
        println!(
            "{:<28} {:>6} {:>6} {:>9.1}",
            part.name,
            tally.rounds,
            tally.failed.len(),
            tally.time.as_secs_f64() / 60.0
        );
    }
    let failed: Vec<&String> = tallies.iter().flat_map(|tally| &tally.failed).collect();
    for line in &failed {
        println!("to repeat: {line}");
    }
    match failed.is_empty() && tallies.iter().any(|tally| tally.rounds > 0) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
