//! Encodings of single values whose `memcmp` order is the order of the values.
//!
//! Invariants:
//! - **KEY-1** (order) For values a, b of one type, a < b ⇔ enc(a) < enc(b) bytewise, equal ⇔ equal.
//! - **KEY-2** (prefix-free) No encoding is a proper prefix of another one of the same type, so parts can
//!   be put one behind the other, and inverting all bytes of a part reverses its order.
//!
//! Integers: big-endian, the sign bit flipped if signed. Floating point: big-endian; the sign bit is flipped
//! if it is clear, all bits are if it is set; −0 is +0 (SQL calls them equal), NaNs sort outside the
//! infinities.
//!
//! **Escaped bytes** (any length, shorter first). Bytes other than 00 stand for themselves. A run of k
//! zeros is written by what follows it:
//!
//! | bytes | meaning |
//! |---|---|
//! | `00 k`, k in 0..=126 | k zeros, then the end |
//! | `00 7F` | 127 zeros, and the encoding goes on |
//! | `00 FF−k`, k in 1..=126 | k zeros, then a byte that is not zero |
//!
//! The end after a run sorts below anything longer, more zeros sort below fewer zeros followed by something:
//! hence the directions. The cost is two bytes for the end and one byte for a run of zeros, so the two- and
//! three-byte weights of Unicode collations, which are full of zeros, grow by half at most.
//!
//! **Padded bytes** (PAD SPACE weights: shorter texts compare as if filled with spaces). The input is cut
//! into units; trailing space units are dropped and one space unit is put behind what is left. Behind the
//! first space unit of each run of spaces stands a mark that says how the rest compares with spaces only:
//! `01` less, `02` equal (the end), `03` greater. Two texts that agree so far and differ in their rest are
//! told apart by the mark, exactly as comparing the rests with each other through infinite spaces would.

use super::Damage;

/// `00 k` with k up to this is "k zeros, then the end".
const RUN_MAX: usize = 126;
pub(super) const RUN_ON: u8 = 127;

pub(super) const REST_LESS: u8 = 1;
pub(super) const REST_EQUAL: u8 = 2;
pub(super) const REST_GREATER: u8 = 3;

/// Appends an integer given as 1 to 8 little-endian bytes.
#[inline]
pub(super) fn put_int(le: &[u8], signed: bool, out: &mut Vec<u8>) {
    let flip = (signed as u8) << 7;
    if let Ok(four) = <[u8; 4]>::try_from(le) {
        let v = u32::from_le_bytes(four) ^ (flip as u32) << 24;
        out.extend_from_slice(&v.to_be_bytes());
    } else if let Ok(eight) = <[u8; 8]>::try_from(le) {
        let v = u64::from_le_bytes(eight) ^ (flip as u64) << 56;
        out.extend_from_slice(&v.to_be_bytes());
    } else {
        let start = out.len();
        out.extend(le.iter().rev());
        out[start] ^= flip;
    }
}

/// Appends the little-endian bytes of the encoded integer `be`; `flip` is 0xff for a descending part.
#[inline]
pub(super) fn get_int(be: &[u8], signed: bool, flip: u8, out: &mut Vec<u8>) {
    let sign = (signed as u8) << 7;
    if let Ok(four) = <[u8; 4]>::try_from(be) {
        let v = u32::from_be_bytes(four) ^ (sign as u32) << 24 ^ u32::from_le_bytes([flip; 4]);
        out.extend_from_slice(&v.to_le_bytes());
    } else if let Ok(eight) = <[u8; 8]>::try_from(be) {
        let v = u64::from_be_bytes(eight) ^ (sign as u64) << 56 ^ u64::from_le_bytes([flip; 8]);
        out.extend_from_slice(&v.to_le_bytes());
    } else {
        out.extend(be.iter().rev().map(|b| b ^ flip));
        if let Some(top) = out.last_mut() {
            *top ^= sign;
        }
    }
}

pub(super) fn put_f32(le: [u8; 4], out: &mut Vec<u8>) {
    let bits = u32::from_le_bytes(le);
    let bits = if bits == 1 << 31 { 0 } else { bits };
    let flipped = if bits >> 31 == 0 {
        bits | 1 << 31
    } else {
        !bits
    };
    out.extend_from_slice(&flipped.to_be_bytes());
}

pub(super) fn put_f64(le: [u8; 8], out: &mut Vec<u8>) {
    let bits = u64::from_le_bytes(le);
    let bits = if bits == 1 << 63 { 0 } else { bits };
    let flipped = if bits >> 63 == 0 {
        bits | 1 << 63
    } else {
        !bits
    };
    out.extend_from_slice(&flipped.to_be_bytes());
}

/// Appends the little-endian bytes of the encoded floating-point value `be`; `flip` is 0xff for a descending
/// part. −0 has become 0.
pub(super) fn get_float(be: &[u8], flip: u8, out: &mut Vec<u8>) {
    let sign = be.first().map_or(0, |b| b ^ flip) & 0x80;
    let start = out.len();
    let inverted = if sign == 0 { 0xff } else { 0 };
    out.extend(be.iter().rev().map(|b| b ^ flip ^ inverted));
    if let (0x80, Some(top)) = (sign, out[start..].last_mut()) {
        *top ^= 0x80;
    }
}

/// The most bytes that values of up to `len` bytes take, escaped: every second byte is a zero.
pub(super) fn longest_escaped(len: usize) -> usize {
    len + len / 2 + 2
}

/// The most bytes that weights of up to `len` bytes take, padded: every second unit is a space.
pub(super) fn longest_padded(len: usize, unit: usize) -> usize {
    let units = len.div_ceil(unit);
    (units + 1) * unit + units / 2 + 1
}

/// Appends `src` escaped.
pub(super) fn put_escaped(src: &[u8], out: &mut Vec<u8>) {
    let mut rest = src;
    loop {
        let plain = find_zero(rest);
        out.extend_from_slice(&rest[..plain]);
        rest = &rest[plain..];
        let zeros = rest.iter().take_while(|b| **b == 0).count();
        rest = &rest[zeros..];
        let mut run = zeros;
        while run > RUN_MAX {
            out.extend_from_slice(&[0, RUN_ON]);
            run -= RUN_ON as usize;
        }
        if rest.is_empty() {
            out.extend_from_slice(&[0, run as u8]);
            return;
        }
        if run > 0 {
            out.extend_from_slice(&[0, 0xff - run as u8]);
        }
    }
}

/// Escapes the bytes from `start` to the end of `out` where they are.
pub(super) fn escape_in_place(start: usize, out: &mut Vec<u8>) {
    if find_zero(&out[start..]) == out.len() - start {
        out.extend_from_slice(&[0, 0]);
    } else {
        let plain = out.split_off(start);
        put_escaped(&plain, out);
    }
}

/// Where the first zero byte is, or the length: eight bytes at a time.
fn find_zero(bytes: &[u8]) -> usize {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let (words, tail) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let w = u64::from_le_bytes(*word);
        // The lowest set bit marks the first zero byte; bits above it may be false.
        let zeros = w.wrapping_sub(LOW) & !w & HIGH;
        if zeros != 0 {
            return i * 8 + zeros.trailing_zeros() as usize / 8;
        }
    }
    let plain = tail.iter().take_while(|b| **b != 0).count();
    words.len() * 8 + plain
}

/// Where an escaped value is read to; `flip` is 0xff for a descending part. Returns the bytes it takes.
pub(super) fn get_escaped(src: &[u8], flip: u8, mut put: impl FnMut(u8)) -> Result<usize, Damage> {
    let mut at = 0;
    while let Some(&byte) = src.get(at) {
        at += 1;
        if byte != flip {
            put(byte ^ flip);
            continue;
        }
        let Some(&code) = src.get(at) else { break };
        at += 1;
        let code = code ^ flip;
        let (zeros, end) = match code as usize {
            k @ 0..=RUN_MAX => (k, true),
            127 => (127, false),
            128 => return Err(Damage::new("an escape code in a key", 128)),
            k => (0xff - k, false),
        };
        (0..zeros).for_each(|_| put(0));
        if end {
            return Ok(at);
        }
    }
    Err(Damage::new("the end of a key part", src.len()))
}

/// Turns the weights from `start` to the end of `out` into padded bytes. `space` is the unit that a space
/// weighs, 1 to 4 bytes.
pub(super) fn pad_in_place(start: usize, space: &[u8], out: &mut Vec<u8>) {
    // Units of a constant size compare as integers.
    match *space {
        [a] => pad_units([a], start, out),
        [a, b] => pad_units([a, b], start, out),
        [a, b, c] => pad_units([a, b, c], start, out),
        [a, b, c, d] => pad_units([a, b, c, d], start, out),
        _ => unreachable!("collations are registered with units of 1 to 4 bytes"),
    }
}

fn pad_units<const N: usize>(space: [u8; N], start: usize, out: &mut Vec<u8>) {
    while !(out.len() - start).is_multiple_of(N) {
        // A collation that breaks its promise gets a deterministic order, not a panic.
        out.push(0);
    }
    while out.len() > start && out.ends_with(&space) {
        out.truncate(out.len() - N);
    }
    let units = out[start..].as_chunks::<N>().0;
    let mut runs = 0;
    let mut previous = [!space[0]; N];
    for unit in units {
        runs += (*unit == space && previous != space) as usize;
        previous = *unit;
    }
    if runs > 0 {
        insert_marks(space, units.len(), runs, start, out);
    }
    out.extend_from_slice(&space);
    out.push(REST_EQUAL);
}

/// Moves the `units` units at `start` apart so that a mark stands behind the first space of each of the
/// `runs` runs. From the end, so that nothing is overwritten before it moved and the rest of each run is
/// known.
#[inline]
fn insert_marks<const N: usize>(
    space: [u8; N],
    units: usize,
    mut runs: usize,
    start: usize,
    out: &mut Vec<u8>,
) {
    out.resize(out.len() + runs, 0);
    let text = &mut out[start..];
    // Trailing spaces are gone, so the last unit is none, and sets this.
    let mut rest = REST_EQUAL;
    for i in (0..units).rev() {
        let from = i * N;
        let unit: [u8; N] = text[from..from + N].try_into().expect("N bytes");
        text[from + runs..from + runs + N].copy_from_slice(&unit);
        if unit != space {
            rest = if unit > space {
                REST_GREATER
            } else {
                REST_LESS
            };
        } else if i == 0 || text[from - N..from] != space {
            // The mark goes where the unit went; the unit moves one less.
            text[from + runs + N - 1] = rest;
            runs -= 1;
            text[from + runs..from + runs + N].copy_from_slice(&unit);
            if runs == 0 {
                // No run starts before here: the units are where they belong.
                return;
            }
        }
    }
}

/// Shows the units of a padded value, without the spaces at its end; `flip` is 0xff for a descending part.
/// Returns the bytes that the value takes.
#[inline]
pub(super) fn get_padded(
    src: &[u8],
    space: &[u8],
    flip: u8,
    see: impl FnMut(&[u8]),
) -> Result<usize, Damage> {
    match *space {
        [a] => get_units(src, [a], flip, see),
        [a, b] => get_units(src, [a, b], flip, see),
        [a, b, c] => get_units(src, [a, b, c], flip, see),
        [a, b, c, d] => get_units(src, [a, b, c, d], flip, see),
        _ => unreachable!("collations are registered with units of 1 to 4 bytes"),
    }
}

#[inline]
fn get_units<const N: usize>(
    src: &[u8],
    space: [u8; N],
    flip: u8,
    mut see: impl FnMut(&[u8]),
) -> Result<usize, Damage> {
    let mut rest = src;
    let mut in_run = false;
    while let Some((unit, behind)) = rest.split_first_chunk::<N>() {
        let unit = unit.map(|b| b ^ flip);
        rest = behind;
        let is_space = unit == space;
        if is_space && !in_run {
            let Some((mark, behind)) = rest.split_first() else {
                break;
            };
            rest = behind;
            match mark ^ flip {
                REST_EQUAL => return Ok(src.len() - rest.len()),
                REST_LESS | REST_GREATER => {}
                other => {
                    return Err(Damage::new(
                        "a mark behind a space in a key",
                        other as usize,
                    ));
                }
            }
        }
        see(&unit);
        in_run = is_space;
    }
    Err(Damage::new("the end of a key part", src.len()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    fn escaped(v: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_escaped(v, &mut out);
        out
    }

    fn padded(v: &[u8], space: &[u8]) -> Vec<u8> {
        let mut out = v.to_vec();
        pad_in_place(0, space, &mut out);
        out
    }

    /// PAD SPACE, said directly: compare unit by unit, with spaces where a text has ended.
    pub fn pad_cmp(a: &[u8], b: &[u8], space: &[u8]) -> Ordering {
        let n = space.len();
        let unit = |v: &[u8], i: usize| v.get(i * n..(i + 1) * n).unwrap_or(space).to_vec();
        (0..a.len().max(b.len()) / n)
            .map(|i| unit(a, i).cmp(&unit(b, i)))
            .find(|o| o.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    /// Long runs of few different bytes: where the escapes are.
    fn runs() -> impl Strategy<Value = Vec<u8>> {
        vec(
            (
                prop_oneof![Just(0u8), Just(1), Just(0x7f), Just(0xff), any::<u8>()],
                1usize..140,
            ),
            0..5,
        )
        .prop_map(|r| {
            r.into_iter()
                .flat_map(|(b, n)| vec![b; if b == 0 { n } else { n % 4 }])
                .collect()
        })
    }

    proptest! {
        #[test]
        fn escaped_bytes_keep_order_and_value(a in runs(), b in runs(), tail in vec(any::<u8>(), 0..4)) {
            let (ea, eb) = (escaped(&a), escaped(&b));
            prop_assert_eq!(ea.cmp(&eb), a.cmp(&b));
            prop_assert!(a == b || !eb.starts_with(&ea), "KEY-2");
            prop_assert!(ea.len() <= longest_escaped(a.len()), "{} for {}", ea.len(), a.len());
            for flip in [0, 0xff] {
                let src: Vec<u8> = ea.iter().chain(&tail).map(|x| x ^ flip).collect();
                let mut back = Vec::new();
                prop_assert_eq!(get_escaped(&src, flip, |x| back.push(x)), Ok(ea.len()));
                prop_assert_eq!(&back, &a);
            }
            let mut in_place = b"head".to_vec();
            in_place.extend(&a);
            escape_in_place(4, &mut in_place);
            prop_assert_eq!(&in_place[4..], &ea[..]);
        }

        #[test]
        fn padded_weights_keep_order(
            a in vec(prop_oneof![Just(b' '), Just(0x1f), Just(b'!'), Just(0)], 0..9),
            b in vec(prop_oneof![Just(b' '), Just(0x1f), Just(b'!'), Just(0)], 0..9),
            unit in 1usize..=4,
        ) {
            // The same text in wider units, as Unicode weights have them.
            let wide = |v: &[u8]| -> Vec<u8> {
                v.iter().flat_map(|c| std::iter::repeat_n(0, unit - 1).chain([*c])).collect()
            };
            let space = wide(b" ");
            let (a, b) = (wide(&a), wide(&b));
            let (ea, eb) = (padded(&a, &space), padded(&b, &space));
            let want = pad_cmp(&a, &b, &space);
            prop_assert_eq!(ea.cmp(&eb), want);
            prop_assert!(want.is_eq() || !eb.starts_with(&ea), "KEY-2");
            prop_assert!(ea.len() <= longest_padded(a.len(), unit));
            for flip in [0, 0xff] {
                let src: Vec<u8> = ea.iter().chain(b"tail").map(|x| x ^ flip).collect();
                let mut back = Vec::new();
                let mut push = |bytes: &[u8]| back.extend_from_slice(bytes);
                let len = get_padded(&src, &space, flip, &mut push);
                prop_assert_eq!(len, Ok(ea.len()));
                let kept = a.len() - a.rchunks(unit).take_while(|u| *u == space).count() * unit;
                prop_assert_eq!(&back, &a[..kept]);
            }
        }

        #[test]
        fn hostile_bytes_are_refused_or_read(
            src in vec(prop_oneof![Just(0u8), Just(0x20), Just(2), any::<u8>()], 0..40),
        ) {
            for flip in [0, 0xff] {
                let mut n = 0;
                if let Ok(len) = get_escaped(&src, flip, |_| n += 1) {
                    prop_assert!(len <= src.len());
                }
                for space in [&b" "[..], b"\0 "] {
                    if let Ok(len) = get_padded(&src, space, flip, |_| ()) {
                        prop_assert!(len <= src.len());
                    }
                }
            }
        }
    }

    /// The examples of docs/format.md.
    #[test]
    fn encodings_have_the_documented_bytes() {
        let long = [[0; 130].as_slice(), b"b"].concat();
        for (value, want) in [
            (&b""[..], &b"\0\0"[..]),
            (b"ab", b"ab\0\0"),
            (b"a\0\0", b"a\0\x02"),
            (b"a\0b", b"a\0\xfeb\0\0"),
            (&long, b"\0\x7f\0\xfcb\0\0"),
        ] {
            assert_eq!(escaped(value), want);
        }
        for (text, want) in [
            (&b"a"[..], &b"a \x02"[..]),
            (b"a  ", b"a \x02"),
            (b"a  b", b"a \x03 b \x02"),
            (b"a \tb", b"a \x01\tb \x02"),
            (b"a\t", b"a\t \x02"),
            (b"", b" \x02"),
        ] {
            assert_eq!(padded(text, b" "), want);
        }
    }

    #[test]
    fn floats_are_read_back() {
        for bits in [
            0,
            1,
            0x7ff0_0000_0000_0000,
            1 << 63 | 1,
            u64::MAX,
            0x3ff8_0000_0000_0001,
        ] {
            let mut key = Vec::new();
            put_f64(bits.to_le_bytes(), &mut key);
            put_f32((bits as u32).to_le_bytes(), &mut key);
            for flip in [0, 0xff] {
                let flipped: Vec<u8> = key.iter().map(|b| b ^ flip).collect();
                let (mut wide, mut narrow) = (Vec::new(), Vec::new());
                get_float(&flipped[..8], flip, &mut wide);
                get_float(&flipped[8..], flip, &mut narrow);
                assert_eq!(wide, bits.to_le_bytes());
                assert_eq!(narrow, (bits as u32).to_le_bytes());
            }
        }
    }

    #[test]
    fn zero_is_found_at_every_place() {
        for len in 0..20 {
            let mut v = vec![0x80u8; len];
            assert_eq!(find_zero(&v), len);
            for at in (0..len).rev() {
                v[at] = 0;
                assert_eq!(find_zero(&v), at);
            }
        }
    }
}
