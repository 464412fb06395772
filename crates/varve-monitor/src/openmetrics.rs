//! The metrics in the text format of OpenMetrics 1.0: a family for each metric, named as the status variable
//! with `varve_` before it; what the engine tells but does not count; and families of the undo tablespaces,
//! with labels.
//!
//! The format keeps the ending `_total` for counters, so a value whose name ends in it goes without. Units
//! are told where a name ends in one. Numbers stay as the engine counts them, in microseconds and
//! milliseconds, because the help texts say so.

use std::borrow::Cow;
use std::fmt::Write;

use varve::{Metric, MetricKind, Standing, UndoSpaceState, UndoTablespace};

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const UNITS: [&str; 3] = ["bytes", "seconds", "usec"];

const STATES: [UndoSpaceState; 3] = [
    UndoSpaceState::Active,
    UndoSpaceState::Inactive,
    UndoSpaceState::Empty,
];

pub fn text(metrics: &[Metric], standing: &Standing, undo: &[UndoTablespace]) -> String {
    let mut out = String::with_capacity(metrics.len() * 200);
    for metric in metrics {
        let (kind, ending) = match metric.kind {
            MetricKind::Counter => ("counter", "_total"),
            MetricKind::Value => ("gauge", ""),
        };
        let name = family_name(metric);
        family(&mut out, &name, kind, metric.comment);
        line(&mut out, format_args!("{name}{ending} {}", metric.value));
    }
    present(&mut out, standing);
    if !undo.is_empty() {
        tablespaces(&mut out, undo);
    }
    out.push_str("# EOF\n");
    out
}

fn family_name(metric: &Metric) -> String {
    let name = metric.status_name;
    let name = name.strip_suffix("_total").unwrap_or(name);
    format!("varve_{name}")
}

/// What the engine does not count, but an alert asks about.
fn present(out: &mut String, standing: &Standing) {
    let mut gauge = |name: &str, help: &str, value: u64| {
        family(out, name, "gauge", help);
        line(out, format_args!("{name} {value}"));
    };
    let view = standing.oldest_view;
    gauge(
        "varve_oldest_view_seconds",
        "For how long the oldest read view is known to be open; 0 without one",
        view.map_or(0, |view| view.open_for.as_secs()),
    );
    let store = standing.history_store.as_ref();
    gauge(
        "varve_history_store_lost",
        "1: the history store has failed, and the read views that rely on it can't read",
        u64::from(store.is_some_and(|store| store.lost.is_some())),
    );
    gauge(
        "varve_unusable",
        "1: the database has failed and takes no more work; the next start recovers it",
        u64::from(standing.unusable.is_some()),
    );
}

fn tablespaces(out: &mut String, undo: &[UndoTablespace]) {
    let mut gauge = |name: &str, help: &str, value: fn(&UndoTablespace) -> u64| {
        family(out, name, "gauge", help);
        for space in undo {
            line(
                out,
                format_args!("{name}{{{}}} {}", labels(space), value(space)),
            );
        }
    };
    gauge(
        "varve_undo_tablespace_size_bytes",
        "Size of the tablespace's file",
        |s| s.file_bytes,
    );
    gauge(
        "varve_undo_tablespace_used_pages",
        "Pages of the tablespace in use",
        |s| u64::from(s.used_pages),
    );
    gauge(
        "varve_undo_tablespace_history_length",
        "Undo logs of committed transactions in the tablespace that are not purged yet",
        |s| s.history_len,
    );
    let name = "varve_undo_tablespace_truncations";
    family(out, name, "counter", "Truncations of the tablespace");
    for space in undo {
        line(
            out,
            format_args!("{name}_total{{{}}} {}", labels(space), space.truncations),
        );
    }
    let name = "varve_undo_tablespace_state";
    family(
        out,
        name,
        "stateset",
        "Whether transactions may use the tablespace, or it is to be truncated",
    );
    for space in undo {
        for state in STATES {
            let is_so = u8::from(space.state == state);
            let (labels, state) = (labels(space), state.name());
            line(
                out,
                format_args!("{name}{{{labels},{name}=\"{state}\"}} {is_so}"),
            );
        }
    }
}

/// MON-4.
fn labels(space: &UndoTablespace) -> String {
    format!(
        "number=\"{}\",file=\"{}\"",
        space.number,
        escaped(&space.path)
    )
}

fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    line(out, format_args!("# TYPE {name} {kind}"));
    let unit = UNITS
        .iter()
        .find(|unit| name.ends_with(&format!("_{unit}")));
    if let Some(unit) = unit {
        line(out, format_args!("# UNIT {name} {unit}"));
    }
    line(out, format_args!("# HELP {name} {}", escaped(help)));
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a string takes everything");
}

/// As the format wants texts between quotes, and help texts.
fn escaped(text: &str) -> Cow<'_, str> {
    match text.contains(['\\', '"', '\n']) {
        false => text.into(),
        true => text
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use openmetrics_parser::openmetrics::parse_openmetrics;
    use varve::{Database, OldView, Options, StoreRoom, TrxNo};

    use super::*;

    /// Read back by a parser of its own, which is strict: names, suffixes, types, the end.
    #[test]
    fn a_parser_reads_every_metric() {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), Options::default()).unwrap();
        let (metrics, undo) = (db.metrics(), db.undo_tablespaces());
        assert_eq!(undo.len(), 2);
        let text = text(&metrics, &db.standing(), &undo);
        let read = parse_openmetrics(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        for metric in &metrics {
            let name = family_name(metric);
            let family = read.families.get(&name);
            let family = family.unwrap_or_else(|| panic!("{name} is missing"));
            assert_eq!(family.help, metric.comment, "{name}");
            assert_eq!(family.iter_samples().count(), 1, "{name}");
        }
        assert_eq!(
            read.families.len(),
            metrics.len() + PRESENT.len() + 5,
            "no two have one name"
        );
        let states = &read.families["varve_undo_tablespace_state"];
        assert_eq!(states.iter_samples().count(), 2 * STATES.len());
        db.close().unwrap();
    }

    /// In the order of the text.
    const PRESENT: [&str; 3] = [
        "varve_oldest_view_seconds",
        "varve_history_store_lost",
        "varve_unusable",
    ];

    #[test]
    fn failures_and_an_old_view_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), Options::default()).unwrap();
        let mut standing = db.standing();
        db.close().unwrap();
        let values = |standing: &Standing| {
            let text = text(&[], standing, &[]);
            let value = |name: &&str| {
                let line = text.lines().find_map(|line| line.strip_prefix(*name));
                line.unwrap().trim().to_string()
            };
            PRESENT.iter().map(value).collect::<Vec<_>>()
        };
        assert_eq!(values(&standing), ["0", "0", "0"]);
        standing.oldest_view = Some(OldView {
            number: TrxNo(7),
            session: 0,
            open_for: Duration::from_millis(9_900),
            kept: None,
        });
        let mut room = StoreRoom {
            bytes: 0,
            max_bytes: 0,
            lost: None,
        };
        standing.history_store = Some(room.clone());
        assert_eq!(values(&standing), ["9", "0", "0"]);
        room.lost = Some("an I/O error".into());
        standing.history_store = Some(room);
        assert_eq!(values(&standing), ["9", "1", "0"]);
        standing.unusable = Some("the log could not be written".into());
        assert_eq!(values(&standing), ["9", "1", "1"]);
    }

    /// MON-4.
    #[test]
    fn labels_are_escaped() {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), Options::default()).unwrap();
        let mut undo = db.undo_tablespaces();
        undo[0].path = "a\"} 1\n<script>\\".into();
        let text = text(&[], &db.standing(), &undo);
        assert!(
            text.contains(r#"file="a\"} 1\n<script>\\","#),
            "MON-4: {text}"
        );
        assert!(parse_openmetrics(&text).is_ok(), "MON-4: {text}");
        db.close().unwrap();
    }
}
