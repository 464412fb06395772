//! What the redo log says of single pages: the changes of one page one after the other, cut out of the
//! frames.
//!
//! A **change** is what one frame says of one page in one go. Changes stand one after the other in blocks.
//! The page and the frame of each are told by how they differ from those of the one before in the block, and
//! those of a block's first by how they differ from zeros, so each block can be decoded alone. All numbers
//! are varints (base/varint.rs):
//!
//! ```text
//! the page, tablespace in the upper half: the difference, in zigzag: 0, -1, 1, -2, … are 0, 1, 2, 3, …
//! LSN of the frame's start: the difference, which is not negative, in units of 8
//! the frame's length, in units of 8
//! twice the bytes of operations, plus 1 if the page starts as zeros
//! the operations (page/op.rs)
//! ```
//!
//! That is eight or nine bytes and the operations. Who knows page and frame, the **tag**, can decode the
//! change from behind it.
//!
//! - **CHAIN-1** The changes of a page are applied in the order of the log, from the last one on that starts
//!   the page as zeros.
//!
//! This is a format in memory and in a file that no other process reads. Pure functions.

use crate::base::{Lsn, PageId, Result, varint};
use crate::mtr::RawRecord;
use crate::mtr::record::{BodyPart, parts};
use crate::mtr::replay::{apply_ops, damaged};
use crate::redo::{Frame, MARK_RECORD};

use super::scan::LogSummary;

/// All LSNs are multiples of it.
pub const LSN_UNIT: u64 = 8;
/// The most that a change takes beside its operations.
const MOST_HEAD: usize = 4 * varint::MOST_BYTES;

/// Which page a change is of, and where its frame starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    pub page: PageId,
    pub start: Lsn,
}

impl Tag {
    fn encode(&self, before: Tag, out: &mut Vec<u8>) {
        let pages = self.page.to_u64().wrapping_sub(before.page.to_u64());
        varint::put(out, (pages << 1) ^ ((pages as i64) >> 63) as u64);
        let bytes = self.start.0.checked_sub(before.start.0);
        let bytes = bytes.expect("PART-1: in the order of the log");
        debug_assert_eq!(bytes % LSN_UNIT, 0);
        varint::put(out, bytes / LSN_UNIT);
    }

    /// Takes the tag behind `before` off the front of `bytes`; `None` if they hold none.
    pub fn decode(before: Tag, bytes: &mut &[u8]) -> Option<Tag> {
        let pages = varint::take(bytes)?;
        let pages = (pages >> 1) ^ (pages & 1).wrapping_neg();
        let lsns = varint::take(bytes)?.checked_mul(LSN_UNIT)?;
        Some(Tag {
            page: PageId::from_u64(before.page.to_u64().wrapping_add(pages)),
            start: Lsn(before.start.0.checked_add(lsns)?),
        })
    }
}

/// What one frame says of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    pub page: PageId,
    /// The frame's.
    pub start: Lsn,
    pub end: Lsn,
    /// The page starts as zeros.
    pub fresh: bool,
    pub ops: &'a [u8],
}

impl<'a> Change<'a> {
    pub fn tag(&self) -> Tag {
        let (page, start) = (self.page, self.start);
        Tag { page, start }
    }

    /// Bytes that it takes at most.
    pub fn most_bytes(&self) -> usize {
        MOST_HEAD + self.ops.len()
    }

    /// What stands before its operations, behind the change that has the tag `before`; at the beginning of a
    /// block that is a default one.
    pub fn encode_head(&self, before: Tag, out: &mut Vec<u8>) {
        self.tag().encode(before, out);
        let frame = self.end.0 - self.start.0;
        debug_assert_eq!(frame % LSN_UNIT, 0);
        varint::put(out, frame / LSN_UNIT);
        let fresh = u64::from(self.fresh);
        varint::put(out, ((self.ops.len() as u64) << 1) | fresh);
    }

    /// Takes the change that has this tag off the front of what is behind the tag; `None` if there is none.
    pub fn decode(tag: Tag, bytes: &mut &'a [u8]) -> Option<Change<'a>> {
        let frame = varint::take(bytes)?.checked_mul(LSN_UNIT)?;
        let ops = varint::take(bytes)?;
        let len = usize::try_from(ops >> 1).ok()?;
        let end = Lsn(tag.start.0.checked_add(frame)?);
        let fresh = ops & 1 != 0;
        let (ops, rest) = bytes.split_at_checked(len)?;
        *bytes = rest;
        Some(Change {
            page: tag.page,
            start: tag.start,
            end,
            fresh,
            ops,
        })
    }
}

/// Whether the log says something of itself only.
fn is_mark(body: &[u8]) -> bool {
    body.first() == Some(&MARK_RECORD)
}

/// Takes a frame apart: what it says of pages goes to `each`.
pub fn take_apart<'a>(
    frame: &Frame<'a>,
    summary: &mut LogSummary,
    mut each: impl FnMut(Change<'a>),
) -> Result<()> {
    summary.frames += u64::from(!is_mark(frame.body));
    for part in parts(frame.body) {
        match part.map_err(|what| damaged(frame.start, what))? {
            BodyPart::Page { page, .. } if !page.space.is_logged() => {
                let what = format!("a change of {page}, which is not logged");
                return Err(damaged(frame.start, &what));
            }
            BodyPart::Page { page, fresh, ops } => each(Change {
                page,
                start: frame.start,
                end: frame.end,
                fresh,
                ops,
            }),
            BodyPart::Raw(RawRecord::IdLimit { limit }) => {
                summary.id_limit = summary.id_limit.max(limit)
            }
            BodyPart::Raw(RawRecord::FileDelete { space, .. }) => summary.removed.push(space),
            BodyPart::Raw(RawRecord::CounterRaised { space, next }) => {
                summary.counters.raise(space, next)
            }
            BodyPart::Raw(RawRecord::CounterSet { space, next }) => {
                summary.counters.set(space, next)
            }
            BodyPart::Raw(_) => {}
        }
    }
    Ok(())
}

/// Applies the changes that the page does not have (RPL-1, CHAIN-1), which are in the order of the log.
/// Returns where the first frame that was applied starts.
pub fn apply<'a>(
    page: &mut [u8],
    id: PageId,
    changes: impl Iterator<Item = Change<'a>>,
) -> Result<Option<Lsn>> {
    // A frame may have several changes.
    let had = crate::page::page_lsn(page);
    let mut first = None;
    for change in changes.filter(|change| had < change.end) {
        assert_eq!(change.page, id, "CHAIN-1: changes of one page");
        apply_ops(page, id, change.fresh, change.ops, change.end)?;
        first.get_or_insert(change.start);
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{PageNo, SpaceId};

    fn encoded(changes: &[Change<'_>]) -> Vec<u8> {
        let (mut bytes, mut before) = (Vec::new(), Tag::default());
        for change in changes {
            let begin = bytes.len();
            change.encode_head(before, &mut bytes);
            bytes.extend_from_slice(change.ops);
            assert!(bytes.len() - begin <= change.most_bytes());
            before = change.tag();
        }
        bytes
    }

    /// All of a block, as far as there are any, and whether they end with it.
    fn decoded(mut bytes: &[u8]) -> (Vec<Change<'_>>, bool) {
        let (mut all, mut before) = (Vec::new(), Tag::default());
        while !bytes.is_empty() {
            let tag = Tag::decode(before, &mut bytes);
            let change = tag.and_then(|tag| Change::decode(tag, &mut bytes));
            let Some(change) = change else {
                return (all, false);
            };
            before = change.tag();
            all.push(change);
        }
        (all, true)
    }

    #[test]
    fn changes_round_trip_and_no_bytes_panic() {
        let change = |(space, no), start, frame, fresh, ops| Change {
            page: PageId::new(SpaceId(space), PageNo(no)),
            start: Lsn(start),
            end: Lsn(start + frame),
            fresh,
            ops,
        };
        let last = u64::MAX - u64::from(u32::MAX);
        let changes = [
            change((u32::MAX, 7), 1 << 40, 800, true, &b"some operations"[..]),
            change((u32::MAX, 7), 1 << 40, 800, false, b"more"),
            change((0, 0), (1 << 40) + 800, 16, false, b""),
            change((0, u32::MAX), (1 << 40) + 816, 1 << 30, true, &[7; 300]),
            change((3, 1), last & !7, 64, false, b"the last ones"),
        ];
        let bytes = encoded(&changes);
        assert_eq!(decoded(&bytes), (changes.to_vec(), true));
        for cut in 0..bytes.len() {
            let (found, is_whole) = decoded(&bytes[..cut]);
            assert_eq!(found[..], changes[..found.len()], "cut at {cut}");
            let whole = encoded(&changes[..found.len()]).len();
            assert_eq!(is_whole, cut == whole, "cut at {cut}");
        }
        // A number that is too long, and LSNs and lengths beyond the last one.
        for bytes in [
            &[0xff; 40][..],
            &encoded(&[change((0, 0), u64::MAX - 7, 0, false, b"")]),
        ] {
            let tag = changes[4].tag();
            let after = Tag::decode(tag, &mut &bytes[..]);
            assert_eq!(after, None, "{bytes:?}");
        }
        for bytes in [&[0xff; 40][..], &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 0]] {
            let tag = Tag {
                start: Lsn(u64::MAX - 7),
                ..Tag::default()
            };
            assert_eq!(Change::decode(tag, &mut &bytes[..]), None, "{bytes:?}");
        }
    }

    /// What makes runs short: neighbours in a block are told in a few bytes.
    #[test]
    fn heads_are_short() {
        let change = |no, start| Change {
            page: PageId::new(SpaceId(12), PageNo(no)),
            start: Lsn(start),
            end: Lsn(start + 400),
            fresh: false,
            ops: b"",
        };
        let first = change(100_000, 5 << 40);
        for (next, most) in [
            (change(100_003, 5 << 40), 4),
            (change(90_000, (5 << 40) + 400_000), 9),
        ] {
            let mut bytes = Vec::new();
            next.encode_head(first.tag(), &mut bytes);
            bytes.extend_from_slice(next.ops);
            assert!(bytes.len() <= most, "{} bytes", bytes.len());
        }
    }
}
