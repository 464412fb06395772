//! Differences that are meant, or not Varve's, each with its reason and as narrow a pattern as will do.
//!
//! After one the tables may differ, so the statements end there; one that leaves nothing behind does not end
//! them.

use crate::compare::{Difference, What};

pub struct Known {
    pub name: &'static str,
    pub reason: &'static str,
    /// The rows are the same afterwards.
    pub goes_on: bool,
    matches: fn(&Difference) -> bool,
}

pub const KNOWN: &[Known] = &[];

pub fn known(difference: &Difference) -> Option<&'static Known> {
    KNOWN.iter().find(|known| (known.matches)(difference))
}
