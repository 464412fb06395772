//! Undo: what takes changes back, and what older versions are made from.
//!
//! Each writing transaction has up to two undo logs in one rollback segment: an **insert** log, needed only for
//! rollback and given back at commit, and an **update** log, which at commit joins the segment's history in TrxNo
//! order and is needed until purge has worked it off. Undo pages are redo-logged like others, so rollback after a
//! crash needs nothing else (ARCHITECTURE.md section 8; the layout of InnoDB's rollback segments, with a queue of
//! (TrxNo, log) pages for its linked history list).
//!
//! Latches: see `rseg`. Failure: an error before a mini-transaction's first change is returned and nothing happened.

mod log;
mod record;
mod rseg;

use std::sync::Arc;

use crate::base::{
    Error, IndexId, Lsn, NO_PAGE, PageId, PageNo, Result, RollPtr, SpaceId, TableId, TrxId, TrxNo,
    thread_spot,
};
use crate::buffer::{BufferPool, SharedPage};
use crate::mtr::{Mtr, MtrEnv, PageH};
use crate::space::{MIXED, Space, Spaces};

pub use log::{LogHeader, LogKind, LogState};
pub use record::{Previous, RowDiff, UndoKind, UndoRecord};
pub use rseg::{CACHED_PAGES_KEPT, FREE_PAGES_KEPT, HistoryEntry, Rseg};

use log::{UndoLog, damaged_record};
use rseg::{Cached, check_history, undo_page};

/// First rollback segment that lies in an undo tablespace; 0 is the system tablespace's, 1–32 are temporary ones.
pub const FIRST_UNDO_RSEG: u8 = 33;
/// One past the last rollback segment.
pub const RSEGS_END: u8 = 128;
/// Most undo tablespaces: one for each rollback segment.
pub const MAX_UNDO_SPACES: usize = (RSEGS_END - FIRST_UNDO_RSEG) as usize;
/// First page of an undo tablespace that can be a rollback segment header.
const FIRST_HEADER_PAGE: u32 = 2;
/// Rollback segments that one thread's transactions take in turn: purge mostly works on another one than the thread. Ids
/// of one thread's transactions are two apart if nobody else draws any.
const RSEGS_PER_THREAD: usize = 4;
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
    fn begin(&self) -> Result<Mtr<'_>> {
        Mtr::begin(&self.mtr, max_undo_mtr(self.page_size))
    }

    /// The tablespace, in which a page is reserved before the mini-transaction that may need one.
    fn space(&self, space: SpaceId) -> Result<Arc<Space>> {
        self.spaces.require(space)
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

/// Tablespace index and header page of rollback segment `rseg` among `spaces` undo tablespaces.
fn place_of(rseg: u8, spaces: usize) -> (usize, PageNo) {
    let n = (rseg - FIRST_UNDO_RSEG) as usize;
    (n % spaces, PageNo(FIRST_HEADER_PAGE + (n / spaces) as u32))
}

/// Formats the rollback segment headers of undo tablespace number `index` (from 0) of `spaces`.
pub fn format_undo_space(env: &UndoEnv, space: SpaceId, index: usize, spaces: usize) -> Result<()> {
    for rseg in FIRST_UNDO_RSEG..RSEGS_END {
        let (at, no) = place_of(rseg, spaces);
        if at != index {
            continue;
        }
        let file = env.space(space)?;
        let _reserved = file.reserve(&env.mtr, 1)?;
        let mut mtr = env.begin()?;
        let got = file.alloc(&mut mtr, PageNo(0), MIXED)?;
        if got != no {
            return Err(Error::corrupt(
                PageId::new(space, no),
                "a new undo tablespace, whose pages are allocated in order",
                format!("page {got}"),
            ));
        }
        let page = mtr.exclusive_new(PageId::new(space, no))?;
        Rseg::format(&mut mtr, page, rseg, env.page_size);
        mtr.commit();
    }
    Ok(())
}

/// All rollback segments.
pub struct UndoSys {
    pub env: UndoEnv,
    /// Index 0 is rollback segment 33.
    rsegs: Vec<Arc<Rseg>>,
}

impl UndoSys {
    /// Opens the rollback segments; returns the undo of transactions that had not ended. All ids and numbers that were
    /// ever used are below `id_limit`.
    pub fn load(
        env: UndoEnv,
        spaces: &[SpaceId],
        id_limit: u64,
    ) -> Result<(UndoSys, Vec<TrxUndo>)> {
        let mut rsegs = Vec::new();
        let mut unfinished: Vec<TrxUndo> = Vec::new();
        for id in FIRST_UNDO_RSEG..RSEGS_END {
            let (index, page) = place_of(id, spaces.len());
            let header = PageId::new(spaces[index], page);
            let (rseg, used) = Rseg::load(&env, id, header, id_limit)?;
            let rseg = Arc::new(rseg);
            for (slot, first) in used {
                if cached_page(&env, &rseg, slot, first)? {
                    continue;
                }
                let log = UndoLog::adopt(&env, rseg.space(), (slot, first))?;
                let trx = log.header().trx;
                if trx.0 >= id_limit {
                    let expected = format!("a transaction id below {id_limit}");
                    return Err(Error::corrupt(log.first_page(), expected, trx.to_string()));
                }
                adopt_log(&env, &rseg, log, &mut unfinished)?;
            }
            rsegs.push(rseg);
        }
        Ok((UndoSys { env, rsegs }, unfinished))
    }

    /// The undo of a transaction that starts to write. A thread takes turns among a few rollback segments, whose pages
    /// stay in its processor's cache, and goes on to others when they are full.
    pub fn assign(&self, trx: TrxId) -> TrxUndo {
        let first = thread_spot() + (trx.0 / 2) as usize % RSEGS_PER_THREAD;
        let all = (0..self.rsegs.len()).map(|n| &self.rsegs[(first + n) % self.rsegs.len()]);
        let rseg = all
            .clone()
            .find(|rseg| rseg.has_room())
            .or(all.clone().next());
        TrxUndo::new(rseg.expect("there is one").clone(), trx)
    }

    /// Committed update undo logs that are not purged yet.
    pub fn history_len(&self) -> u64 {
        self.rsegs.iter().map(|r| r.history_len()).sum()
    }

    /// The number of the oldest log in the history.
    pub fn oldest(&self) -> Option<TrxNo> {
        self.rsegs.iter().filter_map(|r| r.oldest()).min()
    }

    pub fn rsegs(&self) -> &[Arc<Rseg>] {
        &self.rsegs
    }

    /// Copies the undo record that `ptr` points at into `out`, if the slot still holds the record that `writer`
    /// wrote for this key. `false` is a cut: the log was given back meanwhile.
    pub fn read(&self, ptr: RollPtr, want: &UndoTarget<'_>, out: &mut Vec<u8>) -> Result<bool> {
        let Some(rseg) = ptr
            .rseg()
            .checked_sub(FIRST_UNDO_RSEG)
            .and_then(|n| self.rsegs.get(n as usize))
        else {
            return Ok(false);
        };
        let id = PageId::new(rseg.space(), ptr.page());
        let exists = |s: Arc<Space>| id.no.0 < s.size_pages();
        if !self.env.spaces.get(id.space).is_some_and(exists) {
            return Ok(false);
        }
        let page = self.env.pool.shared(id)?;
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

    /// Calls `f` with each record of the log that `wanted` picks, and its place, oldest first. No latch is held during
    /// the calls of `f`; `wanted` runs under the page's latch.
    pub fn walk(
        &self,
        (space, first): (SpaceId, PageNo),
        copies: &mut UndoCopies,
        wanted: impl Fn(&UndoRecord<'_>) -> bool,
        mut f: impl FnMut(PageNo, u16, UndoRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        let header = self.log_header(space, first)?;
        let mut no = first;
        // No log has more pages than it says: links that go round are noticed.
        for _ in 0..header.pages {
            if no == NO_PAGE {
                return Ok(());
            }
            let id = PageId::new(space, no);
            copies.clear();
            let page = self.env.pool.shared(id)?;
            let slotted = header.check_page(&page, id)?;
            for slot in 0..slotted.n_slots() {
                let bytes = slotted.payload(slot);
                let record = header.record(bytes);
                if wanted(&record.ok_or_else(|| damaged_record(id, slot as u16))?) {
                    copies.push(slot as u16, bytes);
                }
            }
            let next = slotted.next();
            drop(page);
            for (slot, bytes) in copies.iter() {
                f(no, slot, UndoRecord::decode(bytes).expect("decoded above"))?;
            }
            no = next;
        }
        match no {
            NO_PAGE => Ok(()),
            _ => {
                let expected = format!("an undo log of {} pages", header.pages);
                Err(Error::corrupt(PageId::new(space, first), expected, "more"))
            }
        }
    }

    fn log_header(&self, space: SpaceId, first: PageNo) -> Result<LogHeader> {
        let id = PageId::new(space, first);
        LogHeader::read(&self.env.pool.shared(id)?, id)
    }

    /// The header of the log that an entry of the history queue leads to.
    pub fn history_log(&self, rseg: &Rseg, entry: HistoryEntry) -> Result<LogHeader> {
        let id = PageId::new(rseg.space(), entry.first);
        LogHeader::of_history(&self.env.pool.shared(id)?, id, entry)
    }

    /// Takes the oldest logs of `rseg`, which have been purged, off the history and gives their pages back.
    pub fn free_logs(&self, rseg: &Rseg, logs: &[HistoryEntry]) -> Result<()> {
        rseg.free_logs(&self.env, logs)
    }
}

/// Whether a slot holds a cached page (RSEG-4), which is one from then on.
fn cached_page(env: &UndoEnv, rseg: &Rseg, slot: u16, page: PageNo) -> Result<bool> {
    let id = PageId::new(rseg.space(), page);
    let header = LogHeader::read(&env.pool.shared(id)?, id)?;
    if header.state != LogState::Committed {
        return Ok(false);
    }
    if header.pages != 1 {
        let expected = format!("one page in slot {slot}");
        return Err(Error::corrupt(id, expected, format!("{header:?}")));
    }
    rseg.return_cached(Cached { slot, page });
    Ok(true)
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
            unfinished.push(TrxUndo::new(rseg.clone(), header.trx));
            unfinished.len() - 1
        }
    };
    let undo = &mut unfinished[at];
    let twice = match header.kind {
        LogKind::Insert => undo.insert.is_some(),
        LogKind::Update => undo.update.is_some(),
    };
    if twice || undo.rseg.id() != rseg.id() {
        let expected = format!("one undo log of this kind of transaction {}", header.trx);
        return Err(Error::corrupt(log.first_page(), expected, "another one"));
    }
    undo.next_no = undo.next_no.max(log.top_no().map_or(0, |no| no + 1));
    match header.kind {
        LogKind::Insert => undo.insert = Some(log),
        LogKind::Update => {
            rseg.adopt_reservation(env)?;
            undo.update = Some(log);
        }
    }
    Ok(())
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

/// The undo of one transaction: both logs and the one sequence of undo numbers over them.
pub struct TrxUndo {
    rseg: Arc<Rseg>,
    trx: TrxId,
    insert: Option<UndoLog>,
    update: Option<UndoLog>,
    next_no: u64,
}

impl TrxUndo {
    fn new(rseg: Arc<Rseg>, trx: TrxId) -> TrxUndo {
        TrxUndo {
            rseg,
            trx,
            insert: None,
            update: None,
            next_no: 0,
        }
    }

    pub fn trx(&self) -> TrxId {
        self.trx
    }

    /// The number that the next record will get: what a savepoint remembers.
    pub fn next_no(&self) -> u64 {
        self.next_no
    }

    fn log(&self, kind: UndoKind) -> &UndoLog {
        let log = if kind.is_insert() {
            &self.insert
        } else {
            &self.update
        };
        log.as_ref().expect("prepare created the log")
    }

    /// Makes room for a record of `len` bytes; call before the mini-transaction that will `append` it.
    pub fn prepare(&mut self, env: &UndoEnv, kind: UndoKind, len: usize) -> Result<()> {
        check_undo_no(self.trx, self.next_no)?;
        let (log, log_kind) = match kind.is_insert() {
            true => (&mut self.insert, LogKind::Insert),
            false => (&mut self.update, LogKind::Update),
        };
        if log.is_none() {
            *log = Some(UndoLog::create(env, &self.rseg, log_kind, self.trx)?);
        }
        log.as_mut()
            .expect("just created")
            .ensure_room(env, &self.rseg, len)
    }

    /// The table that the newest record not taken back belongs to.
    pub fn newest_table(&self, env: &UndoEnv) -> Result<Option<TableId>> {
        let mut bytes = Vec::new();
        let newest = self.read_newest(env, 0, &mut bytes)?;
        let record = newest.and_then(|_| UndoRecord::decode(&bytes));
        Ok(record.map(|r| r.table))
    }

    /// The first page of one of the logs, for messages.
    pub fn page(&self) -> Option<PageId> {
        let log = self.insert.as_ref().or(self.update.as_ref());
        log.map(UndoLog::first_page)
    }

    /// Logs in the history of the transaction's rollback segment.
    pub fn segment_history_len(&self) -> u64 {
        self.rseg.history_len()
    }

    /// Free pages of the transaction's rollback segment that purge should return.
    pub fn segment_surplus_pages(&self) -> u32 {
        self.rseg.surplus_pages()
    }

    /// Something was written: there is a log to end.
    pub fn has_logs(&self) -> bool {
        let begun = |log: &Option<UndoLog>| log.as_ref().is_some_and(UndoLog::is_begun);
        begun(&self.insert) || begun(&self.update)
    }

    /// Where the next record of this kind will stand.
    pub fn next_roll_ptr(&self, kind: UndoKind) -> RollPtr {
        self.log(kind).next_roll_ptr(self.rseg.id())
    }

    /// Latches the undo page; after the tree's pages, before the first change of the mini-transaction.
    pub fn latch(&self, mtr: &mut Mtr<'_>, kind: UndoKind) -> Result<PageH> {
        self.log(kind).latch_last(mtr)
    }

    /// Appends the encoded record, which carries `next_no`; with what `UndoRecord::concerns_purge` says of it.
    pub fn append(
        &mut self,
        mtr: &mut Mtr<'_>,
        page: PageH,
        kind: UndoKind,
        record: (&[u8], bool),
    ) {
        let no = self.next_no;
        let log = if kind.is_insert() {
            &mut self.insert
        } else {
            &mut self.update
        };
        log.as_mut()
            .expect("prepare created the log")
            .append(mtr, page, no, record);
        self.next_no += 1;
    }

    /// Copies the newest record with a number of at least `down_to` that is not taken back yet into `out`: it can be
    /// decoded. Returns the page that it stands on, or `None` if there is none.
    pub fn read_newest(
        &self,
        env: &UndoEnv,
        down_to: u64,
        out: &mut Vec<u8>,
    ) -> Result<Option<PageId>> {
        let top = |log: &Option<UndoLog>| log.as_ref().and_then(UndoLog::top_no);
        let log = match (top(&self.insert), top(&self.update)) {
            (a, b) if a.max(b).is_none_or(|no| no < down_to) => return Ok(None),
            (a, b) if a > b => &self.insert,
            _ => &self.update,
        };
        log.as_ref()
            .expect("has a top")
            .read_top(env, out)
            .map(Some)
    }

    /// Latches what marking the newest record of this kind changes.
    pub fn latch_undone(&self, mtr: &mut Mtr<'_>, kind: UndoKind) -> Result<UndoneLatch> {
        Ok(UndoneLatch(kind, self.log(kind).latch_top(mtr, kind)?))
    }

    /// Marks the newest record as taken back, in the mini-transaction that took it back.
    pub fn mark_undone(&mut self, mtr: &mut Mtr<'_>, latch: UndoneLatch) {
        let log = if latch.0.is_insert() {
            &mut self.insert
        } else {
            &mut self.update
        };
        log.as_mut().expect("latched").mark_undone(mtr, latch.1);
    }

    /// Goes on to the record before the one that was just taken back.
    pub fn pop_newest(&mut self, env: &UndoEnv, kind: UndoKind) -> Result<()> {
        let log = if kind.is_insert() {
            &mut self.insert
        } else {
            &mut self.update
        };
        log.as_mut().expect("had a top").pop_top(env)
    }

    /// Ends the transaction's undo at commit: the update log joins the history under the number that `number`
    /// draws, the insert log is given back. Everything that can fail happens before `number` is called.
    /// Returns the LSN that makes it durable.
    pub fn commit(
        &mut self,
        env: &UndoEnv,
        number: impl FnOnce() -> TrxNo,
    ) -> Result<(TrxNo, Lsn)> {
        self.finish(env, true, |_| number())
    }

    /// Ends the transaction's undo after everything was taken back. A log in which a revive was taken back joins
    /// the history all the same: what it restored to 'dead' may have been passed over by purge meanwhile.
    /// `number` is told whether that is so.
    pub fn finish_rollback(
        &mut self,
        env: &UndoEnv,
        number: impl FnOnce(bool) -> TrxNo,
    ) -> Result<(TrxNo, Lsn)> {
        let keep = self.update.as_ref().is_some_and(UndoLog::undone_revive);
        self.finish(env, keep, number)
    }

    fn finish(
        &mut self,
        env: &UndoEnv,
        keep: bool,
        number: impl FnOnce(bool) -> TrxNo,
    ) -> Result<(TrxNo, Lsn)> {
        self.return_unused();
        let rseg = &*self.rseg;
        let logs = [&mut self.update, &mut self.insert];
        let mut logs = logs.map(|log| log.as_mut().map(|log| (End::of(log, keep), log)));
        let ends = |wanted: &[End]| (logs.iter().flatten()).any(|(end, _)| wanted.contains(end));
        let joins_history = ends(&[End::History]);
        let mut mtr = env.begin()?;
        // A log whose page stays where it is changes nothing in the rollback segment's header.
        let rseg_h = match joins_history || ends(&[End::FreeChain]) {
            true => Some(rseg.latch(&mut mtr)?),
            false => None,
        };
        let tail = match rseg_h.filter(|_| joins_history) {
            Some(rseg_h) => Some(rseg.latch_tail(env, &mut mtr, rseg_h)?),
            None => None,
        };
        let mut pages = [None; 2];
        for (page, (end, log)) in pages
            .iter_mut()
            .zip(&logs)
            .filter_map(|(p, l)| Some((p, l.as_ref()?)))
        {
            *page = Some(match end {
                End::FreeChain => log.latch_last(&mut mtr)?,
                End::History | End::Cache => log.latch_header(&mut mtr)?,
            });
        }
        let no = number(joins_history);
        for (page, log) in pages.into_iter().zip(&mut logs) {
            let (Some(page), Some((end, log))) = (page, log) else {
                continue;
            };
            match (end, rseg_h, &tail) {
                (End::Cache, ..) => log.write_cached(&mut mtr, page),
                (End::History, Some(rseg_h), Some(tail)) => {
                    let entry = log.write_committed(&mut mtr, page, no);
                    rseg.append_history(&mut mtr, rseg_h, tail, entry);
                    rseg.write_slot(&mut mtr, rseg_h, log.header().slot, NO_PAGE);
                }
                (End::FreeChain, Some(rseg_h), _) => {
                    log.give_back(&mut mtr, rseg, rseg_h, page);
                    rseg.write_slot(&mut mtr, rseg_h, log.header().slot, NO_PAGE);
                }
                _ => unreachable!("the header was latched for it"),
            }
        }
        let lsn = mtr.commit();
        for (end, log) in logs.iter().flatten() {
            match end {
                End::Cache => rseg.return_cached(log.place()),
                End::History | End::FreeChain => rseg.return_slot(log.header().slot),
            }
            if log.header().kind == LogKind::Update && *end != End::History {
                rseg.return_history();
            }
        }
        (self.insert, self.update) = (None, None);
        Ok((no, lsn))
    }

    /// Returns logs that were created, but not written to.
    fn return_unused(&mut self) {
        for log in [&mut self.insert, &mut self.update] {
            if let Some(unused) = log.take_if(|log| !log.is_begun()) {
                self.rseg.return_cached(unused.place());
                if unused.header().kind == LogKind::Update {
                    self.rseg.return_history();
                }
            }
        }
    }
}

impl Drop for TrxUndo {
    fn drop(&mut self) {
        self.return_unused();
    }
}

/// Where a log goes at the end of its transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    History,
    /// It stays in its slot, as a cached page.
    Cache,
    FreeChain,
}

impl End {
    fn of(log: &UndoLog, keep: bool) -> End {
        if keep && log.header().kind == LogKind::Update {
            End::History
        } else if log.is_one_page() {
            End::Cache
        } else {
            End::FreeChain
        }
    }
}

/// Pages latched for `TrxUndo::mark_undone`.
pub struct UndoneLatch(UndoKind, log::TopLatch);

/// Undo numbers have 6 bytes on disk.
fn check_undo_no(trx: TrxId, no: u64) -> Result<()> {
    match no >> 48 {
        0 => Ok(()),
        _ => Err(Error::NoSpace {
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
