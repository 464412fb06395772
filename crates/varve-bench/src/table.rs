//! Tables of text, whose head and rows agree.

use std::fmt::Write;

use serde_json::{Value, json};
use varve_testbed::server::Engine;

use crate::stats::{Runs, Spread, ratio_text};

pub struct Table {
    columns: Vec<Column>,
}

struct Column {
    title: String,
    is_left: bool,
    width: usize,
    decimals: usize,
}

/// What stands in a row.
pub enum Cell {
    Text(String),
    /// With the decimals of its column.
    Number(f64),
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl Cell {
    /// A whole number.
    pub fn of(number: impl ToString) -> Self {
        Self::Text(number.to_string())
    }
}

impl Table {
    /// Of columns with titles and formats, such as `engine:<7|p95 ms:>8.2`: to the left or to the right, the
    /// width, and the decimals of numbers.
    pub fn new(columns: &str) -> Self {
        let column = |text| column(text).unwrap_or_else(|| panic!("{text} is no column"));
        Self {
            columns: columns.split('|').map(column).collect(),
        }
    }

    pub fn print_head(&self) {
        println!("{}", self.head());
    }

    pub fn print(&self, cells: impl IntoIterator<Item = Cell>) {
        println!("{}", self.row(cells));
    }

    fn head(&self) -> String {
        self.row(
            self.columns
                .iter()
                .map(|column| column.title.as_str().into()),
        )
    }

    fn row(&self, cells: impl IntoIterator<Item = Cell>) -> String {
        let mut line = String::new();
        for (column, cell) in self.columns.iter().zip(cells) {
            let text = match cell {
                Cell::Text(text) => text,
                Cell::Number(number) => format!("{number:.*}", column.decimals),
            };
            let width = column.width;
            let written = match column.is_left {
                true => write!(line, "{text:<width$} "),
                false => write!(line, "{text:>width$} "),
            };
            written.expect("a string takes everything");
        }
        line.trim_end().into()
    }
}

fn column(text: &str) -> Option<Column> {
    let (title, format) = text.rsplit_once(':')?;
    let (is_left, size) = match format.strip_prefix('<') {
        Some(size) => (true, size),
        None => (false, format.strip_prefix('>')?),
    };
    let (width, decimals) = size.split_once('.').unwrap_or((size, "0"));
    Some(Column {
        title: title.into(),
        is_left,
        width: width.parse().ok()?,
        decimals: decimals.parse().ok()?,
    })
}

/// Prints figures that have a name each: every engine's median, with the least and the greatest, and the
/// ratio. `first` is the column of the names, `width` how wide those of the engines are. With each figure
/// come its decimals.
pub fn print_figures<T, F: Fn(&T) -> f64>(
    runs: &Runs<T>,
    engines: &[Engine],
    (first, width): (&str, usize),
    figures: impl IntoIterator<Item = (String, usize, F)>,
) {
    let columns = engines.iter().map(|e| format!("{}:>{width}|", e.name()));
    let columns: String = columns.collect();
    let table = Table::new(&format!("{first}|{columns}ratio:>6"));
    table.print_head();
    for (name, digits, figure) in figures {
        let mut row = vec![Cell::from(name)];
        for n in 0..engines.len() {
            let Spread {
                median,
                least,
                greatest,
            } = Spread::of(&runs.figures(n, &figure));
            let text = format!("{median:.digits$} ({least:.digits$}-{greatest:.digits$})");
            row.push(text.into());
        }
        row.push(ratio_text(runs.ratio(&figure)).into());
        table.print(row);
    }
}

/// All that figures came to, which have the same names with every engine.
pub fn figures_to_json<T: AsRef<[f64]>>(
    runs: &Runs<T>,
    engines: &[Engine],
    names: impl Iterator<Item = impl AsRef<str>>,
) -> Value {
    let names: Vec<_> = names.collect();
    let results = engines.iter().enumerate().map(|(n, engine)| {
        let by_name = names.iter().enumerate().map(|(at, name)| {
            json!({"statement": name.as_ref(), "figures": runs.figures(n, |figures| figures.as_ref()[at])})
        });
        json!({"engine": engine.name(), "results": by_name.collect::<Vec<_>>()})
    });
    results.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_rows_agree() {
        let table = Table::new("engine:<7|rows:>6|p95 ms:>8.2|note:<4");
        assert_eq!(table.head(), "engine    rows   p95 ms note");
        let row = |note: &str| table.row(["VARVE".into(), Cell::of(12), 1.5.into(), note.into()]);
        assert_eq!(row("slow"), "VARVE       12     1.50 slow");
        assert_eq!(row(""), "VARVE       12     1.50");
    }
}
