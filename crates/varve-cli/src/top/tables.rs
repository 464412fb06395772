//! The table below the plots: transactions, waits for locks, or undo tablespaces.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph, Row, Table};
use serde_json::Value;
use varve_monitor::text;

use super::screen::faint;
use super::series::list;

/// Which one is shown.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Shown {
    #[default]
    Transactions,
    Waits,
    Undo,
}

impl Shown {
    pub fn next(self) -> Shown {
        match self {
            Shown::Transactions => Shown::Waits,
            Shown::Waits => Shown::Undo,
            Shown::Undo => Shown::Transactions,
        }
    }
}

struct Columns {
    title: &'static str,
    heads: &'static [&'static str],
    widths: &'static [Constraint],
    none: &'static str,
}

use Constraint::{Fill, Length};

const TRANSACTIONS: Columns = Columns {
    title: "Transactions, by what they pin",
    heads: &[
        "Whose",
        "State",
        "For",
        "Pins logs",
        "Kept",
        "Changes",
        "Rows locked",
        "Statement",
    ],
    widths: &[
        Length(18),
        Length(12),
        Length(10),
        Length(11),
        Length(9),
        Length(9),
        Length(11),
        Fill(1),
    ],
    none: "No transaction is open",
};

const WAITS: Columns = Columns {
    title: "Waits for locks",
    heads: &["Who waits", "For", "What for", "Held by"],
    widths: &[Length(18), Length(8), Fill(2), Fill(1)],
    none: "Nobody waits",
};

const UNDO: Columns = Columns {
    title: "Undo tablespaces",
    heads: &[
        "File",
        "State",
        "Size",
        "Pages in use",
        "History",
        "Truncations",
    ],
    widths: &[
        Fill(1),
        Length(9),
        Length(9),
        Length(12),
        Length(12),
        Length(11),
    ],
    none: "Undo is in the system tablespace",
};

pub fn draw(frame: &mut Frame<'_>, area: Rect, state: &Value, shown: Shown) {
    let (columns, key, row): (_, _, fn(&Value) -> Vec<String>) = match shown {
        Shown::Transactions => (&TRANSACTIONS, "transactions", transaction),
        Shown::Waits => (&WAITS, "lock_waits", lock_wait),
        Shown::Undo => (&UNDO, "undo_tablespaces", undo_tablespace),
    };
    let rows = list(&state[key]);
    let title = match rows.len() {
        0 => columns.title.into(),
        n => format!("{} ({n})", columns.title),
    };
    let block = Block::new().borders(Borders::TOP).title(Line::from(title));
    if rows.is_empty() {
        let none = Paragraph::new(columns.none).style(faint());
        frame.render_widget(none.block(block), area);
        return;
    }
    let heads = Row::new(columns.heads.iter().copied());
    let heads = heads.style(Style::new().add_modifier(Modifier::BOLD));
    let rows = rows.iter().map(|value| Row::new(row(value)));
    let table = Table::new(rows, columns.widths).header(heads).block(block);
    frame.render_widget(table, area);
}

fn transaction(trx: &Value) -> Vec<String> {
    let count = |value: &Value| value.as_u64().map_or("–".into(), text::count);
    let view = &trx["view"];
    vec![
        of(trx, "name"),
        of(trx, "state"),
        trx["seconds"].as_f64().map_or("–".into(), time),
        count(&view["pinned_history"]),
        // One of them is 0: purge waits for the view, or goes on behind it.
        (view["pinned_undo_bytes"].as_u64())
            .zip(view["pinned_bytes"].as_u64())
            .map_or("–".into(), |(undo, store)| text::bytes(undo + store)),
        count(&trx["changes"]),
        count(&trx["rows_locked"]),
        of(trx, "statement"),
    ]
}

fn lock_wait(wait: &Value) -> Vec<String> {
    let holders = list(&wait["holders"]).iter().filter_map(Value::as_str);
    vec![
        of(wait, "waiter"),
        wait["seconds"].as_f64().map_or("–".into(), time),
        of(wait, "wants"),
        holders.collect::<Vec<_>>().join(", "),
    ]
}

fn undo_tablespace(space: &Value) -> Vec<String> {
    let number = |key: &str| space[key].as_u64().unwrap_or(0);
    vec![
        of(space, "file"),
        of(space, "state"),
        text::bytes(number("bytes")),
        text::count(number("used_pages")),
        text::count(number("history")),
        text::count(number("truncations")),
    ]
}

fn time(seconds: f64) -> String {
    text::time(Duration::from_secs(seconds.max(0.0) as u64))
}

/// Control characters of a statement would move the cursor.
fn of(value: &Value, key: &str) -> String {
    let text = value[key].as_str().unwrap_or_default();
    let plain = |c: char| match c.is_control() {
        true => ' ',
        false => c,
    };
    text.chars().map(plain).collect()
}
