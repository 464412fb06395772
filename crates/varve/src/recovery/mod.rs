//! Recovery: bringing pages up to date from the redo log, taking back what unfinished transactions did, and
//! making the files those that the definitions name.
//!
//! Order at start-up:
//!
//! 1. the files of the system and undo tablespaces are opened, and those of tables that have pages in the
//!    doublewrite file (`flush`), from which torn pages are restored once the log has been looked at;
//! 2. what the log says is found out: where it ends, the id limit, which files were to be removed, what
//!    counters of tables' files are at least (COUNTER-1), and the **page map**: which redo each page lacks
//!    (`map`). If its files have indexes (`index`, made by `indexer` while the checkpoint was far behind),
//!    they say so, and only the log's end is read (`survey`); otherwise all of it is read once (`scan`), and
//!    divided among partitions (`scatter`). Then it is opened for writing where it ends;
//! 3. the map is put behind the buffer pool (`attach`): from here on, the thread that loads a page first
//!    brings it up to date. If it goes by indexes, a page's redo is read from the log frame by frame
//!    (`indexed`);
//! 4. transactions whose undo logs are still in their slots are found. What was prepared gets its locks back;
//!    those that changed definitions are rolled back, so that the definitions are the committed ones;
//! 5. the tables' files that redo names are opened. If one of them is not where its table's name says, files
//!    are compared with the definitions now, else in the background (`comparison`): files without rows that
//!    no definition names are removed, those with rows put aside (DDL-3), and files under another name than
//!    their definition's are renamed;
//! 6. the database opens. In the background, the log is read as a whole and divided now, if that was not done
//!    before, and other threads bring the rest of the pages up to date and roll back the other transactions
//!    (`background`), under locks that keep everybody else away.
//!
//! So the time until the first answer is that of reading the log, whatever the number of pages; with indexes
//! that of reading these, a few hundredths of it. The pages that steps 4 and 5 look at are not many, but each
//! may be in a partition of its own, whose redo has to be read back from a file: where it is known which they
//! will be, they are loaded together (`load_ahead`), and several threads look at the tables before they are
//! opened one by one. What makes it safe:
//!
//! - **REC-1** Nobody sees a page of a logged tablespace without its redo: it is applied before anybody else
//!   can latch the page (BUF-6), and is known completely before the first page is loaded (step 3).
//! - **REC-2** All steps can be interrupted and started again. What is applied stays in the log until the
//!   page is written: the checkpoint is held where recovery began reading until no page lacks redo (REC-5,
//!   `background`), and a page that is changed by redo counts as changed from the first redo on that was
//!   applied (RPL-2). A second recovery reads the same log again and what was added.
//! - **REC-3** A table that can't be used, because its file is missing or damaged or its definition can't be
//!   read, does not keep the others from being used. It is told in the log, and refused by name until it is
//!   dropped. Its file and its undo stay, so that it can be used again when the reason is gone; but purge
//!   passes it over, so that deleted rows may stay in it. A file that was missing while redo was applied to
//!   others lacks changes: a mark beside it says so, and it is not used again.
//! - **REC-4** A file that the system refuses to open or to read is not a missing one: the refusal may pass.
//!   While there is redo to apply the database does not open without it, nor ever without a file of its own
//!   (system and undo tablespaces). If it does not open the checkpoint stays where it was.
//! - **REC-7** A page whose file has all redo already is not written again. But what was read may be in the
//!   operating system's cache only, if the process died between a write and its sync: all files that redo
//!   concerns are synced before the checkpoint passes that redo.
//!
//! **Redo capacity.** The log may have been full at the crash, and its part that recovery reads can't be
//! given up before all pages are through. Nobody is to wait for that: it does not count against the capacity
//! ([`RedoLog::exempt_recovered`]), and so the log may for a while take as much more as it held.
//!
//! **Without delay.** Everything is applied before the database opens (`apply_all`) if it is only looked at;
//! if there is no room for the additional log files; or if the log holds more than twice its capacity, as it
//! may after several crashes in recovery. Should a page be damaged, what is left is done in the background
//! all the same, which knows whose it is (REC-6); unless the log has no room at all. If there is no room for
//! the redo that does not fit in memory, the log is read a second time and applied in order (`replay`); then
//! a damaged page keeps the database from opening. In all these cases the files of all tables are opened
//! before, by the header in each.
//!
//! **Only to be read.** With `Options::force_recovery` from 4 on all of this happens on an overlay
//! (`io/overlay.rs`), so no file changes, and nothing is done that nobody waits for: no thread brings pages
//! up to date. Level 5 does not look at undo: with no transaction known to be unfinished, readers see the
//! newest version of each row. Level 6 passes over the log (`pass_over_redo`).

mod background;
mod chain;
mod comparison;
mod counters;
mod divided;
mod files;
pub mod index;
mod indexed;
mod map;
mod pages;
mod partition;
mod scan;
mod scatter;
mod spill;
mod survey;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_indexed;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use crate::base::{DISK_THREADS, Error, Lsn, PageId, Result, SpaceId, map_together, threads};
use crate::buffer::{BufferPool, PendingRedo};
use crate::mtr::replay::apply_frame;
use crate::redo::{REDO_DIR, RedoLog, RedoReader};
use crate::txn::{Core, Transaction};
use crate::undo::TrxUndo;
use partition::Loaded;

pub use background::{PendingRecovery, Progress, Recovery};
pub use comparison::FileComparison;
pub use files::{
    FoundFile, directories, find_files, finish_removals, finish_rename, is_refusal, open_own_files,
    open_wherever, reconcile_undo, require_readable,
};
pub use index::{DatabaseIdentity, Indexer, IndexerCounters, IndexerEnv};
pub use map::PageMap;
pub use scan::{Changes, Scan, ScanSettings, measure, pass_over_redo, scan};
pub use spill::SPILL_FILE;

/// Puts the page map behind the pool, which holds no page yet. Files get the length that redo has given them.
/// Redo for tablespaces that are not there is passed over, but for those that come later
/// ([`FileComparison`]). `None` if no page lacks anything.
///
/// # Errors
///
/// `NoSpace`: a file can't be extended.
pub fn attach(
    map: PageMap,
    pool: &BufferPool,
    comes_later: &dyn Fn(SpaceId) -> bool,
) -> Result<Option<Arc<PageMap>>> {
    let map = Arc::new(map);
    for last in map.spaces() {
        if !comes_later(last.space) && !pool.store().ensure(last)? {
            map.forget(last.space);
        }
    }
    if map.left() == 0 {
        map.remove_file()?;
        return Ok(None);
    }
    pool.set_pending(map.clone());
    Ok(Some(map))
}

/// The same for redo whose memory is taken from the pool: frames are held back for it (BUF-9, MAP-4).
///
/// # Errors
///
/// As `attach`.
pub fn attach_within(
    map: PageMap,
    pool: &BufferPool,
    comes_later: &dyn Fn(SpaceId) -> bool,
) -> Result<Option<Arc<PageMap>>> {
    let map = attach(map, pool, comes_later)?;
    if let Some(map) = &map {
        pool.hold_back(map.held_bytes());
    }
    Ok(map)
}

/// Whether the database may open before all redo is applied: the log can take what is written meanwhile.
pub fn may_wait(log: &RedoLog) -> Result<bool> {
    if log.needs_space() || log.checkpoint_age_bytes() > 2 * log.capacity() {
        return Ok(false);
    }
    match log.exempt_recovered() {
        Ok(()) => Ok(true),
        Err(Error::NoSpace { .. }) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Pages of a partition whose reads are under way together.
const BATCH_PAGES: usize = 64;

/// Brings those of these pages, of one partition, up to date that are to be read and for which frames are at
/// hand. Their reads are under way together, and the partition's redo is loaded meanwhile, if `loaded` does
/// not have it.
fn read_together(
    pool: &Arc<BufferPool>,
    map: &PageMap,
    partition: usize,
    batch: &[PageId],
    loaded: &mut Option<Arc<Loaded>>,
) {
    let (to, arrivals) = channel();
    pool.read_pending(batch, to);
    if loaded.is_none() {
        // What goes wrong here goes wrong again for the thread that applies it.
        *loaded = map.load(partition).and_then(Result::ok);
    }
    arrivals.into_iter().for_each(|arrived| arrived.finish(map));
}

/// Brings these pages of a partition up to date. `one` does it with those that are not read together with
/// others: they begin as zeros, could not be read, or there was no frame at hand. Its first error is the end.
fn load_all(
    pool: &Arc<BufferPool>,
    map: &PageMap,
    partition: usize,
    pages: &[PageId],
    mut one: impl FnMut(PageId) -> Result<()>,
) -> Result<()> {
    let mut loaded = None;
    for batch in pages.chunks(BATCH_PAGES) {
        read_together(pool, map, partition, batch, &mut loaded);
        let mut left = batch.iter().filter(|page| map.waits(**page));
        left.try_for_each(|page| one(*page))?;
    }
    Ok(())
}

/// Has these pages in the pool, up to date, before somebody looks at one after the other: those that lack
/// redo are loaded together, by `threads` threads, and the others read ahead. What can't be loaded is left to
/// whoever needs it.
pub fn load_ahead(pool: &Arc<BufferPool>, map: Option<&PageMap>, pages: &[PageId], threads: usize) {
    let mut lacking: BTreeMap<usize, Vec<PageId>> = BTreeMap::new();
    let (mut alone, mut others) = (Vec::new(), Vec::new());
    for &page in pages {
        match map.filter(|map| map.waits(page)) {
            Some(map) => match map.partition_of(page) {
                Some(partition) => lacking.entry(partition).or_default().push(page),
                None => alone.push(page),
            },
            None => others.push(page),
        }
    }
    pool.prefetch(&others);
    let Some(map) = map else {
        return;
    };
    // Threads that wait for the disk.
    map_together(&alone, DISK_THREADS.max(threads), |page| {
        drop(pool.shared(*page))
    });
    let partitions = Vec::from_iter(lacking);
    map_together(&partitions, threads, |(partition, pages)| {
        let _ = load_all(pool, map, *partition, pages, |page| {
            // Told when it is needed.
            let _ = pool.shared(page);
            Ok(())
        });
    });
}

/// Brings all pages up to date, with several threads, but for those that are damaged: then the first such
/// error is returned. After any error the map is as good as before.
pub fn apply_all(pool: &Arc<BufferPool>, map: &PageMap, threads: usize) -> Result<()> {
    match map.divide() {
        // Each page by itself.
        Ok(()) | Err(Error::NoSpace { .. }) => {}
        Err(_) if map.left() == 0 => {}
        Err(e) => return Err(e),
    }
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        let mut damaged = None;
        loop {
            let partition = next.fetch_add(1, Ordering::Relaxed);
            if partition >= map.groups() {
                return damaged.map_or(Ok(()), Err);
            }
            let pages = map.waiting(partition);
            load_all(pool, map, partition, &pages, |page| {
                match pool.shared(page).map(drop) {
                    Err(e @ Error::Corrupt { .. }) => {
                        damaged.get_or_insert(e);
                        Ok(())
                    }
                    other => other,
                }
            })?;
        }
    };
    thread::scope(|scope| {
        // Those that the system does not give are done without.
        let start = |_| threads::spawn_scoped(scope, "varve-recovery", work).ok();
        let others: Vec<_> = (1..threads).filter_map(start).collect();
        let own = work();
        let joined = others
            .into_iter()
            .map(|thread| thread.join().expect("its panic is ours"));
        joined.fold(own, |all, one| all.and(one))
    })?;
    assert_eq!(map.left(), 0, "REC-1: every page was loaded");
    map.sync_files(&**pool.store())?;
    pool.settle_pending();
    pool.end_pending();
    map.remove_file()
}

/// Applies the log from `checkpoint`, where `reader` stands, to `end`.
pub fn replay(
    mut reader: RedoReader,
    checkpoint: Lsn,
    end: Lsn,
    dir: &Path,
    pool: &Arc<BufferPool>,
) -> Result<()> {
    let mut at = checkpoint;
    // Not one frame further: what lies behind the end is being overwritten.
    while at < end {
        let Some(frame) = reader.next()? else {
            return Err(Error::CorruptFile {
                path: dir.join(REDO_DIR),
                expected: format!("redo up to LSN {end}"),
                found: format!("only up to LSN {at}"),
            });
        };
        apply_frame(pool, frame.start, frame.end, frame.body, |_| Ok(()))?;
        at = frame.end;
    }
    Ok(())
}

/// Rolls a transaction back that had not ended when the database stopped. It was registered as active. What
/// it changed in tables that can't be used is left for the next start.
pub fn roll_back(core: &Arc<Core>, undo: TrxUndo) -> Result<()> {
    Transaction::recovered(core.clone(), undo).roll_back_recovered()
}
