//! The page map: which redo each page lacks.
//!
//! Which pages there are is known from the pieces of the log (`pages`); their changes are in partitions (`partition`), in memory or in a file, and looked
//! at when a page is loaded.
//!
//! - **MAP-1** The changes of a page are those in its partition from frames that start before the end of the log, in the order of the log
//!   (CHAIN-1, PART-1, PART-3). There is one at least.
//! - **MAP-2** A page leaves the map after its frame was registered as changed (BUF-6), or when its tablespace is gone. `left` counts
//!   those that have not, `loading` the threads that are at it: who begins counts itself, and then looks whether the page is still in the map. Once both are seen to be 0, in
//!   this order, all pages are registered and no other will be, not even one whose tablespace went while it was being loaded. Both words, and the bits, are
//!   read and written with SeqCst for that. When the last page of a partition leaves, the partition's memory and place go; a thread that was at it has its
//!   own hold of what it needs.
//! - **MAP-4** Memory: blocks of changes (PART-2), and beside them, for each thread that applies redo and for users together, about what one partition has in the
//!   file (`Kept`). It falls as partitions are done with, and so many frames as blocks of changes take are held back from the pool (BUF-9), if the memory is
//!   the pool's (`attach_within`).
//!
//! No latches; while a page is applied, its frame's is held by the caller, and the partition's mutex is taken (PART-4).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

use parking_lot::Mutex;

use super::chain;
use super::pages::{Units, unit_of};
use super::partition::{Kept, Loaded, Partition, Redo, Source};
use super::scatter::{Layout, Sink, Strand};
use super::spill::Spill;
use crate::base::{Error, Lsn, PageId, Result, SpaceId};
use crate::buffer::{Need, PageStore, PendingRedo};

/// The redo that pages lack.
pub struct PageMap {
    units: Units,
    /// A bit for each page of a unit that is out of the map (MAP-2).
    applied: Box<[AtomicU64]>,
    layout: Layout,
    partitions: Box<[Partition]>,
    /// Of the log.
    end: Lsn,
    left: AtomicU64,
    /// Threads that are applying redo to a page.
    loading: AtomicU64,
    spill: Spill,
    kept: Kept,
    held_bytes: usize,
    /// Of that, what partitions that are not done with have. Relaxed: an account of memory.
    held_now: AtomicUsize,
    /// Pages that count as done although they stay (REC-6).
    given_up: Mutex<BTreeSet<PageId>>,
}

/// Where a page stands.
#[derive(Clone, Copy)]
struct Place {
    /// Among all units.
    unit: usize,
    bit: u64,
    partition: usize,
}

impl PageMap {
    /// Of a log that ends at `end`: the pages that it changes, and the strands of each thread that has read it.
    pub fn new(units: Units, threads: Vec<Vec<Strand>>, sink: Sink, end: Lsn) -> PageMap {
        let (layout, spill, memory_bytes) = sink.into_parts();
        let mut threads: Vec<_> = threads.into_iter().map(Vec::into_iter).collect();
        let mut next = || Partition::new(Redo::new(threads.iter_mut().filter_map(Iterator::next)));
        let mut partitions: Box<[Partition]> = (0..layout.partitions).map(|_| next()).collect();
        for (n, unit) in units.all().iter().enumerate() {
            let partition = &mut partitions[layout.partition_of(unit.no)];
            partition.units.push(n as u32);
            *partition.left.get_mut() += u64::from(unit.len());
        }
        let held_bytes = partitions.iter().map(|p| p.redo().held_bytes()).sum();
        PageMap {
            applied: units.all().iter().map(|_| AtomicU64::new(0)).collect(),
            left: AtomicU64::new(units.pages()),
            loading: AtomicU64::new(0),
            kept: Kept::new(memory_bytes / 8),
            given_up: Mutex::default(),
            units,
            layout,
            partitions,
            end,
            spill,
            held_bytes,
            held_now: AtomicUsize::new(held_bytes),
        }
    }

    /// Sabotage: loses a block of redo.
    pub fn lose_block(&self) {
        let _ = self.partitions.iter().any(|p| p.redo().lose_block());
    }

    /// What is in the file.
    #[cfg(test)]
    pub fn spilled_blocks(&self) -> usize {
        self.partitions
            .iter()
            .map(|p| p.redo().spilled_blocks())
            .sum()
    }

    /// Memory of blocks that are there now.
    #[cfg(test)]
    pub fn bytes_of_blocks(&self) -> usize {
        self.partitions.iter().map(|p| p.redo().held_bytes()).sum()
    }

    /// Partitions that are kept for users.
    #[cfg(test)]
    pub fn kept(&self) -> Vec<usize> {
        self.kept.partitions()
    }

    /// Pages whose redo is not applied.
    pub fn left(&self) -> u64 {
        self.left.load(Acquire)
    }

    /// No page is left, and no page will be registered any more (MAP-2).
    pub fn is_through(&self) -> bool {
        self.left.load(SeqCst) == 0 && self.loading.load(SeqCst) == 0
    }

    /// How many partitions there are.
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// The pages of a partition that wait, by tablespace and number: their redo is not applied, and they were not given up.
    pub fn waiting(&self, partition: usize) -> Vec<PageId> {
        let units = self.partitions[partition].units.iter();
        let of_unit = |&n: &u32| {
            let unit = &self.units.all()[n as usize];
            unit.pages(unit.marks.lacks & !self.applied[n as usize].load(SeqCst))
        };
        let mut pages: Vec<PageId> = units.flat_map(of_unit).collect();
        let given_up = self.given_up.lock();
        pages.retain(|page| !given_up.contains(page));
        pages
    }

    /// Whether the page is among those.
    pub fn waits(&self, page: PageId) -> bool {
        let is_left = self.place(page).is_some_and(|p| !self.is_applied(p));
        is_left && !self.given_up.lock().contains(&page)
    }

    /// The partition that has the page's redo, if the page is among those.
    pub fn partition_of(&self, page: PageId) -> Option<usize> {
        let place = self.place(page).filter(|_| self.waits(page))?;
        Some(place.partition)
    }

    /// Loads a partition's redo, for who wants many of its pages: as long as somebody has it, nobody has to load it again.
    pub fn load(&self, partition: usize) -> Result<Arc<Loaded>> {
        let source = Source {
            units: &self.units,
            spill: &self.spill,
            end: self.end,
        };
        self.partitions[partition].load(&source)
    }

    pub fn spilled_bytes(&self) -> u64 {
        self.spill.bytes()
    }

    /// What blocks of changes took, and the list of pages.
    pub fn memory_bytes(&self) -> u64 {
        let lists = self.units.memory_bytes() + self.applied.len() * size_of::<AtomicU64>();
        (self.held_bytes + lists) as u64
    }

    /// The tablespaces, each with the last of its pages that lacks redo.
    pub fn spaces(&self) -> Vec<PageId> {
        self.units.spaces()
    }

    /// Makes durable what the tablespaces' files hold (REC-7).
    pub fn sync_files(&self, store: &dyn PageStore) -> Result<()> {
        let spaces = self.spaces().into_iter().map(|page| page.space);
        store.sync_all(&spaces.collect::<Vec<_>>())
    }

    /// Removes the file. Everything is applied.
    pub fn remove_file(&self) -> Result<()> {
        self.spill.remove()
    }

    fn place(&self, page: PageId) -> Option<Place> {
        let (no, bit) = unit_of(page);
        let unit = self.units.find(no)?;
        (self.units.all()[unit].marks.lacks & bit != 0).then(|| Place {
            unit,
            bit,
            partition: self.layout.partition_of(no),
        })
    }

    fn is_applied(&self, place: Place) -> bool {
        self.applied[place.unit].load(SeqCst) & place.bit != 0
    }

    fn leave(&self, page: PageId, place: Place) {
        let was_there = self.applied[place.unit].fetch_or(place.bit, SeqCst) & place.bit == 0;
        if !was_there {
            return;
        }
        if !self.given_up.lock().remove(&page) {
            self.left.fetch_sub(1, SeqCst);
        }
        let partition = &self.partitions[place.partition];
        if partition.left.fetch_sub(1, AcqRel) == 1 {
            let gone = partition.clear();
            self.held_now.fetch_sub(gone, Relaxed);
            self.kept.let_go(place.partition);
        }
    }

    /// The redo can't be applied. The page stays, so that nobody gets to see it without, but nobody waits for it any more.
    pub fn give_up(&self, page: PageId) {
        let Some(place) = self.place(page) else {
            return;
        };
        let mut given_up = self.given_up.lock();
        if !self.is_applied(place) && given_up.insert(page) {
            self.left.fetch_sub(1, SeqCst);
        }
    }

    /// Pages were given up and stay.
    pub fn has_given_up(&self) -> bool {
        !self.given_up.lock().is_empty()
    }

    /// For a page that somebody needs now: others of its partition may be next.
    fn load_for_user(&self, partition: usize) -> Result<Arc<Loaded>> {
        let loaded = self.load(partition)?;
        if Arc::strong_count(&loaded) == 1 {
            // Nobody else has it. If that has changed by now it is kept for a while without need.
            self.kept.keep(partition, loaded.clone());
        }
        Ok(loaded)
    }
}

/// Counts a page that is being brought up to date.
struct Loading<'a>(&'a PageMap);

impl Loading<'_> {
    fn begin(map: &PageMap) -> Loading<'_> {
        map.loading.fetch_add(1, SeqCst);
        Loading(map)
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        self.0.loading.fetch_sub(1, SeqCst);
    }
}

impl PendingRedo for PageMap {
    fn need(&self, page: PageId) -> Need {
        let place = self.place(page).filter(|place| !self.is_applied(*place));
        let Some(Place { unit, bit, .. }) = place else {
            return Need::Nothing;
        };
        match self.units.all()[unit].marks.fresh & bit != 0 {
            true => Need::Zeros,
            false => Need::Stored,
        }
    }

    fn apply(&self, page: PageId, bytes: &mut [u8], changed: &mut dyn FnMut(Lsn)) -> Result<()> {
        let _loading = Loading::begin(self);
        let gone = || Error::not_found(format!("redo of {page}"));
        let place = self.place(page).filter(|place| !self.is_applied(*place));
        let place = place.ok_or_else(gone)?;
        let loaded = self.load_for_user(place.partition)?;
        let mut changes = loaded.changes(page, place.unit, &self.units).peekable();
        if changes.peek().is_none() {
            // MAP-1: its tablespace went meanwhile, and the partition with it.
            return Err(gone());
        }
        if let Some(start) = chain::apply(bytes, page, changes)? {
            changed(start);
        }
        self.leave(page, place);
        Ok(())
    }

    fn forget(&self, space: SpaceId) {
        for unit in self.units.of_space(space) {
            let of = &self.units.all()[unit];
            for page in of.pages(of.marks.lacks & !self.applied[unit].load(SeqCst)) {
                let place = self.place(page).expect("it lacks redo");
                self.leave(page, place);
            }
        }
    }

    fn held_bytes(&self) -> usize {
        self.held_now.load(Relaxed)
    }
}
