//! How one of memcached's own tests ended, by what it printed: `ok 1`, `not ok 2 - why`, and a plan, `1..2`,
//! before or behind them; `1..0 # SKIP why` if it is not for this server.

use std::collections::BTreeSet;
use std::process::Output;

#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How many of its subtests passed.
    pub passed: u32,
    /// The numbers of those that did not.
    pub failed: BTreeSet<u32>,
    /// It says that it is not for this server.
    pub is_skipped: bool,
    /// It did not come to its end.
    pub is_broken: bool,
}

impl Outcome {
    pub fn of(output: &Output) -> Outcome {
        let said = String::from_utf8_lossy(&output.stdout);
        Outcome::new(&said, output.status.code())
    }

    /// `code`: what the program ended with; `None`: it was killed.
    fn new(said: &str, code: Option<i32>) -> Outcome {
        let (mut passed, mut failed) = (0, BTreeSet::new());
        let (mut planned, mut is_skipped) = (None, false);
        for line in said.lines() {
            let words = line
                .split_once("ok ")
                .map(|(head, rest)| (head, number(rest)));
            match words {
                Some(("", Some(_))) => passed += 1,
                Some(("not ", Some(number))) => drop(failed.insert(number)),
                _ => {}
            }
            if let Some(plan) = line.strip_prefix("1..") {
                planned = number(plan);
                is_skipped = planned == Some(0);
            }
        }
        // Test::More ends with the number of what failed.
        let is_ended = match code {
            Some(0) => failed.is_empty(),
            Some(255) | None => false,
            Some(_) => !failed.is_empty(),
        };
        let is_whole = planned == Some(passed + failed.len() as u32);
        Outcome {
            passed,
            failed,
            is_skipped,
            is_broken: !is_ended || !is_whole,
        }
    }

    /// What is not as `known`, the subtests of which it is known that they fail.
    pub fn surprises(&self, test: &str, known: &BTreeSet<u32>) -> Vec<String> {
        if self.is_broken {
            return vec![format!("{test} did not come to its end")];
        }
        let failed = self.failed.difference(known);
        let failed = failed.map(|number| format!("{test} {number} failed"));
        let passed = known.difference(&self.failed);
        let passed = passed.map(|number| format!("{test} {number} is listed and passed"));
        failed.chain(passed).collect()
    }
}

/// The number that a text begins with.
fn number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text[..end.unwrap_or(text.len())].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_test_prints_is_understood() {
        let check = |said: &str, code, passed, failed: &[u32], ending: &str| {
            let outcome = Outcome::new(said, code);
            let expected = Outcome {
                passed,
                failed: failed.iter().copied().collect(),
                is_skipped: ending == "skipped",
                is_broken: ending == "broken",
            };
            assert_eq!(outcome, expected, "{said}");
        };
        check("1..2\nok 1\nok 2 - has a name\n", Some(0), 2, &[], "whole");
        check("ok 1\nnot ok 2 - b\n1..2\n", Some(1), 1, &[2], "whole");
        check("1..2\nok 1\n", Some(255), 1, &[], "broken");
        check("1..2\nok 1\n", Some(0), 1, &[], "broken");
        check("1..1\nok 1\n", None, 1, &[], "broken");
        check("1..1\nok 1\n", Some(2), 1, &[], "broken");
        check("", Some(2), 0, &[], "broken");
        check("1..0 # SKIP not here\n", Some(0), 0, &[], "skipped");
        check(
            "# ok 1 it says\nok then\n1..1\nok 1\n",
            Some(0),
            1,
            &[],
            "whole",
        );
    }

    #[test]
    fn only_what_is_not_known_surprises() {
        let outcome = Outcome::new("1..3\nnot ok 1\nnot ok 2\nok 3\n", Some(2));
        let known = BTreeSet::from([2, 3]);
        assert_eq!(
            outcome.surprises("a.t", &known),
            ["a.t 1 failed", "a.t 3 is listed and passed"]
        );
        assert!(outcome.surprises("a.t", &BTreeSet::from([1, 2])).is_empty());
    }
}
