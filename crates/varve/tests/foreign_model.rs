//! Random graphs of tables tied by random foreign keys, random statements on them, beside a model that knows
//! nothing but rows in maps; and crashes at random moments of such runs.
//!
//! What could break here: a check or a cascade that is left out, done twice, or in the wrong order; part of a
//! refused statement that stays; changes of children that a crash separates from their parent's.
//!
//! `VARVE_MODEL_SEED` replays a run.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::internals::base::Sabotage;
use varve::{
    ColumnType, Database, Error, ForeignKey, ForeignKeyChecks, Isolation, KeyMatch, LockMode,
    Options, ReferentialAction, Result, Table, TableDef, Transaction, Value,
};
use varve_sim::{CrashPoints, SimDisk};

use ReferentialAction::{Cascade, NoAction, Restrict, SetNull};

/// Column 0 is the primary key; each of the others takes NULL and has an index.
const COLUMNS: usize = 5;
const MOST_TABLES: usize = 4;
/// Values are few, so that rows meet.
const VALUES: i64 = 6;
const MOST_CASCADES: u32 = 14;

type Row = [Option<i64>; COLUMNS];

/// A foreign key of table `child`, one of its columns to one of the parent's.
#[derive(Clone, Copy, Debug)]
struct Key {
    child: usize,
    number: usize,
    column: usize,
    parent: usize,
    parent_column: usize,
    on_delete: ReferentialAction,
    on_update: ReferentialAction,
}

/// The model refuses, whatever for.
#[derive(Debug)]
struct Refused;

type Allowed = std::result::Result<(), Refused>;

/// How a change came about, as the engine has it.
#[derive(Clone, Default)]
struct By {
    depth: u32,
    from: Option<(usize, usize)>,
    updated: Vec<usize>,
    /// The row that gets another primary key. It stays its own parent, if it is one.
    moved: Option<Row>,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Model {
    tables: Vec<BTreeMap<i64, Row>>,
}

/// What the statements of a run are checked by.
struct Rules {
    keys: Vec<Key>,
    checks: bool,
}

impl Rules {
    fn of_child(&self, child: usize) -> Vec<Key> {
        let mut keys = self.keys.clone();
        keys.retain(|key| key.child == child);
        keys
    }

    /// In the order of the columns that are referred to, which is that of their indexes, and of names.
    fn of_parent(&self, parent: usize) -> Vec<Key> {
        let mut keys = self.keys.clone();
        keys.retain(|key| key.parent == parent);
        keys.sort_by_key(|key| (key.parent_column, key.child, key.number));
        keys
    }
}

impl Model {
    fn has(&self, table: usize, column: usize, value: i64) -> bool {
        let mut rows = self.tables[table].values();
        rows.any(|row| row[column] == Some(value))
    }

    fn check_parents(
        &self,
        rules: &Rules,
        table: usize,
        column: usize,
        row: &Row,
        by: &By,
    ) -> Allowed {
        for key in rules.of_child(table) {
            let ends = [key.column, key.parent_column];
            let stays = |old: Row| {
                let is_own = old[key.column].is_some() && old[key.column] == old[key.parent_column];
                is_own && key.parent == table && ends.iter().all(|&end| row[end] == old[end])
            };
            if key.column != column
                || !rules.checks
                || by.from == Some((table, key.number))
                || by.moved.is_some_and(stays)
            {
                continue;
            }
            match row[column] {
                Some(value) if !self.has(key.parent, key.parent_column, value) => {
                    return Err(Refused);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn insert(&mut self, rules: &Rules, table: usize, row: Row, by: &By) -> Allowed {
        let id = row[0].ok_or(Refused)?;
        self.check_parents(rules, table, 0, &row, by)?;
        if self.tables[table].contains_key(&id) {
            return Err(Refused);
        }
        // The row is there; its entries follow one by one.
        let mut now = [None; COLUMNS];
        now[0] = row[0];
        self.tables[table].insert(id, now);
        for column in 1..COLUMNS {
            self.check_parents(rules, table, column, &row, by)?;
            now[column] = row[column];
            self.tables[table].insert(id, now);
        }
        Ok(())
    }

    fn delete(&mut self, rules: &Rules, table: usize, id: i64, by: &By) -> Allowed {
        let old = self.tables[table].remove(&id).ok_or(Refused)?;
        self.see_to_children(rules, table, &old, None, by)
    }

    fn update(&mut self, rules: &Rules, table: usize, id: i64, new: Row, by: &By) -> Allowed {
        let old = self.tables[table][&id];
        if old == new {
            return Ok(());
        }
        if old[0] != new[0] {
            self.tables[table].remove(&id);
            let moving = By {
                moved: Some(old),
                ..by.clone()
            };
            self.insert(rules, table, new, &moving)?;
        } else {
            let mut now = old;
            for column in 1..COLUMNS {
                if old[column] != new[column] {
                    self.check_parents(rules, table, column, &new, by)?;
                    now[column] = new[column];
                    self.tables[table].insert(id, now);
                }
            }
        }
        self.see_to_children(rules, table, &old, Some(&new), by)
    }

    fn see_to_children(
        &mut self,
        rules: &Rules,
        table: usize,
        old: &Row,
        new: Option<&Row>,
        by: &By,
    ) -> Allowed {
        if !rules.checks {
            return Ok(());
        }
        let mut by = by.clone();
        by.updated.extend(new.map(|_| table));
        for key in rules.of_parent(table) {
            let Some(value) = old[key.parent_column] else {
                continue;
            };
            if new.is_some_and(|new| new[key.parent_column] == Some(value)) {
                continue;
            }
            self.see_to(rules, &key, value, new, &by)?;
        }
        Ok(())
    }

    fn see_to(
        &mut self,
        rules: &Rules,
        key: &Key,
        value: i64,
        new: Option<&Row>,
        by: &By,
    ) -> Allowed {
        let next = |model: &Model, after: Option<i64>| {
            let mut rows = model.tables[key.child].iter();
            let is =
                |(id, row): &(&i64, &Row)| row[key.column] == Some(value) && Some(**id) > after;
            rows.find(is).map(|(id, _)| *id)
        };
        let mut at = next(self, None);
        if at.is_none() {
            return Ok(());
        }
        let action = new.map_or(key.on_delete, |_| key.on_update);
        let deletes = action == Cascade && new.is_none();
        let refuses = matches!(action, NoAction | Restrict);
        if refuses || (!deletes && by.updated.contains(&key.child)) || by.depth >= MOST_CASCADES {
            return Err(Refused);
        }
        let by = By {
            depth: by.depth + 1,
            from: Some((key.child, key.number)),
            updated: by.updated.clone(),
            moved: None,
        };
        while let Some(id) = at {
            let mut row = self.tables[key.child][&id];
            row[key.column] = match (action, new) {
                (Cascade, Some(new)) => new[key.parent_column],
                _ => None,
            };
            match deletes {
                true => self.delete(rules, key.child, id, &by)?,
                false if row[0].is_none() => return Err(Refused),
                false => self.update(rules, key.child, id, row, &by)?,
            }
            at = next(self, Some(id));
        }
        Ok(())
    }

    /// How many rows are other ones in `after`, or gone.
    fn rows_not_in(&self, after: &Model) -> usize {
        let tables = self.tables.iter().zip(&after.tables);
        let gone = |(before, after): (&BTreeMap<i64, Row>, &BTreeMap<i64, Row>)| {
            before
                .iter()
                .filter(|(id, row)| after.get(id) != Some(row))
                .count()
        };
        tables.map(gone).sum()
    }

    /// FK-3, of tables that were only changed with checks on.
    fn check_references(&self, keys: &[Key]) {
        for key in keys {
            for row in self.tables[key.child].values() {
                let parent = row[key.column];
                let is_there =
                    parent.is_none_or(|value| self.has(key.parent, key.parent_column, value));
                assert!(is_there, "FK-3: {row:?} of {key:?}");
            }
        }
    }
}

fn table_name(table: usize) -> String {
    format!("a/t{table}")
}

fn column_name(column: usize) -> String {
    format!("c{column}")
}

fn definition(table: usize, keys: &[Key]) -> TableDef {
    let mut def = TableDef::new(table_name(table)).column("c0", ColumnType::i64());
    for column in 1..COLUMNS {
        def = def.nullable(&column_name(column), ColumnType::i64());
    }
    def = def.primary(&["c0"]);
    for column in 1..COLUMNS {
        let name = column_name(column);
        def = def.index(&format!("by_{name}"), &[&name]);
    }
    for key in keys.iter().filter(|key| key.child == table) {
        let name = format!("t{table}_{}", key.number);
        let (own, its) = (column_name(key.column), column_name(key.parent_column));
        let foreign = ForeignKey::new(name, &[&own], table_name(key.parent), &[&its]);
        def = def.foreign_key(foreign.on_delete(key.on_delete).on_update(key.on_update));
    }
    def
}

fn random_keys(rng: &mut SmallRng, tables: usize) -> Vec<Key> {
    let mut keys = Vec::new();
    for child in 0..tables {
        for number in 0..rng.random_range(0..=2) {
            // Few by the primary key: such a table gets rows only as its parent does.
            let column = rng.random_range(0..2 * COLUMNS) % COLUMNS;
            let column = if rng.random_bool(0.8) {
                column.max(1)
            } else {
                column
            };
            let actions: &[ReferentialAction] = match column {
                0 => &[Restrict, Cascade, Cascade, Cascade],
                _ => &[NoAction, Cascade, Cascade, Cascade, SetNull, SetNull],
            };
            let mut action = || actions[rng.random_range(0..actions.len())];
            let (on_delete, on_update) = (action(), action());
            keys.push(Key {
                child,
                number,
                column,
                parent: rng.random_range(0..tables),
                parent_column: rng.random_range(0..COLUMNS.min(3)),
                on_delete,
                on_update,
            });
        }
    }
    keys
}

/// Mostly a value that a parent has, if the column wants one.
fn random_value(rng: &mut SmallRng, run: &Run, table: usize, column: usize) -> Option<i64> {
    let mut keys = run.rules.of_child(table);
    keys.retain(|key| key.column == column);
    if column > 0 && rng.random_bool(0.3) {
        return None;
    }
    let parents: Vec<i64> = match keys.first() {
        Some(key) if rng.random_bool(0.85) => {
            let rows = run.model.tables[key.parent].values();
            rows.filter_map(|row| row[key.parent_column]).collect()
        }
        _ => Vec::new(),
    };
    Some(match parents.len() {
        0 if column == 0 => rng.random_range(0..4 * VALUES),
        0 => rng.random_range(0..VALUES),
        n => parents[rng.random_range(0..n)],
    })
}

fn random_row(rng: &mut SmallRng, run: &Run, table: usize) -> Row {
    std::array::from_fn(|column| random_value(rng, run, table, column))
}

#[derive(Clone, Copy, Debug)]
enum Statement {
    Insert(usize, Row),
    Update(usize, i64, Row),
    Delete(usize, i64),
}

fn random_statement(rng: &mut SmallRng, run: &Run) -> Statement {
    let model = &run.model;
    let table = rng.random_range(0..model.tables.len());
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
    row[column] = random_value(rng, run, table, column);
    Statement::Update(table, id, row)
}

fn value(value: Option<i64>) -> Value {
    value.map_or(Value::Null, Value::Int)
}

struct Run {
    db: Database,
    tables: Vec<Table>,
    model: Model,
    rules: Rules,
    /// For whoever looks at a failure.
    steps: Vec<String>,
    /// Statements that changed more than their row, and that were refused.
    cascades: usize,
    refusals: usize,
}

impl Run {
    /// A database with random tables, tied at random.
    fn new(disk: &SimDisk, rng: &mut SmallRng, sabotage: Option<Sabotage>) -> Run {
        let db = open(disk, sabotage).unwrap();
        let count = rng.random_range(1..=MOST_TABLES);
        let keys = random_keys(rng, count);
        for table in 0..count {
            let def = definition(table, &keys);
            db.create_table_with(&def, ForeignKeyChecks::Off).unwrap();
        }
        let table = |table| db.table(&table_name(table)).unwrap();
        Run {
            tables: (0..count).map(table).collect(),
            model: Model {
                tables: vec![BTreeMap::new(); count],
            },
            steps: keys.iter().map(|key| format!("{key:?}")).collect(),
            rules: Rules { keys, checks: true },
            cascades: 0,
            refusals: 0,
            db,
        }
    }

    fn row_at(&self, trx: &mut Transaction, table: usize, id: i64) -> Result<varve::Cursor> {
        let mut cursor = self.tables[table].cursor(0)?;
        let key = self.tables[table].def().key(0, &[Value::Int(id)])?;
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
            Statement::Update(table, id, row) => after.update(rules, table, id, row, &by),
            Statement::Delete(table, id) => after.delete(rules, table, id, &by),
        };
        let values =
            |table: usize, row: Row| self.tables[table].def().row(&row.map(value)).unwrap();
        let done = match statement {
            Statement::Insert(table, row) => {
                trx.insert(&self.tables[table], &values(table, row).datums())
            }
            Statement::Update(table, id, row) => {
                let cursor = self.row_at(trx, table, id).unwrap();
                let row = values(table, row);
                trx.update(&self.tables[table], &cursor, &row.datums())
                    .map(drop)
            }
            Statement::Delete(table, id) => {
                let cursor = self.row_at(trx, table, id).unwrap();
                trx.delete(&self.tables[table], &cursor)
            }
        };
        self.steps
            .push(format!("{statement:?}: {:?}", done.as_ref().err()));
        match (&done, allowed) {
            (Ok(()), Ok(())) => {
                self.cascades += usize::from(self.model.rows_not_in(&after) > 1);
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
        match found == self.model {
            true => Ok(()),
            false => Err(format!("found {found:?}\nnot {:?}", self.model)),
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

fn read(trx: &mut Transaction, tables: &[Table]) -> Model {
    let rows = |table: &Table| {
        let mut cursor = table.cursor(0).unwrap();
        let mut rows = BTreeMap::new();
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
    Model {
        tables: tables.iter().map(rows).collect(),
    }
}

/// Random transactions. What was committed, and before which operation of the disk that was known.
fn transactions(
    run: &mut Run,
    disk: &SimDisk,
    rng: &mut SmallRng,
    count: usize,
) -> std::result::Result<Vec<(usize, Model)>, String> {
    let mut committed = vec![(disk.operations(), run.model.clone())];
    for _ in 0..count {
        let mut trx = run.db.begin(Isolation::RepeatableRead);
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
            run.model = committed.last().unwrap().1.clone();
        } else {
            run.steps.push("commit".into());
            trx.commit().unwrap();
            committed.push((disk.operations(), run.model.clone()));
        }
        run.model.check_references(&run.rules.keys);
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

fn check<T: Debug>(run: &Run, seed: u64, what: std::result::Result<T, String>) -> T {
    what.unwrap_or_else(|why| {
        run.steps.iter().for_each(|step| println!("{step}"));
        panic!("VARVE_MODEL_SEED={seed}: {why}")
    })
}

#[test]
fn statements_do_what_the_model_does() {
    let (mut cascades, mut refusals) = (0, 0);
    for seed in seeds(150) {
        let (mut rng, disk) = (SmallRng::seed_from_u64(seed), SimDisk::default());
        let mut run = Run::new(&disk, &mut rng, None);
        let done = transactions(&mut run, &disk, &mut rng, 30);
        check(&run, seed, done);
        cascades += run.cascades;
        refusals += run.refusals;
        for table in &run.tables {
            let report = run.db.check_table(table).unwrap();
            assert_eq!(report.errors, [""; 0], "VARVE_MODEL_SEED={seed}");
        }
        run.db.crash();
    }
    println!("{cascades} statements changed more than their row, {refusals} were refused");
    assert!(refusals > 0 && (cascades > 0 || std::env::var_os("VARVE_MODEL_SEED").is_some()));
}

/// After a crash at any moment each table is as one of two commits left them all: the last one that was
/// known, or the next.
#[test]
fn a_crash_leaves_all_of_a_cascade_or_nothing() {
    const MOMENTS: usize = 12;
    for seed in seeds(12) {
        let (mut rng, disk) = (SmallRng::seed_from_u64(seed), SimDisk::default());
        let mut run = Run::new(&disk, &mut rng, None);
        let done = transactions(&mut run, &disk, &mut rng, 25);
        let committed = check(&run, seed, done);
        run.db.crash();
        let mut points = CrashPoints::new(disk.journal());
        let begun = committed[0].0;
        let mut moments = [0; MOMENTS].map(|_| rng.random_range(begun..=disk.operations()));
        moments.sort_unstable();
        for at in moments {
            points.advance(at);
            let db = open(&SimDisk::new(points.crash(&mut rng)), None).unwrap();
            let known = committed
                .iter()
                .rposition(|(acknowledged, _)| *acknowledged <= at);
            let known = known.expect("the first is before all moments");
            let tables: Vec<_> = (0..run.tables.len())
                .map(|table| db.table(&table_name(table)).unwrap())
                .collect();
            let found = read(&mut db.begin(Isolation::RepeatableRead), &tables);
            let expected = &committed[known..committed.len().min(known + 2)];
            let is_expected = expected.iter().any(|(_, model)| *model == found);
            assert!(
                is_expected,
                "VARVE_MODEL_SEED={seed}, before operation {at}: {found:?}"
            );
            found.check_references(&run.rules.keys);
            db.crash();
        }
    }
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
