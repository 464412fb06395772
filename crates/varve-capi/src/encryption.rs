//! Encryption: where keys come from, and how far tablespaces are.

use std::ffi::{c_char, c_void};

use varve::{Encryption, EncryptionKeys, RotationOptions};

use crate::collation::c_text;
use crate::database::varve_db;
use crate::error::{guard, varve_code, varve_code::*};

type NewestVersionFn = unsafe extern "C" fn(context: *mut c_void, key: u32) -> u32;
type KeyFn =
    unsafe extern "C" fn(context: *mut c_void, key: u32, version: u32, out: *mut u8) -> u32;

pub struct Keys {
    newest: NewestVersionFn,
    key: KeyFn,
    context: *mut c_void,
}

// SAFETY: the caller promises that the functions may be called from any thread with this context.
unsafe impl Send for Keys {}
// SAFETY: as above, at the same time too.
unsafe impl Sync for Keys {}

impl Keys {
    pub fn new(newest: NewestVersionFn, key: KeyFn, context: *mut c_void) -> Keys {
        Keys {
            newest,
            key,
            context,
        }
    }
}

impl EncryptionKeys for Keys {
    fn newest_version(&self, key: u32) -> Option<u32> {
        // SAFETY: the caller's promise.
        let version = unsafe { (self.newest)(self.context, key) };
        (version > 0).then_some(version)
    }

    fn key(&self, key: u32, version: u32) -> Option<Vec<u8>> {
        let mut out = [0; Encryption::MOST_KEY_BYTES];
        // SAFETY: the caller's promise; there is room for the longest key.
        let len = unsafe { (self.key)(self.context, key, version, out.as_mut_ptr()) };
        let bytes = out.get(..len as usize);
        bytes.filter(|b| !b.is_empty()).map(<[u8]>::to_vec)
    }
}

/// How tablespaces are encrypted and decrypted in the background.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct varve_rotation_options {
    /// So many tablespaces at a time, 255 at most; 0: none, and what there is stays as it is.
    pub threads: u32,
    /// Pages are encrypted again when their key's version is more than so many behind the newest one; 0:
    /// never.
    pub key_age: u32,
    /// How many pages are rewritten in a second: at least 1.
    pub iops: u32,
}

impl From<RotationOptions> for varve_rotation_options {
    fn from(o: RotationOptions) -> varve_rotation_options {
        varve_rotation_options {
            threads: o.threads,
            key_age: o.key_age,
            iops: o.iops,
        }
    }
}

impl From<varve_rotation_options> for RotationOptions {
    fn from(o: varve_rotation_options) -> RotationOptions {
        RotationOptions {
            threads: o.threads,
            key_age: o.key_age,
            iops: o.iops,
        }
    }
}

/// Changes whether tables are encrypted that don't say anything else: new ones at once, others in the
/// background. VARVE_NO_KEY: there is no key 1, nothing was changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_set_encrypt_tables(
    db: *const varve_db,
    are_encrypted: bool,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        db.0.set_encrypt_tables(are_encrypted)?;
        Ok(VARVE_OK)
    })
}

/// Whether varve_db_set_encrypt_tables finds the key that it takes. VARVE_NO_KEY: it does not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_can_encrypt_tables(db: *const varve_db) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        db.0.can_encrypt_tables()?;
        Ok(VARVE_OK)
    })
}

/// Changes how tablespaces are encrypted and decrypted in the background. VARVE_INVALID: values that can't
/// be, nothing was changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_set_rotation(
    db: *const varve_db,
    options: *const varve_rotation_options,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (db, options) = unsafe { (&*db, *options) };
    guard(&db.0, || {
        db.0.set_rotation_options(options.into())?;
        Ok(VARVE_OK)
    })
}

/// How far the encryption of a tablespace is.
#[repr(C)]
pub struct varve_space_encryption {
    pub space: u32,
    /// Where its file is, relative to the data directory.
    pub path: *const c_char,
    /// Pages are written encrypted; some may not be, yet.
    pub is_encrypted: bool,
    /// The version of the key that all pages have at least; 0 if some are not encrypted.
    pub least_version: u32,
    /// The newest version; 0 if the key is not there.
    pub newest_version: u32,
    pub key: u32,
    /// Whether pages are being rewritten, and if so the next one, and how many there are.
    pub is_rotating: bool,
    pub page: u32,
    pub pages: u32,
}

type varve_space_encryption_fn =
    unsafe extern "C" fn(context: *mut c_void, encryption: *const varve_space_encryption);

/// Hands each tablespace to `each`, but for temporary ones. What it points to is gone when `each` returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_encryption(
    db: *const varve_db,
    each: varve_space_encryption_fn,
    context: *mut c_void,
) -> varve_code {
    use varve::EncryptionStage::*;
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        for (encryption, progress) in db.0.encryption()? {
            let path = c_text(&encryption.path);
            let told = varve_space_encryption {
                space: encryption.space.0,
                path: path.as_ptr(),
                is_encrypted: matches!(encryption.stage, Encrypting | Encrypted),
                least_version: encryption.least_version,
                newest_version: encryption.newest_version,
                key: encryption.key,
                is_rotating: progress.is_some(),
                page: progress.map_or(0, |p| p.page),
                pages: progress.map_or(0, |p| p.pages),
            };
            // SAFETY: the caller's promise; the path outlives the call.
            unsafe { each(context, &told) };
        }
        Ok(VARVE_OK)
    })
}
