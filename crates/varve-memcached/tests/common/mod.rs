//! A server with an empty database, and clients.

// Not every test uses all of it.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use varve::{Database, FlushLog, Logger, Options};
use varve_memcached::{Memcached, MemcachedOptions};

pub struct Server {
    // In this order they end.
    pub server: Option<Memcached>,
    pub db: Database,
    pub dir: tempfile::TempDir,
}

pub fn options() -> Options {
    Options {
        buffer_pool_bytes: 16 << 20,
        flush_log_at_trx_commit: FlushLog::Lazy,
        ..Options::default()
    }
}

impl Server {
    pub fn start() -> Server {
        Server::with(MemcachedOptions::default())
    }

    pub fn with(how: MemcachedOptions) -> Server {
        Server::in_database(options(), how)
    }

    /// What the administrator is told goes into the list.
    pub fn telling(how: MemcachedOptions, told: Arc<Mutex<Vec<String>>>) -> Server {
        let logger: Logger = Arc::new(move |_, what: &str| told.lock().unwrap().push(what.into()));
        let logger = Some(logger);
        Server::in_database(
            Options {
                logger,
                ..options()
            },
            how,
        )
    }

    fn in_database(options: Options, how: MemcachedOptions) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), options).unwrap();
        let server = Some(Memcached::start(&db, how).unwrap());
        Server { server, db, dir }
    }

    pub fn connect(&self) -> TcpStream {
        connect(self.server.as_ref().unwrap())
    }

    /// Each byte goes as one packet.
    pub fn answers_byte_by_byte(&self, sent: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        // The rest of a long value is no other case.
        let slow = sent.len().min(10_000);
        for byte in &sent[..slow] {
            stream.write_all(&[*byte]).unwrap();
        }
        stream.write_all(&sent[slow..]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answers = Vec::new();
        stream.read_to_end(&mut answers).unwrap();
        answers
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
    }
}

fn connect(server: &Memcached) -> TcpStream {
    let stream = TcpStream::connect(server.address().unwrap()).unwrap();
    stream.set_nodelay(true).unwrap();
    let time = Some(Duration::from_secs(60));
    stream.set_read_timeout(time).unwrap();
    stream
}

pub fn answers_to(server: &Server, sent: &[u8]) -> Vec<u8> {
    ask(server.server.as_ref().unwrap(), sent)
}

/// What is answered until the server has nothing more to say.
pub fn ask(server: &Memcached, sent: &[u8]) -> Vec<u8> {
    let mut stream = connect(server);
    let mut answers = Vec::new();
    // The server may end the connection in the middle of it.
    let _ = stream.write_all(sent);
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut answers);
    answers
}

pub mod binary {
    /// Operation, status, extras, key, value.
    pub type Answer = (u8, u16, Vec<u8>, String, String);

    pub fn request(op: u8, cas: u64, extras: &[u8], key: &str, value: &str) -> Vec<u8> {
        let body = extras.len() + key.len() + value.len();
        let mut packet = vec![0x80, op];
        packet.extend((key.len() as u16).to_be_bytes());
        packet.extend([extras.len() as u8, 0, 0, 0]);
        packet.extend((body as u32).to_be_bytes());
        packet.extend(*b"any.");
        packet.extend(cas.to_be_bytes());
        packet.extend_from_slice(extras);
        packet.extend_from_slice(key.as_bytes());
        packet.extend_from_slice(value.as_bytes());
        packet
    }

    pub fn answers(mut bytes: &[u8]) -> Vec<Answer> {
        let mut answers = Vec::new();
        // A character for each byte.
        let text = |bytes: &[u8]| {
            bytes
                .iter()
                .map(|&byte| char::from(byte))
                .collect::<String>()
        };
        while !bytes.is_empty() {
            let (head, rest) = bytes.split_at(24);
            assert_eq!((head[0], &head[12..16]), (0x81, &b"any."[..]));
            let number = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
            let (key, extras) = (usize::from(number(2)), usize::from(head[4]));
            let body = u32::from_be_bytes(head[8..12].try_into().unwrap()) as usize;
            let (body, rest) = rest.split_at(body);
            answers.push((
                head[1],
                number(6),
                body[..extras].to_vec(),
                text(&body[extras..extras + key]),
                text(&body[extras + key..]),
            ));
            bytes = rest;
        }
        answers
    }
}
