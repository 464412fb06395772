//! What the benchmark wants of an engine: a few operations, each one transaction.

use anyhow::Result;

/// Bytes of memory that every engine may use as its cache.
pub const CACHE_BYTES: u64 = 1 << 30;

/// What a commit waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Nothing: the log is written behind the commit.
    Lazy,
    /// The log is synced up to the commit.
    Synced,
}

/// An open engine with one table of rows: a key of eight bytes, a value of [`crate::rows::VALUE_BYTES`].
pub trait Engine: Sync {
    /// What one thread works with.
    fn worker(&self, durability: Durability) -> Result<Box<dyn Worker + '_>>;

    /// Committed transactions whose old versions are still kept, for engines that can tell.
    fn history(&self) -> Option<u64> {
        None
    }
}

/// Called with a key and its value.
pub type Visit<'a> = &'a mut dyn FnMut(u64, &[u8]);

/// Reads all rows in the order of their keys.
pub type Scan<'a> = &'a mut dyn FnMut(Visit<'_>) -> Result<()>;

/// One thread's handle on an engine.
pub trait Worker {
    /// Puts rows in one transaction; their values lie one behind the other.
    fn load(&mut self, keys: &[u64], values: &[u8]) -> Result<()>;

    /// Reads a row under a snapshot of its own; does not call `visit` if there is none.
    fn get(&mut self, key: u64, visit: Visit<'_>) -> Result<()>;

    /// Reads a row, so that nobody changes it meanwhile, and writes it back changed: one transaction.
    fn update(&mut self, key: u64, change: &mut dyn FnMut(&mut [u8])) -> Result<()>;

    /// Opens a snapshot, which ends with the call, and has `with` read it as often as it likes.
    fn snapshot(&mut self, with: &mut dyn FnMut(Scan<'_>) -> Result<()>) -> Result<()>;

    /// Reads all rows once, under a snapshot of their own.
    fn scan(&mut self, visit: Visit<'_>) -> Result<()> {
        self.snapshot(&mut |scan| scan(&mut *visit))
    }
}
