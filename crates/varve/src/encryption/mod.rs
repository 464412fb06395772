//! Encryption at rest: AES-256-GCM (NIST SP 800-38D), by the crate aes-gcm, whose time does not depend on
//! what it works on.
//!
//! Whoever uses the database gives the keys ([`EncryptionKeys`]), by a number and a version. No byte is
//! encrypted with such a key itself: what is comes from it by HKDF (RFC 5869, with SHA256), one key for each
//! tablespace and one for each opening of the redo log. What no other process reads, temporary tables and
//! files of sorts and of recovery, has a key that this process has drawn, and nobody else has.
//!
//! - **ENC-1** No nonce is used twice with a key. A page has 12 random bytes each time that it is written:
//!   pages are written twice at one LSN, and unlogged ones have none. A frame of the redo log has its LSN,
//!   where one frame is put in one opening of the log, whose key is made with random bytes of its own. A file
//!   of this process has a count. (Of two copies of a running process, made with its memory, each goes on
//!   with the same log key: that is the one way to break this.)
//! - **ENC-2** What is decrypted is what was encrypted for the same place: a page's address, type, LSN and
//!   key version, a frame's LSN are authenticated with it. An older version of the same page is one that was
//!   encrypted for this place: that somebody has put it back is not noticed.
//!
//! Random nonces of 96 bits are good for 2³² pages written with a key, which is a tablespace's of one
//! version: two of them are the same with a probability of 2⁻³³ then (SP 800-38D, 8.3).
//!
//! Frames are encrypted while a mini-transaction has its pages latched, and pages are decrypted while their
//! frame is, by whoever reads them, a thread of the I/O queue, too. Whoever gives the keys is asked for the
//! newest version of a key before anybody waits for a page; for an older one, once for each tablespace, by
//! who comes upon a page that was written with it.

mod cipher;
mod key_file;
mod keys;

pub use cipher::{Cipher, NONCE_BYTES, Scratch, TAG_BYTES, counted_nonce, random};
pub use key_file::KeyFile;
pub use keys::{EncryptionKeys, Keyring};

/// What a table says about its encryption.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(u8)]
pub enum EncryptionMode {
    /// As the database has it for all tables.
    #[default]
    Default = 0,
    On = 1,
    Off = 2,
}

/// How the pages of a table are encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Encryption {
    pub mode: EncryptionMode,
    /// The key's number, from 1 on.
    pub key: u32,
}

impl Default for Encryption {
    fn default() -> Encryption {
        Encryption {
            mode: EncryptionMode::Default,
            key: Encryption::FIRST_KEY,
        }
    }
}

impl Encryption {
    /// The key of whatever does not name one.
    pub const FIRST_KEY: u32 = 1;
    /// Bytes of the longest key: what a hash function of 512 bits gives.
    pub const MOST_KEY_BYTES: usize = 64;
    /// Bytes of the shortest, of 128 bits.
    pub const LEAST_KEY_BYTES: usize = 16;
    pub(crate) const BYTES: usize = 5;

    /// From its stored form, where zeros are the default; `None` if there is no such mode.
    pub(crate) fn from_bytes([mode, key @ ..]: [u8; Encryption::BYTES]) -> Option<Encryption> {
        let mode = match mode {
            0 => EncryptionMode::Default,
            1 => EncryptionMode::On,
            2 => EncryptionMode::Off,
            _ => return None,
        };
        let key = u32::from_le_bytes(key).max(Encryption::FIRST_KEY);
        Some(Encryption { mode, key })
    }

    pub(crate) fn to_bytes(self) -> [u8; Encryption::BYTES] {
        let [a, b, c, d] = match self == Encryption::default() {
            true => [0; 4],
            false => self.key.to_le_bytes(),
        };
        [self.mode as u8, a, b, c, d]
    }
}
