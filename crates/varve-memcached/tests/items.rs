//! A store of another kind than a table: what the server asks of it, and when.

mod common;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use varve_memcached::{
    Durable, Effect, Goes, Item, ItemRef, Items, Memcached, MemcachedOptions, Memory, Place,
    Refusal, Wait,
};

/// Items in memory. Batches are not taken back, and see each other.
#[derive(Default)]
struct Map {
    items: Mutex<BTreeMap<Vec<u8>, Item>>,
    /// Views that had reads in them.
    views: Arc<AtomicUsize>,
    /// Puts are made in memory, and deletes in a table.
    puts_in_memory: Option<Arc<Mutex<Log>>>,
    /// All is in memory, and the first sweep of tables waits twice.
    sweep: Option<Mutex<Option<Arc<Barrier>>>>,
}

/// What was asked of a store that has two places.
#[derive(Default)]
struct Log {
    begun: Vec<Place>,
    /// So many changes find something else than they have seen.
    others: usize,
}

impl Map {
    fn change(&self) -> Result<(), Refusal> {
        let Some(log) = &self.puts_in_memory else {
            return Ok(());
        };
        let mut log = log.lock().unwrap();
        let is_other = log.others > 0;
        log.others -= usize::from(is_other);
        match is_other {
            true => Err(Refusal::Made),
            false => Ok(()),
        }
    }
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

    fn place(&self, effect: Effect) -> Place {
        match (&self.puts_in_memory, effect) {
            (Some(_), Effect::Put) => Place::Memory,
            _ => Place::Table,
        }
    }

    fn begin(
        &self,
        _session: &mut Session,
        place: Place,
        _patience: Option<Duration>,
    ) -> Result<(), Refusal> {
        if let Some(log) = &self.puts_in_memory {
            log.lock().unwrap().begun.push(place);
        }
        Ok(())
    }

    fn hand_over(&self, _from: &mut Session, _to: &mut Session) {}

    fn find<'s>(
        &self,
        session: &'s mut Session,
        key: &[u8],
        _effect: Effect,
    ) -> Result<Option<ItemRef<'s>>, Refusal> {
        session.key = key.to_vec();
        session.item = self.items.lock().unwrap().get(key).cloned();
        Ok(session.item.as_ref().map(Item::by_ref))
    }

    fn put(&self, _session: &mut Session, key: &[u8], item: &mut Item) -> Result<(), Refusal> {
        self.change()?;
        self.items
            .lock()
            .unwrap()
            .insert(key.to_vec(), item.clone());
        Ok(())
    }

    fn remove(&self, session: &mut Session) -> Result<(), Refusal> {
        self.change()?;
        if session.key == b"kept" {
            return Err(Refusal::Because("it is kept".into()));
        }
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

    fn memory(&self) -> Option<Memory> {
        self.sweep.as_ref().map(|_| Memory {
            used: 1 << 10,
            most: 1 << 20,
        })
    }

    fn flush_place(&self) -> Place {
        self.sweep.as_ref().map_or(Place::Table, |_| Place::Memory)
    }

    fn delete(&self, which: Goes) -> Result<u64, Refusal> {
        if let (Goes::Over(_), Some(sweep)) = (which, &self.sweep) {
            let waits = sweep.lock().unwrap().take();
            if let Some(waits) = waits {
                waits.wait();
                waits.wait();
            }
            return Ok(0);
        }
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

/// Changes in memory are made by themselves, and once, also if those in tables beside them are done again.
#[test]
fn changes_in_memory_are_batches_of_their_own() {
    use Place::{Memory, Table};
    let log = Arc::new(Mutex::new(Log::default()));
    let items = Map {
        puts_in_memory: Some(log.clone()),
        ..Map::default()
    };
    let server = Memcached::start_on(items, MemcachedOptions::default()).unwrap();
    let text = b"set n 0 0 1\r\n0\r\nset kept 0 0 1\r\nx\r\nincr n 1\r\ndelete none\r\ndelete kept\r\nincr n 1\r\nincr kept 1\r\n";
    let told = "STORED\r\nSTORED\r\n1\r\nNOT_FOUND\r\nSERVER_ERROR it is kept\r\n2\r\n\
                CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    let answers = common::ask(&server, text);
    assert_eq!(String::from_utf8_lossy(&answers), told);
    let begun = std::mem::take(&mut log.lock().unwrap().begun);
    // The table's batch, and its two once more (MC-6).
    let wanted = [Memory, Memory, Memory, Table, Table, Table, Memory, Memory];
    assert_eq!(begun, wanted);
    // Who finds something else than he has seen looks once more.
    log.lock().unwrap().others = 3;
    assert_eq!(common::ask(&server, b"incr n 1\r\n"), b"3\r\n");
    log.lock().unwrap().others = 3;
    assert_eq!(common::ask(&server, b"delete n\r\n"), b"DELETED\r\n");
    assert_eq!(log.lock().unwrap().others, 0);
    log.lock().unwrap().others = 1000;
    let told = common::ask(&server, b"set n 0 0 1\r\n0\r\n");
    assert_eq!(
        String::from_utf8_lossy(&told),
        "SERVER_ERROR somebody else makes the item again and again\r\n"
    );
}

/// Who flushes memory waits for nobody who deletes rows.
#[test]
fn a_flush_of_memory_waits_for_no_sweep() {
    let waits = Arc::new(Barrier::new(2));
    let items = Map {
        sweep: Some(Mutex::new(Some(waits.clone()))),
        ..Map::default()
    };
    let options = MemcachedOptions {
        sweep_time: Some(Duration::from_secs(1)),
        ..MemcachedOptions::default()
    };
    let server = Memcached::start_on(items, options).unwrap();
    waits.wait();
    let flushed = common::ask(&server, b"set a 0 0 1\r\nx\r\nflush_all\r\nget a\r\n");
    assert_eq!(String::from_utf8_lossy(&flushed), "STORED\r\nOK\r\nEND\r\n");
    waits.wait();
    let settings = common::ask(&server, b"stats settings\r\n");
    let settings = String::from_utf8_lossy(&settings);
    assert!(settings.contains("STAT maxbytes 1048576\r\n"), "{settings}");
    let stats = common::ask(&server, b"stats\r\n");
    let stats = String::from_utf8_lossy(&stats);
    let memory = "STAT bytes 1024\r\nSTAT limit_maxbytes 1048576\r\n";
    assert!(stats.contains(memory), "{stats}");
}
