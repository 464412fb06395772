//! redb. Without sync at commit: `Durability::None`, with a durable commit now and then, which it needs to
//! give pages back.

use std::path::Path;

use anyhow::{Context, Result};
use redb::{
    Database, Durability as Durable, ReadableDatabase, ReadableTable, TableDefinition,
    WriteTransaction,
};

use crate::engine::{CACHE_BYTES, Durability, Engine, Scan, Visit, Worker};
use crate::rows::VALUE_BYTES;

const ROWS: TableDefinition<u64, &[u8]> = TableDefinition::new("rows");
/// So many commits without durability are followed by one with.
const LAZY_COMMITS: u64 = 1000;

struct Redb {
    db: Database,
}

pub fn open(dir: &Path) -> Result<Box<dyn Engine>> {
    let mut builder = Database::builder();
    let db = builder
        .set_cache_size(CACHE_BYTES as usize)
        .create(dir.join("rows.redb"))?;
    let trx = db.begin_write()?;
    trx.open_table(ROWS)?;
    trx.commit()?;
    Ok(Box::new(Redb { db }))
}

impl Engine for Redb {
    fn worker(&self, durability: Durability) -> Result<Box<dyn Worker + '_>> {
        Ok(Box::new(Thread {
            db: &self.db,
            durability,
            commits: 0,
            value: Vec::new(),
        }))
    }
}

struct Thread<'a> {
    db: &'a Database,
    durability: Durability,
    commits: u64,
    value: Vec<u8>,
}

impl Thread<'_> {
    fn begin(&mut self) -> Result<WriteTransaction> {
        let mut trx = self.db.begin_write()?;
        self.commits += 1;
        if self.durability == Durability::Lazy && !self.commits.is_multiple_of(LAZY_COMMITS) {
            trx.set_durability(Durable::None)?;
        }
        Ok(trx)
    }
}

impl Worker for Thread<'_> {
    fn load(&mut self, keys: &[u64], values: &[u8]) -> Result<()> {
        let trx = self.begin()?;
        let mut rows = trx.open_table(ROWS)?;
        for (key, value) in keys.iter().zip(values.chunks(VALUE_BYTES)) {
            rows.insert(key, value)?;
        }
        drop(rows);
        Ok(trx.commit()?)
    }

    fn get(&mut self, key: u64, visit: Visit<'_>) -> Result<()> {
        let trx = self.db.begin_read()?;
        if let Some(value) = trx.open_table(ROWS)?.get(key)? {
            visit(key, value.value());
        }
        Ok(())
    }

    fn update(&mut self, key: u64, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let trx = self.begin()?;
        let mut rows = trx.open_table(ROWS)?;
        self.value.clear();
        let old = rows.get(key)?.context("a missing key")?;
        self.value.extend_from_slice(old.value());
        drop(old);
        change(&mut self.value);
        rows.insert(key, &self.value[..])?;
        drop(rows);
        Ok(trx.commit()?)
    }

    fn snapshot(&mut self, with: &mut dyn FnMut(Scan<'_>) -> Result<()>) -> Result<()> {
        let trx = self.db.begin_read()?;
        with(&mut |visit| {
            for row in trx.open_table(ROWS)?.iter()? {
                let (key, value) = row?;
                visit(key.value(), value.value());
            }
            Ok(())
        })
    }
}
