//! Items in the process's memory: instead of rows, or beside them.
//!
//! It takes about so many bytes: where there is no room, what was not used for long goes. Each item is
//! weighed; hashes of keys whose items have gone, and the growth of tables, which doubles them, come on top.
//!
//! # Instead of rows
//!
//! A change has no lock between the look at an item and what it puts there. So it says what it has seen, and
//! is done again if something else is there by then (`Refusal::Made`). Each change is a batch of its own,
//! which either is done or is not: nothing is taken back, and nothing is done twice.
//!
//! # Beside rows
//!
//! Rows are what counts; here is what was read of them, or put there, last. A row is changed under its lock:
//!
//! 1. before the change is committed, `begin_change` takes away what is here, and says that a change of this
//!    key is under way: nobody brings what he has read until that is over;
//! 2. the change is committed, and gives up the lock of the row;
//! 3. `end`, or `Changing` dropped without it, says that it is over, and when: who began to read before that
//!    can't bring what he has read. It puts the new item here, unless another change of this key has begun:
//!    that had the lock afterwards, and is the newer one.
//!
//! A reader takes the `moment` before he makes his view, which so has all changes that were over by then, and
//! `fill`s with it. What is here already stays. A view that is older than the last change of a key is of no
//! use for it (`is_current`): somebody may have read here what it does not have.
//!
//! What is taken away here only (`remove`, `clear`) is a change, too, which is over at once: somebody may
//! want what others have changed in the table to be read again, and it does not matter whether anything was
//! here.
//!
//! Changes are counted by keys' hashes, so keys with the same one are taken for one another: less is kept
//! then, and nothing wrong. A flush is a change of all keys, with no order among the others: who has begun
//! before it is over puts nothing here.
//!
//! - **MC-10** What is here beside a row is what the last change by a client has left there, if none is under
//!   way; and nobody who reads afterwards gets less than somebody has got, from here or from the table. Who
//!   reads in a view that he made before, gets no less than somebody has got from here, or was told. What
//!   others change in the table is not seen here before somebody takes away what is here.

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use quick_cache::{Equivalent, Weighter, unsync};

use crate::item::{Item, ItemRef, now};
use crate::items::Refusal;

/// About what an item takes beside its key and its value: the `Item`, the `Key`, counters of both, and their
/// places in the table.
const OVERHEAD_BYTES: usize = 192;
/// Each has a lock of its own. There are so many at most, but with more bytes than so many of these.
const MOST_STRIPES: usize = 64;
/// A sweep or a flush has a stripe's lock while it looks at all items there: some 80,000 in so many bytes.
const MOST_STRIPE_BYTES: usize = 16 << 20;
/// Each stripe takes a few KiB for its slots. Beyond 64 GiB stripes grow.
const MOST_STRIPES_OF_ALL: usize = 4096;
/// A stripe has room for so many of the longest items at least, if there is more than one stripe.
const LONGEST_ITEMS: usize = 4;
/// Changes are told apart in a stripe by so many counters.
const SLOTS: usize = 256;

/// Items by container and key. Locks are held one at a time: for a moment, but by who looks at all items of a
/// stripe (`sweep`, `clear`, flushes).
pub struct Cache {
    stripes: Box<[RwLock<Stripe>]>,
    hasher: RandomState,
    /// How many changes of rows are over. Whoever reads a number here with Acquire has all changes that have
    /// added to it with Release by then, and so his view has.
    over: AtomicU64,
    longest_item_bytes: usize,
}

/// How many changes of rows were over when somebody looked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Moment(u64);

struct Stripe {
    items: unsync::Cache<Key, Arc<Item>, Bytes, RandomState>,
    slots: Box<[Slot]>,
    /// How many are under way.
    flushes: u32,
}

/// Changes of rows whose keys have the same hash here.
#[derive(Clone, Default)]
struct Slot {
    under_way: u32,
    /// Counts those that have begun, flushes once more when they end, and what is taken away here only.
    begun: u64,
    /// When the last one was over.
    ended: Moment,
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    container: usize,
    bytes: Box<[u8]>,
}

/// It has the same hash.
#[derive(Clone, Copy, Hash)]
struct KeyRef<'k> {
    container: usize,
    bytes: &'k [u8],
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.container == key.container && *self.bytes == *key.bytes
    }
}

impl<'k> KeyRef<'k> {
    fn new(container: usize, bytes: &'k [u8]) -> KeyRef<'k> {
        KeyRef { container, bytes }
    }

    fn to_key(self) -> Key {
        Key {
            container: self.container,
            bytes: self.bytes.into(),
        }
    }
}

/// Weighs items.
#[derive(Clone)]
struct Bytes;

impl Weighter<Key, Arc<Item>> for Bytes {
    fn weight(&self, key: &Key, item: &Arc<Item>) -> u64 {
        item_bytes(key.bytes.len(), item.value.len()) as u64
    }
}

fn item_bytes(key: usize, value: usize) -> usize {
    OVERHEAD_BYTES + key + value
}

impl Slot {
    /// What is changed here only is over at once. Who changes the row meanwhile puts nothing here.
    fn change_at(&mut self, moment: Moment) {
        self.begun += 1;
        self.ended = moment;
    }
}

impl Stripe {
    fn new(bytes: usize) -> RwLock<Stripe> {
        // It is about keys that are remembered although their items have gone.
        let items = bytes / (2 * OVERHEAD_BYTES);
        let kept = quick_cache::OptionsBuilder::new()
            .estimated_items_capacity(items)
            .weight_capacity(bytes as u64)
            .build()
            .expect("both are given");
        let items =
            unsync::Cache::with_options(kept, Bytes, RandomState::new(), Default::default());
        RwLock::new(Stripe {
            items,
            slots: vec![Slot::default(); SLOTS].into(),
            flushes: 0,
        })
    }

    /// The item, unless it is over.
    fn living(&self, key: KeyRef<'_>) -> Option<&Arc<Item>> {
        let item = self.items.get(&key);
        item.filter(|item| !item.by_ref().is_over(now()))
    }

    /// Whether what was read in a view of this moment may be kept.
    fn may_fill(&self, key: KeyRef<'_>, slot: usize, of: Moment) -> bool {
        let slot = &self.slots[slot];
        slot.under_way == 0 && slot.ended <= of && self.living(key).is_none()
    }

    fn keep_others(&mut self, container: usize) -> u64 {
        let before = self.items.len();
        self.items.retain(|key, _| key.container != container);
        (before - self.items.len()) as u64
    }
}

impl Cache {
    /// It takes about so many bytes. Values are this long at most.
    pub fn new(bytes: usize, value_bytes: usize) -> Cache {
        let stripes = stripes(bytes, value_bytes);
        let stripe_bytes = bytes / stripes;
        Cache {
            stripes: (0..stripes).map(|_| Stripe::new(stripe_bytes)).collect(),
            hasher: RandomState::new(),
            over: AtomicU64::new(0),
            // Longer ones would push out all others, or not be kept.
            longest_item_bytes: stripe_bytes / 10 * 9,
        }
    }

    /// The stripe and the slot of a key.
    fn place(&self, key: KeyRef<'_>) -> (&RwLock<Stripe>, usize) {
        let hash = self.hasher.hash_one(key) as usize;
        let stripe = hash % self.stripes.len();
        (&self.stripes[stripe], hash / self.stripes.len() % SLOTS)
    }

    fn has_room(&self, key: &[u8], value: &[u8]) -> bool {
        item_bytes(key.len(), value.len()) <= self.longest_item_bytes
    }

    /// The item, unless it is over.
    pub fn get(&self, container: usize, key: &[u8]) -> Option<Arc<Item>> {
        let key = KeyRef::new(container, key);
        let (stripe, _) = self.place(key);
        read(stripe).living(key).cloned()
    }

    /// Puts an item where this one was seen, or none.
    ///
    /// # Errors
    ///
    /// `Made`: something else is there now. There may be no room for one that is so long.
    pub fn put(
        &self,
        container: usize,
        key: &[u8],
        seen: Option<&Arc<Item>>,
        item: Item,
    ) -> Result<(), Refusal> {
        if !self.has_room(key, &item.value) {
            let why = "there is no room in memory for an item that is so long";
            return Err(Refusal::Because(why.into()));
        }
        let key = KeyRef::new(container, key);
        let (stripe, _) = self.place(key);
        let mut stripe = write(stripe);
        if !is_same(stripe.living(key), seen) {
            return Err(Refusal::Made);
        }
        stripe.items.insert(key.to_key(), Arc::new(item));
        Ok(())
    }

    /// Takes away the item that was seen, or none. Either way nobody brings what he has read before: who
    /// deletes an item here may do so because somebody has changed the row.
    ///
    /// # Errors
    ///
    /// `Made`: something else is there now.
    pub fn remove(
        &self,
        container: usize,
        key: &[u8],
        seen: Option<&Arc<Item>>,
    ) -> Result<(), Refusal> {
        let key = KeyRef::new(container, key);
        let (stripe, slot) = self.place(key);
        let mut stripe = write(stripe);
        if !is_same(stripe.living(key), seen) {
            return Err(Refusal::Made);
        }
        stripe.items.remove(&key);
        let over = self.count_one();
        stripe.slots[slot].change_at(over);
        Ok(())
    }

    /// Before a view is made: the view has what is over by now.
    pub fn moment(&self) -> Moment {
        Moment(self.over.load(Ordering::Acquire))
    }

    /// Whether a view of this moment has all changes of this key that are over.
    pub fn is_current(&self, container: usize, key: &[u8], of: Moment) -> bool {
        let key = KeyRef::new(container, key);
        let (stripe, slot) = self.place(key);
        read(stripe).slots[slot].ended <= of
    }

    /// Keeps what was read in a view of this moment, if it may be kept (MC-10).
    pub fn fill(&self, container: usize, key: &[u8], item: ItemRef<'_>, of: Moment) {
        if item.is_over(now()) || !self.has_room(key, item.value) {
            return;
        }
        let key = KeyRef::new(container, key);
        let (stripe, slot) = self.place(key);
        // The value is copied only if it is of use, and not under the lock.
        if !read(stripe).may_fill(key, slot, of) {
            return;
        }
        let item = Arc::new(item.to_item());
        let mut stripe = write(stripe);
        if stripe.may_fill(key, slot, of) {
            stripe.items.insert(key.to_key(), item);
        }
    }

    /// A change of a row is about to be committed. It is over when what is returned ends, or is dropped.
    pub fn begin_change(&self, container: usize, key: &[u8]) -> Changing<'_> {
        let key = KeyRef::new(container, key);
        let (stripe, slot) = self.place(key);
        let mut stripe = write(stripe);
        stripe.items.remove(&key);
        let slot = &mut stripe.slots[slot];
        slot.under_way += 1;
        slot.begun += 1;
        Changing {
            cache: self,
            key: key.to_key(),
            number: slot.begun,
            item: None,
        }
    }

    fn end_change(&self, key: &Key, number: u64, item: Option<Item>) {
        let key = KeyRef::new(key.container, &key.bytes);
        let item = item.filter(|item| self.has_room(key.bytes, &item.value));
        let (stripe, slot) = self.place(key);
        let mut stripe = write(stripe);
        let slot = &mut stripe.slots[slot];
        assert!(slot.under_way > 0, "a change ends that has not begun");
        slot.under_way -= 1;
        slot.ended = self.count_one();
        let is_last = slot.begun == number && stripe.flushes == 0;
        if let Some(item) = item.filter(|_| is_last) {
            stripe.items.insert(key.to_key(), Arc::new(item));
        }
    }

    fn count_one(&self) -> Moment {
        Moment(self.over.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// All rows of a container are about to be deleted. It is over when what is returned is dropped.
    pub fn begin_flush(&self, container: usize) -> Flushing<'_> {
        for stripe in &self.stripes {
            let mut stripe = write(stripe);
            stripe.keep_others(container);
            stripe.flushes += 1;
            for slot in &mut stripe.slots {
                slot.under_way += 1;
                slot.begun += 1;
            }
        }
        Flushing {
            cache: self,
            container,
        }
    }

    fn end_flush(&self, container: usize) {
        for stripe in &self.stripes {
            let mut stripe = write(stripe);
            stripe.keep_others(container);
            stripe.flushes -= 1;
            let ended = self.count_one();
            for slot in &mut stripe.slots {
                slot.under_way -= 1;
                slot.begun += 1;
                slot.ended = ended;
            }
        }
    }

    /// Takes all items of a container away, and nothing from a table. Nobody brings what he has read before,
    /// as after `remove`. Returns how many it were.
    pub fn clear(&self, container: usize) -> u64 {
        let stripes = self.stripes.iter();
        let clear = |stripe| {
            let mut stripe = write(stripe);
            let over = self.count_one();
            stripe
                .slots
                .iter_mut()
                .for_each(|slot| slot.change_at(over));
            stripe.keep_others(container)
        };
        stripes.map(clear).sum()
    }

    /// Takes away what is over at this time.
    pub fn sweep(&self, now: u32) {
        for stripe in &self.stripes {
            let mut stripe = write(stripe);
            stripe.items.retain(|_, item| !item.by_ref().is_over(now));
        }
    }

    /// How many bytes of memory items take, as far as they are counted.
    pub fn bytes(&self) -> u64 {
        let stripes = self.stripes.iter();
        stripes.map(|stripe| read(stripe).items.weight()).sum()
    }

    /// How many items there are.
    pub fn count(&self) -> u64 {
        let stripes = self.stripes.iter();
        stripes.map(|stripe| read(stripe).items.len() as u64).sum()
    }
}

/// A change of a row that is being committed. When it is dropped, it may be committed or not.
pub struct Changing<'c> {
    cache: &'c Cache,
    key: Key,
    number: u64,
    item: Option<Item>,
}

impl Changing<'_> {
    /// It is committed, and this is in the row now; `None`: what is there is not kept here.
    pub fn end(mut self, item: Option<Item>) {
        self.item = item;
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let item = self.item.take();
        self.cache.end_change(&self.key, self.number, item);
    }
}

/// Rows of a container that are being deleted.
pub struct Flushing<'c> {
    cache: &'c Cache,
    container: usize,
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        self.cache.end_flush(self.container);
    }
}

/// How many there are: a power of two.
fn stripes(bytes: usize, value_bytes: usize) -> usize {
    let most = (bytes / MOST_STRIPE_BYTES).clamp(MOST_STRIPES, MOST_STRIPES_OF_ALL);
    let wanted = bytes / (LONGEST_ITEMS * item_bytes(0, value_bytes));
    1 << wanted.clamp(1, most).ilog2()
}

fn is_same(is: Option<&Arc<Item>>, seen: Option<&Arc<Item>>) -> bool {
    match (is, seen) {
        (Some(is), Some(seen)) => Arc::ptr_eq(is, seen),
        (is, seen) => is.is_none() && seen.is_none(),
    }
}

/// Nothing panics while it changes a stripe.
fn read(stripe: &RwLock<Stripe>) -> RwLockReadGuard<'_, Stripe> {
    stripe.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(stripe: &RwLock<Stripe>) -> RwLockWriteGuard<'_, Stripe> {
    stripe.write().unwrap_or_else(PoisonError::into_inner)
}
