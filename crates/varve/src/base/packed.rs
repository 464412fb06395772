//! Ids in no more bytes than they need, in redo and undo records (docs/format.md). Other numbers there are
//! varints.
//!
//! - A **pair**: a byte with the lengths of two numbers, the first one's in its low half, then the numbers,
//!   little-endian, without the zeros at their ends. Ids have two to five bytes that count; a pair is written
//!   and read without a loop over them.
//! - A **row head**: a pair of (flags + 256 TrxId, RollPtr with its highest byte below the others).
//!
//! `put_…` appends; `take_…` reads from the start of `bytes` and moves it on. Reading is total: `None` is for
//! bytes that end too soon or a number that is too large.

use super::{MAX_ID_56, RollPtr, TrxId, get_u56, put_u56};

/// Bytes of `v` that count.
#[inline]
fn len(v: u64) -> usize {
    (u64::BITS - v.leading_zeros()).div_ceil(8) as usize
}

#[inline]
pub fn put_pair(out: &mut Vec<u8>, a: u64, b: u64) {
    let (n, m) = (len(a), len(b));
    // As many bytes as there can be are stored, so that nothing depends on how many count.
    let mut bytes = [0; 17];
    bytes[0] = (n | m << 4) as u8;
    bytes[1..9].copy_from_slice(&a.to_le_bytes());
    bytes[1 + n..][..8].copy_from_slice(&b.to_le_bytes());
    let end = out.len() + 1 + n + m;
    out.extend_from_slice(&bytes);
    out.truncate(end);
}

#[inline]
pub fn take_pair(bytes: &mut &[u8]) -> Option<(u64, u64)> {
    let (&lens, rest) = bytes.split_first()?;
    let (n, m) = (usize::from(lens & 15), usize::from(lens >> 4));
    if n > 8 || m > 8 {
        return None;
    }
    let (numbers, after) = rest.split_at_checked(n + m)?;
    let pair = match rest.first_chunk::<16>() {
        Some(chunk) => {
            let both = u128::from_le_bytes(*chunk);
            (low(both, n), low(both >> (8 * n), m))
        }
        None => (number(&numbers[..n]), number(&numbers[n..])),
    };
    *bytes = after;
    Some(pair)
}

/// The lowest `n` bytes, 8 at most.
#[inline]
fn low(v: u128, n: usize) -> u64 {
    (v & ((1u128 << (8 * n)) - 1)) as u64
}

fn number(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(all)
}

/// Who wrote a record, of whatever index: each begins with a byte of flags and the TrxId (7 bytes), but
/// frozen entries, for which this is `None`.
#[inline]
pub fn writer_of(record: &[u8]) -> Option<TrxId> {
    let state = record.first_chunk::<8>()?;
    Some(TrxId(get_u56(&state[1..])))
}

/// What stands before the row in a clustered record: its flags, its writer, and where the version before it
/// is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RowHead {
    pub flags: u8,
    pub trx: TrxId,
    pub roll_ptr: RollPtr,
}

impl RowHead {
    /// Bytes of the head in a record.
    pub const LEN: usize = 15;

    /// As it stands in a record: flags, TrxId (7 bytes), RollPtr (7 bytes).
    #[inline]
    pub fn to_bytes(self) -> [u8; RowHead::LEN] {
        let mut out = [0; RowHead::LEN];
        out[0] = self.flags;
        put_u56(&mut out[1..], self.trx.0);
        put_u56(&mut out[8..], self.roll_ptr.0);
        out
    }

    #[inline]
    pub fn put(self, out: &mut Vec<u8>) {
        let (trx, roll_ptr) = (self.trx.0, self.roll_ptr.0);
        assert!(
            trx <= MAX_ID_56 && roll_ptr <= MAX_ID_56,
            "{self:?} does not fit in 56 bits each"
        );
        // Page numbers are small, and the rollback segment above them is not 0.
        let turned = (roll_ptr << 8 | roll_ptr >> 48) & MAX_ID_56;
        put_pair(out, trx << 8 | u64::from(self.flags), turned);
    }

    #[inline]
    pub fn take(bytes: &mut &[u8]) -> Option<RowHead> {
        let (state, turned) = take_pair(bytes)?;
        (turned <= MAX_ID_56).then_some(RowHead {
            flags: state as u8,
            trx: TrxId(state >> 8),
            roll_ptr: RollPtr(turned >> 8 | (turned & 0xff) << 48),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::PageNo;
    use proptest::prelude::*;

    const NUMBERS: [u64; 12] = [
        0,
        1,
        0x7f,
        0x80,
        0xff,
        0x100,
        0x3fff,
        0x4000,
        1 << 40,
        MAX_ID_56,
        1 << 63,
        u64::MAX,
    ];

    /// What was put is taken again, with whatever follows, and no shorter piece of it is taken for it.
    #[track_caller]
    fn check<T: PartialEq + std::fmt::Debug + Copy>(
        v: T,
        longest: usize,
        put: impl Fn(&mut Vec<u8>, T),
        take: impl Fn(&mut &[u8]) -> Option<T>,
    ) -> usize {
        let mut bytes = vec![7];
        put(&mut bytes, v);
        let len = bytes.len() - 1;
        assert!(len <= longest, "{v:?} takes {len} bytes");
        for cut in 1..bytes.len() {
            assert_eq!(take(&mut &bytes[1..cut]), None, "{v:?} cut at {cut}");
        }
        for tail in [&[][..], &[0], &[0xff; 20]] {
            let all = [&bytes[1..], tail].concat();
            let mut rest = &all[..];
            assert_eq!((take(&mut rest), rest), (Some(v), tail));
        }
        len
    }

    #[test]
    fn numbers_survive_the_round_trip_and_every_cut_is_noticed() {
        for a in NUMBERS {
            for b in NUMBERS {
                let put = |out: &mut Vec<u8>, (a, b)| put_pair(out, a, b);
                check((a, b), 17, put, take_pair);
            }
        }
    }

    #[test]
    fn row_heads_survive_the_round_trip_and_are_short() {
        for (flags, trx, roll_ptr, len) in [
            (0, 0, RollPtr::default(), 1),
            (3, 5, RollPtr::default(), 3),
            (0, 120_000, RollPtr::new(false, 40, PageNo(9000), 299), 10),
            (0, 120_000, RollPtr::new(true, 127, PageNo(9000), 299), 10),
            (0xff, MAX_ID_56, RollPtr(MAX_ID_56), 16),
        ] {
            let trx = TrxId(trx);
            let head = RowHead {
                flags,
                trx,
                roll_ptr,
            };
            assert_eq!(
                check(head, 16, |out, h: RowHead| h.put(out), RowHead::take),
                len
            );
            assert_eq!(head.to_bytes()[0], flags);
        }
    }

    #[test]
    fn numbers_that_are_too_large_are_refused() {
        type Takes = fn(&mut &[u8]) -> bool;
        let pair: Takes = |b| take_pair(b).is_some();
        let head: Takes = |b| RowHead::take(b).is_some();
        let rows: [(&[u8], Takes); 3] = [
            // Nine bytes.
            (&[0x09; 20], pair),
            (&[0x90; 20], pair),
            // A roll pointer of 57 bits.
            (&[0x80, 0, 0, 0, 0, 0, 0, 0, 1], head),
        ];
        for (bytes, takes) in rows {
            assert!(!takes(&mut &bytes[..]), "{bytes:x?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..24)) {
            let mut rest = &bytes[..];
            if let Some((a, b)) = take_pair(&mut rest) {
                let mut again = Vec::new();
                put_pair(&mut again, a, b);
                prop_assert!(again.len() <= bytes.len() - rest.len());
            }
        }
    }
}
