//! The buffer pool: pages in memory, latched for reading and changing, loaded when missing, replaced when
//! unused.
//!
//! # Protocols
//!
//! **Look-up (hit).** Walk the hash chain without a lock (page_table.rs); try the frame's latch; with it,
//! compare the page id. Equal: done, and the latch alone keeps the frame (BUF-1, BUF-2). No pin, no write
//! beyond the latch's cache line. If the latch is busy: pin the frame, compare the page id under the pin (the
//! frame can't be recycled now, so we never wait on a latch that has come to guard another page, which would
//! break the latch order), wait for the latch, drop the pin, compare once more (a load may have failed
//! meanwhile).
//!
//! **Load (miss).** Get a free frame first; that may wait for the page cleaner. Link it into the chain under
//! the bucket's mutex, which also settles whether the page is really missing. From here it is found by
//! others; they pin it and wait on its latch, which we hold. Give the claim up, read, verify checksum,
//! address and structure. A failed read unlinks the frame; a waiter finds the id gone and makes its own
//! attempt, and gets its own error. While a frame is being loaded its loader waits for the disk only. Pages
//! are also read before anybody needs them (prefetch.rs): then the loader is the read itself, and whoever
//! hears that it is over ends the load.
//!
//! **Recycle.** Claim ("no pins" → "claimed", one compare-and-swap), *try* the exclusive latch, see that the
//! page is clean, clear the image, unlink. A pin taken on a claimed frame is taken back at once by the thread
//! that took it.
//!
//! **Memory ordering.** The page id is stored with Release and loaded with Acquire; under the latch it is
//! exact because it changes only under the exclusive latch. Pin and claim are read-modify-writes on one word:
//! the claim's Acquire sees everything done before the last pin was dropped (Release), and a successful pin's
//! Acquire sees everything done before the claim was given up (Release). Page bytes are ordered by the latch
//! itself.
//!
//! **Images.** [`BufferPool::inner`] returns an inner page's decoded image. It is published under the shared
//! latch with a compare-and-swap from null, so it is what the page holds; it is cleared under the exclusive
//! latch before the first change, and when the frame is recycled. The thread that made a change may publish
//! the image of the result, under the same latch. A reader that got an image just before that goes on with a
//! page as it was: descents check where they arrive (docs/locking.md). Images are freed when no pinned epoch
//! can hold them. The hint that leads to a frame is only a number; the id inside the image decides.
//!
//! # Latches
//!
//! `parking_lot::RawRwLock` (latch.rs): one word, no owner, spins briefly, then parks; a waiting writer keeps
//! new readers out. So **no thread may latch a page twice**, not even shared. Deadlocks are excluded by the
//! order in docs/locking.md alone.
//!
//! # Failure
//!
//! Bytes that are not what was written give `Error::Corrupt`; the page is not kept. No clean frame within a
//! minute gives `Error::NoSpace`. The pool writes nothing by itself: see clean.rs.

#![allow(unsafe_code)]

mod arena;
mod change_buffering;
mod clean;
mod contents;
mod dirty;
mod frame;
mod gone;
mod grown;
mod guard;
mod latch;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(test)]
pub(crate) mod mem_store;
mod page_table;
mod pending;
mod prefetch;
#[cfg(all(test, not(loom)))]
mod prefetch_tests;
mod probation;
mod replace;
#[cfg(all(test, not(loom)))]
mod replace_tests;
mod size;
#[cfg(all(test, not(loom)))]
mod size_tests;
mod stats;
#[cfg(test)]
mod tests;
mod touched;
mod warm;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::Instant;

use crossbeam_epoch::{Guard, Owned, Shared};

pub use change_buffering::{
    AllChangeBuffers, BufferSize, ChangeBufferOptions, ChangeBuffering, EntryChange,
};
pub use clean::DirtyPage;
pub use contents::{PageContent, PooledPage};
pub use guard::{ExclusivePage, Pin, SharedPage};
pub use pending::{Need, PendingRedo};
pub use prefetch::Arrived;
pub use stats::{LatchClass, PoolStats};

use crate::base::sync::yield_now;
use crate::base::{DISK_THREADS, Durations, Error, PageId, Result, SpaceId};
use crate::io::{DiskFile, Transfer};
use crate::page::{self, InnerImage, PageHint, PageType, Stored};
use arena::{Arena, Frames, most_bytes};
use dirty::DirtyQueue;
use frame::Frame;
use gone::Gone;
use latch::Latch;
use page_table::PageTable;
use pending::Pending;
use replace::Replacement;
use size::Size;
use stats::Counters;

/// Where pages come from and go to. Implemented by the tablespaces.
pub trait PageStore: Send + Sync {
    /// Fills `buf` with the stored page. An unknown tablespace is `Error::NotFound`, a page past the end of
    /// its file `Error::Corrupt`: what named it is damaged.
    fn read(&self, page: PageId, buf: &mut [u8]) -> Result<()>;
    /// Where the tablespace is, for a message: its file, relative to the database's directory.
    fn file_name(&self, _space: SpaceId) -> Option<String> {
        None
    }
    /// Stores a page. Ignored if the tablespace was dropped.
    fn write(&self, page: PageId, buf: &[u8]) -> Result<()>;
    /// Completes a copy of the page, which is latched shared, before it is sealed and stored: the store may
    /// know more of it than the pool.
    fn complete_copy(&self, _page: PageId, _copy: &mut [u8]) {}
    /// Makes a copy of a page what is stored, with its checksum. After an error the page can't be stored now;
    /// one for want of space may pass.
    fn seal(&self, _page: PageId, copy: &mut [u8]) -> Result<()> {
        page::seal(copy);
        Ok(())
    }
    /// Makes the page of what was read.
    fn load(&self, page: PageId, bytes: &mut [u8]) -> Result<Stored> {
        page::load(bytes, page)
    }
    /// The page could not be stored for want of space a moment ago.
    fn was_refused(&self, _page: PageId) -> bool {
        false
    }
    /// These pages may have been written to their files (TRACK-1), although nobody has this process write
    /// them.
    fn note_written(&self, _pages: &[PageId]) {}
    /// Makes durable which pages were written, before a checkpoint is recorded, which is to say how far that
    /// goes (TRACK-2): a number of a file, and where it ends.
    fn save_written(&self) -> Option<(u64, u64)> {
        None
    }
    /// These pages are durable in their places, and so many bytes long there.
    fn written(&self, _pages: &[(PageId, usize)]) {}
    /// Stores several pages, in any order: `bytes` has one behind the other. Of a tablespace that was dropped
    /// none are. If it fails nobody knows which were.
    fn write_all(&self, pages: &[PageId], bytes: &[u8]) -> Result<()> {
        let size = bytes.len().checked_div(pages.len()).unwrap_or(1);
        let mut pages = pages.iter().zip(bytes.chunks_exact(size.max(1)));
        pages.try_for_each(|(&page, bytes)| self.write(page, bytes))
    }
    /// Gets ready for writing and syncing pages of a tablespace: as long as the answer is kept, either fails
    /// only if the disk does. Nothing was done after an error; one that [is for want of
    /// means](Error::is_out_of_means) may pass.
    fn keep_open(&self, _space: SpaceId) -> Result<KeptOpen> {
        Ok(KeptOpen::default())
    }
    /// As `write_all`, each page atomically; an error if that can't be.
    fn write_all_atomically(&self, pages: &[PageId], _bytes: &[u8]) -> Result<()> {
        match pages {
            [] => Ok(()),
            _ => Err(Error::invalid("no atomic writes here")),
        }
    }
    /// Pages of an unlogged tablespace could not be written. True: none of its pages is read again, nor
    /// written, so that they count as written.
    fn lose_unlogged(&self, _space: SpaceId, _why: &Error) -> bool {
        false
    }
    /// [`PageStore::start_reads`] is of use.
    fn reads_in_background(&self) -> bool {
        false
    }
    /// How many threads may read pages, or open files, at the same time.
    fn disk_threads(&self) -> usize {
        match self.reads_in_background() {
            true => DISK_THREADS,
            false => 1,
        }
    }
    /// Begins to read runs of pages, and does not wait. Each is told what came of it, as by `read`; those
    /// that are not even begun are dropped. Nothing is begun where nothing can be read in the background.
    fn start_reads(&self, _runs: Vec<PageRun>) {}
    /// Makes everything written to the tablespace durable.
    fn sync(&self, space: SpaceId) -> Result<()>;
    /// The same for several, each named once, in any order. If it fails nobody knows which are.
    fn sync_all(&self, spaces: &[SpaceId]) -> Result<()> {
        spaces.iter().try_for_each(|&space| self.sync(space))
    }
    /// For replay: makes sure that the page can be read, extending the file if it ends earlier. False if
    /// there is no such tablespace.
    fn ensure(&self, page: PageId) -> Result<bool>;
}

/// A tablespace that pages can be written to.
#[derive(Default)]
pub struct KeptOpen {
    /// Writing a page can be made atomic: no crash tears it.
    pub writes_atomically: bool,
    /// The file, if there is one, which stays open meanwhile.
    #[allow(dead_code, reason = "kept, not read")]
    pub file: Option<Arc<dyn DiskFile>>,
}

/// Pages side by side in a tablespace, and where they are to be read to.
pub struct PageRun {
    pub first: PageId,
    pub pages: u32,
    pub into: Box<dyn Transfer>,
}

#[derive(Clone, Copy, Debug)]
pub struct PoolSettings {
    pub bytes: u64,
    pub page_size: usize,
}

/// The smallest pool, in frames: a few mini-transactions at a time.
pub const MIN_FRAMES: usize = if cfg!(loom) { 2 } else { 64 };

/// The largest: numbers of frames have 31 bits.
const MOST_FRAMES: u32 = (u32::MAX >> 1) - 1;

/// After how many leaves in a row a scan reads ahead by default: few enough for a scan of some hundred rows
/// not to have caused reads.
pub const READ_AHEAD_THRESHOLD: u32 = 3;

/// The frame in which a page probably is, and its range stamp if that is known. It may be wrong at any time:
/// who uses it looks at the page id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHint {
    frame: u32,
    stamp: u32,
}

impl FrameHint {
    pub const NONE: FrameHint = FrameHint {
        frame: frame::NIL,
        stamp: 0,
    };

    /// The page, which is latched now, has had the same range ever since this was noted (BUF-5).
    #[inline]
    pub fn still_holds(self, now: FrameHint) -> bool {
        self.stamp != 0 && self == now
    }

    #[inline]
    pub fn has_stamp(self) -> bool {
        self.stamp != 0
    }

    /// The frame only.
    pub fn without_stamp(self) -> FrameHint {
        FrameHint { stamp: 0, ..self }
    }

    /// Notes it for later readers: the page has the range that its parent says.
    pub fn note(self, hint: &PageHint) {
        hint.set(self.frame, self.stamp);
    }
}

pub struct BufferPool {
    store: Arc<dyn PageStore>,
    page_size: usize,
    arena: Arena,
    frames: Frames,
    size: Size,
    table: PageTable,
    dirty: DirtyQueue,
    replacement: Replacement,
    counters: Counters,
    /// How many leaves a scan reads in a row before it reads ahead; 0: it never does. Relaxed: a setting.
    read_ahead_threshold: AtomicU32,
    pending: Pending,
    gone: Gone,
    pub change_buffers: AllChangeBuffers,
    /// How long frames of tablespaces that are gone were latched one by one to be emptied.
    pub drop_held: Durations,
}

/// So often a thread lets others run before it waits for a page's latch in the queue. A model has enough to
/// try without.
const YIELDS: usize = if cfg!(loom) { 0 } else { 16 };

/// What shared and exclusive latching have in common.
trait Mode {
    fn lock(latch: &Latch);
    fn try_lock(latch: &Latch) -> bool;
    /// # Safety
    /// The caller has the latch in this mode.
    unsafe fn unlock(latch: &Latch);
    /// From the exclusive latch of a loader to this mode.
    ///
    /// # Safety
    /// The caller has the latch exclusively.
    unsafe fn settle(latch: &Latch);
}

struct SharedMode;
struct ExclusiveMode;

impl Mode for SharedMode {
    #[inline]
    fn lock(latch: &Latch) {
        latch.lock_shared();
    }
    #[inline]
    fn try_lock(latch: &Latch) -> bool {
        latch.try_lock_shared()
    }
    unsafe fn unlock(latch: &Latch) {
        // SAFETY: as the trait demands.
        unsafe { latch.unlock_shared() }
    }
    unsafe fn settle(latch: &Latch) {
        // SAFETY: as the trait demands.
        unsafe { latch.downgrade() }
    }
}

impl Mode for ExclusiveMode {
    #[inline]
    fn lock(latch: &Latch) {
        latch.lock_exclusive();
    }
    #[inline]
    fn try_lock(latch: &Latch) -> bool {
        latch.try_lock_exclusive()
    }
    unsafe fn unlock(latch: &Latch) {
        // SAFETY: as the trait demands.
        unsafe { latch.unlock_exclusive() }
    }
    unsafe fn settle(_: &Latch) {}
}

/// Memory for so many frames, and addresses for as many as the machine's memory holds: no more than it began
/// with if the system has no addresses for them.
fn memory(frames: usize, page_size: usize) -> Result<(Frames, Arena)> {
    let with_room = |most: usize| -> Result<_> {
        let (states, arena) = (Frames::new(most)?, Arena::new(most, page_size)?);
        states.grow(frames)?;
        arena.grow(frames)?;
        arena.measure(frames);
        Ok((states, arena))
    };
    let most = match cfg!(loom) {
        true => frames,
        false => (most_bytes() / page_size as u64).min(u64::from(MOST_FRAMES)) as usize,
    };
    with_room(most.max(frames)).or_else(|_| with_room(frames))
}

impl BufferPool {
    pub fn new(settings: PoolSettings, store: Arc<dyn PageStore>) -> Result<BufferPool> {
        let frames = settings.bytes / settings.page_size as u64;
        if frames < MIN_FRAMES as u64 || frames > u64::from(MOST_FRAMES) {
            return Err(Error::invalid(format!(
                "buffer pool of {} bytes: it must hold at least {MIN_FRAMES} pages of {} bytes, and fewer than 2^31",
                settings.bytes, settings.page_size
            )));
        }
        let n = frames as usize;
        let (frames, arena) = memory(n, settings.page_size)?;
        Ok(BufferPool {
            store,
            page_size: settings.page_size,
            arena,
            frames,
            size: Size::new(n),
            table: PageTable::new(n),
            dirty: DirtyQueue::new(),
            replacement: Replacement::new(n, settings.page_size),
            counters: Counters::default(),
            read_ahead_threshold: AtomicU32::new(READ_AHEAD_THRESHOLD),
            pending: Pending::default(),
            gone: Gone::new(n),
            change_buffers: AllChangeBuffers::default(),
            drop_held: Durations::default(),
        })
    }

    /// Whether the system is to give huge pages; before the pool is used.
    pub fn set_large_pages(&self, are_wanted: bool) {
        self.arena.set_huge(are_wanted);
    }

    pub fn page_size(&self) -> usize {
        self.page_size
    }

    pub fn store(&self) -> &Arc<dyn PageStore> {
        &self.store
    }

    /// How many leaves a scan reads in a row before it reads ahead; 0: it never does.
    pub fn read_ahead_threshold(&self) -> u32 {
        self.read_ahead_threshold.load(Relaxed)
    }

    pub fn set_read_ahead_threshold(&self, leaves: u32) {
        self.read_ahead_threshold.store(leaves, Relaxed);
    }

    /// The page, latched shared. Waits for the latch and, on a miss, for the disk.
    #[inline]
    pub fn shared(&self, id: PageId) -> Result<SharedPage<'_>> {
        let frame = self.acquire::<SharedMode>(id)?;
        Ok(SharedPage::new(self, frame))
    }

    /// The page, latched exclusively.
    #[inline]
    pub fn exclusive(&self, id: PageId) -> Result<ExclusivePage<'_>> {
        let frame = self.acquire::<ExclusiveMode>(id)?;
        Ok(ExclusivePage::new(self, frame))
    }

    /// Where the page probably is, from a hint that is corrected; has the processor fetch what a search in
    /// the page reads first. For a page that is going to be latched now.
    #[inline]
    pub fn expect(&self, id: PageId, hint: &PageHint) -> FrameHint {
        let (mut frame, mut stamp) = hint.get();
        if !(self.frames.get(frame as usize)).is_some_and(|f| f.holds(id)) {
            let Some(found) = self.table.find(&self.frames, id) else {
                return FrameHint::NONE;
            };
            (frame, stamp) = (found, 0);
            hint.set(frame, stamp);
        }
        self.arena.prefetch(frame);
        if stamp == 0 {
            self.arena.prefetch_fences(frame);
        }
        FrameHint { frame, stamp }
    }

    /// Has the processor fetch so many bytes from the start of a page that is probably there.
    pub fn prefetch_start(&self, hint: FrameHint, bytes: usize) {
        if hint != FrameHint::NONE {
            self.arena.prefetch_start(hint.frame, bytes);
        }
    }

    /// Where a page that the caller has latched is.
    #[inline]
    fn hint_of(&self, frame: u32) -> FrameHint {
        let stamp = self.frames[frame as usize].range_stamp();
        FrameHint { frame, stamp }
    }

    /// Like [`BufferPool::shared`]; `hint` says where the page probably is.
    #[inline]
    pub fn shared_in(&self, id: PageId, hint: FrameHint) -> Result<SharedPage<'_>> {
        match self.shared_if_in(id, hint) {
            Some(page) => Ok(page),
            None => self.shared(id),
        }
    }

    /// The page, latched shared, if it is where the hint says.
    #[inline]
    pub fn shared_if_in(&self, id: PageId, hint: FrameHint) -> Option<SharedPage<'_>> {
        let is_there = hint != FrameHint::NONE && self.latch_hit::<SharedMode>(hint.frame, id);
        is_there.then(|| SharedPage::new(self, hint.frame))
    }

    /// Like [`BufferPool::exclusive`]; `hint` says where the page probably is.
    #[inline]
    pub fn exclusive_in(&self, id: PageId, hint: FrameHint) -> Result<ExclusivePage<'_>> {
        match hint != FrameHint::NONE && self.latch_hit::<ExclusiveMode>(hint.frame, id) {
            true => Ok(ExclusivePage::new(self, hint.frame)),
            false => self.exclusive(id),
        }
    }

    /// Like [`BufferPool::shared`], but `None` instead of waiting for a latch that is taken.
    #[cfg(test)]
    pub fn try_shared(&self, id: PageId) -> Result<Option<SharedPage<'_>>> {
        let frame = self.try_acquire::<SharedMode>(id)?;
        Ok(frame.map(|f| SharedPage::new(self, f)))
    }

    /// Like [`BufferPool::exclusive`], but `None` instead of waiting for a latch that is taken.
    #[cfg(test)]
    pub fn try_exclusive(&self, id: PageId) -> Result<Option<ExclusivePage<'_>>> {
        let frame = self.try_acquire::<ExclusiveMode>(id)?;
        Ok(frame.map(|f| ExclusivePage::new(self, f)))
    }

    /// The page, latched exclusively, for a caller that overwrites all of it: it is not read. If it is in the
    /// pool its bytes are what they were, otherwise zero.
    pub fn exclusive_new(&self, id: PageId) -> Result<ExclusivePage<'_>> {
        loop {
            if let Some(frame) = self.table.find(&self.frames, id) {
                if self.latch_hit::<ExclusiveMode>(frame, id) {
                    return Ok(ExclusivePage::new(self, frame));
                }
            } else if self.pending_for(id).is_some() {
                // BUF-7
                return self.exclusive(id);
            } else if let Some(frame) = self.install(id)? {
                self.counters.creates.fetch_add(1, Relaxed);
                return Ok(ExclusivePage::new_unread(self, frame));
            }
        }
    }

    /// Keeps the page in the pool until the pin is dropped.
    pub fn pin(self: &Arc<Self>, id: PageId) -> Result<Pin> {
        let latched = self.shared(id)?;
        let frame = latched.frame();
        // The latch keeps recyclers from finishing but not from claiming for a moment.
        while !self.frames[frame as usize].try_pin() {
            yield_now();
        }
        drop(latched);
        Ok(Pin::new(self.clone(), frame))
    }

    /// Keeps a page that the caller has latched in the pool beyond the latch.
    pub fn pin_latched(self: &Arc<Self>, page: &ExclusivePage<'_>) -> Pin {
        let frame = page.frame();
        // Recyclers claim a frame before they try its latch, and give the claim up in a moment.
        while !self.frames[frame as usize].try_pin() {
            yield_now();
        }
        Pin::new(self.clone(), frame)
    }

    /// The page is in the pool now. A guess by the time the caller looks at the answer.
    pub fn is_resident(&self, id: PageId) -> bool {
        self.table.find(&self.frames, id).is_some()
    }

    /// The decoded image of an inner page, valid as long as `guard`; `None` if the page is of another kind.
    /// `hint` is where the page was found last; it is corrected.
    #[inline]
    pub fn inner<'g>(
        &self,
        id: PageId,
        hint: &PageHint,
        guard: &'g Guard,
    ) -> Result<Option<&'g InnerImage>> {
        match self.published(id, hint, guard) {
            Some(image) => Ok(Some(image)),
            None => self.inner_from_page(id, hint, guard),
        }
    }

    /// The same if it was decoded before and is where the hint says: waits for nothing.
    #[inline]
    pub fn published<'g>(
        &self,
        id: PageId,
        hint: &PageHint,
        guard: &'g Guard,
    ) -> Option<&'g InnerImage> {
        let frame = self.frames.get(hint.get().0 as usize)?;
        let image = frame.image(guard).filter(|image| image.id == id)?;
        frame.touched.touch(self.replacement.now());
        Some(image)
    }

    #[cold]
    fn inner_from_page<'g>(
        &self,
        id: PageId,
        hint: &PageHint,
        guard: &'g Guard,
    ) -> Result<Option<&'g InnerImage>> {
        let index = self.acquire::<SharedMode>(id)?;
        let latched = SharedPage::new(self, index);
        if page::page_type(&latched) != Some(PageType::Inner) {
            return Ok(None);
        }
        hint.set(index, 0);
        let slot = &self.frames[index as usize].image;
        let mut image = slot.load(Acquire, guard);
        if image.is_null() {
            let fresh = Owned::new(InnerImage::decode(&latched, id)?);
            self.counters.image_builds.fetch_add(1, Relaxed);
            // Another thread with the shared latch may have been first; its image is as good.
            image = match slot.compare_exchange(Shared::null(), fresh, AcqRel, Acquire, guard) {
                Ok(published) => published,
                Err(lost) => lost.current,
            };
        }
        // SAFETY: not null, and freed through epochs only; `guard` was pinned before it was loaded.
        Ok(unsafe { image.as_ref() })
    }

    /// A mini-transaction has changed so many pages.
    #[inline]
    pub fn count_changes(&self, pages: u64) {
        if pages > 0 {
            self.counters.changes.add(pages);
        }
    }

    /// The frame's page was latched.
    #[inline]
    fn count_hit(&self, frame: &Frame) {
        if !frame.touched.hit(self.replacement.now()) {
            self.count_hit_telling(frame);
        }
    }

    #[cold]
    fn count_hit_telling(&self, frame: &Frame) {
        self.tell_hits(frame.touched.hit_telling(self.replacement.now()));
    }

    fn tell_hits(&self, n: u32) {
        if n > 0 {
            self.counters.hits.add(u64::from(n));
        }
    }

    #[inline]
    fn acquire<M: Mode>(&self, id: PageId) -> Result<u32> {
        if let Some(frame) = self.table.find(&self.frames, id)
            && self.latch_hit::<M>(frame, id)
        {
            return Ok(frame);
        }
        self.acquire_slow::<M>(id)
    }

    #[cold]
    fn acquire_slow<M: Mode>(&self, id: PageId) -> Result<u32> {
        loop {
            if let Some(frame) = self.table.find(&self.frames, id) {
                if self.latch_hit::<M>(frame, id) {
                    return Ok(frame);
                }
            } else if let Some(frame) = self.load::<M>(id)? {
                return Ok(frame);
            }
        }
    }

    #[cfg(test)]
    fn try_acquire<M: Mode>(&self, id: PageId) -> Result<Option<u32>> {
        loop {
            let Some(index) = self.table.find(&self.frames, id) else {
                match self.load::<M>(id)? {
                    Some(frame) => return Ok(Some(frame)),
                    None => continue,
                }
            };
            let frame = &self.frames[index as usize];
            if !M::try_lock(&frame.latch) {
                return Ok(None);
            }
            if frame.holds(id) {
                self.count_hit(frame);
                return Ok(Some(index));
            }
            // SAFETY: locked above.
            unsafe { M::unlock(&frame.latch) };
        }
    }

    /// Latches the frame that the page table named. False if it does not hold `id` after all.
    #[inline]
    fn latch_hit<M: Mode>(&self, index: u32, id: PageId) -> bool {
        let frame = &self.frames[index as usize];
        if !M::try_lock(&frame.latch) && !self.latch_busy::<M>(index, id) {
            return false;
        }
        if frame.holds(id) {
            self.count_hit(frame);
            return true;
        }
        // SAFETY: locked above, one way or the other.
        unsafe { M::unlock(&frame.latch) };
        false
    }

    /// Waits for the latch of a frame that holds `id`, under a pin. True with the latch; then the id has to
    /// be compared again. False without, if the frame is in other hands.
    #[cold]
    fn latch_busy<M: Mode>(&self, index: u32, id: PageId) -> bool {
        let frame = &self.frames[index as usize];
        if !frame.try_pin() {
            // Being recycled, which takes a moment only, or already free.
            yield_now();
            return false;
        }
        let ours = frame.holds(id);
        if ours && !Self::patiently::<M>(&frame.latch) {
            let begun = Instant::now();
            M::lock(&frame.latch);
            self.count_latch_wait(index, begun.elapsed());
        }
        frame.unpin();
        ours
    }

    /// Tries for a while to get a latch that somebody has, and lets others run meanwhile, who may be the one
    /// that has it. To wait for it in the queue is dearer for all: a writer there keeps readers out until it
    /// runs again, which takes long where more threads want to run than there are processors; and who comes
    /// then queues up behind it, so that the queue of a page that many use does not get shorter any more.
    fn patiently<M: Mode>(latch: &Latch) -> bool {
        (0..YIELDS).any(|_| {
            yield_now();
            M::try_lock(latch)
        })
    }

    /// Puts the page in a free frame and reads it. `None` if somebody else was first.
    fn load<M: Mode>(&self, id: PageId) -> Result<Option<u32>> {
        let Some(index) = self.install(id)? else {
            return Ok(None);
        };
        // SAFETY: `install` latched the frame exclusively, and no guard exists yet.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(self.arena.page_ptr(index), self.page_size) };
        if let Err(e) = self.fill(index, id, bytes) {
            self.give_up(index);
            return Err(e);
        }
        // SAFETY: latched exclusively, see above.
        unsafe { M::settle(&self.frames[index as usize].latch) };
        Ok(Some(index))
    }

    /// Ends a load: the bytes, read into a frame that is latched exclusively, are those of the page. Called
    /// by the thread that loads it, or by a thread of the store's queue (prefetch.rs).
    fn check_loaded(&self, id: PageId, bytes: &mut [u8]) -> Result<()> {
        match self.store.load(id, bytes) {
            Ok(stored) => {
                if stored.compressed {
                    self.counters.expanded.fetch_add(1, Relaxed);
                }
                Ok(())
            }
            Err(why) => {
                if matches!(why, Error::Corrupt { .. }) {
                    self.counters.damaged.fetch_add(1, Relaxed);
                }
                Err(match self.store.file_name(id.space) {
                    Some(file) => why.in_file(&file),
                    None => why,
                })
            }
        }
    }

    /// Makes a free frame the one that holds `id` and returns it, exclusively latched, its bytes still those
    /// of another page. `None` if the page has a frame already.
    fn install(&self, id: PageId) -> Result<Option<u32>> {
        let index = self.free_frame()?;
        if !self.link(index, id) {
            return Ok(None);
        }
        let frame = &self.frames[index as usize];
        frame.touched.start(self.replacement.now());
        self.admit(frame, id);
        frame.unclaim();
        Ok(Some(index))
    }

    /// Makes a free frame, which stays claimed, the one that holds `id`. False if the page has a frame
    /// already; then this one is free again.
    fn link(&self, index: u32, id: PageId) -> bool {
        if !self.table.insert(&self.frames, index, id) {
            self.push_free(index);
            return false;
        }
        self.replacement.count_load();
        self.frames[index as usize].change_range();
        true
    }
}
