//! Doing again what a redo frame says. The only other way, besides a mini-transaction, to bytes of logged
//! pages.
//!
//! Invariants:
//! - **RPL-1** A frame changes a page only if the page's LSN is below the frame's end; afterwards it is the
//!   frame's end. So replaying any prefix of the log again, in order, changes nothing, whatever pages were
//!   written in between.
//! - **RPL-2** A page that was changed registers the frame's *start* as its first change, as the
//!   mini-transaction did.
//! - **RPL-3** A page taken for new needs no readable old content: if what is stored is damaged or missing,
//!   it starts as zeros.
//! - **RPL-4** Pages of unlogged tablespaces are in no frame: one that names such a page is damaged.
//!
//! [`apply_frame`] replays frames in order, each by one thread; pages are latched in the order of the frame's
//! records. Pages of a tablespace that is gone are skipped. [`apply_ops`] does the same for what one frame
//! says of one page, for a caller that has collected it page by page (recovery, MAP-1). Bytes that don't fit
//! give `Error::Corrupt` and leave the page as it was.

use smallvec::SmallVec;

use super::record::{RawRecord, Record, records};
use crate::base::{Error, Lsn, PageId, Result};
use crate::buffer::{BufferPool, ExclusivePage};
use crate::page::{self, PageOp};

/// A page that the frame names.
struct Touched<'a> {
    id: PageId,
    /// `None`: nothing to do there, it has the change or its tablespace is gone.
    page: Option<ExclusivePage<'a>>,
}

/// Replays the frame `[start, end)`. Records that are no page changes are shown to `on_raw`, in their place.
pub fn apply_frame(
    pool: &BufferPool,
    start: Lsn,
    end: Lsn,
    body: &[u8],
    mut on_raw: impl FnMut(RawRecord<'_>) -> Result<()>,
) -> Result<()> {
    let mut pages: SmallVec<[Touched<'_>; 8]> = SmallVec::new();
    for record in records(body) {
        match record.map_err(|what| damaged(start, what))? {
            Record::Raw(raw) => on_raw(raw)?,
            Record::Op { page, .. } if !page.space.is_logged() => {
                let what = format!("a change of {page}, which is not logged");
                return Err(damaged(start, &what));
            }
            Record::Op { page, fresh, op } => {
                let at = match pages.iter().position(|p| p.id == page) {
                    Some(at) => at,
                    None => {
                        let touched = touch(pool, page, fresh, end)?;
                        pages.push(touched);
                        pages.len() - 1
                    }
                };
                if let Some(p) = &mut pages[at].page {
                    apply(p, page, fresh, op, start, end)?;
                }
            }
        }
    }
    Ok(())
}

pub fn damaged(start: Lsn, what: &str) -> Error {
    Error::CorruptFile {
        path: "redo".into(),
        expected: format!("a mini-transaction at LSN {start}"),
        found: what.into(),
    }
}

fn touch(pool: &BufferPool, id: PageId, fresh: bool, end: Lsn) -> Result<Touched<'_>> {
    // It may have the change already, and not be written again.
    pool.store().note_written(&[id]);
    if !pool.store().ensure(id)? {
        return Ok(Touched { id, page: None });
    }
    let page = match pool.exclusive(id) {
        Err(Error::Corrupt { .. }) if fresh => pool.exclusive_new(id)?,
        read => read?,
    };
    let done = page::page_lsn(&page) >= end;
    let page = (!done).then_some(page);
    Ok(Touched { id, page })
}

/// Applies what the frame that ends at `end` says of one page: encoded operations, `fresh` if the page starts
/// as zeros. The caller has seen to RPL-1, registers the change (RPL-2), and gives the page up after an
/// error.
pub fn apply_ops(page: &mut [u8], id: PageId, fresh: bool, mut ops: &[u8], end: Lsn) -> Result<()> {
    if fresh {
        page.fill(0);
    }
    while !ops.is_empty() {
        let (op, len) = PageOp::decode(ops)
            .map_err(|what| Error::corrupt(id, "redo that can be read", what))?;
        op.apply(page, id)?;
        ops = &ops[len..];
    }
    page::set_page_lsn(page, end);
    Ok(())
}

/// One operation, with the bookkeeping at once: the page is consistent between any two operations, and an
/// error in a later one stops recovery before anything is written.
fn apply(
    page: &mut ExclusivePage<'_>,
    id: PageId,
    fresh: bool,
    op: PageOp<'_>,
    start: Lsn,
    end: Lsn,
) -> Result<()> {
    let bytes = page.bytes_mut();
    if fresh {
        bytes.fill(0);
    }
    op.apply(bytes, id)?;
    page::set_page_lsn(bytes, end);
    page.changed(start);
    Ok(())
}
