//! `varve check`.

use std::io::{self, Write};
use std::path::Path;

use crate::Outcome;
use crate::keys::KeyArgs;

pub fn run(dir: &Path, keys: &KeyArgs) -> Result<Outcome, String> {
    let keys = keys.read().map_err(|e| e.to_string())?;
    let mut out = io::stdout().lock();
    // The exit status tells also who reads no more.
    let summary = varve::offline::check(dir, keys, &mut |finding| drop(writeln!(out, "{finding}")));
    let s = summary.map_err(|e| e.to_string())?;
    let _ = writeln!(
        out,
        "{} pages in {} tablespaces, {} rows in {} tables checked: {} damaged, {} notes",
        s.pages, s.tablespaces, s.rows, s.tables, s.damages, s.notes
    );
    Ok(match s.damages {
        0 => Outcome::Clean,
        _ => Outcome::Found,
    })
}
