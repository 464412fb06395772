//! What every layer shares: ids, `Lsn`, errors, metrics, logging. No I/O.

mod crowd;
mod durations;
mod error;
mod hash;
mod ids;
pub mod instruments;
mod memory_limit;
#[cfg(all(test, loom))]
pub mod model;
mod packed;
mod progress;
mod recently;
mod sabotage;
mod spread;
mod stops;
pub mod sync;
pub mod threads;
mod together;
pub mod varint;
mod xid;

pub use crowd::Crowd;
pub use durations::Durations;
pub use error::{BadForeignKey, Error, NoParent, ReferenceError, Result};
pub use hash::fnv1a;
pub use ids::*;
pub use memory_limit::{MemoryGroup, MemoryLimit, memory_groups};
pub use packed::{RowHead, put_pair, take_pair, writer_of};
pub use progress::{Meter, Phase, Progress, Watch};
pub use recently::Recently;
pub use sabotage::Sabotage;
pub use spread::{Counter, thread_spot};
pub use stops::{StopPoint, Stops};
pub use together::{DISK_THREADS, map_together};
pub use xid::{XID_MAX_ENCODED, Xid};

/// Asked every so often by what may take long; an error ends that.
pub type GoingOn<'a> = &'a dyn Fn() -> Result<()>;

/// How many threads can run at the same time; 1 if nobody can tell.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
