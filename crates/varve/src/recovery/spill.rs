//! The file for redo that does not fit in memory.
//!
//! It is made when it is first needed, removed when everything is applied, and at the next start if a crash comes before. Several threads write to it at
//! once, each a block of changes of its own. It is never synced: it means nothing to another process.
//!
//! - **MAP-3** What is read back from the file has the checksum with which it was written.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::base::{Error, Result};
use crate::io::{AlignedBuf, Disk, DiskFile, IoQueue, OpenMode, Read};

/// The file's name, in the data directory.
pub const SPILL_FILE: &str = "varve.recovery";

/// A block in the file.
#[derive(Clone, Copy, Debug)]
pub struct Spilled {
    at: u64,
    len: u32,
    crc: u32,
}

pub struct Spill {
    disk: Arc<dyn Disk>,
    queue: Arc<IoQueue>,
    path: PathBuf,
    /// `None` as long as nothing was written, and once it is removed.
    file: Mutex<Option<Arc<dyn DiskFile>>>,
    /// Where the next block begins. Whoever takes a part of it writes there.
    len: AtomicU64,
}

impl Spill {
    /// Removes what an earlier process left.
    pub fn new(disk: Arc<dyn Disk>, dir: &Path, queue: Arc<IoQueue>) -> Result<Spill> {
        let path = dir.join(SPILL_FILE);
        if disk.exists(&path)? {
            disk.remove(&path)?;
        }
        Ok(Spill {
            disk,
            queue,
            path,
            file: Mutex::default(),
            len: AtomicU64::new(0),
        })
    }

    /// Bytes that were written.
    pub fn len(&self) -> u64 {
        self.len.load(Relaxed)
    }

    fn file_to_write(&self) -> Result<Arc<dyn DiskFile>> {
        let mut file = self.file.lock();
        if let Some(file) = &*file {
            return Ok(file.clone());
        }
        let made = self.disk.open(&self.path, OpenMode::CreateNew)?;
        Ok(file.insert(made).clone())
    }

    /// # Errors
    ///
    /// `NoSpace`: the disk has no room for it.
    pub fn write(&self, bytes: &[u8]) -> Result<Spilled> {
        let file = self.file_to_write()?;
        let at = self.len.fetch_add(bytes.len() as u64, Relaxed);
        file.write_at(bytes, at)?;
        Ok(Spilled {
            at,
            len: u32::try_from(bytes.len()).expect("a block is shorter than 4 GiB"),
            crc: crc32c::crc32c(bytes),
        })
    }

    /// Reads these, all at the same time where the disk can do that.
    pub fn read(&self, blocks: &[Spilled]) -> Result<Vec<AlignedBuf>> {
        if blocks.is_empty() {
            return Ok(Vec::new());
        }
        // It stays until everything is applied, unless the tablespace went meanwhile.
        let gone = || Error::not_found("recovery's file");
        let file = self.file.lock().clone().ok_or_else(gone)?;
        let read = |block: &Spilled| Read {
            file: file.clone(),
            offset: block.at,
            into: AlignedBuf::new(block.len as usize),
            range: 0..block.len as usize,
        };
        let readings = self.queue.read_all(blocks.iter().map(read).collect());
        let all = readings.into_iter().zip(blocks);
        all.map(|(reading, block)| self.check(reading.wait()?, block))
            .collect()
    }

    /// MAP-3.
    fn check(&self, bytes: AlignedBuf, block: &Spilled) -> Result<AlignedBuf> {
        let computed = crc32c::crc32c(&bytes);
        match computed == block.crc {
            true => Ok(bytes),
            false => Err(self.damaged(
                &format!("{:08x} as the checksum at {}", block.crc, block.at),
                &format!("{computed:08x}"),
            )),
        }
    }

    /// What the file holds is not what was written to it.
    pub fn damaged(&self, expected: &str, found: &str) -> Error {
        Error::CorruptFile {
            path: self.path.clone(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// Removes the file, if there is one.
    pub fn remove(&self) -> Result<()> {
        match self.file.lock().take() {
            Some(_) => self.disk.remove(&self.path),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::RealDisk;

    #[test]
    fn what_is_read_back_is_what_was_written_or_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(SPILL_FILE);
        std::fs::write(&path, "of an earlier process").unwrap();
        let queue = Arc::new(IoQueue::start(false).unwrap());
        let spill = Spill::new(Arc::new(RealDisk), dir.path(), queue).unwrap();
        assert!(!path.exists());
        let block = |n: usize| vec![n as u8; 100 * n + 1];
        let mut blocks: Vec<Spilled> = std::thread::scope(|scope| {
            let write = |from| {
                let spill = &spill;
                let each = move |n: usize| spill.write(&block(2 * n + from)).unwrap();
                move || (0..10).map(each).collect::<Vec<_>>()
            };
            let threads = [0, 1].map(|from| scope.spawn(write(from)));
            let all = threads.into_iter().map(|thread| thread.join().unwrap());
            all.flatten().collect()
        });
        blocks.sort_by_key(|block| block.len);
        let len: usize = (0..20).map(|n| block(n).len()).sum();
        assert_eq!(spill.len(), len as u64);
        let read = spill.read(&blocks).unwrap();
        let is_right = |(n, bytes): (usize, &AlignedBuf)| bytes[..] == block(n);
        assert!(read.iter().enumerate().all(is_right));

        // MAP-3.
        let at = blocks[7].at + 5;
        let file = RealDisk.open(&path, OpenMode::Existing).unwrap();
        file.write_at(&[8], at).unwrap();
        let refused = spill.read(&blocks).map(drop).unwrap_err().to_string();
        assert!(refused.contains(SPILL_FILE), "{refused}");
        assert!(spill.read(&blocks[..7]).is_ok());
        spill.remove().unwrap();
        assert!(!path.exists());
        assert!(spill.read(&blocks[..1]).is_err(), "it is gone");
    }
}
