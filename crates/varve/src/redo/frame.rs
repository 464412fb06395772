//! The frame: how one mini-transaction's redo lies in the stream.
//!
//! A frame starts at an LSN that is a multiple of 8 and consists of one header word and a body:
//!
//! ```text
//! 0  u32  total length, header included, a multiple of 8; its low three bits count the padding bytes at the end
//! 4  u32  crc32c of: body | the u32 above | start LSN (u64) | log generation (u64)
//! 8       body, then 0 to 7 zero bytes
//! ```
//!
//! - **RF-1** The checksum binds the frame to its place and to the log's generation, which is a new one each
//!   time the log is opened for writing: neither the leftovers of a recycled file nor frames from beyond a
//!   torn tail of an earlier run are ever taken for new ones.
//!
//! The body of a frame of an **encrypted** generation is encrypted, by a cipher of the generation's own with
//! the frame's LSN as the nonce (ENC-1), and 16 bytes of tag follow it. The checksum is that of what is
//! stored, so that nobody needs a key to find the stream's end. Marks, which are shorter than any such frame,
//! are not encrypted (`mark`).
//!
//! Pure functions; bytes from disk never panic.

use super::mark::MARK_RECORD;
use crate::base::{Error, Lsn, Result};
use crate::encryption::{Cipher, TAG_BYTES, counted_nonce};

/// Bytes of a frame's header.
pub const FRAME_HEADER: usize = 8;

/// The longest frame, header included.
pub const MAX_FRAME_BYTES: u32 = 1 << 20;

/// Bytes that a frame with a body of `body` bytes takes in the stream.
pub const fn frame_bytes(body: usize) -> usize {
    (FRAME_HEADER + body + 7) & !7
}

/// The first header field: total length with the padding count in its low bits.
pub fn length_field(body: usize) -> u32 {
    let total = frame_bytes(body);
    assert!(
        body > 0 && total <= MAX_FRAME_BYTES as usize,
        "a frame of {body} bytes"
    );
    let pad = total - FRAME_HEADER - body;
    (total | pad) as u32
}

/// The checksum of a body that comes in pieces.
pub fn body_crc(parts: &[&[u8]]) -> u32 {
    parts
        .iter()
        .fold(0, |crc, part| crc32c::crc32c_append(crc, part))
}

/// What the checksum covers besides the body. Aligned, so that it is taken in words.
#[repr(align(8))]
struct Tail([u8; 20]);

/// The header word, little-endian in the stream.
pub fn header_word(body_crc: u32, length: u32, start: Lsn, generation: u64) -> u64 {
    let mut tail = Tail([0; 20]);
    tail.0[..4].copy_from_slice(&length.to_le_bytes());
    tail.0[4..12].copy_from_slice(&start.0.to_le_bytes());
    tail.0[12..].copy_from_slice(&generation.to_le_bytes());
    u64::from(crc32c::crc32c_append(body_crc, &tail.0)) << 32 | u64::from(length)
}

/// Total length and body length that a header word claims; `None` if no frame has such a header.
pub fn lengths(word: u64) -> Option<(usize, usize)> {
    let field = word as u32;
    let (total, pad) = ((field & !7) as usize, (field & 7) as usize);
    if total > MAX_FRAME_BYTES as usize || total <= FRAME_HEADER + pad {
        return None;
    }
    Some((total, total - FRAME_HEADER - pad))
}

/// Whether `body` is what the header word at `start` was made for.
pub fn verify(word: u64, body: &[u8], start: Lsn, generation: u64) -> bool {
    header_word(body_crc(&[body]), word as u32, start, generation) == word
}

/// Encrypts the body of the frame at `start` in place, and returns the tag.
pub fn encrypt(cipher: &Cipher, start: Lsn, body: &mut [u8]) -> [u8; TAG_BYTES] {
    cipher.encrypt(counted_nonce(start.0), &[], body)
}

/// Whether a frame of an encrypted generation with a stored body of so many bytes is encrypted.
pub const fn is_encrypted(body_len: usize) -> bool {
    body_len > TAG_BYTES
}

/// The body of a frame of an encrypted generation that was decrypted in its place.
pub fn without_tag(stored: &[u8]) -> &[u8] {
    match is_encrypted(stored.len()) {
        true => &stored[..stored.len() - TAG_BYTES],
        false => stored,
    }
}

/// Decrypts the stored body of a frame whose checksum is right, in place. Returns how long it is then.
pub fn decrypt(cipher: &Cipher, start: Lsn, stored: &mut [u8]) -> Result<usize> {
    if !is_encrypted(stored.len()) && stored[0] == MARK_RECORD {
        return Ok(stored.len());
    }
    let len = stored.len().saturating_sub(TAG_BYTES);
    let (body, tag) = stored.split_at_mut(len);
    let is_right = |tag| cipher.decrypt(counted_nonce(start.0), &[], tag, body);
    match (&*tag).try_into().is_ok_and(is_right) {
        true => Ok(len),
        false => Err(Error::NoKey {
            what: format!(
                "the redo log can't be decrypted at LSN {start} with version {} of its key: that is another key now, or the log was changed",
                cipher.version()
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ENC-2
    #[test]
    fn encrypted_frames_are_bound_to_their_place() {
        let cipher = Cipher::derive(b"secret", b"salt", b"purpose", 1);
        for len in [1, 7, 8, 100] {
            let body = vec![0x41; len];
            let mut stored = body.clone();
            let tag = encrypt(&cipher, Lsn(4096), &mut stored);
            stored.extend_from_slice(&tag);
            assert!(is_encrypted(stored.len()));
            let mut moved = stored.clone();
            assert!(decrypt(&cipher, Lsn(4104), &mut moved).is_err());
            assert_eq!(decrypt(&cipher, Lsn(4096), &mut stored).unwrap(), len);
            assert_eq!(stored[..len], body);
        }
    }

    #[test]
    fn headers_say_their_lengths() {
        for body in [1usize, 7, 8, 9, 100, MAX_FRAME_BYTES as usize - 8] {
            let word = header_word(0, length_field(body), Lsn(64), 3);
            assert_eq!(lengths(word), Some((frame_bytes(body), body)));
            assert_eq!(frame_bytes(body) % 8, 0);
        }
        for bad in [0u64, 5, 8, 15, MAX_FRAME_BYTES as u64 + 8, u32::MAX as u64] {
            assert_eq!(lengths(bad), None, "length field {bad}");
        }
    }

    #[test]
    fn a_frame_is_bound_to_its_place_and_generation() {
        let body = b"some redo";
        let length = length_field(body.len());
        let word = header_word(body_crc(&[b"some ", b"redo"]), length, Lsn(4096), 2);
        assert!(verify(word, body, Lsn(4096), 2));
        assert!(!verify(word, body, Lsn(4104), 2), "another place");
        assert!(!verify(word, body, Lsn(4096), 3), "another generation");
        assert!(!verify(word, b"some redq", Lsn(4096), 2), "another body");
        assert!(!verify(word ^ 1, body, Lsn(4096), 2), "another length");
    }
}
