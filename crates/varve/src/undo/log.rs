//! Undo logs: the records of one transaction, in one kind of log.
//!
//! # Logs that share a page
//!
//! A log begins on a page of its rollback segment (`UndoLog`) behind the records of logs that have ended, and
//! goes on, if it grows, on further pages of its own (`UndoPage`), each with the number of the page before
//! it. The user area of the first page is the header of the newest log there. An older log needs none: its
//! entry in the history queue says where its records begin and end. So a small transaction writes a few bytes
//! of header, its records, and at its end one byte, and formats no page.
//!
//! A page belongs to one transaction at a time, and is cached by its rollback segment between two of them
//! (RSEG-4). Thus the logs of a page follow each other in the order of their slots and of their TrxNos. An
//! update log that ends with less than a quarter of the page left, or that took further pages, **closes** the
//! page: the page leaves its slot, and purge gives it back with that log, the last one of the page to be
//! purged. Insert logs leave nothing that anybody needs: a page of these is started anew when it is full, and
//! so is one of update logs if all of them have been purged.
//!
//! Only the owning transaction (or its rollback) appends, so the room left in the last page is known without
//! a latch. Purge and readers only look, and find each record by its slot, which it keeps as long as the page
//! is not started anew.
//!
//! - **UNDO-3** Room for a record is made before the mini-transaction that changes the row: that one can't
//!   fail for lack of undo space.
//! - **UNDO-4** The page that a log's header names as last is the end of the chain that starts at the header.
//! - **UNDO-7** A transaction's logs become prepared, and active again, in one mini-transaction for both:
//!   recovery never finds one of them prepared alone. Rollback makes them active first: what is taken back by
//!   half is not prepared.
//! - **UNDO-6** A page is started anew only if no log on it is in the history (RSEG-5).

use crate::base::{
    Error, NO_PAGE, PageId, PageNo, Result, RollPtr, Sabotage, SpaceId, TrxId, TrxNo,
    XID_MAX_ENCODED, Xid,
};
use crate::buffer::Pin;
use crate::mtr::{Mtr, PageHandle};
use crate::page::{PageOp, PageType, SLOT_SIZE, SlottedRef};
use crate::space::AllocPurpose;

use super::UndoEnv;
use super::header::{
    BEGIN_LEN, FIRST_LEN, LINK_LEN, LogHeader, LogKind, LogSpan, LogState, STATE, XID, format_page,
    read_xid, room_of_first_page, write_user,
};
use super::record::{EncodedUndo, FLAG_UNDONE, FLAGS_OFFSET, UndoKind, UndoRecord};
use super::rseg::{Cached, HistoryEntry, NEXT, Rseg, set_next, u32_at, undo_page};

/// The newest record of a log that may still have to be taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Top {
    page: PageNo,
    slot: u16,
    undo_no: u64,
}

/// How a log takes its first page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LogStart {
    /// Behind the logs that are there.
    AfterOthers,
    /// It starts the page anew (UNDO-6).
    EmptiesPage,
    /// It has begun.
    Started,
}

/// One log of a running transaction.
#[derive(Debug)]
pub struct UndoLog {
    space: SpaceId,
    first: PageNo,
    header: LogHeader,
    /// The header is written with the first record. Until then the page is a cached one of the rollback
    /// segment.
    start: LogStart,
    /// The cached page as it was taken.
    taken: Cached,
    /// A record tells purge to do something once the transaction has committed.
    concerns_purge: bool,
    /// Bytes that records can still take in the last page.
    room: usize,
    /// Records in the last page, those of other logs included.
    last_slots: u16,
    top: Option<Top>,
}

impl UndoLog {
    /// A log for `trx` whose first record takes `len` bytes, on a cached page of `rseg`. Nothing is written
    /// before that record.
    pub(super) fn create(
        env: &UndoEnv,
        rseg: &Rseg,
        kind: LogKind,
        len: usize,
        trx: TrxId,
        purpose: AllocPurpose,
    ) -> Result<UndoLog> {
        if kind == LogKind::Update {
            rseg.reserve_history(env, purpose)?;
        }
        let cached = rseg.take_cached(env, kind, purpose).inspect_err(|_| {
            if kind == LogKind::Update {
                rseg.return_history();
            }
        })?;
        let wanted = cost(len).max(room_to_share(env.page_size));
        // RSEG-5, and whether there is anything to be won.
        let anew = cached.kind != kind || (cached.room < wanted && rseg.is_purged(&cached));
        let too_early = env.mtr.log.is_sabotaged(Sabotage::UndoPageTakenTooEarly);
        let (start, room, records) = match anew || too_early {
            true => (LogStart::EmptiesPage, room_of_first_page(env.page_size), 0),
            false => (LogStart::AfterOthers, cached.room, cached.records),
        };
        let header = LogHeader {
            state: LogState::Active,
            kind,
            undone_unmark: false,
            slot: cached.slot,
            start: records,
            trx,
            last: cached.page,
            pages: 1,
        };
        Ok(UndoLog {
            space: rseg.space(),
            first: cached.page,
            header,
            start,
            taken: cached,
            concerns_purge: false,
            room,
            last_slots: records,
            top: None,
        })
    }

    /// Writes the header, in the mini-transaction of the first record or of the page that it goes to.
    fn begin(&mut self, mtr: &mut Mtr<'_>, page: PageHandle) {
        match self.start {
            LogStart::AfterOthers => {
                let header = self.header.encode();
                write_user(mtr, page, 0, &header[..BEGIN_LEN]);
            }
            LogStart::EmptiesPage => {
                format_page(mtr, page, PageType::UndoLog, TrxId(0), FIRST_LEN);
                self.write_header(mtr, page);
                let room = undo_page(mtr.bytes(page)).map(|p| p.free_space());
                assert_eq!(room, Some(self.room), "UNDO-3: room in an empty undo page");
                self.taken.newest = TrxNo(0);
            }
            LogStart::Started => {}
        }
        self.start = LogStart::Started;
    }

    /// Whether anything was written. If not, the page is still a cached one, and has to be returned as such.
    pub(super) fn has_started(&self) -> bool {
        self.start == LogStart::Started
    }

    /// The page as it was before the log, which has not begun.
    pub(super) fn taken(&self) -> Cached {
        assert!(!self.has_started(), "RSEG-4: a page in use is cached");
        self.taken
    }

    /// The page for the cache, after the log, which has one page, has ended. `newest`: its number if it
    /// joined the history.
    pub(super) fn cached(&self, newest: Option<TrxNo>) -> Cached {
        assert!(self.is_one_page(), "RSEG-4: a cached page of a longer log");
        Cached {
            kind: self.header.kind,
            newest: newest.unwrap_or(self.taken.newest),
            records: self.last_slots,
            room: self.room,
            ..self.taken
        }
    }

    pub(super) fn is_one_page(&self) -> bool {
        self.header.pages == 1
    }

    /// Whether another log is to begin on the page after this one.
    pub(super) fn leaves_room(&self, env: &UndoEnv) -> bool {
        self.is_one_page() && self.room >= room_to_share(env.page_size)
    }

    /// Nobody needs an older log of the first page.
    pub(super) fn is_alone(&self, rseg: &Rseg) -> bool {
        rseg.is_purged(&self.taken)
    }

    /// A log that recovery found in this slot. `newest`: the number of the newest log of the history in its
    /// first page.
    pub(super) fn adopt(
        env: &UndoEnv,
        space: SpaceId,
        slot: u16,
        first: PageNo,
        newest: TrxNo,
    ) -> Result<UndoLog> {
        let id = PageId::new(space, first);
        let header = LogHeader::read(&env.pool.shared(id)?, id)?;
        let is_running = header.state != LogState::Committed && header.trx.0 != 0;
        if header.slot != slot || !is_running {
            let expected = format!("the running undo log of slot {slot}");
            return Err(Error::corrupt(id, expected, format!("{header:?}")));
        }
        let last_id = PageId::new(space, header.last);
        let last = env.pool.shared(last_id)?;
        let (slotted, _) = header.span(first).check_page(&last, last_id)?;
        let (room, last_slots) = (slotted.free_space(), slotted.n_slots() as u16);
        drop(last);
        let mut log = UndoLog {
            space,
            first,
            header,
            start: LogStart::Started,
            taken: Cached {
                slot,
                page: first,
                kind: header.kind,
                newest,
                records: header.start,
                room,
            },
            concerns_purge: true,
            room,
            last_slots,
            top: None,
        };
        log.top = log.newest_at_or_before(env, header.last, last_slots)?;
        Ok(log)
    }

    pub(super) fn header(&self) -> &LogHeader {
        &self.header
    }

    pub(super) fn undone_unmark(&self) -> bool {
        self.header.undone_unmark
    }

    /// Where its records are.
    pub(super) fn span(&self) -> LogSpan {
        self.header.span(self.first)
    }

    fn page(&self, no: PageNo) -> PageId {
        PageId::new(self.space, no)
    }

    pub(super) fn first_page(&self) -> PageId {
        self.page(self.first)
    }

    /// Latches a page of the log.
    fn latch_page(&self, mtr: &mut Mtr<'_>, no: PageNo) -> Result<PageHandle> {
        if no == self.first {
            return self.latch_header(mtr);
        }
        let h = mtr.exclusive(self.page(no))?;
        self.span().check_page(mtr.bytes(h), self.page(no))?;
        Ok(h)
    }

    /// Latches the first page: the log's own, or the cached one that it will begin on.
    pub(super) fn latch_header(&self, mtr: &mut Mtr<'_>) -> Result<PageHandle> {
        let h = mtr.exclusive(self.page(self.first))?;
        let found = LogHeader::read(mtr.bytes(h), self.page(self.first))?;
        let is_it = match self.has_started() {
            true => {
                (found.state, found.trx, found.start)
                    == (self.header.state, self.header.trx, self.header.start)
            }
            false => {
                (found.state, found.kind, found.pages) == (LogState::Committed, self.taken.kind, 1)
            }
        };
        match is_it && found.slot == self.header.slot {
            true => Ok(h),
            false => Err(Error::corrupt(
                self.page(self.first),
                format!("{:?} ({:?})", self.header, self.start),
                format!("{found:?}"),
            )),
        }
    }

    /// Makes sure that a record of `len` bytes fits into the last page (UNDO-3).
    pub(super) fn ensure_room(
        &mut self,
        env: &UndoEnv,
        rseg: &Rseg,
        len: usize,
        purpose: AllocPurpose,
    ) -> Result<()> {
        if cost(len) <= self.room {
            return Ok(());
        }
        let limit = room_of_first_page(env.page_size);
        if cost(len) > limit {
            return Err(Error::TooLarge {
                what: "undo record".into(),
                size: len,
                limit,
            });
        }
        let space = env.space(self.space)?;
        let _reserved = space.reserve_for(&env.mtr, 1, purpose)?;
        let mut mtr = env.begin(self.space)?;
        let rseg_h = rseg.latch(&mut mtr)?;
        let header_h = self.latch_header(&mut mtr)?;
        let last_h = match self.header.last {
            last if last == self.first => header_h,
            last => self.latch_page(&mut mtr, last)?,
        };
        let (no, page) = rseg.take_page(env, &mut mtr, rseg_h)?;
        self.begin(&mut mtr, header_h);
        format_page(
            &mut mtr,
            page,
            PageType::UndoPage,
            self.header.trx,
            LINK_LEN,
        );
        write_user(&mut mtr, page, 0, &self.header.last.0.to_le_bytes());
        set_next(&mut mtr, last_h, no);
        self.header.last = no;
        self.header.pages += 1;
        self.write_header(&mut mtr, header_h);
        self.room = undo_page(mtr.bytes(page))
            .expect("just formatted")
            .free_space();
        self.last_slots = 0;
        mtr.commit();
        Ok(())
    }

    /// Whether a record of `len` bytes fits into the last page as it is.
    pub(super) fn has_room(&self, len: usize) -> bool {
        cost(len) <= self.room
    }

    fn write_header(&self, mtr: &mut Mtr<'_>, header_h: PageHandle) {
        write_user(mtr, header_h, 0, &self.header.encode());
    }

    /// Latches the page that the next record goes to.
    pub(super) fn latch_last(&self, mtr: &mut Mtr<'_>) -> Result<PageHandle> {
        let h = self.latch_page(mtr, self.header.last)?;
        if self.start != LogStart::EmptiesPage {
            let id = self.page(self.header.last);
            let found = undo_page(mtr.bytes(h)).map(|p| (p.n_slots(), p.free_space()));
            let expected = (self.last_slots.into(), self.room);
            if found != Some(expected) {
                let expected = format!("(records, bytes left) {expected:?}");
                return Err(Error::corrupt(id, expected, format!("{found:?}")));
            }
        }
        Ok(h)
    }

    /// Where the next record will stand.
    pub(super) fn next_roll_ptr(&self, rseg: u8) -> RollPtr {
        RollPtr::new(
            self.header.kind == LogKind::Insert,
            rseg,
            self.header.last,
            self.last_slots,
        )
    }

    /// Appends a record for which `ensure_room` made room.
    pub(super) fn append(
        &mut self,
        mtr: &mut Mtr<'_>,
        last_h: PageHandle,
        undo_no: u64,
        record: EncodedUndo<'_>,
    ) {
        let EncodedUndo {
            bytes,
            concerns_purge,
        } = record;
        assert!(
            cost(bytes.len()) <= self.room,
            "UNDO-3: no room was made for an undo record"
        );
        if !self.has_started() {
            self.begin(mtr, last_h);
        }
        self.concerns_purge |= concerns_purge;
        let slot = self.last_slots;
        mtr.op(last_h, PageOp::Append { payload: bytes });
        self.room -= cost(bytes.len());
        self.last_slots += 1;
        self.top = Some(Top {
            page: self.header.last,
            slot,
            undo_no,
        });
    }

    /// Undo number of the newest record not taken back.
    pub(super) fn top_no(&self) -> Option<u64> {
        self.top.map(|t| t.undo_no)
    }

    /// Copies the newest record not taken back, which can be decoded, into `out`. Returns its page.
    pub(super) fn read_top(&self, env: &UndoEnv, out: &mut Vec<u8>) -> Result<PageId> {
        let top = self.top.expect("the caller looked at top_no");
        let id = self.page(top.page);
        let page = env.pool.shared(id)?;
        let span = self.span();
        let (slotted, records) = span.check_page(&page, id)?;
        let there = records.contains(&top.slot.into());
        let bytes = there.then(|| slotted.payload(top.slot as usize));
        let is_top = |r: &UndoRecord<'_>| r.undo_no == top.undo_no && !r.undone;
        match bytes.filter(|b| span.record(b).is_some_and(|r| is_top(&r))) {
            Some(bytes) => {
                out.clear();
                out.extend_from_slice(bytes);
                Ok(id)
            }
            None => Err(damaged_record(id, top.slot)),
        }
    }

    /// Latches what `mark_undone` changes; after the tree's pages.
    pub(super) fn latch_top(&self, mtr: &mut Mtr<'_>, kind: UndoKind) -> Result<TopLatch> {
        let top = self.top.expect("the caller looked at top_no");
        let marks_header = kind.is_unmark() && !self.header.undone_unmark;
        let header = if marks_header {
            Some(self.latch_header(mtr)?)
        } else {
            None
        };
        let page = match header {
            Some(h) if top.page == self.first => h,
            _ => self.latch_page(mtr, top.page)?,
        };
        // It was read under an earlier latch.
        let there = undo_page(mtr.bytes(page))
            .filter(|p| (top.slot as usize) < p.n_slots())
            .and_then(|p| self.span().record(p.payload(top.slot.into())));
        match there {
            Some(_) => Ok(TopLatch { header, page }),
            None => Err(damaged_record(self.page(top.page), top.slot)),
        }
    }

    /// Marks the top record as taken back, in the mini-transaction that took it back.
    pub(super) fn mark_undone(&mut self, mtr: &mut Mtr<'_>, latch: TopLatch) {
        let top = self.top.expect("the caller looked at top_no");
        if mtr.env().log.is_sabotaged(Sabotage::UndoneNotMarked) {
            return;
        }
        mtr.op(
            latch.page,
            PageOp::PatchPayload {
                slot: top.slot,
                off: FLAGS_OFFSET,
                bytes: &[FLAG_UNDONE],
            },
        );
        if let Some(header) = latch.header {
            self.header.undone_unmark = true;
            self.write_header(mtr, header);
        }
    }

    /// Moves `top` down past the record that was just marked.
    pub(super) fn pop_top(&mut self, env: &UndoEnv) -> Result<()> {
        let top = self.top.expect("the caller looked at top_no");
        self.top = self.newest_at_or_before(env, top.page, top.slot)?;
        Ok(())
    }

    /// The newest record not yet undone in the slots below `slots` of `page`, or in the pages before it.
    fn newest_at_or_before(
        &self,
        env: &UndoEnv,
        mut no: PageNo,
        slots: u16,
    ) -> Result<Option<Top>> {
        let mut below = slots as usize;
        let span = self.span();
        // No log has more pages than it says: links that go round are noticed.
        for _ in 0..self.header.pages {
            let id = self.page(no);
            let page = env.pool.shared(id)?;
            let (slotted, records) = span.check_page(&page, id)?;
            for slot in (records.start..below.min(records.end)).rev() {
                let record = span.record(slotted.payload(slot));
                let record = record.ok_or_else(|| damaged_record(id, slot as u16))?;
                if !record.undone {
                    return Ok(Some(Top {
                        page: no,
                        slot: slot as u16,
                        undo_no: record.undo_no,
                    }));
                }
            }
            if no == self.first {
                return Ok(None);
            }
            let Some(before) = slotted.user().get(..4) else {
                let expected = "a link to the page before it";
                return Err(Error::corrupt(id, expected, "none"));
            };
            no = PageNo(u32_at(before, 0));
            below = usize::MAX;
        }
        let expected = format!("an undo log of {} pages", self.header.pages);
        Err(Error::corrupt(self.first_page(), expected, "more"))
    }

    /// Says in the header that the transaction is prepared, under this name.
    pub(super) fn write_prepared(&mut self, mtr: &mut Mtr<'_>, header_h: PageHandle, xid: &Xid) {
        self.header.state = LogState::Prepared;
        self.write_header(mtr, header_h);
        let mut bytes = Vec::with_capacity(XID_MAX_ENCODED);
        xid.encode(&mut bytes);
        write_user(mtr, header_h, XID, &bytes);
    }

    /// Takes that back: the transaction is going to be rolled back.
    pub(super) fn write_active(&mut self, mtr: &mut Mtr<'_>, header_h: PageHandle) {
        self.header.state = LogState::Active;
        self.write_header(mtr, header_h);
    }

    /// The name of a prepared transaction; `None` if the log is not prepared.
    pub(super) fn xid(&self, env: &UndoEnv) -> Result<Option<Xid>> {
        if self.header.state != LogState::Prepared {
            return Ok(None);
        }
        let id = self.page(self.first);
        read_xid(&env.pool.shared(id)?, id).map(Some)
    }

    /// The pages that `TrxUndo::commit` changes, pinned.
    pub(super) fn pin_for_commit(&self, env: &UndoEnv) -> Result<Pin> {
        // An update log's header is written, an insert log is given back by its end.
        let no = match self.header.kind {
            LogKind::Update => self.first,
            LogKind::Insert => self.header.last,
        };
        env.pool.pin(self.page(no))
    }

    /// Ends the log, in the mini-transaction of its end: its page is nobody's now.
    pub(super) fn write_ended(&mut self, mtr: &mut Mtr<'_>, header_h: PageHandle) {
        self.header.state = LogState::Committed;
        write_user(mtr, header_h, STATE as u16, &[LogState::Committed as u8]);
    }

    /// What the history queue says of the log, whose header page is latched.
    pub(super) fn history_entry(&self, first_page: &[u8], no: TrxNo, closes: bool) -> HistoryEntry {
        let end = SlottedRef::new(first_page).n_slots() as u16;
        let silent = !self.concerns_purge && !self.undone_unmark();
        HistoryEntry {
            no,
            trx: self.header.trx,
            first: self.first,
            start: self.header.start,
            end,
            only_space: silent,
            closes,
            one_page: self.is_one_page(),
            undone_unmark: self.undone_unmark(),
        }
    }

    /// The first of the further pages. The header page is latched.
    fn second_page(&self, first_page: &[u8]) -> PageNo {
        PageNo(u32_at(first_page, NEXT))
    }

    /// Latches the last page, for the end of a log that gives pages back.
    pub(super) fn latch_end(&self, mtr: &mut Mtr<'_>) -> Result<PageHandle> {
        self.latch_page(mtr, self.header.last)
    }

    /// Gives the further pages back, up to the latched last one, so that only the first is left.
    pub(super) fn cut_off(
        &mut self,
        mtr: &mut Mtr<'_>,
        rseg: &Rseg,
        rseg_h: PageHandle,
        header_h: PageHandle,
        last_h: PageHandle,
    ) {
        let second = self.second_page(mtr.bytes(header_h));
        rseg.give_back(mtr, rseg_h, second, last_h, self.header.pages - 1);
        set_next(mtr, header_h, NO_PAGE);
        self.header.last = self.first;
        self.header.pages = 1;
        self.write_header(mtr, header_h);
    }

    /// Gives all pages back to the rollback segment; `last_h` is the latched last page.
    pub(super) fn give_back(
        &self,
        mtr: &mut Mtr<'_>,
        rseg: &Rseg,
        rseg_h: PageHandle,
        last_h: PageHandle,
    ) {
        rseg.give_back(mtr, rseg_h, self.first, last_h, self.header.pages);
    }
}

pub(super) fn damaged_record(page: PageId, slot: u16) -> Error {
    let expected = format!("an undo record of the page's log in slot {slot}");
    Error::corrupt(page, expected, "something else")
}

/// Pages that `mark_undone` changes.
pub(super) struct TopLatch {
    header: Option<PageHandle>,
    page: PageHandle,
}

/// Bytes that have to be left in a page so that another log begins on it.
fn room_to_share(page_size: usize) -> usize {
    page_size / 4
}

/// Bytes that a record of `len` takes in a page: slot, key length, content.
fn cost(len: usize) -> usize {
    SLOT_SIZE + 2 + len
}
