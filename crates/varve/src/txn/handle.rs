//! Handles on a database's core, which transactions hold as long as they live.
//!
//! A count of references that all transactions shared would be written by all processors, twice for each
//! transaction. So a database has some handles, each with a count of its own in a cache line of its own, and
//! a thread's transactions count at the thread's.

use std::array;
use std::ops::Deref;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use super::core::Core;
use crate::base::thread_spot;

const HANDLES: usize = 32;

/// Keeps a core; stands for it everywhere.
#[derive(Clone)]
pub struct CoreHandle(Arc<CachePadded<Arc<Core>>>);

impl From<Arc<Core>> for CoreHandle {
    fn from(core: Arc<Core>) -> CoreHandle {
        CoreHandle(Arc::new(CachePadded::new(core)))
    }
}

impl Deref for CoreHandle {
    type Target = Arc<Core>;

    #[inline]
    fn deref(&self) -> &Arc<Core> {
        &self.0
    }
}

/// Handles for the transactions that users begin. The core must not own them, or it would keep itself.
pub struct CoreHandles([CoreHandle; HANDLES]);

impl CoreHandles {
    pub fn new(core: &Arc<Core>) -> CoreHandles {
        CoreHandles(array::from_fn(|_| core.clone().into()))
    }

    /// One for a transaction of this thread.
    #[inline]
    pub fn take(&self) -> CoreHandle {
        self.0[thread_spot() % HANDLES].clone()
    }
}
