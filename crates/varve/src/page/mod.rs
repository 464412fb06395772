//! What a page is: header, checksum, slotted body, and the operations that change it. No I/O, no latches:
//! everything here is a pure function of bytes. `docs/format.md` describes the same layout in prose.
//!
//! Invariants:
//! - **PG-1** Every change to a page is a [`PageOp`]; applying it is deterministic, so replaying the same
//!   operations on the same bytes gives the same bytes.
//! - **PG-2** [`validate`] accepts a page ⇒ no accessor of [`SlottedRef`] panics on it, and every `PageOp`
//!   that applies to it leaves a page that `validate` accepts again. Pages of trees are read from disk
//!   through [`validate_keys`], too, so that searches and scans of them end.
//! - **PG-3** A `PageOp` that can't be applied changes nothing and returns an error.
//! - **PG-4** All keys of a slotted page lie in `[low fence, high fence)` and therefore share the page's
//!   prefix, the common prefix of its two fences; records store only what follows it.
//! - **PG-5** The separator in slot 0 of an inner page is its low fence and not stored a second time: the
//!   record's key suffix is empty. All other separators are above it, so the record stays in slot 0 until it
//!   is the last one.
//!
//! Failure: bytes from disk that are not what was written give `Error::Corrupt`, never a panic.

mod edit;
mod header;
mod inner;
mod op;
mod slotted;
mod stored;
#[cfg(test)]
mod tests;

pub use header::{
    PAGE_HEADER, PageType, is_zero, page_id, page_lsn, page_type, seal, set_page_lsn, verify,
};
pub use inner::{ChildRef, InnerImage, PageHint};
pub use op::{BulkRecs, BulkRecsBuilder, PageOp};
pub use slotted::{
    OFF_USER, SLOT_SIZE, SlottedRef, common_prefix_len, push_record_parts, record_parts, validate,
    validate_keys,
};
pub use stored::{
    Algorithm, CipherOf, Compression, Compressor, Sealing, Stored, key_version, load, load_with,
    place_bytes, seal_with,
};

/// The smallest and largest page sizes; sizes are powers of two.
pub const MIN_PAGE_SIZE: usize = 4096;
pub const MAX_PAGE_SIZE: usize = 65536;

/// Bytes that a record takes in a slotted page: slot, key length, key, payload. The key is counted in full;
/// what the page's prefix saves is a bonus.
pub const fn record_cost(key_len: usize, payload_len: usize) -> usize {
    SLOT_SIZE + slotted::KLEN_SIZE + key_len + payload_len
}

/// The least bytes that a record takes.
pub const MIN_RECORD_COST: usize = record_cost(0, 0);

/// Bytes of a child's page number in an inner page.
pub const CHILD_BYTES: usize = 4;

/// The longest key on a page of any size, in bytes: with longer ones the redo of a split at all levels of a
/// tree had no place in one mini-transaction (`btree::split`).
pub const LONGEST_KEY: usize = 4033;

/// The longest key, in bytes. An inner page takes three children, however long its keys are (`btree`, BT-7).
/// It stores both fences and the separators of all children but the first (PG-5), with `k` bytes each at most
///
/// ```text
/// 2 k  +  record_cost(0, 4)  +  2 record_cost(k, 4)  =  4 k + 42
/// ```
///
/// which must not be more than the page without its header, `page_size - 88`.
pub const fn max_key(page_size: usize) -> usize {
    let quarter = page_size / 4 - 63;
    if quarter < LONGEST_KEY {
        quarter
    } else {
        LONGEST_KEY
    }
}

/// Bytes that the history store adds to the key of a row or an entry, and to both key and payload: what fits
/// into a tree of a table has a place in the store (`history`).
pub const VERSION_KEY_BYTES: usize = 8;
pub const VERSION_BYTES: usize = VERSION_KEY_BYTES + 15;

const _: () = {
    let mut size = MIN_PAGE_SIZE;
    while size <= MAX_PAGE_SIZE {
        let key = max_key(size) + VERSION_KEY_BYTES;
        let three = record_cost(0, CHILD_BYTES) + 2 * record_cost(key, CHILD_BYTES);
        assert!(2 * key + three <= size - OFF_USER);
        let record = max_record(size) + VERSION_BYTES;
        assert!(2 * key + record_cost(0, record) <= size - OFF_USER);
        size *= 2;
    }
};

/// The largest key plus payload, in bytes: a leaf holds one such record beside two fences of `max_key`.
pub const fn max_record(page_size: usize) -> usize {
    (page_size - 256) / 2 - 64
}
