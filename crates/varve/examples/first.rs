//! A first program: open a database, create a table, write in a transaction, read it back.
//!
//! `cargo run --example first [DIRECTORY]`; the data stay in the directory, `target/first` by default.

use varve::{
    ColumnType, Database, Isolation, KeyMatch, LockMode, Options, Result, Table, TableDef,
};

fn main() -> Result<()> {
    let dir = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "target/first".into());
    let db = Database::open(&dir, Options::default())?;
    let accounts = accounts(&db)?;

    transfer(&db, &accounts, "alice", "bob", 30)?;
    match transfer(&db, &accounts, "bob", "alice", 1_000_000) {
        Err(e) => println!("refused: {e}"),
        Ok(()) => unreachable!("bob is not that rich"),
    }

    // A consistent read: what was committed when it began, whatever others do meanwhile.
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut rows = accounts.cursor(1)?;
    let mut on_row = rows.last(&mut trx, LockMode::None)?;
    while on_row {
        let row = rows.row()?;
        println!("{:?} has {:?}", row.value(0)?, row.value(1)?);
        on_row = rows.prev(&mut trx)?;
    }
    trx.commit()?;
    db.close()
}

/// The table, created and filled in the first run.
fn accounts(db: &Database) -> Result<Table> {
    if let Ok(table) = db.table("bank/accounts") {
        return Ok(table);
    }
    let table = db.create_table(
        &TableDef::new("bank/accounts")
            .column("owner", ColumnType::text(40))
            .column("balance", ColumnType::i64())
            .primary(&["owner"])
            .index("by_balance", &["balance"]),
    )?;
    let mut trx = db.begin(Isolation::RepeatableRead);
    for (owner, balance) in [("alice", 100), ("bob", 50), ("carol", 0)] {
        let row = table.def().row(&[owner.into(), balance.into()])?;
        trx.insert(&table, &row.datums())?;
    }
    trx.commit()?;
    Ok(table)
}

/// Moves money, or changes nothing.
fn transfer(db: &Database, accounts: &Table, from: &str, to: &str, amount: i64) -> Result<()> {
    // Dropped without a commit, the transaction rolls back.
    let mut trx = db.begin(Isolation::RepeatableRead);
    for (owner, change) in [(from, -amount), (to, amount)] {
        let key = accounts.def().key(0, &[owner.into()])?;
        let mut cursor = accounts.cursor(0)?;
        if !cursor.seek(
            &mut trx,
            &key.datums(),
            KeyMatch::Exact,
            LockMode::Exclusive,
        )? {
            return Err(varve::Error::not_found(format!("account {owner}")));
        }
        let varve::Value::Int(balance) = cursor.row()?.value(1)? else {
            unreachable!("the column is an i64");
        };
        if balance + change < 0 {
            return Err(varve::Error::invalid(format!("{owner} has only {balance}")));
        }
        let row = accounts
            .def()
            .row(&[owner.into(), (balance + change).into()])?;
        trx.update(accounts, &cursor, &row.datums())?;
    }
    trx.commit()
}
