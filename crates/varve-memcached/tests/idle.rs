//! Clients that say nothing, thousands of them, beside one that works (MC-4). What broke: each kept the
//! cursor of its last read, and had room for its session many times.
//!
//! Server and clients are one process here, with one test: its memory is measured.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::Server;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use varve_memcached::MemcachedOptions;

/// So many, if the system lets a process have the files: two for each.
const MOST_CLIENTS: usize = 10_000;
/// For the database, the runtime and the test itself.
const OTHER_FILES: u64 = 200;
/// Each gets a value of so many bytes before it falls silent.
const VALUE_BYTES: usize = 32 << 10;
/// What one that is idle may take: its task with the connection, the session, and the place at the runtime.
/// The session alone has 3.5 KiB.
const IDLE_BYTES: usize = 10 << 10;
/// Pages of the buffer pool and the like that are used first meanwhile.
const OTHER_BYTES: usize = 10 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// How many files this process may have open, once it has asked for as many as it may have.
fn open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    limit.maximum.unwrap_or(u64::MAX)
}

/// What this process has in memory.
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

fn ask(stream: &mut TcpStream, question: &str, answer: &[u8]) {
    stream.write_all(question.as_bytes()).unwrap();
    let mut told = vec![0; answer.len()];
    stream.read_exact(&mut told).unwrap();
    assert!(told == answer, "{question}");
}

/// Sets numbers and gets them until it is told to end, and counts them.
fn work(stream: TcpStream, done: &AtomicU64, ends: &AtomicBool) {
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while !ends.load(Ordering::Relaxed) {
        let number = done.load(Ordering::Relaxed).to_string();
        let both = format!("set n 0 0 {}\r\n{number}\r\nget n\r\n", number.len());
        stream.write_all(both.as_bytes()).unwrap();
        let head = format!("VALUE n 0 {}", number.len());
        for expected in ["STORED", &head, &number, "END"] {
            let mut told = String::new();
            answers.read_line(&mut told).unwrap();
            assert_eq!(told.trim_end(), expected);
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn who_says_nothing_takes_little() {
    let clients = (open_files().saturating_sub(OTHER_FILES) / 2) as usize;
    let clients = clients.min(MOST_CLIENTS);
    assert!(
        clients > 1000,
        "the limit of open files has room for {clients} clients"
    );
    let server = Server::with(MemcachedOptions {
        connections: clients + 1,
        ..MemcachedOptions::default()
    });
    let connected = || {
        let counts = server.server.as_ref().unwrap().counts();
        let count = counts.iter().find(|count| count.0 == "curr_connections");
        count.unwrap().1 as usize
    };
    let value = "v".repeat(VALUE_BYTES);
    let answer = format!("VALUE v 0 {VALUE_BYTES}\r\n{value}\r\nEND\r\n").into_bytes();
    let mut busy = server.connect();
    let set = format!("set v 0 0 {VALUE_BYTES}\r\n{value}\r\n");
    ask(&mut busy, &set, b"STORED\r\n");
    let (done, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let goes_on = |what: &str| {
        let before = done.load(Ordering::Relaxed);
        wait_for(what, || done.load(Ordering::Relaxed) >= before + 1000);
    };
    std::thread::scope(|scope| {
        let works = scope.spawn(|| work(busy, &done, &ends));
        // It ends also if this fails.
        let _end = End(&ends);
        let come = || {
            let mut stream = server.connect();
            ask(&mut stream, "get v\r\n", &answer);
            stream
        };
        // What is allocated once, for any number of clients.
        let mut idle: Vec<TcpStream> = (0..100).map(|_| come()).collect();
        goes_on("before they come");
        let before = resident_bytes();
        idle.extend((100..clients).map(|_| come()));
        goes_on("while they are idle");
        let grown = resident_bytes().saturating_sub(before);
        let each = grown / (clients - 100);
        println!("{clients} idle clients: {grown} bytes more, {each} each");
        let allowed = clients * IDLE_BYTES + OTHER_BYTES;
        assert!(
            grown <= allowed,
            "MC-4: {clients} take {grown} bytes, {each} each"
        );
        // None of them was sent away, and nobody has their places.
        assert_eq!(connected(), clients + 1);
        let mut told = String::new();
        server.connect().read_to_string(&mut told).unwrap();
        assert_eq!(told, "ERROR Too many open connections\r\n");
        idle.iter_mut()
            .for_each(|stream| ask(stream, "get v\r\n", &answer));
        drop(idle);
        wait_for("they are still counted", || connected() == 1);
        drop(come());
        goes_on("after they have gone");
        assert!(!works.is_finished());
    });
}

/// Whoever works ends with this.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
