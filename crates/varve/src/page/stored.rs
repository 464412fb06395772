//! The stored form of a page: with its checksum, and compressed where its tablespace wants that.
//!
//! A compressed page keeps its header, which says how it is compressed and how many bytes are stored: the
//! header's and those of one LZ4 block or one Zstandard frame, which is the rest of the page. It stands where
//! the page would, and takes whole blocks of [`DIRECT_BLOCK`] there ([`place_bytes`]). What is behind them in
//! the page's place means nothing; its owner gives it back to the file system (`space/compressed.rs`).
//!
//! In memory no page is compressed, so that nobody else has to know of it: [`seal_compressed`] is the last
//! step before a write, and [`load`] the first one after a read.
//!
//! - **PG-6** What [`load`] makes of a sealed page is what was sealed, whether or not it was compressed.

use std::cell::RefCell;
use std::io;

use super::header::{
    self, PAGE_HEADER, PageType, algorithm, page_type, seal_as, set_whole, stored_len, verify,
};
use super::{validate, validate_keys};
use crate::base::{Error, PageId, Result};
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

/// Pages of this type are compressed. Those that say what a file is, and which of its pages are in use, are
/// not: they are read and written by themselves, too.
fn may_compress(page: &[u8]) -> bool {
    !matches!(
        page_type(page),
        None | Some(PageType::FileHeader | PageType::Alloc)
    )
}

/// Makes the page its stored form, compressed if that saves a block or more.
pub fn seal_compressed(page: &mut [u8], with: Compression, compressor: &mut Compressor) {
    let (head, body) = page.split_at_mut(PAGE_HEADER);
    let most = body.len().saturating_sub(DIRECT_BLOCK);
    let bytes = match may_compress(head) && most > 0 {
        true => compressor.compress(body, with, most),
        false => None,
    };
    match bytes {
        Some(bytes) => {
            body[..bytes].copy_from_slice(&compressor.compressed[..bytes]);
            body[bytes..].fill(0);
            seal_as(page, with.algorithm as u8, PAGE_HEADER + bytes);
        }
        None => header::seal(page),
    }
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

/// Makes of what was read from `id` the page that it is, if it is whole: no accessor panics on it (PG-2).
/// Returns whether it was compressed.
pub fn load(page: &mut [u8], id: PageId) -> Result<bool> {
    verify(page, id)?;
    let is_compressed = algorithm(page) != 0;
    if is_compressed {
        expand(page).map_err(|e| Error::corrupt(id, "a page that can be expanded", e))?;
    }
    validate(page, id)?;
    validate_keys(page, id)?;
    Ok(is_compressed)
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

    /// PG-6: whatever is behind a page's bytes in its place.
    #[test]
    fn pages_come_back_as_they_were() {
        let mut compressor = Compressor::default();
        for with in ALL {
            for size in [4096, 8192, 16384, 32768, 65536] {
                for eighths in 0..=8 {
                    let page = sample(size, size * eighths / 8);
                    let mut stored = page.clone();
                    seal_compressed(&mut stored, with, &mut compressor);
                    let place = place_bytes(&stored);
                    let is_smaller = place < size;
                    assert!(is_smaller || eighths * size / 8 + DIRECT_BLOCK + 256 > size);
                    assert!(place.is_multiple_of(DIRECT_BLOCK) && place > 0);
                    stored[place..].fill(0xa5);
                    load(&mut stored, id()).unwrap();
                    let mut whole = page;
                    header::seal(&mut whole);
                    assert_eq!(stored[4..], whole[4..]);
                    assert_eq!(page_id(&stored), id());
                }
            }
        }
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let mut compressor = Compressor::default();
        for with in ALL {
            let mut stored = sample(16384, 6000);
            seal_compressed(&mut stored, with, &mut compressor);
            assert!(place_bytes(&stored) < stored.len());
            for at in 0..stored_len(&stored) {
                let mut bad = stored.clone();
                bad[at] ^= 0x40;
                let found = load(&mut bad, id());
                assert!(matches!(found, Err(Error::Corrupt { .. })), "byte {at}");
            }
        }
    }

    /// A page whose checksum is right and whose bytes mean nothing is damaged, and nothing worse.
    #[test]
    fn nonsense_is_refused() {
        for algorithm in 0..=255 {
            for len in [0, 47, 48, 49, 3000, 12_288, 16_383, 16_384, 70_000] {
                for noise in [0, 9000] {
                    let mut page = sample(16384, noise);
                    seal_as(&mut page, algorithm, len);
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
