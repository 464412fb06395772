//! Lists of tests that are known to end otherwise, in documents.

use std::collections::BTreeSet;

/// The tests that a document lists as ended differently: each row of its tables that begins with names in
/// backticks.
pub fn listed(document: &str) -> BTreeSet<String> {
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
    let first_cells = rows.filter_map(|row| row.split_once("` |"));
    let names = first_cells.flat_map(|(names, _)| names.split("`, `"));
    names.map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_tables_name_tests() {
        let document = "# Title\n`x`\n| test | why |\n|---|---|\n| `a.b` | `c` |\n| `d`, `e.f` | g |\n| `vcol.b 'c'` | `y` |\n| h | |\n";
        let expected: BTreeSet<String> = ["a.b", "d", "e.f", "vcol.b 'c'"].map(String::from).into();
        assert_eq!(listed(document), expected);
    }
}
