//! Varve: an unsigned 64-bit primary key and one column of bytes.

use std::path::Path;

use anyhow::{Result, ensure};
use varve::{
    ColumnType, Cursor, Database, FlushLog, Isolation, KeyMatch, LockMode, Options, Table, TableDef,
};

use crate::engine::{CACHE_BYTES, Durability, Engine, Scan, Visit, Worker};
use crate::rows::VALUE_BYTES;

struct Varve {
    db: Database,
    table: Table,
}

pub fn open(dir: &Path) -> Result<Box<dyn Engine>> {
    let options = Options {
        buffer_pool_bytes: CACHE_BYTES,
        redo_capacity_bytes: 1 << 30,
        ..Options::default()
    };
    let db = Database::open(dir, options)?;
    let def = TableDef::new("bench/rows")
        .column("id", ColumnType::u64())
        .column("value", ColumnType::Bytes(255))
        .primary(&["id"]);
    let table = db.create_table(&def)?;
    Ok(Box::new(Varve { db, table }))
}

impl Engine for Varve {
    fn worker(&self, durability: Durability) -> Result<Box<dyn Worker + '_>> {
        self.db.set_flush_log_at_trx_commit(match durability {
            Durability::Lazy => FlushLog::Lazy,
            Durability::Synced => FlushLog::Sync,
        });
        Ok(Box::new(Thread {
            engine: self,
            cursor: self.table.cursor(0)?,
            value: Vec::new(),
        }))
    }

    fn history(&self) -> Option<u64> {
        let status = self.db.status();
        let length = status
            .iter()
            .find(|(name, _)| *name == "history_list_length");
        length.map(|(_, n)| *n)
    }
}

struct Thread<'a> {
    engine: &'a Varve,
    cursor: Cursor,
    value: Vec<u8>,
}

impl Worker for Thread<'_> {
    fn load(&mut self, keys: &[u64], values: &[u8]) -> Result<()> {
        let mut trx = self.engine.db.begin(Isolation::RepeatableRead);
        let keys: Vec<[u8; 8]> = keys.iter().map(|key| key.to_le_bytes()).collect();
        let rows = keys.iter().zip(values.chunks(VALUE_BYTES));
        let rows: Vec<_> = rows.map(|(k, v)| [Some(&k[..]), Some(v)]).collect();
        trx.insert_many(&self.engine.table, &rows)?;
        Ok(trx.commit()?)
    }

    fn get(&mut self, key: u64, visit: Visit<'_>) -> Result<()> {
        let mut trx = self.engine.db.begin(Isolation::RepeatableRead);
        let bytes = key.to_le_bytes();
        let found = self
            .cursor
            .seek(&mut trx, &[Some(&bytes)], KeyMatch::Exact, LockMode::None)?;
        if found {
            visit(key, self.cursor.row()?.get(1).unwrap_or_default());
        }
        Ok(())
    }

    fn update(&mut self, key: u64, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let mut trx = self.engine.db.begin(Isolation::RepeatableRead);
        let bytes = key.to_le_bytes();
        let (cursor, value) = (&mut self.cursor, &mut self.value);
        let found = cursor.seek(
            &mut trx,
            &[Some(&bytes)],
            KeyMatch::Exact,
            LockMode::Exclusive,
        )?;
        ensure!(found, "key {key} is missing");
        value.clear();
        value.extend_from_slice(cursor.row()?.get(1).unwrap_or_default());
        change(value);
        trx.update(&self.engine.table, cursor, &[Some(&bytes), Some(value)])?;
        Ok(trx.commit()?)
    }

    fn snapshot(&mut self, with: &mut dyn FnMut(Scan<'_>) -> Result<()>) -> Result<()> {
        let mut trx = self.engine.db.begin(Isolation::RepeatableRead);
        with(&mut |visit| {
            let mut more = self.cursor.first(&mut trx, LockMode::None)?;
            while more {
                let row = self.cursor.row()?;
                let key = row.get(0).unwrap_or_default();
                let key = u64::from_le_bytes(key.try_into().expect("an integer of eight bytes"));
                visit(key, row.get(1).unwrap_or_default());
                more = self.cursor.next(&mut trx)?;
            }
            Ok(())
        })
    }
}
