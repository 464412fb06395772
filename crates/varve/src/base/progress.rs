//! How far a statement that takes long has come. Who works has a [`Meter`] for each phase, which tells the
//! statement's [`Watch`].
//!
//! - **PROGRESS-1** A watch is called by the thread that called the engine, and only while that call
//!   lasts. Threads that help add to the meter, and the caller's thread tells of what they have done.
//! - **PROGRESS-2** Within a phase the work that is done never gets less, and is never above the estimate.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, ThreadId};

/// What a statement is doing that takes long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Reads the rows of a table that indexes, or another table, are built of. Counts rows.
    Read,
    /// Fills trees with what was sorted. Counts rows and entries.
    Fill,
    /// Looks at rows that others have changed meanwhile. Counts rows.
    CatchUp,
    /// Checks each page of a table's file by itself. Counts pages.
    CheckPages,
    /// Checks rows and entries. Counts them.
    CheckRecords,
    /// Looks at leaves for statistics. Counts leaves.
    Sample,
    /// Takes back what was changed, if that is much. Counts undo records.
    RollBack,
}

/// How far it has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    pub phase: Phase,
    pub done: u64,
    /// How much there will be to do; mostly an estimate.
    pub estimated: u64,
}

/// Is told of progress, by the thread that called the engine, while that call lasts: when a phase begins,
/// which may come again, and every so often. It should return at once.
#[derive(Clone)]
pub struct Watch(Arc<dyn Fn(Progress) + Send + Sync>);

impl Watch {
    pub fn new(told: impl Fn(Progress) + Send + Sync + 'static) -> Watch {
        Watch(Arc::new(told))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// Counts what is done in one phase. Threads share it.
pub struct Meter {
    watch: Option<Watch>,
    phase: Phase,
    estimated: u64,
    every: u64,
    done: AtomicU64,
    /// PROGRESS-1.
    caller: ThreadId,
}

impl Meter {
    /// A phase begins. It is told of each time that about so many more units of work are done.
    pub fn begin(watch: Option<&Watch>, phase: Phase, estimated: u64, every: u64) -> Meter {
        let meter = Meter {
            watch: watch.cloned(),
            phase,
            estimated,
            every,
            done: AtomicU64::new(0),
            caller: thread::current().id(),
        };
        meter.tell();
        meter
    }

    /// So much more is done.
    #[inline]
    pub fn add(&self, units: u64) {
        if self.watch.is_some() {
            self.add_watched(units);
        }
    }

    fn add_watched(&self, units: u64) {
        // Relaxed: a number that stands for itself.
        let before = self.done.fetch_add(units, Relaxed);
        let is_time = before / self.every != (before + units) / self.every;
        if is_time && thread::current().id() == self.caller {
            self.tell();
        }
    }

    /// Tells how much is done, in the caller's thread.
    pub fn tell(&self) {
        if let Some(Watch(told)) = &self.watch {
            debug_assert!(thread::current().id() == self.caller, "PROGRESS-1");
            let done = self.done.load(Relaxed);
            told(Progress {
                phase: self.phase,
                done,
                // PROGRESS-2.
                estimated: self.estimated.max(done),
            });
        }
    }
}

/// The phase is over, or has failed: the caller hears of all that was done.
impl Drop for Meter {
    fn drop(&mut self) {
        // Nothing was done when it began.
        if *self.done.get_mut() > 0 {
            self.tell();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Mutex;

    type Told = Arc<Mutex<Vec<(u64, u64)>>>;

    fn watched() -> (Watch, Told) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let to = seen.clone();
        let watch = Watch::new(move |p| to.lock().unwrap().push((p.done, p.estimated)));
        (watch, seen)
    }

    #[test]
    fn it_is_told_every_so_often_and_never_of_more_than_the_estimate() {
        let (watch, seen) = watched();
        let meter = Meter::begin(Some(&watch), Phase::Read, 25, 10);
        (0..35).for_each(|_| meter.add(1));
        drop(meter);
        let seen = seen.lock().unwrap();
        assert_eq!(*seen, [(0, 25), (10, 25), (20, 25), (30, 30), (35, 35)]);
    }

    #[test]
    fn helpers_are_counted_and_the_caller_tells() {
        let (watch, seen) = watched();
        let meter = Meter::begin(Some(&watch), Phase::Fill, 100, 10);
        thread::scope(|scope| {
            scope.spawn(|| meter.add(40));
        });
        assert_eq!(*seen.lock().unwrap(), [(0, 100)], "PROGRESS-1");
        meter.add(10);
        assert_eq!(*seen.lock().unwrap(), [(0, 100), (50, 100)]);
    }

    #[test]
    fn nobody_watches() {
        let meter = Meter::begin(None, Phase::Read, 1, 1);
        meter.add(2);
        meter.tell();
    }
}
