//! What a database promised, and when: the state after each acknowledged change, with the operations of a simulated disk
//! between which it was made. It judges what is found after a crash.
//!
//! The workload is one thread: at most one change is under way at a time. After a crash the database must be in the state
//! of the last change that was acknowledged before it, or in that of the next one, if that had been begun.

use std::ops::Range;
use std::rc::Rc;

use varve::{Cursor, Database, Isolation, LockMode};

use super::oracle::{Brief, Row, State};

/// A state that the database was in.
struct Moment {
    /// Operations before the change to this state was begun, and before it was acknowledged.
    operations: Range<usize>,
    names: Vec<Option<String>>,
    rows: Vec<Rc<State>>,
}

/// All states, in order. The first is that before the database existed.
#[derive(Default)]
pub struct History {
    moments: Vec<Moment>,
    names: Vec<Option<String>>,
}

impl History {
    pub fn new(tables: usize) -> History {
        let names = vec![None; tables];
        History {
            moments: vec![Moment {
                operations: 0..0,
                names: names.clone(),
                rows: vec![Rc::default(); tables],
            }],
            names,
        }
    }

    /// From the next change on the table has this name.
    pub fn name(&mut self, table: usize, name: &str) {
        self.names[table] = Some(name.into());
    }

    pub fn push(&mut self, operations: Range<usize>, rows: Vec<Rc<State>>) {
        self.moments.push(Moment {
            operations,
            names: self.names.clone(),
            rows,
        });
    }

    /// How many changes were acknowledged.
    pub fn changes(&self) -> usize {
        self.moments.len() - 1
    }

    /// Whether the database is in a state that a crash before operation number `at` may leave behind.
    pub fn judge(&self, db: &Database, at: usize) -> Result<(), String> {
        let after = self.moments.partition_point(|m| m.operations.end <= at);
        let last = &self.moments[after - 1];
        let Err(lost) = last.compare(db) else {
            return check(db);
        };
        match self.moments.get(after).filter(|m| m.operations.start < at) {
            None => Err(format!("change {} is not there: {lost}", after - 1)),
            Some(next) => match next.compare(db) {
                Ok(()) => check(db),
                Err(half) => Err(format!(
                    "neither change {} is the last one ({lost}) nor the next one, which was under way ({half})",
                    after - 1
                )),
            },
        }
    }
}

impl Moment {
    fn compare(&self, db: &Database) -> Result<(), String> {
        let mut want: Vec<&str> = self.names.iter().flatten().map(String::as_str).collect();
        want.sort_unstable();
        let names = db.tables();
        if names != want {
            return Err(format!("tables {names:?} instead of {want:?}"));
        }
        let mut trx = db.begin(Isolation::RepeatableRead);
        for (name, state) in self.names.iter().zip(&self.rows) {
            let Some(name) = name else { continue };
            let table = db.table(name).map_err(|e| e.to_string())?;
            let mut cursor = table.cursor(0).map_err(|e| e.to_string())?;
            let mut found = cursor.first(&mut trx, LockMode::None);
            for want in state.values() {
                match row(&cursor, found)? {
                    Some(row) if row == *want => {}
                    Some(row) => {
                        return Err(format!(
                            "{name}: found {:?}, expected {:?}",
                            Brief(&row),
                            Brief(want)
                        ));
                    }
                    None => return Err(format!("{name}: row {:?} is missing", Brief(want))),
                }
                found = cursor.next(&mut trx);
            }
            if let Some(row) = row(&cursor, found)? {
                return Err(format!("{name}: row {:?} should not be", Brief(&row)));
            }
        }
        Ok(())
    }
}

fn row(cursor: &Cursor, found: varve::Result<bool>) -> Result<Option<Row>, String> {
    match found.map_err(|e| e.to_string())? {
        true => match cursor.row().map(|row| row.values()) {
            Ok(Ok(values)) => Ok(Some(values)),
            Ok(Err(e)) | Err(e) => Err(e.to_string()),
        },
        false => Ok(None),
    }
}

fn check(db: &Database) -> Result<(), String> {
    db.core().undo.check().map_err(|e| e.to_string())?;
    for name in db.tables() {
        let table = db.table(&name).map_err(|e| e.to_string())?;
        let report = db.check_table(&table).map_err(|e| e.to_string())?;
        if !report.errors.is_empty() {
            return Err(format!("{name}: {:?}", report.errors));
        }
    }
    Ok(())
}
