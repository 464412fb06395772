//! `varve check`: whether a database that nobody has open is what was written.
//!
//! # How
//!
//! Files that are not made of pages are looked at as they are: the control file, the log files' headers, the
//! redo stream up to its end, the doublewrite file. Then the database is opened on an overlay, which does in
//! memory what the next start would do: restores torn pages, applies redo, rolls back what had not ended. The
//! result is checked: each page of each tablespace, with the allocation pages; the definitions; each rollback
//! segment; each table, as CHECK TABLE does it. So the verdict is about what the next start would find,
//! whether or not the database was closed cleanly.
//!
//! If the database can't be opened, that is a finding, and what a page says by itself is judged in the files
//! as they are: after a crash a page may be torn there, and redo or the doublewrite file would have put it
//! right.
//!
//! # What it can't see
//!
//! - A page that was replaced by an older version of itself, if nothing else contradicts it.
//! - The last redo of a database that was not closed: where the log ends is where the first frame is not
//!   whole. But no page may be newer.
//!
//! Memory: the buffer pool, and what recovery changes.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;

use crate::base::{Error, Lsn, PageNo, Result, SYSTEM_SPACE, SpaceId};
use crate::buffer::PageStore;
use crate::catalog::{OpenTable, Tables};
use crate::db::{CREATION_MARK, Database, recorded_undo_directory};
use crate::ddl::{self, SYSTEM_TABLE, StoredDef, lookups, table_path};
use crate::encryption::{EncryptionKeys, Keyring};
use crate::flush::doublewrite;
use crate::io::{Disk, Overlay, RealDisk};
use crate::page;
use crate::recovery;
use crate::redo::{self, CONTROL_FILE, Control, Copied, REDO_DIR};
use crate::space::{SpaceKind, Spaces};
use crate::table::{TableFile, check_quiet_table, find_orphans, table_file_with};
use crate::txn::{Core, Isolation, Transaction};
use crate::undo::SYSTEM_FILE;

use super::files::{Names, SpaceFile, space_files};
use super::finding::{Finding, Grade, advice};

/// What a check has looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Findings that are damage.
    pub damages: u64,
    pub notes: u64,
    pub tablespaces: u64,
    pub pages: u64,
    pub tables: u64,
    pub rows: u64,
    /// The database was not closed cleanly.
    pub recovery_owed: bool,
}

/// Checks the database in `dir`, which nobody may have open. Hands what it finds to `tell`. With the keys of
/// what is encrypted.
///
/// # Errors
///
/// What kept it from checking: `InUse`, `NotFound` if there is no database, `Unsupported` for one of another
/// version, `Io`, `NoKey`. Damage is none.
pub fn check(
    dir: impl AsRef<Path>,
    keys: Option<Arc<dyn EncryptionKeys>>,
    tell: &mut dyn FnMut(&Finding),
) -> Result<Summary> {
    check_with_keys(Arc::new(RealDisk), dir.as_ref(), keys, tell)
}

/// [`check`] on another implementation of the disk.
#[cfg(feature = "internals")]
pub fn check_on(
    disk: Arc<dyn Disk>,
    dir: &Path,
    tell: &mut dyn FnMut(&Finding),
) -> Result<Summary> {
    check_with_keys(disk, dir, None, tell)
}

/// [`check`] on another implementation of the disk.
pub fn check_with_keys(
    disk: Arc<dyn Disk>,
    dir: &Path,
    keys: Option<Arc<dyn EncryptionKeys>>,
    tell: &mut dyn FnMut(&Finding),
) -> Result<Summary> {
    let disk = Arc::new(Overlay::new(disk));
    let exists = |name: &str| disk.exists(&dir.join(name));
    // What was left of an unfinished creation is no database either: the next start begins anew.
    let is_there = exists(CONTROL_FILE)? || exists(SYSTEM_FILE)?;
    if !is_there || exists(CREATION_MARK)? {
        return Err(Error::not_found(format!("a database in {}", dir.display())));
    }
    let _lock = disk.lock_below(dir)?;
    let mut check = Check {
        disk,
        dir,
        names: Names::default(),
        keyring: Keyring::new(keys.clone()),
        keys,
        lacks_key: None,
        told: HashSet::new(),
        summary: Summary::default(),
        tell,
    };
    check.run()?;
    match check.lacks_key {
        Some(why) => Err(why),
        None => Ok(check.summary),
    }
}

struct Check<'a> {
    disk: Arc<Overlay>,
    dir: &'a Path,
    names: Names,
    keyring: Keyring,
    keys: Option<Arc<dyn EncryptionKeys>>,
    /// Something could not be decrypted.
    lacks_key: Option<Error>,
    /// Errors that were told: others speak of them again.
    told: HashSet<String>,
    summary: Summary,
    tell: &'a mut dyn FnMut(&Finding),
}

impl Check<'_> {
    fn run(&mut self) -> Result<()> {
        let Some(control) = self.control()? else {
            return Ok(());
        };
        self.summary.recovery_owed = !control.clean_shutdown;
        self.redo(&control)?;
        self.doublewrite(&control)?;
        let spaces = Spaces::new(
            self.disk.clone(),
            self.dir,
            control.page_size as usize,
            control.uuid,
            OPEN_FILES,
        );
        let spaces = spaces.with_keys(self.keyring.clone());
        let spaces = spaces.with_undo_dir(recorded_undo_directory(&*self.disk, self.dir)?);
        let files = space_files(&*self.disk, self.dir, &spaces)?;
        self.names = Names::of(&files);
        for file in &files {
            if let Err(e) = &file.space {
                self.damage(e, advice::TABLE);
            }
        }
        self.restorable(&control, &spaces)?;
        // The files as they are stay to be looked at.
        let disk = Arc::new(Overlay::new(self.disk.clone()));
        match Database::open_to_check(disk.clone(), self.dir, self.keys.clone()) {
            Ok(db) => {
                let told = self.replaced(&*disk, &files);
                let done = told.and_then(|()| self.recovered(&db));
                db.inner.crash();
                done
            }
            Err(e) => {
                self.damage(&e, advice::DATABASE);
                self.note(
                    CONTROL_FILE,
                    "the database can't be opened: only what each page says by itself is judged",
                );
                self.pages_as_they_are(&spaces);
                Ok(())
            }
        }
    }

    fn find(&mut self, finding: Finding) {
        match finding.grade {
            Grade::Damage => self.summary.damages += 1,
            Grade::Note => self.summary.notes += 1,
        }
        (self.tell)(&finding);
    }

    fn note(&mut self, file: &str, what: impl Into<String>) {
        self.find(Finding {
            grade: Grade::Note,
            file: file.into(),
            page: None,
            what: what.into(),
            advice: advice::NONE,
        });
    }

    fn damage_in(&mut self, file: String, what: String, advice: &'static str) {
        self.find(Finding {
            grade: Grade::Damage,
            file,
            page: None,
            what,
            advice,
        });
    }

    fn damage(&mut self, e: &Error, advice: &'static str) {
        self.tell_error(e, Grade::Damage, advice);
    }

    fn tell_error(&mut self, e: &Error, grade: Grade, advice: &'static str) {
        if matches!(e, Error::NoKey { .. }) {
            // That is no damage, and nothing can be said without it.
            self.lacks_key.get_or_insert_with(|| e.clone());
            return;
        }
        let file = self.names.of_error(self.dir, e);
        // Of what the pool has read the error names the file already.
        let suffix = format!(" in {file}");
        let text = e.to_string();
        let text = text.strip_suffix(&suffix).unwrap_or(&text);
        if !self.told.insert(text.to_string()) {
            return;
        }
        let (page, what) = match e {
            Error::Corrupt {
                page,
                expected,
                found,
            } => {
                let found = found.strip_suffix(&suffix).unwrap_or(found);
                (Some(page.no), format!("expected {expected}, found {found}"))
            }
            Error::CorruptFile {
                expected, found, ..
            } => (None, format!("expected {expected}, found {found}")),
            other => (None, other.to_string()),
        };
        self.find(Finding {
            grade,
            file,
            page,
            what,
            advice,
        });
    }

    /// What the newest whole copy of the control file says. `None`: neither copy can be used.
    fn control(&mut self) -> Result<Option<Control>> {
        let copies = match redo::control_copies(&*self.disk, self.dir) {
            Ok(copies) => copies,
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                let what = "no such file, beside a database".into();
                self.damage_in(CONTROL_FILE.into(), what, advice::DATABASE);
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let mut newest: Option<Copied> = None;
        let mut errors = Vec::new();
        for (n, copy) in copies.into_iter().enumerate() {
            match copy {
                Ok(Some(copy)) if newest.is_none_or(|best| best.sequence < copy.sequence) => {
                    newest = Some(copy)
                }
                Ok(_) => {}
                // A file of another version is no damage, and not to be judged.
                Err(e @ Error::Unsupported { .. }) => return Err(e),
                Err(Error::CorruptFile {
                    expected, found, ..
                }) => errors.push(format!("copy {n}: expected {expected}, found {found}")),
                Err(e) => errors.push(format!("copy {n}: {e}")),
            }
        }
        // A copy of zeros was never written, but one of the two was.
        if newest.is_none() && errors.is_empty() {
            errors.push("expected a copy of it, found zeros".into());
        }
        for what in errors {
            let file = CONTROL_FILE.to_string();
            match newest {
                Some(_) => self.damage_in(file, what, advice::CONTROL),
                None => self.damage_in(file, what, advice::DATABASE),
            }
        }
        Ok(newest.map(|copy| copy.control))
    }

    /// Log files' headers, and the stream up to its end.
    fn redo(&mut self, control: &Control) -> Result<()> {
        if !self.disk.exists(&self.dir.join(REDO_DIR))? {
            self.damage_in(
                REDO_DIR.into(),
                "no such directory".into(),
                advice::DATABASE,
            );
            return Ok(());
        }
        for e in redo::damaged_files(&*self.disk, self.dir, &control.uuid)? {
            self.damage(&e, advice::DATABASE);
        }
        let scan = match recovery::measure(&*self.disk, self.dir, control, &self.keyring) {
            Ok(scan) => scan,
            Err(e) => {
                self.damage(&e, advice::DATABASE);
                return Ok(());
            }
        };
        let bytes = scan.end.0 - control.checkpoint.0;
        if !control.clean_shutdown {
            self.note(
                REDO_DIR,
                format!(
                    "the database was not closed cleanly: the next start applies {bytes} bytes of redo \
                     from LSN {} on; all that follows is about what that makes of it",
                    control.checkpoint
                ),
            );
        }
        Ok(())
    }

    fn doublewrite(&mut self, control: &Control) -> Result<()> {
        let page_size = control.page_size as usize;
        let torn = doublewrite::damaged_copies(&*self.disk, self.dir, page_size, &control.uuid);
        let grade = match control.clean_shutdown {
            true => Grade::Damage,
            false => Grade::Note,
        };
        match torn {
            Ok(errors) => {
                for e in errors {
                    self.tell_error(&e, grade, advice::DOUBLEWRITE);
                }
            }
            Err(e) => self.damage(&e, advice::DATABASE),
        }
        Ok(())
    }

    /// Pages that are damaged in place and whole in the doublewrite file. After a crash they were torn; after
    /// a clean shutdown they are damaged all the same.
    fn restorable(&mut self, control: &Control, spaces: &Spaces) -> Result<()> {
        let page_size = control.page_size as usize;
        let copies = doublewrite::read_copies(&*self.disk, self.dir, page_size, &control.uuid);
        let grade = match control.clean_shutdown {
            true => Grade::Damage,
            false => Grade::Note,
        };
        let mut found = vec![0; page_size];
        // What is wrong with the file has been told.
        for (id, _) in copies.unwrap_or_default() {
            match spaces.read(id, &mut found) {
                Ok(()) => {}
                Err(Error::NotFound { .. } | Error::Corrupt { .. }) => continue,
                Err(e) => return Err(e),
            }
            if let Err(e) = page::verify(&found, id) {
                self.tell_error(&e, grade, advice::RESTORED);
            }
        }
        Ok(())
    }

    /// Files that recovery removes or renames: its disk has them no more.
    fn replaced(&mut self, recovered: &dyn Disk, files: &[SpaceFile]) -> Result<()> {
        for file in files {
            if file.space.is_ok() && !recovered.exists(&self.dir.join(&file.path))? {
                self.note(
                    &file.path,
                    "nothing has this tablespace, or what has it has another name: the next start removes or renames the file",
                );
            }
        }
        Ok(())
    }

    /// Judges what recovery has made.
    fn recovered(&mut self, db: &Database) -> Result<()> {
        let core = &db.inner.core;
        let spaces = &db.inner.ddl.spaces;
        let pool = &core.pool;
        let mut read = |id, buf: &mut [u8]| {
            buf.copy_from_slice(&pool.shared(id)?);
            Ok(())
        };
        for space in spaces.all() {
            if space.kind() != SpaceKind::Temp {
                self.pages(&space, core.log.next_lsn(), &mut read);
            }
        }
        self.undo(core, spaces);
        self.tables(db)
    }

    fn pages(
        &mut self,
        space: &crate::space::Space,
        newest: Lsn,
        read: &mut dyn FnMut(crate::base::PageId, &mut [u8]) -> Result<()>,
    ) {
        self.summary.tablespaces += 1;
        self.summary.pages += u64::from(space.size_pages());
        let advice = match space.kind() {
            SpaceKind::Table => advice::TABLE,
            _ => advice::DATABASE,
        };
        space.verify_pages(newest, read, &mut |e| self.damage(&e, advice));
    }

    /// The files as they are: what a page says by itself, and whether it is in use, if the database was
    /// closed cleanly.
    fn pages_as_they_are(&mut self, spaces: &Spaces) {
        let mut read = |id, buf: &mut [u8]| {
            spaces.read(id, buf)?;
            spaces.load(id, buf).map(drop)
        };
        for space in spaces.all() {
            self.pages(&space, Lsn(u64::MAX), &mut read);
        }
    }

    /// Each rollback segment, and that no undo page is lost.
    fn undo(&mut self, core: &Core, spaces: &Spaces) {
        let mut used: HashSet<(SpaceId, PageNo)> = HashSet::new();
        let mut whole = true;
        for rseg in core.undo.logged() {
            match rseg.check(&core.undo.env) {
                Ok(pages) => used.extend(pages.into_iter().map(|no| (rseg.space(), no))),
                Err(e) => {
                    whole = false;
                    self.damage(&e, advice::DATABASE);
                }
            }
        }
        for space in spaces.all() {
            if !whole || space.kind() != SpaceKind::Undo {
                continue;
            }
            match space.pages_in_use(&core.mtr) {
                Ok(pages) => {
                    let lost = |no: &&PageNo| !used.contains(&(space.id(), **no));
                    if let Some(no) = pages.iter().find(lost) {
                        let e = Error::corrupt(
                            crate::base::PageId::new(space.id(), *no),
                            "a page of a rollback segment",
                            "one that is in use, but nothing refers to it",
                        );
                        self.damage(&e, advice::DATABASE);
                    }
                }
                Err(e) => self.damage(&e, advice::DATABASE),
            }
        }
    }

    fn tables(&mut self, db: &Database) -> Result<()> {
        let core = &db.inner.core;
        let mut reader = Transaction::begin(core.clone(), Isolation::RepeatableRead);
        match ddl::load_defs(&mut reader, &db.inner.ddl.dictionary.system) {
            Ok(defs) => self.lookups(&mut reader, db, &defs),
            Err(e) => self.damage(&e, advice::DATABASE),
        }
        drop(reader);
        self.table(&db.inner.ddl.dictionary.system, &core.tables);
        let such = lookups::Prefix::tables();
        let mut reader = Transaction::begin(core.clone(), Isolation::RepeatableRead);
        // By their ids.
        let mut names = db.inner.ddl.dictionary.all(&mut reader, &such)?;
        let unreadable = lookups::Prefix::unreadable();
        names.extend(db.inner.ddl.dictionary.all(&mut reader, &unreadable)?);
        drop(reader);
        for name in names.into_values().map(|found| found.name) {
            match core.tables.get(&name) {
                Ok(table) => {
                    self.table(&table, &core.tables);
                    self.orphans(core, &table);
                }
                Err(why @ Error::TablespaceDiscarded { .. }) => {
                    let path = table_path(&name);
                    let waits = waiting_file(&db.inner.ddl.spaces, &path);
                    self.note(&path, format!("{why}{waits}"));
                }
                Err(why) => {
                    self.damage(&why, advice::TABLE);
                    self.note(
                        &table_path(&name),
                        format!("table {name} can't be used, so it was not checked"),
                    );
                }
            }
        }
        Ok(())
    }

    /// DEF-3
    fn lookups(&mut self, reader: &mut Transaction, db: &Database, defs: &[StoredDef]) {
        let stored = match lookups::all_stored(reader, &db.inner.ddl.dictionary.system) {
            Ok(Some(stored)) => stored,
            // Those of an older version get them when they are opened to be used.
            Ok(None) => return,
            Err(e) => return self.damage(&e, advice::DATABASE),
        };
        let unreadable: HashSet<_> = (defs.iter())
            .filter_map(|stored| stored.def.is_err().then_some(&*stored.name))
            .collect();
        let right = lookups::collect(defs);
        let keys: BTreeSet<_> = right.keys().chain(stored.keys()).collect();
        for key in keys {
            let name = |rows: &lookups::Rows| rows.get(key).map(|found| found.name.clone());
            let (expected, found) = (name(&right), name(&stored));
            let is_known = |name: &Option<String>| {
                name.as_deref()
                    .is_none_or(|name| !unreadable.contains(name))
            };
            if expected != found && is_known(&expected) && is_known(&found) {
                let key = key.escape_ascii();
                let what = format!(
                    "look-up {key} leads to {found:?}; by the definitions it is {expected:?}"
                );
                self.damage_in(SYSTEM_FILE.into(), what, advice::DATABASE);
            }
        }
    }

    fn orphans(&mut self, core: &Arc<Core>, table: &Arc<OpenTable>) {
        let mut notes = Vec::new();
        let mut reader = Transaction::begin(core.clone(), Isolation::RepeatableRead);
        // What keeps the rows from being read has been told.
        let _ = find_orphans(&mut reader, table, &mut |note| notes.push(note));
        let file = table_path(&table.def.name);
        notes.into_iter().for_each(|note| self.note(&file, note));
    }

    fn table(&mut self, table: &OpenTable, tables: &Tables) {
        let is_system = table.id() == SYSTEM_TABLE;
        let report = match check_quiet_table(table, tables, &|| Ok(())) {
            Ok(report) => report,
            Err(e) => return self.damage(&e, advice::TABLE),
        };
        if !is_system {
            self.summary.tables += 1;
            self.summary.rows += report.rows;
        }
        let file = self.names.of_space(table.space());
        for what in report.errors {
            // What is wrong with a page has been told.
            if self.told.iter().any(|told| what.contains(told)) {
                continue;
            }
            let advice = match is_system {
                true => advice::DATABASE,
                false => advice_for(&what, table),
            };
            self.damage_in(file.clone(), what, advice);
        }
        debug_assert!(is_system == (table.space() == SYSTEM_SPACE));
    }
}

/// Damage of a secondary index alone is mended by making the index again.
fn advice_for(what: &str, table: &OpenTable) -> &'static str {
    let of_secondary = |name: &str| {
        what.starts_with(&format!("index {name}")) || what.ends_with(&format!("in index {name}"))
    };
    match table.secondary.iter().any(|i| of_secondary(&i.name)) {
        true => advice::INDEX,
        false => advice::TABLE,
    }
}

/// What lies in the place of a discarded table's file, as the end of a sentence.
fn waiting_file(spaces: &Spaces, path: &str) -> String {
    let full = spaces.dir().join(path);
    if !spaces.has_file(path).unwrap_or(true) {
        return String::new();
    }
    let file = table_file_with(&**spaces.disk(), &full, spaces.keyring());
    match file.as_ref().map(TableFile::definition) {
        Ok(Some(def)) => format!("; a file of table {} waits in its place", def.name),
        Ok(None) => "; a file waits in its place that has no definition of a table".into(),
        Err(why) => format!("; what waits in its place is no table's file: {why}"),
    }
}

/// Table files that are open at the same time.
const OPEN_FILES: usize = 64;
