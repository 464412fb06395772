//! `varve check`: what is sound is called sound, and damage of every kind of page and file is found.
//!
//! What could break here: damage that nobody notices; a sound database that is called damaged, for instance
//! because it was not closed, or has a collation of its caller; a check that changes something.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use varve::internals::io::{Disk, OpenMode};
use varve::internals::page::{PageType, SlottedRef, page_type};
use varve::offline::{Finding, Grade, Salvaged, Summary, check_on, table_file_on};
use varve::{ColumnType, Database, Error, TableDef};
use varve_sim::sample::{self, DIR, PAGE, Place, open, pages};
use varve_sim::{CrashPoints, SimDisk};

#[path = "support/damage.rs"]
mod damage;

use damage::build;

fn check(disk: &SimDisk) -> (Summary, Vec<Finding>) {
    let mut findings = Vec::new();
    let before = disk.operations();
    let tell = &mut |f: &Finding| findings.push(f.clone());
    let summary = check_on(Arc::new(disk.clone()), Path::new(DIR), tell).unwrap();
    assert_eq!(
        disk.operations(),
        before,
        "OFF-1: the check changed something"
    );
    (summary, findings)
}

fn damages(findings: &[Finding]) -> Vec<String> {
    let damage = findings.iter().filter(|f| f.grade == Grade::Damage);
    damage.map(Finding::to_string).collect()
}

/// Closed cleanly, with nothing left to purge.
fn closed() -> SimDisk {
    let disk = build();
    let db = open(&disk).unwrap();
    let patience = std::time::Duration::from_secs(60);
    assert!(db.wait_for_recovery(patience) && db.wait_for_purge(patience));
    db.close().unwrap();
    disk
}

#[test]
fn a_sound_database_is_called_sound() {
    let disk = build();
    for disk in [closed(), disk] {
        let (summary, findings) = check(&disk);
        assert_eq!(damages(&findings), [""; 0]);
        assert_eq!(summary.tables, 3);
        assert!(summary.rows > 900 && summary.pages > 300, "{summary:?}");
        // Again after a crash.
        let db = open(&disk).unwrap();
        let mut trx = db.begin(varve::Isolation::RepeatableRead);
        let table = db.table("a/t").unwrap();
        for id in 5000..5100 {
            sample::insert(&mut trx, &table, id, "not committed").unwrap();
        }
        db.flush_log().unwrap();
        std::mem::forget(trx);
        db.crash();
        let (summary, findings) = check(&disk);
        assert_eq!(damages(&findings), [""; 0]);
        assert!(summary.recovery_owed);
    }
}

#[test]
fn each_page_that_has_a_flipped_bit_is_found() {
    let original = build();
    for number in 1..=12u8 {
        let ptype = PageType::from_u8(number).unwrap();
        let places = pages(&original, |_, page| page_type(page) == Some(ptype));
        assert!(!places.is_empty(), "no page of type {ptype:?}");
        let place = &places[places.len() / 2];
        for at in [4, 30, 60, 200, PAGE - 1] {
            let disk = original.copy();
            let mut page = place.read(&disk);
            page[at] ^= 4;
            place.write(&disk, &page);
            let (_, findings) = check(&disk);
            let name = place.file.strip_prefix(DIR).unwrap().to_str().unwrap();
            let of_page = |f: &Finding| {
                f.grade == Grade::Damage
                    && f.file == name
                    && f.page.is_none_or(|p| u64::from(p.0) == place.no)
            };
            assert!(
                findings.iter().any(of_page),
                "{ptype:?} {place:?} byte {at}: {findings:#?}"
            );
        }
    }
}

/// Damage of a page that leaves its checksum right, and what finds it.
type Damage = fn(&SimDisk, &Place, &[Place]) -> bool;

/// Zeros instead of the page: nothing was written there, says the disk.
fn zeroed(disk: &SimDisk, place: &Place, _: &[Place]) -> bool {
    place.write(disk, &[0; PAGE]);
    true
}

/// Another page of the file of the same type: written to the wrong place.
fn swapped(disk: &SimDisk, place: &Place, others: &[Place]) -> bool {
    let other = (others.iter()).find(|o| o.file == place.file && o.no != place.no);
    other.is_some_and(|other| {
        place.write(disk, &other.read(disk));
        true
    })
}

/// Half of the page is another one's.
fn torn(disk: &SimDisk, place: &Place, _: &[Place]) -> bool {
    let mut page = place.read(disk);
    page[PAGE / 2..].fill(0x5a);
    place.write(disk, &page);
    true
}

#[test]
fn pages_that_are_lost_or_elsewhere_are_found() {
    let original = build();
    let damages: [(&str, Damage); 3] = [("zeroed", zeroed), ("swapped", swapped), ("torn", torn)];
    for number in 1..=12u8 {
        let ptype = PageType::from_u8(number).unwrap();
        let places = pages(&original, |_, page| page_type(page) == Some(ptype));
        for (what, damage) in damages {
            // A page of zeros is a free page as good as any.
            if (ptype, what) == (PageType::Free, "zeroed") {
                continue;
            }
            for place in [
                &places[0],
                &places[places.len() / 2],
                &places[places.len() - 1],
            ] {
                let disk = original.copy();
                if !damage(&disk, place, &places) {
                    continue;
                }
                let context = format!("{ptype:?} {what} {place:?}");
                let (_, findings) = check(&disk);
                assert!(finds(&findings, place), "{context}: {findings:#?}");
                // What a free page holds means nothing to who takes it.
                let is_restored = findings.iter().any(|f| f.advice.contains("restores"));
                if ptype != PageType::Free && !is_restored {
                    others_work(&disk, place, &context);
                }
            }
        }
    }
}

/// Files that are gone, shorter, or in each other's place.
#[test]
fn files_that_are_lost_cut_or_exchanged_are_found() {
    let original = closed();
    let mut files = original.files();
    let means_nothing = ["temp.vdt", "doublewrite.vdw", "truncate.spare"];
    files.retain(|f| !means_nothing.iter().any(|name| f.ends_with(name)));
    for file in &files {
        let name = file.strip_prefix(DIR).unwrap().to_str().unwrap();
        let place = Place {
            file: file.clone(),
            no: 0,
        };
        let is_redo = name.starts_with("redo/");
        let disk = original.copy();
        disk.remove(file).unwrap();
        let (_, findings) = check(&disk);
        // A spare log file holds nothing.
        if is_redo && damages(&findings).is_empty() {
            open(&disk).unwrap().crash();
            continue;
        }
        let told = damages(&findings).join("\n");
        assert!(told.contains(name) || is_redo, "{name} is missing: {told}");
        others_work(&disk, &place, &format!("{name} is missing"));

        let disk = original.copy();
        let cut = disk.open(file, OpenMode::Existing).unwrap();
        // What lies behind the pages in use is nobody's.
        let pages = match file.extension() == Some("vdt".as_ref()) {
            true => 3,
            false => cut.len().unwrap() / 2 / PAGE as u64,
        };
        cut.set_len(pages * PAGE as u64).unwrap();
        let (_, findings) = check(&disk);
        let told = damages(&findings).join("\n");
        assert!(told.contains(name), "{name} is cut: {told}");
        others_work(&disk, &place, &format!("{name} is cut"));
    }
    // Files of tables know whose they are: those that changed places are put right at the next start.
    let disk = original.copy();
    let [a, b, c] = ["/db/a/t.vdt", "/db/a/heap.vdt", "/db/x"].map(Path::new);
    for (from, to) in [(a, c), (b, a), (c, b)] {
        disk.rename(from, to).unwrap();
    }
    let (_, findings) = check(&disk);
    assert_eq!(damages(&findings), [""; 0]);
    let db = open(&disk).unwrap();
    for def in sample::definitions() {
        let report = db.check_table(&db.table(&def.name).unwrap()).unwrap();
        assert_eq!(report.errors, [""; 0]);
    }
    db.crash();
}

/// Single bytes of the files that are not made of pages.
#[test]
fn other_files_that_have_a_flipped_bit_are_found() {
    let original = closed();
    let redo = (original.files().into_iter()).find(|f| f.extension() == Some("vlog".as_ref()));
    let redo = redo.unwrap();
    let (control, double) = (Path::new("/db/varve.ctl"), Path::new("/db/doublewrite.vdw"));
    let cases: [(&Path, &[u64]); 3] = [
        (control, &[3, 70, 110, 508, 4096, 4200, 4603]),
        (double, &[3, 65, 70, 4093, 4096, 5000]),
        (&redo, &[3, 70, 90, 509]),
    ];
    for (path, places) in cases {
        for at in places {
            let disk = original.copy();
            let file = disk.open(path, OpenMode::Existing).unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, *at).unwrap();
            file.write_at(&[byte[0] ^ 1], *at).unwrap();
            let (_, findings) = check(&disk);
            let name = path.strip_prefix(DIR).unwrap().to_str().unwrap();
            let told = damages(&findings).join("\n");
            assert!(told.contains(name), "{name} byte {at}: {told}");
            match open(&disk) {
                Ok(db) => db.crash(),
                Err(e) => assert!(e.to_string().contains(name), "{name} byte {at}: {e}"),
            }
        }
    }
}

/// Two copies of zeros are no copies.
#[test]
fn a_control_file_of_zeros_is_damage() {
    let disk = closed();
    let file = disk.open(Path::new("/db/varve.ctl"), OpenMode::Existing);
    file.unwrap().write_at(&[0; 8192], 0).unwrap();
    let told = damages(&check(&disk).1).join("\n");
    assert!(
        told.contains("damage: varve.ctl: expected a copy"),
        "{told}"
    );
    assert!(open(&disk).is_err());
}

/// A crash at any moment of the truncation of an undo tablespace leaves up to two files of it, of which the
/// directory names one.
#[test]
fn an_interrupted_truncation_of_undo_is_sound() {
    let disk = closed();
    let db = open(&disk).unwrap();
    let begun = disk.operations();
    assert!(db.truncate_undo(1, Duration::from_secs(60)).unwrap());
    db.crash();
    let journal = disk.journal();
    let mut points = CrashPoints::new(journal.clone());
    let mut rng = SmallRng::seed_from_u64(1);
    let mut leftovers = BTreeSet::new();
    for at in begun..=journal.len() {
        points.advance(at);
        let (_, findings) = check(&SimDisk::new(points.crash(&mut rng)));
        assert_eq!(damages(&findings), [""; 0], "before operation {at}");
        let names = findings.into_iter().map(|f| f.file);
        leftovers.extend(names.filter(|name| name.starts_with("undo_001")));
    }
    assert!(!leftovers.is_empty(), "no moment between two files");
}

/// SP-7, among others: torn pages, frames, copies and headers, files half made, renamed or removed: what a
/// crash leaves is no damage.
#[test]
fn a_crash_at_any_moment_leaves_a_sound_database() {
    let disk = closed();
    let begun = disk.operations();
    let db = open(&disk).unwrap();
    for round in 0..4i64 {
        for def in sample::definitions() {
            let table = db.table(&def.name).unwrap();
            let mut trx = db.begin(varve::Isolation::RepeatableRead);
            for id in 0..100 {
                sample::insert(&mut trx, &table, 1000 + round * 100 + id, "new").unwrap();
            }
            sample::change(&mut trx, &table, 7, "newer").unwrap();
            match round % 2 {
                0 => trx.commit().unwrap(),
                _ => trx.rollback().unwrap(),
            }
        }
        let mut def = sample::definitions()[2].clone();
        def.name = "b/made".into();
        db.create_table(&def).unwrap();
        db.rename_table("b/made", "c/renamed").unwrap();
        db.truncate_table("a/heap").unwrap();
        db.drop_table("c/renamed").unwrap();
    }
    db.close().unwrap();
    let journal = disk.journal();
    let mut points = CrashPoints::new(journal.clone());
    let mut rng = SmallRng::seed_from_u64(2);
    let step = (journal.len() - begun) / 150 + 1;
    for at in (begun..=journal.len()).step_by(step) {
        points.advance(at);
        let state = points.draw(&mut rng);
        let (_, findings) = check(&SimDisk::new(points.image(&state)));
        let crash = || format!("before operation {at}, {}", points.describe(&state));
        assert_eq!(damages(&findings), [""; 0], "{}", crash());
    }
}

/// What a creation that did not come to its end left is no database, and no damage: the next start begins
/// anew.
#[test]
fn an_interrupted_creation_is_no_database() {
    let disk = closed();
    let mark = disk.open(Path::new("/db/varve.creating"), OpenMode::CreateNew);
    mark.unwrap();
    let refused = check_on(Arc::new(disk), Path::new(DIR), &mut |_| {});
    assert!(
        matches!(refused, Err(Error::NotFound { .. })),
        "{refused:?}"
    );
}

/// CTL-4: the newest copy of the control file is lost; the other one is from before a table was made. Its
/// ids are not given again.
#[test]
fn a_lost_copy_of_the_control_file_gives_no_id_twice() {
    let disk = closed();
    let db = open(&disk).unwrap();
    let def = sample::definitions()[0].clone();
    let named = |name: &str| {
        let mut def = def.clone();
        def.name = name.into();
        def
    };
    db.create_table(&named("b/first")).unwrap();
    db.crash();
    let file = disk
        .open(Path::new("/db/varve.ctl"), OpenMode::Existing)
        .unwrap();
    let sequence = |at: u64| {
        let mut bytes = [0; 8];
        file.read_at(&mut bytes, at + 64).unwrap();
        u64::from_le_bytes(bytes)
    };
    let lose_newest = || {
        let newest = if sequence(0) > sequence(4096) {
            0
        } else {
            4096
        };
        file.write_at(&[0xff; 8], newest + 90).unwrap();
    };
    lose_newest();
    let db = open(&disk).unwrap();
    let first = db.table("b/first").unwrap();
    let second = db.create_table(&named("b/second")).unwrap();
    let ids = |t: &varve::Table| (t.def().id, t.def().space, t.def().primary.id);
    assert_ne!(ids(&first), ids(&second));
    assert!(second.def().id > first.def().id && second.def().space > first.def().space);
    // Undo tablespaces draw from the same ids.
    assert!(db.truncate_undo(1, Duration::from_secs(60)).unwrap());
    db.crash();
    lose_newest();
    let db = open(&disk).unwrap();
    let third = db.create_table(&named("b/third")).unwrap();
    // Nor those of a table that is gone, of which no definition tells.
    db.drop_table("b/third").unwrap();
    db.crash();
    lose_newest();
    let db = open(&disk).unwrap();
    let fourth = db.create_table(&named("b/fourth")).unwrap();
    let (third, fourth) = (ids(&third), ids(&fourth));
    assert!(third.0 < fourth.0 && third.1 < fourth.1 && third.2 < fourth.2);
    db.close().unwrap();
}

/// The control file is older than the redo log, which removes the files of tables that were dropped since:
/// none of them is a new table's.
#[test]
fn a_tablespace_that_redo_removes_is_no_new_tables() {
    let disk = closed();
    let db = open(&disk).unwrap();
    let file = disk.open(Path::new("/db/varve.ctl"), OpenMode::Existing);
    let (file, mut before) = (file.unwrap(), [0; 8192]);
    file.read_at(&mut before, 0).unwrap();
    let mut def = sample::definitions()[0].clone();
    def.name = "b/t".into();
    // More than there are ids that are given before they are written.
    let dropped = (0..20).map(|_| {
        let table = db.create_table(&def).unwrap();
        db.drop_table("b/t").unwrap();
        table.def().space
    });
    let dropped: Vec<_> = dropped.collect();
    db.crash();
    file.write_at(&before, 0).unwrap();
    let db = open(&disk).unwrap();
    let table = db.create_table(&def).unwrap();
    assert!(dropped.iter().all(|gone| *gone < table.def().space));
    db.close().unwrap();
}

/// A page that is as it was some time ago, whole and in its place: a write that the disk lost. It is found
/// where something else contradicts it, and what does so is in the table of docs/testing.md.
#[test]
fn a_write_that_was_lost_is_found_by_what_contradicts_it() {
    let old = closed();
    let disk = old.copy();
    let db = open(&disk).unwrap();
    for def in sample::definitions() {
        let table = db.table(&def.name).unwrap();
        let mut trx = db.begin(varve::Isolation::RepeatableRead);
        sample::change(&mut trx, &table, 3, "newer").unwrap();
        for id in 1000..1200 {
            sample::insert(&mut trx, &table, id, "newer").unwrap();
        }
        trx.commit().unwrap();
    }
    assert!(db.wait_for_purge(std::time::Duration::from_secs(60)));
    db.close().unwrap();
    // What would be restored from the doublewrite file is not the question.
    disk.remove(Path::new("/db/doublewrite.vdw")).unwrap();
    let mut seen: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    for place in pages(&disk, |_, page| page_type(page) != Some(PageType::Unused)) {
        let page = place.read(&disk);
        let len = old
            .open(&place.file, OpenMode::Existing)
            .unwrap()
            .len()
            .unwrap();
        if place.no >= len / PAGE as u64 || place.read(&old) == page {
            continue;
        }
        let stale = disk.copy();
        place.write(&stale, &place.read(&old));
        let is_found = !damages(&check(&stale).1).is_empty();
        let ptype = page_type(&page).unwrap();
        let count = seen.entry(format!("{ptype:?}")).or_default();
        count.0 += 1;
        count.1 += u32::from(is_found);
        if matches!(
            ptype,
            PageType::Leaf | PageType::Inner | PageType::Alloc | PageType::Overflow
        ) {
            assert!(is_found, "{ptype:?} {place:?}");
        }
    }
    println!("changed pages and findings by type: {seen:?}");
    assert!(seen.len() > 4, "{seen:?}");
}

/// Redo log and control file of an earlier time, with newer tablespaces: what the log goes on with would not
/// be applied to newer pages after the next crash.
#[test]
fn a_log_of_another_time_is_found() {
    let old = closed();
    let disk = old.copy();
    let db = open(&disk).unwrap();
    let table = db.table("a/t").unwrap();
    for id in 1000..1100 {
        let mut trx = db.begin(varve::Isolation::RepeatableRead);
        sample::insert(&mut trx, &table, id, "newer").unwrap();
        trx.commit().unwrap();
    }
    db.close().unwrap();
    let is_of_log = |f: &PathBuf| f.starts_with("/db/redo") || f.ends_with("varve.ctl");
    disk.files()
        .iter()
        .filter(|f| is_of_log(f))
        .for_each(|f| disk.remove(f).unwrap());
    for path in old.files().iter().filter(|f| is_of_log(f)) {
        let from = old.open(path, OpenMode::Existing).unwrap();
        let mut bytes = vec![0; from.len().unwrap() as usize];
        from.read_at(&mut bytes, 0).unwrap();
        let to = disk.open(path, OpenMode::CreateNew).unwrap();
        to.write_at(&bytes, 0).unwrap();
    }
    let refused = open(&disk).err().unwrap().to_string();
    assert!(refused.contains("of another time"), "{refused}");
    let told = damages(&check(&disk).1).join("\n");
    assert!(told.contains("of another time"), "{told}");
    assert!(
        told.contains("undo_00") && told.contains(".vdt, page"),
        "{told}"
    );
}

/// Collations of a caller, which the check does not know (COL-2): a sound table is called sound, an entry of
/// no row is found.
#[test]
fn a_table_with_unknown_collations_is_checked() {
    struct Backwards;
    impl varve::Weigh for Backwards {
        fn weights(&self, text: &[u8], out: &mut Vec<u8>) {
            out.extend(text.iter().map(|b| !b));
        }
        fn prefix_bytes(&self, text: &[u8], chars: usize) -> usize {
            text.len().min(chars)
        }
    }
    let id = varve::CollationId(46);
    let pad = varve::Pad::None;
    let collation = varve::Collation::new(id, "backwards", "1", pad, Arc::new(Backwards)).unwrap();
    let options = || varve::Options {
        collations: vec![collation.clone()],
        ..sample::options()
    };
    let disk = SimDisk::default();
    let open = || Database::open_on(Arc::new(disk.clone()), Path::new(DIR), options()).unwrap();
    let text = ColumnType::Text {
        max_bytes: 100,
        collation: id,
    };
    let db = open();
    let def = TableDef::new("a/text")
        .column("a", text)
        .column("b", text)
        .column("n", ColumnType::i64())
        .primary(&["a"])
        .index("b", &["b"])
        .index("n", &["n"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(varve::Isolation::RepeatableRead);
    for n in 0..500i64 {
        let (a, b) = (format!("key {n}"), format!("value {}", n % 7));
        table
            .insert(&mut trx, varve::values![a.as_str(), b.as_str(), n])
            .unwrap();
    }
    trx.commit().unwrap();
    db.close().unwrap();
    let (summary, findings) = check(&disk);
    assert_eq!(damages(&findings), [""; 0]);
    assert_eq!(summary.rows, 500);
    // The last entry names another row: a byte of the clustered key at its key's end, in a page with the
    // right checksum.
    let index = table.def().indexes[0].id.0;
    let leaf = pages(&disk, |_, page| {
        page_type(page) == Some(PageType::Leaf) && {
            let p = SlottedRef::new(page);
            p.owner() == index && p.high().is_none()
        }
    });
    leaf[0].change(&disk, |page| {
        let p = SlottedRef::new(page);
        let (key, _) = p.entry(p.n_slots() - 1);
        // Before the two bytes that end the clustered key; a larger one, so that the keys still ascend.
        let at = key.as_ptr() as usize - page.as_ptr() as usize + key.len() - 3;
        page[at] |= 0x3f;
    });
    let told = damages(&check(&disk).1).join("\n");
    let expected = "index b has entries that name other rows than there are";
    assert!(told.contains(expected), "{told}");
}

/// A database of another version is not called damaged: it can't be judged.
#[test]
fn another_version_is_not_damage() {
    let disk = closed();
    let file = disk
        .open(Path::new("/db/varve.ctl"), OpenMode::Existing)
        .unwrap();
    for at in [0, 4096] {
        let mut copy = [0; 512];
        file.read_at(&mut copy, at).unwrap();
        copy[8] = 99;
        let crc = crc32c::crc32c(&copy[..508]);
        copy[508..].copy_from_slice(&crc.to_le_bytes());
        file.write_at(&copy, at).unwrap();
    }
    let refused = check_on(Arc::new(disk), Path::new(DIR), &mut |_| {});
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );
}

/// DDL-2: the copy of a definition in the table's file names the table as it is called now, also after a
/// crash right behind the rename.
#[test]
fn a_file_knows_what_its_table_is_called() {
    let disk = closed();
    let db = open(&disk).unwrap();
    db.rename_table("a/t", "a/clean").unwrap();
    db.close().unwrap();
    let name = |file: &str| {
        let file = table_file_on(&disk, Path::new(file)).unwrap();
        file.definition().unwrap().name.clone()
    };
    assert_eq!(name("/db/a/clean.vdt"), "a/clean");
    let db = open(&disk).unwrap();
    db.rename_table("a/clean", "a/crashed").unwrap();
    db.crash();
    let db = open(&disk).unwrap();
    let table = db.table("a/crashed").unwrap();
    assert_eq!(db.check_table(&table).unwrap().errors, [""; 0]);
    db.close().unwrap();
    assert_eq!(name("/db/a/crashed.vdt"), "a/crashed");
}

/// Whatever page of a table is lost: all rows of the other pages are saved, and no others.
#[test]
fn the_rows_of_all_other_pages_are_saved() {
    let original = closed();
    let save = |disk: &SimDisk, file: &Path| {
        let mut rows = BTreeSet::new();
        let file = table_file_on(disk, file).unwrap();
        let summary = file.salvage(&mut |salvaged| {
            if let Salvaged::Row {
                is_deleted: false,
                values,
            } = salvaged
            {
                rows.insert(format!("{values:?}"));
            }
            Ok(())
        });
        let summary = summary.unwrap();
        assert_eq!(rows.len() as u64, summary.rows, "a row twice");
        (rows, summary)
    };
    for name in ["a/t", "a/heap", "a/long"] {
        let path = Path::new(DIR).join(format!("{name}.vdt"));
        let (all, summary) = save(&original, &path);
        assert_eq!((summary.lost_values, summary.skipped), (0, 0), "{name}");
        let db = open(&original).unwrap();
        let table = db.table(name).unwrap();
        assert_eq!(all.len() as u64, db.check_table(&table).unwrap().rows);
        let primary = table.def().primary.id.0;
        db.close().unwrap();
        for place in pages(&original, |file, _| file == path) {
            let page = place.read(&original);
            let of_rows = page_type(&page) == Some(PageType::Leaf)
                && SlottedRef::new(&page).owner() == primary;
            let in_it = if of_rows {
                SlottedRef::new(&page).n_slots()
            } else {
                0
            };
            let disk = original.copy();
            match place.no {
                // All of it: the definition is found on page 2.
                0 => place.write(&disk, &[0x5a; PAGE]),
                _ => assert!(torn(&disk, &place, &[])),
            }
            let (left, summary) = save(&disk, &path);
            let lost = summary.lost_values as usize;
            assert!(left.len() == all.len() - in_it, "{name} page {}", place.no);
            assert!(
                left.difference(&all).count() == lost,
                "{name} page {}",
                place.no
            );
            assert!(
                summary.skipped > u64::from(of_rows),
                "{name} page {}",
                place.no
            );
            assert!(lost <= 1, "{name} page {}", place.no);
        }
    }
}

/// A finding is about the place's file.
fn finds(findings: &[Finding], place: &Place) -> bool {
    let name = place.file.strip_prefix(DIR).unwrap().to_str().unwrap();
    let of_file = |f: &Finding| f.grade == Grade::Damage && f.file == name;
    findings.iter().any(of_file)
}

/// With a damaged page in a table's file the database opens, every other table is sound, and CHECK TABLE or
/// the table's refusal tells. With one in another file it opens or says why not.
fn others_work(disk: &SimDisk, place: &Place, context: &str) {
    let name = place.file.strip_prefix(DIR).unwrap().with_extension("");
    let damaged = name.to_str().unwrap();
    let db = match open(disk) {
        Ok(db) => db,
        Err(e) => {
            assert!(!damaged.starts_with("a/"), "{context}: {e}");
            let said = matches!(e, Error::Corrupt { .. } | Error::CorruptFile { .. });
            assert!(said, "{context}: {e}");
            return;
        }
    };
    assert!(db.wait_for_recovery(Duration::from_secs(60)), "{context}");
    let page = format!("page {}", place.no);
    for def in sample::definitions() {
        let told = match db.table(&def.name) {
            Ok(table) => match db.check_table(&table) {
                Ok(report) => report.errors.join("\n"),
                Err(e) => e.to_string(),
            },
            Err(e) => e.to_string(),
        };
        match def.name == damaged {
            false => assert_eq!(told, "", "{context}: table {}", def.name),
            true => assert!(
                told.contains(&page) || told.contains("damaged"),
                "{context}: {told:?}"
            ),
        }
    }
    db.crash();
}
