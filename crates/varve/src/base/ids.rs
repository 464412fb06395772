//! Identifiers. Every id is a newtype: a page number can't be passed where a tablespace id is meant.
//!
//! On-disk widths (docs/format.md): `SpaceId` and `PageNo` 4 bytes, `Lsn` 8, `TrxId`, `TrxNo` and
//! `RollPtr` 7 (56 bits), `TableId` and `IndexId` 8. All integers on disk are little-endian, except
//! inside index keys, which are memcomparable.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($repr:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $repr);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A tablespace: one file. Never reused; a truncated table or undo tablespace gets a fresh one.
    SpaceId(u32)
);
id!(
    /// A page's number within its tablespace; page 0 is the file header.
    PageNo(u32)
);
id!(
    /// Log sequence number: a byte position in the redo stream.
    Lsn(u64)
);
id!(
    /// A transaction's id, drawn at its first write. 0 is "older than everything".
    TrxId(u64)
);
id!(
    /// A transaction's serialisation number, drawn from the same counter at commit.
    TrxNo(u64)
);
id!(
    /// A table. Never reused.
    TableId(u64)
);
id!(
    /// An index (a B+tree). Never reused.
    IndexId(u64)
);

/// `PageNo` that points nowhere (end of a sibling chain, no page).
pub const NO_PAGE: PageNo = PageNo(u32::MAX);

/// The system tablespace: catalog, rollback segment 0.
pub const SYSTEM_SPACE: SpaceId = SpaceId(0);

/// The temporary tablespace, made anew at every start.
pub const TEMP_SPACE: SpaceId = SpaceId(0x8000_0000);

/// The tablespace of the first history store; each store has the next one.
pub const FIRST_HISTORY_SPACE: SpaceId = SpaceId(0x8000_0001);

impl SpaceId {
    /// Changes of the tablespace go to the redo log. Ids with the highest bit set are of tablespaces that
    /// don't outlive the process; `u32::MAX` is no tablespace.
    pub const fn is_logged(self) -> bool {
        self.0 & 0x8000_0000 == 0
    }
}

impl TrxNo {
    /// A view with this number does not see what `id` wrote, unless that is its own transaction: both are
    /// drawn from one counter.
    #[inline]
    pub const fn hides(self, id: TrxId) -> bool {
        id.0 >= self.0
    }
}

/// The first id of temporary tables, and of their indexes. They are counted anew at every start.
pub const FIRST_TEMPORARY_ID: u64 = 1 << 63;

impl TableId {
    /// The table lies in the temporary tablespace, and ends with the process.
    pub const fn is_temporary(self) -> bool {
        self.0 >= FIRST_TEMPORARY_ID
    }
}

/// In the id of a change buffer's tree, beside that of its index.
const CHANGE_BUFFER: u64 = 1 << 62;

impl IndexId {
    /// The tree of this index's change buffer.
    pub const fn change_buffer(self) -> IndexId {
        IndexId(self.0 | CHANGE_BUFFER)
    }

    /// The index whose change buffer's tree this is, if it is one.
    pub const fn change_buffer_of(self) -> Option<IndexId> {
        match self.0 < FIRST_TEMPORARY_ID && self.0 & CHANGE_BUFFER != 0 {
            true => Some(IndexId(self.0 & !CHANGE_BUFFER)),
            false => None,
        }
    }
}

/// The largest value that 56 bits on disk can hold.
pub const MAX_ID_56: u64 = (1 << 56) - 1;

/// A page's address: tablespace and page number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PageId {
    pub space: SpaceId,
    pub no: PageNo,
}

impl PageId {
    pub const fn new(space: SpaceId, no: PageNo) -> PageId {
        PageId { space, no }
    }

    /// The address as one word, for hash tables and atomics: space in the upper half.
    pub const fn to_u64(self) -> u64 {
        (self.space.0 as u64) << 32 | self.no.0 as u64
    }

    pub const fn from_u64(v: u64) -> PageId {
        PageId {
            space: SpaceId((v >> 32) as u32),
            no: PageNo(v as u32),
        }
    }
}

impl fmt::Debug for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.space, self.no)
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tablespace {} page {}", self.space, self.no)
    }
}

/// Where a record's previous version stands: insert flag (1 bit), rollback segment (7), undo page (32),
/// slot (16). 56 bits on disk. `RollPtr::NONE` (all zero with the insert flag) has no older version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RollPtr(pub u64);

impl RollPtr {
    const INSERT: u64 = 1 << 55;

    pub fn new(insert: bool, rseg: u8, page: PageNo, slot: u16) -> RollPtr {
        assert!(rseg < 128, "rollback segment {rseg} out of range");
        let flag = if insert { Self::INSERT } else { 0 };
        RollPtr(flag | (rseg as u64) << 48 | (page.0 as u64) << 16 | slot as u64)
    }

    /// The record is its row's first version: there is nothing older behind it.
    pub fn is_insert(self) -> bool {
        self.0 & Self::INSERT != 0
    }

    pub fn rseg(self) -> u8 {
        (self.0 >> 48) as u8 & 0x7f
    }

    pub fn page(self) -> PageNo {
        PageNo((self.0 >> 16) as u32)
    }

    pub fn slot(self) -> u16 {
        self.0 as u16
    }
}

impl fmt::Debug for RollPtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_insert() { "insert" } else { "update" };
        write!(
            f,
            "RollPtr({kind} rseg {} page {} slot {})",
            self.rseg(),
            self.page(),
            self.slot()
        )
    }
}

/// Writes the low 56 bits of `v` at the start of `out` (7 bytes, little-endian).
pub fn put_u56(out: &mut [u8], v: u64) {
    assert!(v <= MAX_ID_56, "id {v} does not fit in 56 bits");
    out[..7].copy_from_slice(&v.to_le_bytes()[..7]);
}

/// Reads 7 little-endian bytes.
pub fn get_u56(b: &[u8]) -> u64 {
    let mut w = [0u8; 8];
    w[..7].copy_from_slice(&b[..7]);
    u64::from_le_bytes(w)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roll_ptr_keeps_its_parts() {
        for (insert, rseg, page, slot) in [
            (false, 0, 0, 0),
            (true, 127, u32::MAX, u16::MAX),
            (false, 33, 77, 5),
            (true, 64, 1, 900),
        ] {
            let p = RollPtr::new(insert, rseg, PageNo(page), slot);
            assert_eq!(
                (p.is_insert(), p.rseg(), p.page().0, p.slot()),
                (insert, rseg, page, slot)
            );
            let mut b = [0u8; 7];
            put_u56(&mut b, p.0);
            assert_eq!(get_u56(&b), p.0);
        }
    }

    #[test]
    fn page_id_is_one_word() {
        let id = PageId::new(SpaceId(7), PageNo(9));
        assert_eq!(PageId::from_u64(id.to_u64()), id);
    }
}
