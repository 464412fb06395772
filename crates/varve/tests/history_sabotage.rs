//! Whether the tests of the history store would notice if it did one thing wrong.
//!
//! `cargo test -p varve --features sabotage --test history_sabotage -- --nocapture` says what noticed it.

#[allow(dead_code, reason = "each test uses its part")]
#[path = "support/long_views.rs"]
mod long_views;
#[path = "support/reads.rs"]
mod reads;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use varve::Options;
use varve::internals::base::Sabotage;

use long_views::options;

/// Runs `scene` until something is wrong there.
fn is_noticed(sabotage: Sabotage, scene: &dyn Fn(Options, u64)) {
    let fails = |seed| {
        let options = Options {
            sabotage: Some(sabotage),
            ..options()
        };
        catch_unwind(AssertUnwindSafe(|| scene(options, seed))).is_err()
    };
    let seed = (0..60).find(|seed| fails(*seed));
    println!("{sabotage:?}: noticed by run {seed:?}");
    assert!(seed.is_some(), "nobody noticed: {sabotage:?}");
}

fn at_random(sabotage: Sabotage) {
    is_noticed(sabotage, &|options, seed| {
        long_views::at_random(options, seed);
    });
}

fn side_by_side(sabotage: Sabotage) {
    is_noticed(sabotage, &|options, _| {
        long_views::side_by_side(options, Duration::from_secs(3));
    });
}

/// COPY-1, COPY-2.
#[test]
fn what_is_not_copied_is_noticed() {
    at_random(Sabotage::CopySkipped);
    at_random(Sabotage::ValueNotCopied);
    at_random(Sabotage::ValueCopiedInPart);
    side_by_side(Sabotage::CopiedTooLate);
}

/// COPY-3.
#[test]
fn a_log_that_goes_without_its_copies_is_noticed() {
    is_noticed(Sabotage::WrongLogKept, &|options, _| {
        long_views::full_store_of_rows(options);
    });
}

/// STORE-1.
#[test]
fn versions_for_the_wrong_members_are_noticed() {
    at_random(Sabotage::IntervalTooLow);
    at_random(Sabotage::IntervalTooShort);
    at_random(Sabotage::WriterTakenForOld);
}

/// TXN-6.
#[test]
fn entries_that_are_frozen_too_early_are_noticed() {
    at_random(Sabotage::FrozenTooEarly);
}

/// STORE-2.
#[test]
fn versions_that_go_too_early_are_noticed() {
    is_noticed(Sabotage::SweptTooEarly, &|options, _| {
        long_views::come_and_go(options);
    });
    at_random(Sabotage::StoreClosedTooEarly);
}

/// MVCC-2.
#[test]
fn a_row_that_is_taken_for_absent_is_noticed() {
    is_noticed(Sabotage::CutTakenForAbsent, &|options, _| {
        long_views::taken_back(options);
    });
}
