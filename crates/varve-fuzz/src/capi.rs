//! The C interface, called in any order with any arguments that its contract does not make the caller vouch for.
//!
//! What holds, whatever the calls are: each gives a code, and none stops the database (`VARVE_POISONED` is what a panic inside
//! becomes, CAPI-1). What only a caller can know is kept (CAPI-2): pointers are null where that is allowed or point to as much
//! as is said, and handles are open. Enums have any number.
//!
//! Input: calls, each a byte and its arguments. The database is one for the whole process, with little in it; tables that an
//! input made are dropped after it.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_void};
use std::fs::File;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::{Mutex, OnceLock, PoisonError};

use varve_capi::choice::Choice;
use varve_capi::collation::varve_collation;
use varve_capi::cursor::*;
use varve_capi::database::*;
use varve_capi::definition::*;
use varve_capi::error::varve_code::*;
use varve_capi::error::{varve_code, varve_last_error};
use varve_capi::flush::*;
use varve_capi::pool_dump::*;
use varve_capi::prepared::*;
use varve_capi::status::*;
use varve_capi::table::*;
use varve_capi::txn::*;
use varve_capi::value::varve_value;

use crate::input::Input;

/// Handles of one kind that an input may have open.
const HANDLES: usize = 4;
/// Calls that an input may make.
const CALLS: usize = 300;

/// A number for an enum, which is mostly one of its constants.
fn choose<T: Choice>(input: &mut Input<'_>) -> MaybeUninit<T> {
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

/// A handle of the database, which threads share.
struct Db(*mut varve_db);

// SAFETY: any thread may call with it (varve.h).
unsafe impl Send for Db {}

/// Names that calls give to tables, indexes and columns.
fn names() -> &'static [CString] {
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
fn name(input: &mut Input<'_>) -> *const c_char {
    match names().get(input.below(names().len() + 1)) {
        Some(name) => name.as_ptr(),
        None => null(),
    }
}

/// Fails unless the call left the database in order.
fn ok(code: varve_code) -> varve_code {
    if code == VARVE_POISONED {
        // SAFETY: the text is valid until the next call that fails.
        let why = unsafe { CStr::from_ptr(varve_last_error()) };
        panic!("the database is poisoned: {}", why.to_string_lossy());
    }
    code
}

unsafe extern "C" fn quiet(_: *mut c_void, _: varve_log_level, _: *const c_char) {}

unsafe extern "C" fn weights(
    _: *mut c_void,
    text: *const u8,
    len: usize,
    out: *mut u8,
    capacity: usize,
) -> usize {
    if len <= capacity {
        // SAFETY: the text has that many bytes, and so has the room.
        unsafe { std::ptr::copy_nonoverlapping(text, out, len) };
    }
    len
}

unsafe extern "C" fn prefix(_: *mut c_void, _: *const u8, len: usize, chars: usize) -> usize {
    chars.min(len)
}

/// One collation: bytes with PAD SPACE.
unsafe extern "C" fn find(_: *mut c_void, id: u32, out: *mut varve_collation) -> bool {
    if id != 8 {
        return false;
    }
    // SAFETY: the engine gives a valid place (varve_find_collation_fn).
    let out = unsafe { &mut *out };
    (out.name, out.version) = (c"eight".as_ptr(), c"1".as_ptr());
    (out.pad_unit, out.pad_weight) = (1, [b' ', 0, 0, 0]);
    out.weights = Some(weights);
    out.prefix_bytes = Some(prefix);
    true
}

/// A directory that no other process of this kind uses now. It is left to the next one: nothing could remove it after the last input.
fn own_directory() -> PathBuf {
    let free = (0..).find_map(|n: u32| {
        let dir = std::env::temp_dir().join(format!("varve-fuzz-capi-{n}"));
        let lock = File::create(dir.with_extension("lock")).expect("a file can be made");
        lock.try_lock().is_ok().then_some((dir, lock))
    });
    let (dir, lock) = free.expect("there are more numbers than processes");
    // Until the process ends.
    std::mem::forget(lock);
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

fn database() -> &'static Mutex<Db> {
    static DB: OnceLock<Mutex<Db>> = OnceLock::new();
    DB.get_or_init(|| {
        let dir = own_directory();
        let path = CString::new(dir.to_str().expect("UTF-8")).expect("no NUL");
        let mut db = null_mut();
        // SAFETY: everything points to what outlives the calls.
        unsafe {
            let mut options = MaybeUninit::uninit();
            varve_options_default(options.as_mut_ptr());
            let mut options = options.assume_init();
            options.page_size = 4096;
            options.buffer_pool_bytes = 4 << 20;
            options.redo_capacity_bytes = 8 << 20;
            options.log_buffer_bytes = 2 << 20;
            options.lock_wait_timeout_ms = 1;
            options.flush_log_at_trx_commit = MaybeUninit::new(varve_flush_log::VARVE_FLUSH_LAZY);
            options.log = Some(quiet);
            options.find_collation = Some(find);
            assert_eq!(varve_db_open(path.as_ptr(), &options, &mut db), VARVE_OK);
        }
        Mutex::new(Db(db))
    })
}

struct Session<'i, 'a> {
    db: *const varve_db,
    input: &'i mut Input<'a>,
    tables: Vec<*mut varve_table>,
    txns: Vec<*mut varve_txn>,
    cursors: Vec<*mut varve_cursor>,
}

pub fn run(data: &[u8]) {
    let db = database().lock().unwrap_or_else(PoisonError::into_inner);
    let mut input = Input::new(data);
    let mut session = Session {
        db: db.0,
        input: &mut input,
        tables: Vec::new(),
        txns: Vec::new(),
        cursors: Vec::new(),
    };
    // SAFETY: the session's handles are open, and what is given to calls outlives them.
    unsafe {
        session.begin();
        for _ in 0..CALLS {
            if session.input.is_empty() {
                break;
            }
            session.call();
        }
        session.end();
    }
}

/// A definition from the input; what it points to lives as long as this.
struct Definition {
    columns: Vec<varve_column_def>,
    parts: Vec<Vec<varve_key_part>>,
    indexes: Vec<varve_index_def>,
}

impl Definition {
    fn of(input: &mut Input<'_>) -> Definition {
        let sizes = [1, 2, 4, 8, 0, 3, 20, 255, 3000, 40_000, u32::MAX];
        let column = |input: &mut Input<'_>| varve_column_def {
            name: name(input),
            kind: choose(input),
            size: input.of(&sizes),
            collation: input.of(&[8, 1 << 31, (1 << 31) + 1, (1 << 31) + 4, 7, u32::MAX]),
            nullable: input.bool(),
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
        };
        let indexes = parts[1..].iter().map(index).collect();
        Definition {
            columns,
            parts,
            indexes,
        }
    }

    fn raw(&self, input: &mut Input<'_>) -> varve_table_def {
        varve_table_def {
            name: name(input),
            columns: self.columns.as_ptr(),
            n_columns: self.columns.len() as u32,
            primary: self.parts[0].as_ptr(),
            n_primary: self.parts[0].len() as u32,
            indexes: self.indexes.as_ptr(),
            n_indexes: self.indexes.len() as u32,
            auto_increment: input.of(&[u32::MAX, 0, 1, 9]),
            temporary: input.bool(),
        }
    }
}

impl Session<'_, '_> {
    fn values(&mut self) -> Vec<varve_value> {
        let n = match self.input.below(8) {
            0 => 40,
            n => n - 1,
        };
        (0..n).map(|_| self.value()).collect()
    }

    fn value(&mut self) -> varve_value {
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

    fn table(&mut self) -> Option<*mut varve_table> {
        let n = self.input.below(self.tables.len());
        self.tables.get(n).copied()
    }

    fn txn(&mut self) -> Option<*mut varve_txn> {
        let n = self.input.below(self.txns.len());
        self.txns.get(n).copied()
    }

    fn cursor(&mut self) -> Option<*mut varve_cursor> {
        let n = self.input.below(self.cursors.len());
        self.cursors.get(n).copied()
    }

    /// A table with rows, a session with a transaction, a cursor.
    unsafe fn begin(&mut self) {
        let id = varve_key_part {
            column: 0,
            prefix: 0,
            descending: false,
        };
        let second = varve_key_part {
            column: 1,
            prefix: 3,
            descending: true,
        };
        let column = |name: &'static CStr, kind, size, nullable| varve_column_def {
            name: name.as_ptr(),
            kind: MaybeUninit::new(kind),
            size,
            collation: 8,
            nullable,
        };
        let columns = [
            column(c"id", varve_type::VARVE_INT, 8, false),
            column(c"c", varve_type::VARVE_TEXT, 30_000, true),
        ];
        let index = varve_index_def {
            name: c"c".as_ptr(),
            unique: self.input.bool(),
            parts: &second,
            n_parts: 1,
        };
        let def = varve_table_def {
            name: c"a/t".as_ptr(),
            columns: columns.as_ptr(),
            n_columns: 2,
            primary: &id,
            n_primary: 1,
            indexes: &index,
            n_indexes: 1,
            auto_increment: 0,
            temporary: !self.input.u8().is_multiple_of(4),
        };
        // SAFETY: as for `run`.
        unsafe {
            let code = ok(varve_table_create(self.db, &def));
            assert_eq!(code, VARVE_OK, "{:?}", CStr::from_ptr(varve_last_error()));
            self.open_table(c"a/t".as_ptr());
            self.open_txn();
            let (Some(&txn), Some(&table)) = (self.txns.first(), self.tables.first()) else {
                panic!("a table of a good definition");
            };
            ok(varve_txn_begin(
                txn,
                MaybeUninit::new(varve_isolation::VARVE_REPEATABLE_READ),
            ));
            for n in 0..5u64 {
                let id = n.to_le_bytes();
                let row = [&id[..], b"some text"].map(|v| varve_value::of(Some(v)));
                ok(varve_insert(
                    txn,
                    table,
                    row.as_ptr(),
                    2,
                    MaybeUninit::new(varve_on_duplicate::VARVE_DUPLICATE_LOCK),
                ));
            }
            self.open_cursor(table, 0);
        }
    }

    unsafe fn open_table(&mut self, name: *const c_char) {
        let mut table = null_mut();
        if self.tables.len() == HANDLES {
            return;
        }
        // SAFETY: as for `run`.
        let code = unsafe { varve_table_open(self.db, name, &mut table) };
        if ok(code) == VARVE_OK {
            self.tables.push(table);
        }
    }

    unsafe fn open_txn(&mut self) {
        let mut txn = null_mut();
        if self.txns.len() == HANDLES {
            return;
        }
        let locking = varve_table_locks::VARVE_TABLES_LOCKED_BY_ENGINE;
        // SAFETY: as for `run`.
        let code = unsafe { varve_txn_open(self.db, MaybeUninit::new(locking), &mut txn) };
        assert_eq!(ok(code), VARVE_OK);
        self.txns.push(txn);
    }

    unsafe fn open_cursor(&mut self, table: *const varve_table, index: u32) {
        let mut cursor = null_mut();
        if self.cursors.len() == HANDLES {
            return;
        }
        // SAFETY: as for `run`.
        let code = unsafe { varve_cursor_open(table, index, &mut cursor) };
        if ok(code) == VARVE_OK {
            self.cursors.push(cursor);
        }
    }

    /// Closes everything, and drops what was made.
    unsafe fn end(&mut self) {
        // SAFETY: each handle is closed once.
        unsafe {
            self.cursors.drain(..).for_each(|c| varve_cursor_close(c));
            self.txns.drain(..).for_each(|t| varve_txn_close(t));
            self.tables.drain(..).for_each(|t| varve_table_close(t));
            unsafe extern "C" fn each(to: *mut c_void, xid: *const varve_xid) {
                // SAFETY: `to` is the vector below, and the name is valid now.
                unsafe { (*to.cast::<Vec<varve_xid>>()).push(*xid) };
            }
            let mut xids: Vec<varve_xid> = Vec::new();
            ok(varve_db_prepared(self.db, each, (&raw mut xids).cast()));
            for xid in &xids {
                ok(varve_db_rollback_prepared(self.db, xid));
            }
            varve_db_set_lock_memory(self.db, 1 << 20);
            for name in names() {
                let code = ok(varve_table_drop(self.db, name.as_ptr()));
                let gone = [VARVE_OK, VARVE_NOT_FOUND, VARVE_INVALID].contains(&code);
                assert!(gone, "{:?}", CStr::from_ptr(varve_last_error()));
            }
        }
    }

    /// One call, or a few that belong together.
    unsafe fn call(&mut self) {
        // SAFETY: as for `run`.
        unsafe {
            match self.input.below(10) {
                0 => self.call_about_handles(),
                1 => self.call_about_tables(),
                2 => self.call_ddl(),
                3 | 4 => self.call_txn(),
                5 => self.call_about_database(),
                _ => self.call_rows(),
            }
        }
    }

    unsafe fn call_about_handles(&mut self) {
        // SAFETY: as for `run`; a closed handle is forgotten.
        unsafe {
            match self.input.below(6) {
                0 => {
                    let name = name(self.input);
                    self.open_table(name);
                }
                1 => self.open_txn(),
                2 => {
                    let index = u32::from(self.input.u8() % 5);
                    if let Some(table) = self.table() {
                        self.open_cursor(table, index);
                    }
                }
                3 if !self.cursors.is_empty() => {
                    let n = self.input.below(self.cursors.len());
                    varve_cursor_close(self.cursors.remove(n));
                }
                4 if !self.txns.is_empty() => {
                    let n = self.input.below(self.txns.len());
                    varve_txn_close(self.txns.remove(n));
                }
                5 if !self.tables.is_empty() => {
                    let n = self.input.below(self.tables.len());
                    varve_table_close(self.tables.remove(n));
                }
                _ => {}
            }
        }
    }

    unsafe fn call_about_tables(&mut self) {
        let Some(table) = self.table() else { return };
        let (low, high) = (self.values(), self.values());
        let inclusive = self.input.bool();
        let bound = |values: &[varve_value]| varve_bound {
            values: values.as_ptr(),
            n: values.len() as u32,
            inclusive,
        };
        let (low, high) = (bound(&low), bound(&high));
        let index = u32::from(self.input.u8() % 4);
        unsafe extern "C" fn each(_: *mut c_void, _: *const c_char) {}
        // SAFETY: as for `run`.
        unsafe {
            match self.input.below(7) {
                0 => {
                    let mut stats = varve_table_stats::default();
                    ok(varve_table_get_stats(table, &mut stats));
                }
                1 => {
                    let mut out = [0.0; 3];
                    ok(varve_table_rows_per_key(table, index, out.as_mut_ptr(), 3));
                }
                2 => {
                    ok(varve_table_analyze(table));
                }
                3 => {
                    let mut n = 0;
                    ok(varve_table_records_in_range(
                        table, index, &low, &high, &mut n,
                    ));
                }
                4 => {
                    let next = self.input.of(&[0, 1, 100, 1 << 40, u64::MAX - 1, u64::MAX]);
                    ok(varve_table_set_auto_increment(table, next));
                }
                5 => {
                    let mut rows = 0;
                    let code = ok(varve_table_check(table, each, null_mut(), &mut rows));
                    let error = CStr::from_ptr(varve_last_error());
                    assert_ne!(code, VARVE_CORRUPT, "{error:?}");
                }
                _ => {
                    let _ = (varve_table_n_columns(table), varve_table_n_indexes(table));
                    let _ = (
                        varve_table_max_position(table),
                        varve_table_is_temporary(table),
                        varve_last_error_index(table),
                    );
                }
            }
        }
    }

    unsafe fn call_ddl(&mut self) {
        // SAFETY: as for `run`.
        unsafe {
            match self.input.below(5) {
                0 | 1 => {
                    let definition = Definition::of(self.input);
                    let def = definition.raw(self.input);
                    ok(varve_table_create(self.db, &def));
                }
                2 => {
                    ok(varve_table_drop(self.db, name(self.input)));
                }
                3 => {
                    let (from, to) = (name(self.input), name(self.input));
                    ok(varve_table_rename(self.db, from, to));
                }
                _ => {
                    ok(varve_table_truncate(self.db, name(self.input)));
                }
            }
        }
    }

    fn xid(&mut self) -> varve_xid {
        let mut parts = [0; 128];
        parts[0] = self.input.u8() % 3;
        varve_xid {
            format: 1,
            global_len: self.input.of(&[1, 1, 2, 64, 65, 0, u32::MAX]),
            branch_len: self.input.of(&[0, 1, 64, 65, u32::MAX]),
            parts,
        }
    }

    unsafe fn call_txn(&mut self) {
        let Some(txn) = self.txn() else { return };
        // SAFETY: as for `run`.
        unsafe {
            ok(match self.input.below(19) {
                0..4 => varve_txn_begin(txn, choose(self.input)),
                4 => varve_txn_commit(txn),
                5 => varve_txn_rollback(txn),
                6 => varve_txn_prepare(txn, &self.xid()),
                7 => varve_txn_hold_commit(txn),
                8 => varve_txn_commit_start(txn),
                9 => varve_txn_commit_decided(txn),
                10 => varve_txn_detach(txn, &mut false),
                11 => varve_txn_start_statement(txn),
                12 => varve_txn_end_statement(txn),
                13 => varve_txn_rollback_statement(txn),
                14 => varve_txn_savepoint(txn, &mut 0),
                15 => varve_txn_rollback_to(txn, self.input.of(&[0, 1, 3, 6, 1000, u64::MAX])),
                16 => varve_txn_take_snapshot(txn),
                17 => {
                    varve_txn_set_lock_wait_timeout(txn, self.input.of(&[0, 1]));
                    match self.input.bool() {
                        true => varve_txn_interrupt(txn),
                        false => varve_txn_clear_interrupt(txn),
                    }
                    let _ = (varve_txn_id(txn), varve_txn_is_open(txn));
                    let _ = varve_txn_has_temporary_changes(txn);
                    VARVE_OK
                }
                _ => varve_txn_drop_temporary(txn, name(self.input)),
            });
        }
    }

    unsafe fn call_about_database(&mut self) {
        unsafe extern "C" fn text(_: *mut c_void, _: *const c_char) {}
        unsafe extern "C" fn counter(_: *mut c_void, _: *const c_char, _: u64) {}
        unsafe extern "C" fn told(_: *mut c_void) {}
        let xid = self.xid();
        // SAFETY: as for `run`.
        unsafe {
            ok(match self.input.below(15) {
                0 => varve_db_tables(self.db, text, null_mut()),
                1 => varve_db_status(self.db, counter, null_mut()),
                2 => varve_db_report(self.db, text, null_mut()),
                3 => varve_db_commit_prepared(self.db, &xid),
                4 => varve_db_rollback_prepared(self.db, &xid),
                5 => varve_db_notify_durable(self.db, told, null_mut()),
                6 => varve_db_flush_log(self.db),
                7 => {
                    varve_db_set_lock_memory(self.db, self.input.of(&[1 << 20, 0, u64::MAX]));
                    VARVE_OK
                }
                8 => varve_db_set_flush_log(self.db, choose(self.input)),
                13 => {
                    let bytes = self.input.of(&[2 << 20, 8 << 20, 32 << 20, 0, u64::MAX]);
                    varve_db_set_redo_capacity(self.db, bytes)
                }
                9 => {
                    let options = varve_purge_options {
                        threads: self.input.of(&[0, 1, 4, 33]),
                        batch_size: self.input.of(&[1, 300, 0, 5001]),
                        rseg_truncate_frequency: self.input.of(&[1, 128, 0]),
                        undo_log_truncate: self.input.bool(),
                        max_undo_log_size: self.input.of(&[10 << 20, 0, u64::MAX]),
                        max_purge_lag: self.input.of(&[0, 1, u64::MAX]),
                        max_purge_lag_delay_us: self.input.of(&[100, 0, u64::MAX]),
                    };
                    varve_db_set_purge(self.db, &options)
                }
                10 => {
                    let number = self.input.of(&[1, 2, 3, 0, u32::MAX]);
                    let at_most = self.input.of(&[0, 1, 5]);
                    varve_db_truncate_undo(self.db, number, at_most, &mut false)
                }
                11 => {
                    let pct = [0.0, 90.0, 100.0, -1.0, f64::NAN];
                    let options = varve_flush_options {
                        io_capacity: self.input.of(&[200, 0, u32::MAX]),
                        io_capacity_max: self.input.of(&[2000, 0, u32::MAX]),
                        max_dirty_pages_pct: self.input.of(&pct),
                        max_dirty_pages_pct_lwm: self.input.of(&pct),
                        adaptive_flushing: self.input.bool(),
                        adaptive_flushing_lwm: self.input.of(&pct),
                        flushing_avg_loops: self.input.of(&[1, 30, 0, 1001]),
                        lru_scan_depth: self.input.of(&[100, 0, u32::MAX]),
                    };
                    varve_db_set_flush(self.db, &options)
                }
                12 => self.call_pool_dump(),
                _ => {
                    let _ = varve_db_wait_for_purge(self.db, 1);
                    VARVE_OK
                }
            });
        }
    }

    unsafe fn call_pool_dump(&mut self) -> varve_code {
        unsafe extern "C" fn told(
            _: *mut c_void,
            _: *const c_char,
            _: u64,
            _: *const c_char,
            _: u64,
        ) {
        }
        // SAFETY: as for `run`.
        unsafe {
            let options = varve_pool_dump_options {
                at_shutdown: self.input.bool(),
                at_startup: self.input.bool(),
                pct: self.input.of(&[100, 1, 0, 101]),
                file: match self.input.bool() {
                    true => null(),
                    false => name(self.input),
                },
            };
            match self.input.below(4) {
                0 => return varve_db_set_pool_dump(self.db, &options),
                1 => return varve_db_pool_dump(self.db),
                2 => return varve_db_pool_load(self.db),
                _ => varve_db_pool_load_abort(self.db),
            }
            varve_db_pool_dump_status(self.db, told, null_mut());
        }
        VARVE_OK
    }

    unsafe fn call_rows(&mut self) {
        let (Some(txn), Some(table)) = (self.txn(), self.table()) else {
            return;
        };
        // SAFETY: as for `run`.
        unsafe {
            match self.input.below(8) {
                0..3 => {
                    let row = self.values();
                    let (n, how) = (row.len() as u32, choose(self.input));
                    ok(varve_insert(txn, table, row.as_ptr(), n, how));
                    let rows = [row.as_slice(), row.as_slice()].concat();
                    let n_rows = self.input.of(&[0, 1, 2]);
                    ok(varve_insert_many(txn, table, rows.as_ptr(), n, n_rows));
                }
                3 => {
                    let (index, key) = (u32::from(self.input.u8() % 4), self.values());
                    ok(varve_lock_key(
                        txn,
                        table,
                        index,
                        key.as_ptr(),
                        key.len() as u32,
                    ));
                }
                4 => {
                    let n = self.input.of(&[0, 1, 5, 1 << 40, u64::MAX]);
                    let lock = choose(self.input);
                    ok(varve_auto_increment_reserve(txn, table, n, lock, &mut 0));
                }
                5 => {
                    ok(varve_txn_lock_table_shared(txn, table));
                }
                _ => {
                    if let Some(cursor) = self.cursor() {
                        self.call_cursor(cursor, txn);
                    }
                }
            }
        }
    }

    unsafe fn call_cursor(&mut self, cursor: *mut varve_cursor, txn: *const varve_txn) {
        let lock = choose(self.input);
        let passed = self.input.of(&[0, 0, 1, 2, 100, u32::MAX]);
        let (mut row, mut n) = (null(), 0);
        // SAFETY: as for `run`.
        unsafe {
            ok(match self.input.below(17) {
                0 => varve_cursor_first(cursor, txn, lock, &mut row),
                1 => varve_cursor_last(cursor, txn, lock, &mut row),
                2 => varve_cursor_next(cursor, txn, &mut row),
                3 => varve_cursor_prev(cursor, txn, &mut row),
                4 => varve_cursor_next_same(cursor, txn, &mut row),
                5 => varve_cursor_next_rows(cursor, txn, passed, &mut row, &mut n),
                6 => varve_cursor_next_same_rows(cursor, txn, passed, &mut row, &mut n),
                7 => varve_cursor_pass(cursor, txn, passed),
                8 => {
                    let (key, how) = (self.values(), choose(self.input));
                    let n = key.len() as u32;
                    varve_cursor_seek(cursor, txn, key.as_ptr(), n, how, lock, &mut row)
                }
                9 => {
                    let row = self.values();
                    varve_update(txn, cursor, row.as_ptr(), row.len() as u32)
                }
                10 => varve_delete(txn, cursor),
                11 => {
                    let at = self.input.bytes(10);
                    let len = at.len() as u32;
                    varve_cursor_seek_position(cursor, txn, at.as_ptr(), len, lock, &mut row)
                }
                12 => {
                    let mut at = null();
                    let len = varve_cursor_position(cursor, &mut at);
                    let at = match len {
                        0 => Vec::new(),
                        _ => std::slice::from_raw_parts(at, len as usize).to_vec(),
                    };
                    varve_cursor_seek_position(cursor, txn, at.as_ptr(), len, lock, &mut row)
                }
                13 => varve_cursor_unlock_row(cursor, txn),
                14 => {
                    let (values, inclusive) = (self.values(), self.input.bool());
                    let n = values.len() as u32;
                    let bound = varve_bound {
                        values: values.as_ptr(),
                        n,
                        inclusive,
                    };
                    match self.input.below(3) {
                        0 => varve_cursor_set_end(cursor, txn, &bound),
                        1 => varve_cursor_set_begin(cursor, txn, &bound),
                        _ => varve_cursor_set_end(cursor, txn, null()),
                    }
                }
                15 => {
                    let wanted = self.input.bytes(3);
                    let n = wanted.len() as u32;
                    varve_cursor_set_wanted_columns(cursor, wanted.as_ptr(), n);
                    varve_cursor_set_keys_suffice(cursor, self.input.bool());
                    let _ = varve_cursor_covers(cursor, self.input.u32());
                    VARVE_OK
                }
                _ => {
                    let _ = varve_cursor_was_semi_consistent(cursor);
                    varve_cursor_release_values(cursor);
                    varve_cursor_set_filter(cursor, None, null_mut());
                    VARVE_OK
                }
            });
        }
    }
}

/// Random calls: there is no other place to have them from.
pub fn seeds() -> Vec<Vec<u8>> {
    use rand::{Rng, SeedableRng};
    let mut rng = rand::rngs::SmallRng::seed_from_u64(7);
    let mut seed = |n: usize| (0..n).map(|_| rng.random()).collect();
    [100, 300, 600, 1200, 2400]
        .into_iter()
        .flat_map(|n| [seed(n), seed(n)])
        .collect()
}
