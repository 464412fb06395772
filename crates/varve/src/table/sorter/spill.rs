//! What a sorter has in memory, on its way to become a run: in a thread of its own, if there is one to be
//! had, or in the sorter's.
//!
//! There are no more helpers than half of the processors, one at least, for all sorters of a database: a
//! statement that builds indexes leaves processors to others, and the thread that gathers the records needs
//! one, too. A sorter that finds all of them busy does their work, and gathers no records meanwhile. A helper
//! waits for nobody, and nothing is latched.
//!
//! - **SPILL-1** The file and the records are the helper's until it has ended, and the sorter waits for that
//!   before it looks at them, writes its next run, or is dropped.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::{Place, SortFile, Source, compare_behind, head_of};
use crate::base::{Error, Result, processors, threads};
use crate::page::common_prefix_len;

/// How many threads sort for all sorters.
pub struct SortHelpers {
    most: usize,
    at_work: AtomicUsize,
}

impl SortHelpers {
    /// Half of the processors, and one at least.
    pub fn new() -> Arc<SortHelpers> {
        SortHelpers::at_most((processors() / 2).max(1))
    }

    pub(in crate::table) fn at_most(most: usize) -> Arc<SortHelpers> {
        Arc::new(SortHelpers {
            most,
            at_work: AtomicUsize::new(0),
        })
    }

    /// `None`: all are busy.
    fn turn(self: &Arc<SortHelpers>) -> Option<Turn> {
        // Relaxed: it only counts.
        let drawn = self
            .at_work
            .fetch_update(Relaxed, Relaxed, |n| (n < self.most).then_some(n + 1));
        drawn.ok().map(|_| Turn(self.clone()))
    }
}

/// A helper's; there are as many as are counted.
struct Turn(Arc<SortHelpers>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.at_work.fetch_sub(1, Relaxed);
    }
}

/// Records in memory.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl Batch {
    pub fn push(&mut self, key: &[u8], payload: &[u8], payload_len: u16) {
        self.places
            .push(Place::new(self.bytes.len(), key, payload_len));
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(payload);
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub fn used_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&self.places[..])
    }

    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.places.shrink_to_fit();
    }

    pub fn into_source(self) -> Source {
        Source::in_memory(self.bytes, self.places)
    }

    pub fn sort(&mut self) {
        let shared = self.shared_prefix();
        if shared > 0 {
            self.set_heads(shared);
        }
        let bytes = &self.bytes[..];
        // It looks first whether they are in order already.
        self.places
            .sort_unstable_by(|a, b| compare_behind(shared, *a, bytes, *b, bytes));
        if shared > 0 {
            self.set_heads(0);
        }
    }

    /// How many bytes all keys begin with: as that of a column which is never NULL, or of small numbers.
    /// Heads of what is behind them say more.
    fn shared_prefix(&self) -> usize {
        let Some((first, others)) = self.places.split_first() else {
            return 0;
        };
        let first = first.key(&self.bytes);
        let mut shared = first.len();
        for place in others {
            let key = place.key(&self.bytes);
            if key.get(..shared) != Some(&first[..shared]) {
                shared = common_prefix_len(&first[..shared], key);
            }
            if shared == 0 {
                break;
            }
        }
        shared
    }

    /// The heads are of what comes behind so many bytes.
    fn set_heads(&mut self, skipped: usize) {
        for place in &mut self.places {
            place.head = head_of(&place.key(&self.bytes)[skipped..]);
        }
    }
}

/// A batch that is to be a run.
struct Work {
    batch: Batch,
    file: SortFile,
    block_bytes: usize,
    /// SORT-4: `None` until it was tried.
    run: Option<Result<Range<u64>>>,
}

impl Work {
    fn do_it(&mut self) {
        self.run = Some(self.write());
    }

    fn write(&mut self) -> Result<Range<u64>> {
        self.batch.sort();
        let mut run = self.file.begin_run(self.block_bytes);
        for place in &self.batch.places {
            let bytes = &self.batch.bytes;
            run.push(place.key(bytes), place.payload(bytes))?;
        }
        run.finish()
    }
}

pub(super) struct Spill {
    /// SPILL-1.
    work: Arc<Mutex<Work>>,
    helper: Option<JoinHandle<()>>,
}

impl Spill {
    pub fn begin(
        batch: Batch,
        file: SortFile,
        block_bytes: usize,
        helpers: Option<&Arc<SortHelpers>>,
    ) -> Spill {
        let work = Arc::new(Mutex::new(Work {
            batch,
            file,
            block_bytes,
            run: None,
        }));
        let start = |turn: Turn| {
            let work = work.clone();
            let body = move || {
                work.lock().do_it();
                drop(turn);
            };
            // If the system gives no thread, the sorter does it.
            threads::spawn("varve-sort", body).ok()
        };
        let helper = helpers.and_then(SortHelpers::turn).and_then(start);
        Spill { work, helper }
    }

    /// A helper has it.
    pub fn is_away(&self) -> bool {
        self.helper.is_some()
    }

    /// The run, its file, and the memory that is free again; or the error, and what may be tried again.
    pub fn end(mut self) -> Result<(Range<u64>, SortFile, Batch), (Spill, Error)> {
        if let Some(Err(panic)) = self.helper.take().map(JoinHandle::join) {
            resume_unwind(panic);
        }
        let mut work = self.work.lock();
        if work.run.is_none() {
            work.do_it();
        }
        match work.run.take().expect("it was done") {
            Ok(run) => {
                drop(work);
                let work = self.work.clone();
                drop(self);
                let Work {
                    mut batch, file, ..
                } = Arc::into_inner(work)
                    .expect("the helper has ended")
                    .into_inner();
                batch.bytes.clear();
                batch.places.clear();
                Ok((run, file, batch))
            }
            Err(e) => {
                drop(work);
                Err((self, e))
            }
        }
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        if let Some(helper) = self.helper.take() {
            // SPILL-1. Who gives up a sort need not know how it would have ended.
            let _ = helper.join();
        }
    }
}
