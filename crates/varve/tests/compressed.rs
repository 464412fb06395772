//! Tables whose pages are stored compressed. What could break here: a page comes back as another one; a hole
//! lies over bytes that count; a page that grows finds no room on a full disk, and poisons the database or is
//! lost; the file stays as large as before; a file is read without knowing how.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use varve::internals::io::{Disk, OpenMode, RealDisk};
use varve::{
    ColumnType, Compression, Database, Isolation, Options, RedefinitionWaits, Result, Table,
    TableDef, values,
};
use varve_sim::{Failure, Fault, Operation, SimDisk};

const ROWS: i64 = 3000;
const ALL: [Compression; 2] = [Compression::LZ4, Compression::zstd(3)];

fn options(page_size: u32) -> Options {
    Options {
        page_size,
        buffer_pool_bytes: 256 * u64::from(page_size),
        redo_capacity_bytes: 8 << 20,
        log_buffer_bytes: 2 << 20,
        undo_tablespaces: 0,
        ..Options::default()
    }
}

fn definition(compression: Option<Compression>) -> TableDef {
    let mut def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("text", ColumnType::text(20_000))
        .primary(&["id"])
        .add_index(varve::IndexDef::new(
            "text",
            vec![varve::KeyPart::new(1).prefix(20)],
        ));
    def.compression = compression;
    def
}

/// Some of them are longer than a page.
fn text(id: i64, version: i64) -> String {
    let words = format!("{} row {id} in version {version} ", id * 7919 % 1000);
    words.repeat(40 + usize::from(id % 500 == 0) * 500)
}

fn write(db: &Database, version: i64) -> Result<()> {
    let table = db.table("a/t")?;
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS {
        table.put(&mut trx, values![id, text(id, version)])?;
    }
    trx.commit()
}

fn check(db: &Database, table: &Table, version: i64) {
    let checked = db.check_table(table).unwrap();
    assert!(checked.errors.is_empty(), "{:?}", checked.errors);
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS {
        let row = table.get(&mut trx, values![id]).unwrap().expect("a row");
        assert_eq!(row.get::<String>("text").unwrap(), text(id, version));
    }
}

/// Bytes that the table's file takes on the disk.
fn bytes_on_disk(dir: &Path) -> u64 {
    std::fs::metadata(dir.join("a/t.vdt")).unwrap().blocks() * 512
}

/// Whether the file system takes space back there.
fn gives_back(dir: &Path) -> bool {
    let file = RealDisk
        .open(&dir.join("trial"), OpenMode::CreateNew)
        .unwrap();
    file.write_at(&[1; 8192], 0).unwrap();
    file.punch(4096, 4096).unwrap()
}

/// SP-14 and SP-15 on the operating system's disk: the pages come back, and take less room.
#[test]
fn pages_take_less_room_and_come_back() {
    for page_size in [8192, 16384, 65536] {
        let mut sizes = Vec::new();
        for compression in [None].into_iter().chain(ALL.map(Some)) {
            let dir = tempfile::tempdir().unwrap();
            let open = || Database::open(dir.path(), options(page_size)).unwrap();
            let db = open();
            db.create_table(&definition(compression)).unwrap();
            for version in 1..=3 {
                write(&db, version).unwrap();
            }
            db.close().unwrap();
            let db = open();
            let table = db.table("a/t").unwrap();
            assert_eq!(table.def().compression, compression);
            check(&db, &table, 3);
            db.close().unwrap();
            sizes.push(bytes_on_disk(dir.path()));
        }
        println!("{page_size}: {sizes:?}");
        if !gives_back(tempfile::tempdir().unwrap().path()) {
            continue;
        }
        // The last extents have no page yet, and their space all the same.
        let percent = if page_size == 8192 { 80 } else { 60 };
        assert!(
            sizes[1..].iter().all(|&n| n * 100 < sizes[0] * percent),
            "{sizes:?}"
        );
    }
}

/// What is written compressed once more takes no more room than it needs.
#[test]
fn pages_that_shrink_give_room_back() {
    let dir = tempfile::tempdir().unwrap();
    let noise = |seed: i64| {
        let mut x = seed as u64 + 1;
        let next = |_| {
            x = x
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (x >> 33) as u8
        };
        (0..1000).map(next).collect::<Vec<u8>>()
    };
    let mut sizes = Vec::new();
    // In another life each time: what is known of the places is forgotten.
    for (round, is_noise) in [true, false, true, false].into_iter().enumerate() {
        let db = Database::open(dir.path(), options(16384)).unwrap();
        if round == 0 {
            let def = TableDef::new("a/t")
                .column("id", ColumnType::i64())
                .column("value", ColumnType::Bytes(1000))
                .primary(&["id"])
                .compressed(Compression::LZ4);
            db.create_table(&def).unwrap();
        }
        let table = db.table("a/t").unwrap();
        let mut trx = db.begin(Isolation::RepeatableRead);
        for id in 0..4000 {
            let value = if is_noise { noise(id) } else { vec![7; 1000] };
            table.put(&mut trx, values![id, value]).unwrap();
        }
        trx.commit().unwrap();
        db.close().unwrap();
        sizes.push(bytes_on_disk(dir.path()));
    }
    println!("{sizes:?}");
    if !gives_back(dir.path()) {
        return;
    }
    assert!(sizes[1] * 2 < sizes[0] && sizes[3] * 2 < sizes[2]);
    assert!(sizes[2] * 10 < sizes[0] * 11);
}

/// SP-15: what is behind a page in its place is given back when the page is durable there.
#[test]
fn holes_are_made_behind_durable_pages() {
    const PAGE: u64 = 16384;
    let disk = SimDisk::default();
    let path = Path::new("/db");
    let open = |disk: &SimDisk| Database::open_on(Arc::new(disk.clone()), path, options(16384));
    let db = open(&disk).unwrap();
    db.create_table(&definition(Some(Compression::LZ4)))
        .unwrap();
    (1..=3).for_each(|version| write(&db, version).unwrap());
    db.close().unwrap();
    let (mut holes, mut unsynced) = (0, HashSet::new());
    for done in disk.journal().writes_and_syncs(&path.join("a/t.vdt")) {
        match done {
            None => unsynced.clear(),
            Some(at) if at % PAGE == 0 => drop(unsynced.insert(at / PAGE)),
            Some(at) => {
                holes += 1;
                assert!(!unsynced.contains(&(at / PAGE)), "page {}", at / PAGE);
            }
        }
    }
    assert!(holes > 10, "{holes}");
}

fn write_one(db: &Database) {
    let table = db.table("a/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    table.put(&mut trx, values![0, text(0, 9)]).unwrap();
    trx.commit().unwrap();
}

fn refused_pages(db: &Database) -> u64 {
    let metrics = db.metrics();
    let metric = metrics
        .iter()
        .find(|m| m.name == "buffer_flush_refused_pages");
    metric.unwrap().value
}

fn is_full<T>(result: &Result<T>) -> bool {
    matches!(result, Err(varve::Error::NoSpace { .. }))
}

/// FL-3: pages for which there is no room wait in the pool, and those of other tables are written meanwhile.
/// New changes are refused when half the log is used up; what they have begun is undone.
#[test]
fn a_full_disk_only_delays_pages() {
    let disk = SimDisk::default();
    let options = Options {
        redo_capacity_bytes: 32 << 20,
        ..options(65536)
    };
    let open = || Database::open_on(Arc::new(disk.clone()), Path::new("/db"), options.clone());
    let db = open().unwrap();
    let mut def = definition(Some(Compression::LZ4));
    def.indexes.clear();
    let table = db.create_table(&def).unwrap();
    let mut other = def.clone();
    (other.name, other.compression) = ("a/other".into(), None);
    db.create_table(&other).unwrap();
    write(&db, 1).unwrap();
    db.close().unwrap();
    drop(table);
    let db = open().unwrap();
    let full = Fault::always(Operation::Extend, Failure::NoSpace).on("a/t.vdt");
    disk.inject(full.clone());
    // Once pages were tried, it is known: who waits for the log before that waits for room.
    let mut version = 2;
    write_one(&db);
    let begun = Instant::now();
    while refused_pages(&db) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    // Rows of the same length: no page is added. The log takes so many versions of them.
    let refused = loop {
        assert!(version < 100, "nothing is refused");
        match write(&db, version) {
            Ok(()) => version += 1,
            refused => break refused,
        }
    };
    assert!(is_full(&refused), "{refused:?}");
    assert!(version > 2, "the first one has room in the log");
    let export = |name| db.export_table(name, RedefinitionWaits::default());
    let waiting = export("a/t").map(drop);
    assert!(is_full(&waiting), "{waiting:?}");
    export("a/other").unwrap();
    disk.heal();
    check(&db, &db.table("a/t").unwrap(), version - 1);
    // Until the pages are tried again.
    let begun = Instant::now();
    while let Err(e) = write(&db, version) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{e}");
        std::thread::sleep(Duration::from_millis(10));
    }
    db.close().unwrap();
    // Where pages have their places is not known any more.
    let db = open().unwrap();
    disk.inject(full);
    write(&db, version + 1).unwrap();
    db.crash();
    disk.heal();
    let db = open().unwrap();
    check(&db, &db.table("a/t").unwrap(), version + 1);
}
