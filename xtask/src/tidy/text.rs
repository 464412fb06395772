//! Sizes of source files, their opening words, and words that no file may have: those that belong to one
//! machine only, and what hides a public item.

use super::{Findings, Source};

const WARN_LINES: usize = 800;
const FAIL_LINES: usize = 1200;
/// Files that may be longer than they should. This list may only shrink.
const LONG_FILES: [&str; 0] = [];

/// Each in two parts, so that this file does not contain what it forbids.
const FORBIDDEN: [(&str, &str, &str); 9] = [
    ("/wo", "rk/", "a path of somebody's machine"),
    ("/ro", "ot/", "a path of somebody's machine"),
    ("/ho", "me/", "a path of somebody's machine"),
    ("index.", "crates.io", "the host of a package registry"),
    ("static.", "crates.io", "the host of a package registry"),
    ("deb.", "debian.org", "the host of a package registry"),
    ("registry.", "npmjs.org", "the host of a package registry"),
    (
        "files.",
        "pythonhosted.org",
        "the host of a package registry",
    ),
    (
        "#[doc(",
        "hidden)]",
        "public all the same; put it behind the feature `internals`",
    ),
];

pub fn check(source: &Source, findings: &mut Findings) {
    let extension = source
        .path
        .rsplit_once('.')
        .map_or("", |(_, extension)| extension);
    // Results of MariaDB's test runner and C headers made by a program have no author to split them.
    if matches!(extension, "rs" | "cc" | "c" | "h" | "sh") {
        check_size(source, findings);
    }
    let opens_with_comment = source.text.starts_with("//!") || source.text.starts_with("#![");
    if extension == "rs" && !opens_with_comment {
        findings.errors.push(format!(
            "{}: a file opens with `//!` and says what it is for",
            source.path
        ));
    }
    if source.path != "Cargo.lock" {
        check_words(source, findings);
    }
}

fn check_size(source: &Source, findings: &mut Findings) {
    let lines = source.text.lines().count();
    if source.is_generated() || lines <= WARN_LINES {
        return;
    }
    let finding = format!("{}: {lines} lines; split it by responsibility", source.path);
    if lines <= FAIL_LINES || LONG_FILES.contains(&source.path.as_str()) {
        findings.warnings.push(finding);
    } else {
        findings.errors.push(finding);
    }
}

fn check_words(source: &Source, findings: &mut Findings) {
    for (number, line) in source.text.lines().enumerate() {
        for (head, tail, what) in FORBIDDEN {
            let word = format!("{head}{tail}");
            if line
                .match_indices(&word)
                .any(|(at, _)| starts_word(line, at))
            {
                findings
                    .errors
                    .push(format!("{}:{}: {word} is {what}", source.path, number + 1));
            }
        }
    }
}

/// Whether nothing before `at` belongs to the same path or name: `$PREFIX/root` is no absolute path.
fn starts_word(line: &str, at: usize) -> bool {
    !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.}*".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: String) -> (usize, usize) {
        let findings = super::super::findings(check, path, &text);
        (findings.errors.len(), findings.warnings.len())
    }

    #[test]
    fn long_files_warn_then_fail() {
        for (lines, expected) in [(800, (0, 0)), (801, (0, 1)), (1200, (0, 1)), (1201, (1, 0))] {
            assert_eq!(
                findings("a.rs", "//! x\n".repeat(lines)),
                expected,
                "{lines} lines"
            );
        }
        assert_eq!(findings("a.result", "x\n".repeat(5000)), (0, 0));
    }

    #[test]
    fn paths_of_a_machine_are_refused() {
        let text = format!("//! x\nlet p = \"/ho{}\";\n", "me/me");
        assert_eq!(findings("a.rs", text), (1, 0));
        assert_eq!(findings("a.sh", format!("ls $P/ro{}\n", "ot/usr")), (0, 0));
    }

    #[test]
    fn a_source_file_says_what_it_is_for() {
        assert_eq!(findings("a.rs", "use x;\n".into()), (1, 0));
        assert_eq!(findings("a.sh", "ls\n".into()), (0, 0));
    }
}
