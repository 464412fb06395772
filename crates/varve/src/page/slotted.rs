//! Reading a slotted page: records in key order, addressed through a slot array.
//!
//! ```text
//! 48 owner u64 | 56 level u16 | 58 n_slots u16 | 60 heap_low u32 | 64 garbage u32 | 68 next u32
//! 72 prefix_len u16 | 74 low_len u16 | 76 high_len u16 (0xFFFF: +infinity) | 78 last_insert u16
//! 80 user_len u16 | 82 zero | 88 user area | slots → … free … ← heap | high fence | low fence
//! slot   = offset u16 | length u16 | head u32
//! record = klen u16 | key suffix | payload
//! ```
//!
//! `head` holds the first four bytes of the key suffix as a big-endian number, zero padded. If two heads
//! differ they order their keys; if they are equal the suffixes decide. So a search touches one dense array
//! and, usually, one record.
//!
//! Accessors trust the page (PG-2): pages from disk pass [`validate`] once, when they are read.

use std::cmp::Ordering;
use std::hint::select_unpredictable;
use std::ops::Range;

use super::header::{PAGE_HEADER, PageType, get_u16, get_u32, get_u64, page_id, page_type};
use crate::base::{Error, PageId, PageNo, Result};

pub const SLOT_SIZE: usize = 8;
pub(super) const KLEN_SIZE: usize = 2;

pub(super) const OFF_OWNER: usize = PAGE_HEADER;
pub(super) const OFF_LEVEL: usize = 56;
pub(super) const OFF_N_SLOTS: usize = 58;
pub(super) const OFF_HEAP_LOW: usize = 60;
pub(super) const OFF_GARBAGE: usize = 64;
pub(super) const OFF_NEXT: usize = 68;
pub(super) const OFF_PREFIX_LEN: usize = 72;
pub(super) const OFF_LOW_LEN: usize = 74;
pub(super) const OFF_HIGH_LEN: usize = 76;
/// One more than the slot of the last `Insert`; 0 when the page was reorganised since.
pub(super) const OFF_LAST_INSERT: usize = 78;
pub(super) const OFF_USER_LEN: usize = 80;
/// Where the user area begins.
pub const OFF_USER: usize = 88;

pub(super) const HIGH_INFINITE: u16 = u16::MAX;

/// The first four bytes of a key suffix as a number, zero padded.
#[inline]
pub(super) fn head_of(suffix: &[u8]) -> u32 {
    match suffix.first_chunk::<4>() {
        Some(c) => u32::from_be_bytes(*c),
        None => {
            let mut w = [0u8; 4];
            w[..suffix.len()].copy_from_slice(suffix);
            u32::from_be_bytes(w)
        }
    }
}

/// The eight bytes of a key suffix behind its head as a number, zero padded.
#[inline]
fn tail_of(suffix: &[u8]) -> u64 {
    match suffix.len() {
        0..=4 => 0,
        // The last eight bytes hold the tail at their end.
        n @ 8..12 => match suffix.last_chunk::<8>() {
            Some(c) => u64::from_be_bytes(*c) << ((12 - n) * 8),
            None => 0,
        },
        5..8 => suffix[4..]
            .iter()
            .zip([56, 48, 40])
            .fold(0, |v, (&b, shift)| v | u64::from(b) << shift),
        _ => match suffix[4..].first_chunk::<8>() {
            Some(c) => u64::from_be_bytes(*c),
            None => 0,
        },
    }
}

/// How many leading bytes two strings share.
pub fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

#[inline]
pub(super) fn slot_head(s: &[u8; SLOT_SIZE]) -> u32 {
    u32::from_le_bytes([s[4], s[5], s[6], s[7]])
}

#[inline]
pub(super) fn slot_place(s: &[u8; SLOT_SIZE]) -> (usize, usize) {
    (
        u16::from_le_bytes([s[0], s[1]]) as usize,
        u16::from_le_bytes([s[2], s[3]]) as usize,
    )
}

/// Key suffix and payload of a record that was copied from where [`SlottedRef::places`] says.
#[inline]
pub fn record_parts(record: &[u8]) -> (&[u8], &[u8]) {
    record[KLEN_SIZE..].split_at(get_u16(record, 0) as usize)
}

/// Appends a record to `out` as `record_parts` takes it apart.
#[inline]
pub fn push_record_parts(suffix: &[u8], payload: &[u8], out: &mut Vec<u8>) {
    out.reserve(KLEN_SIZE + suffix.len() + payload.len());
    out.extend_from_slice(&(suffix.len() as u16).to_le_bytes());
    out.extend_from_slice(suffix);
    out.extend_from_slice(payload);
}

/// A view of a slotted page.
#[derive(Clone, Copy)]
pub struct SlottedRef<'a> {
    page: &'a [u8],
}

impl<'a> SlottedRef<'a> {
    #[inline]
    pub fn new(page: &'a [u8]) -> SlottedRef<'a> {
        debug_assert!(
            page_type(page).is_some_and(|t| t.is_slotted()),
            "not a slotted page"
        );
        SlottedRef { page }
    }

    pub fn bytes(&self) -> &'a [u8] {
        self.page
    }

    /// Index id of a tree page, transaction id of an undo page.
    #[inline]
    pub fn owner(&self) -> u64 {
        get_u64(self.page, OFF_OWNER)
    }

    /// 0 for a leaf.
    #[inline]
    pub fn level(&self) -> u16 {
        get_u16(self.page, OFF_LEVEL)
    }

    #[inline]
    pub fn n_slots(&self) -> usize {
        get_u16(self.page, OFF_N_SLOTS) as usize
    }

    /// The right sibling, or `NO_PAGE`.
    #[inline]
    pub fn next(&self) -> PageNo {
        PageNo(get_u32(self.page, OFF_NEXT))
    }

    #[inline]
    pub(super) fn heap_low(&self) -> usize {
        get_u32(self.page, OFF_HEAP_LOW) as usize
    }

    #[inline]
    pub(super) fn garbage(&self) -> usize {
        get_u32(self.page, OFF_GARBAGE) as usize
    }

    #[inline]
    pub fn prefix_len(&self) -> usize {
        get_u16(self.page, OFF_PREFIX_LEN) as usize
    }

    #[inline]
    fn low_len(&self) -> usize {
        get_u16(self.page, OFF_LOW_LEN) as usize
    }

    /// Bytes that both fences take at the page's end.
    pub(super) fn fence_bytes(&self) -> usize {
        let high = get_u16(self.page, OFF_HIGH_LEN);
        self.low_len()
            + if high == HIGH_INFINITE {
                0
            } else {
                high as usize
            }
    }

    /// Every key of the page is ≥ this. Empty: minus infinity.
    #[inline]
    pub fn low(&self) -> &'a [u8] {
        &self.page[self.page.len() - self.low_len()..]
    }

    /// Every key of the page is < this. `None`: plus infinity.
    #[inline]
    pub fn high(&self) -> Option<&'a [u8]> {
        let len = get_u16(self.page, OFF_HIGH_LEN);
        if len == HIGH_INFINITE {
            return None;
        }
        let end = self.page.len() - self.low_len();
        Some(&self.page[end - len as usize..end])
    }

    /// What all keys of the page start with; records leave it out.
    #[inline]
    pub fn prefix(&self) -> &'a [u8] {
        &self.low()[..self.prefix_len()]
    }

    /// `key` lies between the fences.
    #[inline]
    pub fn covers(&self, key: &[u8]) -> bool {
        key >= self.low() && self.high().is_none_or(|h| key < h)
    }

    pub(super) fn user_len(&self) -> usize {
        get_u16(self.page, OFF_USER_LEN) as usize
    }

    /// Bytes that the page's kind keeps beside its records (undo log headers).
    pub fn user(&self) -> &'a [u8] {
        &self.page[OFF_USER..OFF_USER + self.user_len()]
    }

    #[inline]
    pub(super) fn slots_start(&self) -> usize {
        OFF_USER + self.user_len().next_multiple_of(SLOT_SIZE)
    }

    /// Where the slots end: a search in the page looks before that.
    pub fn slots_end(&self) -> usize {
        self.slots_start() + self.n_slots() * SLOT_SIZE
    }

    #[inline]
    pub(super) fn slots(&self) -> &'a [[u8; SLOT_SIZE]] {
        let start = self.slots_start();
        let bytes = &self.page[start..start + self.n_slots() * SLOT_SIZE];
        bytes.as_chunks::<SLOT_SIZE>().0
    }

    #[inline]
    fn record(&self, slot: usize) -> (&'a [u8], usize) {
        let (off, len) = slot_place(&self.slots()[slot]);
        let rec = &self.page[off..off + len];
        (rec, KLEN_SIZE + get_u16(rec, 0) as usize)
    }

    /// The records are separators and children.
    #[inline]
    pub fn is_inner(&self) -> bool {
        self.level() > 0
    }

    /// The low fence of the child in a slot of an inner page (PG-5).
    pub fn separator(&self, slot: usize) -> Vec<u8> {
        match slot {
            0 => self.low().to_vec(),
            _ => self.key(slot),
        }
    }

    /// The key of a record without the page's prefix. In slot 0 of an inner page it is empty (PG-5).
    #[inline]
    pub fn key_suffix(&self, slot: usize) -> &'a [u8] {
        let (rec, key_end) = self.record(slot);
        &rec[KLEN_SIZE..key_end]
    }

    #[inline]
    pub fn payload(&self, slot: usize) -> &'a [u8] {
        let (rec, key_end) = self.record(slot);
        &rec[key_end..]
    }

    /// Key suffix and payload at once.
    #[inline]
    pub fn entry(&self, slot: usize) -> (&'a [u8], &'a [u8]) {
        let (rec, key_end) = self.record(slot);
        (&rec[KLEN_SIZE..key_end], &rec[key_end..])
    }

    /// Where these slots' records are in the page.
    #[inline]
    pub fn places(
        &self,
        slots: Range<usize>,
    ) -> impl ExactSizeIterator<Item = Range<usize>> + use<'a> {
        self.slots()[slots].iter().map(|slot| {
            let (at, len) = slot_place(slot);
            at..at + len
        })
    }

    /// The part of the page in which all records are, and where it begins.
    pub fn heap(&self) -> (usize, &'a [u8]) {
        let start = self.heap_low();
        (
            start,
            &self.page[start..self.page.len() - self.fence_bytes()],
        )
    }

    /// Appends the whole key of a record to `out`.
    #[inline]
    pub fn push_key(&self, slot: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix());
        out.extend_from_slice(self.key_suffix(slot));
    }

    pub fn key(&self, slot: usize) -> Vec<u8> {
        let mut out = Vec::new();
        self.push_key(slot, &mut out);
        out
    }

    /// Bytes of slots and records that the page still takes, compaction included.
    #[inline]
    pub fn free_space(&self) -> usize {
        self.contiguous() + self.garbage()
    }

    /// Bytes between the slot array and the heap.
    #[inline]
    pub(super) fn contiguous(&self) -> usize {
        self.heap_low() - self.slots_start() - self.n_slots() * SLOT_SIZE
    }

    /// Where the last insertion went, unless the page was split or merged since. Tells runs from random
    /// insertions.
    pub fn last_insert(&self) -> Option<usize> {
        (get_u16(self.page, OFF_LAST_INSERT) as usize).checked_sub(1)
    }

    /// Bytes that one record and its slot take.
    #[inline]
    pub fn cost(&self, slot: usize) -> usize {
        SLOT_SIZE + slot_place(&self.slots()[slot]).1
    }

    /// Bytes that live records and their slots take.
    pub fn used_space(&self) -> usize {
        let heap = self.page.len() - self.fence_bytes() - self.heap_low();
        heap - self.garbage() + self.n_slots() * SLOT_SIZE
    }

    /// Bytes that a page of this size offers for slots, records and fences.
    pub fn capacity(&self) -> usize {
        self.page.len() - self.slots_start()
    }

    /// Finds `key`: `Ok(slot)`, or `Err(slot)` where it would be inserted.
    #[inline]
    pub fn search(&self, key: &[u8]) -> std::result::Result<usize, usize> {
        let prefix = self.prefix();
        let side = match key.get(..prefix.len()) {
            Some(start) => start.cmp(prefix),
            // A key that is shorter than the prefix sorts before everything that starts with it.
            None if prefix.starts_with(key) => Ordering::Less,
            None => key.cmp(prefix),
        };
        match side {
            Ordering::Less => Err(0),
            Ordering::Greater => Err(self.n_slots()),
            Ordering::Equal => self.search_suffix(&key[prefix.len()..], |_| ()),
        }
    }

    /// The same for a key that the page covers, or that is its high fence: such a key starts with the prefix,
    /// which is not looked at.
    #[inline]
    pub fn search_covered(&self, key: &[u8]) -> std::result::Result<usize, usize> {
        self.search_covered_telling(key, |_| ())
    }

    /// The same, and tells where the record is that probably has the key, before it looks there.
    #[inline]
    pub fn search_covered_telling(
        &self,
        key: &[u8],
        tell: impl FnOnce(Range<usize>),
    ) -> std::result::Result<usize, usize> {
        debug_assert!(key.starts_with(self.prefix()), "PG-4");
        self.search_suffix(self.suffix_of(key), tell)
    }

    /// The first half of a search for a key that the page covers: the first slot whose head is not below the
    /// key's. No record is looked at.
    #[inline]
    pub fn search_heads(&self, key: &[u8]) -> usize {
        debug_assert!(key.starts_with(self.prefix()), "PG-4");
        let head = head_of(self.suffix_of(key));
        partition(self.slots(), |s| slot_head(s) < head)
    }

    /// The second half; `first` is what `search_heads` said of the page as it is.
    #[inline]
    pub fn search_from(&self, first: usize, key: &[u8]) -> std::result::Result<usize, usize> {
        let suffix = self.suffix_of(key);
        self.search_slots(self.slots(), first, head_of(suffix), suffix, |_| ())
    }

    #[inline]
    fn suffix_of<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        key.get(self.prefix_len()..).unwrap_or_default()
    }

    #[inline]
    fn search_suffix(
        &self,
        suffix: &[u8],
        tell: impl FnOnce(Range<usize>),
    ) -> std::result::Result<usize, usize> {
        let (slots, head) = (self.slots(), head_of(suffix));
        let first = partition(slots, |s| slot_head(s) < head);
        self.search_slots(slots, first, head, suffix, tell)
    }

    /// `first`: the first slot whose head is not below `head`, the suffix's.
    #[inline(always)]
    fn search_slots(
        &self,
        slots: &[[u8; SLOT_SIZE]],
        first: usize,
        head: u32,
        suffix: &[u8],
        tell: impl FnOnce(Range<usize>),
    ) -> std::result::Result<usize, usize> {
        let Some(slot) = slots.get(first) else {
            return Err(first);
        };
        if slot_head(slot) != head {
            return Err(first);
        }
        let (at, len) = slot_place(slot);
        tell(at..at + len);
        // Usually one record has this head. If more have it (leaves at the ends of an index have no prefix),
        // the eight bytes behind it decide next, and only then whole suffixes.
        let same = |s: &[u8; SLOT_SIZE]| slot_head(s) == head;
        if !slots.get(first + 1).is_some_and(same) {
            return match self.key_suffix(first).cmp(suffix) {
                Ordering::Less => Err(first + 1),
                Ordering::Equal => Ok(first),
                Ordering::Greater => Err(first),
            };
        }
        let last = first + partition(&slots[first..], |s| slot_head(s) <= head);
        let tail = tail_of(suffix);
        let mut lo = first + partition(&slots[first..last], |s| self.slot_tail(s) < tail);
        let mut hi = last;
        let mut mid = lo;
        while lo < hi {
            match self.key_suffix(mid).cmp(suffix) {
                Ordering::Less => lo = mid + 1,
                Ordering::Greater => hi = mid,
                Ordering::Equal => return Ok(mid),
            }
            mid = lo + (hi - lo) / 2;
        }
        Err(lo)
    }

    #[inline]
    fn slot_tail(&self, s: &[u8; SLOT_SIZE]) -> u64 {
        let off = slot_place(s).0;
        let start = off + KLEN_SIZE;
        tail_of(&self.page[start..start + get_u16(self.page, off) as usize])
    }
}

/// The number of leading elements for which `below` holds, without branches that depend on the data: at
/// eight levels a mispredicted branch each would cost more than everything else in a search.
#[inline]
pub(super) fn partition<T>(sorted: &[T], below: impl Fn(&T) -> bool) -> usize {
    let mut base = 0;
    let mut size = sorted.len();
    while size > 1 {
        let half = size / 2;
        let mid = base + half;
        base = select_unpredictable(below(&sorted[mid]), mid, base);
        size -= half;
    }
    base + usize::from(sorted.get(base).is_some_and(below))
}

/// Checks a slotted page's structure, so that reading it can't go out of bounds (PG-2); other pages pass.
/// One pass over the slots: run after every page read.
pub fn validate(page: &[u8], id: PageId) -> Result<()> {
    if !page_type(page).is_some_and(|t| t.is_slotted()) {
        return Ok(());
    }
    match check_slotted(page) {
        Ok(()) => Ok(()),
        Err(what) => Err(Error::corrupt(
            id,
            "a well-formed slotted page",
            format!("{what} (header says {:?})", page_id(page)),
        )),
    }
}

fn check_slotted(page: &[u8]) -> std::result::Result<(), &'static str> {
    let p = SlottedRef { page };
    let size = page.len();
    let fences = p.fence_bytes();
    let slots_end = p.slots_start() + p.n_slots() * SLOT_SIZE;
    if slots_end > p.heap_low() || p.heap_low() > size || fences > size - p.heap_low() {
        return Err("slot array, heap and fences that overlap");
    }
    let prefix = p.prefix_len();
    let shared = match p.high() {
        None => 0,
        Some(high) => common_prefix_len(p.low(), high),
    };
    if prefix > shared {
        return Err("a prefix that the fences do not share");
    }
    let heap_end = size - fences;
    let mut live = 0;
    for slot in p.slots() {
        let (off, len) = slot_place(slot);
        if off < p.heap_low() || off + len > heap_end {
            return Err("a record outside the heap");
        }
        if len < KLEN_SIZE || KLEN_SIZE + get_u16(page, off) as usize > len {
            return Err("a key longer than its record");
        }
        live += len;
    }
    if live + p.garbage() != heap_end - p.heap_low() {
        return Err("a heap whose records and garbage do not add up");
    }
    Ok(())
}

/// Checks what searches and scans of a tree's page rely on: heads are those of their keys, keys ascend and
/// lie between the fences (PG-4), the first separator is not stored (PG-5). Other pages pass. The page was
/// accepted by [`validate`]. One pass over the records: run after every page read.
pub fn validate_keys(page: &[u8], id: PageId) -> Result<()> {
    if !matches!(page_type(page), Some(PageType::Leaf | PageType::Inner)) {
        return Ok(());
    }
    let p = SlottedRef::new(page);
    // All keys and both fences start with the prefix: what follows it is compared.
    let mut before: Option<&[u8]> = None;
    let low = &p.low()[p.prefix_len()..];
    for (n, slot) in p.slots().iter().enumerate() {
        let key = p.key_suffix(n);
        let (fits, stands_for) = match before {
            Some(before) => (key > before, key),
            None if p.is_inner() => (key.is_empty(), low),
            None => (key >= low, key),
        };
        if !fits || slot_head(slot) != head_of(key) {
            let found = format!("slot {n} out of order or with a wrong head");
            return Err(Error::corrupt(id, "ascending keys", found));
        }
        before = Some(stands_for);
    }
    match (before, p.high()) {
        (Some(last), Some(high)) if last >= &high[p.prefix_len()..] => {
            let expected = "keys below the high fence";
            Err(Error::corrupt(id, expected, "a key at or above it"))
        }
        _ => Ok(()),
    }
}
