//! Waiting for purge, and giving up early on one that stands still.

use std::time::{Duration, Instant};

use varve::Database;

/// For so long purge says that it stands still, though it is woken all the time, before nobody waits for it
/// any more.
const STANDSTILL: Duration = Duration::from_secs(2);

/// Whether purge comes to its end, while no view is open. What it can't go on with now it can never: nothing
/// fails for a moment here.
pub fn comes_to_an_end(db: &Database, at_most: Duration) -> bool {
    let begun = Instant::now();
    let mut since = None;
    while !db.wait_for_purge(Duration::from_millis(20)) {
        let now = Instant::now();
        let is_at_rest = stands_still(db);
        let is_over = is_at_rest && now - *since.get_or_insert(now) > STANDSTILL;
        if !is_at_rest {
            since = None;
        }
        if is_over || begun.elapsed() > at_most || db.core().check_usable().is_err() {
            return false;
        }
    }
    true
}

fn stands_still(db: &Database) -> bool {
    let metrics = db.metrics();
    let value = |name| {
        let metric = metrics.iter().find(|metric| metric.name == name);
        metric.expect("a metric of that name").value
    };
    value("purge_stop_count") > value("purge_resume_count")
}
