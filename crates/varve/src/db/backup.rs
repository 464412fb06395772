//! Backups of an open database: one that the caller waits for, and one that a thread makes while the caller
//! says when it ends.
//!
//! The second one is for a caller who makes a copy of something else, too, and wants both to be of one
//! moment. The thread copies all pages and then follows the redo log, for as long as it takes;
//! [`RunningBackup::end`] fixes the moment and returns, and the thread does the rest.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Database;
use crate::backup::{Backup, BackupOptions, BackupSummary};
use crate::base::{Error, Result, threads};

/// How often the thread looks at the log.
const PAUSE: Duration = Duration::from_millis(50);

/// And how often at the tablespaces.
const KEPT_UP_EVERY: Duration = Duration::from_secs(5);

/// How far a [`RunningBackup`] is.
#[derive(Clone, Debug)]
pub enum BackupState {
    /// Pages are being copied: so many bytes by now.
    Copying(u64),
    /// All pages are copied, and redo is as it comes: it may end.
    Following,
    /// The moment has come that it is of. What is left is being copied.
    Ending,
    Complete(BackupSummary),
    /// Nothing of it is left.
    Failed(Error),
}

/// A backup that a thread makes. Dropped before it is complete, it is given up, and nothing of it is left.
pub struct RunningBackup {
    shared: Arc<Shared>,
    interrupt: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    progress: Mutex<Progress>,
    changed: Condvar,
}

struct Progress {
    state: BackupState,
    /// It is to end.
    ends: bool,
}

impl Shared {
    fn enter(&self, state: BackupState) {
        self.progress.lock().state = state;
        self.changed.notify_all();
    }
}

impl Database {
    /// Makes a backup of the database in `dir`, which is made, or is empty, while it is used: of all that has
    /// committed by a moment close to the end. [`crate::backup::restore`] makes a database of it.
    ///
    /// # Errors
    ///
    /// `Invalid`: something is in the directory, or it is in the database's own; or there can't be an
    /// increment on [`BackupOptions::base`]. `Corrupt`: a page is damaged. `NotFound`: a table's file is not
    /// there. `TooLarge`: there was more redo than [`BackupOptions::max_redo_bytes`]. `Interrupted`. Nothing
    /// of the backup is left then.
    pub fn backup(&self, dir: impl AsRef<Path>, options: BackupOptions) -> Result<BackupSummary> {
        let mut backup = self.begin_backup(dir.as_ref(), options)?;
        backup.copy_all(&|_| ())?;
        backup.finish()
    }

    /// Has a thread make a backup, which goes on until [`RunningBackup::end`].
    ///
    /// # Errors
    ///
    /// `Invalid`: something is in the directory, or it is in the database's own; or there can't be an
    /// increment on [`BackupOptions::base`]. All else the backup's state says.
    pub fn start_backup(
        &self,
        dir: impl Into<PathBuf>,
        options: BackupOptions,
    ) -> Result<RunningBackup> {
        let (dir, ddl) = (dir.into(), &self.inner.ddl);
        Backup::check(ddl, &**ddl.spaces.disk(), &dir, &options)?;
        let shared = Arc::new(Shared {
            progress: Mutex::new(Progress {
                state: BackupState::Copying(0),
                ends: false,
            }),
            changed: Condvar::new(),
        });
        let interrupt = options.interrupt.clone().unwrap_or_default();
        let options = BackupOptions {
            interrupt: Some(interrupt.clone()),
            ..options
        };
        let (db, of_thread) = (self.clone(), shared.clone());
        let thread = threads::spawn("varve-backup", move || {
            let body = AssertUnwindSafe(|| run(&db, &dir, options, &of_thread));
            let panicked = |_| Err(Error::invalid("a backup: the thread that made it panicked"));
            of_thread.enter(match catch_unwind(body).unwrap_or_else(panicked) {
                Ok(summary) => BackupState::Complete(summary),
                Err(e) => {
                    if !matches!(e, Error::Interrupted) {
                        db.warn(&format!("the backup in {} has failed: {e}", dir.display()));
                    }
                    BackupState::Failed(e)
                }
            });
        })?;
        Ok(RunningBackup {
            shared,
            interrupt,
            thread: Some(thread),
        })
    }

    /// Begins a backup once recovery is through: until then files may have other names.
    pub(super) fn begin_backup(&self, dir: &Path, options: BackupOptions) -> Result<Backup> {
        let is_set = |flag: &Arc<AtomicBool>| flag.load(Relaxed);
        while !self.wait_for_recovery(2 * PAUSE) {
            self.inner.core.check_usable()?;
            if options.interrupt.as_ref().is_some_and(is_set) {
                return Err(Error::Interrupted);
            }
        }
        let disk = self.inner.ddl.spaces.disk().clone();
        Backup::begin(self.inner.ddl.clone(), disk, dir, options)
    }
}

/// The thread's body.
fn run(
    db: &Database,
    dir: &Path,
    options: BackupOptions,
    shared: &Shared,
) -> Result<BackupSummary> {
    let most_bytes = options.max_redo_bytes;
    let mut backup = db.begin_backup(dir, options)?;
    backup.copy_all(&|bytes| shared.enter(BackupState::Copying(bytes)))?;
    backup.keep_up()?;
    let from = backup.copied_to();
    shared.enter(BackupState::Following);
    let mut kept_up = Instant::now();
    while !shared.progress.lock().ends {
        db.inner.core.check_usable()?;
        backup.follow()?;
        if kept_up.elapsed() >= KEPT_UP_EVERY {
            backup.keep_up()?;
            kept_up = Instant::now();
        }
        let followed = backup.copied_to().0 - from.0;
        if followed > most_bytes {
            return Err(Error::TooLarge {
                what: "the redo since a backup could have ended, which nobody has done,".into(),
                size: followed as usize,
                limit: most_bytes as usize,
            });
        }
        let mut progress = shared.progress.lock();
        if !progress.ends {
            shared.changed.wait_for(&mut progress, PAUSE);
        }
    }
    let end = backup.end()?;
    shared.enter(BackupState::Ending);
    backup.complete(end)
}

impl RunningBackup {
    pub fn state(&self) -> BackupState {
        self.shared.progress.lock().state.clone()
    }

    /// The backup is of this moment: it has all that has committed before the call, and what commits later
    /// is not in it. Takes as long as a sync of the log, mostly, and waits for a DDL statement that commits.
    ///
    /// # Errors
    ///
    /// `Invalid`: pages are still being copied, or it has ended before. Otherwise why it has failed.
    pub fn end(&self) -> Result<()> {
        let mut progress = self.shared.progress.lock();
        match &progress.state {
            BackupState::Following if !progress.ends => {}
            BackupState::Failed(e) => return Err(e.clone()),
            BackupState::Copying(_) => {
                return Err(Error::invalid(
                    "the end of a backup whose pages are still being copied: wait until it follows the redo log",
                ));
            }
            _ => return Err(Error::invalid("the end of a backup that has ended")),
        }
        progress.ends = true;
        self.shared.changed.notify_all();
        loop {
            match &progress.state {
                BackupState::Ending | BackupState::Complete(_) => return Ok(()),
                BackupState::Failed(e) => return Err(e.clone()),
                BackupState::Copying(_) | BackupState::Following => {}
            }
            self.shared.changed.wait(&mut progress);
        }
    }
}

impl Drop for RunningBackup {
    fn drop(&mut self) {
        self.interrupt.store(true, Relaxed);
        self.shared.progress.lock().ends = true;
        self.shared.changed.notify_all();
        self.thread.take().map(JoinHandle::join);
    }
}
