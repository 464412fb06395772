//! A model of tables tied by foreign keys, which knows nothing but rows and entries in maps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included, Unbounded};

use varve::ReferentialAction;

use ReferentialAction::{Cascade, NoAction, Restrict};

/// Column 0 is the primary key; each of the others takes NULL.
pub const COLUMNS: usize = 5;
const MOST_CASCADES: u32 = 14;

pub type Row = [Option<i64>; COLUMNS];
pub type Rows = BTreeMap<i64, Row>;
/// The values of an index's columns, and of the primary key.
type Entry = Vec<Option<i64>>;

/// A secondary index, by its columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    pub columns: Vec<usize>,
    pub is_unique: bool,
}

impl Index {
    fn entry(&self, row: &Row) -> Entry {
        let behind = [0].iter();
        self.columns.iter().chain(behind).map(|&c| row[c]).collect()
    }
}

/// A foreign key of table `child`: so many of its columns, and of the parent's.
#[derive(Clone, Debug)]
pub struct Key {
    pub child: usize,
    pub number: usize,
    pub columns: Vec<usize>,
    pub parent: usize,
    pub parent_columns: Vec<usize>,
    pub on_delete: ReferentialAction,
    pub on_update: ReferentialAction,
}

/// The columns' values, if none of them is NULL.
pub fn values(row: &Row, columns: &[usize]) -> Option<Vec<i64>> {
    columns.iter().map(|&column| row[column]).collect()
}

/// The model refuses, whatever for.
#[derive(Debug)]
pub struct Refused;

pub type Allowed = Result<(), Refused>;

/// How a change came about, as the engine has it.
#[derive(Clone, Default)]
pub struct By {
    depth: u32,
    from: Option<(usize, usize)>,
    updated: Vec<usize>,
    /// The row that gets another primary key. It stays its own parent, if it is one.
    moved: Option<Row>,
}

/// What the statements of a run are checked by.
#[derive(Clone)]
pub struct Rules {
    /// By their children and numbers.
    pub keys: Vec<Key>,
    /// Of each table.
    pub indexes: Vec<Vec<Index>>,
    /// What each table is called, or was before it was dropped.
    pub names: Vec<String>,
    /// Whether each table is there. One that is not has neither rows nor foreign keys.
    pub is_there: Vec<bool>,
    pub checks: bool,
}

/// A statement that concerns a whole table.
#[derive(Clone, Debug)]
pub enum Ddl {
    /// Of a table that was dropped, perhaps with a foreign key.
    Create(usize, Option<Key>),
    Drop(usize),
    Truncate(usize),
    Rename(usize, String),
    AddKey(Key),
    /// The foreign key of this table with this number.
    DropKey(usize, usize),
    /// Its rows are written anew: by the engine, or by a copy that the server makes.
    Rebuild(usize),
    Copy(usize),
}

impl Rules {
    pub fn of_child(&self, child: usize) -> Vec<Key> {
        let mut keys = self.keys.clone();
        keys.retain(|key| key.child == child);
        keys
    }

    /// In the order of the indexes that are referred to, of schemas and names.
    fn of_parent(&self, parent: usize) -> Vec<Key> {
        let mut keys = self.keys.clone();
        keys.retain(|key| key.parent == parent);
        keys.sort_by_key(|key| {
            let index = self.index_of(parent, &key.parent_columns);
            let schema = self.names[key.child].split('/').next();
            (index, schema.map(str::to_string), key.child, key.number)
        });
        keys
    }

    /// A table to which another one refers keeps its rows.
    fn check_not_referenced(&self, table: usize) -> Allowed {
        let refers = |key: &Key| key.parent == table && key.child != table;
        match self.checks && self.keys.iter().any(refers) {
            true => Err(Refused),
            false => Ok(()),
        }
    }

    fn add_key(&mut self, key: &Key) -> Allowed {
        if self.checks && !self.is_there[key.parent] {
            return Err(Refused);
        }
        self.keys.push(key.clone());
        self.keys.sort_by_key(|key| (key.child, key.number));
        Ok(())
    }

    /// FK-1: the first index that begins with the columns; 0 is the primary key.
    fn index_of(&self, table: usize, columns: &[usize]) -> usize {
        let begins = |index: &Index| {
            let behind = [0].iter();
            let parts: Vec<usize> = index.columns.iter().chain(behind).copied().collect();
            parts.starts_with(columns)
        };
        match columns {
            [0] => 0,
            _ => 1 + (self.indexes[table].iter().position(begins)).expect("it has an index"),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Model {
    pub tables: Vec<Rows>,
    /// Of each table's indexes. While a row is being written it has not got all of them.
    entries: Vec<Vec<BTreeSet<Entry>>>,
}

impl Model {
    pub fn new(rules: &Rules) -> Model {
        let empty = |indexes: &Vec<Index>| vec![BTreeSet::new(); 1 + indexes.len()];
        Model {
            tables: vec![Rows::new(); rules.indexes.len()],
            entries: rules.indexes.iter().map(empty).collect(),
        }
    }

    /// What is refused may leave anything.
    pub fn ddl(&mut self, rules: &mut Rules, statement: &Ddl) -> Allowed {
        match *statement {
            Ddl::Create(table, ref key) => {
                rules.is_there[table] = true;
                key.iter().try_for_each(|key| rules.add_key(key))?;
            }
            Ddl::Drop(table) => {
                rules.check_not_referenced(table)?;
                self.empty(table);
                rules.keys.retain(|key| key.child != table);
                rules.is_there[table] = false;
            }
            Ddl::Truncate(table) => {
                rules.check_not_referenced(table)?;
                self.empty(table);
            }
            Ddl::Rename(table, ref name) => rules.names[table].clone_from(name),
            Ddl::AddKey(ref key) => {
                rules.add_key(key)?;
                if rules.checks && orphan_by(&self.tables, key).is_some() {
                    return Err(Refused);
                }
            }
            Ddl::DropKey(child, number) => {
                (rules.keys).retain(|key| (key.child, key.number) != (child, number));
            }
            Ddl::Rebuild(_) | Ddl::Copy(_) => {}
        }
        Ok(())
    }

    fn empty(&mut self, table: usize) {
        self.tables[table].clear();
        self.entries[table].iter_mut().for_each(BTreeSet::clear);
    }

    /// The first entry behind `after` that begins with these values.
    fn entry(
        &self,
        (table, index): (usize, usize),
        values: &[i64],
        after: Option<&Entry>,
    ) -> Option<Entry> {
        let prefix: Entry = values.iter().copied().map(Some).collect();
        let from = after.map_or(Included(&prefix), Excluded);
        let found = self.entries[table][index]
            .range::<Entry, _>((from, Unbounded))
            .next()?;
        found.starts_with(&prefix).then(|| found.clone())
    }

    fn check_parents(
        &self,
        rules: &Rules,
        (table, index): (usize, usize),
        row: &Row,
        by: &By,
    ) -> Allowed {
        for key in rules.of_child(table) {
            let stays = |old: Row| {
                let own = values(&old, &key.columns);
                let is_own = own.is_some() && own == values(&old, &key.parent_columns);
                let mut ends = key.columns.iter().chain(&key.parent_columns);
                is_own && key.parent == table && ends.all(|&end| row[end] == old[end])
            };
            if rules.index_of(table, &key.columns) != index
                || !rules.checks
                || by.from == Some((table, key.number))
                || by.moved.is_some_and(stays)
            {
                continue;
            }
            let parents = rules.index_of(key.parent, &key.parent_columns);
            let wanted = values(row, &key.columns);
            let is_there = |v: Vec<i64>| self.entry((key.parent, parents), &v, None).is_some();
            if !wanted.is_none_or(is_there) {
                return Err(Refused);
            }
        }
        Ok(())
    }

    /// Gives a row its entry in an index, and takes the one that it had.
    fn write_entry(
        &mut self,
        rules: &Rules,
        (table, number): (usize, usize),
        (old, row): (Option<&Row>, &Row),
        by: &By,
    ) -> Allowed {
        let index = &rules.indexes[table][number - 1];
        let (before, entry) = (old.map(|old| index.entry(old)), index.entry(row));
        if before.as_ref() == Some(&entry) {
            return Ok(());
        }
        self.check_parents(rules, (table, number), row, by)?;
        before.map(|before| self.entries[table][number].remove(&before));
        let taken = values(row, &index.columns).filter(|_| index.is_unique);
        if taken.is_some_and(|v| self.entry((table, number), &v, None).is_some()) {
            return Err(Refused);
        }
        self.entries[table][number].insert(entry);
        Ok(())
    }

    pub fn insert(&mut self, rules: &Rules, table: usize, row: Row, by: &By) -> Allowed {
        let id = row[0].ok_or(Refused)?;
        self.check_parents(rules, (table, 0), &row, by)?;
        if self.tables[table].contains_key(&id) {
            return Err(Refused);
        }
        // The row is there; its entries follow one by one.
        self.tables[table].insert(id, row);
        self.entries[table][0].insert(vec![Some(id)]);
        let mut numbers = 1..=rules.indexes[table].len();
        numbers.try_for_each(|number| self.write_entry(rules, (table, number), (None, &row), by))
    }

    /// With its entries.
    fn remove(&mut self, rules: &Rules, table: usize, id: i64) -> Row {
        let old = self.tables[table].remove(&id).expect("it is there");
        self.entries[table][0].remove(&vec![Some(id)]);
        for (number, index) in rules.indexes[table].iter().enumerate() {
            self.entries[table][1 + number].remove(&index.entry(&old));
        }
        old
    }

    pub fn delete(&mut self, rules: &Rules, table: usize, id: i64, by: &By) -> Allowed {
        let old = self.remove(rules, table, id);
        self.see_to_children(rules, table, &old, None, by)
    }

    pub fn update(&mut self, rules: &Rules, table: usize, new: (i64, Row), by: &By) -> Allowed {
        let (id, new) = new;
        let old = self.tables[table][&id];
        if old == new {
            return Ok(());
        }
        if old[0] != new[0] {
            self.remove(rules, table, id);
            let moving = By {
                moved: Some(old),
                ..by.clone()
            };
            self.insert(rules, table, new, &moving)?;
        } else {
            self.tables[table].insert(id, new);
            for number in 1..=rules.indexes[table].len() {
                self.write_entry(rules, (table, number), (Some(&old), &new), by)?;
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
            let Some(was) = values(old, &key.parent_columns) else {
                continue;
            };
            let is_now = new.and_then(|new| values(new, &key.parent_columns));
            if is_now.as_ref() != Some(&was) {
                self.see_to(rules, &key, &was, new, &by)?;
            }
        }
        Ok(())
    }

    fn see_to(
        &mut self,
        rules: &Rules,
        key: &Key,
        was: &[i64],
        new: Option<&Row>,
        by: &By,
    ) -> Allowed {
        let child = (key.child, rules.index_of(key.child, &key.columns));
        let mut at = self.entry(child, was, None);
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
        while let Some(entry) = at {
            let id = entry[entry.len() - 1].expect("a primary key");
            let mut row = self.tables[key.child][&id];
            for (&own, &its) in key.columns.iter().zip(&key.parent_columns) {
                row[own] = match (action, new) {
                    (Cascade, Some(new)) => new[its],
                    _ => None,
                };
            }
            match deletes {
                true => self.delete(rules, key.child, id, &by)?,
                false if row[0].is_none() => return Err(Refused),
                false => self.update(rules, key.child, (id, row), &by)?,
            }
            at = self.entry(child, was, Some(&entry));
        }
        Ok(())
    }
}

/// A row that has no parent by this foreign key.
fn orphan_by<'a>(tables: &'a [Rows], key: &Key) -> Option<&'a Row> {
    let parents: BTreeSet<Vec<i64>> = tables[key.parent]
        .values()
        .filter_map(|row| values(row, &key.parent_columns))
        .collect();
    let is_orphan = |row: &&Row| {
        let wanted = values(row, &key.columns);
        wanted.is_some_and(|wanted| !parents.contains(&wanted))
    };
    tables[key.child].values().find(is_orphan)
}

/// FK-3, of tables that were only changed with checks on.
pub fn check_references(tables: &[Rows], keys: &[Key]) {
    for key in keys {
        let orphan = orphan_by(tables, key);
        assert!(orphan.is_none(), "FK-3: {orphan:?} of {key:?}");
    }
}

/// How many rows are other ones in `after`, or gone.
pub fn rows_not_in(before: &[Rows], after: &[Rows]) -> usize {
    let gone = |(before, after): (&Rows, &Rows)| {
        let rows = before.iter();
        rows.filter(|(id, row)| after.get(id) != Some(row)).count()
    };
    before.iter().zip(after).map(gone).sum()
}
