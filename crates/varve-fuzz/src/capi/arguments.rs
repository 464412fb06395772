//! What calls are given: values, names, numbers for enums, definitions, and the handles that are open.

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::ptr::null;
use std::sync::OnceLock;

use varve_capi::choice::Choice;
use varve_capi::cursor::varve_cursor;
use varve_capi::definition::*;
use varve_capi::foreign::varve_foreign_key;
use varve_capi::prepared::varve_xid;
use varve_capi::table::varve_table;
use varve_capi::txn::varve_txn;
use varve_capi::value::varve_value;

use super::Session;
use crate::input::Input;

/// A number for an enum, which is mostly one of its constants.
pub(super) fn choose<T: Choice>(input: &mut Input<'_>) -> MaybeUninit<T> {
    let number = match input.u8() {
        n @ 0..240 => T::ALL[usize::from(n) % T::ALL.len()].0,
        n @ 240..250 => u32::from(n - 240),
        n => u32::MAX - u32::from(n),
    };
    let mut choice = MaybeUninit::<T>::uninit();
    // SAFETY: an enum of C has the size of an int.
    unsafe { choice.as_mut_ptr().cast::<u32>().write(number) };
    choice
}

/// Names that calls give to tables, indexes and columns.
pub(super) fn names() -> &'static [CString] {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let long = "n".repeat(300);
        let names: [&[u8]; 14] = [
            b"a/t",
            b"a/heap",
            b"b/new",
            b"b/other",
            b"",
            b"no schema",
            b"a/",
            b"/t",
            b"../../escaped",
            b"a/b/c",
            b"\xff\xfe/bytes",
            "a/räder#@.vdt".as_bytes(),
            b"system",
            long.as_bytes(),
        ];
        names.map(|n| CString::new(n).expect("no NUL")).into()
    })
}

/// A name, or none.
pub(super) fn name(input: &mut Input<'_>) -> *const c_char {
    match names().get(input.below(names().len() + 1)) {
        Some(name) => name.as_ptr(),
        None => null(),
    }
}

/// A definition from the input; what it points to lives as long as this.
pub(super) struct Definition {
    columns: Vec<varve_column_def>,
    parts: Vec<Vec<varve_key_part>>,
    indexes: Vec<varve_index_def>,
    references: Vec<[*const c_char; 2]>,
    foreign_keys: Vec<varve_foreign_key>,
    system_time: Option<varve_system_time>,
}

impl Definition {
    pub(super) fn of(input: &mut Input<'_>) -> Definition {
        let sizes = [1, 2, 4, 8, 0, 3, 20, 255, 3000, 40_000, u32::MAX];
        let column = |input: &mut Input<'_>| varve_column_def {
            name: name(input),
            kind: choose(input),
            size: input.of(&sizes),
            collation: input.of(&[8, 1 << 31, (1 << 31) + 1, (1 << 31) + 4, 7, u32::MAX]),
            nullable: input.bool(),
            computed: input.u8().is_multiple_of(4),
            unversioned: input.u8().is_multiple_of(4),
            converted: input.u8().is_multiple_of(8),
            was: match input.u8().is_multiple_of(4) {
                true => name(input),
                false => null(),
            },
            in_old_rows: varve_value::NULL,
        };
        let columns: Vec<_> = (0..input.below(6)).map(|_| column(input)).collect();
        let part = |input: &mut Input<'_>| varve_key_part {
            column: u32::from(input.u8() % 7),
            prefix: input.of(&[0, 0, 0, 1, 10, 4000, u32::MAX]),
            descending: input.bool(),
        };
        let parts: Vec<Vec<_>> = (0..1 + input.below(3))
            .map(|_| (0..input.below(4)).map(|_| part(input)).collect())
            .collect();
        let index = |parts: &Vec<varve_key_part>| varve_index_def {
            name: name(input),
            unique: input.bool(),
            parts: parts.as_ptr(),
            n_parts: parts.len() as u32,
            was: match input.bool() {
                true => name(input),
                false => null(),
            },
        };
        let indexes = parts[1..].iter().map(index).collect();
        let references: Vec<_> = (0..input.below(6).saturating_sub(3))
            .map(|_| [name(input), name(input)])
            .collect();
        let foreign_key = |ends: &[*const c_char; 2]| varve_foreign_key {
            name: name(input),
            columns: &ends[0],
            parent_columns: &ends[1],
            n_columns: 1,
            parent: name(input),
            on_delete: choose(input),
            on_update: choose(input),
            kept: input.u8().is_multiple_of(4),
            child: null(),
            parent_index: null(),
            nullable: null(),
            parent_nullable: null(),
        };
        let foreign_keys = references.iter().map(foreign_key).collect();
        let mut time = || varve_system_time {
            start: u32::from(input.u8() % 7),
            end: u32::from(input.u8() % 7),
            forever: varve_value::of(Some(b"forever".get(..input.below(8)).unwrap_or_default())),
        };
        let system_time = match columns.iter().any(|c| c.unversioned) {
            true => Some(time()),
            false => None,
        };
        Definition {
            columns,
            parts,
            indexes,
            references,
            foreign_keys,
            system_time,
        }
    }

    pub(super) fn raw(&self, input: &mut Input<'_>) -> varve_table_def {
        varve_table_def {
            name: name(input),
            columns: self.columns.as_ptr(),
            n_columns: self.columns.len() as u32,
            primary: self.parts[0].as_ptr(),
            n_primary: self.parts[0].len() as u32,
            indexes: self.indexes.as_ptr(),
            n_indexes: self.indexes.len() as u32,
            foreign_keys: self.foreign_keys.as_ptr(),
            n_foreign_keys: self.references.len() as u32,
            foreign_key_checks: choose(input),
            auto_increment: input.of(&[u32::MAX, 0, 1, 9]),
            system_time: self.system_time.as_ref().map_or(null(), |time| time),
            temporary: input.bool(),
            // None that can be made.
            data_directory: input.of(&[
                null(),
                null(),
                c"elsewhere".as_ptr(),
                c"/dev/null/elsewhere".as_ptr(),
            ]),
            compression: choose(input),
            compression_level: input.of(&[0, 1, 3, 22, 23, u32::MAX]),
            encryption: choose(input),
            encryption_key: input.of(&[0, 1, 2, u32::MAX]),
        }
    }
}

impl Session<'_, '_> {
    pub(super) fn values(&mut self) -> Vec<varve_value> {
        let n = match self.input.below(8) {
            0 => 40,
            n => n - 1,
        };
        (0..n).map(|_| self.value()).collect()
    }

    pub(super) fn value(&mut self) -> varve_value {
        let len = match self.input.below(16) {
            0 => return varve_value::NULL,
            1 => 0,
            2 => 1,
            3 => 4,
            4..10 => 8,
            10 => 300,
            11 => 20_000,
            _ => self.input.below(40),
        };
        static ZEROS: [u8; 20_000] = [b'z'; 20_000];
        let bytes = match len {
            300.. => &ZEROS[..len],
            _ => self.input.bytes(len),
        };
        varve_value::of(Some(bytes))
    }

    pub(super) fn table(&mut self) -> Option<*mut varve_table> {
        let n = self.input.below(self.tables.len());
        self.tables.get(n).copied()
    }

    pub(super) fn txn(&mut self) -> Option<*mut varve_txn> {
        let n = self.input.below(self.txns.len());
        self.txns.get(n).copied()
    }

    pub(super) fn cursor(&mut self) -> Option<*mut varve_cursor> {
        let n = self.input.below(self.cursors.len());
        self.cursors.get(n).copied()
    }

    pub(super) fn xid(&mut self) -> varve_xid {
        let mut parts = [0; 128];
        parts[0] = self.input.u8() % 3;
        varve_xid {
            format: 1,
            global_len: self.input.of(&[1, 1, 2, 64, 65, 0, u32::MAX]),
            branch_len: self.input.of(&[0, 1, 64, 65, u32::MAX]),
            parts,
        }
    }
}
