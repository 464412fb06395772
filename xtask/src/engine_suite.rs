//! MariaDB's suite `storage_engine`, with its parts `trx` and `parts`: what the server expects of any engine.
//!
//! An engine joins it by an *overlay*: its name, its options, and for each test whose result is not the
//! suite's own the difference, as `TEST.rdiff`. Ours is `mariadb/mysql-test/storage_engine`; InnoDB's comes
//! with the test runner. The suite is older than the server, so even InnoDB fails much of it.
//! docs/mariadb-suite.md says why results differ.
//!
//! `mysql-test-run.pl --record` would overwrite the suite's own results; `--record` here writes differences
//! into our overlay.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::mtr::{self, ALL_ONCE, Count, Outcome};
use varve_testbed::command::Cmd;
use varve_testbed::plugin;
use varve_testbed::prefix::Prefix;
use varve_testbed::workspace::Workspace;

#[derive(clap::Args)]
pub struct EngineSuiteArgs {
    /// Tests to run, by name alone, such as `insert` [default: all]
    tests: Vec<String>,
    /// Run InnoDB's overlay as well and show the results beside each other
    #[arg(long)]
    beside_innodb: bool,
    /// Write how the results of failed tests differ from the suite's own into our overlay, to be reviewed one
    /// by one
    #[arg(long)]
    record: bool,
}

const SUITES: [&str; 3] = [
    "storage_engine",
    "storage_engine/trx",
    "storage_engine/parts",
];
const OURS: &str = "varve";
const INNODB: &str = "innobase";

/// Tests of the priority of table locks, which engines with row locks have no use for; two whose results
/// would have paths of the machine; and one that copies a file that only InnoDB calls so.
const NOT_OURS: &str = "_(low|high)_prio|tbl_opt_(data|index)_dir|alter_tablespace";

/// By names that overlays have in common, such as `storage_engine/trx.delete`.
type Outcomes = BTreeMap<String, Outcome>;

pub fn run(workspace: &Workspace, args: &EngineSuiteArgs) -> Result<ExitCode> {
    let prefix = plugin::build(workspace)?;
    let (succeeded, ours) = run_overlay(workspace, &prefix, OURS, &args.tests)?;
    if args.record {
        for (name, _) in ours.iter().filter(|(_, o)| **o == Outcome::Failed) {
            record(workspace, &prefix, name)?;
        }
    }
    if args.beside_innodb {
        let (_, innodb) = run_overlay(workspace, &prefix, INNODB, &args.tests)?;
        print!("{}", beside(&ours, &innodb));
    } else {
        let Count {
            passed,
            failed,
            skipped,
            ..
        } = count(&ours);
        println!("{passed} passed, {failed} failed, {skipped} skipped");
    }
    Ok(if succeeded {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The whole suite with our engine.
pub fn run_ours(workspace: &Workspace) -> Result<Count> {
    let prefix = plugin::build(workspace)?;
    let (succeeded, ours) = run_overlay(workspace, &prefix, OURS, &[])?;
    count(&ours).check(succeeded)
}

fn run_overlay(
    workspace: &Workspace,
    prefix: &Prefix,
    overlay: &str,
    tests: &[String],
) -> Result<(bool, Outcomes)> {
    let suites = SUITES.map(|suite| format!("{suite}-{overlay}"));
    let mut args = ALL_ONCE.map(String::from).to_vec();
    args.push(format!("--suite={}", suites.join(",")));
    if overlay == OURS {
        // The suite disables tests whose results it does not keep up to date; ours are recorded.
        args.push("--enable-disabled".into());
        args.push(format!("--skip-test={NOT_OURS}"));
    }
    args.extend_from_slice(tests);
    let mut outcomes = Outcomes::new();
    let succeeded = mtr::start(workspace, prefix, &args, |name, outcome| {
        outcomes.insert(name.replace(&format!("-{overlay}."), "."), outcome);
    })?;
    if outcomes.is_empty() {
        bail!("the test runner ran no test");
    }
    Ok((succeeded, outcomes))
}

fn count(outcomes: &Outcomes) -> Count {
    let mut count = Count::default();
    for (name, outcome) in outcomes {
        count.add(*outcome);
        if *outcome == Outcome::Failed {
            count.failures.push(name.clone());
        }
    }
    count
}

/// Two runs as a table, then the tests that ended differently.
fn beside(ours: &Outcomes, innodb: &Outcomes) -> String {
    let (a, b) = (count(ours), count(innodb));
    let mut text = format!("\n{:<48}{:>8}{:>8}\n", "", "VARVE", "InnoDB");
    for (name, a, b) in [
        ("passed", a.passed, b.passed),
        ("failed", a.failed, b.failed),
        ("skipped", a.skipped, b.skipped),
    ] {
        text += &format!("{name:<48}{a:>8}{b:>8}\n");
    }
    for (name, outcome) in ours {
        let other = innodb.get(name);
        if other != Some(outcome) {
            text += &format!("{name:<48}{:>8}{:>8}\n", word(Some(outcome)), word(other));
        }
    }
    text
}

fn word(outcome: Option<&Outcome>) -> &'static str {
    match outcome {
        Some(Outcome::Passed) => "pass",
        Some(Outcome::Failed) => "fail",
        Some(Outcome::Skipped) => "skip",
        None => "none",
    }
}

/// Replaces a test's `.rdiff` in our overlay by how its last result differs from the suite's own.
fn record(workspace: &Workspace, prefix: &Prefix, name: &str) -> Result<()> {
    let (suite, test) = name
        .split_once('.')
        .with_context(|| format!("{name} is no name of a test"))?;
    let original = prefix.mysql_test_dir().join("suite").join(suite);
    let overlay = workspace.root.join("mariadb/mysql-test").join(suite);
    let (result, reject) = (format!("{test}.result"), format!("{test}.reject"));
    let rdiff = overlay.join(format!("{test}.rdiff"));
    // The runner leaves the new result beside what it was compared with.
    let Some(new) = [&overlay, &original]
        .map(|dir| dir.join(&reject))
        .into_iter()
        .find(|file| file.is_file())
    else {
        println!("{name}: left no result");
        return Ok(());
    };
    let difference = diff(
        &original.join(&result),
        &new,
        &format!("suite/{suite}/{test}"),
    )?;
    if difference.is_empty() {
        // Only our recorded difference was wrong.
        fs::remove_file(&rdiff).with_context(|| format!("cannot remove {}", rdiff.display()))?;
        println!("{name}: has the suite's own result");
    } else {
        fs::write(&rdiff, difference)
            .with_context(|| format!("cannot write {}", rdiff.display()))?;
        println!("{name}: recorded, to be reviewed");
    }
    fs::remove_file(&new)?;
    Ok(())
}

/// A unified diff; in its heading the files are `title` with their endings.
fn diff(old: &Path, new: &Path, title: &str) -> Result<Vec<u8>> {
    let output = Cmd::new("diff")
        .arg("-U1")
        .arg(format!("--label={title}.result"))
        .arg(format!("--label={title}.reject"))
        .arg(old)
        .arg(new)
        .into_inner()
        .output()
        .context("cannot run `diff`")?;
    match output.status.code() {
        Some(0 | 1) => Ok(output.stdout),
        _ => bail!(
            "cannot compare {} with {}: {}",
            old.display(),
            new.display(),
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_stand_beside_each_other() {
        let run = |outcomes: &[(&str, Outcome)]| -> Outcomes {
            outcomes
                .iter()
                .map(|(name, outcome)| ((*name).to_string(), *outcome))
                .collect()
        };
        let ours = run(&[
            ("storage_engine.1st", Outcome::Passed),
            ("storage_engine/trx.xa", Outcome::Passed),
            ("storage_engine/trx.delete", Outcome::Skipped),
        ]);
        let innodb = run(&[
            ("storage_engine.1st", Outcome::Passed),
            ("storage_engine/trx.xa", Outcome::Failed),
        ]);
        let text = beside(&ours, &innodb);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let expected: [&[&str]; 7] = [
            &[],
            &["VARVE", "InnoDB"],
            &["passed", "2", "1"],
            &["failed", "0", "1"],
            &["skipped", "1", "0"],
            &["storage_engine/trx.delete", "skip", "none"],
            &["storage_engine/trx.xa", "pass", "fail"],
        ];
        assert_eq!(rows, expected);
    }
}
