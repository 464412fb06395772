//! The doublewrite file `doublewrite.vdw`: whole copies of the pages that are just being written in place.
//!
//! ```text
//!    0  the 64 bytes that every file begins with (magic VARVEDWR)
//!   64  u32 number of pages in the batch
//!   68  per page: u64 address (tablespace in the upper half), u32 the page's own checksum
//! 3140  u32 bytes of the paths, u32 crc32c of them
//! 3148  per page: u8 blocks of 4 KiB that it takes if it is compressed, else 0
//! 4092  u32 crc32c of bytes 0..4092
//! 4096  the pages, of compressed ones the blocks that they take in their places
//!       the paths: per tablespace u32 its number, u16 length and bytes of its file's path
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
//! The files of tables are not open then, and what leads to their names may itself be torn: so a batch says
//! where the files were, and they are opened by that. One that is not there any more was dropped, or has
//! another name now: whoever opens files has to find out.
//!
//! [`recover`] runs before redo. It can be interrupted and repeated.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use crate::base::{Error, PageId, Result, SpaceId, map_together};
use crate::buffer::PageStore;
use crate::io::{DIRECT_BLOCK, Disk, DiskFile, OpenMode};
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
/// Room for the paths of all tablespaces of a batch. One that does not fit in is left out.
const MOST_PATH_BYTES: usize = 128 << 10;
/// Batches are about this long: long enough to make the syncs cheap, short enough not to stall.
const BATCH_BYTES: usize = 2 << 20;

const PATHS_AT: usize = ENTRIES_AT + 256 * ENTRY_BYTES;

const BLOCKS_AT: usize = PATHS_AT + 8;

const _: () = assert!(BLOCKS_AT + 256 <= CRC_AT);

/// Pages in one batch, at most 256.
pub fn batch_pages(page_size: usize) -> usize {
    (BATCH_BYTES / page_size).min(256)
}

/// The open file.
pub struct Doublewrite {
    file: Arc<dyn DiskFile>,
    intro: FileIntro,
    /// A batch with compressed pages, as it stands in the file.
    packed: Vec<u8>,
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
        let bytes = HEADER_BYTES + batch_pages(page_size) * page_size + MOST_PATH_BYTES;
        file.allocate(bytes as u64)?;
        file.write_at(&[0; HEADER_BYTES], 0)?;
        file.sync()?;
        disk.sync_dir(dir)?;
        Ok(Doublewrite {
            file,
            intro: FileIntro::new(MAGIC, page_size as u32, uuid, NO_SPACE),
            packed: Vec::new(),
        })
    }

    /// Makes a batch durable. `buf` is room for the header, then the pages, sealed, in the order of `ids`.
    /// `path` has the paths of tablespaces. Returns how many bytes were written.
    pub fn write(
        &mut self,
        ids: &[PageId],
        buf: &mut [u8],
        path: impl Fn(SpaceId) -> Option<String>,
    ) -> Result<usize> {
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
        let lengths: Vec<usize> = pages
            .chunks_exact(page_size)
            .map(page::place_bytes)
            .collect();
        let is_whole = |bytes: &usize| *bytes == page_size;
        for (blocks, bytes) in header[BLOCKS_AT..].iter_mut().zip(&lengths) {
            *blocks = match is_whole(bytes) {
                true => 0,
                false => (bytes / DIRECT_BLOCK) as u8,
            };
        }
        let paths = encode_paths(ids, path);
        let paths_crc = crc32c::crc32c(&paths);
        header[PATHS_AT..][..4].copy_from_slice(&(paths.len() as u32).to_le_bytes());
        header[PATHS_AT + 4..][..4].copy_from_slice(&paths_crc.to_le_bytes());
        let crc = crc32c::crc32c(&header[..CRC_AT]);
        header[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        let batch = match lengths.iter().all(is_whole) {
            true => &*buf,
            false => {
                self.packed.clear();
                self.packed.extend_from_slice(header);
                for (page, bytes) in pages.chunks_exact(page_size).zip(&lengths) {
                    self.packed.extend_from_slice(&page[..*bytes]);
                }
                &self.packed[..]
            }
        };
        self.file.write_at(batch, 0)?;
        self.file.write_at(&paths, batch.len() as u64)?;
        self.file.sync()?;
        Ok(batch.len() + paths.len())
    }
}

fn encode_paths(ids: &[PageId], path: impl Fn(SpaceId) -> Option<String>) -> Vec<u8> {
    let spaces: BTreeSet<SpaceId> = ids.iter().map(|id| id.space).collect();
    let mut paths = Vec::new();
    for space in spaces {
        if let Some(path) = path(space)
            && paths.len() + 6 + path.len() <= MOST_PATH_BYTES
        {
            paths.extend_from_slice(&space.0.to_le_bytes());
            paths.extend_from_slice(&(path.len() as u16).to_le_bytes());
            paths.extend_from_slice(path.as_bytes());
        }
    }
    paths
}

/// As far as they make sense.
fn decode_paths(mut bytes: &[u8]) -> HashMap<SpaceId, String> {
    let mut paths = HashMap::new();
    while let Some((space, rest)) = bytes.split_first_chunk()
        && let Some((len, rest)) = rest.split_first_chunk()
        && let Some((path, rest)) = rest.split_at_checked(u16::from_le_bytes(*len).into())
        && let Ok(path) = std::str::from_utf8(path)
    {
        paths.insert(SpaceId(u32::from_le_bytes(*space)), path.to_string());
        bytes = rest;
    }
    paths
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
    Ok(read_batch(disk, dir, page_size, uuid, &mut |_| {})?.copies)
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

/// The last batch, as far as it is whole.
#[derive(Default)]
struct Batch {
    copies: Vec<(PageId, Vec<u8>)>,
    /// Where the tablespaces were.
    paths: HashMap<SpaceId, String>,
}

/// Reads the last batch; hands what is not whole to `torn`.
fn read_batch(
    disk: &dyn Disk,
    dir: &Path,
    page_size: usize,
    uuid: &[u8; 16],
    torn: &mut dyn FnMut(Error),
) -> Result<Batch> {
    let path = dir.join(DOUBLEWRITE_FILE);
    if !disk.exists(&path)? {
        return Ok(Batch::default());
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
        return Ok(Batch::default());
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
        return Ok(Batch::default());
    }
    let intro = FileIntro::decode(MAGIC, &header, &path)?;
    intro.check_owner(uuid, &path)?;
    let pages = u32::from_le_bytes(header[COUNT_AT..ENTRIES_AT].try_into().unwrap()) as usize;
    let of_page = |i: usize| match header[BLOCKS_AT..CRC_AT].get(i) {
        None | Some(0) => page_size,
        Some(blocks) => (usize::from(*blocks) * DIRECT_BLOCK).min(page_size),
    };
    let needed = HEADER_BYTES + (0..pages.min(256)).map(of_page).sum::<usize>();
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
    let mut at = HEADER_BYTES;
    for (i, entry) in entries.enumerate() {
        let id = PageId::from_u64(u64::from_le_bytes(
            *entry.first_chunk().expect("entries have 12 bytes"),
        ));
        let mut copy = vec![0u8; page_size];
        file.read_at(&mut copy[..of_page(i)], at as u64)?;
        at += of_page(i);
        // A zero page would pass the check of its checksum; no batch contains one.
        match page::verify(&copy, id) {
            Ok(()) if copy[..4] == entry[8..] && !page::is_zero(&copy) => copies.push((id, copy)),
            Ok(()) => tell(format!("a copy of {id}"), "another version of it".into()),
            Err(e) => tell(format!("a copy of {id}"), e.to_string()),
        }
    }
    let u32_at =
        |at: usize| u32::from_le_bytes(*header[at..].first_chunk().expect("the header has it"));
    let mut paths = vec![0; (u32_at(PATHS_AT) as usize).min(MOST_PATH_BYTES)];
    let is_whole = len >= (needed + paths.len()) as u64 && {
        file.read_at(&mut paths, needed as u64)?;
        crc32c::crc32c(&paths) == u32_at(PATHS_AT + 4)
    };
    let paths = match is_whole {
        true => decode_paths(&paths),
        false => HashMap::new(),
    };
    Ok(Batch { copies, paths })
}

/// Repairs pages that were torn by a crash, before redo is applied, and makes durable those that are whole
/// (DW-1). `open` is asked to have a tablespace open, if there is one; it is told where its file was. Returns
/// which pages were torn.
pub fn recover(
    disk: &dyn Disk,
    dir: &Path,
    page_size: usize,
    uuid: &[u8; 16],
    store: &dyn PageStore,
    open_space: &dyn Fn(SpaceId, Option<&str>) -> Result<()>,
) -> Result<Vec<PageId>> {
    let mut repaired: Vec<PageId> = Vec::new();
    // In the batch's order, which is sorted: equal tablespaces stand together.
    let mut spaces = Vec::new();
    // Until they are synced.
    let mut open = Vec::new();
    let Batch { copies, paths } = read_batch(disk, dir, page_size, uuid, &mut |_| {})?;
    for of_one in copies.chunk_by(|a, b| a.0.space == b.0.space) {
        let space = of_one[0].0.space;
        open_space(space, paths.get(&space).map(String::as_str))?;
    }
    let is_whole = |(id, _): &(PageId, Vec<u8>)| -> Result<bool> {
        let mut found = vec![0u8; page_size];
        store.read(*id, &mut found)?;
        Ok(page::verify(&found, *id).is_ok())
    };
    let found = map_together(&copies, store.disk_threads(), is_whole);
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
