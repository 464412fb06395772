//! Keys of encrypted databases, for the commands that open one.

use std::path::PathBuf;
use std::sync::Arc;

use varve::{EncryptionKeys, Error, KeyFile};

#[derive(clap::Args)]
pub struct KeyArgs {
    /// The keys of what is encrypted: a line for each, its number, a semicolon, and its bytes in
    /// hexadecimal, as in the file of MariaDB's file_key_management when that is not encrypted
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
}

impl KeyArgs {
    pub fn read(&self) -> Result<Option<Arc<dyn EncryptionKeys>>, Error> {
        let read = |path: &PathBuf| Ok(Arc::new(KeyFile::read(path)?) as Arc<dyn EncryptionKeys>);
        self.keys.as_ref().map(read).transpose()
    }
}
