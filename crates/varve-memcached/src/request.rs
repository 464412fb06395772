//! What a client wants done with an item, whatever protocol it speaks.

use crate::items::Effect;

/// How a value is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Set,
    /// Only if there is none.
    Add,
    /// Only if there is one.
    Replace,
    /// Behind the one that is there.
    Append,
    /// Before the one that is there.
    Prepend,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Reads the item, and may give it another time.
    Get,
    Store(Mode),
    Delete,
    /// Adds to the number that the item is.
    Increment,
    /// Subtracts from it; not below 0.
    Decrement,
}

/// What is to be done with one item. Times are absolute (`item::expiry`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    pub verb: Verb,
    pub key: Vec<u8>,
    /// Stored.
    pub value: Vec<u8>,
    /// Stored.
    pub flags: u32,
    /// The item's time from now on. A value that is stored has always one.
    pub expires: Option<u32>,
    /// The item has to have this cas.
    pub cas: Option<u64>,
    /// The item gets this cas, if it is changed.
    pub new_cas: Option<u64>,
    /// If there is no item, one with this time is made.
    pub vivify: Option<u32>,
    /// The client may be the one that renews a stale item.
    pub may_renew: bool,
    /// If the item ends before this time, one client is told to renew it.
    pub renew_before: Option<u32>,
    /// `Delete` only marks the item as stale; `Store` with an older cas stores it as a stale one.
    pub invalidate: bool,
    /// `Delete` only takes the value.
    pub keep_key: bool,
    /// Added or subtracted.
    pub delta: u64,
    /// The number that a vivified item is.
    pub initial: u64,
}

impl Request {
    pub fn new(verb: Verb, key: &[u8]) -> Request {
        Request {
            verb,
            key: key.to_vec(),
            value: Vec::new(),
            flags: 0,
            expires: None,
            cas: None,
            new_cas: None,
            vivify: None,
            may_renew: false,
            renew_before: None,
            invalidate: false,
            keep_key: false,
            delta: 1,
            initial: 0,
        }
    }

    /// What it does to the item, if it does anything: `Delete` that leaves a part of it there puts that.
    pub fn effect(&self) -> Effect {
        match self.verb {
            Verb::Delete if !self.invalidate && !self.keep_key => Effect::Delete,
            _ => Effect::Put,
        }
    }
}
