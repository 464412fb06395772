//! Undo tablespaces in another directory than the data directory. What could break here: they are made,
//! truncated or looked for in the wrong one, two databases use one, an interrupted creation removes what is
//! somebody else's, recovery takes them for tables.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use varve::{
    ColumnType, Database, Error, FlushLog, Isolation, KeyMatch, LockMode, Options, Table, TableDef,
    values,
};

const WAIT: Duration = Duration::from_secs(60);

struct Dirs(tempfile::TempDir);

impl Dirs {
    fn new() -> Dirs {
        Dirs(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn open(&self, data: &str, undo: Option<&str>) -> varve::Result<Database> {
        let options = Options {
            flush_log_at_trx_commit: FlushLog::Lazy,
            page_size: 4096,
            buffer_pool_bytes: 8 << 20,
            redo_capacity_bytes: 8 << 20,
            undo_directory: undo.map(|undo| self.path(data).join(undo)),
            ..Options::default()
        };
        Database::open(self.path(data), options)
    }

    fn refused(&self, data: &str, undo: Option<&str>) -> String {
        self.open(data, undo)
            .err()
            .expect("it is refused")
            .to_string()
    }

    /// The undo tablespaces that are there.
    fn undo_files(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(name)).unwrap();
        let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|n| n.starts_with("undo_0")).collect();
        names.sort();
        names
    }

    fn move_undo(&self, from: &str, to: &str) {
        fs::create_dir_all(self.path(to)).unwrap();
        for name in self.undo_files(from) {
            fs::rename(self.path(from).join(&name), self.path(to).join(&name)).unwrap();
        }
    }
}

const BOTH: [&str; 2] = ["undo_001.vdt", "undo_002.vdt"];

fn create(db: &Database) -> Table {
    let def = TableDef::new("s/t")
        .column("id", ColumnType::i64())
        .column("n", ColumnType::i64())
        .primary(&["id"]);
    let table = db.create_table(&def).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..100 {
        table.insert(&mut trx, values![id, 0]).unwrap();
    }
    trx.commit().unwrap();
    table
}

/// Sets all rows to `n`, durably.
fn change(db: &Database, n: i64) {
    let table = db.table("s/t").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..100 {
        assert!(table.set(&mut trx, values![id], &[("n", n.into())]).is_ok());
    }
    trx.commit().unwrap();
    db.flush_log().unwrap();
}

#[track_caller]
fn check(db: &Database, n: i64) {
    let table = db.table("s/t").unwrap();
    let report = db.check_table(&table).unwrap();
    assert!(report.errors.is_empty() && report.rows == 100, "{report:?}");
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    for id in 0..100i64 {
        let how = (KeyMatch::Exact, LockMode::None);
        let key = table.def().key(0, &[id.into()]).unwrap();
        assert!(cursor.seek(&mut trx, &key.datums(), how.0, how.1).unwrap());
        assert_eq!(cursor.row().unwrap().get(1), Some(&n.to_le_bytes()[..]));
    }
    db.core().undo.check().unwrap();
}

fn is_sound(dir: &Path) {
    let found = varve::offline::check(dir, None, &mut |finding| println!("{finding}")).unwrap();
    assert_eq!((found.damages, found.rows), (0, 100));
}

/// Below the data directory, below that, and elsewhere: created, truncated, recovered and checked there,
/// without being told again.
#[test]
fn they_stay_where_they_were_put() {
    for (undo, place) in [
        ("undo", "data/undo"),
        ("more/undo", "data/more/undo"),
        ("../elsewhere", "elsewhere"),
    ] {
        let dirs = Dirs::new();
        let db = dirs.open("data", Some(undo)).unwrap();
        create(&db);
        assert_eq!(
            (dirs.undo_files(place), dirs.undo_files("data").len()),
            (BOTH.map(String::from).to_vec(), 0)
        );
        // A change under way and undo that is needed.
        let table = db.table("s/t").unwrap();
        let mut open = db.begin(Isolation::RepeatableRead);
        table
            .set(&mut open, values![5], &[("n", 7.into())])
            .unwrap();
        db.flush_log().unwrap();
        std::mem::forget(open);
        db.crash();

        let db = dirs.open("data", None).unwrap();
        check(&db, 0);
        change(&db, 1);
        for number in [1, 2, 1] {
            assert!(db.truncate_undo(number, WAIT).unwrap());
        }
        change(&db, 2);
        let paths = db.undo_tablespaces().into_iter().map(|space| space.path);
        for path in paths {
            assert!(dirs.path("data").join(&path).exists(), "{path}");
        }
        db.crash();
        is_sound(&dirs.path("data"));

        let db = dirs.open("data", Some(undo)).unwrap();
        check(&db, 2);
        db.close().unwrap();
        is_sound(&dirs.path("data"));
        assert_eq!(
            (dirs.undo_files(place), dirs.undo_files("data").len()),
            (BOTH.map(String::from).to_vec(), 0)
        );
    }
}

/// Files that somebody has moved are found where the options say, and from then on without them. Where they
/// are not, that is said.
#[test]
fn moved_files_are_found_where_they_are_said_to_be() {
    let dirs = Dirs::new();
    let db = dirs.open("data", None).unwrap();
    create(&db);
    db.close().unwrap();

    dirs.move_undo("data", "there");
    let refused = dirs.refused("data", None);
    assert!(
        refused.contains("undo_001.vdt") && refused.contains("set undo_directory"),
        "{refused}"
    );
    let refused = dirs.refused("data", Some("../nowhere"));
    assert!(
        refused.contains("nowhere") && refused.contains("undo_directory"),
        "{refused}"
    );
    fs::create_dir(dirs.path("empty")).unwrap();
    let refused = dirs.refused("data", Some("../empty"));
    assert!(refused.contains("empty/undo_001.vdt"), "{refused}");
    let db = dirs.open("data", Some("../there")).unwrap();
    change(&db, 1);
    db.crash();
    let db = dirs.open("data", None).unwrap();
    check(&db, 1);
    db.close().unwrap();

    // Where they are found without being looked for is not where they are to be.
    dirs.move_undo("there", "data");
    let refused = dirs.refused("data", None);
    assert!(
        refused.contains("it is ") && refused.contains("data/undo_001.vdt"),
        "{refused}"
    );
    let db = dirs.open("data", Some(".")).unwrap();
    check(&db, 1);
    db.close().unwrap();
    dirs.open("data", None).unwrap().close().unwrap();
    is_sound(&dirs.path("data"));
}

/// REC-4: who looks for them in the wrong place after a crash has not lost their changes.
#[test]
fn no_checkpoint_passes_changes_of_files_that_are_not_found() {
    let dirs = Dirs::new();
    let db = dirs.open("data", None).unwrap();
    create(&db);
    let last = 150;
    for n in 1..=last {
        change(&db, n);
    }
    db.crash();
    dirs.move_undo("data", "there");
    fs::create_dir(dirs.path("empty")).unwrap();
    for _ in 0..5 {
        let refused = dirs.refused("data", Some("../empty"));
        assert!(refused.contains("empty/undo_001.vdt"), "{refused}");
    }
    let db = dirs.open("data", Some("../there")).unwrap();
    check(&db, last);
    db.close().unwrap();
    is_sound(&dirs.path("data"));
}

/// A directory is for one database, and nothing that is there is removed.
#[test]
fn a_directory_of_another_database_is_refused() {
    let dirs = Dirs::new();
    let one = dirs.open("one", Some("../undo")).unwrap();
    create(&one);
    let in_use = dirs
        .open("two", Some("../undo"))
        .err()
        .expect("it is refused");
    assert!(matches!(in_use, Error::InUse { .. }), "{in_use}");
    one.close().unwrap();
    let refused = dirs.refused("two", Some("../undo"));
    assert!(
        refused.contains("undo/undo_001.vdt") && refused.contains("exists already"),
        "{refused}"
    );
    // An interrupted creation that was to go elsewhere begins anew there, and one that goes here is refused,
    // too.
    fs::write(dirs.path("two").join("varve.creating"), "").unwrap();
    let refused = dirs.refused("two", Some("../undo"));
    assert!(refused.contains("exists already"), "{refused}");
    fs::create_dir_all(dirs.path("own")).unwrap();
    fs::write(dirs.path("own/undo_001.vdt"), "begun").unwrap();
    fs::write(dirs.path("two/undo_directory"), "../own/\n").unwrap();
    let two = dirs.open("two", Some("../new")).unwrap();
    two.close().unwrap();
    assert_eq!(dirs.undo_files("own").len(), 0);
    assert_eq!(
        (dirs.undo_files("new").len(), dirs.undo_files("undo").len()),
        (2, 2)
    );
    let one = dirs.open("one", None).unwrap();
    check(&one, 0);
    one.close().unwrap();
    fs::write(dirs.path("one/undo_directory"), "nonsense").unwrap();
    let refused = dirs.refused("one", None);
    assert!(
        refused.contains("undo_directory") && refused.contains("write it anew"),
        "{refused}"
    );
}
