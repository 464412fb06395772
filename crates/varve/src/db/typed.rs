//! Rows as programs use them: found by key or by range, with values that have types. All of it is made of
//! what `Cursor` and `Transaction` offer; a caller that needs more speed or other locks uses those.

use std::ops::{Bound, RangeBounds};

use crate::base::{Error, Result};
use crate::db::Table;
use crate::row::{Datum, DatumBuf, RowRef, Value};
use crate::table::{Cursor, KeyMatch, LockMode};
use crate::txn::Transaction;

/// A slice of [`Value`]s: keys and rows for the calls of [`Table`].
///
/// ```
/// use varve::{Value, values};
///
/// let key: &[Value] = values![7, "lamp", None::<i64>];
/// assert_eq!(key, &[Value::Int(7), Value::Text("lamp".into()), Value::Null]);
/// ```
#[macro_export]
macro_rules! values {
    ($($value:expr),* $(,)?) => { &[$($crate::Value::from($value)),*][..] };
}

/// A copy of a row, as its transaction saw it.
#[derive(Clone)]
pub struct Row {
    table: Table,
    datums: DatumBuf,
}

impl Row {
    fn copy(table: &Table, row: RowRef<'_>) -> Row {
        Row {
            table: table.clone(),
            datums: row.iter().collect(),
        }
    }

    /// The value of the column called `name`, as a Rust type; NULL only as an `Option`.
    ///
    /// # Errors
    ///
    /// `Invalid` if there is no such column, or its value is not one of `T`.
    pub fn get<T: FromValue>(&self, name: &str) -> Result<T> {
        let def = self.table.def();
        let column = def
            .column_index(name)
            .ok_or_else(|| Error::invalid(format!("table {} has no column {name}", def.name)))?;
        let value = Value::decode(&def.columns[column], self.datums.get(column))?;
        T::from_value(value).map_err(|value| {
            let wanted = std::any::type_name::<T>();
            Error::invalid(format!("column {name} is {value:?}, which is no {wanted}"))
        })
    }

    /// All values, in the order of the columns.
    pub fn values(&self) -> Result<Vec<Value>> {
        let columns = self.table.def().columns.iter();
        columns
            .zip(self.datums.iter())
            .map(|(column, datum)| Value::decode(column, datum))
            .collect()
    }

    /// The stored bytes of each column, in their order.
    pub fn datums(&self) -> Vec<Datum<'_>> {
        self.datums.datums()
    }
}

/// What a column's value can be turned into.
pub trait FromValue: Sized {
    /// Gives the value back if it is of another type or out of range.
    fn from_value(value: Value) -> std::result::Result<Self, Value>;
}

impl FromValue for Value {
    fn from_value(value: Value) -> std::result::Result<Value, Value> {
        Ok(value)
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: Value) -> std::result::Result<Option<T>, Value> {
        match value {
            Value::Null => Ok(None),
            value => T::from_value(value).map(Some),
        }
    }
}

macro_rules! from_value {
    ($($to:ty => $($kind:ident)|+;)*) => {
        $(impl FromValue for $to {
            fn from_value(value: Value) -> std::result::Result<$to, Value> {
                match value {
                    $(Value::$kind(v) => v.try_into().map_err(|_| Value::$kind(v)),)+
                    other => Err(other),
                }
            }
        })*
    };
}

from_value! {
    i8 => Int | UInt;
    i16 => Int | UInt;
    i32 => Int | UInt;
    i64 => Int | UInt;
    u8 => Int | UInt;
    u16 => Int | UInt;
    u32 => Int | UInt;
    u64 => Int | UInt;
    f32 => Float;
    f64 => Float | Double;
}

impl FromValue for String {
    fn from_value(value: Value) -> std::result::Result<String, Value> {
        match value {
            Value::Text(v) => Ok(v),
            other => Err(other),
        }
    }
}

impl FromValue for Vec<u8> {
    fn from_value(value: Value) -> std::result::Result<Vec<u8>, Value> {
        match value {
            Value::Bytes(v) => Ok(v),
            Value::Text(v) => Ok(v.into_bytes()),
            other => Err(other),
        }
    }
}

/// Work on single rows, by their primary key. Rows that are read with a lock, changed or deleted stay locked
/// until the transaction ends.
///
/// ```
/// use varve::{ColumnType, Database, Isolation, Options, TableDef, values};
///
/// # fn main() -> varve::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Database::open(dir.path(), Options::default())?;
/// let def = TableDef::new("shop/item")
///     .column("name", ColumnType::text(100))
///     .column("stock", ColumnType::i64())
///     .primary(&["name"])
///     .index("by_stock", &["stock"]);
/// let items = db.create_table(&def)?;
///
/// let mut trx = db.begin(Isolation::RepeatableRead);
/// for (name, stock) in [("lamp", 12), ("chair", 4), ("table", 0)] {
///     items.insert(&mut trx, values![name, stock])?;
/// }
/// assert!(items.set(&mut trx, values!["lamp"], &[("stock", 11.into())])?);
/// assert!(items.delete(&mut trx, values!["table"])?);
/// trx.commit()?;
///
/// let mut trx = db.begin(Isolation::RepeatableRead);
/// let lamp = items.get(&mut trx, values!["lamp"])?.expect("it was inserted");
/// assert_eq!(lamp.get::<i64>("stock")?, 11);
/// assert!(items.get(&mut trx, values!["table"])?.is_none());
///
/// // Few left: a range of the index on stock.
/// let by_stock = items.index_by_name("by_stock").expect("it was defined");
/// let few = items.range(&mut trx, by_stock, ..values![10])?;
/// let names: Vec<String> = few.map(|row| row?.get("name")).collect::<varve::Result<_>>()?;
/// assert_eq!(names, ["chair"]);
/// # Ok(())
/// # }
/// ```
impl Table {
    /// Inserts a row: one value per column.
    ///
    /// # Errors
    ///
    /// `Invalid` for values that don't fit their columns; those of [`Transaction::insert`].
    pub fn insert(&self, trx: &mut Transaction, row: &[Value]) -> Result<()> {
        trx.insert(self, &self.def().row(row)?.datums())
    }

    /// Inserts many rows, in any order, which costs much less than one `insert` for each: all of them, or
    /// none if there is an error.
    ///
    /// # Errors
    ///
    /// Those of `insert`.
    pub fn insert_many(&self, trx: &mut Transaction, rows: &[&[Value]]) -> Result<()> {
        let encoded = rows.iter().map(|row| self.def().row(row));
        let encoded = encoded.collect::<Result<Vec<_>>>()?;
        let datums: Vec<_> = encoded.iter().map(DatumBuf::datums).collect();
        trx.insert_many(self, &datums)
    }

    /// The row with this primary key as the transaction sees it: waits for nobody.
    pub fn get(&self, trx: &mut Transaction, key: &[Value]) -> Result<Option<Row>> {
        Ok(self.find(trx, key, LockMode::None)?.map(|(_, row)| row))
    }

    /// The newest version of the row with this primary key, locked: nobody else changes it until the
    /// transaction ends.
    pub fn get_for_update(&self, trx: &mut Transaction, key: &[Value]) -> Result<Option<Row>> {
        let found = self.find(trx, key, LockMode::Exclusive)?;
        Ok(found.map(|(_, row)| row))
    }

    fn find(
        &self,
        trx: &mut Transaction,
        key: &[Value],
        lock: LockMode,
    ) -> Result<Option<(Cursor, Row)>> {
        let def = self.def();
        if def.has_row_id() || key.len() != def.primary.parts.len() {
            return Err(Error::invalid(format!(
                "the primary key of table {} has {} columns, got {}",
                def.name,
                if def.has_row_id() {
                    0
                } else {
                    def.primary.parts.len()
                },
                key.len()
            )));
        }
        let key = def.key(0, key)?;
        let mut cursor = self.cursor(0)?;
        if !cursor.seek(trx, &key.datums(), KeyMatch::Exact, lock)? {
            return Ok(None);
        }
        let row = Row::copy(self, cursor.row()?);
        Ok(Some((cursor, row)))
    }

    /// Changes some columns of the row with this primary key. `false`: there is no such row.
    pub fn set(
        &self,
        trx: &mut Transaction,
        key: &[Value],
        changes: &[(&str, Value)],
    ) -> Result<bool> {
        let Some((cursor, row)) = self.find(trx, key, LockMode::Exclusive)? else {
            return Ok(false);
        };
        let (def, mut values) = (self.def(), row.values()?);
        for (name, value) in changes {
            let column = def.column_index(name).ok_or_else(|| {
                Error::invalid(format!("table {} has no column {name}", def.name))
            })?;
            values[column] = value.clone();
        }
        trx.update(self, &cursor, &def.row(&values)?.datums())?;
        Ok(true)
    }

    /// Inserts a row, or replaces the one with the same primary key. Never fails because another transaction
    /// inserts the same key at the same time: it waits for that one, and replaces its row.
    pub fn put(&self, trx: &mut Transaction, row: &[Value]) -> Result<()> {
        let new = self.def().row(row)?;
        let parts = self.def().primary.parts.iter();
        let key: Vec<Value> = parts.map(|part| row[part.column].clone()).collect();
        loop {
            if let Some((cursor, _)) = self.find(trx, &key, LockMode::Exclusive)? {
                return trx.update(self, &cursor, &new.datums()).map(|_| ());
            }
            match trx.insert(self, &new.datums()) {
                // At READ COMMITTED nothing keeps others from inserting behind the look.
                Err(Error::DuplicateKey { index }) if index == self.def().primary.name => {}
                done => return done,
            }
        }
    }

    /// Deletes the row with this primary key. `false`: there is no such row.
    pub fn delete(&self, trx: &mut Transaction, key: &[Value]) -> Result<bool> {
        match self.find(trx, key, LockMode::Exclusive)? {
            Some((cursor, _)) => trx.delete(self, &cursor).map(|()| true),
            None => Ok(false),
        }
    }

    /// All rows in the order of the primary key, as the transaction sees them.
    pub fn rows<'a>(&self, trx: &'a mut Transaction) -> Result<Rows<'a>> {
        self.range(trx, 0, (Bound::<&[Value]>::Unbounded, Bound::Unbounded))
    }

    /// The rows between two keys of index number `index` (0: the primary key), in its order, as the
    /// transaction sees them. A bound is the first values of a key: `..=values![7]` includes all keys that
    /// start with 7.
    pub fn range<'a, 'k>(
        &self,
        trx: &'a mut Transaction,
        index: usize,
        keys: impl RangeBounds<&'k [Value]>,
    ) -> Result<Rows<'a>> {
        let mut cursor = self.cursor(index)?;
        let start = match keys.start_bound() {
            Bound::Included(key) => Some((self.def().key(index, key)?, KeyMatch::AtLeast)),
            Bound::Excluded(key) => Some((self.def().key(index, key)?, KeyMatch::After)),
            Bound::Unbounded => None,
        };
        let end = match keys.end_bound() {
            Bound::Included(key) => Some((self.def().key(index, key)?, true)),
            Bound::Excluded(key) => Some((self.def().key(index, key)?, false)),
            Bound::Unbounded => None,
        };
        if let Some((key, inclusive)) = end {
            cursor.set_end(Some((&key.datums(), inclusive)))?;
        }
        Ok(Rows {
            table: self.clone(),
            trx,
            cursor,
            position: RowsPosition::Before(start),
        })
    }
}

enum RowsPosition {
    /// Where to begin: at the first row if there is no key.
    Before(Option<(DatumBuf, KeyMatch)>),
    On,
    Ended,
}

/// The rows of a range, read one after the other. See [`Table::range`].
pub struct Rows<'a> {
    table: Table,
    trx: &'a mut Transaction,
    cursor: Cursor,
    position: RowsPosition,
}

impl Rows<'_> {
    /// The next row without a copy of it; `None` at the end.
    pub fn next_ref(&mut self) -> Result<Option<RowRef<'_>>> {
        match self.advance()? {
            true => self.cursor.row().map(Some),
            false => Ok(None),
        }
    }

    fn advance(&mut self) -> Result<bool> {
        let found = match std::mem::replace(&mut self.position, RowsPosition::Ended) {
            RowsPosition::Before(None) => self.cursor.first(self.trx, LockMode::None)?,
            RowsPosition::Before(Some((key, how))) => {
                self.cursor
                    .seek(self.trx, &key.datums(), how, LockMode::None)?
            }
            RowsPosition::On => self.cursor.next(self.trx)?,
            RowsPosition::Ended => false,
        };
        if found {
            self.position = RowsPosition::On;
        }
        Ok(found)
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        match self.advance() {
            Ok(true) => Some(self.cursor.row().map(|row| Row::copy(&self.table, row))),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}
