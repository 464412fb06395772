//! What the first page of an undo log says of it, where a log's records are, and how undo pages are
//! formatted.
//!
//! The header is in the user area of the first page and is about the newest log there (`log`); docs/format.md
//! has the bytes. Whatever is on a page is checked before anything is made of it.

use std::ops::Range;

use crate::base::{
    Error, NO_PAGE, PageId, PageNo, Result, SpaceId, TrxId, TrxNo, XID_MAX_ENCODED, Xid,
};
use crate::mtr::{Mtr, PageHandle};
use crate::page::{OFF_USER, PageOp, PageType, SlottedRef, page_type};

use super::UndoEnv;
use super::log::damaged_record;
use super::record::UndoRecord;
use super::rseg::{Cached, HistoryEntry, u16_at, u32_at, u64_at, undo_page};

/// User area of the first page: state, kind, flags, slot, first record, TrxId, last page, page count.
const HEADER_LEN: u16 = 32;
/// Behind that: the name of a prepared transaction.
pub(super) const XID: u16 = HEADER_LEN;
/// The whole user area of the first page.
pub(super) const FIRST_LEN: u16 = (XID as usize + XID_MAX_ENCODED).next_multiple_of(8) as u16;
pub(super) const STATE: usize = 0;
const KIND: usize = 1;
const FLAGS: usize = 2;
const SLOT: usize = 4;
const START: usize = 6;
const TRX: usize = 8;
const LAST: usize = 16;
const PAGES: usize = 20;
/// What a log writes that begins behind others: the rest stays as it is in a cached page.
pub(super) const BEGIN_LEN: usize = LAST;
/// User area of a further page: the page before it.
pub(super) const LINK_LEN: u16 = 8;

/// Header flag: an un-delete-marking of the log was taken back, so purge must look at these, too, and in two
/// sweeps (entries, then rows).
const FLAG_UNDONE_UNMARK: u8 = 1;

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

/// The header of the newest log of a first page.
#[derive(Clone, Copy, Debug)]
pub struct LogHeader {
    pub state: LogState,
    pub kind: LogKind,
    pub undone_unmark: bool,
    pub slot: u16,
    /// Where its records begin in the first page.
    pub start: u16,
    pub trx: TrxId,
    pub last: PageNo,
    pub pages: u32,
}

impl LogHeader {
    pub fn read(page: &[u8], id: PageId) -> Result<LogHeader> {
        let damaged = |found: String| Error::corrupt(id, "the header of an undo log", found);
        if page_type(page) != Some(PageType::UndoLog) {
            return Err(damaged(format!("page type {:?}", page_type(page))));
        }
        let slotted = SlottedRef::new(page);
        let user = slotted.user();
        if user.len() != FIRST_LEN as usize {
            return Err(damaged(format!("a user area of {} bytes", user.len())));
        }
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
            undone_unmark: user[FLAGS] & FLAG_UNDONE_UNMARK != 0,
            slot: u16_at(user, SLOT),
            start: u16_at(user, START),
            trx: TrxId(u64_at(user, TRX)),
            last: PageNo(u32_at(user, LAST)),
            pages: u32_at(user, PAGES),
        };
        let one_page = header.pages == 1;
        if header.start as usize > slotted.n_slots() || one_page != (header.last == id.no) {
            return Err(damaged(format!(
                "{header:?} over {} records",
                slotted.n_slots()
            )));
        }
        Ok(header)
    }

    /// The header of a page that a log of the history has closed: it is that log's.
    pub(super) fn of_history(page: &[u8], id: PageId, entry: &HistoryEntry) -> Result<LogHeader> {
        let header = LogHeader::read(page, id)?;
        let is_it = (header.state, header.kind, header.trx, header.start)
            == (LogState::Committed, LogKind::Update, entry.trx, entry.start);
        match is_it {
            true => Ok(header),
            false => Err(Error::corrupt(
                id,
                format!("the update undo log of commit {}", entry.no),
                format!("{header:?}"),
            )),
        }
    }

    /// Where the log's records are.
    pub(super) fn span(&self, first: PageNo) -> LogSpan {
        LogSpan {
            trx: self.trx,
            kind: self.kind,
            first,
            records: self.start..TO_THE_END,
            pages: self.pages,
        }
    }

    pub(super) fn encode(&self) -> [u8; HEADER_LEN as usize] {
        let mut out = [0; HEADER_LEN as usize];
        out[STATE] = self.state as u8;
        out[KIND] = self.kind as u8;
        out[FLAGS] = if self.undone_unmark {
            FLAG_UNDONE_UNMARK
        } else {
            0
        };
        out[SLOT..SLOT + 2].copy_from_slice(&self.slot.to_le_bytes());
        out[START..START + 2].copy_from_slice(&self.start.to_le_bytes());
        out[TRX..TRX + 8].copy_from_slice(&self.trx.0.to_le_bytes());
        out[LAST..LAST + 4].copy_from_slice(&self.last.0.to_le_bytes());
        out[PAGES..PAGES + 4].copy_from_slice(&self.pages.to_le_bytes());
        out
    }
}

/// As the end of a log's records in its first page: all that are there. More slots than a page has.
const TO_THE_END: u16 = u16::MAX;

/// Where the records of one log are.
#[derive(Clone, Debug)]
pub struct LogSpan {
    pub trx: TrxId,
    pub kind: LogKind,
    pub first: PageNo,
    /// Slots in the first page.
    pub records: Range<u16>,
    /// With the first one.
    pub pages: u32,
}

impl LogSpan {
    /// Of a log of the history that has one page.
    pub fn in_one_page(log: &HistoryEntry) -> LogSpan {
        LogSpan {
            trx: log.trx,
            kind: LogKind::Update,
            first: log.first,
            records: log.start..log.end,
            pages: 1,
        }
    }

    /// A page of the log, reached by a link or number that stands elsewhere: checks that it is one. Returns
    /// where the log's records are in it.
    pub fn check_page<'p>(
        &self,
        page: &'p [u8],
        id: PageId,
    ) -> Result<(SlottedRef<'p>, Range<usize>)> {
        let found = undo_page(page).and_then(|p| {
            let slots = p.n_slots();
            let records = match (page_type(page), id.no == self.first) {
                (Some(PageType::UndoLog), true) => match self.records.end {
                    TO_THE_END => self.records.start.into()..slots,
                    end => self.records.start.into()..end.into(),
                },
                (Some(PageType::UndoPage), false) if p.owner() == self.trx.0 => 0..slots,
                _ => return None,
            };
            let there = records.start <= records.end && records.end <= slots;
            there.then_some((p, records))
        });
        found.ok_or_else(|| {
            Error::corrupt(
                id,
                format!("a page of the undo log of transaction {}", self.trx),
                format!("another one of type {:?}", page_type(page)),
            )
        })
    }

    /// Calls `f` with the slot and the bytes of each record of the log in a page of it, which the caller has
    /// latched, oldest first. Returns the log's next page, or `NO_PAGE`.
    pub fn read_records(
        &self,
        page: &[u8],
        id: PageId,
        mut f: impl FnMut(u16, &UndoRecord<'_>, &[u8]),
    ) -> Result<PageNo> {
        let (slotted, records) = self.check_page(page, id)?;
        for slot in records {
            let bytes = slotted.payload(slot);
            // Not moved: it has just been written.
            let record = UndoRecord::decode(bytes);
            match record.as_ref().filter(|record| self.has(record)) {
                Some(record) => f(slot as u16, record, bytes),
                None => return Err(damaged_record(id, slot as u16)),
            }
        }
        // What a log of one page shares with later ones may lead to their further pages.
        Ok(match self.pages {
            1 => NO_PAGE,
            _ => slotted.next(),
        })
    }

    /// The way from the log's first page to its last.
    pub fn walk(&self) -> LogWalk {
        LogWalk {
            first: self.first,
            pages: self.pages,
            next: self.first,
            left: self.pages,
        }
    }

    /// A record of the log. `None`: damaged.
    pub fn record<'p>(&self, bytes: &'p [u8]) -> Option<UndoRecord<'p>> {
        UndoRecord::decode(bytes).filter(|record| self.has(record))
    }

    fn has(&self, record: &UndoRecord<'_>) -> bool {
        let is_insert = self.kind == LogKind::Insert;
        record.trx == self.trx && record.kind.is_insert() == is_insert
    }
}

/// How far a walk from page to page of a log has come.
#[derive(Clone, Debug)]
pub struct LogWalk {
    first: PageNo,
    pages: u32,
    next: PageNo,
    left: u32,
}

impl LogWalk {
    /// The page to read next; `None` at the end. No log has more pages than it says: links that go round are
    /// noticed.
    pub fn next(&mut self, space: SpaceId) -> Result<Option<PageNo>> {
        if self.next == NO_PAGE {
            return Ok(None);
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Ok(Some(self.next))
            }
            None => {
                let expected = format!("an undo log of {} pages", self.pages);
                let first = PageId::new(space, self.first);
                Err(Error::corrupt(first, expected, "more"))
            }
        }
    }

    pub fn is_at_end(&self) -> bool {
        self.next == NO_PAGE
    }

    /// Where the link in the page that was just read leads.
    pub fn goes_on_at(&mut self, next: PageNo) {
        self.next = next;
    }
}

/// The name of a prepared transaction, from the first page of one of its logs.
pub(super) fn read_xid(page: &[u8], id: PageId) -> Result<Xid> {
    let user = undo_page(page).map_or(&[][..], |p| p.user());
    let xid = user.get(XID as usize..).and_then(Xid::decode);
    xid.ok_or_else(|| {
        let expected = "the name of a prepared transaction";
        Error::corrupt(id, expected, "lengths out of bounds")
    })
}

/// Bytes for records in an empty first page.
pub(super) fn room_of_first_page(page_size: usize) -> usize {
    page_size - OFF_USER - FIRST_LEN as usize
}

/// An empty page for a rollback segment's cache.
pub(super) fn format_cached(
    mtr: &mut Mtr<'_>,
    page: PageHandle,
    slot: u16,
    no: PageNo,
    kind: LogKind,
) -> Cached {
    let header = LogHeader {
        state: LogState::Committed,
        kind,
        undone_unmark: false,
        slot,
        start: 0,
        trx: TrxId(0),
        last: no,
        pages: 1,
    };
    format_page(mtr, page, PageType::UndoLog, TrxId(0), FIRST_LEN);
    write_user(mtr, page, 0, &header.encode());
    Cached {
        slot,
        page: no,
        kind,
        newest: TrxNo(0),
        records: 0,
        room: room_of_first_page(mtr.bytes(page).len()),
    }
}

/// The cached page of this slot; `None` if a log is running there. `newest`: the number of the newest log of
/// the history in the page.
pub(super) fn read_cached(
    env: &UndoEnv,
    id: PageId,
    slot: u16,
    newest: TrxNo,
) -> Result<Option<Cached>> {
    let page = env.pool.shared(id)?;
    let header = LogHeader::read(&page, id)?;
    if header.state != LogState::Committed {
        return Ok(None);
    }
    if header.pages != 1 || header.slot != slot {
        let expected = format!("one page in slot {slot}");
        return Err(Error::corrupt(id, expected, format!("{header:?}")));
    }
    let slotted = SlottedRef::new(&page);
    Ok(Some(Cached {
        slot,
        page: id.no,
        kind: header.kind,
        newest,
        records: slotted.n_slots() as u16,
        room: slotted.free_space(),
    }))
}

pub(super) fn write_user(mtr: &mut Mtr<'_>, h: PageHandle, off: u16, bytes: &[u8]) {
    mtr.op(h, PageOp::WriteUser { off, bytes });
}

pub(super) fn format_page(
    mtr: &mut Mtr<'_>,
    page: PageHandle,
    ptype: PageType,
    trx: TrxId,
    user_len: u16,
) {
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
            owner: 0,
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
                    undone_unmark: kind == LogKind::Update,
                    slot: 513,
                    start: 0,
                    trx: TrxId(300 << 40),
                    last: PageNo(9),
                    pages: 3,
                };
                write_user(&mut page, 0, &header.encode());
                let back = LogHeader::read(&page, ID).unwrap();
                assert_eq!(format!("{back:?}"), format!("{header:?}"));
            }
        }
        let wrong = [(STATE, 0), (STATE, 4), (KIND, 0), (KIND, 3), (START, 1)];
        for (at, damage) in wrong {
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
