//! The picture of `bench long-reader`: history length, updates a second, and undo with the history store
//! against time, a line for each engine.
//!
//! Time is that in which there are updates. What lies between, the scans and what an engine takes to catch up
//! before them, is left out, so that the lines of the engines stand beside each other.

use std::ops::Range;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use varve_testbed::server::Engine;

use super::figures::Outcome;
use super::{STORE, Spans, UNDO, UPDATES};
use crate::load::{Samples, history_name, rate};
use crate::svg::{self, Line, Mark, Panel};

/// Seconds, and values.
type Points = Vec<(f64, f64)>;

/// What happened to one engine, second by second.
pub struct Timeline {
    history: Points,
    updates_per_second: Points,
    undo_bytes: Points,
    /// Empty for an engine without one.
    store_bytes: Points,
    /// When the snapshot was opened and when it ended.
    opened: f64,
    ended: f64,
}

impl Timeline {
    pub fn of(engine: Engine, spans: &Spans, samples: &Samples) -> Self {
        let clock = Clock::of([&spans.before, &spans.under, &spans.after]);
        let values = |name: &str| {
            clock.points(|span| {
                let values = samples.by_seconds(name, span).into_iter();
                values.map(|(at, value)| (at, value as f64)).collect()
            })
        };
        let rates = clock.points(|span| {
            let counted = samples.by_seconds(UPDATES, span);
            let pairs = counted.windows(2);
            pairs.map(|p| (p[1].0, rate(p[0], p[1]))).collect()
        });
        Self {
            history: values(&history_name(engine)),
            updates_per_second: rates,
            undo_bytes: values(UNDO),
            store_bytes: match engine {
                Engine::Varve => values(STORE),
                Engine::Innodb => Vec::new(),
            },
            opened: clock.begins[1],
            ended: clock.begins[2] + (spans.ended - spans.after.start).as_secs_f64(),
        }
    }

    pub fn to_json(&self) -> Value {
        json!({
            "history": self.history, "updates_per_second": self.updates_per_second,
            "undo_bytes": self.undo_bytes, "store_bytes": self.store_bytes,
            "snapshot_opened": self.opened, "snapshot_ended": self.ended,
        })
    }
}

/// Seconds of some spans, one behind the other.
struct Clock<'a> {
    spans: [&'a Range<Instant>; 3],
    begins: [f64; 3],
}

impl<'a> Clock<'a> {
    fn of(spans: [&'a Range<Instant>; 3]) -> Self {
        let mut before = Duration::ZERO;
        let begins = spans.map(|span| {
            let begin = before.as_secs_f64();
            before += span.end - span.start;
            begin
        });
        Self { spans, begins }
    }

    fn points(&self, of_span: impl Fn(&Range<Instant>) -> Vec<(Instant, f64)>) -> Points {
        let mut points = Points::new();
        for (span, begin) in self.spans.iter().zip(self.begins) {
            let values = of_span(span).into_iter();
            points.extend(values.map(|(at, y)| (begin + (at - span.start).as_secs_f64(), y)));
        }
        points
    }
}

/// The first outcome of each engine; they stand in front.
pub fn draw(outcomes: &[Outcome]) -> String {
    let panel = |title: &str, points: &dyn Fn(&Timeline) -> Points| {
        Panel::of(title, outcomes, |o| Line {
            name: o.engine.name().into(),
            points: points(&o.timeline),
        })
    };
    let mib = |points: &Points| points.iter().map(|p| (p.0, p.1 / 1048576.0)).collect();
    let mut sizes = panel("undo tablespaces and history store, MiB", &|t| {
        mib(&t.undo_bytes)
    });
    for outcome in outcomes {
        if !outcome.timeline.store_bytes.is_empty() {
            sizes.lines.push(Line {
                name: "history store".into(),
                points: mib(&outcome.timeline.store_bytes),
            });
        }
    }
    let panels = [
        panel("history length", &|t| t.history.clone()),
        panel("updates a second", &|t| t.updates_per_second.clone()),
        sizes,
    ];
    let moment = |name: &str, of: fn(&Timeline) -> f64| {
        let lines = outcomes.iter().enumerate();
        let mark = |(line, outcome): (usize, &Outcome)| Mark {
            name: name.into(),
            seconds: of(&outcome.timeline),
            line,
        };
        lines.map(mark).collect::<Vec<_>>()
    };
    let mut marks = moment("snapshot opened", |t| t.opened);
    marks.extend(moment("ended", |t| t.ended));
    svg::render(&panels, &marks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_between_spans_is_left_out() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let spans = [at(10)..at(20), at(100)..at(105), at(300)..at(302)];
        let clock = Clock::of([&spans[0], &spans[1], &spans[2]]);
        let points = clock.points(|span| vec![(span.end, 7.0)]);
        assert_eq!(points, [(10.0, 7.0), (15.0, 7.0), (17.0, 7.0)]);
    }
}
