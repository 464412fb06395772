//! The immutable decoded form of an inner page. Descents read nothing else: no latch, no pin.
//!
//! An inner page's record is a separator key with a child's page number; the first separator is the page's
//! low fence, and not stored: its suffix is empty here, too (PG-5), which no search minds, as nothing is
//! below it. Child `i` covers keys from separator `i` (included) to separator `i + 1` (excluded), the last
//! one up to the high fence.
//!
//! A dense array has eight bytes of each separator (after the page's prefix) as a number: most searches touch
//! nothing else, and then the one cache line that says where the child is. A search begins in a smaller array
//! with every 16th of them, which stays in the processor's nearest cache: halving the large one would read a
//! line of its own at nearly each step.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::header::{PageType, page_type};
use super::slotted::{SlottedRef, partition};
use crate::base::{Error, IndexId, PageId, PageNo, Result};

/// Where a page was found last: a frame, and the frame's range stamp (BUF-5) at which the page was seen to
/// have the range that its parent says, or 0. One word, so that the two belong together. Only a hint: a
/// thread that goes by it latches the frame and compares the page id and the stamp there, so relaxed loads
/// and stores are enough.
pub struct PageHint(AtomicU64);

impl PageHint {
    pub const fn unknown() -> PageHint {
        PageHint(AtomicU64::new(u32::MAX as u64))
    }

    /// The frame, `u32::MAX` if none is known, and the stamp.
    #[inline]
    pub fn get(&self) -> (u32, u32) {
        let word = self.0.load(Relaxed);
        (word as u32, (word >> 32) as u32)
    }

    #[inline]
    pub fn set(&self, frame: u32, stamp: u32) {
        self.0
            .store(u64::from(stamp) << 32 | u64::from(frame), Relaxed);
    }
}

/// Heads in two cache lines.
const BLOCK: usize = 16;

fn tops_of(heads: &[u64]) -> Box<[u64]> {
    let blocks = heads.chunks_exact(BLOCK);
    blocks.map(|block| block[BLOCK - 1]).collect()
}

struct Child {
    no: PageNo,
    hint: PageHint,
}

pub struct InnerImage {
    pub id: PageId,
    pub index: IndexId,
    pub level: u16,
    pub next: PageNo,
    low: Box<[u8]>,
    high: Option<Box<[u8]>>,
    prefix_len: usize,
    /// For each child the start of the separator in front of it.
    heads: Box<[u64]>,
    /// The last of each whole block of `BLOCK` heads.
    tops: Box<[u64]>,
    children: Box<[Child]>,
    /// Where each separator's suffix ends in `keys`.
    ends: Box<[u32]>,
    keys: Box<[u8]>,
}

/// One child of an inner page.
#[derive(Clone, Copy)]
pub struct ChildRef<'a> {
    pub slot: usize,
    pub no: PageNo,
    pub hint: &'a PageHint,
}

fn head64(suffix: &[u8]) -> u64 {
    match suffix.first_chunk::<8>() {
        Some(c) => u64::from_be_bytes(*c),
        None => {
            let mut w = [0u8; 8];
            w[..suffix.len()].copy_from_slice(suffix);
            u64::from_be_bytes(w)
        }
    }
}

/// The page number in an inner record's payload.
pub(super) fn child_of(payload: &[u8]) -> Option<PageNo> {
    Some(PageNo(u32::from_le_bytes(payload.try_into().ok()?)))
}

impl InnerImage {
    /// Decodes the bytes of page `id`, which passed `validate`. Fails if they are not an inner page.
    pub fn decode(page: &[u8], id: PageId) -> Result<InnerImage> {
        if page_type(page) != Some(PageType::Inner) {
            let found = format!("{:?}", page_type(page));
            return Err(Error::corrupt(id, "an inner page", found));
        }
        let p = SlottedRef::new(page);
        let n = p.n_slots();
        if n == 0 || p.level() == 0 {
            let found = format!("{n} children at level {}", p.level());
            return Err(Error::corrupt(id, "an inner page with children", found));
        }
        let mut heads = Vec::with_capacity(n);
        let mut children = Vec::with_capacity(n);
        let mut ends = Vec::with_capacity(n);
        let mut keys = Vec::new();
        for slot in 0..n {
            let (suffix, payload) = p.entry(slot);
            let Some(no) = child_of(payload) else {
                let found = format!("{} bytes in slot {slot}", payload.len());
                return Err(Error::corrupt(id, "a child's page number", found));
            };
            if slot == 0 && !suffix.is_empty() {
                let found = format!("{} bytes of key in slot 0", suffix.len());
                return Err(Error::corrupt(
                    id,
                    "no separator before the first child",
                    found,
                ));
            }
            keys.extend_from_slice(suffix);
            ends.push(keys.len() as u32);
            heads.push(head64(suffix));
            let hint = PageHint::unknown();
            children.push(Child { no, hint });
        }
        Ok(InnerImage {
            id,
            index: IndexId(p.owner()),
            level: p.level(),
            next: p.next(),
            low: p.low().into(),
            high: p.high().map(Into::into),
            prefix_len: p.prefix_len(),
            tops: tops_of(&heads),
            heads: heads.into(),
            children: children.into(),
            ends: ends.into(),
            keys: keys.into(),
        })
    }

    /// The image of the same page with one more child, in slot `slot` from the separator with this suffix on.
    /// The hints of the others stay.
    pub fn with_child(&self, slot: usize, suffix: &[u8], child: PageNo) -> InnerImage {
        assert!(slot > 0, "PG-5: the first child stays the first");
        let copy = |(n, old): (usize, &Child)| {
            let (frame, stamp) = old.hint.get();
            // The child in front of the new one has another range now.
            let has_its_range = n + 1 != slot;
            let hint = PageHint::unknown();
            hint.set(frame, if has_its_range { stamp } else { 0 });
            Child { no: old.no, hint }
        };
        let new = Child {
            no: child,
            hint: PageHint::unknown(),
        };
        let mut children: Vec<Child> = self.children.iter().enumerate().map(copy).collect();
        children.insert(slot, new);
        let (heads_before, heads_after) = self.heads.split_at(slot);
        let key_at = self.ends[slot - 1];
        let len = suffix.len() as u32;
        let heads = [heads_before, &[head64(suffix)], heads_after].concat();
        let ends = self.ends[..slot].iter().copied().chain([key_at + len]);
        let (keys_before, keys_after) = self.keys.split_at(key_at as usize);
        InnerImage {
            id: self.id,
            index: self.index,
            level: self.level,
            next: self.next,
            low: self.low.clone(),
            high: self.high.clone(),
            prefix_len: self.prefix_len,
            tops: tops_of(&heads),
            heads: heads.into(),
            children: children.into(),
            ends: ends
                .chain(self.ends[slot..].iter().map(|end| end + len))
                .collect(),
            keys: [keys_before, suffix, keys_after].concat().into(),
        }
    }

    /// Says the same about the page, whatever is known of where the children are.
    pub fn says_the_same(&self, other: &InnerImage) -> bool {
        let children = |image: &InnerImage| -> Vec<_> {
            image.children.iter().map(|child| child.no).collect()
        };
        (self.id, self.index, self.level, self.next, self.prefix_len)
            == (
                other.id,
                other.index,
                other.level,
                other.next,
                other.prefix_len,
            )
            && (&self.low, &self.high, &self.ends, &self.keys, &self.heads)
                == (
                    &other.low,
                    &other.high,
                    &other.ends,
                    &other.keys,
                    &other.heads,
                )
            && children(self) == children(other)
    }

    #[inline]
    pub fn n_children(&self) -> usize {
        self.children.len()
    }

    #[inline]
    pub fn child(&self, slot: usize) -> ChildRef<'_> {
        let Child { no, hint } = &self.children[slot];
        ChildRef {
            slot,
            no: *no,
            hint,
        }
    }

    /// A child's page has these fences: those that this page says (BT-2).
    pub fn is_range_of(&self, slot: usize, low: &[u8], high: Option<&[u8]>) -> bool {
        let prefix = &self.low[..self.prefix_len];
        let is_separator =
            |slot: usize, fence: &[u8]| fence.strip_prefix(prefix) == Some(self.suffix(slot));
        let begins = match slot {
            0 => low == &*self.low,
            _ => is_separator(slot, low),
        };
        let ends = match slot + 1 < self.n_children() {
            true => high.is_some_and(|high| is_separator(slot + 1, high)),
            false => high == self.high(),
        };
        begins && ends
    }

    pub fn high(&self) -> Option<&[u8]> {
        self.high.as_deref()
    }

    /// `key` lies between the page's fences.
    #[inline]
    pub fn covers(&self, key: &[u8]) -> bool {
        // The leftmost page of a level has no low fence.
        (self.low.is_empty() || key >= &*self.low) && self.high.as_deref().is_none_or(|h| key < h)
    }

    /// Keys strictly below `key` that are nearest to it lie between the page's fences.
    #[inline]
    pub fn covers_below(&self, key: &[u8]) -> bool {
        key > &*self.low && self.high.as_deref().is_none_or(|h| key <= h)
    }

    #[inline]
    fn suffix(&self, slot: usize) -> &[u8] {
        let start = match slot {
            0 => 0,
            _ => self.ends[slot - 1] as usize,
        };
        &self.keys[start..self.ends[slot] as usize]
    }

    /// The whole separator in front of a child; for slot 0 the low fence.
    pub fn separator(&self, slot: usize) -> Vec<u8> {
        match slot {
            0 => self.low.to_vec(),
            _ => [&self.low[..self.prefix_len], self.suffix(slot)].concat(),
        }
    }

    /// The fences of a child's page (BT-2).
    pub fn fences(&self, slot: usize) -> (Vec<u8>, Option<Vec<u8>>) {
        let high = match slot + 1 < self.n_children() {
            true => Some(self.separator(slot + 1)),
            false => self.high().map(<[u8]>::to_vec),
        };
        (self.separator(slot), high)
    }

    /// The child whose range contains `key`, which the page covers.
    #[inline]
    pub fn child_for(&self, key: &[u8]) -> ChildRef<'_> {
        let n = self.rank(key, |sep, key| sep <= key);
        self.child(n.saturating_sub(1))
    }

    /// The child that holds the greatest keys below `key`, which is above the page's low fence.
    #[inline]
    pub fn child_below(&self, key: &[u8]) -> ChildRef<'_> {
        let n = self.rank(key, |sep, key| sep < key);
        self.child(n.saturating_sub(1))
    }

    /// How many separators stand before `key`, where `before` decides for suffixes with equal heads.
    #[inline]
    fn rank(&self, key: &[u8], before: impl Fn(&[u8], &[u8]) -> bool) -> usize {
        let prefix = &self.low[..self.prefix_len];
        let suffix = match key.strip_prefix(prefix) {
            Some(s) => s,
            // Only the high fence itself, asked for with `child_below`, may lack the prefix … and it has it
            // by definition; other keys are not covered by the page. The nearest end is a harmless answer.
            None if key < prefix => return 0,
            None => return self.heads.len(),
        };
        let head = head64(suffix);
        // All heads of the blocks before are below it, and the last one of this block is not, if the block is
        // a whole one.
        let from = partition(&self.tops, |top| *top < head) * BLOCK;
        let to = (from + BLOCK).min(self.heads.len());
        let first = from + partition(&self.heads[from..to], |h| *h < head);
        if self.heads.get(first) != Some(&head) {
            return first;
        }
        let (mut lo, mut hi) = (first, first + 1);
        if self.heads.get(hi) == Some(&head) {
            hi = first + partition(&self.heads[first..], |h| *h <= head);
        }
        while lo < hi {
            let mid = lo + (hi - lo) / 2;
            if before(self.suffix(mid), suffix) {
                lo = mid + 1;
            } else {
                hi = mid;
            }
        }
        lo
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::SpaceId;
    use crate::page::PageOp;

    const ID: PageId = PageId::new(SpaceId(3), PageNo(8));

    fn insert(page: &mut [u8], slot: u16, suffix: &[u8], child: u32) {
        let payload = &child.to_le_bytes();
        let op = PageOp::Insert {
            slot,
            suffix,
            payload,
        };
        op.apply(page, ID).unwrap();
    }

    /// Each search finds what a look at all separators finds, whatever the number of children is to that of a
    /// block.
    #[test]
    fn searches_find_their_child() {
        for n in (1..70).chain([255, 256, 257]) {
            let mut page = vec![0; 16384];
            let format = PageOp::FormatSlotted {
                ptype: PageType::Inner,
                owner: 5,
                level: 1,
                user_len: 0,
                next: PageNo(99),
                low: b"",
                high: None,
            };
            format.apply(&mut page, ID).unwrap();
            // Long ones with few different heads among short ones.
            let separator = |i: u32| match i / 20 % 2 {
                _ if i == 0 => Vec::new(),
                0 => (3 * i).to_be_bytes().to_vec(),
                _ => [
                    &(60 * (i / 20)).to_be_bytes()[..],
                    b"tail",
                    &i.to_be_bytes(),
                ]
                .concat(),
            };
            let separators: Vec<_> = (0..n).map(separator).collect();
            assert!(separators.is_sorted());
            for (slot, separator) in separators.iter().enumerate() {
                insert(&mut page, slot as u16, separator, 100 + slot as u32);
            }
            let image = InnerImage::decode(&page, ID).unwrap();
            for key in (0..3 * n + 9)
                .map(|k| k.to_be_bytes().to_vec())
                .chain(separators[1..].to_vec())
            {
                let at_or_below = separators.iter().filter(|s| **s <= key).count();
                let below = separators.iter().filter(|s| **s < key).count();
                assert_eq!(
                    image.child_for(&key).slot,
                    at_or_below - 1,
                    "{key:?} of {n}"
                );
                assert_eq!(image.child_below(&key).slot, below - 1, "{key:?} of {n}");
            }
        }
    }

    /// An image with one more child is that of the page with one more record, and remembers where the others
    /// are.
    #[test]
    fn a_child_can_be_added() {
        let mut page = vec![0; 4096];
        let format = PageOp::FormatSlotted {
            ptype: PageType::Inner,
            owner: 5,
            level: 1,
            user_len: 0,
            next: PageNo(99),
            low: b"key-a",
            high: Some(b"key-z"),
        };
        format.apply(&mut page, ID).unwrap();
        insert(&mut page, 0, b"", 100);
        let mut image = InnerImage::decode(&page, ID).unwrap();
        image.child(0).hint.set(17, 0);
        // At the end, in the middle, with equal heads, with a short suffix.
        for (slot, suffix, child) in [
            (1, &b"m-with-a-long-suffix-2"[..], 101),
            (1, b"b", 102),
            (2, b"m-with-a-long-suffix-1", 103),
            (4, b"y", 104),
        ] {
            insert(&mut page, slot, suffix, child);
            image = image.with_child(slot as usize, suffix, PageNo(child));
            let decoded = InnerImage::decode(&page, ID).unwrap();
            assert!(image.says_the_same(&decoded), "child {child}");
        }
        assert_eq!(image.child(0).hint.get().0, 17);
        assert_eq!(
            image.child_for(b"key-m-with-a-long-suffix-1").no,
            PageNo(103)
        );
        let other = image.with_child(5, b"yy", PageNo(9));
        assert!(!image.says_the_same(&other));
    }
}
