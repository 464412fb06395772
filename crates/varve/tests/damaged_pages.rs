//! A page whose checksum is right and whose content is wrong is an error that names it: never a panic, never
//! a loop.
//!
//! What could break here: a count, an offset or a page number from disk that is believed, so that reading it
//! goes out of bounds, waits for its own latch or goes round in circles; an error that does not say which
//! page it is about.
//!
//! The database has everything that opening looks at: definitions, trees of two levels, a history that an old
//! view kept purge from, and a transaction that had not ended. One test changes fields one by one and knows
//! what to expect; one changes records of rows and entries; the last changes random bytes,
//! `VARVE_DAMAGE_ROUNDS` times from `VARVE_SEED` on.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use varve::internals::page::{PageType, SlottedRef, page_id, page_type};
use varve::offline::{check_on, table_file_on};
use varve::{
    ColumnType, Cursor, Database, Error, Isolation, KeyMatch, LockMode, Result, Table, TableDef,
};
use varve_sim::sample::{
    DIR, PAGE, Place, WAYS, change, definitions, insert, open, pages, read_all,
};
use varve_sim::{SimDisk, panics};

#[path = "support/damage.rs"]
mod damage;

use damage::{ROWS, build, build_with, put, u32_at};

// ---- Fields, one by one.

/// Offsets of docs/format.md. The user area of an undo log's first page begins at 88.
const UNDO: usize = 88;

#[test]
fn a_wrong_field_stops_the_opening_with_the_page() {
    let disk = build();
    let of_type = |wanted| move |_: &Path, page: &[u8]| page_type(page) == Some(wanted);
    let with_log = |_: &Path, page: &[u8]| {
        let slot = |n: usize| u32_at(page, 80 + 4 * n);
        page_type(page) == Some(PageType::RsegHeader) && (0..1004).any(|n| slot(n) != u32::MAX)
    };
    let with_history =
        |_: &Path, page: &[u8]| page_type(page) == Some(PageType::History) && u32_at(page, 48) > 0;
    let queue_header = |_: &Path, page: &[u8]| {
        page_type(page) == Some(PageType::RsegHeader) && u32_at(page, 56) != u32::MAX
    };
    let running = |_: &Path, page: &[u8]| {
        page_type(page) == Some(PageType::UndoLog) && page[UNDO] == 1 && u32_at(page, UNDO + 20) > 2
    };
    let further = |_: &Path, page: &[u8]| page_type(page) == Some(PageType::UndoPage);
    type Pick<'a> = &'a dyn Fn(&Path, &[u8]) -> bool;
    let header = of_type(PageType::RsegHeader);
    let directory = of_type(PageType::UndoDir);
    let none = u32::MAX.to_le_bytes();
    let cases: Vec<(&str, Pick<'_>, usize, Vec<u8>)> = vec![
        ("type of a segment header", &header, 12, vec![3]),
        ("type that does not exist", &header, 12, vec![77]),
        ("number of a segment", &header, 48, vec![99, 0, 0, 0]),
        ("slots of a segment", &header, 52, vec![1, 2, 3, 4]),
        (
            "free page taken for a queue",
            &queue_header,
            56,
            vec![3, 0, 0, 0],
        ),
        ("queue's first page", &queue_header, 56, vec![0, 0, 9, 0]),
        ("queue without its tail", &queue_header, 56, none.to_vec()),
        ("queue's position", &queue_header, 60, none.to_vec()),
        ("queue's tail", &queue_header, 64, vec![2, 0, 0, 0]),
        ("queue without a tail", &queue_header, 64, none.to_vec()),
        ("slot of a log", &with_log, 80, vec![2, 0, 0, 0]),
        ("slot beyond the file", &with_log, 84, vec![0, 0, 0, 1]),
        (
            "number of entries",
            &with_history,
            48,
            vec![255, 255, 255, 255],
        ),
        ("entry's number", &with_history, 80, vec![255; 8]),
        ("entry's transaction", &with_history, 88, vec![255; 7]),
        ("entry that closes nothing", &with_history, 95, vec![0]),
        ("entry's page", &with_history, 95, vec![0, 255, 255, 0, 0]),
        ("entry's records", &with_history, 100, vec![255, 255, 0, 0]),
        ("queue that goes round", &with_history, 68, vec![]),
        ("state of a log", &running, UNDO, vec![9]),
        ("committed log in a slot", &running, UNDO, vec![2]),
        ("kind of a log", &running, UNDO + 1, vec![0]),
        ("slot in a log", &running, UNDO + 4, vec![1, 1]),
        ("transaction of a log", &running, UNDO + 8, vec![255; 7]),
        ("first record of a log", &running, UNDO + 6, vec![255, 255]),
        ("last page of a log", &running, UNDO + 16, vec![2, 0, 0, 0]),
        ("pages of a log", &running, UNDO + 20, vec![1, 0, 0, 0]),
        ("no pages of a log", &running, UNDO + 20, vec![0, 0, 0, 0]),
        ("page owned by another", &further, 48, vec![1, 0, 0, 0]),
        ("page that leads to itself", &further, UNDO, vec![]),
        ("no undo tablespaces", &directory, 48, vec![0]),
        ("too many undo tablespaces", &directory, 48, vec![96]),
        ("undo tablespace that is a table", &directory, 56, vec![3]),
        ("undo tablespace twice", &directory, 56, vec![2]),
        ("root of the definitions", &directory, 52, vec![1, 0, 0, 0]),
        ("root beyond the file", &directory, 52, vec![0, 0, 1, 0]),
    ];
    for (what, pick, at, bytes) in cases {
        let mut refused = 0;
        let places = pages(&disk, pick);
        assert!(!places.is_empty(), "{what}: no such page");
        for place in places.iter().take(40) {
            let disk = disk.copy();
            place.change(&disk, |page| match bytes.is_empty() {
                true => put(page, at, &(place.no as u32).to_le_bytes()),
                false => put(page, at, &bytes),
            });
            match open(&disk) {
                Err(Error::Corrupt { .. }) => refused += 1,
                Err(e) => panic!("{what}, {place:?}: {e:?}"),
                // A page that a committed log has, and that only purge will look at; or the rollback in the
                // background, which stops the database.
                Ok(db) => {
                    refused += u32::from(!db.wait_for_recovery(Duration::from_secs(60)));
                    db.crash();
                }
            }
        }
        assert!(refused > 0, "{what}: opened with each of {places:?}");
    }
}

// ---- Records of rows and entries.

/// The rightmost leaf of an index: it has no high fence, so that its last key may become longer.
fn last_leaf(disk: &SimDisk, index: u64) -> Place {
    let mut found = pages(disk, |_, page| {
        page_type(page) == Some(PageType::Leaf) && {
            let p = SlottedRef::new(page);
            p.owner() == index && p.high().is_none() && p.n_slots() > 0
        }
    });
    assert_eq!(found.len(), 1);
    found.remove(0)
}

/// Where the last record of a leaf begins, and the lengths of its key (without the page's prefix) and its
/// payload.
fn last_record(page: &[u8]) -> (usize, (usize, usize)) {
    let p = SlottedRef::new(page);
    let (key, payload) = p.entry(p.n_slots() - 1);
    let key_at = key.as_ptr() as usize - page.as_ptr() as usize;
    (key_at - 2, (key.len(), payload.len()))
}

#[test]
fn a_damaged_record_is_told_with_page_table_and_index() {
    let disk = build();
    let db = open(&disk).unwrap();
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    // A text of 21 bytes, as many as a reference to an external value has.
    let last = 70 * ROWS;
    let fill = &"the last row ......"[..19 - last.to_string().len()];
    insert(&mut trx, &table, last, fill).unwrap();
    trx.commit().unwrap();
    // Or the next opening would go on to roll back, and merge the leaf that was damaged into another.
    assert!(db.wait_for_recovery(Duration::from_secs(60)));
    assert!(db.wait_for_purge(Duration::from_secs(60)));
    let def = table.def().clone();
    db.close().unwrap();
    let (row, entry) = (def.primary.id.0, def.indexes[0].id.0);
    // Of a page, where its last record begins and how long key and payload are.
    type Damage = fn(&mut [u8], usize, (usize, usize));
    let cases: [(&str, u64, &str, Damage); 6] = [
        ("a short row", row, "PRIMARY", |page, at, (key, payload)| {
            // The key takes all but 9 bytes of the payload.
            put(page, at, &((key + payload - 9) as u16).to_le_bytes());
        }),
        ("a schema version", row, "PRIMARY", |page, at, (key, _)| {
            put(page, at + 2 + key + 15, &[9, 9]);
        }),
        (
            "flags that deny an external value",
            row,
            "PRIMARY",
            |page, at, (key, payload)| page[at + 2 + key + payload - 21 - 1] |= 0x80,
        ),
        ("an older version", row, "PRIMARY", |page, at, (key, _)| {
            // Written by nobody, and its RollPtr leads to no undo record.
            put(page, at + 2 + key + 1, &[255, 255, 255, 255, 0, 0, 0]);
            put(page, at + 2 + key + 8, &[7, 0, 9, 0, 0, 0, 40]);
        }),
        ("a short entry", entry, "k", |page, at, (key, _)| {
            put(page, at, &((key + 3) as u16).to_le_bytes());
        }),
        ("an entry's row", entry, "k", |page, at, (key, payload)| {
            // As long as an entry that says how long its clustered key is.
            assert_eq!(payload, 8);
            put(page, at, &((key - 2) as u16).to_le_bytes());
            put(page, at + key + payload, &[255, 255]);
        }),
    ];
    for (what, index, name, damage) in cases {
        let disk = disk.copy();
        let place = last_leaf(&disk, index);
        place.change(&disk, |page| {
            let (at, lengths) = last_record(page);
            damage(page, at, lengths);
        });
        let id = page_id(&place.read(&disk));
        let db = open(&disk).unwrap_or_else(|e| panic!("{what}: {e}"));
        db.wait_for_recovery(Duration::from_secs(60));
        for lock in [LockMode::None, LockMode::Exclusive] {
            for way in WAYS {
                let number = usize::from(name != "PRIMARY");
                let read = read_all(&db, "a/t", number, lock, way);
                if what == "an older version" && lock != LockMode::None {
                    // A locking read wants the newest version.
                    continue;
                }
                match read {
                    Err(Error::Corrupt { page, expected, .. }) => {
                        let of = format!("of table a/t, index {name}");
                        assert_eq!(page, id, "{what}, {lock:?}: {expected}");
                        assert!(expected.contains(&of), "{what}, {lock:?}: {expected}");
                    }
                    other => panic!("{what}, {lock:?}, {way:?}: {other:?}"),
                }
            }
        }
        db.crash();
    }
}

// ---- Random bytes.

fn random_damage(page: &mut [u8], rng: &mut SmallRng, other_pages: u32) {
    for _ in 0..rng.random_range(1..4) {
        let at = match rng.random_range(0..10) {
            0 => 12,
            1..7 => rng.random_range(48..200),
            _ => rng.random_range(48..PAGE - 8),
        };
        let word = match rng.random_range(0..6) {
            0 => 0,
            1 => u64::MAX,
            2 => u64::from(rng.random_range(0..other_pages)),
            3 => rng.random_range(0..4000),
            _ => rng.random(),
        };
        let width = [1, 2, 4, 7, 8].choose(rng).copied().unwrap_or(1);
        put(
            page,
            at,
            &word.to_le_bytes()[..if at == 12 { 1 } else { width }],
        );
        if at == 12 {
            page[12] %= 13;
        }
    }
}

/// What `varve check` and `varve dump` do (OFF-2).
fn look_at_files(disk: &SimDisk) -> Result<()> {
    check_on(Arc::new(disk.clone()), Path::new(DIR), &mut |_| {})?;
    for file in disk.files() {
        if let Ok(file) = table_file_on(disk, &file) {
            let _ = file.salvage(&mut |_| Ok(()));
        }
    }
    Ok(())
}

/// Everything that a user may do, whatever comes of it.
fn use_database(disk: &SimDisk, buffered: bool) -> Result<()> {
    look_at_files(disk)?;
    let db = open(disk)?;
    db.buffer_all_changes(buffered);
    let ignore = |_: Result<()>| ();
    for def in definitions() {
        let Ok(table) = db.table(&def.name) else {
            ignore(db.drop_table(&def.name));
            continue;
        };
        for index in 0..=def.indexes.len() {
            for lock in [LockMode::None, LockMode::Shared] {
                for way in WAYS {
                    ignore(read_all(&db, &def.name, index, lock, way).map(drop));
                }
            }
            ignore(table.records_in_range(index, None, None).map(drop));
        }
        ignore(use_table(&db, &table));
        ignore(db.check_table(&table).map(drop));
        ignore(db.merge_changes(&def.name, 100).map(drop));
    }
    db.wait_for_purge(Duration::from_millis(20));
    ignore(
        db.create_table(&TableDef::new("b/new").column("id", ColumnType::i64()))
            .map(drop),
    );
    ignore(db.rename_table("a/t", "b/t"));
    ignore(db.truncate_table("a/heap"));
    ignore(db.drop_table("a/heap"));
    db.close()
}

fn use_table(db: &Database, table: &Table) -> Result<()> {
    for commit in [false, true] {
        let mut trx = db.begin(Isolation::RepeatableRead);
        for id in 0..ROWS + 20 {
            // Duplicates are part of it.
            let _ = insert(&mut trx, table, id * 5, "new");
        }
        let savepoint = trx.savepoint();
        let _ = change(&mut trx, table, 5, "new");
        trx.rollback_to(savepoint)?;
        change(&mut trx, table, 6, "newer")?;
        match commit {
            true => trx.commit()?,
            false => trx.rollback()?,
        }
    }
    let mut trx = db.begin(Isolation::ReadCommitted);
    let mut cursor: Cursor = table.cursor(0)?;
    let key = [Some(&[0; 8][..])];
    let parts = table.def().primary.parts.len().min(1);
    cursor.seek(&mut trx, &key[..parts], KeyMatch::AtLeast, LockMode::None)?;
    Ok(())
}

#[test]
fn random_damage_is_an_error_at_worst() {
    let number = |name: &str, default| match std::env::var(name) {
        Ok(n) => n.parse().unwrap(),
        Err(_) => default,
    };
    let (rounds, first): (u64, u64) = (number("VARVE_DAMAGE_ROUNDS", 150), number("VARVE_SEED", 1));
    let originals = [false, true].map(|buffered| {
        let original = build_with(buffered);
        let all = pages(&original, |_, page| page[12] != 0);
        let mut types: Vec<u8> = all.iter().map(|p| p.read(&original)[12]).collect();
        types.sort_unstable();
        types.dedup();
        assert!(types.len() >= 10, "page types in the database: {types:?}");
        (original, all, types)
    });
    panics::listen();
    let mut failed = 0;
    for seed in first..first + rounds {
        let mut rng = SmallRng::seed_from_u64(seed);
        let buffered = seed.is_multiple_of(2);
        let (original, all, types) = &originals[usize::from(buffered)];
        let wanted = *types.choose(&mut rng).unwrap();
        let of_type: Vec<_> = all
            .iter()
            .filter(|p| p.read(original)[12] == wanted)
            .collect();
        let place = (*of_type.choose(&mut rng).unwrap()).clone();
        let disk = original.copy();
        place.change(&disk, |page| random_damage(page, &mut rng, 100));
        let (done, finished) = mpsc::channel();
        std::thread::spawn(move || {
            let body = std::panic::AssertUnwindSafe(|| use_database(&disk, buffered));
            let _ = done.send(std::panic::catch_unwind(body).map_err(drop));
        });
        let context =
            format!("VARVE_SEED={seed} VARVE_DAMAGE_ROUNDS=1, page type {wanted}, {place:?}");
        match finished.recv_timeout(Duration::from_secs(120)) {
            Ok(result) => failed += u64::from(!matches!(result, Ok(Ok(())))),
            Err(_) => panic!("{context}: still at work"),
        }
        let panics = panics::take();
        assert!(panics.is_empty(), "{context}: {panics:#?}");
    }
    println!("{failed} of {rounds} rounds ended with an error that stopped the database");
    assert!(rounds < 50 || failed > 0, "no damage was noticed");
}
