//! The pages of all tablespaces, as the buffer pool reads and writes them.

use std::sync::Arc;

use super::counter::COUNTER_PAGE;
use super::{Space, Spaces, WrittenPlace};
use crate::base::{Error, PageId, Result, SpaceId};
use crate::buffer::{KeptOpen, PageRun, PageStore};
use crate::io::{DiskFile, Request, Write, read_aligned};
use crate::page::{self, PAGE_HEADER, Sealing, Stored};

/// Files whose syncs are under way together: all of a batch of pages. They may be open beyond the limit
/// (FILE-3).
const SYNCED_TOGETHER: usize = 256;

impl Spaces {
    fn sync_together(&self, spaces: &[SpaceId]) -> Result<()> {
        let spaces: Vec<_> = spaces.iter().filter_map(|&id| self.get(id)).collect();
        let to_sync = spaces.iter().map(|space| space.file.to_sync());
        // They stay open until it is known whether they still owe a sync.
        let files = to_sync
            .filter_map(Result::transpose)
            .collect::<Result<Vec<_>>>();
        let done = match &files {
            Ok(files) => self.queue.sync_all(files),
            Err(e) => Err(e.clone()),
        };
        if done.is_err() {
            spaces.iter().for_each(|space| space.file.is_not_synced());
        }
        done
    }

    /// Reads pages that lie side by side as they are stored.
    pub fn read_run(&self, first: PageId, bytes: &mut [u8]) -> Result<()> {
        let (file, offset) = self.place(first, (bytes.len() / self.page_size) as u32)?;
        read_aligned(&*file, bytes, offset)
    }

    /// Where so many pages from this one on are.
    fn place(&self, first: PageId, pages: u32) -> Result<(Arc<dyn DiskFile>, u64)> {
        let space = self.require(first.space)?;
        space.check_not_lost()?;
        let size = space.size_pages();
        if u64::from(first.no.0) + u64::from(pages) > u64::from(size) {
            let found = format!("a file of {size} pages");
            return Err(Error::corrupt(first, "a page within its file", found));
        }
        Ok((space.file.to_read()?, space.offset(first.no)))
    }
}

impl PageStore for Spaces {
    fn read(&self, page: PageId, buf: &mut [u8]) -> Result<()> {
        let (file, offset) = self.place(page, 1)?;
        read_aligned(&*file, buf, offset)
    }

    fn file_name(&self, space: SpaceId) -> Option<String> {
        Some(self.get(space)?.file.path())
    }

    fn write(&self, page: PageId, buf: &[u8]) -> Result<()> {
        match self.get(page.space) {
            Some(space) if !space.is_lost() => {
                let stored = &buf[..page::place_bytes(buf)];
                space.file.write_at(stored, space.offset(page.no))?;
                self.note_written(&[page]);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn complete_copy(&self, page: PageId, copy: &mut [u8]) {
        if page.no != COUNTER_PAGE {
            return;
        }
        let of_space = |space: &Arc<Space>| {
            if let Some(counter) = space.counter.get() {
                counter.complete(copy);
            }
        };
        self.spaces.read().get(&page.space).map(of_space);
    }

    fn seal(&self, page: PageId, copy: &mut [u8]) -> Result<()> {
        let Some(space) = self.get(page.space) else {
            // It has gone, and what was in it may have been encrypted: a copy shows nothing of it.
            copy[PAGE_HEADER..].fill(0);
            page::seal(copy);
            return Ok(());
        };
        let cipher = self.cipher_to_write(&space)?;
        let cipher = cipher.as_deref();
        match &space.places {
            Some(places) => self.seal_in_place(&space, places, page, cipher, copy),
            None => {
                let compression = None;
                let sealing = Sealing {
                    compression,
                    cipher,
                };
                self.count_sealed(page::seal_with(copy, page, sealing));
                Ok(())
            }
        }
    }

    fn load(&self, page: PageId, bytes: &mut [u8]) -> Result<Stored> {
        self.load_page(page, bytes)
    }

    fn was_refused(&self, page: PageId) -> bool {
        let of_space = |space: &Arc<Space>| space.was_refused(page.no);
        self.is_any_full() && self.spaces.read().get(&page.space).is_some_and(of_space)
    }

    fn written(&self, pages: &[(PageId, usize)]) {
        self.give_back_ends(pages);
    }

    fn lose_unlogged(&self, space: SpaceId, why: &Error) -> bool {
        self.lose(space, why);
        true
    }

    /// Pages that lie side by side in a file are written at once.
    fn write_all(&self, pages: &[PageId], bytes: &[u8]) -> Result<()> {
        assert_eq!(bytes.len(), pages.len() * self.page_size);
        let copies = pages.iter().zip(bytes.chunks_exact(self.page_size));
        // With how many bytes each page takes in its place.
        let places: Vec<_> = copies.map(|(id, b)| (*id, page::place_bytes(b))).collect();
        let is_next =
            |a: PageId, b: PageId| a.space == b.space && a.no.0.checked_add(1) == Some(b.no.0);
        let mut writes = Vec::new();
        let mut start = 0;
        for run in places.chunk_by(|a, b| is_next(a.0, b.0) && a.1 == self.page_size) {
            let (first, (_, last_bytes)) = (run[0].0, run[run.len() - 1]);
            let last = start + (run.len() - 1) * self.page_size;
            if let Some(space) = self.get(first.space)
                && !space.is_lost()
                && let Some(file) = space.file.to_write()?
            {
                let run = &bytes[start..last + last_bytes];
                writes.push(Write::new(file, space.offset(first.no), run));
            }
            start = last + self.page_size;
        }
        self.queue.write_all(writes)?;
        self.note_written(pages);
        Ok(())
    }

    fn keep_open(&self, space: SpaceId) -> Result<KeptOpen> {
        let space = self.get(space);
        let file = match &space {
            Some(space) => space.file.if_there()?,
            None => None,
        };
        // Compressed pages have many lengths.
        let is_whole = space.is_some_and(|space| space.places.is_none());
        let is_atomic = |f: &Arc<dyn DiskFile>| f.writes_atomically(self.page_size);
        Ok(KeptOpen {
            writes_atomically: is_whole && file.as_ref().is_some_and(is_atomic),
            file,
        })
    }

    fn write_all_atomically(&self, pages: &[PageId], bytes: &[u8]) -> Result<()> {
        assert_eq!(bytes.len(), pages.len() * self.page_size);
        let mut writes = Vec::with_capacity(pages.len());
        for (page, bytes) in pages.iter().zip(bytes.chunks_exact(self.page_size)) {
            if let Some(space) = self.get(page.space)
                && let Some(file) = space.file.to_write()?
            {
                let offset = space.offset(page.no);
                writes.push(Write::atomic(file, offset, bytes));
            }
        }
        self.queue.write_all(writes)?;
        self.note_written(pages);
        Ok(())
    }

    fn note_written(&self, pages: &[PageId]) {
        self.written.note(pages.iter().copied());
    }

    fn save_written(&self) -> Option<WrittenPlace> {
        self.written.save()
    }

    fn reads_in_background(&self) -> bool {
        self.queue.is_asynchronous()
    }

    fn start_reads(&self, runs: Vec<PageRun>) {
        let request = |run: PageRun| match self.place(run.first, run.pages) {
            Ok((file, offset)) => Some(Request::read(file, offset, run.into)),
            Err(e) => {
                run.into.done(Err(e));
                None
            }
        };
        self.queue
            .submit(runs.into_iter().filter_map(request).collect());
    }

    fn sync(&self, space: SpaceId) -> Result<()> {
        self.sync_all(&[space])
    }

    fn sync_all(&self, spaces: &[SpaceId]) -> Result<()> {
        let mut together = spaces.chunks(SYNCED_TOGETHER);
        together.try_for_each(|spaces| self.sync_together(spaces))
    }

    fn ensure(&self, page: PageId) -> Result<bool> {
        let Some(space) = self.get(page.space) else {
            self.missed.lock().insert(page.space);
            return Ok(false);
        };
        if page.no.0 >= space.size_pages() {
            space.grow_file(page.no.0.saturating_add(1))?;
        }
        Ok(true)
    }
}
