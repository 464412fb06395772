//! What a database promised, and when: the state after each acknowledged change, with the operations of a
//! simulated disk between which it was made. It judges what is found after a crash.
//!
//! The workload is one thread: at most one change is under way at a time. After a crash the database must be
//! in the state of the last change that was acknowledged before it, or in that of the next one, if that had
//! been begun. Preparing a transaction is a change, too. After the judgement half of the prepared ones are
//! committed and half rolled back, and the outcome is judged again.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use varve::{Cursor, Database, Error, Isolation, LockMode, Xid};

use super::crashes::Promises;
use super::oracle::{Brief, Row, State, Tx};

/// Prepared transactions with what they changed, in the order in which the database lists them.
type PreparedList = Vec<(Xid, Rc<Tx>)>;

/// A state that the database was in.
#[derive(Clone)]
struct Moment {
    /// Operations before the change to this state was begun, and before it was acknowledged.
    operations: Range<usize>,
    names: Vec<Option<String>>,
    rows: Vec<Rc<State>>,
    prepared: PreparedList,
    /// Names that tables have had: what is no table's now is nothing at all, not a table that can't be used.
    known: Rc<BTreeSet<String>>,
}

/// All states, in order. The first is that before the database existed.
#[derive(Default)]
pub struct History {
    moments: Vec<Moment>,
    names: Vec<Option<String>>,
    prepared: PreparedList,
    known: Rc<BTreeSet<String>>,
    /// What the workload did, if it was told which steps to take.
    pub steps: Vec<String>,
}

impl History {
    pub fn new(tables: usize) -> History {
        let names = vec![None; tables];
        History {
            moments: vec![Moment {
                operations: 0..0,
                names: names.clone(),
                rows: vec![Rc::default(); tables],
                prepared: Vec::new(),
                known: Rc::default(),
            }],
            names,
            prepared: Vec::new(),
            known: Rc::default(),
            steps: Vec::new(),
        }
    }

    /// From the next change on the table has this name, or there is none.
    pub fn name(&mut self, table: usize, name: Option<&str>) {
        self.names[table] = name.map(str::to_string);
        Rc::make_mut(&mut self.known).extend(name.map(str::to_string));
    }

    /// From the next change on this transaction is prepared.
    pub fn prepare(&mut self, xid: Xid, tx: Tx) {
        self.prepared.push((xid, Rc::new(tx)));
        let order = |xid: &Xid| (xid.global().to_vec(), xid.branch().to_vec());
        self.prepared.sort_by_key(|(xid, _)| order(xid));
    }

    /// From the next change on it has ended.
    pub fn end_prepared(&mut self, xid: &Xid) {
        self.prepared.retain(|(other, _)| other != xid);
    }

    pub fn prepared(&self) -> PreparedList {
        self.prepared.clone()
    }

    pub fn push(&mut self, operations: Range<usize>, rows: Vec<Rc<State>>) {
        self.moments.push(Moment {
            operations,
            names: self.names.clone(),
            rows,
            prepared: self.prepared.clone(),
            known: self.known.clone(),
        });
    }

    /// The state that was acknowledged last before operation number `at`, and the one that was under way.
    fn may_be(&self, at: usize) -> (&Moment, Option<&Moment>) {
        let after = self.moments.partition_point(|m| m.operations.end <= at);
        let next = self.moments.get(after);
        let next = next.filter(|m| m.operations.start < at);
        (&self.moments[after - 1], next)
    }
}

impl Promises for History {
    fn changes(&self) -> usize {
        self.moments.len() - 1
    }

    fn steps(&self) -> &[String] {
        &self.steps
    }

    fn begin(&self) -> usize {
        0
    }

    fn judge(&self, db: &Database, at: usize) -> Result<(), String> {
        let (last, next) = self.may_be(at);
        let number = |moment: &Moment| {
            let is = |m: &Moment| std::ptr::eq(m, moment);
            self.moments.iter().position(is).expect("one of them")
        };
        let Err(lost) = last.compare(db) else {
            return last.decide(db, at);
        };
        let Some(next) = next else {
            return Err(format!("change {} is not there: {lost}", number(last)));
        };
        match next.compare(db) {
            Ok(()) => next.decide(db, at),
            Err(half) => Err(format!(
                "neither change {} is the last one ({lost}) nor the next one, which was under way ({half})",
                number(last)
            )),
        }
    }

    fn describe(&self, at: usize) -> Vec<String> {
        let (last, next) = self.may_be(at);
        let moments = std::iter::once(last).chain(next);
        moments.map(|moment| moment.text().join("\n")).collect()
    }
}

/// Like `History::judge`, with the states that `History::describe` wrote down.
pub fn is_one_of(db: &Database, at: usize, states: &[String]) -> Result<(), String> {
    let found = text_of(db)?;
    let mut differences = Vec::new();
    for state in states {
        let want: Vec<&str> = state.lines().collect();
        let differs = (0..want.len().max(found.len())).find(|n| {
            let found = found.get(*n).map(String::as_str);
            found != want.get(*n).copied()
        });
        let Some(at_line) = differs else {
            differences.clear();
            break;
        };
        let (found, want) = (found.get(at_line), want.get(at_line));
        differences.push(format!("found {found:?}, expected {want:?}"));
    }
    if !differences.is_empty() {
        return Err(differences.join("; or "));
    }
    for (n, xid) in db.prepared().iter().enumerate() {
        decide(db, xid, at + n)?;
    }
    check(db)
}

/// Every second prepared transaction is committed. Returns whether this one was.
fn decide(db: &Database, xid: &Xid, n: usize) -> Result<bool, String> {
    let commits = n.is_multiple_of(2);
    let ended = match commits {
        true => db.commit_prepared(xid),
        false => db.rollback_prepared(xid),
    };
    ended.map_err(|e| format!("prepared transaction {xid} can't be ended: {e}"))?;
    Ok(commits)
}

/// A line for each row that tells it from others.
pub fn line(row: &Row) -> String {
    let all = format!("{row:?}");
    let hash = all.bytes().fold(0u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("row {:?} {hash:016x}", Brief(row))
}

/// What a database holds, in the form of `Moment::text`.
fn text_of(db: &Database) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for name in db.tables().unwrap() {
        lines.push(format!("table {name}"));
        let table = db.table(&name).map_err(|e| e.to_string())?;
        let mut cursor = table.cursor(0).map_err(|e| e.to_string())?;
        let mut found = cursor.first(&mut trx, LockMode::None);
        while let Some(row) = row(&cursor, found)? {
            lines.push(line(&row));
            found = cursor.next(&mut trx);
        }
    }
    lines.extend(db.prepared().iter().map(|xid| format!("prepared {xid}")));
    Ok(lines)
}

impl Moment {
    fn text(&self) -> Vec<String> {
        let tables = self.names.iter().zip(&self.rows);
        let mut tables: Vec<_> = tables
            .filter_map(|(n, rows)| Some((n.as_ref()?, rows)))
            .collect();
        tables.sort_by_key(|(name, _)| *name);
        let mut lines = Vec::new();
        for (name, rows) in tables {
            lines.push(format!("table {name}"));
            lines.extend(rows.values().map(line));
        }
        let prepared = self.prepared.iter();
        lines.extend(prepared.map(|(xid, _)| format!("prepared {xid}")));
        lines
    }

    /// Ends what is prepared, and checks what comes out of it.
    fn decide(&self, db: &Database, at: usize) -> Result<(), String> {
        if !self.prepared.is_empty() {
            let mut decided = self.clone();
            for (n, (xid, tx)) in self.prepared.iter().enumerate() {
                if decide(db, xid, at + n)? {
                    tx.apply(&mut decided.rows);
                }
            }
            decided.prepared.clear();
            let compared = decided.compare(db);
            compared.map_err(|why| format!("after prepared transactions ended: {why}"))?;
        }
        check(db)
    }

    fn compare(&self, db: &Database) -> Result<(), String> {
        let prepared: Vec<Xid> = self.prepared.iter().map(|(xid, _)| *xid).collect();
        if db.prepared() != prepared {
            return Err(format!(
                "{} transactions are prepared instead of {}",
                db.prepared().len(),
                prepared.len()
            ));
        }
        let mut want: Vec<&str> = self.names.iter().flatten().map(String::as_str).collect();
        want.sort_unstable();
        let names = db.tables().unwrap();
        if names != want {
            return Err(format!("tables {names:?} instead of {want:?}"));
        }
        for name in self.known.iter().filter(|name| !names.contains(*name)) {
            match db.table(name).map(drop) {
                Err(Error::NotFound { .. }) => {}
                other => return Err(format!("table {name}, which is not there: {other:?}")),
            }
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

/// Nothing is wrong with undo and tables, and nothing is left of what was deleted.
fn check(db: &Database) -> Result<(), String> {
    if !super::purge::comes_to_an_end(db, Duration::from_secs(15)) {
        return Err("purge does not come to an end".into());
    }
    db.core().undo.check().map_err(|e| e.to_string())?;
    for name in db.tables().unwrap() {
        let table = db.table(&name).map_err(|e| e.to_string())?;
        let report = db.check_table(&table).map_err(|e| e.to_string())?;
        if !report.errors.is_empty() {
            return Err(format!("{name}: {:?}", report.errors));
        }
        if report.deleted_rows + report.old_overflow_pages > 0 {
            return Err(format!(
                "{name}: purge left {} rows and {} overflow pages",
                report.deleted_rows, report.old_overflow_pages
            ));
        }
    }
    Ok(())
}
