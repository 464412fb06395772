//! Figures of all repetitions, as a table or as JSON.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::held::Held;
use crate::run::{Figure, WORKLOADS};

/// All repetitions of one workload on one engine.
#[derive(Default)]
struct Series {
    per_second: Vec<f64>,
    per_cpu_second: Vec<f64>,
    history: Option<u64>,
    held: Vec<Held>,
}

fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}

impl Series {
    fn median(&self) -> f64 {
        median(&self.per_second)
    }

    /// The median of each figure of what a snapshot cost.
    fn held(&self) -> Option<Held> {
        let of = |figure: fn(&Held) -> f64| {
            let mut figures: Vec<f64> = self.held.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            median(&figures)
        };
        (!self.held.is_empty()).then(|| Held {
            scan_ratio: of(|held| held.scan_ratio),
            rate_ratio: of(|held| held.rate_ratio),
            grown_mib: of(|held| held.grown_mib),
            grown_without_mib: of(|held| held.grown_without_mib),
            changed_mib: of(|held| held.changed_mib),
        })
    }
}

/// The engine that ratios are of.
const SUBJECT: &str = "varve";

#[derive(Default)]
pub struct Report {
    engines: Vec<&'static str>,
    series: BTreeMap<(&'static str, &'static str), Series>,
}

impl Report {
    pub fn add(&mut self, engine: &'static str, figures: Vec<Figure>) {
        if !self.engines.contains(&engine) {
            self.engines.push(engine);
        }
        for figure in figures {
            let series = self.series.entry((figure.workload, engine)).or_default();
            series.per_second.push(figure.per_second);
            series.per_second.sort_by(f64::total_cmp);
            series.per_cpu_second.push(figure.per_cpu_second);
            series.per_cpu_second.sort_by(f64::total_cmp);
            series.history = series.history.max(figure.history);
            series.held.extend(figure.held);
        }
    }

    /// Series of one workload, in the order of the engines, with Varve's ratio to each.
    fn lines(&self, workload: &'static str) -> Vec<(&'static str, &Series, Option<f64>)> {
        let of = |engine| self.series.get(&(workload, engine));
        let subject = of(SUBJECT).map(Series::median);
        let line = |&engine: &&'static str| {
            let series = of(engine)?;
            let ratio = subject.filter(|_| engine != SUBJECT);
            Some((engine, series, ratio.map(|s| s / series.median())))
        };
        self.engines.iter().filter_map(line).collect()
    }

    pub fn print(&self) {
        for workload in &WORKLOADS {
            for (n, (engine, series, ratio)) in self.lines(workload.name).into_iter().enumerate() {
                let name = if n == 0 { workload.name } else { "" };
                let (min, max) = (series.per_second[0], series.per_second.last().copied());
                let ratio = ratio.map_or(String::new(), |r| format!("  varve is {r:.2} of it"));
                let ratio = match (ratio.is_empty(), series.history) {
                    (true, Some(history)) => format!("  history at the end {history}"),
                    _ => ratio,
                };
                println!(
                    "{name:<14} {engine:<11} {:>12.0} /s  ({min:.0} – {:.0})  {:.0} per cpu second{ratio}",
                    series.median(),
                    max.unwrap_or(min),
                    median(&series.per_cpu_second),
                );
                if let Some(held) = series.held() {
                    println!("{:<26} {held}", "");
                }
            }
        }
    }

    pub fn json(&self, rows: u64, seconds: f64) -> Value {
        let lines = WORKLOADS.iter().flat_map(|workload| {
            let lines = self.lines(workload.name).into_iter();
            lines.map(|(engine, series, ratio)| {
                json!({
                    "workload": workload.name, "threads": workload.threads, "engine": engine,
                    "per_second": series.median(), "min": series.per_second[0], "max": series.per_second.last(),
                    "per_cpu_second": median(&series.per_cpu_second), "varve_ratio": ratio, "history": series.history,
                    "held": series.held().map(|held| held.json()),
                })
            })
        });
        json!({"benchmark": "embedded", "rows": rows, "seconds": seconds, "figures": lines.collect::<Vec<_>>()})
    }
}
