//! What `SHOW ENGINE VARVE STATUS` says beside counters: the last deadlock, who waits for whom, how far purge
//! is and what keeps it from going on, and each transaction. In InnoDB's words where it has some. For people:
//! nothing but a test that looks for words should read it.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use crate::base::{TrxId, TrxNo};
use crate::flush::{ASYNC, FlushCounters, SYNC};
use crate::lock::{LockDescription, LockStatus, LockTarget};
use crate::recovery::Progress;
use crate::txn::{Core, IdState, OpenView};

/// A title and its lines.
pub type Section = (&'static str, String);

pub fn sections(core: &Core, flushed: &FlushCounters, recovery: Progress) -> Vec<Section> {
    let locks = core.locks.status();
    let write = |f: fn(&mut String, &Core, &LockStatus) -> fmt::Result| {
        let mut text = String::new();
        f(&mut text, core, &locks).expect("a string takes everything");
        text
    };
    vec![
        ("LATEST DETECTED DEADLOCK", write(deadlock)),
        ("LOCK WAITS", write(waits)),
        ("OLDEST VIEW AND TRANSACTION", write(oldest)),
        ("UNDO TABLESPACE TRUNCATION", write(truncation)),
        ("RECOVERY", recovering(recovery)),
        ("TRANSACTIONS", write(transactions)),
        ("LOG", text(|out| log(out, core, flushed))),
        (
            "BUFFER POOL AND MEMORY",
            text(|out| buffer_pool(out, core, flushed)),
        ),
    ]
}

fn text(write: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut text = String::new();
    write(&mut text).expect("a string takes everything");
    text
}

fn log(out: &mut String, core: &Core, flushed: &FlushCounters) -> fmt::Result {
    let log = &core.log;
    // The lowest first, so that none is shown above one that it never passes.
    let checkpoint = log.checkpoint_lsn();
    let complete = log.complete_lsn();
    let oldest = core.pool.min_first_change(complete).unwrap_or(complete);
    let durable = log.durable_lsn();
    let (end, capacity) = (log.next_lsn(), log.capacity());
    writeln!(out, "Log sequence number {end}")?;
    writeln!(out, "Log flushed up to   {durable}")?;
    writeln!(out, "Pages flushed up to {}", oldest.min(complete))?;
    writeln!(out, "Last checkpoint at  {checkpoint}")?;
    writeln!(
        out,
        "Checkpoint age      {} of {capacity}; more is written from {} on, at full speed from {} on",
        end.0.saturating_sub(checkpoint.0),
        (capacity as f64 * ASYNC) as u64,
        (capacity as f64 * SYNC) as u64,
    )?;
    writeln!(
        out,
        "{} bytes of redo a second, averaged; {} pages a second are to be written",
        flushed.redo_rate.load(Ordering::Relaxed),
        flushed.pages_wanted.load(Ordering::Relaxed),
    )
}

fn buffer_pool(out: &mut String, core: &Core, flushed: &FlushCounters) -> fmt::Result {
    let (pool, stats) = (&core.pool, core.pool.stats());
    let bytes = stats.frames * pool.page_size() as u64;
    let dirty = pool.dirty_logged_pages();
    writeln!(out, "Memory of pages    {bytes}")?;
    writeln!(out, "Buffer pool size   {}", stats.frames)?;
    writeln!(out, "Free buffers       {}", stats.free_frames)?;
    writeln!(
        out,
        "Database pages     {}",
        stats
            .frames
            .saturating_sub(stats.free_frames + stats.held_back_frames)
    )?;
    writeln!(out, "Modified db pages  {dirty}")?;
    writeln!(
        out,
        "Percent of dirty pages {:.3}",
        100.0 * dirty as f64 / stats.frames as f64
    )?;
    writeln!(
        out,
        "Pages read {}, created {}, written {}, evicted {}; {} waits for a free page",
        stats.loads.saturating_sub(stats.creates),
        stats.creates,
        stats.writes,
        stats.evictions,
        stats.free_waits
    )?;
    let written = [
        ("adaptive", &flushed.adaptive),
        ("async", &flushed.async_),
        ("sync", &flushed.sync),
        ("max dirty", &flushed.max_dirty),
        ("background", &flushed.background),
        ("LRU", &flushed.lru),
        ("requested", &flushed.requested),
    ];
    let written = written.map(|(name, of)| format!("{name} {}", of.pages.load(Ordering::Relaxed)));
    writeln!(out, "Pages written by cause: {}", written.join(", "))
}

fn deadlock(out: &mut String, core: &Core, locks: &LockStatus) -> fmt::Result {
    let Some(deadlock) = &locks.last_deadlock else {
        return writeln!(out, "none since the database was opened");
    };
    let ago = SystemTime::now().duration_since(deadlock.when);
    writeln!(out, "{} seconds ago", ago.unwrap_or_default().as_secs())?;
    for member in &deadlock.members {
        let end = match member.victim {
            true => "; it was rolled back",
            false => "",
        };
        writeln!(
            out,
            "{}, {} changes and locks, waited for {}{end}",
            Trx(member.trx),
            member.weight,
            Lock(core, &member.wants)
        )?;
    }
    Ok(())
}

fn waits(out: &mut String, core: &Core, locks: &LockStatus) -> fmt::Result {
    writeln!(
        out,
        "{} rows and tables are locked; {} pairs of a transaction and an index have gap locks",
        locks.locked, locks.gaps
    )?;
    if locks.waiting.is_empty() {
        return writeln!(out, "nobody waits");
    }
    for wait in &locks.waiting {
        write!(
            out,
            "{} has waited {:.1} seconds for {}",
            Trx(wait.trx),
            wait.waited.as_secs_f64(),
            Lock(core, &wait.wants)
        )?;
        let holders: Vec<_> = wait
            .holders
            .iter()
            .map(|id| Trx(Some(*id)).to_string())
            .collect();
        match holders.is_empty() {
            true => writeln!(out, "; the holders have written nothing")?,
            false => writeln!(out, "; held by {}", holders.join(", "))?,
        }
    }
    Ok(())
}

fn oldest(out: &mut String, core: &Core, _: &LockStatus) -> fmt::Result {
    match core.oldest_view() {
        None => writeln!(out, "no read view is open")?,
        Some((number, known)) => writeln!(
            out,
            "read view {number} holds purge back, for at least {} seconds; {} numbers were drawn since",
            known.as_secs(),
            core.sys.next_id().saturating_sub(number.0)
        )?,
    }
    match core.sys.unfinished().first() {
        None => writeln!(out, "no transaction that has written is open"),
        Some((id, state)) => writeln!(
            out,
            "transaction {id} is the oldest that has written: {state:?}"
        ),
    }
}

fn truncation(out: &mut String, core: &Core, _: &LockStatus) -> fmt::Result {
    let counters = &core.counters;
    let (count, usec) = (
        counters.undo_truncations.get(),
        counters.undo_truncate_usec.get(),
    );
    writeln!(
        out,
        "{count} truncations, {} us each once the tablespace was empty; how long others were locked out of:",
        usec.checked_div(count).unwrap_or_default()
    )?;
    for (name, held) in core.undo.held_by_truncation() {
        writeln!(out, "{name}: {held}")?;
    }
    Ok(())
}

fn recovering(progress: Progress) -> String {
    let Progress {
        redo_bytes,
        pages,
        pages_left,
        transactions_left,
        changes_left,
        seconds_left,
        ..
    } = progress;
    let done = match (pages_left, transactions_left) {
        (0, 0) => "nothing is left to be done".into(),
        _ => format!(
            "{pages_left} of {pages} pages are not up to date yet, {transactions_left} transactions with about {changes_left} changes are to be \
             rolled back; about {seconds_left} seconds are left"
        ),
    };
    format!("the last start has read {redo_bytes} bytes of redo; {done}\n")
}

fn transactions(out: &mut String, core: &Core, _: &LockStatus) -> fmt::Result {
    writeln!(out, "Trx id counter {}", core.sys.next_id())?;
    writeln!(
        out,
        "Purge done for trx's n:o < {} undo n:o < {} state: {}",
        purged_below(core),
        core.purge_progress.undo_no(),
        core.purge_progress.state().name()
    )?;
    writeln!(out, "History list length {}", core.undo.history_len())?;
    writeln!(out, "LIST OF TRANSACTIONS:")?;
    let mut views = core.sys.views();
    views.sort_unstable_by_key(|view| view.number);
    // A view's transaction may have ended meanwhile, or this one begun: each line is true by itself.
    let changes: HashMap<_, _> = core.locks.writers().into_iter().collect();
    for (id, state) in core.sys.unfinished() {
        let state = match state {
            IdState::Prepared => "ACTIVE (PREPARED)",
            IdState::Committing { .. } => "COMMITTING",
            _ => "ACTIVE",
        };
        writeln!(out, "---TRANSACTION {id}, {state}")?;
        if let Some(changes) = changes.get(&id).filter(|n| **n > 0) {
            writeln!(out, "undo log entries {changes}")?;
        }
        for view in views.extract_if(.., |view| view.own == Some(id)) {
            write_view(out, &view)?;
        }
    }
    for view in &views {
        writeln!(out, "---TRANSACTION that has written nothing")?;
        write_view(out, view)?;
    }
    Ok(())
}

fn write_view(out: &mut String, view: &OpenView) -> fmt::Result {
    let OpenView {
        number, sees_below, ..
    } = view;
    writeln!(
        out,
        "Trx read view will not see trx with id >= {number}, sees < {sees_below}"
    )
}

/// Everything that was committed with a lower number is purged.
fn purged_below(core: &Core) -> TrxNo {
    // The limit first: what is below is in the history, or purged.
    let limit = core.sys.purge_limit();
    core.undo.oldest().map_or(limit, |oldest| oldest.min(limit))
}

struct Trx(Option<TrxId>);

impl fmt::Display for Trx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(id) => write!(f, "transaction {id}"),
            None => write!(f, "a transaction that has written nothing"),
        }
    }
}

/// A lock, with the names of table and index.
struct Lock<'a>(&'a Core, &'a LockDescription);

impl fmt::Display for Lock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lock(core, lock) = self;
        let name = match &lock.target {
            LockTarget::Table(table) => core.tables.name_of(*table),
            LockTarget::Record { index, .. } | LockTarget::Insert { index, .. } => {
                let tables = core.tables.all_open();
                let found = tables.iter().find_map(|table| table.index(*index));
                match found {
                    Some(index) => format!("table {}, index {}", index.table, index.name),
                    None => format!("index number {index} of a table that is not open"),
                }
            }
        };
        write!(f, "{lock} ({name})")
    }
}
