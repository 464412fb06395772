//! The memcached protocol on rows that the caller finds and changes: a server's tables, say.
//!
//! A caller's session is one place where a batch of requests is done. Sessions are made as they are needed,
//! and kept for the next batch, whichever connection sends it: a connection that is idle has none.

use std::ffi::{CStr, CString, c_char, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ::varve::Error;
use ::varve_memcached::{
    Durable, Goes, Item, ItemRef, Items, Memcached, MemcachedOptions, Refusal, TlsFiles, Wait,
};

use crate::collation::{c_text, text};
use crate::error::guard_without_database;
use crate::error::varve_code::{self, VARVE_OK};
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
use varve_memcached_code::{
    VARVE_MEMCACHED_BUSY, VARVE_MEMCACHED_FAILED, VARVE_MEMCACHED_KILLED, VARVE_MEMCACHED_MADE,
    VARVE_MEMCACHED_NO_ROW, VARVE_MEMCACHED_OK,
};

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
    /// What clients may not do: read items, put them, delete them, and all at once.
    pub no_gets: bool,
    pub no_sets: bool,
    pub no_deletes: bool,
    pub no_flushes: bool,
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
    /// Each find waits for so many seconds at most for somebody who has locked a row.
    pub begin:
        unsafe extern "C" fn(session: *mut c_void, wait_seconds: u64) -> varve_memcached_code,
    /// Changes the row that was looked for last, or makes it. `cas` may become another one.
    pub put: unsafe extern "C" fn(
        session: *mut c_void,
        item: *mut varve_memcached_item,
    ) -> varve_memcached_code,
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

/// A caller's rows.
struct Rows {
    store: varve_memcached_store,
    containers: Vec<Container>,
    delimiter: Vec<u8>,
    value_bytes: usize,
    /// Sessions that nobody uses: the last one that was used is the next one.
    idle: Mutex<Vec<Session>>,
}

struct Container {
    name: Vec<u8>,
    table: Vec<u8>,
}

// SAFETY: the caller promises that its functions may be called by any thread with this context.
unsafe impl Send for Rows {}
// SAFETY: as above.
unsafe impl Sync for Rows {}

/// A session of the caller's.
struct Session(*mut c_void, unsafe extern "C" fn(session: *mut c_void));

// SAFETY: the caller promises that any thread may use it, one at a time.
unsafe impl Send for Session {}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: CAPI-2; it came from `open`, and nobody has it any more.
        unsafe { (self.1)(self.0) }
    }
}

/// What a connection keeps.
struct Connected {
    container: usize,
    /// Where the batch has begun: what is done again begins there.
    begun_in: usize,
    session: Option<Session>,
}

/// Sessions that are kept although nobody uses them.
const MOST_IDLE: usize = 64;

impl Rows {
    /// # Safety
    ///
    /// The store's texts are valid.
    unsafe fn new(store: varve_memcached_store, value_bytes: usize) -> Rows {
        // SAFETY: the caller's promise.
        let list = |texts| unsafe { list(texts) };
        let pairs = list(store.containers).into_iter().zip(list(store.tables));
        // SAFETY: the caller's promise.
        let delimiter = unsafe { CStr::from_ptr(store.delimiter) };
        Rows {
            containers: pairs
                .map(|(name, table)| Container { name, table })
                .collect(),
            delimiter: delimiter.to_bytes().to_vec(),
            store,
            value_bytes,
            idle: Mutex::default(),
        }
    }

    /// The row's key in what a client says, after a change of container if that names one. `None`: it names
    /// a container, and nothing else.
    fn named<'k>(
        &self,
        connected: &mut Connected,
        key: &'k [u8],
    ) -> Result<Option<&'k [u8]>, Refusal> {
        let Some(named) = key.strip_prefix(b"@@") else {
            return Ok(Some(key));
        };
        let delimiter = &self.delimiter[..];
        let end = match delimiter.is_empty() {
            true => None,
            false => named
                .windows(delimiter.len())
                .position(|at| at == delimiter),
        };
        let name = &named[..end.unwrap_or(named.len())];
        let found = self.containers.iter().position(|is| is.name == name);
        connected.container = found.ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            Refusal::Because(format!("there is no container '{name}'"))
        })?;
        Ok(end.map(|end| &named[end + delimiter.len()..]))
    }

    fn key<'k>(&self, connected: &mut Connected, key: &'k [u8]) -> Result<&'k [u8], Refusal> {
        self.named(connected, key)?.ok_or_else(|| {
            let key = String::from_utf8_lossy(key);
            Refusal::Because(format!("'{key}' names a container, and no key in it"))
        })
    }

    fn session<'c>(&self, connected: &'c mut Connected) -> Result<&'c Session, Refusal> {
        if connected.session.is_none() {
            let idle = self
                .idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop();
            connected.session = Some(match idle {
                Some(session) => session,
                None => self.open()?,
            });
        }
        Ok(connected.session.as_ref().expect("it is there now"))
    }

    fn open(&self) -> Result<Session, Refusal> {
        // SAFETY: CAPI-2.
        let session = unsafe { (self.store.open)(self.store.context) };
        if session.is_null() {
            let why = "there is no room for another session";
            return Err(Refusal::Because(why.into()));
        }
        Ok(Session(session, self.store.close))
    }

    fn give_back(&self, connected: &mut Connected) {
        let Some(session) = connected.session.take() else {
            return;
        };
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MOST_IDLE {
            idle.push(session);
        }
    }

    fn check(&self, session: &Session, code: varve_memcached_code) -> Result<bool, Refusal> {
        Err(match code {
            VARVE_MEMCACHED_OK => return Ok(true),
            VARVE_MEMCACHED_NO_ROW => return Ok(false),
            VARVE_MEMCACHED_MADE => Refusal::Made,
            VARVE_MEMCACHED_BUSY => Refusal::Busy,
            VARVE_MEMCACHED_FAILED | VARVE_MEMCACHED_KILLED => {
                // SAFETY: CAPI-2.
                let why = unsafe { CStr::from_ptr((self.store.error)(session.0)) };
                let why = why.to_string_lossy().into_owned();
                match code {
                    VARVE_MEMCACHED_KILLED => Refusal::Ended(why),
                    _ => Refusal::Because(why),
                }
            }
        })
    }

    fn find<'s>(
        &self,
        session: &'s Session,
        container: usize,
        key: &[u8],
        how: varve_memcached_find,
    ) -> Result<Option<ItemRef<'s>>, Refusal> {
        let mut out = MaybeUninit::uninit();
        let (at, bytes) = (key.as_ptr(), key.len());
        // SAFETY: CAPI-2.
        let code =
            unsafe { (self.store.find)(session.0, container, at, bytes, how, out.as_mut_ptr()) };
        if !self.check(session, code)? {
            return Ok(None);
        }
        // SAFETY: CAPI-2: it fills in what it says OK about.
        let found: varve_memcached_item = unsafe { out.assume_init() };
        let value = match found.value_bytes {
            0 => &[],
            // SAFETY: CAPI-2: it is there until the session's next call.
            bytes => unsafe { std::slice::from_raw_parts(found.value, bytes) },
        };
        Ok(Some(ItemRef {
            flags: found.flags,
            cas: found.cas,
            expires: found.expires,
            marks: found.marks,
            value,
        }))
    }
}

/// # Safety
///
/// `texts` points to pointers to texts, the last one of which is null.
unsafe fn list(mut texts: *const *const c_char) -> Vec<Vec<u8>> {
    let mut list = Vec::new();
    // SAFETY: the caller's promise.
    unsafe {
        while !(*texts).is_null() {
            list.push(CStr::from_ptr(*texts).to_bytes().to_vec());
            texts = texts.add(1);
        }
    }
    list
}

fn disabled(what: &str) -> Refusal {
    Refusal::Because(format!("the policy of the server disables {what}"))
}

impl Items for Rows {
    type Session = Connected;
    /// A batch is as durable as the caller's settings ask when `commit` returns.
    type Committed = ();

    fn session(&self) -> Result<Connected, Refusal> {
        Ok(Connected {
            container: 0,
            begun_in: 0,
            session: None,
        })
    }

    fn read<R>(
        &self,
        connected: &mut Connected,
        key: &[u8],
        wait: Wait,
        see: impl FnOnce(Option<ItemRef<'_>>) -> R,
    ) -> Result<R, Refusal> {
        self.may_read()?;
        let Some(key) = self.named(connected, key)? else {
            let table = &self.containers[connected.container].table;
            return Ok(see(Some(ItemRef {
                flags: 0,
                cas: 0,
                expires: 0,
                marks: 0,
                value: table,
            })));
        };
        let how = match wait {
            Wait::No => varve_memcached_find::VARVE_MEMCACHED_READ,
            Wait::Yes => varve_memcached_find::VARVE_MEMCACHED_READ_WAITING,
        };
        let container = connected.container;
        let session = self.session(connected)?;
        Ok(see(self.find(session, container, key, how)?))
    }

    fn end_reads(&self, connected: &mut Connected) {
        if let Some(session) = &connected.session {
            // SAFETY: CAPI-2.
            unsafe { (self.store.end_reads)(session.0) };
        }
        self.give_back(connected);
    }

    fn begin(&self, connected: &mut Connected, patience: Duration) -> Result<(), Refusal> {
        connected.begun_in = connected.container;
        let session = self.session(connected)?;
        let seconds = patience.as_millis().div_ceil(1000) as u64;
        // SAFETY: CAPI-2.
        let code = unsafe { (self.store.begin)(session.0, seconds) };
        self.check(session, code).map(drop)
    }

    fn find<'s>(
        &self,
        connected: &'s mut Connected,
        key: &[u8],
    ) -> Result<Option<ItemRef<'s>>, Refusal> {
        let key = self.key(connected, key)?;
        let container = connected.container;
        let session = self.session(connected)?;
        let how = varve_memcached_find::VARVE_MEMCACHED_CHANGE;
        Rows::find(self, session, container, key, how)
    }

    fn put(&self, connected: &mut Connected, _key: &[u8], item: &mut Item) -> Result<(), Refusal> {
        if self.store.no_sets {
            return Err(disabled("sets"));
        }
        let session = self.session(connected)?;
        let mut put = varve_memcached_item {
            value: item.value.as_ptr(),
            value_bytes: item.value.len(),
            cas: item.cas,
            flags: item.flags,
            expires: item.expires,
            marks: item.marks,
        };
        // SAFETY: CAPI-2.
        let code = unsafe { (self.store.put)(session.0, &raw mut put) };
        self.check(session, code)?;
        item.cas = put.cas;
        Ok(())
    }

    fn remove(&self, connected: &mut Connected) -> Result<(), Refusal> {
        if self.store.no_deletes {
            return Err(disabled("deletes"));
        }
        let session = self.session(connected)?;
        // SAFETY: CAPI-2.
        let code = unsafe { (self.store.remove)(session.0) };
        self.check(session, code).map(drop)
    }

    fn commit(&self, connected: &mut Connected) -> Result<(), Refusal> {
        let session = self.session(connected)?;
        // SAFETY: CAPI-2.
        let code = unsafe { (self.store.commit)(session.0) };
        self.check(session, code)?;
        self.give_back(connected);
        Ok(())
    }

    fn roll_back(&self, connected: &mut Connected) {
        if let Some(session) = &connected.session {
            // SAFETY: CAPI-2.
            unsafe { (self.store.roll_back)(session.0) };
        }
        connected.container = connected.begun_in;
        self.give_back(connected);
    }

    fn durable(&self, _committed: ()) -> Option<Durable> {
        None
    }

    fn choose(&self, connected: &mut Connected, key: &[u8]) {
        // One that there is not has been told.
        let _ = self.named(connected, key);
    }

    fn may_read(&self) -> Result<(), Refusal> {
        match self.store.no_gets {
            true => Err(disabled("gets")),
            false => Ok(()),
        }
    }

    fn may_flush(&self) -> Result<(), Refusal> {
        match self.store.no_flushes {
            true => Err(disabled("flush_all")),
            false => Ok(()),
        }
    }

    fn container(&self, connected: &Connected) -> usize {
        connected.container
    }

    fn delete(&self, which: Goes) -> Result<u64, Refusal> {
        let session = self.open()?;
        let (mut deleted, mut failed) = (0, None);
        let (containers, before) = match which {
            Goes::All(container) => (container..container + 1, 0),
            Goes::Over(now) => (0..self.containers.len(), now),
        };
        for container in containers {
            // SAFETY: CAPI-2.
            let code =
                unsafe { (self.store.clear)(session.0, container, before, &raw mut deleted) };
            // The others can be swept nevertheless.
            failed = failed.or(self.check(&session, code).err());
        }
        failed.map_or(Ok(deleted), Err)
    }

    fn warn(&self, what: &str) {
        let text = c_text(what);
        // SAFETY: CAPI-2; the text outlives the call.
        unsafe { (self.store.warn)(self.store.context, text.as_ptr()) }
    }

    fn count(&self) -> u64 {
        // SAFETY: CAPI-2.
        unsafe { (self.store.count)(self.store.context) }
    }

    fn most_value_bytes(&self) -> usize {
        self.value_bytes
    }
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
        // SAFETY: CAPI-2.
        let rows = unsafe { Rows::new(store, given.value_bytes) };
        if rows.containers.is_empty() {
            return Err(Error::invalid("there is no container"));
        }
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
