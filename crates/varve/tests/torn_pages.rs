//! Pages that a crash tears at any boundary of a sector, in place and in the doublewrite file, for each size
//! of a page. What could break here: a copy counts that is not whole, or a whole one does not; a torn page is
//! taken for whole; writes that are promised to be atomic are made in pieces, or go without protection where
//! nothing is promised.
//!
//! `VARVE_MODEL_SEED` replays what is drawn.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use varve::{ColumnType, Compression, Database, Isolation, Options, Result, TableDef, values};
use varve_sim::{CrashPoints, Image, SimDisk};

const DIR: &str = "/db";
const ROWS: i64 = 20;
const PAGE_SIZES: [u32; 5] = [4096, 8192, 16384, 32768, 65536];

/// Pages of each size as they are, and some that are stored compressed.
fn setups() -> impl Iterator<Item = Setup> {
    let compressed = [(16384, Compression::LZ4), (65536, Compression::zstd(3))];
    let compressed = compressed.map(|(page_size, with)| Setup {
        compression: Some(with),
        ..Setup::new(page_size)
    });
    PAGE_SIZES.into_iter().map(Setup::new).chain(compressed)
}

#[derive(Clone)]
struct Setup {
    page_size: u32,
    compression: Option<Compression>,
    doublewrite: bool,
    /// The disk promises atomic writes of up to so many bytes; 0: of none.
    atomic_bytes: usize,
    /// Pages that were restored.
    restored: Arc<AtomicUsize>,
}

impl Setup {
    fn new(page_size: u32) -> Setup {
        Setup {
            page_size,
            compression: None,
            doublewrite: true,
            atomic_bytes: 0,
            restored: Arc::default(),
        }
    }

    fn disk(&self, image: Image) -> SimDisk {
        let disk = SimDisk::new(image);
        if self.atomic_bytes > 0 {
            disk.promise_atomic_writes(self.atomic_bytes);
        }
        disk
    }

    fn open(&self, disk: &SimDisk) -> Result<Database> {
        let restored = self.restored.clone();
        let options = Options {
            page_size: self.page_size,
            buffer_pool_bytes: 256 * u64::from(self.page_size),
            redo_capacity_bytes: 4 << 20,
            log_buffer_bytes: 2 << 20,
            undo_tablespaces: 0,
            doublewrite: self.doublewrite,
            logger: Some(Arc::new(move |_, message| {
                if message.contains("which was torn") {
                    restored.fetch_add(1, Ordering::Relaxed);
                }
            })),
            ..Options::default()
        };
        Database::open_on(Arc::new(disk.clone()), Path::new(DIR), options)
    }
}

/// Half of it can't be compressed.
fn value(id: i64, version: i64) -> Vec<u8> {
    let mut rng = SmallRng::seed_from_u64((version << 32 | id) as u64);
    let mut value = vec![version as u8; 100];
    rng.fill(&mut value[..50]);
    value
}

fn write(db: &Database, version: i64) -> Result<()> {
    let table = db.table("a/t")?;
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS {
        table.put(&mut trx, values![id, version, value(id, version)])?;
    }
    trx.commit()
}

/// What is wrong, if anything is.
type Tried = std::result::Result<(), String>;

/// All rows have the second version: its commit came before any page of it was written. Each page is read.
fn check(db: &Database) -> Tried {
    let told = |e: varve::Error| e.to_string();
    let table = db.table("a/t").map_err(told)?;
    let errors = db.check_table(&table).map_err(told)?.errors;
    if !errors.is_empty() {
        return Err(errors.join("; "));
    }
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS {
        let row = table
            .get(&mut trx, values![id])
            .map_err(told)?
            .expect("a row");
        let found: (i64, Vec<u8>) = (row.get("version").unwrap(), row.get("value").unwrap());
        assert_eq!(found, (2, value(id, 2)), "row {id}");
    }
    Ok(())
}

/// What was done to a disk, and how many operations came before the second version was committed.
struct Run {
    disk: SimDisk,
    committed: usize,
}

impl Run {
    /// All pages are written that two transactions have changed, the first of them in another life of the
    /// database.
    fn new(setup: &Setup) -> Run {
        let disk = setup.disk(Image::new());
        let db = setup.open(&disk).unwrap();
        let mut def = TableDef::new("a/t")
            .column("id", ColumnType::i64())
            .column("version", ColumnType::i64())
            .column("value", ColumnType::Bytes(100))
            .primary(&["id"])
            .index("version", &["version"]);
        def.compression = setup.compression;
        db.create_table(&def).unwrap();
        write(&db, 1).unwrap();
        db.close().unwrap();
        let disk = setup.disk(disk.image());
        let db = setup.open(&disk).unwrap();
        write(&db, 2).unwrap();
        let committed = disk.operations();
        db.close().unwrap();
        Run { disk, committed }
    }

    /// The writes to files of this extension after the commit, with how many sectors each has.
    fn writes(&self, extension: &str) -> Vec<(usize, usize)> {
        let all = self.disk.journal().writes_to(extension).into_iter();
        all.filter(|w| w.0 >= self.committed).collect()
    }
}

fn try_torn(setup: &Setup, points: &CrashPoints, is_kept: impl Fn(usize) -> bool) -> Tried {
    let disk = setup.disk(points.image(&points.torn(is_kept)));
    let db = setup.open(&disk).map_err(|e| e.to_string())?;
    let checked = check(&db);
    db.crash();
    checked
}

/// Tears one write at these boundaries, so that the first part or the second one is on the disk.
fn tear(
    setup: &Setup,
    run: &Run,
    at: usize,
    boundaries: impl Iterator<Item = usize>,
    mut judge: impl FnMut(Tried, &str),
) {
    let mut points = CrashPoints::new(run.disk.journal());
    points.advance(at + 1);
    for boundary in boundaries {
        let first = try_torn(setup, &points, |sector| sector < boundary);
        judge(first, &format!("operation {at}, sectors below {boundary}"));
        let second = try_torn(setup, &points, |sector| sector >= boundary);
        judge(
            second,
            &format!("operation {at}, sectors from {boundary} on"),
        );
    }
}

fn rng() -> SmallRng {
    let seed = std::env::var("VARVE_MODEL_SEED");
    let seed = seed.map_or_else(|_| rand::random(), |n| n.parse().expect("a number"));
    println!("VARVE_MODEL_SEED={seed}");
    SmallRng::seed_from_u64(seed)
}

fn is_well(result: Tried, what: &str) {
    result.unwrap_or_else(|e| panic!("{what}: {e}"));
}

/// FL-1, DW-1, DW-2.
#[test]
fn a_page_is_torn_anywhere() {
    let mut rng = rng();
    for setup in setups() {
        let run = Run::new(&setup);
        let mut in_place = run.writes("vdt");
        in_place.retain(|w| w.1 > 1);
        assert!(in_place.len() >= 4, "{in_place:?}");
        // One at all boundaries, and each at some.
        let whole = in_place[rng.random_range(0..in_place.len())];
        tear(&setup, &run, whole.0, 1..whole.1, is_well);
        let restored = || setup.restored.load(Ordering::Relaxed);
        // Half a page that is as the other one was is not torn: with few writes all may be.
        for _ in 0..10 {
            for &(at, sectors) in &in_place {
                let some = [rng.random_range(1..sectors), rng.random_range(1..sectors)];
                tear(&setup, &run, at, some.into_iter(), is_well);
            }
            if restored() > 0 {
                break;
            }
        }
        let restored = restored();
        println!("{}: restored {restored} times", setup.page_size);
        assert!(restored > 0, "nothing was torn");
    }
}

/// The doublewrite file is torn: nothing in place has been, and what is there counts for nothing.
#[test]
fn the_doublewrite_file_is_torn_anywhere() {
    let mut rng = rng();
    for setup in setups() {
        let run = Run::new(&setup);
        // Those of paths are shorter than a header.
        for (at, sectors) in run.writes("vdw").into_iter().filter(|w| w.1 > 8) {
            // All of the header and of some page behind it.
            let page = (setup.page_size / 512) as usize;
            let begin = 8 + page * rng.random_range(0..((sectors - 8) / page).max(1));
            let boundaries = (1..9).chain(begin + 1..(begin + page).min(sectors));
            tear(&setup, &run, at, boundaries, is_well);
        }
        assert_eq!(setup.restored.load(Ordering::Relaxed), 0);
    }
}

/// Without the doublewrite file a torn page is told as such, whichever it is; none is taken for whole.
#[test]
fn a_torn_page_is_told_where_nothing_protects_it() {
    let mut rng = rng();
    for setup in setups() {
        let setup = Setup {
            doublewrite: false,
            ..setup
        };
        let run = Run::new(&setup);
        let (mut told, mut well) = (0, 0);
        for (at, sectors) in run.writes("vdt") {
            let boundaries: Vec<usize> = (1..sectors).collect();
            let some = boundaries.choose_multiple(&mut rng, 4).copied();
            tear(&setup, &run, at, some, |result, what| match result {
                // The change is all in one part.
                Ok(()) => well += 1,
                Err(e) if e.contains("checksum") => told += 1,
                Err(e) => panic!("{what}: {e}"),
            });
        }
        println!("{}: {told} of {} are told", setup.page_size, told + well);
        assert!(told > 0);
    }
}

/// IO-7: where atomic writes of a page are promised, each page is written that way, there are no copies, and
/// no crash damages a page. A promise of shorter writes is none.
#[test]
fn promised_atomic_writes_need_no_copies() {
    let mut rng = rng();
    for page_size in PAGE_SIZES {
        let page = page_size as usize;
        for (doublewrite, atomic_bytes) in [(true, page), (false, page), (true, page / 2)] {
            let is_short = atomic_bytes < page;
            let setup = Setup {
                doublewrite,
                atomic_bytes,
                ..Setup::new(page_size)
            };
            let run = Run::new(&setup);
            let copies = run.writes("vdw").len();
            let in_place = run.writes("vdt");
            assert_eq!(copies > 0, is_short);
            assert_eq!(in_place.iter().any(|w| w.1 > 1), is_short, "{in_place:?}");
            let journal = run.disk.journal();
            let (begin, end) = (in_place[0].0, journal.len());
            let mut moments: Vec<usize> = (0..20).map(|_| rng.random_range(begin..=end)).collect();
            moments.sort_unstable();
            let mut points = CrashPoints::new(journal);
            for at in moments {
                points.advance(at);
                let disk = setup.disk(points.crash(&mut rng));
                let db = setup.open(&disk).unwrap();
                is_well(check(&db), &format!("before operation {at}"));
                db.crash();
            }
        }
    }
}
