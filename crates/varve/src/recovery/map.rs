//! The page map: which redo each page lacks.
//!
//! Which pages there are is known before the first is loaded, from the whole log (`scan`) or from the indexes
//! of its files (`survey`). Their changes come from one of two sources: partitions (`divided`), in memory or
//! in a file, once the log was read as a whole; before that, single frames of the log, which the indexes lead
//! to (`indexed`). Both say the same (IDX-9), so a page may be brought up to date from either.
//!
//! - **MAP-1** The changes of a page are those in its partition from frames that start before the end of the
//!   log, in the order of the log (CHAIN-1, PART-1, PART-3); or those that indexes lead to (IDX-5). There is
//!   one at least.
//! - **MAP-2** A page leaves the map after its frame was registered as changed (BUF-6), or when its
//!   tablespace is gone. `left` counts those that have not, `loading` the threads that are at it: who begins
//!   counts itself, and then looks whether the page is still in the map. Once both are seen to be 0, in this
//!   order, all pages are registered and no other will be, not even one whose tablespace went while it was
//!   being loaded. Both words, and the bits, are read and written with SeqCst for that. When the last page of
//!   a partition leaves, the partition's memory and place go; a thread that was at it has its own hold of
//!   what it needs. Who leaves last, and who divides when all have left, sees to that; both may.
//! - **MAP-4** Memory: blocks of changes (PART-2), and beside them, for each thread that applies redo and for
//!   users together, about what one partition has in the file (`Kept`). It falls as partitions are done with,
//!   and so many frames as blocks of changes take are held back from the pool (BUF-9), if the memory is the
//!   pool's (`attach_within`); until the redo is divided, as many as they may come to take. Indexes take a
//!   few bytes for each of their blocks, and those of parts of the log that had none a few bytes for each
//!   change.
//! - **MAP-6** The redo is divided once, by the first thread that needs it (`dividing`); others wait. Nothing
//!   that this takes is held by others: who waits may have latched a frame.
//!
//! No latches; while a page is applied, its frame's is held by the caller, and the partition's mutex is taken
//! (PART-4).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*, fence};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::chain;
use super::divided::Divided;
use super::indexed::Indexed;
use super::pages::{UNIT_PAGES, Units, unit_of};
use super::partition::Loaded;
use crate::base::{Error, Lsn, PageId, Result, SpaceId};
use crate::buffer::{Need, PageStore, PendingRedo};

/// Units that are brought up to date together as long as the redo is not divided.
const GROUP_UNITS: usize = 4;

/// The redo that pages lack.
pub struct PageMap {
    units: Units,
    /// A bit for each page of a unit that is out of the map (MAP-2).
    applied: Box<[AtomicU64]>,
    /// Once there is: the better source.
    divided: OnceLock<Divided>,
    /// Until then.
    indexed: Option<Indexed>,
    /// Held by who divides. An error stays.
    dividing: Mutex<Option<Error>>,
    /// There is one. Relaxed: memory is not held back any more, sooner or later.
    cannot_divide: AtomicBool,
    stop: AtomicBool,
    left: AtomicU64,
    /// Threads that are applying redo to a page.
    loading: AtomicU64,
    /// Pages that count as done although they stay (REC-6).
    given_up: Mutex<BTreeSet<PageId>>,
}

/// Where a page stands.
#[derive(Clone, Copy)]
struct Place {
    /// Among all units.
    unit: usize,
    bit: u64,
}

impl PageMap {
    /// Of these pages, whose redo is divided already.
    pub fn divided(units: Units, divided: Divided) -> PageMap {
        PageMap::new(units, OnceLock::from(divided), None)
    }

    /// Of these pages, whose redo the indexes of the log's files lead to.
    pub fn indexed(units: Units, indexed: Indexed) -> PageMap {
        PageMap::new(units, OnceLock::new(), Some(indexed))
    }

    fn new(units: Units, divided: OnceLock<Divided>, indexed: Option<Indexed>) -> PageMap {
        PageMap {
            applied: units.all().iter().map(|_| AtomicU64::new(0)).collect(),
            left: AtomicU64::new(units.pages()),
            loading: AtomicU64::new(0),
            given_up: Mutex::default(),
            dividing: Mutex::default(),
            cannot_divide: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            units,
            divided,
            indexed,
        }
    }

    /// Divides the redo, unless it is; waits if another thread is at it (MAP-6). Afterwards nobody goes by
    /// the indexes any more.
    ///
    /// # Errors
    ///
    /// `NoSpace`: there is no room on the disk for what does not fit in memory. Then each page is brought up
    /// to date by the indexes.
    pub fn divide(&self) -> Result<()> {
        let mut failed = self.dividing.lock();
        if self.divided.get().is_some() {
            return Ok(());
        }
        if let Some(why) = &*failed {
            return Err(why.clone());
        }
        let indexed = self.indexed.as_ref().expect("there is a source");
        match indexed.divide(&self.units, &self.stop) {
            Ok(divided) => self.begin_to_use(divided),
            Err(e) => {
                *failed = Some(e.clone());
                self.cannot_divide.store(true, Relaxed);
                return Err(e);
            }
        }
        Ok(())
    }

    /// Has `divide` fail soon, wherever it is: nobody needs it any more, or the database is being closed.
    pub fn stop_dividing(&self) {
        self.stop.store(true, Relaxed);
    }

    fn begin_to_use(&self, divided: Divided) {
        let divided = self.divided.get_or_init(|| divided);
        // A page that leaves looks for its partition after it has left, and we look for pages after
        // partitions can be found: with a fence on either side one of the two sees the other.
        fence(SeqCst);
        (0..divided.partitions()).for_each(|n| self.clear_if_done(divided, n));
    }

    /// The memory and the place of a partition go with the last of its pages.
    fn clear_if_done(&self, divided: &Divided, partition: usize) {
        let mut units = divided.units_of(partition).iter();
        if units.all(|&n| self.unapplied(n as usize) == 0) {
            divided.clear(partition);
        }
    }

    /// The bits of a unit's pages that are in the map.
    fn unapplied(&self, unit: usize) -> u64 {
        self.units.all()[unit].marks.lacks & !self.applied[unit].load(SeqCst)
    }

    /// Whether the redo is not divided yet. For people, and for who may divide it.
    pub fn goes_by_indexes(&self) -> bool {
        self.divided.get().is_none()
    }

    #[cfg(test)]
    pub fn as_divided(&self) -> &Divided {
        self.divided.get().expect("it was divided")
    }

    /// Pages whose redo is not applied.
    pub fn left(&self) -> u64 {
        self.left.load(Acquire)
    }

    /// No page is left, and no page will be registered any more (MAP-2).
    pub fn is_through(&self) -> bool {
        self.left.load(SeqCst) == 0 && self.loading.load(SeqCst) == 0
    }

    /// How many groups of pages there are that are best brought up to date together: partitions, or some
    /// units each. Who goes through them has called `divide`.
    pub fn groups(&self) -> usize {
        match self.divided.get() {
            Some(divided) => divided.partitions(),
            None => self.units.all().len().div_ceil(GROUP_UNITS),
        }
    }

    /// The pages of a group that wait, by tablespace and number: their redo is not applied, and they were not
    /// given up.
    pub fn waiting(&self, group: usize) -> Vec<PageId> {
        let of_unit = |n: usize| self.units.all()[n].pages(self.unapplied(n));
        let mut pages: Vec<PageId> = match self.divided.get() {
            Some(divided) => {
                let units = divided.units_of(group).iter();
                units.flat_map(|n| of_unit(*n as usize)).collect()
            }
            None => {
                let begin = group * GROUP_UNITS;
                let end = (begin + GROUP_UNITS).min(self.units.all().len());
                (begin..end).flat_map(of_unit).collect()
            }
        };
        let given_up = self.given_up.lock();
        pages.retain(|page| !given_up.contains(page));
        pages
    }

    /// Whether the page is among those.
    pub fn waits(&self, page: PageId) -> bool {
        let is_left = self.place(page).is_some_and(|p| !self.is_applied(p));
        is_left && !self.given_up.lock().contains(&page)
    }

    /// The partition that has the page's redo, if that is divided.
    pub fn partition_of(&self, page: PageId) -> Option<usize> {
        let divided = self.divided.get()?;
        Some(divided.partition_of(unit_of(page).0))
    }

    /// Loads a partition's redo, for who wants many of its pages: as long as somebody has it, nobody has to
    /// load it again. `None`: the redo is not divided.
    pub fn load(&self, partition: usize) -> Option<Result<Arc<Loaded>>> {
        let divided = self.divided.get()?;
        Some(divided.load(partition, &self.units))
    }

    pub fn spilled_bytes(&self) -> u64 {
        self.divided.get().map_or(0, Divided::spilled_bytes)
    }

    /// What blocks of changes and indexes took, and the list of pages.
    pub fn memory_bytes(&self) -> u64 {
        let lists = self.units.memory_bytes() + self.applied.len() * size_of::<AtomicU64>();
        let indexes = self.indexed.as_ref().map_or(0, Indexed::memory_bytes);
        let divided = self.divided.get().map_or(0, Divided::held_bytes);
        (divided + indexes + lists) as u64
    }

    /// The tablespaces, each with the last of its pages that lacks redo.
    pub fn spaces(&self) -> Vec<PageId> {
        self.units.spaces()
    }

    /// All pages that redo names may have been written with it (TRACK-2).
    pub fn note_written(&self, store: &dyn PageStore) {
        for unit in self.units.all() {
            let pages: SmallVec<[PageId; UNIT_PAGES as usize]> =
                unit.pages(unit.marks.lacks).collect();
            store.note_written(&pages);
        }
    }

    /// Makes durable what the tablespaces' files hold (REC-7).
    pub fn sync_files(&self, store: &dyn PageStore) -> Result<()> {
        let spaces = self.spaces().into_iter().map(|page| page.space);
        store.sync_all(&spaces.collect::<Vec<_>>())
    }

    /// Removes the file. Everything is applied.
    pub fn remove_file(&self) -> Result<()> {
        self.divided.get().map_or(Ok(()), Divided::remove_file)
    }

    fn place(&self, page: PageId) -> Option<Place> {
        let (no, bit) = unit_of(page);
        let unit = self.units.find(no)?;
        let lacks = self.units.all()[unit].marks.lacks & bit != 0;
        lacks.then_some(Place { unit, bit })
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
            self.count_out();
        }
        fence(SeqCst);
        if let Some(divided) = self.divided.get() {
            let partition = divided.partition_of(self.units.all()[place.unit].no);
            self.clear_if_done(divided, partition);
        }
    }

    /// The redo can't be applied. The page stays, so that nobody gets to see it without, but nobody waits for
    /// it any more.
    pub fn give_up(&self, page: PageId) {
        let Some(place) = self.place(page) else {
            return;
        };
        let mut given_up = self.given_up.lock();
        if !self.is_applied(place) && given_up.insert(page) {
            self.count_out();
        }
    }

    /// Nobody waits for one more page.
    fn count_out(&self) {
        if self.left.fetch_sub(1, SeqCst) == 1 {
            // Nor for the redo to be divided; and the log's files may soon be used again.
            self.stop_dividing();
        }
    }

    /// Pages were given up and stay.
    pub fn has_given_up(&self) -> bool {
        !self.given_up.lock().is_empty()
    }

    /// Brings the page, which has this place, up to date; returns where the first frame that was applied
    /// starts.
    fn apply_redo(&self, page: PageId, bytes: &mut [u8], place: Place) -> Result<Option<Lsn>> {
        if let (None, Some(indexed)) = (self.divided.get(), &self.indexed) {
            match indexed.read(page) {
                Ok(redo) => return redo.apply(page, bytes),
                // An index can be done without.
                Err(e) if !matches!(e, Error::CorruptFile { .. }) => return Err(e),
                Err(_) => self.divide()?,
            }
        }
        let divided = self.divided.get().expect("there is a source");
        let partition = divided.partition_of(self.units.all()[place.unit].no);
        let loaded = divided.load_for_user(partition, &self.units)?;
        let mut changes = loaded.changes(page, place.unit, &self.units).peekable();
        if changes.peek().is_none() {
            // MAP-1: its tablespace went meanwhile, and the partition with it.
            return Err(gone(page));
        }
        chain::apply(bytes, page, changes)
    }
}

fn gone(page: PageId) -> Error {
    Error::not_found(format!("redo of {page}"))
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
        let place = self.place(page).filter(|place| !self.is_applied(*place));
        let place = place.ok_or_else(|| gone(page))?;
        if let Some(start) = self.apply_redo(page, bytes, place)? {
            changed(start);
        }
        self.leave(page, place);
        Ok(())
    }

    fn forget(&self, space: SpaceId) {
        for unit in self.units.of_space(space) {
            let of = &self.units.all()[unit];
            for page in of.pages(self.unapplied(unit)) {
                let place = self.place(page).expect("it lacks redo");
                self.leave(page, place);
            }
        }
    }

    fn held_bytes(&self) -> usize {
        match (self.divided.get(), &self.indexed) {
            (Some(divided), _) => divided.held_bytes_now(),
            (None, Some(indexed)) if !self.cannot_divide.load(Relaxed) => indexed.most_bytes(),
            _ => 0,
        }
    }
}
