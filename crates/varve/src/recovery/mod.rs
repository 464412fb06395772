//! Recovery: bringing pages up to date from the redo log, taking back what unfinished transactions did, and making the
//! files those that the definitions name.
//!
//! Order at start-up:
//!
//! 1. torn pages are restored from the doublewrite file (`flush`), tablespace files are opened by the header in each;
//! 2. the log is read once to find its end and the id limit, and opened there for writing (`scan`);
//! 3. it is read again and applied page by page (`replay`), while the page cleaner already writes pages out;
//!    the checkpoint stays where it was until the replay is through;
//! 4. transactions whose undo logs are still in their slots are rolled back: first those that changed
//!    definitions, then, with the definitions loaded, all others;
//! 5. files that no definition names are removed, files under another name than their definition's are renamed.
//!
//! - **REC-1** Nothing but replay touches a page of a logged tablespace before step 4.
//! - **REC-2** All steps can be interrupted and started again.

mod files;

use std::path::Path;
use std::sync::Arc;

use crate::base::{Lsn, Result};
use crate::buffer::BufferPool;
use crate::io::Disk;
use crate::mtr::RawRecord;
use crate::mtr::record::{Record, records};
use crate::mtr::replay::apply_frame;
use crate::redo::{Control, RedoReader};
use crate::txn::{Core, Transaction};
use crate::undo::TrxUndo;

pub use files::{FoundFile, find_files, reconcile};

/// What the redo log holds beyond the checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scan {
    pub end: Lsn,
    pub id_limit: u64,
    pub frames: u64,
}

/// Reads the log from the checkpoint to its end.
pub fn scan(disk: &dyn Disk, dir: &Path, control: &Control) -> Result<Scan> {
    let mut reader = RedoReader::open(disk, dir, &control.uuid, control.checkpoint)?;
    let mut found = Scan {
        end: control.checkpoint,
        id_limit: control.id_limit,
        frames: 0,
    };
    while let Some(frame) = reader.next()? {
        found.frames += 1;
        found.end = frame.end;
        for record in records(frame.body) {
            if let Ok(Record::Raw(RawRecord::IdLimit { limit })) = record {
                found.id_limit = found.id_limit.max(limit);
            }
        }
    }
    Ok(found)
}

/// Applies the log from the checkpoint to `end`.
pub fn replay(
    disk: &dyn Disk,
    dir: &Path,
    control: &Control,
    end: Lsn,
    pool: &Arc<BufferPool>,
) -> Result<()> {
    let mut reader = RedoReader::open(disk, dir, &control.uuid, control.checkpoint)?;
    while let Some(frame) = reader.next()? {
        if frame.end > end {
            break;
        }
        apply_frame(pool, frame.start, frame.end, frame.body, |_| Ok(()))?;
    }
    Ok(())
}

/// Rolls a transaction back that had not ended when the database stopped. It was registered as active.
pub fn roll_back(core: &Arc<Core>, undo: TrxUndo) -> Result<()> {
    Transaction::recovered(core.clone(), undo).rollback()
}
