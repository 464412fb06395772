//! What a database does wrong on purpose. The tests that look for lost and damaged data must notice each of
//! these; otherwise they prove nothing. Only the feature `sabotage`, which no product is built with, lets one
//! be chosen.

/// One thing that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(feature = "sabotage"), allow(dead_code))]
pub enum Sabotage {
    /// WAL-1: pages are written before their redo is durable.
    WriteAheadForgotten,
    /// WAL-2: the checkpoint passes changes that are only in the buffer pool.
    CheckpointTooFar,
    /// Commits are acknowledged before they are durable.
    AcknowledgedTooEarly,
    /// The undo record of a delete-marked secondary entry is not written.
    UndoSkipped,
    /// Rollback leaves new secondary entries where they are.
    EntryLeftByRollback,
    /// An undo log starts its page anew although older logs there are still needed.
    UndoPageTakenTooEarly,
    /// Pages that a crash tore are not restored from the doublewrite file.
    TornPagesKept,
    /// Updates by which a row gets another length are not logged.
    RedoRecordSkipped,
    /// Changes of allocation pages are not logged.
    AllocationNotLogged,
    /// Log files are used again, or removed, as soon as they are full.
    LogRecycledTooEarly,
    /// A durable mark in the redo log names what is not synced yet.
    MarkAheadOfSync,
    /// A sync of the redo log that failed is tried again, as if that helped.
    FailedSyncRetried,
    /// What rollback takes back is not marked as such in undo.
    UndoneNotMarked,
    /// Prepared transactions are rolled back at start-up.
    PreparedForgotten,
    /// DROP TABLE removes the file before it is committed.
    FileRemovedBeforeCommit,
    /// Purge does not look whether a view needs what it removes.
    PurgedTooEarly,
    /// Purge does not note which pages of an external value it has freed, and frees them again after a crash.
    OverflowFreedTwice,
    /// Purge does not free external values.
    OverflowLeaked,
    /// Views see what was committed after they opened.
    ViewMoves,
    /// Views see what is not committed.
    ViewSeesUnfinished,
    /// Locking reads lock no gaps.
    GapsOpen,
    /// Shared row locks are given up at once.
    SharedLocksForgotten,
    /// Row locks are granted whatever ranges others have locked.
    RangesIgnored,
    /// The checkpoint passes redo that recovery has not applied yet.
    RecoveryHoldDropped,
    /// Recovery forgets a part of the redo.
    RecoveryBlockForgotten,
    /// Views get no list of what they do not see of ids that leave the ring.
    DoubtsForgotten,
    /// A waiter for a row lock is not woken when it is given up.
    LockWakeForgotten,
    /// A waiter for another's sync of the redo log is not woken when it is over.
    CommitWakeForgotten,
    /// The exclusive latch of a page is given up before the page is changed.
    LatchForgotten,
    /// A thread that commits dies once it has drawn its number.
    CommitterDies,
    /// FK-3: a child's parent is not looked for.
    ParentNotLookedFor,
    /// FK-3: the children of a row that goes are not looked for.
    ChildrenForgotten,
    /// What a refused statement has changed stays.
    RefusedCascadeStays,
    /// FK-3: the parent of a new child is not locked.
    ParentNotLocked,
    /// COPY-2: versions of rows are not copied to the history store.
    CopySkipped,
    /// Versions are copied once purge has removed what they are made from.
    CopiedTooLate,
    /// COPY-3: of a row whose versions could not be copied the batch's last log stays, not its first.
    WrongLogKept,
    /// Long values are not copied.
    ValueNotCopied,
    /// Of a long value a part is copied.
    ValueCopiedInPart,
    /// STORE-1: a version is also for the member before those that need it.
    IntervalTooLow,
    /// STORE-1: who opened just before a version was superseded does not get it.
    IntervalTooShort,
    /// Who drew its id before a view opened is taken to be seen by it.
    WriterTakenForOld,
    /// Entries lose their TrxId although there are views that don't see it (TXN-6).
    FrozenTooEarly,
    /// STORE-2: what the oldest member needs is swept.
    SweptTooEarly,
    /// The store is closed while there is a member.
    StoreClosedTooEarly,
    /// MVCC-2: a row is taken for absent after the first cut.
    CutTakenForAbsent,
    /// SP-15: the hole behind a compressed page lies over its end.
    HoleOverPage,
    /// ENC-2: what is decrypted is taken for what was encrypted.
    TagNotChecked,
    /// LOOSE-1: trees of indexes that come or go are on no list.
    LooseTreeForgotten,
    /// CB-4: of the entries that are merged together one is lost.
    BufferedEntryLost,
    /// BACKUP-1: the redo of a backup begins at the last checkpoint.
    BackupWithoutOldRedo,
    /// BACKUP-2: a backup lacks tablespaces that were made meanwhile.
    BackupWithoutNewTables,
    /// BACKUP-3: a backup has pages as they are read, whole or not.
    TornPageInBackup,
    /// TRACK-2: pages that redo names do not count as written since the last backup.
    RecoveredPagesNotNoted,
}

impl Sabotage {
    /// Those that a search for crashes notices, or the workload in it. Each other one has a test of its own.
    #[cfg(feature = "internals")]
    pub const OF_CRASHES: [Sabotage; 21] = [
        Sabotage::HoleOverPage,
        Sabotage::WriteAheadForgotten,
        Sabotage::CheckpointTooFar,
        Sabotage::AcknowledgedTooEarly,
        Sabotage::UndoSkipped,
        Sabotage::EntryLeftByRollback,
        Sabotage::UndoPageTakenTooEarly,
        Sabotage::TornPagesKept,
        Sabotage::RedoRecordSkipped,
        Sabotage::AllocationNotLogged,
        Sabotage::LogRecycledTooEarly,
        Sabotage::MarkAheadOfSync,
        Sabotage::UndoneNotMarked,
        Sabotage::PreparedForgotten,
        Sabotage::FileRemovedBeforeCommit,
        Sabotage::LooseTreeForgotten,
        Sabotage::PurgedTooEarly,
        Sabotage::OverflowFreedTwice,
        Sabotage::OverflowLeaked,
        Sabotage::RecoveryHoldDropped,
        Sabotage::RecoveryBlockForgotten,
    ];
}
