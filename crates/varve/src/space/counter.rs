//! The counter in a table's file: the next AUTO_INCREMENT value, which rows raise without latching its page.
//!
//! It stands on the file's counter page. Were each row to write it there, all inserts into a table would go
//! through the latch of that page, one after the other, and hold it until their redo has its place. So most
//! only say in their redo what the counter has to be at least ([`RawRecord::CounterRaised`]), and note the
//! same in memory. The page gets what was noted when it is copied to be written.
//!
//! Who raises the counter notes that first, then asks whether the page is known to be dirty. If it is, the
//! record suffices. Otherwise the page is latched exclusively and changed, as pages are, and is known to be
//! dirty from the moment on at which that change has its place in the redo stream. Who copies the page, under
//! its shared latch, first takes back that it is known to be dirty, then looks at what was noted. So between
//! two writes of the page one row latches it. A row below what such a change has put on the page adds
//! nothing: its own redo comes behind.
//!
//! - **COUNTER-1** A record stands in the redo only where its page is dirty since an LSN below, or where the
//!   last copy of the page has it. So the checkpoint passes it only when the file has it: a crash finds the
//!   record or what it says. Note and question, and taking back and look, are SeqCst: who is told that the
//!   page is dirty has noted before the copy looks, or asks about a later change.
//! - **COUNTER-2** A change of the page has at least what was noted before, as it may have been copied to the
//!   file: redo that is applied to the file never lowers the counter.
//! - **COUNTER-3** Setting the counter to a lower value ([`RawRecord::CounterSet`]) takes back all that the
//!   redo says of it before. Nobody raises it meanwhile.
//!
//! After a crash the counter is as recovery finds it in the redo ([`Spaces::recover_counters`]), or as it is
//! on the page, if that is more. A write may put a value in the file whose redo is lost in the crash: then a
//! few values more are passed over.
//!
//! What was noted is spread over several cache lines: a thread has one of its own, more or less. The
//! questions read a line that is written a few times for each write of the page. No latch is taken here.
//!
//! [`RawRecord::CounterRaised`]: crate::mtr::RawRecord::CounterRaised
//! [`RawRecord::CounterSet`]: crate::mtr::RawRecord::CounterSet
//! [`Spaces::recover_counters`]: super::Spaces::recover_counters

use crossbeam_utils::CachePadded;

use crate::base::sync::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Release, SeqCst},
    between_seq_cst,
};
use crate::base::{PageNo, thread_spot};

/// The page of each table's tablespace that holds its counters (docs/format.md).
pub const COUNTER_PAGE: PageNo = PageNo(2);
/// Offset of the AUTO_INCREMENT counter on it: the next value, 8 bytes.
pub const COUNTER_AT: usize = 48;

const STRIPES: usize = if cfg!(loom) { 1 } else { 8 };

/// What is noted of the counter of one file; 0 as long as nothing is.
pub struct FileCounter {
    raised: Box<[CachePadded<AtomicU64>]>,
    page: CachePadded<KnownPage>,
}

struct KnownPage {
    is_dirty: AtomicBool,
    /// What a change has put there whose place in the redo stream is below that of who reads this: Release
    /// and Acquire.
    has: AtomicU64,
}

/// What a row has to do that raises the counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Raise {
    /// Nothing: the redo says more already.
    Nothing,
    /// To say so in its redo.
    Record,
    /// To change the page.
    Page,
}

impl Default for FileCounter {
    fn default() -> FileCounter {
        FileCounter {
            raised: (0..STRIPES)
                .map(|_| CachePadded::new(AtomicU64::new(0)))
                .collect(),
            page: CachePadded::new(KnownPage {
                is_dirty: AtomicBool::new(false),
                has: AtomicU64::new(0),
            }),
        }
    }
}

impl FileCounter {
    fn own(&self) -> &AtomicU64 {
        &self.raised[thread_spot() % STRIPES]
    }

    /// Notes that the counter is to be at least `next` (COUNTER-1).
    #[must_use]
    pub fn raise(&self, next: u64) -> Raise {
        if next <= self.page.has.load(Acquire) {
            return Raise::Nothing;
        }
        self.note(next);
        between_seq_cst();
        match self.page.is_dirty.load(SeqCst) {
            true => Raise::Record,
            false => Raise::Page,
        }
    }

    /// For what recovery has found: the redo says it.
    pub(super) fn note(&self, next: u64) {
        self.own().fetch_max(next, SeqCst);
    }

    /// The most that was noted.
    pub fn noted(&self) -> u64 {
        let all = self.raised.iter().map(|noted| noted.load(SeqCst));
        all.max().unwrap_or(0)
    }

    /// COUNTER-3: the page, which is latched exclusively, gets this value.
    pub fn set(&self, next: u64) {
        for noted in &self.raised {
            noted.store(next, SeqCst);
        }
    }

    /// The page, which is latched exclusively, has this value, by a change that has its place in the redo
    /// stream.
    pub fn page_has(&self, value: u64) {
        self.page.has.store(value, Release);
    }

    /// The same, and the change is the caller's, so that the page is dirty.
    pub fn page_changed(&self, value: u64) {
        self.page_has(value);
        self.page.is_dirty.store(true, SeqCst);
    }

    /// Puts what was noted in a copy of the page, which is latched shared.
    pub(super) fn complete(&self, copy: &mut [u8]) {
        self.page.is_dirty.store(false, SeqCst);
        between_seq_cst();
        let to = &mut copy[COUNTER_AT..COUNTER_AT + 8];
        let on_page = u64::from_le_bytes((&*to).try_into().expect("8 bytes"));
        to.copy_from_slice(&on_page.max(self.noted()).to_le_bytes());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn copied(counter: &FileCounter, on_page: u64) -> u64 {
        let mut page = [0; 64];
        page[COUNTER_AT..COUNTER_AT + 8].copy_from_slice(&on_page.to_le_bytes());
        counter.complete(&mut page);
        u64::from_le_bytes(page[COUNTER_AT..COUNTER_AT + 8].try_into().unwrap())
    }

    #[test]
    fn a_copy_has_what_was_noted_and_the_next_row_changes_the_page() {
        let counter = FileCounter::default();
        assert_eq!(counter.raise(5), Raise::Page, "COUNTER-1: a clean page");
        counter.page_changed(5);
        let raises = [9, 7, 5, 4].map(|next| counter.raise(next));
        assert_eq!(raises[..2], [Raise::Record; 2]);
        assert_eq!(raises[2..], [Raise::Nothing; 2]);
        assert_eq!(copied(&counter, 5), 9, "COUNTER-1");
        assert_eq!(counter.raise(8), Raise::Page, "COUNTER-1: a copy was taken");
        assert_eq!(counter.noted(), 9, "COUNTER-2");
        assert_eq!(copied(&counter, 12), 12);
    }

    #[test]
    fn a_lower_value_counts_in_all_stripes() {
        let counter = FileCounter::default();
        std::thread::scope(|s| {
            for n in 0..2 * STRIPES as u64 {
                let counter = &counter;
                s.spawn(move || counter.note(100 + n));
            }
        });
        counter.page_changed(150);
        counter.set(3);
        counter.page_changed(3);
        assert_eq!((counter.noted(), copied(&counter, 3)), (3, 3), "COUNTER-3");
        assert_eq!(counter.raise(4), Raise::Page, "COUNTER-3");
    }
}

/// Rows that raise the counter, and writes of the page, against a log and a file.
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::base::model;
    use crate::base::sync::Mutex;

    #[derive(Default)]
    struct Page {
        value: u64,
        /// The place in the log of the first change that is not in the file.
        first_change: Option<usize>,
    }

    #[derive(Default)]
    struct Model {
        counter: FileCounter,
        /// What each frame says the counter is at least.
        log: Mutex<Vec<u64>>,
        /// The mutex is the latch.
        page: Mutex<Page>,
        file: Mutex<u64>,
    }

    impl Model {
        fn append(&self, next: u64) -> usize {
            let mut log = self.log.lock();
            log.push(next);
            log.len() - 1
        }

        fn insert(&self, next: u64) {
            match self.counter.raise(next) {
                Raise::Nothing => {}
                Raise::Record => drop(self.append(next)),
                Raise::Page => self.change_page(),
            }
        }

        fn change_page(&self) {
            let mut page = self.page.lock();
            let noted = self.counter.noted();
            if noted <= page.value {
                return self.counter.page_has(page.value);
            }
            page.value = noted;
            let place = self.append(noted);
            self.counter.page_changed(noted);
            page.first_change.get_or_insert(place);
        }

        fn write(&self) {
            let mut page = self.page.lock();
            let mut copy = [0; 64];
            copy[COUNTER_AT..COUNTER_AT + 8].copy_from_slice(&page.value.to_le_bytes());
            self.counter.complete(&mut copy);
            page.first_change = None;
            drop(page);
            let copied = copy[COUNTER_AT..COUNTER_AT + 8].try_into().unwrap();
            *self.file.lock() = u64::from_le_bytes(copied);
        }

        /// What a start finds if all of the log is durable, and the checkpoint as far as it may be.
        fn recovered(&self) -> u64 {
            let log = self.log.lock();
            let from = self.page.lock().first_change.unwrap_or(log.len());
            log[from..]
                .iter()
                .copied()
                .fold(*self.file.lock(), u64::max)
        }
    }

    /// COUNTER-1.
    #[test]
    fn loom_no_row_is_above_the_counter_after_a_crash() {
        model::check(3, || {
            let model = Arc::new(Model::default());
            model.insert(2);
            let rows = [3, 4].map(|next| {
                let model = model.clone();
                thread::spawn(move || model.insert(next))
            });
            model.write();
            for row in rows {
                row.join().unwrap();
            }
            assert_eq!(model.recovered(), 4);
        });
    }
}
