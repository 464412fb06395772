//! What the acts cost, as a table.

use std::fmt::Write;
use std::time::Duration;

use varve_monitor::text;

/// Transactions that purge works off in a moment.
pub const SHORT_HISTORY: u64 = 10_000;

pub struct ActReport {
    pub title: &'static str,
    /// By the second.
    pub commits: f64,
    /// These three at its end.
    pub history: u64,
    pub undo_bytes: u64,
    pub store_bytes: u64,
    /// The time that reading all rows takes under the forgotten snapshot, by that under a fresh one.
    pub old_by_fresh: Option<f64>,
    /// When the history was short first.
    pub caught_up: Option<Duration>,
}

pub fn report(acts: &[ActReport]) -> String {
    let mut out = String::from("\n");
    let row = |out: &mut String, cells: [&str; 6]| {
        let [act, commits, history, undo, store, read] = cells;
        writeln!(
            out,
            "{act:<46} {commits:>10} {history:>11} {undo:>11} {store:>11}  {read}"
        )
        .expect("a string takes everything");
    };
    row(
        &mut out,
        [
            "",
            "commits/s",
            "history",
            "undo files",
            "store",
            "reading all under the snapshot",
        ],
    );
    for act in acts {
        let read = act.old_by_fresh.map_or("–".into(), |ratio| {
            format!("{ratio:.1} times a fresh one's time")
        });
        let cells = [
            act.title,
            &text::count(act.commits.round() as u64),
            &text::count(act.history),
            &text::bytes(act.undo_bytes),
            &text::bytes(act.store_bytes),
            &read,
        ];
        row(&mut out, cells);
    }
    let [_, _, before, last] = acts else {
        return out;
    };
    if before.history < SHORT_HISTORY {
        return out;
    }
    let needed = match last.caught_up {
        Some(time) => format!("after {:.1} s purge had caught up", time.as_secs_f64()),
        None => format!("{} are still there", text::count(last.history)),
    };
    let history = text::count(before.history);
    let _ = writeln!(
        out,
        "\nWithout the store purge waited for the snapshot: {history} transactions were left when it ended; {needed}."
    );
    out
}
