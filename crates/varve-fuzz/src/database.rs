//! A whole database whose pages have right checksums and wrong contents.
//!
//! What holds, whatever the bytes are: opening, checking, reading, writing, purging, DDL and closing end, with or without an
//! error, and no thread panics. `tests/damaged_pages.rs` of the engine does the same at length, and says what the errors name.
//!
//! Input: changes of pages (which page, where in it, how many bytes, the bytes).

use std::path::Path;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use varve::page::seal;
use varve::{Database, Isolation, LockMode, LogLevel, Options, Result, TableDef};
use varve_sim::SimDisk;

use crate::input::Input;
use crate::sample::{self, DIR, PAGE, StoredPage};

/// Rows that a scan of a good table can't have.
const TOO_MANY: usize = 1_000_000;

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
        sample::write(&disk, &page.file, &page.bytes, page.no * PAGE as u64);
    }
    listen_to_panics();
    let _ = use_database(&disk);
    let panics = std::mem::take(&mut *heard());
    assert!(panics.is_empty(), "{panics:#?}");
}

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn heard() -> std::sync::MutexGuard<'static, Vec<String>> {
    PANICS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Panics of background threads are caught and poison the database, so they have to be heard here.
fn listen_to_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            heard().push(info.to_string());
            before(info);
        }));
    });
}

/// Everything that a user may do, whatever comes of it.
fn use_database(disk: &SimDisk) -> Result<()> {
    let options = Options {
        logger: Some(Arc::new(|_: LogLevel, _: &str| {})),
        ..sample::options()
    };
    let db = Database::open_on(Arc::new(disk.clone()), Path::new(DIR), options)?;
    let ignore = |_: Result<()>| ();
    for def in sample::definitions() {
        let Ok(table) = db.table(&def.name) else {
            ignore(db.drop_table(&def.name));
            continue;
        };
        for index in 0..=def.indexes.len() {
            for lock in [LockMode::None, LockMode::Exclusive] {
                ignore(read_all(&db, &def.name, index, lock));
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

fn read_all(db: &Database, name: &str, index: usize, lock: LockMode) -> Result<()> {
    let table = db.table(name)?;
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(index)?;
    for forward in [true, false] {
        let mut more = match forward {
            true => cursor.first(&mut trx, lock)?,
            false => cursor.last(&mut trx, lock)?,
        };
        let mut n = 0;
        while more {
            n += 1;
            assert!(n < TOO_MANY, "a scan that does not end");
            cursor.row()?;
            more = match forward {
                true => cursor.next(&mut trx)?,
                false => cursor.prev(&mut trx)?,
            };
        }
    }
    Ok(())
}

fn write(db: &Database, def: &TableDef) -> Result<()> {
    let table = db.table(&def.name)?;
    for commit in [false, true] {
        let mut trx = db.begin(Isolation::RepeatableRead);
        // Duplicates are part of it.
        for id in 0..30 {
            let _ = sample::insert(&mut trx, &table, id * 25, "new");
        }
        sample::change(&mut trx, &table, 9, "newer")?;
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
