//! The file for redo that does not fit in memory.
//!
//! It is made when it is first needed, removed when everything is applied, and at the next start if a crash
//! comes before. It is never synced: it means nothing to another process.
//!
//! Several threads write to it at once, each through a [`SpillWriter`] of its own, which gathers blocks of
//! changes in large buffers and has several of them written at the same time. Nobody waits for that unless
//! all are under way. The file's blocks begin at multiples of [`DIRECT_BLOCK`], so that they can go past the
//! system's cache, which otherwise makes a second copy of everything, of memory that has to be cleared first.
//!
//! - **MAP-3** What is read back from the file has the checksum with which it was written.
//! - **MAP-5** A writer has [`WRITER_BUFFERS`] buffers at most, whether they are being filled or written; and
//!   for a moment one more if a block is longer than a buffer. It is gone when all that it has begun to write
//!   is over, however that ends; and as long as there is one, nobody reads. So what is read was written, if
//!   `finish` says so.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::base::{Error, Result};
use crate::encryption::Scratch;
use crate::io::{
    AlignedBuf, DIRECT_BLOCK, Disk, DiskFile, FlushMethod, IoQueue, OpenMode, Read, Writing,
};

/// The file's name, in the data directory.
pub const SPILL_FILE: &str = "varve.recovery";

/// Buffers of a writer: one is filled while the others are written.
pub const WRITER_BUFFERS: usize = 4;

/// A block in the file.
#[derive(Clone, Copy, Debug)]
pub struct Spilled {
    at: u64,
    len: u32,
    crc: u32,
    /// If it is encrypted.
    seal: Option<[u8; Scratch::SEAL_BYTES]>,
}

pub struct Spill {
    disk: Arc<dyn Disk>,
    queue: Arc<IoQueue>,
    path: PathBuf,
    method: FlushMethod,
    /// What encrypts the blocks.
    scratch: Option<Arc<Scratch>>,
    /// `None` as long as nothing was written, and once it is removed.
    file: Mutex<Option<Arc<dyn DiskFile>>>,
    /// Where the next buffer is to be written. The thread that takes a part of the file writes there; nobody
    /// goes by the number otherwise.
    next: AtomicU64,
    /// Bytes of blocks. For people.
    bytes: AtomicU64,
    /// How many there are (MAP-5). Who reads has waited for the threads that had them, so it sees that they
    /// are gone.
    writers: AtomicUsize,
}

impl Spill {
    /// Removes what an earlier process left.
    pub fn new(
        disk: Arc<dyn Disk>,
        dir: &Path,
        queue: Arc<IoQueue>,
        method: FlushMethod,
        scratch: Option<Arc<Scratch>>,
    ) -> Result<Spill> {
        let path = dir.join(SPILL_FILE);
        if disk.exists(&path)? {
            disk.remove(&path)?;
        }
        Ok(Spill {
            disk,
            queue,
            path,
            method,
            scratch,
            file: Mutex::default(),
            next: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            writers: AtomicUsize::new(0),
        })
    }

    /// Bytes of the blocks that were put in it.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    fn file_to_write(&self) -> Result<Arc<dyn DiskFile>> {
        let mut file = self.file.lock();
        if let Some(file) = &*file {
            return Ok(file.clone());
        }
        let made = file.insert(self.disk.open(&self.path, OpenMode::CreateNew)?);
        if self.method == FlushMethod::Direct {
            *made = self.disk.open_direct(&self.path)?;
        }
        Ok(made.clone())
    }

    /// Reads these, all at the same time where the disk can do that.
    pub fn read(&self, blocks: &[Spilled]) -> Result<Vec<AlignedBuf>> {
        assert_eq!(self.writers.load(Relaxed), 0, "MAP-5: all is written");
        if blocks.is_empty() {
            return Ok(Vec::new());
        }
        // It stays until everything is applied, unless the tablespace went meanwhile.
        let gone = || Error::not_found("recovery's file");
        let file = self.file.lock().clone().ok_or_else(gone)?;
        let read = |block: &Spilled| {
            let len = (block.len as usize).next_multiple_of(DIRECT_BLOCK);
            Read {
                file: file.clone(),
                offset: block.at,
                into: AlignedBuf::new(len),
                range: 0..len,
            }
        };
        let readings = self.queue.read_all(blocks.iter().map(read).collect());
        let all = readings.into_iter().zip(blocks);
        all.map(|(reading, block)| self.check(reading.wait()?, block))
            .collect()
    }

    /// MAP-3.
    fn check(&self, mut bytes: AlignedBuf, block: &Spilled) -> Result<AlignedBuf> {
        bytes.truncate(block.len as usize);
        let computed = crc32c::crc32c(&bytes);
        let is_right = computed == block.crc
            && match (block.seal, &self.scratch) {
                (Some(seal), Some(scratch)) => scratch.decrypt(block.at, seal, &mut bytes),
                _ => true,
            };
        match is_right {
            true => Ok(bytes),
            false => Err(self.damaged(
                &format!("{:08x} as the checksum at {}", block.crc, block.at),
                &format!("{computed:08x}"),
            )),
        }
    }

    /// What there is to know of this block, which is going to stand there. Encrypts it.
    fn seal(&self, block: &mut [u8], at: u64) -> Spilled {
        let seal = self.scratch.as_ref().map(|s| s.encrypt(at, block));
        Spilled {
            at,
            len: u32::try_from(block.len()).expect("a block is shorter than 4 GiB"),
            crc: crc32c::crc32c(block),
            seal,
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
        let is_there = self.file.lock().take().is_some();
        match is_there {
            true => self.disk.remove(&self.path),
            false => Ok(()),
        }
    }
}

/// A buffer that is being filled.
struct Filling {
    bytes: AlignedBuf,
    used: usize,
    /// Where it will be written.
    at: u64,
}

/// One thread's way to the file. An error that a write comes to is told by a later call, `finish` at the
/// latest.
pub struct SpillWriter<'a> {
    spill: &'a Spill,
    buffer_bytes: usize,
    filling: Option<Filling>,
    /// The oldest comes first.
    under_way: VecDeque<Writing>,
}

impl<'a> SpillWriter<'a> {
    /// With buffers of so many bytes, a multiple of [`DIRECT_BLOCK`].
    pub fn new(spill: &'a Spill, buffer_bytes: usize) -> SpillWriter<'a> {
        assert!(buffer_bytes > 0 && buffer_bytes.is_multiple_of(DIRECT_BLOCK));
        spill.writers.fetch_add(1, Relaxed);
        SpillWriter {
            spill,
            buffer_bytes,
            filling: None,
            under_way: VecDeque::new(),
        }
    }

    /// Copies a block, to be written with others.
    ///
    /// # Errors
    ///
    /// Those of earlier blocks, too. `NoSpace`: the disk has no room.
    pub fn put(&mut self, block: &[u8]) -> Result<Spilled> {
        let len = block.len().next_multiple_of(DIRECT_BLOCK);
        if len > self.buffer_bytes {
            return self.put_alone(block, len);
        }
        if (self.filling.as_ref()).is_some_and(|f| f.used + len > self.buffer_bytes) {
            self.send()?;
        }
        let filling = match self.filling.take() {
            Some(filling) => filling,
            None => self.begin()?,
        };
        let Filling { bytes, used, at } = self.filling.insert(filling);
        let copy = &mut bytes[*used..*used + block.len()];
        copy.copy_from_slice(block);
        let spilled = self.spill.seal(copy, *at + *used as u64);
        *used += len;
        self.count(block);
        Ok(spilled)
    }

    /// A block that is longer than a buffer.
    fn put_alone(&self, block: &[u8], len: usize) -> Result<Spilled> {
        let mut bytes = AlignedBuf::new(len);
        bytes[..block.len()].copy_from_slice(block);
        let at = self.spill.next.fetch_add(len as u64, Relaxed);
        let spilled = self.spill.seal(&mut bytes[..block.len()], at);
        self.spill.file_to_write()?.write_at(&bytes, at)?;
        self.count(block);
        Ok(spilled)
    }

    fn count(&self, block: &[u8]) {
        self.spill.bytes.fetch_add(block.len() as u64, Relaxed);
    }

    /// An empty buffer.
    fn begin(&mut self) -> Result<Filling> {
        let bytes = match self.under_way.len() < WRITER_BUFFERS {
            true => AlignedBuf::new(self.buffer_bytes),
            false => {
                let oldest = self.under_way.pop_front();
                oldest.expect("there are some").wait()?
            }
        };
        assert!(self.under_way.len() < WRITER_BUFFERS, "MAP-5");
        Ok(Filling {
            bytes,
            used: 0,
            at: (self.spill.next).fetch_add(self.buffer_bytes as u64, Relaxed),
        })
    }

    /// Has the buffer written.
    fn send(&mut self) -> Result<()> {
        let Some(Filling { bytes, used, at }) = self.filling.take() else {
            return Ok(());
        };
        let file = self.spill.file_to_write()?;
        let writing = self.spill.queue.write_own(file, at, bytes, used);
        self.under_way.push_back(writing);
        Ok(())
    }

    /// Has everything written, and waits for that.
    pub fn finish(mut self) -> Result<()> {
        let mut done = self.send();
        for writing in self.under_way.drain(..) {
            done = done.and(writing.wait().map(drop));
        }
        done
    }
}

impl Drop for SpillWriter<'_> {
    fn drop(&mut self) {
        // MAP-5. A caller that wants to know what came of it calls `finish`.
        self.under_way.drain(..).for_each(|w| drop(w.wait()));
        self.spill.writers.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::io::RealDisk;
    use crate::io::meddled::{MeddledDisk, Meddler};

    const BUFFER: usize = 3 * DIRECT_BLOCK;

    fn queues() -> [Arc<IoQueue>; 3] {
        [
            IoQueue::one_by_one(),
            IoQueue::start(false).unwrap(),
            IoQueue::start(true).unwrap(),
        ]
        .map(Arc::new)
    }

    /// Of all lengths, up to more than a buffer's.
    fn block(n: usize) -> Vec<u8> {
        vec![n as u8; 700 * n + 1]
    }

    #[test]
    fn what_is_read_back_is_what_was_written_or_an_error() {
        let methods = [FlushMethod::Direct, FlushMethod::Fsync, FlushMethod::Direct];
        let scratches = [None, Some(Arc::new(Scratch::drawn()))];
        let each = scratches.iter().flat_map(|scratch| {
            queues()
                .into_iter()
                .zip(methods)
                .map(move |how| (how, scratch))
        });
        for ((queue, method), scratch) in each {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(SPILL_FILE);
            std::fs::write(&path, "of an earlier process").unwrap();
            let spill = Spill::new(
                Arc::new(RealDisk),
                dir.path(),
                queue,
                method,
                scratch.clone(),
            )
            .unwrap();
            assert!(!path.exists());
            let mut blocks: Vec<Spilled> = thread::scope(|scope| {
                let write = |from| {
                    let mut writer = SpillWriter::new(&spill, BUFFER);
                    move || {
                        let each = |n: usize| writer.put(&block(2 * n + from)).unwrap();
                        let written: Vec<_> = (0..10).map(each).collect();
                        writer.finish().unwrap();
                        written
                    }
                };
                let threads = [0, 1].map(|from| scope.spawn(write(from)));
                let all = threads.into_iter().map(|thread| thread.join().unwrap());
                all.flatten().collect()
            });
            blocks.sort_by_key(|block| block.len);
            assert!(block(19).len() > BUFFER && block(17).len() < BUFFER);
            let len: usize = (0..20).map(|n| block(n).len()).sum();
            assert_eq!(spill.bytes(), len as u64);
            let read = spill.read(&blocks).unwrap();
            let is_right = |(n, bytes): (usize, &AlignedBuf)| bytes[..] == block(n);
            assert!(read.iter().enumerate().all(is_right));
            let stored = std::fs::read(&path).unwrap();
            let shows = stored.windows(100).any(|w| w == [19; 100]);
            assert_eq!(shows, scratch.is_none());

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

    /// Writes wait for the gate, and fail from the first one on that goes beyond so many bytes.
    struct Gate {
        is_open: AtomicBool,
        begun: AtomicUsize,
        room: u64,
    }

    impl Meddler for Gate {
        fn before_write(&self, path: &Path, offset: u64, len: usize) -> Result<()> {
            self.begun.fetch_add(1, Relaxed);
            while !self.is_open.load(Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            match offset + len as u64 > self.room {
                true => Err(Error::io("write", path, rustix::io::Errno::NOSPC.into())),
                false => Ok(()),
            }
        }
    }

    fn gated(dir: &Path, room: u64) -> (Arc<Gate>, Spill) {
        let gate = Arc::new(Gate {
            is_open: AtomicBool::new(false),
            begun: AtomicUsize::new(0),
            room,
        });
        let queue = Arc::new(IoQueue::start(false).unwrap());
        let disk = MeddledDisk::new(gate.clone());
        let spill = Spill::new(disk, dir, queue, FlushMethod::Direct, None).unwrap();
        (gate, spill)
    }

    /// MAP-5: who writes goes on as long as there is a buffer, and then waits; and what was put is there in
    /// the end.
    #[test]
    fn buffers_are_bounded_and_all_is_written_in_the_end() {
        const BLOCKS: usize = 30;
        let dir = tempfile::tempdir().unwrap();
        let (gate, spill) = gated(dir.path(), u64::MAX);
        let put = AtomicUsize::new(0);
        // Three fill a buffer.
        let block = |n: usize| vec![n as u8; DIRECT_BLOCK - n];
        let blocks = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut writer = SpillWriter::new(&spill, BUFFER);
                let each = |n: usize| {
                    let spilled = writer.put(&block(n)).unwrap();
                    put.fetch_add(1, Relaxed);
                    spilled
                };
                let blocks: Vec<_> = (0..BLOCKS).map(each).collect();
                writer.finish().unwrap();
                blocks
            });
            let is_full = || {
                gate.begun.load(Relaxed) >= WRITER_BUFFERS
                    && put.load(Relaxed) >= 3 * WRITER_BUFFERS
            };
            while !is_full() {
                thread::sleep(Duration::from_millis(1));
            }
            // It can't go on, however long it has.
            thread::sleep(Duration::from_millis(20));
            assert_eq!(put.load(Relaxed), 3 * WRITER_BUFFERS);
            gate.is_open.store(true, Relaxed);
            writer.join().unwrap()
        });
        let read = spill.read(&blocks).unwrap();
        let is_right = |(n, bytes): (usize, &AlignedBuf)| bytes[..] == block(n);
        assert!(read.iter().enumerate().all(is_right));
    }

    /// The error of a write that nobody waited for is told by `put` or `finish`, and everything is over when
    /// the writer is gone.
    #[test]
    fn errors_are_told_later_and_nothing_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        for (blocks, room) in [(1, 0), (7, 2), (60, 4)] {
            let (gate, spill) = gated(dir.path(), room * BUFFER as u64);
            gate.is_open.store(true, Relaxed);
            let mut writer = SpillWriter::new(&spill, BUFFER);
            let block = vec![1; DIRECT_BLOCK];
            let put = (0..blocks).try_for_each(|_| writer.put(&block).map(drop));
            let done = put.and_then(|()| writer.finish());
            assert!(matches!(done, Err(Error::NoSpace { .. })), "{done:?}");
            assert_eq!(spill.writers.load(Relaxed), 0);
            let begun = gate.begun.load(Relaxed);
            thread::sleep(Duration::from_millis(5));
            assert_eq!(gate.begun.load(Relaxed), begun, "MAP-5");
            spill.remove().unwrap();
        }
    }
}
