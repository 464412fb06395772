//! What is in an index file beside the blocks: the header, and sections that are read as a whole.
//!
//! The header takes [`HEADER_BYTES`], of which the last four are a checksum of the others. Behind it are the
//! blocks, and behind these the sections in the order of [`Section`]. All numbers in the header are u64,
//! little-endian:
//!
//! ```text
//!  0  how every file begins (redo/intro.rs)
//! 64  number, generation, start, end of the log file
//! 96  first, next: LSNs
//! 112 number of frames; the highest id limit that they set, or 0
//! 128 bytes of all blocks
//! 136 of each section: bytes, crc32c
//! ```
//!
//! Sections are sequences of varints, LSNs in units of 8. Pages are 64-bit numbers, tablespace in the upper
//! half:
//!
//! ```text
//! directory  for each block: its first page, by the difference to that of the block before; its bytes; its crc32c, u32
//! units      for each unit of 16 pages that has an entry: the difference to the unit before, doubled, plus 1 if pages in it start as zeros;
//!            the pages that have entries, a bit for each; if there are some, those that start as zeros
//! restarts   for each page that starts as zeros: the difference to the page before; LSN of the last frame that says so, from `first` on
//! removed    tablespaces whose removal was decided, in the order of the log
//! counters   of tables' files (recovery/counters.rs)
//! ```
//!
//! Pure functions; bytes from disk never panic. What they decode was checked against its checksum before, but
//! need not be what this program wrote.

use std::path::Path;

use super::{DatabaseIdentity, FileId, Head, LogSummary};
use crate::base::{Lsn, PageId, SpaceId, varint};
use crate::recovery::chain::LSN_UNIT;
use crate::recovery::counters::LoggedCounters;
use crate::recovery::pages::{Marks, UNIT_PAGES, UnitNo, unit_of};
use crate::redo::{FileIntro, INTRO_BYTES, NO_SPACE};

/// Bytes before the first block.
pub const HEADER_BYTES: usize = 4096;
const CRC_AT: usize = HEADER_BYTES - 4;
const MAGIC: &[u8; 8] = b"VARVEIDX";

/// The sections, in the order of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Section {
    Directory,
    Units,
    Restarts,
    Removed,
    /// Older versions, whose indexes have zeros in its place, wrote no such records.
    Counters,
}

const SECTIONS: usize = 5;
/// Numbers in the header.
const WORDS: usize = 9 + 2 * SECTIONS;

/// Where bytes of the file are, and their checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    pub offset: u64,
    pub len: u64,
    pub crc: u32,
}

impl Extent {
    /// Whether these are the bytes (IDX-4).
    pub fn is_whole(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == self.len && crc32c::crc32c(bytes) == self.crc
    }
}

/// The header, but for how every file begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    pub file: FileId,
    pub first: Lsn,
    pub next: Lsn,
    pub frames: u64,
    pub id_limit: u64,
    pub blocks_bytes: u64,
    sections: [Extent; SECTIONS],
}

impl Header {
    pub fn section(&self, section: Section) -> Extent {
        self.sections[section as usize]
    }

    /// Of the whole file.
    pub fn file_bytes(&self) -> u64 {
        let last = self.section(Section::Counters);
        last.offset + last.len
    }

    /// Fills the header's place in an image whose other parts are there.
    fn encode(&self, identity: DatabaseIdentity, image: &mut [u8]) {
        let header = &mut image[..HEADER_BYTES];
        FileIntro::new(MAGIC, identity.page_size, identity.uuid, NO_SPACE).encode(header);
        let id = self.file;
        let mut words = vec![id.number, id.generation, id.start.0, id.end.0];
        words.extend([self.first.0, self.next.0, self.frames, self.id_limit]);
        words.push(self.blocks_bytes);
        let of_section = |s: &Extent| [s.len, u64::from(s.crc)];
        words.extend(self.sections.iter().flat_map(of_section));
        assert_eq!(words.len(), WORDS);
        for (to, word) in header[INTRO_BYTES..].chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let crc = crc32c::crc32c(&header[..CRC_AT]);
        header[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    }

    /// `None`: not the header of an index that this version wrote for database `uuid`, or for any if it is
    /// `None`.
    pub fn decode(
        bytes: &[u8; HEADER_BYTES],
        uuid: Option<&[u8; 16]>,
        path: &Path,
    ) -> Option<Header> {
        let (rest, crc) = bytes.split_last_chunk::<4>()?;
        if u32::from_le_bytes(*crc) != crc32c::crc32c(rest) {
            return None;
        }
        let intro = FileIntro::decode(MAGIC, bytes, path).ok()?;
        if uuid.is_some_and(|uuid| intro.uuid != *uuid) {
            return None;
        }
        let chunks = rest[INTRO_BYTES..].chunks_exact(8).take(WORDS);
        let mut words = chunks.map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        let mut word = || words.next();
        let file = FileId {
            number: word()?,
            generation: word()?,
            start: Lsn(word()?),
            end: Lsn(word()?),
        };
        let (first, next) = (Lsn(word()?), Lsn(word()?));
        let (frames, id_limit, blocks_bytes) = (word()?, word()?, word()?);
        let mut offset = blocks_bytes.checked_add(HEADER_BYTES as u64)?;
        let mut sections = [Extent {
            offset,
            len: 0,
            crc: 0,
        }; SECTIONS];
        for section in &mut sections {
            let (len, crc) = (word()?, u32::try_from(word()?).ok()?);
            *section = Extent { offset, len, crc };
            offset = offset.checked_add(len)?;
        }
        let is_sane = file.start <= first && first <= next;
        is_sane.then_some(Header {
            file,
            first,
            next,
            frames,
            id_limit,
            blocks_bytes,
            sections,
        })
    }
}

/// Completes an image of which the blocks are there, behind the room for the header. `parts`: directory,
/// units, restarts.
pub fn finish(
    mut image: Vec<u8>,
    head: &Head,
    identity: DatabaseIdentity,
    parts: [Vec<u8>; SECTIONS - 2],
) -> Vec<u8> {
    let blocks_bytes = (image.len() - HEADER_BYTES) as u64;
    let [directory, units, restarts] = parts;
    let removed = encode_removed(&head.summary.removed);
    let counters = head.summary.counters.encode();
    let sections = [directory, units, restarts, removed, counters].map(|bytes| {
        let (offset, len) = (image.len() as u64, bytes.len() as u64);
        image.extend_from_slice(&bytes);
        let crc = crc32c::crc32c(&bytes);
        Extent { offset, len, crc }
    });
    let header = Header {
        file: head.file,
        first: head.first,
        next: head.next,
        frames: head.summary.frames,
        id_limit: head.summary.id_limit,
        blocks_bytes,
        sections,
    };
    header.encode(identity, &mut image);
    image
}

/// The head that the header and the sections of removed tablespaces and of counters tell; `None` if these are
/// no such sections.
pub fn head_of(header: &Header, removed: &[u8], counters: &[u8]) -> Option<Head> {
    Some(Head {
        file: header.file,
        first: header.first,
        next: header.next,
        summary: LogSummary {
            frames: header.frames,
            id_limit: header.id_limit,
            removed: decode_removed(removed)?,
            counters: LoggedCounters::decode(counters)?,
        },
    })
}

/// Where a block is, and the first page that has an entry in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockEntry {
    pub first: PageId,
    pub place: Extent,
}

/// All blocks; `None` if these are not the directory of so many bytes of blocks.
pub fn decode_directory(mut bytes: &[u8], blocks_bytes: u64) -> Option<Vec<BlockEntry>> {
    let mut blocks: Vec<BlockEntry> = Vec::new();
    let (mut page, mut offset) = (0u64, HEADER_BYTES as u64);
    while !bytes.is_empty() {
        let more = varint::take(&mut bytes)?;
        page = page.checked_add(more)?;
        let len = varint::take(&mut bytes)?;
        let (crc, rest) = bytes.split_first_chunk::<4>()?;
        let crc = u32::from_le_bytes(*crc);
        bytes = rest;
        if more == 0 && !blocks.is_empty() {
            return None;
        }
        let place = Extent { offset, len, crc };
        let first = PageId::from_u64(page);
        blocks.push(BlockEntry { first, place });
        offset = offset.checked_add(len)?;
    }
    (offset == (HEADER_BYTES as u64).checked_add(blocks_bytes)?).then_some(blocks)
}

/// Pages, which come in ascending order, by units.
#[derive(Default)]
pub struct UnitWriter {
    out: Vec<u8>,
    open: Option<(UnitNo, Marks)>,
    before: UnitNo,
}

impl UnitWriter {
    pub fn add(&mut self, page: PageId, is_fresh: bool) {
        let (unit, bit) = unit_of(page);
        if self.open.is_none_or(|(open, _)| open != unit) {
            self.close();
        }
        let (_, marks) = self.open.get_or_insert((unit, Marks::default()));
        marks.lacks |= bit;
        if is_fresh {
            marks.fresh |= bit;
        }
    }

    fn close(&mut self) {
        let Some((unit, Marks { lacks, fresh })) = self.open.take() else {
            return;
        };
        let units = (unit - self.before) << 1;
        varint::put(&mut self.out, units | u64::from(fresh != 0));
        varint::put(&mut self.out, lacks);
        if fresh != 0 {
            varint::put(&mut self.out, fresh);
        }
        self.before = unit;
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.close();
        self.out
    }
}

pub fn decode_units(mut bytes: &[u8]) -> Option<Vec<(UnitNo, Marks)>> {
    const BITS: u64 = u64::MAX >> (64 - UNIT_PAGES);
    let mut units: Vec<(UnitNo, Marks)> = Vec::new();
    let mut unit = 0u64;
    while !bytes.is_empty() {
        let more = varint::take(&mut bytes)?;
        unit = unit.checked_add(more >> 1)?;
        let lacks = varint::take(&mut bytes)?;
        let fresh = match more & 1 {
            0 => 0,
            _ => varint::take(&mut bytes)?,
        };
        let is_new = more >> 1 != 0 || units.is_empty();
        let are_bits = lacks != 0 && lacks & !BITS == 0 && fresh & !lacks == 0;
        if !is_new || !are_bits || unit > u64::MAX / UNIT_PAGES {
            return None;
        }
        units.push((unit, Marks { lacks, fresh }));
    }
    Some(units)
}

/// Pages, ascending, with LSNs in units of 8 from `first` on.
pub fn encode_restarts(restarts: &[(PageId, u64)]) -> Vec<u8> {
    let (mut out, mut before) = (Vec::new(), 0);
    for (page, units) in restarts {
        let page = page.to_u64();
        varint::put(&mut out, page - before);
        varint::put(&mut out, *units);
        before = page;
    }
    out
}

pub fn decode_restarts(mut bytes: &[u8], first: Lsn) -> Option<Vec<(PageId, Lsn)>> {
    let mut restarts: Vec<(PageId, Lsn)> = Vec::new();
    let mut page = 0u64;
    while !bytes.is_empty() {
        let more = varint::take(&mut bytes)?;
        page = page.checked_add(more)?;
        if more == 0 && !restarts.is_empty() {
            return None;
        }
        let bytes_on = varint::take(&mut bytes)?.checked_mul(LSN_UNIT)?;
        let start = first.0.checked_add(bytes_on)?;
        restarts.push((PageId::from_u64(page), Lsn(start)));
    }
    Some(restarts)
}

fn encode_removed(removed: &[SpaceId]) -> Vec<u8> {
    let mut out = Vec::new();
    removed
        .iter()
        .for_each(|space| varint::put(&mut out, space.0.into()));
    out
}

fn decode_removed(mut bytes: &[u8]) -> Option<Vec<SpaceId>> {
    let mut removed = Vec::new();
    while !bytes.is_empty() {
        let space = u32::try_from(varint::take(&mut bytes)?).ok()?;
        removed.push(SpaceId(space));
    }
    Some(removed)
}
