//! Connections that do nothing, or stop in the middle of a request: what they cost, and that nobody else
//! notices them.
//!
//! What could break here: a buffer that each connection keeps; a task that is woken for nothing; one client's
//! silence that others wait for.

mod common;

use std::fs::read_to_string;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::Server;
use rustix::process::{Resource, getrlimit, setrlimit};
use varve_memcached::MemcachedOptions;

const MOST: u64 = 10_000;
/// A task, the protocol's state, and most of it the transaction and the cursor of a client that has read:
/// about 30,000 bytes.
const MOST_BYTES_EACH: u64 = 40 << 10;

/// As many as the process may have, which has both ends.
fn how_many() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let files = limit.current.unwrap_or(u64::MAX);
    (files.saturating_sub(300) / 2).min(MOST)
}

/// Resident memory of the process.
fn memory() -> u64 {
    let pages = read_to_string("/proc/self/statm").unwrap();
    let pages = pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap();
    pages * rustix::param::page_size() as u64
}

fn ask(client: &mut TcpStream, request: &str, answer: &str) {
    client.write_all(request.as_bytes()).unwrap();
    let mut got = vec![0; answer.len()];
    client.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), answer);
}

fn work(client: &mut TcpStream) -> Duration {
    let begun = Instant::now();
    for n in 0..500 {
        ask(client, &format!("set k{n} 0 0 1\r\nx\r\n"), "STORED\r\n");
        ask(
            client,
            &format!("get k{n}\r\n"),
            &format!("VALUE k{n} 0 1\r\nx\r\nEND\r\n"),
        );
    }
    begun.elapsed()
}

#[test]
fn ten_thousand_idle_connections_cost_little_and_nobody_else_anything() {
    let many = how_many();
    let server = Server::with(MemcachedOptions {
        connections: MOST as usize + 1000,
        ..MemcachedOptions::default()
    });
    let mut busy = server.connect();
    work(&mut busy);
    let alone = work(&mut busy);
    let before = memory();
    let mut idle: Vec<TcpStream> = (0..many).map(|_| server.connect()).collect();
    // Each has been let in, and has had an answer.
    idle.iter_mut()
        .for_each(|client| ask(client, "get none\r\n", "END\r\n"));
    // Half of them stop in the middle of a request, of which a value of any length would be a part.
    for client in idle.iter_mut().step_by(2) {
        client.write_all(b"set half 0 0 1000000\r\nabc").unwrap();
    }
    let beside = work(&mut busy);
    let each = memory().saturating_sub(before) / many.max(1);
    println!("{many} connections, {each} bytes each; {alone:?} alone, {beside:?} beside them");
    assert!(each < MOST_BYTES_EACH, "{each} bytes each");
    // Other tests run, too.
    assert!(
        beside < alone * 10 + Duration::from_secs(2),
        "{alone:?}, {beside:?}"
    );
    let count = |name| {
        let counts = server.server.as_ref().unwrap().counts();
        counts.iter().find(|count| count.0 == name).unwrap().1
    };
    assert_eq!(count("curr_connections"), many + 1);
    drop(idle);
    let begun = Instant::now();
    while count("curr_connections") > 1 {
        assert!(begun.elapsed() < Duration::from_secs(60), "they stay");
        std::thread::sleep(Duration::from_millis(5));
    }
    work(&mut busy);
}
