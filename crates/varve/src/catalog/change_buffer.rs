//! Change buffers: where changes of secondary entries go while the leaf that they belong into is not in the
//! buffer pool.
//!
//! Each secondary index that is not unique may have a second, small tree in the same file, with entries of
//! the same kind under the same keys. An entry there **overrides** the one with its key in the index's own
//! tree, if there is one. So a change that would have to read a leaf writes to the small tree instead, most
//! of which is in the pool; in the background entries are merged into the index's own tree in the order of
//! their keys, many to a leaf (`table/merging.rs`). This is Graefe's partitioned B-tree (Sorting and
//! Indexing with Partitioned B-Trees, 2003) with two partitions and another root for each. InnoDB's change
//! buffer keeps *operations* for all indexes in one tree of the system tablespace, and applies them to a page
//! when it is read: an operation that did not fit what was found there corrupted the index. Here nothing is
//! applied to what nobody has looked at; a crash needs nothing of its own, as all changes are those of trees;
//! and the tree goes with the table's file.
//!
//! What an entry says, and who may change it, is as everywhere (SEC-1, SEC-2, UNDO-1). A **tombstone**, which
//! says that there is no entry, is a delete-marked one of TrxId 0: one that nobody sees.
//!
//! - **CB-1** The index has an entry if and only if its change buffer has it, or the index's own tree has it
//!   and the change buffer nothing with its key. A reader sees both under latches of both leaves, or knows
//!   that the change buffer is empty while it has the own tree's leaf latched.
//! - **CB-2** Only who holds the row's exclusive lock puts a key into a change buffer that it does not have,
//!   and only if it is not in use by the same key there. So who holds that lock and does not find the key
//!   there finds it nowhere but in the own tree, and may change it there.
//! - **CB-3** An entry is put into a change buffer without a look at what the own tree has. If it is live it
//!   is `REVIVED`: there may have been a delete-marked one. If it is delete-marked (`EntryMarkUnread`) the
//!   own tree has a live one. Taking it back removes it, and what the own tree has counts again.
//! - **CB-4** An entry leaves a change buffer by being merged: in one mini-transaction that has both leaves
//!   latched exclusively. What an unfinished transaction wrote is left where it is: rollback finds it there.
//!   A delete mark is left until purge has come to it, and so is a live entry over a live one, which was
//!   marked in between, until everybody sees it: what was marked unread is known from the own tree alone, and
//!   old views may need a copy of it (COPY-1).
//! - **CB-5** Purge changes a delete-marked entry of a change buffer to a tombstone, and does not remove it:
//!   the own tree's would show again.
//! - **CB-6** Latches: a leaf of the own tree, then one of the change buffer (BT-5). A search that locks gaps
//!   has both latched; who inserts has the one latched exclusively that it changes (GAP-1).
//!
//! The tree is made when it is first needed, stays until its index goes, and is on the file's list of trees
//! (LOOSE-1).
//!
//! Not buffered: unique indexes, whose check has to look; temporary tables and the system's; pages of 64 KiB,
//! because what two leaves have together has to fit one.

use std::cmp::Ordering as Order;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::base::{Error, NO_PAGE, PageId, Result, TrxId};
use crate::btree::{LeafHint, Seek, SharedLeaf, Tree};
use crate::buffer::EntryChange;
use crate::page::{BulkRecsBuilder, PageOp, PageType, SlottedRef};

use super::{DELETED, OpenIndex, OpenTable, entry_state};

/// Pages above this have no change buffer.
const MOST_PAGE_BYTES: usize = 32 << 10;
/// An image gets no more records when it has so many bytes of them: with the next one, which is shorter than
/// a page, it is still one that slots can address.
const MOST_IMAGE_BYTES: usize = 28 << 10;
/// Of an image, at least what lies before the first slot.
const IMAGE_HEAD_BYTES: usize = 128;

/// The entries of an index that are not in its own tree yet, if any ever were.
#[derive(Default)]
pub struct ChangeBuffer {
    tree: OnceLock<Tree>,
    /// It may hold something. Set under the exclusive latch of a leaf that gets an entry, and taken back
    /// under that of the root, when it is an empty leaf. Release and Acquire: who may know of an entry (its
    /// transaction has committed, its lock was given) sees it set, and who sees it not set while holding the
    /// latch of a leaf of the own tree finds there what was merged into it.
    in_use: AtomicBool,
    /// Pages when nothing had been split or merged.
    pages_at_first: AtomicI64,
    /// Pages when somebody looked last.
    pages_noted: AtomicU64,
    /// Where merging goes on; held by who makes the tree, too.
    pub hand: Mutex<Vec<u8>>,
    /// The index may get one.
    may_be: AtomicBool,
    /// Held exclusively by who puts the tree here that was made, shared by who locks gaps under a leaf's
    /// latch and has found none (CB-6): while it is held nothing is waited for.
    making: RwLock<()>,
    /// Why the tree that there is can't be opened. It counts as in use.
    damage: OnceLock<Error>,
}

impl ChangeBuffer {
    /// The tree, if there is one. An error: there is, and it can't be used.
    pub fn tree(&self) -> Result<Option<&Tree>> {
        match (self.tree.get(), self.damage.get()) {
            (None, Some(why)) => Err(why.clone()),
            (tree, _) => Ok(tree),
        }
    }

    /// The same of one that may hold something.
    #[inline]
    pub fn tree_in_use(&self) -> Result<Option<&Tree>> {
        match self.in_use.load(Ordering::Acquire) {
            true => self.tree(),
            false => Ok(None),
        }
    }

    /// A leaf of the tree, latched exclusively, gets an entry.
    pub fn note_use(&self) {
        if !self.in_use.load(Ordering::Relaxed) {
            self.in_use.store(true, Ordering::Release);
        }
    }

    /// If this leaf, which is latched exclusively, is all of the tree and empty, it is not in use.
    pub fn note_empty(&self, leaf: SlottedRef<'_>) {
        if leaf.n_slots() == 0 && leaf.low().is_empty() && leaf.high().is_none() {
            self.in_use.store(false, Ordering::Release);
            let (splits, merges) = self.splits_and_merges();
            let at_first = 1 + merges - splits;
            self.pages_at_first.store(at_first, Ordering::Relaxed);
        }
    }

    /// How many pages it has; but for levels that have come or gone since it was empty.
    pub fn pages(&self) -> u64 {
        if self.tree.get().is_none() {
            return 0;
        }
        let (splits, merges) = self.splits_and_merges();
        let pages = self.pages_at_first.load(Ordering::Relaxed) + splits - merges;
        pages.max(1) as u64
    }

    fn splits_and_merges(&self) -> (i64, i64) {
        let counters = self.tree.get().map(|tree| &tree.counters);
        counters.map_or((0, 0), |counters| {
            let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as i64;
            (count(&counters.splits), count(&counters.merges))
        })
    }

    /// Counts its pages among those of all.
    pub fn note_pages(&self) {
        let (Some(tree), now) = (self.tree.get(), self.pages()) else {
            return;
        };
        if self.pages_noted.load(Ordering::Relaxed) != now {
            let before = self.pages_noted.swap(now, Ordering::Relaxed);
            tree.pool().change_buffers.change_pages(before, now);
        }
    }

    /// The tree can't be opened.
    fn set_damage(&self, why: Error) {
        let _ = self.damage.set(why);
        self.in_use.store(true, Ordering::Release);
    }

    fn open(&self, tree: Tree) -> Result<()> {
        let pages = 1 + tree.pages_below_root()?.len() as i64;
        let root = tree.latch_leaf_shared(&[], Seek::Ge)?;
        let is_empty = root.slotted().n_slots() == 0 && root.slotted().high().is_none();
        drop(root);
        self.pages_at_first.store(pages, Ordering::Relaxed);
        self.in_use.store(!is_empty, Ordering::Release);
        let making = self.making.write();
        let _ = self.tree.set(tree);
        drop(making);
        self.note_pages();
        Ok(())
    }
}

impl Drop for ChangeBuffer {
    fn drop(&mut self) {
        if let Some(tree) = self.tree.get() {
            let noted = self.pages_noted.load(Ordering::Relaxed);
            tree.pool().change_buffers.change_pages(noted, 0);
        }
    }
}

/// Where a change of an entry goes.
pub enum Destination {
    /// Into the index's own tree, whose leaf is probably there.
    Own(Option<LeafHint>),
    /// Into the change buffer: the leaf is not in the pool.
    Buffer,
}

impl OpenIndex {
    /// Whether the index may have a change buffer.
    fn may_buffer(&self, table: &OpenTable) -> bool {
        !self.unique && table.has_own_file() && self.tree.page_size() <= MOST_PAGE_BYTES
    }

    /// Where a change of the entry with this key goes, by the settings and by where its leaf is. The caller
    /// holds no latch.
    #[inline]
    pub fn destination(
        &self,
        table: &OpenTable,
        key: &[u8],
        change: EntryChange,
    ) -> Result<Destination> {
        let all = &self.tree.pool().change_buffers;
        if !all.takes(change) || !self.may_buffer(table) {
            return Ok(Destination::Own(None));
        }
        let hint = self.tree.expect_leaf(key)?;
        let is_unread = hint.is_some_and(|hint| hint.is_unread() && !self.tree.is_root(hint));
        Ok(match is_unread || all.is_always() {
            true => Destination::Buffer,
            false => Destination::Own(hint),
        })
    }

    /// The leaf with the first candidates of a search among the index's entries, and what its change buffer
    /// has there. `locks`: gaps are going to be locked under the latches (CB-6). At most about `most`
    /// candidates are looked at if there are two trees; there is more in the next leaf then.
    #[inline]
    pub fn latch_leaf(
        &self,
        key: &[u8],
        seek: Seek,
        locks: bool,
        most: usize,
    ) -> Result<IndexLeaf<'_>> {
        let own = self.tree.latch_leaf_shared(key, seek)?;
        // CB-1: looked at under the latch.
        let buffer = match locks {
            true => self.buffer.tree()?,
            false => self.buffer.tree_in_use()?,
        };
        if let Some(buffer) = buffer {
            return Union::latch(own, buffer, key, seek, most);
        }
        // Relaxed: since the table was opened.
        if !locks || !self.buffer.may_be.load(Ordering::Relaxed) {
            return Ok(IndexLeaf::Own(own, Beside::Nothing));
        }
        let making = self.buffer.making.read();
        match self.buffer.tree()? {
            None => Ok(IndexLeaf::Own(own, Beside::NoTree(making))),
            Some(buffer) => Union::latch(own, buffer, key, seek, most),
        }
    }

    /// Copies the entry with exactly this key; `false` if there is none (CB-1).
    pub fn read_entry(&self, key: &[u8], payload: &mut Vec<u8>) -> Result<bool> {
        let leaf = self.latch_leaf(key, Seek::Ge, false, 1)?;
        if !leaf.exact() {
            return Ok(false);
        }
        payload.clear();
        payload.extend_from_slice(leaf.slotted().payload(leaf.at()));
        Ok(true)
    }
}

/// An entry that says that there is none.
pub fn is_tombstone(payload: &[u8]) -> bool {
    entry_state(payload).is_some_and(|(flags, trx)| flags & DELETED != 0 && trx == TrxId(0))
}

/// What a search for entries has latched, shared.
pub enum IndexLeaf<'a> {
    /// A leaf of the index's own tree. The change buffer has nothing in its range; if gaps are locked, its
    /// leaf for that range is latched, too.
    Own(
        SharedLeaf<'a>,
        #[allow(dead_code, reason = "it is held")] Beside<'a>,
    ),
    Both(Box<Union<'a>>),
}

/// What keeps entries out of the change buffer while gaps are locked.
#[allow(dead_code, reason = "they are held")]
pub enum Beside<'a> {
    Nothing,
    Leaf(SharedLeaf<'a>),
    /// There is no tree, and none is made.
    NoTree(RwLockReadGuard<'a, ()>),
}

impl IndexLeaf<'_> {
    #[inline]
    pub fn slotted(&self) -> SlottedRef<'_> {
        match self {
            IndexLeaf::Own(leaf, _) => leaf.slotted(),
            IndexLeaf::Both(union) => SlottedRef::new(&union.image),
        }
    }

    /// As [`SharedLeaf::at`].
    #[inline]
    pub fn at(&self) -> usize {
        match self {
            IndexLeaf::Own(leaf, _) => leaf.at,
            IndexLeaf::Both(union) => union.at,
        }
    }

    /// As [`SharedLeaf::exact`].
    #[inline]
    pub fn exact(&self) -> bool {
        match self {
            IndexLeaf::Own(leaf, _) => leaf.exact,
            IndexLeaf::Both(union) => union.exact,
        }
    }

    /// In this direction a leaf of the own tree ends where this one does.
    pub fn ends_leaf(&self, forward: bool) -> bool {
        match self {
            IndexLeaf::Own(..) => true,
            IndexLeaf::Both(union) => {
                let (image, own) = (SlottedRef::new(&union.image), union.own.slotted());
                match forward {
                    true => image.high() == own.high(),
                    false => image.low() == own.low(),
                }
            }
        }
    }

    pub fn page_id(&self) -> PageId {
        match self {
            IndexLeaf::Own(leaf, _) => leaf.page_id(),
            IndexLeaf::Both(union) => union.own.page_id(),
        }
    }
}

/// What a leaf of the index's own tree and one of its change buffer have in the range that both cover, or in
/// a part of it: an image of a page that is nowhere else.
pub struct Union<'a> {
    own: SharedLeaf<'a>,
    _buffer: SharedLeaf<'a>,
    image: Vec<u8>,
    at: usize,
    exact: bool,
}

/// The slots of a page that a search may come to, in its order.
struct Side<'p> {
    page: SlottedRef<'p>,
    slots: Range<usize>,
    key: Vec<u8>,
}

impl<'p> Side<'p> {
    fn new(page: SlottedRef<'p>, slots: Range<usize>, forward: bool) -> Side<'p> {
        let mut side = Side {
            page,
            slots,
            key: Vec::new(),
        };
        side.load(forward);
        side
    }

    fn next(&self, forward: bool) -> Option<usize> {
        match (self.slots.is_empty(), forward) {
            (true, _) => None,
            (false, true) => Some(self.slots.start),
            (false, false) => Some(self.slots.end - 1),
        }
    }

    fn load(&mut self, forward: bool) {
        self.key.clear();
        if let Some(slot) = self.next(forward) {
            self.page.push_key(slot, &mut self.key);
        }
    }

    fn step(&mut self, forward: bool) {
        match forward {
            true => self.slots.start += 1,
            false => self.slots.end -= 1,
        }
        self.load(forward);
    }
}

/// The first slot with a key that is not below this one.
fn slot_of(page: SlottedRef<'_>, key: &[u8]) -> usize {
    match page.search(key) {
        Ok(slot) | Err(slot) => slot,
    }
}

impl<'a> Union<'a> {
    fn latch(
        own: SharedLeaf<'a>,
        buffer: &'a Tree,
        key: &[u8],
        seek: Seek,
        most: usize,
    ) -> Result<IndexLeaf<'a>> {
        let buffer = buffer.latch_leaf_shared(key, seek)?;
        let (o, b) = (own.slotted(), buffer.slotted());
        let low = o.low().max(b.low());
        let high = match (o.high(), b.high()) {
            (Some(own), Some(other)) => Some(own.min(other)),
            (own, other) => own.or(other),
        };
        let in_range = |page: SlottedRef<'_>| {
            let end = high.map_or(page.n_slots(), |high| slot_of(page, high));
            slot_of(page, low)..end
        };
        let of_buffer = in_range(b);
        if of_buffer.is_empty() && low == o.low() && high == o.high() {
            return Ok(IndexLeaf::Own(own, Beside::Leaf(buffer)));
        }
        let forward = seek.is_forward();
        let candidates = |leaf: &SharedLeaf<'_>, range: Range<usize>| match forward {
            true => leaf.at.clamp(range.start, range.end)..range.end,
            false => range.start..leaf.at.clamp(range.start, range.end),
        };
        let mut left = Side::new(o, candidates(&own, in_range(o)), forward);
        let mut right = Side::new(b, candidates(&buffer, of_buffer), forward);
        // From which page, and which slot.
        let mut chosen: Vec<(bool, usize)> = Vec::new();
        let (mut cut, mut exact, mut bytes) = (None, false, 0);
        loop {
            let order = match (left.next(forward), right.next(forward)) {
                (None, None) => break,
                (Some(_), None) => Order::Less,
                (None, Some(_)) => Order::Greater,
                (Some(_), Some(_)) => match forward {
                    true => left.key.cmp(&right.key),
                    false => right.key.cmp(&left.key),
                },
            };
            let is_buffered = order != Order::Less;
            let side = if is_buffered { &mut right } else { &mut left };
            let slot = side.next(forward).expect("it was compared");
            if chosen.len() >= most || bytes > MOST_IMAGE_BYTES {
                cut = Some(match forward {
                    true => side.key.clone(),
                    // The last one that was chosen begins the page. Something behind `side.key` would not do:
                    // versions in the history store stand behind the keys that they are of.
                    false => last_key(&chosen, o, b),
                });
                break;
            }
            // CB-1
            if !(is_buffered && is_tombstone(b.payload(slot))) {
                exact |= chosen.is_empty() && seek == Seek::Ge && side.key == key;
                chosen.push((is_buffered, slot));
                bytes += side.key.len() + side.page.cost(slot);
            }
            side.step(forward);
            // CB-1
            if order == Order::Equal {
                left.step(forward);
            }
        }
        let (low, high) = match (&cut, forward) {
            (Some(cut), true) => (low, Some(&cut[..])),
            (Some(cut), false) => (&cut[..], high),
            (None, _) => (low, high),
        };
        if !forward {
            chosen.reverse();
        }
        let image = image(&own, b, (&chosen, bytes), (low, high))?;
        let at = if forward { 0 } else { chosen.len() };
        Ok(IndexLeaf::Both(Box::new(Union {
            own,
            _buffer: buffer,
            image,
            at,
            exact,
        })))
    }
}

fn last_key(chosen: &[(bool, usize)], own: SlottedRef<'_>, buffer: SlottedRef<'_>) -> Vec<u8> {
    match chosen.last() {
        Some((true, slot)) => buffer.key(*slot),
        Some((false, slot)) => own.key(*slot),
        None => Vec::new(),
    }
}

/// A page with these records, which have at most so many bytes, between these fences.
fn image(
    own: &SharedLeaf<'_>,
    buffer: SlottedRef<'_>,
    (chosen, bytes): (&[(bool, usize)], usize),
    (low, high): (&[u8], Option<&[u8]>),
) -> Result<Vec<u8>> {
    let (id, page) = (own.page_id(), own.slotted());
    let fences = low.len() + high.map_or(0, <[u8]>::len);
    let mut image = vec![0; IMAGE_HEAD_BYTES + bytes + fences];
    let format = PageOp::FormatSlotted {
        ptype: PageType::Leaf,
        owner: page.owner(),
        level: 0,
        user_len: 0,
        next: NO_PAGE,
        low,
        high,
    };
    format.apply(&mut image, id)?;
    let prefix_len = SlottedRef::new(&image).prefix_len();
    let mut recs = BulkRecsBuilder::default();
    for &(is_buffered, slot) in chosen {
        let from = if is_buffered { buffer } else { page };
        let (suffix, payload) = from.entry(slot);
        // The fences of the image lie within those of both, so its prefix is as long as theirs or longer.
        recs.push(&[], &suffix[prefix_len - from.prefix_len()..], payload);
    }
    if !recs.is_empty() {
        PageOp::BulkInsert { recs: recs.recs() }.apply(&mut image, id)?;
    }
    Ok(image)
}

impl OpenTable {
    /// Opens the change buffers that the file has. One that is damaged makes its index useless, and nothing
    /// else.
    pub(super) fn open_change_buffers(&self) {
        for index in self.secondary.iter().filter(|index| index.may_buffer(self)) {
            index.buffer.may_be.store(true, Ordering::Relaxed);
        }
        let trees = match self.loose_trees() {
            Ok(None) => return,
            Ok(Some((_, trees))) => trees,
            // Nobody knows which of them have one.
            Err(why) => {
                let may = |index: &&OpenIndex| index.may_buffer(self);
                let may_have = self.secondary.iter().filter(may);
                return may_have.for_each(|index| index.buffer.set_damage(why.clone()));
            }
        };
        for tree in trees {
            let of = tree.index.change_buffer_of();
            if let Some(index) = of.and_then(|of| self.secondary.iter().find(|i| i.id == of))
                && let Err(why) = index.buffer.open(self.open_tree(tree.index, tree.root))
            {
                index.buffer.set_damage(why);
            }
        }
    }

    /// The change buffer's tree of a secondary index, which is made if there is none. The caller holds no
    /// latch.
    pub fn change_buffer<'i>(&self, index: &'i OpenIndex) -> Result<&'i Tree> {
        if let Some(tree) = index.buffer.tree()? {
            return Ok(tree);
        }
        let making = index.buffer.hand.lock();
        if index.buffer.tree()?.is_none() {
            let id = index.id.change_buffer();
            let root = self.make_loose_tree(id)?;
            let opened = index.buffer.open(self.open_tree(id, root));
            opened.inspect_err(|why| index.buffer.set_damage(why.clone()))?;
        }
        drop(making);
        let tree = index.buffer.tree()?;
        Ok(tree.expect("it was made"))
    }
}
