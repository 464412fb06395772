//! `bench backup`: a backup of a server under load. How long it takes, what it takes from the load, how large
//! it is, and how long it is from there to a server that answers.
//!
//! Each engine has a server of its own with nothing but its tables: Varve's, which runs without InnoDB, is
//! backed up by `varve backup` alone, InnoDB's by mariadb-backup. Both are restored into a directory of their
//! own: what was copied is copied back, mariadb-backup prepares InnoDB's part, and a server is started and
//! counts the rows. When the load is over and its pages are written, another whole backup is made, a
//! hundredth of the rows is changed, and an increment on it is made.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use varve_testbed::client::Client;
use varve_testbed::command::{self, Cmd};
use varve_testbed::server::Engine;
use varve_testbed::workspace::{Workspace, remove_dir};

use crate::benchmark::{BenchServer, Benchmark, Common};
use crate::stats::Runs;
use crate::sysbench::Sysbench;
use crate::table::{figures_to_json, print_figures};

#[derive(clap::Args)]
pub struct BackupArgs {
    /// Rows of each table
    #[arg(long, default_value_t = 500_000)]
    rows: u64,
    #[arg(long, default_value_t = 4)]
    tables: u32,
    /// MiB of the buffer pool
    #[arg(long, default_value_t = 256)]
    pool: u64,
    /// Clients of the load
    #[arg(long, default_value_t = 16)]
    threads: u32,
    /// Seconds of the load before the backup begins
    #[arg(long, default_value_t = 20)]
    before: u64,
    /// Seconds of the load from then on: longer than the backup takes
    #[arg(long, default_value_t = 60)]
    time: u64,
    /// Threads that copy
    #[arg(long, default_value_t = 1)]
    copiers: u32,
    /// What sysbench runs
    #[arg(long, default_value = "oltp_read_write")]
    script: String,
    /// How often everything is measured; the median counts
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    #[command(flatten)]
    common: Common,
}

/// What is measured, and its decimals.
const WHAT: [(&str, usize); 9] = [
    ("seconds of the backup", 1),
    ("transactions a second before", 0),
    ("transactions a second meanwhile", 0),
    ("share of those before", 3),
    ("MiB of the backup", 0),
    ("seconds until a restored server answers", 1),
    ("seconds of a backup without a load", 1),
    ("seconds of an increment after 1 % of changes", 1),
    ("MiB of the increment", 0),
];
type Figures = [f64; WHAT.len()];
/// Until the load runs as it does later.
const WARMUP: usize = 5;
/// Pages that may stay dirty.
const FEW_DIRTY: u64 = 50;
const PATIENCE: Duration = Duration::from_secs(60);

pub fn run(workspace: &Workspace, args: &BackupArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "backup", &args.common)?;
    let program = workspace.target.join("release/varve");
    let build = [
        "build",
        "--release",
        "--quiet",
        "--locked",
        "--package=varve-cli",
    ];
    let build = Cmd::new(varve_testbed::workspace::cargo())
        .args(build)
        .dir(&workspace.root);
    command::run(build.env("CARGO_TARGET_DIR", &workspace.target))?;
    let pool = format!("buffer-pool-size={}M", args.pool);
    let settings = [
        &pool[..],
        "flush-method=O_DIRECT",
        "log-file-size=512M",
        "io-capacity=2000",
    ];
    let mut runs = Runs::new(args.common.engines.len());
    for _ in 0..args.repeat {
        for (n, engine) in args.common.engines.iter().enumerate() {
            let mut server = benchmark.server_of(&[*engine], &settings)?;
            let databases = server.databases(args.tables, args.rows);
            let place = workspace.target.join("bench-backup-made");
            let figures = server.each(&databases, |server, database| {
                measure(server, database, args, (&program, &settings, &place))
            })?;
            server.end()?;
            remove_dir(&place)?;
            figures.into_iter().for_each(|figures| runs.add(n, figures));
        }
    }
    if !args.common.json {
        let figures = WHAT.into_iter().enumerate();
        let figures = figures.map(|(at, (name, decimals))| {
            (name.to_string(), decimals, move |figures: &Figures| {
                figures[at]
            })
        });
        print_figures(&runs, &args.common.engines, ("what:<44", 24), figures);
    }
    let names = WHAT.into_iter().map(|(name, _)| name.to_string());
    let by_engine = figures_to_json(&runs, &args.common.engines, names);
    benchmark.end(json!({"rows": args.rows, "tables": args.tables, "by_engine": by_engine}));
    Ok(())
}

fn measure(
    server: &BenchServer<'_>,
    database: &Sysbench<'_>,
    args: &BackupArgs,
    (program, settings, place): (&Path, &[&str], &Path),
) -> Result<Figures> {
    database.prepare(&args.script, 4)?;
    remove_dir(place)?;
    fs::create_dir_all(place)?;
    let (made, restored) = (place.join("made"), place.join("restored"));
    let loaded = Duration::from_secs(args.before + args.time);
    let (seconds, took) = thread::scope(|scope| -> Result<(Vec<f64>, Duration)> {
        let load = scope.spawn(|| database.run_by_seconds(&args.script, args.threads, loaded));
        thread::sleep(Duration::from_secs(args.before));
        let begun = Instant::now();
        let done = back_up(database, args, program, None, &made);
        let took = begun.elapsed();
        let seconds = load.join().expect("no panic")?;
        done.map(|()| (seconds, took))
    })?;
    let begin = args.before as usize;
    let end = (begin + took.as_secs_f64().ceil() as usize).min(seconds.len());
    anyhow::ensure!(
        begin < end && took < Duration::from_secs(args.time),
        "the backup took {took:?}: give the load more time"
    );
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (before, meanwhile) = (mean(&seconds[WARMUP..begin]), mean(&seconds[begin..end]));
    let bytes = bytes_of(&made)?;
    let begun = Instant::now();
    restore(database, program, &made, &restored)?;
    let mut second = server.second(&restored, settings)?;
    let rows = second.connect()?.value(&format!(
        "SELECT COUNT(*) FROM {}.sbtest1",
        database.database
    ))?;
    let answered = begun.elapsed();
    anyhow::ensure!(
        rows == args.rows.to_string(),
        "{rows} rows are restored, of {}",
        args.rows
    );
    second.stop()?;
    let mut client = server.connect()?;
    wait_for_clean_pages(&mut client, database.engine)?;
    let (base, increment) = (place.join("base"), place.join("increment"));
    let timed = |base: Option<&Path>, made: &Path| {
        let begun = Instant::now();
        back_up(database, args, program, base, made)?;
        anyhow::Ok(begun.elapsed().as_secs_f64())
    };
    let whole = timed(None, &base)?;
    for table in 1..=args.tables {
        client.query(&format!(
            "UPDATE {}.sbtest{table} SET c = REVERSE(c) WHERE id <= {}",
            database.database,
            args.rows / 100
        ))?;
    }
    let part = timed(Some(&base), &increment)?;
    let part_bytes = bytes_of(&increment)?;
    Ok([
        took.as_secs_f64(),
        before,
        meanwhile,
        meanwhile / before,
        bytes as f64 / f64::from(1 << 20),
        answered.as_secs_f64(),
        whole,
        part,
        part_bytes as f64 / f64::from(1 << 20),
    ])
}

/// What the load has changed is written: an increment has what was written since its base, whenever it was
/// changed.
fn wait_for_clean_pages(client: &mut Client, engine: Engine) -> Result<()> {
    let prefix = engine.option_prefix();
    client.query(&format!(
        "SET GLOBAL {prefix}_max_dirty_pages_pct_lwm = 0, GLOBAL {prefix}_max_dirty_pages_pct = 0"
    ))?;
    let dirty = format!(
        "SELECT variable_value FROM information_schema.global_status WHERE variable_name = '{prefix}_buffer_pool_pages_dirty'"
    );
    let begun = Instant::now();
    while client.value(&dirty)?.parse::<u64>()? > FEW_DIRTY && begun.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

fn back_up(
    database: &Sysbench<'_>,
    args: &BackupArgs,
    program: &Path,
    base: Option<&Path>,
    made: &Path,
) -> Result<()> {
    let socket = format!("--socket={}", database.socket.display());
    let backup = match database.engine {
        Engine::Varve => database
            .prefix
            .own_program(program)
            .args(["backup", &socket, "--user=root"])
            .arg(format!("--threads={}", args.copiers))
            .args(base.map(|base| format!("--base={}", base.display())))
            .arg(made),
        Engine::Innodb => database
            .prefix
            .program("mariadb-backup")
            .args(["--no-defaults", "--backup", "--user=root", &socket])
            .arg(format!("--parallel={}", args.copiers))
            .args(base.map(|base| format!("--incremental-basedir={}", base.display())))
            .arg(format!("--target-dir={}", made.display())),
    };
    command::output(backup).map(drop)
}

fn restore(database: &Sysbench<'_>, program: &Path, made: &Path, to: &Path) -> Result<()> {
    match database.engine {
        Engine::Varve => {
            let varve = database.prefix.own_program(program);
            command::output(varve.arg("restore").arg(made).arg(to)).map(drop)
        }
        Engine::Innodb => {
            command::output(Cmd::new("cp").arg("-r").arg(made).arg(to))?;
            let prepare = database.prefix.program("mariadb-backup");
            let prepare = prepare.args(["--no-defaults", "--prepare"]);
            command::output(prepare.arg(format!("--target-dir={}", to.display()))).map(drop)
        }
    }
}

/// What the files below take on the disk.
fn bytes_of(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => bytes_of(&entry.path())?,
            false => entry.metadata()?.blocks() * 512,
        };
    }
    Ok(bytes)
}
