//! Where items are kept: what the server asks of a store.
//!
//! A batch of reads is any number of `read`, and `end_reads`. A batch of changes is `begin`, for each change
//! `find` and one of `put`, `remove` and `keep`, then `commit`; or `roll_back`, whatever has failed. One in
//! memory has one change. Between two changes a batch may be handed over to another connection's session,
//! which goes on with it, and ends it.
//!
//! - **MC-7** A request reaches an item only by the key that the store keeps of it: where columns would cut a
//!   key off, round it or convert it, that would be another item's.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use varve::Error;

use crate::item::{Item, ItemRef};

/// It is over when a batch is durable.
pub type Durable = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send>>;

/// Why something is not done.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// Somebody else has made an item with this key since it was looked for, or, in memory, changed it.
    Made,
    /// Somebody has the item locked, or its table, and would have to be waited for.
    Busy,
    /// What the client is told.
    Because(String),
    /// The same, and it is not tried again: somebody ended the batch.
    Ended(String),
}

impl Refusal {
    /// What a client is told.
    pub fn told(&self) -> String {
        match self {
            Refusal::Made => "somebody else makes the item again and again".into(),
            Refusal::Busy => "somebody else has it locked".into(),
            Refusal::Because(why) | Refusal::Ended(why) => why.clone(),
        }
    }
}

impl From<Error> for Refusal {
    fn from(e: Error) -> Refusal {
        match e {
            Error::DuplicateKey { .. } => Refusal::Made,
            e => Refusal::Because(e.to_string()),
        }
    }
}

/// What goes by itself, or all at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goes {
    /// All items of a container ([`Items::container`]); whoever has one locked is waited for.
    All(usize),
    /// What is over at this time, in all containers; what somebody has locked stays.
    Over(u32),
}

/// What a change of an item is, if it is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    Put,
    Delete,
}

/// Where a change is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In tables: with others that are, it is a transaction.
    Table,
    /// In memory: by itself, at once, and without waiting for anybody.
    Memory,
}

/// A store of items, each of which is a row of a table.
pub trait Items: Send + Sync + Sized + 'static {
    /// What a connection keeps to work with the store. One that is idle should take little memory.
    type Session: Send + 'static;
    /// A batch that others see, but that may not be durable yet.
    type Committed: Send + 'static;

    /// # Errors
    ///
    /// What the store has to say.
    fn session(&self) -> Result<Self::Session, Refusal>;

    /// Finds an item, as of the first read since `end_reads`, or later, if the store has items in memory
    /// beside rows (MC-10). It may be over.
    ///
    /// # Errors
    ///
    /// `Busy` if `wait` is [`Wait::No`].
    fn read<R>(
        &self,
        session: &mut Self::Session,
        key: &[u8],
        wait: Wait,
        see: impl FnOnce(Option<ItemRef<'_>>) -> R,
    ) -> Result<R, Refusal>;

    /// Later reads see what was committed meanwhile. Nothing is kept of what was read.
    fn end_reads(&self, session: &mut Self::Session);

    /// Where changes with this effect are made.
    fn place(&self, _effect: Effect) -> Place {
        Place::Table
    }

    /// All requests of the batch are made in this place, which [`Items::place`] has said. Each waits for
    /// somebody who has locked its item for so long at most. `None`: for nobody; if one would have to, that
    /// is [`Refusal::Busy`], and if its `find` says so, the batch can go on without it.
    ///
    /// # Errors
    ///
    /// What the store has to say.
    fn begin(
        &self,
        session: &mut Self::Session,
        place: Place,
        patience: Option<Duration>,
    ) -> Result<(), Refusal>;

    /// The batch in tables that was begun goes on, and ends, in the other session, which is in none.
    fn hand_over(&self, from: &mut Self::Session, to: &mut Self::Session);

    /// Finds an item, and locks it, if it is a row. It may be over. `effect`: what a change of it would be.
    ///
    /// # Errors
    ///
    /// What the store has to say.
    fn find<'s>(
        &self,
        session: &'s mut Self::Session,
        key: &[u8],
        effect: Effect,
    ) -> Result<Option<ItemRef<'s>>, Refusal>;

    /// Puts this item where the last one was found, or should have been. Its cas may become another one.
    ///
    /// # Errors
    ///
    /// `Made`: there is one now. What cannot be kept of it is refused.
    fn put(&self, session: &mut Self::Session, key: &[u8], item: &mut Item) -> Result<(), Refusal>;

    /// Deletes the item that was found last.
    ///
    /// # Errors
    ///
    /// `Made`: there is another one now, or none.
    fn remove(&self, session: &mut Self::Session) -> Result<(), Refusal>;

    /// What was looked for last is not changed.
    ///
    /// # Errors
    ///
    /// `Made`: something else is there now than was found, which matters where it is in memory.
    fn keep(&self, _session: &mut Self::Session) -> Result<(), Refusal> {
        Ok(())
    }

    /// # Errors
    ///
    /// Nothing of the batch is done then.
    fn commit(&self, session: &mut Self::Session) -> Result<Self::Committed, Refusal>;

    /// Nothing of the batch is done, if the session has one, or of what was done in it before it was handed
    /// over, and rolled back there. What comes next is about the container that the session's part of it
    /// began with.
    fn roll_back(&self, session: &mut Self::Session);

    /// What waits until a batch is as durable as the store's settings ask; `None`: it is.
    fn durable(&self, committed: Self::Committed) -> Option<Durable>;

    /// The key of a request that is not done may name a container nevertheless, which what follows is about.
    fn choose(&self, _session: &mut Self::Session, _key: &[u8]) {}

    /// # Errors
    ///
    /// Clients may not read.
    fn may_read(&self) -> Result<(), Refusal> {
        Ok(())
    }

    /// # Errors
    ///
    /// Clients may not delete all items.
    fn may_flush(&self) -> Result<(), Refusal> {
        Ok(())
    }

    /// The number of the container that this connection's requests are about.
    fn container(&self, session: &Self::Session) -> usize;

    /// Deletes items that are now; those that come or change meanwhile may stay. Returns how many it were.
    ///
    /// # Errors
    ///
    /// What the store has to say. Some may be gone.
    fn delete(&self, which: Goes) -> Result<u64, Refusal>;

    /// Tells who looks after the server what nobody waits for.
    fn warn(&self, what: &str);

    /// What items that are there take of memory; `None`: none are there.
    fn memory(&self) -> Option<Memory> {
        None
    }

    /// Where all items of a container are deleted.
    fn flush_place(&self) -> Place {
        Place::Table
    }

    /// About how many items there are.
    fn count(&self) -> u64;

    /// Longer values are refused.
    fn most_value_bytes(&self) -> usize;
}

/// In bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    pub used: u64,
    pub most: u64,
}

/// Whether a read may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    No,
    Yes,
}
