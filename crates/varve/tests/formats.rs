//! Databases that each version of the format has made: they open, hold what was put in, and can be used on.
//!
//! `formats/vN` has two of version N, as the program of that version left them: `closed` was closed cleanly,
//! `crashed` has redo to replay, a transaction to roll back and a prepared one. [`make`] makes them, and is
//! all that is to be run when there is a new version; the ones that are there are never made again. What
//! could break here: a program forgets how to read what an older one wrote; an upgrade that was interrupted
//! can't be opened, or is opened by the older program, which takes new records for the log's end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use varve::internals::io::{Disk, OpenMode};
use varve::internals::redo::{FORMAT_VERSION, OLDEST_VERSION};
use varve::offline::{Finding, Grade, check_with_keys};
use varve::{
    CollationId, ColumnType, Compression, Cursor, Database, Encryption, EncryptionKeys,
    EncryptionMode, Error, Isolation, KeyMatch, LockMode, Options, Result, Table, TableDef,
    Transaction, Value, Xid,
};
use varve_sim::sample::{self, DIR};
use varve_sim::{CrashPoints, SimDisk};

/// All of which there are databases.
const VERSIONS: [u32; 12] = [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
const NAMES: [&str; 2] = ["closed", "crashed"];
const ROWS: i64 = 150;
const PATIENCE: Duration = Duration::from_secs(60);

fn open(disk: &SimDisk) -> Result<Database> {
    let options = Options {
        redo_capacity_bytes: 2 << 20,
        undo_tablespaces: 1,
        lock_wait_timeout: Duration::from_millis(20),
        encryption_keys: Some(Arc::new(sample::Keys(1))),
        encrypt_log: true,
        ..sample::options()
    };
    Database::open_on(Arc::new(disk.clone()), Path::new(DIR), options)
}

// --- What is in them ---------------------------------------------------------------------------------------

fn definition(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .nullable("body", ColumnType::Bytes(u32::MAX))
        .primary(&["id"])
        .index("by_k", &["k"])
        .unique("by_id_k", &["id", "k"])
}

/// Every twentieth row has a value that takes several pages, every third none.
fn row(id: i64, k: i64) -> Vec<Value> {
    let byte = (id + k) as u8;
    let body = match id {
        _ if id % 20 == 0 => Value::Bytes(vec![byte; 10_000 + id as usize]),
        _ if id % 3 == 0 => Value::Null,
        _ => Value::Bytes(vec![byte; 100]),
    };
    vec![Value::Int(id), Value::Int(k), body]
}

fn begin(db: &Database) -> Transaction {
    db.begin(Isolation::RepeatableRead)
}

fn insert(trx: &mut Transaction, table: &Table, id: i64, k: i64) {
    let row = table.def().row(&row(id, k)).unwrap();
    trx.insert(table, &row.datums()).unwrap();
}

fn seek(trx: &mut Transaction, table: &Table, id: i64) -> Cursor {
    let mut cursor = table.cursor(0).unwrap();
    let key = id.to_le_bytes();
    let found = cursor.seek(trx, &[Some(&key)], KeyMatch::Exact, LockMode::Exclusive);
    assert!(found.unwrap(), "row {id}");
    cursor
}

fn update(trx: &mut Transaction, table: &Table, id: i64, k: i64) {
    let cursor = seek(trx, table, id);
    let row = table.def().row(&row(id, k)).unwrap();
    trx.update(table, &cursor, &row.datums()).unwrap();
}

fn delete(trx: &mut Transaction, table: &Table, id: i64) {
    let cursor = seek(trx, table, id);
    trx.delete(table, &cursor).unwrap();
}

fn xid() -> Xid {
    Xid::new(1, b"prepared", b"branch").unwrap()
}

/// Rows of `a/t` in `closed`: some were changed, some deleted.
fn closed_rows() -> Vec<(i64, i64)> {
    let rows = (0..ROWS).filter(|id| !(120..130).contains(id));
    let k = |id: i64| if (40..80).contains(&id) { -id } else { id * 7 };
    rows.map(|id| (id, k(id))).collect()
}

/// The same in `crashed`, when what had not ended was rolled back and what was prepared ended so.
fn crashed_rows(is_committed: bool) -> Vec<(i64, i64)> {
    let mut rows = closed_rows();
    let at = |rows: &[(i64, i64)], id| rows.iter().position(|row| row.0 == id).unwrap();
    let first = at(&rows, 1);
    rows[first].1 = 1001;
    let gone = at(&rows, 20);
    rows.remove(gone);
    rows.push((ROWS, 5));
    if is_committed {
        let changed = at(&rows, 40);
        rows[changed].1 = 2002;
        let gone = at(&rows, 41);
        rows.remove(gone);
    }
    rows
}

/// Texts of several forms, one of which has become another one of the same weights.
const WORDS: [(&str, &str); 4] = [
    ("one", "Two Words"),
    ("three", "CAPITAL"),
    ("four", "ODd"),
    ("five", "six"),
];

fn make_words(db: &Database) {
    let def = TableDef::new("b/words")
        .column("id", ColumnType::text_in(CollationId::ASCII_CI, 10))
        .column("word", ColumnType::text_in(CollationId::UTF8_CI, 20))
        .primary(&["id"])
        .index("by_word", &["word"]);
    let table = db.create_table(&def).unwrap();
    let row = |id: &str, word: &str| {
        let values = [Value::Text(id.into()), Value::Text(word.into())];
        table.def().row(&values).unwrap()
    };
    let mut trx = begin(db);
    for (id, word) in WORDS {
        trx.insert(&table, &row(id, &word.to_uppercase()).datums())
            .unwrap();
        let mut cursor = table.cursor(0).unwrap();
        let key = [Some(id.as_bytes())];
        assert!(
            cursor
                .seek(&mut trx, &key, KeyMatch::Exact, LockMode::Exclusive)
                .unwrap()
        );
        trx.update(&table, &cursor, &row(id, word).datums())
            .unwrap();
    }
    trx.commit().unwrap();
}

/// What the entries say, and the row where they don't.
fn check_words(db: &Database, of: &str) {
    let table = db.table("b/words").unwrap();
    let mut trx = begin(db);
    let mut cursor = table.cursor(1).unwrap();
    cursor.set_keys_suffice(true);
    let mut more = cursor.first(&mut trx, LockMode::None).unwrap();
    let mut found = Vec::new();
    while more {
        let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
        let of_entry = cursor.key_values().unwrap();
        let of_entry = of_entry.map(|values| (text(values.get(1)), text(values.get(0))));
        found.push(of_entry.unwrap_or_else(|| {
            let row = cursor.row().unwrap();
            assert_eq!(
                row.get(1),
                Some(&b"ODd"[..]),
                "{of}: an entry without a form"
            );
            (text(row.get(0)), text(row.get(1)))
        }));
        more = cursor.next(&mut trx).unwrap();
    }
    let mut want = WORDS.map(|(id, word)| (id.to_owned(), word.to_owned()));
    want.sort_by_key(|(_, word)| word.to_lowercase());
    assert_eq!(found, want, "{of}");
}

/// A row of `b/long`, whose entries are long ones: with the bytes of all but the last alike.
fn long_row(id: u8, k: u8) -> Vec<Value> {
    let text = |last| Value::Bytes([vec![7; 900], vec![last]].concat());
    vec![text(id), text(k)]
}

/// Ten rows, of which those with even keys have got another `k`, and one is gone.
fn make_long(db: &Database) {
    let def = TableDef::new("b/long")
        .column("id", ColumnType::Bytes(1600))
        .column("k", ColumnType::Bytes(1600))
        .primary(&["id"])
        .index("by_k", &["k"]);
    let table = db.create_table(&def).unwrap();
    let row = |id, k| table.def().row(&long_row(id, k)).unwrap();
    let mut trx = begin(db);
    (0..10).for_each(|id| trx.insert(&table, &row(id, 1).datums()).unwrap());
    trx.commit().unwrap();
    let mut trx = begin(db);
    let mut cursor = table.cursor(0).unwrap();
    let mut found = cursor.first(&mut trx, LockMode::Exclusive).unwrap();
    for id in 0..10 {
        assert!(found);
        match id {
            5 => trx.delete(&table, &cursor).unwrap(),
            _ if id % 2 == 0 => {
                trx.update(&table, &cursor, &row(id, 2).datums()).unwrap();
            }
            _ => (),
        }
        found = cursor.next(&mut trx).unwrap();
    }
    trx.commit().unwrap();
}

fn check_long(db: &Database, of: &str) {
    let table = db.table("b/long").unwrap();
    assert_eq!(db.check_table(&table).unwrap().errors, [""; 0], "{of}");
    let mut trx = begin(db);
    let mut cursor = table.cursor(1).unwrap();
    let mut more = cursor.first(&mut trx, LockMode::None).unwrap();
    let mut found = Vec::new();
    while more {
        found.push(cursor.row().unwrap().values().unwrap());
        more = cursor.next(&mut trx).unwrap();
    }
    // Those of one `k` come in any order: they differ where their keys end.
    found[..4].sort_by_key(|row| format!("{row:?}"));
    found[4..].sort_by_key(|row| format!("{row:?}"));
    let want = [
        (1, 1),
        (3, 1),
        (7, 1),
        (9, 1),
        (0, 2),
        (2, 2),
        (4, 2),
        (6, 2),
        (8, 2),
    ];
    assert_eq!(found, want.map(|(id, k)| long_row(id, k)), "{of}");
}

/// Inserts rows whose numbers are drawn, and deletes the last one.
fn count(db: &Database, rows: u64) {
    let table = db.table("b/counted").unwrap();
    for n in 0..rows {
        let mut trx = begin(db);
        let id = table.auto_increment_reserve(1);
        let row = table.def().row(&[Value::UInt(id)]).unwrap();
        trx.insert(&table, &row.datums()).unwrap();
        if n + 1 == rows {
            let mut cursor = table.cursor(0).unwrap();
            assert!(cursor.last(&mut trx, LockMode::Exclusive).unwrap());
            trx.delete(&table, &cursor).unwrap();
        }
        trx.commit().unwrap();
    }
}

/// A row of `b/segments`, whose keys would be too long if zeros and spaces were escaped.
fn segmented_row(n: u8) -> Vec<Value> {
    let bytes = [[0, 1].repeat(180), vec![n]].concat();
    let text = format!("{}{n}", "a ".repeat(180));
    vec![Value::Bytes(bytes), Value::Text(text)]
}

/// Twenty rows, of which those with even numbers have changed places in the index.
fn make_segmented(db: &Database) {
    let def = TableDef::new("b/segments")
        .column("id", ColumnType::Bytes(400))
        .column("k", ColumnType::text_in(CollationId::UTF8_BIN_PAD, 400))
        .primary(&["id"])
        .unique("by_k", &["k"]);
    let table = db.create_table(&def).unwrap();
    let row = |id, k: u8| {
        let values = [segmented_row(id).remove(0), segmented_row(k).remove(1)];
        table.def().row(&values).unwrap()
    };
    let mut trx = begin(db);
    (0..20).for_each(|id| trx.insert(&table, &row(id, id + 100).datums()).unwrap());
    trx.commit().unwrap();
    let mut trx = begin(db);
    let mut cursor = table.cursor(0).unwrap();
    for id in 0..20 {
        assert!(match id {
            0 => cursor.first(&mut trx, LockMode::Exclusive).unwrap(),
            _ => cursor.next(&mut trx).unwrap(),
        });
        trx.update(&table, &cursor, &row(id, id).datums()).unwrap();
    }
    trx.commit().unwrap();
}

/// By the entries alone, which have the whole row.
fn check_segmented(db: &Database, of: &str) {
    let table = db.table("b/segments").unwrap();
    assert_eq!(db.check_table(&table).unwrap().errors, [""; 0], "{of}");
    let mut trx = begin(db);
    let mut cursor = table.cursor(1).unwrap();
    cursor.set_keys_suffice(true);
    let mut more = cursor.first(&mut trx, LockMode::None).unwrap();
    let mut found = Vec::new();
    while more {
        let values = cursor.key_values().unwrap().expect("the entry says all");
        let text = String::from_utf8(values.get(0).unwrap().to_vec()).unwrap();
        let bytes = values.get(1).unwrap().to_vec();
        found.push(vec![Value::Bytes(bytes), Value::Text(text)]);
        more = cursor.next(&mut trx).unwrap();
    }
    let mut want: Vec<_> = (0..20).map(segmented_row).collect();
    want.sort_by_key(|row| format!("{:?}", row[1]));
    assert_eq!(found, want, "{of}");
}

/// A table whose entries were frozen when its indexes were built.
fn make_frozen(db: &Database) {
    let indexed = definition("b/frozen");
    let mut plain = indexed.clone();
    plain.indexes.clear();
    let table = db.create_table(&plain).unwrap();
    let mut trx = begin(db);
    (0..40).for_each(|id| insert(&mut trx, &table, id, id * 3));
    trx.commit().unwrap();
    drop(table);
    db.redefine_table(&indexed).unwrap();
}

/// Some of its rows go, and others get an entry elsewhere.
fn thaw(db: &Database) {
    let table = db.table("b/frozen").unwrap();
    let mut trx = begin(db);
    (0..10).for_each(|id| delete(&mut trx, &table, id));
    (10..20).for_each(|id| update(&mut trx, &table, id, -id));
    trx.commit().unwrap();
}

fn frozen_rows(name: &str) -> Vec<(i64, i64)> {
    match name {
        "crashed" => (10..40)
            .map(|id| (id, if id < 20 { -id } else { id * 3 }))
            .collect(),
        _ => (0..40).map(|id| (id, id * 3)).collect(),
    }
}

/// A table whose pages may be stored compressed. What they are then `page/stored.rs` has: these pages are as
/// small as a block.
fn make_compressed(db: &Database) {
    let compressed = definition("b/compressed").compressed(Compression::zstd(3));
    let table = db.create_table(&compressed).unwrap();
    let mut trx = begin(db);
    (0..40).for_each(|id| insert(&mut trx, &table, id, id * 3));
    trx.commit().unwrap();
}

/// A table whose pages are encrypted.
fn make_encrypted(db: &Database) {
    let encrypted = definition("b/encrypted").encrypted(2);
    let table = db.create_table(&encrypted).unwrap();
    let mut trx = begin(db);
    (0..40).for_each(|id| insert(&mut trx, &table, id, id * 5));
    trx.commit().unwrap();
}

/// Leaves `closed`.
fn fill(disk: &SimDisk) {
    let db = open(disk).unwrap();
    make_words(&db);
    make_long(&db);
    let counted = TableDef::new("b/counted")
        .column("id", ColumnType::u64())
        .primary(&["id"])
        .auto_increment("id");
    db.create_table(&counted).unwrap();
    count(&db, 5);
    make_segmented(&db);
    make_frozen(&db);
    make_compressed(&db);
    make_encrypted(&db);
    db.buffer_all_changes(true);
    for name in ["a/t", "a/renamed", "a/dropped"] {
        let table = db.create_table(&definition(name)).unwrap();
        let mut trx = begin(&db);
        let rows = if name == "a/t" { ROWS } else { 10 };
        (0..rows).for_each(|id| insert(&mut trx, &table, id, id * 7));
        trx.commit().unwrap();
    }
    db.rename_table("a/renamed", "b/other").unwrap();
    db.drop_table("a/dropped").unwrap();
    let table = db.table("a/t").unwrap();
    let mut trx = begin(&db);
    (40..80).for_each(|id| update(&mut trx, &table, id, -id));
    (120..130).for_each(|id| delete(&mut trx, &table, id));
    trx.commit().unwrap();
    drop(table);
    db.close().unwrap();
}

/// Makes `crashed` of it.
fn crash(disk: &SimDisk) {
    let db = open(disk).unwrap();
    db.buffer_all_changes(true);
    count(&db, 4);
    thaw(&db);
    let table = db.table("a/t").unwrap();
    let late = db.create_table(&definition("b/late")).unwrap();
    let mut trx = begin(&db);
    update(&mut trx, &table, 1, 1001);
    delete(&mut trx, &table, 20);
    insert(&mut trx, &table, ROWS, 5);
    insert(&mut trx, &late, 0, 9);
    trx.commit().unwrap();
    let mut prepared = begin(&db);
    update(&mut prepared, &table, 40, 2002);
    delete(&mut prepared, &table, 41);
    prepared.prepare(&xid()).unwrap();
    drop(prepared);
    let mut unfinished = begin(&db);
    update(&mut unfinished, &table, 2, 3003);
    delete(&mut unfinished, &table, 60);
    insert(&mut unfinished, &table, ROWS + 20, 3);
    let loaded = db.create_table(&definition("b/loaded")).unwrap();
    let mut load = db.load_table(&mut unfinished, &loaded, 1).unwrap();
    for id in 0..ROWS {
        let row = loaded.def().row(&row(id, id)).unwrap();
        load.push(&mut unfinished, &row.datums()).unwrap();
    }
    load.finish(&mut unfinished, &mut |_, _| {}).unwrap();
    db.flush_log().unwrap();
    std::mem::forget(unfinished);
    drop((table, late, loaded));
    db.crash();
}

// --- How they are kept -------------------------------------------------------------------------------------

fn place(version: u32, name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join(format!("tests/formats/v{version}/{name}.lz4"))
}

/// All files, each with the length of its path (u32), the path, its length (u64) and its bytes; compressed.
fn pack(disk: &SimDisk) -> Vec<u8> {
    let mut all = Vec::new();
    for path in disk.files() {
        let file = disk.open(&path, OpenMode::ReadOnly).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        let path = path.to_str().unwrap();
        all.extend((path.len() as u32).to_le_bytes());
        all.extend(path.as_bytes());
        all.extend((bytes.len() as u64).to_le_bytes());
        all.extend(bytes);
    }
    lz4_flex::compress_prepend_size(&all)
}

fn unpack(packed: &[u8]) -> SimDisk {
    let all = lz4_flex::decompress_size_prepended(packed).unwrap();
    let mut rest = &all[..];
    let disk = SimDisk::default();
    let mut take = |len: usize| {
        let (head, tail) = rest.split_at(len);
        rest = tail;
        (head, tail.is_empty())
    };
    loop {
        let len = u32::from_le_bytes(take(4).0.try_into().unwrap());
        let path = Path::new(std::str::from_utf8(take(len as usize).0).unwrap());
        let len = u64::from_le_bytes(take(8).0.try_into().unwrap());
        let (bytes, is_last) = take(len as usize);
        disk.create_dir_all(path.parent().unwrap()).unwrap();
        let file = disk.open(path, OpenMode::CreateNew).unwrap();
        file.write_at(bytes, 0).unwrap();
        if is_last {
            return SimDisk::new(disk.image());
        }
    }
}

fn stored(version: u32, name: &str) -> SimDisk {
    let path = place(version, name);
    unpack(&std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

/// Makes those of the present version: `cargo test -p varve --test formats -- --ignored make`.
#[test]
#[ignore = "for a new version of the format"]
fn make() {
    let disk = SimDisk::default();
    for name in NAMES {
        match name {
            "closed" => fill(&disk),
            _ => crash(&disk),
        }
        let path = place(FORMAT_VERSION, name);
        assert!(!path.exists(), "{} is there already", path.display());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, pack(&disk)).unwrap();
    }
}

// --- Tests -------------------------------------------------------------------------------------------------

/// The same of a table that no transaction has locked, with its check.
fn checked_rows(db: &Database, name: &str) -> Vec<(i64, i64)> {
    let report = db.check_table(&db.table(name).unwrap()).unwrap();
    assert!(report.errors.is_empty(), "{name}: {:#?}", report.errors);
    rows(db, name)
}

fn rows(db: &Database, name: &str) -> Vec<(i64, i64)> {
    let table = db.table(name).unwrap();
    let mut trx = begin(db);
    let mut cursor = table.cursor(0).unwrap();
    let mut more = cursor.first(&mut trx, LockMode::None).unwrap();
    let mut rows = Vec::new();
    while more {
        let values = cursor.row().unwrap().values().unwrap();
        let (&Value::Int(id), &Value::Int(k)) = (&values[0], &values[1]) else {
            panic!("{values:?}")
        };
        assert_eq!(values, row(id, k));
        rows.push((id, k));
        more = cursor.next(&mut trx).unwrap();
    }
    rows
}

/// Returns whether there is redo to apply.
fn check_offline(disk: &SimDisk, of: &str) -> bool {
    let mut damage = Vec::new();
    let tell = &mut |finding: &Finding| {
        if finding.grade == Grade::Damage {
            damage.push(finding.to_string());
        }
    };
    let keys: Option<Arc<dyn EncryptionKeys>> = Some(Arc::new(sample::Keys(1)));
    let disk = Arc::new(disk.clone());
    let summary = check_with_keys(disk, Path::new(DIR), keys, tell).unwrap();
    assert_eq!(damage, [""; 0], "{of}");
    summary.recovery_owed
}

/// A database as it was left holds this, before and after it is used by this program.
fn check(disk: &SimDisk, version: u32, name: &str) {
    let of = &format!("{name} of version {version}");
    assert_eq!(check_offline(disk, of), name == "crashed", "{of}");
    let db = open(disk).unwrap_or_else(|e| panic!("{of}: {e}"));
    assert!(db.wait_for_recovery(PATIENCE));
    let ten: Vec<_> = (0..10).map(|id| (id, id * 7)).collect();
    assert_eq!(checked_rows(&db, "b/other"), ten, "{of}");
    let mut expected = closed_rows();
    if name == "crashed" {
        assert_eq!(db.prepared(), [xid()], "{of}");
        assert_eq!(checked_rows(&db, "b/late"), [(0, 9)], "{of}");
        assert_eq!(rows(&db, "a/t"), crashed_rows(false), "{of}");
        db.commit_prepared(&xid()).unwrap();
        expected = crashed_rows(true);
    }
    assert_eq!(checked_rows(&db, "a/t"), expected, "{of}");
    if version >= 14 {
        let table = db.core().tables.get("a/t").unwrap();
        let buffer = table.secondary[0].buffer.tree().unwrap();
        let buffered = buffer.map(|tree| tree.check(&mut |_, _| Ok(())).unwrap().records);
        assert!(buffered.is_some_and(|n| n > 0), "{of}: CB-1");
    }
    let mut tables: Vec<_> = db.tables().unwrap().into_iter().collect();
    tables.sort();
    let late = (name == "crashed").then_some("b/late");
    let loaded = (name == "crashed" && version >= 7).then_some("b/loaded");
    let words = (version >= 8).then_some("b/words");
    let long = (version >= 9).then_some("b/long");
    let counted = (version >= 10).then_some("b/counted");
    let segments = (version >= 10).then_some("b/segments");
    let frozen = (version >= 11).then_some("b/frozen");
    let compressed = (version >= 12).then_some("b/compressed");
    let encrypted = (version >= 13).then_some("b/encrypted");
    let others = (compressed.into_iter().chain(counted))
        .chain(encrypted)
        .chain(frozen)
        .chain(late)
        .chain(loaded)
        .chain(long)
        .chain(["b/other"])
        .chain(segments)
        .chain(words);
    let names: Vec<_> = ["a/t"].into_iter().chain(others).collect();
    assert_eq!(tables, names, "{of}");
    words.into_iter().for_each(|_| check_words(&db, of));
    long.into_iter().for_each(|_| check_long(&db, of));
    if let Some(counted) = counted {
        let next = db.table(counted).unwrap().auto_increment_next();
        let expected = if name == "crashed" { 10 } else { 6 };
        assert_eq!(next, expected, "{of}: COUNTER-1");
    }
    segments.into_iter().for_each(|_| check_segmented(&db, of));
    if let Some(frozen) = frozen {
        assert_eq!(
            checked_rows(&db, frozen),
            frozen_rows(name),
            "{of}: FREEZE-1"
        );
    }
    if let Some(compressed) = compressed {
        let rows: Vec<_> = (0..40).map(|id| (id, id * 3)).collect();
        assert_eq!(checked_rows(&db, compressed), rows, "{of}");
        let def = db.table(compressed).unwrap().def().clone();
        assert_eq!(def.compression, Some(Compression::zstd(3)), "{of}");
    }
    if let Some(encrypted) = encrypted {
        let rows: Vec<_> = (0..40).map(|id| (id, id * 5)).collect();
        assert_eq!(checked_rows(&db, encrypted), rows, "{of}");
        let encryption = db.table(encrypted).unwrap().def().encryption;
        let mode = EncryptionMode::On;
        assert_eq!(encryption, Encryption { mode, key: 2 }, "{of}");
    }
    if let Some(loaded) = loaded {
        assert_eq!(checked_rows(&db, loaded), [], "{of}: LOAD-6");
    }

    let table = db.table("a/t").unwrap();
    let mut trx = begin(&db);
    update(&mut trx, &table, 100, 4);
    insert(&mut trx, &table, 1000, 6);
    trx.commit().unwrap();
    db.create_table(&definition("c/new")).unwrap();
    drop(table);
    let at = expected.iter().position(|row| row.0 == 100).unwrap();
    expected[at].1 = 4;
    expected.push((1000, 6));
    db.crash();
    assert!(check_offline(disk, of), "{of}");
    let db = open(disk).unwrap_or_else(|e| panic!("{of}, used: {e}"));
    assert_eq!(checked_rows(&db, "a/t"), expected, "{of}");
    assert_eq!(checked_rows(&db, "c/new"), [], "{of}");
    assert!(db.wait_for_purge(PATIENCE));
    db.close().unwrap();
    assert!(!check_offline(disk, of), "{of}");
}

#[test]
fn databases_of_each_version_can_be_used_on() {
    assert!(VERSIONS.contains(&FORMAT_VERSION), "each version has some");
    for version in VERSIONS {
        for name in NAMES {
            check(&stored(version, name), version, name);
        }
    }
}

/// The format version of each file that has one; of the control file, that of each copy.
fn versions(disk: &SimDisk) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for path in disk.files() {
        let file = disk.open(&path, OpenMode::ReadOnly).unwrap();
        for at in [0, 48, 4096] {
            let mut intro = [0; 12];
            if file.len().unwrap() < at + 12 {
                continue;
            }
            file.read_at(&mut intro, at).unwrap();
            if intro.starts_with(b"VARVE") {
                let version = u32::from_le_bytes(intro[8..].try_into().unwrap());
                found.push((path.clone(), version));
            }
        }
    }
    found
}

/// A program of version `of` refuses what has a control file with a newer copy, before it looks at any other.
fn is_refused_by(of: u32, disk: &SimDisk) -> bool {
    let is_control = |path: &Path| path.ends_with("varve.ctl");
    let all = versions(disk);
    all.iter()
        .any(|(path, version)| is_control(path) && *version > of)
}

/// CTL-5: whatever the power leaves of an upgrade: either nothing is new, or the older program refuses it;
/// and this one goes on with it.
#[test]
fn an_interrupted_upgrade_is_refused_or_untouched() {
    let older = VERSIONS
        .into_iter()
        .filter(|&version| version < FORMAT_VERSION);
    for (version, name) in older.flat_map(|version| NAMES.map(|name| (version, name))) {
        let disk = stored(version, name);
        let db = open(&disk).unwrap();
        assert!(db.wait_for_recovery(PATIENCE));
        db.crash();
        let journal = disk.journal();
        let (moments, mut rng) = (journal.len(), SmallRng::seed_from_u64(7));
        let mut points = CrashPoints::new(journal);
        let (mut untouched, mut refused) = (0, 0);
        for moment in 0..=moments {
            points.advance(moment);
            let left = SimDisk::new(points.crash(&mut rng));
            match is_refused_by(version, &left) {
                true => refused += 1,
                false => {
                    untouched += 1;
                    for (path, found) in versions(&left) {
                        assert!(found <= version, "{path:?} at {moment}");
                    }
                }
            }
            // All moments around the first writes.
            if moment < 12 || moment % 16 == 0 {
                let of = format!("{name} of version {version}, power lost at {moment}");
                let db = open(&left).unwrap_or_else(|e| panic!("{of}: {e}"));
                assert!(db.wait_for_recovery(PATIENCE));
                let expected = match name {
                    "closed" => closed_rows(),
                    _ => crashed_rows(false),
                };
                assert_eq!(rows(&db, "a/t"), expected, "{of}");
                drop(db);
                // Also if one copy is lost.
                let copies = versions(&left).into_iter();
                let copies = copies.filter(|(path, _)| path.ends_with("varve.ctl"));
                let copies: Vec<_> = copies.map(|(_, version)| version).collect();
                assert_eq!(copies, [FORMAT_VERSION; 2], "{of}");
                // DEF-3
                check_offline(&left, &of);
            }
        }
        assert!(
            untouched > 0 && refused > untouched,
            "{name} of version {version}: {untouched}, {refused}"
        );
    }
}

/// Nothing is written by who only looks.
#[test]
fn only_who_writes_upgrades() {
    let disk = stored(OLDEST_VERSION, "crashed");
    check_offline(&disk, "crashed");
    assert!(!is_refused_by(OLDEST_VERSION, &disk));
}

/// A database of another version is refused by what it is, not called damaged.
#[test]
fn other_versions_are_refused_by_name() {
    let original = stored(FORMAT_VERSION, "closed");
    for (version, why) in [
        (FORMAT_VERSION + 1, "made by a newer program"),
        (OLDEST_VERSION - 1, "before the first release"),
    ] {
        let disk = original.copy();
        let path = Path::new(DIR).join("varve.ctl");
        let file = disk.open(&path, OpenMode::Existing).unwrap();
        // One copy is enough.
        let mut copy = [0; 512];
        file.read_at(&mut copy, 4096).unwrap();
        copy[8..12].copy_from_slice(&version.to_le_bytes());
        let crc = crc32c::crc32c(&copy[..508]);
        copy[508..].copy_from_slice(&crc.to_le_bytes());
        file.write_at(&copy, 4096).unwrap();
        let opened = open(&disk).map(drop).unwrap_err();
        let checked = check_with_keys(Arc::new(disk.clone()), Path::new(DIR), None, &mut |_| ());
        for error in [opened, checked.map(drop).unwrap_err()] {
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            let text = error.to_string();
            let named = format!("varve.ctl has format version {version}");
            assert!(text.contains(&named) && text.contains(why), "{text}");
        }
    }
}
