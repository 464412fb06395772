//! Rewrites pages in the background so that tablespaces are encrypted as they are to be: after
//! `encrypt_tables` was changed, and when there is a newer version of a key.
//!
//! A tablespace is dealt with in this order, and a crash anywhere leaves one that can be dealt with again:
//!
//! 1. Its stage becomes `Encrypting` (or `Decrypting`), in the redo log and then in its file. Until that is
//!    durable in the file pages are written as before; a start that finds the file opens it with that stage.
//! 2. From then on pages are written as they are to be (SP-18). Those that were taken for writing before are
//!    waited for.
//! 3. The file is read once, past the buffer pool. Each page that is not stored as it is to be is changed, by
//!    an operation that changes nothing, so that it is written again like any changed page. A page that can't
//!    be read there, because it is being written, is taken for one of these. One that was never used is zero,
//!    and stays so; a free one is rewritten, as there is something in it.
//! 4. When they are written the stage becomes `Encrypted` (or `Clear`).
//!
//! A table's pages are changed as purge changes them, while nobody drops, renames, checks or exports the
//! table: so a file that is being copied stays as it is, and no redo follows that of a removal.
//!
//! What is changed in 3 is limited to so many pages a second ([`RotationOptions::iops`]). A new version of
//! the key takes steps 2 to 4: the stage says that all have the older one, until then.
//!
//! Undo tablespaces are not read: their files are replaced, as when they are too large, and the new ones are
//! encrypted from the first page on. What waits for that: readers and transactions that use the old one.
//!
//! One pass deals with all tablespaces for which there is something to do: first with tables, and with undo
//! and the system tablespace, which are encrypted because tables are, when all tables are as they are to be.
//! If there is none any more that is encrypted the control file says so, and the next start has nothing to
//! look for. The next one begins when something else is wanted: the settings, or the newest version of a key.
//! A tablespace that can't be dealt with, as its key is not there, is told once and tried again by the next
//! pass. Nobody waits for any of it.

mod pace;
mod work;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use self::pace::Pace;
use self::work::Work;
use super::Database;
use crate::base::{Error, Result, SYSTEM_SPACE, SpaceId, TableId, threads};
use crate::catalog::TableDef;
use crate::ddl::{Ddl, table_path};
use crate::encryption::EncryptionMode;
use crate::flush::SpaceWriter;
use crate::space::{FileHeader, Space, SpaceEncryption, SpaceKind, Spaces, Target};
use crate::txn::Core;

/// The threads look so often whether something else is wanted.
const PAUSE: Duration = Duration::from_secs(2);
/// A pass in which something failed is made again after so long.
const REST: Duration = Duration::from_secs(300);
/// An undo tablespace that somebody uses is left alone for so long.
const UNDO_REST: Duration = Duration::from_secs(30);
/// How long an undo tablespace is waited for at a time.
const UNDO_PATIENCE: Duration = Duration::from_secs(2);
/// And by who makes one pass.
#[cfg(feature = "internals")]
const PASSING: Duration = Duration::from_millis(2);
const THREAD: &str = "varve-encryption";

/// How tablespaces are encrypted and decrypted in the background.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RotationOptions {
    /// So many tablespaces at a time; 0: none, and what there is stays as it is.
    pub threads: u32,
    /// Pages are encrypted again when their key's version is more than so many behind the newest one; 0:
    /// never.
    pub key_age: u32,
    /// How many pages are rewritten in a second, by all threads together: at least 1.
    pub iops: u32,
}

impl RotationOptions {
    pub const MOST_THREADS: u32 = 255;

    pub(crate) fn validate(&self) -> Result<()> {
        match (self.threads <= RotationOptions::MOST_THREADS, self.iops > 0) {
            (false, _) => Err(Error::invalid(format!(
                "{} threads for encryption; there are {} at most",
                self.threads,
                RotationOptions::MOST_THREADS
            ))),
            (_, false) => Err(Error::invalid(
                "encryption takes one page a second at least",
            )),
            _ => Ok(()),
        }
    }
}

impl Default for RotationOptions {
    fn default() -> RotationOptions {
        RotationOptions {
            threads: 1,
            key_age: 1,
            iops: 100,
        }
    }
}

/// How far a tablespace is that is being rewritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RotationProgress {
    pub page: u32,
    pub pages: u32,
}

/// What was wanted when a pass began: a change of it makes another one.
#[derive(Clone, PartialEq, Eq)]
struct Wanted {
    tables: bool,
    anything: bool,
    /// Encrypted tables that have gone: it may have been the last one.
    gone: u64,
    key_age: u32,
    /// The newest versions of the keys that were met.
    newest: BTreeMap<u32, u32>,
}

/// A tablespace to look at.
enum Item {
    System,
    /// By its place among the undo tablespaces, from 0 on.
    Undo(usize),
    /// By its name.
    Table(String),
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    /// The tables that were listed in this pass.
    listed: HashSet<String>,
    /// Undo and the system tablespace come when all tables are dealt with: whether there is an encrypted one
    /// is known then.
    owes_own: bool,
    /// Tablespaces that threads are at.
    at_work: HashSet<SpaceId>,
    pace: Pace,
    /// For which the items were listed; `None`: no pass was made yet, or the last one failed in part.
    wanted: Option<Wanted>,
    failed_at: Option<Instant>,
    /// Until then an undo tablespace that somebody uses is left alone.
    rests_until: Option<Instant>,
    /// Items that threads are at.
    busy: usize,
    progress: BTreeMap<SpaceId, RotationProgress>,
    /// Keys that were met.
    keys: BTreeSet<u32>,
    told: BTreeSet<String>,
}

pub(crate) struct Rotation {
    shared: Arc<Shared>,
    threads: Mutex<Vec<(Arc<AtomicBool>, JoinHandle<()>)>>,
}

struct Shared {
    core: Arc<Core>,
    ddl: Weak<Ddl>,
    writer: SpaceWriter,
    options: Mutex<RotationOptions>,
    state: Mutex<State>,
    /// Rung when something else may be wanted, and to stop.
    wake: Condvar,
    stop: AtomicBool,
}

impl Rotation {
    pub fn new(
        core: Arc<Core>,
        ddl: &Arc<Ddl>,
        writer: SpaceWriter,
        options: RotationOptions,
    ) -> Rotation {
        Rotation {
            shared: Arc::new(Shared {
                core,
                ddl: Arc::downgrade(ddl),
                writer,
                options: Mutex::new(options),
                state: Mutex::default(),
                wake: Condvar::new(),
                stop: AtomicBool::new(false),
            }),
            threads: Mutex::default(),
        }
    }

    /// Starts as many threads as the options say, and ends others.
    pub fn start(&self) -> Result<()> {
        let wanted = self.shared.options.lock().threads as usize;
        let mut threads = self.threads.lock();
        while threads.len() > wanted {
            let (stop, thread) = threads.pop().expect("there are some");
            stop.store(true, Relaxed);
            self.look_again();
            let _ = thread.join();
        }
        while threads.len() < wanted {
            let stop = Arc::new(AtomicBool::new(false));
            let (shared, own) = (self.shared.clone(), stop.clone());
            let body = move || {
                if catch_unwind(AssertUnwindSafe(|| shared.run(&own))).is_err() {
                    let why = format!("the thread {THREAD} panicked");
                    shared.core.log.poison(why);
                }
            };
            threads.push((stop, threads::spawn(THREAD, body)?));
        }
        Ok(())
    }

    pub fn options(&self) -> RotationOptions {
        *self.shared.options.lock()
    }

    pub fn set_options(&self, options: RotationOptions) {
        *self.shared.options.lock() = options;
        self.look_again();
    }

    /// Something else may be wanted.
    pub fn look_again(&self) {
        // Who looks now has not begun to wait.
        drop(self.shared.state.lock());
        self.shared.wake.notify_all();
    }

    pub fn progress(&self, space: SpaceId) -> Option<RotationProgress> {
        self.shared.state.lock().progress.get(&space).copied()
    }

    /// Makes one pass, and returns whether all is as it is to be.
    #[cfg(feature = "internals")]
    pub fn pass(&self) -> Result<bool> {
        let never = AtomicBool::new(false);
        {
            let mut state = self.shared.state.lock();
            state.items.clear();
            (state.owes_own, state.rests_until) = (false, None);
        }
        let before = self.shared.list_anew()?;
        while self.shared.step(&never, PASSING) {}
        Ok(self.shared.is_done(&before))
    }

    /// Waits until all is as it is to be.
    pub fn wait(&self, at_most: Duration) -> bool {
        let begun = Instant::now();
        loop {
            if self.shared.has_met_all() {
                return true;
            }
            if begun.elapsed() >= at_most || self.shared.is_stopped() {
                return false;
            }
            self.look_again();
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn stop(&self) {
        self.shared.stop.store(true, Relaxed);
        self.look_again();
        for (_, thread) in self.threads.lock().drain(..) {
            // A panic has been caught and has poisoned the log.
            let _ = thread.join();
        }
    }
}

impl Drop for Rotation {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed) || self.core.log.check().is_err()
    }

    /// A thread's body.
    fn run(&self, stop: &AtomicBool) {
        while !self.is_stopped() && !stop.load(Relaxed) {
            if self.step(stop, UNDO_PATIENCE) {
                continue;
            }
            if !self.has_met_all() && self.may_list() {
                if let Err(e) = self.list_anew() {
                    self.failed("tables".into(), &e);
                }
                continue;
            }
            let mut state = self.state.lock();
            if !self.is_stopped() && !stop.load(Relaxed) {
                self.wake.wait_for(&mut state, PAUSE);
            }
        }
    }

    /// A pass may begin: no other one is under way, and the last failure is a while ago.
    fn may_list(&self) -> bool {
        let state = self.state.lock();
        let has_rested = state.failed_at.is_none_or(|at| at.elapsed() >= REST);
        state.busy == 0 && state.items.is_empty() && !state.owes_own && has_rested
    }

    /// What is wanted now.
    fn wanted(&self, spaces: &Spaces, keys: &BTreeSet<u32>) -> Wanted {
        let newest = |key: &u32| Some((*key, spaces.keyring().newest(*key).ok()?));
        Wanted {
            tables: spaces.encrypts_tables(),
            anything: spaces.encrypts_anything(),
            gone: spaces.encrypted_gone(),
            key_age: self.options.lock().key_age,
            newest: keys.iter().filter_map(newest).collect(),
        }
    }

    #[cfg(feature = "internals")]
    fn is_done(&self, wanted: &Wanted) -> bool {
        let state = self.state.lock();
        let has_none_left = state.items.is_empty() && state.failed_at.is_none();
        has_none_left && state.wanted.as_ref() == Some(wanted)
    }

    fn has_met_all(&self) -> bool {
        let Some(ddl) = self.ddl.upgrade() else {
            return true;
        };
        // Nothing can be encrypted, or nothing is or is to be.
        if ddl.spaces.keyring().is_empty() || !ddl.spaces.encrypts_anything() && self.is_new() {
            return true;
        }
        let keys = self.state.lock().keys.clone();
        let wanted = self.wanted(&ddl.spaces, &keys);
        let state = self.state.lock();
        state.wanted.as_ref() == Some(&wanted)
            && !state.owes_own
            && state.items.is_empty()
            && state.busy == 0
            && state.failed_at.is_none()
    }

    /// No pass was made.
    fn is_new(&self) -> bool {
        let state = self.state.lock();
        state.wanted.is_none() && state.failed_at.is_none()
    }

    /// Lists all tablespaces.
    fn list_anew(&self) -> Result<Wanted> {
        let Some(ddl) = self.ddl.upgrade() else {
            return Err(Error::invalid("the database is closed"));
        };
        let names = self.core.tables.names()?;
        let keys = self.state.lock().keys.clone();
        let wanted = self.wanted(&ddl.spaces, &keys);
        let mut state = self.state.lock();
        if state.busy == 0 && state.items.is_empty() && !state.owes_own {
            state.owes_own = true;
            state.listed = names.iter().cloned().collect();
            state.items = names.into_iter().map(Item::Table).collect();
            state.wanted = Some(wanted.clone());
            state.failed_at = None;
        }
        Ok(wanted)
    }

    /// All tables that were listed are dealt with. Lists those that have come meanwhile, perhaps by another
    /// name; if there are none, undo and the system tablespace, and says whether any table is encrypted. No
    /// table is being made meanwhile.
    fn list_rest(&self, ddl: &Ddl) -> Result<()> {
        let _serial = self.core.tables.serialize_ddl();
        let names = self.core.tables.names()?;
        let mut state = self.state.lock();
        if state.busy > 0 || !state.items.is_empty() || !state.owes_own {
            return Ok(());
        }
        for name in &names {
            if state.listed.insert(name.clone()) {
                state.items.push_back(Item::Table(name.clone()));
            }
        }
        if !state.items.is_empty() {
            return Ok(());
        }
        drop(state);
        if ddl.spaces.encrypts_anything() && !ddl.spaces.encrypts_tables() {
            let is_on = |def: &TableDef| def.encryption.mode == EncryptionMode::On;
            let mut defs = names.iter().map(|name| self.core.tables.definition(name));
            // One that can't be read may be one.
            if !defs.any(|def| !matches!(def, Ok(Some(def)) if !is_on(&def))) {
                ddl.spaces.has_none_encrypted()?;
            }
        }
        let mut state = self.state.lock();
        state.owes_own = false;
        let anything = ddl.spaces.encrypts_anything();
        if let Some(wanted) = &mut state.wanted {
            wanted.anything = anything;
        }
        let undo = 0..self.core.undo.spaces().len();
        state.items = undo.map(Item::Undo).chain([Item::System]).collect();
        Ok(())
    }

    /// The next one to deal with.
    fn next_item(&self, ddl: &Ddl) -> Option<Item> {
        let is_end_of_tables = {
            let state = self.state.lock();
            state.items.is_empty() && state.owes_own && state.busy == 0
        };
        if is_end_of_tables && let Err(e) = self.list_rest(ddl) {
            self.failed("tables".into(), &e);
            self.state.lock().owes_own = false;
        }
        let mut state = self.state.lock();
        let rests = state
            .rests_until
            .is_some_and(|until| Instant::now() < until);
        let is_ready = |item: &Item| !(rests && matches!(item, Item::Undo(_)));
        if !state.items.front().is_some_and(is_ready) {
            return None;
        }
        let item = state.items.pop_front()?;
        state.busy += 1;
        Some(item)
    }

    /// Deals with the next tablespace. False: there is none.
    fn step(&self, stop: &AtomicBool, patience: Duration) -> bool {
        let Some(ddl) = self.ddl.upgrade() else {
            return false;
        };
        let Some(item) = self.next_item(&ddl) else {
            return false;
        };
        let (what, done) = match &item {
            Item::System => {
                let done = ddl.spaces.require(SYSTEM_SPACE);
                let done = done.and_then(|space| self.deal_with(&ddl, &space, None, stop));
                ("the system tablespace".to_owned(), done)
            }
            Item::Undo(n) => (
                format!("undo tablespace {}", n + 1),
                self.replace_undo(&ddl, *n, patience, stop),
            ),
            Item::Table(name) => (format!("table {name}"), self.table(&ddl, name, stop)),
        };
        self.state.lock().busy -= 1;
        match done {
            Ok(()) => {}
            // It went meanwhile.
            Err(Error::NotFound { .. }) => {}
            Err(_) if self.is_stopped() || stop.load(Relaxed) => {
                self.state.lock().wanted = None;
            }
            Err(Error::LockWaitTimeout) => {
                let mut state = self.state.lock();
                state.items.push_back(item);
                state.rests_until = Some(Instant::now() + UNDO_REST);
            }
            Err(e) => self.failed(what, &e),
        }
        true
    }

    fn failed(&self, what: String, e: &Error) {
        let mut state = self.state.lock();
        state.failed_at = Some(Instant::now());
        if state.told.insert(what.clone()) {
            drop(state);
            self.core.warn(&format!(
                "{what} is not encrypted or decrypted as it is to be yet: {e}"
            ));
        }
    }

    /// What a tablespace with this header is to become, if it is not that yet.
    fn target(&self, ddl: &Ddl, header: &FileHeader) -> Result<Option<Target>> {
        self.state.lock().keys.insert(header.encryption.key);
        let key_age = self.options.lock().key_age;
        let target = ddl.spaces.encryption_target(header, key_age)?;
        let newest = ddl.spaces.keyring().newest(header.encryption.key);
        // It may have been met just now for the first time. A newer version makes another pass.
        if let (Some(wanted), Ok(newest)) = (&mut self.state.lock().wanted, newest) {
            wanted.newest.entry(header.encryption.key).or_insert(newest);
        }
        Ok(target)
    }

    fn table(&self, ddl: &Ddl, name: &str, stop: &AtomicBool) -> Result<()> {
        let Some(def) = self.core.tables.definition(name)? else {
            return Ok(());
        };
        if def.discarded {
            return Ok(());
        }
        if ddl.spaces.get(def.space).is_none() {
            let header = ddl.spaces.inspect(&table_path(name))?;
            if header.intro.space != def.space || self.target(ddl, &header)?.is_none() {
                return Ok(());
            }
        }
        // One that can't be used is told of where somebody wants it.
        let Some(table) = self.core.tables.find(name)? else {
            return Ok(());
        };
        let space = ddl.spaces.require(table.space())?;
        self.deal_with(ddl, &space, Some(table.id()), stop)
    }

    /// Steps 1 to 4.
    fn deal_with(
        &self,
        ddl: &Ddl,
        space: &Space,
        table: Option<TableId>,
        stop: &AtomicBool,
    ) -> Result<()> {
        let work = Work::begin(self, ddl, space, table, stop);
        // Or another thread is at it.
        work.map_or(Ok(()), |work| work.bring())
    }

    fn replace_undo(
        &self,
        ddl: &Ddl,
        n: usize,
        patience: Duration,
        stop: &AtomicBool,
    ) -> Result<()> {
        let spaces = self.core.undo.spaces();
        let target = || {
            let space = ddl.spaces.require(spaces[n].id())?;
            self.target(ddl, &space.header())
        };
        if target()?.is_none() {
            return Ok(());
        }
        let give_up = || self.is_stopped() || stop.load(Relaxed);
        crate::purge::truncate(&self.core, &ddl.control, n + 1, patience, &give_up)?;
        match target()? {
            None => Ok(()),
            // Somebody still needs what is in the old one.
            Some(_) => Err(Error::LockWaitTimeout),
        }
    }
}

impl Database {
    /// How tablespaces are encrypted and decrypted in the background.
    pub fn rotation_options(&self) -> RotationOptions {
        self.inner.rotation.options()
    }

    /// Changes that.
    ///
    /// # Errors
    ///
    /// `Invalid`: values that can't be. Nothing has changed.
    pub fn set_rotation_options(&self, options: RotationOptions) -> Result<()> {
        options.validate()?;
        self.inner.rotation.set_options(options);
        match self.inner.rotates {
            true => self.inner.rotation.start(),
            false => Ok(()),
        }
    }

    /// Waits until all tablespaces are encrypted, or not, as they are to be, at most so long. `false`: they
    /// are not yet, or no thread makes them so.
    pub fn wait_for_encryption(&self, at_most: Duration) -> bool {
        self.inner.rotation.wait(at_most)
    }

    /// Does what the background threads do, and returns whether all is as it is to be.
    #[cfg(feature = "internals")]
    pub fn rotate_encryption(&self) -> Result<bool> {
        self.inner.rotation.pass()
    }

    /// How far the encryption of each tablespace is, but of temporary ones, and of those that are being
    /// rewritten how far that is.
    pub fn encryption(&self) -> Result<Vec<(SpaceEncryption, Option<RotationProgress>)>> {
        let spaces = &self.inner.ddl.spaces;
        let mut all = Vec::new();
        let mut push = |encryption: SpaceEncryption| {
            let progress = self.inner.rotation.progress(encryption.space);
            all.push((encryption, progress));
        };
        for space in spaces.all() {
            if space.kind() != SpaceKind::Temp {
                push(spaces.encryption_of(&space.header(), &space.path()));
            }
        }
        for name in self.tables()? {
            let path = table_path(&name);
            let Some(def) = self.definition(&name)?.filter(|def| !def.discarded) else {
                continue;
            };
            // A file that can't be read is told of elsewhere.
            if spaces.get(def.space).is_none()
                && let Ok(header) = spaces.inspect(&path)
            {
                push(spaces.encryption_of(&header, &path));
            }
        }
        all.sort_by_key(|(encryption, _)| encryption.space);
        Ok(all)
    }
}
