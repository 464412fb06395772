//! The figures of `bench long-reader`, as a table of medians or as JSON.

use std::time::Duration;

use serde_json::{Value, json};
use varve_testbed::server::Engine;

use super::picture::Timeline;
use super::{Held, LongReaderArgs};
use crate::stats::Spread;
use crate::table::Table;

/// What happened to one engine.
pub struct Outcome {
    pub engine: Engine,
    pub held: Held,
    /// While there were updates under the snapshot.
    pub longest_history: u64,
    pub tps_before: f64,
    pub tps_under: f64,
    /// `None`: patience ended first.
    pub catch_up: Option<Duration>,
    pub tps_catching_up: f64,
    pub tps_after: f64,
    /// Share of the windows of the catch-up that had less than half the median throughput of the windows
    /// before the snapshot.
    pub slow_windows: f64,
    pub timeline: Timeline,
}

struct Figure {
    /// Its name in JSON.
    key: &'static str,
    title: &'static str,
    decimals: usize,
    of: fn(&Outcome) -> f64,
}

const fn figure(
    key: &'static str,
    title: &'static str,
    decimals: usize,
    of: fn(&Outcome) -> f64,
) -> Figure {
    Figure {
        key,
        title,
        decimals,
        of,
    }
}

const FIGURES: [Figure; 19] = [
    figure("first_seconds", "first scan, s", 2, |o| {
        o.held.first.took.as_secs_f64()
    }),
    figure("again_seconds", "second scan, s", 2, |o| {
        o.held.again.took.as_secs_f64()
    }),
    figure("fresh_seconds", "fresh scan, s", 2, |o| {
        o.held.fresh.as_secs_f64()
    }),
    figure("scan_ratio", "second : fresh", 2, |o| {
        o.held.again.took.as_secs_f64() / o.held.fresh.as_secs_f64()
    }),
    figure("history", "history at the end", 0, |o| {
        o.held.history as f64
    }),
    figure("longest_history", "longest history", 0, |o| {
        o.longest_history as f64
    }),
    figure("undo_before_mib", "undo before, MiB", 1, |o| {
        mib(o.held.undo_before)
    }),
    figure("undo_mib", "undo, MiB", 1, |o| mib(o.held.undo_bytes)),
    figure("undo_ratio", "undo : before", 2, |o| {
        o.held.undo_bytes as f64 / o.held.undo_before as f64
    }),
    figure("store_mib", "history store, MiB", 1, |o| {
        mib(o.held.store_bytes)
    }),
    figure("table_mib", "table, MiB", 1, |o| mib(o.held.table_bytes)),
    figure("kept_ratio", "undo + store : table", 2, |o| {
        (o.held.undo_bytes + o.held.store_bytes) as f64 / o.held.table_bytes as f64
    }),
    figure("tps_before", "updates/s before", 0, |o| o.tps_before),
    figure("tps_under", "updates/s under it", 0, |o| o.tps_under),
    figure("under_ratio", "under it : before", 2, |o| {
        o.tps_under / o.tps_before
    }),
    // Endless where patience ended first; JSON has null then.
    figure("catch_up_seconds", "catch-up, s", 2, |o| {
        o.catch_up.map_or(f64::INFINITY, |time| time.as_secs_f64())
    }),
    figure("catching_up_ratio", "catch-up : before", 2, |o| {
        o.tps_catching_up / o.tps_before
    }),
    figure("after_ratio", "afterwards : before", 2, |o| {
        o.tps_after / o.tps_before
    }),
    figure("slow_windows", "slow windows", 3, |o| o.slow_windows),
];

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1048576.0
}

pub fn print(pool: &str, outcomes: &[Outcome], args: &LongReaderArgs) {
    println!(
        "pool {pool}: {} rows, {} updates under the snapshot, {} clients",
        args.rows, args.updates, args.threads
    );
    let engines = &args.common.engines;
    let columns = engines.iter().map(|engine| {
        let width = if args.repeat > 1 { 28 } else { 12 };
        format!("|{}:>{width}", engine.name())
    });
    let table = Table::new(&format!("median:<20{}", columns.collect::<String>()));
    table.print_head();
    for figure in &FIGURES {
        let cells = engines.iter().map(|engine| {
            let of_engine = outcomes.iter().filter(|o| o.engine == *engine);
            let runs: Vec<f64> = of_engine.map(figure.of).collect();
            figure.text(&runs).into()
        });
        table.print([figure.title.into()].into_iter().chain(cells));
    }
}

impl Figure {
    /// The median, and where there are several runs the least and the greatest.
    fn text(&self, runs: &[f64]) -> String {
        let Spread {
            median,
            least,
            greatest,
        } = Spread::of(runs);
        let decimals = self.decimals;
        match runs.len() {
            1 => format!("{median:.decimals$}"),
            _ => format!("{median:.decimals$} ({least:.decimals$}-{greatest:.decimals$})"),
        }
    }
}

pub fn to_json(outcome: &Outcome) -> Value {
    let held = &outcome.held;
    let mut json = json!({
        "engine": outcome.engine.name(), "tps_catching_up": outcome.tps_catching_up, "tps_after": outcome.tps_after,
        "count": held.first.count, "snapshot_sum": held.again.sum, "fresh_sum": held.fresh_sum,
        "timeline": outcome.timeline.to_json(),
    });
    for figure in &FIGURES {
        json[figure.key] = (figure.of)(outcome).into();
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_runs_show_how_far_they_lie_apart() {
        let figure = &FIGURES[0];
        assert_eq!(figure.text(&[1.234]), "1.23");
        assert_eq!(figure.text(&[3.0, 1.0, 2.5]), "2.50 (1.00-3.00)");
        assert_eq!(figure.text(&[f64::INFINITY]), "inf");
    }
}
