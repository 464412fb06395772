//! The stored form of a page: with its checksum, and compressed and encrypted where its tablespace wants
//! that.
//!
//! A compressed page keeps its header, which says how it is compressed and how many bytes are stored: the
//! header's and those of one LZ4 block or one Zstandard frame, which is the rest of the page. It stands where
//! the page would, and takes whole blocks of [`DIRECT_BLOCK`] there ([`place_bytes`]). What is behind them in
//! the page's place means nothing; its owner gives it back to the file system (`space/compressed.rs`).
//!
//! An encrypted page has all bytes behind its header encrypted, after they were compressed, and in the header
//! what decrypting takes (`header.rs`). What is authenticated with them is where the page is, so that one
//! that was put in another's place is told from it (ENC-2).
//!
//! In memory no page is compressed or encrypted, so that nobody else has to know of it: [`seal_with`] is the
//! last step before a write, and [`load_with`] the first one after a read.
//!
//! - **PG-6** What [`load_with`] makes of a sealed page is what was sealed, whether or not it was compressed
//!   or encrypted.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use super::header::{
    self, Lock, PAGE_HEADER, PageType, algorithm, is_encrypted, page_type, put_checksum,
    set_stored, set_whole, stored_len, verify,
};
use super::{validate, validate_keys};
use crate::base::{Error, PageId, Result};
use crate::encryption::{Cipher, random};
use crate::io::DIRECT_BLOCK;

/// How to compress.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Algorithm {
    /// Quick to compress, and very quick to expand.
    Lz4 = 1,
    /// Smaller pages for more of the processor's time.
    Zstd = 2,
}

impl Algorithm {
    pub const fn from_u8(v: u8) -> Option<Algorithm> {
        match v {
            1 => Some(Algorithm::Lz4),
            2 => Some(Algorithm::Zstd),
            _ => None,
        }
    }
}

/// How the pages of a table are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Compression {
    pub algorithm: Algorithm,
    /// Of Zstandard, 1 to [`Compression::MAX_LEVEL`]; LZ4 has one level, 1.
    pub level: u8,
}

impl Compression {
    pub const MAX_LEVEL: u8 = 22;

    pub const LZ4: Compression = Compression {
        algorithm: Algorithm::Lz4,
        level: 1,
    };

    pub const fn zstd(level: u8) -> Compression {
        Compression {
            algorithm: Algorithm::Zstd,
            level,
        }
    }

    /// From its stored form; `None` if there is no such compression.
    pub fn from_bytes([algorithm, level]: [u8; 2]) -> Option<Compression> {
        let algorithm = Algorithm::from_u8(algorithm)?;
        let is_level = (1..=Compression::MAX_LEVEL).contains(&level);
        is_level.then_some(Compression { algorithm, level })
    }

    pub fn is_valid(self) -> bool {
        Compression::from_bytes(self.to_bytes()) == Some(self)
    }

    pub const fn to_bytes(self) -> [u8; 2] {
        [self.algorithm as u8, self.level]
    }
}

/// What compressing takes again and again.
#[derive(Default)]
pub struct Compressor {
    compressed: Vec<u8>,
    /// Of the level that it was made for.
    zstd: Option<(u8, zstd::bulk::Compressor<'static>)>,
}

impl Compressor {
    /// Bytes of `page` in `self.compressed`; `None` if they are too many.
    fn compress(&mut self, page: &[u8], with: Compression, most: usize) -> Option<usize> {
        let room = match with.algorithm {
            // It asks for the room that it takes at worst.
            Algorithm::Lz4 => lz4_flex::block::get_maximum_output_size(page.len()),
            Algorithm::Zstd => most,
        };
        self.compressed.resize(room, 0);
        let out = &mut self.compressed[..];
        let bytes = match with.algorithm {
            Algorithm::Lz4 => lz4_flex::block::compress_into(page, out).ok()?,
            Algorithm::Zstd => {
                let made_for = self.zstd.as_ref().map(|(level, _)| *level);
                if made_for != Some(with.level) {
                    let made = zstd::bulk::Compressor::new(with.level.into()).ok()?;
                    self.zstd = Some((with.level, made));
                }
                let (_, zstd) = self.zstd.as_mut()?;
                zstd.compress_to_buffer(page, out).ok()?
            }
        };
        (bytes <= most).then_some(bytes)
    }
}

/// Pages of this type are not stored as they are. Those that say what a file is, and which of its pages are
/// in use, are: they are read and written by themselves, too. Nor are pages that were never used.
fn may_differ(page: &[u8]) -> bool {
    !matches!(
        page_type(page),
        None | Some(PageType::FileHeader | PageType::Alloc | PageType::Unused)
    )
}

/// How pages of a tablespace are stored.
#[derive(Default)]
pub struct Sealing<'a> {
    /// With what it takes.
    pub compression: Option<(Compression, &'a mut Compressor)>,
    pub cipher: Option<&'a Cipher>,
}

/// Makes the page its stored form: compressed, if that saves a block or more, then encrypted.
pub fn seal_with(page: &mut [u8], id: PageId, how: Sealing<'_>) -> Stored {
    set_whole(page);
    if may_differ(page) {
        if let Some((with, compressor)) = how.compression {
            compress(page, with, compressor);
        }
        if let Some(cipher) = how.cipher {
            encrypt(page, id, cipher);
        }
    }
    put_checksum(page, id);
    stored(page)
}

fn compress(page: &mut [u8], with: Compression, compressor: &mut Compressor) {
    let body = &mut page[PAGE_HEADER..];
    let most = body.len().saturating_sub(DIRECT_BLOCK);
    if most == 0 {
        return;
    }
    if let Some(bytes) = compressor.compress(body, with, most) {
        body[..bytes].copy_from_slice(&compressor.compressed[..bytes]);
        body[bytes..].fill(0);
        set_stored(page, with.algorithm as u8, PAGE_HEADER + bytes);
    }
}

/// ENC-1: with a nonce of its own.
fn encrypt(page: &mut [u8], id: PageId, cipher: &Cipher) {
    let len = stored_len(page);
    let beside = header::begin_lock(page, id, cipher.version());
    let nonce = random();
    let lock = Lock {
        key_version: cipher.version(),
        nonce,
        tag: cipher.encrypt(nonce, &beside, &mut page[PAGE_HEADER..len]),
    };
    header::put_lock(page, &lock);
}

/// The version of the key with which a page is stored whose checksum is right; 0: in clear. `None` of one
/// that is never encrypted.
pub fn key_version(page: &[u8]) -> Option<u32> {
    may_differ(page).then(|| match is_encrypted(page) {
        true => header::lock_of(page).key_version,
        false => 0,
    })
}

/// Bytes that a sealed page takes in its place, from its beginning on.
pub fn place_bytes(page: &[u8]) -> usize {
    match algorithm(page) {
        0 => page.len(),
        // Of nonsense, which tests store, all.
        _ => stored_len(page)
            .next_multiple_of(DIRECT_BLOCK)
            .min(page.len()),
    }
}

/// How a page was stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    pub compressed: bool,
    pub encrypted: bool,
}

fn stored(page: &[u8]) -> Stored {
    Stored {
        compressed: algorithm(page) != 0,
        encrypted: is_encrypted(page),
    }
}

/// Gives the cipher of a key version, for a page that is encrypted with it.
pub type CipherOf<'a> = &'a mut dyn FnMut(u32) -> Result<Arc<Cipher>>;

/// Makes of what was read from `id` the page that it is, if it is whole: no accessor panics on it (PG-2).
///
/// # Errors
///
/// `NoKey`: it can't be decrypted.
pub fn load_with(page: &mut [u8], id: PageId, cipher_of: CipherOf<'_>) -> Result<Stored> {
    verify(page, id)?;
    let stored = stored(page);
    if stored.encrypted {
        decrypt(page, id, cipher_of)?;
    }
    if stored.compressed {
        expand(page).map_err(|e| Error::corrupt(id, "a page that can be expanded", e))?;
    }
    validate(page, id)?;
    validate_keys(page, id)?;
    Ok(stored)
}

/// The same of a page that is not encrypted.
pub fn load(page: &mut [u8], id: PageId) -> Result<Stored> {
    load_with(page, id, &mut |version| {
        let what = format!("{id} is encrypted with version {version} of its key");
        Err(Error::NoKey { what })
    })
}

fn decrypt(page: &mut [u8], id: PageId, cipher_of: CipherOf<'_>) -> Result<()> {
    let lock = header::lock_of(page);
    let beside = header::beside(page, id);
    let cipher = cipher_of(lock.key_version)?;
    let len = stored_len(page);
    let body = &mut page[PAGE_HEADER..len];
    if !cipher.decrypt(lock.nonce, &beside, lock.tag, body) {
        let version = lock.key_version;
        return Err(Error::NoKey {
            what: format!(
                "{id} can't be decrypted with version {version} of its key: that is another key now, or the page was changed or put there from elsewhere"
            ),
        });
    }
    header::end_lock(page, id);
    Ok(())
}

/// What expanding takes again and again.
#[derive(Default)]
struct Expander {
    expanded: Vec<u8>,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Expander {
    /// Fills what is expanded, and returns how many bytes that are.
    fn expand(&mut self, compressed: &[u8], by: Algorithm) -> io::Result<usize> {
        let out = &mut self.expanded[..];
        match by {
            Algorithm::Lz4 => {
                lz4_flex::block::decompress_into(compressed, out).map_err(io::Error::other)
            }
            Algorithm::Zstd => {
                let zstd = match &mut self.zstd {
                    Some(made) => made,
                    none => none.insert(zstd::bulk::Decompressor::new()?),
                };
                zstd.decompress_to_buffer(compressed, out)
            }
        }
    }
}

thread_local! {
    static EXPANDER: RefCell<Expander> = RefCell::default();
}

/// A compressed page, whose checksum is right.
fn expand(page: &mut [u8]) -> std::result::Result<(), String> {
    let len = page.len() - PAGE_HEADER;
    let found = Algorithm::from_u8(algorithm(page)).ok_or("an unknown algorithm")?;
    EXPANDER.with_borrow_mut(|expander| {
        expander.expanded.resize(len, 0);
        let compressed = &page[PAGE_HEADER..stored_len(page)];
        let bytes = expander.expand(compressed, found);
        let bytes = bytes.map_err(|e| e.to_string())?;
        if bytes != len {
            return Err(format!("{bytes} bytes"));
        }
        page[PAGE_HEADER..].copy_from_slice(&expander.expanded);
        set_whole(page);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{PageNo, SpaceId};
    use crate::page::{PageOp, page_id};

    const ALL: [Compression; 3] = [
        Compression::LZ4,
        Compression::zstd(1),
        Compression::zstd(19),
    ];

    fn id() -> PageId {
        PageId::new(SpaceId(3), PageNo(9))
    }

    /// A raw page whose first `noise` bytes can't be compressed.
    fn sample(size: usize, noise: usize) -> Vec<u8> {
        let mut page = vec![0; size];
        let ptype = PageType::Raw;
        PageOp::FormatRaw { ptype }.apply(&mut page, id()).unwrap();
        let mut x = 1u64;
        for b in page[PAGE_HEADER..].iter_mut().take(noise) {
            x = x
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            *b = (x >> 33) as u8;
        }
        page
    }

    fn cipher(version: u32) -> Arc<Cipher> {
        Arc::new(Cipher::derive(&[9; 16], b"salt", b"purpose", version))
    }

    /// Stores the page and loads it again, with what is behind its bytes in its place overwritten.
    fn there_and_back(page: &[u8], sealing: Sealing<'_>) -> (usize, Vec<u8>) {
        let mut stored = page.to_vec();
        let is_encrypted = sealing.cipher.is_some();
        seal_with(&mut stored, id(), sealing);
        let place = place_bytes(&stored);
        assert!(place.is_multiple_of(DIRECT_BLOCK) && place > 0);
        stored[place..].fill(0xa5);
        let cipher_of = &mut |version| Ok(cipher(version));
        let how = load_with(&mut stored, id(), cipher_of).unwrap();
        let compressed = place < page.len();
        let encrypted = is_encrypted;
        assert_eq!((how.compressed, how.encrypted), (compressed, encrypted));
        (place, stored)
    }

    /// PG-6: whatever is behind a page's bytes in its place.
    #[test]
    fn pages_come_back_as_they_were() {
        let mut compressor = Compressor::default();
        let cipher = cipher(7);
        let ways = ALL.map(Some).into_iter().chain([None]);
        for (with, cipher) in ways.flat_map(|with| [(with, None), (with, Some(&*cipher))]) {
            for size in [4096, 8192, 16384, 32768, 65536] {
                for eighths in 0..=8 {
                    let page = sample(size, size * eighths / 8);
                    let compression = with.map(|with| (with, &mut compressor));
                    let sealing = Sealing {
                        compression,
                        cipher,
                    };
                    let (place, loaded) = there_and_back(&page, sealing);
                    let is_smaller = place < size;
                    let is_dense = eighths * size / 8 + DIRECT_BLOCK + 256 > size;
                    assert!(is_smaller || is_dense || with.is_none());
                    let mut whole = page;
                    header::seal(&mut whole);
                    assert_eq!(loaded[4..], whole[4..]);
                    assert_eq!(page_id(&loaded), id());
                }
            }
        }
    }

    fn sealed(page: &[u8], with: Option<Compression>, cipher: Option<&Cipher>) -> Vec<u8> {
        let mut stored = page.to_vec();
        let mut compressor = Compressor::default();
        let compression = with.map(|with| (with, &mut compressor));
        let sealing = Sealing {
            compression,
            cipher,
        };
        seal_with(&mut stored, id(), sealing);
        stored
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let cipher_of = &mut |version| Ok(cipher(version));
        for with in ALL {
            for cipher in [None, Some(&*cipher(7))] {
                let stored = sealed(&sample(16384, 6000), Some(with), cipher);
                assert!(place_bytes(&stored) < stored.len());
                for at in 0..stored_len(&stored) {
                    let mut bad = stored.clone();
                    bad[at] ^= 0x40;
                    let found = load_with(&mut bad, id(), cipher_of);
                    assert!(matches!(found, Err(Error::Corrupt { .. })), "byte {at}");
                }
            }
        }
    }

    /// ENC-1: what is written twice looks different each time, and none of it like the page.
    #[test]
    fn an_encrypted_page_shows_nothing() {
        let page = sample(16384, 0);
        let cipher = cipher(7);
        let stored = [(); 2].map(|()| sealed(&page, None, Some(&cipher)));
        let same = |a: &[u8], b: &[u8]| {
            let rest = a[PAGE_HEADER..].iter().zip(&b[PAGE_HEADER..]);
            rest.filter(|(a, b)| a == b).count()
        };
        assert!(same(&stored[0], &stored[1]) < 200 && same(&stored[0], &page) < 200);
    }

    /// ENC-2: who makes the checksum right, too, is told all the same.
    #[test]
    fn an_encrypted_page_that_was_changed_or_moved_is_told() {
        let stored = sealed(&sample(4096, 500), None, Some(&cipher(7)));
        let cipher_of = &mut |version| Ok(cipher(version));
        for at in 4..stored.len() {
            let mut bad = stored.clone();
            bad[at] ^= 1;
            put_checksum(&mut bad, id());
            let found = load_with(&mut bad, id(), cipher_of);
            assert!(found.is_err(), "byte {at}");
        }
        let elsewhere = PageId::new(SpaceId(3), PageNo(10));
        let found = load_with(&mut stored.clone(), elsewhere, cipher_of);
        assert!(matches!(found, Err(Error::Corrupt { .. })));
        let mut moved = stored.clone();
        put_checksum(&mut moved, elsewhere);
        let found = load_with(&mut moved, elsewhere, cipher_of);
        assert!(matches!(found, Err(Error::NoKey { .. })));
        // Another key of the same version.
        let other = &mut |version| Ok(Arc::new(Cipher::derive(&[8; 16], b"", b"", version)));
        let found = load_with(&mut stored.clone(), id(), other);
        assert!(matches!(found, Err(Error::NoKey { .. })));
        assert!(matches!(
            load(&mut stored.clone(), id()),
            Err(Error::NoKey { .. })
        ));
    }

    /// A page whose checksum is right and whose bytes mean nothing is damaged, and nothing worse.
    #[test]
    fn nonsense_is_refused() {
        for algorithm in 0..=255 {
            for len in [0, 47, 48, 49, 3000, 12_288, 16_383, 16_384, 70_000] {
                for noise in [0, 9000] {
                    let mut page = sample(16384, noise);
                    set_stored(&mut page, algorithm, len);
                    put_checksum(&mut page, id());
                    let loaded = load(&mut page, id());
                    assert_eq!(loaded.is_ok(), (algorithm, len) == (0, 16_384));
                }
            }
        }
    }

    #[test]
    fn compressions_have_bytes() {
        for with in ALL {
            assert_eq!(Compression::from_bytes(with.to_bytes()), Some(with));
        }
        for nonsense in [[0, 1], [3, 1], [1, 0], [2, 23]] {
            assert_eq!(Compression::from_bytes(nonsense), None);
        }
    }
}
