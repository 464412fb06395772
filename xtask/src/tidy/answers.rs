//! What a test of the server finds out for a page of the documentation is on that page.
//!
//! The test's result has rows of a table in Markdown. The page has them too, in their order, as one table.

use super::{Findings, Source};

const RESULT: &str = "mariadb/mysql-test/varve/r/alter_algorithms.result";
const PAGE: &str = "docs/mariadb.md";

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
