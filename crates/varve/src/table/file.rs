//! A table's file that is read by itself, page by page, whichever database made it: to save its rows
//! (`offline`), and to import them (`ddl/import.rs`).
//!
//! It is not read along the tree: a damaged inner page costs nothing, a damaged leaf its own rows. Each leaf
//! says by its fences which keys it holds, so the leaves that are left can be put in order, and what is
//! missing between them is known. The table's definition stands in the file's header, and once more behind
//! the counters. Nothing in the file leads to a panic or in circles (OFF-2).

use std::path::Path;
use std::sync::Arc;

use crate::base::{
    Error, GoingOn, IndexId, Meter, NO_PAGE, PageId, PageNo, Phase, Result, SpaceId, TableId, Watch,
};
use crate::catalog::{
    CopyReader, FIRST_ROOT_PAGE, MAX_INDEXES, META_AUTO_INCREMENT, META_PAGE, OverflowPage, ROW_AT,
    RowRecord, TableDef, overflow_capacity,
};
use crate::encryption::{Cipher, EncryptionKeys, Keyring};
use crate::io::{Disk, DiskFile, OpenMode, RealDisk};
use crate::page::{self, MAX_PAGE_SIZE, MIN_PAGE_SIZE, PageType, SlottedRef, page_id, page_type};
use crate::row::{ExternalRef, RowFormat, RowRef};
use crate::space::{DefinitionCopy, FileHeader};

/// Of progress.
const PAGES_TOLD_EVERY: u64 = 1024;
const ROWS_TOLD_EVERY: u64 = 4096;

/// One thing that is read from a file.
pub(crate) enum FromFile<'a> {
    /// Its long values are not fetched.
    Row { is_deleted: bool, row: RowRef<'a> },
    /// What could not be read, and why.
    Skipped(String),
}

/// A table's file that is read page by page.
pub struct TableFile {
    file: Arc<dyn DiskFile>,
    page_size: usize,
    space: SpaceId,
    /// `None`: the header can't be read.
    header: Option<FileHeader>,
    keyring: Keyring,
    pub(crate) def: Option<TableDef>,
}

/// [`TableFile::open`] on another implementation of the disk, of a file that is not encrypted.
#[cfg(feature = "internals")]
pub fn table_file_on(disk: &dyn Disk, path: &Path) -> Result<TableFile> {
    table_file_with(disk, path, &Keyring::default())
}

/// [`TableFile::open`] on another implementation of the disk.
pub fn table_file_with(disk: &dyn Disk, path: &Path, keyring: &Keyring) -> Result<TableFile> {
    let file = disk.open(path, OpenMode::ReadOnly)?;
    let header = FileHeader::read(&*file);
    let (page_size, space) = match &header {
        Ok(header) => (header.intro.page_size as usize, header.intro.space),
        Err(e) => recognise(&*file)?.ok_or_else(|| e.clone())?,
    };
    if !page_size.is_power_of_two() || !(MIN_PAGE_SIZE..=MAX_PAGE_SIZE).contains(&page_size) {
        return Err(Error::CorruptFile {
            path: path.into(),
            expected: "a page size from 4096 to 65536".into(),
            found: page_size.to_string(),
        });
    }
    let mut opened = TableFile {
        file,
        page_size,
        space,
        header: header.ok(),
        keyring: keyring.clone(),
        def: None,
    };
    opened.def = opened.stored_definition();
    Ok(opened)
}

impl TableFile {
    /// Opens a table's file, with the keys if it is encrypted.
    ///
    /// # Errors
    ///
    /// `Io`; `CorruptFile` if it is none, or nothing can be made of it.
    pub fn open(
        path: impl AsRef<Path>,
        keys: Option<Arc<dyn EncryptionKeys>>,
    ) -> Result<TableFile> {
        table_file_with(&RealDisk, path.as_ref(), &Keyring::new(keys))
    }

    /// The definition that stands on page 0, or else the second copy, with the name on page 0.
    fn stored_definition(&self) -> Option<TableDef> {
        let mut page = vec![0; self.page_size];
        let mut name = None;
        // The definition has a checksum of its own: it counts whatever else page 0 has lost.
        if self.file.read_at(&mut page, 0).is_ok()
            && let Ok(copy) = DefinitionCopy::read(&page)
        {
            if copy.is_whole()
                && let Ok(def) = TableDef::decode(copy.stored)
            {
                return Some(def);
            }
            name = TableDef::name_in(copy.stored);
        }
        let encoded = self.second_copy(&mut page)?;
        TableDef::decode_copy(&encoded, name).ok()
    }

    /// The second copy of the definition, if all of its pages can be read.
    fn second_copy(&self, page: &mut [u8]) -> Option<Vec<u8>> {
        let mut reader = CopyReader::default();
        self.read(META_PAGE, page).ok()?;
        reader.add(page).then_some(())?;
        // It goes on behind the roots; how many these are is not known yet, and they may be damaged.
        let (mut no, mut roots) = (FIRST_ROOT_PAGE, 0);
        let end = self.pages().ok()?;
        while !reader.is_complete() && roots <= MAX_INDEXES + 1 && no.0 < end {
            let is_next = self.read(no, page).is_ok() && reader.add(page);
            roots += usize::from(!is_next);
            no.0 += 1;
        }
        reader.finish()
    }

    /// The table's definition; `None` if the file has lost both copies. If page 0 is lost, the name may be
    /// one that the table had before.
    pub fn definition(&self) -> Option<&TableDef> {
        self.def.as_ref()
    }

    /// Takes the definition of another file, of the same table or one that was made like it.
    pub fn take_definition(&mut self, other: &TableFile) {
        self.def = other.def.clone();
        if let Some(def) = &mut self.def {
            def.space = self.space;
            def.id = self.header.map_or(TableId(0), |header| header.table);
            def.primary.id = IndexId(0);
        }
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    fn pages(&self) -> Result<u32> {
        let pages = self.file.len()? / self.page_size as u64;
        Ok(u32::try_from(pages).unwrap_or(u32::MAX))
    }

    fn read(&self, no: PageNo, page: &mut [u8]) -> Result<()> {
        let id = PageId::new(self.space, no);
        self.file
            .read_at(page, u64::from(no.0) * self.page_size as u64)?;
        let cipher_of = &mut |version| self.cipher(version);
        page::load_with(page, id, cipher_of).map(drop)
    }

    fn cipher(&self, version: u32) -> Result<Arc<Cipher>> {
        let header = self.header.as_ref().ok_or_else(|| Error::NoKey {
            what: "the file's header, which names it, is damaged".into(),
        })?;
        let (uuid, key) = (&header.intro.uuid, header.encryption.key);
        self.keyring.of_space(uuid, self.space, key, version)
    }

    /// Hands all rows that can be read to `each`, in the order of their keys, and tells what can't: of every
    /// page of the file. An error of `each` or `going_on` ends it.
    pub(crate) fn rows(
        &self,
        def: &TableDef,
        watch: Option<&Watch>,
        going_on: GoingOn<'_>,
        each: &mut dyn FnMut(FromFile<'_>) -> Result<()>,
    ) -> Result<()> {
        let format = def.row_format()?;
        let leaves = self.leaves(def, watch, going_on, each)?;
        tell_gaps(&leaves, each)?;
        let rows = leaves.iter().map(|leaf| leaf.rows).sum();
        let meter = Meter::begin(watch, Phase::Read, rows, ROWS_TOLD_EVERY);
        let mut page = vec![0; self.page_size];
        for leaf in &leaves {
            self.rows_of(leaf.no, &format, &mut page, each)?;
            meter.add(leaf.rows);
        }
        Ok(())
    }

    /// The leaves of the primary key, in the order of their keys. Tells of pages that can't be read.
    fn leaves(
        &self,
        def: &TableDef,
        watch: Option<&Watch>,
        going_on: GoingOn<'_>,
        each: &mut dyn FnMut(FromFile<'_>) -> Result<()>,
    ) -> Result<Vec<Leaf>> {
        let mut page = vec![0; self.page_size];
        let mut found: Vec<(u64, Leaf)> = Vec::new();
        let pages = self.pages()?;
        let meter = Meter::begin(watch, Phase::CheckPages, pages.into(), PAGES_TOLD_EVERY);
        for no in (0..pages).map(PageNo) {
            going_on()?;
            meter.add(1);
            if let Err(e) = self.read(no, &mut page) {
                each(FromFile::Skipped(format!("page {no}: {}", reason(&e))))?;
                continue;
            }
            if page_type(&page) != Some(PageType::Leaf) {
                continue;
            }
            let p = SlottedRef::new(&page);
            let leaf = Leaf {
                no,
                rows: p.n_slots() as u64,
                low: p.low().to_vec(),
                high: p.high().map(<[u8]>::to_vec),
            };
            found.push((p.owner(), leaf));
        }
        // With the definition of another file the number of the primary key is not known. It is the lowest.
        let primary = match def.primary.id {
            IndexId(0) => found.iter().map(|(owner, _)| *owner).min().unwrap_or(0),
            id => id.0,
        };
        found.retain(|(owner, _)| *owner == primary);
        found.sort_by(|a, b| a.1.low.cmp(&b.1.low));
        Ok(found.into_iter().map(|(_, leaf)| leaf).collect())
    }

    fn rows_of(
        &self,
        no: PageNo,
        format: &RowFormat,
        page: &mut [u8],
        each: &mut dyn FnMut(FromFile<'_>) -> Result<()>,
    ) -> Result<()> {
        self.read(no, page)?;
        let p = SlottedRef::new(page);
        for slot in 0..p.n_slots() {
            let payload = p.payload(slot);
            each(match RowRecord::decode(payload) {
                None => FromFile::Skipped(format!("page {no}, record {slot}: too short")),
                Some(record) => match RowRef::new(format, &payload[ROW_AT..]) {
                    Ok(row) => FromFile::Row {
                        is_deleted: record.is_deleted(),
                        row,
                    },
                    Err(d) => FromFile::Skipped(format!(
                        "page {no}, record {slot}: expected {}, found {}",
                        d.expected, d.found
                    )),
                },
            })?;
        }
        Ok(())
    }

    /// An external value; `None` if a page is not there or can't be read.
    pub(crate) fn external_value(&self, def: &TableDef, chain: &ExternalRef) -> Option<Vec<u8>> {
        let capacity = overflow_capacity(self.page_size);
        let most = u64::from(self.pages().ok()?) * capacity as u64;
        if u64::from(chain.len) > most {
            return None;
        }
        let mut value = Vec::with_capacity(chain.len as usize);
        let mut page = vec![0; self.page_size];
        let (mut no, mut index) = (chain.page, 0);
        while value.len() < chain.len as usize {
            if no == NO_PAGE || self.read(no, &mut page).is_err() {
                return None;
            }
            let expected = (chain.len as usize - value.len()).min(capacity);
            let piece = OverflowPage::decode(&page)?;
            let is_next = (piece.trx, piece.seq, piece.index) == (chain.trx, chain.seq, index)
                && (def.id == TableId(0) || piece.table == def.id)
                && piece.data.len() == expected;
            if !is_next {
                return None;
            }
            value.extend_from_slice(piece.data);
            (no, index) = (piece.next, index + 1);
        }
        Some(value)
    }

    /// The next value of the AUTO_INCREMENT counter.
    pub(crate) fn auto_increment(&self) -> Result<u64> {
        let mut page = vec![0; self.page_size];
        self.read(META_PAGE, &mut page)?;
        let at = META_AUTO_INCREMENT;
        let bytes = page[at..at + 8].try_into();
        Ok(u64::from_le_bytes(bytes.expect("8 bytes")))
    }
}

/// Page size and tablespace of a file whose header is lost: from the first page that has a right checksum.
fn recognise(file: &dyn DiskFile) -> Result<Option<(usize, SpaceId)>> {
    let len = file.len()?;
    let mut size = MIN_PAGE_SIZE;
    while size <= MAX_PAGE_SIZE {
        let mut page = vec![0; size];
        for no in 1..(len / size as u64).min(64) {
            file.read_at(&mut page, no * size as u64)?;
            let id = page_id(&page);
            let is_right = u64::from(id.no.0) == no && page::verify(&page, id).is_ok();
            if is_right && !page::is_zero(&page) {
                return Ok(Some((size, id.space)));
            }
        }
        size *= 2;
    }
    Ok(None)
}

/// A leaf that can be read.
struct Leaf {
    no: PageNo,
    /// Also those that are deleted.
    rows: u64,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

/// Together the fences of all leaves go from the empty key to infinity.
fn tell_gaps(leaves: &[Leaf], each: &mut dyn FnMut(FromFile<'_>) -> Result<()>) -> Result<()> {
    let mut end: Option<&[u8]> = Some(&[]);
    for leaf in leaves {
        if end != Some(leaf.low.as_slice()) {
            let to = hex(&leaf.low);
            let what = match end {
                Some(end) if end < leaf.low.as_slice() => {
                    format!(
                        "no page has the rows with keys from {} up to {to}",
                        hex(end)
                    )
                }
                _ => format!("page {} has rows that another page has, too", leaf.no),
            };
            each(FromFile::Skipped(what))?;
        }
        end = leaf.high.as_deref();
    }
    match end {
        None if !leaves.is_empty() => Ok(()),
        _ => {
            let from = hex(end.unwrap_or_default());
            each(FromFile::Skipped(format!(
                "no page has the rows with keys from {from} on"
            )))
        }
    }
}

/// Why a page can't be read, without its address.
fn reason(e: &Error) -> String {
    match e {
        Error::Corrupt {
            expected, found, ..
        } => format!("expected {expected}, found {found}"),
        other => other.to_string(),
    }
}

fn hex(key: &[u8]) -> String {
    match key.is_empty() {
        true => "the first".into(),
        false => key.iter().map(|b| format!("{b:02x}")).collect(),
    }
}
