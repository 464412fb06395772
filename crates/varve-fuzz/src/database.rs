//! A whole database whose pages have right checksums and wrong contents.
//!
//! What holds, whatever the bytes are: opening, checking, reading, writing, purging, DDL and closing end,
//! with or without an error, and no thread panics. `tests/damaged_pages.rs` of the engine does the same at
//! length, and says what the errors name.
//!
//! Input: changes of pages (which page, where in it, how many bytes, the bytes).

use std::time::Duration;

use varve::internals::page::seal;
use varve::{Database, Isolation, LockMode, Result, TableDef};
use varve_sim::sample::{PAGE, WAYS, change, definitions, insert, open, read_all};
use varve_sim::{SimDisk, panics};

use crate::input::Input;
use crate::sample::{self, StoredPage};

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let disk = sample::closed_disk();
    let pages = sample::pages();
    let mut changed: Vec<(usize, StoredPage)> = Vec::new();
    while !input.is_empty() && changed.len() < 8 {
        let n = input.below(pages.len());
        let place = match changed.iter().position(|(m, _)| *m == n) {
            Some(place) => place,
            None => {
                changed.push((n, pages[n].clone()));
                changed.len() - 1
            }
        };
        let (at, len) = (input.below(PAGE), 1 + input.below(8));
        let bytes = input.bytes(len);
        let to = &mut changed[place].1.bytes[at..];
        let len = bytes.len().min(to.len());
        to[..len].copy_from_slice(&bytes[..len]);
    }
    for (_, page) in &mut changed {
        seal(&mut page.bytes);
        page.place.write(&disk, &page.bytes);
    }
    panics::listen();
    let _ = use_database(&disk);
    let panics = panics::take();
    assert!(panics.is_empty(), "{panics:#?}");
}

/// Everything that a user may do, whatever comes of it.
fn use_database(disk: &SimDisk) -> Result<()> {
    let db = open(disk)?;
    let ignore = |_: Result<()>| ();
    for def in definitions() {
        let Ok(table) = db.table(&def.name) else {
            ignore(db.drop_table(&def.name));
            continue;
        };
        for index in 0..=def.indexes.len() {
            for lock in [LockMode::None, LockMode::Exclusive] {
                for way in WAYS {
                    ignore(read_all(&db, &def.name, index, lock, way).map(drop));
                }
            }
        }
        ignore(db.check_table(&table).map(drop));
        ignore(write(&db, &def));
    }
    let xids = db.prepared();
    xids.iter().for_each(|xid| ignore(db.commit_prepared(xid)));
    db.wait_for_purge(Duration::from_millis(5));
    ignore(db.truncate_table("a/heap"));
    ignore(db.drop_table("a/t"));
    db.close()
}

fn write(db: &Database, def: &TableDef) -> Result<()> {
    let table = db.table(&def.name)?;
    for commit in [false, true] {
        let mut trx = db.begin(Isolation::RepeatableRead);
        // Duplicates are part of it.
        for id in 0..30 {
            let _ = insert(&mut trx, &table, id * 25, "new");
        }
        change(&mut trx, &table, 9, "newer")?;
        match commit {
            true => trx.commit()?,
            false => trx.rollback()?,
        }
    }
    Ok(())
}

/// A change of each page, at fields that its kind has.
pub fn seeds() -> Vec<Vec<u8>> {
    let wide = sample::pages().len() > 256;
    let change = |n: usize| {
        let page = match wide {
            true => (n as u16).to_le_bytes().to_vec(),
            false => vec![n as u8],
        };
        let at = [52u16, 58, 60, 68, 72, 80, 88, 92, 100, 2000, 4000][n % 11];
        [&page[..], &at.to_le_bytes(), &[3, 1, 0, 0, 0]].concat()
    };
    let mut seeds = vec![Vec::new()];
    seeds.extend((0..sample::pages().len()).step_by(3).map(change));
    seeds
}
