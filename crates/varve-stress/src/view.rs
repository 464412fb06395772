//! A session that holds a read view for a whole round, while the others change and delete what it sees.
//!
//! It reads the tables when its view is open, and again when the round is to end; then it goes on until it is
//! killed in the middle (STRESS-4).
//!
//! Undo that a view needs is not purged, so nobody can empty an undo tablespace meanwhile; a transaction that
//! has read a table keeps it from being altered. So not every round has such a session.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::round::{Round, expected_end};
use crate::store::{Failure, Outcome, Store};

pub fn hold_until_killed(store: Outcome<impl Store>, tables: &[&str], round: &Round) -> Result<()> {
    match store {
        Ok(mut store) => match hold(&mut store, tables, round)? {
            Failure::Lost(_) if round.over.load(Ordering::SeqCst) => Ok(()),
            failure => bail!("a long view got {failure}"),
        },
        Err(failure) => expected_end(Err(failure), round),
    }
}

/// STRESS-4. Returns what ended it.
fn hold(store: &mut impl Store, tables: &[&str], round: &Round) -> Result<Failure> {
    if let Err(failure) = store.begin_view() {
        return Ok(failure);
    }
    let mut first = Vec::new();
    for &table in tables {
        match look(store, table)? {
            Ok(rows) => first.push((table, rows)),
            // Altered since the view was opened, or about to be.
            Err(Failure::Conflict(_)) => {}
            Err(failure) => return Ok(failure),
        }
    }
    round.view_is_open.store(true, Ordering::SeqCst);
    while !round.is_ending.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(2));
    }
    loop {
        for (table, first) in &first {
            let again = match look(store, table)? {
                Ok(rows) => rows,
                Err(failure) => return Ok(failure),
            };
            if again != *first {
                bail!("{table} shows {again} to a view to which it showed {first} before");
            }
        }
        round.view_is_compared.store(true, Ordering::SeqCst);
    }
}

/// How many rows there are and what they add up to, the same by every index.
fn look(store: &mut impl Store, table: &str) -> Result<Outcome<String>> {
    let by_index = match store.sums(table) {
        Ok(by_index) => by_index,
        Err(failure) => return Ok(Err(failure)),
    };
    if by_index.iter().any(|sums| *sums != by_index[0]) {
        bail!("{table} shows different rows to a view by its indexes: {by_index:?}");
    }
    Ok(Ok(by_index[0].clone()))
}
