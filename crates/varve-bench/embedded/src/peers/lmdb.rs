//! LMDB through `heed`. Without sync at commit: `MDB_NOSYNC`.

use std::path::Path;

use anyhow::{Context, Error, Result};
use heed::byteorder::BigEndian;
use heed::types::{Bytes, U64};
use heed::{Database, Env, EnvFlags, EnvOpenOptions, FlagSetMode, MdbError};

use crate::engine::{Durability, Engine, Scan, Visit, Worker};
use crate::rows::VALUE_BYTES;

/// The file's largest size, which is address space only. Under an open snapshot no page is used again.
const MAP_BYTES: usize = 32 << 30;

type Rows = Database<U64<BigEndian>, Bytes>;

struct Lmdb {
    env: Env,
    rows: Rows,
}

pub fn open(dir: &Path) -> Result<Box<dyn Engine>> {
    // SAFETY: nobody else touches the directory.
    let env = unsafe { EnvOpenOptions::new().map_size(MAP_BYTES).open(dir)? };
    let mut trx = env.write_txn()?;
    let rows = env.create_database(&mut trx, None)?;
    trx.commit()?;
    Ok(Box::new(Lmdb { env, rows }))
}

/// The map has no page left.
pub fn is_full(error: &Error) -> bool {
    let error = error.downcast_ref::<heed::Error>();
    matches!(error, Some(heed::Error::Mdb(MdbError::MapFull)))
}

impl Engine for Lmdb {
    fn worker(&self, durability: Durability) -> Result<Box<dyn Worker + '_>> {
        let mode = match durability {
            Durability::Lazy => FlagSetMode::Enable,
            Durability::Synced => FlagSetMode::Disable,
        };
        // SAFETY: without sync a crash of the machine may damage the file, which nobody will read.
        unsafe { self.env.set_flags(EnvFlags::NO_SYNC, mode)? };
        Ok(Box::new(Thread {
            engine: self,
            value: Vec::new(),
        }))
    }
}

struct Thread<'a> {
    engine: &'a Lmdb,
    value: Vec<u8>,
}

impl Worker for Thread<'_> {
    fn load(&mut self, keys: &[u64], values: &[u8]) -> Result<()> {
        let mut trx = self.engine.env.write_txn()?;
        for (key, value) in keys.iter().zip(values.chunks(VALUE_BYTES)) {
            self.engine.rows.put(&mut trx, key, value)?;
        }
        Ok(trx.commit()?)
    }

    fn get(&mut self, key: u64, visit: Visit<'_>) -> Result<()> {
        let trx = self.engine.env.read_txn()?;
        if let Some(value) = self.engine.rows.get(&trx, &key)? {
            visit(key, value);
        }
        Ok(())
    }

    fn update(&mut self, key: u64, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let mut trx = self.engine.env.write_txn()?;
        let value = self.engine.rows.get(&trx, &key)?.context("a missing key")?;
        self.value.clear();
        self.value.extend_from_slice(value);
        change(&mut self.value);
        self.engine.rows.put(&mut trx, &key, &self.value)?;
        Ok(trx.commit()?)
    }

    fn snapshot(&mut self, with: &mut dyn FnMut(Scan<'_>) -> Result<()>) -> Result<()> {
        let trx = self.engine.env.read_txn()?;
        with(&mut |visit| {
            for row in self.engine.rows.iter(&trx)? {
                let (key, value) = row?;
                visit(key, value);
            }
            Ok(())
        })
    }
}
