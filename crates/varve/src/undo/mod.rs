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

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::base::{
    Durations, Error, IndexId, Lsn, PageId, PageNo, Result, RollPtr, SYSTEM_SPACE, SpaceId,
    TableId, TrxId, TrxNo, Xid,
};
use crate::buffer::{BufferPool, SharedPage};
use crate::mtr::{Mtr, MtrEnv, PageH, RawRecord};
use crate::space::{Purpose, Space, Spaces};

pub use ahead::ReadAhead;
pub use directory::{DIRECTORY_PAGE, Directory, SYSTEM_FILE, require_system_file};
pub use header::{LogHeader, LogKind, LogSpan, LogState, LogWalk};
use pair::{Ending, Ends, LogPair};
pub use record::{PAGE_NO_BYTES, Previous, RowDiff, UndoKind, UndoRecord};
pub use rseg::{CACHED_PAGES_KEPT, FREE_PAGES_KEPT, HistoryEntry, Rseg};
pub use segments::{
    FIRST_UNDO_RSEG, MAX_UNDO_LOGS, MAX_UNDO_SPACES, RSEGS_END, format_rollback_segments,
    format_temporary_segments,
};
pub(crate) use truncate::Renamed;
pub use truncate::{
    HeldByTruncation, INITIAL_PAGES, UNDO_FILES, UndoSpace, UndoSpaceState, undo_path,
};

use ahead::read_ahead;
use header::read_cached;
use log::UndoLog;
use record::MAX_UNDO_NO;
use rseg::{RsegUse, UsedSlot, check_history, undo_page};
use segments::{deal, places, temporary_places, turn};

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
    /// Held by who makes an undo tablespace inactive, until it is active again (TRUNC-1).
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
                let log = UndoLog::adopt(&env, rseg.space(), (slot, first), newest)?;
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

    /// The undo of a transaction that starts to write. A thread takes turns among a few rollback segments,
    /// whose pages stay in its processor's cache, and goes on to others when they are full. What removes or
    /// renames files always takes the first one, so that it finds what the one before it has left there
    /// (SP-9).
    pub fn assign(&self, trx: TrxId, purpose: Purpose) -> TrxUndo {
        let used = self.used.load(Ordering::Relaxed);
        let first = match purpose {
            Purpose::Work => turn(used, trx),
            Purpose::UndoingWork => 0,
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
            let rseg = deal(&self.temporary, count, turn(count, trx));
            undo.temporary = Some(LogPair::new(rseg, Purpose::Work));
        }
        undo.pair_mut(table).prepare(&self.env, trx, kind, len)
    }

    /// Committed update undo logs that are not purged yet.
    pub fn history_len(&self) -> u64 {
        self.rsegs().map(|r| r.history_len()).sum()
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
        let exists = |s: Arc<Space>| id.no.0 < s.size_pages();
        if !self.env.spaces.get(id.space).is_some_and(exists) {
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
        (space, log): (SpaceId, &LogSpan),
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
        (space, log): (SpaceId, &LogSpan),
        copies: &mut UndoCopies,
        wanted: impl Fn(&UndoRecord<'_>) -> bool,
        mut f: impl FnMut(PageNo, u16, UndoRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut pages = log.walk();
        while let Some(no) = pages.next(space)? {
            copies.clear();
            let next = self.read_page((space, log), no, |slot, record, bytes| {
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
            unfinished.push(TrxUndo::new(rseg, header.trx, Purpose::UndoingWork));
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

/// The undo of one transaction: its logs, and the one sequence of undo numbers over all of them.
pub struct TrxUndo {
    trx: TrxId,
    /// What has to be taken back after a crash.
    logged: LogPair,
    /// What concerns temporary tables, once there is any (TEMP-4).
    temporary: Option<LogPair>,
    next_no: u64,
    /// The name under which the transaction is prepared.
    xid: Option<Box<Xid>>,
    /// The tablespace that its commit removes, and the file's path.
    removes: Option<Box<(SpaceId, String)>>,
}

impl TrxUndo {
    fn new(rseg: RsegUse, trx: TrxId, purpose: Purpose) -> TrxUndo {
        TrxUndo {
            trx,
            logged: LogPair::new(rseg, purpose),
            temporary: None,
            next_no: 0,
            xid: None,
            removes: None,
        }
    }

    /// The commit says in redo that this tablespace goes with it.
    pub fn removes_file(&mut self, space: SpaceId, path: String) {
        self.removes = Some(Box::new((space, path)));
    }

    pub fn trx(&self) -> TrxId {
        self.trx
    }

    /// The number that the next record will get: what a savepoint remembers.
    pub fn next_no(&self) -> u64 {
        self.next_no
    }

    fn pairs(&self) -> impl Iterator<Item = &LogPair> {
        std::iter::once(&self.logged).chain(&self.temporary)
    }

    /// The logs of records about `table` (TEMP-4).
    fn pair(&self, table: TableId) -> &LogPair {
        match table.is_temporary() {
            true => self.temporary.as_ref().expect("prepare made it"),
            false => &self.logged,
        }
    }

    fn pair_mut(&mut self, table: TableId) -> &mut LogPair {
        match table.is_temporary() {
            true => self.temporary.as_mut().expect("prepare made it"),
            false => &mut self.logged,
        }
    }

    /// The table that the newest record not taken back belongs to.
    pub fn newest_table(&self, env: &UndoEnv) -> Result<Option<TableId>> {
        let mut bytes = Vec::new();
        let newest = self.read_newest(env, 0, &mut bytes)?;
        let record = newest.and_then(|_| UndoRecord::decode(&bytes));
        Ok(record.map(|r| r.table))
    }

    /// How many undo pages there are.
    pub fn pages(&self) -> u32 {
        let logs = self.pairs().flat_map(LogPair::logs);
        logs.map(|log| log.header().pages).sum()
    }

    /// The first page of one of the logs, for messages.
    pub fn page(&self) -> Option<PageId> {
        self.pairs().find_map(LogPair::first_page)
    }

    /// Logs in the history of the transaction's rollback segments.
    pub fn segment_history_len(&self) -> u64 {
        self.pairs().map(|p| p.rseg.history_len()).sum()
    }

    /// Free pages of the transaction's rollback segments that purge should return.
    pub fn segment_surplus_pages(&self) -> u32 {
        self.pairs().map(|p| p.rseg.surplus_pages()).sum()
    }

    /// Something was written: there is a log to end.
    pub fn has_logs(&self) -> bool {
        self.pairs().any(LogPair::has_logs)
    }

    /// Whether a record of `len` bytes goes where the last one went, without `UndoSys::prepare`.
    pub fn has_room(&self, table: TableId, kind: UndoKind, len: usize) -> bool {
        check_undo_no(self.trx, self.next_no).is_ok() && self.pair(table).log(kind).has_room(len)
    }

    /// Where the next record of this kind about `table` will stand.
    pub fn next_roll_ptr(&self, table: TableId, kind: UndoKind) -> RollPtr {
        self.pair(table).next_roll_ptr(kind)
    }

    /// Latches the undo page; after the tree's pages, before the first change of the mini-transaction.
    pub fn latch(&self, mtr: &mut Mtr<'_>, table: TableId, kind: UndoKind) -> Result<PageH> {
        self.pair(table).log(kind).latch_last(mtr)
    }

    /// Appends the encoded record, which carries `next_no`; with what `UndoRecord::concerns_purge` says of
    /// it.
    pub fn append(
        &mut self,
        mtr: &mut Mtr<'_>,
        page: PageH,
        (table, kind): (TableId, UndoKind),
        record: (&[u8], bool),
    ) {
        let no = self.next_no;
        let log = self.pair_mut(table).log_mut(kind);
        log.append(mtr, page, no, record);
        self.next_no += 1;
    }

    /// Copies the newest record with a number of at least `down_to` that is not taken back yet into `out`: it
    /// can be decoded. Returns the page that it stands on, or `None` if there is none.
    pub fn read_newest(
        &self,
        env: &UndoEnv,
        down_to: u64,
        out: &mut Vec<u8>,
    ) -> Result<Option<PageId>> {
        let newest = self.pairs().filter_map(LogPair::newest);
        match newest.max_by_key(|(no, _)| *no) {
            Some((no, log)) if no >= down_to => log.read_top(env, out).map(Some),
            _ => Ok(None),
        }
    }

    /// Latches what marking the newest record, of this kind and about this table, changes.
    pub fn latch_undone(
        &self,
        mtr: &mut Mtr<'_>,
        table: TableId,
        kind: UndoKind,
    ) -> Result<UndoneLatch> {
        let top = self.pair(table).log(kind).latch_top(mtr, kind)?;
        Ok(UndoneLatch { table, kind, top })
    }

    /// Marks the newest record as taken back, in the mini-transaction that took it back.
    pub fn mark_undone(&mut self, mtr: &mut Mtr<'_>, latch: UndoneLatch) {
        let log = self.pair_mut(latch.table).log_mut(latch.kind);
        log.mark_undone(mtr, latch.top);
    }

    /// Goes on to the record before the one that was just taken back.
    pub fn pop_newest(&mut self, env: &UndoEnv, table: TableId, kind: UndoKind) -> Result<()> {
        self.pair_mut(table).log_mut(kind).pop_top(env)
    }

    /// The name under which the transaction is prepared.
    pub fn xid(&self) -> Option<&Xid> {
        self.xid.as_deref()
    }

    /// Something was written that a crash does not take away: there is something to promise.
    pub fn has_logged(&self) -> bool {
        self.logged.has_logs()
    }

    /// Something was written to temporary tables.
    pub fn has_temporary(&self) -> bool {
        self.temporary.as_ref().is_some_and(LogPair::has_logs)
    }

    /// Says in the logs' headers that the transaction is prepared under this name (UNDO-7). Returns the LSN
    /// that makes it durable.
    pub fn write_prepared(&mut self, env: &UndoEnv, xid: &Xid) -> Result<Lsn> {
        let write = |log: &mut UndoLog, mtr: &mut Mtr<'_>, h| log.write_prepared(mtr, h, xid);
        let end = self.logged.write_headers(env, write)?;
        self.xid = Some(Box::new(*xid));
        Ok(end)
    }

    /// Takes `write_prepared` back, before the first record is taken back (UNDO-7). Returns the LSN that
    /// makes it durable.
    pub fn write_active(&mut self, env: &UndoEnv) -> Result<Lsn> {
        self.release_hold();
        let end = self.logged.write_headers(env, UndoLog::write_active)?;
        self.xid = None;
        Ok(end)
    }

    /// Gets hold of what the commit needs, so that `commit` neither fails nor waits for a disk or for redo
    /// capacity.
    pub fn hold_commit(&mut self, env: &UndoEnv) -> Result<()> {
        self.logged.hold_commit(env)?;
        self.in_temporary(env, |pair| pair.hold_commit(env))
            .map(drop)
    }

    /// Does something with the undo of temporary tables, if there is any. If that is lost, it is forgotten
    /// (TEMP-6).
    fn in_temporary<T>(
        &mut self,
        env: &UndoEnv,
        f: impl FnOnce(&mut LogPair) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(pair) = &mut self.temporary else {
            return Ok(None);
        };
        let done = env.spaces.check_temporary().and_then(|()| f(pair));
        match done {
            Err(e) if env.spaces.loses_temporary(&e) => {
                self.forget_temporary();
                Ok(None)
            }
            done => done.map(Some),
        }
    }

    /// What was done to temporary tables can't be taken back any more, nor need it (TEMP-6).
    pub fn forget_temporary(&mut self) {
        self.temporary = None;
    }

    /// Gives that back: the transaction will not end soon.
    pub fn release_hold(&mut self) {
        self.logged.release_hold();
        if let Some(pair) = &mut self.temporary {
            pair.release_hold();
        }
    }

    /// The tables, but for temporary ones, whose records the transaction changed and has not taken back.
    pub fn tables(&self, sys: &UndoSys) -> Result<Vec<TableId>> {
        let mut tables = Vec::new();
        let mut copies = UndoCopies::default();
        let newest = Cell::new(None);
        let space = self.logged.rseg.space();
        for log in self.logged.logs().map(UndoLog::span) {
            let wanted =
                |r: &UndoRecord<'_>| !r.undone && newest.replace(Some(r.table)) != Some(r.table);
            sys.walk((space, &log), &mut copies, wanted, |_, _, record| {
                if !tables.contains(&record.table) {
                    tables.push(record.table);
                }
                Ok(())
            })?;
        }
        Ok(tables)
    }

    /// Ends the transaction's undo at commit: the update logs join the history under the number that `number`
    /// draws, the insert logs are given back. Everything that can fail happens before `number` is called.
    /// Returns the LSN that makes it durable; `None` if nothing was written but temporary tables.
    pub fn commit(
        &mut self,
        env: &UndoEnv,
        number: impl FnOnce() -> TrxNo,
    ) -> Result<(TrxNo, Option<Lsn>)> {
        self.finish(env, Ends::Committed, |_| number())
    }

    /// Ends the transaction's undo after everything was taken back. `number` is told whether a log joins the
    /// history.
    pub fn finish_rollback(
        &mut self,
        env: &UndoEnv,
        number: impl FnOnce(bool) -> TrxNo,
    ) -> Result<(TrxNo, Option<Lsn>)> {
        self.finish(env, Ends::RolledBack, number)
    }

    fn finish(
        &mut self,
        env: &UndoEnv,
        how: Ends,
        number: impl FnOnce(bool) -> TrxNo,
    ) -> Result<(TrxNo, Option<Lsn>)> {
        let logged = self.logged.latch_end(env, how)?;
        let temporary = self.in_temporary(env, |pair| pair.latch_end(env, how))?;
        let temporary = temporary.flatten();
        let joins =
            |ending: &Option<Ending<'_>>| ending.as_ref().is_some_and(Ending::joins_history);
        let no = number(joins(&logged) || joins(&temporary));
        let removal = self.removes.as_deref().filter(|_| how == Ends::Committed);
        let removal = removal.map(|(space, path)| RawRecord::FileDelete {
            space: *space,
            path,
        });
        let end = logged.map(|ending| self.logged.end(ending, no, removal.as_ref()));
        if let (Some(pair), Some(ending)) = (&mut self.temporary, temporary) {
            pair.end(ending, no, None);
        }
        Ok((no, end))
    }
}

/// Pages latched for `TrxUndo::mark_undone`.
pub struct UndoneLatch {
    table: TableId,
    kind: UndoKind,
    top: log::TopLatch,
}

/// What is larger is taken for damage.
fn check_undo_no(trx: TrxId, no: u64) -> Result<()> {
    match no <= MAX_UNDO_NO {
        true => Ok(()),
        false => Err(Error::NoSpace {
            what: format!("transaction {trx} has made 2^48 changes: commit it or roll it back"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undo_numbers_that_run_out_are_refused() {
        check_undo_no(TrxId(7), (1 << 48) - 1).unwrap();
        let refused = check_undo_no(TrxId(7), 1 << 48).unwrap_err();
        assert!(refused.to_string().contains("transaction 7"), "{refused}");
    }
}
