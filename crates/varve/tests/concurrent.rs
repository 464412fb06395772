//! Threads that move money between accounts, while others add and remove rows so that pages split and merge
//! under them, and others read.
//!
//! What could break here: a snapshot that sees half a transaction, through either index; a snapshot that
//! changes while it is open; two rows with one unique key; an update that is lost; a deadlock that nobody
//! notices; a page that two threads changed at once. The pool is small, so that pages are evicted and read
//! back all the time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::{
    ColumnType, Cursor, Database, Error, Isolation, KeyMatch, LockMode, Options, Result, Table,
    TableDef, Transaction, Value,
};

const ACCOUNTS: i64 = 200;
const BALANCE: i64 = 1000;
const WRITERS: u64 = 4;
const TRANSFERS: u64 = 400;

struct Bank {
    db: Database,
    accounts: Table,
    /// Rows that come and go between the accounts: (seller, code) with a unique code.
    codes: Table,
    transfers: AtomicU64,
    stop: AtomicBool,
}

/// ROWLOCK-1: who waited for a row changes it as it is now, not as it was before.
#[test]
fn money_is_neither_made_nor_lost() {
    let seed: u64 = match std::env::var("VARVE_MODEL_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => rand::random(),
    };
    println!("VARVE_MODEL_SEED={seed}");
    let dir = tempfile::tempdir().unwrap();
    let bank = Bank::open(dir.path());
    thread::scope(|threads| {
        let readers = [
            threads.spawn(|| bank.read_until_stopped(Isolation::RepeatableRead)),
            threads.spawn(|| bank.read_until_stopped(Isolation::ReadCommitted)),
            threads.spawn(|| bank.hold_one_view()),
        ];
        let writer = |n| {
            threads.spawn({
                let bank = &bank;
                move || bank.write(SmallRng::seed_from_u64(seed ^ n))
            })
        };
        let writers: Vec<_> = (0..WRITERS).map(writer).collect();
        for writer in writers {
            // The readers must end even when a writer fails.
            let ended = writer.join();
            bank.stop.store(ended.is_err(), Ordering::Relaxed);
            ended.unwrap();
        }
        bank.stop.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
    });
    assert_eq!(bank.transfers.load(Ordering::Relaxed), WRITERS * TRANSFERS);
    let Bank {
        db,
        accounts,
        codes,
        ..
    } = bank;
    let (count, sum) = totals(&mut db.begin(Isolation::RepeatableRead), &accounts, 0).unwrap();
    assert_eq!((count, sum), (ACCOUNTS, ACCOUNTS * BALANCE));
    for table in [&accounts, &codes] {
        let report = db.check_table(table).unwrap();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
    }
    drop((accounts, codes));
    db.close().unwrap();
}

impl Bank {
    fn open(dir: &std::path::Path) -> Bank {
        let options = Options {
            page_size: 4096,
            buffer_pool_bytes: 1 << 20,
            ..Options::default()
        };
        let db = Database::open(dir, options).unwrap();
        let accounts = TableDef::new("bank/accounts")
            .column("id", ColumnType::i64())
            .column("balance", ColumnType::i64())
            .column("fill", ColumnType::Bytes(200))
            .primary(&["id"])
            .index("balance", &["balance"]);
        let codes = TableDef::new("bank/codes")
            .column("id", ColumnType::u64())
            .column("code", ColumnType::u32())
            .column("fill", ColumnType::Bytes(1500))
            .primary(&["id"])
            .unique("code", &["code"]);
        db.create_table(&accounts).unwrap();
        db.create_table(&codes).unwrap();
        let bank = Bank {
            accounts: db.table("bank/accounts").unwrap(),
            codes: db.table("bank/codes").unwrap(),
            db,
            transfers: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        };
        let mut trx = bank.db.begin(Isolation::RepeatableRead);
        for id in 0..ACCOUNTS {
            insert(
                &mut trx,
                &bank.accounts,
                &[id.into(), BALANCE.into(), vec![7; 100].into()],
            )
            .unwrap();
        }
        for code in (0..2000u32).step_by(2) {
            insert(
                &mut trx,
                &bank.codes,
                &[(code as u64).into(), code.into(), vec![1; 900].into()],
            )
            .unwrap();
        }
        trx.commit().unwrap();
        bank
    }

    fn write(&self, mut rng: SmallRng) {
        for _ in 0..TRANSFERS {
            loop {
                let mut trx = self.db.begin(Isolation::RepeatableRead);
                match self.transfer(&mut trx, &mut rng) {
                    Ok(()) => {
                        trx.commit().unwrap();
                        break;
                    }
                    Err(Error::Deadlock) => trx.rollback().unwrap(),
                    Err(e) => panic!("{e}"),
                }
            }
            self.transfers.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Two updates in random order, so that deadlocks happen, and a row more or less in the other table.
    fn transfer(&self, trx: &mut Transaction, rng: &mut SmallRng) -> Result<()> {
        let amount = rng.random_range(-50..50);
        let from = rng.random_range(0..ACCOUNTS);
        let to = (from + rng.random_range(1..ACCOUNTS)) % ACCOUNTS;
        for (account, change) in [(from, -amount), (to, amount)] {
            let mut cursor = self.accounts.cursor(0)?;
            assert!(
                seek(&mut cursor, trx, &self.accounts, 0, account.into())?,
                "account {account}"
            );
            let mut row = cursor.row()?.values()?;
            row[1] = (int(&row[1]) + change).into();
            let length = rng.random_range(0..200);
            row[2] = vec![length as u8; length].into();
            trx.update(
                &self.accounts,
                &cursor,
                &self.accounts.def().row(&row)?.datums(),
            )?;
            self.trade_code(trx, rng)?;
        }
        Ok(())
    }

    fn trade_code(&self, trx: &mut Transaction, rng: &mut SmallRng) -> Result<()> {
        let code: u32 = rng.random_range(0..2000);
        let mut cursor = self.codes.cursor(1)?;
        if rng.random_bool(0.4) {
            if seek(&mut cursor, trx, &self.codes, 1, code.into())? {
                trx.delete(&self.codes, &cursor)?;
            }
            return Ok(());
        }
        let row: [Value; 3] = [
            rng.random::<u64>().into(),
            code.into(),
            vec![1; rng.random_range(0..1500)].into(),
        ];
        match insert(trx, &self.codes, &row) {
            Err(Error::DuplicateKey { index }) => {
                assert_eq!(index, "code");
                // The duplicate is locked now, so it must be there.
                assert!(
                    seek(&mut cursor, trx, &self.codes, 1, code.into())?,
                    "duplicate of nothing"
                );
                Ok(())
            }
            other => other,
        }
    }

    /// Totals through both indexes, in one snapshot.
    fn read_until_stopped(&self, isolation: Isolation) {
        while !self.stop.load(Ordering::Relaxed) {
            let mut trx = self.db.begin(isolation);
            for index in [0, 1] {
                trx.start_statement();
                let totals = totals(&mut trx, &self.accounts, index).unwrap();
                assert_eq!(
                    totals,
                    (ACCOUNTS, ACCOUNTS * BALANCE),
                    "index {index}, {isolation:?}"
                );
            }
            self.check_codes(&mut trx);
            trx.commit().unwrap();
        }
    }

    /// No code twice, and the same rows whichever index they are read by.
    fn check_codes(&self, trx: &mut Transaction) {
        trx.start_statement();
        let codes = column(trx, &self.codes, 1).unwrap();
        assert!(
            codes.is_sorted_by(|a, b| a < b),
            "codes in order, none twice: {codes:?}"
        );
        if trx.isolation() == Isolation::RepeatableRead {
            let mut by_id = column(trx, &self.codes, 0).unwrap();
            by_id.sort();
            assert_eq!(by_id, codes);
        }
    }

    /// What a view sees does not change, however long it is open.
    fn hold_one_view(&self) {
        let mut trx = self.db.begin(Isolation::RepeatableRead);
        let balances = column(&mut trx, &self.accounts, 0).unwrap();
        let codes = column(&mut trx, &self.codes, 1).unwrap();
        while !self.stop.load(Ordering::Relaxed) {
            assert_eq!(column(&mut trx, &self.accounts, 0).unwrap(), balances);
            assert_eq!(column(&mut trx, &self.codes, 1).unwrap(), codes);
        }
        trx.commit().unwrap();
    }
}

fn int(value: &Value) -> i64 {
    match value {
        Value::Int(v) => *v,
        Value::UInt(v) => *v as i64,
        other => panic!("{other:?} is no integer"),
    }
}

fn insert(trx: &mut Transaction, table: &Table, row: &[Value]) -> Result<()> {
    trx.insert(table, &table.def().row(row)?.datums())
}

fn seek(
    cursor: &mut Cursor,
    trx: &mut Transaction,
    table: &Table,
    index: usize,
    key: Value,
) -> Result<bool> {
    let key = table.def().key(index, &[key])?;
    cursor.seek(trx, &key.datums(), KeyMatch::Exact, LockMode::Exclusive)
}

/// The second column of all rows, in the order of an index.
fn column(trx: &mut Transaction, table: &Table, index: usize) -> Result<Vec<i64>> {
    let mut values = Vec::new();
    let mut cursor = table.cursor(index)?;
    let mut on_row = cursor.first(trx, LockMode::None)?;
    while on_row {
        values.push(int(&cursor.row()?.value(1)?));
        on_row = cursor.next(trx)?;
    }
    Ok(values)
}

/// How many rows there are, and the sum of their second columns.
fn totals(trx: &mut Transaction, table: &Table, index: usize) -> Result<(i64, i64)> {
    let values = column(trx, table, index)?;
    Ok((values.len() as i64, values.iter().sum()))
}
