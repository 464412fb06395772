//! CREATE, RENAME, TRUNCATE and DROP TABLE happen whole or not at all, whenever the process dies.
//!
//! What could break here: a definition without its file, or a file without a definition; a table under its
//! old name after a rename that was acknowledged; rows of a truncated table; a database that does not open
//! any more.
//!
//! Two tests. In the first every operation of the disk is the last one in its turn. In the second the test
//! starts itself again as a child, which works on tables from several threads and says what it begins and
//! what it was told is done; the parent kills it at a random moment. After reopening each thread's tables are
//! as they were before or after what was in flight, their rows included, each passes its check, and the table
//! files are exactly those of the tables.

#[path = "support/child.rs"]
mod child_process;
#[path = "support/directories.rs"]
mod directories;
#[path = "support/dying_disk.rs"]
mod dying_disk;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use child_process::Life;
use directories::{copy_dir, files_below, files_that_go};
use dying_disk::DyingDisk;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use varve::{
    ColumnType, Database, Error, ForeignKeyChecks, Isolation, LockMode, LogLevel, Options,
    PreparedRedefinition, RedefinitionWaits, Result, TableDef, Value,
};

fn options() -> Options {
    Options {
        page_size: 4096,
        buffer_pool_bytes: 2 << 20,
        redo_capacity_bytes: 8 << 20,
        logger: Some(Arc::new(|level, message| {
            if level == LogLevel::Warning && message.contains("put aside") {
                WARNINGS.lock().unwrap().push(message.to_string());
            }
        })),
        ..Options::default()
    }
}

/// Of this process: a file is there that no table has. A crash leaves none.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn definition(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("fill", ColumnType::Bytes(300))
        .primary(&["id"])
        .index("by_fill", &["fill"])
}

/// Those of `definition`.
const FEWEST_COLUMNS: usize = 2;

/// A table: how many rows it has, what its second column and its index are called, whether it has the other
/// indexes, and how many columns.
type State = (i64, String, String, bool, usize);
type Tables = BTreeMap<String, State>;

/// What is done to tables. Each is one DDL statement or one transaction.
#[derive(Clone, Debug)]
enum Op {
    Create(String),
    /// Its file is in a directory beside the data directory.
    CreateElsewhere(String),
    Rename(String, String),
    /// Calls the second column something else.
    RenameColumn(String, String),
    /// Calls the index something else, whose column may be longer from then on.
    Redefine(String, String),
    Truncate(String),
    Drop(String),
    /// Gives it two more indexes, or takes them away.
    Indexes(String, bool),
    /// Writes its rows anew.
    Rebuild(String),
    /// Gives it one more column.
    AddColumn(String),
    /// Takes the last of these away.
    DropColumn(String),
    /// Gives both one more column. The first one loses the other indexes. The second one's rows are written
    /// anew, and it gets them.
    Together(String, String),
    /// Takes its rows and its file away.
    Discard(String),
    /// Renames one whose rows were discarded, with an exported file that waits.
    RenameWaiting(String, String),
    /// Gives it those of an exported file, unless it has some.
    Import(String),
    /// Inserts so many rows.
    Fill(String, i64),
}

impl Op {
    fn run(&self, db: &Database) -> Result<()> {
        match self {
            Op::Create(name) => db.create_table(&definition(name)).map(drop),
            Op::CreateElsewhere(name) => {
                let (def, checks) = (definition(name), ForeignKeyChecks::On);
                db.create_table_in(elsewhere(db), &def, checks).map(drop)
            }
            Op::Rename(from, to) => db.rename_table(from, to),
            Op::RenameColumn(name, to) => {
                let table = db.table(name)?;
                let names = table.def().columns.iter().map(|column| &*column.name);
                let mut names: Vec<&str> = names.collect();
                names[1] = to;
                db.rename_columns(name, &names)
            }
            Op::AddColumn(name) => {
                let def = db.table(name)?.def().clone();
                let new = format!("more{}", def.columns.len());
                db.redefine_table(&def.nullable(&new, ColumnType::i32()))
            }
            Op::DropColumn(name) => {
                let mut def = db.table(name)?.def().clone();
                if def
                    .columns
                    .last()
                    .is_some_and(|c| c.name.starts_with("more"))
                {
                    def.columns.pop();
                }
                db.redefine_table(&def)
            }
            Op::Redefine(name, to) => {
                let mut def = db.table(name)?.def().clone();
                def.columns[1].ty = ColumnType::Bytes(400);
                def.indexes[0].name.clone_from(to);
                db.redefine_table(&def)
            }
            Op::Indexes(name, there) => {
                let def = with_indexes(db.table(name)?.def(), *there);
                if !*there {
                    return db.redefine_table(&def);
                }
                let waits = RedefinitionWaits::default();
                build_beside_changes(db, name, db.prepare_redefinition(&def, waits)?)
            }
            Op::Rebuild(name) => {
                let def = db.table(name)?.def().clone();
                let waits = RedefinitionWaits::default();
                build_beside_changes(db, name, db.prepare_rebuild(&def, waits)?)
            }
            Op::Together(one, other) => {
                let with_column = |name: &str, indexes: bool| -> Result<TableDef> {
                    let def = with_indexes(db.table(name)?.def(), indexes);
                    let new = format!("more{}", def.columns.len());
                    Ok(def.nullable(&new, ColumnType::i32()))
                };
                let waits = RedefinitionWaits::default();
                let mut prepared = db.prepare_redefinition(&with_column(one, false)?, waits)?;
                prepared.and_rebuild(&with_column(other, true)?)?;
                // The first one is kept from others: there is nothing to wait for.
                build_beside_changes(db, other, prepared)
            }
            Op::Discard(name) => db.discard_table(name, ForeignKeyChecks::On),
            Op::RenameWaiting(from, to) => {
                put_exported(db, from);
                db.rename_table(from, to)
            }
            Op::Import(name) => {
                put_exported(db, name);
                db.import_table(name, RedefinitionWaits::default())
            }
            Op::Truncate(name) => db.truncate_table(name),
            Op::Drop(name) => db.drop_table(name),
            Op::Fill(name, rows) => {
                let first = count(db, name)?;
                let table = db.table(name)?;
                let mut trx = db.begin(Isolation::RepeatableRead);
                for id in first..first + rows {
                    let fill = vec![id as u8; (id % 300) as usize];
                    let mut values = vec![Value::Int(id), Value::Bytes(fill)];
                    values.resize(table.def().columns.len(), Value::Null);
                    let row = table.def().row(&values)?;
                    trx.insert(&table, &row.datums())?;
                }
                trx.commit()
            }
        }
    }

    fn apply(&self, tables: &mut Tables) {
        match self {
            Op::Create(name) | Op::CreateElsewhere(name) => {
                drop(tables.insert(name.clone(), (0, "fill".into(), "by_fill".into(), false, 2)))
            }
            Op::Rename(from, to) | Op::RenameWaiting(from, to) => {
                let rows = tables.remove(from).expect("it exists");
                tables.insert(to.clone(), rows);
            }
            Op::RenameColumn(name, to) => tables.get_mut(name).expect("it exists").1 = to.clone(),
            Op::Redefine(name, to) => tables.get_mut(name).expect("it exists").2 = to.clone(),
            Op::Indexes(name, there) => tables.get_mut(name).expect("it exists").3 = *there,
            Op::AddColumn(name) => tables.get_mut(name).expect("it exists").4 += 1,
            Op::DropColumn(name) => {
                let columns = &mut tables.get_mut(name).expect("it exists").4;
                *columns = (*columns - 1).max(FEWEST_COLUMNS);
            }
            Op::Together(one, other) => {
                for (name, indexes) in [(one, false), (other, true)] {
                    let table = tables.get_mut(name).expect("it exists");
                    (table.3, table.4) = (indexes, table.4 + 1);
                }
            }
            Op::Rebuild(_) => {}
            Op::Discard(name) => drop(tables.insert(name.clone(), discarded())),
            Op::Import(name) => drop(tables.insert(name.clone(), imported())),
            Op::Truncate(name) => {
                let table = tables.get_mut(name).expect("it exists");
                if *table == discarded() {
                    *table = imported();
                }
                table.0 = 0;
            }
            Op::Drop(name) => drop(tables.remove(name)),
            Op::Fill(name, rows) => tables.get_mut(name).expect("it exists").0 += rows,
        }
    }

    fn to_line(&self) -> String {
        match self {
            Op::Create(name) => format!("create {name}"),
            Op::CreateElsewhere(name) => format!("elsewhere {name}"),
            Op::Rename(from, to) => format!("rename {from} {to}"),
            Op::RenameColumn(name, to) => format!("column {name} {to}"),
            Op::Redefine(name, to) => format!("redefine {name} {to}"),
            Op::Indexes(name, there) => format!("indexes {name} {there}"),
            Op::Rebuild(name) => format!("rebuild {name}"),
            Op::Together(one, other) => format!("together {one} {other}"),
            Op::AddColumn(name) => format!("add {name}"),
            Op::DropColumn(name) => format!("lose {name}"),
            Op::Discard(name) => format!("discard {name}"),
            Op::RenameWaiting(from, to) => format!("renamewaiting {from} {to}"),
            Op::Import(name) => format!("import {name}"),
            Op::Truncate(name) => format!("truncate {name}"),
            Op::Drop(name) => format!("drop {name}"),
            Op::Fill(name, rows) => format!("fill {name} {rows}"),
        }
    }

    fn parse(words: &[&str]) -> Op {
        let name = |at: usize| words[at].to_string();
        match words[0] {
            "create" => Op::Create(name(1)),
            "elsewhere" => Op::CreateElsewhere(name(1)),
            "rename" => Op::Rename(name(1), name(2)),
            "column" => Op::RenameColumn(name(1), name(2)),
            "redefine" => Op::Redefine(name(1), name(2)),
            "indexes" => Op::Indexes(name(1), words[2].parse().unwrap()),
            "rebuild" => Op::Rebuild(name(1)),
            "together" => Op::Together(name(1), name(2)),
            "add" => Op::AddColumn(name(1)),
            "lose" => Op::DropColumn(name(1)),
            "discard" => Op::Discard(name(1)),
            "renamewaiting" => Op::RenameWaiting(name(1), name(2)),
            "import" => Op::Import(name(1)),
            "truncate" => Op::Truncate(name(1)),
            "drop" => Op::Drop(name(1)),
            "fill" => Op::Fill(name(1), words[2].parse().unwrap()),
            other => panic!("{other}"),
        }
    }
}

/// Rows of a table that was exported.
const EXPORTED: i64 = 120;

/// A table whose rows were discarded.
fn discarded() -> State {
    (-1, String::new(), String::new(), false, 0)
}

/// One that has got those of the exported file.
fn imported() -> State {
    (EXPORTED, "fill".into(), "by_fill".into(), false, 2)
}

/// The file of a table that was exported, of a database that is gone.
fn exported_file() -> &'static Path {
    static FILE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, file) = FILE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path().join("db"), options()).unwrap();
        Op::Create("a/t".into()).run(&db).unwrap();
        Op::Fill("a/t".into(), EXPORTED).run(&db).unwrap();
        let waits = RedefinitionWaits::default();
        let export = db.export_table("a/t", waits).unwrap();
        let file = dir.path().join("t.vdt");
        std::fs::copy(db.dir().join("a/t.vdt"), &file).unwrap();
        drop(export);
        db.crash();
        (dir, file)
    });
    file
}

/// As an administrator does it, whatever happens to the process.
fn put_exported(db: &Database, name: &str) {
    let file = db.dir().join(format!("{name}.vdt"));
    std::fs::copy(exported_file(), file).unwrap();
}

fn exported_bytes() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| std::fs::read(exported_file()).unwrap())
}

fn is_discarded(db: &Database, name: &str) -> bool {
    let opened = db.table(name).map(drop);
    matches!(opened, Err(Error::TablespaceDiscarded { .. }))
}

/// The directory of files that are not in the data directory.
fn elsewhere(db: &Database) -> PathBuf {
    db.dir().with_extension("elsewhere")
}

/// The definition with the other indexes, or without.
fn with_indexes(def: &TableDef, there: bool) -> TableDef {
    let mut def = def.clone();
    def.indexes.retain(|index| !index.name.starts_with("more"));
    let fill = def.columns[1].name.clone();
    match there {
        false => def,
        true => def
            .index("more_0", &[&fill, "id"])
            .unique("more_1", &["id"]),
    }
}

/// Rows are changed meanwhile.
fn build_beside_changes(
    db: &Database,
    name: &str,
    mut prepared: PreparedRedefinition,
) -> Result<()> {
    change_first(db, name, 1)?;
    prepared.build(&mut |_, _| {})?;
    change_first(db, name, 2)?;
    prepared.commit(&mut |_, _| {})
}

/// Changes the first row, if there is one, and makes a row that is taken back.
fn change_first(db: &Database, name: &str, fill: u8) -> Result<()> {
    if count(db, name)? == 0 {
        return Ok(());
    }
    let table = db.table(name)?;
    let columns = table.def().columns.len();
    for (id, stays) in [(0, true), (1_000_000, false)] {
        let mut trx = db.begin(Isolation::RepeatableRead);
        let mut values = vec![Value::Int(id), Value::Bytes(vec![fill; 20])];
        values.resize(columns, Value::Null);
        table.put(&mut trx, &values)?;
        match stays {
            true => trx.commit()?,
            false => trx.rollback()?,
        }
    }
    Ok(())
}

/// Rows of a table, whose ids must be 0, 1, 2 …
fn count(db: &Database, name: &str) -> Result<i64> {
    let table = db.table(name)?;
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0)?;
    let mut rows = 0;
    let mut on_row = cursor.first(&mut trx, LockMode::None)?;
    while on_row {
        assert_eq!(cursor.row()?.value(0)?, Value::Int(rows), "{name}");
        rows += 1;
        on_row = cursor.next(&mut trx)?;
    }
    Ok(rows)
}

/// Opens it after a crash. What rebuilds have left goes in the background.
fn open_again(dir: &Path, context: &str) -> Database {
    let db = Database::open(dir, options()).unwrap_or_else(|e| panic!("{context}: {e}"));
    assert!(db.wait_for_recovery(Duration::from_secs(60)), "{context}");
    db
}

fn state(db: &Database) -> Tables {
    let rows = |name: String| {
        if is_discarded(db, &name) {
            return (name, discarded());
        }
        let rows = count(db, &name).unwrap();
        let table = db.table(&name).unwrap();
        let (column, index) = (&table.def().columns[1], &table.def().indexes[0]);
        assert_eq!(
            column.ty == ColumnType::Bytes(400),
            index.name != "by_fill",
            "{name}"
        );
        let has_more = table.def().indexes.len() > 1;
        let names = (column.name.clone(), index.name.clone());
        let columns = table.def().columns.len();
        (name, (rows, names.0, names.1, has_more, columns))
    };
    db.tables().unwrap().into_iter().map(rows).collect()
}

/// Tables are sound, and the files are theirs.
fn check(db: &Database, context: &str) {
    assert_eq!(*WARNINGS.lock().unwrap(), [""; 0], "{context}");
    let (waiting, names) = db
        .tables()
        .unwrap()
        .into_iter()
        .partition::<Vec<_>, _>(|name| is_discarded(db, name));
    for name in &names {
        let report = db.check_table(&db.table(name).unwrap()).unwrap();
        assert_eq!(report.errors, [""; 0], "{context}: {name}");
    }
    let mut files = Vec::new();
    for schema in std::fs::read_dir(db.dir()).unwrap() {
        let schema = schema.unwrap();
        let name = schema.file_name().into_string().unwrap();
        if !schema.file_type().unwrap().is_dir() || name == "redo" {
            continue;
        }
        for file in std::fs::read_dir(schema.path()).unwrap() {
            files.push(format!(
                "{name}/{}",
                file.unwrap().file_name().to_str().unwrap()
            ));
        }
    }
    files.sort();
    // A file that waits to be imported, or has been.
    let is_users = |file: &String| {
        let is_its = |name: &String| *file == format!("{name}.vdt");
        waiting.iter().any(is_its) || file.contains(".vdt.aside-")
    };
    for file in files.iter().filter(|file| is_users(file)) {
        let is_whole = std::fs::read(db.dir().join(file)).unwrap() == *exported_bytes();
        assert!(is_whole, "{context}: {file} was written");
    }
    files.retain(|file| !is_users(file));
    let marks: Vec<_> = files
        .extract_if(.., |file| file.ends_with(".awaited"))
        .collect();
    let marked: Vec<_> = waiting.iter().map(|t| format!("{t}.vdt.awaited")).collect();
    assert_eq!(marks, marked, "{context}: SP-13");
    let links = names
        .iter()
        .map(|name| db.dir().join(format!("{name}.vdt")));
    let mut led_to: Vec<_> = links
        .filter_map(|link| std::fs::read_link(link).ok())
        .collect();
    led_to.sort();
    assert_eq!(files_below(&elsewhere(db)), led_to, "{context}: LINK-1");
    let named: Vec<_> = names.iter().map(|t| format!("{t}.vdt")).collect();
    assert_eq!(files, named, "{context}: files and tables");
    let begun = Instant::now();
    while files_that_go(db.dir()) > 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{context}: SP-11"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

// ---- Every operation of the disk is the last one.

#[test]
fn every_operation_of_the_disk_may_be_the_last() {
    sweep(u64::MAX);
}

/// Files that go in portions: all are larger.
#[test]
fn every_operation_of_the_disk_may_be_the_last_where_files_are_large() {
    let left = sweep(PORTION);
    assert!(left > 0, "no crash has left anything to go on with");
}

/// Less than the file of an empty table.
const PORTION: u64 = 2 * 4096;

/// Returns how many files were found half gone after a crash.
fn sweep(portion: u64) -> usize {
    let base = tempfile::tempdir().unwrap();
    let db = Database::open(base.path(), options()).unwrap();
    Op::Create("a/old".into()).run(&db).unwrap();
    Op::Fill("a/old".into(), 150).run(&db).unwrap();
    let before = state(&db);
    db.close().unwrap();
    let script = [
        Op::Create("a/new".into()),
        Op::Fill("a/new".into(), 20),
        Op::Rename("a/new".into(), "b/new".into()),
        Op::RenameColumn("b/new".into(), "other".into()),
        Op::Redefine("b/new".into(), "by_other".into()),
        Op::Indexes("a/old".into(), true),
        Op::Indexes("a/old".into(), false),
        Op::AddColumn("a/old".into()),
        Op::Fill("a/old".into(), 5),
        Op::Rebuild("a/old".into()),
        Op::DropColumn("a/old".into()),
        Op::Fill("a/old".into(), 3),
        Op::Indexes("b/new".into(), true),
        Op::Truncate("a/old".into()),
        Op::Fill("a/old".into(), 30),
        Op::Truncate("b/new".into()),
        Op::Discard("a/old".into()),
        Op::Import("a/old".into()),
        Op::Fill("a/old".into(), 3),
        Op::Discard("a/old".into()),
        Op::Truncate("a/old".into()),
        Op::Discard("a/old".into()),
        Op::RenameWaiting("a/old".into(), "b/old".into()),
        Op::Drop("b/old".into()),
        Op::Create("a/new".into()),
        Op::CreateElsewhere("a/far".into()),
        Op::Fill("a/far".into(), 20),
        Op::Together("b/new".into(), "a/far".into()),
        Op::Rebuild("a/far".into()),
        Op::Truncate("a/far".into()),
        Op::Rename("a/far".into(), "c/far".into()),
        Op::Drop("c/far".into()),
    ];
    let work = tempfile::tempdir().unwrap();
    let mut deaths = vec![0; script.len()];
    let (mut lives, mut sweeps, mut left) = (0, 0, 0);
    loop {
        let dir = work.path().join(lives.to_string());
        copy_dir(base.path(), &dir);
        let disk = DyingDisk::new();
        disk.set_portion(portion);
        let db = Database::open_on(Arc::new(disk.clone()), &dir, options()).unwrap();
        disk.live_for(lives);
        let mut tables = before.clone();
        let died_in = script.iter().find(|op| {
            let ok = op.run(&db).is_ok();
            if ok {
                op.apply(&mut tables);
            }
            !ok
        });
        disk.live_for(0);
        db.crash();
        left += files_that_go(&dir);
        let context = format!("dead after {lives} operations, in {died_in:?}");
        let db = open_again(&dir, &context);
        let found = state(&db);
        let mut after = tables.clone();
        if let Some(op) = died_in {
            op.apply(&mut after);
        }
        assert!(
            found == tables || found == after,
            "{context}: found {found:?}, expected {tables:?} or {after:?}"
        );
        check(&db, &context);
        // Nothing that was left is in the way of the same statements.
        if let Some(op) = died_in.filter(|_| found == tables) {
            op.run(&db)
                .unwrap_or_else(|e| panic!("{context}, again: {e}"));
            check(&db, &context);
        }
        let elsewhere = elsewhere(&db);
        drop(db);
        std::fs::remove_dir_all(&dir).unwrap();
        if elsewhere.exists() {
            std::fs::remove_dir_all(elsewhere).unwrap();
        }
        lives += 1;
        match died_in {
            // A step may have only one operation of its own, which falls to a background thread's share.
            None if sweeps < 3 && deaths.contains(&0) => (lives, sweeps) = (0, sweeps + 1),
            None => break,
            Some(op) => deaths[script.iter().position(|o| std::ptr::eq(o, op)).unwrap()] += 1,
        }
    }
    println!("deaths in each step: {deaths:?}");
    assert!(deaths.iter().all(|n| *n > 0), "{deaths:?}");
    left
}

/// DDL-3: redo says that the file goes until it is gone, however many checkpoints there are meanwhile.
#[test]
fn no_checkpoint_forgets_a_removal() {
    no_checkpoint_forgets(u64::MAX, "remove");
}

#[test]
fn no_checkpoint_forgets_that_a_large_file_goes() {
    no_checkpoint_forgets(PORTION, "rename");
}

/// `what` is done to the file of the table.
fn no_checkpoint_forgets(portion: u64, what: &'static str) {
    let dir = tempfile::tempdir().unwrap();
    let disk = DyingDisk::new();
    disk.set_portion(portion);
    let db = Database::open_on(Arc::new(disk.clone()), dir.path(), options()).unwrap();
    for name in ["a/t", "a/other"] {
        Op::Create(name.into()).run(&db).unwrap();
        Op::Fill(name.into(), 50).run(&db).unwrap();
    }
    db.close().unwrap();
    // All pages are clean: the file's own would keep the checkpoint back, because nobody can write them
    // meanwhile.
    let db = Database::open_on(Arc::new(disk.clone()), dir.path(), options()).unwrap();
    let status = |name| db.status().into_iter().find(|s| s.0 == name).unwrap().1;
    let (arrived, arrives) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    let left = Mutex::new(left);
    disk.before(move |operation, path| {
        if operation == what && path.ends_with("a/t.vdt") {
            arrived.send(()).unwrap();
            left.lock().unwrap().recv().unwrap();
        }
    });
    std::thread::scope(|scope| {
        scope.spawn(|| db.drop_table("a/t"));
        arrives.recv().unwrap();
        let decided = status("lsn_current");
        let room = status("checkpoint_max_age") * 13 / 16;
        while status("checkpoint_age") < room && status("lsn_last_checkpoint") <= decided {
            Op::Fill("a/other".into(), 500).run(&db).unwrap();
        }
        disk.live_for(0);
        leave.send(()).unwrap();
    });
    assert!(dir.path().join("a/t.vdt").exists());
    db.crash();
    let db = Database::open(dir.path(), options()).unwrap();
    assert_eq!(db.tables().unwrap(), ["a/other"]);
    check(&db, "after the removal");
}

// ---- A process that is killed.

const CHILD: &str = "VARVE_DDL_CRASH_DIR";
const SEED: &str = "VARVE_DDL_CRASH_SEED";
const THREADS: usize = 3;
/// Statements that are done before a child is killed.
const LEAST: usize = 8;

/// The names that a thread uses. Schemas are partly its own, partly everybody's.
fn names(thread: usize) -> [String; 4] {
    [
        format!("own{thread}/t"),
        format!("own{thread}/u"),
        format!("all/t{thread}"),
        format!("all/u{thread}"),
    ]
}

fn random_op(thread: usize, tables: &Tables, rng: &mut StdRng) -> Op {
    let names = names(thread);
    let (there, free): (Vec<_>, Vec<_>) = names.iter().partition(|n| tables.contains_key(*n));
    let (Some(some), Some(other)) = (there.choose(rng), free.choose(rng)) else {
        return match free.choose(rng) {
            Some(name) => Op::Create(name.to_string()),
            None => Op::Drop(there.choose(rng).expect("four names").to_string()),
        };
    };
    let more = there.iter().find(|name| **name != *some);
    match rng.random_range(0..16) {
        12 | 13 => Op::Rebuild(some.to_string()),
        14 | 15 if more.is_some() => Op::Together(
            some.to_string(),
            more.expect("it was looked at").to_string(),
        ),
        0 => Op::Create(other.to_string()),
        1 => Op::Rename(some.to_string(), other.to_string()),
        2 => Op::Truncate(some.to_string()),
        3 => Op::Drop(some.to_string()),
        4 => Op::RenameColumn(some.to_string(), format!("c{}", rng.random_range(0..9))),
        5 => Op::Redefine(some.to_string(), format!("i{}", rng.random_range(0..9))),
        6 => Op::AddColumn(some.to_string()),
        7 => Op::DropColumn(some.to_string()),
        8 | 9 => Op::Indexes(some.to_string(), rng.random()),
        _ => Op::Fill(some.to_string(), rng.random_range(1..80)),
    }
}

/// The child: works until it is killed.
#[test]
#[ignore = "started by the test below"]
fn child() {
    let Ok(dir) = std::env::var(CHILD) else {
        return;
    };
    let seed: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    let disk = DyingDisk::new();
    disk.set_portion(PORTION);
    let db = Database::open_on(Arc::new(disk), Path::new(&dir), options()).unwrap();
    assert!(db.wait_for_recovery(Duration::from_secs(60)));
    let start = state(&db);
    std::thread::scope(|s| {
        for thread in 0..THREADS {
            let (db, mut tables) = (&db, start.clone());
            s.spawn(move || {
                let mut rng = StdRng::seed_from_u64(seed ^ thread as u64);
                loop {
                    let op = random_op(thread, &tables, &mut rng);
                    child_process::say(&format!("begin {thread} {}", op.to_line()));
                    if let Err(e) = op.run(db) {
                        child_process::say(&format!("failed {thread} {}: {e}", op.to_line()));
                        return;
                    }
                    op.apply(&mut tables);
                    child_process::say(&format!("done {thread}"));
                }
            });
        }
    });
}

/// Runs a child until some statements are done and a while longer, kills it, and returns the lines that it
/// said.
fn run_and_kill(dir: &Path, seed: u64, done: usize, then: Duration) -> Vec<String> {
    let (dir, seed) = (dir.to_str().unwrap(), seed.to_string());
    let life = Life {
        word: "done",
        times: done,
        then,
    };
    child_process::run_and_kill(&[(CHILD, dir), (SEED, &seed)], &life)
}

/// Follows what the child said: each thread's tables before and after what was in flight.
fn follow(lines: &[String], start: &Tables, context: &str) -> (Vec<[Tables; 2]>, usize) {
    let mut threads = vec![[start.clone(), start.clone()]; THREADS];
    let mut done = 0;
    for line in lines {
        let words = child_process::words_from(line, &["begin", "done", "failed"]);
        let Some(thread) = words.get(1).and_then(|w| w.parse::<usize>().ok()) else {
            continue;
        };
        let [before, after] = &mut threads[thread];
        match words[0] {
            "begin" => Op::parse(&words[2..]).apply(after),
            "done" => {
                *before = after.clone();
                done += 1;
            }
            _ => panic!("{context}: {line}"),
        }
    }
    (threads, done)
}

fn verify(dir: &Path, lines: &[String], start: &Tables, context: &str) -> (Tables, usize) {
    let (threads, done) = follow(lines, start, context);
    let db = open_again(dir, context);
    let found = state(&db);
    for (thread, states) in threads.iter().enumerate() {
        let own = |tables: &Tables| -> Tables {
            let names = names(thread);
            let own = tables.iter().filter(|(name, _)| names.contains(name));
            own.map(|(name, what)| (name.clone(), what.clone()))
                .collect()
        };
        let [found, before, after] = [&found, &states[0], &states[1]].map(own);
        assert!(
            found == before || found == after,
            "{context}, thread {thread}: found {found:?}, expected {before:?} or {after:?}"
        );
    }
    check(&db, context);
    db.crash();
    (found, done)
}

#[test]
fn a_killed_process_leaves_tables_and_files_that_fit() {
    let seed: u64 = match std::env::var(SEED) {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => rand::random(),
    };
    println!("{SEED}={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().into();
    Database::open(&path, options()).unwrap().close().unwrap();
    let (mut tables, mut done) = (Tables::new(), 0);
    for round in 0..8 {
        let context = format!("seed {seed}, round {round}");
        let then = Duration::from_millis(rng.random_range(0..600));
        let lines = run_and_kill(&path, rng.random(), LEAST, then);
        if rng.random_ratio(1, 3) {
            // The next process is killed in the middle of its recovery, or soon after: then it says what it
            // does, too.
            let (_, more) = follow(&lines, &tables, &context);
            done += more;
            let (now, _) = verify(&path, &lines, &tables, &context);
            let short = Duration::from_millis(rng.random_range(1..60));
            let lines = run_and_kill(&path, rng.random(), 0, short);
            (tables, _) = verify(&path, &lines, &now, &format!("{context}, short life"));
            continue;
        }
        let more;
        (tables, more) = verify(&path, &lines, &tables, &context);
        done += more;
    }
    println!("{done} statements acknowledged");
    assert!(done >= 8 * LEAST, "the children did too little: {done}");
}
