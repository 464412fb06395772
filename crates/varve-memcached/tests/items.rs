//! A store of another kind than a table: what the server asks of it, and when.

mod common;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use varve_memcached::{
    Durable, Goes, Item, ItemRef, Items, Memcached, MemcachedOptions, Refusal, Wait,
};

/// Items in memory. Batches are not taken back, and see each other.
#[derive(Default)]
struct Map {
    items: Mutex<BTreeMap<Vec<u8>, Item>>,
    /// Views that had reads in them.
    views: Arc<AtomicUsize>,
}

/// Of a connection: reads in the view that it has, and the item that was found last.
#[derive(Default)]
struct Session {
    reads: usize,
    key: Vec<u8>,
    item: Option<Item>,
}

impl Items for Map {
    type Session = Session;
    type Committed = ();

    fn session(&self) -> Result<Session, Refusal> {
        Ok(Session::default())
    }

    fn read<R>(
        &self,
        session: &mut Session,
        key: &[u8],
        _wait: Wait,
        see: impl FnOnce(Option<ItemRef<'_>>) -> R,
    ) -> Result<R, Refusal> {
        session.reads += 1;
        Ok(see(self.items.lock().unwrap().get(key).map(Item::by_ref)))
    }

    fn end_reads(&self, session: &mut Session) {
        if std::mem::take(&mut session.reads) > 0 {
            self.views.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn begin(&self, _session: &mut Session, _patience: Duration) -> Result<(), Refusal> {
        Ok(())
    }

    fn find<'s>(
        &self,
        session: &'s mut Session,
        key: &[u8],
    ) -> Result<Option<ItemRef<'s>>, Refusal> {
        session.key = key.to_vec();
        session.item = self.items.lock().unwrap().get(key).cloned();
        Ok(session.item.as_ref().map(Item::by_ref))
    }

    fn put(&self, _session: &mut Session, key: &[u8], item: &mut Item) -> Result<(), Refusal> {
        self.items
            .lock()
            .unwrap()
            .insert(key.to_vec(), item.clone());
        Ok(())
    }

    fn remove(&self, session: &mut Session) -> Result<(), Refusal> {
        self.items.lock().unwrap().remove(&session.key);
        Ok(())
    }

    fn commit(&self, _session: &mut Session) -> Result<(), Refusal> {
        Ok(())
    }

    fn roll_back(&self, _session: &mut Session) {}

    fn durable(&self, _committed: ()) -> Option<Durable> {
        None
    }

    fn container(&self, _session: &Session) -> usize {
        0
    }

    fn delete(&self, _which: Goes) -> Result<u64, Refusal> {
        let items = std::mem::take(&mut *self.items.lock().unwrap());
        Ok(items.len() as u64)
    }

    fn warn(&self, what: &str) {
        panic!("{what}");
    }

    fn count(&self) -> u64 {
        self.items.lock().unwrap().len() as u64
    }

    fn most_value_bytes(&self) -> usize {
        1024
    }
}

/// Reads that come together see one moment, up to so many.
#[test]
fn reads_are_batches_of_this_length() {
    let text = b"set a 0 0 1\r\n1\r\nget a b a\r\nget a a\r\n";
    let one = "VALUE a 0 1\r\n1\r\n";
    let told = format!("STORED\r\n{one}{one}END\r\n{one}{one}END\r\n");
    for (most, views) in [
        (None, 1),
        (NonZeroUsize::new(2), 3),
        (NonZeroUsize::new(1), 5),
    ] {
        let items = Map::default();
        let seen = items.views.clone();
        let options = MemcachedOptions {
            read_batch: most,
            ..MemcachedOptions::default()
        };
        let server = Memcached::start_on(items, options).unwrap();
        assert_eq!(common::ask(&server, text), told.as_bytes());
        server.stop();
        assert_eq!(seen.load(Ordering::Relaxed), views, "{most:?}");
    }
}
