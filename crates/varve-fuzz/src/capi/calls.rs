//! The calls: each takes from the input which one it is, and its arguments.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};

use varve_capi::cursor::*;
use varve_capi::database::*;
use varve_capi::definition::varve_table_def;
use varve_capi::error::varve_code::*;
use varve_capi::error::{
    varve_code, varve_last_error, varve_last_error_child, varve_last_error_constraint,
};
use varve_capi::flush::*;
use varve_capi::foreign::*;
use varve_capi::history::*;
use varve_capi::pool_dump::*;
use varve_capi::prepared::*;
use varve_capi::redefinition::*;
use varve_capi::status::*;
use varve_capi::table::*;
use varve_capi::transactions::*;
use varve_capi::txn::*;
use varve_capi::value::varve_value;

use super::arguments::{Definition, choose, name};
use super::{Session, ok};

impl Session<'_, '_> {
    /// One call, or a few that belong together.
    pub(super) unsafe fn call(&mut self) {
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
                    let txn = self.txns.first().copied().unwrap_or(null_mut());
                    ok(varve_table_analyze(table, txn));
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
                    varve_table_raise_auto_increment(table, next.saturating_add(1));
                }
                5 => {
                    let mut rows = 0;
                    let code = ok(varve_table_check(
                        table,
                        null(),
                        each,
                        null_mut(),
                        &mut rows,
                    ));
                    let error = CStr::from_ptr(varve_last_error());
                    assert_ne!(code, VARVE_CORRUPT, "{error:?}");
                }
                _ => {
                    let _ = (varve_table_n_columns(table), varve_table_n_indexes(table));
                    let _ = (
                        varve_table_max_position(table),
                        varve_table_is_temporary(table),
                        varve_table_data_directory(table),
                        varve_table_hash(table),
                        varve_last_error_index(table),
                        varve_table_is_referenced(table),
                        varve_last_error_constraint(),
                        varve_last_error_child(),
                    );
                    unsafe extern "C" fn each(_: *mut c_void, key: *const varve_foreign_key) {
                        // SAFETY: the engine's promise.
                        let names = unsafe { [(*key).name, (*key).child, (*key).parent] };
                        // SAFETY: as above.
                        let lengths =
                            names.map(|name| unsafe { CStr::from_ptr(name) }.count_bytes());
                        assert!(lengths.iter().all(|len| *len > 0), "{lengths:?}");
                    }
                    ok(varve_table_foreign_keys(table, each, null_mut()));
                    ok(varve_table_referencing(table, each, null_mut()));
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
                    ok(varve_table_drop(
                        self.db,
                        name(self.input),
                        choose(self.input),
                    ));
                }
                3 => {
                    let (from, to) = (name(self.input), name(self.input));
                    let constraints = (name(self.input), name(self.input));
                    ok(varve_table_rename(
                        self.db,
                        from,
                        to,
                        constraints.0,
                        constraints.1,
                        choose(self.input),
                    ));
                    let definition = Definition::of(self.input);
                    let raw = definition.raw(self.input);
                    self.redefine(&raw);
                }
                _ => {
                    ok(varve_table_truncate(
                        self.db,
                        name(self.input),
                        choose(self.input),
                    ));
                }
            }
        }
    }

    /// What is prepared ends at once: nobody else could end it.
    unsafe fn redefine(&mut self, def: &varve_table_def) {
        unsafe extern "C" fn see(_: *mut c_void, index: *const c_char, row: *const varve_value) {
            // SAFETY: the table has a column, and its index a name.
            let _ = unsafe { (*row, CStr::from_ptr(index)) };
        }
        let txn = self.txns.first().copied().unwrap_or(null_mut());
        let mut prepared = null_mut();
        // SAFETY: what is prepared is there until one of the calls.
        unsafe {
            let code = varve_redefinition_prepare(self.db, txn, def, &mut prepared);
            if ok(code) != VARVE_OK {
                return;
            }
            let (db, nothing) = (self.db, null_mut());
            let is_built = match self.input.bool() {
                true => ok(varve_redefinition_build(db, prepared, see, nothing)) == VARVE_OK,
                false => true,
            };
            match is_built && self.input.bool() {
                true => _ = ok(varve_redefinition_commit(db, prepared, see, nothing)),
                false => varve_redefinition_abandon(prepared),
            }
        }
    }

    unsafe fn call_txn(&mut self) {
        let Some(txn) = self.txn() else { return };
        // SAFETY: as for `run`.
        unsafe {
            ok(match self.input.below(19) {
                0..4 => {
                    // Or nothing would be done any more.
                    self.txns.iter().for_each(|t| varve_txn_clear_interrupt(*t));
                    varve_txn_interrupt_with(txn, self.txns[self.input.below(self.txns.len())]);
                    varve_txn_begin(txn, choose(self.input))
                }
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
                    varve_txn_set_spared(txn, self.input.bool());
                    varve_txn_release_searches(txn)
                }
                _ => varve_txn_drop_temporary(txn, name(self.input)),
            });
        }
    }

    unsafe fn call_about_transactions(&mut self, text: varve_text_fn) -> varve_code {
        unsafe extern "C" fn transaction(_: *mut c_void, _: *const varve_transaction) {}
        unsafe extern "C" fn wait(
            _: *mut c_void,
            _: *const varve_lock_info,
            _: *const varve_lock_info,
        ) {
        }
        unsafe extern "C" fn session(_: *mut c_void, n: u64, out: *mut varve_session_text) -> bool {
            let text = c"it".as_ptr();
            let said = varve_session_text {
                active_seconds: n,
                operation: text,
                before: text,
                after: text,
            };
            // SAFETY: the engine's own.
            unsafe { out.write(said) };
            n % 2 == 1
        }
        // SAFETY: as for `run`.
        unsafe {
            ok(varve_db_transactions(self.db, transaction, null_mut()));
            ok(varve_db_lock_waits(self.db, wait, null_mut()));
            let each = (self.input.below(2) == 0).then_some(text);
            ok(varve_db_describe_deadlocks(
                self.db,
                session,
                null_mut(),
                each,
                null_mut(),
            ));
            ok(varve_db_last_deadlock(self.db, &mut 0));
            varve_db_report(self.db, session, null_mut(), text, null_mut())
        }
    }

    unsafe fn call_about_database(&mut self) {
        unsafe extern "C" fn text(_: *mut c_void, _: *const c_char) {}
        unsafe extern "C" fn counter(_: *mut c_void, _: *const c_char, _: u64) {}
        unsafe extern "C" fn told(_: *mut c_void) {}
        let xid = self.xid();
        // SAFETY: as for `run`.
        unsafe {
            ok(match self.input.below(16) {
                0 => varve_db_tables(self.db, text, null_mut()),
                1 => varve_db_status(self.db, counter, null_mut()),
                2 => self.call_about_transactions(text),
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
                14 => {
                    let options = varve_history_options {
                        store: self.input.bool(),
                        delay_ms: self.input.of(&[0, 1000, 3_600_001, u64::MAX]),
                        max_size_bytes: self.input.of(&[0, 1 << 20, 1, u64::MAX]),
                    };
                    varve_db_set_history(self.db, &options)
                }
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
                    ok(varve_txn_lock_table(txn, table, false));
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
                    varve_cursor_set_filter(cursor, None, null_mut(), null(), 0);
                    VARVE_OK
                }
            });
        }
    }
}
