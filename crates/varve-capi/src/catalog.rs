//! What is stored of tables, whether they are open or not, what is known of open ones, and the tablespaces
//! that are no table's.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use varve::{ColumnType, IndexDef, KeyPart, TableDef};

use crate::collation::c_text;
use crate::database::varve_db;
use crate::definition::{
    varve_column_def, varve_index_def, varve_key_part, varve_system_time, varve_table_def,
    varve_type,
};
use crate::error::guard;
use crate::error::varve_code::{self, VARVE_OK};
use crate::foreign::{KeyTexts, varve_foreign_key_checks};
use crate::table::varve_table_stats;
use crate::value::varve_value;

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
    /// Of a foreign key child and parent are there, of neither the index and whether columns take NULL.
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
                let path = c_text(&db.0.table_file(&def));
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
    with_def(def, |told| {
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

fn column_type(ty: ColumnType) -> (varve_type, u32, u32) {
    use varve_type::*;
    match ty {
        ColumnType::Int { bytes, signed } => {
            let kind = if signed { VARVE_INT } else { VARVE_UINT };
            (kind, bytes.into(), 0)
        }
        ColumnType::Float => (VARVE_FLOAT, 4, 0),
        ColumnType::Double => (VARVE_DOUBLE, 8, 0),
        ColumnType::Fixed(size) => (VARVE_FIXED, size, 0),
        ColumnType::Bytes(size) => (VARVE_BYTES, size, 0),
        ColumnType::Text {
            collation,
            max_bytes,
        } => (VARVE_TEXT, max_bytes, collation.0),
    }
}

fn key_parts(index: &IndexDef) -> Vec<varve_key_part> {
    let part = |part: &KeyPart| varve_key_part {
        column: part.column as u32,
        prefix: part.prefix_len.unwrap_or(0),
        descending: part.descending,
    };
    index.parts.iter().map(part).collect()
}

/// Calls `f` with the definition as C has it.
fn with_def(def: &TableDef, f: impl FnOnce(varve_table_def)) {
    let names: Vec<CString> = def.columns.iter().map(|c| c_text(&c.name)).collect();
    let time = def.system_time.as_ref();
    let column = |(position, name): (usize, &CString)| {
        let column = &def.columns[position];
        let (kind, size, collation) = column_type(column.ty);
        varve_column_def {
            name: name.as_ptr(),
            kind: MaybeUninit::new(kind),
            size,
            collation,
            nullable: column.nullable,
            computed: def.computed.contains(&position),
            unversioned: time.is_some_and(|time| time.unversioned.contains(&position)),
            was: ptr::null(),
            in_old_rows: varve_value::of(column.default.as_deref()),
        }
    };
    let columns: Vec<_> = names.iter().enumerate().map(column).collect();
    let primary = key_parts(&def.primary);
    let of_indexes: Vec<_> = (def.indexes.iter())
        .map(|index| (c_text(&index.name), key_parts(index)))
        .collect();
    let index =
        |(index, (name, parts)): (&IndexDef, &(CString, Vec<varve_key_part>))| varve_index_def {
            name: name.as_ptr(),
            unique: index.unique,
            parts: parts.as_ptr(),
            n_parts: parts.len() as u32,
            was: ptr::null(),
        };
    let indexes: Vec<_> = def.indexes.iter().zip(&of_indexes).map(index).collect();
    let key_texts: Vec<_> = (def.foreign_keys.iter())
        .map(|key| KeyTexts::new(key, &def.name))
        .collect();
    let foreign_keys: Vec<_> = key_texts.iter().map(KeyTexts::told).collect();
    let system_time = time.map(|time| varve_system_time {
        start: time.start as u32,
        end: time.end as u32,
        forever: varve_value::of(Some(&time.forever)),
    });
    let name = c_text(&def.name);
    f(varve_table_def {
        name: name.as_ptr(),
        columns: columns.as_ptr(),
        n_columns: columns.len() as u32,
        primary: primary.as_ptr(),
        n_primary: primary.len() as u32,
        indexes: indexes.as_ptr(),
        n_indexes: indexes.len() as u32,
        foreign_keys: foreign_keys.as_ptr(),
        n_foreign_keys: foreign_keys.len() as u32,
        foreign_key_checks: MaybeUninit::new(varve_foreign_key_checks::VARVE_CHECK_REFERENCES),
        auto_increment: (def.auto_increment).map_or(u32::MAX, |at| at as u32),
        system_time: system_time.as_ref().map_or(ptr::null(), ptr::from_ref),
        temporary: false,
        data_directory: ptr::null(),
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
            let mut stats = varve_table_stats::of(&table)?;
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
