//! Blocks of an index, with the entries of pages that follow each other.
//!
//! A block has about [`BLOCK_BYTES`], or one entry that is longer. It can be decoded alone. All numbers are
//! varints (base/varint.rs), LSNs and lengths of frames in units of 8:
//!
//! ```text
//! the LSN from which the first frame of each entry is counted
//! entries, ascending by page:
//!   the page, tablespace in the upper half: the difference to the entry before; the first one's as it is
//!   bytes of the rest of the entry
//!   frames, one at least, in the order of the log:
//!     LSN of the frame's start: the difference to the one before in the entry; the first one's to the block's LSN
//!     twice the frame's length, plus 1 if the change itself follows:
//!       bytes of operations
//!       the operations (page/op.rs); the page does not start as zeros there (IDX-3)
//! ```
//!
//! Where the log file is encrypted, a block is encrypted by the cipher of its generation, with a random
//! nonce of 12 bytes, whose last bit is set, and the tag of 16 bytes behind it, and its first page
//! authenticated with it.
//!
//! A frame that stands with several changes in an entry has each of them with a head of its own. Pure
//! functions; bytes from disk never panic.

use std::sync::Arc;

use crate::base::{Lsn, PageId, varint};
use crate::encryption::{Cipher, NONCE_BYTES, TAG_BYTES, random};
use crate::recovery::chain::{Change, LSN_UNIT};
use crate::redo::MAX_FRAME_BYTES;

/// Bytes of a block, about: what is read to find one entry.
pub const BLOCK_BYTES: usize = 8 << 10;

/// What an entry says of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexedFrame<'a> {
    /// It changes the page, and is to be read from the log.
    At { start: Lsn, end: Lsn },
    /// A change that it makes.
    Change(Change<'a>),
}

/// The frames of an entry, as it is encoded.
#[derive(Default)]
pub struct EntryWriter {
    bytes: Vec<u8>,
    /// Where the last frame starts, in units from the block's LSN.
    before: u64,
}

impl EntryWriter {
    /// Start and length of a frame in units, the start from the block's LSN; and the operations of a change.
    pub fn put(&mut self, start: u64, len: u64, ops: Option<&[u8]>) {
        let units = start.checked_sub(self.before);
        let units = units.expect("IDX-2: in the order of the log");
        varint::put(&mut self.bytes, units);
        varint::put(&mut self.bytes, len << 1 | u64::from(ops.is_some()));
        if let Some(ops) = ops {
            varint::put(&mut self.bytes, ops.len() as u64);
            self.bytes.extend_from_slice(ops);
        }
        self.before = start;
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.before = 0;
    }
}

/// Blocks as they are written, one behind the other, and their directory.
pub struct BlockWriter {
    /// In units.
    base: u64,
    out: Vec<u8>,
    /// Where the open block begins in `out`.
    begin: usize,
    /// First and last page of the open block.
    pages: Option<(u64, u64)>,
    directory: Vec<u8>,
    /// The first page of the block before.
    listed: u64,
    cipher: Option<Arc<Cipher>>,
}

impl BlockWriter {
    /// Entries count from `base`. Blocks are put behind what `out` has.
    pub fn new(base: Lsn, out: Vec<u8>, cipher: Option<Arc<Cipher>>) -> BlockWriter {
        assert!(base.0.is_multiple_of(LSN_UNIT), "a frame starts at {base}");
        BlockWriter {
            base: base.0 / LSN_UNIT,
            begin: out.len(),
            out,
            pages: None,
            directory: Vec::new(),
            listed: 0,
            cipher,
        }
    }

    /// The entry of the next page. Empties it.
    pub fn add(&mut self, page: u64, entry: &mut EntryWriter) {
        const MOST_HEAD: usize = 2 * varint::MOST_BYTES;
        let len = self.out.len() - self.begin + MOST_HEAD + entry.bytes.len();
        if len > BLOCK_BYTES {
            self.close();
        }
        let (first, before) = self.pages.unwrap_or((page, 0));
        if self.pages.is_none() {
            varint::put(&mut self.out, self.base);
        } else {
            assert!(before < page, "IDX-2: one entry for each page, ascending");
        }
        varint::put(&mut self.out, page - before);
        varint::put(&mut self.out, entry.bytes.len() as u64);
        self.out.extend_from_slice(&entry.bytes);
        entry.clear();
        self.pages = Some((first, page));
    }

    fn close(&mut self) {
        let Some((first, _)) = self.pages.take() else {
            return;
        };
        if let Some(cipher) = &self.cipher {
            let nonce = block_nonce();
            let tag = cipher.encrypt(nonce, &first.to_le_bytes(), &mut self.out[self.begin..]);
            self.out.extend_from_slice(&nonce);
            self.out.extend_from_slice(&tag);
        }
        let block = &self.out[self.begin..];
        varint::put(&mut self.directory, first - self.listed);
        varint::put(&mut self.directory, block.len() as u64);
        let crc = crc32c::crc32c(block);
        self.directory.extend_from_slice(&crc.to_le_bytes());
        self.listed = first;
        self.begin = self.out.len();
    }

    /// The bytes that `new` was given, with the blocks behind them, and the directory.
    pub fn finish(mut self) -> (Vec<u8>, Vec<u8>) {
        self.close();
        (self.out, self.directory)
    }
}

/// ENC-1: no frame's nonce, which is an LSN and zeros, has a last bit.
fn block_nonce() -> [u8; NONCE_BYTES] {
    let mut nonce: [u8; NONCE_BYTES] = random();
    nonce[NONCE_BYTES - 1] |= 1;
    nonce
}

/// Decrypts a block in its place, whose first page is this one. Returns how long it is then; `None`: it is
/// not what was encrypted.
pub fn decrypt_block(cipher: &Cipher, first: u64, stored: &mut [u8]) -> Option<usize> {
    let len = stored.len().checked_sub(NONCE_BYTES + TAG_BYTES)?;
    let (block, seal) = stored.split_at_mut(len);
    let (nonce, tag) = seal.split_at(NONCE_BYTES);
    let (nonce, tag) = (nonce.try_into().ok()?, tag.try_into().ok()?);
    cipher
        .decrypt(nonce, &first.to_le_bytes(), tag, block)
        .then_some(len)
}

/// What a block says of a page, in the order of the log; nothing if the page has no entry in it. `None`: no
/// block consists of these bytes. The caller has checked that they are the block's (IDX-4).
pub fn decode_block(mut bytes: &[u8], page: PageId) -> Option<Vec<IndexedFrame<'_>>> {
    let base = varint::take(&mut bytes)?;
    let mut at = 0u64;
    while !bytes.is_empty() {
        at = at.checked_add(varint::take(&mut bytes)?)?;
        let len = usize::try_from(varint::take(&mut bytes)?).ok()?;
        let (entry, rest) = bytes.split_at_checked(len)?;
        if at >= page.to_u64() {
            return match at == page.to_u64() {
                true => decode_entry(entry, base, page),
                false => Some(Vec::new()),
            };
        }
        bytes = rest;
    }
    Some(Vec::new())
}

fn decode_entry(mut entry: &[u8], base: u64, page: PageId) -> Option<Vec<IndexedFrame<'_>>> {
    let (mut found, mut at) = (Vec::new(), base);
    while !entry.is_empty() {
        at = at.checked_add(varint::take(&mut entry)?)?;
        let len = varint::take(&mut entry)?;
        let (start, end) = extent(at, len >> 1)?;
        found.push(match len & 1 {
            0 => IndexedFrame::At { start, end },
            _ => IndexedFrame::Change(Change {
                page,
                start,
                end,
                fresh: false,
                ops: take_ops(&mut entry)?,
            }),
        });
    }
    (!found.is_empty()).then_some(found)
}

/// Start and end of a frame that are told in units; `None` if no frame has that length or place.
fn extent(start: u64, len: u64) -> Option<(Lsn, Lsn)> {
    let most = u64::from(MAX_FRAME_BYTES) / LSN_UNIT;
    let start = start.checked_mul(LSN_UNIT)?;
    let len = (1..=most).contains(&len).then_some(len * LSN_UNIT)?;
    Some((Lsn(start), Lsn(start.checked_add(len)?)))
}

fn take_ops<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(varint::take(bytes)?).ok()?;
    let (ops, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    (!ops.is_empty()).then_some(ops)
}
