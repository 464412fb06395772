//! The oracle of the model tests: tables as ordered maps, transactions as overlays on them, snapshots as
//! clones.
//!
//! It knows nothing of the engine but the definitions of its tables: order, uniqueness, visibility and
//! conflicts are said again here, in the plainest way. Keys are compared as values, not as encoded bytes.
//!
//! What it says about a write is one of three: it succeeds; it fails as a duplicate in a certain index; it
//! must wait for another transaction. Whenever another open transaction has touched the table, waiting is
//! allowed too, because the engine may lock more than this oracle knows; it never may lock less.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use varve::{CollationId, ColumnType, TableDef, Value};

pub type Row = Vec<Value>;

/// One value of a key, ordered as the index orders it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyValue {
    Null,
    Int(i128),
    /// Order-preserving bits of a float.
    Real(i64),
    Bytes(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyPartValue {
    Up(KeyValue),
    Down(Reverse<KeyValue>),
}

pub type Key = Vec<KeyPartValue>;

pub type State = BTreeMap<Key, Row>;

/// Committed contents of all tables.
pub struct Oracle {
    defs: Vec<TableDef>,
    committed: Vec<Rc<State>>,
    next_row_id: i128,
}

/// An open transaction.
#[derive(Clone, Default)]
pub struct Tx {
    /// What it changed: a row, or none for a deleted one.
    overlay: Vec<BTreeMap<Key, Option<Row>>>,
    snapshot: Option<Vec<Rc<State>>>,
    /// Tables in which it may hold locks.
    pub touched: Vec<bool>,
}

/// What a transaction had changed at some moment.
#[derive(Clone)]
pub struct Mark(Vec<BTreeMap<Key, Option<Row>>>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Duplicate(String),
    MustWait,
}

/// Which versions a read sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The transaction's snapshot.
    Snapshot,
    /// The latest committed rows: locking reads, writes, READ COMMITTED.
    Latest,
}

/// A row in the order of an index.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: Key,
    pub row_key: Key,
    pub row: Row,
}

/// A row or key for people: external values by their start and length.
pub struct Brief<'a>(pub &'a [Value]);

impl fmt::Debug for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_list();
        for value in self.0 {
            match value {
                Value::Bytes(b) if b.len() > 4 => {
                    list.entry(&format_args!("{:02x?}..{}", &b[..4], b.len()))
                }
                Value::Bytes(b) => list.entry(b),
                Value::Text(t) => list.entry(t),
                Value::Int(v) => list.entry(v),
                Value::UInt(v) => list.entry(v),
                Value::Float(v) => list.entry(v),
                Value::Double(v) => list.entry(v),
                Value::Null => list.entry(&format_args!("NULL")),
            };
        }
        list.finish()
    }
}

impl Oracle {
    pub fn new(defs: Vec<TableDef>) -> Oracle {
        let committed = defs.iter().map(|_| Rc::default()).collect();
        Oracle {
            defs,
            committed,
            next_row_id: 0,
        }
    }

    pub fn def(&self, table: usize) -> &TableDef {
        &self.defs[table]
    }

    pub fn tables(&self) -> usize {
        self.defs.len()
    }

    /// What is committed now: each table's rows in clustered order.
    pub fn committed(&self) -> Vec<Rc<State>> {
        self.committed.clone()
    }

    pub fn begin(&self) -> Tx {
        Tx {
            overlay: vec![BTreeMap::new(); self.tables()],
            snapshot: None,
            touched: vec![false; self.tables()],
        }
    }

    /// The first consistent read of a REPEATABLE READ transaction fixes what it sees.
    pub fn open_snapshot(&self, tx: &mut Tx) {
        if tx.snapshot.is_none() {
            tx.snapshot = Some(self.committed.clone());
        }
    }

    pub fn commit(&mut self, tx: Tx) {
        tx.apply(&mut self.committed);
    }

    /// The table is empty. No transaction is open.
    pub fn truncate(&mut self, table: usize) {
        self.committed[table] = Rc::default();
    }

    /// What `tx` sees of a table, in clustered order.
    pub fn rows<'a>(&'a self, tx: &'a Tx, table: usize, read: Read) -> BTreeMap<&'a Key, &'a Row> {
        let base = match read {
            Read::Latest => &self.committed[table],
            Read::Snapshot => &tx.snapshot.as_ref().expect("a snapshot was opened")[table],
        };
        let mut rows: BTreeMap<_, _> = base.iter().collect();
        for (key, row) in &tx.overlay[table] {
            match row {
                Some(row) => rows.insert(key, row),
                None => rows.remove(key),
            };
        }
        rows
    }

    /// The same in the order of an index.
    pub fn entries(&self, tx: &Tx, table: usize, index: usize, read: Read) -> Vec<Entry> {
        let entry = |(row_key, row): (&Key, &Row)| Entry {
            key: self.index_key(table, index, row, row_key),
            row_key: row_key.clone(),
            row: row.clone(),
        };
        let mut entries: Vec<_> = self.rows(tx, table, read).into_iter().map(entry).collect();
        entries.sort_by(|a, b| (&a.key, &a.row_key).cmp(&(&b.key, &b.row_key)));
        entries
    }

    fn index_key(&self, table: usize, index: usize, row: &Row, row_key: &Key) -> Key {
        let def = &self.defs[table];
        if index == 0 && def.has_row_id() {
            return row_key.clone();
        }
        let parts = &def.all_indexes().nth(index).unwrap().parts;
        let values: Vec<_> = parts.iter().map(|p| row[p.column].clone()).collect();
        self.search_key(table, index, &values)
    }

    /// The key of values for the first parts of an index.
    pub fn search_key(&self, table: usize, index: usize, values: &[Value]) -> Key {
        let def = &self.defs[table];
        let parts = &def.all_indexes().nth(index).unwrap().parts;
        let of = |(part, value): (&varve::KeyPart, &Value)| {
            let v = key_value(def.columns[part.column].ty, part.prefix_len, value);
            if part.descending {
                KeyPartValue::Down(Reverse(v))
            } else {
                KeyPartValue::Up(v)
            }
        };
        parts.iter().zip(values).map(of).collect()
    }

    pub fn insert(&mut self, tx: &mut Tx, others: &[&Tx], table: usize, row: Row) -> Outcome {
        let key = if self.defs[table].has_row_id() {
            vec![KeyPartValue::Up(KeyValue::Int(self.next_row_id))]
        } else {
            self.index_key(table, 0, &row, &Vec::new())
        };
        let outcome = self.judge(tx, others, table, None, &key, &row);
        if outcome == Outcome::Done {
            self.next_row_id += 1;
            tx.overlay[table].insert(key, Some(row));
        }
        outcome
    }

    pub fn update(
        &self,
        tx: &mut Tx,
        others: &[&Tx],
        table: usize,
        old: &Key,
        row: Row,
    ) -> Outcome {
        let key = if self.defs[table].has_row_id() {
            old.clone()
        } else {
            self.index_key(table, 0, &row, &Vec::new())
        };
        if self.rows(tx, table, Read::Latest).get(old) == Some(&&row) {
            // Nothing changes, so there is no new version: the transaction's snapshot still shows the row as
            // it was.
            return Outcome::Done;
        }
        let outcome = self.judge(tx, others, table, Some(old), &key, &row);
        if outcome == Outcome::Done {
            tx.overlay[table].insert(old.clone(), None);
            tx.overlay[table].insert(key, Some(row));
        }
        outcome
    }

    pub fn delete(&self, tx: &mut Tx, table: usize, key: &Key) {
        tx.overlay[table].insert(key.clone(), None);
    }

    /// Has another transaction changed this very row?
    pub fn changed_by(others: &[&Tx], table: usize, key: &Key) -> bool {
        others.iter().any(|o| o.overlay[table].contains_key(key))
    }

    /// Indexes are checked in their order, the clustered one first; the first that objects decides.
    fn judge(
        &self,
        tx: &Tx,
        others: &[&Tx],
        table: usize,
        old: Option<&Key>,
        key: &Key,
        row: &Row,
    ) -> Outcome {
        if old != Some(key) && Self::changed_by(others, table, key) {
            return Outcome::MustWait;
        }
        let now = self.rows(tx, table, Read::Latest);
        for (number, index) in self.defs[table].all_indexes().enumerate() {
            if !index.unique {
                continue;
            }
            if number == 0 {
                if old != Some(key) && now.contains_key(key) {
                    return Outcome::Duplicate(index.name.clone());
                }
                continue;
            }
            let wanted = self.index_key(table, number, row, key);
            if wanted.iter().any(is_null) {
                continue;
            }
            let before = old
                .and_then(|old| now.get(old))
                .map(|r| self.index_key(table, number, r, key));
            if before.as_ref() == Some(&wanted) {
                continue;
            }
            let has = |r: &Row| self.index_key(table, number, r, key) == wanted;
            // Another's new row with this key, or a committed one that another has changed or deleted.
            let contested = others.iter().any(|o| {
                (o.overlay[table].iter()).any(|(k, new)| {
                    new.as_ref().is_some_and(has) || self.committed[table].get(k).is_some_and(has)
                })
            });
            if contested {
                return Outcome::MustWait;
            }
            if now.iter().any(|(k, r)| Some(*k) != old && has(r)) {
                return Outcome::Duplicate(index.name.clone());
            }
        }
        Outcome::Done
    }
}

impl Tx {
    /// Makes its changes to the tables' rows.
    pub fn apply(&self, tables: &mut [Rc<State>]) {
        for (state, overlay) in tables.iter_mut().zip(&self.overlay) {
            if overlay.is_empty() {
                continue;
            }
            let state = Rc::make_mut(state);
            for (key, row) in overlay {
                match row {
                    Some(row) => state.insert(key.clone(), row.clone()),
                    None => state.remove(key),
                };
            }
        }
    }

    /// It has changed nothing.
    pub fn is_empty(&self) -> bool {
        self.overlay.iter().all(BTreeMap::is_empty)
    }

    pub fn has_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    pub fn mark(&self) -> Mark {
        Mark(self.overlay.clone())
    }

    pub fn rollback_to(&mut self, mark: &Mark) {
        self.overlay = mark.0.clone();
    }
}

fn is_null(part: &KeyPartValue) -> bool {
    matches!(
        part,
        KeyPartValue::Up(KeyValue::Null) | KeyPartValue::Down(Reverse(KeyValue::Null))
    )
}

/// Test texts have no characters below the space, so PAD SPACE is the same as dropping spaces at the end.
fn key_value(ty: ColumnType, prefix: Option<u32>, value: &Value) -> KeyValue {
    let prefix = prefix.map_or(usize::MAX, |n| n as usize);
    let real = |v: f64| {
        let bits = (v + 0.0).to_bits() as i64;
        KeyValue::Real(bits ^ (((bits >> 63) as u64) >> 1) as i64)
    };
    match value {
        Value::Null => KeyValue::Null,
        Value::Int(v) => KeyValue::Int(*v as i128),
        Value::UInt(v) => KeyValue::Int(*v as i128),
        Value::Float(v) => real(*v as f64),
        Value::Double(v) => real(*v),
        Value::Bytes(v) => KeyValue::Bytes(v[..v.len().min(prefix)].to_vec()),
        Value::Text(v) => {
            let ColumnType::Text { collation, .. } = ty else {
                panic!("text in a column of type {ty}")
            };
            let cut: String = v.chars().take(prefix).collect();
            KeyValue::Bytes(match collation {
                CollationId::UTF8_CI | CollationId::ASCII_CI => cut.to_lowercase().into_bytes(),
                CollationId::UTF8_BIN_PAD => cut.trim_end_matches(' ').into(),
                _ => cut.into_bytes(),
            })
        }
    }
}
