//! What the change buffers of all indexes share: what may go into them, and how much they hold together.
//!
//! A change buffer takes memory of the pool from other pages, so it is here that it has its limit. What it is
//! and how it works is said in `catalog/change_buffer.rs`.
//!
//! Those that hold something are on a list, so that who merges looks at no table that has nothing to merge.
//! Its mutex is taken under page latches, and nothing under it.
//!
//! All atomics are Relaxed: settings and counts, by which nothing else is ordered.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::base::{Counter, Error, IndexId, Result, TableId};

/// Which changes of entries go into change buffers while their leaf is not in the pool. The names are
/// InnoDB's; a deletion's purge goes the way of its delete mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum ChangeBuffering {
    None = 0,
    /// Insertions.
    Inserts = 1,
    /// Delete marks, and their purge.
    Deletes = 2,
    /// Insertions and delete marks, and the purge of these.
    Changes = 3,
    /// As `Deletes`.
    Purges = 4,
    /// As `Changes`.
    #[default]
    All = 5,
}

impl ChangeBuffering {
    /// By their numbers.
    const BY_NUMBER: [ChangeBuffering; 6] = [
        ChangeBuffering::None,
        ChangeBuffering::Inserts,
        ChangeBuffering::Deletes,
        ChangeBuffering::Changes,
        ChangeBuffering::Purges,
        ChangeBuffering::All,
    ];

    pub fn from_number(n: u8) -> Option<ChangeBuffering> {
        ChangeBuffering::BY_NUMBER.get(usize::from(n)).copied()
    }

    fn takes_inserts(self) -> bool {
        use ChangeBuffering::*;
        matches!(self, Inserts | Changes | All)
    }

    fn takes_deletes(self) -> bool {
        use ChangeBuffering::*;
        matches!(self, Deletes | Purges | Changes | All)
    }
}

/// How changes are buffered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangeBufferOptions {
    pub buffering: ChangeBuffering,
    /// How many percent of the buffer pool the change buffers may have together: up to
    /// [`ChangeBufferOptions::MOST_PCT`].
    pub max_size_pct: u32,
}

impl Default for ChangeBufferOptions {
    fn default() -> ChangeBufferOptions {
        ChangeBufferOptions {
            buffering: ChangeBuffering::default(),
            max_size_pct: 25,
        }
    }
}

impl ChangeBufferOptions {
    pub const MOST_PCT: u32 = 50;

    pub(crate) fn validate(&self) -> Result<()> {
        match self.max_size_pct <= Self::MOST_PCT {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "change_buffer.max_size_pct {} is above {}",
                self.max_size_pct,
                Self::MOST_PCT
            ))),
        }
    }
}

/// A change of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryChange {
    Insert,
    Delete,
}

/// What became of changes in change buffers.
#[derive(Default)]
pub struct ChangeBufferCounters {
    /// Entries that were put there, by insertions, delete marks and purge.
    pub inserts: Counter,
    pub delete_marks: Counter,
    pub deletes: Counter,
    /// Leaves into which entries were merged, and these.
    pub merges: Counter,
    pub merged_inserts: Counter,
    pub merged_deletes: Counter,
}

/// What one change buffer has.
#[derive(Debug)]
pub struct BufferSize {
    pub table: TableId,
    pub index: IndexId,
    /// Pages when somebody looked last.
    pages: AtomicU64,
}

impl BufferSize {
    pub fn new(table: TableId, index: IndexId) -> BufferSize {
        BufferSize {
            table,
            index,
            pages: AtomicU64::new(0),
        }
    }
}

/// See the introduction.
#[derive(Default)]
pub struct AllChangeBuffers {
    buffering: AtomicU8,
    max_size_pct: AtomicU32,
    /// Leaves count as if they were not in the pool: for tests.
    always: AtomicBool,
    pages: AtomicU64,
    /// By its address: two handles of a table may be open while one takes over from the other.
    in_use: Mutex<HashMap<usize, Arc<BufferSize>>>,
    pub counters: ChangeBufferCounters,
}

impl AllChangeBuffers {
    pub fn set_options(&self, options: ChangeBufferOptions) {
        self.buffering.store(options.buffering as u8, Relaxed);
        self.max_size_pct.store(options.max_size_pct, Relaxed);
    }

    /// Changes go into change buffers wherever their leaf is.
    #[cfg(feature = "internals")]
    pub fn set_always(&self, always: bool) {
        self.always.store(always, Relaxed);
    }

    pub fn is_always(&self) -> bool {
        self.always.load(Relaxed)
    }

    /// Some changes are buffered.
    pub fn takes_any(&self) -> bool {
        self.buffering.load(Relaxed) != ChangeBuffering::None as u8
    }

    #[inline]
    pub fn takes(&self, change: EntryChange) -> bool {
        let number = self.buffering.load(Relaxed);
        if number == ChangeBuffering::None as u8 {
            return false;
        }
        let buffering = ChangeBuffering::from_number(number).expect("it was set");
        match change {
            EntryChange::Insert => buffering.takes_inserts(),
            EntryChange::Delete => buffering.takes_deletes(),
        }
    }

    /// Pages that all change buffers have.
    pub fn pages(&self) -> u64 {
        self.pages.load(Relaxed)
    }

    /// One has so many now.
    pub fn note_pages(&self, of: &BufferSize, now: u64) {
        if of.pages.load(Relaxed) != now {
            let before = of.pages.swap(now, Relaxed);
            self.pages.fetch_add(now.wrapping_sub(before), Relaxed);
        }
    }

    /// How many pages they may have, in a pool of so many frames.
    pub fn most_pages(&self, frames: usize) -> u64 {
        frames as u64 * u64::from(self.max_size_pct.load(Relaxed)) / 100
    }

    /// They have more than three quarters of that.
    pub fn are_nearly_full(&self, frames: usize) -> bool {
        self.pages() * 4 > self.most_pages(frames) * 3
    }

    /// One holds something from now on.
    pub fn list(&self, size: &Arc<BufferSize>) {
        self.in_use.lock().insert(address(size), size.clone());
    }

    /// One holds nothing any more, or is closed.
    pub fn strike_off(&self, size: &Arc<BufferSize>) {
        self.in_use.lock().remove(&address(size));
    }

    /// The one with the most pages of those that hold something.
    pub fn largest(&self, is_meant: impl Fn(IndexId) -> bool) -> Option<(TableId, IndexId)> {
        let in_use = self.in_use.lock();
        let meant = in_use.values().filter(|size| is_meant(size.index));
        let largest = meant.max_by_key(|size| size.pages.load(Relaxed))?;
        Some((largest.table, largest.index))
    }
}

fn address(size: &Arc<BufferSize>) -> usize {
    Arc::as_ptr(size).addr()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_follows_from_the_name() {
        use ChangeBuffering::*;
        let all = AllChangeBuffers::default();
        let expected = [
            (None, false, false),
            (Inserts, true, false),
            (Deletes, false, true),
            (Purges, false, true),
            (Changes, true, true),
            (All, true, true),
        ];
        for (buffering, inserts, deletes) in expected {
            let options = ChangeBufferOptions {
                buffering,
                max_size_pct: 25,
            };
            all.set_options(options);
            let takes = (
                all.takes(EntryChange::Insert),
                all.takes(EntryChange::Delete),
            );
            assert_eq!(takes, (inserts, deletes), "{buffering:?}");
        }
        assert_eq!(all.most_pages(1000), 250);
    }

    #[test]
    fn the_largest_of_those_in_use_comes_first() {
        let all = AllChangeBuffers::default();
        all.set_options(ChangeBufferOptions::default());
        let sizes = [5, 6].map(|n| Arc::new(BufferSize::new(TableId(n), IndexId(n))));
        assert_eq!(all.largest(|_| true), None);
        for (size, pages) in sizes.iter().zip([7, 3]) {
            all.list(size);
            all.note_pages(size, pages);
        }
        assert_eq!(all.pages(), 10);
        assert!(all.are_nearly_full(55) && !all.are_nearly_full(56));
        assert_eq!(all.largest(|_| true), Some((TableId(5), IndexId(5))));
        assert_eq!(all.largest(|n| n.0 > 5), Some((TableId(6), IndexId(6))));
        // Another handle's comes and goes.
        let other = Arc::new(BufferSize::new(TableId(5), IndexId(5)));
        all.list(&other);
        all.strike_off(&other);
        assert_eq!(all.largest(|_| true), Some((TableId(5), IndexId(5))));
        all.note_pages(&sizes[0], 1);
        assert_eq!(all.largest(|_| true), Some((TableId(6), IndexId(6))));
        sizes.iter().for_each(|size| all.strike_off(size));
        assert_eq!((all.largest(|_| true), all.pages()), (None, 4));
    }
}
