//! Page 0 of a tablespace: what the file is, and a copy of its table's definition, so that it explains
//! itself.
//!
//! After the page header (48 bytes):
//!
//! | offset | field |
//! |---|---|
//! | 48 | intro, 64 bytes: magic `VARVEDAT`, format version, page size, database uuid, tablespace, checksum kind, features |
//! | 112 | kind u8 |
//! | 113 | how its pages are compressed: algorithm u8, level u8; zero if they are not |
//! | 115 | whether its pages are encrypted u8: 0 as it is set for all tables, 1 yes, 2 no |
//! | 116 | number of the key u32; 0: key 1 |
//! | 120 | table id u64 |
//! | 128 | crc32c u32 of bytes 48..128, 4 zero bytes |
//! | 136 | length of the definition u32 |
//! | 140 | bytes of it stored here u32: all, or its beginning if it is too long for the page |
//! | 144 | crc32c u32 of the stored bytes |
//! | 148 | how far its encryption is u8 ([`Stage`]), 3 zero bytes |
//! | 152 | version of the key that all pages have at least u32, 4 zero bytes |
//! | 160 | the definition |
//!
//! What a definition is, and how much of a long one stands here, is the callers' (`catalog/def_copy.rs`).
//!
//! Bytes 48..132 never change and lie in the first 512 bytes, which are written whole or not at all: a file
//! can be recognised before a torn page 0 has been restored. The page as a whole has its checksum like any
//! other.

use std::path::Path;

use crate::base::{Error, PageId, Result, SpaceId, TableId};
use crate::encryption::Encryption;
use crate::io::{AlignedBuf, DIRECT_BLOCK, DiskFile};
use crate::page::{Compression, PageOp, PageType};
use crate::redo::{COMPRESSED_PAGES, FileIntro, INTRO_BYTES};

const MAGIC: &[u8; 8] = b"VARVEDAT";
const INTRO: usize = 48;
const KIND: usize = INTRO + INTRO_BYTES;
const COMPRESSION: usize = KIND + 1;
const ENCRYPTION: usize = COMPRESSION + 2;
const TABLE: usize = ENCRYPTION + Encryption::BYTES;
const _: () = assert!(TABLE == 120);
const FIXED_CRC: usize = 128;
const FIXED_END: usize = 132;
pub(super) const DEF_LEN: usize = 136;
pub(super) const STAGE: usize = 148;
pub(super) const DEF: usize = 160;

/// What a tablespace is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SpaceKind {
    System = 1,
    Undo = 2,
    Table = 3,
    /// Made anew at every start, never redo-logged.
    Temp = 4,
}

impl SpaceKind {
    fn from_u8(v: u8) -> Option<SpaceKind> {
        Some(match v {
            1 => SpaceKind::System,
            2 => SpaceKind::Undo,
            3 => SpaceKind::Table,
            4 => SpaceKind::Temp,
            _ => return None,
        })
    }
}

/// How far a tablespace's pages are encrypted (`encrypted.rs`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Stage {
    /// Pages are written in clear.
    #[default]
    Clear = 0,
    /// Pages are written encrypted, and some may be in clear, or have an older key.
    Encrypting = 1,
    /// All pages are encrypted.
    Encrypted = 2,
    /// Pages are written in clear, and some may be encrypted.
    Decrypting = 3,
}

impl Stage {
    pub(super) fn from_u8(v: u8) -> Option<Stage> {
        Some(match v {
            0 => Stage::Clear,
            1 => Stage::Encrypting,
            2 => Stage::Encrypted,
            3 => Stage::Decrypting,
            _ => return None,
        })
    }

    /// Pages are written encrypted.
    pub(crate) fn writes_encrypted(self) -> bool {
        matches!(self, Stage::Encrypting | Stage::Encrypted)
    }
}

/// As page 0 has it.
pub(super) fn stage_bytes(stage: Stage, least_version: u32) -> [u8; 8] {
    let mut bytes = [stage as u8, 0, 0, 0, 0, 0, 0, 0];
    bytes[4..].copy_from_slice(&least_version.to_le_bytes());
    bytes
}

/// What a page 0 says; an error says what was found instead.
pub(super) fn stage_in(page: &[u8]) -> std::result::Result<(Stage, u32), String> {
    let stage = Stage::from_u8(page[STAGE]);
    let stage = stage.ok_or_else(|| format!("stage {} of encryption", page[STAGE]))?;
    Ok((stage, u32_at(page, STAGE + 4)))
}

/// The same, of a page that may say nothing of it.
pub fn stage_on(page: &[u8]) -> Option<Stage> {
    stage_in(page).ok().map(|(stage, _)| stage)
}

/// The fixed part of page 0, and what is encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileHeader {
    pub intro: FileIntro,
    pub kind: SpaceKind,
    /// The table in the file; 0 if it is no table's.
    pub table: TableId,
    /// How its pages are stored.
    pub compression: Option<Compression>,
    pub encryption: Encryption,
    /// How far, as the file had it when it was opened.
    pub stage: Stage,
    /// The version of the key that all pages have at least, if all are encrypted.
    pub least_version: u32,
    /// Page 0 is damaged behind what has a checksum of its own, and says nothing of a stage.
    pub(super) lacks_stage: bool,
}

impl FileHeader {
    pub(super) fn new(
        page_size: usize,
        uuid: [u8; 16],
        space: SpaceId,
        kind: SpaceKind,
        table: TableId,
    ) -> FileHeader {
        FileHeader {
            intro: FileIntro::new(MAGIC, page_size as u32, uuid, space),
            kind,
            table,
            compression: None,
            encryption: Encryption::default(),
            stage: Stage::Clear,
            least_version: 0,
            lacks_stage: false,
        }
    }

    /// With pages that are encrypted in this way.
    pub(super) fn encrypted(self, encryption: Encryption) -> FileHeader {
        FileHeader { encryption, ..self }
    }

    /// With pages that are all encrypted, with this version of the key.
    pub(super) fn encrypted_with(self, version: u32) -> FileHeader {
        FileHeader {
            stage: Stage::Encrypted,
            least_version: version,
            ..self
        }
    }

    /// With pages that are stored in this way; versions that can't read them refuse the file by name.
    pub(super) fn compressed(mut self, compression: Option<Compression>) -> FileHeader {
        self.compression = compression;
        self.intro.features[2] = match compression {
            Some(_) => COMPRESSED_PAGES,
            None => 0,
        };
        self
    }

    /// Fills a zero page with the header and the definition.
    pub(super) fn format(&self, page: &mut [u8], id: PageId, definition: DefinitionCopy<'_>) {
        let ptype = PageType::FileHeader;
        let formatted = PageOp::FormatRaw { ptype }.apply(page, id);
        formatted.expect("any page can be formatted");
        self.intro.encode(&mut page[INTRO..KIND]);
        page[KIND] = self.kind as u8;
        let compression = self.compression.map_or([0; 2], Compression::to_bytes);
        page[COMPRESSION..COMPRESSION + 2].copy_from_slice(&compression);
        page[ENCRYPTION..TABLE].copy_from_slice(&self.encryption.to_bytes());
        page[TABLE..TABLE + 8].copy_from_slice(&self.table.0.to_le_bytes());
        let crc = crc32c::crc32c(&page[INTRO..FIXED_CRC]);
        page[FIXED_CRC..FIXED_END].copy_from_slice(&crc.to_le_bytes());
        page[DEF_LEN..DEF_LEN + 12].copy_from_slice(&definition.head());
        page[STAGE..STAGE + 8].copy_from_slice(&stage_bytes(self.stage, self.least_version));
        page[DEF..DEF + definition.stored.len()].copy_from_slice(definition.stored);
    }

    /// Reads and checks the fixed part from the start of a file.
    pub fn read(file: &dyn DiskFile) -> Result<FileHeader> {
        if file.len()? < 2 * 4096 {
            let expected = "a tablespace of two pages or more";
            return Err(damaged(file.path(), expected, "a shorter file"));
        }
        // A whole block, for a file that is read past the system's cache.
        let mut block = AlignedBuf::new(DIRECT_BLOCK);
        file.read_at(&mut block, 0)?;
        let head = block.first_chunk().expect("it is shorter");
        FileHeader::decode(head, file.path())
    }

    fn decode(head: &[u8; DEF], path: &Path) -> Result<FileHeader> {
        let intro = FileIntro::decode(MAGIC, &head[INTRO..KIND], path)?;
        let stored = u32_at(head, FIXED_CRC);
        let computed = crc32c::crc32c(&head[INTRO..FIXED_CRC]);
        if stored != computed {
            let expected = format!("header checksum {stored:08x}");
            return Err(damaged(path, expected, format!("{computed:08x}")));
        }
        let Some(kind) = SpaceKind::from_u8(head[KIND]) else {
            let found = head[KIND].to_string();
            return Err(damaged(path, "a kind of tablespace", found));
        };
        let compression = match intro.features[2] & COMPRESSED_PAGES {
            0 => None,
            _ => {
                let bytes = [head[COMPRESSION], head[COMPRESSION + 1]];
                let known = Compression::from_bytes(bytes);
                let unknown = || damaged(path, "a compression of pages", format!("{bytes:?}"));
                Some(known.ok_or_else(unknown)?)
            }
        };
        let bytes: [u8; Encryption::BYTES] = head[ENCRYPTION..TABLE].try_into().expect("5 bytes");
        let Some(encryption) = Encryption::from_bytes(bytes) else {
            return Err(damaged(path, "an encryption", format!("{bytes:?}")));
        };
        let found = stage_in(head);
        let lacks_stage = found.is_err();
        let (stage, least_version) = found.unwrap_or_default();
        let table = u64::from_le_bytes(head[TABLE..TABLE + 8].try_into().expect("8 bytes"));
        Ok(FileHeader {
            intro,
            kind,
            table: TableId(table),
            compression,
            encryption,
            stage,
            least_version,
            lacks_stage,
        })
    }
}

fn damaged(path: &Path, expected: impl Into<String>, found: impl Into<String>) -> Error {
    Error::CorruptFile {
        path: path.into(),
        expected: expected.into(),
        found: found.into(),
    }
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("4 bytes"))
}

/// What page 0 has of a table's definition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DefinitionCopy<'a> {
    /// Bytes of the whole definition.
    pub len: u32,
    /// All of it, or its beginning; at most `definition_room`.
    pub stored: &'a [u8],
}

impl<'a> DefinitionCopy<'a> {
    /// A whole definition.
    pub fn whole(bytes: &'a [u8]) -> DefinitionCopy<'a> {
        DefinitionCopy::beginning(bytes, bytes.len())
    }

    /// The first `stored` bytes of a definition.
    pub fn beginning(bytes: &'a [u8], stored: usize) -> DefinitionCopy<'a> {
        DefinitionCopy {
            len: u32::try_from(bytes.len()).expect("definitions are below 4 GiB"),
            stored: &bytes[..stored],
        }
    }

    pub fn is_whole(&self) -> bool {
        self.len as usize == self.stored.len()
    }

    /// The three words in front of the stored bytes.
    pub(super) fn head(&self) -> [u8; 12] {
        let mut head = [0; 12];
        head[..4].copy_from_slice(&self.len.to_le_bytes());
        head[4..8].copy_from_slice(&(self.stored.len() as u32).to_le_bytes());
        head[8..].copy_from_slice(&crc32c::crc32c(self.stored).to_le_bytes());
        head
    }

    /// What a page 0 holds; an error says what was found instead.
    pub fn read(page: &'a [u8]) -> std::result::Result<DefinitionCopy<'a>, String> {
        let (len, stored) = (u32_at(page, DEF_LEN), u32_at(page, DEF_LEN + 4) as usize);
        let Some(bytes) = page.get(DEF..DEF + stored) else {
            return Err(format!("a definition of {stored} bytes"));
        };
        if stored > len as usize || crc32c::crc32c(bytes) != u32_at(page, DEF_LEN + 8) {
            return Err("a damaged definition".into());
        }
        let stored = bytes;
        Ok(DefinitionCopy { len, stored })
    }
}

/// Bytes of a definition that page 0 has room for.
pub fn definition_room(page_size: usize) -> usize {
    page_size - DEF
}
