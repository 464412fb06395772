//! Numbers in as many bytes as they need (LEB128): seven bits in each, the lowest first, and the eighth says
//! that another byte follows.

/// Bytes of the longest number.
pub const MOST_BYTES: usize = 10;

#[inline]
pub fn put(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Takes a number off the front; `None` if there is none of 64 bits.
#[inline]
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut v = 0;
    for shift in (0..64).step_by(7) {
        let (&b, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(b & 0x7f);
        v |= part << shift;
        if b & 0x80 == 0 {
            return (v >> shift == part).then_some(v);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_and_no_bytes_panic() {
        for (v, len) in [
            (0, 1),
            (0x7f, 1),
            (0x80, 2),
            (0x3fff, 2),
            (0x4000, 3),
            (u64::from(u32::MAX), 5),
            (u64::MAX >> 1, 9),
            (u64::MAX, MOST_BYTES),
        ] {
            let mut bytes = Vec::new();
            put(&mut bytes, v);
            assert_eq!(bytes.len(), len, "{v:x}");
            for cut in 0..len {
                assert_eq!(take(&mut &bytes[..cut]), None, "{v:x} cut at {cut}");
            }
            bytes.push(7);
            let mut rest = &bytes[..];
            assert_eq!((take(&mut rest), rest), (Some(v), &[7][..]));
        }
        let mut more = [0xff; MOST_BYTES];
        more[MOST_BYTES - 1] = 3;
        assert_eq!(take(&mut &more[..]), None, "65 bits");
        assert_eq!(take(&mut &[0x80; 20][..]), None, "it does not end");
    }
}
