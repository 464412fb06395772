//! Recovery: bringing pages up to date from the redo log, taking back what unfinished transactions did, and making the
//! files those that the definitions name.
//!
//! Order at start-up:
//!
//! 1. torn pages are restored from the doublewrite file (`flush`), tablespace files are opened by the header in each;
//! 2. the log is read once to find its end, the id limit, and which files were to be removed, and opened there for writing (`scan`);
//! 3. it is read again and applied page by page (`replay`), while the page cleaner already writes pages out;
//!    the checkpoint stays where it was until the replay is through;
//! 4. transactions whose undo logs are still in their slots are rolled back, unless they are prepared: first those that
//!    changed definitions, then, with the definitions loaded, all others;
//! 5. files without rows that no definition names are removed, those with rows put aside (DDL-3), and files under another name than their
//!    definition's are renamed.
//!
//! - **REC-1** Nothing but replay touches a page of a logged tablespace before step 4.
//! - **REC-2** All steps can be interrupted and started again.
//! - **REC-3** A table that can't be used, because its file is missing or damaged or its definition can't be read, does not
//!   keep the others from being used. It is told in the log, and refused by name until it is dropped. Its file and its undo stay,
//!   so that it can be used again when the reason is gone; but purge passes it over, so that deleted rows may stay in it. A file
//!   that was missing while redo was applied to others lacks changes: a mark beside it says so, and it is not used again.
//! - **REC-4** A file that the system refuses to open or to read is not a missing one: the refusal may pass. While there is redo to
//!   apply the database does not open without it, nor ever without a file of its own (system and undo tablespaces). If
//!   it does not open the checkpoint stays where it was.

mod files;

use std::path::Path;
use std::sync::Arc;

use crate::base::{Error, Lsn, Result, SpaceId};
use crate::buffer::BufferPool;
use crate::io::Disk;
use crate::mtr::RawRecord;
use crate::mtr::record::{Record, records};
use crate::mtr::replay::apply_frame;
use crate::redo::{Control, REDO_DIR, RedoReader};
use crate::txn::{Core, Transaction};
use crate::undo::TrxUndo;

pub use files::{
    FoundFile, directories, find_files, finish_removals, reconcile, reconcile_undo,
    require_readable,
};

/// What the redo log holds beyond the checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scan {
    pub end: Lsn,
    pub id_limit: u64,
    pub frames: u64,
    /// Tablespaces whose removal was decided, and may not be done yet (DDL-3).
    pub removed: Vec<SpaceId>,
}

/// Reads the log from the checkpoint to its end. Also returns a reader that stands at the checkpoint again, for
/// `replay`: it has its files open, so it may be read while the log's threads take spare files into use.
pub fn scan(disk: &dyn Disk, dir: &Path, control: &Control) -> Result<(Scan, RedoReader)> {
    let open = || RedoReader::open(disk, dir, &control.uuid, control.checkpoint);
    let mut reader = open()?;
    let mut found = Scan {
        end: control.checkpoint,
        id_limit: control.id_limit,
        frames: 0,
        removed: Vec::new(),
    };
    while let Some(frame) = reader.next()? {
        found.frames += 1;
        found.end = frame.end;
        for record in records(frame.body) {
            match record {
                Ok(Record::Raw(RawRecord::IdLimit { limit })) => {
                    found.id_limit = found.id_limit.max(limit);
                }
                Ok(Record::Raw(RawRecord::FileDelete { space, .. })) => found.removed.push(space),
                _ => {}
            }
        }
    }
    Ok((found, open()?))
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

/// Rolls a transaction back that had not ended when the database stopped. It was registered as active. What it changed in
/// tables that can't be used is left for the next start.
pub fn roll_back(core: &Arc<Core>, undo: TrxUndo) -> Result<()> {
    Transaction::recovered(core.clone(), undo).roll_back_recovered()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{PageId, PageNo};
    use crate::buffer::PoolSettings;
    use crate::buffer::mem_store::MemStore;
    use crate::io::RealDisk;
    use crate::mtr::{Mtr, MtrEnv};
    use crate::page::{PageOp, PageType};
    use crate::redo::{LogSettings, RedoLog};

    /// The log's own threads take spare files into use while the log is being replayed. Replay that looked for its files
    /// only then ran into a file that was listed under one name and opened under none.
    #[test]
    fn replay_has_its_files_open() {
        const PAGE: usize = 4096;
        let (dir, start, uuid) = (tempfile::tempdir().unwrap(), Lsn(4096), [3; 16]);
        let pool = || {
            let settings = PoolSettings {
                bytes: (256 * PAGE) as u64,
                page_size: PAGE,
            };
            Arc::new(BufferPool::new(settings, Arc::new(MemStore::default())).unwrap())
        };
        let disk = Arc::new(RealDisk);
        let settings = LogSettings::new(64 << 20, PAGE as u32, uuid);
        let log = Arc::new(RedoLog::create(disk.clone(), dir.path(), settings, start).unwrap());
        let env = MtrEnv::new(pool(), log.clone());
        let page = PageId::new(SpaceId(2), PageNo(7));
        let mut mtr = Mtr::begin(&env, 4096).unwrap();
        let h = mtr.exclusive_new(page).unwrap();
        mtr.op(
            h,
            PageOp::FormatRaw {
                ptype: PageType::Raw,
            },
        );
        mtr.op(
            h,
            PageOp::Write {
                off: 100,
                bytes: b"written",
            },
        );
        log.sync_to(mtr.commit()).unwrap();

        let control = Control {
            page_size: PAGE as u32,
            uuid,
            checkpoint: start,
            clean_shutdown: false,
            id_limit: 0,
            next_space: 0,
            next_table: 0,
            next_index: 0,
        };
        let (scan, redo) = scan(&*disk, dir.path(), &control).unwrap();
        for file in std::fs::read_dir(dir.path().join(REDO_DIR)).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
        let replayed = pool();
        replay(redo, start, scan.end, dir.path(), &replayed).unwrap();
        assert_eq!(&replayed.shared(page).unwrap()[100..107], b"written");
    }
}
