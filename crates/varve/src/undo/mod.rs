//! Undo: what takes changes back, and what older versions are made from.
//!
//! Each writing transaction has up to two undo logs in one rollback segment: an **insert** log, needed only
//! for rollback and given back at commit, and an **update** log, which at commit joins the segment's history
//! in TrxNo order and is needed until purge has worked it off. Undo pages are redo-logged like others, so
//! rollback after a crash needs nothing else (ARCHITECTURE.md section 8; the layout of InnoDB's rollback
//! segments, with a queue of (TrxNo, log) pages for its linked history list). Small logs share pages: see
//! `log`.
//!
//! - **TEMP-4** What a transaction does to temporary tables is in two further logs, of a rollback segment of
//!   the temporary tablespace, and in no other. So redo-logged undo never speaks of a table that a crash
//!   takes away, and undo that a crash takes away never speaks of one that stays. One sequence of undo
//!   numbers runs through all of its logs.
//!
//! Latches: see `rseg`. Failure: an error before a mini-transaction's first change is returned and nothing
//! happened.

mod ahead;
mod directory;
mod header;
mod hold;
mod log;
#[cfg(all(test, not(loom)))]
mod model;
mod pair;
mod record;
mod rseg;
mod segments;
mod truncate;
mod trx;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::base::{
    Durations, Error, IndexId, PageId, PageNo, Result, RollPtr, SYSTEM_SPACE, SpaceId, TableId,
    TrxId, TrxNo,
};
use crate::buffer::{BufferPool, SharedPage};
use crate::mtr::{Mtr, MtrEnv};
use crate::space::{AllocPurpose, Space, Spaces};

pub use ahead::ReadAhead;
pub use directory::{DIRECTORY_PAGE, Directory, SYSTEM_FILE, require_system_file};
pub use header::{LogHeader, LogKind, LogSpan, LogState, LogWalk};
use pair::LogPair;
pub use record::{EncodedUndo, PAGE_NO_BYTES, Previous, RowDiff, UndoKind, UndoRecord};
pub use rseg::{CACHED_PAGES_KEPT, FREE_PAGES_KEPT, HistoryEntry, Rseg};
pub use segments::{
    FIRST_UNDO_RSEG, MAX_UNDO_LOGS, MAX_UNDO_SPACES, RSEGS_END, format_rollback_segments,
    format_temporary_segments,
};
pub(crate) use truncate::Renamed;
pub use truncate::{
    HeldByTruncation, INITIAL_PAGES, UNDO_FILES, UndoSpace, UndoSpaceState, replacing_path,
    undo_path,
};
pub use trx::{TrxUndo, UndoneLatch};

use ahead::read_ahead;
use header::read_cached;
use log::UndoLog;
use rseg::{RsegUse, UsedSlot, check_history, undo_page};
use segments::{deal, places, rseg_of_thread, temporary_places};
use trx::check_undo_no;

/// Redo that one undo mini-transaction can write: a header, two history pages, an undo record.
fn max_undo_mtr(page_size: usize) -> u32 {
    (3 * page_size + 4096) as u32
}

/// What undo works on.
#[derive(Clone)]
pub struct UndoEnv {
    pub mtr: Arc<MtrEnv>,
    pub pool: Arc<BufferPool>,
    pub spaces: Arc<Spaces>,
    pub page_size: usize,
}

impl UndoEnv {
    fn begin(&self, space: SpaceId) -> Result<Mtr<'_>> {
        Mtr::begin_in(&self.mtr, space, max_undo_mtr(self.page_size))
    }

    /// The tablespace, in which a page is reserved before the mini-transaction that may need one.
    fn space(&self, space: SpaceId) -> Result<Arc<Space>> {
        self.spaces.require(space)
    }

    /// Pages in use in the tablespace; all of them if its allocation pages can't be read.
    fn used_pages(&self, space: SpaceId) -> u32 {
        let space = self.spaces.get(space);
        space.map_or(0, |s| s.used_pages(&self.mtr).unwrap_or(s.size_pages()))
    }

    fn alloc_page(&self, mtr: &mut Mtr<'_>, header: PageId) -> Result<PageNo> {
        self.space(header.space)?.alloc(mtr, header.no, header.no.0)
    }

    fn free_page(&self, mtr: &mut Mtr<'_>, id: PageId) -> Result<()> {
        self.space(id.space)?.free(mtr, id.no)
    }

    fn history_page(&self, id: PageId) -> Result<SharedPage<'_>> {
        let page = self.pool.shared(id)?;
        check_history(&page, id)?;
        Ok(page)
    }
}

/// All rollback segments.
pub struct UndoSys {
    pub env: UndoEnv,
    /// Those whose pages are redo-logged.
    logged: Vec<Arc<Rseg>>,
    /// Those of the temporary tablespace.
    temporary: Vec<Arc<Rseg>>,
    /// All of them, by number.
    by_id: Vec<Option<Arc<Rseg>>>,
    spaces: Vec<UndoSpace>,
    /// How many of `logged` transactions take, if they can. Relaxed: it stands for itself.
    used: AtomicUsize,
    /// Held by the thread that makes an undo tablespace inactive, until it is active again (TRUNC-1).
    pub(crate) truncating: Mutex<()>,
    pub(crate) held_by_truncation: HeldByTruncation,
}

impl UndoSys {
    /// Opens the rollback segments over the undo tablespaces and those of the new temporary one; returns the
    /// undo of transactions that had not ended. All ids and numbers that were ever used are below `id_limit`.
    /// The pages that it looks at are read `ahead`, if that is of use.
    pub fn load(
        env: UndoEnv,
        spaces: &[SpaceId],
        id_limit: u64,
        ahead: Option<ReadAhead<'_>>,
    ) -> Result<(UndoSys, Vec<TrxUndo>)> {
        let mut logged = Vec::new();
        let mut unfinished: Vec<TrxUndo> = Vec::new();
        let places = places(spaces);
        if let Some(ahead) = ahead {
            let headers: Vec<PageId> = places.iter().map(|(_, header)| *header).collect();
            read_ahead(&env, &headers, ahead);
        }
        for (id, header) in places {
            let (rseg, used) = Rseg::load(&env, id, header, id_limit)?;
            let rseg = Arc::new(rseg);
            for UsedSlot {
                slot,
                first,
                newest,
            } in used
            {
                let id = PageId::new(rseg.space(), first);
                if let Some(cached) = read_cached(&env, id, slot, newest)? {
                    rseg.return_cached(cached);
                    continue;
                }
                let log = UndoLog::adopt(&env, rseg.space(), slot, first, newest)?;
                let trx = log.header().trx;
                if trx.0 >= id_limit {
                    let expected = format!("a transaction id below {id_limit}");
                    return Err(Error::corrupt(log.first_page(), expected, trx.to_string()));
                }
                adopt_log(&env, &rseg, log, &mut unfinished)?;
            }
            logged.push(rseg);
        }
        let sys = UndoSys::with_temporary(env, logged, spaces.len(), id_limit)?;
        Ok((sys, unfinished))
    }

    /// Opens those of the new temporary tablespace only: older versions of rows can't be read, and nothing
    /// can be written.
    pub fn load_temporary(env: UndoEnv, id_limit: u64) -> Result<UndoSys> {
        UndoSys::with_temporary(env, Vec::new(), 0, id_limit)
    }

    fn with_temporary(
        env: UndoEnv,
        logged: Vec<Arc<Rseg>>,
        spaces: usize,
        id_limit: u64,
    ) -> Result<UndoSys> {
        let mut temporary = Vec::new();
        for (id, header) in temporary_places() {
            let (rseg, used) = Rseg::load(&env, id, header, id_limit)?;
            assert!(used.is_empty(), "TEMP-4: undo of an earlier process");
            temporary.push(Arc::new(rseg));
        }
        let mut by_id = vec![None; RSEGS_END as usize];
        for rseg in logged.iter().chain(&temporary) {
            by_id[rseg.id() as usize] = Some(rseg.clone());
        }
        Ok(UndoSys {
            spaces: UndoSpace::all(&env, &logged, spaces),
            truncating: Mutex::default(),
            held_by_truncation: HeldByTruncation::default(),
            used: AtomicUsize::new(logged.len()),
            env,
            logged,
            temporary,
            by_id,
        })
    }

    /// The undo of a transaction that starts to write. A thread alternates among a few rollback segments,
    /// whose pages stay in its processor's cache, and goes on to others when they are full. What removes or
    /// renames files always takes the first one, so that it finds what the one before it has left there
    /// (SP-9).
    pub fn assign(&self, trx: TrxId, purpose: AllocPurpose) -> TrxUndo {
        let used = self.used.load(Ordering::Relaxed);
        let first = match purpose {
            AllocPurpose::Normal => rseg_of_thread(used, trx),
            AllocPurpose::Cleaning => 0,
        };
        TrxUndo::new(deal(&self.logged, used, first), trx, purpose)
    }

    /// From now on transactions take the first `count` redo-logged rollback segments; all of them, if there
    /// are fewer.
    pub fn use_rsegs(&self, count: usize) {
        let count = count.min(self.logged.len()).max(1);
        self.used.store(count, Ordering::Relaxed);
    }

    /// Makes room for a record of `len` bytes about `table`; call before the mini-transaction that will
    /// `append` it.
    pub fn prepare(
        &self,
        undo: &mut TrxUndo,
        table: TableId,
        kind: UndoKind,
        len: usize,
    ) -> Result<()> {
        check_undo_no(undo.trx, undo.next_no)?;
        let trx = undo.trx;
        if table.is_temporary() && undo.temporary.is_none() {
            self.env.spaces.check_temporary()?;
            let count = self.temporary.len();
            let rseg = deal(&self.temporary, count, rseg_of_thread(count, trx));
            undo.temporary = Some(LogPair::new(rseg, AllocPurpose::Normal));
        }
        undo.pair_mut(table).prepare(&self.env, trx, kind, len)
    }

    /// Committed update undo logs that are not purged yet.
    pub fn history_len(&self) -> u64 {
        self.rsegs().map(|r| r.history_len()).sum()
    }

    /// Bytes of the pages that they fill; of those from before the last start one page each.
    pub fn history_bytes(&self) -> u64 {
        let pages: u64 = self.rsegs().map(|r| r.history_pages()).sum();
        pages * self.env.page_size as u64
    }

    /// The number of the oldest log in the redo-logged history.
    pub fn oldest(&self) -> Option<TrxNo> {
        self.logged.iter().filter_map(|r| r.oldest()).min()
    }

    /// The same for the history of temporary tables.
    pub fn oldest_temporary(&self) -> Option<TrxNo> {
        self.temporary().iter().filter_map(|r| r.oldest()).min()
    }

    /// The redo-logged rollback segments.
    pub fn logged(&self) -> &[Arc<Rseg>] {
        &self.logged
    }

    /// Those of temporary tables, as long as these can be used (TEMP-6).
    pub fn temporary(&self) -> &[Arc<Rseg>] {
        match self.env.spaces.check_temporary() {
            Ok(()) => &self.temporary,
            Err(_) => &[],
        }
    }

    pub fn rsegs(&self) -> impl Iterator<Item = &Arc<Rseg>> {
        self.logged.iter().chain(self.temporary())
    }

    /// The undo tablespaces, in the order of the directory.
    pub fn spaces(&self) -> &[UndoSpace] {
        &self.spaces
    }

    /// Those that new transactions may use.
    pub fn active_spaces(&self) -> usize {
        self.spaces.iter().filter(|space| space.is_active()).count()
    }

    /// Bytes of their files.
    pub fn file_bytes(&self) -> u64 {
        let pages = self.spaces.iter().map(|s| s.size_pages(&self.env));
        pages.map(u64::from).sum::<u64>() * self.env.page_size as u64
    }

    /// Pages in use in them; in the system tablespace if there are none.
    pub fn used_pages(&self) -> u32 {
        match self.spaces.is_empty() {
            true => self.env.used_pages(SYSTEM_SPACE),
            false => self.spaces.iter().map(|s| s.used_pages(&self.env)).sum(),
        }
    }

    /// How long truncations have held what others may wait for, with names.
    pub fn held_by_truncation(&self) -> [(&'static str, &Durations); 5] {
        self.held_by_truncation.all(&self.env)
    }

    /// Looks at every page of the redo-logged rollback segments (RSEG-3) and returns how many there are; an
    /// error names one that is lost, used twice, or holds something else. Transactions may go on.
    #[cfg(feature = "internals")]
    pub fn check(&self) -> Result<u32> {
        let pages = |rseg: &Arc<Rseg>| Ok(rseg.check(&self.env)?.len() as u32);
        self.logged.iter().map(pages).sum()
    }

    /// The page of the record that a roll pointer of a log that still exists points at.
    pub fn page_of(&self, ptr: RollPtr) -> Result<PageId> {
        let rseg = self.by_id.get(ptr.rseg() as usize).and_then(|r| r.as_ref());
        let rseg = rseg.ok_or_else(|| {
            Error::invalid(format!("there is no rollback segment {}", ptr.rseg()))
        })?;
        Ok(PageId::new(rseg.space(), ptr.page()))
    }

    /// Copies the undo record that `ptr` points at into `out`, if the slot still holds the record that
    /// `writer` wrote for this key. `false` is a cut: the log was given back meanwhile.
    pub fn read(&self, ptr: RollPtr, want: &UndoTarget<'_>, out: &mut Vec<u8>) -> Result<bool> {
        let Some(rseg) = &self.by_id[ptr.rseg() as usize] else {
            return Ok(false);
        };
        let id = PageId::new(rseg.space(), ptr.page());
        let size = self.env.spaces.size_pages(id.space);
        if size.is_none_or(|size| id.no.0 >= size) {
            return Ok(false);
        }
        let page = match self.env.pool.shared(id) {
            Ok(page) => page,
            // The tablespace was replaced just now.
            Err(_) if rseg.space() != id.space => return Ok(false),
            Err(e) => return Err(e),
        };
        let Some(slotted) = undo_page(&page).filter(|p| (ptr.slot() as usize) < p.n_slots()) else {
            return Ok(false);
        };
        let bytes = slotted.payload(ptr.slot() as usize);
        let Some(record) = UndoRecord::decode(bytes) else {
            return Ok(false);
        };
        if (record.trx, record.table, record.index, record.key)
            != (want.writer, want.table, want.index, want.key)
        {
            return Ok(false);
        }
        out.clear();
        out.extend_from_slice(bytes);
        Ok(true)
    }

    /// Calls `f` with the slot and the bytes of each record in one page of the log, oldest first, under the
    /// page's latch. Returns the log's next page, or `NO_PAGE`.
    pub fn read_page(
        &self,
        space: SpaceId,
        log: &LogSpan,
        no: PageNo,
        f: impl FnMut(u16, &UndoRecord<'_>, &[u8]),
    ) -> Result<PageNo> {
        let id = PageId::new(space, no);
        log.read_records(&self.env.pool.shared(id)?, id, f)
    }

    /// Calls `f` with each record of the log that `wanted` picks, and its place, oldest first. No latch is
    /// held during the calls of `f`; `wanted` runs under the page's latch.
    pub fn walk(
        &self,
        space: SpaceId,
        log: &LogSpan,
        copies: &mut UndoCopies,
        wanted: impl Fn(&UndoRecord<'_>) -> bool,
        mut f: impl FnMut(PageNo, u16, UndoRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut pages = log.walk();
        while let Some(no) = pages.next(space)? {
            copies.clear();
            let next = self.read_page(space, log, no, |slot, record, bytes| {
                if wanted(record) {
                    copies.push(slot, bytes);
                }
            })?;
            pages.goes_on_at(next);
            for (slot, bytes) in copies.iter() {
                f(no, slot, UndoRecord::decode(bytes).expect("decoded above"))?;
            }
        }
        Ok(())
    }

    /// Where the records are of the log that an entry of the history queue leads to.
    pub fn history_log(&self, rseg: &Rseg, entry: &HistoryEntry) -> Result<LogSpan> {
        let id = PageId::new(rseg.space(), entry.first);
        let mut span = LogSpan::in_one_page(entry);
        if entry.closes {
            // The page's header is still this log's.
            span.pages = LogHeader::of_history(&self.env.pool.shared(id)?, id, entry)?.pages;
        }
        Ok(span)
    }

    /// Takes the oldest logs of `rseg`, which have been purged, off the history and gives their pages back.
    pub fn free_logs(&self, rseg: &Rseg, logs: &[HistoryEntry]) -> Result<()> {
        rseg.free_logs(&self.env, logs)
    }
}

fn adopt_log(
    env: &UndoEnv,
    rseg: &Arc<Rseg>,
    log: UndoLog,
    unfinished: &mut Vec<TrxUndo>,
) -> Result<()> {
    let header = *log.header();
    let at = match unfinished.iter().position(|u| u.trx == header.trx) {
        Some(at) => at,
        None => {
            let rseg = RsegUse::adopt(rseg);
            unfinished.push(TrxUndo::new(rseg, header.trx, AllocPurpose::Cleaning));
            unfinished.len() - 1
        }
    };
    let undo = &mut unfinished[at];
    if undo.logged.has_log(header.kind) || undo.logged.rseg.id() != rseg.id() {
        let expected = format!("one undo log of this kind of transaction {}", header.trx);
        return Err(Error::corrupt(log.first_page(), expected, "another one"));
    }
    if let Some(xid) = log.xid(env)? {
        undo.xid = Some(Box::new(xid));
    }
    undo.next_no = undo.next_no.max(log.top_no().map_or(0, |no| no + 1));
    undo.logged.adopt(env, log)
}

/// Undo records copied from a page, for use without its latch.
#[derive(Default)]
pub struct UndoCopies {
    bytes: Vec<u8>,
    ends: Vec<(u16, usize)>,
}

impl UndoCopies {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn push(&mut self, slot: u16, record: &[u8]) {
        self.bytes.extend_from_slice(record);
        self.ends.push((slot, self.bytes.len()));
    }

    fn iter(&self) -> impl Iterator<Item = (u16, &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|e| e.1));
        starts
            .zip(&self.ends)
            .map(|(start, &(slot, end))| (slot, &self.bytes[start..end]))
    }
}

/// What a reader expects behind a roll pointer.
#[derive(Clone, Copy, Debug)]
pub struct UndoTarget<'a> {
    pub writer: TrxId,
    pub table: TableId,
    pub index: IndexId,
    pub key: &'a [u8],
}
