//! Encodings of bytes and of weights whose length depends on nothing but the value's: by an eighth longer,
//! and filled up to whole segments. Those of `memcmp` are shorter for most values, and longer for values in
//! which zeros or spaces stand alone. KEY-1 and KEY-2 hold here, too.
//!
//! **Segments** of bytes: eight bytes of the value, then a mark: how many of them count, which is the end, or
//! 9, if all do and the value goes on. The last segment is filled up with zeros.
//!
//! **Padded segments** of weights (PAD SPACE): as many whole units as have eight bytes, of three bytes three,
//! then a mark that says how the rest compares with spaces only: `01` less, `02` equal (the end), `03`
//! greater. Spaces at the end are dropped, and the last segment is filled up with spaces. Two texts that
//! agree in a segment and differ in their rest are told apart by the mark, as comparing the rests with each
//! other through infinite spaces would.

use super::Damage;
use super::memcmp::{REST_EQUAL, REST_GREATER, REST_LESS};

/// Bytes of the value in a segment.
const LEN: usize = 8;
/// The mark of a segment that others follow.
const MORE: u8 = LEN as u8 + 1;

/// Bytes of weights in a padded segment.
const fn padded_len(unit: usize) -> usize {
    LEN.div_ceil(unit) * unit
}

/// The most bytes that values of up to `len` bytes take.
pub(super) fn longest(len: usize) -> usize {
    len.div_ceil(LEN).max(1) * (LEN + 1)
}

/// The most bytes that weights of up to `len` bytes take, padded.
pub(super) fn longest_padded(len: usize, unit: usize) -> usize {
    len.div_ceil(padded_len(unit)).max(1) * (padded_len(unit) + 1)
}

/// Appends `src` in segments.
pub(super) fn put(src: &[u8], out: &mut Vec<u8>) {
    let mut rest = src;
    loop {
        let (segment, behind) = rest.split_at(rest.len().min(LEN));
        out.extend_from_slice(segment);
        out.resize(out.len() + LEN - segment.len(), 0);
        if behind.is_empty() {
            out.push(segment.len() as u8);
            return;
        }
        out.push(MORE);
        rest = behind;
    }
}

/// Where a value in segments is read to; `flip` is 0xff for a descending part. Returns the bytes it takes.
pub(super) fn get(src: &[u8], flip: u8, mut put: impl FnMut(u8)) -> Result<usize, Damage> {
    for (n, segment) in src.chunks_exact(LEN + 1).enumerate() {
        let mark = segment[LEN] ^ flip;
        let len = match mark {
            MORE => LEN,
            len if usize::from(len) <= LEN => len.into(),
            _ => return Err(Damage::new("a mark behind a segment of a key", mark.into())),
        };
        segment[..len].iter().for_each(|byte| put(byte ^ flip));
        if mark != MORE {
            return Ok((n + 1) * (LEN + 1));
        }
    }
    Err(Damage::new("the end of a key part", src.len()))
}

/// Appends weights in padded segments. `space` is the unit that a space weighs, 1 to 4 bytes.
pub(super) fn put_padded(mut weights: Vec<u8>, space: &[u8], out: &mut Vec<u8>) {
    let (unit, size) = (space.len(), padded_len(space.len()));
    // A collation that breaks its promise gets a deterministic order, not a panic.
    weights.resize(weights.len().next_multiple_of(unit), 0);
    while weights.ends_with(space) {
        weights.truncate(weights.len() - unit);
    }
    // From the end of the segment on: the first unit that is no space.
    let (mut at, mut other) = (0, 0);
    loop {
        let segment = &weights[at..weights.len().min(at + size)];
        out.extend_from_slice(segment);
        (segment.len()..size)
            .step_by(unit)
            .for_each(|_| out.extend_from_slice(space));
        at += segment.len();
        if at == weights.len() {
            out.push(REST_EQUAL);
            return;
        }
        other = other.max(at);
        // Spaces at the end are gone, so the last unit is none.
        while weights[other..].starts_with(space) {
            other += unit;
        }
        let is_greater = &weights[other..other + unit] > space;
        out.push(if is_greater { REST_GREATER } else { REST_LESS });
    }
}

/// Shows the units of weights in padded segments, without the spaces at their end; `flip` is 0xff for a
/// descending part. Returns the bytes that they take.
pub(super) fn get_padded(
    src: &[u8],
    space: &[u8],
    flip: u8,
    mut see: impl FnMut(&[u8]),
) -> Result<usize, Damage> {
    let (unit, size) = (space.len(), padded_len(space.len()));
    let mut of_space = [0; 4];
    for (to, from) in of_space.iter_mut().zip(space) {
        *to = from ^ flip;
    }
    let of_space = &of_space[..unit];
    for (n, segment) in src.chunks_exact(size + 1).enumerate() {
        let (mut weights, mark) = (&segment[..size], segment[size] ^ flip);
        match mark {
            REST_EQUAL => {
                while let Some(shorter) = weights.strip_suffix(of_space) {
                    weights = shorter;
                }
            }
            REST_LESS | REST_GREATER => {}
            _ => return Err(Damage::new("a mark behind a segment of a key", mark.into())),
        }
        for weight in weights.chunks_exact(unit) {
            let mut plain = [0; 4];
            for (to, from) in plain.iter_mut().zip(weight) {
                *to = from ^ flip;
            }
            see(&plain[..unit]);
        }
        if mark == REST_EQUAL {
            return Ok((n + 1) * (size + 1));
        }
    }
    Err(Damage::new("the end of a key part", src.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use crate::row::memcmp::tests::pad_cmp;

    fn segmented(v: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put(v, &mut out);
        out
    }

    fn padded(v: &[u8], space: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_padded(v.to_vec(), space, &mut out);
        out
    }

    /// Two values that have a beginning in common, which often ends where a segment does.
    fn alike(of: impl Strategy<Value = u8> + Clone) -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let len = prop_oneof![Just(0), Just(7), Just(8), Just(9), Just(16), 0usize..30];
        let beginning = len.prop_flat_map({
            let of = of.clone();
            move |len| vec(of.clone(), len)
        });
        let end = vec(of, 0..12);
        (beginning, end.clone(), end).prop_map(|(beginning, a, b)| {
            ([&beginning[..], &a].concat(), [&beginning[..], &b].concat())
        })
    }

    proptest! {
        #[test]
        fn segments_keep_order_and_value(
            (a, b) in alike(prop_oneof![3 => Just(0u8), 1 => Just(1), 1 => Just(0xff), 1 => any::<u8>()]),
            tail in vec(any::<u8>(), 0..12),
        ) {
            let (ea, eb) = (segmented(&a), segmented(&b));
            prop_assert_eq!(ea.cmp(&eb), a.cmp(&b), "KEY-1");
            prop_assert!(a == b || !eb.starts_with(&ea), "KEY-2");
            prop_assert_eq!(ea.len(), longest(a.len()));
            for flip in [0, 0xff] {
                let src: Vec<u8> = ea.iter().chain(&tail).map(|x| x ^ flip).collect();
                let mut back = Vec::new();
                prop_assert_eq!(get(&src, flip, |x| back.push(x)), Ok(ea.len()));
                prop_assert_eq!(&back, &a);
            }
        }

        #[test]
        fn padded_segments_keep_order(
            (a, b) in alike(prop_oneof![3 => Just(b' '), 1 => Just(0x1f), 1 => Just(b'!'), 1 => Just(0)]),
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
            prop_assert_eq!(ea.cmp(&eb), want, "KEY-1");
            prop_assert!(want.is_eq() || !eb.starts_with(&ea), "KEY-2");
            prop_assert!(ea.len() <= longest_padded(a.len(), unit));
            let kept = a.len() - a.rchunks(unit).take_while(|u| *u == space).count() * unit;
            prop_assert_eq!(ea.len(), longest_padded(kept, unit));
            for flip in [0, 0xff] {
                let src: Vec<u8> = ea.iter().chain(b"tail").map(|x| x ^ flip).collect();
                let mut back = Vec::new();
                let mut push = |bytes: &[u8]| back.extend_from_slice(bytes);
                let len = get_padded(&src, &space, flip, &mut push);
                prop_assert_eq!(len, Ok(ea.len()));
                prop_assert_eq!(&back, &a[..kept]);
            }
        }

        #[test]
        fn hostile_bytes_are_refused_or_read(
            src in vec(prop_oneof![Just(9u8), Just(0x20), Just(2), any::<u8>()], 0..60),
        ) {
            for flip in [0, 0xff] {
                let mut n = 0;
                if let Ok(len) = get(&src, flip, |_| n += 1) {
                    prop_assert!(len <= src.len() && n <= len);
                }
                for space in [&b" "[..], b"\0 ", b"\0\0 ", b"\0\0\0 "] {
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
        for (value, want) in [
            (&b""[..], &b"\0\0\0\0\0\0\0\0\x00"[..]),
            (b"ab", b"ab\0\0\0\0\0\0\x02"),
            (b"ab\0", b"ab\0\0\0\0\0\0\x03"),
            (b"abcdefgh", b"abcdefgh\x08"),
            (b"abcdefghi", b"abcdefgh\x09i\0\0\0\0\0\0\0\x01"),
        ] {
            assert_eq!(segmented(value), want);
        }
        for (text, want) in [
            (&b""[..], &b"        \x02"[..]),
            (b"a", b"a       \x02"),
            (b"a b ", b"a b     \x02"),
            (b"abcdefgh  ", b"abcdefgh\x02"),
            (b"abcdefgh i", b"abcdefgh\x03 i      \x02"),
            (b"abcdefgh\t", b"abcdefgh\x01\t       \x02"),
        ] {
            assert_eq!(padded(text, b" "), want);
        }
        assert_eq!(padded(b"\0a", b"\0 "), b"\0a\0 \0 \0 \x02");
    }
}
