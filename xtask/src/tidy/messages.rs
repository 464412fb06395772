//! Each message to an administrator is in docs/messages.md with its cause, and that page has no others.
//!
//! What is said is read from the sources. `WAYS` are the calls that say something. A message is the first
//! string in such a call, and each one behind a `format!(` there. If there is none, the call passes on what a
//! variable has, which is looked for above; or somebody else's words, in a file of `PASSING_ON`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::functions::{is_test, text_length};
use super::{Findings, Source};

const PAGE: &str = "docs/messages.md";

/// What paths begin with, and what calls in these files begin with.
const WAYS: [(&str, &[&str]); 10] = [
    (
        "crates/varve/src/",
        &[
            "core.note(",
            "core().note(",
            ".warn(",
            "core.error(",
            "core().error(",
            "core.fail(",
            "core).fail(",
            "core().fail(",
            ".poison(",
            "(LogLevel::Note,",
            "(LogLevel::Warning,",
            "(LogLevel::Error,",
        ],
    ),
    ("crates/varve/src/db/load.rs", &["note("]),
    ("crates/varve/src/db/open.rs", &["note("]),
    ("crates/varve/src/recovery/files.rs", &["log("]),
    (
        "crates/varve/src/space/file.rs",
        &["refused(tell,", "is_over(tell,"],
    ),
    ("crates/varve/src/space/compressed.rs", &["tell("]),
    ("crates/varve/src/space/removal.rs", &["tell("]),
    // It becomes an error, which is told.
    ("crates/varve/src/space/unlogged.rs", &["io::Error::other("]),
    ("crates/varve-capi/src/", &[".poison("]),
    (
        "mariadb/",
        &[
            "sql_print_error(",
            "sql_print_warning(",
            "sql_print_information(",
        ],
    ),
];

/// Files with functions and closures that say what they are given.
const PASSING_ON: [&str; 9] = [
    "crates/varve-capi/src/error.rs",
    "crates/varve/src/db/load.rs",
    "crates/varve/src/db/mod.rs",
    "crates/varve/src/db/open.rs",
    "crates/varve/src/db/opener.rs",
    "crates/varve/src/recovery/comparison.rs",
    "crates/varve/src/recovery/files.rs",
    "crates/varve/src/recovery/index/indexer.rs",
    "crates/varve/src/txn/core.rs",
];

/// Why the database stops when it is closed: nobody is told.
const UNSAID: [&str; 2] = ["the database was closed", "the test crashed the database"];

pub fn check(sources: &[Source], findings: &mut Findings) {
    let mut said = BTreeMap::new();
    for source in sources.iter().filter(|source| !is_test(&source.path)) {
        collect(source, &mut said, findings);
    }
    let page = sources.iter().find(|source| source.path == PAGE);
    let page = page.map_or("", |page| &page.text);
    let listed: BTreeSet<&str> = page.lines().filter_map(entry).collect();
    for (text, place) in &said {
        if !listed.contains(text.as_str()) {
            findings.errors.push(format!(
                "{place}: {PAGE} lacks `{text}`; write there when it comes, and what to do then"
            ));
        }
    }
    for text in listed {
        if !said.contains_key(text) {
            findings.errors.push(format!(
                "{PAGE}: nobody says `{text}` any more; take it out, or write it as the code does"
            ));
        }
    }
}

/// The message that a row of a table is about.
fn entry(line: &str) -> Option<&str> {
    let cell = line.strip_prefix("| ")?.split(" | ").next()?;
    cell.starts_with('`').then(|| cell.trim_matches(['`', ' ']))
}

/// Adds the messages of a file, with where they are said first.
fn collect(source: &Source, said: &mut BTreeMap<String, String>, findings: &mut Findings) {
    let is_rust = source.path.ends_with(".rs");
    let ways = WAYS
        .iter()
        .filter(|(begin, _)| source.path.starts_with(begin));
    let heads: Vec<&str> = ways.flat_map(|(_, heads)| heads.iter().copied()).collect();
    if heads.is_empty() || !(is_rust || source.path.ends_with(".cc")) {
        return;
    }
    let passes_on = PASSING_ON.contains(&source.path.as_str());
    let before_tests = source.text.split("\nmod tests {").next();
    let code = Code::of(before_tests.unwrap_or_default(), is_rust);
    for head in heads {
        for call in code.calls(head) {
            let place = format!("{}:{}", source.path, code.line(call));
            let texts = code.said_by(call);
            if texts.is_empty() && !passes_on {
                findings.errors.push(format!(
                    "{place}: what `{head}` says here is not found; write the text in the call, or in a `let` above it"
                ));
            }
            for text in texts.into_iter().filter(|text| !UNSAID.contains(text)) {
                let first = said.entry(text.to_string());
                first.or_insert_with(|| place.clone());
            }
        }
    }
}

/// Stands for a string.
const MARK: char = '"';

/// A source without comments, characters and white space, but for a space between two words: so a call is
/// found however it is broken into lines.
#[derive(Default)]
struct Code {
    squeezed: String,
    /// In which line each byte of it stands.
    lines: Vec<usize>,
    /// What the marks stand for.
    strings: Vec<String>,
}

impl Code {
    fn of(text: &str, is_rust: bool) -> Code {
        let mut code = Code::default();
        let (mut rest, mut line, mut last) = (text, 1, ' ');
        while let Some(c) = rest.chars().next() {
            let length = text_length(rest, is_rust && !is_of_name(last));
            let piece = &rest[..length.unwrap_or(c.len_utf8())];
            match length {
                Some(_) if piece.starts_with(['/', '\'']) => {}
                // C++ joins strings that follow one another.
                Some(_) if !is_rust && code.squeezed.ends_with(MARK) => {
                    let string = code.strings.last_mut();
                    string.expect("each mark has one").push_str(&value(piece));
                }
                Some(_) => {
                    code.strings.push(value(piece));
                    code.push(MARK, line);
                }
                None if c.is_whitespace() => {}
                None => {
                    let is_next_word = last.is_whitespace() && is_of_name(c);
                    if is_next_word && code.squeezed.ends_with(is_of_name) {
                        code.push(' ', line);
                    }
                    code.push(c, line);
                }
            }
            line += piece.matches('\n').count();
            last = piece.chars().next_back().unwrap_or(' ');
            rest = &rest[piece.len()..];
        }
        code
    }

    fn push(&mut self, c: char, line: usize) {
        self.squeezed.push(c);
        self.lines.resize(self.squeezed.len(), line);
    }

    fn line(&self, at: usize) -> usize {
        let last = self.lines.last();
        *self.lines.get(at).or(last).unwrap_or(&1)
    }

    /// Where the arguments of the calls begin that begin with `head`.
    fn calls(&self, head: &str) -> Vec<usize> {
        let begins = self.squeezed.match_indices(head).map(|(at, _)| at);
        let is_word = head.starts_with(is_of_name);
        let begins = begins.filter(|at| !(is_word && self.squeezed[..*at].ends_with(is_of_name)));
        begins.map(|at| at + head.len()).collect()
    }

    /// What the call says whose arguments begin here.
    fn said_by(&self, call: usize) -> Vec<&str> {
        let texts = self.texts(call..self.end(call));
        if !texts.is_empty() {
            return texts;
        }
        let passed = self.squeezed[call..].trim_start_matches('&');
        let variable = passed.split(|c: char| !is_of_name(c)).next();
        let begin = format!("let {}=", variable.unwrap_or_default());
        match self.squeezed[..call].rfind(&begin) {
            None => Vec::new(),
            Some(at) => {
                let at = at + begin.len();
                self.texts(at..self.end(at))
            }
        }
    }

    fn texts(&self, part: Range<usize>) -> Vec<&str> {
        let before = self.squeezed[..part.start].matches(MARK).count();
        let marks = self.squeezed[part.clone()].match_indices(MARK).enumerate();
        let texts = marks.filter(|(n, (at, _))| {
            *n == 0 || self.squeezed[..part.start + at].ends_with("format!(")
        });
        texts
            .map(|(n, _)| self.strings[before + n].as_str())
            .collect()
    }

    /// Where the arguments, or the statement, end in which this is.
    fn end(&self, from: usize) -> usize {
        let mut depth = 0_u32;
        for (at, c) in self.squeezed[from..].char_indices() {
            match c {
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' | ';' if depth == 0 => return from + at,
                ')' | ']' | '}' => depth -= 1,
                _ => {}
            }
        }
        self.squeezed.len()
    }
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Of a string as it is written.
fn value(written: &str) -> String {
    let quoted = written
        .trim_start_matches(['b', 'r', '#'])
        .trim_end_matches('#');
    let inner = quoted.strip_prefix('"').unwrap_or(quoted);
    let mut rest = inner.strip_suffix('"').unwrap_or(inner);
    let mut out = String::new();
    while let Some((before, escaped)) = rest.split_once('\\') {
        out.push_str(before);
        rest = match escaped.starts_with('\n') {
            true => escaped.trim_start(),
            false => {
                let mut chars = escaped.chars();
                out.extend(chars.next());
                chars.as_str()
            }
        };
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(path: &str, code: &str, listed: &[&str]) -> Vec<String> {
        let rows = listed.iter().map(|text| format!("| `{text}` | x |\n"));
        let page = format!(
            "| message | when |\n|---|---|\n{}",
            rows.collect::<String>()
        );
        let source = |path: &str, text: &str| Source {
            path: path.into(),
            text: text.into(),
        };
        let mut findings = Findings::default();
        check(&[source(path, code), source(PAGE, &page)], &mut findings);
        findings.errors
    }

    #[test]
    fn messages_are_found_however_they_are_written() {
        for (code, listed) in [
            (r#"core.warn(&format!("a {b}", x));"#, &["a {b}"][..]),
            (
                "self\n  .core\n  .note(\n    \"a \\\n     b\",\n  );",
                &["a b"][..],
            ),
            (
                r#"let why = format!("a: {e}"); log.poison(why);"#,
                &["a: {e}"][..],
            ),
            (
                r#"core.error(&match x { 1 => format!("a"), _ => format!("b {}", f("c")) });"#,
                &["a", "b {}"][..],
            ),
            (
                r#"logger(LogLevel::Note, "says \"a\"");"#,
                &[r#"says "a""#][..],
            ),
            (r#"// core.warn("a");"#, &[][..]),
            (r#"hardcore.note("a");"#, &[][..]),
            (r#"log.poison("the database was closed");"#, &[][..]),
            (
                "x();\n#[cfg(test)]\nmod tests {\n core.note(\"a\");\n}\n",
                &[][..],
            ),
        ] {
            let found = errors("crates/varve/src/a.rs", code, listed);
            assert_eq!(found, [""; 0], "{code}");
            assert_eq!(errors("crates/other/src/a.rs", code, &[]), [""; 0]);
        }
        let joined =
            "if (x)\n  y();\nelse\n  sql_print_error(\"VARVE: a \"\n    \"%s\", b(\"c\"));";
        assert_eq!(errors("mariadb/a.cc", joined, &["VARVE: a %s"]), [""; 0]);
    }

    #[test]
    fn the_page_and_the_code_say_the_same() {
        let path = "crates/varve/src/a.rs";
        let code = "fn f() {\n    core.warn(\"a\");\n}\n";
        let [lacks] = errors(path, code, &[]).try_into().expect("one");
        assert!(lacks.starts_with("crates/varve/src/a.rs:2: docs/messages.md lacks `a`;"));
        let [extra] = errors(path, code, &["a", "b `c` d"])
            .try_into()
            .expect("one");
        assert!(
            extra.starts_with("docs/messages.md: nobody says `b `c` d` any more"),
            "{extra}"
        );
        let [unknown] = errors(path, "core.warn(&words);", &[])
            .try_into()
            .expect("one");
        assert!(
            unknown.contains("what `.warn(` says here is not found"),
            "{unknown}"
        );
        assert_eq!(errors(PASSING_ON[1], "core.note(&words);", &[]), [""; 0]);
    }
}
