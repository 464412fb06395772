//! The page map: which redo each page lacks.
//!
//! [`Collector`] takes the log's chunks in their order. When they take more memory than allowed they are merged, sorted by page, and
//! written to a file as a **run**; an index of the run stays in memory, 16 bytes a page. The file is made when it is first needed, removed
//! when everything is applied, and at the next start if a crash comes before. [`PageMap`] is what comes of it: the runs, oldest first, and
//! what is left in memory as the last one.
//!
//! - **MAP-1** The changes of a page are those of its segments in all runs, from the last one on that starts the page as zeros, in the order of the runs: the order
//!   of the log (CHAIN-1).
//! - **MAP-2** A page leaves the map after its frame was registered as changed (BUF-6), or when its tablespace is gone. `left` counts
//!   those that have not, `loading` the threads that are at it: who begins counts itself, and then looks whether the page is still in the map. Once both are seen to be 0, in
//!   this order, all pages are registered and no other will be, not even one whose tablespace went while it was being loaded. Both words, and the bits, are
//!   read and written with SeqCst for that.
//! - **MAP-3** What is read back from the file has the checksum with which it was written.
//!
//! Memory: the bound for chunks, and the indexes (`memory_bytes`). No latches; while a page is applied, its frame's is held by the caller.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

use parking_lot::Mutex;

use super::chain::{self, Chunk, Segment};
use crate::base::{Error, Lsn, PageId, PageNo, Result, SpaceId};
use crate::buffer::{Need, PageStore, PendingRedo};
use crate::io::{Disk, DiskFile, OpenMode};
use crate::page::page_lsn;

/// The file of runs, in the data directory.
pub const SPILL_FILE: &str = "varve.recovery";

/// A segment's checksum stands before it.
const CRC: usize = 4;
/// How much of a run is written at once.
const WRITE_BYTES: usize = 1 << 20;
/// More is not read back at once for a batch of pages.
const READ_BACK_BYTES: usize = 8 << 20;
/// The largest memory bound: places in a run have 32 bits.
pub const MAX_MEMORY_BYTES: u64 = 1 << 30;

/// A segment of a chunk that is in memory.
#[derive(Clone, Copy)]
struct Held {
    segment: Segment,
    chunk: u32,
}

/// What the log says after the last run.
#[derive(Default)]
struct Latest {
    chunks: Vec<Vec<u8>>,
    /// Ascending by page, those of a page in the order of the log (CHAIN-1).
    held: Vec<Held>,
}

impl Latest {
    fn bytes(&self, held: &Held) -> &[u8] {
        &self.chunks[held.chunk as usize][held.segment.range()]
    }
}

fn merge(chunks: Vec<Chunk>) -> Latest {
    let mut latest = Latest::default();
    for chunk in chunks {
        let no = latest.chunks.len() as u32;
        let segments = chunk
            .index
            .iter()
            .map(|&segment| Held { segment, chunk: no });
        latest.held.extend(segments);
        latest.chunks.push(chunk.bytes);
    }
    // Stable: the chunks came in order. It makes use of their being sorted.
    latest.held.sort_by_key(|held| held.segment.page);
    latest
}

/// Those of one page that count.
fn needed(of_page: &[Held]) -> &[Held] {
    let starts_fresh = |held: &Held| held.segment.starts_fresh();
    &of_page[of_page.iter().rposition(starts_fresh).unwrap_or(0)..]
}

/// Both in ascending order, without repetition.
fn union(pages: &[u64], others: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut out = Vec::with_capacity(pages.len());
    let mut rest = pages.iter().copied().peekable();
    for other in others {
        while let Some(page) = rest.next_if(|page| *page < other) {
            out.push(page);
        }
        if out.last() != Some(&other) && rest.peek() != Some(&other) {
            out.push(other);
        }
    }
    out.extend(rest);
    out
}

/// Where the runs are.
struct Spill {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Option<Arc<dyn DiskFile>>,
    len: u64,
}

impl Spill {
    fn file(&mut self) -> Result<Arc<dyn DiskFile>> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let file = self.disk.open(&self.path, OpenMode::CreateNew)?;
        self.file = Some(file.clone());
        Ok(file)
    }

    /// Writes everything as a run.
    fn write(&mut self, latest: &Latest) -> Result<Run> {
        let file = self.file()?;
        let (begin, mut buf, mut index) = (self.len, Vec::new(), Vec::new());
        let flush = |buf: &mut Vec<u8>, len: &mut u64| {
            file.write_at(buf, *len)?;
            *len += buf.len() as u64;
            buf.clear();
            Ok::<_, Error>(())
        };
        for of_page in latest
            .held
            .chunk_by(|a, b| a.segment.page == b.segment.page)
        {
            let segments = needed(of_page);
            let at = (self.len - begin) as usize + buf.len();
            let parts = || segments.iter().map(|held| latest.bytes(held));
            let crc = parts().fold(0, crc32c::crc32c_append);
            buf.extend_from_slice(&crc.to_le_bytes());
            parts().for_each(|part| buf.extend_from_slice(part));
            let len = CRC + parts().map(<[u8]>::len).sum::<usize>();
            let first = segments[0].segment;
            index.push(Segment::new(first.page, at, len, first.starts_fresh()));
            if buf.len() >= WRITE_BYTES {
                flush(&mut buf, &mut self.len)?;
            }
        }
        flush(&mut buf, &mut self.len)?;
        index.shrink_to_fit();
        Ok(Run { begin, index })
    }

    fn remove(&mut self) -> Result<()> {
        match self.file.take() {
            Some(_) => self.disk.remove(&self.path),
            None => Ok(()),
        }
    }
}

/// A part of the log in the file, sorted by page.
struct Run {
    begin: u64,
    index: Vec<Segment>,
}

impl Run {
    fn find(&self, page: u64) -> Option<&Segment> {
        let at = self.index.binary_search_by_key(&page, |s| s.page).ok()?;
        Some(&self.index[at])
    }
}

/// Takes in the log's chunks.
pub struct Collector {
    spill: Spill,
    memory_bytes: usize,
    chunks: Vec<Chunk>,
    chunk_bytes: usize,
    peak_bytes: usize,
    runs: Vec<Run>,
    pages: Vec<u64>,
    /// What was lost on purpose.
    forgets_a_run: bool,
}

impl Collector {
    /// Removes what an earlier process left.
    pub fn new(disk: Arc<dyn Disk>, dir: &Path, memory_bytes: u64) -> Result<Collector> {
        let path = dir.join(SPILL_FILE);
        if disk.exists(&path)? {
            disk.remove(&path)?;
        }
        Ok(Collector {
            spill: Spill {
                disk,
                path,
                file: None,
                len: 0,
            },
            memory_bytes: memory_bytes.min(MAX_MEMORY_BYTES) as usize,
            chunks: Vec::new(),
            chunk_bytes: 0,
            peak_bytes: 0,
            runs: Vec::new(),
            pages: Vec::new(),
            forgets_a_run: false,
        })
    }

    pub fn forget_a_run(&mut self) {
        self.forgets_a_run = true;
    }

    /// # Errors
    ///
    /// `NoSpace`: there is no room for a run. What was taken in is of no use then.
    pub fn take(&mut self, chunk: Chunk) -> Result<()> {
        self.chunk_bytes += chunk.memory_bytes();
        self.peak_bytes = self.peak_bytes.max(self.chunk_bytes);
        self.chunks.push(chunk);
        match self.chunk_bytes > self.memory_bytes {
            true => self.spill_all(),
            false => Ok(()),
        }
    }

    fn spill_all(&mut self) -> Result<()> {
        let latest = self.merge();
        let run = self.spill.write(&latest)?;
        if !std::mem::take(&mut self.forgets_a_run) {
            self.runs.push(run);
        }
        Ok(())
    }

    fn merge(&mut self) -> Latest {
        self.chunk_bytes = 0;
        let latest = merge(std::mem::take(&mut self.chunks));
        let pages = latest.held.iter().map(|held| held.segment.page);
        self.pages = union(&self.pages, pages);
        latest
    }

    /// Everything was taken in.
    pub fn finish(mut self) -> PageMap {
        let latest = self.merge();
        let pages = std::mem::take(&mut self.pages);
        let words = pages.len().div_ceil(64);
        PageMap {
            spilled_bytes: self.spill.len,
            runs: std::mem::take(&mut self.runs),
            latest,
            applied: (0..words).map(|_| AtomicU64::new(0)).collect(),
            left: AtomicU64::new(pages.len() as u64),
            loading: AtomicU64::new(0),
            peak_bytes: self.peak_bytes,
            pages,
            spill: Mutex::new(self.spill),
            given_up: Mutex::default(),
        }
    }

    /// Nothing of it is wanted.
    pub fn discard(mut self) -> Result<()> {
        self.spill.remove()
    }
}

/// The redo that pages lack.
pub struct PageMap {
    runs: Vec<Run>,
    latest: Latest,
    /// All pages, ascending.
    pages: Vec<u64>,
    /// A bit for each of `pages` that is out of the map (MAP-2).
    applied: Box<[AtomicU64]>,
    left: AtomicU64,
    /// Threads that are applying redo to a page.
    loading: AtomicU64,
    spilled_bytes: u64,
    peak_bytes: usize,
    spill: Mutex<Spill>,
    /// Pages that count as done although they stay (REC-6).
    given_up: Mutex<BTreeSet<usize>>,
}

impl PageMap {
    /// Pages whose redo is not applied.
    pub fn left(&self) -> u64 {
        self.left.load(Acquire)
    }

    /// No page is left, and no page will be registered any more (MAP-2).
    pub fn is_through(&self) -> bool {
        self.left.load(SeqCst) == 0 && self.loading.load(SeqCst) == 0
    }

    /// How many pages there were, in the order of which `page` gives them.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Page number `n`, if its redo is not applied and it was not given up.
    pub fn page(&self, n: usize) -> Option<PageId> {
        let waits = !self.is_applied(n) && !self.given_up.lock().contains(&n);
        waits.then(|| PageId::from_u64(self.pages[n]))
    }

    #[cfg(test)]
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    pub fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes
    }

    /// The most that chunks took, and what the indexes take.
    pub fn memory_bytes(&self) -> u64 {
        let segments: usize = self.runs.iter().map(|run| run.index.len()).sum();
        let indexes = segments * size_of::<Segment>()
            + self.latest.held.len() * size_of::<Held>()
            + self.pages.len() * size_of::<u64>();
        (self.peak_bytes + indexes) as u64
    }

    /// The tablespaces, each with the last of its pages that lacks redo.
    pub fn spaces(&self) -> Vec<PageId> {
        let of_space = self.pages.chunk_by(|a, b| a >> 32 == b >> 32);
        of_space
            .filter_map(|pages| pages.last().copied().map(PageId::from_u64))
            .collect()
    }

    /// Makes durable what the tablespaces' files hold (REC-7).
    pub fn sync_files(&self, store: &dyn PageStore) -> Result<()> {
        let spaces = self.spaces().into_iter().map(|page| page.space);
        store.sync_all(&spaces.collect::<Vec<_>>())
    }

    /// Removes the file. Everything is applied.
    pub fn remove_file(&self) -> Result<()> {
        self.spill.lock().remove()
    }

    fn is_applied(&self, n: usize) -> bool {
        self.applied[n / 64].load(SeqCst) & 1 << (n % 64) != 0
    }

    fn leave(&self, n: usize) {
        let bit = 1 << (n % 64);
        let was_there = self.applied[n / 64].fetch_or(bit, SeqCst) & bit == 0;
        if was_there && !self.given_up.lock().remove(&n) {
            self.left.fetch_sub(1, SeqCst);
        }
    }

    /// The redo can't be applied. The page stays, so that nobody gets to see it without, but nobody waits for it any more.
    pub fn give_up(&self, page: PageId) {
        let Some(n) = self.number(page) else {
            return;
        };
        let mut given_up = self.given_up.lock();
        if !self.is_applied(n) && given_up.insert(n) {
            self.left.fetch_sub(1, SeqCst);
        }
    }

    /// Pages were given up and stay.
    pub fn has_given_up(&self) -> bool {
        !self.given_up.lock().is_empty()
    }

    fn number(&self, page: PageId) -> Option<usize> {
        self.pages.binary_search(&page.to_u64()).ok()
    }

    /// The page's segments in memory that count.
    fn latest_of(&self, page: u64) -> &[Held] {
        let held = &self.latest.held;
        let begin = held.partition_point(|h| h.segment.page < page);
        let len = held[begin..].partition_point(|h| h.segment.page == page);
        match &held[begin..begin + len] {
            [] => &[],
            of_page => needed(of_page),
        }
    }

    /// The first run whose changes count, and whether they start the page as zeros; the number of runs if those in memory do.
    fn first_needed(&self, page: u64, latest: &[Held]) -> (usize, bool) {
        if latest.first().is_some_and(|h| h.segment.starts_fresh()) {
            return (self.runs.len(), true);
        }
        let starts_fresh = |run: &Run| run.find(page).is_some_and(Segment::starts_fresh);
        match self.runs.iter().rposition(starts_fresh) {
            Some(first) => (first, true),
            None => (0, false),
        }
    }

    fn read_file(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        let file = self.spill.lock().file.clone();
        // It stays until everything is applied, unless the tablespace went meanwhile.
        let gone = || Error::not_found("recovery's file");
        file.ok_or_else(gone)?.read_at(buf, at)
    }

    /// MAP-3.
    fn check_read(&self, page: PageId, buf: &[u8]) -> Result<()> {
        let stored = u32::from_le_bytes(buf[..CRC].try_into().expect("4 bytes"));
        let computed = crc32c::crc32c(&buf[CRC..]);
        match stored == computed {
            true => Ok(()),
            false => Err(Error::CorruptFile {
                path: self.spill.lock().path.clone(),
                expected: format!("changes of {page} with checksum {stored:08x}"),
                found: format!("{computed:08x}"),
            }),
        }
    }
}

impl PendingRedo for PageMap {
    fn need(&self, page: PageId) -> Need {
        if self.number(page).is_none_or(|n| self.is_applied(n)) {
            return Need::Nothing;
        }
        let latest = self.latest_of(page.to_u64());
        match self.first_needed(page.to_u64(), latest) {
            (_, true) => Need::Zeros,
            (_, false) => Need::Stored,
        }
    }

    fn apply(&self, page: PageId, bytes: &mut [u8], changed: &mut dyn FnMut(Lsn)) -> Result<()> {
        let read = |run: usize, segment: &Segment, out: &mut Vec<u8>| {
            out.resize(segment.len(), 0);
            self.read_file(self.runs[run].begin + u64::from(segment.at), out)
        };
        self.apply_read(page, bytes, changed, &read)
    }

    fn forget(&self, space: SpaceId) {
        let first = PageId::new(space, PageNo(0)).to_u64();
        let begin = self.pages.partition_point(|page| *page < first);
        let pages = &self.pages[begin..];
        let end = begin + pages.partition_point(|page| *page >> 32 == u64::from(space.0));
        (begin..end).for_each(|n| self.leave(n));
    }
}

/// Counts a page that is being brought up to date.
struct Loading<'a>(&'a PageMap);

impl Loading<'_> {
    fn begin(map: &PageMap) -> Loading<'_> {
        map.loading.fetch_add(1, SeqCst);
        Loading(map)
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        self.0.loading.fetch_sub(1, SeqCst);
    }
}

/// Reads a segment of a run, with its checksum.
type ReadSegment<'a> = dyn Fn(usize, &Segment, &mut Vec<u8>) -> Result<()> + 'a;

/// The map with what its file holds of some pages, in memory.
pub struct ReadBack<'a> {
    map: &'a PageMap,
    /// For each run: from where on in it. Empty: it is read when it is needed.
    runs: Vec<(u32, Vec<u8>)>,
}

impl PendingRedo for ReadBack<'_> {
    fn need(&self, page: PageId) -> Need {
        self.map.need(page)
    }

    fn apply(&self, page: PageId, bytes: &mut [u8], changed: &mut dyn FnMut(Lsn)) -> Result<()> {
        if self.runs.is_empty() {
            return self.map.apply(page, bytes, changed);
        }
        let read = |run: usize, segment: &Segment, out: &mut Vec<u8>| {
            let (from, held) = &self.runs[run];
            let at = (segment.at - from) as usize;
            out.clear();
            out.extend_from_slice(&held[at..at + segment.len()]);
            Ok(())
        };
        self.map.apply_read(page, bytes, changed, &read)
    }

    fn forget(&self, space: SpaceId) {
        self.map.forget(space);
    }
}

impl PageMap {
    /// Reads what the file holds of these pages, which are ascending: in each run they stand side by side. If that is much, or can't be read,
    /// it is left to whoever applies it.
    pub fn read_back_of(&self, pages: &[PageId]) -> ReadBack<'_> {
        let runs = match (pages.first(), pages.last()) {
            (Some(first), Some(last)) => self.read_runs(first.to_u64(), last.to_u64()),
            _ => None,
        };
        ReadBack {
            map: self,
            runs: runs.unwrap_or_default(),
        }
    }

    fn read_runs(&self, first: u64, last: u64) -> Option<Vec<(u32, Vec<u8>)>> {
        let place = |run: &Run| {
            let begin = run.index.partition_point(|segment| segment.page < first);
            let end = run.index.partition_point(|segment| segment.page <= last);
            match &run.index[begin..end] {
                [] => (0, 0),
                [only] => (only.at, only.len()),
                [from, .., to] => (from.at, (to.at - from.at) as usize + to.len()),
            }
        };
        let places: Vec<(u32, usize)> = self.runs.iter().map(place).collect();
        if places.iter().map(|place| place.1).sum::<usize>() > READ_BACK_BYTES {
            return None;
        }
        let read = |(run, (at, len)): (&Run, (u32, usize))| {
            let mut bytes = vec![0; len];
            let read = self.read_file(run.begin + u64::from(at), &mut bytes);
            read.ok().map(|()| (at, bytes))
        };
        self.runs.iter().zip(places).map(read).collect()
    }

    /// Applies what the page lacks, which `read` gets.
    fn apply_read(
        &self,
        page: PageId,
        bytes: &mut [u8],
        changed: &mut dyn FnMut(Lsn),
        read: &ReadSegment<'_>,
    ) -> Result<()> {
        let _loading = Loading::begin(self);
        let n = self.number(page).filter(|n| !self.is_applied(*n));
        let gone = || Error::not_found(format!("redo of {page}"));
        let n = n.ok_or_else(gone)?;
        if let Some(start) = self.apply_segments(page, bytes, read)? {
            changed(start);
        }
        self.leave(n);
        Ok(())
    }

    /// Returns where the first redo that was applied begins.
    fn apply_segments(
        &self,
        page: PageId,
        bytes: &mut [u8],
        read: &ReadSegment<'_>,
    ) -> Result<Option<Lsn>> {
        let (had, id) = (page_lsn(bytes), page.to_u64());
        let latest = self.latest_of(id);
        let (first, _) = self.first_needed(id, latest);
        let mut changed = None;
        let mut buf = Vec::new();
        for (n, run) in self.runs.iter().enumerate().skip(first) {
            if let Some(segment) = run.find(id) {
                read(n, segment, &mut buf)?;
                self.check_read(page, &buf)?;
                changed = changed.or(chain::apply(bytes, page, had, &buf[CRC..])?);
            }
        }
        for held in latest {
            changed = changed.or(chain::apply(bytes, page, had, self.latest.bytes(held))?);
        }
        Ok(changed)
    }
}
