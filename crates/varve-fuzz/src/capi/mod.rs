//! The C interface, called in any order with any arguments that its contract does not make the caller vouch
//! for.
//!
//! What holds, whatever the calls are: each gives a code, and none stops the database (`VARVE_POISONED` is
//! what a panic inside becomes, CAPI-1). What only a caller can know is kept (CAPI-2): pointers are null
//! where that is allowed or point to as much as is said, and handles are open. Enums have any number.
//!
//! Input: calls, each a byte and its arguments. The database is one for the whole process, with little in it;
//! tables that an input made are dropped after it.
//!
//! | file | what |
//! |---|---|
//! | mod.rs | the database, and what an input begins and ends with |
//! | arguments.rs | what calls are given |
//! | calls.rs | the calls |

#![allow(unsafe_code)]

mod arguments;
mod calls;

use std::ffi::{CStr, CString, c_char, c_void};
use std::fs::File;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::{Mutex, OnceLock, PoisonError};

use varve_capi::collation::varve_collation;
use varve_capi::cursor::*;
use varve_capi::database::*;
use varve_capi::definition::*;
use varve_capi::error::varve_code::*;
use varve_capi::error::{varve_code, varve_last_error};
use varve_capi::foreign::varve_foreign_key_checks;
use varve_capi::prepared::*;
use varve_capi::table::*;
use varve_capi::transactions::varve_txn_set_session;
use varve_capi::txn::*;
use varve_capi::value::varve_value;
use varve_capi::value_source::varve_value_source;

use self::arguments::names;
use crate::input::Input;

/// Handles of one kind that an input may have open.
const HANDLES: usize = 4;
/// Calls that an input may make.
const CALLS: usize = 300;

/// A handle of the database, which threads share.
struct Db(*mut varve_db);

// SAFETY: any thread may call with it (varve.h).
unsafe impl Send for Db {}

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

/// A directory that no other process of this kind uses now. It is left to the next one: nothing could remove
/// it after the last input.
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

impl Session<'_, '_> {
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
            computed: false,
            unversioned: false,
            converted: false,
            was: null(),
            in_old_rows: varve_value::NULL,
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
            was: null(),
        };
        let def = varve_table_def {
            name: c"a/t".as_ptr(),
            columns: columns.as_ptr(),
            n_columns: 2,
            primary: &id,
            n_primary: 1,
            indexes: &index,
            n_indexes: 1,
            foreign_keys: null(),
            n_foreign_keys: 0,
            foreign_key_checks: MaybeUninit::new(varve_foreign_key_checks::VARVE_CHECK_REFERENCES),
            auto_increment: 0,
            system_time: null(),
            temporary: !self.input.u8().is_multiple_of(4),
            data_directory: null(),
            compression: MaybeUninit::new(varve_compression::VARVE_LZ4),
            compression_level: 0,
            encryption: MaybeUninit::new(varve_encryption::VARVE_ENCRYPTED_DEFAULT),
            encryption_key: 1,
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
        // SAFETY: as for `run`.
        unsafe { varve_txn_set_session(txn, 1) };
        if self.input.bool() {
            // SAFETY: as for `run`.
            unsafe { varve_txn_set_value_source(txn, &value_source()) };
        }
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
            let unchecked = MaybeUninit::new(varve_foreign_key_checks::VARVE_IGNORE_REFERENCES);
            for name in names() {
                let code = ok(varve_table_drop(self.db, name.as_ptr(), unchecked));
                let gone = [VARVE_OK, VARVE_NOT_FOUND, VARVE_INVALID].contains(&code);
                assert!(gone, "{:?}", CStr::from_ptr(varve_last_error()));
            }
        }
    }
}

/// Knows the time, and the values of columns of one byte.
fn value_source() -> varve_value_source {
    unsafe extern "C" fn time(_: *mut c_void, out: *mut varve_value) -> bool {
        // SAFETY: there is room for one value.
        unsafe { out.write(varve_value::of(Some(b"forevea"))) };
        true
    }
    unsafe extern "C" fn computed(
        _: *mut c_void,
        _: *const c_char,
        row: *const varve_value,
        columns: *const u32,
        n: u32,
        out: *mut varve_value,
    ) -> bool {
        for at in 0..n as usize {
            // SAFETY: there are as many columns, all of them in the row, and room for as many values.
            unsafe {
                let old = *row.add(*columns.add(at) as usize);
                out.add(at).write(match old.len {
                    1 => varve_value::of(Some(b"z")),
                    _ => varve_value::NULL,
                });
            }
        }
        n.is_multiple_of(2)
    }
    unsafe extern "C" fn converted(
        _: *mut c_void,
        _: *const c_char,
        row: *const varve_value,
        _: *const u32,
        n: u32,
        row_number: u64,
        out: *mut varve_value,
    ) -> bool {
        for at in 0..n as usize {
            // SAFETY: a row has a value at least, and there is room for as many values as there are columns.
            unsafe { out.add(at).write(*row) };
        }
        !row_number.is_multiple_of(8)
    }
    unsafe extern "C" fn instead_of_null(
        _: *mut c_void,
        _: *const c_char,
        column: u32,
        _: u64,
        out: *mut varve_value,
    ) -> bool {
        // SAFETY: there is room for one value.
        unsafe { out.write(varve_value::of(Some(b"z"))) };
        column.is_multiple_of(2)
    }
    varve_value_source {
        context: null_mut(),
        statement_time: time,
        computed,
        converted,
        instead_of_null,
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
