//! The last minutes of a monitor's samples.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use super::client::Client;

/// How far back the plots go, in seconds.
pub const SHOWN: f64 = 300.0;

/// What is asked for of each sample.
const COLUMNS: &[&str] = &[
    "commits",
    "rollbacks",
    "history_list_length",
    "undo_pages_used",
    "page_size",
    "history_store_bytes",
    "purged_logs",
    "checkpoint_age",
    "checkpoint_age_async",
    "checkpoint_max_age",
    "os_log_written",
    "buffer_pool_pages_dirty",
    "buffer_pool_pages_total",
    "buffer_pool_pages_flushed",
    "buffer_pool_read_requests",
    "buffer_pool_reads",
    "undo_size_bytes",
    "row_lock_waits",
    "row_lock_current_waits",
    "rows_read",
    "rows_inserted",
    "rows_updated",
    "rows_deleted",
    "oldest_view_seconds",
];

#[derive(Clone)]
struct Sample {
    at: f64,
    /// Where `Series::columns` says.
    values: Box<[f64]>,
}

/// How a number is made of samples.
#[derive(Clone, Copy)]
pub enum Reading {
    Now(&'static str),
    /// Growth of a counter, by the second.
    Rate(&'static str),
    /// A number of pages, in bytes.
    Pages(&'static str),
    /// One by the other, in percent.
    Share(&'static str, &'static str),
    /// Of the pages that were asked for since the sample before, those that were in the pool, in percent.
    HitRate,
}

#[derive(Clone, Default)]
pub struct Series {
    /// Another one after the monitor was started again, when its numbers begin anew.
    begun: u64,
    next: u64,
    /// Where each is in a sample.
    columns: HashMap<String, usize>,
    samples: VecDeque<Sample>,
}

impl Series {
    /// Asks for what is new.
    pub fn refresh(&mut self, client: &Client) -> Result<(), String> {
        let columns = COLUMNS.join(",");
        let ask = |since| client.json(&format!("/api/samples?since={since}&columns={columns}"));
        let mut got = ask(self.next)?;
        if got["begun"].as_u64() != Some(self.begun) && self.next > 0 {
            got = ask(0)?;
        }
        self.take(&got);
        Ok(())
    }

    pub fn take(&mut self, got: &Value) {
        let begun = got["begun"].as_u64().unwrap_or(0);
        if begun != self.begun {
            self.samples.clear();
            self.begun = begun;
        }
        self.next = got["next"].as_u64().unwrap_or(0);
        let texts = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let columns = list(&got["columns"]).iter().map(texts);
        self.columns = columns.zip(0..).collect();
        for row in list(&got["rows"]) {
            let numbers = list(row).iter().map(|n| n.as_f64().unwrap_or(0.0));
            let numbers: Vec<f64> = numbers.collect();
            if let [at, values @ ..] = numbers.as_slice() {
                let (at, values) = (*at, values.into());
                self.samples.push_back(Sample { at, values });
            }
        }
        let newest = self.samples.back().map_or(0.0, |sample| sample.at);
        while (self.samples.front()).is_some_and(|sample| sample.at < newest - SHOWN) {
            self.samples.pop_front();
        }
    }

    /// The newest value; `None` where there is none yet.
    pub fn now(&self, reading: Reading) -> Option<f64> {
        let last = self.samples.len().checked_sub(1)?;
        self.value(reading, last)
    }

    /// From the oldest sample to the newest.
    pub fn seconds(&self) -> f64 {
        match (self.samples.front(), self.samples.back()) {
            (Some(oldest), Some(newest)) => newest.at - oldest.at,
            _ => 0.0,
        }
    }

    /// Each value with its time, in seconds before the newest one.
    pub fn points(&self, reading: Reading) -> Vec<(f64, f64)> {
        let newest = self.samples.back().map_or(0.0, |sample| sample.at);
        let all = self.samples.iter().enumerate();
        let points = all.filter_map(|(at, s)| Some((s.at - newest, self.value(reading, at)?)));
        points.collect()
    }

    fn value(&self, reading: Reading, at: usize) -> Option<f64> {
        let one = |column| self.one(column, at);
        let growth = |column| Some(one(column)? - self.one(column, at.checked_sub(1)?)?);
        match reading {
            Reading::Now(column) => one(column),
            Reading::Pages(column) => Some(one(column)? * one("page_size")?),
            Reading::Share(part, whole) => {
                let whole = one(whole).filter(|whole| *whole > 0.0)?;
                Some(100.0 * one(part)? / whole)
            }
            Reading::Rate(column) => {
                let seconds = self.samples[at].at - self.samples[at.checked_sub(1)?].at;
                (seconds > 0.0).then_some(growth(column)?.max(0.0) / seconds)
            }
            Reading::HitRate => {
                let requests = growth("buffer_pool_read_requests").filter(|n| *n > 0.0)?;
                Some(100.0 * (1.0 - growth("buffer_pool_reads")? / requests))
            }
        }
    }

    fn one(&self, column: &str, at: usize) -> Option<f64> {
        let n = self.columns.get(column)?;
        self.samples.get(at)?.values.get(*n).copied()
    }
}

pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
