//! The 48 bytes in front of every page, and the checksum over what is stored.
//!
//! | offset | field | |
//! |---|---|---|
//! | 0 | crc32c u32 | of bytes 4 to the end of what is stored |
//! | 4 | space u32, 8 page number u32 | a page written to the wrong place is detected |
//! | 12 | type u8 | [`PageType`] |
//! | 13 | algorithm u8, 14 flags u16 | 0: stored as it is; others: how it is compressed (`stored.rs`) |
//! | 16 | page LSN u64 | end LSN of the last mini-transaction that changed the page |
//! | 24 | stored length u32 | page size of a page that is stored as it is |
//! | 28 | 20 bytes | zero |
//!
//! An **encrypted** page, which has the highest bit of `algorithm` set, is stored with another header. It
//! says nothing of its address, which the checksum and the tag are about all the same, and has in these
//! places what decrypting takes:
//!
//! | offset | field |
//! |---|---|
//! | 0 | crc32c u32 of the address, as above, and bytes 4 to the end of what is stored |
//! | 4 | the tag's first 8 bytes |
//! | 12 | type u8, 13 algorithm u8 |
//! | 14 | stored length u16; 0: the page size |
//! | 16 | page LSN u64 |
//! | 24 | 4 more bytes of the tag |
//! | 28 | key version u32, 32 nonce 12 bytes |
//! | 44 | the tag's last 4 bytes |

use crate::base::{Error, Lsn, PageId, PageNo, Result, SpaceId};
use crate::encryption::{NONCE_BYTES, TAG_BYTES};

pub const PAGE_HEADER: usize = 48;

const OFF_CRC: usize = 0;
const OFF_SPACE: usize = 4;
const OFF_NO: usize = 8;
const OFF_TYPE: usize = 12;
const OFF_ALGORITHM: usize = 13;
const OFF_SHORT_LEN: usize = 14;
const OFF_LSN: usize = 16;
const OFF_STORED_LEN: usize = 24;
const OFF_KEY_VERSION: usize = 28;
const OFF_NONCE: usize = 32;
const OFF_LAST_OF_TAG: usize = 44;

/// In `algorithm`: the page is encrypted.
const ENCRYPTED: u8 = 0x80;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PageType {
    /// Never written: all bytes are zero.
    Unused = 0,
    FileHeader = 1,
    Alloc = 2,
    Leaf = 3,
    Inner = 4,
    /// Was in use, is free now.
    Free = 5,
    RsegHeader = 6,
    /// The first page of an undo log.
    UndoLog = 7,
    UndoPage = 8,
    History = 9,
    UndoDir = 10,
    Overflow = 11,
    Raw = 12,
    /// A free page of a rollback segment that lists others.
    UndoFree = 13,
}

impl PageType {
    pub const fn from_u8(v: u8) -> Option<PageType> {
        Some(match v {
            0 => PageType::Unused,
            1 => PageType::FileHeader,
            2 => PageType::Alloc,
            3 => PageType::Leaf,
            4 => PageType::Inner,
            5 => PageType::Free,
            6 => PageType::RsegHeader,
            7 => PageType::UndoLog,
            8 => PageType::UndoPage,
            9 => PageType::History,
            10 => PageType::UndoDir,
            11 => PageType::Overflow,
            12 => PageType::Raw,
            13 => PageType::UndoFree,
            _ => return None,
        })
    }

    /// A rollback segment's.
    pub const fn is_undo(self) -> bool {
        use PageType::*;
        matches!(self, RsegHeader | UndoLog | UndoPage | History | UndoFree)
    }

    /// The body is a slotted page.
    pub const fn is_slotted(self) -> bool {
        matches!(
            self,
            PageType::Leaf | PageType::Inner | PageType::UndoLog | PageType::UndoPage
        )
    }
}

#[inline]
pub(super) fn get_u16(b: &[u8], off: usize) -> u16 {
    let mut w = [0; 2];
    w.copy_from_slice(&b[off..off + 2]);
    u16::from_le_bytes(w)
}

#[inline]
pub(super) fn get_u32(b: &[u8], off: usize) -> u32 {
    let mut w = [0; 4];
    w.copy_from_slice(&b[off..off + 4]);
    u32::from_le_bytes(w)
}

#[inline]
pub(super) fn get_u64(b: &[u8], off: usize) -> u64 {
    let mut w = [0; 8];
    w.copy_from_slice(&b[off..off + 8]);
    u64::from_le_bytes(w)
}

#[inline]
pub(super) fn put_u16(b: &mut [u8], off: usize, v: u16) {
    b[off..off + 2].copy_from_slice(&v.to_le_bytes());
}

#[inline]
pub(super) fn put_u32(b: &mut [u8], off: usize, v: u32) {
    b[off..off + 4].copy_from_slice(&v.to_le_bytes());
}

#[inline]
pub(super) fn put_u64(b: &mut [u8], off: usize, v: u64) {
    b[off..off + 8].copy_from_slice(&v.to_le_bytes());
}

/// The page's type; an unknown type byte reads as `None`.
#[inline]
pub fn page_type(page: &[u8]) -> Option<PageType> {
    PageType::from_u8(page[OFF_TYPE])
}

#[inline]
pub(super) fn set_page_type(page: &mut [u8], t: PageType) {
    page[OFF_TYPE] = t as u8;
}

#[inline]
pub fn page_lsn(page: &[u8]) -> Lsn {
    Lsn(get_u64(page, OFF_LSN))
}

/// Stamps the end LSN of the mini-transaction that changed the page. Called at its commit, and by replay.
#[inline]
pub fn set_page_lsn(page: &mut [u8], lsn: Lsn) {
    put_u64(page, OFF_LSN, lsn.0);
}

/// The address that the page says it has.
#[inline]
pub fn page_id(page: &[u8]) -> PageId {
    PageId::new(
        SpaceId(get_u32(page, OFF_SPACE)),
        PageNo(get_u32(page, OFF_NO)),
    )
}

pub(super) fn set_page_id(page: &mut [u8], id: PageId) {
    put_u32(page, OFF_SPACE, id.space.0);
    put_u32(page, OFF_NO, id.no.0);
}

/// How the page is compressed; 0: not at all.
pub(super) fn algorithm(page: &[u8]) -> u8 {
    page[OFF_ALGORITHM] & !ENCRYPTED
}

pub(super) fn is_encrypted(page: &[u8]) -> bool {
    page[OFF_ALGORITHM] & ENCRYPTED != 0
}

/// Bytes that are stored of a page whose checksum is right.
pub(super) fn stored_len(page: &[u8]) -> usize {
    match (is_encrypted(page), get_u16(page, OFF_SHORT_LEN)) {
        (false, _) => get_u32(page, OFF_STORED_LEN) as usize,
        (true, 0) => page.len(),
        (true, len) => len.into(),
    }
}

/// Computes the checksum over the bytes as they will be stored. The last step before a write.
pub fn seal(page: &mut [u8]) {
    set_stored(page, 0, page.len());
    put_checksum(page, page_id(page));
}

/// The first `len` bytes of the page are stored, compressed in this way.
pub(super) fn set_stored(page: &mut [u8], algorithm: u8, len: usize) {
    page[OFF_ALGORITHM] = algorithm;
    put_u32(page, OFF_STORED_LEN, len as u32);
}

pub(super) fn put_checksum(page: &mut [u8], id: PageId) {
    let crc = checksum(page, id);
    put_u32(page, OFF_CRC, crc);
}

/// What an encrypted page's header has.
pub(super) struct Lock {
    pub key_version: u32,
    pub nonce: [u8; NONCE_BYTES],
    pub tag: [u8; TAG_BYTES],
}

/// What is authenticated with a page's bytes: address, type, algorithm, stored length, LSN, key version.
pub(super) const BESIDE_BYTES: usize = 24;

/// Makes the header that of an encrypted page, but for nonce and tag, and returns what is authenticated.
pub(super) fn begin_lock(page: &mut [u8], id: PageId, key_version: u32) -> [u8; BESIDE_BYTES] {
    let len = stored_len(page);
    let short = match len == page.len() {
        true => 0,
        false => u16::try_from(len).expect("a compressed page is shorter than 64 KiB"),
    };
    page[OFF_ALGORITHM] |= ENCRYPTED;
    put_u16(page, OFF_SHORT_LEN, short);
    put_u32(page, OFF_KEY_VERSION, key_version);
    beside(page, id)
}

pub(super) fn put_lock(page: &mut [u8], lock: &Lock) {
    page[OFF_SPACE..OFF_TYPE].copy_from_slice(&lock.tag[..8]);
    page[OFF_STORED_LEN..OFF_KEY_VERSION].copy_from_slice(&lock.tag[8..12]);
    page[OFF_NONCE..OFF_LAST_OF_TAG].copy_from_slice(&lock.nonce);
    page[OFF_LAST_OF_TAG..PAGE_HEADER].copy_from_slice(&lock.tag[12..]);
}

pub(super) fn lock_of(page: &[u8]) -> Lock {
    let mut tag = [0; TAG_BYTES];
    tag[..8].copy_from_slice(&page[OFF_SPACE..OFF_TYPE]);
    tag[8..12].copy_from_slice(&page[OFF_STORED_LEN..OFF_KEY_VERSION]);
    tag[12..].copy_from_slice(&page[OFF_LAST_OF_TAG..PAGE_HEADER]);
    let nonce = page[OFF_NONCE..OFF_LAST_OF_TAG].try_into();
    Lock {
        key_version: get_u32(page, OFF_KEY_VERSION),
        nonce: nonce.expect("12 bytes"),
        tag,
    }
}

pub(super) fn beside(page: &[u8], id: PageId) -> [u8; BESIDE_BYTES] {
    let mut beside = [0; BESIDE_BYTES];
    beside[..8].copy_from_slice(&address(id));
    beside[8..20].copy_from_slice(&page[OFF_TYPE..OFF_STORED_LEN]);
    beside[20..].copy_from_slice(&page[OFF_KEY_VERSION..OFF_NONCE]);
    beside
}

/// Makes the header again that of a page that is not encrypted. Its bytes are decrypted.
pub(super) fn end_lock(page: &mut [u8], id: PageId) {
    let len = stored_len(page);
    page[OFF_ALGORITHM] &= !ENCRYPTED;
    put_u16(page, OFF_SHORT_LEN, 0);
    set_page_id(page, id);
    put_u32(page, OFF_STORED_LEN, len as u32);
    page[OFF_KEY_VERSION..PAGE_HEADER].fill(0);
}

/// As it stands in a page's header.
fn address(id: PageId) -> [u8; 8] {
    let mut address = [0; 8];
    address[..4].copy_from_slice(&id.space.0.to_le_bytes());
    address[4..].copy_from_slice(&id.no.0.to_le_bytes());
    address
}

/// The page is not compressed any more.
pub(super) fn set_whole(page: &mut [u8]) {
    page[OFF_ALGORITHM] = 0;
    put_u32(page, OFF_STORED_LEN, page.len() as u32);
}

/// Over what is stored of the page with this address. What is damaged may say anything.
fn checksum(page: &[u8], id: PageId) -> u32 {
    let stored = match algorithm(page) {
        0 => page.len(),
        _ => stored_len(page).clamp(PAGE_HEADER, page.len()),
    };
    let address = match is_encrypted(page) {
        true => crc32c::crc32c(&address(id)),
        // It is in the page.
        false => 0,
    };
    crc32c::crc32c_append(address, &page[OFF_SPACE..stored])
}

/// All bytes are zero: a page that was never written, for example in a file that was just extended.
pub fn is_zero(page: &[u8]) -> bool {
    let (words, rest) = page.as_chunks::<64>();
    words.iter().all(|w| w == &[0; 64]) && rest.iter().all(|&b| b == 0)
}

/// Checks what was read from `id`: checksum, address, known type. An all-zero page is a valid unused one.
pub fn verify(page: &[u8], id: PageId) -> Result<()> {
    let stored = get_u32(page, OFF_CRC);
    let computed = checksum(page, id);
    if stored != computed {
        if is_zero(page) {
            return Ok(());
        }
        return Err(Error::corrupt(
            id,
            format!("checksum {stored:08x}"),
            format!("{computed:08x}"),
        ));
    }
    if !is_encrypted(page) && page_id(page) != id {
        let found = format!("the page of {}", page_id(page));
        return Err(Error::corrupt(id, "its own address in the header", found));
    }
    let len = stored_len(page);
    let is_whole = algorithm(page) == 0;
    if is_whole && len != page.len() || !is_whole && !(PAGE_HEADER..page.len()).contains(&len) {
        let expected = match is_whole {
            true => format!("stored length {}", page.len()),
            false => format!("a stored length of {PAGE_HEADER} to {}", page.len()),
        };
        return Err(Error::corrupt(id, expected, len.to_string()));
    }
    if page_type(page).is_none() {
        return Err(Error::corrupt(
            id,
            "a known page type",
            format!("type {}", page[OFF_TYPE]),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_page_verifies_and_every_damaged_byte_is_noticed() {
        let id = PageId::new(SpaceId(3), PageNo(9));
        let mut page = vec![0u8; 4096];
        verify(&page, id).expect("an all-zero page is an unused one");
        set_page_type(&mut page, PageType::Raw);
        set_page_id(&mut page, id);
        page[100] = 7;
        seal(&mut page);
        verify(&page, id).expect("just sealed");
        assert!(verify(&page, PageId::new(SpaceId(3), PageNo(8))).is_err());
        for at in [0, 5, 12, 20, 100, 4095] {
            let mut bad = page.clone();
            bad[at] ^= 1;
            assert!(
                matches!(verify(&bad, id), Err(Error::Corrupt { .. })),
                "byte {at}"
            );
        }
    }

    #[test]
    fn types_round_trip() {
        for v in 0..=255u8 {
            if let Some(t) = PageType::from_u8(v) {
                assert_eq!(t as u8, v);
            }
        }
        assert!(PageType::from_u8(14).is_none());
    }
}
