//! `cargo xtask soak`: the tests that draw what they do, in turn and with fresh seeds, for as long as there
//! is time.
//!
//! Each part is a command line with its seed. What fails is written down with that line, which does the same
//! again; the others go on. At the end the lines in which the parts counted what they did are shown, each
//! kind once, with the sums of their numbers.

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use varve_testbed::command::{self, Cmd};
use varve_testbed::workspace::{Workspace, cargo};

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
    /// Variables and a cargo command; `{seed}` stands for the seed.
    line: &'static str,
    /// What a line must contain to be a count of what was done.
    counts: &'static str,
}

impl Part {
    fn line_with(&self, seed: u32) -> String {
        let line = self.line.replace("{seed}", &seed.to_string());
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

const PARTS: [Part; 13] = [
    Part {
        name: "crash simulation",
        line: "VARVE_MODEL_SEED={seed} VARVE_CRASH_POINTS=1500 \
               cargo test -p varve --locked --features varve/sabotage --test crash_points -- --nocapture",
        counts: "crash points",
    },
    Part {
        name: "crash simulation, threads",
        line: "VARVE_MODEL_SEED={seed} VARVE_CRASH_POINTS=500 \
               cargo test -p varve --locked --features varve/sabotage --test crash_threads -- --nocapture",
        counts: "crash points",
    },
    Part {
        name: "models of parts",
        line: "VARVE_SEED={seed} VARVE_CASES=20 \
               cargo test -p varve --locked --features varve/sabotage --lib -- model:: intervals::",
        counts: "test result",
    },
    Part {
        name: "models of the whole",
        line: "VARVE_SEED={seed} VARVE_CASES=10 VARVE_MODEL_SEED={seed} VARVE_MODEL_STEPS=20000 \
               cargo test -p varve --locked --features varve/sabotage --test catalog_model --test model",
        counts: "test result",
    },
    Part {
        name: "failing disk",
        line: "VARVE_FAULT_SEED={seed} VARVE_FAULT_POINTS=300 \
               cargo test -p varve --locked --features varve/sabotage --test faults",
        counts: "test result",
    },
    Part {
        name: "killed server",
        line: "cargo xtask stress --server --rounds 6 --seed {seed}",
        counts: " rounds, ",
    },
    Part {
        name: "killed program",
        line: "cargo xtask stress --embedded --rounds 20 --seed {seed}",
        counts: " rounds, ",
    },
    Part {
        name: "killed server, binary log",
        line: "cargo xtask stress --binlog --rounds 4 --seed {seed}",
        counts: " rounds, ",
    },
    Part {
        name: "full disk",
        line: "cargo xtask stress --full --rounds 5 --seed {seed}",
        counts: " rounds, ",
    },
    Part {
        name: "isolation histories",
        line: "VARVE_SEED={seed} cargo test -p varve --locked --features varve/sabotage --test histories \
               -- --nocapture",
        counts: "judged",
    },
    Part {
        name: "random SQL",
        line: "cargo xtask random-sql --seconds 120 --seed {seed}",
        counts: " statements in ",
    },
    Part {
        name: "random SQL, sessions",
        line: "cargo xtask random-sql --sessions --seconds 60 --seed {seed}",
        counts: " statements in ",
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
    counts: Counts,
}

/// What was counted: texts, and the sums of the numbers in them.
#[derive(Default)]
struct Counts(Vec<(Vec<String>, Vec<f64>)>);

impl Counts {
    /// Adds the numbers of a line to those of earlier lines with the same words.
    fn add(&mut self, line: &str) {
        let mut words = Vec::new();
        let mut numbers = Vec::new();
        for word in line.split_whitespace() {
            let is_of_number = |c: char| c.is_ascii_digit() || c == '.';
            let (number, rest) =
                word.split_at(word.find(|c| !is_of_number(c)).unwrap_or(word.len()));
            match number.parse() {
                Ok(n) => {
                    numbers.push(n);
                    words.push(format!("{NUMBER}{rest}"));
                }
                Err(_) => words.push(word.into()),
            }
        }
        match self.0.iter_mut().find(|(known, _)| *known == words) {
            Some((_, sums)) => sums.iter_mut().zip(&numbers).for_each(|(sum, n)| *sum += n),
            None => self.0.push((words, numbers)),
        }
    }

    fn lines(&self) -> Vec<String> {
        let line = |(words, sums): &(Vec<String>, Vec<f64>)| {
            let mut sums = sums.iter();
            let with_sum = |word: &String| match word.strip_prefix(NUMBER) {
                Some(rest) => {
                    let sum = sums.next().expect("each stands for a number");
                    // Whole numbers have no decimals; times have one.
                    format!("{}{rest}", (sum * 10.0).round() / 10.0)
                }
                None => word.clone(),
            };
            words.iter().map(with_sum).collect::<Vec<_>>().join(" ")
        };
        self.0.iter().map(line).collect()
    }
}

/// Stands for a number in the words of a line.
const NUMBER: &str = "\0";

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
            let line = part.line_with(fastrand::u32(..));
            println!("== round {round}, {}: {line}", part.name);
            let begin = Instant::now();
            let succeeded = play(workspace, &line, part.counts, &mut tally.counts)?;
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
fn play(workspace: &Workspace, line: &str, counts: &str, total: &mut Counts) -> Result<bool> {
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
    let mut counted = false;
    let succeeded = command::stream(cmd, |said| {
        if said.contains(counts) {
            counted = true;
            total.add(said);
        }
    })?;
    Ok(succeeded && counted)
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
        for line in tally.counts.lines() {
            println!("    {line}");
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_takes_its_place_and_leaves_names_alone() {
        let models = PARTS.iter().find(|part| part.name == "models of the whole");
        let line = models.unwrap().line_with(17);
        let variables =
            "VARVE_SEED=17 VARVE_CASES=10 VARVE_MODEL_SEED=17 VARVE_MODEL_STEPS=20000 cargo test";
        assert!(line.starts_with(variables), "{line}");
        for part in &PARTS {
            let line = part.line_with(17);
            let is_seeded = line.contains("SEED=17 ") || line.ends_with("--seed 17");
            assert!(is_seeded || part.name == "fuzzing", "{line}");
        }
    }

    #[test]
    fn numbers_of_like_lines_are_added() {
        let mut counts = Counts::default();
        for line in [
            "stress: server: 6 rounds, 5 kills, in 60s",
            "page          1200 executions",
            "tried 10 crash points, in 1.25 s",
            "stress: server: 1 rounds, 1 kills, in 7s",
            "page  34 executions",
            "tried 3 crash points, in 2.5 s",
            "redo  1 executions  FAILED: see findings",
        ] {
            counts.add(line);
        }
        let expected = [
            "stress: server: 7 rounds, 6 kills, in 67s",
            "page 1234 executions",
            "tried 13 crash points, in 3.8 s",
            "redo 1 executions FAILED: see findings",
        ];
        assert_eq!(counts.lines(), expected);
    }
}
