//! How long the keys of an index can be.
//!
//! What a character weighs only its collation knows, and it says so for given texts alone. So texts are taken
//! to have as many bytes of weights as they have bytes themselves, and twice as many if there are several
//! levels: that holds but for characters that are several letters, and for accents.

use super::key::{Kind, PartCodec};
use super::{Collation, KeyCodec, MAX_KEY_SOURCE_BYTES, Pad, memcmp, segments};

/// Bytes of the longest character in usual character sets.
const CHAR_BYTES: usize = 4;

impl KeyCodec {
    /// The most bytes that the first `parts` parts of a key take.
    pub fn longest(&self, parts: usize) -> usize {
        let parts = self.parts.iter().take(parts);
        parts.map(|part| part.longest(part.segmented)).sum()
    }

    /// For each part, whether the longest value takes less in segments.
    pub fn is_shorter_in_segments(&self) -> impl Iterator<Item = bool> + '_ {
        let parts = self.parts.iter();
        parts.map(|part| part.longest(true) < part.longest(false))
    }
}

impl PartCodec {
    /// The most bytes that the part takes, stored in segments or not.
    fn longest(&self, segmented: bool) -> usize {
        let of_bytes = |len| match segmented {
            true => segments::longest(len),
            false => memcmp::longest_escaped(len),
        };
        let value = match &self.kind {
            Kind::Int { bytes, .. } => *bytes,
            Kind::Float => 4,
            Kind::Double => 8,
            Kind::Fixed { len } => self.prefix.min(*len),
            Kind::Bytes => of_bytes(self.prefix.min(self.def.ty.max_len())),
            Kind::Text(collation) => {
                let len = self.prefix.saturating_mul(CHAR_BYTES);
                let len = len.min(self.def.ty.max_len()).min(MAX_KEY_SOURCE_BYTES);
                let len = most_weights(collation, len);
                match (collation.pad(), segmented) {
                    (Pad::None, _) => of_bytes(len),
                    (Pad::Space { unit, .. }, true) => segments::longest_padded(len, unit.into()),
                    (Pad::Space { unit, .. }, false) => memcmp::longest_padded(len, unit.into()),
                }
            }
        };
        value + usize::from(self.nullable)
    }
}

/// Bytes of weights that texts of up to `len` bytes are taken to have.
fn most_weights(collation: &Collation, len: usize) -> usize {
    // Where levels end is said in the weights, also of the empty text.
    let mut of_nothing = Vec::new();
    collation.weights(b"", &mut of_nothing);
    if of_nothing.is_empty() { len } else { 2 * len }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::row::{CollationId, Collations, ColumnDef, ColumnType, KeyPart, Weigh};

    /// The text, and behind it for each byte how it is accented.
    struct TwoLevels;

    impl Weigh for TwoLevels {
        fn weights(&self, text: &[u8], out: &mut Vec<u8>) {
            out.extend_from_slice(text);
            out.push(0);
            out.extend(text.iter().map(|_| 2));
        }

        fn prefix_bytes(&self, text: &[u8], chars: usize) -> usize {
            chars.min(text.len())
        }
    }

    /// KEY-8: a text has as many weights as levels.
    #[test]
    fn levels_are_counted() {
        let all = Collations::new();
        let two = CollationId(77);
        let collation = Collation::new(two, "two_levels", "1", Pad::None, Arc::new(TwoLevels));
        all.register(collation.unwrap()).unwrap();
        for (collation, longest) in [(CollationId::ASCII_CI, 1502), (two, 3002)] {
            let columns = [ColumnDef::new("c", ColumnType::text_in(collation, 1000))];
            let codec = KeyCodec::new(&columns, &[KeyPart::new(0)], &all).unwrap();
            assert_eq!(codec.longest(1), longest);
        }
    }

    /// KEY-8: no key is longer than the codec says, and some are just so long.
    #[test]
    fn the_longest_keys_are_known() {
        let all = Collations::new();
        let (bytes, fixed) = (ColumnType::Bytes, ColumnType::Fixed);
        let text = |collation, max| ColumnType::text_in(collation, max);
        let (nopad, pad) = (CollationId::UTF8_BIN, CollationId::UTF8_BIN_PAD);
        let lone = |space: &[u8], n: usize| {
            let text = [space, b"x"].concat().repeat(n.div_ceil(2));
            text[text.len() - n..].to_vec()
        };
        for (ty, prefix, value, escaped, segmented) in [
            (ColumnType::i64(), None, vec![0; 8], 8, 8),
            (ColumnType::Double, None, vec![0; 8], 8, 8),
            (ColumnType::Float, None, vec![0; 4], 4, 4),
            (fixed(5), None, vec![0; 5], 5, 5),
            (fixed(5), Some(3), vec![0; 5], 3, 3),
            (bytes(3072), None, lone(b"\0", 3072), 4610, 3456),
            (bytes(3072), Some(9), lone(b"\0", 3072), 15, 18),
            (bytes(1), None, b"x".to_vec(), 3, 9),
            (text(nopad, 3000), None, lone(b"\0", 3000), 4502, 3375),
            (text(pad, 3000), None, lone(b" ", 3000), 4502, 3375),
            (text(pad, 3001), None, lone(b" ", 3001), 4503, 3384),
            (text(pad, 9000), Some(2), "😀😀😀".into(), 14, 9),
        ] {
            let columns = [ColumnDef::new("c", ty).nullable()];
            for (in_segments, want) in [(false, escaped), (true, segmented)] {
                let part = KeyPart {
                    segmented: in_segments,
                    prefix_len: prefix,
                    ..KeyPart::new(0)
                };
                let codec = KeyCodec::new(&columns, &[part], &all).unwrap();
                assert_eq!(codec.longest(0), 0);
                assert_eq!(codec.longest(1), 1 + want, "{ty} {in_segments}");
                let is_shorter: Vec<_> = codec.is_shorter_in_segments().collect();
                assert_eq!(is_shorter, [segmented < escaped], "{ty}");
                let mut key = Vec::new();
                codec.encode_values(&[Some(&value)], &mut key).unwrap();
                match prefix {
                    // Of four bytes a character, of which none is a space.
                    Some(_) => assert!(key.len() <= 1 + want, "{ty} {in_segments}"),
                    None => assert_eq!(key.len(), 1 + want, "{ty} {in_segments}"),
                }
            }
        }
    }
}
