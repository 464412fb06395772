//! Latched pages. A guard is the only way to a page's bytes; dropping it gives the latch back.
//!
//! Nothing here waits. A guard keeps its frame by the latch alone (BUF-2); it holds no pin.

#![allow(unsafe_code)]

use std::ops::{Deref, Range};
use std::sync::Arc;

use crossbeam_epoch::Guard;

use super::{BufferPool, FrameHint};
use crate::base::{Lsn, PageId};
use crate::page::InnerImage;

/// A page latched shared: its bytes don't change while this lives.
pub struct SharedPage<'a> {
    pool: &'a BufferPool,
    frame: u32,
}

/// A page latched exclusively.
pub struct ExclusivePage<'a> {
    pool: &'a BufferPool,
    frame: u32,
    origin: Origin,
    /// The frame has no image, and nobody else gives it one as long as the latch is held.
    has_no_image: bool,
}

/// Where an exclusively latched page's bytes came from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// They are the page's.
    Page,
    /// The page was not in the pool, and was not read because its old content does not matter: the frame is
    /// zero, and is given up if nothing is put there.
    Unread,
    /// They are, but the latch was given up: a test of tests.
    #[cfg(feature = "sabotage")]
    Unlatched,
}

impl<'a> SharedPage<'a> {
    /// The caller has latched `frame` shared.
    pub(super) fn new(pool: &'a BufferPool, frame: u32) -> SharedPage<'a> {
        SharedPage { pool, frame }
    }

    pub fn id(&self) -> PageId {
        self.pool.frames[self.frame as usize].page_id()
    }

    pub(super) fn frame(&self) -> u32 {
        self.frame
    }

    /// Where the page is, and its range stamp.
    #[inline]
    pub fn hint(&self) -> FrameHint {
        self.pool.hint_of(self.frame)
    }

    /// Has the processor fetch a part of the page, all of it at once.
    #[inline]
    pub fn prefetch(&self, part: Range<usize>) {
        self.pool.arena.prefetch_part(self.frame, part);
    }
}

impl Deref for SharedPage<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the shared latch is held as long as `self` lives, and writers need the exclusive one.
        unsafe {
            std::slice::from_raw_parts(self.pool.arena.page_ptr(self.frame), self.pool.page_size)
        }
    }
}

impl Drop for SharedPage<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: latched shared when the guard was made.
        unsafe { self.pool.frames[self.frame as usize].latch.unlock_shared() };
    }
}

impl<'a> ExclusivePage<'a> {
    /// The caller has latched `frame` exclusively and its bytes are the page's.
    pub(super) fn new(pool: &'a BufferPool, frame: u32) -> ExclusivePage<'a> {
        ExclusivePage {
            pool,
            frame,
            origin: Origin::Page,
            has_no_image: false,
        }
    }

    /// The caller has put the page in `frame`, latched exclusively, without reading it; its bytes are stale.
    pub(super) fn new_unread(pool: &'a BufferPool, frame: u32) -> ExclusivePage<'a> {
        let mut page = ExclusivePage {
            pool,
            frame,
            origin: Origin::Unread,
            has_no_image: false,
        };
        page.raw_mut().fill(0);
        page
    }

    pub fn id(&self) -> PageId {
        self.pool.frames[self.frame as usize].page_id()
    }

    pub(super) fn frame(&self) -> u32 {
        self.frame
    }

    /// Has the processor fetch a part of the page.
    #[inline]
    pub fn prefetch(&self, part: Range<usize>) {
        self.pool.arena.prefetch_part(self.frame, part);
    }

    /// Where the page is, and its range stamp.
    #[inline]
    pub fn hint(&self) -> FrameHint {
        self.pool.hint_of(self.frame)
    }

    /// Gives the latch up and goes on as if it were held: a test of tests, which must end before anything is
    /// changed.
    #[cfg(feature = "sabotage")]
    pub(crate) fn forget_latch(mut self) -> Self {
        self.origin = Origin::Unlatched;
        let latch = &self.pool.frames[self.frame as usize].latch;
        // SAFETY: latched exclusively when the guard was made, which gives it up only once.
        unsafe { latch.unlock_exclusive() };
        self
    }

    fn raw_mut(&mut self) -> &mut [u8] {
        // SAFETY: the exclusive latch is held as long as `self` lives, and `&mut self` makes this the only
        // slice.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.pool.arena.page_ptr(self.frame),
                self.pool.page_size,
            )
        }
    }

    /// The page's bytes, to change them. For mini-transactions and replay only: a change that is not
    /// registered with [`ExclusivePage::changed`] before the latch is given back is lost, or breaks WAL-2.
    /// Descents that go by the page's image are sent to the latch from now on.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.pool.frames[self.frame as usize].change_range();
        self.records_mut()
    }

    /// The same to change what leaves the page's type, owner, level and fences as they are (BUF-5): records,
    /// the LSN.
    #[inline]
    pub(crate) fn records_mut(&mut self) -> &mut [u8] {
        if cfg!(any(debug_assertions, feature = "sabotage")) {
            let is_latched = self.pool.frames[self.frame as usize].latch.is_exclusive();
            assert!(
                is_latched,
                "BUF-2: {} is changed without its latch",
                self.id()
            );
        }
        if !self.has_no_image {
            self.pool.frames[self.frame as usize].clear_image();
            self.has_no_image = true;
        }
        self.raw_mut()
    }

    /// The page's image, if it has one.
    pub(crate) fn image<'g>(&self, guard: &'g Guard) -> Option<&'g InnerImage> {
        self.pool.frames[self.frame as usize].image(guard)
    }

    /// Gives the page, whose image was thrown away because it changed, the image of what it holds now.
    pub(crate) fn publish_image(&mut self, image: InnerImage) {
        assert!(self.has_no_image, "{}: a second image", self.id());
        debug_assert!(
            InnerImage::decode(self, self.id()).is_ok_and(|now| now.says_the_same(&image)),
            "{}: an image of something else",
            self.id()
        );
        self.pool.frames[self.frame as usize].publish_image(image);
        self.has_no_image = false;
    }

    /// The page was not read, and no change of it was registered: unless something was written since, its
    /// bytes are zero.
    pub(crate) fn is_unread(&self) -> bool {
        self.origin == Origin::Unread
    }

    /// Registers a change: the page is dirty at least from LSN `start` on.
    #[inline]
    pub(crate) fn changed(&mut self, start: Lsn) {
        self.origin = Origin::Page;
        self.pool
            .dirty
            .register(&self.pool.frames, self.frame, start.0);
    }

    /// Registers a change of a page whose tablespace is not redo-logged.
    pub(crate) fn changed_unlogged(&mut self) {
        self.changed(Lsn(super::frame::UNLOGGED_CHANGE));
    }
}

impl Deref for ExclusivePage<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the exclusive latch is held as long as `self` lives, and `&self` excludes `raw_mut`.
        unsafe {
            std::slice::from_raw_parts(self.pool.arena.page_ptr(self.frame), self.pool.page_size)
        }
    }
}

impl Drop for ExclusivePage<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.origin {
            // SAFETY: latched exclusively when the guard was made.
            Origin::Page => unsafe {
                self.pool.frames[self.frame as usize]
                    .latch
                    .unlock_exclusive()
            },
            Origin::Unread => self.pool.give_up(self.frame),
            #[cfg(feature = "sabotage")]
            Origin::Unlatched => {}
        }
    }
}

/// Keeps a page in the pool without a latch: latching it again does no I/O and can't fail. Cheap, but every
/// pin takes a frame away from replacement.
pub struct Pin {
    pool: Arc<BufferPool>,
    frame: u32,
}

impl Pin {
    pub(super) fn new(pool: Arc<BufferPool>, frame: u32) -> Pin {
        Pin { pool, frame }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.pool.frames[self.frame as usize].unpin();
    }
}
