//! A key that encrypts, and what it makes of bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use aes_gcm::{AeadInPlace, Aes256Gcm, KeyInit};
use hkdf::Hkdf;
use sha2::Sha256;

pub const NONCE_BYTES: usize = 12;
pub const TAG_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;

/// Bytes from the system's random numbers.
///
/// # Panics
///
/// The system has none: nothing could be encrypted safely.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    bytes
}

/// Encrypts and decrypts for one use of one version of a key.
pub struct Cipher {
    key: Aes256Gcm,
    /// Of the key that it comes from.
    version: u32,
    /// [`Sabotage::TagNotChecked`](crate::base::Sabotage)
    #[cfg(feature = "sabotage")]
    takes_all: bool,
}

impl Cipher {
    /// Derives the key for what `salt` and `purpose` say from `secret`.
    pub fn derive(secret: &[u8], salt: &[u8], purpose: &[u8], version: u32) -> Cipher {
        let mut key = [0; SECRET_BYTES];
        let expanded = Hkdf::<Sha256>::new(Some(salt), secret).expand(purpose, &mut key);
        expanded.expect("HKDF gives as many bytes as a key has");
        Cipher {
            key: Aes256Gcm::new(&key.into()),
            version,
            #[cfg(feature = "sabotage")]
            takes_all: false,
        }
    }

    #[cfg(feature = "sabotage")]
    pub fn taking_all(mut self, takes_all: bool) -> Cipher {
        self.takes_all = takes_all;
        self
    }

    pub fn version(&self) -> u32 {
        self.version
    }

    /// Encrypts in place, and returns the tag, which authenticates `beside`, too. ENC-1: `nonce` is used
    /// once.
    pub fn encrypt(
        &self,
        nonce: [u8; NONCE_BYTES],
        beside: &[u8],
        data: &mut [u8],
    ) -> [u8; TAG_BYTES] {
        let sealed = (self.key).encrypt_in_place_detached(&nonce.into(), beside, data);
        sealed.expect("what is encrypted is short enough").into()
    }

    /// Decrypts in place. False if it is not what was encrypted with this key and nonce, and `beside`; what
    /// is in `data` means nothing then.
    #[must_use]
    pub fn decrypt(
        &self,
        nonce: [u8; NONCE_BYTES],
        beside: &[u8],
        tag: [u8; TAG_BYTES],
        data: &mut [u8],
    ) -> bool {
        #[cfg(feature = "sabotage")]
        if self.takes_all {
            // In this mode encrypting is decrypting.
            self.encrypt(nonce, beside, data);
            return true;
        }
        let (nonce, tag) = (nonce.into(), tag.into());
        let opened = (self.key).decrypt_in_place_detached(&nonce, beside, data, &tag);
        opened.is_ok()
    }
}

/// Encrypts what this process alone reads, with keys that nobody else has.
pub struct Scratch {
    pages: Arc<Cipher>,
    pieces: Cipher,
    /// The next nonce of a piece. Relaxed: that no two are the same is all that counts.
    next: AtomicU64,
}

impl Scratch {
    /// With keys that are drawn now.
    pub fn drawn() -> Scratch {
        let secret: [u8; SECRET_BYTES] = random();
        let derive = |purpose: &[u8]| Cipher::derive(&secret, &[], purpose, 1);
        Scratch {
            pages: Arc::new(derive(b"varve scratch pages")),
            pieces: derive(b"varve scratch"),
            next: AtomicU64::new(0),
        }
    }

    /// For pages, whose nonces are random.
    pub fn pages(&self) -> &Arc<Cipher> {
        &self.pages
    }

    /// Encrypts a piece in place, for the place that `at` says. Returns what [`Scratch::decrypt`] takes.
    pub fn encrypt(&self, at: u64, piece: &mut [u8]) -> [u8; Scratch::SEAL_BYTES] {
        let count = self.next.fetch_add(1, Relaxed);
        let tag = (self.pieces).encrypt(counted_nonce(count), &at.to_le_bytes(), piece);
        let mut seal = [0; Scratch::SEAL_BYTES];
        seal[..8].copy_from_slice(&count.to_le_bytes());
        seal[8..].copy_from_slice(&tag);
        seal
    }

    /// False if it is not what was encrypted for this place.
    #[must_use]
    pub fn decrypt(&self, at: u64, seal: [u8; Scratch::SEAL_BYTES], piece: &mut [u8]) -> bool {
        let (count, tag) = seal.split_at(8);
        let count = u64::from_le_bytes(count.try_into().expect("8 bytes"));
        let tag = tag.try_into().expect("the rest is the tag");
        let nonce = counted_nonce(count);
        (self.pieces).decrypt(nonce, &at.to_le_bytes(), tag, piece)
    }

    /// A nonce's count, and the tag.
    pub const SEAL_BYTES: usize = 8 + TAG_BYTES;
}

/// A nonce that is a number.
pub fn counted_nonce(count: u64) -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    nonce[..8].copy_from_slice(&count.to_le_bytes());
    nonce
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ENC-2
    #[test]
    fn what_was_changed_or_moved_is_noticed() {
        let cipher = Cipher::derive(b"secret", b"salt", b"purpose", 7);
        let plain: Vec<u8> = (0..200).collect();
        let mut data = plain.clone();
        let tag = cipher.encrypt([5; NONCE_BYTES], b"beside", &mut data);
        assert_ne!(data, plain);
        let opened = |cipher: &Cipher, nonce, beside: &[u8], tag, data: &[u8]| {
            let mut data = data.to_vec();
            cipher
                .decrypt(nonce, beside, tag, &mut data)
                .then_some(data)
        };
        let nonce = [5; NONCE_BYTES];
        assert_eq!(opened(&cipher, nonce, b"beside", tag, &data), Some(plain));
        assert_eq!(opened(&cipher, [6; 12], b"beside", tag, &data), None);
        assert_eq!(opened(&cipher, nonce, b"besides", tag, &data), None);
        assert_eq!(opened(&cipher, nonce, b"beside", [0; 16], &data), None);
        let mut changed = data.clone();
        changed[150] ^= 1;
        assert_eq!(opened(&cipher, nonce, b"beside", tag, &changed), None);
        for (secret, salt, purpose) in [
            (&b"secreT"[..], &b"salt"[..], &b"purpose"[..]),
            (b"secret", b"sale", b"purpose"),
            (b"secret", b"salt", b"purposes"),
        ] {
            let other = Cipher::derive(secret, salt, purpose, 7);
            assert_eq!(opened(&other, nonce, b"beside", tag, &data), None);
        }
    }

    /// ENC-1, ENC-2
    #[test]
    fn scratch_uses_no_nonce_twice() {
        let scratch = Scratch::drawn();
        let mut once = *b"the same piece";
        let mut twice = once;
        let first = scratch.encrypt(4096, &mut once);
        let second = scratch.encrypt(4096, &mut twice);
        assert_ne!((first, once), (second, twice));
        let mut moved = once;
        assert!(!scratch.decrypt(8192, first, &mut moved));
        assert!(!Scratch::drawn().decrypt(4096, first, &mut once.clone()));
        assert!(scratch.decrypt(4096, first, &mut once));
        assert_eq!(&once, b"the same piece");
    }

    /// RFC 5869 and SP 800-38D, as another implementation has it (Python's `cryptography`).
    #[test]
    fn keys_are_derived_as_others_derive_them() {
        let cipher = Cipher::derive(&[1; 32], &[2; 20], b"varve pages", 1);
        let mut data = *b"plain text";
        let tag = cipher.encrypt([3; NONCE_BYTES], b"beside", &mut data);
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        assert_eq!((hex(&data), hex(&tag)), VECTOR.map(String::from).into());
    }

    const VECTOR: [&str; 2] = ["97971c65644366248276", "76844c77979dc092dd36198586790b37"];
}
