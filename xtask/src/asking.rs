//! Puts VARVE where MariaDB's tests ask for InnoDB by name, in a copy of a suite.
//!
//! The suite `innodb` is asked so as a whole. Of other suites the tests about foreign keys are, which have to
//! name an engine because MyISAM knows none: a test is one of them if its own text says so. What it sources
//! stays as it is, because other tests source it, too.
//!
//! A statement that fails with Varve alone ends its test, and what comes after is not compared. Where the
//! list of differences says that a statement may end by an error, the test goes on; where it has another text
//! for one in a test, the test and its result have that.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

/// Their tests ask for InnoDB by name.
const OF_INNODB: [&str; 1] = ["innodb"];
/// Variables and tables of InnoDB's that Varve has, too, for the same.
const NAMED_ALIKE: [&str; 6] = [
    "autoinc_lock_mode",
    "fast_shutdown",
    "flush_log_at_trx_commit",
    "lock_wait_timeout",
    "sys_foreign",
    "sys_foreign_cols",
];
/// Files of a suite that ask for an engine, or say what it answers.
const ASKING: [&str; 6] = ["test", "inc", "opt", "combinations", "result", "rdiff"];

/// What a test is asked otherwise than it stands there, as a row of the list has it.
#[derive(Debug, PartialEq, Eq)]
pub struct Amendment {
    /// Such as `innodb.stored_fk`, of all its combinations.
    test: String,
    change: Change,
}

#[derive(Debug, PartialEq, Eq)]
enum Change {
    /// A statement may end by this error, too. Its first line is here, whole.
    MayFail { error: u16, line: String },
    /// The test, and its result, say something else.
    Says { text: String, instead: String },
}

/// What a document says of tests: rows of four cells, of which the first names a test. An error and a line of
/// the test follow, or a text in it and what it is to be.
pub fn amendments(document: &str) -> Vec<Amendment> {
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
    let row = |row: &str| {
        // What has backticks itself stands between two of them and a space.
        let row = row.replace("| `` ", "| `").replace(" `` |", "` |");
        let (test, rest) = row.split_once("` | ")?;
        let (first, rest) = rest.split_once(" | `")?;
        let (second, _reason) = rest.split_once("` | ")?;
        let text = first
            .strip_prefix('`')
            .and_then(|text| text.strip_suffix('`'));
        let second = second.to_string();
        let change = match text {
            Some(text) => Change::Says {
                text: text.into(),
                instead: second,
            },
            None => Change::MayFail {
                error: first.parse().ok()?,
                line: second,
            },
        };
        Some(Amendment {
            test: test.into(),
            change,
        })
    };
    rows.filter_map(row).collect()
}

/// Has the tests of a suite, which is a copy, create tables of Varve's where they ask for InnoDB's.
pub fn ask_for_varve(dir: &Path, suite: &str, amendments: &[Amendment]) -> Result<()> {
    let files = files_below(dir)?;
    let mut of_foreign_keys = Vec::new();
    for path in files.iter().filter(|path| is_test(path)) {
        if is_about_foreign_keys(&fs::read(path)?) {
            of_foreign_keys.push(test_of(path));
        }
    }
    for path in &files {
        if OF_INNODB.contains(&suite) || of_foreign_keys.contains(&test_of(path)) {
            fs::write(path, with_varve(&fs::read(path)?))?;
        }
    }
    for Amendment { test, change } in amendments {
        let Some(name) = test.strip_prefix(&format!("{suite}.")) else {
            continue;
        };
        let mut is_amended = false;
        for path in files.iter().filter(|path| test_of(path) == name) {
            if let Some(text) = amended(path, &fs::read(path)?, change) {
                fs::write(path, text)?;
                is_amended |= is_test(path);
            }
        }
        ensure!(
            is_amended,
            "{test} has nothing to which this applies: {change:?}"
        );
    }
    Ok(())
}

fn is_test(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "test")
}

/// The files of a suite that ask for an engine, or say what it answers.
fn files_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            files.append(&mut files_below(&path)?);
        } else if path
            .extension()
            .is_some_and(|e| ASKING.contains(&&*e.to_string_lossy()))
        {
            files.push(path);
        }
    }
    Ok(files)
}

/// The test that a file belongs to: `a` of `a.test`, `a-slave.opt`, of `a,copy.rdiff`, too.
fn test_of(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let stem = stem.split(',').next().unwrap_or_default();
    let is_opt = path.extension().is_some_and(|e| e == "opt");
    let ends = ["-master", "-slave", "-client"]
        .into_iter()
        .filter(|_| is_opt);
    let short = ends.filter_map(|end| stem.strip_suffix(end)).next();
    short.unwrap_or(stem).into()
}

/// Whether a test says `FOREIGN KEY` in what is no comment of its.
fn is_about_foreign_keys(text: &[u8]) -> bool {
    let is_comment = |line: &[u8]| line.trim_ascii_start().starts_with(b"#");
    let lines = text.split(|byte| *byte == b'\n');
    let statements = lines.filter(|line| !is_comment(line));
    let words = statements.flat_map(|line| line.split(|byte| !goes_on(byte)));
    let mut words = words.filter(|word| !word.is_empty()).peekable();
    while let Some(word) = words.next() {
        let next = words.peek().copied().unwrap_or_default();
        if word.eq_ignore_ascii_case(b"foreign") && next.eq_ignore_ascii_case(b"key") {
            return true;
        }
    }
    false
}

/// The file of a test with this change; nothing if there is none to make.
fn amended(path: &Path, text: &[u8], change: &Change) -> Option<Vec<u8>> {
    match change {
        Change::MayFail { error, line } => is_test(path).then(|| going_on(text, *error, line))?,
        Change::Says {
            text: from,
            instead,
        } => {
            let [from, to] = [from, instead].map(|text| with_varve(text.as_bytes()));
            replaced(text, &from, &to)
        }
    }
}

/// The test, in which the statement with this line may fail wherever it stands.
fn going_on(text: &[u8], error: u16, line: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut is_there = false;
    let asked = with_varve(line.as_bytes());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if line.trim_ascii() == asked {
            // Of several such words before a statement the last ones count. The runner tells of lines by
            // their numbers.
            out.extend(format!("error 0,{error}; ").into_bytes());
            is_there = true;
        }
        out.extend(line);
    }
    is_there.then_some(out)
}

fn replaced(text: &[u8], from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(from.len()).position(|window| window == from) {
        out.extend(&rest[..at]);
        out.extend(to);
        rest = &rest[at + from.len()..];
    }
    let is_there = rest.len() < text.len();
    out.extend(rest);
    is_there.then_some(out)
}

/// `ENGINE = InnoDB`, with or without the sign and quotes, also of the default, is `ENGINE = VARVE` then, a
/// test's variable such as `$engine_table` gets this name, and `innodb_lock_wait_timeout` is
/// `varve_lock_wait_timeout`. Tests are in any character set.
fn with_varve(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = find(rest, b"innodb") {
        let (before, from) = rest.split_at(at);
        out.extend(before);
        let (name, after) = from.split_at(6);
        out.extend(match (is_asked_for(before, after), is_of_both(after)) {
            (true, _) => b"VARVE",
            (_, true) => b"varve",
            _ => name,
        });
        rest = after;
    }
    out.extend(rest);
    out
}

/// Whether a name between these is an engine's that is asked for.
fn is_asked_for(before: &[u8], after: &[u8]) -> bool {
    let quote = after.first().filter(|byte| b"'\"`".contains(*byte));
    let unquoted = quote.and_then(|quote| before.strip_suffix(&[*quote]));
    if unquoted.is_none() && after.first().is_some_and(goes_on) {
        return false;
    }
    let before = unquoted.unwrap_or(before);
    let head = before.trim_ascii_end();
    let set = head.strip_suffix(b"=").map(<[u8]>::trim_ascii_end);
    let mut words = set.unwrap_or(head).rsplit(|byte| !goes_on(byte));
    let word = words.next().unwrap_or_default().to_ascii_lowercase();
    match set {
        Some(_) => find(&word, b"engine").is_some(),
        None => word.ends_with(b"engine") && before.len() > head.len(),
    }
}

/// Whether what follows InnoDB's name makes it one that Varve has, too, as `_lock_wait_timeout`, or
/// `-lock-wait-timeout` of an option.
fn is_of_both(after: &[u8]) -> bool {
    let goes_on = |byte: &&u8| goes_on(byte) || **byte == b'-';
    let name: Vec<u8> = after.iter().take_while(goes_on).copied().collect();
    let name = String::from_utf8_lossy(&name)
        .to_lowercase()
        .replace('-', "_");
    name.strip_prefix('_')
        .is_some_and(|name| NAMED_ALIKE.contains(&name))
}

fn goes_on(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || *byte == b'_'
}

/// Where this word is, in any case of letters.
fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    let mut windows = text.windows(word.len());
    windows.position(|window| window.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_of_foreign_keys_says_so_itself() {
        let is = |text: &str| is_about_foreign_keys(text.as_bytes());
        assert!(is(
            "create table t (a int,\n foreign\tKEY(a) references p (a));\n"
        ));
        assert!(is("ALTER TABLE t DROP FOREIGN\n  KEY x;"));
        assert!(!is("# a foreign key\nset foreign_key_checks=0;\n"));
        assert!(!is("  # foreign key\nselect foreign, `keys`;"));
    }

    #[test]
    fn files_belong_to_tests() {
        for (file, test) in [
            ("t/a.test", "a"),
            ("r/a,copy.rdiff", "a"),
            ("t/a-master.opt", "a"),
            ("t/a-master.test", "a-master"),
            ("a_b.result", "a_b"),
        ] {
            assert_eq!(test_of(Path::new(file)), test, "{file}");
        }
    }

    #[test]
    fn a_test_goes_on_past_what_a_list_names() {
        let document = "| `a.b`, `a.c` | why |\n| `a.b` | `x` and `y` |\n\
            | `a.b` | 1005 | `CREATE TABLE p (a INT) ENGINE=InnoDB;` | why |\n\
            | `a.b` | 7 | `` DROP TABLE `p` `` | why |\n\
            | `a.c` | no number | `x` | why |\n\
            | `a.c` | `fulltext (a), engine innodb` | `engine innodb` | why |\n";
        let found = amendments(document);
        let [b, quoted, c] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((&*b.test, &*c.test), ("a.b", "a.c"));
        let expected = Change::MayFail {
            error: 7,
            line: "DROP TABLE `p`".into(),
        };
        assert_eq!(quoted.change, expected);
        let amended = |file: &str, text: &str, change| {
            let text = amended(Path::new(file), text.as_bytes(), change)?;
            Some(String::from_utf8(text).unwrap())
        };
        let text = "--error 1\n CREATE TABLE p (a INT) ENGINE=VARVE;\nSELECT 1;\n";
        let expected =
            "--error 1\nerror 0,1005;  CREATE TABLE p (a INT) ENGINE=VARVE;\nSELECT 1;\n";
        assert_eq!(amended("b.test", text, &b.change).unwrap(), expected);
        assert_eq!(amended("b.result", text, &b.change), None);
        assert_eq!(amended("b.test", "SELECT 1;\n", &b.change), None);
        let text = "(b int, fulltext (a), engine VARVE;\n1\nfulltext (a), engine VARVE\n";
        let expected = "(b int, engine VARVE;\n1\nengine VARVE\n";
        for file in ["c.test", "c.result"] {
            assert_eq!(amended(file, text, &c.change).unwrap(), expected);
        }
        assert_eq!(amended("c.test", expected, &c.change), None);
    }

    #[test]
    fn only_tests_of_foreign_keys_are_asked_in_other_suites() {
        let dir = tempfile::tempdir().unwrap();
        let asks = "create table t (a int) engine=innodb;\n";
        let about = format!("{asks}alter table t add foreign key (a) references t (a);\n");
        for (file, text) in [
            ("fk.test", &about[..]),
            ("fk.result", asks),
            ("other.test", asks),
            ("fk.txt", asks),
        ] {
            fs::write(dir.path().join(file), text).unwrap();
        }
        ask_for_varve(dir.path(), "main", &[]).unwrap();
        let has = |file: &str| {
            fs::read_to_string(dir.path().join(file))
                .unwrap()
                .contains("VARVE")
        };
        assert!(has("fk.test") && has("fk.result"));
        assert!(!has("other.test") && !has("fk.txt"));
        for row in [
            "| `main.fk` | 1 | `x;` | why |",
            "| `main.f` | `t` | `u` | why |",
        ] {
            assert!(ask_for_varve(dir.path(), "main", &amendments(row)).is_err());
        }
    }

    #[test]
    fn tables_of_innodb_are_asked_for_by_varves_name() {
        let text = b"create table t (a int) engine = innodb;\n\xe4 ENGINE=InnoDB; Engine InnoDB";
        let asked = with_varve(text);
        let expected = b"create table t (a int) engine = VARVE;\n\xe4 ENGINE=VARVE; Engine VARVE";
        assert_eq!(asked, expected);
        let text = b"let $engine_table= InnoDB; set @@storage_engine='innodb'; engine \"InnoDB\"";
        let expected = b"let $engine_table= VARVE; set @@storage_engine='VARVE'; engine \"VARVE\"";
        assert_eq!(with_varve(text), expected);
        let alike = b"@@INNODB_lock_wait_timeout --innodb-fast-shutdown=0";
        assert_eq!(
            with_varve(alike),
            b"@@varve_lock_wait_timeout --varve-fast-shutdown=0"
        );
        let others =
            b"have_innodb.inc engine=innodb_x engines InnoDB x='innodb' # InnoDB innodb_fast_shutdowns";
        assert_eq!(with_varve(others), others);
    }
}
