//! A database with a page of every kind, whose files are damaged on purpose.

#![allow(dead_code, reason = "each test uses its part")]

use std::time::Duration;

use varve::Isolation;
use varve_sim::SimDisk;
use varve_sim::sample::{change, definitions, insert, open};

pub const ROWS: i64 = 400;

/// A database that was closed while a view was open and a transaction had not ended: it has a page of every
/// kind.
pub fn build() -> SimDisk {
    build_with(false)
}

/// The same; changes are buffered where they can be, or are not.
pub fn build_with(buffered: bool) -> SimDisk {
    let disk = SimDisk::default();
    let db = open(&disk).unwrap();
    db.buffer_all_changes(buffered);
    let tables = definitions().map(|def| db.create_table(&def).unwrap());
    for table in &tables {
        let mut trx = db.begin(Isolation::RepeatableRead);
        (0..ROWS).for_each(|id| insert(&mut trx, table, id, "first").unwrap());
        trx.commit().unwrap();
    }
    assert!(db.wait_for_purge(Duration::from_secs(60)));
    let mut old = db.begin(Isolation::RepeatableRead);
    old.take_snapshot();
    for round in 0..5 {
        for table in &tables {
            let mut trx = db.begin(Isolation::RepeatableRead);
            change(&mut trx, table, 7 + round, "changed").unwrap();
            insert(&mut trx, table, ROWS + round, "late").unwrap();
            match round {
                3 => trx.rollback().unwrap(),
                _ => trx.commit().unwrap(),
            }
        }
    }
    let mut taken_back = db.begin(Isolation::RepeatableRead);
    let long = (160..200).map(|n| n * 16);
    long.for_each(|id| insert(&mut taken_back, &tables[2], id, "freed").unwrap());
    taken_back.rollback().unwrap();
    let mut loser = db.begin(Isolation::RepeatableRead);
    for table in &tables {
        (0..60).for_each(|id| insert(&mut loser, table, 2 * ROWS + id, "lost").unwrap());
        change(&mut loser, table, 4, "a change that is lost").unwrap();
    }
    db.close().unwrap();
    drop((old, loser));
    disk
}

pub fn u32_at(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(page[at..at + 4].try_into().unwrap())
}

pub fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}
