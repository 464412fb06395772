//! What memory has to know of requests that change nothing in it, with a caller whose table is empty.

use std::cell::Cell;
use std::ptr::{null, null_mut};

use super::*;
use crate::error::varve_code::VARVE_INVALID;
use crate::memcached::{varve_memcached_options, varve_memcached_start};

thread_local! {
    /// Somebody brings an item to their memory while the next row is looked for.
    static MEANWHILE: Cell<Option<*const Rows>> = const { Cell::new(None) };
}

unsafe extern "C" fn open(_: *mut c_void) -> *mut c_void {
    std::ptr::dangling_mut()
}
unsafe extern "C" fn nothing(_: *mut c_void) {}
unsafe extern "C" fn begin(
    _: *mut c_void,
    _: varve_memcached_begin,
    _: u64,
) -> varve_memcached_code {
    VARVE_MEMCACHED_OK
}
unsafe extern "C" fn find(
    _: *mut c_void,
    _: usize,
    _: *const u8,
    _: usize,
    _: varve_memcached_find,
    _: *mut varve_memcached_item,
) -> varve_memcached_code {
    if let Some(rows) = MEANWHILE.take() {
        // SAFETY: the test that has put it there has them still.
        let cache = unsafe { &*rows }.cache();
        let item = Item::default();
        cache.fill(0, b"key", item.by_ref(), cache.moment());
    }
    VARVE_MEMCACHED_NO_ROW
}
unsafe extern "C" fn put(_: *mut c_void, _: *mut varve_memcached_item) -> varve_memcached_code {
    VARVE_MEMCACHED_OK
}
unsafe extern "C" fn read_put(_: *mut c_void, _: *mut varve_memcached_item) {}
unsafe extern "C" fn found_key(_: *mut c_void, _: *mut *const u8, _: *mut usize) {}
unsafe extern "C" fn ok(_: *mut c_void) -> varve_memcached_code {
    VARVE_MEMCACHED_OK
}
unsafe extern "C" fn error(_: *mut c_void) -> *const c_char {
    c"why".as_ptr()
}
unsafe extern "C" fn clear(_: *mut c_void, _: usize, _: u32, _: *mut u64) -> varve_memcached_code {
    VARVE_MEMCACHED_OK
}
unsafe extern "C" fn warn(_: *mut c_void, _: *const c_char) {}
unsafe extern "C" fn count(_: *mut c_void) -> u64 {
    0
}

/// Gets are `caching`, and all else is done as `others` says.
fn store(names: &[*const c_char; 2], others: varve_memcached_policy) -> varve_memcached_store {
    varve_memcached_store {
        context: null_mut(),
        containers: names.as_ptr(),
        tables: names.as_ptr(),
        delimiter: c".".as_ptr(),
        gets: VARVE_MEMCACHED_CACHING,
        sets: others,
        deletes: others,
        flushes: others,
        open,
        close: nothing,
        find,
        end_reads: nothing,
        begin,
        put,
        read_put,
        found_key,
        remove: ok,
        commit: ok,
        roll_back: nothing,
        error,
        clear,
        warn,
        count,
    }
}

fn names() -> [*const c_char; 2] {
    [c"default".as_ptr(), null()]
}

fn rows(others: varve_memcached_policy) -> Rows {
    let names = names();
    let store = store(&names, others);
    // SAFETY: the texts are there until it returns.
    unsafe { Rows::new(store, &MemcachedOptions::default()) }.unwrap()
}

/// Who has read before a delete or a flush brings nothing afterwards, also where they have found nothing.
#[test]
fn what_finds_nothing_to_delete_is_known_in_memory() {
    for others in [
        VARVE_MEMCACHED_TABLE_ONLY,
        VARVE_MEMCACHED_CACHE_ONLY,
        VARVE_MEMCACHED_CACHING,
    ] {
        let rows = rows(others);
        let read = Item {
            value: b"old".to_vec(),
            ..Item::default()
        };
        let brings = |of: Moment| {
            rows.cache().fill(0, b"key", read.by_ref(), of);
            rows.cache().get(0, b"key").is_some()
        };
        let moment = rows.cache().moment();
        let mut connected = Items::session(&rows).unwrap();
        let place = rows.place(Effect::Delete);
        rows.begin(&mut connected, place, Some(Duration::ZERO))
            .unwrap();
        let found = Items::find(&rows, &mut connected, b"key", Effect::Delete);
        assert!(found.unwrap().is_none());
        rows.keep(&mut connected).unwrap();
        rows.commit(&mut connected).unwrap();
        assert!(!brings(moment), "{others:?}");
        let moment = rows.cache().moment();
        rows.delete(Goes::All(0)).unwrap();
        assert!(!brings(moment), "{others:?}");
        assert!(brings(rows.cache().moment()));
    }
}

/// A row that is made while it is looked for, and brought to memory, is not taken for one that only memory
/// has.
#[test]
fn what_comes_to_memory_meanwhile_is_not_deleted_there_alone() {
    let rows = rows(VARVE_MEMCACHED_CACHING);
    let mut connected = Items::session(&rows).unwrap();
    rows.begin(&mut connected, Place::Table, Some(Duration::ZERO))
        .unwrap();
    MEANWHILE.set(Some(&raw const rows));
    let mut find = || {
        let found = Items::find(&rows, &mut connected, b"key", Effect::Delete);
        found.map(|item| item.is_some())
    };
    assert!(matches!(find(), Err(Refusal::Made)));
    // It was there before, and no row is.
    assert!(matches!(find(), Ok(true)));
}

/// Options that can't be used are told before memory is divided by them.
#[test]
fn a_length_that_no_value_has_is_refused() {
    let names = names();
    let store = store(&names, VARVE_MEMCACHED_CACHING);
    let options = varve_memcached_options {
        host: null(),
        port: 0,
        socket: null(),
        threads: 0,
        change_threads: 0,
        connections: 0,
        value_bytes: 0,
        batch: 0,
        read_batch: 0,
        cache_bytes: 0,
        accounts: null(),
        certificate: null(),
        key: null(),
        authorities: null(),
        letters: c"-I 4611686018427387712 -s /nowhere".as_ptr(),
        idle_seconds: 0,
        sweep_seconds: 0,
    };
    let mut out = null_mut();
    // SAFETY: all is there until it returns.
    let code = unsafe { varve_memcached_start(&raw const store, &raw const options, &raw mut out) };
    assert_eq!(code, VARVE_INVALID);
}
