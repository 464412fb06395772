//! What opening the rollback segments is going to look at, asked for beforehand.
//!
//! `UndoSys::load` looks at one page after the other, and after a crash each may have redo to be read and
//! applied first. Which pages they will be, their headers say: they lead to the pages in the slots and to the
//! history, and each of these to one further page at most. So they are found in waves, and all pages of a
//! wave are asked for together ([`ReadAhead`]).
//!
//! Nothing is checked here. A page that can't be read, or is not what it should be, leads to nothing: the
//! thread that needs it meets the error.

use std::collections::BTreeSet;

use crate::base::{NO_PAGE, PageId, PageNo};
use crate::page::{PageType, page_type};

use super::UndoEnv;
use super::header::{LogHeader, LogState};
use super::rseg::{NEXT, header_leads_to, u32_at};

/// Has these pages, given in ascending order, loaded together into the pool, as far as that can be done.
pub type ReadAhead<'a> = &'a dyn Fn(&[PageId]);

/// Reads ahead what is found from these headers.
pub(super) fn read_ahead(env: &UndoEnv, headers: &[PageId], ahead: ReadAhead<'_>) {
    let mut wave: BTreeSet<PageId> = headers.iter().copied().collect();
    // Damaged pages may lead round in circles.
    let mut seen = wave.clone();
    while !wave.is_empty() {
        let pages: Vec<PageId> = wave.into_iter().collect();
        ahead(&pages);
        let all = pages.into_iter().flat_map(|id| leads_to(env, id));
        wave = all.filter(|id| seen.insert(*id)).collect();
    }
}

fn leads_to(env: &UndoEnv, id: PageId) -> Vec<PageId> {
    let Ok(page) = env.pool.shared(id) else {
        return Vec::new();
    };
    let nos = match page_type(&page) {
        Some(PageType::RsegHeader) => header_leads_to(&page),
        Some(PageType::History) => vec![PageNo(u32_at(&page, NEXT))],
        // A log that is running.
        Some(PageType::UndoLog) => LogHeader::read(&page, id)
            .ok()
            .filter(|header| header.state != LogState::Committed)
            .map_or(Vec::new(), |header| vec![header.last]),
        _ => Vec::new(),
    };
    let exist = env.spaces.size_pages(id.space).unwrap_or(0);
    let nos = nos.into_iter().filter(|no| *no != NO_PAGE && no.0 < exist);
    nos.map(|no| PageId::new(id.space, no)).collect()
}
