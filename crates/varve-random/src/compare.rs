//! What may be different in two answers, and how it is shown.

use varve_testbed::client::Answer;

use crate::side::Outcome;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// One failed, or both in different ways.
    Error(u16, u16),
    ErrorText(u16),
    Rows,
    Affected,
    LastInsertId,
    Info,
    Warnings,
    BinaryLog,
    ServerDied,
}

#[derive(Clone, Debug)]
pub struct Difference {
    /// The statement's place.
    pub at: usize,
    pub sql: String,
    pub what: What,
    pub varve: String,
    pub innodb: String,
}

impl Difference {
    /// Differences of one signature are taken for the same.
    pub fn signature(&self) -> (What, String) {
        let words = self.sql.split_whitespace();
        let words = words.filter(|word| word.chars().all(|c| c.is_ascii_uppercase()));
        (self.what, words.take(2).collect::<Vec<_>>().join(" "))
    }
}

/// The first thing that is different.
pub fn compare(varve: &Outcome, innodb: &Outcome) -> Option<What> {
    use Outcome::{Done, Failed};
    match (varve, innodb) {
        (
            Failed {
                code,
                message,
                warnings,
            },
            Failed {
                code: other_code,
                message: other_message,
                warnings: other_warnings,
            },
        ) => match () {
            () if code != other_code => Some(What::Error(*code, *other_code)),
            () if message != other_message => Some(What::ErrorText(*code)),
            () if warnings != other_warnings => Some(What::Warnings),
            () => None,
        },
        (Failed { code, .. }, Done { .. }) => Some(What::Error(*code, 0)),
        (Done { .. }, Failed { code, .. }) => Some(What::Error(0, *code)),
        (
            Done {
                answer: a,
                warnings,
            },
            Done {
                answer: b,
                warnings: other_warnings,
            },
        ) => match () {
            () if a.rows != b.rows => Some(What::Rows),
            () if a.affected != b.affected => Some(What::Affected),
            () if a.last_insert_id != b.last_insert_id => Some(What::LastInsertId),
            () if info(a) != info(b) => Some(What::Info),
            () if a.warnings != b.warnings || warnings != other_warnings => Some(What::Warnings),
            () => None,
        },
    }
}

/// Where the optimizer sees that there can't be such rows, nothing is said about them.
fn info(answer: &Answer) -> &str {
    match answer.info.as_str() {
        "Rows matched: 0  Changed: 0  Warnings: 0" => "",
        info => info,
    }
}

/// An answer, as far as it matters where it is different.
pub fn show(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Failed {
            code,
            message,
            warnings,
        } => {
            let warnings: Vec<String> = warnings
                .iter()
                .map(|line| format!("\n    warning: {line}"))
                .collect();
            format!("error {code}: {message}{}", warnings.concat())
        }
        Outcome::Done { answer, warnings } => {
            let mut lines = vec![head(answer)];
            let rows = answer.rows.iter().flatten();
            lines.extend(rows.map(|row| format!("    {}", row_text(row))));
            lines.extend(warnings.iter().map(|line| format!("    warning: {line}")));
            lines.join("\n")
        }
    }
}

fn head(answer: &Answer) -> String {
    match &answer.rows {
        Some(rows) => format!("{} rows, {} warnings", rows.len(), answer.warnings),
        None => format!(
            "{} affected, last id {}, {} warnings; {}",
            answer.affected, answer.last_insert_id, answer.warnings, answer.info
        ),
    }
}

fn row_text(row: &[Option<Vec<u8>>]) -> String {
    let value = |value: &Option<Vec<u8>>| match value {
        None => "NULL".to_string(),
        Some(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if !text.chars().any(|c| c.is_control() && c != '\n') => shortened(text),
            _ => format!(
                "x'{}'",
                bytes
                    .iter()
                    .take(60)
                    .map(|b| format!("{b:02x}"))
                    .collect::<String>()
            ),
        },
    };
    row.iter().map(value).collect::<Vec<_>>().join(" | ")
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(1000) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_string(),
    }
}
