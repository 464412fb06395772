//! Tables whose files are in another directory than the data directory, whose disk comes and goes.
//!
//! What could break here: a link is taken for the file and removed because its disk is not mounted; redo for
//! such a table is passed over, so that it comes back without its last changes; a file stays when its table
//! goes; the new file of TRUNCATE is in the data directory; a directory is taken that the tools would look
//! through for tables of their own.

#[path = "support/dying_disk.rs"]
mod dying_disk;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dying_disk::DyingDisk;
use varve::internals::io::{Disk, RealDisk};
use varve::offline::table_file_on;
use varve::{
    ColumnType, Database, Error, ForeignKeyChecks, Isolation, Options, Result, TableDef, Value,
    offline,
};
use varve_sim::{Failure, Fault, Operation, SimDisk};

const ROWS: i64 = 100;

/// A data directory, and a disk that can be taken away.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn disk(&self) -> PathBuf {
        self.0.path().join("disk")
    }

    fn link(&self, name: &str) -> PathBuf {
        self.data().join(format!("{name}.vdt"))
    }

    fn target(&self, name: &str) -> PathBuf {
        std::fs::read_link(self.link(name)).unwrap()
    }

    fn open_with(&self, options: Options) -> Result<Database> {
        let db = Database::open(
            self.data(),
            Options {
                page_size: 4096,
                buffer_pool_bytes: 2 << 20,
                redo_capacity_bytes: 4 << 20,
                log_buffer_bytes: 2 << 20,
                logger: Some(Arc::new(|_, _| {})),
                ..options
            },
        )?;
        assert!(db.wait_for_recovery(Duration::from_secs(60)));
        Ok(db)
    }

    fn open(&self) -> Database {
        self.open_with(Options::default()).unwrap()
    }

    fn create(&self, db: &Database, name: &str) {
        let (def, checks) = (definition(name), ForeignKeyChecks::On);
        db.create_table_in(self.disk(), &def, checks).unwrap();
        put(db, name, 0);
    }

    /// What `mount` undoes.
    fn unmount(&self) {
        std::fs::rename(self.disk(), self.0.path().join("away")).unwrap();
    }

    fn mount(&self) {
        std::fs::rename(self.0.path().join("away"), self.disk()).unwrap();
    }
}

fn definition(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("fill", ColumnType::Bytes(300))
        .primary(&["id"])
        .index("by_fill", &["fill"])
}

/// Commits some more rows.
fn put(db: &Database, name: &str, first: i64) {
    let table = db.table(name).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in first..first + ROWS {
        let row = [Value::Int(id), Value::Bytes(vec![id as u8; 50])];
        let row = table.def().row(&row).unwrap();
        trx.insert(&table, &row.datums()).unwrap();
    }
    trx.commit().unwrap();
}

#[track_caller]
fn has_rows(db: &Database, name: &str, rows: i64) {
    let report = db.check_table(&db.table(name).unwrap()).unwrap();
    assert_eq!(
        (report.errors, report.rows),
        (vec![], rows as u64),
        "{name}"
    );
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// An error about a table, which says where the link leads.
#[track_caller]
fn tells_where<T>(place: &Place, name: &str, target: &Path, result: Result<T>) -> Error {
    let why = result.err().expect("it can't be used");
    let text = why.to_string();
    for path in [&place.link(name), target] {
        assert!(text.contains(path.to_str().unwrap()), "{text}");
    }
    why
}

/// The file stays in its directory as long as the table lives, whatever it is called, and goes with it.
#[test]
fn a_table_stays_in_its_directory() {
    let place = Place::new();
    let db = place.open();
    place.create(&db, "a/t");
    let first = place.target("a/t");
    assert_eq!(first.parent().unwrap(), place.disk().join("a"));
    let names = |name| place.target(name).file_name().unwrap().to_owned();
    assert!(names("a/t").to_str().unwrap().starts_with("t-"));
    assert_eq!(
        db.table("a/t").unwrap().data_directory(),
        Some(&*place.disk())
    );
    db.rename_table("a/t", "b/u").unwrap();
    assert_eq!(place.target("b/u"), first);
    assert!(!is_there(&place.link("a/t")));
    db.truncate_table("b/u").unwrap();
    let second = place.target("b/u");
    assert!(second != first && !first.exists() && second.exists());
    assert_eq!(second.parent(), first.parent());
    put(&db, "b/u", 0);
    db.create_table(&definition("b/here")).unwrap();
    assert_eq!(db.table("b/here").unwrap().data_directory(), None);
    db.close().unwrap();
    let mut damages = Vec::new();
    let tell = &mut |finding: &offline::Finding| damages.push(finding.to_string());
    let summary = offline::check(place.data(), None, tell).unwrap();
    assert_eq!((summary.damages, summary.tables), (0, 2), "{damages:?}");
    let dumped = table_file_on(&RealDisk, &place.link("b/u")).unwrap();
    assert_eq!(dumped.definition().unwrap().name, "b/u");
    let db = place.open();
    has_rows(&db, "b/u", ROWS);
    db.drop_table("b/u").unwrap();
    assert!(!is_there(&place.link("b/u")) && !second.exists());
    db.close().unwrap();
}

/// LINK-2: without its disk a table can't be used, and nothing else happens to it.
#[test]
fn a_disk_comes_and_goes() {
    let place = Place::new();
    let db = place.open();
    place.create(&db, "a/t");
    db.create_table(&definition("a/here")).unwrap();
    put(&db, "a/here", 0);
    db.close().unwrap();
    let target = place.target("a/t");
    place.unmount();
    for crashes in [false, true] {
        let db = place.open();
        has_rows(&db, "a/here", ROWS);
        tells_where(&place, "a/t", &target, db.table("a/t"));
        tells_where(&place, "a/t", &target, db.drop_table("a/t"));
        assert_eq!(db.tables().unwrap(), ["a/here", "a/t"]);
        match crashes {
            false => db.close().unwrap(),
            true => db.crash(),
        }
        assert!(is_there(&place.link("a/t")));
    }
    let db = place.open();
    tells_where(&place, "a/t", &target, db.table("a/t"));
    place.mount();
    has_rows(&db, "a/t", ROWS);
    db.close().unwrap();
}

/// REC-4: redo for a table whose disk is not there is not passed over.
#[test]
fn redo_waits_for_the_disk() {
    let place = Place::new();
    let db = place.open();
    place.create(&db, "a/t");
    db.close().unwrap();
    let db = place.open();
    put(&db, "a/t", ROWS);
    db.crash();
    let target = place.target("a/t");
    place.unmount();
    tells_where(&place, "a/t", &target, place.open_with(Options::default()));
    place.mount();
    let db = place.open();
    has_rows(&db, "a/t", 2 * ROWS);
    db.close().unwrap();
}

/// The same if somebody insists: then it is known that the table lacks something.
#[test]
fn redo_that_was_passed_over_is_told() {
    let place = Place::new();
    let db = place.open();
    place.create(&db, "a/t");
    db.crash();
    place.unmount();
    let insisting = || Options {
        force_recovery: 1,
        ..Options::default()
    };
    let db = place.open_with(insisting()).unwrap();
    assert!(db.table("a/t").is_err());
    db.close().unwrap();
    place.mount();
    let db = place.open();
    let why = db.table("a/t").err().expect("it lacks changes");
    assert!(why.to_string().contains("all changes"), "{why}");
    let target = place.target("a/t");
    db.drop_table("a/t").unwrap();
    assert!(!target.exists() && !is_there(&place.link("a/t")));
    db.close().unwrap();
}

/// A file that is gone, though its directory is there, will not come back.
#[test]
fn a_file_that_is_gone_leaves_a_table_that_can_be_dropped() {
    let place = Place::new();
    let db = place.open();
    place.create(&db, "a/t");
    db.close().unwrap();
    let target = place.target("a/t");
    std::fs::remove_file(&target).unwrap();
    let db = place.open();
    tells_where(&place, "a/t", &target, db.table("a/t"));
    db.drop_table("a/t").unwrap();
    assert!(!is_there(&place.link("a/t")));
    place.create(&db, "a/t");
    has_rows(&db, "a/t", ROWS);
    db.close().unwrap();
}

/// Links without their files after a crash: the number in them says whose they are.
#[test]
fn links_get_their_names_without_their_files() {
    let place = Place::new();
    let db = place.open();
    place.create(&db, "a/t");
    db.close().unwrap();
    place.open().crash();
    place.unmount();
    std::fs::rename(place.link("a/t"), place.link("a/moved")).unwrap();
    let nobodys = place.disk().join("a/x-99.vdt");
    std::os::unix::fs::symlink(&nobodys, place.link("a/x")).unwrap();
    let unfinished = place.data().join("a/y.vdt-new");
    std::os::unix::fs::symlink(place.disk().join("a/y-98.vdt"), &unfinished).unwrap();
    let db = place.open();
    assert!(is_there(&place.link("a/t")) && !is_there(&place.link("a/moved")));
    let aside = place.data().join("a/x.vdt.unnamed-99");
    assert_eq!(std::fs::read_link(aside).unwrap(), nobodys);
    assert!(!is_there(&place.link("a/x")) && !is_there(&unfinished));
    place.mount();
    has_rows(&db, "a/t", ROWS);
    db.close().unwrap();
}

#[test]
fn directories_that_are_refused() {
    let place = Place::new();
    let db = place.open();
    let create = |directory: &Path, name: &str| {
        let (def, checks) = (definition(name), ForeignKeyChecks::On);
        db.create_table_in(directory, &def, checks).map(drop)
    };
    let inside = place.data().join("sub");
    let around = place.disk().join("../data");
    for directory in [Path::new("disk"), &place.data(), &inside, &around] {
        let why = create(directory, "a/t").unwrap_err();
        assert!(matches!(why, Error::Invalid { .. }), "{why}");
    }
    let file = place.0.path().join("file");
    std::fs::write(&file, b"a").unwrap();
    let why = create(&file, "a/t").unwrap_err();
    assert!(matches!(why, Error::Io { .. }), "{why}");
    // Whatever the number is, the file of one of them is there already.
    std::fs::create_dir_all(place.disk().join("a")).unwrap();
    let in_the_way = |n: u32| place.disk().join(format!("a/t-{n}.vdt"));
    (0..100).for_each(|n| std::fs::write(in_the_way(n), b"mine").unwrap());
    let why = create(&place.disk(), "a/t").unwrap_err();
    assert!(matches!(why, Error::AlreadyExists { .. }), "{why}");
    (0..100).for_each(|n| assert_eq!(std::fs::read(in_the_way(n)).unwrap(), b"mine"));
    assert!(db.tables().unwrap().is_empty() && !is_there(&place.link("a/t")));
    create(&place.disk(), "a/u").unwrap();
    db.close().unwrap();
}

/// The tools say where the link leads, too.
#[test]
fn a_check_without_the_disk() {
    let place = Place::new();
    let db = place.open();
    place.create(&db, "a/t");
    db.close().unwrap();
    let target = place.target("a/t");
    place.unmount();
    let mut said = String::new();
    let tell = &mut |finding: &offline::Finding| said += &finding.to_string();
    let summary = offline::check(place.data(), None, tell).unwrap();
    assert_eq!(summary.damages, 1, "{said}");
    assert!(said.contains(target.to_str().unwrap()), "{said}");
    let why = table_file_on(&RealDisk, &place.link("a/t")).map(drop);
    assert!(matches!(why, Err(Error::Io { .. })), "{why:?}");
}

/// SP-10: the spare becomes the new file of a table elsewhere, if that is the same file system.
#[test]
fn truncate_on_a_full_disk() {
    let place = Place::new();
    let disk = DyingDisk::new();
    let options = Options {
        page_size: 4096,
        buffer_pool_bytes: 2 << 20,
        logger: Some(Arc::new(|_, _| {})),
        ..Options::default()
    };
    let db = Database::open_on(Arc::new(disk.clone()), &place.data(), options).unwrap();
    place.create(&db, "a/t");
    let first = place.target("a/t");
    disk.fill_up_for("vdt");
    db.truncate_table("a/t").unwrap();
    disk.make_room();
    let second = place.target("a/t");
    assert!(!first.exists() && second.exists() && second.parent() == first.parent());
    has_rows(&db, "a/t", 0);
    put(&db, "a/t", 0);
    db.close().unwrap();
    has_rows(&place.open(), "a/t", ROWS);
}

/// What is in a schema's directory of the simulated disk: where links lead, sorted.
fn links(disk: &SimDisk, schema: &str) -> Vec<PathBuf> {
    let dir = Path::new("/data/db").join(schema);
    let names = disk.list(&dir).unwrap_or_default();
    let links = names.iter().filter_map(|entry| {
        let path = dir.join(&entry.name);
        disk.read_link(&path).unwrap()
    });
    let mut links: Vec<_> = links.collect();
    links.sort();
    links
}

/// LINK-1: each operation of the disk fails once, and what it leaves behind is gone after the next start, or
/// put aside with its link.
#[test]
fn operations_that_fail_leave_no_file_without_a_link() {
    let open = |disk: &SimDisk| {
        let options = Options {
            page_size: 4096,
            buffer_pool_bytes: 2 << 20,
            redo_capacity_bytes: 4 << 20,
            log_buffer_bytes: 2 << 20,
            logger: Some(Arc::new(|_, _| {})),
            ..Options::default()
        };
        Database::open_on(Arc::new(disk.clone()), Path::new("/data/db"), options).unwrap()
    };
    let base = SimDisk::default();
    open(&base).close().unwrap();
    let mut struck = [0; 4];
    let operations = [
        Operation::Names,
        Operation::Open,
        Operation::Sync,
        Operation::Extend,
    ];
    for (kind, operation) in operations.into_iter().enumerate() {
        for n in 0.. {
            let disk = base.copy();
            let db = open(&disk);
            disk.inject(Fault::always(operation, Failure::Io).limited(n, 1));
            let checks = ForeignKeyChecks::On;
            let done = [
                db.create_table_in("/far", &definition("a/t"), checks)
                    .map(drop),
                db.truncate_table("a/t"),
                db.rename_table("a/t", "b/u"),
                db.create_table_in("/far", &definition("a/t"), checks)
                    .map(drop),
                db.drop_table("b/u"),
            ];
            let was_struck = disk.faults_struck() > 0;
            disk.heal();
            db.crash();
            let db = open(&disk);
            assert!(db.wait_for_recovery(Duration::from_secs(60)));
            let context = format!("{operation:?} {n}: {done:?}");
            for name in db.tables().unwrap() {
                let table = db
                    .table(&name)
                    .unwrap_or_else(|e| panic!("{context}: {name}: {e}"));
                assert_eq!(db.check_table(&table).unwrap().errors, [""; 0], "{context}");
            }
            let mut led_to = links(&disk, "a");
            led_to.extend(links(&disk, "b"));
            led_to.sort();
            let mut there = disk.files();
            there.retain(|file| file.starts_with("/far"));
            assert_eq!(there, led_to, "{context}");
            db.close().unwrap();
            if !was_struck {
                break;
            }
            struck[kind] += 1;
        }
    }
    println!("struck {struck:?}");
    assert!(struck.iter().all(|n| *n > 2), "{struck:?}");
}
