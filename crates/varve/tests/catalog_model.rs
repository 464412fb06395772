//! Tables' names and definitions against an ordered map: random DDL with odd names and shapes, and restarts
//! of every kind in between. What could break here: a definition that does not come back as it was given, a
//! name that two tables have or that is left behind, a file of nobody, an id that is drawn twice.
//!
//! Every statement is acknowledged before the next, so any state that a crash may leave must be the model's;
//! crashes in the middle of statements are in `ddl_crash.rs` and `crash_points.rs`. The variables of
//! `varve_sim::try_cases` repeat a case and try more.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use varve::internals::base::{SpaceId, TableId};
use varve::{
    CollationId, ColumnType, Database, Error, IndexDef, Isolation, KeyPart, Options, TableDef,
    Value,
};
use varve_sim::{CrashPoints, SimDisk, try_cases};

const DIR: &str = "/data/db";
/// Those behind the first so many are refused.
const VALID: usize = 14;

fn names() -> Vec<String> {
    let long = |bytes: usize| format!("a/{}", "n".repeat(bytes));
    let mut names: Vec<String> = [
        "a/t",
        "a/T",
        "A/t",
        "b/t",
        "a/t ",
        "a/t.vdt",
        "a/tä",
        "名/前",
        "a/%2e%2e",
        "a/#truncate-9",
        "a/'; DROP",
        "a b/c\"d",
        "a/~",
    ]
    .map(String::from)
    .into();
    names.push(long(240));
    assert_eq!(names.len(), VALID);
    names.extend(
        [
            "", "a", "a/", "/t", "a/.t", "a/..", "../t", "a/b/c", "a/b\\c", "a/\n",
        ]
        .map(String::from),
    );
    names.push(long(241));
    names
}

/// Definitions that have little in common.
fn shape(n: usize, name: &str) -> TableDef {
    let def = TableDef::new(name).column("id", ColumnType::i64());
    match n {
        0 => def.primary(&["id"]),
        // A hidden row id.
        1 => def
            .nullable("Größe `x`", ColumnType::text_in(CollationId::UTF8_CI, 90))
            .index("id", &["ID"]),
        2 => {
            let mut def = (0..60).fold(def, |def, n| {
                def.nullable(&format!("c{n}"), ColumnType::u24())
            });
            for n in 0..12 {
                def = def.index(
                    &format!("index {n}"),
                    &[&format!("c{n}"), &format!("c{}", n + 1)],
                );
            }
            def.comment = (0..3000u32).map(|n| n as u8).collect();
            def.primary(&["id"]).auto_increment("id")
        }
        _ => {
            let key = vec![KeyPart::new(1).descending().prefix(30), KeyPart::new(0)];
            let mut index = IndexDef::new("i".repeat(240), key);
            index.unique = true;
            let long = "c".repeat(240);
            def.nullable(&long, ColumnType::Bytes(100_000))
                .primary(&["id"])
                .add_index(index)
        }
    }
}
const SHAPES: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    Create {
        name: usize,
        shape: usize,
    },
    Drop(usize),
    Rename {
        from: usize,
        to: usize,
    },
    Truncate(usize),
    Fill {
        name: usize,
        rows: u8,
    },
    SetAutoIncrement(usize, u32),
    Reopen,
    /// What has not been synced is lost, in part, by this seed.
    Crash(u64),
}

fn step() -> impl Strategy<Value = Step> {
    // Few are refused.
    let name = || prop_oneof![6 => 0..6usize, 4 => 0..VALID, 1 => 0..names().len()];
    prop_oneof![
        6 => (name(), 0..SHAPES).prop_map(|(name, shape)| Step::Create { name, shape }),
        2 => name().prop_map(Step::Drop),
        4 => (name(), name()).prop_map(|(from, to)| Step::Rename { from, to }),
        2 => name().prop_map(Step::Truncate),
        4 => (name(), 0..60u8).prop_map(|(name, rows)| Step::Fill { name, rows }),
        1 => (name(), 1..u32::MAX).prop_map(|(name, next)| Step::SetAutoIncrement(name, next)),
        1 => Just(Step::Reopen),
        2 => any::<u64>().prop_map(Step::Crash),
    ]
}

struct Known {
    def: TableDef,
    rows: Vec<Vec<Value>>,
    auto_increment: u64,
}

struct Run {
    db: Option<Database>,
    disk: SimDisk,
    names: Vec<String>,
    tables: BTreeMap<String, Known>,
    /// Ids that were ever given.
    ids: BTreeSet<TableId>,
    spaces: BTreeSet<SpaceId>,
    rows: i64,
}

fn open(disk: &SimDisk) -> Database {
    let options = Options {
        page_size: 4096,
        buffer_pool_bytes: 2 << 20,
        redo_capacity_bytes: 4 << 20,
        log_buffer_bytes: 2 << 20,
        undo_tablespaces: 2,
        logger: Some(Arc::new(|_, _| {})),
        ..Options::default()
    };
    Database::open_on(Arc::new(disk.clone()), Path::new(DIR), options).unwrap()
}

/// What came of a statement, in a word.
fn told(result: varve::Result<()>) -> &'static str {
    match result {
        Ok(()) => "done",
        Err(Error::AlreadyExists { .. }) => "it exists",
        Err(Error::NotFound { .. }) => "not found",
        Err(Error::Invalid { .. }) => "invalid",
        Err(e) => panic!("{e}"),
    }
}

/// A definition without what the engine chooses.
fn asked_for(def: &TableDef) -> String {
    let mut def = def.clone();
    (def.id, def.space) = (TableId(0), SpaceId(0));
    for index in std::iter::once(&mut def.primary).chain(&mut def.indexes) {
        (index.id.0, index.root.0) = (0, 0);
        index.parts.iter_mut().for_each(|part| part.fingerprint = 0);
    }
    format!("{def:?}")
}

impl Run {
    fn new() -> Run {
        let disk = SimDisk::default();
        Run {
            db: Some(open(&disk)),
            disk,
            names: names(),
            tables: BTreeMap::new(),
            ids: BTreeSet::new(),
            spaces: BTreeSet::new(),
            rows: 0,
        }
    }

    fn db(&self) -> &Database {
        self.db.as_ref().expect("it is open")
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Create { name, shape } => self.create(name, shape),
            Step::Drop(name) => {
                let name = self.names[name].clone();
                let found = told(self.db().drop_table(&name));
                let expected = self.tables.remove(&name).map_or("not found", |_| "done");
                assert_eq!(found, expected);
            }
            Step::Rename { from, to } => self.rename(from, to),
            Step::Truncate(name) => {
                let name = self.names[name].clone();
                let found = told(self.db().truncate_table(&name));
                assert_eq!(found == "done", self.tables.contains_key(&name), "{found}");
                if found == "done" {
                    let def = self.db().table(&name).unwrap().def().clone();
                    self.note_ids(&def);
                    let known = self.tables.get_mut(&name).unwrap();
                    (known.rows, known.auto_increment) = (Vec::new(), 1);
                }
            }
            Step::Fill { name, rows } => self.fill(name, rows),
            Step::SetAutoIncrement(name, next) => {
                let name = self.names[name].clone();
                let has_one = |table: &varve::Table| table.def().auto_increment.is_some();
                if let Some(table) = self.db().table(&name).ok().filter(has_one) {
                    table.set_auto_increment(next.into()).unwrap();
                    // It is durable with the next commit.
                    self.db().flush_log().unwrap();
                    self.tables.get_mut(&name).unwrap().auto_increment = next.into();
                }
            }
            Step::Reopen => {
                self.db.take().expect("it is open").close().unwrap();
                self.db = Some(open(&self.disk));
                self.check_files();
            }
            Step::Crash(seed) => {
                self.db.take().expect("it is open").crash();
                let journal = self.disk.journal();
                let end = journal.len();
                let mut points = CrashPoints::new(journal);
                points.advance(end);
                self.disk = SimDisk::new(points.crash(&mut SmallRng::seed_from_u64(seed)));
                self.db = Some(open(&self.disk));
                self.check_files();
            }
        }
    }

    fn note_ids(&mut self, def: &TableDef) {
        assert!(self.ids.insert(def.id), "table id {} twice", def.id);
        assert!(
            self.spaces.insert(def.space),
            "tablespace {} twice",
            def.space
        );
    }

    fn create(&mut self, name: usize, n: usize) {
        let is_valid = name < VALID;
        let name = self.names[name].clone();
        let def = shape(n, &name);
        let expected = match (is_valid, self.tables.contains_key(&name)) {
            (false, _) => "invalid",
            (true, true) => "it exists",
            (true, false) => "done",
        };
        let made = self.db().create_table(&def);
        let made_def = made.as_ref().ok().map(|table| table.def().clone());
        assert_eq!(told(made.map(drop)), expected);
        if let Some(made) = made_def {
            self.note_ids(&made);
            let known = Known {
                def,
                rows: Vec::new(),
                auto_increment: 1,
            };
            self.tables.insert(name, known);
        }
    }

    fn rename(&mut self, from: usize, to: usize) {
        let is_valid = to < VALID;
        let (from, to) = (self.names[from].clone(), self.names[to].clone());
        let expected = match (
            self.tables.contains_key(&from),
            self.tables.contains_key(&to),
        ) {
            (false, _) => "not found",
            (true, _) if !is_valid => "invalid",
            (true, true) => "it exists",
            (true, false) => "done",
        };
        assert_eq!(told(self.db().rename_table(&from, &to)), expected);
        if expected == "done" {
            let mut known = self.tables.remove(&from).unwrap();
            known.def.name = to.clone();
            self.tables.insert(to, known);
        }
    }

    fn fill(&mut self, name: usize, rows: u8) {
        let name = self.names[name].clone();
        let Ok(table) = self.db().table(&name) else {
            assert!(!self.tables.contains_key(&name));
            return;
        };
        let mut trx = self.db().begin(Isolation::RepeatableRead);
        let columns = self.tables[&name].def.columns.clone();
        let mut added = Vec::new();
        for _ in 0..rows {
            self.rows += 1;
            let n = self.rows;
            let value = |(at, column): (usize, &varve::ColumnDef)| match column.ty {
                _ if at == 0 => Value::Int(n),
                _ if n % 5 == 0 => Value::Null,
                ColumnType::Int { .. } => Value::UInt(n as u64 + at as u64),
                ColumnType::Text { .. } => Value::Text(format!("ä{n}")),
                _ if n % 7 == 0 => Value::Bytes(vec![n as u8; 9000]),
                _ => Value::Bytes(n.to_be_bytes().to_vec()),
            };
            let row: Vec<Value> = columns.iter().enumerate().map(value).collect();
            table.insert(&mut trx, &row).unwrap();
            added.push(row);
        }
        trx.commit().unwrap();
        let last = self.rows as u64;
        let known = self.tables.get_mut(&name).unwrap();
        if known.def.auto_increment.is_some() && !added.is_empty() {
            known.auto_increment = known.auto_increment.max(last + 1);
        }
        known.rows.extend(added);
    }

    /// DDL-1: the files of tables are exactly those of the tables.
    fn check_files(&self) {
        let files = self.disk.files();
        let in_schema = |path: &&std::path::PathBuf| {
            let path = path.strip_prefix(DIR).unwrap_or(Path::new(""));
            path.components().count() == 2 && path.extension().is_some_and(|e| e == "vdt")
        };
        let found: BTreeSet<_> = files.iter().filter(in_schema).cloned().collect();
        let of = |name: &String| Path::new(DIR).join(format!("{name}.vdt"));
        assert_eq!(found, self.tables.keys().map(of).collect());
    }

    /// Everything is as the model says.
    fn check(&self) {
        let db = self.db();
        let names: Vec<_> = self.tables.keys().cloned().collect();
        assert_eq!(db.tables().unwrap(), names);
        for name in self
            .names
            .iter()
            .filter(|name| !self.tables.contains_key(*name))
        {
            assert_eq!(told(db.table(name).map(drop)), "not found", "{name:?}");
        }
        let mut trx = db.begin(Isolation::RepeatableRead);
        for (name, known) in &self.tables {
            let table = db.table(name).unwrap();
            assert_eq!(asked_for(table.def()), asked_for(&known.def));
            assert_eq!(
                table.auto_increment_next(),
                known.auto_increment,
                "{name:?}"
            );
            let rows = table.rows(&mut trx).unwrap();
            let rows: Vec<_> = rows.map(|row| row.unwrap().values().unwrap()).collect();
            assert!(rows == known.rows, "{name:?} has other rows");
        }
    }

    fn end(mut self) {
        for name in self.tables.keys() {
            let table = self.db().table(name).unwrap();
            let report = self.db().check_table(&table).unwrap();
            assert_eq!(report.errors, Vec::<String>::new(), "{name:?}");
        }
        self.step(&Step::Reopen);
        self.check();
        self.db.take().expect("it is open").close().unwrap();
    }
}

#[test]
fn tables_are_named_and_defined_as_in_a_map() {
    let (tables, restarts) = (Cell::new(0), Cell::new(0));
    try_cases(60, vec(step(), 1..40), |steps| {
        let mut run = Run::new();
        for step in &steps {
            run.step(step);
            run.check();
            let restarted = matches!(step, Step::Reopen | Step::Crash(_));
            restarts.set(restarts.get() + usize::from(restarted));
        }
        tables.set(tables.get() + run.ids.len());
        run.end();
    });
    println!("{} tables, {} restarts", tables.get(), restarts.get());
    assert!(tables.get() > 120 && restarts.get() > 50);
}

/// The file that takes the place of a truncated table's had a name that a table could have.
#[test]
fn no_name_stands_in_the_way_of_truncate() {
    let db = open(&SimDisk::default());
    db.create_table(&shape(0, "a/t")).unwrap();
    let names = (0..40).flat_map(|n| [format!("a/#truncate-{n}"), format!("a/truncate-{n}")]);
    for name in names {
        db.create_table(&shape(0, &name)).unwrap();
        db.truncate_table("a/t").unwrap();
    }
}
