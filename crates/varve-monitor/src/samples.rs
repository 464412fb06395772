//! An hour of samples (MON-5): every metric, once a second.

use std::collections::{HashSet, VecDeque};
use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use varve::{Metric, Standing};

/// How many are kept.
pub const KEPT: usize = 3600;
pub const INTERVAL: Duration = Duration::from_secs(1);
/// Over how many seconds "now" goes, where one would tell chance.
const RECENT: usize = 10;
/// A column that is no metric of the engine.
const OLDEST_VIEW: &str = "oldest_view_seconds";

/// The values of a second, in the order of the columns.
struct Sample {
    /// Milliseconds since 1970.
    at_ms: u64,
    values: Box<[u64]>,
}

pub struct Samples {
    columns: Vec<&'static str>,
    kept: VecDeque<Sample>,
    /// The number of the first one that is kept: they are counted from 0.
    first: u64,
    /// When this began: tells one monitor's numbers from another's.
    begun_ms: u64,
}

impl Samples {
    pub fn new(now: SystemTime) -> Samples {
        Samples {
            columns: Vec::new(),
            kept: VecDeque::with_capacity(KEPT),
            first: 0,
            begun_ms: milliseconds(now),
        }
    }

    pub fn add(&mut self, now: SystemTime, metrics: &[Metric], standing: &Standing) {
        if self.columns.is_empty() {
            self.columns = metrics.iter().map(|m| m.status_name).collect();
            self.columns.push(OLDEST_VIEW);
        }
        let view = standing.oldest_view.map(|view| view.open_for.as_secs());
        let values = metrics.iter().map(|m| m.value);
        let values: Box<[u64]> = values.chain([view.unwrap_or(0)]).collect();
        debug_assert_eq!(
            values.len(),
            self.columns.len(),
            "the list of metrics is fixed"
        );
        if self.kept.len() == KEPT {
            self.kept.pop_front();
            self.first += 1;
        }
        self.kept.push_back(Sample {
            at_ms: milliseconds(now),
            values,
        });
        debug_assert!(self.kept.len() <= KEPT, "MON-5");
    }

    /// The newest value of a column; 0 before the first sample.
    pub fn now(&self, column: &str) -> u64 {
        self.back(column, 0).map_or(0, |(_, value)| value)
    }

    /// How much a column has grown in the last seconds; negative if it has shrunk.
    pub fn recent_growth(&self, column: &str) -> f64 {
        match (self.back(column, 0), self.back(column, RECENT)) {
            (Some((_, now)), Some((_, then))) => now as f64 - then as f64,
            _ => 0.0,
        }
    }

    /// The same for each second.
    pub fn recent_speed(&self, column: &str) -> f64 {
        let ends = (self.back(column, 0), self.back(column, RECENT));
        let (Some((now, _)), Some((then, _))) = ends else {
            return 0.0;
        };
        per_second(self.recent_growth(column), now.saturating_sub(then))
    }

    /// The value `seconds` samples ago, and when that was; the oldest one, if there are fewer.
    fn back(&self, column: &str, seconds: usize) -> Option<(u64, u64)> {
        let n = self.position(column)?;
        let at = self.kept.len().saturating_sub(seconds + 1);
        self.kept.get(at).map(|s| (s.at_ms, s.values[n]))
    }

    fn position(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|name| *name == column)
    }

    /// Those from the number `since` on, with the columns that are asked for, or all; columns that are not
    /// there are left out.
    pub fn json(&self, since: u64, columns: Option<&str>) -> Value {
        let wanted: Vec<usize> = match columns {
            // Each once: who asks a thousand times for one gets no answer of gigabytes (MON-3).
            Some(names) => {
                let mut seen = HashSet::new();
                let known = names.split(',').filter_map(|name| self.position(name));
                known.filter(|n| seen.insert(*n)).collect()
            }
            None => (0..self.columns.len()).collect(),
        };
        let skipped = since.saturating_sub(self.first);
        let rows = self
            .kept
            .iter()
            .skip(usize::try_from(skipped).unwrap_or(usize::MAX));
        let row = |sample: &Sample| {
            let values = wanted.iter().map(|n| Value::from(sample.values[*n]));
            let at = Value::from(sample.at_ms as f64 / 1000.0);
            [at].into_iter().chain(values).collect::<Value>()
        };
        json!({
            "begun": self.begun_ms,
            "next": self.first + self.kept.len() as u64,
            "columns": wanted.iter().map(|n| self.columns[*n]).collect::<Vec<_>>(),
            "rows": rows.map(row).collect::<Vec<_>>(),
        })
    }

    /// Those of an interval, in seconds since 1970, with all columns.
    pub fn csv(&self, from: f64, to: f64) -> String {
        let mut out = String::from("time");
        for column in &self.columns {
            out.push(',');
            out.push_str(column);
        }
        out.push('\n');
        for sample in &self.kept {
            let at = sample.at_ms as f64 / 1000.0;
            if !(from..=to).contains(&at) {
                continue;
            }
            write!(out, "{at:.3}").expect("a string takes everything");
            for value in &sample.values {
                write!(out, ",{value}").expect("a string takes everything");
            }
            out.push('\n');
        }
        out
    }
}

fn per_second(growth: f64, milliseconds: u64) -> f64 {
    match milliseconds {
        0 => 0.0,
        ms => growth * 1000.0 / ms as f64,
    }
}

fn milliseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use varve::MetricKind;

    use super::*;

    const NOBODY: Standing = Standing {
        oldest_view: None,
        purge_waits_for: None,
        history_store: None,
        lock_waits: Vec::new(),
        unusable: None,
    };

    fn metric(name: &'static str, value: u64) -> Metric {
        Metric {
            name,
            status_name: name,
            subsystem: "s",
            kind: MetricKind::Counter,
            comment: "",
            value,
        }
    }

    /// With samples of these values of `a`, a second apart.
    fn samples(values: impl IntoIterator<Item = u64>) -> Samples {
        let mut samples = Samples::new(UNIX_EPOCH);
        for (n, value) in values.into_iter().enumerate() {
            let at = UNIX_EPOCH + INTERVAL * n as u32;
            samples.add(at, &[metric("a", value), metric("b", 7)], &NOBODY);
        }
        samples
    }

    /// MON-5.
    #[test]
    fn an_hour_is_kept_and_no_more() {
        let all = samples(0..KEPT as u64 + 5);
        assert_eq!(all.kept.len(), KEPT, "MON-5");
        let json = all.json(0, Some("a"));
        assert_eq!(json["rows"].as_array().unwrap().len(), KEPT);
        assert_eq!(json["rows"][0], json!([5.0, 5]));
        assert_eq!(json["next"], KEPT as u64 + 5);
        let new = all.json(KEPT as u64 + 4, Some("b,none,a"));
        assert_eq!(new["columns"], json!(["b", "a"]));
        assert_eq!(new["rows"], json!([[KEPT as f64 + 4.0, 7, KEPT + 4]]));
        assert_eq!(all.json(u64::MAX, None)["rows"], json!([]));
        let repeated = all.json(u64::MAX, Some("b,a,a,b,a"));
        assert_eq!(repeated["columns"], json!(["b", "a"]), "MON-3");
    }

    #[test]
    fn speeds_go_over_ten_seconds() {
        let none = samples([]);
        assert_eq!((none.now("a"), none.recent_speed("a")), (0, 0.0));
        let one = samples([9]);
        assert_eq!((one.now("a"), one.recent_speed("a")), (9, 0.0));
        let few = samples([0, 10, 20]);
        assert_eq!(
            (few.recent_growth("a"), few.recent_speed("a")),
            (20.0, 10.0)
        );
        let slower = samples((0..=20).map(|n| n * 100).chain((1..=10).map(|n| 2000 + n)));
        assert_eq!(slower.recent_speed("a"), 1.0);
        assert_eq!(samples([50, 40]).recent_growth("a"), -10.0);
    }

    #[test]
    fn csv_has_an_interval() {
        let text = samples([1, 2, 3, 4]).csv(1.0, 2.0);
        assert_eq!(
            text,
            "time,a,b,oldest_view_seconds\n1.000,2,7,0\n2.000,3,7,0\n"
        );
    }
}
