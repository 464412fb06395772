//! `varve_cursor`: reading a table in the order of one of its indexes.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use varve::{Cursor, Datum, DatumBuf, Error, KeyMatch, LockMode, Table, Transaction};

use crate::choice::{choice, chosen};
use crate::error::guard;
use crate::error::varve_code::{self, VARVE_NO_ROW, VARVE_OK};
use crate::rows::{RowsForC, fill};
use crate::table::{varve_bound, varve_table};
use crate::txn::{running, varve_txn, with_running};
use crate::value::{slice_of, varve_value, with_datums};

/// A place in an index. It belongs to no transaction: every move names the one it is made in.
pub struct varve_cursor {
    pub(crate) table: Table,
    pub(crate) cursor: Cursor,
    rows: RowsForC,
    /// How many rows behind the cursor's own the last call has given.
    ahead: usize,
}

/// What a row must be to the key that is sought. A key may be only the first parts of the index's; then it
/// stands for all keys that begin with it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_match {
    /// The first one equal to the key.
    VARVE_EXACT = 0,
    /// The first one equal to the key or after it.
    VARVE_AT_LEAST = 1,
    /// The first one after all that equal the key.
    VARVE_AFTER = 2,
    /// The last one equal to the key or before it.
    VARVE_AT_MOST = 3,
    /// The last one before all that equal the key.
    VARVE_BEFORE = 4,
    /// The last one equal to the key.
    VARVE_EXACT_LAST = 5,
}

/// How the rows that a cursor comes to are locked. Without a lock the cursor reads the transaction's read
/// view, with one the latest committed rows. In a serializable transaction VARVE_NO_LOCK is VARVE_SHARED.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum varve_lock {
    VARVE_NO_LOCK = 0,
    VARVE_SHARED = 1,
    VARVE_EXCLUSIVE = 2,
    /// As VARVE_SHARED, but passes over rows that would have to be waited for.
    VARVE_SHARED_SKIP_LOCKED = 3,
    /// As VARVE_EXCLUSIVE, but passes over rows that would have to be waited for.
    VARVE_EXCLUSIVE_SKIP_LOCKED = 4,
    /// As VARVE_EXCLUSIVE, but a scan of the clustered index under READ COMMITTED or READ UNCOMMITTED gives a
    /// row that others have locked as it was committed last, unlocked: varve_cursor_was_semi_consistent says
    /// so. The next move comes to the same row again and waits for it, unless varve_cursor_unlock_row was
    /// called before.
    VARVE_EXCLUSIVE_SEMI_CONSISTENT = 5,
}

/// Whether a row is wanted, as far as its entry in a secondary index tells.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_verdict {
    VARVE_WANTED = 0,
    VARVE_UNWANTED = 1,
    /// The search is to end with VARVE_INTERRUPTED.
    VARVE_INTERRUPT = 2,
}

/// Decides on an entry. `row` has one value for each column; those of columns of which varve_cursor_covers
/// says no mean nothing. `position` is the row's, as varve_cursor_position gives it. Columns that it looks at
/// must be wanted, and named to varve_cursor_set_filter. Where the entry can't give the values as they are in
/// the row, it is asked about the row, too, when that was locked or fetched. It must not use the cursor, nor
/// the transaction.
pub type varve_filter_fn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        row: *const varve_value,
        position: *const u8,
        position_len: u32,
    ) -> MaybeUninit<varve_verdict>,
>;

/// C's filter, with what it is given.
struct Filter {
    ask: unsafe extern "C" fn(
        *mut c_void,
        *const varve_value,
        *const u8,
        u32,
    ) -> MaybeUninit<varve_verdict>,
    context: *mut c_void,
    row: Vec<varve_value>,
    key_columns: Vec<(usize, bool)>,
}

// SAFETY: a cursor's handle is used by one thread at a time, and the filter only through it.
unsafe impl Send for Filter {}

impl Filter {
    fn wants(&mut self, values: &DatumBuf, position: &[u8]) -> varve::Result<bool> {
        fill(&mut self.row, &self.key_columns, values.iter());
        let (at, len) = (position.as_ptr(), position.len() as u32);
        // SAFETY: CAPI-2; row and position outlive the call.
        let answer = unsafe { (self.ask)(self.context, self.row.as_ptr(), at, len) };
        match chosen("the filter's answer", answer)? {
            varve_verdict::VARVE_WANTED => Ok(true),
            varve_verdict::VARVE_UNWANTED => Ok(false),
            varve_verdict::VARVE_INTERRUPT => Err(Error::Interrupted),
        }
    }
}

choice!(varve_verdict: VARVE_WANTED, VARVE_UNWANTED, VARVE_INTERRUPT);
choice!(
    varve_lock: VARVE_NO_LOCK, VARVE_SHARED, VARVE_EXCLUSIVE, VARVE_SHARED_SKIP_LOCKED,
    VARVE_EXCLUSIVE_SKIP_LOCKED, VARVE_EXCLUSIVE_SEMI_CONSISTENT,
);
choice!(
    varve_match: VARVE_EXACT, VARVE_AT_LEAST, VARVE_AFTER, VARVE_AT_MOST, VARVE_BEFORE, VARVE_EXACT_LAST,
);

impl From<varve_lock> for LockMode {
    fn from(lock: varve_lock) -> LockMode {
        match lock {
            varve_lock::VARVE_NO_LOCK => LockMode::None,
            varve_lock::VARVE_SHARED => LockMode::Shared,
            varve_lock::VARVE_EXCLUSIVE => LockMode::Exclusive,
            varve_lock::VARVE_SHARED_SKIP_LOCKED => LockMode::SharedSkipLocked,
            varve_lock::VARVE_EXCLUSIVE_SKIP_LOCKED => LockMode::ExclusiveSkipLocked,
            varve_lock::VARVE_EXCLUSIVE_SEMI_CONSISTENT => LockMode::ExclusiveSemiConsistent,
        }
    }
}

impl From<varve_match> for KeyMatch {
    fn from(m: varve_match) -> KeyMatch {
        match m {
            varve_match::VARVE_EXACT => KeyMatch::Exact,
            varve_match::VARVE_AT_LEAST => KeyMatch::AtLeast,
            varve_match::VARVE_AFTER => KeyMatch::After,
            varve_match::VARVE_AT_MOST => KeyMatch::AtMost,
            varve_match::VARVE_BEFORE => KeyMatch::Before,
            varve_match::VARVE_EXACT_LAST => KeyMatch::ExactLast,
        }
    }
}

/// Moves a cursor and hands the row that it found to C.
///
/// # Safety
/// CAPI-2 holds for the handles and for `row`.
#[inline]
unsafe fn go(
    cursor: *mut varve_cursor,
    txn: *const varve_txn,
    row: *mut *const varve_value,
    how: impl FnOnce(&mut Cursor, &mut Transaction) -> varve::Result<bool>,
) -> varve_code {
    // SAFETY: the caller's promise.
    let (c, txn) = unsafe { (&mut *cursor, &*txn) };
    guard(&txn.db, || {
        // SAFETY: the caller's promise.
        let trx = unsafe { running(txn)? };
        c.ahead = 0;
        if !how(&mut c.cursor, trx)? {
            return Ok(VARVE_NO_ROW);
        }
        c.rows.put_current(&mut c.cursor)?;
        // SAFETY: the caller's promise.
        unsafe { row.write(c.rows.as_ptr()) };
        Ok(VARVE_OK)
    })
}

/// Rows of a portion that C went past, and where the next portion goes.
struct Portion {
    passed: u32,
    rows: *mut *const varve_value,
    n: *mut u32,
}

/// Moves a cursor and hands the row that it found to C, and others behind it that cost next to nothing.
///
/// # Safety
/// CAPI-2 holds for the handles and for what `portion` points to.
#[inline]
unsafe fn go_on(
    cursor: *mut varve_cursor,
    txn: *const varve_txn,
    portion: Portion,
    how: impl FnOnce(&mut Cursor, &mut Transaction) -> varve::Result<bool>,
) -> varve_code {
    // SAFETY: the caller's promise.
    let (c, txn) = unsafe { (&mut *cursor, &*txn) };
    guard(&txn.db, || {
        // SAFETY: the caller's promise.
        let trx = unsafe { running(txn)? };
        c.pass(trx, portion.passed)?;
        if !how(&mut c.cursor, trx)? {
            return Ok(VARVE_NO_ROW);
        }
        let most = c.rows.begin_portion();
        c.rows.put_current(&mut c.cursor)?;
        let most = (most - 1).min(c.cursor.peekable());
        while c.ahead < most
            && let Some(peeked) = c.cursor.peek(trx, c.ahead)
            && c.rows.put_peeked(&c.cursor, c.ahead + 1, peeked)
        {
            c.ahead += 1;
        }
        c.rows.end_portion(c.ahead);
        // SAFETY: the caller's promise.
        unsafe {
            portion.rows.write(c.rows.as_ptr());
            portion.n.write(c.ahead as u32 + 1);
        }
        Ok(VARVE_OK)
    })
}

impl varve_cursor {
    /// Moves the cursor to the last row of the portion that C went past.
    fn pass(&mut self, trx: &mut Transaction, passed: u32) -> varve::Result<()> {
        let (passed, given) = (passed as usize, std::mem::take(&mut self.ahead));
        if passed > given {
            return Err(Error::invalid(format!(
                "{passed} rows were passed, but {given} were given"
            )));
        }
        self.cursor.pass(trx, passed);
        Ok(())
    }
}

/// Opens a cursor on an index: 0 the clustered one, 1, 2, … the secondary ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_open(
    table: *const varve_table,
    index: u32,
    out: *mut *mut varve_cursor,
) -> varve_code {
    // SAFETY: CAPI-2.
    let table = unsafe { &*table };
    guard(&table.db, || {
        let cursor = table.table.cursor(index as usize)?;
        let cursor = varve_cursor {
            table: table.table.clone(),
            rows: RowsForC::new(&cursor, table.table.def().columns.len()),
            cursor,
            ahead: 0,
        };
        // SAFETY: CAPI-2.
        unsafe { out.write(Box::into_raw(Box::new(cursor))) };
        Ok(VARVE_OK)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_close(cursor: *mut varve_cursor) {
    // SAFETY: CAPI-2; the box came from varve_cursor_open.
    drop(unsafe { Box::from_raw(cursor) });
}

/// Whether the values of a column can be had from the index's entries alone, if not from all of them: rows of
/// others are fetched.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_covers(cursor: *const varve_cursor, column: u32) -> bool {
    // SAFETY: CAPI-2.
    let c = unsafe { &*cursor };
    let is_it = |&(c, is_readable): &(usize, bool)| c == column as usize && is_readable;
    c.rows.key_columns().iter().any(is_it)
}

/// Says whether the caller will look at no other columns of the rows that it searches for from now on than at
/// those that the index covers. Values of others then mean nothing, and rows need not be fetched for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_set_keys_suffice(
    cursor: *mut varve_cursor,
    keys_suffice: bool,
) {
    // SAFETY: CAPI-2.
    let c = unsafe { &mut *cursor };
    c.cursor.set_keys_suffice(keys_suffice);
    c.rows.set_keys_suffice(keys_suffice);
}

/// Says which columns the caller will look at in the rows that it searches for from now on: `n` flags, one
/// for each column of the table, 0 for those it will not. A null pointer: all of them. Values of others come
/// as null, and long ones are not fetched from where they lie.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_set_wanted_columns(
    cursor: *mut varve_cursor,
    wanted: *const u8,
    n: u32,
) {
    // SAFETY: CAPI-2.
    let c = unsafe { &mut *cursor };
    // SAFETY: CAPI-2.
    let flags = unsafe { flags_of(wanted, n) };
    c.cursor.set_wanted_columns(flags.as_deref());
    c.rows.want(|column| match &flags {
        Some(flags) => flags.get(*column) == Some(&true),
        None => true,
    });
}

/// Flags of columns; `None` for a null pointer. Safety: as of `slice_of`.
unsafe fn flags_of(flags: *const u8, n: u32) -> Option<Vec<bool>> {
    if flags.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let flags = unsafe { slice_of(flags, n as usize) };
    Some(flags.iter().map(|flag| *flag != 0).collect())
}

/// Gives back memory that external values took. The current row's values are gone then; the cursor keeps its
/// place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_release_values(cursor: *mut varve_cursor) {
    // SAFETY: CAPI-2.
    let c = unsafe { &mut *cursor };
    c.rows.clear();
    c.cursor.release_values();
}

/// Tells the cursor where searches end.
///
/// # Safety
/// CAPI-2 holds for the handles and for `bound`.
unsafe fn limit(
    cursor: *mut varve_cursor,
    txn: *const varve_txn,
    bound: *const varve_bound,
    set: impl FnOnce(&mut Cursor, Option<(&[Datum<'_>], bool)>) -> varve::Result<()>,
) -> varve_code {
    // SAFETY: the caller's promise.
    let (c, txn, bound) = unsafe { (&mut *cursor, &*txn, bound.as_ref()) };
    guard(&txn.db, || {
        match bound {
            None => set(&mut c.cursor, None)?,
            // SAFETY: the caller's promise.
            Some(bound) => unsafe {
                with_datums(bound.values, bound.n, |values| {
                    set(&mut c.cursor, Some((values, bound.inclusive)))
                })?
            },
        }
        Ok(VARVE_OK)
    })
}

/// Where the searches forward that follow end: behind the rows that equal the key `end`, or before them if it
/// is not inclusive. Rows from there on are not even locked. Null lifts the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_set_end(
    cursor: *mut varve_cursor,
    txn: *const varve_txn,
    end: *const varve_bound,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe { limit(cursor, txn, end, |cursor, end| cursor.set_end(end)) }
}

/// Where the searches backward that follow end: before the rows that equal the key `begin`, or behind them if
/// it is not inclusive. Rows from there on are not even locked. Null lifts the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_set_begin(
    cursor: *mut varve_cursor,
    txn: *const varve_txn,
    begin: *const varve_bound,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe { limit(cursor, txn, begin, |cursor, begin| cursor.set_begin(begin)) }
}

/// Has `filter` asked about each entry of the secondary index before its row is locked or fetched, from the
/// next search on. It looks at some columns: `n` flags, one for each column of the table; a null pointer: at
/// all. A null filter asks nobody.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_set_filter(
    cursor: *mut varve_cursor,
    filter: varve_filter_fn,
    context: *mut c_void,
    columns: *const u8,
    n: u32,
) {
    // SAFETY: CAPI-2.
    let c = unsafe { &mut *cursor };
    let Some(ask) = filter else {
        return c.cursor.set_filter(None, None);
    };
    // SAFETY: CAPI-2.
    let columns = unsafe { flags_of(columns, n) };
    let mut filter = Filter {
        ask,
        context,
        row: vec![varve_value::NULL; c.rows.columns()],
        key_columns: c.rows.key_columns().to_vec(),
    };
    let ask = move |values: &DatumBuf, position: &[u8]| filter.wants(values, position);
    (c.cursor).set_filter(Some(Box::new(ask)), columns.as_deref());
}

/// Goes to a key: its first `n` parts, which may be fewer than the index has. In a secondary index values of
/// the primary key's columns, all in its order, may follow those of the index's own. `row` gets the row found
/// there, one value for each column.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_seek(
    cursor: *mut varve_cursor,
    txn: *const varve_txn,
    key: *const varve_value,
    n: u32,
    how: MaybeUninit<varve_match>,
    lock: MaybeUninit<varve_lock>,
    row: *mut *const varve_value,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe {
        go(cursor, txn, row, |cursor, trx| {
            let (how, lock) = (chosen("how", how)?, chosen("lock", lock)?);
            with_datums(key, n, |key| cursor.seek(trx, key, how.into(), lock.into()))
        })
    }
}

/// Goes to the index's first row.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_first(
    cursor: *mut varve_cursor,
    txn: *const varve_txn,
    lock: MaybeUninit<varve_lock>,
    row: *mut *const varve_value,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe {
        go(cursor, txn, row, |cursor, trx| {
            cursor.first(trx, chosen("lock", lock)?.into())
        })
    }
}

/// Goes to the index's last row.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_last(
    cursor: *mut varve_cursor,
    txn: *const varve_txn,
    lock: MaybeUninit<varve_lock>,
    row: *mut *const varve_value,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe {
        go(cursor, txn, row, |cursor, trx| {
            cursor.last(trx, chosen("lock", lock)?.into())
        })
    }
}

/// Goes to the next row in the index's order, locking as the cursor did before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_next(
    cursor: *mut varve_cursor,
    txn: *const varve_txn,
    row: *mut *const varve_value,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe { go(cursor, txn, row, Cursor::next) }
}

/// Goes to the previous row in the index's order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_prev(
    cursor: *mut varve_cursor,
    txn: *const varve_txn,
    row: *mut *const varve_value,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe { go(cursor, txn, row, Cursor::prev) }
}

/// Goes to the next row, if it equals the key that the last varve_cursor_seek was given. Locks no other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_next_same(
    cursor: *mut varve_cursor,
    txn: *const varve_txn,
    row: *mut *const varve_value,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe { go(cursor, txn, row, Cursor::next_same) }
}

/// Goes to the next row, as varve_cursor_next does, and gives it together with rows behind it that the cursor
/// has at hand: `rows` gets `n` rows, one behind the other. The cursor itself stands on the first of them.
/// `passed` says how many of the last call's rows behind the first the caller went past: the cursor goes
/// there first. 0 if there was another call in between.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_next_rows(
    cursor: *mut varve_cursor,
    txn: *const varve_txn,
    passed: u32,
    rows: *mut *const varve_value,
    n: *mut u32,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe { go_on(cursor, txn, Portion { passed, rows, n }, Cursor::next) }
}

/// The same for rows that equal the key that the last varve_cursor_seek was given, as varve_cursor_next_same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_next_same_rows(
    cursor: *mut varve_cursor,
    txn: *const varve_txn,
    passed: u32,
    rows: *mut *const varve_value,
    n: *mut u32,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe { go_on(cursor, txn, Portion { passed, rows, n }, Cursor::next_same) }
}

/// Moves the cursor on over `passed` of the rows behind the first that varve_cursor_next_rows gave, so that
/// it stands on the one that the caller is at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_pass(
    cursor: *mut varve_cursor,
    txn: *const varve_txn,
    passed: u32,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe { with_running(txn, |trx| (*cursor).pass(trx, passed)) }
}

/// The current row's position: bytes that find the row again, in any cursor on the same table. Positions of
/// two rows compare with memcmp, and a shorter one that starts another is the smaller, in the clustered
/// index's order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_position(
    cursor: *const varve_cursor,
    position: *mut *const u8,
) -> u32 {
    // SAFETY: CAPI-2.
    let c = unsafe { &*cursor };
    let at = c.cursor.position();
    // SAFETY: CAPI-2.
    unsafe { position.write(at.as_ptr()) };
    at.len() as u32
}

/// Goes to the row at a position that varve_cursor_position gave. The cursor must be on the clustered index.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_seek_position(
    cursor: *mut varve_cursor,
    txn: *const varve_txn,
    position: *const u8,
    len: u32,
    lock: MaybeUninit<varve_lock>,
    row: *mut *const varve_value,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe {
        let position = slice_of(position, len as usize);
        go(cursor, txn, row, |cursor, trx| {
            cursor.seek_position(trx, position, chosen("lock", lock)?.into())
        })
    }
}

/// Whether the current row is locked by another transaction and was read as it was committed last
/// (VARVE_EXCLUSIVE_SEMI_CONSISTENT).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_was_semi_consistent(cursor: *const varve_cursor) -> bool {
    // SAFETY: CAPI-2.
    unsafe { (*cursor).cursor.was_semi_consistent() }
}

/// The caller has no use for the current row: under READ COMMITTED its lock is given back, if the cursor's
/// last move took it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_cursor_unlock_row(
    cursor: *mut varve_cursor,
    txn: *const varve_txn,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe {
        with_running(txn, |trx| {
            (*cursor).cursor.unlock_row(trx);
            Ok(())
        })
    }
}
