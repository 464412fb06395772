//! What `SHOW ENGINE VARVE STATUS` says beside counters: the last deadlock, who waits for whom, how far purge
//! is and what keeps it from going on, and each transaction. In InnoDB's words where it has some. For people:
//! nothing but a test that looks for words should read it.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use crate::base::{TrxId, TrxNo};
use crate::flush::{ASYNC, FlushCounters, SYNC};
use crate::history::{Amount, HISTORY_FILE};
use crate::lock::{LockDescription, LockStatus, LockTarget};
use crate::recovery::Progress;
use crate::txn::{Core, IdState, OpenView};

/// Members of the history store, the oldest ones.
const MEMBERS_SHOWN: usize = 10;

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
        ("HISTORY STORE", write(history_store)),
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
    oldest_view(out, core)?;
    match core.sys.unfinished().first() {
        None => writeln!(out, "no transaction that has written is open"),
        Some((id, state)) => writeln!(
            out,
            "transaction {id} is the oldest that has written: {state:?}"
        ),
    }
}

/// Which view is the oldest, and which one purge waits for: that may be a younger one.
fn oldest_view(out: &mut String, core: &Core) -> fmt::Result {
    let members = core.history.members();
    let is_member = |view: TrxNo| members.iter().any(|(member, _)| *member == view);
    let drawn_since = |view: TrxNo| core.sys.next_id().saturating_sub(view.0);
    let Some((oldest, known)) = core.oldest_view() else {
        return writeln!(out, "no read view is open");
    };
    let (seconds, drawn) = (known.as_secs(), drawn_since(oldest));
    if !is_member(oldest) {
        return writeln!(
            out,
            "read view {oldest} holds purge back, for at least {seconds} seconds; {drawn} numbers were drawn since",
        );
    }
    writeln!(
        out,
        "read view {oldest} is open for at least {seconds} seconds; {drawn} numbers were drawn since",
    )?;
    let Amount { versions, bytes } = kept_for(core, oldest);
    writeln!(
        out,
        "purge goes on behind it: the history store has {versions} versions of {bytes} bytes that it needs",
    )?;
    let views = core.sys.view_numbers().into_iter();
    match views.filter(|view| !is_member(*view)).min() {
        None => writeln!(out, "purge waits for no read view"),
        Some(view) => writeln!(
            out,
            "read view {view} holds purge back; {} numbers were drawn since",
            drawn_since(view)
        ),
    }
}

/// What the store has for a member.
fn kept_for(core: &Core, member: TrxNo) -> Amount {
    let store = core.history.store();
    store.map_or(Amount::default(), |store| store.amount_for(member))
}

fn history_store(out: &mut String, core: &Core, _: &LockStatus) -> fmt::Result {
    let Some(store) = core.history.store() else {
        return writeln!(out, "there is none: purge goes on behind no read view");
    };
    if let Err(e) = store.check_usable() {
        writeln!(out, "lost: {e}")?;
    }
    let members = core.history.members();
    let numbers: Vec<TrxNo> = members.iter().map(|(number, _)| *number).collect();
    let Amount { versions, bytes } = store.amount();
    let (used, most) = (
        store.bytes().unwrap_or(0),
        core.history.max_bytes(core.settings.history().max_size),
    );
    let garbage = store.garbage(&numbers);
    writeln!(
        out,
        "{HISTORY_FILE}: {used} bytes of at most {most}; {versions} versions of {bytes} bytes, {garbage} of them needed by nobody",
    )?;
    if used >= most {
        writeln!(out, "it is full: purge waits for views that need copies")?;
    }
    for (number, known) in members.iter().take(MEMBERS_SHOWN) {
        let Amount { versions, bytes } = store.amount_for(*number);
        writeln!(
            out,
            "read view {number} relies on it for {} seconds: {versions} versions of {bytes} bytes",
            known.as_secs()
        )?;
    }
    match members.len().saturating_sub(MEMBERS_SHOWN) {
        0 => Ok(()),
        more => writeln!(out, "and {more} younger ones"),
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
    // The limit first: what is below is in the history, or purged. Only purge asks for a new one: that is
    // when views become members of the history store.
    let limit = core.sys.last_purge_limit();
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
