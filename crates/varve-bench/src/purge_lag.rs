//! `bench purge-lag`: the history and the delay of writers, second by second, without and with a limit to
//! purge lag, and with one while a read view holds purge back.
//!
//! The engines take turns in one server. If purge keeps up by itself, that is said, and the same is tried
//! with a purge that is made as slow as the settings allow. What purge can take off is what it did take off
//! while nobody was delayed and there was more than enough.

use std::fmt::Display;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use varve_testbed::client::Client;
use varve_testbed::server::Engine;
use varve_testbed::workspace::Workspace;

use crate::benchmark::{Benchmark, Common};
use crate::load::{self, CAUGHT_UP, Load};
use crate::sysbench::Sysbench;

#[derive(clap::Args)]
pub struct PurgeLagArgs {
    /// Rows of the table
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Clients that update
    #[arg(long, default_value_t = 16)]
    threads: u32,
    /// Seconds of each load
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    time: u64,
    /// The limit
    #[arg(long, default_value_t = 200_000)]
    limit: u64,
    /// Microseconds by which a row change is delayed at most
    #[arg(long, default_value_t = 50_000)]
    delay: u64,
    /// Wait so many seconds for purge after each load
    #[arg(long, default_value_t = 120)]
    patience: u64,
    #[command(flatten)]
    common: Common,
}

impl PurgeLagArgs {
    /// Microseconds: jumps of smaller delays are not looked at.
    fn least_delay(&self) -> f64 {
        self.delay as f64 / 10.0
    }
}

const SETTINGS: [&str; 4] = [
    "buffer-pool-size=2G",
    "log-file-size=1G",
    "doublewrite=ON",
    "flush-log-at-trx-commit=2",
];
/// Lines of the table of a load.
const LINES: usize = 12;

#[derive(Clone, Copy)]
struct Second {
    updates: f64,
    history: f64,
    delay_us: f64,
}

/// A load, and what came after it.
struct Phase {
    name: &'static str,
    seconds: Vec<Second>,
    /// Logs a second that purge took off.
    purge_rate: f64,
    /// Until all was purged; `None`: patience ended first.
    after: Option<Duration>,
}

impl Phase {
    fn updates(&self) -> f64 {
        self.seconds.iter().map(|s| s.updates).sum::<f64>() / self.seconds.len() as f64
    }

    fn longest_history(&self) -> f64 {
        self.seconds.iter().map(|s| s.history).fold(0.0, f64::max)
    }

    fn longest_delay(&self) -> f64 {
        self.seconds.iter().map(|s| s.delay_us).fold(0.0, f64::max)
    }

    /// By how much the delay changed from one second to the next at most, as a share of the larger one.
    /// Delays below `least` are not looked at: one that begins is many times that of the second before.
    fn delay_jump(&self, least: f64) -> f64 {
        let delays: Vec<f64> = self.seconds.iter().map(|s| s.delay_us).collect();
        largest_jump(&delays, least)
    }

    fn updates_jump(&self) -> f64 {
        let updates: Vec<f64> = self.seconds.iter().map(|s| s.updates).collect();
        largest_jump(&updates, 0.0)
    }
}

fn largest_jump(values: &[f64], least: f64) -> f64 {
    let pairs = values.windows(2).filter(|p| p[0] > least && p[1] > least);
    let jump = |p: &[f64]| (p[1] - p[0]).abs() / p[0].max(p[1]);
    pairs.map(jump).fold(0.0, f64::max)
}

/// What happened to one engine.
struct Outcome {
    engine: Engine,
    /// Purge kept up with its normal settings: the longest history.
    keeps_up: Option<f64>,
    phases: Vec<Phase>,
}

pub fn run(workspace: &Workspace, args: &PurgeLagArgs) -> Result<()> {
    let benchmark = Benchmark::begin(workspace, "purge-lag", &args.common)?;
    let mut server = benchmark.server(&SETTINGS)?;
    let databases = server.databases(1, args.rows);
    let outcomes = server.each(&databases, |_, table| {
        table.prepare("oltp_update_index", 1)?;
        let outcome = Run::new(table, args)?.all()?;
        if !args.common.json {
            print(&outcome, args);
        }
        Ok(outcome)
    })?;
    server.end()?;
    let results = outcomes.iter().map(|outcome| to_json(outcome, args));
    benchmark.end(json!({
        "rows": args.rows, "threads": args.threads, "limit": args.limit, "delay_usec": args.delay,
        "settings": SETTINGS, "results": results.collect::<Vec<_>>(),
    }));
    Ok(())
}

struct Run<'a> {
    table: &'a Sysbench<'a>,
    args: &'a PurgeLagArgs,
    client: Client,
    engine: Engine,
    history: String,
}

impl<'a> Run<'a> {
    fn new(table: &'a Sysbench<'a>, args: &'a PurgeLagArgs) -> Result<Run<'a>> {
        let (engine, mut client) = (table.engine, Client::connect(&table.socket)?);
        if engine == Engine::Innodb {
            client.query("SET GLOBAL innodb_monitor_enable = 'purge_dml_delay_usec'")?;
        }
        Ok(Run {
            table,
            args,
            client,
            engine,
            history: load::history_name(engine),
        })
    }

    fn all(mut self) -> Result<Outcome> {
        self.set("max_purge_lag_delay", self.args.delay)?;
        let mut free = self.phase("no limit")?;
        let keeps_up =
            (free.longest_history() <= self.args.limit as f64).then(|| free.longest_history());
        if keeps_up.is_some() {
            self.slow_down_purge()?;
            free = self.phase("no limit")?;
        }
        self.set("max_purge_lag", self.args.limit)?;
        let limited = self.phase("limit")?;
        let mut reader = load::open_view(self.table)?;
        let held = self.load("limit and view")?;
        reader.query("COMMIT")?;
        let held = self.wait_for_purge(held)?;
        for name in ["max_purge_lag", "purge_threads", "purge_batch_size"] {
            self.set(name, "DEFAULT")?;
        }
        Ok(Outcome {
            engine: self.engine,
            keeps_up,
            phases: vec![free, limited, held],
        })
    }

    fn set(&mut self, name: &str, value: impl Display) -> Result<()> {
        load::set(&mut self.client, self.engine, name, value)
    }

    /// As slow as the settings allow.
    fn slow_down_purge(&mut self) -> Result<()> {
        let threads = match self.engine {
            Engine::Varve => 0,
            Engine::Innodb => 1,
        };
        self.set("purge_threads", threads)?;
        self.set("purge_batch_size", 1)
    }

    fn phase(&mut self, name: &'static str) -> Result<Phase> {
        let phase = self.load(name)?;
        self.wait_for_purge(phase)
    }

    fn load(&mut self, name: &'static str) -> Result<Phase> {
        let first = self.look()?;
        let load = Load::updates(self.table, self.args.threads, u64::MAX)?;
        let (mut seconds, mut before) = (Vec::new(), first.clone());
        let begun = Instant::now();
        for n in 1..=self.args.time {
            let until = begun + Duration::from_secs(n);
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
            let now = self.look()?;
            let time = (now.at - before.at).as_secs_f64();
            seconds.push(Second {
                updates: (now.updates - before.updates) as f64 / time,
                history: now.history as f64,
                delay_us: now.delay_us as f64,
            });
            before = now;
        }
        load.stop()?;
        let added = (before.updates - first.updates) as f64;
        let grown = before.history as f64 - first.history as f64;
        Ok(Phase {
            name,
            seconds,
            purge_rate: (added - grown) / (before.at - first.at).as_secs_f64(),
            after: None,
        })
    }

    fn wait_for_purge(&mut self, mut phase: Phase) -> Result<Phase> {
        let patience = Duration::from_secs(self.args.patience);
        let (client, engine) = (&mut self.client, self.engine);
        phase.after = load::time_of_history(client, engine, CAUGHT_UP, patience)?;
        if phase.after.is_none() {
            // It would be in the way of what follows.
            let batch = format!("{}_purge_batch_size", engine.option_prefix());
            let before = client.value(&format!("SELECT @@GLOBAL.{batch}"))?;
            load::set(client, engine, "purge_batch_size", 1000)?;
            load::wait_for_history(client, engine, CAUGHT_UP, Duration::from_secs(3600))?;
            load::set(client, engine, "purge_batch_size", before)?;
        }
        Ok(phase)
    }

    fn look(&mut self) -> Result<Look> {
        let metrics = format!("information_schema.{}_metrics", self.engine.option_prefix());
        let sql = format!("SELECT count FROM {metrics} WHERE name = 'purge_dml_delay_usec'");
        let delay_us = self.client.value(&sql)?.parse()?;
        let values = load::status(&mut self.client, &["Com_update", &self.history])?;
        Ok(Look {
            at: Instant::now(),
            updates: values[0],
            history: values[1],
            delay_us,
        })
    }
}

#[derive(Clone)]
struct Look {
    at: Instant,
    updates: u64,
    history: u64,
    delay_us: u64,
}

fn print(outcome: &Outcome, args: &PurgeLagArgs) {
    println!(
        "{}: {} clients, {} s each, limit {}, at most {} µs",
        outcome.engine.name(),
        args.threads,
        args.time,
        args.limit,
        args.delay
    );
    if let Some(history) = outcome.keeps_up {
        println!(
            "purge keeps up by itself, the history was {history:.0} at most; it is slowed down for what follows"
        );
    }
    for phase in &outcome.phases {
        print!("{:<15} second:", phase.name);
        let every = phase.seconds.len().div_ceil(LINES);
        let shown: Vec<(usize, &Second)> = phase
            .seconds
            .iter()
            .enumerate()
            .skip(every - 1)
            .step_by(every)
            .collect();
        let row = |title: &str, figure: &dyn Fn(usize, &Second) -> f64| {
            let figures = shown
                .iter()
                .map(|(n, second)| format!("{:>8.0}", figure(*n, second)));
            println!("{title:>10} {}", figures.collect::<String>());
        };
        row("", &|n, _| (n + 1) as f64);
        for (title, figure) in [
            ("updates/s", (|s| s.updates) as fn(&Second) -> f64),
            ("history", |s| s.history),
            ("delay µs", |s| s.delay_us),
        ] {
            print!("{:<23}", "");
            row(title, &|_, second| figure(second));
        }
    }
    for phase in &outcome.phases {
        let after = match phase.after {
            Some(time) => format!("{:.1} s", time.as_secs_f64()),
            None => format!("more than {} s", args.patience),
        };
        println!(
            "{:<15} {:>7.0} updates/s, purge {:>7.0}/s, history at most {:.2} limits, delay at most {:.0} µs, largest jump of the delay {:.0}%, of the \
             updates {:.0}%, all purged after {after}",
            phase.name,
            phase.updates(),
            phase.purge_rate,
            phase.longest_history() / args.limit as f64,
            phase.longest_delay(),
            100.0 * phase.delay_jump(args.least_delay()),
            100.0 * phase.updates_jump(),
        );
    }
    if outcome.engine == Engine::Innodb {
        // The aims are ours, and its metric shows the longest delay while nobody is delayed, too.
        return;
    }
    for (aim, is_met) in verdicts(outcome, args) {
        println!("{}: {aim}", if is_met { "met" } else { "missed" });
    }
}

fn verdicts(outcome: &Outcome, args: &PurgeLagArgs) -> Vec<(&'static str, bool)> {
    let [free, limited, held] = &outcome.phases[..] else {
        unreachable!("three loads");
    };
    let limit = args.limit as f64;
    let is_smooth = |phase: &Phase| phase.delay_jump(args.least_delay()) <= 0.5;
    let mut verdicts = Vec::new();
    if free.longest_history() <= limit {
        println!("even so purge keeps up: the limit was not reached; choose a lower one (--limit)");
    } else {
        let share = limited.updates() / free.purge_rate;
        let in_time = limited.after.is_some_and(|t| t <= Duration::from_secs(5));
        verdicts.extend([
            (
                "history at most 1.2 limits",
                limited.longest_history() <= 1.2 * limit,
            ),
            (
                "at least 95 % of what purge takes off without a limit",
                share >= 0.95,
            ),
            ("no jump of the delay by more than half", is_smooth(limited)),
            ("all purged within 5 s", in_time),
        ]);
    }
    let is_capped = held.longest_delay() <= args.delay as f64;
    verdicts.extend([
        (
            "the longest delay is kept under a view",
            is_capped && held.longest_delay() > 0.0,
        ),
        (
            "no jump of the delay by more than half under a view",
            is_smooth(held),
        ),
    ]);
    verdicts
}

fn to_json(outcome: &Outcome, args: &PurgeLagArgs) -> Value {
    let phases = outcome.phases.iter().map(|phase| {
        let series = |figure: fn(&Second) -> f64| phase.seconds.iter().map(figure).collect::<Vec<f64>>();
        json!({
            "load": phase.name, "updates_per_second": phase.updates(), "purge_per_second": phase.purge_rate,
            "longest_history": phase.longest_history(), "longest_delay_usec": phase.longest_delay(),
            "delay_jump": phase.delay_jump(args.least_delay()), "updates_jump": phase.updates_jump(),
            "purged_after_seconds": phase.after.map(|t| t.as_secs_f64()),
            "updates": series(|s| s.updates), "history": series(|s| s.history), "delay_usec": series(|s| s.delay_us),
        })
    });
    json!({
        "engine": outcome.engine.name(), "history_when_purge_keeps_up": outcome.keeps_up,
        "loads": phases.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_a_share_of_the_larger_of_two_neighbours() {
        assert_eq!(largest_jump(&[0.0, 800.0, 1000.0, 600.0, 90.0], 100.0), 0.4);
        assert_eq!(largest_jump(&[0.0, 800.0], 100.0), 0.0);
        assert_eq!(largest_jump(&[], 100.0), 0.0);
    }
}
