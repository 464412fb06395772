//! SQLite: WAL, a connection per thread, rows in a table with an integer primary key.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use rusqlite::{Connection, TransactionBehavior, params};

use crate::engine::{CACHE_BYTES, Durability, Engine, Scan, Visit, Worker};
use crate::rows::VALUE_BYTES;

struct Sqlite {
    file: PathBuf,
}

pub fn open(dir: &Path) -> Result<Box<dyn Engine>> {
    let engine = Sqlite {
        file: dir.join("rows.sqlite"),
    };
    let connection = engine.connect(Durability::Lazy)?;
    connection.execute_batch("CREATE TABLE rows (id INTEGER PRIMARY KEY, value BLOB NOT NULL)")?;
    Ok(Box::new(engine))
}

impl Sqlite {
    fn connect(&self, durability: Durability) -> Result<Connection> {
        let connection = Connection::open(&self.file)?;
        connection.busy_timeout(Duration::from_secs(60))?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // NORMAL syncs at checkpoints of the WAL only, FULL at each commit.
        let synchronous = match durability {
            Durability::Lazy => "normal",
            Durability::Synced => "full",
        };
        connection.pragma_update(None, "synchronous", synchronous)?;
        connection.pragma_update(None, "cache_size", -(CACHE_BYTES as i64 >> 10))?;
        // Connections share what the operating system holds, so that a new one does not begin cold.
        connection.pragma_update(None, "mmap_size", CACHE_BYTES as i64)?;
        Ok(connection)
    }
}

impl Engine for Sqlite {
    fn worker(&self, durability: Durability) -> Result<Box<dyn Worker + '_>> {
        let connection = self.connect(durability)?;
        Ok(Box::new(Thread {
            connection,
            value: Vec::new(),
        }))
    }
}

struct Thread {
    connection: Connection,
    value: Vec<u8>,
}

const GET: &str = "SELECT value FROM rows WHERE id = ?1";

impl Worker for Thread {
    fn load(&mut self, keys: &[u64], values: &[u8]) -> Result<()> {
        let trx = self.connection.transaction()?;
        let mut insert = trx.prepare_cached("INSERT INTO rows VALUES (?1, ?2)")?;
        for (key, value) in keys.iter().zip(values.chunks(VALUE_BYTES)) {
            insert.execute(params![*key as i64, value])?;
        }
        drop(insert);
        Ok(trx.commit()?)
    }

    fn get(&mut self, key: u64, visit: Visit<'_>) -> Result<()> {
        let mut select = self.connection.prepare_cached(GET)?;
        let mut rows = select.query([key as i64])?;
        if let Some(row) = rows.next()? {
            visit(key, row.get_ref(0)?.as_blob()?);
        }
        Ok(())
    }

    fn update(&mut self, key: u64, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let behaviour = TransactionBehavior::Immediate;
        let trx = self.connection.transaction_with_behavior(behaviour)?;
        self.value.clear();
        let mut select = trx.prepare_cached(GET)?;
        let mut rows = select.query([key as i64])?;
        let row = rows.next()?;
        ensure!(row.is_some(), "key {key} is missing");
        if let Some(row) = row {
            self.value.extend_from_slice(row.get_ref(0)?.as_blob()?);
        }
        drop(rows);
        drop(select);
        change(&mut self.value);
        let mut update = trx.prepare_cached("UPDATE rows SET value = ?2 WHERE id = ?1")?;
        update.execute(params![key as i64, &self.value])?;
        drop(update);
        Ok(trx.commit()?)
    }

    fn snapshot(&mut self, with: &mut dyn FnMut(Scan<'_>) -> Result<()>) -> Result<()> {
        // Its snapshot is that of the first read.
        let trx = self.connection.transaction()?;
        with(&mut |visit| {
            let mut select = trx.prepare_cached("SELECT id, value FROM rows ORDER BY id")?;
            let mut rows = select.query([])?;
            while let Some(row) = rows.next()? {
                let key: i64 = row.get(0)?;
                visit(key as u64, row.get_ref(1)?.as_blob()?);
            }
            Ok(())
        })
    }
}
