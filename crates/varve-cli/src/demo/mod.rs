//! `varve demo`: what a forgotten reader costs, with the history store and without, which is how InnoDB does
//! it. Writers change random rows all the time, in four acts of the same length. At the end of each the rows
//! are read under the forgotten snapshot, if there is one, and under a fresh one.

mod load;
mod report;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use varve::{Database, HistoryOptions, Isolation, Options, Table, Transaction};
use varve_monitor::{Monitor, MonitorOptions, text};

use self::load::{Writers, fill, read_all};
use self::report::{ActReport, report};
use crate::Outcome;
use crate::top;

#[derive(clap::Args)]
pub struct Args {
    /// How long it takes, in seconds, from 8 on
    #[arg(long, default_value = "60", value_parser = clap::value_parser!(u64).range(8..))]
    seconds: u64,
    /// How many rows there are, from 1000 on
    #[arg(long, default_value = "100000", value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    rows: u64,
    /// How many threads change them
    #[arg(long, default_value = "2", value_parser = clap::value_parser!(u64).range(1..=256))]
    writers: u64,
    /// An empty directory for the database, which stays; without, it is a temporary one, which goes
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Where the monitor listens meanwhile; port 0: one that is free
    #[arg(long, default_value = "127.0.0.1:0")]
    monitor: String,
    /// A line a second instead of the dashboard
    #[arg(long)]
    plain: bool,
}

/// Commits are not synced, so that the disk is not what is measured.
fn options() -> Options {
    Options {
        buffer_pool_bytes: 256 << 20,
        flush_log_at_trx_commit: varve::FlushLog::Lazy,
        logger: Some(std::sync::Arc::new(|_, _| {})),
        ..Options::default()
    }
}

pub fn run(args: &Args) -> Result<Outcome, String> {
    match &args.dir {
        Some(dir) => {
            let mut entries = std::fs::read_dir(dir).into_iter().flatten();
            if entries.next().is_some() {
                return Err(format!("{} is not empty", dir.display()));
            }
            play(args, dir)
        }
        None => {
            let dir = tempfile::tempdir().map_err(|e| format!("a temporary directory: {e}"))?;
            play(args, dir.path())
        }
    }
}

fn play(args: &Args, dir: &Path) -> Result<Outcome, String> {
    let failed = |e: varve::Error| e.to_string();
    let db = Database::open(dir, options()).map_err(failed)?;
    let monitor = Monitor::start(&db, MonitorOptions::new(&args.monitor)).map_err(failed)?;
    say(&format!("the monitor is at {}", monitor.url()));
    say(&format!("filling {} rows", text::count(args.rows)));
    let table = fill(&db, args.rows).map_err(failed)?;
    let stage = Stage {
        act: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
    };
    let shows = !args.plain && io::stdout().is_terminal();
    let played = thread::scope(|scope| {
        let (db, table, stage) = (&db, &table, &stage);
        let tells = !shows;
        let play = Play {
            db,
            table,
            stage,
            tells,
        };
        let played = scope.spawn(move || play.acts(args));
        if shows {
            let client = top::client::Client::new(&monitor.address().to_string(), None);
            let title = || Some(ACTS[stage.act.load(Ordering::Relaxed)].title.into());
            let mut next = || (!played.is_finished()).then(title);
            let watched = top::watch(client, &mut next);
            // Who has seen enough gets the report of what was played.
            stage.stop.store(true, Ordering::Relaxed);
            watched?;
        }
        played.join().expect("it does not panic").map_err(failed)
    });
    monitor.stop();
    say(&report(&played?));
    db.close().map_err(failed)?;
    Ok(Outcome::Clean)
}

/// Who reads no more is told no more.
fn say(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

/// What the player and the audience tell each other. Relaxed: a number and a flag, each for itself.
struct Stage {
    /// Which of `ACTS` is played.
    act: AtomicUsize,
    /// The audience has had enough.
    stop: AtomicBool,
}

impl Stage {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    None,
    WithStore,
    WithoutStore,
}

struct Act {
    title: &'static str,
    reader: Reader,
}

const ACTS: [Act; 4] = [
    Act {
        title: "nobody reads for long",
        reader: Reader::None,
    },
    Act {
        title: "a forgotten snapshot",
        reader: Reader::WithStore,
    },
    Act {
        title: "another one, with the store off, as in InnoDB",
        reader: Reader::WithoutStore,
    },
    Act {
        title: "it has ended: purge catches up",
        reader: Reader::None,
    },
];

/// The forgotten reader's number in the monitor.
const READER: u64 = 10;

struct Play<'a> {
    db: &'a Database,
    table: &'a Table,
    stage: &'a Stage,
    /// Prints what goes on.
    tells: bool,
}

impl Play<'_> {
    fn acts(&self, args: &Args) -> varve::Result<Vec<ActReport>> {
        let writers = Writers::start(self.db, self.table, args.rows, args.writers);
        let length = Duration::from_secs(args.seconds) / ACTS.len() as u32;
        let mut reports = Vec::new();
        for (number, act) in ACTS.iter().enumerate() {
            if self.stage.is_stopped() {
                break;
            }
            self.stage.act.store(number, Ordering::Relaxed);
            if self.tells {
                say(act.title);
            }
            reports.push(self.act(act, length, &writers)?);
        }
        writers.stop()?;
        Ok(reports)
    }

    fn act(&self, act: &Act, length: Duration, writers: &Writers) -> varve::Result<ActReport> {
        let (db, table) = (self.db, self.table);
        db.set_history_options(HistoryOptions {
            store: act.reader != Reader::WithoutStore,
            ..HistoryOptions::default()
        })?;
        let mut reader = match act.reader {
            Reader::None => None,
            _ => Some(forgotten(db, table)?),
        };
        let (begun, commits) = (Instant::now(), writers.commits());
        let mut caught_up = None;
        for tenth in 0.. {
            if begun.elapsed() >= length || self.stage.is_stopped() {
                break;
            }
            thread::sleep(Duration::from_millis(100));
            let seen = Seen::of(db);
            if caught_up.is_none() && seen.history < report::SHORT_HISTORY {
                caught_up = Some(begun.elapsed());
            }
            if self.tells && tenth % 10 == 9 {
                say(&seen.line());
            }
        }
        let commits = (writers.commits() - commits) as f64 / begun.elapsed().as_secs_f64();
        let seen = Seen::of(db);
        let fresh = read_all(table, &mut db.begin(Isolation::RepeatableRead))?;
        let old = reader.as_mut().map(|trx| read_all(table, trx));
        let old = old.transpose()?;
        Ok(ActReport {
            title: act.title,
            commits,
            history: seen.history,
            undo_bytes: seen.undo_bytes,
            store_bytes: seen.store_bytes,
            old_by_fresh: old.map(|old| old.as_secs_f64() / fresh.as_secs_f64()),
            caught_up,
        })
    }
}

/// It reads once, and then its owner goes to lunch.
fn forgotten(db: &Database, table: &Table) -> varve::Result<Transaction> {
    let mut trx = db.begin(Isolation::RepeatableRead);
    trx.set_session(READER);
    table.get(&mut trx, varve::values![0])?;
    Ok(trx)
}

struct Seen {
    history: u64,
    undo_bytes: u64,
    store_bytes: u64,
}

impl Seen {
    fn of(db: &Database) -> Seen {
        let status = db.status();
        let one = |wanted| {
            let found = status.iter().find(|(name, _)| *name == wanted);
            found.map_or(0, |(_, value)| *value)
        };
        Seen {
            history: one("history_list_length"),
            undo_bytes: one("undo_size_bytes"),
            store_bytes: one("history_store_bytes"),
        }
    }

    fn line(&self) -> String {
        let (history, undo) = (text::count(self.history), text::bytes(self.undo_bytes));
        let store = text::bytes(self.store_bytes);
        format!("  history {history}, undo files {undo}, history store {store}")
    }
}
