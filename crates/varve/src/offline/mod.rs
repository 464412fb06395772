//! What is done to a database that nobody has open: finding damage, and saving what is left of a table.
//!
//! - **OFF-1** No file changes. Files are opened to be read only; what recovery would write stays in memory
//!   (io/overlay.rs).
//! - **OFF-2** Whatever the files hold, there is no panic and no endless loop: what can't be read is told and
//!   passed over.

mod check;
mod files;
mod finding;
mod salvage;

pub use check::{Summary, check};
pub use finding::{Finding, Grade};
pub use salvage::{SalvageSummary, Salvaged, Saved, recovered};

pub use crate::table::TableFile;

#[cfg(feature = "internals")]
pub use {
    crate::table::table_file_on, check::check_on, check::check_with_keys, salvage::recovered_on,
};
