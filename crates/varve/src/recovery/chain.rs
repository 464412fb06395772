//! What the redo log says of single pages: the changes of one page one after the other, cut out of the frames.
//!
//! A **change** is what one frame says of one page in one go: 24 bytes, then the encoded operations (page/op.rs).
//!
//! ```text
//! 0   u64  LSN of the frame's start; its lowest bit, which an LSN has free, is set if the page starts as zeros
//! 8   u64  the page: tablespace, page number
//! 16  u32  the frame's length
//! 20  u32  bytes of operations
//! 24       operations
//! ```
//!
//! - **CHAIN-1** The changes of a page are applied in the order of the log, from the last one on that starts the page as zeros.
//!
//! This is a format in memory and in a file that no other process reads. Pure functions.

use crate::base::{Lsn, PageId, Result};
use crate::mtr::RawRecord;
use crate::mtr::record::{Part, parts};
use crate::mtr::replay::{apply_ops, damaged};
use crate::redo::Frame;

use super::scan::Told;

const HEAD: usize = 24;
const FRESH: u64 = 1;

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
    pub fn encoded_len(&self) -> usize {
        HEAD + self.ops.len()
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        debug_assert_eq!(self.start.0 & FRESH, 0, "LSNs are multiples of 8");
        let fresh = if self.fresh { FRESH } else { 0 };
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&(self.start.0 | fresh).to_le_bytes());
        head[8..16].copy_from_slice(&self.page.to_u64().to_le_bytes());
        let frame = (self.end.0 - self.start.0) as u32;
        head[16..20].copy_from_slice(&frame.to_le_bytes());
        head[20..].copy_from_slice(&(self.ops.len() as u32).to_le_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(self.ops);
    }

    /// The change at the start of `bytes`; `None` if they hold none.
    pub fn decode(bytes: &'a [u8]) -> Option<Change<'a>> {
        let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
        let u64_at = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        let u32_at = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        let start = Lsn(u64_at(0) & !FRESH);
        Some(Change {
            page: PageId::from_u64(u64_at(8)),
            start,
            end: Lsn(start.0.checked_add(u64::from(u32_at(16)))?),
            fresh: u64_at(0) & FRESH != 0,
            ops: rest.get(..u32_at(20) as usize)?,
        })
    }
}

/// Takes a frame apart: what it says of pages goes to `each`.
pub fn take_apart<'a>(
    frame: &Frame<'a>,
    told: &mut Told,
    mut each: impl FnMut(Change<'a>),
) -> Result<()> {
    told.frames += 1;
    for part in parts(frame.body) {
        match part.map_err(|what| damaged(frame.start, what))? {
            Part::Page { page, .. } if !page.space.is_logged() => {
                let what = format!("a change of {page}, which is not logged");
                return Err(damaged(frame.start, &what));
            }
            Part::Page { page, fresh, ops } => each(Change {
                page,
                start: frame.start,
                end: frame.end,
                fresh,
                ops,
            }),
            Part::Raw(RawRecord::IdLimit { limit }) => told.id_limit = told.id_limit.max(limit),
            Part::Raw(RawRecord::FileDelete { space, .. }) => told.removed.push(space),
            Part::Raw(_) => {}
        }
    }
    Ok(())
}

/// Applies the changes that the page does not have (RPL-1, CHAIN-1), which are in the order of the log. Returns where the first frame that was applied
/// starts.
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
        apply_ops(page, id, (change.fresh, change.ops), change.end)?;
        first.get_or_insert(change.start);
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{PageNo, SpaceId};

    #[test]
    fn changes_round_trip_and_no_bytes_panic() {
        let change = Change {
            page: PageId::new(SpaceId(u32::MAX), PageNo(7)),
            start: Lsn(1 << 40),
            end: Lsn((1 << 40) + 800),
            fresh: true,
            ops: b"some operations",
        };
        let mut bytes = Vec::new();
        change.encode(&mut bytes);
        assert_eq!(bytes.len(), change.encoded_len());
        assert_eq!(Change::decode(&bytes), Some(change));
        for cut in 0..bytes.len() {
            assert_eq!(Change::decode(&bytes[..cut]), None, "cut at {cut}");
        }
        let longest = [0xff; HEAD];
        assert_eq!(Change::decode(&longest), None, "beyond the last LSN");
    }
}
