//! Tablespaces whose pages are encrypted (`page/stored.rs`): which these are, and with what.
//!
//! A page says itself whether it is encrypted, and with which version of the key. So a tablespace may have
//! pages of both kinds. How its pages are written says its [`Stage`], on page 0; what is wanted of it may
//! differ, and then a background thread rewrites its pages (`db/rotation.rs`). What is wanted:
//!
//! - of a table that says so: that it is, or is not; of others what is set for all of them;
//! - of undo, the system tablespace and kept versions: that they are, if any table is. So no row of an
//!   encrypted table is written in clear because it is old. That there may be one is in the control file from
//!   before the first one is there, and is known before recovery writes a page. Their pages are written
//!   encrypted then, whatever their stage is;
//! - of temporary tables: what is set for them.
//!
//! - **SP-16** A table that says that it is encrypted has no page in its file that is not, but for those that
//!   have no rows: it was so from the first page on, and a change of that makes the file anew. Another page
//!   was put there by somebody else.
//! - **SP-17** No page is written for want of a key, in clear or otherwise: a tablespace is open only if
//!   there is a key to write its pages with, if they are to be encrypted, and it has that key before they
//!   are.
//! - **SP-18** Of a tablespace in the stage Encrypted each page in its file is encrypted, with the version on
//!   page 0 or a newer one; those aside that are never encrypted. So its stage is another one, durable in
//!   the file, before a page is written in clear.
//!
//! Undo and the system tablespace have key 1.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard, RwLock};

use super::header::{FileHeader, STAGE, Stage, stage_bytes, stage_in};
use super::{Space, SpaceKind, Spaces};
use crate::base::{Error, PageId, PageNo, Result, SpaceId, TEMP_SPACE};
use crate::encryption::{Cipher, Encryption, EncryptionMode, Keyring};
use crate::mtr::{Mtr, MtrEnv};
use crate::page::{self, PageOp, PageType, Stored};

/// The ciphers of one tablespace's pages.
#[derive(Default)]
pub(super) struct SpaceCiphers {
    /// With which pages are written.
    newest: Option<Arc<Cipher>>,
    /// With which some were written.
    older: Vec<Arc<Cipher>>,
}

impl SpaceCiphers {
    fn of_version(&self, version: u32) -> Option<&Arc<Cipher>> {
        let all = self.newest.iter().chain(&self.older);
        all.into_iter().find(|cipher| cipher.version() == version)
    }
}

/// A stage, and the version that all pages have at least.
pub(super) struct AtomicStage(AtomicU64);

impl AtomicStage {
    pub fn new(stage: Stage, least_version: u32) -> AtomicStage {
        AtomicStage(AtomicU64::new(AtomicStage::word(stage, least_version)))
    }

    fn word(stage: Stage, least_version: u32) -> u64 {
        u64::from(stage as u8) << 32 | u64::from(least_version)
    }

    fn get(&self) -> (Stage, u32) {
        let word = self.0.load(Relaxed);
        let stage = Stage::from_u8((word >> 32) as u8);
        (stage.expect("`word` made it"), word as u32)
    }

    fn set(&self, stage: Stage, least_version: u32) {
        self.0
            .store(AtomicStage::word(stage, least_version), Relaxed);
    }
}

/// What a tablespace is to become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    Clear,
    /// With this version of its key, or a newer one.
    Encrypted {
        at_least: u32,
    },
}

impl Target {
    /// The stage in which pages are written as they are to be, and the one when all of them are.
    pub fn stages(self) -> (Stage, Stage) {
        match self {
            Target::Clear => (Stage::Decrypting, Stage::Clear),
            Target::Encrypted { .. } => (Stage::Encrypting, Stage::Encrypted),
        }
    }

    /// Whether a page that is stored with this version of the key, or 0 in clear, is as it is to be.
    pub fn is_met_by(self, version: u32) -> bool {
        match self {
            Target::Clear => version == 0,
            Target::Encrypted { at_least } => version >= at_least,
        }
    }
}

/// How far the encryption of a tablespace is.
#[derive(Clone, Debug)]
pub struct SpaceEncryption {
    pub space: SpaceId,
    /// Where its file is, relative to the data directory.
    pub path: String,
    pub key: u32,
    pub stage: Stage,
    /// The version of the key that all pages have at least; 0 if some are in clear.
    pub least_version: u32,
    /// The newest version; 0 if the key is not there.
    pub newest_version: u32,
}

/// For all tablespaces. Relaxed throughout: the counters stand for themselves; who makes a table encrypted
/// sets the flag before there is a row of it, and whoever writes a page with that row has it by a latch.
#[derive(Default)]
pub(super) struct Encrypting {
    pub keyring: Keyring,
    /// All tables that don't say anything else.
    tables: AtomicBool,
    temporary: AtomicBool,
    /// There may be encrypted tables: the control file says so, too, from before it is set until after it is
    /// forgotten.
    any: AtomicBool,
    /// Locked while `any` changes.
    noting: Mutex<()>,
    /// Tablespaces of tables that say that they are encrypted, and have gone.
    gone: AtomicU64,
    /// Has the control file say so.
    note: OnceLock<Note>,
    encrypted: AtomicU64,
    decrypted: AtomicU64,
}

type Note = Box<dyn Fn(bool) -> Result<()> + Send + Sync>;

/// How many pages were encrypted, and decrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncryptionCounts {
    pub encrypted: u64,
    pub decrypted: u64,
}

impl Spaces {
    /// With keys for what is encrypted.
    pub fn with_keys(mut self, keyring: Keyring) -> Spaces {
        self.encrypting.keyring = keyring;
        self
    }

    pub fn keyring(&self) -> &Keyring {
        &self.encrypting.keyring
    }

    pub fn encryption(&self) -> EncryptionCounts {
        EncryptionCounts {
            encrypted: self.encrypting.encrypted.load(Relaxed),
            decrypted: self.encrypting.decrypted.load(Relaxed),
        }
    }

    /// Whether tables are encrypted that don't say anything themselves.
    pub fn encrypts_tables(&self) -> bool {
        self.encrypting.tables.load(Relaxed)
    }

    /// Whether there is the key for that. An error says that it is lacking (SP-17).
    pub fn can_encrypt_tables(&self) -> Result<()> {
        self.require_own_key()
    }

    /// Of tables that are made from now on, of undo and of the system tablespace; others follow. An error
    /// names a key that is lacking, and changes nothing.
    pub fn set_encrypts_tables(&self, are_encrypted: bool) -> Result<()> {
        let noting = self.encrypting.noting.lock();
        if are_encrypted {
            self.can_encrypt_tables()?;
            self.note_encrypted(&noting)?;
        }
        self.encrypting.tables.store(are_encrypted, Relaxed);
        Ok(())
    }

    /// Whether there may be encrypted tables, as the control file says, and how it is told that there may be,
    /// or are none. Before any tablespace is open.
    pub fn set_noted(
        &self,
        encrypted: bool,
        note: impl Fn(bool) -> Result<()> + Send + Sync + 'static,
    ) {
        self.encrypting.any.store(encrypted, Relaxed);
        let _ = self.encrypting.note.set(Box::new(note));
    }

    /// There are encrypted tables from now on. Durable when it returns, as undo is encrypted by that.
    fn note_encrypted(&self, _noting: &MutexGuard<'_, ()>) -> Result<()> {
        if self.encrypting.any.load(Relaxed) {
            return Ok(());
        }
        self.require_own_key()?;
        if let Some(note) = self.encrypting.note.get() {
            note(true)?;
        }
        self.encrypting.any.store(true, Relaxed);
        Ok(())
    }

    /// Before the temporary tablespaces are made.
    pub fn set_encrypts_temporary(&self, are_encrypted: bool) {
        self.encrypting.temporary.store(are_encrypted, Relaxed);
    }

    /// Some rows that are written are encrypted in their tables: they are elsewhere, too.
    pub fn encrypts_anything(&self) -> bool {
        self.encrypts_tables() || self.encrypting.any.load(Relaxed)
    }

    fn is_to_encrypt(&self, space: &Space) -> bool {
        match (space.kind(), space.header.encryption.mode) {
            (SpaceKind::Temp, _) if space.id == TEMP_SPACE => {
                self.encrypting.temporary.load(Relaxed)
            }
            (SpaceKind::Table, EncryptionMode::On) => true,
            (SpaceKind::Table, _) => space.stage().0.writes_encrypted(),
            (SpaceKind::System | SpaceKind::Undo, _) => {
                space.stage().0.writes_encrypted() || self.encrypts_anything()
            }
            (SpaceKind::Temp, _) => self.encrypts_anything(),
        }
    }

    /// Whether such a tablespace is to be encrypted.
    fn wants_encryption(&self, header: &FileHeader) -> bool {
        match (header.kind, header.encryption.mode) {
            (SpaceKind::Table, EncryptionMode::On) => true,
            (SpaceKind::Table, EncryptionMode::Off) => false,
            (SpaceKind::Table, EncryptionMode::Default) => self.encrypts_tables(),
            (SpaceKind::System | SpaceKind::Undo, _) => self.encrypts_anything(),
            (SpaceKind::Temp, _) => false,
        }
    }

    /// The version of the key of a new tablespace, if its pages are encrypted from the first one on.
    pub(super) fn first_version(&self, header: &FileHeader) -> Result<Option<u32>> {
        let is_wanted = self.wants_encryption(header);
        is_wanted
            .then(|| self.keyring().newest(header.encryption.key))
            .transpose()
    }

    /// What a tablespace is to become that is in this stage; `None`: it is as it is to be, if a key may be
    /// older than the newest one by `key_age` versions, or by any number if that is 0.
    pub fn encryption_target(&self, header: &FileHeader, key_age: u32) -> Result<Option<Target>> {
        if header.kind == SpaceKind::Temp {
            return Ok(None);
        }
        if !self.wants_encryption(header) {
            return Ok((header.stage != Stage::Clear).then_some(Target::Clear));
        }
        let newest = match self.keyring().newest(header.encryption.key) {
            // A lost key is told of where somebody wants the table.
            Err(_) if header.stage == Stage::Encrypted => return Ok(None),
            newest => newest?,
        };
        let age = newest.saturating_sub(header.least_version);
        let is_young = key_age == 0 || age <= key_age;
        let is_met = header.stage == Stage::Encrypted && is_young;
        Ok((!is_met).then_some(Target::Encrypted { at_least: newest }))
    }

    /// Has pages written with the newest version of the key from now on.
    pub fn take_newest_key(&self, space: &Space) -> Result<()> {
        let version = self.keyring().newest(space.header.encryption.key)?;
        let has = |newest: &Arc<Cipher>| newest.version() >= version;
        if space.ciphers().read().newest.as_ref().is_some_and(has) {
            return Ok(());
        }
        let cipher = self.make_cipher(space, version)?;
        let mut ciphers = space.ciphers().write();
        ciphers.older.retain(|older| older.version() != version);
        let before = ciphers.newest.replace(cipher);
        ciphers.older.extend(before);
        Ok(())
    }

    /// How far the encryption of what is open is, or of a file that was looked at.
    pub fn encryption_of(&self, header: &FileHeader, path: &str) -> SpaceEncryption {
        let key = header.encryption.key;
        SpaceEncryption {
            space: header.intro.space,
            path: path.into(),
            key,
            stage: header.stage,
            least_version: header.least_version,
            newest_version: self.keyring().newest(key).unwrap_or(0),
        }
    }

    /// SP-17: before the tablespace is one that others see.
    ///
    /// What has lost its stage may be encrypted if anything is. Where nothing is, whoever reads page 0 is
    /// told of the damage.
    pub(super) fn prepare_encryption(&self, space: &Space) -> Result<()> {
        if space.header.lacks_stage && (self.encrypts_anything() || !self.keyring().is_empty()) {
            let expected = "a stage of encryption";
            return Err(Error::corrupt(space.page(PageNo(0)), expected, "none"));
        }
        if self.is_to_encrypt(space) {
            self.have_key(space)?;
        }
        if space.header.encryption.mode == EncryptionMode::On {
            self.note_encrypted(&self.encrypting.noting.lock())?;
        }
        Ok(())
    }

    /// How many tablespaces of tables that say that they are encrypted have gone.
    pub fn encrypted_gone(&self) -> u64 {
        self.encrypting.gone.load(Relaxed)
    }

    /// A tablespace has gone.
    pub(super) fn note_gone(&self, space: &Space) {
        if space.header.encryption.mode == EncryptionMode::On {
            self.encrypting.gone.fetch_add(1, Relaxed);
        }
    }

    /// There is no table that says that it is encrypted. The caller keeps others from making one.
    pub fn has_none_encrypted(&self) -> Result<()> {
        let _noting = self.encrypting.noting.lock();
        if self.encrypts_tables() || !self.encrypting.any.load(Relaxed) {
            return Ok(());
        }
        self.encrypting.any.store(false, Relaxed);
        self.encrypting
            .note
            .get()
            .map_or(Ok(()), |note| note(false))
    }

    /// The key of undo and of the system tablespace, for those that are open, and those that come.
    fn require_own_key(&self) -> Result<()> {
        self.keyring().newest(Encryption::FIRST_KEY)?;
        let all = self.all();
        let own = |space: &&Arc<Space>| matches!(space.kind(), SpaceKind::System | SpaceKind::Undo);
        (all.iter().filter(own)).try_for_each(|space| self.have_key(space))
    }

    fn have_key(&self, space: &Space) -> Result<()> {
        if space.kind() == SpaceKind::Temp || space.ciphers().read().newest.is_some() {
            return Ok(());
        }
        let newest = self.keyring().newest(space.header.encryption.key);
        let version = newest.map_err(|e| e.in_file(&space.path()))?;
        let cipher = self.make_cipher(space, version)?;
        space.ciphers().write().newest.get_or_insert(cipher);
        Ok(())
    }

    fn make_cipher(&self, space: &Space, version: u32) -> Result<Arc<Cipher>> {
        let key = space.header.encryption.key;
        let keyring = self.keyring();
        let cipher = keyring.of_space(&self.uuid, space.id, key, version);
        cipher.map_err(|e| e.in_file(&space.path()))
    }

    /// With what a page is written now; `None`: in clear.
    ///
    /// # Errors
    ///
    /// SP-17 keeps them away, but from a tablespace that was being opened while another one made undo
    /// encrypted, and whose key went in that moment.
    pub(super) fn cipher_to_write(&self, space: &Space) -> Result<Option<Arc<Cipher>>> {
        if !self.is_to_encrypt(space) {
            return Ok(None);
        }
        if space.kind() == SpaceKind::Temp {
            return Ok(Some(self.keyring().scratch().pages().clone()));
        }
        let newest = || space.ciphers().read().newest.clone();
        if let Some(newest) = newest() {
            return Ok(Some(newest));
        }
        self.have_key(space)?;
        let newest = newest().expect("SP-17: there is a key for what is to be encrypted");
        Ok(Some(newest))
    }

    fn cipher_to_read(&self, id: SpaceId, version: u32) -> Result<Arc<Cipher>> {
        let space = self.require(id)?;
        if space.kind() == SpaceKind::Temp {
            return Ok(self.keyring().scratch().pages().clone());
        }
        if let Some(known) = space.ciphers().read().of_version(version) {
            return Ok(known.clone());
        }
        let made = self.make_cipher(&space, version)?;
        let mut ciphers = space.ciphers().write();
        if ciphers.of_version(version).is_none() {
            ciphers.older.push(made.clone());
        }
        Ok(made)
    }

    /// What was read becomes the page that it is.
    pub(super) fn load_page(&self, id: PageId, bytes: &mut [u8]) -> Result<Stored> {
        let cipher_of = &mut |version| self.cipher_to_read(id.space, version);
        let stored = page::load_with(bytes, id, cipher_of)?;
        if stored.encrypted {
            self.encrypting.decrypted.fetch_add(1, Relaxed);
        } else if self.encrypting.any.load(Relaxed) {
            self.check_may_be_clear(id, bytes)?;
        }
        Ok(stored)
    }

    /// A page has got its stored form.
    pub(super) fn count_sealed(&self, stored: Stored) {
        if stored.encrypted {
            self.encrypting.encrypted.fetch_add(1, Relaxed);
        }
    }

    /// SP-16
    fn check_may_be_clear(&self, id: PageId, page: &[u8]) -> Result<()> {
        use PageType::*;
        let has_rows = !matches!(
            page::page_type(page),
            None | Some(Unused | FileHeader | Alloc)
        );
        let spaces = self.spaces.read();
        let space = spaces.get(&id.space).filter(|_| has_rows);
        let is_encrypted = space.is_some_and(|s| s.header.encryption.mode == EncryptionMode::On);
        match is_encrypted {
            false => Ok(()),
            true => Err(Error::corrupt(id, "an encrypted page", "one in clear")),
        }
    }
}

impl Space {
    fn ciphers(&self) -> &RwLock<SpaceCiphers> {
        self.ciphers.get_or_init(Box::default)
    }

    /// How far its encryption is, with the version of the key that all pages have at least.
    pub fn stage(&self) -> (Stage, u32) {
        self.stage.get()
    }

    /// What its file says it is, as far as its encryption is by now.
    pub fn header(&self) -> FileHeader {
        let (stage, least_version) = self.stage();
        FileHeader {
            stage,
            least_version,
            ..self.header
        }
    }

    /// Takes the stage that page 0 has, after a crash has left another one in the file. Only one in which
    /// pages are written encrypted is of any account now, and it takes a key.
    pub fn recover_stage(&self, env: &MtrEnv, spaces: &Spaces) -> Result<()> {
        let id = self.page(PageNo(0));
        let found = stage_in(&env.pool.shared(id)?);
        let (stage, least_version) =
            found.map_err(|found| Error::corrupt(id, "a stage of encryption", found))?;
        // Another one is entered once it is durable in the file.
        if stage.writes_encrypted() {
            spaces.take_newest_key(self)?;
            self.stage.set(stage, least_version);
        }
        Ok(())
    }

    /// Writes a stage to page 0. The pages are written by it once `enter_stage` was called.
    pub fn log_stage(&self, env: &MtrEnv, stage: Stage, least_version: u32) -> Result<()> {
        let mut mtr = Mtr::begin(env, 1024)?;
        let h = mtr.exclusive(self.page(PageNo(0)))?;
        let (off, bytes) = (STAGE as u16, &stage_bytes(stage, least_version)[..]);
        mtr.op(h, PageOp::Write { off, bytes });
        mtr.commit();
        Ok(())
    }

    /// Has its pages written by this stage (SP-18). It has a key, if that takes one (SP-17).
    pub fn enter_stage(&self, stage: Stage, least_version: u32) {
        let before = self.stage().0;
        let is_on_the_way = matches!(stage, Stage::Encrypting | Stage::Decrypting);
        assert!(
            is_on_the_way || before.writes_encrypted() == stage.writes_encrypted(),
            "SP-18: from {before:?} to {stage:?}"
        );
        self.stage.set(stage, least_version);
    }
}
