//! Inside `crates/varve` imports go downward only.
//!
//! Reads paths that start with `crate::`, in `use` and elsewhere, tests included. A path through the crate's
//! root (`crate::Error` for `crate::base::Error`) would hide where it leads and is refused as well.

use super::{Findings, Source};

/// Top first: a layer may import those after it.
///
/// `mtr`, the mini-transactions, stands apart from `redo`, the log: it writes through page guards of
/// `buffer`, which itself needs the log to be durable before it writes a page. Definitions are rows of a
/// system table, so `ddl` stands above `table`.
const LAYERS: [&str; 23] = [
    "offline",
    "db",
    "backup",
    "recovery",
    "ddl",
    "purge",
    "table",
    "stats",
    "flush",
    "txn",
    "history",
    "lock",
    "undo",
    "catalog",
    "row",
    "btree",
    "space",
    "mtr",
    "buffer",
    "redo",
    "page",
    "encryption",
    "io",
];
/// The bottom: it imports none of the others, and everybody imports it.
const BASE: &str = "base";

const ROOT: &str = "crates/varve/src/";

pub fn check(source: &Source, findings: &mut Findings) {
    let Some(path) = source
        .path
        .strip_prefix(ROOT)
        .filter(|path| path.ends_with(".rs"))
    else {
        return;
    };
    let layer = path
        .split(['/', '.'])
        .next()
        .expect("split yields at least one part");
    if ["lib", "internals"].contains(&layer) {
        return;
    }
    let Some(own) = rank(layer) else {
        findings.errors.push(format!(
            "{}: folder {layer} is not in the list of layers",
            source.path
        ));
        return;
    };
    for (line, name) in crate_paths(&source.text) {
        match rank(name) {
            Some(other) if other < own => {
                findings.errors.push(format!(
                    "{}:{line}: {layer} imports {name}, which is above it",
                    source.path
                ));
            }
            Some(_) => {}
            None => findings.errors.push(format!(
                "{}:{line}: crate::{name} is no layer; import it from the layer that defines it",
                source.path
            )),
        }
    }
}

fn rank(layer: &str) -> Option<usize> {
    LAYERS.iter().chain([&BASE]).position(|name| *name == layer)
}

/// The first name of each path in the crate, with its line number.
fn crate_paths(text: &str) -> Vec<(usize, &str)> {
    let mut paths = Vec::new();
    let mut from = 0;
    while let Some(found) = text[from..].find("crate::") {
        let start = from + found;
        from = start + "crate::".len();
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let before = &text[line_start..start];
        let is_comment = before.contains("//");
        let is_other_word = before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$');
        if is_comment || is_other_word {
            continue;
        }
        let line = text[..start].matches('\n').count() + 1;
        let rest = &text[from..];
        match rest.strip_prefix('{') {
            Some(group) => paths.extend(group_names(group).into_iter().map(|name| (line, name))),
            None => paths.push((line, first_name(rest))),
        }
    }
    paths
}

/// The first name of each member of `{a::{b, c}, d}`; `group` follows the opening brace.
fn group_names(group: &str) -> Vec<&str> {
    let (mut names, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(first_name(group[start..at].trim_start()));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

fn first_name(path: &str) -> &str {
    let end = path
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(path.len());
    &path[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(path: &str, text: &str) -> Vec<String> {
        super::super::findings(check, &format!("{ROOT}{path}"), text).errors
    }

    #[test]
    fn downward_imports_pass_and_others_do_not() {
        let rows: [(&str, &str, usize); 10] = [
            ("btree/mod.rs", "use crate::space::Space;", 0),
            ("btree/mod.rs", "use crate::btree::node::Node;", 0),
            (
                "btree/mod.rs",
                "use crate::{base::{Lsn, Error}, buffer::Pool};",
                0,
            ),
            (
                "btree/mod.rs",
                "use crate::{\n    base::{Lsn, Error},\n    row::Key,\n};",
                1,
            ),
            ("base/ids.rs", "fn f(x: crate::io::Disk) {}", 1),
            ("base/ids.rs", "// crate::io::Disk reads them", 0),
            ("io/mod.rs", "use crate::Error;", 1),
            ("lib.rs", "pub use crate::db::Database;", 0),
            (
                "db.rs",
                "use crate::table::Table; use crate::recovery::run;",
                0,
            ),
            ("utils/mod.rs", "", 1),
        ];
        for (path, text, expected) in rows {
            assert_eq!(errors(path, text).len(), expected, "{path}: {text}");
        }
    }
}
