//! The body of a redo frame: what one mini-transaction did.
//!
//! A body is a sequence of records. A byte below 0x80 begins a page operation (page/op.rs) on the current
//! page; the others are:
//!
//! | byte | record | |
//! |---|---|---|
//! | 0x80 | page | the operations that follow are on this page: space, page number |
//! | 0x81 | fresh page | the same; the page starts as zeros, whatever it held |
//! | 0x90 | file create | space, path |
//! | 0x91 | file rename | space, new path |
//! | 0x92 | file delete | space, path |
//! | 0x94 | id limit | u64: transaction ids below this may be in use |
//! | 0x95 | durable mark | u64: the log was durable up to this LSN. The log makes it itself (redo/mark.rs) |
//! | 0x96 | counter raised | space, u64 as a varint: the counter of its file is at least this |
//! | 0x97 | counter set | the same: it is this, whatever was said before |
//!
//! 0x93 is not used again. Spaces and page numbers are varints of 32 bits; a path is its length (u16) and
//! UTF-8, relative to the data directory.
//! Decoding is total: bytes that are no record give an error, never a panic.

use crate::base::{Lsn, PageId, PageNo, SpaceId, varint};
use crate::page::PageOp;
use crate::redo::MARK_RECORD;

const PAGE: u8 = 0x80;
const FRESH_PAGE: u8 = 0x81;
const FILE_CREATE: u8 = 0x90;
const FILE_RENAME: u8 = 0x91;
const FILE_DELETE: u8 = 0x92;
const ID_LIMIT: u8 = 0x94;
const COUNTER_RAISED: u8 = 0x96;
const COUNTER_SET: u8 = 0x97;

/// A record that changes no page. Paths are relative to the data directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RawRecord<'a> {
    /// The file was made, filled and synced before this was logged.
    FileCreate {
        space: SpaceId,
        path: &'a str,
    },
    FileRename {
        space: SpaceId,
        path: &'a str,
    },
    FileDelete {
        space: SpaceId,
        path: &'a str,
    },
    /// Transaction ids and numbers up to here, excluded, may be in use.
    IdLimit {
        limit: u64,
    },
    DurableMark {
        durable: Lsn,
    },
    /// The counter in the tablespace's file is at least `next` (space/counter.rs).
    CounterRaised {
        space: SpaceId,
        next: u64,
    },
    /// It is `next`, whatever was said before: the page has it, too.
    CounterSet {
        space: SpaceId,
        next: u64,
    },
}

/// One step of a mini-transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    Op {
        page: PageId,
        /// The page starts as zeros. Only on the first operation after the page was taken for new.
        fresh: bool,
        op: PageOp<'a>,
    },
    Raw(RawRecord<'a>),
}

/// What a record about a file takes at most, beside the path.
pub const FILE_RECORD_BYTES: usize = 1 + 5 + 2;

fn put_path(out: &mut Vec<u8>, path: &str) {
    let len = u16::try_from(path.len()).expect("paths are shorter than 64 KiB");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(path.as_bytes());
}

/// The operations that follow are on `page`.
pub(crate) fn put_page(out: &mut Vec<u8>, page: PageId, fresh: bool) {
    out.push(if fresh { FRESH_PAGE } else { PAGE });
    varint::put(out, page.space.0.into());
    varint::put(out, page.no.0.into());
}

pub(crate) fn put_raw(out: &mut Vec<u8>, record: &RawRecord<'_>) {
    match *record {
        RawRecord::FileCreate { space, path } => {
            out.push(FILE_CREATE);
            varint::put(out, space.0.into());
            put_path(out, path);
        }
        RawRecord::FileRename { space, path } => {
            out.push(FILE_RENAME);
            varint::put(out, space.0.into());
            put_path(out, path);
        }
        RawRecord::FileDelete { space, path } => {
            out.push(FILE_DELETE);
            varint::put(out, space.0.into());
            put_path(out, path);
        }
        RawRecord::IdLimit { limit } => {
            out.push(ID_LIMIT);
            out.extend_from_slice(&limit.to_le_bytes());
        }
        RawRecord::DurableMark { durable } => {
            out.push(MARK_RECORD);
            out.extend_from_slice(&durable.0.to_le_bytes());
        }
        RawRecord::CounterRaised { space, next } => {
            out.push(COUNTER_RAISED);
            varint::put(out, space.0.into());
            varint::put(out, next);
        }
        RawRecord::CounterSet { space, next } => {
            out.push(COUNTER_SET);
            varint::put(out, space.0.into());
            varint::put(out, next);
        }
    }
}

/// What a body says about one page, or a record that changes none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyPart<'a> {
    Page {
        page: PageId,
        /// The page starts as zeros.
        fresh: bool,
        /// Encoded operations, one at least.
        ops: &'a [u8],
    },
    Raw(RawRecord<'a>),
}

type Parse<T> = Result<T, &'static str>;

/// Walks over a body. After an error it is at its end.
pub struct Records<'a> {
    rest: &'a [u8],
    page: Option<PageId>,
    fresh: bool,
}

/// The records of a redo frame's body.
pub fn records(body: &[u8]) -> Records<'_> {
    Records {
        rest: body,
        page: None,
        fresh: false,
    }
}

impl<'a> Records<'a> {
    fn take(&mut self, n: usize) -> Parse<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(n).ok_or("a short record")?;
        self.rest = tail;
        Ok(head)
    }

    fn varint(&mut self) -> Parse<u64> {
        varint::take(&mut self.rest).ok_or("a short record")
    }

    fn u32(&mut self) -> Parse<u32> {
        let v = self.varint()?;
        u32::try_from(v).map_err(|_| "a number above 32 bits")
    }

    fn u64(&mut self) -> Parse<u64> {
        let bytes = self.take(8)?.try_into().expect("8 bytes were taken");
        Ok(u64::from_le_bytes(bytes))
    }

    fn space(&mut self) -> Parse<SpaceId> {
        self.u32().map(SpaceId)
    }

    fn path(&mut self) -> Parse<&'a str> {
        let len = self.take(2)?;
        let bytes = self.take(u16::from_le_bytes([len[0], len[1]]) as usize)?;
        std::str::from_utf8(bytes).map_err(|_| "a path that is not UTF-8")
    }

    fn set_page(&mut self, fresh: bool) -> Parse<()> {
        let space = self.space()?;
        let no = PageNo(self.u32()?);
        self.page = Some(PageId::new(space, no));
        self.fresh = fresh;
        Ok(())
    }

    fn op(&mut self) -> Parse<Record<'a>> {
        let page = self.page.ok_or("an operation without a page")?;
        let (op, len) = PageOp::decode(self.rest)?;
        self.take(len)?;
        let fresh = std::mem::take(&mut self.fresh);
        Ok(Record::Op { page, fresh, op })
    }

    fn raw(&mut self, kind: u8) -> Parse<RawRecord<'a>> {
        Ok(match kind {
            FILE_CREATE => RawRecord::FileCreate {
                space: self.space()?,
                path: self.path()?,
            },
            FILE_RENAME => RawRecord::FileRename {
                space: self.space()?,
                path: self.path()?,
            },
            FILE_DELETE => RawRecord::FileDelete {
                space: self.space()?,
                path: self.path()?,
            },
            ID_LIMIT => RawRecord::IdLimit { limit: self.u64()? },
            MARK_RECORD => RawRecord::DurableMark {
                durable: Lsn(self.u64()?),
            },
            COUNTER_RAISED => RawRecord::CounterRaised {
                space: self.space()?,
                next: self.varint()?,
            },
            COUNTER_SET => RawRecord::CounterSet {
                space: self.space()?,
                next: self.varint()?,
            },
            _ => return Err("an unknown record"),
        })
    }

    fn step(&mut self) -> Parse<Record<'a>> {
        loop {
            if self.rest[0] < 0x80 {
                return self.op();
            }
            let kind = self.take(1)?[0];
            match kind {
                PAGE | FRESH_PAGE => {
                    self.set_page(kind == FRESH_PAGE)?;
                    if self.rest.is_empty() {
                        return Err("a page without an operation");
                    }
                }
                _ => return self.raw(kind).map(Record::Raw),
            }
        }
    }
}

/// Walks over a body by runs of operations on one page, of which only the lengths are looked at. After an
/// error it is at its end.
pub struct BodyParts<'a>(Records<'a>);

/// The parts of a redo frame's body.
pub fn parts(body: &[u8]) -> BodyParts<'_> {
    BodyParts(records(body))
}

impl<'a> Records<'a> {
    fn part(&mut self) -> Parse<BodyPart<'a>> {
        let kind = self.rest[0];
        if kind >= PAGE {
            self.take(1)?;
            match kind {
                PAGE | FRESH_PAGE => self.set_page(kind == FRESH_PAGE)?,
                _ => return self.raw(kind).map(BodyPart::Raw),
            }
        }
        let page = self.page.ok_or("an operation without a page")?;
        let fresh = std::mem::take(&mut self.fresh);
        let all = self.rest;
        while self.rest.first().is_some_and(|kind| *kind < PAGE) {
            let len = PageOp::encoded_len(self.rest)?;
            self.rest = &self.rest[len..];
        }
        match &all[..all.len() - self.rest.len()] {
            [] => Err("a page without an operation"),
            ops => Ok(BodyPart::Page { page, fresh, ops }),
        }
    }
}

impl<'a> Iterator for BodyParts<'a> {
    type Item = Parse<BodyPart<'a>>;

    fn next(&mut self) -> Option<Parse<BodyPart<'a>>> {
        if self.0.rest.is_empty() {
            return None;
        }
        let part = self.0.part();
        if part.is_err() {
            self.0.rest = &[];
        }
        Some(part)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Parse<Record<'a>>;

    fn next(&mut self) -> Option<Parse<Record<'a>>> {
        if self.rest.is_empty() {
            return None;
        }
        let step = self.step();
        if step.is_err() {
            self.rest = &[];
        }
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_no_bytes_panic() {
        let page = PageId::new(SpaceId(300), PageNo(u32::MAX - 1));
        let op = PageOp::Remove { slot: 7 };
        let path = "shop/räder.vdt";
        let (old, new) = (SpaceId(0), SpaceId(128));
        let raws = [
            RawRecord::FileCreate { space: old, path },
            RawRecord::FileRename { space: new, path },
            RawRecord::FileDelete {
                space: new,
                path: "",
            },
            RawRecord::IdLimit { limit: 1 << 55 },
            RawRecord::DurableMark { durable: Lsn(8) },
            RawRecord::CounterRaised {
                space: new,
                next: u64::MAX,
            },
            RawRecord::CounterSet {
                space: new,
                next: 1,
            },
        ];
        let mut body = vec![];
        let mut want = vec![];
        for raw in raws {
            put_raw(&mut body, &raw);
            want.push(Record::Raw(raw));
        }
        put_page(&mut body, page, true);
        for fresh in [true, false] {
            op.encode(&mut body);
            want.push(Record::Op { page, fresh, op });
        }
        let got: Vec<_> = records(&body).map(|r| r.expect("just encoded")).collect();
        assert_eq!(got, want);

        let all: Vec<_> = parts(&body).map(|p| p.expect("just encoded")).collect();
        let (last, raw) = all.split_last().expect("something was encoded");
        assert_eq!(raw, raws.map(BodyPart::Raw));
        let mut ops = vec![];
        (0..2).for_each(|_| op.encode(&mut ops));
        let (fresh, ops) = (true, ops.as_slice());
        assert_eq!(*last, BodyPart::Page { page, fresh, ops });

        for cut in 0..body.len() {
            let read = records(&body[..cut]).filter(|r| r.is_ok()).count();
            assert!(read < want.len(), "cut at {cut}");
        }
        for at in 0..body.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut bad = body.clone();
                bad[at] ^= flip;
                records(&bad).for_each(drop);
                parts(&bad).for_each(drop);
            }
        }
        assert!(
            records(&[0x70]).next().unwrap().is_err(),
            "an operation without a page"
        );
    }
}
