//! Page operations: the vocabulary of the redo log. One operation changes one page, and says everything that
//! is needed to do it again.
//!
//! Encoding: an opcode byte, then the fields in the order of the enum. Slots, offsets and lengths of byte
//! strings are varints where records are changed, because there is one such operation or two for each row
//! that is written; other numbers are little-endian. An optional fence has a length of 0xFFFF for plus
//! infinity. Decoding is total: bytes that are no operation give an error.

use super::edit::{Edit, Format, SlottedMut, format};
use super::header::{PAGE_HEADER, PageType, page_type, set_page_id, set_page_type};
use super::slotted::{SlottedRef, validate};
use crate::base::{Error, PageId, PageNo, Result, RowHead, varint};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageOp<'a> {
    /// An empty slotted page with these fences.
    FormatSlotted {
        ptype: PageType,
        owner: u64,
        level: u16,
        user_len: u16,
        next: PageNo,
        low: &'a [u8],
        high: Option<&'a [u8]>,
    },
    /// A page of a kind without slots, its body zero.
    FormatRaw {
        ptype: PageType,
    },
    /// A record before what stands in `slot` now.
    Insert {
        slot: u16,
        suffix: &'a [u8],
        payload: &'a [u8],
    },
    Remove {
        slot: u16,
    },
    /// A new version of a row: another head, and `bytes` in place of the `cut` bytes at `at` behind the head.
    UpdateRow {
        slot: u16,
        head: RowHead,
        at: u16,
        cut: u16,
        bytes: &'a [u8],
    },
    /// Overwrites part of a payload; its length stays.
    PatchPayload {
        slot: u16,
        off: u16,
        bytes: &'a [u8],
    },
    /// Puts `bytes` in front of what a payload has at `off`.
    WidenPayload {
        slot: u16,
        off: u16,
        bytes: &'a [u8],
    },
    /// Cuts `cut` bytes at `off` out of the payloads of the records whose bits in `slots` are set, the lowest
    /// bit of the first byte first.
    CutPayloads {
        off: u16,
        cut: u16,
        slots: &'a [u8],
    },
    /// Overwrites body bytes of a page without slots; `off` counts from the page's start.
    Write {
        off: u16,
        bytes: &'a [u8],
    },
    /// Overwrites bytes of a slotted page's user area; `off` counts from the area's start.
    WriteUser {
        off: u16,
        bytes: &'a [u8],
    },
    SetNext {
        next: PageNo,
    },
    /// Keeps the first `keep` records under a lower high fence (left page of a split).
    Trim {
        keep: u16,
        high: &'a [u8],
        next: PageNo,
    },
    /// Raises the high fence (left page of a merge; `BulkInsert` follows).
    Widen {
        high: Option<&'a [u8]>,
        next: PageNo,
    },
    /// Appends records.
    BulkInsert {
        recs: BulkRecs<'a>,
    },
    /// A record with an empty key behind all others: what an undo page gets.
    Append {
        payload: &'a [u8],
    },
    /// The page belongs to nobody. Its body stays until the page is used again.
    Free,
    /// Removes the records in `slots`, which are numbers of the page as it was, ascending, little-endian. On
    /// an inner page slot 0 goes only with all others.
    RemoveMany {
        slots: &'a [[u8; 2]],
    },
    /// The whole page behind its LSN, without a run of zeros of `hole_len` bytes at `hole_off`.
    Image {
        hole_off: u32,
        hole_len: u32,
        bytes: &'a [u8],
    },
}

/// Where `Image` starts: the type byte. Checksum, address and LSN are the page's own.
const IMAGE_FROM: usize = 12;

const FORMAT_SLOTTED: u8 = 1;
const FORMAT_RAW: u8 = 2;
const INSERT: u8 = 3;
const REMOVE: u8 = 4;
const UPDATE_ROW: u8 = 5;
const PATCH_PAYLOAD: u8 = 6;
const WRITE: u8 = 7;
const WRITE_USER: u8 = 8;
const SET_NEXT: u8 = 9;
const TRIM: u8 = 10;
const WIDEN: u8 = 11;
const BULK_INSERT: u8 = 12;
const FREE: u8 = 13;
const IMAGE: u8 = 14;
const REMOVE_MANY: u8 = 15;
const APPEND: u8 = 16;
const WIDEN_PAYLOAD: u8 = 17;
const CUT_PAYLOADS: u8 = 18;

/// Records in key order, packed: key suffix length u16, payload length u16, suffix, payload. Suffixes are
/// relative to the prefix of the page that takes them. Always well-formed: made by the builder or checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BulkRecs<'a> {
    bytes: &'a [u8],
}

impl<'a> BulkRecs<'a> {
    fn checked(bytes: &'a [u8]) -> std::result::Result<BulkRecs<'a>, &'static str> {
        let mut r = Reader { rest: bytes };
        while !r.rest.is_empty() {
            let (k, p) = (r.u16()? as usize, r.u16()? as usize);
            r.take(k + p)?;
        }
        Ok(BulkRecs { bytes })
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            let (lens, tail) = rest.split_first_chunk::<4>()?;
            let k = u16::from_le_bytes([lens[0], lens[1]]) as usize;
            let p = u16::from_le_bytes([lens[2], lens[3]]) as usize;
            let (rec, tail) = tail.split_at(k + p);
            rest = tail;
            Some(rec.split_at(k))
        })
    }
}

/// Packs records for [`PageOp::BulkInsert`].
#[derive(Default)]
pub struct BulkRecsBuilder {
    bytes: Vec<u8>,
}

impl BulkRecsBuilder {
    /// Appends a record whose key suffix is `first` followed by `second` (bytes that the source page's prefix
    /// held, and the source's suffix).
    pub fn push(&mut self, first: &[u8], second: &[u8], payload: &[u8]) {
        let klen = first.len() + second.len();
        assert!(klen <= u16::MAX as usize && payload.len() <= u16::MAX as usize);
        self.bytes.extend_from_slice(&(klen as u16).to_le_bytes());
        self.bytes
            .extend_from_slice(&(payload.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(first);
        self.bytes.extend_from_slice(second);
        self.bytes.extend_from_slice(payload);
    }

    /// Packs the records from `slots` of `from` for a page whose fences are `low` and `high`: a page that
    /// covers a part of `from`'s range, or a range around it. Of an inner page's first separator, which
    /// `from` does not store, the key is put there if the record will not be the first any more; and one that
    /// will be loses it (PG-5).
    pub fn rebase(
        from: SlottedRef<'_>,
        slots: std::ops::Range<usize>,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> BulkRecsBuilder {
        let mut out = BulkRecsBuilder::default();
        out.push_rebased(from, slots, low, high);
        out
    }

    /// Appends what [`BulkRecsBuilder::rebase`] packs.
    pub fn push_rebased(
        &mut self,
        from: SlottedRef<'_>,
        slots: std::ops::Range<usize>,
        low: &[u8],
        high: Option<&[u8]>,
    ) {
        let prefix = from.prefix();
        let target = high.map_or(0, |h| super::common_prefix_len(low, h));
        let gain = &prefix[target.min(prefix.len())..];
        let cut = target.saturating_sub(prefix.len());
        for (n, slot) in slots.enumerate() {
            let (suffix, payload) = from.entry(slot);
            if from.is_inner() && n == 0 && from.separator(slot) == low {
                self.push(&[], &[], payload);
            } else if from.is_inner() && slot == 0 {
                self.push(&from.low()[target..], &[], payload);
            } else {
                self.push(gain, &suffix[cut..], payload);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn recs(&self) -> BulkRecs<'_> {
        BulkRecs { bytes: &self.bytes }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

type Parse<T> = std::result::Result<T, &'static str>;

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Parse<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(n).ok_or("a short operation")?;
        self.rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Parse<[u8; N]> {
        let (head, tail) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or("a short operation")?;
        self.rest = tail;
        Ok(*head)
    }

    fn u8(&mut self) -> Parse<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn u16(&mut self) -> Parse<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Parse<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Parse<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A slot, an offset or a length.
    fn short(&mut self) -> Parse<u16> {
        let v = varint::take(&mut self.rest).ok_or("a short operation")?;
        u16::try_from(v).map_err(|_| "a number above 16 bits")
    }

    fn row_head(&mut self) -> Parse<RowHead> {
        RowHead::take(&mut self.rest).ok_or("no head of a row")
    }

    fn page_no(&mut self) -> Parse<PageNo> {
        Ok(PageNo(self.u32()?))
    }

    fn page_type(&mut self) -> Parse<PageType> {
        PageType::from_u8(self.u8()?).ok_or("an unknown page type")
    }

    fn bytes(&mut self) -> Parse<&'a [u8]> {
        let n = self.short()?;
        self.take(n as usize)
    }

    fn long_bytes(&mut self) -> Parse<&'a [u8]> {
        let n = self.u32()?;
        self.take(n as usize)
    }

    fn slots(&mut self) -> Parse<&'a [[u8; 2]]> {
        match self.bytes()?.as_chunks() {
            (slots, []) => Ok(slots),
            _ => Err("half a slot number"),
        }
    }

    fn high(&mut self) -> Parse<Option<&'a [u8]>> {
        match self.u16()? {
            u16::MAX => Ok(None),
            n => Ok(Some(self.take(n as usize)?)),
        }
    }
}

#[inline]
fn put_bytes(out: &mut Vec<u8>, b: &[u8]) {
    assert!(b.len() <= u16::MAX as usize, "byte string of {}", b.len());
    varint::put(out, b.len() as u64);
    out.extend_from_slice(b);
}

fn put_high(out: &mut Vec<u8>, high: Option<&[u8]>) {
    match high {
        Some(h) => {
            assert!(h.len() < u16::MAX as usize, "fence of {} bytes", h.len());
            out.extend_from_slice(&(h.len() as u16).to_le_bytes());
            out.extend_from_slice(h);
        }
        None => out.extend_from_slice(&u16::MAX.to_le_bytes()),
    }
}

impl<'a> PageOp<'a> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            PageOp::FormatSlotted {
                ptype,
                owner,
                level,
                user_len,
                next,
                low,
                high,
            } => {
                out.extend_from_slice(&[FORMAT_SLOTTED, ptype as u8]);
                out.extend_from_slice(&owner.to_le_bytes());
                out.extend_from_slice(&level.to_le_bytes());
                out.extend_from_slice(&user_len.to_le_bytes());
                out.extend_from_slice(&next.0.to_le_bytes());
                put_bytes(out, low);
                put_high(out, high);
            }
            PageOp::FormatRaw { ptype } => out.extend_from_slice(&[FORMAT_RAW, ptype as u8]),
            PageOp::Insert {
                slot,
                suffix,
                payload,
            } => {
                put_op(out, INSERT, slot);
                put_bytes(out, suffix);
                put_bytes(out, payload);
            }
            PageOp::Remove { slot } => put_op(out, REMOVE, slot),
            PageOp::UpdateRow {
                slot,
                head,
                at,
                cut,
                bytes,
            } => {
                put_op(out, UPDATE_ROW, slot);
                head.put(out);
                varint::put(out, at.into());
                varint::put(out, cut.into());
                put_bytes(out, bytes);
            }
            PageOp::Append { payload } => {
                out.push(APPEND);
                put_bytes(out, payload);
            }
            PageOp::PatchPayload { slot, off, bytes } => {
                put_op_of_two(out, PATCH_PAYLOAD, (slot, off), bytes);
            }
            PageOp::WidenPayload { slot, off, bytes } => {
                put_op_of_two(out, WIDEN_PAYLOAD, (slot, off), bytes);
            }
            PageOp::CutPayloads { off, cut, slots } => {
                put_op_of_two(out, CUT_PAYLOADS, (off, cut), slots);
            }
            PageOp::Write { off, bytes } => put_op_with(out, WRITE, off, bytes),
            PageOp::WriteUser { off, bytes } => put_op_with(out, WRITE_USER, off, bytes),
            PageOp::SetNext { next } => {
                out.push(SET_NEXT);
                out.extend_from_slice(&next.0.to_le_bytes());
            }
            PageOp::Trim { keep, high, next } => {
                put_op(out, TRIM, keep);
                put_bytes(out, high);
                out.extend_from_slice(&next.0.to_le_bytes());
            }
            PageOp::Widen { high, next } => {
                out.push(WIDEN);
                put_high(out, high);
                out.extend_from_slice(&next.0.to_le_bytes());
            }
            PageOp::BulkInsert { recs } => {
                out.push(BULK_INSERT);
                out.extend_from_slice(&(recs.bytes.len() as u32).to_le_bytes());
                out.extend_from_slice(recs.bytes);
            }
            PageOp::Free => out.push(FREE),
            PageOp::RemoveMany { slots } => {
                out.push(REMOVE_MANY);
                put_bytes(out, slots.as_flattened());
            }
            PageOp::Image {
                hole_off,
                hole_len,
                bytes,
            } => {
                out.push(IMAGE);
                out.extend_from_slice(&hole_off.to_le_bytes());
                out.extend_from_slice(&hole_len.to_le_bytes());
                out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                out.extend_from_slice(bytes);
            }
        }
    }

    /// Reads one operation from the start of `bytes`; returns it and how many bytes it took.
    pub fn decode(bytes: &'a [u8]) -> std::result::Result<(PageOp<'a>, usize), &'static str> {
        let mut r = Reader { rest: bytes };
        let op = match r.u8()? {
            FORMAT_SLOTTED => PageOp::FormatSlotted {
                ptype: r.page_type()?,
                owner: r.u64()?,
                level: r.u16()?,
                user_len: r.u16()?,
                next: r.page_no()?,
                low: r.bytes()?,
                high: r.high()?,
            },
            FORMAT_RAW => PageOp::FormatRaw {
                ptype: r.page_type()?,
            },
            INSERT => PageOp::Insert {
                slot: r.short()?,
                suffix: r.bytes()?,
                payload: r.bytes()?,
            },
            REMOVE => PageOp::Remove { slot: r.short()? },
            UPDATE_ROW => PageOp::UpdateRow {
                slot: r.short()?,
                head: r.row_head()?,
                at: r.short()?,
                cut: r.short()?,
                bytes: r.bytes()?,
            },
            APPEND => PageOp::Append {
                payload: r.bytes()?,
            },
            PATCH_PAYLOAD => PageOp::PatchPayload {
                slot: r.short()?,
                off: r.short()?,
                bytes: r.bytes()?,
            },
            WIDEN_PAYLOAD => PageOp::WidenPayload {
                slot: r.short()?,
                off: r.short()?,
                bytes: r.bytes()?,
            },
            CUT_PAYLOADS => PageOp::CutPayloads {
                off: r.short()?,
                cut: r.short()?,
                slots: r.bytes()?,
            },
            WRITE => PageOp::Write {
                off: r.short()?,
                bytes: r.bytes()?,
            },
            WRITE_USER => PageOp::WriteUser {
                off: r.short()?,
                bytes: r.bytes()?,
            },
            SET_NEXT => PageOp::SetNext { next: r.page_no()? },
            TRIM => PageOp::Trim {
                keep: r.short()?,
                high: r.bytes()?,
                next: r.page_no()?,
            },
            WIDEN => PageOp::Widen {
                high: r.high()?,
                next: r.page_no()?,
            },
            BULK_INSERT => PageOp::BulkInsert {
                recs: BulkRecs::checked(r.long_bytes()?)?,
            },
            FREE => PageOp::Free,
            REMOVE_MANY => PageOp::RemoveMany { slots: r.slots()? },
            IMAGE => PageOp::Image {
                hole_off: r.u32()?,
                hole_len: r.u32()?,
                bytes: r.long_bytes()?,
            },
            _ => return Err("an unknown operation"),
        };
        Ok((op, bytes.len() - r.rest.len()))
    }

    /// How many bytes the operation at the start of `bytes` takes. What else they say is not looked at:
    /// `decode` may refuse it.
    pub fn encoded_len(bytes: &[u8]) -> std::result::Result<usize, &'static str> {
        let mut r = Reader { rest: bytes };
        match r.u8()? {
            FORMAT_SLOTTED => {
                r.take(17)?;
                r.bytes()?;
                r.high()?;
            }
            FORMAT_RAW => {
                r.take(1)?;
            }
            INSERT => {
                r.short()?;
                r.bytes()?;
                r.bytes()?;
            }
            REMOVE => {
                r.short()?;
            }
            UPDATE_ROW => {
                r.short()?;
                r.row_head()?;
                r.short()?;
                r.short()?;
                r.bytes()?;
            }
            WRITE | WRITE_USER => {
                r.short()?;
                r.bytes()?;
            }
            PATCH_PAYLOAD | WIDEN_PAYLOAD | CUT_PAYLOADS => {
                r.short()?;
                r.short()?;
                r.bytes()?;
            }
            SET_NEXT => {
                r.take(4)?;
            }
            TRIM => {
                r.short()?;
                r.bytes()?;
                r.take(4)?;
            }
            WIDEN => {
                r.high()?;
                r.take(4)?;
            }
            APPEND | REMOVE_MANY => {
                r.bytes()?;
            }
            BULK_INSERT => {
                r.long_bytes()?;
            }
            FREE => {}
            IMAGE => {
                r.take(8)?;
                r.long_bytes()?;
            }
            _ => return Err("an unknown operation"),
        }
        Ok(bytes.len() - r.rest.len())
    }

    /// An [`PageOp::Image`] of `page`: its longest useful run of zeros left out. `bytes` is scratch space.
    #[cfg(test)]
    pub fn image_of(page: &[u8], bytes: &'a mut Vec<u8>) -> PageOp<'a> {
        let hole = match page_type(page) {
            Some(t) if t.is_slotted() => {
                let p = SlottedRef::new(page);
                p.heap_low() - p.contiguous()..p.heap_low()
            }
            _ => {
                let used = page.iter().rposition(|&b| b != 0).map_or(0, |i| i + 1);
                used.max(PAGE_HEADER)..page.len()
            }
        };
        bytes.clear();
        bytes.extend_from_slice(&page[IMAGE_FROM..hole.start]);
        bytes.extend_from_slice(&page[hole.end..]);
        PageOp::Image {
            hole_off: hole.start as u32,
            hole_len: hole.len() as u32,
            bytes,
        }
    }

    /// Changes `page`, which is the page `id` in memory. An error leaves it as it was.
    #[inline]
    pub fn apply(&self, page: &mut [u8], id: PageId) -> Result<()> {
        self.apply_checked(page, id).map_err(|what| {
            let found = format!("{what} for {self:?} on {:?}", page_type(page));
            Error::corrupt(id, "a page that this operation fits", found)
        })
    }

    /// The operation leaves type, owner, level and fences of a slotted page as they are.
    #[inline]
    pub fn keeps_range(&self) -> bool {
        matches!(
            self,
            PageOp::Insert { .. }
                | PageOp::Remove { .. }
                | PageOp::RemoveMany { .. }
                | PageOp::UpdateRow { .. }
                | PageOp::Append { .. }
                | PageOp::PatchPayload { .. }
                | PageOp::WidenPayload { .. }
                | PageOp::CutPayloads { .. }
                | PageOp::BulkInsert { .. }
        )
    }

    #[inline]
    fn apply_checked(&self, page: &mut [u8], id: PageId) -> Edit {
        match *self {
            PageOp::Insert {
                slot,
                suffix,
                payload,
            } => slotted(page)?.insert(slot as usize, suffix, payload),
            PageOp::Remove { slot } => slotted(page)?.remove(slot as usize),
            PageOp::RemoveMany { slots } => slotted(page)?.remove_many(slots),
            PageOp::UpdateRow {
                slot,
                head,
                at,
                cut,
                bytes,
            } => slotted(page)?.update_row(slot as usize, head, at, cut, bytes),
            PageOp::Append { payload } => slotted(page)?.append(payload),
            PageOp::PatchPayload { slot, off, bytes } => {
                slotted(page)?.patch_payload(slot as usize, off as usize, bytes)
            }
            PageOp::WidenPayload { slot, off, bytes } => {
                slotted(page)?.widen_payload(slot as usize, off as usize, bytes)
            }
            PageOp::CutPayloads { off, cut, slots } => {
                slotted(page)?.cut_payloads(off as usize, cut as usize, slots)
            }
            PageOp::WriteUser { off, bytes } => slotted(page)?.write_user(off as usize, bytes),
            PageOp::SetNext { next } => {
                slotted(page)?.set_next(next);
                Ok(())
            }
            PageOp::Trim { keep, high, next } => slotted(page)?.trim(keep as usize, high, next),
            PageOp::Widen { high, next } => slotted(page)?.widen(high, next),
            PageOp::BulkInsert { recs } => slotted(page)?.bulk_insert(recs),
            PageOp::Write { off, bytes } => write_raw(page, off as usize, bytes),
            PageOp::Free => {
                set_page_id(page, id);
                set_page_type(page, PageType::Free);
                Ok(())
            }
            PageOp::FormatRaw { ptype } => format_raw(page, id, ptype),
            PageOp::FormatSlotted {
                ptype,
                owner,
                level,
                user_len,
                next,
                low,
                high,
            } => {
                format(
                    page,
                    Format {
                        ptype,
                        owner,
                        level,
                        user_len,
                        next,
                        low,
                        high,
                    },
                )?;
                set_page_id(page, id);
                Ok(())
            }
            PageOp::Image {
                hole_off,
                hole_len,
                bytes,
            } => put_image(page, id, hole_off as usize, hole_len as usize, bytes),
        }
    }
}

#[inline]
fn put_op(out: &mut Vec<u8>, op: u8, first: u16) {
    out.push(op);
    varint::put(out, first.into());
}

#[inline]
fn put_op_with(out: &mut Vec<u8>, op: u8, first: u16, bytes: &[u8]) {
    put_op(out, op, first);
    put_bytes(out, bytes);
}

#[inline]
fn put_op_of_two(out: &mut Vec<u8>, op: u8, (first, second): (u16, u16), bytes: &[u8]) {
    put_op(out, op, first);
    varint::put(out, second.into());
    put_bytes(out, bytes);
}

#[inline]
fn slotted(page: &mut [u8]) -> std::result::Result<SlottedMut<'_>, &'static str> {
    match page_type(page) {
        Some(t) if t.is_slotted() => Ok(SlottedMut::new(page)),
        _ => Err("a page without slots"),
    }
}

fn write_raw(page: &mut [u8], off: usize, bytes: &[u8]) -> Edit {
    match page_type(page) {
        None | Some(PageType::Unused | PageType::Free) => return Err("a page that is not in use"),
        Some(t) if t.is_slotted() => return Err("a page with slots"),
        Some(_) => {}
    }
    if off < PAGE_HEADER || off + bytes.len() > page.len() {
        return Err("a write outside the page's body");
    }
    page[off..off + bytes.len()].copy_from_slice(bytes);
    Ok(())
}

fn format_raw(page: &mut [u8], id: PageId, ptype: PageType) -> Edit {
    if ptype.is_slotted() || ptype == PageType::Unused {
        return Err("a page type that has a format of its own");
    }
    page[PAGE_HEADER..].fill(0);
    set_page_type(page, ptype);
    set_page_id(page, id);
    Ok(())
}

fn put_image(page: &mut [u8], id: PageId, off: usize, len: usize, bytes: &[u8]) -> Edit {
    let whole = bytes.len() + len == page.len() - IMAGE_FROM;
    if !whole || off < PAGE_HEADER || off > page.len() || len > page.len() - off {
        return Err("an image of another page size");
    }
    let lsn = super::page_lsn(page);
    let mut fresh = vec![0; page.len()];
    let (before, after) = bytes.split_at(off - IMAGE_FROM);
    fresh[IMAGE_FROM..off].copy_from_slice(before);
    fresh[off + len..].copy_from_slice(after);
    set_page_id(&mut fresh, id);
    super::set_page_lsn(&mut fresh, lsn);
    if page_type(&fresh).is_none() || validate(&fresh, id).is_err() {
        return Err("an image of a damaged page");
    }
    page.copy_from_slice(&fresh);
    Ok(())
}
