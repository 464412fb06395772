//! Values that stand at the same place in every key of an index: those in front of the first part whose
//! length depends on its value. Reading one is a copy, where taking a key apart walks over all parts.
//!
//! - **KEY-4** Keys of one index agree in the place and the length of each field.
//!
//! What is not a field (parts behind a text or a nullable column, floating point) is read by
//! [`KeyCodec::decode`].

use super::key::{Kind, PartCodec};
use super::{Damage, KeyCodec};

/// One value at a constant place in the keys of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyField {
    /// The column's position in the table's list.
    pub column: usize,
    at: usize,
    len: usize,
    kind: FieldKind,
    flip: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FieldKind {
    Int { signed: bool },
    Bytes,
}

impl PartCodec {
    /// Bytes that the part takes in every key, if they are always as many.
    fn constant_len(&self) -> Option<usize> {
        if self.nullable {
            return None;
        }
        match self.kind {
            Kind::Int { bytes, .. } => Some(bytes),
            Kind::Float => Some(4),
            Kind::Double => Some(8),
            Kind::Fixed { len } => Some(self.prefix.min(len)),
            Kind::Bytes | Kind::Text(_) => None,
        }
    }
}

impl KeyCodec {
    /// Bytes that every key takes, if they are always as many.
    pub fn constant_len(&self) -> Option<usize> {
        self.parts.iter().map(PartCodec::constant_len).sum()
    }

    /// Appends to `out` the fields of the parts that stand at constant places, if the first part starts at
    /// `at`. Returns where the last part ends, if all of them do.
    pub fn fields(&self, mut at: usize, out: &mut Vec<KeyField>) -> Option<usize> {
        for part in &self.parts {
            let len = part.constant_len()?;
            let kind = match part.kind {
                Kind::Int { signed, .. } => Some(FieldKind::Int { signed }),
                Kind::Float | Kind::Double => None,
                _ => Some(FieldKind::Bytes),
            };
            if let (Some(kind), true) = (kind, part.is_whole) {
                out.push(KeyField {
                    column: part.column,
                    at,
                    len,
                    kind,
                    flip: part.flip,
                });
            }
            at += len;
        }
        Some(at)
    }
}

impl KeyField {
    /// Bytes of the value.
    #[allow(
        clippy::len_without_is_empty,
        reason = "no column has values without bytes"
    )]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where it ends in the key.
    pub(crate) fn end(&self) -> usize {
        self.at + self.len
    }

    /// Copies the value from a key to `out`, which is as long as the value. Total on any bytes.
    #[inline]
    pub(crate) fn read(&self, key: &[u8], out: &mut [u8]) -> Result<(), Damage> {
        self.read_split(&[], key, out)
    }

    /// The same from a key in two pieces.
    #[inline]
    pub(crate) fn read_split(
        &self,
        prefix: &[u8],
        suffix: &[u8],
        out: &mut [u8],
    ) -> Result<(), Damage> {
        let (from, to) = (self.at, self.at + self.len);
        let start = prefix.get(from..to.min(prefix.len())).unwrap_or_default();
        let rest = from.saturating_sub(prefix.len())..to.saturating_sub(prefix.len());
        let Some(rest) = suffix.get(rest) else {
            return Err(Damage::new("a whole key part", prefix.len() + suffix.len()));
        };
        let bytes = start.iter().chain(rest);
        match self.kind {
            FieldKind::Int { signed } => self.put_int(bytes, signed, out),
            FieldKind::Bytes => {
                for (to, from) in out.iter_mut().zip(bytes) {
                    *to = from ^ self.flip;
                }
            }
        }
        Ok(())
    }

    /// Writes the integer whose bytes come most significant first.
    #[inline]
    fn put_int<'a>(&self, be: impl Iterator<Item = &'a u8>, signed: bool, out: &mut [u8]) {
        let sign = u64::from(signed) << (8 * self.len - 1);
        let bits = be.fold(0, |bits, byte| bits << 8 | u64::from(byte ^ self.flip)) ^ sign;
        match out.len() {
            // The bulk of all columns; a copy of a constant length needs no call.
            4 => out.copy_from_slice(&(bits as u32).to_le_bytes()),
            8 => out.copy_from_slice(&bits.to_le_bytes()),
            len => out.copy_from_slice(&bits.to_le_bytes()[..len]),
        }
    }
}
