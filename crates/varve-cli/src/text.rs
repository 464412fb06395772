//! Rows as text.
//!
//! CSV (RFC 4180): NULL is an empty field, an empty text is `""`; bytes are `0x` and hexadecimal digits; a
//! external value of which a page is lost is `#LOST n bytes#`. JSON: one object a line; bytes are
//! `{"hex":"…"}`, a lost value is `{"lost":n}`, floating point numbers that JSON does not have are strings.

use std::fmt::Write;

use varve::offline::Saved;
use varve::{TableDef, Value};

/// The first column with `--deleted`.
const DELETED: &str = "#deleted";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Csv,
    Json,
}

impl Format {
    /// The line before the rows, if the format has one.
    pub fn header(self, def: &TableDef, with_mark: bool, out: &mut String) {
        if self == Format::Json {
            return;
        }
        if with_mark {
            out.push_str(DELETED);
            out.push(',');
        }
        for (n, column) in def.columns.iter().enumerate() {
            separate(n, out);
            quoted(&column.name, out);
        }
        out.push('\n');
    }

    /// A row's line. `mark`: whether it is deleted, if that is to be told.
    pub fn row(self, def: &TableDef, mark: Option<bool>, values: &[Saved], out: &mut String) {
        match self {
            Format::Csv => {
                if let Some(is_deleted) = mark {
                    out.push_str(if is_deleted { "1," } else { "0," });
                }
                for (n, value) in values.iter().enumerate() {
                    separate(n, out);
                    csv(value, out);
                }
            }
            Format::Json => {
                out.push('{');
                if let Some(is_deleted) = mark {
                    push(out, format_args!("\"{DELETED}\":{is_deleted},"));
                }
                for (n, (value, column)) in values.iter().zip(&def.columns).enumerate() {
                    separate(n, out);
                    json_text(&column.name, out);
                    out.push(':');
                    json(value, out);
                }
                out.push('}');
            }
        }
        out.push('\n');
    }
}

fn separate(n: usize, out: &mut String) {
    if n > 0 {
        out.push(',');
    }
}

fn push(out: &mut String, what: std::fmt::Arguments<'_>) {
    out.write_fmt(what).expect("a string takes everything");
}

fn csv(value: &Saved, out: &mut String) {
    match value {
        Saved::Lost(len) => push(out, format_args!("#LOST {len} bytes#")),
        Saved::Value(Value::Null) => {}
        Saved::Value(Value::Text(text)) => quoted(text, out),
        Saved::Value(Value::Bytes(bytes)) => {
            out.push_str("0x");
            hex(bytes, out);
        }
        Saved::Value(number) => plain(number, out),
    }
}

/// A number.
fn plain(value: &Value, out: &mut String) {
    match value {
        Value::Int(v) => push(out, format_args!("{v}")),
        Value::UInt(v) => push(out, format_args!("{v}")),
        Value::Float(v) => push(out, format_args!("{v}")),
        Value::Double(v) => push(out, format_args!("{v}")),
        Value::Null | Value::Text(_) | Value::Bytes(_) => {}
    }
}

/// The text in quotes, with those inside it doubled.
fn quoted(text: &str, out: &mut String) {
    out.push('"');
    out.push_str(&text.replace('"', "\"\""));
    out.push('"');
}

fn hex(bytes: &[u8], out: &mut String) {
    for b in bytes {
        push(out, format_args!("{b:02x}"));
    }
}

fn json(value: &Saved, out: &mut String) {
    match value {
        Saved::Lost(len) => push(out, format_args!("{{\"lost\":{len}}}")),
        Saved::Value(Value::Null) => out.push_str("null"),
        Saved::Value(Value::Text(text)) => json_text(text, out),
        Saved::Value(Value::Bytes(bytes)) => {
            out.push_str("{\"hex\":\"");
            hex(bytes, out);
            out.push_str("\"}");
        }
        Saved::Value(number) => {
            let is_finite = match number {
                Value::Float(v) => v.is_finite(),
                Value::Double(v) => v.is_finite(),
                _ => true,
            };
            let quote = if is_finite { "" } else { "\"" };
            out.push_str(quote);
            plain(number, out);
            out.push_str(quote);
        }
    }
}

fn json_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c < ' ' => push(out, format_args!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}
