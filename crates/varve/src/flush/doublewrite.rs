//! The doublewrite file `doublewrite.vdw`: whole copies of the pages that are just being written in place.
//!
//! ```text
//!    0  the 64 bytes that every file begins with (magic VARVEDWR)
//!   64  u32 number of pages in the batch
//!   68  per page: u64 address (tablespace in the upper half), u32 the page's own checksum
//! 4092  u32 crc32c of bytes 0..4092
//! 4096  the pages
//! ```
//!
//! - **DW-1** The file holds the last batch. The pages of the one before have been synced in place when it is
//!   overwritten, also if another process has written them, and died: what it has left in the system's cache
//!   can still be torn by a loss of power.
//! - **DW-2** No page of a batch is written in place before the whole batch is durable here.
//!
//! So after a crash: if the header is not whole, or a copy does not have the checksum that the header says,
//! the batch had not become durable, and none of the pages concerned was being written in place. Otherwise a
//! page that is damaged in place was torn, and the copy is exactly what was being written. A page that is
//! whole in place, in whatever version, is left alone: redo does the rest.
//!
//! [`recover`] runs before redo. It can be interrupted and repeated.

use std::path::Path;
use std::sync::Arc;

use crate::base::{DISK_THREADS, Error, PageId, Result, map_together};
use crate::buffer::PageStore;
use crate::io::{Disk, DiskFile, OpenMode};
use crate::page;
use crate::redo::{FileIntro, INTRO_BYTES, NO_SPACE};

/// The file's name in the data directory.
pub const DOUBLEWRITE_FILE: &str = "doublewrite.vdw";

/// Bytes before the first page.
pub const HEADER_BYTES: usize = 4096;

const MAGIC: &[u8; 8] = b"VARVEDWR";
const COUNT_AT: usize = INTRO_BYTES;
const ENTRIES_AT: usize = COUNT_AT + 4;
const ENTRY_BYTES: usize = 12;
const CRC_AT: usize = HEADER_BYTES - 4;
/// Batches are about this long: long enough to make the syncs cheap, short enough not to stall.
const BATCH_BYTES: usize = 2 << 20;

const _: () = assert!(ENTRIES_AT + 256 * ENTRY_BYTES <= CRC_AT);

/// Pages in one batch, at most 256.
pub fn batch_pages(page_size: usize) -> usize {
    (BATCH_BYTES / page_size).min(256)
}

/// The open file.
pub struct Doublewrite {
    file: Arc<dyn DiskFile>,
    intro: FileIntro,
}

impl Doublewrite {
    /// Opens the file, creating it if there is none. Recovery must have been through it: what is in it is
    /// forgotten, because pages that are written atomically from now on may be newer than copies from before.
    pub fn open(
        disk: &dyn Disk,
        dir: &Path,
        page_size: usize,
        uuid: [u8; 16],
    ) -> Result<Doublewrite> {
        let path = dir.join(DOUBLEWRITE_FILE);
        let exists = disk.exists(&path)?;
        let mode = match exists {
            true => OpenMode::Existing,
            false => OpenMode::CreateNew,
        };
        let file = disk.open(&path, mode)?;
        file.allocate((HEADER_BYTES + batch_pages(page_size) * page_size) as u64)?;
        file.write_at(&[0; HEADER_BYTES], 0)?;
        file.sync()?;
        disk.sync_dir(dir)?;
        Ok(Doublewrite {
            file,
            intro: FileIntro::new(MAGIC, page_size as u32, uuid, NO_SPACE),
        })
    }

    /// Makes a batch durable. `buf` is room for the header, then the pages, sealed, in the order of `ids`.
    pub fn write(&mut self, ids: &[PageId], buf: &mut [u8]) -> Result<()> {
        let page_size = self.intro.page_size as usize;
        assert!(ids.len() <= batch_pages(page_size));
        let (header, pages) = buf.split_at_mut(HEADER_BYTES);
        assert_eq!(pages.len(), ids.len() * page_size);
        header.fill(0);
        self.intro.encode(header);
        header[COUNT_AT..ENTRIES_AT].copy_from_slice(&(ids.len() as u32).to_le_bytes());
        let entries = header[ENTRIES_AT..].chunks_exact_mut(ENTRY_BYTES);
        for ((entry, id), page) in entries.zip(ids).zip(pages.chunks_exact(page_size)) {
            entry[..8].copy_from_slice(&id.to_u64().to_le_bytes());
            entry[8..].copy_from_slice(&page[..4]);
        }
        let crc = crc32c::crc32c(&header[..CRC_AT]);
        header[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        self.file.write_at(buf, 0)?;
        self.file.sync()
    }
}

/// Forgets what is in the file, if there is one: the database goes on without it, and pages written from now
/// on have no copy there.
pub fn invalidate(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let path = dir.join(DOUBLEWRITE_FILE);
    if !disk.exists(&path)? {
        return Ok(());
    }
    let file = disk.open(&path, OpenMode::Existing)?;
    file.write_at(&[0; HEADER_BYTES], 0)?;
    file.sync()
}

/// The whole copies of the last batch; none if there is no file or the batch did not become durable.
pub fn read_copies(
    disk: &dyn Disk,
    dir: &Path,
    page_size: usize,
    uuid: &[u8; 16],
) -> Result<Vec<(PageId, Vec<u8>)>> {
    read_batch(disk, dir, page_size, uuid, &mut |_| {})
}

/// The copies in the file that are not whole. After a crash they may be of a batch that had not become
/// durable; after a clean shutdown they are damage.
pub fn damaged_copies(
    disk: &dyn Disk,
    dir: &Path,
    page_size: usize,
    uuid: &[u8; 16],
) -> Result<Vec<Error>> {
    let mut errors = Vec::new();
    read_batch(disk, dir, page_size, uuid, &mut |e| errors.push(e))?;
    Ok(errors)
}

/// Reads the last batch; hands what is not whole to `torn`.
fn read_batch(
    disk: &dyn Disk,
    dir: &Path,
    page_size: usize,
    uuid: &[u8; 16],
    torn: &mut dyn FnMut(Error),
) -> Result<Vec<(PageId, Vec<u8>)>> {
    let path = dir.join(DOUBLEWRITE_FILE);
    if !disk.exists(&path)? {
        return Ok(Vec::new());
    }
    let mut tell = |expected: String, found: String| {
        let path = path.clone();
        torn(Error::CorruptFile {
            path,
            expected,
            found,
        })
    };
    let file = disk.open(&path, OpenMode::ReadOnly)?;
    let len = file.len()?;
    let mut header = vec![0u8; HEADER_BYTES];
    if len < HEADER_BYTES as u64 {
        tell("a header of 4096 bytes".into(), format!("{len} bytes"));
        return Ok(Vec::new());
    }
    file.read_at(&mut header, 0)?;
    let computed = crc32c::crc32c(&header[..CRC_AT]);
    if computed.to_le_bytes() != header[CRC_AT..] {
        // Zeros: nothing was written yet, or the database went on without the file.
        if !page::is_zero(&header) {
            let stored = u32::from_le_bytes(header[CRC_AT..].try_into().unwrap());
            let found = format!("{computed:08x}");
            tell(format!("header checksum {stored:08x}"), found);
        }
        return Ok(Vec::new());
    }
    let intro = FileIntro::decode(MAGIC, &header, &path)?;
    intro.check_owner(uuid, &path)?;
    let pages = u32::from_le_bytes(header[COUNT_AT..ENTRIES_AT].try_into().unwrap()) as usize;
    let needed = HEADER_BYTES + pages.saturating_mul(page_size);
    if intro.page_size as usize != page_size
        || pages > batch_pages(page_size)
        || len < needed as u64
    {
        return Err(Error::CorruptFile {
            path,
            expected: format!(
                "at most {} pages of {page_size} bytes",
                batch_pages(page_size)
            ),
            found: format!(
                "{pages} pages of {} bytes in a file of {len} bytes",
                intro.page_size
            ),
        });
    }
    let mut copies = Vec::new();
    let entries = header[ENTRIES_AT..].chunks_exact(ENTRY_BYTES).take(pages);
    for (i, entry) in entries.enumerate() {
        let id = PageId::from_u64(u64::from_le_bytes(entry[..8].try_into().unwrap()));
        let mut copy = vec![0u8; page_size];
        file.read_at(&mut copy, (HEADER_BYTES + i * page_size) as u64)?;
        // A zero page would pass the check of its checksum; no batch contains one.
        match page::verify(&copy, id) {
            Ok(()) if copy[..4] == entry[8..] && !page::is_zero(&copy) => copies.push((id, copy)),
            Ok(()) => tell(format!("a copy of {id}"), "another version of it".into()),
            Err(e) => tell(format!("a copy of {id}"), e.to_string()),
        }
    }
    Ok(copies)
}

/// Repairs pages that were torn by a crash, before redo is applied, and makes durable those that are whole
/// (DW-1). Returns which ones were torn.
pub fn recover(
    disk: &dyn Disk,
    dir: &Path,
    page_size: usize,
    uuid: &[u8; 16],
    store: &dyn PageStore,
) -> Result<Vec<PageId>> {
    let mut repaired: Vec<PageId> = Vec::new();
    // In the batch's order, which is sorted: equal tablespaces stand together.
    let mut spaces = Vec::new();
    // Until they are synced.
    let mut open = Vec::new();
    let copies = read_copies(disk, dir, page_size, uuid)?;
    let is_whole = |(id, _): &(PageId, Vec<u8>)| -> Result<bool> {
        let mut found = vec![0u8; page_size];
        store.read(*id, &mut found)?;
        Ok(page::verify(&found, *id).is_ok())
    };
    let threads = match store.reads_in_background() {
        true => DISK_THREADS,
        false => 1,
    };
    let found = map_together(&copies, threads, is_whole);
    for ((id, copy), is_whole) in copies.into_iter().zip(found) {
        let is_whole = match is_whole {
            Ok(is_whole) => is_whole,
            // Nothing was torn there, and damage is not hidden: `read` checks no page. The first says that
            // there is no such tablespace now: it was dropped, or its file is missing, which recovery tells
            // by itself when redo names it. The second says that the page lies beyond the file's end. A crash
            // takes away the end of a file only if it was never synced, and then redo begins before the first
            // change of the page. If somebody else cut the file off, redo that begins later finds a page of
            // zeros, to which its records do not apply, and a reader finds none: both tell the page.
            Err(Error::NotFound { .. } | Error::Corrupt { .. }) => continue,
            Err(e) => return Err(e),
        };
        spaces.push(id.space);
        if !is_whole {
            open.push(store.keep_open(id.space)?);
            store.write(id, &copy)?;
            repaired.push(id);
        }
    }
    spaces.dedup();
    store.sync_all(&spaces)?;
    Ok(repaired)
}
