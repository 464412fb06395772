//! What stands behind the key in a leaf record.
//!
//! Clustered record: flags, TrxId, RollPtr, row. Secondary entry: flags, TrxId, length of the clustered key,
//! which is the tail of the entry's key (docs/format.md).

use crate::base::{RollPtr, RowHead, TrxId, get_u56, put_u56};
use crate::row::FORM_BITS;

/// Flag of a record or entry that is deleted for everybody who sees its TrxId.
pub const DELETED: u8 = 1;
/// Flag of a clustered record with values on overflow pages.
pub const EXTERNAL: u8 = 2;

/// Flag of a secondary entry that was delete-marked before its writer made it live again. Without it, who
/// wrote a live entry put it where there was none.
pub const REVIVED: u8 = 2;

/// Bytes before the row in a clustered record.
pub const ROW_AT: usize = RowHead::LEN;
/// Bytes of a secondary entry's payload: flags 1, TrxId 7, clustered key length 2.
pub const ENTRY_LEN: usize = 10;

/// A clustered record's payload.
#[derive(Clone, Copy, Debug)]
pub struct RowRecord<'a> {
    pub flags: u8,
    pub trx: TrxId,
    pub roll_ptr: RollPtr,
    pub row: &'a [u8],
}

impl<'a> RowRecord<'a> {
    /// `None` if the payload is too short to be one.
    pub fn decode(payload: &'a [u8]) -> Option<RowRecord<'a>> {
        (payload.len() >= ROW_AT).then(|| RowRecord {
            flags: payload[0],
            trx: TrxId(get_u56(&payload[1..])),
            roll_ptr: RollPtr(get_u56(&payload[8..])),
            row: &payload[ROW_AT..],
        })
    }

    pub fn is_deleted(&self) -> bool {
        self.flags & DELETED != 0
    }

    pub fn has_external_values(&self) -> bool {
        self.flags & EXTERNAL != 0
    }
}

/// A secondary entry's payload.
#[derive(Clone, Copy, Debug)]
pub struct EntryRecord {
    pub flags: u8,
    pub trx: TrxId,
    pub clustered_key_len: u16,
}

impl EntryRecord {
    /// Of a live entry with these forms of its texts, whoever will write it.
    pub fn new(forms: u8, clustered_key_len: usize) -> EntryRecord {
        EntryRecord {
            flags: forms,
            trx: TrxId(0),
            clustered_key_len: clustered_key_len as u16,
        }
    }

    pub fn decode(payload: &[u8]) -> Option<EntryRecord> {
        (payload.len() == ENTRY_LEN).then(|| EntryRecord {
            flags: payload[0],
            trx: TrxId(get_u56(&payload[1..])),
            clustered_key_len: u16::from_le_bytes([payload[8], payload[9]]),
        })
    }

    pub fn is_deleted(&self) -> bool {
        self.flags & DELETED != 0
    }

    /// The forms of its texts, as in its flags.
    pub fn forms(&self) -> u8 {
        self.flags & FORM_BITS
    }

    /// Its writer put it where there was none.
    pub fn is_inserted(&self) -> bool {
        self.flags & (DELETED | REVIVED) == 0
    }

    pub fn encode(&self) -> [u8; ENTRY_LEN] {
        let mut out = [0; ENTRY_LEN];
        out[..8].copy_from_slice(&entry_state(self.flags, self.trx));
        out[8..].copy_from_slice(&self.clustered_key_len.to_le_bytes());
        out
    }

    /// The clustered key at the end of the entry's key; `None` if the length can't be right.
    pub fn clustered_key<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        key.len()
            .checked_sub(self.clustered_key_len as usize)
            .map(|at| &key[at..])
    }
}

/// The part of an entry's payload that delete-marking and un-delete-marking change: flags and TrxId.
pub fn entry_state(flags: u8, trx: TrxId) -> [u8; 8] {
    let mut out = [0; 8];
    out[0] = flags;
    put_u56(&mut out[1..], trx.0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::PageNo;

    #[test]
    fn records_survive_the_round_trip() {
        let head = RowHead {
            flags: DELETED,
            trx: TrxId(99),
            roll_ptr: RollPtr::new(false, 40, PageNo(8), 2),
        };
        let mut bytes = head.to_bytes().to_vec();
        bytes.extend_from_slice(b"row");
        let row = RowRecord::decode(&bytes).expect("long enough");
        assert!(row.is_deleted());
        assert_eq!(
            (row.trx, row.roll_ptr.page(), row.row),
            (TrxId(99), PageNo(8), &b"row"[..])
        );
        assert!(RowRecord::decode(&bytes[..ROW_AT - 1]).is_none());

        let entry = EntryRecord {
            flags: 0,
            trx: TrxId(5),
            clustered_key_len: 4,
        };
        let back = EntryRecord::decode(&entry.encode()).expect("right length");
        assert_eq!((back.trx, back.is_deleted()), (TrxId(5), false));
        assert_eq!(back.clustered_key(b"seckeyPKEY"), Some(&b"PKEY"[..]));
        assert_eq!(back.clustered_key(b"abc"), None);
    }
}
