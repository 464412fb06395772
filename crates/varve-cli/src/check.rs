//! `varve check`.

use crate::Outcome;

pub fn run(dir: &str) -> Result<Outcome, String> {
    let summary = varve::offline::check(dir, &mut |finding| println!("{finding}"));
    let s = summary.map_err(|e| e.to_string())?;
    println!(
        "{} pages in {} tablespaces, {} rows in {} tables checked: {} damaged, {} notes",
        s.pages, s.tablespaces, s.rows, s.tables, s.damages, s.notes
    );
    Ok(match s.damages {
        0 => Outcome::Clean,
        _ => Outcome::Found,
    })
}
