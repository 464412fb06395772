//! fjall: optimistic transactions, each tried again until it does not conflict.

use std::path::Path;

use anyhow::{Context, Result};
use fjall::{
    KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, PersistMode, Readable,
};

use crate::engine::{CACHE_BYTES, Durability, Engine, Scan, Visit, Worker};
use crate::rows::VALUE_BYTES;

struct Fjall {
    db: OptimisticTxDatabase,
    rows: OptimisticTxKeyspace,
}

pub fn open(dir: &Path) -> Result<Box<dyn Engine>> {
    let db = OptimisticTxDatabase::builder(dir)
        .cache_size(CACHE_BYTES)
        .open()?;
    let rows = db.keyspace("rows", KeyspaceCreateOptions::default)?;
    Ok(Box::new(Fjall { db, rows }))
}

impl Engine for Fjall {
    fn worker(&self, durability: Durability) -> Result<Box<dyn Worker + '_>> {
        let mode = match durability {
            Durability::Lazy => None,
            Durability::Synced => Some(PersistMode::SyncData),
        };
        Ok(Box::new(Thread { engine: self, mode }))
    }
}

struct Thread<'a> {
    engine: &'a Fjall,
    mode: Option<PersistMode>,
}

impl Worker for Thread<'_> {
    fn load(&mut self, keys: &[u64], values: &[u8]) -> Result<()> {
        let mut trx = self.engine.db.write_tx()?.durability(self.mode);
        for (key, value) in keys.iter().zip(values.chunks(VALUE_BYTES)) {
            trx.insert(&self.engine.rows, key.to_be_bytes(), value);
        }
        trx.commit()?.ok().context("a load conflicts with nothing")
    }

    fn get(&mut self, key: u64, visit: Visit<'_>) -> Result<()> {
        let view = self.engine.db.read_tx();
        if let Some(value) = view.get(&self.engine.rows, key.to_be_bytes())? {
            visit(key, &value);
        }
        Ok(())
    }

    fn update(&mut self, key: u64, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let bytes = key.to_be_bytes();
        loop {
            let mut trx = self.engine.db.write_tx()?.durability(self.mode);
            let old = trx
                .get(&self.engine.rows, bytes)?
                .context("a missing key")?;
            let mut value = old.to_vec();
            change(&mut value);
            trx.insert(&self.engine.rows, bytes, value);
            if trx.commit()?.is_ok() {
                return Ok(());
            }
        }
    }

    fn snapshot(&mut self, with: &mut dyn FnMut(Scan<'_>) -> Result<()>) -> Result<()> {
        let view = self.engine.db.read_tx();
        with(&mut |visit| {
            for row in view.iter(&self.engine.rows) {
                let (key, value) = row.into_inner()?;
                let key = u64::from_be_bytes(key[..].try_into().context("a key of eight bytes")?);
                visit(key, &value);
            }
            Ok(())
        })
    }
}
