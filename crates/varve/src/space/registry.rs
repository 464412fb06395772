//! The tablespaces that are open, and the life of their files: open, rename, replace, drop; how they are made
//! is in `making`. See SP-1 and SP-4.
//!
//! File operations are durable when they return; what they mean for the catalog and in which order they are
//! logged is the caller's business.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Relaxed, Release},
};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::alloc_page::{EXTENT_PAGES, Geometry};
use super::compressed::{Compressing, Places};
use super::counter::COUNTER_PAGE;
use super::encrypted::{AtomicStage, Encrypting};
use super::file::{OpenFiles, SpaceFile};
use super::header::{DefinitionCopy, FileHeader};
use super::written::WrittenPages;
use super::{Space, SpaceKind, round_size};
use crate::base::sync::ReadMostly;
use crate::base::{Durations, Error, PageId, Result, SpaceId, TableId};
use crate::encryption::Encryption;
use crate::io::{Disk, DiskFile, FlushMethod, IoQueue, OpenMode};
use crate::page::Compression;

/// Extension of a tablespace file that is being made, in the place of its own.
pub const UNFINISHED_EXTENSION: &str = "vdt-new";

/// What a new tablespace is told.
#[derive(Clone, Copy)]
pub struct NewSpace<'a> {
    pub id: SpaceId,
    /// Relative to the data directory, with forward slashes.
    pub path: &'a str,
    pub kind: SpaceKind,
    /// 0 if it is no table's.
    pub table: TableId,
    /// Of the table, for page 0.
    pub definition: DefinitionCopy<'a>,
    /// Pages to begin with; two at least.
    pub pages: u32,
    /// Where the file is, if the path is to be that of a link (LINK-1).
    pub target: Option<&'a Path>,
    /// How its pages are stored.
    pub compression: Option<Compression>,
    pub encryption: Encryption,
}

/// The open tablespaces of one database.
pub struct Spaces {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    /// What the paths of undo tablespaces begin with.
    undo_dir: String,
    pub(super) page_size: usize,
    pub(super) uuid: [u8; 16],
    /// Readers write nothing that they share: pages of undo are looked for by all threads.
    pub(super) spaces: ReadMostly<HashMap<SpaceId, Arc<Space>>>,
    files: Arc<OpenFiles>,
    /// For pages that are read ahead, and for writing many and syncing several files.
    pub(super) queue: Arc<IoQueue>,
    /// What recovery has found of the counters of files that are not open yet.
    found_counters: Mutex<BTreeMap<SpaceId, u64>>,
    /// Tablespaces that replay would have changed.
    pub(super) missed: Mutex<BTreeSet<SpaceId>>,
    /// Relaxed: it is read by who closes the database, when all others have ended.
    files_match: AtomicBool,
    /// Whether the spare is known to be there (SP-10). Held while it is made.
    pub(super) spare: Mutex<bool>,
    pub(super) compressing: Compressing,
    pub(super) encrypting: Encrypting,
    pub(super) written: WrittenPages,
    /// How long the list, or the file of a tablespace that takes another's place, was kept from others.
    pub held: Durations,
}

impl Spaces {
    /// At most about `open_files` files of tables are open at the same time.
    pub fn new(
        disk: Arc<dyn Disk>,
        dir: &Path,
        page_size: usize,
        uuid: [u8; 16],
        open_files: usize,
    ) -> Spaces {
        Spaces {
            files: OpenFiles::new(disk.clone(), dir.into(), open_files),
            written: WrittenPages::new(disk.clone(), dir),
            disk,
            dir: dir.into(),
            undo_dir: String::new(),
            page_size,
            uuid,
            spaces: ReadMostly::new(HashMap::new()),
            queue: Arc::new(IoQueue::one_by_one()),
            found_counters: Mutex::default(),
            missed: Mutex::default(),
            files_match: AtomicBool::new(false),
            spare: Mutex::default(),
            compressing: Compressing::default(),
            encrypting: Encrypting::default(),
            held: Durations::default(),
        }
    }

    /// With the undo tablespaces in another directory than the data directory: its path, relative to that,
    /// with a slash behind; or empty.
    pub fn with_undo_dir(self, undo_dir: String) -> Spaces {
        Spaces { undo_dir, ..self }
    }

    /// With many reads, writes and syncs at the same time.
    pub fn with_queue(self, queue: Arc<IoQueue>) -> Spaces {
        Spaces { queue, ..self }
    }

    /// With files that are used in this way.
    pub fn with_method(mut self, method: FlushMethod) -> Spaces {
        let files = Arc::get_mut(&mut self.files).expect("nobody has them yet");
        files.set_method(method);
        self
    }

    pub fn undo_dir(&self) -> &str {
        &self.undo_dir
    }

    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn files(&self) -> &Arc<OpenFiles> {
        &self.files
    }

    /// Which pages were written since backups began.
    pub fn written_pages(&self) -> &WrittenPages {
        &self.written
    }

    /// Waits for what is being read ahead, and begins nothing like it any more; files that are going are left
    /// to the next start (SP-11). The threads that do it have ended then.
    pub fn end_background(&self) {
        self.queue.close();
        self.files.removals.end();
    }

    pub fn get(&self, id: SpaceId) -> Option<Arc<Space>> {
        self.spaces.read().get(&id).cloned()
    }

    /// Pages in the tablespace's file; `None` if it is not open. Does not count a reference, which all
    /// threads would write.
    pub fn size_pages(&self, id: SpaceId) -> Option<u32> {
        self.spaces.read().get(&id).map(|space| space.size_pages())
    }

    /// The tablespace, or an error that names it.
    pub fn require(&self, id: SpaceId) -> Result<Arc<Space>> {
        self.get(id).ok_or_else(|| unknown(id))
    }

    /// All open tablespaces, by id.
    pub fn all(&self) -> Vec<Arc<Space>> {
        let mut all: Vec<_> = self.spaces.read().values().cloned().collect();
        all.sort_by_key(|s| s.id);
        all
    }

    pub(super) fn space(
        &self,
        id: SpaceId,
        header: FileHeader,
        file: Arc<SpaceFile>,
        size: u32,
    ) -> Space {
        let page_size = self.page_size;
        Space {
            id,
            places: header
                .compression
                .and_then(|with| Places::of(with, page_size)),
            stage: AtomicStage::new(header.stage, header.least_version),
            header,
            ciphers: OnceLock::new(),
            target: None,
            geometry: Geometry { page_size },
            file,
            size: AtomicU32::new(size),
            growing: Mutex::new(()),
            extents: Mutex::new(None),
            lost: OnceLock::new(),
            used: AtomicU32::new(0),
            counter: OnceLock::new(),
        }
    }

    fn register(&self, space: Space) -> Arc<Space> {
        let mut list = self.spaces.write();
        let held = self.held.begin();
        // Of two threads that have opened it one comes first.
        let entry = list.entry(space.id);
        let space = entry.or_insert_with(|| Arc::new(space)).clone();
        if let Some(next) = self.found_counters.lock().remove(&space.id) {
            space.recover_counter(next);
        }
        drop(held);
        drop(list);
        space
    }

    /// The counters of these files are to be at least as much, says the redo: of those that are open, and of
    /// others when they are opened.
    pub fn recover_counters(&self, mut found: BTreeMap<SpaceId, u64>) {
        let pages = found.keys().map(|id| PageId::new(*id, COUNTER_PAGE));
        self.written.note(pages);
        let open = self.spaces.read();
        found.retain(|id, next| match open.get(id) {
            Some(space) => {
                space.recover_counter(*next);
                false
            }
            None => true,
        });
        *self.found_counters.lock() = found;
    }

    /// Opens a file by its path; its header says which tablespace it is.
    pub fn open(&self, path: &str) -> Result<Arc<Space>> {
        let (file, header) = self.look_into(path)?;
        self.open_as(path, file, header)
    }

    /// The tablespace, which is opened if it is not open: its file is to be at this path.
    pub fn open_at(&self, path: &str, id: SpaceId) -> Result<Arc<Space>> {
        if let Some(space) = self.get(id) {
            return Ok(space);
        }
        let (file, header) = self.look_into(path)?;
        if header.intro.space != id {
            return Err(Error::CorruptFile {
                path: self.dir.join(path),
                expected: format!("tablespace {id}"),
                found: format!("tablespace {}", header.intro.space),
            });
        }
        self.open_as(path, file, header)
    }

    /// What a file says it is, without opening it as a tablespace.
    pub fn inspect(&self, path: &str) -> Result<FileHeader> {
        Ok(self.look_into(path)?.1)
    }

    /// Opens the tablespace at this path, which is going to be removed: without its key, if that is not
    /// there.
    pub fn open_to_remove(&self, path: &str, id: SpaceId) -> Result<Arc<Space>> {
        match self.open_at(path, id) {
            Err(Error::NoKey { .. }) => {
                let (file, header) = self.look_into(path)?;
                self.register_opened(self.opened(path, file, header)?)
            }
            opened => opened,
        }
    }

    fn look_into(&self, path: &str) -> Result<(Arc<dyn DiskFile>, FileHeader)> {
        let full = self.dir.join(path);
        let open = || self.disk.open(&full, OpenMode::Existing);
        let file = self.files.with_means(open);
        let file = file.map_err(|e| self.not_opened(&full, e))?;
        self.check_not_awaited(path)?;
        let header = FileHeader::read(&*file)?;
        Ok((file, header))
    }

    fn open_as(
        &self,
        path: &str,
        file: Arc<dyn DiskFile>,
        header: FileHeader,
    ) -> Result<Arc<Space>> {
        let space = self.opened(path, file, header)?;
        self.prepare_encryption(&space)?;
        self.register_opened(space)
    }

    /// What a file is as a tablespace, if it can be one.
    fn opened(&self, path: &str, file: Arc<dyn DiskFile>, header: FileHeader) -> Result<Space> {
        let full = self.dir.join(path);
        let intro = header.intro;
        intro.check_owner(&self.uuid, &full)?;
        if intro.page_size as usize != self.page_size {
            return Err(Error::CorruptFile {
                path: full,
                expected: format!("page size {}", self.page_size),
                found: intro.page_size.to_string(),
            });
        }
        if let Some(other) = self.get(intro.space) {
            return Err(Error::CorruptFile {
                path: full,
                expected: "a tablespace of its own".into(),
                found: format!("tablespace {}, which is {}", intro.space, other.path()),
            });
        }
        let size = u32::try_from(file.len()? / self.page_size as u64).unwrap_or(u32::MAX);
        let file = self.space_file(path, header.kind, self.files.for_pages(file)?);
        let mut space = self.space(intro.space, header, file, size);
        if header.kind == SpaceKind::Table {
            space.target = self.target(&full)?;
        }
        Ok(space)
    }

    fn register_opened(&self, space: Space) -> Result<Arc<Space>> {
        let size = space.size_pages();
        // A crash may have cut off an extension that nothing durable refers to. If there is no room for the
        // rest of it now, none of it counts (SP-5); redo that needs it asks again.
        match space.grow_file(round_size(size)?) {
            Err(Error::NoSpace { .. }) if size > EXTENT_PAGES => {
                space.size.store(size - size % EXTENT_PAGES, Release);
            }
            done => done?,
        }
        self.register_filled(space)
    }

    /// For a tablespace of this kind, a file that is open for its pages.
    pub(super) fn space_file(
        &self,
        path: &str,
        kind: SpaceKind,
        file: Arc<dyn DiskFile>,
    ) -> Arc<SpaceFile> {
        match kind {
            SpaceKind::Table => SpaceFile::counted(&self.files, path, file),
            _ => SpaceFile::kept_open(&self.files, path, file),
        }
    }

    /// With all of its file's pages on the disk, if it has to go on when that is full.
    pub(super) fn register_filled(&self, space: Space) -> Result<Arc<Space>> {
        if matches!(space.kind(), SpaceKind::System | SpaceKind::Undo) {
            // SP-9
            space.file.fill_holes()?;
        }
        Ok(self.register(space))
    }

    /// Removes the tablespace's file and forgets it (SP-8). Late writes are ignored. Afterwards call
    /// `BufferPool::drop_space`. If the file can't be removed it stays a tablespace, whose pages are written.
    pub fn drop_space(&self, id: SpaceId) -> Result<()> {
        let space = self.require(id)?;
        if let Some(target) = space.target() {
            return self.drop_linked(&space, target);
        }
        if let Some(going) = self.move_away(&space) {
            drop(space.file.give_up(|_| Ok(()))?);
            self.forget(id);
            return going.map(|going| self.let_go(Some(going)));
        }
        let going = self.hold_nameless(&space);
        let mut full = PathBuf::new();
        let gone = space.file.give_up(|path| {
            full = self.dir.join(path);
            match self.disk.remove(&full) {
                // Somebody else has removed it.
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(()),
                done => done,
            }
        })?;
        let synced = self.sync_parent(&full);
        drop(gone);
        self.forget(id);
        self.let_go(going);
        synced
    }

    /// The size of the file system with the data directory, in bytes.
    pub fn file_system_bytes(&self) -> Result<u64> {
        self.disk.file_system_bytes(&self.dir)
    }

    /// Removes a file that is not open as a tablespace: its header is damaged, or it is another's. False if
    /// there is none.
    pub fn remove_unopened(&self, path: &str) -> Result<bool> {
        let full = self.dir.join(path);
        let is_open = self.all().iter().any(|space| space.path() == path);
        if is_open || !self.disk.exists(&full)? {
            return Ok(false);
        }
        let going = self.hold_unopened(&full);
        self.remove_for_good(&full)?;
        self.let_go(going);
        Ok(true)
    }

    /// The tablespaces for which replay had changes, and which were not there.
    pub fn missed(&self) -> Vec<SpaceId> {
        self.missed.lock().iter().copied().collect()
    }

    /// Replay had changes for a tablespace that was not there, other than those that were `removed`.
    pub fn any_missed_replay(&self, removed: &[SpaceId]) -> bool {
        self.missed.lock().iter().any(|id| !removed.contains(id))
    }

    /// Whether the table files are those that the definitions name, or some could not be removed or renamed.
    pub fn files_match(&self, do_they: bool) {
        self.files_match.store(do_they, Relaxed);
    }

    pub fn do_files_match(&self) -> bool {
        self.files_match.load(Relaxed)
    }

    /// The path of the file with this extension in a directory of the data directory that is this
    /// tablespace by its header. Reads the headers of all.
    pub fn find(&self, id: SpaceId, extension: &str) -> Result<Option<String>> {
        for schema in self.disk.list(&self.dir)?.into_iter().filter(|e| e.is_dir) {
            for file in self.disk.list(&self.dir.join(&schema.name))? {
                let path = format!("{}/{}", schema.name, file.name);
                let is_such = Path::new(&file.name)
                    .extension()
                    .is_some_and(|e| e == extension);
                if is_such
                    && !file.is_dir
                    && self
                        .inspect(&path)
                        .is_ok_and(|header| header.intro.space == id)
                {
                    return Ok(Some(path));
                }
            }
        }
        Ok(None)
    }

    /// Makes an empty file, durable, if there is none.
    pub fn put_mark(&self, path: &str) -> Result<()> {
        let full = self.dir.join(path);
        if self.disk.exists(&full)? {
            return Ok(());
        }
        self.make_parent(&full)?;
        self.disk.open(&full, OpenMode::CreateNew)?.sync()?;
        self.sync_parent(&full)
    }

    pub fn has_mark(&self, path: &str) -> Result<bool> {
        self.disk.exists(&self.dir.join(path))
    }

    /// Forgets the tablespace and leaves its file.
    #[cfg(test)]
    pub fn close(&self, id: SpaceId) -> Result<()> {
        let space = self.require(id)?;
        let _gone = space.file.give_up(|_| Ok(()))?;
        self.forget(id);
        Ok(())
    }

    /// Moves the file to a path that is free, or its own.
    pub fn rename(&self, id: SpaceId, to: &str) -> Result<()> {
        let space = self.require(id)?;
        if space.path() == to {
            return Ok(());
        }
        self.prepare_rename(to)?;
        self.stop_awaiting(to)?;
        let moved = self.move_file(&space, to)?;
        self.sync_moved(&moved)
    }

    /// Makes sure that nothing but the rename itself is left to fail: the path is free, its directory is
    /// there.
    pub fn prepare_rename(&self, to: &str) -> Result<()> {
        let target = self.dir.join(to);
        if self.disk.exists(&target)? {
            let what = format!("file {}", target.display());
            return Err(Error::AlreadyExists { what });
        }
        self.make_parent(&target)
    }

    /// Puts the file of `new` in the place of `old`'s, which is gone then (SP-8): its pages are never read
    /// again, and late writes to it are ignored. Afterwards call `BufferPool::drop_space`. If a file can't be
    /// moved both stay tablespaces.
    pub fn replace(&self, old: SpaceId, new: SpaceId) -> Result<()> {
        let (going, coming) = (self.require(old)?, self.require(new)?);
        if going.target().is_some() {
            return self.replace_linked(&going, &coming);
        }
        let to = going.path();
        if let Some(away) = self.move_away(&going) {
            let away = away?;
            let moved = self.move_file(&coming, &to)?;
            let synced = self.sync_moved(&moved);
            drop(going.file.give_up(|_| Ok(()))?);
            self.forget(old);
            self.let_go(Some(away));
            return synced;
        }
        let nameless = self.hold_nameless(&going);
        let mut moved = None;
        let gone = going.file.give_up(|path| {
            moved = Some(self.move_file(&coming, path)?);
            Ok(())
        })?;
        let synced = moved.map_or(Ok(()), |moved| self.sync_moved(&moved));
        drop(gone);
        self.forget(old);
        self.let_go(nameless);
        synced
    }

    /// The same for files that stay open, as those of undo do: nobody waits. What is written to the old one
    /// meanwhile goes to it, whether or not it still has its name (SP-8). If the move can't be made durable
    /// the old one stays a tablespace, whose pages are written.
    pub fn replace_open(&self, old: SpaceId, new: SpaceId) -> Result<()> {
        let (going, coming) = (self.require(old)?, self.require(new)?);
        let (from, to) = (coming.path(), going.path());
        let moved = [&from, &to].map(|path| self.dir.join(path));
        self.disk.rename(&moved[0], &moved[1])?;
        coming.file.is_called(to, &self.held);
        self.sync_moved(&moved)?;
        let nameless = self.hold_nameless(&going);
        going.file.end(&self.held);
        self.forget(old);
        self.let_go(nameless);
        Ok(())
    }

    /// Returns both paths. The names are not durable yet.
    pub(super) fn move_file(&self, space: &Space, to: &str) -> Result<[PathBuf; 2]> {
        let target = self.dir.join(to);
        let mut from = PathBuf::new();
        space.file.rename(to, |path| {
            from = self.dir.join(path);
            self.disk.rename(&from, &target)
        })?;
        Ok([from, target])
    }

    pub(super) fn sync_moved(&self, [from, target]: &[PathBuf; 2]) -> Result<()> {
        self.sync_parent(target)?;
        if from.parent() != target.parent() {
            self.sync_parent(from)?;
        }
        Ok(())
    }

    pub(super) fn forget(&self, id: SpaceId) {
        let mut list = self.spaces.write();
        let held = self.held.begin();
        let gone = list.remove(&id);
        drop(held);
        drop(list);
        if let Some(gone) = &gone {
            self.note_gone(gone);
        }
        // Closing its file may take long.
        drop(gone);
    }

    /// Makes the directory of a file that is about to be made, durable.
    pub(super) fn make_parent(&self, path: &Path) -> Result<()> {
        let parent = path.parent().unwrap_or(&self.dir);
        if self.disk.exists(parent)? {
            return Ok(());
        }
        self.disk.create_dir_all(parent)?;
        let synced = self.files.with_means(|| self.disk.sync_dir(&self.dir));
        synced.inspect_err(|_| {
            // The next attempt would take it for durable. The first error is the one to report.
            let _ = self.disk.remove_dir(parent);
        })
    }

    pub(super) fn sync_parent(&self, path: &Path) -> Result<()> {
        let parent = path.parent().unwrap_or(&self.dir);
        self.files.with_means(|| self.disk.sync_dir(parent))
    }
}

fn unknown(id: SpaceId) -> Error {
    Error::not_found(format!("tablespace {id}"))
}
