//! The memcached protocol on rows that the caller finds and changes: a server's tables, say.
//!
//! What is done with them, and what instead of them or beside them in memory, is in `memcached_rows`.

use std::ffi::{CString, c_char, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use ::varve::Error;
use ::varve_memcached::{Memcached, MemcachedOptions, TlsFiles};

use crate::collation::{c_text, text};
use crate::error::guard_without_database;
use crate::error::varve_code::{self, VARVE_OK};
use crate::memcached_rows::Rows;
use crate::status::varve_counter_fn;

/// What a call of a varve_memcached_store came to.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum varve_memcached_code {
    VARVE_MEMCACHED_OK = 0,
    /// There is no row with this key.
    VARVE_MEMCACHED_NO_ROW = 1,
    /// A row with this key was made since it was looked for.
    VARVE_MEMCACHED_MADE = 2,
    /// It would have to wait, and must not.
    VARVE_MEMCACHED_BUSY = 3,
    /// `error` says why.
    VARVE_MEMCACHED_FAILED = 4,
    /// The same, and it is not to be tried again: somebody ended the batch.
    VARVE_MEMCACHED_KILLED = 5,
}

/// Where requests of a kind are done.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum varve_memcached_policy {
    /// In the table.
    VARVE_MEMCACHED_TABLE_ONLY = 0,
    /// In the process's memory: no table is opened.
    VARVE_MEMCACHED_CACHE_ONLY = 1,
    /// In both: reads look in memory first, and keep there what they find in the table. What is in memory is
    /// what clients have changed or read last, and does not know what others change in the table.
    VARVE_MEMCACHED_CACHING = 2,
    /// They are refused.
    VARVE_MEMCACHED_DISABLED = 3,
}

/// What a batch does about locks of others.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum varve_memcached_begin {
    /// Finds and changes wait for none, whatever `wait_seconds` is: that is VARVE_MEMCACHED_BUSY. If a find
    /// says so the batch goes on, and is committed without what that was for; after a change that says so
    /// `roll_back` is called.
    VARVE_MEMCACHED_AT_ONCE = 0,
    /// It waits for each for `wait_seconds` at most, be they 0, and fails then.
    VARVE_MEMCACHED_WAITING = 1,
}

/// How a row is looked for.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum varve_memcached_find {
    /// To be read, as of the first one since `end_reads`, without waiting for anybody.
    VARVE_MEMCACHED_READ = 0,
    /// The same, and it may wait.
    VARVE_MEMCACHED_READ_WAITING = 1,
    /// Locked, to be changed in the batch that was begun.
    VARVE_MEMCACHED_CHANGE = 2,
}

/// What a row has under its key.
#[repr(C)]
pub struct varve_memcached_item {
    /// Valid until the session's next call.
    pub value: *const u8,
    pub value_bytes: usize,
    pub cas: u64,
    pub flags: u32,
    /// In seconds since 1970; 0: it does not end.
    pub expires: u32,
    pub marks: u8,
}

/// Where rows are. Each function is called by any thread; a session by one at a time.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct varve_memcached_store {
    pub context: *mut c_void,
    /// Names of the containers, that a key chooses by `@@name`, and of their tables, both ending with a null
    /// pointer. The first one is the one that a connection begins with. They, and the delimiter, are copied.
    pub containers: *const *const c_char,
    pub tables: *const *const c_char,
    /// What stands between a container's name and a key.
    pub delimiter: *const c_char,
    /// Where clients read items, put or change them, delete them, and delete all. If reads are
    /// VARVE_MEMCACHED_CACHING, memory forgets what others of them change in the table only.
    pub gets: varve_memcached_policy,
    pub sets: varve_memcached_policy,
    pub deletes: varve_memcached_policy,
    pub flushes: varve_memcached_policy,
    /// A new session; null: there can't be one.
    pub open: unsafe extern "C" fn(context: *mut c_void) -> *mut c_void,
    pub close: unsafe extern "C" fn(session: *mut c_void),
    pub find: unsafe extern "C" fn(
        session: *mut c_void,
        container: usize,
        key: *const u8,
        key_bytes: usize,
        how: varve_memcached_find,
        out: *mut varve_memcached_item,
    ) -> varve_memcached_code,
    pub end_reads: unsafe extern "C" fn(session: *mut c_void),
    pub begin: unsafe extern "C" fn(
        session: *mut c_void,
        how: varve_memcached_begin,
        wait_seconds: u64,
    ) -> varve_memcached_code,
    /// Changes the row that was looked for last, or makes it. `cas` may become another one.
    pub put: unsafe extern "C" fn(
        session: *mut c_void,
        item: *mut varve_memcached_item,
    ) -> varve_memcached_code,
    /// What a read finds of the row that was put last, which a column may have as another text.
    pub read_put: unsafe extern "C" fn(session: *mut c_void, out: *mut varve_memcached_item),
    /// The key of the row that was found last: another one than was looked for, where case does not matter,
    /// say. Valid until the session's next call, and so stays what was found.
    pub found_key:
        unsafe extern "C" fn(session: *mut c_void, key: *mut *const u8, key_bytes: *mut usize),
    /// Deletes the row that was found last.
    pub remove: unsafe extern "C" fn(session: *mut c_void) -> varve_memcached_code,
    pub commit: unsafe extern "C" fn(session: *mut c_void) -> varve_memcached_code,
    pub roll_back: unsafe extern "C" fn(session: *mut c_void),
    /// Why the last call has failed. Valid until the session's next call.
    pub error: unsafe extern "C" fn(session: *mut c_void) -> *const c_char,
    /// Deletes rows of a container: all if `before` is 0, otherwise those that end at this time or before, as
    /// far as nobody has locked them. Counts them in `deleted`, also if it fails.
    pub clear: unsafe extern "C" fn(
        session: *mut c_void,
        container: usize,
        before: u32,
        deleted: *mut u64,
    ) -> varve_memcached_code,
    /// Tells who looks after the server what no client waits for.
    pub warn: unsafe extern "C" fn(context: *mut c_void, text: *const c_char),
    /// About how many rows there are in all containers.
    pub count: unsafe extern "C" fn(context: *mut c_void) -> u64,
}

/// How a varve_memcached listens and works. Zeros and null pointers are what the library takes by itself.
#[repr(C)]
pub struct varve_memcached_options {
    /// An IP address, one of version 6 in brackets; a loopback address, unless there are a certificate, and
    /// accounts or authorities.
    pub host: *const c_char,
    /// 0: it does not listen there, unless the letters say so.
    pub port: u16,
    /// The path of a Unix socket.
    pub socket: *const c_char,
    /// Threads that read.
    pub threads: usize,
    /// Threads that change.
    pub change_threads: usize,
    pub connections: usize,
    pub value_bytes: usize,
    /// Changes in one transaction.
    pub batch: usize,
    /// Reads in one view; 0: as many as come together.
    pub read_batch: usize,
    /// So much memory have items, if a policy needs any.
    pub cache_bytes: usize,
    /// A file with a line `user:password` for each client; null: nobody is asked.
    pub accounts: *const c_char,
    /// PEM files: the server's certificate, its key, and authorities of whom clients need a certificate. With
    /// the first two connections by TCP are encrypted.
    pub certificate: *const c_char,
    pub key: *const c_char,
    pub authorities: *const c_char,
    /// Letters of memcached's command line, which change all these.
    pub letters: *const c_char,
    pub idle_seconds: u64,
    /// How often what is over is deleted; 0: never.
    pub sweep_seconds: u64,
}

/// A server that runs.
pub struct varve_memcached {
    server: Memcached,
    place: CString,
}

/// Starts a server for clients of memcached, whose items are the rows of `store`. VARVE_INVALID for options
/// that can't be used, VARVE_IO if the port or the socket is taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_memcached_start(
    store: *const varve_memcached_store,
    options: *const varve_memcached_options,
    out: *mut *mut varve_memcached,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (store, options) = unsafe { (*store, &*options) };
    guard_without_database(|| {
        let mut given = MemcachedOptions {
            address: None,
            ..MemcachedOptions::default()
        };
        let text_of = |said: *const c_char, name| match said.is_null() {
            true => Ok(None),
            // SAFETY: CAPI-2.
            false => unsafe { text(said, name) }.map(Some),
        };
        let host = text_of(options.host, "host")?.unwrap_or("127.0.0.1");
        given.address = (options.port != 0).then(|| format!("{host}:{}", options.port));
        given.socket = text_of(options.socket, "socket")?.map(Into::into);
        given.accounts = text_of(options.accounts, "accounts")?.map(Into::into);
        let certificate = text_of(options.certificate, "certificate")?;
        let key = text_of(options.key, "key")?;
        let authorities = text_of(options.authorities, "authorities")?.map(PathBuf::from);
        given.tls = match (certificate, key, authorities) {
            (Some(certificate), Some(key), authorities) => Some(TlsFiles {
                certificate: certificate.into(),
                key: key.into(),
                authorities,
            }),
            (None, None, None) => None,
            _ => return Err(Error::invalid("TLS needs both a certificate and a key")),
        };
        given.read_batch = NonZeroUsize::new(options.read_batch);
        for (said, to) in [
            (options.threads, &mut given.threads),
            (options.change_threads, &mut given.change_threads),
            (options.connections, &mut given.connections),
            (options.value_bytes, &mut given.value_bytes),
            (options.batch, &mut given.batch),
            (options.cache_bytes, &mut given.cache_bytes),
        ] {
            if said != 0 {
                *to = said;
            }
        }
        let seconds = |said: u64| (said != 0).then(|| Duration::from_secs(said));
        given.idle_time = seconds(options.idle_seconds);
        given.sweep_time = seconds(options.sweep_seconds);
        if let Some(letters) = text_of(options.letters, "letters")? {
            given.set_by_letters(letters, host)?;
        }
        // Memory is divided by what they say.
        given.validate()?;
        // SAFETY: CAPI-2.
        let rows = unsafe { Rows::new(store, &given) }?;
        let server = Memcached::start_on(rows, given)?;
        let place = c_text(&server.place());
        let server = Box::new(varve_memcached { server, place });
        // SAFETY: CAPI-2.
        unsafe { out.write(Box::into_raw(server)) };
        Ok(VARVE_OK)
    })
}

/// A cas for a row that has no column for one: another one when the row's values are others.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_memcached_fingerprint(item: *const varve_memcached_item) -> u64 {
    // SAFETY: CAPI-2.
    let item = unsafe { &*item };
    let value = match item.value_bytes {
        0 => &[],
        // SAFETY: CAPI-2.
        bytes => unsafe { std::slice::from_raw_parts(item.value, bytes) },
    };
    let mut hasher = DefaultHasher::new();
    (value, item.flags, item.expires, item.marks).hash(&mut hasher);
    // 0 says that a client asks for none.
    hasher.finish().max(1)
}

/// Hands what it has counted to `each`, by memcached's names. Zeros if it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_memcached_status(
    server: *const varve_memcached,
    each: varve_counter_fn,
    context: *mut c_void,
) {
    // SAFETY: CAPI-2.
    let counts = match unsafe { server.as_ref() } {
        Some(running) => running.server.counts(),
        None => Memcached::no_counts(),
    };
    for (name, value) in counts {
        let name = c_text(name);
        // SAFETY: CAPI-2; the name outlives the call.
        unsafe { each(context, name.as_ptr(), value) };
    }
}

/// Where it listens, for people. Valid until it is stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_memcached_place(server: *const varve_memcached) -> *const c_char {
    // SAFETY: CAPI-2.
    unsafe { &*server }.place.as_ptr()
}

/// The port that it listens on; 0: on none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_memcached_port(server: *const varve_memcached) -> u16 {
    // SAFETY: CAPI-2.
    let address = unsafe { &*server }.server.address();
    address.map_or(0, |address| address.port())
}

/// Stops it, once the batches that are being done are done. Nothing of it is left when this returns: all
/// sessions are closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_memcached_stop(server: *mut varve_memcached) {
    // SAFETY: CAPI-2; the box came from varve_memcached_start.
    let server = unsafe { Box::from_raw(server) };
    server.server.stop();
}
