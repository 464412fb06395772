//! Keys in a file.

use std::collections::BTreeMap;
use std::path::Path;

use super::EncryptionKeys;
use crate::base::{Error, Result};

/// The keys of a file as MariaDB's `file_key_management` has it: a line for each key, `1;` and its bytes in
/// hexadecimal, 16, 24 or 32 of them; what follows behind a space, and lines that begin with `#`, say
/// nothing. The file itself is not encrypted: it belongs where nobody gets who gets the database. There is
/// one version of each key.
pub struct KeyFile {
    keys: BTreeMap<u32, Vec<u8>>,
}

impl KeyFile {
    /// # Errors
    ///
    /// `Io`; `Invalid` names the line that is none.
    pub fn read(path: impl AsRef<Path>) -> Result<KeyFile> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
        let mut keys = BTreeMap::new();
        for (n, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let read = line.split_once(';');
            let read = read.and_then(|(id, hex)| Some((id.trim().parse().ok()?, bytes(hex)?)));
            let is_new = read.filter(|(id, _)| *id > 0 && !keys.contains_key(id));
            let (id, key) = is_new.ok_or_else(|| {
                Error::invalid(format!(
                    "line {} of {}: a key is a number, which no other key has, a semicolon, and 32, 48 or 64 hexadecimal digits",
                    n + 1,
                    path.display()
                ))
            })?;
            keys.insert(id, key);
        }
        Ok(KeyFile { keys })
    }
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let hex = hex.split_whitespace().next()?;
    let is_hex = hex.bytes().all(|b| b.is_ascii_hexdigit());
    if !is_hex || ![32, 48, 64].contains(&hex.len()) {
        return None;
    }
    let pairs = (0..hex.len()).step_by(2);
    pairs
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).ok())
        .collect()
}

impl EncryptionKeys for KeyFile {
    fn newest_version(&self, key: u32) -> Option<u32> {
        self.keys.contains_key(&key).then_some(1)
    }

    fn key(&self, key: u32, version: u32) -> Option<Vec<u8>> {
        self.keys.get(&key).filter(|_| version == 1).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_other_lines_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.txt");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            KeyFile::read(&path)
        };
        let keys = read(&format!(
            "# mine\n1;{}\n\n 5;{} # yours\n",
            "0a".repeat(16),
            "FF".repeat(32)
        ));
        let keys = keys.unwrap();
        assert_eq!(keys.key(1, 1), Some(vec![10; 16]));
        assert_eq!(keys.key(5, 1), Some(vec![255; 32]));
        assert_eq!(keys.newest_version(5), Some(1));
        assert_eq!((keys.key(5, 2), keys.newest_version(2)), (None, None));
        let long = "0a".repeat(16);
        for bad in ["1", "x;00", "1;00", "0;", "1;xx"] {
            let text = format!("7;{long}\n{bad}{}", if bad == "0;" { &long } else { "" });
            let refused = read(&text).err().unwrap().to_string();
            assert!(refused.contains("line 2 of"), "{bad}: {refused}");
        }
        let twice = format!("7;{long}\n7;{long}\n");
        assert!(read(&twice).is_err());
    }
}
