//! The database's one store, and what it has come to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use crate::base::{Counter, Error, FIRST_HISTORY_SPACE, IndexId, Result, SpaceId, TableId, TrxNo};
use crate::mtr::MtrEnv;
use crate::row::ExternalRef;
use crate::space::Spaces;

use super::external::tree_of_values;
use super::store::{Found, HISTORY_FILE, Store};

/// The history store of a database: there is one from the first member on until the last one has gone.
///
/// Purge's coordinator makes it before it makes anybody a member, and ends it when it finds no member any
/// more. Members read it, so they always find it; others need not look. Whoever uses it holds it.
pub struct History {
    env: Arc<MtrEnv>,
    spaces: Arc<Spaces>,
    store: RwLock<Option<Arc<Store>>>,
    /// The next store's tablespace. Each has another one: pages of the last may still be in the pool.
    next_space: Mutex<SpaceId>,
    /// Indexes that are gone, whose versions can go.
    dropped: Mutex<Vec<IndexId>>,
    /// As of the coordinator's last walk, in order, each with when that found it first. For people: purge and
    /// the members themselves know better.
    members: Mutex<Vec<(TrxNo, Instant)>>,
    pub counters: HistoryCounters,
}

/// What was done since the database was opened; each stands for itself.
#[derive(Default)]
pub struct HistoryCounters {
    /// Versions that were copied because a member needs them.
    pub copied: Counter,
    /// Versions that went at once although there were members: none of them needs them.
    pub dropped: Counter,
    /// Versions that were swept when nobody needed them any more, or went with the store.
    pub swept: Counter,
    /// How often purge had to wait because the store had no room.
    pub full: Counter,
}

impl History {
    pub fn new(env: Arc<MtrEnv>, spaces: Arc<Spaces>) -> History {
        History {
            env,
            spaces,
            store: RwLock::default(),
            next_space: Mutex::new(FIRST_HISTORY_SPACE),
            dropped: Mutex::default(),
            members: Mutex::default(),
            counters: HistoryCounters::default(),
        }
    }

    /// Removes what an earlier process may have left.
    pub fn remove_leftover(&self) -> Result<()> {
        self.spaces.remove_unopened(HISTORY_FILE).map(drop)
    }

    /// The store, if there is one.
    pub fn store(&self) -> Option<Arc<Store>> {
        self.store.read().clone()
    }

    /// How much the store may take: what the option says, else a tenth of the file system; if its size can't
    /// be told, anything.
    pub fn max_bytes(&self, option: Option<u64>) -> u64 {
        let a_tenth = || self.spaces.file_system_bytes().map(|bytes| bytes / 10);
        option.unwrap_or_else(|| a_tenth().unwrap_or(u64::MAX))
    }

    /// The coordinator has found these members, which are in order.
    pub fn note_members(&self, found: impl ExactSizeIterator<Item = TrxNo> + Clone) {
        let mut members = self.members.lock();
        if members.iter().map(|(number, _)| *number).eq(found.clone()) {
            return;
        }
        let now = Instant::now();
        let known = std::mem::take(&mut *members);
        let since = |number| match known.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(at) => known[at].1,
            Err(_) => now,
        };
        members.extend(found.map(|number| (number, since(number))));
    }

    /// The members, the oldest first, and for how long each has been one.
    pub fn members(&self) -> Vec<(TrxNo, Duration)> {
        let members = self.members.lock();
        let ages = members.iter().map(|(number, at)| (*number, at.elapsed()));
        ages.collect()
    }

    /// The store, which is made if there is none. Purge's coordinator does that.
    pub fn open(&self) -> Result<Arc<Store>> {
        if let Some(store) = self.store() {
            return Ok(store);
        }
        let mut next = self.next_space.lock();
        let store = Store::create(self.env.clone(), self.spaces.clone(), *next)?;
        *next = SpaceId(next.0 + 1);
        let store = Arc::new(store);
        *self.store.write() = Some(store.clone());
        Ok(store)
    }

    /// Ends the store, now that there is no member. `false`: somebody is still at it.
    pub fn close(&self) -> Result<bool> {
        let mut place = self.store.write();
        let Some(store) = place.take() else {
            return Ok(true);
        };
        match Arc::try_unwrap(store) {
            Ok(store) => {
                drop(place);
                self.counters.swept.add(store.versions());
                self.dropped.lock().clear();
                store.discard().map(|()| true)
            }
            Err(store) => {
                *place = Some(store);
                Ok(false)
            }
        }
    }

    /// The store, for a member.
    fn of_member(&self) -> Result<Arc<Store>> {
        let store = self.store().ok_or_else(|| Error::Poisoned {
            why: "a read view is a member of the history store, and there is none".into(),
        })?;
        store.check_usable()?;
        Ok(store)
    }

    /// Calls `f` with the store, for a member. What could not be kept there is an error.
    pub fn read<R>(&self, f: impl FnOnce(&Store) -> Result<R>) -> Result<R> {
        f(&*self.of_member()?)
    }

    /// The version of the record `key` that the member reads; `None`: it sees no such record.
    pub fn find(&self, index: IndexId, key: &[u8], member: TrxNo) -> Result<Option<Found>> {
        self.read(|store| store.find(index, key, member))
    }

    /// Appends the first `bytes` of an external value of the table to `out`; `false`: it is not here.
    pub fn external_value(
        &self,
        table: TableId,
        value: &ExternalRef,
        bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        match self.store() {
            Some(store) => store.external_value(table, value, bytes, out),
            None => Ok(false),
        }
    }

    /// The table is gone, or emptied, with these indexes.
    pub fn note_dropped(&self, table: TableId, indexes: impl Iterator<Item = IndexId>) {
        let values = std::iter::once(tree_of_values(table));
        self.note_dropped_indexes(indexes.chain(values));
    }

    /// These indexes are gone, and their table is not.
    pub fn note_dropped_indexes(&self, indexes: impl Iterator<Item = IndexId>) {
        if self.store.read().is_some() {
            self.dropped.lock().extend(indexes);
        }
    }

    /// Takes an index from what `note_dropped` has noted.
    pub fn take_dropped(&self) -> Option<IndexId> {
        self.dropped.lock().pop()
    }
}
