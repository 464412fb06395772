//! A caller's rows as a store of items, and what is kept of them in memory.
//!
//! A caller's session is one place where a batch of requests is done. Sessions are made as they are needed,
//! and kept for the next batch, whichever connection sends it: a connection that is idle has none, and what
//! is done in memory needs none.
//!
//! Memory has items by containers and keys, as rows have their keys: a row that is found by another text than
//! its key is not kept there, and found in the view that there is, however old that is. What clients change
//! in tables only is forgotten there, if reads look there.

#[cfg(test)]
mod tests;

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::varve::Error;
use ::varve_memcached::{
    Cache, Durable, Effect, Goes, Item, ItemRef, Items, MemcachedOptions, Memory, Moment, Place,
    Refusal, Wait,
};

use crate::collation::c_text;
use crate::memcached::varve_memcached_code::{
    self, VARVE_MEMCACHED_BUSY, VARVE_MEMCACHED_FAILED, VARVE_MEMCACHED_KILLED,
    VARVE_MEMCACHED_MADE, VARVE_MEMCACHED_NO_ROW, VARVE_MEMCACHED_OK,
};
use crate::memcached::varve_memcached_policy::{
    self, VARVE_MEMCACHED_CACHE_ONLY, VARVE_MEMCACHED_CACHING, VARVE_MEMCACHED_DISABLED,
    VARVE_MEMCACHED_TABLE_ONLY,
};
use crate::memcached::{
    varve_memcached_begin, varve_memcached_find, varve_memcached_item, varve_memcached_store,
};

/// A caller's rows.
pub struct Rows {
    store: varve_memcached_store,
    containers: Vec<Container>,
    delimiter: Vec<u8>,
    value_bytes: usize,
    /// `None`: no policy needs any.
    cache: Option<Cache>,
    cache_bytes: usize,
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
pub struct Connected {
    container: usize,
    /// Where the batch has begun: what is done again begins there.
    begun_in: usize,
    session: Option<Session>,
    /// Before the view of the batch of reads was made.
    moment: Option<Moment>,
    /// Where the batch of changes is made.
    place: Place,
    /// What was looked for last, if memory has to know of it.
    seen: Option<Seen>,
    /// What the batch has changed in tables, as far as memory has to know.
    changed: Vec<Changed>,
}

struct Seen {
    /// As the client says it.
    key: Vec<u8>,
    /// In a table: that of the row, if it is another one.
    row_key: Option<Vec<u8>>,
    /// In memory, if it is looked for there.
    item: Option<Arc<Item>>,
    effect: Effect,
}

struct Changed {
    container: usize,
    key: Vec<u8>,
    /// What memory is to have of it.
    item: Option<Item>,
}

/// Sessions that are kept although nobody uses them.
const MOST_IDLE: usize = 64;

impl Rows {
    /// # Errors
    ///
    /// `Invalid` if there is no container.
    ///
    /// # Safety
    ///
    /// The store's texts are valid.
    pub unsafe fn new(
        store: varve_memcached_store,
        options: &MemcachedOptions,
    ) -> ::varve::Result<Rows> {
        // SAFETY: the caller's promise.
        let list = |texts| unsafe { list(texts) };
        let pairs = list(store.containers).into_iter().zip(list(store.tables));
        let containers: Vec<_> = pairs
            .map(|(name, table)| Container { name, table })
            .collect();
        if containers.is_empty() {
            return Err(Error::invalid("there is no container"));
        }
        // SAFETY: the caller's promise.
        let delimiter = unsafe { CStr::from_ptr(store.delimiter) };
        let policies = [store.gets, store.sets, store.deletes, store.flushes];
        let needs = |policy| matches!(policy, VARVE_MEMCACHED_CACHE_ONLY | VARVE_MEMCACHED_CACHING);
        let cache = || Cache::new(options.cache_bytes, options.value_bytes);
        Ok(Rows {
            containers,
            delimiter: delimiter.to_bytes().to_vec(),
            cache: policies.into_iter().any(needs).then(cache),
            store,
            value_bytes: options.value_bytes,
            cache_bytes: options.cache_bytes,
            idle: Mutex::default(),
        })
    }

    /// The memory, where a policy needs it.
    fn cache(&self) -> &Cache {
        self.cache.as_ref().expect("a policy needs it")
    }

    fn policy(&self, effect: Effect) -> varve_memcached_policy {
        match effect {
            Effect::Put => self.store.sets,
            Effect::Delete => self.store.deletes,
        }
    }

    /// Whether memory has to know of looks and changes in a table under this policy.
    fn is_told(&self, policy: varve_memcached_policy) -> bool {
        policy == VARVE_MEMCACHED_CACHING || self.store.gets == VARVE_MEMCACHED_CACHING
    }

    /// Whether a request may come to a table.
    fn uses_tables(&self) -> bool {
        let policies = [
            self.store.gets,
            self.store.sets,
            self.store.deletes,
            self.store.flushes,
        ];
        let uses = |policy| matches!(policy, VARVE_MEMCACHED_TABLE_ONLY | VARVE_MEMCACHED_CACHING);
        policies.into_iter().any(uses)
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

    fn session<'c>(&self, of: &'c mut Option<Session>) -> Result<&'c Session, Refusal> {
        let has = match of.take() {
            None => self.lock_idle().pop(),
            has => has,
        };
        Ok(of.insert(has.map_or_else(|| self.open(), Ok)?))
    }

    fn lock_idle(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut idle = self.lock_idle();
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
        // SAFETY: CAPI-2: it fills in what it says OK about, which is there until the session's next call.
        Ok(Some(unsafe { item_of(out.assume_init_ref()) }))
    }

    /// The key of the row that was found last.
    fn found_key<'s>(&self, session: &'s Session) -> &'s [u8] {
        let (mut key, mut bytes) = (std::ptr::null(), 0);
        // SAFETY: CAPI-2.
        unsafe { (self.store.found_key)(session.0, &raw mut key, &raw mut bytes) };
        // SAFETY: CAPI-2: it is there until the session's next call.
        unsafe { bytes_of(key, bytes) }
    }

    /// What is in the row that was put last.
    fn read_put(&self, session: &Session) -> Item {
        let mut out = MaybeUninit::uninit();
        // SAFETY: CAPI-2: it fills it in, and that is there until the session's next call.
        unsafe {
            (self.store.read_put)(session.0, out.as_mut_ptr());
            item_of(out.assume_init_ref()).to_item()
        }
    }

    /// Reads in the table, and keeps what is there in memory (MC-10).
    fn read_beside<'c>(
        &self,
        connected: &'c mut Connected,
        key: &[u8],
        how: varve_memcached_find,
    ) -> Result<Option<ItemRef<'c>>, Refusal> {
        let (cache, container) = (self.cache(), connected.container);
        if let Some(moment) = connected.moment
            && !cache.is_current(container, key, moment)
        {
            self.end_reads(connected);
        }
        let moment = *connected.moment.get_or_insert_with(|| cache.moment());
        let session = self.session(&mut connected.session)?;
        let found = self.find(session, container, key, how)?;
        if let Some(item) = found
            && self.found_key(session) == key
        {
            cache.fill(container, key, item, moment);
        }
        Ok(found)
    }

    /// Takes away in memory what was seen there, or nothing.
    fn remove_here(&self, connected: &Connected) -> Result<(), Refusal> {
        let seen = connected.seen.as_ref().expect("it was looked for");
        let item = seen.item.as_ref();
        self.cache().remove(connected.container, &seen.key, item)
    }

    /// Memory is to have this of what was looked for in the table.
    fn note(&self, connected: &mut Connected, item: Option<Item>) {
        let Some(seen) = connected.seen.take() else {
            return;
        };
        let container = connected.container;
        let changed = |key, item| Changed {
            container,
            key,
            item,
        };
        let of_row = match seen.row_key {
            None => changed(seen.key, item),
            Some(row_key) => {
                // What is there under this key was a row's that had it once.
                connected.changed.push(changed(seen.key, None));
                changed(row_key, item)
            }
        };
        connected.changed.push(of_row);
    }
}

/// # Safety
///
/// The value is there for so long.
unsafe fn item_of<'s>(item: &varve_memcached_item) -> ItemRef<'s> {
    ItemRef {
        flags: item.flags,
        cas: item.cas,
        expires: item.expires,
        marks: item.marks,
        // SAFETY: the caller's promise.
        value: unsafe { bytes_of(item.value, item.value_bytes) },
    }
}

/// # Safety
///
/// They are there for so long, if there are any.
unsafe fn bytes_of<'s>(at: *const u8, bytes: usize) -> &'s [u8] {
    match bytes {
        0 => &[],
        // SAFETY: the caller's promise.
        bytes => unsafe { std::slice::from_raw_parts(at, bytes) },
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
            moment: None,
            place: Place::Table,
            seen: None,
            changed: Vec::new(),
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
        let container = connected.container;
        if self.store.gets != VARVE_MEMCACHED_TABLE_ONLY {
            let item = self.cache().get(container, key);
            if item.is_some() || self.store.gets == VARVE_MEMCACHED_CACHE_ONLY {
                return Ok(see(item.as_ref().map(|item| item.by_ref())));
            }
        }
        let how = match wait {
            Wait::No => varve_memcached_find::VARVE_MEMCACHED_READ,
            Wait::Yes => varve_memcached_find::VARVE_MEMCACHED_READ_WAITING,
        };
        if self.store.gets == VARVE_MEMCACHED_CACHING {
            return Ok(see(self.read_beside(connected, key, how)?));
        }
        let session = self.session(&mut connected.session)?;
        Ok(see(self.find(session, container, key, how)?))
    }

    fn end_reads(&self, connected: &mut Connected) {
        connected.moment = None;
        if let Some(session) = &connected.session {
            // SAFETY: CAPI-2.
            unsafe { (self.store.end_reads)(session.0) };
        }
        self.give_back(connected);
    }

    fn place(&self, effect: Effect) -> Place {
        match self.policy(effect) {
            VARVE_MEMCACHED_CACHE_ONLY => Place::Memory,
            _ => Place::Table,
        }
    }

    fn begin(
        &self,
        connected: &mut Connected,
        place: Place,
        patience: Option<Duration>,
    ) -> Result<(), Refusal> {
        (connected.begun_in, connected.place) = (connected.container, place);
        if place == Place::Memory {
            return Ok(());
        }
        let session = self.session(&mut connected.session)?;
        let how = match patience {
            None => varve_memcached_begin::VARVE_MEMCACHED_AT_ONCE,
            Some(_) => varve_memcached_begin::VARVE_MEMCACHED_WAITING,
        };
        let seconds = patience.map_or(0, |patience| patience.as_millis().div_ceil(1000) as u64);
        // SAFETY: CAPI-2.
        let code = unsafe { (self.store.begin)(session.0, how, seconds) };
        self.check(session, code).map(drop)
    }

    fn hand_over(&self, from: &mut Connected, to: &mut Connected) {
        self.give_back(to);
        from.seen = None;
        to.session = from.session.take();
        to.changed = std::mem::take(&mut from.changed);
        (to.begun_in, to.place) = (to.container, from.place);
    }

    fn find<'s>(
        &self,
        connected: &'s mut Connected,
        key: &[u8],
        effect: Effect,
    ) -> Result<Option<ItemRef<'s>>, Refusal> {
        let key = self.key(connected, key)?;
        let container = connected.container;
        let here = |item| Seen {
            key: key.to_vec(),
            row_key: None,
            item,
            effect,
        };
        if connected.place == Place::Memory {
            let seen = here(self.cache().get(container, key));
            let seen = connected.seen.insert(seen);
            return Ok(seen.item.as_ref().map(|item| item.by_ref()));
        }
        connected.seen = None;
        let is_told = self.is_told(self.policy(effect));
        // What only memory has is deleted, too. A put makes a row. Memory does not know yet what this batch
        // has changed.
        let is_changed = |one: &Changed| one.container == container && one.key == key;
        let looks_here =
            is_told && effect == Effect::Delete && !connected.changed.iter().any(is_changed);
        let get_here = || {
            looks_here
                .then(|| self.cache().get(container, key))
                .flatten()
        };
        let before = get_here();
        let session = self.session(&mut connected.session)?;
        let how = varve_memcached_find::VARVE_MEMCACHED_CHANGE;
        let found = Rows::find(self, session, container, key, how)?;
        if !is_told {
            return Ok(found);
        }
        if found.is_none() {
            // Nothing keeps others from making the row, and bringing it here, since it was looked for.
            let item = get_here();
            let place = |item: &Option<Arc<Item>>| item.as_ref().map(Arc::as_ptr);
            if item.is_some() && place(&item) != place(&before) {
                return Err(Refusal::Made);
            }
            let seen = connected.seen.insert(here(item));
            return Ok(seen.item.as_ref().map(|item| item.by_ref()));
        }
        let row_key = self.found_key(session);
        connected.seen = Some(Seen {
            row_key: (row_key != key).then(|| row_key.to_vec()),
            ..here(None)
        });
        Ok(found)
    }

    fn put(&self, connected: &mut Connected, _key: &[u8], item: &mut Item) -> Result<(), Refusal> {
        if connected.place == Place::Memory {
            let seen = connected.seen.as_ref().expect("it was looked for");
            let (container, was) = (connected.container, seen.item.as_ref());
            return self.cache().put(container, &seen.key, was, item.clone());
        }
        if self.store.sets == VARVE_MEMCACHED_DISABLED {
            return Err(disabled("sets"));
        }
        let session = self.session(&mut connected.session)?;
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
        let kept = match self.store.sets {
            VARVE_MEMCACHED_CACHING => Some(self.read_put(session)),
            _ => None,
        };
        self.note(connected, kept);
        Ok(())
    }

    fn remove(&self, connected: &mut Connected) -> Result<(), Refusal> {
        if connected.place == Place::Memory {
            return self.remove_here(connected);
        }
        if self.store.deletes == VARVE_MEMCACHED_DISABLED {
            return Err(disabled("deletes"));
        }
        let is_row = (connected.seen.as_ref()).is_none_or(|seen| seen.item.is_none());
        if is_row {
            let session = self.session(&mut connected.session)?;
            // SAFETY: CAPI-2.
            let code = unsafe { (self.store.remove)(session.0) };
            self.check(session, code)?;
        }
        self.note(connected, None);
        Ok(())
    }

    fn keep(&self, connected: &mut Connected) -> Result<(), Refusal> {
        match (connected.place, &connected.seen) {
            // Somebody may be about to bring what he has read.
            (Place::Memory, Some(seen)) if seen.effect == Effect::Delete && seen.item.is_none() => {
                self.remove_here(connected)
            }
            // The answer rests on what memory has.
            (Place::Memory, _) | (Place::Table, Some(Seen { item: Some(_), .. })) => Ok(()),
            (Place::Table, _) => {
                // What the answer rests on may be other than what memory has.
                self.note(connected, None);
                Ok(())
            }
        }
    }

    fn commit(&self, connected: &mut Connected) -> Result<(), Refusal> {
        connected.seen = None;
        if connected.place == Place::Memory {
            return Ok(());
        }
        // MC-10. Those that are dropped when the commit fails end, too.
        let changed = std::mem::take(&mut connected.changed).into_iter();
        let begin = |one: Changed| {
            let changing = self.cache().begin_change(one.container, &one.key);
            (changing, one.item)
        };
        let changing: Vec<_> = changed.map(begin).collect();
        let session = self.session(&mut connected.session)?;
        // SAFETY: CAPI-2.
        let code = unsafe { (self.store.commit)(session.0) };
        self.check(session, code)?;
        for (changing, item) in changing {
            changing.end(item);
        }
        self.give_back(connected);
        Ok(())
    }

    fn roll_back(&self, connected: &mut Connected) {
        connected.seen = None;
        connected.changed.clear();
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
        match self.store.gets {
            VARVE_MEMCACHED_DISABLED => Err(disabled("gets")),
            _ => Ok(()),
        }
    }

    fn may_flush(&self) -> Result<(), Refusal> {
        match self.store.flushes {
            VARVE_MEMCACHED_DISABLED => Err(disabled("flush_all")),
            _ => Ok(()),
        }
    }

    fn container(&self, connected: &Connected) -> usize {
        connected.container
    }

    fn delete(&self, which: Goes) -> Result<u64, Refusal> {
        let (containers, before) = match which {
            Goes::All(container) => (container..container + 1, 0),
            Goes::Over(now) => (0..self.containers.len(), now),
        };
        // MC-10: it is over when this is dropped.
        let mut flushing = None;
        match (which, &self.cache) {
            (Goes::All(container), Some(cache)) => {
                if self.flush_place() == Place::Memory {
                    return Ok(cache.clear(container));
                }
                let is_told = self.is_told(self.store.flushes);
                flushing = is_told.then(|| cache.begin_flush(container));
            }
            (Goes::Over(now), Some(cache)) => cache.sweep(now),
            (_, None) => {}
        }
        if !self.uses_tables() {
            return Ok(0);
        }
        let session = self.open()?;
        let (mut deleted, mut failed) = (0, None);
        for container in containers {
            // SAFETY: CAPI-2.
            let code =
                unsafe { (self.store.clear)(session.0, container, before, &raw mut deleted) };
            // The others can be swept nevertheless.
            failed = failed.or(self.check(&session, code).err());
        }
        drop(flushing);
        failed.map_or(Ok(deleted), Err)
    }

    fn warn(&self, what: &str) {
        let text = c_text(what);
        // SAFETY: CAPI-2; the text outlives the call.
        unsafe { (self.store.warn)(self.store.context, text.as_ptr()) }
    }

    fn memory(&self) -> Option<Memory> {
        self.cache.as_ref().map(|cache| Memory {
            used: cache.bytes(),
            most: self.cache_bytes as u64,
        })
    }

    fn flush_place(&self) -> Place {
        match self.store.flushes {
            VARVE_MEMCACHED_CACHE_ONLY => Place::Memory,
            _ => Place::Table,
        }
    }

    /// Where puts come.
    fn count(&self) -> u64 {
        match self.store.sets {
            VARVE_MEMCACHED_CACHE_ONLY => self.cache().count(),
            // SAFETY: CAPI-2.
            _ => unsafe { (self.store.count)(self.store.context) },
        }
    }

    fn most_value_bytes(&self) -> usize {
        self.value_bytes
    }
}
