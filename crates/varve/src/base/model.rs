//! How the models of loom run: every interleaving of their threads, up to a bound on preemptions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::model::Builder;

/// Runs a model with at most so many preemptions, and says how many interleavings that were: a model of few
/// shows little.
pub fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    let tried = Arc::new(AtomicUsize::new(0));
    builder.check({
        let tried = tried.clone();
        move || {
            tried.fetch_add(1, Ordering::Relaxed);
            model();
        }
    });
    let tried = tried.load(Ordering::Relaxed);
    println!("{tried} interleavings with up to {preemptions} preemptions");
}

/// The same for one that takes most of a minute: with `VARVE_QUICK_MODELS` set, it is tried with one
/// preemption fewer.
pub fn check_long(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let fewer = usize::from(std::env::var_os("VARVE_QUICK_MODELS").is_some());
    check(preemptions - fewer, model);
}
