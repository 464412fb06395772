//! Which rollback segments there are, where their headers are, and which one a transaction takes.

use std::sync::Arc;

use crate::base::{
    Error, PageId, PageNo, Result, SYSTEM_SPACE, SpaceId, TEMP_SPACE, TrxId, thread_spot,
};
use crate::space::MIXED;

use super::UndoEnv;
use super::rseg::{Rseg, RsegUse};

/// The rollback segment of the system tablespace, which is there if there are no undo tablespaces.
const SYSTEM_RSEG: u8 = 0;
/// Its header; the page before it is the system directory.
const SYSTEM_RSEG_PAGE: PageNo = PageNo(3);
/// First of the rollback segments of the temporary tablespace.
const FIRST_TEMPORARY_RSEG: u8 = 1;
/// First rollback segment that lies in an undo tablespace.
pub const FIRST_UNDO_RSEG: u8 = 33;
/// One past the last rollback segment.
pub const RSEGS_END: u8 = 128;
/// Most rollback segments that transactions can be told to take.
pub const MAX_UNDO_LOGS: usize = RSEGS_END as usize;
/// Most undo tablespaces: one for each rollback segment.
pub const MAX_UNDO_SPACES: usize = (RSEGS_END - FIRST_UNDO_RSEG) as usize;
/// First page of an undo tablespace, or of the temporary one, that can be a rollback segment header.
const FIRST_HEADER_PAGE: u32 = 2;
/// Rollback segments that one thread's transactions use alternately: purge mostly works on another one than
/// the thread. Ids of one thread's transactions are two apart if nobody else draws any.
const RSEGS_PER_THREAD: usize = 4;
/// Where the rollback segments over these undo tablespaces have their headers. Without any there is one, in
/// the system tablespace.
pub(super) fn places(spaces: &[SpaceId]) -> Vec<(u8, PageId)> {
    if spaces.is_empty() {
        return vec![(SYSTEM_RSEG, PageId::new(SYSTEM_SPACE, SYSTEM_RSEG_PAGE))];
    }
    let place = |id: u8| {
        let n = (id - FIRST_UNDO_RSEG) as usize;
        let no = PageNo(FIRST_HEADER_PAGE + (n / spaces.len()) as u32);
        (id, PageId::new(spaces[n % spaces.len()], no))
    };
    (FIRST_UNDO_RSEG..RSEGS_END).map(place).collect()
}

/// The same for those of the temporary tablespace.
pub(super) fn temporary_places() -> Vec<(u8, PageId)> {
    let page = |id: u8| PageNo(FIRST_HEADER_PAGE + u32::from(id - FIRST_TEMPORARY_RSEG));
    let place = |id| (id, PageId::new(TEMP_SPACE, page(id)));
    (FIRST_TEMPORARY_RSEG..FIRST_UNDO_RSEG).map(place).collect()
}

/// Formats the rollback segment headers over these new undo tablespaces; without any, that in the system
/// tablespace, of which only the directory page has been allocated.
pub fn format_rollback_segments(env: &UndoEnv, spaces: &[SpaceId]) -> Result<()> {
    format_headers(env, &places(spaces))
}

/// Formats those of the temporary tablespace, which has just been made.
pub fn format_temporary_segments(env: &UndoEnv) -> Result<()> {
    format_headers(env, &temporary_places())
}

pub(super) fn format_headers(env: &UndoEnv, places: &[(u8, PageId)]) -> Result<()> {
    for &(rseg, header) in places {
        let file = env.space(header.space)?;
        let _reserved = file.reserve(&env.mtr, 1)?;
        let mut mtr = env.begin(header.space)?;
        let got = file.alloc(&mut mtr, PageNo(0), MIXED)?;
        if got != header.no {
            let expected = "a new tablespace, whose pages are allocated in order";
            return Err(Error::corrupt(header, expected, format!("page {got}")));
        }
        let page = mtr.exclusive_new(header)?;
        Rseg::format(&mut mtr, page, rseg, env.page_size);
        mtr.commit();
    }
    Ok(())
}

/// The one of the first `used` rollback segments that a transaction of this thread takes, if it can. A thread
/// alternates among a few of them, whose pages stay in its processor's cache.
pub(super) fn rseg_of_thread(used: usize, trx: TrxId) -> usize {
    let own = thread_spot().wrapping_mul(RSEGS_PER_THREAD) % used;
    own + (trx.0 / 2) as usize % RSEGS_PER_THREAD
}

/// A rollback segment for a transaction, one of the first `used`: `first`, or one of those that follow it if
/// that is full.
pub(super) fn deal(rsegs: &[Arc<Rseg>], used: usize, first: usize) -> RsegUse {
    let all = || (0..used).map(|n| &rsegs[(first + n) % used]);
    loop {
        let with_room = all().find(|rseg| rseg.is_active() && rseg.has_room());
        let rseg = with_room.or(all().find(|rseg| rseg.is_active()));
        // Their tablespaces may be inactive just now.
        let rseg = rseg.or(rsegs.iter().find(|rseg| rseg.is_active()));
        // There is always one in another tablespace (TRUNC-1); it may just have changed which.
        if let Some(used) = rseg.and_then(RsegUse::begin) {
            return used;
        }
        std::hint::spin_loop();
    }
}
