//! An index as it is read: from a file, or from the image that was just made.
//!
//! The head and the directory of blocks are in memory. The blocks stay where they are: [`Index::block_of`]
//! says which one to read, and the caller checks that what it read is whole ([`BlockPlace::is_whole`]) before
//! it decodes it. So one index takes some kilobytes, whatever the length of its log file.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::sections::{self, BlockEntry, Extent, HEADER_BYTES, Header, Section};
use super::{FileId, Head};
use crate::base::{Error, Lsn, PageId, Result};
use crate::io::DiskFile;
use crate::recovery::pages::{Marks, UnitNo};

/// Where a block is in its file, and its checksum.
pub type BlockPlace = Extent;

/// A block of entries.
pub enum Block<'a> {
    Memory(&'a [u8]),
    File {
        file: &'a Arc<dyn DiskFile>,
        place: BlockPlace,
        /// Its first page.
        first: u64,
    },
}

/// The index of a log file.
pub struct Index {
    source: Source,
    header: Header,
    head: Head,
    directory: Vec<BlockEntry>,
}

enum Source {
    Memory(Vec<u8>),
    File(Arc<dyn DiskFile>),
}

impl Source {
    fn len(&self) -> Result<u64> {
        match self {
            Source::Memory(image) => Ok(image.len() as u64),
            Source::File(file) => file.len(),
        }
    }

    /// The bytes of a part that lies within its length.
    fn read(&self, Extent { offset, len, .. }: Extent) -> Result<Cow<'_, [u8]>> {
        match self {
            Source::Memory(image) => Ok(Cow::Borrowed(&image[range(offset, len)])),
            Source::File(file) => {
                let mut bytes = vec![0; len as usize];
                file.read_at(&mut bytes, offset)?;
                Ok(Cow::Owned(bytes))
            }
        }
    }

    fn path(&self) -> &Path {
        match self {
            Source::Memory(_) => Path::new("the index of a redo log file, in memory"),
            Source::File(file) => file.path(),
        }
    }
}

fn range(offset: u64, len: u64) -> Range<usize> {
    offset as usize..(offset + len) as usize
}

impl Index {
    /// From the image that a builder made.
    pub fn in_memory(image: Vec<u8>) -> Index {
        let index = Index::read(Source::Memory(image), |_| true, None);
        let index = index.expect("memory is read without errors");
        index.expect("IDX-4: the image is whole")
    }

    /// From a file. `None`: it is not the whole index of this log file of database `uuid` (IDX-4).
    ///
    /// # Errors
    ///
    /// The file can't be read.
    pub fn open(file: Arc<dyn DiskFile>, uuid: &[u8; 16], id: &FileId) -> Result<Option<Index>> {
        Index::read(Source::File(file), |found| found == id, Some(uuid))
    }

    fn read(
        source: Source,
        is_it: impl FnOnce(&FileId) -> bool,
        uuid: Option<&[u8; 16]>,
    ) -> Result<Option<Index>> {
        let file_bytes = source.len()?;
        if file_bytes < HEADER_BYTES as u64 {
            return Ok(None);
        }
        let all = Extent {
            offset: 0,
            len: HEADER_BYTES as u64,
            crc: 0,
        };
        let bytes = source.read(all)?;
        let header = bytes
            .first_chunk()
            .and_then(|b| Header::decode(b, uuid, source.path()));
        let is_ours = |header: &Header| is_it(&header.file) && header.file_bytes() == file_bytes;
        let Some(header) = header.filter(is_ours) else {
            return Ok(None);
        };
        let parts = [Section::Directory, Section::Removed, Section::Counters];
        let [directory, removed, counters] = parts.map(|part| {
            let part = header.section(part);
            let bytes = source.read(part)?;
            Ok(part.is_whole(&bytes).then_some(bytes))
        });
        let (Some(listed), Some(removed), Some(counters)) = (directory?, removed?, counters?)
        else {
            return Ok(None);
        };
        let head = sections::head_of(&header, &removed, &counters);
        let directory = sections::decode_directory(&listed, header.blocks_bytes);
        let (Some(head), Some(directory)) = (head, directory) else {
            return Ok(None);
        };
        drop((bytes, listed, removed, counters));
        Ok(Some(Index {
            source,
            header,
            head,
            directory,
        }))
    }

    /// Of its file, if it has one.
    pub fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::Memory(_) => None,
            Source::File(file) => Some(file.path()),
        }
    }

    pub fn memory_bytes(&self) -> usize {
        let image = match &self.source {
            Source::Memory(image) => image.capacity(),
            Source::File(_) => 0,
        };
        image + self.directory.capacity() * size_of::<BlockEntry>()
    }

    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The pages that have entries, and which of them some frame starts as zeros. Ascending.
    ///
    /// # Errors
    ///
    /// The file can't be read, or is damaged there (`CorruptFile`).
    pub fn units(&self) -> Result<Vec<(UnitNo, Marks)>> {
        self.section(Section::Units, sections::decode_units)
    }

    /// The pages that some frame starts as zeros, and where the last such frame starts. Ascending by page.
    ///
    /// # Errors
    ///
    /// As `units`.
    pub fn restarts(&self) -> Result<Vec<(PageId, Lsn)>> {
        self.section(Section::Restarts, |bytes| {
            sections::decode_restarts(bytes, self.head.first)
        })
    }

    fn section<T>(&self, which: Section, decode: impl FnOnce(&[u8]) -> Option<T>) -> Result<T> {
        let place = self.header.section(which);
        let bytes = self.source.read(place)?;
        let is_whole = place.is_whole(&bytes);
        let decoded = is_whole.then(|| decode(&bytes)).flatten();
        decoded.ok_or_else(|| Error::CorruptFile {
            path: self.source.path().to_path_buf(),
            expected: format!("the index's section {which:?}"),
            found: "other bytes".into(),
        })
    }

    /// The block that has the page's entry, if it has one. `None`: it has none.
    pub fn block_of(&self, page: PageId) -> Option<Block<'_>> {
        let behind = self.directory.partition_point(|block| block.first <= page);
        let BlockEntry { first, place } = self.directory[behind.checked_sub(1)?];
        let first = first.to_u64();
        Some(match &self.source {
            Source::Memory(image) => Block::Memory(&image[range(place.offset, place.len)]),
            Source::File(file) => Block::File { file, place, first },
        })
    }
}
