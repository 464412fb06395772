//! What `SHOW ENGINE VARVE STATUS` says beside counters: the last deadlock, who waits for whom, how far purge
//! is and what keeps it from going on, and each transaction. For people, but in InnoDB's words where it has
//! some, so that programs that read InnoDB's text find in it what they look for; nothing else should read it.

use std::fmt::{self, Write};
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use super::standing::{Kept, OldView, standing};
use crate::base::TrxNo;
use crate::flush::{ASYNC, FlushCounters, SYNC};
use crate::history::{Amount, HISTORY_FILE};
use crate::lock::{DeadlockMember, DeadlockReport, LockOwner, LockStatus, SessionText};
use crate::recovery::Progress;
use crate::txn::Core;

use super::transactions::{self, LockInfo, TransactionInfo, TransactionState, ViewInfo};

/// Members of the history store, the oldest ones.
const MEMBERS_SHOWN: usize = 10;

/// A title and its lines.
pub type Section = (&'static str, String);

type Sessions<'a> = &'a dyn Fn(u64) -> Option<SessionText>;

pub fn sections(
    core: &Core,
    flushed: &FlushCounters,
    recovery: Progress,
    sessions: Sessions<'_>,
) -> Vec<Section> {
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
        (
            "TRANSACTIONS",
            text(|out| transactions(out, core, sessions)),
        ),
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
    writeln!(out, "Database pages     {}", stats.pages_data())?;
    writeln!(out, "Modified db pages  {dirty}")?;
    writeln!(
        out,
        "Percent of dirty pages {:.3}",
        100.0 * dirty as f64 / stats.frames as f64
    )?;
    writeln!(
        out,
        "Pages read {}, created {}, written {}",
        stats.loads.saturating_sub(stats.creates),
        stats.creates,
        stats.writes
    )?;
    writeln!(
        out,
        "Pages evicted {}; {} waits for a free page",
        stats.evictions, stats.free_waits
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

/// About as InnoDB writes it. Each member waited for the next one, the last for the first.
fn deadlock(out: &mut String, core: &Core, locks: &LockStatus) -> fmt::Result {
    let Some(deadlock) = &locks.last_deadlock else {
        return writeln!(out, "none since the database was opened");
    };
    let ago = SystemTime::now().duration_since(deadlock.when);
    writeln!(out, "{} seconds ago", ago.unwrap_or_default().as_secs())?;
    members(out, core, deadlock)
}

/// A deadlock as the report has it.
pub fn of_deadlock(core: &Core, deadlock: &DeadlockReport) -> String {
    let mut out = String::new();
    members(&mut out, core, deadlock).expect("a string takes everything");
    out
}

fn members(out: &mut String, core: &Core, deadlock: &DeadlockReport) -> fmt::Result {
    let tables = core.tables.all_open();
    for (n, member) in deadlock.members.iter().enumerate() {
        let DeadlockMember {
            owner,
            changes,
            locks,
            wants,
            session,
            ..
        } = member;
        writeln!(out, "*** ({}) TRANSACTION:", n + 1)?;
        write!(
            out,
            "TRANSACTION {}, ACTIVE",
            transactions::number_of(owner)
        )?;
        let session = write_active(out, session.clone())?;
        write!(out, "LOCK WAIT ")?;
        write_locks(out, locks.count(), locks.bytes, locks.records, *changes)?;
        write!(out, "{}", session.after)?;
        writeln!(out, "*** WAITING FOR THIS LOCK TO BE GRANTED:")?;
        let lock = transactions::lock_info(core, &tables, owner, &wants.target, wants.mode);
        writeln!(out, "{} waiting\n", Lock(&lock))?;
    }
    match deadlock.members.iter().position(|member| member.victim) {
        Some(victim) => writeln!(out, "*** WE ROLL BACK TRANSACTION ({})", victim + 1),
        None => Ok(()),
    }
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
    let tables = core.tables.all_open();
    for wait in &locks.waiting {
        let wants = &wait.wants;
        let lock = transactions::lock_info(core, &tables, &wait.owner, &wants.target, wants.mode);
        write!(
            out,
            "{} has waited {:.1} seconds for {}",
            Trx(&wait.owner),
            wait.waited.as_secs_f64(),
            Lock(&lock)
        )?;
        let holders = wait.holders.iter().map(|(owner, _)| Trx(owner).to_string());
        let holders: Vec<_> = holders.collect();
        match holders.is_empty() {
            true => writeln!(out, "; it gets it now")?,
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
    let drawn_since = |view: TrxNo| core.sys.next_id().saturating_sub(view.0);
    let standing = standing(core);
    let Some(OldView {
        number: oldest,
        open_for,
        kept,
        ..
    }) = standing.oldest_view
    else {
        return writeln!(out, "no read view is open");
    };
    let (seconds, drawn) = (open_for.as_secs(), drawn_since(oldest));
    let Some(Kept { versions, bytes }) = kept else {
        return writeln!(
            out,
            "read view {oldest} holds purge back, for at least {seconds} seconds; {drawn} numbers were drawn since",
        );
    };
    writeln!(
        out,
        "read view {oldest} is open for at least {seconds} seconds; {drawn} numbers were drawn since",
    )?;
    writeln!(
        out,
        "purge goes on behind it: the history store has {versions} versions of {bytes} bytes that it needs",
    )?;
    match standing.purge_waits_for {
        None => writeln!(out, "purge waits for no read view"),
        Some(view) => writeln!(
            out,
            "read view {view} holds purge back; {} numbers were drawn since",
            drawn_since(view)
        ),
    }
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

fn transactions(out: &mut String, core: &Core, sessions: Sessions<'_>) -> fmt::Result {
    writeln!(out, "Trx id counter {}", core.sys.next_id())?;
    writeln!(
        out,
        "Purge done for trx's n:o < {} undo n:o < {} state: {}",
        purged_below(core),
        core.purge_progress.undo_no(),
        core.purge_progress.state().name()
    )?;
    writeln!(out, "History list length {}", core.undo.history_len())?;
    writeln!(out, "LIST OF TRANSACTIONS FOR EACH SESSION:")?;
    let waits = transactions::lock_waits(core);
    for trx in transactions::list(core) {
        let session = match trx.session {
            0 => None,
            session => sessions(session),
        };
        transaction(out, &trx, session)?;
        if let Some((id, waited)) = &trx.waits {
            writeln!(
                out,
                "------- TRX HAS BEEN WAITING {} SEC FOR THIS LOCK TO BE GRANTED:",
                waited.as_secs()
            )?;
            if let Some(wait) = waits.iter().find(|wait| wait.wanted.id == *id) {
                writeln!(out, "{} waiting", Lock(&wait.wanted))?;
            }
            writeln!(out, "------------------")?;
        }
    }
    Ok(())
}

fn transaction(
    out: &mut String,
    trx: &TransactionInfo,
    session: Option<SessionText>,
) -> fmt::Result {
    let state = match trx.state {
        _ if trx.prepared => "ACTIVE (PREPARED)",
        TransactionState::Committing => "COMMITTING",
        _ => "ACTIVE",
    };
    write!(out, "---TRANSACTION {}, {state}", trx.number)?;
    let session = write_active(out, session)?;
    match trx.state {
        TransactionState::LockWait => write!(out, "LOCK WAIT ")?,
        TransactionState::RollingBack => write!(out, "ROLLING BACK ")?,
        TransactionState::Running | TransactionState::Committing => {}
    }
    write_locks(out, trx.locks, trx.lock_bytes, trx.rows_locked, trx.changes)?;
    write!(out, "{}", session.after)?;
    trx.view
        .as_ref()
        .map_or(Ok(()), |view| write_view(out, view))
}

/// Programs read this line.
fn write_locks(out: &mut String, locks: u64, bytes: u64, rows: u64, changes: u64) -> fmt::Result {
    write!(
        out,
        "{locks} lock struct(s), heap size {bytes}, {rows} row lock(s)"
    )?;
    match changes {
        0 => writeln!(out),
        changes => writeln!(out, ", undo log entries {changes}"),
    }
}

/// Ends the line about a transaction's state, and writes what comes before that about its locks.
fn write_active(out: &mut String, session: Option<SessionText>) -> Result<SessionText, fmt::Error> {
    let Some(session) = session else {
        writeln!(out)?;
        return Ok(SessionText::default());
    };
    write!(out, " {} sec", session.active.as_secs())?;
    if !session.operation.is_empty() {
        write!(out, " {}", session.operation)?;
    }
    write!(out, "\n{}", session.before)?;
    Ok(session)
}

fn write_view(out: &mut String, view: &ViewInfo) -> fmt::Result {
    let ViewInfo {
        number, sees_below, ..
    } = view;
    writeln!(
        out,
        "Trx read view will not see trx with id >= {number}, sees < {sees_below}"
    )?;
    match (view.in_history_store, view.pinned_history) {
        (true, _) => writeln!(
            out,
            "the history store has {} versions of {} bytes that it needs",
            view.pinned_versions, view.pinned_bytes
        ),
        (false, 0) => Ok(()),
        (false, logs) => writeln!(
            out,
            "purge waits for it with {logs} undo logs of {} bytes",
            view.pinned_undo_bytes
        ),
    }
}

/// Everything that was committed with a lower number is purged.
pub(super) fn purged_below(core: &Core) -> TrxNo {
    // The limit first: what is below is in the history, or purged. Only purge asks for a new one: that is
    // when views become members of the history store.
    let limit = core.sys.last_purge_limit();
    core.undo.oldest().map_or(limit, |oldest| oldest.min(limit))
}

struct Trx<'a>(&'a LockOwner);

impl fmt::Display for Trx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transaction {}", transactions::number_of(self.0))?;
        match self.0.trx {
            Some(_) => Ok(()),
            None => write!(f, ", which has written nothing"),
        }
    }
}

/// A lock, about as InnoDB writes it: keys are locked here, not places on pages. Programs that read InnoDB's
/// lines look for a page all the same, and find nothing without one.
struct Lock<'a>(&'a LockInfo);

impl fmt::Display for Lock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lock = self.0;
        let table = lock.table.replace('/', "`.`");
        let (Some(index), Some(key)) = (&lock.index, &lock.key) else {
            return write!(
                f,
                "TABLE LOCK table `{table}` trx id {} lock mode {}",
                lock.transaction, lock.mode
            );
        };
        let space = lock.space.map_or(0, |space| space.0);
        let (mode, what) = match lock.mode.strip_suffix(",GAP") {
            Some(mode) => (mode, "locks gap before rec insert intention"),
            None => (lock.mode, "locks rec but not gap"),
        };
        write!(
            f,
            "RECORD LOCKS space id {space} page no 0 n bits 0 index {index} of table `{table}` trx id {} lock_mode {mode} {what}, key {key}",
            lock.transaction
        )
    }
}
