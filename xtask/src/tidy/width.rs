//! Lines are at most 110 columns wide, so that they fit beside another file; cells of tables at most 300
//! characters.
//!
//! A line of code may be wider if a string in it is: nobody gains from a message in pieces. So may a line
//! that is one word, such as an address; and what stands in a fence of Markdown is printed as it is.

use super::{Findings, Source};

const MOST_COLUMNS: usize = 110;
const MOST_IN_A_CELL: usize = 300;

pub fn check(source: &Source, findings: &mut Findings) {
    let extension = source.path.rsplit_once('.').map_or("", |(_, e)| e);
    match extension {
        "md" => check_page(source, findings),
        "rs" | "cc" | "c" | "h" | "sh" if !source.is_generated() => check_code(source, findings),
        _ => {}
    }
}

fn check_code(source: &Source, findings: &mut Findings) {
    let mut in_fence = false;
    for (number, line) in source.text.lines().enumerate() {
        let comment = comment(source, line);
        in_fence ^= comment.is_some_and(|text| text.starts_with("```"));
        match comment {
            Some(text) if text.starts_with('|') => check_cells(source, number, text, findings),
            Some(_) if !in_fence => check_columns(source, number, line, findings),
            None if !line.contains('"') => check_columns(source, number, line, findings),
            _ => {}
        }
    }
}

/// The text of a line that is a comment.
fn comment<'a>(source: &Source, line: &'a str) -> Option<&'a str> {
    let line = line.trim_start();
    let text = match source.path.ends_with(".sh") {
        true => line.strip_prefix('#')?,
        false => line.strip_prefix("//")?.trim_start_matches(['/', '!']),
    };
    Some(text.trim_start())
}

fn check_page(source: &Source, findings: &mut Findings) {
    let mut in_fence = false;
    for (number, line) in source.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        } else if line.starts_with('|') {
            check_cells(source, number, line, findings);
        } else if !in_fence && !line.starts_with("    ") {
            check_columns(source, number, line, findings);
        }
    }
}

fn check_columns(source: &Source, number: usize, line: &str, findings: &mut Findings) {
    let columns = line.chars().count();
    let words = line.split_whitespace().filter(|word| word.len() > 3);
    if columns > MOST_COLUMNS && words.count() > 1 {
        findings.errors.push(format!(
            "{}:{}: {columns} columns; break the line before column {MOST_COLUMNS}",
            source.path,
            number + 1
        ));
    }
}

fn check_cells(source: &Source, number: usize, line: &str, findings: &mut Findings) {
    let longest = line
        .split('|')
        .map(|cell| cell.trim().chars().count())
        .max();
    if longest.is_some_and(|longest| longest > MOST_IN_A_CELL) {
        findings.errors.push(format!(
            "{}:{}: a cell of {} characters; say it below the table, or in fewer than {MOST_IN_A_CELL}",
            source.path,
            number + 1,
            longest.unwrap_or(0)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(path: &str, text: &str) -> usize {
        super::super::findings(check, path, text).errors.len()
    }

    #[test]
    fn lines_fit_into_110_columns() {
        let (fits, wide) = ("word ".repeat(22), "word ".repeat(22) + "x");
        for (path, line, expected) in [
            ("a.md", fits.clone(), 0),
            ("a.md", wide.clone(), 1),
            ("a.md", format!("```\n{wide}\n```"), 0),
            ("a.md", format!("    {wide}"), 0),
            ("a.md", "x".repeat(200), 0),
            ("a.rs", format!("// {wide}"), 1),
            ("a.cc", wide.clone(), 1),
            ("a.cc", format!("say(\"{wide}\");"), 0),
            ("a.rs", format!("// \"{wide}\""), 1),
            ("a.rs", format!("//! | {wide} |"), 0),
            ("a.rs", format!("#[x(\"{wide}\")]"), 0),
            ("a.sh", format!("# {wide}"), 1),
            ("a.rs", format!("//! ```\n//! {wide}\n//! ```"), 0),
            ("a.h", format!("// Made by x; do not edit.\n{wide}"), 0),
            ("a.result", wide.clone(), 0),
        ] {
            assert_eq!(errors(path, &line), expected, "{path}: {line}");
        }
    }

    #[test]
    fn cells_have_300_characters() {
        let row = |cell: usize| format!("| a | {} | b |\n", "x".repeat(cell));
        assert_eq!(errors("a.md", &row(300)), 0);
        assert_eq!(errors("a.md", &row(301)), 1);
    }
}
