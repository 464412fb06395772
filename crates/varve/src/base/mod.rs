//! What every layer shares: ids, `Lsn`, errors, metrics, logging. No I/O.

mod error;
mod ids;
pub mod sync;

pub use error::{Error, Result};
pub use ids::*;
