//! Encryption at rest. What could break here: something of a row stands in clear in some file; a page that
//! was changed or moved is taken for what was written; a page is written twice with the same nonce; without
//! its key a table is damaged, or keeps others from being used; what was encrypted can't be read after a
//! crash, or in another database.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use varve::offline::{Grade, Salvaged, Saved, TableFile};
use varve::{
    ColumnType, Compression, Database, Encryption, EncryptionKeys, EncryptionMode, EncryptionStage,
    Error, ForeignKeyChecks, HistoryOptions, IndexDef, Isolation, KeyPart, Options, PurgeOptions,
    RedefinitionWaits, Result, RotationOptions, TableDef, Value, values,
};
use varve_sim::sample::Keys;

const ROWS: i64 = 2000;
const PAGE: usize = 4096;
/// In each row, and nowhere else.
const SECRET: &str = "attack at dawn";
const PATIENCE: Duration = Duration::from_secs(60);

fn keys(newest: u32) -> Option<Arc<dyn EncryptionKeys>> {
    Some(Arc::new(Keys(newest)))
}

/// A key 1 that is another one.
struct Others;

impl EncryptionKeys for Others {
    fn newest_version(&self, _key: u32) -> Option<u32> {
        Some(1)
    }

    fn key(&self, _key: u32, _version: u32) -> Option<Vec<u8>> {
        Some(vec![77; 32])
    }
}

fn options() -> Options {
    Options {
        page_size: PAGE as u32,
        buffer_pool_bytes: 512 * PAGE as u64,
        redo_capacity_bytes: 8 << 20,
        log_buffer_bytes: 2 << 20,
        undo_tablespaces: 2,
        logger: Some(Arc::new(|_, _| {})),
        ..Options::default()
    }
}

/// With all that can be encrypted.
fn encrypting() -> Options {
    Options {
        encryption_keys: keys(1),
        encrypt_tables: true,
        encrypt_log: true,
        encrypt_temporary_tables: true,
        ..options()
    }
}

/// Nothing is rewritten in the background.
fn nobody() -> RotationOptions {
    RotationOptions {
        threads: 0,
        ..RotationOptions::default()
    }
}

fn definition(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("text", ColumnType::text(20_000))
        .primary(&["id"])
        .add_index(IndexDef::new("text", vec![KeyPart::new(1).prefix(30)]))
}

/// Some of them are longer than a page.
fn text(id: i64, version: i64) -> String {
    let words = format!("{SECRET}, row {id} in version {version}; ");
    words.repeat(4 + usize::from(id % 300 == 0) * 300)
}

fn write(db: &Database, table: &str, version: i64) -> Result<()> {
    let table = db.table(table)?;
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS {
        table.put(&mut trx, values![id, text(id, version)])?;
    }
    trx.commit()
}

fn check(db: &Database, table: &str, version: i64) {
    let table = db.table(table).unwrap();
    let checked = db.check_table(&table).unwrap();
    assert!(checked.errors.is_empty(), "{:?}", checked.errors);
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in (0..ROWS).step_by(17) {
        let row = table.get(&mut trx, values![id]).unwrap().expect("a row");
        assert_eq!(row.get::<String>("text").unwrap(), text(id, version));
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

/// The names of files in which the words stand.
fn that_say(dir: &Path, words: &str) -> Vec<String> {
    let says = |path: &PathBuf| {
        let bytes = match fs::read(path) {
            // A log file that was used again meanwhile, or a scratch file.
            Err(e) if e.kind() == ErrorKind::NotFound => return false,
            bytes => bytes.unwrap(),
        };
        bytes.windows(words.len()).any(|w| w == words.as_bytes())
    };
    let mut found: Vec<_> = (files(dir).into_iter().filter(says))
        .map(|path| path.strip_prefix(dir).unwrap().display().to_string())
        .collect();
    found.sort();
    found
}

/// A copy of the directory, as a crash would leave it.
fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for path in files(from) {
        let place = to.path().join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(&path, place).unwrap();
    }
    to
}

/// Writes rows in many ways: changes with their undo, rollback, versions that are kept, long values,
/// temporary tables, indexes that are sorted in files, a load. Looks into the files while that goes on.
fn work(db: &Database, dir: &Path, look: &mut dyn FnMut(&Path)) {
    db.create_table(&definition("a/t")).unwrap();
    let compressed = definition("a/compressed").compressed(Compression::LZ4);
    db.create_table(&compressed).unwrap();
    write(db, "a/t", 1).unwrap();
    let mut reader = db.begin(Isolation::RepeatableRead);
    let table = db.table("a/t").unwrap();
    let first = table.get(&mut reader, values![3]).unwrap().unwrap();
    assert_eq!(first.get::<String>("text").unwrap(), text(3, 1));
    for version in 2..=3 {
        write(db, "a/t", version).unwrap();
        write(db, "a/compressed", version).unwrap();
        db.merge_changes("a/t", 10).unwrap();
        look(dir);
    }
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..500 {
        table.put(&mut trx, values![id, text(id, 9)]).unwrap();
    }
    look(dir);
    trx.rollback().unwrap();
    let temporary = db.create_temporary_table(&definition("a/temp")).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS {
        let row = values![id, text(id, 1)];
        temporary.put(&mut trx, row).unwrap();
    }
    trx.commit().unwrap();
    look(dir);
    let again = table.get(&mut reader, values![3]).unwrap().unwrap();
    assert_eq!(again.get::<String>("text").unwrap(), text(3, 1));
    reader.rollback().unwrap();
    drop(table);
    let longer = IndexDef::new("longer", vec![KeyPart::new(1).prefix(100)]);
    db.redefine_table(&definition("a/t").add_index(longer))
        .unwrap();
    look(dir);
}

/// Whatever a row comes to, it stands in no file: not in those of tables, undo, the log, the doublewrite
/// file, kept versions and temporary tables.
#[test]
fn nothing_stands_in_clear() {
    let history = HistoryOptions {
        store: true,
        delay: Duration::ZERO,
        ..HistoryOptions::default()
    };
    let of = |options: Options| {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            history,
            purge: PurgeOptions::default(),
            ..options
        };
        let mut found = HashSet::new();
        let db = Database::open(dir.path(), options.clone()).unwrap();
        // What is merged stands in both trees' pages.
        db.buffer_all_changes(true);
        let mut look = |dir: &Path| found.extend(that_say(dir, SECRET));
        work(&db, dir.path(), &mut look);
        let crashed = copy(dir.path());
        db.close().unwrap();
        let recovered = Database::open(crashed.path(), options.clone()).unwrap();
        recovered.wait_for_recovery(PATIENCE);
        check(&recovered, "a/t", 3);
        check(&recovered, "a/compressed", 3);
        look(crashed.path());
        recovered.close().unwrap();
        look(crashed.path());
        look(dir.path());
        let db = Database::open(dir.path(), options).unwrap();
        check(&db, "a/t", 3);
        check(&db, "a/compressed", 3);
        db.close().unwrap();
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort();
        found
    };
    assert_eq!(of(encrypting()), [""; 0]);
    // The test finds them where they are not encrypted.
    let clear = of(options());
    for file in ["a/t.vdt", "temp.vdt", "redo/000002.vlog", "undo_001.vdt"] {
        assert!(clear.iter().any(|name| name == file), "{file}: {clear:?}");
    }
}

/// A table that says so is encrypted while others are not; its undo is, too.
#[test]
fn one_table_is_encrypted() {
    let dir = tempfile::tempdir().unwrap();
    let only_log = Options {
        encryption_keys: keys(1),
        encrypt_log: true,
        ..options()
    };
    let open = || Database::open(dir.path(), only_log.clone()).unwrap();
    let db = open();
    db.create_table(&definition("a/t").encrypted(5)).unwrap();
    for version in 1..=3 {
        write(&db, "a/t", version).unwrap();
    }
    db.close().unwrap();
    assert_eq!(that_say(dir.path(), SECRET), [""; 0]);
    let db = open();
    check(&db, "a/t", 3);
    db.create_table(&definition("a/clear")).unwrap();
    write(&db, "a/clear", 1).unwrap();
    db.close().unwrap();
    assert!(that_say(dir.path(), SECRET).contains(&"a/clear.vdt".to_owned()));
}

/// Undo that is written again shows nothing of a table that nobody has opened since the start.
#[test]
fn undo_of_a_table_that_is_not_open_is_encrypted() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        encryption_keys: keys(1),
        encrypt_log: true,
        rotation: nobody(),
        undo_tablespaces: 0,
        ..options()
    };
    let db = Database::open(dir.path(), options.clone()).unwrap();
    db.create_table(&definition("a/t").encrypted(5)).unwrap();
    db.create_table(&definition("a/clear")).unwrap();
    write(&db, "a/t", 1).unwrap();
    // History that nobody purges.
    let mut reader = db.begin(Isolation::RepeatableRead);
    let table = db.table("a/t").unwrap();
    table.get(&mut reader, values![3]).unwrap();
    drop(table);
    write(&db, "a/t", 2).unwrap();
    let crashed = copy(dir.path());
    drop(reader);
    db.close().unwrap();
    let db = Database::open(crashed.path(), options).unwrap();
    let table = db.table("a/clear").unwrap();
    for id in 0..500 {
        let mut trx = db.begin(Isolation::RepeatableRead);
        table.put(&mut trx, values![id, "nothing"]).unwrap();
        trx.commit().unwrap();
    }
    drop(table);
    db.close().unwrap();
    assert_eq!(that_say(crashed.path(), SECRET), [""; 0]);
}

/// What is set for all tables is about those that don't say anything: new ones at once, others when the
/// background has come to them, whose files have nothing in clear any more then (SP-18).
#[test]
fn tables_follow_what_is_set() {
    let dir = tempfile::tempdir().unwrap();
    let mut off = definition("a/off");
    off.encryption.mode = EncryptionMode::Off;
    let fast = RotationOptions {
        iops: 100_000,
        ..RotationOptions::default()
    };
    let without = Options {
        rotation: fast,
        ..options()
    };
    let db = Database::open(dir.path(), without.clone()).unwrap();
    db.create_table(&definition("a/t")).unwrap();
    db.create_table(&off).unwrap();
    write(&db, "a/t", 1).unwrap();
    write(&db, "a/off", 1).unwrap();
    let refused = db
        .create_table(&definition("a/refused").encrypted(1))
        .map(drop);
    assert!(matches!(refused, Err(Error::NoKey { .. })), "{refused:?}");
    db.close().unwrap();
    let without_keys = Options {
        encrypt_tables: true,
        ..without.clone()
    };
    let refused = Database::open(dir.path(), without_keys).map(drop);
    assert!(matches!(refused, Err(Error::NoKey { .. })), "{refused:?}");

    let stages = |db: &Database, name: &str| {
        let all = db.encryption().unwrap();
        let of = all.iter().find(|(e, _)| e.path == name);
        let (e, _) = of.unwrap_or_else(|| panic!("{name}: {all:?}"));
        (e.stage, e.least_version)
    };
    let with_keys = Options {
        encryption_keys: keys(1),
        ..without
    };
    let encrypting = Options {
        rotation: fast,
        encrypt_tables: false,
        ..encrypting()
    };
    let db = Database::open(dir.path(), encrypting.clone()).unwrap();
    assert!(db.wait_for_encryption(PATIENCE));
    assert_eq!(stages(&db, "a/t.vdt"), (EncryptionStage::Clear, 0));
    check(&db, "a/t", 1);
    // A free page has what it had.
    let mut trx = db.begin(Isolation::RepeatableRead);
    let table = db.table("a/t").unwrap();
    for id in ROWS / 2..ROWS {
        table.delete(&mut trx, values![id]).unwrap();
    }
    trx.commit().unwrap();
    assert!(db.wait_for_purge(PATIENCE));
    drop(table);
    db.set_encrypt_tables(true).unwrap();
    assert!(db.wait_for_encryption(PATIENCE));
    for path in ["a/t.vdt", "system.vdt", "undo_001.vdt", "undo_002.vdt"] {
        assert_eq!(stages(&db, path), (EncryptionStage::Encrypted, 1), "{path}");
    }
    assert_eq!(stages(&db, "a/off.vdt"), (EncryptionStage::Clear, 0));
    write(&db, "a/t", 2).unwrap();
    let in_clear = that_say(dir.path(), SECRET);
    let redo_or_off = |name: &String| name == "a/off.vdt" || name.starts_with("redo/");
    assert!(in_clear.iter().all(redo_or_off), "{in_clear:?}");
    db.close().unwrap();
    assert!(that_say(dir.path(), SECRET).contains(&"a/off.vdt".to_owned()));

    // A newer version of the key; and, as nobody needs it any more, none.
    let newer = Options {
        encryption_keys: keys(3),
        encrypt_tables: true,
        ..encrypting
    };
    let db = Database::open(dir.path(), newer).unwrap();
    assert!(db.wait_for_encryption(PATIENCE));
    for path in ["a/t.vdt", "system.vdt", "undo_001.vdt", "undo_002.vdt"] {
        assert_eq!(stages(&db, path), (EncryptionStage::Encrypted, 3), "{path}");
    }
    check(&db, "a/t", 2);
    db.close().unwrap();
    let only_newest = Options {
        encryption_keys: Some(Arc::new(OnlyNewest)),
        ..with_keys.clone()
    };
    let db = Database::open(dir.path(), only_newest).unwrap();
    check(&db, "a/t", 2);
    // Nothing is to be encrypted now.
    assert!(db.wait_for_encryption(PATIENCE));
    for path in ["a/t.vdt", "system.vdt", "undo_001.vdt", "undo_002.vdt"] {
        assert_eq!(stages(&db, path), (EncryptionStage::Clear, 0), "{path}");
    }
    db.close().unwrap();
    assert!(that_say(&dir.path().join("a"), "version 2").contains(&"t.vdt".to_owned()));
    let without = Options {
        encryption_keys: None,
        ..with_keys
    };
    let db = Database::open(dir.path(), without).unwrap();
    check(&db, "a/t", 2);
    db.close().unwrap();
}

/// Version 3 of each key.
struct OnlyNewest;

impl EncryptionKeys for OnlyNewest {
    fn newest_version(&self, key: u32) -> Option<u32> {
        Keys(3).newest_version(key)
    }

    fn key(&self, key: u32, version: u32) -> Option<Vec<u8>> {
        Keys(3).key(key, version).filter(|_| version == 3)
    }
}

/// A table without its key is refused by name, nothing in its file changes, and it is as it was when the key
/// is back (SP-17).
#[test]
fn a_lost_key_keeps_one_table_away() {
    struct Without(u32);
    impl EncryptionKeys for Without {
        fn newest_version(&self, key: u32) -> Option<u32> {
            Keys(1).newest_version(key).filter(|_| key != self.0)
        }
        fn key(&self, key: u32, version: u32) -> Option<Vec<u8>> {
            Keys(1).key(key, version).filter(|_| key != self.0)
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let open = |encryption_keys: Option<Arc<dyn EncryptionKeys>>| {
        let options = Options {
            encryption_keys,
            ..options()
        };
        Database::open(dir.path(), options)
    };
    let db = open(keys(1)).unwrap();
    for (name, key) in [("a/t", 2), ("a/other", 3)] {
        db.create_table(&definition(name).encrypted(key)).unwrap();
        write(&db, name, 1).unwrap();
    }
    // With history of it, that is purged after the start only.
    let mut reader = db.begin(Isolation::RepeatableRead);
    let table = db.table("a/t").unwrap();
    table.get(&mut reader, values![3]).unwrap();
    drop(table);
    write(&db, "a/t", 2).unwrap();
    db.close().unwrap();
    drop(reader);
    let file = || fs::read(dir.path().join("a/t.vdt")).unwrap();
    let before = file();
    let db = open(Some(Arc::new(Without(2)))).unwrap();
    let refused = db.table("a/t").map(drop).unwrap_err();
    assert!(matches!(refused, Error::NoKey { .. }), "{refused}");
    let words = refused.to_string();
    assert!(
        words.contains("key 2") && words.contains("a/t.vdt"),
        "{words}"
    );
    // Purge and rollback pass over what the table is owed, and others go on.
    write(&db, "a/other", 2).unwrap();
    let table = db.table("a/other").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS {
        table.delete(&mut trx, values![id]).unwrap();
    }
    trx.rollback().unwrap();
    drop(table);
    assert!(db.wait_for_purge(PATIENCE));
    db.close().unwrap();
    assert!(file() == before);
    // Undo is encrypted with key 1.
    let refused = open(Some(Arc::new(Without(1)))).map(drop);
    assert!(matches!(refused, Err(Error::NoKey { .. })), "{refused:?}");
    let refused = open(Some(Arc::new(Others))).map(drop);
    assert!(matches!(refused, Err(Error::NoKey { .. })), "{refused:?}");
    let db = open(keys(1)).unwrap();
    check(&db, "a/t", 2);
    check(&db, "a/other", 2);
    db.close().unwrap();
    // What can't be read can be dropped.
    let db = open(Some(Arc::new(Without(2)))).unwrap();
    db.drop_table("a/t").unwrap();
    assert!(!dir.path().join("a/t.vdt").exists());
    db.close().unwrap();
}

/// The log of a crash is replayed with the key of its time, and is refused with another.
#[test]
fn the_log_needs_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), encrypting()).unwrap();
    db.create_table(&definition("a/t")).unwrap();
    write(&db, "a/t", 1).unwrap();
    let crashed = copy(dir.path());
    db.close().unwrap();
    for keys in [None, Some(Arc::new(Others) as Arc<dyn EncryptionKeys>)] {
        let options = Options {
            encryption_keys: keys,
            ..options()
        };
        let refused = Database::open(crashed.path(), options).map(drop);
        let Err(refused @ Error::NoKey { .. }) = refused else {
            panic!("{refused:?}");
        };
        println!("{refused}");
    }
    // A newer version of the key is there by now.
    let options = Options {
        encryption_keys: keys(3),
        ..encrypting()
    };
    let db = Database::open(crashed.path(), options).unwrap();
    check(&db, "a/t", 1);
    db.close().unwrap();
}

/// Pages say with which version of their key they are encrypted.
#[test]
fn versions_of_a_key_are_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    for newest in 1..=3 {
        let options = Options {
            rotation: nobody(),
            encryption_keys: keys(newest),
            ..encrypting()
        };
        let db = Database::open(dir.path(), options).unwrap();
        let name = format!("a/t{newest}");
        db.create_table(&definition(&name)).unwrap();
        write(&db, &name, 1).unwrap();
        for older in 1..=newest {
            check(&db, &format!("a/t{older}"), 1);
        }
        let all = db.encryption().unwrap();
        let of_first = all.iter().find(|(e, _)| e.path == "a/t1.vdt").unwrap();
        assert_eq!(of_first.0.least_version, 1, "nobody encrypts it anew");
        db.close().unwrap();
    }
}

/// ENC-2, SP-16: what somebody has changed in a file is told, not read.
#[test]
fn pages_that_somebody_has_put_there_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let of = Options {
        encryption_keys: keys(1),
        ..options()
    };
    let open = || Database::open(dir.path(), of.clone()).unwrap();
    let db = open();
    db.create_table(&definition("a/t").encrypted(1)).unwrap();
    db.create_table(&definition("a/clear")).unwrap();
    write(&db, "a/t", 1).unwrap();
    write(&db, "a/clear", 1).unwrap();
    db.close().unwrap();
    let path = dir.path().join("a/t.vdt");
    let original = fs::read(&path).unwrap();
    let page = |bytes: &[u8], no: usize| bytes[no * PAGE..(no + 1) * PAGE].to_vec();
    let put_at = |no: usize, bytes: &[u8]| {
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(bytes, (no * PAGE) as u64).unwrap();
    };
    let put = |bytes: &[u8]| put_at(7, bytes);
    let told = || {
        let mut told = Vec::new();
        let tell = &mut |finding: &varve::offline::Finding| {
            if finding.grade == Grade::Damage {
                told.push(finding.to_string());
            }
        };
        varve::offline::check(dir.path(), keys(1), tell).unwrap();
        told
    };
    assert_eq!(told(), [""; 0]);
    // Another page of the table.
    put(&page(&original, 9));
    assert!(!told().is_empty());
    // One in clear, with a right checksum and address: of another table, with the address made to fit.
    let mut clear = page(&fs::read(dir.path().join("a/clear.vdt")).unwrap(), 7);
    let space = u32::from_le_bytes(original[80..84].try_into().unwrap());
    clear[4..8].copy_from_slice(&space.to_le_bytes());
    let crc = crc32c::crc32c(&clear[4..]);
    clear[..4].copy_from_slice(&crc.to_le_bytes());
    put(&clear);
    let words = told().join("; ");
    assert!(words.contains("an encrypted page"), "SP-16: {words}");
    put(&page(&original, 7));
    assert_eq!(told(), [""; 0]);
    // Whether it is encrypted is not known.
    let mut first = page(&original, 0);
    first[148] = 90;
    put_at(0, &first);
    let refused = open().table("a/t").map(drop).unwrap_err().to_string();
    assert!(refused.contains("a/t.vdt is damaged"), "{refused}");
    put_at(0, &page(&original, 0));
    check(&open(), "a/t", 1);
}

/// ENC-1: the same pages, written again, have other nonces.
#[test]
fn no_nonce_is_used_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut nonces = HashSet::new();
    let mut pages = HashSet::new();
    for version in 1..=6 {
        let db = Database::open(dir.path(), encrypting()).unwrap();
        if version == 1 {
            db.create_table(&definition("a/t")).unwrap();
        }
        write(&db, "a/t", version).unwrap();
        db.close().unwrap();
        for page in fs::read(dir.path().join("a/t.vdt")).unwrap().chunks(PAGE) {
            // Each page has another nonce, unless it was not written.
            if page[13] & 0x80 != 0 && pages.insert(page.to_vec()) {
                assert!(nonces.insert(page[32..44].to_vec()), "version {version}");
            }
        }
    }
    assert!(nonces.len() > 500, "{} pages", nonces.len());
}

/// A table becomes encrypted, and another key's, by being made anew; its rows come into another database, and
/// are read from the file alone, with the keys.
#[test]
fn tables_are_made_anew_and_moved() {
    let dir = tempfile::tempdir().unwrap();
    let with_keys = Options {
        encryption_keys: keys(1),
        ..options()
    };
    let db = Database::open(dir.path(), with_keys.clone()).unwrap();
    db.create_table(&definition("a/t")).unwrap();
    write(&db, "a/t", 1).unwrap();
    for encryption in [
        Encryption {
            mode: EncryptionMode::On,
            key: 4,
        },
        Encryption {
            mode: EncryptionMode::On,
            key: 5,
        },
    ] {
        let mut to = definition("a/t");
        to.encryption = encryption;
        db.rebuild_table(&to).unwrap();
        assert_eq!(db.table("a/t").unwrap().def().encryption, encryption);
        check(&db, "a/t", 1);
    }
    db.close().unwrap();
    assert_eq!(that_say(&dir.path().join("a"), SECRET), [""; 0]);
    let path = dir.path().join("a/t.vdt");
    let salvaged = |keys| {
        let file = TableFile::open(&path, keys).unwrap();
        let (mut rows, mut skipped) = (0, 0);
        let counted = file.salvage(&mut |salvaged| {
            match salvaged {
                Salvaged::Row { values, .. } => {
                    let Saved::Value(Value::Text(text)) = &values[1] else {
                        panic!("{values:?}");
                    };
                    assert!(text.starts_with(SECRET));
                    rows += 1;
                }
                Salvaged::Skipped(_) => skipped += 1,
            }
            Ok(())
        });
        counted.map(|_| (rows, skipped))
    };
    assert_eq!(salvaged(keys(1)).unwrap(), (ROWS, 0));
    let (rows, skipped) = salvaged(None).unwrap();
    assert!(rows == 0 && skipped > 0);

    let other = tempfile::tempdir().unwrap();
    let db = Database::open(other.path(), with_keys).unwrap();
    db.create_table(&definition("a/t").encrypted(9)).unwrap();
    db.discard_table("a/t", ForeignKeyChecks::On).unwrap();
    fs::copy(&path, other.path().join("a/t.vdt")).unwrap();
    db.import_table("a/t", RedefinitionWaits::default())
        .unwrap();
    check(&db, "a/t", 1);
    assert_eq!(db.table("a/t").unwrap().def().encryption.key, 9);
    db.close().unwrap();
    assert_eq!(that_say(&other.path().join("a"), SECRET), [""; 0]);
}
