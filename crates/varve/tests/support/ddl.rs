//! What is done to tables, one statement or transaction at a time, what each leaves, and what of it is there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use varve::{
    ColumnType, Database, Error, ForeignKey, ForeignKeyChecks, Isolation, LockMode, LogLevel,
    Options, PreparedRedefinition, RedefinitionWaits, Result, Table, TableDef, Value,
};

use super::copies::{copied_definition, copy_of, fill_copy, is_aside};
use super::ddl_references::check_references;
use super::directories::{files_below, files_that_go};

pub fn options() -> Options {
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

/// The same with a column that may refer to another table's `id`. Rows with odd numbers refer to number 0.
fn child_definition(name: &str) -> TableDef {
    definition(name)
        .nullable(PARENT, ColumnType::i64())
        .index("by_parent", &[PARENT])
}

/// The third column of a child.
const PARENT: &str = "parent";

/// What a table refers to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refers {
    /// It has no column for that.
    Never,
    ToNobody,
    To(String),
}

/// A table, as everybody sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// Fewer than none: they were discarded.
    pub rows: i64,
    /// What its second column and its first index are called.
    column: String,
    index: String,
    has_more_indexes: bool,
    more_columns: usize,
    pub refers: Refers,
}

pub type Tables = BTreeMap<String, State>;

impl State {
    fn new(rows: i64, refers: Refers) -> State {
        State {
            rows,
            column: "fill".into(),
            index: "by_fill".into(),
            has_more_indexes: false,
            more_columns: 0,
            refers,
        }
    }
}

/// A foreign key to this table's `id`, of a name that no other one has.
fn foreign_key(parent: &str) -> ForeignKey {
    let name = format!("of_{:016x}", rand::random::<u64>());
    ForeignKey::new(name, &[PARENT], parent, &["id"])
}

/// What is done to tables. Each is one DDL statement or one transaction.
#[derive(Clone, Debug)]
pub enum Op {
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
    /// With a foreign key to the second one.
    CreateChild(String, String),
    /// The first one refers to the second one from then on, whatever its rows say.
    AddForeignKey(String, String),
    DropForeignKey(String),
    /// Although others may refer to it.
    DropUnchecked(String),
    /// Makes a copy that has the table's foreign key, if it has one; rows are copied by a step of their own.
    CreateCopy(String),
    /// The copy refers to the second one, as the table itself does not: its rows are checked.
    CreateCopyReferring(String, String),
    FillCopy(String),
}

impl Op {
    pub fn run(&self, db: &Database) -> Result<()> {
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
                let before = db.table(name)?;
                let def = with_indexes(before.def(), *there);
                if def.indexes.len() <= before.def().indexes.len() {
                    // Nothing is built, so the table is kept from others until the end.
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
                    let parent = (id % 2 == 1).then_some(0);
                    table.insert(&mut trx, &row(table.def(), id, fill, parent))?;
                }
                trx.commit()
            }
            Op::CreateChild(name, parent) => {
                let def = child_definition(name).foreign_key(foreign_key(parent));
                db.create_table(&def).map(drop)
            }
            Op::AddForeignKey(name, parent) => {
                let mut prepared = prepared(db, name)?;
                prepared.add_foreign_key(foreign_key(parent))?;
                prepared.commit(&mut |_, _| {})
            }
            Op::DropForeignKey(name) => {
                let key = db.table(name)?.def().foreign_keys[0].name.clone();
                let mut prepared = prepared(db, name)?;
                prepared.drop_foreign_key(&key)?;
                prepared.commit(&mut |_, _| {})
            }
            Op::DropUnchecked(name) => db.drop_table_with(name, ForeignKeyChecks::Off),
            Op::CreateCopy(name) => db.create_table(&copied_definition(db, name)?).map(drop),
            Op::CreateCopyReferring(name, parent) => {
                let def = copied_definition(db, name)?.foreign_key(foreign_key(parent));
                db.create_table(&def).map(drop)
            }
            Op::FillCopy(name) => fill_copy(db, name),
        }
    }

    /// Whether the statement does what it says: foreign keys and what there is are not in its way.
    pub fn is_possible(&self, tables: &Tables) -> bool {
        let is_child = |name| tables[name].refers != Refers::Never;
        let refers = |name| matches!(tables[name].refers, Refers::To(_));
        match self {
            Op::Drop(name) | Op::Truncate(name) => children_of(tables, name).next().is_none(),
            // Several tables do not change together if they have to do with others.
            Op::Together(one, other) => [one, other]
                .into_iter()
                .all(|name| !refers(name) && children_of(tables, name).next().is_none()),
            Op::Fill(name, _) => match &tables[name].refers {
                Refers::To(parent) => tables.get(parent).is_some_and(|parent| parent.rows > 0),
                Refers::Never | Refers::ToNobody => true,
            },
            Op::AddForeignKey(name, _) => is_child(name) && !refers(name),
            Op::DropForeignKey(name) => refers(name),
            _ => true,
        }
    }

    pub fn apply(&self, tables: &mut Tables) {
        fn of<'a>(tables: &'a mut Tables, name: &str) -> &'a mut State {
            tables.get_mut(name).expect("it exists")
        }
        let mut made = |name: &str, state| drop(tables.insert(name.into(), state));
        match self {
            Op::Create(name) | Op::CreateElsewhere(name) => {
                made(name, State::new(0, Refers::Never))
            }
            Op::CreateChild(name, parent) => made(name, State::new(0, Refers::To(parent.clone()))),
            Op::Discard(name) => made(name, discarded()),
            Op::Import(name) => made(name, imported()),
            Op::Drop(name) | Op::DropUnchecked(name) => drop(tables.remove(name)),
            Op::Rename(from, to) | Op::RenameWaiting(from, to) => rename(tables, from, to),
            Op::RenameColumn(name, to) => of(tables, name).column = to.clone(),
            Op::Redefine(name, to) => of(tables, name).index = to.clone(),
            Op::Indexes(name, there) => of(tables, name).has_more_indexes = *there,
            Op::AddColumn(name) => of(tables, name).more_columns += 1,
            Op::DropColumn(name) => {
                let columns = &mut of(tables, name).more_columns;
                *columns = columns.saturating_sub(1);
            }
            Op::Together(one, other) => {
                for (name, has_more_indexes) in [(one, false), (other, true)] {
                    let table = of(tables, name);
                    table.has_more_indexes = has_more_indexes;
                    table.more_columns += 1;
                }
            }
            Op::Rebuild(_) => {}
            Op::Truncate(name) => {
                let table = of(tables, name);
                if *table == discarded() {
                    *table = imported();
                }
                table.rows = 0;
            }
            Op::Fill(name, rows) => of(tables, name).rows += rows,
            Op::AddForeignKey(name, parent) => of(tables, name).refers = Refers::To(parent.clone()),
            Op::DropForeignKey(name) => of(tables, name).refers = Refers::ToNobody,
            Op::CreateCopy(name) | Op::CreateCopyReferring(name, _) => {
                let mut copy = of(tables, name).clone();
                copy.rows = 0;
                if let Op::CreateCopyReferring(_, parent) = self {
                    copy.refers = Refers::To(parent.clone());
                }
                tables.insert(copy_of(name), copy);
            }
            Op::FillCopy(name) => {
                let rows = of(tables, name).rows;
                of(tables, &copy_of(name)).rows = rows;
            }
        }
    }

    pub fn to_line(&self) -> String {
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
            Op::CreateChild(name, parent) => format!("child {name} {parent}"),
            Op::AddForeignKey(name, parent) => format!("refer {name} {parent}"),
            Op::DropForeignKey(name) => format!("forget {name}"),
            Op::DropUnchecked(_)
            | Op::CreateCopy(_)
            | Op::CreateCopyReferring(..)
            | Op::FillCopy(_) => unreachable!("no process that is killed does {self:?}"),
        }
    }

    pub fn parse(words: &[&str]) -> Op {
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
            "child" => Op::CreateChild(name(1), name(2)),
            "refer" => Op::AddForeignKey(name(1), name(2)),
            "forget" => Op::DropForeignKey(name(1)),
            other => panic!("{other}"),
        }
    }
}

/// A table gets another name. Those that refer to it say so, but if it steps aside or is a copy.
fn rename(tables: &mut Tables, from: &str, to: &str) {
    let table = tables.remove(from).expect("it exists");
    tables.insert(to.into(), table);
    if is_aside(from) || is_aside(to) {
        return;
    }
    for table in tables.values_mut() {
        if table.refers == Refers::To(from.into()) {
            table.refers = Refers::To(to.into());
        }
    }
}

/// The tables that refer to one. None of them is a copy, or has stepped aside for one (FK-2).
pub fn children_of<'a>(
    tables: &'a Tables,
    parent: &str,
) -> impl Iterator<Item = (&'a String, &'a State)> {
    let to_it = Refers::To(parent.into());
    (tables.iter()).filter(move |(name, table)| table.refers == to_it && !is_aside(name))
}

/// A row of a table with this definition. NULL is in all other columns.
pub fn row(def: &TableDef, id: i64, fill: Vec<u8>, parent: Option<i64>) -> Vec<Value> {
    let mut values = vec![Value::Int(id), Value::Bytes(fill)];
    if def.column_index(PARENT).is_some() {
        values.push(parent.map_or(Value::Null, Value::Int));
    }
    values.resize(def.columns.len(), Value::Null);
    values
}

/// What the parent is called now; the handle's definition says what it was called before.
fn refers(db: &Database, table: &Table) -> Refers {
    match db.foreign_keys(table).unwrap().pop() {
        Some(reference) => Refers::To(reference.key.parent),
        None if table.def().column_index(PARENT).is_some() => Refers::ToNobody,
        None => Refers::Never,
    }
}

fn prepared(db: &Database, name: &str) -> Result<PreparedRedefinition> {
    let def = db.table(name)?.def().clone();
    db.prepare_redefinition(&def, RedefinitionWaits::default())
}

/// Rows of a table that was exported.
const EXPORTED: i64 = 120;

/// A table whose rows were discarded.
fn discarded() -> State {
    State::new(-1, Refers::Never)
}

/// One that has got those of the exported file.
fn imported() -> State {
    State::new(EXPORTED, Refers::Never)
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
pub fn elsewhere(db: &Database) -> PathBuf {
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
    for (id, stays) in [(0, true), (1_000_000, false)] {
        let mut trx = db.begin(Isolation::RepeatableRead);
        table.put(&mut trx, &row(table.def(), id, vec![fill; 20], None))?;
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
pub fn open_again(dir: &Path, context: &str) -> Database {
    let db = Database::open(dir, options()).unwrap_or_else(|e| panic!("{context}: {e}"));
    assert!(db.wait_for_recovery(Duration::from_secs(60)), "{context}");
    db
}

pub fn state(db: &Database) -> Tables {
    let rows = |name: String| {
        if is_discarded(db, &name) {
            return (name, discarded());
        }
        let rows = count(db, &name).unwrap();
        let table = db.table(&name).unwrap();
        let def = table.def();
        let (column, index) = (&def.columns[1], &def.indexes[0]);
        assert_eq!(
            column.ty == ColumnType::Bytes(400),
            index.name != "by_fill",
            "{name}"
        );
        let is_more = |name: &str| name.starts_with("more");
        let more_columns = def.columns.iter().filter(|column| is_more(&column.name));
        let state = State {
            rows,
            column: column.name.clone(),
            index: index.name.clone(),
            has_more_indexes: def.indexes.iter().any(|index| is_more(&index.name)),
            more_columns: more_columns.count(),
            refers: refers(db, &table),
        };
        (name, state)
    };
    db.tables().unwrap().into_iter().map(rows).collect()
}

/// Tables are sound, those at both ends of a foreign key know each other, and the files are theirs.
pub fn check(db: &Database, context: &str) {
    assert_eq!(*WARNINGS.lock().unwrap(), [""; 0], "{context}");
    let (waiting, names) = db
        .tables()
        .unwrap()
        .into_iter()
        .partition::<Vec<_>, _>(|name| is_discarded(db, name));
    let tables = state(db);
    // A parent that has stepped aside is waited for, by CHECK TABLE, too.
    let is_waiting = |name: &String| match &tables[name].refers {
        Refers::To(parent) => !tables.contains_key(parent),
        Refers::Never | Refers::ToNobody => false,
    };
    for name in names.iter().filter(|name| !is_waiting(name)) {
        let report = db.check_table(&db.table(name).unwrap()).unwrap();
        assert_eq!(report.errors, [""; 0], "{context}: {name}");
    }
    check_references(db, &tables, context);
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
