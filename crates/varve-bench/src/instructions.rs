//! `bench instructions`: how many instructions one operation takes, counted by callgrind. Unlike times these
//! figures are nearly the same on every run and every machine.
//!
//! The example `operations` of the crate runs twice, with few operations and with many; the difference is
//! what the others cost. Background threads count: purge belongs to the price of an update.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use crate::origin::Origin;
use varve_testbed::command::{self, Cmd};
use varve_testbed::workspace::{Workspace, cargo};

#[derive(clap::Args)]
pub struct InstructionsArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Print the functions that take most, too
    #[arg(long)]
    functions: bool,
    /// Only these operations
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

const OPERATIONS: [(&str, u64); 4] = [
    ("read", 20_000),
    ("update", 20_000),
    ("insert", 20_000),
    ("scan", 200_000),
];
/// What the run that is subtracted does: enough for everything to be warm.
const FEW: u64 = 1000;
/// Has the C library copy and clear long stretches without `rep movsb` and `rep stosb`.
const WITHOUT_REP: &str =
    "glibc.cpu.x86_rep_movsb_threshold=1073741824:glibc.cpu.x86_rep_stosb_threshold=1073741824";
/// Functions listed for each operation.
const LINES: usize = 40;

pub fn run(workspace: &Workspace, args: &InstructionsArgs) -> Result<()> {
    let origin = Origin::here(workspace)?;
    if !args.json {
        println!("instructions: {origin}");
    }
    let args_of_cargo = [
        "build",
        "--release",
        "--locked",
        "--quiet",
        "--package",
        "varve",
    ];
    command::run(
        Cmd::new(cargo())
            .args(args_of_cargo)
            .args(["--example", "operations"])
            .dir(&workspace.root),
    )?;
    let program = workspace.target.join("release/examples/operations");
    let mut figures = Vec::new();
    for (operation, count) in OPERATIONS {
        if !args.only.is_empty() && !args.only.iter().any(|name| name == operation) {
            continue;
        }
        let profile = |count: u64| {
            workspace
                .target
                .join(format!("callgrind.{operation}.{count}"))
        };
        let few = counted(&program, operation, FEW, &profile(FEW))?;
        let many = counted(&program, operation, FEW + count, &profile(FEW + count))?;
        let each = (many - few) as f64 / count as f64;
        if !args.json {
            println!("{operation:<8} {each:>10.0} instructions");
        }
        if args.functions {
            print_functions(&profile(FEW + count))?;
        }
        figures.push(json!({"operation": operation, "instructions": each}));
    }
    if args.json {
        let mut result = json!({"benchmark": "instructions", "figures": figures});
        origin.add_to(&mut result);
        println!("{result:#}");
    }
    Ok(())
}

/// Runs the program under callgrind; returns the instructions of all its threads.
fn counted(program: &Path, operation: &str, count: u64, profile: &PathBuf) -> Result<u64> {
    let mut option = std::ffi::OsString::from("--callgrind-out-file=");
    option.push(profile);
    command::output(
        Cmd::new("valgrind")
            // Threads take turns: otherwise one that waits for another can keep it from running for very
            // long.
            .args(["--tool=callgrind", "--quiet", "--fair-sched=yes"])
            .arg(option)
            // Otherwise one instruction that copies or clears many bytes counts as one for each of them.
            .env("GLIBC_TUNABLES", WITHOUT_REP)
            .arg(program)
            .arg(operation)
            .arg(count.to_string()),
    )
    .context("counting instructions takes valgrind")?;
    let text = fs::read_to_string(profile)?;
    let line = text.lines().find_map(|line| {
        line.strip_prefix("totals: ")
            .or_else(|| line.strip_prefix("summary: "))
    });
    let total = line.and_then(|numbers| numbers.split_whitespace().next());
    let total = total.with_context(|| format!("no totals in {}", profile.display()))?;
    Ok(total.parse()?)
}

fn print_functions(profile: &Path) -> Result<()> {
    let text = command::output(Cmd::new("callgrind_annotate").arg("--auto=no").arg(profile))?;
    let functions = text
        .lines()
        .filter(|line| line.contains('%') && line.contains(':'));
    functions.take(LINES).for_each(|line| println!("  {line}"));
    Ok(())
}
