//! What is stored of tables, whether they are open or not, what is known of open ones, and the tablespaces
//! that are no table's.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use varve::{PageType, PooledPage, TableDef};

use crate::collation::c_text;
use crate::database::varve_db;
use crate::definition::{varve_table_def, with_c_def};
use crate::error::guard;
use crate::error::varve_code::{self, VARVE_OK};
use crate::table::varve_table_stats;

/// A table as the catalog has it.
#[repr(C)]
pub struct varve_stored_table {
    pub id: u64,
    pub space: u32,
    /// The table's file, relative to the data directory. It may be a link to where it is.
    pub path: *const c_char,
    /// Counts up with each change of the columns; rows carry it.
    pub version: u32,
    /// It has no file: it waits for one to be imported.
    pub discarded: bool,
    /// Of the clustered index, then of the others, in their order: the ids, and the root pages.
    pub index_ids: *const u64,
    pub roots: *const u32,
    /// Without the data directory. Of foreign keys it has child and parent, but neither the parent's index
    /// nor whether columns take NULL.
    pub def: varve_table_def,
}

/// Receives one table.
pub type varve_stored_table_fn =
    unsafe extern "C" fn(context: *mut c_void, table: *const varve_stored_table);

/// Hands the stored definition of every table to `each`, but for temporary ones and those whose definitions
/// can't be read. No table is opened for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_stored_tables(
    db: *const varve_db,
    each: varve_stored_table_fn,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        for name in db.0.tables()? {
            if let Some(def) = db.0.definition(&name)? {
                let path = c_text(&def.file());
                // SAFETY: CAPI-2.
                unsafe { tell_table(&def, &path, each, context) };
            }
        }
        Ok(VARVE_OK)
    })
}

/// # Safety
/// CAPI-2 holds for `each` and its context.
unsafe fn tell_table(
    def: &TableDef,
    path: &CStr,
    each: varve_stored_table_fn,
    context: *mut c_void,
) {
    let index_ids: Vec<u64> = def.all_indexes().map(|index| index.id.0).collect();
    let roots: Vec<u32> = def.all_indexes().map(|index| index.root.0).collect();
    with_c_def(def, |told| {
        let table = varve_stored_table {
            id: def.id.0,
            space: def.space.0,
            path: path.as_ptr(),
            version: def.schema_version.into(),
            discarded: def.discarded,
            index_ids: index_ids.as_ptr(),
            roots: roots.as_ptr(),
            def: told,
        };
        // SAFETY: the caller's promise; all that it points to outlives the call.
        unsafe { each(context, &table) };
    });
}

/// A table that is open.
#[repr(C)]
pub struct varve_open_table {
    pub id: u64,
    pub name: *const c_char,
    /// Somebody has asked for estimates of its indexes: `stats` goes by them.
    pub has_estimates: bool,
    /// Its counter is 0 if no column is numbered from it.
    pub stats: varve_table_stats,
    /// How many handles there are on it.
    pub handles: u64,
}

/// Receives one open table.
pub type varve_open_table_fn =
    unsafe extern "C" fn(context: *mut c_void, table: *const varve_open_table);

/// Hands the tables that are open to `each`, but for temporary ones, sorted by name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_open_tables(
    db: *const varve_db,
    each: varve_open_table_fn,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        for (table, handles) in db.0.open_tables() {
            let name = c_text(&table.def().name);
            // It may have been dropped meanwhile.
            let Ok(mut stats) = varve_table_stats::of(&table) else {
                continue;
            };
            if table.def().auto_increment.is_none() {
                stats.auto_increment = 0;
            }
            let open = varve_open_table {
                id: table.def().id.0,
                name: name.as_ptr(),
                has_estimates: table.has_estimates(),
                stats,
                handles: handles as u64,
            };
            // SAFETY: CAPI-2; the name outlives the call.
            unsafe { each(context, &open) };
        }
        Ok(VARVE_OK)
    })
}

/// The size of the database's pages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_page_bytes(db: *const varve_db) -> u32 {
    // SAFETY: CAPI-2.
    unsafe { &*db }.0.page_size() as u32
}

/// A tablespace that is no table's.
#[repr(C)]
pub struct varve_tablespace {
    pub space: u32,
    /// Relative to the data directory, unless it is elsewhere.
    pub path: *const c_char,
}

/// Receives one tablespace.
pub type varve_tablespace_fn =
    unsafe extern "C" fn(context: *mut c_void, tablespace: *const varve_tablespace);

/// Hands the tablespaces that are no table's to `each`: those of the system, of undo, of temporary tables and
/// of the history store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_own_tablespaces(
    db: *const varve_db,
    each: varve_tablespace_fn,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        for (space, path) in db.0.own_tablespaces() {
            let path = c_text(&path);
            let out = varve_tablespace {
                space: space.0,
                path: path.as_ptr(),
            };
            // SAFETY: CAPI-2; the path outlives the call.
            unsafe { each(context, &out) };
        }
        Ok(VARVE_OK)
    })
}

/// A page in the buffer pool.
#[repr(C)]
pub struct varve_pool_page {
    /// Its place in the pool.
    pub block: u64,
    pub space: u32,
    pub page: u32,
    /// How many want it to stay, those that wait for its latch among them.
    pub pins: u32,
    /// How many more rounds of the clock it would stay without being used.
    pub usage: u32,
    /// It has changes that are not written yet.
    pub dirty: bool,
    /// The LSN of the oldest of these; 0: no redo was written for it, or it is not dirty.
    pub oldest_change: u64,
    /// In InnoDB's words where there is one. NULL: somebody was changing it; then all that follows is 0.
    pub kind: *const c_char,
    pub newest_change: u64,
    /// Of a page of an index, else 0; and how far above the leaves.
    pub index_id: u64,
    pub level: u32,
    /// Of a page with records: how many, and their bytes with what they need to be found.
    pub records: u64,
    pub record_bytes: u64,
}

/// Receives one page. False: it wants no more.
pub type varve_pool_page_fn =
    unsafe extern "C" fn(context: *mut c_void, page: *const varve_pool_page) -> bool;

/// Hands every page that is in the buffer pool to `each`, until that says false. Each is looked at for a
/// moment, and nobody waited for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_pool_pages(
    db: *const varve_db,
    each: varve_pool_page_fn,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        db.0.pool_pages(&mut |page| {
            // SAFETY: CAPI-2.
            unsafe { each(context, &pool_page(&page)) }
        });
        Ok(VARVE_OK)
    })
}

fn pool_page(page: &PooledPage) -> varve_pool_page {
    let content = page.content.as_ref();
    let (index_id, level) = (content.and_then(|content| content.tree))
        .map_or((0, 0), |(index, level)| (index.0, level.into()));
    varve_pool_page {
        block: page.frame as u64,
        space: page.id.space.0,
        page: page.id.no.0,
        pins: page.pins,
        usage: page.usage,
        dirty: page.is_dirty,
        oldest_change: page.oldest_change.map_or(0, |lsn| lsn.0),
        kind: content.map_or(ptr::null(), |content| kind_name(content.kind).as_ptr()),
        newest_change: content.map_or(0, |content| content.newest_change.0),
        index_id,
        level,
        records: content.map_or(0, |content| content.records),
        record_bytes: content.map_or(0, |content| content.record_bytes),
    }
}

fn kind_name(kind: PageType) -> &'static CStr {
    match kind {
        PageType::Leaf | PageType::Inner => c"INDEX",
        PageType::UndoLog | PageType::UndoPage | PageType::UndoFree => c"UNDO_LOG",
        PageType::RsegHeader => c"ROLLBACK_SEGMENT",
        PageType::History => c"HISTORY",
        PageType::UndoDir => c"UNDO_DIRECTORY",
        PageType::FileHeader => c"FILE_SPACE_HEADER",
        PageType::Alloc => c"EXTENT_DESCRIPTOR",
        PageType::Overflow => c"BLOB",
        PageType::Raw => c"SYSTEM",
        PageType::Unused | PageType::Free => c"ALLOCATED",
    }
}
