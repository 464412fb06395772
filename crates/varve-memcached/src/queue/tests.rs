//! Changes of several connections at the same time, on a store that takes transactions apart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Barrier, Condvar};

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::*;
use crate::item::{Item, ItemRef, now};
use crate::items::{Effect, Goes, Place, Wait};
use crate::protocol::{Ask, Limits, Protocol, Standing, Step, parse};

/// Items by container and key.
type Rows = BTreeMap<(usize, Vec<u8>), Item>;

/// A key `@1.k` is that of `k` in container 1, from then on. `locked` can't be had at once, `bad` can't be
/// put, and who looks for `hold` tells so, and waits. What a transaction has put others see when it commits,
/// and until then wait for: the next maker begins before.
struct Fake {
    rows: Mutex<Rows>,
    /// Rows that were put and are not committed.
    held: Mutex<BTreeSet<(usize, Vec<u8>)>>,
    released: Condvar,
    entered: Barrier,
    goes_on: Barrier,
    /// Transactions that were begun: whether they wait for locks.
    begun: Mutex<Vec<bool>>,
}

#[derive(Default)]
struct Session {
    container: usize,
    begun_in: usize,
    trx: Option<Trx>,
    key: Vec<u8>,
}

impl Session {
    fn named<'k>(&mut self, key: &'k [u8]) -> &'k [u8] {
        match key {
            [b'@', container, b'.', key @ ..] => {
                self.container = usize::from(container - b'0');
                key
            }
            key => key,
        }
    }
}

struct Trx {
    waits: bool,
    puts: Rows,
    found: Option<Item>,
}

impl Fake {
    fn release(&self, trx: &Trx) {
        let mut held = self.held.lock().unwrap();
        held.retain(|row| !trx.puts.contains_key(row));
        self.released.notify_all();
    }
}

impl Items for Fake {
    type Session = Session;
    type Committed = ();

    fn session(&self) -> Result<Session, Refusal> {
        Ok(Session::default())
    }

    fn read<R>(
        &self,
        _session: &mut Session,
        _key: &[u8],
        _wait: Wait,
        _see: impl FnOnce(Option<ItemRef<'_>>) -> R,
    ) -> Result<R, Refusal> {
        unreachable!("nobody reads")
    }

    fn end_reads(&self, _session: &mut Session) {}

    fn begin(
        &self,
        session: &mut Session,
        _place: Place,
        patience: Option<Duration>,
    ) -> Result<(), Refusal> {
        self.begun.lock().unwrap().push(patience.is_some());
        session.begun_in = session.container;
        let trx = Trx {
            waits: patience.is_some(),
            puts: Rows::new(),
            found: None,
        };
        assert!(session.trx.replace(trx).is_none());
        Ok(())
    }

    fn hand_over(&self, from: &mut Session, to: &mut Session) {
        to.begun_in = to.container;
        assert!(to.trx.is_none());
        to.trx = from.trx.take();
    }

    fn find<'s>(
        &self,
        session: &'s mut Session,
        key: &[u8],
        _effect: Effect,
    ) -> Result<Option<ItemRef<'s>>, Refusal> {
        if key == b"hold" {
            self.entered.wait();
            self.goes_on.wait();
        }
        let trx = session.trx.as_ref().expect("it was handed over");
        if key == b"locked" && !trx.waits {
            return Err(Refusal::Busy);
        }
        let key = session.named(key);
        session.key = key.to_vec();
        let row = (session.container, key.to_vec());
        let trx = session.trx.as_mut().expect("it was handed over");
        let own = trx.puts.get(&row).cloned();
        if own.is_none() {
            let held = self.held.lock().unwrap();
            drop(self.released.wait_while(held, |held| held.contains(&row)));
        }
        trx.found = own.or_else(|| self.rows.lock().unwrap().get(&row).cloned());
        Ok(trx.found.as_ref().map(Item::by_ref))
    }

    fn put(&self, session: &mut Session, _key: &[u8], item: &mut Item) -> Result<(), Refusal> {
        if session.key == b"bad" {
            return Err(Refusal::Because("it is bad".into()));
        }
        let row = (session.container, session.key.clone());
        let trx = session.trx.as_mut().expect("it was handed over");
        self.held.lock().unwrap().insert(row.clone());
        trx.puts.insert(row, item.clone());
        Ok(())
    }

    fn remove(&self, _session: &mut Session) -> Result<(), Refusal> {
        unreachable!("nobody deletes")
    }

    fn commit(&self, session: &mut Session) -> Result<(), Refusal> {
        let trx = session.trx.take().expect("it was handed over");
        self.rows.lock().unwrap().extend(trx.puts.clone());
        self.release(&trx);
        Ok(())
    }

    fn roll_back(&self, session: &mut Session) {
        if let Some(trx) = session.trx.take() {
            self.release(&trx);
        }
        session.container = session.begun_in;
    }

    fn durable(&self, _committed: ()) -> Option<Durable> {
        None
    }

    fn choose(&self, session: &mut Session, key: &[u8]) {
        session.named(key);
    }

    fn container(&self, session: &Session) -> usize {
        session.container
    }

    fn delete(&self, _which: Goes) -> Result<u64, Refusal> {
        unreachable!("nobody flushes")
    }

    fn warn(&self, what: &str) {
        panic!("{what}");
    }

    fn count(&self) -> u64 {
        0
    }

    fn most_value_bytes(&self) -> usize {
        1024
    }
}

/// As many threads as are asked for, and room for those who wait on purpose.
struct Server {
    /// Until it is dropped.
    runtime: Option<Runtime>,
    shared: Arc<Shared<Fake>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that has failed does not wait for those that it holds.
        if std::thread::panicking()
            && let Some(runtime) = self.runtime.take()
        {
            runtime.shutdown_background();
        }
    }
}

type Told = JoinHandle<Work<Session>>;

impl Server {
    fn new(change_threads: usize, batch: usize, held: usize) -> Server {
        let items = Fake {
            rows: Mutex::default(),
            held: Mutex::default(),
            released: Condvar::new(),
            entered: Barrier::new(2),
            goes_on: Barrier::new(held + 1),
            begun: Mutex::default(),
        };
        let settings = Settings {
            connections: 1,
            threads: 1,
            change_threads,
            batch,
            idle_time: None,
            send_time: Duration::from_secs(60),
            sweep_time: None,
            read_batch: None,
            accounts: None,
            tls: None,
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        Server {
            runtime: Some(runtime.unwrap()),
            shared: Arc::new(Shared::new(items, settings)),
        }
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is not dropped")
    }

    /// A client that is in this container sends this.
    fn send(&self, container: usize, text: &str) -> Told {
        let limits = Limits {
            value_bytes: 1024,
            standing: Standing::NotAsked,
        };
        let (mut text, mut batch) = (text.as_bytes(), Vec::new());
        while !text.is_empty() {
            match parse(Protocol::Text, text, now(), limits) {
                Step::Use(used, Ask::Change(changes)) => {
                    batch.extend(changes);
                    text = &text[used..];
                }
                _ => panic!("a change"),
            }
        }
        let session = Box::new(Session {
            container,
            ..Session::default()
        });
        let work = Work::new(&self.shared.items, session, batch);
        let shared = self.shared.clone();
        self.runtime().spawn(async move {
            let (work, waited) = Queue::make(&shared, work).await.unwrap();
            waited.unwrap();
            work
        })
    }

    fn hold(&self) -> Told {
        let told = self.send(0, "set hold 0 0 1\r\nx\r\n");
        self.shared.items.entered.wait();
        told
    }

    fn answers(&self, told: Told) -> String {
        let told = self
            .runtime()
            .block_on(async { timeout(Duration::from_secs(60), told).await });
        let work = told.expect("MC-11: it is made").unwrap();
        String::from_utf8(work.out.to_vec()).unwrap()
    }

    /// What these were answered, which are sent while the only maker has something to do; and whether
    /// transactions, from theirs on, wait for locks.
    fn together(&self, texts: &[(usize, &str)]) -> (Vec<String>, Vec<bool>) {
        let hold = self.hold();
        let mut told = Vec::new();
        for (container, text) in texts {
            told.push(self.send(*container, text));
            self.wait_for(told.len());
        }
        self.shared.items.begun.lock().unwrap().clear();
        self.shared.items.goes_on.wait();
        let answers = told.into_iter().map(|told| self.answers(told)).collect();
        assert_eq!(self.answers(hold), "STORED\r\n");
        let begun = self.shared.items.begun.lock().unwrap().clone();
        (answers, begun)
    }

    /// Waits until so many are in the queue.
    fn wait_for(&self, jobs: usize) {
        self.runtime().block_on(async {
            while self.shared.queue.lock().new.jobs.len() < jobs {
                sleep(Duration::from_millis(1)).await;
            }
        });
    }

    fn has(&self, container: usize, key: &str) -> bool {
        let row = (container, key.as_bytes().to_vec());
        self.shared.items.rows.lock().unwrap().contains_key(&row)
    }
}

const SET_A: &str = "set a 0 0 1\r\n1\r\n";
const SET_LOCKED: &str = "set locked 0 0 1\r\nx\r\n";
const SET_BAD: &str = "set bad 0 0 1\r\nx\r\n";
const BAD: &str = "SERVER_ERROR it is bad\r\n";

/// MC-11: what comes while others' changes are made is made, in one transaction, up to so many changes.
#[test]
fn changes_of_several_clients_are_one_transaction() {
    let texts = [
        (0, SET_A),
        (0, "incr a 1\r\nincr a 1\r\n"),
        (0, "incr a 1\r\n"),
        (0, "incr none 1\r\n"),
    ];
    let told = ["STORED\r\n", "2\r\n3\r\n", "4\r\n", "NOT_FOUND\r\n"];
    for (batch, transactions) in [(32, 1), (5, 1), (4, 2), (3, 2), (2, 3), (1, 4)] {
        let server = Server::new(1, batch, 1);
        let (answers, waits) = server.together(&texts);
        assert_eq!(answers, told, "{batch}");
        assert_eq!(waits, vec![false; transactions], "{batch}");
    }
}

/// MC-6: who would have to wait for a lock does so by himself, and who can't be served spoils nothing.
#[test]
fn each_client_is_answered_for_himself() {
    let server = || Server::new(1, 32, 1);
    let both = format!("{SET_A}{SET_LOCKED}");
    for (texts, told, transactions) in [
        (vec![SET_LOCKED, SET_A], vec!["STORED\r\n"; 2], 2),
        // The first one has the transaction when the other one is left out.
        (vec![SET_A, SET_LOCKED], vec!["STORED\r\n"; 2], 2),
        (vec![SET_LOCKED; 3], vec!["STORED\r\n"; 3], 4),
        // What it has begun with is not locked: it is all done again.
        (
            vec![&both, SET_A],
            vec!["STORED\r\nSTORED\r\n", "STORED\r\n"],
            3,
        ),
        (vec![SET_BAD, SET_A], vec![BAD, "STORED\r\n"], 2),
        (
            vec![SET_A, SET_BAD, SET_A],
            vec!["STORED\r\n", BAD, "STORED\r\n"],
            // Somebody else had changed something before, whose fault it might have been.
            3,
        ),
        // More than so many times it is not tried together.
        (
            vec![SET_BAD, SET_BAD, SET_BAD, SET_A, SET_A],
            vec![BAD, BAD, BAD, "STORED\r\n", "STORED\r\n"],
            5,
        ),
    ] {
        let server = server();
        let all: Vec<_> = texts.iter().map(|text| (0, *text)).collect();
        let (answers, waits) = server.together(&all);
        assert_eq!(answers, told, "{texts:?}");
        assert_eq!(waits.len(), transactions, "{texts:?}: {waits:?}");
        assert_eq!(
            server.has(0, "a"),
            texts.iter().any(|text| text.contains("set a"))
        );
        assert!(!server.has(0, "bad"));
    }
}

/// Nothing is left of a transaction that is rolled back, nor of the containers that were chosen in it.
#[test]
fn who_is_done_again_begins_where_he_was() {
    let server = Server::new(1, 32, 1);
    let (answers, _) = server.together(&[
        (1, "set a 0 0 1\r\n1\r\nset @2.b 0 0 1\r\n1\r\n"),
        (
            3,
            "set c 0 0 1\r\n1\r\nset @4.bad 0 0 1\r\n1\r\nset d 0 0 1\r\n1\r\n",
        ),
        (5, "set e 0 0 1\r\n1\r\n"),
        (6, "set locked 0 0 1\r\n1\r\nset f 0 0 1\r\n1\r\n"),
    ]);
    let told = ["STORED\r\n".repeat(2), format!("STORED\r\n{BAD}STORED\r\n")];
    assert_eq!(answers[..2], told);
    assert_eq!(answers[2..], ["STORED\r\n".into(), "STORED\r\n".repeat(2)]);
    for (container, key) in [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e"), (6, "f")] {
        assert!(server.has(container, key), "{key}");
    }
    assert_eq!(server.shared.items.rows.lock().unwrap().len(), 8);
}

/// MC-11: makers that have their changes for long, as they read pages, don't keep others from theirs.
#[test]
fn makers_who_wait_for_pages_hold_up_no_others() {
    let processors = available_parallelism().unwrap().get();
    let server = Server::new(processors + 1, 32, processors);
    let held: Vec<_> = (0..processors).map(|_| server.hold()).collect();
    let first = server.send(0, SET_A);
    server.wait_for(1);
    std::thread::sleep(2 * LONG);
    let other = server.send(0, SET_A);
    assert_eq!(server.answers(other), "STORED\r\n");
    assert_eq!(server.answers(first), "STORED\r\n");
    assert!(held.iter().all(|held| !held.is_finished()));
    server.shared.items.goes_on.wait();
    for held in held {
        assert_eq!(server.answers(held), "STORED\r\n");
    }
}
