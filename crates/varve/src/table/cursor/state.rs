//! The states of a cursor, and what belongs to each.
//!
//! # What the cursor is on
//!
//! Between two calls a cursor is on a row or on none; [`Row`] says which. Its [`Current`] is the state:
//!
//! | state | the row | who makes the transition |
//! |---|---|---|
//! | **none** | there is none | `open`; every search and every move before it looks for a row |
//! | **batch** | what the view sees, in a record that was copied | `accept`, `pass` |
//! | **version** | what the view sees, fetched or rebuilt | `fetch_clustered`, `accept_older` |
//! | **entry** | the same, of which only the key is wanted | `accept_entry`, `pass` |
//! | **locked** | the newest version, locked | `fetch_clustered`, `lock_next` |
//! | **committed** | what was committed last, locked by another (SEMI-1) | `give_committed` |
//!
//! A search or a move leaves the row before it looks for the next one. If it finds none, or fails then, the
//! cursor is on no row. While it looks, `Row::key` is the key of the record that it looks at, and means
//! nothing to the caller.
//!
//! # Where the search goes on
//!
//! [`Resume`] says where the next record is looked for, in the direction of the search:
//!
//! | state | the next record | who makes the transition |
//! |---|---|---|
//! | **end** | there is none | `start`; `fill` and `leave` when no leaf is left |
//! | **key** | from this key on | `seek`, `first`, `last`; each step of a scan |
//! | **behind the row** | behind `Row::key` | `point`: moves seldom follow a search for a whole key |
//!
//! How the two change together:
//!
//! - **Search** (`seek`, `seek_position`, `first`, `last`): `start` forgets the last search in whatever
//!   state it is, and `join` makes the transaction the searcher ([`Search`]). Then it looks for its row like
//!   a move. After `seek_position` in a secondary index there is nothing to go on to.
//! - **Move** (`next`, `prev`, `next_same`): it goes on from `Resume`. In the other direction it goes on
//!   from the current row, and forgets what was copied (`turn`); without a row there is nothing there. If
//!   another transaction makes the move, the cursor joins it first, and what was copied is read again
//!   (`unread`).
//! - **Consistent read**: it copies records of a leaf into the [`Batch`](super::consistent::Batch), and
//!   `Resume` is behind them. Each move looks at the next of them. When none is left, `fill` copies from the
//!   next leaf. If the transaction has another view by then, they are read again (`unread`).
//! - **Locking read**: it looks at one record at a time, and `Resume` gets behind it when it is decided. If
//!   another transaction has the row locked, the search lets go of the leaf and waits. `Resume` does not
//!   move meanwhile, so the search looks again from there, whatever others have put before the row.
//!   [`Contended`](super::locking::Contended) remembers the wait, [`Gaps`](super::gaps::Gaps) what the
//!   search has passed.
//! - **Semi-consistent read**: a row in the state *committed* lies behind `Resume`. The next move comes to
//!   it again, unless `unlock_row` passes it.
//! - **Cut**: if an external value is gone when it is fetched, `fetch_external` reads the row again. It is
//!   then the row as it is now, or none, and the search goes on.
//!
//! No state holds a page: a leaf that was split, merged or evicted between two steps is looked up by key.

use std::ops::Range;

use crate::btree::{LeafAhead, ReadAhead, Seek};
use crate::page::SlottedRef;
use crate::txn::TrxNumber;

use super::LockMode;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Forward,
    Backward,
}

impl Direction {
    /// The side on which a scan goes on after a key.
    pub fn after(self) -> Seek {
        match self {
            Direction::Forward => Seek::Gt,
            Direction::Backward => Seek::Lt,
        }
    }
}

/// Whose search it is, and what it does.
pub(super) struct Search {
    /// Another transaction that goes on with it gets its own view and locks from there on.
    pub searcher: TrxNumber,
    pub asked: LockMode,
    /// What was asked for, as the searcher's isolation level has it.
    pub lock: LockMode,
    pub direction: Direction,
}

/// Where the row's record is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Current {
    None,
    /// In the batch: its place in `Batch::bytes`.
    Batch(Range<usize>),
    /// In `Row::payload`.
    Version,
    /// The view decided on the secondary entry alone, and nothing but its key was asked for.
    Entry,
    /// In `Row::payload`; `is_new`: this read took a lock that the transaction did not have before.
    Locked {
        is_new: bool,
    },
    /// In `Row::payload`, as it was committed last, and not locked by this transaction (SEMI-1).
    Committed,
}

/// What the cursor is on.
pub(super) struct Row {
    pub at: Current,
    /// The row's key in the index.
    pub key: Vec<u8>,
    /// Its clustered key, if the index is a secondary one.
    pub clustered: Vec<u8>,
    /// The entry's flags, if there is one.
    pub flags: u8,
    /// Its record, where `at` says so.
    pub payload: Vec<u8>,
}

impl Row {
    pub fn none() -> Row {
        Row {
            at: Current::None,
            key: Vec::new(),
            clustered: Vec::new(),
            flags: 0,
            payload: Vec::new(),
        }
    }

    pub fn is_none(&self) -> bool {
        self.at == Current::None
    }
}

/// Where a search goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    End,
    /// At `Resume::key`.
    Key(Seek),
    /// Behind the current row.
    BehindRow,
}

/// Where the next record is looked for.
pub(super) struct Resume {
    pub next: Next,
    /// Kept when it is not in use, for its memory.
    pub key: Vec<u8>,
}

impl Resume {
    pub fn nowhere() -> Resume {
        Resume {
            next: Next::End,
            key: Vec::new(),
        }
    }

    pub fn at(&mut self, key: &[u8], seek: Seek) {
        self.key.clear();
        self.key.extend_from_slice(key);
        self.next = Next::Key(seek);
    }

    /// After this record of a leaf.
    pub fn after_slot(&mut self, page: &SlottedRef<'_>, slot: usize, direction: Direction) {
        self.key.clear();
        page.push_key(slot, &mut self.key);
        self.next = Next::Key(direction.after());
    }

    /// After the last record of a leaf.
    pub fn beyond(&mut self, page: &SlottedRef<'_>, direction: Direction) {
        match direction {
            Direction::Forward => match page.high() {
                Some(high) => self.at(high, Seek::Ge),
                None => self.next = Next::End,
            },
            Direction::Backward => match page.low() {
                [] => self.next = Next::End,
                low => self.at(low, Seek::Lt),
            },
        }
    }
}

/// Pages that the search has asked for before it needs them.
#[derive(Default)]
pub(super) struct Ahead {
    pub scan: ReadAhead,
    /// Where the leaf of a consistent read by the clustered index's whole key was, until it is latched.
    pub leaf: Option<LeafAhead>,
}
