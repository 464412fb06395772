//! `bench dictionary`: what a start costs with few tables and with many, after an orderly end and after a
//! kill, what memory many tables take, and how fast they are made and dropped.
//!
//! The example `many_tables` of the crate does it, one process for each step, with pages of 4 KiB and a table
//! cache of 400, as the server has it. A kill leaves redo for so many tables.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::json;
use varve_testbed::command::{self, Cmd};
use varve_testbed::workspace::{Workspace, cargo, remove_dir};

use crate::origin::Origin;

/// How many tables, here and in `bench many-tables`.
#[derive(clap::Args)]
pub struct Counts {
    /// Many
    #[arg(long, default_value_t = 100_000)]
    pub tables: u64,
    /// Few
    #[arg(long, default_value_t = 100)]
    pub few: u64,
    /// Tables of which a kill leaves redo, if there are so many
    #[arg(long, default_value_t = 1000)]
    pub killed: u64,
}

#[derive(clap::Args)]
pub struct DictionaryArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    counts: Counts,
    /// Where the databases are made
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Starts that are tried of each kind: the fastest counts, as others wait for something else.
const STARTS: usize = 5;

struct Program {
    path: PathBuf,
    dir: PathBuf,
}

impl Program {
    /// What it prints, also when it kills itself.
    fn run(&self, what: &str, tables: u64) -> Result<String> {
        let output = std::process::Command::new(&self.path)
            .arg(&self.dir)
            .args([what, &tables.to_string()])
            .output()
            .with_context(|| self.path.display().to_string())?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
    }

    /// The fastest of several starts; before each of them `prepare` is run.
    fn start(&self, prepare: impl Fn() -> Result<()>) -> Result<String> {
        let mut best: Option<(f64, String)> = None;
        for _ in 0..STARTS {
            prepare()?;
            let told = self.run("open", 0)?;
            let ms = told.split(' ').nth(1).and_then(|ms| ms.parse().ok());
            let ms: f64 = ms.with_context(|| format!("no time in {told:?}"))?;
            if best.as_ref().is_none_or(|(least, _)| ms < *least) {
                best = Some((ms, told));
            }
        }
        Ok(best.expect("it was started").1)
    }
}

fn measure(program: &Program, tables: u64, killed: u64) -> Result<Vec<(String, String)>> {
    let killed = killed.min(tables);
    let row = |what: &str, told: String| (format!("{tables} tables, {what}"), told);
    Ok(vec![
        row("made", program.run("create", tables)?),
        row("start after an orderly end", program.start(|| Ok(()))?),
        row(
            &format!("start after a kill with redo for {killed}"),
            program.start(|| program.run("write", killed).map(drop))?,
        ),
        row("memory when each was used", program.run("touch", tables)?),
        row("dropped", program.run("drop", tables)?),
    ])
}

fn build(workspace: &Workspace) -> Result<PathBuf> {
    command::run(
        Cmd::new(cargo())
            .args(["build", "--release", "--locked", "--quiet"])
            .args(["--package", "varve", "--example", "many_tables"])
            .dir(&workspace.root),
    )?;
    Ok(workspace.target.join("release/examples/many_tables"))
}

pub fn run(workspace: &Workspace, args: &DictionaryArgs) -> Result<()> {
    let origin = Origin::here(workspace)?;
    if !args.json {
        println!("dictionary: {origin}");
    }
    let dir = args.dir.clone();
    let program = Program {
        path: build(workspace)?,
        dir: dir
            .unwrap_or_else(|| workspace.target.clone())
            .join("bench-dictionary"),
    };
    let mut figures = Vec::new();
    for tables in [args.counts.few, args.counts.tables] {
        remove_dir(&program.dir)?;
        for (what, told) in measure(&program, tables, args.counts.killed)? {
            if !args.json {
                println!("{what:<60} {told}");
            }
            figures.push(json!({"what": what, "figures": told}));
        }
    }
    remove_dir(&program.dir)?;
    if args.json {
        let mut result = json!({"benchmark": "dictionary", "figures": figures});
        origin.add_to(&mut result);
        println!("{result:#}");
    }
    Ok(())
}
