//! A page store in memory, for tests.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::*};

use parking_lot::Mutex;

use super::PageStore;
use crate::base::{Error, PageId, Result, SpaceId};
use crate::page;

#[derive(Default)]
pub(crate) struct MemStore {
    pub pages: Mutex<HashMap<PageId, Vec<u8>>>,
    /// Tablespaces that replay finds missing.
    pub gone: Mutex<HashSet<SpaceId>>,
    pub synced: Mutex<HashSet<SpaceId>>,
    pub reads: AtomicU64,
    pub writes: AtomicU64,
}

impl MemStore {
    pub fn put(&self, id: PageId, bytes: Vec<u8>) {
        self.pages.lock().insert(id, bytes);
    }
}

impl PageStore for MemStore {
    fn read(&self, page: PageId, buf: &mut [u8]) -> Result<()> {
        self.reads.fetch_add(1, Relaxed);
        match self.pages.lock().get(&page) {
            Some(bytes) => buf.copy_from_slice(bytes),
            None => return Err(Error::not_found(page.to_string())),
        }
        Ok(())
    }

    fn write(&self, page: PageId, buf: &[u8]) -> Result<()> {
        self.writes.fetch_add(1, Relaxed);
        page::verify(buf, page).expect("pages arrive sealed");
        self.pages.lock().insert(page, buf.to_vec());
        Ok(())
    }

    fn sync(&self, space: SpaceId) -> Result<()> {
        self.synced.lock().insert(space);
        Ok(())
    }

    /// Missing pages come into being as zeros, as when a file is extended.
    fn ensure(&self, page: PageId) -> Result<bool> {
        if self.gone.lock().contains(&page.space) {
            return Ok(false);
        }
        self.pages
            .lock()
            .entry(page)
            .or_insert_with(|| vec![0; 4096]);
        Ok(true)
    }
}
