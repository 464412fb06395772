//! A function has at most 100 lines, from its first to its last, tests excepted.
//!
//! Rust and C++ are read as far as this takes: without comments, strings and characters, a body is what
//! stands between a brace and its partner. In Rust a function is found by `fn`, in C++ by a body that begins
//! in the first column.

use super::{Findings, Source};

const MOST_LINES: usize = 100;

pub fn check(source: &Source, findings: &mut Findings) {
    let lengths = match source.path.rsplit_once('.') {
        Some((_, "rs")) if !is_test(&source.path) => rust(&without_texts(&source.text, true)),
        Some((_, "cc" | "c")) => cpp(&without_texts(&source.text, false)),
        _ => return,
    };
    for (first, lines, name) in lengths {
        if lines > MOST_LINES {
            findings.errors.push(format!(
                "{}:{}: `{name}` has {lines} lines; make its steps functions, so that none has more than {MOST_LINES}",
                source.path,
                first + 1
            ));
        }
    }
}

/// Whether all of the file is tests.
pub(super) fn is_test(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    path.contains("/tests/")
        || name.starts_with("tests")
        || name.ends_with("_tests.rs")
        || name == "model.rs"
}

/// The text with spaces for all comments, strings and characters. Lines stay where they are.
fn without_texts(text: &str, is_rust: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let name_before = out.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let length = text_length(rest, is_rust && !name_before).unwrap_or(0);
        if length == 0 {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            out.extend(
                rest[..length]
                    .chars()
                    .map(|c| if c == '\n' { c } else { ' ' }),
            );
            rest = &rest[length..];
        }
    }
    out
}

/// Bytes of the comment, string or character that `rest` begins with.
pub(super) fn text_length(rest: &str, may_be_raw: bool) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(rest.find("*/").map_or(rest.len(), |at| at + 2));
    }
    if rest.starts_with('"') {
        return Some(quoted_length(rest, '"'));
    }
    if may_be_raw && let Some(length) = raw_length(rest) {
        return Some(length);
    }
    // A character, not the begin of a lifetime.
    let inner = rest.strip_prefix('\'')?.chars();
    let is_character = rest[1..].starts_with('\\') || inner.clone().nth(1) == Some('\'');
    is_character.then(|| quoted_length(rest, '\''))
}

fn quoted_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    rest.len()
}

/// `r"…"`, `r#"…"#`, `br"…"`.
fn raw_length(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r')?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let begin = rest.len() - body.len();
    Some(
        body.find(&end)
            .map_or(rest.len(), |at| begin + at + end.len()),
    )
}

/// First line, number of lines and name of each function.
type Lengths = Vec<(usize, usize, String)>;

fn rust(text: &str) -> Lengths {
    let mut found = Lengths::new();
    let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let starts = text[..tests].match_indices("fn ");
    for (at, _) in
        starts.filter(|(at, _)| !text[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
    {
        let name: String = text[at + 3..]
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        if !name.is_empty()
            && let Some(body) = body_of(&text[at..])
        {
            found.push((line_of(text, at), lines(text, at, at + body), name));
        }
    }
    found
}

/// Where the body of the function that begins here ends; `None`: it has none.
fn body_of(function: &str) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, c) in function.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ';' if depth == 0 => return None,
            '{' if depth == 0 => return Some(at + braces(&function[at..])),
            _ => {}
        }
    }
    None
}

/// Bytes from the brace that this begins with to its partner.
fn braces(text: &str) -> usize {
    let mut depth = 0_i32;
    for (at, c) in text.char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

fn cpp(text: &str) -> Lengths {
    let mut found = Lengths::new();
    for (at, _) in text.match_indices("\n{\n") {
        let head = text[..at]
            .rsplit_once(['}', ';'])
            .map_or(&text[..at], |(_, head)| head);
        let before = head.split('(').next().unwrap_or(head);
        let name = before
            .rsplit(|c: char| c.is_whitespace() || c == '*')
            .next()
            .unwrap_or(before);
        found.push((
            line_of(text, at + 1),
            lines(text, at + 1, at + 1 + braces(&text[at + 1..])),
            name.into(),
        ));
    }
    found
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count()
}

fn lines(text: &str, begin: usize, end: usize) -> usize {
    text[begin..end].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(path: &str, text: &str) -> Vec<String> {
        super::super::findings(check, path, text).errors
    }

    fn body(lines: usize) -> String {
        "x(\"}\", '{', b'\\'', r#\"\"}\"#); // }\n".repeat(lines)
    }

    #[test]
    fn long_functions_are_told() {
        let rust = |lines| format!("fn f<'a>(x: &'a [u8; 3]) {{\n{}}}\n", body(lines));
        assert_eq!(errors("a.rs", &rust(98)), [""; 0]);
        let [error] = errors("a.rs", &rust(99)).try_into().expect("one");
        assert!(error.starts_with("a.rs:1: `f` has 101 lines"), "{error}");
        assert_eq!(errors("crates/a/tests/b.rs", &rust(200)), [""; 0]);
        let in_tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", rust(200));
        assert_eq!(errors("a.rs", &in_tests), [""; 0]);
    }

    #[test]
    fn declarations_have_no_body() {
        assert_eq!(
            errors(
                "a.rs",
                &format!("trait T {{\nfn f(x: [u8; 3]);\n{}}}\n", body(200))
            ),
            [""; 0]
        );
    }

    #[test]
    fn long_functions_of_the_plugin_are_told() {
        let cpp = |lines| {
            format!(
                "int g();\nint ha::f(int)\n{{\n{}}}\n",
                "x(\"}\", '{');\n".repeat(lines)
            )
        };
        assert_eq!(errors("a.cc", &cpp(98)), [""; 0]);
        let [error] = errors("a.cc", &cpp(99)).try_into().expect("one");
        assert!(error.contains("`ha::f` has 101 lines"), "{error}");
    }
}
