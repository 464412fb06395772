//! One cache line of state for each frame of the pool.
//!
//! Invariants:
//! - **BUF-1** `page` changes only while the frame is exclusively latched. So a thread that holds the latch,
//!   in either mode, and has seen the id it wants, knows that it stays.
//! - **BUF-2** A frame is recycled only by the thread that took it from "no pins, not claimed" to "claimed"
//!   *and* holds its exclusive latch. So a latch keeps a frame, and so does a pin; a pin is what a thread
//!   holds while it waits for a latch, or needs the frame to stay without one.
//! - **BUF-3** A free frame is claimed, exclusively latched, names no page and is in no hash chain.
//! - **BUF-4** `first_change`, `next_first_change` and `copied` change only under `dirty_mutex`; the mutex is
//!   held for a few instructions and nothing is waited for under it. `copied` is set under the page's latch,
//!   too, and while it is not set `first_change` changes only under the exclusive latch.
//! - **BUF-5** While a frame's range stamp stays what it is, and is not 0, the page in the frame is the same
//!   and has the same type, owner, level and fences. It changes only under the frame's exclusive latch, and
//!   never takes a value again; when all are used up it stays 0, which says nothing.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use crossbeam_epoch as epoch;
use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;

use super::latch::Latch;
use super::touched::Touched;
use crate::base::{PageId, sync};
use crate::page::InnerImage;

/// No frame: the end of a hash chain or a dirty chain, an unknown hint.
pub(super) const NIL: u32 = u32::MAX;

/// What `Frame::page` holds while the frame names no page. No real page has this address: page numbers end
/// below `NO_PAGE`.
pub(super) const NO_PAGE_ID: u64 = u64::MAX;

/// `first_change` of a dirty page of an unlogged tablespace: it needs writing before its frame is reused, but
/// holds no checkpoint back.
pub(super) const UNLOGGED_CHANGE: u64 = u64::MAX;

/// In `Frame::pins`: the frame belongs to the one thread that recycles it.
const CLAIMED: u32 = 1 << 31;
/// In `Frame::pins`, beside `CLAIMED`: the frame is out of use (BUF-9, size.rs).
const WITHDRAWN: u32 = 1 << 30;

/// One frame's state. Exactly one cache line, so that a hit touches this line and the page.
#[repr(align(64))]
pub(super) struct Frame {
    /// Which page is in the frame (`PageId::to_u64`), `NO_PAGE_ID` for none. See BUF-1. Read without a latch
    /// by look-ups, which verify it after latching or pinning.
    pub page: sync::AtomicU64,
    pub latch: Latch,
    /// Number of pins, `CLAIMED` and `WITHDRAWN`.
    pins: sync::AtomicU32,
    pub touched: Touched,
    /// Next frame in the hash chain. Written under the bucket's mutex.
    pub hash_next: sync::AtomicU32,
    /// Next frame in the dirty chain. Owned by the thread that set `queued`, then by the walker (see
    /// dirty.rs).
    pub dirty_next: AtomicU32,
    /// Start LSN of the oldest change that is not in a synced data page; 0 for a clean page.
    pub first_change: AtomicU64,
    /// The same for the changes made since the page was copied for writing.
    pub next_first_change: AtomicU64,
    /// Decoded form of an inner page, or null. Published under the latch in either mode, cleared under the
    /// exclusive one.
    pub image: epoch::Atomic<InnerImage>,
    /// See BUF-5. Relaxed: read and written under the latch.
    range_stamp: AtomicU32,
    dirty_mutex: RawMutex,
    /// A write of this page is under way and the copy has been taken.
    pub copied: AtomicBool,
    /// The page cleaner has taken the page (and pins it) to write it.
    pub taken: AtomicBool,
    /// The frame is in a dirty chain.
    pub queued: AtomicBool,
}

impl Frame {
    /// A frame as the free list wants it (BUF-3), except that its latch is still open.
    pub fn new() -> Frame {
        Frame {
            page: sync::AtomicU64::new(NO_PAGE_ID),
            latch: Latch::new(),
            pins: sync::AtomicU32::new(CLAIMED),
            touched: Touched::new(),
            hash_next: sync::AtomicU32::new(NIL),
            dirty_next: AtomicU32::new(NIL),
            first_change: AtomicU64::new(0),
            next_first_change: AtomicU64::new(0),
            image: epoch::Atomic::null(),
            range_stamp: AtomicU32::new(1),
            dirty_mutex: RawMutex::INIT,
            copied: AtomicBool::new(false),
            taken: AtomicBool::new(false),
            queued: AtomicBool::new(false),
        }
    }

    pub fn page_id(&self) -> PageId {
        PageId::from_u64(self.page.load(Acquire))
    }

    /// The frame holds `id`. Final if the caller has the latch or a pin (BUF-1, BUF-2), otherwise a guess.
    #[inline]
    pub fn holds(&self, id: PageId) -> bool {
        self.page.load(Acquire) == id.to_u64()
    }

    /// The caller has the latch.
    #[inline]
    pub fn range_stamp(&self) -> u32 {
        self.range_stamp.load(Relaxed)
    }

    /// The page is about to get another range, or the frame another page (BUF-5). The caller has the latch
    /// exclusively.
    #[inline]
    pub fn change_range(&self) {
        let next = match self.range_stamp() {
            0 => 0,
            stamp => stamp.wrapping_add(1),
        };
        self.range_stamp.store(next, Relaxed);
    }

    /// Keeps the frame from being recycled. Fails while somebody recycles it. AcqRel: what the recycler wrote
    /// before it gave the claim up is visible.
    #[inline]
    pub fn try_pin(&self) -> bool {
        if self.pins.fetch_add(1, AcqRel) & CLAIMED == 0 {
            return true;
        }
        self.pins.fetch_sub(1, Release);
        false
    }

    #[inline]
    pub fn unpin(&self) {
        let before = self.pins.fetch_sub(1, Release);
        debug_assert!(before & !(CLAIMED | WITHDRAWN) > 0, "unpin without a pin");
    }

    /// Nobody has the frame pinned and nobody recycles it. Only a hint.
    pub fn unpinned(&self) -> bool {
        self.pins.load(Relaxed) == 0
    }

    /// How many have pinned the frame, those among them that wait for its latch.
    pub fn pins(&self) -> u32 {
        self.pins.load(Relaxed) & !(CLAIMED | WITHDRAWN)
    }

    /// From "no pins" to "claimed". Acquire: pairs with the Release of the last `unpin`.
    pub fn try_claim(&self) -> bool {
        self.pins
            .compare_exchange(0, CLAIMED, Acquire, Relaxed)
            .is_ok()
    }

    /// Gives the claim up. Pins that come and go because of the claim are left alone, hence a subtraction.
    pub fn unclaim(&self) {
        let before = self.pins.fetch_sub(CLAIMED, Release);
        debug_assert!(before & CLAIMED != 0, "unclaim without a claim");
    }

    /// Puts a frame out of use that is as BUF-3 says, and on no list. SeqCst: size.rs.
    pub fn withdraw(&self) {
        let before = self.pins.fetch_or(WITHDRAWN, SeqCst);
        debug_assert!(
            before & (CLAIMED | WITHDRAWN) == CLAIMED,
            "BUF-9: it was free"
        );
        sync::between_seq_cst();
    }

    /// Puts it back into use: true for one of those who try. It is as it was when it was withdrawn.
    pub fn take_back(&self) -> bool {
        self.pins.fetch_and(!WITHDRAWN, SeqCst) & WITHDRAWN != 0
    }

    pub fn is_withdrawn(&self) -> bool {
        self.pins.load(Relaxed) & WITHDRAWN != 0
    }

    pub fn is_dirty(&self) -> bool {
        self.first_change.load(Acquire) != 0
    }

    pub fn with_dirty_state<T>(&self, f: impl FnOnce() -> T) -> T {
        self.dirty_mutex.lock();
        let out = f();
        // SAFETY: locked two lines above; `f` does not panic (BUF-4: a few loads and stores).
        unsafe { self.dirty_mutex.unlock() };
        out
    }

    pub fn image<'g>(&self, guard: &'g epoch::Guard) -> Option<&'g InnerImage> {
        // SAFETY: images are freed through epochs only, after they can't be reached any more.
        unsafe { self.image.load(Acquire, guard).as_ref() }
    }

    /// The frame has no image, and the caller its exclusive latch. Release: pairs with the Acquire of the
    /// thread that finds it.
    pub fn publish_image(&self, image: InnerImage) {
        self.image.store(epoch::Owned::new(image), Release);
    }

    /// Throws the decoded image away; readers that have it keep it until their epoch ends.
    pub fn clear_image(&self) {
        // SAFETY: an unprotected load is only compared with null.
        let none = unsafe { self.image.load(Relaxed, epoch::unprotected()) }.is_null();
        if none {
            return;
        }
        let guard = epoch::pin();
        let old = self.image.swap(epoch::Shared::null(), AcqRel, &guard);
        if !old.is_null() {
            // SAFETY: the swap made it unreachable for a thread that pins an epoch from now on, and only the
            // swap that got it destroys it.
            unsafe { guard.defer_destroy(old) };
        }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        // SAFETY: `&mut self`: nobody else reads the image.
        unsafe {
            let image = std::mem::replace(&mut self.image, epoch::Atomic::null());
            drop(image.try_into_owned());
        }
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Frame>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    /// BUF-5: a stamp that is used up says nothing, and stays so.
    #[test]
    fn range_stamps_end() {
        let frame = Frame::new();
        frame.change_range();
        assert_eq!(frame.range_stamp(), 2);
        frame.range_stamp.store(u32::MAX - 1, Relaxed);
        let stamps = [(); 4].map(|()| {
            frame.change_range();
            frame.range_stamp()
        });
        assert_eq!(stamps, [u32::MAX, 0, 0, 0]);
    }
}
