//! Model tests: random cases against something simple that must give the same answers.

use std::str::FromStr;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};

use crate::panics::quietly;

/// The number in an environment variable.
fn number<T: FromStr>(name: &str) -> Option<T> {
    let value = std::env::var(name).ok()?;
    let number = value.parse().ok();
    Some(number.unwrap_or_else(|| panic!("{name}={value} is not a number")))
}

/// Runs `check` on random cases, `usual` of them or `VARVE_CASES` times as many, drawn from `VARVE_SEED` or a
/// fresh seed. A case for which it panics is made smaller for as long as it still does, at most for
/// `VARVE_SHRINK_SECONDS`; then the smallest is printed and checked once more, with all that it has to say.
///
/// Nothing is kept in files: the seed does the same again, and what was found becomes a test of its own.
pub fn try_cases<S>(usual: u32, cases: S, check: impl Fn(S::Value))
where
    S: Strategy,
    S::Value: Clone,
{
    let times = number("VARVE_CASES").unwrap_or(1);
    let seed = number("VARVE_SEED").unwrap_or_else(rand::random);
    let seconds: u32 = number("VARVE_SHRINK_SECONDS").unwrap_or(60);
    let mut runner = TestRunner::new(Config {
        cases: usual * times,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_time: seconds.saturating_mul(1000).max(1),
        max_shrink_iters: u32::MAX - 1,
        ..Config::default()
    });
    let tried = quietly(|| {
        runner.run(&cases, |case| {
            check(case);
            Ok(())
        })
    });
    match tried {
        Ok(()) => {}
        Err(TestError::Abort(why)) => panic!("no cases: {why}"),
        Err(TestError::Fail(why, case)) => {
            eprintln!("smallest case that fails: {case:#?}");
            eprintln!("the same again with VARVE_SEED={seed} VARVE_CASES={times}");
            check(case);
            panic!("it failed, but not again: {why}");
        }
    }
}
