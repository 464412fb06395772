//! Versions of rows and entries as the store keeps them.
//!
//! A version of the record with key `k` has the key `k` and, behind it, the number of the transaction that
//! superseded it, 8 bytes big-endian. Keys of an index are prefix-free (KEY-2), so the versions of a key
//! stand together, the oldest first, and in the order of the index. The payload:
//!
//! | bytes | |
//! |---|---|
//! | 1 | what the version is (bit 0), whether it has two numbers (bit 1), how many bytes each has (bits 2 to 4) |
//! | 1 to 7 | the greatest member that it was copied for, little-endian |
//! | as many | the least one, if it is another |
//! | | the record as its tree had it |

use std::cmp::Ordering;

use crate::base::TrxNo;
use crate::page::{VERSION_BYTES, VERSION_KEY_BYTES};

const DAMAGED: u8 = 1;
const PAIR: u8 = 2;
const LEN_SHIFT: u32 = 2;
/// Of a transaction's number; as many as rows and undo have for it.
const NUMBER_BYTES: usize = 7;
const _: () = assert!(VERSION_KEY_BYTES + 1 + 2 * NUMBER_BYTES == VERSION_BYTES);

/// What a version is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The payload of a record.
    Record = 0,
    /// It was to be copied, but where it was made from is damaged.
    Damaged = 1,
}

/// The members that a version was copied for: the least and the greatest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Members {
    pub least: TrxNo,
    pub greatest: TrxNo,
}

impl Members {
    pub fn contain(self, member: TrxNo) -> bool {
        self.least <= member && member <= self.greatest
    }

    /// Those of `members`, which are in order, that read the version that somebody made and `superseder`
    /// replaced. `first_that_sees`: where among these begin those that see who made it; the end, if none
    /// does. A member sees what an older one sees, so they are an interval.
    pub fn needing<M>(
        members: &[M],
        number: impl Fn(&M) -> TrxNo,
        first_that_sees: impl FnOnce(&[M]) -> usize,
        superseder: TrxNo,
    ) -> Option<Members> {
        // The cheap question first: most versions are of no concern to any member.
        let end = members.partition_point(|member| number(member) <= superseder);
        let start = match end {
            0 => 0,
            _ => first_that_sees(&members[..end]),
        };
        let those = &members[start..end];
        Some(Members {
            least: number(those.first()?),
            greatest: number(those.last()?),
        })
    }
}

/// The key of a record of which there is a version, in two pieces: what all keys of the leaf begin with, and
/// the rest.
#[derive(Clone, Copy)]
pub struct VersionOf<'a> {
    start: &'a [u8],
    rest: &'a [u8],
}

impl<'a> VersionOf<'a> {
    /// Of the version whose key is `prefix` and `suffix`; `None` if it is no version's key.
    #[inline]
    pub fn split(prefix: &'a [u8], suffix: &'a [u8]) -> Option<VersionOf<'a>> {
        if let Some((rest, _)) = suffix.split_last_chunk::<VERSION_KEY_BYTES>() {
            let start = prefix;
            return Some(VersionOf { start, rest });
        }
        let len = (prefix.len() + suffix.len()).checked_sub(VERSION_KEY_BYTES)?;
        Some(VersionOf {
            start: &prefix[..len],
            rest: &[],
        })
    }

    /// The key, in one piece.
    pub fn whole(key: &'a [u8]) -> VersionOf<'a> {
        VersionOf {
            start: &[],
            rest: key,
        }
    }

    pub fn to_vec(self) -> Vec<u8> {
        [self.start, self.rest].concat()
    }

    /// Compares the record's key with that of another one, which has `other` behind its first `n` bytes;
    /// those are the same in both.
    #[inline]
    pub fn compare_behind(self, n: usize, other: &[u8]) -> Ordering {
        match n.checked_sub(self.start.len()) {
            Some(more) => compare(&self.rest[more..], other),
            None => {
                let start = &self.start[n..];
                let (its_start, its_rest) = other.split_at(start.len().min(other.len()));
                start.cmp(its_start).then_with(|| self.rest.cmp(its_rest))
            }
        }
    }
}

/// Most keys differ in their first bytes behind what all of them begin with.
#[inline]
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    match (a.first_chunk(), b.first_chunk()) {
        (Some(x), Some(y)) if x != y => u64::from_be_bytes(*x).cmp(&u64::from_be_bytes(*y)),
        // Of the same length, and nothing more: an integer.
        (Some(x), Some(_)) if x.len() == a.len() && a.len() == b.len() => Ordering::Equal,
        _ => a.cmp(b),
    }
}

/// A version, decoded.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a> {
    pub members: Members,
    pub kind: Kind,
    pub record: &'a [u8],
}

/// The key of the version of `key` that `superseder` replaced.
pub fn version_key(key: &[u8], superseder: TrxNo) -> Vec<u8> {
    [key, &superseder.0.to_be_bytes()].concat()
}

/// Behind all versions of `key`.
pub fn behind_versions(key: &[u8]) -> Vec<u8> {
    version_key(key, TrxNo(u64::MAX))
}

/// The record's key, and who superseded the version; `None` if it is no version's key.
pub fn split_key(key: &[u8]) -> Option<(&[u8], TrxNo)> {
    let (key, no) = key.split_last_chunk::<VERSION_KEY_BYTES>()?;
    Some((key, TrxNo(u64::from_be_bytes(*no))))
}

pub fn encode(members: Members, kind: Kind, record: &[u8], out: &mut Vec<u8>) {
    let Members { least, greatest } = members;
    let len = (8 - greatest.0.leading_zeros() as usize / 8).max(1);
    assert!(len <= NUMBER_BYTES, "{greatest} is no transaction's number");
    let is_pair = least != greatest;
    out.clear();
    out.push((kind as u8) | if is_pair { PAIR } else { 0 } | ((len as u8) << LEN_SHIFT));
    out.extend_from_slice(&greatest.0.to_le_bytes()[..len]);
    if is_pair {
        out.extend_from_slice(&least.0.to_le_bytes()[..len]);
    }
    out.extend_from_slice(record);
}

/// How much of a version's payload stands before the record.
#[inline]
pub fn head_len(payload: &[u8]) -> usize {
    let first = payload.first().copied().unwrap_or(0);
    let numbers = if first & PAIR != 0 { 2 } else { 1 };
    1 + numbers * (first >> LEN_SHIFT) as usize
}

/// `None` if it is no version's payload.
#[inline]
pub fn decode(payload: &[u8]) -> Option<Version<'_>> {
    let first = *payload.first()?;
    let len = (first >> LEN_SHIFT) as usize;
    if !(1..=NUMBER_BYTES).contains(&len) {
        return None;
    }
    let record = payload.get(head_len(payload)..)?;
    let number = |at: usize| {
        let word = match payload[at..].first_chunk() {
            Some(word) => u64::from_le_bytes(*word),
            None => short_word(&payload[at..]),
        };
        TrxNo(word & u64::MAX >> (64 - 8 * len))
    };
    let greatest = number(1);
    let least = match first & PAIR {
        0 => greatest,
        _ => number(1 + len),
    };
    let kind = match first & DAMAGED {
        0 => Kind::Record,
        _ => Kind::Damaged,
    };
    Some(Version {
        members: Members { least, greatest },
        kind,
        record,
    })
}

#[cold]
fn short_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
