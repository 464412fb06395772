//! MariaDB's own suites with Varve as default engine, beside InnoDB as default engine.
//!
//! Their results were recorded with MyISAM as default engine, mostly, so many tests fail with any other one,
//! because rows come in another order or a message has the engine's name. What counts is InnoDB: a test that
//! fails with Varve as it fails with InnoDB, but for the engine's name, is as good as one that passes. What
//! is left is a difference, and `mariadb/mysql-test/differences.md` says of each why it is there. One that it
//! does not name is a failure.
//!
//! InnoDB is asked about what did not pass with Varve, and about nothing else. Its outcomes depend on the
//! server alone, and are kept in the cache.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::asking::{amendments, ask_for_varve};
use crate::listed::listed;
use crate::mtr::{self, ALL_ONCE, Count, Outcome};
use varve_testbed::plugin;
use varve_testbed::prefix::Prefix;
use varve_testbed::server::Engine;
use varve_testbed::workspace::{Workspace, cache_dir};

#[derive(clap::Args)]
pub struct SuitesArgs {
    /// Suites to run, such as `main` or `engines/funcs` [default: all that are known to make sense]
    suites: Vec<String>,
    /// Only tests whose names begin so
    #[arg(long)]
    test: Option<String>,
    /// Only tests of which the list says that they differ
    #[arg(long)]
    listed: bool,
    /// Ask InnoDB again, too
    #[arg(long)]
    again: bool,
}

const SUITES: [&str; 28] = [
    "main",
    "innodb",
    "sql_sequence",
    "handler",
    "engines/funcs",
    "engines/iuds",
    "parts",
    "gcol",
    "vcol",
    "versioning",
    "period",
    "rpl",
    "binlog",
    "binlog_encryption",
    "multi_source",
    "compat/oracle",
    "compat/mssql",
    "compat/maxdb",
    "json",
    "optimizer_unfixed_bugs",
    "funcs_1",
    "sys_vars",
    "perfschema",
    "plugins",
    "roles",
    "heap",
    "csv",
    "client",
];
/// What `cargo xtask test` runs.
const SHORT: [&str; 13] = [
    "engines/iuds",
    "gcol",
    "vcol",
    "period",
    "sql_sequence",
    "handler",
    "json",
    "optimizer_unfixed_bugs",
    "compat/oracle",
    "roles",
    "heap",
    "csv",
    "client",
];

/// What the table says of a suite.
const COLUMNS: [&str; 6] = [
    "passed",
    "failed",
    "skipped",
    "as InnoDB",
    "otherwise",
    "minutes",
];

const DIFFERENCES: &str = "mariadb/mysql-test/differences.md";
/// What comes behind it there is not of what differs.
const AMENDMENTS: &str = "## What tests are asked otherwise";

/// How a test ended, and what the runner said of it if it did not pass.
struct Ended {
    outcome: Outcome,
    text: String,
}

impl Ended {
    /// It takes too long for a run of a whole suite. Asked for by its name it would run.
    fn is_left_out(&self) -> bool {
        self.outcome == Outcome::Skipped && self.text.contains("--big-test")
    }

    /// What the runner says if the file with it is gone.
    fn lost_its_result(&self) -> bool {
        self.text.contains("it was not possible to execute 'diff'")
    }
}

/// By name and combination, such as `versioning.foreign 'pk'`.
type Run = BTreeMap<String, Ended>;

pub fn run(workspace: &Workspace, args: &SuitesArgs) -> Result<ExitCode> {
    let count = compare(workspace, args)?;
    Ok(match count.failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// A selection that does not take long.
pub fn run_short(workspace: &Workspace) -> Result<Count> {
    let args = SuitesArgs {
        suites: SHORT.map(String::from).to_vec(),
        test: None,
        listed: false,
        again: false,
    };
    compare(workspace, &args)
}

/// Runs the suites and tells what differs. Tests that differ for a reason that is written down have passed.
fn compare(workspace: &Workspace, args: &SuitesArgs) -> Result<Count> {
    let suites: Vec<&str> = match args.suites.is_empty() {
        true => SUITES.to_vec(),
        false => args.suites.iter().map(String::as_str).collect(),
    };
    let prefix = plugin::build(workspace)?;
    let differences = fs::read_to_string(workspace.root.join(DIFFERENCES))?;
    let (differ, amended) = (differences.split_once(AMENDMENTS))
        .with_context(|| format!("{DIFFERENCES} has no line {AMENDMENTS:?}"))?;
    let (listed, amendments) = (listed(differ), amendments(amended));
    let mut total = Count::default();
    let mut table = format!("{}\n", COLUMNS.map(|name| format!("{name:>10}")).concat());
    let mut told = String::new();
    for suite in suites {
        let dir = own_suite(&prefix, suite)?;
        ask_for_varve(&dir, suite, &amendments)?;
        let begin = Instant::now();
        let tests = match args.listed {
            true => tests_of(suite, &listed, &dir)?,
            false => Vec::new(),
        };
        if args.listed && tests.is_empty() {
            continue;
        }
        let all = Suite {
            workspace,
            prefix: &prefix,
            name: suite,
            args,
        };
        let (succeeded, ours) = run_suite(all, Engine::Varve, &tests)?;
        let took = begin.elapsed();
        // InnoDB gets it as it was, and other suites, which read files of this one.
        own_suite(&prefix, suite)?;
        let innodb = baseline(all, &ours)?;
        let a = count(&ours);
        let differing = differing(&ours, &innodb);
        table += &row(suite, &a, differing.len(), took);
        for name in &differing {
            let is_known = listed.iter().any(|listed| is_named(name, listed));
            total.failed += u32::from(!is_known);
            total.passed += u32::from(is_known);
            if !is_known {
                let file = keep(workspace, name, &ours[name], innodb.get(name))?;
                let differs = format!("{name}: differs; see {}", file.display());
                told += &format!("{differs}\n");
                total.failures.push(differs);
            }
        }
        let was_run = |listed: &str| ours.keys().any(|name| is_named(name, listed));
        let differs = |listed: &str| differing.iter().any(|name| is_named(name, listed));
        let gone = listed.iter().filter(|name| was_run(name) && !differs(name));
        gone.for_each(|name| {
            told += &format!("{name}: is in {DIFFERENCES}, and does not differ\n")
        });
        total.passed += a.passed + a.failed + a.skipped - differing.len() as u32;
        if !succeeded && a.failed == 0 {
            told += &format!("{suite}: the runner failed, though no test did; see above\n");
            total.failed += 1;
        }
    }
    print!("\n{table}{told}");
    Ok(total)
}

/// A line of the table: how the tests ended, how many of those that did not pass end so with InnoDB, how many
/// do not, and how long Varve's half took.
fn row(name: &str, count: &Count, differing: usize, took: Duration) -> String {
    let rest = (count.failed + count.skipped) as usize;
    let numbers = [count.passed, count.failed, count.skipped].map(|n| format!("{n:>10}"));
    let minutes = took.as_secs_f64() / 60.0;
    format!(
        "{}{:>10}{differing:>10}{minutes:>10.1}  {name}\n",
        numbers.concat(),
        rest - differing
    )
}

fn count(run: &Run) -> Count {
    let mut count = Count::default();
    run.values().for_each(|ended| count.add(ended.outcome));
    count
}

/// The tests that did not pass, and ended otherwise than with InnoDB.
fn differing(ours: &Run, innodb: &Run) -> BTreeSet<String> {
    let differs = |(name, ended): &(&String, &Ended)| {
        let other = innodb.get(*name);
        match ended.outcome {
            Outcome::Passed => false,
            Outcome::Skipped if ended.is_left_out() => false,
            Outcome::Skipped => other.is_none_or(|other| other.outcome != Outcome::Skipped),
            Outcome::Failed => {
                let other = other.filter(|other| other.outcome == Outcome::Failed);
                differs_from(&ended.text, other.map(|other| &*other.text))
            }
        }
    };
    let all = ours.iter().filter(differs);
    all.map(|(name, _)| name.clone()).collect()
}

/// Whether what the runner says of a failed test is otherwise than what it says of InnoDB's failure. Where
/// Varve's result differs from the recorded one, InnoDB's has to differ in the same way, and in this order.
fn differs_from(ours: &str, innodb: Option<&str>) -> bool {
    if !ours.contains("\n@@ ") {
        return innodb.is_none_or(|innodb| essence(ours) != essence(innodb));
    }
    let mut left = innodb.map_or(Vec::new(), changes).into_iter();
    let mut ours = changes(ours).into_iter();
    !ours.all(|line| left.any(|other| other == line))
}

/// What the runner says of a failed test, without what is otherwise in each run: what came just before (up to
/// there no result is compared), and what it finds in a server that it has stopped after too long a time.
fn essence(text: &str) -> Vec<String> {
    let noise = [
        "More results from",
        " - saving",
        " - skipping",
        "        Test ended at",
        "== /",
    ];
    let is_end =
        |line: &str| line.starts_with(" == ") || line.starts_with("The result from queries");
    let lines = text.lines().take_while(|line| !is_end(line));
    let lines = lines.filter(|line| !noise.iter().any(|noise| line.starts_with(noise)));
    lines
        .map(|line| nameless(&placeless(timeless(line))))
        .collect()
}

/// A line of a server's log without its time.
fn timeless(line: &str) -> &str {
    let begins_with_digit = line.starts_with(|c: char| c.is_ascii_digit());
    let at = line.find(" [").filter(|_| begins_with_digit);
    at.map_or(line, |at| &line[at..])
}

/// The line, in which files have no directories: those are other ones in another checkout, and for another
/// worker.
fn placeless(line: &str) -> String {
    // The test program rings the bell before its name.
    let is_end = |c: char| c.is_whitespace() || c.is_control() || "'\"=;,".contains(c);
    let words = line.split_inclusive(is_end);
    let placeless = words.map(|word| match word.rsplit_once('/') {
        Some(_) if word.contains("/mtr/") => "a file of the test's ",
        Some((place, file)) if place.starts_with('/') => file,
        _ => word,
    });
    placeless.collect()
}

/// The lines of a difference between results that differ by more than the engine's name.
fn changes(text: &str) -> Vec<String> {
    let mut changes = Vec::new();
    let (mut gone, mut come) = (Vec::new(), Vec::new());
    let is_head = |line: &&str| line.starts_with("---") || line.starts_with("+++");
    // What is the same but for the name is so in its place: rows in another order are a difference. The last
    // run of lines ends, too.
    for line in text.lines().filter(|line| !is_head(line)).chain(["@@"]) {
        match line.as_bytes().first() {
            Some(b'-') if come.is_empty() => gone.push(nameless(&line[1..])),
            Some(b'+') => come.push(nameless(&line[1..])),
            _ => {
                if gone != come {
                    changes.extend(gone.drain(..).map(|line| format!("-{line}")));
                    changes.extend(come.drain(..).map(|line| format!("+{line}")));
                }
                gone.clear();
                come.clear();
                if let Some(line) = line.strip_prefix('-') {
                    gone.push(nameless(line));
                }
            }
        }
    }
    changes
}

/// The line, in which every engine has the same name.
fn nameless(line: &str) -> String {
    let mut line = line.to_string();
    for engine in ["MyISAM", "InnoDB", "VARVE"] {
        for name in [engine, &engine.to_lowercase(), &engine.to_uppercase()] {
            line = line.replace(name, "ENGINE");
        }
    }
    line
}

/// Whether a name of the list, in which `*` stands for anything, is this test's.
fn is_named(test: &str, listed: &str) -> bool {
    match listed.split_once('*') {
        None => test == listed,
        Some((begin, end)) => {
            test.len() >= begin.len() + end.len() && test.starts_with(begin) && test.ends_with(end)
        }
    }
}

/// Where both texts can be read.
fn keep(
    workspace: &Workspace,
    name: &str,
    ours: &Ended,
    innodb: Option<&Ended>,
) -> Result<PathBuf> {
    let dir = workspace.target.join("suites");
    fs::create_dir_all(&dir)?;
    let file = dir.join(format!("{}.txt", file_name(name)));
    let mut text = format!("== VARVE: {:?}\n{}\n", ours.outcome, ours.text);
    match innodb {
        Some(ended) => text += &format!("== InnoDB: {:?}\n{}\n", ended.outcome, ended.text),
        None => text += "== InnoDB: no such test\n",
    }
    fs::write(&file, text)?;
    Ok(file)
}

fn file_name(name: &str) -> String {
    name.replace(['/', ' ', '\'', ','], "_")
}

/// A copy of a suite that may be changed, as the server's makers ship it.
fn own_suite(prefix: &Prefix, suite: &str) -> Result<PathBuf> {
    let dir = prefix.copy_suite(suite)?;
    if suite.starts_with("engines/") {
        // Each is a default engine.
        fs::remove_file(dir.join("combinations"))?;
    }
    Ok(dir)
}

/// The tests of a suite that these names of the list stand for.
fn tests_of(suite: &str, listed: &BTreeSet<String>, dir: &Path) -> Result<Vec<String>> {
    let names = listed.iter().map(|name| mtr::without_combination(name));
    let names = Vec::from_iter(names.filter(|name| name.starts_with(&format!("{suite}."))));
    let mut tests = BTreeSet::new();
    // A suite's tests are in its folder, or in one below.
    for dir in [dir, &dir.join("t")] {
        for entry in fs::read_dir(dir).into_iter().flatten() {
            let path = entry?.path();
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let name = format!("{suite}.{stem}");
            let is_test = path.extension().is_some_and(|e| e == "test");
            if is_test && names.iter().any(|listed| is_named(&name, listed)) {
                tests.insert(name);
            }
        }
    }
    Ok(tests.into_iter().collect())
}

/// InnoDB's outcomes of what did not pass: those that are kept, and the others made now.
fn baseline(suite: Suite<'_>, ours: &Run) -> Result<Run> {
    let dir = cache_dir()?.join("suites").join(&suite.prefix.version);
    let file = dir.join(format!("{}.json", file_name(suite.name)));
    let mut run = match fs::read_to_string(&file) {
        Ok(text) => {
            from_json(&text).with_context(|| format!("in {}; remove it", file.display()))?
        }
        Err(_) => Run::new(),
    };
    let open = ours.iter().filter(|(name, ended)| {
        let counts = ended.outcome != Outcome::Passed && !ended.is_left_out();
        counts && (suite.args.again || !run.contains_key(*name))
    });
    // A test's combinations are run together.
    let tests = open.map(|(name, _)| mtr::without_combination(name).to_string());
    let tests = Vec::from_iter(tests.collect::<BTreeSet<_>>());
    if tests.is_empty() {
        return Ok(run);
    }
    let (_, mut new) = run_suite(suite, Engine::Innodb, &tests)?;
    run.append(&mut new);
    fs::create_dir_all(&dir)?;
    // Another checkout may do the same.
    let unfinished = file.with_extension(format!("{}", std::process::id()));
    fs::write(&unfinished, to_json(&run))?;
    fs::rename(&unfinished, &file)?;
    Ok(run)
}

fn to_json(run: &Run) -> String {
    let ended = |(name, ended): (&String, &Ended)| {
        let outcome = match ended.outcome {
            Outcome::Passed => "passed",
            Outcome::Failed => "failed",
            Outcome::Skipped => "skipped",
        };
        (name.clone(), json!([outcome, ended.text]))
    };
    Value::Object(run.iter().map(ended).collect()).to_string()
}

fn from_json(text: &str) -> Result<Run> {
    let value: Value = serde_json::from_str(text)?;
    let tests = value.as_object().context("no object")?;
    let ended = |(name, value): (&String, &Value)| {
        let outcome = match value[0].as_str() {
            Some("passed") => Outcome::Passed,
            Some("failed") => Outcome::Failed,
            Some("skipped") => Outcome::Skipped,
            _ => bail!("no outcome of {name}"),
        };
        let text = value[1].as_str().context("no text")?.to_string();
        Ok((name.clone(), Ended { outcome, text }))
    };
    tests.iter().map(ended).collect()
}

/// A suite, and who runs it.
#[derive(Clone, Copy)]
struct Suite<'a> {
    workspace: &'a Workspace,
    prefix: &'a Prefix,
    name: &'a str,
    args: &'a SuitesArgs,
}

/// Runs these tests of a suite, or all. Two workers that run a test in two combinations at once write its
/// result to the same file, and one takes it from the other: what lost its result so is run again, alone.
fn run_suite(suite: Suite<'_>, engine: Engine, tests: &[String]) -> Result<(bool, Run)> {
    let (succeeded, mut run) = run_once(suite, engine, tests)?;
    let lost = run.iter().filter(|(_, ended)| ended.lost_its_result());
    let lost: BTreeSet<&str> = lost
        .map(|(name, _)| mtr::without_combination(name))
        .collect();
    if !lost.is_empty() {
        let alone = ["--parallel=1"].into_iter().chain(lost);
        let alone: Vec<String> = alone.map(String::from).collect();
        run.extend(run_once(suite, engine, &alone)?.1);
    }
    Ok((succeeded, run))
}

fn run_once(suite: Suite<'_>, engine: Engine, tests: &[String]) -> Result<(bool, Run)> {
    let mut all = ALL_ONCE.map(String::from).to_vec();
    all.push(format!("--suite={}", suite.name));
    all.push("--testcase-timeout=4".into());
    all.push("--suite-timeout=300".into());
    if let Some(test) = &suite.args.test {
        all.push(format!("--do-test={test}"));
    }
    // The runner's configuration leaves it out but for tests that ask for it.
    all.push("--mysqld=--innodb".into());
    match engine {
        Engine::Varve => all.extend([
            "--mysqld=--plugin-load-add=ha_varve".into(),
            "--mysqld=--default-storage-engine=VARVE".into(),
        ]),
        Engine::Innodb => all.push("--mysqld=--default-storage-engine=InnoDB".into()),
    }
    all.extend_from_slice(tests);
    let mut run = Run::new();
    let mut failed: Option<String> = None;
    let succeeded = mtr::stream(suite.workspace, suite.prefix, &all, |line| {
        if let Some((name, outcome)) = mtr::result_of(line) {
            failed = (outcome == Outcome::Failed).then(|| name.clone());
            let text = match outcome {
                Outcome::Skipped => line.rsplit(" ]").next().unwrap_or_default().into(),
                _ => String::new(),
            };
            run.insert(name, Ended { outcome, text });
        } else if let Some(ended) = failed.as_ref().and_then(|name| run.get_mut(name)) {
            ended.text += line;
            ended.text.push('\n');
            if line.starts_with(" - saving ") || line.starts_with(" - skipping ") {
                failed = None;
            }
        }
    })?;
    if run.is_empty() {
        bail!("the test runner ran no test of {}", suite.name);
    }
    Ok((succeeded, run))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(tests: &[(&str, Outcome, &str)]) -> Run {
        let ended = |&(name, outcome, text): &(&str, Outcome, &str)| {
            let text = text.to_string();
            (name.to_string(), Ended { outcome, text })
        };
        tests.iter().map(ended).collect()
    }

    #[test]
    fn what_innodb_does_too_is_no_difference() {
        use Outcome::{Failed, Passed, Skipped};
        let ours = run(&[
            ("a.passes", Passed, ""),
            (
                "a.name",
                Failed,
                "--- x\n@@ -1 +1 @@\n-ENGINE=MyISAM\n+ENGINE=VARVE\n",
            ),
            ("a.other", Failed, "\n@@ -1 +1 @@\n+2\n"),
            ("a.ours", Failed, "query 'x' failed\n"),
            ("a.same", Failed, "\n@@ -1 +1 @@\n-1 VARVE\n+2\n"),
            ("a.order", Failed, "\n@@ -1 +1 @@\n-1\n-2\n+2\n+1\n"),
            ("a.lost", Failed, "\n@@ -1 +1 @@\n-1\n-1\n+1\n"),
            ("a.dumb", Failed, ""),
            ("a.less", Failed, "\n@@ -1 +1 @@\n-2\n+3\n"),
            ("a.slow", Failed, "timeout\n == a.log ==\n1"),
            (
                "a.place",
                Failed,
                "\u{7}/x/test: in \"/x/a.inc\": exec of '/x/b' --dir=/x/mtr/1\n2026-01-01 1:02:03 0 [Note] x",
            ),
            ("a.skips", Skipped, ""),
            ("a.big", Skipped, "Test needs --big-test"),
            ("a.new 'x'", Failed, "query 'x' failed"),
        ]);
        let innodb = run(&[
            ("a.passes", Failed, "+1\n"),
            ("a.name", Passed, ""),
            ("a.other", Failed, "\n@@ -1 +1 @@\n+1\n"),
            ("a.ours", Passed, ""),
            (
                "a.same",
                Failed,
                "--- y\n@@ -3 +3 @@\n-1 InnoDB\n context\n+2\n",
            ),
            (
                "a.less",
                Failed,
                "\n@@ -1 +1 @@\n-1\n context\n-2\n+3\n+4\n",
            ),
            ("a.slow", Failed, "timeout\n == a.log ==\n2"),
            (
                "a.place",
                Failed,
                "\u{7}/y/test: in \"/y/a.inc\": exec of '/y/b' --dir=/y/mtr/2\n2026-01-02 1:02:03 0 [Note] x",
            ),
            ("a.skips", Passed, ""),
            ("a.big", Passed, ""),
        ]);
        let differing: Vec<_> = differing(&ours, &innodb).into_iter().collect();
        let expected = [
            "a.dumb",
            "a.lost",
            "a.new 'x'",
            "a.order",
            "a.other",
            "a.ours",
            "a.skips",
        ];
        assert_eq!(differing, expected);
        assert_eq!(count(&ours).failed, 11);
    }

    #[test]
    fn runs_come_back_from_the_cache() {
        let before = run(&[
            ("a.b", Outcome::Failed, "a \"text\"\n"),
            ("a.c 'd'", Outcome::Skipped, ""),
        ]);
        let after = from_json(&to_json(&before)).unwrap();
        assert_eq!(to_json(&after), to_json(&before));
        assert!(from_json("{\"a\": [\"gone\", \"\"]}").is_err());
    }

    #[test]
    fn a_name_in_the_list_may_stand_for_several() {
        assert!(is_named("vcol.b 'c'", "vcol.b 'c'") && is_named("vcol.b 'c'", "vcol.* 'c'"));
        assert!(!is_named("vcol.b 'd'", "vcol.* 'c'") && !is_named("aa", "aa*a"));
    }
}
