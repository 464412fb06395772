//! One thing that a check has found.

use std::fmt;

use crate::base::PageNo;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// Bytes are not what was written.
    Damage,
    /// Nothing is wrong with it, but it is good to know.
    Note,
}

/// Something that a check has found.
#[derive(Clone, Debug)]
pub struct Finding {
    pub grade: Grade,
    /// Relative to the data directory.
    pub file: String,
    pub page: Option<PageNo>,
    /// What was expected and what was found, or whatever there is to tell.
    pub what: String,
    /// What to do about it.
    pub advice: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grade = match self.grade {
            Grade::Damage => "damage",
            Grade::Note => "note",
        };
        write!(f, "{grade}: {}", self.file)?;
        if let Some(no) = self.page {
            write!(f, ", page {no}")?;
        }
        write!(f, ": {}", self.what)?;
        match self.advice {
            "" => Ok(()),
            advice => write!(f, "; {advice}"),
        }
    }
}

pub(super) mod advice {
    pub const NONE: &str = "";
    pub const TABLE: &str = "restore the table from a backup, or save its rows with `varve dump`";
    pub const INDEX: &str =
        "rebuild the table's indexes (ALTER TABLE ... ENGINE=VARVE): its rows are not concerned";
    pub const DATABASE: &str =
        "restore the database from a backup, or save the rows of its tables with `varve dump`";
    pub const CONTROL: &str =
        "the other copy is used; the next start writes this one anew, copy the database before";
    pub const RESTORED: &str =
        "nothing to do: the next start restores it from the doublewrite file";
    pub const DOUBLEWRITE: &str = "nothing to do: the next start writes the file anew";
}
