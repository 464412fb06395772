//! The fuzz targets without a fuzzer: each seed, and changes of seeds that a number chooses.
//!
//! What could break here: code that trusts bytes from a disk or arguments of a C caller. `VARVE_SEED` is the
//! first change's number, `VARVE_FUZZ_MUTATIONS` how many there are, `VARVE_FUZZ_TARGET` one target's name; a
//! failure says which of them repeat it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve_fuzz::{TARGETS, Target, mutate};

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(n) => n.parse().unwrap(),
        Err(_) => default,
    }
}

fn run(target: &Target, input: &[u8], which: &str) {
    if catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err() {
        let hex: String = input
            .iter()
            .take(4000)
            .map(|b| format!("{b:02x}"))
            .collect();
        panic!("VARVE_FUZZ_TARGET={} {which}: {hex}", target.name);
    }
}

fn try_target(target: &Target) {
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty());
    run(target, &[], "the empty input");
    for (n, seed) in seeds.iter().enumerate() {
        run(target, seed, &format!("seed {n}"));
    }
    let first = number("VARVE_SEED", 1);
    for n in first..first + number("VARVE_FUZZ_MUTATIONS", target.mutations) {
        let mut rng = SmallRng::seed_from_u64(n);
        let mut pick = || &seeds[rng.random_range(0..seeds.len())];
        let (seed, other) = (pick(), pick());
        let which = format!("VARVE_SEED={n} VARVE_FUZZ_MUTATIONS=1");
        run(target, &mutate(seed, other, &mut rng), &which);
    }
}

#[test]
fn no_bytes_break_anything() {
    let only = std::env::var("VARVE_FUZZ_TARGET").ok();
    let wanted = |t: &&Target| only.as_deref().is_none_or(|name| name == t.name);
    let targets: Vec<_> = TARGETS.iter().filter(wanted).collect();
    assert!(!targets.is_empty(), "no target is called {only:?}");
    for target in targets {
        let begin = std::time::Instant::now();
        try_target(target);
        println!("{}: {:.1} s", target.name, begin.elapsed().as_secs_f64());
    }
}
