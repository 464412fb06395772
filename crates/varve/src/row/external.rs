//! External values: those that lie on overflow pages, as a row knows them and as a reader has fetched them.
//!
//! A row too long for its page keeps an [`ExternalRef`] where the value would stand. A reader that wants the
//! value fetches it into [`ExternalValues`] (`table/external.rs`), and reads the row together with these.
//! Nothing here knows a page's content.
//!
//! - **ROW-5** A value that was not fetched is never given out as something else:
//!   [`RowRef::get`](super::RowRef::get) panics, [`RowRef::fetched`](super::RowRef::fetched) says so.

use crate::base::{Error, PageNo, Result, TrxId, get_u56, put_u56};

/// Set in the end offset of an external column.
pub(super) const EXTERNAL_BIT: u16 = 0x8000;

/// Bytes of an encoded [`ExternalRef`].
pub const EXTERNAL_REF_BYTES: usize = 21;

/// Bytes that a buffer of external values may keep for the next rows.
const KEPT_BYTES: usize = 256 << 10;

/// Where an external value is: a chain of overflow pages, and whose chain that is. No two chains of a
/// database have the same `trx` and `seq`, ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExternalRef {
    /// The chain's first page.
    pub page: PageNo,
    /// Bytes of the whole value.
    pub len: u32,
    /// The transaction that wrote it.
    pub trx: TrxId,
    /// Tells the chains of one transaction apart: an undo number, 6 bytes.
    pub seq: u64,
}

impl ExternalRef {
    pub fn encode(&self) -> [u8; EXTERNAL_REF_BYTES] {
        let mut out = [0; EXTERNAL_REF_BYTES];
        out[..4].copy_from_slice(&self.page.0.to_le_bytes());
        out[4..8].copy_from_slice(&self.len.to_le_bytes());
        put_u56(&mut out[8..], self.trx.0);
        out[15..].copy_from_slice(&self.seq.to_le_bytes()[..6]);
        out
    }

    pub fn decode(bytes: &[u8; EXTERNAL_REF_BYTES]) -> ExternalRef {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let mut seq = [0; 8];
        seq[..6].copy_from_slice(&bytes[15..]);
        ExternalRef {
            page: PageNo(u32_at(0)),
            len: u32_at(4),
            trx: TrxId(get_u56(&bytes[8..])),
            seq: u64::from_le_bytes(seq),
        }
    }
}

/// External values of one row that were fetched, or the starts of them.
#[derive(Clone, Debug, Default)]
pub struct ExternalValues {
    bytes: Vec<u8>,
    /// Column position, and where its value ends in `bytes`; it starts where the one before it ends.
    ends: Vec<(u16, usize)>,
}

impl ExternalValues {
    /// Forgets the values and makes room for `total` bytes of others.
    pub fn start(&mut self, total: usize) -> Result<()> {
        self.clear();
        // A value may be larger than the memory that there is: that must not end the process.
        let reserved = self.bytes.try_reserve_exact(total);
        reserved.map_err(|_| Error::NoSpace {
            what: format!("no memory for {total} bytes of external columns"),
        })
    }

    /// Adds the value of a column, which `fill` appends to the buffer that it gets.
    pub fn push_with<R>(&mut self, column: usize, fill: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let done = fill(&mut self.bytes);
        self.ends.push((column as u16, self.bytes.len()));
        done
    }

    /// The value of a column, if it was fetched.
    pub fn get(&self, column: usize) -> Option<&[u8]> {
        let at = self.ends.iter().position(|e| e.0 as usize == column)?;
        let start = if at == 0 { 0 } else { self.ends[at - 1].1 };
        Some(&self.bytes[start..self.ends[at].1])
    }

    /// How many values were fetched.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    #[cfg(feature = "internals")]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Gives the buffer back if it is large.
    pub fn release(&mut self) {
        self.clear();
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_survive_the_round_trip() {
        let r = ExternalRef {
            page: PageNo(0x0102_0304),
            len: u32::MAX,
            trx: TrxId((1 << 56) - 2),
            seq: (1 << 48) - 3,
        };
        assert_eq!(ExternalRef::decode(&r.encode()), r);
    }

    #[test]
    fn values_are_found_by_column_and_large_buffers_go() {
        let mut values = ExternalValues::default();
        values.start(KEPT_BYTES + 2).unwrap();
        values.push_with(7, |out| out.extend_from_slice(b"seven"));
        values.push_with(3, |_| ());
        assert_eq!(values.get(7), Some(&b"seven"[..]));
        assert_eq!(values.get(3), Some(&b""[..]));
        assert_eq!(values.get(0), None);
        values.release();
        assert_eq!((values.get(7), values.bytes.capacity()), (None, 0));
    }
}
