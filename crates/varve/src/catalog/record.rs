//! What stands behind the key in a leaf record.
//!
//! Clustered record: flags, TrxId, RollPtr, row. Secondary entry: flags, TrxId, length of the clustered key
//! in the entry's key, at whose end it stands (docs/format.md).
//!
//! An entry whose own key and clustered key are together longer than a key of its page may be is a **long
//! entry**: its key is their beginning and a hash of both, and the rest of the clustered key stands behind
//! the record (`split_entry`).
//!
//! - **TAIL-1** The rest follows from the entry's key: no two rows have entries with the same key. Those of
//!   long entries have the greatest length that a page permits, and others are shorter; and 136 bits of a SHA
//!   let nobody find two clustered keys whose hashes are the same.
//! - **TAIL-2** All of the own parts are in the key, and those parts of the clustered key behind them that a
//!   caller may search and order by: as many as have
//!   [`MAX_KEY_SOURCE_BYTES`](crate::row::MAX_KEY_SOURCE_BYTES) together with the own ones. So order, prefix
//!   searches and unique checks see no difference.

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use crate::base::{RollPtr, RowHead, TrxId, get_u56, put_u56};
use crate::page::{LONGEST_KEY, max_key, max_record};
use crate::row::{FORM_BITS, MAX_KEY_BYTES};

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

/// Bytes of the hash at the end of a long entry's key.
const HASH_BYTES: usize = 17;

const _: () = assert!(MAX_KEY_BYTES == LONGEST_KEY - HASH_BYTES);

/// So many bytes of every entry's key are those of its own and its clustered key.
pub const fn longest_plain(page_size: usize) -> usize {
    max_key(page_size) - HASH_BYTES
}

/// The longest key of an entry that is not a long one (TAIL-1).
pub const fn longest_whole(page_size: usize) -> usize {
    max_key(page_size) - 1
}

/// The most bytes of a long entry's clustered key that stand behind its record.
const fn longest_rest(page_size: usize) -> usize {
    max_record(page_size) - max_key(page_size) - ENTRY_LEN
}

/// Whether there is room for an entry whose own key has so many bytes, of a row whose clustered key has so
/// many, the first `ordered` of which are to count in the order of entries (TAIL-2).
pub const fn has_room(page_size: usize, own: usize, clustered: usize, ordered: usize) -> bool {
    let is_whole = own + clustered <= longest_whole(page_size);
    let plain = longest_plain(page_size);
    own <= plain
        && (is_whole
            || own + ordered <= plain && own + clustered <= plain + longest_rest(page_size))
}

/// Makes what `key` holds from `start` on, an entry's own key, the key of a long entry: that of the row with
/// this clustered key, of which the first `ordered` bytes are to count in the order of entries (TAIL-2).
/// Returns how much of the clustered key is in it, or as an error how long both are.
pub fn split_entry(
    page_size: usize,
    key: &mut Vec<u8>,
    start: usize,
    clustered: &[u8],
    ordered: usize,
) -> Result<usize, usize> {
    let own_len = key.len() - start;
    let whole = own_len + clustered.len();
    debug_assert!(whole > longest_whole(page_size), "no long entry");
    if !has_room(page_size, own_len, clustered.len(), ordered) {
        return Err(whole);
    }
    let n = longest_plain(page_size) - own_len;
    let hash = Sha256::new()
        .chain_update(&key[start..])
        .chain_update(clustered);
    key.extend_from_slice(&clustered[..n]);
    key.extend_from_slice(&hash.finalize()[..HASH_BYTES]);
    debug_assert_eq!(key.len() - start, max_key(page_size), "TAIL-1");
    Ok(n)
}

/// A secondary entry's payload.
#[derive(Clone, Copy, Debug)]
pub struct EntryRecord<'a> {
    pub flags: u8,
    pub trx: TrxId,
    /// Bytes of the clustered key in the entry's key.
    pub clustered_key_len: u16,
    /// The clustered key's other bytes; of long entries only.
    pub rest: &'a [u8],
}

/// A row's clustered key as its entry has it: the bytes in the entry's key and those behind its record.
#[derive(Clone, Copy, Debug)]
pub struct ClusteredKey<'a>(&'a [u8], &'a [u8]);

impl<'a> ClusteredKey<'a> {
    pub fn push_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
        out.extend_from_slice(self.1);
    }

    /// All of it, unless the entry is a long one.
    pub fn in_key(&self) -> Option<&'a [u8]> {
        self.1.is_empty().then_some(self.0)
    }

    pub fn to_vec(self) -> Vec<u8> {
        [self.0, self.1].concat()
    }

    pub fn is(&self, key: &[u8]) -> bool {
        key.strip_prefix(self.0) == Some(self.1)
    }
}

impl<'a> EntryRecord<'a> {
    /// Of a live entry with these forms of its texts, whoever will write it. Its key has the first `in_key`
    /// bytes of its row's clustered key.
    pub fn new(forms: u8, clustered: &'a [u8], in_key: usize) -> EntryRecord<'a> {
        EntryRecord {
            flags: forms,
            trx: TrxId(0),
            clustered_key_len: in_key as u16,
            rest: &clustered[in_key..],
        }
    }

    /// Of an entry with this key, the first `own_len` bytes of which are its own, and this rest.
    pub fn behind(key: &[u8], own_len: usize, rest: &'a [u8]) -> EntryRecord<'a> {
        let mut entry = EntryRecord {
            flags: 0,
            trx: TrxId(0),
            clustered_key_len: 0,
            rest,
        };
        let in_key = key.len().saturating_sub(own_len + entry.hash_len());
        entry.clustered_key_len = in_key as u16;
        entry
    }

    pub fn decode(payload: &'a [u8]) -> Option<EntryRecord<'a>> {
        let (head, rest) = payload.split_first_chunk::<ENTRY_LEN>()?;
        Some(EntryRecord {
            flags: head[0],
            trx: TrxId(get_u56(&head[1..])),
            clustered_key_len: u16::from_le_bytes([head[8], head[9]]),
            rest,
        })
    }

    pub fn is_deleted(&self) -> bool {
        self.flags & DELETED != 0
    }

    pub fn is_long(&self) -> bool {
        !self.rest.is_empty()
    }

    /// The forms of its texts, as in its flags.
    pub fn forms(&self) -> u8 {
        self.flags & FORM_BITS
    }

    /// Its writer put it where there was none.
    pub fn is_inserted(&self) -> bool {
        self.flags & (DELETED | REVIVED) == 0
    }

    pub fn encode(&self) -> SmallVec<[u8; 16]> {
        let mut out = SmallVec::new();
        out.extend_from_slice(&entry_state(self.flags, self.trx));
        out.extend_from_slice(&self.clustered_key_len.to_le_bytes());
        out.extend_from_slice(self.rest);
        out
    }

    /// The own key and the clustered key of an entry with this key; `None` if the lengths can't be right.
    pub fn keys(&self, key: &'a [u8]) -> Option<(&'a [u8], ClusteredKey<'a>)> {
        let in_key = usize::from(self.clustered_key_len);
        let own_len = key.len().checked_sub(in_key + self.hash_len())?;
        let (own, behind) = key.split_at(own_len);
        Some((own, ClusteredKey(&behind[..in_key], self.rest)))
    }

    /// The clustered key of an entry with this key; `None` if the lengths can't be right.
    pub fn clustered_key(&self, key: &'a [u8]) -> Option<ClusteredKey<'a>> {
        Some(self.keys(key)?.1)
    }

    /// Bytes of the hash at the end of its key.
    fn hash_len(&self) -> usize {
        if self.is_long() { HASH_BYTES } else { 0 }
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
            trx: TrxId(5),
            ..EntryRecord::new(0, b"PKEY", 4)
        };
        let bytes = entry.encode();
        let back = EntryRecord::decode(&bytes).expect("right length");
        assert_eq!((back.trx, back.is_deleted()), (TrxId(5), false));
        assert!(back.clustered_key(b"seckeyPKEY").unwrap().is(b"PKEY"));
        assert!(back.clustered_key(b"abc").is_none());
        assert!(EntryRecord::decode(&bytes[1..]).is_none());
    }

    /// Own and clustered keys of these lengths, of which as much as this is to count in the order.
    fn split(own: usize, clustered: usize, ordered: usize) -> Result<usize, usize> {
        let clustered: Vec<u8> = (0..clustered).map(|n| n as u8).collect();
        let mut key = [vec![9; 3], vec![7; own]].concat();
        let split = split_entry(16384, &mut key, 3, &clustered, ordered)?;
        let key = &key[3..];
        let bytes = EntryRecord::new(0, &clustered, split).encode();
        let back = EntryRecord::decode(&bytes).expect("long enough");
        let (own_key, found) = back.keys(key).expect("right lengths");
        assert_eq!(own_key.len(), own);
        assert!(found.is(&clustered) && found.to_vec() == clustered);
        assert!(!found.is(&clustered[1..]));
        assert!(back.is_long() && key.len() == 4033);
        assert!(key.len() + bytes.len() <= 8000);
        Ok(split)
    }

    #[test]
    fn long_entries_have_the_rest_behind_their_keys() {
        assert_eq!(longest_whole(16384), 3072 + 960);
        assert_eq!(split(3072, 961, 0), Ok(944));
        assert_eq!(split(3500, 3500, 516), Ok(516));
        assert_eq!(split(3500, 3500, 517), Err(7000));
        assert_eq!(split(4016, 3957, 0), Ok(0));
        assert_eq!(split(4016, 3958, 0), Err(7974));
        assert_eq!(split(4017, 3500, 0), Err(7517));
        // Of two that differ at the end alone.
        let mut keys = [vec![7; 3000], vec![7; 3000]];
        for (n, key) in keys.iter_mut().enumerate() {
            let clustered = [vec![1; 2000], vec![n as u8]].concat();
            split_entry(16384, key, 0, &clustered, 0).unwrap();
        }
        assert_eq!(keys[0][..4016], keys[1][..4016]);
        assert_ne!(keys[0], keys[1]);
    }
}
