//! The first 64 bytes of every file: what it is, whose it is, and which features reading it takes.
//!
//! ```text
//!  0  magic, 8 bytes of ASCII that name the kind of file
//!  8  u32 format version
//! 12  u32 page size of the database
//! 16  database uuid, 16 bytes
//! 32  u32 tablespace id; u32::MAX in a file that is no tablespace
//! 36  u32 checksum kind; 1 = crc32c
//! 40  u64 features that an older version may ignore
//! 48  u64 features that an older version may ignore as long as it only reads
//! 56  u64 features that a version has to know
//! ```
//!
//! The carrier has its own checksum over these bytes and more; here only their meaning is checked. Each
//! refusal says what is wrong and what to do.

use std::path::Path;

use crate::base::{Error, Result, SpaceId};

/// Bytes that [`FileIntro::encode`] fills.
pub const INTRO_BYTES: usize = 64;

/// The format version that this program writes. docs/format.md says what each one is, and what a new one has
/// to bring.
pub const FORMAT_VERSION: u32 = 15;
/// The oldest one that it reads.
pub const OLDEST_VERSION: u32 = 4;

/// `SpaceId` of files that are no tablespaces.
pub const NO_SPACE: SpaceId = SpaceId(u32::MAX);

const CHECKSUM_CRC32C: u32 = 1;

/// Feature that a version has to know: pages may be stored compressed.
pub const COMPRESSED_PAGES: u64 = 1;

/// The part of a file's beginning that all kinds of files share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIntro {
    pub magic: [u8; 8],
    pub page_size: u32,
    pub uuid: [u8; 16],
    pub space: SpaceId,
    /// Compatible, read-only compatible, incompatible.
    pub features: [u64; 3],
}

impl FileIntro {
    pub fn new(magic: &[u8; 8], page_size: u32, uuid: [u8; 16], space: SpaceId) -> FileIntro {
        FileIntro {
            magic: *magic,
            page_size,
            uuid,
            space,
            features: [0; 3],
        }
    }

    /// Fills the first 64 bytes of `out`.
    pub fn encode(&self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self.magic);
        out[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.page_size.to_le_bytes());
        out[16..32].copy_from_slice(&self.uuid);
        out[32..36].copy_from_slice(&self.space.0.to_le_bytes());
        out[36..40].copy_from_slice(&CHECKSUM_CRC32C.to_le_bytes());
        for (i, word) in self.features.iter().enumerate() {
            out[40 + 8 * i..48 + 8 * i].copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Reads the first 64 bytes of `b`, refusing another kind of file and what this version can't read. The
    /// caller compares page size, uuid and tablespace with what it expects.
    pub fn decode(magic: &[u8; 8], b: &[u8], path: &Path) -> Result<FileIntro> {
        let u32_at = |at: usize| u32::from_le_bytes(b[at..at + 4].try_into().unwrap());
        let u64_at = |at: usize| u64::from_le_bytes(b[at..at + 8].try_into().unwrap());
        if b[..8] != magic[..] {
            return Err(Error::CorruptFile {
                path: path.to_path_buf(),
                expected: format!("a file that begins with {}", magic.escape_ascii()),
                found: b[..8].escape_ascii().to_string(),
            });
        }
        check_version(version(b), path)?;
        let checksum = u32_at(36);
        if checksum != CHECKSUM_CRC32C {
            return Err(Error::unsupported(format!(
                "file {} has checksum kind {checksum}, this program knows kind {CHECKSUM_CRC32C}",
                path.display()
            )));
        }
        let features = [u64_at(40), u64_at(48), u64_at(56)];
        let known = match &magic[..] {
            b"VARVEDAT" => COMPRESSED_PAGES,
            _ => 0,
        };
        if features[1] | features[2] & !known != 0 {
            return Err(Error::unsupported(format!(
                "file {} uses features {:#x} (read-only compatible) and {:#x} (incompatible) of a newer version",
                path.display(),
                features[1],
                features[2]
            )));
        }
        Ok(FileIntro {
            magic: *magic,
            page_size: u32_at(12),
            uuid: b[16..32].try_into().unwrap(),
            space: SpaceId(u32_at(32)),
            features,
        })
    }

    /// Refuses a file that belongs to another database.
    pub fn check_owner(&self, uuid: &[u8; 16], path: &Path) -> Result<()> {
        if self.uuid == *uuid {
            return Ok(());
        }
        Err(Error::CorruptFile {
            path: path.to_path_buf(),
            expected: format!("database {}", hex(uuid)),
            found: format!("a file of database {}", hex(&self.uuid)),
        })
    }
}

/// The format version that a file's beginning names.
pub(super) fn version(b: &[u8]) -> u32 {
    u32::from_le_bytes(b[8..12].try_into().expect("4 bytes"))
}

fn check_version(version: u32, path: &Path) -> Result<()> {
    let what = match version {
        OLDEST_VERSION..=FORMAT_VERSION => return Ok(()),
        newer if newer > FORMAT_VERSION => {
            "it was made by a newer program: use that one, or one that is newer still"
        }
        _ => "it was made by a program from before the first release: make the database anew",
    };
    Err(Error::unsupported(format!(
        "file {} has format version {version}, this program reads versions {OLDEST_VERSION} to {FORMAT_VERSION}; {what}",
        path.display()
    )))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intros_round_trip_and_refuse_by_name() {
        let magic = b"VARVETST";
        let intro = FileIntro::new(magic, 16384, [7; 16], SpaceId(9));
        let mut good = [0u8; INTRO_BYTES];
        intro.encode(&mut good);
        let path = Path::new("some.file");
        assert_eq!(FileIntro::decode(magic, &good, path).unwrap(), intro);
        assert!(intro.check_owner(&[8; 16], path).is_err());
        for (at, value, word) in [
            (0, b'X', "damaged"),
            (
                8,
                16,
                "format version 16, this program reads versions 4 to 15; it was made by a newer",
            ),
            (
                8,
                3,
                "format version 3, this program reads versions 4 to 15; it was made by a program from before",
            ),
            (11, 1, "newer program"),
            (36, 2, "checksum kind 2"),
            (48, 1, "features"),
            (56, 4, "features"),
        ] {
            let mut bad = good;
            bad[at] = value;
            let error = FileIntro::decode(magic, &bad, path)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(word) && error.contains("some.file"),
                "{error}"
            );
        }
        let mut older = good;
        older[8] = 4;
        assert_eq!(FileIntro::decode(magic, &older, path).unwrap(), intro);
        let mut newer = good;
        newer[40] = 0x80;
        assert!(
            FileIntro::decode(magic, &newer, path).is_ok(),
            "compatible features are ignored"
        );
    }
}
