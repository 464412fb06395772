//! A part of the lock table: a hash table of queues, guarded by the shard's mutex.
//!
//! A queue lives in a slot whose number stays the same while anybody holds or awaits it, so that owners
//! remember slots, not keys. A free slot's memory is used again, and all memory is given back when the shard
//! is empty after having been large.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashTable;

use super::queue::Queue;
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::{IndexId, TableId};

/// What is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target<'a> {
    Record(IndexId, &'a [u8]),
    Table(TableId),
}

/// Keys of up to this length need no memory of their own.
const INLINE_KEY: usize = 22;

enum Key {
    Inline { len: u8, bytes: [u8; INLINE_KEY] },
    Long(Box<[u8]>),
}

impl Key {
    fn new(key: &[u8]) -> Key {
        if key.len() > INLINE_KEY {
            return Key::Long(key.into());
        }
        let mut bytes = [0; INLINE_KEY];
        bytes[..key.len()].copy_from_slice(key);
        Key::Inline {
            len: key.len() as u8,
            bytes,
        }
    }

    /// Bytes beside the entry.
    fn long_bytes(&self) -> usize {
        match self {
            Key::Inline { .. } => 0,
            // And what the allocator takes for itself.
            Key::Long(bytes) => bytes.len() + 16,
        }
    }

    fn get(&self) -> &[u8] {
        match self {
            Key::Inline { len, bytes } => &bytes[..*len as usize],
            Key::Long(bytes) => bytes,
        }
    }
}

struct LockHead {
    /// The upper half of the hash, all of which chose the shard.
    hash: u32,
    is_table: bool,
    id: u64,
    key: Key,
    queue: Queue,
}

impl LockHead {
    fn target(&self) -> Target<'_> {
        if self.is_table {
            Target::Table(TableId(self.id))
        } else {
            Target::Record(IndexId(self.id), self.key.get())
        }
    }
}

/// What a lock takes here and in its owner's list, with what growing leaves unused; a long key comes on top.
pub(super) const LOCK_BYTES: usize = 100;

/// A shard with fewer slots keeps its memory when it gets empty.
const KEEP_SLOTS: usize = 1024;

/// A shard, its mutex, and beside it how many queues the shard has.
#[derive(Default)]
pub(super) struct ShardCell {
    shard: Mutex<Shard>,
    /// Stored before the mutex is released. Relaxed: what orders it for threads that read it without the
    /// mutex is theirs.
    len: AtomicUsize,
}

/// A shard whose mutex is held.
pub(super) struct ShardGuard<'a> {
    shard: MutexGuard<'a, Shard>,
    len: &'a AtomicUsize,
}

impl ShardCell {
    #[inline]
    pub fn lock(&self) -> ShardGuard<'_> {
        ShardGuard {
            shard: self.shard.lock(),
            len: &self.len,
        }
    }

    /// The shard had no queue when its mutex was released last.
    #[inline]
    pub fn was_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }
}

impl Deref for ShardGuard<'_> {
    type Target = Shard;

    #[inline]
    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl DerefMut for ShardGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }
}

impl Drop for ShardGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.len.store(self.shard.len(), Ordering::Relaxed);
    }
}

#[derive(Default)]
pub(super) struct Shard {
    slots_by_hash: HashTable<u32>,
    entries: Vec<LockHead>,
    free: Vec<u32>,
    long_key_bytes: usize,
}

/// hashbrown takes bits from both ends of the hash.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Shard {
    pub fn len(&self) -> usize {
        self.slots_by_hash.len()
    }

    /// Memory of the queues, about.
    pub fn bytes(&self) -> usize {
        self.len() * LOCK_BYTES + self.long_key_bytes
    }

    pub fn find(&self, hash: u32, target: Target<'_>) -> Option<u32> {
        let same = |slot: &u32| self.entries[*slot as usize].target() == target;
        self.slots_by_hash.find(spread(hash), same).copied()
    }

    /// The slot of the target's queue, which is made if there is none: then it must not be left empty.
    /// `None`: it would have to be made, and the shard's queues take `limit` bytes already.
    pub fn find_or_insert_within(
        &mut self,
        hash: u32,
        target: Target<'_>,
        limit: usize,
    ) -> Option<u32> {
        let found = self.find(hash, target);
        found.or_else(|| (self.bytes() < limit).then(|| self.insert(hash, target)))
    }

    #[cfg(test)]
    fn find_or_insert(&mut self, hash: u32, target: Target<'_>) -> u32 {
        let slot = self.find_or_insert_within(hash, target, usize::MAX);
        slot.expect("there is no limit")
    }

    fn insert(&mut self, hash: u32, target: Target<'_>) -> u32 {
        let (is_table, id, key) = match target {
            Target::Record(index, key) => (false, index.0, key),
            Target::Table(table) => (true, table.0, &[][..]),
        };
        let entry = LockHead {
            hash,
            is_table,
            id,
            key: Key::new(key),
            queue: Queue::default(),
        };
        self.long_key_bytes += entry.key.long_bytes();
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                // By an eighth, not by doubling: of millions of locks, half would be unused slots.
                if self.entries.len() == self.entries.capacity() {
                    self.entries.reserve_exact((self.entries.len() / 8).max(8));
                }
                self.entries.push(entry);
                u32::try_from(self.entries.len() - 1).expect("more locks than memory")
            }
        };
        let entries = &self.entries;
        self.slots_by_hash
            .insert_unique(spread(hash), slot, |s| spread(entries[*s as usize].hash));
        slot
    }

    /// All queues, unordered, with what is locked.
    pub fn iter(&self) -> impl Iterator<Item = (Target<'_>, &Queue)> {
        let heads = self
            .slots_by_hash
            .iter()
            .map(|slot| &self.entries[*slot as usize]);
        heads.map(|head| (head.target(), &head.queue))
    }

    pub fn queue(&self, slot: u32) -> &Queue {
        &self.entries[slot as usize].queue
    }

    pub fn queue_mut(&mut self, slot: u32) -> &mut Queue {
        &mut self.entries[slot as usize].queue
    }

    pub fn target(&self, slot: u32) -> Target<'_> {
        self.entries[slot as usize].target()
    }

    /// Forgets the queue if nobody holds or awaits it any more.
    pub fn remove_if_empty(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        if !entry.queue.is_empty() {
            return;
        }
        let hash = spread(entry.hash);
        self.long_key_bytes -= entry.key.long_bytes();
        // The memory of a long key is not kept: the slot may wait for long.
        entry.key = Key::new(&[]);
        if let Ok(found) = self.slots_by_hash.find_entry(hash, |s| *s == slot) {
            found.remove();
        }
        self.free.push(slot);
        if self.slots_by_hash.is_empty() && self.entries.len() > KEEP_SLOTS {
            *self = Shard::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_fits_into_72_bytes() {
        assert!(
            std::mem::size_of::<LockHead>() <= 72,
            "{}",
            std::mem::size_of::<LockHead>()
        );
    }

    #[test]
    fn slots_are_found_by_target_and_used_again() {
        let mut shard = Shard::default();
        let long = [7u8; 100];
        let targets = [
            Target::Record(IndexId(1), b"a"),
            Target::Record(IndexId(1), b"b"),
            Target::Record(IndexId(2), b"a"),
            Target::Record(IndexId(1), &long),
            Target::Record(IndexId(1), &long[..99]),
            Target::Record(IndexId(1), b""),
            Target::Table(TableId(1)),
        ];
        // All with one hash: only the comparison tells them apart.
        let slots: Vec<_> = targets
            .iter()
            .map(|t| shard.find_or_insert(9, *t))
            .collect();
        for (target, slot) in targets.iter().zip(&slots) {
            assert_eq!(shard.find(9, *target), Some(*slot));
            assert_eq!(shard.target(*slot), *target);
        }
        for slot in &slots {
            shard.remove_if_empty(*slot);
        }
        assert_eq!((shard.len(), shard.find(9, targets[0])), (0, None));
        shard.find_or_insert(9, targets[3]);
        assert_eq!(
            shard.entries.len(),
            targets.len(),
            "a free slot was not used"
        );
    }

    /// Per lock, whatever their number; its owner's list adds 8 to 16.
    #[test]
    fn a_lock_takes_less_than_100_bytes() {
        let mut shard = Shard::default();
        for n in 1..=20_000u32 {
            shard.find_or_insert(n, Target::Record(IndexId(1), &n.to_be_bytes()));
            // The hash table has a number and a byte in each place, and leaves one in eight empty.
            let hash_bytes = shard.slots_by_hash.capacity() * 5 * 8 / 7;
            let bytes = shard.entries.capacity() * std::mem::size_of::<LockHead>() + hash_bytes;
            assert!(
                n < 100 || bytes < 100 * n as usize,
                "{bytes} bytes for {n} locks"
            );
        }
    }

    #[test]
    fn an_empty_shard_gives_its_memory_back() {
        let mut shard = Shard::default();
        let keys: Vec<_> = (0..5000u32).map(u32::to_be_bytes).collect();
        let slots: Vec<_> = keys
            .iter()
            .map(|k| shard.find_or_insert(1, Target::Record(IndexId(1), k)))
            .collect();
        assert_eq!(shard.len(), keys.len());
        for slot in slots {
            shard.remove_if_empty(slot);
        }
        assert_eq!((shard.len(), shard.entries.capacity()), (0, 0));
    }
}
