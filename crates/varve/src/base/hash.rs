//! A hash that stays the same for ever: it is in files, and in what callers compare with what they kept.

/// FNV-1a, 64 bits.
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, add)
}

#[cfg(test)]
mod tests {
    use super::fnv1a;

    /// Test vectors of the reference implementation (Fowler, Noll, Vo).
    #[test]
    fn hashes_are_those_of_the_reference() {
        assert_eq!(fnv1a([]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(*b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(*b"foobar"), 0x8594_4171_f739_67e8);
    }
}
