//! Undo logs: the records of one transaction, in one kind of log.
//!
//! A log is a chain of slotted pages. The first (`UndoLog`) carries the log header in its user area; each further
//! one (`UndoPage`) carries the number of the page before it. Only the owning transaction (or its rollback)
//! appends, so the room left in the last page is known without a latch. Purge and readers only look.
//!
//! - **UNDO-3** Room for a record is made in a mini-transaction of its own, before the one that changes the row: that
//!   one can't fail for lack of undo space.
//! - **UNDO-4** The page that a log's header names as last is the end of the chain that starts at the header.
//! - **UNDO-5** A transaction's logs become prepared, and active again, in one mini-transaction for both: recovery never
//!   finds one of them prepared alone. Rollback makes them active first: what is taken back by half is not prepared.

use crate::base::{
    Error, NO_PAGE, PageId, PageNo, Result, RollPtr, SpaceId, TrxId, TrxNo, XID_MAX_ENCODED, Xid,
};
use crate::buffer::Pin;
use crate::mtr::{Mtr, PageH};
use crate::page::{OFF_USER, PageOp, PageType, SLOT_SIZE, SlottedRef, page_type};

use super::UndoEnv;
use super::record::{FLAG_UNDONE, FLAGS_OFFSET, UndoKind, UndoRecord};
use super::rseg::{Cached, HistoryEntry, Rseg, set_next, u32_at, undo_page};

/// User area of the first page: state, kind, flags, slot, TrxId, TrxNo, last page, page count.
const HEADER_LEN: u16 = 40;
/// Behind that: the name of a prepared transaction.
const XID: u16 = HEADER_LEN;
/// The whole user area of the first page.
const FIRST_LEN: u16 = (XID as usize + XID_MAX_ENCODED).next_multiple_of(8) as u16;
const STATE: usize = 0;
const KIND: usize = 1;
const FLAGS: usize = 2;
const SLOT: usize = 4;
const TRX: usize = 8;
const NO: usize = 16;
const LAST: usize = 24;
const PAGES: usize = 28;
/// User area of a further page: the page before it.
const LINK_LEN: u16 = 8;

/// Header flag: something that the log revived was taken back, so purge must look at revives, too, and in two
/// sweeps (entries, then rows).
const FLAG_UNDONE_REVIVE: u8 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum LogState {
    Active = 1,
    Committed = 2,
    /// The transaction's coordinator decides how it ends: see `UndoLog::xid`.
    Prepared = 3,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum LogKind {
    Insert = 1,
    Update = 2,
}

/// The header of a log, read from its first page.
#[derive(Clone, Copy, Debug)]
pub struct LogHeader {
    pub state: LogState,
    pub kind: LogKind,
    pub undone_revive: bool,
    pub slot: u16,
    pub trx: TrxId,
    pub no: TrxNo,
    pub last: PageNo,
    pub pages: u32,
}

impl LogHeader {
    pub fn read(page: &[u8], id: PageId) -> Result<LogHeader> {
        let damaged = |found: String| Error::corrupt(id, "the header of an undo log", found);
        if page_type(page) != Some(PageType::UndoLog) {
            return Err(damaged(format!("page type {:?}", page_type(page))));
        }
        let user = SlottedRef::new(page).user();
        if user.len() < HEADER_LEN as usize {
            return Err(damaged(format!("a user area of {} bytes", user.len())));
        }
        let u64_at = |at: usize| u64::from_le_bytes(user[at..at + 8].try_into().expect("8 bytes"));
        let state = match user[STATE] {
            1 => LogState::Active,
            2 => LogState::Committed,
            3 => LogState::Prepared,
            v => return Err(damaged(format!("state {v}"))),
        };
        let kind = match user[KIND] {
            1 => LogKind::Insert,
            2 => LogKind::Update,
            v => return Err(damaged(format!("kind {v}"))),
        };
        let header = LogHeader {
            state,
            kind,
            undone_revive: user[FLAGS] & FLAG_UNDONE_REVIVE != 0,
            slot: u16::from_le_bytes([user[SLOT], user[SLOT + 1]]),
            trx: TrxId(u64_at(TRX)),
            no: TrxNo(u64_at(NO)),
            last: PageNo(u32_at(user, LAST)),
            pages: u32_at(user, PAGES),
        };
        let owner = SlottedRef::new(page).owner();
        let one_page = header.pages == 1;
        if owner != header.trx.0 || one_page != (header.last == id.no) {
            return Err(damaged(format!("{header:?} of {owner}")));
        }
        Ok(header)
    }

    /// The header of the log that an entry of the history queue leads to.
    pub(super) fn of_history(page: &[u8], id: PageId, entry: HistoryEntry) -> Result<LogHeader> {
        let header = LogHeader::read(page, id)?;
        let is_it = (header.state, header.kind, header.no)
            == (LogState::Committed, LogKind::Update, entry.no);
        match is_it {
            true => Ok(header),
            false => Err(Error::corrupt(
                id,
                format!("the update undo log of commit {}", entry.no),
                format!("{header:?}"),
            )),
        }
    }

    /// A page of the log, reached by a link of another: checks that it is one.
    pub fn check_page<'p>(&self, page: &'p [u8], id: PageId) -> Result<SlottedRef<'p>> {
        match undo_page(page).filter(|p| p.owner() == self.trx.0) {
            Some(slotted) => Ok(slotted),
            None => Err(Error::corrupt(
                id,
                format!("a page of the undo log of transaction {}", self.trx),
                format!("another one of type {:?}", page_type(page)),
            )),
        }
    }

    /// A record of the log. `None`: damaged.
    pub fn record<'p>(&self, bytes: &'p [u8]) -> Option<UndoRecord<'p>> {
        let is_insert = self.kind == LogKind::Insert;
        UndoRecord::decode(bytes).filter(|r| r.trx == self.trx && r.kind.is_insert() == is_insert)
    }

    fn encode(&self) -> [u8; HEADER_LEN as usize] {
        let mut out = [0; HEADER_LEN as usize];
        out[STATE] = self.state as u8;
        out[KIND] = self.kind as u8;
        out[FLAGS] = if self.undone_revive {
            FLAG_UNDONE_REVIVE
        } else {
            0
        };
        out[SLOT..SLOT + 2].copy_from_slice(&self.slot.to_le_bytes());
        out[TRX..TRX + 8].copy_from_slice(&self.trx.0.to_le_bytes());
        out[NO..NO + 8].copy_from_slice(&self.no.0.to_le_bytes());
        out[LAST..LAST + 4].copy_from_slice(&self.last.0.to_le_bytes());
        out[PAGES..PAGES + 4].copy_from_slice(&self.pages.to_le_bytes());
        out
    }
}

/// The name of a prepared transaction, from the first page of one of its logs.
fn read_xid(page: &[u8], id: PageId) -> Result<Xid> {
    let user = undo_page(page).map_or(&[][..], |p| p.user());
    let xid = user.get(XID as usize..).and_then(Xid::decode);
    xid.ok_or_else(|| {
        let expected = "the name of a prepared transaction";
        Error::corrupt(id, expected, "lengths out of bounds")
    })
}

/// The newest record of a log that may still have to be taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Top {
    page: PageNo,
    slot: u16,
    undo_no: u64,
}

/// One log of a running transaction.
#[derive(Debug)]
pub struct UndoLog {
    space: SpaceId,
    first: PageNo,
    header: LogHeader,
    /// The first record was written, and with it the header. Until then the log is a cached page of its rollback segment.
    begun: bool,
    /// A record tells purge to do something once the transaction has committed.
    concerns_purge: bool,
    /// Bytes that records can still take in the last page.
    room: usize,
    /// Records in the last page.
    last_slots: u16,
    top: Option<Top>,
}

impl UndoLog {
    /// A log for `trx` on a cached page of `rseg`. Nothing is written before the first record.
    pub(super) fn create(env: &UndoEnv, rseg: &Rseg, kind: LogKind, trx: TrxId) -> Result<UndoLog> {
        if kind == LogKind::Update {
            rseg.reserve_history(env)?;
        }
        let cached = rseg.take_cached(env).inspect_err(|_| {
            if kind == LogKind::Update {
                rseg.return_history();
            }
        })?;
        let header = LogHeader {
            state: LogState::Active,
            kind,
            undone_revive: false,
            slot: cached.slot,
            trx,
            no: TrxNo(0),
            last: cached.page,
            pages: 1,
        };
        Ok(UndoLog {
            space: rseg.space(),
            first: cached.page,
            header,
            begun: false,
            concerns_purge: false,
            room: room_of_first_page(env.page_size),
            last_slots: 0,
            top: None,
        })
    }

    /// Formats the first page for the log, in the mini-transaction of the first record.
    fn begin(&mut self, mtr: &mut Mtr<'_>, page: PageH) {
        format_page(mtr, page, PageType::UndoLog, self.header.trx, FIRST_LEN);
        self.write_header(mtr, page);
        let room = undo_page(mtr.bytes(page)).map(|p| p.free_space());
        assert_eq!(room, Some(self.room), "UNDO-3: room in an empty undo page");
        self.begun = true;
    }

    /// Whether anything was written. If not, the page is still a cached one, and has to be returned as such.
    pub(super) fn is_begun(&self) -> bool {
        self.begun
    }

    /// The slot and first page.
    pub(super) fn place(&self) -> Cached {
        Cached {
            slot: self.header.slot,
            page: self.first,
        }
    }

    pub(super) fn is_one_page(&self) -> bool {
        self.header.pages == 1
    }

    /// A log that recovery found in this slot.
    pub(super) fn adopt(
        env: &UndoEnv,
        space: SpaceId,
        (slot, first): (u16, PageNo),
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
        let slotted = header.check_page(&last, last_id)?;
        let (room, last_slots) = (slotted.free_space(), slotted.n_slots() as u16);
        drop(last);
        let mut log = UndoLog {
            space,
            first,
            header,
            begun: true,
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

    pub(super) fn undone_revive(&self) -> bool {
        self.header.undone_revive
    }

    fn page(&self, no: PageNo) -> PageId {
        PageId::new(self.space, no)
    }

    pub(super) fn first_page(&self) -> PageId {
        self.page(self.first)
    }

    fn latch_page(&self, mtr: &mut Mtr<'_>, no: PageNo) -> Result<PageH> {
        let h = mtr.exclusive(self.page(no))?;
        let (bytes, id) = (mtr.bytes(h), self.page(no));
        if self.begun {
            self.header.check_page(bytes, id)?;
            return Ok(h);
        }
        let header = LogHeader::read(bytes, id)?;
        match (header.state, header.pages) {
            (LogState::Committed, 1) => Ok(h),
            _ => Err(Error::corrupt(
                id,
                format!("a cached page in slot {}", self.header.slot),
                format!("{header:?}"),
            )),
        }
    }

    /// Makes sure that a record of `len` bytes fits into the last page (UNDO-3).
    pub(super) fn ensure_room(&mut self, env: &UndoEnv, rseg: &Rseg, len: usize) -> Result<()> {
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
        assert!(self.begun, "UNDO-3: an empty page has room for any record");
        let space = env.space(self.space)?;
        let _reserved = space.reserve(&env.mtr, 1)?;
        let mut mtr = env.begin(self.space)?;
        let rseg_h = rseg.latch(&mut mtr)?;
        let header_h = self.latch_page(&mut mtr, self.first)?;
        let last_h = match self.header.last {
            last if last == self.first => header_h,
            last => self.latch_page(&mut mtr, last)?,
        };
        let (no, page) = rseg.take_page(env, &mut mtr, rseg_h)?;
        format_page(
            &mut mtr,
            page,
            PageType::UndoPage,
            self.header.trx,
            LINK_LEN,
        );
        mtr.op(
            page,
            PageOp::WriteUser {
                off: 0,
                bytes: &self.header.last.0.to_le_bytes(),
            },
        );
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

    fn write_header(&self, mtr: &mut Mtr<'_>, header_h: PageH) {
        mtr.op(
            header_h,
            PageOp::WriteUser {
                off: 0,
                bytes: &self.header.encode(),
            },
        );
    }

    /// Latches the page that the next record goes to.
    pub(super) fn latch_last(&self, mtr: &mut Mtr<'_>) -> Result<PageH> {
        self.latch_page(mtr, self.header.last)
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
        last_h: PageH,
        undo_no: u64,
        (bytes, concerns_purge): (&[u8], bool),
    ) {
        assert!(
            cost(bytes.len()) <= self.room,
            "UNDO-3: no room was made for an undo record"
        );
        if !self.begun {
            self.begin(mtr, last_h);
        }
        self.concerns_purge |= concerns_purge;
        let slot = self.last_slots;
        mtr.op(
            last_h,
            PageOp::Insert {
                slot,
                suffix: &[],
                payload: bytes,
            },
        );
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
        let slotted = self.header.check_page(&page, id)?;
        let there = (top.slot as usize) < slotted.n_slots();
        let bytes = there.then(|| slotted.payload(top.slot as usize));
        let is_top = |r: &UndoRecord<'_>| r.undo_no == top.undo_no && !r.undone;
        match bytes.filter(|b| self.header.record(b).is_some_and(|r| is_top(&r))) {
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
        let marks_header = kind.is_revive() && !self.header.undone_revive;
        let header = if marks_header {
            Some(self.latch_page(mtr, self.first)?)
        } else {
            None
        };
        let page = match header {
            Some(h) if top.page == self.first => h,
            _ => self.latch_page(mtr, top.page)?,
        };
        Ok(TopLatch { header, page })
    }

    /// Marks the top record as taken back, in the mini-transaction that took it back.
    pub(super) fn mark_undone(&mut self, mtr: &mut Mtr<'_>, latch: TopLatch) {
        let top = self.top.expect("the caller looked at top_no");
        mtr.op(
            latch.page,
            PageOp::PatchPayload {
                slot: top.slot,
                off: FLAGS_OFFSET,
                bytes: &[FLAG_UNDONE],
            },
        );
        if let Some(header) = latch.header {
            self.header.undone_revive = true;
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
        // No log has more pages than it says: links that go round are noticed.
        for _ in 0..self.header.pages {
            let id = self.page(no);
            let page = env.pool.shared(id)?;
            let slotted = self.header.check_page(&page, id)?;
            for slot in (0..below.min(slotted.n_slots())).rev() {
                let record = self.header.record(slotted.payload(slot));
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

    pub(super) fn latch_header(&self, mtr: &mut Mtr<'_>) -> Result<PageH> {
        self.latch_page(mtr, self.first)
    }

    /// Says in the header that the transaction is prepared, under this name.
    pub(super) fn write_prepared(&mut self, mtr: &mut Mtr<'_>, header_h: PageH, xid: &Xid) {
        self.header.state = LogState::Prepared;
        self.write_header(mtr, header_h);
        let mut bytes = Vec::with_capacity(XID_MAX_ENCODED);
        xid.encode(&mut bytes);
        mtr.op(
            header_h,
            PageOp::WriteUser {
                off: XID,
                bytes: &bytes,
            },
        );
    }

    /// Takes that back: the transaction is going to be rolled back.
    pub(super) fn write_active(&mut self, mtr: &mut Mtr<'_>, header_h: PageH) {
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

    /// Turns the log into history (in the commit's mini-transaction).
    pub(super) fn write_committed(
        &mut self,
        mtr: &mut Mtr<'_>,
        header_h: PageH,
        no: TrxNo,
    ) -> HistoryEntry {
        self.header.state = LogState::Committed;
        self.header.no = no;
        self.write_header(mtr, header_h);
        HistoryEntry {
            no,
            first: self.first,
            only_space: self.is_one_page() && !self.concerns_purge && !self.undone_revive(),
        }
    }

    /// Ends a log of one page that nobody needs any more: in its slot, it is a cached page now.
    pub(super) fn write_cached(&mut self, mtr: &mut Mtr<'_>, header_h: PageH) {
        self.header.state = LogState::Committed;
        mtr.op(
            header_h,
            PageOp::WriteUser {
                off: STATE as u16,
                bytes: &[LogState::Committed as u8],
            },
        );
    }

    /// Gives all pages back to the rollback segment; `last_h` is the latched last page.
    pub(super) fn give_back(&self, mtr: &mut Mtr<'_>, rseg: &Rseg, rseg_h: PageH, last_h: PageH) {
        rseg.give_back(mtr, rseg_h, self.first, last_h, self.header.pages);
    }
}

pub(super) fn damaged_record(page: PageId, slot: u16) -> Error {
    let expected = format!("an undo record of the page's log in slot {slot}");
    Error::corrupt(page, expected, "something else")
}

/// Pages that `mark_undone` changes.
pub(super) struct TopLatch {
    header: Option<PageH>,
    page: PageH,
}

/// Bytes for records in an empty first page.
fn room_of_first_page(page_size: usize) -> usize {
    page_size - OFF_USER - FIRST_LEN as usize
}

/// A page for a rollback segment's cache: the header of a log that has ended, and no records.
pub(super) fn format_cached(mtr: &mut Mtr<'_>, page: PageH, slot: u16, no: PageNo) {
    let header = LogHeader {
        state: LogState::Committed,
        kind: LogKind::Insert,
        undone_revive: false,
        slot,
        trx: TrxId(0),
        no: TrxNo(0),
        last: no,
        pages: 1,
    };
    format_page(mtr, page, PageType::UndoLog, TrxId(0), FIRST_LEN);
    mtr.op(
        page,
        PageOp::WriteUser {
            off: 0,
            bytes: &header.encode(),
        },
    );
}

/// Bytes that a record of `len` takes in a page: slot, key length, content.
fn cost(len: usize) -> usize {
    SLOT_SIZE + 2 + len
}

fn format_page(mtr: &mut Mtr<'_>, page: PageH, ptype: PageType, trx: TrxId, user_len: u16) {
    let op = PageOp::FormatSlotted {
        ptype,
        owner: trx.0,
        level: 0,
        user_len,
        next: NO_PAGE,
        low: &[],
        high: None,
    };
    mtr.op(page, op);
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: PageId = PageId::new(SpaceId(1), PageNo(7));

    fn write_user(page: &mut [u8], off: u16, bytes: &[u8]) {
        PageOp::WriteUser { off, bytes }.apply(page, ID).unwrap();
    }

    fn first_page() -> Vec<u8> {
        let mut page = vec![0; 4096];
        let format = PageOp::FormatSlotted {
            ptype: PageType::UndoLog,
            owner: 300,
            level: 0,
            user_len: FIRST_LEN,
            next: NO_PAGE,
            low: &[],
            high: None,
        };
        format.apply(&mut page, ID).unwrap();
        page
    }

    #[test]
    fn headers_survive_the_round_trip() {
        let mut page = first_page();
        for state in [LogState::Active, LogState::Prepared, LogState::Committed] {
            for kind in [LogKind::Insert, LogKind::Update] {
                let header = LogHeader {
                    state,
                    kind,
                    undone_revive: kind == LogKind::Update,
                    slot: 513,
                    trx: TrxId(300),
                    no: TrxNo(77 << 40),
                    last: PageNo(9),
                    pages: 3,
                };
                write_user(&mut page, 0, &header.encode());
                let back = LogHeader::read(&page, ID).unwrap();
                assert_eq!(format!("{back:?}"), format!("{header:?}"));
            }
        }
        for (at, damage) in [(STATE, 0), (STATE, 4), (KIND, 0), (KIND, 3)] {
            let mut page = page.clone();
            write_user(&mut page, at as u16, &[damage]);
            assert!(LogHeader::read(&page, ID).is_err(), "{damage} at {at}");
        }
    }

    #[test]
    fn a_prepared_log_has_its_name() {
        let mut page = first_page();
        assert!(read_xid(&page, ID).is_err(), "an empty name");
        let long = [b'x'; 64];
        for (global, branch) in [(&long[..], &long[..]), (b"short", b"")] {
            let xid = Xid::new(-3, global, branch).unwrap();
            let mut bytes = Vec::new();
            xid.encode(&mut bytes);
            write_user(&mut page, XID, &bytes);
            let back = read_xid(&page, ID).unwrap();
            assert_eq!((back, back.format()), (xid, -3));
        }
        write_user(&mut page, XID + 9, &[65]);
        assert!(read_xid(&page, ID).is_err(), "a branch of 65 bytes");
    }
}
