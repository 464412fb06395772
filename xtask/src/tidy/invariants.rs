//! The numbers of invariants, such as `BT-1`: each is defined once, and named by a test.
//!
//! A definition is an item of a doc comment that begins with the number in bold; elsewhere a number is not
//! bold. A test names a number in its comments or in the message of an assertion. What stands at the head of
//! a file of tests counts for none of them.

use std::collections::BTreeMap;

use super::functions::is_test;
use super::{Findings, Source};

/// Look like numbers of invariants.
const OTHERS: [&str; 1] = ["UTF-8"];
/// Runs against real processes, which are no `#[test]`.
const RUNS: &str = "crates/varve-stress/src/";

/// What is known of one number.
#[derive(Default)]
struct Uses {
    definitions: Vec<String>,
    citations: Vec<String>,
    is_in_test: bool,
}

pub fn check(sources: &[Source], findings: &mut Findings) {
    let mut numbers = BTreeMap::new();
    for source in sources {
        collect(source, &mut numbers, findings);
    }
    for (number, uses) in numbers {
        match &uses.definitions[..] {
            [] => findings.errors.push(format!(
                "{}: {number} is defined nowhere",
                uses.citations[0]
            )),
            [place] if !uses.is_in_test => findings.errors.push(format!(
                "{place}: {number} is named by no test; name it where it would be noticed if it was broken"
            )),
            [_] => {}
            [first, others @ ..] => findings.errors.extend(others.iter().map(|other| {
                format!("{other}: {number} is defined in {first}, too; here it is not bold")
            })),
        }
    }
}

fn collect(source: &Source, numbers: &mut BTreeMap<String, Uses>, findings: &mut Findings) {
    let extension = source.path.rsplit_once('.').map_or("", |(_, e)| e);
    if !matches!(
        extension,
        "rs" | "md" | "cc" | "c" | "h" | "sh" | "test" | "inc"
    ) {
        return;
    }
    let mut in_test = extension == "test" || is_test(&source.path) || source.path.starts_with(RUNS);
    for (at, line) in source.text.lines().enumerate() {
        in_test |= line.starts_with("mod ") && line.ends_with("tests {");
        let place = || format!("{}:{}", source.path, at + 1);
        for (number, is_bold) in numbers_of(line) {
            let uses = numbers.entry(number.to_string()).or_default();
            if is_bold && is_definition(line, number) {
                uses.definitions.push(place());
                continue;
            }
            if is_bold {
                findings.errors.push(format!(
                    "{}: {number} is bold; only the item of a doc comment is that defines it",
                    place()
                ));
            }
            uses.citations.push(place());
            uses.is_in_test |= in_test && !line.starts_with("//!");
        }
    }
}

/// The numbers in a line, and which of them are bold.
fn numbers_of(line: &str) -> impl Iterator<Item = (&str, bool)> {
    line.split(|c: char| !(c.is_alphanumeric() || "_-.*".contains(c)))
        .map(|word| (word.trim_matches(['*', '.']), word.starts_with("**")))
        .filter(|(word, _)| is_number(word))
}

/// Capital letters and a number: `BT-1`, but neither `X-1` nor `GPL-2.0`.
fn is_number(word: &str) -> bool {
    word.split_once('-').is_some_and(|(family, number)| {
        family.len() > 1
            && family.bytes().all(|b| b.is_ascii_uppercase())
            && !number.is_empty()
            && !number.starts_with('0')
            && number.bytes().all(|b| b.is_ascii_digit())
    }) && !OTHERS.contains(&word)
}

fn is_definition(line: &str, number: &str) -> bool {
    let line = line.trim_start();
    ["//! - ", "/// - "].iter().any(|head| {
        line.strip_prefix(head)
            .is_some_and(|item| item.starts_with(&format!("**{number}** ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The errors about these files, in which `@` stands for a number that does not stand here.
    fn errors(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, text)| Source {
                path: path.to_string(),
                text: text.replace('@', &format!("XY{}7", '-')),
            })
            .collect();
        let mut findings = Findings::default();
        check(&sources, &mut findings);
        findings.errors
    }

    #[test]
    fn each_number_is_defined_once_and_named_by_a_test() {
        let definition = ("a.rs", "//! - **@** It holds.\n");
        let test = ("crates/a/tests/b.rs", "//! x\n/// @: it holds.\n");
        for (files, expected) in [
            (&[definition, test][..], ""),
            (&[test], "crates/a/tests/b.rs:2: "),
            (&[definition], "a.rs:1: "),
            (&[definition, ("b.rs", "// @ again.\n")], "a.rs:1: "),
            (&[definition, ("b.rs", "mod tests {\n// @.\n}\n")], ""),
            (
                &[definition, ("crates/varve-stress/src/b.rs", "/// @.\n")],
                "",
            ),
            (
                &[definition, ("crates/a/tests/b.rs", "//! @\n")],
                "a.rs:1: ",
            ),
            (
                &[definition, ("b.rs", "/// - **@** Twice.\n"), test],
                "b.rs:1: ",
            ),
            (
                &[definition, ("b.rs", "/// See **@**.\n"), test],
                "b.rs:1: ",
            ),
            (&[definition, ("b.md", "see (**@**).\n"), test], "b.md:1: "),
            (&[definition, ("b.md", "see (@).\n"), test], ""),
        ] {
            let found = errors(files);
            let first = found.first().map_or("", String::as_str);
            assert!(found.len() <= 1 && first.starts_with(expected), "{found:?}");
            assert_eq!(first.is_empty(), expected.is_empty(), "{files:?}");
        }
    }

    #[test]
    fn other_words_are_no_numbers() {
        for word in [
            "UTF-8", "GPL-2.0", "X-1", "MIT-0", "CRC-32C", "Page-1", "-1",
        ] {
            assert!(numbers_of(word).next().is_none(), "{word}");
        }
    }
}
