//! What is kept under a key, and when it ends.
//!
//! Times are seconds since 1970. A client says how long it wants something kept: `expiry` makes a time of it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Clients' numbers up to this are seconds from now, larger ones are times.
const LONGEST_DELAY: i64 = 60 * 60 * 24 * 30;

/// No item with this time was ever alive: 0 is 'for ever'.
const LONG_AGO: u32 = 1;

/// A client marked the item as out of date (`md` with `I`), or set it in spite of a newer one.
pub const STALE: u8 = 1;
/// One client was told that it has to bring the item up to date.
pub const WON: u8 = 2;

/// What is kept under a key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Item {
    pub flags: u32,
    /// Another number after each change.
    pub cas: u64,
    /// When it ends; 0: never.
    pub expires: u32,
    /// `STALE`, `WON`.
    pub marks: u8,
    pub value: Vec<u8>,
}

/// An `Item` whose value lies elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ItemRef<'a> {
    pub flags: u32,
    pub cas: u64,
    pub expires: u32,
    pub marks: u8,
    pub value: &'a [u8],
}

impl ItemRef<'_> {
    pub fn is_over(&self, now: u32) -> bool {
        self.expires != 0 && self.expires <= now
    }

    /// Whether the next one that gets it is told to bring it up to date.
    pub fn wants_renewal(&self) -> bool {
        self.marks & (STALE | WON) == STALE
    }

    pub fn to_item(self) -> Item {
        Item {
            flags: self.flags,
            cas: self.cas,
            expires: self.expires,
            marks: self.marks,
            value: self.value.to_vec(),
        }
    }
}

impl Item {
    pub fn by_ref(&self) -> ItemRef<'_> {
        ItemRef {
            flags: self.flags,
            cas: self.cas,
            expires: self.expires,
            marks: self.marks,
            value: &self.value,
        }
    }
}

pub fn now() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
    })
}

/// What a client's number means: 0 is never, less is at once, up to 30 days are from now, more is a time.
pub fn expiry(number: i64, now: u32) -> u32 {
    let at = match number {
        0 => return 0,
        ..0 => return LONG_AGO,
        1..=LONGEST_DELAY => i64::from(now) + number,
        _ => number,
    };
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_clients_are_delays_or_times() {
        let now = 2_000_000_000;
        for (number, at) in [
            (0, 0),
            (-1, LONG_AGO),
            (i64::MIN, LONG_AGO),
            (1, now + 1),
            (2_592_000, now + 2_592_000),
            (2_592_001, 2_592_001),
            (1_999_999_999, 1_999_999_999),
            (4_294_967_296, u32::MAX),
        ] {
            assert_eq!(expiry(number, now), at, "{number}");
        }
        let ends = |expires| Item {
            expires,
            ..Item::default()
        };
        for (expires, is_over) in [(0, false), (1, true), (now, true), (now + 1, false)] {
            assert_eq!(ends(expires).by_ref().is_over(now), is_over, "{expires}");
        }
    }
}
