//! Sorts records by their keys, more of them than fit in memory: an external merge sort.
//!
//! Records gather in memory. When it is full they are sorted and written to a file, as a *run*; in the end
//! all runs are merged, and those records that are still in memory with them. If they never were too many
//! there is no file.
//!
//! In memory a record is its key and payload in one large array, and a [`Place`], which says where, and has
//! the first bytes of the key as a number: most comparisons need nothing else.
//!
//! A run is blocks one after the other, each a u32 with the length of its data, a u32 with the crc32c of the
//! rest, 24 bytes for who decrypts the data, and the data, encrypted if the table is: whole records, each a
//! u16 with the key's length, one with the payload's, the key and the payload. Numbers are little-endian.
//!
//! - **SORT-1** Keys come in the order of their bytes; a key that another one begins with comes before it.
//! - **SORT-2** What is read back from the file has the checksum with which it was written.
//! - **SORT-3** The file has no name, and is gone when the sorter, or what it became, is dropped, or the
//!   process dies. It is never synced: it means nothing to another process.
//! - **SORT-4** A run counts when it is written whole. A failure leaves the records in memory, and whatever
//!   failed may be tried again. A helper's failure is heard of with the next run, or at the end.
//!
//! A sorter that has helpers (`spill.rs`) gathers records in one half of its memory while a helper sorts what
//! is in the other half and writes that run. It does so itself if all helpers are busy, or others need the
//! processors (`base/crowd.rs`).
//!
//! Merging takes a block of memory for each run. If memory has no room for those of all runs, as many as it
//! has room for become one, until it has: that takes one pass more over the data if they are more than M × M
//! / block, with M bytes of memory: 4 GiB with 16 MiB of memory, 64 GiB with 64 MiB, in blocks of 64 KiB.
//! What was merged stays in the file until the end. Nothing is latched here.

mod merge;
mod spill;

use std::cmp::Ordering;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::instruments::{MeasuredMemory, Memory};
use crate::base::{Crowd, GoingOn, Result};
use crate::encryption::Scratch;
use crate::io::{Disk, DiskFile, create_nameless};
use merge::Source;
use spill::{Batch, Spill};

pub use merge::Sorted;
pub use spill::SortHelpers;

/// What the name of a sorter's file begins with while it has one, and in messages.
const SORT_FILE_PREFIX: &str = "varve.sort-";

/// Bytes of a block, with its header, between these; unless it is one record that is longer.
const SMALLEST_BLOCK: usize = 4 << 10;
const LARGEST_BLOCK: usize = 64 << 10;
/// Memory has room for so many blocks at least, if they needn't be smaller for that than they may.
const BLOCKS_IN_MEMORY: usize = 16;

/// For a run of less a thread is not worth its while.
const LEAST_HELPED_BYTES: usize = 256 << 10;

/// Length and checksum of the data, and what decrypting them takes.
const BLOCK_HEADER: usize = 8 + Scratch::SEAL_BYTES;
const RECORD_HEADER: usize = 4;
/// What the data of a block have at most: it is that of the longest record.
const MOST_DATA: usize = RECORD_HEADER + 2 * u16::MAX as usize;
const _: () = assert!(LARGEST_BLOCK <= BLOCK_HEADER + MOST_DATA);
/// Bytes of a key that are in its place.
const HEAD: usize = size_of::<u64>();

/// Where a record is in an array of bytes: the key, and the payload behind it.
#[derive(Clone, Copy)]
struct Place {
    /// The key's first bytes, as a big-endian number; a shorter key is filled up with zeros.
    head: u64,
    offset: u32,
    key_len: u16,
    payload_len: u16,
}

impl Place {
    fn new(offset: usize, key: &[u8], payload_len: u16) -> Place {
        Place {
            head: head_of(key),
            offset: u32::try_from(offset).expect("memory is bounded"),
            key_len: u16::try_from(key.len()).expect("a key of 65535 bytes at most"),
            payload_len,
        }
    }

    /// The record whose header is there; `None` if it is not whole.
    fn stored(bytes: &[u8], at: usize) -> Option<Place> {
        let (header, rest) = bytes.get(at..)?.split_first_chunk()?;
        let [k0, k1, p0, p1]: [u8; RECORD_HEADER] = *header;
        let key_len = usize::from(u16::from_le_bytes([k0, k1]));
        let payload_len = u16::from_le_bytes([p0, p1]);
        let record = rest.get(..key_len + usize::from(payload_len))?;
        Some(Place::new(
            at + RECORD_HEADER,
            &record[..key_len],
            payload_len,
        ))
    }

    fn payload_at(self) -> usize {
        self.offset as usize + usize::from(self.key_len)
    }

    fn end(self) -> usize {
        self.payload_at() + usize::from(self.payload_len)
    }

    fn key(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.offset as usize..self.payload_at()]
    }

    fn payload(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.payload_at()..self.end()]
    }
}

fn head_of(key: &[u8]) -> u64 {
    let mut head = [0; HEAD];
    let n = key.len().min(HEAD);
    head[..n].copy_from_slice(&key[..n]);
    u64::from_be_bytes(head)
}

/// SORT-1: of the keys of two places, each with the bytes that it is about.
fn compare(a: Place, a_bytes: &[u8], b: Place, b_bytes: &[u8]) -> Ordering {
    compare_behind(0, a, a_bytes, b, b_bytes)
}

/// The same if the heads are of what comes behind so many bytes that both keys have.
fn compare_behind(skipped: usize, a: Place, a_bytes: &[u8], b: Place, b_bytes: &[u8]) -> Ordering {
    let rest = skipped + HEAD;
    a.head.cmp(&b.head).then_with(|| {
        match (a.key(a_bytes).get(rest..), b.key(b_bytes).get(rest..)) {
            (Some(a_rest), Some(b_rest)) => a_rest.cmp(b_rest),
            // One is all in its head, and the other one continues it, if only with zeros.
            _ => a.key_len.cmp(&b.key_len),
        }
    })
}

/// Takes records in any order, and has them sorted.
pub struct Sorter {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    memory_bytes: usize,
    block_bytes: usize,
    helpers: Option<Arc<SortHelpers>>,
    scratch: Option<Arc<Scratch>>,
    crowd: Crowd,
    /// The records that came last.
    batch: Batch,
    /// Those before, until they are a run.
    spill: Option<Spill>,
    /// `None` until memory was full once, and while a spill has it.
    file: Option<SortFile>,
    /// Where the runs are in the file.
    runs: Vec<Range<u64>>,
    /// A batch's memory, for the next one.
    spare: Batch,
    /// The memory, once it was full.
    measured: MeasuredMemory,
}

impl Sorter {
    /// Sorts in about so many bytes of memory, or what one record takes if that is more. What does not fit
    /// goes into a file in this directory, made when it is first needed (SORT-3).
    pub fn new(disk: Arc<dyn Disk>, dir: PathBuf, memory_bytes: usize) -> Sorter {
        Sorter {
            disk,
            dir,
            // Places count with 32 bits.
            memory_bytes: memory_bytes.min(u32::MAX as usize),
            block_bytes: (memory_bytes / BLOCKS_IN_MEMORY).clamp(SMALLEST_BLOCK, LARGEST_BLOCK),
            helpers: None,
            scratch: None,
            crowd: Crowd::begin(),
            batch: Batch::default(),
            spill: None,
            file: None,
            runs: Vec::new(),
            spare: Batch::default(),
            measured: MeasuredMemory::new(Memory::SortBuffers, 0),
        }
    }

    /// Has these sort and write runs, if memory is enough for it to be worth while.
    pub fn with_helpers(mut self, helpers: &Arc<SortHelpers>) -> Sorter {
        if self.memory_bytes / 2 >= LEAST_HELPED_BYTES {
            self.helpers = Some(helpers.clone());
        }
        self
    }

    /// Encrypts what it writes.
    pub fn with_scratch(self, scratch: Option<Arc<Scratch>>) -> Sorter {
        Sorter { scratch, ..self }
    }

    /// What of the memory the records that came last may take: a helper has the other half.
    fn batch_bytes(&self) -> usize {
        match self.helpers {
            Some(_) => self.memory_bytes / 2,
            None => self.memory_bytes,
        }
    }

    /// Takes a record. Key and payload have 65535 bytes each at most.
    ///
    /// # Errors
    ///
    /// `NoSpace`: the disk has no room. The record was not taken.
    pub fn push(&mut self, key: &[u8], payload: &[u8]) -> Result<()> {
        let payload_len = u16::try_from(payload.len()).expect("a payload of 65535 bytes at most");
        let more_bytes = key.len() + payload.len() + size_of::<Place>();
        if !self.batch.is_empty() && self.batch.used_bytes() + more_bytes > self.batch_bytes() {
            self.spill()?;
        }
        self.batch.push(key, payload, payload_len);
        Ok(())
    }

    /// The file, if there is one, and how many bytes were written to it.
    #[cfg(all(test, not(loom)))]
    pub fn spilled(&mut self) -> Result<Option<(Arc<dyn DiskFile>, u64)>> {
        self.settle()?;
        Ok((self.file.as_ref()).map(|SortFile { file, len, .. }| (file.clone(), *len)))
    }

    /// Makes a run of what is in memory, or has a helper do it.
    fn spill(&mut self) -> Result<()> {
        self.settle()?;
        let file = match self.file.take() {
            Some(file) => file,
            None => SortFile {
                file: create_nameless(&*self.disk, &self.dir, SORT_FILE_PREFIX)?,
                scratch: self.scratch.clone(),
                len: 0,
            },
        };
        self.measured.resize(self.memory_bytes);
        let batch = std::mem::replace(&mut self.batch, std::mem::take(&mut self.spare));
        let is_dense = self.crowd.is_dense();
        let helpers = self.helpers.as_ref().filter(|_| !is_dense);
        let spill = Spill::begin(batch, file, self.block_bytes, helpers);
        let is_away = spill.is_away();
        self.spill = Some(spill);
        match is_away {
            true => Ok(()),
            false => self.settle(),
        }
    }

    /// Waits for the spill that is under way, or tries again what has failed (SORT-4).
    fn settle(&mut self) -> Result<()> {
        let Some(spill) = self.spill.take() else {
            return Ok(());
        };
        match spill.end() {
            Ok((run, file, emptied)) => {
                self.runs.push(run);
                self.file = Some(file);
                self.spare = emptied;
                Ok(())
            }
            Err((spill, e)) => {
                self.spill = Some(spill);
                Err(e)
            }
        }
    }

    /// Makes fewer runs of many, until there is memory for a block of each.
    fn merge_most(&mut self, going_on: GoingOn<'_>) -> Result<()> {
        let at_once = (self.memory_bytes / self.block_bytes).max(2);
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        while self.runs.len() > at_once {
            let runs = self.runs.drain(..at_once);
            let in_file = |run| file.source(run);
            let mut merged = Sorted::begin(runs.map(in_file).collect())?;
            let mut run = file.begin_run(self.block_bytes);
            while let Some((key, payload)) = merged.next_record()? {
                if run.push(key, payload)? {
                    going_on()?;
                }
            }
            self.runs.push(run.finish()?);
        }
        Ok(())
    }

    /// All records, in the order of their keys. Those of the same key come in any order.
    pub fn finish(mut self, going_on: GoingOn<'_>) -> Result<Sorted> {
        if self.file.is_none() && self.spill.is_none() {
            self.measured.resize(self.batch.used_bytes());
        }
        self.batch.sort();
        self.settle()?;
        if !self.runs.is_empty() {
            let merge_bytes = self.runs.len() * self.block_bytes;
            if self.batch.used_bytes() + merge_bytes > self.memory_bytes {
                self.helpers = None;
                self.spill()?;
            }
            // Earlier runs were longer, perhaps.
            self.spare = Batch::default();
            self.batch.shrink();
            self.merge_most(going_on)?;
        }
        let mut sources = vec![self.batch.into_source()];
        if let Some(file) = &self.file {
            let in_file = |run| file.source(run);
            sources.extend(self.runs.into_iter().map(in_file));
        }
        let mut sorted = Sorted::begin(sources)?;
        sorted.measured = Some(self.measured);
        Ok(sorted)
    }
}

/// Where the records of a run go.
struct RunWriter<'f> {
    file: &'f mut SortFile,
    block: Vec<u8>,
    block_bytes: usize,
    end: u64,
}

impl RunWriter<'_> {
    /// Adds a record. Says whether a block was written.
    fn push(&mut self, key: &[u8], payload: &[u8]) -> Result<bool> {
        let block = &mut self.block;
        let more = RECORD_HEADER + key.len() + payload.len();
        let is_full = block.len() > BLOCK_HEADER && block.len() + more > self.block_bytes;
        if is_full {
            self.end = self.file.write_block(block, self.end)?;
        }
        block.extend_from_slice(&(key.len() as u16).to_le_bytes());
        block.extend_from_slice(&(payload.len() as u16).to_le_bytes());
        block.extend_from_slice(key);
        block.extend_from_slice(payload);
        Ok(is_full)
    }

    /// SORT-4. Says where the run is.
    fn finish(mut self) -> Result<Range<u64>> {
        let end = self.file.write_block(&mut self.block, self.end)?;
        let start = std::mem::replace(&mut self.file.len, end);
        Ok(start..end)
    }
}

/// SORT-2: of what decrypting takes, and the data as they are stored.
fn checksum(seal: &[u8], data: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(seal), data)
}

/// The file with the runs.
struct SortFile {
    file: Arc<dyn DiskFile>,
    scratch: Option<Arc<Scratch>>,
    /// Where the next run begins.
    len: u64,
}

impl SortFile {
    /// One of its runs.
    fn source(&self, run: Range<u64>) -> Source {
        Source::in_file(self.file.clone(), self.scratch.clone(), run)
    }

    fn begin_run(&mut self, block_bytes: usize) -> RunWriter<'_> {
        RunWriter {
            block: vec![0; BLOCK_HEADER],
            block_bytes,
            end: self.len,
            file: self,
        }
    }

    /// Completes the block's header, writes it and makes it empty. Says where the next one begins.
    fn write_block(&self, block: &mut Vec<u8>, at: u64) -> Result<u64> {
        let (header, data) = block.split_at_mut(BLOCK_HEADER);
        let len = u32::try_from(data.len()).expect("a block, or a record");
        if let Some(scratch) = &self.scratch {
            header[8..].copy_from_slice(&scratch.encrypt(at, data));
        }
        header[..4].copy_from_slice(&len.to_le_bytes());
        let crc = checksum(&header[8..], data);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
        self.file.write_at(block, at)?;
        let end = at + block.len() as u64;
        block.truncate(BLOCK_HEADER);
        Ok(end)
    }
}
