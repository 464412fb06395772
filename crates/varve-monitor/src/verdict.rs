//! What is wrong, and whose doing it is, in a sentence each; the worst first. If nothing is, that.

use std::time::Duration;

use varve::{Kept, LockInfo, OldView, PurgeStanding, PurgeState, Standing};

use crate::samples::Samples;
use crate::text::{bytes, count, time};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Somebody stands still.
    Bad,
    /// It costs something, or will.
    Warning,
    /// Good to know.
    Note,
    Well,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Level::Bad => "bad",
            Level::Warning => "warning",
            Level::Note => "note",
            Level::Well => "well",
        }
    }
}

#[derive(Debug)]
pub struct Finding {
    pub level: Level,
    pub text: String,
}

/// A view that is younger is nobody's trouble.
const OLD_VIEW: Duration = Duration::from_secs(10);
/// Transactions that purge works off in a moment.
const SHORT_HISTORY: u64 = 1000;
/// Those that it does not.
const LONG_HISTORY: u64 = 100 * SHORT_HISTORY;
const LONG_LOCK_WAIT: Duration = Duration::from_secs(10);
const NOTABLE_LOCK_WAIT: Duration = Duration::from_secs(1);

/// What a verdict is made from. `recent_…`: in the last ten seconds.
pub struct Facts<'a> {
    pub standing: &'a Standing,
    pub purge: &'a PurgeStanding,
    pub commits: f64,
    /// Microseconds for each row change.
    pub purge_delay_usec: u64,
    pub recent_capacity_waits: f64,
    pub recent_free_page_waits: f64,
    pub checkpoint_age: u64,
    pub checkpoint_age_async: u64,
    pub checkpoint_max_age: u64,
    pub recovery_left: u64,
    pub recovery_seconds: u64,
}

impl<'a> Facts<'a> {
    pub fn new(standing: &'a Standing, purge: &'a PurgeStanding, samples: &Samples) -> Facts<'a> {
        let now = |column| samples.now(column);
        Facts {
            standing,
            purge,
            commits: samples.recent_speed("commits"),
            purge_delay_usec: now("purge_dml_delay_usec"),
            recent_capacity_waits: samples.recent_growth("log_capacity_waits"),
            recent_free_page_waits: samples.recent_growth("buffer_pool_wait_free"),
            checkpoint_age: now("checkpoint_age"),
            checkpoint_age_async: now("checkpoint_age_async"),
            checkpoint_max_age: now("checkpoint_max_age"),
            recovery_left: now("recovery_pages_left") + now("recovery_transactions_left"),
            recovery_seconds: now("recovery_seconds_left"),
        }
    }
}

/// Never empty.
pub fn verdict(facts: &Facts<'_>) -> Vec<Finding> {
    let look = [
        unusable,
        lock_wait,
        redo_log,
        free_pages,
        history_store,
        old_view,
        purge_behind,
        delay,
        recovery,
    ];
    let mut found: Vec<Finding> = look.iter().filter_map(|look| look(facts)).collect();
    // The order above stays among those of a level.
    found.sort_by_key(|finding| finding.level);
    if found.is_empty() {
        found.push(well(facts));
    }
    found
}

fn finding(level: Level, text: impl Into<String>) -> Option<Finding> {
    let text = text.into();
    Some(Finding { level, text })
}

fn unusable(facts: &Facts<'_>) -> Option<Finding> {
    let why = facts.standing.unusable.as_ref()?;
    finding(
        Level::Bad,
        format!("The database takes no more work: {why}"),
    )
}

fn lock_wait(facts: &Facts<'_>) -> Option<Finding> {
    let waits = &facts.standing.lock_waits;
    let longest = waits.first().filter(|w| w.waited >= NOTABLE_LOCK_WAIT)?;
    let level = match longest.waited >= LONG_LOCK_WAIT {
        true => Level::Bad,
        false => Level::Warning,
    };
    let who = owner(&longest.wanted);
    let holders: Vec<String> = longest.blocking.iter().map(owner).collect();
    let others = match waits.len() - 1 {
        0 => String::new(),
        1 => "; one more waits".into(),
        n => format!("; {n} more wait"),
    };
    let (waited, holders) = (time(longest.waited), holders.join(", "));
    let wants = lock(&longest.wanted);
    let text = format!("has waited {waited} for {holders} to let go of {wants}{others}");
    finding(level, format!("{} {text}", capitalised(&who)))
}

/// Whose a lock is.
pub fn owner(lock: &LockInfo) -> String {
    name(lock.session, lock.transaction)
}

/// What a transaction is called: by its connection, if it has one.
pub fn name(session: u64, transaction: u64) -> String {
    match session {
        0 => format!("transaction {transaction}"),
        session => format!("connection {session}"),
    }
}

/// What is locked, and how.
pub fn lock(lock: &LockInfo) -> String {
    let LockInfo {
        mode, table, index, ..
    } = lock;
    match index {
        Some(index) => format!("a key of table {table}, index {index} ({mode})"),
        None => format!("table {table} ({mode})"),
    }
}

fn capitalised(text: &str) -> String {
    let (first, rest) = text.split_at(text.len().min(1));
    first.to_uppercase() + rest
}

fn redo_log(facts: &Facts<'_>) -> Option<Finding> {
    let (age, capacity) = (facts.checkpoint_age, bytes(facts.checkpoint_max_age));
    if facts.recent_capacity_waits > 0.0 {
        let text = format!(
            "The redo log is full: writers wait for changed pages to be written, {} times in the last ten seconds; a larger \
             one than {capacity} or a faster disk would help",
            facts.recent_capacity_waits
        );
        return finding(Level::Bad, text);
    }
    let is_late = facts.checkpoint_age_async > 0 && age > facts.checkpoint_age_async;
    let share = (100 * age)
        .checked_div(facts.checkpoint_max_age)
        .unwrap_or_default();
    let text = format!(
        "Changed pages are written slower than they are changed: {share} % of the redo log's {capacity} are in use, so \
         that they are written faster than varve_io_capacity_max says"
    );
    is_late.then(|| finding(Level::Warning, text))?
}

fn free_pages(facts: &Facts<'_>) -> Option<Finding> {
    let waits = facts.recent_free_page_waits;
    let text = format!(
        "The buffer pool had no free page {waits} times in the last ten seconds, so that somebody waited for one: it is too \
         small for what goes on, or the disk too slow"
    );
    (waits > 0.0).then(|| finding(Level::Warning, text))?
}

fn history_store(facts: &Facts<'_>) -> Option<Finding> {
    let store = facts.standing.history_store.as_ref()?;
    if let Some(why) = &store.lost {
        let text =
            format!("The history store is lost, so old snapshots can't be read any more: {why}");
        return finding(Level::Bad, text);
    }
    let text = format!(
        "The history store is full, with {}: purge waits for old snapshots again",
        bytes(store.bytes)
    );
    (store.bytes >= store.max_bytes).then(|| finding(Level::Warning, text))?
}

/// The culprit of most long histories.
fn old_view(facts: &Facts<'_>) -> Option<Finding> {
    let view = facts
        .standing
        .oldest_view
        .filter(|v| v.open_for >= OLD_VIEW)?;
    let open = format!("{} has been open for {}", whose(&view), time(view.open_for));
    if let Some(Kept { bytes: kept, .. }) = view.kept {
        let text = match kept {
            0 => format!("{open}; nothing had to be kept for it so far"),
            kept => format!(
                "{open}; {} of old versions are kept for it; it costs others nothing",
                bytes(kept)
            ),
        };
        return finding(Level::Note, text);
    }
    // Somebody reads for long, and nobody writes.
    if facts.purge.history < SHORT_HISTORY {
        return finding(
            Level::Note,
            format!("{open}; it keeps purge from nothing so far"),
        );
    }
    let history = count(facts.purge.history);
    let undo = bytes(facts.purge.history_bytes);
    let kept =
        format!("{open}; purge waits for it: the undo of {history} transactions is kept, {undo}");
    let text = match time_once_free(facts.purge) {
        Some(needed) => {
            let needed = time(needed);
            format!("{kept}; when it ends, purge will need about {needed}")
        }
        None => kept,
    };
    finding(Level::Warning, text)
}

fn whose(view: &OldView) -> String {
    match view.session {
        0 => "A snapshot".into(),
        session => format!("A snapshot of connection {session}"),
    }
}

/// How long purge will take when nothing holds it back any more, at the speeds of its last batches.
fn time_once_free(purge: &PurgeStanding) -> Option<Duration> {
    let headway = purge.working_off - purge.joining;
    let seconds = (headway > 0.0).then(|| purge.history as f64 / headway)?;
    Duration::try_from_secs_f64(seconds.ceil()).ok()
}

/// Without a view that it waits for.
fn purge_behind(facts: &Facts<'_>) -> Option<Finding> {
    let purge = facts.purge;
    let waits = facts
        .standing
        .oldest_view
        .is_some_and(|view| view.open_for >= OLD_VIEW && view.kept.is_none());
    if waits || purge.history < LONG_HISTORY {
        return None;
    }
    let history = count(purge.history);
    let growth = purge.joining - purge.working_off;
    let text = match purge.left {
        Some(left) => {
            let left = time(left.max(Duration::from_secs(1)));
            format!("Purge catches up: {history} transactions wait for it, for about {left}")
        }
        None if purge.state == PurgeState::Running && growth >= 1.0 => format!(
            "Purge is behind the writers: {history} transactions wait for it, {} more every second; varve_max_purge_lag \
             would slow the writers down",
            count(growth as u64)
        ),
        None => format!("Purge is behind: {history} transactions wait for it"),
    };
    finding(Level::Warning, text)
}

fn delay(facts: &Facts<'_>) -> Option<Finding> {
    let usec = facts.purge_delay_usec;
    let text = format!(
        "Each change of a row is delayed by {usec} µs, because more transactions wait for purge than varve_max_purge_lag allows"
    );
    (usec > 0).then(|| finding(Level::Warning, text))?
}

fn recovery(facts: &Facts<'_>) -> Option<Finding> {
    let left = time(Duration::from_secs(facts.recovery_seconds));
    let text = format!("Recovery from the last crash goes on in the background, for about {left}");
    (facts.recovery_left > 0).then(|| finding(Level::Note, text))?
}

fn well(facts: &Facts<'_>) -> Finding {
    let commits = count(facts.commits.round() as u64);
    let history = count(facts.purge.history);
    let share = (100 * facts.checkpoint_age).checked_div(facts.checkpoint_max_age);
    let share = share.unwrap_or_default();
    let text = format!(
        "Nothing is wrong: {commits} commits a second, {history} transactions wait for purge, {share} % of the redo log is in use"
    );
    Finding {
        level: Level::Well,
        text,
    }
}

#[cfg(test)]
mod tests;
