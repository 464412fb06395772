//! What a test of the server finds out for a page of the documentation is on that page.
//!
//! One test's result has rows of a table in Markdown: the page has them too, in their order, as one table.
//! Another's has names of InnoDB's that have no counterpart: the page has a reason for each, and for no
//! others.

use std::collections::BTreeSet;

use super::{Findings, Source};

const RESULT: &str = "mariadb/mysql-test/varve/r/alter_algorithms.result";
const PAGE: &str = "docs/mariadb.md";

const NAMES: &str = "mariadb/mysql-test/varve/r/innodb_names.result";
const REASONS: &str = "docs/from_innodb.md";

pub fn check(sources: &[Source], findings: &mut Findings) {
    let text = |path: &str| {
        let source = sources.iter().find(|source| source.path == path);
        source.map_or("", |source| &source.text)
    };
    let rows: Vec<&str> = text(RESULT).lines().filter(|line| is_row(line)).collect();
    if !has_table(text(PAGE), &rows) {
        findings.errors.push(format!(
            "{PAGE}: a table there has the rows of {RESULT}, as they are; copy them"
        ));
    }
    for name in unlike(text(NAMES), text(REASONS)) {
        findings.errors.push(format!(
            "{REASONS}, {NAMES}: `{name}` is in one of them only"
        ));
    }
}

/// The names that a result has as its lines, and the first cells of a page's rows in backticks, as far as the
/// others do not have them.
fn unlike<'a>(result: &'a str, page: &'a str) -> Vec<&'a str> {
    let is_name = |line: &&str| {
        line.to_ascii_lowercase().starts_with("innodb_") && !line.contains(char::is_whitespace)
    };
    let found: BTreeSet<&str> = result.lines().filter(is_name).collect();
    let cells = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let told: BTreeSet<&str> = cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    found.symmetric_difference(&told).copied().collect()
}

fn is_row(line: &str) -> bool {
    line.starts_with("| ")
}

/// Whether these are the rows of a table, behind its head.
fn has_table(page: &str, rows: &[&str]) -> bool {
    let lines: Vec<&str> = page.lines().collect();
    let tables = lines.split(|line| !line.starts_with('|'));
    let bodies = tables.filter_map(|table| table.get(2..));
    let mut bodies = bodies.filter(|body| !body.is_empty());
    bodies.any(|body| body == rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_its_reason() {
        let result = "SELECT 1\nvariable\ninnodb_a\ninnodb_b\nINNODB_C\n";
        let page = "| `innodb_a`, `INNODB_C` | why not: `innodb_x` |\n| `innodb_d` | |\n";
        assert_eq!(unlike(result, page), ["innodb_b", "innodb_d"]);
    }

    #[test]
    fn the_page_has_all_rows_and_no_others() {
        let page = "text\n\n| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\ntext\n";
        assert!(has_table(page, &["| 1 | 2 |", "| 3 | 4 |"]));
        for rows in [
            &["| 1 | 2 |"][..],
            &["| 3 | 4 |", "| 1 | 2 |"],
            &["| 1 | 2 |", "| 3 | 5 |"],
            &[],
        ] {
            assert!(!has_table(page, rows), "{rows:?}");
        }
    }
}
