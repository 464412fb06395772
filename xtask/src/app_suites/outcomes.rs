//! How tests ended, with one engine and beside the other, and which of the differences are known.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// By the test's name: how it ended, and why.
pub type Outcomes = BTreeMap<String, Outcome>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// As the runner calls it, which is ours in part.
    pub how: String,
    pub why: String,
}

/// Reads what the test runner wrote down. A test of which a part failed has failed. An error unless the
/// runner came to its end.
pub fn read(lines: &str) -> Result<Outcomes> {
    let mut outcomes = Outcomes::new();
    let mut is_whole = false;
    for line in lines.lines() {
        let value: Value = serde_json::from_str(line)?;
        if value["end"] == true {
            is_whole = true;
            continue;
        }
        let text = |name: &str| value[name].as_str().map(String::from);
        let (name, how) = text("test")
            .zip(text("outcome"))
            .context("a line lacks a name")?;
        let outcome = Outcome {
            how,
            why: text("why").unwrap_or_default(),
        };
        let has_failed = outcomes
            .get(&name)
            .is_some_and(|o: &Outcome| o.how == "failed");
        if !has_failed {
            outcomes.insert(name, outcome);
        }
    }
    ensure!(is_whole, "the tests did not come to their end");
    Ok(outcomes)
}

const WHY_CHARS_MAX: usize = 300;

/// Both engines' outcomes: Varve's, then InnoDB's.
pub struct Comparison([Outcomes; 2]);

impl Comparison {
    pub fn of(outcomes: [Outcomes; 2]) -> Self {
        Self(outcomes)
    }

    /// Takes other outcomes for those of the same tests.
    pub fn replace(&mut self, others: [Outcomes; 2]) {
        for (mine, other) in self.0.iter_mut().zip(others) {
            mine.extend(other);
        }
    }

    fn names(&self) -> BTreeSet<&String> {
        self.0.iter().flat_map(Outcomes::keys).collect()
    }

    /// Whether this test ran, or was skipped.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|outcomes| outcomes.contains_key(name))
    }

    fn differs(&self, name: &str) -> bool {
        let [varve, innodb] = &self.0;
        let how = |outcomes: &Outcomes| outcomes.get(name).map(|outcome| outcome.how.clone());
        how(varve) != how(innodb)
    }

    /// The tests that differ and are not listed, or do not and are.
    pub fn surprising(&self, listed: &BTreeSet<String>) -> Vec<String> {
        let names = self.names().into_iter();
        let surprising = names.filter(|name| self.differs(name) != listed.contains(*name));
        surprising.cloned().collect()
    }

    /// Shows counts and differences. Whether these are the ones that are listed in the document.
    pub fn print(&self, listed: &BTreeSet<String>, document: &str) -> bool {
        println!("\n{:<24}{:>8}{:>8}", "", "VARVE", "InnoDB");
        let hows: BTreeSet<&String> = self
            .0
            .iter()
            .flat_map(Outcomes::values)
            .map(|o| &o.how)
            .collect();
        for how in hows {
            let count = |of: &Outcomes| of.values().filter(|outcome| outcome.how == *how).count();
            let [varve, innodb] = [0, 1].map(|n| count(&self.0[n]));
            println!("{how:<24}{varve:>8}{innodb:>8}");
        }
        let mut is_as_listed = true;
        // What is listed and did not run at all is the same, too.
        let names: BTreeSet<&String> = self.names().into_iter().chain(listed).collect();
        for name in names {
            match (self.differs(name), listed.contains(name)) {
                (false, false) => {}
                (true, true) => println!("known    {name}"),
                (true, false) => {
                    println!("DIFFERS  {name}");
                    self.print_both(name);
                    is_as_listed = false;
                }
                (false, true) => {
                    println!("SAME     {name}: remove it from {document}");
                    is_as_listed = false;
                }
            }
        }
        is_as_listed
    }

    fn print_both(&self, name: &str) {
        for (engine, outcomes) in ["VARVE", "InnoDB"].into_iter().zip(&self.0) {
            let (how, why) = match outcomes.get(name) {
                Some(outcome) => (outcome.how.as_str(), outcome.why.as_str()),
                None => ("did not run", ""),
            };
            let why = why.lines().next().unwrap_or_default();
            // Some say all that they have found.
            let why: String = why.chars().take(WHY_CHARS_MAX).collect();
            println!("         {engine}: {how} {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(of: &[(&str, &str)]) -> Outcomes {
        let line = |(test, outcome): &(&str, &str)| {
            serde_json::json!({"test": test, "outcome": outcome, "why": ""}).to_string()
        };
        let mut lines: Vec<String> = of.iter().map(line).collect();
        lines.push(r#"{"end": true}"#.into());
        read(&lines.join("\n")).unwrap()
    }

    #[test]
    fn a_test_of_which_a_part_failed_has_failed() {
        let found = outcomes(&[("a", "failed"), ("a", "passed"), ("b", "skipped")]);
        assert_eq!(found["a"].how, "failed");
        assert_eq!(found["b"].how, "skipped");
    }

    #[test]
    fn a_run_that_broke_off_is_no_run() {
        let error = read(r#"{"test": "a", "outcome": "passed", "why": ""}"#);
        assert!(error.is_err());
    }

    #[test]
    fn only_what_is_not_as_listed_surprises() {
        let varve = outcomes(&[
            ("same", "passed"),
            ("known", "failed"),
            ("new", "failed"),
            ("gone", "passed"),
        ]);
        let innodb = outcomes(&[
            ("same", "passed"),
            ("known", "passed"),
            ("new", "passed"),
            ("gone", "passed"),
        ]);
        let listed: BTreeSet<String> = ["known", "gone"].map(String::from).into();
        let mut comparison = Comparison::of([varve, innodb]);
        assert_eq!(comparison.surprising(&listed), ["gone", "new"]);
        assert!(!comparison.print(&listed, ""));
        comparison.replace([
            outcomes(&[("gone", "failed")]),
            outcomes(&[("new", "failed")]),
        ]);
        assert!(comparison.print(&listed, ""));
        assert!(comparison.has("known") && !comparison.has("not run"));
        let more: BTreeSet<String> = ["known", "gone", "not run"].map(String::from).into();
        assert!(!comparison.print(&more, ""));
    }
}
