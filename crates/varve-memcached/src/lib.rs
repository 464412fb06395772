//! The memcached protocol on a table: what clients of memcached set is a row, durable, and the same for every
//! reader of the table.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::TcpStream;
//!
//! use varve::{Database, Options};
//! use varve_memcached::{Memcached, MemcachedOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir().unwrap();
//! let db = Database::open(dir.path(), Options::default())?;
//! let server = Memcached::start(&db, MemcachedOptions::default())?;
//! let mut client = TcpStream::connect(server.address().unwrap())?;
//! client.write_all(b"set greeting 0 0 5\r\nhello\r\nget greeting\r\nquit\r\n")?;
//! let mut answers = String::new();
//! client.read_to_string(&mut answers)?;
//! assert_eq!(answers, "STORED\r\nVALUE greeting 0 5\r\nhello\r\nEND\r\n");
//! server.stop();
//! db.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | what |
//! |---|---|
//! | `protocol` | text, meta and binary protocol: requests from bytes, bytes of answers |
//! | `request`, `item`, `decide` | what clients want, and what becomes of an item: memcached's rules |
//! | `items`, `store` | what a store of items does; items as rows of a database of the program's own |
//! | `batch`, `queue` | changes that are one transaction, of one connection or of several |
//! | `cache` | items in memory, instead of rows or beside them |
//! | `letters` | options as memcached's command line has them |
//! | `accounts`, `tls` | who is let in, and what nobody else can read |
//! | `watched` | files with accounts and certificates, which are read again |
//! | `connection` | one client: order, batches, durability, bounds |
//! | `server` | who is let in; statistics; items that are over |
//!
//! The protocol is the one that memcached's `doc/protocol.txt` and `doc/protocol-binary.txt` describe, and
//! the answers are those of memcached 1.6, but where a table is no cache: nothing is evicted, a value that is
//! refused for its length leaves the old one there, and reads are not recorded (flags `h`, `l`, `u` of the
//! meta commands). `docs/memcached.md` has all differences.

mod accounts;
mod batch;
mod cache;
mod connection;
mod counters;
mod decide;
mod item;
mod items;
mod letters;
mod protocol;
mod queue;
mod request;
mod server;
mod store;
mod tls;
mod watched;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use varve::{Database, Error, Result};
use varve_listen::{Background, Guard, listen_on};

use crate::accounts::Accounts;
pub use crate::cache::{Cache, Changing, Flushing, Moment};
pub use crate::item::{Item, ItemRef};
pub use crate::items::{Durable, Effect, Goes, Items, Memory, Place, Refusal, Wait};
use crate::server::{Settings, Shared, Tally};
use crate::store::{LONGEST_VALUE_BYTES, Store};
use crate::tls::Tls;
pub use crate::tls::TlsFiles;

/// Where it listens, and how it works.
#[derive(Clone, Debug)]
pub struct MemcachedOptions {
    /// An address with a port; port 0: one that is free. It is a loopback address, unless there are
    /// [`MemcachedOptions::tls`], and accounts or authorities.
    pub address: Option<String>,
    /// The path of a Unix socket. One that nobody listens on any more is replaced.
    pub socket: Option<PathBuf>,
    /// The table with the items, which is made if it is missing.
    pub table: String,
    /// Threads that read requests, and do those that change nothing: 1 to
    /// [`MemcachedOptions::MOST_THREADS`].
    pub threads: usize,
    /// Threads that change items. One that waits for a lock keeps a thread; one that waits for a disk does
    /// not. 1 to [`MemcachedOptions::MOST_THREADS`].
    pub change_threads: usize,
    /// Who comes when there are so many is turned away: 1 to [`MemcachedOptions::MOST_CONNECTIONS`].
    pub connections: usize,
    /// Longer values are refused: 1 KiB to 128 MiB.
    pub value_bytes: usize,
    /// Changes that come together, of one client or several, are one transaction, up to so many: 1 to
    /// [`MemcachedOptions::MOST_BATCH`]. A request that has more of them is one as well.
    pub batch: usize,
    /// Reads that one client sends together see one moment, up to so many; `None`: all whose answers fit into
    /// 256 KiB.
    pub read_batch: Option<NonZeroUsize>,
    /// A file with a line `user:password` for each client, which is read again when it has changed. `None`:
    /// nobody is asked who he is.
    pub accounts: Option<PathBuf>,
    /// About so many bytes of memory have the items that are kept there instead of rows, or beside them: 1
    /// MiB to [`MemcachedOptions::MOST_CACHE_BYTES`], a TiB. Means something only to a store that does so
    /// ([`Cache`]), as [`Memcached::start`]'s does not.
    pub cache_bytes: usize,
    /// Connections by TCP are encrypted, with files that are read again when they have changed.
    pub tls: Option<TlsFiles>,
    /// A client that says nothing for so long, a second or more, is sent away; `None`: none is.
    pub idle_time: Option<Duration>,
    /// How often rows are deleted whose time is over, each second at most; `None`: never.
    pub sweep_time: Option<Duration>,
}

impl Default for MemcachedOptions {
    fn default() -> MemcachedOptions {
        MemcachedOptions {
            address: Some("127.0.0.1:0".into()),
            socket: None,
            table: "memcached/items".into(),
            threads: 4,
            change_threads: 16,
            connections: 1024,
            value_bytes: 1 << 20,
            batch: 32,
            read_batch: None,
            accounts: None,
            cache_bytes: 64 << 20,
            tls: None,
            idle_time: None,
            sweep_time: Some(Duration::from_secs(300)),
        }
    }
}

impl MemcachedOptions {
    pub const MOST_THREADS: usize = 256;
    pub const MOST_CONNECTIONS: usize = 1 << 20;
    pub const MOST_BATCH: usize = 1000;
    pub const MOST_CACHE_BYTES: usize = 1 << 40;

    fn guard(&self) -> Guard {
        let Some(tls) = &self.tls else {
            let mend = "give it a certificate, and accounts or authorities";
            return Guard::Lacks("it does not encrypt", mend);
        };
        match self.accounts.is_some() || tls.authorities.is_some() {
            true => Guard::Complete,
            false => Guard::Lacks(
                "it asks nobody who he is",
                "give it accounts or authorities",
            ),
        }
    }

    /// What starting a server with them asks first: for who makes a [`Cache`] of them before.
    ///
    /// # Errors
    ///
    /// `Invalid` for the first one that can't be used.
    pub fn validate(&self) -> Result<()> {
        let bounds = [
            ("threads", self.threads, 1, Self::MOST_THREADS),
            ("change_threads", self.change_threads, 1, Self::MOST_THREADS),
            ("connections", self.connections, 1, Self::MOST_CONNECTIONS),
            ("value_bytes", self.value_bytes, 1024, LONGEST_VALUE_BYTES),
            ("batch", self.batch, 1, Self::MOST_BATCH),
            (
                "cache_bytes",
                self.cache_bytes,
                1 << 20,
                Self::MOST_CACHE_BYTES,
            ),
        ];
        for (name, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                return Err(Error::invalid(format!(
                    "{name} {value} is not between {least} and {most}"
                )));
            }
        }
        if self.address.is_none() && self.socket.is_none() {
            return Err(Error::invalid(
                "there is neither an address nor a socket to listen on",
            ));
        }
        for (name, time) in [
            ("idle_time", self.idle_time),
            ("sweep_time", self.sweep_time),
        ] {
            if time.is_some_and(|time| time < Duration::from_secs(1)) {
                return Err(Error::invalid(format!("{name} is below a second")));
            }
        }
        Ok(())
    }
}

/// What a client has begun, or is to read, goes on within this time.
const SEND_TIME: Duration = Duration::from_secs(60);

/// A server that runs until it is stopped or dropped.
pub struct Memcached {
    address: Option<SocketAddr>,
    socket: Option<PathBuf>,
    tally: Tally,
    background: Background,
}

impl Memcached {
    /// Starts it. It must be stopped before the database is closed.
    ///
    /// # Errors
    ///
    /// `Invalid` for options that can't be used, an address that is none or is no loopback address, and a
    /// table that has other columns; `Io` if the port or the socket is taken.
    pub fn start(db: &Database, options: MemcachedOptions) -> Result<Memcached> {
        options.validate()?;
        let items = Store::open(db, &options.table, options.value_bytes)?;
        Memcached::start_on(items, options)
    }

    /// Starts it on items that are elsewhere; [`MemcachedOptions::table`] means nothing then. The items are
    /// dropped when the server has stopped.
    ///
    /// # Errors
    ///
    /// Those of [`Memcached::start`], without those of the table.
    pub fn start_on(items: impl Items, options: MemcachedOptions) -> Result<Memcached> {
        options.validate()?;
        let accounts = options.accounts.as_deref().map(Accounts::open);
        let accounts = accounts.transpose()?;
        let tls = options.tls.as_ref().map(Tls::open).transpose()?;
        let tcp = options
            .address
            .as_deref()
            .map(|address| listen_on(address, "the memcached server", options.guard()));
        let tcp = tcp.transpose()?;
        let address = tcp.as_ref().map(|(_, address)| *address);
        let unix = options.socket.as_ref().map(listen_unix).transpose()?;
        let failed = |e| Error::io("start", "the memcached server", e);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(options.threads)
            .max_blocking_threads(options.change_threads)
            .thread_name("varve-memcached")
            .enable_all()
            .build()
            .map_err(failed)?;
        let (tcp, unix) = {
            let _of_the_runtime = runtime.enter();
            let tcp = tcp.map(|(listener, _)| tokio::net::TcpListener::from_std(listener));
            let unix = unix.map(tokio::net::UnixListener::from_std);
            (
                tcp.transpose().map_err(failed)?,
                unix.transpose().map_err(failed)?,
            )
        };
        let shared = Shared::new(
            items,
            Settings {
                connections: options.connections,
                threads: options.threads,
                change_threads: options.change_threads,
                batch: options.batch,
                idle_time: options.idle_time,
                send_time: SEND_TIME,
                sweep_time: options.sweep_time,
                read_batch: options.read_batch,
                accounts,
                tls,
            },
        );
        let tally = shared.tally.clone();
        let background = Background::start("varve-memcached", runtime, move |stopped| {
            server::run(tcp, unix, Arc::new(shared), stopped)
        })?;
        Ok(Memcached {
            address,
            socket: options.socket,
            tally,
            background,
        })
    }

    /// Where it listens for TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Where it listens, for people.
    pub fn place(&self) -> String {
        let address = self.address.map(|address| address.to_string());
        let socket = self.socket.as_ref().map(|path| path.display().to_string());
        let places: Vec<String> = address.into_iter().chain(socket).collect();
        places.join(" and ")
    }

    /// What it has counted, by memcached's names.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        self.tally.counts()
    }

    /// What one that has just begun has counted.
    pub fn no_counts() -> Vec<(&'static str, u64)> {
        Tally::new(0).counts()
    }

    /// Closes its connections, once the changes that are being made are made.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        self.background.end();
        if let Some(path) = &self.socket {
            // Somebody may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A socket that nobody listens on any more is replaced.
fn listen_unix(path: &PathBuf) -> Result<UnixListener> {
    let failed = |e| Error::io("listen on", path.display().to_string(), e);
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|is| is.file_type().is_socket());
    let is_left = std::os::unix::net::UnixStream::connect(path)
        .is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused);
    if is_socket && is_left {
        std::fs::remove_file(path).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}
