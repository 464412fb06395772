//! What stands behind the key in a leaf record.
//!
//! Clustered record: flags, TrxId, RollPtr, row. Secondary entry: flags, TrxId, length of the clustered key
//! in the entry's key, at whose end it stands (docs/format.md). The length is left out if all clustered keys
//! of the table have the same one, and the TrxId once nobody asks for it any more: such an entry is
//! **frozen**, as PostgreSQL's tuples are. It gets a TrxId again from who delete-marks it.
//!
//! - **FREEZE-1** A frozen entry is live, and whoever can come to it sees what its writer did: so it says
//!   what one with the TrxId 0 does, which is older than everything.
//! - **FREEZE-2** As long as an index keeps its entries, its table's clustered keys are all of one length, or
//!   they never were: columns of a fixed length keep their type (`takes_all`). Otherwise `check_table` finds
//!   entries that name other rows.
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

use crate::base::{RollPtr, RowHead, TrxId, get_u56, put_u56, writer_of};
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
/// The most bytes of a secondary entry's payload, without a rest: flags 1, TrxId 7, clustered key length 2.
pub const ENTRY_LEN: usize = STATE_LEN + CLUSTERED_LEN;
/// What delete-marking and un-delete-marking change: flags and TrxId.
const STATE_LEN: usize = 8;
const CLUSTERED_LEN: usize = 2;
/// What a frozen entry has not, behind its flags.
pub const FROZEN_AT: usize = 1;
pub const FROZEN_CUT: usize = STATE_LEN - FROZEN_AT;

/// How long the clustered keys in the entries of an index are; `None`: each entry says it.
pub type ClusteredLen = Option<u16>;

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

/// The bytes of a secondary entry's payload.
pub type Payload = SmallVec<[u8; 16]>;

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

    /// `None` if no entry of an index with these clustered keys has so many bytes.
    #[inline]
    pub fn decode(payload: &'a [u8], clustered: ClusteredLen) -> Option<EntryRecord<'a>> {
        let (flags, trx) = entry_state(payload)?;
        let behind = match payload.len() < STATE_LEN {
            true => &payload[FROZEN_AT..],
            false => &payload[STATE_LEN..],
        };
        let (clustered_key_len, rest) = match behind.split_first_chunk::<CLUSTERED_LEN>() {
            Some((len, rest)) => (u16::from_le_bytes(*len), rest),
            None if behind.is_empty() => (clustered?, behind),
            None => return None,
        };
        Some(EntryRecord {
            flags,
            trx,
            clustered_key_len,
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

    /// As it stands in an index with these clustered keys, with its TrxId.
    pub fn encode(&self, clustered: ClusteredLen) -> Payload {
        let mut out = Payload::new();
        out.extend_from_slice(&state_bytes(self.flags, self.trx));
        self.push_behind(clustered, &mut out);
        out
    }

    /// The same of one that everybody sees, whose TrxId is not wanted any more (FREEZE-1). Long ones keep
    /// theirs: there are few.
    pub fn encode_frozen(&self, clustered: ClusteredLen) -> Payload {
        if self.is_long() || self.is_deleted() {
            return self.encode(clustered);
        }
        let mut out = Payload::new();
        out.push(self.flags);
        self.push_behind(clustered, &mut out);
        out
    }

    fn push_behind(&self, clustered: ClusteredLen, out: &mut Payload) {
        if self.is_long() || clustered != Some(self.clustered_key_len) {
            out.extend_from_slice(&self.clustered_key_len.to_le_bytes());
        }
        out.extend_from_slice(self.rest);
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
pub fn state_bytes(flags: u8, trx: TrxId) -> [u8; STATE_LEN] {
    let mut out = [0; STATE_LEN];
    out[0] = flags;
    put_u56(&mut out[1..], trx.0);
    out
}

/// Flags and writer of an entry with this payload, in whatever index.
#[inline]
pub fn entry_state(payload: &[u8]) -> Option<(u8, TrxId)> {
    let trx = match writer_of(payload) {
        Some(trx) => trx,
        None if is_frozen(payload) => TrxId(0),
        None => return None,
    };
    Some((payload[0], trx))
}

/// An entry with this payload has no TrxId.
#[inline]
pub fn is_frozen(payload: &[u8]) -> bool {
    payload.len() == FROZEN_AT || payload.len() == FROZEN_AT + CLUSTERED_LEN
}

/// An entry with this payload may be frozen if everybody sees what transactions with ids below `limit` did.
#[inline]
pub fn may_freeze(payload: &[u8], limit: TrxId) -> bool {
    let is_whole = payload.len() == STATE_LEN || payload.len() == ENTRY_LEN;
    is_whole && entry_state(payload).is_some_and(|(flags, trx)| flags & DELETED == 0 && trx < limit)
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
        for (clustered, len) in [(None, 10), (Some(3), 10), (Some(4), 8)] {
            let bytes = entry.encode(clustered);
            assert_eq!(bytes.len(), len);
            let back = EntryRecord::decode(&bytes, clustered).expect("right length");
            assert_eq!((back.trx, back.is_deleted()), (TrxId(5), false));
            assert!(back.clustered_key(b"seckeyPKEY").unwrap().is(b"PKEY"));
            assert!(back.clustered_key(b"abc").is_none());
            assert!(EntryRecord::decode(&bytes[3..], clustered).is_none());
            assert_eq!(entry_state(&bytes), Some((0, TrxId(5))));
        }
        assert!(EntryRecord::decode(&entry.encode(Some(4)), None).is_none());
    }

    /// FREEZE-1: what is left of a frozen entry says the same, but for who wrote it.
    #[test]
    fn frozen_entries_have_no_writer() {
        let live = EntryRecord {
            trx: TrxId(5),
            ..EntryRecord::new(0x1c, b"PKEY", 4)
        };
        for (clustered, len) in [(None, 3), (Some(4), 1)] {
            let mut bytes = live.encode(clustered).to_vec();
            assert!(may_freeze(&bytes, TrxId(6)) && !may_freeze(&bytes, TrxId(5)));
            assert!(!is_frozen(&bytes));
            bytes.drain(FROZEN_AT..FROZEN_AT + FROZEN_CUT);
            assert_eq!(bytes[..], live.encode_frozen(clustered)[..]);
            assert!(is_frozen(&bytes) && bytes.len() == len);
            assert!(!may_freeze(&bytes, TrxId(6)));
            let back = EntryRecord::decode(&bytes, clustered).expect("right length");
            assert_eq!((back.trx, back.forms()), (TrxId(0), 0x1c));
            assert!(back.clustered_key(b"seckeyPKEY").unwrap().is(b"PKEY"));
            assert_eq!(entry_state(&bytes), Some((0x1c, TrxId(0))));
        }
        // What is deleted is removed by who knows its deleter, and long ones are few.
        let deleted = EntryRecord {
            flags: DELETED,
            ..live
        };
        let long = EntryRecord {
            rest: b"rest",
            ..live
        };
        for entry in [deleted, long] {
            let bytes = entry.encode(None);
            assert!(!may_freeze(&bytes, TrxId(6)));
            assert_eq!(entry.encode_frozen(None), bytes);
        }
    }

    /// Own and clustered keys of these lengths, of which as much as this is to count in the order.
    fn split(own: usize, clustered: usize, ordered: usize) -> Result<usize, usize> {
        let clustered: Vec<u8> = (0..clustered).map(|n| n as u8).collect();
        let mut key = [vec![9; 3], vec![7; own]].concat();
        let split = split_entry(16384, &mut key, 3, &clustered, ordered)?;
        let key = &key[3..];
        let bytes = EntryRecord::new(0, &clustered, split).encode(None);
        let back = EntryRecord::decode(&bytes, None).expect("long enough");
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
