//! What the change buffers of all indexes share: what may go into them, and how much they hold together.
//!
//! A change buffer takes memory of the pool from other pages, so it is here that it has its limit. What it is
//! and how it works is said in `catalog/change_buffer.rs`.
//!
//! All of it is Relaxed: settings and counts, by which nothing else is ordered.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::base::{Counter, Error, Result};

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
    pub const ALL: [ChangeBuffering; 6] = [
        ChangeBuffering::None,
        ChangeBuffering::Inserts,
        ChangeBuffering::Deletes,
        ChangeBuffering::Changes,
        ChangeBuffering::Purges,
        ChangeBuffering::All,
    ];

    pub fn from_number(n: u8) -> Option<ChangeBuffering> {
        ChangeBuffering::ALL.get(usize::from(n)).copied()
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
    pub merged_delete_marks: Counter,
    pub merged_deletes: Counter,
}

/// See the introduction.
#[derive(Default)]
pub struct AllChangeBuffers {
    buffering: AtomicU8,
    max_size_pct: AtomicU32,
    /// Leaves count as if they were not in the pool: for tests.
    always: AtomicU8,
    pages: AtomicU64,
    pub counters: ChangeBufferCounters,
}

impl AllChangeBuffers {
    #[cfg(test)]
    fn options(&self) -> ChangeBufferOptions {
        let number = self.buffering.load(Relaxed);
        ChangeBufferOptions {
            buffering: ChangeBuffering::from_number(number).expect("it was set"),
            max_size_pct: self.max_size_pct.load(Relaxed),
        }
    }

    pub fn set_options(&self, options: ChangeBufferOptions) {
        self.buffering.store(options.buffering as u8, Relaxed);
        self.max_size_pct.store(options.max_size_pct, Relaxed);
    }

    /// Changes go into change buffers wherever their leaf is.
    #[cfg(feature = "internals")]
    pub fn set_always(&self, always: bool) {
        self.always.store(u8::from(always), Relaxed);
    }

    pub fn is_always(&self) -> bool {
        self.always.load(Relaxed) != 0
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

    /// One has so many now, and had `before`.
    pub fn change_pages(&self, before: u64, now: u64) {
        self.pages.fetch_add(now.wrapping_sub(before), Relaxed);
    }

    /// How many pages they may have, in a pool of so many frames.
    pub fn most_pages(&self, frames: usize) -> u64 {
        frames as u64 * u64::from(self.max_size_pct.load(Relaxed)) / 100
    }
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
            assert_eq!(all.options(), options);
            let takes = (
                all.takes(EntryChange::Insert),
                all.takes(EntryChange::Delete),
            );
            assert_eq!(takes, (inserts, deletes), "{buffering:?}");
        }
        assert_eq!(all.most_pages(1000), 250);
        all.change_pages(0, 7);
        all.change_pages(7, 3);
        assert_eq!(all.pages(), 3);
    }
}
