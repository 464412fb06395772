//! Changing a slotted page. Only `PageOp::apply` calls this: each change of a page is said in an operation
//! that can be logged (PG-1).
//!
//! Every function checks before it changes (PG-3) and says in a few words why it refused. Reorganising
//! builds the new page beside the old one and copies it over as a whole.

use super::header::{
    PAGE_HEADER, PageType, get_u16, get_u32, put_u16, put_u32, put_u64, set_page_type,
};
use super::op::BulkRecs;
use super::slotted::*;
use crate::base::{PageNo, RowHead};

pub(super) type Edit = std::result::Result<(), &'static str>;

const NO_ROOM: &str = "no room for the record";
const NO_SLOT: &str = "no such slot";
const NOT_FIRST: &str = "another separator in front of the first";

/// What a freshly formatted slotted page is told.
#[derive(Clone, Copy)]
pub(super) struct Format<'a> {
    pub ptype: PageType,
    pub owner: u64,
    pub level: u16,
    pub user_len: u16,
    pub next: PageNo,
    pub low: &'a [u8],
    pub high: Option<&'a [u8]>,
}

pub(super) struct SlottedMut<'a> {
    page: &'a mut [u8],
}

/// Writes an empty slotted body; the header's first 48 bytes but the type stay as they are, and so does what
/// lies behind the user area: undo pages are formatted for each transaction, and clearing a whole page costs
/// more than the rest of it.
pub(super) fn format(page: &mut [u8], f: Format<'_>) -> Edit {
    check_format(page.len(), f)?;
    page[PAGE_HEADER..OFF_USER + (f.user_len as usize).next_multiple_of(SLOT_SIZE)].fill(0);
    put_format(page, f);
    Ok(())
}

fn check_format(page_size: usize, f: Format<'_>) -> Edit {
    if !f.ptype.is_slotted() {
        return Err("a page type without slots");
    }
    let high_len = f.high.map_or(0, <[u8]>::len);
    let body = OFF_USER + (f.user_len as usize).next_multiple_of(SLOT_SIZE);
    if body + f.low.len() + high_len > page_size || high_len >= HIGH_INFINITE as usize {
        return Err("fences larger than the page");
    }
    Ok(())
}

/// Writes header and fences of an empty page, whose header and user area are zero and whose body is large
/// enough.
fn put_format(page: &mut [u8], f: Format<'_>) {
    set_page_type(page, f.ptype);
    put_u64(page, OFF_OWNER, f.owner);
    put_u16(page, OFF_LEVEL, f.level);
    put_u32(page, OFF_NEXT, f.next.0);
    put_u16(page, OFF_USER_LEN, f.user_len);
    put_fences(page, f.low, f.high);
    let heap = page.len() - f.low.len() - f.high.map_or(0, <[u8]>::len);
    put_u32(page, OFF_HEAP_LOW, heap as u32);
}

/// Writes both fences at the page's end, and the prefix that they share.
fn put_fences(page: &mut [u8], low: &[u8], high: Option<&[u8]>) {
    let end = page.len() - low.len();
    page[end..].copy_from_slice(low);
    put_u16(page, OFF_LOW_LEN, low.len() as u16);
    match high {
        Some(high) => {
            page[end - high.len()..end].copy_from_slice(high);
            put_u16(page, OFF_HIGH_LEN, high.len() as u16);
            put_u16(page, OFF_PREFIX_LEN, common_prefix_len(low, high) as u16);
        }
        None => {
            put_u16(page, OFF_HIGH_LEN, HIGH_INFINITE);
            put_u16(page, OFF_PREFIX_LEN, 0);
        }
    }
}

impl<'a> SlottedMut<'a> {
    pub(super) fn new(page: &'a mut [u8]) -> SlottedMut<'a> {
        SlottedMut { page }
    }

    #[inline]
    fn view(&self) -> SlottedRef<'_> {
        SlottedRef::new(self.page)
    }

    #[inline]
    pub(super) fn insert(&mut self, slot: usize, suffix: &[u8], payload: &[u8]) -> Edit {
        let n = self.view().n_slots();
        if slot > n {
            return Err(NO_SLOT);
        }
        if slot == 0 && self.view().is_inner() && !(n == 0 && suffix.is_empty()) {
            return Err(NOT_FIRST);
        }
        let len = KLEN_SIZE + suffix.len() + payload.len();
        if n >= u16::MAX as usize || len > u16::MAX as usize {
            return Err(NO_ROOM);
        }
        self.make_room(SLOT_SIZE + len)?;
        let off = self.push_record(suffix, payload);
        let at = self.view().slots_start() + slot * SLOT_SIZE;
        let end = self.view().slots_start() + n * SLOT_SIZE;
        self.page.copy_within(at..end, at + SLOT_SIZE);
        self.put_slot(at, off, len, head_of(suffix));
        put_u16(self.page, OFF_N_SLOTS, n as u16 + 1);
        put_u16(self.page, OFF_LAST_INSERT, slot as u16 + 1);
        Ok(())
    }

    /// Takes the bytes from the heap's low end; the caller made room.
    #[inline]
    fn push_record(&mut self, suffix: &[u8], payload: &[u8]) -> usize {
        let len = KLEN_SIZE + suffix.len() + payload.len();
        let off = self.view().heap_low() - len;
        let key_end = off + KLEN_SIZE + suffix.len();
        put_u16(self.page, off, suffix.len() as u16);
        self.page[off + KLEN_SIZE..key_end].copy_from_slice(suffix);
        self.page[key_end..off + len].copy_from_slice(payload);
        put_u32(self.page, OFF_HEAP_LOW, off as u32);
        off
    }

    #[inline]
    fn put_slot(&mut self, at: usize, off: usize, len: usize, head: u32) {
        put_u16(self.page, at, off as u16);
        put_u16(self.page, at + 2, len as u16);
        put_u32(self.page, at + 4, head);
    }

    /// Makes `need` contiguous bytes free, by compaction if that is what it takes.
    #[inline]
    fn make_room(&mut self, need: usize) -> Edit {
        let p = self.view();
        if p.contiguous() >= need {
            return Ok(());
        }
        if p.free_space() < need {
            return Err(NO_ROOM);
        }
        self.compact(None);
        Ok(())
    }

    fn add_garbage(&mut self, bytes: usize) {
        let sum = get_u32(self.page, OFF_GARBAGE) + bytes as u32;
        put_u32(self.page, OFF_GARBAGE, sum);
    }

    /// A slot's position in the page, its record's offset and length.
    fn locate(&self, slot: usize) -> std::result::Result<(usize, usize, usize), &'static str> {
        let p = self.view();
        let s = p.slots().get(slot).ok_or(NO_SLOT)?;
        let (off, len) = slot_place(s);
        Ok((p.slots_start() + slot * SLOT_SIZE, off, len))
    }

    pub(super) fn remove(&mut self, slot: usize) -> Edit {
        let (at, off, len) = self.locate(slot)?;
        let n = self.view().n_slots();
        if slot == 0 && n > 1 && self.view().is_inner() {
            return Err(NOT_FIRST);
        }
        let end = self.view().slots_start() + n * SLOT_SIZE;
        self.page.copy_within(at + SLOT_SIZE..end, at);
        put_u16(self.page, OFF_N_SLOTS, n as u16 - 1);
        self.give_back(off, len);
        Ok(())
    }

    /// Removes records in one pass over the slots.
    pub(super) fn remove_many(&mut self, removed: &[[u8; 2]]) -> Edit {
        let number = |slot: &[u8; 2]| u16::from_le_bytes(*slot) as usize;
        let n = self.view().n_slots();
        let (Some(first), Some(last)) = (removed.first(), removed.last()) else {
            return Ok(());
        };
        if number(last) >= n {
            return Err(NO_SLOT);
        }
        if !removed.is_sorted_by(|a, b| number(a) < number(b)) {
            return Err("slots that do not ascend");
        }
        if number(first) == 0 && removed.len() < n && self.view().is_inner() {
            return Err(NOT_FIRST);
        }
        let start = self.view().slots_start();
        let mut to = start + number(first) * SLOT_SIZE;
        for (i, slot) in removed.iter().enumerate() {
            // Only slots before this one have been overwritten.
            let (at, off, len) = self.locate(number(slot))?;
            self.give_back(off, len);
            let next = removed.get(i + 1).map_or(n, number);
            let (from, end) = (at + SLOT_SIZE, start + next * SLOT_SIZE);
            self.page.copy_within(from..end, to);
            to += end - from;
        }
        put_u16(self.page, OFF_N_SLOTS, (n - removed.len()) as u16);
        Ok(())
    }

    /// Bytes of the heap become free: at its low end at once, elsewhere as garbage.
    fn give_back(&mut self, off: usize, len: usize) {
        if off == self.view().heap_low() {
            put_u32(self.page, OFF_HEAP_LOW, (off + len) as u32);
        } else {
            self.add_garbage(len);
        }
    }

    /// A record with an empty key behind all others.
    #[inline]
    pub(super) fn append(&mut self, payload: &[u8]) -> Edit {
        self.insert(self.view().n_slots(), &[], payload)
    }

    /// Another head of a row, and `bytes` in place of `cut` bytes at `at` behind it.
    pub(super) fn update_row(
        &mut self,
        slot: usize,
        head: RowHead,
        at: u16,
        cut: u16,
        bytes: &[u8],
    ) -> Edit {
        let (place, off, len) = self.locate(slot)?;
        let start = off + KLEN_SIZE + get_u16(self.page, off) as usize;
        let from = start + RowHead::LEN + at as usize;
        let (to, end) = (from + cut as usize, off + len);
        if to > end {
            return Err("an update beyond the row");
        }
        if bytes.len() > to - from {
            let longer = [
                &self.page[off..start],
                &head.to_bytes(),
                &self.page[start + RowHead::LEN..from],
                bytes,
                &self.page[to..end],
            ]
            .concat();
            return self.put_longer(slot, &longer);
        }
        self.page[start..start + RowHead::LEN].copy_from_slice(&head.to_bytes());
        self.page[from..from + bytes.len()].copy_from_slice(bytes);
        let shorter = to - from - bytes.len();
        if shorter > 0 {
            self.page.copy_within(to..end, to - shorter);
            put_u16(self.page, place + 2, (len - shorter) as u16);
            self.add_garbage(shorter);
        }
        Ok(())
    }

    /// Puts a longer record in place of one with the same key. The old record's bytes count as free: one that
    /// barely grows must fit in its own place.
    fn put_longer(&mut self, slot: usize, record: &[u8]) -> Edit {
        let (at, off, len) = self.locate(slot)?;
        if record.len() > u16::MAX as usize || self.view().free_space() + len < record.len() {
            return Err(NO_ROOM);
        }
        self.give_back(off, len);
        if self.view().contiguous() < record.len() {
            self.compact(Some(slot));
        }
        let off = self.view().heap_low() - record.len();
        self.page[off..off + record.len()].copy_from_slice(record);
        put_u32(self.page, OFF_HEAP_LOW, off as u32);
        put_u16(self.page, at, off as u16);
        put_u16(self.page, at + 2, record.len() as u16);
        Ok(())
    }

    /// Moves the records together at the heap's high end. A slot in `except` has given its record back: it
    /// is left for the caller to fill.
    #[cold]
    fn compact(&mut self, except: Option<usize>) {
        let old = self.page.to_vec();
        let p = SlottedRef::new(&old);
        let mut heap = old.len() - p.fence_bytes();
        for (i, s) in p.slots().iter().enumerate() {
            if Some(i) == except {
                continue;
            }
            let (off, len) = slot_place(s);
            heap -= len;
            self.page[heap..heap + len].copy_from_slice(&old[off..off + len]);
            put_u16(self.page, p.slots_start() + i * SLOT_SIZE, heap as u16);
        }
        put_u32(self.page, OFF_HEAP_LOW, heap as u32);
        put_u32(self.page, OFF_GARBAGE, 0);
    }

    pub(super) fn patch_payload(&mut self, slot: usize, at: usize, bytes: &[u8]) -> Edit {
        let (_, off, len) = self.locate(slot)?;
        let start = off + KLEN_SIZE + get_u16(self.page, off) as usize + at;
        if start + bytes.len() > off + len {
            return Err("a patch beyond the payload");
        }
        self.page[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// Puts `bytes` in front of what a payload has at `at`.
    pub(super) fn widen_payload(&mut self, slot: usize, at: usize, bytes: &[u8]) -> Edit {
        let (_, off, len) = self.locate(slot)?;
        let from = off + KLEN_SIZE + get_u16(self.page, off) as usize + at;
        if from > off + len {
            return Err("bytes beyond the payload");
        }
        let longer = [&self.page[off..from], bytes, &self.page[from..off + len]].concat();
        self.put_longer(slot, &longer)
    }

    /// Cuts `cut` bytes at `at` out of the payloads of these records, whose number is that of a bit, and
    /// moves all records together at the heap's high end.
    pub(super) fn cut_payloads(&mut self, at: usize, cut: usize, cuts: &[u8]) -> Edit {
        let old = self.page.to_vec();
        let p = SlottedRef::new(&old);
        let n = p.n_slots();
        let is_cut = |slot: usize| cuts.get(slot / 8).is_some_and(|b| b >> (slot % 8) & 1 != 0);
        if (n..cuts.len() * 8).any(is_cut) {
            return Err(NO_SLOT);
        }
        if (0..n).any(|slot| is_cut(slot) && p.payload(slot).len() < at + cut) {
            return Err("a cut beyond the payload");
        }
        let mut heap = old.len() - p.fence_bytes();
        for (slot, s) in p.slots().iter().enumerate() {
            let (off, len) = slot_place(s);
            let from = off + KLEN_SIZE + get_u16(&old, off) as usize + at;
            let (head, tail) = match is_cut(slot) {
                true => (off..from, from + cut..off + len),
                false => (off..off + len, 0..0),
            };
            let len = head.len() + tail.len();
            heap -= len;
            let (first, second) = self.page[heap..heap + len].split_at_mut(head.len());
            first.copy_from_slice(&old[head]);
            second.copy_from_slice(&old[tail]);
            let place = p.slots_start() + slot * SLOT_SIZE;
            put_u16(self.page, place, heap as u16);
            put_u16(self.page, place + 2, len as u16);
        }
        put_u32(self.page, OFF_HEAP_LOW, heap as u32);
        put_u32(self.page, OFF_GARBAGE, 0);
        Ok(())
    }

    pub(super) fn set_next(&mut self, next: PageNo) {
        put_u32(self.page, OFF_NEXT, next.0);
    }

    pub(super) fn write_user(&mut self, off: usize, bytes: &[u8]) -> Edit {
        if off + bytes.len() > self.view().user_len() {
            return Err("a write beyond the user area");
        }
        self.page[OFF_USER + off..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// Keeps the first `keep` records under a new high fence: what stays of a page that was split.
    pub(super) fn trim(&mut self, keep: usize, high: &[u8], next: PageNo) -> Edit {
        if keep > self.view().n_slots() {
            return Err(NO_SLOT);
        }
        self.rebuild(keep, Some(high), next)
    }

    /// Moves the high fence up: the page takes over what its right sibling covers.
    pub(super) fn widen(&mut self, high: Option<&[u8]>, next: PageNo) -> Edit {
        let n = self.view().n_slots();
        self.rebuild(n, high, next)
    }

    /// Appends records in key order.
    pub(super) fn bulk_insert(&mut self, recs: BulkRecs<'_>) -> Edit {
        let need: usize = recs
            .iter()
            .map(|(k, p)| SLOT_SIZE + KLEN_SIZE + k.len() + p.len())
            .sum();
        if self.view().n_slots() + recs.iter().count() > u16::MAX as usize {
            return Err(NO_ROOM);
        }
        let first = recs.iter().next().filter(|_| self.view().n_slots() == 0);
        if first.is_some_and(|(suffix, _)| !suffix.is_empty()) && self.view().is_inner() {
            return Err(NOT_FIRST);
        }
        self.make_room(need)?;
        for (suffix, payload) in recs.iter() {
            let n = self.view().n_slots();
            let at = self.view().slots_start() + n * SLOT_SIZE;
            let off = self.push_record(suffix, payload);
            let len = KLEN_SIZE + suffix.len() + payload.len();
            self.put_slot(at, off, len, head_of(suffix));
            put_u16(self.page, OFF_N_SLOTS, n as u16 + 1);
        }
        Ok(())
    }

    /// Writes the page anew with its first `keep` records and the given high fence: no garbage, records
    /// without the prefix that the new fences share. The first separator of an inner page stays empty (PG-5).
    fn rebuild(&mut self, keep: usize, high: Option<&[u8]>, next: PageNo) -> Edit {
        let old = SlottedRef::new(self.page);
        let Some(ptype) = super::header::page_type(self.page) else {
            return Err("an unknown page type");
        };
        let f = Format {
            ptype,
            owner: old.owner(),
            level: old.level(),
            user_len: old.user_len() as u16,
            next,
            low: old.low(),
            high,
        };
        check_format(self.page.len(), f)?;
        let mut fresh = vec![0; self.page.len()];
        fresh[..PAGE_HEADER].copy_from_slice(&self.page[..PAGE_HEADER]);
        put_format(&mut fresh, f);
        let user = OFF_USER..OFF_USER + old.user_len();
        fresh[user.clone()].copy_from_slice(&self.page[user]);
        let new_prefix = SlottedRef::new(&fresh).prefix_len();
        let prefix = old.prefix();
        // Going from the old prefix to the new one, a suffix gains the end of the old prefix or loses bytes.
        let gain = &prefix[new_prefix.min(prefix.len())..];
        let cut = new_prefix.saturating_sub(prefix.len());
        let expect = &old.low()[prefix.len()..prefix.len() + cut];
        let mut suffix = Vec::new();
        let mut to = SlottedMut::new(&mut fresh);
        for slot in 0..keep {
            let (key, payload) = old.entry(slot);
            suffix.clear();
            if slot > 0 || !old.is_inner() {
                let Some(rest) = key.strip_prefix(expect) else {
                    return Err("a key outside the fences");
                };
                suffix.extend_from_slice(gain);
                suffix.extend_from_slice(rest);
            }
            let len = KLEN_SIZE + suffix.len() + payload.len();
            if to.view().contiguous() < SLOT_SIZE + len || len > u16::MAX as usize {
                return Err(NO_ROOM);
            }
            let off = to.push_record(&suffix, payload);
            let at = to.view().slots_start() + slot * SLOT_SIZE;
            to.put_slot(at, off, len, head_of(&suffix));
            put_u16(to.page, OFF_N_SLOTS, slot as u16 + 1);
        }
        self.page.copy_from_slice(&fresh);
        Ok(())
    }
}
