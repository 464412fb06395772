//! Random graphs of tables tied by random foreign keys, random statements on them, beside a model that knows
//! nothing but rows and entries in maps; and crashes at random moments of such runs. Between transactions
//! tables and foreign keys come and go, are renamed, emptied and written anew.
//!
//! What could break here: a check or a cascade that is left out, done twice, or in the wrong order; part of a
//! refused statement that stays; changes of children that a crash separates from their parent's; a table that
//! does not know, or still knows, who refers to it.
//!
//! `VARVE_MODEL_SEED` replays a run.

#[path = "support/copies.rs"]
mod copies;
#[path = "support/reference_ddl.rs"]
mod reference_ddl;
#[path = "support/references.rs"]
mod references;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::internals::base::Sabotage;
use varve::{
    Database, Error, ForeignKeyChecks, Isolation, KeyMatch, LockMode, Options, ReferentialAction,
    Result, Table, Transaction, Value,
};
use varve_sim::{CrashPoints, SimDisk};

use ReferentialAction::{Cascade, NoAction, Restrict, SetNull};
use copies::finish_copies;
use reference_ddl::{definition, table_names};
use references::{
    By, COLUMNS, Ddl, Index, Key, Model, Refused, Row, Rows, Rules, check_references, rows_not_in,
    values,
};

const MOST_TABLES: usize = 4;
/// Values are few, so that rows meet.
const VALUES: i64 = 6;

/// So many foreign keys a table has at most.
const MOST_KEYS: usize = 3;
/// Before a transaction there is a statement of DDL as often as this.
const DDL: f64 = 0.25;

/// One for each column, and some over two, in any order.
fn random_indexes(rng: &mut SmallRng) -> Vec<Index> {
    let mut indexes: Vec<Index> = (1..COLUMNS)
        .map(|column| Index {
            columns: vec![column],
            is_unique: rng.random_bool(0.05),
        })
        .collect();
    for _ in 0..rng.random_range(0..=2) {
        let first = rng.random_range(1..COLUMNS);
        let second = 1 + (first + rng.random_range(0..COLUMNS - 2)) % (COLUMNS - 1);
        let index = Index {
            columns: vec![first, second],
            is_unique: rng.random_bool(0.2),
        };
        indexes.insert(rng.random_range(0..=indexes.len()), index);
    }
    indexes
}

/// The columns of a foreign key of that many, with which an index begins; a secondary one goes on with the
/// primary key.
fn random_columns(rng: &mut SmallRng, indexes: &[Index], count: usize) -> Option<Vec<usize>> {
    let all = indexes.iter().map(|index| {
        let mut columns = index.columns.clone();
        columns.push(0);
        columns.truncate(count);
        columns
    });
    let all: Vec<Vec<usize>> = all.filter(|columns| columns.len() == count).collect();
    (!all.is_empty()).then(|| all[rng.random_range(0..all.len())].clone())
}

fn random_keys(rng: &mut SmallRng, indexes: &[Vec<Index>]) -> Vec<Key> {
    let mut keys = Vec::new();
    for child in 0..indexes.len() {
        for number in 0..rng.random_range(0..=2) {
            keys.extend(random_key(rng, indexes, child, number));
        }
    }
    keys
}

fn random_key(
    rng: &mut SmallRng,
    indexes: &[Vec<Index>],
    child: usize,
    number: usize,
) -> Option<Key> {
    let parent = rng.random_range(0..indexes.len());
    let count = if rng.random_bool(0.3) { 2 } else { 1 };
    // Few by the primary key: such a table gets rows only as its parent does.
    let columns = match (count, rng.random_bool(0.1)) {
        (1, true) => Some(vec![0]),
        _ => random_columns(rng, &indexes[child], count),
    };
    let parent_columns = match (count, rng.random_bool(0.4)) {
        (1, true) => Some(vec![0]),
        _ => random_columns(rng, &indexes[parent], count),
    };
    let (columns, parent_columns) = (columns?, parent_columns?);
    let actions: &[ReferentialAction] = match columns.contains(&0) {
        true => &[Restrict, Cascade, Cascade, Cascade],
        false => &[NoAction, Cascade, Cascade, Cascade, SetNull, SetNull],
    };
    let mut action = || actions[rng.random_range(0..actions.len())];
    let (on_delete, on_update) = (action(), action());
    Some(Key {
        child,
        number,
        columns,
        parent,
        parent_columns,
        on_delete,
        on_update,
    })
}

/// What can be done to the tables that are there, and to those that are not, at least one being there.
fn random_ddl(rng: &mut SmallRng, rules: &Rules) -> Option<Ddl> {
    let tables = 0..rules.names.len();
    let (there, absent): (Vec<_>, Vec<_>) = tables.partition(|&table| rules.is_there[table]);
    let mut one = |of: &[usize]| (!of.is_empty()).then(|| of[rng.random_range(0..of.len())]);
    let (table, absent) = (one(&there)?, one(&absent));
    let keys = rules.of_child(table);
    Some(match (rng.random_range(0..10), absent) {
        (0..4, Some(absent)) => {
            let key = random_key(rng, &rules.indexes, absent, 0);
            Ddl::Create(absent, key.filter(|_| rng.random_bool(0.5)))
        }
        (0, _) if there.len() > 1 => Ddl::Drop(table),
        (0 | 1, _) => Ddl::Truncate(table),
        (2, _) => {
            let mut names = Vec::from(table_names(table));
            names.retain(|name| *name != rules.names[table]);
            Ddl::Rename(table, names.swap_remove(rng.random_range(0..names.len())))
        }
        (3, _) => Ddl::Rebuild(table),
        (4, _) => Ddl::Copy(table),
        (5 | 6, _) if !keys.is_empty() => {
            Ddl::DropKey(table, keys[rng.random_range(0..keys.len())].number)
        }
        _ if keys.len() < MOST_KEYS => {
            let is_free = |number: &usize| keys.iter().all(|key| key.number != *number);
            let number = (0..).find(is_free).expect("numbers do not end");
            Ddl::AddKey(random_key(rng, &rules.indexes, table, number)?)
        }
        _ => return None,
    })
}

fn random_value(rng: &mut SmallRng, column: usize) -> Option<i64> {
    match column {
        0 => Some(rng.random_range(0..4 * VALUES)),
        _ if rng.random_bool(0.3) => None,
        _ => Some(rng.random_range(0..VALUES)),
    }
}

/// Mostly refers to parents that are there.
fn refer(rng: &mut SmallRng, run: &Run, table: usize, row: &mut Row, columns: &[usize]) {
    for key in run.rules.of_child(table) {
        let concerned = key.columns.iter().any(|column| columns.contains(column));
        if !concerned || rng.random_bool(0.15) {
            continue;
        }
        // A row may stay without a parent.
        if key.columns.iter().any(|&column| row[column].is_none()) {
            continue;
        }
        let rows = run.model.tables[key.parent].values();
        let parents: Vec<_> = rows
            .filter_map(|row| values(row, &key.parent_columns))
            .collect();
        if !parents.is_empty() {
            let parent = &parents[rng.random_range(0..parents.len())];
            let pairs = key.columns.iter().zip(parent);
            pairs.for_each(|(&column, &value)| row[column] = Some(value));
        }
    }
}

fn random_row(rng: &mut SmallRng, run: &Run, table: usize) -> Row {
    let mut row = std::array::from_fn(|column| random_value(rng, column));
    refer(rng, run, table, &mut row, &[0, 1, 2, 3, 4]);
    row
}

#[derive(Clone, Copy, Debug)]
enum Statement {
    Insert(usize, Row),
    Update(usize, i64, Row),
    Delete(usize, i64),
}

fn random_statement(rng: &mut SmallRng, run: &Run) -> Statement {
    let model = &run.model;
    let mut there: Vec<_> = (0..model.tables.len()).collect();
    there.retain(|&table| run.rules.is_there[table]);
    let table = there[rng.random_range(0..there.len())];
    let ids: Vec<i64> = model.tables[table].keys().copied().collect();
    let what = rng.random_range(0..10);
    if ids.is_empty() || what < 5 {
        return Statement::Insert(table, random_row(rng, run, table));
    }
    let id = ids[rng.random_range(0..ids.len())];
    if what < 7 {
        return Statement::Delete(table, id);
    }
    let mut row = model.tables[table][&id];
    let column = rng.random_range(0..COLUMNS);
    row[column] = random_value(rng, column);
    refer(rng, run, table, &mut row, &[column]);
    Statement::Update(table, id, row)
}

fn value(value: Option<i64>) -> Value {
    value.map_or(Value::Null, Value::Int)
}

/// What was there before an operation of the disk, or a while later.
struct Known {
    operations: usize,
    model: Model,
    rules: Rules,
}

struct Run {
    db: Database,
    /// `None`: it was dropped.
    tables: Vec<Option<Table>>,
    model: Model,
    rules: Rules,
    /// Some transactions and statements of DDL check nothing.
    toggles: bool,
    /// One of them was committed: rows may have no parent.
    has_orphans: bool,
    /// For whoever looks at a failure.
    steps: Vec<String>,
    /// Statements that changed more than their row, and that were refused.
    cascades: usize,
    refusals: usize,
    /// The same of DDL, and of those that were done.
    ddl_refusals: usize,
    ddl_done: usize,
}

impl Run {
    /// A database with random tables, tied at random.
    fn new(disk: &SimDisk, rng: &mut SmallRng, sabotage: Option<Sabotage>) -> Run {
        let db = open(disk, sabotage).unwrap();
        let count = rng.random_range(1..=MOST_TABLES);
        let indexes: Vec<_> = (0..count).map(|_| random_indexes(rng)).collect();
        let rules = Rules {
            keys: random_keys(rng, &indexes),
            indexes,
            names: (0..count)
                .map(|table| table_names(table)[0].clone())
                .collect(),
            is_there: vec![true; count],
            checks: true,
        };
        for table in 0..count {
            let def = definition(table, &rules);
            db.create_table_with(&def, ForeignKeyChecks::Off).unwrap();
        }
        let steps = (rules.indexes.iter().map(|indexes| format!("{indexes:?}")))
            .chain(rules.keys.iter().map(|key| format!("{key:?}")))
            .collect();
        let model = Model::new(&rules);
        let known = Known {
            operations: disk.operations(),
            model,
            rules,
        };
        Run {
            toggles: rng.random_bool(0.3),
            steps,
            ..Run::after(db, &known)
        }
    }

    /// Goes on with what is known to be there.
    fn after(db: Database, known: &Known) -> Run {
        let mut run = Run {
            tables: Vec::new(),
            model: known.model.clone(),
            rules: known.rules.clone(),
            toggles: false,
            has_orphans: false,
            steps: Vec::new(),
            cascades: 0,
            refusals: 0,
            ddl_refusals: 0,
            ddl_done: 0,
            db,
        };
        run.open_tables();
        run
    }

    fn open_tables(&mut self) {
        let (db, rules) = (&self.db, &self.rules);
        let open = |table: usize| db.table(&rules.names[table]).unwrap();
        let tables = rules.is_there.iter().enumerate();
        self.tables = tables
            .map(|(table, is_there)| is_there.then(|| open(table)))
            .collect();
    }

    fn table(&self, table: usize) -> &Table {
        self.tables[table].as_ref().expect("it is there")
    }

    fn known(&self, disk: &SimDisk) -> Known {
        Known {
            operations: disk.operations(),
            model: self.model.clone(),
            rules: self.rules.clone(),
        }
    }

    /// Makes the statement in the database and in the model; whether both answer alike.
    fn ddl(&mut self, statement: &Ddl) -> std::result::Result<(), String> {
        let (mut after, mut rules) = (self.model.clone(), self.rules.clone());
        let allowed = after.ddl(&mut rules, statement);
        let done = reference_ddl::run(&self.db, &self.rules, statement);
        let why = done.as_ref().err();
        let step = format!("{statement:?}, checks: {}: {why:?}", rules.checks);
        self.steps.push(step.clone());
        match (done, allowed) {
            (Ok(()), Ok(())) => {
                (self.model, self.rules) = (after, rules);
                self.ddl_done += 1;
            }
            (Err(e), Err(Refused)) if reference_ddl::is_refusal(statement, &e) => {
                self.ddl_refusals += 1;
            }
            (_, allowed) => return Err(format!("{step}, the model says {allowed:?}")),
        }
        self.has_orphans |= !self.rules.checks;
        self.open_tables();
        reference_ddl::compare(&self.db, &self.rules)?;
        self.compare(&mut self.db.begin(Isolation::RepeatableRead))
    }

    fn row_at(&self, trx: &mut Transaction, table: usize, id: i64) -> Result<varve::Cursor> {
        let mut cursor = self.table(table).cursor(0)?;
        let key = self.table(table).def().key(0, &[Value::Int(id)])?;
        let found = cursor.seek(trx, &key.datums(), KeyMatch::Exact, LockMode::Exclusive)?;
        assert!(found, "row {id} of table {table} is gone");
        Ok(cursor)
    }

    /// Makes the statement in the database and in the model; whether both answer alike.
    fn statement(
        &mut self,
        trx: &mut Transaction,
        statement: Statement,
    ) -> std::result::Result<(), String> {
        let (mut after, rules, by) = (self.model.clone(), &self.rules, By::default());
        let allowed = match statement {
            Statement::Insert(table, row) => after.insert(rules, table, row, &by),
            Statement::Update(table, id, row) => after.update(rules, table, (id, row), &by),
            Statement::Delete(table, id) => after.delete(rules, table, id, &by),
        };
        let values = |table: usize, row: Row| self.table(table).def().row(&row.map(value)).unwrap();
        let done = match statement {
            Statement::Insert(table, row) => {
                trx.insert(self.table(table), &values(table, row).datums())
            }
            Statement::Update(table, id, row) => {
                let cursor = self.row_at(trx, table, id).unwrap();
                let row = values(table, row);
                trx.update(self.table(table), &cursor, &row.datums())
                    .map(drop)
            }
            Statement::Delete(table, id) => {
                let cursor = self.row_at(trx, table, id).unwrap();
                trx.delete(self.table(table), &cursor)
            }
        };
        self.steps
            .push(format!("{statement:?}: {:?}", done.as_ref().err()));
        match (&done, allowed) {
            (Ok(()), Ok(())) => {
                self.cascades += usize::from(rows_not_in(&self.model.tables, &after.tables) > 1);
                self.model = after;
            }
            (Err(e), Err(Refused)) if is_refusal(e) => self.refusals += 1,
            (done, allowed) => {
                return Err(format!(
                    "{statement:?}: {done:?}, the model says {allowed:?}"
                ));
            }
        }
        self.compare(trx)
    }

    fn compare(&self, trx: &mut Transaction) -> std::result::Result<(), String> {
        let found = read(trx, &self.tables);
        match found == self.model.tables {
            true => Ok(()),
            false => Err(format!("found {found:?}\nnot {:?}", self.model.tables)),
        }
    }
}

fn is_refusal(e: &Error) -> bool {
    matches!(
        e,
        Error::DuplicateKey { .. }
            | Error::ForeignDuplicateKey { .. }
            | Error::NoReferencedRow(_)
            | Error::RowIsReferenced(_)
            | Error::CascadeTooDeep(_)
    )
}

fn open(disk: &SimDisk, sabotage: Option<Sabotage>) -> Result<Database> {
    let options = Options {
        page_size: 4096,
        buffer_pool_bytes: 1 << 20,
        redo_capacity_bytes: 8 << 20,
        undo_tablespaces: 2,
        logger: Some(Arc::new(|_, _| {})),
        sabotage,
        ..Options::default()
    };
    Database::open_on(Arc::new(disk.clone()), Path::new("/db"), options)
}

fn read(trx: &mut Transaction, tables: &[Option<Table>]) -> Vec<Rows> {
    let mut rows = |table: &Table| {
        let mut cursor = table.cursor(0).unwrap();
        let mut rows = Rows::new();
        let mut more = cursor.first(trx, LockMode::None).unwrap();
        while more {
            let row = cursor.row().unwrap();
            let mut found: Row = [None; COLUMNS];
            for (column, value) in found.iter_mut().enumerate() {
                if let Value::Int(n) = row.value(column).unwrap() {
                    *value = Some(n);
                }
            }
            rows.insert(found[0].unwrap(), found);
            more = cursor.next(trx).unwrap();
        }
        rows
    };
    let found = tables.iter().map(|table| table.as_ref().map(&mut rows));
    found.map(Option::unwrap_or_default).collect()
}

/// Random transactions, and DDL between them. What was committed, and before which operation of the disk that
/// was known.
fn transactions(
    run: &mut Run,
    disk: &SimDisk,
    rng: &mut SmallRng,
    count: usize,
) -> std::result::Result<Vec<Known>, String> {
    let mut committed = vec![run.known(disk)];
    for _ in 0..count {
        if rng.random_bool(DDL) {
            run.rules.checks = !run.toggles || rng.random_bool(0.8);
            if let Some(statement) = random_ddl(rng, &run.rules) {
                run.ddl(&statement)?;
                committed.push(run.known(disk));
            }
        }
        let mut trx = run.db.begin(Isolation::RepeatableRead);
        run.rules.checks = !run.toggles || rng.random_bool(0.8);
        trx.set_foreign_key_checks(run.rules.checks);
        run.steps
            .push(format!("begin, checks: {}", run.rules.checks));
        for _ in 0..rng.random_range(1..=6) {
            let (before, savepoint) = (run.model.clone(), trx.savepoint());
            let statement = random_statement(rng, run);
            run.statement(&mut trx, statement)?;
            if rng.random_bool(0.1) {
                run.steps.push("rollback to the savepoint".into());
                trx.rollback_to(savepoint).unwrap();
                run.model = before;
                run.compare(&mut trx)?;
            }
        }
        if rng.random_bool(0.2) {
            run.steps.push("rollback".into());
            trx.rollback().unwrap();
            run.model = committed.last().unwrap().model.clone();
        } else {
            run.steps.push("commit".into());
            trx.commit().unwrap();
            committed.push(run.known(disk));
            run.has_orphans |= !run.rules.checks;
        }
        if !run.has_orphans {
            check_references(&run.model.tables, &run.rules.keys);
        }
    }
    Ok(committed)
}

fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let fixed = std::env::var("VARVE_MODEL_SEED");
    let first: u64 = fixed.as_ref().map_or_else(
        |_| rand::random_range(0..1 << 40),
        |seed| seed.parse().expect("VARVE_MODEL_SEED is a number"),
    );
    let count = if fixed.is_ok() { 1 } else { count };
    first..first + count
}

fn check<T>(run: &Run, seed: u64, what: std::result::Result<T, String>) -> T {
    what.unwrap_or_else(|why| {
        run.steps.iter().for_each(|step| println!("{step}"));
        panic!("VARVE_MODEL_SEED={seed}: {why}")
    })
}

#[test]
fn statements_do_what_the_model_does() {
    let (mut cascades, mut refusals, mut ddl_done, mut ddl_refusals) = (0, 0, 0, 0);
    for seed in seeds(150) {
        let (mut rng, disk) = (SmallRng::seed_from_u64(seed), SimDisk::default());
        let mut run = Run::new(&disk, &mut rng, None);
        let done = transactions(&mut run, &disk, &mut rng, 30);
        check(&run, seed, done);
        cascades += run.cascades;
        refusals += run.refusals;
        ddl_done += run.ddl_done;
        ddl_refusals += run.ddl_refusals;
        for table in run.tables.iter().flatten() {
            let report = run.db.check_table(table).unwrap();
            assert_eq!(report.errors, [""; 0], "VARVE_MODEL_SEED={seed}");
        }
        run.db.crash();
    }
    println!("{cascades} statements changed more than their row, {refusals} were refused");
    println!("{ddl_done} statements of DDL were done, {ddl_refusals} refused");
    let counts = [cascades, refusals, ddl_done, ddl_refusals];
    assert!(
        counts.iter().all(|&count| count > 0) || std::env::var_os("VARVE_MODEL_SEED").is_some()
    );
}

/// After a crash at any moment each table is as one of two commits left them all, DDL among them: the last
/// one that was known, or the next.
#[test]
fn a_crash_leaves_all_of_a_cascade_or_nothing() {
    const MOMENTS: usize = 12;
    for seed in seeds(12) {
        crash(seed, 25, |rng, from, to| {
            let mut moments = [0; MOMENTS].map(|_| rng.random_range(from..=to));
            moments.sort_unstable();
            moments.into()
        });
    }
}

/// Before each operation of short runs.
#[test]
fn a_crash_at_every_point_leaves_all_of_a_cascade_or_nothing() {
    let points: usize = seeds(3)
        .map(|seed| crash(seed, 6, |_, from, to| (from..=to).collect()))
        .sum();
    println!("{points} crashes");
    assert!(points > 0);
}

/// Whether tables, foreign keys and rows are these.
fn is_there(db: &Database, known: &Known) -> std::result::Result<(), String> {
    reference_ddl::compare(db, &known.rules)?;
    Run::after(db.clone(), known).compare(&mut db.begin(Isolation::RepeatableRead))
}

/// Crashes before the operations of a run that `moments` draws; how many these are.
fn crash(
    seed: u64,
    count: usize,
    moments: impl FnOnce(&mut SmallRng, usize, usize) -> Vec<usize>,
) -> usize {
    let (mut rng, disk) = (SmallRng::seed_from_u64(seed), SimDisk::default());
    let mut run = Run::new(&disk, &mut rng, None);
    let done = transactions(&mut run, &disk, &mut rng, count);
    let committed = check(&run, seed, done);
    run.db.crash();
    let mut points = CrashPoints::new(disk.journal());
    let moments = moments(&mut rng, committed[0].operations, disk.operations());
    for &at in &moments {
        points.advance(at);
        let disk = SimDisk::new(points.crash(&mut rng));
        let db = open(&disk, None).unwrap();
        // What rebuilds have left goes in the background.
        assert!(db.wait_for_recovery(Duration::from_secs(60)));
        finish_copies(&db).unwrap();
        let known = committed.iter().rposition(|known| known.operations <= at);
        let known = known.expect("the first is before all moments");
        let expected = &committed[known..committed.len().min(known + 2)];
        let mut why = Vec::new();
        let found = expected.iter().find(|known| {
            let differs = is_there(&db, known).err();
            why.extend(differs.clone());
            differs.is_none()
        });
        let context = format!("VARVE_MODEL_SEED={seed}, before operation {at}");
        let found = found.unwrap_or_else(|| panic!("{context}: {why:#?}"));
        if !run.has_orphans {
            check_references(&found.model.tables, &found.rules.keys);
        }
        // What was found holds for those who come after the crash.
        let mut after = Run::after(db, found);
        after.has_orphans = run.has_orphans;
        let done = transactions(&mut after, &disk, &mut rng, 1);
        done.unwrap_or_else(|why| panic!("{context}, then {:#?}: {why}", after.steps));
        after.db.crash();
    }
    moments.len()
}

/// The model notices a check that is left out, and what is left of a cascade that was refused.
#[cfg(feature = "sabotage")]
#[test]
fn sabotages_are_noticed() {
    for sabotage in [
        Sabotage::ParentNotLookedFor,
        Sabotage::ChildrenForgotten,
        Sabotage::RefusedCascadeStays,
    ] {
        let noticed = (0..200).position(|seed| {
            let (mut rng, disk) = (SmallRng::seed_from_u64(seed), SimDisk::default());
            let mut run = Run::new(&disk, &mut rng, Some(sabotage));
            let done = transactions(&mut run, &disk, &mut rng, 30);
            run.db.crash();
            done.is_err()
        });
        println!("{sabotage:?}: noticed by seed {noticed:?}");
        assert!(noticed.is_some(), "nobody noticed: {sabotage:?}");
    }
}
