//! Truncating an undo tablespace: getting back to a small file after a long transaction or a long reader has
//! made it large.
//!
//! The states are those of InnoDB's WL#6965: the tablespace's rollback segments become **inactive**, so that
//! new transactions take others; those that have one of them end; purge works off what they left; the now
//! **empty** tablespace is truncated and becomes **active** again. If something pins it for too long (a
//! transaction that stays open, a prepared one, a read view that keeps purge from its logs), it becomes
//! active again as it is.
//!
//! The work log truncates the file in place. A crash in the middle then leaves pages of before and after side
//! by side, so it has a checkpoint before, a marker file with a magic number for recovery to look for, and a
//! checkpoint behind. Here truncation is **replacement**: a new file with a new tablespace id is made beside
//! the old one, with the headers of empty rollback segments in it; one mini-transaction writes its id into
//! the directory page; when that is durable the new file gets the old one's name. So the redo log is the
//! marker: whichever id the directory page has after recovery is the tablespace, and the other file is
//! removed (`recovery::reconcile_undo`). Redo for pages of the old one leads nowhere and is passed over. No
//! checkpoint is needed, nor are the old pages written, but their changes hold the checkpoint until the old
//! file is gone (SP-8).
//!
//! - **TRUNC-1** At most one undo tablespace is inactive at a time, and only if there is another one. So a
//!   transaction that begins to write always finds an active rollback segment.
//! - **TRUNC-2** A tablespace is replaced when its rollback segments are inactive and empty: no transaction
//!   has one of them, nothing of theirs is left to purge, so no reader follows a roll pointer there (MVCC-1)
//!   and nobody changes a page there (RSEG-6).
//!
//! Nobody waits for it. What transactions share with it is one word of a rollback segment, and what everybody
//! looks at for a moment: the list of tablespaces, the redo log, frames. No lock or latch that somebody else
//! may wait for is held while the disk is waited for, but that of the control file when the ids written ahead
//! have been used up (CTL-3), which keeps nobody but checkpoints and DDL. How long each is held is measured
//! ([`HeldByTruncation`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::{Durations, Lsn, PageId, Result, SpaceId, TableId};
use crate::encryption::Encryption;
use crate::mtr::Mtr;
use crate::space::{DefinitionCopy, NewSpace, SpaceKind, Spaces};

use super::UndoEnv;
use super::directory::Directory;
use super::rseg::Rseg;
use super::segments::format_headers;

/// What the names of undo tablespaces' files begin with.
pub const UNDO_FILES: &str = "undo_";

/// Pages of a new undo tablespace.
pub const INITIAL_PAGES: u32 = 64;

/// What transactions may do in an undo tablespace, as in the work log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UndoSpaceState {
    /// New transactions may use it.
    Active,
    /// It is to be truncated: those that use it end, purge works off what they leave.
    Inactive,
    /// Nothing is left in it, and it is being truncated.
    Empty,
}

impl UndoSpaceState {
    pub fn name(self) -> &'static str {
        match self {
            UndoSpaceState::Active => "active",
            UndoSpaceState::Inactive => "inactive",
            UndoSpaceState::Empty => "empty",
        }
    }
}

/// How long truncations have held what others may wait for. Two more locks are held from the beginning to the
/// end of one: `truncating`, for which only another truncation waits, and each rollback segment's `upkeep`,
/// which purge only tries.
#[derive(Default)]
pub struct HeldByTruncation {
    /// The mutex of the control file, to draw the new tablespace's id.
    pub control_file: Durations,
    /// The directory page's latch.
    pub directory: Durations,
    /// A rollback segment's mutexes, to begin with it anew.
    pub segments: Durations,
}

impl HeldByTruncation {
    /// All of them, with names. The list of tablespaces and the frames are counted where they are kept, and
    /// DDL is counted there, too.
    pub fn all<'a>(&'a self, env: &'a UndoEnv) -> [(&'static str, &'a Durations); 5] {
        [
            ("control file", &self.control_file),
            ("tablespaces and files (DDL too)", &env.spaces.held),
            ("directory page", &self.directory),
            ("rollback segments", &self.segments),
            ("frames of dropped pages (DDL too)", &env.pool.drop_held),
        ]
    }
}

/// One undo tablespace, whichever file it is at the moment.
pub struct UndoSpace {
    /// Its place in the directory.
    n: usize,
    path: String,
    rsegs: Vec<Arc<Rseg>>,
    truncations: AtomicU64,
}

impl UndoSpace {
    /// `rsegs` were dealt to `count` tablespaces in turn. None without tablespaces: a single rollback segment
    /// is in the system tablespace then, which stays as large as it has been.
    pub(super) fn all(env: &UndoEnv, rsegs: &[Arc<Rseg>], count: usize) -> Vec<UndoSpace> {
        let of = |n| rsegs.iter().skip(n).step_by(count).cloned().collect();
        let space = |n| UndoSpace {
            n,
            path: undo_path(&env.spaces, n),
            rsegs: of(n),
            truncations: AtomicU64::new(0),
        };
        (0..count).map(space).collect()
    }

    /// Its number, as in the name of its file.
    pub fn number(&self) -> usize {
        self.n + 1
    }

    pub fn id(&self) -> SpaceId {
        self.rsegs[0].space()
    }

    pub fn path(&self) -> String {
        self.path.clone()
    }

    pub fn rsegs(&self) -> &[Arc<Rseg>] {
        &self.rsegs
    }

    pub fn size_pages(&self, env: &UndoEnv) -> u32 {
        env.spaces.size_pages(self.id()).unwrap_or(0)
    }

    pub fn used_pages(&self, env: &UndoEnv) -> u32 {
        env.used_pages(self.id())
    }

    /// How often it was truncated since the database was opened.
    pub fn truncations(&self) -> u64 {
        self.truncations.load(Ordering::Relaxed)
    }

    pub fn history_len(&self) -> u64 {
        self.rsegs.iter().map(|r| r.history_len()).sum()
    }

    pub fn is_active(&self) -> bool {
        self.rsegs.iter().all(|r| r.is_active())
    }

    pub fn state(&self) -> UndoSpaceState {
        match (self.is_active(), self.is_empty()) {
            (true, _) => UndoSpaceState::Active,
            (false, false) => UndoSpaceState::Inactive,
            (false, true) => UndoSpaceState::Empty,
        }
    }

    pub(crate) fn set_active(&self, active: bool) {
        self.rsegs.iter().for_each(|r| r.set_active(active));
    }

    /// TRUNC-2. Stays so while it is inactive.
    pub fn is_empty(&self) -> bool {
        self.rsegs.iter().all(|r| r.is_empty())
    }

    /// Replaces the file by one of initial size, whose tablespace id is `id`. The tablespace is inactive and
    /// empty (TRUNC-2). After an error everything is as it was, or the database is poisoned.
    pub(crate) fn replace(
        &self,
        env: &UndoEnv,
        id: SpaceId,
        held: &HeldByTruncation,
    ) -> Result<Renamed> {
        // Purge has finished tidying up here, and does not begin again.
        let upkeep: Vec<_> = self.rsegs.iter().map(|r| r.upkeep.lock()).collect();
        assert!(!self.is_active() && self.is_empty(), "TRUNC-2");
        let old = self.id();
        env.spaces.create(NewSpace {
            id,
            path: &replacing_path(&undo_name(&env.spaces, self.n), id),
            kind: SpaceKind::Undo,
            table: TableId(0),
            definition: DefinitionCopy::default(),
            pages: INITIAL_PAGES,
            target: None,
            compression: None,
            encryption: Encryption::default(),
        })?;
        let switched = self.switch(env, id, held).inspect_err(|_| {
            // A file that can't be removed is found not to be in the directory by the next start.
            if env.spaces.drop_space(id).is_ok() {
                env.pool.drop_space(id);
            }
        })?;
        // From here on the new file stays, whatever happens: recovery may find it in the directory.
        env.mtr.log.sync_to(switched)?;
        for rseg in &self.rsegs {
            rseg.restart(id, &held.segments);
        }
        drop(upkeep);
        self.truncations.fetch_add(1, Ordering::Relaxed);
        let renamed = env.spaces.replace_open(old, id);
        if renamed.is_ok() {
            // Otherwise the old file is still there, and recovery may come to it: its pages are written
            // (SP-8).
            env.pool.drop_space(old);
        }
        Ok(Renamed(renamed))
    }

    /// Makes the new file the tablespace. Returns the LSN that makes it durable.
    fn switch(&self, env: &UndoEnv, id: SpaceId, held: &HeldByTruncation) -> Result<Lsn> {
        let header = |rseg: &Arc<Rseg>| (rseg.id(), PageId::new(id, rseg.header().no));
        let headers: Vec<_> = self.rsegs.iter().map(header).collect();
        format_headers(env, &headers)?;
        let mut mtr = Mtr::begin(&env.mtr, 256)?;
        let h = Directory::latch(&mut mtr)?;
        let _held = held.directory.begin();
        Directory::replace_undo_space(&mut mtr, h, self.n, id);
        Ok(mtr.commit())
    }
}

/// The tablespace was replaced, and its new file got the old one's name; or it gets it at the next start, and
/// the old one is there until then.
#[must_use]
pub(crate) struct Renamed(pub Result<()>);

/// The path of the `n`th undo tablespace, without what tells a new file from the old one.
fn undo_name(spaces: &Spaces, n: usize) -> String {
    format!("{}{UNDO_FILES}{:03}", spaces.undo_dir(), n + 1)
}

/// That of the file of tablespace `id` while it is to take the place of this one.
pub fn replacing_path(name: &str, id: SpaceId) -> String {
    format!("{name}-{id}.vdt")
}

/// The path of the `n`th undo tablespace, relative to the data directory.
pub fn undo_path(spaces: &Spaces, n: usize) -> String {
    format!("{}.vdt", undo_name(spaces, n))
}
