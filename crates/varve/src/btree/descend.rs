//! Finding and latching leaves. See the module's introduction for why an unlatched descent is enough.

use std::sync::atomic::Ordering::Relaxed;

use crossbeam_epoch::Guard;

use crate::base::{Error, PageNo, Result};
use crate::buffer::{FrameHint, SharedPage};
use crate::mtr::{Mtr, PageHandle};
use crate::page::{ChildRef, InnerImage, PageType, SlottedRef, page_type, record_cost};
use crate::space::AllocPurpose;

use super::leaf::{boundary, boundary_of};
use super::{LeafPos, MAX_LEVEL, OPTIMISTIC_TRIES, Seek, SharedLeaf, Shorten, Tree, type_at};

/// What a descent aims at.
#[derive(Clone, Copy)]
pub(super) enum Aim<'a> {
    /// The page that covers the key.
    At(&'a [u8]),
    /// The page that covers the greatest keys below this one.
    Below(&'a [u8]),
    /// The rightmost page.
    End,
}

impl<'a> Aim<'a> {
    /// Only nothing is below the empty key: any page will do, and the leftmost is one.
    pub(super) fn of(key: &'a [u8], seek: Seek) -> Aim<'a> {
        match seek {
            Seek::Lt if !key.is_empty() => Aim::Below(key),
            _ => Aim::At(key),
        }
    }

    #[inline]
    pub(super) fn in_image(self, image: &InnerImage) -> bool {
        match self {
            Aim::At(key) => image.covers(key),
            Aim::Below(key) => image.covers_below(key),
            Aim::End => image.high().is_none(),
        }
    }

    #[inline]
    pub(super) fn child(self, image: &InnerImage) -> ChildRef<'_> {
        match self {
            Aim::At(key) => image.child_for(key),
            Aim::Below(key) => image.child_below(key),
            Aim::End => image.child(image.n_children() - 1),
        }
    }

    #[inline]
    fn in_page(self, p: SlottedRef<'_>) -> bool {
        match self {
            Aim::At(key) => p.covers(key),
            Aim::Below(key) => key > p.low() && p.high().is_none_or(|h| key <= h),
            Aim::End => p.high().is_none(),
        }
    }

    /// The slot of the child to go to in a latched inner page that has any.
    pub(super) fn slot(self, p: SlottedRef<'_>) -> usize {
        let after = match self {
            Aim::At(key) => boundary(p, key, Seek::Gt),
            Aim::Below(key) => boundary(p, key, Seek::Ge),
            Aim::End => p.n_slots(),
        };
        after.saturating_sub(1)
    }
}

/// Where the leaf for some key was when somebody looked: a guess for the first step of a later search.
#[derive(Clone, Copy)]
pub struct LeafHint {
    no: PageNo,
    /// Without a stamp: it need not be the leaf of the key that is searched for then.
    frame: FrameHint,
}

impl LeafHint {
    fn spot(self) -> Spot<'static> {
        Spot {
            no: self.no,
            above: None,
            hint: self.frame,
        }
    }

    /// For keys that go into the same leaf.
    pub(super) fn of(mtr: &Mtr<'_>, leaf: PageHandle) -> LeafHint {
        LeafHint {
            no: mtr.page_id(leaf).no,
            frame: mtr.hint(leaf).without_stamp(),
        }
    }
}

/// Where a descent by images found the leaf that covers some key, for a search for the very same key a little
/// later. Other work may be done meanwhile, while the processor fetches what the search reads first.
#[derive(Clone, Copy)]
pub struct LeafAhead {
    no: PageNo,
    /// With a stamp: if it still holds under the latch, the leaf is the right one (BT-6).
    hint: FrameHint,
}

/// A page that a descent by images found.
pub(super) struct Spot<'g> {
    pub(super) no: PageNo,
    /// The image above it, and its slot there, for a leaf that is not the root.
    above: Option<(&'g InnerImage, usize)>,
    /// Where a leaf probably is.
    pub(super) hint: FrameHint,
}

impl Spot<'_> {
    fn new(no: PageNo) -> Spot<'static> {
        Spot {
            no,
            above: None,
            hint: FrameHint::NONE,
        }
    }

    /// The latched page, which is `now` there, is the one that was looked for: has it the range that the
    /// image says, then the next search by the image need not look at its fences.
    #[cold]
    fn note(&self, page: SlottedRef<'_>, now: FrameHint) {
        if let Some((image, slot)) = self.above
            && image.is_range_of(slot, page.low(), page.high())
        {
            now.note(image.child(slot).hint);
        }
    }
}

pub(super) enum Located<'g> {
    Page(Spot<'g>),
    /// The root is below the wanted level.
    AboveRoot,
    /// Something changed on the way: start again.
    Stale,
}

/// The page number in slot `slot` of a latched inner page.
pub(super) fn child_at(p: SlottedRef<'_>, slot: usize) -> Option<PageNo> {
    if slot >= p.n_slots() {
        return None;
    }
    let bytes = p.payload(slot).try_into().ok()?;
    Some(PageNo(u32::from_le_bytes(bytes)))
}

/// What a leaf is to have room for, in bytes.
#[derive(Clone, Copy)]
enum Room {
    /// Growth of a record.
    ToGrow(usize),
    /// A record, unless there is one with its key.
    ToInsert(usize),
}

/// How a leaf is given room.
#[derive(Clone, Copy)]
struct Making<'a> {
    /// For which pages may be taken.
    purpose: AllocPurpose,
    /// Who may be able to do with less.
    by: Option<&'a dyn Shorten>,
}

impl Making<'_> {
    const NORMAL: Making<'static> = Making {
        purpose: AllocPurpose::Normal,
        by: None,
    };
}

impl Tree {
    /// Finds the page at `level` by images. The answer has to be checked under the page's latch.
    #[inline]
    pub(super) fn locate<'g>(
        &self,
        aim: Aim<'_>,
        level: u16,
        guard: &'g Guard,
    ) -> Result<Located<'g>> {
        let pool = &self.env.pool;
        let Some(mut image) = pool.inner(self.page_id(self.root), &self.root_hint, guard)? else {
            return Ok(match level {
                0 => Located::Page(Spot::new(self.root)),
                _ => Located::AboveRoot,
            });
        };
        if image.level < level {
            return Ok(Located::AboveRoot);
        }
        if image.level == level {
            return Ok(Located::Page(Spot::new(self.root)));
        }
        loop {
            if image.index != self.index || !aim.in_image(image) {
                return Ok(Located::Stale);
            }
            let child = aim.child(image);
            if image.level == level + 1 {
                let hint = match level {
                    0 => pool.expect(self.page_id(child.no), child.hint),
                    _ => FrameHint::NONE,
                };
                return Ok(Located::Page(Spot {
                    no: child.no,
                    above: Some((image, child.slot)),
                    hint,
                }));
            }
            match pool.inner(self.page_id(child.no), child.hint, guard)? {
                Some(next) if next.level + 1 == image.level => image = next,
                _ => return Ok(Located::Stale),
            }
        }
    }

    /// The same for an inner page, by key. Keeps no image.
    pub(super) fn locate_inner(&self, key: &[u8], level: u16) -> Result<Located<'static>> {
        let guard = &crossbeam_epoch::pin();
        Ok(match self.locate(Aim::At(key), level, guard)? {
            Located::Page(spot) => Located::Page(Spot::new(spot.no)),
            Located::AboveRoot => Located::AboveRoot,
            Located::Stale => Located::Stale,
        })
    }

    /// A latched page is of this tree, at this level, and where the search wanted to go.
    #[inline]
    pub(super) fn arrived(&self, page: &[u8], aim: Aim<'_>, level: u16) -> bool {
        if page_type(page) != Some(type_at(level)) {
            return false;
        }
        let p = SlottedRef::new(page);
        p.owner() == self.index.0 && p.level() == level && aim.in_page(p)
    }

    /// The leaf with the first candidates for the search, latched shared. The caller holds no latch.
    #[inline]
    pub fn latch_leaf_shared(&self, key: &[u8], seek: Seek) -> Result<SharedLeaf<'_>> {
        let page = self.leaf_shared(Aim::of(key, seek))?;
        Ok(Self::find_in(page, key, seek))
    }

    /// Finds the leaf that covers `key` without latching it. Locks may be waited for before it is latched:
    /// nothing is held.
    #[inline]
    pub fn look_ahead(&self, key: &[u8]) -> Option<LeafAhead> {
        let guard = &crossbeam_epoch::pin();
        match self.locate(Aim::At(key), 0, guard) {
            Ok(Located::Page(Spot { no, hint, .. })) if hint.has_stamp() => {
                Some(LeafAhead { no, hint })
            }
            // Whatever is wrong, the search itself will meet it.
            _ => None,
        }
    }

    /// [`Tree::latch_leaf_shared`] for the first record that is not below `key`, for which `look_ahead` gave
    /// the answer.
    #[inline]
    pub fn latch_leaf_ahead(&self, key: &[u8], ahead: Option<LeafAhead>) -> Result<SharedLeaf<'_>> {
        if let Some(LeafAhead { no, hint }) = ahead
            && let Some(page) = self.env.pool.shared_if_in(self.page_id(no), hint)
            && hint.still_holds(page.hint())
        {
            debug_assert!(self.arrived(&page, Aim::At(key), 0), "BT-6");
            return Ok(Self::find_in(page, key, Seek::Ge));
        }
        self.latch_leaf_shared(key, Seek::Ge)
    }

    /// Where the search arrives in the leaf, which is the right one.
    #[inline]
    fn find_in<'a>(page: SharedPage<'a>, key: &[u8], seek: Seek) -> SharedLeaf<'a> {
        // A search for a key wants the record: its lines need not be waited for one after the other, nor for
        // the first one.
        let fetch = |place| {
            if seek == Seek::Ge {
                page.prefetch(place);
            }
        };
        let found = SlottedRef::new(&page).search_covered_telling(key, fetch);
        let exact = found.is_ok() && seek == Seek::Ge;
        SharedLeaf::new(page, boundary_of(found, seek), exact)
    }

    /// The rightmost leaf, latched shared, positioned behind its last record: where a backward scan from the
    /// end starts. The caller holds no latch.
    pub fn latch_last_leaf(&self) -> Result<SharedLeaf<'_>> {
        let page = self.leaf_shared(Aim::End)?;
        let at = SlottedRef::new(&page).n_slots();
        Ok(SharedLeaf::new(page, at, false))
    }

    /// Whether the latched page, which is `now` there, is the leaf that the search wanted. If nothing about
    /// its range has changed since it was compared with what the image says, the way by the image is proof
    /// enough (BT-6), and the fences, which would be two more cache lines, are not looked at.
    #[inline]
    fn is_leaf(&self, page: &[u8], now: FrameHint, aim: Aim<'_>, spot: &Spot<'_>) -> bool {
        if spot.hint.still_holds(now) {
            debug_assert!(self.arrived(page, aim, 0), "BT-6");
            return true;
        }
        let arrived = self.arrived(page, aim, 0);
        if arrived {
            spot.note(SlottedRef::new(page), now);
        }
        arrived
    }

    #[inline]
    fn leaf_shared(&self, aim: Aim<'_>) -> Result<SharedPage<'_>> {
        for _ in 0..OPTIMISTIC_TRIES {
            // Images are kept while the leaf is waited for, maybe read.
            let guard = &crossbeam_epoch::pin();
            if let Located::Page(spot) = self.locate(aim, 0, guard)? {
                let id = self.page_id(spot.no);
                let page = self.env.pool.shared_in(id, spot.hint)?;
                if self.is_leaf(&page, page.hint(), aim, &spot) {
                    return Ok(page);
                }
            }
            self.counters.restarts.fetch_add(1, Relaxed);
        }
        self.couple_to_leaf(aim)
    }

    /// The leaf that covers `key`, latched exclusively in `mtr`, which holds no latch and has changed
    /// nothing. It takes growth of the key's record by `room` bytes: if need be, pages are split first, in
    /// mini-transactions of their own.
    pub fn latch_leaf_exclusive(
        &self,
        mtr: &mut Mtr<'_>,
        key: &[u8],
        room: usize,
    ) -> Result<LeafPos> {
        self.latch_leaf_for(mtr, key, Room::ToGrow(room), Making::NORMAL, None)
    }

    /// The same in a leaf whose records may be made shorter. Looks at the leaf of the hint first.
    pub fn latch_shortened_leaf(
        &self,
        mtr: &mut Mtr<'_>,
        key: &[u8],
        room: usize,
        hint: Option<LeafHint>,
        by: &dyn Shorten,
    ) -> Result<LeafPos> {
        let making = Making {
            purpose: AllocPurpose::Normal,
            by: Some(by),
        };
        self.latch_leaf_for(mtr, key, Room::ToGrow(room), making, hint)
    }

    /// Like [`Tree::latch_leaf_exclusive`], for an insert that takes `room` bytes (`page::record_cost`). If
    /// the key is there already the leaf need not have them. Looks at the leaf of the hint first. If `by` can
    /// make the leaf's records shorter, that is done before it is split.
    pub fn latch_leaf_to_insert(
        &self,
        mtr: &mut Mtr<'_>,
        key: &[u8],
        room: usize,
        hint: Option<LeafHint>,
        by: Option<&dyn Shorten>,
    ) -> Result<LeafPos> {
        let making = Making {
            purpose: AllocPurpose::Normal,
            by,
        };
        self.latch_leaf_for(mtr, key, Room::ToInsert(room), making, hint)
    }

    /// Where the leaf that covers `key` probably is. The processor fetches what a search there reads first:
    /// for a key that will be looked for soon, when other work is done. The caller holds no latch.
    pub fn expect_leaf(&self, key: &[u8]) -> Result<Option<LeafHint>> {
        let guard = &crossbeam_epoch::pin();
        Ok(match self.locate(Aim::At(key), 0, guard)? {
            Located::Page(spot) => Some(LeafHint {
                no: spot.no,
                frame: spot.hint.without_stamp(),
            }),
            _ => None,
        })
    }

    /// The leaf was not in the pool when the hint was made. Of the root nobody looks: it is taken to be.
    pub fn is_unread(&self, hint: LeafHint) -> bool {
        hint.frame == FrameHint::NONE && hint.no != self.root
    }

    /// Like [`Tree::expect_leaf`], if the images on the way are there: it waits for nothing, so the caller
    /// may hold latches. The processor fetches so many bytes of the leaf.
    pub(super) fn guess_leaf(&self, key: &[u8], bytes: usize) -> Option<LeafHint> {
        let (pool, guard) = (&self.env.pool, &crossbeam_epoch::pin());
        let mut image = pool.published(self.page_id(self.root), &self.root_hint, guard)?;
        loop {
            let child = image.child_for(key);
            let id = self.page_id(child.no);
            if image.level == 1 {
                let frame = pool.expect(id, child.hint).without_stamp();
                pool.prefetch_start(frame, bytes);
                return Some(LeafHint { no: id.no, frame });
            }
            let below = pool.published(id, child.hint, guard)?;
            if image.index != self.index || below.level >= image.level || !below.covers(key) {
                return None;
            }
            image = below;
        }
    }

    /// Like [`Tree::latch_leaf_exclusive`], for rollback: splits may take the pages, too, that the tablespace
    /// keeps for it (SP-9).
    pub fn latch_leaf_to_undo(
        &self,
        mtr: &mut Mtr<'_>,
        key: &[u8],
        room: usize,
    ) -> Result<LeafPos> {
        let making = Making {
            purpose: AllocPurpose::Cleaning,
            by: None,
        };
        self.latch_leaf_for(mtr, key, Room::ToGrow(room), making, None)
    }

    #[inline]
    fn latch_leaf_for(
        &self,
        mtr: &mut Mtr<'_>,
        key: &[u8],
        room: Room,
        making: Making<'_>,
        mut hint: Option<LeafHint>,
    ) -> Result<LeafPos> {
        let (Room::ToGrow(bytes) | Room::ToInsert(bytes)) = room;
        self.check_size(key, bytes)?;
        loop {
            let h = self.leaf_exclusive(mtr, key, hint.take())?;
            let p = SlottedRef::new(mtr.bytes(h));
            if p.free_space() >= bytes {
                return Ok(LeafPos::search(h, p, key));
            }
            // No split makes room for a second record beside a long one with the same key.
            if let Room::ToInsert(_) = room
                && p.search(key).is_ok()
            {
                return Ok(LeafPos::search(h, p, key));
            }
            mtr.release(h);
            mtr.pause();
            let is_shorter = match making.by {
                Some(by) => self.shorten(key, bytes, by)?,
                None => false,
            };
            if !is_shorter {
                self.make_room(key, bytes, making.purpose)?;
            }
            mtr.resume()?;
        }
    }

    /// Where `key` is or belongs in a leaf that `mtr` has latched exclusively already. `None` if that is
    /// another leaf, or if this one has no `room`: then commit, and go by [`Tree::latch_leaf_to_insert`].
    #[inline]
    pub fn place_in_leaf(
        &self,
        mtr: &Mtr<'_>,
        h: PageHandle,
        key: &[u8],
        room: usize,
    ) -> Option<LeafPos> {
        let p = SlottedRef::new(mtr.bytes(h));
        let fits = p.covers(key) && p.free_space() >= room && self.check_size(key, room).is_ok();
        fits.then(|| LeafPos::search(h, p, key))
    }

    /// A page that took more than this could become one that can't be split.
    #[inline]
    fn check_size(&self, key: &[u8], room: usize) -> Result<()> {
        let room_limit = record_cost(0, self.max_record);
        let (what, size, limit) = if key.len() > self.max_key {
            ("key", key.len(), self.max_key)
        } else if room > room_limit {
            ("record", room, room_limit)
        } else {
            return Ok(());
        };
        let what = format!("a {what} of index {}", self.index);
        Err(Error::TooLarge { what, size, limit })
    }

    /// The leaf that covers `key`, latched exclusively in `mtr`, which may have latched a leaf of a tree that
    /// comes before this one (BT-5).
    pub fn latch_leaf_behind(&self, mtr: &mut Mtr<'_>, key: &[u8]) -> Result<LeafPos> {
        let h = self.descend_exclusive(mtr, key, None)?;
        Ok(LeafPos::search(h, SlottedRef::new(mtr.bytes(h)), key))
    }

    /// The leaf that covers `key`, latched exclusively in `mtr`, which holds no latch.
    #[inline]
    pub(super) fn leaf_exclusive(
        &self,
        mtr: &mut Mtr<'_>,
        key: &[u8],
        hint: Option<LeafHint>,
    ) -> Result<PageHandle> {
        debug_assert!(mtr.is_idle(), "BT-5: a descent with latches held");
        self.descend_exclusive(mtr, key, hint)
    }

    #[inline]
    fn descend_exclusive(
        &self,
        mtr: &mut Mtr<'_>,
        key: &[u8],
        mut hint: Option<LeafHint>,
    ) -> Result<PageHandle> {
        let aim = Aim::At(key);
        for _ in 0..OPTIMISTIC_TRIES {
            let guard = &crossbeam_epoch::pin();
            let found = match hint.take() {
                // Arriving is what counts (BT-1).
                Some(hint) => Located::Page(hint.spot()),
                None => self.locate(aim, 0, guard)?,
            };
            if let Located::Page(spot) = found {
                let h = mtr.exclusive_in(self.page_id(spot.no), spot.hint)?;
                if self.is_leaf(mtr.bytes(h), mtr.hint(h), aim, &spot) {
                    return Ok(h);
                }
                mtr.release(h);
            }
            self.counters.restarts.fetch_add(1, Relaxed);
        }
        self.couple_to_leaf_exclusive(mtr, key)
    }

    /// Descends by latches: exact, and proof of damage if it does not arrive.
    #[cold]
    fn couple_to_leaf(&self, aim: Aim<'_>) -> Result<SharedPage<'_>> {
        let pool = &self.env.pool;
        let mut no = self.root;
        let mut page = pool.shared(self.page_id(no))?;
        let mut level = self.root_level(&page)?;
        while level > 0 {
            let child = self.step_down(&page, no, aim, level)?;
            level -= 1;
            no = child;
            // The child is latched before its parent is released.
            page = pool.shared(self.page_id(no))?;
        }
        self.must_arrive(&page, no, aim, 0)?;
        Ok(page)
    }

    #[cold]
    fn couple_to_leaf_exclusive(&self, mtr: &mut Mtr<'_>, key: &[u8]) -> Result<PageHandle> {
        let aim = Aim::At(key);
        let mut no = self.root;
        let mut h = mtr.shared(self.page_id(no))?;
        let mut level = self.root_level(mtr.bytes(h))?;
        while level == 0 {
            // The root is a leaf: its latch has to be taken anew, and meanwhile it may have become an inner
            // page.
            mtr.release(h);
            h = mtr.exclusive(self.page_id(no))?;
            level = self.root_level(mtr.bytes(h))?;
            if level == 0 {
                self.must_arrive(mtr.bytes(h), no, aim, 0)?;
                return Ok(h);
            }
        }
        while level > 0 {
            let child = self.step_down(mtr.bytes(h), no, aim, level)?;
            level -= 1;
            no = child;
            let below = match level {
                0 => mtr.exclusive(self.page_id(no))?,
                _ => mtr.shared(self.page_id(no))?,
            };
            mtr.release(h);
            h = below;
        }
        self.must_arrive(mtr.bytes(h), no, aim, 0)?;
        Ok(h)
    }

    /// The level of the latched root, which must be a page of this tree.
    pub(super) fn root_level(&self, page: &[u8]) -> Result<u16> {
        let level = match page_type(page) {
            Some(PageType::Leaf) => 0,
            Some(PageType::Inner) => SlottedRef::new(page).level(),
            _ => MAX_LEVEL + 1,
        };
        if level > MAX_LEVEL {
            return Err(self.damage(self.root, "the root of an index", page));
        }
        self.must_arrive(page, self.root, Aim::At(&[]), level)?;
        Ok(level)
    }

    /// The child of a latched inner page that the search goes to.
    fn step_down(&self, page: &[u8], no: PageNo, aim: Aim<'_>, level: u16) -> Result<PageNo> {
        self.must_arrive(page, no, aim, level)?;
        let p = SlottedRef::new(page);
        // A page that names itself would be latched twice.
        let child = child_at(p, aim.slot(p)).filter(|child| *child != no);
        child.ok_or_else(|| self.damage(no, "an inner page with children", page))
    }

    /// Latches page `no`, the child in slot `slot` of the latched page `above`, exclusively: it must be what
    /// its parent says (BT-2), and, unless it is a leaf, have children.
    pub(super) fn latch_child_page(
        &self,
        mtr: &mut Mtr<'_>,
        above: PageHandle,
        slot: usize,
        no: PageNo,
        level: u16,
    ) -> Result<PageHandle> {
        let h = mtr.exclusive(self.page_id(no))?;
        let (above, child) = (SlottedRef::new(mtr.bytes(above)), mtr.bytes(h));
        let low = above.separator(slot);
        let high = match slot + 1 < above.n_slots() {
            true => Some(above.separator(slot + 1)),
            false => above.high().map(<[u8]>::to_vec),
        };
        self.must_arrive(child, no, Aim::At(&low), level)?;
        let p = SlottedRef::new(child);
        if p.is_inner() && p.n_slots() == 0 {
            return Err(self.damage(no, "an inner page with children", child));
        }
        match p.low() == low && p.high() == high.as_deref() {
            true => Ok(h),
            false => {
                let expected = format!("fences {low:02x?} and {high:02x?}, as its parent says");
                Err(self.damage(no, &expected, child))
            }
        }
    }

    /// `page` was reached by latches from its parent, so it fits or there is damage.
    pub(super) fn must_arrive(
        &self,
        page: &[u8],
        no: PageNo,
        aim: Aim<'_>,
        level: u16,
    ) -> Result<()> {
        if self.arrived(page, aim, level) {
            return Ok(());
        }
        let expected = format!(
            "a page of index {} at level {level} with the wanted range",
            self.index
        );
        Err(self.damage(no, &expected, page))
    }

    pub(super) fn damage(&self, no: PageNo, expected: &str, page: &[u8]) -> Error {
        let found = match page_type(page) {
            Some(t) if t.is_slotted() => {
                let p = SlottedRef::new(page);
                format!(
                    "{t:?} of {} at level {}, {} records from {:02x?} to {:02x?}",
                    p.owner(),
                    p.level(),
                    p.n_slots(),
                    p.low(),
                    p.high()
                )
            }
            other => format!("{other:?}"),
        };
        Error::corrupt(self.page_id(no), expected, found)
    }
}
