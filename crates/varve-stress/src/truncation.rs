//! Undo tablespaces are truncated again and again while the loads work. Those who use one have to end first,
//! and new transactions keep away from it meanwhile; a kill may come while the file is replaced.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use crate::round::Round;
use crate::store::{Outcome, Store};

/// Transactions need one that is not being truncated.
pub fn is_possible(undo_tablespaces: u32) -> bool {
    undo_tablespaces >= 2
}

pub fn truncate_until_killed(
    store: Outcome<impl Store>,
    undo_tablespaces: u32,
    mut rng: Rng,
    round: &Round,
) -> Outcome<()> {
    let mut store = store?;
    loop {
        let number = rng.u32(1..=undo_tablespaces);
        if round.was_done(store.truncate_undo(number))? {
            round.truncations.fetch_add(1, Ordering::Relaxed);
        }
        thread::sleep(Duration::from_millis(rng.u64(..100)));
    }
}
