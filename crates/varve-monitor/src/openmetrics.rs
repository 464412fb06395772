//! The metrics in the text format of OpenMetrics 1.0: a family for each metric, named as the status variable
//! with `varve_` before it, and families of the undo tablespaces, with labels.
//!
//! The format keeps the ending `_total` for counters, so a value whose name ends in it goes without. Units
//! are told where a name ends in one. Numbers stay as the engine counts them, in microseconds and
//! milliseconds, because the help texts say so.

use std::borrow::Cow;
use std::fmt::Write;

use varve::{Metric, MetricKind, UndoSpaceState, UndoTablespace};

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const UNITS: [&str; 2] = ["bytes", "usec"];

const STATES: [UndoSpaceState; 3] = [
    UndoSpaceState::Active,
    UndoSpaceState::Inactive,
    UndoSpaceState::Empty,
];

pub fn text(metrics: &[Metric], undo: &[UndoTablespace]) -> String {
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
    use openmetrics_parser::openmetrics::parse_openmetrics;
    use varve::{Database, Options};

    use super::*;

    /// Read back by a parser of its own, which is strict: names, suffixes, types, the end.
    #[test]
    fn a_parser_reads_every_metric() {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), Options::default()).unwrap();
        let (metrics, undo) = (db.metrics(), db.undo_tablespaces());
        assert_eq!(undo.len(), 2);
        let text = text(&metrics, &undo);
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
            metrics.len() + 5,
            "no two have one name"
        );
        let states = &read.families["varve_undo_tablespace_state"];
        assert_eq!(states.iter_samples().count(), 2 * STATES.len());
        db.close().unwrap();
    }

    /// MON-4.
    #[test]
    fn labels_are_escaped() {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), Options::default()).unwrap();
        let mut undo = db.undo_tablespaces();
        undo[0].path = "a\"} 1\n<script>\\".into();
        let text = text(&[], &undo);
        assert!(
            text.contains(r#"file="a\"} 1\n<script>\\","#),
            "MON-4: {text}"
        );
        assert!(parse_openmetrics(&text).is_ok(), "MON-4: {text}");
        db.close().unwrap();
    }
}
