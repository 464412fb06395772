//! What a database does wrong on purpose. The tests that look for lost and damaged data must notice each of these;
//! otherwise they prove nothing. Only the feature `sabotage`, which no product is built with, lets one be chosen.

/// One thing that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// WAL-1: pages are written before their redo is durable.
    WriteAheadForgotten,
    /// WAL-2: the checkpoint passes changes that are only in the buffer pool.
    CheckpointTooFar,
    /// Commits are acknowledged before they are durable.
    AcknowledgedTooEarly,
    /// The undo record of a killed secondary entry is not written.
    UndoSkipped,
    /// Rollback leaves new secondary entries where they are.
    EntryLeftByRollback,
    /// An undo log starts its page anew although older logs there are still needed.
    UndoPageTakenTooEarly,
    /// Views see what was committed after they opened.
    ViewMoves,
    /// Views see what is not committed.
    ViewSeesUnfinished,
    /// Locking reads lock no gaps.
    GapsOpen,
    /// Shared row locks are given up at once.
    SharedLocksForgotten,
}
