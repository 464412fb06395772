//! Foreign keys: as a definition says them, and as an open table tells of them.

use std::ffi::{CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use varve::{Database, ForeignKey, ForeignKeyChecks, Reference, ReferentialAction, Table};

use crate::choice::{choice, chosen};
use crate::collation::{c_text, text};
use crate::database::varve_db;
use crate::error::guard;
use crate::error::varve_code::{self, VARVE_OK};
use crate::table::varve_table;
use crate::value::slice_of;

/// What becomes of the children of a row that is deleted, or whose key is changed.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_referential_action {
    /// It stays as it is as long as it has children, which are looked for at once.
    VARVE_NO_ACTION = 0,
    /// The same.
    VARVE_RESTRICT = 1,
    /// They are deleted too, or get the new key.
    VARVE_CASCADE = 2,
    /// Their columns become NULL.
    VARVE_SET_NULL = 3,
}

choice!(varve_referential_action: VARVE_NO_ACTION, VARVE_RESTRICT, VARVE_CASCADE, VARVE_SET_NULL);

impl From<varve_referential_action> for ReferentialAction {
    fn from(action: varve_referential_action) -> ReferentialAction {
        match action {
            varve_referential_action::VARVE_NO_ACTION => ReferentialAction::NoAction,
            varve_referential_action::VARVE_RESTRICT => ReferentialAction::Restrict,
            varve_referential_action::VARVE_CASCADE => ReferentialAction::Cascade,
            varve_referential_action::VARVE_SET_NULL => ReferentialAction::SetNull,
        }
    }
}

impl From<ReferentialAction> for varve_referential_action {
    fn from(action: ReferentialAction) -> varve_referential_action {
        match action {
            ReferentialAction::NoAction => varve_referential_action::VARVE_NO_ACTION,
            ReferentialAction::Restrict => varve_referential_action::VARVE_RESTRICT,
            ReferentialAction::Cascade => varve_referential_action::VARVE_CASCADE,
            ReferentialAction::SetNull => varve_referential_action::VARVE_SET_NULL,
        }
    }
}

/// Whether a change of tables heeds foreign keys.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_foreign_key_checks {
    /// Parents must be there, and a table that others refer to keeps its rows.
    VARVE_CHECK_REFERENCES = 0,
    /// Tables come and go in any order. What is there must fit all the same.
    VARVE_IGNORE_REFERENCES = 1,
    /// The whole schema is dropped: a table stays only if one of another schema refers to it.
    VARVE_CHECK_OTHER_SCHEMAS = 2,
}

choice!(
    varve_foreign_key_checks: VARVE_CHECK_REFERENCES, VARVE_IGNORE_REFERENCES, VARVE_CHECK_OTHER_SCHEMAS,
);

impl From<varve_foreign_key_checks> for ForeignKeyChecks {
    fn from(checks: varve_foreign_key_checks) -> ForeignKeyChecks {
        match checks {
            varve_foreign_key_checks::VARVE_CHECK_REFERENCES => ForeignKeyChecks::On,
            varve_foreign_key_checks::VARVE_IGNORE_REFERENCES => ForeignKeyChecks::Off,
            varve_foreign_key_checks::VARVE_CHECK_OTHER_SCHEMAS => ForeignKeyChecks::OtherSchemas,
        }
    }
}

/// A foreign key. The last four members are told, and not looked at in a definition.
#[repr(C)]
pub struct varve_foreign_key {
    /// Of the constraint, unique in its schema.
    pub name: *const c_char,
    /// The names of the child's columns, and of those of the parent that they refer to.
    pub columns: *const *const c_char,
    pub parent_columns: *const *const c_char,
    pub n_columns: u32,
    /// "schema/table"
    pub parent: *const c_char,
    pub on_delete: MaybeUninit<varve_referential_action>,
    pub on_update: MaybeUninit<varve_referential_action>,
    /// Of a table that is made to take another one's place, whose name begins with '#' until then: that one
    /// has this foreign key, too, and the rows that the new one gets meanwhile are not checked by it.
    pub kept: bool,
    /// The table that has the foreign key: "schema/table".
    pub child: *const c_char,
    /// The index of the parent in which rows are looked for. Null: there is no parent that fits.
    pub parent_index: *const c_char,
    /// Whether the columns take NULL; of the parent if there is one.
    pub nullable: *const bool,
    pub parent_nullable: *const bool,
}

/// # Safety
/// CAPI-2 for `n` names at `names`.
unsafe fn texts(names: *const *const c_char, n: u32) -> varve::Result<Vec<String>> {
    // SAFETY: the caller's promise.
    let names = unsafe { slice_of(names, n as usize) };
    // SAFETY: as above.
    let name = |name: &*const c_char| unsafe { text(*name, "a column's name") }.map(str::to_string);
    names.iter().map(name).collect()
}

/// The engine's foreign key from C's.
///
/// # Safety
/// CAPI-2 for everything that `key` points to.
pub unsafe fn foreign_key(key: &varve_foreign_key) -> varve::Result<ForeignKey> {
    // SAFETY: the caller's promise.
    let (name, parent) = unsafe {
        (
            text(key.name, "a foreign key's name")?,
            text(key.parent, "a parent's name")?,
        )
    };
    let mut out = ForeignKey::new(name, &[], parent, &[])
        .on_delete(chosen("on_delete", key.on_delete)?.into())
        .on_update(chosen("on_update", key.on_update)?.into());
    // SAFETY: the caller's promise.
    (out.columns, out.parent_columns) = unsafe {
        (
            texts(key.columns, key.n_columns)?,
            texts(key.parent_columns, key.n_columns)?,
        )
    };
    out.kept = key.kept;
    Ok(out)
}

/// What a `varve_foreign_key` points to.
pub struct KeyTexts<'a> {
    key: &'a ForeignKey,
    name: CString,
    child: CString,
    parent: CString,
    columns: Names,
    parent_columns: Names,
}

struct Names {
    pointers: Vec<*const c_char>,
    _texts: Vec<CString>,
}

impl Names {
    fn new(names: &[String]) -> Names {
        let texts: Vec<CString> = names.iter().map(|name| c_text(name)).collect();
        Names {
            pointers: texts.iter().map(|text| text.as_ptr()).collect(),
            _texts: texts,
        }
    }
}

impl<'a> KeyTexts<'a> {
    pub fn new(key: &'a ForeignKey, child: &str) -> KeyTexts<'a> {
        KeyTexts {
            key,
            name: c_text(&key.name),
            child: c_text(child),
            parent: c_text(&key.parent),
            columns: Names::new(&key.columns),
            parent_columns: Names::new(&key.parent_columns),
        }
    }

    /// Without what is not in the definition. Lives as long as this.
    pub fn told(&self) -> varve_foreign_key {
        varve_foreign_key {
            name: self.name.as_ptr(),
            columns: self.columns.pointers.as_ptr(),
            parent_columns: self.parent_columns.pointers.as_ptr(),
            n_columns: self.columns.pointers.len() as u32,
            parent: self.parent.as_ptr(),
            on_delete: MaybeUninit::new(self.key.on_delete.into()),
            on_update: MaybeUninit::new(self.key.on_update.into()),
            kept: self.key.kept,
            child: self.child.as_ptr(),
            parent_index: ptr::null(),
            nullable: ptr::null(),
            parent_nullable: ptr::null(),
        }
    }
}

/// Receives one foreign key at a time.
pub type varve_foreign_key_fn =
    unsafe extern "C" fn(context: *mut c_void, key: *const varve_foreign_key);

/// # Safety
/// CAPI-2 holds for `each`.
unsafe fn tell_key(each: varve_foreign_key_fn, context: *mut c_void, reference: &Reference) {
    let texts = KeyTexts::new(&reference.key, &reference.child);
    let parent = reference.parent.as_ref();
    let index = parent.map(|parent| c_text(&parent.index));
    let told = varve_foreign_key {
        parent_index: index.as_ref().map_or(ptr::null(), |index| index.as_ptr()),
        nullable: reference.nullable.as_ptr(),
        parent_nullable: parent.map_or(ptr::null(), |parent| parent.nullable.as_ptr()),
        ..texts.told()
    };
    // SAFETY: all that it points to outlives the call.
    unsafe { each(context, &told) };
}

/// # Safety
/// CAPI-2 holds for `table` and `each`.
unsafe fn tell_keys(
    table: *const varve_table,
    each: varve_foreign_key_fn,
    context: *mut c_void,
    references: fn(&Database, &Table) -> varve::Result<Vec<Reference>>,
) -> varve_code {
    // SAFETY: the caller's promise.
    let table = unsafe { &*table };
    guard(&table.db, || {
        for reference in references(&table.db, &table.table)? {
            // SAFETY: the caller's promise.
            unsafe { tell_key(each, context, &reference) };
        }
        Ok(VARVE_OK)
    })
}

/// Hands the table's foreign keys to `each`, for as long as the call takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_foreign_keys(
    table: *const varve_table,
    each: varve_foreign_key_fn,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe { tell_keys(table, each, context, Database::foreign_keys) }
}

/// The same with those that refer to the table, its own among them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_referencing(
    table: *const varve_table,
    each: varve_foreign_key_fn,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe { tell_keys(table, each, context, Database::referencing) }
}

/// A number that is another one as soon as varve_table_foreign_keys or varve_table_referencing may say
/// something else of any table, and now and then without that. Costs next to nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_foreign_keys_changed(db: *const varve_db) -> u64 {
    // SAFETY: CAPI-2.
    unsafe { &*db }.0.foreign_keys_changed()
}

/// Whether a foreign key refers to the table. Costs next to nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_is_referenced(table: *const varve_table) -> bool {
    // SAFETY: CAPI-2.
    unsafe { &*table }.table.is_referenced()
}
