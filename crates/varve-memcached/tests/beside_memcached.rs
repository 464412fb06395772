//! The server beside memcached: no client can tell them apart by what it is answered, as far as both have the
//! same commands. `cargo xtask memcached` fetches the programs, and runs this.
//!
//! A conversation is some requests, good and bad, about few keys of its own. Each is sent to both, with a
//! request behind it whose answer marks the end. Numbers that say nothing (cas, seconds) are made the same.

mod common;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use common::{Server, binary};
use varve_memcached::MemcachedOptions;

fn programs() -> PathBuf {
    let programs = std::env::var_os("VARVE_MEMCACHED_PROGRAMS");
    programs
        .expect("cargo xtask memcached says where they are")
        .into()
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is no number")),
    )
}

/// Where a MariaDB server listens that is to be asked instead of a database of the test's own.
fn elsewhere(what: &str) -> Option<String> {
    std::env::var(format!("VARVE_MEMCACHED_{what}")).ok()
}

#[test]
#[ignore = "needs libmemcached's tools: cargo xtask memcached"]
fn memccapable_finds_nothing() {
    let own = Server::start();
    let port = elsewhere("PORT").unwrap_or_else(|| {
        let address = own.server.as_ref().unwrap().address();
        address.unwrap().port().to_string()
    });
    let output = Command::new(programs().join("memccapable"))
        // Its own limit of two seconds is too short for a machine that is busy.
        .args(["-t", "60", "-h", "127.0.0.1"])
        .args(["-p", &port])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    assert!(output.status.success(), "{said}");
}

/// memcached on a socket.
struct Memcached(Child);

impl Memcached {
    fn start(socket: &Path) -> Memcached {
        Memcached::with(socket, &[])
    }

    fn with(socket: &Path, options: &[&str]) -> Memcached {
        let child = Command::new(programs().join("memcached"))
            .args(["-u", "root", "-m", "64"])
            // Its threads that look after the LRU lists hold an item for a moment; a number that is changed
            // just then goes into a new item, which is neither stale nor padded as the old one is.
            .args(["-o", "no_lru_maintainer,no_lru_crawler", "-s"])
            .arg(socket)
            .args(options)
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while UnixStream::connect(socket).is_err() {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "it does not listen"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Memcached(child)
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        // It may have ended by itself, which the test has noticed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A connection to one of the two.
struct Line {
    socket: PathBuf,
    stream: UnixStream,
}

impl Line {
    fn new(socket: &Path) -> Line {
        let stream = UnixStream::connect(socket).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Line {
            socket: socket.into(),
            stream,
        }
    }

    /// What is answered before the answer to `mark`; also if the connection is ended first.
    fn ask(&mut self, request: &[u8], mark: &[u8], marked: &[u8]) -> Answer {
        // It may be ended by then.
        let _ = self.stream.write_all(&[request, mark].concat());
        let mut bytes = Vec::new();
        let mut some = [0; 4096];
        loop {
            match self.stream.read(&mut some) {
                Ok(0) | Err(_) if bytes.is_empty() || !bytes.ends_with(marked) => {
                    *self = Line::new(&self.socket);
                    return Answer { bytes, ended: true };
                }
                Ok(n) => bytes.extend_from_slice(&some[..n]),
                Err(_) => {}
            }
            if bytes.ends_with(marked) {
                bytes.truncate(bytes.len() - marked.len());
                return Answer {
                    bytes,
                    ended: false,
                };
            }
        }
    }
}

#[derive(PartialEq, Eq, Debug)]
struct Answer {
    bytes: Vec<u8>,
    ended: bool,
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        // splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }

    fn sometimes(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

/// Requests of one conversation. `@` stands for a cas that was told.
struct Talk {
    random: Random,
    number: usize,
}

impl Talk {
    fn key(&mut self) -> String {
        let name = self.random.of(&["a", "b", "c"]);
        match self.random.below(40) {
            0 => format!("{:k<250}", self.number),
            1 => format!("{:k<251}", self.number),
            _ => format!("{name}{}", self.number),
        }
    }

    fn value(&mut self) -> &'static str {
        // What memcached takes for a number where a value only begins with one, and whether it writes a
        // shorter number over a longer one, depends on what else its memory holds.
        self.random
            .of(&["", "x", "7", "10", "two words", "abcdefgh"])
    }

    fn expiry(&mut self) -> &'static str {
        // In the time of a conversation none of them passes.
        self.random
            .of(&["0", "0", "1000", "5000", "-1", "100000000", "x"])
    }

    fn noreply(&mut self) -> &'static str {
        self.random.of(&["", "", "", " noreply"])
    }

    fn text(&mut self) -> String {
        let (key, expiry, noreply) = (self.key(), self.expiry(), self.noreply());
        let flags = self.random.of(&["0", "5", "4294967295", "y"]);
        let value = self.value();
        let length = match self.random.below(30) {
            0 => value.len() + 1,
            _ => value.len(),
        };
        let number = self
            .random
            .of(&["0", "1", "3", "18446744073709551615", "z", "-1"]);
        match self.random.below(12) {
            0 | 1 => {
                let verb = self.random.of(&["get", "gets"]);
                let more = self.key();
                format!("{verb} {key} {more}\r\n")
            }
            2 => format!("gat {expiry} {key}\r\n"),
            // memcached does what stands before a key that is too long.
            3 => format!("gats {expiry} {key} a{}\r\n", self.number),
            4..=6 => {
                let verb = self
                    .random
                    .of(&["set", "add", "replace", "append", "prepend"]);
                format!("{verb} {key} {flags} {expiry} {length}{noreply}\r\n{value}\r\n")
            }
            7 => format!("cas {key} {flags} {expiry} {length} @{noreply}\r\n{value}\r\n"),
            8 | 9 => {
                let verb = self.random.of(&["incr", "decr"]);
                format!("{verb} {key} {number}{noreply}\r\n")
            }
            10 => format!("touch {key} {expiry}{noreply}\r\n"),
            _ => format!(
                "delete {key}{}{noreply}\r\n",
                self.random.of(&["", "", " 0", " 60"])
            ),
        }
    }

    fn meta(&mut self) -> String {
        let key = self.key();
        let value = self.value();
        let (verb, own): (&str, &[&str]) = match self.random.below(4) {
            0 => (
                "mg",
                &[
                    "v", "f", "s", "c", "t", "T1000", "T0", "N5000", "R2000", "R9000", "v",
                ],
            ),
            1 => (
                "ms",
                &[
                    "c", "F3", "T1000", "C@", "I", "ME", "MA", "MP", "MR", "MS", "MX", "TX", "C@",
                    "C0",
                ],
            ),
            2 => ("md", &["C@", "I", "T1000", "I", "C0"]),
            // No `T`: memcached gives it to the old item when a number gets longer, and so to none.
            _ => (
                "ma",
                &[
                    "v", "c", "t", "N0", "N1000", "J13", "D2", "DX", "C@", "MI", "MD", "M+",
                ],
            ),
        };
        let mut request = format!("{verb} {key}");
        if verb == "ms" {
            request.push_str(&format!(" {}", value.len()));
        }
        let mut last = String::new();
        for _ in 0..self.random.below(5) {
            let flag = match self.random.below(6) {
                // Whether errors are quiet, too, is not the same in all versions.
                0 if verb == "ma" => self.random.of(&["k", "Oab1", "b", "!"]),
                // memcached tells a key that it has just made as bytes.
                0 if verb == "mg" => self.random.of(&["k", "q", "Oab1", "!"]),
                0 => self.random.of(&["k", "q", "Oab1", "b", "!"]),
                _ => self.random.of(own),
            };
            // memcached follows the flags in their order; here `R` comes before `T`, and `t` after it,
            // whatever the order.
            match flag.as_bytes()[0] {
                b't' => last.push_str(" t"),
                b'T' => last.insert_str(0, &format!(" {flag}")),
                _ => request.push_str(&format!(" {flag}")),
            }
        }
        request.push_str(&last);
        request.push_str("\r\n");
        if verb == "ms" {
            request.push_str(&format!("{value}\r\n"));
        }
        request
    }

    fn nonsense(&mut self) -> String {
        let key = self.key();
        let lines = [
            "",
            "set",
            "get",
            "nonsense",
            "verbosity",
            "verbosity 1",
            "mg",
            "ms a",
            "incr a",
            "shutdown",
            "stats reset ",
            "stats detail ",
        ];
        format!(
            "{}{}\r\n",
            self.random.of(&lines),
            if self.random.sometimes(3) {
                key
            } else {
                String::new()
            }
        )
    }

    fn request(&mut self) -> String {
        match self.random.below(20) {
            0 => self.nonsense(),
            1..=9 => self.meta(),
            _ => self.text(),
        }
    }

    /// Operation, extras, key and value; the cas is another matter.
    fn packet(&mut self) -> (u8, Vec<u8>, String, &'static str) {
        let seconds = |text: &str| text.parse::<i64>().map_or(0, |n| n.max(0) as u32);
        let expiry = seconds(self.expiry()).to_be_bytes();
        let mut key = format!("{}{}", self.random.of(&["a", "b", "c"]), self.number);
        let quiet = self.random.sometimes(4);
        let pick = |loud: u8, silent: u8| if quiet { silent } else { loud };
        let (op, extras, value) = match self.random.below(12) {
            0 => (pick(0x00, 0x09), vec![], ""),
            1 => (pick(0x0c, 0x0d), vec![], ""),
            2..=4 => {
                let op = [(1, 0x11), (2, 0x12), (3, 0x13)][self.random.below(3)];
                let extras = [[0, 0, 0, 9], expiry].concat();
                (pick(op.0, op.1), extras, self.value())
            }
            5 => (pick(0x04, 0x14), vec![], ""),
            6 | 7 => {
                let op = [(5, 0x15), (6, 0x16)][self.random.below(2)];
                let initial = if self.random.sometimes(2) {
                    [0xff; 4]
                } else {
                    expiry
                };
                let extras = [&3u64.to_be_bytes()[..], &20u64.to_be_bytes(), &initial].concat();
                (pick(op.0, op.1), extras, "")
            }
            8 => (pick(0x0e, 0x19), vec![], self.value()),
            9 => (pick(0x0f, 0x1a), vec![], self.value()),
            10 => (0x1c, expiry.to_vec(), ""),
            _ => (pick(0x1d, 0x1e), expiry.to_vec(), ""),
        };
        if self.random.sometimes(60) {
            key.clear();
        }
        (op, extras, key, value)
    }
}

/// The two servers, and what each has told as the same cas.
struct Both {
    lines: [Line; 2],
    cas: HashMap<usize, Vec<[String; 2]>>,
}

impl Both {
    /// Sends a request with the cas that each has told, and compares.
    fn compare(&mut self, talk: &mut Talk, request: &str) -> Result<(), String> {
        let known = self.cas.entry(talk.number).or_default();
        let cas = match known.len() {
            0 => ["1".into(), "1".into()],
            n => known[talk.random.below(n)].clone(),
        };
        let [ours, theirs] = [0, 1].map(|n| {
            let request = request.replace('@', &cas[n]);
            // A value that is announced a byte too long takes one from the empty line.
            let mark = b"\r\nmn\r\n";
            self.lines[n].ask(request.as_bytes(), mark, b"MN\r\n")
        });
        let ([ours, theirs], told) = same_numbers([&ours, &theirs]);
        self.cas.entry(talk.number).or_default().extend(told);
        match ours == theirs {
            true => Ok(()),
            false => Err(format!(
                "to {request:?}\n    ours {ours:?}\n  theirs {theirs:?}"
            )),
        }
    }
}

/// The answers as texts, with `#` for each cas and for seconds; and the cas that both told at the same place.
fn same_numbers(answers: [&Answer; 2]) -> ([String; 2], Vec<[String; 2]>) {
    let mut cas = [Vec::new(), Vec::new()];
    let texts = [0, 1].map(|n| {
        let text = String::from_utf8_lossy(&answers[n].bytes).into_owned();
        let mut lines: Vec<String> = Vec::new();
        for line in text.split("\r\n") {
            let mut words: Vec<String> = line.split(' ').map(String::from).collect();
            let head = words[0].clone();
            if head == "VALUE" && words.len() == 5 {
                cas[n].push(std::mem::replace(&mut words[4], "#".into()));
            }
            if ["VA", "HD"].contains(&head.as_str()) {
                for word in &mut words[1..] {
                    match word.split_at_checked(1) {
                        Some(("c", number)) if number.parse::<u64>().is_ok_and(|n| n > 0) => {
                            cas[n].push(number.into());
                            *word = "c#".into();
                        }
                        Some(("t", seconds)) if seconds.parse::<u32>().is_ok() => {
                            *word = "t#".into();
                        }
                        _ => {}
                    }
                }
            }
            lines.push(words.join(" "));
        }
        format!(
            "{}{}",
            lines.join("\r\n"),
            if answers[n].ended { " <end>" } else { "" }
        )
    });
    let [ours, theirs] = cas;
    (
        texts,
        ours.into_iter().zip(theirs).map(|(a, b)| [a, b]).collect(),
    )
}

#[test]
#[ignore = "needs memcached: cargo xtask memcached"]
fn answers_are_those_of_memcached() {
    let seed = number("VARVE_SEED").unwrap_or_else(|| u64::from(std::process::id()) << 20);
    let conversations = number("VARVE_CONVERSATIONS").unwrap_or(300) as usize;
    println!("random conversations: VARVE_SEED={seed}");
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("varve");
    let ours = elsewhere("SOCKET").map_or(own.clone(), PathBuf::from);
    let theirs = dir.path().join("memcached");
    let _memcached = Memcached::start(&theirs);
    let _server = Server::with(MemcachedOptions {
        address: None,
        socket: Some(own),
        ..MemcachedOptions::default()
    });
    // The first cas that memcached gives is 1, which stands for one that nobody has.
    Line::new(&theirs).ask(b"set first 0 0 1\r\nx\r\n", b"mn\r\n", b"MN\r\n");
    let mut both = Both {
        lines: [Line::new(&ours), Line::new(&theirs)],
        cas: HashMap::new(),
    };
    for conversation in 0..conversations {
        let mut talk = Talk {
            random: Random(seed + conversation as u64),
            number: conversation,
        };
        let mut said = Vec::new();
        for _ in 0..40 {
            let request = talk.request();
            said.push(request.clone());
            if let Err(why) = both.compare(&mut talk, &request) {
                panic!(
                    "VARVE_SEED={}: after {said:#?}\n{why}",
                    seed + conversation as u64
                );
            }
        }
    }
    let mut lines = [Line::new(&ours), Line::new(&theirs)];
    for conversation in 0..conversations {
        let mut talk = Talk {
            random: Random(seed + conversation as u64),
            number: conversations + conversation,
        };
        let mut said = Vec::new();
        for _ in 0..40 {
            let (op, extras, key, value) = talk.packet();
            let request = binary::request(op, 0, &extras, &key, value);
            let noop = binary::request(0x0a, 0, &[], "", "");
            let mut marked = noop.clone();
            marked[0] = 0x81;
            let answers = lines.each_mut().map(|line| {
                let answer = line.ask(&request, &noop, &marked);
                (binary::answers(&answer.bytes), answer.ended)
            });
            said.push((op, extras, key, value));
            let seed = seed + conversation as u64;
            assert_eq!(answers[0], answers[1], "VARVE_SEED={seed}: after {said:?}");
        }
    }
}

/// Clients that have to say who they are: both let in the same, and tell the others the same.
#[test]
#[ignore = "needs memcached: cargo xtask memcached"]
fn strangers_are_told_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let accounts = dir.path().join("accounts");
    std::fs::write(&accounts, "ann:secret\n").unwrap();
    let (theirs, ours) = (dir.path().join("theirs"), dir.path().join("ours"));
    let _memcached = Memcached::with(&theirs, &["-Y", accounts.to_str().unwrap()]);
    let _own = Server::with(MemcachedOptions {
        address: None,
        socket: Some(ours.clone()),
        accounts: Some(accounts),
        ..MemcachedOptions::default()
    });
    let login = "set x 0 0 10\r\nann secret\r\n";
    // Each but the last is answered by a line, which is waited for: memcached loses answers to strangers that
    // say several things at once.
    let conversations: [&[&str]; 8] = [
        &[login],
        &[&format!("{login}set a 0 0 1\r\n1\r\nget a\r\n{login}")],
        &["get a\r\n", login, "get a\r\n"],
        &["set x 0 0 9\r\nann wrong\r\n", login, "get a\r\n"],
        &["set x 0 0 3\r\nann\r\n", "set x 0 0\r\n", "set\r\n", login],
        &[
            "flush_all\r\n",
            "version\r\n",
            "mg a v\r\n",
            "stats\r\n",
            login,
            "mg a v\r\n",
        ],
        &["set x 0 0 15\r\nann secret more\r\n", "get a\r\n"],
        &["set x 1 2 20 noreply\r\n  ann   secret     \r\n"],
    ];
    for conversation in conversations {
        let answers = [&theirs, &ours].map(|socket| converse(socket, conversation));
        assert_eq!(
            answers[0], answers[1],
            "memcached's, then ours: {conversation:?}"
        );
    }
}

/// What is answered to each, one after the other.
fn converse(socket: &Path, conversation: &[&str]) -> String {
    let mut stream = BufReader::new(UnixStream::connect(socket).unwrap());
    let (last, others) = conversation.split_last().unwrap();
    let mut answers = String::new();
    for said in others {
        stream.get_mut().write_all(said.as_bytes()).unwrap();
        stream.read_line(&mut answers).unwrap();
    }
    stream.get_mut().write_all(last.as_bytes()).unwrap();
    stream.get_mut().shutdown(Shutdown::Write).unwrap();
    stream.read_to_string(&mut answers).unwrap();
    answers
}
