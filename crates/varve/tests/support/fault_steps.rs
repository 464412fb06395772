//! What a run of `faults.rs` does, step by step, and what each step makes of the rows.

use std::collections::BTreeMap;
use std::fmt;

use varve::{
    ColumnType, Database, Isolation, Result, Table, TableDef, Transaction, Value, Xid, values,
};

/// The rows of each table.
pub type State = BTreeMap<String, BTreeMap<i64, (i64, Vec<u8>)>>;

pub fn definition(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .column("body", ColumnType::Bytes(30_000))
        .primary(&["id"])
        .unique("by_k", &["k"])
        .add_index(varve::IndexDef::new(
            "by_body",
            vec![varve::KeyPart::new(2).prefix(16)],
        ))
}

/// A value that differs from others in all its parts.
fn body(n: i64, len: usize) -> Vec<u8> {
    let word = |at: i64| (n.wrapping_mul(1_000_003) ^ at).to_le_bytes();
    (0..len.div_ceil(8) as i64)
        .flat_map(word)
        .take(len)
        .collect()
}

/// What is done with a row.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    Put(i64, i64, usize),
    Delete(i64),
}

#[derive(Clone, Copy, Debug)]
pub enum End {
    Commit,
    Rollback,
    /// Prepared, and committed by its handle.
    Prepared,
    /// Prepared, the handle dropped, and rolled back by its name.
    PreparedRollback,
    /// The second half is taken back, the rest committed.
    Savepoint,
}

#[derive(Clone)]
pub enum Step {
    Create(&'static str),
    Drop(&'static str),
    Rename(&'static str, &'static str),
    Truncate(&'static str),
    Rebuild(&'static str),
    Transaction(&'static str, Vec<Change>, End),
    /// Reads all rows of all tables: the pool has not room for them.
    Read,
    /// From here on all changes are buffered that can be, until the database is closed.
    Buffer,
    /// Merges what is buffered for a few leaves of each index.
    Merge(&'static str),
    /// Opens a read view, which the next steps leave behind.
    Look,
    /// It still sees what it saw, and ends.
    LookAgain,
    Reopen,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Create(name) => write!(f, "creating {name}"),
            Step::Drop(name) => write!(f, "dropping {name}"),
            Step::Rename(from, to) => write!(f, "renaming {from} to {to}"),
            Step::Truncate(name) => write!(f, "emptying {name}"),
            Step::Rebuild(name) => write!(f, "rebuilding {name}"),
            Step::Transaction(name, changes, end) => {
                write!(f, "{} changes of {name} and {end:?}", changes.len())
            }
            Step::Read => write!(f, "reading"),
            Step::Buffer => write!(f, "buffering changes"),
            Step::Merge(name) => write!(f, "merging changes of {name}"),
            Step::Look => write!(f, "opening a view"),
            Step::LookAgain => write!(f, "reading by the view"),
            Step::Reopen => write!(f, "closing and opening"),
        }
    }
}

fn apply(state: &mut State, table: &str, changes: &[Change]) {
    let rows = state.get_mut(table).expect("it exists");
    for change in changes {
        match *change {
            Change::Put(id, k, len) => drop(rows.insert(id, (k, body(k, len)))),
            Change::Delete(id) => drop(rows.remove(&id)),
        }
    }
}

impl Step {
    /// What the step makes of a state.
    pub fn apply(&self, state: &mut State) {
        match self {
            Step::Create(name) => drop(state.insert(name.to_string(), BTreeMap::new())),
            Step::Drop(name) => drop(state.remove(*name)),
            Step::Rename(from, to) => {
                let rows = state.remove(*from).expect("it exists");
                state.insert(to.to_string(), rows);
            }
            Step::Truncate(name) => state.get_mut(*name).expect("it exists").clear(),
            Step::Transaction(table, changes, end) => match end {
                End::Commit | End::Prepared => apply(state, table, changes),
                End::Savepoint => apply(state, table, &changes[..changes.len() / 2]),
                End::Rollback | End::PreparedRollback => {}
            },
            Step::Rebuild(_) | Step::Buffer | Step::Merge(_) => {}
            Step::Read | Step::Look | Step::LookAgain | Step::Reopen => {}
        }
    }

    pub fn run(&self, db: &Database, before: &State) -> Result<()> {
        match self {
            Step::Create(name) => db.create_table(&definition(name)).map(drop),
            Step::Drop(name) => db.drop_table(name),
            Step::Rename(from, to) => db.rename_table(from, to),
            Step::Truncate(name) => db.truncate_table(name),
            Step::Rebuild(name) => db.rebuild_table(&definition(name)),
            Step::Transaction(name, changes, end) => transact(db, name, changes, *end),
            Step::Read => {
                before
                    .keys()
                    .try_for_each(|name| db.table(name).map(drop))?;
                assert!(state(db)? == *before, "rows differ");
                Ok(())
            }
            Step::Buffer => {
                db.buffer_all_changes(true);
                Ok(())
            }
            Step::Merge(name) => db.merge_changes(name, 2).map(drop),
            Step::Look | Step::LookAgain | Step::Reopen => {
                unreachable!("the script's driver does that")
            }
        }
    }
}

fn change(trx: &mut Transaction, table: &Table, changes: &[Change]) -> Result<()> {
    changes.iter().try_for_each(|change| match *change {
        Change::Put(id, k, len) => table.put(trx, values![id, k, Value::Bytes(body(k, len))]),
        Change::Delete(id) => table.delete(trx, values![id]).map(drop),
    })
}

fn transact(db: &Database, name: &str, changes: &[Change], end: End) -> Result<()> {
    let table = db.table(name)?;
    let mut trx = db.begin(Isolation::RepeatableRead);
    let half = changes.len() / 2;
    change(&mut trx, &table, &changes[..half])?;
    let savepoint = trx.savepoint();
    change(&mut trx, &table, &changes[half..])?;
    match end {
        End::Commit => trx.commit(),
        End::Rollback => trx.rollback(),
        End::Savepoint => {
            trx.rollback_to(savepoint)?;
            trx.commit()
        }
        End::Prepared => {
            trx.prepare(&xid())?;
            trx.commit()
        }
        End::PreparedRollback => {
            trx.prepare(&xid())?;
            drop(trx);
            db.rollback_prepared(&xid())
        }
    }
}

fn xid() -> Xid {
    Xid::new(1, b"fault", b"1").unwrap()
}

pub fn state(db: &Database) -> Result<State> {
    let mut trx = db.begin(Isolation::RepeatableRead);
    let state = state_to(db, &mut trx)?;
    trx.commit()?;
    Ok(state)
}

/// What the transaction sees.
pub fn state_to(db: &Database, trx: &mut Transaction) -> Result<State> {
    let mut state = State::new();
    for name in db.tables()? {
        let table = db.table(&name)?;
        let mut rows = BTreeMap::new();
        for row in table.rows(trx)? {
            let row = row?;
            rows.insert(row.get("id")?, (row.get("k")?, row.get("body")?));
        }
        state.insert(name, rows);
    }
    Ok(state)
}

/// Long and short rows in three tables, changed in each way there is, and tables made, renamed, emptied and
/// dropped.
pub fn script() -> Vec<Step> {
    use Change::{Delete, Put};
    let fill =
        |from: i64, n: i64, len: usize| (from..from + n).map(move |id| Put(id, id * 10, len));
    vec![
        Step::Read,
        Step::Transaction("a/t", vec![Put(1, 7, 50), Put(900, 8, 9_000)], End::Commit),
        Step::Create("b/new"),
        Step::Transaction("b/new", fill(0, 30, 700).collect(), End::Commit),
        Step::Transaction("a/t", fill(100, 40, 500).collect(), End::Rollback),
        Step::Transaction(
            "a/t",
            vec![Put(2, 3, 12_000), Delete(5), Put(3, 1003, 20), Delete(900)],
            End::Savepoint,
        ),
        Step::Rename("b/new", "c/moved"),
        Step::Transaction(
            "c/moved",
            vec![Put(3, 77, 5_000), Delete(4)],
            End::PreparedRollback,
        ),
        Step::Transaction("c/moved", vec![Put(3, 78, 100), Delete(6)], End::Prepared),
        Step::Read,
        Step::Truncate("a/u"),
        Step::Transaction("a/u", fill(0, 60, 300).collect(), End::Commit),
        Step::Rebuild("a/t"),
        Step::Reopen,
        Step::Transaction("a/t", fill(20, 60, 900).collect(), End::Commit),
        Step::Drop("c/moved"),
        Step::Transaction("a/t", (20..60).map(Delete).collect(), End::Commit),
        Step::Read,
    ]
}

/// A view that is open while what it sees is changed and deleted, twice, and long values with it: more than
/// the pool has room for.
pub fn script_of_an_old_view() -> Vec<Step> {
    use Change::{Delete, Put};
    let change = |n: i64| {
        (0..400).map(move |id| Put(id, id * 10 + n, if id % 40 == 0 { 9_000 } else { 700 }))
    };
    vec![
        Step::Look,
        Step::Transaction("a/t", change(1).collect(), End::Commit),
        Step::Transaction("a/t", change(2).collect(), End::Commit),
        Step::Transaction("a/t", (100..500).map(Delete).collect(), End::Commit),
        Step::LookAgain,
        Step::Transaction("a/t", change(3).collect(), End::Commit),
        Step::Read,
    ]
}

/// Entries wait in a change buffer, come back from there, are merged in part, and go with their table.
pub fn script_of_change_buffers() -> Vec<Step> {
    use Change::{Delete, Put};
    let anew = |from: i64, n: i64| (from..from + n).map(|id| Put(id, id * 10 + 1, 801));
    let transaction = |changes, end| Step::Transaction("a/t", changes, end);
    vec![
        Step::Buffer,
        transaction(anew(100, 150).collect(), End::Commit),
        transaction((300..360).map(Delete).collect(), End::Commit),
        transaction(anew(500, 100).collect(), End::Rollback),
        transaction(
            anew(120, 40).chain((260..280).map(Delete)).collect(),
            End::Savepoint,
        ),
        Step::Merge("a/t"),
        Step::Look,
        transaction(anew(300, 60).collect(), End::Commit),
        Step::Merge("a/t"),
        Step::LookAgain,
        Step::Reopen,
        transaction((80..130).map(Delete).collect(), End::Commit),
        Step::Buffer,
        transaction(anew(600, 60).collect(), End::Commit),
        Step::Merge("a/t"),
        Step::Read,
        Step::Truncate("a/u"),
        Step::Rebuild("a/t"),
    ]
}
