//! The merge of sorted records, from memory and from the runs in the file. A run is read back a block at a
//! time.
//!
//! SORT-1 and SORT-2 are kept here. After an error the same call may be tried again: nothing was skipped.

use std::ops::Range;
use std::sync::Arc;
use std::vec;

use super::{BLOCK_HEADER, MOST_DATA, Place, checksum, compare};
use crate::base::instruments::MeasuredMemory;
use crate::base::{Error, Result};
use crate::encryption::Scratch;
use crate::io::DiskFile;

/// A sorted sequence of records, one of those to be merged.
pub struct Source {
    /// All records, or those of a block.
    bytes: Vec<u8>,
    /// The first one that was not taken; `None` at the end.
    current: Option<Place>,
    rest: Rest,
}

/// The records behind the current one.
enum Rest {
    InMemory(vec::IntoIter<Place>),
    InFile(Run),
}

impl Source {
    pub fn in_memory(bytes: Vec<u8>, places: Vec<Place>) -> Source {
        Source {
            bytes,
            current: None,
            rest: Rest::InMemory(places.into_iter()),
        }
    }

    pub fn in_file(
        file: Arc<dyn DiskFile>,
        scratch: Option<Arc<Scratch>>,
        run: Range<u64>,
    ) -> Source {
        let run = Run {
            file,
            scratch,
            unread: run,
            done_bytes: 0,
        };
        Source {
            bytes: Vec::new(),
            current: None,
            rest: Rest::InFile(run),
        }
    }

    /// Goes to the next record. It may be tried again if it fails.
    fn advance(&mut self) -> Result<()> {
        self.current = match &mut self.rest {
            Rest::InMemory(places) => places.next(),
            Rest::InFile(run) => run.next(&mut self.bytes)?,
        };
        Ok(())
    }

    /// Whether its current record comes before the other's.
    fn is_before(&self, other: &Source) -> bool {
        match (self.current, other.current) {
            (Some(a), Some(b)) => compare(a, &self.bytes, b, &other.bytes).is_lt(),
            (a, _) => a.is_some(),
        }
    }
}

/// A run that is being read.
struct Run {
    file: Arc<dyn DiskFile>,
    /// If they are encrypted.
    scratch: Option<Arc<Scratch>>,
    /// Where its blocks are that were not read.
    unread: Range<u64>,
    /// Of the block in memory: what comes before the next record.
    done_bytes: usize,
}

impl Run {
    /// The next record's place in the block, perhaps of the next block in the place of this one.
    fn next(&mut self, block: &mut Vec<u8>) -> Result<Option<Place>> {
        if self.done_bytes == block.len() {
            if self.unread.is_empty() {
                return Ok(None);
            }
            let read = self.read_block(block);
            // If that failed it is to be read again.
            self.done_bytes = block.len();
            self.unread.start = read?;
            self.done_bytes = 0;
        }
        let place = Place::stored(block, self.done_bytes)
            .ok_or_else(|| damaged(&*self.file, "a whole record", "the end of its block"))?;
        self.done_bytes = place.end();
        Ok(Some(place))
    }

    /// Reads the data of the next block, and says where the one behind it begins (SORT-2).
    fn read_block(&self, data: &mut Vec<u8>) -> Result<u64> {
        let Range { start, end } = self.unread;
        let mut header = [0; BLOCK_HEADER];
        self.file.read_at(&mut header, start)?;
        let (number, seal) = header.split_first_chunk().expect("it is longer");
        let number = u64::from_le_bytes(*number);
        let (len, crc) = (number as u32, (number >> 32) as u32);
        let data_at = start + BLOCK_HEADER as u64;
        let most = end.saturating_sub(data_at).min(MOST_DATA as u64);
        if len == 0 || u64::from(len) > most {
            let expected = format!("1 to {most} bytes in the block at {start}");
            return Err(damaged(&*self.file, &expected, &len.to_string()));
        }
        data.resize(len as usize, 0);
        self.file.read_at(data, data_at)?;
        let computed = checksum(seal, data);
        if computed != crc {
            let expected = format!("{crc:08x} as the checksum of the block at {start}");
            return Err(damaged(&*self.file, &expected, &format!("{computed:08x}")));
        }
        if let Some(scratch) = &self.scratch
            && !scratch.decrypt(start, seal.try_into().expect("the rest"), data)
        {
            let expected = format!("the block at {start}");
            return Err(damaged(&*self.file, &expected, "another one"));
        }
        Ok(data_at + u64::from(len))
    }
}

fn damaged(file: &dyn DiskFile, expected: &str, found: &str) -> Error {
    Error::CorruptFile {
        path: file.path().to_path_buf(),
        expected: expected.into(),
        found: found.into(),
    }
}

/// The records in order: a merge, by a tree of losers (Knuth, volume 3, 5.4.1). The sources are its leaves.
/// Each node above has had a match of the winners of its two subtrees: it keeps the loser, the winner goes
/// on. When the winner of all has moved on to its next record, only the matches above it are played again.
pub struct Sorted {
    sources: Vec<Source>,
    /// By node: the root is 1, the children of `n` are `2 n` and `2 n + 1`, and source `i` is the leaf
    /// `sources + i`.
    losers: Vec<usize>,
    winner: usize,
    /// The winner's record was handed out.
    is_taken: bool,
    /// What it holds in memory.
    pub(super) measured: Option<MeasuredMemory>,
}

impl Sorted {
    pub(super) fn begin(mut sources: Vec<Source>) -> Result<Sorted> {
        sources.iter_mut().try_for_each(Source::advance)?;
        let n = sources.len();
        let mut losers = vec![0; n];
        let mut winners: Vec<usize> = (0..n).chain(0..n).collect();
        for node in (1..n).rev() {
            let (a, b) = (winners[2 * node], winners[2 * node + 1]);
            let (winner, loser) = match sources[b].is_before(&sources[a]) {
                true => (b, a),
                false => (a, b),
            };
            (winners[node], losers[node]) = (winner, loser);
        }
        Ok(Sorted {
            sources,
            losers,
            winner: winners[1],
            is_taken: false,
            measured: None,
        })
    }

    /// The next record's key and payload, until the next call.
    ///
    /// # Errors
    ///
    /// `CorruptFile`: what was written can't be read back.
    pub fn next_record(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.is_taken {
            self.sources[self.winner].advance()?;
            self.replay();
        }
        self.is_taken = true;
        let Source { bytes, current, .. } = &self.sources[self.winner];
        Ok(current.map(|place| (place.key(bytes), place.payload(bytes))))
    }

    /// The winner has another record.
    fn replay(&mut self) {
        let mut node = (self.sources.len() + self.winner) / 2;
        while node > 0 {
            let loser = &mut self.losers[node];
            if self.sources[*loser].is_before(&self.sources[self.winner]) {
                std::mem::swap(loser, &mut self.winner);
            }
            node /= 2;
        }
    }
}
