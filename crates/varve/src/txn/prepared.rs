//! Transactions that are prepared: promised to a coordinator, who decides how they end and knows them by
//! their names.
//!
//! A prepared transaction belongs to a handle (`Transaction`), or to nobody after its handle was dropped or a
//! crash: then what there is of it waits here, its undo logs and its locks. The coordinator takes it over
//! under its name.
//!
//! - **PREP-1** A name stands for at most one prepared transaction.
//! - **PREP-2** A transaction that is not in the map is not prepared: a transaction enters before its undo
//!   logs say so, and leaves after they say something else.
//!
//! The map is in parts, by a hash of the name, so that transactions that are prepared one after the other
//! don't meet. A part's mutex is held for a moment; latches and other mutexes are not taken under it.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};

use crate::base::{Error, Result, Xid};
use crate::catalog::{ChangedTables, Claim};
use crate::lock::TrxLocks;
use crate::undo::TrxUndo;

/// A prepared transaction without a handle.
pub struct Parked {
    pub undo: TrxUndo,
    pub locks: TrxLocks,
    /// To the temporary tables that it used, if it has changed one (TEMP-1).
    pub claims: Vec<Claim>,
    pub changed: ChangedTables,
}

enum Owner {
    Handle,
    Nobody(Box<Parked>),
}

const PARTS: usize = 32;

type Part = CachePadded<Mutex<HashMap<Xid, Owner>>>;

/// The prepared transactions of one database.
#[derive(Default)]
pub struct Prepared {
    parts: [Part; PARTS],
    hasher: RandomState,
}

impl Prepared {
    fn part(&self, xid: &Xid) -> MutexGuard<'_, HashMap<Xid, Owner>> {
        self.parts[self.hasher.hash_one(xid) as usize % PARTS].lock()
    }

    /// A transaction with a handle is going to be prepared (PREP-1).
    pub(super) fn enter(&self, xid: &Xid) -> Result<()> {
        match self.part(xid).entry(*xid) {
            Entry::Occupied(_) => Err(Error::AlreadyExists {
                what: format!("a prepared transaction {xid}"),
            }),
            Entry::Vacant(free) => {
                free.insert(Owner::Handle);
                Ok(())
            }
        }
    }

    /// It is not prepared any more.
    pub(super) fn leave(&self, xid: &Xid) {
        self.part(xid).remove(xid);
    }

    /// Its handle is gone.
    pub(super) fn park(&self, parked: Parked) {
        let xid = *parked.undo.xid().expect("a prepared transaction");
        let parked = Owner::Nobody(Box::new(parked));
        let before = self.part(&xid).insert(xid, parked);
        assert!(
            matches!(before, Some(Owner::Handle)),
            "PREP-2: {xid} was not prepared"
        );
    }

    /// Takes it over; the caller is its handle now.
    pub(super) fn take(&self, xid: &Xid) -> Result<Parked> {
        let mut owners = self.part(xid);
        let Some(owner) = owners.get_mut(xid) else {
            return Err(Error::not_found(format!("a prepared transaction {xid}")));
        };
        match std::mem::replace(owner, Owner::Handle) {
            Owner::Nobody(parked) => Ok(*parked),
            Owner::Handle => Err(Error::invalid(format!(
                "prepared transaction {xid} belongs to a handle that has not let it go"
            ))),
        }
    }

    pub fn count(&self) -> usize {
        self.parts.iter().map(|part| part.lock().len()).sum()
    }

    /// The names of all prepared transactions, in order.
    pub fn names(&self) -> Vec<Xid> {
        let mut names: Vec<Xid> = Vec::new();
        for part in &self.parts {
            names.extend(part.lock().keys());
        }
        names.sort_by(|a, b| (a.global(), a.branch()).cmp(&(b.global(), b.branch())));
        names
    }
}
