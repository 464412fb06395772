//! Where keys come from.

use std::sync::{Arc, OnceLock};

use super::{Cipher, Encryption, Scratch};
use crate::base::{Error, Result, SpaceId};

/// Gives a database its keys. It is asked from any thread, also while statements wait: a key that has to be
/// fetched from elsewhere is kept.
pub trait EncryptionKeys: Send + Sync {
    /// The newest version of a key, from 1 on; `None` if there is no such key.
    fn newest_version(&self, key: u32) -> Option<u32>;
    /// A version of a key, from 16 to 64 bytes; `None` if there is none. What was given once is given for
    /// ever, as long as anything is encrypted with it.
    fn key(&self, key: u32, version: u32) -> Option<Vec<u8>>;
}

/// The keys of one database.
#[derive(Clone, Default)]
pub struct Keyring {
    source: Option<Arc<dyn EncryptionKeys>>,
    scratch: Arc<OnceLock<Arc<Scratch>>>,
    /// [`Sabotage::TagNotChecked`](crate::base::Sabotage)
    #[cfg(feature = "sabotage")]
    pub takes_all: bool,
}

impl Keyring {
    pub fn new(source: Option<Arc<dyn EncryptionKeys>>) -> Keyring {
        Keyring {
            source,
            ..Keyring::default()
        }
    }

    /// Nobody gives keys.
    pub fn is_empty(&self) -> bool {
        self.source.is_none()
    }

    /// What this process encrypts for itself.
    pub fn scratch(&self) -> &Arc<Scratch> {
        self.scratch.get_or_init(|| Arc::new(Scratch::drawn()))
    }

    /// The newest version of a key.
    pub fn newest(&self, key: u32) -> Result<u32> {
        let newest = self.source.as_ref().and_then(|s| s.newest_version(key));
        // 0 stands for what is not encrypted.
        let newest = newest.filter(|version| *version > 0);
        newest.ok_or_else(|| self.lacks(format!("there is no encryption key {key}")))
    }

    /// For the pages of a tablespace of the database `uuid`.
    pub fn of_space(
        &self,
        uuid: &[u8; 16],
        space: SpaceId,
        key: u32,
        version: u32,
    ) -> Result<Arc<Cipher>> {
        let mut salt = [0; 20];
        salt[..16].copy_from_slice(uuid);
        salt[16..].copy_from_slice(&space.0.to_le_bytes());
        let secret = self.secret(key, version)?;
        let cipher = Cipher::derive(&secret, &salt, b"varve pages", version);
        #[cfg(feature = "sabotage")]
        let cipher = cipher.taking_all(self.takes_all);
        Ok(Arc::new(cipher))
    }

    /// For the redo log of one opening, which has drawn `salt`.
    pub fn of_log(&self, salt: &[u8; 16], key: u32, version: u32) -> Result<Arc<Cipher>> {
        let secret = self.secret(key, version)?;
        let cipher = Cipher::derive(&secret, salt, b"varve redo", version);
        Ok(Arc::new(cipher))
    }

    fn secret(&self, key: u32, version: u32) -> Result<Vec<u8>> {
        let given = self.source.as_ref().and_then(|s| s.key(key, version));
        let what = || format!("there is no version {version} of encryption key {key}");
        let secret = given.ok_or_else(|| self.lacks(what()))?;
        let (least, most) = (Encryption::LEAST_KEY_BYTES, Encryption::MOST_KEY_BYTES);
        let bytes = secret.len();
        match (least..=most).contains(&bytes) {
            true => Ok(secret),
            false => Err(Error::NoKey {
                what: format!(
                    "version {version} of encryption key {key} has {bytes} bytes; a key has {least} to {most}"
                ),
            }),
        }
    }

    fn lacks(&self, what: String) -> Error {
        let why = match self.is_empty() {
            true => {
                "nobody gives keys: load a plugin for key management, or give the database its keys"
            }
            false => "see that whoever gives keys has it",
        };
        Error::NoKey {
            what: format!("{what}; {why}"),
        }
    }
}
