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
//! - **CB-2** Only who holds the row's exclusive lock puts a key into a change buffer that does not have it.
//!   So who holds that lock and does not find the key there may change it in the own tree.
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
//! (LOOSE-1). One that is damaged makes its index useless, and nothing else; one that can't be read keeps the
//! table from being opened, for the time being.
//!
//! Not buffered: unique indexes, whose check has to look; temporary tables and the system's; pages of 64 KiB,
//! because what two leaves have together has to fit one.

use std::cmp::Ordering as Order;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::base::{Error, NO_PAGE, PageId, Result, SYSTEM_SPACE, TrxId};
use crate::btree::{LeafHint, Seek, SharedLeaf, Tree, is_empty_tree};
use crate::buffer::{AllChangeBuffers, BufferSize, EntryChange};
use crate::page::{BulkRecsBuilder, OFF_USER, PageOp, PageType, SlottedRef};

use super::{DELETED, IndexDef, LooseTree, OpenIndex, OpenTable, TableDef, entry_state};

/// Pages above this have no change buffer.
const MOST_PAGE_BYTES: usize = 32 << 10;
/// An image gets no more records when it has so many bytes of them: with the next one, which is shorter than
/// a page, it is still one that slots can address.
const MOST_IMAGE_BYTES: usize = 28 << 10;

/// Whether this index of a table may have a change buffer.
pub(super) fn may_buffer(def: &TableDef, index: &IndexDef, page_size: usize) -> bool {
    let is_of_user = !def.id.is_temporary() && def.space != SYSTEM_SPACE;
    let is_secondary = index.id != def.primary.id;
    is_of_user && is_secondary && !index.unique && page_size <= MOST_PAGE_BYTES
}

/// The tree, once there is one.
struct Opened {
    tree: Tree,
    /// Pages when nothing had been split or merged. Relaxed, as all about its size.
    pages_at_first: AtomicI64,
    size: Arc<BufferSize>,
}

/// The entries of an index that are not in its own tree yet, if any ever were.
#[derive(Default)]
pub struct ChangeBuffer {
    /// An error: there is one, and it is damaged.
    opened: OnceLock<Result<Opened>>,
    /// It may hold something, or is damaged. Set under the exclusive latch of a leaf that gets an entry, and
    /// taken back under that of the root, when it is an empty leaf. Release and Acquire: who may know of an
    /// entry (its transaction has committed, its lock was given) sees it set, and who sees it not set while
    /// holding the latch of a leaf of the own tree finds there what was merged into it.
    in_use: AtomicBool,
    /// Where merging goes on; held by who makes the tree, too.
    pub hand: Mutex<Vec<u8>>,
    /// Held exclusively by who puts the tree here that was made, shared by who locks gaps under a leaf's
    /// latch and has found none (CB-6): while it is held nothing is waited for.
    making: RwLock<()>,
}

impl ChangeBuffer {
    /// The tree, if there is one. An error: there is, and it can't be used.
    pub fn tree(&self) -> Result<Option<&Tree>> {
        match self.opened.get() {
            None => Ok(None),
            Some(Ok(opened)) => Ok(Some(&opened.tree)),
            Some(Err(why)) => Err(why.clone()),
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

    fn opened(&self) -> Option<&Opened> {
        self.opened.get()?.as_ref().ok()
    }

    /// A leaf of the tree, latched exclusively, gets an entry. Whether it is the first one.
    pub fn note_use(&self) -> bool {
        if self.in_use.load(Ordering::Relaxed) {
            return false;
        }
        let Some(opened) = self.opened() else {
            return false;
        };
        self.in_use.store(true, Ordering::Release);
        opened.all().list(&opened.size);
        true
    }

    /// If this leaf, which is latched exclusively, is all of the tree and empty, it is not in use.
    pub fn note_empty(&self, leaf: SlottedRef<'_>) {
        if is_empty_tree(leaf)
            && let Some(opened) = self.opened()
        {
            self.in_use.store(false, Ordering::Release);
            opened.all().strike_off(&opened.size);
            let at_first = 1 - opened.more_pages();
            opened.pages_at_first.store(at_first, Ordering::Relaxed);
        }
    }

    /// Counts its pages among those of all.
    pub fn note_pages(&self) {
        if let Some(opened) = self.opened() {
            opened.all().note_pages(&opened.size, opened.pages());
        }
    }

    /// The tree is this one, of the index with that id. Nobody else opens it.
    fn open(&self, tree: Tree, size: BufferSize) -> Result<()> {
        let pages = 1 + tree.pages_below_root()?.len() as i64;
        let is_empty = tree.is_empty()?;
        let opened = Opened {
            tree,
            pages_at_first: AtomicI64::new(pages),
            size: Arc::new(size),
        };
        self.put(Ok(opened));
        if !is_empty {
            self.note_use();
        }
        self.note_pages();
        Ok(())
    }

    fn put(&self, opened: Result<Opened>) {
        let is_damaged = opened.is_err();
        let making = self.making.write();
        let _ = self.opened.set(opened);
        drop(making);
        if is_damaged {
            self.in_use.store(true, Ordering::Release);
        }
    }
}

impl Opened {
    fn all(&self) -> &AllChangeBuffers {
        &self.tree.pool().change_buffers
    }

    /// Pages that came with splits, without those that went with merges.
    fn more_pages(&self) -> i64 {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as i64;
        count(&self.tree.counters.splits) - count(&self.tree.counters.merges)
    }

    /// How many pages it has; but for levels that have come or gone since it was empty.
    fn pages(&self) -> u64 {
        let pages = self.pages_at_first.load(Ordering::Relaxed) + self.more_pages();
        pages.max(1) as u64
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.all().strike_off(&self.size);
        self.all().note_pages(&self.size, 0);
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
    /// Where a change of the entry with this key goes, by the settings and by where its leaf is: where the
    /// hint says, if somebody has looked. The caller holds no latch.
    #[inline]
    pub fn destination(
        &self,
        key: &[u8],
        change: EntryChange,
        hint: Option<LeafHint>,
    ) -> Result<Destination> {
        let all = &self.tree.pool().change_buffers;
        if !self.may_buffer || !all.takes(change) {
            return Ok(Destination::Own(hint));
        }
        let hint = match hint {
            None => self.tree.expect_leaf(key)?,
            hint => hint,
        };
        let is_unread = hint.is_some_and(|hint| self.tree.is_unread(hint));
        Ok(match is_unread || all.is_always() {
            true => Destination::Buffer,
            false => Destination::Own(hint),
        })
    }

    /// The leaf with the first candidates of a search among the index's entries, and what its change buffer
    /// has there. At most about `most` candidates are looked at if there are two trees; there is more in the
    /// next leaf then.
    #[inline]
    pub fn latch_leaf(&self, key: &[u8], seek: Seek, most: usize) -> Result<IndexLeaf<'_>> {
        let own = self.tree.latch_leaf_shared(key, seek)?;
        // CB-1: looked at under the latch.
        match self.buffer.tree_in_use()? {
            None => Ok(IndexLeaf::own(own)),
            Some(buffer) => Union::latch(own, buffer, key, seek, most),
        }
    }

    /// The same for a search that locks gaps under the latches (CB-6).
    pub fn latch_leaf_to_lock(&self, key: &[u8], seek: Seek, most: usize) -> Result<IndexLeaf<'_>> {
        let own = self.tree.latch_leaf_shared(key, seek)?;
        if !self.may_buffer {
            return Ok(IndexLeaf::own(own));
        }
        if let Some(buffer) = self.buffer.tree()? {
            return Union::latch(own, buffer, key, seek, most);
        }
        let making = self.buffer.making.read();
        match self.buffer.tree()? {
            None => Ok(IndexLeaf::own_beside(own, Beside::no_tree(making))),
            Some(buffer) => Union::latch(own, buffer, key, seek, most),
        }
    }

    /// Copies the entry with exactly this key; `false` if there is none (CB-1).
    pub fn read_entry(&self, key: &[u8], payload: &mut Vec<u8>) -> Result<bool> {
        let leaf = self.latch_leaf(key, Seek::Ge, 1)?;
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
    /// A leaf of the index's own tree. The change buffer has nothing in its range.
    Own {
        leaf: SharedLeaf<'a>,
        _beside: Beside<'a>,
    },
    Both(Box<Union<'a>>),
}

/// What keeps entries out of the change buffer as long as a leaf of the own tree is latched: the latch of its
/// leaf for that range, or, if there is no tree, that none is made.
#[derive(Default)]
pub struct Beside<'a> {
    _leaf: Option<SharedLeaf<'a>>,
    _making: Option<RwLockReadGuard<'a, ()>>,
}

impl<'a> Beside<'a> {
    fn leaf(leaf: SharedLeaf<'a>) -> Beside<'a> {
        Beside {
            _leaf: Some(leaf),
            _making: None,
        }
    }

    fn no_tree(making: RwLockReadGuard<'a, ()>) -> Beside<'a> {
        Beside {
            _leaf: None,
            _making: Some(making),
        }
    }
}

impl<'a> IndexLeaf<'a> {
    fn own(leaf: SharedLeaf<'a>) -> IndexLeaf<'a> {
        IndexLeaf::own_beside(leaf, Beside::default())
    }

    fn own_beside(leaf: SharedLeaf<'a>, _beside: Beside<'a>) -> IndexLeaf<'a> {
        IndexLeaf::Own { leaf, _beside }
    }
}

impl IndexLeaf<'_> {
    #[inline]
    pub fn slotted(&self) -> SlottedRef<'_> {
        match self {
            IndexLeaf::Own { leaf, .. } => leaf.slotted(),
            IndexLeaf::Both(union) => SlottedRef::new(&union.image),
        }
    }

    /// As [`SharedLeaf::at`].
    #[inline]
    pub fn at(&self) -> usize {
        match self {
            IndexLeaf::Own { leaf, .. } => leaf.at,
            IndexLeaf::Both(union) => union.at,
        }
    }

    /// As [`SharedLeaf::exact`].
    #[inline]
    pub fn exact(&self) -> bool {
        match self {
            IndexLeaf::Own { leaf, .. } => leaf.exact,
            IndexLeaf::Both(union) => union.exact,
        }
    }

    /// A search in the direction of `seek` comes to the end of a leaf of the own tree here.
    pub fn ends_leaf(&self, seek: Seek) -> bool {
        match self {
            IndexLeaf::Own { .. } => true,
            IndexLeaf::Both(union) => {
                let (image, own) = (SlottedRef::new(&union.image), union.own.slotted());
                match seek.is_forward() {
                    true => image.high() == own.high(),
                    false => image.low() == own.low(),
                }
            }
        }
    }

    pub fn page_id(&self) -> PageId {
        match self {
            IndexLeaf::Own { leaf, .. } => leaf.page_id(),
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

/// The slots of a page whose keys are in this range.
fn slots_in(page: SlottedRef<'_>, (low, high): (&[u8], Option<&[u8]>)) -> Range<usize> {
    let slot_of = |key: &[u8]| match page.search(key) {
        Ok(slot) | Err(slot) => slot,
    };
    slot_of(low)..high.map_or(page.n_slots(), slot_of)
}

/// The slots of a page that a search may come to.
struct Side<'p> {
    page: SlottedRef<'p>,
    slots: Range<usize>,
    forward: bool,
    /// Of the next one in the search's order, if there is one.
    key: Vec<u8>,
}

impl<'p> Side<'p> {
    /// Those of a latched leaf in this range of keys, in which the search has arrived.
    fn new(leaf: &'p SharedLeaf<'_>, range: (&[u8], Option<&[u8]>), seek: Seek) -> Side<'p> {
        let (page, forward) = (leaf.slotted(), seek.is_forward());
        let Range { start, end } = slots_in(page, range);
        let at = leaf.at.clamp(start, end);
        let mut side = Side {
            page,
            slots: if forward { at..end } else { start..at },
            forward,
            key: Vec::new(),
        };
        side.load();
        side
    }

    fn next(&self) -> Option<usize> {
        match (self.slots.is_empty(), self.forward) {
            (true, _) => None,
            (false, true) => Some(self.slots.start),
            (false, false) => Some(self.slots.end - 1),
        }
    }

    fn load(&mut self) {
        self.key.clear();
        if let Some(slot) = self.next() {
            self.page.push_key(slot, &mut self.key);
        }
    }

    fn step(&mut self) {
        match self.forward {
            true => self.slots.start += 1,
            false => self.slots.end -= 1,
        }
        self.load();
    }

    /// Whose next one comes first in the order of the search. `None`: there is none.
    fn order(&self, other: &Side<'_>) -> Option<Order> {
        match (self.next(), other.next()) {
            (None, None) => None,
            (Some(_), None) => Some(Order::Less),
            (None, Some(_)) => Some(Order::Greater),
            (Some(_), Some(_)) => Some(match self.forward {
                true => self.key.cmp(&other.key),
                false => other.key.cmp(&self.key),
            }),
        }
    }
}

/// Records of two pages, in the order of a search.
#[derive(Default)]
struct Chosen<'p> {
    from: Vec<(SlottedRef<'p>, usize)>,
    /// That they take at most in an image.
    bytes: usize,
    /// There are more: where the image ends.
    cut: Option<Vec<u8>>,
    /// The first one has the key that is searched for.
    exact: bool,
}

impl<'p> Chosen<'p> {
    fn new(mut own: Side<'p>, mut buffer: Side<'p>, key: &[u8], most: usize) -> Chosen<'p> {
        let mut chosen = Chosen::default();
        while let Some(order) = own.order(&buffer) {
            let is_buffered = order != Order::Less;
            let side = if is_buffered { &mut buffer } else { &mut own };
            let Some(slot) = side.next() else {
                break;
            };
            if chosen.from.len() >= most || chosen.bytes > MOST_IMAGE_BYTES {
                // Backward the last one that was chosen begins the page. Something behind the next one would
                // not do: versions in the history store stand behind the keys that they are of.
                let end = match (side.forward, chosen.from.last()) {
                    (false, Some((page, slot))) => page.key(*slot),
                    _ => side.key.clone(),
                };
                chosen.cut = Some(end);
                break;
            }
            // CB-1
            if !(is_buffered && is_tombstone(side.page.payload(slot))) {
                chosen.exact |= chosen.from.is_empty() && side.key == key;
                chosen.from.push((side.page, slot));
                chosen.bytes += side.key.len() + side.page.cost(slot);
            }
            side.step();
            // CB-1
            if order == Order::Equal {
                own.step();
            }
        }
        chosen
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
        if low == o.low() && high == o.high() && slots_in(b, (low, high)).is_empty() {
            return Ok(IndexLeaf::own_beside(own, Beside::leaf(buffer)));
        }
        let sides = [&own, &buffer].map(|leaf| Side::new(leaf, (low, high), seek));
        let [left, right] = sides;
        let mut chosen = Chosen::new(left, right, key, most);
        let forward = seek.is_forward();
        if !forward {
            chosen.from.reverse();
        }
        let fences = match (&chosen.cut, forward) {
            (None, _) => (low, high),
            (Some(cut), true) => (low, Some(&cut[..])),
            (Some(cut), false) => (&cut[..], high),
        };
        let image = image(&own, &chosen, fences)?;
        let at = if forward { 0 } else { chosen.from.len() };
        let exact = seek == Seek::Ge && chosen.exact;
        drop(chosen);
        Ok(IndexLeaf::Both(Box::new(Union {
            own,
            _buffer: buffer,
            image,
            at,
            exact,
        })))
    }
}

/// A page with these records, between these fences.
fn image(
    own: &SharedLeaf<'_>,
    chosen: &Chosen<'_>,
    (low, high): (&[u8], Option<&[u8]>),
) -> Result<Vec<u8>> {
    let id = own.page_id();
    let fences = low.len() + high.map_or(0, <[u8]>::len);
    let mut image = vec![0; OFF_USER + chosen.bytes + fences];
    let format = PageOp::FormatSlotted {
        ptype: PageType::Leaf,
        owner: own.slotted().owner(),
        level: 0,
        user_len: 0,
        next: NO_PAGE,
        low,
        high,
    };
    format.apply(&mut image, id)?;
    let prefix_len = SlottedRef::new(&image).prefix_len();
    let mut recs = BulkRecsBuilder::default();
    for (page, slot) in &chosen.from {
        let (suffix, payload) = page.entry(*slot);
        // The fences of the image lie within those of both pages, so its prefix is as long as theirs or
        // longer.
        recs.push(&[], &suffix[prefix_len - page.prefix_len()..], payload);
    }
    if !recs.is_empty() {
        PageOp::BulkInsert { recs: recs.recs() }.apply(&mut image, id)?;
    }
    Ok(image)
}

impl OpenTable {
    /// Opens the change buffers that the file has. What is damaged makes its index useless; what can't be
    /// read now may be readable when the table is opened again.
    pub(super) fn open_change_buffers(&self) -> Result<()> {
        let trees = match self.loose_trees() {
            Ok(None) => return Ok(()),
            Ok(Some((_, trees))) => trees,
            // Nobody knows which of them have one.
            Err(why @ Error::Corrupt { .. }) => {
                let may_have = self.secondary.iter().filter(|index| index.may_buffer);
                may_have.for_each(|index| index.buffer.put(Err(why.clone())));
                return Ok(());
            }
            Err(why) => return Err(why),
        };
        for tree in trees {
            let of = tree.index.change_buffer_of();
            let index = of.and_then(|of| self.secondary.iter().find(|i| i.id == of));
            match index.map(|index| (index, self.open_change_buffer(index, tree))) {
                Some((index, Err(why @ Error::Corrupt { .. }))) => index.buffer.put(Err(why)),
                Some((_, opened)) => opened?,
                None => {}
            }
        }
        Ok(())
    }

    fn open_change_buffer(&self, index: &OpenIndex, tree: LooseTree) -> Result<()> {
        let size = BufferSize::new(self.id(), index.id);
        index
            .buffer
            .open(self.open_tree(tree.index, tree.root), size)
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
            // If it could not be opened after it was made, it is on the list.
            let trees = self
                .loose_trees()?
                .map_or_else(Vec::new, |(_, trees)| trees);
            let root = match trees.iter().find(|tree| tree.index == id) {
                Some(tree) => tree.root,
                None => self.make_loose_tree(id)?,
            };
            self.open_change_buffer(index, LooseTree { index: id, root })?;
        }
        drop(making);
        let tree = index.buffer.tree()?;
        Ok(tree.expect("it was made"))
    }
}
