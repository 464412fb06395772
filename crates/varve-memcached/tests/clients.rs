//! Clients beside each other, clients that misbehave, and what is there after the server has ended.

mod common;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::{Server, answers_to, options};
use varve::{ColumnType, Database, FlushLog, Isolation, Options, TableDef, Transaction, Value};
use varve_memcached::{Memcached, MemcachedOptions};

fn say(server: &Server, text: &str) -> String {
    String::from_utf8(answers_to(server, text.as_bytes())).unwrap()
}

/// What was answered is there (MC-1), and the engine's own readers see it as rows.
#[test]
fn items_are_rows_that_stay() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Database::open(dir.path(), options()).unwrap();
    let start = |db: &Database| Memcached::start(db, MemcachedOptions::default()).unwrap();
    let say = |server: &Memcached, text: &str| {
        let answers = common::ask(server, text.as_bytes());
        String::from_utf8(answers).unwrap()
    };
    let db = open();
    db.set_flush_log_at_trx_commit(FlushLog::Sync);
    let server = start(&db);
    let answers = say(&server, "set a 7 0 3\r\nabc\r\nincr n 1\r\n");
    assert_eq!(answers, "STORED\r\nNOT_FOUND\r\n");
    server.stop();
    db.close().unwrap();
    let db = open();
    let table = db.table("memcached/items").unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let row = table.get(&mut trx, &[Value::from(&b"a"[..])]).unwrap();
    let row = row.expect("it was answered");
    assert_eq!(row.get::<Vec<u8>>("value").unwrap(), b"abc");
    assert_eq!(row.get::<u32>("flags").unwrap(), 7);
    drop(trx);
    let server = start(&db);
    let answers = say(&server, "get a\r\n");
    assert_eq!(answers, "VALUE a 7 3\r\nabc\r\nEND\r\n");
}

/// Increments of many clients on few keys: none is lost, and none counts twice. Their batches have the keys
/// in different orders, so that some wait for each other, and are done again one by one (MC-6).
#[test]
fn no_increment_is_lost() {
    const CLIENTS: u64 = 8;
    const ROUNDS: u64 = 100;
    let server = Server::start();
    say(
        &server,
        "set a 0 0 1\r\n0\r\nset b 0 0 1\r\n0\r\nset c 0 0 1\r\n0\r\n",
    );
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let mut stream = server.connect();
            scope.spawn(move || {
                let keys = if client % 2 == 0 {
                    ["a", "b", "c"]
                } else {
                    ["c", "b", "a"]
                };
                let batch: String = keys.iter().map(|key| format!("incr {key} 1\r\n")).collect();
                for _ in 0..ROUNDS {
                    stream.write_all(batch.as_bytes()).unwrap();
                    let mut lines = 0;
                    let mut byte = [0];
                    while lines < keys.len() {
                        stream.read_exact(&mut byte).unwrap();
                        assert_ne!(byte[0], b'E', "MC-6: an error");
                        lines += usize::from(byte[0] == b'\n');
                    }
                }
            });
        }
    });
    let all = CLIENTS * ROUNDS;
    let expected = format!("{all}\r\n{all}\r\n{all}\r\n");
    assert_eq!(
        say(&server, "incr a 0\r\nincr b 0\r\nincr c 0\r\n"),
        expected
    );
}

/// Of several clients that have seen the same cas one stores.
#[test]
fn no_cas_is_lost() {
    const CLIENTS: usize = 6;
    const ROUNDS: usize = 50;
    let server = Server::start();
    say(&server, "set n 0 0 1\r\n0\r\n");
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut done = 0;
                while done < ROUNDS {
                    let answer = say(&server, "gets n\r\n");
                    let mut lines = answer.lines();
                    let cas = lines.next().unwrap().rsplit(' ').next().unwrap();
                    let number: u64 = lines.next().unwrap().parse().unwrap();
                    let next = (number + 1).to_string();
                    let length = next.len();
                    let stored = say(&server, &format!("cas n 0 0 {length} {cas}\r\n{next}\r\n"));
                    match stored.as_str() {
                        "STORED\r\n" => done += 1,
                        other => assert_eq!(other, "EXISTS\r\n"),
                    }
                }
            });
        }
    });
    let all = CLIENTS * ROUNDS;
    let expected = format!("VALUE n 0 {}\r\n{all}\r\nEND\r\n", all.to_string().len());
    assert_eq!(say(&server, "get n\r\n"), expected);
}

/// Answers are a megabyte each.
const BIG: usize = 1 << 20;

fn with_a_big_item() -> Server {
    let server = Server::start();
    say(
        &server,
        &format!("set big 0 0 {BIG}\r\n{}\r\n", "x".repeat(BIG)),
    );
    server
}

/// More is asked for than the sockets hold answers: the rest is not even taken from the client (MC-4).
fn check_that_no_more_is_read(server: &Server, request: &str) {
    let mut deaf = server.connect();
    let time = Some(Duration::from_millis(500));
    deaf.set_write_timeout(time).unwrap();
    let sent = (0..100_000).try_for_each(|_| deaf.write_all(request.as_bytes()));
    assert!(sent.is_err(), "MC-4: all of it was taken on");
}

/// A client that does not read its answers is not read either, and costs the others nothing (MC-4).
#[test]
fn who_does_not_read_is_not_read() {
    let server = with_a_big_item();
    check_that_no_more_is_read(&server, &format!("get{}\r\n", " big".repeat(1000)));
    assert_eq!(say(&server, "mn\r\n"), "MN\r\n");
    let memory = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = memory.lines();
    let peak = lines.find(|line| line.starts_with("VmHWM")).unwrap();
    let kib: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kib < 600 << 10, "MC-4: {kib} KiB");
}

/// Answers to changes are bounded, too (MC-4).
#[test]
fn who_does_not_read_changes_nothing_either() {
    let server = with_a_big_item();
    let many = "mg big v T0\r\n".repeat(200);
    let answers = answers_to(&server, many.as_bytes());
    assert_eq!(answers.len(), 200 * ("VA 1048576\r\n\r\n".len() + BIG));
    check_that_no_more_is_read(&server, &many);
}

/// Who can't be told that his change is durable is told so (MC-1).
#[test]
fn a_database_that_has_stopped_says_why() {
    let server = Server::start();
    server.db.set_flush_log_at_trx_commit(FlushLog::Sync);
    assert_eq!(say(&server, "set a 0 0 1\r\nx\r\n"), "STORED\r\n");
    server.db.poison("the test is over");
    let why = say(&server, "set a 0 0 1\r\ny\r\n");
    assert!(
        why.starts_with("SERVER_ERROR") && why.contains("the test is over"),
        "MC-1: {why}"
    );
}

/// What is announced as too long is refused at once, and skipped (MC-4, MC-5).
#[test]
fn a_gigabyte_that_is_announced_takes_no_memory() {
    let server = Server::start();
    let mut stream = server.connect();
    stream.write_all(b"set a 0 0 1073741824\r\n").unwrap();
    let refused = b"SERVER_ERROR object too large for cache\r\n";
    let mut answer = vec![0; refused.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, refused);
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..1024 {
        stream.write_all(&piece).unwrap();
    }
    stream.write_all(b"\r\nmn\r\n").unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"MN\r\n");
}

#[test]
fn lines_without_an_end_end_the_connection() {
    let server = Server::start();
    for text in ["x".repeat(3000), format!("set {}", "k".repeat(3000))] {
        assert_eq!(say(&server, &text), "", "MC-5");
    }
    // A browser that was led here does nothing.
    let page = "POST / HTTP/1.1\r\nHost: x\r\n\r\nset a 0 0 1\r\nx\r\n";
    assert_eq!(say(&server, page), "");
    // Lists of keys may be long.
    let many = format!("get{}\r\n", " key".repeat(20_000));
    assert_eq!(say(&server, &many), "END\r\n");
    assert_eq!(say(&server, "get a\r\n"), "END\r\n");
}

#[test]
fn who_comes_when_all_places_are_taken_is_turned_away() {
    let server = Server::with(MemcachedOptions {
        connections: 2,
        ..MemcachedOptions::default()
    });
    let mut first = server.connect();
    first.write_all(b"mn\r\n").unwrap();
    first.read_exact(&mut [0; 4]).unwrap();
    let mut second = server.connect();
    second.write_all(b"mn\r\n").unwrap();
    second.read_exact(&mut [0; 4]).unwrap();
    let mut third = String::new();
    server.connect().read_to_string(&mut third).unwrap();
    assert_eq!(third, "ERROR Too many open connections\r\n");
    drop(second);
    // The server sees that it has gone in its own time.
    let begun = Instant::now();
    while say(&server, "mn\r\n") != "MN\r\n" {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the place stays taken"
        );
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn who_says_nothing_is_sent_away() {
    let server = Server::with(MemcachedOptions {
        idle_time: Some(Duration::from_secs(1)),
        ..MemcachedOptions::default()
    });
    let mut stream = server.connect();
    let mut nothing = Vec::new();
    stream.read_to_end(&mut nothing).unwrap();
    assert_eq!(nothing, b"");
}

#[test]
fn rows_whose_time_is_over_go() {
    let server = Server::with(MemcachedOptions {
        sweep_time: Some(Duration::from_secs(1)),
        ..MemcachedOptions::default()
    });
    say(
        &server,
        "set a 0 -1 1\r\nx\r\nset b 0 1 1\r\nx\r\nset c 0 0 1\r\nx\r\n",
    );
    let rows = || {
        let table = server.db.table("memcached/items").unwrap();
        let mut trx = server.db.begin(Isolation::RepeatableRead);
        table.rows(&mut trx).unwrap().count()
    };
    let begun = Instant::now();
    while rows() != 1 {
        assert!(begun.elapsed() < Duration::from_secs(60), "they stay");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(say(&server, "get c\r\n").starts_with("VALUE c"));
}

/// A program's transaction that has these items locked.
fn with_locks(db: &Database, keys: &[&str]) -> Transaction {
    let table = db.table("memcached/items").unwrap();
    let mut trx = db.begin(Isolation::ReadCommitted);
    for key in keys {
        let key = [Value::from(key.as_bytes())];
        assert!(table.get_for_update(&mut trx, &key).unwrap().is_some());
    }
    trx
}

/// A flush waits for whoever has an item locked, and is not answered before that is gone.
#[test]
fn a_locked_item_is_flushed_too() {
    let server = Server::start();
    say(&server, "set a 0 0 1\r\nx\r\nset b 0 0 1\r\nx\r\n");
    let trx = with_locks(&server.db, &["a"]);
    let mut stream = server.connect();
    stream.write_all(b"flush_all\r\n").unwrap();
    let begun = Instant::now();
    while say(&server, "get b\r\n") != "END\r\n" {
        assert!(begun.elapsed() < Duration::from_secs(60), "b stays");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(say(&server, "get a\r\n").starts_with("VALUE a"));
    trx.commit().unwrap();
    stream.read_exact(&mut [0; 4]).unwrap();
    assert_eq!(say(&server, "get a\r\n"), "END\r\n");
}

/// MC-6: those are done that need not wait, and what waits does so twice in all, and not once each.
#[test]
fn locked_items_hold_up_no_others() {
    let server = Server::start();
    say(&server, "set a 0 0 1\r\nx\r\nset b 0 0 1\r\nx\r\n");
    let trx = with_locks(&server.db, &["a", "b"]);
    let begun = Instant::now();
    let batch =
        "append a 0 0 1\r\ny\r\nset c 0 0 1\r\ny\r\nappend b 0 0 1\r\ny\r\nappend a 0 0 1\r\ny\r\n";
    let told = say(&server, batch);
    let took = begun.elapsed().as_secs_f64();
    trx.rollback().unwrap();
    let words: Vec<&str> = told.lines().map(|line| &line[..6]).collect();
    assert_eq!(words, ["SERVER", "STORED", "SERVER", "SERVER"], "{told}");
    assert!((9.0..19.0).contains(&took), "it took {took} s");
    let there = say(&server, "get a b\r\n");
    assert_eq!(there, "VALUE a 0 1\r\nx\r\nVALUE b 0 1\r\nx\r\nEND\r\n");
}

/// However many wait for a lock, what others change is answered at once.
#[test]
fn changes_of_locked_items_hold_up_no_others() {
    const CLIENTS: usize = 20;
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let server = Memcached::start(&db, MemcachedOptions::default()).unwrap();
    let say = |text: &str| String::from_utf8(common::ask(&server, text.as_bytes())).unwrap();
    assert_eq!(say("set a 0 0 1\r\n0\r\n"), "STORED\r\n");
    let trx = with_locks(&db, &["a"]);
    thread::scope(|scope| {
        let increments = (0..CLIENTS).map(|_| scope.spawn(|| say("incr b 1\r\nincr a 1\r\n")));
        let increments: Vec<_> = increments.collect();
        let begun = Instant::now();
        for n in 0..20 {
            assert_eq!(say(&format!("set c{n} 0 0 1\r\nx\r\n")), "STORED\r\n");
        }
        assert!(begun.elapsed() < Duration::from_secs(4));
        assert!(increments.iter().all(|increment| !increment.is_finished()));
        drop(trx);
        let mut told: Vec<_> = increments
            .into_iter()
            .map(|it| it.join().unwrap())
            .collect();
        told.sort_unstable();
        let mut wanted: Vec<_> = (1..=CLIENTS)
            .map(|n| format!("NOT_FOUND\r\n{n}\r\n"))
            .collect();
        wanted.sort_unstable();
        assert_eq!(told, wanted);
    });
}

/// Nobody waits for it, so the log has it.
#[test]
fn a_late_flush_that_fails_is_told() {
    let (tell, told) = std::sync::mpsc::channel();
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        logger: Some(Arc::new(move |_, text| {
            let _ = tell.send(text.to_string());
        })),
        lock_wait_timeout: Duration::from_millis(100),
        ..options()
    };
    let db = Database::open(dir.path(), options).unwrap();
    let server = Memcached::start(&db, MemcachedOptions::default()).unwrap();
    common::ask(&server, b"set a 0 0 1\r\nx\r\n");
    let trx = with_locks(&db, &["a"]);
    common::ask(&server, b"flush_all 1\r\n");
    let ours = |text: &String| text.contains("memcached: a flush_all of 1 s ago is not done");
    let wait = |n| {
        told.recv_timeout(Duration::from_secs(n))
            .expect("it is told")
    };
    while !ours(&wait(60)) {}
    drop(trx);
}

/// Everything that was there goes, however much it is; what comes meanwhile stays.
#[test]
fn everything_is_flushed() {
    let server = Server::start();
    let mut all = String::new();
    for n in 0..1200 {
        all.push_str(&format!("set key{n} 0 0 1 noreply\r\nx\r\n"));
    }
    say(&server, &all);
    assert_eq!(
        say(&server, "flush_all\r\nget key0 key599 key1199\r\n"),
        "OK\r\nEND\r\n"
    );
    // Only the last one that has a delay counts.
    say(&server, "set a 0 0 1\r\nx\r\n");
    assert_eq!(
        say(&server, "flush_all 1\r\nflush_all 1000\r\n"),
        "OK\r\nOK\r\n"
    );
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(say(&server, "get a\r\n"), "VALUE a 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn a_unix_socket_serves_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("memcached.sock");
    // A server that was killed has left it.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let how = || MemcachedOptions {
        address: None,
        socket: Some(path.clone()),
        ..MemcachedOptions::default()
    };
    let server = Server::with(how());
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"mn\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "MN\r\n");
    let taken = Memcached::start(&server.db, how())
        .err()
        .expect("it is taken");
    assert!(taken.to_string().contains("memcached.sock"), "{taken}");
    drop(server);
    assert!(!path.exists());
    // What is no socket is somebody's.
    std::fs::write(&path, "mine").unwrap();
    let db = Server::start();
    assert!(Memcached::start(&db.db, how()).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn what_can_not_be_used_is_refused_by_name() {
    let server = Server::start();
    let def = TableDef::new("shop/item").column("id", ColumnType::u64());
    server.db.create_table(&def.primary(&["id"])).unwrap();
    let refused = |how: MemcachedOptions| {
        let started = Memcached::start(&server.db, how);
        started.err().expect("it is refused").to_string()
    };
    let why = refused(MemcachedOptions {
        table: "shop/item".into(),
        ..MemcachedOptions::default()
    });
    assert!(
        why.contains("`shop/item` has not the columns of items"),
        "{why}"
    );
    for (address, part) in [
        ("0.0.0.0:0", "loopback addresses only"),
        ("localhost", "`localhost` is no address"),
    ] {
        let why = refused(MemcachedOptions {
            address: Some(address.into()),
            ..MemcachedOptions::default()
        });
        assert!(why.contains(part), "{why}");
    }
    let why = refused(MemcachedOptions {
        threads: 0,
        ..MemcachedOptions::default()
    });
    assert!(why.contains("threads 0 is not between 1 and 256"), "{why}");
}
