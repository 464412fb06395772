//! The immutable decoded form of an inner page. Descents read nothing else: no latch, no pin.
//!
//! An inner page's record is a separator key with a child's page number; the first separator equals the
//! page's low fence. Child `i` covers keys from separator `i` (included) to separator `i + 1` (excluded), the
//! last one up to the high fence.
//!
//! Entries carry eight bytes of the separator (after the page's prefix) as a number, so that most searches
//! touch nothing but the entry array. The child and the hint stand in the same cache line as what led there.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::header::{PageType, page_type};
use super::slotted::{SlottedRef, partition};
use crate::base::{Error, IndexId, PageId, PageNo, Result};

/// "Not known": what a frame hint starts with.
const NO_HINT: u32 = u32::MAX;

struct Entry {
    head: u64,
    child: PageNo,
    /// Frame in which the child was found last. Only a hint: whoever uses it checks the page id there, so
    /// relaxed loads and stores are enough.
    hint: AtomicU32,
}

pub struct InnerImage {
    pub id: PageId,
    pub index: IndexId,
    pub level: u16,
    pub next: PageNo,
    low: Box<[u8]>,
    high: Option<Box<[u8]>>,
    prefix_len: usize,
    entries: Box<[Entry]>,
    /// Where each separator's suffix ends in `keys`.
    ends: Box<[u32]>,
    keys: Box<[u8]>,
}

/// One child of an inner page.
#[derive(Clone, Copy)]
pub struct ChildRef<'a> {
    pub slot: usize,
    pub no: PageNo,
    pub hint: &'a AtomicU32,
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
        let mut entries = Vec::with_capacity(n);
        let mut ends = Vec::with_capacity(n);
        let mut keys = Vec::new();
        for slot in 0..n {
            let (suffix, payload) = p.entry(slot);
            let Some(child) = child_of(payload) else {
                let found = format!("{} bytes in slot {slot}", payload.len());
                return Err(Error::corrupt(id, "a child's page number", found));
            };
            keys.extend_from_slice(suffix);
            ends.push(keys.len() as u32);
            entries.push(Entry {
                head: head64(suffix),
                child,
                hint: AtomicU32::new(NO_HINT),
            });
        }
        Ok(InnerImage {
            id,
            index: IndexId(p.owner()),
            level: p.level(),
            next: p.next(),
            low: p.low().into(),
            high: p.high().map(Into::into),
            prefix_len: p.prefix_len(),
            entries: entries.into(),
            ends: ends.into(),
            keys: keys.into(),
        })
    }

    /// The image of the same page with one more child, in slot `slot` from the separator with this suffix on. What is known
    /// of where the others are stays known.
    pub fn with_child(&self, slot: usize, suffix: &[u8], child: PageNo) -> InnerImage {
        let new = Entry {
            head: head64(suffix),
            child,
            hint: AtomicU32::new(NO_HINT),
        };
        let copy = |e: &Entry| Entry {
            head: e.head,
            child: e.child,
            hint: AtomicU32::new(e.hint.load(Relaxed)),
        };
        let (before, after) = self.entries.split_at(slot);
        let entries = before.iter().map(copy).chain([new]);
        let key_at = match slot {
            0 => 0,
            _ => self.ends[slot - 1],
        };
        let len = suffix.len() as u32;
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
            entries: entries.chain(after.iter().map(copy)).collect(),
            ends: ends
                .chain(self.ends[slot..].iter().map(|end| end + len))
                .collect(),
            keys: [keys_before, suffix, keys_after].concat().into(),
        }
    }

    /// Says the same about the page, whatever is known of where the children are.
    pub fn says_the_same(&self, other: &InnerImage) -> bool {
        let children = |image: &InnerImage| -> Vec<_> {
            let entries = image.entries.iter();
            entries.map(|e| (e.head, e.child)).collect()
        };
        (self.id, self.index, self.level, self.next, self.prefix_len)
            == (
                other.id,
                other.index,
                other.level,
                other.next,
                other.prefix_len,
            )
            && (&self.low, &self.high, &self.ends, &self.keys)
                == (&other.low, &other.high, &other.ends, &other.keys)
            && children(self) == children(other)
    }

    #[inline]
    pub fn n_children(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub fn child(&self, slot: usize) -> ChildRef<'_> {
        let e = &self.entries[slot];
        ChildRef {
            slot,
            no: e.child,
            hint: &e.hint,
        }
    }

    pub fn low(&self) -> &[u8] {
        &self.low
    }

    pub fn high(&self) -> Option<&[u8]> {
        self.high.as_deref()
    }

    /// `key` lies between the page's fences.
    #[inline]
    pub fn covers(&self, key: &[u8]) -> bool {
        key >= &*self.low && self.high.as_deref().is_none_or(|h| key < h)
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
        [&self.low[..self.prefix_len], self.suffix(slot)].concat()
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
            None => return self.entries.len(),
        };
        let head = head64(suffix);
        let first = partition(&self.entries, |e| e.head < head);
        match self.entries.get(first) {
            Some(e) if e.head == head => {}
            _ => return first,
        }
        let (mut lo, mut hi) = (first, first + 1);
        if self.entries.get(hi).is_some_and(|e| e.head == head) {
            hi = first + partition(&self.entries[first..], |e| e.head <= head);
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

    /// An image with one more child is that of the page with one more record, and remembers where the others are.
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
        insert(&mut page, 0, b"a", 100);
        let mut image = InnerImage::decode(&page, ID).unwrap();
        image.child(0).hint.store(17, Relaxed);
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
        assert_eq!(image.child(0).hint.load(Relaxed), 17);
        assert_eq!(
            image.child_for(b"key-m-with-a-long-suffix-1").no,
            PageNo(103)
        );
        let other = image.with_child(5, b"yy", PageNo(9));
        assert!(!image.says_the_same(&other));
    }
}
