//! What there is to know about each undo tablespace.

use crate::base::SpaceId;
use crate::undo::{UndoSpace, UndoSpaceState, UndoSys};

/// An undo tablespace, as it is at the moment.
#[derive(Clone, Debug)]
pub struct UndoTablespace {
    /// From 1 on, as in the name of its file.
    pub number: usize,
    /// Another one after each truncation.
    pub space: SpaceId,
    /// Relative to the data directory, unless it is elsewhere.
    pub path: String,
    pub state: UndoSpaceState,
    pub rollback_segments: usize,
    pub file_bytes: u64,
    pub used_pages: u32,
    /// Undo logs of committed transactions that are not purged yet.
    pub history_len: u64,
    /// Since the database was opened.
    pub truncations: u64,
}

pub fn describe(undo: &UndoSys) -> Vec<UndoTablespace> {
    let env = &undo.env;
    let describe = |space: &UndoSpace| UndoTablespace {
        number: space.number(),
        space: space.id(),
        path: space.path(),
        state: space.state(),
        rollback_segments: space.rsegs().len(),
        file_bytes: u64::from(space.size_pages(env)) * env.page_size as u64,
        used_pages: space.used_pages(env),
        history_len: space.history_len(),
        truncations: space.truncations(),
    };
    undo.spaces().iter().map(describe).collect()
}
