//! Creating a database.

use std::path::Path;
use std::sync::Arc;

use super::{Options, undo_directory};
use crate::base::{Error, Lsn, PageNo, Result, SYSTEM_SPACE, SpaceId, TableId};
use crate::btree::Tree;
use crate::buffer::{BufferPool, PoolSettings};
use crate::ddl::{FILE_EXTENSION, FIRST_USER_ID, SYSTEM_INDEX};
use crate::encryption::Encryption;
use crate::io::{Disk, OpenMode};
use crate::mtr::{Mtr, MtrEnv};
use crate::redo::{CONTROL_FILE, Control, ControlFile, RedoLog};
use crate::space::{DefinitionCopy, MIXED, NewSpace, SpaceKind, Spaces, UNFINISHED_EXTENSION};
use crate::undo::{
    DIRECTORY_PAGE, Directory, INITIAL_PAGES, SYSTEM_FILE, UndoEnv, format_rollback_segments,
    undo_path,
};

/// Exists while a database is being created: what lies beside it is not a database yet.
pub(crate) const CREATION_MARK: &str = "varve.creating";
/// Where the redo stream of a new database begins.
const FIRST_LSN: Lsn = Lsn(8192);
/// The first transaction id.
const FIRST_TRX: u64 = 16;

/// Creates an empty database: files and redo, and last the control file. Until the mark is gone, a crash
/// makes the next start begin again. Pages are left to the first recovery, which finds all of them in the
/// redo log.
pub(super) fn create(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    options: &Options,
    undo_dir: &str,
) -> Result<()> {
    let mark = dir.join(CREATION_MARK);
    let is_first = !disk.exists(&mark)?;
    if is_first {
        refuse_leftovers(&**disk, dir)?;
    }
    if is_first || undo_directory::recorded(&**disk, dir)? != undo_dir {
        undo_directory::refuse_leftovers(&**disk, dir, undo_dir)?;
    }
    if is_first {
        // UNDODIR-1: nothing of ours is anywhere yet.
        undo_directory::record(&**disk, dir, "")?;
        disk.open(&mark, OpenMode::CreateNew)?.sync()?;
        disk.sync_dir(dir)?;
    }
    undo_directory::remove_leftovers(&**disk, dir)?;
    remove_leftovers(&**disk, dir)?;
    undo_directory::record(&**disk, dir, undo_dir)?;
    let undo_count = options.undo_tablespaces;
    let control = Control {
        page_size: options.page_size,
        uuid: *uuid::Uuid::new_v4().as_bytes(),
        checkpoint: FIRST_LSN,
        clean_shutdown: false,
        files_match: false,
        encrypted: options.encrypt_tables,
        written: None,
        id_limit: FIRST_TRX,
        next_space: undo_count + 1,
        next_table: FIRST_USER_ID,
        next_index: FIRST_USER_ID,
    };
    let settings = options.log_settings(&control);
    let log = Arc::new(RedoLog::create(disk.clone(), dir, settings, FIRST_LSN)?);
    let spaces = Spaces::new(
        disk.clone(),
        dir,
        options.page_size as usize,
        control.uuid,
        options.open_files as usize,
    );
    let spaces = options.encrypting(spaces)?;
    let spaces = Arc::new(spaces.with_undo_dir(undo_dir.into()));
    let page_size = options.page_size as usize;
    let pool_settings = PoolSettings {
        bytes: 512 * page_size as u64,
        page_size,
    };
    let pool = Arc::new(BufferPool::new(pool_settings, spaces.clone())?);
    let mtr = Arc::new(MtrEnv::new(pool.clone(), log.clone()));
    fill_new(
        &spaces,
        &UndoEnv {
            mtr,
            pool,
            spaces: spaces.clone(),
            page_size,
        },
        undo_count,
    )?;
    log.sync_to(log.next_lsn())?;
    ControlFile::create(&**disk, dir, control)?;
    disk.remove(&mark)?;
    disk.sync_dir(dir)
}

fn new_space(id: SpaceId, path: &str, kind: SpaceKind) -> NewSpace<'_> {
    NewSpace {
        id,
        path,
        kind,
        table: TableId(0),
        definition: DefinitionCopy::default(),
        pages: INITIAL_PAGES,
        target: None,
        compression: None,
        encryption: Encryption::default(),
    }
}

fn fill_new(spaces: &Spaces, env: &UndoEnv, undo_count: u32) -> Result<()> {
    let undo_spaces: Vec<SpaceId> = (1..=undo_count).map(SpaceId).collect();
    spaces.create(new_space(SYSTEM_SPACE, SYSTEM_FILE, SpaceKind::System))?;
    for (n, &id) in undo_spaces.iter().enumerate() {
        let path = undo_path(spaces, n);
        spaces.create(new_space(id, &path, SpaceKind::Undo))?;
    }
    let system = spaces.require(SYSTEM_SPACE)?;
    let reserved = system.reserve(&env.mtr, 1)?;
    let mut mtr = Mtr::begin(&env.mtr, 64 * 1024)?;
    let directory_page = system.alloc(&mut mtr, PageNo(0), MIXED)?;
    assert_eq!(
        directory_page, DIRECTORY_PAGE,
        "a new tablespace gives out its pages in order"
    );
    mtr.commit();
    drop(reserved);
    format_rollback_segments(env, &undo_spaces)?;
    let _reserved = system.reserve(&env.mtr, 1)?;
    let mut mtr = Mtr::begin(&env.mtr, 64 * 1024)?;
    let catalog_root = Tree::create(&mut mtr, &system, SYSTEM_INDEX)?;
    Directory {
        undo_spaces,
        catalog_root,
    }
    .write(&mut mtr)?;
    mtr.commit();
    Ok(())
}

/// A directory that has parts of a database but no control file is not created over.
fn refuse_leftovers(disk: &dyn Disk, dir: &Path) -> Result<()> {
    match disk.exists(&dir.join(SYSTEM_FILE))? {
        true => Err(Error::CorruptFile {
            path: dir.join(CONTROL_FILE),
            expected: "the control file of the database in this directory".into(),
            found: "no such file; restore it from a backup, or move the directory away".into(),
        }),
        false => Ok(()),
    }
}

/// Removes what an interrupted creation left.
fn remove_leftovers(disk: &dyn Disk, dir: &Path) -> Result<()> {
    for entry in disk.list(dir)? {
        let extension = Path::new(&entry.name).extension();
        let is_tablespace =
            extension.is_some_and(|e| e == FILE_EXTENSION || e == UNFINISHED_EXTENSION);
        let engine_file = is_tablespace || entry.name == CONTROL_FILE;
        if !entry.is_dir && engine_file {
            disk.remove(&dir.join(&entry.name))?;
        }
    }
    let redo = dir.join(crate::redo::REDO_DIR);
    if disk.exists(&redo)? {
        for entry in disk.list(&redo)? {
            disk.remove(&redo.join(&entry.name))?;
        }
    }
    disk.sync_dir(dir)
}
