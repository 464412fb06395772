//! A whole connection of a client of memcached, on a table.
//!
//! What holds, whatever the bytes are, and in whatever pieces they come: the connection ends when the client
//! has nothing more to say, its answers are no longer than its requests allow, no thread panics, and the next
//! client is served.
//!
//! Input: the size of the pieces (0: all at once), then what the client sends.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use varve::{Database, FlushLog};
use varve_memcached::{Memcached, MemcachedOptions};
use varve_sim::{SimDisk, panics, sample};

const VALUE_BYTES: usize = 2048;
/// So much is sent at most.
const SENT_BYTES: usize = 8192;
/// A key of a `get` has two bytes at least, and no answer about one item is longer than all that there is.
const ANSWER_BYTES: usize = SENT_BYTES / 2 * (VALUE_BYTES + 400);
const PATIENCE: Duration = Duration::from_secs(20);

/// One that many inputs use, as starting one takes longer than most inputs do.
struct Server {
    _memcached: Memcached,
    _db: Database,
    address: SocketAddr,
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        panics::listen();
        let db = sample::open(&SimDisk::default()).expect("the disk is empty");
        db.set_flush_log_at_trx_commit(FlushLog::Lazy);
        let options = MemcachedOptions {
            threads: 2,
            change_threads: 2,
            value_bytes: VALUE_BYTES,
            sweep_time: None,
            ..MemcachedOptions::default()
        };
        let memcached = Memcached::start(&db, options).expect("a port is free");
        Server {
            address: memcached.address().expect("it has a port"),
            _memcached: memcached,
            _db: db,
        }
    })
}

fn connect() -> TcpStream {
    let stream = TcpStream::connect(server().address).expect("it listens");
    stream.set_nodelay(true).expect("it is a socket");
    let patience = stream.set_read_timeout(Some(PATIENCE));
    patience.expect("it is a socket");
    stream
}

/// What is answered until the connection ends.
fn ask(said: &[u8], piece: usize) -> Vec<u8> {
    let stream = connect();
    let mut answers = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            for piece in said.chunks(piece) {
                // It may be ended in the middle.
                if { &stream }.write_all(piece).is_err() {
                    break;
                }
            }
            let _ = stream.shutdown(Shutdown::Write);
        });
        match { &stream }.read_to_end(&mut answers) {
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => panic!("it does not end"),
            // What was sent behind the request that ended it is not read.
            _ => answers,
        }
    })
}

pub fn run(data: &[u8]) {
    let Some((&piece, said)) = data.split_first() else {
        return;
    };
    let said = &said[..said.len().min(SENT_BYTES)];
    let piece = match piece {
        0 => SENT_BYTES,
        size => usize::from(size),
    };
    // Items of many inputs would become more and more.
    static INPUTS: AtomicU64 = AtomicU64::new(0);
    if INPUTS.fetch_add(1, Ordering::Relaxed).is_multiple_of(256) {
        assert_eq!(ask(b"flush_all\r\n", SENT_BYTES), b"OK\r\n");
    }
    let answers = ask(said, piece);
    assert!(answers.len() <= ANSWER_BYTES, "{}", answers.len());
    let next = ask(b"version\r\n", SENT_BYTES);
    assert!(next.starts_with(b"VERSION"), "{next:?}");
    let panics = panics::take();
    assert!(panics.is_empty(), "{panics:#?}");
}

/// Of the binary protocol: operation, extras, key, value.
type Packet = (u8, &'static [u8], &'static [u8], &'static [u8]);
const PACKETS: [Packet; 9] = [
    (0x01, &[0; 8], b"a", b"12"),
    (0x0c, b"", b"a", b""),
    (0x05, &[0; 20], b"a", b""),
    (0x0e, b"", b"a", b"x"),
    (0x1d, &[0; 4], b"a", b""),
    (0x04, b"", b"a", b""),
    (0x10, b"", b"", b""),
    (0x08, b"", b"", b""),
    (0x07, b"", b"", b""),
];

pub fn seeds() -> Vec<Vec<u8>> {
    let texts: [&[u8]; 8] = [
        b"set a 1 0 2\r\n12\r\nget a b\r\ngets a\r\nincr a 5\r\ndecr a 100\r\n",
        b"add b 0 0 1\r\nx\r\nreplace b 0 0 1\r\ny\r\nappend b 0 0 1\r\nz\r\nprepend b 0 0 1 noreply\r\nw\r\n",
        b"gat 100 a b\r\ntouch a 5\r\ndelete a\r\ncas b 0 0 1 7\r\nq\r\n",
        b"ms c 2 T90 F5 c\r\nhi\r\nmg c v f t k s c O1\r\nmd c I T30\r\nmg c v\r\nmg c v\r\nmn\r\nme c\r\n",
        b"ma n N0 J5 D3 v\r\nma n MD D9 v t c\r\nmg n N30 v\r\nmg YQ== b k v\r\n",
        b"stats\r\nstats settings\r\nflush_all 10 noreply\r\nverbosity 1\r\nversion\r\n",
        b"set a 0 0 3000\r\n",
        b"set a 0 0 -1\r\nset a 0 0 2\r\n12345\r\nget\r\nnonsense\r\nquit\r\n",
    ];
    let texts = texts.into_iter().flat_map(|text| {
        let pieces = [0, 7].map(|piece| [&[piece], text].concat());
        pieces.into_iter()
    });
    let packets = PACKETS.iter().map(|(code, extras, key, value)| {
        let mut packet = vec![0x80, *code, 0, key.len() as u8, extras.len() as u8, 0, 0, 0];
        let body = extras.len() + key.len() + value.len();
        packet.extend((body as u32).to_be_bytes());
        packet.extend([0; 12]);
        [&packet, *extras, key, value].concat()
    });
    let packets: Vec<u8> = packets.flatten().collect();
    let packets = [0, 25].map(|piece| [&[piece], &packets[..]].concat());
    texts.chain(packets).collect()
}
